//! The lease: the part of the budget for memory that the memtables have, and what of it is spoken
//! for.
//!
//! A commit that has its LSN cannot fail, so what it will take is spoken for before: each epoch
//! when it is opened, and a large commit when it is admitted. What is spoken for is never more than
//! the lease; if it would be, the lease grows by a charge, which may fail. Arenas take no more than
//! is spoken for, and idle chunks stay only where the lease has room beside what arenas have taken.
//! A part of the lease is a reserve, which it never gives back.
//!
//! A large commit is admitted only if the next epoch has room behind it, and what the lease has for
//! that epoch it keeps. So whatever commits make of the open epoch, it can be sealed once those
//! before it are gone, also if memory was free when they were admitted and is not any longer.
//!
//! The pool guards it by its lock (`pool.rs`).

use crate::error::{Error, MemoryClass, Result};
use crate::memory::{Charge, Shares};

#[derive(Debug)]
pub(super) struct Lease {
    charge: Charge,
    reserve: u64,
    /// The most that one commit may speak for.
    commit_max: u64,
    /// What the next epoch will speak for.
    epoch: u64,
    /// What arenas have taken, or may still take without asking, and what large commits may.
    spoken: u64,
    /// What arenas have taken.
    taken: u64,
}

impl Lease {
    /// A lease of what memtables always have, which is charged.
    pub(super) fn new(charge: Charge, shares: &Shares) -> Lease {
        debug_assert_eq!(charge.bytes(), shares.lease(), "the reserve is charged");
        let (reserve, commit_max) = (charge.bytes(), shares.commit_max());
        Lease { charge, reserve, commit_max, epoch: shares.epoch(), spoken: 0, taken: 0 }
    }

    /// Speaks for so many bytes, or fails and changes nothing.
    pub(super) fn speak(&mut self, bytes: u64) -> Result<()> {
        self.speak_with(bytes, 0)
    }

    /// The same, if the lease has room for so many bytes more, which are not spoken for yet.
    fn speak_with(&mut self, bytes: u64, more: u64) -> Result<()> {
        let missing = (self.spoken + bytes + more).saturating_sub(self.charge.bytes());
        if missing > 0 {
            self.charge.grow(missing)?;
        }
        self.spoken += bytes;
        debug_assert!(self.spoken + more <= self.charge.bytes(), "more is promised than there is");
        Ok(())
    }

    /// The same, if the lease is long enough as it is.
    pub(super) fn speak_within(&mut self, bytes: u64) -> bool {
        let fits = self.spoken + bytes <= self.charge.bytes();
        self.spoken += if fits { bytes } else { 0 };
        fits
    }

    /// Speaks for a commit, or fails and changes nothing. Behind it the next epoch has room.
    pub(super) fn speak_for_commit(&mut self, bytes: u64) -> Result<()> {
        if bytes > self.commit_max {
            return Err(Error::beyond_memory(bytes, self.commit_max, MemoryClass::Memtables));
        }
        self.speak_with(bytes, self.epoch)
    }

    /// An arena has taken `bytes`, of which so many were not spoken for: those of a replay, or of a
    /// commit that no lease suffices for. They are charged as far as there is room.
    pub(super) fn take(&mut self, bytes: u64, beyond: u64) {
        debug_assert!(beyond <= bytes, "an arena goes beyond what it takes");
        self.taken += bytes;
        if beyond > 0 {
            self.spoken += beyond;
            self.charge.grow_as_far_as_there_is_room(self.spoken);
        }
    }

    /// So many bytes are no longer spoken for.
    pub(super) fn unspeak(&mut self, bytes: u64) {
        debug_assert!(bytes <= self.spoken, "more is given up than was spoken for");
        self.spoken -= bytes;
    }

    /// An arena has given back what it took.
    pub(super) fn untake(&mut self, bytes: u64) {
        debug_assert!(bytes <= self.taken, "more comes back than was taken");
        self.taken -= bytes;
    }

