//! The end of a table file while it is written. It collects blocks, and appends them to the file in
//! few large pieces.

use super::BlockHandle;
use super::codec::Codec;
use super::frame::{TRAILER_LEN, checksum_of, put_frame, put_trailer};
use crate::env::{Plant, planted};
use crate::error::{Error, Result};
use crate::format::{FileHeader, Salt};
use crate::vfs::WriteFile;

const BUFFER_LEN: usize = 256 << 10;
const WRITE_BACK_LEN: u64 = 1 << 20;

pub(crate) struct Output {
    file: Box<dyn WriteFile>,
    salt: Salt,
    buffer: Vec<u8>,
    written: u64,
    written_back: u64,
}

fn handle_len(len: u64) -> Result<u32> {
    let too_long = || Error::invalid_argument("a block of a table would be longer than 4 GiB");
    u32::try_from(len).map_err(|_| too_long())
}

impl Output {
    /// Begins a file with its header.
    pub(crate) fn begin(file: Box<dyn WriteFile>, header: &FileHeader) -> Result<Output> {
        let mut out = Output::new(file, header.salt);
        out.put_raw(&header.encode())?;
        Ok(out)
    }

    pub(super) fn new(file: Box<dyn WriteFile>, salt: Salt) -> Output {
        let buffer = Vec::with_capacity(BUFFER_LEN + BUFFER_LEN / 8);
        Output { file, salt, buffer, written: 0, written_back: 0 }
    }

    /// The checksum of a block that would be put next.
    pub(crate) fn checksum_of(&self, codec: Codec, payload: &[u8]) -> u64 {
        checksum_of(codec, payload, self.salt.mark(self.offset()))
    }

    /// The offset of the next byte.
    #[inline]
    pub(crate) fn offset(&self) -> u64 {
        self.written + self.buffer.len() as u64
    }

    /// Appends a stored block. A long one is not copied.
    pub(crate) fn put_block(&mut self, codec: Codec, payload: &[u8]) -> Result<BlockHandle> {
        if payload.len() >= BUFFER_LEN {
            return self.put_long_block(codec, payload);
        }
        let offset = self.offset();
        put_frame(&mut self.buffer, codec, payload, self.salt.mark(offset));
        let len = handle_len(self.offset() - offset)?;
        self.flush_if_full()?;
        Ok(BlockHandle { offset, len })
    }

    fn put_long_block(&mut self, codec: Codec, payload: &[u8]) -> Result<BlockHandle> {
        self.flush()?;
        let offset = self.offset();
        let len = handle_len(payload.len() as u64 + TRAILER_LEN as u64)?;
        self.file.append(payload)?;
        self.written += payload.len() as u64;
        put_trailer(&mut self.buffer, codec, payload, self.salt.mark(offset));
        self.write_back_if_due()?;
        Ok(BlockHandle { offset, len })
    }

    /// Appends bytes that are not a block: header, footer and trailer.
    pub(crate) fn put_raw(&mut self, bytes: &[u8]) -> Result<()> {
        self.buffer.extend_from_slice(bytes);
        self.flush_if_full()
    }

    fn flush_if_full(&mut self) -> Result<()> {
        if self.buffer.len() < BUFFER_LEN {
            return Ok(());
        }
        self.flush()?;
        self.write_back_if_due()
    }

    fn write_back_if_due(&mut self) -> Result<()> {
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
    pub(crate) fn finish(self) -> Result<u64> {
        self.finish_unless(planted(Plant::TableNotSynced))
    }

    /// The same, without the sync if a bug is planted.
    pub(crate) fn finish_unless(mut self, is_planted: bool) -> Result<u64> {
        self.flush()?;
        if is_planted {
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
    use crate::table::BlockFile;
    use crate::table::Decompressor;
    use crate::table::frame::read_block;
    use crate::vfs::{FileAccess, FileSystem, MemoryFs};
    use std::path::Path;
    use std::sync::Arc;

    /// Records each call. The call with this number fails.
    struct Recorder {
        calls: Arc<Mutex<Vec<(&'static str, usize)>>>,
        /// Where what was appended lay in memory.
        places: Arc<Mutex<Vec<usize>>>,
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
            self.places.lock().push(bytes.as_ptr() as usize);
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
        let file = Box::new(Recorder { calls: Arc::clone(&calls), places: Arc::default(), fails });
        let written = write_to(Output::new(file, Salt::NONE));
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

    #[test]
    fn a_long_block_is_written_from_where_it_lies() {
        let (calls, places): (Arc<Mutex<Vec<_>>>, Arc<Mutex<Vec<_>>>) = Default::default();
        let file = Recorder { calls: calls.clone(), places: places.clone(), fails: usize::MAX };
        let mut out = Output::new(Box::new(file), Salt::NONE);
        out.put_raw(&[1; 128]).unwrap();
        let long = vec![9; BUFFER_LEN];
        let handle = out.put_block(Codec::None, &long).unwrap();
        assert_eq!((handle.offset, handle.len as usize), (128, BUFFER_LEN + TRAILER_LEN));
        let next = out.put_block(Codec::None, b"next").unwrap();
        assert_eq!(next.offset, handle.offset + u64::from(handle.len));
        assert!(places.lock().contains(&(long.as_ptr() as usize)));
        out.finish().unwrap();
        assert_eq!(calls.lock()[..2], [("append", 128), ("append", BUFFER_LEN)]);
        let fs = MemoryFs::new();
        let path = Path::new("/long");
        let mut out = Output::new(fs.create(path).unwrap(), Salt::NONE);
        out.put_raw(&[1; 128]).unwrap();
        let handle = out.put_block(Codec::None, &long).unwrap();
        out.finish().unwrap();
        let file = fs.open_read(path, FileAccess::Positional).unwrap();
        let (file, mut read) = (BlockFile::new(file, Salt::NONE), Vec::new());
        read_block(&file, handle, &Decompressor::default(), &mut read).unwrap();
        assert_eq!(read, long);
    }
}
