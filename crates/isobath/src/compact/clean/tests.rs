//! Table files that quiet families keep, in a whole database in memory: they go, and nothing that
//! is in them does.

use super::*;
use crate::env::Env;
use crate::options::{FamilyOptions, Options};
use crate::vfs::{FileSystem, MemoryFs};
use crate::{Codec, CompactionReason, Db, Event, Family};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

const BUFFER: u64 = 64 << 10;

/// What a program expects of a family.
type Expected = BTreeMap<String, Vec<u8>>;

#[derive(Default)]
struct Bench {
    fs: MemoryFs,
    /// The slices that cleaning wrote anew, by family and level.
    cleaned: Arc<Mutex<Vec<(String, usize)>>>,
}

impl Bench {
    fn open(&self, write_buffer: u64) -> Db {
        let env = Env { fs: Arc::new(self.fs.clone()), ..Env::system() };
        let cleaned = self.cleaned.clone();
        let hear = move |event: &Event| {
            if let Event::Compacted { family, reason, into_level, .. } = event
                && *reason == CompactionReason::DeadSpace
            {
                cleaned.lock().unwrap().push((family.clone(), *into_level));
            }
        };
        let options = Options::new().env(env).write_buffer(write_buffer).compaction_threads(1);
        let db = options.on_event(hear).open("/db").unwrap();
        // Rounds come when the test says so.
        db.engine().maintenance.close();
        db
    }

    /// The lengths of all table files together.
    fn table_bytes(&self) -> u64 {
        let files = self.fs.list(Path::new("/db/table")).unwrap();
        files.iter().map(|file| file.len).sum()
    }

    fn jobs(&self) -> usize {
        self.cleaned.lock().unwrap().len()
    }
}

/// Bytes that no codec makes shorter.
fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut byte = || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random >> 32) as u8
    };
    (0..len).map(|_| byte()).collect()
}

fn rest(db: &Db) {
    let engine = db.engine();
    // A flush leaves it to a compaction thread to look for some jobs.
    engine.compactors.wait_idle();
    let is_at_rest = || {
        let families = engine.families.all();
        families.iter().all(|family| family.compactions.state.lock().running == 0)
    };
    for _ in 0..120_000 {
        if is_at_rest() {
            return engine.remove_obsolete_files();
        }
        engine.options.env.threads.sleep(Duration::from_millis(1));
    }
    panic!("compactions do not end");
}

/// So many rounds of maintenance, as far as files are cleaned.
fn rounds(db: &Db, count: usize) {
    let mut cleaner = Cleaner::default();
    for _ in 0..count {
        cleaner.round(db.engine());
        rest(db);
    }
}

/// Overwrites the values of a family that is always written, and flushes what is in memory.
fn overwrite(db: &Db, hot: &Family, round: u64, len: u64) {
    for key in 0..len / 1000 {
        hot.put(format!("{key:06}"), noise(round << 20 | key, 1000)).unwrap();
    }
    db.flush().unwrap();
    rest(db);
}

fn family(db: &Db, nth: u64) -> Family {
    db.family(format!("quiet {nth:05}")).unwrap()
}

fn check(db: &Db, nth: u64, expected: &Expected) {
    let family = family(db, nth);
    let all = family.range(..).map(|entry| entry.unwrap());
    let all: Expected = all
        .map(|(key, value)| (String::from_utf8(key.to_vec()).unwrap(), value.to_vec()))
        .collect();
    assert_eq!(all, *expected, "family {nth}");
}

/// Files are as long as this at most.
fn bound(db: &Db, write_buffer: u64) -> u64 {
    3 * db.metrics().table_bytes() + write_buffer
}

/// Each family is written with one flush, by puts and deletes of every kind.
fn write_once(family: &Family, nth: u64) -> Expected {
    let (key, value) = (format!("key {nth}"), noise(nth, 40));
    if nth % 4 == 2 {
        family.delete_range(..).unwrap();
        return Expected::new();
    }
    match nth % 4 {
        0 => family.put_ttl(&key, &value, Duration::from_secs(1 << 20)).unwrap(),
        _ => family.put(&key, &value).unwrap(),
    };
    if nth % 4 == 3 {
        family.delete_range("l"..).unwrap();
    }
    Expected::from([(key, value)])
}

