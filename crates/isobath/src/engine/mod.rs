//! The parts of an open database: the noun that the verbs (write, read, flush, compact, recover)
//! act on.
//!
//! ```text
//! Engine ── log        the write-ahead log and its frontiers
//!        ├─ epochs     the in-memory generations: one open, a few sealed and waiting for flush
//!        ├─ families   name → Keyspace ── view: memtables newest first + tree of slices
//!        ├─ versions   the manifest and the state it describes; every change of it is one edit
//!        ├─ edits      edits of compactions that wait for the manifest; one record takes several
//!        ├─ tables     open tables, and the block cache
//!        ├─ ceiling    how much memory all of it may hold, and what gives way
//!        ├─ disk_room  how much room on the disk writers leave to flushes and compactions
//!        ├─ points     the registry of read points that compactions must respect
//!        ├─ conflicts  which keys were surely not written since an LSN
//!        ├─ locks      keys that transactions have locked, and who waits for them
//!        ├─ clock      the wall clock, as far as it can be believed
//!        ├─ ticks      what time it is at a point, for values that end
//!        ├─ history    for how long earlier points stay readable, and which time they belong to
//!        ├─ running    transactions under way, and how others end them
//!        ├─ spills     files with what large transactions have written so far
//!        ├─ errands    steps that a close waits for, such as the removal of a file
//!        ├─ prepared   transactions that are prepared, until their decision is flushed
//!        ├─ pacer      how fast writers may go: by flushes, and by the backlog of compactions
//!        └─ jobs       background workers; `installer` does for threads of low priority what writers wait for
//! ```

mod backlog;
mod busy;
mod ceiling;
mod clock;
mod compactions;
mod dead_space;
mod disk_room;
mod edits;
mod epochs;
mod errands;
mod families;
mod family;
mod gaps;
mod gauges;
mod held;
mod history;
mod io_limit;
mod layer;
mod line;
mod mention;
#[cfg(all(test, shuttle))]
mod model;
mod notices;
#[cfg(all(test, loom))]
mod order_model;
mod pacer;
mod point_times;
mod prepared;
mod promises;
mod read_points;
mod running;
mod shown;
mod spill;
mod spill_merge;
#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
mod ticks;
mod watch;

pub(crate) use backlog::{Backlog, CompactionDebt};
pub(crate) use busy::{Busy, Claim, Claims, JobId};
pub(crate) use ceiling::{Ceiling, JobMemory, SpillMemory, SpillNeeds};
pub(crate) use clock::TrustedClock;
pub(crate) use compactions::CompactionState;
pub(crate) use disk_room::DiskRoom;
pub(crate) use edits::EditQueue;
#[cfg(all(test, not(any(loom, shuttle))))]
pub(crate) use epochs::RETRY_PAUSE_NS_MAX;
pub(crate) use epochs::{Epoch, Epochs, MAX_SEALED, SealRight};
#[cfg(all(test, not(any(loom, shuttle))))]
pub(crate) use epochs::{MAX_LIGHT, MAX_SMALL};
pub(crate) use errands::Errands;
pub(crate) use families::Families;
pub(crate) use family::{Keyspace, MemtableOf, View};
pub(crate) use gauges::Gauges;
pub(crate) use held::Registered;
pub(crate) use history::{History, opened, raised, raised_from, retained_from, span_ms};
pub(crate) use io_limit::IoLimit;
pub(crate) use layer::Layer;
pub(crate) use line::{Doubtful, Line, Sources};
pub(crate) use mention::{Mention, foreign_family};
pub(crate) use notices::{Notice, Notices};
pub(crate) use pacer::{PACED, Pacer};
pub(crate) use point_times::PointTimes;
pub(crate) use prepared::{EntryLocks, Fate, PreparedEntry, PreparedSet, isolation_of};
pub(crate) use promises::Ticket;
#[cfg(all(test, not(any(loom, shuttle))))]
pub(crate) use read_points::LOOKS as POINT_LOOKS;
pub(crate) use read_points::{Hold, ReadPoints};
pub(crate) use running::Running;
pub(crate) use shown::Shown;
pub(crate) use spill::{SpillFile, SpillWriter, SpilledCursor, SpilledPart, Spills};
pub(crate) use ticks::Ticks;
pub(crate) use watch::{Kept, KeptMemory, Watch};

