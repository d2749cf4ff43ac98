//! Reads of values that lie in blob files: what they find, and what they read for it.

use crate::env::Env;
use crate::env::fixtures::Draw;
use crate::mvcc::{Expiring, OpKind};
use crate::pinned::Value;
use crate::read::get::{Found, Wanted};
use crate::read::{Pin, ReadAt, ScanBounds};
use crate::table::fixtures::forge_value;
use crate::version::Tree;
use crate::vfs::{Fault, FileAccess, FileOp, FileSystem, IoMode, MemoryFs};
use crate::{Codec, Db, Error, ErrorKind, FamilyOptions, Options, ReadOptions, Result};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

mod refused;

const LEN: usize = 1000;
/// A value and its frame.
const STORED: u64 = LEN as u64 + 9;

fn options(fs: &MemoryFs) -> Options {
    let env = Env { fs: Arc::new(fs.clone()), ..Env::system() };
    Options::new().env(env).family(FamilyOptions::new().separate_from(100))
}

fn key(nth: u32) -> Vec<u8> {
    format!("key {nth:06}").into_bytes()
}

/// A value that does not compress.
fn value(nth: u32, round: u32) -> Vec<u8> {
    let mut draw = Draw::new(u64::from(nth) << 32 | u64::from(round));
    std::iter::repeat_with(|| draw.next() as u8).take(LEN).collect()
}

/// A database with so many values in one blob file, of which none was read since it was opened.
fn filled(fs: &MemoryFs, count: u32, cache: u64) -> Db {
    let db = options(fs).open("/db").unwrap();
    for nth in 0..count {
        db.put(key(nth), value(nth, 0)).unwrap();
    }
    db.flush().unwrap();
    db.close().unwrap();
    options(fs).block_cache(cache).open("/db").unwrap()
}

/// Values that were fetched, reads for them, and their bytes.
fn fetched(db: &Db) -> (u64, u64, u64) {
    let metrics = db.metrics();
    (metrics.values_fetched, metrics.value_reads, metrics.value_read_bytes)
}

/// The blob files of the database.
fn blobs(fs: &MemoryFs) -> Vec<PathBuf> {
    let dir = Path::new("/db/table");
    let paths = fs.list(dir).unwrap().into_iter().map(|entry| dir.join(entry.name));
    // A compaction may be removing a table, or have just begun one.
    let is_blob = |path: &PathBuf| {
        let mut header = [0; 16];
        let file = fs.open_read(path, FileAccess::Positional);
        file.and_then(|file| file.read_at(0, &mut header)).is_ok() && header[8] == 3
    };
    paths.filter(is_blob).collect()
}

#[test]
fn reads_of_keys_alone_fetch_no_value() {
    let fs = MemoryFs::new();
    let db = filled(&fs, 100, 1 << 20);
    assert_eq!(db.count(..).unwrap(), 100);
    assert_eq!(db.range(..).keys().filter(|key| key.is_ok()).count(), 100);
    assert_eq!(db.range(..).keys().rev().filter(|key| key.is_ok()).count(), 100);
    assert!(db.contains(key(5)).unwrap() && !db.contains("other").unwrap());
    let mut cursor = db.cursor(..).unwrap();
    while let Some(entry) = cursor.next().unwrap() {
        assert_eq!(entry.value_len(), LEN as u64);
    }
    let tx = db.begin();
    assert_eq!(tx.count(key(10)..key(20)).unwrap(), 10);
    assert!(tx.contains(key(7)).unwrap());
    tx.rollback();
    assert_eq!(fetched(&db), (0, 0, 0));
    assert_eq!(cursor.first().unwrap().unwrap().value().unwrap(), value(0, 0));
    assert_eq!(db.get(key(9)).unwrap().unwrap(), value(9, 0));
    assert_eq!(fetched(&db), (2, 2, 2 * STORED));
    db.get(key(9)).unwrap();
    assert_eq!(fetched(&db), (3, 2, 2 * STORED), "the cache has it");
}

