//! Chooses the slices of a job.
//!
//! The hull of a job is the extent of its inputs together, and its outputs lie within the hull. So
//! all slices of the target within the hull are inputs too, or are fenced off. No running job reads
//! an input or puts anything within the hull between the job's levels.

use super::held_up::HeldUp;
use super::policy::{Hints, Policy};
use super::shape::{Shape, Weight};
use super::{Compaction, Move, Plan, hull};
use crate::engine::Busy;
use crate::env::{Reach, reached, reached_if};
use crate::events::CompactionReason;
use crate::table::ExtentRef;
use crate::version::{Slice, Tree};
use std::ops::Range;
use std::sync::Arc;

/// A window of slices grows while its cost per byte stays below this multiple of the cost of its
/// best slice.
const WINDOW_SLACK: f64 = 1.25;

/// A level has at least about this many slices, unless they would be shorter than a fraction of the
/// policy's length.
const OUTPUTS_IN_LEVEL: u64 = 16;
const FINER_MAX: u64 = 32;

/// How many slices one edit moves at most: while it is on its way, each plan asks of each slice
/// whether it is among them.
pub(super) const MOVES_MAX: usize = 256;

/// How many batches of level 0 a job may read at most.
const JOB_BATCHES_MAX: u64 = 4;

/// Level 0 is due, however few runs it has, if its values in blob files are at least this multiple
/// of its own bytes ...
const APART_SHARE: u64 = 8;
/// ... and it holds at least one part in this many of the whole tree.
const HIDDEN_SHARE: u64 = 16;

pub(super) struct Picker<'a> {
    pub(super) tree: &'a Tree,
    pub(super) policy: &'a Policy,
    pub(super) busy: &'a Busy,
    pub(super) hints: &'a Hints,
    pub(super) shape: &'a Shape,
}

