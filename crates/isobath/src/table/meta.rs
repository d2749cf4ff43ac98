//! What the rest of the engine knows of a table slice without opening it.

use crate::format::{FamilyId, LSN_END, Lsn};

/// No slice has as many bytes or entries, so that sums over slices do not overflow.
const SLICE_SIZE_END: u64 = 1 << 42;

/// Where a block lies in its file: its stored bytes, checksum trailer included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct BlockHandle {
    pub(crate) offset: u64,
    pub(crate) len: u32,
}

/// One family's share of a table file, as the manifest records it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SliceMeta {
    /// The number of the file that holds the slice.
    pub(crate) file: u64,
    pub(crate) family: FamilyId,
    /// The slice's root: from it the reader finds index, filter and properties.
    pub(crate) root: BlockHandle,
    /// Bytes of the slice on disk.
    pub(crate) disk_bytes: u64,
    /// Bytes of keys and values before compression.
    pub(crate) raw_bytes: u64,
    /// Versions in the slice, deletes included.
    pub(crate) entries: u64,
    pub(crate) deletes: u64,
    /// The least and greatest user key.
    pub(crate) smallest: Box<[u8]>,
    pub(crate) largest: Box<[u8]>,
    /// The least and greatest sequence.
    pub(crate) min_seq: Lsn,
    pub(crate) max_seq: Lsn,
}

impl SliceMeta {
    /// True if what it says can be so.
    pub(crate) fn is_sane(&self) -> bool {
        let end = self.root.offset.saturating_add(u64::from(self.root.len));
        let sizes = [end, self.disk_bytes, self.raw_bytes, self.entries];
        sizes.iter().all(|&size| size < SLICE_SIZE_END)
            && self.smallest <= self.largest
            && self.min_seq <= self.max_seq
            && self.max_seq < LSN_END
            && self.entries > 0
            && self.deletes <= self.entries
    }
}
