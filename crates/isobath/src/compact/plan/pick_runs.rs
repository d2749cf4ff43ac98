//! Chooses what to do with level 0.
//!
//! Runs may share keys, and the newer run wins. So each run that leaves level 0 takes along every
//! older run that it may share keys with, and only runs that are neighbours in time can become one.

use super::held_up::DamagedBase;
use super::pick::Picker;
use super::{Move, Plan, hull};
use crate::env::{Reach, reached, reached_if};
use crate::events::CompactionReason;
use crate::table::ExtentRef;
use crate::version::Slice;
use std::sync::Arc;

/// A run shorter than this fraction of an output is not moved down: many such runs would fill a
/// level with short slices.
const MOVED_SHARE_MIN: u64 = 4;
/// Fewer runs than this are not made into one.
const IN_PLACE_RUNS_MIN: usize = 4;

impl Picker<'_> {
    /// Runs that overlap nothing older, each with the deepest level that it can go to. Ascending
    /// writes make such runs.
    pub(super) fn runs_out_of_the_way(&self) -> Vec<Move> {
        let mut moves: Vec<Move> = Vec::new();
        let mut staying: Vec<&Arc<Slice>> = Vec::new();
        for run in self.tree.runs.iter().rev() {
            let meta = &run.meta;
            let overlaps = |other: &Arc<Slice>| other.extent().overlaps(&run.extent());
            let is_short = meta.disk_bytes * MOVED_SHARE_MIN < self.policy.target_file_bytes;
            let is_free = || {
                !self.busy.bars(meta.file)
                    && !staying.iter().any(|older| overlaps(older))
                    && !moves.iter().any(|older| overlaps(&older.slice))
            };
            let landing = self.landing(&run.extent());
            let may_move = landing.is_some_and(|to| self.may_move(0, to));
            reached_if(Reach::MoveRunShort, || landing.is_some() && is_short && is_free());
            reached_if(Reach::MoveRunPlain, || landing.is_some() && !may_move && is_free());
            match landing {
                Some(to) if may_move && !is_short && is_free() => {
                    reached_if(Reach::MoveRunDeep, || to > self.shape.base);
                    moves.push(Move { slice: run.clone(), from: 0, to, is_for_deletes: false });
                }
                _ => staying.push(run),
            }
        }
        moves
    }

    /// The deepest level, from the base down, to which a slice of this extent can go without
    /// overlapping that level or one above it.
    fn landing(&self, extent: &ExtentRef<'_>) -> Option<usize> {
        let is_clear = |level: &usize| {
            self.tree.overlapping(*level, extent).is_empty()
                && !self.busy.lands_between(level - 1, *level, extent)
        };
        let deepest = (1..=self.shape.bottom).take_while(is_clear).last()?;
        (deepest >= self.shape.base).then_some(deepest)
    }

    /// A compaction into the base of the runs that can leave level 0, as many as one job reads.
    pub(super) fn compact_runs(&self, reason: CompactionReason) -> Option<Plan> {
        let runs = self.runs_free_to_leave();
        self.compact_these_runs(runs, reason)
    }

    /// The oldest of these runs, as many as one job reads beside the base. The runs are newest
    /// first, and so is the answer. If with each run come all older ones that it overlaps, they do
    /// so in the answer, too. The others are for later jobs.
    pub(super) fn oldest_for_one_job<'r>(
        &self,
        mut runs: Vec<&'r Arc<Slice>>,
    ) -> Vec<&'r Arc<Slice>> {
        let most = self.policy.inputs_max.saturating_sub(1).max(1);
        reached_if(Reach::RunsForLaterJobs, || runs.len() > most);
        runs.split_off(runs.len().saturating_sub(most))
    }

    /// A compaction of these runs, or of the oldest of them, into the base, or further down if they
    /// overlap nothing there. The runs are newest first, and with each run come all older ones that
    /// it overlaps.
    pub(super) fn compact_these_runs(
        &self,
        runs: Vec<&Arc<Slice>>,
        reason: CompactionReason,
    ) -> Option<Plan> {
        let runs = self.oldest_for_one_job(runs);
        reached_if(Reach::RunsNoneFree, || runs.is_empty());
        let extent = hull(runs.iter().copied())?;
        let target = self.landing(&extent).unwrap_or(self.shape.base);
        if self.busy.lands_between(0, target, &extent) {
            reached(Reach::RunsBarredByLanding);
            return None;
        }
        let mut inputs: Vec<_> = runs.iter().map(|run| (0, (*run).clone())).collect();
        let mut fences: Vec<Box<[u8]>> = Vec::new();
        for slice in self.tree.overlapping(target, &extent) {
            if !runs.iter().any(|run| run.extent().overlaps(&slice.extent())) {
                fences.push(slice.extent().start.into());
            } else if self.busy.bars(slice.meta.file) {
                reached(Reach::RunsBarredBelow);
                return None;
            } else {
                inputs.push((target, slice));
            }
        }
        Some(Plan::Compaction(self.compaction(reason, inputs, target, fences)))
    }

    /// The runs that no job reads and that overlap neither an older run that must stay nor a
    /// damaged slice of the base, newest first.
    pub(super) fn runs_free_to_leave(&self) -> Vec<&Arc<Slice>> {
        let base = DamagedBase::of(self.tree, self.busy, self.shape);
        let mut staying: Vec<&Arc<Slice>> = Vec::new();
        let mut free: Vec<&Arc<Slice>> = Vec::new();
        for run in self.tree.runs.iter().rev() {
            let is_barred = self.busy.bars(run.meta.file) || base.lies_under(run);
            let is_over = || staying.iter().any(|older| older.extent().overlaps(&run.extent()));
            reached_if(Reach::RunOverStaying, || !is_barred && is_over());
            let is_blocked = is_barred || is_over();
            if is_blocked { staying.push(run) } else { free.push(run) }
        }
        free.reverse();
        free
    }

    /// Makes the newest runs into one, so that readers have fewer runs to search while the base is
    /// busy or cannot be read. A run is included only if it is no longer than all newer runs
    /// together, so that long runs are not rewritten for short ones, and no more of them than one
    /// job reads.
    pub(super) fn compact_runs_in_place(&self) -> Option<Plan> {
        let mut chosen = 0;
        let mut bytes = 0;
        for run in self.tree.runs.iter().take(self.policy.inputs_max) {
            let len = run.meta.disk_bytes;
            let is_long = chosen >= 2 && len > bytes;
            if self.busy.bars(run.meta.file) || is_long {
                reached_if(Reach::InPlaceLong, || is_long && chosen >= IN_PLACE_RUNS_MIN);
                break;
            }
            bytes += len;
            chosen += 1;
        }
        reached_if(Reach::InPlaceFew, || chosen < IN_PLACE_RUNS_MIN);
        while chosen >= IN_PLACE_RUNS_MIN {
            let (runs, rest) = self.tree.runs.split_at(chosen);
            if are_apart(runs, rest) {
                let inputs = runs.iter().map(|run| (0, run.clone())).collect();
                return Some(Plan::Compaction(self.compaction(
                    CompactionReason::RunsInPlace,
                    inputs,
                    0,
                    Vec::new(),
                )));
            }
            reached(Reach::InPlaceAsNew);
            chosen -= 1;
        }
        None
    }
}

/// True if all of `runs` together are newer than each of `others` that shares keys with their hull.
fn are_apart(runs: &[Arc<Slice>], others: &[Arc<Slice>]) -> bool {
    let Some(extent) = hull(runs.iter()) else { return true };
    let oldest = runs.iter().map(|run| run.meta.min_seq).min().unwrap_or(0);
    others.iter().all(|other| other.meta.max_seq < oldest || !other.extent().overlaps(&extent))
}
