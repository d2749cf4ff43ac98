//! Tests the empty key, the smallest key: alone, as the first of many, in memory and in each level,
//! deleted, seen by snapshots, reached from both sides, and through recovery and repair.

use isobath::env::Env;
use isobath::tools::RepairOptions;
use isobath::vfs::{FileSystem, MemoryFs};
use isobath::{Batch, Codec, Db, Entry, FamilyOptions, KIB, Options, Prefix, Readable, tools};
use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::path::Path;
use std::sync::Arc;

type Map = BTreeMap<Vec<u8>, Vec<u8>>;
type Bounds = (Bound<Vec<u8>>, Bound<Vec<u8>>);

fn over(fs: &MemoryFs) -> Options {
    let env = Env { fs: Arc::new(fs.clone()), ..Env::system() };
    let mut options = Options::new().env(env).write_buffer(64 * KIB);
    options.family = Some(FamilyOptions::new().block_size(256).codec(Codec::None));
    options
}

fn every_bounds() -> Vec<Bounds> {
    let keys = [&b""[..], b"\0", b"k", b"\xff"].map(<[u8]>::to_vec);
    let ends = || {
        let of_keys = keys
            .iter()
            .flat_map(|key| [Bound::Included(key.clone()), Bound::Excluded(key.clone())]);
        of_keys.chain([Bound::Unbounded])
    };
    ends().flat_map(|lower| ends().map(move |upper| (lower.clone(), upper))).collect()
}

fn own(entry: Option<Entry<'_>>) -> Option<(Vec<u8>, Vec<u8>)> {
    entry.map(|entry| (entry.key().to_vec(), entry.value().unwrap().to_vec()))
}

/// Checks that every way to read agrees with the map.
#[track_caller]
fn check(part: &impl Readable, map: &Map) {
    for key in [&b""[..], b"\0", b"k"] {
        let found = part.get(key).unwrap();
        assert_eq!(found.as_deref(), map.get(key).map(Vec::as_slice), "{key:?}");
        assert_eq!(part.contains(key).unwrap(), map.contains_key(key));
    }
    let several = part.multi_get(["k", "", ""]).unwrap();
    let expected = [&b"k"[..], b"", b""].map(|key| map.get(key).map(Vec::as_slice));
    assert!(several.iter().map(|value| value.as_deref()).eq(expected));
    let ends = [part.first().unwrap(), part.last().unwrap()];
    assert_eq!(ends[0].as_ref().map(|(key, _)| &**key), map.keys().next().map(|key| &key[..]));
    assert_eq!(ends[1].as_ref().map(|(key, _)| &**key), map.keys().last().map(|key| &key[..]));
    assert_eq!(part.count(Prefix("")).unwrap(), map.len() as u64);
    assert_eq!(part.prefix("").count(), map.len());
    for bounds in every_bounds() {
        let inside = |key: &[u8]| {
            (match &bounds.0 {
                Bound::Included(lower) => key >= &lower[..],
                Bound::Excluded(lower) => key > &lower[..],
                Bound::Unbounded => true,
            }) && (match &bounds.1 {
                Bound::Included(upper) => key <= &upper[..],
                Bound::Excluded(upper) => key < &upper[..],
                Bound::Unbounded => true,
            })
        };
        let rows: Vec<_> = map.iter().filter(|(key, _)| inside(key)).collect();
        let rows = || rows.iter().map(|(key, value)| ((*key).clone(), (*value).clone()));
        let shown = |item: isobath::Result<(isobath::Key, isobath::Value)>| {
            item.map(|(key, value)| (key.to_vec(), value.to_vec())).unwrap()
        };
        assert!(part.range(bounds.clone()).map(shown).eq(rows()), "{bounds:?}");
        assert!(part.range(bounds.clone()).rev().map(shown).eq(rows().rev()), "{bounds:?}");
        assert_eq!(part.count(bounds.clone()).unwrap(), rows().count() as u64);
        let mut cursor = part.cursor(bounds.clone()).unwrap();
        assert_eq!(own(cursor.seek("").unwrap()), rows().next(), "{bounds:?}");
        let least = rows().next().filter(|(key, _)| key.is_empty());
        assert_eq!(own(cursor.seek_for_prev("").unwrap()), least, "{bounds:?}");
        for row in rows().rev() {
            cursor.seek(&row.0).unwrap();
            let before = rows().rev().find(|(key, _)| *key < row.0);
            assert_eq!(own(cursor.prev().unwrap()), before, "{bounds:?}");
            assert_eq!(own(cursor.next().unwrap()), Some(row), "{bounds:?}");
        }
    }
}

