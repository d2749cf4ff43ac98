//! A charge: bytes of a budget that someone holds. Dropping it gives them back.

use super::Budget;
use crate::error::{Error, MemoryClass, Result};
use std::sync::Arc;

/// Bytes that are charged to a class of a budget.
pub(crate) struct Charge {
    budget: Arc<Budget>,
    class: MemoryClass,
    bytes: u64,
}

impl Charge {
    /// The bytes that were taken from the budget.
    pub(super) fn new(budget: Arc<Budget>, class: MemoryClass, bytes: u64) -> Charge {
        Charge { budget, class, bytes }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Charges so many bytes more, or fails and changes nothing.
    pub(crate) fn grow(&mut self, more: u64) -> Result<()> {
        self.budget.take(self.class, more)?;
        self.bytes += more;
        Ok(())
    }

    /// The same as things are: without making room and without an error.
    pub(super) fn grow_if_free(&mut self, more: u64) -> bool {
        let is_free = self.budget.take_if_free(self.class, more);
        self.bytes += if is_free { more } else { 0 };
        debug_assert!(self.bytes <= self.budget.ceiling(), "a charge is more than there is");
        is_free
    }

    /// Counts that so many bytes more were refused, and says why.
    pub(super) fn refuse(&self, more: u64) -> Error {
        self.budget.refuse(self.class, more)
    }

    /// Grows to so many bytes, or as far towards them as there is room.
    pub(crate) fn grow_as_far_as_there_is_room(&mut self, bytes: u64) {
        let missing = bytes.saturating_sub(self.bytes);
        if self.budget.take_with_room_made(self.class, missing) {
            self.bytes += missing;
            return;
        }
        let free = missing.min(self.budget.free(self.class));
        if self.budget.take_if_free(self.class, free) {
            self.bytes += free;
        }
        debug_assert!(self.bytes <= self.budget.ceiling(), "a charge is more than there is");
    }

    /// Grows towards so many bytes, as far as `left` bytes stay free then.
    pub(crate) fn grow_and_leave(&mut self, bytes: u64, left: u64) {
        debug_assert!(left < self.budget.ceiling(), "all of a ceiling is left to others");
        self.grow_as_far_as_there_is_room(bytes.min(self.budget.ceiling() - left));
        let short = left.saturating_sub(self.budget.free(self.class));
        self.shrink_to(self.bytes.saturating_sub(short));
    }

    /// The budget, to which who has this gives the bytes back in the end, as bytes of the class.
    pub(crate) fn into_budget(mut self, class: MemoryClass) -> Arc<Budget> {
        debug_assert_eq!(self.class, class, "it is charged to another class");
        self.bytes = 0;
        self.budget.clone()
    }

    /// Gives back all but so many bytes.
    pub(crate) fn shrink_to(&mut self, bytes: u64) {
        let less = self.bytes.saturating_sub(bytes);
        if less > 0 {
            self.budget.give_back(self.class, less);
            self.bytes -= less;
        }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.budget.give_back(self.class, self.bytes);
        }
    }
}

impl std::fmt::Debug for Charge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Charge({} bytes of {})", self.bytes, self.class)
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn a_charge_grows_as_far_as_there_is_room() {
        let budget = Budget::new(100, &[]);
        let mut charge = budget.try_charge(MemoryClass::Memtables, 10).unwrap();
        charge.grow_as_far_as_there_is_room(60);
        assert_eq!(charge.bytes(), 60);
        let other = budget.try_charge(MemoryClass::Jobs, 30).unwrap();
        charge.grow_as_far_as_there_is_room(200);
        assert_eq!((charge.bytes(), budget.held(), budget.refusals()), (70, 100, 0));
        drop((charge, other));
        assert_eq!(budget.held(), 0);
    }

    #[test]
    fn a_charge_grows_and_shrinks_and_its_end_gives_all_back() {
        let budget = Budget::new(100, &[]);
        let mut charge = budget.try_charge(MemoryClass::Memtables, 10).unwrap();
        charge.grow(30).unwrap();
        assert!(charge.grow(61).is_err());
        assert_eq!((charge.bytes(), budget.held()), (40, 40));
        charge.shrink_to(50);
        assert_eq!(charge.bytes(), 40, "it does not grow by shrinking");
        charge.shrink_to(5);
        assert_eq!((charge.bytes(), budget.held_by(MemoryClass::Memtables)), (5, 5));
        drop(charge);
        assert_eq!((budget.held(), budget.held_by(MemoryClass::Memtables)), (0, 0));
    }
}
