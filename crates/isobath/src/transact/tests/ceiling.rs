//! Transactions below the least ceiling for memory, where something else holds what they might
//! have: what is refused, what a transaction does without, and that everything is given back.

use super::*;
use crate::env::Env;
use crate::env::fixtures::{Wall, soon};
use crate::env::sync::atomic::{AtomicU64, Ordering};
use crate::error::MemoryClass;
use crate::lock::{LockMode, Span};
use crate::memory::{Budget, Charge};
use crate::vfs::MemoryFs;
use crate::{Codec, FamilyOptions, Ingest, SortedFileWriter};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const CEILING: u64 = 24 << 20;
/// What transactions leave to others.
const LEFT: u64 = 1 << 20;
/// What stays charged of the memory that ended transactions leave to the next ones of two threads.
const KEPT: u64 = 2 * (32 << 10);

fn over(fs: &MemoryFs) -> Options {
    let env = Env { fs: Arc::new(fs.clone()), ..Env::system() };
    let patience = Duration::from_secs(600);
    Options::new().memory(CEILING).compaction_threads(1).lock_timeout(patience).env(env)
}

fn open() -> Db {
    over(&MemoryFs::new()).open("db").unwrap()
}

fn budget(db: &Db) -> Arc<Budget> {
    db.engine().ceiling.of_tables().unwrap().budget.clone()
}

/// What transactions hold.
fn held(db: &Db) -> u64 {
    db.metrics().memory.unwrap().transactions
}

/// Takes all but so many bytes of what transactions might have.
fn leave(db: &Db, bytes: u64) -> Charge {
    let budget = budget(db);
    let rest = || budget.ceiling() - budget.held();
    // Blocks leave the cache for it, and others may come meanwhile.
    let charge = || budget.try_charge(MemoryClass::Tables, rest() - LEFT - bytes).ok();
    (0..100).find_map(|_| charge()).unwrap()
}

fn key(n: u64) -> String {
    format!("key {n:05}")
}

#[track_caller]
fn is_refused<T: std::fmt::Debug>(told: Result<T>) {
    match told.as_ref().map_err(Error::kind) {
        Err(ErrorKind::MemoryLimit { class: Some(MemoryClass::Transactions), holder, .. }) => {
            assert!(holder.is_some() && told.as_ref().is_err_and(Error::is_retryable), "{told:?}");
        }
        _ => panic!("not refused: {told:?}"),
    }
}

#[test]
fn what_is_written_goes_to_files_early_where_memory_is_short_and_commits_from_there() {
    let db = open();
    let others = leave(&db, 130 << 10);
    let tx = db.begin();
    for n in 0..4000 {
        tx.put(key(n), [n as u8; 300]).unwrap();
        assert!(held(&db) <= 130 << 10);
    }
    // There is no memory for a merge of 14 files, so some of them were merged.
    let files = tx.life().spilled.len();
    assert!((8..=14).contains(&files), "{files}");
    assert_eq!(tx.get(key(17)).unwrap().unwrap(), [17; 300]);
    assert_eq!(tx.count(..).unwrap(), 4000);
    // A write buffer would hold all of it, if there were memory.
    assert!(tx.life().spilled_charge() < db.engine().options.buffer_len());
    assert!(!tx.life().has_room_to_unspill(db.engine()).unwrap());
    tx.commit().unwrap();
    assert_eq!(db.count(..).unwrap(), 4000);
    drop(others);
    assert_eq!(db.get(key(260)).unwrap().unwrap(), [4; 300]);
    assert!(held(&db) <= KEPT);
}

