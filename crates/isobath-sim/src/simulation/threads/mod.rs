//! Runs the tasks of transactions on threads of the system, with the real scheduler, processors and
//! memory order, and checks them with the oracle of the simulation.
//!
//! A round is a fresh database, in memory or on real files, with budgets so small that sealing,
//! flushing and compacting never stop. Each thread has a stage of its own, with the history of what
//! it did (`roles.rs`); all share the database, the keys that they meet on, and the count of
//! events. When all have ended, the histories are joined and judged: what a serializable commit
//! found must be true just before it in the log, and so on (`transactions/deal.rs`). A failure is
//! reported with the commits that led to it (`oracle/explain.rs`).
//!
//! A seed draws what threads do, but not when: a round does not repeat. In most rounds threads are
//! delayed at accesses to what they share (`runtime/real.rs`). A round that hangs ends the process
//! (`watchdog.rs`).

mod roles;
mod watchdog;

use super::observe::Sight;
use super::oracle::{Clock, History};
use super::runtime::real::{self, DelayedThreads};
use super::terrain::Terrain;
use super::transactions::keys::Arena;
use super::values::Values;
use super::workload::everything;
use isobath::env::Env;
use isobath::env::reach::Reach;
use isobath::vfs::MemoryFs;
use isobath::{Db, Durability, Family};
use roles::{Left, Role, Workers};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use watchdog::Watchdog;
pub(crate) use watchdog::{HANGS_AFTER, Hanging};

/// Accesses between two delays of a thread, on average, as a round draws them; 0 for none.
const DELAYS: [u32; 6] = [0, 2000, 500, 500, 100, 100];

/// What rounds are about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Mood {
    /// Everything; every third is a crowd
    #[default]
    Mixed,
    /// Transactions that scan, write, and are run again: they wait for ranges
    Crowded,
}

/// What a round is like.
#[derive(Clone, Debug)]
pub(crate) struct Round {
    pub(crate) seed: u64,
    pub(crate) mood: Mood,
    pub(crate) threads: usize,
    /// An empty directory for real files, instead of files in memory.
    pub(crate) dir: Option<PathBuf>,
}

impl Round {
    /// Plays a round. The error says what was wrong.
    pub(crate) fn play(&self, hanging: Hanging) -> Result<Tally, String> {
        real::hook();
        real::enter(self.seed, 0);
        let mut rng = fastrand::Rng::with_seed(self.seed);
        let delay = DELAYS[rng.usize(..DELAYS.len())];
        let (db, side) = self.open(delay, &mut rng).map_err(|error| format!("open: {error}"))?;
        let is_crowded = self.mood == Mood::Crowded;
        let (is_short, has_coordinators) =
            (rng.bool() && !is_crowded, rng.u8(..3) == 0 && !is_crowded);
        let arena = Arena::draw(&self.terrain().keys, has_coordinators, &mut rng);
        let arena = if is_crowded { arena.crowded() } else { arena };
        let roles = Role::draw(self.threads, is_short, has_coordinators, &mut rng);
        let count = roles::count(is_short);
        let clock = Arc::new(Clock::default());
        let watchdog = Watchdog::begin(&db, self.seed, hanging);
        let workers = Workers::new(&roles);
        let left: Vec<thread::Result<Left>> = thread::scope(|scope| {
            let start = |(nth, role): (usize, Role)| {
                let (db, side, clock) = (db.clone(), side.clone(), clock.clone());
                let (arena, rng, workers) = (arena.clone(), rng.fork(), &workers);
                scope.spawn(move || {
                    real::enter(self.seed ^ ((nth as u64 + 1) << 32), delay);
                    let stage = roles::stage(db, side, self.terrain(), &clock);
                    role.play(count, stage, &arena, workers, rng)
                })
            };
            let started: Vec<_> = roles.into_iter().enumerate().map(start).collect();
            started.into_iter().map(thread::ScopedJoinHandle::join).collect()
        });
        watchdog.end();
        self.judge(&db, &side, &clock, left)
    }

    /// The keys and sizes. Each thread makes its own copy.
    fn terrain(&self) -> Terrain {
        Terrain::of_threads(&mut fastrand::Rng::with_seed(self.seed))
    }

    fn open(&self, delay: u32, rng: &mut fastrand::Rng) -> isobath::Result<(Db, Family)> {
        let threads = Arc::new(DelayedThreads::new(rng.u64(..), delay));
        let mut env = Env { threads, ..Env::system() };
        let mut options = self.terrain().options(rng).io_rate_limit(None);
        let path = match &self.dir {
            Some(dir) => {
                // Syncs of a device would leave no time for anything else.
                options = options.durability(Durability::Process);
                dir.join("db")
            }
            None => {
                env.fs = Arc::new(MemoryFs::new());
                PathBuf::from("db")
            }
        };
        let db = options.env(env).open(path)?;
        let side = db.family("side")?;
        Ok((db, side))
    }

    /// Joins what the threads did, reads all once more, and judges everything.
    fn judge(
        &self,
        db: &Db,
        side: &Family,
        clock: &Arc<Clock>,
        left: Vec<thread::Result<Left>>,
    ) -> Result<Tally, String> {
        let mut history = History::of_thread(Values::new(), clock);
        let mut tally = Tally { rounds: 1, ..Tally::default() };
        let mut failure = None;
        for left in left {
            let left = left.map_err(|panic| format!("a thread panicked: {}", message(&*panic)))?;
            history.join(left.history);
            tally.note(&left.reached);
            failure = failure.or(left.failure);
        }
        let look = history.look();
        let all = everything(db, side).map_err(|error| format!("the last scan: {error}"))?;
        let sights = vec![Sight::of_family(0, &all), Sight::of_family(1, &all)];
        history.saw("the last scan", look, sights);
        let judged = history.check_reads().map(drop);
        (tally.commits, tally.reads) = (history.commits(), history.reads());
        (tally.transactions, tally.conflicts) = history.transactions();
        db.clone().close().map_err(|error| format!("close: {error}"))?;
        match failure.map_or(judged, Err) {
            Ok(()) => Ok(tally),
            Err(wrong) => Err(format!("{wrong}\n{}", history.explain())),
        }
    }
}

fn message(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a message")
}

/// The totals of rounds.
#[derive(Clone, Debug)]
pub(crate) struct Tally {
    pub(crate) rounds: u64,
    pub(crate) transactions: u64,
    pub(crate) commits: u64,
    pub(crate) conflicts: u64,
    pub(crate) reads: u64,
    /// How often threads came to each place, in the order of [`Reach::ALL`].
    reached: Vec<u64>,
}

impl Default for Tally {
    fn default() -> Tally {
        let (rounds, transactions, commits, conflicts, reads) = (0, 0, 0, 0, 0);
        Tally {
            rounds,
            transactions,
            commits,
            conflicts,
            reads,
            reached: vec![0; Reach::ALL.len()],
        }
    }
}

impl Tally {
    pub(crate) fn add(&mut self, other: &Tally) {
        self.rounds += other.rounds;
        self.transactions += other.transactions;
        self.commits += other.commits;
        self.conflicts += other.conflicts;
        self.reads += other.reads;
        self.note(&other.reached);
    }

    fn note(&mut self, reached: &[u64]) {
        self.reached.iter_mut().zip(reached).for_each(|(sum, count)| *sum += count);
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Tally { rounds, transactions, commits, conflicts, reads, reached } = self;
        write!(
            f,
            "{rounds} rounds, {transactions} transactions, {commits} commits, {conflicts} conflicts, {} waits for ranges, \
             {reads} reads judged",
            reached[Reach::RangeAwaited as usize]
        )
    }
}
