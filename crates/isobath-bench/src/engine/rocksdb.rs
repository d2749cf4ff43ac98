//! RocksDB, three times. As `rocksdb` it has its own defaults, the settings that every engine gets
//! alike, and what its makers recommend to all users: the HyperClock cache, batched lookups,
//! recycled logs where writes are synced. As `rocksdb-tuned` it has, with the same memory and
//! threads, what its tuning guide advises for small values in one family. As `rocksdb-universal` it
//! is the first one with universal compaction, which writes less and takes more room.
//!
//! Knobs are RocksDB's option strings, verbatim (`level0_stop_writes_trigger`, `compression`, ...).
//! Statistics stay off: they would cost it; stalls and bytes are read from the texts of
//! `rocksdb.dbstats` and `rocksdb.cfstats`.

use super::registry::EngineKind;
use super::{
    Codec, Durability, Engine, EngineConfig, FAST_CHECKSUMS, Operation, RowVisitor, Session,
    Transactor, UNFLUSHED_BUFFERS, Written,
};
use anyhow::{Context, Result, anyhow, bail};
use rocksdb::{
    BlockBasedOptions, Cache, ColumnFamilyDescriptor, DB, DBCompactionStyle, DBCompressionType,
    DataBlockIndexType, Options, ReadOptions, WriteBatch, WriteOptions,
};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

pub(super) const KIND: EngineKind = EngineKind {
    name: "rocksdb",
    version: || "11.8.1".to_owned(),
    durabilities: &[Durability::Buffered, Durability::Process, Durability::Sync],
    answers: true,
    transactions: None,
    persistent: true,
    open,
};

pub(super) const TUNED: EngineKind = EngineKind { name: "rocksdb-tuned", open: open_tuned, ..KIND };

pub(super) const UNIVERSAL: EngineKind =
    EngineKind { name: "rocksdb-universal", open: open_universal, ..KIND };

/// The name of the only family.
const FAMILY: &str = rocksdb::DEFAULT_COLUMN_FAMILY_NAME;

/// The lowest levels that hold little and are rewritten soon, which the tuning guide leaves
/// uncompressed.
const UNCOMPRESSED_LEVELS: usize = 2;
const LEVELS: usize = 7;

fn open(config: &EngineConfig) -> Result<Box<dyn Engine>> {
    open_with(config, usual(config, &usual_table(config)))
}

fn open_universal(config: &EngineConfig) -> Result<Box<dyn Engine>> {
    let mut options = usual(config, &usual_table(config));
    options.set_compaction_style(DBCompactionStyle::Universal);
    open_with(config, options)
}

fn open_tuned(config: &EngineConfig) -> Result<Box<dyn Engine>> {
    let mut table = usual_table(config);
    // Gets find their entry in a block by hash.
    table.set_data_block_index_type(DataBlockIndexType::BinaryAndHash);
    table.set_data_block_hash_ratio(0.75);
    let mut options = usual(config, &table);
    // A compaction is shared out to all threads.
    options.set_max_subcompactions(config.background_threads.max(1));
    // The log of a group is written while the memtable takes the group before it.
    options.set_enable_pipelined_write(true);
    // A Bloom filter for each memtable: lookups skip memtables without the key.
    options.set_memtable_prefix_bloom_ratio(0.02);
    options.set_memtable_whole_key_filtering(true);
    // Written pages go to the device steadily.
    options.set_bytes_per_sync(1 << 20);
    options.set_wal_bytes_per_sync(1 << 20);
    let codec = codec(config.codec);
    let of = |level| if level < UNCOMPRESSED_LEVELS { DBCompressionType::None } else { codec };
    options.set_compression_per_level(&(0..LEVELS).map(of).collect::<Vec<_>>());
    open_with(config, options)
}

