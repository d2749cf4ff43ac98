//! Epochs: generations of the in-memory state.
//!
//! An epoch owns a range of LSNs, an arena, and a memtable for each family that was written in it.
//! One epoch is open; sealed ones wait for their flush, oldest first.
//!
//! Sealing must not lose a racing writer. The sealer does three things in this order: (1) it marks
//! the open epoch as closing; (2) it reserves a marker record, whose end is the boundary; (3) it
//! publishes the list with the next epoch. A writer first has its LSN and then looks at the open
//! epoch. If that epoch is not closing, it owns the LSN. If it is closing, the writer waits for the
//! new list. The proof, and what the sealer must not wait for, are in `docs/internals/commit.md`.
//!
//! An epoch is complete, and may be flushed, once `visible` has passed its marker.

use super::layer::Layer;
use crate::env::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::env::sync::{Condvar, Mutex, MutexGuard, Rank};
use crate::env::{Plant, Reach, planted, preempt, reached_if};
use crate::error::{Error, Result};
use crate::format::{FamilyId, Lsn};
use crate::memtable::{Arena, ChunkPool, Memtable};
use crate::wal::Reservation;
use arc_swap::ArcSwap;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// The greatest number of sealed epochs. With the open one, memory holds up to three write buffers.
pub(crate) const MAX_SEALED: usize = 2;

/// How many flushes in a row may fail for lack of room before writes pause between attempts. The
/// lack may be short.
const FREE_FAILURES: u32 = 4;
/// The first such pause. Each further failure doubles it ...
const RETRY_PAUSE_NS_MIN: u64 = 10_000_000;
/// ... up to this.
pub(crate) const RETRY_PAUSE_NS_MAX: u64 = 500_000_000;

/// One generation of the in-memory state.
pub(crate) struct Epoch {
    /// Each epoch's id is greater by one than that of the epoch before.
    pub(crate) id: u64,
    /// The first LSN that the epoch owns.
    pub(crate) start: Lsn,
    /// The LSN after the marker, once the epoch is sealed. Replay begins there once it is
    /// installed.
    end: AtomicU64,
    closing: AtomicBool,
    pub(crate) arena: Arc<Arena>,
    /// How many leaves the memtables of the epoch before had, which is what to expect in this one.
    expected: Leaves,
    content: Mutex<Content>,
}

/// The number of leaves of each memtable.
type Leaves = BTreeMap<FamilyId, u32>;

/// What was written in an epoch.
#[derive(Default)]
struct Content {
    memtables: BTreeMap<FamilyId, Arc<Memtable>>,
    /// What large commits have written, by family, newest first.
    layers: BTreeMap<FamilyId, Vec<Layer>>,
}

impl Epoch {
    fn new(id: u64, start: Lsn, arena: Arc<Arena>, expected: Leaves) -> Arc<Epoch> {
        let (end, closing) = (AtomicU64::new(Lsn::MAX), AtomicBool::new(false));
        Arc::new(Epoch {
            id,
            start,
            end,
            closing,
            arena,
            expected,
            content: Mutex::new(Rank::Memtables, Content::default()),
        })
    }

    /// An epoch outside of any list, for what a read-only database replays from `start` on.
    pub(crate) fn of_reader(start: Lsn, pool: &Arc<ChunkPool>) -> Arc<Epoch> {
        Epoch::new(1, start, Arc::new(Arena::new(pool.clone())), BTreeMap::new())
    }

    /// True if the epoch certainly owns `lsn`, which the caller has already reserved.
    #[inline]
    pub(crate) fn owns_while_open(&self, lsn: Lsn) -> bool {
        let is_closing = self.closing.load(Ordering::SeqCst) && !planted(Plant::SealForgetsRacers);
        lsn >= self.start && !is_closing
    }

    /// The LSN after the marker; `Lsn::MAX` while the epoch is open.
    pub(crate) fn end(&self) -> Lsn {
        self.end.load(Ordering::Acquire)
    }

    /// Bytes of memory that the epoch's arena has taken.
    #[inline]
    pub(crate) fn bytes(&self) -> u64 {
        self.arena.allocated_bytes() as u64
    }

