//! The exclusive lock of a database: `flock` (on Windows `LockFileEx`) on a file that holds the
//! process id of the lock's holder as text.
//!
//! The kernel releases the lock when the holder dies, however it dies, so a lock file that is left
//! behind is no obstacle. The text is only for messages: between taking the lock and writing the
//! id, the file may be empty or name an earlier holder.

use super::{Error, FileLock, Result, positional};
use crate::error::LockHolder;
use crate::host::Process;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read};
use std::path::Path;

/// Longer than any process id.
const ID_LEN_MAX: u64 = 24;

/// A lock that is held until this value is dropped.
pub(super) struct HeldLock {
    file: File,
    /// The process that took it.
    process: Process,
}

impl Drop for HeldLock {
    /// Closing the file would release the lock only with the last copy of its descriptor, and a
    /// process that the program is just starting has one for a moment. A fork must not release the
    /// lock of the process that it came from.
    fn drop(&mut self) {
        if self.process.is_this() {
            // If it fails, the lock goes with the file.
            let _ = self.file.unlock();
        }
    }
}

impl FileLock for HeldLock {}

impl HeldLock {
    pub(super) fn take(path: &Path) -> Result<Self> {
        let failed = |e| Error::io("lock", path, e);
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                // The message names the database's directory, which contains the lock file.
                let database = path.parent().unwrap_or(path);
                return Err(Error::locked(database, holder(&file)));
            }
            Err(TryLockError::Error(e)) => return Err(failed(e)),
        }
        write_own_id(&file).map_err(failed)?;
        Ok(HeldLock { file, process: Process::current() })
    }
}

impl HeldLock {
    /// The lock in shared mode, or `None` if there is no file or it must not be opened.
    pub(super) fn share(path: &Path) -> Result<Option<Self>> {
        use io::ErrorKind::{NotFound, PermissionDenied};
        let failed = |e| Error::io("lock", path, e);
        let file = match File::open(path) {
            Ok(file) => file,
            Err(e) if matches!(e.kind(), NotFound | PermissionDenied) => return Ok(None),
            Err(e) => return Err(failed(e)),
        };
        match file.try_lock_shared() {
            Ok(()) => Ok(Some(HeldLock { file, process: Process::current() })),
            Err(TryLockError::WouldBlock) => {
                let database = path.parent().unwrap_or(path);
                Err(Error::locked(database, holder(&file)))
            }
            Err(TryLockError::Error(e)) => Err(failed(e)),
        }
    }
}

fn write_own_id(file: &File) -> io::Result<()> {
    file.set_len(0)?;
    positional::write_all(file, format!("{}\n", std::process::id()).as_bytes(), 0)
}

/// The holder of the lock, as the file states it.
fn holder(file: &File) -> LockHolder {
    let mut text = String::new();
    let read = file.take(ID_LEN_MAX).read_to_string(&mut text);
    match (read, text.trim().parse::<u32>()) {
        (Ok(_), Ok(id)) if id == std::process::id() => LockHolder::ThisProcess,
        (Ok(_), Ok(id)) => LockHolder::Process { id },
        _ => LockHolder::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_that_was_given_back_is_free_though_its_descriptor_was_copied() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("LOCK");
        let held = HeldLock::take(&path).unwrap();
        let copy = held.file.try_clone().unwrap();
        assert!(HeldLock::take(&path).is_err());
        drop(held);
        drop(HeldLock::take(&path).unwrap());
        drop(copy);
        // A fork has the lock of another process.
        let forked = HeldLock::take(&path).unwrap();
        forked.process.pretend(true);
        let copy = forked.file.try_clone().unwrap();
        drop(forked);
        assert!(HeldLock::take(&path).is_err());
        drop(copy);
        drop(HeldLock::take(&path).unwrap());
    }
}