pub(super) fn usual_table(config: &EngineConfig) -> BlockBasedOptions {
    let mut table = BlockBasedOptions::default();
    table.set_block_cache(&Cache::new_hyper_clock_cache(config.cache_bytes as usize, 0));
    if config.filter_bits > 0 {
        table.set_bloom_filter(f64::from(config.filter_bits), false);
    }
    table
}

pub(super) fn usual(config: &EngineConfig, table: &BlockBasedOptions) -> Options {
    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_write_buffer_size(config.write_buffer_bytes as usize);
    options.set_max_write_buffer_number(UNFLUSHED_BUFFERS as i32);
    options.set_max_background_jobs(background_jobs(config.background_threads));
    options.set_compression_type(codec(config.codec));
    options.set_block_based_table_factory(table);
    options.set_manual_wal_flush(config.durability == Durability::Buffered);
    if config.durability == Durability::Sync {
        // A sync over blocks that are there already needs no write of the file's size and blocks.
        options.set_recycle_log_file_num(UNFLUSHED_BUFFERS as usize);
    }
    options
}

/// As many threads for compactions as were asked for. RocksDB takes a quarter of its jobs, at least
/// one, for flushes.
fn background_jobs(threads: u32) -> i32 {
    let compacting = |jobs: u32| jobs - (jobs / 4).max(1);
    (2..).find(|jobs| compacting(*jobs) >= threads).unwrap_or(2) as i32
}

fn codec(codec: Codec) -> DBCompressionType {
    match codec {
        Codec::None => DBCompressionType::None,
        Codec::Lz4 => DBCompressionType::Lz4,
        Codec::Zstd => DBCompressionType::Zstd,
        Codec::Snappy => DBCompressionType::Snappy,
    }
}

fn open_with(config: &EngineConfig, options: Options) -> Result<Box<dyn Engine>> {
    let options = with_knobs(config, options)?;
    // Batched lookups want a handle of the family, which there is only if the family was named.
    let family = ColumnFamilyDescriptor::new(FAMILY, options.clone());
    let db = DB::open_cf_descriptors(&options, &config.path, [family])?;
    Ok(Box::new(RocksDb::new(db, config)))
}

/// Whether RocksDB was compiled to use the processor's instructions for checksums, as it says in
/// its log.
fn fast_checksums(path: &Path) -> Option<bool> {
    let log = std::fs::read_to_string(path.join("LOG")).ok()?;
    let line = log.lines().find_map(|line| line.split_once("Fast CRC32 supported: "))?.1;
    Some(line.starts_with("Supported"))
}

pub(super) fn with_knobs(config: &EngineConfig, mut options: Options) -> Result<Options> {
    if config.knobs.is_empty() {
        return Ok(options);
    }
    let text: String =
        config.knobs.iter().map(|(name, value)| format!("{name}={value};")).collect();
    options.get_options_from_string(&text).with_context(|| format!("RocksDB options `{text}`"))
}

/// A RocksDB of any kind.
pub(super) trait Base: Send + Sync + 'static {
    fn property(&self, name: &str) -> Option<String>;

    /// A figure that this RocksDB doesn't have is an error, never zero.
    fn number(&self, name: &str) -> Result<u64>;
    fn flush_memtable(&self) -> Result<()>;
    fn flush_log(&self) -> Result<()>;

    /// Ends flushes and compactions before the database is dropped, where that can be asked for.
    fn stop_background(&self) {}

    fn session(db: &Arc<Self>, durability: Durability) -> Result<Box<dyn Session>>;

    fn transactor(_db: &Arc<Self>, _durability: Durability) -> Result<Box<dyn Transactor>> {
        bail!("this engine has no transactions: rocksdb-optimistic and rocksdb-locking have")
    }
}

impl Base for DB {
    fn property(&self, name: &str) -> Option<String> {
        self.property_value(name).ok().flatten()
    }

    fn number(&self, name: &str) -> Result<u64> {
        self.property_int_value(name)?.ok_or_else(|| anyhow!("RocksDB has no {name}"))
    }

