//! A snapshot shows every family as it was, even one that was dropped later. What the snapshot
//! needs of that family is freed with the last snapshot, and nothing stays behind.

use isobath::env::Env;
use isobath::vfs::{FileSystem, MemoryFs};
use isobath::{Db, Error, ErrorKind, Family, FamilyOptions, Options, Snapshot};
use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

fn over(fs: &MemoryFs) -> Options {
    let env = Env { fs: Arc::new(fs.clone()), ..Env::system() };
    Options::new().env(env).write_buffer(64 << 10).compaction_threads(1)
}

fn tables(fs: &MemoryFs) -> Vec<String> {
    let mut names: Vec<String> =
        fs.list(Path::new("db/table")).unwrap().into_iter().map(|entry| entry.name).collect();
    names.sort();
    names
}

/// Waits up to five minutes: the maintenance removes files once a second, and the machine may be
/// busy.
#[track_caller]
fn comes_true(what: &str, mut is_true: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_true() {
        assert!(began.elapsed() < Duration::from_secs(300), "{what} takes too long");
        std::thread::sleep(Duration::from_millis(20));
    }
}

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// Writes keys to several tables and levels, to sealed memtables and to the open one, and deletes
/// some of them again.
fn fill(db: &Db, family: &Family, round: u32) -> Map {
    let mut map = Map::new();
    for part in 0..4u32 {
        for i in 0..300u32 {
            let key = (i * 7 % 300).to_be_bytes();
            if (i + part) % 5 == 0 {
                family.delete(key).unwrap();
                map.remove(&key[..]);
            } else {
                let value = format!("{round} {part} {i} {:100}", "");
                family.put(key, &value).unwrap();
                map.insert(key.to_vec(), value.into_bytes());
            }
        }
        match part {
            0 => family.compact(..).unwrap(),
            1 | 2 => db.flush().unwrap(),
            _ => {}
        }
    }
    map
}

/// Reads a family in every way.
#[track_caller]
fn check(snapshot: &Snapshot, family: &Family, expected: &Map) {
    let own = |item: isobath::Result<(isobath::Value, isobath::Value)>| {
        let (key, value) = item.unwrap();
        (key.to_vec(), value.to_vec())
    };
    let found: Map = snapshot.of(family).range(..).map(own).collect();
    assert!(found == *expected, "{} keys, expected {}", found.len(), expected.len());
    let backwards = snapshot.of(family).range(..).rev().map(own);
    assert!(backwards.eq(expected.iter().rev().map(|(k, v)| (k.clone(), v.clone()))));
    for i in 0..300u32 {
        let found = snapshot.of(family).get(i.to_be_bytes()).unwrap().map(|value| value.to_vec());
        assert_eq!(found.as_ref(), expected.get(&i.to_be_bytes()[..]));
    }
    let mut cursor = snapshot.of(family).cursor(..).unwrap();
    let last = cursor.last().unwrap().map(|entry| entry.key());
    assert_eq!(last, expected.keys().next_back().map(|key| &key[..]));
}

#[track_caller]
fn is_unknown<T>(result: isobath::Result<T>) {
    assert!(matches!(result.as_ref().map_err(Error::name), Err("UNKNOWN_FAMILY")));
}

#[test]
fn a_snapshot_from_before_the_drop_sees_the_family_and_one_from_after_does_not() {
    let db = over(&MemoryFs::new()).open("db").unwrap();
    let family = db.family("family").unwrap();
    let early = fill(&db, &family, 1);
    let before = db.snapshot();
    let late = fill(&db, &family, 2);
    let just_before = db.snapshot();
    db.drop_family(&family).unwrap();
    let after = db.snapshot();
    for _ in 0..2 {
        check(&before, &family, &early);
        check(&just_before, &family, &late);
        is_unknown(after.of(&family).get("key"));
        is_unknown(after.of(&family).cursor(..));
        is_unknown(after.of(&family).range(..).next().unwrap());
        is_unknown(family.get("key"));
        is_unknown(family.put("key", "value"));
        // Flushes and compactions of other families, over the epochs in which the family was
        // written.
        fill(&db, &db.default_family(), 3);
        db.wait_for_compactions(None).unwrap();
    }
    drop(before);
    check(&just_before, &family, &late);
    drop(just_before);
    is_unknown(after.of(&family).get("key"));
    db.close().unwrap();
}

#[test]
fn a_family_created_again_under_the_name_is_another_one() {
    let db = over(&MemoryFs::new()).open("db").unwrap();
    let first = db.family("name").unwrap();
    let of_first = fill(&db, &first, 1);
    let early = db.snapshot();
    db.drop_family(&first).unwrap();
    let second = db.family("name").unwrap();
    let of_second = fill(&db, &second, 2);
    let late = db.snapshot();
    for _ in 0..2 {
        check(&early, &first, &of_first);
        check(&early, &second, &Map::new());
        check(&late, &second, &of_second);
        is_unknown(late.of(&first).get("key"));
        db.flush().unwrap();
    }
    db.drop_family(&second).unwrap();
    check(&early, &first, &of_first);
    check(&late, &second, &of_second);
    drop(early);
    check(&late, &second, &of_second);
}

