//! Locks, condition variables and atomics, switched by build: `parking_lot` and the processor's
//! atomics, or those of the model checkers.
//!
//! A panic does not poison a lock: a broken invariant stops the engine by other means.

pub(crate) use super::lock_order::Rank;
use super::lock_order::{Held, Ranked};
use std::time::Duration;

#[cfg(all(feature = "simulation", not(any(loom, shuttle))))]
pub(crate) use super::atomics as atomic;
#[cfg(loom)]
pub(crate) use loom::sync::atomic;
#[cfg(shuttle)]
pub(crate) use shuttle::sync::atomic;
#[cfg(not(any(feature = "simulation", loom, shuttle)))]
pub(crate) use std::sync::atomic;

#[cfg(not(any(loom, shuttle)))]
mod imp {
    pub(super) use parking_lot::{Mutex, MutexGuard};

    #[inline]
    pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
        #[cfg(feature = "simulation")]
        if let Some(hooks) = crate::host::simulation::task_hooks() {
            loop {
                if let Some(guard) = mutex.try_lock() {
                    return guard;
                }
                (hooks.block)(std::ptr::from_ref(mutex).addr(), None);
            }
        }
        mutex.lock()
    }

    #[inline]
    pub(super) fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
        mutex.try_lock()
    }

    /// Wakes a simulated task that waits for the mutex that was just unlocked.
    #[cfg(feature = "simulation")]
    pub(super) fn unlocked<T>(mutex: &Mutex<T>) {
        if let Some(hooks) = crate::host::simulation::task_hooks() {
            (hooks.wake)(std::ptr::from_ref(mutex).addr(), false);
        }
    }
}
#[cfg(any(loom, shuttle))]
mod imp {
    #[cfg(loom)]
    pub(super) use loom::sync::{Mutex, MutexGuard};
    #[cfg(shuttle)]
    pub(super) use shuttle::sync::{Mutex, MutexGuard};

    pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
        mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    pub(super) fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
        mutex.try_lock().ok()
    }
}

/// Follows a sequentially consistent store that must precede the thread's next load in the order
/// that all threads see. Loom treats sequentially consistent accesses as acquire and release only,
/// but models fences.
#[inline]
pub(crate) fn fence_for_loom() {
    #[cfg(loom)]
    atomic::fence(atomic::Ordering::SeqCst);
}

/// A mutex. Mutexes are taken in the order of [`Rank`].
#[derive(Debug)]
pub(crate) struct Mutex<T> {
    lock: imp::Mutex<T>,
    rank: Ranked,
}

/// Access to what a [`Mutex`] protects. The lock is released before its entry leaves the list of
/// held locks.
pub(crate) struct MutexGuard<'a, T>(Option<imp::MutexGuard<'a, T>>, Held);

impl<T> Mutex<T> {
    pub(crate) fn new(rank: Rank, value: T) -> Self {
        Mutex { lock: imp::Mutex::new(value), rank: Ranked::new(rank) }
    }

    /// A lock for tests, without a rank.
    #[cfg(test)]
    pub(crate) fn unranked(value: T) -> Self {
        Mutex::new(Rank::Unranked, value)
    }

    #[cfg_attr(debug_assertions, track_caller)]
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        let held = self.rank.enter(false);
        super::preempt();
        MutexGuard(Some(imp::lock(&self.lock)), held)
    }

    /// The lock, if no thread holds it.
    #[cfg_attr(debug_assertions, track_caller)]
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let held = self.rank.enter(false);
        super::preempt();
        imp::try_lock(&self.lock).map(|lock| MutexGuard(Some(lock), held))
    }

    /// Like [`Mutex::lock`], for a thread that holds other locks of this rank. It must also hold a
    /// lock that keeps all other threads from taking two of this rank.
    #[cfg_attr(debug_assertions, track_caller)]
    pub(crate) fn lock_beside(&self) -> MutexGuard<'_, T> {
        let held = self.rank.enter(true);
        super::preempt();
        MutexGuard(Some(imp::lock(&self.lock)), held)
    }
}

#[cfg(test)]
impl<T: Default> Default for Mutex<T> {
    fn default() -> Self {
        Mutex::unranked(T::default())
    }
}

#[cfg(feature = "simulation")]
impl<T> Drop for MutexGuard<'_, T> {
    fn drop(&mut self) {
        #[cfg(not(any(loom, shuttle)))]
        if let Some(held) = self.0.take() {
            let mutex = parking_lot::MutexGuard::mutex(&held);
            drop(held);
            imp::unlocked(mutex);
            super::preempt();
        }
    }
}

impl<T> std::ops::Deref for MutexGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        self.0.as_ref().expect("held outside of a wait")
    }
}

impl<T> std::ops::DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.as_mut().expect("held outside of a wait")
    }
}

/// A condition variable. A wait may end without a reason, so wait in a loop.
#[derive(Debug)]
pub(crate) struct Condvar(
    #[cfg(not(any(loom, shuttle)))] parking_lot::Condvar,
    #[cfg(loom)] loom::sync::Condvar,
    #[cfg(shuttle)] shuttle::sync::Condvar,
);

impl Condvar {
    pub(crate) fn new() -> Self {
        #[cfg(not(any(loom, shuttle)))]
        return Condvar(parking_lot::Condvar::new());
        #[cfg(loom)]
        return Condvar(loom::sync::Condvar::new());
        #[cfg(shuttle)]
        return Condvar(shuttle::sync::Condvar::new());
    }

