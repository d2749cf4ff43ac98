//! Long random histories against a `BTreeMap` of states. Every answer is checked, the process dies,
//! the power is cut, and options change at every open.
//!
//! `model/ops.rs` lists what can happen, `model/state.rs` computes the expected content, and
//! `model/run.rs` does both and compares. `ISOBATH_TEST_LONG=1` runs many more and longer
//! histories.

mod model {
    pub(crate) mod ops;
    pub(crate) mod run;
    pub(crate) mod state;
}

use model::{ops, run::Run};
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
        options in ops::options(),
        history in prop::collection::vec(ops::op(), 50..350),
    ) {
        let mut run = Run::new(options);
        for (at, op) in history.iter().enumerate() {
            run.step(at, op);
        }
        run.finish();
    }
}
