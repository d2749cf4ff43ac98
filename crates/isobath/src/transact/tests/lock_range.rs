//! Ranges that a program locks.

use super::locks::{hold_until, until_it_waits};
use super::*;
use crate::batch::Batch;
use crate::format::OpKind;
use crate::key_range::{Prefix, bounds_of};
use crate::lock::LockMode;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

const SHORT: Duration = Duration::from_millis(30);

/// The result of a put from another thread.
fn put_elsewhere(db: &Db, key: &str) -> &'static str {
    let put = || db.put(key, "theirs");
    let told = std::thread::scope(|scope| scope.spawn(put).join().unwrap());
    told.map_or_else(|error| error.name(), |_| "written")
}

fn open_impatient() -> Db {
    let mut options = Options::in_memory();
    options.lock_timeout = SHORT;
    options.open("/db").unwrap()
}

#[test]
fn no_other_writes_into_a_locked_range_until_the_transaction_has_ended() {
    for mode in [LockMode::Shared, LockMode::Exclusive] {
        for ends in ["commit", "rollback", "reset"] {
            let db = open_impatient();
            let other = db.family("other").unwrap();
            db.put("b1", "before").unwrap();
            let mut tx = db.begin();
            tx.lock_range("b".."c", mode).unwrap();
            for key in ["b1", "b", "bzz"] {
                assert_eq!(put_elsewhere(&db, key), "LOCK_TIMEOUT", "{key} {mode:?}");
            }
            for key in ["a", "c"] {
                assert_eq!(put_elsewhere(&db, key), "written", "{key}");
            }
            other.put("b1", "of another family").unwrap();
            assert_eq!(db.get("b1").unwrap().unwrap(), "before", "readers do not wait");
            match ends {
                "commit" => {
                    tx.put("b2", "mine").unwrap();
                    tx.commit().unwrap();
                }
                "rollback" => tx.rollback(),
                _ => {
                    tx.reset();
                    assert_eq!(put_elsewhere(&db, "b1"), "written");
                    drop(tx);
                }
            }
            assert_eq!(put_elsewhere(&db, "b1"), "written", "after a {ends}");
            assert_at_rest(db.engine());
        }
    }
}

#[test]
fn shared_ranges_stand_beside_each_other_and_nothing_beside_an_exclusive_one() {
    let db = open();
    let brief = db.with(TransactionOptions::new().lock_timeout(SHORT));
    let (one, two) = (brief.begin(), brief.begin());
    one.lock_range("a".."m", LockMode::Shared).unwrap();
    two.lock_range("f".., LockMode::Shared).unwrap();
    assert_eq!(two.get_for_share("c").unwrap(), None);
    std::thread::scope(|scope| {
        let third = || {
            let tx = brief.begin();
            let alone = tx.lock_range("b"..="c", LockMode::Exclusive).unwrap_err().name();
            (alone, brief.begin().get_for_update("d").unwrap_err().name())
        };
        assert_eq!(scope.spawn(third).join().unwrap(), ("LOCK_TIMEOUT", "LOCK_TIMEOUT"));
    });
    drop((one, two));
    let (one, two) = (brief.begin(), brief.begin());
    one.lock_range(.., LockMode::Exclusive).unwrap();
    std::thread::scope(|scope| {
        let second = || brief.begin().lock_range("x".., LockMode::Shared).unwrap_err().name();
        assert_eq!(scope.spawn(second).join().unwrap(), "LOCK_TIMEOUT");
    });
    two.lock_range("b".."a", LockMode::Exclusive).unwrap();
    two.of(&db.family("f").unwrap()).lock_range(.., LockMode::Exclusive).unwrap();
    drop((one, two));
    assert_at_rest(db.engine());
}

