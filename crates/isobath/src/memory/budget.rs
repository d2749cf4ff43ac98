//! The budget: one sum of all that is charged, its limit, and a sum for each class.
//!
//! Something can be kept for a class, which counts in the sum from the beginning. The class takes
//! that first, and others never. Transactions never take the last part below the ceiling: jobs and
//! reads go on while transactions have all that they may have.
//!
//! The sum moves by compare-exchange, so it never passes the limit: a charge that does not fit is
//! refused before it is counted. Nothing waits here and nothing is locked. Where a charge does not
//! fit, the budget asks one callback to make room (the block cache gives up blocks) and tries
//! again, until there is nothing left to give.

use super::Charge;
use crate::env::is_unwinding;
use crate::env::sync::atomic::{AtomicU64, Ordering::Relaxed};
use crate::error::{Error, MemoryClass, Result};
use std::sync::{Arc, OnceLock};

/// Transactions leave a 64th of the ceiling, and a MiB at least where that is no more than a 24th:
/// the least with which one of them can write what it has in memory to a file.
fn left_by_transactions(ceiling: u64) -> u64 {
    (ceiling / 64).max((ceiling / 24).min(1 << 20))
}

/// Makes room for so many bytes of a class, or for some of them. False if it has nothing to give.
type MakeRoom = Box<dyn Fn(MemoryClass, u64) -> bool + Send + Sync>;

/// What a class holds, and what is kept for it.
#[derive(Default)]
struct Share {
    held: AtomicU64,
    floor: u64,
}

impl Share {
    /// What of so many bytes is counted in the sum: at least the floor.
    fn counted(&self, held: u64) -> u64 {
        held.max(self.floor)
    }
}

/// How much memory a database may hold, and how much it holds.
pub(crate) struct Budget {
    ceiling: u64,
    /// What all classes hold together, where each counts with its floor at least.
    held: AtomicU64,
    classes: [Share; MemoryClass::ALL.len()],
    refused: AtomicU64,
    make_room: OnceLock<MakeRoom>,
}

impl Budget {
    /// A budget of which nothing is held yet. What is kept for classes is theirs alone.
    pub(crate) fn new(ceiling: u64, kept: &[(MemoryClass, u64)]) -> Arc<Budget> {
        let mut classes: [Share; MemoryClass::ALL.len()] = Default::default();
        kept.iter().for_each(|(class, bytes)| classes[*class as usize].floor = *bytes);
        let floors: u64 = classes.iter().map(|share| share.floor).sum();
        assert!(floors <= ceiling, "more is kept than there is");
        Arc::new(Budget {
            ceiling,
            held: AtomicU64::new(floors),
            classes,
            refused: AtomicU64::new(0),
            make_room: OnceLock::new(),
        })
    }

    /// Has `make_room` called with the bytes that a class is missing, before it is refused. It must
    /// not charge anything, nor keep the budget alive.
    pub(crate) fn on_lack(
        &self,
        make_room: impl Fn(MemoryClass, u64) -> bool + Send + Sync + 'static,
    ) {
        let is_first = self.make_room.set(Box::new(make_room)).is_ok();
        debug_assert!(is_first, "one callback makes room");
    }

    pub(crate) fn ceiling(&self) -> u64 {
        self.ceiling
    }

    /// What all classes hold together, with what is kept for them.
    pub(crate) fn held(&self) -> u64 {
        self.held.load(Relaxed)
    }

    pub(crate) fn held_by(&self, class: MemoryClass) -> u64 {
        self.classes[class as usize].held.load(Relaxed)
    }

    /// How often a charge was refused.
    pub(crate) fn refusals(&self) -> u64 {
        self.refused.load(Relaxed)
    }

    /// Charges `bytes` to a class, or fails and charges nothing.
    pub(crate) fn try_charge(self: &Arc<Self>, class: MemoryClass, bytes: u64) -> Result<Charge> {
        self.take(class, bytes)?;
        Ok(Charge::new(self.clone(), class, bytes))
    }

    /// The same, if it fits as things are: without making room and without an error.
    pub(crate) fn charge_if_free(
        self: &Arc<Self>,
        class: MemoryClass,
        bytes: u64,
    ) -> Option<Charge> {
        self.take_if_free(class, bytes).then(|| Charge::new(self.clone(), class, bytes))
    }

