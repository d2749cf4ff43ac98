//! The commands. Most open the database, do one thing, and close it again, so that errors of
//! closing are reported. Commands that only read open the database read-only and change nothing.
//! `verify` and `repair` work on a closed database, and `dump` on one file of any database.

mod dump;
mod estimate;
mod families;
mod ingest;
mod input;
mod keys;
mod maintenance;
mod open;
mod operator;
mod output;
mod repair;
mod scan;
mod stats;
mod transact;
mod transactions;
mod verify;

use crate::cli::Command;
use crate::failure::Result;

/// The answer, as the exit code tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Done; found; undamaged.
    Yes,
    /// Not found; damaged.
    No,
}

pub(crate) fn execute(command: Command) -> Result<Outcome> {
    match command {
        Command::Create(asked) => keys::create(&asked),
        Command::Get(asked) => keys::get(&asked),
        Command::Put(asked) => keys::put(&asked),
        Command::Expire(asked) => keys::expire(&asked),
        Command::Merge(asked) => keys::merge(&asked),
        Command::Delete(asked) => keys::delete(&asked),
        Command::Ingest(asked) => ingest::ingest(&asked),
        Command::Transact(asked) => transact::transact(&asked),
        Command::Transactions(asked) => transactions::transactions(&asked),
        Command::Scan(asked) => scan::scan(&asked),
        Command::Estimate(asked) => estimate::estimate(&asked),
        Command::Families(asked) => families::families(&asked),
        Command::Flush(database) => maintenance::flush(&database),
        Command::Compact(asked) => maintenance::compact(&asked),
        Command::Stats(asked) => stats::stats(&asked),
        Command::Verify(asked) => verify::verify(&asked),
        Command::Repair(asked) => repair::repair(&asked),
        Command::Dump(asked) => dump::dump(&asked),
    }
}
