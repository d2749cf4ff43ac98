//! Slices that range deletes cover leave the tree unread.

use super::*;
use crate::engine::POINT_LOOKS;
use crate::env::fixtures::Draw;
use crate::vfs::FileSystem;

/// Fills the last level with `count` entries of 100 bytes that no codec makes shorter.
fn filled(count: u32) -> Bench {
    let bench = Bench::new(|options| options);
    let mut draw = Draw::new(7);
    for at in 0..count {
        let value: Vec<u8> = (0..100).map(|_| draw.below(256) as u8).collect();
        bench.db.put(format!("key{at:06}"), value).unwrap();
    }
    bench.db.flush().unwrap();
    bench.compact();
    bench
}

fn table_bytes(bench: &Bench) -> u64 {
    bench.engine().remove_obsolete_files();
    bench.db.metrics().families[0].levels.iter().map(|level| level.disk_bytes).sum()
}

fn drops_told(bench: &Bench) -> Vec<(CompactionReason, usize, u64, u64)> {
    bench.told(|event| match event {
        Event::Dropped { reason, slices, entries, bytes, .. } => {
            Some((*reason, *slices, *entries, *bytes))
        }
        _ => None,
    })
}

#[test]
fn a_cleared_family_gives_its_space_back_and_no_job_reads_its_tables() {
    let bench = filled(3000);
    let (before, slices) = (table_bytes(&bench), *bench.levels().last().unwrap());
    assert!(slices >= 2 && before > 10_000, "{slices} slices of {before} bytes");
    let dropped: Vec<u64> = bench.family().view().tree.iter().map(|(_, at)| at.meta.file).collect();
    let compactions = || bench.db.metrics().compactions;
    let (reads, compacted) = (bench.db.metrics().compaction_read_bytes, compactions());
    for number in &dropped {
        // A read of one of them fails from here on.
        let suffix = bench.engine().tables.files.path(*number);
        let suffix = suffix.file_name().unwrap().to_str().unwrap().to_owned();
        bench.engine().tables.files.evict(*number);
        bench.fs.inject(Fault::on(FileOp::Read).suffix(&suffix).forever());
        bench.fs.inject(Fault::on(FileOp::OpenRead).suffix(&suffix).forever());
    }
    bench.db.default_family().clear().unwrap();
    bench.db.flush().unwrap();
    bench.until(|| !drops_told(&bench).is_empty());
    bench.wait();
    bench.until(|| table_bytes(&bench) * 20 < before);
    let told = drops_told(&bench);
    assert_eq!(told.len(), 1);
    assert_eq!((told[0].0, told[0].1, told[0].2), (CompactionReason::Covered, slices, 3000));
    let metrics = bench.db.metrics();
    assert_eq!((metrics.slices_dropped, metrics.dropped_bytes), (slices as u64, told[0].3));
    assert_eq!((metrics.compaction_read_bytes, compactions()), (reads, compacted));
    assert_eq!(bench.db.count(..).unwrap(), 0);
    let gone = |number: &u64| !bench.fs.exists(&bench.engine().tables.files.path(*number)).unwrap();
    bench.until(|| {
        bench.engine().remove_obsolete_files();
        dropped.iter().all(gone)
    });
}

#[test]
fn slices_that_a_range_delete_covers_in_part_stay_and_the_rest_is_read_as_before() {
    let bench = filled(3000);
    bench.db.delete_range("key000100".."key002900").unwrap();
    bench.db.flush().unwrap();
    bench.until(|| !drops_told(&bench).is_empty());
    bench.wait();
    let keys = |range| bench.db.range(range).count();
    assert_eq!(bench.db.count(..).unwrap(), 200);
    assert_eq!((keys("key000000".."key000100"), keys("key002900".."key003000")), (100, 100));
    bench.db.put("key000500", "new").unwrap();
    bench.wait_for_compactions();
    bench.compact();
    assert_eq!(bench.db.count(..).unwrap(), 201);
    assert_eq!(bench.db.get("key000500").unwrap().unwrap(), b"new");
}

