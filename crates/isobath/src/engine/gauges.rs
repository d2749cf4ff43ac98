//! Counters of the background work and of the transactions of an open database. They are only shown
//! to people, so relaxed atomics are enough.

use crate::blob::FetchCounts;
use crate::env::sync::atomic::{AtomicU64, Ordering};
use crate::error::AbortReason;

/// A count that only grows.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    #[inline]
    pub(crate) fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What flushes, compactions and recovery have done since open.
#[derive(Debug, Default)]
pub(crate) struct Gauges {
    pub(crate) flushes: Counter,
    pub(crate) flush_bytes: Counter,
    pub(crate) flush_ns: Counter,
    pub(crate) compactions: Counter,
    pub(crate) trivial_moves: Counter,
    pub(crate) slices_dropped: Counter,
    pub(crate) dropped_bytes: Counter,
    pub(crate) compaction_read_bytes: Counter,
    pub(crate) compaction_written_bytes: Counter,
    pub(crate) compaction_ns: Counter,
    pub(crate) filter_kept: Counter,
    pub(crate) filter_removed: Counter,
    pub(crate) filter_replaced: Counter,
    pub(crate) filter_failures: Counter,
    pub(crate) recovered_records: Counter,
    pub(crate) recovered_bytes: Counter,
    pub(crate) transactions_begun: Counter,
    pub(crate) transactions_committed: Counter,
    pub(crate) transactions_rolled_back: Counter,
    pub(crate) transactions_prepared: Counter,
    pub(crate) prepared_committed: Counter,
    pub(crate) prepared_rolled_back: Counter,
    pub(crate) conflicts_read: Counter,
    pub(crate) conflicts_write: Counter,
    pub(crate) conflicts_range: Counter,
    pub(crate) conflicts_expired: Counter,
    pub(crate) conflicts_reserved: Counter,
    pub(crate) reserved_bytes_skipped: Counter,
    pub(crate) validation_waits: Counter,
    pub(crate) probes: Counter,
    pub(crate) probes_cleared: Counter,
    pub(crate) escalations: Counter,
    pub(crate) gaps_found: Counter,
    pub(crate) gaps_cut: Counter,
    pub(crate) transactions_timed_out: Counter,
    pub(crate) transactions_idled_out: Counter,
    pub(crate) transactions_aborted: Counter,
    /// What readers have fetched from blob files.
    pub(crate) fetched: FetchCounts,
}

impl Gauges {
    pub(crate) fn note_abort(&self, reason: AbortReason) {
        let counter = match reason {
            AbortReason::Timeout => &self.transactions_timed_out,
            AbortReason::Idle => &self.transactions_idled_out,
            AbortReason::Asked => &self.transactions_aborted,
        };
        counter.add(1);
    }
}
