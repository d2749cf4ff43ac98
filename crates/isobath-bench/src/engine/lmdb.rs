//! LMDB through heed. Without a sync, pages are written through a shared map, so they survive a
//! killed process; a read opens a transaction, as its users do.

use super::registry::EngineKind;
use super::{
    Access, Body, Durability, Engine, EngineConfig, Operation, RowVisitor, Session, Transactor,
    rerun,
};
use anyhow::{Result, anyhow, ensure};
use heed::types::Bytes;
use heed::{AnyTls, Database, Env, EnvFlags, EnvOpenOptions, RoTxn, RwTxn, WithTls};
use self_cell::self_cell;
use std::collections::BTreeMap;
use std::ops::Bound;

pub(super) const KIND: EngineKind = EngineKind {
    name: "lmdb",
    version: || "0.9 (heed 0.22)".to_owned(),
    durabilities: &[Durability::Process, Durability::Sync],
    answers: true,
    transactions: Some("one writer at a time"),
    persistent: true,
    open,
};

const KNOBS: &[&str] = &["map_size", "max_readers"];
const MAP_SIZE_DEFAULT: usize = 64 << 30;

type Table = Database<Bytes, Bytes>;

fn open(config: &EngineConfig) -> Result<Box<dyn Engine>> {
    config.check_knobs("lmdb", KNOBS)?;
    std::fs::create_dir_all(&config.path)?;
    let mut options = EnvOpenOptions::new();
    options.map_size(config.knob("map_size")?.unwrap_or(MAP_SIZE_DEFAULT));
    options.max_readers(config.knob("max_readers")?.unwrap_or(2048));
    if config.durability != Durability::Sync {
        // SAFETY: the flags may cost data in a power cut. A benchmark can lose its data.
        unsafe { options.flags(EnvFlags::NO_SYNC | EnvFlags::WRITE_MAP) };
    }
    // SAFETY: the harness owns the directory, and nothing else changes the file while it is mapped.
    let env = unsafe { options.open(&config.path)? };
    let mut transaction = env.write_txn()?;
    let table = env.create_database(&mut transaction, None)?;
    transaction.commit()?;
    Ok(Box::new(Lmdb { env, table }))
}

struct Lmdb {
    env: Env,
    table: Table,
}

impl Engine for Lmdb {
    fn session(&self) -> Result<Box<dyn Session>> {
        Ok(Box::new(LmdbSession { env: self.env.clone(), table: self.table }))
    }

    fn transactor(&self) -> Result<Box<dyn Transactor>> {
        let cell = OpenCell::new(self.env.clone(), |_| Open::None);
        Ok(Box::new(LmdbTransactor { cell, table: self.table }))
    }

    fn flush(&self) -> Result<()> {
        Ok(self.env.force_sync()?)
    }

    fn counters(&self) -> BTreeMap<String, f64> {
        let info = self.env.info();
        BTreeMap::from([("lmdb.last_page".to_owned(), info.last_page_number as f64)])
    }

    fn close(self: Box<Self>) -> Result<()> {
        let closing = self.env.prepare_for_closing();
        ensure!(
            closing.wait_timeout(std::time::Duration::from_secs(10)),
            "LMDB did not close: a session is left"
        );
        Ok(())
    }
}

struct LmdbSession {
    env: Env,
    table: Table,
}

