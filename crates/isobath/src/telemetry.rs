//! What the engine reports to other libraries: events through `tracing`, figures through `metrics`.
//! Each is a feature of the crate. The engine installs neither a subscriber nor a recorder; without
//! them the cost is close to nothing. Reads and writes never pay: a background thread hands the
//! figures over once a second, from [`Metrics`].

use crate::events::Event;
#[cfg(feature = "metrics")]
use crate::metrics::FamilyMetrics;
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
        Event::Compacted { .. } => trace_compacted(event),
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
        Event::ClockLeapt { ahead_us } => {
            tracing::warn!(target: "isobath", ahead_us, "the wall clock has leapt ahead");
        }
        Event::BackgroundError { job, error } => {
            tracing::error!(target: "isobath", job = job.name(), %error, "a background job failed");
        }
    }
}

/// Emits the event of a compaction.
#[cfg(feature = "tracing")]
fn trace_compacted(event: &Event) {
    match event {
        Event::Compacted {
            family,
            reason,
            into_level,
            read_entries,
            written_entries,
            read_deletes,
            written_deletes,
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
                read_deletes,
                written_deletes,
                removed_entries,
                replaced_entries,
                read_bytes,
                written_bytes,
                took_us,
                "compacted"
            );
        }
        _ => unreachable!("the caller passes events of compactions"),
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

/// False without the feature `metrics`.
#[cfg(not(feature = "metrics"))]
pub(crate) fn has_recorder() -> bool {
    false
}

/// True if the program has installed a `metrics` recorder. The crate does not say so, but its own
/// recorder, which does nothing, is a static without fields. A recorder of the program without
/// fields is boxed, and a box of nothing lies nowhere.
#[cfg(feature = "metrics")]
pub(crate) fn has_recorder() -> bool {
    metrics::with_recorder(|recorder| {
        let dangling = std::ptr::without_provenance::<()>(align_of_val(recorder));
        size_of_val(recorder) > 0 || std::ptr::from_ref(recorder).cast::<()>() == dangling
    })
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
        ("isobath_values_fetched", figures.values_fetched),
        ("isobath_value_reads", figures.value_reads),
        ("isobath_value_read_bytes", figures.value_read_bytes),
        ("isobath_transactions_begun", figures.transactions_begun),
        ("isobath_transactions_committed", figures.transactions_committed),
        ("isobath_transactions_prepared", figures.transactions_prepared),
        ("isobath_prepared_committed", figures.prepared_committed),
        ("isobath_prepared_rolled_back", figures.prepared_rolled_back),
        ("isobath_conflicts_read", figures.conflicts_read),
        ("isobath_conflicts_write", figures.conflicts_write),
        ("isobath_conflicts_range", figures.conflicts_range),
        ("isobath_conflicts_expired", figures.conflicts_expired),
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
        ("isobath_memory_ceiling_bytes", figures.memory.map_or(0, |memory| memory.ceiling)),
        ("isobath_memory_held_bytes", figures.memory.map_or(0, |memory| memory.held)),
        ("isobath_table_bytes", figures.table_bytes()),
        ("isobath_shared_bytes", figures.shared_bytes),
        ("isobath_table_dead_bytes", figures.table_dead_bytes),
        ("isobath_blob_files", figures.blob_files),
        ("isobath_blob_bytes", figures.blob_bytes),
        ("isobath_blob_live_bytes", figures.blob_live_bytes),
        ("isobath_streams", figures.streams),
        ("isobath_stream_bytes", figures.stream_bytes),
        ("isobath_level0_runs", figures.level0_runs()),
        ("isobath_snapshots", figures.snapshots),
        ("isobath_oldest_read_point_lag", figures.oldest_read_point_lag),
        ("isobath_oldest_read_point_age_ms", figures.oldest_read_point_age_ms),
        ("isobath_transactions_in_doubt", figures.transactions_in_doubt),
        ("isobath_transaction_bytes", figures.transaction_bytes),
    ];
    for (name, value) in gauges {
        metrics::gauge!(name, "db" => path.to_owned()).set(value as f64);
    }
    figures.families.iter().for_each(|family| record_family(path, family));
    for stall in &figures.stalls {
        let cause = [("db", path.to_owned()), ("cause", stall.cause.name().to_owned())];
        metrics::counter!("isobath_stall_ns", &cause).absolute(stall.total_ns);
        metrics::counter!("isobath_stalls", &cause).absolute(stall.count);
    }
}

/// Hands over the figures of a family.
#[cfg(feature = "metrics")]
fn record_family(path: &str, family: &FamilyMetrics) {
    let of = [("db", path.to_owned()), ("family", family.name.clone())];
    let total = family.total();
    metrics::gauge!("isobath_family_entries", &of).set(total.entries as f64);
    metrics::gauge!("isobath_family_delete_share", &of).set(total.delete_share());
    let age_s = total.oldest_delete_age_ms.unwrap_or(0) as f64 / 1000.0;
    metrics::gauge!("isobath_family_oldest_delete_age_seconds", &of).set(age_s);
    for (depth, level) in family.levels.iter().enumerate() {
        let [db, name] = of.clone();
        let of = [db, name, ("level", depth.to_string())];
        let runs = level.read_amplification;
        metrics::gauge!("isobath_level_read_amplification", &of).set(runs as f64);
        metrics::gauge!("isobath_level_bytes", &of).set(level.disk_bytes as f64);
        metrics::gauge!("isobath_level_entries", &of).set(level.entries as f64);
        metrics::gauge!("isobath_level_deletes", &of).set(level.deletes as f64);
    }
    for done in &family.compactions {
        let [db, name] = of.clone();
        let (reason, level) = (done.reason.name().to_owned(), done.into_level.to_string());
        let of = [db, name, ("reason", reason), ("level", level)];
        metrics::counter!("isobath_level_compactions", &of).absolute(done.count);
        metrics::counter!("isobath_level_read_bytes", &of).absolute(done.read_bytes);
        metrics::counter!("isobath_level_written_bytes", &of).absolute(done.written_bytes);
        let dropped = done.read_deletes.saturating_sub(done.written_deletes);
        metrics::counter!("isobath_level_deletes_dropped", &of).absolute(dropped);
    }
}
