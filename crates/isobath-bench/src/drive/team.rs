//! A phase on several threads: they start together, are sampled while they work, and end together.

use super::Stop;
use crate::engine::Engine;
use crate::measure::{Probe, Recorder, Sampler, Usage};
use anyhow::{Result, anyhow};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

/// When a phase ends.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Limits {
    pub(crate) seconds: Option<f64>,
    /// In open loop, the operations to start each second, by all threads together.
    pub(crate) rate: Option<f64>,
}

/// What one thread of a phase is given.
pub(crate) struct Ticket<'a> {
    pub(crate) thread: u64,
    pub(crate) threads: u64,
    pub(crate) start: Instant,
    pub(crate) rate: Option<f64>,
    deadline: Option<Instant>,
    stop: &'a Stop,
    done: &'a Arc<AtomicU64>,
}

impl Ticket<'_> {
    /// Publishes how many operations this thread has done.
    #[inline]
    pub(crate) fn publish(&self, operations: u64) {
        self.done.store(operations, Ordering::Relaxed);
    }

    /// Where this thread's count is published, for those that can't keep the ticket.
    pub(crate) fn counter(&self) -> Arc<AtomicU64> {
        Arc::clone(self.done)
    }

    /// Whether the phase was told to end early.
    pub(crate) fn stopped(&self) -> bool {
        self.stop.requested()
    }

    /// Whether to end; `now` is a recent reading of the clock.
    #[inline]
    pub(crate) fn over(&self, now: Instant) -> bool {
        self.stop.requested() || self.deadline.is_some_and(|deadline| now >= deadline)
    }
}

/// The results of one thread.
#[derive(Default)]
pub(crate) struct Share {
    pub(crate) busy: Duration,
    pub(crate) units: u64,
    pub(crate) hits: u64,
    pub(crate) misses: u64,
    pub(crate) user_bytes_written: u64,
    pub(crate) user_bytes_read: u64,
    /// Transactions that had to be run again, and counters that committed ones have raised.
    pub(crate) aborts: u64,
    pub(crate) increments: u64,
}

/// The results of a phase. The default is that of a phase that never began.
#[derive(Default)]
pub(crate) struct TeamResult {
    pub(crate) recorder: Recorder,
    pub(crate) share: Share,
    /// The last count that each thread published.
    pub(crate) done: Vec<u64>,
    pub(crate) wall_seconds: f64,
    /// The longest time that any thread spent in timed sections.
    pub(crate) busy_seconds: f64,
    pub(crate) usage: Usage,
    pub(crate) sampler: Sampler,
}

/// Runs `work` on every thread. The first failure stops the others and is returned.
pub(crate) fn run_team<F>(
    engine: &dyn Engine,
    threads: u64,
    limits: Limits,
    stop: &Stop,
    progress: &(dyn Fn(u64) + Sync),
    work: F,
) -> Result<TeamResult>
where
    F: Fn(&Ticket<'_>, &mut Recorder, &mut Share) -> Result<()> + Sync,
{
    let counters: Vec<Arc<AtomicU64>> = (0..threads).map(|_| Arc::default()).collect();
    let before = Probe::read();
    let start = Instant::now();
    let (outcomes, sampler) =
        Sampler::around(engine, &counters, progress, || start_all(&counters, limits, stop, &work));
    let wall_seconds = start.elapsed().as_secs_f64();
    let usage = Probe::read().since(&before);
    let mut recorder = Recorder::new();
    let mut total = Share::default();
    let mut busy_seconds = 0f64;
    for outcome in outcomes {
        let (theirs, share) = outcome?;
        recorder.merge(&theirs);
        busy_seconds = busy_seconds.max(share.busy.as_secs_f64());
        total.busy += share.busy;
        total.units += share.units;
        total.hits += share.hits;
        total.misses += share.misses;
        total.user_bytes_written += share.user_bytes_written;
        total.user_bytes_read += share.user_bytes_read;
        total.aborts += share.aborts;
        total.increments += share.increments;
    }
    let done = counters.iter().map(|count| count.load(Ordering::Relaxed)).collect();
    Ok(TeamResult { recorder, done, share: total, wall_seconds, busy_seconds, usage, sampler })
}

type Outcome = Result<(Recorder, Share)>;

fn start_all<F>(counters: &[Arc<AtomicU64>], limits: Limits, stop: &Stop, work: &F) -> Vec<Outcome>
where
    F: Fn(&Ticket<'_>, &mut Recorder, &mut Share) -> Result<()> + Sync,
{
    let barrier = Barrier::new(counters.len());
    let threads = counters.len() as u64;
    std::thread::scope(|scope| {
        let handles: Vec<_> = (0..threads)
            .zip(counters)
            .map(|(thread, done)| {
                let barrier = &barrier;
                scope.spawn(move || {
                    let (mut recorder, mut share) = (Recorder::new(), Share::default());
                    barrier.wait();
                    let start = Instant::now();
                    let deadline =
                        limits.seconds.map(|seconds| start + Duration::from_secs_f64(seconds));
                    let ticket =
                        Ticket { thread, threads, start, rate: limits.rate, deadline, stop, done };
                    let result = work(&ticket, &mut recorder, &mut share);
                    if result.is_err() {
                        stop.request();
                    }
                    result.map(|()| (recorder, share))
                })
            })
            .collect();
        handles
            .into_iter()
            .map(|handle| {
                handle.join().unwrap_or_else(|_| Err(anyhow!("a worker thread panicked")))
            })
            .collect()
    })
}
