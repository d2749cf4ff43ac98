//! The database handle: what a program calls. Each call goes straight to the verb that does it.

use crate::batch::Batch;
use crate::calls::{CallOptions, Lender};
use crate::engine::Engine;
use crate::error::{ErrorKind, Result};
use crate::family::Family;
use crate::family_spec::FamilySpec;
use crate::format::OpKind;
use crate::key_range::bounds_of;
use crate::metrics::Metrics;
use crate::options::{Options, ReadOptions, WriteOptions};
use crate::read::ReadAt;
use crate::reads::{Reads, reads};
use crate::snapshot::Snapshot;
use crate::write::{self, Commit, ReadPoint};
use crate::writes::writes;
use crate::{close, compact, follow, recover};
use std::borrow::BorrowMut;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// An open database; its own reads and writes are those of the default family. Cheap to clone,
/// usable from any number of threads. When the last of its clones, families and snapshots goes, the
/// database is closed; call [`Db::close`] to hear of errors.
#[derive(Clone)]
pub struct Db {
    owner: Arc<Owner>,
}

/// Closes the database when the last handle goes.
pub(crate) struct Owner {
    engine: Arc<Engine>,
}

impl Owner {
    #[inline]
    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        // Whoever wants to know calls `Db::close`.
        let _ = close::close(&self.engine);
    }
}

impl Options {
    /// Opens the database in `path`, recovering what an earlier process left.
    ///
    /// # Errors
    /// [`ErrorKind::Locked`] if it is open elsewhere, [`ErrorKind::NotADatabase`] if the directory
    /// holds something else, [`ErrorKind::Corruption`] naming the file and offset,
    /// [`ErrorKind::NewerFormat`], [`ErrorKind::MissingCodec`], or an I/O error.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Db> {
        self.check()?;
        let open = if self.read_only { follow::open } else { recover::open };
        Ok(Db { owner: Arc::new(Owner { engine: open(path.as_ref(), self.clone())? }) })
    }
}

reads!(Db);
writes!(Db, self: &Self => Result<Commit>);

impl Db {
    /// Opens the database in `path` with the default options, creating it if there is none.
    pub fn open(path: impl AsRef<Path>) -> Result<Db> {
        Options::new().open(path)
    }

