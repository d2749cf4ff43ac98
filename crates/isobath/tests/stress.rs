//! Many threads at once, with budgets so small that sealing, flushing and compacting never stop.
//! `ISOBATH_TEST_LONG=1` runs for minutes.

use isobath::{Batch, Db, Options, TransactionOptions, WriteOptions};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const WRITERS: u64 = 3;
const KEYS: u64 = 200;

/// How long a test waits at most for what comes soon on a machine that is not busy.
const PATIENCE: Duration = Duration::from_secs(120);

fn long() -> bool {
    std::env::var_os("ISOBATH_TEST_LONG").is_some()
}

fn small() -> Options {
    Options::new().write_buffer(128 << 10).block_cache(512 << 10).compaction_threads(2)
}

fn key(writer: u64, n: u64) -> Vec<u8> {
    format!("{writer}:{:05}", n % KEYS).into_bytes()
}

fn value(n: u64) -> Vec<u8> {
    let mut value = n.to_be_bytes().to_vec();
    value.resize(20 + (n % 150) as usize, n as u8);
    value
}

fn number(value: &[u8]) -> u64 {
    assert_eq!(value, self::value(u64::from_be_bytes(value[..8].try_into().unwrap())));
    u64::from_be_bytes(value[..8].try_into().unwrap())
}

/// The state that the threads share. Batch `n` of a writer sets its key `n % KEYS` to `n` in both
/// families.
struct Shared {
    db: Db,
    other: isobath::Family,
    /// The newest acknowledged batch of each writer.
    acknowledged: Vec<AtomicU64>,
    stop: AtomicBool,
}

impl Shared {
    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn write(&self, writer: u64) {
        for n in 1.. {
            if self.stopped() {
                return;
            }
            let mut batch = Batch::new();
            batch.put(key(writer, n), value(n));
            batch.of(&self.other).put(key(writer, n), value(n));
            self.db.write(batch).unwrap();
            self.acknowledged[writer as usize].store(n, Ordering::Release);
        }
    }

    /// A reader that begins after a commit was acknowledged sees the commit, whatever is sealed or
    /// installed in the meantime.
    fn read_own_moment(&self) {
        for turn in 0.. {
            if self.stopped() {
                return;
            }
            let writer = turn % WRITERS;
            let n = self.acknowledged[writer as usize].load(Ordering::Acquire);
            if n == 0 {
                continue;
            }
            let found = match turn % 2 {
                0 => self.db.get(key(writer, n)),
                _ => self.other.get(key(writer, n)),
            };
            let found = found.unwrap().map(|value| number(&value));
            assert!(found >= Some(n), "{n} was acknowledged, {found:?} is read");
        }
    }

    /// A snapshot shows whole batches, the same in both families, and a prefix of each writer's
    /// batches.
    fn read_snapshots(&self, backwards: bool) {
        while !self.stopped() {
            let floor: Vec<_> =
                self.acknowledged.iter().map(|n| n.load(Ordering::Acquire)).collect();
            let snapshot = self.db.snapshot();
            let collect = |range: isobath::Range| {
                let read = |item: isobath::Result<(isobath::Value, isobath::Value)>| {
                    let (key, value) = item.unwrap();
                    (key.to_vec(), number(&value))
                };
                match backwards {
                    true => range.rev().map(read).collect::<Vec<_>>().into_iter().rev().collect(),
                    false => range.map(read).collect::<Vec<_>>(),
                }
            };
            let ours = collect(snapshot.range(..));
            let theirs = collect(snapshot.of(&self.other).range(..));
            assert_eq!(ours, theirs, "half a batch is seen at {snapshot:?}");
            for writer in 0..WRITERS {
                let prefix = format!("{writer}:");
                let of_writer =
                    || ours.iter().filter(|(key, _)| key.starts_with(prefix.as_bytes()));
                let newest = of_writer().map(|(_, n)| *n).max().unwrap_or(0);
                assert!(newest >= floor[writer as usize]);
                assert_eq!(of_writer().count() as u64, newest.min(KEYS));
                for (key, n) in of_writer() {
                    assert!(*n + KEYS > newest, "{} holds {n} beside {newest}", key.escape_ascii());
                }
                if newest > 0 {
                    let found = snapshot.get(key(writer, newest)).unwrap().unwrap();
                    assert_eq!(number(&found), newest);
                }
            }
        }
    }

    fn trouble(&self) {
        for turn in 0u64.. {
            if self.stopped() {
                return;
            }
            match turn % 4 {
                0 => self.db.flush().unwrap(),
                1 => self.db.compact().unwrap(),
                2 => self.other.compact(..).unwrap(),
                _ => {
                    let brief = self.db.family(format!("brief {turn}")).unwrap();
                    brief.put("key", "value").unwrap();
                    self.db.drop_family(&brief).unwrap();
                    brief.put("key", "value").unwrap_err();
                }
            }
        }
    }
}