/// Checks the map in memory, in level 0, in the last level, after a close, a kill and a power cut,
/// and after a repair.
#[track_caller]
fn check_everywhere(fill: impl Fn(&Db), map: &Map) {
    let fs = MemoryFs::new();
    let db = over(&fs).open("db").unwrap();
    fill(&db);
    check(&db, map);
    db.sync().unwrap();
    for fs in [fs.killed(), fs.crashed(|_| 0)] {
        let db = over(&fs).open("db").unwrap();
        check(&db, map);
        let reader = over(&fs.killed()).read_only(true).open("db").unwrap();
        check(&reader, map);
    }
    db.flush().unwrap();
    check(&db, map);
    db.compact().unwrap();
    check(&db, map);
    let snapshot = db.snapshot();
    db.delete("").unwrap();
    db.put("k", "other").unwrap();
    check(&snapshot, map);
    db.compact().unwrap();
    check(&snapshot, map);
    let mut now = map.clone();
    now.remove(&b""[..]);
    now.insert(b"k".to_vec(), b"other".to_vec());
    check(&db, &now);
    drop(snapshot);
    db.compact().unwrap();
    check(&db, &now);
    db.put("", "again").unwrap();
    now.insert(Vec::new(), b"again".to_vec());
    db.close().unwrap();
    let env = || Env { fs: Arc::new(fs.clone()), ..Env::system() };
    let verify = || tools::verify(Path::new("db"), &env(), &mut |_, _| ()).unwrap();
    assert!(verify().is_clean());
    check(&over(&fs).open("db").unwrap(), &now);
    fs.remove(Path::new("db/CURRENT")).unwrap();
    let options = RepairOptions::new().env(env());
    tools::repair(Path::new("db"), &options, &mut |_, _| ControlFlow::Continue(())).unwrap();
    assert!(verify().is_clean());
    let db = over(&fs).open("db").unwrap();
    check(&db, &now);
    db.compact().unwrap();
    check(&db, &now);
}

fn map(rows: &[(&str, &str)]) -> Map {
    rows.iter().map(|(key, value)| (key.as_bytes().to_vec(), value.as_bytes().to_vec())).collect()
}

#[test]
fn the_empty_key_alone_is_found_everywhere() {
    check_everywhere(|db| assert!(db.put("", "value").is_ok()), &map(&[("", "value")]));
    check_everywhere(|db| assert!(db.put("", "").is_ok()), &map(&[("", "")]));
}

#[test]
fn the_empty_key_comes_before_all_others_and_beside_those_that_look_like_it() {
    let rows = [("", "empty"), ("\0", "zero"), ("\0\0", "zeros"), ("k", "value"), ("k\0", "")];
    let fill = |order: &dyn Fn(usize) -> usize, db: &Db| {
        for at in 0..rows.len() {
            let (key, value) = rows[order(at)];
            db.put(key, value).unwrap();
        }
    };
    check_everywhere(|db| fill(&|at| at, db), &map(&rows));
    check_everywhere(|db| fill(&|at| rows.len() - 1 - at, db), &map(&rows));
    let in_one = |db: &Db| {
        let mut batch = Batch::new();
        batch.put("k", "").put("", "older").delete("k").delete("").put("", "value").put("k", "v");
        db.write(batch).unwrap();
    };
    check_everywhere(in_one, &map(&[("", "value"), ("k", "v")]));
}

