//! The process that dies: opens a database, checks what it finds, and writes to it from several
//! threads until it ends.
//!
//! A parent starts it with the notes as standard input and reads what it says, a line each:
//!
//! ```text
//! ready             what was found is right, writing begins
//! wrong: WHAT       what was found is not right
//! failed: WHAT      a call failed that should not have
//! no room: WHAT     the database could not be opened for lack of room
//! refused           writes are refused since a failure, as they should be; reads go on
//! closed            what was found is right, before and after closing
//! ```

use super::calls;
use super::check::{Death, Kept, check};
use super::history::{Plan, Promise};
use super::notes::{Acknowledged, COMMITS_MAX, FamilySteps, Notes, Record};
use super::outside::Outside;
use super::store::{Engine, Failure, Store};
use crate::command::{Ended, parse_plant};
use clap::{Args, ValueEnum};
use isobath::env::planted::{Plant, plant};
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::{self, ExitCode};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

/// A call that takes longer hangs.
const HANGS_AFTER: Duration = Duration::from_secs(120);
/// The pause before a call that found no room is tried again.
const RETRY_PAUSE: Duration = Duration::from_millis(1);

/// What may fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Trouble {
    /// Nothing
    None,
    /// The file system fills up
    NoRoom,
    /// The device fails
    FailingDevice,
}

/// Write to a database until killed. The harnesses of the real kernel start this command
#[derive(Args, Clone, Debug)]
pub(crate) struct Writer {
    #[arg(long, value_enum)]
    pub(crate) engine: Engine,
    #[arg(long)]
    pub(crate) dir: PathBuf,
    #[arg(long)]
    pub(crate) seed: u64,
    /// What ended the life before
    #[arg(long, value_enum)]
    pub(crate) after: Death,
    #[arg(long, value_enum)]
    pub(crate) trouble: Trouble,
    #[arg(long, value_parser = parse_plant)]
    pub(crate) plant: Option<Plant>,
    /// Check, close, check again, and write nothing
    #[arg(long)]
    pub(crate) only_check: bool,
    /// A program that writes instead of this one
    #[arg(skip)]
    pub(crate) outside: Outside,
}

/// Why a life did not begin.
enum Stillborn {
    Wrong(String),
    Failed(&'static str, Failure),
}

impl Writer {
    /// A writer to Isobath, within its process.
    pub(super) fn new(
        dir: PathBuf,
        seed: u64,
        after: Death,
        trouble: Trouble,
        plant: Option<Plant>,
    ) -> Writer {
        let (engine, outside) = (Engine::Isobath, Outside::default());
        Writer { engine, dir, seed, after, trouble, plant, only_check: false, outside }
    }

    /// Writes until it is killed, or ends and reports why.
    pub(crate) fn carry_out(self) -> Ended {
        calls::die_with_parent()?;
        thread::spawn(|| {
            thread::sleep(HANGS_AFTER);
            say(&format!("wrong: nothing came to an end in {HANGS_AFTER:?}"));
            process::exit(3);
        });
        plant(self.plant.unwrap_or(Plant::Nothing));
        let notes = Notes::inherited()?;
        let plan = self.engine.plan(self.seed);
        match self.live(&notes, &plan) {
            Ok(()) => {}
            Err(Stillborn::Wrong(what)) => say(&format!("wrong: {what}")),
            Err(Stillborn::Failed(_, Failure::NoRoom(why))) if self.trouble == Trouble::NoRoom => {
                say(&format!("no room: {why}"));
            }
            Err(Stillborn::Failed(call, failure)) => {
                notes.fail()?;
                say(&format!("failed: {call}: {failure}"));
            }
        }
        Ok(ExitCode::SUCCESS)
    }

    fn live(&self, notes: &Notes, plan: &Plan) -> Result<(), Stillborn> {
        let noted = |error: io::Error| Stillborn::Wrong(format!("the notes: {error}"));
        let record = notes.read().map_err(noted)?;
        let (store, kept) = self.open(plan, &record, self.after)?;
        if self.only_check {
            store.close().map_err(failed("close"))?;
            drop(self.open(plan, &record, self.after)?);
            say("closed");
            return Ok(());
        }
        store.create_families().map_err(failed("create families"))?;
        notes.begin_life(&record, kept.counts, kept.family).map_err(noted)?;
        say("ready");
        let life = Life {
            store: &*store,
            notes,
            plan,
            number: record.starts.len() as u64,
            trouble: self.trouble,
            expected: AtomicU64::new(0),
            is_refused: AtomicBool::new(false),
        };
        life.write(kept);
        if life.is_refused.load(Relaxed) {
            life.check_refusal().map_err(Stillborn::Wrong)?;
            say("refused");
        }
        // Wait to be killed without closing: a close would write what a death does not.
        loop {
            thread::park();
        }
    }

    fn open(
        &self,
        plan: &Plan,
        record: &Record,
        after: Death,
    ) -> Result<(Box<dyn Store>, Kept), Stillborn> {
        let store = self.engine.open(&self.dir, plan).map_err(failed("open"))?;
        let found = store.read_all().map_err(failed("read"))?;
        let kept = check(plan, record, &found, after).map_err(Stillborn::Wrong)?;
        Ok((store, kept))
    }
}

fn failed(call: &'static str) -> impl Fn(Failure) -> Stillborn {
    move |failure| Stillborn::Failed(call, failure)
}

fn say(line: &str) {
    // If the parent has closed the pipe, no process reads the line, so it may be lost.
    let _ = io::stdout().lock().write_all(format!("{}\n", line.replace('\n', " ")).as_bytes());
}

/// Whether to try again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    TryAgain,
    Stop,
}

