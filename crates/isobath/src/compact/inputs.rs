//! The inputs of a merge as cursors.

use super::plan::Merge;
use crate::cursor::{ConcatCursor, MergeCursor, SliceProvider};
use crate::error::Result;
use crate::table::{TableContext, TableCursor};
use crate::version::Slice;
use std::sync::Arc;

/// Disjoint slices of one level, or one run, read once from end to end and past the block cache.
pub(super) struct InputRow {
    slices: Vec<Arc<Slice>>,
    tables: TableContext,
}

impl SliceProvider for InputRow {
    type Cursor = TableCursor;

    fn count(&self) -> usize {
        self.slices.len()
    }

    fn smallest(&self, index: usize) -> &[u8] {
        &self.slices[index].meta.smallest
    }

    fn largest(&self, index: usize) -> &[u8] {
        &self.slices[index].meta.largest
    }

    fn open(&self, index: usize) -> Result<TableCursor> {
        Ok(self.slices[index].table(&self.tables)?.cursor(false))
    }
}

/// A merge of all inputs: each run by itself, each level below 0 as a row.
pub(super) fn open_inputs(
    merge: &Merge,
    tables: &TableContext,
) -> MergeCursor<ConcatCursor<InputRow>> {
    let mut rows: Vec<(usize, Vec<Arc<Slice>>)> = Vec::new();
    for (level, slice) in &merge.inputs {
        match rows.last_mut() {
            Some((last, slices)) if last == level && *level > 0 => slices.push(slice.clone()),
            _ => rows.push((*level, vec![slice.clone()])),
        }
    }
    let row = |(_, slices)| ConcatCursor::new(InputRow { slices, tables: tables.clone() });
    MergeCursor::new(rows.into_iter().map(row).collect())
}
