//! Walks a memtable in order, in both directions, while other threads insert.
//!
//! The cursor remembers leaf, stamp and slot. A step reads the neighbouring slot and validates the
//! stamp. If the leaf has changed and the key is not where it was, the step searches again from the
//! root, by key. Leaves are never joined, and bounds only fall. So a leaf that is reached through
//! `next` under a valid stamp starts exactly where the previous one ended: the walk skips nothing
//! that was there before, and returns nothing twice. To the left, `prev` may be out of date after a
//! split. The true neighbour is the leaf whose `next` leads here; the cursor finds it by walking
//! right from `prev`.

use super::Memtable;
use super::lock::{Backoff, Stamp};
use super::node::Node;
use super::record::{Record, Version};
use super::search::Target;
use crate::cursor::{Cursor, Entry};
use crate::error::Result;
use crate::format::Lsn;
use std::sync::Arc;

/// A [`Cursor`] that keeps its memtable alive. It may or may not see what is inserted while it is
/// open.
pub(crate) struct MemtableCursor {
    /// The nodes and records in it live in the arena that `table` keeps.
    position: Option<Position>,
    /// How many records after this one were prefetched already.
    ahead: usize,
    /// The leaf whose right neighbour was prefetched last.
    next_leaf_of: Option<Node<'static>>,
    table: Arc<Memtable>,
}

/// How many records a forward scan prefetches ahead. The number grows by two a step, so a seek for
/// one entry prefetches few records that it does not use.
const AHEAD_MAX: usize = 16;

struct Position {
    leaf: Node<'static>,
    stamp: Stamp,
    index: usize,
    record: Record<'static>,
    version: Version<'static>,
}

/// A key, and its position when the leaf had this stamp.
struct Spot<'a> {
    leaf: Node<'a>,
    stamp: Stamp,
    index: usize,
    record: Record<'a>,
}

/// The result of a step through the leaves.
enum Step<'a> {
    At(Spot<'a>),
    /// There is no key in that direction.
    End,
    /// A leaf changed: search again by key.
    Changed,
}

impl MemtableCursor {
    /// A cursor without an entry. Seek before you move.
    pub(crate) fn new(table: Arc<Memtable>) -> MemtableCursor {
        MemtableCursor { position: None, ahead: 0, next_leaf_of: None, table }
    }

    #[inline]
    pub(crate) fn memtable(&self) -> &Arc<Memtable> {
        &self.table
    }

    /// Moves to the newest version of the next key, past all older versions of this key. Needs an
    /// entry.
    pub(crate) fn next_key(&mut self) {
        let Some(at) = &self.position else { return };
        let mut step = slot_or_right(at.leaf, at.stamp, at.index + 1);
        if matches!(step, Step::Changed)
            && let Some(stamp) = at.leaf.lock().read()
            && at.index < at.leaf.count()
            && at.leaf.key(at.index) == Some(at.record)
        {
            step = slot_or_right(at.leaf, stamp, at.index + 1);
        }
        if matches!(step, Step::Changed) {
            let key = at.record.key();
            return self.settle(Target::Key(key), |leaf, stamp| {
                let slot = leaf.search(key);
                slot_or_right(leaf, stamp, slot.index + usize::from(slot.record.is_some()))
            });
        }
        // SAFETY: `self` keeps the arena alive.
        self.position = unsafe { step.detach() };
        self.look_ahead();
    }

    /// Prefetches the memory that the next steps forward will read.
    #[inline]
    fn look_ahead(&mut self) {
        let Some(at) = &self.position else { return };
        let mut ahead = self.ahead.saturating_sub(1);
        for _ in 0..2 {
            if ahead < AHEAD_MAX {
                ahead += 1;
                prefetch_slot(at.leaf, at.index + ahead);
            }
        }
        self.ahead = ahead;
        if at.index + 2 * AHEAD_MAX >= at.leaf.count() && self.next_leaf_of != Some(at.leaf) {
            self.next_leaf_of = Some(at.leaf);
            if let Some(next) = at.leaf.next() {
                next.prefetch_leaf();
            }
        }
    }

    /// Moves forward to the first entry, from this one on, that a reader at `point` sees: an older
    /// version of this key, or the newest such version of a later key.
    #[cfg(test)]
    pub(crate) fn skip_to_visible(&mut self, point: Lsn) {
        while let Some(at) = &mut self.position {
            loop {
                if at.version.seq() < point {
                    return;
                }
                let Some(older) = at.version.older() else { break };
                at.version = older;
            }
            self.next_key();
        }
    }

    /// Searches from the root and does `step` there. Repeats both until no leaf changes in between.
    fn settle(&mut self, target: Target<'_>, step: impl for<'a> Fn(Node<'a>, Stamp) -> Step<'a>) {
        self.ahead = 0;
        let mut backoff = Backoff::new();
        loop {
            let (leaf, stamp) = self.table.find_leaf(target);
            match step(leaf, stamp) {
                Step::Changed => backoff.wait(),
                // SAFETY: `self` keeps the arena alive.
                arrived => return self.position = unsafe { arrived.detach() },
            }
        }
    }
}

impl Step<'_> {
    /// # Safety
    /// The caller keeps the arena alive as long as it uses the result.
    #[inline]
    unsafe fn detach(self) -> Option<Position> {
        let Step::At(Spot { leaf, stamp, index, record }) = self else { return None };
        let version = record.newest();
        // SAFETY: the caller's promise.
        let (leaf, record, version) = unsafe { (leaf.detach(), record.detach(), version.detach()) };
        Some(Position { leaf, stamp, index, record, version })
    }
}