#[test]
fn what_was_read_in_a_locked_range_needs_no_validation() {
    let db = open();
    db.put("b1", "1").unwrap();
    let (engine, family) = (db.engine(), &db.engine().default_family);
    let mut life = Life::begin(engine, TransactionOptions::default());
    let count = |life: &mut Life, upper: &str| {
        let within = bounds_of("b"..upper);
        life.count(engine, family, &within, ReadOptions::default()).unwrap()
    };
    let is_checked = |life: &Life| !life.validation(engine).unwrap().is_empty();
    assert_eq!(count(&mut life, "c"), 1);
    assert!(is_checked(&life));
    life.lock_range(engine, family, &bounds_of("b".."d"), LockMode::Exclusive).unwrap();
    assert!(!is_checked(&life), "it has not changed since it was read");
    let held = |life: &Life| life.locks.owner().map(|owner| engine.locks.ranges_held_by(owner));
    life.lock_range(engine, family, &bounds_of("b1".."c"), LockMode::Shared).unwrap();
    assert_eq!(held(&life), Some(1), "what is locked is not locked again");
    assert_eq!(count(&mut life, "d"), 1);
    assert_eq!(life.get(engine, family, b"b9", ReadOptions::default()).unwrap(), None);
    assert!(!is_checked(&life));
    life.operate(engine, family, OpKind::Put, b"b2", b"2").unwrap();
    life.commit(engine).unwrap();
    life.end(engine);
    assert_eq!(db.count("b".."c").unwrap(), 2);
    let mut life = Life::begin(engine, TransactionOptions::default());
    life.lock_range(engine, family, &bounds_of("b".."d"), LockMode::Shared).unwrap();
    assert_eq!(count(&mut life, "e"), 2);
    assert!(is_checked(&life), "it reaches out of the range");
    life.end(engine);
    assert_at_rest(engine);
}

#[test]
fn what_was_locked_before_a_reset_is_validated_after_it() {
    let db = open();
    let mut tx = db.begin();
    tx.lock_range("b".."c", LockMode::Exclusive).unwrap();
    tx.reset();
    assert_eq!(tx.get("b1").unwrap(), None);
    db.put("b1", "theirs").unwrap();
    tx.put("x", "mine").unwrap();
    assert_eq!(conflict_of(tx.commit()).0, b"b1");
    assert_at_rest(db.engine());
}

#[test]
fn a_shared_range_is_locked_alone_where_that_is_asked_for_later() {
    let db = open();
    let brief = db.with(TransactionOptions::new().lock_timeout(SHORT));
    let tx = brief.begin();
    tx.lock_range("b".."c", LockMode::Shared).unwrap();
    let shares = || {
        let share = || brief.begin().lock_range("b".., LockMode::Shared).is_ok();
        std::thread::scope(|scope| scope.spawn(share).join().unwrap())
    };
    assert!(shares());
    tx.lock_range("b".."c", LockMode::Exclusive).unwrap();
    assert!(!shares());
    tx.lock_range("b".."c", LockMode::Shared).unwrap();
    assert!(!shares(), "the stronger mode stays");
    drop(tx);
    assert!(shares());
    assert_at_rest(db.engine());
}

#[test]
fn the_read_point_moves_to_see_what_is_locked_if_nothing_read_before_has_changed() {
    let changes: [fn(&Db); 3] = [
        |db| _ = db.put("b2", "new").unwrap(),
        |db| _ = db.delete("b1").unwrap(),
        |db| {
            db.delete("b1").unwrap();
            db.flush().unwrap();
            db.compact().unwrap();
        },
    ];
    for change in changes {
        for isolation in [Isolation::RepeatableRead, Isolation::Serializable, Isolation::Snapshot] {
            let db = open();
            db.put("b1", "1").unwrap();
            db.put("a", "1").unwrap();
            let (still, moves, breaks) =
                (begin(&db, isolation), begin(&db, isolation), begin(&db, isolation));
            assert_eq!(moves.get("a").unwrap().unwrap(), "1");
            assert_eq!(breaks.count(Prefix("b")).unwrap(), 1);
            _ = breaks.get("b1").unwrap();
            change(&db);
            let point = still.read_point();
            still.lock_range("x".., LockMode::Shared).unwrap();
            assert_eq!(still.read_point(), point, "nothing has changed there");
            let moved = moves.lock_range("b".."c", LockMode::Exclusive);
            match isolation {
                Isolation::Snapshot => {
                    assert_eq!(conflict_of(moved).1, ConflictKind::Range);
                    drop(moves);
                }
                _ => {
                    moved.unwrap();
                    assert!(moves.read_point() > point);
                    let now: Vec<_> = db.range("b".."c").keys().map(Result::unwrap).collect();
                    let seen: Vec<_> = moves.range("b".."c").keys().map(Result::unwrap).collect();
                    assert_eq!(seen, now);
                    moves.put("b3", "mine").unwrap();
                    moves.commit().unwrap();
                }
            }
            if isolation == Isolation::Serializable {
                conflict_of(breaks.lock_range("b".."c", LockMode::Shared));
                assert!(breaks.put("z", "doomed").unwrap_err().is_conflict());
            }
            drop((still, breaks));
            assert_at_rest(db.engine());
        }
    }
}