    fn flush_memtable(&self) -> Result<()> {
        Ok(self.flush()?)
    }

    fn flush_log(&self) -> Result<()> {
        Ok(self.flush_wal(false)?)
    }

    fn stop_background(&self) {
        self.cancel_all_background_work(true);
    }

    fn session(db: &Arc<DB>, durability: Durability) -> Result<Box<dyn Session>> {
        let mut write = WriteOptions::default();
        write.set_sync(durability == Durability::Sync);
        Ok(Box::new(RocksSession { db: Arc::clone(db), write, read: ReadOptions::default() }))
    }
}

pub(super) struct RocksDb<D> {
    db: Arc<D>,
    durability: Durability,
    fast_checksums: Option<bool>,
}

impl<D: Base> RocksDb<D> {
    pub(super) fn new(db: D, config: &EngineConfig) -> RocksDb<D> {
        let fast_checksums = fast_checksums(&config.path);
        RocksDb { db: Arc::new(db), durability: config.durability, fast_checksums }
    }

    fn text(&self, property: &str) -> String {
        self.db.property(property).unwrap_or_default()
    }

    fn number(&self, property: &str) -> Result<u64> {
        self.db.number(property)
    }
}

impl<D: Base> Engine for RocksDb<D> {
    fn session(&self) -> Result<Box<dyn Session>> {
        D::session(&self.db, self.durability)
    }

    fn transactor(&self) -> Result<Box<dyn Transactor>> {
        D::transactor(&self.db, self.durability)
    }

    fn flush(&self) -> Result<()> {
        self.db.flush_memtable()
    }

    fn debt(&self) -> Result<u64> {
        let busy = [
            "rocksdb.mem-table-flush-pending",
            "rocksdb.num-running-flushes",
            "rocksdb.compaction-pending",
            "rocksdb.num-running-compactions",
        ];
        busy.iter().map(|property| self.number(property)).sum()
    }

    fn backlog(&self) -> Option<u64> {
        let properties =
            ["rocksdb.estimate-pending-compaction-bytes", "rocksdb.cur-size-all-mem-tables"];
        properties.iter().map(|property| self.number(property).ok()).sum()
    }

    fn level_zero_files(&self) -> Option<u64> {
        self.number("rocksdb.num-files-at-level0").ok()
    }

    fn written(&self) -> Written {
        written(&self.text("rocksdb.dbstats"), &self.text("rocksdb.cfstats"))
    }

    fn written_steps(&self) -> Written {
        let step = Some(WRITTEN_STEP);
        Written { log: step, flush: Some(WRITTEN_STEP / 10), compaction: step }
    }

    fn counters(&self) -> BTreeMap<String, f64> {
        let properties = [
            ("l0_files", "rocksdb.num-files-at-level0"),
            ("pending_compaction_bytes", "rocksdb.estimate-pending-compaction-bytes"),
            ("memtable_bytes", "rocksdb.cur-size-all-mem-tables"),
            ("table_readers_bytes", "rocksdb.estimate-table-readers-mem"),
            ("write_stopped", "rocksdb.is-write-stopped"),
            ("delayed_write_rate", "rocksdb.actual-delayed-write-rate"),
            ("running_compactions", "rocksdb.num-running-compactions"),
        ];
        let checksums = self.fast_checksums.map(|fast| f64::from(u8::from(fast)));
        properties
            .iter()
            .filter_map(|(name, property)| {
                Some((format!("rocksdb.{name}"), self.number(property).ok()? as f64))
            })
            .chain(checksums.map(|fast| (FAST_CHECKSUMS.to_owned(), fast)))
            .collect()
    }

    fn stall_us(&self) -> Option<u64> {
        self.text("rocksdb.dbstats").lines().find_map(cumulative_stall_us)
    }

