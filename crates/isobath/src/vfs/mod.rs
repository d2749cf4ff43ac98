//! Files and directories: what the engine needs of them, and who provides it.
//!
//! [`SystemFs`] is the operating system's (Unix and Windows); [`MemoryFs`] keeps everything in
//! memory, for tests and for databases that need no disk. The rules every implementation keeps, and
//! the engine relies on:
//!
//! - `copy_in` reaches the kernel (or its like) before it returns: a killed process loses nothing
//!   of it. `append` may gather bytes; they reach the kernel at the latest by `flush`, by `sync`,
//!   or when the file is dropped. Only `sync` and `harden` make bytes survive power loss.
//! - A created, renamed or removed name survives power loss only after a `sync` of its directory.
//! - A failed `sync` or `harden` is final: what it covered may be lost though later calls succeed.
//! - A failed `append` or `flush` loses nothing that was accepted before and accepts nothing new:
//!   it can be tried again once there is room.

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

/// A length in a file as one in memory; an error of kind `FileTooLarge` where the machine's
/// addresses are too short.
pub(crate) fn len_in_memory(len: u64, path: &Path) -> Result<usize> {
    match isize::try_from(len) {
        Ok(len) => Ok(len as usize),
        Err(_) => Err(Error::io("read", path, io::ErrorKind::FileTooLarge.into())),
    }
}

/// How the bytes of a file are reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FileAccess {
    /// Through a memory mapping: no system call when the page is cached, but an I/O error of the
    /// device ends the process with a signal (the data is untouched), and so does a file that
    /// another program cuts short. Unix only.
    Mapped,
    /// By `pread` and `pwrite`: one system call a block; an I/O error is an [`crate::Error`].
    #[default]
    Positional,
}

/// How a database reaches its files: the log, and tables.
///
/// Through a mapping, a commit and a read of what the page cache holds need no system call. But
/// what the system cannot do for a mapped page has no call to fail: the signal `SIGBUS` ends the
/// process. It loses nothing that was acknowledged. For the log this happens where a store needs
/// room on a device that is full, for tables where the device cannot be read.
///
/// Manifests are read and written by position always, and a log is read so by recovery and by
/// readers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum IoMode {
    /// Never a signal for what can be an error. The log is mapped on 64-bit Linux on ext2, ext3,
    /// ext4, xfs and tmpfs, where a store to bytes that were written before needs no room; it
    /// is written by position everywhere else: file systems that write elsewhere (btrfs, zfs),
    /// across a network, FUSE, overlays, those that are not known, other systems, and 32 bits.
    /// Tables are read by position. [`Event::LogModeChosen`](crate::Event::LogModeChosen) tells
    /// what was chosen.
    ///
    /// Two cases are left. On xfs a copy of an open database that shares its blocks (`cp
    /// --reflink`) makes stores need room again. And a page of the log that the system gave up
    /// for want of memory is read again before the next store to it, which a failing device may
    /// refuse. Where that matters, take [`IoMode::Positional`].
    #[default]
    Auto,
    /// The log and tables are mapped, on any file system. Reads are quicker where the page cache
    /// holds what the block cache does not, slower where the tables are larger than memory.
    /// Unix only.
    Mapped,
    /// The log is written, and tables are read, by `pwrite` and `pread`: a system call for each
    /// commit and each block that is not in the block cache. Every failure is an
    /// [`Error`](crate::Error).
    Positional,
}

impl IoMode {
    /// How a log is written on such a file system.
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

/// A name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry {
    /// The file's name, without its directory.
    pub name: String,
    /// Its length in bytes.
    pub len: u64,
    /// True for a directory.
    pub is_dir: bool,
}

/// A file system.
pub trait FileSystem: Send + Sync + 'static {
    /// Creates a directory and its parents; not an error if it exists.
    fn create_dir_all(&self, path: &Path) -> Result<()>;
    /// The entries of a directory, in no particular order.
    fn list(&self, dir: &Path) -> Result<Vec<DirEntry>>;
    /// True if a file or directory of this name exists.
    fn exists(&self, path: &Path) -> Result<bool>;
    /// Opens a file for reading at any offset.
    fn open_read(&self, path: &Path, mode: FileAccess) -> Result<Arc<dyn ReadFile>>;
    /// Creates a file to append to. It must not exist.
    fn create(&self, path: &Path) -> Result<Box<dyn WriteFile>>;
    /// Creates (or, if it exists with that length, opens) a log segment of `len` bytes. Its length
    /// and its room on the device survive power loss, so copying into it cannot run out of
    /// space. A new segment reads as zeros, and they are written: once all of it is hardened,
    /// hardening a part again needs no journal. A file of another length in its place is an
    /// error.
    ///
    /// # Safety
    ///
    /// Where the file is open as a segment already, or mapped for reading, everything done through
    /// this one counts as done through that one, too: see [`SegmentFile::copy_in`].
    unsafe fn open_segment(
        &self,
        path: &Path,
        len: u64,
        mode: FileAccess,
    ) -> Result<Arc<dyn SegmentFile>>;
    /// Renames a file or a directory, atomically. The target must not exist.
    fn rename(&self, from: &Path, to: &Path) -> Result<()>;
    /// Renames a file, atomically, over the one that the target may be.
    fn replace(&self, from: &Path, to: &Path) -> Result<()>;
    /// Gives a file a second name (a hard link). The target must not exist.
    fn link(&self, from: &Path, to: &Path) -> Result<()>;
    /// Removes a file. Open handles stay usable.
    fn remove(&self, path: &Path) -> Result<()>;
    /// Removes a directory that is empty.
    fn remove_dir(&self, path: &Path) -> Result<()>;
    /// Opens a directory, to sync it later without having to open anything then.
    fn open_dir(&self, dir: &Path) -> Result<Arc<dyn Directory>>;
    /// Opens a directory and syncs it. An error does not tell which of the two failed: where that
    /// matters, hold it open.
    fn sync_dir(&self, dir: &Path) -> Result<()> {
        self.open_dir(dir)?.sync()
    }
    /// Takes the exclusive lock that a file stands for, creating the file.
    /// [`crate::ErrorKind::Locked`] names the process that holds it. Dropping the value
    /// releases the lock.
    fn lock(&self, path: &Path) -> Result<Box<dyn FileLock>>;
    /// Takes a share of that lock without writing anything: nobody can take the lock meanwhile.
    /// `None` if the file is missing or must not be opened. [`crate::ErrorKind::Locked`] if
    /// somebody has the lock.
    fn lock_shared(&self, path: &Path) -> Result<Option<Box<dyn FileLock>>> {
        self.lock(path).map(Some)
    }
    /// Bytes that can still be written below `dir`.
    fn free_space(&self, dir: &Path) -> Result<u64>;
    /// How many files the process may have open, if there is a limit.
    fn open_files_max(&self) -> Option<u64> {
        None
    }
    /// What kind of file system a directory is on.
    fn kind(&self, dir: &Path) -> Result<FileSystemKind>;
}

