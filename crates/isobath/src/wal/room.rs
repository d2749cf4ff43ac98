//! Handing out LSNs: the tail of the log, and the limit up to which there is room for bytes.
//!
//! A reservation moves `tail` in a compare-and-swap loop that never passes `limit`. So an LSN is
//! handed out only if its segment is installed, the segment's directory entry is durable, and the
//! manifest's LSN ceiling is above it. The last [`SLACK`] bytes below the limit are for internal
//! records (epoch markers), which must not wait for room. Shutting sets the tail's top bit. No
//! reservation succeeds after that, so the tail of a shut log is exactly the end of what was
//! reserved, and the writers' fast path needs no extra check.
//!
//! Room that was handed to the writers and that none has taken can be taken back
//! ([`Room::take_back`]). That lowers the limit and then flips a bit of the tail, the *turn*. Why
//! no writer that has seen the old limit takes an LSN above the new one:
//!
//! - The bit flips at most once between two reservations, and the tail never goes back. So, once
//!   the tail's word has changed, it never has an earlier value again.
//! - A writer's exchange that comes before the flip moves the tail, and the flip reads that. If the
//!   tail is beyond the new limit then, the old one is put back and nothing is taken.
//! - One that comes after the flip succeeds only if the writer has read the word that the flip, or
//!   a later change, left there. That read acquires what the flip released. So the writer, which
//!   reads the limit after the word, reads the new limit or a later one.
//!
//! A writer that finds no room asks for it: it states how much it wants, wakes the preparer and
//! sleeps. It wakes when the limit moves, when the log is shut, or when an attempt to make room
//! that began after it asked fails. In the last case it returns that error, and the next writer
//! asks again.

use crate::env::Clock;
use crate::env::sync::{Condvar, Mutex, Rank, atomic::*};
use crate::error::{Error, Result, StallCause};
use crate::format::Lsn;
use crossbeam_utils::CachePadded;
use std::collections::BTreeMap;

/// The bit of the tail that marks a shut log. No LSN has it.
const SHUT: u64 = 1 << 63;

/// The bit of the tail that flips when room is taken back. No LSN has it.
const TURN: u64 = 1 << 62;

/// Bytes below the limit that ordinary records leave free.
pub(super) const SLACK: u64 = 1024;

/// Whether a writer that finds no room waits for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    /// Waits until there is room, or an attempt to make room fails.
    Waits,
    /// Does not wait: the writer gets an error and may try again.
    None,
}

impl Patience {
    /// The patience of a writer with, or without, `fail_fast`.
    #[inline]
    pub(crate) fn of(fail_fast: bool) -> Patience {
        if fail_fast { Patience::None } else { Patience::Waits }
    }
}

#[derive(Debug)]
pub(crate) struct Room {
    tail: CachePadded<AtomicU64>,
    limit: CachePadded<AtomicU64>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    /// The end of the last installed segment.
    prepared: Lsn,
    /// No LSN at or above this is handed out before the manifest durably allows it.
    ceiling: Lsn,
    /// The greatest limit a writer has asked for.
    wanted: Lsn,
    /// The bytes for which writers sleep, by the number of their request.
    waiting: BTreeMap<u64, u64>,
    shut: bool,
    /// Where the tail was when its turn last flipped.
    turned_at: Lsn,
    /// How often writers asked for room.
    asked: u64,
    /// The last attempt to make room, if it failed: how often writers had asked when it began, and
    /// the error.
    failure: Option<(u64, Error)>,
    waits: RoomWaits,
}

/// How far segments should be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    /// Segments that begin below are handed out one by one.
    pub(super) soon: Lsn,
    /// The others up to here are handed out together: a long record needs all of them.
    pub(super) all: Lsn,
}

/// Counts and times of writers that had to wait for room in the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RoomWaits {
    pub(crate) count: u64,
    pub(crate) total_ns: u64,
    pub(crate) max_ns: u64,
}

