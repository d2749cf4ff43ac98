//! Passes, runs in level 0 and the longest job of the planner under uniform writes, on a tree
//! without tables: the table of `docs/internals/compaction.md`.
//!
//!     cargo bench -p isobath --features bench-internals --bench planner -- \
//!         keys=20,80 triggers=8 ratios=4,8
//!
//! `keys` are in millions. There are also `file_mib`, `job_mib`, `threads` and `ns` (the time for
//! each entry read).

use isobath::bench_support::planner::{HEAD, Setting, simulate};

/// The numbers from an argument `name=1,2,3`, or the default ones.
fn numbers(name: &str, default: &[u64]) -> Vec<u64> {
    let given = std::env::args().find_map(|argument| {
        let (given, list) = argument.split_once('=')?;
        (given == name).then(|| list.split(',').map(|n| n.parse().expect("a number")).collect())
    });
    given.unwrap_or_else(|| default.to_vec())
}

fn main() {
    let one = |name, default| numbers(name, &[default])[0];
    let (file_mib, job_mib) = (one("file_mib", 32), one("job_mib", 256));
    let (threads, ns_per_entry) = (one("threads", 1), one("ns", 250));
    println!("keys M | trigger ratio | {HEAD}");
    for keys in numbers("keys", &[20, 80]) {
        for trigger in numbers("triggers", &[4, 8, 12]) {
            for ratio in numbers("ratios", &[4, 8]) {
                let setting = Setting {
                    keys: keys * 1_000_000,
                    trigger,
                    ratio,
                    file_bytes: file_mib << 20,
                    job_bytes: job_mib << 20,
                    threads,
                    ns_per_entry,
                };
                println!("{keys:4} | {trigger:2} {ratio:2} | {}", simulate(&setting));
            }
        }
    }
}
