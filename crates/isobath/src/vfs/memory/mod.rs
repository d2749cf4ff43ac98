//! A file system in memory that can fail and lose power on purpose.
//!
//! It is deterministic: it has no clock, no thread and no seed of its own, lists names in order,
//! and numbers every change (its *steps*). Clones share one state, as processes share a disk.
//!
//! # The device it models
//!
//! - A sector of 512 bytes is atomic. After a power cut it holds what it held at its last sync, or
//!   what some later write to it left, but never a part of a write. Sectors survive independently
//!   of each other.
//! - A file's length survives independently of its bytes. Where the length survives and a sector
//!   does not, the sector holds what was there before; zeros if there was nothing.
//! - `sync` and `sync_range` make the bytes and the length of one file survive. A directory's
//!   `sync` makes the names of that directory survive. Neither does the other's work, and closing a
//!   file does nothing.
//! - Changes to names also survive independently of each other. A rename within a directory is one
//!   change; a rename between directories is two.
//! - A `sync` or `sync_range` that fails leaves its sectors marked as clean, as kernels do. Readers
//!   still see them, but later syncs do not cover them until they are written again. A directory's
//!   `sync` that fails does the same to changes of names: no later sync covers them, until a sync
//!   covers a later change of the same name, or the process has died.
//! - What a write replaces is kept until it is synced. So a file that is never synced costs memory
//!   for every write to it.
//! - Bytes that an appender buffers have not reached the kernel and are lost with the process.
//!
//! [`MemoryFs::killed`] and [`MemoryFs::crashed`] return what the death of the process and a power
//! cut leave. Handles of the old state change nothing in the new one.

mod crash;
mod fault;
mod file;
mod handle;
#[cfg(test)]
mod tests;
mod tree;

pub use crash::{Unsynced, UnsyncedKind};
pub use fault::{Fault, FileOp};

use super::appender::Appender;
use super::{
    DirEntry, Directory, FileAccess, FileLock, FileSystem, FileSystemKind, ReadFile, SegmentFile,
    WriteFile,
};
use crate::error::{Error, LockHolder, Result};
use crate::host::demand_no_locks_at_low_priority;
use crate::host::sync::atomic::{AtomicU64, Ordering};
use crate::host::sync::{Mutex, Rank};
use fault::{Faults, Strike};
use file::{File, Space};
use std::io;
use std::path::Path;
use std::sync::Arc;
use tree::{Node, Tree};

/// A file system in memory. A clone is another handle of the same one.
#[derive(Clone)]
pub struct MemoryFs {
    disk: Arc<Disk>,
}

/// What the clones of a file system share. The lock of the tree is taken before that of a file,
/// never after it.
struct Disk {
    tree: Mutex<Tree>,
    steps: Steps,
    space: Arc<Space>,
    faults: Faults,
    kind: Mutex<FileSystemKind>,
}

/// Numbers the changes in the order in which they are made.
#[derive(Debug, Default)]
struct Steps(AtomicU64);

impl Steps {
    fn next(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed) + 1
    }
}

impl MemoryFs {
    /// An empty file system: a root directory, and no limit of its size.
    pub fn new() -> Self {
        MemoryFs::with(Tree::new(), 0, Arc::new(Space::new(u64::MAX)))
    }

    fn with(tree: Tree, steps: u64, space: Arc<Space>) -> Self {
        let steps = Steps(AtomicU64::new(steps));
        let kind = FileSystemKind { name: "memory".to_owned(), stores_in_place: true };
        let (faults, kind) = (Faults::default(), Mutex::new(Rank::MemoryKind, kind));
        let disk = Disk { tree: Mutex::new(Rank::MemoryTree, tree), steps, space, faults, kind };
        MemoryFs { disk: Arc::new(disk) }
    }

    /// Limits the bytes of all files together. A write that would exceed the limit fails as on a
    /// full disk. Existing bytes stay, even if they exceed it.
    pub fn set_capacity(&self, bytes: u64) {
        self.disk.space.set_capacity(bytes);
    }

