//! What the threads of a round do: transactions, commits in two phases, plain writes and reads. As
//! long as any of them works, a janitor flushes, compacts, and creates and drops families.

use super::super::families::Guests;
use super::super::oracle::{Clock, History, TRANSACTORS};
use super::super::terrain::Terrain;
use super::super::transactions::coordinator::USUAL;
use super::super::transactions::keys::Arena;
use super::super::values::Values;
use super::super::workload::{Stage, WRITERS};
use super::super::world::Life;
use isobath::env::reach;
use isobath::vfs::MemoryFs;
use isobath::{Db, ErrorKind, Family};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

/// What a thread does, and its number among the threads that do the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Transactor(usize),
    Coordinator(usize),
    Writer(usize),
    Reader,
    Janitor,
}

/// How many operations a thread has in a round: so few that judging the history takes little time.
const OPERATIONS: u32 = 120;
/// In a short round a thread has a fraction of these. The gate of transactions opens once in a
/// round; in a short round it opens while writers are busy.
const SHORTER: u32 = 12;
/// The longest time that other threads work before the first transactions begin.
const HEAD_START_US_MAX: u64 = 1_000;
/// The longest pause of a janitor.
const PAUSE_US_MAX: u64 = 3_000;

/// How many operations a thread has in a round.
pub(super) fn count(is_short: bool) -> u32 {
    if is_short { OPERATIONS / SHORTER } else { OPERATIONS }
}

impl Role {
    /// So many threads, two of them with transactions at least, and often a janitor.
    pub(super) fn draw(
        threads: usize,
        is_short: bool,
        has_coordinators: bool,
        rng: &mut fastrand::Rng,
    ) -> Vec<Role> {
        let (mut transactors, mut coordinators, mut writers) = (0, 0, 0);
        let mut roles = Vec::with_capacity(threads + 1);
        // In every other round there are transactions alone.
        let is_mixed = is_short || rng.bool();
        for nth in 0..threads.max(2) {
            let next = |count: &mut usize| std::mem::replace(count, *count + 1);
            let role = match rng.u8(..8) {
                0 | 1 if nth >= 2 && has_coordinators && coordinators < USUAL => {
                    Role::Coordinator(next(&mut coordinators))
                }
                2 | 3 if nth >= 2 && is_short && writers < WRITERS => {
                    Role::Writer(next(&mut writers))
                }
                2 if nth >= 2 && is_mixed && writers < WRITERS => Role::Writer(next(&mut writers)),
                3 if nth >= 2 && is_mixed => Role::Reader,
                _ if transactors < TRANSACTORS => Role::Transactor(next(&mut transactors)),
                _ => Role::Reader,
            };
            roles.push(role);
        }
        if rng.u8(..3) > 0 {
            roles.push(Role::Janitor);
        }
        roles
    }

    /// Plays it to its end.
    pub(super) fn play(
        self,
        count: u32,
        stage: Stage,
        arena: &Arena,
        workers: &Workers,
        mut rng: fastrand::Rng,
    ) -> Left {
        workers.start.wait();
        if let Role::Transactor(_) = self {
            // Writers go first, behind a gate that is closed.
            thread::sleep(Duration::from_micros(rng.u64(..HEAD_START_US_MAX)));
        }
        match self {
            Role::Janitor => tidy(&stage, workers, &mut rng),
            _ => {
                let _at_work = AtWork(workers);
                match self {
                    Role::Transactor(nth) => stage.transact(nth, arena, count, rng),
                    Role::Coordinator(nth) => stage.coordinate(nth, arena, count, rng),
                    Role::Writer(nth) => stage.write(nth, count, rng),
                    Role::Reader | Role::Janitor => stage.read(count, rng),
                }
            }
        }
        leave(stage)
    }
}

/// How many threads work, beside janitors, and where all threads of a round begin.
pub(super) struct Workers {
    count: AtomicUsize,
    start: Barrier,
}

impl Workers {
    pub(super) fn new(roles: &[Role]) -> Workers {
        let workers = roles.iter().filter(|role| **role != Role::Janitor);
        let count = AtomicUsize::new(workers.count());
        Workers { count, start: Barrier::new(roles.len()) }
    }

    fn are_done(&self) -> bool {
        self.count.load(SeqCst) == 0
    }
}

/// A thread that works. Its drop, also by a panic, says that the thread has ended.
struct AtWork<'a>(&'a Workers);

impl Drop for AtWork<'_> {
    fn drop(&mut self) {
        self.0.count.fetch_sub(1, SeqCst);
    }
}

/// The results of a thread: its history, and the first failure that it found.
pub(super) struct Left {
    pub(super) history: History,
    pub(super) failure: Option<String>,
    pub(super) reached: Vec<u64>,
}

/// The stage of a thread.
pub(super) fn stage(db: Db, side: Family, terrain: Terrain, clock: &Arc<Clock>) -> Stage {
    let mut history = History::of_thread(Values::new(), clock);
    (history.guests, history.has_side) = (Guests::default(), true);
    Stage {
        db,
        side,
        // The database has a disk of its own, which never fails.
        life: Life::quiet(MemoryFs::new()),
        keys: terrain.keys.clone(),
        terrain,
        season: Cell::new(0),
        history: Rc::new(RefCell::new(history)),
        failure: Rc::default(),
        is_damaged: false,
        closing: Rc::default(),
        cache: None,
        keepsakes: Rc::default(),
        awaited: Rc::default(),
    }
}

fn leave(stage: Stage) -> Left {
    let failure = stage.failure.borrow_mut().take();
    let history = std::mem::take(&mut *stage.history.borrow_mut());
    Left { history, failure, reached: reach::take() }
}

/// Flushes, compacts, and lets a family come and go.
fn tidy(stage: &Stage, workers: &Workers, rng: &mut fastrand::Rng) {
    let mut nth = 0;
    while !workers.are_done() && !stage.is_over() {
        nth += 1;
        let done = match rng.u8(..8) {
            0..3 => stage.db.flush(),
            3 => stage.db.compact(),
            4 => stage.db.sync(),
            5 => visit(stage, &format!("guest{nth}")),
            6 => stage.db.wait_for_compactions(Some(Duration::from_millis(5))).map(drop),
            _ => Ok(()),
        };
        done.unwrap_or_else(|error| stage.judge_write("maintenance", &error));
        thread::sleep(Duration::from_micros(rng.u64(..PAUSE_US_MAX)));
    }
}

/// Drops a family on which transactions rely, one only by a read and one only by a write. Neither
/// may commit.
fn visit(stage: &Stage, name: &str) -> isobath::Result<()> {
    let guest = stage.db.family(name)?;
    guest.put("key", name)?;
    let (reads, writes) = (stage.db.begin(), stage.db.begin());
    if reads.of(&guest).get("key")?.as_deref() != Some(name.as_bytes()) {
        stage.fail(format!("family {name} does not have what was put there"));
    }
    reads.put(name, name)?;
    writes.of(&guest).put("other", name)?;
    stage.db.drop_family(&guest)?;
    for tx in [reads, writes] {
        match tx.commit() {
            Err(error) if matches!(error.kind(), ErrorKind::UnknownFamily { .. }) => {}
            told => stage.fail(format!("{name} is dropped, and a commit to it says {told:?}")),
        }
    }
    Ok(())
}
