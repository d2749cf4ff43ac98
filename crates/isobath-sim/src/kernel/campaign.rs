//! Many deaths, one database after the other: what the harnesses of the real kernel have in common.
//!
//! Each database has its own seed. It goes through several deaths, is checked, closed and checked
//! again, and is then removed. The next one follows. Each harness defines its kind of death.

use super::history::mix;
use super::life::{Life, Said};
use super::notes::Notes;
use super::writer::Writer;
use std::error::Error;
use std::fs::{self, File};
use std::io;
use std::time::{Duration, Instant};

/// A call that takes longer hangs; the writer itself notices first.
pub(super) const PATIENCE: Duration = Duration::from_secs(150);
/// The longest that a writer writes before it is killed or the power is cut.
const WRITES_US_MAX: u64 = 12_000;
/// The same for a program from outside, which also closes and opens again.
const OUTSIDE_WRITES_US_MAX: u64 = 100_000;
/// How often progress is reported.
const TOLD_EVERY: Duration = Duration::from_secs(10);

/// What is wrong, if anything is. An error is trouble of the harness itself.
pub(super) type Verdict = Result<Option<String>, Box<dyn Error>>;

/// How many deaths to cause, and of which writers.
#[derive(Clone, Debug)]
pub(crate) struct Campaign {
    /// The word for one death, for messages.
    pub(crate) unit: &'static str,
    pub(crate) deaths: u64,
    /// Deaths of one database at most.
    pub(crate) lives_max: u64,
    /// The first database's writer; the seed of each that follows is one higher.
    pub(crate) writer: Writer,
}

/// What was done, and its outcome.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) deaths: u64,
    pub(crate) databases: u64,
    /// Commits that were acknowledged.
    pub(crate) commits: u64,
    /// Errors that the harness provoked, and that were of the right kind.
    pub(crate) errors: u64,
    pub(crate) seconds: f64,
    pub(crate) wrong: Option<String>,
}

/// The lives of one database.
pub(super) struct Series<'a> {
    pub(super) writer: Writer,
    pub(super) notes: Notes,
    pub(super) rng: &'a mut fastrand::Rng,
    /// Errors that the harness provoked.
    pub(super) errors: u64,
}

impl Campaign {
    /// Causes deaths of one database after the other, until there were enough deaths or something
    /// is wrong.
    pub(super) fn run(
        &self,
        die: &mut dyn FnMut(&mut Series<'_>) -> Verdict,
    ) -> Result<Outcome, Box<dyn Error>> {
        let started = Instant::now();
        let mut told = started;
        let mut outcome = Outcome::default();
        let mut rng = fastrand::Rng::with_seed(mix(&[self.writer.seed, 3]));
        while outcome.deaths < self.deaths && outcome.wrong.is_none() {
            let seed = self.writer.seed + outcome.databases;
            let lives = rng.u64(1..=self.lives_max).min(self.deaths - outcome.deaths);
            let writer = Writer { seed, ..self.writer.clone() };
            let mut series = Series { writer, notes: Notes::new()?, rng: &mut rng, errors: 0 };
            let wrong = series.live(lives, die, &mut outcome)?;
            outcome.databases += 1;
            outcome.errors += series.errors;
            outcome.commits += series.commits()?;
            outcome.seconds = started.elapsed().as_secs_f64();
            outcome.wrong =
                wrong.map(|what| format!("database of seed {seed}: {what} ({})", series.origin()));
            if told.elapsed() >= TOLD_EVERY {
                told = Instant::now();
                let rate = outcome.deaths as f64 / outcome.seconds;
                eprintln!("{} {}, {rate:.1} a second", outcome.deaths, self.unit);
            }
        }
        Ok(outcome)
    }
}

impl Series<'_> {
    fn live(
        &mut self,
        lives: u64,
        die: &mut dyn FnMut(&mut Series<'_>) -> Verdict,
        outcome: &mut Outcome,
    ) -> Verdict {
        for _ in 0..lives {
            let wrong = die(self)?;
            outcome.deaths += 1;
            if wrong.is_some() {
                return Ok(wrong);
            }
        }
        let wrong = self.check_and_close()?;
        if wrong.is_none() {
            self.remove()?;
        }
        Ok(wrong)
    }

    /// Removes the database for good: a cut would bring back what was removed a moment ago.
    fn remove(&self) -> io::Result<()> {
        fs::remove_dir_all(&self.writer.dir)?;
        let above = self.writer.dir.parent().expect("a database lies in a directory");
        File::open(above)?.sync_all()
    }

    /// How long a life writes.
    pub(super) fn writes_us(&mut self) -> u64 {
        let is_outside = self.writer.outside.program.is_some();
        self.rng.u64(..if is_outside { OUTSIDE_WRITES_US_MAX } else { WRITES_US_MAX })
    }

    /// For messages: the program that wrote the database, or what its history is computed from.
    fn origin(&self) -> String {
        match &self.writer.outside.program {
            Some(program) => format!("written by {}", program.display()),
            None => format!("plan: {:?}", self.writer.engine.plan(self.writer.seed)),
        }
    }

    /// Commits that were acknowledged.
    fn commits(&self) -> io::Result<u64> {
        match self.writer.outside.program {
            Some(_) => self.notes.outside_commits(),
            None => Ok(self.notes.read()?.commits()),
        }
    }

    /// Begins a life.
    pub(super) fn begin(&self) -> Result<Life, Box<dyn Error>> {
        self.notes.forgive()?;
        Ok(Life::begin(&self.writer, &self.notes)?)
    }

    /// Starts a life that opens, checks, closes, opens and checks the database.
    pub(super) fn check_and_close(&mut self) -> Verdict {
        let checker = Writer { only_check: true, ..self.writer.clone() };
        let mut life = Life::begin(&checker, &self.notes)?;
        let said = life.listen(PATIENCE)?;
        drop(life.kill()?);
        Ok(match said {
            Said::Done => None,
            Said::Wrong(what) | Said::Failed(what) => Some(what),
            other => Some(format!("a check came to no end: {other:?}")),
        })
    }

    /// Begins a life that writes.
    pub(super) fn begin_writing(&mut self) -> Result<Result<Life, String>, Box<dyn Error>> {
        let mut life = self.begin()?;
        Ok(match life.listen(PATIENCE)? {
            Said::Ready | Said::Done => Ok(life),
            said => {
                let last = life.kill()?;
                Err(format!("a life did not begin: {said:?}, {last:?}"))
            }
        })
    }

    /// Kills a life, and returns what it reported as wrong. A failed call counts only if
    /// `has_failed`, because the harness may have caused it otherwise.
    pub(super) fn end(&mut self, life: Life, has_failed: bool) -> Verdict {
        let said = life.kill()?;
        self.errors += self.notes.expected_failures_noted()?;
        Ok(match said {
            Said::Wrong(what) => Some(what),
            Said::Failed(what) if has_failed => Some(format!("a call failed: {what}")),
            _ => None,
        })
    }
}
