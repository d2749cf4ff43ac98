//! Files and directories: what the engine needs of a file system, and the implementations.
//!
//! [`SystemFs`] is the operating system's file system (Unix and Windows). [`MemoryFs`] keeps
//! everything in memory, for tests and for databases that need no disk. Every implementation keeps
//! these rules, and the engine relies on them:
//!
//! - `copy_in` has handed its bytes to the kernel (or its counterpart) when it returns, so a killed
//!   process loses none of them. `append` may buffer bytes. They reach the kernel at the latest by
//!   `flush`, by `sync`, or when the file is dropped. Only `sync` and `sync_range` make bytes
//!   survive power loss.
//! - A created, renamed or removed name survives power loss only after a `sync` of its directory.
//! - A failed `sync` or `sync_range` is final: what it covered may be lost even if later calls
//!   succeed.
//! - A failed `append` or `flush` loses nothing that was accepted before and accepts nothing new.
//!   It can be tried again once there is room.

mod appender;
mod memory;
#[cfg(any(unix, windows))]
mod system;
#[cfg(test)]
mod tests;

pub use memory::{Fault, FileOp, MemoryFs, Unsynced, UnsyncedKind};
#[cfg(any(unix, windows))]
pub use system::SystemFs;

use crate::error::{Error, Result};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Converts a length in a file to a length in memory. Fails with kind `FileTooLarge` if the
/// machine's addresses are too short for it.
pub(crate) fn len_in_memory(len: u64, path: &Path) -> Result<usize> {
    match isize::try_from(len) {
        Ok(len) => Ok(len as usize),
        Err(_) => Err(Error::io("read", path, io::ErrorKind::FileTooLarge.into())),
    }
}

/// How a process reaches the bytes of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FileAccess {
    /// Through a memory mapping. Access to cached pages takes no system call. But an I/O error of
    /// the device ends the process with a signal (the data on disk is untouched). So does a file
    /// that another program shortens. Unix only.
    Mapped,
    /// By `pread` and `pwrite`: one system call per block. An I/O error is a [`crate::Error`].
    #[default]
    Positional,
}

/// How a database reaches its files: the log and the tables.
///
/// Through a mapping, a commit needs no system call, and neither does a read of cached pages. But
/// where the system cannot serve a mapped page, no call can return the error: the signal `SIGBUS`
/// ends the process. No acknowledged commit is lost. For the log this happens when a store needs
/// room on a full device; for tables it happens when the device cannot be read.
///
/// Manifests are always read and written by position. So is the log when recovery or a reader reads
/// it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum IoMode {
    /// Avoids the signal where an error can be returned instead. The log is mapped on 64-bit Linux
    /// on ext2, ext3, ext4, xfs and tmpfs, where a store to bytes that were written before needs no
    /// room. It is written by position everywhere else: on file systems that write elsewhere
    /// (btrfs, zfs), network file systems, FUSE, overlays, unknown file systems, other operating
    /// systems, and 32-bit machines. Tables are read by position.
    /// [`Event::LogModeChosen`](crate::Event::LogModeChosen) reports the choice.
    ///
    /// In two cases the signal remains possible. On xfs, a copy of an open database that shares its
    /// blocks (`cp --reflink`) makes stores need room again. And if the system dropped a page of
    /// the log from memory, the next store to it reads the page again, which a failing device may
    /// refuse. Where that matters, use [`IoMode::Positional`].
    #[default]
    Auto,
    /// The log and the tables are mapped, on any file system. Reads are faster where the page cache
    /// holds what the block cache does not, and slower where the tables are larger than memory.
    /// Unix only.
    Mapped,
    /// The log is written by `pwrite` and tables are read by `pread`: one system call for each
    /// commit and for each block that is not in the block cache. Every failure is an
    /// [`Error`](crate::Error).
    Positional,
}

impl IoMode {
    /// How a log on such a file system is written.
    pub(crate) fn of_log(self, kind: &FileSystemKind) -> FileAccess {
        let can_map = kind.stores_in_place && cfg!(target_pointer_width = "64");
        match self {
            IoMode::Mapped => FileAccess::Mapped,
            IoMode::Auto if can_map => FileAccess::Mapped,
            IoMode::Auto | IoMode::Positional => FileAccess::Positional,
        }
    }

