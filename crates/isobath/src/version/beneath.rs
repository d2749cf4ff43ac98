//! Tells whether older versions of a key can lie below the input of a flush or a compaction. If
//! none can, a delete leaves together with what it hides.
//!
//! Extents say it first, without a read. Then the filters of the slices whose extents hold the key
//! are asked, or the one block of a slice that is too small for a filter. A filter may say yes
//! though there is no version; the delete then stays. A flush opens few tables for that, because
//! writers may wait for it: deletes anywhere in a large tree would have it read most filters.

use super::{OpenTable, Slice, Tree};
use crate::env::{Plant, Reach, planted, reached_if};
use crate::format::checksum64;
use crate::table::{ExtentRef, TableContext};
use std::borrow::Cow;
use std::cell::Cell;
use std::sync::Arc;

/// Follows the slices beneath while keys pass in ascending order.
#[derive(Debug)]
pub(crate) struct Beneath<'a> {
    /// The deepest first: it most likely holds the key.
    sources: Vec<Source<'a>>,
    tables: &'a TableContext,
    /// How many more tables may be opened, if there is a limit.
    openings: Option<&'a Cell<usize>>,
}

/// Slices in key order.
#[derive(Debug)]
struct Source<'a> {
    /// Those that the keys have not passed yet.
    slices: &'a [Arc<Slice>],
    /// The table of the first of them. It may not stay open by itself.
    table: Option<OpenTable<'a>>,
    /// It could not be opened. It is not tried again for each key.
    is_closed: bool,
}

impl<'a> Source<'a> {
    fn new(slices: &'a [Arc<Slice>]) -> Source<'a> {
        Source { slices, table: None, is_closed: false }
    }

    /// The slice whose extent holds `key`.
    fn pass_to(&mut self, key: &[u8]) -> Option<&'a Arc<Slice>> {
        let ends_before = |slice: &&Arc<Slice>| slice.extent().ends_before(key);
        let passed = self.slices.iter().take_while(ends_before).count();
        self.slices = &self.slices[passed..];
        if passed > 0 {
            (self.table, self.is_closed) = (None, false);
        }
        self.slices.first().filter(|slice| !slice.extent().starts_after(key))
    }

    /// True if the first slice does not hold `key`. A table that cannot be opened may hold it. The
    /// next read reports the error.
    fn is_absent(
        &mut self,
        slice: &'a Slice,
        key: &[u8],
        hash: u64,
        (tables, openings): (&TableContext, Option<&Cell<usize>>),
    ) -> bool {
        debug_assert!(slice.meta.may_hold(key), "what a slice of other keys holds says nothing");
        if self.is_closed {
            return false;
        }
        if self.table.is_none() {
            let open = || {
                if let Some(left) = openings {
                    left.set(left.get().checked_sub(1)?);
                }
                slice.table_for_job(tables).ok()
            };
            self.table = slice.table_if_open().map(Cow::Borrowed).or_else(open);
            self.is_closed = self.table.is_none();
        }
        self.table.as_ref().is_some_and(|table| !table.may_hold(key, hash))
    }
}

impl<'a> Beneath<'a> {
    /// What lies beneath a compaction. Each of `sources` must be in key order, the deepest last.
    pub(crate) fn new(sources: &'a [Vec<Arc<Slice>>], tables: &'a TableContext) -> Self {
        Beneath {
            sources: sources.iter().rev().map(|slices| Source::new(slices)).collect(),
            tables,
            openings: None,
        }
    }

    /// A whole tree: it lies beneath a flush, of which all parts together open so many tables.
    pub(crate) fn tree(
        tree: &'a Tree,
        tables: &'a TableContext,
        openings: &'a Cell<usize>,
    ) -> Self {
        let levels = tree.levels.iter().rev().map(|level| &level[..]);
        let runs = tree.runs.iter().rev().map(std::slice::from_ref);
        Beneath {
            sources: levels
                .chain(runs)
                .filter(|slices| !slices.is_empty())
                .map(Source::new)
                .collect(),
            tables,
            openings: Some(openings),
        }
    }

    /// True if no slice holds a version of `key`. Keys must come ascending.
    pub(crate) fn is_clear_of(&mut self, key: &[u8]) -> bool {
        let Beneath { sources, tables, openings } = self;
        let openings = *openings;
        let mut hash = None;
        sources.iter_mut().all(|source| {
            let Some(slice) = source.pass_to(key) else { return true };
            let hash = *hash.get_or_insert_with(|| checksum64(key));
            let is_absent = source.is_absent(slice, key, hash, (tables, openings));
            reached_if(Reach::FilterClear, || is_absent);
            is_absent || planted(Plant::FilterUnasked)
        })
    }

