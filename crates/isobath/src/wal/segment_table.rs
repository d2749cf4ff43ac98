//! The segments that are open, and the way from an LSN to its segment without a lock or a count.
//!
//! Segments are installed in LSN order before their LSNs can be reserved, and removed once everything in
//! them is copied and no longer needed. A slot array finds them: the segment with index `base / S` stands
//! in slot `index % M` from before its first LSN can be reserved until it is removed or, a lap later,
//! replaced, and it is replaced only after `copied` has passed its end.
//!
//! So whoever owns a reserved record that is not marked copied may use the pointers of the record's
//! segments: `copied` is at or below the record's start, hence below those segments' ends, hence they are
//! neither removed nor replaced.

use super::segment::Segment;
use crate::components::sync::{Mutex, atomic::*};
use crate::format::Lsn;
use std::collections::BTreeMap;
use std::ptr;
use std::sync::Arc;

/// The longest record a log must take if its segments are not tiny: a value of 4 GiB and some.
const RECORD_LEN_WANTED: u64 = 6 << 30;
const SLOTS_MAX: u64 = 4096;
const SLOTS_MIN: u64 = 64;

#[derive(Debug)]
pub(super) struct SegmentTable {
    segment_len: u64,
    shift: u32,
    slots: Box<[AtomicPtr<Segment>]>,
    /// By base. Owns what the slots point to.
    live: Mutex<BTreeMap<Lsn, Arc<Segment>>>,
}

impl SegmentTable {
    pub(super) fn new(segment_len: u64) -> SegmentTable {
        assert!(segment_len.is_power_of_two());
        let slots = (2 * RECORD_LEN_WANTED / segment_len).clamp(SLOTS_MIN, SLOTS_MAX);
        let slots = slots.next_power_of_two();
        SegmentTable {
            segment_len,
            shift: segment_len.trailing_zeros(),
            slots: (0..slots).map(|_| AtomicPtr::new(ptr::null_mut())).collect(),
            live: Mutex::default(),
        }
    }

    /// The longest record: half of what the slots can hold at once, so that the segments of a record can
    /// all be installed while records before it are still being copied.
    pub(super) fn record_len_max(&self) -> u64 {
        self.slots.len() as u64 / 2 * self.segment_len
    }

    /// The LSN that `copied` must have passed before the segment at `base` can be installed.
    pub(super) fn installable_from(&self, base: Lsn) -> Lsn {
        (base + self.segment_len).saturating_sub(self.slots.len() as u64 * self.segment_len)
    }

    /// Makes a segment findable. `copied` has passed [`Self::installable_from`] its base.
    pub(super) fn install(&self, segment: Segment) {
        let segment = Arc::new(segment);
        let mut live = self.live.lock();
        self.slot(segment.base).store(Arc::as_ptr(&segment).cast_mut(), Ordering::Release);
        live.insert(segment.base, segment);
    }

    /// The segment that holds `lsn`.
    ///
    /// # Safety
    /// The caller owns a reserved record that covers `lsn` and is not yet marked copied, and does not use
    /// the result after marking it.
    #[inline]
    pub(super) unsafe fn find(&self, lsn: Lsn) -> &Segment {
        let segment = self.slot(lsn).load(Ordering::Acquire);
        // SAFETY: a reserved LSN's segment is installed, so the slot is not null; since the record is not
        // marked copied, the slot holds this very segment and `live` owns it (see the module's argument).
        unsafe { &*segment }
    }

    /// The open segments that overlap `[from, to)`, in LSN order; none if that is empty.
    pub(super) fn overlapping(&self, from: Lsn, to: Lsn) -> Vec<Arc<Segment>> {
        let live = self.live.lock();
        let overlaps = |s: &&Arc<Segment>| from < to && s.base < to && from < s.end;
        live.values().filter(overlaps).map(Arc::clone).collect()
    }

    /// Takes out the segments that end at or below `lsn`, which `copied` has passed.
    pub(super) fn remove_below(&self, lsn: Lsn) -> Vec<Arc<Segment>> {
        let mut live = self.live.lock();
        let mut removed = Vec::new();
        while let Some(first) = live.first_entry()
            && first.get().end <= lsn
        {
            let segment = first.remove();
            let slot = self.slot(segment.base);
            let own = Arc::as_ptr(&segment).cast_mut();
            // A later segment may have the slot by now.
            let _ =
                slot.compare_exchange(own, ptr::null_mut(), Ordering::Relaxed, Ordering::Relaxed);
            removed.push(segment);
        }
        removed
    }

    fn slot(&self, lsn: Lsn) -> &AtomicPtr<Segment> {
        &self.slots[(lsn >> self.shift) as usize & (self.slots.len() - 1)]
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::vfs::{FileSystem, MemoryFs, ReadMode};
    use crate::wal::HEADER_PAGE_LEN;
    use std::path::Path;

    #[test]
    fn an_empty_or_inverted_range_overlaps_no_segment() {
        let table = SegmentTable::new(4096);
        let path = Path::new("segment");
        let (fs, len) = (MemoryFs::new(), HEADER_PAGE_LEN + 4096);
        // SAFETY: the file is opened once.
        let file = unsafe { fs.open_segment(path, len, ReadMode::Mapped) };
        table.install(Segment { base: 4096, end: 8192, file: file.unwrap() });
        for (from, to, count) in
            [(4096, 8192, 1), (5000, 5008, 1), (5000, 5000, 0), (6000, 5000, 0)]
        {
            let overlapping = table.overlapping(from, to);
            assert_eq!(overlapping.len(), count, "{from}..{to}");
            overlapping.iter().for_each(|segment| segment.harden(from, to).unwrap());
        }
    }
}
