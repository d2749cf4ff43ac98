//! Log segments: files of fixed length. Every byte is written once before use, so writing into them
//! allocates nothing. Once those zeros are on the device, a sync has no metadata to journal either.
//!
//! A mapped segment is written by plain stores from many threads. No reference to its bytes is ever
//! made: they are copied through raw pointers, within checked bounds, in ranges that the callers of
//! `copy_in` keep apart. A positional segment is written by `pwrite`, for file systems where a
//! mapping is unsafe.

use super::{Error, FileAccess, Result, SegmentFile, calls, positional, reader};
use crate::host::sync::{Mutex, Rank};
#[cfg(unix)]
use memmap2::{MmapOptions, MmapRaw};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How many zeros one call writes when a segment is made. The page cache keeps a file in pieces as
/// long as the writes that made them, and a change of any byte writes its whole piece back. With
/// zeros written by the megabyte, every sync of a small commit wrote a megabyte.
const ZEROS_LEN: usize = 16 << 10;

pub(super) fn open(path: &Path, len: u64, mode: FileAccess) -> Result<Arc<dyn SegmentFile>> {
    let file = match OpenOptions::new().read(true).write(true).create_new(true).open(path) {
        Ok(file) => {
            write_once(&file, len).map_err(|e| {
                // The file is too short to be opened as a segment, so it has no use.
                let _ = fs::remove_file(path);
                Error::io("prepare the log segment", path, e)
            })?;
            file
        }
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
            let file = open_existing(path, len)?;
            if mode == FileAccess::Mapped {
                // The file may share blocks with a copy of the database, or have holes instead of
                // zeros. Then a store would need room and might find none.
                calls::unshare(&file, len)
                    .and_then(|()| calls::reserve_room(&file, len))
                    .and_then(|is_reserved| match is_reserved {
                        true => Ok(()),
                        false => write_again(&file, len),
                    })
                    .map_err(|e| Error::io("prepare the log segment", path, e))?;
            }
            file
        }
        Err(e) => return Err(Error::io("create", path, e)),
    };
    let name = Mutex::new(Rank::SegmentName, path.to_owned());
    if mode == FileAccess::Positional || len == 0 {
        return Ok(Arc::new(PositionalSegment { file, len, name }));
    }
    map(file, len, name).map_err(|e| Error::io("map", path, e))
}

#[cfg(unix)]
fn map(file: File, len: u64, name: Mutex<PathBuf>) -> io::Result<Arc<dyn SegmentFile>> {
    let len = usize::try_from(len).map_err(|_| io::ErrorKind::FileTooLarge)?;
    let map = MmapOptions::new().len(len).map_raw(&file)?;
    // A fork has a copy of what says where the next commit goes, so it would write over one of this
    // process. Without the mapping it ends instead. If the system refuses, the guide forbids it.
    #[cfg(target_os = "linux")]
    let _ = map.advise(memmap2::Advice::DontFork);
    Ok(Arc::new(MappedSegment { map, file, name }))
}

#[cfg(not(unix))]
fn map(_file: File, _len: u64, _name: Mutex<PathBuf>) -> io::Result<Arc<dyn SegmentFile>> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Makes the length and the room of the file durable, then writes zeros over all of it. Allocation
/// alone leaves extents that are marked as unwritten. The first sync of bytes in such an extent
/// changes the mark, which takes an entry in the journal. If a caller
/// wants quick syncs, it syncs the zeros first. Otherwise they need not be written to the device.
fn write_once(file: &File, len: u64) -> io::Result<()> {
    let is_reserved = calls::reserve_room(file, len)?;
    file.set_len(len)?;
    file.sync_all()?;
    let zeros = vec![0; ZEROS_LEN];
    let mut offset = 0;
    while offset < len {
        let chunk_len = (len - offset).min(ZEROS_LEN as u64);
        positional::write_all(file, &zeros[..chunk_len as usize], offset)?;
        offset += chunk_len;
    }
    // Without reserved room, a stored byte could find no room later, when no call can return the
    // error.
    if is_reserved { Ok(()) } else { file.sync_all() }
}

/// Writes all bytes as they are, so that none of them is in a hole.
fn write_again(file: &File, len: u64) -> io::Result<()> {
    let mut bytes = vec![0; ZEROS_LEN];
    let mut offset = 0;
    while offset < len {
        let chunk = &mut bytes[..(len - offset).min(ZEROS_LEN as u64) as usize];
        positional::read_exact(file, chunk, offset)?;
        positional::write_all(file, chunk, offset)?;
        offset += chunk.len() as u64;
    }
    // A file system may find room for them only now.
    file.sync_all()
}

fn open_existing(path: &Path, len: u64) -> Result<File> {
    let failed = |e| Error::io("open", path, e);
    let file = OpenOptions::new().read(true).write(true).open(path).map_err(failed)?;
    let found = file.metadata().map_err(failed)?.len();
    if found != len {
        let detail = format!("a log segment of {len} bytes was expected, the file has {found}");
        return Err(Error::io("open", path, io::Error::new(io::ErrorKind::AlreadyExists, detail)));
    }
    Ok(file)
}

/// A segment that is mapped as a whole, shared and writable.
#[cfg(unix)]
struct MappedSegment {
    map: MmapRaw,
    file: File,
    name: Mutex<PathBuf>,
}

