//! What a transaction that is run again locks before it begins, and what it gives back.

use super::locks::{assert_stalls, locking, until_it_waits, value_of};
use super::*;
use crate::lock::LockMode;
use std::ops::Bound;
use std::time::Duration;

#[test]
fn the_next_attempt_locks_first_what_the_last_one_met_a_conflict_on() {
    let db = open();
    let mut attempts = 0;
    db.transact(|tx| {
        attempts += 1;
        let value = tx.get("key")?;
        if attempts == 1 {
            db.put("key", "disturbed")?;
        } else {
            assert_eq!(value.unwrap(), "disturbed");
            assert_eq!(db.put("key", "again").unwrap_err().name(), "DEADLOCK");
        }
        tx.put("key", "mine")
    })
    .unwrap();
    assert_eq!((attempts, value_of(&db, "key").unwrap()), (2, "mine".to_owned()));
    assert_eq!(db.metrics().escalations, 1);
    assert_at_rest(db.engine());
}

#[test]
fn the_next_attempt_locks_the_range_in_which_the_last_one_met_a_conflict() {
    let db = open();
    db.put("k1", "value").unwrap();
    let mut attempts = 0;
    let fast = WriteOptions::new().fail_fast(true);
    db.transact(|tx| {
        attempts += 1;
        let count = tx.range("k".."l").count();
        if attempts == 1 {
            db.put("k2", "disturbs")?;
        } else {
            assert_eq!(count, 2);
            for key in ["k", "k2", "k9"] {
                assert_stalls(db.with(fast).put(key, "value"));
            }
            db.put("l", "outside")?;
        }
        tx.put(format!("k{}", count + 1), "mine")
    })
    .unwrap();
    assert_eq!((attempts, db.metrics().escalations), (2, 1));
    assert_eq!(db.range("k".."l").count(), 3);
    db.put("k9", "value").unwrap();
    assert_at_rest(db.engine());
}

/// The conflict names the bound, which is no key of the range.
#[test]
fn a_range_that_begins_behind_its_bound_is_locked_first_where_a_range_delete_was_in_the_way() {
    for flushes in [false, true] {
        let db = open();
        db.put("k1", "value").unwrap();
        let mut attempts = 0;
        db.transact(|tx| {
            attempts += 1;
            drop(tx.range((Bound::Excluded("k"), Bound::<&str>::Unbounded)).next());
            if attempts == 1 {
                db.delete_range("k".."m")?;
                if flushes {
                    db.flush()?;
                }
            }
            tx.put("other", "mine")
        })
        .unwrap();
        assert_eq!((attempts, db.metrics().escalations), (2, 1), "{flushes}");
        assert_at_rest(db.engine());
    }
}

/// The queue of a pop begins behind the key, and the conflict is one on the key itself.
#[test]
fn a_key_before_the_range_of_a_pop_is_locked_first_where_others_change_it() {
    let bodies: [fn(&Transaction) -> Result<()>; 2] = [
        |tx| {
            tx.get("k")?;
            tx.delete("k")
        },
        |tx| {
            assert_eq!(tx.range(..="k").count(), 1);
            Ok(())
        },
    ];
    for body in bodies {
        let db = open();
        db.put("k", "value").unwrap();
        db.put("m", "value").unwrap();
        let fast = WriteOptions::new().fail_fast(true);
        let mut attempts = 0;
        db.transact(|tx| {
            attempts += 1;
            body(tx)?;
            assert!(tx.pop_last((Bound::Excluded("k"), Bound::<&str>::Unbounded))?.is_some());
            match attempts {
                1 => db.put("k", "disturbs").map(|_| ()),
                _ => {
                    assert_stalls(db.with(fast).put("k", "disturbs"));
                    Ok(())
                }
            }
        })
        .unwrap();
        assert_eq!(attempts, 2);
        assert_at_rest(db.engine());
    }
}

