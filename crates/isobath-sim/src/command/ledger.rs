//! `ledger`: adds up what all runs did.

use super::Ended;
use crate::{ledger, pages};
use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Args)]
pub(crate) struct Ledger {
    /// The ledger
    #[arg(long, default_value = ledger::PATH)]
    file: PathBuf,
    /// Put the sums into this page, between its markers
    #[arg(long)]
    write: Option<PathBuf>,
    /// Say which commit and which engine this program was built from, for harnesses that write
    /// rows of their own
    #[arg(long, conflicts_with = "write")]
    built_from: bool,
}

impl Ledger {
    pub(crate) fn carry_out(self) -> Ended {
        if self.built_from {
            println!("{}\t{}", ledger::commit(), ledger::engine());
            return Ok(ExitCode::SUCCESS);
        }
        let table = ledger::table(&ledger::read(&self.file)?, ledger::engine());
        match self.write {
            Some(page) => pages::replace(&page, "ledger", &table)?,
            None => print!("{table}"),
        }
        Ok(ExitCode::SUCCESS)
    }
}
