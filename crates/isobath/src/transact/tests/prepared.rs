//! Transactions that are prepared and decided later: after flushes, crashes, in other openings, by
//! their names.

mod edges;
mod long_keys;
mod random;
mod steps;
mod trouble;
mod twice;

use super::{assert_at_rest, begin};
use crate::env::Env;
use crate::error::{Error, ErrorKind};
use crate::options::{Isolation, Options, TransactionOptions};
use crate::vfs::{Fault, FileOp, FileSystem, MemoryFs};
use crate::{Db, Prepared, Xid};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

fn over(fs: &MemoryFs) -> Options {
    let fs = Arc::new(fs.clone());
    Options::new().lock_timeout(Duration::from_millis(20)).env(Env { fs, ..Env::system() })
}

fn open(fs: &MemoryFs) -> Db {
    over(fs).open("/db").unwrap()
}

fn prepare(db: &Db, xid: &str, keys: &[&str]) -> Prepared {
    let tx = db.begin();
    keys.iter().for_each(|key| tx.put(key, xid).unwrap());
    tx.prepare(xid).unwrap()
}

fn xid(name: &str) -> Xid {
    Xid::new(name)
}

/// The names of those in doubt.
fn names(db: &Db) -> Vec<String> {
    db.in_doubt().iter().map(|one| one.xid.to_string()).collect()
}

fn files(fs: &MemoryFs) -> usize {
    fs.list(Path::new("/db/table")).unwrap().len()
}

#[test]
fn what_is_prepared_is_unseen_and_locked_until_it_is_committed() {
    let db = open(&MemoryFs::new());
    let side = db.family("side").unwrap();
    let snapshot = db.snapshot();
    let tx = db.begin();
    assert!(tx.get("read").unwrap().is_none());
    tx.put("key", "1").unwrap();
    tx.of(&side).put("there", "2").unwrap();
    tx.delete("gone").unwrap();
    let before = db.snapshot().read_point();
    let prepared = tx.prepare("x").unwrap();
    let told = db.in_doubt();
    assert_eq!(
        (told.len(), &told[0].xid, told[0].isolation),
        (1, &xid("x"), Isolation::Serializable)
    );
    assert_eq!((told[0].point, db.transactions()), (before, vec![]));
    assert!(told[0].bytes > 20 && !db.contains("key").unwrap());
    for key in ["key", "gone", "read"] {
        let refused = db.put(key, "other").unwrap_err();
        let ErrorKind::LockTimeout { xid: Some(named), .. } = refused.kind() else {
            panic!("{key}: {refused:?}");
        };
        assert_eq!(named, &xid("x"), "{refused}");
    }
    assert!(side.put("there", "other").unwrap_err().is_conflict());
    db.put("free", "value").unwrap();
    let commit = prepared.commit().unwrap();
    assert!(db.is_durable(commit));
    assert_eq!(db.get("key").unwrap().unwrap(), "1");
    assert_eq!(side.get("there").unwrap().unwrap(), "2");
    assert!(snapshot.get("key").unwrap().is_none());
    db.put("key", "other").unwrap();
    db.put("read", "other").unwrap();
    let metrics = db.metrics();
    assert_eq!((metrics.transactions_prepared, metrics.prepared_committed), (1, 1));
    assert_eq!((metrics.transactions_rolled_back, metrics.transactions_in_doubt), (0, 0));
    assert_eq!(db.commit_prepared(&xid("x")).unwrap_err().name(), "UNKNOWN_TRANSACTION");
    drop(snapshot);
    assert_at_rest(db.engine());
}

#[test]
fn what_is_rolled_back_leaves_no_trace_and_its_name_is_free() {
    let db = open(&MemoryFs::new());
    prepare(&db, "x", &["key"]).rollback().unwrap();
    assert!(!db.contains("key").unwrap() && db.in_doubt().is_empty());
    db.put("key", "value").unwrap();
    assert_at_rest(db.engine());
    drop(prepare(&db, "x", &["key"]));
    db.rollback_prepared(&xid("x")).unwrap();
    assert_eq!(db.rollback_prepared(&xid("x")).unwrap_err().name(), "UNKNOWN_TRANSACTION");
    assert_eq!(db.metrics().prepared_rolled_back, 2);
    assert_at_rest(db.engine());
}

