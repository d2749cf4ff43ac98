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
//!
//! Below a ceiling for memory it charges what it takes ([`Allowance`]): for writes others give way,
//! for reads they do not. Calls compare with one number, the smaller one of limit and allowance.

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
pub(crate) use reads::{Keys, Passed, RECORD_CHARGE, ReadKey, Watch};
pub(crate) use spares::{Lent, Spares};
pub(crate) use writes::{Operation, OperationsIter};

use crate::error::{self, Error};
use crate::format::{FamilyId, OpKind};
use crate::memory::Allowance;
use crate::mvcc::FirstEnd;
use reads::Reads;
use savepoints::{Savepoints, UNDO_CHARGE};
use std::sync::Arc;
use writes::{ENTRY_CHARGE, Writes, chunks_ahead};

/// What a transaction has written and read.
#[derive(Debug)]
pub(crate) struct Footprint {
    writes: Writes,
    savepoints: Savepoints,
    reads: Reads,
    /// The most memory that all of it may take.
    limit: u64,
    /// What is charged.
    allowance: Allowance,
    /// Up to here it grows without looking further.
    granted: u64,
    /// What was read last takes more than is charged.
    is_short: bool,
}

/// Why there is no room for a write.
#[derive(Debug)]
pub(crate) enum NoRoom {
    /// It needs more memory than a transaction may take.
    TooLarge { needed: u64, limit: u64 },
    /// It needs more than is left below the ceiling.
    Memory(Error),
}

impl NoRoom {
    #[cold]
    pub(crate) fn into_error(self) -> Error {
        match self {
            NoRoom::TooLarge { needed, limit } => Error::transaction_too_large(needed, limit),
            NoRoom::Memory(error) => error,
        }
    }
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
    /// An empty footprint, which takes no memory yet, and later at most about `limit`. Nothing of
    /// it is charged.
    pub(crate) fn new(limit: u64) -> Footprint {
        Footprint::charged(limit, Allowance::endless())
    }

    /// The same, which charges what it takes.
    pub(crate) fn charged(limit: u64, allowance: Allowance) -> Footprint {
        let (writes, savepoints, reads) = Default::default();
        let (granted, is_short) = (0, false);
        let mut new = Footprint { writes, savepoints, reads, limit, allowance, granted, is_short };
        new.regrant();
        new
    }

    /// Empties it, and begins anew with this limit. Nothing stays charged.
    pub(crate) fn renew(&mut self, limit: u64) {
        let mut allowance = std::mem::take(&mut self.allowance);
        allowance.shrink_to(0);
        *self = Footprint::charged(limit, allowance);
    }

    /// To be called whenever limit or allowance has changed. New chunks may take more than a write
    /// asks for.
    fn regrant(&mut self) {
        let charged = self.allowance.bytes();
        self.granted = charged.saturating_sub(chunks_ahead(charged)).min(self.limit);
        debug_assert!(self.granted <= charged, "it is granted more than was charged");
    }

    /// Charges so much that it may grow to `needed` bytes.
    #[cold]
    pub(crate) fn allow(&mut self, needed: u64) -> error::Result<()> {
        let grown = self.allowance.grow_to(with_chunks(needed));
        self.regrant();
        debug_assert!(
            grown.is_err() || self.granted >= needed.min(self.limit),
            "it is granted less than was charged"
        );
        grown
    }

    /// The same, with what is free.
    #[cold]
    fn allow_if_free(&mut self, needed: u64) -> bool {
        let is_free = self.allowance.grow_if_free(with_chunks(needed));
        self.regrant();
        is_free
    }

    /// Gives back what was charged and is not needed.
    fn settle_allowance(&mut self) {
        self.allowance.shrink_to(with_chunks(self.charge()));
        self.regrant();
    }

