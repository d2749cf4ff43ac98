//! Complete files, read at any offset: through a mapping or by `pread`.
//!
//! Both announce random access to the kernel. By default a fault that misses the page cache brings
//! in neighbouring pages. A cold point read of one block pays for them and never uses them.
//! Measured on 2000 cold reads of 4 KiB at random offsets (each crosses two pages), two runs for
//! each way:
//!
//! | | µs a read | KiB read from the device |
//! |---|---|---|
//! | mapped, default | 255-276 | 262 |
//! | mapped, random | 135 | 7.9 |
//! | `pread` | 74-135 | 7.9 |
//!
//! The price: a mapped walk over cold bytes without `read_ahead` is slow, 53 MiB/s instead of 1550
//! by default. Scans must announce what they read, and then are as fast as the device. Faults on
//! cached pages still map their neighbours.

use super::{Error, FileAccess, ReadFile, Result, calls, positional};
#[cfg(unix)]
use memmap2::{Advice, MmapOptions, MmapRaw};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(super) fn open(path: &Path, mode: FileAccess) -> Result<Arc<dyn ReadFile>> {
    let failed = |e| Error::io("open", path, e);
    let file = File::open(path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    if metadata.is_dir() {
        return Err(failed(io::ErrorKind::IsADirectory.into()));
    }
    let len = metadata.len();
    let path = path.to_owned();
    // An empty range cannot be mapped.
    if mode == FileAccess::Positional || len == 0 {
        calls::random_access(&file);
        return Ok(Arc::new(PositionalFile { file, len, path }));
    }
    map(&file, len, &path).map_err(|e| Error::io("map", &path, e))
}

#[cfg(unix)]
fn map(file: &File, len: u64, path: &Path) -> io::Result<Arc<dyn ReadFile>> {
    let len = usize::try_from(len).map_err(|_| io::ErrorKind::FileTooLarge)?;
    let map = MmapOptions::new().len(len).map_raw_read_only(file)?;
    // Only a hint: the mapping works without it.
    let _ = map.advise(Advice::Random);
    Ok(Arc::new(MappedFile { map, path: path.to_owned() }))
}

#[cfg(not(unix))]
fn map(_file: &File, _len: u64, _path: &Path) -> io::Result<Arc<dyn ReadFile>> {
    Err(io::ErrorKind::Unsupported.into())
}

/// A file that is mapped as a whole. The descriptor is closed; the mapping keeps the file alive. No
/// reference to its bytes is ever made, because another process may change them at any time.
#[cfg(unix)]
struct MappedFile {
    map: MmapRaw,
    path: PathBuf,
}

#[cfg(unix)]
impl ReadFile for MappedFile {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let start = usize::try_from(offset).ok();
        let start = start
            .filter(|start| start.checked_add(buf.len()).is_some_and(|end| end <= self.map.len()));
        let start = start.ok_or_else(|| past_the_end(&self.path))?;
        // SAFETY: the source's bytes lie in the readable mapping (checked above), which lives as
        // long as `self`. `buf` is borrowed exclusively, so it is no part of the mapping. A file is
        // complete when it is opened for reading. If another process writes to it nevertheless, the
        // copy is a mixture of bytes, which the checksum over the copy detects.
        unsafe {
            std::ptr::copy_nonoverlapping(
                self.map.as_ptr().add(start),
                buf.as_mut_ptr(),
                buf.len(),
            );
        }
        Ok(())
    }

    fn is_mapped(&self) -> bool {
        true
    }

    fn len(&self) -> u64 {
        self.map.len() as u64
    }

    fn read_ahead(&self, offset: u64, len: u64) {
        let Ok(start) = usize::try_from(offset) else { return };
        let Some(left) = self.map.len().checked_sub(start) else { return };
        let len = usize::try_from(len).unwrap_or(left).min(left);
        // Only a hint: whatever the kernel answers, the bytes can be read.
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

    fn is_mapped(&self) -> bool {
        false
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

/// Reads by position. Offsets come from other files, which may be damaged. An offset so large that
/// the system refuses it lies past the end, like any other offset beyond it.
pub(super) fn read_exact(file: &File, offset: u64, buf: &mut [u8]) -> io::Result<()> {
    if offset.checked_add(buf.len() as u64).is_none_or(|end| end > i64::MAX as u64) {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    positional::read_exact(file, buf, offset)
}

#[cfg(unix)]
pub(super) fn past_the_end(path: &Path) -> Error {
    Error::io("read", path, io::ErrorKind::UnexpectedEof.into())
}