#[test]
fn names_that_are_empty_too_long_or_taken_are_refused_and_leave_nothing() {
    let db = open(&MemoryFs::new());
    let attempt = |name: &[u8]| {
        let tx = db.begin();
        tx.put(name, "value").unwrap();
        tx.prepare(name).map(drop).unwrap_err()
    };
    assert_eq!(attempt(b"").name(), "INVALID_ARGUMENT");
    let longest = [7; crate::MAX_XID_LEN];
    assert_eq!(attempt(&[7; crate::MAX_XID_LEN + 1]).name(), "INVALID_ARGUMENT");
    let tail = db.engine().log.tail();
    let tx = db.begin();
    tx.put("key", "value").unwrap();
    let held = tx.prepare(&longest[..]).unwrap();
    assert!(db.engine().log.tail() > tail);
    let taken = attempt(&longest);
    let ErrorKind::TransactionExists { xid } = taken.kind() else { panic!("{taken}") };
    assert_eq!((xid.as_bytes(), db.in_doubt().len()), (&longest[..], 1));
    held.rollback().unwrap();
    assert_at_rest(db.engine());
}

#[test]
fn a_conflict_refuses_the_prepare_at_the_levels_that_check() {
    for (level, is_refused) in [
        (Isolation::ReadCommitted, false),
        (Isolation::RepeatableRead, true),
        (Isolation::Snapshot, false),
        (Isolation::Serializable, true),
    ] {
        let db = open(&MemoryFs::new());
        let tx = begin(&db, level);
        tx.get("read").unwrap();
        tx.put("key", "value").unwrap();
        db.put("read", "changed").unwrap();
        let told = tx.prepare("x");
        assert_eq!(told.is_err(), is_refused, "{level:?}: {told:?}");
        match told {
            Ok(prepared) => drop(prepared.commit().unwrap()),
            Err(error) => assert!(error.is_conflict() && db.in_doubt().is_empty()),
        }
        assert_at_rest(db.engine());
    }
    let db = open(&MemoryFs::new());
    let tx = begin(&db, Isolation::Snapshot);
    tx.put("key", "value").unwrap();
    db.put("key", "first").unwrap();
    assert!(tx.prepare("x").unwrap_err().is_conflict());
    assert_at_rest(db.engine());
}

#[test]
fn what_a_scan_passed_stays_as_it_was_until_the_decision() {
    let fs = MemoryFs::new();
    let db = open(&fs);
    let tx = db.begin();
    assert_eq!(tx.range("a".."m").count(), 0);
    tx.put("z", "none").unwrap();
    drop(tx.prepare("x").unwrap());
    assert!(db.put("b", "new").unwrap_err().is_conflict());
    db.put("m", "new").unwrap();
    drop(db);
    let db = open(&fs.killed());
    assert!(db.put("b", "new").unwrap_err().is_conflict());
    db.commit_prepared(&xid("x")).unwrap();
    db.put("b", "new").unwrap();
    assert_at_rest(db.engine());
}

#[test]
fn one_who_read_before_the_decision_conflicts_with_it() {
    let db = open(&MemoryFs::new());
    let prepared = prepare(&db, "x", &["key"]);
    let tx = db.begin();
    assert!(tx.get("key").unwrap().is_none());
    tx.put("other", "value").unwrap();
    prepared.commit().unwrap();
    assert!(tx.commit().unwrap_err().is_conflict());
}

