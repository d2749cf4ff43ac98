//! A file that grows at its end, through one buffer.
//!
//! Bytes are written by position, so a failed write can be tried again: it overwrites whatever part of it had
//! gone through. `handed` counts the bytes that the kernel has, and the buffer holds those that follow.

use super::{Error, Result, WriteFile, calls};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

const BUFFER_LEN: usize = 128 << 10;

pub(super) struct Appender {
    file: File,
    path: PathBuf,
    buffer: Vec<u8>,
    /// Bytes that the kernel has.
    handed: u64,
    /// Bytes whose write-back was started.
    written_back: u64,
}

impl Appender {
    pub(super) fn create(path: &Path) -> Result<Self> {
        let file = File::create_new(path).map_err(|e| Error::io("create", path, e))?;
        let path = path.to_owned();
        Ok(Appender { file, path, buffer: Vec::new(), handed: 0, written_back: 0 })
    }

    fn hand_over(&mut self) -> io::Result<()> {
        self.file.write_all_at(&self.buffer, self.handed)?;
        self.handed += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    fn try_append(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.buffer.len() + bytes.len() <= BUFFER_LEN {
            self.buffer.extend_from_slice(bytes);
            return Ok(());
        }
        self.hand_over()?;
        if bytes.len() < BUFFER_LEN {
            self.buffer.extend_from_slice(bytes);
        } else {
            self.file.write_all_at(bytes, self.handed)?;
            self.handed += bytes.len() as u64;
        }
        Ok(())
    }
}

impl WriteFile for Appender {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.try_append(bytes).map_err(|e| Error::io("append to", &self.path, e))
    }

    fn flush(&mut self) -> Result<()> {
        self.hand_over().map_err(|e| Error::io("append to", &self.path, e))
    }

    fn sync(&mut self) -> Result<()> {
        self.flush()?;
        // fdatasync: of the metadata it covers the length, which is all that reading back needs.
        self.file.sync_data().map_err(|e| Error::io("sync", &self.path, e))
    }

    fn write_back(&mut self) {
        let len = self.handed - self.written_back;
        if len > 0 {
            calls::start_write_back(&self.file, self.written_back, len);
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

impl Drop for Appender {
    fn drop(&mut self) {
        // Whoever needs to know whether this worked calls `flush` or `sync` before.
        let _ = self.hand_over();
    }
}
