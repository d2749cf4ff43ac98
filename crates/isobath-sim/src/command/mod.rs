//! The subcommands: each is its arguments, and what it does with them. An error is trouble of the command itself; what a
//! harness finds is a failure code.

mod controls;
mod ledger;
mod metamorphic;
mod replay;
mod run;

use clap::Subcommand;
use std::error::Error;
use std::process::ExitCode;

/// How a subcommand ends.
pub(crate) type Ended = Result<ExitCode, Box<dyn Error>>;

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Simulate a range of seeds
    Run(run::Run),
    /// Simulate one seed again
    Replay(replay::Replay),
    /// Plant bugs one by one and see each caught
    Controls(controls::Controls),
    /// Play streams of operations under many options, and compare the answers
    Metamorphic(metamorphic::Metamorphic),
    /// Add up what all runs in the ledger did
    Ledger(ledger::Ledger),
}

impl Command {
    pub(crate) fn carry_out(self) -> Ended {
        match self {
            Command::Run(command) => command.carry_out(),
            Command::Replay(command) => command.carry_out(),
            Command::Controls(command) => command.carry_out(),
            Command::Metamorphic(command) => command.carry_out(),
            Command::Ledger(command) => command.carry_out(),
        }
    }
}

/// FROM..TO, without TO.
pub(crate) fn parse_range(text: &str) -> Result<(u64, u64), String> {
    let parts =
        text.split_once("..").and_then(|(from, to)| Some((from.parse().ok()?, to.parse().ok()?)));
    parts
        .filter(|(from, to)| from < to)
        .ok_or_else(|| format!("write FROM..TO instead of {text:?}"))
}
