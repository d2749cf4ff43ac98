//! The lock of a node: a version word that writers lock and readers only compare.
//!
//! This is optimistic lock coupling after Leis et al., "The ART of Practical Synchronization"
//! (DaMoN 2016). The lowest bit means locked. The second bit means that the node was replaced. The
//! other bits count changes. A reader takes a [`Stamp`], reads with relaxed loads, and uses what it
//! read only if [`VersionLock::validate`] then finds the same stamp. A writer takes the lock by a
//! compare-exchange on the stamp under which it read. So under the lock, what it read still holds.
//!
//! Why a reader never uses a torn read: a writer makes its locking store, then a release fence,
//! then its relaxed stores. A reader that saw one of these stores passes an acquire fence before it
//! loads the word again. The two fences synchronise, so that load returns the locked value or a
//! later one, never the old stamp. And if a reader's stamp came from an unlocking store, it came by
//! an acquire load of a release store. So that reader sees everything written before the unlock.

use crate::env::sync::atomic::{AtomicU64, Ordering::*, fence};
use crate::env::sync::{spin_hint, yield_now};

const LOCKED: u64 = 1;
const REPLACED: u64 = 2;
const CHANGE: u64 = 4;

/// The value of an unlocked version word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp(u64);

/// A version word. The head of this file explains it.
#[derive(Debug)]
pub(super) struct VersionLock(AtomicU64);

impl VersionLock {
    pub(super) fn new() -> VersionLock {
        VersionLock(AtomicU64::new(0))
    }

    /// Waits until the lock is free. `None` if the node was replaced: start again from the root.
    #[inline]
    pub(super) fn read(&self) -> Option<Stamp> {
        let mut word = self.0.load(Acquire);
        if word & LOCKED != 0 {
            word = self.wait();
        }
        (word & REPLACED == 0).then_some(Stamp(word))
    }

    #[cold]
    fn wait(&self) -> u64 {
        let mut backoff = Backoff::new();
        loop {
            backoff.wait();
            let word = self.0.load(Acquire);
            if word & LOCKED == 0 {
                return word;
            }
        }
    }

    /// True if everything that was read since `stamp` was taken is consistent.
    #[inline]
    pub(super) fn validate(&self, stamp: Stamp) -> bool {
        fence(Acquire);
        self.0.load(Relaxed) == stamp.0
    }

    /// Takes the lock if nothing has changed since `stamp`.
    #[inline]
    pub(super) fn try_lock(&self, stamp: Stamp) -> bool {
        let locked = self.0.compare_exchange(stamp.0, stamp.0 | LOCKED, Acquire, Relaxed).is_ok();
        fence(Release);
        locked
    }

    /// Unlocks a node after a change that readers can see.
    #[inline]
    pub(super) fn unlock_changed(&self, stamp: Stamp) {
        self.check_held(stamp);
        self.0.store(stamp.0 + CHANGE, Release);
    }

    /// Unlocks a node after no change that readers validate.
    #[inline]
    pub(super) fn unlock_unchanged(&self, stamp: Stamp) {
        self.check_held(stamp);
        self.0.store(stamp.0, Release);
    }

    /// Unlocks a node that must not be used again.
    pub(super) fn unlock_replaced(&self, stamp: Stamp) {
        self.check_held(stamp);
        self.0.store((stamp.0 + CHANGE) | REPLACED, Release);
    }

    fn check_held(&self, stamp: Stamp) {
        debug_assert_eq!(stamp.0 & (LOCKED | REPLACED), 0, "such a node is not locked");
        debug_assert_eq!(self.0.load(Relaxed), stamp.0 | LOCKED, "another thread has the lock");
    }
}

/// Waits a little longer each time. At first it spins; later it yields the processor, because the
/// thread that holds the lock may be waiting for it.
pub(super) struct Backoff(u32);

const SPIN_ROUNDS: u32 = 6;

impl Backoff {
    pub(super) fn new() -> Backoff {
        Backoff(0)
    }

    #[cold]
    pub(super) fn wait(&mut self) {
        if self.0 < SPIN_ROUNDS && !cfg!(any(loom, shuttle)) {
            (0..1 << self.0).for_each(|_| spin_hint());
            self.0 += 1;
        } else {
            yield_now();
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_is_good_until_the_node_is_locked_and_again_if_nothing_changed() {
        let lock = VersionLock::new();
        let first = lock.read().unwrap();
        assert!(lock.validate(first) && lock.try_lock(first));
        assert!(!lock.validate(first) && !lock.try_lock(first));
        lock.unlock_unchanged(first);
        assert!(lock.validate(first) && lock.read() == Some(first) && lock.try_lock(first));
        lock.unlock_changed(first);
        assert!(!lock.validate(first) && !lock.try_lock(first));
        let second = lock.read().unwrap();
        assert!(second != first && lock.try_lock(second));
        lock.unlock_replaced(second);
        assert!(lock.read().is_none() && !lock.validate(second) && !lock.try_lock(second));
    }

    #[test]
    fn a_reader_waits_while_a_writer_holds_the_lock() {
        let lock = VersionLock::new();
        let stamp = lock.read().unwrap();
        assert!(lock.try_lock(stamp));
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| lock.read());
            std::thread::sleep(std::time::Duration::from_millis(20));
            assert!(!reader.is_finished());
            lock.unlock_changed(stamp);
            assert_eq!(reader.join().unwrap(), Some(Stamp(CHANGE)));
        });
    }
}
