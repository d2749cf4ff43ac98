//! TidesDB. A commit that it turns away for now (locked, memory limit) is retried with a pause, and
//! the wait counts as the commit's latency.
//!
//! With sync mode "none" a commit stays in the process's memory, so what it serves without a sync
//! is `buffered`; it has nothing that survives a killed process only.

use super::registry::EngineKind;
use super::{
    Codec, Durability, Engine, EngineConfig, Operation, RowVisitor, Session, UNFLUSHED_BUFFERS,
    Written,
};
use anyhow::{Context, Result};
use self_cell::self_cell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tidesdb::{
    ColumnFamily, ColumnFamilyConfig, CompressionAlgorithm, Config, ErrorCode, IsolationLevel,
    LogLevel, SyncMode, TidesDB, Transaction,
};

const FAMILY: &str = "default";
const RETRY_PAUSE: Duration = Duration::from_micros(50);

pub(super) const KIND: EngineKind = EngineKind {
    name: "tidesdb",
    version: || "10.2.1".to_owned(),
    durabilities: &[Durability::Buffered, Durability::Sync],
    answers: true,
    transactions: None,
    persistent: true,
    open,
};

const KNOBS: &[&str] = &[
    "num_flush_threads",
    "num_compaction_threads",
    "value_separation_threshold",
    "vlog_segment_size",
    "memtable_l0_queue_stall_threshold",
    "memtable_skip_list_max_level",
    "max_open_sstables",
    "level_size_ratio",
    "l1_file_count_trigger",
    "keep_values_inline",
    "btree_klog_block_size",
    "bloom_fpr",
];

fn open(config: &EngineConfig) -> Result<Box<dyn Engine>> {
    config.check_knobs("tidesdb", KNOBS)?;
    std::fs::create_dir_all(&config.path)?;
    let db = TidesDB::open(database_config(config)?)?;
    if !db.list_column_families()?.iter().any(|name| name == FAMILY) {
        db.create_column_family(FAMILY, family_config(config)?)?;
    }
    Ok(Box::new(Tides { db: Arc::new(db), retry_us: Arc::default() }))
}

fn database_config(config: &EngineConfig) -> Result<Config> {
    let threads = config.background_threads.max(1) as i32;
    let mut options = Config::new(&config.path)
        .num_flush_threads(config.knob("num_flush_threads")?.unwrap_or(1))
        .num_compaction_threads(config.knob("num_compaction_threads")?.unwrap_or(threads))
        .log_level(LogLevel::None)
        .block_cache_size(config.cache_bytes as usize)
        .memtable_write_buffer_size(config.write_buffer_bytes as usize)
        .memtable_sync_mode(if config.durability == Durability::Sync {
            SyncMode::Full
        } else {
            SyncMode::None
        });
    if let Some(threshold) = config.knob("value_separation_threshold")? {
        options = options.value_separation_threshold(threshold);
    }
    if let Some(size) = config.knob("vlog_segment_size")? {
        options = options.vlog_segment_size(size);
    }
    // Its default of 16 buffers behind the one being filled would be a gibibyte.
    let waiting = config.knob("memtable_l0_queue_stall_threshold")?;
    options =
        options.memtable_l0_queue_stall_threshold(waiting.unwrap_or(UNFLUSHED_BUFFERS as i32 - 1));
    if let Some(level) = config.knob("memtable_skip_list_max_level")? {
        options = options.memtable_skip_list_max_level(level);
    }
    if let Some(files) = config.knob("max_open_sstables")? {
        options = options.max_open_sstables(files);
    }
    Ok(options)
}