    /// The memtable of a family; the first write of the family in this epoch creates it.
    pub(crate) fn memtable(&self, family: FamilyId) -> Arc<Memtable> {
        let mut content = self.content.lock();
        let expected = self.expected.get(&family).copied().unwrap_or(0);
        let fresh = || Arc::new(Memtable::expecting(self.arena.clone(), expected));
        content.memtables.entry(family).or_insert_with(fresh).clone()
    }

    /// All memtables, by ascending family id.
    pub(crate) fn memtables(&self) -> Vec<(FamilyId, Arc<Memtable>)> {
        let content = self.content.lock();
        content.memtables.iter().map(|(id, memtable)| (*id, memtable.clone())).collect()
    }

    /// The number of leaves of each memtable, now.
    fn leaves(&self) -> Leaves {
        let content = self.content.lock();
        content.memtables.iter().map(|(id, memtable)| (*id, memtable.leaves())).collect()
    }

    /// Adds what a large commit that the epoch owns has written to a family, newest first.
    pub(super) fn add_layers(&self, family: FamilyId, layers: &[Layer]) {
        let mut content = self.content.lock();
        content.layers.entry(family).or_default().splice(0..0, layers.iter().cloned());
    }

    /// All layers, by ascending family id, and newest first where they overlap.
    pub(crate) fn layers(&self) -> BTreeMap<FamilyId, Vec<Layer>> {
        self.content.lock().layers.clone()
    }

    pub(crate) fn is_empty(&self) -> bool {
        let content = self.content.lock();
        content.memtables.is_empty() && content.layers.is_empty()
    }
}

/// The open epoch and those that wait for their flush.
pub(crate) struct EpochList {
    pub(crate) open: Arc<Epoch>,
    /// Oldest first.
    pub(crate) sealed: Vec<Arc<Epoch>>,
}

/// A reserved marker record.
pub(crate) trait Marker {
    /// The LSN after the marker, which is the first of the next epoch.
    fn end(&self) -> Lsn;
}

impl Marker for Reservation<'_> {
    fn end(&self) -> Lsn {
        Reservation::end(self)
    }
}

/// The closing mark of an epoch that is being sealed. Dropping it takes the mark back: then no
/// marker was reserved.
struct Closing<'a>(&'a Epoch);

impl<'a> Closing<'a> {
    fn begin(epoch: &'a Epoch) -> Closing<'a> {
        epoch.closing.store(true, Ordering::SeqCst);
        Closing(epoch)
    }
}

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        self.0.closing.store(false, Ordering::SeqCst);
    }
}

/// The list of epochs, and the lock for changing it.
pub(crate) struct Epochs {
    list: ArcSwap<EpochList>,
    /// The seal lock: held while an epoch is sealed or retired.
    change: Mutex<()>,
    changed: Condvar,
    /// The id of the last epoch whose flush is over: installed, counted and reported to the
    /// listener.
    flushed: AtomicU64,
    failures: Mutex<Failures>,
    pool: Arc<ChunkPool>,
}

/// The flushes that failed since one succeeded, and that can be tried again.
#[derive(Default)]
struct Failures {
    count: u32,
    /// Why the last one failed; `None` while it is being tried again.
    untried: Option<Error>,
    /// From this time on a write may start another attempt.
    retry_ns: u64,
}

impl Failures {
    fn note(&mut self, error: Error, now_ns: u64) {
        self.count = self.count.saturating_add(1);
        let pause_ns = match self.count.checked_sub(FREE_FAILURES + 1) {
            None => 0,
            Some(doublings) => (RETRY_PAUSE_NS_MIN << doublings.min(16)).min(RETRY_PAUSE_NS_MAX),
        };
        (self.untried, self.retry_ns) = (Some(error), now_ns.saturating_add(pause_ns));
    }
}

impl Epochs {
    /// Starts with one open epoch that owns every LSN from `start` on.
    pub(crate) fn new(pool: Arc<ChunkPool>, start: Lsn) -> Epochs {
        let arena = Arc::new(Arena::new(pool.clone()));
        let open = Epoch::new(1, start, arena, BTreeMap::new());
        let list = ArcSwap::from_pointee(EpochList { open, sealed: Vec::new() });
        let (change, changed) = (Mutex::new(Rank::Epochs, ()), Condvar::new());
        let (flushed, failures) =
            (AtomicU64::new(0), Mutex::new(Rank::FlushFailure, Failures::default()));
        Epochs { list, change, changed, flushed, failures, pool }
    }

