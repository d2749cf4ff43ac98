//! fjall's two kinds of transactional databases: `fjall-optimistic`, whose transactions find out
//! when they commit whether what they read has changed, and `fjall-single-writer`, where one
//! transaction that writes excludes the others. What isn't in a transaction goes to the plain
//! database below.

use super::fjall::{Fjall, KEYSPACE, keyspace_options, set_up};
use super::registry::EngineKind;
use super::{
    Access, Body, Durability, Engine, EngineConfig, Operation, RowVisitor, Session, Transactor,
    rerun,
};
use anyhow::{Result, anyhow};
use fjall::{
    Keyspace, OptimisticTxDatabase, OptimisticTxKeyspace, OptimisticWriteTx, PersistMode, Readable,
    SingleWriterTxDatabase, SingleWriterTxKeyspace, SingleWriterWriteTx, Snapshot,
};
use self_cell::self_cell;
use std::collections::BTreeMap;
use std::ops::Bound;

pub(super) const OPTIMISTIC: EngineKind = EngineKind {
    name: "fjall-optimistic",
    transactions: Some("conflicts found at the commit"),
    open: open_optimistic,
    ..super::fjall::KIND
};
pub(super) const SINGLE_WRITER: EngineKind = EngineKind {
    name: "fjall-single-writer",
    transactions: Some("one writer at a time"),
    open: open_single_writer,
    ..super::fjall::KIND
};

fn open_optimistic(config: &EngineConfig) -> Result<Box<dyn Engine>> {
    let options = keyspace_options(config)?;
    let db = set_up!(OptimisticTxDatabase::builder(&config.path), config).open()?;
    let keyspace = db.keyspace(KEYSPACE, || options)?;
    let plain = Fjall::new(db.inner().clone(), keyspace.inner().clone(), config.durability);
    let mode = persist_mode(config);
    let transactor = move || -> Box<dyn Transactor> {
        Box::new(Optimistic { db: db.clone(), keyspace: keyspace.clone(), mode, open: Open::None })
    };
    Ok(Box::new(Transactional { plain, transactor: Box::new(transactor) }))
}

fn open_single_writer(config: &EngineConfig) -> Result<Box<dyn Engine>> {
    let options = keyspace_options(config)?;
    let db = set_up!(SingleWriterTxDatabase::builder(&config.path), config).open()?;
    let keyspace = db.keyspace(KEYSPACE, || options)?;
    let plain = Fjall::new(db.inner().clone(), keyspace.inner().clone(), config.durability);
    let mode = persist_mode(config);
    let transactor = move || -> Box<dyn Transactor> {
        let cell = WriterCell::new(db.clone(), |_| None);
        Box::new(SingleWriter { cell, keyspace: keyspace.clone(), mode, seen: None })
    };
    Ok(Box::new(Transactional { plain, transactor: Box::new(transactor) }))
}

/// What a commit leaves: in the process, with the kernel, or on the device.
fn persist_mode(config: &EngineConfig) -> Option<PersistMode> {
    match config.durability {
        Durability::Buffered => None,
        Durability::Process => Some(PersistMode::Buffer),
        Durability::Sync => Some(PersistMode::SyncData),
    }
}

struct Transactional {
    plain: Fjall,
    transactor: Box<dyn Fn() -> Box<dyn Transactor> + Send + Sync>,
}

impl Engine for Transactional {
    fn session(&self) -> Result<Box<dyn Session>> {
        self.plain.session()
    }

    fn transactor(&self) -> Result<Box<dyn Transactor>> {
        Ok((self.transactor)())
    }

    fn flush(&self) -> Result<()> {
        self.plain.flush()
    }

    fn debt(&self) -> Result<u64> {
        self.plain.debt()
    }

    fn level_zero_files(&self) -> Option<u64> {
        self.plain.level_zero_files()
    }

    fn counters(&self) -> BTreeMap<String, f64> {
        self.plain.counters()
    }

    fn close(self: Box<Self>) -> Result<()> {
        let Transactional { plain, transactor } = *self;
        drop(transactor);
        Box::new(plain).close()
    }
}

enum Open {
    None,
    Read(Snapshot),
    Write(OptimisticWriteTx),
}

struct Optimistic {
    db: OptimisticTxDatabase,
    keyspace: OptimisticTxKeyspace,
    mode: Option<PersistMode>,
    open: Open,
}

fn not_begun() -> anyhow::Error {
    anyhow!("no transaction has begun")
}

fn get(
    from: &impl Readable,
    keyspace: &Keyspace,
    key: &[u8],
    visit: &mut dyn FnMut(&[u8]),
) -> Result<bool> {
    let value = from.get(keyspace, key)?;
    if let Some(value) = &value {
        visit(value);
    }
    Ok(value.is_some())
}