#[test]
fn a_write_of_the_same_thread_into_a_range_it_has_locked_is_a_deadlock() {
    let db = open();
    let tx = db.begin();
    tx.lock_range("b".."c", LockMode::Shared).unwrap();
    assert_eq!(db.put("b1", "value").unwrap_err().name(), "DEADLOCK");
    tx.put("b1", "mine").unwrap();
    tx.commit().unwrap();
    assert_eq!(db.get("b1").unwrap().unwrap(), "mine");
    assert_at_rest(db.engine());
}

#[test]
fn a_range_that_cannot_be_locked_says_why() {
    let db = open();
    let stranger = open();
    let gone = db.family("gone").unwrap();
    db.drop_family(&gone).unwrap();
    let tx = db.begin();
    let lock = |part: crate::transaction::TransactionFamily<'_>| {
        part.lock_range(.., LockMode::Shared).unwrap_err().name()
    };
    assert_eq!(lock(tx.of(&gone)), "UNKNOWN_FAMILY");
    assert_eq!(lock(tx.of(&stranger.default_family())), "INVALID_ARGUMENT");
    db.clone().close().unwrap();
    assert_eq!(tx.lock_range(.., LockMode::Shared).unwrap_err().name(), "CLOSED");
}

#[test]
fn threads_that_book_what_is_free_in_a_locked_range_never_book_it_twice() {
    let db = open();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let db = &db;
            scope.spawn(move || {
                for n in 0..25 {
                    let tx = db.begin();
                    tx.lock_range(Prefix("room"), LockMode::Exclusive).unwrap();
                    let free = tx.count(Prefix("room")).unwrap();
                    tx.put(format!("room {free:04}"), format!("{thread} {n}")).unwrap();
                    tx.commit().unwrap();
                }
            });
        }
    });
    assert_eq!(db.count(..).unwrap(), 100);
    assert_at_rest(db.engine());
}

/// Three lock the range one after the other, so whenever one gives it back the next one has it.
/// None of them dies, also if more than one key in it is wanted.
#[test]
fn who_wants_a_key_has_its_turn_though_others_keep_locking_a_range_around_it() {
    let deeds: [fn(&Db) -> Result<()>; 4] = [
        |db| db.put("k", "plain").map(drop),
        |db| {
            let mut batch = Batch::new();
            batch.put("a", "batch").put("k", "batch").put("k2", "batch");
            db.write(&mut batch).map(drop)
        },
        |db| {
            let tx = db.begin();
            tx.get_for_update("k").map(drop)
        },
        |db| {
            let tx = db.begin();
            tx.get_for_update("z")?;
            tx.put("k", "transaction")?;
            tx.put("k2", "transaction")?;
            tx.commit().map(drop)
        },
    ];
    let db = Options::in_memory().lock_timeout(Duration::from_secs(60)).open("/db").unwrap();
    let patient = TransactionOptions::new().lock_timeout(Duration::from_secs(600));
    let (is_over, present) = (AtomicBool::new(false), AtomicUsize::new(0));
    let done = std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !is_over.load(Relaxed) {
                    present.fetch_add(1, Relaxed);
                    let tx = db.with(patient).begin();
                    tx.lock_range("k".."l", LockMode::Exclusive).unwrap();
                    std::thread::sleep(Duration::from_millis(1));
                    tx.put("k1", "locked").unwrap();
                    hold_until(&present, 3, &is_over);
                    tx.commit().unwrap();
                    present.fetch_sub(1, Relaxed);
                }
            });
        }
        let done = deeds.iter().map(|deed| deed(&db)).collect::<Vec<_>>();
        is_over.store(true, Relaxed);
        done
    });
    assert!(done.iter().all(Result::is_ok), "{done:?}");
    assert_at_rest(db.engine());
}