    /// How tables are read.
    pub(crate) fn of_tables(self) -> FileAccess {
        match self {
            IoMode::Mapped => FileAccess::Mapped,
            IoMode::Auto | IoMode::Positional => FileAccess::Positional,
        }
    }
}

impl From<FileAccess> for IoMode {
    fn from(access: FileAccess) -> IoMode {
        match access {
            FileAccess::Mapped => IoMode::Mapped,
            FileAccess::Positional => IoMode::Positional,
        }
    }
}

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry {
    /// The file's name, without its directory.
    pub name: String,
    /// The file's length in bytes.
    pub len: u64,
    /// True for a directory.
    pub is_dir: bool,
}

/// A file system. The rules above hold for every implementation.
pub trait FileSystem: Send + Sync + 'static {
    /// Creates a directory and its parents. It is no error if they exist.
    fn create_dir_all(&self, path: &Path) -> Result<()>;
    /// The entries of a directory, in no particular order.
    fn list(&self, dir: &Path) -> Result<Vec<DirEntry>>;
    /// True if a file or directory of this name exists.
    fn exists(&self, path: &Path) -> Result<bool>;
    /// A path that means the same later, whichever directory the process works in then. Where no
    /// such directory matters, a path means the same always.
    fn absolute(&self, path: &Path) -> Result<PathBuf> {
        Ok(path.to_owned())
    }
    /// Opens a file for reading at any offset.
    fn open_read(&self, path: &Path, mode: FileAccess) -> Result<Arc<dyn ReadFile>>;
    /// Creates a file to append to. The file must not exist.
    fn create(&self, path: &Path) -> Result<Box<dyn WriteFile>>;
    /// Creates a log segment of `len` bytes, or opens it if it exists with that length. Its length
    /// and its room on the device survive power loss, so copying into it cannot run out of space.
    /// The zeros of a new segment are really written: once all of it has been synced, syncing a
    /// part of it again needs no journal. An existing file of another length is an error.
    ///
    /// # Safety
    ///
    /// If the file is already open as a segment, or mapped for reading, every access through this
    /// segment also counts as an access through the other: see [`SegmentFile::copy_in`].
    unsafe fn open_segment(
        &self,
        path: &Path,
        len: u64,
        mode: FileAccess,
    ) -> Result<Arc<dyn SegmentFile>>;
    /// Renames a file or a directory atomically. The target must not exist.
    fn rename(&self, from: &Path, to: &Path) -> Result<()>;
    /// Renames a file atomically. If the target is a file, it is replaced.
    fn replace(&self, from: &Path, to: &Path) -> Result<()>;
    /// Gives a file a second name (a hard link). The target must not exist.
    fn link(&self, from: &Path, to: &Path) -> Result<()>;
    /// Removes a file. Handles that are open stay usable.
    fn remove(&self, path: &Path) -> Result<()>;
    /// Removes an empty directory.
    fn remove_dir(&self, path: &Path) -> Result<()>;
    /// Opens a directory, so that it can be synced later without opening anything then.
    fn open_dir(&self, dir: &Path) -> Result<Arc<dyn Directory>>;
    /// Opens a directory and syncs it. An error does not tell which of the two failed. Where that
    /// matters, hold the directory open.
    fn sync_dir(&self, dir: &Path) -> Result<()> {
        self.open_dir(dir)?.sync()
    }
    /// Takes the exclusive lock that a file stands for; creates the file.
    /// [`crate::ErrorKind::Locked`] names the process that holds the lock. Dropping the value
    /// releases it.
    fn lock(&self, path: &Path) -> Result<Box<dyn FileLock>>;
    /// Takes the same lock in shared mode, without writing anything: no process can take it
    /// exclusively meanwhile. `None` if the file is missing or must not be opened.
    /// [`crate::ErrorKind::Locked`] if the lock is held exclusively.
    fn lock_shared(&self, path: &Path) -> Result<Option<Box<dyn FileLock>>> {
        self.lock(path).map(Some)
    }
    /// How many bytes can still be written below `dir`; `u64::MAX` if that is not known. Asked
    /// before each segment of the log, so that writes leave some to flushes and compactions.
    fn free_space(&self, dir: &Path) -> Result<u64>;
    /// How many files the process may have open; `None` if there is no limit.
    fn open_files_max(&self) -> Option<u64> {
        None
    }
    /// The kind of the file system that a directory is on.
    fn kind(&self, dir: &Path) -> Result<FileSystemKind>;
}

