//! One sync at a time, shared by all threads that wait for it.
//!
//! A thread that needs an LSN durable while no sync runs becomes the leader and syncs everything
//! copied so far. Threads that arrive meanwhile sleep. When its round ends, the leader wakes the
//! threads that the round covered and hands the lead to one of the others; the next round covers
//! all of those. No cap limits a group.
//!
//! Writers that sync in a loop would split into two groups that take turns: the first to return
//! would lead alone while the others are on their way. So a leader *lingers* until as many threads
//! wait as at the end of the last round, but at most half as long as that round took. A leader that
//! was alone in the last round does not linger.
//!
//! After a round fails no other begins: what it covered may be lost though later syncs succeed.

use super::waiters::{self, Call, Waiters};
use crate::env::Clock;
use crate::env::sync::{Mutex, Rank, atomic::*, yield_now};
use crate::error::Result;
use crate::format::Lsn;

/// The longest time a leader lingers, however long a sync takes.
const LINGER_NS_MAX: u64 = 200_000;
/// The most checks a leader makes while it lingers, in case the clock stands still.
const LINGER_LOOKS_MAX: u32 = if cfg!(any(loom, shuttle)) { 0 } else { 2000 };

/// A wait for durability ended because a sync failed or the syncer was stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stopped;

#[derive(Debug)]
pub(super) struct Syncer {
    durable: AtomicU64,
    /// The greatest LSN that a caller has asked to make durable.
    last_asked: AtomicU64,
    /// Threads inside [`Syncer::sync_to`] that no finished round has covered.
    inside: AtomicUsize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    leading: bool,
    stopped: bool,
    waiters: Waiters,
    expected: usize,
    round_ns: u64,
    counts: SyncCounts,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SyncCounts {
    /// Rounds that succeeded.
    pub(crate) syncs: u64,
    /// Callers that had to wait, for a round of their own or of another caller.
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
            state: Mutex::new(Rank::Syncs, State::default()),
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

    /// Returns once everything below `up_to` is durable. `round` makes everything durable that was
    /// copied when the round began, and returns the LSN it reached. The caller ensures that a round
    /// can reach `up_to`, so everything below it must be copied before this call.
    ///
    /// A round is given what was durable before it began. [`Syncer::advance`] moves `durable` while
    /// a round runs, but never beyond what is copied then. So a round that reads `copied` itself
    /// finds no less than it was given.
    pub(super) fn sync_to(
        &self,
        up_to: Lsn,
        clock: &dyn Clock,
        round: &dyn Fn(Lsn) -> Result<Lsn>,
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
        let outcome = round(self.durable());
        self.finish(outcome, clock.now_ns().saturating_sub(began));
        if self.durable() >= up_to { Ok(()) } else { Err(Stopped) }
    }

    /// True if the caller now leads; false if `up_to` has become durable.
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
        let slot = state.waiters.take(up_to);
        let call = loop {
            match state.waiters.call(&slot) {
                Some(call) => break call,
                None => waiters::sleep(&mut state, &slot, |state| &state.waiters),
            }
        };
        state.waiters.leave(slot);
        match call {
            Call::Lead => Ok(true),
            Call::Passed if self.durable() >= up_to => Ok(false),
            Call::Passed => Err(Stopped),
        }
    }

