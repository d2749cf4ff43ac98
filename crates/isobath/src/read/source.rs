//! The sources that a scan merges: the write set of its transaction, memtables, what large commits
//! have laid over the tree, runs of level 0, and the levels below.

use crate::cursor::{ConcatCursor, Cursor, Entry, SliceProvider};
use crate::engine::{Layer, SpilledCursor, SpilledPart};
use crate::error::{DecodeError, Error, Result};
use crate::footprint::WriteSetCursor;
use crate::format::Lsn;
use crate::memtable::{Memtable, MemtableCursor};
use crate::pinned::Value;
use crate::table::{RowLimits, Rows, TableContext, TableCursor};
use crate::version::{Level, Slice as TableSlice};
use std::sync::Arc;

/// One source of a scan. The tag is a byte of its own. Each step reads the tag, and to derive a tag
/// hidden in the fields takes twelve instructions.
#[repr(u8)]
pub(crate) enum Source {
    Memtable(MemtableCursor),
    /// The slice keeps the file; the table opens the file again for each block.
    Run {
        cursor: TableCursor,
        _slice: Arc<TableSlice>,
    },
    Level(ConcatCursor<LevelSlices>),
    /// What the transaction has written, newer than everything else; or a file of a large commit,
    /// between memtables and tables.
    Own(OwnCursor),
}

/// What a transaction has written: in memory, or in a file. One with files may have committed.
pub(crate) enum OwnCursor {
    Memory(WriteSetCursor),
    File(Box<SpilledCursor>),
    Files(Box<ConcatCursor<LayerFiles>>),
}

impl Source {
    pub(crate) fn memtable(memtable: &Arc<Memtable>) -> Source {
        Source::Memtable(MemtableCursor::new(memtable.clone()))
    }

    pub(crate) fn spilled(part: &SpilledPart, fill_cache: bool) -> Source {
        Source::Own(OwnCursor::File(Box::new(part.cursor(fill_cache))))
    }

    /// Files of a large commit that lie apart, the one with the highest keys first.
    pub(crate) fn layers(group: &[Layer], fill_cache: bool) -> Source {
        if let [layer] = group {
            return Source::spilled(&layer.part, fill_cache);
        }
        let files = group.iter().rev().map(|layer| layer.part.clone()).collect();
        let files = LayerFiles { files, fill_cache, is_for_job: false };
        Source::Own(OwnCursor::Files(Box::new(ConcatCursor::new(files))))
    }

    pub(crate) fn run(
        slice: &Arc<TableSlice>,
        tables: &TableContext,
        fill_cache: bool,
    ) -> Result<Source> {
        let cursor = slice.table(tables)?.cursor(fill_cache);
        Ok(Source::Run { cursor, _slice: slice.clone() })
    }

    pub(crate) fn level(
        level: &Arc<Level>,
        tables: &Arc<TableContext>,
        fill_cache: bool,
    ) -> Source {
        let (level, tables) = (level.clone(), tables.clone());
        Source::Level(ConcatCursor::new(LevelSlices { level, tables, fill_cache }))
    }

    /// Moves on to later keys of the block where it stands: see [`TableCursor::take_rows`]. What
    /// is in memory has no blocks.
    pub(crate) fn take_rows(
        &mut self,
        rows: &mut Rows,
        limits: RowLimits,
        wanted: impl Fn(&[u8]) -> bool,
    ) -> bool {
        match self {
            Source::Run { cursor, .. } => cursor.take_rows(rows, limits, wanted),
            Source::Level(level) => {
                level.current_mut().is_none_or(|cursor| cursor.take_rows(rows, limits, wanted))
            }
            Source::Memtable(_) | Source::Own(_) => true,
        }
    }

    /// The current key and its value. The value is copied only if it is short.
    #[inline(always)]
    pub(crate) fn pinned(&self) -> Option<(&[u8], Value)> {
        let cursor = match self {
            Source::Memtable(cursor) => {
                let entry = cursor.entry()?;
                return Some((entry.key, Value::in_memtable(entry.value, cursor.memtable())));
            }
            Source::Run { cursor, .. } => cursor,
            Source::Level(cursor) => cursor.current()?,
            Source::Own(cursor) => return pinned_own(cursor),
        };
        let entry = cursor.entry()?;
        let value = match Value::short(entry.value) {
            Some(value) => value,
            None => Value::kept(cursor.value_pin()?),
        };
        Some((entry.key, value))
    }