#[test]
fn a_scan_reads_values_ahead_once_it_has_asked_for_two_that_are_neighbours() {
    for is_back in [false, true] {
        let fs = MemoryFs::new();
        let db = filled(&fs, 500, 0);
        let next = |range: &mut crate::Range<'_>| {
            let item = if is_back { range.next_back() } else { range.next() };
            item.map(|item| item.unwrap().1)
        };
        let nth = |at: u32| if is_back { 499 - at } else { at };
        let mut range = db.range(..);
        assert_eq!(next(&mut range).unwrap(), value(nth(0), 0));
        assert_eq!(fetched(&db), (1, 1, STORED), "it may want one only");
        for at in 1..500 {
            assert_eq!(next(&mut range).unwrap(), value(nth(at), 0), "{is_back} {at}");
            if at == 1 {
                assert_eq!(fetched(&db), (2, 2, STORED + (16 << 10)));
            }
        }
        assert!(next(&mut range).is_none());
        let (values, reads, bytes) = fetched(&db);
        let all = 500 * STORED;
        assert_eq!(values, 500);
        assert!(reads <= all / (30 << 10) + 6, "{is_back}: {reads} reads");
        // A value at the end of a chunk lies in it as a part, and is read with the next one.
        assert!((all..all + all / 20).contains(&bytes), "{is_back}: {bytes} of {all}");
    }
}

#[test]
fn a_cursor_reads_ahead_only_where_it_is_asked_for_values() {
    let fs = MemoryFs::new();
    let db = filled(&fs, 500, 0);
    let mut cursor = db.cursor(..).unwrap();
    for nth in (0..500).step_by(40) {
        let entry = cursor.seek(key(nth)).unwrap().unwrap();
        assert_eq!(entry.value().unwrap(), value(nth, 0));
        assert_eq!(entry.pin().unwrap(), value(nth, 0), "once is enough");
    }
    assert_eq!(fetched(&db), (13, 13, 13 * STORED), "values that lie apart");
    let before = fetched(&db).2;
    cursor.seek(key(100)).unwrap();
    for nth in 100..200 {
        let entry = cursor.entry().unwrap();
        assert_eq!(entry.key(), key(nth));
        if nth % 2 == 0 {
            assert_eq!(entry.value().unwrap(), value(nth, 0));
        }
        cursor.next().unwrap();
    }
    let (values, reads, bytes) = fetched(&db);
    assert_eq!(values, 13 + 50);
    assert!(reads < 13 + 10, "{reads}");
    assert!(bytes - before < 130 * STORED, "{bytes}");
}

/// Of the file one value in sixteen is read. What lies between is garbage.
#[test]
fn a_scan_over_garbage_reads_little_of_it() {
    let fs = MemoryFs::new();
    let db = filled(&fs, 1600, 0);
    for nth in (0..1600).filter(|nth| nth % 16 != 0) {
        db.put(key(nth), "short").unwrap();
    }
    let long = db.range(..).filter(|item| item.as_ref().unwrap().1.len() == LEN).count();
    assert_eq!(long, 100);
    let (values, _, bytes) = fetched(&db);
    assert_eq!(values, 100);
    assert!(bytes < 300 * STORED, "{bytes}");
}

#[test]
fn a_value_that_is_damaged_is_no_trouble_for_what_is_read_with_it() {
    let fs = MemoryFs::new();
    let db = filled(&fs, 60, 0);
    db.put(key(20), "new").unwrap();
    let [blob] = &blobs(&fs)[..] else { panic!("one flush wrote several") };
    for nth in [20, 41] {
        fs.corrupt(blob, 128 + nth * STORED + 5, 1).unwrap();
    }
    let mut range = db.range(..);
    for nth in 0..41 {
        let expected = if nth == 20 { b"new".to_vec() } else { value(nth, 0) };
        assert_eq!(range.next().unwrap().unwrap().1, expected, "{nth}");
    }
    let error = range.next().unwrap().unwrap_err();
    let (text, offset) = (error.to_string(), (128 + 41 * STORED).to_string());
    assert!(error.is_corruption() && text.contains("key 000041"), "{text}");
    assert!(text.contains(&offset), "{text}");
    let asked = |nths: std::ops::Range<u32>| db.multi_get(nths.map(key).collect::<Vec<_>>());
    let values = asked(0..41).unwrap();
    let is_found = |(nth, found): (usize, &Option<Value>)| {
        let found = found.as_ref().unwrap();
        if nth == 20 { *found == b"new" } else { *found == value(nth as u32, 0) }
    };
    assert!(values.iter().enumerate().all(is_found));
    let error = asked(30..60).unwrap_err();
    assert!(error.is_corruption() && error.to_string().contains("key 000041"), "{error}");
    assert_eq!(asked(42..60).unwrap().len(), 18);
}

