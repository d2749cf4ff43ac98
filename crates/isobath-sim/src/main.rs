//! `isobath-sim`: looks for what would lose or falsify data.
//!
//! `run` gives the real engine a seeded scheduler, disk, clock and randomness (`runtime.rs`, `world.rs`), lets writers,
//! readers and a janitor loose on it (`workload.rs`), kills it again and again (`simulate.rs`), and checks every read and
//! every recovery (`oracle.rs`). A seed repeats exactly: `replay` runs one.

mod oracle;
mod runtime;
mod simulate;
mod workload;
mod world;

use clap::{Parser, Subcommand};
use simulate::{Tally, simulate};
use std::process::ExitCode;
use std::time::Instant;

/// Looks for what would lose or falsify data.
#[derive(Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Simulate a range of seeds
    Run {
        /// From here up to, not including, there: 0..1000
        #[arg(long, default_value = "0..100", value_parser = parse_range)]
        seeds: (u64, u64),
    },
    /// Simulate one seed again
    Replay {
        /// The seed that failed
        seed: u64,
    },
}

fn parse_range(text: &str) -> Result<(u64, u64), String> {
    let parts =
        text.split_once("..").and_then(|(from, to)| Some((from.parse().ok()?, to.parse().ok()?)));
    parts
        .filter(|(from, to)| from < to)
        .ok_or_else(|| format!("write FROM..TO instead of {text:?}"))
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    runtime::hook();
    let (from, to) = match cli.command {
        Command::Run { seeds } => seeds,
        Command::Replay { seed } => (seed, seed + 1),
    };
    let started = Instant::now();
    let mut total = Tally::default();
    for seed in from..to {
        match simulate(seed) {
            Ok(tally) => total.add(tally),
            Err(wrong) => {
                eprintln!("seed {seed} FAILED: {wrong}");
                eprintln!("repeat it with: cargo run --release -p isobath-sim -- replay {seed}");
                return ExitCode::FAILURE;
            }
        }
    }
    let seconds = started.elapsed().as_secs_f64();
    println!(
        "{} seeds from {from}: {} operations, {} crashes, {} opens, {} steps in {seconds:.1} s ({:.0} operations/s, \
         {:.1} crashes/s), digest {:016x}; nothing lost, nothing torn, nothing wrong",
        to - from,
        total.operations,
        total.crashes,
        total.opens,
        total.steps,
        total.operations as f64 / seconds,
        total.crashes as f64 / seconds,
        total.digest
    );
    ExitCode::SUCCESS
}
