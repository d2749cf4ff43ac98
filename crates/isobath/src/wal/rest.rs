//! Gives room back that was prepared ahead of the tail, once the log rests. A database that wrote
//! much, and then little, would keep two segments that hold nothing for as long as it is open.
//!
//! The maintenance looks once in a while ([`Log::rest_if_idle`]). If hardly anything was reserved
//! since the last look, the preparer takes the room back beyond the segment that the next few
//! records go to. From then on no LSN there is handed out: see `Room::take_back`. Only then it
//! removes the files, the last one first, and stops once a writer goes on. How much is prepared
//! ahead depends on what was written since the last rest, so a log that begins again begins like a
//! new one. The first reservations after a rest find at least [`Inner::least_ahead`] bytes.
//!
//! If a file cannot be removed, it is unknown whether it still has its name. So its segment is not
//! used again, and the name goes before the next segment of this name is made. Nothing reads the
//! file until then: it holds no record.

use super::log::{Inner, Log};
use super::room::SLACK;
use super::segment::{SegmentKind, file_name};
use crate::env::sync::atomic::*;
use crate::error::Result;
use crate::format::Lsn;
use std::io;

/// How busy the log is, and what was given back. Only the preparer uses the last three.
#[derive(Debug)]
pub(super) struct Rest {
    /// The tail at the last look.
    seen: AtomicU64,
    /// True if the preparer is to give room back.
    is_due: AtomicBool,
    /// Where the tail was at the last rest.
    since: AtomicU64,
    /// True if names were removed, and the directory was not synced since.
    has_removed: AtomicBool,
    /// Where a segment begins whose file could not be removed; 0 if there is none.
    left: AtomicU64,
}

impl Rest {
    pub(super) fn new(start: Lsn) -> Rest {
        Rest {
            seen: AtomicU64::new(start),
            is_due: AtomicBool::new(false),
            since: AtomicU64::new(start),
            has_removed: AtomicBool::new(false),
            left: AtomicU64::new(0),
        }
    }
}

impl Log {
    /// Gives back room that was prepared, if hardly anything was reserved since the last call. It
    /// is gone soon after the call.
    pub(crate) fn rest_if_idle(&self) {
        let inner = &self.inner;
        let tail = inner.room.tail();
        let before = inner.rest.seen.swap(tail, Ordering::Relaxed);
        if tail.saturating_sub(before) < inner.least_ahead() {
            inner.rest.is_due.store(true, Ordering::Relaxed);
            inner.signal.notify();
        }
    }

    /// Removes the files of segments that are no longer needed. May block for long.
    pub(crate) fn discard_files(&self) {
        self.inner.recycler.discard(&*self.inner.fs);
    }

    /// Removes all spare segments: others need their room. May block for long.
    pub(crate) fn give_up_spares(&self) {
        self.inner.recycler.mark_spares_obsolete(usize::MAX);
        self.discard_files();
    }

    /// Marks for removal the spare segments that were not used since the last call.
    pub(crate) fn thin_out_spares(&self) {
        self.inner.recycler.thin_out();
    }
}

impl Inner {
    /// The least room that is prepared ahead of the tail: half of a term's first segment. That
    /// segment may be the only one.
    pub(super) fn least_ahead(&self) -> u64 {
        (self.options.first_segment_len.min(self.options.segment_len) / 2).max(2 * SLACK)
    }

    /// How much was written since the log last rested, where `tail` may be from before that.
    pub(super) fn written_since_rest(&self, tail: Lsn) -> u64 {
        tail.saturating_sub(self.rest.since.load(Ordering::Relaxed))
    }

    /// Gives room back if that is due.
    pub(super) fn give_room_back(&self) {
        if !self.rest.is_due.swap(false, Ordering::Relaxed) {
            return;
        }
        let tail = self.room.tail();
        self.rest.since.store(tail, Ordering::Relaxed);
        let near = self.table.overlapping(tail, tail + self.least_ahead());
        let Some(keep) = near.last().map(|last| last.end) else { return };
        if self.rest.left.load(Ordering::Relaxed) != 0 || !self.room.take_back(keep) {
            return;
        }
        let prefaulted = self.prefaulted.load(Ordering::Relaxed).min(keep);
        self.prefaulted.store(prefaulted, Ordering::Relaxed);
        // A writer that goes on may need what is left.
        while self.room.tail() == tail
            && let Some(last) = self.table.remove_last_from(keep)
        {
            debug_assert!(self.room.prepared() <= last.base, "an LSN of it may be handed out");
            self.rest.has_removed.store(true, Ordering::Relaxed);
            if self.fs.remove(&last.file.path()).is_err() {
                self.rest.left.store(last.base, Ordering::Relaxed);
                break;
            }
        }
        self.room.extend(self.table.end());
    }

    /// Makes removals of names durable before another file may get the header that belongs to such
    /// a name. So, whatever a power cut brings back, two names with one header are of one file.
    pub(super) fn sync_removed(&self) -> Result<()> {
        if !self.rest.has_removed.load(Ordering::Relaxed) {
            return Ok(());
        }
        let left = self.rest.left.load(Ordering::Relaxed);
        if left != 0 {
            match self.fs.remove(&self.options.dir.join(file_name(left, SegmentKind::Log))) {
                Err(error) if error.io_kind() != Some(io::ErrorKind::NotFound) => {
                    return Err(error);
                }
                _ => self.rest.left.store(0, Ordering::Relaxed),
            }
        }
        self.recycler.sync_dir().inspect_err(|error| self.poison(error))?;
        self.rest.has_removed.store(false, Ordering::Relaxed);
        Ok(())
    }
}
