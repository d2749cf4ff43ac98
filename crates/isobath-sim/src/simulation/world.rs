//! The world of a simulated database: a disk that can die at any operation, virtual time, seeded
//! randomness, tasks.

use super::disk::SimFs;
use super::runtime;
use super::simulate::DB;
use super::trouble::{Damage, Trouble};
use super::wall::WallClock;
use super::weather::Weather;
use isobath::env::reach::{Reach, reached};
use isobath::env::simulation::without_preemption;
use isobath::env::{Clock, Env, Priority, Random, ThreadHandle, Threads};
use isobath::vfs::{Fault, FileOp, FileSystem as _, MemoryFs, UnsyncedKind};
use isobath::{Error, ErrorKind};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// How the machine dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Death {
    /// The process is killed: what reached the kernel stays.
    Kill,
    /// The power goes: what was not synced stays or goes, piece by piece.
    Power,
}

/// Operations on files that are worth dying at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    Any,
    /// An edit in the manifest is synced: the kernel has it, the disk has not.
    Edit,
    /// An edit of a compaction is synced. After it, tables are removed.
    CompactionEdit,
    /// A table is synced.
    TableSync,
    /// A segment of the log is synced.
    SegmentSync,
    Rename,
    Remove,
    SyncDir,
    /// The names of spill files are synced; the record of the commit comes next. It dies within
    /// the operations that follow.
    SpillNames,
}

/// When it dies: before the n-th operation on files of a kind from now.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Doom {
    pub(crate) death: Death,
    pub(crate) moment: Moment,
    pub(crate) nth: u64,
}

/// The system's error for a thread that cannot be started.
const EAGAIN: i32 = 11;

/// After so many operations on files the trouble is over: nothing fails for ever.
const TROUBLE_UNTIL_OP: u64 = 20_000;

/// One life of the machine, from an open to a death or the end.
pub(crate) struct Life {
    fs: MemoryFs,
    doom: Cell<Option<Doom>>,
    trouble: Trouble,
    /// From then on no trouble begins any more.
    is_trouble_over: Cell<bool>,
    ops: Cell<u64>,
    /// Operations that have begun, and the last of these that has taken effect.
    begun: Cell<u64>,
    latest: Cell<u64>,
    /// Threads that were asked for.
    threads: Cell<u32>,
    /// Directories that are locked, each with a number of its own for every locking.
    locks: RefCell<BTreeMap<PathBuf, u64>>,
    locks_taken: Cell<u64>,
    /// Names that files of the log got by a rename, and that no sync of their directory covers yet.
    fresh_names: RefCell<BTreeSet<PathBuf>>,
    /// Syncs of manifests.
    edits: Cell<u64>,
    /// The last sync of the log that failed: the task and the segment.
    failed_sync: RefCell<Option<(Option<usize>, PathBuf)>>,
    /// A caller got the error, or the operation was tried again.
    is_failed_sync_told: Cell<bool>,
    /// How many operations had failed when it died.
    struck: Cell<Option<u64>>,
    /// What is left on disk, once it has died.
    remains: RefCell<Option<MemoryFs>>,
    death: Cell<Option<Death>>,
    /// What was destroyed while the database was open.
    rot: RefCell<Option<Damage>>,
    weather: Cell<Weather>,
    wall: WallClock,
    seed: u64,
}

// SAFETY: a simulation runs on one thread of the system from its beginning to its end, and `Life`
// never leaves it. It needs `Send` and `Sync` only because the engine's traits demand them.
unsafe impl Send for Life {}
// SAFETY: as above.
unsafe impl Sync for Life {}

impl Life {
    pub(crate) fn new(fs: MemoryFs, doom: Option<Doom>, trouble: Trouble, seed: u64) -> Arc<Life> {
        fs.clear_faults();
        fs.set_capacity(u64::MAX);
        if let Trouble::Faults { faults, .. } = &trouble {
            faults.iter().for_each(|fault| fs.inject(fault.clone()));
        }
        let weather = Weather::draw(&mut fastrand::Rng::with_seed(seed));
        Arc::new(Life {
            fs,
            doom: Cell::new(doom),
            trouble,
            is_trouble_over: Cell::new(false),
            ops: Cell::new(0),
            begun: Cell::new(0),
            latest: Cell::new(0),
            threads: Cell::new(0),
            locks: RefCell::default(),
            locks_taken: Cell::new(0),
            fresh_names: RefCell::default(),
            edits: Cell::new(0),
            failed_sync: RefCell::new(None),
            is_failed_sync_told: Cell::new(false),
            struck: Cell::new(None),
            remains: RefCell::new(None),
            death: Cell::new(None),
            rot: RefCell::new(None),
            weather: Cell::new(weather),
            wall: WallClock::of_life(),
            seed,
        })
    }

