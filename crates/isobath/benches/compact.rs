//! The cost of a compaction for each entry, and the cost of a cursor over several runs for a
//! reader. Both are measured in the processor time of this thread, so that other work of the
//! machine matters less.
//!
//!     cargo bench -p isobath --features bench-internals --bench compact -- entries=200000
//!
//! With `heads=shared`, all keys begin with the same eight bytes.

use isobath::bench_support::compact::{Codec, Runs};
use std::hint::black_box;

const SEEKS: u64 = 20_000;

/// The nanoseconds that this thread has run on a processor.
fn cpu_ns() -> u64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux");
    stat.split(' ').next().and_then(|ns| ns.parse().ok()).expect("a number")
}

fn given(name: &str) -> Option<String> {
    std::env::args().find_map(|argument| {
        let (given, value) = argument.split_once('=')?;
        (given == name).then(|| value.to_owned())
    })
}

fn runs(dir: &tempfile::TempDir) -> Runs {
    Runs::new(dir.path(), given("heads").is_some())
}

fn compaction(entries: usize, codec_in: Codec, codec_out: Codec) {
    let dir = tempfile::tempdir().expect("a directory");
    let mut runs = runs(&dir);
    let started = cpu_ns();
    for _ in 0..9 {
        runs.add(entries, codec_in);
    }
    let flushed = cpu_ns() - started;
    let job = runs.due(entries, codec_in, codec_out);
    let started = cpu_ns();
    let done = job.finish();
    let ns = cpu_ns() - started;
    println!(
        "{codec_in:?} to {codec_out:?}: write {} ns an entry (with generation), compaction {} ns an entry of {} \
         ({} to {} MiB)",
        flushed / done.entries_in,
        ns / done.entries_in,
        done.entries_in,
        done.bytes_read >> 20,
        done.bytes_written >> 20,
    );
}

/// In the second round, all blocks are in the cache.
fn reading(run_count: usize, entries: usize) {
    let dir = tempfile::tempdir().expect("a directory");
    let mut runs = runs(&dir);
    for _ in 0..run_count {
        runs.add(2 * entries / run_count, Codec::None);
    }
    let mut view = runs.view();
    for round in 0..2 {
        let started = cpu_ns();
        view.first();
        let mut count = 0;
        while let Some((key, value)) = view.entry() {
            count += 1;
            black_box((key[0], value[60]));
            view.next();
        }
        let full = cpu_ns() - started;
        let mut random = 12_345u64;
        let mut walk = |len: u64| {
            let started = cpu_ns();
            for _ in 0..SEEKS {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                view.seek(&random.to_be_bytes());
                for _ in 0..len {
                    let Some((key, _)) = view.entry() else { break };
                    black_box(key[0]);
                    view.next();
                }
            }
            cpu_ns() - started
        };
        println!(
            "{run_count} runs, round {round}: next {:.1} ns, range of 100 {} k/s, seek {} ns",
            full as f64 / f64::from(count),
            SEEKS * 1_000_000 / walk(100),
            walk(0) / SEEKS,
        );
    }
}

fn main() {
    let entries = given("entries").map_or(200_000, |n| n.parse().expect("a number"));
    let codecs = [(Codec::None, Codec::None), (Codec::None, Codec::Lz4), (Codec::Lz4, Codec::Lz4)];
    for (codec_in, codec_out) in codecs {
        compaction(entries, codec_in, codec_out);
    }
    for run_count in [1, 3, 5, 8] {
        reading(run_count, entries);
    }
}
