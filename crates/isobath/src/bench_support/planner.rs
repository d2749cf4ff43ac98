//! Runs the planner on a tree without tables, under a steady stream of writes.

use crate::compact::{Policy, simulation};
use std::fmt;

/// The load, and the settings of the tree.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// The number of distinct keys. Each is written twice.
    pub keys: u64,
    /// The number of runs in level 0 that triggers a compaction.
    pub trigger: u64,
    /// The maximum size ratio of a level to the level above.
    pub ratio: u64,
    /// The length of a table.
    pub file_bytes: u64,
    /// The maximum number of bytes that a job reads.
    pub job_bytes: u64,
    /// The number of compaction threads.
    pub threads: u64,
    /// The time that a compaction takes for each entry it reads.
    pub ns_per_entry: u64,
}

/// The result as one line, with the columns of `HEAD`.
#[derive(Debug)]
pub struct Outcome(simulation::Report);

pub const HEAD: &str = "passes | L0 max mean | levels | files | longest job s | jobs | tail s";

/// Runs the planner until no compaction debt is left.
pub fn simulate(setting: &Setting) -> Outcome {
    let policy = Policy {
        l0_trigger_runs: setting.trigger as usize,
        size_ratio_max: setting.ratio as u32,
        target_file_bytes: setting.file_bytes,
        job_bytes_max: setting.job_bytes,
        ..Policy::default()
    };
    let mut load = simulation::load(setting.keys, 2 * setting.keys);
    load.threads = setting.threads as usize;
    load.ns_per_entry = setting.ns_per_entry;
    Outcome(simulation::simulate(&policy, &load))
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let report = &self.0;
        write!(
            f,
            "{:5.2} | {:3} {:5.1} | {:3.1} | {:4} | {:5.1} | {} | {:5.1}",
            report.passes,
            report.l0_runs_max,
            report.l0_runs_mean,
            report.levels_mean,
            report.files,
            report.job_s_max,
            report.jobs,
            report.tail_s
        )
    }
}
