//! The `isobath` command: look into, verify and change a database from a shell.
//!
//! `cli.rs` defines the arguments, `command/` carries the commands out (one file for each group),
//! `text.rs` turns bytes into text that can be read back, `failure.rs` says what went wrong and
//! what to do, `progress.rs` shows the progress of a long command. `docs/cli.md` describes what
//! each command prints and its exit codes.

mod cli;
mod command;
mod failure;
#[cfg(test)]
mod fuzzing;
mod progress;
mod text;
mod when;

use clap::Parser;
use command::Outcome;
use failure::say;
use std::process::ExitCode;

fn main() -> ExitCode {
    match command::execute(cli::Cli::parse().command) {
        Ok(Outcome::Yes) => ExitCode::SUCCESS,
        Ok(Outcome::No) => ExitCode::from(1),
        // The reader of the output has ended early, as `head` does. That is no failure.
        Err(failure) if failure.is_closed_output() => ExitCode::SUCCESS,
        Err(failure) => {
            say(&format!("error: {failure}"));
            ExitCode::from(failure.code())
        }
    }
}