fn family_config(config: &EngineConfig) -> Result<ColumnFamilyConfig> {
    let codec = match config.codec {
        Codec::None => CompressionAlgorithm::None,
        Codec::Lz4 => CompressionAlgorithm::Lz4,
        Codec::Zstd => CompressionAlgorithm::Zstd,
        Codec::Snappy => CompressionAlgorithm::Snappy,
    };
    // A Bloom filter of b bits a key at its best number of probes has this rate of false positives.
    let rate = (-f64::from(config.filter_bits) * std::f64::consts::LN_2.powi(2)).exp();
    let mut options = ColumnFamilyConfig::new()
        .compression_algorithm(codec)
        .enable_bloom_filter(config.filter_bits > 0)
        .bloom_fpr(config.knob("bloom_fpr")?.unwrap_or(rate));
    if let Some(ratio) = config.knob("level_size_ratio")? {
        options = options.level_size_ratio(ratio);
    }
    if let Some(trigger) = config.knob("l1_file_count_trigger")? {
        options = options.l1_file_count_trigger(trigger);
    }
    if let Some(inline) = config.knob("keep_values_inline")? {
        options = options.keep_values_inline(inline);
    }
    if let Some(size) = config.knob("btree_klog_block_size")? {
        options = options.btree_klog_block_size(size);
    }
    Ok(options)
}

struct Tides {
    db: Arc<TidesDB>,
    retry_us: Arc<AtomicU64>,
}

impl Engine for Tides {
    fn session(&self) -> Result<Box<dyn Session>> {
        let handles = HandlesCell::try_new(Arc::clone(&self.db), |db| {
            Ok::<_, tidesdb::Error>(Handles {
                family: db.get_column_family(FAMILY)?,
                transaction: db.begin_transaction()?,
            })
        })?;
        Ok(Box::new(TidesSession { handles, retry_us: Arc::clone(&self.retry_us) }))
    }

    fn flush(&self) -> Result<()> {
        // TidesDB refuses this while another flush holds the memtable.
        loop {
            match self.db.flush_memtable() {
                Err(error) if is_busy(&error) => std::thread::sleep(RETRY_PAUSE),
                outcome => return Ok(outcome?),
            }
        }
    }

    fn debt(&self) -> Result<u64> {
        let stats = self.db.get_db_stats()?;
        let compacting = self.db.get_column_family(FAMILY)?.is_compacting();
        let counts = stats.immutable_memtable_count.max(0) as u64
            + stats.compaction_pending_count.max(0) as u64;
        Ok(counts + u64::from(compacting) + u64::from(stats.is_flushing))
    }

    fn backlog(&self) -> Option<u64> {
        let waiting = self.db.get_db_stats().ok()?.immutable_memtable_count;
        Some(waiting.max(0) as u64 + self.level_zero_files()?)
    }

    /// Flushes land in what TidesDB calls level 1.
    fn level_zero_files(&self) -> Option<u64> {
        let stats = self.db.get_column_family(FAMILY).and_then(|family| family.get_stats()).ok()?;
        Some(stats.level_num_sstables.first().copied().unwrap_or(0).max(0) as u64)
    }

    /// What is appended to the value log is written once more, so it counts as flushed.
    fn written(&self) -> Written {
        let Ok(stats) = self.db.get_db_stats() else { return Written::default() };
        Written {
            log: Some(stats.wal_bytes_written),
            flush: Some(stats.flush_bytes_written + stats.vlog_bytes_written),
            compaction: Some(stats.compaction_bytes_written),
        }
    }

    fn counters(&self) -> BTreeMap<String, f64> {
        let Ok(stats) = self.db.get_db_stats() else { return BTreeMap::new() };
        let pairs = [
            ("immutable_memtables", f64::from(stats.immutable_memtable_count)),
            ("pending_compactions", f64::from(stats.compaction_pending_count)),
            ("tables", f64::from(stats.total_sstable_count)),
            ("flushes", stats.flush_count as f64),
            ("compactions", stats.compaction_count as f64),
            ("memtable_bytes", stats.memtable_bytes as f64),
            ("vlog_bytes", stats.vlog_file_size as f64),
            ("writes_throttled", stats.writes_throttled as f64),
            ("writes_blocked", stats.writes_blocked as f64),
        ];
        pairs.into_iter().map(|(name, value)| (format!("tidesdb.{name}"), value)).collect()
    }

