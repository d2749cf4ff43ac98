//! Walks the versions of a slice in order, in both directions.
//!
//! The cursor holds one data block and the index block that leads to it. A seek first checks
//! whether its target lies in that data block, then in that index block. Only then it starts from
//! the top.

use super::backward::PassedKeys;
use super::block::{Block, RawEntry};
use super::key_buffer::KeyBuffer;
use super::loader::Loader;
use super::read_ahead::Direction;
use super::reader::{PinnedValue, Table};
use super::rows::{RowLimits, Rows};
use super::walk::IndexWalk;
use crate::cursor::{Cursor, Entry, next_key_by_comparing};
use crate::env::{Plant, planted};
use crate::error::{DecodeError, Error, ReadError, Result};
use crate::format::{Lsn, OpKind};
use crate::table::cache::BlockRef;
use std::sync::Arc;

pub(crate) struct TableCursor {
    table: Arc<Table>,
    loader: Loader,
    walk: IndexWalk,
    /// The block at which `walk` stands, once it is loaded.
    block: Option<BlockRef>,
    is_valid: bool,
    key: KeyBuffer,
    /// A second buffer, so that a step back allocates nothing.
    spare: KeyBuffer,
    behind: PassedKeys,
    /// An ordinal in the current block. The keys of `behind` come before this entry.
    run_end: Option<u32>,
    index: u32,
    /// Entries of the blocks that were left forward.
    passed: u64,
    value_at: u32,
    /// The end of the value, where the next entry begins.
    end: u32,
    seq: Lsn,
    kind: OpKind,
}

impl TableCursor {
    pub(super) fn new(table: Arc<Table>, loader: Loader) -> TableCursor {
        TableCursor {
            loader,
            walk: IndexWalk::default(),
            block: None,
            is_valid: false,
            key: KeyBuffer::default(),
            spare: KeyBuffer::default(),
            behind: PassedKeys::default(),
            run_end: None,
            index: 0,
            passed: 0,
            value_at: 0,
            end: 0,
            seq: 0,
            kind: OpKind::Put,
            table,
        }
    }

    #[inline]
    pub(crate) fn table(&self) -> &Table {
        &self.table
    }

    /// How many entries a walk forward has passed. Only the difference of two means something,
    /// without a seek between them.
    pub(crate) fn passed(&self) -> u64 {
        self.passed + if self.is_valid { u64::from(self.index) } else { 0 }
    }

    /// The current value, which stays in memory for as long as the caller keeps it. Needs an entry.
    #[inline]
    pub(crate) fn value_pin(&self) -> Option<PinnedValue> {
        let block = self.block.as_ref().filter(|_| self.is_valid)?;
        Some(PinnedValue::new(block.clone(), self.value_at, self.end))
    }

    /// Takes the next keys of the block within the limits, as long as they are `wanted`, and stands
    /// on the last of them. The reader at the point must see the current entry. Without such a key
    /// the cursor stays. False if the block has no more entries that are wanted.
    pub(crate) fn take_rows(
        &mut self,
        rows: &mut Rows,
        limits: RowLimits,
        wanted: impl Fn(&[u8]) -> bool,
    ) -> bool {
        let Some(block) = self.block.as_ref().filter(|_| self.is_valid) else { return true };
        let from = (self.index + 1, self.end);
        let has_more = rows.decode(block, from, self.key.as_slice(), limits);
        rows.keep_while(wanted);
        let Some(last) = rows.last() else { return has_more };
        let (index, value_at, end) = last.place();
        // A forged block may say that all its kinds are known. A step tells which one is not.
        let Some(version) = block.known_version(index) else {
            rows.clear();
            return true;
        };
        self.key.set(rows.key_of(last));
        self.stand(version, index, RawEntry { shared: 0, unshared_at: end, value_at, end });
        has_more
    }

    /// Loads the block at which the walk stands, or no block past either end.
    fn load(&mut self) -> Result<bool, ReadError> {
        self.is_valid = false;
        self.run_end = None;
        let before = self.block.take();
        self.block = self.loader.load(&self.table, &self.walk, before)?;
        Ok(self.block.is_some())
    }

    /// Runs `step`. After an error the cursor has no entry, and the error names the block.
    fn guarded<T>(&mut self, step: impl FnOnce(&mut Self) -> Result<T, ReadError>) -> Result<T> {
        self.is_valid = false;
        match step(self) {
            Ok(done) => Ok(done),
            Err(error) => Err(self.fail(error)),
        }
    }

    #[cold]
    fn fail(&mut self, error: impl Into<ReadError>) -> Error {
        self.is_valid = false;
        self.block = None;
        let error = self.located(error);
        self.walk = IndexWalk::default();
        error
    }

    /// Adds the file and the offset of the current block.
    #[cold]
    pub(crate) fn located(&self, error: impl Into<ReadError>) -> Error {
        let at = self.walk.place(&self.table).map_or(self.table.root_at, |place| place.at);
        self.table.located(error, at)
    }

