//! The open segments, and how to get from an LSN to its segment without a lock or a reference
//! count.
//!
//! A term's first segments may be short, so that a small database is small on disk. Let `F` be the
//! length of the first and `S` the regular length: the short segments have `F` bytes, then again
//! `F`, `2F`, `4F` and so on, until together they have `S` bytes. All later segments have `S`
//! bytes.
//!
//! Segments are installed in LSN order, before their LSNs can be reserved. They are removed once
//! everything in them is copied and no longer needed. Each short segment has its own slot. The
//! regular segment with index `base / S` stands in slot `index % M` from before its first LSN can
//! be reserved until it is removed or, a lap later, replaced. It is replaced only after `copied`
//! has passed its end.
//!
//! Segments that hold nothing are removed, too, after their room was taken back (`rest.rs`) or the
//! log was shut: no LSN of them is reserved, nor will be before another segment is installed there.
//!
//! So the owner of a reserved record that is not marked copied may use the pointers to the record's
//! segments: `copied` is at or below the record's start, hence below those segments' ends, hence
//! they are neither removed nor replaced.

use super::segment::Segment;
use crate::env::sync::{Mutex, Rank, atomic::*};
use crate::format::Lsn;
use std::collections::BTreeMap;
use std::ptr;
use std::sync::Arc;

/// The longest record a log must take unless its segments are tiny: a value of 4 GiB and some more.
const RECORD_LEN_WANTED: u64 = 6 << 30;
/// The longest record that any log takes.
pub(super) const RECORD_LEN_MAX: u64 = RECORD_LEN_WANTED.next_power_of_two();
const SLOTS_MAX: u64 = 4096;
const SLOTS_MIN: u64 = 64;

#[derive(Debug)]
pub(super) struct SegmentTable {
    segment_len: u64,
    shift: u32,
    /// Where the term starts.
    start: Lsn,
    first_len: u64,
    /// From here on segments have the regular length.
    regular_from: Lsn,
    short: Box<[AtomicPtr<Segment>]>,
    slots: Box<[AtomicPtr<Segment>]>,
    /// The open segments by base. Owns what the slots point to.
    live: Mutex<BTreeMap<Lsn, Arc<Segment>>>,
}

impl SegmentTable {
    /// The table of a term that starts at `start`, a multiple of `segment_len`, and whose first
    /// segment has `first_len` bytes.
    pub(super) fn new(start: Lsn, first_len: u64, segment_len: u64) -> SegmentTable {
        assert!(segment_len.is_power_of_two() && first_len.is_power_of_two());
        assert!(first_len <= segment_len && start.is_multiple_of(segment_len));
        let empty = |count: u64| (0..count).map(|_| AtomicPtr::new(ptr::null_mut())).collect();
        let slots = (2 * RECORD_LEN_WANTED / segment_len).clamp(SLOTS_MIN, SLOTS_MAX);
        let is_short = first_len < segment_len;
        SegmentTable {
            segment_len,
            shift: segment_len.trailing_zeros(),
            start,
            first_len,
            regular_from: if is_short { start + segment_len } else { start },
            short: empty(u64::from((segment_len / first_len).ilog2()) + u64::from(is_short)),
            slots: empty(slots.next_power_of_two()),
            live: Mutex::new(Rank::Segments, BTreeMap::new()),
        }
    }

    /// The length of the term's first segment.
    pub(super) fn first_len(&self) -> u64 {
        self.first_len
    }

    /// The length of the segment at `base`. Each segment begins at a multiple of its length.
    pub(super) fn len_at(&self, base: Lsn) -> u64 {
        debug_assert!(base >= self.start, "{base:#x} is before the log");
        if base < self.regular_from {
            (base - self.start).max(self.first_len)
        } else {
            self.segment_len
        }
    }

    /// The longest record: half of what the slots hold at once, so that all segments of a record
    /// can be installed while records before it are still being copied.
    pub(super) fn record_len_max(&self) -> u64 {
        self.slots.len() as u64 / 2 * self.segment_len
    }

