//! Locks of transactions beside plain writes and each other.

use super::*;
use crate::batch::Batch;
use crate::error::StallCause;
use crate::lock::LockMode;
use crate::options::WriteOptions;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::Duration;

const SHORT: Duration = Duration::from_millis(30);

pub(super) fn locking(db: &Db) -> Transaction {
    db.with(TransactionOptions::new().locking(true)).begin()
}

fn open_with(change: impl FnOnce(&mut Options)) -> Db {
    let mut options = Options::in_memory();
    change(&mut options);
    options.open("/db").unwrap()
}

/// Runs `body` in another thread, until it has ended or sleeps for a lock.
pub(super) fn until_it_waits<'s, T: Send + 's>(
    scope: &'s Scope<'s, '_>,
    db: &'s Db,
    body: impl FnOnce() -> T + Send + 's,
) -> ScopedJoinHandle<'s, T> {
    let before = db.engine().locks.sleepers();
    let running = scope.spawn(body);
    while db.engine().locks.sleepers() == before && !running.is_finished() {
        std::thread::yield_now();
    }
    running
}

pub(super) fn value_of(db: &Db, key: &str) -> Option<String> {
    db.get(key).unwrap().map(|value| String::from_utf8(value.to_vec()).unwrap())
}

#[track_caller]
pub(super) fn assert_stalls(told: Result<impl std::fmt::Debug>) {
    let kind = told.as_ref().map_err(Error::kind);
    let is_stall = matches!(kind, Err(ErrorKind::WouldStall { cause: StallCause::KeyLocked, .. }));
    assert!(is_stall, "{told:?}");
}

/// It has locked all that it writes, so those that lock other keys need not have it start over.
/// Each time the whole length of its record would stay unused in the log.
#[test]
fn a_long_commit_is_not_overtaken_by_those_that_lock_other_keys() {
    let db = open();
    let engine = db.engine();
    let is_over = &std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                engine.locks.overtake();
                std::thread::yield_now();
            }
        });
        for _ in 0..50 {
            let tx = db.begin();
            assert!(tx.get("read").unwrap().is_none());
            tx.put("long", [7; 100_000]).unwrap();
            tx.commit().unwrap();
        }
        is_over.store(true, Ordering::Relaxed);
    });
    assert_eq!(engine.gauges.reserved_bytes_skipped.get(), 0);
    assert_at_rest(engine);
}

#[test]
fn a_write_waits_until_the_transaction_that_locked_its_key_has_ended() {
    for (is_batch, commits) in [(false, true), (true, true), (false, false), (true, false)] {
        let db = open();
        db.put("key", "before").unwrap();
        let tx = db.begin();
        assert_eq!(tx.get_for_update("key").unwrap().unwrap(), "before");
        tx.put("key", "locked").unwrap();
        std::thread::scope(|scope| {
            let put = || match is_batch {
                false => db.put("key", "after").map(|_| ()),
                true => {
                    let mut batch = Batch::new();
                    batch.put("other", "after").put("key", "after");
                    db.write(&mut batch).map(|_| ())
                }
            };
            let waits = until_it_waits(scope, &db, put);
            assert!(!waits.is_finished() && value_of(&db, "other").is_none());
            db.put("free", "value").unwrap();
            match commits {
                true => drop(tx.commit().unwrap()),
                false => tx.rollback(),
            }
            waits.join().unwrap().unwrap();
        });
        assert_eq!(value_of(&db, "key").unwrap(), "after");
        assert_at_rest(db.engine());
    }
}

