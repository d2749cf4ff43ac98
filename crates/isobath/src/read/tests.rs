//! Tests reads against simple models: the bounds of scans, each source of a scan, every place where
//! a version can be, and which files a read does not touch.

mod apart;
mod range_deletes;

use super::source::Source;
use super::*;
use crate::cursor::Cursor;
use crate::engine::Engine;
use crate::env::Env;
use crate::env::fixtures::Draw;
use crate::env::sync::atomic::Ordering;
use crate::error::{Error, ErrorKind};
use crate::format::{OpKind, checksum64};
use crate::sizes::Sizes;
use crate::table::{End, Extent};
use crate::vfs::{Fault, FileOp, MemoryFs};
use crate::{Db, Options, Snapshot};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

/// Opens a database whose compactions cut their outputs at about ten kilobytes.
fn open(fs: &MemoryFs) -> Db {
    let env = Env { fs: Arc::new(fs.clone()), ..Env::system() };
    let mut options = Options::new().write_buffer(64 << 10).env(env);
    options.sizes = Sizes { table_len_min: 16 << 10, ..options.sizes };
    options.open("/db").unwrap()
}

/// The unbounded bound, and every bound at one of `keys`.
fn bounds_at(keys: &[&[u8]]) -> Vec<Bound<Vec<u8>>> {
    let at = |key: &&[u8]| [Bound::Included(key.to_vec()), Bound::Excluded(key.to_vec())];
    let mut bounds: Vec<_> = keys.iter().flat_map(at).collect();
    bounds.push(Bound::Unbounded);
    bounds
}

/// Bounds lie at every other key, so there is a key between any two bounds that differ.
#[test]
fn bounds_are_empty_and_meet_a_slice_as_sets_of_keys_do() {
    let keys = [&b"a"[..], b"b", b"c", b"d", b"e", b"f", b"g"];
    let inner = [keys[1], keys[3], keys[5]];
    for lower in bounds_at(&inner) {
        for upper in bounds_at(&inner) {
            let bounds = ScanBounds { lower: lower.clone(), upper };
            let above = |key: &[u8]| match &bounds.lower {
                Bound::Included(lower) => key >= lower.as_slice(),
                Bound::Excluded(lower) => key > lower.as_slice(),
                Bound::Unbounded => true,
            };
            let below = |key: &[u8]| match &bounds.upper {
                Bound::Included(upper) => key <= upper.as_slice(),
                Bound::Excluded(upper) => key < upper.as_slice(),
                Bound::Unbounded => true,
            };
            let shown: Vec<_> = keys.into_iter().filter(|key| above(key) && below(key)).collect();
            assert_eq!(bounds.is_empty(), shown.is_empty(), "{bounds:?}");
            for (at, smallest) in keys.into_iter().enumerate() {
                for largest in keys.into_iter().skip(at) {
                    let is_met = shown.iter().any(|key| smallest <= *key && *key <= largest);
                    let extent = Extent { start: smallest, end: End::Included(largest) };
                    let meets = extent.meets(&bounds.lower, &bounds.upper) && !bounds.is_empty();
                    assert_eq!(meets, is_met, "{bounds:?} and {smallest:?} to {largest:?}");
                }
            }
        }
    }
}

/// A version as a source shows it, without its sequence number.
type Version = (Vec<u8>, OpKind, Vec<u8>);

/// The even keys are written; no source has the odd ones.
const KEYS: std::ops::Range<u16> = 10..70;

/// A value that does not compress.
fn value_of(key: u16, round: u8) -> Vec<u8> {
    let mut draw = Draw::new(u64::from(key) << 8 | u64::from(round));
    let mut value = vec![round];
    value.resize_with(1000, || draw.next() as u8);
    value
}

