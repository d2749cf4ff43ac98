//! Queues: keys are put at one end and popped at the other, so that dead keys lie before the live
//! ones. However scans get past these, they show what is there.

use isobath::{Batch, Db, FamilyOptions, Options, Prefix, Result, Snapshot};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};

fn open() -> Db {
    Options::in_memory().write_buffer(1 << 20).open("/db").unwrap()
}

fn key(n: u64) -> [u8; 8] {
    n.to_be_bytes()
}

fn number(key: &[u8]) -> u64 {
    u64::from_be_bytes(key[..8].try_into().unwrap())
}

/// Pushes and pops so many jobs, so that the keys `from..from + count` are dead.
fn wear(db: &Db, from: u64, count: u64) {
    for n in from..from + count {
        db.put(key(n), "job").unwrap();
        let popped = db.pop_first(key(from)..key(from + count)).unwrap();
        assert_eq!(number(&popped.unwrap().0), n);
    }
}

fn all(db: &Db) -> Vec<u64> {
    let forward: Vec<u64> = db.range(..).keys().map(|key| number(&key.unwrap())).collect();
    let mut backward: Vec<u64> =
        db.range(..).keys().rev().map(|key| number(&key.unwrap())).collect();
    backward.reverse();
    assert_eq!(forward, backward);
    let edges = [db.first().unwrap(), db.last().unwrap()];
    let edges = edges.map(|edge| edge.map(|(key, _)| number(&key)));
    assert_eq!(edges, [forward.first().copied(), forward.last().copied()]);
    assert_eq!(db.count(..).unwrap(), forward.len() as u64);
    forward
}

#[test]
fn pops_walk_over_what_was_popped_before_once_and_not_again_and_again() {
    let db = open();
    wear(&db, 0, 1000);
    let found = db.metrics().gaps_found;
    assert!((50..200).contains(&found), "{found} gaps for 1000 pops");
    let mut rounds = (2000..).step_by(100).take(10).map(|from| {
        (from..from + 100).for_each(|n| _ = db.put(key(n), "job").unwrap());
        let started = std::time::Instant::now();
        let pops = from..from + 100;
        pops.for_each(|n| assert_eq!(number(&db.pop_first(..).unwrap().unwrap().0), n));
        started.elapsed().as_secs()
    });
    // A busy machine may delay a round, but not each one.
    assert!(rounds.any(|seconds| seconds < 10));
    assert_eq!(db.metrics().gaps_cut, 0, "a queue puts nothing where it has popped");
    assert_eq!(all(&db), []);
}

#[test]
fn whoever_passes_dead_keys_finds_a_gap() {
    let passes: [fn(&Db); 5] = [
        |db| assert_eq!(db.count(..).unwrap(), 0),
        |db| assert!(db.first().unwrap().is_none()),
        |db| assert!(db.last().unwrap().is_none()),
        |db| assert!(db.iter().next_back().is_none()),
        |db| _ = db.cursor(..).unwrap().first().unwrap(),
    ];
    for (nth, pass) in passes.into_iter().enumerate() {
        let db = open();
        (0..200).for_each(|n| _ = db.put(key(n), "job").unwrap());
        (0..200).for_each(|n| _ = db.delete(key(n)).unwrap());
        pass(&db);
        assert_eq!(db.metrics().gaps_found, 1, "{nth}");
    }
}

#[test]
fn a_job_that_is_put_back_among_popped_ones_comes_first_again() {
    let db = open();
    wear(&db, 0, 500);
    (500..510).for_each(|n| _ = db.put(key(n), "job").unwrap());
    assert_eq!(all(&db), (500..510).collect::<Vec<_>>());
    for back in [250, 100, 0, 499, 101] {
        db.put(key(back), "again").unwrap();
        assert_eq!(all(&db)[..2], [back, 500]);
        let (popped, value) = db.pop_first(..).unwrap().unwrap();
        assert_eq!((number(&popped), &value[..]), (back, &b"again"[..]));
        assert_eq!(all(&db)[0], 500);
    }
    assert!(db.metrics().gaps_cut >= 5);
    // Every way to put a key.
    let mut batch = Batch::new();
    (10..20).for_each(|n| _ = batch.put(key(n), "batch"));
    db.write(batch).unwrap();
    db.transact(|tx| tx.put(key(30), "transaction").map(drop)).unwrap();
    assert!(db.put_if(key(40), None::<&[u8]>, "if").unwrap().is_some());
    db.fetch_update(key(50), |_| Some("update")).unwrap();
    let tx = db.begin();
    tx.put(key(60), "prepared").unwrap();
    let prepared = tx.prepare("put").unwrap();
    assert_eq!(all(&db)[..14], [10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 30, 40, 50, 500]);
    prepared.commit().unwrap();
    assert_eq!(all(&db)[9..15], [19, 30, 40, 50, 60, 500]);
}