    /// The LSN that `copied` must have passed before the segment at `base` can be installed.
    pub(super) fn installable_from(&self, base: Lsn) -> Lsn {
        (base + self.segment_len).saturating_sub(self.slots.len() as u64 * self.segment_len)
    }

    /// Installs a segment so that [`Self::find`] finds it. `copied` has passed
    /// [`Self::installable_from`] its base.
    pub(super) fn install(&self, segment: Segment) {
        debug_assert!(segment.base < segment.end, "a segment holds something");
        let segment = Arc::new(segment);
        let mut live = self.live.lock();
        assert!(
            live.last_key_value().is_none_or(|(_, last)| last.end <= segment.base),
            "segments of the log are installed in order: {:#x} is not behind the last",
            segment.base
        );
        self.slot(segment.base).store(Arc::as_ptr(&segment).cast_mut(), Ordering::Release);
        live.insert(segment.base, segment);
    }

    /// The segment that holds `lsn`.
    ///
    /// # Safety
    /// The caller owns a reserved record that covers `lsn` and is not yet marked copied, and does
    /// not use the result after marking it.
    #[inline]
    pub(super) unsafe fn find(&self, lsn: Lsn) -> &Segment {
        let segment = self.slot(lsn).load(Ordering::Acquire);
        debug_assert!(!segment.is_null(), "{lsn:#x} has no segment");
        // SAFETY: a reserved LSN's segment is installed, so the slot is not null. The record is not
        // marked copied, so the slot holds this very segment and `live` owns it (see the module's
        // argument).
        let found = unsafe { &*segment };
        debug_assert!(found.base <= lsn && lsn < found.end, "{lsn:#x} is in another segment");
        found
    }

    /// The bytes from the first open segment up to `lsn`.
    pub(super) fn bytes_below(&self, lsn: Lsn) -> u64 {
        let live = self.live.lock();
        live.first_key_value().map_or(0, |(base, _)| lsn.saturating_sub(*base))
    }

    /// The open segments that overlap `[from, to)`, in LSN order; none if that is empty.
    pub(super) fn overlapping(&self, from: Lsn, to: Lsn) -> Vec<Arc<Segment>> {
        let live = self.live.lock();
        let overlaps = |s: &&Arc<Segment>| from < to && s.base < to && from < s.end;
        let found: Vec<_> = live.values().filter(overlaps).map(Arc::clone).collect();
        debug_assert!(
            found.windows(2).all(|pair| pair[0].end == pair[1].base),
            "the log has a gap between {from:#x} and {to:#x}"
        );
        found
    }

    /// Removes the segments that begin above `lsn`. Their LSNs are not reserved and never will be.
    pub(super) fn remove_above(&self, lsn: Lsn) -> Vec<Arc<Segment>> {
        let mut live = self.live.lock();
        let removed = live.split_off(&(lsn + 1));
        removed.into_values().inspect(|segment| self.forget(segment)).collect()
    }

    /// Removes the last segment if it begins at or above `lsn`. None of its LSNs is reserved, nor
    /// will be before another segment is installed in its place.
    pub(super) fn remove_last_from(&self, lsn: Lsn) -> Option<Arc<Segment>> {
        let mut live = self.live.lock();
        let last = live.last_entry().filter(|last| *last.key() >= lsn)?.remove();
        self.forget(&last);
        Some(last)
    }

    /// The end of the last segment; 0 if there is none.
    pub(super) fn end(&self) -> Lsn {
        self.live.lock().last_key_value().map_or(0, |(_, last)| last.end)
    }

    /// Removes the segments that end at or below `lsn`, which `copied` has passed.
    pub(super) fn remove_below(&self, lsn: Lsn) -> Vec<Arc<Segment>> {
        let mut live = self.live.lock();
        let mut removed = Vec::new();
        while let Some(first) = live.first_entry()
            && first.get().end <= lsn
        {
            let segment = first.remove();
            self.forget(&segment);
            removed.push(segment);
        }
        removed
    }

