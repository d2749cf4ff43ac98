//! Reads the figures of an open database into [`Metrics`]. It reads the parts one after the other,
//! so the figures are not of one single moment.

use crate::blob::live_bytes;
use crate::compact::debt_bytes;
use crate::engine::{Engine, Keyspace, PACED};
use crate::env::sync::atomic::Ordering;
use crate::error::StallCause;
use crate::format::{FamilyId, Lsn};
use crate::metrics::{FamilyMetrics, LevelMetrics, Metrics, StallMetrics};
use crate::version::{LiveFile, Slice, TableUse, Tree};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

impl Metrics {
    pub(crate) fn collect(engine: &Engine) -> Metrics {
        let (log, list, trees) = (engine.log.stats(), engine.epochs.list(), trees(engine));
        let (pool, gauges) = (engine.epochs.pool().stats(), &engine.gauges);
        let ((held, oldest), io_limit) = (engine.points.held(), engine.io_limit.figures());
        Metrics {
            log_mode: log.mode.into(),
            log_bytes: log.bytes,
            log_syncs: log.sync.syncs,
            log_sync_waits: log.sync.waiters,
            log_segments_created: log.segments_created,
            log_segments_recycled: log.segments_recycled,
            log_bytes_not_prefaulted: log.bytes_not_prefaulted,
            memtable_bytes: memtable_bytes(engine),
            memtable_reserved_bytes: pool.held_bytes as u64,
            arena_chunks: pool.handed_out,
            arena_chunks_cold: pool.handed_out_cold,
            immutable_memtables: list.sealed.len() as u64,
            flushes: gauges.flushes.get(),
            flush_bytes: gauges.flush_bytes.get(),
            flush_ns: gauges.flush_ns.get(),
            compactions: gauges.compactions.get(),
            trivial_moves: gauges.trivial_moves.get(),
            compaction_read_bytes: gauges.compaction_read_bytes.get(),
            compaction_written_bytes: gauges.compaction_written_bytes.get(),
            compaction_ns: gauges.compaction_ns.get(),
            io_limited_bytes: io_limit.0,
            io_limit_wait_ns: io_limit.1,
            recovered_records: gauges.recovered_records.get(),
            recovered_bytes: gauges.recovered_bytes.get(),
            cache_hits: engine.tables.blocks.hits(),
            cache_misses: engine.tables.blocks.misses(),
            cache_bytes: engine.tables.blocks.used_bytes(),
            filter_index_bytes: engine.tables.blocks.filter_index_bytes(),
            snapshots: held as u64,
            oldest_read_point_lag: oldest.map_or(0, |at| engine.newest_point().saturating_sub(at)),
            oldest_read_point_age_ms: oldest.map_or(0, |at| age_ms(engine, at)),
            transaction_bytes: transaction_bytes(engine),
            transactions_begun: gauges.transactions_begun.get(),
            transactions_committed: gauges.transactions_committed.get(),
            transactions_rolled_back: gauges.transactions_rolled_back.get(),
            transactions_prepared: gauges.transactions_prepared.get(),
            prepared_committed: gauges.prepared_committed.get(),
            prepared_rolled_back: gauges.prepared_rolled_back.get(),
            transactions_in_doubt: in_doubt_of(engine),
            transactions_timed_out: gauges.transactions_timed_out.get(),
            transactions_idled_out: gauges.transactions_idled_out.get(),
            transactions_aborted: gauges.transactions_aborted.get(),
            conflicts_read: gauges.conflicts_read.get(),
            conflicts_write: gauges.conflicts_write.get(),
            conflicts_range: gauges.conflicts_range.get(),
            conflicts_expired: gauges.conflicts_expired.get(),
            conflicts_reserved: gauges.conflicts_reserved.get(),
            log_bytes_skipped: gauges.reserved_bytes_skipped.get(),
            validation_waits: gauges.validation_waits.get(),
            probes: gauges.probes.get(),
            probes_cleared: gauges.probes_cleared.get(),
            escalations: gauges.escalations.get(),
            gaps_found: gauges.gaps_found.get(),
            gaps_cut: gauges.gaps_cut.get(),
            lock_waits: engine.locks.counts().waits.load(Ordering::Relaxed),
            lock_wait_ns: engine.locks.counts().waited_ns.load(Ordering::Relaxed),
            lock_wait_ns_max: engine.locks.counts().waited_ns_max.load(Ordering::Relaxed),
            lock_timeouts: engine.locks.counts().timeouts.load(Ordering::Relaxed),
            deadlocks: engine.locks.counts().deadlocks.load(Ordering::Relaxed),
            gate_openings: engine.conflicts.gate.openings(),
            stalls: stalls(engine),
            families: families(engine, &trees),
            ..of_drops(engine, &trees)
        }
    }
}

