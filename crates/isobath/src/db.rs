//! The database handle: what a program calls. Each call goes straight to the verb that does it.

use crate::batch::Batch;
use crate::column_family::ColumnFamily;
use crate::engine::Engine;
use crate::error::Result;
use crate::format::OpKind;
use crate::iter::{Cursor, Range, bounds_of, bounds_of_prefix};
use crate::limits::{check_key, check_value};
use crate::metrics::Metrics;
use crate::options::{FamilyOptions, Options, WriteOptions};
use crate::pinned::Slice;
use crate::read::{self, Wanted};
use crate::snapshot::Snapshot;
use crate::write::{self, Commit};
use crate::{close, compact, recover};
use std::ops::RangeBounds;
use std::path::Path;
use std::sync::Arc;

/// An open database. Cheap to clone, usable from any number of threads. When the last clone goes, the database is
/// closed; call [`Db::close`] to hear of errors.
#[derive(Clone)]
pub struct Db {
    owner: Arc<Owner>,
}

/// Closes the database when the last handle goes.
struct Owner {
    engine: Arc<Engine>,
}

impl Drop for Owner {
    fn drop(&mut self) {
        // Whoever wants to know calls `Db::close`.
        let _ = close::close(&self.engine);
    }
}

impl Db {
    /// Opens the database in `path` with the default options, creating it if there is none.
    pub fn open(path: impl AsRef<Path>) -> Result<Db> {
        Options::new().open(path)
    }

