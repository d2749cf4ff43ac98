//! fjall as a [`Store`]: its own defaults, with buffers as small as Isobath's; a family is a
//! keyspace.

use super::{Failure, Store};
use crate::kernel::check::Found;
use crate::kernel::history::{FAMILIES, Plan, Value, Write};
use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};
use std::path::Path;

struct Fjall {
    db: Database,
    keyspaces: Vec<Keyspace>,
}

impl From<fjall::Error> for Failure {
    fn from(error: fjall::Error) -> Failure {
        match error {
            fjall::Error::Io(error) => Failure::Io(error.to_string()),
            error => Failure::Other(error.to_string()),
        }
    }
}

pub(super) fn open(dir: &Path, plan: &Plan) -> Result<Box<dyn Store>, Failure> {
    let db = Database::builder(dir).worker_threads(1).open()?;
    let budget = plan.write_buffer;
    let mut keyspaces = Vec::new();
    for name in FAMILIES {
        let options = || KeyspaceCreateOptions::default().max_memtable_size(budget);
        keyspaces.push(db.keyspace(name, options)?);
    }
    Ok(Box::new(Fjall { db, keyspaces }))
}

impl Store for Fjall {
    fn read_all(&self) -> Result<Found, Failure> {
        let mut found = Found::default();
        for (keyspace, values) in self.keyspaces.iter().zip(&mut found.families) {
            for row in keyspace.iter() {
                let (key, value) = row.into_inner()?;
                values.insert(key.to_vec(), value.to_vec());
            }
        }
        Ok(found)
    }

    fn write(&self, writes: &[Write], is_synced: bool) -> Result<u64, Failure> {
        let mut batch = self.db.batch().durability(is_synced.then_some(PersistMode::SyncData));
        for Write { place: (family, key), value, .. } in writes {
            match value.as_ref().map(Value::bytes) {
                Some(value) => batch.insert(&self.keyspaces[*family], key.as_slice(), value),
                None => batch.remove(&self.keyspaces[*family], key.as_slice()),
            }
        }
        batch.commit()?;
        Ok(0)
    }

    fn sync(&self) -> Result<u64, Failure> {
        self.db.persist(PersistMode::SyncData)?;
        Ok(0)
    }

    fn flush(&self) -> Result<(), Failure> {
        for keyspace in &self.keyspaces {
            keyspace.rotate_memtable_and_wait()?;
        }
        Ok(())
    }

    fn compact(&self) -> Result<(), Failure> {
        for keyspace in &self.keyspaces {
            keyspace.major_compact()?;
        }
        Ok(())
    }

    fn close(self: Box<Self>) -> Result<(), Failure> {
        Ok(self.db.persist(PersistMode::SyncAll)?)
    }
}
