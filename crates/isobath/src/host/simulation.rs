//! The hooks of a simulator: blocking, waking and yielding, for the threads that it runs.
//!
//! A simulator runs many tasks on one thread of the system, one at a time. It provides its
//! functions once ([`install`]). On threads where [`Hooks::is_task`] returns false, locks and waits
//! are the real ones. There a harness may see what the thread does, and delay it ([`accompany`]).

use super::Point;
pub use super::lock_order::HeldLocks;
use std::cell::Cell;
use std::sync::OnceLock;

/// The functions that a simulator provides. All are called on the thread that runs the task.
#[derive(Clone, Copy, Debug)]
pub struct Hooks {
    /// True if the caller is a simulated task.
    pub is_task: fn() -> bool,
    /// The task is at a labelled point; other tasks may run first.
    pub point: fn(Point),
    /// The task has reserved a record that ends here: what it commits then, it commits there.
    pub reserved: fn(end: u64),
    /// Puts the task to sleep until another task wakes `on`, or for at most this many nanoseconds.
    pub block: fn(on: usize, timeout_ns: Option<u64>),
    /// Wakes one or all of the tasks that sleep on `on`.
    pub wake: fn(on: usize, all: bool),
    /// The task has woken another one by a condition variable, and still holds what it held.
    pub woke: fn(),
    /// Other tasks should run first.
    pub yield_now: fn(),
    /// The task accesses shared data; other tasks may run first. The hook says by [`preempt_after`]
    /// when it is called again.
    pub preempt: fn(),
    /// A number that the running task keeps for its life, and that no other task has meanwhile.
    pub task: fn() -> usize,
}

static HOOKS: OnceLock<Hooks> = OnceLock::new();

/// Installs the simulator's functions. Only the first call in a process counts.
pub fn install(hooks: Hooks) {
    let _ = HOOKS.set(hooks);
}

/// The functions of a harness that lets real threads run. They may delay the calling thread.
#[derive(Clone, Copy, Debug)]
pub struct Company {
    /// The thread is at a labelled point.
    pub point: fn(Point),
    /// The thread accesses shared data, as often as it has said by [`preempt_after`].
    pub access: fn(),
    /// The thread has reserved a record that ends here.
    pub reserved: fn(end: u64),
    /// The thread has woken another one.
    pub woke: fn(),
}

static COMPANY: OnceLock<Company> = OnceLock::new();

/// Lets these functions see what real threads do. Only the first call in a process counts.
pub fn accompany(company: Company) {
    let _ = COMPANY.set(company);
}

/// The functions that see what a real thread does, if there are any.
#[inline]
pub(crate) fn company() -> Option<&'static Company> {
    COMPANY.get()
}

/// The calling thread has woken another one. What that relies on must be there already: the harness
/// may keep the waker away as soon as it accesses shared data again.
pub(crate) fn woke() {
    match (task_hooks(), company()) {
        (Some(hooks), _) => (hooks.woke)(),
        (None, Some(company)) => (company.woke)(),
        (None, None) => {}
    }
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

/// Calls [`Hooks::preempt`] after this many accesses to shared data on this thread, by whichever
/// task runs then.
pub fn preempt_after(accesses: u32) {
    LEFT.set(accesses);
}

/// Other tasks may run here, if enough accesses have passed.
#[inline]
pub(crate) fn preempt() {
    match LEFT.get().checked_sub(1) {
        Some(left) => LEFT.set(left),
        None => give_way(),
    }
}

#[cold]
fn give_way() {
    // A task that unwinds does not give way: the count of panics belongs to the thread, and all
    // tasks share the thread.
    if std::thread::panicking() {
        return;
    }
    match (task_hooks(), company()) {
        (Some(hooks), _) => (hooks.preempt)(),
        (None, Some(company)) => (company.access)(),
        (None, None) => {}
    }
}

/// Runs `body` as one step for other tasks, unless it blocks.
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

/// Sets the number of slots, a power of two, of the frontiers of logs that are started on this
/// thread; 0 restores the usual number.
pub fn ring_slots(count: usize) {
    RING_SLOTS.set(count);
}

/// The number that [`ring_slots`] has set, if any.
pub(crate) fn ring_slots_wanted() -> Option<usize> {
    Some(RING_SLOTS.get()).filter(|slots| *slots > 0)
}
