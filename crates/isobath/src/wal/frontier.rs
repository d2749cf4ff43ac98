//! A frontier: the LSN below which every record has reached some state (copied, visible). The
//! threads that finish records move it.
//!
//! Records reach the state in any order; the frontier passes them in LSN order. Each finished
//! record leaves a mark in a ring: slot `(start / 32) % N` holds the record's end. A thread that
//! finishes the record at the frontier moves the frontier over it and over every finished
//! successor. A thread that finishes a later record leaves the mark, then moves the frontier if it
//! can. So no thread has to be scheduled just to take its turn. (On two cores with 16 threads,
//! waiting for a turn by spinning falls from 2 M to 0.04 M commits a second; the ring stays above
//! 1 M.)
//!
//! Let `F` be the frontier.
//!
//! **One slot, one record.** A record is at least 32 bytes long, so two records never start in the
//! same granule of 32 bytes. A record is marked only while its granule is less than N granules
//! after F's. So when it writes its slot, F has passed the record that used the slot one lap ago. A
//! stale slot holds the end of a record that F has passed, hence at most F. So at F, `slot > F`
//! means: the record that starts at F is finished. If F moves on in between, the compare-and-swap
//! from F fails, because F never returns to a value.
//!
//! **No mark is forgotten** (as in Dekker's algorithm). The thread that moves F *to* `l` stores F,
//! then loads the slot of `l`. The thread that marks the record at `l` stores the slot, then loads
//! F. All four accesses are sequentially consistent. So in their single order either the mover's
//! load comes after the mark and sees it, or the marker's load comes after the move and sees F at
//! `l` (or beyond). The thread that sees both moves F on; it is then the mover to the next LSN, and
//! the argument repeats.
//!
//! **No sleeper is forgotten**, by the same argument: a sleeper stores `wake_at`, then loads F; a
//! mover stores F, then loads `wake_at`.

use super::waiters::{self, Waiters};
use crate::env::sync::{Mutex, Rank, atomic::*, fence_for_loom, spin_hint};
use crate::env::{Reach, reached_if};
use crate::format::Lsn;
use crossbeam_utils::CachePadded;

/// Log bytes that share a slot; no record is shorter.
const GRANULE: u64 = 32;

/// How often a waiter checks before it sleeps: for about a microsecond, which is longer than a
/// small record takes.
const SPINS: u32 = if cfg!(any(loom, shuttle)) { 0 } else { 60 };

/// A wait ended before its LSN was passed, because [`Frontier::interrupt`] was called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Interrupted;

#[derive(Debug)]
pub(crate) struct Frontier {
    at: CachePadded<AtomicU64>,
    /// The least LSN a sleeper waits for. Changes only when a thread sleeps or wakes.
    wake_at: CachePadded<AtomicU64>,
    interrupted: AtomicBool,
    slots: Box<[AtomicU64]>,
    sleepers: Mutex<Waiters>,
}

impl Frontier {
    /// A frontier at `start`. Records may finish up to about `32 * slots` bytes ahead of it.
    pub(crate) fn new(start: Lsn, slots: usize) -> Frontier {
        assert!(slots.is_power_of_two());
        Frontier {
            at: CachePadded::new(AtomicU64::new(start)),
            wake_at: CachePadded::new(AtomicU64::new(Lsn::MAX)),
            interrupted: AtomicBool::new(false),
            slots: (0..slots).map(|_| AtomicU64::new(0)).collect(),
            sleepers: Mutex::new(Rank::Frontier, Waiters::default()),
        }
    }

    /// The frontier: every record below is finished, and the caller sees the effects of those
    /// records.
    #[inline]
    pub(crate) fn at(&self) -> Lsn {
        self.at.load(Ordering::Acquire)
    }

    /// Marks the record `[start, end)` as finished and moves the frontier as far as possible. The
    /// record's owner calls this once. Waits only if the record lies further ahead than the ring's
    /// length.
    #[inline]
    pub(crate) fn mark(&self, start: Lsn, end: Lsn) {
        debug_assert!(start < end);
        debug_assert!(self.at() <= start, "the frontier passed {start:#x} before it was marked");
        if self.at.load(Ordering::Acquire) == start {
            // No other thread can move F from here: the record that starts at F is not marked.
            announce(&self.at, end);
            self.help(end);
        } else {
            self.mark_ahead(start, end);
        }
    }

