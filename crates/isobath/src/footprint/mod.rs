//! The footprint of a transaction: what it has written and what it has read.
//!
//! - `writes`, `index`   the operations, sorted, each key once
//! - `spans`             those of them that delete ranges, joined where they meet
//! - `cursor`            walks one family's operations as the newest source of a scan
//! - `savepoints`        named moments to which the operations can go back
//! - `reads`, `interval` the keys that were read, and the stretches that scans passed
//! - `spares`           memory for the footprints of transactions to come
//!
//! A footprint belongs to one transaction and knows no engine, no lock and no other transaction.
//! Its memory has a limit. To stay below it, what was read is recorded more coarsely: then more
//! commits of others conflict, and no conflict is missed. A write for which there is no room is
//! refused and changes nothing.

mod cursor;
mod index;
mod interval;
mod reads;
mod savepoints;
mod spans;
mod spares;
#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
mod writes;

pub(crate) use cursor::{WriteSet, WriteSetCursor};
pub(crate) use interval::{Cut, Interval, Intervals};
pub(crate) use reads::{Keys, Passed, ReadKey, Watch};
pub(crate) use spares::{Lent, Spares};
pub(crate) use writes::{Operation, OperationsIter};

use crate::format::{FamilyId, OpKind};
use crate::mvcc::FirstEnd;
use reads::Reads;
use savepoints::{Savepoints, UNDO_CHARGE};
use std::sync::Arc;
use writes::{ENTRY_CHARGE, Writes};

/// What a transaction has written and read.
#[derive(Debug)]
pub(crate) struct Footprint {
    writes: Writes,
    savepoints: Savepoints,
    reads: Reads,
    /// The most memory that all of it may take.
    limit: u64,
}

/// A write needs more memory than a transaction may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooLarge {
    pub(crate) needed: u64,
    pub(crate) limit: u64,
}

/// What a transaction has written to a key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Written<'a> {
    pub(crate) kind: OpKind,
    /// Empty if the kind has no value.
    pub(crate) value: &'a [u8],
    /// The memory that holds the value, and where in it the value begins. None if it is empty.
    pub(crate) chunk: Option<(&'a Arc<[u8]>, usize)>,
}

impl Footprint {
    /// An empty footprint, which takes no memory yet, and later at most about `limit`.
    pub(crate) fn new(limit: u64) -> Footprint {
        let (writes, savepoints) = (Writes::default(), Savepoints::default());
        Footprint { writes, savepoints, reads: Reads::default(), limit }
    }

    /// Sets the operation of a key, in place of an earlier one.
    #[inline]
    pub(crate) fn write(&mut self, operation: Operation<'_>) -> Result<(), TooLarge> {
        let more = (operation.key.len() + operation.value.len()) as u64 + ENTRY_CHARGE;
        let needed = self.charge() + more;
        if needed > self.limit {
            self.make_room(more)?;
        }
        let (entry, previous) = self.writes.set(operation, !self.savepoints.is_empty());
        self.savepoints.note(entry, previous);
        Ok(())
    }

    /// Makes the reads coarser until there is room for `more` bytes of writes. Where that is not
    /// enough, gives up the bytes of operations that were replaced.
    #[cold]
    fn make_room(&mut self, more: u64) -> Result<(), TooLarge> {
        let mut needed = self.writes.charge() + self.savepoints.charge() + more;
        if needed > self.limit && self.savepoints.is_empty() && self.writes.compact() {
            needed = self.writes.charge() + more;
        }
        if needed > self.limit {
            return Err(TooLarge { needed, limit: self.limit });
        }
        self.reads.coarsen((self.limit - needed) / 2);
        Ok(())
    }