#[test]
fn a_write_of_the_thread_that_holds_the_lock_is_a_deadlock_at_once() {
    let db = open();
    let tx = db.begin();
    tx.get_for_share("key").unwrap();
    let told = db.put("key", "value").unwrap_err();
    let ErrorKind::Deadlock { cycle } = told.kind() else { panic!("{told:?}") };
    assert_eq!((cycle.len(), cycle[0].transaction, &cycle[0].key[..]), (1, None, &b"key"[..]));
    assert!(told.is_conflict() && told.to_string().contains("a plain write waits for the key"));
    let other = db.begin();
    other.put("key", "value").unwrap();
    assert_eq!(other.commit().unwrap_err().name(), "DEADLOCK");
    assert_eq!(db.begin().get_for_update("key").unwrap_err().name(), "DEADLOCK");
    assert!(db.begin().get_for_share("key").is_ok(), "shared locks stand beside each other");
    tx.put("key", "mine").unwrap();
    tx.commit().unwrap();
    assert_eq!(value_of(&db, "key").unwrap(), "mine");
    assert_at_rest(db.engine());
}

#[test]
fn who_may_not_wait_for_a_lock_is_told_so_and_nothing_is_left_behind() {
    let db = open_with(|options| options.lock_timeout = SHORT);
    let tx = db.begin();
    tx.get_for_update("key").unwrap();
    let brief = TransactionOptions::new().lock_timeout(SHORT);
    let fast = WriteOptions::new().fail_fast(true);
    let optimist = TransactionOptions::new().write(fast);
    std::thread::scope(|scope| {
        let told = scope.spawn(|| db.put("key", "value")).join().unwrap().unwrap_err();
        let ErrorKind::LockTimeout { family, key, holder, .. } = told.kind() else {
            panic!("{told:?}")
        };
        assert_eq!((&family[..], &key[..], *holder), ("default", &b"key"[..], Some(tx.id())));
        let told = scope.spawn(|| db.with(brief).begin().get_for_share("key").map(|_| ()));
        assert_eq!(told.join().unwrap().unwrap_err().name(), "LOCK_TIMEOUT");
        assert_stalls(scope.spawn(|| db.with(fast).put("key", "value")).join().unwrap());
        let told = scope.spawn(|| {
            let tx = db.with(optimist).begin();
            tx.get("key")?;
            tx.put("key", "value")?;
            tx.commit()
        });
        assert_stalls(told.join().unwrap());
        let told = scope.spawn(|| {
            // What a prepare locks it may not wait for either, however long others may.
            let tx = db.with(optimist.lock_timeout(Duration::from_secs(3600))).begin();
            tx.put("key", "value")?;
            tx.prepare("fast").map(drop)
        });
        assert_stalls(told.join().unwrap());
    });
    drop(tx);
    assert!(value_of(&db, "key").is_none());
    assert_at_rest(db.engine());
}

#[test]
fn a_batch_that_waits_for_one_of_its_keys_holds_no_other() {
    let db = open_with(|_| {});
    let tx = db.begin();
    tx.get_for_update("b").unwrap();
    std::thread::scope(|scope| {
        let batch = until_it_waits(scope, &db, || {
            let mut batch = Batch::new();
            batch.put("a", "theirs");
            batch.put("b", "theirs");
            db.write(batch)
        });
        let fast = WriteOptions::new().fail_fast(true);
        db.with(fast).put("a", "mine").unwrap();
        tx.commit().unwrap();
        batch.join().unwrap().unwrap();
    });
    assert_eq!(value_of(&db, "a").unwrap(), "theirs");
    assert_at_rest(db.engine());
}

#[test]
fn keys_that_share_a_slot_with_a_locked_one_are_written_freely() {
    let db = open_with(|options| options.sizes.stamp_slots = 1);
    let tx = db.begin();
    tx.get_for_update("key").unwrap();
    db.put("another", "value").unwrap();
    db.transact(|tx| tx.put("third", "value")).unwrap();
    assert_eq!(db.put("key", "value").unwrap_err().name(), "DEADLOCK");
    tx.commit().unwrap();
    assert_at_rest(db.engine());
}

