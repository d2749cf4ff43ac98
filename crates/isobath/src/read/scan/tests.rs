//! Scans that turn where they like, against a sorted map, over every kind of source.

use super::*;
use crate::engine::{Engine, Registered};
use crate::env::Env;
use crate::read::{Pin, ReadAt};
use crate::vfs::MemoryFs;
use crate::{Db, Options};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;

type Contents = BTreeMap<Vec<u8>, Vec<u8>>;

/// Where a write ends up.
#[derive(Clone, Copy, Debug)]
enum Place {
    Level,
    Run,
    Memory,
    /// Written after the reader began.
    TooLate,
}

#[derive(Clone, Debug)]
enum Step {
    Next(u8),
    Prev(u8),
    Seek(u8),
    SeekForPrev(u8),
    First,
    Last,
}

fn key(number: u8) -> Vec<u8> {
    format!("key{number:03}").into_bytes()
}

fn writes() -> impl Strategy<Value = Vec<(u8, bool)>> {
    prop::collection::vec((0u8..200, prop::bool::weighted(0.9)), 0..30)
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => (1u8..40).prop_map(Step::Next),
        4 => (1u8..12).prop_map(Step::Prev),
        2 => any::<u8>().prop_map(Step::Seek),
        1 => any::<u8>().prop_map(Step::SeekForPrev),
        1 => Just(Step::First),
        1 => Just(Step::Last),
    ]
}

/// A database whose default family has all of `writes`, each where it belongs, and the point of a
/// reader with what it sees.
fn written(
    level: &[(u8, bool)],
    rest: &[(Place, Vec<(u8, bool)>)],
) -> (Db, crate::Snapshot, Contents) {
    let env = Env { fs: Arc::new(MemoryFs::new()), ..Env::system() };
    let db = Options::new().env(env).open("/db").unwrap();
    let mut contents = Contents::new();
    let write = |contents: &mut Contents, writes: &[(u8, bool)], round: usize| {
        for &(number, is_put) in writes {
            if is_put {
                let value = format!("{round} {}", "value ".repeat(usize::from(number) % 9));
                db.put(key(number), &value).unwrap();
                contents.insert(key(number), value.into_bytes());
            } else {
                db.delete(key(number)).unwrap();
                contents.remove(&key(number));
            }
        }
    };
    let all: Vec<_> =
        (0..200).filter(|number| number % 7 > 0).map(|number| (number, true)).collect();
    write(&mut contents, &all, 0);
    write(&mut contents, level, 1);
    db.compact().unwrap();
    let mut seen = None;
    for (round, (place, writes)) in rest.iter().enumerate() {
        if matches!(place, Place::TooLate) {
            seen.get_or_insert_with(|| (db.snapshot(), contents.clone()));
        }
        write(&mut contents, writes, round + 2);
        match place {
            Place::Level => db.compact().unwrap(),
            Place::Run => db.flush().unwrap(),
            Place::Memory | Place::TooLate => {}
        }
    }
    let (snapshot, contents) = seen.unwrap_or_else(|| (db.snapshot(), contents));
    (db, snapshot, contents)
}

fn scan_at(engine: &Arc<Engine>, snapshot: &crate::Snapshot, bounds: &ScanBounds) -> Scan {
    let at = ReadAt::newest(engine, &engine.default_family);
    let point = Some(Registered { point: snapshot.read_point().lsn, era: 0 });
    Pin::new(ReadAt { point, ..at }).unwrap().scan(bounds).unwrap()
}

fn place() -> impl Strategy<Value = Place> {
    prop_oneof![Just(Place::Level), Just(Place::Run), Just(Place::Memory), Just(Place::TooLate)]
}

fn bound() -> impl Strategy<Value = Bound<Vec<u8>>> {
    prop_oneof![
        2 => Just(Bound::Unbounded),
        1 => (0u8..200).prop_map(|number| Bound::Included(key(number))),
        1 => (0u8..200).prop_map(|number| Bound::Excluded(key(number))),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn a_scan_that_turns_anywhere_shows_what_a_map_has(
        level in writes(),
        rest in prop::collection::vec((place(), writes()), 0..4),
        (lower, upper) in (bound(), bound()),
        steps in prop::collection::vec(step(), 1..40),
    ) {
        let (db, snapshot, contents) = written(&level, &rest);
        let bounds = ScanBounds { lower, upper };
        prop_assume!(!bounds.is_empty());
        let shown: Vec<_> = contents.range((bounds.lower.clone(), bounds.upper.clone())).collect();
        let mut scan = scan_at(db.engine(), &snapshot, &bounds);
        let mut stands: Option<usize> = None;
        let check = |scan: &Scan, stands: Option<usize>| {
            let expected = stands.and_then(|at| shown.get(at));
            let expected = expected.map(|(key, value)| (key.as_slice(), value.as_slice()));
            assert_eq!(scan.entry(), expected);
            assert_eq!(scan.key(), expected.map(|(key, _)| key));
            assert_eq!(scan.has_entry(), expected.is_some());
            let pinned = scan.pinned();
            assert_eq!(pinned.as_ref().map(|(key, value)| (*key, &value[..])), expected);
        };
        for step in steps {
            match step {
                Step::First => {
                    scan.seek_first().unwrap();
                    stands = Some(0);
                }
                Step::Last => {
                    scan.seek_last().unwrap();
                    stands = shown.len().checked_sub(1);
                }
                Step::Seek(number) => {
                    scan.seek(&key(number)).unwrap();
                    stands = Some(shown.partition_point(|(shown, _)| **shown < key(number)));
                }
                Step::SeekForPrev(number) => {
                    scan.seek_for_prev(&key(number)).unwrap();
                    let behind = shown.partition_point(|(shown, _)| **shown <= key(number));
                    stands = behind.checked_sub(1);
                }
                Step::Next(count) => for _ in 0..count {
                    scan.next().unwrap();
                    stands = stands.filter(|at| *at < shown.len()).map(|at| at + 1);
                    check(&scan, stands);
                }
                Step::Prev(count) => for _ in 0..count {
                    scan.prev().unwrap();
                    stands = stands.filter(|at| *at < shown.len()).and_then(|at| at.checked_sub(1));
                    check(&scan, stands);
                }
            }
            check(&scan, stands);
        }
    }
}

/// Else every key costs a step of the whole merge.
#[test]
fn a_scan_of_one_table_takes_more_rows_of_a_block_each_time() {
    let env = Env { fs: Arc::new(MemoryFs::new()), ..Env::system() };
    let db = Options::new().env(env).open("/db").unwrap();
    for number in 0..200 {
        db.put(key(number), "v").unwrap();
    }
    db.compact().unwrap();
    let snapshot = db.snapshot();
    let bounds = ScanBounds { lower: Bound::Unbounded, upper: Bound::Unbounded };
    let mut scan = scan_at(db.engine(), &snapshot, &bounds);
    scan.seek_first().unwrap();
    let mut step = |_| {
        scan.next().unwrap();
        scan.count
    };
    let most = (1..200).map(&mut step).max();
    assert_eq!(most, Some(ROWS_MAX));
    assert_eq!(step(0), 0, "no row is left");
}