    /// What is wrong with the entry where this stands, with the place of its block. Entries in
    /// memory are right.
    #[cold]
    pub(crate) fn damaged(&self, error: DecodeError) -> Error {
        let cursor = match self {
            Source::Run { cursor, .. } => Some(cursor),
            Source::Level(level) => level.current(),
            Source::Own(OwnCursor::File(cursor)) => Some(cursor.in_file()),
            Source::Own(OwnCursor::Files(cursor)) => cursor.current().map(SpilledCursor::in_file),
            Source::Memtable(_) | Source::Own(OwnCursor::Memory(_)) => None,
        };
        let Some(cursor) = cursor else { unreachable!("only tables are damaged: {error}") };
        cursor.located(error)
    }
}

macro_rules! each_own {
    ($own:expr, $cursor:ident => $call:expr) => {
        match $own {
            OwnCursor::Memory($cursor) => $call,
            OwnCursor::File($cursor) => $call,
            OwnCursor::Files($cursor) => $call,
        }
    };
}

impl Cursor for OwnCursor {
    fn seek_first(&mut self) -> Result<()> {
        each_own!(self, cursor => cursor.seek_first())
    }

    fn seek_last(&mut self) -> Result<()> {
        each_own!(self, cursor => cursor.seek_last())
    }

    fn seek(&mut self, key: &[u8]) -> Result<()> {
        each_own!(self, cursor => cursor.seek(key))
    }

    fn seek_for_prev(&mut self, key: &[u8]) -> Result<()> {
        each_own!(self, cursor => cursor.seek_for_prev(key))
    }

    fn next(&mut self) -> Result<()> {
        each_own!(self, cursor => cursor.next())
    }

    fn prev_key(&mut self) -> Result<()> {
        each_own!(self, cursor => cursor.prev_key())
    }

    fn entry(&self) -> Option<Entry<'_>> {
        each_own!(self, cursor => cursor.entry())
    }

    fn key(&self) -> Option<&[u8]> {
        each_own!(self, cursor => cursor.key())
    }
}

// Calls on the write set, out of the way of the others: a step makes several, and most scans have
// no write set.

#[cold]
#[inline(never)]
fn own_entry(cursor: &OwnCursor) -> Option<Entry<'_>> {
    cursor.entry()
}

#[cold]
#[inline(never)]
fn own_key(cursor: &OwnCursor) -> Option<&[u8]> {
    cursor.key()
}

#[cold]
#[inline(never)]
fn own_next(cursor: &mut OwnCursor) -> Result<()> {
    cursor.next()
}

#[cold]
#[inline(never)]
fn pinned_own(cursor: &OwnCursor) -> Option<(&[u8], Value)> {
    let file = match cursor {
        OwnCursor::Memory(cursor) => return pinned_in_memory(cursor),
        OwnCursor::File(cursor) => &**cursor,
        OwnCursor::Files(cursor) => cursor.current()?,
    };
    let value = file.value_pin().map(Value::in_block)?;
    Some((file.key()?, value))
}

fn pinned_in_memory(cursor: &WriteSetCursor) -> Option<(&[u8], Value)> {
    let entry = cursor.entry()?;
    let value = match cursor.value_in_chunk() {
        Some((chunk, at)) => Value::in_chunk(chunk, at, entry.value.len()),
        None => Value::default(),
    };
    Some((entry.key, value))
}

/// The slices of a level, opened one at a time.
pub(crate) struct LevelSlices {
    level: Arc<Level>,
    tables: Arc<TableContext>,
    fill_cache: bool,
}

impl SliceProvider for LevelSlices {
    type Cursor = TableCursor;

    fn count(&self) -> usize {
        self.level.len()
    }

    fn smallest(&self, index: usize) -> &[u8] {
        &self.level[index].meta.smallest
    }

    fn largest(&self, index: usize) -> &[u8] {
        &self.level[index].meta.largest
    }

