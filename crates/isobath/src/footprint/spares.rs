//! The memory of footprints that are not in use: most transactions are small, and the next one of a
//! thread needs what the last one has allocated.
//!
//! Each thread has its own place, as far as there are places, and each place keeps one footprint,
//! empty and small. What it takes stays charged, so the next transaction has to ask for nothing. A
//! footprint is large and passes through a few hands, so it stays where it is, behind a pointer.

use super::Footprint;
use crate::env::sync::{Mutex, Rank, thread_slot};
use crate::memory::Allowance;
use crossbeam_utils::CachePadded;
use std::ops::{Deref, DerefMut};

/// The number of places.
const PLACES: usize = if cfg!(any(loom, shuttle)) { 1 } else { 16 };
/// The largest footprint that is kept, in bytes.
const CHARGE_MAX: u64 = 16 << 10;

impl Footprint {
    /// Empties it for another attempt, and keeps its memory if it is small.
    pub(crate) fn begin_again(&mut self, limit: u64) {
        match self.limit == limit && self.charge() <= CHARGE_MAX {
            true => self.clear(),
            false => self.renew(limit),
        }
    }
}

/// One footprint to be used again, or none.
type Spare = Option<Box<Footprint>>;

/// Footprints to be used again.
pub(crate) struct Spares {
    places: Box<[CachePadded<Mutex<Spare>>]>,
}

/// The footprint of a transaction, until it is given back.
#[derive(Debug)]
pub(crate) struct Lent(Option<Box<Footprint>>);

impl Deref for Lent {
    type Target = Footprint;

    #[inline]
    fn deref(&self) -> &Footprint {
        self.0.as_deref().expect("it was not given back")
    }
}

impl DerefMut for Lent {
    #[inline]
    fn deref_mut(&mut self) -> &mut Footprint {
        self.0.as_deref_mut().expect("it was not given back")
    }
}

impl Default for Spares {
    fn default() -> Spares {
        let place = |_| CachePadded::new(Mutex::new(Rank::SpareFootprint, None));
        Spares { places: (0..PLACES).map(place).collect() }
    }
}

impl Spares {
    fn place(&self) -> &Mutex<Spare> {
        &self.places[thread_slot() % PLACES]
    }

    /// An empty footprint that takes at most about `limit`, and charges it to `allowance` unless it
    /// has one from before.
    pub(crate) fn take(&self, limit: u64, allowance: impl FnOnce() -> Allowance) -> Lent {
        let spare = self.place().lock().take();
        debug_assert!(spare.as_ref().is_none_or(|spare| spare.len() == 0), "{spare:?}");
        let Some(mut footprint) = spare else {
            return Lent(Some(Box::new(Footprint::charged(limit, allowance()))));
        };
        footprint.limit = limit;
        footprint.regrant();
        Lent(Some(footprint))
    }

    /// Takes a footprint back, and keeps its memory if it is small.
    pub(crate) fn give(&self, lent: &mut Lent) {
        let Some(mut spare) = lent.0.take() else { return };
        // One that may take nothing stands for another, and charges nothing.
        if spare.limit > 0 && spare.charge() <= CHARGE_MAX {
            if spare.allowance.bytes() > 2 * CHARGE_MAX {
                spare.settle_allowance();
            }
            let is_used = spare.charge() > 0;
            spare.clear();
            debug_assert!(spare.len() == 0 && spare.read_ranges().next().is_none(), "{spare:?}");
            let mut place = self.place().lock();
            // One that was of no use may have no memory for the next transaction.
            let _unneeded = match is_used || place.is_none() {
                true => place.replace(spare),
                false => Some(spare),
            };
            drop(place);
        }
    }
}

impl std::fmt::Debug for Spares {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Spares")
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::footprint::{Interval, Operation, ReadKey};
    use crate::format::OpKind;
    use crate::memory::Budget;

    fn fill(footprint: &mut Footprint, value: &[u8]) {
        let operation = Operation { family: 1, kind: OpKind::Put, key: b"key", value };
        footprint.write(operation).unwrap();
        footprint.savepoint("here");
        footprint.track_read(ReadKey::new(1, b"read"));
        footprint.watch(1, Interval::of_key(b"watched"));
    }

