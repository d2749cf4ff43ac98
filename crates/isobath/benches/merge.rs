//! The merge iterator over 2, 8 and 32 tables that share one key range: all versions in order, as a
//! compaction walks them, and the visible keys, as a scan reads them.
//!
//!     cargo bench -p isobath --features bench-internals --bench merge
//!
//! `MERGE_KEYS` sets the number of keys in all tables together (half a million by default). All
//! tables stay in the cache.

use criterion::{BatchSize, Criterion, Throughput};
use isobath::bench_support::merge::{Merge, Scan};
use isobath::bench_support::table::{Codec, Layout, Slice};
use std::hint::black_box;
use std::path::Path;

const VALUE: [u8; 100] = [0xa5; 100];
const RANGE_LEN: u64 = 100;

fn key_count() -> u64 {
    std::env::var("MERGE_KEYS").ok().and_then(|n| n.parse().ok()).unwrap_or(500_000)
}

fn key(i: u64) -> [u8; 16] {
    let mixed = (i + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mut key = [0; 16];
    key[..8].copy_from_slice(&mixed.to_be_bytes());
    key[8..].copy_from_slice(&i.to_be_bytes());
    key
}

/// Distributes `keys` over this many tables.
fn slices(dir: &Path, sources: u64, keys: u64) -> Vec<Slice> {
    let slice = |source: u64| {
        let mut share: Vec<_> = (source..keys).step_by(sources as usize).map(key).collect();
        share.sort_unstable();
        let entries = share.iter().map(|key| (&key[..], &VALUE[..]));
        let layout = Layout { codec: Codec::Lz4, is_chained: false };
        Slice::write(dir, sources * 100 + source, layout, 1 << 30, true, entries)
    };
    (0..sources).map(slice).collect()
}

fn main() {
    let dir = tempfile::tempdir().expect("a directory");
    let keys = key_count();
    let mut criterion = Criterion::default().sample_size(10).configure_from_args();
    for sources in [2, 8, 32] {
        let slices = slices(dir.path(), sources, keys);
        let mut group = criterion.benchmark_group(format!("{sources} sources"));
        group.throughput(Throughput::Elements(keys));
        group.bench_function("all versions", |bencher| {
            let mut merge = Merge::new(&slices);
            bencher.iter(|| assert_eq!(merge.count(), keys));
        });
        group.throughput(Throughput::Elements(RANGE_LEN));
        group.bench_function("seek and a range of 100", |bencher| {
            let mut scan = Scan::new(&slices);
            let mut i = 0;
            let from = || {
                i += 1;
                key(i * 7919 % keys)
            };
            let range = |from: [u8; 16]| black_box(scan.range(&from, RANGE_LEN));
            bencher.iter_batched(from, range, BatchSize::SmallInput);
        });
        group.finish();
    }
    criterion.final_summary();
}
