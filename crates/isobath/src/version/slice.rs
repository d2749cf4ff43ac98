//! One family's share of one table file, as readers and jobs hold it.
//!
//! The first reader or job that needs the table opens it, and it stays open while the slice is in
//! use. A version that keeps a slice, or moves it to another level, keeps its filter and top index
//! block too. Below a ceiling for memory there may be no room for that: then it is open as long as
//! who asked for it holds it, and a while longer if there are not many of the kind.

use super::files::LiveFile;
use crate::error::Result;
use crate::span::SpanSet;
use crate::table::{ExtentRef, SliceMeta, Table, TableContext};
use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

/// An open table: the slice's own, or one that does not stay open.
pub(crate) type OpenTable<'s> = Cow<'s, Arc<Table>>;

/// A slice in use: its description in the manifest, and the files that it keeps alive.
#[derive(Debug)]
pub(crate) struct Slice {
    pub(crate) meta: SliceMeta,
    // Declared before the file, so that the table is dropped first.
    table: OnceLock<Arc<Table>>,
    pub(crate) file: Arc<LiveFile>,
    /// The blob files that its metadata names.
    pub(crate) blobs: Box<[Arc<LiveFile>]>,
    /// The files of its streams, which its metadata names as well.
    pub(crate) streams: Box<[Arc<LiveFile>]>,
    /// Bytes on disk of the slice and of its values that lie apart.
    pub(crate) held_bytes: u64,
    /// What scans are expected to pass in it, until its table knows.
    expected_scan_bytes: u64,
}

impl Slice {
    /// [`Slice::with_streams`] for one that has none.
    #[cfg(any(test, feature = "bench-internals"))]
    pub(crate) fn new(
        meta: SliceMeta,
        file: Arc<LiveFile>,
        blobs: Box<[Arc<LiveFile>]>,
    ) -> Arc<Slice> {
        Slice::with_streams(meta, file, blobs, Box::default(), 0)
    }

    /// The slice that `meta` describes, in `file`, with values in `blobs` and in `streams`, whose
    /// numbers must be those in `meta`. Scans are expected to pass so many bytes in it.
    pub(crate) fn with_streams(
        meta: SliceMeta,
        file: Arc<LiveFile>,
        blobs: Box<[Arc<LiveFile>]>,
        streams: Box<[Arc<LiveFile>]>,
        expected_scan_bytes: u64,
    ) -> Arc<Slice> {
        debug_assert_eq!(meta.file, file.number());
        let named = meta.blobs.iter().map(|share| share.file);
        debug_assert!(named.eq(blobs.iter().map(|file| file.number())), "{meta:?}");
        let named = meta.streams.iter().map(|share| share.file);
        debug_assert!(named.eq(streams.iter().map(|file| file.number())), "{meta:?}");
        let of_values = meta
            .blobs
            .iter()
            .fold(meta.stream_bytes(), |sum: u64, share| sum.saturating_add(share.bytes));
        let held_bytes = meta.disk_bytes.saturating_add(of_values);
        let table = OnceLock::new();
        Arc::new(Slice { meta, table, file, blobs, streams, held_bytes, expected_scan_bytes })
    }

    /// The open table. All slices of a database are opened with the same context.
    #[inline]
    pub(crate) fn table(&self, context: &TableContext) -> Result<OpenTable<'_>> {
        match self.table.get() {
            Some(table) => Ok(Cow::Borrowed(table)),
            None => self.open(context, false),
        }
    }

    /// The same for a job, which has memory for it that is kept for jobs.
    pub(crate) fn table_for_job(&self, context: &TableContext) -> Result<OpenTable<'_>> {
        match self.table.get() {
            Some(table) => Ok(Cow::Borrowed(table)),
            None => self.open(context, true),
        }
    }

    /// The table, if it was opened already.
    pub(crate) fn table_if_open(&self) -> Option<&Arc<Table>> {
        self.table.get()
    }

    /// Two threads may open the table at once, and one of the two results is kept. No thread waits
    /// for a lock while another reads from the disk.
    #[cold]
    fn open(&self, context: &TableContext, is_job: bool) -> Result<OpenTable<'_>> {
        let (table, stays) = context.open(&self.meta, is_job, self.expected_scan_bytes)?;
        Ok(if stays { Cow::Borrowed(self.table.get_or_init(|| table)) } else { Cow::Owned(table) })
    }

    /// How many bytes of blocks scans have usually passed in it of late.
    pub(super) fn usual_scan_bytes(&self) -> u64 {
        self.table.get().map_or(self.expected_scan_bytes, |table| table.usual_scan_bytes())
    }

    /// The range deletes of the slice, if its table was opened already.
    pub(crate) fn spans_if_open(&self) -> Option<&SpanSet> {
        Some(&**self.table.get()?.spans()?)
    }

    /// About how much memory it takes while its table is not open: itself, its keys, and its
    /// files.
    pub(crate) fn listed_bytes(&self) -> u64 {
        let keys = self.meta.smallest.len() + self.meta.largest.len();
        let blobs = size_of_val(&*self.meta.blobs) + size_of_val(&*self.blobs);
        let shared = 2 * size_of::<usize>() + size_of::<Arc<Slice>>();
        // Few slices share the file of a stream: those of clones, and of other ends of one value.
        let of_stream = size_of::<LiveFile>() + shared;
        let streams = size_of_val(&*self.meta.streams) + self.streams.len() * of_stream;
        (size_of::<Slice>() + size_of::<LiveFile>() + 2 * shared + keys + blobs + streams) as u64
    }

    /// What a job may have to read: the bytes on disk of the slice, and of its values that lie
    /// among others. No job reads streams.
    pub(crate) fn readable_bytes(&self) -> u64 {
        self.held_bytes.saturating_sub(self.meta.stream_bytes())
    }

    /// The extent of its keys.
    #[inline]
    pub(crate) fn extent(&self) -> ExtentRef<'_> {
        self.meta.extent()
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::super::fixtures::slice;
    use super::*;

    #[test]
    fn what_a_slice_takes_in_a_list_grows_with_its_keys() {
        let of = |len: usize| slice(1, "a", &"b".repeat(len), (1, 2)).listed_bytes();
        assert_eq!((of(101) - of(1), of(20_001) - of(1)), (100, 20_000));
        assert!(of(1) > (size_of::<Slice>() + size_of::<LiveFile>()) as u64);
    }
}
