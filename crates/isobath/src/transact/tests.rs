//! Transactions one after the other, on one thread: what each isolation level checks, and what each
//! kind of trouble leaves behind. The simulator does the same with many at once.

mod ceiling;
mod frontier;
mod hook;
mod large;
mod levels;
mod lock_range;
mod locks;
mod own_spans;
mod prepared;
mod reruns;
mod running;
mod spans;
mod spill;
mod trouble;
mod watch;

use super::begin::Life;
use crate::engine::Engine;
use crate::error::{ConflictKind, Error, ErrorKind, Result};
use crate::format::Lsn;
use crate::options::{Isolation, Options, ReadOptions, TransactionOptions, WriteOptions};
use crate::sizes::Sizes;
use crate::{Db, Transaction};

/// No wait for a lock ends by itself, however slow the machine is.
fn open() -> Db {
    let patience = std::time::Duration::from_secs(600);
    Options::in_memory().lock_timeout(patience).open("/db").unwrap()
}

fn begin(db: &Db, isolation: Isolation) -> Transaction {
    db.with(TransactionOptions::new().isolation(isolation)).begin()
}

/// The key and the kind of a conflict.
#[track_caller]
fn conflict_of(told: Result<impl std::fmt::Debug>) -> (Vec<u8>, ConflictKind) {
    match told.as_ref().map_err(Error::kind) {
        Err(ErrorKind::Conflict { key, kind, .. }) => (key.clone(), *kind),
        _ => panic!("no conflict: {told:?}"),
    }
}

/// Nothing is announced, and no commit is inside the gate: it closes.
#[track_caller]
fn assert_at_rest(engine: &Engine) {
    let stamps = &engine.conflicts.stamps;
    for hash in 0..engine.options.sizes.stamp_slots as u64 {
        let seen = stamps.load(stamps.slot(0, hash));
        assert!(seen.pending == 0 && !seen.locked);
    }
    for _ in 0..2 {
        engine.conflicts.gate.close_if_idle();
    }
    assert!(engine.conflicts.gate.look().is_closed());
    assert_eq!(engine.points.held(), (0, None));
    assert!(engine.locks.is_free());
}

#[test]
fn a_transaction_sees_its_own_writes_and_no_other_reader_does_before_its_commit() {
    let db = open();
    let family = db.family("other").unwrap();
    db.put("old", "value").unwrap();
    let tx = db.begin();
    tx.put("key", "mine").unwrap();
    tx.of(&family).put("key", "there").unwrap();
    tx.delete("old").unwrap();
    assert_eq!(tx.get("key").unwrap().unwrap(), "mine");
    assert!(tx.get("old").unwrap().is_none() && !tx.contains("old").unwrap());
    assert!(tx.of(&family).contains("key").unwrap());
    let values = tx.multi_get(["key", "old", "none"]).unwrap();
    assert_eq!(values.iter().map(Option::is_some).collect::<Vec<_>>(), [true, false, false]);
    assert!(db.get("key").unwrap().is_none() && db.contains("old").unwrap());
    let commit = tx.commit().unwrap();
    assert_eq!(db.get("key").unwrap().unwrap(), "mine");
    assert_eq!(family.get("key").unwrap().unwrap(), "there");
    assert!(!db.contains("old").unwrap());
    db.sync_to(commit).unwrap();
    assert_at_rest(db.engine());
}

/// A replay of the log numbers them so.
#[test]
fn operations_are_numbered_from_the_lsn_of_their_commit_on() {
    let db = open();
    let tx = db.begin();
    tx.put("b", "2").unwrap();
    tx.put("a", "1").unwrap();
    let lsn = db.engine().log.tail();
    tx.commit().unwrap();
    let view = db.engine().default_family.view();
    let seq = |key: &str| view.memtables[0].memtable.get(key.as_bytes(), Lsn::MAX).unwrap().seq;
    assert_eq!([seq("a"), seq("b")], [lsn, lsn + 1]);
}

#[test]
fn a_transaction_that_is_dropped_or_rolled_back_leaves_no_trace() {
    let db = open();
    let tail = db.engine().log.tail();
    drop(db.begin());
    let tx = db.begin();
    tx.put("key", "value").unwrap();
    tx.rollback();
    assert_eq!(db.engine().log.tail(), tail);
    assert_at_rest(db.engine());
    let metrics = db.metrics();
    assert_eq!((metrics.transactions_begun, metrics.transactions_rolled_back), (2, 2));
}

