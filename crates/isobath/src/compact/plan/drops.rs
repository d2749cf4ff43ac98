//! Finds the slices that range deletes cover and no reader can see: they leave the tree by an
//! edit, and no thread reads them.
//!
//! A slice may leave if each key of its extent lies in a range delete of another slice that is
//! newer than all that the slice holds, and if no reader stands between the oldest of its versions
//! and the newest of these range deletes. Then each reader sees either nothing of the slice or
//! only what hides it.
//!
//! A slice also hides what is older than it. No reader gets that back: the range deletes that
//! cover the slice are newer than this too, and they stay in the tree as long as anything older
//! lies beneath them (`kept_spans` in `run/mod.rs`). A job under way counts the slice among what
//! lies beneath, because the slice was in the tree when the job was planned. For the same reason
//! only range deletes of the tree count. The log may still lose those of a memtable.

use super::Plan;
use crate::engine::{Busy, Claim};
use crate::env::{Plant, Reach, planted, reached, reached_if};
use crate::format::Lsn;
use crate::mvcc::ReaderPoints;
use crate::span::{Fragment, SpanSet};
use crate::table::{End, Extent, ExtentRef};
use crate::version::{Slice, Tree};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Slices that leave the tree unread, all by one edit.
#[derive(Debug)]
pub(crate) struct Dropped {
    /// Slices with their levels.
    pub(crate) slices: Vec<(usize, Arc<Slice>)>,
    /// The least point that a reader to come could have when this was decided.
    pub(crate) horizon: Lsn,
}

impl Dropped {
    pub(super) fn claim(&self) -> Claim {
        let mut files: Vec<_> = self.slices.iter().map(|(_, slice)| slice.meta.file).collect();
        files.sort_unstable();
        // Nothing lands anywhere, so it is in the way only of jobs that would read the slices.
        Claim { files, leaving: Vec::new(), unread: 0, target: 0, hull: Extent::default() }
    }
}

/// The slices that can leave now. `covers` are the range deletes of slices of the tree.
pub(crate) fn plan_drop(
    tree: &Tree,
    busy: &Busy,
    readers: &ReaderPoints,
    covers: &[&SpanSet],
) -> Plan {
    let mut seen = BTreeSet::new();
    let mut slices = Vec::new();
    for (extent, newest) in covers.iter().filter_map(|set| Some((extent_of(set)?, set.seqs()?.1))) {
        for level in 0..tree.level_count() {
            for slice in tree.overlapping(level, &extent) {
                let is_candidate = slice.meta.max_seq < newest
                    && !busy.reads(slice.meta.file)
                    && seen.insert(slice.meta.file);
                if is_candidate && is_unseen(&slice, readers, covers) {
                    slices.push((level, slice));
                }
            }
        }
    }
    if slices.is_empty() {
        return Plan::DoNothing;
    }
    reached(Reach::PlanDrop);
    Plan::Drop(Dropped { slices, horizon: readers.horizon() })
}

/// True if no reader, now or later, sees anything of the slice.
fn is_unseen(slice: &Slice, readers: &ReaderPoints, covers: &[&SpanSet]) -> bool {
    let Some(newest) = newest_needed(slice, covers) else { return false };
    let is_seen = readers.see(slice.meta.min_seq, Some(newest));
    reached_if(Reach::DropHeldForReader, || is_seen);
    !is_seen || planted(Plant::DroppedThoughRead)
}

/// The greatest sequence number among the range deletes that cover the slice, each key by the
/// oldest one that is newer than the slice. `None` if a key is left that none covers.
fn newest_needed(slice: &Slice, covers: &[&SpanSet]) -> Option<Lsn> {
    let (extent, upto) = (slice.extent(), slice.meta.max_seq);
    let mut at: &[u8] = extent.start;
    let mut newest = 0;
    loop {
        let above = |fragment: &Fragment| fragment.least_above(upto);
        let here = covers.iter().filter_map(|set| set.at(at));
        let (seq, fragment) = here
            .filter_map(|fragment| Some((above(fragment)?, fragment)))
            .min_by_key(|(seq, _)| *seq)?;
        debug_assert!(seq > upto, "a range delete hides only what is older");
        newest = newest.max(seq);
        match fragment.end.as_deref() {
            Some(end) if !extent.ends_before(end) => at = end,
            _ => return Some(newest),
        }
    }
}

/// Where the range deletes of a set begin and end.
fn extent_of(set: &SpanSet) -> Option<ExtentRef<'_>> {
    let (first, last) = (set.fragments().first()?, set.fragments().last()?);
    let end = last.end.as_deref().map_or(End::Unbounded, End::Excluded);
    Some(Extent { start: &first.start, end })
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
