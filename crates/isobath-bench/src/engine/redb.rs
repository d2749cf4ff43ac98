//! redb. A commit without a sync stays in the process's memory until a later one with it, so what
//! it serves without a sync is `buffered`.

use super::registry::EngineKind;
use super::{Durability, Engine, EngineConfig, Operation, RowVisitor, Session};
use anyhow::Result;
use redb::{Database, ReadableDatabase, TableDefinition};
use std::ops::Bound;
use std::sync::Arc;

pub(super) const KIND: EngineKind = EngineKind {
    name: "redb",
    version: || "4.4.0".to_owned(),
    durabilities: &[Durability::Buffered, Durability::Sync],
    answers: true,
    persistent: true,
    open,
};

const TABLE: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("default");
const FILE: &str = "data.redb";

fn open(config: &EngineConfig) -> Result<Box<dyn Engine>> {
    config.check_knobs("redb", &[])?;
    std::fs::create_dir_all(&config.path)?;
    let cache = (config.cache_bytes + config.write_buffer_bytes) as usize;
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
        for operation in operations {
            match *operation {
                Operation::Put(key, value) => table.insert(key, value)?,
                Operation::Delete(key) => table.remove(key)?,
            };
        }
        drop(table);
        Ok(transaction.commit()?)
    }

    fn get(&mut self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let table = self.db.begin_read()?.open_table(TABLE)?;
        let value = table.get(key)?;
        if let Some(value) = &value {
            visit(value.value());
        }
        Ok(value.is_some())
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
        let table = self.db.begin_read()?.open_table(TABLE)?;
        let upper = to.map_or(Bound::Unbounded, Bound::Excluded);
        for row in table.range::<&[u8]>((Bound::Included(from), upper))? {
            let (key, value) = row?;
            if visit(key.value(), value.value()) {
                break;
            }
        }
        Ok(())
    }
}