/// Writes three versions of every even key. The last version of every third one is a delete.
/// Returns the versions, newest first, and the snapshots that keep them.
fn write_versions(db: &Db, rounds: [u8; 3]) -> (Vec<Version>, Vec<Snapshot>) {
    let (mut versions, mut snapshots) = (Vec::new(), Vec::new());
    for round in rounds {
        for key in KEYS.step_by(2) {
            let name = key.to_be_bytes();
            if round == rounds[2] && key % 3 == 0 {
                db.delete(name).unwrap();
                versions.push((name.to_vec(), OpKind::Delete, Vec::new()));
            } else {
                db.put(name, value_of(key, round)).unwrap();
                versions.push((name.to_vec(), OpKind::Put, value_of(key, round)));
            }
        }
        snapshots.push(db.snapshot());
    }
    versions.reverse();
    versions.sort_by(|a, b| a.0.cmp(&b.0));
    (versions, snapshots)
}

fn shown(source: &Source) -> Option<Version> {
    let entry = source.entry()?;
    if entry.kind == OpKind::Put {
        assert_eq!(source.pinned().unwrap().1, entry.value);
    }
    Some((entry.key.to_vec(), entry.kind, entry.value.to_vec()))
}

/// Compares every move from every position with the same move in a list of all versions.
fn walk(source: &mut Source, versions: &[Version]) {
    let newest_of = |key: Option<&Version>| {
        key.and_then(|(key, ..)| versions.iter().find(|version| version.0 == *key).cloned())
    };
    assert_eq!(shown(source), None, "before the first move");
    source.seek_last().unwrap();
    assert_eq!(shown(source), newest_of(versions.last()));
    for key in KEYS.start - 2..KEYS.end + 2 {
        let key = key.to_be_bytes();
        source.seek(&key).unwrap();
        assert_eq!(
            shown(source),
            versions.iter().find(|version| version.0[..] >= key[..]).cloned()
        );
        source.seek_for_prev(&key).unwrap();
        let below = versions.iter().rfind(|version| version.0[..] <= key[..]);
        assert_eq!(shown(source), newest_of(below));
    }
    let (mut scratch, mut seq_before) = (Vec::new(), None);
    for (at, version) in versions.iter().enumerate() {
        let stand = |source: &mut Source| {
            source.seek(&version.0).unwrap();
            while shown(source).as_ref() != Some(version) {
                Cursor::next(source).unwrap();
            }
        };
        stand(source);
        let seq = source.entry().unwrap().seq;
        let is_same_key = at > 0 && versions[at - 1].0 == version.0;
        assert!(!is_same_key || seq_before > Some(seq), "the newest version of a key is first");
        seq_before = Some(seq);
        Cursor::next(source).unwrap();
        assert_eq!(shown(source), versions.get(at + 1).cloned());
        stand(source);
        source.prev_key().unwrap();
        let before = versions.iter().rfind(|other| other.0 < version.0);
        assert_eq!(shown(source), newest_of(before));
        stand(source);
        source.next_key(&mut scratch).unwrap();
        assert_eq!(shown(source), versions.iter().find(|other| other.0 > version.0).cloned());
    }
    source.seek_first().unwrap();
    assert_eq!(shown(source), versions.first().cloned());
}

/// The number of present keys, and of absent keys between them, for which the source says it may
/// hold the key.
fn held_of_both(source: &Source) -> (usize, usize) {
    let may_hold = |key: &u16| {
        let key = key.to_be_bytes();
        source.may_hold(&key, checksum64(&key)).unwrap()
    };
    (KEYS.step_by(2).filter(may_hold).count(), KEYS.skip(1).step_by(2).filter(may_hold).count())
}

#[test]
fn memtables_runs_and_levels_are_walked_alike() {
    let db = open(&MemoryFs::new());
    let (engine, count) = (db.engine(), KEYS.step_by(2).count());
    let (in_level, _kept_in_level) = write_versions(&db, [1, 2, 3]);
    db.compact().unwrap();
    let view = engine.default_family.view();
    let level = view.tree.levels.iter().find(|level| !level.is_empty()).unwrap();
    assert!(level.len() > 1);
    let mut level = Source::level(level, &engine.tables, true);
    walk(&mut level, &in_level);
    let (held, held_of_others) = held_of_both(&level);
    assert!(held == count && held_of_others < count / 2, "{held_of_others}");

    let db = Options::in_memory().open("/db").unwrap();
    let engine = db.engine();
    let (written, _kept) = write_versions(&db, [4, 5, 6]);
    let mut memtable = Source::memtable(&engine.default_family.view().memtables[0].memtable);
    walk(&mut memtable, &written);
    assert_eq!(held_of_both(&memtable), (count, count), "a memtable has no filter");
    db.flush().unwrap();
    let view = engine.default_family.view();
    let mut run = Source::run(&view.tree.runs[0], &engine.tables, true).unwrap();
    walk(&mut run, &written);
    let (held, held_of_others) = held_of_both(&run);
    assert!(held == count && held_of_others < count / 2, "{held_of_others}");
}

