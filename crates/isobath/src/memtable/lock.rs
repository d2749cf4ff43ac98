//! The lock of a node: a version word that writers lock and that readers only compare.
//!
//! Optimistic lock coupling after Leis et al., "The ART of Practical Synchronization" (DaMoN 2016).
//! The lowest bit says locked, the second that the node was replaced, the rest counts changes. A
//! reader takes a [`Stamp`], reads what it likes with relaxed loads, and believes it only if
//! [`VersionLock::validate`] then finds the same stamp. A writer turns the stamp under which it
//! read into the lock by compare-exchange, so that what it read is still so.
//!
//! Why no torn read is believed: a writer's relaxed stores follow a release fence that follows its
//! locking store. A reader that saw one of those stores passes an acquire fence before it loads the
//! word again; the fences synchronise, so that load sees the word locked or later, never the old
//! stamp. A reader whose stamp came from the unlocking store, an acquire load of a release store,
//! sees everything written before.

use crate::env::sync::atomic::{AtomicU64, Ordering::*, fence};
use crate::env::sync::{spin_hint, yield_now};

const LOCKED: u64 = 1;
const REPLACED: u64 = 2;
const CHANGE: u64 = 4;

/// The value of an unlocked version word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp(u64);

/// A version word; see the head of the file.
#[derive(Debug)]
pub(super) struct VersionLock(AtomicU64);

impl VersionLock {
    pub(super) fn new() -> VersionLock {
        VersionLock(AtomicU64::new(0))
    }

    /// Waits until nobody holds the lock. `None` if the node was replaced: start again from the
    /// root.
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

    /// True if all that was read since `stamp` was taken is consistent.
    #[inline]
    pub(super) fn validate(&self, stamp: Stamp) -> bool {
        fence(Acquire);
        self.0.load(Relaxed) == stamp.0
    }

    /// Locks, if nothing changed since `stamp`.
    #[inline]
    pub(super) fn try_lock(&self, stamp: Stamp) -> bool {
        let locked = self.0.compare_exchange(stamp.0, stamp.0 | LOCKED, Acquire, Relaxed).is_ok();
        fence(Release);
        locked
    }

    /// Unlocks a node in which readers may have seen a change.
    #[inline]
    pub(super) fn unlock_changed(&self, stamp: Stamp) {
        self.0.store(stamp.0 + CHANGE, Release);
    }

    /// Unlocks a node in which nothing changed that readers validate.
    #[inline]
    pub(super) fn unlock_unchanged(&self, stamp: Stamp) {
        self.0.store(stamp.0, Release);
    }

    /// Unlocks a node that must not be used any more.
    pub(super) fn unlock_replaced(&self, stamp: Stamp) {
        self.0.store((stamp.0 + CHANGE) | REPLACED, Release);
    }
}

/// Waits a little longer each time: first on the processor, then by giving it away, since whoever
/// holds the lock may be waiting for it.
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