/// What happens to a transaction that read one key and writes another, if others write them.
fn fate(isolation: Isolation, others: &str) -> Result<()> {
    let db = open();
    db.put("read", "before").unwrap();
    let tx = begin(&db, isolation);
    tx.get("read").unwrap();
    tx.get("absent").unwrap();
    db.put(others, "after").unwrap();
    tx.put("write", "value").unwrap();
    let told = tx.commit().map(|_| ());
    assert_eq!(db.get("write").unwrap().is_some_and(|v| v == "value"), told.is_ok());
    assert_at_rest(db.engine());
    told
}

#[test]
fn each_level_checks_what_its_table_says() {
    use Isolation::*;
    for level in [ReadUncommitted, ReadCommitted] {
        for key in ["read", "absent", "write", "else"] {
            fate(level, key).unwrap();
        }
    }
    for level in [RepeatableRead, Serializable] {
        for key in ["read", "absent"] {
            assert_eq!(conflict_of(fate(level, key)), (key.into(), ConflictKind::Read));
        }
        fate(level, "write").unwrap();
        fate(level, "else").unwrap();
    }
    assert_eq!(conflict_of(fate(Snapshot, "write")), (b"write".to_vec(), ConflictKind::Write));
    for key in ["read", "absent", "else"] {
        fate(Snapshot, key).unwrap();
    }
}

#[test]
fn read_committed_reads_the_newest_and_the_levels_above_read_one_point() {
    let db = open();
    for (level, expected) in
        [(Isolation::ReadCommitted, "after"), (Isolation::RepeatableRead, "before")]
    {
        db.put("key", "before").unwrap();
        let tx = begin(&db, level);
        assert_eq!(tx.get("key").unwrap().unwrap(), "before");
        db.put("key", "after").unwrap();
        assert_eq!(tx.get("key").unwrap().unwrap(), expected);
    }
}

#[test]
fn of_two_transactions_that_read_what_the_other_writes_one_commits() {
    let db = open();
    let (one, other) = (db.begin(), db.begin());
    one.get("x").unwrap();
    other.get("y").unwrap();
    one.put("y", "one").unwrap();
    other.put("x", "other").unwrap();
    one.commit().unwrap();
    assert_eq!(conflict_of(other.commit()), (b"y".to_vec(), ConflictKind::Read));
    assert_at_rest(db.engine());
}

#[test]
fn a_transaction_that_only_reads_or_only_writes_always_commits() {
    let db = open();
    let (reads, writes) = (db.begin(), db.begin());
    reads.get("key").unwrap();
    let point = reads.read_point();
    db.put("key", "theirs").unwrap();
    writes.put("key", "mine").unwrap();
    assert_eq!(crate::ReadPoint::from(reads.commit().unwrap()), point);
    writes.commit().unwrap();
    assert_eq!(db.get("key").unwrap().unwrap(), "mine");
}

/// With two slots every key shares its word with others.
#[test]
fn keys_that_share_a_slot_with_what_was_written_are_no_conflict() {
    let mut options = Options::in_memory();
    options.sizes = Sizes { stamp_slots: 2, ..options.sizes };
    let db = options.open("/db").unwrap();
    for round in 0..20 {
        let tx = db.begin();
        tx.get(format!("read {round}")).unwrap();
        for other in 0..8 {
            db.put(format!("other {other}"), "value").unwrap();
        }
        tx.put("key", "value").unwrap();
        tx.commit().unwrap();
    }
    assert!(db.metrics().probes >= 20);
    assert_at_rest(db.engine());
}

#[test]
fn a_change_is_found_wherever_its_version_is_by_now() {
    for (flush, compact) in [(false, false), (true, false), (true, true)] {
        for delete in [false, true] {
            let db = open();
            db.put("key", "before").unwrap();
            db.put("other", "before").unwrap();
            let (tx, unharmed) = (db.begin(), db.begin());
            tx.get("key").unwrap();
            unharmed.get("other").unwrap();
            match delete {
                true => db.delete("key").unwrap(),
                false => db.put("key", "after").unwrap(),
            };
            if flush {
                db.flush().unwrap();
            }
            if compact {
                db.compact().unwrap();
            }
            tx.put("mine", "value").unwrap();
            unharmed.put("its", "value").unwrap();
            assert_eq!(conflict_of(tx.commit()), (b"key".to_vec(), ConflictKind::Read));
            unharmed.commit().unwrap();
        }
    }
}

