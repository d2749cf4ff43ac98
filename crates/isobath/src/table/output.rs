//! The end of a table file that is being written: blocks go in, few large appends come out.

use super::BlockHandle;
use super::codec::Codec;
use super::frame::put_frame;
use crate::components::{Plant, planted};
use crate::error::{Error, Result};
use crate::vfs::WriteFile;

const BUFFER_LEN: usize = 256 << 10;
const WRITE_BACK_LEN: u64 = 1 << 20;

pub(crate) struct Output {
    file: Box<dyn WriteFile>,
    buffer: Vec<u8>,
    written: u64,
    written_back: u64,
}

impl Output {
    pub(crate) fn new(file: Box<dyn WriteFile>) -> Output {
        let buffer = Vec::with_capacity(BUFFER_LEN + BUFFER_LEN / 8);
        Output { file, buffer, written: 0, written_back: 0 }
    }

    /// Where the next byte will lie.
    #[inline]
    pub(crate) fn offset(&self) -> u64 {
        self.written + self.buffer.len() as u64
    }

    /// Appends a stored block.
    pub(crate) fn put_block(&mut self, codec: Codec, payload: &[u8]) -> Result<BlockHandle> {
        let offset = self.offset();
        put_frame(&mut self.buffer, codec, payload, offset);
        let len = u32::try_from(self.offset() - offset).map_err(|_| {
            Error::InvalidArgument("a block of a table would be longer than 4 GiB".to_owned())
        })?;
        self.flush_if_full()?;
        Ok(BlockHandle { offset, len })
    }

    /// Appends bytes that are no block: header and footer.
    pub(crate) fn put_raw(&mut self, bytes: &[u8]) -> Result<()> {
        self.buffer.extend_from_slice(bytes);
        self.flush_if_full()
    }

    fn flush_if_full(&mut self) -> Result<()> {
        if self.buffer.len() < BUFFER_LEN {
            return Ok(());
        }
        self.flush()?;
        if self.written - self.written_back >= WRITE_BACK_LEN {
            self.file.flush()?;
            self.file.write_back();
            self.written_back = self.written;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        self.file.append(&self.buffer)?;
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        self.buffer.shrink_to(BUFFER_LEN + BUFFER_LEN / 8);
        Ok(())
    }

    /// Writes what is left and makes the file survive power loss. Returns its length.
    pub(crate) fn finish(mut self) -> Result<u64> {
        self.flush()?;
        if planted(Plant::TableNotSynced) {
            self.file.flush()?;
        } else if planted(Plant::FailedTableSyncIgnored) {
            let _ = self.file.sync();
        } else {
            self.file.sync()?;
        }
        Ok(self.written)
    }
}