    fn stall_us(&self) -> Option<u64> {
        let own = self.db.get_db_stats().ok()?.write_stall_us;
        Some(own + self.retry_us.load(Ordering::Relaxed))
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.db.sync_wal()?;
        drop(Arc::into_inner(self.db).context("a session outlives its database")?);
        Ok(())
    }
}

struct Handles<'db> {
    family: ColumnFamily<'db>,
    transaction: Transaction<'db>,
}

self_cell!(
    struct HandlesCell {
        owner: Arc<TidesDB>,
        #[not_covariant]
        dependent: Handles,
    }
);

struct TidesSession {
    handles: HandlesCell,
    retry_us: Arc<AtomicU64>,
}

impl TidesSession {
    /// Applies `fill` in one transaction, again and again while the engine asks to wait.
    fn write(
        &mut self,
        mut fill: impl FnMut(&Transaction<'_>, &ColumnFamily<'_>) -> tidesdb::Result<()>,
    ) -> Result<()> {
        let retry_us = &self.retry_us;
        self.handles.with_dependent_mut(|_, Handles { family, transaction }| {
            let mut first_refusal: Option<Instant> = None;
            loop {
                let outcome = fill(transaction, family).and_then(|()| transaction.commit());
                transaction.reset(IsolationLevel::ReadCommitted)?;
                match outcome {
                    Ok(()) => break,
                    Err(error) if is_busy(&error) => {
                        first_refusal.get_or_insert_with(Instant::now);
                        std::thread::sleep(RETRY_PAUSE);
                    }
                    Err(error) => return Err(error.into()),
                }
            }
            if let Some(since) = first_refusal {
                retry_us.fetch_add(since.elapsed().as_micros() as u64, Ordering::Relaxed);
            }
            Ok(())
        })
    }
}

fn is_busy(error: &tidesdb::Error) -> bool {
    matches!(error.code(), Some(ErrorCode::Locked | ErrorCode::MemoryLimit))
}

impl Session for TidesSession {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.write(|transaction, family| transaction.put(family, key, value))
    }

    fn delete(&mut self, key: &[u8]) -> Result<()> {
        self.write(|transaction, family| transaction.delete(family, key))
    }

    fn write_batch(&mut self, operations: &[Operation<'_>]) -> Result<()> {
        self.write(|transaction, family| {
            for operation in operations {
                match *operation {
                    Operation::Put(key, value) => transaction.put(family, key, value)?,
                    Operation::Delete(key) => transaction.delete(family, key)?,
                }
            }
            Ok(())
        })
    }

    fn get(&mut self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        self.handles.with_dependent_mut(|_, Handles { family, transaction }| {
            loop {
                match transaction.get_notrack(family, key) {
                    Ok(value) => {
                        visit(&value);
                        return Ok(true);
                    }
                    Err(error) if error.is_not_found() => return Ok(false),
                    Err(error) if is_busy(&error) => std::thread::sleep(RETRY_PAUSE),
                    Err(error) => return Err(error.into()),
                }
            }
        })
    }

    fn rows(&mut self, from: &[u8], to: Option<&[u8]>, visit: RowVisitor<'_>) -> Result<()> {
        self.handles.with_dependent_mut(|_, Handles { family, transaction }| {
            let mut rows = match to {
                Some(to) if !from.is_empty() => transaction.new_range_iterator(family, from, to)?,
                _ => transaction.new_iterator(family)?,
            };
            // TidesDB cannot seek to an empty key.
            if from.is_empty() {
                rows.seek_to_first()?
            } else {
                rows.seek(from)?
            }
            while rows.is_valid() {
                let (key, value) = rows.key_value()?;
                if to.is_some_and(|to| key.as_slice() >= to) || visit(&key, &value) {
                    break;
                }
                rows.next()?;
            }
            Ok(())
        })
    }
}