    /// Gives the threads of the last round a moment to return.
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
        debug_assert!(state.leading, "a round ends that none leads");
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
        let covered = 1 + state.waiters.pass(reached);
        self.leave(covered);
        state.leading = state.waiters.hand_over();
    }

    /// Records that everything below `lsn` survives power loss without a round.
    pub(super) fn advance(&self, lsn: Lsn) {
        if self.durable() < lsn {
            let mut state = self.state.lock();
            let durable = self.durable.fetch_max(lsn, Ordering::Release).max(lsn);
            self.leave(state.waiters.pass(durable));
        }
    }

    /// Ends every wait for an LSN that is not durable yet. A running round is not interrupted.
    pub(super) fn stop(&self) {
        let mut state = self.state.lock();
        state.stopped = true;
        self.leave(state.waiters.pass(Lsn::MAX));
    }

    /// So many callers need no round any more.
    fn leave(&self, callers: usize) {
        let inside = self.inside.fetch_sub(callers, Ordering::Relaxed);
        debug_assert!(inside >= callers, "{callers} of {inside} callers leave");
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::env::fixtures::Stage;
    use crate::env::{Env, Threads};
    use crate::error::Error;
    use std::time::Duration;

    fn failure(_: Lsn) -> Result<Lsn> {
        Err(Error::cancelled())
    }

    #[test]
    fn one_alone_leads_a_round_of_its_own_and_asks_for_none_that_is_not_needed() {
        let (syncer, stage) = (Syncer::new(100), Stage::default());
        let rounds = AtomicU64::new(0);
        let sync_to = |up_to, reaches| {
            syncer.sync_to(up_to, &stage, &|_| {
                rounds.fetch_add(1, Ordering::Relaxed);
                stage.sleep(Duration::from_nanos(reaches));
                Ok(reaches)
            })
        };
        assert_eq!(sync_to(100, 1), Ok(()));
        assert_eq!((rounds.load(Ordering::Relaxed), syncer.last_asked()), (0, 0));
        for (up_to, reaches, durable) in [(101, 300, 300), (300, 0, 300), (301, 500, 500)] {
            assert_eq!(sync_to(up_to, reaches), Ok(()));
            assert_eq!(syncer.durable(), durable);
        }
        assert_eq!((rounds.load(Ordering::Relaxed), syncer.last_asked()), (2, 301));
        assert_eq!(sync_to(502, 501), Err(Stopped), "the round did not come so far");
        assert_eq!(sync_to(502, 400), Err(Stopped));
        assert_eq!(syncer.durable(), 501, "it never goes back");
        assert_eq!(sync_to(502, 502), Ok(()), "nothing had failed");
        let counts = syncer.counts();
        assert_eq!((counts.syncs, counts.waiters), (5, 5));
        assert_eq!((counts.total_ns, counts.max_ns), (300 + 500 + 501 + 400 + 502, 502));
        assert_eq!(syncer.inside.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_round_that_fails_is_the_last() {
        let (syncer, stage) = (Syncer::new(100), Stage::default());
        assert_eq!(syncer.sync_to(200, &stage, &failure), Err(Stopped));
        assert_eq!(syncer.sync_to(200, &stage, &|_| panic!("no other round")), Err(Stopped));
        assert_eq!(syncer.sync_to(100, &stage, &failure), Ok(()));
        let counts = syncer.counts();
        assert_eq!((counts.syncs, counts.waiters, counts.total_ns), (0, 1, 0));
        assert_eq!(syncer.inside.load(Ordering::Relaxed), 0);
        syncer.advance(200);
        assert_eq!(syncer.sync_to(200, &stage, &failure), Ok(()), "durable by other means");
        let syncer = Syncer::new(100);
        syncer.stop();
        assert_eq!(syncer.sync_to(200, &stage, &|_| Ok(200)), Err(Stopped));
        assert_eq!(syncer.durable(), 100);
    }

    #[test]
    fn what_is_durable_by_other_means_only_grows() {
        let syncer = Syncer::new(100);
        for (lsn, durable) in [(50, 100), (100, 100), (101, 101), (90, 101)] {
            syncer.advance(lsn);
            assert_eq!(syncer.durable(), durable);
        }
        assert_eq!((syncer.counts().syncs, syncer.last_asked()), (0, 0));
    }

    #[test]
    fn a_round_is_given_what_was_durable_before_it_read_anything() {
        let (syncer, stage) = (Syncer::new(100), Stage::default());
        let copied = AtomicU64::new(200);
        let round = |durable| {
            // A retirement comes as early as it can.
            copied.store(300, Ordering::Release);
            syncer.advance(300);
            assert_eq!((durable, syncer.durable()), (100, 300));
            Ok(copied.load(Ordering::Acquire))
        };
        assert_eq!(syncer.sync_to(200, &stage, &round), Ok(()));
        assert_eq!((syncer.durable(), syncer.counts().syncs), (300, 1));
    }

    /// Runs `sync_to` of each LSN on its own thread while the first call, for LSN 100, is in its
    /// round. Calls `then` once all of them wait. Later rounds reach 300.
    fn joined(
        lsns: &[Lsn],
        then: impl Fn(&Syncer) + Sync,
        first: Result<Lsn>,
    ) -> (Syncer, Vec<bool>, u64) {
        let (syncer, clock) = (Syncer::new(0), Env::system().clock);
        let (rounds, all) = (AtomicU64::new(0), 1 + lsns.len() as u64);
        let round = |_| {
            if rounds.fetch_add(1, Ordering::Relaxed) > 0 {
                return Ok(300);
            }
            while syncer.counts().waiters < all {
                std::thread::yield_now();
            }
            then(&syncer);
            first.clone()
        };
        let outcomes = std::thread::scope(|scope| {
            let leader = scope.spawn(|| syncer.sync_to(100, &*clock, &round).is_ok());
            while rounds.load(Ordering::Relaxed) == 0 {
                std::thread::yield_now();
            }
            let asked = lsns.iter().map(|lsn| {
                let (syncer, clock, round) = (&syncer, &*clock, &round);
                scope.spawn(move || syncer.sync_to(*lsn, clock, round).is_ok())
            });
            let threads: Vec<_> = [leader].into_iter().chain(asked).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(syncer.inside.load(Ordering::Relaxed), 0);
        let state = syncer.state.lock();
        assert!(!state.leading && state.waiters.taken_count() == 0);
        drop(state);
        let rounds = rounds.load(Ordering::Relaxed);
        (syncer, outcomes, rounds)
    }

    #[test]
    fn a_round_covers_those_who_came_while_it_ran_and_one_more_all_the_others() {
        let (syncer, outcomes, rounds) = joined(&[150, 300, 200, 250], |_| (), Ok(200));
        assert_eq!((outcomes, rounds, syncer.durable()), (vec![true; 5], 2, 300));
        assert_eq!((syncer.counts().syncs, syncer.counts().waiters), (2, 5));
    }

    #[test]
    fn those_who_wait_for_a_round_that_fails_are_told_and_lead_none() {
        let (syncer, outcomes, rounds) = joined(&[150, 300], |_| (), failure(0));
        assert_eq!((outcomes, rounds, syncer.durable()), (vec![false; 3], 1, 0));
    }

    #[test]
    fn those_who_wait_for_what_becomes_durable_otherwise_go_on() {
        let (syncer, outcomes, rounds) =
            joined(&[150, 300], |syncer| syncer.advance(150), failure(0));
        assert_eq!((outcomes, rounds, syncer.durable()), (vec![true, true, false], 1, 150));
        let (syncer, outcomes, rounds) = joined(&[150, 300], |syncer| syncer.advance(300), Ok(1));
        assert_eq!((outcomes, rounds, syncer.durable()), (vec![true; 3], 1, 300));
    }

    #[test]
    fn a_stop_ends_the_waits_and_a_round_under_way_ends_as_it_will() {
        let (syncer, outcomes, rounds) = joined(&[150, 300], |syncer| syncer.stop(), Ok(200));
        assert_eq!((outcomes[0], outcomes[2], rounds), (true, false, 1));
        assert_eq!(syncer.durable(), 200);
    }

    /// A clock that advances by 10 with each reading, and counts the readings.
    struct Looks(AtomicU64);

    impl Clock for Looks {
        fn now_ns(&self) -> u64 {
            10 * self.0.fetch_add(1, Ordering::Relaxed)
        }
        fn unix_ms(&self) -> u64 {
            0
        }
    }

    #[test]
    fn a_leader_waits_for_those_of_the_last_round_no_longer_than_half_of_it_took() {
        for (expected, inside, round_ns, looks) in [
            (2, 2, 1000, 0),
            (1, 2, 1000, 0),
            (3, 2, 1000, 1 + 50),
            (3, 2, 2000, 1 + 100),
            (3, 2, 10, 1 + 1),
            (3, 2, u64::MAX, 1 + u64::from(LINGER_LOOKS_MAX)),
        ] {
            let (syncer, clock) = (Syncer::new(0), Looks(AtomicU64::new(0)));
            syncer.inside.store(inside, Ordering::Relaxed);
            let mut state = syncer.state.lock();
            (state.expected, state.round_ns) = (expected, round_ns);
            drop(state);
            syncer.linger(&clock);
            let looked = clock.0.load(Ordering::Relaxed);
            assert_eq!(looked, looks, "{expected} {inside} {round_ns}");
        }
        const { assert!(LINGER_NS_MAX >= 10 * LINGER_LOOKS_MAX as u64) };
    }
}