#[test]
fn a_write_that_cannot_be_spilled_is_refused_and_the_transaction_goes_on() {
    let db = open();
    let others = leave(&db, 100 << 10);
    let tx = db.begin();
    tx.put("first", "value").unwrap();
    tx.savepoint("here").unwrap();
    let put = |n| tx.put(key(n), [7; 1000]);
    let (count, refused) = (0..).find_map(|n| put(n).err().map(|error| (n, error))).unwrap();
    is_refused::<()>(Err(refused));
    assert!((50..100).contains(&count), "{count}");
    is_refused(tx.delete_range(vec![b'a'; 2000]..vec![b'b'; 2000]));
    is_refused(tx.put("long", vec![7; 200_000]));
    assert_eq!(tx.life().footprint.len() as u64, count + 1, "nothing was added");
    assert_eq!(tx.get("first").unwrap().unwrap(), "value");
    assert!(tx.put(key(3), [8; 1000]).is_err() || tx.get(key(3)).unwrap().unwrap()[0] == 8);
    tx.rollback_to("here").unwrap();
    tx.put("second", "value").unwrap();
    drop(others);
    put(9).unwrap();
    tx.commit().unwrap();
    assert_eq!(db.count(..).unwrap(), 3);
    assert!(held(&db) <= KEPT);
}

#[test]
fn where_nothing_is_left_a_new_transaction_is_refused_all_and_may_try_again() {
    let db = open();
    db.put("key", "value").unwrap();
    let others = leave(&db, 0);
    let tx = db.begin();
    is_refused(tx.put("a", "1"));
    is_refused(tx.get("key"));
    is_refused(tx.multi_get(["key", "other"]));
    is_refused(tx.count(..));
    is_refused(tx.range(..).next().unwrap());
    is_refused(tx.get_for_update("key"));
    is_refused(tx.lock_range("x".."y", LockMode::Shared));
    assert_eq!(tx.get_untracked("key").unwrap().unwrap(), "value", "that takes no memory");
    assert_eq!(db.get("key").unwrap().unwrap(), "value");
    assert!(db.engine().locks.is_free());
    drop(others);
    // The scans that were refused have seen nothing.
    db.put("zz", "of another").unwrap();
    tx.put("a", "1").unwrap();
    assert_eq!(tx.get("key").unwrap().unwrap(), "value");
    tx.commit().unwrap();
    assert_eq!(db.count(..).unwrap(), 3);
}

#[test]
fn reads_get_coarser_before_one_is_refused_and_no_conflict_is_missed() {
    for isolation in [Isolation::Serializable, Isolation::RepeatableRead] {
        let db = open();
        let others = leave(&db, 16 << 10);
        let tx = begin(&db, isolation);
        for n in 0..2000 {
            assert!(tx.get(key(n)).unwrap().is_none());
            assert!(held(&db) <= 16 << 10);
        }
        let ranges = tx.life().footprint.read_ranges().count();
        assert!((1..200).contains(&ranges), "{ranges}");
        tx.put("own", "value").unwrap();
        db.put(key(1234), "of another").unwrap();
        assert_eq!(conflict_of(tx.commit()).1, ConflictKind::Range);
        drop(others);
        assert!(held(&db) <= KEPT);
    }
}

#[test]
fn a_scan_keeps_what_it_passes_in_free_memory_alone() {
    for isolation in [Isolation::Serializable, Isolation::RepeatableRead] {
        let db = open();
        (0..1000).for_each(|n| _ = db.put(key(n), "value").unwrap());
        let others = leave(&db, 20 << 10);
        let tx = begin(&db, isolation);
        let mut cursor = tx.cursor(..).unwrap();
        for n in (0..1000).rev().step_by(2) {
            cursor.seek(key(n)).unwrap();
            assert!(held(&db) <= 20 << 10);
        }
        let while_open = held(&db);
        assert!(while_open > 8 << 10, "{while_open}: it takes what is free");
        drop(cursor);
        tx.put("own", "value").unwrap();
        assert!(held(&db) <= 20 << 10);
        db.put(key(501), "of another").unwrap();
        assert_eq!(conflict_of(tx.commit()).1, ConflictKind::Range);
        drop(others);
        assert!(held(&db) <= KEPT);
    }
}

