//! All counters of an open database as one struct. Counts are since open unless they say otherwise.

use crate::vfs::IoMode;

/// What an open database has done and holds.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Metrics {
    /// How the log is written.
    pub log_mode: IoMode,
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
    pub memtable_reserved_bytes: u64,
    /// Chunks of memory that writers took, and those that were not warm.
    pub arena_chunks: u64,
    /// Chunks whose pages had not been touched before.
    pub arena_chunks_cold: u64,
    /// Epochs that wait for flush now.
    pub immutable_memtables: u64,
    /// Flushes done.
    pub flushes: u64,
    /// Bytes they wrote.
    pub flush_bytes: u64,
    /// Time they took, in nanoseconds.
    pub flush_ns: u64,
    /// Compactions done.
    pub compactions: u64,
    /// Slices moved between levels without being rewritten.
    pub trivial_moves: u64,
    /// Bytes that compactions read.
    pub compaction_read_bytes: u64,
    /// Bytes that compactions wrote.
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
    pub filter_index_bytes: u64,
    /// Snapshots held now.
    pub snapshots: u64,
    /// Waits of writers, by cause.
    pub stalls: Vec<StallMetrics>,
    /// The families, by ascending id.
    pub families: Vec<FamilyMetrics>,
}

/// Waits of writers for one cause.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
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
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct FamilyMetrics {
    /// Its id.
    pub id: u32,
    /// Its name.
    pub name: String,
    /// Its levels, level 0 first.
    pub levels: Vec<LevelMetrics>,
    /// Bytes that compactions have still to read to bring all of it where it belongs: an estimate.
    pub pending_compaction_bytes: u64,
}

/// A level of a tree.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
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
    /// Bytes written to the device for each byte committed: log, flushes and compactions, over the
    /// log's bytes.
    pub fn write_amplification(&self) -> f64 {
        let written = self.log_bytes + self.flush_bytes + self.compaction_written_bytes;
        written as f64 / self.log_bytes.max(1) as f64
    }

    /// Bytes of all tables on disk.
    pub fn table_bytes(&self) -> u64 {
        self.families.iter().flat_map(|family| &family.levels).map(|level| level.disk_bytes).sum()
    }

    /// Bytes that compactions have still to read, over all families: an estimate.
    pub fn pending_compaction_bytes(&self) -> u64 {
        self.families.iter().map(|family| family.pending_compaction_bytes).sum()
    }

    /// Runs in the fullest level 0.
    pub fn level0_runs(&self) -> u64 {
        let runs = |family: &FamilyMetrics| family.levels.first().map_or(0, |level| level.slices);
        self.families.iter().map(runs).max().unwrap_or(0)
    }
}
