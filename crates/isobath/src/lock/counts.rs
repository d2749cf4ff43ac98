//! How often and how long locks were waited for.

use crate::env::sync::atomic::{AtomicU64, Ordering};

/// What happened at locks since the database was opened.
#[derive(Debug, Default)]
pub(crate) struct LockCounts {
    pub(crate) waits: AtomicU64,
    pub(crate) waited_ns: AtomicU64,
    pub(crate) waited_ns_max: AtomicU64,
    pub(crate) timeouts: AtomicU64,
    pub(crate) deadlocks: AtomicU64,
}

impl LockCounts {
    /// Counts a wait that has ended, and the deadlocks that were found as it began.
    pub(super) fn note(&self, waited_ns: u64, deadlocks: u64, is_timeout: bool) {
        self.waits.fetch_add(1, Ordering::Relaxed);
        self.waited_ns.fetch_add(waited_ns, Ordering::Relaxed);
        self.waited_ns_max.fetch_max(waited_ns, Ordering::Relaxed);
        self.deadlocks.fetch_add(deadlocks, Ordering::Relaxed);
        self.timeouts.fetch_add(u64::from(is_timeout), Ordering::Relaxed);
    }
}
