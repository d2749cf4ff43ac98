//! Locks of transactions on keys, and waiting for them.
//!
//! [`Locks`] maps keys to those who hold them and to queues of those who wait (`keys.rs`), in
//! shards, each under its own lock. An [`Owner`] holds locks and waits for them. It is all that
//! this room knows of a transaction. A wait ends when the lock is granted, when its time is up,
//! when the transaction is aborted, or when it would never end: before an owner sleeps, the graph
//! of waits (`waits.rs`) is searched for cycles.
//!
//! A locked key sets the `locked` bit of its slot in the table of stamps, so writers that announce
//! see without asking the maps that they have nothing to ask. The bit is set before [`Locks::take`]
//! returns and cleared when no key of the slot is locked any more. A writer that has announced and
//! finds the bit set asks ([`Locks::is_held_against`]); if its own key is locked it takes the
//! announcement back and waits ([`Locks::await_key`]). A locker of a key waits until announcements
//! on its slot are gone. If a writer and a locker come at once, at least one of them sees the
//! other: `write/model/beside_locks.rs`.
//!
//! Ranges of keys can be locked, too (`ranges.rs`).
//!
//! Locks order: the graph's, the ranges', shards', owners'.

mod counts;
mod keys;
#[cfg(all(test, shuttle))]
mod model;
mod owner;
mod range_set;
mod ranges;
mod slots;
#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
mod waits;

pub(crate) use counts::LockCounts;
pub(crate) use keys::Got;
pub(crate) use owner::{Owner, lock_bytes};
pub(crate) use range_set::{OwnRanges, range_bytes};
pub(crate) use ranges::Span;
pub(crate) use slots::Slots;

use crate::env::sync::atomic::{AtomicU64, Ordering};
use crate::env::sync::{Mutex, Rank};
use crate::env::{Clock, Reach, reached};
use crate::format::FamilyId;
use crossbeam_utils::CachePadded;
use keys::{Answer, KeyName, Shard, Want};
use ranges::{RangeWant, Ranges};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use waits::Waits;

/// How a transaction locks a key: what other transactions may still do with the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum LockMode {
    /// Others may read it, and lock it in the same mode. None writes it.
    Shared,
    /// Others may read it. None locks or writes it.
    Exclusive,
}

impl LockMode {
    /// True if two owners cannot hold one key in these modes.
    pub(crate) fn excludes(self, other: LockMode) -> bool {
        self == LockMode::Exclusive || other == LockMode::Exclusive
    }
}

/// One owner of a deadlock, and the key that it waits for. The next one in the cycle keeps it from
/// that key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wait {
    /// The transaction's id; `None` for a plain write.
    pub(crate) owner: Option<u64>,
    pub(crate) family: FamilyId,
    pub(crate) key: Arc<[u8]>,
}

/// Why a lock was not granted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LockRefusal {
    /// Each of these waits for the next, and the last for the first, which is the owner itself.
    Deadlock { cycle: Vec<Wait> },
    /// The timeout ended. Has an owner that held the key, or stood before this one in the queue.
    Timeout { holder: Option<u64> },
    /// Another thread has aborted the owner.
    Aborted,
    /// The database is being closed.
    Closed,
}

/// Where an owner waits.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    /// The key, or where the range begins.
    name: KeyName,
    ticket: u64,
    /// What the owner has got when the wait is over.
    got: Got,
    is_range: bool,
}

impl Place {
    fn of_range(family: FamilyId, lower: &[u8], ticket: u64) -> Place {
        let name = KeyName { family, key: lower.into(), slot: 0 };
        Place { name, ticket, got: Got::Nothing, is_range: true }
    }

    fn name(&self) -> &KeyName {
        &self.name
    }
}

/// The locks of a database.
pub(crate) struct Locks {
    shards: Box<[CachePadded<Mutex<Shard>>]>,
    ranges: Ranges,
    waits: Waits,
    slots: Arc<dyn Slots>,
    clock: Arc<dyn Clock>,
    /// Tickets that were handed out.
    ticket: AtomicU64,
    /// The last id of an owner.
    id: AtomicU64,
    counts: LockCounts,
}

impl Locks {
    /// Locks in so many shards.
    pub(crate) fn new(shards: usize, slots: Arc<dyn Slots>, clock: Arc<dyn Clock>) -> Locks {
        assert!(shards > 0, "each key has a shard");
        let shard = |_| CachePadded::new(Mutex::new(Rank::LockShard, Shard::default()));
        let (ticket, id, counts) = (AtomicU64::new(0), AtomicU64::new(0), LockCounts::default());
        let shards = (0..shards).map(shard).collect();
        let (ranges, waits) = (Ranges::new(), Waits::new());
        Locks { shards, ranges, waits, slots, clock, ticket, id, counts }
    }

