//! Range deletes of a transaction itself: what it sees of them, what they conflict with, what they
//! lock, and what a commit makes of them.

mod drawn;

use super::{assert_at_rest, begin, conflict_of, open};
use crate::error::{ConflictKind, Error};
use crate::options::{Isolation, Options, TransactionOptions};
use crate::vfs::MemoryFs;
use crate::{Db, LockMode, Prefix, Transaction};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use Isolation::{ReadCommitted, ReadUncommitted, RepeatableRead, Serializable, Snapshot};

const LEVELS: [Isolation; 5] =
    [ReadUncommitted, ReadCommitted, RepeatableRead, Snapshot, Serializable];

/// What may happen to the database, and changes nothing of what it holds.
const AFTERWARDS: [fn(&Db); 3] = [
    |_| (),
    |db| db.flush().unwrap(),
    |db| {
        db.flush().unwrap();
        db.compact().unwrap();
    },
];

type Key = Vec<u8>;
type Map = BTreeMap<Key, Vec<u8>>;

fn pair((key, value): (crate::Value, crate::Value)) -> (Key, Vec<u8>) {
    (key.to_vec(), value.to_vec())
}

fn rows(db: &Db) -> Map {
    db.iter().map(|item| pair(item.unwrap())).collect()
}

fn open_on(fs: &MemoryFs) -> Db {
    let env = crate::env::Env { fs: Arc::new(fs.clone()), ..crate::env::Env::system() };
    Options::new().env(env).open("/db").unwrap()
}

fn with_keys(keys: &[&str]) -> Db {
    let db = open();
    keys.iter().for_each(|key| _ = db.put(key, "before").unwrap());
    db
}

fn impatient(level: Isolation) -> TransactionOptions {
    TransactionOptions::new().isolation(level).lock_timeout(Duration::from_millis(30))
}

/// The result of a call on another thread.
fn elsewhere<T: Send>(call: impl FnOnce() -> crate::Result<T> + Send) -> &'static str {
    let told = std::thread::scope(|scope| scope.spawn(call).join().unwrap());
    told.map_or_else(|error| error.name(), |_| "done")
}

#[test]
fn families_have_their_own_range_deletes() {
    let db = with_keys(&["a", "b"]);
    let (one, two) = (db.family("one").unwrap(), db.family("two").unwrap());
    for family in [&one, &two] {
        ["a", "b"].iter().for_each(|key| _ = family.put(key, "before").unwrap());
    }
    let tx = db.begin();
    tx.of(&two).put("a", "mine").unwrap();
    tx.of(&one).delete_range("a"..="a").unwrap();
    tx.put("c", "mine").unwrap();
    tx.of(&two).delete_prefix("a").unwrap();
    tx.of(&two).put("aa", "mine").unwrap();
    let counts =
        || [tx.count(..), tx.of(&one).count(..), tx.of(&two).count(..)].map(Result::unwrap);
    assert_eq!(counts(), [3, 1, 2]);
    tx.commit().unwrap();
    assert_eq!([db.count(..), one.count(..), two.count(..)].map(Result::unwrap), [3, 1, 2]);
    assert!(two.contains("aa").unwrap() && !two.contains("a").unwrap());
    assert_at_rest(db.engine());
}

#[test]
fn what_was_put_before_a_range_delete_is_not_written_at_all() {
    let db = open();
    let tx = db.begin();
    (0..1000u32).for_each(|n| tx.put(n.to_be_bytes(), [7; 100]).unwrap());
    tx.delete_range(..).unwrap();
    tx.put("after", "mine").unwrap();
    let tail = db.engine().log.tail();
    tx.commit().unwrap();
    assert!(db.engine().log.tail() - tail < 200);
    assert_eq!(rows(&db).into_keys().collect::<Vec<_>>(), [b"after"]);
}

