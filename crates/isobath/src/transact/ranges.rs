//! Whether what the scans of a transaction have passed is unchanged: nothing was inserted there,
//! changed or deleted. Where the first committer wins, the same is asked of the ranges that it has
//! deleted.
//!
//! `look` comes before the reservation and may read tables: it walks every source that holds
//! something from the read point on. Leaves of a memtable and slices of a tree know their largest
//! sequence number, so it skips almost everything. A slice that a compaction wrote is as new as the
//! newest version in the compaction's input. If a slice may be new only for that reason, each of
//! its blocks in the range is read. Whatever `look` finds was reserved before this commit, so it
//! need not be below a frontier.
//!
//! `judge` runs between reservation and publication, where every later commit waits behind it. So
//! it reads memtables alone, at most [`RANGE_LEAVES_MAX`] leaves, and only if another commit came
//! in between. A commit whose ranges are too wide for that gives up its reservation and starts
//! over: perhaps no other commit comes in between the next time. After [`RETRIES_MAX`] such
//! attempts it fails with a conflict.
//!
//! Neither looks into gaps of the family: no put has come there since, and there was nothing to
//! delete. Only where the first committer wins the delete of nothing counts, too.

use super::probe::{Since, pin_open};
use crate::cursor::Cursor;
use crate::engine::{Engine, Keyspace, MemtableOf, View};
use crate::env::{Plant, Reach, planted, reached, reached_if};
use crate::error::{ConflictKind, Error, Result};
use crate::footprint::{Cut, Interval};
use crate::format::{FamilyId, Lsn};
use crate::gap::Gaps;
use crate::memtable::{Changes, TooManyLeaves, Walk};
use crate::table::Table;
use crate::version::Slice;
use std::borrow::Cow;
use std::cell::Cell;
use std::sync::Arc;

/// The most leaves that a commit may meet while others wait behind it: some microseconds.
pub(super) const RANGE_LEAVES_MAX: usize = 32;
/// The most ranges, each of which costs a comparison or two if it lies in a leaf that was met.
const RANGES_MAX: usize = 1024;
/// How often a commit starts over if its ranges have more leaves than that.
pub(super) const RETRIES_MAX: u32 = 4;

/// Ranges that must be unchanged, by family.
#[derive(Debug)]
pub(super) struct Ranges {
    /// The kind of conflict that a change of them is reported as.
    kind: ConflictKind,
    /// True if the first committer wins: then it is a change, too, that a key without a value was
    /// deleted.
    first_wins: bool,
    /// Each interval, with the index of its family among those of the transaction. Ascending, so
    /// that those in one leaf follow each other.
    ranges: Vec<(usize, Interval)>,
    /// How many leaves `judge` would have had to read at the time of the last `look`.
    leaves: usize,
    /// How many ranges it would have had to look for in memtables, each counted once for each.
    walks: usize,
    /// How often the commit started over because of ranges.
    retries: Cell<u32>,
    /// The commit has locked them all: what `look` finds unchanged stays so.
    pub(super) are_locked: bool,
}

impl Ranges {
    /// No range.
    pub(super) fn none() -> Ranges {
        Ranges::new(ConflictKind::Range, &[], std::iter::empty())
    }

