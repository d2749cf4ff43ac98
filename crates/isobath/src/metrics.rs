//! The counters of an open database as one struct.

use crate::error::StallCause;
use crate::events::CompactionReason;
use crate::vfs::IoMode;

/// What an open database has done and what it holds. [`Db::metrics`](crate::Db::metrics) returns
/// it.
///
/// Counts, bytes and times cover the time since this open, except where a field says otherwise. The
/// fields are read one after the other while the database works, so they need not add up exactly.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Metrics {
    /// How the log is written: mapped or positional. Never [`IoMode::Auto`].
    pub log_mode: IoMode,
    /// Bytes that commits took in the log, with the engine's own records, headers and padding.
    pub log_bytes: u64,
    /// Syncs of the log. One sync can serve many commits.
    pub log_syncs: u64,
    /// Calls that found their bytes not yet synced, and waited for a sync or did it themselves.
    pub log_sync_waits: u64,
    /// Log segments whose files were created.
    pub log_segments_created: u64,
    /// Log segments made from spare files: files of older segments that were no longer needed.
    pub log_segments_recycled: u64,
    /// Bytes of records that were copied into the log before the engine had touched the pages ahead
    /// of time. In a mapped log each such page costs the writer a page fault.
    pub log_bytes_not_prefaulted: u64,
    /// Bytes that the memtables hold now, both those being written and those waiting for a flush.
    pub memtable_bytes: u64,
    /// Bytes of memory reserved for memtables now, with the idle chunks that are kept for later.
    pub memtable_reserved_bytes: u64,
    /// Chunks of memory that memtables took.
    pub arena_chunks: u64,
    /// Of these, chunks whose pages were not yet present. Their first writes cost page faults.
    pub arena_chunks_cold: u64,
    /// Generations of memtables that are sealed and wait for a flush now.
    pub immutable_memtables: u64,
    /// Flushes done. One flush writes one generation of memtables, of all families.
    pub flushes: u64,
    /// Bytes of the tables and blob files that flushes wrote.
    pub flush_bytes: u64,
    /// Time that flushes took, in nanoseconds.
    pub flush_ns: u64,
    /// Compactions done. Trivial moves are not among them.
    pub compactions: u64,
    /// Slices that moved to another level without being rewritten.
    pub trivial_moves: u64,
    /// Slices that left the tree unread, because range deletes covered them.
    pub slices_dropped: u64,
    /// Bytes on disk of these slices, with the values that they had in blob files.
    pub dropped_bytes: u64,
    /// Bytes on disk of the slices that compactions read, and of the values that they read from
    /// blob files.
    pub compaction_read_bytes: u64,
    /// Bytes of the tables and blob files that compactions wrote.
    pub compaction_written_bytes: u64,
    /// Time that compactions took, in nanoseconds. Compactions that ran at the same time all count,
    /// so the sum can exceed the time that has passed.
    pub compaction_ns: u64,
    /// Values that compaction filters kept. These counts are of compactions that were installed.
    pub filter_kept: u64,
    /// Values that compaction filters removed.
    pub filter_removed: u64,
    /// Values that compaction filters replaced.
    pub filter_replaced: u64,
    /// Values that compaction filters gave no verdict on. They were kept.
    pub filter_failures: u64,
    /// Earlier states of families' trees and memtables that are kept now, because a reader began
    /// while a compaction ran whose filter then changed what the reader sees.
    pub filter_held_views: u64,
    /// Bytes that flushes and compactions wrote under
    /// [`Options::io_rate_limit`](crate::Options::io_rate_limit); 0 without a limit.
    pub io_limited_bytes: u64,
    /// Time that flushes and compactions waited for the limit, in nanoseconds.
    pub io_limit_wait_ns: u64,
    /// Log records that the open replayed.
    pub recovered_records: u64,
    /// Bytes of log that the open replayed.
    pub recovered_bytes: u64,
    /// Blocks that reads found in the block cache. A [`BlockCache`](crate::BlockCache) that several
    /// databases share counts for all of them, since it was made.
    pub cache_hits: u64,
    /// Blocks that reads did not find in the block cache. Counted as `cache_hits` is.
    pub cache_misses: u64,
    /// Bytes of the blocks in the block cache now, of all databases that share it.
    pub cache_bytes: u64,
    /// Bytes of the filters and top index blocks of open tables now, and of what these remember of
    /// their blocks in the block cache, of all databases that share it. They are in memory beside
    /// the cache.
    pub filter_index_bytes: u64,
    /// The memory below the ceiling, if the options set one.
    pub memory: Option<MemoryMetrics>,
    /// Blob files in which values of the present trees lie, apart from their keys.
    pub blob_files: u64,
    /// Bytes of these files that can be opened.
    pub blob_bytes: u64,
    /// Of these bytes, those of values that tables refer to. A value that has been overwritten
    /// counts until a compaction has met both versions. Of a family and its clones, the one counts
    /// that has most in a file.
    pub blob_live_bytes: u64,
    /// Values that have a file of their own, because they were written from a reader: in the
    /// present trees and in what is not flushed yet, also those that were replaced since. These
    /// files do not count among the blob files.
    pub streams: u64,
    /// Bytes of these files.
    pub stream_bytes: u64,
    /// Bytes of tables that are on disk once, and in the figures of more than one family: a clone
    /// shares tables with the family that it was cloned from. Each family but one adds its share.
    pub shared_bytes: u64,
    /// Bytes of the table files of the present trees in which no slice lies: of families that have
    /// left the file since. A flush writes one file for all families, and it goes with its last
    /// slice. Compactions clean files that are mostly dead, once all together have more dead bytes
    /// than a write buffer and a quarter of [`Metrics::table_bytes`].
    pub table_dead_bytes: u64,
    /// Values that reads fetched since they lie in blob files or have files of their own, those in
    /// the block cache included. A `get_reader` that opens such a file counts once. Reads of keys
    /// alone and counts fetch none.
    pub values_fetched: u64,
    /// Reads for these values. One read can bring several values, a stream that is read as a whole
    /// counts as one, and none is made for a value in the block cache. What a `ValueReader` reads
    /// is not counted.
    pub value_reads: u64,
    /// Bytes of these reads.
    pub value_read_bytes: u64,
    /// Read points held now: snapshots, clones included, and transactions.
    pub snapshots: u64,
    /// Bytes of log since the oldest of these read points, 0 if there is none. What was overwritten
    /// since then is kept.
    pub oldest_read_point_lag: u64,
    /// For how long the oldest of these read points has kept what was overwritten, about, in
    /// milliseconds: since the log went on behind it, to a second or a thousandth of the age of the
    /// oldest reader there lately was. 0 if there is none, or nothing behind it. An idle database
    /// writes a few bytes to its log, too. A snapshot that was forgotten shows here. Always 0 where
    /// a database is open for reading only.
    pub oldest_read_point_age_ms: u64,
    /// Bytes of memory that the transactions which [`Db::transactions`](crate::Db::transactions)
    /// lists take for what they wrote and read.
    pub transaction_bytes: u64,
    /// Transactions begun. A step outside a transaction, such as
    /// [`Db::put_if`](crate::Db::put_if), counts as one.
    pub transactions_begun: u64,
    /// Transactions committed.
    pub transactions_committed: u64,
    /// Transactions that ended without a commit: dropped, rolled back, or failed.
    pub transactions_rolled_back: u64,
    /// Transactions prepared. They are neither committed nor rolled back by these counts.
    pub transactions_prepared: u64,
    /// Prepared transactions that were committed, those of earlier openings included.
    pub prepared_committed: u64,
    /// Prepared transactions that were rolled back, those of earlier openings included.
    pub prepared_rolled_back: u64,
    /// Prepared transactions that are in doubt now: [`Db::in_doubt`](crate::Db::in_doubt).
    pub transactions_in_doubt: u64,
    /// Transactions that reached
    /// [`TransactionOptions::timeout`](crate::TransactionOptions::timeout).
    pub transactions_timed_out: u64,
    /// Transactions that reached
    /// [`TransactionOptions::idle_timeout`](crate::TransactionOptions::idle_timeout).
    pub transactions_idled_out: u64,
    /// Transactions that an [`AbortHandle`](crate::AbortHandle) ended.
    pub transactions_aborted: u64,
    /// Commits that failed because a key that the transaction had read was changed.
    pub conflicts_read: u64,
    /// Commits that failed because a key that the transaction writes was changed.
    pub conflicts_write: u64,
    /// Commits that failed because something in a range that the transaction had scanned or locked
    /// was changed.
    pub conflicts_range: u64,
    /// Commits that failed because a value that the transaction had read has ended.
    pub conflicts_expired: u64,
    /// Commits of transactions that failed when their place in the log was reserved already. All
    /// others have cost the log nothing.
    pub conflicts_reserved: u64,
    /// Bytes of the log that stay unused because a transaction gave its place up.
    pub log_bytes_skipped: u64,
    /// Commits of transactions that waited for earlier ones to find out whether they conflict.
    /// Later writers wait behind them.
    pub validation_waits: u64,
    /// Keys whose versions a transaction looked up to find out whether they were changed. For the
    /// others a table in memory could tell.
    pub probes: u64,
    /// Of these keys, those that were not changed.
    pub probes_cleared: u64,
    /// How often a transaction was run again with a lock on the key that it had met a conflict on.
    pub escalations: u64,
    /// How often a scan found a long row of deleted keys that later scans need not walk over again.
    /// A queue does this every few pops.
    pub gaps_found: u64,
    /// Puts of keys within such a row, which cost the writer some time.
    pub gaps_cut: u64,
    /// Waits for locks of keys, of transactions and of plain writes.
    pub lock_waits: u64,
    /// Nanoseconds that these waits took in all.
    pub lock_wait_ns: u64,
    /// The longest of these waits, in nanoseconds.
    pub lock_wait_ns_max: u64,
    /// Waits for locks that ended with [`ErrorKind::LockTimeout`](crate::ErrorKind::LockTimeout).
    pub lock_timeouts: u64,
    /// Deadlocks, of which each ended one wait.
    pub deadlocks: u64,
    /// How often transactions made plain writers announce their writes. They do so until no
    /// transaction has committed for a second or two.
    pub gate_openings: u64,
    /// How often and how long writers waited, by cause.
    pub stalls: Vec<StallMetrics>,
    /// The column families, by ascending id.
    pub families: Vec<FamilyMetrics>,
}

