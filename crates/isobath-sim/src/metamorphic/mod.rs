//! One history under many options: the answers must not depend on them.
//!
//! A seed is a history: batches over families that come and go, reads of every kind, snapshots,
//! flushes, compactions, closes, deaths. The player of the engine's own tests
//! (`crates/isobath/tests/model.rs`) plays it with real threads under several lists of options, in
//! memory and on files, and compares every read with what a `BTreeMap` for each family says.

#[path = "../../../isobath/tests/model/home.rs"]
mod home;
#[path = "../../../isobath/tests/model/ops.rs"]
mod ops;
#[path = "../../../isobath/tests/model/run.rs"]
mod run;
#[path = "../../../isobath/tests/model/state.rs"]
mod state;

use home::Home;
use ops::{Op, Settings};
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use run::Run;
use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The length of a list of options. The first open takes the first.
const SETTINGS: usize = 8;

/// The totals of a range of seeds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) seeds: u64,
    pub(crate) operations: u64,
    pub(crate) reads: u64,
    pub(crate) settings: u64,
}

/// Plays a seed under so many lists of options. The error says which operation answered what it
/// should not have.
pub(crate) fn play_seed(seed: u64, variants: u64, tally: &mut Tally) -> Result<(), String> {
    let history = history(seed);
    for variant in 0..variants {
        let home_and_settings = (any::<bool>(), prop::collection::vec(ops::settings(), SETTINGS));
        let (is_on_files, settings) = draw([seed, 1 + variant], home_and_settings);
        tally.settings += 1;
        play(&history, Home::new(is_on_files), settings)
            .map_err(|wrong| format!("seed {seed}, variant {variant}: {wrong}"))?;
        tally.operations += history.len() as u64;
        tally.reads += history.iter().filter(|op| is_read(op)).count() as u64;
    }
    tally.seeds += 1;
    Ok(())
}

/// A seed's operations. There are families from the beginning.
fn history(seed: u64) -> Vec<Op> {
    let mut history: Vec<Op> =
        (1..4).map(|nth| Op::CreateFamily { name: nth, settings: nth }).collect();
    history.extend(draw([seed, 0], prop::collection::vec(ops::op(), 200..600)));
    history
}

fn draw<S: Strategy>(seed: [u64; 2], strategy: S) -> S::Value {
    let mut bytes = [0; 32];
    for (to, from) in bytes.chunks_exact_mut(8).zip(seed) {
        to.copy_from_slice(&from.to_le_bytes());
    }
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    strategy.new_tree(&mut runner).expect("nothing drawn is refused").current()
}

fn is_read(op: &Op) -> bool {
    matches!(
        op,
        Op::Get { .. }
            | Op::MultiGet { .. }
            | Op::Range { .. }
            | Op::Prefix { .. }
            | Op::Cursor { .. }
            | Op::ReadSnapshot { .. }
    )
}

/// A wrong answer, an error and a panic of the engine are all failures of the operation.
fn play(history: &[Op], home: Home, settings: Vec<Settings>) -> Result<(), String> {
    let at = Cell::new(None);
    let play = || {
        let mut run = Run::new(home, settings);
        for (nth, op) in history.iter().enumerate() {
            at.set(Some(nth));
            run.step(nth, op);
        }
        at.set(None);
        run.finish();
    };
    catch_unwind(AssertUnwindSafe(play)).map_err(|panic| {
        let why = message(&*panic);
        match at.get() {
            Some(nth) => format!("operation {nth}, {:?}: {why}", history[nth]),
            None => format!("the first open or the last look: {why}"),
        }
    })
}

fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic without a message")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_of_seeds_answers_the_same_under_all_options() {
        let mut tally = Tally::default();
        for seed in 0..2 {
            play_seed(seed, 2, &mut tally).unwrap();
        }
        assert!(tally.reads > 400, "{tally:?}");
    }

    #[test]
    fn a_seed_is_one_history_and_another_seed_another() {
        let drawn = |seed| format!("{:?}", history(seed));
        assert_eq!(drawn(7), drawn(7));
        assert_ne!(drawn(7), drawn(8));
    }
}
