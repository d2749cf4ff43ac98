//! The cost of one step, one read and one write, by where the data is: in memory, in one level, or
//! in both with two runs between; and of transactions. Everything is cached. Keys are 16 random
//! bytes; values are 100 bytes, half of them random.
//!
//!     cargo bench -p isobath --bench steps [-- FILTER]
//!
//! prints the smallest number of nanoseconds for an operation in some rounds (`STEPS_ROUNDS`). Even
//! a busy machine repeats that within a few per cent. Instruction counts repeat better still: for
//! one row, divide what callgrind collects by the number of operations.
//!
//!     STEPS_ROUNDS=1 valgrind --tool=callgrind --toggle-collect='*measured*' \
//!         target/release/deps/steps-HASH 'level, range forward'

use isobath::{Batch, Db, Options, Result, Value};
use std::cell::Cell;
use std::hint::black_box;
use std::path::Path;
use std::time::Instant;

const KEYS: u64 = 50_000;
const LARGE: u64 = 1_000_000;
const STEPS: u64 = 20_000;
const READS: u64 = 5_000;
const BATCHES: u64 = 2_000;

fn mixed(i: u64) -> u64 {
    let mixed = (i + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed ^ mixed >> 32
}

fn key(i: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&mixed(i).to_be_bytes());
    key[8..].copy_from_slice(&mixed(i ^ 0xdead_beef).to_be_bytes());
    key
}

fn value(i: u64) -> [u8; 100] {
    let mut value = [b'v'; 100];
    for (at, word) in value[..48].chunks_exact_mut(8).enumerate() {
        word.copy_from_slice(&mixed(i * 7 + at as u64).to_le_bytes());
    }
    value
}

/// The function in which callgrind collects.
#[inline(never)]
fn measured<T>(made: T, work: impl FnOnce(T) -> Result<usize>) -> Result<usize> {
    work(made)
}

struct Rows {
    filter: String,
    rounds: u64,
    place: &'static str,
    keys: u64,
    reads: u64,
}

impl Rows {
    /// Measures a row of `count` operations. What `make` does for each round is not measured.
    fn row<T>(
        &self,
        name: &str,
        count: u64,
        mut make: impl FnMut() -> Result<T>,
        mut work: impl FnMut(T) -> Result<usize>,
    ) -> Result<()> {
        let name = format!("{}, {name}", self.place);
        if !name.contains(&self.filter) {
            return Ok(());
        }
        let mut least = f64::MAX;
        for _ in 0..self.rounds {
            let made = make()?;
            let started = Instant::now();
            black_box(measured(made, &mut work)?);
            least = least.min(started.elapsed().as_nanos() as f64 / count as f64);
        }
        println!("{name:28} {least:8.1} ns, {count} operations");
        Ok(())
    }
}

/// The steps of ranges and cursors over the present content of the database.
fn steps(rows: &Rows, db: &Db) -> Result<()> {
    let forward = || {
        let mut range = db.range(..);
        range.next().transpose()?;
        Ok(range)
    };
    rows.row("range forward", STEPS, forward, |mut range| {
        (0..STEPS).map(|_| range.next().expect("there are more")).map(size).sum()
    })?;
    let backward = || {
        let mut range = db.range(..);
        range.next_back().transpose()?;
        Ok(range)
    };
    rows.row("range backward", STEPS, backward, |mut range| {
        (0..STEPS).map(|_| range.next_back().expect("there are more")).map(size).sum()
    })?;
    let first = || {
        let mut cursor = db.cursor(..)?;
        cursor.first()?;
        Ok(cursor)
    };
    rows.row("cursor forward", STEPS, first, |mut cursor| {
        (0..STEPS).map(|_| Ok(cursor.next()?.map_or(0, |entry| entry.key().len()))).sum()
    })?;
    let last = || {
        let mut cursor = db.cursor(..)?;
        cursor.last()?;
        Ok(cursor)
    };
    rows.row("cursor backward", STEPS, last, |mut cursor| {
        (0..STEPS).map(|_| Ok(cursor.prev()?.map_or(0, |entry| entry.key().len()))).sum()
    })?;
    let keys: Vec<_> = (0..rows.reads).map(|i| key(mixed(i) % rows.keys)).collect();
    rows.row(
        "cursor seek",
        rows.reads,
        || db.cursor(..),
        |mut cursor| {
            keys.iter().map(|key| Ok(cursor.seek(key)?.map_or(0, |entry| entry.key().len()))).sum()
        },
    )?;
    rows.row(
        "range of ten",
        rows.reads,
        || Ok(()),
        |()| keys.iter().flat_map(|key| db.range(key..).take(10)).map(size).sum(),
    )
}