impl Picker<'_> {
    /// A job for the fullest level for which one can be found.
    pub(super) fn relieve_the_fullest(&self) -> Option<Plan> {
        let mut fullness = self.fullness();
        fullness.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        let mut too_full = fullness.iter().take_while(|(_, full)| *full >= 1.0).enumerate();
        too_full.find_map(|(nth, &(level, full))| {
            let plan = match level {
                0 => self.relieve_runs(),
                _ => self.lower_level(level, full),
            };
            reached_if(Reach::FullLevelWaits, || plan.is_none() && level > 0);
            reached_if(Reach::NextFullest, || plan.is_some() && nth > 0);
            plan
        })
    }

    /// How full each level is: 1 is full.
    pub(super) fn fullness(&self) -> Vec<(usize, f64)> {
        let mut fullness = self.shape.fullness(self.tree, self.busy);
        let (free, held_up) = self.runs_fullness();
        fullness.push((0, free.max(held_up)));
        fullness
    }

    fn relieve_runs(&self) -> Option<Plan> {
        let (free, held_up) = self.runs_fullness();
        debug_assert!(free >= 1.0 || held_up >= 1.0, "a level is relieved once it is full");
        let is_due = free >= 1.0;
        let down = is_due.then(|| self.compact_runs(CompactionReason::Runs)).flatten();
        down.or_else(|| {
            let plan = self.compact_runs_in_place();
            reached_if(Reach::FullRunsWait, || plan.is_none());
            reached_if(Reach::InPlaceForJobs, || plan.is_some() && is_due);
            reached_if(Reach::InPlaceForDamage, || plan.is_some() && !is_due);
            plan
        })
    }

    /// How full level 0 is of runs that can go down, and of those that damage holds up. A sum would
    /// send each run beside many held-up ones to the base alone.
    pub(super) fn runs_fullness(&self) -> (f64, f64) {
        let held_up = self.held_up();
        let unread = || self.tree.runs.iter().filter(|run| !self.busy.bars(run.meta.file));
        let free = || unread().filter(|run| !held_up.holds(run));
        let batches = |runs: usize| runs as f64 / self.policy.l0_trigger_runs.max(1) as f64;
        let by_count = batches(free().count());
        let of_held_up = batches(unread().filter(|run| held_up.holds(run)).count());
        // Runs hide which values beneath them are garbage, and cost little to compact if most of
        // them lies in blob files.
        let (disk, held) = free().fold((0, 0), |sum: (u64, u64), run| {
            (sum.0.saturating_add(run.meta.disk_bytes), sum.1.saturating_add(run.held_bytes))
        });
        let of_all: u64 = (0..self.tree.level_count())
            .fold(0, |sum: u64, level| sum.saturating_add(self.tree.held_bytes(level)));
        let held = held.saturating_add(self.hidden_by(free()));
        let hides_much =
            held / APART_SHARE >= disk.max(1) && held.saturating_mul(HIDDEN_SHARE) >= of_all;
        reached_if(Reach::RunsHideMuch, || hides_much && by_count < 1.0);
        (if hides_much { by_count.max(1.0) } else { by_count }, of_held_up)
    }

    /// About how many bytes of values that lie apart the deletes of these runs hide: so much of an
    /// average entry lies apart.
    fn hidden_by<'r>(&self, runs: impl Iterator<Item = &'r Arc<Slice>>) -> u64 {
        let deletes: u128 = runs.map(|run| u128::from(run.meta.deletes)).sum();
        if deletes == 0 || !(self.tree.has_blobs() || self.tree.has_streams()) {
            return 0;
        }
        let (apart, entries) = self.tree.iter().fold((0, 0), |(apart, entries), (_, slice)| {
            let of_slice = slice.held_bytes.saturating_sub(slice.meta.disk_bytes);
            (apart + u128::from(of_slice), entries + u128::from(slice.meta.entries))
        });
        u64::try_from(apart.saturating_mul(deletes) / entries.max(1)).unwrap_or(u64::MAX)
    }

    fn held_up(&self) -> HeldUp {
        HeldUp::of(self.tree, self.busy, self.shape)
    }

    fn lower_level(&self, level: usize, full: f64) -> Option<Plan> {
        let bytes_over = (full - 1.0) * self.shape.capacity(level) as f64;
        self.lower(level, |_| true, bytes_over, CompactionReason::Size)
    }

    /// Takes slices of `level` that `wanted` accepts one level down: those that overlap the fewest
    /// bytes for their weight. If slices overlap nothing, they are moved instead, until their
    /// weight reaches `bytes_over`.
    pub(super) fn lower(
        &self,
        level: usize,
        wanted: impl Fn(&Slice) -> bool,
        bytes_over: f64,
        reason: CompactionReason,
    ) -> Option<Plan> {
        let target = self.shape.next(self.tree, level);
        debug_assert!(target > level, "what leaves level {level} goes down, not to {target}");
        let scale = Weight::of(self.tree);
        let slices = self.tree.slices(level);
        let mut best: Option<(f64, usize)> = None;
        let mut moves = Vec::new();
        let mut moved = 0.0;
        for (at, slice) in slices.iter().enumerate().filter(|(_, slice)| wanted(slice)) {
            let Some(overlap) = self.cost_of(level, at..at + 1, target) else { continue };
            let weight = scale.weigh(slice);
            let cost = overlap as f64 / weight;
            if overlap == 0 && self.may_move(level, target) {
                if moves.is_empty() || moved < bytes_over && moves.len() < MOVES_MAX {
                    moved += weight;
                    let is_for_deletes = reason == CompactionReason::OldDeletes;
                    let slice = slice.clone();
                    moves.push(Move { slice, from: level, to: target, is_for_deletes });
                }
            } else if best.is_none_or(|(least, _)| cost < least) {
                best = Some((cost, at));
            }
        }
        if !moves.is_empty() {
            reached_if(Reach::MoveSeveral, || moves.len() > 1);
            reached_if(Reach::MoveOfDeletes, || reason == CompactionReason::OldDeletes);
            reached_if(Reach::MoveManual, || reason == CompactionReason::Manual);
            reached_if(Reach::MoveLeftOver, || reason == CompactionReason::Idle);
            return Some(Plan::Move(moves));
        }
        let (cost, at) = best?;
        reached_if(Reach::MovePlain, || cost == 0.0);
        let window = self.grow_window(level, at, target, cost, scale);
        reached_if(Reach::WindowGrown, || window.len() > 1);
        Some(Plan::Compaction(self.compaction_of_window(level, window, target, reason)))
    }

    /// Bytes of the target within the hull of a window of slices. `None` if a running job or a
    /// damaged slice is in the way.
    pub(super) fn cost_of(&self, level: usize, window: Range<usize>, target: usize) -> Option<u64> {
        let slices = &self.tree.slices(level)[window];
        let extent = hull(slices.iter())?;
        if slices.iter().any(|slice| self.is_barred(slice, Reach::BarredByReader)) {
            return None;
        }
        if self.busy.lands_between(level.min(target - 1), target, &extent) {
            reached(Reach::BarredByLanding);
            return None;
        }
        if level == target {
            return Some(0);
        }
        self.bytes_within(target, &extent)
    }

    /// True if no job may read the slice: a running one does, which is such a place, or none can.
    fn is_barred(&self, slice: &Slice, by_job: Reach) -> bool {
        let file = slice.meta.file;
        reached_if(by_job, || self.busy.reads(file));
        reached_if(Reach::BarredByDamage, || self.busy.is_damaged(file));
        self.busy.bars(file)
    }

    /// Bytes of the slices of a level that overlap an extent. `None` if a running job reads one of
    /// them, or none can.
    fn bytes_within(&self, level: usize, extent: &ExtentRef<'_>) -> Option<u64> {
        let Some(slices) = self.tree.levels.get(level - 1) else { return Some(0) };
        slices
            .overlapping(extent)
            .iter()
            .map(|slice| {
                (!self.is_barred(slice, Reach::BarredBelow)).then_some(slice.meta.disk_bytes)
            })
            .sum()
    }

    /// The most that a job below level 0 should read, so that level 0 does not fill while it runs;
    /// but some outputs of the least length, or it would not be worth its syncs.
    pub(super) fn job_bytes_max(&self) -> u64 {
        let some = self.shape.batch_bytes.max(output_len(0, self.policy));
        self.policy.job_bytes_max.min(some.saturating_mul(JOB_BATCHES_MAX))
    }

    /// Adds neighbours of a slice to the job while they overlap little more than what the job reads
    /// anyway.
    fn grow_window(
        &self,
        level: usize,
        at: usize,
        target: usize,
        cost: f64,
        scale: Weight,
    ) -> Range<usize> {
        let slices = self.tree.slices(level);
        let mut window = at..at + 1;
        let mut open = [true, true];
        while open[0] || open[1] {
            for side in [1, 0] {
                let grown = match side {
                    1 => window.start..window.end + 1,
                    _ => window.start.wrapping_sub(1)..window.end,
                };
                open[side] = open[side]
                    && grown.end <= slices.len()
                    && grown.start < grown.end
                    && self.is_cheap(level, grown.clone(), target, cost, scale);
                if open[side] {
                    window = grown;
                }
            }
        }
        debug_assert!(window.contains(&at), "the cheapest slice is left where it is");
        window
    }

    fn is_cheap(
        &self,
        level: usize,
        window: Range<usize>,
        target: usize,
        cost: f64,
        scale: Weight,
    ) -> bool {
        let slices = &self.tree.slices(level)[window.clone()];
        let own: u64 = slices.iter().map(|slice| slice.meta.disk_bytes).sum();
        let weight: f64 = slices.iter().map(|slice| scale.weigh(slice)).sum();
        self.cost_of(level, window, target).is_some_and(|overlap| {
            let fits = own + overlap <= self.job_bytes_max();
            let is_cheap = overlap as f64 / weight <= cost * WINDOW_SLACK;
            reached_if(Reach::WindowFull, || !fits);
            reached_if(Reach::WindowDear, || fits && !is_cheap);
            fits && is_cheap
        })
    }

    /// False if slices of `from` are not compressed as slices of `to` are.
    pub(super) fn may_move(&self, from: usize, to: usize) -> bool {
        let is_plain = |level: usize| {
            level != self.shape.bottom && self.shape.depth(level) < self.policy.plain_depths
        };
        !is_plain(from) || is_plain(to)
    }

    /// A compaction of a window of a level below 0 with the slices of the target that it overlaps.
    pub(super) fn compaction_of_window(
        &self,
        level: usize,
        window: Range<usize>,
        target: usize,
        reason: CompactionReason,
    ) -> Compaction {
        let slices = &self.tree.slices(level)[window];
        let extent = hull(slices.iter()).unwrap_or_default();
        let mut inputs: Vec<_> = slices.iter().map(|slice| (level, slice.clone())).collect();
        if target != level {
            let below = self.tree.overlapping(target, &extent);
            inputs.extend(below.into_iter().map(|slice| (target, slice)));
        }
        self.compaction(reason, inputs, target, Vec::new())
    }

    /// Completes a compaction whose slices are chosen.
    pub(super) fn compaction(
        &self,
        reason: CompactionReason,
        inputs: Vec<(usize, Arc<Slice>)>,
        target: usize,
        fences: Vec<Box<[u8]>>,
    ) -> Compaction {
        debug_assert!(!inputs.is_empty(), "a compaction has nothing to read");
        debug_assert!(
            inputs.iter().all(|(level, _)| *level <= target),
            "versions would rise above newer ones"
        );
        debug_assert!(
            inputs.iter().all(|(_, slice)| !self.busy.bars(slice.meta.file)),
            "a running job reads the slice already, or none can"
        );
        let runs = inputs.iter().filter(|(level, _)| *level == 0);
        debug_assert!(
            runs.is_sorted_by(|(_, newer), (_, older)| newer.meta.max_seq > older.meta.max_seq),
            "runs are merged newest first"
        );
        debug_assert!(fences.is_sorted(), "fences are passed in order");
        let extent = hull(inputs.iter().map(|(_, slice)| slice)).unwrap_or_default();
        let mut beneath = match target {
            0 => self.runs_beneath(&inputs),
            _ => Vec::new(),
        };
        let deeper = (target + 1..=self.shape.bottom.max(target))
            .map(|level| self.tree.overlapping(level, &extent));
        beneath.extend(deeper.filter(|slices| !slices.is_empty()));
        let guides = match target {
            0 => Vec::new(),
            _ => self.tree.overlapping(self.shape.next(self.tree, target), &extent),
        };
        let guides = if target < self.shape.bottom { guides } else { Vec::new() };
        let mut compaction = Compaction {
            reason,
            target,
            depth: self.shape.depth(target),
            is_last_level: target == self.shape.bottom,
            fences,
            cuts: Vec::new(),
            beneath,
            output_bytes: (target > 0).then(|| self.output_bytes(target, &inputs)),
            overlap_max: self.overlap_max(&guides),
            guides,
            inputs,
        };
        compaction.cuts = self.cuts(&compaction);
        debug_assert!(
            compaction.input_rows() <= self.policy.inputs_max.max(2),
            "for so many inputs there may be no memory"
        );
        compaction
    }

    /// Small levels are cut finer, so that jobs have something to choose from.
    fn output_bytes(&self, target: usize, inputs: &[(usize, Arc<Slice>)]) -> u64 {
        let arriving: u64 = inputs.iter().map(|(_, slice)| slice.meta.disk_bytes).sum();
        let holds = self.tree.disk_bytes(target).max(arriving).min(self.shape.capacity(target));
        self.output_bytes_of(holds)
    }

    /// The length of the outputs in a level of so many bytes.
    pub(super) fn output_bytes_of(&self, level_bytes: u64) -> u64 {
        output_len(level_bytes, self.policy)
    }

    /// What one job should read at most; but a sixteenth of all that the outputs lie over at least,
    /// or a short job would write as many outputs as there are slices below it.
    fn overlap_max(&self, guides: &[Arc<Slice>]) -> u64 {
        let beneath: u64 = guides.iter().map(|slice| slice.meta.disk_bytes).sum();
        self.job_bytes_max().max(beneath / 16)
    }

    fn runs_beneath(&self, inputs: &[(usize, Arc<Slice>)]) -> Vec<Vec<Arc<Slice>>> {
        let is_input = |run: &Arc<Slice>| inputs.iter().any(|(_, input)| Arc::ptr_eq(input, run));
        let older = self.tree.runs.iter().rev().take_while(|run| !is_input(run));
        older.map(|run| vec![run.clone()]).collect()
    }

    /// Cuts a job at slices of the target, so that each part reads about the same amount of them.
    /// If the job reads none of the target, the level below it serves.
    fn cuts(&self, compaction: &Compaction) -> Vec<Box<[u8]>> {
        let bytes = compaction.input_bytes();
        let part_bytes = 2 * self.policy.target_file_bytes.max(1);
        let parts = (bytes / part_bytes).min(self.policy.parts_max as u64);
        if parts < 2 || compaction.target == 0 {
            return Vec::new();
        }
        let first = compaction.hull().start;
        let in_target = compaction.inputs.iter().filter(|(level, _)| *level == compaction.target);
        let mut rulers: Vec<&Arc<Slice>> = in_target.map(|(_, slice)| slice).collect();
        if rulers.is_empty() {
            rulers = compaction.guides.iter().collect();
        }
        let total: u64 = rulers.iter().map(|slice| slice.meta.disk_bytes).sum();
        let (mut seen, mut cuts) = (0, Vec::new());
        for slice in rulers {
            let is_due = seen * parts >= total * (cuts.len() as u64 + 1);
            if is_due && slice.extent().starts_after(first) {
                cuts.push(slice.extent().start.into());
            }
            seen += slice.meta.disk_bytes;
        }
        cuts
    }

    /// Takes slices with a large share of deletes down, toward the versions that the deletes hide.
    /// A range delete may hide any number of them, so each counts as a large share.
    pub(super) fn push_deletes(&self) -> Option<Plan> {
        let is_heavy = |slice: &Slice| {
            let least = slice.meta.entries * u64::from(self.policy.delete_percent);
            let oldest_ms = self.hints.oldest_ms;
            let has_deletes = slice.meta.has_deletes(oldest_ms);
            let has_many = slice.meta.deletes_at(oldest_ms) * 100 >= least;
            let has_spans = slice.meta.spans.is_some();
            reached_if(Reach::DeletesFew, || has_deletes && !has_many && !has_spans);
            reached_if(Reach::DeletesBySpan, || has_deletes && !has_many && has_spans);
            has_deletes && (has_many || has_spans)
        };
        let runs = &self.tree.runs;
        let heavy_bytes: u64 =
            runs.iter().filter(|run| is_heavy(run)).map(|run| run.meta.disk_bytes).sum();
        let are_most = heavy_bytes * 2 > self.tree.disk_bytes(0);
        reached_if(Reach::DeletesOfFewRuns, || heavy_bytes > 0 && !are_most);
        if are_most && let Some(plan) = self.compact_runs(CompactionReason::Deletes) {
            return Some(plan);
        }
        let middle = self.shape.base..self.shape.bottom;
        middle
            .into_iter()
            .filter(|level| self.tree.slices(*level).iter().any(|slice| is_heavy(slice)))
            .find_map(|level| self.lower(level, is_heavy, 0.0, CompactionReason::Deletes))
            .or_else(|| {
                let is_due = |slice: &Slice| self.sheds(slice) && is_heavy(slice);
                self.rewrite_in_place(self.shape.bottom, is_due, CompactionReason::Deletes)
            })
    }

    /// True if a rewrite in the last level certainly removes all deletes of the slice.
    pub(super) fn sheds(&self, slice: &Slice) -> bool {
        let has_deletes = slice.meta.has_deletes(self.hints.oldest_ms);
        let is_below_readers = slice.meta.max_seq < self.hints.oldest_reader;
        reached_if(Reach::DeletesForReader, || has_deletes && !is_below_readers);
        has_deletes && is_below_readers
    }

    /// Rewrites slices of the last level that `is_due` accepts.
    pub(super) fn rewrite_in_place(
        &self,
        level: usize,
        is_due: impl Fn(&Slice) -> bool,
        reason: CompactionReason,
    ) -> Option<Plan> {
        let slices = self.tree.slices(level);
        let at = (0..slices.len()).find(|at| {
            is_due(&slices[*at]) && self.cost_of(level, *at..*at + 1, level).is_some()
        })?;
        let mut window = at..at + 1;
        let mut bytes = slices[at].meta.disk_bytes;
        while let Some(next) = slices.get(window.end)
            && is_due(next)
            && bytes + next.meta.disk_bytes <= self.job_bytes_max()
            && self.cost_of(level, window.start..window.end + 1, level).is_some()
        {
            bytes += next.meta.disk_bytes;
            window.end += 1;
        }
        reached_if(Reach::RewriteSeveral, || window.len() > 1);
        Some(Plan::Compaction(self.compaction_of_window(level, window, level, reason)))
    }

    /// When there is little to do, compacts level 0 and empties levels that are no longer needed.
    pub(super) fn tidy_up(&self) -> Option<Plan> {
        let held_up = self.held_up();
        let free = || self.tree.runs.iter().filter(|run| !held_up.holds(run));
        let l0_bytes: u64 = free().map(|run| run.meta.disk_bytes).sum();
        let are_enough = free().count() * 2 >= self.policy.l0_trigger_runs;
        let is_worth_it = are_enough && l0_bytes * 8 >= self.tree.disk_bytes(self.shape.base);
        reached_if(Reach::IdleFewRuns, || !are_enough && l0_bytes > 0);
        reached_if(Reach::IdleShortRuns, || are_enough && !is_worth_it);
        let runs = if is_worth_it { self.compact_runs(CompactionReason::Idle) } else { None };
        runs.or_else(|| {
            let left_over = (self.shape.base..self.shape.bottom).find(|level| {
                let mut slices = self.tree.slices(*level).iter();
                self.shape.is_left_over(*level) && slices.any(|slice| !held_up.holds(slice))
            })?;
            self.lower(left_over, |_| true, f64::MAX, CompactionReason::Idle)
        })
    }
}

