//! Places where a simulator may let another thread go first: labelled ones, and every other access
//! to what threads share.
//!
//! Locks and atomics are such places by themselves (`sync`). Where threads meet through something
//! of another crate (a view behind an `ArcSwap`, a block in a cache) or would otherwise run on for
//! long, the engine says [`preempt`].

/// A moment between two steps of a protocol whose interleavings matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Point {
    /// A commit owns its LSN, nothing is copied yet.
    Reserved,
    /// The record is in the log, not yet in a memtable.
    Copied,
    /// The operations are in their memtables, not yet visible.
    Applied,
    /// The commit marked itself finished; a predecessor may still hold the frontier.
    Published,
    /// An epoch is marked closing, its marker is not reserved yet.
    Sealing,
    /// An epoch's boundary is published.
    Sealed,
    /// A job's output exists, its edit is not written yet.
    Built,
    /// An edit is durable in the manifest, the version in memory is not swapped yet.
    Installed,
    /// A view is about to be loaded.
    Viewing,
    /// A reader holds a view and is about to load the visible frontier.
    Pinned,
    /// A view's number is current, the view itself cannot be seen yet.
    Publishing,
}

#[cfg(not(feature = "simulation"))]
#[inline(always)]
pub(crate) fn yield_point(_point: Point) {}

#[cfg(feature = "simulation")]
pub(crate) fn yield_point(point: Point) {
    if let Some(hooks) = super::simulation::task_hooks() {
        (hooks.point)(point);
    }
}

/// Another thread may go first here.
#[cfg(not(feature = "simulation"))]
#[inline(always)]
pub(crate) fn preempt() {}

#[cfg(feature = "simulation")]
pub(crate) use super::simulation::{preempt, without_preemption};

/// Runs `body`, which takes locks that no simulator knows.
#[cfg(not(feature = "simulation"))]
#[inline(always)]
pub(crate) fn without_preemption<T>(body: impl FnOnce() -> T) -> T {
    body()
}