    #[test]
    fn what_comes_back_is_empty_has_its_own_limit_and_the_old_memory() {
        let spares = Spares::default();
        let mut footprint = spares.take(1 << 20, Allowance::endless);
        fill(&mut footprint, b"value");
        let value_at = |footprint: &Footprint| footprint.get(1, b"key").unwrap().value.as_ptr();
        let first = value_at(&footprint);
        spares.give(&mut footprint);
        let mut again = spares.take(1 << 10, || unreachable!("it has one"));
        assert_eq!((again.len(), again.limit), (0, 1 << 10));
        assert_eq!((again.read_keys().len(), again.read_ranges().count()), (0, 0));
        assert!(!again.rollback_to("here"));
        fill(&mut again, b"other");
        assert_eq!(value_at(&again), first);
    }

    #[test]
    fn what_is_kept_stays_charged_and_no_more() {
        let budget = Budget::new(24 << 20, &[]);
        let (spares, charged) = (Spares::default(), || budget.held());
        let mut footprint = spares.take(1 << 20, || Allowance::below(&budget));
        assert_eq!(charged(), 0);
        fill(&mut footprint, b"value");
        let small = charged();
        assert!((footprint.charge()..=8 << 10).contains(&small), "{small}");
        spares.give(&mut footprint);
        assert_eq!(charged(), small);
        let mut footprint = spares.take(1 << 20, || unreachable!("it has one"));
        fill(&mut footprint, b"value");
        assert_eq!(charged(), small, "a small one needs no more than the one before it");
        footprint.savepoint("before");
        let long = Operation { family: 1, kind: OpKind::Put, key: b"long", value: &[7; 100_000] };
        footprint.write(long).unwrap();
        assert!(charged() > 100_000);
        assert!(footprint.rollback_to("before"));
        spares.give(&mut footprint);
        assert!((1..=2 * CHARGE_MAX).contains(&charged()), "{}", charged());
        drop(spares);
        assert_eq!(charged(), 0);
    }

    #[test]
    fn one_that_was_of_no_use_takes_no_place_of_another() {
        let spares = Spares::default();
        let place_of = |footprint: &Footprint| std::ptr::from_ref(footprint);
        let mut unused = spares.take(1 << 20, Allowance::endless);
        let mut footprint = spares.take(1 << 20, Allowance::endless);
        fill(&mut footprint, b"value");
        let first = place_of(&footprint);
        spares.give(&mut footprint);
        spares.give(&mut unused);
        assert_eq!(place_of(&spares.take(1 << 20, Allowance::endless)), first);
    }

    #[test]
    fn one_whose_limit_was_lifted_comes_back_with_the_limit_of_the_next() {
        let spares = Spares::default();
        let mut footprint = spares.take(1 << 20, Allowance::endless);
        fill(&mut footprint, b"value");
        footprint.put_beneath(|_| Ok::<(), ()>(())).unwrap();
        spares.give(&mut footprint);
        let mut again = spares.take(1 << 10, || unreachable!("it has one"));
        let long = Operation { family: 1, kind: OpKind::Put, key: b"long", value: &[7; 2000] };
        assert!(again.write(long).is_err());
    }

    #[test]
    fn what_stands_for_a_footprint_that_is_elsewhere_is_not_kept() {
        let spares = Spares::default();
        let mut footprint = spares.take(1 << 20, Allowance::endless);
        *footprint = Footprint::new(0);
        spares.give(&mut footprint);
        assert!(spares.place().lock().is_none(), "the next transaction would be charged nothing");
    }

    #[test]
    fn large_ones_are_not_kept() {
        let spares = Spares::default();
        let mut footprint = spares.take(1 << 20, Allowance::endless);
        fill(&mut footprint, &[7; CHARGE_MAX as usize]);
        spares.give(&mut footprint);
        assert!(spares.place().lock().is_none());
    }
}
