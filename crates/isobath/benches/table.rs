//! Sorted tables: building, gets, seeks and walks over a million keys of 16 bytes with
//! half-compressible values of 100.
//!
//!     cargo bench -p isobath --features bench-internals --bench table
//!     cargo bench -p isobath --features bench-internals --bench table -- rows
//!     valgrind --tool=callgrind --toggle-collect=table::counted <the benchmark's binary> once next
//!
//! The first form measures with criterion. The second runs every row a few times and prints the
//! smallest time of each. The third counts the instructions of one row, after everything is warm.
//! `TABLE_KEYS` sets the number of keys.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)] // A benchmark measures real time.

use criterion::Criterion;
use isobath::bench_support::table::{Codec, Slice, build, hash};
use std::hint::black_box;
use std::path::PathBuf;
use std::time::{Duration, Instant};

const VALUE_LEN: usize = 100;

fn key_count() -> u64 {
    std::env::var("TABLE_KEYS").ok().and_then(|n| n.parse().ok()).unwrap_or(1_000_000)
}

/// Keys in order, and values that are half random.
struct Data {
    keys: Vec<[u8; 16]>,
    values: Vec<[u8; VALUE_LEN]>,
}

fn mix(i: u64) -> u64 {
    let mixed = (i ^ i >> 31).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) ^ mixed >> 32
}

impl Data {
    fn new(count: u64) -> Data {
        let mut keys: Vec<[u8; 16]> = (0..count).map(random_key).collect();
        keys.sort();
        let values = (0..count.min(4096)).map(|i| {
            let mut value = [b'v'; VALUE_LEN];
            for (j, chunk) in value[..VALUE_LEN / 2].chunks_mut(8).enumerate() {
                chunk.copy_from_slice(&mix(i * 100 + j as u64).to_le_bytes()[..chunk.len()]);
            }
            value
        });
        Data { values: values.collect(), keys }
    }

    fn entries(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let value = |i: usize| &self.values[i % self.values.len()][..];
        self.keys.iter().enumerate().map(move |(i, key)| (&key[..], value(i)))
    }
}

fn random_key(i: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&mix(i + 1).to_be_bytes());
    key[8..].copy_from_slice(&mix(i + 7777).to_be_bytes());
    key
}

struct Bench {
    dir: PathBuf,
    data: Data,
    /// Read with everything in the cache.
    cached: Slice,
    /// Read with nothing kept in the cache.
    mapped: Slice,
    positional: Slice,
}

/// The work of a row.
enum Work {
    /// One operation; the argument is its number.
    Each(fn(&Bench, u64)),
    /// One operation for each key.
    All(fn(&Bench)),
    /// This many operations.
    Many(fn(&Bench, u64)),
}

use Work::*;

const ROWS: [(&str, Work); 14] = [
    (
        "build none, an entry",
        All(|bench| {
            black_box(build(&bench.dir, 9, Codec::None, bench.data.entries()));
        }),
    ),
    (
        "build lz4, an entry",
        All(|bench| {
            black_box(build(&bench.dir, 9, Codec::Lz4, bench.data.entries()));
        }),
    ),
    (
        "get cached",
        Each(|bench, i| {
            black_box(bench.cached.get(&random_key(i)));
        }),
    ),
    (
        "get absent",
        Each(|bench, i| {
            black_box(bench.cached.get(&random_key(i + (1 << 40))));
        }),
    ),
    (
        "get mapped, not cached",
        Each(|bench, i| {
            black_box(bench.mapped.get(&random_key(i)));
        }),
    ),
    (
        "get positional, not cached",
        Each(|bench, i| {
            black_box(bench.positional.get(&random_key(i)));
        }),
    ),
    (
        "filter probe with its hash",
        Each(|bench, i| {
            black_box(bench.cached.may_contain(hash(&random_key(i))));
        }),
    ),
    (
        "seek cached",
        Many(|bench, count| {
            let mut walker = bench.cached.walker(true);
            (0..count).for_each(|i| assert!(walker.seek(&random_key(i))));
        }),
    ),
    (
        "seek to the next key but 9",
        Many(|bench, count| {
            let mut walker = bench.cached.walker(true);
            let keys = bench.data.keys.iter().step_by(10).cycle();
            keys.take(count as usize).for_each(|key| assert!(walker.seek(key)));
        }),
    ),
    (
        "next cached",
        All(|bench| {
            let mut walker = bench.cached.walker(true);
            walker.first();
            while walker.step() {}
        }),
    ),
    (
        "prev cached",
        All(|bench| {
            let mut walker = bench.cached.walker(true);
            walker.last();
            while walker.step_back() {}
        }),
    ),
    (
        "next past the cache, mapped",
        All(|bench| {
            let mut walker = bench.mapped.walker(false);
            walker.first();
            while walker.step() {}
        }),
    ),
    (
        "next past the cache, positional",
        All(|bench| {
            let mut walker = bench.positional.walker(false);
            walker.first();
            while walker.step() {}
        }),
    ),
    (
        "next in one block",
        Many(|bench, count| {
            let mut walker = bench.cached.walker(true);
            let mut left = count;
            while left > 0 {
                walker.first();
                (0..20).for_each(|_| assert!(walker.step()));
                left = left.saturating_sub(20);
            }
        }),
    ),
];

/// Runs a row over `count` operations, and returns how many it did.
fn run(bench: &Bench, row: usize, count: u64) -> u64 {
    let key_count = bench.data.keys.len() as u64;
    match ROWS[row].1 {
        Each(work) => (0..count).for_each(|i| work(bench, mix(i) % key_count)),
        Many(work) => work(bench, count),
        All(work) => {
            work(bench);
            return key_count;
        }
    }
    count
}

/// [`run`] under a name of its own, for callgrind.
#[inline(never)]
fn counted(bench: &Bench, row: usize, count: u64) {
    println!("{} operations", run(bench, row, count));
}

fn main() {
    let dir = tempfile::tempdir().expect("a directory");
    let data = Data::new(key_count());
    let slice = |number, codec, cache_bytes, is_mapped| {
        Slice::write(dir.path(), number, codec, cache_bytes, is_mapped, data.entries())
    };
    let cached = slice(1, Codec::Lz4, 1 << 30, true);
    let mapped = slice(2, Codec::Lz4, 0, true);
    let positional = slice(3, Codec::Lz4, 0, false);
    let dir = dir.path().to_owned();
    let bench = Bench { dir, cached, mapped, positional, data };
    let args: Vec<_> = std::env::args().skip(1).collect();
    match args.first().map(String::as_str) {
        Some("once") => {
            for (row, (name, ..)) in ROWS.iter().enumerate() {
                if args.get(1).is_some_and(|wanted| name.starts_with(wanted.as_str())) {
                    run(&bench, row, key_count());
                    counted(&bench, row, key_count());
                }
            }
        }
        Some("rows") => {
            for (row, (name, ..)) in ROWS.iter().enumerate() {
                let times = (0..5).map(|_| {
                    let start = Instant::now();
                    let count = run(&bench, row, 500_000);
                    start.elapsed() / count as u32
                });
                println!("{name:34} {:>8.1?}", times.min().unwrap_or(Duration::ZERO));
            }
        }
        _ => {
            let mut criterion = Criterion::default().sample_size(10).configure_from_args();
            for (row, (name, ..)) in ROWS.iter().enumerate() {
                criterion.bench_function(name, |bencher| {
                    bencher.iter_custom(|count| {
                        let start = Instant::now();
                        let done = run(&bench, row, count);
                        start.elapsed().mul_f64(count as f64 / done as f64)
                    });
                });
            }
        }
    }
}
