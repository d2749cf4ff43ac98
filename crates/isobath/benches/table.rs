//! Sorted tables: building, gets, seeks and walks over a million keys of 16 bytes with
//! half-compressible values of 100.
//!
//!     cargo bench -p isobath --features bench-internals --bench table
//!     cargo bench -p isobath --features bench-internals --bench table -- rows
//!     valgrind --tool=callgrind --toggle-collect=table::counted <the benchmark's binary> once next
//!     cargo bench -p isobath --features bench-internals --bench table -- sizes
//!
//! The first form measures with criterion. The second runs every row many times, each for a few
//! milliseconds, and prints the smallest time and one that a tenth of them are below. The third
//! counts the instructions of one row, after everything is warm. The last one prints the bytes an
//! entry on disk, and in the cache, of keys and values of several shapes, and how much that is
//! beside chained data blocks alone. `TABLE_KEYS` sets the number of keys; with `TABLE_CHAINED` all
//! data blocks are chained.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)] // A benchmark measures real time.

use criterion::Criterion;
use isobath::bench_support::table::{Codec, Layout, Slice, build, hash};
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::time::Instant;

const VALUE_LEN: usize = 100;
/// Operations of a round: so few that a busy machine lets some rounds run undisturbed.
const ROUND: u64 = 2000;

fn key_count() -> u64 {
    std::env::var("TABLE_KEYS").ok().and_then(|n| n.parse().ok()).unwrap_or(1_000_000)
}

fn layout(codec: Codec) -> Layout {
    Layout { codec, is_chained: std::env::var_os("TABLE_CHAINED").is_some() }
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
    /// Operations from this number on, and how many.
    Many(fn(&Bench, u64, u64)),
}

use Work::*;