#[test]
fn a_commit_of_very_many_keys_waits_for_a_lock_on_one_of_them() {
    let db = open_with(|options| options.sizes.slots_written_max = 2);
    let tx = db.begin();
    tx.get_for_update("b").unwrap();
    let mut batch = Batch::new();
    for key in ["a", "b", "c"] {
        batch.put(key, "value");
    }
    assert_eq!(db.write(&mut batch).unwrap_err().name(), "DEADLOCK");
    let many = db.begin();
    many.put("a", "value").and(many.put("b", "value")).and(many.put("c", "value")).unwrap();
    assert_eq!(many.commit().unwrap_err().name(), "DEADLOCK");
    tx.rollback();
    db.write(&mut batch).unwrap();
    let tx = db.begin();
    tx.get_for_update("d").unwrap();
    db.write(&mut batch).unwrap();
    drop(tx);
    assert_at_rest(db.engine());
}

#[test]
fn a_locking_read_sees_the_newest_version_and_the_read_point_moves_only_if_it_must() {
    let db = open();
    db.put("key", "first").unwrap();
    let tx = db.begin();
    tx.get("unchanged").unwrap();
    let point = tx.read_point();
    db.put("elsewhere", "value").unwrap();
    assert_eq!(tx.get_for_share("key").unwrap().unwrap(), "first");
    assert_eq!(tx.read_point(), point, "the key has not changed since");
    db.put("later", "second").unwrap();
    assert_eq!(tx.get_for_update("later").unwrap().unwrap(), "second");
    assert!(tx.read_point() > point);
    assert_eq!(tx.get("elsewhere").unwrap().unwrap(), "value");
    tx.put("key", "third").unwrap();
    tx.commit().unwrap();
    assert_at_rest(db.engine());
}

#[test]
fn a_read_point_does_not_move_over_a_change_of_what_was_read() {
    for (isolation, reads, is_ok) in [
        (Isolation::Serializable, "key", false),
        (Isolation::Serializable, "other", false),
        (Isolation::RepeatableRead, "other", false),
        (Isolation::Serializable, "unchanged", true),
        (Isolation::Snapshot, "unchanged", false),
        (Isolation::ReadCommitted, "other", true),
    ] {
        let db = open();
        let tx = begin(&db, isolation);
        tx.get(reads).unwrap();
        db.put("key", "new").unwrap();
        db.put("other", "new").unwrap();
        let told = tx.get_for_update("key");
        match is_ok {
            true => assert_eq!(told.unwrap().unwrap(), "new"),
            false => {
                conflict_of(told);
                assert!(tx.put("key", "value").is_err(), "it is doomed");
            }
        }
        assert_eq!(tx.commit().is_ok(), is_ok, "{isolation:?} {reads}");
        assert_at_rest(db.engine());
    }
}

#[test]
fn a_write_lock_does_not_hide_that_the_key_was_read_before_a_change() {
    for isolation in [Isolation::Serializable, Isolation::Snapshot] {
        let db = open();
        let options = TransactionOptions::new().isolation(isolation).locking(true);
        let tx = db.with(options).begin();
        db.put("key", "new").unwrap();
        let told = tx.put("key", "blind");
        assert_eq!(told.is_ok(), isolation == Isolation::Serializable, "first updater wins");
        drop(tx);
        assert_at_rest(db.engine());
    }
    // An optimistic transaction reads a key, another transaction commits a change of it, and then
    // the first one locks it.
    let db = open();
    let tx = db.begin();
    tx.get("key").unwrap();
    db.put("key", "new").unwrap();
    conflict_of(tx.get_for_share("key"));
    drop(tx);
    assert_at_rest(db.engine());
}

#[test]
fn two_that_wait_for_each_other_are_a_deadlock_that_names_both() {
    let db = open();
    std::thread::scope(|scope| {
        let older = locking(&db);
        older.put("a", "older").unwrap();
        let younger = until_it_waits(scope, &db, || {
            let younger = locking(&db);
            younger.put("b", "younger")?;
            let told = younger.put("a", "younger").map(|()| younger.id());
            told.and_then(|id| younger.commit().map(|_| id))
        });
        let told = older.put("b", "older");
        let died = younger.join().unwrap().unwrap_err();
        let ErrorKind::Deadlock { cycle } = died.kind() else { panic!("{died:?}") };
        let keys: Vec<&[u8]> = cycle.iter().map(|wait| &wait.key[..]).collect();
        assert_eq!((keys, cycle[1].transaction), (vec![&b"a"[..], b"b"], Some(older.id())));
        told.unwrap();
        older.commit().unwrap();
    });
    assert_eq!(
        value_of(&db, "a").zip(value_of(&db, "b")).unwrap(),
        ("older".into(), "older".into())
    );
    assert_eq!(db.metrics().deadlocks, 1);
    assert_at_rest(db.engine());
}

