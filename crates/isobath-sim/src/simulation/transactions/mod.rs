//! Transactions beside the writers, readers and the careless task of a life, over all that may
//! befall it.
//!
//! Several tasks (`task.rs`) begin, commit, roll back, rerun and misuse transactions of all levels
//! on a few keys that they share (`keys.rs`), and write there without transactions, too. What one
//! transaction does is drawn call by call (`body.rs`, `scans.rs`) and judged as far as it alone can
//! know (`attempt.rs`, `own.rs`). All that it found goes to the oracle (`deal.rs`): it must be so
//! in the order of the log, as its level promises (`observe.rs`, `rules.rs`). `steps.rs` calls what
//! is a small transaction of its own.

mod attempt;
mod body;
pub(crate) mod deal;
mod keys;
mod own;
pub(crate) mod rules;
mod scans;
mod steps;
mod task;

pub(crate) use attempt::is_too_large;

use super::runtime;
use super::workload::Stage;
use keys::Arena;
use std::rc::Rc;

/// Lets so many tasks loose, those `among` them whose bit is set, with so many transactions each.
pub(crate) fn loose(
    stage: &Rc<Stage>,
    tasks: usize,
    among: u8,
    count: u32,
    rng: &mut fastrand::Rng,
) -> Vec<usize> {
    let arena = Rc::new(Arena::draw(&stage.keys, rng));
    let mut started = Vec::new();
    for nth in 0..tasks {
        let (stage, arena, rng) = (stage.clone(), arena.clone(), rng.fork());
        if among & 1 << nth != 0 {
            let body = Box::new(move || stage.transact(nth, &arena, count, rng));
            started.push(runtime::spawn(format!("transactor{nth}"), body));
        }
    }
    started
}