#[test]
fn a_family_that_is_dropped_between_two_attempts_is_not_locked_first() {
    let deeds: [fn(&Transaction, &crate::Family) -> Result<()>; 2] = [
        |tx, guest| tx.of(guest).delete_range("a".."c"),
        |tx, guest| tx.of(guest).put("b", "mine"),
    ];
    for deed in deeds {
        let db = open();
        let guest = db.family("guest").unwrap();
        let options = TransactionOptions::new().isolation(Isolation::Snapshot).locking(true);
        let mut attempts = 0;
        db.with(options)
            .transact(|tx| {
                attempts += 1;
                tx.put("key", "value")?;
                if attempts > 1 {
                    return Ok(());
                }
                guest.put("b", "theirs")?;
                let conflict = deed(tx, &guest).unwrap_err();
                db.drop_family(&guest)?;
                Err(conflict)
            })
            .unwrap();
        assert_eq!(attempts, 2);
        assert_eq!(db.get("key").unwrap().unwrap(), "value");
        assert_at_rest(db.engine());
    }
}

/// What the first attempt relied on the second one has locked, so nothing else is validated of it.
#[test]
fn a_family_that_is_dropped_while_a_key_of_it_is_locked_first_fails_the_commit() {
    let reads: [fn(&Transaction, &crate::Family) -> Result<()>; 2] =
        [|tx, guest| tx.of(guest).get("k").map(drop), |tx, guest| tx.of(guest).count(..).map(drop)];
    for read in reads {
        let db = open();
        let guest = db.family("guest").unwrap();
        let mut attempts = 0;
        let told = db.transact(|tx| {
            attempts += 1;
            read(tx, &guest)?;
            match attempts {
                1 => drop(guest.put("k", "theirs")?),
                _ => db.drop_family(&guest)?,
            }
            tx.put("mine", "value")
        });
        assert_eq!((attempts, told.unwrap_err().name()), (2, "UNKNOWN_FAMILY"));
        assert!(db.get("mine").unwrap().is_none());
        assert_at_rest(db.engine());
    }
}

#[test]
fn who_dies_of_a_deadlock_gives_up_what_an_earlier_attempt_made_it_lock_first() {
    let db = open();
    let older = locking(&db);
    older.put("b", "older").unwrap();
    let mut attempts = 0;
    std::thread::scope(|scope| {
        let younger = until_it_waits(scope, &db, || {
            db.transact(|tx| {
                attempts += 1;
                tx.get("a")?;
                if attempts == 1 {
                    db.put("a", "disturbed")?;
                }
                tx.put("a", "younger")?;
                if attempts > 1 {
                    tx.get_for_update("b")?;
                }
                Ok(())
            })
        });
        older.put("a", "older").unwrap();
        older.commit().unwrap();
        younger.join().unwrap().unwrap();
    });
    assert_eq!((attempts, db.metrics().deadlocks), (3, 1));
    assert_eq!(
        value_of(&db, "a").zip(value_of(&db, "b")).unwrap(),
        ("younger".into(), "older".into())
    );
    assert_at_rest(db.engine());
}

/// One that holds an account in advance, for its last attempt failed of that, may meet others that
/// hold the other one. Sixteen attempts must do.
#[test]
fn transfers_between_two_accounts_never_give_up() {
    const THREADS: u64 = 4;
    const ROUNDS: u64 = 200;
    let db = open();
    let count = |tx: &Transaction, key: &str| {
        let old = tx.get(key)?.map_or(0, |value| value.len() as u64);
        tx.put(key, "x".repeat(old as usize + 1))
    };
    std::thread::scope(|scope| {
        for nth in 0..THREADS {
            let (db, keys) = (&db, if nth % 2 == 0 { ["a", "b"] } else { ["b", "a"] });
            scope.spawn(move || {
                for _ in 0..ROUNDS {
                    db.transact(|tx| keys.iter().try_for_each(|key| count(tx, key))).unwrap();
                }
            });
        }
    });
    for key in ["a", "b"] {
        assert_eq!(db.get(key).unwrap().unwrap().len() as u64, THREADS * ROUNDS);
    }
    assert_at_rest(db.engine());
}