#[test]
fn locks_go_with_a_rollback_a_reset_and_a_conflict_that_ends_the_transaction() {
    let db = open();
    let mut tx = locking(&db);
    tx.get("read").unwrap();
    tx.put("written", "value").unwrap();
    for key in ["read", "written"] {
        assert_eq!(db.put(key, "value").unwrap_err().name(), "DEADLOCK");
    }
    tx.reset();
    db.put("read", "value").and(db.put("written", "value")).unwrap();
    tx.get("read").unwrap();
    assert_eq!(db.put("read", "value").unwrap_err().name(), "DEADLOCK");
    tx.rollback();
    db.put("read", "value").unwrap();
    assert_at_rest(db.engine());
}

/// A count in `key` that all threads raise, each in its own way; none is lost.
fn raise(db: &Db, way: usize, key: &str) -> Result<()> {
    let next = |value: Option<&[u8]>| {
        let count = value.map_or(0, |value| u64::from_be_bytes(value.try_into().unwrap()));
        (count + 1).to_be_bytes()
    };
    let locking = TransactionOptions::new().locking(true).attempts(1000);
    match way % 4 {
        0 => drop(db.fetch_update(key, |value| Some(next(value)))?),
        1 => db.transact(|tx| {
            let value = tx.get_for_update(key)?;
            tx.put(key, next(value.as_deref()))
        })?,
        2 => drop(db.with(locking).transact(|tx| {
            let value = tx.get(key)?;
            tx.put(key, next(value.as_deref()))
        })?),
        _ => db.transact(|tx| {
            let value = tx.get(key)?;
            tx.put(key, next(value.as_deref()))
        })?,
    }
    Ok(())
}

#[test]
fn no_update_is_lost_whatever_threads_lock_and_plain_writes_come_through() {
    let db = open_with(|options| options.sizes.stamp_slots = 2);
    let raised = [0, 1].map(AtomicU64::new);
    let each = if cfg!(miri) { 3 } else { 60 };
    std::thread::scope(|scope| {
        for way in 0..4 {
            let (db, raised) = (&db, &raised);
            scope.spawn(move || {
                for n in 0..each {
                    let at = (n + way) % 2;
                    if raise(db, way, ["even", "odd"][at]).is_ok() {
                        raised[at].fetch_add(1, Ordering::Relaxed);
                    }
                    db.put(["x", "y", "z"][n % 3], "plain").unwrap();
                }
            });
        }
    });
    for (key, start, raised) in [("even", 0, &raised[0]), ("odd", 1, &raised[1])] {
        let count = u64::from_be_bytes(db.get(key).unwrap().unwrap()[..].try_into().unwrap());
        assert_eq!(count + start, raised.load(Ordering::Relaxed), "{key}");
        assert!(count > each as u64, "hardly any attempt fails: {count}");
    }
    assert_at_rest(db.engine());
}

#[test]
fn a_plain_write_has_its_turn_though_others_keep_locking_its_key() {
    let db = open();
    let is_over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    let tx = db.begin();
                    tx.get_for_update("key").unwrap();
                    tx.put("key", "locked").unwrap();
                    tx.commit().unwrap();
                }
            });
        }
        for _ in 0..20 {
            db.put("key", "plain").unwrap();
        }
        is_over.store(true, Ordering::Relaxed);
    });
    assert_at_rest(db.engine());
}

/// Holds a lock until so many hold it or ask for it: then it is free at no moment, and who has no
/// turn by right gets none by luck.
pub(super) fn hold_until(present: &AtomicUsize, least: usize, is_over: &AtomicBool) {
    while present.load(Ordering::Relaxed) < least && !is_over.load(Ordering::Relaxed) {
        std::thread::yield_now();
    }
}

