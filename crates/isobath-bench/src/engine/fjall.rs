//! fjall, with its own defaults but for the settings that every engine gets alike.

use super::registry::EngineKind;
use super::{Codec, Durability, Engine, EngineConfig, Operation, RowVisitor, Session};
use anyhow::{Result, bail};
use fjall::config::{BloomConstructionPolicy, CompressionPolicy, FilterPolicy, FilterPolicyEntry};
use fjall::{CompressionType, Database, Keyspace, KeyspaceCreateOptions, PersistMode};
use std::collections::BTreeMap;
use std::ops::Bound;

pub(super) const KIND: EngineKind = EngineKind {
    name: "fjall",
    version: || "3.1.13".to_owned(),
    durabilities: &[Durability::Buffered, Durability::Process, Durability::Sync],
    answers: true,
    persistent: true,
    open,
};

const KNOBS: &[&str] = &["worker_threads", "max_journaling_size"];
const KEYSPACE: &str = "default";

fn open(config: &EngineConfig) -> Result<Box<dyn Engine>> {
    config.check_knobs("fjall", KNOBS)?;
    let codec = match config.codec {
        Codec::None => CompressionType::None,
        Codec::Lz4 => CompressionType::Lz4,
        Codec::Zstd | Codec::Snappy => bail!("fjall has no codec but lz4: use --codec lz4 or none"),
    };
    let buffered = config.durability == Durability::Buffered;
    let threads =
        config.knob("worker_threads")?.unwrap_or(config.background_threads.max(1) as usize);
    let mut builder = Database::builder(&config.path)
        .cache_size(config.cache_bytes)
        .worker_threads(threads)
        .manual_journal_persist(buffered);
    if let Some(size) = config.knob("max_journaling_size")? {
        builder = builder.max_journaling_size(size);
    }
    let db = builder.open()?;
    let (write_buffer, bits) = (config.write_buffer_bytes, config.filter_bits);
    let keyspace = db.keyspace(KEYSPACE, || {
        let filter = match bits {
            0 => FilterPolicy::disabled(),
            bits => FilterPolicy::all(FilterPolicyEntry::Bloom(
                BloomConstructionPolicy::BitsPerKey(bits as f32),
            )),
        };
        KeyspaceCreateOptions::default()
            .max_memtable_size(write_buffer)
            .data_block_compression_policy(CompressionPolicy::all(codec))
            .filter_policy(filter)
            .manual_journal_persist(buffered)
    })?;
    Ok(Box::new(Fjall { db, keyspace, durability: config.durability }))
}

struct Fjall {
    db: Database,
    keyspace: Keyspace,
    durability: Durability,
}

impl Engine for Fjall {
    fn session(&self) -> Result<Box<dyn Session>> {
        let sync = self.durability == Durability::Sync;
        Ok(Box::new(FjallSession { db: self.db.clone(), keyspace: self.keyspace.clone(), sync }))
    }

    fn flush(&self) -> Result<()> {
        self.keyspace.rotate_memtable_and_wait()?;
        Ok(())
    }

    fn debt(&self) -> Result<u64> {
        let flushes = self.db.outstanding_flushes() + self.keyspace.sealed_memtable_count();
        Ok((flushes + self.db.active_compactions()) as u64)
    }

    fn level_zero_files(&self) -> Option<u64> {
        Some(self.keyspace.l0_table_count() as u64)
    }

    fn counters(&self) -> BTreeMap<String, f64> {
        let pairs = [
            ("l0_tables", self.keyspace.l0_table_count() as f64),
            ("tables", self.keyspace.table_count() as f64),
            ("sealed_memtables", self.keyspace.sealed_memtable_count() as f64),
            ("active_compactions", self.db.active_compactions() as f64),
            ("compactions", self.db.compactions_completed() as f64),
            ("journals", self.db.journal_count() as f64),
        ];
        pairs.into_iter().map(|(name, value)| (format!("fjall.{name}"), value)).collect()
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.db.persist(PersistMode::Buffer)?;
        Ok(())
    }
}

struct FjallSession {
    db: Database,
    keyspace: Keyspace,
    sync: bool,
}

impl FjallSession {
    fn harden(&self) -> Result<()> {
        if self.sync {
            self.db.persist(PersistMode::SyncData)?;
        }
        Ok(())
    }
}

impl Session for FjallSession {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.keyspace.insert(key, value)?;
        self.harden()
    }

    fn delete(&mut self, key: &[u8]) -> Result<()> {
        self.keyspace.remove(key)?;
        self.harden()
    }

    fn write_batch(&mut self, operations: &[Operation<'_>]) -> Result<()> {
        let mut batch = self.db.batch();
        for operation in operations {
            match *operation {
                Operation::Put(key, value) => batch.insert(&self.keyspace, key, value),
                Operation::Delete(key) => batch.remove(&self.keyspace, key),
            }
        }
        batch.commit()?;
        self.harden()
    }

    fn get(&mut self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let value = self.keyspace.get(key)?;
        if let Some(value) = &value {
            visit(value);
        }
        Ok(value.is_some())
    }

    fn rows(&mut self, from: &[u8], to: Option<&[u8]>, visit: RowVisitor<'_>) -> Result<()> {
        let upper = to.map_or(Bound::Unbounded, Bound::Excluded);
        for row in self.keyspace.range::<&[u8], _>((Bound::Included(from), upper)) {
            let (key, value) = row.into_inner()?;
            if visit(&key, &value) {
                break;
            }
        }
        Ok(())
    }
}