/// Every way in which an entry can be on disk: what is flushed between prepare and decision, and
/// how the process ended.
#[test]
fn a_prepared_transaction_survives_flushes_and_crashes_until_it_is_decided() {
    for flushes in 0..3 {
        for is_commit in [true, false] {
            let fs = MemoryFs::new();
            let db = open(&fs);
            db.put("before", "value").unwrap();
            drop(prepare(&db, "x", &["key", "more"]));
            (0..flushes).for_each(|_| {
                db.put("between", "value").unwrap();
                db.flush().unwrap();
            });
            // Each crash meets what the recovery before it has left.
            let mut left = fs.crashed(|_| 0);
            for nth in 0..3 {
                let db = open(&left);
                assert_eq!(names(&db), ["x"], "{flushes} {nth}");
                assert!(db.put("key", "other").unwrap_err().is_conflict());
                assert!(!db.contains("more").unwrap());
                db.put("since", "value").unwrap();
                if nth == 1 {
                    db.flush().unwrap();
                }
                left = left.crashed(|_| 0);
            }
            let db = open(&left);
            let decided = match is_commit {
                true => db.commit_prepared(&xid("x")).map(drop),
                false => db.rollback_prepared(&xid("x")),
            };
            decided.unwrap();
            left = left.crashed(|_| 0);
            for nth in 0..3 {
                let db = open(&left);
                assert!(db.in_doubt().is_empty(), "{flushes} {nth}");
                assert_eq!(db.contains("key").unwrap(), is_commit);
                assert_eq!(db.contains("more").unwrap(), is_commit);
                db.put("key", "other").unwrap();
                db.delete("key").unwrap();
                if is_commit {
                    db.put("key", "x").unwrap();
                }
                if nth == 1 {
                    db.flush().unwrap();
                }
                left = left.crashed(|_| 0);
            }
        }
    }
}

#[test]
fn a_commit_is_flushed_once_whatever_lies_between_it_and_its_prepare() {
    for flushes_between in [false, true] {
        for flushes_after in [false, true] {
            let fs = MemoryFs::new();
            let db = open(&fs);
            let prepared = prepare(&db, "x", &["key"]);
            if flushes_between {
                db.flush().unwrap();
            }
            prepared.commit().unwrap();
            if flushes_after {
                db.flush().unwrap();
            }
            assert_eq!(db.get("key").unwrap().unwrap(), "x");
            let state_has = db.engine().versions.lock().state().prepared().len();
            assert_eq!(state_has, usize::from(flushes_between && !flushes_after));
            for left in [fs.killed(), fs.crashed(|_| 0)] {
                let db = open(&left);
                assert_eq!(db.get("key").unwrap().unwrap(), "x");
                assert!(db.in_doubt().is_empty());
                assert!(db.engine().versions.lock().state().prepared().is_empty());
            }
        }
    }
}

#[test]
fn no_segment_of_the_log_is_kept_for_what_is_in_doubt() {
    let fs = MemoryFs::new();
    let db = open(&fs);
    drop(prepare(&db, "x", &["key"]));
    let lsn = db.in_doubt()[0].point.lsn;
    db.flush().unwrap();
    assert!(db.engine().versions.lock().state().replay_from() > lsn);
    assert!(db.engine().prepared.below(u64::MAX)[0].content().payload.is_none(), "memory is free");
    let before = files(&fs);
    db.commit_prepared(&xid("x")).unwrap();
    db.flush().unwrap();
    db.engine().remove_obsolete_files();
    assert!(files(&fs) <= before, "the file goes with the decision");
    assert!(db.engine().prepared.below(u64::MAX).is_empty());
}

#[test]
fn a_name_may_be_taken_again_in_the_epoch_of_its_decision() {
    let fs = MemoryFs::new();
    let db = open(&fs);
    drop(prepare(&db, "x", &["first"]));
    db.flush().unwrap();
    db.commit_prepared(&xid("x")).unwrap();
    drop(prepare(&db, "x", &["second"]));
    db.flush().unwrap();
    let db = open(&fs.crashed(|_| 0));
    assert_eq!(names(&db), ["x"]);
    assert!(db.contains("first").unwrap() && !db.contains("second").unwrap());
    db.rollback_prepared(&xid("x")).unwrap();
    assert!(!db.contains("second").unwrap());
}