struct Life<'a> {
    store: &'a dyn Store,
    notes: &'a Notes,
    plan: &'a Plan,
    number: u64,
    trouble: Trouble,
    /// Failures that were to be expected.
    expected: AtomicU64,
    /// A writer was refused because of an earlier failure: no writer may succeed after that.
    is_refused: AtomicBool,
}

impl Life<'_> {
    /// Returns once all threads have stopped: because writes are refused, or because they have
    /// written enough.
    fn write(&self, kept: Kept) {
        thread::scope(|scope| {
            for writer in 0..self.plan.writers {
                scope.spawn(move || self.write_alone(writer, kept.counts[writer] + 1));
            }
            scope.spawn(|| self.keep_house(kept.family.done));
        });
    }

    fn write_alone(&self, writer: usize, first: u64) {
        for n in first..=COMMITS_MAX {
            let commit = self.plan.commit(self.number, writer, n);
            let is_synced = commit.promise == Promise::Sync;
            let point = self.persist(|| self.store.write(&commit.writes, is_synced));
            let Some(point) = point else { return };
            self.acknowledge(writer, n, Acknowledged { point, is_synced });
            if commit.promise == Promise::SyncLater {
                let Some(()) = self.persist(|| self.store.sync_to(point)) else { return };
                self.acknowledge(writer, n, Acknowledged { point, is_synced: true });
            }
            if fastrand::u32(..1000) < self.plan.pause_permille {
                thread::sleep(Duration::from_micros(fastrand::u64(20..400)));
            }
        }
    }

    fn acknowledge(&self, writer: usize, n: u64, acknowledged: Acknowledged) {
        if let Err(error) = self.notes.acknowledge(writer, n, acknowledged) {
            say(&format!("wrong: the notes: {error}"));
        }
    }

    /// Flushes, compacts, syncs, and creates and drops a family.
    fn keep_house(&self, mut steps: u64) {
        let mut flushes = 0;
        loop {
            thread::sleep(Duration::from_micros(fastrand::u64(50..5000)));
            let done = match fastrand::u32(..20) {
                0..8 => self.persist(|| self.store.flush()).map(|()| {
                    flushes += 1;
                    self.note(self.notes.flushes(flushes));
                }),
                8..13 => self
                    .persist(|| self.store.sync())
                    .map(|lsn| self.note(self.notes.synced_below(lsn))),
                13..18 => self.step_family(&mut steps),
                _ => self.persist(|| self.store.compact()),
            };
            if done.is_none() {
                return;
            }
        }
    }

    fn step_family(&self, steps: &mut u64) -> Option<()> {
        let takes_part = self.persist(|| self.store.step_family(*steps + 1))?;
        if takes_part {
            *steps += 1;
            self.note(self.notes.family(FamilySteps { done: *steps, is_whole: true }));
        }
        Some(())
    }

    fn note(&self, noted: io::Result<()>) {
        if let Err(error) = noted {
            say(&format!("wrong: the notes: {error}"));
        }
    }

    /// Repeats a call until it succeeds. `None` if it never will, or if the power was cut before
    /// its success was known.
    fn persist<T>(&self, mut call: impl FnMut() -> Result<T, Failure>) -> Option<T> {
        loop {
            match call() {
                // A real power cut ends the process too, but this one lives on for a moment. So a
                // call that returns after the cut counts as not acknowledged, whatever it returns.
                Ok(answer) => return self.notes.is_power_on().ok()?.then_some(answer),
                Err(failure) => match self.judge(&failure) {
                    Then::TryAgain => thread::sleep(RETRY_PAUSE),
                    Then::Stop => return None,
                },
            }
        }
    }

    fn judge(&self, failure: &Failure) -> Then {
        let then = match (self.trouble, failure) {
            (Trouble::NoRoom, Failure::NoRoom(_)) => Then::TryAgain,
            (Trouble::FailingDevice, Failure::NoRoom(_) | Failure::Io(_)) => Then::TryAgain,
            (Trouble::FailingDevice, Failure::Refused(_)) => {
                self.is_refused.store(true, Relaxed);
                Then::Stop
            }
            _ => {
                self.note(self.notes.fail());
                say(&format!("failed: {failure}"));
                return Then::Stop;
            }
        };
        let expected = self.expected.fetch_add(1, Relaxed) + 1;
        self.note(self.notes.expected_failures(expected));
        then
    }

    /// Checks that, once a write was refused, all are, and that reads still see everything
    /// acknowledged.
    fn check_refusal(&self) -> Result<(), String> {
        let commit = self.plan.commit(self.number, 0, COMMITS_MAX);
        for is_synced in [false, true] {
            match self.store.write(&commit.writes, is_synced) {
                Err(Failure::Refused(_)) => {}
                other => return Err(format!("a write after a refused one: {other:?}")),
            }
        }
        match self.store.flush() {
            Err(Failure::Refused(_)) => {}
            other => return Err(format!("a flush after a refused write: {other:?}")),
        }
        let record = self.notes.read().map_err(|error| error.to_string())?;
        let found =
            self.store.read_all().map_err(|failure| format!("a read was refused: {failure}"))?;
        let seen = check(self.plan, &record, &found, Death::Process);
        seen.map(drop).map_err(|what| format!("read while writes are refused: {what}"))
    }
}
