//! The memtable beside crossbeam's skip list: inserts, lookups and scans of 16-byte (or longer)
//! keys and 100-byte values, on one and two threads.
//!
//!     cargo bench -p isobath --features bench-internals --bench memtable
//!     cargo bench -p isobath --features bench-internals --bench memtable -- ratios [PART]
//!
//! `PART` is a part of a row's name. The first form measures each row by itself with criterion. The
//! second runs the two structures in turns, for several rounds in one process, and prints the
//! medians and their ratio. Trust that figure on a machine that has other work. `MEMTABLE_KEYS`
//! sets the number of keys (a million by default).

use criterion::Criterion;
use crossbeam_skiplist::SkipMap;
use isobath::bench_support::memtable::{Memtable, Pool, touch};
use std::hint::black_box;
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

const VALUE: [u8; 100] = [0xa5; 100];
const SCAN_LEN: usize = 100;
const ROUNDS: usize = 5;

fn key_count() -> usize {
    std::env::var("MEMTABLE_KEYS").ok().and_then(|n| n.parse().ok()).unwrap_or(1_000_000)
}

/// The operations that both structures have.
trait Table: Sync + Send {
    const NAME: &str;
    fn create() -> Self;
    fn put(&self, key: &[u8], seq: u64);
    /// Keys ascend.
    fn put_sorted(&self, keys: &[&[u8]], first_seq: u64);
    fn get(&self, key: &[u8]) -> bool;
    fn scan(&self, key: &[u8], limit: usize) -> usize;
}

fn pool() -> &'static Pool {
    static POOL: OnceLock<Pool> = OnceLock::new();
    POOL.get_or_init(|| Pool::warm(key_count() * 330))
}

impl Table for Memtable {
    const NAME: &str = "isobath";

    fn create() -> Self {
        Memtable::new(pool())
    }

    fn put(&self, key: &[u8], seq: u64) {
        Memtable::put(self, key, seq, &VALUE);
    }

    fn put_sorted(&self, keys: &[&[u8]], first_seq: u64) {
        let ops = keys.iter().enumerate().map(|(i, key)| (*key, first_seq + i as u64, &VALUE[..]));
        Memtable::put_sorted(self, ops);
    }

    fn get(&self, key: &[u8]) -> bool {
        Memtable::get(self, key, u64::MAX).map(touch).is_some()
    }

    fn scan(&self, key: &[u8], limit: usize) -> usize {
        Memtable::scan(self, key, limit)
    }
}

/// Keys and values in one allocation each, as a careful user of the skip list would store them.
impl Table for SkipMap<Box<[u8]>, (u64, Box<[u8]>)> {
    const NAME: &str = "skiplist";

    fn create() -> Self {
        SkipMap::new()
    }

    fn put(&self, key: &[u8], seq: u64) {
        self.insert(key.into(), (seq, VALUE.as_slice().into()));
    }

    fn put_sorted(&self, keys: &[&[u8]], first_seq: u64) {
        for (i, key) in keys.iter().enumerate() {
            self.put(key, first_seq + i as u64);
        }
    }

    fn get(&self, key: &[u8]) -> bool {
        SkipMap::get(self, key).map(|entry| touch(&entry.value().1)).is_some()
    }