    pub(crate) fn open_with(path: &Path, options: Options) -> Result<Db> {
        Ok(Db { owner: Arc::new(Owner { engine: recover::open(path, options)? }) })
    }

    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.owner.engine
    }

    // Writes.

    /// Sets `key` to `value` in the default family.
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<Commit> {
        self.put_with(key, value, WriteOptions::default())
    }

    /// [`Db::put`] with options of its own.
    pub fn put_with(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        options: WriteOptions,
    ) -> Result<Commit> {
        let (key, value) = (key.as_ref(), value.as_ref());
        check_key(key)?;
        check_value(value)?;
        let engine = self.engine();
        write::commit_one(engine, &engine.default_family, OpKind::Put, key, value, options)
    }

    /// Removes `key` from the default family. Not an error if it is not there.
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<Commit> {
        self.delete_with(key, WriteOptions::default())
    }

    /// [`Db::delete`] with options of its own.
    pub fn delete_with(&self, key: impl AsRef<[u8]>, options: WriteOptions) -> Result<Commit> {
        let key = key.as_ref();
        check_key(key)?;
        let engine = self.engine();
        write::commit_one(engine, &engine.default_family, OpKind::Delete, key, &[], options)
    }

    /// Sets `key` to `value` in `family`.
    pub fn put_in(
        &self,
        family: &ColumnFamily,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> Result<Commit> {
        let (key, value) = (key.as_ref(), value.as_ref());
        check_key(key)?;
        check_value(value)?;
        let (engine, options) = (self.engine(), WriteOptions::default());
        write::commit_one(engine, family.of(engine)?, OpKind::Put, key, value, options)
    }

    /// Removes `key` from `family`.
    pub fn delete_in(&self, family: &ColumnFamily, key: impl AsRef<[u8]>) -> Result<Commit> {
        let key = key.as_ref();
        check_key(key)?;
        let (engine, options) = (self.engine(), WriteOptions::default());
        write::commit_one(engine, family.of(engine)?, OpKind::Delete, key, &[], options)
    }

    /// Commits a batch: all of it or nothing, across all the families it names, now and after a crash.
    pub fn write(&self, batch: Batch) -> Result<Commit> {
        self.write_with(batch, WriteOptions::default())
    }

    /// [`Db::write`] with options of its own.
    pub fn write_with(&self, mut batch: Batch, options: WriteOptions) -> Result<Commit> {
        self.write_reusing(&mut batch, options)
    }

    /// [`Db::write_with`] for a caller that goes on using the batch. Whether the write succeeds or fails, the batch stays as
    /// it was: write it again, add to it, or [`Batch::clear`] it, which keeps its memory.
    pub fn write_reusing(&self, batch: &mut Batch, options: WriteOptions) -> Result<Commit> {
        let engine = self.engine();
        write::commit_batch(engine, &engine.default_family, batch, options)
    }

    /// Returns once `commit`, and every commit before it, survives power loss. The commit may have been made before the
    /// database was opened again.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) if the commit is of another database, or did not survive a crash;
    /// [`Error::OutcomeUnknown`](crate::Error::OutcomeUnknown) if the sync failed.
    pub fn harden(&self, commit: Commit) -> Result<()> {
        write::harden_commit(self.engine(), commit)
    }

    /// Returns once everything written so far survives power loss.
    pub fn sync(&self) -> Result<()> {
        write::harden(self.engine(), self.engine().log.visible())
    }

    // Reads.

    /// The value of `key` in the default family.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Slice>> {
        let engine = self.engine();
        read::get(engine, &engine.default_family, key.as_ref(), None, Wanted::Value)
    }

    /// The value of `key` in `family`.
    pub fn get_in(&self, family: &ColumnFamily, key: impl AsRef<[u8]>) -> Result<Option<Slice>> {
        let engine = self.engine();
        read::get(engine, family.of(engine)?, key.as_ref(), None, Wanted::Value)
    }

    /// True if `key` has a value in the default family.
    pub fn contains(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        let engine = self.engine();
        let found =
            read::get(engine, &engine.default_family, key.as_ref(), None, Wanted::Presence)?;
        Ok(found.is_some())
    }

    /// True if `key` has a value in `family`.
    pub fn contains_in(&self, family: &ColumnFamily, key: impl AsRef<[u8]>) -> Result<bool> {
        let engine = self.engine();
        let found = read::get(engine, family.of(engine)?, key.as_ref(), None, Wanted::Presence)?;
        Ok(found.is_some())
    }

    /// The values of several keys of the default family, in their order, all as of one moment.
    pub fn multi_get<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Slice>>> {
        let engine = self.engine();
        read::multi_get(engine, &engine.default_family, keys, None)
    }

    /// The values of several keys of `family`, in their order, all as of one moment.
    pub fn multi_get_in<K: AsRef<[u8]>>(
        &self,
        family: &ColumnFamily,
        keys: &[K],
    ) -> Result<Vec<Option<Slice>>> {
        let engine = self.engine();
        read::multi_get(engine, family.of(engine)?, keys, None)
    }

    /// The keys within `range` of the default family, with their values.
    pub fn range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Range {
        Range::new(self.engine(), Ok(&self.engine().default_family), None, bounds_of(range))
    }

    /// The keys within `range` of `family`, with their values. A handle that cannot be read is the first item's error.
    pub fn range_in<K: AsRef<[u8]>>(
        &self,
        family: &ColumnFamily,
        range: impl RangeBounds<K>,
    ) -> Range {
        Range::new(self.engine(), family.of(self.engine()), None, bounds_of(range))
    }

    /// The keys of the default family that begin with `prefix`, with their values.
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Range {
        let bounds = bounds_of_prefix(prefix.as_ref());
        Range::new(self.engine(), Ok(&self.engine().default_family), None, bounds)
    }

    /// The keys of `family` that begin with `prefix`, with their values; errors as in [`Db::range_in`].
    pub fn prefix_in(&self, family: &ColumnFamily, prefix: impl AsRef<[u8]>) -> Range {
        let bounds = bounds_of_prefix(prefix.as_ref());
        Range::new(self.engine(), family.of(self.engine()), None, bounds)
    }

    /// A seekable cursor over `range` of the default family.
    pub fn cursor<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Result<Cursor> {
        Cursor::new(self.engine(), &self.engine().default_family, None, &bounds_of(range))
    }

    /// A seekable cursor over `range` of `family`.
    pub fn cursor_in<K: AsRef<[u8]>>(
        &self,
        family: &ColumnFamily,
        range: impl RangeBounds<K>,
    ) -> Result<Cursor> {
        let engine = self.engine();
        Cursor::new(engine, family.of(engine)?, None, &bounds_of(range))
    }

    /// Every family as it is now, for as long as the snapshot lives.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::new(self.engine())
    }

    /// A snapshot of what survives power loss: syncs first if newer commits do not yet.
    pub fn durable_snapshot(&self) -> Result<Snapshot> {
        let snapshot = self.snapshot();
        write::harden(self.engine(), snapshot.point())?;
        Ok(snapshot)
    }

    // Column families.

    /// Creates a family with the database's family options. When it returns, the family and every commit before it survive
    /// power loss; so it is with drops and renames.
    ///
    /// # Errors
    /// [`Error::FamilyExists`](crate::Error::FamilyExists) if there is one of this name, whatever its options.
    pub fn create_family(&self, name: &str) -> Result<ColumnFamily> {
        self.create_family_with(name, self.engine().options.family.clone())
    }

    /// Creates a family with options of its own, which are kept with it.
    pub fn create_family_with(&self, name: &str, options: FamilyOptions) -> Result<ColumnFamily> {
        let family = write::create_family(self.engine(), name, options)?;
        Ok(ColumnFamily::new(family, self.engine()))
    }

    /// The family of this name, or [`Error::UnknownFamily`](crate::Error::UnknownFamily).
    pub fn family(&self, name: &str) -> Result<ColumnFamily> {
        self.engine().check_open()?;
        Ok(ColumnFamily::new(self.engine().families.by_name(name)?, self.engine()))
    }

    /// The default family.
    pub fn default_family(&self) -> ColumnFamily {
        ColumnFamily::new(self.engine().default_family.clone(), self.engine())
    }

    /// The names of all families, by the order of their creation.
    pub fn list_families(&self) -> Vec<String> {
        let families = self.engine().families.all();
        let living = families.iter().filter(|family| !family.is_dropped());
        living.map(|family| family.name().to_string()).collect()
    }

    /// Drops a family with all its keys. Iterators that have it open and snapshots from before go on reading what they
    /// see, and hold its files until they are dropped.
    pub fn drop_family(&self, family: &ColumnFamily) -> Result<()> {
        write::drop_family(self.engine(), family.of(self.engine())?)
    }

    /// Gives a family another name. Handles stay valid.
    pub fn rename_family(&self, family: &ColumnFamily, name: &str) -> Result<()> {
        write::rename_family(self.engine(), family.of(self.engine())?, name)
    }

    // Upkeep.

    /// Moves everything written so far from memory into tables, and returns when it is there.
    pub fn flush(&self) -> Result<()> {
        self.engine().check_open()?;
        write::flush_now(self.engine())
    }

    /// Merges the default family down to its last level.
    pub fn compact(&self) -> Result<()> {
        self.compact_range::<&[u8]>(&self.default_family(), ..)
    }

    /// Merges the keys within `range` of `family` down to its last level, as of what is written now.
    pub fn compact_range<K: AsRef<[u8]>>(
        &self,
        family: &ColumnFamily,
        range: impl RangeBounds<K>,
    ) -> Result<()> {
        let family = family.of(self.engine())?;
        self.flush()?;
        compact::compact_range(self.engine(), family, &bounds_of(range))
    }

    /// Waits until no flush and no merge is due or running.
    pub fn settle(&self) -> Result<()> {
        self.settle_while(|| true).map(drop)
    }

    /// Like [`Db::settle`], for those who may have to leave: `go_on` is asked about ten times a second, and when it
    /// refuses, the wait is over and `false` returned. Merges that run go on; none is lost.
    pub fn settle_while(&self, mut go_on: impl FnMut() -> bool) -> Result<bool> {
        self.flush()?;
        compact::settle(self.engine(), &mut go_on)
    }

    /// All counters, as of now.
    pub fn metrics(&self) -> Metrics {
        Metrics::collect(self.engine())
    }

    /// Flushes, stops the background and gives up the directory. Handles that are left answer
    /// [`Error::Closed`](crate::Error::Closed). A second close waits for the first and answers the same. A listener,
    /// which the close may be waiting for, is answered [`Error::Closed`](crate::Error::Closed) at once, and the close
    /// goes on behind it.
    pub fn close(self) -> Result<()> {
        close::close(self.engine())
    }
}

impl std::fmt::Debug for Db {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Db({})", self.engine().dir.display())
    }
}