#[test]
fn the_empty_key_is_found_among_thousands_that_share_their_beginning() {
    let name = |n: u32| format!("a/long/shared/prefix/{n:05}").into_bytes();
    let mut expected: Map = (0..1200).map(|n| (name(n), b"value".to_vec())).collect();
    expected.insert(Vec::new(), b"empty".to_vec());
    let fill = |place: u32, db: &Db| {
        for n in 0..1200 {
            if n == place {
                db.put("", "empty").unwrap();
            }
            db.put(name(n), "value").unwrap();
        }
    };
    let db = over(&MemoryFs::new()).open("db").unwrap();
    for place in [0, 1, 600, 1199] {
        let family = db.family(format!("of {place}")).unwrap();
        let fs = MemoryFs::new();
        let other = over(&fs).open("db").unwrap();
        fill(place, &other);
        for round in 0..3 {
            assert_eq!(&*other.first().unwrap().unwrap().0, b"");
            assert_eq!(other.get("").unwrap().unwrap(), "empty", "{place} {round}");
            let keys = other.iter().keys().map(|key| key.unwrap().to_vec());
            assert!(keys.eq(expected.keys().cloned()));
            let keys = other.iter().rev().map(|item| item.unwrap().0.to_vec());
            assert!(keys.eq(expected.keys().rev().cloned()));
            if round == 0 { other.flush().unwrap() } else { other.compact().unwrap() }
        }
        // In one batch, sorted.
        let mut batch = Batch::new();
        for (key, value) in expected.iter().rev() {
            batch.of(&family).put(key, value);
        }
        db.write(batch).unwrap();
        assert_eq!(family.count(..).unwrap(), expected.len() as u64);
        assert_eq!(family.get("").unwrap().unwrap(), "empty");
    }
}

#[test]
fn versions_of_the_empty_key_fill_blocks_and_each_snapshot_sees_its_own() {
    let fs = MemoryFs::new();
    let db = over(&fs).open("db").unwrap();
    let mut snapshots = vec![(db.snapshot(), None)];
    for round in 0..60u8 {
        if round % 7 == 3 {
            db.delete("").unwrap();
            snapshots.push((db.snapshot(), None));
        }
        db.put("", [round; 90]).unwrap();
        snapshots.push((db.snapshot(), Some([round; 90])));
        if round % 25 == 24 {
            db.flush().unwrap();
        }
    }
    db.put("k", "value").unwrap();
    let look = |what: &str| {
        for (snapshot, value) in &snapshots {
            let found = snapshot.get("").unwrap();
            assert_eq!(found.as_deref(), value.as_ref().map(|value| &value[..]), "{what}");
            assert_eq!(snapshot.count(..).unwrap(), u64::from(value.is_some()), "{what}");
            let back = snapshot.iter().next_back().transpose().unwrap();
            assert_eq!(back.map(|(_, value)| value).as_deref(), found.as_deref(), "{what}");
            let mut cursor = snapshot.cursor(..).unwrap();
            let value_of = |entry: Option<Entry<'_>>| entry.map(|entry| entry.pin().unwrap());
            assert_eq!(value_of(cursor.seek_for_prev("k").unwrap()).as_deref(), found.as_deref());
            assert_eq!(value_of(cursor.seek("").unwrap()).as_deref(), found.as_deref());
        }
    };
    look("in memory and level 0");
    db.flush().unwrap();
    look("in level 0");
    db.compact().unwrap();
    look("in the last level");
    assert_eq!(db.count(..).unwrap(), 2);
    snapshots.clear();
    db.delete("").unwrap();
    db.compact().unwrap();
    db.close().unwrap();
    let db = over(&fs).open("db").unwrap();
    assert_eq!((db.get("").unwrap(), db.count(..).unwrap()), (None, 1));
}

#[test]
fn a_part_of_a_family_from_the_empty_key_on_is_compacted() {
    let db = over(&MemoryFs::new()).open("db").unwrap();
    let family = db.family("family").unwrap();
    for round in 0..4u8 {
        for key in ["", "a", "b"] {
            family.put(key, [round; 300]).unwrap();
        }
        db.flush().unwrap();
        family.compact(..="").unwrap();
        family.compact("".."a").unwrap();
        family.compact(""..="").unwrap();
        family.compact(Prefix("")).unwrap();
        family.compact(..).unwrap();
        assert_eq!(family.count(..).unwrap(), 3);
        assert_eq!(family.get("").unwrap().unwrap(), [round; 300]);
    }
}
