//! How long deletes stay, in a whole database in memory whose clock a test moves.

use super::super::schedule::retry;
use super::*;
use crate::engine::Keyspace;
use crate::env::Env;
use crate::env::fixtures::{Wall, soon};
use crate::env::sync::atomic::{AtomicU64, Ordering};
use crate::options::{FamilyOptions, Options};
use crate::table::Codec;
use crate::vfs::MemoryFs;
use crate::{CompactionReason, Db, Event};
use std::sync::Mutex;
use std::time::Duration;

const MINUTE_MS: u64 = 60_000;
const BOUND_MS: u64 = 20 * MINUTE_MS;

struct Bench {
    fs: MemoryFs,
    clock: Arc<Wall>,
    db: Db,
    looks: OldDeletes,
    /// How many compactions had this reason.
    done: Arc<Mutex<usize>>,
}

impl Bench {
    fn new(bound_ms: Option<u64>) -> Bench {
        let clock = Arc::new(Wall(AtomicU64::new(1_700_000_000_000)));
        Bench::on(MemoryFs::new(), clock, bound_ms)
    }

    fn on(fs: MemoryFs, clock: Arc<Wall>, bound_ms: Option<u64>) -> Bench {
        let env = Env { fs: Arc::new(fs.clone()), clock: clock.clone(), ..Env::system() };
        let done = Arc::new(Mutex::new(0));
        let heard = done.clone();
        let hear = move |event: &Event| {
            let is_one = |reason: &CompactionReason| *reason == CompactionReason::OldDeletes;
            if matches!(event, Event::Compacted { reason, .. } if is_one(reason)) {
                *heard.lock().unwrap() += 1;
            }
        };
        let family = FamilyOptions::new().delete_within(bound_ms.map(Duration::from_millis));
        let family = family.codecs([Codec::None]);
        let options = Options::new().env(env).write_buffer(64 << 10).compaction_threads(1);
        let db = options.family(family).on_event(hear).open("/db").unwrap();
        Bench { fs, clock, db, looks: OldDeletes::default(), done }
    }

    /// The same, and rounds come when the test says so.
    fn by_hand(bound_ms: Option<u64>) -> Bench {
        Bench::new(bound_ms).without_rounds()
    }

    fn without_rounds(self) -> Bench {
        self.db.engine().maintenance.close();
        self
    }

    /// A hundred keys in the last level, and a delete of one of them in memory.
    fn with_a_delete() -> Bench {
        let bench = Bench::by_hand(Some(BOUND_MS));
        (0..100u8).for_each(|key| _ = bench.db.put([key], [7; 100]).unwrap());
        bench.db.compact().unwrap();
        bench.db.delete([5]).unwrap();
        bench
    }

    /// For how long the delete stays from now on, in minutes, while maintenance looks.
    fn minutes_left(&mut self) -> u64 {
        for minutes in 0..100 {
            self.look();
            if self.deletes() == 0 {
                assert_eq!(self.db.count(..).unwrap(), 99);
                return minutes;
            }
            self.go(MINUTE_MS);
        }
        panic!("it stays");
    }

    fn go(&self, ms: u64) {
        self.clock.0.fetch_add(ms, Ordering::Relaxed);
    }

    fn family(&self) -> &Arc<Keyspace> {
        &self.db.engine().default_family
    }

    fn settle(&self) {
        while self.family().compactions.state.lock().running > 0 {
            self.pause();
        }
    }

    fn pause(&self) {
        self.db.engine().options.env.threads.sleep(Duration::from_millis(1));
    }

    /// Maintenance looks until nothing is to be done.
    fn look(&mut self) {
        for _ in 0..100 {
            let before = *self.done.lock().unwrap();
            let mut is_late = false;
            for _ in 0..LOOK_ROUNDS {
                is_late |= self.looks.round(self.db.engine());
            }
            if is_late {
                self.db.flush().unwrap();
            }
            self.settle();
            if !is_late && *self.done.lock().unwrap() == before {
                return;
            }
        }
        panic!("there is no end to it");
    }

    fn oldest_ms(&self) -> u64 {
        self.db.metrics().families[0].total().oldest_delete_age_ms.unwrap_or(0)
    }

    fn deletes(&self) -> u64 {
        self.family().view().tree.iter().map(|(_, slice)| slice.meta.deletes).sum()
    }
}

