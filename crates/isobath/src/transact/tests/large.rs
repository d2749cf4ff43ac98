//! Commits of more than a write buffer, whose files become a layer of the views: how they are read,
//! what conflicts with them, what takes them in, and what crashes leave.

use super::{assert_at_rest, begin};
use crate::conflict::Slot;
use crate::engine::Keyspace;
use crate::env::Env;
use crate::error::{ConflictKind, ErrorKind};
use crate::footprint::{Interval, ReadKey};
use crate::format::checksum64;
use crate::options::{Isolation, Options};
use crate::transact::ranges::Ranges;
use crate::transact::validate::{Judged, Validation};
use crate::version::manifest_number;
use crate::vfs::{FileSystem, MemoryFs};
use crate::write::Targets;
use crate::{Db, Family, Transaction};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

mod crashes;
mod drawn;
mod edges;
mod ingest;
mod layers;
mod programs;
mod sorted;

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// A database whose transactions hold 32 KiB in memory.
fn over(fs: &MemoryFs) -> Options {
    Options::new().write_buffer(64 << 10).env(Env { fs: Arc::new(fs.clone()), ..Env::system() })
}

fn open(fs: &MemoryFs) -> Db {
    over(fs).open("/db").unwrap()
}

fn key(n: u32) -> Vec<u8> {
    format!("{n:06}").into_bytes()
}

/// Puts the keys below `end`, with a value that is long enough for several files.
fn put_all(tx: &Transaction, end: u32, fill: u8) {
    for n in 0..end {
        tx.put(key(n), [fill; 300]).unwrap();
    }
}

fn spill_files(fs: &MemoryFs) -> usize {
    let dir = Path::new("/db/spill");
    if fs.exists(dir).unwrap() { fs.list(dir).unwrap().len() } else { 0 }
}

fn keyspace(db: &Db) -> Arc<Keyspace> {
    db.engine().default_family.clone()
}

fn layers(db: &Db) -> usize {
    keyspace(db).view().layers.len()
}

/// Keeps flushes from being installed.
struct Held {
    end: Option<Sender<()>>,
    holder: Option<JoinHandle<()>>,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.end.take();
        self.holder.take().map(JoinHandle::join);
    }
}

/// Flushes what there is, and keeps the next flushes from being installed.
fn hold_flushes(db: &Db) -> Held {
    db.flush().unwrap();
    let (engine, (end, ends), (tell, held)) = (db.engine().clone(), channel::<()>(), channel());
    let holder = std::thread::spawn(move || {
        let _pending = engine.families_pending.lock();
        tell.send(()).unwrap();
        let _ = ends.recv();
    });
    held.recv().unwrap();
    Held { end: Some(end), holder: Some(holder) }
}

/// Keeps the thread busy that flushes, so that no table of a layer is begun.
struct Busy {
    _end: Sender<()>,
}

impl Busy {
    fn flusher(db: &Db) -> Busy {
        db.flush().unwrap();
        let ((end, ends), (tell, begun)) = (channel::<()>(), channel());
        let wait = move |_: &_| {
            tell.send(()).unwrap();
            let _ = ends.recv();
        };
        db.engine().flusher.submit(Box::new(wait)).unwrap();
        begun.recv().unwrap();
        Busy { _end: end }
    }
}

fn rows(range: crate::Range<'_>) -> Map {
    range.map(Result::unwrap).map(|(key, value)| (key.to_vec(), value.to_vec())).collect()
}