const ROWS: [(&str, Work); 15] = [
    (
        "build none, an entry",
        All(|bench| {
            black_box(build(&bench.dir, 9, layout(Codec::None), bench.data.entries()));
        }),
    ),
    (
        "build lz4, an entry",
        All(|bench| {
            black_box(build(&bench.dir, 9, layout(Codec::Lz4), bench.data.entries()));
        }),
    ),
    (
        "get cached",
        Each(|bench, i| {
            black_box(bench.cached.get(&random_key(i)));
        }),
    ),
    (
        "get one key",
        Each(|bench, _| {
            black_box(bench.cached.get(&random_key(77)));
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
        Many(|bench, start, count| {
            let mut walker = bench.cached.walker(true);
            let key_count = bench.data.keys.len() as u64;
            let keys = (start..start + count).map(|i| random_key(mix(i) % key_count));
            keys.for_each(|key| assert!(walker.seek(&key)));
        }),
    ),
    (
        "seek to the next key but 9",
        Many(|bench, start, count| {
            let mut walker = bench.cached.walker(true);
            let keys = bench.data.keys.iter().step_by(10).cycle().skip(start as usize);
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
        Many(|bench, _, count| {
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

/// Runs a row over `count` operations from number `start` on, and returns how many it did.
fn run(bench: &Bench, row: usize, start: u64, count: u64) -> u64 {
    let key_count = bench.data.keys.len() as u64;
    match ROWS[row].1 {
        Each(work) => (start..start + count).for_each(|i| work(bench, mix(i) % key_count)),
        Many(work) => work(bench, start, count),
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
    println!("{} operations", run(bench, row, 0, count));
}

/// Keys and values of one shape.
type Shape = (&'static str, fn(u64) -> Vec<u8>, fn(u64) -> Vec<u8>);

/// A value of which half is random.
fn half_random(i: u64, len: usize) -> Vec<u8> {
    let random = (0..).flat_map(|j| mix(i * 100 + j).to_le_bytes()).take(len / 2);
    random.chain(std::iter::repeat(b'v')).take(len).collect()
}

/// A value that compresses well.
fn record(i: u64) -> Vec<u8> {
    let (name, age) = (mix(i) % 5000, mix(i + 9) % 90);
    format!("{{\"name\":\"user {name}\",\"age\":{age},\"active\":true,\"tags\":[]}}").into_bytes()
}

fn common_at_places(i: u64) -> Vec<u8> {
    let at = (mix(i / 50) % 9) as usize;
    let digits = format!("{:04}{:06}", i / 50, mix(i) % 1_000_000);
    [&digits[..at], &"between-".repeat(4)[2..], &digits[at..]].concat().into_bytes()
}

fn path(i: u64) -> Vec<u8> {
    let (user, kind) = (i / 12, ["mail", "note", "task"][i as usize / 4 % 3]);
    format!("tenant/{:03}/user/{user:06}/{kind}/{:04}", user / 700, mix(i) % 10_000).into_bytes()
}

fn digits(i: u64) -> Vec<u8> {
    format!("{i:016}").into_bytes()
}

const SHAPES: [Shape; 14] = [
    ("16 random, 100", |i| random_key(i).to_vec(), |i| half_random(i, 100)),
    ("16 random, 0 to 200", |i| random_key(i).to_vec(), |i| half_random(i, mix(i) as usize % 201)),
    ("16 random, record", |i| random_key(i).to_vec(), record),
    ("16 digits, 100", digits, |i| half_random(i, 100)),
    ("16 digits, 8", digits, |i| half_random(i, 8)),
    ("16 digits, 0 to 16", digits, |i| half_random(i, mix(i) as usize % 17)),
    ("16 digits, record", digits, record),
    ("8 of a number, 20", |i| i.to_be_bytes().to_vec(), |i| half_random(i, 20)),
    (
        "8 to 24 random, 0 to 200",
        |i| random_key(i).repeat(2)[..8 + i as usize % 17].to_vec(),
        |i| half_random(i, mix(i) as usize % 201),
    ),
    (
        "40, 30 in common first, 100",
        |i| {
            let digits = format!("{:010}", mix(i) % 10_000_000_000);
            [&"common-".repeat(5)[5..], &digits].concat().into_bytes()
        },
        |i| half_random(i, 100),
    ),
    (
        "40, 30 in common between, 100",
        |i| {
            let common = &"between-".repeat(4)[2..];
            format!("{:05}{common}{:05}", i / 8, mix(i) % 100_000).into_bytes()
        },
        |i| half_random(i, 100),
    ),
    ("40, 30 in common at places, 100", common_at_places, |i| half_random(i, 100)),
    ("36 of a path, 0 to 60", path, |i| half_random(i, mix(i) as usize % 61)),
    ("36 of a path, record", path, record),
];

fn sizes(dir: &Path) {
    println!("{:34} {:>16} {:>16} {:>16}", "bytes an entry", "none", "lz4", "cached");
    for (name, key, value) in SHAPES {
        let mut keys: Vec<_> = (0..100_000).map(key).collect();
        keys.sort();
        keys.dedup();
        let values: Vec<_> = (0..keys.len() as u64).map(value).collect();
        let entries = || keys.iter().zip(&values).map(|(key, value)| (&key[..], &value[..]));
        let [chained, chosen] = [true, false].map(|is_chained| {
            let [none, lz4] = [Codec::None, Codec::Lz4].map(|codec| {
                let layout = Layout { codec, is_chained };
                Slice::write(dir, 5, layout, 1 << 30, true, entries())
            });
            let mut walker = none.walker(true);
            walker.first();
            while walker.step() {}
            let an_entry = |bytes: u64| bytes as f64 / keys.len() as f64;
            [none.file_len, lz4.file_len, none.cached_bytes()].map(an_entry)
        });
        print!("{name:34}");
        for (chained, chosen) in chained.iter().zip(chosen) {
            print!(" {chosen:8.2} ({:+.1}%)", (chosen / chained - 1.0) * 100.0);
        }
        println!();
    }
}

fn main() {
    let dir = tempfile::tempdir().expect("a directory");
    if std::env::args().any(|arg| arg == "sizes") {
        return sizes(dir.path());
    }
    let data = Data::new(key_count());
    let slice = |number, codec, cache_bytes, is_mapped| {
        Slice::write(dir.path(), number, layout(codec), cache_bytes, is_mapped, data.entries())
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
                    run(&bench, row, 0, key_count());
                    counted(&bench, row, key_count());
                }
            }
        }
        Some("rows") => {
            for (row, (name, ..)) in ROWS.iter().enumerate() {
                let rounds = if matches!(ROWS[row].1, All(_)) { 5 } else { 400 };
                let times = (0..rounds).map(|round| {
                    let start = Instant::now();
                    let count = run(&bench, row, round * ROUND, ROUND);
                    start.elapsed().as_nanos() as f64 / count as f64
                });
                let mut times: Vec<_> = times.collect();
                times.sort_by(f64::total_cmp);
                let (least, tenth) = (times[0], times[times.len() / 10]);
                println!("{name:34} {least:8.1} ns, a tenth below {tenth:8.1} ns");
            }
        }
        _ => {
            let mut criterion = Criterion::default().sample_size(10).configure_from_args();
            for (row, (name, ..)) in ROWS.iter().enumerate() {
                criterion.bench_function(name, |bencher| {
                    bencher.iter_custom(|count| {
                        let start = Instant::now();
                        let done = run(&bench, row, 0, count);
                        start.elapsed().mul_f64(count as f64 / done as f64)
                    });
                });
            }
        }
    }
}