/// The key is never free of both: who waits for one of them finds the other one locked again.
#[test]
fn who_wants_a_key_alone_has_its_turn_though_others_share_the_key_and_a_range_around_it() {
    let deeds: [fn(&Db) -> Result<()>; 2] =
        [|db| db.begin().get_for_update("k").map(drop), |db| db.put("k", "plain").map(drop)];
    let db = Options::in_memory().lock_timeout(Duration::from_secs(60)).open("/db").unwrap();
    let patient = TransactionOptions::new().lock_timeout(Duration::from_secs(600));
    let (is_over, present) = (AtomicBool::new(false), [AtomicUsize::new(0), AtomicUsize::new(0)]);
    let done = std::thread::scope(|scope| {
        for nth in 0..6 {
            let (db, is_over, present) = (&db, &is_over, &present[nth % 2]);
            scope.spawn(move || {
                while !is_over.load(Relaxed) {
                    present.fetch_add(1, Relaxed);
                    let tx = db.with(patient).begin();
                    match nth % 2 {
                        0 => drop(tx.get_for_share("k").unwrap()),
                        _ => tx.lock_range("k".."l", LockMode::Shared).unwrap(),
                    }
                    std::thread::sleep(Duration::from_millis(2));
                    hold_until(present, 2, is_over);
                    drop(tx);
                    present.fetch_sub(1, Relaxed);
                }
            });
        }
        let done = deeds.iter().cycle().take(6).map(|deed| deed(&db)).collect::<Vec<_>>();
        is_over.store(true, Relaxed);
        done
    });
    assert!(done.iter().all(Result::is_ok), "{done:?}");
    assert_at_rest(db.engine());
}

/// The owner of an exclusive range waits for the key, and so need not be waited for.
#[test]
fn who_shares_a_key_writes_it_though_another_is_locking_a_range_around_it() {
    let db = open();
    for is_delete in [false, true] {
        let tx = db.begin();
        tx.get_for_share("k").unwrap();
        tx.put("k", "shared").unwrap();
        std::thread::scope(|scope| {
            let ranger = until_it_waits(scope, &db, || match is_delete {
                false => {
                    let other = db.begin();
                    other.lock_range("a".."z", LockMode::Exclusive)?;
                    other.put("l", "locked")?;
                    other.commit().map(drop)
                }
                true => db.delete_range("a".."z").map(drop),
            });
            tx.commit().unwrap();
            ranger.join().unwrap().unwrap();
        });
        assert_eq!(db.get("k").unwrap().is_some(), !is_delete, "the range came after it");
        assert_at_rest(db.engine());
    }
}

/// The owner of a shared range does not wait for those who share a key in it.
#[test]
fn who_shares_a_key_waits_for_a_shared_range_before_it_writes() {
    let db = open();
    let (tx, other) = (db.begin(), db.begin());
    tx.get_for_share("k").unwrap();
    tx.put("k", "shared").unwrap();
    other.lock_range("a".."z", LockMode::Shared).unwrap();
    assert!(other.get("k").unwrap().is_none());
    std::thread::scope(|scope| {
        let commit = until_it_waits(scope, &db, || tx.commit().map(drop));
        assert!(!commit.is_finished() && other.get("k").unwrap().is_none());
        other.put("l", "seen").unwrap();
        other.commit().unwrap();
        commit.join().unwrap().unwrap();
    });
    assert_at_rest(db.engine());
}
