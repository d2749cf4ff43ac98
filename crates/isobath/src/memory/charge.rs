//! A charge: bytes of a budget that someone holds. Dropping it gives them back.

use super::Budget;
use crate::error::{MemoryClass, Result};
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

    /// Gives back all but so many bytes.
    pub(crate) fn shrink_to(&mut self, bytes: u64) {
        let less = self.bytes.saturating_sub(bytes);
        self.budget.give_back(self.class, less);
        self.bytes -= less;
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.budget.give_back(self.class, self.bytes);
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
