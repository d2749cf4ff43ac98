//! The room on the disk that writers leave to flushes and compactions.
//!
//! A tree becomes smaller by compactions, which first need room. If writers took the last of it, a
//! database of which most is garbage would stay full until somebody else makes room. So the log
//! makes no segment, and no file is begun for a writer, while less is free than is kept: as much as
//! lies in the log and no table has yet, so that a flush of it finds room; and some write buffers
//! more, so that a compaction of short runs does. Writers get the error of a full disk a little
//! earlier.
//!
//! For compactions no more is kept than a part of what the database holds: a small one keeps little,
//! and an empty one nothing. Once a compaction has found no room, more is kept, until one is carried
//! out.

use super::{Engine, Keyspace};
use crate::env::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use crate::error::{Error, Result};
use crate::vfs::FileSystem;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// Write buffers that are kept, and after a compaction has found no room.
const BUFFERS: [u64; 2] = [4, 16];
/// At most one part in so many of what the database holds is kept.
const PARTS: [u64; 2] = [4, 2];

/// The room that is kept.
pub(crate) struct DiskRoom {
    fs: Arc<dyn FileSystem>,
    dir: PathBuf,
    buffer_len: u64,
    /// The bytes of the database's tables, about.
    held: AtomicU64,
    /// A compaction has found no room, and none was carried out since.
    is_short: AtomicBool,
    /// What was free when compactions were last called on to try again, since one was carried out.
    tried_with: AtomicU64,
}

impl DiskRoom {
    pub(crate) fn new(fs: Arc<dyn FileSystem>, dir: PathBuf, buffer_len: u64) -> Arc<DiskRoom> {
        let (held, tried_with) = (AtomicU64::new(0), AtomicU64::new(0));
        Arc::new(DiskRoom {
            fs,
            dir,
            buffer_len,
            held,
            is_short: AtomicBool::new(false),
            tried_with,
        })
    }

    /// Notes what the database holds.
    pub(crate) fn note_held(&self, bytes: u64) {
        self.held.store(bytes, Relaxed);
    }

    /// Notes that it holds more, by a flush.
    pub(crate) fn note_more(&self, bytes: u64) {
        self.held.fetch_add(bytes, Relaxed);
    }

    /// Notes how a compaction has ended.
    pub(crate) fn note_compaction(&self, failure: Option<&Error>) {
        match failure {
            None => {
                self.is_short.store(false, Relaxed);
                self.tried_with.store(0, Relaxed);
            }
            Some(error) if error.is_out_of_space() => self.is_short.store(true, Relaxed),
            Some(_) => {}
        }
    }

    /// What is kept for compactions.
    fn kept(&self, is_short: bool) -> u64 {
        let which = usize::from(is_short);
        self.buffer_len.saturating_mul(BUFFERS[which]).min(self.held.load(Relaxed) / PARTS[which])
    }

    /// What is free; more than any disk has if the system cannot tell.
    fn free(&self) -> u64 {
        self.fs.free_space(&self.dir).unwrap_or(u64::MAX)
    }

    /// Fails if a writer must not take room now, as so many bytes are to be flushed.
    pub(crate) fn admit(&self, unflushed: u64) -> Result<()> {
        let kept = unflushed + self.kept(self.is_short.load(Relaxed));
        if kept == 0 || self.free() >= kept {
            return Ok(());
        }
        let why = format!(
            "the last {kept} bytes of the disk are kept for flushes and compactions, which may make room"
        );
        let source = io::Error::new(io::ErrorKind::StorageFull, why);
        Err(Error::io("take room for a write in", &self.dir, source))
    }

    /// True if a compaction has found no room, and more is free now than is kept then: it should be
    /// tried again at once, before writers take that, too. If it finds no room again, this is false
    /// until twice as much is free.
    pub(crate) fn calls_for_compactions(&self) -> bool {
        if !self.is_short.load(Relaxed) {
            return false;
        }
        let (free, tried_with) = (self.free(), self.tried_with.load(Relaxed));
        let calls = free > self.kept(true) && free / 2 > tried_with;
        if calls {
            self.tried_with.store(free, Relaxed);
        }
        calls
    }
}

impl Engine {
    /// Fails if a writer must not begin a file of its own now.
    pub(crate) fn admit_file(&self) -> Result<()> {
        self.disk_room.admit(self.log.used_bytes())
    }

    /// Looks how much the database holds.
    pub(crate) fn note_held_bytes(&self) {
        let of_family = |family: &Arc<Keyspace>| {
            let view = family.view();
            (0..view.tree.level_count()).map(|level| view.tree.held_bytes(level)).sum::<u64>()
        };
        self.disk_room.note_held(self.families.all().iter().map(of_family).sum());
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::vfs::MemoryFs;

    fn full() -> Error {
        Error::io("write", "table".as_ref(), io::ErrorKind::StorageFull.into())
    }

    #[test]
    fn some_buffers_are_kept_and_more_once_a_compaction_found_no_room() {
        let fs = MemoryFs::new();
        let room = DiskRoom::new(Arc::new(fs.clone()), "/".into(), 100);
        let is_admitted = |free| {
            fs.set_capacity(free);
            room.admit(0).is_ok()
        };
        assert!(is_admitted(0), "an empty database keeps nothing");
        room.note_held(1000);
        room.note_more(600);
        assert!(is_admitted(400) && !is_admitted(399), "four buffers, a quarter");
        room.note_compaction(Some(&Error::closed()));
        assert!(is_admitted(400) && !room.calls_for_compactions());
        room.note_compaction(Some(&full()));
        assert!(is_admitted(800) && !is_admitted(799), "half");
        assert!(!room.calls_for_compactions());
        room.note_held(10_000);
        assert!(is_admitted(1600) && !is_admitted(1599), "sixteen buffers");
        let mut calls = |free| {
            fs.set_capacity(free);
            room.calls_for_compactions()
        };
        assert_eq!(
            [1600, 1601, 1602, 3203, 3204].map(&mut calls),
            [false, true, false, false, true]
        );
        room.note_compaction(Some(&full()));
        assert_eq!([1601, 6500].map(&mut calls), [false, true]);
        room.note_compaction(None);
        assert!(!calls(50_000));
        room.note_compaction(Some(&full()));
        assert!(calls(1601));
        room.note_compaction(None);
        assert!(is_admitted(400) && !is_admitted(399));
        fs.set_capacity(450);
        assert!(room.admit(50).is_ok() && room.admit(51).is_err());
        let error = room.admit(51).unwrap_err();
        assert!(error.is_out_of_space() && error.is_retryable(), "{error}");
    }
}