impl Room {
    /// A room with nothing prepared yet: no LSN can be taken.
    pub(crate) fn new(start: Lsn, ceiling: Lsn) -> Room {
        Room {
            tail: CachePadded::new(AtomicU64::new(start)),
            limit: CachePadded::new(AtomicU64::new(0)),
            state: Mutex::new(
                Rank::Room,
                State {
                    prepared: start,
                    ceiling,
                    wanted: start,
                    waiting: BTreeMap::new(),
                    shut: false,
                    turned_at: 0,
                    asked: 0,
                    failure: None,
                    waits: RoomWaits::default(),
                },
            ),
            changed: Condvar::new(),
        }
    }

    #[inline]
    pub(crate) fn tail(&self) -> Lsn {
        self.tail.load(Ordering::Acquire) & !(SHUT | TURN)
    }

    pub(super) fn prepared(&self) -> Lsn {
        self.state.lock().prepared
    }

    pub(super) fn waits(&self) -> RoomWaits {
        self.state.lock().waits
    }

    /// Reserves `len` bytes if they end at least `slack` bytes below the limit. The acquire-release
    /// exchange orders what the owners of two successive reservations did before and do after.
    #[inline]
    pub(crate) fn try_take(&self, len: u64, slack: u64) -> Option<Lsn> {
        // Acquired each time: the limit that is read next is not older than the turn.
        let mut word = self.tail.load(Ordering::Acquire);
        loop {
            let start = word & !TURN;
            if start + len + slack > self.limit.load(Ordering::Acquire) {
                return None;
            }
            match self.tail.compare_exchange_weak(
                word,
                word + len,
                Ordering::AcqRel,
                Ordering::Acquire,
            ) {
                Ok(_) => {
                    debug_assert_eq!(start & SHUT, 0, "an LSN was taken though the log is shut");
                    return Some(start);
                }
                Err(moved) => word = moved,
            }
        }
    }

    /// The tail, by an exchange of equal values. It takes part in the order of reservations: the
    /// owner of a later one sees what the caller did before, and the caller sees what the owners of
    /// earlier ones did.
    pub(crate) fn touch(&self) -> Lsn {
        let mut tail = self.tail.load(Ordering::Relaxed);
        while let Err(moved) =
            self.tail.compare_exchange_weak(tail, tail, Ordering::AcqRel, Ordering::Relaxed)
        {
            tail = moved;
        }
        tail & !(SHUT | TURN)
    }

    /// Reserves `len` bytes and waits for room if `patience` allows it. Calls `wake_preparer` when
    /// the preparer must make room. `refusal` gives the error of a log that was shut.
    #[cold]
    pub(crate) fn take(
        &self,
        len: u64,
        slack: u64,
        patience: Patience,
        clock: &dyn Clock,
        wake_preparer: &dyn Fn(),
        refusal: &dyn Fn() -> Error,
    ) -> Result<Lsn> {
        let began = clock.now_ns();
        // Read the clock before each attempt: if the clock panicked after an LSN was taken, the log
        // would keep a hole.
        let mut now = began;
        let mut state = self.state.lock();
        state.asked += 1;
        let ask = state.asked;
        let taken = loop {
            if state.shut {
                break Err(refusal());
            }
            if let Some(start) = self.try_take(len, slack) {
                break Ok(start);
            }
            if let Some((asked, error)) = &state.failure
                && *asked >= ask
            {
                break Err(error.clone());
            }
            let wanted = self.tail() + len + slack;
            state.wanted = state.wanted.max(wanted);
            if wanted > self.limit.load(Ordering::Relaxed) {
                wake_preparer();
                if patience == Patience::None {
                    // The preparer makes the room this call asked for, so a later attempt can use
                    // it.
                    let why = state.failure.as_ref().map(|(_, error)| error.clone());
                    return Err(why.unwrap_or_else(|| Error::would_stall(StallCause::LogFull)));
                }
                state.waiting.insert(ask, len + slack);
                self.changed.wait(&mut state);
                state.waiting.remove(&ask);
                now = clock.now_ns();
            }
        };
        let waited = now.saturating_sub(began);
        let waits = &mut state.waits;
        waits.count += 1;
        waits.total_ns += waited;
        waits.max_ns = waits.max_ns.max(waited);
        debug_assert!(waits.max_ns <= waits.total_ns, "one wait is longer than all together");
        let limit = state.prepared.min(state.ceiling);
        debug_assert!(
            taken.as_ref().is_ok_and(|start| start + len + slack <= limit) || taken.is_err(),
            "an LSN was taken that has no segment yet, or is above the ceiling"
        );
        taken
    }

