//! What the engine reports to other libraries: events through `tracing`, figures through `metrics`.
//! Each is a feature of the crate. The engine installs neither a subscriber nor a recorder; without
//! them the cost is close to nothing. Reads and writes never pay: a background thread hands the
//! figures over once a second, from [`Metrics`].

use crate::events::Event;
use crate::metrics::Metrics;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs the program's own code: a subscriber, a recorder, a listener or another callback. Other
/// threads may wait for the work that the engine is in the middle of, so a panic of that code is
/// caught here.
pub(crate) fn call_out(body: impl FnOnce()) {
    // The panic hook has already reported it.
    if let Err(panic) = catch_unwind(AssertUnwindSafe(body)) {
        // The program may have panicked with a value whose drop panics as well.
        let dropped = catch_unwind(AssertUnwindSafe(|| drop(panic)));
        dropped.unwrap_or_else(std::mem::forget);
    }
}

/// Does nothing in a build without the feature `tracing`.
#[cfg(not(feature = "tracing"))]
pub(crate) fn trace(_event: &Event) {}

/// Emits an event.
#[cfg(feature = "tracing")]
pub(crate) fn trace(event: &Event) {
    match event {
        Event::RecoveryProgress { done_bytes, total_bytes } => {
            tracing::debug!(target: "isobath", done_bytes, total_bytes, "recovering");
        }
        Event::LogModeChosen { mode, file_system } => {
            tracing::info!(target: "isobath", ?mode, file_system, "opened the log");
        }
        Event::LogTailDiscarded { end, discarded_bytes } => {
            tracing::warn!(target: "isobath", end, discarded_bytes, "the log ended in an unfinished tail");
        }
        Event::ManifestTailDiscarded { path, offset, discarded_bytes } => {
            tracing::warn!(
                target: "isobath",
                path = %path.display(),
                offset,
                discarded_bytes,
                "the manifest ended in an unfinished edit"
            );
        }
        Event::Flushed { file, families, bytes, took_us } => {
            tracing::info!(target: "isobath", file, families, bytes, took_us, "flushed");
        }
        Event::Compacted {
            family,
            reason,
            into_level,
            read_entries,
            written_entries,
            removed_entries,
            replaced_entries,
            read_bytes,
            written_bytes,
            took_us,
        } => {
            tracing::info!(
                target: "isobath",
                family,
                reason = reason.name(),
                into_level,
                read_entries,
                written_entries,
                removed_entries,
                replaced_entries,
                read_bytes,
                written_bytes,
                took_us,
                "compacted"
            );
        }
        Event::FilterMissing { .. } | Event::FilterFailed { .. } => trace_filter(event),
        Event::SubcompactionDone { family, job, parts, took_us } => {
            tracing::debug!(target: "isobath", family, job, parts, took_us, "compacted parts");
        }
        Event::TriviallyMoved { family, from_level, into_level } => {
            tracing::debug!(target: "isobath", family, from_level, into_level, "moved");
        }
        Event::Dropped { family, reason, slices, entries, bytes } => {
            let reason = reason.name();
            tracing::info!(target: "isobath", family, reason, slices, entries, bytes, "dropped");
        }
        Event::FileRemoved { path } => {
            tracing::debug!(target: "isobath", path = %path.display(), "removed");
        }
        Event::BackgroundError { job, error } => {
            tracing::error!(target: "isobath", job = job.name(), %error, "a background job failed");
        }
    }
}

/// Emits an event of a compaction filter.
#[cfg(feature = "tracing")]
fn trace_filter(event: &Event) {
    match event {
        Event::FilterMissing { family, filter } => {
            tracing::warn!(target: "isobath", family, filter, "a compaction filter is missing");
        }
        Event::FilterFailed { family, filter, key, failure } => {
            tracing::warn!(
                target: "isobath",
                family,
                filter,
                ?key,
                %failure,
                "a compaction filter gave no verdict"
            );
        }
        _ => unreachable!("the caller passes events of filters"),
    }
}

/// Does nothing in a build without the feature `metrics`.
#[cfg(not(feature = "metrics"))]
pub(crate) fn record(_path: &str, _figures: &Metrics) {}

/// Hands the figures of the database at `path` to the `metrics` recorder.
#[cfg(feature = "metrics")]
pub(crate) fn record(path: &str, figures: &Metrics) {
    let counters = [
        ("isobath_log_bytes", figures.log_bytes),
        ("isobath_log_syncs", figures.log_syncs),
        ("isobath_flushes", figures.flushes),
        ("isobath_flush_bytes", figures.flush_bytes),
        ("isobath_compactions", figures.compactions),
        ("isobath_compaction_read_bytes", figures.compaction_read_bytes),
        ("isobath_compaction_written_bytes", figures.compaction_written_bytes),
        ("isobath_cache_hits", figures.cache_hits),
        ("isobath_cache_misses", figures.cache_misses),
        ("isobath_transactions_begun", figures.transactions_begun),
        ("isobath_transactions_committed", figures.transactions_committed),
        ("isobath_transactions_prepared", figures.transactions_prepared),
        ("isobath_prepared_committed", figures.prepared_committed),
        ("isobath_prepared_rolled_back", figures.prepared_rolled_back),
        ("isobath_conflicts_read", figures.conflicts_read),
        ("isobath_conflicts_write", figures.conflicts_write),
        ("isobath_conflicts_range", figures.conflicts_range),
        ("isobath_transactions_timed_out", figures.transactions_timed_out),
        ("isobath_transactions_idled_out", figures.transactions_idled_out),
        ("isobath_transactions_aborted", figures.transactions_aborted),
        ("isobath_lock_waits", figures.lock_waits),
        ("isobath_lock_wait_ns", figures.lock_wait_ns),
        ("isobath_lock_timeouts", figures.lock_timeouts),
        ("isobath_deadlocks", figures.deadlocks),
    ];
    for (name, value) in counters {
        metrics::counter!(name, "db" => path.to_owned()).absolute(value);
    }
    let gauges = [
        ("isobath_memtable_bytes", figures.memtable_bytes),
        ("isobath_memtable_reserved_bytes", figures.memtable_reserved_bytes),
        ("isobath_immutable_memtables", figures.immutable_memtables),
        ("isobath_cache_bytes", figures.cache_bytes),
        ("isobath_filter_index_bytes", figures.filter_index_bytes),
        ("isobath_table_bytes", figures.table_bytes()),
        ("isobath_level0_runs", figures.level0_runs()),
        ("isobath_snapshots", figures.snapshots),
        ("isobath_oldest_read_point_lag", figures.oldest_read_point_lag),
        ("isobath_transactions_in_doubt", figures.transactions_in_doubt),
        ("isobath_transaction_bytes", figures.transaction_bytes),
    ];
    for (name, value) in gauges {
        metrics::gauge!(name, "db" => path.to_owned()).set(value as f64);
    }
    for stall in &figures.stalls {
        let cause = [("db", path.to_owned()), ("cause", stall.cause.name().to_owned())];
        metrics::counter!("isobath_stall_ns", &cause).absolute(stall.total_ns);
        metrics::counter!("isobath_stalls", &cause).absolute(stall.count);
    }
}