fn rows(
    source: &impl Readable,
    keyspace: &Keyspace,
    (from, to): (&[u8], Option<&[u8]>),
    visit: RowVisitor<'_>,
) -> Result<()> {
    let upper = to.map_or(Bound::Unbounded, Bound::Excluded);
    for row in source.range::<&[u8], _>(keyspace, (Bound::Included(from), upper)) {
        let (key, value) = row.into_inner()?;
        if visit(&key, &value) {
            break;
        }
    }
    Ok(())
}

impl Session for Optimistic {
    fn write_batch(&mut self, operations: &[Operation<'_>]) -> Result<()> {
        let Open::Write(transaction) = &mut self.open else { return Err(not_begun()) };
        for operation in operations {
            match *operation {
                Operation::Put(key, value) => transaction.insert(&self.keyspace, key, value),
                Operation::Delete(key) => transaction.remove(&self.keyspace, key),
            }
        }
        Ok(())
    }

    fn get(&mut self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let keyspace = self.keyspace.inner();
        match &self.open {
            Open::None => Err(not_begun()),
            Open::Read(snapshot) => get(snapshot, keyspace, key, visit),
            Open::Write(transaction) => get(transaction, keyspace, key, visit),
        }
    }

    fn rows(&mut self, from: &[u8], to: Option<&[u8]>, visit: RowVisitor<'_>) -> Result<()> {
        let keyspace = self.keyspace.inner();
        match &self.open {
            Open::None => Err(not_begun()),
            Open::Read(snapshot) => rows(snapshot, keyspace, (from, to), visit),
            Open::Write(transaction) => rows(transaction, keyspace, (from, to), visit),
        }
    }
}

impl Transactor for Optimistic {
    fn begin(&mut self, access: Access) -> Result<()> {
        self.open = match access {
            Access::Read => Open::Read(self.db.read_tx()),
            Access::Write => Open::Write(self.db.write_tx()?.durability(self.mode)),
        };
        Ok(())
    }

    fn commit(&mut self) -> Result<bool> {
        match std::mem::replace(&mut self.open, Open::None) {
            Open::None => Err(not_begun()),
            Open::Read(_) => Ok(true),
            Open::Write(transaction) => Ok(transaction.commit()?.is_ok()),
        }
    }

    fn rollback(&mut self) {
        self.open = Open::None;
    }

    fn transact(&mut self, access: Access, body: Body<'_>) -> Result<u64> {
        rerun(self, access, body)
    }
}

type Writing<'a> = Option<SingleWriterWriteTx<'a>>;

self_cell!(
    /// The transaction holds the lock of the database that it is in.
    struct WriterCell {
        owner: SingleWriterTxDatabase,
        #[not_covariant]
        dependent: Writing,
    }
);

struct SingleWriter {
    cell: WriterCell,
    keyspace: SingleWriterTxKeyspace,
    mode: Option<PersistMode>,
    seen: Option<Snapshot>,
}

impl Session for SingleWriter {
    fn write_batch(&mut self, operations: &[Operation<'_>]) -> Result<()> {
        let keyspace = &self.keyspace;
        self.cell.with_dependent_mut(|_, writing| {
            let transaction = writing.as_mut().ok_or_else(not_begun)?;
            for operation in operations {
                match *operation {
                    Operation::Put(key, value) => transaction.insert(keyspace, key, value),
                    Operation::Delete(key) => transaction.remove(keyspace, key),
                }
            }
            Ok(())
        })
    }

    fn get(&mut self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let keyspace = self.keyspace.inner();
        if let Some(snapshot) = &self.seen {
            return get(snapshot, keyspace, key, visit);
        }
        self.cell.with_dependent(|_, writing| {
            get(writing.as_ref().ok_or_else(not_begun)?, keyspace, key, visit)
        })
    }

    fn rows(&mut self, from: &[u8], to: Option<&[u8]>, visit: RowVisitor<'_>) -> Result<()> {
        let keyspace = self.keyspace.inner();
        if let Some(snapshot) = &self.seen {
            return rows(snapshot, keyspace, (from, to), visit);
        }
        self.cell.with_dependent(|_, writing| {
            rows(writing.as_ref().ok_or_else(not_begun)?, keyspace, (from, to), visit)
        })
    }
}

impl Transactor for SingleWriter {
    fn begin(&mut self, access: Access) -> Result<()> {
        let mode = self.mode;
        if access == Access::Read {
            self.seen = Some(self.cell.borrow_owner().read_tx());
            return Ok(());
        }
        self.cell.with_dependent_mut(|db, writing| *writing = Some(db.write_tx().durability(mode)));
        Ok(())
    }

    fn commit(&mut self) -> Result<bool> {
        if self.seen.take().is_some() {
            return Ok(true);
        }
        self.cell.with_dependent_mut(|_, writing| {
            writing.take().ok_or_else(not_begun)?.commit()?;
            Ok(true)
        })
    }

    fn rollback(&mut self) {
        self.seen = None;
        self.cell.with_dependent_mut(|_, writing| *writing = None);
    }

    fn transact(&mut self, access: Access, body: Body<'_>) -> Result<u64> {
        rerun(self, access, body)
    }
}