    fn scan(&self, key: &[u8], limit: usize) -> usize {
        let from = (std::ops::Bound::Included(key), std::ops::Bound::Unbounded);
        self.range::<[u8], _>(from)
            .take(limit)
            .map(|entry| entry.key().len() + touch(&entry.value().1))
            .sum()
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Order {
    Random,
    Ascending,
    /// Random bytes after 40 equal bytes.
    SharedPrefix,
}

/// The finaliser of SplitMix64. It is one to one, and lacks the regularities of a product.
fn mixed(i: u64) -> u64 {
    let x = i.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Keys of one length, stored end to end, so that fetching a key costs the benchmark little.
struct Keys {
    bytes: Vec<u8>,
    len: usize,
}

impl Keys {
    fn make(order: Order, numbers: impl Iterator<Item = u64>) -> Keys {
        let mut bytes = Vec::new();
        for i in numbers {
            match order {
                Order::Random => bytes.extend([mixed(i).to_be_bytes(), i.to_be_bytes()].concat()),
                Order::Ascending => bytes.extend(format!("{i:016}").bytes()),
                Order::SharedPrefix => {
                    let prefix = b"tenant/0000000042/table/orders/by-number";
                    bytes.extend(prefix.iter().copied().chain(mixed(i).to_be_bytes()));
                }
            }
        }
        Keys { len: bytes.len() / key_count(), bytes }
    }

    fn get(&self, i: usize) -> &[u8] {
        &self.bytes[i * self.len..][..self.len]
    }
}

/// The keys in the order of insertion, and shuffled in the order of lookup.
fn keys(order: Order) -> &'static [Keys; 2] {
    static KEYS: [OnceLock<[Keys; 2]>; 3] = [const { OnceLock::new() }; 3];
    KEYS[order as usize].get_or_init(|| {
        let count = key_count() as u64;
        let mut shuffled: Vec<u64> = (0..count).collect();
        shuffled.sort_by_key(|&i| mixed(i ^ 0x5555_5555));
        [Keys::make(order, 0..count), Keys::make(order, shuffled.into_iter())]
    })
}

/// Runs `work` on each thread with its share of `0..count`, interleaved. Returns the time until all
/// threads are done.
fn timed(
    threads: usize,
    count: usize,
    work: impl Fn(&mut dyn Iterator<Item = usize>) + Sync,
) -> Duration {
    let start = Instant::now();
    thread::scope(|scope| {
        for id in 1..threads {
            let work = &work;
            scope.spawn(move || work(&mut (id..count).step_by(threads)));
        }
        work(&mut (0..count).step_by(threads));
    });
    start.elapsed()
}

fn fill<T: Table>(order: Order, threads: usize) -> (T, Duration) {
    let (table, [keys, _]) = (T::create(), keys(order));
    let time = timed(threads, key_count(), |shares| {
        shares.for_each(|i| table.put(keys.get(i), i as u64 + 1));
    });
    (table, time)
}

fn fill_in_batches<T: Table>(batch_len: usize) -> Duration {
    let (table, [keys, _]) = (T::create(), keys(Order::Random));
    let numbers: Vec<usize> = (0..key_count()).collect();
    let mut sorted: Vec<&[u8]> = Vec::new();
    let start = Instant::now();
    for (i, batch) in numbers.chunks(batch_len).enumerate() {
        sorted.clear();
        sorted.extend(batch.iter().map(|&i| keys.get(i)));
        sorted.sort_unstable();
        table.put_sorted(&sorted, (i * batch_len) as u64 + 1);
    }
    start.elapsed()
}

/// Looks up every key once, in another order than that of insertion.
fn look_up<T: Table>(table: &T, order: Order, threads: usize) -> Duration {
    let [_, keys] = keys(order);
    timed(threads, key_count(), |shares| {
        for i in shares {
            assert!(table.get(black_box(keys.get(i))));
        }
    })
}

fn scan<T: Table>(table: &T, order: Order, threads: usize) -> Duration {
    let [_, keys] = keys(order);
    timed(threads, key_count() / SCAN_LEN, |shares| {
        for i in shares {
            black_box(table.scan(keys.get(i), SCAN_LEN));
        }
    })
}

type Row = (String, Vec<Duration>);

/// Measures once each row whose name contains `wanted`.
fn round<T: Table>(wanted: &str) -> Vec<(String, Duration)> {
    let mut rows = Vec::new();
    let mut row = |name: String, run: &mut dyn FnMut() -> Duration| {
        if name.contains(wanted) {
            rows.push((name, run()));
        }
    };
    for threads in [1, 2] {
        for order in [Order::Random, Order::Ascending, Order::SharedPrefix] {
            let mut table = None;
            let name = |what: &str| format!("{what} {order:?} {threads}");
            row(name("insert"), &mut || fill::<T>(order, threads).1);
            row(name("get"), &mut || {
                look_up(table.get_or_insert_with(|| fill::<T>(order, threads).0), order, threads)
            });
            row(name("scan"), &mut || {
                scan(table.get_or_insert_with(|| fill::<T>(order, threads).0), order, threads)
            });
        }
    }
    for batch_len in [100, 1000] {
        let name = format!("insert Random sorted by {batch_len}");
        row(name, &mut || fill_in_batches::<T>(batch_len));
    }
    row("whole scan Random".to_string(), &mut || {
        let (table, _) = fill::<T>(Order::Random, 1);
        let start = Instant::now();
        black_box(table.scan(b"", usize::MAX));
        start.elapsed()
    });
    rows
}

fn collect(into: &mut Vec<Row>, rows: Vec<(String, Duration)>) {
    for (i, (name, time)) in rows.into_iter().enumerate() {
        if into.len() <= i {
            into.push((name, Vec::new()));
        }
        into[i].1.push(time);
    }
}

fn median(times: &mut [Duration]) -> f64 {
    times.sort_unstable();
    times[times.len() / 2].as_secs_f64()
}

fn print_ratios(wanted: &str) {
    for order in [Order::Random, Order::Ascending, Order::SharedPrefix] {
        keys(order);
    }
    pool();
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        collect(&mut ours, round::<Memtable>(wanted));
        collect(&mut theirs, round::<SkipMap<Box<[u8]>, (u64, Box<[u8]>)>>(wanted));
    }
    println!("{:28} {:>10} {:>10} {:>6}  (ns per entry)", "", "isobath", "skiplist", "ratio");
    for ((name, mine), (_, other)) in ours.iter_mut().zip(&mut theirs) {
        let scale = 1e9 / key_count() as f64;
        let (mine, other) = (median(mine) * scale, median(other) * scale);
        println!("{name:28} {mine:10.1} {other:10.1} {:6.2}", other / mine);
    }
    println!("cold chunks: {}", pool().cold_chunks());
}

fn measure<T: Table>(criterion: &mut Criterion) {
    for order in [Order::Random, Order::Ascending, Order::SharedPrefix] {
        for threads in [1, 2] {
            let name = |what: &str| format!("{what}/{order:?}/{threads}/{}", T::NAME);
            let sum =
                |runs, mut run: Box<dyn FnMut() -> Duration + '_>| (0..runs).map(|_| run()).sum();
            criterion.bench_function(&name("insert"), |bencher| {
                bencher.iter_custom(|runs| sum(runs, Box::new(|| fill::<T>(order, threads).1)));
            });
            let (table, _) = fill::<T>(order, threads);
            criterion.bench_function(&name("get"), |bencher| {
                bencher.iter_custom(|runs| sum(runs, Box::new(|| look_up(&table, order, threads))));
            });
            criterion.bench_function(&name("scan"), |bencher| {
                bencher.iter_custom(|runs| sum(runs, Box::new(|| scan(&table, order, threads))));
            });
        }
    }
}

fn main() {
    let mut arguments = std::env::args().skip_while(|argument| argument != "ratios").skip(1);
    if std::env::args().any(|argument| argument == "ratios") {
        let wanted = arguments.find(|argument| !argument.starts_with('-')).unwrap_or_default();
        return print_ratios(&wanted);
    }
    let mut criterion = Criterion::default().sample_size(10).configure_from_args();
    measure::<Memtable>(&mut criterion);
    measure::<SkipMap<Box<[u8]>, (u64, Box<[u8]>)>>(&mut criterion);
    criterion.final_summary();
}
