//! An allowance: what one transaction may take without asking the budget again.
//!
//! It is charged in pieces, the first of some KiB and later ones of a quarter of what there is, so
//! that a transaction touches the shared sum a few times, however many calls it takes. What is
//! asked for beyond the need never presses the block cache. Without a ceiling there is no end to
//! it, and nothing is counted.

use super::{Budget, Charge};
use crate::error::{Error, MemoryClass, Result};
use std::sync::Arc;

/// The least and the most that is charged beyond what is needed.
const PIECE_MIN: u64 = 4 << 10;
const PIECE_MAX: u64 = 256 << 10;

/// Bytes that are charged to the class of transactions. Dropping it gives them back.
#[derive(Debug, Default)]
pub(crate) struct Allowance {
    /// None without a ceiling.
    charge: Option<Charge>,
}

/// What is charged where so much is needed.
fn padded(needed: u64) -> u64 {
    needed.saturating_add((needed / 4).clamp(PIECE_MIN, PIECE_MAX))
}

impl Allowance {
    /// One without an end.
    pub(crate) fn endless() -> Allowance {
        Allowance::default()
    }

    /// One of nothing yet.
    pub(crate) fn below(budget: &Arc<Budget>) -> Allowance {
        Allowance { charge: Some(Charge::new(budget.clone(), MemoryClass::Transactions, 0)) }
    }

    /// What may be taken.
    #[inline]
    pub(crate) fn bytes(&self) -> u64 {
        self.charge.as_ref().map_or(u64::MAX, Charge::bytes)
    }

    /// Makes sure that so many bytes may be taken in all. Others give way if they can; if there is
    /// no room even so, it fails and changes nothing.
    pub(crate) fn grow_to(&mut self, needed: u64) -> Result<()> {
        let Some(charge) = &mut self.charge else { return Ok(()) };
        if charge.bytes() >= needed || pad(charge, needed) {
            return Ok(());
        }
        charge.grow(needed - charge.bytes())
    }

    /// The same, with what is free: nothing gives way. False if that is not enough.
    pub(crate) fn grow_if_free(&mut self, needed: u64) -> bool {
        let Some(charge) = &mut self.charge else { return true };
        charge.bytes() >= needed
            || pad(charge, needed)
            || charge.grow_if_free(needed - charge.bytes())
    }

    /// For what is taken in any case: charges of it what there is room for.
    pub(crate) fn grow_as_far_as_there_is_room(&mut self, needed: u64) {
        if let Some(charge) = &mut self.charge
            && charge.bytes() < needed
            && !pad(charge, needed)
        {
            charge.grow_as_far_as_there_is_room(needed);
        }
    }

    /// Gives back what is not needed, but for a piece beside it. What needs nothing has nothing.
    pub(crate) fn shrink_to(&mut self, needed: u64) {
        if let Some(charge) = &mut self.charge {
            charge.shrink_to(if needed == 0 { 0 } else { padded(needed) });
        }
    }

    /// Counts that `needed` bytes in all were refused, and says why.
    #[cold]
    pub(crate) fn refuse(&self, needed: u64) -> Error {
        debug_assert!(self.bytes() < needed, "what is refused is there");
        match &self.charge {
            Some(charge) => charge.refuse(needed.saturating_sub(charge.bytes())),
            None => Error::memory_limit(needed, u64::MAX),
        }
    }
}

fn pad(charge: &mut Charge, needed: u64) -> bool {
    debug_assert!(charge.bytes() < needed, "a piece is taken that is not needed");
    charge.grow_if_free(padded(needed).saturating_sub(charge.bytes()))
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    const CEILING: u64 = 24 << 20;
    /// What transactions leave of it.
    const LEFT: u64 = 1 << 20;

    fn held(budget: &Budget) -> u64 {
        budget.held_by(MemoryClass::Transactions)
    }

    #[test]
    fn it_is_charged_in_few_pieces_and_given_back_at_its_end() {
        let budget = Budget::new(CEILING, &[]);
        let (mut allowance, mut pieces) = (Allowance::below(&budget), 0);
        assert_eq!((allowance.bytes(), held(&budget)), (0, 0));
        for needed in (1..=1 << 20).step_by(100) {
            let before = held(&budget);
            allowance.grow_to(needed).unwrap();
            assert!((needed..=needed + needed.max(PIECE_MIN)).contains(&allowance.bytes()));
            assert_eq!(held(&budget), allowance.bytes());
            pieces += u64::from(held(&budget) > before);
        }
        assert!((10..40).contains(&pieces), "{pieces}");
        allowance.shrink_to(10_000);
        assert_eq!(held(&budget), 10_000 + PIECE_MIN);
        allowance.shrink_to(1 << 20);
        assert_eq!(held(&budget), 10_000 + PIECE_MIN, "it does not grow by shrinking");
        allowance.shrink_to(0);
        assert_eq!(held(&budget), 0);
        allowance.grow_to(1).unwrap();
        drop(allowance);
        assert_eq!((held(&budget), budget.held()), (0, 0));
    }

    #[test]
    fn where_a_piece_does_not_fit_the_need_alone_is_charged_or_all_is_refused() {
        let budget = Budget::new(CEILING, &[]);
        let free = 10_000;
        let _others = budget.try_charge(MemoryClass::Blocks, CEILING - LEFT - free).unwrap();
        let mut allowance = Allowance::below(&budget);
        allowance.grow_to(free - 1).unwrap();
        assert_eq!(allowance.bytes(), free - 1);
        let refused = allowance.grow_to(free + 1).unwrap_err();
        let ErrorKind::MemoryLimit { class, holder, .. } = refused.kind() else {
            panic!("{refused}")
        };
        assert_eq!(*class, Some(MemoryClass::Transactions));
        assert_eq!(*holder, Some(MemoryClass::Blocks));
        assert!(refused.is_retryable());
        assert!(!allowance.grow_if_free(free + 1));
        assert_eq!((allowance.bytes(), held(&budget)), (free - 1, free - 1));
        allowance.grow_as_far_as_there_is_room(1 << 20);
        assert_eq!(allowance.bytes(), free);
        assert_eq!(allowance.refuse(free + 7).name(), "MEMORY_LIMIT");
        // Others have what transactions leave.
        drop(budget.try_charge(MemoryClass::Jobs, LEFT).unwrap());
    }

    #[test]
    fn only_a_need_makes_others_give_way_and_not_the_piece_beside_it() {
        let budget = Budget::new(CEILING, &[]);
        let blocks = budget.try_charge(MemoryClass::Blocks, CEILING - LEFT).unwrap();
        let cache = Arc::new(crate::env::sync::Mutex::unranked(Some(blocks)));
        let asked = cache.clone();
        budget.on_lack(move |class, missing| {
            assert_eq!((class, missing), (MemoryClass::Transactions, 100));
            asked.lock().take().is_some()
        });
        let mut allowance = Allowance::below(&budget);
        assert!(!allowance.grow_if_free(100));
        assert!(cache.lock().is_some(), "what is free is taken, and no more");
        allowance.grow_to(100).unwrap();
        assert_eq!((allowance.bytes(), cache.lock().is_some()), (100, false));
    }

    #[test]
    fn without_a_ceiling_it_has_no_end() {
        let mut allowance = Allowance::endless();
        allowance.grow_to(u64::MAX).unwrap();
        assert!(allowance.grow_if_free(u64::MAX));
        allowance.grow_as_far_as_there_is_room(u64::MAX);
        allowance.shrink_to(0);
        assert_eq!(allowance.bytes(), u64::MAX);
    }
}