/// Small buffers make a recovery install tables several times on its way along the log.
#[test]
fn a_recovery_in_pieces_that_is_cut_leaves_what_the_next_one_needs() {
    let fs = MemoryFs::new();
    let small = |fs: &MemoryFs| over(fs).write_buffer(1 << 20);
    let fill = |db: &Db, from: u32| {
        for at in from..from + 300 {
            db.put(at.to_be_bytes(), vec![7; 4000]).unwrap();
        }
    };
    let large = over(&fs).write_buffer(64 << 20).open("/db").unwrap();
    drop(prepare(&large, "kept", &["a"]));
    drop(prepare(&large, "committed", &["b"]));
    drop(prepare(&large, "rolled back", &["c"]));
    fill(&large, 0);
    large.commit_prepared(&xid("committed")).unwrap();
    fill(&large, 1000);
    large.rollback_prepared(&xid("rolled back")).unwrap();
    fill(&large, 2000);
    large.sync().unwrap();
    let left = fs.crashed(|_| 0);
    // The nth write to the manifest fails: each open gets a little further than the last one.
    let mut nth = 1;
    let db = loop {
        left.inject(Fault::on(FileOp::Sync).nth(nth));
        let opened = small(&left).open("/db");
        left.clear_faults();
        match opened {
            Ok(db) => break db,
            Err(_) => nth += 1,
        }
        assert!(nth < 100);
    };
    assert!(nth > 4, "several edits were cut: {nth}");
    assert_eq!(names(&db), ["kept"]);
    assert_eq!(db.get("b").unwrap().unwrap(), "committed");
    assert!(!db.contains("a").unwrap() && !db.contains("c").unwrap());
    db.commit_prepared(&xid("kept")).unwrap();
    assert_eq!(db.get("a").unwrap().unwrap(), "kept");
}

/// The bug is found by the test above, which recovers on this thread.
#[cfg(feature = "simulation")]
#[test]
fn planted_bugs_of_recoveries_in_pieces_are_found() {
    use crate::env::planted::{Plant, plant_here};
    plant_here(Plant::InstallForgetsEntries);
    let test = a_recovery_in_pieces_that_is_cut_leaves_what_the_next_one_needs;
    let found = std::panic::catch_unwind(test).is_err();
    plant_here(Plant::Nothing);
    assert!(found);
}

#[test]
fn a_family_that_is_named_in_doubt_is_not_dropped() {
    let fs = MemoryFs::new();
    let db = open(&fs);
    let (written, read) = (db.family("written").unwrap(), db.family("read").unwrap());
    let tx = db.begin();
    tx.of(&read).get("key").unwrap();
    tx.of(&written).put("key", "value").unwrap();
    drop(tx.prepare("x").unwrap());
    for family in [&written, &read] {
        let refused = db.drop_family(family).unwrap_err();
        assert!(refused.to_string().contains("\"x\""), "{refused}");
    }
    db.rename_family(&written, "renamed").unwrap();
    drop(db);
    let db = open(&fs.killed());
    let family = db.family("renamed").unwrap();
    assert_eq!(db.drop_family(&family).unwrap_err().name(), "INVALID_ARGUMENT");
    db.commit_prepared(&xid("x")).unwrap();
    assert_eq!(family.get("key").unwrap().unwrap(), "value");
    db.drop_family(&family).unwrap();
    let tx = db.begin();
    let other = db.family("other").unwrap();
    tx.of(&other).put("key", "value").unwrap();
    db.drop_family(&other).unwrap();
    assert_eq!(tx.prepare("y").unwrap_err().name(), "UNKNOWN_FAMILY");
    assert!(db.in_doubt().is_empty());
}

#[test]
fn a_closed_database_answers_closed_and_keeps_what_is_in_doubt() {
    let fs = MemoryFs::new();
    let db = open(&fs);
    let prepared = prepare(&db, "x", &["key"]);
    db.clone().close().unwrap();
    assert!(prepared.commit().unwrap_err().is_closed());
    assert!(db.commit_prepared(&xid("x")).unwrap_err().is_closed());
    let db = open(&fs.crashed(|_| 0));
    db.commit_prepared(&xid("x")).unwrap();
    assert_eq!(db.get("key").unwrap().unwrap(), "x");
}

#[test]
fn a_reader_sees_the_operations_where_the_log_decides_and_lists_what_it_does_not() {
    let fs = MemoryFs::new();
    let db = open(&fs);
    drop(prepare(&db, "filed", &["a"]));
    db.flush().unwrap();
    drop(prepare(&db, "logged", &["b"]));
    let reader = over(&fs).read_only(true).open("/db").unwrap();
    assert_eq!(names(&reader), ["filed", "logged"]);
    assert_eq!(reader.in_doubt()[0].point, db.in_doubt()[0].point);
    assert_eq!(reader.commit_prepared(&xid("filed")).unwrap_err().name(), "READ_ONLY");
    db.commit_prepared(&xid("filed")).unwrap();
    db.flush().unwrap();
    reader.catch_up().unwrap();
    assert_eq!(names(&reader), ["logged"]);
    assert_eq!(reader.get("a").unwrap().unwrap(), "filed");
    db.commit_prepared(&xid("logged")).unwrap();
    drop(prepare(&db, "last", &["c"]));
    reader.catch_up().unwrap();
    assert_eq!(names(&reader), ["last"]);
    assert_eq!(reader.get("b").unwrap().unwrap(), "logged");
    assert!(!reader.contains("c").unwrap());
}

