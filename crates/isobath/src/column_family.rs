//! A handle on a column family: a keyspace of its own, with its own options, in one log with the others.

use crate::engine::{Engine, Family};
use crate::error::{Error, Result};
use crate::format::FamilyId;
use crate::options::FamilyOptions;
use std::sync::{Arc, Weak};

/// A column family of an open database. Cheap to clone.
///
/// A handle belongs to one opening of one database. Given to another database, or to the same one after it was opened
/// again, every call answers [`Error::InvalidArgument`]: get a new handle with [`Db::family`](crate::Db::family). Once
/// the database is closed the answer is [`Error::Closed`]; once the family is dropped, [`Error::UnknownFamily`], except
/// through a [`Snapshot`](crate::Snapshot) that was taken before. A family created later is another one, even under the
/// same name.
#[derive(Clone)]
pub struct ColumnFamily {
    family: Arc<Family>,
    /// Its address tells openings apart: it is not used again while a handle refers to it.
    engine: Weak<Engine>,
    uuid: [u8; 16],
}

impl ColumnFamily {
    pub(crate) fn new(family: Arc<Family>, engine: &Arc<Engine>) -> Self {
        ColumnFamily { family, engine: Arc::downgrade(engine), uuid: engine.uuid }
    }

    /// The number that stands for the family on disk; never reused.
    pub fn id(&self) -> FamilyId {
        self.family.id
    }

    /// The current name.
    pub fn name(&self) -> String {
        self.family.name().to_string()
    }

    /// The options it was created with.
    pub fn options(&self) -> &FamilyOptions {
        &self.family.options
    }

    pub(crate) fn same_as(&self, other: &ColumnFamily) -> bool {
        Arc::ptr_eq(&self.family, &other.family)
    }

    /// The family, for the open database that the handle belongs to. There is no other way to it.
    #[inline]
    pub(crate) fn of(&self, engine: &Engine) -> Result<&Arc<Family>> {
        if std::ptr::eq(self.engine.as_ptr(), engine) {
            return Ok(&self.family);
        }
        Err(self.foreign_to(engine))
    }

    #[cold]
    fn foreign_to(&self, engine: &Engine) -> Error {
        let owner = match self.uuid == engine.uuid {
            true => "another opening of this database",
            false => "another database",
        };
        Error::InvalidArgument(format!(
            "the handle of column family {:?} belongs to {owner}; get one of this with `Db::family`",
            self.name()
        ))
    }
}

impl std::fmt::Debug for ColumnFamily {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ColumnFamily({} {:?})", self.id(), self.name())
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use crate::cache::BlockCache;
    use crate::options::Options;

    #[test]
    fn a_handle_that_outlives_its_database_holds_no_table_open() {
        let cache = BlockCache::new(1 << 20);
        let db = Options::in_memory().shared_cache(cache.clone()).open("db").unwrap();
        let handles = [db.default_family(), db.create_family("family").unwrap()];
        for handle in &handles {
            db.put_in(handle, "key", "value").unwrap();
        }
        db.flush().unwrap();
        for handle in &handles {
            assert_eq!(db.get_in(handle, "key").unwrap().unwrap(), b"value");
        }
        assert!(cache.resident_bytes() > 0);
        db.close().unwrap();
        assert_eq!(cache.resident_bytes(), 0);
        assert_eq!(handles[1].name(), "family");
    }
}
