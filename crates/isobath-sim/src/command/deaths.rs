//! What the commands of the real kernel share: how many deaths from which seed, with a bug planted
//! or not, and the report.

use super::{Ended, parse_plant};
use crate::kernel::{Outcome, Outside};
use crate::ledger::{self, Row};
use clap::Args;
use isobath::env::planted::Plant;
use std::error::Error;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

/// The options that commands share which kill processes or cut the power.
#[derive(Args, Clone, Debug)]
pub(crate) struct Deaths {
    /// The seed of the first database; the next has the next one. What the kernel does in between
    /// is not repeatable
    #[arg(long, default_value_t = 0)]
    pub(crate) seed: u64,
    /// Plant a bug, expect it to be caught, and fail if it is not
    #[arg(long, value_parser = parse_plant, value_name = "BUG")]
    pub(crate) control: Option<Plant>,
    /// Add what was done to this ledger
    #[arg(long, conflicts_with = "control")]
    ledger: Option<PathBuf>,
}

/// Prints why this machine cannot run the command. That is no failure.
pub(crate) fn skip(harness: &str, why: &str) -> Ended {
    println!("{harness} skipped: {why}");
    Ok(ExitCode::SUCCESS)
}

impl Deaths {
    /// Refuses to count deaths of a program with another engine, before there are any.
    pub(crate) fn demand(&self, outside: &Outside) -> Result<(), Box<dyn Error>> {
        if self.ledger.is_some() { outside.demand(ledger::engine()) } else { Ok(()) }
    }

    /// Says in the ledger that a run of this command begins.
    pub(crate) fn begin(&self, command: &str) -> io::Result<()> {
        ledger::begin(command, self.ledger.as_deref())
    }

    /// Prints the outcome of a run and adds it to the ledger. A planted bug, or a mistake of a
    /// program from outside, must have been caught.
    pub(crate) fn report(
        &self,
        harness: &str,
        unit: &str,
        mistake: Option<&str>,
        outcome: &Outcome,
    ) -> Ended {
        let Outcome { deaths, databases, commits, errors, seconds, .. } = outcome;
        let commit = ledger::commit();
        let done = format!(
            "{deaths} {unit} of {databases} databases, {commits} commits, {errors} errors brought about, in {seconds:.1} s \
             ({:.1} a second)",
            *deaths as f64 / seconds
        );
        let inputs = format!("seeds {}..{}", self.seed, self.seed + databases);
        match (self.control.map(Plant::name).or(mistake), &outcome.wrong) {
            (Some(bug), Some(wrong)) => {
                println!("control {}: caught after {done}: {wrong}", bug);
                return Ok(ExitCode::SUCCESS);
            }
            (Some(bug), None) => {
                println!("control {}: NOT CAUGHT by {done}", bug);
                return Ok(ExitCode::FAILURE);
            }
            (None, Some(wrong)) => {
                println!("commit {commit}, {harness} {inputs} FAILED: {wrong}\nafter {done}")
            }
            (None, None) => println!(
                "commit {commit}, {harness} {inputs}: {done}; nothing lost, nothing torn, nothing wrong"
            ),
        }
        if let Some(ledger) = &self.ledger {
            let row = Row::new(harness, inputs, *seconds, u64::from(outcome.wrong.is_some()));
            row.count(unit, *deaths).count("commits", *commits).append(ledger)?;
        }
        Ok(if outcome.wrong.is_none() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}
