//! Makes short neighbours of the last level into longer slices.
//!
//! Nothing else merges slices of the last level. Runs on ascending keys get there as they are, or
//! few at a time, and what overlaps none of them never reads them. Each would stay: a slice to
//! open, a line of the manifest, and an entry in every list of slices.

use super::pick::Picker;
use super::shape::Shape;
use super::{Hints, Plan, Policy, hull};
use crate::engine::Busy;
use crate::env::{Reach, reached, reached_if};
use crate::events::CompactionReason;
use crate::version::{Slice, Tree};
use std::ops::Range;
use std::sync::Arc;

/// A slice is short if it is shorter than this part of the outputs that the level gets now, and has
/// fewer keys than this part of what an output can always have.
const SHORT_PART: u64 = 4;
/// Fewer neighbours than this are left as they are. The outputs of so many are fewer than they are,
/// so merging comes to an end: values in blob files end an output early only where there are more
/// of them than one job takes.
const NEIGHBOURS_MIN: usize = 8;
/// More than this are left for later jobs.
const NEIGHBOURS_MAX: usize = 1024;

/// A compaction of short neighbours of the last level, where they are, or none.
pub(crate) fn plan_short(tree: &Tree, policy: &Policy, busy: &Busy, hints: &Hints) -> Plan {
    let shape = Shape::of(tree, policy, hints);
    let picker = Picker { tree, policy, busy, hints, shape: &shape };
    picker.compact_short().unwrap_or(Plan::DoNothing)
}

impl Picker<'_> {
    /// None of the neighbours is longer than the others together, so a byte is written anew only
    /// where its slice becomes at least twice as long.
    fn compact_short(&self) -> Option<Plan> {
        let level = self.shape.bottom;
        let slices = self.tree.slices(level);
        if slices.len() < NEIGHBOURS_MIN {
            return None;
        }
        let output_bytes = self.output_bytes_of(self.tree.disk_bytes(level));
        // At least what the fewest neighbours may have, however little a job should read.
        let fewest = output_bytes.saturating_mul(NEIGHBOURS_MIN as u64) / SHORT_PART;
        let bytes_max = self.job_bytes_max().max(fewest);
        let is_short = |slice: &Slice| {
            slice.meta.disk_bytes < output_bytes / SHORT_PART
                && slice.meta.entries < self.policy.output_keys_min / SHORT_PART
                && !self.busy.bars(slice.meta.file)
        };
        let mut at = 0;
        while at < slices.len() {
            let stretch = stretch(slices, at, &is_short, (bytes_max, self.policy.job_bytes_max));
            at = stretch.end + usize::from(stretch.is_empty());
            let part = even_part(slices, stretch.clone());
            reached_if(Reach::ShortFew, || part.is_none() && !stretch.is_empty());
            if let Some(window) = part
                && hull(slices[window.clone()].iter())
                    .is_some_and(|extent| !self.busy.lands_between(level - 1, level, &extent))
            {
                debug_assert!(window.len() >= NEIGHBOURS_MIN, "no fewer would come of it");
                let reason = CompactionReason::ShortSlices;
                let compaction = self.compaction_of_window(level, window, level, reason);
                return Some(Plan::Compaction(compaction));
            }
        }
        None
    }
}

/// Short neighbours from a place on: they have so many bytes at most, and of values that lie apart.
fn stretch(
    slices: &[Arc<Slice>],
    from: usize,
    is_short: &impl Fn(&Slice) -> bool,
    (bytes_max, apart_max): (u64, u64),
) -> Range<usize> {
    debug_assert!(from < slices.len(), "a stretch begins with a slice");
    let (mut bytes, mut apart): (u64, u64) = (0, 0);
    let fits = |slice: &&Arc<Slice>| {
        bytes = bytes.saturating_add(slice.meta.disk_bytes);
        apart = apart.saturating_add(slice.held_bytes.saturating_sub(slice.meta.disk_bytes));
        let fits = bytes <= bytes_max && apart <= apart_max;
        reached_if(Reach::ShortFull, || is_short(slice) && !fits);
        is_short(slice) && fits
    };
    from..from + slices[from..].iter().take(NEIGHBOURS_MAX).take_while(fits).count()
}

/// The first neighbours among these, enough of them, of which none is longer than the others
/// together.
fn even_part(slices: &[Arc<Slice>], among: Range<usize>) -> Option<Range<usize>> {
    let mut parts = vec![among];
    while let Some(part) = parts.pop() {
        if part.len() < NEIGHBOURS_MIN {
            continue;
        }
        let len = |at: &usize| slices[*at].meta.disk_bytes;
        let sum: u64 = part.clone().map(|at| len(&at)).sum();
        let longest = part.clone().max_by_key(len).expect("a part has slices");
        if len(&longest) <= sum - len(&longest) {
            return Some(part);
        }
        reached(Reach::ShortUneven);
        // Each side has less than half of it.
        parts.extend([longest + 1..part.end, part.start..longest]);
    }
    None
}