    /// Waits as a simulated task; false if the caller is not one.
    #[cfg(all(feature = "simulation", not(any(loom, shuttle))))]
    #[cfg_attr(debug_assertions, track_caller)]
    fn wait_simulated<T>(&self, guard: &mut MutexGuard<'_, T>, timeout: Option<Duration>) -> bool {
        let Some(hooks) = super::simulation::task_hooks() else { return false };
        let MutexGuard(lock, held) = guard;
        let locked = lock.take().expect("held outside of a wait");
        let mutex = parking_lot::MutexGuard::mutex(&locked);
        drop(locked);
        held.while_given_back(|| {
            imp::unlocked(mutex);
            let timeout_ns = timeout.map(|timeout| timeout.as_nanos() as u64);
            (hooks.block)(std::ptr::from_ref(self).addr(), timeout_ns);
        });
        *lock = Some(imp::lock(mutex));
        true
    }

    #[cfg(not(any(loom, shuttle)))]
    #[cfg_attr(debug_assertions, track_caller)]
    pub(crate) fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        #[cfg(feature = "simulation")]
        if self.wait_simulated(guard, None) {
            return;
        }
        let MutexGuard(lock, held) = guard;
        let locked = lock.as_mut().expect("held outside of a wait");
        held.while_given_back(|| self.0.wait(locked));
    }

    #[cfg(any(loom, shuttle))]
    pub(crate) fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        let held = guard.0.take().expect("held outside of a wait");
        guard.0 = Some(self.0.wait(held).unwrap_or_else(|poisoned| poisoned.into_inner()));
    }

    /// Waits for at most `timeout`. Model checkers have no time and treat it like
    /// [`Condvar::wait`].
    #[cfg_attr(debug_assertions, track_caller)]
    pub(crate) fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, timeout: Duration) {
        #[cfg(all(feature = "simulation", not(any(loom, shuttle))))]
        if self.wait_simulated(guard, Some(timeout)) {
            return;
        }
        #[cfg(not(any(loom, shuttle)))]
        {
            let MutexGuard(lock, held) = guard;
            let locked = lock.as_mut().expect("held outside of a wait");
            held.while_given_back(|| self.0.wait_for(locked, timeout));
        }
        #[cfg(any(loom, shuttle))]
        {
            let _ = timeout;
            self.wait(guard);
        }
    }

    pub(crate) fn notify_one(&self) {
        super::preempt();
        #[cfg(all(feature = "simulation", not(any(loom, shuttle))))]
        if let Some(hooks) = super::simulation::task_hooks() {
            (hooks.wake)(std::ptr::from_ref(self).addr(), false);
        }
        self.0.notify_one();
        #[cfg(all(feature = "simulation", not(any(loom, shuttle))))]
        super::simulation::woke();
    }

    pub(crate) fn notify_all(&self) {
        super::preempt();
        #[cfg(all(feature = "simulation", not(any(loom, shuttle))))]
        if let Some(hooks) = super::simulation::task_hooks() {
            (hooks.wake)(std::ptr::from_ref(self).addr(), true);
        }
        self.0.notify_all();
        #[cfg(all(feature = "simulation", not(any(loom, shuttle))))]
        super::simulation::woke();
    }
}

impl Default for Condvar {
    fn default() -> Self {
        Condvar::new()
    }
}

/// Tells the processor that this is a spin loop, and a model checker that another thread must run.
#[inline]
pub(crate) fn spin_hint() {
    #[cfg(not(any(loom, shuttle)))]
    std::hint::spin_loop();
    #[cfg(loom)]
    loom::thread::yield_now();
    #[cfg(shuttle)]
    shuttle::thread::yield_now();
}

/// Lets another thread run. For a wait that may last longer than the time slice of the thread it
/// waits for.
#[cold]
pub(crate) fn yield_now() {
    #[cfg(all(feature = "simulation", not(any(loom, shuttle))))]
    if let Some(hooks) = super::simulation::task_hooks() {
        return (hooks.yield_now)();
    }
    #[cfg(not(any(loom, shuttle)))]
    std::thread::yield_now();
    #[cfg(loom)]
    loom::thread::yield_now();
    #[cfg(shuttle)]
    shuttle::thread::yield_now();
}

/// A small number that the calling thread keeps for its life. It spreads threads over shards. Under
/// model checkers all threads use one shard.
#[inline]
pub(crate) fn thread_slot() -> usize {
    #[cfg(all(feature = "simulation", not(any(loom, shuttle))))]
    if super::simulation::task_hooks().is_some() {
        return 0;
    }
    #[cfg(not(any(loom, shuttle)))]
    return slots::current();
    #[cfg(any(loom, shuttle))]
    return 0;
}

/// A number that identifies the calling thread, or simulated task, among those that live.
pub(crate) fn thread_id() -> u64 {
    #[cfg(all(feature = "simulation", not(any(loom, shuttle))))]
    if let Some(hooks) = super::simulation::task_hooks() {
        return (hooks.task)() as u64 | 1 << 63;
    }
    #[cfg(not(any(loom, shuttle)))]
    return slots::current() as u64;
    #[cfg(any(loom, shuttle))]
    {
        use std::hash::{DefaultHasher, Hash, Hasher};
        let mut hasher = DefaultHasher::new();
        #[cfg(loom)]
        loom::thread::current().id().hash(&mut hasher);
        #[cfg(shuttle)]
        shuttle::thread::current().id().hash(&mut hasher);
        hasher.finish()
    }
}

#[cfg(not(any(loom, shuttle)))]
mod slots {
    use std::cell::Cell;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static SLOT: Cell<usize> = const { Cell::new(usize::MAX) };
    }

    #[inline(always)]
    pub(super) fn current() -> usize {
        let slot = SLOT.get();
        if slot == usize::MAX { assign() } else { slot }
    }

    #[cold]
    fn assign() -> usize {
        SLOT.set(NEXT.fetch_add(1, Relaxed) & (usize::MAX >> 1));
        SLOT.get()
    }
}
