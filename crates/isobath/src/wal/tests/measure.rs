//! Measurements, run by hand:
//! `cargo test --release -p isobath --lib wal::tests::measure -- --ignored --nocapture
//! --test-threads 1`

use super::support::*;
use crate::env::Env;
use crate::env::sync::atomic::*;
use crate::format::Lsn;
use crate::wal::*;
use std::hint::black_box;
use std::time::Instant;

const PAYLOAD_LEN: usize = 128;
const SEGMENT_LEN: u64 = 256 << 20;
const COMMITS: u64 = 600_000;

/// Work of about half a microsecond, like applying a small commit.
struct Apply {
    rounds: u64,
}

impl Apply {
    fn calibrated() -> Apply {
        let rounds = 5_000_000;
        let began = Instant::now();
        Apply { rounds }.run();
        Apply { rounds: (rounds as f64 * 0.5e-6 / began.elapsed().as_secs_f64()) as u64 }
    }

    fn run(&self) {
        for round in 0..self.rounds {
            black_box(round);
        }
    }
}

struct Bench {
    _home: Home,
    log: Log,
}

fn bench() -> Bench {
    let home = Home::new();
    let options = LogOptions { segment_len: SEGMENT_LEN, ..home.options() };
    let env = Env { fs: Env::system().fs, ..home.env.clone() };
    let log = Log::start(&env, options, SEGMENT_LEN, CEILING, 1).unwrap();
    Bench { _home: home, log }
}

/// A log whose syncs take `delay_us` longer, as on a slow device. Point TMPDIR at a RAM disk.
fn bench_with_sync_delay(delay_us: u64) -> Bench {
    let home = Home::new();
    let options = LogOptions { segment_len: 16 << 20, ..home.options() };
    let log = Log::start(&home.env, options, 16 << 20, CEILING, 1).unwrap();
    home.faults.sync_delay_us.store(delay_us, Ordering::Relaxed);
    Bench { _home: home, log }
}

/// Runs `each` commits on each of `threads` threads and returns the commits per second.
fn rate(threads: u64, each: u64, commit: impl Fn(&mut Vec<u8>) + Sync) -> f64 {
    let began = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let mut record = Vec::new();
                (0..each).for_each(|_| commit(&mut record));
            });
        }
    });
    (threads * each) as f64 / began.elapsed().as_secs_f64()
}

fn commit(log: &Log, record: &mut Vec<u8>, apply: &Apply) -> Lsn {
    record.clear();
    record.resize(RECORD_HEADER_LEN + PAYLOAD_LEN, 0x5a);
    let mut record = seal(record);
    let mut reservation = log.reserve(record.len() as u64).unwrap();
    reservation.write(&mut record);
    apply.run();
    let end = reservation.end();
    reservation.publish();
    log.wait_visible(end).unwrap();
    end
}

#[test]
#[ignore = "a measurement"]
fn commits_a_second_by_threads() {
    let apply = Apply::calibrated();
    for (apply, what) in [(&apply, "0.5 us apply"), (&Apply { rounds: 0 }, "no apply")] {
        for threads in [1, 2, 4, 8, 16, 32] {
            let bench = bench();
            let rate = rate(threads, COMMITS / threads, |record| {
                commit(&bench.log, record, apply);
            });
            let late = bench.log.stats().bytes_not_prefaulted as f64
                / (bench.log.tail() - SEGMENT_LEN) as f64;
            println!(
                "{what}, {threads:2} threads: {:7.0} k/s, {:.1}% not prefaulted",
                rate / 1e3,
                late * 100.0
            );
        }
    }
}

#[test]
#[ignore = "a measurement"]
fn synced_commits_a_second_by_threads() {
    let apply = Apply::calibrated();
    for (delay_us, commits) in [(0, 16_000), (1, 16_000), (500, 8_000)] {
        for threads in [1, 2, 4, 8, 16] {
            let bench = bench_with_sync_delay(delay_us);
            let rate = rate(threads, commits / threads, |record| {
                let end = commit(&bench.log, record, &apply);
                bench.log.harden(end).unwrap();
            });
            let sync = bench.log.stats().sync;
            println!(
                "{threads:2} threads: {:6.1} k/s, {:4.1} commits a sync, {:4.0} us a sync, {:5.0} us at most",
                rate / 1e3,
                commits as f64 / sync.syncs as f64,
                sync.total_ns as f64 / sync.syncs as f64 / 1e3,
                sync.max_ns as f64 / 1e3,
            );
        }
    }
}

/// One thread with nothing to apply: the cost of the log itself.
#[test]
#[ignore = "a measurement"]
fn cost_of_a_commit() {
    let bench = bench();
    let nothing = Apply { rounds: 0 };
    for _ in 0..3 {
        let rate = rate(1, COMMITS / 3, |record| {
            commit(&bench.log, record, &nothing);
        });
        println!("{:.0} ns a commit", 1e9 / rate);
    }
}