    /// A life without an end or trouble of its own.
    pub(crate) fn quiet(fs: MemoryFs) -> Arc<Life> {
        let life = Life::new(fs, None, Trouble::None, 1);
        life.weather.set(Weather::CALM);
        life
    }

    /// The same on its own: the clock begins anew. Without that the clocks of very many such lives
    /// go on from each other, for decades.
    pub(crate) fn alone(fs: MemoryFs) -> Arc<Life> {
        WallClock::begin();
        Life::quiet(fs)
    }

    pub(super) fn note_lock(&self, dir: &Path) {
        let number = self.locks_taken.get() + 1;
        self.locks_taken.set(number);
        self.locks.borrow_mut().insert(dir.to_owned(), number);
    }

    pub(super) fn note_unlock(&self, dir: &Path) {
        self.locks.borrow_mut().remove(dir);
    }

    /// The locking of the database that a file of its log lies in.
    pub(super) fn lock_above(&self, path: &Path) -> Option<u64> {
        self.locks.borrow().get(path.parent()?.parent()?).copied()
    }

    /// A file was renamed. Fails the run if the file's earlier name was not synced: after a power
    /// cut that keeps only the second rename, the file has two names, and later two segments share
    /// it. To see that happen would take two deaths, each at one of a few operations.
    pub(super) fn note_rename(&self, from: &Path, to: &Path) {
        let was_fresh = {
            let mut fresh_names = self.fresh_names.borrow_mut();
            fresh_names.insert(to.to_owned());
            fresh_names.remove(from)
        };
        let (from, to) = (from.display(), to.display());
        assert!(!was_fresh, "{from} is renamed to {to} before the first of these names is synced");
    }

    pub(super) fn note_removal(&self, path: &Path) {
        self.fresh_names.borrow_mut().remove(path);
    }

    /// The names in a directory survive power loss.
    pub(super) fn note_dir_sync(&self, dir: &Path) {
        self.fresh_names.borrow_mut().retain(|name| name.parent() != Some(dir));
    }

    /// Waits for the device.
    pub(super) fn wait(&self) {
        if !self.is_over() {
            self.weather.get().wait();
        }
    }

    /// What the wall clock shows until it is set again.
    pub(crate) fn wall_clock_ms(&self) -> u64 {
        self.wall.shown_ms()
    }

    /// The latest time that the wall clock has shown to the engine and that it may have believed.
    pub(crate) fn latest_ms(&self) -> u64 {
        WallClock::latest_ms()
    }

    /// The database is open.
    pub(super) fn note_opened(&self) {
        self.wall.note_opened();
    }

    /// What was destroyed while the database was open, if anything was.
    pub(crate) fn rot(&self) -> Option<Damage> {
        self.rot.borrow().clone()
    }

    pub(crate) fn trouble(&self) -> &Trouble {
        &self.trouble
    }

    /// A sync of the log has failed, and a caller was told or it was tried again: no commit that
    /// begins now may be acknowledged.
    pub(crate) fn has_failed_sync(&self) -> bool {
        self.is_failed_sync_told.get()
    }

    /// The running task is about to sync a segment of the log.
    pub(super) fn note_sync(&self, path: &Path) {
        let again = (runtime::current(), path.to_owned());
        if self.failed_sync.borrow().as_ref() == Some(&again) {
            self.is_failed_sync_told.set(true);
        }
    }

    /// A call has returned this error.
    pub(crate) fn note_error(&self, error: &Error) {
        if matches!(error.kind(), ErrorKind::Poisoned { .. } | ErrorKind::OutcomeUnknown { .. }) {
            self.is_failed_sync_told.set(self.failed_sync.borrow().is_some());
        }
    }

    /// How many operations failed because of its trouble.
    pub(crate) fn faults(&self) -> u64 {
        self.struck.get().unwrap_or_else(|| self.fs.struck())
    }

    /// From now on the disk has room, nothing fails any more, and no task is away for long. When
    /// this returns, every task that was away is back.
    pub(crate) fn end_trouble(&self) {
        if !self.is_over() {
            self.end_faults();
            let away_ns = runtime::calm() + self.weather.replace(Weather::CALM).longest_ns();
            runtime::sleep_ns(away_ns);
        }
    }

    fn end_faults(&self) {
        self.is_trouble_over.set(true);
        // In one step: a machine that died in between would work again.
        without_preemption(|| {
            self.fs.set_capacity(u64::MAX);
            self.fs.clear_faults();
        });
    }