    /// The same, once room was made, and without an error.
    pub(crate) fn charge_with_room_made(
        self: &Arc<Self>,
        class: MemoryClass,
        bytes: u64,
    ) -> Option<Charge> {
        if self.take_with_room_made(class, bytes) {
            return Some(Charge::new(self.clone(), class, bytes));
        }
        self.refused.fetch_add(1, Relaxed);
        None
    }

    pub(super) fn take_if_free(&self, class: MemoryClass, bytes: u64) -> bool {
        self.add(class, bytes)
    }

    /// The most that may be held when a charge of the class has been taken.
    fn limit_of(&self, class: MemoryClass) -> u64 {
        match class {
            MemoryClass::Transactions => self.ceiling - left_by_transactions(self.ceiling),
            _ => self.ceiling,
        }
    }

    /// What a class may still take now.
    pub(super) fn free(&self, class: MemoryClass) -> u64 {
        self.limit_of(class).saturating_sub(self.held())
    }

    pub(super) fn take(&self, class: MemoryClass, bytes: u64) -> Result<()> {
        if self.take_with_room_made(class, bytes) { Ok(()) } else { Err(self.refuse(class, bytes)) }
    }

    /// Takes so many bytes, once room was made for them if there was none.
    pub(super) fn take_with_room_made(&self, class: MemoryClass, bytes: u64) -> bool {
        while !self.add(class, bytes) {
            if bytes > self.limit_of(class) || !self.make_room(class, bytes) {
                // Another thread may have given back since the look before, and that may be why
                // there was nothing left to give.
                return self.add(class, bytes);
            }
        }
        true
    }

    /// Gives back what was taken. The class falls first, so the sum is never too low.
    pub(crate) fn give_back(&self, class: MemoryClass, bytes: u64) {
        let share = &self.classes[class as usize];
        let before = share.held.fetch_sub(bytes, Relaxed);
        debug_assert!(before >= bytes, "{class:?} gives back more than it holds");
        let less = share.counted(before) - share.counted(before - bytes);
        let held = self.held.fetch_sub(less, Relaxed);
        debug_assert!(held >= less, "more is given back than was charged");
    }

    /// Raises the sum, and then the class, so the sum is never too low. If the class has moved
    /// meanwhile, the sum may have risen by too much or too little: then all is taken back.
    fn add(&self, class: MemoryClass, bytes: u64) -> bool {
        let share = &self.classes[class as usize];
        loop {
            let before = share.held.load(Relaxed);
            let Some(after) = before.checked_add(bytes) else { return false };
            let more = share.counted(after) - share.counted(before);
            let limit = self.limit_of(class);
            let rise = |held: u64| held.checked_add(more).filter(|sum| *sum <= limit);
            if more > 0 && self.held.fetch_update(Relaxed, Relaxed, rise).is_err() {
                return false;
            }
            if share.held.compare_exchange(before, after, Relaxed, Relaxed).is_ok() {
                return true;
            }
            self.held.fetch_sub(more, Relaxed);
        }
    }

    #[cold]
    fn make_room(&self, class: MemoryClass, bytes: u64) -> bool {
        let Some(make_room) = self.make_room.get() else { return false };
        let limit = self.limit_of(class);
        let missing = self.held().saturating_add(bytes).saturating_sub(limit).min(bytes);
        // Another thread may have made room meanwhile.
        missing == 0 || make_room(class, missing)
    }

    /// Counts a charge that was refused, and says why.
    #[cold]
    pub(super) fn refuse(&self, class: MemoryClass, bytes: u64) -> Error {
        self.refused.fetch_add(1, Relaxed);
        let holder = MemoryClass::ALL.into_iter().max_by_key(|class| self.held_by(*class));
        Error::memory_full(bytes, self.ceiling, class, holder.unwrap_or(class))
    }
}

impl Drop for Budget {
    /// Who holds a charge holds the budget. So all is given back by now, or never will be.
    fn drop(&mut self) {
        let is_held = |class: &MemoryClass| self.held_by(*class) > 0;
        debug_assert!(
            is_unwinding() || !MemoryClass::ALL.iter().any(is_held),
            "what was charged is not given back: {:?}",
            self.classes.each_ref().map(|share| share.held.load(Relaxed))
        );
    }
}

