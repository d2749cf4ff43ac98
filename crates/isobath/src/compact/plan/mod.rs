//! Decides what to do next for a tree: a value, computed from values.
//!
//! In order of need: First, slices that range deletes cover leave unread ([`plan_drop`], which
//! needs the range deletes themselves). Then ([`plan`]) runs that overlap nothing older are moved
//! down as they are. Then deletes go down that have stayed as long as the family allows, and the
//! fullest level is relieved: level 0 by its number of runs, the others by their bytes over
//! capacity. While level 0 is crowded, the fullest level comes first (`old_deletes`). Then, if
//! there is time, slices with many deletes go down, level 0 is compacted early, and levels that are
//! no longer needed are emptied. If nothing of this is to be done, slices are rewritten for values
//! in blob files that are mostly garbage ([`plan_with_garbage`]), and earlier if garbage is what
//! exceeds its measure most. Then slices leave table files that are mostly dead ([`plan_clean`]),
//! and at last short neighbours of the last level become longer slices ([`plan_short`]). Equal
//! arguments give equal plans.
//!
//! Slices that a job could not read are left where they are, with what would have to be merged with
//! them (`held_up`); only a request of the program tries to read them again.
//!
//! Planning and carrying out always comes to an end: every move and every compaction takes data
//! down or makes runs or slices fewer, and a slice is rewritten alone in its place only if that
//! removes all its deletes, or all its values from blob files that are collected, or gives it a
//! file of its own.

mod clean;
mod collect;
mod cut;
mod drops;
#[cfg(any(test, feature = "bench-internals"))]
pub(crate) mod fixtures;
mod held_up;
mod manual;
mod old_deletes;
mod pick;
mod pick_runs;
mod places;
mod policy;
mod shape;
mod short;
#[cfg(any(test, feature = "bench-internals"))]
pub(crate) mod simulation;
#[cfg(test)]
mod tests;

pub(crate) use clean::{CleaningLimits, choose_files, plan_clean};
pub(crate) use collect::plan_with_garbage;
pub(super) use cut::Cutter;
pub(crate) use drops::{Dropped, plan_drop, plan_ended};
pub(crate) use held_up::stuck_blobs;
pub(crate) use manual::{ManualPlan, ManualRange, plan_manual};
#[cfg(test)]
pub(crate) use old_deletes::DeleteAges;
pub(crate) use old_deletes::delete_ages;
pub(crate) use places::note_begun;
pub(crate) use policy::{Hints, Policy};
pub(crate) use shape::{Debts, debts, run_bytes_after};
pub(crate) use short::plan_short;

use crate::engine::{Busy, Claim, Claims};
use crate::env::{Reach, reached_if};
use crate::events::CompactionReason;
use crate::table::ExtentRef;
use crate::version::{Slice, Tree};
use pick::Picker;
use shape::Shape;
use std::collections::BTreeSet;
use std::sync::Arc;

/// A job, or none.
#[derive(Debug)]
pub(crate) enum Plan {
    DoNothing,
    /// Slices that only change their level, all by one edit.
    Move(Vec<Move>),
    Compaction(Compaction),
    /// Slices that leave unread.
    Drop(Dropped),
}

impl Claims for Plan {
    fn claims(&self) -> Vec<Claim> {
        match self {
            Plan::DoNothing => Vec::new(),
            Plan::Move(moves) => moves.iter().map(Move::claim).collect(),
            Plan::Compaction(compaction) => vec![compaction.claim()],
            Plan::Drop(dropped) => vec![dropped.claim()],
        }
    }
}

impl Move {
    fn claim(&self) -> Claim {
        let meta = &self.slice.meta;
        Claim {
            files: vec![meta.file],
            leaving: vec![(self.from, self.slice.held_bytes)],
            unread: 0,
            target: self.to,
            is_for_deletes: self.is_for_deletes,
            hull: meta.extent().owned(),
        }
    }
}

