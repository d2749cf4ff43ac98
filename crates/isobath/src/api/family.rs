//! A handle of a column family: a keyspace with options of its own, which shares the log with the
//! other families.

use crate::calls::{FamilyCallOptions, Lender};
use crate::compact;
use crate::db::Owner;
use crate::engine::{Engine, Keyspace, Mention, foreign_family};
use crate::error::Result;
use crate::format::OpKind;
use crate::key_range::{KeyRange, bounds_of};
use crate::options::Expiry;
use crate::options::{FamilyOptions, ReadOptions, WriteOptions};
use crate::read::{DistinctKeys, Estimate, ReadAt, ScanBounds};
use crate::reads::{Reads, reads};
use crate::steps::steps;
use crate::stream::stream_writes;
use crate::write::{self, Commit, check_merges};
use crate::writes::{merges, range_deletes, writes};
use std::io::Read;
use std::sync::Arc;

/// A column family of an open database. Its methods read and write it. A `Family` is cheap to clone
/// and keeps the database open.
///
/// Some calls take a family as an argument: the part of a [`Batch`](crate::Batch) or of a
/// [`Snapshot`](crate::Snapshot), and [`Db::drop_family`](crate::Db::drop_family). The handle must
/// then come from the same opening of the same database; otherwise the call returns
/// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument). Calls return
/// [`ErrorKind::Closed`](crate::ErrorKind::Closed) once the database is closed, and
/// [`ErrorKind::UnknownFamily`](crate::ErrorKind::UnknownFamily) once the family is dropped. A
/// snapshot taken before the drop can still read the family. A family created later is a different
/// family, even under the same name.
#[doc(alias = "ColumnFamily")]
#[derive(Clone)]
pub struct Family {
    owner: Arc<Owner>,
    keyspace: Arc<Keyspace>,
}

reads!(Family);
writes!(Family, self: &Self => Result<Commit>);
range_deletes!(Family, self: &Self => Result<Commit>);
merges!(Family, self: &Self => Result<Commit>);
stream_writes!(Family, self: &Self);
steps!(Family, self => self.with(WriteOptions::default()), Option<Commit>);

impl Family {
    pub(crate) fn new(keyspace: Arc<Keyspace>, owner: &Arc<Owner>) -> Self {
        Family { owner: owner.clone(), keyspace }
    }

    /// The number of the family on disk. It is never reused.
    pub fn id(&self) -> u32 {
        self.keyspace.id
    }

    /// The current name.
    pub fn name(&self) -> String {
        self.keyspace.name().to_string()
    }

    /// The current options.
    pub fn options(&self) -> FamilyOptions {
        self.keyspace.options().as_ref().clone()
    }

    /// Replaces the options of the family and stores them with it. What `options` does not set has
    /// its default from then on, also `ttl`, `compaction_filter`, `separate_from` and
    /// `delete_within`. To change one, begin with [`Family::options`]. Only the merge operator
    /// stays. New tables follow the new options; existing tables change when compactions rewrite
    /// them. When the call returns, the options survive power loss. The call fails if the disk is
    /// full, and can be tried again; if it is not, a later open may find the new options all the
    /// same.
    ///
    /// ```
    /// # fn main() -> isobath::Result<()> {
    /// # let db = isobath::Options::in_memory().open("/db")?;
    /// use isobath::{FamilyOptions, KIB};
    /// use std::time::Duration;
    ///
    /// let hour = Duration::from_secs(3600);
    /// let sessions = db.family(("sessions", FamilyOptions::new().ttl(hour)))?;
    /// sessions.set_options(sessions.options().block_size(16 * KIB))?;
    /// assert_eq!(sessions.options().ttl, Some(hour));
    /// # Ok(())
    /// # }
    /// ```
    pub fn set_options(&self, options: FamilyOptions) -> Result<()> {
        write::set_family_options(self.engine(), &self.keyspace, options)
    }