/// As long as a value of a key is stored, the key counts, also in memory.
#[test]
fn a_key_in_memory_counts_among_the_distinct_ones_though_it_was_deleted() {
    let db = Options::in_memory().open("/db").unwrap();
    let count = || db.default_family().distinct_keys().unwrap().keys;
    for key in ["a", "b", "c"] {
        db.put(key, "first").unwrap();
    }
    db.put("b", "second").unwrap();
    db.delete("c").unwrap();
    db.delete("never there").unwrap();
    assert_eq!(count(), 3);
}

type Contents = BTreeMap<Vec<u8>, Vec<u8>>;

/// Checks that every way to read at a point, or at the newest point, shows `contents`.
fn compare(engine: &Arc<Engine>, point: Option<crate::format::Lsn>, contents: &Contents) {
    let family = &engine.default_family;
    let keys: Vec<Vec<u8>> = (0..24).map(|key| vec![key]).collect();
    let point = point.map(|point| crate::engine::Registered { point, era: 0 });
    let at = ReadAt { point, ..ReadAt::newest(engine, family) };
    for key in &keys {
        let expected = contents.get(key);
        assert_eq!(at.get(key).unwrap().as_deref(), expected.map(Vec::as_slice), "{key:?}");
        assert_eq!(at.contains(key).unwrap(), expected.is_some());
    }
    let found = at.multi_get(&keys).unwrap();
    let found = found.iter().map(|value| value.as_deref());
    assert!(found.eq(keys.iter().map(|key| contents.get(key).map(Vec::as_slice))));
    let bounds = ScanBounds { lower: Bound::Excluded(vec![3]), upper: Bound::Included(vec![20]) };
    let mut scan = Pin::new(at).unwrap().scan(&bounds).unwrap();
    let expected = contents.range((bounds.lower.clone(), bounds.upper.clone())).count();
    assert_eq!(at.count(&bounds).unwrap(), expected as u64);
    scan.seek_first().unwrap();
    for (key, value) in contents.range((bounds.lower, bounds.upper)) {
        assert_eq!(scan.entry(), Some((key.as_slice(), value.as_slice())));
        scan.next().unwrap();
    }
    assert_eq!(scan.entry(), None);
}

/// Between the rounds, versions move from memory to runs and to levels. So each point has some
/// versions in each.
#[test]
fn every_point_is_read_alike_wherever_its_versions_are() {
    let db = open(&MemoryFs::new());
    let mut now = Contents::new();
    let mut snapshots = vec![(db.snapshot(), now.clone())];
    for round in 0..24u8 {
        for step in 0..6 {
            let key = vec![(round * 7 + step * 5) % 23];
            if step == round % 6 {
                db.delete(&key).unwrap();
                now.remove(&key);
            } else {
                let value = vec![round; 1 + usize::from(step) * 17];
                db.put(&key, &value).unwrap();
                now.insert(key, value);
            }
        }
        snapshots.push((db.snapshot(), now.clone()));
        if round % 3 != 0 {
            db.flush().unwrap();
        }
        if round % 10 == 5 {
            db.compact().unwrap();
        }
        if snapshots.len() > 12 {
            snapshots.remove(usize::from(round) % 11);
        }
        compare(db.engine(), None, &now);
        for (snapshot, contents) in &snapshots {
            compare(db.engine(), Some(snapshot.point()), contents);
        }
    }
}