/// A batch of so many keys locks no single one.
#[test]
fn a_long_batch_has_its_turn_though_others_hand_a_key_of_it_on() {
    let db = open_with(|options| {
        options.sizes.slots_written_max = 2;
        options.lock_timeout = Duration::from_secs(60);
    });
    let patient = TransactionOptions::new().lock_timeout(Duration::from_secs(600));
    let (is_over, present) = (AtomicBool::new(false), AtomicUsize::new(0));
    let told = std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    present.fetch_add(1, Ordering::Relaxed);
                    let tx = db.with(patient).begin();
                    tx.get_for_update("k").unwrap();
                    hold_until(&present, 2, &is_over);
                    drop(tx);
                    present.fetch_sub(1, Ordering::Relaxed);
                }
            });
        }
        let mut batch = Batch::new();
        ["a", "k", "z"].iter().for_each(|key| _ = batch.put(key, "long"));
        let told = db.write(&mut batch);
        is_over.store(true, Ordering::Relaxed);
        told
    });
    assert!(told.is_ok(), "{told:?}");
    assert_at_rest(db.engine());
}

/// What it has read is known by then. A sync may last long, and here it fails.
#[test]
fn a_commit_that_writes_nothing_gives_its_locks_back_before_it_waits_for_a_sync() {
    let db = open();
    let engine = db.engine();
    db.put("key", "value").unwrap();
    let options = TransactionOptions::new().write(WriteOptions::sync());
    let mut life = Life::begin(engine, options);
    let (family, read) = (engine.default_family.clone(), ReadOptions::default());
    life.get_locked(engine, &family, b"key", LockMode::Exclusive, read).unwrap();
    engine.log.poison(&Error::closed());
    assert_eq!(life.commit(engine).unwrap_err().name(), "OUTCOME_UNKNOWN");
    assert!(engine.locks.is_free());
    life.end(engine);
}

#[test]
fn threads_that_count_and_then_insert_come_to_an_end_and_count_right() {
    let db = open();
    let each = if cfg!(miri) { 2 } else { 25 };
    std::thread::scope(|scope| {
        for at in 0..3 {
            let db = &db;
            scope.spawn(move || {
                let persistent = TransactionOptions::new().attempts(100);
                for n in 0..each {
                    let insert = |tx: &Transaction| {
                        let count = tx.prefix("count").count();
                        tx.put(format!("count{count:04}"), "value")
                    };
                    db.with(persistent).transact(insert).unwrap();
                    db.put(format!("other{at}"), format!("{n}")).unwrap();
                }
            });
        }
    });
    assert_eq!(db.prefix("count").count(), 3 * each);
    assert_eq!(value_of(&db, &format!("count{:04}", 3 * each - 1)).unwrap(), "value");
    assert_at_rest(db.engine());
}

#[test]
fn a_plain_write_waits_for_a_range_that_its_own_thread_has_not_locked() {
    let db = open();
    let engine = db.engine();
    let mut locks = crate::write::KeyLocks::of_transaction(Isolation::Serializable, SHORT);
    let span = crate::lock::Span { lower: b"b"[..].into(), upper: Some(b"d"[..].into()) };
    let mode = crate::lock::LockMode::Shared;
    let mut batch = Batch::new();
    batch.put("a", "value").put("c", "other");
    std::thread::scope(|scope| {
        let locker = scope.spawn(|| {
            locks.take_range(engine, (0, &span), mode).unwrap();
            locks
        });
        let mut locks = locker.join().unwrap();
        let waits = until_it_waits(scope, &db, || db.put("c", "value"));
        let later = until_it_waits(scope, &db, || db.write(&mut batch));
        db.put("d", "outside").unwrap();
        assert!(!waits.is_finished() && !later.is_finished());
        locks.end(engine);
        waits.join().unwrap().unwrap();
        later.join().unwrap().unwrap();
    });
    assert_at_rest(engine);
}

