//! Chooses table files that are mostly dead, and moves the slices out of them that keep them.
//!
//! As the cleaner of a log-structured file system does: what is alive in the files that pay best is
//! written elsewhere. A file pays if it gives back several times what is written for that, so no
//! workload makes cleaning write more than a share of what flushes have written. The reasons:
//! docs/internals/compaction.md, *Files that are mostly dead*.

use super::pick::Picker;
use super::shape::Shape;
use super::{Hints, Plan, Policy};
use crate::engine::Busy;
use crate::env::{Reach, reached, reached_if};
use crate::events::CompactionReason;
use crate::format::FamilyId;
use crate::version::{Slice, TableUse, Tree};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A file pays if it has at least this many dead bytes for each byte that is to be written.
const PAYS: u64 = 3;
/// One part in this many of what is alive may be dead.
const DEAD_SHARE: u64 = 4;

/// How much is cleaned.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CleaningLimits {
    /// So many dead bytes there may be, however little is alive.
    pub(crate) dead_bytes: u64,
    /// A slice costs so many bytes more than it has.
    pub(crate) toll: u64,
    /// The most slices to be chosen at once, and bytes of them, about.
    pub(crate) slices_max: usize,
    pub(crate) bytes_max: u64,
}

/// A file that pays.
struct Paying<'t> {
    table: &'t TableUse,
    dead: u64,
    cost: u64,
}

/// The files that each family is to leave, with what that is worth in bytes: its part in the dead
/// bytes of a file, by its part in the cost. None of its slices `is_stuck` there.
pub(crate) fn choose_files(
    tables: &[TableUse],
    limits: &CleaningLimits,
    is_stuck: impl Fn(FamilyId, u64) -> bool,
) -> BTreeMap<FamilyId, BTreeMap<u64, u64>> {
    let sum = |of: fn(&TableUse) -> u64| {
        tables.iter().fold(0u64, |sum, table| sum.saturating_add(of(table)))
    };
    let allowed = limits.dead_bytes.saturating_add(sum(|table| table.live) / DEAD_SHARE);
    let over = sum(TableUse::dead).saturating_sub(allowed);
    let mut chosen: BTreeMap<FamilyId, BTreeMap<u64, u64>> = BTreeMap::new();
    if over == 0 {
        return chosen;
    }
    let cost_of = |bytes: u64| bytes.saturating_add(limits.toll);
    let paying = tables.iter().filter_map(|table| {
        let costs = table.holders.iter().map(|(_, bytes)| cost_of(*bytes));
        let cost = costs.fold(0, u64::saturating_add);
        let pays = table.dead() >= cost.saturating_mul(PAYS).max(1);
        reached_if(Reach::CleanUnpaid, || table.dead() > 0 && !pays);
        let mut holders = table.holders.iter();
        let is_held_up = pays && holders.any(|(holder, _)| is_stuck(*holder, table.number));
        reached_if(Reach::CleanHeldUp, || is_held_up);
        (pays && !is_held_up).then_some(Paying { table, dead: table.dead(), cost })
    });
    let mut paying: Vec<_> = paying.collect();
    // What one byte of cost frees, in whole bytes: finer does not matter.
    paying.sort_by_key(|file| (Reverse(file.dead / file.cost.max(1)), file.table.number));
    let (mut freed, mut slices, mut bytes) = (0, 0, 0);
    for Paying { table, dead, cost } in paying {
        for (holder, of_slice) in &table.holders {
            if slices >= limits.slices_max || (slices > 0 && bytes >= limits.bytes_max) {
                reached(Reach::CleanForLater);
                return chosen;
            }
            let part = u128::from(dead) * u128::from(cost_of(*of_slice)) / u128::from(cost.max(1));
            let worth = u64::try_from(part).expect("it is not more than all that is dead");
            chosen.entry(*holder).or_default().insert(table.number, worth);
            slices += 1;
            bytes += of_slice;
        }
        freed += dead;
        if freed >= over {
            reached(Reach::CleanEnough);
            break;
        }
    }
    debug_assert!(chosen.values().flatten().count() <= limits.slices_max);
    chosen
}

/// A job that takes slices out of `files`, each with what that is worth in bytes, or none.
pub(crate) fn plan_clean(
    tree: &Tree,
    policy: &Policy,
    busy: &Busy,
    hints: &Hints,
    files: &BTreeMap<u64, u64>,
) -> Plan {
    if files.is_empty() {
        return Plan::DoNothing;
    }
    let shape = Shape::of(tree, policy, hints);
    let picker = Picker { tree, policy, busy, hints, shape: &shape };
    picker.runs_leave(files).or_else(|| picker.slice_leaves(files)).unwrap_or(Plan::DoNothing)
}

impl Picker<'_> {
    /// A compaction into the base of the runs that can go there, as many as one job reads, if that
    /// is worth what it reads.
    /// It must leave fewer slices: nothing merges those of the last level again. A run that is left
    /// alone for that reason counts among the runs of level 0 until they are compacted.
    fn runs_leave(&self, files: &BTreeMap<u64, u64>) -> Option<Plan> {
        let runs = self.oldest_for_one_job(self.runs_free_to_leave());
        let worth: Vec<u64> =
            runs.iter().filter_map(|run| files.get(&run.meta.file).copied()).collect();
        let worth = worth.into_iter().reduce(u64::saturating_add)?;
        match self.compact_these_runs(runs, CompactionReason::DeadSpace)? {
            Plan::Compaction(compaction) if compaction.input_bytes() > worth / PAYS => {
                reached(Reach::CleanRunsDear);
                None
            }
            Plan::Compaction(compaction) if !self.leaves_fewer(&compaction.inputs) => {
                reached(Reach::CleanNoFewer);
                None
            }
            plan => Some(plan),
        }
    }

    /// True if what these inputs become is fewer slices: many runs, or some with slices below, or
    /// all that there is.
    fn leaves_fewer(&self, inputs: &[(usize, Arc<Slice>)]) -> bool {
        let is_below = |(level, _): &(usize, Arc<Slice>)| *level > 0;
        let mut below = 1..self.tree.level_count();
        inputs.len() * 2 >= self.policy.l0_trigger_runs
            || inputs.iter().any(is_below)
            || below.all(|level| self.tree.slices(level).is_empty())
    }

    /// A slice is written anew where it is. A run stays among the others where its sequences are.
    fn slice_leaves(&self, files: &BTreeMap<u64, u64>) -> Option<Plan> {
        let leaves = |slice: &Slice| files.contains_key(&slice.meta.file);
        let is_free = |run: &Slice| leaves(run) && !self.busy.bars(run.meta.file);
        if let Some(run) = self.tree.runs.iter().find(|run| is_free(run)) {
            let inputs = vec![(0, run.clone())];
            let reason = CompactionReason::DeadSpace;
            return Some(Plan::Compaction(self.compaction(reason, inputs, 0, Vec::new())));
        }
        (1..self.tree.level_count()).find_map(|level| {
            let slices = self.tree.slices(level);
            let is_free = |at: &usize| {
                leaves(&slices[*at]) && self.cost_of(level, *at..*at + 1, level).is_some()
            };
            let at = (0..slices.len()).find(is_free)?;
            reached(Reach::CleanSlice);
            let (window, reason) = (at..at + 1, CompactionReason::DeadSpace);
            Some(Plan::Compaction(self.compaction_of_window(level, window, level, reason)))
        })
    }
}