impl Cursor for MemtableCursor {
    fn seek_first(&mut self) -> Result<()> {
        self.settle(Target::First, |leaf, stamp| slot_or_right(leaf, stamp, 0));
        Ok(())
    }

    fn seek_last(&mut self) -> Result<()> {
        self.settle(Target::Last, |leaf, stamp| {
            // If the leaf was split in the meantime, its last keys are in another leaf.
            if leaf.next().is_some() {
                return Step::Changed;
            }
            left_of_slot(leaf, stamp, leaf.count())
        });
        Ok(())
    }

    fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.settle(Target::Key(key), |leaf, stamp| {
            slot_or_right(leaf, stamp, leaf.search(key).index)
        });
        Ok(())
    }

    fn seek_for_prev(&mut self, key: &[u8]) -> Result<()> {
        self.settle(Target::Key(key), |leaf, stamp| {
            let slot = leaf.search(key);
            left_of_slot(leaf, stamp, slot.index + usize::from(slot.record.is_some()))
        });
        Ok(())
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        if let Some(at) = &mut self.position {
            match at.version.older() {
                Some(older) => at.version = older,
                None => self.next_key(),
            }
        }
        Ok(())
    }

    fn next_below(&mut self, point: Lsn) -> Result<()> {
        if let Some(at) = &mut self.position {
            match at.version.older_below(point) {
                Some(seen) => at.version = seen,
                None => self.next_key(),
            }
        }
        Ok(())
    }

    fn prev_key(&mut self) -> Result<()> {
        let Some(at) = &self.position else { return Ok(()) };
        match left_of_slot(at.leaf, at.stamp, at.index) {
            Step::Changed => {
                let key = at.record.key();
                self.settle(Target::Key(key), |leaf, stamp| {
                    left_of_slot(leaf, stamp, leaf.search(key).index)
                });
            }
            // SAFETY: `self` keeps the arena alive.
            step => self.position = unsafe { step.detach() },
        }
        Ok(())
    }

    #[inline]
    fn entry(&self) -> Option<Entry<'_>> {
        let Position { record, version, .. } = self.position.as_ref()?;
        Some(Entry {
            key: record.key(),
            seq: version.seq(),
            kind: version.kind(),
            value: version.value(),
        })
    }

    #[inline]
    fn key(&self) -> Option<&[u8]> {
        self.position.as_ref().map(|at| at.record.key())
    }

    #[inline]
    fn next_key(&mut self, _scratch: &mut Vec<u8>) -> Result<()> {
        MemtableCursor::next_key(self);
        Ok(())
    }
}

/// Prefetches the record in a slot of this leaf or, past its end, of the next leaf.
#[inline]
fn prefetch_slot(leaf: Node<'_>, index: usize) {
    let count = leaf.count();
    let (leaf, index) = match leaf.next() {
        Some(next) if index >= count => (next, index - count),
        _ => (leaf, index),
    };
    if index < leaf.count()
        && let Some(record) = leaf.key(index)
    {
        record.prefetch();
    }
}

/// The key in slot `index`, or the first key of the leaves to the right if there is no such slot.
#[inline]
fn slot_or_right(mut leaf: Node<'_>, mut stamp: Stamp, mut index: usize) -> Step<'_> {
    loop {
        if index < leaf.count() {
            let record = leaf.key(index);
            return match record {
                Some(record) if leaf.lock().validate(stamp) => {
                    Step::At(Spot { leaf, stamp, index, record })
                }
                _ => Step::Changed,
            };
        }
        let next = leaf.next();
        if !leaf.lock().validate(stamp) {
            return Step::Changed;
        }
        let Some(next) = next else { return Step::End };
        let Some(next_stamp) = next.lock().read() else { return Step::Changed };
        (leaf, stamp, index) = (next, next_stamp, 0);
    }
}

/// The key in the slot before `index`, or the last key of the leaves to the left if there is no
/// such slot.
fn left_of_slot(mut leaf: Node<'_>, mut stamp: Stamp, mut index: usize) -> Step<'_> {
    loop {
        if let Some(before) = index.checked_sub(1) {
            return match leaf.key(before) {
                Some(record) if leaf.lock().validate(stamp) => {
                    Step::At(Spot { leaf, stamp, index: before, record })
                }
                _ => Step::Changed,
            };
        }
        if !leaf.lock().validate(stamp) {
            return Step::Changed;
        }
        if leaf.low().is_none() {
            return Step::End;
        }
        match left_neighbour(leaf) {
            Some(found) => (leaf, stamp, index) = found,
            None => return Step::Changed,
        }
    }
}

/// The leaf before this one, with a stamp and the number of keys it had under that stamp.
fn left_neighbour(leaf: Node<'_>) -> Option<(Node<'_>, Stamp, usize)> {
    let mut left = leaf.prev()?;
    loop {
        let stamp = left.lock().read()?;
        let (next, count) = (left.next()?, left.count());
        if !left.lock().validate(stamp) {
            continue;
        }
        if next == leaf {
            return Some((left, stamp, count));
        }
        left = next;
    }
}
