//! The door through which fuzzers reach the decoders, compiled for them (`cfg(fuzzing)`) and for
//! tests.
//!
//! A *target* is a function that takes any bytes and must return: it decodes them, or does what
//! they say, and asserts what must hold of the outcome. Those of the decoders stand beside them
//! (`table/fuzzing.rs`, `wal/fuzzing.rs`, `version/fuzzing.rs`); those of the public face are here.
//! `fuzz/` runs them under libFuzzer, `tests.rs` for a moment in every test run, from the same
//! seeds: so they cannot rot. Inputs that once crashed one are among its seeds.

mod bounds;
mod operations;
mod options;
#[cfg(test)]
mod tests;

use crate::{table, version, wal};

/// A target: its name, what it does with bytes (panics if something is wrong), and bytes to begin
/// with.
struct Target {
    name: &'static str,
    run: fn(&[u8]),
    /// Given the name.
    #[cfg_attr(not(test), expect(dead_code, reason = "written to files by a test"))]
    seeds: fn(&str) -> Vec<Vec<u8>>,
}

const fn target(name: &'static str, run: fn(&[u8]), seeds: fn(&str) -> Vec<Vec<u8>>) -> Target {
    Target { name, run, seeds }
}

/// All of them.
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

/// Gives `data` to the target of this name.
pub fn run(target: &str, data: &[u8]) {
    #[cfg(feature = "simulation")]
    plant_what_is_asked_for();
    let found = TARGETS.iter().find(|known| known.name == target);
    (found.expect("a target of this name").run)(data);
}

/// Plants the bug that `ISOBATH_PLANT` names in the whole process: a control, which the target must
/// then catch.
#[cfg(feature = "simulation")]
fn plant_what_is_asked_for() {
    use crate::env::planted::{Plant, plant};
    if let Some(name) = std::env::var_os("ISOBATH_PLANT") {
        let found = Plant::ALL.iter().find(|plant| name == plant.name());
        plant(*found.expect("a planted bug of this name"));
    }
}
