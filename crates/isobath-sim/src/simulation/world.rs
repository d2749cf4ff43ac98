//! The world of a simulated database: a disk that can die at any operation, virtual time, seeded randomness, tasks.

use super::disk::SimFs;
use super::runtime;
use super::trouble::Trouble;
use isobath::Error;
use isobath::components::simulation::without_preemption;
use isobath::components::{Clock, Components, Priority, Random, ThreadHandle, Threads};
use isobath::vfs::{Fault, FileSystem as _, MemoryFs, UnsyncedKind};
use std::cell::{Cell, RefCell};
use std::io;
use std::path::Path;
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
    /// A table is synced.
    TableSync,
    /// A segment of the log is.
    Harden,
    Rename,
    Remove,
    SyncDir,
}

/// When it dies: before the n-th operation on files of a kind from now.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Doom {
    pub(crate) death: Death,
    pub(crate) moment: Moment,
    pub(crate) nth: u64,
}

/// Nothing fails for ever, counted in operations on files.
const TROUBLE_UNTIL_OP: u64 = 20_000;

/// One life of the machine, from an open to a death or the end.
pub(crate) struct Life {
    fs: MemoryFs,
    doom: Cell<Option<Doom>>,
    trouble: Trouble,
    /// What has not begun by then never does.
    is_trouble_over: Cell<bool>,
    ops: Cell<u64>,
    /// A sync of the log has failed.
    has_failed_sync: Cell<bool>,
    /// Somebody was told so.
    is_failed_sync_told: Cell<bool>,
    /// Operations that failed, as of its death.
    struck: Cell<Option<u64>>,
    /// What is left on disk, once it has died.
    remains: RefCell<Option<MemoryFs>>,
    death: Cell<Option<Death>>,
    seed: u64,
}

// SAFETY: a simulation runs on one thread of the system from its beginning to its end; `Life` never leaves it. The
// engine's traits ask for `Send` and `Sync` since real ones do.
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
        Arc::new(Life {
            fs,
            doom: Cell::new(doom),
            trouble,
            is_trouble_over: Cell::new(false),
            ops: Cell::new(0),
            has_failed_sync: Cell::new(false),
            is_failed_sync_told: Cell::new(false),
            struck: Cell::new(None),
            remains: RefCell::new(None),
            death: Cell::new(None),
            seed,
        })
    }

    /// A life without an end or trouble of its own.
    pub(crate) fn quiet(fs: MemoryFs) -> Arc<Life> {
        Life::new(fs, None, Trouble::None, 1)
    }

    pub(crate) fn trouble(&self) -> &Trouble {
        &self.trouble
    }

    /// A sync of the log has failed and a caller knows it, so that no commit that begins now may be acknowledged.
    pub(crate) fn has_failed_sync(&self) -> bool {
        self.is_failed_sync_told.get()
    }

    /// A call has returned this error.
    pub(crate) fn note_error(&self, error: &Error) {
        if matches!(error, Error::Poisoned(_) | Error::OutcomeUnknown(_)) {
            self.is_failed_sync_told.set(self.has_failed_sync.get());
        }
    }

    /// How many operations failed because of its trouble.
    pub(crate) fn faults(&self) -> u64 {
        self.struck.get().unwrap_or_else(|| self.fs.struck())
    }

    /// There is room on the disk from now on, nothing fails any more, and nobody is away for long.
    pub(crate) fn end_trouble(&self) {
        if self.is_over() {
            return;
        }
        runtime::calm();
        self.is_trouble_over.set(true);
        self.fs.set_capacity(u64::MAX);
        self.fs.clear_faults();
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

    pub(super) fn note_failed_sync(&self) {
        self.has_failed_sync.set(true);
    }

    pub(crate) fn ops(&self) -> u64 {
        self.ops.get()
    }

    /// Before each operation on files: others may go first, and the machine may die.
    pub(crate) fn tick(&self, moment: Moment) {
        runtime::maybe_yield();
        self.ops.set(self.ops.get() + 1);
        if !self.is_over() {
            self.begin_or_end_trouble();
        }
        let Some(doom) = self.doom.get() else { return };
        if doom.moment != Moment::Any && doom.moment != moment {
            return;
        }
        if doom.nth > 1 {
            return self.doom.set(Some(Doom { nth: doom.nth - 1, ..doom }));
        }
        self.doom.set(None);
        self.death.set(Some(doom.death));
        self.struck.set(Some(self.fs.struck()));
        without_preemption(|| {
            let left = match doom.death {
                Death::Kill => self.fs.killed(),
                Death::Power => lose_power(&self.fs, self.seed ^ self.ops.get()),
            };
            *self.remains.borrow_mut() = Some(left);
            // Whoever still runs finds that nothing works any more, and ends by itself.
            self.fs.inject(Fault::on_any().forever());
        });
    }

    fn begin_or_end_trouble(&self) {
        if self.is_trouble_over.get() {
            return;
        }
        if self.ops.get() == TROUBLE_UNTIL_OP {
            // Some calls wait for room as long as it takes; other troubles have done what they could by now.
            self.fs.clear_faults();
        }
        if let Trouble::Full { from_op, until_op, room } = self.trouble {
            if self.ops.get() == from_op {
                let free = self.fs.free_space(Path::new("/")).unwrap_or(u64::MAX);
                self.fs.set_capacity((u64::MAX - free).saturating_add(room));
            } else if self.ops.get() == until_op {
                self.end_trouble();
            }
        }
    }

    /// The machine dies now.
    pub(crate) fn die(&self, death: Death) {
        if !self.is_over() {
            self.doom.set(Some(Doom { death, moment: Moment::Any, nth: 1 }));
            self.tick(Moment::Any);
        }
    }

    pub(crate) fn components(self: &Arc<Self>) -> Components {
        Components {
            fs: Arc::new(SimFs::new(self.clone())),
            clock: Arc::new(SimClock),
            random: Arc::new(SimRandom),
            threads: Arc::new(SimThreads),
        }
    }
}

/// One of several ways in which power goes: all that was not synced is lost; everything stays as it was at one moment;
/// each piece by itself, sector by sector.
fn lose_power(fs: &MemoryFs, seed: u64) -> MemoryFs {
    let mut rng = fastrand::Rng::with_seed(seed);
    let steps = fs.steps();
    match rng.u8(..4) {
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
        _ => fs.crashed(|unsynced| rng.usize(..=unsynced.steps.len())),
    }
}

struct SimClock;

impl Clock for SimClock {
    fn now_ns(&self) -> u64 {
        runtime::now_ns()
    }

    fn unix_ms(&self) -> u64 {
        runtime::now_ns() / 1_000_000
    }
}

struct SimRandom;

impl Random for SimRandom {
    fn next_u64(&self) -> u64 {
        runtime::random(u64::MAX)
    }
}

struct SimThreads;

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
        Ok(Box::new(SimHandle(runtime::spawn(name, body))))
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
