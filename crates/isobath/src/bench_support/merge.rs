//! The merge that scans and compactions use, over cursors of tables.

use super::table::Slice;
use crate::cursor::{Cursor, MergeCursor, VisibleCursor};
use crate::format::Lsn;
use crate::table::TableCursor;
use std::ops::Bound;

/// All versions of several slices, in order.
pub struct Merge(MergeCursor<TableCursor>);

/// What a reader of several slices sees.
pub struct Scan(VisibleCursor<MergeCursor<TableCursor>>);

fn merge(slices: &[Slice]) -> MergeCursor<TableCursor> {
    MergeCursor::new(slices.iter().map(|slice| slice.walker(true).0).collect())
}

impl Merge {
    /// Merges `slices`, the newest first.
    pub fn new(slices: &[Slice]) -> Merge {
        Merge(merge(slices))
    }

    /// Walks to the end, and returns the number of versions.
    pub fn count(&mut self) -> u64 {
        let mut count = 0;
        self.0.seek_first().expect("good tables");
        while self.0.entry().is_some() {
            count += 1;
            self.0.next().expect("good tables");
        }
        count
    }
}

impl Scan {
    /// Reads `slices`, the newest first.
    pub fn new(slices: &[Slice]) -> Scan {
        Scan(VisibleCursor::new(merge(slices), Lsn::MAX, Bound::Unbounded, Bound::Unbounded))
    }

    /// Seeks, then walks over at most `len` keys. Returns the number of keys.
    pub fn range(&mut self, from: &[u8], len: u64) -> u64 {
        self.0.seek(from).expect("good tables");
        let mut count = 0;
        while count < len && self.0.entry().is_some() {
            count += 1;
            self.0.next().expect("good tables");
        }
        count
    }
}
