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
}

impl Ledger {
    pub(crate) fn carry_out(self) -> Ended {
        let table = ledger::table(&ledger::read(&self.file)?);
        match self.write {
            Some(page) => pages::replace(&page, "ledger", &table)?,
            None => print!("{table}"),
        }
        Ok(ExitCode::SUCCESS)
    }
}