#[test]
fn every_reader_sees_whole_batches_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let db = small().open(dir.path()).unwrap();
    let other = db.family("other").unwrap();
    let acknowledged = (0..WRITERS).map(|_| AtomicU64::new(0)).collect();
    let shared = Shared { db, other, acknowledged, stop: AtomicBool::new(false) };
    std::thread::scope(|scope| {
        let shared = &shared;
        for writer in 0..WRITERS {
            scope.spawn(move || shared.write(writer));
        }
        scope.spawn(|| shared.read_own_moment());
        scope.spawn(|| shared.read_own_moment());
        scope.spawn(|| shared.read_snapshots(false));
        scope.spawn(|| shared.read_snapshots(true));
        scope.spawn(|| shared.trouble());
        let (began, lasts) = (Instant::now(), Duration::from_secs(if long() { 300 } else { 5 }));
        let has_worked = || {
            let metrics = shared.db.metrics();
            metrics.flushes > 0 && metrics.compactions > 0
        };
        while began.elapsed() < lasts || (!has_worked() && began.elapsed() < PATIENCE) {
            std::thread::sleep(Duration::from_millis(20));
        }
        shared.stop.store(true, Ordering::Relaxed);
    });
    let metrics = shared.db.metrics();
    println!(
        "batches {:?}, flushes {}, compactions {}",
        shared.acknowledged, metrics.flushes, metrics.compactions
    );
    assert!(metrics.flushes > 0 && metrics.compactions > 0);
    shared.db.close().unwrap();
}

