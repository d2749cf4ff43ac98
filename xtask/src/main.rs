//! Chores of the workspace: `cargo run -p xtask` checks the house rules, which a test does too;
//! `cargo run -p xtask -- mutants` tries the tests and the simulator on changed engines.

use clap::{Parser, Subcommand};
use std::process::ExitCode;
use xtask::mutants::Mutants;
use xtask::tidy;

#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    chore: Option<Chore>,
}

#[derive(Subcommand)]
enum Chore {
    Mutants(Mutants),
}

fn main() -> ExitCode {
    match Cli::parse().chore {
        None => check(),
        Some(Chore::Mutants(mutants)) => match mutants.carry_out() {
            Ok(true) => ExitCode::SUCCESS,
            Ok(false) => ExitCode::FAILURE,
            Err(error) => {
                eprintln!("error: {error}");
                ExitCode::from(2)
            }
        },
    }
}

fn check() -> ExitCode {
    let violations = match tidy::Workspace::load(&tidy::workspace_root()) {
        Ok(workspace) => tidy::check(&workspace),
        Err(error) => {
            eprintln!("could not read the workspace: {error}");
            return ExitCode::FAILURE;
        }
    };
    for violation in &violations {
        println!("{violation}");
    }
    if violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