    /// An id for an owner, which no other has.
    pub(crate) fn next_id(&self) -> u64 {
        self.id.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// The moment on the clock of deadlines that lies `timeout` ahead.
    pub(crate) fn deadline_ns(&self, timeout: Duration) -> u64 {
        let timeout_ns = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
        self.clock.now_ns().saturating_add(timeout_ns)
    }

    /// Ends every wait, present and later. Locks can still be given back.
    pub(crate) fn close(&self) {
        self.waits.close();
    }

    fn shard(&self, slot: usize) -> &Mutex<Shard> {
        &self.shards[slot % self.shards.len()]
    }

    /// Locks a key, waiting until `deadline_ns` by the clock at most. The slot's bit is set then.
    /// An owner that is refused keeps what it holds.
    pub(crate) fn take(
        &self,
        owner: &Arc<Owner>,
        (family, key): (FamilyId, &[u8]),
        mode: LockMode,
        deadline_ns: u64,
    ) -> Result<(), LockRefusal> {
        self.take_anew(owner, (family, key), mode, deadline_ns).map(drop)
    }

    /// Like [`Locks::take`]. Tells what [`Locks::take_back`] would take back.
    pub(crate) fn take_anew(
        &self,
        owner: &Arc<Owner>,
        (family, key): (FamilyId, &[u8]),
        mode: LockMode,
        deadline_ns: u64,
    ) -> Result<Got, LockRefusal> {
        let mut held_up = 0;
        let got = loop {
            if let Some(got) = self.take_beside_ranges(owner, (family, key), mode, deadline_ns)? {
                break got;
            }
            held_up += 1;
            if held_up == 1 {
                self.await_ranges(owner, (family, key), mode, deadline_ns)?;
                continue;
            }
            let turn = self.take_in_turn(owner, (family, key), mode, deadline_ns, held_up > 2);
            if let Some(got) = turn? {
                break got;
            }
        };
        debug_assert!(owner.holds(family, key) >= Some(mode), "a key was taken, not held");
        Ok(got)
    }

    /// Locks a key, waiting for others that hold it. `None` if a range of others is in the way of
    /// the key then, which is given back: the owner of the range waits for the key. If the key were
    /// kept and the wait for the range then refused, its owner would hold a key within a range that
    /// others hold.
    pub(crate) fn take_beside_ranges(
        &self,
        owner: &Arc<Owner>,
        (family, key): (FamilyId, &[u8]),
        mode: LockMode,
        deadline_ns: u64,
    ) -> Result<Option<Got>, LockRefusal> {
        let at = (family, key);
        let got = self.obtain(owner, at, Want::Hold(mode), deadline_ns)?;
        let is_in_the_way = match got {
            Got::Nothing => false,
            Got::New => self.ranges.is_held_against(at, Some(owner), mode),
            // The owner of an exclusive one waits for the key, which was held before.
            Got::More => self.is_range_against_sharer(owner, at),
        };
        if is_in_the_way {
            self.take_back(owner, at, got);
        }
        Ok((!is_in_the_way).then_some(got))
    }

    /// Takes back what the lock of a key has changed.
    pub(crate) fn take_back(&self, owner: &Owner, at: (FamilyId, &[u8]), got: Got) {
        match got {
            Got::Nothing => {}
            Got::New => self.release(owner, at),
            Got::More => self.weaken(owner, at),
        }
    }

    /// Takes a key for an owner that ranges have held up before. It waits for its turn among those
    /// who lock ranges: if it only waited until the range is free, the next of them would have the
    /// range before the owner looks again. `None` if another holds the key by then; the turn is
    /// over. One that `stays` waits for the key in its turn: else both could be taken in turns by
    /// others. Who holds the key meanwhile may strengthen it, so no deadlock comes of that.
    fn take_in_turn(
        &self,
        owner: &Arc<Owner>,
        (family, key): (FamilyId, &[u8]),
        mode: LockMode,
        deadline_ns: u64,
        stays: bool,
    ) -> Result<Option<Got>, LockRefusal> {
        let (span, had_ranges) = (Span::of_key(key), self.ranges.holds_in(owner, family));
        let granted = self.want_range(owner, (family, &span), RangeWant::Turn(mode), deadline_ns);
        let at = (family, key);
        let taken = granted.and_then(|()| match stays {
            true => self.obtain(owner, at, Want::Hold(mode), deadline_ns).map(Some),
            false => Ok(self.take_at_once(owner, at, mode)),
        });
        // Later ones find the key. Joined ranges cannot be taken apart, so who had some keeps it.
        if !had_ranges {
            self.ranges.release_in(owner, family);
        }
        debug_assert!(had_ranges || !self.ranges.holds_in(owner, family), "a turn ends");
        taken
    }

    /// Locks a key, around which the owner holds a range, if no other holds the key.
    fn take_at_once(
        &self,
        owner: &Arc<Owner>,
        (family, key): (FamilyId, &[u8]),
        mode: LockMode,
    ) -> Option<Got> {
        let slot = self.slots.slot(family, key);
        let (at, want) = ((slot, family, key), Want::Hold(mode));
        let answer = self.shard(slot).lock().request(&*self.slots, at, owner, want, None);
        if let Ok(Answer::Granted(got)) = answer { Some(got) } else { None }
    }

    /// Fails if an owner that waits for something else than a lock must not wait any longer.
    pub(crate) fn check_wait(&self, owner: &Owner, deadline_ns: u64) -> Result<(), LockRefusal> {
        if owner.is_aborted() {
            return Err(LockRefusal::Aborted);
        }
        if self.clock.now_ns() < deadline_ns {
            return Ok(());
        }
        self.counts.timeouts.fetch_add(1, Ordering::Relaxed);
        Err(LockRefusal::Timeout { holder: None })
    }

    /// Locks the keys of a span, those that are there and all others, waiting until `deadline_ns`
    /// at most. The caller still has to see that what was reserved before is visible. An owner that
    /// is refused keeps what it holds, and may hold the range, too.
    pub(crate) fn take_range(
        &self,
        owner: &Arc<Owner>,
        (family, span): (FamilyId, &Span),
        mode: LockMode,
        deadline_ns: u64,
    ) -> Result<(), LockRefusal> {
        debug_assert!(span.holds_keys(), "a range without keys would be locked");
        self.take_among_ranges(owner, (family, span), mode, deadline_ns)?;
        while let Some(key) = self.key_against((family, span), Some(owner), mode) {
            self.obtain(owner, (family, &key), Want::Pass(mode), deadline_ns)?;
        }
        Ok(())
    }

    /// Locks a span among ranges. Keys in it that others have locked are still to be waited for.
    pub(crate) fn take_among_ranges(
        &self,
        owner: &Arc<Owner>,
        (family, span): (FamilyId, &Span),
        mode: LockMode,
        deadline_ns: u64,
    ) -> Result<(), LockRefusal> {
        self.want_range(owner, (family, span), RangeWant::Hold(mode), deadline_ns)
    }

    fn want_range(
        &self,
        owner: &Arc<Owner>,
        (family, span): (FamilyId, &Span),
        want: RangeWant,
        deadline_ns: u64,
    ) -> Result<(), LockRefusal> {
        let queued = self.ranges.request(owner, (family, span.clone()), want, &self.ticket)?;
        if let Some(ticket) = queued {
            self.wait(owner, Place::of_range(family, &span.lower, ticket), deadline_ns)?;
            reached(Reach::RangeAwaited);
        }
        // No assertion here: the lock that it would take keeps who was granted from going on before
        // writers see the range, and so hides what a release may do.
        Ok(())
    }

    /// A key of the span that an owner other than `owner` holds in a mode that excludes `mode`.
    fn key_against(
        &self,
        at: (FamilyId, &Span),
        owner: Option<&Owner>,
        mode: LockMode,
    ) -> Option<Arc<[u8]>> {
        self.shards.iter().find_map(|shard| shard.lock().key_against(at, owner, mode))
    }

    /// A key in any of these ranges that an owner other than `owner` holds. Each locked key is
    /// looked at once, however many ranges there are.
    pub(crate) fn key_in_any(
        &self,
        ranges: &BTreeMap<FamilyId, OwnRanges>,
        owner: Option<&Owner>,
    ) -> Option<(FamilyId, Arc<[u8]>)> {
        let is_asked = |family: FamilyId, key: &[u8]| {
            ranges.get(&family).is_some_and(|ranges| ranges.contains(key))
        };
        let found = |shard: &CachePadded<Mutex<Shard>>| {
            shard.lock().any_key_against(is_asked, owner, LockMode::Exclusive)
        };
        self.shards.iter().find_map(found)
    }

    /// True if an owner other than `owner` holds a range that overlaps this one.
    pub(crate) fn is_range_against(&self, owner: Option<&Owner>, at: (FamilyId, &Span)) -> bool {
        self.ranges.overlaps_against(at, owner, LockMode::Exclusive)
    }

    /// Gives back all ranges of an owner. `visible` has passed what it wrote.
    pub(crate) fn release_ranges(&self, owner: &Owner) {
        self.ranges.release_all(owner);
        self.settle_charge(owner);
    }

    /// Gives back what was charged for locks that the owner no longer holds.
    pub(crate) fn settle_charge(&self, owner: &Owner) {
        if owner.is_charged() {
            owner.shrink_charge(self.bytes_of(owner));
        }
    }

    /// The number of ranges that an owner holds.
    pub(crate) fn ranges_held_by(&self, owner: &Owner) -> usize {
        if self.ranges.is_any() { self.ranges.held_by(owner) } else { 0 }
    }

    /// The memory that the locks of an owner take, about.
    pub(crate) fn bytes_of(&self, owner: &Owner) -> u64 {
        let of_ranges = if self.ranges.is_any() { self.ranges.bytes_of(owner) } else { 0 };
        owner.held_bytes() + of_ranges
    }

    /// The ranges that an owner holds, by family and lower bound.
    pub(crate) fn ranges_of(&self, owner: &Owner) -> Vec<(FamilyId, Span, LockMode)> {
        if self.ranges.is_any() { self.ranges.of(owner) } else { Vec::new() }
    }

    /// Changes whenever a range is locked, and by [`Locks::overtake`]: for writers that look for
    /// locks before they reserve an LSN and again afterwards.
    #[inline]
    pub(crate) fn ranges_version(&self) -> u64 {
        self.ranges.version()
    }

    /// Makes writers that have announced themselves and reserve an LSN after this look for locks
    /// again, as if a range had been locked.
    pub(crate) fn overtake(&self) {
        self.ranges.overtake();
    }

    /// True if an owner other than `owner` holds a range against writes of this key.
    #[inline]
    pub(crate) fn is_in_range_against(
        &self,
        owner: Option<&Owner>,
        key: (FamilyId, &[u8]),
    ) -> bool {
        self.ranges.is_held_against(key, owner, LockMode::Exclusive)
    }

    /// True if an owner that shares the key with others has to heed a range around it before it
    /// writes there: that of another who shares it, too. The owner of an exclusive one waits.
    pub(crate) fn is_range_against_sharer(&self, owner: &Owner, key: (FamilyId, &[u8])) -> bool {
        self.ranges.is_shared_by_others(key, owner)
    }

    /// True if any range is locked.
    #[inline]
    pub(crate) fn has_ranges(&self) -> bool {
        self.ranges.is_any()
    }

    /// Waits until no range that others hold excludes the key in this mode.
    pub(crate) fn await_ranges(
        &self,
        owner: &Arc<Owner>,
        (family, key): (FamilyId, &[u8]),
        mode: LockMode,
        deadline_ns: u64,
    ) -> Result<(), LockRefusal> {
        self.await_span(owner, (family, Span::of_key(key)), mode, deadline_ns)
    }

    /// Waits until no range that others hold, and that overlaps this one, excludes it.
    pub(crate) fn await_span(
        &self,
        owner: &Arc<Owner>,
        (family, span): (FamilyId, Span),
        mode: LockMode,
        deadline_ns: u64,
    ) -> Result<(), LockRefusal> {
        let lower = Arc::clone(&span.lower);
        match self.ranges.request(owner, (family, span), RangeWant::Pass(mode), &self.ticket)? {
            None => Ok(()),
            Some(ticket) => {
                self.wait(owner, Place::of_range(family, &lower, ticket), deadline_ns).map(drop)
            }
        }
    }

    /// Waits until no other owner holds the key. This does not lock the key, so another may have
    /// locked it by the time that the caller looks.
    pub(crate) fn await_key(
        &self,
        owner: &Arc<Owner>,
        (family, key): (FamilyId, &[u8]),
        deadline_ns: u64,
    ) -> Result<(), LockRefusal> {
        self.obtain(owner, (family, key), Want::Pass(LockMode::Exclusive), deadline_ns).map(drop)
    }

    /// True if an owner other than `owner` holds the key in a mode that excludes this one.
    pub(crate) fn is_held_against(
        &self,
        owner: Option<&Owner>,
        (family, key): (FamilyId, &[u8]),
        mode: LockMode,
    ) -> bool {
        let slot = self.slots.slot(family, key);
        self.shard(slot).lock().is_held_against((slot, family, key), owner, mode)
    }

    /// Turns an exclusive lock that was a shared one before into a shared one again.
    fn weaken(&self, owner: &Owner, (family, key): (FamilyId, &[u8])) {
        let name = KeyName { family, key: key.into(), slot: self.slots.slot(family, key) };
        let mut shard = self.shard(name.slot).lock();
        owner.weaken(&name);
        shard.weaken(&*self.slots, &name, owner);
    }

    /// Gives back one key; nothing if it is not held.
    pub(crate) fn release(&self, owner: &Owner, (family, key): (FamilyId, &[u8])) {
        let name = KeyName { family, key: key.into(), slot: self.slots.slot(family, key) };
        let mut shard = self.shard(name.slot).lock();
        if owner.forget(&name) {
            shard.release(&*self.slots, &name, owner);
        }
    }

    /// Gives back all that the owner holds.
    pub(crate) fn release_all(&self, owner: &Owner) {
        for (family, keys) in owner.take_held() {
            for (key, held) in keys {
                let name = KeyName { family, key, slot: held.slot };
                self.shard(held.slot).lock().release(&*self.slots, &name, owner);
            }
        }
        self.settle_charge(owner);
    }

    /// Gives back all that the owner holds except these keys, which are in ascending order.
    pub(crate) fn release_all_but(&self, owner: &Owner, kept: &[(FamilyId, &[u8])]) {
        debug_assert!(kept.is_sorted(), "kept keys are found by a binary search");
        for (family, key) in owner.held() {
            if kept.binary_search(&(family, &*key)).is_err() {
                self.release(owner, (family, &key));
            }
        }
        self.settle_charge(owner);
    }

    /// True if nothing is locked, and no owner waits.
    #[cfg(test)]
    pub(crate) fn is_free(&self) -> bool {
        self.shards.iter().all(|shard| shard.lock().is_empty())
            && self.ranges.is_empty()
            && self.waits.count() == 0
    }

    /// The number of owners that sleep until they get a lock.
    #[cfg(test)]
    pub(crate) fn sleepers(&self) -> usize {
        self.waits.count()
    }

    /// What happened so far.
    pub(crate) fn counts(&self) -> &LockCounts {
        &self.counts
    }

    fn obtain(
        &self,
        owner: &Arc<Owner>,
        (family, key): (FamilyId, &[u8]),
        want: Want,
        deadline_ns: u64,
    ) -> Result<Got, LockRefusal> {
        let slot = self.slots.slot(family, key);
        let ticket = Some(&self.ticket);
        let at = (slot, family, key);
        let answer = self.shard(slot).lock().request(&*self.slots, at, owner, want, ticket)?;
        match answer {
            Answer::Queued(place) => self.wait(owner, place, deadline_ns),
            Answer::Granted(got) => Ok(got),
            Answer::Busy => Ok(Got::Nothing),
        }
    }

    #[cold]
    fn wait(&self, owner: &Arc<Owner>, place: Place, deadline_ns: u64) -> Result<Got, LockRefusal> {
        let began_ns = self.clock.now_ns();
        let blockers = |at: &Place| match at.is_range {
            true => self.ranges.blockers(at.name.family, at.ticket),
            false => self.shard(at.name.slot).lock().blockers(&at.name, at.ticket),
        };
        let deadlocks = self.waits.enter(owner, place.clone(), &blockers);
        let ended = owner.sleep(&*self.clock, deadline_ns);
        self.waits.leave(owner);
        let Place { name, ticket, got, is_range } = place;
        debug_assert!(!owner.waits(ticket), "an owner that woke still waits");
        let withdraw = || match is_range {
            true => self.ranges.withdraw(name.family, ticket),
            false => self.shard(name.slot).lock().withdraw(&*self.slots, &name, ticket),
        };
        let ended = ended.map_err(|why| {
            let holder = withdraw();
            match why {
                LockRefusal::Timeout { .. } => LockRefusal::Timeout { holder },
                other => other,
            }
        });
        let waited_ns = self.clock.now_ns().saturating_sub(began_ns);
        let is_timeout = matches!(ended, Err(LockRefusal::Timeout { .. }));
        self.counts.note(waited_ns, deadlocks, is_timeout);
        ended.map(|()| got)
    }
}

impl std::fmt::Debug for Locks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Locks")
    }
}
