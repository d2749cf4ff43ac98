//! Keeps the tree in shape: compacts what writers pile up, drops what nobody can read, moves what fits as it
//! is.
//!
//! Deciding is pure and returns a value; doing takes the value; installing is one manifest edit, made by
//! whoever called:
//!
//! - `policy`     what is fixed, and what the tree does not show
//! - `shape`      how large each level should be, and the debt
//! - `plan`       what to do next: `pick` chooses slices below level 0, `pick_runs` level 0's runs,
//!   `manual` what somebody asked for
//! - `beneath`    whether a delete still hides anything
//! - `cut`        where one output ends and the next begins
//! - `run`        merges the keys of a part: `inputs` to read, tables to write
//! - `job`        the parts of a compaction, worked at by several threads
//! - `schedule`   when jobs run, and the edit that installs each
//!
//! How it decides and why so: `docs/internals/compaction.md`.

mod beneath;
mod cut;
mod inputs;
mod job;
mod lineage;
mod manual;
mod pick;
mod pick_runs;
mod plan;
mod policy;
mod run;
mod schedule;
mod shape;

pub(crate) use job::{CompactionJob, Outcome};
pub(crate) use manual::{ManualPlan, ManualRange, plan_manual};
pub(crate) use plan::{Compaction, Plan, plan};
pub(crate) use policy::{Hints, Policy};
pub(crate) use run::{CompactionContext, Progress};
pub(crate) use schedule::{
    after_flush, compact_range, debt_bytes, forget, retry, schedule, schedule_idle, wait_until_idle,
};
#[cfg(test)]
pub(crate) use shape::Shape;
pub(crate) use shape::{Debts, debts};

#[cfg(test)]
use crate::engine::{Busy, JobId};

#[cfg(test)]
mod convergence;
#[cfg(test)]
mod cost;
#[cfg(test)]
mod decisions;
#[cfg(test)]
mod drawn;
#[cfg(test)]
mod model;
#[cfg(all(test, not(any(loom, shuttle))))]
mod paced;
#[cfg(test)]
mod run_tests;
#[cfg(test)]
mod scripts;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod soundness;