#[test]
fn a_lock_without_memory_is_not_taken_and_those_that_are_held_stay() {
    type Lock = fn(&Transaction, &str) -> Result<()>;
    let ways: [Lock; 2] = [
        |tx, key| tx.get_for_update(key).map(drop),
        |tx, key| tx.lock_range(key..=key, LockMode::Exclusive),
    ];
    for lock in ways {
        let db = open();
        let engine = db.engine();
        let others = leave(&db, 40 << 10);
        let tx = db.begin();
        let (count, refused) =
            (0..).find_map(|n| lock(&tx, &key(n)).err().map(|error| (n, error))).unwrap();
        is_refused::<()>(Err(refused));
        assert!((60..200).contains(&count), "{count}");
        lock(&tx, &key(0)).expect("what is locked takes nothing more");
        let is_locked = |n: u64| {
            let key = key(n);
            let span = Span::of_key(key.as_bytes());
            engine.locks.is_held_against(None, (0, key.as_bytes()), LockMode::Exclusive)
                || engine.locks.is_range_against(None, (0, &span))
        };
        assert!(is_locked(count - 1) && !is_locked(count));
        drop(others);
        lock(&tx, &key(count)).unwrap();
        assert!(is_locked(count));
        tx.put(key(0), "value").unwrap();
        tx.commit().unwrap();
        assert_at_rest(engine);
        assert!(held(&db) <= KEPT);
    }
}

/// Has much written, spilled, read and locked.
fn fill(tx: &Transaction) {
    (0..2000).for_each(|n| tx.put(key(n), [7; 1000]).unwrap());
    (0..500).for_each(|n| _ = tx.get(format!("absent {n}")).unwrap());
    (0..200).for_each(|n| _ = tx.get_for_update(format!("locked {n}")).unwrap());
    tx.lock_range("r".."s", LockMode::Exclusive).unwrap();
    assert_eq!(tx.range("key 00100".."key 00200").count(), 100);
    let life = tx.life();
    assert!(!life.spilled.is_empty() || life.watch.is_some());
}

#[test]
fn all_is_given_back_however_a_transaction_ends() {
    type End = fn(&Db);
    let ends: [(&str, End); 5] = [
        ("commit", |db| {
            let tx = db.begin();
            fill(&tx);
            tx.commit().unwrap();
        }),
        ("rollback", |db| {
            let tx = db.begin();
            fill(&tx);
            tx.rollback();
        }),
        ("conflict", |db| {
            let tx = db.begin();
            fill(&tx);
            db.put("absent 77", "of another").unwrap();
            conflict_of(tx.commit());
        }),
        ("panic", |db| {
            let panics = || {
                db.transact(|tx| -> Result<()> {
                    fill(tx);
                    panic!("of the program")
                })
            };
            catch_unwind(AssertUnwindSafe(panics)).unwrap_err();
        }),
        ("abort", |db| {
            let tx = db.begin();
            let handle = tx.abort_handle();
            fill(&tx);
            assert!(std::thread::spawn(move || handle.abort()).join().unwrap());
            assert!(held(db) <= KEPT, "{} are held by an aborted one", held(db));
            assert_eq!(tx.put("k", "v").unwrap_err().name(), "TRANSACTION_ABORTED");
        }),
    ];
    for (name, end) in ends {
        let db = open();
        end(&db);
        assert!(held(&db) <= KEPT, "{} are held after {name}", held(&db));
        assert_at_rest(db.engine());
        db.flush().unwrap();
    }
}

