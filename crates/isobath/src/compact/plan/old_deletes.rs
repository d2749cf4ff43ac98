//! Takes deletes down that have stayed as long as their level allows.
//!
//! [`FamilyOptions::delete_within`](crate::FamilyOptions::delete_within) bounds how long a delete
//! may take from the memtable to the last level, where it goes with what it hid. The bound is
//! divided into equal shares: one for memory, one for level 0, one for each level between that and
//! the last one, and two more, so that the last job and the looks of maintenance fit in. A level
//! lets a delete go once the shares of the levels above and its own have passed since its flush.
//! In the last level a delete is left only for the sake of a reader. Once that has gone, the slice
//! is rewritten.
//!
//! Many deletes may be due at once, as after a long time without an opening. While level 0 is far
//! fuller than it should be, no such job begins: it would keep threads and slices of the base from
//! what writers wait for.
//!
//! Each such job takes its slices down, or removes all their deletes, so there is an end to it.

use super::pick::Picker;
use super::shape::Shape;
use super::{Hints, Plan, Policy};
use crate::engine::Busy;
use crate::events::CompactionReason;
use crate::version::{Slice, Tree};

/// The shares beside those of the levels between level 0 and the last one.
const SHARES_BESIDE: u64 = 4;

/// How far the clock may have been set back since a flush for its time to be believed.
const AHEAD_MAX_MS: u64 = 60_000;

/// What the bound says of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DeleteAges {
    /// For how long a delete may stay in memory, in milliseconds.
    pub(crate) share_ms: u64,
    /// Some slice is to go down, or to be rewritten.
    pub(crate) is_due: bool,
}

/// What the bound of `policy` says of a tree; `None` without a bound.
pub(crate) fn delete_ages(tree: &Tree, policy: &Policy, hints: &Hints) -> Option<DeleteAges> {
    if policy.delete_within_ms == 0 {
        return None;
    }
    let (shape, busy) = (Shape::of(tree, policy, hints), Busy::default());
    let picker = Picker { tree, policy, busy: &busy, hints, shape: &shape };
    let is_due = tree.iter().any(|(level, slice)| picker.is_to_go(level, slice));
    Some(DeleteAges { share_ms: picker.share_ms(), is_due })
}

impl Picker<'_> {
    /// A job for deletes that have stayed too long where they are.
    pub(super) fn take_old_deletes_down(&self) -> Option<Plan> {
        if self.policy.delete_within_ms == 0 || self.is_crowded() {
            return None;
        }
        let reason = CompactionReason::OldDeletes;
        if self.tree.runs.iter().any(|run| self.is_to_go(0, run)) {
            let runs = self.runs_free_to_leave();
            if runs.iter().any(|run| self.is_to_go(0, run))
                && let Some(plan) = self.compact_these_runs(runs, reason)
            {
                return Some(plan);
            }
        }
        let is_to_go = |level| move |slice: &Slice| self.is_to_go(level, slice);
        (self.shape.base..self.shape.bottom)
            .filter(|level| self.tree.slices(*level).iter().any(|slice| is_to_go(*level)(slice)))
            .find_map(|level| self.lower(level, is_to_go(level), 0.0, reason))
            .or_else(|| {
                let bottom = self.shape.bottom;
                self.rewrite_in_place(bottom, is_to_go(bottom), reason)
            })
    }

    /// How many levels lie between level 0 and the last one.
    fn middle_count(&self) -> u64 {
        debug_assert!(self.shape.base <= self.shape.bottom, "the base lies above the last level");
        (self.shape.bottom - self.shape.base) as u64
    }

    fn share_ms(&self) -> u64 {
        self.policy.delete_within_ms / (self.middle_count() + SHARES_BESIDE)
    }

    /// True if a slice has a delete that has been there too long, and a job would help.
    fn is_to_go(&self, level: usize, slice: &Slice) -> bool {
        let meta = &slice.meta;
        if meta.deletes == 0 && meta.spans.is_none() {
            return false;
        }
        let shares = 1 + (self.shape.depth(level) as u64).min(self.middle_count());
        // Where nothing is known of its age, an older build has written it. A time that is still to
        // come says nothing either: the clock was ahead then.
        let known = meta.oldest_delete.map(|oldest| oldest.flushed_ms);
        let known = known
            .filter(|flushed_ms| *flushed_ms <= self.hints.now_ms.saturating_add(AHEAD_MAX_MS));
        let flushed_ms = known.unwrap_or(0);
        let is_old = self.hints.now_ms >= flushed_ms.saturating_add(shares * self.share_ms());
        is_old && (level < self.shape.bottom || self.sheds(slice))
    }
}
