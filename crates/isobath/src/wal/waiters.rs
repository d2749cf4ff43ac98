//! Where threads sleep until an LSN has been passed. Each thread has its own condition variable, so
//! a thread that passes an LSN wakes exactly the threads that wait for it.
//!
//! A [`Waiters`] lives inside the mutex that its condition variables wait on. Slots are kept for
//! reuse, so sleeping allocates only when more threads sleep at once than ever before.

use crate::env::sync::{Condvar, MutexGuard};
use crate::format::Lsn;
use std::sync::Arc;

/// Why a sleeper is woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Call {
    /// Its LSN has been passed, or never will be: it checks again.
    Passed,
    /// It now leads: it runs the next round.
    Lead,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Vacant,
    Waiting(Lsn),
    Called(Call),
}

#[derive(Debug)]
struct Slot {
    state: State,
    wakeup: Arc<Condvar>,
}

/// A thread's place among the sleepers.
#[derive(Debug)]
pub(super) struct SlotId(usize);

/// The sleepers of one mutex.
#[derive(Debug, Default)]
pub(super) struct Waiters {
    slots: Vec<Slot>,
}

impl Waiters {
    /// Takes a slot to wait for `target`.
    pub(super) fn take(&mut self, target: Lsn) -> SlotId {
        let vacant = self.slots.iter().position(|slot| slot.state == State::Vacant);
        let at = vacant.unwrap_or_else(|| {
            self.slots.push(Slot { state: State::Vacant, wakeup: Arc::new(Condvar::new()) });
            self.slots.len() - 1
        });
        self.slots[at].state = State::Waiting(target);
        SlotId(at)
    }

    /// Why the sleeper in this slot was called, or `None` if it was not.
    pub(super) fn call(&self, id: &SlotId) -> Option<Call> {
        match self.slots[id.0].state {
            State::Called(call) => Some(call),
            _ => None,
        }
    }

    pub(super) fn leave(&mut self, id: SlotId) {
        debug_assert!(self.slots[id.0].state != State::Vacant, "a slot is left once");
        self.slots[id.0].state = State::Vacant;
    }

    #[cfg(all(test, not(any(loom, shuttle))))]
    pub(super) fn taken_count(&self) -> usize {
        self.slots.iter().filter(|slot| slot.state != State::Vacant).count()
    }

    /// Calls every sleeper that waits for `reached` or less. Returns how many.
    pub(super) fn pass(&mut self, reached: Lsn) -> usize {
        let mut passed = 0;
        for slot in &mut self.slots {
            if matches!(slot.state, State::Waiting(target) if target <= reached) {
                slot.state = State::Called(Call::Passed);
                slot.wakeup.notify_one();
                passed += 1;
            }
        }
        passed
    }

    /// Hands the lead to one of the sleepers. False if there is none.
    pub(super) fn hand_over(&mut self) -> bool {
        let next = self.slots.iter().position(|slot| matches!(slot.state, State::Waiting(_)));
        if let Some(at) = next {
            let is_led = |slot: &Slot| slot.state == State::Called(Call::Lead);
            debug_assert!(!self.slots.iter().any(is_led), "two would lead");
            self.slots[at].state = State::Called(Call::Lead);
            self.slots[at].wakeup.notify_one();
            return true;
        }
        false
    }

    /// The least LSN that a sleeper waits for; `Lsn::MAX` without sleepers.
    pub(super) fn least(&self) -> Lsn {
        let targets = self.slots.iter().filter_map(|slot| match slot.state {
            State::Waiting(target) => Some(target),
            _ => None,
        });
        targets.min().unwrap_or(Lsn::MAX)
    }
}

/// Sleeps in a slot until it is woken. It may also wake without a reason, so the caller checks
/// [`Waiters::call`]. `waiters` finds the waiters within what the mutex protects.
pub(super) fn sleep<T>(guard: &mut MutexGuard<'_, T>, id: &SlotId, waiters: fn(&T) -> &Waiters) {
    let wakeup = Arc::clone(&waiters(guard).slots[id.0].wakeup);
    wakeup.wait(guard);
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn those_who_wait_are_called_once_their_lsn_is_passed_or_one_of_them_to_lead() {
        let mut waiters = Waiters::default();
        assert_eq!(
            (waiters.least(), waiters.pass(Lsn::MAX), waiters.hand_over()),
            (Lsn::MAX, 0, false)
        );
        let taken = [30, 10, 20].map(|target| waiters.take(target));
        assert_eq!(waiters.least(), 10);
        assert_eq!((waiters.pass(9), waiters.least()), (0, 10));
        assert_eq!((waiters.pass(10), waiters.least()), (1, 20));
        assert_eq!(waiters.pass(10), 0, "who was called is not called again");
        let calls = |waiters: &Waiters| [0, 1, 2].map(|at: usize| waiters.call(&taken[at]));
        assert_eq!(calls(&waiters), [None, Some(Call::Passed), None]);
        assert!(waiters.hand_over());
        assert_eq!(calls(&waiters), [Some(Call::Lead), Some(Call::Passed), None]);
        assert_eq!((waiters.least(), waiters.pass(Lsn::MAX)), (20, 1), "the leader waits no more");
        assert!(!waiters.hand_over());
        assert_eq!(waiters.least(), Lsn::MAX);
    }

    #[test]
    fn a_slot_that_was_left_is_taken_again() {
        let mut waiters = Waiters::default();
        let (first, second) = (waiters.take(10), waiters.take(20));
        waiters.pass(10);
        waiters.leave(first);
        assert_eq!((waiters.least(), waiters.pass(15)), (20, 0));
        let third = waiters.take(30);
        assert_eq!((third.0, waiters.slots.len()), (0, 2));
        assert_eq!((waiters.call(&third), waiters.call(&second)), (None, None));
        waiters.leave(second);
        assert_eq!(waiters.least(), 30);
        assert_eq!(waiters.take(40).0, 1);
    }
}