impl Compaction {
    fn claim(&self) -> Claim {
        let mut files: Vec<_> = self.inputs.iter().map(|(_, slice)| slice.meta.file).collect();
        files.sort_unstable();
        let leaving = self.inputs.iter().map(|(at, slice)| (*at, slice.held_bytes)).collect();
        // What makes short slices longer was no debt, and is none while it waits or runs.
        // Nor was what takes deletes down, or is asked for, unless it is taken from level 0: the
        // levels below are mostly within their sizes, and writers are not to pay for it.
        let is_due = match self.reason {
            CompactionReason::ShortSlices => false,
            CompactionReason::OldDeletes | CompactionReason::Deletes | CompactionReason::Manual => {
                self.inputs.iter().any(|(level, _)| *level == 0)
            }
            _ => true,
        };
        let unread = if is_due { self.input_bytes() } else { 0 };
        let is_for_deletes = self.reason == CompactionReason::OldDeletes;
        let (target, hull) = (self.target, self.hull().owned());
        Claim { files, leaving, unread, target, is_for_deletes, hull }
    }
}

/// A slice that overlaps nothing on its way.
#[derive(Debug)]
pub(crate) struct Move {
    pub(crate) slice: Arc<Slice>,
    pub(crate) from: usize,
    pub(crate) to: usize,
    /// It has a delete that has stayed too long.
    pub(crate) is_for_deletes: bool,
}

/// Slices to be compacted into one level.
#[derive(Debug)]
pub(crate) struct Compaction {
    pub(crate) reason: CompactionReason,
    /// Slices with their levels: newest first where they share keys, in key order within a level
    /// below 0.
    pub(crate) inputs: Vec<(usize, Arc<Slice>)>,
    pub(crate) target: usize,
    /// The depth of the target: 0 for level 0, 1 for the first level below it in use, and so on.
    pub(crate) depth: usize,
    /// The target is the last level of the tree.
    pub(crate) is_last_level: bool,
    /// Keys, ascending. No output holds keys on both sides of one of them, because slices that take
    /// no part lie there.
    pub(crate) fences: Vec<Box<[u8]>>,
    /// Keys, ascending, at which the job can be cut into parts of about equal work.
    pub(crate) cuts: Vec<Box<[u8]>>,
    /// Older slices that take no part and may hold keys of the inputs: by level (or run), each list
    /// in key order.
    pub(crate) beneath: Vec<Vec<Arc<Slice>>>,
    /// The slices of the next level that the outputs will overlap, in key order.
    pub(crate) guides: Vec<Arc<Slice>>,
    /// About the length of an output; `None` writes one output.
    pub(crate) output_bytes: Option<u64>,
    /// An output that overlaps more of the next level may end, however short it is.
    pub(crate) overlap_max: u64,
}

impl Compaction {
    /// The extent of all inputs together.
    pub(crate) fn hull(&self) -> ExtentRef<'_> {
        hull(self.inputs.iter().map(|(_, slice)| slice)).unwrap_or_default()
    }

    /// Bytes on disk of the inputs.
    pub(crate) fn input_bytes(&self) -> u64 {
        self.inputs.iter().map(|(_, slice)| slice.meta.disk_bytes).sum()
    }

    /// How many inputs are read at once: each run, and each level below 0 as one.
    pub(crate) fn input_rows(&self) -> usize {
        let levels: BTreeSet<usize> = self.inputs.iter().map(|(level, _)| *level).collect();
        let runs = self.inputs.iter().filter(|(level, _)| *level == 0).count();
        runs + levels.iter().filter(|level| **level > 0).count()
    }

    /// True if no slice outside the job can hold older versions of its keys.
    #[cfg(any(test, feature = "bench-internals"))]
    pub(crate) fn is_bottom(&self) -> bool {
        self.beneath.iter().all(|slices| slices.is_empty())
    }
}

/// The extent that covers all of these slices.
pub(super) fn hull<'a>(slices: impl Iterator<Item = &'a Arc<Slice>>) -> Option<ExtentRef<'a>> {
    ExtentRef::hull(slices.map(|slice| slice.extent()))
}

/// Decides on the next job.
pub(crate) fn plan(tree: &Tree, policy: &Policy, busy: &Busy, hints: &Hints) -> Plan {
    let shape = Shape::of(tree, policy, hints);
    let picker = Picker { tree, policy, busy, hints, shape: &shape };
    let moves = picker.runs_out_of_the_way();
    if !moves.is_empty() {
        return Plan::Move(moves);
    }
    match picker.relieve() {
        None if hints.is_idle => picker.push_deletes().or_else(|| picker.tidy_up()),
        plan => plan,
    }
    .unwrap_or_else(|| {
        reached_if(Reach::PlanNothing, || hints.is_idle);
        Plan::DoNothing
    })
}
