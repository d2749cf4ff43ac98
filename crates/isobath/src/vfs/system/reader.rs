//! Complete files, read at any offset: through a mapping, or by `pread`.
//!
//! Both tell the kernel that access is random. By default a fault that misses the page cache brings its neighbours
//! along, which a cold point read of one block pays for and never uses. Measured on 2000 cold reads of 4 KiB at
//! random offsets (which lie across two pages), each way of reading twice:
//!
//! | | µs a read | KiB read from the device |
//! |---|---|---|
//! | mapped, default | 255-276 | 262 |
//! | mapped, random | 135 | 7.9 |
//! | `pread` | 74-135 | 7.9 |
//!
//! The price is that a mapped walk over cold bytes without `read_ahead` is slow (53 MiB/s, by default 1550): scans
//! must say what they want, and then are as fast as the device. Faults on cached pages still map their neighbours.

use super::{Error, ReadFile, ReadMode, Result, calls};
use memmap2::{Advice, MmapOptions, MmapRaw};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(super) fn open(path: &Path, mode: ReadMode) -> Result<Arc<dyn ReadFile>> {
    let failed = |e| Error::io("open", path, e);
    let file = File::open(path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    if metadata.is_dir() {
        return Err(failed(io::ErrorKind::IsADirectory.into()));
    }
    let len = metadata.len();
    let path = path.to_owned();
    // An empty range cannot be mapped.
    if mode == ReadMode::Positional || len == 0 {
        calls::random_access(&file);
        return Ok(Arc::new(PositionalFile { file, len, path }));
    }
    let map_failed = |e| Error::io("map", &path, e);
    let map_len =
        usize::try_from(len).map_err(|_| map_failed(io::ErrorKind::FileTooLarge.into()))?;
    let map = MmapOptions::new().len(map_len).map_raw_read_only(&file).map_err(map_failed)?;
    // A hint: the mapping works without it.
    let _ = map.advise(Advice::Random);
    Ok(Arc::new(MappedFile { map, path }))
}

/// A file that is mapped whole. The descriptor is closed: the mapping keeps the file alive.
struct MappedFile {
    map: MmapRaw,
    path: PathBuf,
}

impl MappedFile {
    fn bytes(&self) -> &[u8] {
        // SAFETY: the mapping is readable, `len` bytes long, and lives as long as `self`. It is of a complete
        // file: the engine writes a table or blob once and never again, and keeps other engines out by the
        // database's lock.
        unsafe { std::slice::from_raw_parts(self.map.as_ptr(), self.map.len()) }
    }
}

impl ReadFile for MappedFile {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let wanted = usize::try_from(offset)
            .ok()
            .and_then(|start| self.bytes().get(start..start.checked_add(buf.len())?))
            .ok_or_else(|| past_the_end(&self.path))?;
        buf.copy_from_slice(wanted);
        Ok(())
    }

    fn mapped(&self) -> Option<&[u8]> {
        Some(self.bytes())
    }

    fn len(&self) -> u64 {
        self.map.len() as u64
    }

    fn read_ahead(&self, offset: u64, len: u64) {
        let Ok(start) = usize::try_from(offset) else { return };
        let Some(left) = self.map.len().checked_sub(start) else { return };
        let len = usize::try_from(len).unwrap_or(left).min(left);
        // A hint: whatever the kernel answers, the bytes can be read.
        let _ = self.map.advise_range(Advice::WillNeed, start, len);
    }

    fn path(&self) -> &Path {
        &self.path
    }
}

/// A file that is read by `pread`.
struct PositionalFile {
    file: File,
    len: u64,
    path: PathBuf,
}

impl ReadFile for PositionalFile {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        read_exact(&self.file, offset, buf).map_err(|e| Error::io("read", &self.path, e))
    }

    fn mapped(&self) -> Option<&[u8]> {
        None
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn read_ahead(&self, offset: u64, len: u64) {
        calls::will_need(&self.file, offset, len);
    }

    fn path(&self) -> &Path {
        &self.path
    }
}

/// Reads by position. Offsets come from other files, which may be damaged: the wildest of them, which the
/// system refuses as no offsets at all, lie past the end like the rest.
pub(super) fn read_exact(file: &File, offset: u64, buf: &mut [u8]) -> io::Result<()> {
    if offset.checked_add(buf.len() as u64).is_none_or(|end| end > i64::MAX as u64) {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    file.read_exact_at(buf, offset)
}

pub(super) fn past_the_end(path: &Path) -> Error {
    Error::io("read", path, io::ErrorKind::UnexpectedEof.into())
}
