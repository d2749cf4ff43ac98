//! Where a simulator takes over: blocking, waking and yielding, for threads that it runs.
//!
//! A simulator runs many tasks on one thread of the system, one at a time. It gives its functions
//! once ([`install`]); on threads where [`Hooks::is_task`] says no, locks and waits are the real
//! ones.

use super::Point;
pub use super::lock_order::HeldLocks;
use std::cell::Cell;
use std::sync::OnceLock;

/// What a simulator provides. All of it is called on the thread that the task runs on.
#[derive(Clone, Copy, Debug)]
pub struct Hooks {
    /// True if the caller is a simulated task.
    pub is_task: fn() -> bool,
    /// The task is at a labelled point; others may go first.
    pub point: fn(Point),
    /// The task sleeps until somebody wakes `on`, or for so many nanoseconds.
    pub block: fn(on: usize, timeout_ns: Option<u64>),
    /// Wakes one task, or all, that sleep on `on`.
    pub wake: fn(on: usize, all: bool),
    /// Others should go first.
    pub yield_now: fn(),
    /// The task is at an access to what threads share; others may go first. Says by
    /// [`preempt_after`] when to be called again.
    pub preempt: fn(),
}

static HOOKS: OnceLock<Hooks> = OnceLock::new();

/// Installs the simulator's functions. The first call of a process wins.
pub fn install(hooks: Hooks) {
    let _ = HOOKS.set(hooks);
}

/// The hooks, if the caller is a simulated task.
#[inline]
pub(crate) fn task_hooks() -> Option<&'static Hooks> {
    HOOKS.get().filter(|hooks| (hooks.is_task)())
}

thread_local! {
    /// Accesses of this thread that pass before the hook is called.
    static LEFT: Cell<u32> = const { Cell::new(u32::MAX) };
    /// Slots of the rings of frontiers that are created on this thread; 0 for the usual number.
    static RING_SLOTS: Cell<usize> = const { Cell::new(0) };
}

/// Calls [`Hooks::preempt`] after so many accesses to what threads share, by whatever task this
/// thread runs then.
pub fn preempt_after(accesses: u32) {
    LEFT.set(accesses);
}

/// Others may go first here, if it is their turn.
#[inline]
pub(crate) fn preempt() {
    match LEFT.get().checked_sub(1) {
        Some(left) => LEFT.set(left),
        None => give_way(),
    }
}

#[cold]
fn give_way() {
    // Nobody who unwinds gives way: the count of panics is the thread's, and the thread is
    // everybody's.
    let hooks = task_hooks().filter(|_| !std::thread::panicking());
    if let Some(hooks) = hooks {
        (hooks.preempt)();
    }
}

/// Runs `body` as one step in the eyes of other tasks, unless it blocks.
#[inline]
pub fn without_preemption<T>(body: impl FnOnce() -> T) -> T {
    struct Restore(u32);
    impl Drop for Restore {
        fn drop(&mut self) {
            LEFT.set(self.0);
        }
    }
    let _restore = Restore(LEFT.replace(u32::MAX));
    body()
}

/// Gives the logs that are started on this thread frontiers of so many slots, a power of two; 0 for
/// as many as ever.
pub fn ring_slots(count: usize) {
    RING_SLOTS.set(count);
}

/// What was asked for by [`ring_slots`].
pub(crate) fn ring_slots_wanted() -> Option<usize> {
    Some(RING_SLOTS.get()).filter(|slots| *slots > 0)
}