/// A device that loses a write leaves what was there before: here the values of an older file.
#[test]
fn values_of_another_file_at_the_same_places_are_noticed() {
    let fs = MemoryFs::new();
    let db = filled(&fs, 20, 0);
    let held = db.snapshot();
    for nth in 0..20 {
        db.put(key(nth), value(nth, 1)).unwrap();
    }
    db.flush().unwrap();
    let [old, new] = &blobs(&fs)[..] else { panic!("each flush writes one") };
    let read = |path: &Path| {
        let mut bytes = vec![0; 20 * STORED as usize];
        let file = fs.open_read(path, FileAccess::Positional).unwrap();
        file.read_at(128, &mut bytes).unwrap();
        bytes
    };
    for (at, (old, now)) in (128..).zip(read(old).into_iter().zip(read(new))) {
        fs.corrupt(new, at, old ^ now).unwrap();
    }
    for nth in 0..20 {
        assert!(held.get(key(nth)).unwrap().unwrap() == value(nth, 0), "what is older is sound");
        let error = db.get(key(nth)).unwrap_err();
        assert!(error.is_corruption(), "{error}");
    }
    let told = db.range(..).filter(|item| item.as_ref().is_err_and(Error::is_corruption));
    assert_eq!(told.count(), 20);
    assert!(db.multi_get((0..20).map(key)).unwrap_err().is_corruption());
}

/// A table with an address that is none, and no other, names no blob file.
#[test]
fn an_address_in_a_tree_without_blob_files_is_damage_of_its_table() {
    let fs = MemoryFs::new();
    let env = Env { fs: Arc::new(fs.clone()), ..Env::system() };
    let family = FamilyOptions::new().separate_from(100).codec(Codec::None);
    let db = Options::new().env(env).family(family).open("/db").unwrap();
    let tree = || db.engine().default_family.view().tree.clone();
    db.put(key(5), value(5, 0)).unwrap();
    // A short slice has its only block in its root.
    for nth in 1000..2000 {
        db.put(key(nth), "short").unwrap();
    }
    db.flush().unwrap();
    let table =
        |tree: &Tree| db.engine().tables.files.path(tree.iter().next().unwrap().1.meta.file);
    forge_value(&fs, &table(&tree()));
    for nth in [1, 9] {
        db.put(key(nth), "short").unwrap();
    }
    db.flush().unwrap();
    assert!(tree().has_blobs());
    db.compact().unwrap();
    assert!(!tree().has_blobs());
    let table = table(&tree());

    let is_told = |error: crate::Error| match error.kind() {
        ErrorKind::Corruption { path, offset, detail } => {
            assert!(*path == table && *offset == 128, "{error}");
            assert!(detail.contains("names no blob file") && detail.contains("key 000005"));
        }
        _ => panic!("{error}"),
    };
    let mut range = db.range(..key(10));
    assert_eq!(range.next().unwrap().unwrap().0, key(1));
    is_told(range.next().unwrap().unwrap_err());
    assert_eq!(range.next().unwrap().unwrap().0, key(9));
    assert!(range.next().is_none());
    let mut range = db.range(..key(10));
    assert_eq!(range.next_back().unwrap().unwrap().0, key(9));
    is_told(range.next_back().unwrap().unwrap_err());
    let keys: Vec<_> = db.range(..key(10)).keys().map(Result::unwrap).collect();
    assert_eq!(keys, [key(1), key(5), key(9)]);
    let mut cursor = db.cursor(..).unwrap();
    let entry = cursor.seek(key(5)).unwrap().unwrap();
    assert_eq!((entry.key(), entry.value_len()), (&*key(5), 0));
    is_told(entry.value().unwrap_err());
    is_told(entry.pin().unwrap_err());
    let next = cursor.next().unwrap().unwrap();
    assert_eq!((next.key(), next.value().unwrap()), (&*key(9), &b"short"[..]));
    assert!(db.get(key(5)).unwrap_err().is_corruption());
}