#[test]
fn a_scan_opens_the_runs_that_its_bounds_meet_and_no_file_besides() {
    let fs = MemoryFs::new();
    let db = open(&fs);
    // Maintenance compacts what is left alone for some seconds.
    db.engine().maintenance.close();
    for keys in [["a", "c"], ["e", "g"]] {
        for key in keys {
            db.put(key, "value").unwrap();
        }
        db.flush().unwrap();
    }
    db.close().unwrap();
    for (lower, upper, opened) in [
        (Bound::Included("d"), Bound::Included("b"), 0),
        (Bound::Excluded("e"), Bound::Excluded("e"), 0),
        (Bound::Excluded("c"), Bound::Excluded("e"), 0),
        (Bound::Unbounded, Bound::Excluded("a"), 0),
        (Bound::Included("c"), Bound::Excluded("e"), 1),
        (Bound::Included("c"), Bound::Included("e"), 2),
        (Bound::Unbounded, Bound::Unbounded, 2),
    ] {
        let db = open(&fs);
        let engine = db.engine();
        engine.maintenance.close();
        assert_eq!(engine.default_family.view().tree.runs.len(), 2);
        let own = |bound: Bound<&str>| bound.map(|key| key.as_bytes().to_vec());
        let bounds = ScanBounds { lower: own(lower), upper: own(upper) };
        let pin = Pin::new(ReadAt::newest(engine, &engine.default_family)).unwrap();
        pin.scan(&bounds).unwrap();
        assert_eq!(engine.tables.files.open_count(), opened, "{bounds:?}");
    }
}

#[test]
fn keys_that_promise_to_be_countless_are_read_without_memory_for_all_of_them() {
    struct Boast(std::vec::IntoIter<&'static str>);
    impl Iterator for Boast {
        type Item = &'static str;

        fn next(&mut self) -> Option<&'static str> {
            self.0.next()
        }

        fn size_hint(&self) -> (usize, Option<usize>) {
            (usize::MAX, None)
        }
    }
    let db = open(&MemoryFs::new());
    db.put("a", "value").unwrap();
    let found = db.multi_get(Boast(vec!["a", "b"].into_iter())).unwrap();
    assert_eq!(found, [Some(db.get("a").unwrap().unwrap()), None]);
}