/// The memory of a database with a ceiling: [`Options::memory`](crate::Options::memory).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct MemoryMetrics {
    /// The ceiling in bytes.
    pub ceiling: u64,
    /// Bytes that are held or reserved now. Never more than the ceiling.
    pub held: u64,
    /// Of these, bytes for writes that are not in tables yet, and for those that readers still
    /// hold.
    pub memtables: u64,
    /// Bytes of decoded blocks: in the block cache, under scans, behind values of the program.
    pub blocks: u64,
    /// Bytes of filters and top index blocks of open tables, and of the list of all tables.
    pub tables: u64,
    /// Bytes for buffers of flushes and compactions, and of transactions that write to files.
    pub jobs: u64,
    /// Bytes for what transactions have written, read and locked, prepared ones included. Some KiB
    /// a thread stay for the next transactions.
    pub transactions: u64,
    /// How often something got no memory. What was refused waited, did without, or failed with
    /// [`ErrorKind::MemoryLimit`](crate::ErrorKind::MemoryLimit).
    pub refusals: u64,
}

/// The waits of writers for one cause.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct StallMetrics {
    /// What the writers waited for.
    pub cause: StallCause,
    /// How many waits there were.
    pub count: u64,
    /// The sum of all waits, in nanoseconds.
    pub total_ns: u64,
    /// The longest wait, in nanoseconds.
    pub max_ns: u64,
}

