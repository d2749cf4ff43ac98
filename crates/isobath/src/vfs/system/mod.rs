//! The operating system's file system.
//!
//! This file has the operations on names and directories. Each kind of open file has its own file:
//! [`reader`] (tables and blobs), [`segment`] (the log), [`lock`]. A growing file is a [`File`]
//! under an [`Appender`]. [`calls`] has what the standard library does not offer; on Windows it is
//! another file. [`kind`] knows the kinds of file systems. Files are mapped on Unix only: elsewhere
//! [`FileAccess::Mapped`] is refused.
//!
//! Mapped bytes are only ever copied, in and out, through raw pointers. Another program may change
//! a file at any time, and a reference would promise the compiler that this does not happen. An I/O
//! error of the device under a mapping, or a file that another program shortens, raises SIGBUS.
//! With [`FileAccess::Positional`] it is an error.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)] // They are banned everywhere else.

#[cfg(unix)]
mod calls;
#[cfg(windows)]
#[path = "windows.rs"]
mod calls;
mod kind;
mod lock;
mod positional;
mod reader;
mod segment;

use super::appender::{Appender, Growing};
use super::{
    DirEntry, Directory, FileAccess, FileLock, FileSystem, FileSystemKind, ReadFile, SegmentFile,
    WriteFile,
};
use crate::error::{Error, Result};
use crate::host::demand_no_locks_at_low_priority;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The operating system's file system.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemFs;

impl SystemFs {
    /// A handle; all are the same.
    pub fn new() -> Self {
        SystemFs
    }
}

impl FileSystem for SystemFs {
    fn create_dir_all(&self, path: &Path) -> Result<()> {
        fs::create_dir_all(path).map_err(|e| Error::io("create the directory", path, e))
    }

    fn list(&self, dir: &Path) -> Result<Vec<DirEntry>> {
        let failed = |e| Error::io("list", dir, e);
        let mut entries = Vec::new();
        for entry in fs::read_dir(dir).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            // This follows links: a directory of the database may be on another disk.
            let metadata = match fs::metadata(entry.path()) {
                Ok(metadata) => metadata,
                // The file was removed meanwhile, or the link leads nowhere. In both cases this
                // name has no file.
                Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
                Err(e) => return Err(Error::io("examine", &entry.path(), e)),
            };
            let name = entry.file_name().to_string_lossy().into_owned();
            entries.push(DirEntry { name, len: metadata.len(), is_dir: metadata.is_dir() });
        }
        Ok(entries)
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        path.try_exists().map_err(|e| Error::io("look for", path, e))
    }

    fn absolute(&self, path: &Path) -> Result<PathBuf> {
        std::path::absolute(path).map_err(|e| Error::io("find the place of", path, e))
    }

    fn open_read(&self, path: &Path, mode: FileAccess) -> Result<Arc<dyn ReadFile>> {
        reader::open(path, mode)
    }

    fn create(&self, path: &Path) -> Result<Box<dyn WriteFile>> {
        let file = File::create_new(path).map_err(|e| Error::io("create", path, e))?;
        Ok(Box::new(Appender::new(file, path)))
    }

    unsafe fn open_segment(
        &self,
        path: &Path,
        len: u64,
        mode: FileAccess,
    ) -> Result<Arc<dyn SegmentFile>> {
        segment::open(path, len, mode)
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        calls::rename_new(from, to).map_err(|e| Error::io("rename", from, e))
    }

    fn replace(&self, from: &Path, to: &Path) -> Result<()> {
        fs::rename(from, to).map_err(|e| Error::io("rename", from, e))
    }

    fn link(&self, from: &Path, to: &Path) -> Result<()> {
        fs::hard_link(from, to).map_err(|e| Error::io("link", from, e))
    }

    fn remove(&self, path: &Path) -> Result<()> {
        demand_no_locks_at_low_priority("removes a file");
        fs::remove_file(path).map_err(|e| Error::io("remove", path, e))
    }

    fn remove_dir(&self, path: &Path) -> Result<()> {
        fs::remove_dir(path).map_err(|e| Error::io("remove the directory", path, e))
    }

    fn open_dir(&self, dir: &Path) -> Result<Arc<dyn Directory>> {
        let file = calls::open_dir(dir).map_err(|e| Error::io("open the directory", dir, e))?;
        Ok(Arc::new(OpenDirectory { file, path: dir.to_owned() }))
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn FileLock>> {
        Ok(Box::new(lock::HeldLock::take(path)?))
    }

    fn lock_shared(&self, path: &Path) -> Result<Option<Box<dyn FileLock>>> {
        Ok(lock::HeldLock::share(path)?.map(|held| Box::new(held) as Box<dyn FileLock>))
    }

    fn free_space(&self, dir: &Path) -> Result<u64> {
        calls::free_space(dir).map_err(|e| Error::io("measure the free space of", dir, e))
    }

    fn open_files_max(&self) -> Option<u64> {
        calls::open_files_max()
    }

    fn kind(&self, dir: &Path) -> Result<FileSystemKind> {
        kind::of(dir).map_err(|e| Error::io("look for the file system of", dir, e))
    }
}

impl Growing for File {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        positional::write_all(self, bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        // fdatasync: the length is all the metadata that reading back needs, and fdatasync covers
        // it.
        self.sync_data()
    }

    fn start_write_back(&self, offset: u64, len: u64) {
        calls::start_write_back(self, offset, len);
    }
}

/// Renames in two steps. That is enough if the holder of the database's lock is the only one who
/// writes to the directory.
fn rename_checked(from: &Path, to: &Path) -> io::Result<()> {
    match fs::symlink_metadata(to) {
        Ok(_) => Err(io::ErrorKind::AlreadyExists.into()),
        Err(e) if e.kind() == io::ErrorKind::NotFound => fs::rename(from, to),
        Err(e) => Err(e),
    }
}

struct OpenDirectory {
    file: File,
    path: PathBuf,
}

impl Directory for OpenDirectory {
    fn sync(&self) -> Result<()> {
        match self.file.sync_all() {
            Err(e) if calls::knows_no_dir_sync(&e) => Ok(()),
            other => other.map_err(|e| Error::io("sync the directory", &self.path, e)),
        }
    }
}

#[cfg(all(test, target_os = "linux", not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn a_file_system_that_cannot_sync_directories_is_taken_as_it_is() {
        let dir = File::open("/proc").unwrap();
        assert_eq!(dir.sync_all().unwrap_err().raw_os_error(), Some(libc::EINVAL));
        SystemFs::new().sync_dir(Path::new("/proc")).unwrap();
        let kind = SystemFs::new().kind(Path::new("/proc")).unwrap();
        assert!(!kind.stores_in_place, "{kind:?}");
    }

    #[test]
    fn a_relative_path_is_made_absolute_by_the_directory_in_which_the_process_works() {
        let fs = SystemFs::new();
        let expected = std::env::current_dir().unwrap().join("a/b");
        assert_eq!(fs.absolute(Path::new("a/b")).unwrap(), expected);
        assert_eq!(fs.absolute(Path::new("/a/b")).unwrap(), Path::new("/a/b"));
        assert!(fs.absolute(Path::new("")).is_err());
    }

    #[test]
    fn the_system_tells_how_many_files_may_be_open() {
        let open = std::fs::read_dir("/proc/self/fd").unwrap().count() as u64;
        assert!(SystemFs::new().open_files_max().unwrap() >= open);
    }
}
