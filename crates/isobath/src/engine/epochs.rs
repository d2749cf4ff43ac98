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
use super::promises::{PromiseQueue, Ticket};
use crate::env::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::env::sync::{Condvar, Mutex, MutexGuard, Rank};
use crate::env::{Plant, Reach, planted, preempt, reached_if};
use crate::error::{Error, Result};
use crate::format::{FamilyId, Lsn};
use crate::memtable::{Arena, ChunkPool, Memtable};
use crate::version::LiveFile;
use crate::wal::Reservation;
use arc_swap::ArcSwap;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// The greatest number of sealed epochs, light and small ones apart. With the open one, memory
/// holds up to three write buffers.
pub(crate) const MAX_SEALED: usize = 2;
/// So many more may be sealed that take little memory, because what was written in them lies in
/// files ([`Weight::Light`]). Their flush may last long, and writers need not wait for it.
pub(crate) const MAX_LIGHT: usize = 2;
/// So many more may be sealed that hold little altogether: at most the part of a write buffer that
/// [`SMALL_SHARE`] says, or so many slabs of the arena as [`SMALL_SLABS`] says. Requests for a
/// flush seal them, however little was written.
pub(crate) const MAX_SMALL: usize = 2;
const SMALL_SHARE: u64 = 16;
/// Eight writers of one value each take nine slabs, and filters are as long as the memtables before
/// call for.
const SMALL_SLABS: u64 = 12;

/// An epoch is full once commits have given it so many streams, or so many write buffers of them.
const STREAMS_MAX: u64 = 1024;
const STREAM_BUFFERS_MAX: u64 = 16;

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
    /// True once a commit has given it streams.
    has_streams: AtomicBool,
    /// How many streams it was the first to get, and the length of their files.
    stream_count: AtomicU64,
    stream_bytes: AtomicU64,
}

/// The number of leaves of each memtable.
type Leaves = BTreeMap<FamilyId, u32>;

/// What was written in an epoch.
#[derive(Default)]
struct Content {
    memtables: BTreeMap<FamilyId, Arc<Memtable>>,
    /// What large commits have written, by family, newest first.
    layers: BTreeMap<FamilyId, Vec<Layer>>,
    /// The files of streams that commits of the epoch have put. They must be there as long as a
    /// replay may read the records, even if their families are dropped.
    streams: BTreeMap<u64, Arc<LiveFile>>,
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
            has_streams: AtomicBool::new(false),
            stream_count: AtomicU64::new(0),
            stream_bytes: AtomicU64::new(0),
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

    /// Takes charge of the streams of a commit that the epoch owns. None of its operations is in a
    /// memtable yet.
    pub(crate) fn add_streams(&self, streams: &[Arc<LiveFile>]) {
        debug_assert!(!streams.is_empty(), "what has none gives none");
        // A stream that gets another end has been in an epoch before, or in a table since the
        // opening: this one keeps nothing more.
        for file in streams.iter().filter(|file| file.count_once()) {
            self.stream_bytes.fetch_add(file.len().unwrap_or(0), Ordering::Relaxed);
            self.stream_count.fetch_add(1, Ordering::Relaxed);
        }
        let mut content = self.content.lock();
        for file in streams {
            content.streams.entry(file.number()).or_insert_with(|| file.clone());
        }
        drop(content);
        self.has_streams.store(true, Ordering::Release);
    }

    /// The file of this number, if it is a stream of one of its commits.
    pub(crate) fn stream(&self, number: u64) -> Option<Arc<LiveFile>> {
        self.content.lock().streams.get(&number).cloned()
    }

    /// True if the epoch holds so many streams, or such long ones, that it has to let them go,
    /// although it takes little memory: those of values that were replaced since stay until then.
    #[inline]
    pub(crate) fn is_full_of_streams(&self, write_buffer: u64) -> bool {
        let bytes_max = write_buffer.saturating_mul(STREAM_BUFFERS_MAX);
        self.stream_count.load(Ordering::Relaxed) >= STREAMS_MAX
            || self.stream_bytes.load(Ordering::Relaxed) >= bytes_max
    }

    /// The streams of all its commits.
    pub(crate) fn streams(&self) -> Vec<Arc<LiveFile>> {
        self.content.lock().streams.values().cloned().collect()
    }

    /// False if no commit that a reader sees has streams in the epoch.
    #[inline]
    pub(crate) fn has_streams(&self) -> bool {
        self.has_streams.load(Ordering::Acquire)
    }