fn size(item: Result<(Value, Value)>) -> Result<usize> {
    item.map(|(key, value)| key.len() + value.len())
}

/// The reads of single keys of the present content of the database.
fn gets(rows: &Rows, db: &Db) -> Result<()> {
    let keys: Vec<_> = (0..rows.reads).map(|i| key(mixed(i) % rows.keys)).collect();
    let absent: Vec<_> = (0..rows.reads).map(|i| key(rows.keys * 1000 + i)).collect();
    for (name, keys) in [("get", &keys), ("absent get", &absent)] {
        rows.row(
            name,
            rows.reads,
            || Ok(()),
            |()| keys.iter().map(|key| Ok(db.get(key)?.map_or(0, |value| value.len()))).sum(),
        )?;
    }
    let read = |keys: &[[u8; 16]]| -> Result<usize> {
        keys.iter().map(|key| Ok(db.get(key)?.map_or(0, |value| value.len()))).sum()
    };
    rows.row(
        "get by two at once",
        rows.reads,
        || Ok(()),
        |()| {
            std::thread::scope(|scope| {
                let other = scope.spawn(|| read(&keys));
                Ok(read(&keys)? + other.join().expect("it does not panic")?)
            })
        },
    )?;
    let hot: Vec<_> = vec![keys[0]; keys.len()];
    rows.row(
        "get of one key by two at once",
        rows.reads,
        || Ok(()),
        |()| {
            std::thread::scope(|scope| {
                let other = scope.spawn(|| read(&hot));
                Ok(read(&hot)? + other.join().expect("it does not panic")?)
            })
        },
    )?;
    rows.row(
        "snapshot taken and dropped",
        rows.reads,
        || Ok(()),
        |()| Ok((0..rows.reads).map(|_| drop(black_box(db.snapshot()))).count()),
    )?;
    rows.row(
        "iter opened and dropped",
        rows.reads,
        || Ok(()),
        |()| Ok((0..rows.reads).map(|_| drop(black_box(db.range(..)))).count()),
    )?;
    rows.row(
        "multi_get of ten, a key",
        rows.reads,
        || Ok(()),
        |()| keys.chunks(10).map(|keys| Ok(db.multi_get(keys)?.len())).sum(),
    )?;
    rows.row(
        "multi_get of 64, a key",
        rows.reads,
        || Ok(()),
        |()| keys.chunks(64).map(|keys| Ok(db.multi_get(keys)?.len())).sum(),
    )
}

/// The writes. Each kind writes keys of its own.
fn writes(rows: &Rows, db: &Db) -> Result<()> {
    let next = Cell::new(KEYS * 10);
    let new = |count| Ok(next.replace(next.get() + count));
    rows.row(
        "put",
        STEPS,
        || new(STEPS),
        |from| (from..from + STEPS).map(|i| db.put(key(i), value(i)).map(|_| 1)).sum(),
    )?;
    rows.row(
        "delete",
        STEPS,
        || new(STEPS),
        |from| (from..from + STEPS).map(|i| db.delete(key(i)).map(|_| 1)).sum(),
    )?;
    rows.row(
        "batch of ten",
        BATCHES,
        || new(BATCHES * 10),
        |from| {
            let batch = |at: u64| {
                let mut batch = Batch::new();
                for i in from + at * 10..from + at * 10 + 10 {
                    batch.put(key(i), value(i));
                }
                db.write(batch).map(|_| 1)
            };
            (0..BATCHES).map(batch).sum()
        },
    )?;
    // From the second memtable on, there is a filter.
    put(db, 0, 1)?;
    db.flush()?;
    rows.row(
        "put with a filter",
        STEPS,
        || new(STEPS),
        |from| (from..from + STEPS).map(|i| db.put(key(i), value(i)).map(|_| 1)).sum(),
    )
}