#[test]
fn a_timeout_gives_all_back_also_of_a_transaction_whose_handle_is_lost() {
    let clock = Arc::new(Wall(AtomicU64::new(3_600_000)));
    let fs = Arc::new(MemoryFs::new());
    let env = Env { fs, clock: clock.clone(), ..Env::system() };
    let db = Options::new().memory(CEILING).env(env).open("db").unwrap();
    let minute = TransactionOptions::new().idle_timeout(Duration::from_secs(60));
    let (kept, lost) = (db.with(minute).begin(), db.with(minute).begin());
    for tx in [&kept, &lost] {
        (0..500).for_each(|n| tx.put(key(n), [7; 1000]).unwrap());
        tx.get("key").unwrap();
    }
    kept.lock_range("r".."s", LockMode::Exclusive).unwrap();
    std::mem::forget(lost);
    assert!(held(&db) > 1_000_000);
    clock.0.fetch_add(61_000, Ordering::Relaxed);
    // As maintenance does each second.
    db.engine().running.reap(db.engine());
    assert_eq!(held(&db), 0);
    assert_at_rest(db.engine());
    assert_eq!(kept.put("k", "v").unwrap_err().name(), "TRANSACTION_ABORTED");
}

#[test]
fn an_abort_of_a_call_that_runs_gives_back_what_it_has_once_the_call_ends() {
    let db = open();
    // Of a transaction that this thread has called last the wait would be a deadlock.
    let holder = db.begin();
    let locks = move || holder.get_for_update("key").map(|_| holder).unwrap();
    let holder = std::thread::spawn(locks).join().unwrap();
    let tx = db.begin();
    let handle = tx.abort_handle();
    fill(&tx);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            assert!(soon(|| db.engine().locks.sleepers() > 0));
            assert!(handle.abort());
        });
        assert_eq!(tx.get_for_update("key").unwrap_err().name(), "TRANSACTION_ABORTED");
    });
    assert!(held(&db) <= KEPT + (8 << 10), "{}", held(&db));
    drop((tx, holder));
    assert!(held(&db) <= KEPT);
}

#[test]
fn what_a_prepare_finds_locked_is_not_charged_again() {
    let db = open();
    let tx = db.begin();
    for n in 0..1000 {
        tx.get_for_update(key(n)).unwrap();
        tx.put(key(n), "value").unwrap();
    }
    let before = held(&db);
    let prepared = tx.prepare("x").unwrap();
    assert!(held(&db) < before, "{} of {before}, though the write set is gone", held(&db));
    // One that fails before it has locked what it charged, of which the program keeps a handle.
    let again = db.begin();
    let handle = again.abort_handle();
    (2000..3000).for_each(|n| again.put(key(n), "value").unwrap());
    again.prepare("x").unwrap_err();
    prepared.rollback().unwrap();
    db.flush().unwrap();
    assert!(held(&db) <= KEPT, "{}", held(&db));
    assert!(!handle.abort(), "it is over");
}

#[test]
fn a_prepare_without_memory_is_refused_and_one_in_doubt_is_charged_until_it_is_decided() {
    let fs = MemoryFs::new();
    let db = over(&fs).open("db").unwrap();
    let filled = |db: &Db| {
        let tx = db.begin();
        (0..100).for_each(|n| tx.put(key(n), [7; 1000]).unwrap());
        tx
    };
    let tx = filled(&db);
    let others = leave(&db, 50 << 10);
    is_refused(tx.prepare("x"));
    assert!(db.in_doubt().is_empty());
    assert_at_rest(db.engine());
    drop(others);
    let (payload, locks) = (100 * 1000, 100 * 320);
    db.put("other", "value").unwrap();
    let prepared = filled(&db).prepare("x").unwrap();
    let in_memory = held(&db);
    assert!((payload + locks..payload + locks + (80 << 10)).contains(&in_memory), "{in_memory}");
    db.flush().unwrap();
    let in_file = held(&db);
    assert!((locks..locks + KEPT + (12 << 10)).contains(&in_file), "{in_file}");
    drop(prepared);
    drop(db);
    // The next opening has nothing of it but its locks.
    let db = over(&fs).open("db").unwrap();
    let restored = held(&db);
    assert!((locks..locks + (16 << 10)).contains(&restored), "{restored}");
    // The decision takes what there is, and does not fail without.
    let others = leave(&db, 0);
    db.commit_prepared(&"x".into()).unwrap();
    drop(others);
    assert_eq!((db.count(..).unwrap(), held(&db)), (101, 0));
    filled(&db).prepare("y").unwrap().rollback().unwrap();
    db.flush().unwrap();
    assert!(held(&db) <= KEPT);
}