/// A kind of file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileSystemKind {
    /// The common name, such as "ext4" or "btrfs"; a hexadecimal number if it is not known here.
    pub name: String,
    /// True if a byte of a file that was written once can be stored again without new room on the
    /// device. If this is false or unknown, a store into a mapping that finds no room ends the
    /// process with a signal.
    pub stores_in_place: bool,
}

/// A directory that is held open.
pub trait Directory: Send + Sync {
    /// Makes the names in the directory survive power loss, if the file system offers a way to ask
    /// for it. If it offers none (`EINVAL`), this does nothing, and the file system decides what
    /// survives. A failure is final, like that of a file's sync.
    fn sync(&self) -> Result<()>;
}

/// A file that any thread may read at any offset. It does not change once complete. What is
/// appended after it was opened may or may not be readable through this handle.
pub trait ReadFile: Send + Sync {
    /// Fills `buf` from `offset`. Reading past the end is an error of kind `UnexpectedEof`.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()>;
    /// True if reading copies from a mapping. Then a range that is read should be announced by
    /// `read_ahead`, and reading in large pieces saves nothing. References into the mapping are
    /// never handed out, because other processes could change the bytes after they were verified.
    fn is_mapped(&self) -> bool;
    /// The length in bytes at the time it was opened.
    fn len(&self) -> u64;
    /// True if the file has no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Announces that `len` bytes from `offset` will be read soon.
    fn read_ahead(&self, offset: u64, len: u64);
    /// The path, for messages.
    fn path(&self) -> &Path;
}

/// A file that grows at its end.
pub trait WriteFile: Send {
    /// Appends all of `bytes` or, after an error, nothing.
    fn append(&mut self, bytes: &[u8]) -> Result<()>;
    /// Hands everything that was appended to the kernel. Readers see it, and a killed process loses
    /// none of it.
    fn flush(&mut self) -> Result<()>;
    /// Makes everything that was appended survive power loss.
    fn sync(&mut self) -> Result<()>;
    /// Starts writing back what was flushed, without waiting, so that a later `sync` takes less
    /// time.
    fn write_back(&mut self);
    /// The number of bytes appended so far.
    fn len(&self) -> u64;
    /// True if nothing was appended.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// The path, for messages.
    fn path(&self) -> &Path;
}

/// A log segment: a file of fixed length that many threads write in place at the same time.
pub trait SegmentFile: Send + Sync {
    /// Copies `bytes` to `offset`. A range outside the segment is an error. Otherwise a mapped
    /// segment cannot fail, and a positional one can.
    ///
    /// # Safety
    ///
    /// While this runs, no other call of `copy_in` or `read_at` may touch an overlapping range of
    /// this file, through this segment or another opening of it. In the log, the caller has
    /// reserved the range, and no thread reads it before it is published. A mapped segment is
    /// written by plain stores, so an overlap would be a data race.
    unsafe fn copy_in(&self, offset: u64, bytes: &[u8]) -> Result<()>;
    /// Reads bytes back.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()>;
    /// Makes every `copy_in` into the range that returned before this call survive power loss. A
    /// range that reaches beyond the end is cut off there.
    fn sync_range(&self, offset: u64, len: u64) -> Result<()>;
    /// Starts writing back a range, without waiting.
    fn write_back(&self, offset: u64, len: u64);
    /// Makes a range writable without page faults, if it is mapped and the system can do so. The
    /// bytes do not change.
    fn prefault(&self, offset: u64, len: u64);
    /// The length in bytes.
    fn len(&self) -> u64;
    /// True if it has no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// The current path.
    fn path(&self) -> PathBuf;
    /// Tells the segment its new path after it was renamed (recycled under another name).
    fn renamed(&self, path: &Path);
}

/// A held lock; dropping it releases.
pub trait FileLock: Send + Sync {}