    fn forget(&self, segment: &Arc<Segment>) {
        let slot = self.slot(segment.base);
        let own = Arc::as_ptr(segment).cast_mut();
        // A later segment may have the slot by now.
        let _ = slot.compare_exchange(own, ptr::null_mut(), Ordering::Relaxed, Ordering::Relaxed);
    }

    #[inline]
    fn slot(&self, lsn: Lsn) -> &AtomicPtr<Segment> {
        if lsn < self.regular_from {
            return &self.short[self.short_index(lsn)];
        }
        &self.slots[(lsn >> self.shift) as usize & (self.slots.len() - 1)]
    }

    /// Which of the short segments holds `lsn`.
    fn short_index(&self, lsn: Lsn) -> usize {
        let firsts = (lsn - self.start) / self.first_len;
        firsts.checked_ilog2().map_or(0, |doublings| doublings as usize + 1)
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::vfs::{FileAccess, FileSystem, MemoryFs};
    use crate::wal::HEADER_PAGE_LEN;
    use std::path::Path;

    #[test]
    fn short_segments_double_until_they_have_filled_the_place_of_one_that_is_not() {
        let start = 3 << 20;
        let table = SegmentTable::new(start, 1 << 16, 1 << 20);
        let (mut base, mut lens) = (start, Vec::new());
        while base < start + (3 << 20) {
            let len = table.len_at(base);
            assert!(base.is_multiple_of(len), "{base:#x} {len:#x}");
            if len < 1 << 20 {
                let index = lens.len();
                for lsn in [base, base + len / 2, base + len - 1] {
                    assert_eq!(table.short_index(lsn), index);
                    assert!(ptr::eq(table.slot(lsn), &table.short[index]));
                }
            }
            lens.push(len >> 16);
            base += len;
        }
        assert_eq!(lens, [1, 1, 2, 4, 8, 16, 16]);
        assert_eq!(table.short.len(), 5);
        assert!(ptr::eq(table.slot(start + (1 << 20)), &table.slots[4]));
    }

    #[test]
    fn a_log_of_any_segments_takes_long_records_and_none_longer_than_any_log_takes() {
        for shift in 12..=26 {
            let len = 1 << shift;
            let table = SegmentTable::new(len, len, len);
            let (slots, longest) = (table.slots.len() as u64, table.record_len_max());
            assert_eq!(longest, RECORD_LEN_MAX.min(len * SLOTS_MAX / 2), "{len}");
            // A segment may be installed once the segment that had its slot is copied. None of the
            // `slots - 1` segments between shares that slot.
            let base = 3 * slots * len;
            assert_eq!(table.installable_from(base), base - (slots - 1) * len);
            assert_eq!(table.installable_from(len), 0);
            assert!(ptr::eq(table.slot(base), table.slot(base + slots * len)));
            assert!(!ptr::eq(table.slot(base), table.slot(base + (slots - 1) * len)));
        }
    }

    #[test]
    fn a_term_may_do_without_short_segments() {
        let table = SegmentTable::new(1 << 20, 1 << 20, 1 << 20);
        assert_eq!((table.len_at(1 << 20), table.short.len()), (1 << 20, 0));
        assert!(ptr::eq(table.slot(1 << 20), &table.slots[1]));
    }

    #[test]
    fn an_empty_or_inverted_range_overlaps_no_segment() {
        let table = SegmentTable::new(4096, 4096, 4096);
        let path = Path::new("segment");
        let (fs, len) = (MemoryFs::new(), HEADER_PAGE_LEN + 4096);
        // SAFETY: the file is opened once.
        let file = unsafe { fs.open_segment(path, len, FileAccess::Mapped) };
        table.install(Segment { base: 4096, end: 8192, file: file.unwrap() });
        for (from, to, count) in
            [(4096, 8192, 1), (5000, 5008, 1), (5000, 5000, 0), (6000, 5000, 0)]
        {
            let overlapping = table.overlapping(from, to);
            assert_eq!(overlapping.len(), count, "{from}..{to}");
            overlapping.iter().for_each(|segment| segment.sync_range(from, to).unwrap());
        }
    }

    /// A segment of the table, on a file of its own.
    fn install(table: &SegmentTable, fs: &MemoryFs, base: Lsn) -> Lsn {
        let (path, len) = (format!("{base:x}"), table.len_at(base));
        // SAFETY: the file is opened once.
        let file =
            unsafe { fs.open_segment(Path::new(&path), HEADER_PAGE_LEN + len, FileAccess::Mapped) };
        table.install(Segment { base, end: base + len, file: file.unwrap() });
        base + len
    }

    fn is_vacant(table: &SegmentTable, lsn: Lsn) -> bool {
        table.slot(lsn).load(Ordering::Relaxed).is_null()
    }

    #[test]
    fn segments_are_found_by_any_of_their_lsns_until_they_are_removed() {
        let (table, fs) = (SegmentTable::new(1 << 16, 4096, 1 << 14), MemoryFs::new());
        let mut bases = vec![1 << 16];
        while bases.len() < 7 {
            bases.push(install(&table, &fs, *bases.last().unwrap()));
        }
        let end = bases.pop().unwrap();
        assert_eq!(table.first_len(), 4096);
        for base in &bases {
            let last = base + table.len_at(*base) - 1;
            // SAFETY: nothing is removed meanwhile.
            let segment = unsafe { table.find(*base) };
            let places = [*base, last].map(|lsn| segment.offset(lsn));
            assert_eq!(places, [HEADER_PAGE_LEN, HEADER_PAGE_LEN + (last - base)]);
            for (from, to) in [(0, u64::MAX), (*base, base + 8), (last, end)] {
                segment.sync_range(from, to).unwrap();
            }
            for lsn in [*base, last] {
                // SAFETY: nothing is removed meanwhile.
                assert_eq!(unsafe { table.find(lsn) }.base, *base);
                let found: Vec<_> =
                    table.overlapping(lsn, lsn + 1).iter().map(|s| s.base).collect();
                assert_eq!(found, [*base]);
            }
            let before = table.overlapping(0, *base).len() + table.overlapping(*base, end).len();
            assert_eq!(before, bases.len());
        }
        assert!(table.overlapping(end, u64::MAX).is_empty());
        let based = |removed: Vec<Arc<Segment>>| removed.iter().map(|s| s.base).collect::<Vec<_>>();
        assert!(table.remove_below(bases[1] - 1).is_empty());
        assert_eq!(based(table.remove_below(bases[1])), bases[..1]);
        assert!(is_vacant(&table, bases[0]) && !is_vacant(&table, bases[1]));
        assert_eq!(based(table.remove_below(bases[4] - 1)), bases[1..3]);
        assert!(table.remove_above(bases[5]).is_empty());
        assert_eq!(based(table.remove_above(bases[5] - 1)), bases[5..]);
        assert!(is_vacant(&table, bases[5]) && !is_vacant(&table, bases[4]));
        assert_eq!(based(table.remove_above(0)), bases[3..5]);
        assert!(table.overlapping(0, u64::MAX).is_empty());
    }

    #[test]
    fn a_segment_that_has_taken_over_a_slot_keeps_it_when_the_one_before_goes() {
        let (table, fs) = (SegmentTable::new(4096, 4096, 4096), MemoryFs::new());
        let later = 4096 + table.slots.len() as u64 * 4096;
        install(&table, &fs, 4096);
        install(&table, &fs, later);
        assert_eq!(table.remove_below(8192).len(), 1);
        // SAFETY: nothing is removed meanwhile.
        assert_eq!(unsafe { table.find(later + 8) }.base, later);
    }

    #[test]
    #[should_panic(expected = "segments of the log are installed in order")]
    fn a_segment_that_is_not_behind_the_last_is_refused() {
        let (table, fs) = (SegmentTable::new(4096, 4096, 4096), MemoryFs::new());
        install(&table, &fs, 8192);
        install(&table, &fs, 4096);
    }
}