#[test]
fn two_deciders_at_once_decide_once() {
    for _ in 0..50 {
        let db = open(&MemoryFs::new());
        drop(prepare(&db, "x", &["key"]));
        let told: Vec<_> = std::thread::scope(|scope| {
            let committer = scope.spawn(|| db.commit_prepared(&xid("x")).map(drop));
            let other = scope.spawn(|| db.rollback_prepared(&xid("x")));
            [committer.join().unwrap(), other.join().unwrap()].into()
        });
        let unknown = |told: &Result<(), Error>| {
            told.as_ref().is_err_and(|error| error.name() == "UNKNOWN_TRANSACTION")
        };
        assert_eq!(told.iter().filter(|one| one.is_ok()).count(), 1, "{told:?}");
        assert_eq!(told.iter().filter(|one| unknown(one)).count(), 1);
        assert_eq!(db.contains("key").unwrap(), told[0].is_ok());
        assert_at_rest(db.engine());
    }
}

#[test]
fn two_prepares_of_the_same_keys_queue_and_one_comes_through() {
    let db = open(&MemoryFs::new());
    let options = TransactionOptions::new().lock_timeout(Duration::from_secs(600));
    for round in 0..20 {
        let attempt = |name: &str, keys: [&str; 2]| {
            let tx = db.with(options).begin();
            keys.iter().for_each(|key| drop(tx.get(key).unwrap()));
            keys.iter().for_each(|key| tx.put(key, name).unwrap());
            tx.prepare(name).and_then(Prepared::commit).map(drop)
        };
        let told: Vec<_> = std::thread::scope(|scope| {
            let one = scope.spawn(|| attempt("one", ["a", "b"]));
            let other = scope.spawn(|| attempt("other", ["b", "a"]));
            [one.join().unwrap(), other.join().unwrap()].into()
        });
        assert!(told.iter().any(Result::is_ok), "{round}: {told:?}");
        for error in told.iter().filter_map(|told| told.as_ref().err()) {
            assert_eq!(error.name(), "CONFLICT");
        }
        assert_eq!(db.get("a").unwrap(), db.get("b").unwrap());
    }
}

#[test]
fn a_transaction_that_did_nothing_or_only_read_is_prepared_and_decided_too() {
    let db = open(&MemoryFs::new());
    db.begin().prepare("nothing").unwrap().commit().unwrap();
    let tx = db.begin();
    tx.get_for_share("key").unwrap();
    drop(tx.prepare("read").unwrap());
    assert!(db.put("key", "value").unwrap_err().is_conflict());
    db.commit_prepared(&xid("read")).unwrap();
    db.put("key", "value").unwrap();
    assert_at_rest(db.engine());
}

#[test]
fn no_timeout_and_no_abort_ends_what_is_prepared() {
    let db = open(&MemoryFs::new());
    let brief = TransactionOptions::new().timeout(Duration::from_millis(50));
    // On a slow machine its time is over before it is prepared.
    let (handle, prepared) = loop {
        let tx = db.with(brief).begin();
        let handle = tx.abort_handle();
        let done = tx.put("key", "value").and_then(|()| tx.count("l".."m").map(drop));
        match done.and_then(|()| tx.prepare("x")) {
            Ok(prepared) => break (handle, prepared),
            Err(late) => assert!(late.is_transaction_aborted(), "{late}"),
        }
    };
    assert!(!handle.abort());
    std::thread::sleep(Duration::from_millis(60));
    db.engine().running.reap(db.engine());
    for locked in ["key", "l"] {
        let refused = db.put(locked, "other").unwrap_err();
        assert!(matches!(refused.kind(), ErrorKind::LockTimeout { .. }), "{refused}");
    }
    prepared.commit().unwrap();
    assert_eq!(db.get("key").unwrap().unwrap(), "value");
    assert_at_rest(db.engine());
    let aborted = db.begin();
    aborted.put("key", "value").unwrap();
    assert!(aborted.abort_handle().abort());
    assert!(aborted.prepare("y").unwrap_err().is_transaction_aborted());
    assert!(db.in_doubt().is_empty());
}

