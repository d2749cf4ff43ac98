//! A file that grows at its end, with one buffer before the storage that holds its bytes.
//!
//! Bytes are written by position, so a failed write can be tried again: it overwrites whatever part
//! of it had succeeded. `handed` counts the bytes that the file has; the buffer holds the bytes
//! that follow.

use super::WriteFile;
use crate::error::{Error, Result};
use std::io;
use std::path::{Path, PathBuf};

const BUFFER_LEN: usize = 128 << 10;

/// The storage of the bytes.
pub(super) trait Growing: Send {
    /// Writes all of `bytes` at `offset`. The next write overwrites what a failed write left there.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;
    /// Makes everything that was written durable.
    fn sync(&self) -> io::Result<()>;
    /// Starts writing a range back, without waiting.
    fn start_write_back(&self, offset: u64, len: u64);
}

pub(super) struct Appender<F: Growing> {
    file: F,
    path: PathBuf,
    buffer: Vec<u8>,
    /// How many bytes the file has.
    handed: u64,
    /// How many bytes have had their write-back started.
    written_back: u64,
}

impl<F: Growing> Appender<F> {
    /// An appender to `file`, which must be empty.
    pub(super) fn new(file: F, path: &Path) -> Self {
        Appender { file, path: path.to_owned(), buffer: Vec::new(), handed: 0, written_back: 0 }
    }

    fn hand_over(&mut self) -> io::Result<()> {
        if !self.buffer.is_empty() {
            self.file.write_at(self.handed, &self.buffer)?;
            self.handed += self.buffer.len() as u64;
            self.buffer.clear();
        }
        Ok(())
    }

    fn try_append(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.buffer.len() + bytes.len() > BUFFER_LEN {
            self.hand_over()?;
        }
        if bytes.len() >= BUFFER_LEN {
            self.file.write_at(self.handed, bytes)?;
            self.handed += bytes.len() as u64;
        } else {
            self.buffer.extend_from_slice(bytes);
        }
        Ok(())
    }
}

impl<F: Growing> WriteFile for Appender<F> {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.try_append(bytes).map_err(|e| Error::io("append to", &self.path, e))
    }

    fn flush(&mut self) -> Result<()> {
        self.hand_over().map_err(|e| Error::io("append to", &self.path, e))
    }

    fn sync(&mut self) -> Result<()> {
        self.flush()?;
        self.file.sync().map_err(|e| Error::io("sync", &self.path, e))
    }

    fn write_back(&mut self) {
        let len = self.handed - self.written_back;
        if len > 0 {
            self.file.start_write_back(self.written_back, len);
            self.written_back = self.handed;
        }
    }

    fn len(&self) -> u64 {
        self.handed + self.buffer.len() as u64
    }

    fn path(&self) -> &Path {
        &self.path
    }
}

impl<F: Growing> Drop for Appender<F> {
    fn drop(&mut self) {
        // A caller that needs to know whether this succeeds calls `flush` or `sync` first.
        let _ = self.hand_over();
    }
}
