//! The benchmarks of RocksDB's `db_bench` by its own rules, on any engine: `num` keys in ascending
//! order of their numbers, `num` operations of each thread, random keys with repetition, keys and
//! values made inside the clock. What a read finds is checked.

mod bench;
mod worker;

pub(crate) use bench::{Bench, Line, Size};

use crate::drive::{Limits, Share, Stop, Ticket, run_team};
use crate::engine::Engine;
use crate::generate::{Compressibility, Values};
use crate::measure::{OpKind, Recorder};
use anyhow::Result;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use worker::Worker;

/// Runs one benchmark.
pub(crate) fn run(
    bench: Bench,
    engine: &dyn Engine,
    size: &Size,
    checked: bool,
    stop: &Stop,
) -> Result<Line> {
    let values = Values::new(size.value_size, Compressibility::Half);
    let timed = size.seconds > 0.0 && bench.random();
    let limits = Limits { seconds: timed.then_some(size.seconds), rate: None };
    let operations = match () {
        () if timed => u64::MAX,
        () if bench.reads() => size.reads,
        () => size.num,
    };
    // As in the original, the writer beside the readers is an additional thread and is not counted.
    let threads = size.threads + u64::from(bench == Bench::ReadWhileWriting);
    let readers = AtomicU64::new(size.threads);
    let work = |ticket: &Ticket<'_>, recorder: &mut Recorder, share: &mut Share| {
        let session = engine.session()?;
        OpKind::ALL.into_iter().for_each(|kind| recorder.prepare(kind));
        let writer = ticket.thread == size.threads;
        let mut unseen = Recorder::new();
        let recorder = if writer { &mut unseen } else { recorder };
        let start = Instant::now();
        let mut worker = Worker::new(session, size, &values, ticket, recorder, share, checked);
        if writer {
            worker.write_until(&|| readers.load(Ordering::Acquire) == 0)?;
            *share = Share::default();
        } else {
            let outcome = worker.bench(bench, operations);
            readers.fetch_sub(1, Ordering::AcqRel);
            outcome?;
            share.busy = start.elapsed();
        }
        Ok(())
    };
    let result = run_team(engine, threads, limits, stop, &|_| (), work)?;
    Ok(Line {
        bench,
        operations: result.share.units,
        thread_seconds: result.share.busy.as_secs_f64(),
        seconds: result.busy_seconds,
        bytes: result.share.user_bytes_written + result.share.user_bytes_read,
        found: bench
            .looks_up()
            .then_some((result.share.hits, result.share.hits + result.share.misses)),
        kinds: result.recorder.kinds(),
    })
}
