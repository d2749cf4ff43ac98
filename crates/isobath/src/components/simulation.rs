//! Where a simulator takes over: blocking, waking and yielding, for threads that it runs.
//!
//! A simulator runs many tasks on one thread of the system, one at a time. It gives its functions once
//! ([`install`]); on threads where [`Hooks::is_task`] says no, locks and waits are the real ones.

use super::Point;
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