impl Session for LmdbSession {
    fn write_batch(&mut self, operations: &[Operation<'_>]) -> Result<()> {
        let mut transaction = self.env.write_txn()?;
        for operation in operations {
            match *operation {
                Operation::Put(key, value) => self.table.put(&mut transaction, key, value)?,
                Operation::Delete(key) => {
                    self.table.delete(&mut transaction, key)?;
                }
            }
        }
        Ok(transaction.commit()?)
    }

    fn get(&mut self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let transaction = self.env.read_txn()?;
        let value = self.table.get(&transaction, key)?;
        if let Some(value) = value {
            visit(value);
        }
        Ok(value.is_some())
    }

    fn multi_get(&mut self, keys: &[&[u8]], visit: &mut dyn FnMut(usize, &[u8])) -> Result<()> {
        let transaction = self.env.read_txn()?;
        for (index, key) in keys.iter().enumerate() {
            if let Some(value) = self.table.get(&transaction, key)? {
                visit(index, value);
            }
        }
        Ok(())
    }

    fn rows(&mut self, from: &[u8], to: Option<&[u8]>, visit: RowVisitor<'_>) -> Result<()> {
        let transaction = self.env.read_txn()?;
        rows(&self.table, &transaction, from, to, visit)
    }
}

fn rows(
    table: &Table,
    transaction: &RoTxn<'_, AnyTls>,
    from: &[u8],
    to: Option<&[u8]>,
    visit: RowVisitor<'_>,
) -> Result<()> {
    // LMDB has no empty keys, not even as a bound.
    let lower = if from.is_empty() { Bound::Unbounded } else { Bound::Included(from) };
    let bounds = (lower, to.map_or(Bound::Unbounded, Bound::Excluded));
    for row in table.range(transaction, &bounds)? {
        let (key, value) = row?;
        if visit(key, value) {
            break;
        }
    }
    Ok(())
}

enum Open<'a> {
    None,
    Read(RoTxn<'a, WithTls>),
    Write(RwTxn<'a>),
}

impl Open<'_> {
    fn reading(&self) -> Result<&RoTxn<'_, AnyTls>> {
        match self {
            Open::None => Err(not_begun()),
            Open::Read(transaction) => Ok(transaction),
            Open::Write(transaction) => Ok(transaction),
        }
    }
}

fn not_begun() -> anyhow::Error {
    anyhow!("no transaction has begun")
}

self_cell!(
    struct OpenCell {
        owner: Env,
        #[not_covariant]
        dependent: Open,
    }
);

/// One transaction at a time writes; those that read wait for none.
struct LmdbTransactor {
    cell: OpenCell,
    table: Table,
}

impl Session for LmdbTransactor {
    fn write_batch(&mut self, operations: &[Operation<'_>]) -> Result<()> {
        let table = self.table;
        self.cell.with_dependent_mut(|_, open| {
            let Open::Write(transaction) = open else { return Err(not_begun()) };
            for operation in operations {
                match *operation {
                    Operation::Put(key, value) => table.put(transaction, key, value)?,
                    Operation::Delete(key) => {
                        table.delete(transaction, key)?;
                    }
                }
            }
            Ok(())
        })
    }

    fn get(&mut self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let table = self.table;
        self.cell.with_dependent(|_, open| {
            let value = table.get(open.reading()?, key)?;
            if let Some(value) = value {
                visit(value);
            }
            Ok(value.is_some())
        })
    }

    fn rows(&mut self, from: &[u8], to: Option<&[u8]>, visit: RowVisitor<'_>) -> Result<()> {
        let table = self.table;
        self.cell.with_dependent(|_, open| rows(&table, open.reading()?, from, to, visit))
    }
}

impl Transactor for LmdbTransactor {
    fn begin(&mut self, access: Access) -> Result<()> {
        self.cell.with_dependent_mut(|env, open| {
            *open = match access {
                Access::Read => Open::Read(env.read_txn()?),
                Access::Write => Open::Write(env.write_txn()?),
            };
            Ok(())
        })
    }

    fn commit(&mut self) -> Result<bool> {
        self.cell.with_dependent_mut(|_, open| {
            match std::mem::replace(open, Open::None) {
                Open::None => return Err(not_begun()),
                Open::Read(_) => {}
                Open::Write(transaction) => transaction.commit()?,
            }
            Ok(true)
        })
    }

    fn rollback(&mut self) {
        self.cell.with_dependent_mut(|_, open| *open = Open::None);
    }

    fn transact(&mut self, access: Access, body: Body<'_>) -> Result<u64> {
        rerun(self, access, body)
    }
}
