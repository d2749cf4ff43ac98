//! Computes the planner's write amplification and backlog on the model. The figures of
//! docs/internals/compaction.md come from here, by the benchmark `planner`.

use super::fixtures::{Done, ENTRY_BYTES, Model};
use super::{Hints, Plan, Policy, plan, run_bytes_after};
use crate::engine::{Busy, JobId};

/// A steady stream of writes with uniform random keys, and a number of compaction threads.
#[derive(Clone, Debug)]
pub(crate) struct Load {
    /// The number of distinct keys.
    pub(crate) keys: u64,
    pub(crate) entries_total: u64,
    pub(crate) run_entries: u64,
    /// Nanoseconds between two flushes.
    pub(crate) flush_every_ns: u64,
    pub(crate) ns_per_entry: u64,
    pub(crate) threads: usize,
}

#[derive(Debug, Default)]
pub(crate) struct Report {
    /// Entries that jobs read for each flushed entry, over the second half of the load.
    pub(crate) passes: f64,
    pub(crate) l0_runs_max: usize,
    pub(crate) l0_runs_mean: f64,
    pub(crate) levels_mean: f64,
    pub(crate) files: usize,
    pub(crate) job_s_max: f64,
    pub(crate) jobs: usize,
    /// How long after the last write the debt was worked off.
    pub(crate) tail_s: f64,
}

struct Running {
    until_ns: u64,
    id: JobId,
    done: Done,
}

struct Simulation<'a> {
    policy: &'a Policy,
    load: &'a Load,
    model: Model,
    run_bytes: u64,
    busy: Busy,
    running: Vec<Running>,
    now_ns: u64,
    next_flush_ns: u64,
    flushed: u64,
    read_late: u64,
    samples: u64,
    report: Report,
}

pub(crate) fn simulate(policy: &Policy, load: &Load) -> Report {
    let mut simulation = Simulation {
        policy,
        load,
        model: Model::new(),
        run_bytes: 0,
        busy: Busy::default(),
        running: Vec::new(),
        now_ns: 0,
        next_flush_ns: 0,
        flushed: 0,
        read_late: 0,
        samples: 0,
        report: Report::default(),
    };
    loop {
        simulation.start_jobs();
        let first_done = simulation.running.iter().map(|job| job.until_ns).min();
        let is_writing = simulation.flushed < load.entries_total;
        let flush_due = is_writing.then_some(simulation.next_flush_ns);
        match (first_done, flush_due) {
            (Some(done), flush) if flush.is_none_or(|flush| done <= flush) => {
                simulation.end_job(done);
            }
            (_, Some(_)) => simulation.flush(),
            (_, None) => return simulation.conclude(),
        }
    }
}

impl Simulation<'_> {
    fn is_late(&self) -> bool {
        self.flushed > self.load.entries_total / 2
    }

    fn start_jobs(&mut self) {
        let hints = Hints {
            run_bytes: self.run_bytes,
            oldest_reader: self.model.next_seq,
            oldest_ms: 0,
            now_ms: 0,
            is_idle: false,
        };
        while self.running.len() < self.load.threads {
            let next = plan(&self.model.tree, self.policy, &self.busy, &hints);
            if matches!(next, Plan::DoNothing) {
                return;
            }
            let id = self.busy.begin(&next);
            let done = self.model.run(&next, &hints);
            let ns = done.work.entries_in * self.load.ns_per_entry;
            self.report.jobs += usize::from(ns > 0);
            self.report.job_s_max = self.report.job_s_max.max(ns as f64 / 1e9);
            if self.is_late() {
                self.read_late += done.work.entries_in;
            }
            self.running.push(Running { until_ns: self.now_ns + ns, id, done });
        }
    }

    fn end_job(&mut self, at_ns: u64) {
        self.now_ns = at_ns;
        let at = self.running.iter().position(|job| job.until_ns == at_ns).unwrap();
        let job = self.running.swap_remove(at);
        self.busy.end(job.id);
        self.model.install(job.done);
    }

    fn flush(&mut self) {
        self.now_ns = self.next_flush_ns;
        let keys = self.load.keys as f64;
        let distinct = keys * (1.0 - (-(self.load.run_entries as f64) / keys).exp());
        self.model.flush((0, self.load.keys - 1), distinct as u64, 0);
        let hints = Hints { run_bytes: self.run_bytes, ..Hints::default() };
        let (flushed, tree) = (distinct as u64 * ENTRY_BYTES, &self.model.tree);
        self.run_bytes = run_bytes_after(flushed, tree, self.policy, &self.busy, &hints);
        self.flushed += self.load.run_entries;
        self.next_flush_ns += self.load.flush_every_ns;
        if self.is_late() {
            let tree = &self.model.tree;
            let filled = tree.levels.iter().filter(|level| !level.is_empty()).count();
            self.samples += 1;
            self.report.l0_runs_max = self.report.l0_runs_max.max(tree.runs.len());
            self.report.l0_runs_mean += tree.runs.len() as f64;
            self.report.levels_mean += filled as f64;
        }
    }

    fn conclude(mut self) -> Report {
        let flushed_late = self.flushed - self.load.entries_total / 2;
        self.report.tail_s = self.now_ns.saturating_sub(self.next_flush_ns) as f64 / 1e9;
        self.report.passes = self.read_late as f64 / flushed_late as f64;
        self.report.l0_runs_mean /= self.samples as f64;
        self.report.levels_mean /= self.samples as f64;
        self.report.files = self.model.tree.iter().count();
        self.report
    }
}

/// 400 000 writes per second of 64 bytes on disk, and runs of 64 MiB at 116 bytes per entry.
pub(crate) fn load(keys: u64, entries_total: u64) -> Load {
    let run_entries = (64 << 20) / 128;
    Load {
        keys,
        entries_total,
        run_entries,
        flush_every_ns: run_entries * 1_000_000_000 / 400_000,
        ns_per_entry: 350,
        threads: 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks what docs/internals/compaction.md promises for the defaults.
    #[test]
    fn uniform_writes_cost_few_passes_and_level_zero_stays_short() {
        let load = Load { ns_per_entry: 250, ..load(20_000_000, 60_000_000) };
        let report = simulate(&Policy::default(), &load);
        assert!(report.passes < 5.5, "{report:?}");
        assert!(report.l0_runs_max <= 12, "{report:?}");
        let deeper = Load { run_entries: load.run_entries / 16, ..load };
        let deeper = Load { flush_every_ns: deeper.flush_every_ns / 16, ..deeper };
        let report = simulate(&Policy::default(), &deeper);
        assert!(report.passes < 10.5, "{report:?}");
        assert!(report.l0_runs_max <= 18, "{report:?}");
        assert!(report.job_s_max < 0.6, "{report:?}");
    }
}
