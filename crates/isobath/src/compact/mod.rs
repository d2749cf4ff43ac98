//! Keeps the tree in shape: compacts what writers pile up, drops what nobody can read, moves what
//! fits as it is.
//!
//! Deciding is pure and returns a value; doing takes the value; installing is one manifest edit,
//! made by whoever called:
//!
//! - `plan/`      what to do next, computed from values alone: no file, no thread, no lock
//! - `run/`       carries out what was planned: reads the inputs, writes tables, by several threads
//! - `schedule`   when jobs run, and the edit that installs each
//!
//! How it decides and why so: `docs/internals/compaction.md`.

mod plan;
mod plants;
mod run;
mod schedule;

pub(crate) use schedule::{
    after_flush, compact_range, debt_bytes, forget, retry, schedule, schedule_idle, wait_until_idle,
};

#[cfg(feature = "bench-internals")]
pub(crate) use plan::{Hints, Plan, Policy, plan, simulation};
#[cfg(feature = "bench-internals")]
pub(crate) use run::{CompactionContext, CompactionJob, Outcome};