    /// The families of which it has anything.
    fn families(&self) -> BTreeSet<FamilyId> {
        let content = self.content.lock();
        content.memtables.keys().chain(content.layers.keys()).copied().collect()
    }

    pub(crate) fn is_empty(&self) -> bool {
        let content = self.content.lock();
        content.memtables.is_empty() && content.layers.is_empty()
    }

    /// How much of the memory for writes the epoch, which ends at `end`, takes. It stays so: below
    /// `visible`, where a sealed epoch ends, no write is under way.
    fn weight(&self, write_buffer: u64, end: Lsn) -> Weight {
        debug_assert!(self.start <= end, "an epoch ends after it has begun");
        let takes_up_to = |little| self.bytes() <= little && end - self.start <= little;
        let light = (write_buffer / 8).max(self.arena.chunk_len());
        let small = (write_buffer / SMALL_SHARE).max(SMALL_SLABS * self.arena.slab_len());
        if !takes_up_to(light.max(small)) {
            // So are most, and writers need not wait here for a thread that reads the content.
            return Weight::Heavy;
        }
        let has_files = !self.content.lock().layers.is_empty();
        if has_files && takes_up_to(light) {
            Weight::Light
        } else if !has_files && takes_up_to(small) {
            Weight::Small
        } else {
            Weight::Heavy
        }
    }
}

/// How much of the memory for writes an epoch takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Weight {
    Heavy,
    /// A large commit lies in it, and all else takes little memory and little of the log.
    Light,
    /// All of it takes little memory and little of the log.
    Small,
}

/// The open epoch and those that wait for their flush.
pub(crate) struct EpochList {
    pub(crate) open: Arc<Epoch>,
    /// Oldest first.
    pub(crate) sealed: Vec<Arc<Epoch>>,
}

impl EpochList {
    /// How many sealed epochs use up the memory for writes. While these are less than
    /// [`MAX_SEALED`], one more may be sealed; so there are never more than [`MAX_LIGHT`] and
    /// [`MAX_SMALL`] beyond.
    pub(crate) fn heavy(&self, write_buffer: u64, visible: Lsn) -> usize {
        let (light, small) = self.count_light_and_small(write_buffer, visible);
        let heavy = self.sealed.len() - light.min(MAX_LIGHT) - small.min(MAX_SMALL);
        debug_assert!(heavy <= MAX_SEALED, "epochs are sealed beyond the memory for writes");
        heavy
    }

    /// True if the open epoch, whose part of the log ends at `tail`, is small, and as many wait as
    /// may. Sealed it would count as heavy, and writers would stop the earlier.
    pub(crate) fn is_too_small(&self, write_buffer: u64, visible: Lsn, tail: Lsn) -> bool {
        self.count_light_and_small(write_buffer, visible).1 >= MAX_SMALL
            && self.open.weight(write_buffer, tail.max(self.open.start)) == Weight::Small
    }

    /// How many sealed epochs are light, and how many small. Those that are not complete are heavy.
    fn count_light_and_small(&self, write_buffer: u64, visible: Lsn) -> (usize, usize) {
        let complete = self.sealed.iter().filter(|epoch| epoch.end() <= visible);
        complete.fold((0, 0), |(light, small), epoch| {
            match epoch.weight(write_buffer, epoch.end()) {
                Weight::Light => (light + 1, small),
                Weight::Small => (light, small + 1),
                Weight::Heavy => (light, small),
            }
        })
    }
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
    /// The seal lock: held while an epoch is sealed or retired. It guards who waits for memory.
    change: Mutex<PromiseQueue>,
    changed: Condvar,
    /// The id of the last epoch whose flush is over: installed, counted and reported to the
    /// listener.
    flushed: AtomicU64,
    failures: Mutex<Failures>,
    pool: Arc<ChunkPool>,
    /// How many commits stand in the queue for memory.
    promises_awaited: AtomicU64,
}

