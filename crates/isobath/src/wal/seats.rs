//! Where threads sleep until an LSN has been passed: one condition variable a thread, so that whoever
//! passes an LSN wakes exactly those who wait for it, and no herd.
//!
//! A [`Seats`] lives inside the mutex that its condition variables wait on. Seats are kept for reuse, so
//! sleeping allocates nothing once as many seats exist as threads ever slept at once.

use crate::env::sync::{Condvar, MutexGuard};
use crate::format::Lsn;
use std::sync::Arc;

/// What a sleeper is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Call {
    /// Its LSN has been passed, or never will be: look again.
    Passed,
    /// It is now the one who moves things on.
    Lead,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Vacant,
    Waiting(Lsn),
    Called(Call),
}

#[derive(Debug)]
struct Seat {
    state: State,
    bell: Arc<Condvar>,
}

/// A thread's place among the sleepers.
#[derive(Debug)]
pub(super) struct SeatId(usize);

/// The sleepers of one mutex.
#[derive(Debug, Default)]
pub(super) struct Seats {
    seats: Vec<Seat>,
}

impl Seats {
    /// Takes a seat to wait for `target`.
    pub(super) fn take(&mut self, target: Lsn) -> SeatId {
        let vacant = self.seats.iter().position(|seat| seat.state == State::Vacant);
        let at = vacant.unwrap_or_else(|| {
            self.seats.push(Seat { state: State::Vacant, bell: Arc::new(Condvar::new()) });
            self.seats.len() - 1
        });
        self.seats[at].state = State::Waiting(target);
        SeatId(at)
    }

    /// What the sleeper in this seat was told, if it was called.
    pub(super) fn call(&self, id: &SeatId) -> Option<Call> {
        match self.seats[id.0].state {
            State::Called(call) => Some(call),
            _ => None,
        }
    }

    pub(super) fn leave(&mut self, id: SeatId) {
        self.seats[id.0].state = State::Vacant;
    }

    /// Calls everyone who waits for `reached` or less. Returns how many.
    pub(super) fn pass(&mut self, reached: Lsn) -> usize {
        let mut passed = 0;
        for seat in &mut self.seats {
            if matches!(seat.state, State::Waiting(target) if target <= reached) {
                seat.state = State::Called(Call::Passed);
                seat.bell.notify_one();
                passed += 1;
            }
        }
        passed
    }

    /// Hands the lead to one of those who wait, if anyone does.
    pub(super) fn hand_over(&mut self) -> bool {
        let next = self.seats.iter_mut().find(|seat| matches!(seat.state, State::Waiting(_)));
        if let Some(seat) = next {
            seat.state = State::Called(Call::Lead);
            seat.bell.notify_one();
            return true;
        }
        false
    }

    /// The least LSN anyone waits for; `Lsn::MAX` if nobody does.
    pub(super) fn least(&self) -> Lsn {
        let targets = self.seats.iter().filter_map(|seat| match seat.state {
            State::Waiting(target) => Some(target),
            _ => None,
        });
        targets.min().unwrap_or(Lsn::MAX)
    }
}

/// Sleeps in a seat until its bell rings (or, rarely, without a reason: look at [`Seats::call`]).
/// `seats` finds the seats within what the mutex protects.
pub(super) fn sleep<T>(guard: &mut MutexGuard<'_, T>, id: &SeatId, seats: fn(&T) -> &Seats) {
    let bell = Arc::clone(&seats(guard).seats[id.0].bell);
    bell.wait(guard);
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn those_who_wait_are_called_once_their_lsn_is_passed_or_one_of_them_to_lead() {
        let mut seats = Seats::default();
        assert_eq!((seats.least(), seats.pass(Lsn::MAX), seats.hand_over()), (Lsn::MAX, 0, false));
        let taken = [30, 10, 20].map(|target| seats.take(target));
        assert_eq!(seats.least(), 10);
        assert_eq!((seats.pass(9), seats.least()), (0, 10));
        assert_eq!((seats.pass(10), seats.least()), (1, 20));
        assert_eq!(seats.pass(10), 0, "who was called is not called again");
        let calls = |seats: &Seats| [0, 1, 2].map(|at: usize| seats.call(&taken[at]));
        assert_eq!(calls(&seats), [None, Some(Call::Passed), None]);
        assert!(seats.hand_over());
        assert_eq!(calls(&seats), [Some(Call::Lead), Some(Call::Passed), None]);
        assert_eq!((seats.least(), seats.pass(Lsn::MAX)), (20, 1), "the leader waits no more");
        assert!(!seats.hand_over());
        assert_eq!(seats.least(), Lsn::MAX);
    }

    #[test]
    fn a_seat_that_was_left_is_taken_again() {
        let mut seats = Seats::default();
        let (first, second) = (seats.take(10), seats.take(20));
        seats.pass(10);
        seats.leave(first);
        assert_eq!((seats.least(), seats.pass(15)), (20, 0));
        let third = seats.take(30);
        assert_eq!((third.0, seats.seats.len()), (0, 2));
        assert_eq!((seats.call(&third), seats.call(&second)), (None, None));
        seats.leave(second);
        assert_eq!(seats.least(), 30);
        assert_eq!(seats.take(40).0, 1);
    }
}