/// The length of the outputs in a level of this many bytes.
fn output_len(level_bytes: u64, policy: &Policy) -> u64 {
    let most = policy.target_file_bytes;
    let least = (most / FINER_MAX).max(policy.output_bytes_min).min(most);
    (level_bytes / OUTPUTS_IN_LEVEL).clamp(least, most)
}

#[cfg(test)]
mod tests {
    use super::super::plan;
    use super::*;
    use crate::table::BlobShare;
    use crate::version::fixtures::meta;
    use crate::version::{LiveFile, ObsoleteFiles};

    #[test]
    fn deletes_of_long_values_that_lie_apart_go_down_without_waiting_for_other_runs() {
        let own = |number| LiveFile::new(number, &ObsoleteFiles::new());
        let planned = |deletes, bytes| {
            let mut below = meta(0, 1, "a", "z", (1, 2));
            (below.entries, below.disk_bytes) = (100, 1 << 20);
            below.blobs = [BlobShare { file: 9, values: 100, bytes }].into();
            let mut run = meta(0, 2, "a", "z", (8, 9));
            (run.entries, run.deletes, run.disk_bytes) = (10, deletes, 1 << 10);
            let bottom = Policy::default().levels_max - 1;
            let below = (bottom, Slice::new(below, own(1), [own(9)].into()));
            let added = vec![below, (0, Slice::new(run, own(2), Box::default()))];
            let tree = Tree::default().with(&[], added).unwrap();
            let hints = Hints { run_bytes: 64 << 20, ..Hints::default() };
            matches!(
                plan(&tree, &Policy::default(), &Busy::default(), &hints),
                Plan::Compaction(Compaction { reason: CompactionReason::Runs, .. })
            )
        };
        assert!(planned(10, 1 << 30));
        assert!(!planned(1, 1 << 30), "they hide little of all");
        assert!(!planned(0, 1 << 30) && !planned(10, 1 << 10));
    }