/// The right to seal and to retire epochs.
pub(crate) type SealRight<'a> = MutexGuard<'a, PromiseQueue>;

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
        let arena = Arena::of_epoch(&pool).expect("what memtables always have holds an epoch");
        let open = Epoch::new(1, start, Arc::new(arena), BTreeMap::new());
        let list = ArcSwap::from_pointee(EpochList { open, sealed: Vec::new() });
        let change = Mutex::new(Rank::Epochs, PromiseQueue::default());
        let changed = Condvar::new();
        let (flushed, failures) =
            (AtomicU64::new(0), Mutex::new(Rank::FlushFailure, Failures::default()));
        let promises_awaited = AtomicU64::new(0);
        Epochs { list, change, changed, flushed, failures, pool, promises_awaited }
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
    pub(crate) fn lock(&self) -> SealRight<'_> {
        self.change.lock()
    }

    /// Speaks for the large commits that wait, in their turn. An error is the refusal of the first
    /// for which the memory does not suffice.
    pub(crate) fn serve(&self, right: &mut SealRight<'_>) -> Result<()> {
        let (has_spoken, served) = right.serve(&self.pool);
        if has_spoken {
            self.changed.notify_all();
        }
        served
    }

    /// A commit begins to wait for its memory, behind those that do already.
    pub(crate) fn enter(&self, right: &mut SealRight<'_>, bytes: u64) -> Ticket {
        self.promises_awaited.fetch_add(1, Ordering::AcqRel);
        right.enter(bytes)
    }

    /// A commit waits no longer.
    pub(crate) fn leave(&self, right: &mut SealRight<'_>, ticket: Ticket) {
        right.leave(ticket);
        self.promises_awaited.fetch_sub(1, Ordering::AcqRel);
    }

    /// True if some commit waits for its memory: later ones come behind it.
    pub(crate) fn are_promises_awaited(&self) -> bool {
        self.promises_awaited.load(Ordering::Acquire) > 0
    }

    /// How many commits wait for their memory.
    #[cfg(all(test, not(any(loom, shuttle))))]
    pub(crate) fn promises_awaited(&self) -> u64 {
        self.promises_awaited.load(Ordering::Acquire)
    }

    /// The memory of the next epoch. Below a ceiling it is spoken for, or there is none. Commits
    /// that wait for memory come before: none is left to the epoch while a flush may give back what
    /// they need.
    pub(crate) fn next_arena(&self, right: &mut SealRight<'_>) -> Result<Arc<Arena>> {
        let is_flushed = self.is_flushed();
        let is_passed = match self.serve(right) {
            Err(full) if !is_flushed => return Err(full),
            served => served.is_err(),
        };
        let arena = Arena::of_epoch(&self.pool).map(Arc::new)?;
        if is_passed {
            right.pass_over();
        }
        Ok(arena)
    }

    /// The memory of an epoch in which nothing is written, because the database closes.
    pub(crate) fn last_arena(&self) -> Arc<Arena> {
        Arc::new(Arena::new(self.pool.clone()))
    }

    /// The families of which something is not flushed yet.
    pub(crate) fn families_in_memory(&self) -> BTreeSet<FamilyId> {
        let list = self.list();
        list.sealed.iter().chain([&list.open]).flat_map(|epoch| epoch.families()).collect()
    }

    /// The open epoch's id, and the families that were written in it.
    pub(crate) fn open_families(&self) -> (u64, BTreeSet<FamilyId>) {
        let list = self.list();
        (list.open.id, list.open.families())
    }

    /// True if no flush is under way or waits to begin: none will give memory back.
    pub(crate) fn is_flushed(&self) -> bool {
        self.flushed() + 1 >= self.list().open.id
    }

    /// Seals the open epoch. `arena` is for the next one. `reserve_marker` reserves the marker
    /// record; if it fails or panics, nothing has changed.
    pub(crate) fn seal_into<M: Marker, E>(
        &self,
        _right: &SealRight<'_>,
        arena: Arc<Arena>,
        reserve_marker: impl FnOnce() -> Result<M, E>,
    ) -> Result<(Arc<Epoch>, M), E> {
        let list = self.list.load_full();
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
        list.open.arena.note_sealed();
        Ok((list.open.clone(), marker))
    }

    /// Seals the open epoch, without a ceiling for memory.
    #[cfg(test)]
    pub(crate) fn seal<M: Marker, E>(
        &self,
        right: &SealRight<'_>,
        reserve_marker: impl FnOnce() -> Result<M, E>,
    ) -> Result<(Arc<Epoch>, M), E> {
        self.seal_into(right, Arc::new(Arena::new(self.pool.clone())), reserve_marker)
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
        if planted(Plant::StreamGoesWithFlush) {
            epoch.content.lock().streams.clear();
        }
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
    pub(crate) fn wait_for_room(&self, right: &mut SealRight<'_>) {
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
mod tests;
