//! The commit path as a program uses it: a put, a delete, and batches of 116-byte entries under
//! process durability, while flushes and compactions run in the background. Also the time of a
//! commit that waits for the device.
//!
//!     cargo bench -p isobath --bench commit
//!
//! The database lies in the system's temporary directory. Set `TMPDIR` to a directory on the device
//! to measure.

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, Throughput};
use isobath::{Batch, Db, WriteOptions};
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const VALUE: [u8; 100] = [0xa5; 100];

fn random_key(i: u64) -> [u8; 16] {
    let mixed = (i + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    ascending_key(mixed ^ mixed >> 32)
}

fn ascending_key(i: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&i.to_be_bytes());
    key
}

/// Runs `count` operations on this many threads. Each operation gets a number that no other gets.
fn timed(threads: u64, count: u64, next: &AtomicU64, work: impl Fn(u64) + Sync) -> Duration {
    let first = next.fetch_add(count, Ordering::Relaxed);
    let started = Instant::now();
    thread::scope(|scope| {
        for thread in 1..threads {
            let work = &work;
            scope.spawn(move || {
                (thread..count).step_by(threads as usize).for_each(|i| work(first + i))
            });
        }
        (0..count).step_by(threads as usize).for_each(|i| work(first + i));
    });
    started.elapsed()
}

fn batch(count: u64, key: fn(u64) -> [u8; 16], at: u64) -> Batch {
    let mut batch = Batch::new();
    for i in at * count..(at + 1) * count {
        batch.put(key(i), VALUE);
    }
    batch
}

/// Measures a row on a database of its own. `work` gets the numbers from 0 up, each once.
fn row(
    group: &mut BenchmarkGroup<'_, WallTime>,
    name: &str,
    threads: u64,
    work: impl Fn(&Db, u64) + Sync,
) {
    let dir = tempfile::tempdir().expect("a directory");
    let db = Db::open(dir.path()).expect("a new database");
    let next = AtomicU64::new(0);
    group.bench_function(name, |bencher| {
        bencher.iter_custom(|count| timed(threads, count, &next, |i| work(&db, i)));
    });
    db.close().expect("everything written");
}

fn main() {
    let mut criterion = Criterion::default().sample_size(10).configure_from_args();
    let mut group = criterion.benchmark_group("commit");
    for threads in [1, 2, 8] {
        row(&mut group, &format!("put, {threads} threads"), threads, |db, i| {
            black_box(db.put(random_key(i), VALUE).expect("room"));
        });
    }
    row(&mut group, "delete, 1 threads", 1, |db, i| {
        black_box(db.delete(random_key(i)).expect("room"));
    });
    for threads in [1, 8] {
        row(
            &mut group,
            &format!("put and wait for the device, {threads} threads"),
            threads,
            |db, i| {
                black_box(db.with(WriteOptions::sync()).put(random_key(i), VALUE).expect("room"));
            },
        );
    }
    group.finish();
    let mut group = criterion.benchmark_group("commit of a batch, building it included");
    for (name, key) in [("random", random_key as fn(u64) -> _), ("ascending", ascending_key)] {
        for len in [10, 100, 1000] {
            group.throughput(Throughput::Elements(len));
            row(&mut group, &format!("{name}, {len} puts"), 1, |db, i| {
                black_box(db.write(batch(len, key, i)).expect("room"));
            });
        }
    }
    group.finish();
    criterion.final_summary();
}
