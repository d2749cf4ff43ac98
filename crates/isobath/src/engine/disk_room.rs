//! The room on the disk that writers leave to flushes and compactions.
//!
//! A tree becomes smaller by compactions, which first need room. If writers took the last of it, a
//! database of which most is garbage would stay full until another program makes room. So the log
//! makes no segment, and no file is begun for a stream or a spilled transaction, while less is free
//! than is kept: as much as lies in the log and no table has yet, so that a flush of it finds room;
//! and some write buffers more, so that a compaction of short runs does. Writers get the error of a
//! full disk a little earlier.
//!
//! For compactions no more is kept than a part of what the database holds: a small one keeps
//! little, and an empty one nothing. Once a compaction has found no room, more is kept, until one
//! is carried out or none waits for room any more.
//!
//! A writer that is refused has maintenance flush what is in memory, give up the log's spares, and
//! do what compactions leave for later. Deletes, ticks and decisions need room in the log, too. So
//! if writers are refused for long, one segment passes now and then, as long as there is room for
//! all that is to be flushed.

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
/// No more is kept than this: jobs of compactions do not grow with write buffers for ever.
const KEPT_MAX: [u64; 2] = [256 << 20, 1 << 30];
/// A segment passes after so many rounds of maintenance in which writers were refused.
const ROUNDS_REFUSED: u64 = 10;
/// After so many rounds in which no compaction waits for room none will be tried again.
const ROUNDS_CALM: u64 = 3;

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
    /// A writer was refused since the last round of maintenance.
    has_refused: AtomicBool,
    /// So many rounds had that since a writer was last admitted.
    rounds_refused: AtomicU64,
    /// The next segment passes.
    lets_pass: AtomicBool,
    /// So many rounds in a row no compaction has waited for room.
    rounds_calm: AtomicU64,
}

impl DiskRoom {
    pub(crate) fn new(fs: Arc<dyn FileSystem>, dir: PathBuf, buffer_len: u64) -> Arc<DiskRoom> {
        debug_assert!(buffer_len > 0, "nothing would be kept");
        Arc::new(DiskRoom {
            fs,
            dir,
            buffer_len,
            held: AtomicU64::new(0),
            is_short: AtomicBool::new(false),
            tried_with: AtomicU64::new(0),
            has_refused: AtomicBool::new(false),
            rounds_refused: AtomicU64::new(0),
            lets_pass: AtomicBool::new(false),
            rounds_calm: AtomicU64::new(0),
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
            None => self.is_short.store(false, Relaxed),
            Some(error) if error.is_out_of_space() => self.is_short.store(true, Relaxed),
            Some(_) => return,
        }
        self.rounds_calm.store(0, Relaxed);
        if failure.is_none() {
            self.tried_with.store(0, Relaxed);
        }
    }

    /// Notes in a round of maintenance whether a compaction runs, or waits for what it lacked. It
    /// may do neither for a moment, before it is tried again.
    pub(crate) fn note_waits(&self, waits: bool) {
        let calm = if waits { 0 } else { self.rounds_calm.load(Relaxed) + 1 };
        self.rounds_calm.store(calm, Relaxed);
        if calm >= ROUNDS_CALM {
            self.is_short.store(false, Relaxed);
            self.tried_with.store(0, Relaxed);
        }
    }

    /// Begins a round of maintenance. True if writers were refused since the last one.
    pub(crate) fn begin_round(&self) -> bool {
        let has_refused = self.has_refused.swap(false, Relaxed);
        if has_refused {
            let rounds = self.rounds_refused.fetch_add(1, Relaxed) + 1;
            self.lets_pass.store(rounds.is_multiple_of(ROUNDS_REFUSED), Relaxed);
        }
        has_refused
    }

    /// What is kept for compactions.
    fn kept(&self, is_short: bool) -> u64 {
        let which = usize::from(is_short);
        let buffers = self.buffer_len.saturating_mul(BUFFERS[which]).min(KEPT_MAX[which]);
        let held = self.held.load(Relaxed);
        let kept = buffers.min(held / PARTS[which]);
        debug_assert!(kept <= held, "a small database keeps more than it holds");
        kept
    }

    /// What is free; more than any disk has if the system cannot tell.
    fn free(&self) -> u64 {
        self.fs.free_space(&self.dir).unwrap_or(u64::MAX)
    }

    /// Fails if the log must not have another segment now, where so many bytes are to be flushed.
    pub(crate) fn admit_segment(&self, unflushed: u64) -> Result<()> {
        self.admit(unflushed).or_else(|refused| {
            let is_let_pass = self.free() >= unflushed && self.lets_pass.swap(false, Relaxed);
            if is_let_pass { Ok(()) } else { Err(refused) }
        })
    }

    /// Fails if a writer must not take room now, as so many bytes are to be flushed.
    fn admit(&self, unflushed: u64) -> Result<()> {
        let kept = unflushed + self.kept(self.is_short.load(Relaxed));
        let free = self.free();
        if free >= kept {
            self.rounds_refused.store(0, Relaxed);
            return Ok(());
        }
        self.has_refused.store(true, Relaxed);
        // Where nothing is free, the system says so itself, if that is true.
        if free == 0 {
            return Ok(());
        }
        Err(self.refusal(format!(
            "the last {kept} bytes of the disk are kept for flushes and compactions, which may make room"
        )))
    }

    /// Fails if a commit must not begin of whose files a flush writes so many bytes. The commit
    /// itself may need no room, so the system does not refuse it, also where nothing is free.
    fn admit_layer(&self, bytes: u64, unflushed: u64) -> Result<()> {
        let kept = self.kept(self.is_short.load(Relaxed));
        let needed = bytes.saturating_add(unflushed).saturating_add(kept);
        let free = self.free();
        if free >= needed {
            return Ok(());
        }
        self.has_refused.store(true, Relaxed);
        Err(self.refusal(format!(
            "a flush of it needs {needed} bytes with what else is to be flushed and kept, and {free} are free"
        )))
    }

    fn refusal(&self, why: String) -> Error {
        let source = io::Error::new(io::ErrorKind::StorageFull, why);
        Error::io("take room for a write in", &self.dir, source)
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
        debug_assert!(!calls || free > 0, "compactions would be tried without any room");
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

    /// Fails if a commit must not begin of whose files a flush writes so many bytes: without room
    /// for that, no open of the database would succeed either.
    pub(crate) fn admit_layer(&self, bytes: u64) -> Result<()> {
        self.disk_room.admit_layer(bytes, self.log.used_bytes())
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
mod tests;