#[cfg(unix)]
impl MappedSegment {
    /// The address of `offset`, if `len` bytes from there lie in the mapping.
    fn address(&self, offset: u64, len: usize) -> Option<*mut u8> {
        let start = usize::try_from(offset).ok()?;
        let end = start.checked_add(len)?;
        // SAFETY: `start <= end <= len` of the mapping, which is one allocation.
        (end <= self.map.len()).then(|| unsafe { self.map.as_mut_ptr().add(start) })
    }
}

#[cfg(unix)]
impl SegmentFile for MappedSegment {
    unsafe fn copy_in(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let Some(target) = self.address(offset, bytes.len()) else {
            return Err(past_the_segment(self));
        };
        // SAFETY: the target's bytes lie in the writable mapping (checked above), which lives as
        // long as `self`. `bytes` cannot overlap it: no reference into the mapping is ever made. No
        // other thread touches the range meanwhile: the caller promises that.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), target, bytes.len()) };
        Ok(())
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let Some(source) = self.address(offset, buf.len()) else {
            return Err(reader::past_the_end(&self.name.lock()));
        };
        // SAFETY: the source's bytes lie in the readable mapping (checked above), which lives as
        // long as `self`. `buf` cannot overlap it: no reference into the mapping is ever made. No
        // thread writes the range meanwhile: every caller of `copy_in` promises that.
        unsafe { std::ptr::copy_nonoverlapping(source, buf.as_mut_ptr(), buf.len()) };
        Ok(())
    }

    fn sync_range(&self, offset: u64, len: u64) -> Result<()> {
        let start =
            usize::try_from(offset).map_or(self.map.len(), |start| start.min(self.map.len()));
        let left = self.map.len() - start;
        let len = usize::try_from(len).map_or(left, |len| len.min(left));
        // On Linux, msync is an fdatasync of the range. It includes the device's cache and errors
        // of earlier write-back. On other systems it only hands the pages to the file.
        let mut synced = self.map.flush_range(start, len);
        if cfg!(not(target_os = "linux")) {
            synced = synced.and_then(|()| self.file.sync_data());
        }
        synced.map_err(|e| Error::io("sync", &self.name.lock(), e))
    }

    fn write_back(&self, offset: u64, len: u64) {
        calls::start_write_back(&self.file, offset, len);
    }

    fn prefault(&self, offset: u64, len: u64) {
        #[cfg(target_os = "linux")]
        {
            let Ok(start) = usize::try_from(offset) else { return };
            let Some(left) = self.map.len().checked_sub(start) else { return };
            let len = usize::try_from(len).unwrap_or(left).min(left);
            // Kernels before 5.14 do not know this advice. Then the stores fault one page at a
            // time.
            let _ = self.map.advise_range(memmap2::Advice::PopulateWrite, start, len);
        }
        #[cfg(not(target_os = "linux"))]
        let _ = (offset, len);
    }

    fn len(&self) -> u64 {
        self.map.len() as u64
    }

    fn path(&self) -> PathBuf {
        self.name.lock().clone()
    }

    fn renamed(&self, path: &Path) {
        *self.name.lock() = path.to_owned();
    }
}

/// A segment that is written by `pwrite`.
struct PositionalSegment {
    file: File,
    len: u64,
    name: Mutex<PathBuf>,
}

impl SegmentFile for PositionalSegment {
    unsafe fn copy_in(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        if offset.checked_add(bytes.len() as u64).is_none_or(|end| end > self.len) {
            return Err(past_the_segment(self));
        }
        positional::write_all(&self.file, bytes, offset)
            .map_err(|e| Error::io("write to", &self.name.lock(), e))
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        reader::read_exact(&self.file, offset, buf)
            .map_err(|e| Error::io("read", &self.name.lock(), e))
    }

    fn sync_range(&self, _offset: u64, _len: u64) -> Result<()> {
        self.file.sync_data().map_err(|e| Error::io("sync", &self.name.lock(), e))
    }

    fn write_back(&self, offset: u64, len: u64) {
        calls::start_write_back(&self.file, offset, len);
    }

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

fn past_the_segment(segment: &dyn SegmentFile) -> Error {
    Error::io("write past the end of", &segment.path(), io::ErrorKind::InvalidInput.into())
}

#[cfg(all(test, target_os = "linux", not(miri)))]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn a_segment_that_came_back_from_a_backup_with_holes_gets_room_before_it_is_mapped() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("segment");
        let len = 1 << 20;
        let file = File::create_new(&path).unwrap();
        file.set_len(len).unwrap();
        let room = || file.metadata().unwrap().blocks() * 512;
        assert!(room() < len);
        drop(open(&path, len, FileAccess::Mapped).unwrap());
        assert!(room() >= len);
    }

    #[test]
    fn a_segment_gets_room_and_keeps_its_bytes_where_none_can_be_reserved() {
        let dir = tempfile::tempdir().unwrap();
        let (path, len) = (dir.path().join("segment"), (1 << 20) + 100);
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(path).unwrap();
        file.set_len(len).unwrap();
        positional::write_all(&file, b"there", 300_000).unwrap();
        write_again(&file, len).unwrap();
        let metadata = file.metadata().unwrap();
        assert_eq!(metadata.len(), len);
        assert!(metadata.blocks() * 512 >= len);
        let mut bytes = vec![1; len as usize];
        positional::read_exact(&file, &mut bytes, 0).unwrap();
        assert_eq!(&bytes[300_000..300_005], b"there");
        assert_eq!(bytes.iter().filter(|byte| **byte != 0).count(), 5);
    }
}
