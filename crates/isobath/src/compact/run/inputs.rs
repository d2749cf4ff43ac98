//! The inputs of a compaction as cursors.

use crate::compact::plan::Compaction;
use crate::cursor::{ConcatCursor, MergeCursor, SliceProvider};
use crate::error::{Error, Result};
use crate::table::{TableContext, TableCursor};
use crate::version::Slice;
use std::sync::Arc;

/// Disjoint slices of one level, or one run. They are read once from end to end, past the block
/// cache.
pub(super) struct InputRow {
    slices: Vec<Arc<Slice>>,
    tables: TableContext,
    /// How many entries of each slice were passed, without those of the open one.
    passed: Vec<u64>,
    /// What the open slice's cursor had passed when it stood on its first entry.
    entered: u64,
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

    fn note_entered(&mut self, _index: usize, cursor: &TableCursor) {
        self.entered = cursor.passed();
    }

    fn note_left(&mut self, index: usize, cursor: &TableCursor) {
        debug_assert!(self.entered <= cursor.passed(), "a compaction reads forward");
        self.passed[index] += cursor.passed() - self.entered;
    }

    fn damaged(cursor: &TableCursor) -> Error {
        cursor.out_of_bounds()
    }

    fn open(&self, index: usize) -> Result<TableCursor> {
        Ok(self.slices[index].table_for_job(&self.tables)?.job_cursor())
    }
}

/// The cursor that a compaction reads.
pub(super) type Inputs = MergeCursor<ConcatCursor<InputRow>>;

/// Merges all inputs: each run by itself, each level below 0 as one row.
pub(super) fn open_inputs(compaction: &Compaction, tables: &TableContext) -> Inputs {
    let mut rows: Vec<(usize, Vec<Arc<Slice>>)> = Vec::new();
    for (level, slice) in &compaction.inputs {
        match rows.last_mut() {
            Some((last, slices)) if last == level && *level > 0 => slices.push(slice.clone()),
            _ => rows.push((*level, vec![slice.clone()])),
        }
    }
    debug_assert!(
        rows.is_sorted_by_key(|(level, _)| *level),
        "sources are merged newest first, and a level is older than those above it"
    );
    let row = |(_, slices): (usize, Vec<Arc<Slice>>)| {
        let (passed, entered) = (vec![0; slices.len()], 0);
        ConcatCursor::new(InputRow { slices, tables: tables.clone(), passed, entered })
    };
    MergeCursor::new(rows.into_iter().map(row).collect())
}

/// How many entries of each input were passed, in the order of the compaction's inputs.
pub(super) fn passed_of(inputs: Inputs) -> Vec<u64> {
    inputs.into_sources().into_iter().flat_map(|row| row.into_slices().passed).collect()
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::compact::plan::fixtures::Model;
    use crate::events::CompactionReason;
    use crate::table::cache::{BlockCache, FileCache};
    use crate::vfs::{FileAccess, MemoryFs};

    #[test]
    fn each_run_is_an_input_by_itself_and_each_level_below_is_one() {
        let mut model = Model::new();
        let mut slice = |level: usize, at: u64| (level, model.slice((at, at), 1, 0, (1, 1)));
        let inputs =
            vec![slice(0, 1), slice(0, 1), slice(2, 1), slice(2, 2), slice(3, 1), slice(3, 2)];
        let compaction = Compaction {
            reason: CompactionReason::Manual,
            inputs,
            target: 3,
            depth: 2,
            is_last_level: true,
            fences: Vec::new(),
            cuts: Vec::new(),
            beneath: Vec::new(),
            guides: Vec::new(),
            output_bytes: None,
            overlap_max: u64::MAX,
        };
        let fs = Arc::new(MemoryFs::new());
        let files = Arc::new(FileCache::new(fs, "/db/table".into(), FileAccess::Positional, 10));
        let tables = TableContext::new(files, BlockCache::new(1 << 20));
        assert_eq!(open_inputs(&compaction, &tables).source_count(), 2 + 1 + 1);
        assert_eq!(compaction.input_rows(), 2 + 1 + 1);
    }
}
