//! fjall, with its own defaults except for the settings that every engine gets alike. It holds up
//! to five write buffers, which can't be changed, where others hold three.

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
    transactions: None,
    persistent: true,
    open,
};

pub(super) const KNOBS: &[&str] = &["worker_threads", "max_journaling_size"];
pub(super) const KEYSPACE: &str = "default";

/// Gives a builder of a database of any kind its settings. No function can: the trait that builders
/// of all kinds have in common has no public name.
macro_rules! set_up {
    ($builder:expr, $config:expr) => {{
        let config: &EngineConfig = $config;
        config.check_knobs("fjall", crate::engine::fjall::KNOBS)?;
        // One of the workers flushes first and compacts only when it is the only one.
        let threads = config.background_threads.max(1) as usize + 1;
        let builder = $builder
            .cache_size(config.cache_bytes)
            .worker_threads(config.knob("worker_threads")?.unwrap_or(threads))
            .manual_journal_persist(config.durability == Durability::Buffered);
        match config.knob("max_journaling_size")? {
            Some(size) => builder.max_journaling_size(size),
            None => builder,
        }
    }};
}
pub(super) use set_up;

fn open(config: &EngineConfig) -> Result<Box<dyn Engine>> {
    let options = keyspace_options(config)?;
    let db = set_up!(Database::builder(&config.path), config).open()?;
    let keyspace = db.keyspace(KEYSPACE, || options)?;
    Ok(Box::new(Fjall::new(db, keyspace, config.durability)))
}

pub(super) fn keyspace_options(config: &EngineConfig) -> Result<KeyspaceCreateOptions> {
    let codec = match config.codec {
        Codec::None => CompressionType::None,
        Codec::Lz4 => CompressionType::Lz4,
        Codec::Zstd | Codec::Snappy => bail!("fjall has no codec but lz4: use --codec lz4 or none"),
    };
    let filter = match config.filter_bits {
        0 => FilterPolicy::disabled(),
        bits => FilterPolicy::all(FilterPolicyEntry::Bloom(BloomConstructionPolicy::BitsPerKey(
            bits as f32,
        ))),
    };
    Ok(KeyspaceCreateOptions::default()
        .max_memtable_size(config.write_buffer_bytes)
        .data_block_compression_policy(CompressionPolicy::all(codec))
        .filter_policy(filter)
        .manual_journal_persist(config.durability == Durability::Buffered))
}

pub(super) struct Fjall {
    db: Database,
    keyspace: Keyspace,
    durability: Durability,
}

impl Fjall {
    pub(super) fn new(db: Database, keyspace: Keyspace, durability: Durability) -> Fjall {
        Fjall { db, keyspace, durability }
    }
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
    fn sync_if_asked(&self) -> Result<()> {
        if self.sync {
            self.db.persist(PersistMode::SyncData)?;
        }
        Ok(())
    }
}

impl Session for FjallSession {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.keyspace.insert(key, value)?;
        self.sync_if_asked()
    }

    fn delete(&mut self, key: &[u8]) -> Result<()> {
        self.keyspace.remove(key)?;
        self.sync_if_asked()
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
        self.sync_if_asked()
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
