//! The subcommands: each file holds the arguments of one and what it does with them. An error means
//! that the command itself failed; a bug that a harness finds is a failure code.

mod controls;
#[cfg(target_os = "linux")]
mod deaths;
#[cfg(target_os = "linux")]
mod enospc;
mod flip;
#[cfg(target_os = "linux")]
mod kill;
mod ledger;
mod metamorphic;
#[cfg(target_os = "linux")]
mod powercut;
mod replay;
mod run;
mod threads;

use clap::Subcommand;
use std::error::Error;
use std::process::ExitCode;

pub(crate) use run::parse_plant;

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
    /// Damage a small database in every way, one at a time, and read what is left
    Flip(flip::Flip),
    /// Play streams of operations under many options, and compare the answers
    Metamorphic(metamorphic::Metamorphic),
    /// Run transactions on threads of the system, and judge all that they read
    Threads(threads::Threads),
    /// Add up what all runs in the ledger did
    Ledger(ledger::Ledger),
    /// Cut a file system off its device under a writing database (needs root)
    #[cfg(target_os = "linux")]
    Powercut(powercut::Powercut),
    /// Kill a writing process
    #[cfg(target_os = "linux")]
    Kill(kill::Kill),
    /// Let a database run out of room, or its device fail (needs root)
    #[cfg(target_os = "linux")]
    Enospc(enospc::Enospc),
    #[cfg(target_os = "linux")]
    #[command(hide = true)]
    Writer(crate::kernel::Writer),
}

impl Command {
    pub(crate) fn carry_out(self) -> Ended {
        match self {
            Command::Run(command) => command.carry_out(),
            Command::Replay(command) => command.carry_out(),
            Command::Controls(command) => command.carry_out(),
            Command::Flip(command) => command.carry_out(),
            Command::Metamorphic(command) => command.carry_out(),
            Command::Threads(command) => command.carry_out(),
            Command::Ledger(command) => command.carry_out(),
            #[cfg(target_os = "linux")]
            Command::Powercut(command) => command.carry_out(),
            #[cfg(target_os = "linux")]
            Command::Kill(command) => command.carry_out(),
            #[cfg(target_os = "linux")]
            Command::Enospc(command) => command.carry_out(),
            #[cfg(target_os = "linux")]
            Command::Writer(command) => command.carry_out(),
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