#[test]
fn covered_slices_stay_for_a_snapshot_and_leave_after_it() {
    let bench = filled(1000);
    let before = table_bytes(&bench);
    let snapshot = bench.db.snapshot();
    bench.db.delete_range(..).unwrap();
    bench.db.flush().unwrap();
    bench.wait();
    assert!(drops_told(&bench).is_empty());
    assert_eq!((snapshot.count(..).unwrap(), bench.db.count(..).unwrap()), (1000, 0));
    assert!(table_bytes(&bench) >= before);
    drop(snapshot);
    bench.wait_for_compactions();
    assert_eq!(drops_told(&bench).iter().map(|told| told.2).sum::<u64>(), 1000);
    bench.until(|| table_bytes(&bench) * 20 < before);
}

#[test]
fn what_a_dropped_slice_hid_stays_hidden_until_the_range_delete_has_reached_it() {
    let bench = Bench::new(|options| options);
    bench.flush(0, 1, 400);
    bench.compact();
    for at in (0..400).step_by(2) {
        bench.db.delete(format!("key{at:06}")).unwrap();
    }
    bench.db.put("key000200x", "y").unwrap();
    bench.db.flush().unwrap();
    bench.wait();
    // It covers the run of deletes, and of the slices below nothing as a whole.
    bench.db.delete_range("key000000".."key000398\0").unwrap();
    bench.db.flush().unwrap();
    bench.until(|| !drops_told(&bench).is_empty());
    bench.wait();
    assert_eq!(bench.db.count(..).unwrap(), 1);
    bench.wait_for_compactions();
    assert_eq!(bench.db.count(..).unwrap(), 1);
    bench.compact();
    assert_eq!(bench.db.count(..).unwrap(), 1);
    assert!(bench.db.contains("key000399").unwrap());
}

/// A slice that stays in the level is a fence. The newest version of the first key behind it is
/// hidden by a range delete, and an older one stays for a snapshot: this one begins the output.
#[test]
fn a_key_whose_newest_version_goes_begins_an_output_behind_a_fence() {
    let bench = Bench::new(|options| options);
    let db = &bench.db;
    let put = |keys: &[&str], value: &str| {
        keys.iter().for_each(|key| _ = db.put(key, value).unwrap());
        db.flush().unwrap();
    };
    put(&["f"], "0");
    bench.compact();
    put(&["a"], "1");
    put(&["k"], "1");
    let snapshot = db.snapshot();
    put(&["k", "q"], "2");
    db.delete_range("k".."l").unwrap();
    put(&["z"], "2");
    bench.compact();
    assert_eq!(snapshot.get("k").unwrap().unwrap(), "1");
    let keys: Vec<_> = db.iter().map(|row| row.unwrap().0).collect();
    assert_eq!(keys, ["a", "f", "q", "z"]);
    db.put("k", "3").unwrap();
}

#[test]
fn points_are_not_listed_for_families_of_which_nothing_can_leave() {
    const FAMILIES: usize = 10;
    let bench = Bench::new(|options| options);
    let options = || FamilyOptions::new().ttl(Duration::from_secs(1 << 20));
    let names: Vec<String> = (0..FAMILIES).map(|nth| format!("family{nth}")).collect();
    let families: Vec<_> =
        names.iter().map(|name| bench.db.family((name.as_str(), options())).unwrap()).collect();
    families.iter().for_each(|family| _ = family.put("key", "value").unwrap());
    let snapshot = |nth: u32| {
        bench.db.put("other", nth.to_string()).unwrap();
        bench.db.snapshot()
    };
    let snapshots: Vec<_> = (0..500).map(snapshot).collect();
    bench.db.flush().unwrap();
    bench.wait();
    assert!(bench.engine().families.all().iter().any(|family| has_ends(&family.view().tree)));
    POINT_LOOKS.set(0);
    schedule_all(bench.engine());
    let looks = POINT_LOOKS.get();
    assert!(looks <= 200 * FAMILIES, "{looks} looks at {} points", snapshots.len());
}