#[test]
fn an_operand_for_a_popped_key_makes_a_value_that_scans_meet() {
    let counting = FamilyOptions::new().merge_operator("isobath.counter");
    let options = Options::in_memory().write_buffer(1 << 20).family(counting);
    let db = options.open("/db").unwrap();
    wear(&db, 0, 500);
    assert_eq!(all(&db), []);
    let one = 1u64.to_le_bytes();
    db.merge(key(100), one).unwrap();
    assert_eq!(all(&db), [100]);
    let mut batch = Batch::new();
    (200..220).for_each(|n| _ = batch.merge(key(n), one));
    (200..210).for_each(|n| _ = batch.merge(key(n), one));
    db.write(batch).unwrap();
    db.transact(|tx| tx.merge(key(300), one).map(drop)).unwrap();
    let tx = db.begin();
    tx.merge(key(310), one).unwrap();
    tx.prepare("merge").unwrap().commit().unwrap();
    let live: Vec<u64> = [100].into_iter().chain(200..220).chain([300, 310]).collect();
    assert_eq!(all(&db), live);
    db.flush().unwrap();
    assert_eq!(all(&db), live);
}

#[test]
fn a_transaction_puts_jobs_back_into_the_gaps_of_all_its_families() {
    let db = open();
    let families = ["a", "b", "c"].map(|name| db.family(name).unwrap());
    for family in &families {
        (0..200).for_each(|n| _ = family.put(key(n), "job").unwrap());
        (0..200).for_each(|n| _ = family.delete(key(n)).unwrap());
        assert_eq!(family.count(..).unwrap(), 0);
    }
    assert_eq!(db.metrics().gaps_found, 3);
    let tx = db.begin();
    tx.of(&families[0]).delete_range(key(0)..key(50)).unwrap();
    for (nth, family) in (0..).zip(&families) {
        tx.of(family).put(key(100 + nth), "again").unwrap();
        tx.of(family).delete(key(150)).unwrap();
        tx.of(family).put(key(160 + nth), "again").unwrap();
    }
    tx.commit().unwrap();
    assert_eq!(db.metrics().gaps_cut, 6);
    for (nth, family) in (0..).zip(&families) {
        let found: Vec<u64> = family.iter().keys().map(|key| number(&key.unwrap())).collect();
        assert_eq!(found, [100 + nth, 160 + nth]);
    }
}

#[test]
fn snapshots_and_open_iterators_see_what_was_there_before_it_was_popped() {
    let db = open();
    (0..300).for_each(|n| _ = db.put(key(n), "job").unwrap());
    let (snapshot, mut range) = (db.snapshot(), db.range(..).keys());
    assert_eq!(number(&range.next().unwrap().unwrap()), 0);
    for n in 0..200 {
        assert_eq!(number(&db.pop_first(..).unwrap().unwrap().0), n);
    }
    let later = db.snapshot();
    for n in 200..300 {
        assert_eq!(number(&db.pop_first(..).unwrap().unwrap().0), n);
    }
    db.put(key(150), "again").unwrap();
    for is_flushed in [false, true] {
        if is_flushed {
            db.flush().unwrap();
            db.compact().unwrap();
        }
        assert_eq!(all(&db), [150]);
        assert_eq!(later.count(..).unwrap(), 100);
        assert_eq!(number(&later.first().unwrap().unwrap().0), 200);
        assert_eq!(snapshot.count(..).unwrap(), 300);
        assert_eq!(number(&snapshot.range(..).next_back().unwrap().unwrap().0), 299);
    }
    assert_eq!(
        range.map(|key| number(&key.unwrap())).collect::<Vec<_>>(),
        (1..300).collect::<Vec<_>>()
    );
}

