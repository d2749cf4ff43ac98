//! RocksDB, with its own defaults but for the settings that every engine gets alike.
//!
//! Knobs are RocksDB's option strings, verbatim (`level0_stop_writes_trigger`, `compression`, ...).
//! Statistics stay off: they would cost it; stalls and bytes are read from the texts of
//! `rocksdb.dbstats` and `rocksdb.cfstats`.

use super::registry::EngineKind;
use super::{Codec, Durability, Engine, EngineConfig, Operation, RowVisitor, Session, Written};
use anyhow::{Context, Result};
use rocksdb::{
    BlockBasedOptions, Cache, DB, DBCompressionType, Options, ReadOptions, WriteBatch, WriteOptions,
};
use std::collections::BTreeMap;
use std::sync::Arc;

pub(super) const KIND: EngineKind = EngineKind {
    name: "rocksdb",
    version: || "11.8.1".to_owned(),
    durabilities: &[Durability::Buffered, Durability::Process, Durability::Sync],
    answers: true,
    persistent: true,
    open,
};

fn open(config: &EngineConfig) -> Result<Box<dyn Engine>> {
    let mut table = BlockBasedOptions::default();
    table.set_block_cache(&Cache::new_lru_cache(config.cache_bytes as usize));
    if config.filter_bits > 0 {
        table.set_bloom_filter(f64::from(config.filter_bits), false);
    }
    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_write_buffer_size(config.write_buffer_bytes as usize);
    options.set_max_background_jobs(config.background_threads.max(2) as i32);
    options.set_compression_type(match config.codec {
        Codec::None => DBCompressionType::None,
        Codec::Lz4 => DBCompressionType::Lz4,
        Codec::Zstd => DBCompressionType::Zstd,
        Codec::Snappy => DBCompressionType::Snappy,
    });
    options.set_block_based_table_factory(&table);
    options.set_manual_wal_flush(config.durability == Durability::Buffered);
    if !config.knobs.is_empty() {
        let text: String =
            config.knobs.iter().map(|(name, value)| format!("{name}={value};")).collect();
        options = options
            .get_options_from_string(&text)
            .with_context(|| format!("RocksDB options `{text}`"))?;
    }
    let db = DB::open(&options, &config.path)?;
    Ok(Box::new(RocksDb { db: Arc::new(db), durability: config.durability }))
}

struct RocksDb {
    db: Arc<DB>,
    durability: Durability,
}

impl RocksDb {
    fn text(&self, property: &str) -> String {
        self.db.property_value(property).ok().flatten().unwrap_or_default()
    }

    fn number(&self, property: &str) -> Result<u64> {
        Ok(self.db.property_int_value(property)?.unwrap_or(0))
    }
}

impl Engine for RocksDb {
    fn session(&self) -> Result<Box<dyn Session>> {
        let mut write = WriteOptions::default();
        write.set_sync(self.durability == Durability::Sync);
        Ok(Box::new(RocksSession { db: Arc::clone(&self.db), write, read: ReadOptions::default() }))
    }

    fn flush(&self) -> Result<()> {
        Ok(self.db.flush()?)
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
        properties
            .iter()
            .filter_map(|(name, property)| {
                Some((format!("rocksdb.{name}"), self.number(property).ok()? as f64))
            })
            .collect()
    }

    fn stall_us(&self) -> Option<u64> {
        self.text("rocksdb.dbstats").lines().find_map(cumulative_stall_us)
    }

    fn close(self: Box<Self>) -> Result<()> {
        if self.durability == Durability::Buffered {
            self.db.flush_wal(false)?;
        }
        self.db.cancel_all_background_work(true);
        Ok(())
    }
}

/// Reads what RocksDB prints of its bytes, in units of 10 MiB (flushes: 1 MiB). The bytes of
/// compactions have the flushes in them.
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
        let mut batch = WriteBatch::default();
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
        for (index, value) in self.db.multi_get_opt(keys, &self.read).into_iter().enumerate() {
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
    fn the_stall_clock_is_read() {
        assert_eq!(
            cumulative_stall_us("Cumulative stall: 00:01:02.500 H:M:S, 3.4 percent"),
            Some(62_500_000)
        );
        assert_eq!(cumulative_stall_us("Interval stall: 00:00:0.000 H:M:S"), None);
    }
}