    fn lower_bound(&self, key: &[u8]) -> usize {
        self.level.lower_bound(key)
    }

    fn damaged(cursor: &TableCursor) -> Error {
        cursor.out_of_bounds()
    }

    fn open(&self, index: usize) -> Result<TableCursor> {
        Ok(self.level[index].table(&self.tables)?.cursor(self.fill_cache))
    }

    fn may_hold(&self, index: usize, _key: &[u8], hash: u64) -> Result<bool> {
        Ok(self.level[index].table(&self.tables)?.may_contain(hash))
    }
}

/// Files of a large commit that lie apart, by ascending keys. Their tables are open.
pub(crate) struct LayerFiles {
    files: Vec<SpilledPart>,
    fill_cache: bool,
    is_for_job: bool,
}

impl LayerFiles {
    /// For a job, which has charged what it reads.
    pub(crate) fn for_job(files: Vec<SpilledPart>) -> LayerFiles {
        LayerFiles { files, fill_cache: false, is_for_job: true }
    }
}

impl SliceProvider for LayerFiles {
    type Cursor = SpilledCursor;

    fn count(&self) -> usize {
        self.files.len()
    }

    fn smallest(&self, index: usize) -> &[u8] {
        &self.files[index].meta().smallest
    }

    fn largest(&self, index: usize) -> &[u8] {
        &self.files[index].meta().largest
    }

    fn damaged(cursor: &SpilledCursor) -> Error {
        cursor.in_file().out_of_bounds()
    }

    fn open(&self, index: usize) -> Result<SpilledCursor> {
        debug_assert!(!self.is_for_job || !self.fill_cache, "a job reads past the cache");
        let file = &self.files[index];
        Ok(if self.is_for_job { file.job_cursor() } else { file.cursor(self.fill_cache) })
    }
}

macro_rules! each {
    ($self:ident, $cursor:ident => $call:expr) => {
        each!($self, $cursor => $call, $call)
    };
    ($self:ident, $cursor:ident => $call:expr, $own:expr) => {
        match $self {
            Source::Memtable($cursor) => $call,
            Source::Run { cursor: $cursor, .. } => $call,
            Source::Level($cursor) => $call,
            Source::Own($cursor) => $own,
        }
    };
}

impl Cursor for Source {
    fn seek_first(&mut self) -> Result<()> {
        each!(self, cursor => cursor.seek_first())
    }

    fn seek_last(&mut self) -> Result<()> {
        each!(self, cursor => cursor.seek_last())
    }

    fn seek(&mut self, key: &[u8]) -> Result<()> {
        each!(self, cursor => cursor.seek(key))
    }

    fn seek_for_prev(&mut self, key: &[u8]) -> Result<()> {
        each!(self, cursor => cursor.seek_for_prev(key))
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        each!(self, cursor => Cursor::next(cursor), own_next(cursor))
    }

    fn next_below(&mut self, point: Lsn) -> Result<()> {
        each!(self, cursor => cursor.next_below(point), own_next(cursor))
    }

    fn prev_key(&mut self) -> Result<()> {
        each!(self, cursor => cursor.prev_key())
    }

    #[inline(always)]
    fn entry(&self) -> Option<Entry<'_>> {
        each!(self, cursor => cursor.entry(), own_entry(cursor))
    }

    #[inline(always)]
    fn key(&self) -> Option<&[u8]> {
        each!(self, cursor => cursor.key(), own_key(cursor))
    }

    #[inline]
    fn next_key(&mut self, scratch: &mut Vec<u8>) -> Result<()> {
        each!(self, cursor => Cursor::next_key(cursor, scratch), own_next(cursor))
    }

    fn may_hold(&self, key: &[u8], hash: u64) -> Result<bool> {
        match self {
            Source::Memtable(cursor) => {
                let filter = cursor.memtable().filter();
                Ok(filter.is_none_or(|filter| filter.may_hold(hash)))
            }
            Source::Own(_) => Ok(true),
            Source::Run { cursor, .. } => Ok(cursor.table().may_contain(hash)),
            Source::Level(cursor) => cursor.may_hold(key, hash),
        }
    }
}