#[test]
fn a_range_without_keys_changes_nothing_and_one_turned_round_is_refused() {
    let db = with_keys(&["a"]);
    let tail = db.engine().log.tail();
    let tx = db.begin();
    tx.delete_range("a".."a").unwrap();
    let told = tx.delete_range("b".."a").unwrap_err();
    assert_eq!(told.name(), "INVALID_ARGUMENT");
    assert!(tx.contains("a").unwrap());
    tx.commit().unwrap();
    assert_eq!(db.engine().log.tail(), tail);
    let gone = db.family("gone").unwrap();
    db.drop_family(&gone).unwrap();
    let tx = db.begin();
    assert_eq!(tx.of(&gone).delete_range(..).unwrap_err().name(), "UNKNOWN_FAMILY");
    assert_eq!(tx.of(&gone).delete_range("a".."a").unwrap_err().name(), "UNKNOWN_FAMILY");
}

#[test]
fn an_iterator_shows_the_range_deletes_as_of_its_opening() {
    let db = with_keys(&["a", "b", "c", "d"]);
    let tx = db.begin();
    tx.delete_range("b".."c").unwrap();
    let (early, mut cursor) = (tx.iter().keys(), tx.cursor(..).unwrap());
    tx.delete_range(..).unwrap();
    tx.put("b", "mine").unwrap();
    assert_eq!(early.map(|key| key.unwrap().to_vec()).collect::<Vec<_>>(), [b"a", b"c", b"d"]);
    assert_eq!(cursor.last().unwrap().unwrap().key(), b"d");
    assert_eq!(tx.iter().keys().map(|key| key.unwrap().to_vec()).collect::<Vec<_>>(), [b"b"]);
}

/// What others may do to a range before a transaction that has deleted it commits.
const CHANGES: [fn(&Db); 4] = [
    |db| _ = db.put("k", "theirs").unwrap(),
    |db| _ = db.put("new", "theirs").unwrap(),
    |db| _ = db.delete("k").unwrap(),
    |db| _ = db.delete_range("a".."l").unwrap(),
];

#[test]
fn at_snapshot_the_first_to_write_into_a_deleted_range_wins_wherever_that_lies() {
    for change in CHANGES {
        for afterwards in AFTERWARDS {
            let db = with_keys(&["k"]);
            let tx = begin(&db, Snapshot);
            tx.delete_range("k".."o").unwrap();
            change(&db);
            afterwards(&db);
            let before = rows(&db);
            let (key, kind) = conflict_of(tx.commit());
            assert_eq!(kind, ConflictKind::Write);
            assert!((b"k".to_vec()..b"o".to_vec()).contains(&key), "{key:?}");
            assert_eq!(rows(&db), before);
            assert_eq!(db.metrics().conflicts_write, 1);
            assert_at_rest(db.engine());
        }
    }
}

#[test]
fn at_snapshot_what_lies_beside_a_deleted_range_is_no_conflict() {
    for afterwards in AFTERWARDS {
        let db = with_keys(&["k"]);
        let tx = begin(&db, Snapshot);
        tx.delete_range("k".."o").unwrap();
        tx.savepoint("here").unwrap();
        tx.delete_range("p"..).unwrap();
        tx.rollback_to("here").unwrap();
        ["j", "o", "q"].iter().for_each(|key| _ = db.put(key, "theirs").unwrap());
        db.delete_range(.."k").unwrap();
        db.family("side").unwrap().put("k", "theirs").unwrap();
        afterwards(&db);
        tx.commit().unwrap();
        assert_eq!(rows(&db).into_keys().collect::<Vec<_>>(), [b"o", b"q"]);
    }
}

