//! Checks the house rules of the workspace: `cargo run -p xtask`. The same check is a test.

use std::process::ExitCode;
use xtask::tidy;

fn main() -> ExitCode {
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