    #[cfg(all(test, not(any(loom, shuttle))))]
    pub(super) fn taken(&self) -> u64 {
        self.taken
    }

    #[cfg(all(test, not(any(loom, shuttle))))]
    pub(super) fn spoken(&self) -> u64 {
        self.spoken
    }

    /// What may be idle beside what arenas have taken: a lease does not grow for that.
    pub(super) fn idle_max(&self) -> u64 {
        let most = self.spoken.max(self.reserve).min(self.charge.bytes());
        most.saturating_sub(self.taken)
    }

    /// Gives back what is neither reserved nor in use, with so many bytes of idle chunks, nor for
    /// the next epoch.
    pub(super) fn shrink(&mut self, idle: u64) {
        let in_use = (self.spoken + self.epoch).max(self.taken + idle);
        self.charge.shrink_to(in_use.max(self.reserve));
        debug_assert!(self.charge.bytes() >= self.reserve, "a reserve is given back");
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::memory::Budget;

    fn lease(free: u64) -> (Lease, u64, std::sync::Arc<Budget>) {
        let shares = Shares::new(24 << 20, u64::MAX, 64 << 10, 16 << 10);
        let budget = Budget::new(shares.lease() + free, &[]);
        let charge = budget.try_charge(MemoryClass::Memtables, shares.lease()).unwrap();
        (Lease::new(charge, &shares), shares.lease(), budget)
    }

    #[test]
    fn what_is_spoken_for_beyond_the_reserve_is_charged_and_given_back_in_the_end() {
        let (mut lease, reserve, budget) = lease(100);
        lease.speak(reserve - 10).unwrap();
        assert_eq!(budget.held(), reserve);
        assert!(lease.speak(111).is_err());
        lease.speak(110).unwrap();
        assert_eq!(budget.held(), reserve + 100);
        lease.take(reserve + 100, 0);
        assert_eq!(lease.idle_max(), 0);
        lease.unspeak(reserve + 50);
        lease.shrink(0);
        assert_eq!(budget.held(), reserve + 100, "it is in use, spoken for or not");
        lease.untake(60);
        lease.shrink(20);
        assert_eq!(budget.held(), reserve + 60);
        lease.untake(reserve + 40);
        lease.unspeak(50);
        lease.shrink(0);
        assert_eq!((budget.held(), lease.idle_max()), (reserve, reserve));
    }

    #[test]
    fn a_commit_that_no_lease_suffices_for_is_told_what_the_most_is() {
        let (mut lease, reserve, budget) = lease(0);
        let most = (24 << 20) / 16;
        let error = lease.speak_for_commit(most + 1).unwrap_err();
        assert!(!error.is_retryable() && error.to_string().contains(&most.to_string()), "{error}");
        lease.speak_for_commit(most).unwrap();
        lease.speak(reserve - most).unwrap();
        assert!(lease.speak_for_commit(1).unwrap_err().is_retryable());
        assert_eq!(budget.held(), reserve);
    }

    #[test]
    fn the_next_epoch_has_room_although_memory_was_free_and_is_no_longer() {
        let (mut lease, reserve, budget) = lease(8 << 20);
        let (epoch, most) = (lease.epoch, lease.commit_max);
        lease.speak(epoch).unwrap();
        (0..4).for_each(|_| lease.speak_for_commit(most).unwrap());
        lease.unspeak(most);
        lease.shrink(0);
        assert_eq!(budget.held(), 2 * epoch + 3 * most);
        // Readers take all that is free.
        let free = budget.ceiling() - budget.held();
        let _pins = budget.try_charge(MemoryClass::Blocks, free).unwrap();
        lease.speak(epoch).expect("the open epoch can be sealed");
        lease.unspeak(epoch + 3 * most);
        lease.shrink(0);
        assert_eq!(budget.held(), free + reserve);
    }
}
