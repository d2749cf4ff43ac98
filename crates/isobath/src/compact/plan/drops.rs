//! Finds the slices that no reader can see, because range deletes cover them or because all their
//! values have ended: they leave the tree by an edit, and no thread reads them.
//!
//! A slice that range deletes cover may leave if each key of its extent lies in a range delete of
//! another slice that is newer than all that the slice holds, and if no reader stands between the
//! oldest of its versions and the newest of these range deletes. Then each reader sees either
//! nothing of the slice or only what hides it.
//!
//! A slice also hides what is older than it. No reader gets that back: the range deletes that
//! cover the slice are newer than this too, and they stay in the tree as long as anything older
//! lies beneath them (`kept_spans` in `run/mod.rs`). A job under way counts the slice among what
//! lies beneath, because the slice was in the tree when the job was planned. For the same reason
//! only range deletes of the tree count. The log may still lose those of a memtable.
//!
//! A slice whose values have ended hides what is older, as its values did. It may leave if every
//! reader is above it, if each of its entries is a delete or has ended at the oldest point, and if
//! nothing that stays lies beneath its extent.

use super::Plan;
use crate::engine::{Busy, Claim};
use crate::env::{Plant, Reach, planted, reached, reached_if};
use crate::events::CompactionReason;
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
    pub(crate) reason: CompactionReason,
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
        let hull = Extent::default();
        Claim { files, leaving: Vec::new(), unread: 0, target: 0, is_for_deletes: false, hull }
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
                let is_older = slice.meta.max_seq < newest;
                let is_read = is_older && busy.reads(slice.meta.file);
                reached_if(Reach::DropHeldForJob, || is_read);
                let is_candidate = is_older && !is_read && seen.insert(slice.meta.file);
                if is_candidate && is_unseen(&slice, readers, covers) {
                    slices.push((level, slice));
                }
            }
        }
    }
    if slices.is_empty() {
        return Plan::DoNothing;
    }
    Plan::Drop(Dropped { reason: CompactionReason::Covered, slices, horizon: readers.horizon() })
}

/// The slices that can leave now because all that is in them has ended. What lies beneath others is
/// looked at before them. `oldest` is the lowest point that a reader can have, with the time there.
/// All points are listed, for `horizon`, only once something leaves.
pub(crate) fn plan_ended(
    tree: &Tree,
    busy: &Busy,
    (oldest, unix_ms): (Lsn, u64),
    horizon: impl FnOnce() -> Lsn,
) -> Plan {
    let mut slices: Vec<(usize, Arc<Slice>)> = Vec::new();
    let mut leaving = BTreeSet::new();
    for level in (0..tree.level_count()).rev() {
        // Of runs the oldest is the last.
        for slice in tree.slices(level).iter().rev() {
            let meta = &slice.meta;
            if !meta.has_ended(unix_ms) {
                continue;
            }
            let is_seen = meta.max_seq >= oldest;
            let is_read = busy.reads(meta.file);
            reached_if(Reach::EndedHeldForReader, || is_seen);
            reached_if(Reach::EndedHeldForJob, || is_read);
            if is_seen || is_read {
                continue;
            }
            let is_alone = is_alone(tree, (level, slice), &leaving);
            reached_if(Reach::EndedOverOthers, || !is_alone);
            if is_alone || planted(Plant::EndedDroppedOverOthers) {
                leaving.insert(meta.file);
                slices.push((level, slice.clone()));
            }
        }
    }
    if slices.is_empty() {
        return Plan::DoNothing;
    }
    let horizon = horizon();
    debug_assert!(oldest <= horizon, "a reader to come would be older than the oldest");
    Plan::Drop(Dropped { reason: CompactionReason::Expired, slices, horizon })
}

/// True if all that lies beneath the slice is leaving.
fn is_alone(tree: &Tree, (level, slice): (usize, &Arc<Slice>), leaving: &BTreeSet<u64>) -> bool {
    let older_runs = tree.runs.iter().rev().take_while(|run| run.meta.file != slice.meta.file);
    let mut older_runs = older_runs.filter(|_| level == 0);
    let stays = |other: &Arc<Slice>| !leaving.contains(&other.meta.file);
    let is_under_run = older_runs.any(|run| run.extent().overlaps(&slice.extent()) && stays(run));
    !is_under_run
        && (level + 1..tree.level_count())
            .all(|below| !tree.overlapping(below, &slice.extent()).iter().any(stays))
}

/// True if no reader, now or later, sees anything of the slice.
fn is_unseen(slice: &Slice, readers: &ReaderPoints, covers: &[&SpanSet]) -> bool {
    let Some(newest) = newest_needed(slice, covers) else {
        reached(Reach::DropUncovered);
        return false;
    };
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
