//! Transactions beside the writers, readers and the careless task of a life, over all that may
//! befall it.
//!
//! Several tasks (`task.rs`) begin, commit, roll back, rerun and misuse transactions of all levels
//! on a few keys that they share (`keys.rs`), and write there without transactions, too. What one
//! transaction does is drawn call by call (`body.rs`, `scans.rs`) and judged as far as it alone can
//! know (`attempt.rs`, `own.rs`). All that it found goes to the oracle (`deal.rs`): it must be so
//! in the order of the log, as its level promises (`observe.rs`, `rules.rs`). `steps.rs` calls what
//! is a small transaction of its own, `coordinator.rs` commits in two phases.

mod attempt;
mod body;
pub(crate) mod coordinator;
pub(crate) mod deal;
mod hands;
pub(crate) mod keys;
mod own;
pub(crate) mod rules;
mod scans;
mod steps;
mod task;

pub(crate) use attempt::is_too_large;

use super::runtime;
use super::workload::Stage;
use coordinator::USUAL;
use keys::Arena;
use std::rc::Rc;

/// Which tasks of transactions a life has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cast {
    /// Tasks that run transactions, and how many each.
    pub(crate) tasks: usize,
    pub(crate) count: u32,
    /// Coordinators; `None` if the life draws some, or none.
    pub(crate) coordinators: Option<usize>,
    /// All levels come equally often.
    pub(crate) is_even: bool,
}

/// Lets the tasks loose, those `among` them whose bit is set.
pub(crate) fn loose(
    stage: &Rc<Stage>,
    cast: Cast,
    among: u8,
    rng: &mut fastrand::Rng,
) -> Vec<usize> {
    let coordinators = match cast.coordinators {
        Some(count) => (0..count).map(|_| among != 0).collect(),
        None => coordinators(stage, cast.tasks > 0 && among != 0, rng).to_vec(),
    };
    let has_coordinators = coordinators.contains(&true);
    let mut arena = Arena::draw(&stage.keys, has_coordinators, rng);
    if cast.is_even {
        arena = arena.even();
    }
    if cast.coordinators.is_some_and(|count| count > 0) {
        arena = arena.deferring(&stage.keys);
    }
    let (arena, count) = (Rc::new(arena), cast.count);
    let mut started = Vec::new();
    for nth in 0..cast.tasks {
        let (stage, arena, rng) = (stage.clone(), arena.clone(), rng.fork());
        if among & 1 << nth != 0 {
            let body = Box::new(move || stage.transact(nth, &arena, count, rng));
            started.push(runtime::spawn(format!("transactor{nth}"), body));
        }
    }
    for (nth, takes_part) in coordinators.into_iter().enumerate() {
        let (stage, arena, rng) = (stage.clone(), arena.clone(), rng.fork());
        if takes_part {
            let body = Box::new(move || stage.coordinate(nth, &arena, count / 2, rng));
            started.push(runtime::spawn(format!("coordinator{nth}"), body));
        }
    }
    started
}

/// Which coordinators take part: in half of the lives some, and all that have something in doubt.
fn coordinators(stage: &Stage, is_asked: bool, rng: &mut fastrand::Rng) -> [bool; USUAL] {
    let (are_drawn, history) = (rng.bool(), stage.history.borrow());
    let mut takes_part = |nth: usize| {
        let is_drawn = rng.bool() && are_drawn;
        is_asked && (is_drawn || history.doubts[nth].is_some())
    };
    std::array::from_fn(&mut takes_part)
}
