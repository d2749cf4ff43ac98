//! `threads`: rounds of transactions on threads of the system.

use super::controls::first_words;
use super::{Ended, parse_plant};
use crate::ledger::{self, Row};
use crate::simulation::threads::{HANGS_AFTER, Hanging, Mood, Round, Tally};
use clap::{Args, ValueEnum as _};
use isobath::env::planted::{Plant, plant};
use std::ops::Range;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

#[derive(Args)]
pub(crate) struct Threads {
    /// How long; the round that is under way then is played to its end
    #[arg(long, default_value_t = 10.0)]
    seconds: f64,
    /// Threads of a round
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u64).range(2..=8))]
    threads: u64,
    /// What rounds are about
    #[arg(long, value_enum, default_value_t = Mood::Mixed)]
    profile: Mood,
    /// The seed of the first round: default is a fresh one from the clock
    #[arg(long)]
    seed: Option<u64>,
    /// An empty directory for real files: every other round is on them
    #[arg(long)]
    dir: Option<PathBuf>,
    /// After so many seconds a round hangs, which is a failure and ends the process
    #[arg(long, default_value_t = HANGS_AFTER.as_secs_f64())]
    patience: f64,
    /// Plant a bug, expect it to be caught, and fail if it is not
    #[arg(long, value_parser = parse_plant, value_name = "BUG")]
    control: Option<Plant>,
    /// Add what was done to this ledger
    #[arg(long, conflicts_with = "control")]
    ledger: Option<PathBuf>,
}

impl Threads {
    pub(crate) fn carry_out(self) -> Ended {
        // The bug is planted for every thread.
        plant(self.control.unwrap_or(Plant::Nothing));
        ledger::begin("threads", self.ledger.as_deref())?;
        let clock = || SystemTime::now().duration_since(UNIX_EPOCH);
        let first = self.seed.unwrap_or_else(|| clock().map_or(0, |since| since.as_secs()) << 20);
        let started = Instant::now();
        let mut tally = Tally::default();
        let mut failure = None;
        let mut seed = first;
        while failure.is_none() && started.elapsed().as_secs_f64() < self.seconds {
            let hanging = self.hanging(first..seed + 1, started, tally.clone());
            match self.play(seed, hanging)? {
                Ok(played) => tally.add(&played),
                Err(wrong) => failure = Some(wrong),
            }
            seed += 1;
        }
        let seconds = started.elapsed().as_secs_f64();
        if let Some(bug) = self.control {
            return Ok(report_control(bug, &tally, seconds, failure.as_deref()));
        }
        if let Some(wrong) = &failure {
            eprintln!("round {} FAILED: {wrong}", seed - 1);
            eprintln!(
                "it may happen again with: cargo run --release -p isobath-sim -- threads --profile {} --seed {} --threads {}",
                self.profile(),
                seed - 1,
                self.threads
            );
        }
        println!(
            "commit {}, {} {first}..{seed} on {} threads: {tally} in {seconds:.1} s{}",
            ledger::commit(),
            self.profile(),
            self.threads,
            if failure.is_none() { "; nothing lost, nothing wrong" } else { "" }
        );
        if let Some(ledger) = &self.ledger {
            let found = u64::from(failure.is_some());
            row(self.inputs(first..seed), started, found, &tally).append(ledger)?;
        }
        Ok(if failure.is_none() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    fn profile(&self) -> String {
        let name = self.profile.to_possible_value();
        name.expect("none is hidden").get_name().to_owned()
    }

    /// What the ledger says that was run.
    fn inputs(&self, seeds: Range<u64>) -> String {
        format!("{} {}..{} on {}", self.profile(), seeds.start, seeds.end, self.threads)
    }

    /// A round that hangs ends the process, but not without its row.
    fn hanging(&self, seeds: Range<u64>, started: Instant, tally: Tally) -> Hanging {
        let (ledger, inputs) = (self.ledger.clone(), self.inputs(seeds));
        let report = move || {
            let Some(ledger) = ledger else { return };
            if let Err(error) = row(inputs, started, 1, &tally).append(&ledger) {
                eprintln!("no row was added to the ledger: {error}");
            }
        };
        Hanging { after: Duration::from_secs_f64(self.patience), report: Box::new(report) }
    }

    /// A round, every other one on real files if there is a directory.
    fn play(&self, seed: u64, hanging: Hanging) -> std::io::Result<Result<Tally, String>> {
        let dir = self.dir.as_ref().filter(|_| seed % 2 == 1);
        let dir = dir.map(|dir| dir.join(format!("round{seed}")));
        dir.iter().try_for_each(std::fs::create_dir)?;
        let (mood, threads) = (self.profile, self.threads as usize);
        let played = Round { seed, mood, threads, dir: dir.clone() }.play(hanging);
        dir.iter().try_for_each(std::fs::remove_dir_all)?;
        Ok(played)
    }
}

/// What rounds did since the start, as a row of a ledger.
fn row(inputs: String, started: Instant, found: u64, tally: &Tally) -> Row {
    Row::new("threads", inputs, started.elapsed().as_secs_f64(), found)
        .count("rounds", tally.rounds)
        .count("transactions", tally.transactions)
        .count("reads", tally.reads)
}

/// Prints whether a planted bug was caught.
fn report_control(bug: Plant, tally: &Tally, seconds: f64, wrong: Option<&str>) -> ExitCode {
    let (rounds, name) = (tally.rounds, bug.name());
    match wrong {
        Some(wrong) => {
            eprintln!("{wrong}");
            let wrong = first_words(wrong);
            println!("control {name}: caught after {rounds} rounds, {seconds:.1} s: {wrong}");
            ExitCode::SUCCESS
        }
        None => {
            println!("control {name}: NOT CAUGHT by {rounds} rounds, {seconds:.1} s");
            ExitCode::FAILURE
        }
    }
}
