//! A thread that reads the process, the progress and the engine's counters while a phase runs: the
//! timeline, and the peaks of memory.

use super::Probe;
use crate::engine::{Engine, Written};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const INTERVAL: Duration = Duration::from_millis(50);
/// Counters may take locks in an engine, so they are read rarely.
const COUNTER_EVERY: u32 = 10;

/// One moment of a phase.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Sample {
    pub(crate) seconds: f64,
    /// Primitive operations done so far.
    pub(crate) operations: u64,
    pub(crate) rss_anon_bytes: u64,
    pub(crate) rss_file_bytes: u64,
    /// `None` is what kernel or engine can't tell, here and below.
    pub(crate) device_write_bytes: Option<u64>,
    pub(crate) written: Written,
    pub(crate) stall_us: Option<u64>,
    pub(crate) debt: Option<u64>,
    /// In the engine's own unit.
    pub(crate) backlog: Option<u64>,
    pub(crate) level_zero_files: Option<u64>,
    pub(crate) counters: BTreeMap<String, f64>,
}

/// What was seen over a phase.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sampler {
    pub(crate) samples: Vec<Sample>,
    pub(crate) rss_anon_peak_bytes: u64,
    pub(crate) rss_file_peak_bytes: u64,
}

impl Sampler {
    /// Runs `work` while sampling beside it; `operations` is the count of work done so far, which
    /// `progress` is shown at every sample.
    pub(crate) fn around<T>(
        engine: &dyn Engine,
        operations: &[Arc<AtomicU64>],
        progress: &(dyn Fn(u64) + Sync),
        work: impl FnOnce() -> T,
    ) -> (T, Sampler) {
        let done = AtomicBool::new(false);
        let start = Instant::now();
        std::thread::scope(|scope| {
            let watcher = scope.spawn(|| {
                let mut sampler = Sampler::default();
                let mut round = 0;
                while !done.load(Ordering::Acquire) {
                    sampler.sample(engine, operations, progress, start, round % COUNTER_EVERY == 0);
                    round += 1;
                    std::thread::park_timeout(INTERVAL);
                }
                sampler.sample(engine, operations, progress, start, true);
                sampler
            });
            let result = work();
            done.store(true, Ordering::Release);
            watcher.thread().unpark();
            (result, watcher.join().unwrap_or_default())
        })
    }

    fn sample(
        &mut self,
        engine: &dyn Engine,
        operations: &[Arc<AtomicU64>],
        progress: &(dyn Fn(u64) + Sync),
        start: Instant,
        with_counters: bool,
    ) {
        let probe = Probe::read();
        self.rss_anon_peak_bytes = self.rss_anon_peak_bytes.max(probe.rss_anon_bytes);
        self.rss_file_peak_bytes = self.rss_file_peak_bytes.max(probe.rss_file_bytes);
        let operations = operations.iter().map(|count| count.load(Ordering::Relaxed)).sum();
        progress(operations);
        if with_counters {
            self.samples.push(Sample {
                seconds: start.elapsed().as_secs_f64(),
                operations,
                rss_anon_bytes: probe.rss_anon_bytes,
                rss_file_bytes: probe.rss_file_bytes,
                device_write_bytes: probe.device_write_bytes,
                written: engine.written(),
                stall_us: engine.stall_us(),
                debt: engine.debt().ok(),
                backlog: engine.backlog(),
                level_zero_files: engine.level_zero_files(),
                counters: engine.counters(),
            });
        }
    }
}