    #[inline]
    pub(crate) fn list(&self) -> arc_swap::Guard<Arc<EpochList>> {
        preempt();
        self.list.load()
    }

    pub(crate) fn pool(&self) -> &Arc<ChunkPool> {
        &self.pool
    }

    /// The epoch that owns a reserved LSN. Waits while that is being decided.
    pub(crate) fn owner(&self, lsn: Lsn) -> Arc<Epoch> {
        loop {
            let list = self.list();
            if list.open.owns_while_open(lsn) {
                return list.open.clone();
            }
            if let Some(sealed) = list.sealed.iter().find(|epoch| lsn < epoch.end()) {
                debug_assert!(sealed.start <= lsn, "{lsn:#x} is of an epoch that is flushed");
                return sealed.clone();
            }
            // The open epoch is closing, and it is not known yet on which side of the boundary the
            // LSN lies. The sealer holds `change` until it is known.
            drop(self.change.lock());
        }
    }

    /// Takes the seal lock, which is needed to seal and to retire.
    pub(crate) fn lock(&self) -> MutexGuard<'_, ()> {
        self.change.lock()
    }

    /// Seals the open epoch. `reserve_marker` reserves the marker record; if it fails or panics,
    /// nothing has changed.
    pub(crate) fn seal<M: Marker, E>(
        &self,
        _right: &MutexGuard<'_, ()>,
        reserve_marker: impl FnOnce() -> Result<M, E>,
    ) -> Result<(Arc<Epoch>, M), E> {
        let list = self.list.load_full();
        let arena = Arc::new(Arena::new(self.pool.clone()));
        let expected = list.open.leaves();
        let closing = Closing::begin(&list.open);
        let marker = reserve_marker()?;
        std::mem::forget(closing);
        let end = marker.end();
        assert!(list.open.end() == Lsn::MAX, "an epoch is sealed once");
        assert!(list.open.start < end, "the marker of an epoch lies in it");
        let before = list.sealed.last().map_or(list.open.start, |last| last.end());
        assert!(before == list.open.start, "an epoch begins where the one before ends");
        list.open.end.store(end, Ordering::Release);
        let open = Epoch::new(list.open.id + 1, end, arena, expected);
        let mut sealed = list.sealed.clone();
        sealed.push(list.open.clone());
        reached_if(Reach::EpochsTwo, || sealed.len() > 1);
        preempt();
        self.list.store(Arc::new(EpochList { open, sealed }));
        Ok((list.open.clone(), marker))
    }

    /// Removes the oldest sealed epoch from the list, after its tables were installed. Also forgets
    /// earlier failures of flushes.
    pub(crate) fn retire_oldest(&self, epoch: &Arc<Epoch>) {
        let _right = self.change.lock();
        let list = self.list.load_full();
        let mut sealed = list.sealed.clone();
        let oldest = sealed.remove(0);
        assert!(Arc::ptr_eq(&oldest, epoch), "epochs are installed strictly in order");
        assert!(oldest.end() != Lsn::MAX, "an open epoch takes writes");
        preempt();
        self.list.store(Arc::new(EpochList { open: list.open.clone(), sealed }));
        // The success of this flush shows that there is room again.
        *self.failures.lock() = Failures::default();
        self.changed.notify_all();
    }

    /// The id of the last epoch whose flush is over.
    pub(crate) fn flushed(&self) -> u64 {
        self.flushed.load(Ordering::Acquire)
    }

    /// Notes that the flush of an epoch is over, and wakes the threads that wait for it. Writers
    /// could use its memory before this: [`Epochs::retire_oldest`] released it.
    pub(crate) fn note_flushed(&self, id: u64) {
        let before = self.flushed.swap(id, Ordering::AcqRel);
        assert!(before < id, "epoch {id} is flushed after {before}");
        self.wake_all();
    }

    /// Waits until an epoch is retired, until its flush is over, or until [`Epochs::wake_all`], but
    /// at most 100 milliseconds. Gives `right` back while it waits.
    pub(crate) fn wait_for_room(&self, right: &mut MutexGuard<'_, ()>) {
        self.changed.wait_for(right, Duration::from_millis(100));
    }

    /// Wakes all threads in [`Epochs::wait_for_room`], so that they check their conditions again.
    /// The caller must not hold the seal lock.
    pub(crate) fn wake_all(&self) {
        // Once we hold the lock, every waiter that passed its check is asleep, so no wake-up is
        // lost.
        drop(self.change.lock());
        self.changed.notify_all();
    }

    /// Notes at `now_ns` that a flush failed for lack of space or file descriptors, and wakes the
    /// waiters.
    pub(crate) fn note_flush_failure(&self, error: Error, now_ns: u64) {
        self.failures.lock().note(error, now_ns);
        self.wake_all();
    }

    /// Returns the failure of the last flush until the flush is tried again.
    pub(crate) fn check_flushes(&self) -> Result<()> {
        self.failures.lock().untried.clone().map_or(Ok(()), Err)
    }

    /// Takes the failure, for a caller that is about to try again.
    pub(crate) fn take_flush_failure(&self) -> Option<Error> {
        self.failures.lock().untried.take()
    }

    /// True if a write may start another attempt to flush. Without this limit each write would cost
    /// an attempt while the disk is full.
    pub(crate) fn is_retry_due(&self, now_ns: u64) -> bool {
        now_ns >= self.failures.lock().retry_ns
    }
}