use crate::background::{Ticker, Workers};
use crate::blob::Fetcher;
use crate::conflict::Conflicts;
use crate::env::sync::Mutex;
use crate::env::sync::atomic::{AtomicBool, Ordering};
use crate::env::{call_back, is_called_back_by};
use crate::error::{Error, ErrorKind, Result};
use crate::events::{BackgroundJob, Event};
use crate::footprint::Spares;
use crate::format::{Lsn, checksum64};
use crate::lock::Locks;
use crate::options::Options;
use crate::table::TableContext;
use crate::telemetry;
use crate::version::{FileNumbers, Term, VersionSet};
use crate::vfs::FileLock;
use crate::wal::Log;
use std::path::PathBuf;
use std::sync::Arc;

/// The locks of keys are spread over so many shards.
const LOCK_SHARDS: usize = 64;

/// An open database.
pub(crate) struct Engine {
    pub(crate) options: Options,
    pub(crate) dir: PathBuf,
    pub(crate) uuid: [u8; 16],
    /// The tag of read points in the term of the log in which the database was opened: see
    /// [`point_tag`].
    pub(crate) point_tag: u64,
    /// Where that term begins.
    pub(crate) begun_at: Lsn,
    pub(crate) log: Arc<Log>,
    pub(crate) epochs: Epochs,
    pub(crate) families: Families,
    pub(crate) default_family: Arc<Keyspace>,
    /// Held across syncs. Threads of low priority take it only through [`Engine::change_versions`].
    pub(crate) versions: Arc<Mutex<VersionSet>>,
    /// Jobs get the numbers of their output files here.
    pub(crate) files: Arc<FileNumbers>,
    pub(crate) points: ReadPoints,
    pub(crate) point_times: PointTimes,
    /// Where commits look for conflicts.
    pub(crate) conflicts: Conflicts,
    /// What transactions have locked.
    pub(crate) locks: Locks,
    /// Memory for transactions.
    pub(crate) spare_footprints: Spares,
    pub(crate) history: History,
    pub(crate) clock: TrustedClock,
    pub(crate) ticks: Arc<Ticks>,
    /// Transactions under way that are known by a number.
    pub(crate) running: Running,
    /// Transactions that are prepared.
    pub(crate) prepared: PreparedSet,
    pub(crate) pacer: Pacer,
    pub(crate) io_limit: Arc<IoLimit>,
    pub(crate) gauges: Gauges,
    /// The ceiling for memory.
    pub(crate) ceiling: Ceiling,
    pub(crate) tables: Arc<TableContext>,
    /// What large transactions have in files.
    pub(crate) spills: Arc<Spills>,
    pub(crate) errands: Arc<Errands>,
    pub(crate) flusher: Workers,
    pub(crate) compactors: Workers,
    /// A thread of normal priority that changes the manifest and syncs the names of tables, on
    /// behalf of threads of low priority. Its jobs never wait for a flush, because a flush that
    /// fails waits for this thread; nor for room on the disk, which compactions can make only
    /// through this thread.
    pub(crate) installer: Workers,
    /// What that thread is to write to the manifest.
    pub(crate) edits: Arc<EditQueue>,
    pub(crate) compactor_count: usize,
    pub(crate) maintenance: Ticker,
    /// Callbacks that wait until a commit is durable, and the thread that runs them.
    pub(crate) notices: Notices,
    pub(crate) closed: AtomicBool,
    /// A flush has succeeded since maintenance looked last.
    pub(crate) has_flushed: AtomicBool,
    pub(crate) disk_room: Arc<DiskRoom>,
    /// An event has told why writes are refused.
    pub(crate) is_failure_told: AtomicBool,
    /// The result of the close, once it is over. The lock is held while the close runs.
    pub(crate) close_outcome: Mutex<Option<Result<()>>>,
    /// How far compactions are behind, by family.
    pub(crate) backlog: Mutex<Backlog>,
    /// Held while a family is created, dropped or renamed.
    pub(crate) families_change: Mutex<()>,
    /// Held while such a change is visible in the log but not yet in the manifest. True once one
    /// was given up there.
    pub(crate) families_pending: Mutex<bool>,
    /// What readers see, if the database is open for reading only.
    pub(crate) shown: Option<Box<Shown>>,
    /// The lock on the directory, held while the database is open for writing.
    pub(crate) lock: Mutex<Option<Box<dyn FileLock>>>,
}