#[test]
fn of_two_snapshot_transactions_that_delete_overlapping_ranges_the_second_fails() {
    let db = with_keys(&["a", "f", "z"]);
    let (one, two) = (begin(&db, Snapshot), begin(&db, Snapshot));
    one.delete_range("a".."g").unwrap();
    two.delete_range("f".."h").unwrap();
    one.commit().unwrap();
    assert_eq!(conflict_of(two.commit()).1, ConflictKind::Write);
    let (one, two) = (begin(&db, Snapshot), begin(&db, Snapshot));
    one.put("fresh", "one").unwrap();
    two.delete_range("f".."h").unwrap();
    one.commit().unwrap();
    assert_eq!(conflict_of(two.commit()), (b"fresh".to_vec(), ConflictKind::Write));
    let (one, two) = (begin(&db, Snapshot), begin(&db, Snapshot));
    one.delete_range("f".."h").unwrap();
    two.put("fresh", "two").unwrap();
    one.commit().unwrap();
    assert_eq!(conflict_of(two.commit()), (b"fresh".to_vec(), ConflictKind::Write));
}

#[test]
fn at_the_other_levels_a_range_delete_that_nothing_was_read_of_conflicts_with_nothing() {
    for level in [ReadUncommitted, ReadCommitted, RepeatableRead, Serializable] {
        for change in CHANGES {
            let db = with_keys(&["k", "z"]);
            let tx = begin(&db, level);
            tx.delete_range("a".."y").unwrap();
            tx.put("mine", "mine").unwrap();
            change(&db);
            tx.commit().unwrap();
            assert_eq!(rows(&db).into_keys().collect::<Vec<_>>(), [&b"mine"[..], b"z"]);
            assert_at_rest(db.engine());
        }
    }
}

#[test]
fn what_is_read_in_an_own_deleted_range_relies_on_nothing_and_what_was_read_before_does() {
    for level in [RepeatableRead, Serializable] {
        let db = with_keys(&["k"]);
        let tx = begin(&db, level);
        tx.delete_range("a".."m").unwrap();
        assert!(tx.get("k").unwrap().is_none() && !tx.contains("b").unwrap());
        assert_eq!(tx.multi_get(["k", "l"]).unwrap(), [None, None]);
        assert!(tx.put_if("b", None, "mine").unwrap());
        db.put("k", "theirs").unwrap();
        db.put("b", "theirs").unwrap();
        tx.commit().unwrap();
        assert_eq!(db.get("b").unwrap().unwrap(), "mine");
        let tx = begin(&db, level);
        assert!(tx.get("k").unwrap().is_none());
        tx.delete_range("a".."m").unwrap();
        db.put("k", "theirs").unwrap();
        assert_eq!(conflict_of(tx.commit()), (b"k".to_vec(), ConflictKind::Read));
    }
}

#[test]
fn who_has_read_or_written_in_a_range_meets_the_range_delete_of_a_transaction() {
    type Reads = fn(&Transaction);
    let readers: [(Isolation, Reads, ConflictKind); 4] = [
        (RepeatableRead, |tx| assert!(tx.get("k").unwrap().is_some()), ConflictKind::Read),
        (Serializable, |tx| assert!(tx.get("none").unwrap().is_none()), ConflictKind::Read),
        (Serializable, |tx| assert_eq!(tx.count("x"..).unwrap(), 0), ConflictKind::Range),
        (Snapshot, |tx| tx.put("k", "mine").unwrap(), ConflictKind::Write),
    ];
    for (level, read, kind) in readers {
        for afterwards in AFTERWARDS {
            let db = with_keys(&["k"]);
            let tx = begin(&db, level);
            read(&tx);
            db.family("side").unwrap();
            tx.put("zero", "mine").unwrap();
            db.transact(|other| other.delete_range("k"..)).unwrap();
            afterwards(&db);
            assert_eq!(conflict_of(tx.commit()).1, kind);
            assert_eq!(db.count(..).unwrap(), 0);
        }
    }
}

