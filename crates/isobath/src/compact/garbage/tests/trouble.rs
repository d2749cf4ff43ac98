//! Values in blob files when something fails: damage, devices, disks and power.

use super::*;
use crate::compact::garbage::Holdings;
use crate::tools::inspect;
use crate::vfs::{Fault, FileOp};

fn appending() -> FamilyOptions {
    FamilyOptions::new().separate_from(FROM).merge_operator("isobath.append")
}

/// So many keys with values of this round, without each `but`th.
fn drawn(keys: u32, round: u8, but: u32) -> BTreeMap<String, Vec<u8>> {
    let keys = (0..keys).filter(|nth| (nth + 1) % but > 0);
    keys.map(|nth| (key(nth), value(nth, round, 600))).collect()
}

impl Bench {
    /// The only blob file, once what is garbage has gone.
    fn blob(&self) -> String {
        self.wait_until(|blobs| blobs.len() == 1);
        self.blobs().into_keys().next().unwrap()
    }

    /// Damages the first value in it.
    fn damage_first(&self) {
        let path = Path::new("/db/table").join(self.blob());
        self.fs.corrupt(&path, 128 + 17, 1).unwrap();
    }

    /// Waits until there are the files that the manifest names, and no others.
    fn check_files(&self) {
        let env = Env { fs: Arc::new(self.fs.clone()), ..Env::system() };
        let dir = Path::new("/db/table");
        let mut seen = (Vec::new(), Vec::new());
        for _ in 0..12_000 {
            let named = inspect(Path::new("/db"), &env).unwrap();
            let tables = named.tables.into_iter().map(|table| table.path);
            let mut named: Vec<_> =
                tables.chain(named.blobs.into_iter().map(|blob| blob.path)).collect();
            named.sort();
            let there = self.fs.list(dir).unwrap().into_iter();
            let mut there: Vec<_> = there.map(|entry| dir.join(entry.name)).collect();
            there.sort();
            if named == there {
                return;
            }
            seen = (named, there);
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("{seen:?}");
    }
}

#[test]
fn a_damaged_value_beneath_operands_stops_no_compaction() {
    let bench = Bench::new();
    let db = bench.open();
    let merged = db.family(("m", appending())).unwrap();
    merged.put("a", value(1, 0, 1000)).unwrap();
    merged.put("b", value(2, 0, 1000)).unwrap();
    db.compact().unwrap();
    drop((merged, db));
    bench.damage_first();
    let db = bench.open();
    let merged = db.family(("m", appending())).unwrap();
    for operand in ["one", "two"] {
        merged.merge("a", operand).unwrap();
        merged.merge("b", operand).unwrap();
        db.compact().unwrap();
    }
    let error = merged.get("a").unwrap_err();
    assert!(error.is_corruption() && error.to_string().contains("\"a\""), "{error}");
    assert_eq!(merged.get("b").unwrap().unwrap(), [&value(2, 0, 1000)[..], b"onetwo"].concat());
    merged.put("a", "new").unwrap();
    db.compact().unwrap();
    assert_eq!(merged.get("a").unwrap().unwrap(), b"new");
}

#[test]
fn a_damaged_value_is_left_by_a_filter_that_cannot_judge_it() {
    let bench = Bench::new();
    let options = || FamilyOptions::new().separate_from(FROM).compaction_filter("no drafts");
    let db = bench.open();
    let filtered = db.family(("f", options())).unwrap();
    filtered.put("a", vec![b'd'; 200]).unwrap();
    filtered.put("b", vec![b'd'; 200]).unwrap();
    filtered.put("c", vec![b'r'; 200]).unwrap();
    db.flush().unwrap();
    drop((filtered, db));
    let path = Path::new("/db/table").join(bench.blob());
    bench.fs.corrupt(&path, 128 + 3, 1).unwrap();
    let db = bench.open();
    let filtered = db.family(("f", options())).unwrap();
    db.compact().unwrap();
    assert!(filtered.get("a").unwrap_err().is_corruption());
    assert_eq!(filtered.get("b").unwrap(), None);
    assert_eq!(filtered.get("c").unwrap().unwrap(), [b'n'; 300]);
}

/// The device cannot read a value, and then there are no descriptors for a while: the first is as
/// good as damage, the second passes.
#[test]
fn what_cannot_be_read_does_not_move_and_compactions_go_on() {
    const EIO: i32 = 5;
    for is_short in [false, true] {
        let bench = Bench::new();
        let (db, family) = bench.open_family();
        let mut expected = drawn(21, 0, u32::MAX);
        put(&family, &expected);
        db.compact().unwrap();
        let blob = bench.blob();
        drop((family, db));
        let (db, family) = bench.open_family();
        let fault = match is_short {
            true => Fault::no_descriptors().suffix(&blob),
            false => Fault::on(FileOp::Read).suffix(&blob).errno(EIO).forever(),
        };
        let newer = drawn(21, 1, 5);
        put(&family, &newer);
        expected.extend(newer);
        if !is_short {
            // The file is open, whether or not a look for garbage came first.
            family.get(key(4)).unwrap();
        }
        bench.fs.inject(fault);
        db.compact().unwrap();
        let waited = db.wait_for_compactions(None);
        assert!(waited.is_ok() || is_short, "{waited:?}");
        bench.fs.clear_faults();
        db.compact().unwrap();
        db.wait_for_compactions(None).unwrap();
        check(&family, &expected);
        bench.wait_until(|blobs| blobs.contains_key(&blob) != is_short);
        drop((family, db));
        // The next open tries again.
        let (db, family) = bench.open_family();
        db.wait_for_compactions(None).unwrap();
        check(&family, &expected);
        bench.wait_until(|blobs| !blobs.contains_key(&blob));
    }
}

/// The device cannot read a table for a while. What a slice of it has in blob files stays there
/// until the table could be read after all.
#[test]
fn what_a_table_has_in_blob_files_is_collected_once_the_table_can_be_read_again() {
    let bench = Bench::new();
    let (db, family) = bench.open_family();
    let mut expected = drawn(21, 0, u32::MAX);
    put(&family, &expected);
    db.compact().unwrap();
    let blob = bench.blob();
    let collects = || {
        let engine = db.engine();
        let families = engine.families.all();
        let of = |family| Holdings::of(engine, &families).garbage_of(engine, family);
        families.iter().any(|family| !of(family).collected.is_empty())
    };
    let tables = db.engine().families.all().into_iter().flat_map(|family| {
        let slices: Vec<_> = family.view().tree.iter().map(|(_, slice)| slice.clone()).collect();
        slices
    });
    let tables: Vec<_> = tables.map(|slice| slice.meta.file).collect();
    assert_eq!(tables.len(), 1);
    db.engine().tables.files.evict(tables[0]);
    let name = format!("{:010}.tbl", tables[0]);
    bench.fs.inject(Fault::on(FileOp::Read).suffix(&name).errno(5).forever());
    let few = drawn(21, 1, 3);
    put(&family, &few);
    expected.extend(few);
    let refused = db.compact().unwrap_err();
    assert!(refused.to_string().contains(&name), "{refused}");
    bench.fs.clear_faults();
    assert!(!collects(), "nothing of it can move");
    db.compact().unwrap();
    check(&family, &expected);
    bench.wait_until(|blobs| !blobs.contains_key(&blob));
}

/// A run lies over a slice that the device cannot read, so no job moves what it has in a blob file.
#[test]
fn what_a_run_over_damage_has_in_blob_files_is_no_debt() {
    let bench = Bench::new();
    let (db, family) = bench.open_family();
    let dropped = db.family(("g", FamilyOptions::new().separate_from(FROM))).unwrap();
    for nth in 0..20 {
        family.put(key(nth), "short").unwrap();
    }
    db.compact().unwrap();
    let engine = db.engine().clone();
    let families = engine.families.all();
    let own = families.iter().find(|other| &*other.name() == "f").unwrap();
    let base = own.view().tree.iter().next().unwrap().1.meta.file;
    engine.tables.files.evict(base);
    let name = format!("{base:010}.tbl");
    bench.fs.inject(Fault::on(FileOp::Read).suffix(&name).errno(5).forever());
    put(&family, &drawn(10, 1, u32::MAX));
    put(&dropped, &drawn(40, 1, u32::MAX));
    db.flush().unwrap();
    db.drop_family(&dropped).unwrap();
    drop(dropped);
    let refused = db.compact().unwrap_err();
    assert!(refused.to_string().contains(&name), "{refused}");
    let garbage = Holdings::of(&engine, &engine.families.all()).garbage_of(&engine, own);
    assert!(garbage.collected.is_empty(), "{:?}", garbage.collected);
    let debt = garbage.debt();
    assert_eq!((debt.is_collecting, debt.pending_bytes), (false, 0));
    bench.fs.clear_faults();
    db.compact().unwrap();
    let mut expected = drawn(10, 1, u32::MAX);
    expected.extend((10..20).map(|nth| (key(nth), b"short".to_vec())));
    check(&family, &expected);
    bench.wait_until(|blobs| blobs.values().sum::<u64>() == 128 + 10 * 609);
}

#[test]
fn power_cuts_in_flushes_and_collections_lose_nothing_and_leave_no_file() {
    for nth in (1..).step_by(3) {
        let bench = Bench::new();
        let (db, family) = bench.open_family();
        let merged = db.family(("m", appending())).unwrap();
        let mut expected = drawn(40, 0, u32::MAX);
        let mut folded = expected.clone();
        put(&family, &expected);
        put(&merged, &folded);
        db.compact().unwrap();
        let newer = drawn(40, 1, 4);
        put(&family, &newer);
        for key in newer.keys() {
            merged.merge(key, [7; 150]).unwrap();
            folded.get_mut(key).unwrap().extend([7; 150]);
        }
        expected.extend(newer);
        db.sync().unwrap();
        bench.fs.inject(Fault::on_any().nth(nth).forever());
        let work = db.compact().and_then(|()| db.wait_for_compactions(None));
        for fs in [bench.fs.crashed(|_| 0), bench.fs.crashed(|_| usize::MAX), bench.fs.killed()] {
            let left = Bench { fs };
            let (db, family) = left.open_family();
            let merged = db.family(("m", appending())).unwrap();
            for _ in 0..2 {
                check(&family, &expected);
                check(&merged, &folded);
                db.compact().unwrap();
                db.wait_for_compactions(None).unwrap();
            }
            drop((family, merged));
            db.close().unwrap();
            left.check_files();
        }
        bench.fs.clear_faults();
        if work.is_ok() {
            assert!(nth > 50, "only {nth} steps");
            return;
        }
    }
}

#[test]
fn a_disk_that_fills_anywhere_costs_nothing_once_there_is_room() {
    let mut failures = 0;
    for room in (0..80_000).step_by(4001) {
        let bench = Bench::new();
        let (db, family) = bench.open_family();
        let mut expected = drawn(40, 0, u32::MAX);
        put(&family, &expected);
        db.compact().unwrap();
        let newer = drawn(40, 1, 4);
        put(&family, &newer);
        expected.extend(newer);
        db.sync().unwrap();
        let bytes = |dir: &str| -> u64 {
            bench.fs.list(Path::new(dir)).unwrap().iter().map(|entry| entry.len).sum()
        };
        bench.fs.set_capacity(bytes("/db") + bytes("/db/table") + bytes("/db/wal") + room);
        failures += u32::from(db.compact().is_err());
        check(&family, &expected);
        bench.fs.set_capacity(u64::MAX);
        db.compact().unwrap();
        db.wait_for_compactions(None).unwrap();
        check(&family, &expected);
        drop(family);
        db.close().unwrap();
        bench.check_files();
    }
    assert!(failures > 3, "only {failures} met the full disk");
}

#[test]
fn families_share_a_blob_file_and_each_leaves_it_by_itself() {
    let bench = Bench::new();
    let db = bench.open();
    let options = || FamilyOptions::new().separate_from(FROM);
    let (first, second) = (db.family(("f", options())), db.family(("s", options())));
    let (first, second) = (first.unwrap(), second.unwrap());
    let expected = drawn(50, 0, u32::MAX);
    put(&first, &expected);
    put(&second, &expected);
    db.flush().unwrap();
    let shared = bench.blob();
    let mut held = second.range(..);
    assert!(held.next().is_some());
    db.drop_family(&second).unwrap();
    drop(second);
    db.compact().unwrap();
    db.wait_for_compactions(None).unwrap();
    check(&first, &expected);
    assert_eq!(held.filter(|item| item.is_ok()).count(), 49, "a reader still has the other half");
    bench.wait_until(|blobs| !blobs.contains_key(&shared));
    let second = db.family(("s", options())).unwrap();
    let newer = drawn(50, 1, u32::MAX);
    put(&first, &newer);
    put(&second, &newer);
    db.compact().unwrap();
    let shared = bench.blob();
    first.delete_range(..).unwrap();
    db.compact().unwrap();
    db.wait_for_compactions(None).unwrap();
    check(&second, &newer);
    bench.wait_until(|blobs| blobs.len() == 1 && !blobs.contains_key(&shared));
    assert_eq!(bench.blob_bytes(), 128 + 50 * 609);
}

/// Its values came to level 0 with those of another family, and nothing else is due for them.
#[test]
fn a_family_that_rests_holds_no_garbage_of_another() {
    let bench = Bench::new();
    let db = bench.open();
    let options = || FamilyOptions::new().separate_from(FROM);
    let resting = db.family(("r", options())).unwrap();
    let busy = db.family(("b", options())).unwrap();
    let (few, many) = (drawn(2, 0, u32::MAX), drawn(40, 0, u32::MAX));
    put(&resting, &few);
    put(&busy, &many);
    db.flush().unwrap();
    let shared = bench.blob();
    let newer = drawn(40, 1, u32::MAX);
    put(&busy, &newer);
    busy.compact(..).unwrap();
    db.wait_for_compactions(None).unwrap();
    check(&resting, &few);
    check(&busy, &newer);
    bench.wait_until(|blobs| !blobs.contains_key(&shared));
    let live = 42 * 609;
    bench.wait_until(|blobs| blobs.values().sum::<u64>() <= live + 3 * 128);
}
