//! A program that uses the engine from outside, instead of `writer.rs`: it has its own database,
//! invariants and notes.
//!
//! It is started with the notes as standard input (of which the first sixteen cells are as in
//! `notes.rs`) and with `--dir=DIR --seed=N --after=process|power [--only-check] [--mistake=NAME]`,
//! and prints the same lines as a writer. With `--built-from` it prints the hash of the sources of
//! its engine, or its deaths could not be counted for any. `isobath-bank` is such a program.

use clap::Args;
use std::error::Error;
use std::path::PathBuf;
use std::process::Command;

/// Which program.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct Outside {
    /// A program that writes instead, and checks what it finds: `target/debug/isobath-bank`, built
    /// by `cargo build -p isobath-bank`
    #[arg(long)]
    pub(crate) program: Option<PathBuf>,
    /// A mistake that the program makes on purpose; expect it to be caught, and fail if it is not
    #[arg(long, requires = "program", conflicts_with_all = ["control", "ledger"])]
    pub(crate) mistake: Option<String>,
}

impl Outside {
    /// The name of a harness that uses the program.
    pub(crate) fn name(&self, harness: &str) -> String {
        match self.program.as_ref().and_then(|program| program.file_stem()) {
            Some(name) => format!("{harness} of {}", name.to_string_lossy()),
            None => harness.to_owned(),
        }
    }

    /// An error if the program has another engine than the one whose sources have this hash.
    pub(crate) fn demand(&self, engine: &str) -> Result<(), Box<dyn Error>> {
        let Some(program) = &self.program else { return Ok(()) };
        let output = Command::new(program).arg("--built-from").output()?;
        let said = String::from_utf8_lossy(&output.stdout);
        match said.trim() {
            said if said == engine => Ok(()),
            said => Err(format!(
                "the engine of {} has the sources {said:?}, not {engine}: build it again, or its deaths would \
                 count in the ledger for an engine that it does not have",
                program.display()
            )
            .into()),
        }
    }
}
