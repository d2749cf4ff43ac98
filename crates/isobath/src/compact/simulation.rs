//! Write amplification and pile-up of the planner, computed on the model: the figures of
//! docs/internals/compaction.md come from here.

use super::model::Done;
use super::model::{ENTRY_BYTES, Model};
use super::{Busy, Hints, JobId, Plan, Policy, plan};

/// A steady stream of writes of uniform random keys against a number of merging threads.
#[derive(Clone, Debug)]
struct Load {
    /// Distinct keys.
    keys: u64,
    entries_total: u64,
    run_entries: u64,
    /// Nanoseconds between two flushes.
    flush_every_ns: u64,
    ns_per_entry: u64,
    threads: usize,
}

#[derive(Debug, Default)]
struct Report {
    /// Entries that jobs read, for each entry that was flushed, over the second half of the load.
    passes: f64,
    l0_runs_max: usize,
    l0_runs_mean: f64,
    levels_mean: f64,
    files: usize,
    job_s_max: f64,
    jobs: usize,
    /// How long the debt took to be paid after the last write.
    tail_s: f64,
}

struct Running {
    until_ns: u64,
    id: JobId,
    done: Done,
}

fn simulate(policy: &Policy, load: &Load) -> Report {
    let mut model = Model::new();
    let mut busy = Busy::default();
    let mut running: Vec<Running> = Vec::new();
    let mut now = 0;
    let mut next_flush = 0;
    let mut flushed = 0;
    let mut report = Report::default();
    let (mut read_late, mut samples) = (0, 0);
    let half = load.entries_total / 2;
    loop {
        let hints = Hints {
            run_bytes: load.run_entries * ENTRY_BYTES,
            oldest_reader: model.next_seq,
            is_idle: false,
        };
        while running.len() < load.threads {
            let next = plan(&model.tree, policy, &busy, &hints);
            if matches!(next, Plan::DoNothing) {
                break;
            }
            let id = busy.begin(&next);
            let done = model.run(&next, &hints);
            let ns = done.work.entries_in * load.ns_per_entry;
            if ns > 0 {
                report.jobs += 1;
            }
            report.job_s_max = report.job_s_max.max(ns as f64 / 1e9);
            if flushed > half {
                read_late += done.work.entries_in;
            }
            running.push(Running { until_ns: now + ns, id, done });
        }
        let first_done = running.iter().map(|job| job.until_ns).min();
        let flush_due = (flushed < load.entries_total).then_some(next_flush);
        match (first_done, flush_due) {
            (Some(done), flush) if flush.is_none_or(|flush| done <= flush) => {
                now = done;
                let at = running.iter().position(|job| job.until_ns == done).unwrap();
                let job = running.swap_remove(at);
                busy.end(job.id);
                model.install(job.done);
            }
            (_, Some(flush)) => {
                now = flush;
                let span = load.keys as f64;
                let distinct = span * (1.0 - (-(load.run_entries as f64) / span).exp());
                model.flush((0, load.keys - 1), distinct as u64, 0);
                flushed += load.run_entries;
                next_flush = flush + load.flush_every_ns;
                if flushed > half {
                    samples += 1;
                    report.l0_runs_max = report.l0_runs_max.max(model.tree.runs.len());
                    report.l0_runs_mean += model.tree.runs.len() as f64;
                    report.levels_mean +=
                        model.tree.levels.iter().filter(|level| !level.is_empty()).count() as f64;
                }
            }
            (_, None) => break,
        }
    }
    report.tail_s = now.saturating_sub(next_flush) as f64 / 1e9;
    report.passes = read_late as f64 / (flushed - half) as f64;
    report.l0_runs_mean /= samples as f64;
    report.levels_mean /= samples as f64;
    report.files = model.tree.iter().count();
    report
}

/// 400 000 writes a second of 64 bytes on disk, 64 MiB of 116 bytes to a run.
fn load(keys: u64, entries_total: u64) -> Load {
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

/// The promises that docs/internals/compaction.md makes of the defaults.
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

#[test]
#[ignore = "prints the tables of docs/internals/compaction.md"]
fn print_tables() {
    println!(
        "keys M | trigger ratio | passes | L0 max mean | levels | files | longest job s | jobs | tail s"
    );
    let env = |name: &str, default: &str| std::env::var(name).unwrap_or(default.to_owned());
    let list =
        |text: String| text.split(',').map(|n| n.parse::<u64>().unwrap()).collect::<Vec<_>>();
    for keys in list(env("KEYS", "10,40,160")) {
        for trigger in list(env("TRIGGERS", "4,8,12")) {
            for ratio in list(env("RATIOS", "4,6,8,10")) {
                let policy = Policy {
                    l0_trigger_runs: trigger as usize,
                    size_ratio_max: ratio as u32,
                    target_file_bytes: env("FILE_MIB", "32").parse::<u64>().unwrap() << 20,
                    job_bytes_max: env("JOB_MIB", "256").parse::<u64>().unwrap() << 20,
                    ..Policy::default()
                };
                let mut load = load(keys * 1_000_000, keys * 2_000_000);
                load.threads = env("THREADS", "1").parse().unwrap();
                load.ns_per_entry = env("NS", "350").parse().unwrap();
                let report = simulate(&policy, &load);
                println!(
                    "{keys:4} | {trigger:2} {ratio:2} | {:5.2} | {:3} {:5.1} | {:3.1} | {:4} | {:5.1} | {} | {:5.1}",
                    report.passes,
                    report.l0_runs_max,
                    report.l0_runs_mean,
                    report.levels_mean,
                    report.files,
                    report.job_s_max,
                    report.jobs,
                    report.tail_s
                );
            }
        }
    }
}