/// A family, and its tree at one moment.
type TreeOf = (Arc<Keyspace>, Arc<Tree>);

/// The trees that all figures of one call are of: what some of them share is a part of their sum.
fn trees(engine: &Engine) -> Vec<TreeOf> {
    let of = |family: Arc<Keyspace>| {
        let tree = family.view().tree.clone();
        (family, tree)
    };
    engine.families.all().into_iter().map(of).collect()
}

fn memtable_bytes(engine: &Engine) -> u64 {
    let list = engine.epochs.list();
    list.open.bytes()
        + list.sealed.iter().map(|epoch| epoch.bytes()).sum::<u64>()
        + engine.shown.as_ref().map_or(0, |shown| shown.memory_bytes())
}

/// The memory below the ceiling, and what left the trees other than by being overwritten or
/// deleted.
fn of_drops(engine: &Engine, trees: &[TreeOf]) -> Metrics {
    let gauges = &engine.gauges;
    Metrics {
        memory: engine.ceiling.metrics(),
        slices_dropped: gauges.slices_dropped.get(),
        dropped_bytes: gauges.dropped_bytes.get(),
        filter_kept: gauges.filter_kept.get(),
        filter_removed: gauges.filter_removed.get(),
        filter_replaced: gauges.filter_replaced.get(),
        filter_failures: gauges.filter_failures.get(),
        filter_held_views: trees.iter().map(|(family, _)| family.held_views() as u64).sum(),
        ..of_blobs(engine, trees)
    }
}

/// What lies in blob files, and what was read of it.
fn of_blobs(engine: &Engine, trees: &[TreeOf]) -> Metrics {
    let fetched = &engine.gauges.fetched;
    let with_blobs = || trees.iter().filter(|(_, tree)| tree.has_blobs());
    let slices = with_blobs().flat_map(|(_, tree)| tree.iter());
    let files = slices.flat_map(|(_, slice)| &slice.blobs).map(|file| (file.number(), file));
    let files: BTreeMap<u64, &Arc<LiveFile>> = files.collect();
    let of_file = |number| Ok(engine.tables.files.get_blob(number)?.len());
    let bytes = |(&number, file): (&u64, &&Arc<LiveFile>)| file.len_or(|| of_file(number)).ok();
    let with_streams = trees.iter().filter(|(_, tree)| tree.has_streams());
    let slices = with_streams.flat_map(|(_, tree)| tree.iter());
    let streams = slices.flat_map(|(_, slice)| &slice.meta.streams);
    let mut streams: BTreeMap<u64, u64> = streams.map(|share| (share.file, share.len)).collect();
    let list = engine.epochs.list();
    for file in list.sealed.iter().chain([&list.open]).flat_map(|epoch| epoch.streams()) {
        streams
            .entry(file.number())
            .or_insert_with(|| bytes((&file.number(), &&file)).unwrap_or(0));
    }
    let live = live_bytes(with_blobs().map(|(family, tree)| (family.root, &**tree)));
    Metrics {
        blob_files: files.len() as u64,
        blob_bytes: files.iter().filter_map(bytes).sum(),
        blob_live_bytes: live.values().map(|live| live.bytes).sum(),
        streams: streams.len() as u64,
        stream_bytes: streams.values().sum(),
        shared_bytes: shared_bytes(trees),
        table_dead_bytes: engine.tables_in_use(trees).iter().map(TableUse::dead).sum(),
        values_fetched: fetched.values(),
        value_reads: fetched.reads(),
        value_read_bytes: fetched.read_bytes(),
        ..Metrics::default()
    }
}