#[test]
fn families_that_are_written_once_keep_few_files() {
    let bench = Bench::default();
    let db = bench.open(BUFFER);
    let hot = db.family("hot").unwrap();
    let mut expected = Vec::new();
    for round in 0..60 {
        expected.push(write_once(&family(&db, round), round));
        overwrite(&db, &hot, round, BUFFER / 2);
    }
    let (before, bound_before) = (bench.table_bytes(), bound(&db, BUFFER));
    assert!(before > 3 * bound_before, "{before} of {bound_before} bytes");
    let (of_tables, dead) = (db.metrics().table_bytes(), db.metrics().table_dead_bytes);
    assert!(dead > before / 2, "{before}, {of_tables}, {dead}");
    // A thread that has just ended its job may hold a file for a moment that is in no tree.
    let is_told = || {
        db.engine().remove_obsolete_files();
        bench.table_bytes() - of_tables - dead <= 128 * 64
    };
    let began = std::time::Instant::now();
    while !is_told() {
        assert!(began.elapsed() < Duration::from_secs(120), "{before}, {of_tables}, {dead}");
        std::thread::sleep(Duration::from_millis(1));
    }
    let before = bench.table_bytes();
    rounds(&db, 30);
    let after = bench.table_bytes();
    assert!(after <= bound(&db, BUFFER), "{after} of {}", bound(&db, BUFFER));
    let written = 4096 * bench.jobs() as u64;
    assert!(3 * written <= before - after, "{written} bytes for {}", before - after);
    assert!(bench.jobs() >= 40 && bench.cleaned.lock().unwrap().iter().all(|(_, to)| *to > 0));
    let jobs = bench.jobs();
    rounds(&db, 30);
    assert_eq!(bench.jobs(), jobs, "what is clean stays so");
    let db = {
        db.close().unwrap();
        bench.open(BUFFER)
    };
    (0..).zip(&expected).for_each(|(nth, expected)| check(&db, nth, expected));
    assert_eq!(hot_len(&db), BUFFER / 2 / 1000);
}

fn hot_len(db: &Db) -> u64 {
    db.family("hot").unwrap().count(..).unwrap()
}

#[test]
fn an_open_finds_dead_space_of_before_and_a_wait_for_compactions_cleans_it() {
    let bench = Bench::default();
    let db = bench.open(BUFFER);
    let hot = db.family("hot").unwrap();
    for round in 0..30 {
        family(&db, round % 10).put(format!("{round:03}"), noise(round, 40)).unwrap();
        overwrite(&db, &hot, round, BUFFER / 2);
    }
    db.close().unwrap();
    let db = bench.open(BUFFER);
    let before = bench.table_bytes();
    assert!(db.wait_for_compactions(None).unwrap());
    rest(&db);
    let after = bench.table_bytes();
    assert!(after <= bound(&db, BUFFER) && after < before, "{before}, {after}");
    for nth in 0..10 {
        let of = |round: u64| (format!("{round:03}"), noise(round, 40));
        check(&db, nth, &(0..3).map(|at| of(10 * at + nth)).collect());
    }
}

#[test]
fn little_dead_space_costs_nothing() {
    let bench = Bench::default();
    let db = bench.open(BUFFER);
    let hot = db.family("hot").unwrap();
    family(&db, 0).put("key", "value").unwrap();
    overwrite(&db, &hot, 0, BUFFER / 2);
    for round in 1..20 {
        overwrite(&db, &hot, round, BUFFER / 2);
    }
    assert!(db.metrics().table_dead_bytes > BUFFER / 4);
    rounds(&db, 70);
    assert_eq!(bench.jobs(), 0);
}

/// The rest of a file that is read, cloned or cannot be left.
#[test]
fn readers_and_clones_keep_what_they_need() {
    let bench = Bench::default();
    let db = bench.open(BUFFER);
    let hot = db.family("hot").unwrap();
    let mut expected = Vec::new();
    for round in 0..20 {
        family(&db, round).put("key", noise(round, 40)).unwrap();
        expected.push(Expected::from([("key".to_owned(), noise(round, 40))]));
        overwrite(&db, &hot, round, BUFFER / 2);
    }
    let clones: Vec<Family> = (0..20)
        .map(|nth| db.clone_family(&family(&db, nth), &format!("clone {nth}")).unwrap())
        .collect();
    let snapshot = db.snapshot();
    let quiet = family(&db, 0);
    let mut range = quiet.range(..);
    family(&db, 1).put("key", "new").unwrap();
    rounds(&db, 30);
    assert!(bench.jobs() >= 20, "{}", bench.jobs());
    let dead = db.metrics().table_dead_bytes;
    assert!(dead < 2 * BUFFER, "{dead}");
    assert_eq!(range.next().unwrap().unwrap().1.to_vec(), noise(0, 40));
    drop((range, quiet));
    let old = snapshot.of(&family(&db, 1)).get("key");
    assert_eq!(old.unwrap().unwrap().to_vec(), noise(1, 40));
    for (nth, clone) in clones.iter().enumerate() {
        assert_eq!(clone.get("key").unwrap().unwrap(), noise(nth as u64, 40));
    }
    drop((snapshot, clones));
    rest(&db);
    let after = bench.table_bytes();
    assert!(after <= bound(&db, BUFFER) + 2 * BUFFER, "{after} of {}", bound(&db, BUFFER));
    expected[1] = Expected::from([("key".to_owned(), b"new".to_vec())]);
    (0..).zip(&expected).for_each(|(nth, expected)| check(&db, nth, expected));
}