#[test]
fn a_locking_transaction_locks_the_range_that_it_deletes() {
    for level in LEVELS {
        let db = with_keys(&["b1", "c"]);
        let impatient = db.with(impatient(level).locking(true));
        let tx = impatient.begin();
        tx.delete_prefix("b").unwrap();
        tx.delete_range("b1"..="b1").unwrap();
        let held = |tx: &Transaction| {
            let running = db.transactions();
            running.iter().find(|one| one.id == tx.id()).unwrap().locked_ranges
        };
        assert_eq!(held(&tx), 1, "what is locked is not locked again");
        for key in ["b1", "b", "bzz"] {
            let locked = || impatient.begin().get_for_update(key);
            assert_eq!(elsewhere(locked), "LOCK_TIMEOUT", "{key}");
        }
        let ranged = || impatient.begin().lock_range("a".."b1", LockMode::Shared);
        assert_eq!(elsewhere(ranged), "LOCK_TIMEOUT");
        assert_eq!(elsewhere(|| impatient.begin().delete_range("a".."b1")), "LOCK_TIMEOUT");
        assert_eq!(elsewhere(|| impatient.begin().get_for_update("c")), "done");
        tx.commit().unwrap();
        assert_eq!(rows(&db).into_keys().collect::<Vec<_>>(), [b"c"]);
        assert_at_rest(db.engine());
    }
}

#[test]
fn a_locking_range_delete_of_what_has_changed_is_a_conflict_at_snapshot_alone() {
    for level in LEVELS {
        let db = with_keys(&["k"]);
        let tx = db.with(impatient(level).locking(true)).begin();
        db.put("k", "theirs").unwrap();
        let told = tx.delete_range("a".."z");
        if level == Snapshot {
            assert_eq!(conflict_of(told), (b"k".to_vec(), ConflictKind::Write));
            assert_eq!(conflict_of(tx.commit()), (b"k".to_vec(), ConflictKind::Write));
        } else {
            told.unwrap();
            tx.delete_range("b".."c").unwrap();
            tx.commit().unwrap();
            assert_eq!(db.count(..).unwrap(), 0);
        }
        assert_at_rest(db.engine());
    }
}

#[test]
fn a_locking_transaction_that_has_read_the_range_finds_the_change_when_it_commits() {
    let db = with_keys(&["k"]);
    let tx = db.with(impatient(Serializable).locking(true)).begin();
    assert_eq!(tx.count("a".."z").unwrap(), 1);
    db.put("k", "theirs").unwrap();
    tx.delete_range("a".."z").unwrap();
    assert_eq!(conflict_of(tx.commit()).1, ConflictKind::Range);
    assert_at_rest(db.engine());
}

#[test]
fn a_range_delete_waits_for_what_others_have_locked_in_it_and_not_for_its_own() {
    for level in LEVELS {
        for locking in [false, true] {
            let mut options = Options::in_memory();
            options.lock_timeout = Duration::from_millis(30);
            let db = options.open("/db").unwrap();
            ["k", "l"].iter().for_each(|key| _ = db.put(key, "before").unwrap());
            let impatient = db.with(impatient(level).locking(locking));
            let other = db.begin();
            assert!(other.get_for_update("k").unwrap().is_some());
            let delete = || {
                let tx = impatient.begin();
                tx.delete_range("a".."z")?;
                tx.commit()
            };
            assert_eq!(elsewhere(delete), "LOCK_TIMEOUT", "{level:?} {locking}");
            drop(other);
            let other = db.begin();
            other.lock_range("m"..="n", LockMode::Shared).unwrap();
            assert_eq!(elsewhere(delete), "LOCK_TIMEOUT", "{level:?} {locking}");
            drop(other);
            let tx = impatient.begin();
            assert!(tx.get_for_update("k").unwrap().is_some());
            tx.lock_range("m"..="n", LockMode::Shared).unwrap();
            tx.delete_range("a".."z").unwrap();
            tx.put("l", "mine").unwrap();
            assert!(tx.get_for_update("k").unwrap().is_none());
            tx.commit().unwrap();
            assert_eq!(rows(&db).into_keys().collect::<Vec<_>>(), [b"l"]);
            assert_at_rest(db.engine());
        }
    }
}