    pub(crate) fn is_over(&self) -> bool {
        self.remains.borrow().is_some()
    }

    /// How it died, if it has.
    pub(crate) fn death(&self) -> Option<Death> {
        self.death.get()
    }

    /// The disk after this life: as it was left, or as it is.
    pub(crate) fn disk(&self) -> MemoryFs {
        self.remains.borrow().clone().unwrap_or_else(|| self.fs.clone())
    }

    /// Does `body` to the disk, in one step in the eyes of the tasks.
    pub(super) fn disk_does<T>(&self, body: impl FnOnce(&MemoryFs) -> T) -> T {
        without_preemption(|| body(&self.fs))
    }

    pub(super) fn note_failed_sync(&self, path: &Path) {
        *self.failed_sync.borrow_mut() = Some((runtime::current(), path.to_owned()));
    }

    pub(crate) fn ops(&self) -> u64 {
        self.ops.get()
    }

    /// Before each operation on files: others may go first, and the machine may die.
    pub(crate) fn tick(&self, moment: Moment) {
        self.tick_in(moment, |_| ());
    }

    /// The same; `half` does half of the operation to the disk that a killed process leaves.
    pub(super) fn tick_in(&self, moment: Moment, half: impl FnOnce(&MemoryFs)) {
        let nth = self.begun.get() + 1;
        self.begun.set(nth);
        runtime::maybe_yield();
        self.wait();
        if self.latest.get() > nth {
            reached(Reach::DiskOvertaken);
        }
        self.latest.set(self.latest.get().max(nth));
        self.ops.set(self.ops.get() + 1);
        if !self.is_over() {
            without_preemption(|| self.begin_or_end_trouble());
        }
        let Some(doom) = self.doom.get() else { return };
        if doom.moment != Moment::Any
            && doom.moment != moment
            && !is_of_compaction(doom.moment, moment)
        {
            return;
        }
        if doom.nth > 1 {
            return self.doom.set(Some(Doom { nth: doom.nth - 1, ..doom }));
        }
        if doom.moment == Moment::SpillNames {
            let nth = 1 + (self.seed ^ self.ops.get()) % 16;
            return self.doom.set(Some(Doom { moment: Moment::Any, nth, ..doom }));
        }
        self.doom.set(None);
        self.death.set(Some(doom.death));
        self.struck.set(Some(self.fs.struck()));
        without_preemption(|| {
            let left = match doom.death {
                Death::Kill => {
                    if self.seed & 1 == 0 {
                        half(&self.fs);
                    }
                    self.fs.killed()
                }
                Death::Power => lose_power(&self.fs, self.seed ^ self.ops.get()),
            };
            *self.remains.borrow_mut() = Some(left);
            // From now on every operation on files fails, so tasks that still run end by
            // themselves. A full disk must not be the reason: some wait for room.
            self.end_faults();
            self.fs.inject(Fault::on_any().forever());
        });
    }

    fn begin_or_end_trouble(&self) {
        let op = self.ops.get();
        if self.is_trouble_over.get() {
            return;
        }
        if op == TROUBLE_UNTIL_OP {
            return self.end_faults();
        }
        match self.trouble {
            Trouble::Full { from_op, until_op, room } => {
                if op == from_op {
                    let free = self.fs.free_space(Path::new("/")).unwrap_or(u64::MAX);
                    reached(Reach::DiskFull);
                    self.fs.set_capacity((u64::MAX - free).saturating_add(room));
                } else if op == until_op {
                    self.end_faults();
                }
            }
            Trouble::Handles { from_op, until_op } => {
                if op == from_op {
                    reached(Reach::DescriptorsOut);
                    self.fs.inject(Fault::no_descriptors());
                } else if op == until_op {
                    self.end_faults();
                }
            }
            Trouble::Rot { from_op } if op >= from_op && self.rot().is_none() => {
                let mut rng = fastrand::Rng::with_seed(self.seed ^ op);
                let damage =
                    self.disk_does(|fs| Damage::inflict(&mut rng, fs, Path::new(DB), None));
                if damage.is_some() {
                    reached(Reach::DamagedOpen);
                }
                *self.rot.borrow_mut() = damage;
            }
            _ => {}
        }
    }

    /// A manifest is about to be synced: fails that, if it is the one.
    pub(super) fn strike_edit(&self) {
        let nth = self.edits.get() + 1;
        self.edits.set(nth);
        let fails = matches!(self.trouble, Trouble::Edit { failing } if failing == nth);
        if fails && !self.is_over() && !self.is_trouble_over.get() {
            self.fs.inject(Fault::on(FileOp::Sync));
        }
    }