#[test]
fn a_file_of_very_many_families_is_cleaned_a_few_slices_a_round() {
    let bench = Bench::default();
    let db = bench.open(1 << 20);
    let hot = db.family("hot").unwrap();
    for round in 0..3 {
        for nth in 50 * round..50 * round + 50 {
            family(&db, nth).put("key", noise(nth, 40)).unwrap();
        }
        overwrite(&db, &hot, round, 800_000);
    }
    hot.compact(..).unwrap();
    rest(&db);
    // Two of three such files are more than there may be.
    let mut cleaner = Cleaner::default();
    let mut jobs = 0;
    for _ in 0..30 {
        cleaner.round(db.engine());
        rest(&db);
        assert!(bench.jobs() - jobs <= SLICES_MAX);
        jobs = bench.jobs();
    }
    assert_eq!(jobs, 100);
    let (dead, live) = (db.metrics().table_dead_bytes, db.metrics().table_bytes());
    assert!(dead <= (1 << 20) + live / 4, "{dead} of {live}");
    let one = |nth| Expected::from([("key".to_owned(), noise(nth, 40))]);
    (0..150).for_each(|nth| check(&db, nth, &one(nth)));
}

/// A hot family beside quiet ones, of which the fourth has a slice that cannot be read, and the
/// file and family of that slice.
fn with_damage(bench: &Bench) -> (Db, u64, impl Fn(u64) -> Arc<Keyspace>) {
    let db = bench.open(BUFFER);
    let hot = db.family("hot").unwrap();
    for round in 0..12 {
        family(&db, round).put("key", noise(round, 40)).unwrap();
        family(&db, 100 + round).put("key", noise(round, 40)).unwrap();
        overwrite(&db, &hot, round, BUFFER / 2);
    }
    let engine = db.engine().clone();
    let of = move |nth: u64| {
        let name = format!("quiet {nth:05}");
        let families = engine.families.all();
        families.into_iter().find(|family| *family.name() == *name).unwrap()
    };
    let damaged = of(3).view().tree.runs[0].meta.clone();
    let path = db.engine().tables.files.path(damaged.file);
    let at = damaged.root.offset - (damaged.disk_bytes - u64::from(damaged.root.len));
    bench.fs.corrupt(&path, at + 2, 1).unwrap();
    (db, damaged.file, of)
}

#[test]
fn a_file_with_a_slice_that_cannot_be_read_is_left_alone() {
    let bench = Bench::default();
    let (db, damaged, of) = with_damage(&bench);
    rounds(&db, 40);
    let file_of = |nth| of(nth).view().tree.iter().next().unwrap().1.meta.file;
    assert_eq!(file_of(3), damaged);
    let others = (0..12).filter(|nth| *nth != 3).map(file_of);
    assert!(others.filter(|file| *file < damaged).count() < 3, "the others have left");
    let failed = of(3).compactions.state.lock().busy.is_damaged(damaged);
    assert!(failed, "the job that met it has told");
    let jobs = bench.jobs();
    rounds(&db, 40);
    assert_eq!(bench.jobs(), jobs);
    assert!(bench.table_bytes() <= bound(&db, BUFFER) + BUFFER);
    let other = family(&db, 103).get("key").unwrap().unwrap();
    assert_eq!(other, noise(3, 40));
}

#[test]
fn who_waits_for_compactions_hears_of_a_slice_that_cleaning_could_not_read() {
    let bench = Bench::default();
    let (db, damaged, of) = with_damage(&bench);
    let told = db.wait_for_compactions(None).unwrap_err();
    assert!(told.is_corruption(), "{told}");
    assert_eq!(told.path(), Some(&*db.engine().tables.files.path(damaged)));
    assert!(of(3).compactions.state.lock().busy.is_damaged(damaged));
    db.wait_for_compactions(None).unwrap();
    assert!(bench.jobs() > 0 && bench.table_bytes() <= bound(&db, BUFFER) + BUFFER);
}

/// A run of ascending keys has been moved down as it was.
#[test]
fn slices_of_deeper_levels_leave_too() {
    let bench = Bench::default();
    let buffer = 1 << 20;
    let db = bench.open(buffer);
    let hot = db.family("hot").unwrap();
    for round in 0..10 {
        let plain = FamilyOptions::new().codec(Codec::None);
        let quiet = db.family((format!("quiet {round:05}"), plain)).unwrap();
        for key in 0..140 {
            quiet.put(format!("{key:03}"), noise(key, 1000)).unwrap();
        }
        overwrite(&db, &hot, round, 720_000);
    }
    let depth = db.metrics().families.iter().filter(|family| family.levels.len() > 1).count();
    assert!(depth >= 10, "{depth}");
    rounds(&db, 40);
    let after = bench.table_bytes();
    assert!(after <= bound(&db, buffer), "{after} of {}", bound(&db, buffer));
    assert!(bench.cleaned.lock().unwrap().iter().all(|(_, level)| *level == 6));
    assert!(bench.jobs() > 0);
    for round in 0..10 {
        assert_eq!(family(&db, round).count(..).unwrap(), 140);
    }
}