#[test]
fn a_close_ends_waits_for_locks() {
    let db = open();
    let tx = db.begin();
    tx.get_for_update("key").unwrap();
    std::thread::scope(|scope| {
        let waits = until_it_waits(scope, &db, || db.put("key", "value"));
        crate::close::close(db.engine()).unwrap();
        assert!(waits.join().unwrap().unwrap_err().is_closed());
    });
    assert!(tx.get_for_update("other").unwrap_err().is_closed());
}

#[test]
fn what_cannot_be_locked_says_why() {
    let fs = crate::vfs::MemoryFs::new();
    let env = crate::Env { fs: std::sync::Arc::new(fs), ..crate::Env::system() };
    let db = Options::new().env(env.clone()).open("/db").unwrap();
    let family = db.family("dropped").unwrap();
    let tx = db.begin();
    db.drop_family(&family).unwrap();
    assert_eq!(tx.of(&family).get_for_update("key").unwrap_err().name(), "UNKNOWN_FAMILY");
    let long = vec![0; crate::MAX_KEY_LEN + 1];
    assert_eq!(tx.get_for_update(&long).unwrap_err().name(), "INVALID_ARGUMENT");
    drop(tx);
    db.close().unwrap();
    let reader = Options::new().env(env).read_only(true).open("/db").unwrap();
    assert_eq!(reader.begin().get_for_share("key").unwrap_err().name(), "READ_ONLY");
    let locking = reader.with(TransactionOptions::new().locking(true)).begin();
    assert!(locking.get("key").unwrap().is_none(), "it has nothing to lock against");
}

/// A lock moves the read point only if what was read is unchanged, and a scan that ended early has
/// read no more than it passed.
#[test]
fn a_lock_taken_after_a_scan_that_ended_early_counts_what_the_scan_passed() {
    for (changed, conflicts) in [("a", true), ("c", false)] {
        let db = open();
        ["a", "b", "c", "key"].iter().for_each(|key| drop(db.put(key, "before")));
        let tx = db.begin();
        assert_eq!(tx.range("a".."d").next().unwrap().unwrap().0, "a");
        db.put(changed, "after").unwrap();
        db.put("key", "after").unwrap();
        let told = tx.get_for_update("key");
        assert_eq!(told.is_err(), conflicts, "{changed}: {told:?}");
        if !conflicts {
            assert_eq!(told.unwrap().unwrap(), "after");
            tx.commit().unwrap();
        }
    }
}

#[test]
fn locks_take_no_more_memory_than_half_of_the_write_buffer() {
    let key = |nth: u32| format!("key {nth:04}");
    type Lock = fn(&Transaction, &str) -> Result<()>;
    let ways: [(bool, Lock); 4] = [
        (false, |tx, key| tx.get_for_update(key).map(drop)),
        (false, |tx, key| tx.lock_range(key..=key, LockMode::Shared)),
        (true, |tx, key| tx.put(key, "")),
        (true, |tx, key| tx.delete_range(key..=key)),
    ];
    for (nth_way, (is_locking, lock)) in ways.into_iter().enumerate() {
        let db = open_with(|options| options.write_buffer = Some(64 << 10));
        let mut tx = db.with(TransactionOptions::new().locking(is_locking)).begin();
        let mut locked = || {
            let (refused, told) = (0..1000)
                .find_map(|nth| lock(&tx, &key(nth)).err().map(|told| (nth, told)))
                .expect("there is an end");
            let kind = told.kind();
            assert!(matches!(kind, ErrorKind::TransactionTooLarge { .. }), "{nth_way} {told:?}");
            lock(&tx, &key(0)).expect("what is locked takes nothing more");
            lock(&tx, &key(refused)).unwrap_err();
            tx.get_untracked("other").expect("the transaction goes on");
            tx.reset();
            refused
        };
        let count = locked();
        assert!((80..240).contains(&count), "{nth_way}: {count}");
        assert_eq!(locked(), count, "a reset gives all back");
        tx.commit().unwrap();
        assert_at_rest(db.engine());
    }
}
