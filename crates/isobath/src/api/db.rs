//! The database handle: what a program calls. Each method calls the module that does the work.

use crate::batch::Batch;
use crate::calls::{CallOptions, Lender};
use crate::engine::Engine;
#[allow(clippy::disallowed_types)] // What programs have.
use crate::env::{SystemTime, unix_ms_of};
use crate::error::{Error, ErrorKind, Result};
use crate::family::Family;
use crate::family_spec::FamilySpec;
use crate::format::OpKind;
use crate::ingest::Ingest;
use crate::key_range::bounds_of;
use crate::metrics::Metrics;
use crate::options::Expiry;
use crate::options::{Options, ReadOptions, TransactionOptions, WriteOptions};
use crate::read::{ReadAt, ScanBounds};
use crate::read_point::ReadPoint;
use crate::reads::{Reads, reads};
use crate::snapshot::Snapshot;
use crate::steps::steps;
use crate::stream::{ValueWriter, stream_writes};
use crate::transaction::Transaction;
use crate::write::{self, Commit, check_merges};
use crate::writes::{merges, range_deletes, writes};
use crate::{close, compact, follow, recover};
use std::borrow::BorrowMut;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// An open database. Its own read and write methods use the default family. A `Db` is cheap to
/// clone and can be used from any number of threads. The database closes when the last of its
/// clones, families, snapshots and transactions is dropped; call [`Db::close`] to get the errors of
/// closing.
#[derive(Clone)]
pub struct Db {
    owner: Arc<Owner>,
}

/// Closes the database when the last handle is dropped.
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
        // A program that needs the error calls `Db::close`.
        close::close_unheard(&self.engine);
    }
}

impl Options {
    /// Opens the database in `path` and recovers what an earlier process left there.
    ///
    /// # Errors
    /// [`ErrorKind::Locked`] if the database is open elsewhere, [`ErrorKind::NotADatabase`] if the
    /// directory holds something else, [`ErrorKind::Corruption`] with the file and the offset,
    /// [`ErrorKind::NewerFormat`], [`ErrorKind::MissingCodec`], or an I/O error.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Db> {
        self.check()?;
        let open = if self.read_only { follow::open } else { recover::open };
        Ok(Db { owner: Arc::new(Owner { engine: open(path.as_ref(), self.clone())? }) })
    }
}

reads!(Db);
writes!(Db, self: &Self => Result<Commit>);
range_deletes!(Db, self: &Self => Result<Commit>);
merges!(Db, self: &Self => Result<Commit>);
stream_writes!(Db, self: &Self);
steps!(Db, self => self.with(WriteOptions::default()).default, Option<Commit>);

impl Db {
    /// Opens the database in `path` with the default options, and creates it if there is none.
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

    /// Reads of a family; each read sees the newest data.
    fn part<'a>(&'a self, family: &'a Family) -> Reads<'a> {
        Reads::new(self.engine(), family, None, ReadOptions::default())
    }

    #[inline]
    fn operate(&self, kind: OpKind, key: &[u8], value: &[u8]) -> Result<Commit> {
        let (engine, options) = (self.engine(), WriteOptions::default());
        if kind.is_operand() {
            check_merges(engine, &engine.default_family, key)?;
        }
        write::commit_one(engine, &engine.default_family, kind, key, value, options)
    }

    fn put_read(&self, key: &[u8], value: &mut dyn Read) -> Result<Commit> {
        self.with(WriteOptions::default()).default.put_read(key, value)
    }

    fn put_expiring(&self, key: &[u8], value: &[u8], expiry: Expiry) -> Result<Commit> {
        self.with(WriteOptions::default()).default.put_expiring(key, value, expiry)
    }

    fn delete_within(&self, bounds: &ScanBounds) -> Result<Commit> {
        self.with(WriteOptions::default()).default.delete_within(bounds)
    }

    /// Begins a value of any length, which is written piece by piece and put by
    /// [`Batch::put_streamed`]. It is compressed as values of `family` in blob files are, and may
    /// be put into any family.
    pub fn value_writer(&self, family: &Family) -> Result<ValueWriter> {
        ValueWriter::new(self.engine(), family)
    }

