//! `isobath-sim`: looks for what would lose or falsify data.
//!
//! `command/` holds the subcommands, one file each. What they share: `simulation/` runs the real
//! engine under a seeded scheduler, disk and clock; `metamorphic/` compares options; `hostile/`
//! damages databases; `kernel/` lets real processes, file systems and devices die;
//! `ledger.rs` adds runs up over days and commits; `pages.rs` keeps generated tables in the
//! documentation. Bugs planted to show that a harness would find them: `isobath::env::planted`.

mod command;
mod existing;
mod hostile;
#[cfg(target_os = "linux")]
mod kernel;
mod ledger;
mod metamorphic;
mod pages;
mod position;
mod simulation;

use clap::Parser;
use command::Command;
use std::process::ExitCode;

/// Searches for bugs that lose or falsify data.
#[derive(Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

fn main() -> ExitCode {
    match Cli::parse().command.carry_out() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}