#[test]
fn only_scans_of_trees_with_blob_files_hold_what_fetches_values() {
    let fs = MemoryFs::new();
    let db = options(&fs).open("/db").unwrap();
    let fetches = || {
        let pin = Pin::new(ReadAt::newest(db.engine(), &db.engine().default_family)).unwrap();
        let bounds = ScanBounds { lower: Bound::Unbounded, upper: Bound::Unbounded };
        let scans = [pin.scan(&bounds), pin.scan_lazily(&bounds), pin.scan_keys(&bounds)];
        scans.map(|scan| scan.unwrap().fetches())
    };
    let sum = || db.range(..).map(|item| item.unwrap().1.len()).sum::<usize>();
    db.put(key(1), "short").unwrap();
    db.put(key(2), value(2, 0)).unwrap();
    assert_eq!((fetches(), sum()), ([false; 3], 5 + LEN), "a memtable has whole values");
    db.flush().unwrap();
    assert_eq!((fetches(), sum()), ([true, true, false], 5 + LEN));
}

#[test]
fn a_read_of_several_values_that_fails_is_done_value_by_value() {
    let fs = MemoryFs::new();
    let db = filled(&fs, 100, 0);
    let [blob] = &blobs(&fs)[..] else { panic!("one flush wrote several") };
    let blob = blob.to_str().unwrap();
    let mut range = db.range(..);
    assert_eq!(range.next().unwrap().unwrap().1, value(0, 0));
    let before = fetched(&db).1;
    fs.inject(Fault::on(FileOp::Read).suffix(blob));
    let found = db.multi_get((10..60).map(key)).unwrap().into_iter();
    assert!(found.map(Option::unwrap).eq((10..60).map(|nth| value(nth, 0))));
    assert_eq!(fetched(&db).1 - before, 1 + 50);
    fs.inject(Fault::on(FileOp::Read).suffix(blob));
    assert_eq!(range.next().unwrap().unwrap().1, value(1, 0));
    assert_eq!(fetched(&db).1 - before, 1 + 50 + 2, "a chunk, and the value alone");
    assert!(range.map(|item| item.unwrap().1).eq((2..100).map(|nth| value(nth, 0))));
    fs.inject(Fault::on(FileOp::Read).suffix(blob).forever());
    assert_eq!(db.get(key(7)).unwrap_err().name(), "IO");
    assert_eq!(db.multi_get([key(7), key(8)]).unwrap_err().name(), "IO");
    assert!(db.range(..).next().unwrap().is_err());
}

#[test]
fn values_of_several_keys_are_read_in_the_order_of_their_places() {
    let fs = MemoryFs::new();
    let db = filled(&fs, 400, 1 << 20);
    db.put(key(3), "in memory").unwrap();
    db.put_ttl(key(1000), value(1000, 0), Duration::from_secs(3600)).unwrap();
    db.flush().unwrap();
    let nths = [7, 3, 9, 8, 5000, 1000, 7, 300];
    let found = db.multi_get(nths.map(key)).unwrap();
    let expected = nths.map(|nth| match nth {
        3 => Some(b"in memory".to_vec()),
        5000 => None,
        nth => Some(value(nth, 0)),
    });
    assert!(found.iter().map(|value| value.as_deref()).eq(expected.iter().map(|v| v.as_deref())));
    let read = 5 * STORED;
    assert_eq!(fetched(&db), (6, 3, read), "three neighbours take one read, and two are alone");
    db.multi_get(nths.map(key)).unwrap();
    assert_eq!(fetched(&db), (12, 3, read), "the cache has them all");
    let rest: Vec<_> = (20..280).rev().map(key).collect();
    let found = db.multi_get(&rest).unwrap().into_iter().map(|value| value.map(Vec::from));
    assert!(found.eq((20..280).rev().map(|nth| Some(value(nth, 0)))));
    let (_, reads, bytes) = fetched(&db);
    assert_eq!((reads, bytes), (3 + 2, read + 260 * STORED), "of 256 KiB at most");
}