    /// True if no slice overlaps the extent.
    pub(crate) fn is_clear_of_all(&self, extent: &ExtentRef<'_>) -> bool {
        let is_met = |source: &Source<'_>| {
            let ends_before = |slice: &Arc<Slice>| slice.extent().ends_before(extent.start);
            let first = source.slices.get(source.slices.partition_point(ends_before));
            first.is_some_and(|slice| slice.extent().overlaps(extent))
        };
        !self.sources.iter().any(is_met)
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::table::cache::{BlockCache, FileCache};
    use crate::version::fixtures::slice;
    use crate::vfs::{Fault, FileAccess, FileOp, FileSystem, MemoryFs};

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

    thread_local! {
        /// How often a read has failed.
        static FAILED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
    }

    fn unreadable() -> std::io::Error {
        FAILED.set(FAILED.get() + 1);
        std::io::Error::from_raw_os_error(5)
    }

    #[test]
    fn a_slice_that_cannot_be_opened_is_opened_once() {
        let fs = MemoryFs::new();
        for file in ["0000000007.tbl", "0000000008.tbl"] {
            fs.create_dir_all("/db/table".as_ref()).unwrap();
            let mut file = fs.create(&std::path::Path::new("/db/table").join(file)).unwrap();
            file.append(&[0; 4096]).unwrap();
        }
        fs.inject(Fault::on(FileOp::Read).suffix(".tbl").calls(unreadable).forever());
        let files = FileCache::new(Arc::new(fs), "/db/table".into(), FileAccess::Positional, 4);
        let tables = TableContext::new(Arc::new(files), BlockCache::new(0));
        let levels = [
            vec![slice(7, "1000", "1999", (1, 2)), slice(8, "2000", "2999", (1, 2))],
            vec![slice(9, "5000", "5999", (1, 2))],
        ];
        let mut beneath = Beneath::new(&levels, &tables);
        for (ends, failed) in [(1000..2000, 1), (2000..3000, 2), (3000..5000, 2)] {
            for key in ends.clone() {
                assert_eq!(beneath.is_clear_of(key.to_string().as_bytes()), ends.start == 3000);
            }
            assert_eq!(FAILED.get(), failed, "{ends:?}");
        }
    }

    /// Forty slices of ten keys in a level, of which none can be opened.
    fn unreadable_tree() -> (Tree, TableContext) {
        let fs = MemoryFs::new();
        fs.create_dir_all("/db/table".as_ref()).unwrap();
        let slices = (100..140).map(|file| {
            let path = format!("/db/table/{file:010}.tbl");
            fs.create(path.as_ref()).unwrap().append(&[0; 4096]).unwrap();
            (6, slice(file, &format!("{file}0"), &format!("{file}9"), (1, 2)))
        });
        let tree = Tree::default().with(&[], slices.collect()).unwrap();
        fs.inject(Fault::on(FileOp::Read).suffix(".tbl").calls(unreadable).forever());
        let files = FileCache::new(Arc::new(fs), "/db/table".into(), FileAccess::Positional, 4);
        (tree, TableContext::new(Arc::new(files), BlockCache::new(0)))
    }

    #[test]
    fn a_flush_opens_a_slice_that_cannot_be_opened_once() {
        let (tree, tables) = unreadable_tree();
        let openings = Cell::new(20);
        let mut beneath = Beneath::tree(&tree, &tables, &openings);
        FAILED.set(0);
        for (end, tried) in [(1010, 1), (1020, 2)] {
            let is_clear = |key: &u32| beneath.is_clear_of(key.to_string().as_bytes());
            assert_eq!((end - 10..end).filter(is_clear).count(), 0);
            assert_eq!((FAILED.get(), openings.get()), (tried, 20 - tried));
        }
    }

    #[test]
    fn a_flush_opens_few_tables_however_many_lie_beneath_its_deletes() {
        let (tree, tables) = unreadable_tree();
        let openings = Cell::new(20);
        let mut first = Beneath::tree(&tree, &tables, &openings);
        FAILED.set(0);
        let is_clear = |key: &u32| first.is_clear_of(key.to_string().as_bytes());
        assert_eq!((1000..1150).filter(is_clear).count(), 0);
        assert_eq!(FAILED.get(), 15);
        let mut second = Beneath::tree(&tree, &tables, &openings);
        let is_clear = |key: &u32| second.is_clear_of(key.to_string().as_bytes());
        assert_eq!((1000..1410).filter(is_clear).count(), 10, "those behind all");
        assert_eq!(FAILED.get(), 20);
    }
}