/// The tag of the read points of one term of one database. Points with another tag are refused. By
/// its seed a term has another tag than that of a copy of the database, which was opened as often.
pub(crate) fn point_tag(uuid: &[u8; 16], Term { term, seed, .. }: Term) -> u64 {
    let mut all = [0; 32];
    all[..16].copy_from_slice(uuid);
    all[16..24].copy_from_slice(&term.to_le_bytes());
    all[24..].copy_from_slice(&seed.to_le_bytes());
    // A term without a seed, of an earlier version, keeps its tag.
    checksum64(if seed == 0 { &all[..24] } else { &all })
}

/// Where the term ended whose points have this tag, if it is an earlier one that is known.
pub(crate) fn end_of_term(uuid: &[u8; 16], terms: &[Term], tag: u64) -> Option<Lsn> {
    let before = |at: usize| {
        let number = terms[at].term.wrapping_sub(1);
        let known = at.checked_sub(1).map(|at| terms[at]).filter(|term| term.term == number);
        known.unwrap_or(Term { term: number, ended_at: 0, resumes_at: 0, seed: 0 })
    };
    let next = (0..terms.len()).find(|at| tag == point_tag(uuid, before(*at)))?;
    Some(terms[next].ended_at)
}

/// The table of conflicts of a term that starts at `start`.
pub(crate) fn conflicts_of(options: &Options, start: Lsn) -> Conflicts {
    Conflicts::new(options.sizes.stamp_slots, options.sizes.pending_max, start)
}

/// Locks that mark slots of this table.
pub(crate) fn locks_of(options: &Options, conflicts: &Conflicts) -> Locks {
    Locks::new(LOCK_SHARDS, conflicts.stamps.clone(), options.env.clock.clone())
}

/// The limit that the options set for flushes and compactions.
pub(crate) fn io_limit_of(options: &Options) -> Arc<IoLimit> {
    let env = &options.env;
    Arc::new(IoLimit::new(options.io_rate_limit, env.clock.clone(), env.threads.clone()))
}

/// A thread that removes files removes so many, if there are so many, whatever its limit of time.
const REMOVED_MIN: u64 = 64;

impl Engine {
    /// Registers the newest read point.
    #[inline]
    pub(crate) fn register_point(&self) -> Hold {
        self.tick_if_values_end();
        match &self.shown {
            Some(shown) => self.points.register_at(|| shown.point()),
            None => self.points.register(&self.log),
        }
    }

    /// The tag of a read point at `lsn`: that of the term in which it lies. A history has points of
    /// earlier terms, and a reader may outlast terms of the writing process. Locks the versions
    /// unless the point is of the term of a writer.
    pub(crate) fn tag_at(&self, lsn: Lsn) -> u64 {
        let is_of_this_term = self.shown.is_none() && self.begun_at <= lsn;
        if is_of_this_term { self.point_tag } else { self.tag_of(lsn) }
    }