#[cfg(test)]
impl Marker for Lsn {
    fn end(&self) -> Lsn {
        *self
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::env::{Clock, SystemClock};
    use crate::error::{ErrorKind, StallCause};
    use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

    fn epochs() -> Epochs {
        Epochs::new(Arc::new(ChunkPool::new(4096, 0, 0)), 4096)
    }

    #[test]
    fn sealing_gives_the_lsns_before_the_marker_to_the_old_epoch() {
        let epochs = epochs();
        let old = epochs.list().open.clone();
        let right = epochs.lock();
        epochs.seal(&right, || Ok::<Lsn, ()>(5040)).unwrap();
        drop(right);
        assert_eq!(epochs.owner(4999).id, old.id);
        assert_eq!(epochs.owner(5040).id, old.id + 1);
    }

    #[test]
    fn a_seal_without_log_room_changes_nothing() {
        let epochs = epochs();
        let right = epochs.lock();
        assert!(epochs.seal::<Lsn, ()>(&right, || Err(())).is_err());
        drop(right);
        assert_eq!(epochs.owner(9999).id, 1);
        assert!(epochs.list().sealed.is_empty());
    }

    #[test]
    fn a_seal_that_panics_changes_nothing() {
        let epochs = epochs();
        let seal = || epochs.seal::<Lsn, ()>(&epochs.lock(), || resume_unwind(Box::new("planted")));
        assert!(catch_unwind(AssertUnwindSafe(seal)).is_err());
        assert!(epochs.list().open.owns_while_open(9999));
        assert!(epochs.list().sealed.is_empty());
    }

    #[test]
    fn a_flush_that_succeeds_takes_back_the_failure_of_one_before() {
        let epochs = epochs();
        let right = epochs.lock();
        let (first, _) = epochs.seal(&right, || Ok::<Lsn, ()>(5040)).unwrap();
        drop(right);
        epochs.note_flush_failure(Error::would_stall(StallCause::LogFull), 0);
        assert!(epochs.check_flushes().is_err());
        epochs.retire_oldest(&first);
        epochs.check_flushes().unwrap();
    }

    #[test]
    #[should_panic(expected = "the marker of an epoch lies in it")]
    fn a_marker_before_its_epoch_is_refused() {
        let epochs = epochs();
        let _ = epochs.seal(&epochs.lock(), || Ok::<Lsn, ()>(4096));
    }

    #[test]
    #[should_panic(expected = "epoch 1 is flushed after 1")]
    fn an_epoch_is_flushed_once() {
        let epochs = epochs();
        epochs.note_flushed(1);
        epochs.note_flushed(1);
    }

    #[test]
    fn epochs_retire_in_order() {
        let epochs = epochs();
        let right = epochs.lock();
        let (first, _) = epochs.seal(&right, || Ok::<Lsn, ()>(5040)).unwrap();
        let (second, _) = epochs.seal(&right, || Ok::<Lsn, ()>(6040)).unwrap();
        drop(right);
        epochs.retire_oldest(&first);
        epochs.retire_oldest(&second);
        assert!(epochs.list().sealed.is_empty());
    }

    #[test]
    fn every_lsn_has_the_epoch_it_was_reserved_in() {
        let epochs = epochs();
        let open_id = || epochs.list().open.id;
        for (id, end) in [(1, 5040), (2, 6040), (3, 7040)] {
            assert_eq!((open_id(), epochs.list().open.end()), (id, Lsn::MAX));
            let (sealed, marker) = epochs.seal(&epochs.lock(), || Ok::<Lsn, ()>(end)).unwrap();
            assert_eq!((sealed.id, sealed.end(), marker), (id, end, end));
        }
        assert_eq!((open_id(), epochs.list().open.start), (4, 7040));
        for (lsn, id) in
            [(4096, 1), (5039, 1), (5040, 2), (6039, 2), (6040, 3), (7039, 3), (7040, 4), (9999, 4)]
        {
            assert_eq!(epochs.owner(lsn).id, id, "{lsn}");
        }
    }

    #[test]
    fn an_epoch_owns_what_begins_in_it_unless_it_is_closing() {
        let epochs = epochs();
        let open = epochs.list().open.clone();
        let owned = || [4095, 4096, 4097, 9999].map(|lsn| open.owns_while_open(lsn));
        assert_eq!(owned(), [false, true, true, true]);
        let refuse = || {
            assert_eq!(owned(), [false; 4]);
            Err::<Lsn, _>("no room")
        };
        assert_eq!(epochs.seal(&epochs.lock(), refuse).err(), Some("no room"));
        assert_eq!(owned(), [false, true, true, true]);
        epochs.seal(&epochs.lock(), || Ok::<Lsn, ()>(5040)).unwrap();
        assert_eq!(owned(), [false; 4]);
    }

    #[test]
    #[allow(clippy::disallowed_methods)] // A test may have threads of its own.
    fn a_writer_whose_epoch_is_being_decided_waits_for_the_answer() {
        let epochs = epochs();
        std::thread::scope(|scope| {
            let (asks, is_asked) = std::sync::mpsc::channel();
            let mut writers = Vec::new();
            let reserve = || {
                for lsn in [5039, 5040] {
                    let (epochs, asks) = (&epochs, asks.clone());
                    writers.push(scope.spawn(move || {
                        asks.send(()).unwrap();
                        epochs.owner(lsn).id
                    }));
                }
                is_asked.iter().take(2).for_each(drop);
                std::thread::sleep(Duration::from_millis(20));
                assert!(writers.iter().all(|writer| !writer.is_finished()));
                Ok::<Lsn, ()>(5040)
            };
            epochs.seal(&epochs.lock(), reserve).unwrap();
            let owners: Vec<u64> =
                writers.into_iter().map(|writer| writer.join().unwrap()).collect();
            assert_eq!(owners, [1, 2]);
        });
    }

    #[test]
    fn an_epoch_has_a_memtable_for_each_family_that_asked_and_counts_their_memory() {
        let epochs = epochs();
        let epoch = epochs.list().open.clone();
        assert!(epoch.is_empty() && epoch.bytes() == 0);
        let seven = epoch.memtable(7);
        let two = epoch.memtable(2);
        assert!(!epoch.is_empty());
        assert!(Arc::ptr_eq(&seven, &epoch.memtable(7)));
        let families: Vec<FamilyId> = epoch.memtables().iter().map(|(id, _)| *id).collect();
        assert_eq!(families, [2, 7]);
        assert!(Arc::ptr_eq(&two, &epoch.memtables()[0].1));
        seven.insert(b"key", 4096, crate::format::OpKind::Put, &[7; 1000]);
        assert!(epoch.bytes() >= 1000 && epoch.bytes() == epoch.arena.allocated_bytes() as u64);
    }

    #[test]
    fn a_memtable_has_a_filter_if_the_epoch_before_had_one_of_its_family() {
        let epochs = epochs();
        let first = epochs.list().open.clone();
        assert!([2, 7].iter().all(|family| first.memtable(*family).filter().is_none()));
        let key = |i: u64| i.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
        let put = crate::format::OpKind::Put;
        (0..1000).for_each(|i| first.memtable(7).insert(&key(i), 4096 + i, put, b""));
        epochs.seal(&epochs.lock(), || Ok::<Lsn, ()>(6000)).unwrap();
        let second = epochs.list().open.clone();
        let absent = crate::format::checksum64(b"absent");
        let lacks = |family| second.memtable(family).filter().map(|it| !it.may_hold(absent));
        assert_eq!([2, 7, 9].map(lacks), [Some(true), Some(true), None]);
        assert!(second.bytes() >= 64 * u64::from(1 + first.memtable(7).leaves()));
    }

    #[test]
    fn a_failed_flush_is_told_until_it_is_taken() {
        let epochs = epochs();
        epochs.check_flushes().unwrap();
        assert!(epochs.take_flush_failure().is_none());
        epochs.note_flush_failure(Error::would_stall(StallCause::LogFull), 0);
        for _ in 0..2 {
            assert!(matches!(
                epochs.check_flushes().as_ref().map_err(Error::kind),
                Err(ErrorKind::WouldStall { cause: StallCause::LogFull, .. })
            ));
        }
        assert_eq!(epochs.take_flush_failure().unwrap().name(), "WOULD_STALL");
        epochs.check_flushes().unwrap();
        assert!(epochs.take_flush_failure().is_none());
    }

    #[test]
    fn writes_pause_longer_and_longer_between_attempts_to_flush_until_one_succeeds() {
        let epochs = epochs();
        let (sealed, _) = epochs.seal(&epochs.lock(), || Ok::<Lsn, ()>(5040)).unwrap();
        let fail =
            |now_ns| epochs.note_flush_failure(Error::would_stall(StallCause::LogFull), now_ns);
        for now_ns in [100; FREE_FAILURES as usize] {
            fail(now_ns);
            assert!(epochs.is_retry_due(now_ns), "the want of room may be short");
        }
        for pause_ms in [10, 20, 40, 80, 160, 320, 500, 500].into_iter().chain([500; 100]) {
            fail(100);
            let due_ns = 100 + pause_ms * 1_000_000;
            assert!(!epochs.is_retry_due(due_ns - 1) && epochs.is_retry_due(due_ns), "{pause_ms}");
            assert!(epochs.check_flushes().is_err(), "meanwhile it is told");
        }
        epochs.retire_oldest(&sealed);
        fail(100);
        assert!(epochs.is_retry_due(100));
    }

    /// True if one of so many waits is short: a busy machine may delay a wait but not shorten it.
    #[allow(clippy::disallowed_methods)] // A test may have threads of its own.
    fn is_woken(rounds_max: usize, wake: impl Fn(&Epochs, Arc<Epoch>) + Sync) -> bool {
        let clock = SystemClock::new();
        let mut waits = (0..rounds_max).map(|_| {
            let epochs = epochs();
            let (sealed, _) = epochs.seal(&epochs.lock(), || Ok::<Lsn, ()>(5040)).unwrap();
            std::thread::scope(|scope| {
                let mut right = epochs.lock();
                scope.spawn(|| {
                    // The lock is free once the waiter sleeps.
                    drop(epochs.lock());
                    wake(&epochs, sealed);
                });
                let began = clock.now_ns();
                epochs.wait_for_room(&mut right);
                clock.now_ns() - began
            })
        });
        waits.any(|waited_ns| waited_ns < 50_000_000)
    }

    #[test]
    fn who_waits_for_room_is_woken_by_all_that_may_have_made_some() {
        assert!(!is_woken(2, |_, _| ()), "no call wakes it");
        assert!(is_woken(300, |epochs, _| epochs.wake_all()));
        assert!(is_woken(300, |epochs, oldest| epochs.retire_oldest(&oldest)));
        let fail = |epochs: &Epochs, _| {
            epochs.note_flush_failure(Error::would_stall(StallCause::LogFull), 0)
        };
        assert!(is_woken(300, fail));
    }
}