    /// The error for a key outside of the bounds that the slice's metadata names.
    #[cold]
    pub(crate) fn out_of_bounds(&self) -> Error {
        self.located(DecodeError::damaged("a slice has keys outside of its bounds"))
    }

    /// Stands on an entry whose key is already in `self.key`.
    #[inline(always)]
    fn stand(&mut self, version: (Lsn, OpKind), index: u32, entry: RawEntry) {
        debug_assert!(
            self.block.as_ref().is_some_and(|block| index < block.entry_count()),
            "a cursor stands on an entry of its block"
        );
        (self.seq, self.kind) = version;
        self.index = index;
        self.value_at = entry.value_at;
        self.end = entry.end;
        self.is_valid = true;
    }

    /// Stands on the first entry of the current block.
    fn stand_first(&mut self) -> Result<(), ReadError> {
        let Some(block) = self.block.as_deref() else { return Ok(()) };
        let entry = block.entry_of(0, 0)?;
        block.begin_key(&mut self.key);
        block.extend_key(entry, &mut self.key)?;
        self.stand(block.version(0)?, 0, entry);
        Ok(())
    }

    /// Moves to the next entry if it is in the current block, has the common form, and is `wanted`.
    /// Otherwise returns false and changes nothing.
    #[inline(always)]
    fn step_if(&mut self, wanted: impl FnOnce(&Self, &Block, RawEntry) -> bool) -> bool {
        let Some(block) = self.block.as_deref().filter(|_| self.is_valid) else { return false };
        let Some(entry) = block.entry_after(self.index, self.end) else { return false };
        if !wanted(self, block, entry) {
            return false;
        }
        let Some(version) = block.known_version(self.index + 1) else { return false };
        if !block.step_key(entry, &mut self.key) {
            return false;
        }
        self.stand(version, self.index + 1, entry);
        true
    }

    #[inline(never)]
    fn step_slowly(&mut self) -> Result<()> {
        let Some(block) = self.block.clone().filter(|_| self.is_valid) else { return Ok(()) };
        if block.is_last(self.index, self.end) {
            drop(block);
            return self.guarded(TableCursor::next_block);
        }
        self.guarded(|cursor| {
            let entry = block.entry_of(cursor.index + 1, cursor.end)?;
            block.extend_key(entry, &mut cursor.key)?;
            cursor.stand(block.version(cursor.index + 1)?, cursor.index + 1, entry);
            Ok(())
        })
    }

    /// Moves to the key before, if the entry before in a slotted block is its newest version.
    /// Otherwise returns false and changes nothing.
    #[inline(always)]
    fn step_back_in_slots(&mut self) -> bool {
        let Some(block) = self.block.as_deref().filter(|block| block.is_slotted()) else {
            return false;
        };
        let Some((index, entry)) = block.slot_below(self.index, self.key.as_slice()) else {
            return false;
        };
        let Some(version) = block.known_version(index) else { return false };
        debug_assert!(index < self.index, "a step back leads to an entry before");
        if !block.step_key(entry, &mut self.key) {
            return false;
        }
        self.stand(version, index, entry);
        true
    }

    /// Moves to the next key, past further versions of this key. Also handles keys stored in full:
    /// at a restart, keys are compared.
    #[inline(never)]
    fn next_key_slowly(&mut self, scratch: &mut Vec<u8>) -> Result<()> {
        let mut is_other_key = false;
        while !is_other_key {
            let stepped = self.step_if(|cursor, block, entry| {
                is_other_key = !block.has_key(entry, cursor.key.as_slice());
                true
            });
            if !stepped {
                return next_key_by_comparing(self, scratch);
            }
        }
        Ok(())
    }

    fn next_block(&mut self) -> Result<(), ReadError> {
        self.is_valid = false;
        self.passed += self.block.as_ref().map_or(0, |block| u64::from(block.entry_count()));
        self.walk.next(&self.table, &mut self.loader)?;
        self.loader.note_step(Direction::Forward);
        if self.load()? { self.stand_first() } else { Ok(()) }
    }

    /// Seeks in the current block. Goes on to the next block if all entries come before the key.
    fn seek_in_block(&mut self, key: &[u8]) -> Result<(), ReadError> {
        let Some(block) = self.block.as_deref() else { return Ok(()) };
        match block.search(key, Lsn::MAX)? {
            Some(hit) => {
                match block.is_slotted() {
                    true => block.begin_key(&mut self.key),
                    false => self.key.set(key.get(..hit.shared as usize).unwrap_or_default()),
                }
                block.extend_key(hit.entry, &mut self.key)?;
                self.stand(block.version(hit.index)?, hit.index, hit.entry);
                Ok(())
            }
            None => self.next_block(),
        }
    }

