//! Range deletes of others beside transactions: a range delete over what a transaction has read or
//! locked is a change of it.

use super::{assert_at_rest, begin, conflict_of, open};
use crate::Batch;
use crate::Db;
use crate::error::{ConflictKind, Error, ErrorKind};
use crate::options::{Isolation, TransactionOptions, WriteOptions};
use std::time::Duration;

/// What may happen to a range delete before the transaction commits.
const AFTERWARDS: [fn(&Db); 3] = [
    |_| (),
    |db| db.flush().unwrap(),
    |db| {
        db.flush().unwrap();
        db.compact().unwrap();
    },
];

#[test]
fn a_range_delete_over_a_key_that_was_read_is_a_conflict_wherever_it_lies() {
    for afterwards in AFTERWARDS {
        let db = open();
        db.put("k", "1").unwrap();
        let tx = begin(&db, Isolation::RepeatableRead);
        assert!(tx.get("k").unwrap().is_some());
        tx.put("other", "mine").unwrap();
        db.delete_range("a".."z").unwrap();
        afterwards(&db);
        assert_eq!(conflict_of(tx.commit()), (b"k".to_vec(), ConflictKind::Read));
        assert!(db.get("other").unwrap().is_none());
        assert_at_rest(db.engine());
    }
}

#[test]
fn a_range_delete_beside_what_was_read_is_none() {
    for afterwards in AFTERWARDS {
        let db = open();
        db.put("k", "1").unwrap();
        let tx = begin(&db, Isolation::Serializable);
        assert!(tx.get("k").unwrap().is_some());
        assert_eq!(tx.range("k".."l").count(), 1);
        tx.put("other", "mine").unwrap();
        db.delete_range("a".."k").unwrap();
        db.delete_range("l"..).unwrap();
        db.family("side").unwrap().delete_range(..).unwrap();
        afterwards(&db);
        tx.commit().unwrap();
        assert!(db.get("other").unwrap().is_some());
    }
}

#[test]
fn a_range_delete_over_an_empty_range_that_was_scanned_is_a_conflict() {
    for afterwards in AFTERWARDS {
        let db = open();
        db.put("m", "1").unwrap();
        db.flush().unwrap();
        let tx = begin(&db, Isolation::Serializable);
        assert_eq!(tx.range("m".."n").count(), 1);
        tx.put("other", "mine").unwrap();
        db.delete_prefix("m").unwrap();
        afterwards(&db);
        assert_eq!(conflict_of(tx.commit()).1, ConflictKind::Range);
    }
}

#[test]
fn a_key_that_was_written_and_deleted_with_a_range_is_a_conflict_of_writers() {
    let db = open();
    let tx = begin(&db, Isolation::Snapshot);
    tx.put("k", "mine").unwrap();
    let mut batch = crate::Batch::new();
    batch.put("z", "1").delete_range(.."z");
    db.write(batch).unwrap();
    assert_eq!(conflict_of(tx.commit()), (b"k".to_vec(), ConflictKind::Write));
    let tx = begin(&db, Isolation::Snapshot);
    tx.put("k", "again").unwrap();
    tx.commit().unwrap();
    assert_eq!(db.get("k").unwrap().unwrap(), "again");
}

#[test]
fn a_transaction_sees_no_range_delete_that_came_after_its_point() {
    let db = open();
    db.put("a", "1").unwrap();
    db.put("b", "1").unwrap();
    let tx = begin(&db, Isolation::RepeatableRead);
    tx.put("c", "mine").unwrap();
    db.delete_range(..).unwrap();
    db.flush().unwrap();
    db.compact().unwrap();
    assert!(tx.get("a").unwrap().is_some());
    assert_eq!(tx.range(..).count(), 3);
    tx.rollback();
    let tx = db.begin();
    tx.put("c", "mine").unwrap();
    assert_eq!(tx.range(..).map(|item| item.unwrap().0).collect::<Vec<_>>(), ["c"]);
    assert_eq!(tx.count(..).unwrap(), 1);
}

#[test]
fn a_range_delete_waits_for_a_locked_key_and_fails_in_time() {
    let db =
        crate::Options::in_memory().lock_timeout(Duration::from_millis(30)).open("/db").unwrap();
    db.put("k", "1").unwrap();
    let tx = db.with(TransactionOptions::new()).begin();
    assert!(tx.get_for_update("k").unwrap().is_some());
    let is_locked = |error: &Error| matches!(error.kind(), ErrorKind::LockTimeout { .. });
    // The thread that holds the lock would wait for itself.
    let own = db.delete_range("a".."z").unwrap_err();
    assert!(matches!(own.kind(), ErrorKind::Deadlock { .. }), "{own}");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            assert!(is_locked(&db.delete_range("a".."z").unwrap_err()));
            assert!(is_locked(&db.delete_range("k"..="k").unwrap_err()));
        });
    });
    let hasty = db.with(WriteOptions::default().fail_fast(true));
    // The batch names no key that is locked.
    let mut batch = Batch::new();
    batch.put("z", "value").delete_range("a".."z");
    for refused in [hasty.delete_range(..), hasty.write(batch)] {
        assert!(matches!(refused.unwrap_err().kind(), ErrorKind::WouldStall { .. }));
    }
    db.delete_range("l"..).unwrap();
    db.delete_range(.."k").unwrap();
    tx.put("k", "2").unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            loop {
                match db.delete_range(..) {
                    Err(error) if is_locked(&error) => {}
                    told => break told,
                }
            }
        });
        std::thread::sleep(Duration::from_millis(10));
        tx.commit().unwrap();
        waiting.join().unwrap().unwrap();
    });
    assert!(db.get("k").unwrap().is_none());
    assert_at_rest(db.engine());
}
