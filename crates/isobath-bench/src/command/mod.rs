//! What each command does.

mod compare;
mod dbbench;
mod directory;
mod job;
mod memory_group;
mod place;
mod ramp;
mod repeats;
mod run;
mod run_config;
mod suite;
mod suite_config;

pub(crate) use job::{Job, run_isolated};

use crate::cli::{Cli, Command};
use crate::drive::Stop;
use crate::engine;
use crate::report::Report;
use crate::suite::SUITES;
use anyhow::Result;
use std::process::ExitCode;

pub(crate) fn execute(cli: Cli) -> Result<ExitCode> {
    match cli.command {
        Command::Run(flags) => run::execute(&flags),
        Command::Suite(flags) => suite::execute(&flags),
        Command::DbBench(flags) => dbbench::execute(&flags),
        Command::Compare(flags) => compare::execute(&flags),
        Command::Render { report, out } => compare::render(&report, &out),
        Command::Markdown { reports } => compare::print_markdown(&reports),
        Command::Suites => {
            SUITES.iter().for_each(|(name, purpose)| println!("{name:<20} {purpose}"));
            Ok(ExitCode::SUCCESS)
        }
        Command::Engines => {
            list_engines();
            Ok(ExitCode::SUCCESS)
        }
        Command::Job { file, group } => job::execute(&file, group.as_deref()),
    }
}

/// A failed row counts more than an interrupt, which has the exit code that shells use for it.
fn exit_code(report: &Report, stop: &Stop) -> ExitCode {
    match () {
        () if !report.failures.is_empty() => ExitCode::FAILURE,
        () if stop.requested() => ExitCode::from(130),
        () => ExitCode::SUCCESS,
    }
}

fn list_engines() {
    for name in engine::names() {
        if let Ok(kind) = engine::find(name) {
            let levels: Vec<&str> = kind.durabilities.iter().map(|level| level.name()).collect();
            let transactions =
                kind.transactions.map_or(String::new(), |how| format!("; transactions: {how}"));
            let version = (kind.version)();
            println!("{name:<20} {version:<16} durability: {}{transactions}", levels.join(", "));
        }
    }
}
