//! What is left after the process dies, after the power is cut, and after the disk rots.

use super::file::{File, Space};
use super::tree::{Node, Tree};
use super::{Error, MemoryFs, Result};
use std::collections::{HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Something that was not synced when the power was cut, so that it may or may not be there
/// afterwards.
#[derive(Clone, Copy, Debug)]
pub struct Unsynced<'a> {
    /// The file, or the name that a directory gained, lost or changed.
    pub path: &'a Path,
    /// What of it.
    pub kind: UnsyncedKind,
    /// The steps that changed it since it was synced, oldest first: it is left as some of them,
    /// from the first on, made it. Steps are numbered over the whole file system, so that
    /// cutting each at the same number leaves exactly what was there at that moment.
    pub steps: &'a [u64],
}

/// What of a file or a directory was not synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum UnsyncedKind {
    /// The 512 bytes from this offset of the file.
    Sector {
        /// In bytes from the start of the file.
        offset: u64,
    },
    /// The length of the file.
    Length,
    /// A name in a directory.
    Name,
}

impl Unsynced<'_> {
    /// How many of the steps are at or before `step`: to be returned where a cut is to leave what
    /// was there at that moment.
    pub fn steps_until(&self, step: u64) -> usize {
        self.steps.partition_point(|s| *s <= step)
    }
}

impl MemoryFs {
    /// What the death of the process leaves: all that reached the kernel, still unsynced where it
    /// was. Locks are free, faults are gone, the capacity stays.
    pub fn killed(&self) -> MemoryFs {
        let space = Arc::new(Space::new(self.disk.space.capacity()));
        // Names and all files are held still before the first is copied. Nothing that is held still
        // can have been the cause of a later change elsewhere, so the copies are of states
        // that belong together.
        let names = self.disk.tree.lock();
        let mut tree = names.clone();
        tree.forget_failed_syncs();
        let originals: HashMap<*const File, Arc<File>> =
            tree.files_mut().map(|file| (Arc::as_ptr(file), Arc::clone(file))).collect();
        // No other thread holds two files: it would need the lock of the tree.
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

    /// What a power cut leaves: all that was synced, and of each thing that was not, as many of its
    /// steps as `choice` says. `|_| 0` loses all of it, `|u| u.steps.len()` none, `|u|
    /// u.steps_until(n)` what came after step n. What is left is synced.
    pub fn crashed(&self, mut choice: impl FnMut(&Unsynced<'_>) -> usize) -> MemoryFs {
        let left = self.killed();
        left.disk.tree.lock().lose_power(&mut choice);
        left
    }

    /// Flips the bits of `xor` in one byte, on the disk and for readers; not for those who mapped
    /// the file before. On a sector that is not synced, a power cut may undo it.
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
