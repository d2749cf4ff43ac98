//! Looks for deletes that have stayed as long as their families allow
//! ([`FamilyOptions::delete_within`](crate::FamilyOptions::delete_within)).
//!
//! Flushes and compactions plan anyway, and take such deletes down. Where none comes, maintenance
//! looks. It also has memtables flushed that have been written for too long: it does not know
//! whether deletes are in them.

use super::plan::delete_ages;
use super::schedule::{hints_of, policy_of, schedule_these};
use crate::engine::Engine;
use std::sync::Arc;

/// A look comes after so many rounds of maintenance: each slice of these families is looked at.
const LOOK_ROUNDS: u32 = 2;

/// What maintenance remembers from round to round.
#[derive(Default)]
pub(crate) struct OldDeletes {
    rounds: u32,
    /// The open epoch, and when it was seen first, or last with nothing in it.
    epoch: u64,
    since_ns: u64,
}

impl OldDeletes {
    /// Called once a round: starts the jobs that are due. True if the open epoch is to be flushed.
    pub(crate) fn round(&mut self, engine: &Arc<Engine>) -> bool {
        self.rounds = self.rounds.wrapping_add(1);
        if !self.rounds.is_multiple_of(LOOK_ROUNDS) || engine.check_writable().is_err() {
            return false;
        }
        let now_ns = engine.pacer.now_ns();
        let (epoch, written) = engine.epochs.open_families();
        debug_assert!(epoch >= self.epoch, "epochs go on");
        if epoch != self.epoch || written.is_empty() {
            (self.epoch, self.since_ns) = (epoch, now_ns);
        }
        let waited_ms = now_ns.saturating_sub(self.since_ns) / 1_000_000;
        let (mut due, mut is_late) = (Vec::new(), false);
        for family in engine.families.all() {
            if family.options().delete_within_ms() == 0 {
                continue;
            }
            let policy = policy_of(engine, &family);
            let hints = hints_of(engine, &family.compactions.state.lock(), false);
            let tree = family.view().tree.clone();
            let Some(ages) = delete_ages(&tree, &policy, &hints) else { continue };
            is_late |= written.contains(&family.id) && waited_ms >= ages.share_ms;
            if ages.is_due {
                due.push(family);
            }
        }
        if !due.is_empty() {
            schedule_these(engine, &due);
        }
        is_late
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
