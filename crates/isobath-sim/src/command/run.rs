//! `run`: a range of seeds, or as many as fit into some minutes. The first that fails is shrunk and
//! printed as the command that repeats it.

use super::{Ended, parse_range};
use crate::ledger::{self, Row};
use crate::simulation::{self, Frequencies, Profile, Settings, Tally, Trim, shrink, simulate};
use clap::{Args, ValueEnum as _};
use isobath::env::planted::Plant;
use isobath::env::reach::Reach;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// The largest share of lives, in percent, whose late reads may go unjudged. It is checked once
/// there are enough lives.
const UNJUDGED_PERCENT_MAX: u64 = 2;
const LIVES_COMPLETE: u64 = 500;

/// The options of every command that runs seeds.
#[derive(Args, Clone)]
pub(crate) struct Choice {
    /// What lives look like
    #[arg(long, value_enum, default_value_t = Profile::Mixed)]
    profile: Profile,
    /// Leave out part of what the seed does, as a shrunk failure says
    #[arg(long, default_value_t)]
    trim: Trim,
    /// Plant a bug: see the controls
    #[arg(long, value_parser = parse_plant)]
    plant: Option<Plant>,
}

impl Choice {
    pub(crate) fn settings(&self) -> Settings {
        let plant = self.plant.unwrap_or(Plant::Nothing);
        Settings { profile: self.profile, trim: self.trim, plant }
    }
}

/// A planted bug by its name.
pub(crate) fn parse_plant(name: &str) -> Result<Plant, String> {
    let names = || Plant::ALL.iter().map(|plant| plant.name()).collect::<Vec<_>>().join(", ");
    let found = Plant::ALL.iter().find(|plant| plant.name() == name);
    found.copied().ok_or_else(|| format!("there are {}", names()))
}

#[derive(Args)]
pub(crate) struct Run {
    /// From here up to, not including, there: 0..1000. Default is 0..100, or with --minutes fresh
    /// ones from the clock
    #[arg(long, value_parser = parse_range)]
    seeds: Option<(u64, u64)>,
    /// End after so many minutes, or when all seeds have run
    #[arg(long)]
    minutes: Option<f64>,
    /// Do not reduce a failing seed to its smallest part that still fails
    #[arg(long)]
    no_shrink: bool,
    #[command(flatten)]
    choice: Choice,
    /// Add what was done to this ledger
    #[arg(long, conflicts_with_all = ["plant", "trim"])]
    ledger: Option<PathBuf>,
    /// Put into this file how many of the seeds came to each place: see `frequency.rs`
    #[arg(long, conflicts_with_all = ["plant", "trim"])]
    measure: Option<PathBuf>,
}