    /// The tag of a read point at `lsn`, which may belong to an earlier term.
    pub(crate) fn tag_of(&self, lsn: Lsn) -> u64 {
        let versions = self.versions.lock();
        let begun = versions.state().terms().iter().rfind(|term| term.resumes_at <= lsn);
        begun.map_or(self.point_tag, |term| point_tag(&self.uuid, *term))
    }

    /// Waits until all that was reserved by now is visible; for the gate of transactions.
    pub(crate) fn grace(&self) -> Result<Lsn> {
        self.log.before().grace()
    }

    /// The newest read point.
    pub(crate) fn newest_point(&self) -> Lsn {
        self.shown.as_ref().map_or_else(|| self.log.visible(), |shown| shown.point())
    }

    /// Notes at which point the database is now.
    pub(crate) fn note_point_time(&self) {
        let (_, oldest) = self.points.held();
        let now_ns = self.options.env.clock.now_ns();
        self.point_times.note(self.newest_point(), oldest, now_ns);
    }

    /// Reports an event to the listener.
    pub(crate) fn tell(&self, event: Event) {
        call_back(self, || tell(&self.options, &event));
    }

    /// True on a thread that is running the listener or another callback for this database.
    pub(crate) fn is_telling(&self) -> bool {
        is_called_back_by(self)
    }

    /// An error once the database is closed or refuses writes.
    #[inline]
    pub(crate) fn check_writable(&self) -> Result<()> {
        self.check_open()?;
        self.log.check_healthy()
    }

    /// An error if the database is open for reading only.
    pub(crate) fn check_not_read_only(&self) -> Result<()> {
        if self.shown.is_some() { Err(Error::read_only()) } else { Ok(()) }
    }

    #[inline]
    pub(crate) fn check_open(&self) -> Result<()> {
        if self.closed.load(Ordering::Acquire) { Err(Error::closed()) } else { Ok(()) }
    }