#[test]
fn a_transaction_sees_what_it_has_put_among_popped_keys_and_others_do_not() {
    let db = open();
    wear(&db, 0, 300);
    db.put(key(400), "live").unwrap();
    let tx = db.begin();
    for n in [200, 100, 50] {
        tx.put(key(n), "own").unwrap();
    }
    tx.delete(key(400)).unwrap();
    let own = || tx.range(..).keys().map(|key| number(&key.unwrap())).collect::<Vec<_>>();
    assert_eq!(own(), [50, 100, 200]);
    assert_eq!(number(&tx.pop_last(..).unwrap().unwrap().0), 200);
    assert_eq!(number(&tx.pop_first(..).unwrap().unwrap().0), 50);
    assert_eq!(own(), [100]);
    assert_eq!(all(&db), [400]);
    tx.commit().unwrap();
    assert_eq!(all(&db), [100]);
}

#[test]
fn a_queue_in_a_range_of_keys_is_apart_from_its_neighbours() {
    let db = open();
    let name = |queue: u8, n: u64| [&[queue][..], &key(n)].concat();
    for n in 0..2000 {
        for queue in [1, 2, 3] {
            db.put(name(queue, n), [queue]).unwrap();
            let (popped, value) = db.pop_first(Prefix([queue])).unwrap().unwrap();
            assert_eq!((&popped[..], &value[..]), (&name(queue, n)[..], &[queue][..]));
        }
    }
    db.put(name(2, 7), "again").unwrap();
    assert!(db.pop_first(Prefix([1])).unwrap().is_none());
    assert!(db.pop_last(Prefix([3])).unwrap().is_none());
    assert_eq!(db.first().unwrap().unwrap().0, name(2, 7));
    assert_eq!(db.last().unwrap().unwrap().0, name(2, 7));
    assert_eq!(db.pop_last(Prefix([2])).unwrap().unwrap().0, name(2, 7));
    assert!(db.count(..).unwrap() == 0);
}

/// Numbers that look drawn.
struct Draw(u64);

impl Draw {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) % limit
    }
}

fn small() -> Options {
    let mut options = Options::new().write_buffer(256 << 10);
    options.family = Some(FamilyOptions::new().block_size(512));
    options
}

fn check_kept(snapshot: &Snapshot, then: &BTreeMap<u64, u64>) -> Result<()> {
    let seen = snapshot.range(..).map(|item| item.map(|(key, _)| number(&key)));
    assert_eq!(seen.collect::<Result<Vec<_>>>()?, then.keys().copied().collect::<Vec<_>>());
    Ok(())
}

/// Pushes and pops at both ends, and what gets in their way, beside a map.
fn draw(seed: u64, steps: u64) -> Result<()> {
    let dir = tempfile::tempdir().unwrap();
    let mut db = small().open(dir.path())?;
    let (mut live, mut draw) = (BTreeMap::new(), Draw(seed));
    let (mut least, mut next) = (1u64 << 32, 1u64 << 32);
    let mut kept = None;
    for step in 0..steps {
        let many = draw.below(200);
        match draw.below(14) {
            0..3 => {
                for _ in 0..many {
                    db.put(key(next), step.to_be_bytes())?;
                    live.insert(next, step);
                    next += 1;
                }
            }
            3 => {
                for _ in 0..many {
                    least -= 1;
                    db.put(key(least), step.to_be_bytes())?;
                    live.insert(least, step);
                }
            }
            4..7 => {
                for _ in 0..many {
                    let popped = db.pop_first(..)?.map(|(key, _)| number(&key));
                    assert_eq!(popped, live.pop_first().map(|(key, _)| key), "seed {seed}");
                }
            }
            7 => {
                for _ in 0..many {
                    let popped = db.pop_last(..)?.map(|(key, _)| number(&key));
                    assert_eq!(popped, live.pop_last().map(|(key, _)| key), "seed {seed}");
                }
            }
            8 => {
                for _ in 0..many % 8 {
                    let n = least + draw.below(next - least + 1);
                    db.put(key(n), step.to_be_bytes())?;
                    live.insert(n, step);
                    (least, next) = (least.min(n), next.max(n + 1));
                }
            }
            9 => {
                let from = least + draw.below(next - least + 1);
                db.delete_range(key(from)..key(from + many))?;
                live.retain(|n, _| !(from..from + many).contains(n));
            }
            10 => db.flush()?,
            11 if many < 40 => db.compact()?,
            12 if many < 20 => {
                kept = None;
                db.close()?;
                db = small().open(dir.path())?;
            }
            13 => kept = Some((db.snapshot(), live.clone())),
            _ => {}
        }
        assert_eq!(all(&db), live.keys().copied().collect::<Vec<_>>(), "seed {seed}, step {step}");
        if let Some((snapshot, then)) = &kept {
            check_kept(snapshot, then)?;
        }
    }
    assert!(db.metrics().gaps_found + db.metrics().gaps_cut > 0 || steps < 50, "seed {seed}");
    db.close()
}