    /// Deletes the keys of a range: an end that is empty is none. What was written there before
    /// goes out of the set.
    pub(crate) fn delete_range(
        &mut self,
        family: FamilyId,
        (start, end): (&[u8], &[u8]),
    ) -> Result<(), TooLarge> {
        let keeps_old = !self.savepoints.is_empty();
        let mut more = (start.len() + end.len()) as u64 + ENTRY_CHARGE;
        if keeps_old {
            more += (self.writes.replaced_by(family, (start, end)) + 1) as u64 * UNDO_CHARGE;
        }
        if self.charge() + more > self.limit {
            self.make_room(more)?;
        }
        let Footprint { writes, savepoints, .. } = self;
        let note = |entry, previous| savepoints.note(entry, previous);
        writes.delete_range(family, (start, end), keeps_old, note);
        debug_assert!(
            self.get(family, start).is_some_and(|written| written.kind.is_tombstone()),
            "a key of a range that was just deleted is there"
        );
        Ok(())
    }

    /// What the transaction has written to a key. A key of a range delete is a deleted one.
    #[inline]
    pub(crate) fn get(&self, family: FamilyId, key: &[u8]) -> Option<Written<'_>> {
        let Some((body, entry)) = self.writes.get(family, key) else {
            let is_deleted = self.writes.span_at(family, key).is_some();
            return is_deleted.then_some(Written { kind: OpKind::Delete, value: &[], chunk: None });
        };
        let chunk = (entry.value.len > 0)
            .then(|| (body.chunks.chunk(entry.value), entry.value.at as usize));
        Some(Written { kind: entry.kind, value: body.chunks.bytes(entry.value), chunk })
    }

    /// The operations, by family. The range deletes of a family come first, and are older than its
    /// other operations. Then come those on keys, by key, each key once.
    pub(crate) fn writes(&self) -> OperationsIter<'_> {
        self.writes.iter()
    }

    /// The ranges that the transaction has deleted. They neither overlap nor touch.
    pub(crate) fn deleted_ranges(&self) -> impl Iterator<Item = (FamilyId, Interval)> {
        self.writes.spans().map(|span| (span.family, Interval::of_span(span.key, span.value)))
    }

    /// The range that the transaction has deleted and that holds this key.
    pub(crate) fn deleted_range_at(&self, family: FamilyId, key: &[u8]) -> Option<Interval> {
        let span = self.writes.span_at(family, key)?;
        Some(Interval::of_span(span.key, span.value))
    }

    /// True if the transaction has deleted a range.
    #[inline]
    pub(crate) fn has_deleted_ranges(&self) -> bool {
        self.writes.has_spans()
    }

    /// True if the transaction has written a key of the range.
    pub(crate) fn writes_into(&self, family: FamilyId, range: &Interval) -> bool {
        self.writes.meets(family, range)
    }

    /// The number of operations: of keys written, and of ranges deleted.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.writes.len()
    }

    /// The memory that writes, reads and savepoints take.
    #[inline]
    pub(crate) fn charge(&self) -> u64 {
        self.writes.charge() + self.savepoints.charge() + self.reads.charge()
    }

    /// The memory that is left.
    pub(crate) fn room(&self) -> u64 {
        self.limit.saturating_sub(self.charge())
    }

    /// The operations as they are now, for an iterator. None if there are none.
    pub(crate) fn write_set(&self) -> Option<WriteSet> {
        self.writes.share().filter(|_| self.len() > 0).map(WriteSet::new)
    }

    /// The memory that the writes take.
    pub(crate) fn writes_charge(&self) -> u64 {
        self.writes.charge()
    }

    /// True if there is a savepoint, to which the writes in memory may go back.
    pub(crate) fn has_savepoints(&self) -> bool {
        !self.savepoints.is_empty()
    }

    /// Forgets the writes, which are elsewhere now. There is no savepoint.
    pub(crate) fn drain_writes(&mut self) {
        debug_assert!(self.savepoints.is_empty(), "a savepoint goes back to writes in memory");
        self.writes.clear();
    }

    /// True once [`Footprint::put_beneath`] has lifted the limit.
    pub(crate) fn is_unlimited(&self) -> bool {
        self.limit == u64::MAX
    }

    /// Puts older operations beneath the writes: `each` passes on all of them, oldest first. From
    /// here on there are no savepoints and no limit. If `each` fails, nothing changes.
    pub(crate) fn put_beneath<E>(
        &mut self,
        each: impl FnOnce(&mut dyn FnMut(Operation<'_>) -> Result<(), E>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut writes = Writes::default();
        let mut add = |Operation { family, kind, key, value }: Operation<'_>| {
            match kind.is_span() {
                true => writes.delete_range(family, (key, value), false, |_, _| ()),
                false => drop(writes.set(Operation { family, kind, key, value }, false)),
            }
            Ok(())
        };
        each(&mut add)?;
        self.writes.iter().try_for_each(add)?;
        self.savepoints.clear();
        (self.writes, self.limit) = (writes, u64::MAX);
        Ok(())
    }

    /// Remembers a moment of the writes.
    pub(crate) fn savepoint(&mut self, name: &str) {
        self.savepoints.set(name, &self.writes);
    }

    /// Takes back all writes since a savepoint, which stays. False if there is none of this name.
    pub(crate) fn rollback_to(&mut self, name: &str) -> bool {
        self.savepoints.roll_back(name, &mut self.writes)
    }

    /// Forgets a savepoint and later ones, not the writes. False if there is none of this name.
    pub(crate) fn release(&mut self, name: &str) -> bool {
        self.savepoints.release(name)
    }

    /// Notes that a key was read, whether it exists or not.
    #[inline]
    pub(crate) fn track_read(&mut self, read: ReadKey<'_>) {
        self.reads.add_key(read);
        self.keep_below_limit();
    }

    /// Notes that a scan of these bounds begins. The scan reports through the watch what it has
    /// passed.
    pub(crate) fn watch(&mut self, family: FamilyId, bounds: Interval) -> Arc<Watch> {
        self.watch_in(family, bounds, false)
    }

    /// The same within bounds that locks cover: it tells only which value ends first.
    pub(crate) fn watch_locked(&mut self, family: FamilyId, bounds: Interval) -> Arc<Watch> {
        self.watch_in(family, bounds, true)
    }

    fn watch_in(&mut self, family: FamilyId, bounds: Interval, is_locked: bool) -> Arc<Watch> {
        let watch = self.reads.watch(family, bounds, is_locked);
        self.keep_below_limit();
        watch
    }

    #[inline]
    fn keep_below_limit(&mut self) {
        if self.charge() > self.limit {
            let others = self.writes.charge() + self.savepoints.charge();
            self.reads.coarsen(self.limit.saturating_sub(others) / 2);
        }
    }

    /// Adds what scans have reported through their watches. This must come before the reads are
    /// listed.
    pub(crate) fn settle_reads(&mut self) {
        if self.reads.has_open() {
            self.reads.sweep();
            self.keep_below_limit();
        }
    }

    /// Notes that a value was read that ends then.
    pub(crate) fn note_end(&mut self, family: FamilyId, unix_ms: u64, key: &[u8]) {
        self.reads.note_end(family, unix_ms, key);
    }

    /// Of the values that were read, the one that ends first. Reads must be settled.
    pub(crate) fn first_end(&self) -> Option<(FamilyId, FirstEnd)> {
        self.reads.first_end()
    }

    /// The same, without what scans show that have not ended.
    pub(crate) fn known_end(&self) -> Option<&(FamilyId, FirstEnd)> {
        self.reads.known_end()
    }

    /// The keys that were read.
    pub(crate) fn read_keys(&self) -> &Keys {
        self.reads.keys()
    }

    /// If this is false, [`Footprint::read_ranges`] has nothing.
    #[inline]
    pub(crate) fn has_read_ranges(&self) -> bool {
        self.reads.has_ranges()
    }

    /// The stretches that scans have passed, and the bounds of scans that have not ended.
    pub(crate) fn read_ranges(&self) -> impl Iterator<Item = (FamilyId, Interval)> {
        self.reads.ranges()
    }

    /// Forgets everything, and keeps some memory for the next transaction.
    pub(crate) fn clear(&mut self) {
        self.writes.clear();
        self.savepoints.clear();
        self.reads.clear();
    }
}
