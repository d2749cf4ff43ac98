//! What the scheduler notes about a task for those who judge it: where the record ends that it
//! reserved last, and what it had to wait for.

use super::{SHARED, Slot, real};
use isobath::env::Point;

/// The engine waits so long at a time for room in memory. Every other wait that has a time limit is
/// one for a lock on a key or a range.
const ROOM_WAIT_NS: u64 = 100_000_000;

/// How often a task has waited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Waits {
    /// For locks on keys and ranges.
    pub(crate) locks: u64,
    /// For others, between its LSN and its verdict; once for each LSN.
    pub(crate) judged: u64,
}

impl Waits {
    /// What came since `before`.
    pub(crate) fn since(self, before: Waits) -> Waits {
        Waits { locks: self.locks - before.locks, judged: self.judged - before.judged }
    }
}

/// A task is about to wait for another one. Sleeping and joining are waits at odd addresses.
pub(super) fn blocked(slot: &mut Slot, on: usize, timeout_ns: Option<u64>) {
    if on % 2 == 1 {
        return;
    }
    match timeout_ns {
        Some(ROOM_WAIT_NS) => {}
        Some(_) => slot.waits.locks += 1,
        None if slot.last_point == Some(Point::Reserved) && !slot.has_waited => {
            slot.has_waited = true;
            slot.waits.judged += 1;
        }
        None => {}
    }
}

/// How often the running task has waited so far. A thread of the system does not know.
pub(crate) fn waits() -> Waits {
    SHARED.with_borrow(|shared| {
        shared.current.map_or_else(Waits::default, |at| shared.slots[at].waits)
    })
}

/// The running task has reserved a record of the log.
pub(super) fn reserved(end: u64) {
    SHARED.with_borrow_mut(|shared| {
        if let Some(at) = shared.current {
            (shared.slots[at].reserved, shared.slots[at].has_waited) = (Some(end), false);
        }
    });
}

/// The running task begins a commit.
pub(crate) fn forget_reserved() {
    if real::is_here() {
        return real::forget_reserved();
    }
    SHARED.with_borrow_mut(|shared| {
        if let Some(at) = shared.current {
            shared.slots[at].reserved = None;
        }
    });
}

/// Where the commit of the running task ends in the log, if it came so far that it has a place
/// there.
pub(crate) fn last_reserved() -> Option<u64> {
    if real::is_here() {
        return real::last_reserved();
    }
    SHARED.with_borrow(|shared| shared.slots[shared.current?].reserved)
}
