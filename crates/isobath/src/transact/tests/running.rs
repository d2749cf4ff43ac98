//! The list of transactions under way, and the figures about transactions.

use super::*;
use crate::lock::LockMode;
use std::time::Duration;

#[test]
fn transactions_that_are_known_are_listed_until_they_end() {
    let db = open();
    let (silent, mut locks) = (db.begin(), begin(&db, Isolation::Snapshot));
    let timed = db.with(TransactionOptions::new().timeout(Duration::from_secs(3600))).begin();
    locks.get_for_update("a").unwrap();
    locks.get_for_share("b").unwrap();
    locks.lock_range("c".., LockMode::Shared).unwrap();
    locks.put("a", [7; 1000]).unwrap();
    locks.savepoint("s").unwrap();
    std::thread::sleep(Duration::from_millis(1));
    let listed = db.transactions();
    let ids: Vec<u64> = listed.iter().map(|one| one.id).collect();
    assert_eq!(ids, [timed.id(), locks.id()], "{listed:?}");
    let one = &listed[1];
    assert_eq!((one.locked_keys, one.locked_ranges, one.is_waiting), (2, 1, false));
    assert_eq!(one.isolation, Isolation::Snapshot);
    assert!(one.bytes > 1000 && one.age >= Duration::from_millis(1), "{one:?}");
    let bytes: u64 = listed.iter().map(|one| one.bytes).sum();
    assert_eq!(db.metrics().transaction_bytes, bytes);
    let metrics = db.metrics();
    assert_eq!((metrics.transactions_begun, metrics.transactions_committed), (3, 0));
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| db.begin().get_for_update("a").map(drop));
        while !db.transactions().iter().any(|one| one.is_waiting) {
            std::thread::yield_now();
        }
        locks.reset();
        waits.join().unwrap().unwrap();
    });
    let ids = |db: &Db| db.transactions().iter().map(|one| one.id).collect::<Vec<_>>();
    assert_eq!(ids(&db), [timed.id(), locks.id()], "a reset leaves it in the list");
    assert_eq!(db.transactions()[1].locked_keys, 0);
    assert_eq!(silent.id(), 4);
    assert_eq!(ids(&db), [1, 2, 4]);
    timed.commit().unwrap();
    drop((locks, silent));
    assert_eq!(ids(&db), [0; 0]);
    db.put_if("key", None, "value").unwrap();
    db.put_if("key", Some(b"value"), "other").unwrap();
    assert_eq!(ids(&db), [0; 0]);
    assert_at_rest(db.engine());
}

#[test]
fn conflicts_are_counted_by_kind_and_the_oldest_point_by_what_came_since() {
    let db = open();
    assert_eq!(db.metrics().oldest_read_point_lag, 0);
    let (read, writes, ranges) =
        (db.begin(), begin(&db, Isolation::Snapshot), begin(&db, Isolation::Serializable));
    _ = read.get("key").unwrap();
    assert_eq!(ranges.count("k"..).unwrap(), 0);
    let before = db.metrics().log_bytes;
    db.put("key", [7; 100]).unwrap();
    assert_eq!(db.metrics().oldest_read_point_lag, db.metrics().log_bytes - before);
    for tx in [read, writes, ranges] {
        tx.put("key", "mine").unwrap();
        conflict_of(tx.commit());
    }
    let metrics = db.metrics();
    let by_kind = [metrics.conflicts_read, metrics.conflicts_write, metrics.conflicts_range];
    assert_eq!(by_kind, [1, 1, 1]);
    assert_eq!((metrics.conflicts_reserved, metrics.log_bytes_skipped), (0, 0));
    assert!(metrics.probes >= 2 && metrics.probes_cleared < metrics.probes);
    assert_at_rest(db.engine());
}
