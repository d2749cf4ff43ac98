//! Loads the blocks of a cursor: through the cache, or past it into one buffer. Reads ahead once
//! the cursor walks forward.

use super::BlockHandle;
use super::block::Block;
use super::frame::{check_within, decode_frame};
use super::index::parse_index;
use super::reader::{Table, Way};
use super::walk::IndexWalk;
use crate::error::{ReadError, Result};
use crate::vfs::ReadFile;
use std::sync::Arc;

/// The number of consecutive blocks loaded through the cache before read-ahead begins.
const SEQUENTIAL_MIN: u32 = 2;
const WINDOW_LEN_MIN: u64 = 64 << 10;
const WINDOW_LEN_MAX: u64 = 512 << 10;
/// The read-ahead window of a compaction. A compaction walks whole slices, so it may read far ahead
/// from the start.
const COMPACTION_WINDOW_LEN: u64 = 1 << 20;
/// The bytes that a compaction reads with one system call where files are not mapped.
const CHUNK_LEN: u64 = 256 << 10;

pub(super) struct Loader {
    fill_cache: bool,
    /// Blocks reached by stepping since the last seek.
    sequential: u32,
    window_len: u64,
    /// The offset up to which the file was told to read ahead.
    ahead_end: u64,
    chunk: Vec<u8>,
    chunk_offset: u64,
}

impl Loader {
    pub(super) fn new(fill_cache: bool) -> Loader {
        Loader {
            fill_cache,
            sequential: 0,
            window_len: if fill_cache { WINDOW_LEN_MIN } else { COMPACTION_WINDOW_LEN },
            ahead_end: 0,
            chunk: Vec::new(),
            chunk_offset: 0,
        }
    }

    /// The next load is for the block after the last one.
    pub(super) fn note_sequential(&mut self) {
        self.sequential = self.sequential.saturating_add(1);
    }

    /// The next load may be for any block.
    pub(super) fn note_seek(&mut self) {
        self.sequential = 0;
        self.ahead_end = 0;
        if self.fill_cache {
            self.window_len = WINDOW_LEN_MIN;
        }
    }

    /// The block at which `walk` stands. `before` is the block that the cursor held. Its buffer is
    /// reused if it has no other user.
    pub(super) fn load(
        &mut self,
        table: &Table,
        walk: &IndexWalk,
        before: Option<Arc<Block>>,
    ) -> Result<Option<Arc<Block>>, ReadError> {
        if !walk.is_on() {
            return Ok(None);
        }
        if let Way::Data(block) = &table.way {
            return Ok(Some(block.clone()));
        }
        let handle = walk.handle(table)?;
        if !self.fill_cache {
            return Ok(Some(self.load_private(table, handle, before)?));
        }
        drop(before);
        if let Some(block) = table.cached(handle) {
            return Ok(Some(block));
        }
        if self.sequential >= SEQUENTIAL_MIN {
            let file = table.context.files.get(table.file)?;
            self.read_ahead(table, &*file, handle);
        }
        Ok(Some(table.load(handle, Block::parse)?))
    }

    pub(super) fn load_index(&self, table: &Table, handle: BlockHandle) -> Result<Arc<Block>> {
        if self.fill_cache {
            return table.index_block(handle);
        }
        let mut bytes = Vec::new();
        table.read(handle, &mut bytes)?;
        let block = parse_index(bytes).map_err(|error| table.located(error, handle))?;
        Ok(Arc::new(block))
    }

    fn load_private(
        &mut self,
        table: &Table,
        handle: BlockHandle,
        before: Option<Arc<Block>>,
    ) -> Result<Arc<Block>> {
        let mut slot = before.unwrap_or_default();
        if Arc::get_mut(&mut slot).is_none() {
            slot = Arc::default();
        }
        let block = Arc::get_mut(&mut slot).expect("no other handle to it exists");
        let mut bytes = std::mem::take(block).into_bytes();
        let file = table.context.files.get(table.file)?;
        if self.sequential == 0 {
            table.read(handle, &mut bytes)?;
        } else if file.is_mapped() {
            self.read_ahead(table, &*file, handle);
            table.read(handle, &mut bytes)?;
        } else {
            self.read_chunked(table, &*file, handle, &mut bytes)?;
        }
        *block = Block::parse(bytes).map_err(|error| table.located(error, handle))?;
        Ok(slot)
    }

    /// Takes a block from the current chunk, or reads the next chunk for it.
    fn read_chunked(
        &mut self,
        table: &Table,
        file: &dyn ReadFile,
        handle: BlockHandle,
        bytes: &mut Vec<u8>,
    ) -> Result<()> {
        let len = u64::from(handle.len);
        let has_block = |chunk: &[u8], chunk_offset: u64| {
            let chunk_end = chunk_offset + chunk.len() as u64;
            handle.offset >= chunk_offset && handle.offset + len <= chunk_end
        };
        check_within(file, handle)?;
        if !has_block(&self.chunk, self.chunk_offset) {
            let room = table.data_end().min(file.len()).saturating_sub(handle.offset);
            let chunk_len = CHUNK_LEN.min(room).max(len) as usize;
            // Empty the chunk first, so that after a failed read its content is not taken for that
            // of the file.
            self.chunk.clear();
            self.chunk_offset = handle.offset;
            let mut chunk = std::mem::take(&mut self.chunk);
            chunk.resize(chunk_len, 0);
            file.read_at(handle.offset, &mut chunk)?;
            self.chunk = chunk;
        }
        let start = (handle.offset - self.chunk_offset) as usize;
        let stored = &self.chunk[start..start + handle.len as usize];
        decode_frame(stored, handle.offset, &table.context.decompressor, bytes)
            .map_err(|error| table.located(error, handle))
    }

    /// Keeps between half a window and a whole window of the file read ahead.
    fn read_ahead(&mut self, table: &Table, file: &dyn ReadFile, handle: BlockHandle) {
        let end = handle.offset.saturating_add(u64::from(handle.len));
        if end.saturating_add(self.window_len / 2) <= self.ahead_end {
            return;
        }
        let start = end.max(self.ahead_end);
        let len = end.saturating_add(self.window_len).min(table.data_end()).saturating_sub(start);
        if len > 0 {
            file.read_ahead(start, len);
            self.ahead_end = start + len;
            self.window_len = (self.window_len * 2).min(WINDOW_LEN_MAX.max(self.window_len));
        }
    }
}