    fn seek_inner(&mut self, key: &[u8], direction: Direction) -> Result<(), ReadError> {
        if self.block.is_none() || !self.walk.is_covering(&self.table, key)? {
            self.loader.note_seek(&self.table, direction);
            self.walk.seek(&self.table, &mut self.loader, key)?;
            self.load()?;
        }
        self.seek_in_block(key)
    }

    /// Stands on the newest version of the largest key below `key`, or of the largest of all keys.
    /// The walk must stand on the block where the entries below `key` end.
    fn stand_before(&mut self, key: Option<&[u8]>) -> Result<(), ReadError> {
        self.stand_before_unchecked(key)?;
        // Forged blocks or indexes must not make the cursor loop.
        let is_descending = key.is_none_or(|key| self.key.as_slice() < key);
        if self.is_valid && !is_descending && !planted(Plant::DescentBelieved) {
            return Err(DecodeError::damaged("the keys of a slice are out of order").into());
        }
        Ok(())
    }

    /// The same, but trusts the order of keys in blocks and index.
    fn stand_before_unchecked(&mut self, key: Option<&[u8]>) -> Result<(), ReadError> {
        let mut found = std::mem::take(&mut self.key);
        while let Some(block) = self.block.clone() {
            if let Some((index, entry)) = block.search_before(key, &mut found, &mut self.behind)? {
                if index == 0 && self.walk.is_continued(&self.table, found.as_slice())? {
                    // The key's newest version stands in an earlier block.
                    drop(block);
                    self.walk.seek(&self.table, &mut self.loader, found.as_slice())?;
                    self.load()?;
                    self.seek_in_block(found.as_slice())?;
                    return Ok(());
                }
                self.key = found;
                self.run_end = Some(index);
                self.stand(block.version(index)?, index, entry);
                return Ok(());
            }
            drop(block);
            self.walk.prev(&self.table, &mut self.loader)?;
            self.loader.note_step(Direction::Backward);
            self.load()?;
        }
        self.key = found;
        Ok(())
    }
}

impl Drop for TableCursor {
    fn drop(&mut self) {
        self.loader.note_seek(&self.table, Direction::Forward);
    }
}

impl Cursor for TableCursor {
    fn seek_first(&mut self) -> Result<()> {
        self.guarded(|cursor| {
            cursor.loader.note_seek(&cursor.table, Direction::Forward);
            cursor.walk.first(&cursor.table, &mut cursor.loader)?;
            cursor.load()?;
            cursor.stand_first()
        })
    }

    fn seek_last(&mut self) -> Result<()> {
        self.guarded(|cursor| {
            cursor.loader.note_seek(&cursor.table, Direction::Backward);
            cursor.walk.last(&cursor.table, &mut cursor.loader)?;
            cursor.load()?;
            cursor.stand_before(None)
        })
    }

    fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.guarded(|cursor| cursor.seek_inner(key, Direction::Forward))
    }

    fn seek_for_prev(&mut self, key: &[u8]) -> Result<()> {
        self.guarded(|cursor| {
            cursor.seek_inner(key, Direction::Backward)?;
            if cursor.is_valid && cursor.key.as_slice() == key {
                return Ok(());
            }
            if !cursor.is_valid {
                cursor.walk.last(&cursor.table, &mut cursor.loader)?;
                cursor.load()?;
            }
            cursor.is_valid = false;
            cursor.stand_before(Some(key))
        })
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        if self.step_if(|_, _, _| true) { Ok(()) } else { self.step_slowly() }
    }

    #[inline]
    fn next_key(&mut self, scratch: &mut Vec<u8>) -> Result<()> {
        if self.step_if(|cursor, block, entry| block.changes_key(entry, cursor.key.as_slice())) {
            return Ok(());
        }
        self.next_key_slowly(scratch)
    }

    fn prev_key(&mut self) -> Result<()> {
        if !self.is_valid {
            return Ok(());
        }
        if self.step_back_in_slots() {
            return Ok(());
        }
        if self.run_end == Some(self.index)
            && let Some(block) = self.block.as_deref()
            && let Some((index, entry)) = self.behind.pop(&mut self.key)
        {
            self.run_end = Some(index);
            return match block.version(index) {
                Ok(version) => {
                    self.stand(version, index, entry);
                    Ok(())
                }
                Err(error) => Err(self.fail(error)),
            };
        }
        self.guarded(|cursor| {
            let key = std::mem::replace(&mut cursor.key, std::mem::take(&mut cursor.spare));
            let stood = cursor.stand_before(Some(key.as_slice()));
            cursor.spare = key;
            stood
        })
    }

    #[inline]
    fn entry(&self) -> Option<Entry<'_>> {
        let block = self.block.as_deref().filter(|_| self.is_valid)?;
        let value = block.bytes().get(self.value_at as usize..self.end as usize)?;
        Some(Entry { key: self.key.as_slice(), seq: self.seq, kind: self.kind, value })
    }

    #[inline]
    fn key(&self) -> Option<&[u8]> {
        if self.is_valid { Some(self.key.as_slice()) } else { None }
    }
}