    /// Commits a batch: all of it or nothing, across all the families it names, also after a crash.
    /// A batch passed by reference stays as it was, whether the write succeeds or fails. You can
    /// write it again, add to it, or call [`Batch::clear`], which keeps its memory.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) if an operation of the
    /// batch is invalid. The error names the first such operation, and nothing is written.
    pub fn write(&self, mut batch: impl BorrowMut<Batch>) -> Result<Commit> {
        let (engine, options) = (self.engine(), WriteOptions::default());
        write::commit_batch(
            engine,
            &engine.default_family,
            batch.borrow_mut().checked_parts(engine, &engine.default_family)?,
            options,
        )
    }

    /// A handle that uses these options, for one call or for many: [`Reads`](crate::Reads),
    /// [`Writes`](crate::Writes) or [`Transactions`](crate::Transactions).
    #[inline]
    pub fn with<O: CallOptions>(&self, options: O) -> O::Handle<'_> {
        let engine = self.engine();
        options.on(Lender { owner: &self.owner, engine, family: &engine.default_family })
    }

    /// Returns once every commit up to `point` survives power loss. Use `db.sync_to(commit)`, or
    /// `db.sync_to(snapshot.read_point())` for everything that a snapshot sees. A point from one of
    /// the last 64 openings of the same database for writing is valid too.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) if the point belongs to
    /// another database, to an opening before those, to commits that did not survive a crash, or to
    /// commits that a [`repair`](crate::tools::repair()) has lost or may have lost;
    /// [`ErrorKind::OutcomeUnknown`](crate::ErrorKind::OutcomeUnknown) if the sync failed.
    pub fn sync_to(&self, point: impl Into<ReadPoint>) -> Result<()> {
        write::sync_to(self.engine(), point.into())
    }

    /// True if every commit up to `point` is known to survive power loss. Never waits. False for a
    /// point of another database or from before its last 64 openings for writing, and false if the
    /// answer is not known: a database that is open for reading only does not know what the writing
    /// process has synced, and after a [`repair`](crate::tools::repair()) it is not known of
    /// commits behind the first loss.
    pub fn is_durable(&self, point: impl Into<ReadPoint>) -> bool {
        write::is_durable(self.engine(), point.into())
    }

    /// Runs `callback` once every commit up to `point` survives power loss, or once that has become
    /// impossible. It is [`Db::sync_to`] without a waiting thread. One sync serves all callbacks
    /// that are waiting when it begins.
    ///
    /// The callback runs exactly once, with the result that `sync_to` would return. It runs on a
    /// thread of the database, and never within this call, even if the commits are durable already.
    /// It may call the database, close it, and own the last handle. Other callbacks wait while it
    /// runs, and so does a close by another thread. So keep it short, and hand long work to a
    /// thread of your own. A panic in the callback ends that callback and nothing else.
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
    /// The errors of `sync_to` that are known at once: the point does not belong to this database,
    /// or the database is closed or open for reading only. Also an error if the thread cannot be
    /// started. In all these cases the callback does not run.
    pub fn on_durable(
        &self,
        point: impl Into<ReadPoint>,
        callback: impl FnOnce(Result<()>) + Send + 'static,
    ) -> Result<()> {
        write::on_durable(self.engine(), point.into(), Box::new(callback))
    }

    /// Returns once everything written so far survives power loss.
    pub fn sync(&self) -> Result<()> {
        write::sync_to_lsn(self.engine(), self.engine().log.visible())
    }

    /// Begins an ingest: sorted keys, any number of them, which go to files and become visible
    /// together.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) if the database was opened
    /// with a [`CommitHook`](crate::CommitHook), which could not be told of all operations.
    pub fn ingest(&self) -> Result<Ingest> {
        Ingest::new(&self.owner)
    }

    /// A snapshot of every family at this moment. It stays the same for as long as it lives.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::new(&self.owner)
    }

    // Transactions.

    /// Begins a transaction at the newest point, serializable and with the default options. Waits
    /// for nothing while no value ends. Once any value has an end, it may have to write to the log
    /// what time it is, and then waits until all commits that are under way are visible, as
    /// [`Db::snapshot`] and scans do. [`Db::with`] takes
    /// [`TransactionOptions`](crate::TransactionOptions).
    pub fn begin(&self) -> Transaction {
        self.with(TransactionOptions::default()).begin()
    }

    /// Runs `body` in a transaction and commits it. If others change what it relied on, `body` runs
    /// again in a new one, up to 16 times. So what it does outside the transaction is done as
    /// often, and belongs behind the call. It must use the transaction for its reads and writes:
    /// a plain write to a key that it has read conflicts with it each time.
    ///
    /// If `body` returns an error, the transaction is rolled back. After
    /// [`ErrorKind::OutcomeUnknown`](crate::ErrorKind::OutcomeUnknown) it does not run again.
    ///
    /// ```
    /// # fn main() -> isobath::Result<()> {
    /// # let db = isobath::Options::in_memory().open("transact")?;
    /// # db.put("ada", [7])?;
    /// # db.put("bob", [1])?;
    /// let amount = 5;
    /// let is_moved = db.transact(|tx| {
    ///     let [from, to] = [tx.get("ada")?, tx.get("bob")?].map(|value| value.map_or(0, |v| v[0]));
    ///     if from < amount {
    ///         return Ok(false);
    ///     }
    ///     tx.put("ada", [from - amount])?;
    ///     tx.put("bob", [to + amount])?;
    ///     Ok(true)
    /// })?;
    /// assert!(is_moved);
    /// assert_eq!(db.get("bob")?.unwrap(), [6]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn transact<T>(&self, body: impl FnMut(&Transaction) -> Result<T>) -> Result<T> {
        self.try_transact(body)
    }

    /// Like [`Db::transact`], for a body with an error type of its own.
    pub fn try_transact<T, E: From<Error>>(
        &self,
        body: impl FnMut(&Transaction) -> Result<T, E>,
    ) -> Result<T, E> {
        Ok(self.with(TransactionOptions::default()).try_transact(body)?.0)
    }

    /// A snapshot of every family as it was at an earlier point: that of a commit, of an earlier
    /// snapshot, or one that a program has stored, also before the database was last opened.
    /// [`Options::history`](crate::Options::history) says how far back points can be read. A family
    /// that was dropped since is not in the snapshot.
    ///
    /// ```
    /// # fn main() -> isobath::Result<()> {
    /// # use std::time::Duration;
    /// let options = isobath::Options::in_memory().history(Duration::from_secs(3600));
    /// let db = options.open("history")?;
    /// let first = db.put("key", "before")?;
    /// db.put("key", "after")?;
    /// db.compact()?;
    /// assert_eq!(db.snapshot_at(first)?.get("key")?.unwrap(), b"before");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::PointTooOld`](crate::ErrorKind::PointTooOld) if the state at the point is not
    /// kept any more, or if a crash has lost commits below it;
    /// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) if the point is ahead of
    /// what is visible, or of another database.
    pub fn snapshot_at(&self, point: impl Into<ReadPoint>) -> Result<Snapshot> {
        let hold = self.engine().register_at(point.into())?;
        Ok(Snapshot::of_hold(&self.owner, hold))
    }

    /// A snapshot of every family as it was at a time. The database notes once a second at which
    /// point it is, less often if [`Options::history`](crate::Options::history) is longer than an
    /// hour. The snapshot shows the newest such point at or before `time`: no commit that began
    /// later, and all those before that point. After a crash, commits that were not in tables yet
    /// count as made when the database was opened again. With the present time or a later one it
    /// is [`Db::snapshot`]. A family that was dropped since is not in it. Of the hour in which a
    /// leap of the clock is doubted ([`Event::ClockLeapt`](crate::Event::ClockLeapt)), the times
    /// are those of before the leap, and the points may lie further apart.
    ///
    /// # Errors
    /// [`ErrorKind::PointTooOld`](crate::ErrorKind::PointTooOld) if the state at that time is not
    /// kept any more.
    #[allow(clippy::disallowed_types)] // What programs have.
    pub fn snapshot_as_of(&self, time: SystemTime) -> Result<Snapshot> {
        let hold = self.engine().register_as_of(unix_ms_of(time))?;
        Ok(Snapshot::of_hold(&self.owner, hold))
    }

    /// The oldest point that [`Db::snapshot_at`] accepts now. It only rises.
    pub fn oldest_readable(&self) -> ReadPoint {
        self.engine().oldest_readable()
    }

    // Column families.

    /// The family with this name, created if it does not exist: `db.family("users")`, or with
    /// options `db.family(("users", FamilyOptions::new()))`. If the call created the family, the
    /// family and every commit before it survive power loss when the call returns. The same holds
    /// for dropping and renaming a family. If options are given, they replace the family's options,
    /// also if the family exists, as [`Family::set_options`] does: all of them but the merge
    /// operator.
    ///
    /// On a full disk a call that creates, drops, renames or clones families fails, or, once it has
    /// begun in the log, which cannot be taken back, waits until there is room or the database
    /// closes.
    pub fn family(&self, spec: impl Into<FamilySpec>) -> Result<Family> {
        let [family] = self.families([spec])?;
        Ok(family)
    }

    /// Several families, each as by [`Db::family`]. Up to a thousand new families share one sync.
    /// After an error, or a power cut during the call, some of the new families may exist: the
    /// first ones of the list.
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

    /// Like [`Db::families`], for a number of families that is known only at run time.
    pub fn open_families(
        &self,
        specs: impl IntoIterator<Item = impl Into<FamilySpec>>,
    ) -> Result<Vec<Family>> {
        let specs: Vec<FamilySpec> = specs.into_iter().map(Into::into).collect();
        let families = write::open_families(self.engine(), &specs)?;
        Ok(families.into_iter().map(|family| Family::new(family, &self.owner)).collect())
    }

    /// The family with this name, or `None` if it does not exist.
    pub fn family_if_exists(&self, name: &str) -> Result<Option<Family>> {
        self.engine().check_open()?;
        let family = self.engine().families.by_name(name).ok();
        Ok(family.map(|family| Family::new(family, &self.owner)))
    }

    /// The default family.
    pub fn default_family(&self) -> Family {
        Family::new(self.engine().default_family.clone(), &self.owner)
    }

    /// The names of all families, in the order of their creation.
    pub fn list_families(&self) -> Vec<String> {
        let families = self.engine().families.all();
        let living = families.iter().filter(|family| !family.is_dropped());
        living.map(|family| family.name().to_string()).collect()
    }

    /// Drops a family with all its keys. Iterators that are open on it, and snapshots taken before,
    /// can still read it. Its files stay until these are dropped.
    pub fn drop_family(&self, family: &Family) -> Result<()> {
        write::drop_family(self.engine(), family.of(self.engine())?)
    }

    /// Gives a family another name. Handles stay valid.
    pub fn rename_family(&self, family: &Family, name: &str) -> Result<()> {
        write::rename_family(self.engine(), family.of(self.engine())?, name)
    }

    /// Makes a family that holds what `source` holds, with its options, and returns it. The two
    /// share their files, however large they are, and from then on each goes its own way. The call
    /// costs a flush and a sync of the manifest.
    ///
    /// The clone holds every commit that was visible when the call began, and none that began after
    /// it returned; whatever commits meanwhile is in it up to one point of the history of all
    /// families, and not from there on. Snapshots from before that point find the clone empty, and
    /// a transaction that began before it conflicts if it has read in the clone. What a prepared
    /// transaction in doubt has written is not in the clone, whatever becomes of it. When the call
    /// returns, the clone survives power loss.
    ///
    /// A file leaves the disk once neither family needs it. So a clone costs room as its source is
    /// written, like a snapshot, and as it is written itself.
    ///
    /// ```
    /// # fn main() -> isobath::Result<()> {
    /// # let db = isobath::Options::in_memory().open("clone")?;
    /// let live = db.family("live")?;
    /// live.put("key", "value")?;
    /// let trial = db.clone_family(&live, "trial")?;
    /// trial.put("key", "other")?;
    /// live.delete("key")?;
    /// assert_eq!(trial.get("key")?.unwrap(), "other");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::UnknownFamily`](crate::ErrorKind::UnknownFamily) if `source` was dropped;
    /// [`ErrorKind::FamilyExists`](crate::ErrorKind::FamilyExists) if a family has the name;
    /// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) if the name cannot be one,
    /// or if `source` belongs to another database.
    pub fn clone_family(&self, source: &Family, name: &str) -> Result<Family> {
        let clone = write::clone_family(self.engine(), source.of(self.engine())?, name)?;
        Ok(Family::new(clone, &self.owner))
    }

    // Maintenance.

    /// Moves everything written so far from memory into tables. When it returns, [`Db::metrics`]
    /// counts the flush and the event listener has been called for it. The same holds for
    /// [`Db::compact`] and [`Db::wait_for_compactions`].
    pub fn flush(&self) -> Result<()> {
        self.engine().check_open()?;
        write::flush_on_request(self.engine())
    }

    /// Compacts the present data of every family down to its last level. [`Family::compact`]
    /// compacts one family, or a part of it. When it returns, the files that it has replaced are
    /// gone, but for those that a reader still holds.
    pub fn compact(&self) -> Result<()> {
        self.flush()?;
        let everything = bounds_of(..);
        for family in self.engine().families.all() {
            match compact::compact_range(self.engine(), &family, &everything) {
                // The family was dropped in the meantime.
                Err(error) if matches!(error.kind(), ErrorKind::UnknownFamily { .. }) => {}
                compacted => compacted?,
            }
        }
        Ok(())
    }

    /// Flushes, starts all compactions that are due, including those that would wait for an idle
    /// time, and waits until none is due or running. Returns false if `timeout` passes first;
    /// running compactions then continue. The timeout does not cut the flush short. Each call
    /// flushes, so beside writers a loop of calls makes many small runs.
    ///
    /// To do other work while you wait, call it repeatedly with a short timeout:
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

    /// Updates a database that is open for reading only
    /// ([`Options::read_only`](crate::Options::read_only)) to what the writing process has
    /// committed, and returns the read point reached. Later reads see the new state. Existing
    /// snapshots and iterators do not change. A reader always sees a prefix of the commits, and its
    /// read point never goes back.
    ///
    /// A database that is open for writing is always up to date, and returns its newest read point.
    ///
    /// # Errors
    /// [`ErrorKind::Outrun`](crate::ErrorKind::Outrun) if the writer changed the files too fast in
    /// every attempt: try again. Reads show what they did before, or a later prefix.
    /// [`ErrorKind::MemoryLimit`](crate::ErrorKind::MemoryLimit) if the log does not fit into the
    /// memory that a reader may take. [`ErrorKind::NotADatabase`](crate::ErrorKind::NotADatabase)
    /// if another database is in its place, or it was restored or repaired.
    pub fn catch_up(&self) -> Result<ReadPoint> {
        Ok(self.engine().read_point(follow::catch_up(self.engine())?))
    }

    /// All counters, at this moment.
    pub fn metrics(&self) -> Metrics {
        Metrics::collect(self.engine())
    }

    /// Flushes, cancels compactions, stops the background threads, syncs, and releases the
    /// directory. If it succeeds, everything that was committed survives power loss.
    /// Remaining handles, snapshots, transactions, ranges and cursors then return
    /// [`ErrorKind::Closed`](crate::ErrorKind::Closed). Values that they returned before stay
    /// valid. A second close waits for the first one and returns the same result. If an event
    /// listener or a callback of [`Db::on_durable`] calls `close`, it gets
    /// [`ErrorKind::Closed`](crate::ErrorKind::Closed) at once, and the close continues on another
    /// thread, because the close waits for that listener or callback.
    ///
    /// # Errors
    /// Whatever kept the flush or the last sync from success. The database is closed all the same.
    /// After an error that [`is_retryable`](crate::Error::is_retryable), as a full disk, all that
    /// was acknowledged is in the log, and the next open reads it.
    pub fn close(self) -> Result<()> {
        close::close(self.engine())
    }
}

impl std::fmt::Debug for Db {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Db({})", self.engine().dir.display())
    }
}