fn is_deadlock(told: Result<impl std::fmt::Debug>) -> bool {
    told.is_err_and(|error| error.name() == "DEADLOCK")
}

/// In the second attempt both keys are locked alone before the body runs: the one that the victim
/// waited for, and the one that it held and another waited for. Shared ones would let others in
/// that then want them alone, too.
#[test]
fn the_victim_of_a_deadlock_locks_alone_what_it_waited_for_and_what_it_held() {
    for waited_for in ["held", "other"] {
        let db = open();
        let older = locking(&db);
        older.get_for_share(waited_for).unwrap();
        let mut attempts = 0;
        std::thread::scope(|scope| {
            let younger = until_it_waits(scope, &db, || {
                db.transact(|tx| {
                    attempts += 1;
                    if attempts > 1 {
                        for key in ["held", waited_for] {
                            assert!(is_deadlock(db.begin().get_for_share(key)), "{key}");
                        }
                    }
                    tx.get_for_share("held")?;
                    tx.get_for_update(waited_for)?;
                    tx.put("held", "younger")
                })
            });
            older.put("held", "older").unwrap();
            older.commit().unwrap();
            younger.join().unwrap().unwrap();
        });
        assert_eq!((attempts, db.metrics().deadlocks), (2, 3), "two of them in the body");
        assert_eq!(value_of(&db, "held").unwrap(), "younger");
        assert_at_rest(db.engine());
    }
}

/// The range is locked first because an earlier attempt has read it.
#[test]
fn the_victim_of_a_deadlock_over_a_range_that_it_shares_locks_the_range_alone() {
    let db = open();
    let older = locking(&db);
    older.put("other", "older").unwrap();
    let mut attempts = 0;
    std::thread::scope(|scope| {
        let younger = until_it_waits(scope, &db, || {
            db.transact(|tx| {
                attempts += 1;
                tx.range("k".."l").count();
                if attempts == 1 {
                    db.put("k1", "disturbs")?;
                } else {
                    let told = db.begin().lock_range("k".."k5", LockMode::Shared);
                    assert_eq!(is_deadlock(told), attempts > 2, "{attempts}");
                    tx.get_for_update("other")?;
                }
                tx.put("m", "younger")
            })
        });
        older.put("k5", "older").unwrap();
        older.commit().unwrap();
        younger.join().unwrap().unwrap();
    });
    assert_eq!(attempts, 3);
    assert_at_rest(db.engine());
}

/// All read the key locked, and then each wants it alone. If they came back to read it together,
/// one a time would get through.
#[test]
fn many_that_read_a_key_locked_and_then_write_it_all_come_through() {
    const THREADS: usize = if cfg!(miri) { 4 } else { 24 };
    let db = open();
    let options = TransactionOptions::new().locking(true).lock_timeout(Duration::from_secs(600));
    let append = |tx: &Transaction| {
        let old = tx.get("key")?.map_or(0, |value| value.len());
        std::thread::sleep(Duration::from_millis(10));
        tx.put("key", "x".repeat(old + 1))
    };
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| (0..2).for_each(|_| _ = db.with(options).transact(append).unwrap()));
        }
    });
    assert_eq!(value_of(&db, "key").unwrap().len(), 2 * THREADS);
    assert_at_rest(db.engine());
}

/// A lost pop is a conflict of another kind at each level.
#[test]
fn a_pop_that_lost_though_it_had_its_turn_locks_its_range_at_each_level() {
    for isolation in [Isolation::RepeatableRead, Isolation::Snapshot, Isolation::Serializable] {
        let db = open();
        (10..40).for_each(|n| _ = db.put(format!("k{n}"), "value").unwrap());
        let mut attempts = 0;
        db.with(TransactionOptions::new().isolation(isolation))
            .transact(|tx| {
                attempts += 1;
                tx.pop_first("k".."l")?;
                let other = begin(&db, isolation);
                _ = other.pop_first("k".."l").and_then(|_| other.commit());
                Ok(())
            })
            .unwrap();
        assert_eq!((attempts, db.count("k".."l").unwrap()), (3, 27), "{isolation:?}");
        assert_at_rest(db.engine());
    }
}

