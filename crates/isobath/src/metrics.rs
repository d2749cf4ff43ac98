//! All counters of an open database as one struct. Counts are since open unless they say otherwise.

use crate::components::sync::atomic::Ordering;
use crate::engine::{Engine, StallCause};
use crate::vfs::ReadMode;
use serde::Serialize;

/// What an open database has done and holds.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Metrics {
    /// How the log is written.
    pub log_mode: ReadMode,
    /// Bytes that commits took in the log.
    pub log_bytes: u64,
    /// Log syncs done, and commits that waited for one.
    pub log_syncs: u64,
    /// Waits for a log sync.
    pub log_sync_waits: u64,
    /// Log segments created, and taken again after use.
    pub log_segments_created: u64,
    /// Log segments used again.
    pub log_segments_recycled: u64,
    /// Bytes copied into log pages that were not faulted in ahead of time.
    pub log_bytes_not_prefaulted: u64,
    /// Bytes of memtables: being written and waiting for flush.
    pub memtable_bytes: u64,
    /// Bytes of memory held for memtables, idle chunks included.
    pub arena_held_bytes: u64,
    /// Chunks of memory that writers took, and those that were not warm.
    pub arena_chunks: u64,
    /// Chunks whose pages had not been touched before.
    pub arena_chunks_cold: u64,
    /// Epochs that wait for flush now.
    pub epochs_sealed: u64,
    /// Flushes done.
    pub flushes: u64,
    /// Bytes they wrote.
    pub flush_bytes: u64,
    /// Time they took, in nanoseconds.
    pub flush_ns: u64,
    /// Merges done.
    pub compactions: u64,
    /// Slices moved between levels without being rewritten.
    pub moves: u64,
    /// Bytes that merges read.
    pub compaction_read_bytes: u64,
    /// Bytes that merges wrote.
    pub compaction_written_bytes: u64,
    /// Time they took, in nanoseconds.
    pub compaction_ns: u64,
    /// Log records replayed at open, and their bytes.
    pub recovered_records: u64,
    /// Bytes of log replayed at open.
    pub recovered_bytes: u64,
    /// Block cache: hits, misses, bytes of blocks, bytes of filters and index tops beside it.
    pub cache_hits: u64,
    /// Blocks that had to be read.
    pub cache_misses: u64,
    /// Bytes of cached blocks.
    pub cache_bytes: u64,
    /// Bytes of resident filters and index tops.
    pub resident_bytes: u64,
    /// Snapshots held now.
    pub snapshots: u64,
    /// Waits of writers, by cause.
    pub stalls: Vec<StallMetrics>,
    /// The families, by ascending id.
    pub families: Vec<FamilyMetrics>,
}

/// Waits of writers for one cause.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct StallMetrics {
    /// Why.
    pub cause: &'static str,
    /// How often.
    pub count: u64,
    /// How long together, in nanoseconds.
    pub total_ns: u64,
    /// The longest, in nanoseconds.
    pub max_ns: u64,
}

/// The tree of a family.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct FamilyMetrics {
    /// Its id.
    pub id: u32,
    /// Its name.
    pub name: String,
    /// Its levels, level 0 first.
    pub levels: Vec<LevelMetrics>,
    /// Bytes that merges have still to read to bring all of it where it belongs: an estimate.
    pub merge_debt_bytes: u64,
}

/// A level of a tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct LevelMetrics {
    /// Slices: in level 0 each is a run.
    pub slices: u64,
    /// Bytes on disk.
    pub disk_bytes: u64,
    /// Bytes of keys and values before compression.
    pub raw_bytes: u64,
    /// Versions, deletes included.
    pub entries: u64,
    /// Deletes.
    pub deletes: u64,
}

impl Metrics {
    /// Bytes written to the device for each byte committed: log, flushes and merges, over the log's bytes.
    pub fn write_amplification(&self) -> f64 {
        let written = self.log_bytes + self.flush_bytes + self.compaction_written_bytes;
        written as f64 / self.log_bytes.max(1) as f64
    }