#[test]
fn what_was_spilled_for_lack_of_memory_can_be_prepared_once_there_is_some() {
    let db = open();
    let spilled = || {
        let others = leave(&db, 100 << 10);
        let tx = db.begin();
        (0..300).for_each(|n| tx.put(key(n), [7; 1000]).unwrap());
        assert!(!tx.life().spilled.is_empty());
        (tx, others)
    };
    let (tx, others) = spilled();
    is_refused(tx.prepare("x"));
    drop(others);
    let (tx, others) = spilled();
    drop(others);
    tx.prepare("x").unwrap().commit().unwrap();
    assert_eq!(db.count(..).unwrap(), 300);
    db.flush().unwrap();
    assert!(held(&db) <= KEPT);
}

#[test]
fn a_commit_takes_locks_of_its_own_whether_there_is_memory_or_not() {
    let db = open();
    let tx = db.begin();
    // The record is so long that the commit locks what it writes and has read.
    (0..200).for_each(|n| tx.put(key(n), [7; 400]).unwrap());
    (0..200).for_each(|n| _ = tx.get(format!("absent {n}")).unwrap());
    let others = leave(&db, 0);
    tx.commit().unwrap();
    assert_eq!(db.count(..).unwrap(), 200);
    drop(others);
    assert_at_rest(db.engine());
    assert!(held(&db) <= KEPT);
}

#[test]
fn what_a_commit_locks_by_itself_is_charged_as_far_as_there_is_room() {
    type Take = fn(&Db, &Transaction, u64) -> Result<()>;
    let ways: [(Take, u64); 2] = [
        (
            |db, tx, n| {
                let family = &db.engine().default_family;
                let (key, mode) = (key(n), LockMode::Exclusive);
                tx.life().locks.take(db.engine(), family, key.as_bytes(), mode).map(drop)
            },
            320,
        ),
        (
            |db, tx, n| {
                let span = Span::of_key(key(n).as_bytes());
                tx.life().locks.take_range(db.engine(), (0, &span), LockMode::Exclusive)
            },
            100,
        ),
    ];
    for (take, least) in ways {
        let db = open();
        let tx = db.begin();
        (0..500).for_each(|n| take(&db, &tx, n).unwrap());
        assert!(held(&db) >= 500 * least, "{}", held(&db));
        let others = leave(&db, 0);
        (500..600).for_each(|n| take(&db, &tx, n).unwrap());
        drop((tx, others));
        assert_at_rest(db.engine());
        assert!(held(&db) <= KEPT, "{}", held(&db));
    }
}

#[test]
fn a_prepare_without_memory_for_its_locks_is_refused() {
    let db = open();
    let tx = db.begin();
    (0..2000).for_each(|n| tx.put(key(n), "v").unwrap());
    // Enough for the record, and not for a lock of each key.
    let others = leave(&db, 300 << 10);
    is_refused(tx.prepare("x"));
    assert_at_rest(db.engine());
    drop(others);
    assert!(db.in_doubt().is_empty() && held(&db) <= KEPT);
}

#[test]
fn the_last_file_of_a_commit_needs_no_memory_that_is_free() {
    let db = open();
    let tx = db.begin();
    (0..2000).for_each(|n| tx.put(key(n), [1; 300]).unwrap());
    let others = leave(&db, 130 << 10);
    (2000..4000).for_each(|n| tx.put(key(n), [1; 300]).unwrap());
    drop(others);
    let mut others = budget(&db).try_charge(MemoryClass::Tables, 0).unwrap();
    others.grow_as_far_as_there_is_room(CEILING);
    tx.commit().unwrap();
    drop(others);
    assert_eq!(db.count(..).unwrap(), 4000);
}

