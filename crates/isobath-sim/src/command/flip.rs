//! `flip`: damages a small database in every way, one at a time.

use super::Ended;
use super::run::parse_plant;
use crate::hostile::{Asked, Mode, examine_all};
use crate::ledger::{self, Row};
use clap::Args;
use isobath::env::planted::Plant;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

#[derive(Args)]
pub(crate) struct Flip {
    /// What kind of damage
    #[arg(long, value_enum, default_value_t = Mode::Flip)]
    mode: Mode,
    /// The first damage, by number
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// The damage to stop before; all by default
    #[arg(long)]
    to: Option<u64>,
    /// Do only every so-many-th
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    step: u64,
    /// How many at once
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..64))]
    threads: u64,
    /// Plant a bug: see the controls
    #[arg(long, value_parser = parse_plant)]
    plant: Option<Plant>,
    /// Add what was done to this ledger
    #[arg(long, conflicts_with = "plant")]
    ledger: Option<PathBuf>,
}

impl Flip {
    pub(crate) fn carry_out(self) -> Ended {
        ledger::begin("flip", self.ledger.as_deref())?;
        let Flip { mode, from, step, threads, .. } = self;
        let asked = Asked { mode, from, to: self.to.unwrap_or(u64::MAX), step, threads };
        let started = Instant::now();
        let tally = examine_all(&asked, self.plant.unwrap_or(Plant::Nothing))?;
        let seconds = started.elapsed().as_secs_f64();
        print!("{tally}");
        println!(
            "commit {}, {mode}: {} damages of a database of {} bytes in {seconds:.1} s, {} bytes held at the most, {} wrong",
            ledger::commit(),
            tally.done,
            tally.image_bytes,
            tally.peak_bytes,
            tally.failures
        );
        if let Some(ledger) = &self.ledger {
            let end = self.to.map_or("end".to_owned(), |to| to.to_string());
            let inputs = format!("{mode} {from}..{end} step {step}");
            Row::new("flip", inputs, seconds, tally.failures)
                .count(&format!("{mode}-damages"), tally.done)
                .append(ledger)?;
        }
        Ok(if tally.failures == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}