/// No flush and no round of maintenance comes.
#[test]
fn a_change_of_options_begins_the_compactions_that_it_makes_due() {
    let bench = Bench::by_hand(None);
    (0..100u8).for_each(|key| _ = bench.db.put([key], [7; 100]).unwrap());
    bench.db.compact().unwrap();
    bench.db.delete([5]).unwrap();
    bench.db.flush().unwrap();
    // A flush may leave it to the compaction thread to look for jobs.
    bench.db.engine().compactors.wait_idle();
    bench.settle();
    bench.go(3 * BOUND_MS);
    assert_eq!((bench.deletes(), *bench.done.lock().unwrap()), (1, 0));
    let bound = Duration::from_millis(BOUND_MS);
    let options = FamilyOptions::new().codecs([Codec::None]).delete_within(bound);
    bench.db.default_family().set_options(options).unwrap();
    assert!(soon(|| *bench.done.lock().unwrap() > 0), "the delete stays");
}

/// The greatest age that a delete in a table has come to while keys were put and deleted all the
/// time, and how many compactions took old ones down.
fn greatest_age(bound_ms: Option<u64>) -> (u64, usize) {
    let mut bench = Bench::by_hand(bound_ms);
    let key = |number: u32| number.to_be_bytes();
    // Each key comes up once in 6000 steps.
    let mut step = 0;
    let mut next = || {
        step += 1;
        key(step * 2741 % 6000)
    };
    for number in 0..6000 {
        bench.db.put(key(number), [7; 100]).unwrap();
    }
    bench.db.compact().unwrap();
    let mut greatest = 0;
    for _ in 0..240 {
        for _ in 0..15 {
            bench.db.put(next(), [8; 100]).unwrap();
        }
        bench.db.delete(next()).unwrap();
        bench.go(MINUTE_MS / 2);
        bench.look();
        greatest = greatest.max(bench.oldest_ms());
    }
    let done = *bench.done.lock().unwrap();
    (greatest, done)
}

#[test]
fn no_delete_is_older_than_the_bound_while_much_is_written() {
    let (greatest, done) = greatest_age(Some(BOUND_MS));
    assert!(greatest < BOUND_MS, "{greatest} ms");
    assert!(done > 3);
    let (greatest, done) = greatest_age(None);
    assert!(greatest > BOUND_MS && done == 0, "without a bound {greatest} ms and {done} jobs");
}

#[test]
fn what_a_reader_needs_goes_once_it_has_gone() {
    let mut bench = Bench::by_hand(Some(BOUND_MS));
    (0..100u8).for_each(|key| _ = bench.db.put([key], [7; 100]).unwrap());
    bench.db.compact().unwrap();
    let snapshot = bench.db.snapshot();
    bench.db.delete([5]).unwrap();
    for _ in 0..60 {
        bench.go(MINUTE_MS);
        bench.look();
    }
    assert_eq!((bench.deletes(), bench.family().view().tree.iter().count()), (1, 1));
    assert!(snapshot.get([5]).unwrap().is_some());
    drop(snapshot);
    bench.look();
    assert_eq!((bench.deletes(), bench.oldest_ms()), (0, 0));
    assert_eq!(bench.db.count(..).unwrap(), 99);
}

#[test]
fn a_memtable_is_flushed_once_its_share_has_passed() {
    let mut bench = Bench::by_hand(Some(4 * MINUTE_MS));
    let is_late = |bench: &mut Bench| {
        let late = [(); LOOK_ROUNDS as usize].map(|()| bench.looks.round(bench.db.engine()));
        late.contains(&true)
    };
    bench.go(9 * MINUTE_MS);
    assert!(!is_late(&mut bench), "nothing is in it");
    bench.db.delete("k").unwrap();
    bench.go(MINUTE_MS - 1);
    assert!(!is_late(&mut bench));
    bench.go(1);
    assert!(is_late(&mut bench));
    bench.db.flush().unwrap();
    let other = bench.db.family("other").unwrap();
    other.set_options(FamilyOptions::new()).unwrap();
    other.delete("k").unwrap();
    assert!(!is_late(&mut bench));
    bench.go(9 * MINUTE_MS);
    assert!(!is_late(&mut bench), "this one has no bound");
}

#[test]
fn a_delete_keeps_its_age_over_a_reopening() {
    let bench = Bench::with_a_delete();
    bench.db.flush().unwrap();
    // Its share of level 0 is five minutes.
    bench.go(3 * MINUTE_MS);
    let Bench { fs, clock, db, .. } = bench;
    db.close().unwrap();
    let mut bench = Bench::on(fs, clock, Some(BOUND_MS)).without_rounds();
    assert_eq!((bench.deletes(), bench.oldest_ms()), (1, 3 * MINUTE_MS));
    assert_eq!(bench.minutes_left(), 2);
    assert!(*bench.done.lock().unwrap() > 0);
}