    /// Sets the kind of file system that [`FileSystem::kind`] returns from now on.
    pub fn set_kind(&self, kind: FileSystemKind) {
        *self.disk.kind.lock() = kind;
    }

    /// Adds a fault, which can strike from now on.
    pub fn inject(&self, fault: Fault) {
        self.disk.faults.add(fault);
    }

    /// Removes all faults. Their effects so far remain.
    pub fn clear_faults(&self) {
        self.disk.faults.clear();
    }

    /// How often an operation has been tried, failed attempts included.
    pub fn tried(&self, op: FileOp) -> u64 {
        self.disk.faults.tried(op)
    }

    /// How many bytes reads of files have asked for.
    #[cfg(all(test, not(any(loom, shuttle))))]
    pub(crate) fn read_bytes(&self) -> u64 {
        self.disk.faults.read_bytes()
    }

    /// How many operations have failed because of a fault.
    pub fn struck(&self) -> u64 {
        self.disk.faults.struck()
    }

    /// How many changes have been made: writes to files and changes to names. See
    /// [`Unsynced::steps`].
    pub fn steps(&self) -> u64 {
        self.disk.steps.0.load(Ordering::Relaxed)
    }
}

impl Default for MemoryFs {
    fn default() -> Self {
        MemoryFs::new()
    }
}

impl std::fmt::Debug for MemoryFs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemoryFs").field("steps", &self.steps()).finish_non_exhaustive()
    }
}

impl Disk {
    /// Applies `body` to the tree as one step, unless a fault strikes before that.
    fn with_names<T>(
        &self,
        op: FileOp,
        action: &'static str,
        path: &Path,
        body: impl FnOnce(&mut Tree) -> io::Result<T>,
    ) -> Result<T> {
        let struck = self.faults.strike_bytes(op, path, 0, usize::MAX);
        let done = match struck {
            Ok(()) => body(&mut self.tree.lock()),
            Err(Strike { is_late, error, .. }) => {
                if is_late {
                    let _ = body(&mut self.tree.lock());
                }
                Err(error)
            }
        };
        done.map_err(|e| Error::io(action, path, e))
    }

    fn new_file(&self) -> Arc<File> {
        Arc::new(File::new(Arc::clone(&self.space)))
    }
}

impl FileSystem for MemoryFs {
    fn create_dir_all(&self, path: &Path) -> Result<()> {
        self.disk.with_names(FileOp::CreateDir, "create the directory", path, |tree| {
            tree.create_dir_all(path, &self.disk.steps)
        })
    }

    fn list(&self, dir: &Path) -> Result<Vec<DirEntry>> {
        self.disk.with_names(FileOp::List, "list", dir, |tree| {
            let entry = |(name, node): (&String, &Node)| match node {
                Node::File(file) => DirEntry { name: name.clone(), len: file.len(), is_dir: false },
                Node::Dir(_) => DirEntry { name: name.clone(), len: 0, is_dir: true },
            };
            Ok(tree.entries(dir)?.iter().map(entry).collect())
        })
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        self.disk.with_names(FileOp::Exists, "look for", path, |tree| match tree.find(path) {
            Ok(_) => Ok(true),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(e) => Err(e),
        })
    }

    fn open_read(&self, path: &Path, mode: FileAccess) -> Result<Arc<dyn ReadFile>> {
        let file = self.disk.with_names(FileOp::OpenRead, "open", path, |tree| tree.file(path))?;
        Ok(Arc::new(handle::Reader::new(Arc::clone(&self.disk), file, path, mode)))
    }

    fn create(&self, path: &Path) -> Result<Box<dyn WriteFile>> {
        let file = self.disk.with_names(FileOp::Create, "create", path, |tree| {
            let file = self.disk.new_file();
            tree.add(path, Node::File(Arc::clone(&file)), &self.disk.steps)?;
            Ok(file)
        })?;
        Ok(Box::new(Appender::new(handle::Tail::new(Arc::clone(&self.disk), file, path), path)))
    }