/// Each way to read says what the map has.
#[track_caller]
fn assert_shows(family: &Family, map: &Map) {
    assert!(rows(family.range(..)) == *map, "forward");
    let back: Vec<_> = family.range(..).rev().map(|row| row.unwrap().0.to_vec()).collect();
    assert!(back.iter().eq(map.keys().rev()), "backward");
    let ends = |row: Option<(crate::Value, crate::Value)>| row.map(|(key, _)| key.to_vec());
    assert_eq!(ends(family.first().unwrap()).as_ref(), map.keys().next());
    assert_eq!(ends(family.last().unwrap()).as_ref(), map.keys().next_back());
    assert_eq!(family.count(..).unwrap(), map.len() as u64);
    let mut sought: Vec<Vec<u8>> = map.keys().step_by(7).cloned().collect();
    sought.extend((0..40).map(|n| key(n * 13)));
    let values = family.multi_get(&sought).unwrap();
    for (key, value) in sought.iter().zip(values) {
        assert_eq!(value.as_deref(), map.get(key).map(Vec::as_slice), "{key:?}");
        assert_eq!(family.contains(key).unwrap(), map.contains_key(key));
        let range: (Bound<Vec<u8>>, Bound<Vec<u8>>) =
            (Bound::Included(key.clone()), Bound::Unbounded);
        let next = map.range::<Vec<u8>, _>(range.clone()).next().map(|(key, _)| key.clone());
        let mut from = family.range(range);
        assert_eq!(from.next().map(|row| row.unwrap().0.to_vec()), next);
    }
}

/// Removes all that says which tables and which part of the log count.
fn lose_manifest(fs: &MemoryFs) {
    let dir = Path::new("/db");
    for entry in fs.list(dir).unwrap() {
        if entry.name == "CURRENT" || manifest_number(&entry.name).is_some() {
            fs.remove(&dir.join(&entry.name)).unwrap();
        }
    }
}

/// What an open of a copy finds.
fn recovered(left: &MemoryFs) -> Db {
    let db = open(left);
    assert_eq!(spill_files(left), 0, "an open leaves none");
    db
}

/// Draws numbers that follow from a seed.
struct Rng(u64);

