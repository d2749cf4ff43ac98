//! Long random histories against a `BTreeMap` of states. Every answer is checked, the process dies,
//! the power is cut, and options change at every open.
//!
//! `model/ops.rs` lists what can happen, `model/state.rs` computes the expected content, and
//! `model/run.rs` does both and compares. `ISOBATH_TEST_LONG=1` runs many more histories.
//! `isobath-sim metamorphic` uses the same player to play one history under many options.
//!
//! Two other players stay separate. The writers of the simulation race, so a read is checked
//! against an order of the commits and not against a map
//! (`crates/isobath-sim/src/simulation/oracle.rs`). The fuzzers' operations are bytes that a fuzzer
//! mutates, and they are decoded inside the engine, which has no dependency for this
//! (`crates/isobath/src/fuzzing/operations.rs`).

mod model {
    pub(crate) mod home;
    pub(crate) mod ops;
    pub(crate) mod run;
    pub(crate) mod state;
}

use model::{home::Home, ops, run::Run};
use proptest::prelude::*;
use proptest::test_runner::Config;

fn config() -> Config {
    let cases = if std::env::var_os("ISOBATH_TEST_LONG").is_some() { 2000 } else { 8 };
    Config { cases, max_shrink_iters: 500, failure_persistence: None, ..Config::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn the_engine_answers_as_a_map_would(
        is_on_files in prop::bool::weighted(0.1),
        settings in prop::collection::vec(ops::settings(), 1..8),
        history in prop::collection::vec(ops::op(), 50..350),
    ) {
        let mut run = Run::new(Home::new(is_on_files), settings);
        for (at, op) in history.iter().enumerate() {
            run.step(at, op);
        }
        run.finish();
    }
}