    /// How far segments should be made, or `None` if there are enough: a writer waits for more, or
    /// fewer than `ahead` bytes are left. Segments above the ceiling can wait.
    pub(super) fn wants_segments(&self, ahead: u64) -> Option<Wanted> {
        let state = self.state.lock();
        let tail = self.tail();
        // The tail may have moved on since the writers asked.
        let longest = state.waiting.values().max().copied().unwrap_or(0);
        let soon = (tail + ahead).min(state.ceiling);
        let all = state.wanted.max(tail + longest).min(state.ceiling).max(soon);
        (!state.shut && state.prepared < all).then_some(Wanted { soon, all })
    }

    /// The LSN that the ceiling should be raised above, or `None` if it is not time. It is time
    /// when a writer waits for it, or fewer than `ahead` bytes are left.
    pub(super) fn wants_ceiling(&self, ahead: u64) -> Option<Lsn> {
        let state = self.state.lock();
        let wanted = state.wanted.max(self.tail() + ahead);
        (!state.shut && state.ceiling < wanted).then_some(wanted)
    }

    /// True if a writer sleeps until there is room.
    #[cfg(all(test, not(any(loom, shuttle))))]
    pub(super) fn has_waiters(&self) -> bool {
        !self.state.lock().waiting.is_empty()
    }

    /// Records that all LSNs below `prepared` now have an installed segment.
    pub(crate) fn extend(&self, prepared: Lsn) {
        self.change(|state| {
            state.prepared = state.prepared.max(prepared);
            state.failure = None;
        });
    }

    /// Takes the room from `keep` on back, unless a writer waits for room or has come near. If it
    /// is true, no LSN from `keep` on was handed out, nor is one before [`Room::extend`]. Room for
    /// the records that must not wait for any is left.
    pub(super) fn take_back(&self, keep: Lsn) -> bool {
        let mut state = self.state.lock();
        let is_enough = |tail: Lsn| tail + 2 * SLACK <= keep;
        let tail = self.tail();
        if state.shut
            || !state.waiting.is_empty()
            || state.prepared <= keep
            || tail <= state.turned_at
            || !is_enough(tail)
        {
            return false;
        }
        self.limit.store(keep.min(state.ceiling), Ordering::Release);
        let tail = self.tail.fetch_xor(TURN, Ordering::AcqRel) & !TURN;
        debug_assert!(state.turned_at < tail, "the turn flips twice at one tail");
        state.turned_at = tail;
        if !is_enough(tail) {
            self.limit.store(state.prepared.min(state.ceiling), Ordering::Release);
            return false;
        }
        state.prepared = keep;
        // Who asked for room and did not wait has to ask again.
        state.wanted = 0;
        true
    }

    /// Allows LSNs below `ceiling` to be handed out.
    pub(super) fn raise_ceiling(&self, ceiling: Lsn) {
        self.change(|state| {
            state.ceiling = state.ceiling.max(ceiling);
            state.failure = None;
        });
    }

    /// How often writers have asked for room: see [`Room::fail`].
    pub(super) fn asked(&self) -> u64 {
        self.state.lock().asked
    }

    /// Reports that an attempt to make room failed. It began when writers had asked `asked` times,
    /// and those writers get the error.
    pub(super) fn fail(&self, asked: u64, error: Error) {
        self.change(|state| {
            state.failure = Some((asked, error));
            // Writers that go on waiting ask again.
            state.wanted = 0;
            state.waiting.clear();
        });
    }

    /// Stops handing out LSNs.
    pub(super) fn shut(&self) {
        self.change(|state| {
            state.shut = true;
            self.tail.fetch_or(SHUT, Ordering::AcqRel);
        });
    }