#[test]
fn a_range_that_is_locked_by_name_is_locked_first_by_the_next_attempt_at_snapshot() {
    let db = open();
    let mut attempts = 0;
    db.with(TransactionOptions::new().isolation(Isolation::Snapshot))
        .transact(|tx| {
            attempts += 1;
            _ = db.put("b1", format!("{attempts}"));
            tx.lock_range("b".."c", LockMode::Exclusive)?;
            tx.put("b2", "mine")
        })
        .unwrap();
    assert_eq!((attempts, value_of(&db, "b1").unwrap()), (2, "1".to_owned()));
    assert_at_rest(db.engine());
}

/// Such an attempt can only fail. What a body does beside the transaction would be done in vain.
#[test]
fn a_body_is_not_run_if_what_it_locks_first_is_not_to_be_had() {
    let db = open();
    let holder = db.begin();
    let mut calls = 0;
    let told = db.with(TransactionOptions::new().attempts(4)).transact(|tx| {
        calls += 1;
        tx.get("key")?;
        db.put("key", "disturbed")?;
        holder.get_for_update("key")?;
        tx.put("key", "mine")
    });
    assert!(is_deadlock(told) && calls == 1, "{calls}");
    drop(holder);
    assert_at_rest(db.engine());
}

/// What a scan stops at is gone in the next attempt, so a lock on what it passed is of no use.
#[test]
fn who_takes_the_key_at_an_end_by_hand_locks_all_from_there_on_if_a_lock_did_not_help() {
    type End = fn(&Transaction) -> Result<Option<(crate::Value, crate::Value)>>;
    let ends: [End; 2] = [|tx| tx.first(), |tx| tx.last()];
    for end in ends {
        let db = open();
        (10..40).for_each(|n| _ = db.put(format!("k{n}"), "value").unwrap());
        let mut attempts = 0;
        db.transact(|tx| {
            attempts += 1;
            let (key, _) = end(tx)?.expect("keys are left");
            _ = db.delete(&key);
            tx.delete(&key)
        })
        .unwrap();
        assert_eq!((attempts, db.count(..).unwrap()), (3, 27));
        assert_at_rest(db.engine());
    }
}

/// The key is held in the range that all lock. Who dies of it comes back with the range, not with
/// keys in it, which the next one that locks the range would meet.
#[test]
fn one_deadlock_over_a_key_in_a_range_that_many_lock_does_not_spread() {
    const THREADS: usize = if cfg!(miri) { 4 } else { 24 };
    let db = Options::in_memory().lock_timeout(Duration::from_secs(60)).open("/db").unwrap();
    let patient = TransactionOptions::new().lock_timeout(Duration::from_secs(60));
    let older = db.with(patient).begin();
    older.get_for_update("k5").unwrap();
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let told = db.with(patient).transact(|tx| {
                    tx.lock_range("k".."l", LockMode::Exclusive)?;
                    std::thread::sleep(Duration::from_millis(5));
                    tx.put("k1", "worker")
                });
                told.unwrap();
            });
        }
        while db.engine().locks.sleepers() < THREADS {
            std::thread::yield_now();
        }
        older.put("k7", "older").unwrap();
        older.get_for_update("k7").unwrap();
        older.commit().unwrap();
    });
    let deadlocks = db.metrics().deadlocks;
    assert!((1..=2 * THREADS as u64).contains(&deadlocks), "{deadlocks}");
    assert_at_rest(db.engine());
}

