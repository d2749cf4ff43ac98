//! Transactions that others end: by a timeout, by an abort handle.

use super::*;
use crate::env::Clock;
use crate::env::sync::Mutex;
use crate::error::AbortReason;
use crate::lock::LockMode;
use std::io::Read as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const SHORT: Duration = Duration::from_millis(20);
/// Less than `lock_timeout`, and more than the slowest machine needs to wake a thread.
const LONG: Duration = Duration::from_secs(300);

#[track_caller]
fn reason_of(told: Result<impl std::fmt::Debug>) -> AbortReason {
    match told.as_ref().map_err(Error::kind) {
        Err(ErrorKind::TransactionAborted { reason, .. }) => *reason,
        _ => panic!("not aborted: {told:?}"),
    }
}

fn brief(db: &Db) -> Transaction {
    db.with(TransactionOptions::new().timeout(SHORT)).begin()
}

#[test]
fn an_abort_of_an_idle_transaction_frees_its_locks_and_its_point_at_once() {
    for isolation in [Isolation::ReadCommitted, Isolation::Snapshot, Isolation::Serializable] {
        let db = open();
        let mut tx = begin(&db, isolation);
        tx.get_for_update("a").unwrap();
        tx.lock_range("b".."c", LockMode::Exclusive).unwrap();
        tx.put("a", "mine").unwrap();
        let handle = tx.abort_handle();
        assert!(std::thread::spawn(move || handle.abort()).join().unwrap());
        assert_at_rest(db.engine());
        db.put("a", "theirs").unwrap();
        db.put("b1", "theirs").unwrap();
        assert_eq!(reason_of(tx.put("z", "late")), AbortReason::Asked);
        assert_eq!(reason_of(tx.get("a")), AbortReason::Asked);
        assert_eq!(reason_of(tx.savepoint("s")), AbortReason::Asked);
        assert_eq!(reason_of(tx.range(..).next().unwrap()), AbortReason::Asked);
        tx.reset();
        assert_eq!(tx.get_for_update("a").unwrap().unwrap(), "theirs");
        tx.put("a", "again").unwrap();
        let handle = tx.abort_handle();
        tx.commit().unwrap();
        assert!(!handle.abort(), "it is committed");
        assert_eq!(db.get("a").unwrap().unwrap(), "again");
        assert_at_rest(db.engine());
        assert_eq!(db.metrics().transactions_aborted, 1);
    }
}

#[test]
fn an_iterator_reads_the_streams_of_its_transaction_though_that_was_aborted() {
    let db = open();
    let tx = db.begin();
    for key in ["a", "b"] {
        let mut writer = db.value_writer(&db.default_family()).unwrap();
        std::io::copy(&mut std::io::repeat(7).take(1 << 20), &mut writer).unwrap();
        tx.put_streamed(key, writer.finish().unwrap()).unwrap();
    }
    let handle = tx.abort_handle();
    let mut range = tx.range(..);
    assert_eq!(range.next().unwrap().unwrap().1.len(), 1 << 20);
    let mut cursor = tx.cursor(..).unwrap();
    assert!(handle.abort());
    db.engine().remove_obsolete_files();
    assert_eq!(cursor.last().unwrap().unwrap().value().unwrap().len(), 1 << 20);
    assert_eq!(range.next().unwrap().unwrap().1.len(), 1 << 20);
    assert!(range.next().is_none());
    drop((range, cursor));
    assert_eq!(reason_of(tx.get("a")), AbortReason::Asked);
    db.engine().remove_obsolete_files();
    assert_eq!(db.metrics().streams, 0);
}

#[test]
fn an_abort_wakes_a_transaction_that_waits_for_a_lock() {
    type Wait = fn(&Transaction) -> Result<()>;
    let waits: [Wait; 3] = [
        |tx| tx.get_for_update("key").map(drop),
        |tx| tx.get_for_share("key").map(drop),
        |tx| tx.lock_range("k".., LockMode::Shared),
    ];
    for wait in waits {
        let db = open();
        let holder = db.begin();
        holder.get_for_update("key").unwrap();
        let waiter = db.begin();
        let handle = waiter.abort_handle();
        std::thread::scope(|scope| {
            let engine = db.engine();
            let waits = scope.spawn(move || {
                let told = wait(&waiter);
                (reason_of(told), reason_of(waiter.commit()))
            });
            while engine.locks.sleepers() == 0 {
                std::thread::yield_now();
            }
            let asked = Instant::now();
            assert!(handle.abort());
            handle.abort();
            assert_eq!(waits.join().unwrap(), (AbortReason::Asked, AbortReason::Asked));
            assert!(asked.elapsed() < LONG, "the wait went on");
        });
        assert!(!handle.abort(), "it is rolled back");
        drop(holder);
        assert_at_rest(db.engine());
    }
}