/// Overwrites and deletes in rounds, some of which are compacted. Returns what there is then.
fn write_rounds(db: &Db, draw: &mut Draw) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut expected = BTreeMap::new();
    for round in 0..4 {
        let step = draw.below(5) as usize + 1;
        for nth in (draw.below(3) as u32..300).step_by(step) {
            let written = match draw.below(8) {
                0 => Some(b"short".to_vec()),
                1 => None,
                _ => Some(value(nth, round)),
            };
            match written {
                Some(value) => {
                    db.put(key(nth), &value).unwrap();
                    expected.insert(key(nth), value);
                }
                None => {
                    db.delete(key(nth)).unwrap();
                    expected.remove(&key(nth));
                }
            }
        }
        db.flush().unwrap();
        if draw.below(3) == 0 {
            db.compact().unwrap();
        }
    }
    expected
}

/// Neighbouring keys have values in several files. Moves of all sorts ask for the value, or do not.
#[test]
fn whatever_was_read_ahead_each_key_has_its_own_value() {
    for seed in 0..12 {
        let (fs, mut draw) = (MemoryFs::new(), Draw::new(seed));
        let io = draw.one(&[IoMode::Positional, IoMode::Mapped]);
        let open = || options(&fs).io(io).block_cache((seed % 3) << 18).open("/db").unwrap();
        let expected = write_rounds(&open(), &mut draw);
        let db = open();
        let reads = db.with(ReadOptions::new().fill_cache(draw.below(2) == 0));
        let mut cursor = reads.cursor(..).unwrap();
        let mut at = None;
        for _ in 0..1500 {
            let found = match draw.below(20) {
                0 => {
                    let wanted = key(draw.below(310) as u32);
                    at = expected.range(wanted.clone()..).next();
                    cursor.seek(wanted).unwrap()
                }
                1 => {
                    let wanted = key(draw.below(310) as u32);
                    at = expected.range(..=wanted.clone()).next_back();
                    cursor.seek_for_prev(wanted).unwrap()
                }
                2..8 => {
                    let Some((key, _)) = at else { continue };
                    at = expected.range(..key.clone()).next_back();
                    cursor.prev().unwrap()
                }
                _ => {
                    let Some((key, _)) = at else { continue };
                    at = expected.range((Bound::Excluded(key.clone()), Bound::Unbounded)).next();
                    cursor.next().unwrap()
                }
            };
            assert_eq!(found.map(|entry| entry.key()), at.map(|(key, _)| &key[..]), "{seed}");
            if let (Some(entry), Some((_, value)), true) = (found, at, draw.below(3) > 0) {
                assert_eq!(entry.value().unwrap(), value, "{seed}");
            }
        }
        let all = || expected.iter().map(|(key, value)| (key.clone(), value.clone()));
        let item = |item: crate::Result<(crate::Key, Value)>| {
            item.map(|(key, value)| (Vec::from(key), Vec::from(value))).unwrap()
        };
        assert!(reads.range(..).map(item).eq(all()), "{seed}");
        assert!(reads.range(..).rev().map(item).eq(all().rev()), "{seed}");
        let keys: Vec<_> = (0..200).map(|_| key(draw.below(310) as u32)).collect();
        let found = reads.multi_get(&keys).unwrap().into_iter().map(|value| value.map(Vec::from));
        assert!(found.eq(keys.iter().map(|key| expected.get(key).cloned())), "{seed}");
    }
}

/// The value that was found first has ended by the clock, so the read looks again, above a tick,
/// and finds one that has not.
#[test]
fn a_read_that_looks_again_for_presence_fetches_nothing() {
    let fs = MemoryFs::new();
    let db = options(&fs).open("/db").unwrap();
    db.put_ttl("k", value(1, 0), Duration::from_secs(3600)).unwrap();
    db.flush().unwrap();
    let engine = db.engine();
    let at = ReadAt::newest(engine, &engine.default_family);
    for (wanted, fetches) in [(Wanted::Presence, 0), (Wanted::Value, 1)] {
        let (view, point) = at.begin().unwrap();
        let unix_ms = at.time_at(point).unwrap();
        std::thread::sleep(Duration::from_millis(5));
        let mut stored = Vec::new();
        Expiring { expires_ms: unix_ms + 1, value: b"before" }.put(&mut stored);
        let found = Found::Expiring(OpKind::PutExpiring, Value::copied(&stored));
        let read = at.resolve_now(b"k", found, (view, point), wanted).unwrap();
        assert!(read.is_some(), "{unix_ms}");
        assert_eq!(fetched(&db).0, fetches);
    }
}