/// A kind of file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileSystemKind {
    /// As people call it: "ext4", "btrfs"; a number in hexadecimal if it is not known here.
    pub name: String,
    /// A byte of a file that was written once can be stored again without new room on the device.
    /// Where that does not hold, or is not known, a store into a mapping that finds no room
    /// ends the process with a signal.
    pub stores_in_place: bool,
}

/// A directory that is held open.
pub trait Directory: Send + Sync {
    /// Makes its names survive power loss, where the file system has a way to be asked for it;
    /// where it has none (`EINVAL`) this does nothing, and what survives is up to the file
    /// system. A failure is final, as that of a file's sync.
    fn sync(&self) -> Result<()>;
}

/// A file that is read at any offset, by any thread. Immutable once complete; what is appended
/// after it was opened may or may not be readable through this handle.
pub trait ReadFile: Send + Sync {
    /// Fills `buf` from `offset`. Reading past the end is an error of kind `UnexpectedEof`.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()>;
    /// True if reading copies from a mapping: then a range that is read should be announced by
    /// `read_ahead`, and reading in large pieces saves nothing. No reference into the mapping
    /// is handed out: others could change the bytes behind it, after they were verified as
    /// well.
    fn is_mapped(&self) -> bool;
    /// The length in bytes when it was opened.
    fn len(&self) -> u64;
    /// True if there are no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Says that `len` bytes from `offset` are wanted soon.
    fn read_ahead(&self, offset: u64, len: u64);
    /// The name, for messages.
    fn path(&self) -> &Path;
}

/// A file that grows at its end.
pub trait WriteFile: Send {
    /// Appends all of `bytes`, or nothing.
    fn append(&mut self, bytes: &[u8]) -> Result<()>;
    /// Hands everything appended to the kernel: readers see it, and a killed process loses nothing
    /// of it.
    fn flush(&mut self) -> Result<()>;
    /// Makes all that was appended survive power loss.
    fn sync(&mut self) -> Result<()>;
    /// Starts writing back what was flushed, without waiting, so that a later `sync` is short.
    fn write_back(&mut self);
    /// The bytes appended so far.
    fn len(&self) -> u64;
    /// True if nothing was appended.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// The name, for messages.
    fn path(&self) -> &Path;
}

/// A log segment: a file of fixed length, written in place by many threads at once.
pub trait SegmentFile: Send + Sync {
    /// Copies `bytes` to `offset`. A range that does not lie in the segment is an error; beside
    /// that a mapped segment cannot fail, a positional one can.
    ///
    /// # Safety
    ///
    /// While this runs, no other call of `copy_in` or `read_at` may touch an overlapping range of
    /// this file, through this segment or another opening of it (in the log, the range was
    /// reserved by the caller and is read by nobody before it is published). A mapped segment
    /// is written by plain stores, so an overlap would be a data race.
    unsafe fn copy_in(&self, offset: u64, bytes: &[u8]) -> Result<()>;
    /// Reads back what is there.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()>;
    /// Makes every `copy_in` into the range that returned before this call survive power loss. A
    /// range that reaches past the end is cut there.
    fn harden(&self, offset: u64, len: u64) -> Result<()>;
    /// Starts writing back a range, without waiting.
    fn write_back(&self, offset: u64, len: u64);
    /// Makes a range writable without a page fault, if it is mapped and the system can. Bytes stay
    /// as they are.
    fn prefault(&self, offset: u64, len: u64);
    /// The length in bytes.
    fn len(&self) -> u64;
    /// True if it has no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// The current name.
    fn path(&self) -> PathBuf;
    /// Tells the segment that it was renamed (recycled under another name).
    fn renamed(&self, path: &Path);
}

/// A held lock; dropping it releases.
pub trait FileLock: Send + Sync {}