/// One column family and the levels of its tree.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct FamilyMetrics {
    /// The family's id.
    pub id: u32,
    /// The family's name.
    pub name: String,
    /// The levels of the family's tree, level 0 first.
    pub levels: Vec<LevelMetrics>,
    /// Bytes that compactions must still read until each level is within its size and the garbage
    /// in blob files within its share: an estimate.
    pub pending_compaction_bytes: u64,
    /// What compactions have done since the open, by reason and level.
    pub compactions: Vec<CompactionMetrics>,
}

/// The compactions of a family for one reason into one level. Those that were installed count;
/// moves and slices that left unread do not.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct CompactionMetrics {
    /// Why they were due.
    pub reason: CompactionReason,
    /// The level that their outputs are in.
    pub into_level: usize,
    /// How many there were.
    pub count: u64,
    /// Versions of keys that they read, deletes included.
    pub read_entries: u64,
    /// Versions that they kept.
    pub written_entries: u64,
    /// Deletes that they read.
    pub read_deletes: u64,
    /// Deletes that they kept.
    pub written_deletes: u64,
    /// Bytes that they read.
    pub read_bytes: u64,
    /// Bytes that they wrote.
    pub written_bytes: u64,
    /// Time that they took, in nanoseconds.
    pub took_ns: u64,
}

impl CompactionMetrics {
    /// None for this reason into this level.
    pub(crate) fn none(reason: CompactionReason, into_level: usize) -> CompactionMetrics {
        CompactionMetrics {
            reason,
            into_level,
            count: 0,
            read_entries: 0,
            written_entries: 0,
            read_deletes: 0,
            written_deletes: 0,
            read_bytes: 0,
            written_bytes: 0,
            took_ns: 0,
        }
    }

