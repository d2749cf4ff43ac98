//! Isobath itself. As `isobath` its transactions find conflicts when they commit, as
//! `isobath-locking` they lock what they read and write, and as `isobath-mapped` its tables and log
//! are mapped into memory; all else is the same.

use super::registry::EngineKind;
use super::{
    Access, Body, Codec, Conflict, Drained, Durability, Engine, EngineConfig, Operation,
    RowVisitor, Session, Transactor, Written,
};
use anyhow::{Result, anyhow, bail};
use isobath::{Batch, Db, FamilyOptions, IoMode, Options, Transaction, TransactionOptions};
use std::collections::BTreeMap;
use std::time::Duration;

/// The longest wait for compactions before the caller is asked again whether to go on.
const LOOK_UP: Duration = Duration::from_millis(100);

pub(super) const KIND: EngineKind = EngineKind {
    name: "isobath",
    version: || env!("CARGO_PKG_VERSION").to_owned(),
    durabilities: &[Durability::Buffered, Durability::Process, Durability::Sync],
    answers: true,
    transactions: Some("conflicts found at the commit"),
    persistent: true,
    open: |config| open(config, Form::Plain),
};

pub(super) const LOCKING: EngineKind = EngineKind {
    name: "isobath-locking",
    transactions: Some(LOCKS),
    open: |config| open(config, Form::Locking),
    ..KIND
};

pub(super) const MAPPED: EngineKind =
    EngineKind { name: "isobath-mapped", open: |config| open(config, Form::Mapped), ..KIND };

#[derive(Clone, Copy, PartialEq)]
enum Form {
    Plain,
    Locking,
    Mapped,
}

const LOCKS: &str = "what is read and written is locked";

const KNOBS: &[&str] = &[
    "block_size",
    "level_size_ratio",
    "codecs",
    "compaction_threads",
    "max_open_files",
    "io",
    "separate_from",
];

fn open(config: &EngineConfig, form: Form) -> Result<Box<dyn Engine>> {
    config.check_knobs("isobath", KNOBS)?;
    let mut family =
        FamilyOptions::new().codecs(codecs(config)?).filter_bits_per_key(config.filter_bits);
    if let Some(bytes) = config.knob("block_size")? {
        family = family.block_size(bytes);
    }
    if let Some(ratio) = config.knob("level_size_ratio")? {
        family = family.level_size_ratio(ratio);
    }
    if let Some(bytes) = config.knob::<u64>("separate_from")? {
        family = family.separate_from(bytes);
    }
    let threads =
        config.knob("compaction_threads")?.unwrap_or(config.background_threads.max(1) as usize);
    let mut options = Options::new()
        .write_buffer(config.write_buffer_bytes)
        .block_cache(config.cache_bytes)
        .durability(durability(config.durability))
        .compaction_threads(threads)
        .family(family);
    options = options.io(match config.knobs.get("io").map(String::as_str) {
        Some(_) if form == Form::Mapped => bail!("isobath-mapped takes no knob `io`: isobath does"),
        None if form == Form::Mapped => IoMode::Mapped,
        None | Some("auto") => IoMode::Auto,
        Some("mapped") => IoMode::Mapped,
        Some("positional") => IoMode::Positional,
        Some(other) => bail!("knob `io`: `{other}` is none of auto, mapped, positional"),
    });
    if let Some(files) = config.knob::<usize>("max_open_files")? {
        options = options.max_open_files(files);
    }
    Ok(Box::new(Isobath { db: options.open(&config.path)?, locking: form == Form::Locking }))
}

/// One codec for all levels, as the peers have; the knob names one for each level.
fn codecs(config: &EngineConfig) -> Result<Vec<isobath::Codec>> {
    let Some(names) = config.knobs.get("codecs") else {
        return Ok(vec![match config.codec {
            Codec::None => isobath::Codec::None,
            Codec::Lz4 => isobath::Codec::Lz4,
            Codec::Zstd => isobath::Codec::Zstd,
            Codec::Snappy => isobath::Codec::Snappy,
        }]);
    };
    names
        .split(',')
        .map(|name| match name.trim() {
            "none" => Ok(isobath::Codec::None),
            "lz4" => Ok(isobath::Codec::Lz4),
            "zstd" => Ok(isobath::Codec::Zstd),
            "snappy" => Ok(isobath::Codec::Snappy),
            other => bail!("knob `codecs`: `{other}` is none of none, lz4, zstd, snappy"),
        })
        .collect()
}