#[test]
fn who_was_aborted_in_a_wait_holds_nothing_afterwards_and_may_wait_again_after_a_reset() {
    let db = open();
    let holder = db.begin();
    holder.get_for_update("key").unwrap();
    let mut waiter = db.begin();
    let handle = waiter.abort_handle();
    let (told, waits) = (std::sync::mpsc::channel(), &db);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            waiter.get_for_update("own").unwrap();
            assert_eq!(reason_of(waiter.get_for_update("key")), AbortReason::Asked);
            waits.begin().get_for_update("own").unwrap();
            waiter.reset();
            told.0.send(()).unwrap();
            waiter.get_for_update("key").unwrap();
            waiter.put("key", "at last").unwrap();
            waiter.commit().unwrap();
        });
        let await_sleeper = || {
            while db.engine().locks.sleepers() == 0 {
                std::thread::yield_now();
            }
        };
        await_sleeper();
        assert!(handle.abort());
        told.1.recv().unwrap();
        await_sleeper();
        drop(holder);
    });
    assert_eq!(db.get("key").unwrap().unwrap(), "at last");
    assert_eq!(db.metrics().transactions_aborted, 1);
    assert_at_rest(db.engine());
}

#[test]
fn an_abort_comes_before_the_decision_or_is_refused() {
    let db = open();
    let engine = db.engine();
    let begin = || {
        let mut life = Life::begin(engine, TransactionOptions::default());
        let watch = life.handle(engine);
        life.enter(engine).unwrap();
        (life, watch)
    };
    let (mut life, watch) = begin();
    assert!(watch.abort(engine, AbortReason::Asked));
    assert_eq!((watch.check(), watch.decide()), (Err(AbortReason::Asked), Err(AbortReason::Asked)));
    life.leave(engine);
    assert_eq!(reason_of(life.enter(engine)), AbortReason::Asked);
    life.end(engine);

    let (mut life, watch) = begin();
    watch.decide().unwrap();
    assert!(!watch.abort(engine, AbortReason::Timeout));
    assert_eq!(watch.check(), Ok(()));
    watch.undecide();
    assert!(watch.abort(engine, AbortReason::Timeout), "it begins again");
    assert_eq!(watch.decide(), Err(AbortReason::Timeout));
    life.end(engine);

    let (mut life, watch) = begin();
    watch.decide().unwrap();
    life.leave(engine);
    assert!(!watch.abort(engine, AbortReason::Asked), "it may have been written");
    life.end(engine);
    assert!(!watch.abort(engine, AbortReason::Asked));
    assert_at_rest(engine);
}

#[test]
fn an_abort_of_a_commit_that_waits_for_a_lock_comes_before_the_commit() {
    for isolation in [Isolation::ReadCommitted, Isolation::Snapshot, Isolation::Serializable] {
        let db = open();
        let holder = db.begin();
        holder.get_for_update("key").unwrap();
        let waiter = begin(&db, isolation);
        waiter.put("key", "value").unwrap();
        waiter.put("other", "value").unwrap();
        let handle = waiter.abort_handle();
        std::thread::scope(|scope| {
            let waits = scope.spawn(move || reason_of(waiter.commit()));
            while db.engine().locks.sleepers() == 0 {
                std::thread::yield_now();
            }
            assert!(handle.abort());
            assert_eq!(waits.join().unwrap(), AbortReason::Asked);
        });
        drop(holder);
        assert_eq!(db.count(..).unwrap(), 0);
        assert_at_rest(db.engine());
    }
}

#[test]
fn an_abort_beside_a_commit_either_prevents_it_or_is_refused() {
    let db = open();
    let (aborted, refused) = (AtomicU64::new(0), AtomicU64::new(0));
    for round in 0..400 {
        let tx = db.begin();
        let handle = tx.abort_handle();
        let key = format!("{round}");
        _ = tx.get("read").unwrap();
        tx.put(&key, "value").unwrap();
        std::thread::scope(|scope| {
            let commits = scope.spawn(move || tx.commit());
            (0..round % 40).for_each(|_| std::hint::spin_loop());
            let is_aborted = handle.abort();
            let committed = commits.join().unwrap();
            match is_aborted {
                true => {
                    assert_eq!(reason_of(committed), AbortReason::Asked);
                    aborted.fetch_add(1, Ordering::Relaxed);
                }
                false => {
                    committed.unwrap();
                    refused.fetch_add(1, Ordering::Relaxed);
                }
            }
            assert_eq!(db.contains(&key).unwrap(), !is_aborted);
        });
    }
    assert_eq!(db.count(..).unwrap(), refused.load(Ordering::Relaxed));
    assert_at_rest(db.engine());
}

