//! The end of a table file while it is written. It collects blocks, and appends them to the file in
//! few large pieces.

use super::BlockHandle;
use super::codec::Codec;
use super::frame::{close_frame, put_frame};
use crate::env::{Plant, planted};
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

fn handle_len(len: u64) -> Result<u32> {
    let too_long = || Error::invalid_argument("a block of a table would be longer than 4 GiB");
    u32::try_from(len).map_err(|_| too_long())
}

impl Output {
    pub(crate) fn new(file: Box<dyn WriteFile>) -> Output {
        let buffer = Vec::with_capacity(BUFFER_LEN + BUFFER_LEN / 8);
        Output { file, buffer, written: 0, written_back: 0 }
    }

    /// The offset of the next byte.
    #[inline]
    pub(crate) fn offset(&self) -> u64 {
        self.written + self.buffer.len() as u64
    }

    /// Appends a stored block.
    pub(crate) fn put_block(&mut self, codec: Codec, payload: &[u8]) -> Result<BlockHandle> {
        let offset = self.offset();
        put_frame(&mut self.buffer, codec, payload, offset);
        let len = handle_len(self.offset() - offset)?;
        self.flush_if_full()?;
        Ok(BlockHandle { offset, len })
    }

    /// Appends a stored block that is not compressed, without a copy of it if it is long.
    pub(crate) fn put_long_block(&mut self, mut payload: Vec<u8>) -> Result<BlockHandle> {
        if payload.len() < BUFFER_LEN {
            return self.put_block(Codec::None, &payload);
        }
        self.flush()?;
        let offset = self.offset();
        close_frame(&mut payload, 0, Codec::None, offset);
        let len = handle_len(payload.len() as u64)?;
        self.file.append(&payload)?;
        self.written += u64::from(len);
        Ok(BlockHandle { offset, len })
    }

    /// Appends bytes that are not a block: header and footer.
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
        debug_assert_eq!(self.written, self.file.len(), "handles would point elsewhere");
        self.buffer.clear();
        self.buffer.shrink_to(BUFFER_LEN + BUFFER_LEN / 8);
        Ok(())
    }

    /// Writes the remaining bytes and syncs the file, so that its content survives power loss.
    /// Returns the file's length.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::sync::Mutex;
    use std::path::Path;
    use std::sync::Arc;

    /// Records each call. The call with this number fails.
    struct Recorder {
        calls: Arc<Mutex<Vec<(&'static str, usize)>>>,
        fails: usize,
    }

    impl Recorder {
        fn call(&self, name: &'static str, len: usize) -> Result<()> {
            let mut calls = self.calls.lock();
            calls.push((name, len));
            if calls.len() - 1 == self.fails { Err(Error::closed()) } else { Ok(()) }
        }
    }

    impl WriteFile for Recorder {
        fn append(&mut self, bytes: &[u8]) -> Result<()> {
            self.call("append", bytes.len())
        }
        fn flush(&mut self) -> Result<()> {
            self.call("flush", 0)
        }
        fn sync(&mut self) -> Result<()> {
            self.call("sync", 0)
        }
        fn write_back(&mut self) {
            self.calls.lock().push(("write back", 0));
        }
        fn len(&self) -> u64 {
            let calls = self.calls.lock();
            calls.iter().filter(|(name, _)| *name == "append").map(|(_, len)| *len as u64).sum()
        }
        fn path(&self) -> &Path {
            Path::new("a table")
        }
    }

    fn write_to(mut out: Output) -> Result<u64> {
        out.put_raw(&[1; 128])?;
        let mut end = 128;
        // First exactly the length of a buffer, then smaller blocks.
        for len in [BUFFER_LEN - 128 - 9].into_iter().chain([100_000; 24]) {
            let handle = out.put_block(Codec::None, &vec![7; len])?;
            assert_eq!((handle.offset, handle.len as usize), (end, len + 9));
            end = out.offset();
        }
        out.put_raw(&[2; 64])?;
        out.finish()
    }

    fn write(fails: usize) -> (Result<u64>, Vec<(&'static str, usize)>) {
        let calls = Arc::default();
        let file = Box::new(Recorder { calls: Arc::clone(&calls), fails });
        let written = write_to(Output::new(file));
        (written, std::mem::take(&mut *calls.lock()))
    }

    #[test]
    fn bytes_go_out_in_long_pieces_and_are_written_back_by_the_mebibyte() {
        let (written, calls) = write(usize::MAX);
        let three = 3 * 100_009;
        let back = [("flush", 0), ("write back", 0)];
        let expected = [
            &[("append", BUFFER_LEN), ("append", three), ("append", three), ("append", three)][..],
            &back,
            &[("append", three); 4],
            &back,
            &[("append", three), ("append", 64), ("sync", 0)],
        ]
        .concat();
        assert_eq!(calls, expected);
        assert_eq!(written.unwrap(), (BUFFER_LEN + 8 * three + 64) as u64);
    }

    #[test]
    fn a_call_that_fails_is_the_last() {
        let all = write(usize::MAX).1;
        for fails in (0..all.len()).filter(|at| all[*at].0 != "write back") {
            let (written, calls) = write(fails);
            assert!(written.as_ref().is_err_and(Error::is_closed), "{fails}");
            assert_eq!(calls, all[..=fails]);
        }
    }
}
