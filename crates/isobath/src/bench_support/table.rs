//! A table slice in a file of the system's temporary directory, and the operations that matter for
//! reading it.

use crate::cursor::{Cursor, Entry};
use crate::format::{Lsn, OpKind, checksum64};
use crate::table as inner;
use crate::table::cache::{BlockCache, FileCache};
use crate::vfs::{FileAccess, FileSystem, SystemFs};
use std::path::Path;
use std::sync::Arc;

pub use crate::table::Codec;

/// How the blocks of a slice are made.
#[derive(Clone, Copy)]
pub struct Layout {
    pub codec: Codec,
    /// Every data block is chained, as in tables of before slotted ones.
    pub is_chained: bool,
}

/// A family's slice of `keys` ascending keys, newly written to `dir`.
pub struct Slice {
    table: Arc<inner::Table>,
    pub file_len: u64,
}

fn fs() -> Arc<dyn FileSystem> {
    Arc::new(SystemFs::new())
}

/// Writes a table of these entries, and returns its length.
pub fn build<'a>(
    dir: &Path,
    number: u64,
    layout: Layout,
    entries: impl Iterator<Item = (&'a [u8], &'a [u8])>,
) -> u64 {
    write(dir, number, layout, entries).file_len
}

fn write<'a>(
    dir: &Path,
    number: u64,
    layout: Layout,
    entries: impl Iterator<Item = (&'a [u8], &'a [u8])>,
) -> inner::Finished {
    let path = crate::table::cache::table_path(dir, number);
    let _ = fs().remove(&path);
    let file = fs().create(&path).expect("a new file");
    let mut writer = inner::TableWriter::create(file, [0; 16], number).expect("room");
    let Layout { codec, is_chained } = layout;
    let form = if is_chained { inner::BlockForm::Chained } else { inner::BlockForm::Either };
    let options = inner::TableOptions { codec, form, ..Default::default() };
    writer.begin_slice(0, &options).expect("the first slice");
    for (i, (key, value)) in entries.enumerate() {
        let seq = 1 << 20 | i as u64;
        writer.add(Entry { key, seq, kind: OpKind::Put, value }).expect("in order");
    }
    writer.finish_slice().expect("room");
    writer.finish().expect("room")
}

impl Slice {
    pub fn write<'a>(
        dir: &Path,
        number: u64,
        layout: Layout,
        cache_bytes: u64,
        is_mapped: bool,
        entries: impl Iterator<Item = (&'a [u8], &'a [u8])>,
    ) -> Slice {
        let finished = write(dir, number, layout, entries);
        let mode = if is_mapped { FileAccess::Mapped } else { FileAccess::Positional };
        let files = Arc::new(FileCache::new(fs(), dir.to_owned(), mode, 100));
        let context = inner::TableContext::new(files, BlockCache::new(cache_bytes));
        let table = inner::Table::open(context, &finished.slices[0]).expect("a good table");
        Slice { table, file_len: finished.file_len }
    }

    /// The bytes that the block cache holds.
    pub fn cached_bytes(&self) -> u64 {
        self.table.context.blocks.used_bytes()
    }

    /// The length of the value, if the key exists.
    #[inline]
    pub fn get(&self, key: &[u8]) -> Option<usize> {
        let found = self.table.get(key, checksum64(key), Lsn::MAX).expect("a good table");
        found.map(|found| found.value.len())
    }

    #[inline]
    pub fn may_contain(&self, hash: u64) -> bool {
        self.table.may_contain(hash)
    }

    pub fn walker(&self, fill_cache: bool) -> Walker {
        Walker(self.table.cursor(fill_cache))
    }
}

/// A cursor over a slice.
pub struct Walker(pub(super) inner::TableCursor);

impl Walker {
    pub fn first(&mut self) {
        self.0.seek_first().expect("a good table");
    }

    pub fn last(&mut self) {
        self.0.seek_last().expect("a good table");
    }

    #[inline]
    pub fn seek(&mut self, key: &[u8]) -> bool {
        self.0.seek(key).expect("a good table");
        self.0.entry().is_some()
    }

    /// Moves to the next entry. Returns false at the end.
    #[inline]
    pub fn step(&mut self) -> bool {
        self.0.next().expect("a good table");
        self.0.entry().is_some()
    }

    /// Moves to the previous key. Returns false at the end.
    #[inline]
    pub fn step_back(&mut self) -> bool {
        self.0.prev_key().expect("a good table");
        self.0.entry().is_some()
    }
}

/// The hash of the key, as filters use it.
#[inline]
pub fn hash(key: &[u8]) -> u64 {
    checksum64(key)
}