#[test]
fn the_database_ends_a_transaction_whose_thread_sleeps() {
    let idle = TransactionOptions::new().idle_timeout(SHORT);
    let whole = TransactionOptions::new().timeout(SHORT);
    for (options, reason) in [(idle, AbortReason::Idle), (whole, AbortReason::Timeout)] {
        let db = open();
        // On a slow machine its time is over before it has the lock.
        let mut attempts = 0;
        let tx = loop {
            let tx = db.with(options).begin();
            attempts += 1;
            match tx.get_for_update("key") {
                Ok(_) => break tx,
                told => assert_eq!(reason_of(told), reason),
            }
        };
        std::thread::sleep(SHORT);
        // The maintenance runs once a second, and when kicked.
        while db.engine().locks.is_held_against(None, (0, b"key"), LockMode::Shared) {
            db.engine().maintenance.kick();
            std::thread::yield_now();
        }
        // The locks go first. A call waits until the rest is given back.
        assert_eq!(reason_of(tx.put("key", "value")), reason);
        assert_at_rest(db.engine());
        assert_eq!(reason_of(tx.commit()), reason);
        let metrics = db.metrics();
        assert_eq!(metrics.transactions_timed_out + metrics.transactions_idled_out, attempts);
    }
}

#[test]
fn a_transaction_that_is_called_often_enough_is_not_idle() {
    let db = open();
    let options = TransactionOptions::new().idle_timeout(Duration::from_secs(3600));
    let tx = db.with(options.timeout(Duration::from_secs(3600))).begin();
    for n in 0..10u8 {
        tx.put([n], "value").unwrap();
        db.engine().running.reap(db.engine());
    }
    tx.commit().unwrap();
    assert_eq!(db.count(..).unwrap(), 10);
    assert_at_rest(db.engine());
}

#[test]
fn a_late_call_or_commit_is_refused_though_the_transaction_is_not_reaped_yet() {
    let db = open();
    let (tx, writes) = (brief(&db), brief(&db));
    _ = writes.put("key", "value");
    std::thread::sleep(SHORT);
    assert_eq!(reason_of(tx.get("key")), AbortReason::Timeout);
    assert_eq!(reason_of(writes.commit()), AbortReason::Timeout);
    assert_eq!(reason_of(tx.commit()), AbortReason::Timeout);
    assert_eq!(db.count(..).unwrap(), 0);
    assert_at_rest(db.engine());
}

type Deed = Box<dyn FnOnce() + Send>;

/// A clock that stands still, and that does something when a certain thread asks it for the time.
struct Meanwhile(AtomicU64, Mutex<Option<(std::thread::ThreadId, Deed)>>);

impl Clock for Meanwhile {
    fn now_ns(&self) -> u64 {
        let this = std::thread::current().id();
        let deed = self.1.lock().take_if(|(thread, _)| *thread == this);
        if let Some((_, deed)) = deed {
            deed();
        }
        self.0.load(Ordering::Relaxed)
    }

    fn unix_ms(&self) -> u64 {
        0
    }
}

#[test]
fn a_transaction_that_is_reset_while_maintenance_looks_at_it_is_not_ended() {
    let clock = Arc::new(Meanwhile(AtomicU64::new(0), Mutex::unranked(None)));
    let fs = Arc::new(crate::vfs::MemoryFs::new());
    let env = crate::Env { fs, clock: clock.clone(), ..crate::Env::system() };
    let db = Options::new().env(env).open("/db").unwrap();
    let options = TransactionOptions::new().timeout(SHORT);
    let mut tx = db.with(options).begin();
    clock.0.fetch_add(SHORT.as_nanos() as u64, Ordering::Relaxed);
    let (begin, begun) = std::sync::mpsc::channel();
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        begun.recv().unwrap();
        tx.reset();
        tell.send(tx).unwrap();
    });
    let reset: Deed = Box::new(move || {
        begin.send(()).unwrap();
        // The reset begins, and waits.
        std::thread::sleep(SHORT);
    });
    *clock.1.lock() = Some((std::thread::current().id(), reset));
    db.engine().running.reap(db.engine());
    assert!(clock.1.lock().is_none(), "it did not look");
    let tx = told.recv().unwrap();
    tx.put("key", "value").unwrap();
    tx.commit().unwrap();
    assert_at_rest(db.engine());
}