    #[inline]
    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.owner.engine
    }

    #[inline]
    fn at(&self) -> Result<ReadAt<'_>> {
        let engine = self.engine();
        Ok(ReadAt::newest(engine, &engine.default_family))
    }

    /// A family as it is now.
    fn part<'a>(&'a self, family: &'a Family) -> Reads<'a> {
        Reads::new(self.engine(), family, None, ReadOptions::default())
    }

    #[inline]
    fn operate(&self, kind: OpKind, key: &[u8], value: &[u8]) -> Result<Commit> {
        let (engine, options) = (self.engine(), WriteOptions::default());
        write::commit_one(engine, &engine.default_family, kind, key, value, options)
    }

    /// Commits a batch: all of it or nothing, across all the families it names, now and after a
    /// crash. Whether that succeeds or fails, a batch that is lent stays as it was: write it
    /// again, add to it, or [`Batch::clear`] it, which keeps its memory.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) if an operation of the
    /// batch is invalid: the first such one is named, and nothing is written.
    pub fn write(&self, mut batch: impl BorrowMut<Batch>) -> Result<Commit> {
        let (engine, options) = (self.engine(), WriteOptions::default());
        write::commit_batch(
            engine,
            &engine.default_family,
            batch.borrow_mut().checked_parts()?,
            options,
        )
    }

    /// The database under these options: [`Reads`](crate::Reads) or [`Writes`](crate::Writes), for
    /// one call or for many.
    #[inline]
    pub fn with<O: CallOptions>(&self, options: O) -> O::Handle<'_> {
        let engine = self.engine();
        options.on(Lender { engine, family: &engine.default_family })
    }

    /// Returns once every commit up to `point` survives power loss: `db.sync_to(commit)`, or
    /// `db.sync_to(snapshot.read_point())` for all that a snapshot sees. The commit may have been
    /// made before the database was opened again.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) if the point is of another
    /// database, or did not survive a crash;
    /// [`ErrorKind::OutcomeUnknown`](crate::ErrorKind::OutcomeUnknown) if the sync failed.
    pub fn sync_to(&self, point: impl Into<ReadPoint>) -> Result<()> {
        write::sync_to(self.engine(), point.into())
    }

    /// True if every commit up to `point` is known to survive power loss, without waiting for it.
    /// False for a point of another database, and where nobody knows: a database that is open
    /// for reading does not know what the writer beside it has synced.
    pub fn is_durable(&self, point: impl Into<ReadPoint>) -> bool {
        write::is_durable(self.engine(), point.into())
    }

    /// Has `callback` run once every commit up to `point` survives power loss, or never will:
    /// [`Db::sync_to`] without a thread that waits. One sync serves all callbacks that wait
    /// when it begins.
    ///
    /// The callback runs exactly once, with what `sync_to` would answer, on a thread of the
    /// database's own; never within this call, also if the commits are durable already. It may
    /// call the database, close it, and own the last handle. Others wait while it runs, and so
    /// does a close by another thread, so it should be short: hand what takes long to a thread of
    /// the program's own. A panic of it ends there.
    ///
    /// ```
    /// # fn main() -> isobath::Result<()> {
    /// # let db = isobath::Options::in_memory().open("durable")?;
    /// let commit = db.put("key", "value")?;
    /// let (sender, receiver) = std::sync::mpsc::channel();
    /// db.on_durable(commit, move |outcome| drop(sender.send(outcome)))?;
    /// receiver.recv().expect("it runs once")?;
    /// assert!(db.is_durable(commit));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of `sync_to` that are known at once: the point is none of this database, the database
    /// is closed, or open for reading only. Or the thread could not be started. The callback
    /// does not run then.
    pub fn on_durable(
        &self,
        point: impl Into<ReadPoint>,
        callback: impl FnOnce(Result<()>) + Send + 'static,
    ) -> Result<()> {
        write::on_durable(self.engine(), point.into(), Box::new(callback))
    }

    /// Returns once everything written so far survives power loss.
    pub fn sync(&self) -> Result<()> {
        write::harden(self.engine(), self.engine().log.visible())
    }

    /// Every family as it is now, for as long as the snapshot lives.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::new(&self.owner)
    }

    // Column families.

    /// The family of this name, which is created if there is none: `db.family("users")`, or with
    /// options `db.family(("users", FamilyOptions::new()))`. When it returns, a family that was
    /// created and every commit before it survive power loss; so it is with drops and renames.
    /// Options that are given become those of the family, also of one that exists.
    pub fn family(&self, spec: impl Into<FamilySpec>) -> Result<Family> {
        let [family] = self.families([spec])?;
        Ok(family)
    }

    /// Several families, as by [`Db::family`]; up to a thousand that are new share one sync. After
    /// an error, or a power cut that no call survived, the first few of the new ones may exist.
    ///
    /// ```
    /// # fn main() -> isobath::Result<()> {
    /// # let db = isobath::Options::in_memory().open("families")?;
    /// let [stock, prices] = db.families(["stock", "prices"])?;
    /// stock.put("cherry", "12")?;
    /// prices.put("cherry", "0.20")?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn families<const N: usize>(
        &self,
        specs: [impl Into<FamilySpec>; N],
    ) -> Result<[Family; N]> {
        let families = self.open_families(specs)?;
        Ok(families.try_into().expect("there is one for each name"))
    }

    /// [`Db::families`] of a number that is known only when it runs.
    pub fn open_families(
        &self,
        specs: impl IntoIterator<Item = impl Into<FamilySpec>>,
    ) -> Result<Vec<Family>> {
        let specs: Vec<FamilySpec> = specs.into_iter().map(Into::into).collect();
        let families = write::open_families(self.engine(), &specs)?;
        Ok(families.into_iter().map(|family| Family::new(family, &self.owner)).collect())
    }

    /// The family of this name, or `None` if there is none.
    pub fn family_if_exists(&self, name: &str) -> Result<Option<Family>> {
        self.engine().check_open()?;
        let family = self.engine().families.by_name(name).ok();
        Ok(family.map(|family| Family::new(family, &self.owner)))
    }

    /// The default family.
    pub fn default_family(&self) -> Family {
        Family::new(self.engine().default_family.clone(), &self.owner)
    }

    /// The names of all families, by the order of their creation.
    pub fn list_families(&self) -> Vec<String> {
        let families = self.engine().families.all();
        let living = families.iter().filter(|family| !family.is_dropped());
        living.map(|family| family.name().to_string()).collect()
    }

    /// Drops a family with all its keys. Iterators that have it open and snapshots from before go
    /// on reading what they see, and hold its files until they are dropped.
    pub fn drop_family(&self, family: &Family) -> Result<()> {
        write::drop_family(self.engine(), family.of(self.engine())?)
    }

    /// Gives a family another name. Handles stay valid.
    pub fn rename_family(&self, family: &Family, name: &str) -> Result<()> {
        write::rename_family(self.engine(), family.of(self.engine())?, name)
    }

    // Maintenance.

    /// Moves everything written so far from memory into tables, and returns when it is there,
    /// [`Db::metrics`] counts it and the listener has heard of it. So do [`Db::compact`] and
    /// [`Db::wait_for_compactions`].
    pub fn flush(&self) -> Result<()> {
        self.engine().check_open()?;
        write::flush_now(self.engine())
    }

    /// Compacts every family down to its last level, as of what is written now; [`Family::compact`]
    /// does one, or a part of it.
    pub fn compact(&self) -> Result<()> {
        self.flush()?;
        let everything = bounds_of(..);
        for family in self.engine().families.all() {
            match compact::compact_range(self.engine(), &family, &everything) {
                // Dropped meanwhile.
                Err(error) if matches!(error.kind(), ErrorKind::UnknownFamily { .. }) => {}
                compacted => compacted?,
            }
        }
        Ok(())
    }

    /// Flushes, starts what compactions are due, those that could wait for an idle time included,
    /// and waits until none is due or running. False if `timeout` is over first; compactions
    /// that run then go on. The flush is not cut short.
    ///
    /// Who has to look around meanwhile asks again and again:
    ///
    /// ```
    /// # use std::time::Duration;
    /// # fn main() -> isobath::Result<()> {
    /// # let db = isobath::Options::in_memory().open("waiting")?;
    /// while !db.wait_for_compactions(Some(Duration::from_millis(100)))? {
    ///     println!("{} bytes to go", db.metrics().pending_compaction_bytes());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn wait_for_compactions(&self, timeout: Option<Duration>) -> Result<bool> {
        let deadline_ns = timeout.map(|timeout| {
            let timeout_ns = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
            self.engine().pacer.now_ns().saturating_add(timeout_ns)
        });
        self.flush()?;
        compact::wait_until_idle(self.engine(), deadline_ns)
    }

    /// Brings a database that is open for reading
    /// ([`Options::read_only`](crate::Options::read_only)) up to what the process that writes
    /// has committed, and answers the read point reached. Reads from then on see it; snapshots and
    /// iterators from before go on as they are. What is seen is always a prefix of the commits,
    /// and the point never goes back.
    ///
    /// A database that is open for writing is always up to date, and answers its newest read point.
    ///
    /// # Errors
    /// [`ErrorKind::Outrun`](crate::ErrorKind::Outrun) if the writer was faster again and again:
    /// nothing changed, try again. [`ErrorKind::MemoryLimit`](crate::ErrorKind::MemoryLimit) if
    /// the log does not fit the memory a reader may take.
    pub fn catch_up(&self) -> Result<ReadPoint> {
        Ok(ReadPoint::new(self.engine(), follow::catch_up(self.engine())?))
    }

    /// All counters, as of now.
    pub fn metrics(&self) -> Metrics {
        Metrics::collect(self.engine())
    }

    /// Flushes, cancels compactions, stops the background and gives up the directory. Handles,
    /// snapshots, ranges and cursors that are left answer
    /// [`ErrorKind::Closed`](crate::ErrorKind::Closed); values that they gave stay valid.
    /// A second close waits for the first and answers the same. A listener, which the close may be
    /// waiting for, is answered [`ErrorKind::Closed`](crate::ErrorKind::Closed) at once, and
    /// the close goes on behind it.
    pub fn close(self) -> Result<()> {
        close::close(self.engine())
    }
}

impl std::fmt::Debug for Db {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Db({})", self.engine().dir.display())
    }
}