/// Transactions scan ten rows and count the first one up, so that they meet conflicts on ranges and
/// run again under locks. A locked range that a writer misses shows in one of seven rounds.
#[test]
fn no_count_is_lost_where_reruns_lock_what_they_have_scanned() {
    const THREADS: u64 = 4;
    const COUNTS: u64 = 200;
    for round in 0..if long() { 2000 } else { 40 } {
        let db = Options::in_memory().open("counts").unwrap();
        (0..40u64).for_each(|key| _ = db.put(key.to_be_bytes(), 0u64.to_be_bytes()).unwrap());
        let count = |thread: u64| {
            let mut seed = (round * THREADS + thread + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            for _ in 0..COUNTS {
                seed ^= seed << 13;
                seed ^= seed >> 7;
                seed ^= seed << 17;
                // Most of the counts fall on few keys.
                let key = ((seed % 40 * (seed >> 32 & 0xff)) >> 8).to_be_bytes();
                let options = TransactionOptions::new().attempts(u32::MAX);
                let counted = db.with(options).transact(|tx| {
                    let rows = tx.range(&key[..]..).take(10).collect::<Result<Vec<_>, _>>()?;
                    let count = u64::from_be_bytes(rows[0].1[..].try_into().unwrap());
                    tx.put(key, (count + 1).to_be_bytes())
                });
                counted.unwrap();
            }
        };
        std::thread::scope(|scope| {
            (0..THREADS).for_each(|thread| _ = scope.spawn(move || count(thread)));
        });
        let counts = db.iter().map(|row| row.unwrap().1[..].try_into().unwrap());
        let sum: u64 = counts.map(u64::from_be_bytes).sum();
        assert_eq!(sum, THREADS * COUNTS, "round {round}");
    }
}

#[test]
fn more_writers_than_processors_still_make_progress() {
    for writers in [1, 2, 8, 32] {
        let dir = tempfile::tempdir().unwrap();
        let db = Options::new().write_buffer(4 << 20).open(dir.path()).unwrap();
        let (puts, began) = (AtomicU64::new(0), Instant::now());
        // The writers that have not put anything yet.
        let waiting = AtomicU64::new(writers);
        let lasts = Duration::from_millis(if long() { 10_000 } else { 700 });
        let slowest = std::thread::scope(|scope| {
            let write = |writer: u64| {
                let (db, puts, waiting) = (&db, &puts, &waiting);
                move || {
                    let mut n = 0u64;
                    // On a busy machine a thread may begin when the time is over.
                    let is_over = || match waiting.load(Ordering::Relaxed) {
                        0 => began.elapsed() >= lasts,
                        _ => began.elapsed() >= PATIENCE,
                    };
                    while !is_over() {
                        let key = (n * WRITERS + writer).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                        db.put(key.to_be_bytes(), [7; 100]).unwrap();
                        waiting.fetch_sub(u64::from(n == 0), Ordering::Relaxed);
                        n += 1;
                    }
                    puts.fetch_add(n, Ordering::Relaxed);
                    n
                }
            };
            let threads: Vec<_> = (0..writers).map(|writer| scope.spawn(write(writer))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).min().unwrap()
        });
        let rate = puts.load(Ordering::Relaxed) as f64 / began.elapsed().as_secs_f64();
        println!("{writers} writers: {rate:.0} puts a second together, {slowest} by the slowest");
        assert!(slowest > 0, "a writer out of {writers} starved");
    }
}

#[test]
fn one_writer_that_syncs_and_three_that_do_not_all_make_progress() {
    let dir = tempfile::tempdir().unwrap();
    let db = Options::new().open(dir.path()).unwrap();
    let began = Instant::now();
    let lasts = Duration::from_millis(if long() { 10_000 } else { 700 });
    let (puts, is_over) = ([const { AtomicU64::new(0) }; 4], AtomicBool::new(false));
    let write = |writer: usize, options: WriteOptions| {
        let (db, puts, is_over) = (&db, &puts[writer], &is_over);
        move || {
            let mut longest = Duration::ZERO;
            while !is_over.load(Ordering::Relaxed) {
                let put_at = Instant::now();
                let n = puts.load(Ordering::Relaxed);
                db.with(options).put(key(writer as u64, n), [7; 100]).unwrap();
                longest = longest.max(put_at.elapsed());
                puts.store(n + 1, Ordering::Relaxed);
            }
            longest
        }
    };
    // On a busy machine one of them may get no processor for a while.
    let (made, longest) = std::thread::scope(|scope| {
        let mut writers = vec![scope.spawn(write(0, WriteOptions::sync()))];
        writers.extend((1..4).map(|writer| scope.spawn(write(writer, WriteOptions::default()))));
        let made = loop {
            std::thread::sleep(Duration::from_millis(20));
            let made = puts.each_ref().map(|puts| puts.load(Ordering::Relaxed));
            let are_ahead = made[0] > 0 && made[1..].iter().all(|puts| *puts > made[0]);
            if (are_ahead && began.elapsed() >= lasts) || began.elapsed() >= PATIENCE {
                break made;
            }
        };
        is_over.store(true, Ordering::Relaxed);
        let longest: Vec<_> = writers.into_iter().map(|writer| writer.join().unwrap()).collect();
        (made, longest)
    });
    println!("puts, of the first with a sync: {made:?}, the longest took {longest:?}");
    assert!(made[0] > 0);
    assert!(made[1..].iter().all(|puts| *puts > made[0]), "who doesn't sync waits for who does");
}

#[test]
fn a_close_loses_nothing_that_writers_were_told_of() {
    let dir = tempfile::tempdir().unwrap();
    let mut floor = vec![0; WRITERS as usize];
    for round in 0..if long() { 1000 } else { 12u64 } {
        let db = small().open(dir.path()).unwrap();
        let acknowledged: Vec<_> = floor.iter().map(|n| AtomicU64::new(*n)).collect();
        std::thread::scope(|scope| {
            for writer in 0..WRITERS {
                let (db, acknowledged) = (db.clone(), &acknowledged);
                scope.spawn(move || {
                    for n in acknowledged[writer as usize].load(Ordering::Relaxed) + 1.. {
                        match db.put(key(writer, n), value(n)) {
                            Ok(_) => acknowledged[writer as usize].store(n, Ordering::Relaxed),
                            Err(error) if error.is_closed() => return,
                            Err(other) => panic!("{other}"),
                        }
                    }
                });
            }
            let flusher = db.clone();
            scope.spawn(move || while flusher.flush().is_ok() {});
            std::thread::sleep(Duration::from_millis(5 + round * 17 % 60));
            db.close().unwrap();
        });
        let db = small().open(dir.path()).unwrap();
        for writer in 0..WRITERS {
            let n = acknowledged[writer as usize].load(Ordering::Relaxed);
            let found = db.get(key(writer, n)).unwrap().map(|value| number(&value));
            // The put that got the error of the close may still be in the database.
            assert!(
                n == 0 || found >= Some(n),
                "round {round}: {n} was acknowledged, {found:?} is left"
            );
            floor[writer as usize] = n.max(found.unwrap_or(0));
        }
    }
}

#[test]
fn readers_may_outlive_their_database() {
    let dir = tempfile::tempdir().unwrap();
    let db = small().open(dir.path()).unwrap();
    for n in 0..5000 {
        db.put(n.to_string(), value(n)).unwrap();
    }
    db.flush().unwrap();
    db.put("newest", value(7)).unwrap();
    let (mut range, snapshot) = (db.range(..), db.snapshot());
    let mut cursor = db.cursor(..).unwrap();
    let pinned = db.get("newest").unwrap().unwrap();
    let family = db.default_family();
    assert!(range.next().unwrap().is_ok());
    drop(db);
    // Snapshots and handles keep the database open; ranges, cursors and values do not.
    assert_eq!(small().open(dir.path()).unwrap_err().name(), "LOCKED");
    assert_eq!(number(&family.get("newest").unwrap().unwrap()), 7);
    let again = snapshot.clone();
    drop((family, snapshot));
    assert_eq!(number(&again.get("newest").unwrap().unwrap()), 7);
    drop(again);
    let reopened = small().open(dir.path()).unwrap();
    reopened.delete("newest").unwrap();
    reopened.compact().unwrap();
    assert!(range.next().unwrap().unwrap_err().is_closed() && range.next().is_none());
    assert_eq!(cursor.seek("newest").unwrap_err().name(), "CLOSED");
    assert_eq!(number(&pinned), 7);
}
