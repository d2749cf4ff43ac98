//! `metamorphic`: streams of operations under many options.

use super::controls::first_words;
use super::{Ended, parse_plant, parse_range};
use crate::ledger::{self, Row};
use crate::metamorphic::{Tally, play_seed};
use clap::Args;
use isobath::env::planted::{Plant, plant};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

#[derive(Args)]
pub(crate) struct Metamorphic {
    /// From here up to, not including, there: 0..1000
    #[arg(long, default_value = "0..20", value_parser = parse_range)]
    seeds: (u64, u64),
    /// Sets of options for each
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..=256))]
    variants: u64,
    /// Plant a bug, expect it to be caught, and fail if it is not
    #[arg(long, value_parser = parse_plant, value_name = "BUG")]
    control: Option<Plant>,
    /// Add what was done to this ledger
    #[arg(long, conflicts_with = "control")]
    ledger: Option<PathBuf>,
}

impl Metamorphic {
    pub(crate) fn carry_out(self) -> Ended {
        ledger::begin("metamorphic", self.ledger.as_deref())?;
        let (from, to) = self.seeds;
        // The engine runs its own threads here, so the bug is planted for every thread.
        plant(self.control.unwrap_or(Plant::Nothing));
        let started = Instant::now();
        let mut tally = Tally::default();
        let mut failure = None;
        let mut end = from;
        while end < to && failure.is_none() {
            failure = play_seed(end, self.variants, &mut tally).err();
            end += 1;
        }
        let seconds = started.elapsed().as_secs_f64();
        if let Some(bug) = self.control {
            return Ok(report_control(bug, end - from, &tally, seconds, failure.as_deref()));
        }
        if let Some(wrong) = &failure {
            eprintln!("FAILED: {wrong}");
            eprintln!(
                "repeat it with: cargo run --release -p isobath-sim -- metamorphic --seeds {}..{end} --variants {}",
                end - 1,
                self.variants
            );
        }
        println!(
            "commit {}, seeds {from}..{end}: {} streams under {} sets of options, {} operations, {} reads in {seconds:.1} s{}",
            ledger::commit(),
            tally.seeds,
            tally.settings,
            tally.operations,
            tally.reads,
            if failure.is_none() { "; equal answers" } else { "" }
        );
        if let Some(ledger) = &self.ledger {
            let inputs = format!("{from}..{end} by {}", self.variants);
            Row::new("metamorphic", inputs, seconds, u64::from(failure.is_some()))
                .count("operations", tally.operations)
                .count("reads", tally.reads)
                .append(ledger)?;
        }
        Ok(if failure.is_none() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

/// Prints whether a planted bug was caught.
fn report_control(
    bug: Plant,
    seeds: u64,
    tally: &Tally,
    seconds: f64,
    wrong: Option<&str>,
) -> ExitCode {
    let done = format!("{seeds} streams, {} sets of options, {seconds:.1} s", tally.settings);
    match wrong {
        Some(wrong) => {
            println!("control {}: caught after {done}: {}", bug.name(), first_words(wrong));
            ExitCode::SUCCESS
        }
        None => {
            println!("control {}: NOT CAUGHT by {done}", bug.name());
            ExitCode::FAILURE
        }
    }
}