#[derive(Clone, Default)]
struct Told(Arc<crate::env::sync::atomic::AtomicU64>);

impl crate::CommitHook for Told {
    fn before(&self, operations: &crate::Operations<'_>) -> Result<(), crate::BoxError> {
        match operations.iter().any(|operation| operation.key == b"refused") {
            true => Err("it is refused".into()),
            false => Ok(()),
        }
    }

    fn after(&self, _: crate::Commit, operations: &crate::Operations<'_>) {
        let told: Vec<_> = operations.iter().map(|op| (op.family, op.key, op.value)).collect();
        assert_eq!(told, [("default", &b"key"[..], Some(&b"x"[..])), ("side", b"gone", None)]);
        self.0.fetch_add(operations.len() as u64, crate::env::sync::atomic::Ordering::Relaxed);
    }
}

#[test]
fn the_hook_is_asked_at_the_prepare_and_told_of_the_commit_in_a_later_opening() {
    let (fs, told) = (MemoryFs::new(), Told::default());
    let count = || told.0.load(crate::env::sync::atomic::Ordering::Relaxed);
    let db = over(&fs).commit_hook(told.clone()).open("/db").unwrap();
    let side = db.family("side").unwrap();
    let tx = db.begin();
    tx.put("refused", "").unwrap();
    assert_eq!(tx.prepare("no").unwrap_err().name(), "COMMIT_VETOED");
    let tx = db.begin();
    tx.put("key", "x").unwrap();
    tx.of(&side).delete("gone").unwrap();
    drop(tx.prepare("x").unwrap());
    drop(prepare(&db, "rolled back", &["other"]));
    db.rollback_prepared(&xid("rolled back")).unwrap();
    assert_eq!((names(&db), count()), (vec!["x".to_owned()], 0));
    let db = over(&fs.killed()).commit_hook(told.clone()).open("/db").unwrap();
    db.commit_prepared(&xid("x")).unwrap();
    assert_eq!(count(), 2);
}

/// A decider waits for room in memory or in the log while it has the right to decide, and so for
/// that flush.
#[test]
fn a_flush_waits_for_no_decider() {
    let db = open(&MemoryFs::new());
    drop(prepare(&db, "x", &["key"]));
    let entry = db.engine().prepared.find(&xid("x")).unwrap();
    let right = entry.hold();
    let (flushed, is_flushed) = std::sync::mpsc::channel();
    let flusher = db.clone();
    std::thread::spawn(move || flushed.send(flusher.flush()).unwrap());
    is_flushed.recv_timeout(Duration::from_secs(120)).expect("it waits").unwrap();
    drop(right);
    db.commit_prepared(&xid("x")).unwrap();
    assert_eq!(db.get("key").unwrap().unwrap(), "x");
}

#[test]
fn range_deletes_are_prepared_locked_and_come_before_what_is_put_into_their_ranges() {
    for flushes in [false, true] {
        let fs = MemoryFs::new();
        let db = open(&fs);
        for key in ["a", "b", "c", "d"] {
            db.put(key, "old").unwrap();
        }
        let tx = db.begin();
        tx.put("b", "gone").unwrap();
        tx.delete_range("b".."d").unwrap();
        tx.put("c", "new").unwrap();
        drop(tx.prepare("x").unwrap());
        if flushes {
            db.flush().unwrap();
        }
        let db = open(&fs.crashed(|_| 0));
        assert_eq!((names(&db), db.count(..).unwrap()), (vec!["x".to_owned()], 4));
        for key in ["b", "bb", "c"] {
            assert!(db.put(key, "other").unwrap_err().is_conflict(), "{key}");
        }
        db.put("d", "free").unwrap();
        db.commit_prepared(&xid("x")).unwrap();
        assert_eq!(db.get("c").unwrap().unwrap(), "new");
        assert_eq!(db.count(..).unwrap(), 3);
        assert!(!db.contains("b").unwrap());
        db.put("b", "again").unwrap();
        assert_at_rest(db.engine());
    }
}