    fn mark_ahead(&self, start: Lsn, end: Lsn) {
        let granule = start / GRANULE;
        let lap = self.slots.len() as u64;
        let room_from = (granule + 1).saturating_sub(lap) * GRANULE;
        reached_if(Reach::RingLap, || self.at() < room_from);
        if self.at() < room_from && self.wait(room_from).is_err() {
            return; // A predecessor will never finish, so the mark would never be read.
        }
        reached_if(Reach::RingReused, || self.slot(start).load(Ordering::Relaxed) != 0);
        announce(self.slot(start), end);
        self.help(self.at.load(Ordering::SeqCst));
    }

    /// Moves F over every finished record from `at` on. `at` is a present or past value of F.
    #[inline]
    fn help(&self, mut at: Lsn) {
        loop {
            let end = self.slot(at).load(Ordering::SeqCst);
            if end <= at {
                break;
            }
            match self.at.compare_exchange(at, end, Ordering::SeqCst, Ordering::SeqCst) {
                Ok(_) => {
                    fence_for_loom();
                    at = end;
                }
                Err(moved) => at = moved,
            }
        }
        if at >= self.wake_at.load(Ordering::SeqCst) {
            self.wake();
        }
    }

    /// Returns once the frontier is at `target` or beyond.
    #[inline]
    pub(crate) fn wait(&self, target: Lsn) -> Result<(), Interrupted> {
        if self.at() >= target {
            return Ok(());
        }
        for _ in 0..SPINS {
            spin_hint();
            if self.at() >= target {
                return Ok(());
            }
        }
        self.sleep(target)
    }

    #[cold]
    fn sleep(&self, target: Lsn) -> Result<(), Interrupted> {
        let mut sleepers = self.sleepers.lock();
        let slot = sleepers.take(target);
        announce(&self.wake_at, sleepers.least());
        while sleepers.call(&slot).is_none()
            && self.at.load(Ordering::SeqCst) < target
            && !self.interrupted.load(Ordering::Acquire)
        {
            waiters::sleep(&mut sleepers, &slot, |waiters| waiters);
        }
        sleepers.leave(slot);
        self.wake_at.store(sleepers.least(), Ordering::Release);
        drop(sleepers);
        if self.at() >= target { Ok(()) } else { Err(Interrupted) }
    }

    #[cfg(all(test, not(any(loom, shuttle))))]
    pub(super) fn has_sleepers(&self) -> bool {
        self.sleepers.lock().least() != Lsn::MAX
    }

    #[cold]
    fn wake(&self) {
        let mut sleepers = self.sleepers.lock();
        let reached = if self.interrupted.load(Ordering::Acquire) { Lsn::MAX } else { self.at() };
        sleepers.pass(reached);
        self.wake_at.store(sleepers.least(), Ordering::Release);
    }

    /// Ends every wait, present and future, for an LSN that is not passed yet.
    pub(super) fn interrupt(&self) {
        self.interrupted.store(true, Ordering::Release);
        self.wake();
    }

    #[inline]
    fn slot(&self, start: Lsn) -> &AtomicU64 {
        &self.slots[(start / GRANULE) as usize & (self.slots.len() - 1)]
    }
}