    /// Sets the operation of a key, in place of an earlier one.
    #[inline]
    pub(crate) fn write(&mut self, operation: Operation<'_>) -> Result<(), NoRoom> {
        let more = (operation.key.len() + operation.value.len()) as u64 + ENTRY_CHARGE;
        let needed = self.charge() + more;
        if needed > self.granted {
            self.make_room(more)?;
        }
        let (entry, previous) = self.writes.set(operation, !self.savepoints.is_empty());
        self.savepoints.note(entry, previous);
        Ok(())
    }

    /// Charges `more` bytes of writes. If that is refused, or more than the limit, makes the reads
    /// coarser until there is room. Where that is not enough, gives up the bytes of operations that
    /// were replaced.
    #[cold]
    fn make_room(&mut self, more: u64) -> Result<(), NoRoom> {
        let all = self.charge() + more;
        let refused = match all <= self.limit {
            true => match self.allow(all) {
                Ok(()) => return Ok(()),
                Err(refused) => Some(refused),
            },
            false => None,
        };
        let most = if refused.is_some() { self.granted } else { self.limit };
        let mut needed = self.writes.charge() + self.savepoints.charge() + more;
        if needed > most && self.savepoints.is_empty() && self.writes.compact() {
            needed = self.writes.charge() + more;
        }
        if needed > most {
            let limit = self.limit;
            return Err(refused.map_or(NoRoom::TooLarge { needed, limit }, NoRoom::Memory));
        }
        self.reads.coarsen((most - needed) / 2);
        // Of several families, or with open scans, reads may take more than they should.
        let all = self.charge() + more;
        if all <= self.granted { Ok(()) } else { self.allow(all).map_err(NoRoom::Memory) }
    }

    /// Deletes the keys of a range: an end that is empty is none. What was written there before
    /// goes out of the set.
    pub(crate) fn delete_range(
        &mut self,
        family: FamilyId,
        (start, end): (&[u8], &[u8]),
    ) -> Result<(), NoRoom> {
        let keeps_old = !self.savepoints.is_empty();
        let mut more = (start.len() + end.len()) as u64 + ENTRY_CHARGE;
        if keeps_old {
            more += (self.writes.replaced_by(family, (start, end)) + 1) as u64 * UNDO_CHARGE;
        }
        if self.charge() + more > self.granted {
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
        self.settle_allowance();
    }

    /// Puts older operations beneath the writes: `each` passes on all of them, oldest first. From
    /// here on there are no savepoints and no limit. If `each` fails, nothing changes. What that
    /// takes was charged before, by [`Footprint::allow`].
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
        self.regrant();
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

    /// Fails if there is no memory for what was read last. It is recorded even so. A write since
    /// then may have charged it, too.
    #[inline]
    pub(crate) fn check_reads(&self) -> error::Result<()> {
        let is_short = self.is_short && self.charge() > self.granted;
        if is_short { Err(self.refuse_read()) } else { Ok(()) }
    }

    #[cold]
    fn refuse_read(&self) -> Error {
        self.allowance.refuse(with_chunks(self.charge()))
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
        self.is_short = self.charge() > self.granted && !self.make_reads_fit();
    }

    /// Charges the reads as far as memory is free, and otherwise makes them coarser. False if they
    /// take more than is charged even so.
    #[cold]
    fn make_reads_fit(&mut self) -> bool {
        let all = self.charge();
        if all > self.limit || !self.allow_if_free(all) {
            let others = self.writes.charge() + self.savepoints.charge();
            self.reads.coarsen(self.granted.saturating_sub(others) / 2);
        }
        self.charge() <= self.granted || self.allow_if_free(self.charge())
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

    /// Forgets everything, and keeps some memory for the next transaction, which stays charged.
    pub(crate) fn clear(&mut self) {
        self.writes.clear();
        self.savepoints.clear();
        self.reads.clear();
    }
}

/// What is charged for a footprint of `needed` bytes, so that new chunks are within it.
fn with_chunks(needed: u64) -> u64 {
    match needed {
        0 => 0,
        _ => needed.saturating_add(chunks_ahead(needed + needed / 2)),
    }
}