    unsafe fn open_segment(
        &self,
        path: &Path,
        len: u64,
        _: FileAccess,
    ) -> Result<Arc<dyn SegmentFile>> {
        let file = self.disk.with_names(FileOp::OpenSegment, "open", path, |tree| {
            if tree.find(path).is_ok() {
                let file = tree.file(path)?;
                if file.len() != len {
                    return Err(io::ErrorKind::AlreadyExists.into());
                }
                return Ok(file);
            }
            let file = self.disk.new_file();
            file.grow_with_zeros(len)?;
            tree.add(path, Node::File(Arc::clone(&file)), &self.disk.steps)?;
            Ok(file)
        })?;
        Ok(Arc::new(handle::Segment::new(Arc::clone(&self.disk), file, path)))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.disk.with_names(FileOp::Rename, "rename", from, |tree| match tree.find(to) {
            Ok(_) => Err(io::ErrorKind::AlreadyExists.into()),
            Err(_) => tree.rename(from, to, &self.disk.steps),
        })
    }

    fn replace(&self, from: &Path, to: &Path) -> Result<()> {
        self.disk.with_names(FileOp::Rename, "rename", from, |tree| {
            tree.rename(from, to, &self.disk.steps)
        })
    }

    fn link(&self, from: &Path, to: &Path) -> Result<()> {
        self.disk.with_names(FileOp::Link, "link", from, |tree| match tree.find(from)? {
            Node::File(file) => tree.add(to, Node::File(file), &self.disk.steps),
            Node::Dir(_) => Err(io::ErrorKind::PermissionDenied.into()),
        })
    }

    fn remove(&self, path: &Path) -> Result<()> {
        demand_no_locks_at_low_priority("removes a file");
        self.disk.with_names(FileOp::Remove, "remove", path, |tree| {
            tree.file(path)?;
            tree.take(path, &self.disk.steps)
        })
    }

    fn remove_dir(&self, path: &Path) -> Result<()> {
        self.disk.with_names(FileOp::RemoveDir, "remove the directory", path, |tree| {
            if !tree.entries(path)?.is_empty() {
                return Err(io::ErrorKind::DirectoryNotEmpty.into());
            }
            tree.take(path, &self.disk.steps)
        })
    }

    fn open_dir(&self, dir: &Path) -> Result<Arc<dyn Directory>> {
        let open = |tree: &mut Tree| tree.dir(dir);
        let id = self.disk.with_names(FileOp::OpenDir, "open the directory", dir, open)?;
        Ok(Arc::new(handle::OpenDirectory::new(Arc::clone(&self.disk), id, dir)))
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn FileLock>> {
        let file = self.disk.with_names(FileOp::Lock, "lock", path, |tree| {
            if tree.find(path).is_ok() {
                return tree.file(path);
            }
            let file = self.disk.new_file();
            tree.add(path, Node::File(Arc::clone(&file)), &self.disk.steps)?;
            Ok(file)
        })?;
        match handle::HeldLock::take(file) {
            Some(held) => Ok(Box::new(held)),
            None => Err(Error::locked(path.parent().unwrap_or(path), LockHolder::ThisProcess)),
        }
    }

    /// This model allows only one shared lock at a time.
    fn lock_shared(&self, path: &Path) -> Result<Option<Box<dyn FileLock>>> {
        let found = self
            .disk
            .with_names(FileOp::Exists, "look for", path, |tree| Ok(tree.find(path).is_ok()))?;
        if found { self.lock(path).map(Some) } else { Ok(None) }
    }

    fn free_space(&self, dir: &Path) -> Result<u64> {
        self.disk.with_names(FileOp::FreeSpace, "measure the free space of", dir, |tree| {
            tree.find(dir)?;
            Ok(self.disk.space.free())
        })
    }

    fn kind(&self, _dir: &Path) -> Result<FileSystemKind> {
        Ok(self.disk.kind.lock().clone())
    }
}
