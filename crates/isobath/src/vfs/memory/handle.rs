//! Open files of a [`MemoryFs`](super::MemoryFs).

use super::fault::FileOp;
use super::file::{File, slice};
use super::tree::DirId;
use super::{Directory, Disk, Error, FileAccess, FileLock, ReadFile, Result, SegmentFile};
use crate::host::sync::{Mutex, Rank};
use crate::vfs::appender::Growing;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(super) struct Reader {
    disk: Arc<Disk>,
    file: Arc<File>,
    /// If it is mapped: the bytes at the time it was opened.
    mapped: Option<Arc<Vec<u8>>>,
    len: u64,
    path: PathBuf,
}

impl Reader {
    pub(super) fn new(disk: Arc<Disk>, file: Arc<File>, path: &Path, mode: FileAccess) -> Self {
        let mapped = (mode == FileAccess::Mapped).then(|| file.contents());
        let len = mapped.as_ref().map_or_else(|| file.len(), |bytes| bytes.len() as u64);
        Reader { disk, file, mapped, len, path: path.to_owned() }
    }

    fn try_read(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let struck = self.disk.faults.strike_bytes(FileOp::Read, &self.path, offset, buf.len());
        let len = struck.as_ref().map_or_else(|strike| strike.done_len, |()| buf.len());
        let buf = &mut buf[..len];
        match &self.mapped {
            Some(bytes) => buf.copy_from_slice(slice(bytes, offset, buf.len())?),
            None => self.file.read(offset, buf)?,
        }
        struck.map_err(|strike| strike.error)
    }
}

impl ReadFile for Reader {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.try_read(offset, buf).map_err(|e| Error::io("read", &self.path, e))
    }

    fn is_mapped(&self) -> bool {
        self.mapped.is_some()
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn read_ahead(&self, _offset: u64, _len: u64) {}

    fn path(&self) -> &Path {
        &self.path
    }
}

/// The storage under an appender.
pub(super) struct Tail {
    disk: Arc<Disk>,
    file: Arc<File>,
    path: PathBuf,
}

impl Tail {
    pub(super) fn new(disk: Arc<Disk>, file: Arc<File>, path: &Path) -> Self {
        Tail { disk, file, path: path.to_owned() }
    }
}

impl Growing for Tail {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let struck = self.disk.faults.strike_bytes(FileOp::Write, &self.path, offset, bytes.len());
        let len = struck.as_ref().map_or_else(|strike| strike.done_len, |()| bytes.len());
        self.file.write(offset as usize, &bytes[..len], &self.disk.steps)?;
        struck.map_err(|strike| strike.error)
    }

    fn sync(&self) -> io::Result<()> {
        if let Err(e) = self.disk.faults.strike(FileOp::Sync, &self.path) {
            self.file.lose_dirt(0..u64::MAX);
            return Err(e);
        }
        self.file.sync();
        Ok(())
    }

    fn start_write_back(&self, _offset: u64, _len: u64) {}
}

pub(super) struct Segment {
    disk: Arc<Disk>,
    file: Arc<File>,
    len: u64,
    name: Mutex<PathBuf>,
}

impl Segment {
    pub(super) fn new(disk: Arc<Disk>, file: Arc<File>, path: &Path) -> Self {
        let len = file.len();
        Segment { disk, file, len, name: Mutex::new(Rank::SegmentName, path.to_owned()) }
    }

    fn io(&self, action: &'static str, e: io::Error) -> Error {
        Error::io(action, &self.name.lock(), e)
    }

    fn strike(&self, op: FileOp) -> io::Result<()> {
        self.disk.faults.strike(op, &self.name.lock())
    }

    fn try_copy_in(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let name = self.name.lock();
        let struck = self.disk.faults.strike_bytes(FileOp::CopyIn, &name, offset, bytes.len());
        drop(name);
        let len = struck.as_ref().map_or_else(|strike| strike.done_len, |()| bytes.len());
        self.file.write(offset as usize, &bytes[..len], &self.disk.steps)?;
        struck.map_err(|strike| strike.error)
    }

    fn try_read(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let name = self.name.lock();
        let struck = self.disk.faults.strike_bytes(FileOp::Read, &name, offset, buf.len());
        drop(name);
        let len = struck.as_ref().map_or_else(|strike| strike.done_len, |()| buf.len());
        self.file.read(offset, &mut buf[..len])?;
        struck.map_err(|strike| strike.error)
    }

    fn try_sync_range(&self, offset: u64, len: u64) -> io::Result<()> {
        let range = offset..offset.saturating_add(len);
        if let Err(e) = self.strike(FileOp::SyncRange) {
            self.file.lose_dirt(range);
            return Err(e);
        }
        self.file.sync_range(range);
        Ok(())
    }
}

impl SegmentFile for Segment {
    unsafe fn copy_in(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        if offset.checked_add(bytes.len() as u64).is_none_or(|end| end > self.len) {
            return Err(self.io("write past the end of", ErrorKind::InvalidInput.into()));
        }
        self.try_copy_in(offset, bytes).map_err(|e| self.io("write to", e))
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.try_read(offset, buf).map_err(|e| self.io("read", e))
    }

    fn sync_range(&self, offset: u64, len: u64) -> Result<()> {
        self.try_sync_range(offset, len).map_err(|e| self.io("sync", e))
    }

    fn write_back(&self, _offset: u64, _len: u64) {}

    fn prefault(&self, _offset: u64, _len: u64) {}

    fn len(&self) -> u64 {
        self.len
    }

    fn path(&self) -> PathBuf {
        self.name.lock().clone()
    }

    fn renamed(&self, path: &Path) {
        *self.name.lock() = path.to_owned();
    }
}

pub(super) struct OpenDirectory {
    disk: Arc<Disk>,
    id: DirId,
    path: PathBuf,
}

impl OpenDirectory {
    pub(super) fn new(disk: Arc<Disk>, id: DirId, path: &Path) -> Self {
        OpenDirectory { disk, id, path: path.to_owned() }
    }
}

impl Directory for OpenDirectory {
    fn sync(&self) -> Result<()> {
        if let Err(e) = self.disk.faults.strike(FileOp::SyncDir, &self.path) {
            self.disk.tree.lock().lose_dirt(self.id);
            return Err(Error::io("sync the directory", &self.path, e));
        }
        self.disk.tree.lock().sync(self.id);
        Ok(())
    }
}

pub(super) struct HeldLock(Arc<File>);

impl HeldLock {
    /// The lock, if it is free.
    pub(super) fn take(file: Arc<File>) -> Option<Self> {
        file.try_lock().then(|| HeldLock(file))
    }
}

impl FileLock for HeldLock {}

impl Drop for HeldLock {
    fn drop(&mut self) {
        self.0.unlock();
    }
}