#[test]
fn a_count_that_cannot_read_a_block_fails_whichever_it_is() {
    let fs = MemoryFs::new();
    let env = Env { fs: Arc::new(fs.clone()), ..Env::system() };
    let options = Options::new().env(env).block_cache(0);
    let db = options.clone().open("/db").unwrap();
    for n in 0..50u64 {
        // Bytes that do not compress, so that the scan reads several pieces of the file.
        let words = (0..400).map(|at| (n * 400 + at + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let value: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
        db.put(format!("key{n:02}"), value).unwrap();
    }
    db.flush().unwrap();
    db.close().unwrap();
    let db = options.open("/db").unwrap();
    let mut failed = 0;
    loop {
        fs.inject(Fault::on(FileOp::Read).suffix(".tbl").nth(failed + 1).forever());
        let counted = db.count(..);
        fs.clear_faults();
        match counted {
            Ok(count) => break assert_eq!(count, 50),
            Err(error) => assert!(error.io_kind().is_some(), "{error}"),
        }
        failed += 1;
    }
    assert!(failed >= 5, "the fault struck {failed} reads only");
}

#[test]
fn a_scan_of_bounds_without_keys_has_no_sources() {
    let db = open(&MemoryFs::new());
    db.put("key", "value").unwrap();
    let at = ReadAt::newest(db.engine(), &db.engine().default_family);
    let pin = Pin::new(at).unwrap();
    for (least, count) in [(b"j", 1), (b"k", 1), (b"l", 0)] {
        let bounds = ScanBounds {
            lower: Bound::Included(least.into()),
            upper: Bound::Included(b"k".into()),
        };
        assert_eq!(pin.scan(&bounds).unwrap().source_count(), count, "{bounds:?}");
    }
}

#[test]
fn a_get_opens_no_run_that_is_newer_than_its_point_or_beside_its_key() {
    let db = open(&MemoryFs::new());
    let files = &db.engine().tables.files;
    let before = db.snapshot();
    db.put("a", "value").unwrap();
    db.put("c", "value").unwrap();
    let after = db.snapshot();
    db.flush().unwrap();
    let run = db.engine().default_family.view().tree.runs[0].clone();
    assert_eq!(run.meta.min_seq, before.point());
    assert_eq!(files.open_count(), 0);
    assert!(before.get("a").unwrap().is_none());
    assert!(after.get("d").unwrap().is_none());
    assert_eq!(files.open_count(), 0);
    assert_eq!(after.get("c").unwrap().unwrap(), b"value");
    assert_eq!(files.open_count(), 1);
}

/// Memory is empty. The data is in two runs at first, and then in a level.
#[test]
fn a_view_without_memtables_is_scanned_to_its_end() {
    let db = open(&MemoryFs::new());
    for key in ["a", "b"] {
        db.put(key, "value").unwrap();
        db.flush().unwrap();
    }
    for _ in 0..2 {
        assert!(db.engine().default_family.view().memtables.is_empty());
        assert_eq!(db.range(..).count(), 2);
        assert_eq!(db.get("b").unwrap().unwrap(), b"value");
        db.compact().unwrap();
    }
    assert!(db.engine().default_family.view().tree.runs.is_empty());
}

#[test]
fn reads_begin_in_an_open_database_at_points_where_the_family_exists() {
    let db = open(&MemoryFs::new());
    let family = db.family("brief").unwrap();
    family.put("key", "value").unwrap();
    let engine = db.engine().clone();
    let known = engine.families.by_name("brief").unwrap();
    let snapshot = db.snapshot();
    db.drop_family(&family).unwrap();
    assert_eq!(snapshot.of(&family).get("key").unwrap().unwrap(), b"value");
    let bounds = ScanBounds { lower: Bound::Unbounded, upper: Bound::Unbounded };
    let is_unknown = |error: Option<Error>| {
        let error = error.unwrap();
        matches!(error.kind(), ErrorKind::UnknownFamily { name, .. } if name == "brief")
    };
    let at = ReadAt::newest(&engine, &known);
    assert!(is_unknown(at.get(b"key").err()));
    assert!(is_unknown(at.multi_get(["key"]).err()));
    assert!(is_unknown(Pin::new(at).err()));
    let at = ReadAt::newest(&engine, &engine.default_family);
    let pin = Pin::new(at).unwrap();
    drop(snapshot);
    db.close().unwrap();
    let is_closed = |error: Option<Error>| error.unwrap().is_closed();
    assert!(is_closed(at.get(b"key").err()));
    assert!(is_closed(at.multi_get(["key"]).err()));
    assert!(is_closed(Pin::new(at).err()));
    pin.scan(&bounds).unwrap();
}

#[test]
fn no_read_begins_once_a_close_has_begun() {
    let db = open(&MemoryFs::new());
    db.put("key", "value").unwrap();
    let engine = db.engine();
    let at = ReadAt::newest(engine, &engine.default_family);
    engine.closed.store(true, Ordering::SeqCst);
    assert!(at.get(b"key").unwrap_err().is_closed());
    assert!(Pin::new(at).err().unwrap().is_closed());
    engine.closed.store(false, Ordering::SeqCst);
    assert!(at.get(b"key").unwrap().is_some());
}

#[test]
fn a_count_whose_first_block_cannot_be_read_is_an_error_and_not_zero() {
    let fs = MemoryFs::new();
    let db = open(&fs);
    // More than an open reads of a table with its end.
    let noise = (1..10_000u64).flat_map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
    let value: Vec<u8> = noise.collect();
    db.put("a", &value).unwrap();
    db.put("z", &value).unwrap();
    db.flush().unwrap();
    db.close().unwrap();
    for failing in 1.. {
        let db = open(&fs);
        // Opens the table and reads no block.
        assert!(db.get("m").unwrap().is_none());
        let read = fs.tried(FileOp::Read);
        fs.inject(Fault::on(FileOp::Read).suffix(".tbl").nth(failing));
        let counted = db.count(..);
        fs.clear_faults();
        if fs.tried(FileOp::Read) - read < failing {
            assert!(counted.unwrap() == 2 && failing > 1);
            break;
        }
        assert!(counted.is_err(), "{counted:?} though read {failing} failed");
    }
}

/// The block may be readable when it is asked for again, and then no key below may stand for it.
#[test]
fn a_seek_back_whose_block_cannot_be_read_is_an_error_and_no_lower_key() {
    let fs = MemoryFs::new();
    let db = open(&fs);
    let noise = (1..10_000u64).flat_map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
    let value: Vec<u8> = noise.collect();
    for key in ["a", "k", "z"] {
        db.put(key, &value).unwrap();
    }
    db.flush().unwrap();
    db.close().unwrap();
    for failing in 1.. {
        let db = open(&fs);
        assert!(db.get("m").unwrap().is_none());
        let mut cursor = db.cursor(..).unwrap();
        let read = fs.tried(FileOp::Read);
        fs.inject(Fault::on(FileOp::Read).suffix(".tbl").nth(failing));
        let found = cursor.seek_for_prev("k").map(|found| found.map(|entry| entry.key().to_vec()));
        fs.clear_faults();
        if fs.tried(FileOp::Read) - read < failing {
            assert!(found.unwrap().unwrap() == b"k" && failing > 1);
            break;
        }
        assert!(found.is_err(), "{found:?} though read {failing} failed");
    }
}

/// What `multi_get` says of keys in any order, some of them twice, is what a get says of each.
#[test]
fn keys_read_together_have_the_values_that_each_has_alone() {
    for seed in 0..12 {
        let draw = &mut Draw::new(seed);
        let db = open(&MemoryFs::new());
        let key = |draw: &mut Draw| format!("{:03}", draw.below(400)).into_bytes();
        let mut snapshots = vec![db.snapshot()];
        for _ in 0..40 {
            for _ in 0..draw.below(60) {
                db.put(key(draw), vec![draw.below(250) as u8; draw.index(400)]).unwrap();
                db.delete(key(draw)).unwrap();
            }
            match draw.below(5) {
                0 => {
                    let (one, other) = (key(draw), key(draw));
                    let end = one.clone().max(other.clone());
                    db.delete_range(one.min(other)..end).unwrap();
                }
                1 => db.compact().unwrap(),
                2 => db.flush().unwrap(),
                3 => snapshots.push(db.snapshot()),
                _ => {}
            }
            let keys: Vec<_> = (0..draw.below(70)).map(|_| key(draw)).collect();
            let alone: Vec<_> = keys.iter().map(|key| db.get(key).unwrap()).collect();
            assert_eq!(db.multi_get(&keys).unwrap(), alone);
            let snapshot = &snapshots[draw.index(snapshots.len())];
            let alone: Vec<_> = keys.iter().map(|key| snapshot.get(key).unwrap()).collect();
            assert_eq!(snapshot.multi_get(&keys).unwrap(), alone);
        }
    }
}

#[test]
fn keys_of_one_block_are_read_with_it_once() {
    let fs = MemoryFs::new();
    let env = Env { fs: Arc::new(fs.clone()), ..Env::system() };
    let db = Options::new().env(env).block_cache(0).open("/db").unwrap();
    let key = |n: u64| format!("key{n:04}");
    for n in 0..2000 {
        db.put(key(n), format!("{:064x}", u128::from(n).wrapping_mul(0x9e37_79b9_7f4a_7c15)))
            .unwrap();
    }
    db.flush().unwrap();
    // In two parts of the table by turns.
    let near: Vec<_> = (0..40).map(|n| key(n % 2 * 1000 + n % 13)).collect();
    let read = |keys: &[String]| {
        let before = fs.tried(FileOp::Read);
        assert!(db.multi_get(keys).unwrap().iter().all(Option::is_some));
        fs.tried(FileOp::Read) - before
    };
    read(&near);
    let once = read(&near[..1]);
    assert!(read(&near) <= 4 * once, "forty keys in two to four blocks");
    let far: Vec<_> = (0..20).map(|n| key(n * 100)).collect();
    assert_eq!(read(&far), 20 * once);
    // More than go through the sources at a time.
    let all: Vec<_> = (0..4000).map(|n| key(n * 7 % 2000)).collect();
    let reads = read(&all);
    assert!(reads < 60 * once, "{reads} reads of a table of some fifty blocks");
    let together = db.multi_get(&all).unwrap();
    assert!(all.iter().zip(&together).all(|(key, value)| db.get(key).unwrap() == *value));
}
