//! What `Db::metrics` tells of levels and compactions.

use isobath::{CompactionReason, Db, FamilyMetrics, Options};

fn open() -> Db {
    Options::in_memory().open("/db").unwrap()
}

fn put(db: &Db, keys: std::ops::Range<u32>) {
    keys.for_each(|key| _ = db.put(key.to_be_bytes(), [7; 20]).unwrap());
    db.flush().unwrap();
}

fn figures(db: &Db) -> FamilyMetrics {
    db.metrics().families[0].clone()
}

#[test]
fn read_amplification_counts_the_runs_that_may_hold_one_key() {
    let db = open();
    let runs =
        || figures(&db).levels.iter().map(|level| level.read_amplification).collect::<Vec<_>>();
    assert!(runs().iter().all(|runs| *runs == 0));
    put(&db, 0..10);
    put(&db, 10..20);
    assert_eq!(runs()[0], 1, "they have no key in common");
    put(&db, 19..25);
    put(&db, 5..22);
    assert_eq!((figures(&db).levels[0].slices, runs()[0]), (4, 3), "key 19");
    db.compact().unwrap();
    assert_eq!((runs()[0], runs().iter().sum::<u64>()), (0, 1));
    put(&db, 3..6);
    assert_eq!(figures(&db).total().read_amplification, 2);
    // A range delete is in the way of a get as well.
    db.delete_range(5u32.to_be_bytes()..9u32.to_be_bytes()).unwrap();
    db.flush().unwrap();
    assert_eq!(figures(&db).total().read_amplification, 3);
}

#[test]
fn compactions_are_told_by_reason_and_level_with_the_deletes_they_dropped() {
    let db = open();
    put(&db, 0..100);
    let snapshot = db.snapshot();
    (0..30u32).for_each(|key| _ = db.delete(key.to_be_bytes()).unwrap());
    assert!(figures(&db).compactions.is_empty());
    db.compact().unwrap();
    drop(snapshot);
    db.compact().unwrap();
    let [done] = figures(&db).compactions[..] else { panic!("{:?}", figures(&db).compactions) };
    assert_eq!((done.reason, done.count), (CompactionReason::Manual, 2));
    assert_eq!((done.read_entries, done.read_deletes), (130 + 130, 30 + 30));
    assert_eq!((done.written_entries, done.written_deletes), (130 + 70, 30));
    let sums = db.metrics();
    assert_eq!(sums.compactions, done.count);
    assert_eq!(sums.compaction_read_bytes, done.read_bytes);
    assert_eq!(
        (sums.compaction_written_bytes, sums.compaction_ns),
        (done.written_bytes, done.took_ns)
    );
    assert!(figures(&db).levels[done.into_level].entries == 70, "{done:?}");
}