#[test]
fn a_renamed_and_dropped_family_stays_in_the_snapshot() {
    let db = over(&MemoryFs::new()).open("db").unwrap();
    let family = db.family("old").unwrap();
    let filled = fill(&db, &family, 1);
    let snapshot = db.snapshot();
    db.rename_family(&family, "new").unwrap();
    check(&snapshot, &family, &filled);
    let other = db.family("old").unwrap();
    other.put("other", "value").unwrap();
    db.drop_family(&family).unwrap();
    check(&snapshot, &family, &filled);
    check(&snapshot, &other, &Map::new());
}

#[test]
fn the_files_of_a_dropped_family_go_with_the_last_snapshot_that_sees_it() {
    let fs = MemoryFs::new();
    let db = over(&fs).open("db").unwrap();
    db.put("default", "value").unwrap();
    db.flush().unwrap();
    comes_true("the first flush", || tables(&fs).len() == 1);
    let kept = tables(&fs);
    let family = db.family("family").unwrap();
    let filled = fill(&db, &family, 1);
    let (first, second) = (db.snapshot(), db.snapshot());
    db.wait_for_compactions(None).unwrap();
    let later = fill(&db, &family, 2);
    let third = db.snapshot();
    db.drop_family(&family).unwrap();
    drop((first, third));
    std::thread::sleep(Duration::from_millis(1500));
    check(&second, &family, &filled);
    assert_ne!(tables(&fs), kept);
    let mut range = second.of(&family).range(..);
    assert!(range.next().is_some());
    drop(second);
    assert_eq!(range.count(), filled.len() - 1);
    comes_true("the removal", || tables(&fs) == kept);
    assert!(!later.is_empty());
    // The handle alone does not keep the family readable.
    is_unknown(family.get("key"));
}

/// Values in blob files, streams in tables and in the log, and a large commit.
#[test]
fn what_lies_apart_of_a_dropped_family_stays_for_its_snapshot() {
    let fs = MemoryFs::new();
    let db = over(&fs).open("db").unwrap();
    let family = db.family(("apart", FamilyOptions::new().separate_from(Some(500)))).unwrap();
    let value = |number: u8| vec![number; 3000];
    let stream = |number: u8| vec![number; 200_000];
    for number in 0..20 {
        family.put([number], value(number)).unwrap();
    }
    family.put_reader("flushed", &stream(100)[..]).unwrap();
    db.flush().unwrap();
    let large = db.begin();
    for number in 20..100 {
        large.of(&family).put([number], value(number)).unwrap();
    }
    large.commit().unwrap();
    family.put_reader("in the log", &stream(101)[..]).unwrap();
    let snapshot = db.snapshot();
    db.drop_family(&family).unwrap();
    for _ in 0..3 {
        db.put("other", value(0)).unwrap();
        db.flush().unwrap();
        db.compact().unwrap();
    }
    let of = snapshot.of(&family);
    for number in 0..100 {
        assert_eq!(of.get([number]).unwrap().as_deref(), Some(&value(number)[..]), "{number}");
    }
    for (key, number) in [("flushed", 100), ("in the log", 101)] {
        let mut read = Vec::new();
        of.get_reader(key).unwrap().unwrap().read_to_end(&mut read).unwrap();
        assert!(read == stream(number), "{key}");
    }
    assert_eq!(of.range(..).count(), 102);
    drop(snapshot);
    let is_left = |name: &str| fs.list(Path::new(name)).is_ok_and(|there| there.len() > 1);
    comes_true("removing what lies apart", || !is_left("db/spill") && !is_left("db/table"));
}

#[test]
fn a_snapshot_from_before_the_creation_holds_nothing_back() {
    let fs = MemoryFs::new();
    let db = over(&fs).open("db").unwrap();
    let old = db.snapshot();
    for round in 0..3 {
        let family = db.family("temporary").unwrap();
        fill(&db, &family, round);
        db.drop_family(&family).unwrap();
        check(&old, &family, &Map::new());
    }
    comes_true("the removal", || tables(&fs).is_empty());
}

#[test]
fn an_iterator_outlives_the_drop_and_holds_the_files_while_it_lives() {
    let fs = MemoryFs::new();
    let db = over(&fs).open("db").unwrap();
    let family = db.family("family").unwrap();
    let filled = fill(&db, &family, 1);
    let mut range = family.range(..);
    assert!(range.next_back().is_some());
    let mut cursor = family.cursor(..).unwrap();
    db.drop_family(&family).unwrap();
    db.flush().unwrap();
    std::thread::sleep(Duration::from_millis(1500));
    assert_eq!(range.map(Result::unwrap).count(), filled.len() - 1);
    let first = cursor.first().unwrap().map(|entry| entry.key());
    assert_eq!(first, filled.keys().next().map(|key| &key[..]));
    drop(cursor);
    comes_true("the removal", || tables(&fs).is_empty());
}