#[test]
fn a_range_delete_in_a_range_of_ones_own_waits_for_no_one_that_waits_for_it() {
    let db = with_keys(&["k"]);
    let locking = db.with(TransactionOptions::new().locking(true));
    let tx = locking.begin();
    db.put("k", "theirs").unwrap();
    // It has changed, so it is locked and not covered.
    tx.delete_range("a".."z").unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let other = locking.begin();
            other.delete_range("b".."y")?;
            other.commit()
        });
        while db.engine().locks.sleepers() == 0 && !waiting.is_finished() {
            std::thread::yield_now();
        }
        tx.delete_range("c".."d").unwrap();
        tx.commit().unwrap();
        waiting.join().unwrap().unwrap();
    });
    assert_at_rest(db.engine());
}

#[test]
fn a_rerun_locks_the_range_in_which_others_were_first() {
    for locking in [false, true] {
        let db = with_keys(&["k"]);
        let mut runs = 0;
        let options = TransactionOptions::new().isolation(Snapshot).locking(locking);
        let told = db.with(options).transact(|tx| {
            runs += 1;
            let written = elsewhere(|| {
                let brief = db.with(impatient(Snapshot)).begin();
                brief.put(format!("k{runs}"), "theirs")?;
                brief.commit()
            });
            assert_eq!(written, if runs == 1 { "done" } else { "LOCK_TIMEOUT" });
            tx.delete_range("a".."m")?;
            tx.put("count", runs.to_string())
        });
        told.unwrap();
        assert_eq!(runs, 2);
        assert_eq!(rows(&db).into_keys().collect::<Vec<_>>(), [b"count"]);
        assert_at_rest(db.engine());
    }
}

#[test]
fn a_long_record_with_range_deletes_is_committed_and_replayed() {
    for level in LEVELS {
        let fs = MemoryFs::new();
        let db = open_on(&fs);
        (0..3000u32).for_each(|n| _ = db.put(n.to_be_bytes(), "before").unwrap());
        let tx = begin(&db, level);
        assert!(tx.get(7u32.to_be_bytes()).unwrap().is_some());
        for n in (0..3000u32).step_by(100) {
            tx.delete_range(n.to_be_bytes()..(n + 90).to_be_bytes()).unwrap();
            (n + 40..n + 95).for_each(|n| tx.put(n.to_be_bytes(), [1; 60]).unwrap());
        }
        tx.commit().unwrap();
        let left = rows(&db);
        assert_eq!(left.len(), 30 * 60);
        assert_at_rest(db.engine());
        drop(db);
        assert_eq!(rows(&open_on(&fs.killed())), left, "{level:?}");
    }
}

#[test]
fn range_deletes_count_towards_what_a_transaction_may_write() {
    let db = Options::in_memory().write_buffer(64 << 10).open("/db").unwrap();
    let tx = db.begin();
    let delete = |n: u32| tx.delete_range((2 * n).to_be_bytes()..(2 * n + 1).to_be_bytes());
    let refused = (0..100_000).find_map(|n| delete(n).err()).expect("it has a limit");
    assert_eq!(refused.name(), "TRANSACTION_TOO_LARGE");
    // Ranges that meet are one, however many they are.
    let tx = db.begin();
    let delete = |n: u32| tx.delete_range(n.to_be_bytes()..(n + 5).to_be_bytes());
    (0..100_000).for_each(|n| delete(n).unwrap());
    tx.commit().unwrap();
}

#[test]
fn an_ended_transaction_deletes_no_range() {
    let db = with_keys(&["k"]);
    let tx = db.begin();
    let handle = tx.abort_handle();
    assert!(handle.abort());
    let is_aborted = |told: Result<(), Error>| told.unwrap_err().is_transaction_aborted();
    assert!(is_aborted(tx.delete_range(..)) && is_aborted(tx.delete_prefix(Prefix("k").0)));
    assert!(tx.commit().is_err());
    assert_eq!(db.count(..).unwrap(), 1);
}