/// In the second attempt nothing but the range is locked before the body runs.
#[test]
fn the_victim_of_a_deadlock_over_a_range_that_it_was_locking_locks_that_range_first() {
    let db = open();
    let older = locking(&db);
    older.put("k5", "older").unwrap();
    let mut attempts = 0;
    let fast = TransactionOptions::new().lock_timeout(Duration::ZERO);
    std::thread::scope(|scope| {
        let younger = until_it_waits(scope, &db, || {
            db.transact(|tx| {
                attempts += 1;
                if attempts > 1 {
                    let tell = |key: &str| db.with(fast).begin().get_for_update(key).is_err();
                    assert_eq!(["j", "k", "k3", "l"].map(tell), [false, true, true, false]);
                }
                tx.lock_range("k".."l", LockMode::Exclusive)?;
                tx.put("k1", "younger")
            })
        });
        older.put("k7", "older").unwrap();
        older.commit().unwrap();
        younger.join().unwrap().unwrap();
    });
    // The range may be refused once more while the older one waits for its key. No body runs then.
    assert_eq!(attempts, 2);
    assert_at_rest(db.engine());
}

/// Only the key that was popped says that the pop was lost.
#[test]
fn a_conflict_on_a_key_that_was_read_beside_a_pop_does_not_lock_the_range_of_the_pop() {
    let db = open();
    ["a1", "a2", "a3", "counter"].iter().for_each(|key| _ = db.put(key, "value").unwrap());
    let fast = WriteOptions::new().fail_fast(true);
    let mut attempts = 0;
    db.transact(|tx| {
        attempts += 1;
        tx.get("counter")?;
        tx.pop_first(..)?;
        match attempts {
            1 => drop(db.put("counter", "disturbed")?),
            _ => {
                assert_stalls(db.with(fast).put("counter", "again"));
                db.with(fast).put("other", "in the range of the pop")?;
            }
        }
        Ok(())
    })
    .unwrap();
    assert_eq!((attempts, db.count(..).unwrap()), (2, 4));
    assert_at_rest(db.engine());
}

/// Two that share what both write in would wait for each other.
#[test]
fn a_range_that_is_widened_over_what_the_attempt_writes_is_locked_alone() {
    let db = open();
    (10..20).for_each(|n| _ = db.put(format!("k{n}"), "value").unwrap());
    let mut attempts = 0;
    db.transact(|tx| {
        attempts += 1;
        let (key, _) = tx.first()?.expect("keys are left");
        if attempts < 3 {
            db.delete(&key)?;
        } else {
            assert!(is_deadlock(db.begin().lock_range("m".."n", LockMode::Shared)));
        }
        tx.put("z", "mine")
    })
    .unwrap();
    assert_eq!(attempts, 3);
    assert_at_rest(db.engine());
}

/// The other one waits for a range that begins at a key which the victim has never seen.
#[test]
fn the_victim_of_a_deadlock_does_not_lock_first_where_a_range_of_another_begins() {
    let db = open();
    let older = locking(&db);
    older.put("x", "older").unwrap();
    let mut attempts = 0;
    let fast = TransactionOptions::new().lock_timeout(Duration::ZERO);
    let holds = std::sync::Barrier::new(2);
    std::thread::scope(|scope| {
        let younger = scope.spawn(|| {
            db.transact(|tx| {
                attempts += 1;
                tx.get_for_update("k5")?;
                if attempts == 1 {
                    holds.wait();
                    while db.engine().locks.sleepers() == 0 {
                        std::thread::yield_now();
                    }
                } else {
                    let tell = |key: &str| db.with(fast).begin().get_for_update(key).is_err();
                    assert_eq!(["k", "k5", "x"].map(tell), [false, true, true]);
                }
                tx.put("x", "younger")?;
                tx.get_for_update("x").map(drop)
            })
        });
        holds.wait();
        older.lock_range("k".."l", LockMode::Exclusive).unwrap();
        older.commit().unwrap();
        younger.join().unwrap().unwrap();
    });
    assert_eq!(attempts, 2);
    assert_at_rest(db.engine());
}
