//! What remains after the process dies, after a power cut, and after the disk decays.

use super::file::{File, Space};
use super::tree::{Node, Tree};
use super::{Error, MemoryFs, Result};
use std::collections::{HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A change that was not synced when the power was cut. It may or may not survive.
#[derive(Clone, Copy, Debug)]
pub struct Unsynced<'a> {
    /// The file, or the name that a directory gained, lost or changed.
    pub path: &'a Path,
    /// What the change is about.
    pub kind: UnsyncedKind,
    /// The steps that changed it since it was synced, oldest first. It survives as the first few of
    /// these steps made it. Steps are numbered over the whole file system, so cutting every change
    /// at the same number leaves exactly the state of that moment.
    pub steps: &'a [u64],
}

/// The part of a file or a directory that was not synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum UnsyncedKind {
    /// The 512 bytes of the file from this offset.
    Sector {
        /// The offset in bytes from the start of the file.
        offset: u64,
    },
    /// The length of the file.
    Length,
    /// A name in a directory.
    Name,
}

impl Unsynced<'_> {
    /// How many of the steps are at or before `step`. A choice that returns this number leaves the
    /// state of that moment.
    pub fn steps_until(&self, step: u64) -> usize {
        self.steps.partition_point(|s| *s <= step)
    }
}

impl MemoryFs {
    /// What the death of the process leaves: everything that reached the kernel, with unsynced
    /// changes still unsynced. Locks are free, faults are gone, the capacity stays.
    pub fn killed(&self) -> MemoryFs {
        let space = Arc::new(Space::new(self.disk.space.capacity()));
        // All names and all files are locked before the first is copied. Nothing that is locked can
        // have caused a later change elsewhere, so the copies belong to one state.
        let names = self.disk.tree.lock();
        let mut tree = names.clone();
        tree.forget_failed_syncs();
        let originals: HashMap<*const File, Arc<File>> =
            tree.files_mut().map(|file| (Arc::as_ptr(file), Arc::clone(file))).collect();
        // No other thread holds two files: for that it would need the lock of the tree.
        let held: Vec<_> = originals.iter().map(|(id, file)| (*id, file.hold_beside())).collect();
        let copies: HashMap<*const File, Arc<File>> =
            held.iter().map(|(id, data)| (*id, Arc::new(data.copy(&space)))).collect();
        let steps = self.steps();
        drop((held, names));
        for file in tree.files_mut() {
            *file = Arc::clone(&copies[&Arc::as_ptr(file)]);
        }
        let left = MemoryFs::with(tree, steps, space);
        let kind = self.disk.kind.lock().clone();
        left.set_kind(kind);
        left
    }

    /// What a power cut leaves: everything that was synced, and of each unsynced change as many of
    /// its steps as `choice` returns. `|_| 0` loses all of them, `|u| u.steps.len()` loses none,
    /// `|u| u.steps_until(n)` loses what came after step n. The result counts as synced.
    pub fn crashed(&self, mut choice: impl FnMut(&Unsynced<'_>) -> usize) -> MemoryFs {
        let left = self.killed();
        left.disk.tree.lock().lose_power(&mut choice);
        left
    }

    /// Flips the bits of `xor` in one byte, on the disk and for readers, but not for readers that
    /// mapped the file before. If the sector is not synced, a power cut may undo the change.
    pub fn corrupt(&self, path: &Path, offset: u64, xor: u8) -> Result<()> {
        self.damage("corrupt", path, |file| file.flip(offset, xor))
    }

    /// Cuts a file to `len` bytes, which then count as synced.
    pub fn truncate(&self, path: &Path, len: u64) -> Result<()> {
        self.damage("truncate", path, |file| file.cut(len))
    }

    fn damage(
        &self,
        action: &'static str,
        path: &Path,
        body: impl FnOnce(&File) -> io::Result<()>,
    ) -> Result<()> {
        let file = self.disk.tree.lock().file(path);
        file.and_then(|file| body(&file)).map_err(|e| Error::io(action, path, e))
    }
}

impl Tree {
    fn lose_power(&mut self, choice: &mut dyn FnMut(&Unsynced<'_>) -> usize) {
        let mut cut = HashSet::new();
        let mut dirs = vec![(0, PathBuf::from("/"))];
        while let Some((id, path)) = dirs.pop() {
            let dir = &mut self.dirs[id];
            for change in std::mem::take(&mut dir.unsynced) {
                let path = path.join(change.name());
                let steps = [change.step];
                if choice(&Unsynced { path: &path, kind: UnsyncedKind::Name, steps: &steps }) > 0 {
                    change.apply(&mut dir.synced);
                }
            }
            dir.names = dir.synced.clone();
            for (name, node) in &dir.names {
                let path = path.join(name);
                match node {
                    Node::Dir(child) => dirs.push((*child, path)),
                    Node::File(file) if cut.insert(Arc::as_ptr(file)) => {
                        file.lose_power(&path, choice);
                    }
                    Node::File(_) => {}
                }
            }
        }
    }
}
