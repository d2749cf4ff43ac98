//! The log alone, without engine and memtables: the time of a commit on one thread, commits a
//! second on 1 to 32 threads, and synced commits a second with the number that share a sync.
//!
//!     cargo bench -p isobath --features bench-internals --bench log
//!
//! The log lies in the system's temporary directory. Set `TMPDIR` to a directory on the device to
//! measure, or on a RAM disk to leave the device out.

use isobath::bench_support::log::Log;
use std::hint::black_box;
use std::time::Instant;

const PAYLOAD_LEN: usize = 128;
const COMMITS: u64 = 600_000;
const SYNCED_COMMITS: u64 = 16_000;

/// Work of a fixed time, like applying a small commit.
#[derive(Clone, Copy)]
struct Apply {
    rounds: u64,
}

impl Apply {
    const NOTHING: Apply = Apply { rounds: 0 };

    fn half_a_microsecond() -> Apply {
        let rounds = 5_000_000;
        let began = Instant::now();
        Apply { rounds }.run();
        Apply { rounds: (rounds as f64 * 0.5e-6 / began.elapsed().as_secs_f64()) as u64 }
    }

    fn run(self) {
        for round in 0..self.rounds {
            black_box(round);
        }
    }
}

/// Runs `count` commits on this many threads, and returns the commits per second.
fn rate(threads: u64, count: u64, commit: impl Fn(&mut Vec<u8>) + Sync) -> f64 {
    let each = count / threads;
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

/// A log in a directory of its own.
fn with_log<T>(segment_len: u64, measure: impl FnOnce(&Log) -> T) -> T {
    let dir = tempfile::tempdir().expect("a directory");
    measure(&Log::start(&dir.path().join("wal"), segment_len))
}

fn main() {
    for _ in 0..3 {
        let rate = with_log(64 << 20, |log| {
            rate(1, COMMITS / 3, |record| {
                log.commit(record, PAYLOAD_LEN, || ());
            })
        });
        println!("1 thread, nothing to apply: {:.0} ns a commit", 1e9 / rate);
    }
    let apply = Apply::half_a_microsecond();
    for (apply, what) in [(apply, "0.5 us to apply"), (Apply::NOTHING, "nothing to apply")] {
        for threads in [1, 2, 4, 8, 16, 32] {
            let (rate, late) = with_log(64 << 20, |log| {
                let rate = rate(threads, COMMITS, |record| {
                    log.commit(record, PAYLOAD_LEN, || apply.run());
                });
                (rate, log.share_not_prefaulted() * 100.0)
            });
            let rate = rate / 1e3;
            println!("{what}, {threads:2} threads: {rate:7.0} k/s, {late:.1}% not prefaulted");
        }
    }
    for threads in [1, 2, 4, 8, 16] {
        let (rate, (syncs, total_ns, max_ns)) = with_log(16 << 20, |log| {
            let rate = rate(threads, SYNCED_COMMITS, |record| {
                log.sync_to(log.commit(record, PAYLOAD_LEN, || apply.run()));
            });
            (rate, log.syncs())
        });
        println!(
            "synced, {threads:2} threads: {:6.1} k/s, {:4.1} commits a sync, {:4.0} us a sync, {:5.0} us at most",
            rate / 1e3,
            SYNCED_COMMITS as f64 / syncs as f64,
            total_ns as f64 / syncs as f64 / 1e3,
            max_ns as f64 / 1e3,
        );
    }
}
