//! Loads the blocks of a cursor: through the cache, or past it into one buffer.

use super::BlockHandle;
use super::block::Block;
use super::block_file::BlockFile;
use super::frame::{check_within, decode_frame};
use super::index::parse_index;
use super::read_ahead::{Direction, ReadAhead};
use super::reader::{Place, Table, Way};
use super::walk::IndexWalk;
use crate::error::{MemoryClass, ReadError, Result};
use crate::memory::{Charge, Room};
use crate::table::cache::BlockRef;
use crate::vfs::ReadFile;
use std::ops::Range;

/// The read-ahead window of a compaction. A compaction walks whole slices, so it may read far ahead
/// from the start.
const COMPACTION_WINDOW_LEN: u64 = 1 << 20;
/// Longer blocks are charged by themselves, also to a job.
const LONG_BLOCK: u64 = 64 << 10;
/// What a scan of a reader reads ahead at once, at most: it keeps that as long as it stands there.
pub(crate) const READER_CHUNK_LEN: u64 = 32 << 10;

pub(super) struct Loader {
    fill_cache: bool,
    /// True if a job has charged what is read at once.
    is_charged: bool,
    /// For a cursor that fills the cache.
    ahead: ReadAhead,
    /// Blocks that a compaction reached by stepping forward since the last seek.
    sequential: u32,
    /// The offset up to which a compaction has told the file to read.
    ahead_end: u64,
    chunk: Vec<u8>,
    chunk_offset: u64,
    /// For the chunk, unless a job has charged it.
    charge: Option<Charge>,
    /// For a long block that a job holds.
    long: Option<Room>,
}

impl Loader {
    /// For a job that reads past the cache and has charged what it reads at once.
    pub(super) fn of_job() -> Loader {
        Loader { is_charged: true, ..Loader::new(false) }
    }

    pub(super) fn new(fill_cache: bool) -> Loader {
        Loader {
            fill_cache,
            is_charged: false,
            charge: None,
            long: None,
            ahead: ReadAhead::new(),
            sequential: 0,
            ahead_end: 0,
            chunk: Vec::new(),
            chunk_offset: 0,
        }
    }

    /// The next load is for the block after the last one, or before it.
    pub(super) fn note_step(&mut self, direction: Direction) {
        // A piece that is read ahead begins with the block that is wanted.
        self.sequential = match direction {
            Direction::Forward => self.sequential.saturating_add(1),
            Direction::Backward => 0,
        };
        self.ahead.step(direction);
    }

    /// The next load may be for any block.
    pub(super) fn note_seek(&mut self, table: &Table, direction: Direction) {
        self.sequential = 0;
        self.ahead_end = 0;
        let passed = self.ahead.seek(direction);
        if passed > 0 {
            table.usual_scan.note(passed);
        }
    }

    /// The block at which `walk` stands. `before` is the block that the cursor held. Its buffer is
    /// reused if it has no other user.
    pub(super) fn load(
        &mut self,
        table: &Table,
        walk: &IndexWalk,
        before: Option<BlockRef>,
    ) -> Result<Option<BlockRef>, ReadError> {
        if !walk.is_on() {
            return Ok(None);
        }
        if let Way::Data(block) = &table.way {
            return Ok(Some(block.clone()));
        }
        let place = walk.place(table)?;
        if !self.fill_cache {
            return Ok(Some(self.load_private(table, place.at, before)?));
        }
        drop(before);
        self.ahead.pass(place.at);
        if let Some(block) = table.cached(place) {
            return Ok(Some(block));
        }
        Ok(Some(self.load_into_cache(table, place)?))
    }

    /// Reads a block that is not cached, alone or with others that the scan will come to.
    #[cold]
    fn load_into_cache(&mut self, table: &Table, place: Place) -> Result<BlockRef> {
        let handle = place.at;
        let data = table.base..table.data_end();
        let window = self.ahead.wanted(handle, &table.usual_scan, data);
        let chunk = self.ahead.chunk(handle, READER_CHUNK_LEN);
        let is_read = has_block(&self.chunk, self.chunk_offset, handle);
        if window.is_none() && chunk.is_none() && !is_read {
            return table.load(place, Block::parse);
        }
        let file = table.context.files.get(table.file)?;
        if let Some(window) = window
            && (file.is_mapped() || window.end - window.start > READER_CHUNK_LEN)
        {
            let len = window.end.min(file.len()).saturating_sub(window.start);
            if len > 0 {
                file.read_ahead(window.start, len);
            }
        }
        let Some(chunk) = chunk.or_else(|| is_read.then_some(0..0)).filter(|_| !file.is_mapped())
        else {
            return table.load(place, Block::parse);
        };
        let mut bytes = Vec::new();
        if self.read_chunked(table, &file, handle, &mut bytes, chunk).is_err() {
            // What lies behind the block may be unreadable, and not be asked for.
            return table.load(place, Block::parse);
        }
        let block = Block::parse(bytes).map_err(|error| table.located(error, handle))?;
        match table.keep(place, block) {
            Err(_) if self.let_chunk_go() => table.load(place, Block::parse),
            kept => kept,
        }
    }