/// Checks every step: between the drop and the snapshot's end, after it, and after a close while
/// the snapshot still lives.
#[test]
fn a_crash_while_a_snapshot_holds_a_dropped_family_leaves_no_file_for_good() {
    let fs = MemoryFs::new();
    let db = over(&fs).open("db").unwrap();
    let family = db.family("family").unwrap();
    fill(&db, &family, 1);
    let snapshot = db.snapshot();
    db.drop_family(&family).unwrap();
    let mut left = vec![fs.killed(), fs.crashed(|_| 0)];
    db.put("key", "value").unwrap();
    db.flush().unwrap();
    left.extend([fs.killed(), fs.crashed(|_| 0)]);
    db.close().unwrap();
    left.extend([fs.killed(), fs.crashed(|_| 0)]);
    assert_eq!(snapshot.of(&family).get("key").unwrap_err().name(), "CLOSED");
    for fs in left {
        let db = over(&fs).open("db").unwrap();
        assert_eq!(db.list_families(), ["default"]);
        let key = db.get("key").unwrap();
        let named = db.metrics().families.iter().map(|of| of.levels.len()).sum::<usize>();
        db.wait_for_compactions(None).unwrap();
        comes_true("the removal", || tables(&fs).len() <= usize::from(key.is_some()));
        assert!(named <= 2, "{named}");
        db.close().unwrap();
        let db = over(&fs).open("db").unwrap();
        assert_eq!(db.get("key").unwrap(), key);
        assert!(tables(&fs).len() <= 1);
    }
}

/// Each snapshot is of a known moment, and must show the content of that moment.
#[test]
fn snapshots_taken_while_families_come_and_go_never_change() {
    let db = over(&MemoryFs::new()).open("db").unwrap();
    let stop = std::sync::atomic::AtomicBool::new(false);
    let (send, receive) = std::sync::mpsc::sync_channel::<Family>(1);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                db.put("filler", [0; 3000]).unwrap();
                db.flush().unwrap();
            }
        });
        let reader = scope.spawn(|| {
            let (mut seen, mut gone) = (0, 0);
            for family in receive {
                let snapshot = db.snapshot();
                let read = || match snapshot.of(&family).get("key") {
                    Ok(value) => {
                        assert_eq!(value.unwrap(), b"value", "an existing family has its key");
                        true
                    }
                    Err(error) if matches!(error.kind(), ErrorKind::UnknownFamily { .. }) => false,
                    Err(error) => panic!("{error}"),
                };
                let first = read();
                for _ in 0..50 {
                    assert_eq!(read(), first, "a snapshot changed its answer");
                }
                match first {
                    true => seen += 1,
                    false => gone += 1,
                }
            }
            (seen, gone)
        });
        for round in 0..150 {
            let family = db.family("passing").unwrap();
            family.put("key", "value").unwrap();
            send.send(family.clone()).unwrap();
            if round % 2 == 0 {
                db.flush().unwrap();
            }
            db.drop_family(&family).unwrap();
        }
        drop(send);
        println!("seen and gone: {:?}", reader.join().unwrap());
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

#[test]
fn a_drop_under_a_compaction_and_a_flush_ends_them_and_leaves_the_snapshot_whole() {
    for round in 0..6 {
        let fs = MemoryFs::new();
        let db = over(&fs).open("db").unwrap();
        let family = db.family("family").unwrap();
        let filled = fill(&db, &family, round);
        let snapshot = db.snapshot();
        std::thread::scope(|scope| {
            let compactor = scope.spawn(|| {
                loop {
                    if let Err(error) = family.compact(..) {
                        return error;
                    }
                }
            });
            let writer = scope.spawn(|| {
                for i in 0u32.. {
                    if let Err(error) = family.put((i % 300).to_be_bytes(), [1; 900]) {
                        return error;
                    }
                }
                unreachable!()
            });
            std::thread::sleep(Duration::from_millis(20 + 10 * u64::from(round)));
            db.drop_family(&family).unwrap();
            for thread in [compactor, writer] {
                let ended = thread.join().unwrap();
                assert!(matches!(ended.kind(), ErrorKind::UnknownFamily { .. }), "{ended:?}");
            }
        });
        check(&snapshot, &family, &filled);
        db.put("key", "the database still takes writes").unwrap();
        db.wait_for_compactions(None).unwrap();
        check(&snapshot, &family, &filled);
        drop(snapshot);
        comes_true("the removal", || tables(&fs).len() <= 1);
        db.close().unwrap();
    }
}