    #[test]
    fn a_run_goes_down_alone_if_its_values_lie_apart_and_are_a_sixteenth_of_all() {
        let own = |number| LiveFile::new(number, &ObsoleteFiles::new());
        let with_values = |number: u64, (disk_bytes, bytes): (u64, u64), seqs| {
            let mut meta = meta(0, number, "a", "z", seqs);
            (meta.deletes, meta.disk_bytes) = (0, disk_bytes);
            let file = 10 + number;
            meta.blobs = [BlobShare { file, values: 10, bytes }].into();
            Slice::new(meta, own(number), [own(file)].into())
        };
        // Of each the bytes on disk and those that lie apart.
        let planned = |run, below| {
            let bottom = Policy::default().levels_max - 1;
            let slices =
                vec![(bottom, with_values(1, below, (1, 2))), (0, with_values(2, run, (8, 9)))];
            let tree = Tree::default().with(&[], slices).unwrap();
            let hints = Hints { run_bytes: 64 << 20, ..Hints::default() };
            match plan(&tree, &Policy::default(), &Busy::default(), &hints) {
                Plan::DoNothing => false,
                Plan::Compaction(Compaction { reason: CompactionReason::Runs, inputs, .. }) => {
                    inputs.len() == 2
                }
                other => panic!("{other:?}"),
            }
        };
        assert!(planned((1 << 10, 100 << 20), (1 << 20, 900 << 20)), "a tenth");
        // A sixteenth of all is a fifteenth of what is below.
        let (kib, mib) = (1 << 10, 1 << 20);
        assert!(planned((kib, mib - kib), (mib, 14 * mib)));
        assert!(!planned((kib, mib - kib), (mib, 14 * mib + 1)), "it hides little of all");
        assert!(planned((kib, 7 * kib), (kib, 0)), "eight times what it has on disk");
        assert!(!planned((kib, 7 * kib - 1), (kib, 0)), "most of it is to be rewritten");
    }

    #[test]
    fn small_levels_are_cut_finer_but_never_into_tiny_files() {
        let (kib, mib) = (1 << 10, 1 << 20);
        let output_len = |level_bytes, target_file_bytes| {
            output_len(level_bytes, &Policy { target_file_bytes, ..Policy::default() })
        };
        assert_eq!(output_len(64 * mib, 32 * mib), 4 * mib);
        assert_eq!(output_len(10 * 1024 * mib, 32 * mib), 32 * mib);
        assert_eq!(output_len(mib, 32 * mib), mib);
        // A write buffer of 256 KiB asks for files of 128 KiB.
        assert_eq!(output_len(6 * kib, 128 * kib), 64 * kib);
        assert_eq!(output_len(1024 * mib, 128 * kib), 128 * kib);
        assert_eq!(output_len(kib, 16 * kib), 16 * kib);
    }
}
