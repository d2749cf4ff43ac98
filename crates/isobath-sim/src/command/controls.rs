//! `controls`: plants every bug there is, one at a time, and shows that each is caught.

use super::Ended;
use super::run::parse_plant;
use crate::simulation::{
    self, Caught, FOUND_BY_TESTS, Profile, Settings, control, hunt, plants, simulate,
};
use crate::{ledger, pages};
use clap::Args;
use isobath::env::planted::Plant;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

#[derive(Args)]
pub(crate) struct Controls {
    /// The most seeds to try for each bug
    #[arg(long, default_value_t = 2000)]
    seeds: u64,
    /// Only this bug
    #[arg(long, value_parser = parse_plant)]
    plant: Option<Plant>,
    /// In lives of this profile alone
    #[arg(long, value_enum, conflicts_with = "write")]
    profile: Option<Profile>,
    /// Put the table into this page, between its markers
    #[arg(long)]
    write: Option<PathBuf>,
}

impl Controls {
    pub(crate) fn carry_out(self) -> Ended {
        simulation::hook();
        let plants = self.plant.map_or_else(|| plants().collect(), |plant| vec![plant]);
        let started = Instant::now();
        let mut caught = Vec::new();
        for (plant, test) in FOUND_BY_TESTS {
            println!("{:2} {:26} is for the unit test {test}", plant.class(), plant.name());
        }
        for plant in plants {
            let one = hunt(plant, self.profile, 0, self.seeds);
            println!("{}", line(&one));
            caught.push(one);
        }
        let missed = caught.iter().filter(|one| one.by.is_none()).count();
        let seeds = caught.iter().map(|one| one.seeds).max().unwrap_or(0);
        println!("without a plant, over the same seeds, {seeds} at most of a profile:");
        let mut tried = BTreeSet::new();
        for (seed, like) in
            caught.iter().flat_map(|one| (0..one.seeds).map(move |seed| (seed, one)))
        {
            let settings = control(seed, like.plant, self.profile);
            let clean = Settings { plant: Plant::Nothing, ..settings };
            if tried.insert((seed, settings.profile.to_string()))
                && let Err(wrong) = simulate(seed, &clean)
            {
                println!("seed {seed} of {} FAILED: {wrong}", settings.profile);
                return Ok(ExitCode::FAILURE);
            }
        }
        println!("nothing; {missed} bugs missed, in {:.1} s", started.elapsed().as_secs_f64());
        if let Some(page) = &self.write {
            pages::replace(page, "controls", &table(&caught, seeds))?;
        }
        Ok(if missed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

fn line(caught: &Caught) -> String {
    let plant = caught.plant;
    let head = format!("{:2} {:26}", plant.class(), plant.name());
    let took = caught.took.as_secs_f64();
    match &caught.by {
        Some((seed, wrong)) => {
            format!("{head} seed {seed:4}, {took:6.2} s: {}", first_words(wrong))
        }
        None => format!("{head} NOT CAUGHT by {} seeds, {took:.1} s", caught.seeds),
    }
}

fn table(caught: &[Caught], seeds: u64) -> String {
    let mut table = format!(
        "Commit {}; the engine without a plant finds nothing over the same seeds, {seeds} at most of a profile.\n\n\
         | class | planted | what it does | caught by | after | as |\n|---|---|---|---|---|---|\n",
        ledger::commit()
    );
    for one in caught {
        let (plant, took) = (one.plant, one.took.as_secs_f64());
        let (seed, how) = match &one.by {
            Some((seed, wrong)) => {
                let profile = control(*seed, plant, None).profile;
                (format!("seed {seed}, {profile}"), first_words(wrong))
            }
            None => ("**nothing**".to_owned(), String::new()),
        };
        let _ = writeln!(
            table,
            "| {} | `{}` | {} | {seed} | {took:.2} s | {how} |",
            plant.class(),
            plant.name(),
            plant.what()
        );
    }
    for (plant, test) in FOUND_BY_TESTS {
        let (class, name, what) = (plant.class(), plant.name(), plant.what());
        let _ = writeln!(table, "| {class} | `{name}` | {what} | unit test | | `{test}` |");
    }
    table
}

/// The text, shortened so that it fits into a table.
pub(super) fn first_words(wrong: &str) -> String {
    const CHARS_MAX: usize = 110;
    let shown = |c: char| if c.is_control() { '.' } else { c };
    let line = wrong.lines().next().unwrap_or_default().replace('|', "/");
    let line: String = line.chars().map(shown).collect();
    match line.char_indices().nth(CHARS_MAX) {
        Some((end, _)) => format!("{} ...", &line[..end]),
        None => line,
    }
}