    fn close(self: Box<Self>) -> Result<()> {
        if self.durability == Durability::Buffered {
            self.db.flush_log()?;
        }
        self.db.stop_background();
        Ok(())
    }
}

/// RocksDB prints hundredths of a gibibyte (of flushes: thousandths).
const WRITTEN_STEP: u64 = (1 << 30) / 100;

/// Reads the counts of bytes that RocksDB prints. Those of compactions include the flushes.
fn written(db_stats: &str, family_stats: &str) -> Written {
    let gib = |text: &str, line: &str, after: &str| -> Option<u64> {
        let line = text.lines().find(|at| at.starts_with(line))?;
        let rest = &line[line.find(after)? + after.len()..];
        let number = rest.trim_start().split([' ', ',']).next()?;
        Some((number.parse::<f64>().ok()? * f64::from(1 << 30)) as u64)
    };
    let flush = gib(family_stats, "Flush(GB):", "cumulative");
    let tables = gib(family_stats, "Cumulative compaction:", ":");
    Written {
        log: gib(db_stats, "Cumulative WAL:", "written:"),
        flush,
        compaction: flush.and_then(|flush| Some(tables?.saturating_sub(flush))),
    }
}

/// Reads `Cumulative stall: 00:00:1.500 H:M:S, 3.4 percent`.
fn cumulative_stall_us(line: &str) -> Option<u64> {
    let clock = line.strip_prefix("Cumulative stall: ")?.split_whitespace().next()?;
    let mut seconds = 0.0;
    for part in clock.split(':') {
        seconds = seconds * 60.0 + part.parse::<f64>().ok()?;
    }
    Some((seconds * 1e6) as u64)
}

/// Room for the operations as RocksDB keeps them: a header, and for each a tag and two lengths.
fn batch_bytes(operations: &[Operation<'_>]) -> usize {
    const HEADER: usize = 12;
    const EACH: usize = 11;
    let bytes = |operation: &Operation<'_>| match operation {
        Operation::Put(key, value) => key.len() + value.len(),
        Operation::Delete(key) => key.len(),
    };
    HEADER + operations.iter().map(|operation| EACH + bytes(operation)).sum::<usize>()
}

struct RocksSession {
    db: Arc<DB>,
    write: WriteOptions,
    read: ReadOptions,
}