impl Rng {
    fn below(&mut self, end: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

/// Puts, deletes and range deletes in several files. In `side` it deletes `gone` and puts `new`.
fn write_much(tx: &Transaction, side: &Family, map: &mut Map) {
    tx.delete_range(key(30)..key(60)).unwrap();
    map.retain(|other, _| *other < key(30) || *other >= key(60));
    for n in (0..1000).step_by(2) {
        tx.put(key(n), [1; 300]).unwrap();
        map.insert(key(n), vec![1; 300]);
    }
    // In a later file than what they hide.
    tx.delete_range(key(100)..key(200)).unwrap();
    map.retain(|other, _| *other < key(100) || *other >= key(200));
    for n in (0..1000).step_by(5) {
        tx.delete(key(n)).unwrap();
        map.remove(&key(n));
    }
    tx.put(key(150), "again").unwrap();
    map.insert(key(150), b"again".to_vec());
    tx.of(side).delete("gone").unwrap();
    tx.of(side).put("new", [2; 400]).unwrap();
}

#[test]
fn a_large_commit_is_read_where_it_is_then_from_its_table_and_after_a_crash() {
    let fs = MemoryFs::new();
    let db = open(&fs);
    let side = db.family("side").unwrap();
    let mut map = Map::new();
    for n in 0..200 {
        db.put(key(n * 3), "before").unwrap();
        map.insert(key(n * 3), b"before".to_vec());
    }
    side.put("gone", "before").unwrap();
    let flushes = hold_flushes(&db);
    let snapshot = db.snapshot();
    let before = map.clone();
    let tx = db.begin();
    write_much(&tx, &side, &mut map);
    let tail = db.engine().log.tail();
    tx.commit().unwrap();
    assert!(db.engine().log.tail() - tail < 1000, "the record names files");
    assert!(layers(&db) > 3, "{}", layers(&db));
    let of_side = Map::from([(b"new".to_vec(), vec![2; 400])]);
    let family = db.default_family();
    assert_shows(&family, &map);
    assert_shows(&side, &of_side);
    assert!(rows(snapshot.range(..)) == before, "an older reader does not see it");
    assert_eq!(snapshot.get(key(2)).unwrap(), None);
    assert_eq!(snapshot.get(key(30)).unwrap().unwrap(), "before");
    let crashed = fs.killed();
    // Newer than the layer, in its hull and outside of it.
    db.put(key(4), "newer").unwrap();
    db.delete(key(6)).unwrap();
    db.put(key(5000), "outside").unwrap();
    map.extend([(key(4), b"newer".to_vec()), (key(5000), b"outside".to_vec())]);
    map.remove(&key(6));
    assert_shows(&family, &map);
    let again = recovered(&fs.killed());
    assert_shows(&again.default_family(), &map);
    assert_shows(&again.family("side").unwrap(), &of_side);
    drop(again);
    let mut iter = db.iter();
    assert!(iter.next().is_some() && spill_files(&fs) > 3);
    drop(flushes);
    db.flush().unwrap();
    assert_eq!(layers(&db), 0);
    assert_shows(&family, &map);
    assert!(rows(snapshot.range(..)) == before);
    assert_eq!(iter.count(), map.len() - 1, "an open iterator keeps the files");
    db.engine().remove_obsolete_files();
    assert_eq!(spill_files(&fs), 0);
    drop(snapshot);
    db.compact().unwrap();
    assert_shows(&family, &map);
    assert_at_rest(db.engine());
    let again = recovered(&fs.killed());
    assert_shows(&again.default_family(), &map);
    // The copy from before the newer writes.
    map.extend([(key(4), vec![1; 300]), (key(6), vec![1; 300])]);
    map.remove(&key(5000));
    assert_shows(&recovered(&crashed).default_family(), &map);
}

#[test]
fn what_is_in_memory_before_a_large_commit_lies_beneath_it() {
    let fs = MemoryFs::new();
    let db = open(&fs);
    for n in 0..50 {
        db.put(key(n), "before").unwrap();
    }
    let tx = db.begin();
    put_all(&tx, 400, 1);
    tx.delete(key(7)).unwrap();
    tx.commit().unwrap();
    let mut map: Map = (0..400).map(|n| (key(n), vec![1; 300])).collect();
    map.remove(&key(7));
    assert_shows(&db.default_family(), &map);
    db.flush().unwrap();
    assert_shows(&db.default_family(), &map);
    assert_shows(&recovered(&fs.killed()).default_family(), &map);
}

#[test]
fn large_commits_over_each_other_lie_in_their_order_also_when_they_are_replayed() {
    let fs = MemoryFs::new();
    let db = open(&fs);
    let mut map = Map::new();
    for round in 1..4u8 {
        let tx = db.begin();
        put_all(&tx, 300 + 50 * u32::from(round), round);
        map.extend((0..300 + 50 * u32::from(round)).map(|n| (key(n), vec![round; 300])));
        tx.delete(key(u32::from(round))).unwrap();
        map.remove(&key(round.into()));
        tx.commit().unwrap();
        assert_shows(&db.default_family(), &map);
        db.put(key(20 + u32::from(round)), "between").unwrap();
        map.insert(key(20 + u32::from(round)), b"between".to_vec());
        assert_shows(&recovered(&fs.killed()).default_family(), &map);
        // A second crash while the first is recovered from changes nothing.
        let left = fs.killed();
        drop(open(&left));
        assert_shows(&recovered(&left.killed()).default_family(), &map);
    }
    assert_shows(&db.default_family(), &map);
    db.close().unwrap();
    assert_shows(&recovered(&fs).default_family(), &map);
}

#[test]
fn a_close_or_a_dropped_family_takes_a_layer_with_it_and_nothing_else() {
    let fs = MemoryFs::new();
    let db = open(&fs);
    let side = db.family("side").unwrap();
    let flushes = hold_flushes(&db);
    let tx = db.begin();
    put_all(&tx, 200, 1);
    for n in 0..200 {
        tx.of(&side).put(key(n), [2; 300]).unwrap();
    }
    tx.commit().unwrap();
    let snapshot = db.snapshot();
    let killed = fs.killed();
    drop(flushes);
    db.drop_family(&side).unwrap();
    assert_eq!(snapshot.of(&side).count(..).unwrap(), 200);
    drop(snapshot);
    let map: Map = (0..200).map(|n| (key(n), vec![1; 300])).collect();
    assert_shows(&db.default_family(), &map);
    db.close().unwrap();
    assert_eq!(spill_files(&fs), 0);
    let again = recovered(&fs);
    assert!(again.family_if_exists("side").unwrap().is_none());
    assert_shows(&again.default_family(), &map);
    assert_eq!(recovered(&killed).family("side").unwrap().count(..).unwrap(), 200);
}

/// Writers in what it has locked wait for it.
#[test]
fn a_large_commit_removes_no_file_of_another_one() {
    let fs = MemoryFs::new();
    let db = open(&fs);
    db.engine().maintenance.close();
    let commit = |fill: u8| {
        let tx = db.begin();
        put_all(&tx, 400, fill);
        tx.commit().unwrap();
    };
    commit(1);
    let of_first = spill_files(&fs);
    commit(2);
    assert!(of_first > 1 && spill_files(&fs) >= 2 * of_first);
    db.flush().unwrap();
    assert_eq!(spill_files(&fs), 0);
}

#[test]
fn a_transaction_that_fits_a_write_buffer_leaves_no_layer() {
    let fs = MemoryFs::new();
    let db = open(&fs);
    let _flushes = hold_flushes(&db);
    let tx = db.begin();
    put_all(&tx, 120, 1);
    assert_eq!(spill_files(&fs), 1);
    tx.commit().unwrap();
    assert_eq!((layers(&db), spill_files(&fs)), (0, 0));
    assert_eq!(db.count(..).unwrap(), 120);
}

#[test]
fn who_relies_on_what_a_large_commit_writes_meets_a_conflict() {
    let relies = |db: &Db, what: u32| {
        let tx = begin(db, if what < 2 { Isolation::Serializable } else { Isolation::Snapshot });
        match what {
            0 => drop(tx.get(key(123)).unwrap()),
            1 => assert_eq!(tx.range(key(120)..key(130)).count(), 0),
            _ => tx.put(key(123), "mine").unwrap(),
        }
        tx.put("unrelated", "mine").unwrap();
        tx
    };
    for (what, is_flushed) in (0..3).flat_map(|what| [(what, false), (what, true)]) {
        let fs = MemoryFs::new();
        let db = open(&fs);
        let flushes = hold_flushes(&db);
        let tx = relies(&db, what);
        let free = begin(&db, Isolation::Serializable);
        assert!(free.get("free").unwrap().is_none());
        free.put("free", "mine").unwrap();
        let large = db.begin();
        put_all(&large, 400, 1);
        large.commit().unwrap();
        assert!(layers(&db) > 0);
        drop(flushes);
        if is_flushed {
            db.flush().unwrap();
        }
        let told = tx.commit().unwrap_err();
        assert!(told.is_conflict(), "{what} {told}");
        free.commit().unwrap();
        assert_at_rest(db.engine());
    }
}

#[test]
fn a_large_commit_conflicts_with_what_came_into_its_hull_where_the_first_committer_wins() {
    for level in [Isolation::Snapshot, Isolation::Serializable, Isolation::ReadCommitted] {
        let fs = MemoryFs::new();
        let db = open(&fs);
        let tx = begin(&db, level);
        put_all(&tx, 400, 1);
        db.put(key(123), "theirs").unwrap();
        let told = tx.commit();
        assert_eq!(told.is_err(), level == Isolation::Snapshot, "{told:?}");
        let expected = if told.is_ok() { vec![1; 300] } else { b"theirs".to_vec() };
        assert_eq!(db.get(key(123)).unwrap().unwrap(), expected);
        db.flush().unwrap();
        assert_eq!((db.get(key(123)).unwrap().unwrap().to_vec(), spill_files(&fs)), (expected, 0));
        assert_at_rest(db.engine());
    }
}

#[test]
fn a_large_commit_fails_by_a_read_that_has_changed_and_can_be_run_again() {
    let fs = MemoryFs::new();
    let db = open(&fs);
    let mut attempts = 0;
    db.transact(|tx| {
        attempts += 1;
        tx.get("read")?;
        put_all(tx, 400, attempts);
        if attempts == 1 {
            db.put("read", "theirs")?;
        }
        Ok(())
    })
    .unwrap();
    assert_eq!((attempts, db.count(..).unwrap()), (2, 401));
    assert_eq!(db.get(key(3)).unwrap().unwrap(), [2; 300]);
    assert_at_rest(db.engine());
}

/// What a commit that looked before a large one says once it has its LSN behind it.
#[test]
fn a_commit_that_judges_what_a_large_one_wrote_in_between_starts_over() {
    let fs = MemoryFs::new();
    let db = open(&fs);
    let engine = db.engine();
    db.put(key(1), "before").unwrap();
    // The gate opens, so that words are stamped.
    let gate = begin(&db, Isolation::Serializable);
    gate.get_for_update("locked").unwrap();
    for (with_range, is_flushed) in [(false, false), (false, true), (true, false), (true, true)] {
        let flushes = hold_flushes(&db);
        let families = [keyspace(&db)];
        let hash = checksum64(&key(123));
        let keys = (!with_range).then(|| key(123));
        let read = keys.iter().map(|key| ReadKey { family: 0, hash, key });
        let range = with_range.then(|| (0, Interval::of_key(&key(123))));
        let ranges = Ranges::new(ConflictKind::Range, &families, range.into_iter());
        let mut relied_on = Validation::new(engine, ConflictKind::Read, &families, read, ranges);
        let point = engine.log.visible();
        relied_on.look(point, 0).unwrap();
        let own = Targets::Many(Vec::<Slot>::new());
        assert_eq!(relied_on.judge(engine.log.tail(), &own).unwrap(), Judged::Unchanged);
        let large = db.begin();
        put_all(&large, 400, 1);
        large.commit().unwrap();
        drop(flushes);
        if is_flushed {
            db.flush().unwrap();
        }
        let judged = relied_on.judge(engine.log.tail(), &own).unwrap();
        assert_eq!(judged, Judged::Unknown, "{with_range} {is_flushed}");
        let told = relied_on.look(point, 0).unwrap_err();
        assert!(told.is_conflict(), "{told}");
    }
}

#[test]
fn a_large_commit_forgets_the_gaps_that_it_fills() {
    let fs = MemoryFs::new();
    let db = open(&fs);
    for n in 0..200 {
        db.put(key(n), "job").unwrap();
        db.put([b"x", &*key(n)].concat(), "job").unwrap();
    }
    db.put("m", "live").unwrap();
    for n in 0..200 {
        db.delete(key(n)).unwrap();
        db.delete([b"x", &*key(n)].concat()).unwrap();
    }
    assert!(db.first().unwrap().unwrap().0 == "m" && db.range("x"..).next().is_none());
    let gaps = || keyspace(&db).view().gaps.clone().unwrap();
    assert!(gaps().hold(&key(50)) && gaps().hold(&[b"x", &*key(50)].concat()));
    let flushes = hold_flushes(&db);
    let tx = db.begin();
    put_all(&tx, 400, 1);
    tx.commit().unwrap();
    assert_eq!(db.first().unwrap().unwrap().0, key(0));
    assert_eq!(db.count(..).unwrap(), 401);
    assert!(gaps().hold(&[b"x", &*key(50)].concat()), "others stay");
    drop(flushes);
    assert_at_rest(db.engine());
}

#[test]
fn operands_that_are_still_in_memory_at_a_large_commit_are_folded_with_what_lies_beneath() {
    let fs = MemoryFs::new();
    let db = over(&fs).open("/db").unwrap();
    let options = crate::FamilyOptions::new().merge_operator("isobath.append");
    let family = db.family(("sums", options)).unwrap();
    family.put("a", "1").unwrap();
    let flushes = hold_flushes(&db);
    let tx = db.begin();
    put_all(&tx, 400, 1);
    tx.of(&family).merge("a", "2").unwrap();
    tx.of(&family).merge("b", "3").unwrap();
    tx.commit().unwrap();
    let expected: Map = [("a", "12"), ("b", "3")].map(|(k, v)| (k.into(), v.into())).into();
    assert!(layers(&db) > 0);
    assert_eq!(rows(family.range(..)), expected);
    assert_eq!(family.get("a").unwrap().unwrap(), "12");
    let killed = fs.killed();
    drop(flushes);
    db.flush().unwrap();
    assert_eq!(rows(family.range(..)), expected);
    let again = recovered(&killed);
    assert_eq!(rows(again.family("sums").unwrap().range(..)), expected);
}

#[test]
fn a_commit_ten_times_the_write_buffer_takes_the_memory_of_two() {
    let fs = MemoryFs::new();
    let buffer = 1 << 20;
    let db = over(&fs).write_buffer(buffer).block_cache(0).open("/db").unwrap();
    db.put("small", "value").unwrap();
    let tx = db.begin();
    // What is known by a number is in the metrics.
    tx.get_for_update("listed").unwrap();
    let mut most = 0;
    for n in 0..11 * 1024 {
        tx.put(key(n), [3; 960]).unwrap();
        most = most.max(db.metrics().transaction_bytes);
    }
    assert!(spill_files(&fs) <= crate::limits::SPILL_FILES_MAX, "{}", spill_files(&fs));
    let taken = || db.metrics().arena_chunks * (128 << 10);
    let before = taken();
    tx.commit().unwrap();
    db.flush().unwrap();
    assert_eq!(db.count(..).unwrap(), 11 * 1024 + 1);
    // All that memtables have taken from the commit to the end of its flush.
    let taken = taken() - before;
    println!("{most} bytes at most in the transaction, {taken} in memtables");
    assert!(most <= buffer, "{most}");
    assert!(taken <= buffer, "{taken}");
    assert!(db.metrics().memtable_reserved_bytes <= buffer);
}

#[test]
fn a_reader_beside_the_writer_sees_all_of_a_large_commit_or_is_told_that_it_is_too_much() {
    let fs = MemoryFs::new();
    let db = open(&fs);
    db.put("before", "value").unwrap();
    let flushes = hold_flushes(&db);
    let reader = over(&fs).write_buffer(1 << 20).read_only(true).open("/db").unwrap();
    let small = over(&fs).read_only(true).open("/db").unwrap();
    let tx = db.begin();
    put_all(&tx, 2000, 1);
    tx.commit().unwrap();
    db.put(key(5), "newer").unwrap();
    assert_eq!(reader.count(..).unwrap(), 1);
    reader.catch_up().unwrap();
    assert_eq!(reader.count(..).unwrap(), 2001);
    assert_eq!(reader.get(key(5)).unwrap().unwrap(), "newer");
    assert_eq!(reader.get(key(6)).unwrap().unwrap(), [1; 300]);
    let told = small.catch_up().unwrap_err();
    assert!(matches!(told.kind(), ErrorKind::MemoryLimit { .. }), "{told}");
    assert_eq!(small.count(..).unwrap(), 1);
    drop(flushes);
    db.flush().unwrap();
    small.catch_up().unwrap();
    reader.catch_up().unwrap();
    assert_eq!((small.count(..).unwrap(), reader.count(..).unwrap()), (2001, 2001));
}

/// Each bug is found by the test beside it, which runs on this thread.
#[cfg(feature = "simulation")]
#[test]
fn planted_bugs_of_large_commits_are_found() {
    use crate::env::planted::{Plant, plant_here};
    let found_by: [(Plant, fn()); 5] = [
        (Plant::LayerNotJudged, a_commit_that_judges_what_a_large_one_wrote_in_between_starts_over),
        (
            Plant::LayerSeenTooEarly,
            a_large_commit_is_read_where_it_is_then_from_its_table_and_after_a_crash,
        ),
        (Plant::GapKeptOverLayer, a_large_commit_forgets_the_gaps_that_it_fills),
        (Plant::HullNotFlushed, what_is_in_memory_before_a_large_commit_lies_beneath_it),
        (
            Plant::SpillNamesNotSynced,
            crashes::a_power_cut_at_each_step_of_commit_and_flush_keeps_what_was_synced,
        ),
    ];
    for (bug, test) in found_by {
        plant_here(bug);
        // What was not flushed in time may yet be flushed before the first look.
        let found = (0..50).any(|_| std::panic::catch_unwind(test).is_err());
        plant_here(Plant::Nothing);
        assert!(found, "{}", bug.name());
    }
}