#[test]
fn a_point_from_before_the_gate_opened_is_judged_by_the_versions() {
    let db = open();
    let old = db.begin();
    old.get("key").unwrap();
    old.put("mine", "value").unwrap();
    db.put("key", "unannounced, as the gate is closed").unwrap();
    assert!(db.engine().conflicts.gate.look().is_closed());
    assert_eq!(conflict_of(old.commit()), (b"key".to_vec(), ConflictKind::Read));
}

#[test]
fn a_commit_of_very_many_keys_is_seen_through_the_word_of_its_family() {
    let mut options = Options::in_memory();
    options.sizes = Sizes { slots_written_max: 3, ..options.sizes };
    let db = options.open("/db").unwrap();
    let family = db.family("other").unwrap();
    // The gate is open from here on.
    let opener = db.begin();
    opener.get("any").unwrap();
    opener.put("any", "value").unwrap();
    opener.commit().unwrap();
    let (hit, unharmed) = (db.begin(), db.begin());
    hit.of(&family).get("key 3").unwrap();
    unharmed.of(&family).get("else").unwrap();
    let many = db.begin();
    for n in 0..5 {
        many.of(&family).put(format!("key {n}"), "value").unwrap();
    }
    many.commit().unwrap();
    for (tx, is_hit) in [(hit, true), (unharmed, false)] {
        tx.put("mine", "value").unwrap();
        assert_eq!(tx.commit().is_err(), is_hit);
    }
    let tx = db.begin();
    tx.of(&family).get("key 1").unwrap();
    let mut batch = crate::Batch::new();
    for n in 0..5 {
        batch.of(&family).delete(format!("key {n}"));
    }
    db.write(batch).unwrap();
    tx.put("mine", "value").unwrap();
    assert_eq!(conflict_of(tx.commit()), (b"key 1".to_vec(), ConflictKind::Read));
}

#[test]
fn a_family_that_was_dropped_meanwhile_fails_the_commit() {
    for is_read in [true, false] {
        let db = open();
        let family = db.family("brief").unwrap();
        let tx = db.begin();
        match is_read {
            true => drop(tx.of(&family).get("key").unwrap()),
            false => tx.of(&family).put("key", "value").unwrap(),
        }
        tx.put("mine", "value").unwrap();
        db.drop_family(&family).unwrap();
        assert_eq!(tx.of(&family).put("key", "again").unwrap_err().name(), "UNKNOWN_FAMILY");
        assert_eq!(tx.commit().unwrap_err().name(), "UNKNOWN_FAMILY");
        assert!(db.get("mine").unwrap().is_none());
        assert_at_rest(db.engine());
    }
}

#[test]
fn a_renamed_family_is_the_same_family() {
    let db = open();
    let family = db.family("before").unwrap();
    let tx = db.begin();
    tx.of(&family).get("key").unwrap();
    tx.of(&family).put("key", "value").unwrap();
    db.rename_family(&family, "after").unwrap();
    tx.commit().unwrap();
    assert!(family.contains("key").unwrap());
}

#[test]
fn bad_calls_are_refused_and_leave_the_transaction_as_it_was() {
    let db = open();
    let foreign = open().default_family();
    let tx = db.begin();
    tx.put("key", "value").unwrap();
    let long = vec![0; crate::MAX_KEY_LEN + 1];
    assert_eq!(tx.put(&long, "value").unwrap_err().name(), "INVALID_ARGUMENT");
    assert_eq!(tx.of(&foreign).get("key").unwrap_err().name(), "INVALID_ARGUMENT");
    assert_eq!(tx.of(&foreign).put("key", "value").unwrap_err().name(), "INVALID_ARGUMENT");
    tx.commit().unwrap();
    assert!(db.contains("key").unwrap());
}

