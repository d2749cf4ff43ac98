//! Values in blob files, in a whole database: every read finds them, compactions leave them where
//! they lie, and what nothing needs any more goes.

use crate::env::Env;
use crate::env::fixtures::soon;
use crate::options::{FamilyOptions, Options};
use crate::vfs::{FileSystem, MemoryFs};
use crate::{Codec, Db, Family, FilterEntry, FilterVerdict};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

mod counted;
mod trouble;

const FROM: u64 = 100;

struct Bench {
    fs: MemoryFs,
}

impl Bench {
    fn new() -> Bench {
        Bench { fs: MemoryFs::new() }
    }

    fn options(&self) -> Options {
        let env = Env { fs: Arc::new(self.fs.clone()), ..Env::system() };
        let options = Options::new().env(env).write_buffer(256 << 10).compaction_threads(1);
        options.compaction_filter("no drafts", |entry: FilterEntry<'_>| match entry.value {
            [b'd', ..] => FilterVerdict::Remove,
            [b'r', ..] => FilterVerdict::Replace(vec![b'n'; 300]),
            _ => FilterVerdict::Keep,
        })
    }

    fn open(&self) -> Db {
        self.options().open("/db").unwrap()
    }

    fn open_family(&self) -> (Db, Family) {
        let db = self.open();
        let family = db.family(("f", FamilyOptions::new().separate_from(FROM))).unwrap();
        (db, family)
    }

    /// The lengths of the blob files that exist, by number.
    fn blobs(&self) -> BTreeMap<String, u64> {
        let dir = Path::new("/db/table");
        let entries = self.fs.list(dir).unwrap().into_iter();
        let is_blob = |name: &str| {
            let file = self.fs.open_read(&dir.join(name), crate::vfs::FileAccess::Positional);
            let mut header = [0; 16];
            // It may be under way, or gone by now.
            file.and_then(|file| file.read_at(0, &mut header)).is_ok() && header[8] == 3
        };
        let blobs = entries.filter(|entry| is_blob(&entry.name));
        blobs.map(|entry| (entry.name, entry.len)).collect()
    }

    /// Waits until no reader, compaction or clean-up holds a file that this one sees.
    fn wait_until(&self, is_so: impl Fn(&BTreeMap<String, u64>) -> bool) {
        for _ in 0..12_000 {
            if is_so(&self.blobs()) {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("{:?}", self.blobs());
    }

    fn blob_bytes(&self) -> u64 {
        self.blobs().values().sum()
    }
}

fn value(key: u32, round: u8, len: usize) -> Vec<u8> {
    let mut random = u64::from(key) << 8 | u64::from(round);
    let mut byte = || {
        random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (random >> 56) as u8 | 1
    };
    (0..len).map(|_| byte()).collect()
}

fn key(nth: u32) -> String {
    format!("key {nth:06}")
}

fn put(family: &Family, entries: &BTreeMap<String, Vec<u8>>) {
    for (key, value) in entries {
        family.put(key, value).unwrap();
    }
}

/// Reads all that there should be, in every way.
fn check(family: &Family, expected: &BTreeMap<String, Vec<u8>>) {
    for (key, value) in expected {
        assert_eq!(family.get(key).unwrap().unwrap(), value, "{key}");
        assert!(family.contains(key).unwrap());
    }
    let keys: Vec<&String> = expected.keys().collect();
    let values = family.multi_get(&keys).unwrap();
    assert!(values.iter().map(|value| value.as_deref().unwrap()).eq(expected.values()));
    let item = |item: crate::Result<(crate::Key, crate::Value)>| {
        let (key, value) = item.unwrap();
        (String::from_utf8(key.to_vec()).unwrap(), value.to_vec())
    };
    let all = || expected.iter().map(|(key, value)| (key.clone(), value.clone()));
    assert!(family.range(..).map(item).eq(all()));
    assert!(family.range(..).rev().map(item).eq(all().rev()));
    assert!(family.range(..).keys().map(|key| key.unwrap()).eq(expected.keys()));
    assert!(family.range(..).values().map(|value| value.unwrap()).eq(expected.values()));
    assert_eq!(family.count(..).unwrap(), expected.len() as u64);
    let mut cursor = family.cursor(..).unwrap();
    let mut found = Vec::new();
    cursor.first().unwrap();
    while let Some(entry) = cursor.entry() {
        assert_eq!(entry.value_len(), entry.value().unwrap().len() as u64);
        found.push((
            String::from_utf8(entry.key().to_vec()).unwrap(),
            entry.value().unwrap().to_vec(),
        ));
        cursor.next().unwrap();
    }
    assert!(found.into_iter().eq(all()));
}

#[test]
fn values_from_a_length_on_lie_in_blob_files_and_every_read_finds_them() {
    let bench = Bench::new();
    let (db, family) = bench.open_family();
    let mut expected = BTreeMap::new();
    for (nth, len) in [0, 5, 30, 99, 100, 101, 4000, 70_000, 2_000_000].into_iter().enumerate() {
        expected.insert(key(nth as u32), value(nth as u32, 0, len));
    }
    put(&family, &expected);
    check(&family, &expected);
    assert_eq!(bench.blobs().len(), 0);
    db.flush().unwrap();
    let (long, short): (Vec<_>, Vec<_>) =
        expected.values().partition(|value| value.len() >= FROM as usize);
    let sum = |values: &[&Vec<u8>]| values.iter().map(|value| value.len() as u64).sum::<u64>();
    let blobs = bench.blobs();
    let frames = 128 + 9 * long.len() as u64;
    assert_eq!((blobs.len(), bench.blob_bytes()), (1, sum(&long) + frames), "random bytes stay");
    check(&family, &expected);
    let metrics = db.metrics();
    let tables = metrics.table_bytes();
    assert!(tables < 1000 + sum(&short), "{tables}");
    let stored = sum(&long) + 9 * long.len() as u64;
    assert_eq!((metrics.blob_files, metrics.blob_live_bytes), (1, stored));
    assert_eq!(metrics.blob_garbage_bytes(), 128, "the header");
    let levels = metrics.families.iter().flat_map(|family| &family.levels);
    let (values, bytes): (u64, u64) = levels
        .map(|level| (level.separated_values, level.separated_bytes))
        .fold((0, 0), |sum, of| (sum.0 + of.0, sum.1 + of.1));
    assert_eq!((values, bytes), (long.len() as u64, stored));
    db.compact().unwrap();
    check(&family, &expected);
    assert_eq!(bench.blobs(), blobs, "compactions leave values where they lie");
    drop((db, family));
    let (db, family) = bench.open_family();
    check(&family, &expected);
    // Until it is flushed, a new value lies in memory, and hides the old one.
    expected.insert(key(6), value(6, 1, 5000));
    family.put(key(6), &expected[&key(6)]).unwrap();
    check(&family, &expected);
    db.close().unwrap();
}

#[test]
fn values_are_compressed_if_that_saves_room() {
    let bench = Bench::new();
    let (db, family) = bench.open_family();
    family.put("zeros", vec![0; 100_000]).unwrap();
    db.flush().unwrap();
    assert!(bench.blob_bytes() < 2000, "{:?}", bench.blobs());
    assert_eq!(family.get("zeros").unwrap().unwrap(), [0; 100_000]);
    let plain = db.family(("p", FamilyOptions::new().codec(Codec::None).separate_from(1))).unwrap();
    plain.put("zeros", vec![0; 100_000]).unwrap();
    db.flush().unwrap();
    assert!(bench.blob_bytes() > 100_000);
}

#[test]
fn what_nothing_needs_goes_and_what_is_mostly_garbage_moves() {
    let bench = Bench::new();
    let (db, family) = bench.open_family();
    let mut expected = BTreeMap::new();
    for nth in 0..500 {
        expected.insert(key(nth), value(nth, 0, 1000));
    }
    put(&family, &expected);
    db.compact().unwrap();
    let before = bench.blobs();
    let (snapshot, old) = (db.snapshot(), expected.clone());
    for (nth, round) in (0..500).map(|nth| (nth, 1)).filter(|(nth, _)| nth % 4 > 0) {
        expected.insert(key(nth), value(nth, round, 1000));
        family.put(key(nth), &expected[&key(nth)]).unwrap();
    }
    db.compact().unwrap();
    check(&family, &expected);
    let seen = |key: &String| snapshot.of(&family).get(key).unwrap().unwrap();
    old.iter().for_each(|(key, value)| assert_eq!(seen(key), value));
    assert!(before.keys().all(|blob| bench.blobs().contains_key(blob)), "the snapshot needs them");
    let mut held = family.range(..);
    let first = held.next().unwrap().unwrap().1;
    drop(snapshot);
    // What a snapshot has kept goes with the next compaction of its keys.
    for nth in [0, 499] {
        family.put(key(nth), &expected[&key(nth)]).unwrap();
    }
    db.compact().unwrap();
    db.wait_for_compactions(None).unwrap();
    assert_eq!(first, expected[&key(0)]);
    assert!(held.map(|item| item.unwrap().1).eq(expected.values().skip(1)));
    check(&family, &expected);
    let live: u64 = expected.values().map(|value| value.len() as u64 + 9).sum();
    bench.wait_until(|blobs| {
        blobs.values().sum::<u64>() * 65 <= (live + 4 * 128) * 100
            && before.keys().all(|blob| !blobs.contains_key(blob))
    });
    family.delete_range(..).unwrap();
    db.compact().unwrap();
    bench.wait_until(|blobs| blobs.is_empty());
}

#[test]
fn a_family_that_is_dropped_leaves_no_blob_file() {
    let bench = Bench::new();
    let (db, family) = bench.open_family();
    family.put("a", value(1, 1, 1000)).unwrap();
    db.flush().unwrap();
    assert_eq!(bench.blobs().len(), 1);
    db.drop_family(&family).unwrap();
    db.put("a", "b").unwrap();
    db.compact().unwrap();
    bench.wait_until(|blobs| blobs.is_empty());
}

#[test]
fn the_length_may_change_and_compactions_follow() {
    let bench = Bench::new();
    let db = bench.open();
    let family = db.family("f").unwrap();
    let mut expected = BTreeMap::from([(key(1), value(1, 0, 500)), (key(2), value(2, 0, 50))]);
    put(&family, &expected);
    db.flush().unwrap();
    assert_eq!(bench.blobs().len(), 0);
    drop((family, db));
    let (db, family) = bench.open_family();
    check(&family, &expected);
    expected.insert(key(3), value(3, 0, 700));
    family.put(key(3), &expected[&key(3)]).unwrap();
    db.compact().unwrap();
    check(&family, &expected);
    assert_eq!(bench.blob_bytes(), 2 * 128 + 500 + 700 + 2 * 9, "{:?}", bench.blobs());
    drop((family, db));
    let db = bench.open();
    let family = db.family(("f", FamilyOptions::new().separate_from(None))).unwrap();
    expected.insert(key(4), value(4, 0, 900));
    family.put(key(4), &expected[&key(4)]).unwrap();
    db.compact().unwrap();
    check(&family, &expected);
    assert_eq!(bench.blob_bytes(), 2 * 128 + 500 + 700 + 2 * 9, "what is there stays there");
}

#[test]
fn values_that_end_keep_their_end_wherever_they_lie() {
    let bench = Bench::new();
    let (db, family) = bench.open_family();
    let (short, long) = (value(1, 0, 20), value(2, 0, 400));
    for (key, value) in [("short", &short), ("long", &long)] {
        family.put_ttl(key, value, Duration::from_secs(3600)).unwrap();
        let ends = [key, "ended"].concat();
        family.put_ttl(ends, value, Duration::from_millis(1)).unwrap();
    }
    let end = family.get_expiry("long").unwrap().unwrap().1;
    std::thread::sleep(Duration::from_millis(5));
    for round in 0..2 {
        db.flush().unwrap();
        let (value, until) = family.get_expiry("long").unwrap().unwrap();
        assert_eq!((&*value, until), (&*long, end));
        assert_eq!(family.get("short").unwrap().unwrap(), short);
        assert_eq!(family.get("longended").unwrap(), None);
        assert!(!family.contains("longended").unwrap() && family.contains("long").unwrap());
        let all: Vec<_> = family.range(..).map(|item| item.unwrap().1.to_vec()).collect();
        assert_eq!(all, [long.clone(), short.clone()], "{round}");
        db.compact().unwrap();
    }
}

#[test]
fn operands_filters_and_spans_work_on_values_that_lie_elsewhere() {
    let bench = Bench::new();
    let db = bench.open();
    let options = FamilyOptions::new().separate_from(FROM).merge_operator("isobath.append");
    let merged = db.family(("m", options)).unwrap();
    let base = value(1, 0, 300);
    merged.put("k", &base).unwrap();
    merged.put("other", &base).unwrap();
    db.flush().unwrap();
    let mut expected = base.clone();
    for operand in ["one", "two"] {
        merged.merge("k", operand).unwrap();
        expected.extend_from_slice(operand.as_bytes());
        assert_eq!(merged.get("k").unwrap().unwrap(), expected);
        db.flush().unwrap();
        assert_eq!(merged.get("k").unwrap().unwrap(), expected);
        let values: Vec<_> = merged.range(..).map(|item| item.unwrap().1.to_vec()).collect();
        assert_eq!(values, [expected.clone(), base.clone()]);
    }
    db.compact().unwrap();
    assert_eq!(merged.get("k").unwrap().unwrap(), expected);
    let options = FamilyOptions::new().separate_from(FROM).compaction_filter("no drafts");
    let filtered = db.family(("f", options)).unwrap();
    for first in [b'd', b'r', b'k'] {
        filtered.put([first], vec![first; 200]).unwrap();
    }
    db.flush().unwrap();
    db.compact().unwrap();
    let values: Vec<_> = filtered.range(..).map(|item| item.unwrap().1.to_vec()).collect();
    assert_eq!(values, [vec![b'k'; 200], vec![b'n'; 300]]);
    assert!(filtered.get("d").unwrap().is_none());
    filtered.delete_range("a".."l").unwrap();
    for _ in 0..2 {
        let keys: Vec<_> = filtered.range(..).keys().map(|key| key.unwrap()).collect();
        assert_eq!(keys, ["r"]);
        db.flush().unwrap();
    }
}

#[test]
fn a_damaged_value_is_an_error_of_its_key_and_stops_no_compaction() {
    let bench = Bench::new();
    let (db, family) = bench.open_family();
    let mut expected = BTreeMap::new();
    for nth in 0..20 {
        expected.insert(key(nth), value(nth, 0, 1000));
    }
    put(&family, &expected);
    db.compact().unwrap();
    let (name, _) = bench.blobs().pop_first().unwrap();
    let path = Path::new("/db/table").join(&name);
    // The third value.
    bench.fs.corrupt(&path, 128 + 2 * 1009 + 17, 1).unwrap();
    drop((family, db));
    let (db, family) = bench.open_family();
    let error = family.get(key(2)).unwrap_err();
    assert!(error.is_corruption());
    let text = error.to_string();
    assert!(text.contains(&name) && text.contains("key 000002") && text.contains("2146"), "{text}");
    for (key, value) in expected.iter().filter(|(key, _)| **key != self::key(2)) {
        assert_eq!(family.get(key).unwrap().unwrap(), value);
    }
    assert!(family.contains(key(2)).unwrap());
    assert_eq!(family.range(..).keys().filter(|key| key.is_ok()).count(), 20);
    let read: Vec<_> = family.range(..).map(|item| item.is_ok()).collect();
    assert_eq!((read.len(), read.iter().position(|is_read| !is_read)), (20, Some(2)));
    let mut cursor = family.cursor(..).unwrap();
    let mut values = Vec::new();
    while let Some(entry) = cursor.next().unwrap() {
        values.push(entry.value().is_ok());
        assert_eq!(entry.value_len(), 1000);
    }
    assert_eq!((values.len(), values.iter().position(|is_read| !is_read)), (20, Some(2)));
    drop(cursor);
    // Most of the file becomes garbage, and what is left of it moves, but for the damaged value.
    for nth in (0..20).filter(|nth| nth % 5 != 2) {
        expected.insert(key(nth), value(nth, 1, 1000));
        family.put(key(nth), &expected[&key(nth)]).unwrap();
    }
    db.compact().unwrap();
    db.wait_for_compactions(None).unwrap();
    assert!(bench.blobs().contains_key(&name) && family.get(key(2)).unwrap_err().is_corruption());
    family.put(key(2), &expected[&key(2)]).unwrap();
    db.compact().unwrap();
    check(&family, &expected);
    bench.wait_until(|blobs| !blobs.contains_key(&name));
}

#[test]
fn what_the_log_has_is_separated_when_it_is_replayed() {
    let bench = Bench::new();
    let (db, family) = bench.open_family();
    let expected: BTreeMap<_, _> = (0..9).map(|nth| (key(nth), value(nth, 0, 500))).collect();
    put(&family, &expected);
    db.sync().unwrap();
    let crashed = Bench { fs: bench.fs.crashed(|_| 0) };
    let (db, family) = crashed.open_family();
    check(&family, &expected);
    assert_eq!(crashed.blob_bytes(), 128 + 9 * 509);
    db.close().unwrap();
}

/// A value that operands may need is not written anew by each compaction that meets it: files of
/// which little is alive would come of that again and again.
#[test]
fn a_value_beneath_operands_stays_where_it_is() {
    let bench = Bench::new();
    let db = bench.open();
    let options = FamilyOptions::new().separate_from(FROM).merge_operator("isobath.append");
    let merged = db.family(("m", options)).unwrap();
    merged.put("k", value(1, 0, 5000)).unwrap();
    let older = db.snapshot();
    merged.merge("k", "one").unwrap();
    let newer = db.snapshot();
    merged.merge("k", "two").unwrap();
    db.compact().unwrap();
    let before = bench.blobs();
    for round in 0..3 {
        merged.put("other", value(round, 1, 20)).unwrap();
        db.compact().unwrap();
    }
    assert_eq!(bench.blobs(), before);
    assert_eq!(older.of(&merged).get("k").unwrap().unwrap(), value(1, 0, 5000));
    assert_eq!(newer.of(&merged).get("k").unwrap().unwrap().len(), 5003);
}

/// The last level of the family, once all is there.
fn last_level(db: &Db) -> crate::LevelMetrics {
    let family = db.metrics().families.into_iter().find(|family| family.name == "f").unwrap();
    *family.levels.last().unwrap()
}

#[test]
fn a_slice_has_values_in_few_blob_files() {
    let bench = Bench::new();
    let mut options = bench.options();
    options.sizes.blobs_in_slice_max = 2;
    let db = options.open("/db").unwrap();
    let family = db.family(("f", FamilyOptions::new().separate_from(FROM))).unwrap();
    let mut expected = BTreeMap::new();
    for round in 0..7 {
        let of_round: BTreeMap<_, _> =
            (0..20).map(|nth| (key(7 * nth + round), value(7 * nth + round, 0, 500))).collect();
        put(&family, &of_round);
        expected.extend(of_round);
        db.flush().unwrap();
    }
    db.compact().unwrap();
    check(&family, &expected);
    assert_eq!(last_level(&db).separated_values, 140);
    let live = db.metrics().blob_files;
    assert!(live <= 3, "two of the flushes and one of the compaction, not {live}");
}

#[test]
fn a_damaged_neighbour_keeps_no_value_from_moving() {
    let bench = Bench::new();
    let (db, family) = bench.open_family();
    let mut expected: BTreeMap<_, _> = (0..40).map(|nth| (key(nth), value(nth, 0, 1000))).collect();
    put(&family, &expected);
    db.compact().unwrap();
    let (name, _) = bench.blobs().pop_first().unwrap();
    let path = Path::new("/db/table").join(&name);
    // A value that is overwritten below: what is read ahead of its neighbours has it, too.
    bench.fs.corrupt(&path, 128 + 5 * 1009 + 17, 1).unwrap();
    for nth in (0..40).filter(|nth| nth % 4 != 0) {
        expected.insert(key(nth), value(nth, 1, 1000));
        family.put(key(nth), &expected[&key(nth)]).unwrap();
    }
    db.compact().unwrap();
    db.wait_for_compactions(None).unwrap();
    bench.wait_until(|blobs| !blobs.contains_key(&name));
    check(&family, &expected);
}

#[test]
fn garbage_is_found_though_a_clone_has_overwritten_another_half() {
    let bench = Bench::new();
    let (db, family) = bench.open_family();
    let all: BTreeMap<String, Vec<u8>> =
        (0..40).map(|nth| (key(nth), value(nth, 0, 2000))).collect();
    put(&family, &all);
    family.compact(..).unwrap();
    db.wait_for_compactions(None).unwrap();
    let shared = bench.blobs();
    assert_eq!(shared.len(), 1);
    let clone = db.clone_family(&family, "clone").unwrap();
    let live = db.metrics().blob_live_bytes;
    let of_both = |round| {
        let half = |rest| all.keys().filter(move |key| key.as_bytes()[9] % 2 == rest);
        let change = |family: &Family, rest| {
            let mut expected = all.clone();
            for key in half(rest) {
                let value = value(7, round, 30);
                family.put(key, &value).unwrap();
                expected.insert(key.clone(), value);
            }
            family.compact(..).unwrap();
            expected
        };
        (change(&family, 0), change(&clone, 1))
    };
    let (expected, of_clone) = of_both(1);
    assert!(
        db.metrics().blob_live_bytes < live - live / 3,
        "{} of {live}",
        db.metrics().blob_live_bytes
    );
    for _ in 0..20 {
        db.wait_for_compactions(None).unwrap();
    }
    bench.wait_until(|blobs| shared.keys().all(|name| !blobs.contains_key(name)));
    check(&family, &expected);
    check(&clone, &of_clone);
    drop((family, clone));
    db.close().unwrap();
    let db = bench.open();
    check(&db.family("f").unwrap(), &expected);
    check(&db.family("clone").unwrap(), &of_clone);
}

/// Who waits for the compactions of one family may wait long.
#[test]
fn a_wait_for_compactions_keeps_no_file_that_was_replaced() {
    let bench = Bench::new();
    let (begin, begun) = channel();
    let (end, ended) = channel::<()>();
    let (begin, ended) = (Mutex::new(begin), Mutex::new(ended));
    let slow_filter = move |_: FilterEntry<'_>| {
        let _ = begin.lock().unwrap().send(());
        let _ = ended.lock().unwrap().recv();
        FilterVerdict::Keep
    };
    let options = bench.options().compaction_threads(2).compaction_filter("slow", slow_filter);
    let db = options.open("/db").unwrap();
    // Whatever fails, it goes first: the database waits for the filter.
    let end = end;
    // It compacts what is left alone for some seconds.
    db.engine().maintenance.close();
    let apart = || FamilyOptions::new().separate_from(FROM);
    let slow = db.family(("slow", apart().compaction_filter("slow"))).unwrap();
    let quick = db.family(("quick", apart())).unwrap();
    slow.put("a", value(1, 0, 500)).unwrap();
    db.flush().unwrap();
    // So little of it is garbage that no compaction begins by itself.
    for (round, count) in [(0, 20), (1, 4)] {
        put(&quick, &(0..count).map(|nth| (key(nth), value(nth, round, 500))).collect());
        db.flush().unwrap();
    }
    let tree = quick.of(db.engine()).unwrap().view().tree.clone();
    let dir = Path::new("/db");
    let inputs: Vec<_> =
        tree.iter().map(|(_, it)| crate::version::table_path(dir, it.meta.file)).collect();
    drop(tree);
    assert!(inputs.len() == 2 && inputs.iter().all(|path| bench.fs.exists(path).unwrap()));
    let are_gone = || {
        db.engine().remove_obsolete_files();
        inputs.iter().all(|path| !bench.fs.exists(path).unwrap())
    };
    let gone_meanwhile = std::thread::scope(|scope| {
        scope.spawn(|| slow.compact(..).unwrap());
        begun.recv().unwrap();
        let waits = scope.spawn(|| db.wait_for_compactions(None).unwrap());
        std::thread::sleep(Duration::from_millis(100));
        quick.compact(..).unwrap();
        let gone = soon(are_gone);
        assert!(!waits.is_finished());
        drop(end);
        gone
    });
    assert!(gone_meanwhile && are_gone());
}