    /// Fetches values for readers.
    pub(crate) fn fetcher(&self, fill_cache: bool) -> Fetcher<'_> {
        let whole_max = self.options.sizes.whole_value_max.min(self.ceiling.whole_max);
        Fetcher { tables: &self.tables, counts: &self.gauges.fetched, fill_cache, whole_max }
    }

    /// Refuses writes from now on, because a job that writers depend on has failed.
    pub(crate) fn poison(&self, job: BackgroundJob, error: Error) {
        self.poison_untold(job, error).into_iter().for_each(|event| self.tell(event));
    }

    /// Like [`Engine::poison`], for a caller that holds locks. The caller reports the event after
    /// it has released them.
    #[must_use]
    pub(crate) fn poison_untold(&self, job: BackgroundJob, error: Error) -> Option<Event> {
        if error.is_cancelled() || error.is_closed() {
            return None;
        }
        let was_told = self.is_failure_told.swap(true, Ordering::Relaxed);
        self.log.poison(&error);
        self.epochs.wake_all();
        // A job that only met what another one has told is no news.
        let is_old = was_told && matches!(error.kind(), ErrorKind::Poisoned { .. });
        (!is_old).then_some(Event::BackgroundError { job, error })
    }

    /// Tells once that the log has failed, if no job has told why: a commit or a sync has met it,
    /// and its caller may have gone.
    pub(crate) fn tell_failure(&self) {
        let Err(error) = self.log.check_healthy() else { return };
        let is_failure = matches!(error.kind(), ErrorKind::Poisoned { .. });
        if is_failure && !self.is_failure_told.swap(true, Ordering::Relaxed) {
            self.tell(Event::BackgroundError { job: BackgroundJob::Log, error });
        }
    }

    /// How full the memory for writes is: 1 if all write buffers are used up.
    pub(crate) fn memory_fullness(&self) -> f64 {
        let open = self.epochs.list().open.bytes() as f64 / self.options.buffer_len() as f64;
        (self.heavy_epochs() as f64 + open.min(1.0)) / (MAX_SEALED + 1) as f64
    }

    /// How many sealed epochs use up the memory for writes.
    pub(crate) fn heavy_epochs(&self) -> usize {
        // The list comes first: what it has was sealed by a thread that knew no later frontier.
        let list = self.epochs.list();
        list.heavy(self.options.buffer_len(), self.log.visible())
    }

    /// True if the open epoch may be sealed though it is not full.
    pub(crate) fn may_seal_early(&self) -> bool {
        let (list, write_buffer) = (self.epochs.list(), self.options.buffer_len());
        let (tail, visible) = (self.log.tail(), self.log.visible());
        list.heavy(write_buffer, visible) < MAX_SEALED
            && !list.is_too_small(write_buffer, visible, tail)
    }

    /// Changes the version set on a thread of normal priority, and waits for the result. If a
    /// thread of low priority synced while it holds this lock, writers would wait for it: through
    /// flushes, the log's ceiling and changes of families.
    pub(crate) fn change_versions<T: Send + 'static>(
        &self,
        change: impl FnOnce(&mut VersionSet) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let versions = self.versions.clone();
        self.run_promptly(move || change(&mut versions.lock()))
    }

    /// Runs a job on a thread of normal priority, and waits for the result. For threads of low
    /// priority, whose job takes a lock that other threads wait for.
    pub(crate) fn run_promptly<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.installer.run(job).and_then(|done| done)
    }

    /// Releases memory and tables at the end of a close, so that families and snapshots that
    /// outlive the close hold none. A read that passed [`Engine::check_open`] before the close
    /// finds that its family is gone, not that it is empty.
    pub(crate) fn let_go(&self) {
        self.errands.close();
        self.families.all().iter().for_each(|family| family.shut());
        self.points.shut();
        self.shown.iter().for_each(|shown| shown.let_go());
        self.spills.let_go();
        self.versions.lock().let_go();
    }

    /// Removes table files, blob files, spill files and manifests that nothing needs any more.
    /// Another thread may still be removing one.
    pub(crate) fn remove_obsolete_files(&self) {
        self.remove_obsolete_within(u64::MAX);
    }

    /// The same, for a thread that has other things to do: of tables and blob files it removes
    /// [`REMOVED_MIN`], and more for so many nanoseconds. The rest is left to those who come later.
    pub(crate) fn remove_obsolete_within(&self, limit_ns: u64) {
        self.spills.remove_obsolete();
        self.remove_manifests();
        let obsolete = self.files.obsolete();
        if !obsolete.is_empty()
            && let Err(error) = self.change_versions(VersionSet::doom_obsolete)
            && !error.is_retryable()
        {
            self.poison(BackgroundJob::TableRemoval, error);
        }
        let (ends_ns, mut removed) = (self.pacer.now_ns().saturating_add(limit_ns), 0);
        while (removed < REMOVED_MIN || self.pacer.now_ns() < ends_ns)
            && let Some(errand) = self.errands.begin()
            && let Some(removal) = obsolete.next_removal()
        {
            removed += 1;
            let gone = self.tables.files.remove(removal.number);
            // A listener may take long, and no one waits for it.
            drop((removal, errand));
            gone.into_iter().for_each(|path| self.tell(Event::FileRemoved { path }));
        }
    }

    /// Removes the manifests that were replaced. May block for long.
    pub(crate) fn remove_manifests(&self) {
        if let Some(_errand) = self.errands.begin() {
            self.files.obsolete().remove_manifests(&*self.options.env.fs);
        }
    }
}

impl Drop for Engine {
    /// Releases the memory of all families, because handles may outlive the database.
    fn drop(&mut self) {
        self.families.all().iter().for_each(|family| family.shut());
    }
}

/// Reports an event: to `tracing`, and to the listener.
pub(crate) fn tell(options: &Options, event: &Event) {
    telemetry::call_out(|| telemetry::trace(event));
    if let Some(listener) = &options.listener {
        telemetry::call_out(|| listener(event));
    }
}