    /// Bytes of all tables on disk.
    pub fn table_bytes(&self) -> u64 {
        self.families.iter().flat_map(|family| &family.levels).map(|level| level.disk_bytes).sum()
    }

    /// Bytes that merges have still to read, over all families: an estimate.
    pub fn merge_debt_bytes(&self) -> u64 {
        self.families.iter().map(|family| family.merge_debt_bytes).sum()
    }

    /// Runs in the fullest level 0.
    pub fn level_zero_runs(&self) -> u64 {
        let runs = |family: &FamilyMetrics| family.levels.first().map_or(0, |level| level.slices);
        self.families.iter().map(runs).max().unwrap_or(0)
    }

    pub(crate) fn collect(engine: &Engine) -> Metrics {
        let (log, pool, gauges) =
            (engine.log.stats(), engine.epochs.pool().stats(), &engine.gauges);
        let list = engine.epochs.list();
        let blocks = &engine.tables.blocks;
        Metrics {
            log_mode: log.mode,
            log_bytes: log.bytes,
            log_syncs: log.sync.syncs,
            log_sync_waits: log.sync.waiters,
            log_segments_created: log.segments_created,
            log_segments_recycled: log.segments_recycled,
            log_bytes_not_prefaulted: log.bytes_not_prefaulted,
            memtable_bytes: list.open.bytes()
                + list.sealed.iter().map(|epoch| epoch.bytes()).sum::<u64>(),
            arena_held_bytes: pool.held_bytes as u64,
            arena_chunks: pool.handed_out,
            arena_chunks_cold: pool.handed_out_cold,
            epochs_sealed: list.sealed.len() as u64,
            flushes: gauges.flushes.get(),
            flush_bytes: gauges.flush_bytes.get(),
            flush_ns: gauges.flush_ns.get(),
            compactions: gauges.compactions.get(),
            moves: gauges.moves.get(),
            compaction_read_bytes: gauges.compaction_read_bytes.get(),
            compaction_written_bytes: gauges.compaction_written_bytes.get(),
            compaction_ns: gauges.compaction_ns.get(),
            recovered_records: gauges.recovered_records.get(),
            recovered_bytes: gauges.recovered_bytes.get(),
            cache_hits: blocks.hits(),
            cache_misses: blocks.misses(),
            cache_bytes: blocks.used_bytes(),
            resident_bytes: blocks.resident_bytes(),
            snapshots: engine.snapshots.held().0 as u64,
            stalls: stalls(engine),
            families: families(engine),
        }
    }
}

fn stalls(engine: &Engine) -> Vec<StallMetrics> {
    let gauges = StallCause::ALL.iter().zip(engine.pacer.stalls());
    let room = engine.log.stats().room_waits;
    let room = StallMetrics {
        cause: "the log has no room",
        count: room.count,
        total_ns: room.total_ns,
        max_ns: room.max_ns,
    };
    gauges
        .map(|(cause, gauge)| StallMetrics {
            cause: cause.name(),
            count: gauge.count.load(Ordering::Relaxed),
            total_ns: gauge.total_ns.load(Ordering::Relaxed),
            max_ns: gauge.max_ns.load(Ordering::Relaxed),
        })
        .chain([room])
        .collect()
}

fn families(engine: &Engine) -> Vec<FamilyMetrics> {
    let describe = |family: &crate::engine::Keyspace| {
        let merge_debt_bytes = crate::compact::debt_bytes(engine, family);
        let view = family.view();
        let level = |level: usize| {
            let mut total = LevelMetrics::default();
            for slice in view.tree.slices(level) {
                total.slices += 1;
                total.disk_bytes += slice.meta.disk_bytes;
                total.raw_bytes += slice.meta.raw_bytes;
                total.entries += slice.meta.entries;
                total.deletes += slice.meta.deletes;
            }
            total
        };
        let levels = (0..view.tree.level_count()).map(level).collect();
        FamilyMetrics { id: family.id, name: family.name().to_string(), levels, merge_debt_bytes }
    };
    engine.families.all().iter().map(|family| describe(family)).collect()
}
