//! The operating system's file system.
//!
//! Names and directories are here; each kind of open file has a file beside this one: [`reader`] (tables and
//! blobs), [`appender`] (whatever grows), [`segment`] (the log), [`lock`]. What the standard library does not
//! offer is in [`calls`].
//!
//! Mapped bytes are only ever copied, in and out, through raw pointers: a program outside may change a file at any time,
//! and no reference may say otherwise. An I/O error of the device under a mapping, or a file that another program cuts,
//! raises SIGBUS; [`ReadMode::Positional`] makes it an error.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)] // They are banned everywhere else.

mod appender;
mod calls;
mod lock;
mod reader;
mod segment;

use super::{DirEntry, FileLock, FileSystem, ReadFile, ReadMode, SegmentFile, WriteFile};
use crate::error::{Error, Result};
use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::sync::Arc;

/// The operating system's file system.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemFs;

impl SystemFs {
    /// The one there is.
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
            // Follows links: a directory of the database may stand on another disk.
            let metadata = match fs::metadata(entry.path()) {
                Ok(metadata) => metadata,
                // Removed since, or a dangling link: in both cases there is nothing of this name.
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

    fn open_read(&self, path: &Path, mode: ReadMode) -> Result<Arc<dyn ReadFile>> {
        reader::open(path, mode)
    }

    fn create(&self, path: &Path) -> Result<Box<dyn WriteFile>> {
        Ok(Box::new(appender::Appender::create(path)?))
    }

    unsafe fn open_segment(
        &self,
        path: &Path,
        len: u64,
        mode: ReadMode,
    ) -> Result<Arc<dyn SegmentFile>> {
        segment::open(path, len, mode)
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        fs::rename(from, to).map_err(|e| Error::io("rename", from, e))
    }

    fn link(&self, from: &Path, to: &Path) -> Result<()> {
        fs::hard_link(from, to).map_err(|e| Error::io("link", from, e))
    }

    fn remove(&self, path: &Path) -> Result<()> {
        fs::remove_file(path).map_err(|e| Error::io("remove", path, e))
    }

    fn remove_dir(&self, path: &Path) -> Result<()> {
        fs::remove_dir(path).map_err(|e| Error::io("remove the directory", path, e))
    }

    fn sync_dir(&self, dir: &Path) -> Result<()> {
        let opened = File::open(dir).map_err(|e| Error::io("open the directory", dir, e))?;
        opened.sync_all().map_err(|e| Error::io("sync the directory", dir, e))
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn FileLock>> {
        Ok(Box::new(lock::HeldLock::take(path)?))
    }

    fn free_space(&self, dir: &Path) -> Result<u64> {
        calls::free_space(dir).map_err(|e| Error::io("measure the free space of", dir, e))
    }
}