#[test]
fn whatever_comes_between_pushes_and_pops_scans_show_what_is_there() {
    let seeds = if std::env::var_os("ISOBATH_TEST_LONG").is_some() { 200 } else { 6 };
    (0..seeds).for_each(|seed| draw(seed, 80).unwrap());
}

/// Producers and consumers of one queue, which is nearly empty most of the time. The keys of a
/// producer ascend, but those of two come in no order: so keys are put beside those just popped.
fn share(producers: u64, consumers: u64, each: u64, flushes: bool) {
    let dir = tempfile::tempdir().unwrap();
    let db = small().open(dir.path()).unwrap();
    let (next, taken_count) = (AtomicU64::new(0), AtomicU64::new(0));
    let job = |n: u64, producer: u64| [n.to_be_bytes(), producer.to_be_bytes()].concat();
    let produce = |producer: u64| {
        for nth in 0..each {
            let n = next.fetch_add(1, Ordering::Relaxed);
            db.put(job(n, producer), nth.to_be_bytes()).unwrap();
            if flushes && nth % 500 == producer {
                db.flush().unwrap();
            }
            while n > taken_count.load(Ordering::Relaxed) + 200 {
                std::thread::yield_now();
            }
        }
    };
    let consume = || {
        let (mut taken, mut last) = (Vec::new(), BTreeMap::new());
        while taken_count.load(Ordering::Relaxed) < producers * each {
            let Some((key, value)) = db.pop_first(..).unwrap() else {
                std::thread::yield_now();
                continue;
            };
            let (producer, nth) = (number(&key[8..]), number(&value));
            // What a producer pushed earlier has the lesser key, so it was taken earlier.
            let before = last.insert(producer, nth);
            assert!(before.is_none_or(|before| before < nth), "{before:?} before {nth}");
            taken.push(key.to_vec());
            taken_count.fetch_add(1, Ordering::Relaxed);
        }
        taken
    };
    let taken: Vec<Vec<u8>> = std::thread::scope(|scope| {
        (0..producers).for_each(|producer| _ = scope.spawn(move || produce(producer)));
        let consumers: Vec<_> = (0..consumers).map(|_| scope.spawn(consume)).collect();
        consumers.into_iter().flat_map(|consumer| consumer.join().unwrap()).collect()
    });
    assert_eq!(taken.len() as u64, producers * each);
    let distinct: BTreeSet<_> = taken.iter().collect();
    assert_eq!(distinct.len(), taken.len(), "a job was taken twice, and another one lost");
    assert!(db.count(..).unwrap() == 0);
    let metrics = db.metrics();
    assert!(metrics.gaps_found > 0, "nothing was learnt");
    db.close().unwrap();
    let db = Options::new().open(dir.path()).unwrap();
    assert!(db.pop_first(..).unwrap().is_none() && db.count(..).unwrap() == 0);
}

#[test]
fn of_producers_and_consumers_none_takes_a_job_twice_and_none_loses_one() {
    let each = if std::env::var_os("ISOBATH_TEST_LONG").is_some() { 50_000 } else { 1500 };
    share(1, 1, each, false);
    share(3, 2, each, false);
    share(2, 3, each, true);
}