    /// A handle that uses these options, for one call or for many: [`Reads`] or
    /// [`WritesFamily`](crate::WritesFamily).
    #[inline]
    pub fn with<O: FamilyCallOptions>(&self, options: O) -> O::Part<'_> {
        let engine = self.engine();
        options.on_family(Lender { owner: &self.owner, engine, family: &self.keyspace })
    }

    /// Removes all keys of the family, in the same time however many there are, as
    /// [`delete_range(..)`](Family::delete_range) does. The family and its options stay.
    ///
    /// ```
    /// # fn main() -> isobath::Result<()> {
    /// # let db = isobath::Options::in_memory().open("/db")?;
    /// let sessions = db.family("sessions")?;
    /// sessions.put("1", "alice")?;
    /// sessions.clear()?;
    /// assert_eq!(sessions.count(..)?, 0);
    /// # Ok(())
    /// # }
    /// ```
    pub fn clear(&self) -> Result<Commit> {
        self.delete_range(..)
    }

    /// Compacts the present keys within `range` down to the last level. The files that it has
    /// replaced are gone then, as with [`Db::compact`](crate::Db::compact).
    pub fn compact(&self, range: impl KeyRange) -> Result<()> {
        let engine = self.engine();
        engine.check_open()?;
        write::flush_on_request(engine)?;
        compact::compact_range(engine, &self.keyspace, &bounds_of(range))
    }

    /// About how many keys lie within `range`, and how much room they take. It reads no data, only
    /// indexes: the time grows with the number of tables and with what is in memory, and not with
    /// the range.
    ///
    /// In each level, and in each run of level 0, the estimate is at most a data block off at each
    /// end of the range (`block_size`), if the entries there are about equally long. Besides, some
    /// things are not certain without reading: a key that was overwritten counts once for each
    /// version that is left, a delete as if it hid one key, and a range delete hides nothing until
    /// tables are dropped or compacted for it.
    ///
    /// ```
    /// # fn main() -> isobath::Result<()> {
    /// # let db = isobath::Options::in_memory().open("/db")?;
    /// let words = db.family("words")?;
    /// for word in ["apple", "berry", "cherry"] {
    ///     words.put(word, "")?;
    /// }
    /// assert_eq!(words.estimate("b"..)?.keys, 2);
    /// # Ok(())
    /// # }
    /// ```
    pub fn estimate(&self, range: impl KeyRange) -> Result<Estimate> {
        self.at()?.estimate(&bounds_of(range))
    }

    /// About how many different keys the family has that were given a value which is still stored.
    ///
    /// Each table keeps a small sketch of its keys, and the sketches of all tables together tell
    /// how many different ones there are, so that a key which was overwritten counts once. It reads
    /// no data, only the roots and filters of tables that are not open yet. What is in memory is
    /// walked over, so the time grows with [`Options::write_buffer`](crate::Options::write_buffer).
    ///
    /// A deleted key, or one whose value has ended, counts until compactions have dropped its
    /// values. For keys with a value within a range there is [`estimate`](Family::estimate).
    ///
    /// ```
    /// # fn main() -> isobath::Result<()> {
    /// # let db = isobath::Options::in_memory().open("/db")?;
    /// let words = db.family("words")?;
    /// for word in ["apple", "berry", "apple"] {
    ///     words.put(word, "")?;
    ///     db.flush()?;
    /// }
    /// assert_eq!(words.distinct_keys()?.keys, 2);
    /// # Ok(())
    /// # }
    /// ```
    pub fn distinct_keys(&self) -> Result<DistinctKeys> {
        self.at()?.distinct_keys()
    }

    #[inline]
    fn engine(&self) -> &Arc<Engine> {
        self.owner.engine()
    }

    pub(crate) fn check_merges(&self, key: &[u8]) -> Result<()> {
        check_merges(self.engine(), &self.keyspace, key)
    }

    #[inline]
    fn at(&self) -> Result<ReadAt<'_>> {
        Ok(ReadAt::newest(self.engine(), &self.keyspace))
    }

    /// Reads of another family of the same database; each read sees the newest data.
    fn part<'a>(&'a self, family: &'a Family) -> Reads<'a> {
        Reads::new(self.engine(), family, None, ReadOptions::default())
    }

    #[inline]
    fn operate(&self, kind: OpKind, key: &[u8], value: &[u8]) -> Result<Commit> {
        if kind.is_operand() {
            self.check_merges(key)?;
        }
        let options = WriteOptions::default();
        write::commit_one(self.engine(), &self.keyspace, kind, key, value, options)
    }

    fn put_read(&self, key: &[u8], value: &mut dyn Read) -> Result<Commit> {
        self.with(WriteOptions::default()).put_read(key, value)
    }

    fn put_expiring(&self, key: &[u8], value: &[u8], expiry: Expiry) -> Result<Commit> {
        self.with(WriteOptions::default()).put_expiring(key, value, expiry)
    }

    fn delete_within(&self, bounds: &ScanBounds) -> Result<Commit> {
        self.with(WriteOptions::default()).delete_within(bounds)
    }

    /// What a batch remembers of the handle.
    pub(crate) fn mention(&self) -> Mention {
        Mention::new(self.engine(), &self.keyspace)
    }

    #[inline]
    pub(crate) fn is_mentioned_by(&self, mention: &Mention) -> bool {
        mention.is_of(&self.keyspace)
    }

    /// The family, if the handle belongs to this open database. All access to the family goes
    /// through this check.
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
        assert!(cache.filter_index_bytes() > 0);
        db.close().unwrap();
        assert_eq!(cache.filter_index_bytes(), 0);
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
