//! Fixed workloads over fixed patterns: the rows that engines are compared on.
//!
//! populate → settle → measure → settle → verify → close. Keys and values are made outside the
//! timed sections, answers are checked inside them where that costs nanoseconds, and the whole
//! content afterwards.

mod block;
mod catalog;
mod oracle;
mod phases;
mod reader;
mod row;
mod transactions;
mod worker;

#[cfg(test)]
mod tests;

pub(crate) use catalog::{SUITES, Scale, rows};
pub(crate) use phases::{Phase, SuiteJob, run_job};
pub(crate) use reader::Beside;
pub(crate) use row::{Memtable, Row};
