//! Tells whether older versions of a key can lie below the input of a flush or a compaction. If
//! none can, a delete leaves together with what it hides.
//!
//! Extents say it first, without a read. Then the filters of the slices whose extents hold the key
//! are asked, or the one block of a slice that is too small for a filter. A filter may say yes
//! though there is no version; the delete then stays.

use super::{Slice, Tree};
use crate::env::{Plant, Reach, planted, reached_if};
use crate::format::checksum64;
use crate::table::{ExtentRef, TableContext};
use std::sync::Arc;

/// Follows the slices beneath while keys pass in ascending order.
#[derive(Debug)]
pub(crate) struct Beneath<'a> {
    /// Each in key order, the deepest first: it most likely holds the key.
    sources: Vec<&'a [Arc<Slice>]>,
    tables: &'a TableContext,
}

impl<'a> Beneath<'a> {
    /// What lies beneath a compaction. Each of `sources` must be in key order, the deepest last.
    pub(crate) fn new(sources: &'a [Vec<Arc<Slice>>], tables: &'a TableContext) -> Self {
        Beneath { sources: sources.iter().rev().map(Vec::as_slice).collect(), tables }
    }

    /// A whole tree: it lies beneath a flush.
    pub(crate) fn tree(tree: &'a Tree, tables: &'a TableContext) -> Self {
        let levels = tree.levels.iter().rev().map(|level| &level[..]);
        let runs = tree.runs.iter().rev().map(std::slice::from_ref);
        Beneath {
            sources: levels.chain(runs).filter(|slices| !slices.is_empty()).collect(),
            tables,
        }
    }

    /// True if no slice holds a version of `key`. Keys must come ascending.
    pub(crate) fn is_clear_of(&mut self, key: &[u8]) -> bool {
        let tables = self.tables;
        let mut hash = None;
        self.sources.iter_mut().all(|slices| {
            let passed = slices.iter().take_while(|slice| slice.extent().ends_before(key)).count();
            *slices = &slices[passed..];
            let Some(slice) = slices.first().filter(|slice| !slice.extent().starts_after(key))
            else {
                return true;
            };
            // A table that cannot be opened may hold the key. The next read reports the error.
            let hash = *hash.get_or_insert_with(|| checksum64(key));
            let is_absent = slice.table(tables).is_ok_and(|table| !table.may_hold(key, hash));
            reached_if(Reach::FilterClear, || is_absent);
            is_absent || planted(Plant::FilterUnasked)
        })
    }

    /// True if no slice overlaps the extent.
    pub(crate) fn is_clear_of_all(&self, extent: &ExtentRef<'_>) -> bool {
        let overlaps = |slice: &Arc<Slice>| slice.extent().overlaps(extent);
        !self.sources.iter().any(|slices| slices.iter().any(overlaps))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::cache::{BlockCache, FileCache};
    use crate::version::fixtures::slice;
    use crate::vfs::{FileAccess, MemoryFs};

    /// None of the tables can be opened, so extents alone decide.
    #[test]
    fn only_keys_between_slices_are_clear() {
        let fs = Arc::new(MemoryFs::new());
        let files = FileCache::new(fs, "/db/table".into(), FileAccess::Positional, 4);
        let tables = TableContext::new(Arc::new(files), BlockCache::new(0));
        let level = |ends: &[(&str, &str)]| {
            ends.iter().map(|ends| slice(7, ends.0, ends.1, (1, 2))).collect::<Vec<_>>()
        };
        let levels = [level(&[("10", "20"), ("30", "40")]), level(&[("33", "50")]), level(&[])];
        let mut beneath = Beneath::new(&levels, &tables);
        let is_clear = |key: &u64| beneath.is_clear_of(key.to_string().as_bytes());
        let clear: Vec<u64> = (10..60).filter(is_clear).collect();
        let expected: Vec<u64> = (21..30).chain(51..60).collect();
        assert_eq!(clear, expected);
    }
}