#[test]
fn a_savepoint_that_is_not_there_is_refused_and_takes_nothing_back() {
    let db = open();
    let tx = db.begin();
    let is_refused = |name: &str| {
        for told in [tx.rollback_to(name), tx.release(name)] {
            assert_eq!(told.unwrap_err().name(), "INVALID_ARGUMENT", "{name}");
        }
    };
    tx.put("a", "1").unwrap();
    is_refused("never set");
    tx.savepoint("outer").unwrap();
    tx.savepoint("inner").unwrap();
    tx.put("b", "2").unwrap();
    tx.release("inner").unwrap();
    is_refused("inner");
    tx.savepoint("inner").unwrap();
    tx.put("c", "3").unwrap();
    tx.rollback_to("outer").unwrap();
    is_refused("inner");
    tx.release("outer").unwrap();
    is_refused("outer");
    tx.commit().unwrap();
    let keys: Vec<_> = db.iter().keys().map(Result::unwrap).collect();
    assert_eq!(keys, ["a"]);
}

#[test]
fn a_closed_database_refuses_reads_writes_and_commits() {
    let db = open();
    let (tx, reads) = (db.begin(), db.begin());
    tx.put("key", "value").unwrap();
    db.clone().close().unwrap();
    assert!(tx.get("key").unwrap_err().is_closed());
    assert!(tx.put("key", "value").unwrap_err().is_closed());
    assert!(tx.commit().unwrap_err().is_closed());
    assert!(reads.commit().unwrap_err().is_closed());
}

#[test]
fn a_close_that_comes_in_between_does_not_make_what_was_read_look_unchanged() {
    let db = open();
    let engine = db.engine().clone();
    let family = engine.default_family.clone();
    let mut life = Life::begin(&engine, TransactionOptions::new());
    life.get(&engine, &family, b"key", ReadOptions::default()).unwrap();
    let point = life.read_point(&engine);
    db.put("key", "changed").unwrap();
    conflict_of(life.validation(&engine).unwrap().look(point, Lsn::MAX));
    db.close().unwrap();
    let told = life.validation(&engine).unwrap().look(point, Lsn::MAX);
    assert!(told.unwrap_err().is_closed());
    life.end(&engine);
}

#[test]
fn a_poisoned_database_serves_transactions_that_write_nothing() {
    let db = open();
    db.put("key", "value").unwrap();
    let (reads, writes) = (db.begin(), db.begin());
    writes.get("key").unwrap();
    writes.put("key", "mine").unwrap();
    db.engine().log.poison(&Error::planted());
    assert_eq!(reads.get("key").unwrap().unwrap(), "value");
    reads.commit().unwrap();
    assert_eq!(writes.commit().unwrap_err().name(), "POISONED");
    assert_at_rest(db.engine());
}

#[test]
fn a_transaction_beyond_half_of_the_write_buffer_is_refused_before_it_grows() {
    let options = Options::in_memory().write_buffer(64 << 10);
    let db = options.open("/db").unwrap();
    let tx = db.begin();
    tx.put("key", "value").unwrap();
    let told = tx.put("large", vec![7; 32 << 10]);
    let is_limit =
        |error: &Error| matches!(error.kind(), ErrorKind::TransactionTooLarge { limit: 32768, .. });
    assert!(told.as_ref().is_err_and(is_limit), "{told:?}");
    tx.commit().unwrap();
    assert!(db.contains("key").unwrap() && !db.contains("large").unwrap());
}

#[test]
fn a_synced_commit_survives_power_loss_and_so_does_what_a_reader_told() {
    let fs = crate::vfs::MemoryFs::new();
    let open = |fs: &crate::vfs::MemoryFs| {
        let fs = std::sync::Arc::new(fs.clone());
        let env = crate::env::Env { fs, ..crate::env::Env::system() };
        Options::new().env(env).open("/db").unwrap()
    };
    let db = open(&fs);
    db.put("plain", "value").unwrap();
    let sync = TransactionOptions::new().write(WriteOptions::sync());
    db.with(sync).begin().commit().unwrap();
    let tx = db.begin();
    tx.put("lost", "value").unwrap();
    tx.commit().unwrap();
    let db = open(&fs.crashed(|_| 0));
    assert!(db.contains("plain").unwrap());
    let tx = db.with(sync).begin();
    tx.put("kept", "value").unwrap();
    tx.commit().unwrap();
}

#[test]
fn a_closure_is_run_again_on_a_conflict_and_not_on_other_errors() {
    let db = open();
    let mut runs = 0;
    let value = db
        .transact(|tx| {
            runs += 1;
            tx.multi_get([[1], [2]])?;
            if runs < 3 {
                db.put([runs], "theirs")?;
            }
            tx.put("key", "mine")?;
            Ok(runs)
        })
        .unwrap();
    assert_eq!((value, runs), (3, 3));
    assert_eq!(db.get("key").unwrap().unwrap(), "mine");

    let mut runs = 0;
    let told: Result<()> = db.transact(|tx| {
        runs += 1;
        tx.put("key", "never")?;
        Err(Error::planted())
    });
    assert_eq!((told.unwrap_err().name(), runs), ("POISONED", 1));
    assert_eq!(db.get("key").unwrap().unwrap(), "mine");
    assert_at_rest(db.engine());
}

