//! A handle on a column family: a keyspace of its own, with its own options, in one log with the
//! others.

use crate::calls::{CallOptions, Lender};
use crate::compact;
use crate::db::Owner;
use crate::engine::{Engine, Keyspace, Mention, foreign_family};
use crate::error::Result;
use crate::format::OpKind;
use crate::key_range::{KeyRange, bounds_of};
use crate::options::{FamilyOptions, ReadOptions, WriteOptions};
use crate::read::ReadAt;
use crate::reads::{Reads, reads};
use crate::write::{self, Commit};
use crate::writes::writes;
use std::sync::Arc;

/// A column family of an open database: a table that is read and written by calling it. Cheap to
/// clone; keeps the database open.
///
/// Where a family is named beside something else (a part of a [`Batch`](crate::Batch) or of a
/// [`Snapshot`](crate::Snapshot), [`Db::drop_family`](crate::Db::drop_family)), the handle has to
/// be of the same opening of the same database, or the answer is
/// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument). Once the database is closed
/// the answer is [`ErrorKind::Closed`](crate::ErrorKind::Closed); once the family is
/// dropped, [`ErrorKind::UnknownFamily`](crate::ErrorKind::UnknownFamily), except through a
/// snapshot that was taken before. A family created later is another one, even under the same name.
#[doc(alias = "ColumnFamily")]
#[derive(Clone)]
pub struct Family {
    owner: Arc<Owner>,
    keyspace: Arc<Keyspace>,
}

reads!(Family);
writes!(Family, self: &Self => Result<Commit>);

impl Family {
    pub(crate) fn new(keyspace: Arc<Keyspace>, owner: &Arc<Owner>) -> Self {
        Family { owner: owner.clone(), keyspace }
    }

    /// The number that stands for the family on disk; never reused.
    pub fn id(&self) -> u32 {
        self.keyspace.id
    }

    /// The current name.
    pub fn name(&self) -> String {
        self.keyspace.name().to_string()
    }

    /// The options that hold now.
    pub fn options(&self) -> FamilyOptions {
        self.keyspace.options().as_ref().clone()
    }

    /// Changes the options of the family, which are kept with it. What is written from now on
    /// follows them; what is in tables already does when compactions rewrite it. They survive
    /// power loss when it returns. On a full disk it fails, and can be tried again.
    pub fn set_options(&self, options: FamilyOptions) -> Result<()> {
        write::set_family_options(self.engine(), &self.keyspace, options)
    }

    /// The family under these options: [`Reads`] or [`WritesFamily`](crate::WritesFamily), for one
    /// call or for many.
    #[inline]
    pub fn with<O: CallOptions>(&self, options: O) -> O::Part<'_> {
        options.on_family(Lender { engine: self.engine(), family: &self.keyspace })
    }

    /// Compacts the keys within `range` down to the last level, as of what is written now.
    pub fn compact(&self, range: impl KeyRange) -> Result<()> {
        let engine = self.engine();
        engine.check_open()?;
        write::flush_now(engine)?;
        compact::compact_range(engine, &self.keyspace, &bounds_of(range))
    }

    #[inline]
    fn engine(&self) -> &Arc<Engine> {
        self.owner.engine()
    }

    #[inline]
    fn at(&self) -> Result<ReadAt<'_>> {
        Ok(ReadAt::newest(self.engine(), &self.keyspace))
    }

    /// Another family of the same database, as it is now.
    fn part<'a>(&'a self, family: &'a Family) -> Reads<'a> {
        Reads::new(self.engine(), family, None, ReadOptions::default())
    }

    #[inline]
    fn operate(&self, kind: OpKind, key: &[u8], value: &[u8]) -> Result<Commit> {
        let options = WriteOptions::default();
        write::commit_one(self.engine(), &self.keyspace, kind, key, value, options)
    }

    /// What a batch keeps of the handle.
    pub(crate) fn mention(&self) -> Mention {
        Mention::new(self.engine(), &self.keyspace)
    }

    #[inline]
    pub(crate) fn is_mentioned_by(&self, mention: &Mention) -> bool {
        mention.is_of(&self.keyspace)
    }

    /// The family, for the open database that the handle belongs to. There is no other way to it.
    #[inline]
    pub(crate) fn of(&self, engine: &Engine) -> Result<&Arc<Keyspace>> {
        if std::ptr::eq(&**self.engine(), engine) {
            return Ok(&self.keyspace);
        }
        Err(foreign_family(&self.keyspace, self.engine().uuid, engine))
    }
}

impl std::fmt::Debug for Family {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Family({} {:?})", self.id(), self.name())
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use crate::options::Options;
    use crate::table::cache::BlockCache;

    #[test]
    fn a_handle_that_outlives_its_database_holds_no_table_open() {
        let cache = BlockCache::new(1 << 20);
        let db = Options::in_memory().shared_cache(cache.clone()).open("db").unwrap();
        let handles = [db.default_family(), db.family("family").unwrap()];
        for handle in &handles {
            handle.put("key", "value").unwrap();
        }
        db.flush().unwrap();
        for handle in &handles {
            assert_eq!(handle.get("key").unwrap().unwrap(), b"value");
        }
        assert!(cache.resident_bytes() > 0);
        db.close().unwrap();
        assert_eq!(cache.resident_bytes(), 0);
        assert_eq!(handles[1].name(), "family");
    }

    #[test]
    fn a_handle_keeps_the_database_open_and_a_batch_that_names_it_does_not() {
        let db = Options::in_memory().open("db").unwrap();
        let family = db.family("family").unwrap();
        let mut batch = crate::Batch::new();
        batch.of(&family).put("key", "value");
        let engine = std::sync::Arc::downgrade(db.engine());
        drop(db);
        family.put("key", "value").unwrap();
        drop(family);
        assert!(engine.upgrade().is_none());
        assert_eq!(batch.len(), 1);
    }
}
