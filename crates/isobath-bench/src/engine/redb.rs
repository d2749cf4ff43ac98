//! redb. A commit without a sync stays in the process's memory until a later one with it, so what
//! it serves without a sync is `buffered`.

use super::registry::EngineKind;
use super::{
    Access, Body, Durability, Engine, EngineConfig, Operation, RowVisitor, Session, Transactor,
    UNFLUSHED_BUFFERS, rerun,
};
use anyhow::{Result, anyhow};
use redb::{
    Database, ReadTransaction, ReadableDatabase, ReadableTable, TableDefinition, WriteTransaction,
};
use std::ops::Bound;
use std::sync::Arc;

pub(super) const KIND: EngineKind = EngineKind {
    name: "redb",
    version: || "4.4.0".to_owned(),
    durabilities: &[Durability::Buffered, Durability::Sync],
    answers: true,
    transactions: Some("one writer at a time"),
    persistent: true,
    open,
};

const TABLE: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("default");
const FILE: &str = "data.redb";

fn open(config: &EngineConfig) -> Result<Box<dyn Engine>> {
    config.check_knobs("redb", &[])?;
    std::fs::create_dir_all(&config.path)?;
    // One cache for pages that were read and for those that are not written yet.
    let cache = (config.cache_bytes + UNFLUSHED_BUFFERS * config.write_buffer_bytes) as usize;
    let db = Database::builder().set_cache_size(cache).create(config.path.join(FILE))?;
    let transaction = db.begin_write()?;
    transaction.open_table(TABLE)?;
    transaction.commit()?;
    let durability = if config.durability == Durability::Sync {
        redb::Durability::Immediate
    } else {
        redb::Durability::None
    };
    Ok(Box::new(Redb { db: Arc::new(db), durability }))
}

struct Redb {
    db: Arc<Database>,
    durability: redb::Durability,
}

impl Engine for Redb {
    fn session(&self) -> Result<Box<dyn Session>> {
        Ok(Box::new(RedbSession { db: Arc::clone(&self.db), durability: self.durability }))
    }

    fn transactor(&self) -> Result<Box<dyn Transactor>> {
        let (db, durability) = (Arc::clone(&self.db), self.durability);
        Ok(Box::new(RedbTransactor { db, durability, open: Open::None }))
    }

    fn flush(&self) -> Result<()> {
        let mut transaction = self.db.begin_write()?;
        transaction.set_durability(redb::Durability::Immediate)?;
        Ok(transaction.commit()?)
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.flush()
    }
}

struct RedbSession {
    db: Arc<Database>,
    durability: redb::Durability,
}

impl Session for RedbSession {
    fn write_batch(&mut self, operations: &[Operation<'_>]) -> Result<()> {
        let mut transaction = self.db.begin_write()?;
        transaction.set_durability(self.durability)?;
        let mut table = transaction.open_table(TABLE)?;
        apply(&mut table, operations)?;
        drop(table);
        Ok(transaction.commit()?)
    }

    fn get(&mut self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        get(&self.db.begin_read()?.open_table(TABLE)?, key, visit)
    }

    fn multi_get(&mut self, keys: &[&[u8]], visit: &mut dyn FnMut(usize, &[u8])) -> Result<()> {
        let table = self.db.begin_read()?.open_table(TABLE)?;
        for (index, key) in keys.iter().enumerate() {
            if let Some(value) = table.get(key)? {
                visit(index, value.value());
            }
        }
        Ok(())
    }

    fn rows(&mut self, from: &[u8], to: Option<&[u8]>, visit: RowVisitor<'_>) -> Result<()> {
        rows(&self.db.begin_read()?.open_table(TABLE)?, from, to, visit)
    }
}

type Bytes = &'static [u8];

fn apply(table: &mut redb::Table<'_, Bytes, Bytes>, operations: &[Operation<'_>]) -> Result<()> {
    for operation in operations {
        match *operation {
            Operation::Put(key, value) => table.insert(key, value)?,
            Operation::Delete(key) => table.remove(key)?,
        };
    }
    Ok(())
}

fn get(
    table: &impl ReadableTable<Bytes, Bytes>,
    key: &[u8],
    visit: &mut dyn FnMut(&[u8]),
) -> Result<bool> {
    let value = table.get(key)?;
    if let Some(value) = &value {
        visit(value.value());
    }
    Ok(value.is_some())
}

fn rows(
    table: &impl ReadableTable<Bytes, Bytes>,
    from: &[u8],
    to: Option<&[u8]>,
    visit: RowVisitor<'_>,
) -> Result<()> {
    let upper = to.map_or(Bound::Unbounded, Bound::Excluded);
    for row in table.range::<&[u8]>((Bound::Included(from), upper))? {
        let (key, value) = row?;
        if visit(key.value(), value.value()) {
            break;
        }
    }
    Ok(())
}

enum Open {
    None,
    Read(ReadTransaction),
    Write(Box<WriteTransaction>),
}

/// One transaction at a time writes; those that read wait for none.
struct RedbTransactor {
    db: Arc<Database>,
    durability: redb::Durability,
    open: Open,
}

fn not_begun() -> anyhow::Error {
    anyhow!("no transaction has begun")
}

impl Session for RedbTransactor {
    fn write_batch(&mut self, operations: &[Operation<'_>]) -> Result<()> {
        let Open::Write(transaction) = &self.open else { return Err(not_begun()) };
        apply(&mut transaction.open_table(TABLE)?, operations)
    }

    fn get(&mut self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        match &self.open {
            Open::None => Err(not_begun()),
            Open::Read(transaction) => get(&transaction.open_table(TABLE)?, key, visit),
            Open::Write(transaction) => get(&transaction.open_table(TABLE)?, key, visit),
        }
    }

    fn rows(&mut self, from: &[u8], to: Option<&[u8]>, visit: RowVisitor<'_>) -> Result<()> {
        match &self.open {
            Open::None => Err(not_begun()),
            Open::Read(transaction) => rows(&transaction.open_table(TABLE)?, from, to, visit),
            Open::Write(transaction) => rows(&transaction.open_table(TABLE)?, from, to, visit),
        }
    }
}

impl Transactor for RedbTransactor {
    fn begin(&mut self, access: Access) -> Result<()> {
        self.open = match access {
            Access::Read => Open::Read(self.db.begin_read()?),
            Access::Write => {
                let mut transaction = self.db.begin_write()?;
                transaction.set_durability(self.durability)?;
                Open::Write(Box::new(transaction))
            }
        };
        Ok(())
    }

    fn commit(&mut self) -> Result<bool> {
        match std::mem::replace(&mut self.open, Open::None) {
            Open::None => return Err(not_begun()),
            Open::Read(_) => {}
            Open::Write(transaction) => transaction.commit()?,
        }
        Ok(true)
    }

    fn rollback(&mut self) {
        self.open = Open::None;
    }

    fn transact(&mut self, access: Access, body: Body<'_>) -> Result<u64> {
        rerun(self, access, body)
    }
}