#[test]
fn an_ingest_begins_no_file_without_memory_but_within_a_whole_one_and_goes_on_with_some() {
    let plain = FamilyOptions::new().codecs(vec![Codec::None]);
    let fs = MemoryFs::new();
    let db = over(&fs).family(plain).open("db").unwrap();
    let (sorted, env) = (Path::new("/sorted"), Env { fs: Arc::new(fs), ..Env::system() });
    let mut file = SortedFileWriter::create_in(sorted, &env).unwrap();
    (20_000..40_000).for_each(|n| file.put(key(n), [1; 300]).unwrap());
    file.finish().unwrap();
    let mut ingest = db.ingest().unwrap();
    let mut others = budget(&db).try_charge(MemoryClass::Tables, 0).unwrap();
    // Writes until the next file would begin, which is after some three thousand keys.
    let put_all = |ingest: &mut Ingest, from: u64, others: &mut Charge| {
        let refused = (from..from + 10_000).find_map(|n| {
            others.grow_as_far_as_there_is_room(CEILING);
            Some((n, ingest.put(key(n), [1; 300]).err()?))
        });
        let (n, refused) = refused.unwrap();
        assert!(refused.is_retryable(), "{refused}");
        n
    };
    (0..4000).for_each(|n| ingest.put(key(n), [1; 300]).unwrap());
    let refused_at = put_all(&mut ingest, 4000, &mut others);
    assert!(ingest.add_file(sorted).unwrap_err().is_retryable());
    others.shrink_to(0);
    (refused_at..20_000).for_each(|n| ingest.put(key(n), [1; 300]).unwrap());
    // There is room for the first of the files that the whole one fills, and not for all.
    others.grow_as_far_as_there_is_room(CEILING);
    others.shrink_to(others.bytes() - (5 << 10));
    assert_eq!(ingest.add_file(sorted).unwrap(), 20_000);
    let count = put_all(&mut ingest, 40_000, &mut others);
    ingest.commit().unwrap();
    drop(others);
    assert_eq!(db.count(..).unwrap() as u64, count);
}

#[test]
fn an_ingest_takes_no_entry_that_is_longer_than_any_may_be() {
    let db = open();
    let mut ingest = db.ingest().unwrap();
    let most = CEILING as usize / 64 - 1;
    let told = ingest.put("k", vec![7; most + 1]).unwrap_err();
    assert!(!told.is_retryable() && told.name() == "MEMORY_LIMIT", "{told}");
    ingest.put("k", vec![7; most]).unwrap();
    ingest.commit().unwrap();
    assert_eq!(db.get("k").unwrap().unwrap().len(), most);
}

#[test]
fn a_merge_of_spill_files_knows_the_longest_entry_of_them_all() {
    let db = open();
    let others = leave(&db, 1 << 20);
    let tx = db.begin();
    tx.put("long", vec![7; 100_000]).unwrap();
    let spilled = |tx: &Transaction| tx.life().spilled.len();
    for n in (0..).take_while(|_| spilled(&tx) < 2) {
        tx.put(key(n), [7; 1000]).unwrap();
    }
    assert_eq!(tx.life().merge_needs(0).longest, 100_000 + 4);
    drop(others);
}

#[test]
fn without_a_ceiling_nothing_is_charged_or_refused() {
    let db = super::open();
    let tx = db.begin();
    tx.put("key", vec![7; 1 << 20]).unwrap();
    assert_eq!(tx.count(..).unwrap(), 1);
    tx.get_for_update("key").unwrap();
    tx.commit().unwrap();
    assert!(db.metrics().memory.is_none());
}