#[test]
fn a_delete_that_a_crash_leaves_to_the_log_or_in_a_table_goes_within_the_bound_after_it() {
    for is_flushed in [false, true] {
        let bench = Bench::with_a_delete();
        match is_flushed {
            true => bench.db.flush().unwrap(),
            false => bench.db.sync().unwrap(),
        }
        bench.go(3 * MINUTE_MS);
        let Bench { fs, clock, db, .. } = bench;
        let left = fs.crashed(|_| 0);
        drop(db);
        let mut bench = Bench::on(left, clock, Some(BOUND_MS)).without_rounds();
        assert_eq!(bench.deletes(), 1);
        // What is in the log is as old as the opening.
        let (age, left) = if is_flushed { (3, 2) } else { (0, 5) };
        assert_eq!((bench.oldest_ms(), bench.minutes_left()), (age * MINUTE_MS, left));
        assert!(*bench.done.lock().unwrap() > 0);
    }
}

#[test]
fn a_delete_that_a_full_disk_keeps_goes_once_there_is_room() {
    let mut bench = Bench::with_a_delete();
    bench.db.flush().unwrap();
    bench.fs.set_capacity(0);
    for _ in 0..40 {
        bench.go(MINUTE_MS);
        bench.look();
        retry(bench.db.engine());
        bench.settle();
    }
    assert_eq!((bench.deletes(), bench.oldest_ms()), (1, 40 * MINUTE_MS));
    assert_eq!(bench.db.count(..).unwrap(), 99);
    bench.fs.set_capacity(u64::MAX);
    for _ in 0..64 {
        retry(bench.db.engine());
        bench.settle();
    }
    assert_eq!(bench.minutes_left(), 0);
    assert!(*bench.done.lock().unwrap() > 0);
}

#[test]
fn a_delete_that_a_compaction_makes_of_an_ended_value_is_as_old_as_the_compaction() {
    let mut bench = Bench::by_hand(Some(BOUND_MS));
    // So much beside runs so short that level 0 goes down to a level above the last one.
    let rows = 1 << 14;
    (0..rows).for_each(|row: u32| _ = bench.db.put(row.to_be_bytes(), [7; 200]).unwrap());
    bench.db.compact().unwrap();
    bench.family().compactions.state.lock().run_bytes = 32 << 10;
    // The first run is moved to that level, as nothing is there.
    let count = 1 + bench.db.engine().options.sizes.l0_trigger_runs as u32;
    for run in 1..=count {
        if run == count {
            bench.go(MINUTE_MS);
            // The read notes the time.
            assert_eq!(bench.db.get(1_u32.to_be_bytes()).unwrap(), None);
        }
        for row in (run..rows).step_by(64) {
            let (key, soon) = (row.to_be_bytes(), Duration::from_secs(9));
            match run < count {
                true => bench.db.put_ttl(key, [8; 100], soon).unwrap(),
                false => bench.db.put(key, [8; 100]).unwrap(),
            };
        }
        bench.db.flush().unwrap();
    }
    while !bench.family().view().tree.runs.is_empty() {
        bench.pause();
    }
    let made = bench.deletes();
    assert!(made > 0);
    assert_eq!(bench.db.metrics().families[0].total().oldest_delete_age_ms, Some(0));
    bench.look();
    assert_eq!((*bench.done.lock().unwrap(), bench.deletes()), (0, made));
    bench.go(BOUND_MS);
    bench.look();
    assert_eq!(bench.deletes(), 0);
}

#[test]
fn maintenance_takes_deletes_down_of_a_family_that_is_written_slowly() {
    let bench = Bench::new(Some(BOUND_MS));
    (0..100u8).for_each(|key| _ = bench.db.put([key], [7; 100]).unwrap());
    bench.db.compact().unwrap();
    bench.db.delete([5]).unwrap();
    for _ in 0..60_000 {
        // It does not rest.
        bench.db.put([6], "v").unwrap();
        bench.go(1000);
        bench.db.engine().maintenance.kick();
        bench.pause();
        if *bench.done.lock().unwrap() > 0 && bench.deletes() == 0 {
            return;
        }
    }
    panic!("{} deletes stay", bench.deletes());
}