    /// `families` are those of the transaction, by ascending id; each range belongs to one of them.
    pub(super) fn new(
        kind: ConflictKind,
        families: &[Arc<Keyspace>],
        ranges: impl Iterator<Item = (FamilyId, Interval)>,
    ) -> Ranges {
        let place = |(family, interval): (FamilyId, Interval)| {
            let at = families.binary_search_by_key(&family, |known| known.id);
            (at.expect("every family of a range is named"), interval)
        };
        let mut ranges: Vec<_> = ranges.map(place).filter(|(_, range)| !range.is_empty()).collect();
        debug_assert!(
            families.is_sorted_by(|one, next| one.id < next.id),
            "families are found by a binary search"
        );
        ranges.sort_by(|one, other| (one.0, &one.1.start).cmp(&(other.0, &other.1.start)));
        let first_wins = kind == ConflictKind::Write;
        Ranges {
            kind,
            first_wins,
            ranges,
            leaves: 0,
            walks: 0,
            retries: Cell::new(0),
            are_locked: false,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// True if `judge` would have to read more leaves than it may, or walk over more ranges.
    pub(super) fn are_wide(&self) -> bool {
        self.leaves > RANGE_LEAVES_MAX || self.walks > RANGES_MAX
    }

    /// All ranges, by the number of the family and by where they begin.
    pub(super) fn all(&self) -> Vec<(usize, Interval)> {
        self.ranges.clone()
    }

    fn of_family(&self, at: usize) -> &[(usize, Interval)] {
        debug_assert!(
            self.ranges.is_sorted_by_key(|(at, range)| (*at, &range.start)),
            "the ranges of a family are found by a binary search"
        );
        let start = self.ranges.partition_point(|(other, _)| *other < at);
        let len = self.ranges[start..].partition_point(|(other, _)| *other == at);
        &self.ranges[start..start + len]
    }

    /// Fails if anything has changed from `from` on. `views` are those of the transaction's
    /// families. They hold everything below `v0`.
    pub(super) fn look<'v>(
        &mut self,
        engine: &Engine,
        views: impl Iterator<Item = (&'v Arc<Keyspace>, &'v View)>,
        from: Lsn,
        v0: Lsn,
    ) -> Result<()> {
        if self.is_empty() {
            return Ok(());
        }
        (self.leaves, self.walks) = (0, 0);
        let (mut leaves, mut walked) = (0, 0);
        let mut widest: Option<(usize, &Keyspace, &Interval)> = None;
        for (at, (family, view)) in views.enumerate() {
            let memtables = view.memtables.iter().take_while(|of| of.epoch.end() > from);
            let mut walks: Vec<_> = memtables.map(|of| (of, of.memtable.walk())).collect();
            let judged = walks.iter().filter(|(of, _)| of.epoch.end() > v0).count();
            for (_, range) in self.of_family(at) {
                if view.is_cloned_since(from) {
                    reached(Reach::CloneConflict);
                    return Err(self.conflict(family, &range.start.key));
                }
                let since = Since { from, bound: Lsn::MAX };
                let mut met = 0;
                for part in self.without_gaps(view, range, from).iter() {
                    met += self.look_in_memory(family, &mut walks, part, since, v0)?;
                    walked += judged;
                    let layers = view.layers_within(Lsn::MAX, part.bounds());
                    for layer in layers.filter(|layer| layer.lsn >= from) {
                        self.look_in_table(family, layer.part.table(), part, 0)?;
                    }
                    for slice in slices(view, part, from) {
                        self.look_in_table(family, &*slice.table(&engine.tables)?, part, from)?;
                    }
                }
                if widest.is_none_or(|(most, ..)| most < met) {
                    widest = Some((met, family, range));
                }
                leaves += met;
            }
        }
        if let Some((_, family, range)) = widest
            && self.retries.get() > RETRIES_MAX
            && !self.are_locked
        {
            // Nothing in the range is known to have changed, but the commit has started over too
            // often.
            return Err(self.conflict(family, &range.start.key));
        }
        (self.leaves, self.walks) = (leaves, walked);
        Ok(())
    }

    /// The parts of a range that lie in no gap of the view for a reader at `from`. Below the points
    /// that the view serves, no put has come into the gaps since then.
    fn without_gaps<'r>(&self, view: &View, range: &'r Interval, from: Lsn) -> Cow<'r, [Interval]> {
        match &view.gaps {
            Some(gaps) if !self.first_wins => Cow::Owned(parts_without(gaps, range, from)),
            _ => Cow::Borrowed(std::slice::from_ref(range)),
        }
    }

    /// Fails if a memtable holds a change. Returns the number of leaves of memtables that take in
    /// what is written from `v0` on; those that the ranges before have met do not count again.
    fn look_in_memory(
        &self,
        family: &Keyspace,
        walks: &mut [(&MemtableOf, Walk<'_>)],
        range: &Interval,
        since: Since,
        v0: Lsn,
    ) -> Result<usize> {
        let mut met = 0;
        for (of, walk) in walks {
            if let Some(key) = of.memtable.find_span(&changes_in(range, since)) {
                return Err(self.conflict(family, &key));
            }
            let mut leaves = usize::MAX;
            let found = walk.find_change(&changes_in(range, since), &mut leaves);
            if let Ok(Some(key)) = found {
                return Err(self.conflict(family, key));
            }
            if of.epoch.end() > v0 {
                met += usize::MAX - leaves;
            }
        }
        Ok(met)
    }

    /// Fails if a table holds a change.
    fn look_in_table(
        &self,
        family: &Keyspace,
        table: &Arc<Table>,
        range: &Interval,
        from: Lsn,
    ) -> Result<()> {
        let (lower, upper) = range.bounds();
        let fragments = table.spans().map_or(&[][..], |spans| spans.within(lower, upper));
        if let Some(fragment) = fragments.iter().find(|fragment| fragment.seqs[0] >= from) {
            reached(Reach::SpanConflict);
            return Err(self.conflict(family, (&*fragment.start).max(&range.start.key)));
        }
        let mut cursor = table.cursor(false);
        let mut scratch = Vec::new();
        cursor.seek(&range.start.key)?;
        while let Some(entry) = cursor.entry().filter(|entry| !range.ends_before(entry.key)) {
            let is_overlooked = planted(Plant::RangeSkipsDeletes) && entry.kind.is_tombstone();
            if entry.seq >= from && !range.starts_after(entry.key) && !is_overlooked {
                return Err(self.conflict(family, entry.key));
            }
            Cursor::next_key(&mut cursor, &mut scratch)?;
        }
        Ok(())
    }

    fn conflict(&self, family: &Keyspace, key: &[u8]) -> Error {
        reached_if(Reach::SpanLost, || self.kind == ConflictKind::Write);
        Error::conflict(&family.name(), key, self.kind)
    }

    /// The commit starts over because of ranges.
    pub(super) fn note_retry(&self) {
        self.retries.set(self.retries.get() + 1);
    }

    /// Fails if anything in the `at`th family has changed within `since`. The two views together
    /// hold all of it. Lowers `leaves` by those it met; false if they are not enough.
    pub(super) fn judge(
        &self,
        at: usize,
        family: &Keyspace,
        (pinned, current): (&View, &View),
        since: Since,
        leaves: &mut usize,
    ) -> Result<bool> {
        let is_current =
            |of: &&MemtableOf| current.memtables.iter().any(|other| other.epoch.id == of.epoch.id);
        let others = pinned.memtables.iter().filter(|of| !is_current(of));
        let reaches = |of: &&MemtableOf| of.epoch.end() > since.from;
        if !current.memtables.iter().chain(others.clone()).any(|of| reaches(&of)) {
            return Ok(true);
        }
        let ranges = self.of_family(at).iter();
        let parts: Vec<_> =
            ranges.map(|(_, range)| self.without_gaps(current, range, since.from)).collect();
        for of in current.memtables.iter().chain(others).filter(reaches) {
            let mut walk = of.memtable.walk();
            for range in parts.iter().flat_map(|parts| parts.iter()) {
                if let Some(key) = of.memtable.find_span(&changes_in(range, since)) {
                    return Err(self.conflict(family, &key));
                }
                match walk.find_change(&changes_in(range, since), leaves) {
                    Ok(None) => {}
                    Ok(Some(key)) => return Err(self.conflict(family, key)),
                    Err(TooManyLeaves) => return Ok(false),
                }
            }
        }
        Ok(true)
    }
}

/// Fails if anything in the range, which is locked, has changed from `from` on. A change is told as
/// a conflict of this kind. If the first committer wins, more is a change.
pub(super) fn look_in_range(
    engine: &Engine,
    family: &Arc<Keyspace>,
    range: &Interval,
    from: Lsn,
    (kind, first_wins): (ConflictKind, bool),
) -> Result<()> {
    let view = pin_open(engine, family)?;
    let families = std::slice::from_ref(family);
    let mut ranges = Ranges::new(kind, families, std::iter::once((family.id, range.clone())));
    ranges.first_wins = first_wins;
    ranges.look(engine, std::iter::once((family, &**view)), from, Lsn::MAX)
}

/// What is left of a range without the gaps for a reader at `from`.
#[cold]
fn parts_without(gaps: &Gaps, range: &Interval, from: Lsn) -> Vec<Interval> {
    let mut parts = Vec::new();
    let mut rest = range.clone();
    let end = range.end.as_ref().map(|end| &*end.key);
    for gap in gaps.within(&range.start.key, end, from) {
        reached(Reach::GapUnchanged);
        let below = Interval { start: rest.start, end: Some(Cut::before(&gap.start)) };
        if !below.is_empty() {
            parts.push(below.clone());
        }
        rest = Interval { start: Cut::before(&gap.end).max(below.start), end: rest.end };
    }
    if !rest.is_empty() {
        parts.push(rest);
    }
    parts
}

fn changes_in(range: &Interval, Since { from, bound }: Since) -> Changes<'_> {
    let (lower, upper) = range.bounds();
    Changes { lower, upper, from, below: bound }
}

/// The slices that reach into the range and hold something from `from` on.
fn slices<'v>(view: &'v View, range: &Interval, from: Lsn) -> Vec<&'v Arc<Slice>> {
    let (lower, upper) = range.bounds();
    let reaches = |slice: &&Arc<Slice>| slice.extent().meets(&lower, &upper);
    let runs = view.tree.runs.iter().filter(reaches);
    let levels = view.tree.levels.iter().flat_map(|level| {
        let start = level.lower_bound(&range.start.key);
        let reaches_down = |slice: &&Arc<Slice>| !range.ends_before(slice.extent().start);
        level[start..].iter().take_while(reaches_down).filter(reaches)
    });
    runs.chain(levels).filter(|slice| slice.meta.max_seq >= from).collect()
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
