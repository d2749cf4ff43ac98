//! Places where a simulator may let another thread run: labelled points, and every other access to
//! shared data.
//!
//! Locks and atomics are such places by themselves (`sync`). The engine calls [`preempt`] where
//! threads share something of another crate (a view behind an `ArcSwap`, a block in a cache), or
//! where one would otherwise run for long.

/// A moment between two steps of a protocol whose interleavings matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Point {
    /// A commit has reserved its LSNs; nothing is copied yet.
    Reserved,
    /// The record is in the log and not yet in a memtable.
    Copied,
    /// The operations are in their memtables and not yet visible.
    Applied,
    /// The commit has marked itself finished; an earlier commit may still hold the frontier back.
    Published,
    /// An epoch is marked as closing; its marker is not reserved yet.
    Sealing,
    /// An epoch's boundary is published.
    Sealed,
    /// The output of a job exists; its edit is not written yet.
    Built,
    /// An edit is durable in the manifest; the version in memory is not replaced yet.
    Installed,
    /// A view is about to be loaded.
    Viewing,
    /// A reader holds a view and is about to load the visible frontier.
    Pinned,
    /// A reader has loaded its point and is about to register it.
    Registering,
    /// The points in use are listed; nothing is decided by them yet.
    Listed,
    /// A view's number is current; the view itself is not visible yet.
    Publishing,
    /// A transaction has its read point.
    Begun,
    /// A commit that has something to validate has entered the gate.
    Entered,
    /// It has looked at what it tracks; nothing is announced yet.
    Looked,
    /// A transaction has locked a key; announcements from before are not waited for yet.
    Locked,
    /// A commit has announced what it writes; its LSN is not reserved yet.
    Announced,
    /// A commit has its LSN, and what it tracks is unchanged; nothing is stamped yet.
    Validated,
    /// A commit has stamped what it writes; its record is not in the log yet.
    Stamped,
    /// What a large commit has in files is in the views of a family; it is not visible yet.
    Laid,
    /// The record of a prepared transaction is durable; its caller does not know yet.
    Prepared,
    /// A prepared transaction has its decision; the record is not in the log yet.
    Decided,
}

#[cfg(not(feature = "simulation"))]
#[inline(always)]
pub(crate) fn yield_point(_point: Point) {}

#[cfg(feature = "simulation")]
pub(crate) fn yield_point(point: Point) {
    match (super::simulation::task_hooks(), super::simulation::company()) {
        (Some(hooks), _) => (hooks.point)(point),
        (None, Some(company)) => (company.point)(point),
        (None, None) => {}
    }
}

/// The calling thread has reserved a record of the log that ends at `end`. A simulator that is told
/// need not guess where a commit is that never returned. An internal record is no commit.
#[cfg(not(feature = "simulation"))]
#[inline(always)]
pub(crate) fn note_reserved(_end: u64, _is_internal: bool) {}

#[cfg(feature = "simulation")]
pub(crate) fn note_reserved(end: u64, is_internal: bool) {
    if is_internal {
        return;
    }
    match (super::simulation::task_hooks(), super::simulation::company()) {
        (Some(hooks), _) => (hooks.reserved)(end),
        (None, Some(company)) => (company.reserved)(end),
        (None, None) => {}
    }
}

/// Another thread may run here.
#[cfg(not(feature = "simulation"))]
#[inline(always)]
pub(crate) fn preempt() {}

#[cfg(feature = "simulation")]
pub(crate) use super::simulation::{preempt, without_preemption};

/// Runs `body`, which takes locks that the simulator does not know.
#[cfg(not(feature = "simulation"))]
#[inline(always)]
pub(crate) fn without_preemption<T>(body: impl FnOnce() -> T) -> T {
    body()
}
