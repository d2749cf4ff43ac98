//! Transactions that others may end: those with a timeout, an idle timeout or an abort handle.
//!
//! While such a transaction is not being called, what it holds of the engine lies here: its read
//! point, its place in the gate, and the memory and files of what it has read and written; its
//! locks can be given back by its owner alone. A call takes all of it when it begins and puts it
//! back when it ends. So an abort between two calls finds everything that has to be given back, and
//! gives it back at once, also if the program has lost the handle. An abort during a call is noted;
//! the call notices at its next step, and sooner if it waits for a lock.
//!
//! A commit that is about to reserve its LSN passes [`Watch::decide`]. An abort comes before that,
//! and nothing is written, or it is refused. There is no third way: one mutex guards the phase.

use super::{Engine, Hold, SpillFile};
use crate::conflict;
use crate::env::sync::{Mutex, Rank};
use crate::env::{Clock, Plant, Reach, planted, reached};
use crate::error::AbortReason;
use crate::footprint::Footprint;
use crate::lock::Owner;
use crate::version::LiveFile;
use std::sync::Arc;
use std::time::Duration;

/// A transaction as the threads see it that may abort it.
pub(crate) struct Watch {
    owner: Arc<Owner>,
    clock: Arc<dyn Clock>,
    timeout: Option<Duration>,
    idle_timeout: Option<Duration>,
    state: Mutex<State>,
}

/// What a transaction holds besides its locks.
#[derive(Default)]
#[must_use = "it would be held for ever"]
pub(crate) struct Kept {
    pub(crate) point: Option<Hold>,
    pub(crate) gate: Option<conflict::Hold>,
    pub(crate) memory: Option<KeptMemory>,
}

/// What a transaction has read and written, in memory and in files.
pub(crate) struct KeptMemory {
    pub(crate) footprint: Footprint,
    pub(crate) spilled: Vec<Arc<SpillFile>>,
    pub(crate) streams: Vec<Arc<LiveFile>>,
}

impl Kept {
    fn is_empty(&self) -> bool {
        self.point.is_none() && self.gate.is_none() && self.memory.is_none()
    }
}

struct State {
    phase: Phase,
    /// When it has taken too long; `u64::MAX` for never.
    deadline_ns: u64,
    /// When its last call ended.
    idle_since_ns: u64,
    kept: Kept,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// No call of it is running.
    Idle,
    /// One of its calls is running, and has what the transaction holds.
    Busy,
    /// The running call must end, and the transaction with it.
    Asked(AbortReason),
    /// The call is a commit that may have been written.
    Committing,
    /// It holds nothing any more.
    Aborted(AbortReason),
    /// It was committed or rolled back.
    Over,
}

impl Watch {
    /// Watches a transaction that a call is in.
    pub(crate) fn new(
        engine: &Engine,
        owner: Arc<Owner>,
        timeout: Option<Duration>,
        idle_timeout: Option<Duration>,
    ) -> Watch {
        let clock = engine.options.env.clock.clone();
        let (phase, kept, deadline_ns) = (Phase::Busy, Kept::default(), u64::MAX);
        let state = State { phase, deadline_ns, idle_since_ns: u64::MAX, kept };
        let state = Mutex::new(Rank::Watch, state);
        let watch = Watch { owner, clock, timeout, idle_timeout, state };
        watch.restart();
        watch
    }

    /// Watches it as a new one, which a call is in.
    pub(crate) fn restart(&self) {
        let mut state = self.state.lock();
        let end = |after: Duration| {
            let after_ns = u64::try_from(after.as_nanos()).unwrap_or(u64::MAX);
            self.clock.now_ns().saturating_add(after_ns)
        };
        state.deadline_ns = self.timeout.map_or(u64::MAX, end);
        debug_assert!(state.kept.is_empty(), "what it held was not taken back");
        state.phase = Phase::Busy;
        self.owner.revive();
    }

    /// When the transaction has taken too long.
    pub(crate) fn deadline_ns(&self) -> u64 {
        self.state.lock().deadline_ns
    }

    /// Begins a call, which gets what the transaction holds.
    pub(crate) fn enter(&self, engine: &Engine) -> Result<Kept, AbortReason> {
        let mut _freed = None;
        let mut state = self.state.lock();
        if let Phase::Aborted(reason) = state.phase {
            return Err(reason);
        }
        debug_assert_eq!(state.phase, Phase::Idle, "one call at a time");
        if let Some(reason) = self.overdue(&state) {
            _freed = self.end_idle(engine, &mut state, reason);
            return Err(reason);
        }
        state.phase = Phase::Busy;
        Ok(std::mem::take(&mut state.kept))
    }

