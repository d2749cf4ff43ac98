//! The bytes of a file, and what is needed to undo writes that a power cut may lose.
//!
//! `bytes` is what readers see. For each sector that was written since its last sync, the writes
//! are kept in order, each with the bytes that it replaced. Undoing the last of them gives the
//! sector as it was before.

use super::Steps;
use super::crash::{Unsynced, UnsyncedKind};
use crate::host::sync::atomic::{AtomicU64, Ordering};
use crate::host::sync::{Mutex, MutexGuard, Rank};
use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

pub(super) const SECTOR_LEN: u64 = 512;

/// How many bytes all files together may have, and how many they have.
pub(super) struct Space {
    capacity: AtomicU64,
    used: AtomicU64,
}

impl Space {
    pub(super) fn new(capacity: u64) -> Self {
        Space { capacity: AtomicU64::new(capacity), used: AtomicU64::new(0) }
    }

    pub(super) fn set_capacity(&self, bytes: u64) {
        self.capacity.store(bytes, Ordering::Relaxed);
    }

    pub(super) fn capacity(&self) -> u64 {
        self.capacity.load(Ordering::Relaxed)
    }

    pub(super) fn free(&self) -> u64 {
        self.capacity().saturating_sub(self.used.load(Ordering::Relaxed))
    }

    fn take(&self, bytes: u64) -> io::Result<()> {
        // Overwriting needs no room, even on a disk that already holds more than its capacity.
        let capacity = self.capacity();
        let grown =
            |used: u64| used.checked_add(bytes).filter(|used| bytes == 0 || *used <= capacity);
        match self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, grown) {
            Ok(_) => Ok(()),
            Err(_) => Err(ErrorKind::StorageFull.into()),
        }
    }

    fn give_back(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// The bytes of one sector that one write replaced.
#[derive(Clone)]
struct Replaced {
    step: u64,
    /// The offset in the file.
    start: usize,
    len: usize,
    /// `None` if there were no bytes; undoing then gives zeros.
    bytes: Option<Box<[u8]>>,
}

/// The writes to a sector since it was synced, oldest first.
#[derive(Clone, Default)]
struct Sector {
    writes: Vec<Replaced>,
    /// False after a failed sync: the kernel takes the sector for clean, and later syncs leave it
    /// out.
    dirty: bool,
}

/// The content of a file, without its names.
pub(super) struct File {
    data: Mutex<Data>,
    space: Arc<Space>,
}

pub(super) struct Data {
    /// Shared with mapped readers. A write copies the bytes once while readers hold them.
    bytes: Arc<Vec<u8>>,
    sectors: BTreeMap<u64, Sector>,
    /// The file's lengths since its last sync, each with the step that changed it.
    lengths: Vec<(u64, usize)>,
    locked: bool,
}

impl File {
    pub(super) fn new(space: Arc<Space>) -> Self {
        let data = Data {
            bytes: Arc::default(),
            sectors: BTreeMap::new(),
            lengths: Vec::new(),
            locked: false,
        };
        File { data: Mutex::new(Rank::MemoryFile, data), space }
    }

    /// Locks the file's data, besides those of other files. The caller holds the lock of the tree.
    pub(super) fn hold_beside(&self) -> MutexGuard<'_, Data> {
        self.data.lock_beside()
    }

    pub(super) fn len(&self) -> u64 {
        self.data.lock().bytes.len() as u64
    }

    pub(super) fn contents(&self) -> Arc<Vec<u8>> {
        Arc::clone(&self.data.lock().bytes)
    }

    /// Lengthens an empty file as if zeros had been written and synced.
    pub(super) fn grow_with_zeros(&self, len: u64) -> io::Result<()> {
        let zeros = usize::try_from(len).map_err(|_| ErrorKind::FileTooLarge)?;
        self.space.take(len)?;
        self.data.lock().bytes = Arc::new(vec![0; zeros]);
        Ok(())
    }

    /// Writes over existing bytes or directly after them.
    pub(super) fn write(&self, start: usize, bytes: &[u8], steps: &Steps) -> io::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let mut data = self.data.lock();
        let len = data.bytes.len();
        let end = start.checked_add(bytes.len()).ok_or(ErrorKind::FileTooLarge)?;
        self.space.take(end.saturating_sub(len) as u64)?;
        let step = steps.next();
        data.remember(step, start, end);
        if end > len {
            data.lengths.push((step, len));
        }
        let target = Arc::make_mut(&mut data.bytes);
        target.resize(end.max(len), 0);
        target[start..end].copy_from_slice(bytes);
        Ok(())
    }

    pub(super) fn read(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let data = self.data.lock();
        buf.copy_from_slice(slice(&data.bytes, offset, buf.len())?);
        Ok(())
    }

    pub(super) fn sync(&self) {
        let mut data = self.data.lock();
        data.sectors.retain(|_, sector| !sector.dirty);
        data.lengths.clear();
    }

    /// Syncs the sectors that overlap `range`. A real system syncs at least whole pages, but the
    /// engine must not rely on that.
    pub(super) fn sync_range(&self, range: Range<u64>) {
        let synced = sectors_of(&range);
        let mut data = self.data.lock();
        data.sectors.retain(|index, sector| !(sector.dirty && synced.contains(index)));
    }

    /// The effect of a failed sync of the sectors that overlap `range`.
    pub(super) fn lose_dirt(&self, range: Range<u64>) {
        let mut data = self.data.lock();
        let sectors = data.sectors.range_mut(sectors_of(&range));
        sectors.for_each(|(_, sector)| sector.dirty = false);
    }

    /// Takes the file's lock if it is free.
    pub(super) fn try_lock(&self) -> bool {
        !std::mem::replace(&mut self.data.lock().locked, true)
    }

    pub(super) fn unlock(&self) {
        self.data.lock().locked = false;
    }

    /// Changes a byte on the disk and for readers. It is not a step.
    pub(super) fn flip(&self, offset: u64, xor: u8) -> io::Result<()> {
        let mut data = self.data.lock();
        slice(&data.bytes, offset, 1)?;
        Arc::make_mut(&mut data.bytes)[offset as usize] ^= xor;
        Ok(())
    }

    /// Cuts the file. What remains counts as synced. It is not a step.
    pub(super) fn cut(&self, len: u64) -> io::Result<()> {
        let mut data = self.data.lock();
        slice(&data.bytes, 0, usize::try_from(len).map_err(|_| ErrorKind::UnexpectedEof)?)?;
        self.space.give_back(data.bytes.len() as u64 - len);
        Arc::make_mut(&mut data.bytes).truncate(len as usize);
        data.sectors.clear();
        data.lengths.clear();
        Ok(())
    }

    /// Returns the file to what a power cut leaves of it, as `choice` decides.
    pub(super) fn lose_power(&self, path: &Path, choice: &mut dyn FnMut(&Unsynced<'_>) -> usize) {
        let mut data = self.data.lock();
        for (index, sector) in std::mem::take(&mut data.sectors) {
            let steps: Vec<u64> = sector.writes.iter().map(|w| w.step).collect();
            let kind = UnsyncedKind::Sector { offset: index * SECTOR_LEN };
            let kept = choice(&Unsynced { path, kind, steps: &steps }).min(steps.len());
            let bytes = Arc::make_mut(&mut data.bytes);
            for write in sector.writes[kept..].iter().rev() {
                let target = &mut bytes[write.start..write.start + write.len];
                match &write.bytes {
                    Some(replaced) => target.copy_from_slice(replaced),
                    None => target.fill(0),
                }
            }
        }
        let lengths = std::mem::take(&mut data.lengths);
        if lengths.is_empty() {
            return;
        }
        let steps: Vec<u64> = lengths.iter().map(|(step, _)| *step).collect();
        let kept = choice(&Unsynced { path, kind: UnsyncedKind::Length, steps: &steps });
        if let Some((_, len)) = lengths.get(kept) {
            self.space.give_back((data.bytes.len() - len) as u64);
            Arc::make_mut(&mut data.bytes).truncate(*len);
        }
    }
}

