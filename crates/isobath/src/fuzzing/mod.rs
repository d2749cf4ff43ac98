//! The access of fuzzers to the decoders. It is compiled for them (`cfg(fuzzing)`) and for tests.
//!
//! A *target* is a function that takes any bytes and must return: it decodes them, or does what
//! they say, and asserts what must hold of the result. The targets of the decoders are beside the
//! decoders (`table/fuzzing.rs`, `wal/fuzzing.rs`, `version/fuzzing.rs`). Those of the public API
//! are here. `fuzz/` runs the targets under libFuzzer. `tests.rs` runs them briefly in every test
//! run, from the same seeds, so they always compile and work. Inputs that once crashed a target are
//! among its seeds.

mod bounds;
mod operations;
mod options;
#[cfg(test)]
mod tests;

use crate::{table, version, wal};

/// A target: its name, the function that takes the bytes (and panics on a fault), and its initial
/// inputs.
struct Target {
    name: &'static str,
    run: fn(&[u8]),
    /// Takes the target's name.
    #[cfg_attr(not(test), expect(dead_code, reason = "written to files by a test"))]
    seeds: fn(&str) -> Vec<Vec<u8>>,
}

const fn target(name: &'static str, run: fn(&[u8]), seeds: fn(&str) -> Vec<Vec<u8>>) -> Target {
    Target { name, run, seeds }
}

/// All targets.
const TARGETS: [Target; 16] = [
    target("payload", wal::fuzzing::payload, wal::fuzzing::seeds),
    target("log", wal::fuzzing::log, wal::fuzzing::seeds),
    target("edit", version::fuzzing::edit, version::fuzzing::seeds),
    target("manifest", version::fuzzing::manifest, version::fuzzing::seeds),
    target("current", version::fuzzing::current, version::fuzzing::seeds),
    target("block", table::fuzzing::block, table::fuzzing::seeds),
    target("index", table::fuzzing::index, table::fuzzing::seeds),
    target("filter", table::fuzzing::filter, table::fuzzing::seeds),
    target("footer", table::fuzzing::footer, table::fuzzing::seeds),
    target("root", table::fuzzing::root, table::fuzzing::seeds),
    target("codec", table::fuzzing::codec, table::fuzzing::seeds),
    target("table", table::fuzzing::table, table::fuzzing::seeds),
    target("family_options", options::family_options, options::seeds),
    target("options", options::options, options::seeds),
    target("bounds", bounds::bounds, bounds::seeds),
    target("operations", operations::operations, operations::seeds),
];

/// Runs the target with this name on `data`.
pub fn run(target: &str, data: &[u8]) {
    #[cfg(feature = "simulation")]
    plant_what_is_asked_for();
    let found = TARGETS.iter().find(|known| known.name == target);
    (found.expect("a target of this name").run)(data);
}

/// Plants the bug that `ISOBATH_PLANT` names, for the whole process. This is a control: the target
/// must catch the bug.
#[cfg(feature = "simulation")]
fn plant_what_is_asked_for() {
    use crate::env::planted::{Plant, plant};
    if let Some(name) = std::env::var_os("ISOBATH_PLANT") {
        let found = Plant::ALL.iter().find(|plant| name == plant.name());
        plant(*found.expect("a planted bug of this name"));
    }
}
