//! Savepoints: named moments of a write set to which it can go back.
//!
//! While there is a savepoint, each write adds the operation that it replaced to a log. A range
//! delete adds all that it removed, operations on keys and earlier range deletes. Rolling back
//! takes operations from the log's end until it is as long as it was at the savepoint. Savepoints
//! nest. Of two with one name the later one is meant. Only writes are taken back: the
//! program has seen what it read, so reads stay, and locks stay with them.

use super::index::Entry;
use super::writes::{Writes, WritesMark};
use crate::env::{Plant, planted};

/// The memory that is charged for one operation in the log.
pub(super) const UNDO_CHARGE: u64 = size_of::<Undo>() as u64;

/// One change of the write set, and what was there before.
#[derive(Debug)]
struct Undo {
    /// The operation that was set, or the one that was removed.
    entry: Entry,
    previous: Option<Entry>,
}

#[derive(Debug)]
struct Savepoint {
    name: Box<str>,
    /// The length of the log when the savepoint was set.
    undo_len: usize,
    mark: WritesMark,
}

/// The savepoints, oldest first, and the log for going back to them.
#[derive(Debug, Default)]
pub(super) struct Savepoints {
    points: Vec<Savepoint>,
    undo: Vec<Undo>,
}

impl Savepoints {
    /// True if there is no savepoint: then nothing has to be kept for one.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.points.is_empty()
    }

    pub(super) fn charge(&self) -> u64 {
        self.undo.len() as u64 * UNDO_CHARGE
    }

    /// Notes a change.
    #[inline]
    pub(super) fn note(&mut self, entry: Entry, previous: Option<Entry>) {
        if !self.points.is_empty() {
            self.undo.push(Undo { entry, previous });
        }
    }

    pub(super) fn set(&mut self, name: &str, writes: &Writes) {
        let (undo_len, mark) = (self.undo.len(), writes.mark());
        debug_assert!(
            self.points.last().is_none_or(|last| last.undo_len <= undo_len),
            "a savepoint is older than the one before it"
        );
        self.points.push(Savepoint { name: name.into(), undo_len, mark });
    }

    fn position(&self, name: &str) -> Option<usize> {
        self.points.iter().rposition(|point| &*point.name == name)
    }

    /// Goes back to a savepoint, which stays; later ones go. False if there is none of this name.
    pub(super) fn roll_back(&mut self, name: &str, writes: &mut Writes) -> bool {
        let Some(at) = self.position(name) else { return false };
        let Savepoint { undo_len, mark, .. } = self.points[at];
        self.points.truncate(at + 1);
        debug_assert!(undo_len <= self.undo.len(), "what a savepoint undoes is gone");
        for Undo { entry, previous } in self.undo.drain(undo_len..).rev() {
            if planted(Plant::RollbackKeepsIndex) && previous.is_none() {
                continue;
            }
            writes.restore(entry, previous);
        }
        self.undo.shrink_to(2 * undo_len);
        if !planted(Plant::RollbackKeepsIndex) {
            writes.cut(mark);
        }
        true
    }

    /// Gives up a savepoint and those after it; the writes stay. False if there is none of this
    /// name.
    pub(super) fn release(&mut self, name: &str) -> bool {
        let Some(at) = self.position(name) else { return false };
        self.points.truncate(at);
        if self.points.is_empty() {
            self.undo = Vec::new();
        }
        true
    }

    pub(super) fn clear(&mut self) {
        // What stays of a footprint is charged by what is in it.
        (self.points, self.undo) = (Vec::new(), Vec::new());
    }
}