impl Drop for File {
    fn drop(&mut self) {
        self.space.give_back(self.len());
    }
}

impl Data {
    /// The same file on another disk. Its lock is free.
    pub(super) fn copy(&self, space: &Arc<Space>) -> File {
        let data = Data {
            bytes: Arc::clone(&self.bytes),
            sectors: self.sectors.clone(),
            lengths: self.lengths.clone(),
            locked: false,
        };
        // The bytes count even beyond the capacity: they are there already.
        space.used.fetch_add(self.bytes.len() as u64, Ordering::Relaxed);
        File { data: Mutex::new(Rank::MemoryFile, data), space: Arc::clone(space) }
    }

    /// Keeps the bytes that a write from `start` to `end` is about to replace.
    fn remember(&mut self, step: u64, start: usize, end: usize) {
        let mut at = start;
        while at < end {
            let index = at as u64 / SECTOR_LEN;
            let piece_end = end.min((index as usize + 1) * SECTOR_LEN as usize);
            let there = at.min(self.bytes.len())..piece_end.min(self.bytes.len());
            let bytes = (!there.is_empty()).then(|| {
                let mut bytes = self.bytes[there].to_vec();
                bytes.resize(piece_end - at, 0);
                bytes.into_boxed_slice()
            });
            let sector = self.sectors.entry(index).or_default();
            sector.dirty = true;
            sector.writes.push(Replaced { step, start: at, len: piece_end - at, bytes });
            at = piece_end;
        }
    }
}

/// The sectors that overlap `range`.
fn sectors_of(range: &Range<u64>) -> Range<u64> {
    range.start / SECTOR_LEN..range.end.div_ceil(SECTOR_LEN)
}

/// The `len` bytes from `offset`, if all of them exist.
pub(super) fn slice(bytes: &[u8], offset: u64, len: usize) -> io::Result<&[u8]> {
    usize::try_from(offset)
        .ok()
        .and_then(|start| bytes.get(start..start.checked_add(len)?))
        .ok_or_else(|| ErrorKind::UnexpectedEof.into())
}