/// Stores a value so that in the order all threads see, it precedes the caller's next sequentially
/// consistent load. (An exchange costs half as much as a store and a full fence.)
#[inline]
fn announce(word: &AtomicU64, value: u64) {
    word.swap(value, Ordering::SeqCst);
    fence_for_loom();
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    /// Threads take ranges of varying length, mark them, and check that everything below the LSN
    /// they waited for is done.
    fn stress(threads: usize, each: u64, slots: usize) {
        let frontier = Frontier::new(0, slots);
        let tail = AtomicU64::new(0);
        let done: Vec<AtomicBool> =
            (0..threads as u64 * each * 64 / 8).map(|_| AtomicBool::new(false)).collect();
        std::thread::scope(|scope| {
            for thread in 0..threads as u64 {
                let (frontier, tail, done) = (&frontier, &tail, &done);
                scope.spawn(move || {
                    for n in 0..each {
                        let len = 32 + (n * 7 + thread * 13) % 5 * 8;
                        let start = tail.fetch_add(len, Ordering::Relaxed);
                        for word in start / 8..(start + len) / 8 {
                            done[word as usize].store(true, Ordering::Relaxed);
                        }
                        frontier.mark(start, start + len);
                        if n % 3 != 0 {
                            frontier.wait(start + len).unwrap();
                            let from = (start / 8).saturating_sub(40);
                            for word in from..(start + len) / 8 {
                                assert!(done[word as usize].load(Ordering::Relaxed));
                            }
                        }
                    }
                });
            }
        });
        assert_eq!(frontier.at(), tail.into_inner());
    }

    #[test]
    fn what_lies_below_is_finished_with_any_number_of_threads() {
        let each = if cfg!(miri) { 20 } else { 4000 };
        for threads in [1, 2, 4, 8, 16, 32] {
            if cfg!(miri) && threads > 4 {
                break;
            }
            stress(threads, each, 1 << 10);
        }
    }

    #[test]
    fn a_ring_shorter_than_what_is_in_flight_only_slows() {
        let each = if cfg!(miri) { 20 } else { 1000 };
        stress(4, each, 2);
        stress(if cfg!(miri) { 3 } else { 16 }, each, 4);
    }

    #[test]
    fn records_finished_in_reverse_are_passed_by_the_first() {
        let frontier = Frontier::new(64, 64);
        for record in (1..20).rev() {
            frontier.mark(64 + record * 40, 64 + (record + 1) * 40);
            assert_eq!(frontier.at(), 64);
        }
        frontier.mark(64, 104);
        assert_eq!(frontier.at(), 64 + 20 * 40);
    }

    #[test]
    fn an_interrupt_ends_waits_for_what_is_not_passed() {
        let frontier = Frontier::new(0, 64);
        frontier.mark(0, 40);
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| frontier.wait(80));
            std::thread::yield_now();
            frontier.interrupt();
            assert_eq!(waiter.join().unwrap(), Err(Interrupted));
        });
        assert_eq!(frontier.wait(40), Ok(()));
        assert_eq!(frontier.wait(41), Err(Interrupted));
    }

    #[test]
    fn a_record_a_lap_ahead_waits_until_its_slot_is_free_and_one_before_that_does_not() {
        let frontier = Frontier::new(0, 4);
        for granule in [3, 1, 2] {
            frontier.mark(granule * 32, (granule + 1) * 32);
        }
        assert!(!frontier.has_sleepers());
        std::thread::scope(|scope| {
            let late = scope.spawn(|| frontier.mark(128, 160));
            while !frontier.has_sleepers() {
                std::thread::yield_now();
            }
            assert!(!late.is_finished());
            assert_eq!(frontier.wake_at.load(Ordering::Relaxed), 32);
            frontier.mark(0, 32);
            late.join().unwrap();
        });
        assert_eq!((frontier.at(), frontier.has_sleepers()), (160, false));
        assert_eq!(frontier.wake_at.load(Ordering::Relaxed), Lsn::MAX);
    }

    #[test]
    fn sleepers_wake_when_what_they_wait_for_is_passed_and_not_before() {
        let frontier = Frontier::new(64, 64);
        std::thread::scope(|scope| {
            let waiters = [104, 144].map(|lsn| {
                let frontier = &frontier;
                (lsn, scope.spawn(move || frontier.wait(lsn)))
            });
            while frontier.sleepers.lock().least() != 104
                || frontier.wake_at.load(Ordering::Relaxed) != 104
            {
                std::thread::yield_now();
            }
            for (lsn, waiter) in waiters {
                assert!(!waiter.is_finished());
                frontier.mark(lsn - 40, lsn);
                assert_eq!(waiter.join().unwrap(), Ok(()));
            }
        });
        assert_eq!((frontier.at(), frontier.has_sleepers()), (144, false));
    }

    #[test]
    fn who_has_slept_leaves_the_slot_to_others() {
        let frontier = Frontier::new(64, 64);
        assert_eq!([frontier.sleep(64), frontier.sleep(64)], [Ok(()), Ok(())]);
        frontier.interrupt();
        assert_eq!(frontier.sleep(104), Err(Interrupted));
        assert_eq!(frontier.sleepers.lock().taken_count(), 0);
    }

    #[test]
    fn a_record_whose_predecessors_never_finish_is_not_waited_for_after_an_interrupt() {
        let frontier = Frontier::new(0, 4);
        frontier.interrupt();
        frontier.mark(128, 160);
        frontier.mark(32, 64);
        assert_eq!(frontier.at(), 0);
        frontier.mark(0, 32);
        assert_eq!(frontier.at(), 64);
        assert_eq!((frontier.wait(64), frontier.wait(65)), (Ok(()), Err(Interrupted)));
    }
}
