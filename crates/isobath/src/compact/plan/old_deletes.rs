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
//! fuller than it should be, the fullest level comes first. Then such jobs begin only where nothing
//! else is to be done, and keep off the base: level 0 goes down into it, and one slice after the
//! other would be in the way. But slices that are overdue by as much again as the bound take turns
//! with level 0, wherever they lie: otherwise writers that never rest could keep them there for
//! ever.
//!
//! Each such job takes its slices down, or removes all their deletes, so there is an end to it.

use super::pick::Picker;
use super::shape::Shape;
use super::{Hints, Plan, Policy};
use crate::engine::Busy;
use crate::env::{Reach, reached_if};
use crate::events::CompactionReason;
use crate::version::{Slice, Tree};

/// The shares beside those of the levels between level 0 and the last one.
const SHARES_BESIDE: u64 = 4;

/// Level 0 is so full that writers are slowed: from 1 on, fully at 3 (`engine/backlog.rs`).
const CROWDED: f64 = 1.5;

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
    let is_due = tree.iter().any(|(level, slice)| picker.is_to_go(level, slice, 0));
    Some(DeleteAges { share_ms: picker.share_ms(), is_due })
}

impl Picker<'_> {
    /// A job for deletes that have stayed too long, or for the fullest level.
    pub(super) fn relieve(&self) -> Option<Plan> {
        let bound_ms = self.policy.delete_within_ms;
        if bound_ms == 0 {
            return self.relieve_the_fullest();
        }
        // Runs that damage holds up need a thread, too, but not the base.
        let (free, held_up) = self.runs_fullness();
        if free.max(held_up) < CROWDED {
            return self
                .take_runs_down()
                .or_else(|| self.lower_old_deletes(1, 0))
                .or_else(|| self.relieve_the_fullest());
        }
        let is_their_turn = self.busy.has_lowered_runs();
        let overdue = is_their_turn.then(|| self.lower_old_deletes(1, bound_ms)).flatten();
        reached_if(Reach::DeletesTakeTurns, || overdue.is_some());
        let first = if free >= CROWDED { self.shape.base + 1 } else { 1 };
        overdue.or_else(|| self.relieve_the_fullest()).or_else(|| {
            let lower = self.lower_old_deletes(first, 0);
            reached_if(Reach::OldDeletesLast, || lower.is_some());
            reached_if(Reach::OldDeletesBesideDamage, || {
                lower.is_none() && free < CROWDED && self.take_runs_down().is_some()
            });
            lower.or_else(|| if free < CROWDED { self.take_runs_down() } else { None })
        })
    }

    /// Compacts level 0 if a run that can leave it has a delete that has been there too long.
    fn take_runs_down(&self) -> Option<Plan> {
        if !self.tree.runs.iter().any(|run| self.is_to_go(0, run, 0)) {
            return None;
        }
        let runs = self.runs_free_to_leave();
        let is_due = runs.iter().any(|run| self.is_to_go(0, run, 0));
        reached_if(Reach::OldDeletesStay, || !is_due);
        is_due.then(|| self.compact_these_runs(runs, CompactionReason::OldDeletes)).flatten()
    }

    /// Takes deletes down that have been in a level for so much longer than they should, from the
    /// level `first` on.
    fn lower_old_deletes(&self, first: usize, late_ms: u64) -> Option<Plan> {
        debug_assert!(first > 0, "level 0 goes down as a whole");
        let reason = CompactionReason::OldDeletes;
        let is_to_go = |level| move |slice: &Slice| self.is_to_go(level, slice, late_ms);
        let bottom = self.shape.bottom;
        (self.shape.base.max(first)..bottom)
            .filter(|level| self.tree.slices(*level).iter().any(|slice| is_to_go(*level)(slice)))
            // What overlaps nothing goes at once, in one edit.
            .find_map(|level| self.lower(level, is_to_go(level), f64::INFINITY, reason))
            .or_else(|| match first <= bottom {
                true => self.rewrite_in_place(bottom, is_to_go(bottom), reason),
                false => None,
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

    /// True if a slice has a delete that has been there for so much longer than it should, and a
    /// job would help.
    fn is_to_go(&self, level: usize, slice: &Slice, late_ms: u64) -> bool {
        let meta = &slice.meta;
        if meta.deletes == 0 && meta.spans.is_none() {
            return false;
        }
        let shares = 1 + (self.shape.depth(level) as u64).min(self.middle_count());
        // Where nothing is known of its age, an older build has written it, or the clock was ahead.
        let age_ms = meta.oldest_delete.and_then(|oldest| oldest.age_ms(self.hints.now_ms));
        let due_ms = (shares * self.share_ms()).saturating_add(late_ms);
        reached_if(Reach::OldDeletesUndated, || age_ms.is_none());
        age_ms.is_none_or(|age_ms| age_ms >= due_ms)
            && (level < self.shape.bottom || self.sheds(slice))
    }
}