#[test]
fn a_wait_for_a_lock_ends_with_the_time_of_the_transaction() {
    let db = open();
    let holder = db.begin();
    holder.get_for_update("key").unwrap();
    std::thread::scope(|scope| {
        let waits = || {
            let tx = brief(&db);
            let began = Instant::now();
            let told = tx.get_for_update("key");
            assert!(began.elapsed() < LONG, "it waited for `lock_timeout`");
            (reason_of(told), reason_of(tx.get("key")))
        };
        let told = scope.spawn(waits).join().unwrap();
        assert_eq!(told, (AbortReason::Timeout, AbortReason::Timeout));
    });
    drop(holder);
    assert_at_rest(db.engine());
}

#[test]
fn an_aborted_transaction_is_not_run_again_and_its_time_covers_all_attempts() {
    let db = open();
    let mut runs = 0;
    let swallows = db.transact(|tx| {
        runs += 1;
        assert!(tx.abort_handle().abort());
        _ = tx.put("key", "value");
        Ok(())
    });
    assert_eq!((reason_of(swallows), runs), (AbortReason::Asked, 1));
    let between = db.transact(|tx| {
        runs += 1;
        _ = tx.get("hot")?;
        tx.put("key", "value")?;
        db.put("hot", "changed")?;
        // The conflict is found by the commit; the abort comes while the next run is awaited.
        let handle = tx.abort_handle();
        std::thread::spawn(move || while !handle.abort() {}).join().unwrap();
        Ok(())
    });
    assert_eq!((reason_of(between), runs), (AbortReason::Asked, 2));
    let options = TransactionOptions::new().timeout(SHORT).attempts(u32::MAX);
    let late = db.with(options).transact(|tx| {
        _ = tx.get("hot")?;
        tx.put("key", "value")?;
        std::thread::sleep(SHORT / 4);
        std::thread::scope(|scope| {
            scope.spawn(|| db.put("hot", "changed").unwrap()).join().unwrap()
        });
        Ok(())
    });
    assert_eq!(reason_of(late), AbortReason::Timeout);
    assert!(!db.contains("key").unwrap());
    assert_at_rest(db.engine());
}

#[test]
fn a_doomed_transaction_tells_the_same_when_it_is_aborted() {
    let db = open();
    db.put("key", "old").unwrap();
    let tx = begin(&db, Isolation::Snapshot);
    db.put("key", "new").unwrap();
    let first = tx.get_for_update("key").unwrap_err();
    assert!(tx.abort_handle().abort());
    assert_eq!(tx.get("key").unwrap_err().to_string(), first.to_string());
    drop(tx);
    assert_at_rest(db.engine());
}

#[test]
fn an_open_iterator_goes_on_after_an_abort_and_sees_its_point() {
    let db = open();
    for n in 0..100u8 {
        db.put([n], "before").unwrap();
    }
    let tx = db.begin();
    let mut range = tx.iter();
    assert!(range.next().is_some());
    assert!(tx.abort_handle().abort());
    db.put([50], "after").unwrap();
    db.flush().unwrap();
    db.compact().unwrap();
    assert!(range.all(|item| item.unwrap().1 == "before"));
    assert_at_rest(db.engine());
}

#[test]
fn aborts_beside_calls_commits_and_resets_leave_nothing_behind() {
    let db = open();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let mut tx = db.begin();
        let handle = tx.abort_handle();
        let (db, is_over) = (&db, &is_over);
        scope.spawn(move || {
            for n in 0..2000u32 {
                let key = (n % 3).to_be_bytes();
                let worked = tx.get_for_update(key).and_then(|_| tx.put(key, "value"));
                if worked.is_err() {
                    assert_eq!(reason_of(worked), AbortReason::Asked);
                }
                if n % 5 == 0 {
                    tx.reset();
                }
            }
            drop(tx);
            is_over.store(true, Ordering::Relaxed);
        });
        scope.spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                handle.abort();
                std::thread::yield_now();
            }
            assert!(!handle.abort());
        });
        scope.spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                db.put(1u32.to_be_bytes(), "plain").unwrap();
            }
        });
    });
    assert_at_rest(db.engine());
}
