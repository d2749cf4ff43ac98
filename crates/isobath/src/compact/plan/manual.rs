//! Compacts a range of keys down to the last level on request.
//!
//! The caller asks again after each job until the answer is [`ManualPlan::Done`]. What was written
//! since the request is left alone, so a request ends however fast others write.
//!
//! A request reads damaged slices, too: its failure names the damage, or the disk has recovered.

use super::Plan;
use super::pick::Picker;
use super::policy::{Hints, Policy};
use super::shape::Shape;
use crate::engine::{Busy, Claims};
use crate::env::{Reach, reached, reached_if};
use crate::events::CompactionReason;
use crate::format::Lsn;
use crate::version::{Slice, Tree};
use std::ops::Bound;

/// What a request compacts.
#[derive(Clone, Debug)]
pub(crate) struct ManualRange {
    pub(crate) lower: Bound<Box<[u8]>>,
    pub(crate) upper: Bound<Box<[u8]>>,
    /// Data with sequences below this. It is the visible frontier when the request came.
    pub(crate) upto: Lsn,
    /// If the family has a filter: the number of the first file that is written since the request
    /// came. The filter has been asked about what later files hold.
    pub(crate) judged_from: Option<u64>,
}

/// The next step of a request.
#[derive(Debug)]
pub(crate) enum ManualPlan {
    /// Carry out this plan, then ask again.
    Do(Plan),
    /// Running jobs are in the way. Ask again when one has ended.
    Wait,
    /// The whole range is in the last level and has no delete that can be dropped.
    Done,
}

impl ManualRange {
    /// All that there is.
    #[cfg(test)]
    pub(crate) fn everything() -> ManualRange {
        let (lower, upper) = (Bound::Unbounded, Bound::Unbounded);
        ManualRange { lower, upper, upto: Lsn::MAX, judged_from: None }
    }

    fn takes_in(&self, slice: &Slice) -> bool {
        slice.extent().meets(&self.lower, &self.upper) && slice.meta.min_seq < self.upto
    }

    /// True if the family's filter is still to be asked about the slice.
    fn is_unjudged(&self, slice: &Slice) -> bool {
        self.judged_from.is_some_and(|first| slice.meta.file < first)
    }
}

/// Decides on the next job that takes a range toward the last level.
pub(crate) fn plan_manual(
    tree: &Tree,
    policy: &Policy,
    busy: &Busy,
    hints: &Hints,
    range: &ManualRange,
) -> ManualPlan {
    let shape = Shape::of(tree, policy, hints);
    let picker = Picker { tree, policy, busy: &busy.without_damaged(), hints, shape: &shape };
    let wanted = |slice: &Slice| range.takes_in(slice);
    let highest =
        (0..shape.bottom).find(|level| tree.slices(*level).iter().any(|slice| wanted(slice)));
    let step = match highest {
        Some(0) => picker.compact_runs_of(range),
        Some(level) => picker.lower_from_first(level, &wanted),
        None => {
            let is_due =
                |slice: &Slice| wanted(slice) && (picker.sheds(slice) || range.is_unjudged(slice));
            reached_if(Reach::ManualUnjudged, || {
                let first = tree.slices(shape.bottom).iter().find(|slice| is_due(slice));
                first.is_some_and(|slice| !picker.sheds(slice))
            });
            match picker.rewrite_in_place(shape.bottom, is_due, CompactionReason::Manual) {
                Some(plan) => Some(plan),
                None if tree.slices(shape.bottom).iter().any(|slice| is_due(slice)) => None,
                None => {
                    reached(Reach::ManualDone);
                    return ManualPlan::Done;
                }
            }
        }
    };
    reached_if(Reach::ManualOverDamage, || {
        let claims = step.iter().flat_map(Plan::claims);
        claims.flat_map(|claim| claim.files).any(|file| busy.is_damaged(file))
    });
    step.map_or(ManualPlan::Wait, ManualPlan::Do)
}

impl Picker<'_> {
    /// A compaction of the runs that hold part of the range, with every older run that may share
    /// keys with them: the oldest of these, if they are more than one job reads.
    fn compact_runs_of(&self, range: &ManualRange) -> Option<Plan> {
        let mut taken = Vec::new();
        for run in self.runs_free_to_leave() {
            let shares_keys = taken
                .iter()
                .any(|newer: &&std::sync::Arc<Slice>| newer.extent().overlaps(&run.extent()));
            if shares_keys || range.takes_in(run) {
                taken.push(run);
            }
        }
        self.compact_these_runs(taken, CompactionReason::Manual)
    }

    /// Takes the first wanted slices of a level one level down, as many as one job should read.
    fn lower_from_first(&self, level: usize, wanted: &dyn Fn(&Slice) -> bool) -> Option<Plan> {
        let target = self.shape.next(self.tree, level);
        let slices = self.tree.slices(level);
        let is_free = |at: &usize| {
            wanted(&slices[*at]) && self.cost_of(level, *at..*at + 1, target).is_some()
        };
        let first = (0..slices.len()).find(is_free)?;
        if self.cost_of(level, first..first + 1, target) == Some(0) {
            return self.lower(level, |slice| wanted(slice), f64::MAX, CompactionReason::Manual);
        }
        let mut window = first..first + 1;
        while window.end < slices.len() && wanted(&slices[window.end]) {
            let grown = first..window.end + 1;
            let own: u64 = slices[grown.clone()].iter().map(|slice| slice.meta.disk_bytes).sum();
            match self.cost_of(level, grown.clone(), target) {
                Some(overlap) if own + overlap <= self.job_bytes_max() => window = grown,
                _ => break,
            }
        }
        Some(Plan::Compaction(self.compaction_of_window(
            level,
            window,
            target,
            CompactionReason::Manual,
        )))
    }
}
