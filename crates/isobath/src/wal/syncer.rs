//! One sync at a time, shared by everyone who waits for it.
//!
//! Whoever needs an LSN durable while nobody syncs becomes the leader and syncs everything copied so far.
//! Those who come meanwhile sleep. At the end the leader wakes those it covered and hands the lead to one
//! of the others, who covers them all. No cap limits a group.
//!
//! Writers that sync in a loop would split in two groups taking turns: the first one back would lead alone
//! while the others are on their way. So a leader *lingers* until as many have come as were there last
//! time, though no longer than half a sync takes; alone, it never lingers.
//!
//! A round that fails is the last one: what it covered may be lost though later syncs succeed.

use super::seats::{self, Call, Seats};
use crate::components::Clock;
use crate::components::sync::{Mutex, atomic::*, yield_now};
use crate::error::Result;
use crate::format::Lsn;

/// The longest a leader waits for others to join, whatever a sync takes.
const LINGER_NS_MAX: u64 = 200_000;
/// The same in looks, in case time stands still.
const LINGER_LOOKS_MAX: u32 = if cfg!(any(loom, shuttle)) { 0 } else { 2000 };

/// Why a wait for durability ended without it: a sync failed, or the syncer was stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stopped;

#[derive(Debug)]
pub(super) struct Syncer {
    durable: AtomicU64,
    /// The greatest LSN that somebody has asked to be made durable.
    last_asked: AtomicU64,
    /// Threads inside [`Syncer::harden`] that no finished round has covered.
    inside: AtomicUsize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    leading: bool,
    stopped: bool,
    seats: Seats,
    expected: usize,
    round_ns: u64,
    counts: SyncCounts,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SyncCounts {
    /// Rounds that succeeded.
    pub(crate) syncs: u64,
    /// Callers that had to wait, for their own round or another's.
    pub(crate) waiters: u64,
    /// Total time of the rounds.
    pub(crate) total_ns: u64,
    /// The longest round.
    pub(crate) max_ns: u64,
}

impl Syncer {
    pub(super) fn new(durable: Lsn) -> Syncer {
        Syncer {
            durable: AtomicU64::new(durable),
            last_asked: AtomicU64::new(0),
            inside: AtomicUsize::new(0),
            state: Mutex::default(),
        }
    }

    #[inline]
    pub(super) fn durable(&self) -> Lsn {
        self.durable.load(Ordering::Acquire)
    }

    pub(super) fn last_asked(&self) -> Lsn {
        self.last_asked.load(Ordering::Relaxed)
    }

    pub(super) fn counts(&self) -> SyncCounts {
        self.state.lock().counts
    }

    /// Returns once everything below `up_to` is durable. `round` makes everything that was finished when
    /// it was called durable, and returns up to where; that is at least `up_to`, or the caller must not
    /// have called yet.
    pub(super) fn harden(
        &self,
        up_to: Lsn,
        clock: &dyn Clock,
        round: &dyn Fn() -> Result<Lsn>,
    ) -> Result<(), Stopped> {
        if self.durable() >= up_to {
            return Ok(());
        }
        self.last_asked.fetch_max(up_to, Ordering::Relaxed);
        if !self.join(up_to)? {
            return Ok(());
        }
        self.linger(clock);
        let began = clock.now_ns();
        let outcome = round();
        self.finish(outcome, clock.now_ns().saturating_sub(began));
        if self.durable() >= up_to { Ok(()) } else { Err(Stopped) }
    }

    /// True if the caller is the leader now, false if `up_to` has become durable.
    fn join(&self, up_to: Lsn) -> Result<bool, Stopped> {
        let mut state = self.state.lock();
        if self.durable() >= up_to {
            return Ok(false);
        }
        if state.stopped {
            return Err(Stopped);
        }
        state.counts.waiters += 1;
        self.inside.fetch_add(1, Ordering::Relaxed);
        if !state.leading {
            state.leading = true;
            return Ok(true);
        }
        let seat = state.seats.take(up_to);
        let call = loop {
            match state.seats.call(&seat) {
                Some(call) => break call,
                None => seats::sleep(&mut state, &seat, |state| &state.seats),
            }
        };
        state.seats.leave(seat);
        match call {
            Call::Lead => Ok(true),
            Call::Passed if self.durable() >= up_to => Ok(false),
            Call::Passed => Err(Stopped),
        }
    }

    /// Gives those who took part in the last round a moment to come back.
    fn linger(&self, clock: &dyn Clock) {
        let (expected, linger_ns) = {
            let state = self.state.lock();
            (state.expected, (state.round_ns / 2).min(LINGER_NS_MAX))
        };
        if self.inside.load(Ordering::Relaxed) >= expected {
            return;
        }
        let deadline = clock.now_ns() + linger_ns;
        for _ in 0..LINGER_LOOKS_MAX {
            yield_now();
            if self.inside.load(Ordering::Relaxed) >= expected || clock.now_ns() >= deadline {
                break;
            }
        }
    }

    fn finish(&self, outcome: Result<Lsn>, took_ns: u64) {
        let mut state = self.state.lock();
        match outcome {
            Ok(reached) => {
                self.durable.fetch_max(reached, Ordering::Release);
                state.counts.syncs += 1;
                state.counts.total_ns += took_ns;
                state.counts.max_ns = state.counts.max_ns.max(took_ns);
                state.round_ns = took_ns;
            }
            Err(_) => state.stopped = true,
        }
        state.expected = self.inside.load(Ordering::Relaxed);
        let reached = if state.stopped { Lsn::MAX } else { self.durable() };
        let covered = 1 + state.seats.pass(reached);
        self.inside.fetch_sub(covered, Ordering::Relaxed);
        state.leading = state.seats.hand_over();
    }

    /// Everything below `lsn` survives power loss by other means than a round.
    pub(super) fn advance(&self, lsn: Lsn) {
        if self.durable() < lsn {
            let mut state = self.state.lock();
            let durable = self.durable.fetch_max(lsn, Ordering::Release).max(lsn);
            let passed = state.seats.pass(durable);
            self.inside.fetch_sub(passed, Ordering::Relaxed);
        }
    }

    /// Ends every wait for what is not durable. A round that runs ends as it will.
    pub(super) fn stop(&self) {
        let mut state = self.state.lock();
        state.stopped = true;
        let passed = state.seats.pass(Lsn::MAX);
        self.inside.fetch_sub(passed, Ordering::Relaxed);
    }
}
