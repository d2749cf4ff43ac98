//! A reserve: bytes of a budget that are kept for one purpose, whatever else needs memory.
//!
//! It is charged as a whole. Who has found nothing below the ceiling takes a part of it for a
//! while. What is taken of it should come back soon: a reserve that is held for good is none.

use super::Charge;
use crate::env::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::Arc;

/// Bytes that are charged in advance.
#[derive(Debug)]
pub(crate) struct Reserve {
    charge: Charge,
    used: AtomicU64,
}

/// A part of a reserve, given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Reserved {
    of: Arc<Reserve>,
    bytes: u64,
}

impl Reserve {
    pub(crate) fn new(charge: Charge) -> Arc<Reserve> {
        Arc::new(Reserve { charge, used: AtomicU64::new(0) })
    }

    /// The bytes of all of it.
    pub(crate) fn bytes(&self) -> u64 {
        self.charge.bytes()
    }

    /// What of it is not taken.
    pub(crate) fn spare(&self) -> u64 {
        self.bytes() - self.used.load(Relaxed)
    }

    /// Takes so many bytes, if there are so many.
    pub(crate) fn take(self: &Arc<Self>, bytes: u64) -> Option<Reserved> {
        let rise = |used: u64| used.checked_add(bytes).filter(|used| *used <= self.bytes());
        self.used.fetch_update(Relaxed, Relaxed, rise).ok()?;
        Some(Reserved { of: self.clone(), bytes })
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        let used = self.of.used.fetch_sub(self.bytes, Relaxed);
        debug_assert!(used >= self.bytes, "more comes back to a reserve than was taken");
    }
}

/// What memory is charged to that someone holds: the budget, or a reserve.
#[derive(Debug)]
pub(crate) struct Room {
    _charge: Option<Charge>,
    _reserved: Option<Reserved>,
}

impl From<Charge> for Room {
    fn from(charge: Charge) -> Room {
        Room { _charge: Some(charge), _reserved: None }
    }
}

impl From<Reserved> for Room {
    fn from(reserved: Reserved) -> Room {
        Room { _charge: None, _reserved: Some(reserved) }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::error::MemoryClass;
    use crate::memory::Budget;

    #[test]
    fn a_reserve_gives_no_more_than_it_has_and_gets_all_back() {
        let budget = Budget::new(100, &[]);
        let reserve = Reserve::new(budget.try_charge(MemoryClass::Jobs, 60).unwrap());
        let first = reserve.take(40).unwrap();
        assert!(reserve.take(21).is_none() && reserve.take(u64::MAX).is_none());
        let second = reserve.take(20).unwrap();
        assert_eq!((reserve.spare(), budget.held()), (0, 60));
        drop(first);
        assert_eq!(reserve.spare(), 40);
        drop((second, reserve));
        assert_eq!(budget.held(), 0);
    }
}
