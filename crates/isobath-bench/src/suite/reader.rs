//! A reader beside the writers of a row: a thread of its own that gets random keys and takes at
//! most a share of a core. It is counted apart from the writers. Its rate without them, measured
//! before they begin, tells how much of it they leave.

use super::oracle::hex;
use super::row::Row;
use crate::drive::Stop;
use crate::engine::Engine;
use crate::generate::{Rng, Values, write_key};
use crate::measure::{Latency, OpKind, Recorder, Stopwatch, thread_cpu};
use anyhow::{Result, anyhow, bail};
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const SEED: u64 = 5;
/// How long the reader is measured without writers, unless the row itself is shorter.
const ALONE: Duration = Duration::from_secs(5);
/// Gets between two looks at the processor time.
const BURST: u64 = 64;
/// The share of a core holds over each such time. A reader that got less for a while may not make
/// up for it later.
const WINDOW: Duration = Duration::from_millis(100);

/// What a reader did, without and with the writers.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Beside {
    pub(crate) alone: Reading,
    pub(crate) beside: Reading,
}

impl Beside {
    /// The share of its rate that the writers leave.
    pub(crate) fn kept(&self) -> Option<f64> {
        (self.alone.per_second > 0.0).then(|| self.beside.per_second / self.alone.per_second)
    }
}

#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Reading {
    pub(crate) per_second: f64,
    /// The share of a core that it took.
    pub(crate) cores: f64,
    pub(crate) latency: Latency,
}

pub(super) struct Reader<'a> {
    pub(super) row: &'a Row,
    pub(super) values: &'a Values,
    pub(super) engine: &'a dyn Engine,
    /// Off for an engine that keeps nothing.
    pub(super) checked: bool,
    pub(super) stop: &'a Stop,
}

impl Reader<'_> {
    /// Reads for a while, with nothing beside it.
    pub(super) fn alone(&self) -> Result<Reading> {
        let end = Instant::now() + ALONE.min(Duration::from_secs_f64(self.row.seconds_max / 4.0));
        self.read(&|| Instant::now() >= end)
    }

    fn read(&self, over: &dyn Fn() -> bool) -> Result<Reading> {
        let row = self.row;
        let mut session = self.engine.session()?;
        let (mut rng, mut recorder) = (Rng::new(SEED), Recorder::new());
        recorder.prepare(OpKind::Get);
        let mut key = vec![0; row.key_size];
        let mut share = CoreShare::new(row.reader_cores);
        let (start, before) = (Instant::now(), thread_cpu());
        while !over() && !self.stop.requested() {
            for _ in 0..BURST {
                let index = rng.below(row.keys);
                write_key(row.pattern.key_shape(), index, &mut key);
                let (mut stopwatch, mut right) = (Stopwatch::start(), false);
                session.get(&key, &mut |value| {
                    right = self.values.version_of(index, value).is_some();
                })?;
                recorder.record(OpKind::Get, stopwatch.lap(), 1);
                if self.checked && !right {
                    bail!(
                        "wrong answer: key {}, read beside writers, is absent or has a damaged value",
                        hex(&key)
                    );
                }
            }
            share.keep();
        }
        let wall = start.elapsed().as_secs_f64().max(1e-9);
        let latency = recorder.kinds().pop().map(|entry| entry.latency).unwrap_or_default();
        Ok(Reading {
            per_second: latency.count as f64 / wall,
            cores: thread_cpu().saturating_sub(before).as_secs_f64() / wall,
            latency,
        })
    }
}

/// Keeps a thread to its share of a core.
struct CoreShare {
    cores: f64,
    start: Instant,
    before: Duration,
}

impl CoreShare {
    fn new(cores: f64) -> CoreShare {
        CoreShare { cores, start: Instant::now(), before: thread_cpu() }
    }

    /// Sleeps until what the thread has used is its share again.
    fn keep(&mut self) {
        let used = thread_cpu().saturating_sub(self.before);
        let due = Duration::from_secs_f64(used.as_secs_f64() / self.cores);
        let elapsed = self.start.elapsed();
        std::thread::sleep(due.saturating_sub(elapsed));
        if elapsed >= WINDOW {
            *self = CoreShare::new(self.cores);
        }
    }
}

/// Does `work` beside the reader, if there is one that has been measured alone.
pub(super) fn beside<T>(
    reader: Option<&Reader<'_>>,
    alone: Option<Reading>,
    work: impl FnOnce() -> Result<T>,
) -> Result<(T, Option<Beside>)> {
    let (Some(reader), Some(alone)) = (reader, alone) else { return Ok((work()?, None)) };
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reading = scope.spawn(|| {
            let reading = reader.read(&|| ended.load(Ordering::Acquire));
            if reading.is_err() {
                reader.stop.request();
            }
            reading
        });
        let done = work();
        ended.store(true, Ordering::Release);
        let beside = reading.join().unwrap_or_else(|_| Err(anyhow!("the reader panicked")))?;
        Ok((done?, Some(Beside { alone, beside })))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_kept_to_its_share_of_a_core() {
        // A machine that is busy with other things gives it less, but not each time.
        assert!((0..20).any(|_| used_of_a_quarter() > 0.001));
    }

    /// How much of a core a thread has used that may use a quarter.
    fn used_of_a_quarter() -> f64 {
        let mut share = CoreShare::new(0.25);
        let (start, before) = (Instant::now(), thread_cpu());
        let mut sum = 0u64;
        while start.elapsed() < Duration::from_millis(600) {
            for number in 0..100_000u64 {
                sum = std::hint::black_box(sum.wrapping_add(number));
            }
            share.keep();
        }
        let used = (thread_cpu() - before).as_secs_f64() / start.elapsed().as_secs_f64();
        assert!(used < 0.3, "{used} of a core, {sum}");
        used
    }
}
