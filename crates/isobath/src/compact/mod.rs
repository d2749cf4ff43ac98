//! Keeps the trees in shape: compacts runs and levels that have grown, drops versions that no
//! reader can see, and moves slices that fit deeper without being rewritten.
//!
//! Deciding is pure and returns a value; doing takes the value; the caller installs the result by
//! one edit of the manifest:
//!
//! - `plan/`      decides what to do next, from values alone: no file, no thread, no lock
//! - `run/`       carries out a plan: reads the inputs and writes tables, with several threads
//! - `garbage`    finds blob files of which little is alive
//! - `old_deletes` finds deletes that have stayed as long as their families allow
//! - `clean`      finds table files of which little is alive
//! - `schedule`   starts jobs, and installs each by one edit
//!
//! How it decides, and why: `docs/internals/compaction.md`.

mod clean;
mod filter;
mod garbage;
mod old_deletes;
mod plan;
mod plants;
mod run;
mod schedule;

pub(crate) use clean::Cleaner;
pub(crate) use old_deletes::OldDeletes;
pub(crate) use schedule::{
    after_flush, compact_range, debt_bytes, forget, retry, schedule, schedule_all,
    schedule_collections, schedule_idle, schedule_resting, wait_until_idle,
};

#[cfg(feature = "bench-internals")]
pub(crate) use plan::{Hints, Plan, Policy, plan, simulation};
#[cfg(feature = "bench-internals")]
pub(crate) use run::{CompactionContext, CompactionJob, Outcome};