impl std::fmt::Debug for Budget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Budget({} of {} bytes)", self.held(), self.ceiling)
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::error::ErrorKind;
    use std::sync::atomic::{AtomicU64 as StdAtomicU64, Ordering};

    #[test]
    fn a_charge_that_would_pass_the_ceiling_is_refused_and_changes_nothing() {
        let budget = Budget::new(100, &[]);
        let first = budget.try_charge(MemoryClass::Blocks, 60).unwrap();
        let refused = budget.try_charge(MemoryClass::Jobs, 41).unwrap_err();
        let ErrorKind::MemoryLimit { needed, limit, class, holder } = refused.kind() else {
            panic!("{refused}")
        };
        assert_eq!((*needed, *limit), (41, 100));
        assert_eq!((*class, *holder), (Some(MemoryClass::Jobs), Some(MemoryClass::Blocks)));
        assert!(refused.is_retryable());
        assert_eq!((budget.held(), budget.held_by(MemoryClass::Jobs)), (60, 0));
        let second = budget.try_charge(MemoryClass::Jobs, 40).unwrap();
        assert_eq!((budget.held(), budget.held_by(MemoryClass::Jobs)), (100, 40));
        assert!(budget.charge_if_free(MemoryClass::Jobs, 1).is_none());
        assert!(budget.try_charge(MemoryClass::Jobs, u64::MAX).is_err(), "a sum that wraps");
        drop((first, second));
        assert_eq!((budget.held(), budget.refusals()), (0, 2));
    }

    #[test]
    fn who_makes_room_learns_what_is_missing_and_then_the_charge_is_tried_again() {
        let budget = Budget::new(100, &[]);
        let given = Arc::new(crate::env::sync::Mutex::unranked(Some(
            budget.try_charge(MemoryClass::Blocks, 80).unwrap(),
        )));
        let (asked, cache) = (Arc::new(StdAtomicU64::new(0)), given.clone());
        let seen = asked.clone();
        budget.on_lack(move |_, missing| {
            seen.store(missing, Ordering::Relaxed);
            cache.lock().take().is_some()
        });
        let charge = budget.try_charge(MemoryClass::Tables, 50).unwrap();
        assert_eq!((asked.load(Ordering::Relaxed), budget.held()), (30, 50));
        assert!(budget.try_charge(MemoryClass::Tables, 51).is_err());
        assert_eq!(asked.load(Ordering::Relaxed), 1, "it was asked, and had nothing to give");
        drop(charge);
        assert_eq!((budget.held(), budget.refusals()), (0, 1));
    }

    #[test]
    fn what_came_free_while_room_was_made_is_taken() {
        let budget = Budget::new(100, &[]);
        let other = budget.try_charge(MemoryClass::Blocks, 80).unwrap();
        let other = Arc::new(crate::env::sync::Mutex::unranked(Some(other)));
        budget.on_lack(move |_, _| {
            // Another thread lets go, and the cache has nothing.
            drop(other.lock().take());
            false
        });
        drop(budget.try_charge(MemoryClass::Tables, 50).unwrap());
        assert_eq!((budget.held(), budget.refusals()), (0, 0));
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "what was charged is not given back: [0, 60, 0, 0, 0]")]
    fn a_budget_that_does_not_get_all_back_says_so_at_its_end() {
        let budget = Budget::new(100, &[(MemoryClass::Tables, 30)]);
        drop(budget.try_charge(MemoryClass::Jobs, 20).unwrap());
        let charge = budget.try_charge(MemoryClass::Blocks, 60).unwrap();
        drop(charge.into_budget(MemoryClass::Blocks));
    }

    #[test]
    fn what_is_kept_for_a_class_is_taken_by_it_first_and_by_no_other() {
        let budget = Budget::new(100, &[(MemoryClass::Tables, 30)]);
        assert_eq!((budget.held(), budget.held_by(MemoryClass::Tables)), (30, 0));
        assert!(budget.try_charge(MemoryClass::Blocks, 71).is_err());
        let blocks = budget.try_charge(MemoryClass::Blocks, 60).unwrap();
        let within = budget.try_charge(MemoryClass::Tables, 25).unwrap();
        assert_eq!(budget.held(), 90, "it is in the sum already");
        let beyond = budget.try_charge(MemoryClass::Tables, 15).unwrap();
        assert_eq!((budget.held(), budget.held_by(MemoryClass::Tables)), (100, 40));
        assert!(budget.try_charge(MemoryClass::Tables, 1).is_err());
        drop(within);
        assert_eq!((budget.held(), budget.held_by(MemoryClass::Tables)), (90, 15));
        drop((blocks, beyond));
        assert_eq!(budget.held(), 30);
    }
}