    /// Ends a call. Returns what a transaction that is over has in memory.
    pub(crate) fn leave(&self, engine: &Engine, kept: Kept) -> Option<KeptMemory> {
        let mut _freed = None;
        let mut state = self.state.lock();
        debug_assert!(!matches!(state.phase, Phase::Idle | Phase::Aborted(_)), "no call is in it");
        debug_assert!(state.kept.is_empty(), "the call has all that it holds");
        state.kept = kept;
        match state.phase {
            Phase::Asked(reason) => _freed = self.end_idle(engine, &mut state, reason),
            Phase::Committing | Phase::Over => {
                state.phase = Phase::Over;
                return self.give_back(engine, &mut state);
            }
            _ => {
                state.phase = Phase::Idle;
                if self.idle_timeout.is_some() {
                    state.idle_since_ns = self.clock.now_ns();
                }
            }
        }
        None
    }

    /// Fails if the call is to end.
    pub(crate) fn check(&self) -> Result<(), AbortReason> {
        let mut state = self.state.lock();
        self.check_state(&mut state)
    }

    fn check_state(&self, state: &mut State) -> Result<(), AbortReason> {
        if planted(Plant::AbortNotHonoured) {
            return Ok(());
        }
        if state.phase == Phase::Busy
            && let Some(reason) = self.overdue(state)
        {
            state.phase = Phase::Asked(reason);
        }
        match state.phase {
            Phase::Asked(reason) | Phase::Aborted(reason) => Err(reason),
            _ => Ok(()),
        }
    }

    /// From here on the commit may be written, and cannot be aborted.
    pub(crate) fn decide(&self) -> Result<(), AbortReason> {
        let mut state = self.state.lock();
        self.check_state(&mut state)?;
        state.phase = Phase::Committing;
        Ok(())
    }

    /// The commit has written nothing, and begins again or has failed.
    pub(crate) fn undecide(&self) {
        let mut state = self.state.lock();
        if state.phase == Phase::Committing {
            state.phase = Phase::Busy;
        }
    }

    /// The transaction has ended. Returns what is still held.
    pub(crate) fn end(&self) -> Kept {
        let mut state = self.state.lock();
        state.phase = Phase::Over;
        std::mem::take(&mut state.kept)
    }

    /// Ends the transaction without a trace. False if it is over, or if its commit may be written.
    pub(crate) fn abort(&self, engine: &Engine, reason: AbortReason) -> bool {
        let mut freed = None;
        let is_ended = self.abort_state(engine, &mut self.state.lock(), reason, &mut freed);
        drop(freed);
        is_ended
    }

    fn abort_state(
        &self,
        engine: &Engine,
        state: &mut State,
        reason: AbortReason,
        freed: &mut Option<KeptMemory>,
    ) -> bool {
        match state.phase {
            Phase::Idle => {
                reached(Reach::AbortIdle);
                *freed = self.end_idle(engine, state, reason);
            }
            Phase::Busy => {
                reached(Reach::AbortBusy);
                state.phase = Phase::Asked(reason);
                self.owner.abort();
            }
            Phase::Asked(_) | Phase::Aborted(_) => {}
            Phase::Committing => {
                reached(Reach::AbortLate);
                return false;
            }
            Phase::Over => return false,
        }
        true
    }

    /// Ends the transaction if it has taken too long. Looks and ends under one lock: in between its
    /// owner might begin it anew.
    pub(crate) fn reap(&self, engine: &Engine) {
        let mut freed = None;
        let mut state = self.state.lock();
        if let Some(reason) = self.overdue(&state) {
            self.abort_state(engine, &mut state, reason, &mut freed);
        }
    }

    fn overdue(&self, state: &State) -> Option<AbortReason> {
        if state.deadline_ns == u64::MAX && self.idle_timeout.is_none() {
            return None;
        }
        let now_ns = self.clock.now_ns();
        let idle = Duration::from_nanos(now_ns.saturating_sub(state.idle_since_ns));
        if now_ns >= state.deadline_ns {
            Some(AbortReason::Timeout)
        } else if state.phase == Phase::Idle && self.idle_timeout.is_some_and(|most| idle >= most) {
            Some(AbortReason::Idle)
        } else {
            None
        }
    }

    /// Returns what is to be dropped once the state is not locked any more: files may go with it.
    fn end_idle(
        &self,
        engine: &Engine,
        state: &mut State,
        reason: AbortReason,
    ) -> Option<KeptMemory> {
        state.phase = Phase::Aborted(reason);
        engine.gauges.note_abort(reason);
        match reason {
            AbortReason::Timeout => reached(Reach::TimedOut),
            AbortReason::Idle => reached(Reach::IdledOut),
            AbortReason::Asked => {}
        }
        self.give_back(engine, state)
    }

    fn give_back(&self, engine: &Engine, state: &mut State) -> Option<KeptMemory> {
        let Kept { point, gate, memory } = std::mem::take(&mut state.kept);
        engine.locks.release_all(&self.owner);
        engine.locks.release_ranges(&self.owner);
        if let Some(gate) = gate {
            engine.conflicts.gate.let_go(gate);
        }
        if let Some(point) = point {
            engine.points.release(&point);
        }
        memory
    }
}

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Watch(of {}, {:?})", self.owner.id, self.state.lock().phase)
    }
}