    fn change(&self, edit: impl FnOnce(&mut State)) {
        let mut state = self.state.lock();
        edit(&mut state);
        let limit = state.prepared.min(state.ceiling);
        assert!(
            limit >= self.limit.load(Ordering::Relaxed),
            "the log's limit goes back to {limit:#x}, though LSNs above it may be handed out"
        );
        self.limit.store(limit, Ordering::Release);
        self.changed.notify_all();
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::env::Env;
    use crate::error::{ErrorKind, LockHolder};

    #[test]
    fn who_does_not_wait_is_refused_and_has_asked_for_room() {
        let room = Room::new(4096, 1 << 20);
        room.extend(8192);
        let clock = Env::system().clock;
        let woken = AtomicU64::new(0);
        let wake = || {
            woken.fetch_add(1, Ordering::Relaxed);
        };
        let take = || room.take(5000, 0, Patience::None, &*clock, &wake, &|| Error::closed());
        assert_eq!(take().unwrap_err().name(), "WOULD_STALL");
        assert_eq!(woken.load(Ordering::Relaxed), 1);
        assert!(room.wants_segments(0).is_some());
        room.fail(room.asked(), Error::locked("disk".as_ref(), LockHolder::Unknown));
        assert!(
            matches!(take().as_ref().map_err(Error::name), Err("LOCKED")),
            "why there is no room is told"
        );
        assert!(room.wants_segments(0).is_some(), "and there may be some by now");
        room.extend(12288);
        assert_eq!(take().unwrap(), 4096);
        room.shut();
        assert_eq!(take().unwrap_err().name(), "CLOSED");
        assert_eq!(room.waits().count, 2, "refusals were no waits");
    }

    #[test]
    fn room_is_handed_out_up_to_the_lesser_of_what_is_prepared_and_the_ceiling() {
        let room = Room::new(4096, 8000);
        assert_eq!((room.tail(), room.prepared(), room.try_take(32, 0)), (4096, 4096, None));
        room.extend(6000);
        assert_eq!(room.try_take(1905, 0), None);
        assert_eq!(room.try_take(1000, 905), None, "some of it is left free");
        assert_eq!(room.try_take(1000, 904), Some(4096));
        assert_eq!(room.try_take(904, 0), Some(5096));
        assert_eq!((room.tail(), room.try_take(1, 0)), (6000, None));
        room.extend(5000);
        assert_eq!(room.prepared(), 6000, "what is prepared stays so");
        room.extend(9000);
        assert_eq!((room.try_take(2001, 0), room.try_take(2000, 0)), (None, Some(6000)));
        room.raise_ceiling(7000);
        assert_eq!((room.tail(), room.try_take(1, 0)), (8000, None));
        room.raise_ceiling(8500);
        assert_eq!((room.try_take(501, 0), room.try_take(500, 0)), (None, Some(8000)));
        room.raise_ceiling(20_000);
        assert_eq!((room.try_take(501, 0), room.try_take(499, 0)), (None, Some(8500)));
        room.shut();
        assert_eq!((room.tail(), room.try_take(1, 0)), (8999, None));
    }

    #[test]
    fn a_segment_and_a_ceiling_are_wanted_as_far_ahead_as_asked_for_and_no_more() {
        let room = Room::new(4096, 10_000);
        assert!(room.wants_segments(0).is_none() && room.wants_segments(1).is_some());
        room.extend(6096);
        assert!(room.wants_segments(2000).is_none() && room.wants_segments(2001).is_some());
        assert_eq!(room.wants_ceiling(5904), None);
        assert_eq!(room.wants_ceiling(5905), Some(10_001));
        assert_eq!(room.try_take(1000, 0), Some(4096));
        assert!(room.wants_segments(1000).is_none() && room.wants_segments(1001).is_some());
        assert_eq!((room.wants_ceiling(4904), room.wants_ceiling(4905)), (None, Some(10_001)));
        room.extend(10_000);
        assert!(room.wants_segments(1 << 40).is_none(), "those above the ceiling can wait");
        room.raise_ceiling(10_001);
        assert!(room.wants_segments(1 << 40).is_some());
        room.shut();
        assert!(room.wants_segments(1 << 40).is_none());
        assert_eq!(room.wants_ceiling(1 << 40), None);
    }

    #[test]
    fn what_a_writer_waits_for_moves_with_the_tail_and_ends_with_an_answer() {
        let room = Room::new(4096, 1 << 20);
        room.extend(8192);
        let clock = Env::system().clock;
        let take =
            || room.take(10_000, 8, Patience::Waits, &*clock, &|| (), &|| Error::cancelled());
        std::thread::scope(|scope| {
            let waiter = scope.spawn(take);
            await_asked(&room, 1, 14_104);
            while !room.has_waiters() {
                std::thread::yield_now();
            }
            assert_eq!(room.wants_segments(100), Some(Wanted { soon: 4196, all: 14_104 }));
            assert_eq!(room.try_take(2000, 0), Some(4096));
            assert_eq!(room.wants_segments(100), Some(Wanted { soon: 6196, all: 16_104 }));
            assert_eq!(room.wants_segments(1 << 19).unwrap().all, 6096 + (1 << 19));
            room.fail(1, Error::would_stall(StallCause::LogFull));
            assert_eq!(room.wants_segments(100), None, "nothing is asked for any more");
            assert_eq!(waiter.join().unwrap().unwrap_err().name(), "WOULD_STALL");
        });
        assert!(!room.has_waiters());
    }

    /// A clock that panics at one chosen reading.
    struct PanicsAt(AtomicU64);

    impl Clock for PanicsAt {
        fn now_ns(&self) -> u64 {
            if self.0.fetch_sub(1, Ordering::Relaxed) == 0 {
                std::panic::resume_unwind(Box::new("planted"));
            }
            0
        }
        fn unix_ms(&self) -> u64 {
            0
        }
    }

    #[test]
    fn a_clock_that_panics_leaves_no_hole() {
        for look in 0..4 {
            let (room, clock) = (Room::new(4096, 1 << 20), PanicsAt(AtomicU64::new(look)));
            let refusal = || Error::cancelled();
            let taken = std::thread::scope(|scope| {
                let take = || room.take(1000, 8, Patience::Waits, &clock, &|| (), &refusal);
                let waiter = scope.spawn(take);
                if look > 0 {
                    await_asked(&room, 1, 5104);
                }
                room.extend(8192);
                waiter.join()
            });
            assert_eq!(taken.is_err(), look < 2);
            assert_eq!(room.tail(), if taken.is_ok() { 5096 } else { 4096 });
        }
    }

    /// Waits until there were `count` requests for room, one of them up to `wanted`.
    fn await_asked(room: &Room, count: u64, wanted: Lsn) {
        while room.asked() < count || room.state.lock().wanted < wanted {
            std::thread::yield_now();
        }
    }

    #[test]
    fn who_waits_is_told_of_attempts_that_began_after_it_asked_and_of_no_others() {
        let room = Room::new(4096, 1 << 20);
        let clock = Env::system().clock;
        let woken = AtomicU64::new(0);
        let wake = || {
            woken.fetch_add(1, Ordering::Relaxed);
        };
        let take = |len| room.take(len, 8, Patience::Waits, &*clock, &wake, &|| Error::cancelled());
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| take(1000));
            await_asked(&room, 1, 5104);
            assert!(room.wants_segments(0).is_some());
            room.fail(0, Error::would_stall(StallCause::FlushBehind));
            // The attempt began before the waiter asked, so the waiter asks again.
            await_asked(&room, 1, 5104);
            assert!(!waiter.is_finished());
            room.fail(1, Error::would_stall(StallCause::MemoryFull));
            let told = waiter.join().unwrap();
            assert!(
                matches!(
                    told.as_ref().map_err(Error::kind),
                    Err(ErrorKind::WouldStall { cause: StallCause::MemoryFull, .. })
                ),
                "{told:?}"
            );

            let waiter = scope.spawn(|| take(1000));
            await_asked(&room, 2, 5104);
            room.extend(5103);
            std::thread::sleep(std::time::Duration::from_millis(2));
            assert!(!waiter.is_finished());
            room.extend(5104);
            assert_eq!(waiter.join().unwrap().unwrap(), 4096);

            let waiter = scope.spawn(|| take(1000));
            await_asked(&room, 3, 6104);
            room.shut();
            assert_eq!(waiter.join().unwrap().unwrap_err().name(), "CANCELLED");
        });
        assert!(woken.load(Ordering::Relaxed) >= 4);
        let waits = room.waits();
        assert_eq!(waits.count, 3);
        assert!(waits.max_ns >= 2_000_000 && waits.max_ns <= waits.total_ns, "{waits:?}");
        assert!(waits.total_ns < 600_000_000_000, "{waits:?}");
        assert_eq!(room.tail(), 5096);
    }
}