/// The bytes of tables that more than one family has, without one time each.
fn shared_bytes(trees: &[TreeOf]) -> u64 {
    let mut related: BTreeMap<FamilyId, Vec<&Tree>> = BTreeMap::new();
    trees.iter().for_each(|(family, tree)| related.entry(family.root).or_default().push(tree));
    let mut bytes = 0;
    for related in related.values().filter(|related| related.len() > 1) {
        let mut seen = BTreeSet::new();
        for tree in related {
            for (_, slice) in tree.iter() {
                if !seen.insert((slice.meta.family, slice.meta.file)) {
                    bytes += slice.meta.disk_bytes;
                }
            }
        }
    }
    bytes
}

/// The most runs that may hold one key. Where most of them meet, one of them begins.
fn runs_at_once(runs: &[Arc<Slice>]) -> u64 {
    let at = |key: &[u8]| runs.iter().filter(|run| run.meta.may_hold(key)).count() as u64;
    runs.iter().map(|run| at(run.extent().start)).max().unwrap_or(0)
}

fn in_doubt_of(engine: &Engine) -> u64 {
    let in_doubt = match &engine.shown {
        Some(shown) => shown.in_doubt().len(),
        None => engine.prepared.in_doubt().len(),
    };
    in_doubt as u64
}

/// For how long there have been commits behind a point.
fn age_ms(engine: &Engine, point: Lsn) -> u64 {
    engine.point_times.passed_ns(point, engine.options.env.clock.now_ns()) / 1_000_000
}

fn transaction_bytes(engine: &Engine) -> u64 {
    engine.running.list().iter().map(|entry| entry.owner.bytes()).sum()
}

fn stalls(engine: &Engine) -> Vec<StallMetrics> {
    let gauges = PACED.iter().zip(engine.pacer.stalls());
    let room = engine.log.stats().room_waits;
    let room = StallMetrics {
        cause: StallCause::LogFull,
        count: room.count,
        total_ns: room.total_ns,
        max_ns: room.max_ns,
    };
    gauges
        .map(|(cause, gauge)| StallMetrics {
            cause: *cause,
            count: gauge.count.load(Ordering::Relaxed),
            total_ns: gauge.total_ns.load(Ordering::Relaxed),
            max_ns: gauge.max_ns.load(Ordering::Relaxed),
        })
        .chain([room])
        .collect()
}

fn families(engine: &Engine, trees: &[TreeOf]) -> Vec<FamilyMetrics> {
    let unix_ms = engine.clock_ms();
    let describe = |(family, tree): &TreeOf| {
        let pending_compaction_bytes = debt_bytes(engine, family);
        let level = |level: usize| {
            let mut total = LevelMetrics::default();
            for slice in tree.slices(level) {
                total.slices += 1;
                total.disk_bytes += slice.meta.disk_bytes;
                total.raw_bytes += slice.meta.raw_bytes;
                total.entries += slice.meta.entries;
                total.deletes += slice.meta.deletes;
                for share in &slice.meta.blobs {
                    total.separated_values += share.values;
                    total.separated_bytes += share.bytes;
                }
                let spans = slice.meta.spans.as_ref();
                total.range_deletes += spans.map_or(0, |spans| spans.fragments);
                let oldest = slice.meta.oldest_delete;
                let age_ms = oldest.and_then(|oldest| oldest.age_ms(unix_ms));
                total.oldest_delete_age_ms = total.oldest_delete_age_ms.max(age_ms);
            }
            total.read_amplification = match level {
                0 => runs_at_once(&tree.runs),
                _ => u64::from(total.slices > 0),
            };
            total
        };
        let levels = (0..tree.level_count()).map(level).collect();
        FamilyMetrics {
            id: family.id,
            name: family.name().to_string(),
            levels,
            pending_compaction_bytes,
            compactions: family.compactions.state.lock().done.clone(),
        }
    };
    trees.iter().map(describe).collect()
}