fn durability(level: Durability) -> isobath::Durability {
    match level {
        // Isobath has no level below `Process`: one would not be faster.
        Durability::Buffered | Durability::Process => isobath::Durability::Process,
        Durability::Sync => isobath::Durability::Sync,
    }
}

struct Isobath {
    db: Db,
    locking: bool,
}

impl Engine for Isobath {
    fn session(&self) -> Result<Box<dyn Session>> {
        Ok(Box::new(IsobathSession { db: self.db.clone(), batch: Batch::new() }))
    }

    fn transactor(&self) -> Result<Box<dyn Transactor>> {
        // A workload is patient: it runs a transaction again until it commits.
        let options = TransactionOptions::new().locking(self.locking).attempts(u32::MAX);
        Ok(Box::new(IsobathTransactor { db: self.db.clone(), options, open: None }))
    }

    fn flush(&self) -> Result<()> {
        Ok(self.db.flush()?)
    }

    fn drain(&self, go_on: &mut dyn FnMut() -> bool) -> Result<Drained> {
        while go_on() {
            if self.db.wait_for_compactions(Some(LOOK_UP))? {
                return Ok(Drained::Done);
            }
        }
        Ok(Drained::Stopped)
    }

    fn debt(&self) -> Result<u64> {
        let metrics = self.db.metrics();
        Ok(metrics.immutable_memtables + metrics.level0_runs())
    }

    fn backlog(&self) -> Option<u64> {
        let metrics = self.db.metrics();
        Some(metrics.pending_compaction_bytes() + metrics.memtable_bytes)
    }

    fn level_zero_files(&self) -> Option<u64> {
        Some(self.db.metrics().level0_runs())
    }

    fn written(&self) -> Written {
        let metrics = self.db.metrics();
        Written {
            log: Some(metrics.log_bytes),
            flush: Some(metrics.flush_bytes),
            compaction: Some(metrics.compaction_written_bytes),
        }
    }

    fn counters(&self) -> BTreeMap<String, f64> {
        let metrics = self.db.metrics();
        let mut counters: BTreeMap<String, f64> = [
            ("log_bytes", metrics.log_bytes),
            ("log_syncs", metrics.log_syncs),
            ("memtable_bytes", metrics.memtable_bytes),
            ("memtable_reserved_bytes", metrics.memtable_reserved_bytes),
            ("immutable_memtables", metrics.immutable_memtables),
            ("flushes", metrics.flushes),
            ("flush_bytes", metrics.flush_bytes),
            ("compactions", metrics.compactions),
            ("trivial_moves", metrics.trivial_moves),
            ("compaction_read_bytes", metrics.compaction_read_bytes),
            ("compaction_written_bytes", metrics.compaction_written_bytes),
            ("cache_hits", metrics.cache_hits),
            ("cache_misses", metrics.cache_misses),
            ("cache_bytes", metrics.cache_bytes),
            ("values_fetched", metrics.values_fetched),
            ("value_reads", metrics.value_reads),
            ("value_read_bytes", metrics.value_read_bytes),
            ("filter_index_bytes", metrics.filter_index_bytes),
            ("level0_runs", metrics.level0_runs()),
            ("pending_compaction_bytes", metrics.pending_compaction_bytes()),
            ("table_bytes", metrics.table_bytes()),
        ]
        .into_iter()
        .map(|(name, value)| (format!("isobath.{name}"), value as f64))
        .collect();
        for stall in &metrics.stalls {
            counters
                .insert(format!("isobath.stall.{}_ms", stall.cause), stall.total_ns as f64 / 1e6);
            counters
                .insert(format!("isobath.stall.{}_max_ms", stall.cause), stall.max_ns as f64 / 1e6);
        }
        counters
    }

    fn stall_us(&self) -> Option<u64> {
        Some(self.db.metrics().stalls.iter().map(|stall| stall.total_ns).sum::<u64>() / 1000)
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(self.db.close()?)
    }
}

struct IsobathSession {
    db: Db,
    /// Its memory is used again.
    batch: Batch,
}