/// Transactions on one thread, and what they cost a plain put beside them. All keys are in memory.
fn transactions(rows: &Rows, db: &Db) -> Result<()> {
    let keys: Vec<_> = (0..READS).map(|i| key(mixed(i) % rows.keys)).collect();
    let nothing = || Ok(());
    let each = |work: &dyn Fn(&[u8; 16]) -> Result<usize>| keys.iter().map(work).sum();
    rows.row("begun and dropped", READS, nothing, |()| {
        Ok((0..READS).map(|_| drop(black_box(db.begin()))).count())
    })?;
    let begin = || Ok(db.begin());
    rows.row("get", READS, begin, |tx| {
        each(&|key| Ok(tx.get(key)?.map_or(0, |value| value.len())))
    })?;
    rows.row("put", READS, begin, |tx| each(&|key| tx.put(key, value(0)).map(|()| 1)))?;
    rows.row("get_for_update", READS, begin, |tx| {
        each(&|key| Ok(tx.get_for_update(key)?.map_or(0, |value| value.len())))
    })?;
    let update = |key: &[u8; 16]| {
        let tx = db.begin();
        let found = tx.get(key)?.map_or(0, |value| value.len());
        tx.put(key, value(found as u64))?;
        tx.commit().map(|_| found)
    };
    rows.row("get, put, commit", READS, nothing, |()| each(&update))?;
    let step = |key: &[u8; 16]| db.fetch_update(key, |_| Some(value(0))).map(|_| 1);
    rows.row("fetch_update", READS, nothing, |()| each(&step))?;
    let lock = |key: &[u8; 16]| {
        let tx = db.begin();
        let found = tx.get_for_update(key)?.map_or(0, |value| value.len());
        tx.put(key, value(found as u64))?;
        tx.commit().map(|_| found)
    };
    rows.row("get_for_update, put, commit", READS, nothing, |()| each(&lock))?;
    let next = Cell::new(KEYS * 1000);
    let new = || Ok(next.replace(next.get() + READS));
    let put = |from: u64| (from..from + READS).map(|i| db.put(key(i), value(i)).map(|_| 1)).sum();
    let tx = db.begin();
    rows.row("plain put, gate closed", READS, new, put)?;
    // A lock keeps the gate open.
    tx.get_for_update("locked")?;
    rows.row("plain put, gate open", READS, new, put)
}

/// Puts every `step`-th key from `first` on.
fn put(db: &Db, first: usize, step: usize) -> Result<()> {
    (first as u64..KEYS).step_by(step).try_for_each(|i| db.put(key(i), value(i)).map(|_| ()))
}

fn main() -> Result<()> {
    let filter = std::env::args().skip(1).find(|argument| !argument.starts_with("--"));
    let rounds = std::env::var("STEPS_ROUNDS").map_or(25, |n| n.parse().expect("a number"));
    let mut rows = Rows {
        filter: filter.unwrap_or_default(),
        rounds,
        place: "writes",
        keys: KEYS,
        reads: READS,
    };
    let dir = tempfile::tempdir().expect("a directory");
    writes(&rows, &Db::open(dir.path().join("writes"))?)?;
    rows.place = "transaction";
    let db = Db::open(dir.path().join("transactions"))?;
    put(&db, 0, 1)?;
    transactions(&rows, &db)?;
    let db = Db::open(dir.path().join("reads"))?;
    for place in ["memory", "level", "mixed"] {
        rows.place = place;
        match place {
            "memory" => put(&db, 0, 1)?,
            "level" => db.compact()?,
            _ => {
                for first in [0, 3] {
                    put(&db, first, 10)?;
                    db.flush()?;
                }
                put(&db, 5, 10)?;
            }
        }
        // Twice, so that the cache keeps every block.
        black_box(db.range(..).chain(db.range(..)).map(size).sum::<Result<usize>>()?);
        steps(&rows, &db)?;
        gets(&rows, &db)?;
    }
    db.close()?;
    if rows.filter.starts_with("large") { large(&mut rows, dir.path()) } else { Ok(()) }
}

/// A tree of a large level and two runs, under a memtable that is half full: far more than the
/// processor's caches hold. Measured only if asked for.
fn large(rows: &mut Rows, dir: &Path) -> Result<()> {
    (rows.place, rows.keys, rows.reads) = ("large", LARGE, LARGE / 5);
    let db = Options::new().block_cache(1 << 30).open(dir.join("large"))?;
    (0..LARGE).try_for_each(|i| db.put(key(i), value(i)).map(drop))?;
    db.compact()?;
    for round in 1..4 {
        let keys = (0..LARGE / 4).map(|i| mixed(i ^ round << 32) % LARGE);
        keys.into_iter().try_for_each(|i| db.put(key(i), value(i)).map(drop))?;
        if round < 3 {
            db.flush()?;
        }
    }
    black_box(db.range(..).chain(db.range(..)).map(size).sum::<Result<usize>>()?);
    steps(rows, &db)?;
    gets(rows, &db)?;
    db.close()
}
