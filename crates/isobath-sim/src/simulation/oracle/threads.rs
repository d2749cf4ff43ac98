//! The history of a life in which several threads each record their own part.
//!
//! They share the count of events. So if one operation ended before another began, it has the
//! lesser number, whichever threads they ran on. A commit is noted as begun before its call and as
//! acknowledged after the call. So commits that may have overlapped also overlap here.

use super::super::values::Values;
use super::History;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// The count of events of one life, and what was acknowledged in it. One history has it, or the
/// histories of several threads share it.
#[derive(Debug, Default)]
pub(crate) struct Clock {
    events: AtomicU64,
    newest_acknowledged: AtomicU64,
}

impl Clock {
    pub(super) fn tick(&self) -> u64 {
        self.events.fetch_add(1, SeqCst) + 1
    }

    pub(super) fn newest_acknowledged(&self) -> u64 {
        self.newest_acknowledged.load(SeqCst)
    }

    pub(super) fn acknowledge(&self, point: u64) {
        self.newest_acknowledged.fetch_max(point, SeqCst);
    }
}

impl History {
    /// What one of several threads did. They share the count of events.
    pub(crate) fn of_thread(base: Values, clock: &Arc<Clock>) -> History {
        History { clock: clock.clone(), ..History::new(base) }
    }

    /// Adds the history of another thread. The commits of that thread are of other writers.
    pub(crate) fn join(&mut self, other: History) {
        for (own, other) in self.writers.iter_mut().zip(other.writers) {
            debug_assert!(own.is_empty() || other.is_empty(), "a writer is one thread's");
            own.extend(other);
        }
        self.readings.extend(other.readings);
        self.deals.extend(other.deals);
        self.refusals.extend(other.refusals);
        self.is_blind |= other.is_blind;
        self.levels.add(&other.levels);
        self.two_phase.add(&other.two_phase);
    }

    /// Transactions that ended, and those that were told of a conflict.
    pub(crate) fn transactions(&self) -> (u64, u64) {
        (self.deals.len() as u64, self.refusals.len() as u64)
    }
}