#[test]
fn a_closure_that_meets_a_conflict_each_time_ends_with_it() {
    let db = open();
    let few = db.with(TransactionOptions::new().attempts(3));
    let mut runs = 0;
    let told = few.transact(|tx| {
        runs += 1;
        tx.multi_get([[1], [2], [3]])?;
        db.put([runs], "theirs")?;
        tx.put("key", "mine")
    });
    assert_eq!(conflict_of(told), (vec![3], ConflictKind::Read));
    assert_eq!((runs, db.metrics().conflicts_read), (3, 3));
}

#[test]
fn an_error_type_of_the_program_comes_back_as_it_is() {
    #[derive(Debug)]
    enum Failure {
        Taken,
        Database,
    }
    impl From<Error> for Failure {
        fn from(_: Error) -> Failure {
            Failure::Database
        }
    }
    let db = open();
    db.put("name", "ada").unwrap();
    let claim = |name: &'static str| {
        db.try_transact(|tx| match tx.contains(name)? {
            true => Err(Failure::Taken),
            false => Ok(tx.put(name, "")?),
        })
    };
    assert!(matches!(claim("name"), Err(Failure::Taken)));
    claim("else").unwrap();
    db.clone().close().unwrap();
    assert!(matches!(claim("more"), Err(Failure::Database)));
}

#[test]
fn steps_read_and_write_one_key_as_one_operation() {
    let db = open();
    assert!(db.put_if("key", Some(b"value"), "never").unwrap().is_none());
    db.put_if("key", None, "first").unwrap().unwrap();
    assert!(db.put_if("key", None, "never").unwrap().is_none());
    db.put_if("key", Some(b"first"), "second").unwrap().unwrap();
    let old = db.fetch_update("key", |old| old.map(|old| [old, b"!"].concat())).unwrap();
    assert_eq!(old.unwrap(), "second");
    assert_eq!(db.get("key").unwrap().unwrap(), "second!");
    assert!(db.fetch_update("key", |_| None::<&[u8]>).unwrap().is_some());
    assert!(db.fetch_update("key", |_| None::<&[u8]>).unwrap().is_none());
    assert!(!db.contains("key").unwrap());

    let mut runs = 0;
    let count = |old: Option<&[u8]>| {
        runs += 1;
        if runs == 1 {
            db.put("count", [7]).unwrap();
        }
        Some([old.map_or(0, |old| old[0]) + 1])
    };
    assert_eq!(db.fetch_update("count", count).unwrap().unwrap(), [7]);
    assert_eq!(db.get("count").unwrap().unwrap(), [8]);
    assert_eq!(runs, 2);

    let tx = db.begin();
    assert!(tx.put_if("count", Some(&[8]), [9]).unwrap());
    let nested = |_: Option<&[u8]>| tx.get("count").unwrap();
    assert_eq!(tx.fetch_update("else", nested).unwrap(), None);
    assert_eq!(tx.get("else").unwrap().unwrap(), [9]);
    tx.commit().unwrap();
    assert_at_rest(db.engine());
}

#[test]
fn threads_that_count_on_one_key_lose_no_step() {
    let db = open();
    let (threads, each) = if cfg!(miri) { (2u64, 3) } else { (4, 200) };
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                for _ in 0..each {
                    let add = |old: Option<&[u8]>| {
                        let old = old.map_or(0, |old| u64::from_le_bytes(old.try_into().unwrap()));
                        Some((old + 1).to_le_bytes())
                    };
                    while let Err(error) = db.fetch_update("count", add) {
                        assert!(error.is_conflict(), "{error}");
                    }
                }
            });
        }
        scope.spawn(|| {
            for n in 0..1000u32 {
                db.put(n.to_le_bytes(), "value").unwrap();
            }
        });
    });
    let count = db.get("count").unwrap().unwrap();
    assert_eq!(count, (threads * each).to_le_bytes().as_slice());
    assert_at_rest(db.engine());
}