    /// True if the thread that is to be started now must fail to start.
    fn lacks_thread(&self) -> bool {
        let nth = self.threads.get() + 1;
        self.threads.set(nth);
        !self.is_trouble_over.get()
            && matches!(self.trouble, Trouble::Threads { lacking } if lacking == nth)
    }

    /// The machine dies now.
    pub(crate) fn die(&self, death: Death) {
        if !self.is_over() {
            self.doom.set(Some(Doom { death, moment: Moment::Any, nth: 1 }));
            self.tick(Moment::Any);
        }
    }

    pub(crate) fn env(self: &Arc<Self>) -> Env {
        Env {
            fs: Arc::new(SimFs::new(self.clone())),
            clock: Arc::new(SimClock(self.clone())),
            random: Arc::new(SimRandom),
            threads: Arc::new(SimThreads(self.clone())),
        }
    }
}

/// True if the machine is to die at the edit of a compaction, and the edit that is synced now is
/// one.
fn is_of_compaction(awaited: Moment, moment: Moment) -> bool {
    awaited == Moment::CompactionEdit
        && moment == Moment::Edit
        && runtime::is_thread("isobath-manifest")
}

/// One of several ways in which power goes: all that was not synced is lost; everything stays as it
/// was at one moment; names and lengths stay, and the bytes are lost; each piece by itself, sector
/// by sector.
fn lose_power(fs: &MemoryFs, seed: u64) -> MemoryFs {
    let mut rng = fastrand::Rng::with_seed(seed);
    let steps = fs.steps();
    match rng.u8(..5) {
        0 => fs.crashed(|_| 0),
        1 => {
            let until = rng.u64(steps.saturating_sub(200)..=steps);
            fs.crashed(|unsynced| unsynced.steps_until(until))
        }
        2 => {
            let kept_percent = rng.u8(1..100);
            fs.crashed(|unsynced| match unsynced.kind {
                UnsyncedKind::Sector { .. } if rng.u8(..100) < kept_percent => unsynced.steps.len(),
                UnsyncedKind::Sector { .. } => 0,
                _ => rng.usize(..=unsynced.steps.len()),
            })
        }
        3 => fs.crashed(|unsynced| match unsynced.kind {
            UnsyncedKind::Sector { .. } => 0,
            _ => unsynced.steps.len(),
        }),
        _ => fs.crashed(|unsynced| rng.usize(..=unsynced.steps.len())),
    }
}

struct SimClock(Arc<Life>);

impl Clock for SimClock {
    fn now_ns(&self) -> u64 {
        runtime::now_ns()
    }

    fn unix_ms(&self) -> u64 {
        self.0.wall.unix_ms()
    }
}

struct SimRandom;

impl Random for SimRandom {
    fn next_u64(&self) -> u64 {
        runtime::random(u64::MAX)
    }
}

struct SimThreads(Arc<Life>);

struct SimHandle(usize);

impl ThreadHandle for SimHandle {
    fn join(self: Box<Self>) {
        runtime::join(self.0);
    }
}

impl Threads for SimThreads {
    fn spawn(
        &self,
        name: String,
        _priority: Priority,
        body: Box<dyn FnOnce() + Send>,
    ) -> io::Result<Box<dyn ThreadHandle>> {
        if self.0.lacks_thread() {
            reached(Reach::ThreadLacking);
            return Err(io::Error::from_raw_os_error(EAGAIN));
        }
        let late = Box::new(move || {
            runtime::come_late();
            body();
        });
        Ok(Box::new(SimHandle(runtime::spawn(name, late))))
    }

    fn sleep(&self, duration: Duration) {
        runtime::sleep_ns(duration.as_nanos() as u64);
    }

    fn parallelism(&self) -> usize {
        4
    }
}

/// A value that tasks of one simulation share.
pub(crate) type Shared<T> = Rc<RefCell<T>>;

#[cfg(test)]
mod tests {
    use super::super::runtime;
    use super::*;

    #[test]
    fn a_disk_that_was_to_fill_up_later_does_not_once_the_trouble_has_ended() {
        for is_ended in [false, true] {
            let trouble = Trouble::Full { from_op: 5, until_op: 90, room: 0 };
            let life = Life::new(MemoryFs::new(), None, trouble, 1);
            let ticking = life.clone();
            let body = move || {
                if is_ended {
                    ticking.end_trouble();
                }
                (0..10).for_each(|_| ticking.tick(Moment::Any));
            };
            assert!(runtime::run(1, Box::new(body)).failure.is_none());
            let free = life.disk().free_space(Path::new("/")).unwrap();
            assert_eq!(free == 0, !is_ended);
        }
    }
}