impl Session for IsobathSession {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.db.put(key, value)?;
        Ok(())
    }

    fn delete(&mut self, key: &[u8]) -> Result<()> {
        self.db.delete(key)?;
        Ok(())
    }

    fn write_batch(&mut self, operations: &[Operation<'_>]) -> Result<()> {
        self.batch.clear();
        for operation in operations {
            match *operation {
                Operation::Put(key, value) => self.batch.put(key, value),
                Operation::Delete(key) => self.batch.delete(key),
            };
        }
        self.db.write(&mut self.batch)?;
        Ok(())
    }

    fn get(&mut self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let value = self.db.get(key)?;
        if let Some(value) = &value {
            visit(value);
        }
        Ok(value.is_some())
    }

    fn multi_get(&mut self, keys: &[&[u8]], visit: &mut dyn FnMut(usize, &[u8])) -> Result<()> {
        for (index, value) in self.db.multi_get(keys)?.iter().enumerate() {
            if let Some(value) = value {
                visit(index, value);
            }
        }
        Ok(())
    }

    fn rows(&mut self, from: &[u8], to: Option<&[u8]>, visit: RowVisitor<'_>) -> Result<()> {
        let mut rows = match to {
            Some(to) => self.db.cursor(from..to)?,
            None => self.db.cursor(from..)?,
        };
        while let Some(row) = rows.next()? {
            if visit(row.key(), row.value()?) {
                break;
            }
        }
        Ok(())
    }

    fn seek(&mut self, key: &[u8], visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<bool> {
        let mut rows = self.db.cursor(..)?;
        let row = rows.seek(key)?;
        if let Some(row) = row {
            visit(row.key(), row.value()?);
        }
        Ok(row.is_some())
    }
}

struct IsobathTransactor {
    db: Db,
    options: TransactionOptions,
    open: Option<Transaction>,
}

impl IsobathTransactor {
    /// A transaction that only reads needs no locks: it sees one moment, whatever others do, and
    /// always commits.
    fn options(&self, access: Access) -> TransactionOptions {
        match access {
            Access::Read => self.options.locking(false),
            Access::Write => self.options,
        }
    }

    fn within(&self) -> Result<Within<'_>> {
        self.open.as_ref().map(Within).ok_or_else(|| anyhow!("no transaction has begun"))
    }
}

impl Session for IsobathTransactor {
    fn write_batch(&mut self, operations: &[Operation<'_>]) -> Result<()> {
        self.within()?.write_batch(operations)
    }

    fn get(&mut self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        self.within()?.get(key, visit)
    }

    fn rows(&mut self, from: &[u8], to: Option<&[u8]>, visit: RowVisitor<'_>) -> Result<()> {
        self.within()?.rows(from, to, visit)
    }
}

impl Transactor for IsobathTransactor {
    fn begin(&mut self, access: Access) -> Result<()> {
        self.open = Some(self.db.with(self.options(access)).begin());
        Ok(())
    }

    fn commit(&mut self) -> Result<bool> {
        match self.open.take().map(Transaction::commit) {
            Some(Err(error)) if error.is_conflict() => Ok(false),
            Some(outcome) => Ok(outcome.map(|_| true)?),
            None => bail!("no transaction has begun"),
        }
    }

    fn rollback(&mut self) {
        self.open = None;
    }

    /// Uses the engine's own way to run a transaction again: after several conflicts on a key it
    /// locks the key.
    fn transact(&mut self, access: Access, body: Body<'_>) -> Result<u64> {
        let mut attempts = 0;
        self.db.with(self.options(access)).try_transact(|transaction| {
            attempts += 1;
            body(&mut Within(transaction))
        })?;
        Ok(attempts - 1)
    }
}

/// A transaction that has begun.
struct Within<'a>(&'a Transaction);

fn conflict(error: isobath::Error) -> anyhow::Error {
    if error.is_conflict() { Conflict.into() } else { error.into() }
}

impl Session for Within<'_> {
    fn write_batch(&mut self, operations: &[Operation<'_>]) -> Result<()> {
        for operation in operations {
            match *operation {
                Operation::Put(key, value) => self.0.put(key, value),
                Operation::Delete(key) => self.0.delete(key),
            }
            .map_err(conflict)?;
        }
        Ok(())
    }

    fn get(&mut self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let value = self.0.get(key).map_err(conflict)?;
        if let Some(value) = &value {
            visit(value);
        }
        Ok(value.is_some())
    }

    fn rows(&mut self, from: &[u8], to: Option<&[u8]>, visit: RowVisitor<'_>) -> Result<()> {
        let mut rows = match to {
            Some(to) => self.0.cursor(from..to),
            None => self.0.cursor(from..),
        }
        .map_err(conflict)?;
        while let Some(row) = rows.next().map_err(conflict)? {
            if visit(row.key(), row.value().map_err(conflict)?) {
                break;
            }
        }
        Ok(())
    }
}