    /// Adds others for the same reason into the same level.
    pub(crate) fn add(&mut self, other: &CompactionMetrics) {
        debug_assert_eq!((self.reason, self.into_level), (other.reason, other.into_level));
        self.count += other.count;
        self.read_entries += other.read_entries;
        self.written_entries += other.written_entries;
        self.read_deletes += other.read_deletes;
        self.written_deletes += other.written_deletes;
        self.read_bytes += other.read_bytes;
        self.written_bytes += other.written_bytes;
        self.took_ns += other.took_ns;
    }
}

/// One level of a family's tree, as it is now.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct LevelMetrics {
    /// Slices in the level. A slice is the family's share of a table file. In level 0 each slice is
    /// a run.
    pub slices: u64,
    /// Bytes of the level on disk, without values that lie in blob files.
    pub disk_bytes: u64,
    /// Bytes of the level's keys and values before compression. A value that lies in a blob file
    /// counts with the bytes of its address.
    pub raw_bytes: u64,
    /// Values of the level that lie in blob files.
    pub separated_values: u64,
    /// Bytes of these values as they are stored.
    pub separated_bytes: u64,
    /// Versions of keys in the level, deletes included.
    pub entries: u64,
    /// Deletes in the level.
    pub deletes: u64,
    /// Deleted ranges in the level. A range that lies in several slices counts once in each.
    pub range_deletes: u64,
    /// In how many sorted runs of the level a get may have to look for one key: in level 0 the most
    /// runs whose ranges of keys have one in common, below it 1, and 0 if the level is empty. Of
    /// these runs filters leave out most that do not have the key.
    pub read_amplification: u64,
    /// How long ago the oldest delete in the level, of a key or of a range, was flushed from memory
    /// to a table, in milliseconds: this long or less. It may have been longer where a compaction
    /// has made deletes, of values that ended or that a filter removed, and where the machine slept
    /// for more than an hour, which does not count. `None` if there is no delete, or if no table
    /// tells an age: an earlier version or a repair has written it, or the clock was ahead then. Of
    /// several tables those count that tell one.
    pub oldest_delete_age_ms: Option<u64>,
}

impl LevelMetrics {
    /// Which share of the entries are deletes of keys, from 0 to 1.
    pub fn delete_share(&self) -> f64 {
        self.deletes as f64 / self.entries.max(1) as f64
    }
}

impl FamilyMetrics {
    /// All levels together. Their `read_amplification` is in how many sorted runs a get may have to
    /// look for one key.
    pub fn total(&self) -> LevelMetrics {
        let mut total = LevelMetrics::default();
        for level in &self.levels {
            total.slices += level.slices;
            total.disk_bytes += level.disk_bytes;
            total.raw_bytes += level.raw_bytes;
            total.separated_values += level.separated_values;
            total.separated_bytes += level.separated_bytes;
            total.entries += level.entries;
            total.deletes += level.deletes;
            total.range_deletes += level.range_deletes;
            total.read_amplification += level.read_amplification;
            total.oldest_delete_age_ms = total.oldest_delete_age_ms.max(level.oldest_delete_age_ms);
        }
        total
    }
}

impl Metrics {
    /// Bytes written to the device for each byte of log: log, flushes and compactions together,
    /// divided by `log_bytes`.
    pub fn write_amplification(&self) -> f64 {
        let written = self.log_bytes + self.flush_bytes + self.compaction_written_bytes;
        written as f64 / self.log_bytes.max(1) as f64
    }

    /// Bytes of the blob files in which no value lies that a table refers to.
    pub fn blob_garbage_bytes(&self) -> u64 {
        self.blob_bytes.saturating_sub(self.blob_live_bytes)
    }

    /// Bytes of all tables on disk, as the sum over all levels of all families, without those that
    /// families share. Blob files are not among them.
    pub fn table_bytes(&self) -> u64 {
        let levels = self.families.iter().flat_map(|family| &family.levels);
        let sum: u64 = levels.map(|level| level.disk_bytes).sum();
        sum.saturating_sub(self.shared_bytes)
    }

    /// Bytes that compactions must still read, over all families: an estimate.
    pub fn pending_compaction_bytes(&self) -> u64 {
        self.families.iter().map(|family| family.pending_compaction_bytes).sum()
    }

    /// Runs in level 0 of the family that has the most of them.
    pub fn level0_runs(&self) -> u64 {
        let runs = |family: &FamilyMetrics| family.levels.first().map_or(0, |level| level.slices);
        self.families.iter().map(runs).max().unwrap_or(0)
    }
}