impl Session for RocksSession {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        Ok(self.db.put_opt(key, value, &self.write)?)
    }

    fn delete(&mut self, key: &[u8]) -> Result<()> {
        Ok(self.db.delete_opt(key, &self.write)?)
    }

    fn write_batch(&mut self, operations: &[Operation<'_>]) -> Result<()> {
        // A batch can't be used again once it is written, but its room is made at once.
        let mut batch = WriteBatch::with_capacity_bytes(batch_bytes(operations));
        for operation in operations {
            match *operation {
                Operation::Put(key, value) => batch.put(key, value),
                Operation::Delete(key) => batch.delete(key),
            }
        }
        Ok(self.db.write_opt(batch, &self.write)?)
    }

    fn get(&mut self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let value = self.db.get_pinned_opt(key, &self.read)?;
        if let Some(value) = &value {
            visit(value);
        }
        Ok(value.is_some())
    }

    fn multi_get(&mut self, keys: &[&[u8]], visit: &mut dyn FnMut(usize, &[u8])) -> Result<()> {
        let family = self.db.cf_handle(FAMILY).ok_or_else(|| anyhow!("no family {FAMILY}"))?;
        let keys = keys.iter().copied();
        let found = self.db.batched_multi_get_cf_opt(family, keys, false, &self.read);
        for (index, value) in found.into_iter().enumerate() {
            if let Some(value) = value? {
                visit(index, &value);
            }
        }
        Ok(())
    }

    fn rows(&mut self, from: &[u8], to: Option<&[u8]>, visit: RowVisitor<'_>) -> Result<()> {
        let mut read = ReadOptions::default();
        if let Some(to) = to {
            read.set_iterate_upper_bound(to);
        }
        let mut rows = self.db.raw_iterator_opt(read);
        rows.seek(from);
        while let Some((key, value)) = rows.item() {
            if visit(key, value) {
                return Ok(());
            }
            rows.next();
        }
        Ok(rows.status()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_read_and_what_is_not_printed_is_unknown() {
        let db = "Cumulative WAL: 1000K writes, 0 syncs, 1.00 writes per sync, written: 0.50 GB, 9.1 MB/s";
        let family = "Flush(GB): cumulative 0.250, interval 0.250\n\
                      Cumulative compaction: 1.25 GB write, 3.0 MB/s write, 1.00 GB read";
        let half = Some(1 << 29);
        let expected = Written { log: half, flush: Some(1 << 28), compaction: Some(1 << 30) };
        assert_eq!(written(db, family), expected);
        assert_eq!(written("", ""), Written::default());
    }

    #[test]
    fn a_batch_fits_into_the_room_that_is_made_for_it() {
        let (key, value) = ([7; 16], vec![7; 300]);
        let operations = [Operation::Put(&key, &value), Operation::Delete(&key)];
        let mut batch = WriteBatch::default();
        batch.put(key, &value);
        batch.delete(key);
        let (needed, made) = (batch.size_in_bytes(), batch_bytes(&operations));
        assert!((needed..needed + 20).contains(&made), "{made} for {needed}");
    }

    #[test]
    fn as_many_threads_compact_as_were_asked_for_and_others_flush() {
        assert_eq!([1, 2, 3, 4, 8, 16].map(background_jobs), [2, 3, 4, 5, 10, 21]);
    }

    /// What RocksDB says in its own files that it was opened with.
    fn opened(
        open: fn(&EngineConfig) -> Result<Box<dyn Engine>>,
        durability: Durability,
    ) -> String {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("db");
        let background_threads = 4;
        let config = EngineConfig { path, durability, background_threads, ..Default::default() };
        open(&config).unwrap().close().unwrap();
        let files = std::fs::read_dir(&config.path).unwrap().map(|entry| entry.unwrap().path());
        let told = |path: &std::path::PathBuf| {
            let name = path.file_name().unwrap().to_str().unwrap();
            name == "LOG" || name.starts_with("OPTIONS")
        };
        let texts: Vec<String> =
            files.filter(told).map(|path| std::fs::read_to_string(path).unwrap()).collect();
        texts.concat()
    }

    #[test]
    fn its_own_files_tell_the_settings_that_its_experts_choose() {
        let synced = opened(open, Durability::Sync);
        for line in [
            "Fast CRC32 supported: ",
            "HyperClockCache",
            "recycle_log_file_num=3",
            "max_write_buffer_number=3",
            "max_background_jobs=5",
        ] {
            assert!(synced.contains(line), "{line} in {synced}");
        }
        assert!(opened(open, Durability::Process).contains("recycle_log_file_num=0"));
        let universal = opened(open_universal, Durability::Process);
        assert!(universal.contains("compaction_style=kCompactionStyleUniversal"), "{universal}");
        let tuned = opened(open_tuned, Durability::Process);
        for line in [
            "max_subcompactions=4",
            "enable_pipelined_write=true",
            "data_block_index_type=kDataBlockBinaryAndHash",
            "memtable_whole_key_filtering=true",
            "compression_per_level=kNoCompression:kNoCompression:kLZ4Compression",
            "max_write_buffer_number=3",
        ] {
            assert!(tuned.contains(line), "{line} in {tuned}");
        }
    }

    #[test]
    fn the_stall_clock_is_read() {
        assert_eq!(
            cumulative_stall_us("Cumulative stall: 00:01:02.500 H:M:S, 3.4 percent"),
            Some(62_500_000)
        );
        assert_eq!(cumulative_stall_us("Interval stall: 00:00:0.000 H:M:S"), None);
    }
}