    /// Gives back the memory of what was read ahead. False if there was none.
    #[cold]
    fn let_chunk_go(&mut self) -> bool {
        debug_assert!(!self.is_charged, "a job has charged its chunk");
        self.chunk = Vec::new();
        self.charge.take().is_some()
    }

    pub(super) fn load_index(&self, table: &Table, place: Place) -> Result<BlockRef> {
        match self.fill_cache {
            true => table.index_block(place),
            false => table.parse_at(place.at, parse_index).map(BlockRef::alone),
        }
    }

    fn load_private(
        &mut self,
        table: &Table,
        handle: BlockHandle,
        before: Option<BlockRef>,
    ) -> Result<BlockRef> {
        let mut slot = before.unwrap_or_default();
        if slot.get_mut().is_none() {
            slot = BlockRef::default();
        }
        let block = slot.get_mut().expect("no one else holds it");
        let mut bytes = std::mem::take(block).into_bytes();
        let is_long = |len: u64| table.context.is_below() && len > LONG_BLOCK;
        if is_long(bytes.capacity() as u64) {
            bytes = Vec::new();
        }
        // Only a job has charged a block that is not long, with all that it reads. A reader may
        // hand out values that keep the block.
        self.long = None;
        debug_assert!(!self.fill_cache, "what the cache may keep has no buffer to reuse");
        let file = table.context.files.get(table.file)?;
        if self.sequential == 0 || is_long(u64::from(handle.len)) {
            table.read(handle, &mut bytes)?;
        } else if file.is_mapped() {
            self.read_ahead(table, &*file, handle);
            table.read(handle, &mut bytes)?;
        } else {
            let room = handle.offset..handle.offset.saturating_add(table.context.read_len());
            self.read_chunked(table, &file, handle, &mut bytes, room)?;
        }
        let parsed = Block::parse(bytes).map_err(|error| table.located(error, handle))?;
        let len = parsed.charge() as u64;
        if !self.is_charged {
            let charge = || table.context.charge(MemoryClass::Blocks, parsed.charged_bytes());
            let charged = match charge() {
                Err(_) if self.let_chunk_go() => charge()?,
                charged => charged?,
            };
            *block = parsed.charged(charged);
            return Ok(slot);
        }
        if is_long(len) {
            self.long = table.context.charge_long_block(len)?;
        }
        *block = parsed;
        Ok(slot)
    }

    /// Takes a block from the current chunk, or reads the next chunk for it: `wanted`, as far as
    /// the slice's data goes.
    fn read_chunked(
        &mut self,
        table: &Table,
        file: &BlockFile,
        handle: BlockHandle,
        bytes: &mut Vec<u8>,
        wanted: Range<u64>,
    ) -> Result<()> {
        check_within(&**file, handle)?;
        if !has_block(&self.chunk, self.chunk_offset, handle) {
            let own_end = handle.offset + u64::from(handle.len);
            let end = wanted.end.min(table.data_end()).min(file.len()).max(own_end);
            let start = wanted.start.min(handle.offset);
            // Empty the chunk first, so that after a failed read its content is not taken for that
            // of the file.
            self.chunk.clear();
            self.chunk_offset = start;
            let mut chunk = std::mem::take(&mut self.chunk);
            if !self.is_charged && end - start > chunk.capacity() as u64 {
                chunk = Vec::new();
                self.charge = None;
                let Ok(charge) = table.context.charge(MemoryClass::Blocks, end - start) else {
                    // There is no memory to read ahead.
                    return table.read(handle, bytes);
                };
                self.charge = charge;
                chunk.reserve_exact((end - start) as usize);
            }
            chunk.resize((end - start) as usize, 0);
            file.read_at(start, &mut chunk)?;
            self.chunk = chunk;
        }
        debug_assert!(
            has_block(&self.chunk, self.chunk_offset, handle),
            "a chunk is read for a block and does not hold it"
        );
        let start = (handle.offset - self.chunk_offset) as usize;
        let stored = &self.chunk[start..start + handle.len as usize];
        decode_frame(stored, file.mark(handle.offset), &table.context.decompressor, bytes)
            .map_err(|error| table.located(error, handle))
    }

    /// Keeps between half a window and a whole window of the file read ahead, for a compaction.
    fn read_ahead(&mut self, table: &Table, file: &dyn ReadFile, handle: BlockHandle) {
        let end = handle.offset.saturating_add(u64::from(handle.len));
        if end.saturating_add(COMPACTION_WINDOW_LEN / 2) <= self.ahead_end {
            return;
        }
        let start = end.max(self.ahead_end);
        let window_end = end.saturating_add(COMPACTION_WINDOW_LEN).min(table.data_end());
        let len = window_end.saturating_sub(start);
        if len > 0 {
            file.read_ahead(start, len);
            self.ahead_end = start + len;
        }
    }
}

/// True if a chunk of the file holds the block.
fn has_block(chunk: &[u8], chunk_offset: u64, block: BlockHandle) -> bool {
    let end = block.offset.saturating_add(u64::from(block.len));
    chunk_offset <= block.offset && end <= chunk_offset + chunk.len() as u64
}