impl Run {
    pub(crate) fn carry_out(self) -> Ended {
        ledger::begin("run", self.ledger.as_deref())?;
        simulation::hook();
        let settings = self.choice.settings();
        let (from, to) = self.seeds();
        let started = Instant::now();
        let is_late = || {
            let minutes = started.elapsed().as_secs_f64() / 60.0;
            self.minutes.is_some_and(|limit| minutes >= limit)
        };
        let mut total = Tally::default();
        let mut failure = None;
        let mut end = from;
        while end < to && failure.is_none() && !is_late() {
            match simulate(end, &settings) {
                Ok(tally) => total.add(tally),
                Err(wrong) => failure = Some(wrong),
            }
            end += 1;
        }
        let seconds = started.elapsed().as_secs_f64();
        let commit = ledger::commit();
        if let Some(wrong) = &failure {
            self.report(end - 1, wrong, &settings);
        }
        println!(
            "commit {commit}, {} {from}..{end}: {total} in {seconds:.1} s ({:.0} operations/s, {:.1} crashes/s){}",
            settings.profile,
            total.operations as f64 / seconds,
            total.crashes as f64 / seconds,
            if failure.is_none() { "; nothing lost, nothing torn, nothing wrong" } else { "" }
        );
        println!("{}\n{}", total.levels, total.two_phase);
        println!("came to: {}", total.reached);
        let missed = judge_places(&total, &settings, &Frequencies::measured());
        missed.report(total.seeds);
        if let Some(file) = &self.measure {
            Frequencies::measure(settings.profile, &total, file)?;
        }
        let is_blind = total.opens >= LIVES_COMPLETE
            && total.unjudged * 100 > total.opens * UNJUDGED_PERCENT_MAX;
        if is_blind {
            println!("UNJUDGED are the late reads of {} lives of {}", total.unjudged, total.opens);
        }
        if let Some(ledger) = &self.ledger {
            let inputs = format!("{} {from}..{end}", settings.profile);
            let found =
                u64::from(failure.is_some()) + u64::from(is_blind) + missed.due.len() as u64;
            let row = Row::new("run", inputs, seconds, found);
            total.counts().fold(row, |row, (name, n)| row.count(&name, n)).append(ledger)?;
        }
        let is_well = failure.is_none() && missed.due.is_empty() && !is_blind;
        Ok(if is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    /// The first seed, and the one after the last.
    fn seeds(&self) -> (u64, u64) {
        match (self.seeds, self.minutes) {
            (Some(seeds), _) => seeds,
            (None, None) => (0, 100),
            (None, Some(_)) => {
                let clock = SystemTime::now().duration_since(UNIX_EPOCH);
                // Each second of the clock has a million seeds of its own, so two runs draw
                // different ones.
                let from = clock.map_or(0, |since| since.as_secs()) * 1_000_000;
                println!("fresh seeds from {from}");
                (from, u64::MAX)
            }
        }
    }

    /// Prints a failure, and the smallest run that still fails.
    fn report(&self, seed: u64, wrong: &str, settings: &Settings) {
        eprintln!("seed {seed} FAILED: {wrong}");
        if self.no_shrink {
            eprintln!("repeat it with: {}", command(seed, settings));
            return;
        }
        let shrunk = shrink(seed, settings);
        eprintln!("after {} tries the least that fails: {}", shrunk.tries, shrunk.wrong);
        eprintln!("repeat it with: {}", command(seed, &shrunk.settings));
    }
}

/// The command that repeats a seed.
pub(crate) fn command(seed: u64, settings: &Settings) -> String {
    let mut command = format!("cargo run --release -p isobath-sim -- replay {seed}");
    if settings.profile != Profile::Mixed {
        let name = settings.profile.to_possible_value();
        command += &format!(" --profile {}", name.expect("none is hidden").get_name());
    }
    if settings.trim != Trim::default() {
        command += &format!(" --trim {}", settings.trim);
    }
    if settings.plant != Plant::Nothing {
        command += &format!(" --plant {}", settings.plant.name());
    }
    command
}

/// What was not reached.
#[derive(Debug, PartialEq)]
struct Missed {
    /// Places that a run of so many seeds must reach.
    due: Vec<Reach>,
    /// Places that such a run may well miss.
    rare: Vec<Reach>,
    /// How many places were judged.
    judged: usize,
}

/// Looks for places that were never reached. Where parts of seeds are left out, or bugs planted, no
/// place is due.
fn judge_places(total: &Tally, settings: &Settings, known: &Frequencies) -> Missed {
    let is_whole = settings.trim == Trim::default() && settings.plant == Plant::Nothing;
    let profile = settings.profile;
    let leads_to = |place: &Reach| profile.leads_to().contains(place);
    let is_due =
        |place: &Reach| is_whole && leads_to(place) && known.is_due(*place, profile, total.seeds);
    let (due, rare) = total.reached.missed().into_iter().filter(leads_to).partition(is_due);
    Missed { due, rare, judged: Reach::ALL.iter().filter(|place| is_due(place)).count() }
}

impl Missed {
    fn report(&self, seeds: u64) {
        for place in &self.due {
            println!("NEVER came to {}: {}", place.name(), place.what());
        }
        let (judged, all) = (self.judged, Reach::ALL.len());
        match judged {
            0 => println!("NOT JUDGED is whether {seeds} seeds came to all of the {all} places"),
            _ => println!("judged are {judged} of {all} places, which {seeds} seeds must come to"),
        }
        if !self.rare.is_empty() {
            let names: Vec<&str> = self.rare.iter().map(|place| place.name()).collect();
            println!("not judged, and not come to: {}", names.join(", "));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulation::{Reached, SEEDS_COMPLETE};
    use isobath::env::reach::reached;

    #[test]
    fn a_place_that_a_whole_run_never_reached_is_missed() {
        let _ = Reached::take();
        Reach::ALL[1..].iter().for_each(|place| reached(*place));
        let total = |seeds, reached: &Reached| Tally {
            seeds,
            reached: reached.clone(),
            ..Tally::default()
        };
        let all_but_one = Reached::take();
        let settings = Settings::default();
        let judge =
            |total: &Tally, settings| judge_places(total, settings, &Frequencies::default());
        let missed = judge(&total(SEEDS_COMPLETE, &all_but_one), &settings);
        let (first, judged) = (Reach::ALL[0], Reach::ALL.len() - Reach::OF_SCENES.len());
        assert_eq!(missed, Missed { due: vec![first], rare: Vec::new(), judged });
        // A shorter run tells of it, too.
        let not_judged = Missed { due: Vec::new(), rare: vec![first], judged: 0 };
        let missed = judge(&total(SEEDS_COMPLETE - 1, &all_but_one), &settings);
        assert_eq!(missed, not_judged);
        let planted = Settings { plant: Plant::SyncSkipped, ..settings };
        assert_eq!(judge(&total(SEEDS_COMPLETE, &all_but_one), &planted), not_judged);
        // A run sums up what its seeds have reached.
        let mut sum = total(SEEDS_COMPLETE, &all_but_one);
        reached(Reach::ALL[0]);
        sum.add(total(1, &Reached::take()));
        assert!(judge(&sum, &Settings::default()).due.is_empty());
    }

    #[test]
    fn a_run_that_its_minutes_ended_early_must_have_come_to_what_most_seeds_come_to() {
        let known = Frequencies::measured();
        let total = Tally { seeds: 200, ..Tally::default() };
        let missed = judge_places(&total, &Settings::default(), &known);
        assert!(missed.due.contains(&Reach::Preempted) && !missed.due.contains(&Reach::Fenced));
        assert_eq!(missed.due.len(), missed.judged);
        assert_eq!(missed.due.len() + missed.rare.len(), Reach::ALL.len());
    }
}
