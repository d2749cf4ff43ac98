//! Prepares beside the drop of a family and beside those that look; decisions of very many
//! operations.

use super::*;
use std::ops::Bound;

#[test]
fn nothing_is_prepared_into_a_family_whose_drop_has_begun() {
    let db = open(&MemoryFs::new());
    let side = db.family("side").unwrap();
    let tx = db.begin();
    tx.of(&side).put("key", "value").unwrap();
    let other = db.begin();
    other.of(&side).put("key", "value").unwrap();
    let set = &db.engine().prepared;
    set.begin_drop(side.id()).unwrap();
    assert_eq!(tx.prepare("x").unwrap_err().name(), "UNKNOWN_FAMILY");
    assert!(db.in_doubt().is_empty());
    set.end_drop(side.id());
    other.prepare("x").unwrap().commit().unwrap();
    assert!(side.contains("key").unwrap());
}

/// Who opens the database again locks in the order of the log, not in the order in which they were
/// granted.
#[test]
fn a_range_between_a_key_and_the_very_next_one_is_none_and_locks_nothing() {
    let fs = MemoryFs::new();
    let db = open(&fs);
    let (one, other) = (db.begin(), db.begin());
    let bounds = (Bound::Excluded("k"), Bound::Excluded("k\0"));
    one.lock_range(bounds, crate::LockMode::Shared).unwrap();
    one.put("a", "value").unwrap();
    other.delete_range("k\0".."z").unwrap();
    drop((other.prepare("other").unwrap(), one.prepare("one").unwrap()));
    db.close().unwrap();
    let db = open(&fs);
    assert_eq!(names(&db), ["one", "other"]);
    for name in names(&db) {
        db.commit_prepared(&xid(&name)).unwrap();
    }
    assert_at_rest(db.engine());
}

#[test]
fn what_still_waits_for_its_locks_is_not_in_doubt() {
    let fs = MemoryFs::new();
    let db = over(&fs).lock_timeout(Duration::from_secs(600)).open("/db").unwrap();
    let holder = db.begin();
    holder.get_for_update("key").unwrap();
    let tx = db.with(TransactionOptions::new().lock_timeout(Duration::from_secs(600))).begin();
    tx.put("key", "value").unwrap();
    std::thread::scope(|scope| {
        let preparing = scope.spawn(|| tx.prepare("x"));
        while db.engine().locks.sleepers() == 0 && !preparing.is_finished() {
            std::thread::yield_now();
        }
        let seen = (names(&db), db.commit_prepared(&xid("x")).unwrap_err().name());
        drop(holder);
        let prepared = preparing.join().unwrap().unwrap();
        assert_eq!(seen, (Vec::new(), "UNKNOWN_TRANSACTION"));
        assert_eq!(names(&db), ["x"]);
        prepared.commit().unwrap();
    });
    assert_at_rest(db.engine());
}

#[test]
fn very_many_operations_with_a_range_delete_are_decided_at_once() {
    let db = open(&MemoryFs::new());
    let tx = db.begin();
    tx.delete_range("x"..).unwrap();
    for n in 0..3000u32 {
        tx.put(n.to_be_bytes(), "value").unwrap();
    }
    tx.prepare("x").unwrap().commit().unwrap();
    assert_eq!(db.count(..).unwrap(), 3000);
    assert_at_rest(db.engine());
}

/// An answer of its own relies on nothing in the database, where the value may end.
#[test]
fn what_a_transaction_has_written_itself_is_no_value_that_ends() {
    let db = open(&MemoryFs::new());
    let writes: [fn(&crate::Transaction); 3] = [
        |tx| tx.put("k", "new").unwrap(),
        |tx| tx.delete("k").unwrap(),
        |tx| tx.delete_range("a".."l").unwrap(),
    ];
    for (nth, write) in writes.into_iter().enumerate() {
        db.put_ttl("k", "old", Duration::from_secs(3600)).unwrap();
        db.put("m", "m").unwrap();
        let tx = db.begin();
        write(&tx);
        let own = (nth == 0).then_some(&b"new"[..]);
        let found = tx.multi_get(["k", "m", "none", "k"]).unwrap();
        assert_eq!((found[0].as_deref(), found[3].as_deref()), (own, own));
        assert_eq!((found[1].as_deref(), found[2].as_deref()), (Some(&b"m"[..]), None));
        tx.prepare("x").unwrap().rollback().unwrap();
        let tx = db.begin();
        tx.multi_get(["k"]).unwrap();
        tx.put("other", "value").unwrap();
        assert_eq!(tx.prepare("y").unwrap_err().name(), "INVALID_ARGUMENT");
    }
    assert_at_rest(db.engine());
}
