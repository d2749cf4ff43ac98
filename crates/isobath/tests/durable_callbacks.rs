//! Tests callbacks that wait until a commit survives power loss. Each accepted callback runs
//! exactly once, with the correct result.

use isobath::env::Env;
use isobath::vfs::{Fault, FileOp, MemoryFs};
use isobath::{Db, Event, Options, Result, WriteOptions};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::Duration;

fn over(fs: &MemoryFs) -> Options {
    let env = Env { fs: Arc::new(fs.clone()), ..Env::system() };
    Options::new().env(env).write_buffer(64 << 10).sync_interval(None)
}

fn soon<T>(receiver: &Receiver<T>) -> T {
    receiver.recv_timeout(Duration::from_secs(120)).expect("it runs soon")
}

fn tell(sender: &Sender<Result<()>>) -> impl FnOnce(Result<()>) + Send + 'static {
    let sender = sender.clone();
    move |outcome| sender.send(outcome).unwrap()
}

/// Makes the thread that runs callbacks wait until the returned sender is used or dropped.
fn hold(db: &Db) -> Sender<()> {
    let ((held, is_held), (release, released)) = (channel(), channel::<()>());
    let commit = db.put("hold", "value").unwrap();
    let hold = move |_| {
        held.send(()).unwrap();
        let _ = released.recv();
    };
    db.on_durable(commit, hold).unwrap();
    soon(&is_held);
    release
}

#[test]
fn a_callback_runs_once_its_commit_survives_power_loss_and_never_within_the_call() {
    let fs = MemoryFs::new();
    let db = over(&fs).open("db").unwrap();
    for round in 0..20u8 {
        let commit = db.put([round], "value").unwrap();
        // The caller holds a lock that the callback needs.
        let lock = Arc::new(Mutex::new(()));
        let held = lock.lock().unwrap();
        let (sender, receiver) = channel();
        let (waits, copy) = (lock.clone(), fs.clone());
        let callback = move |outcome: Result<()>| {
            let crashed = copy.crashed(|_| 0);
            drop(waits.lock().unwrap());
            sender.send((outcome, crashed)).unwrap();
        };
        db.on_durable(commit, callback).unwrap();
        drop(held);
        let (outcome, crashed) = soon(&receiver);
        outcome.unwrap();
        assert!(receiver.recv().is_err(), "it runs once");
        assert!(db.is_durable(commit));
        if round % 8 == 0 {
            let after = over(&crashed).open("db").unwrap();
            assert_eq!(after.count(..).unwrap(), u64::from(round) + 1);
        }
        // The commit is durable already.
        let (sender, receiver) = channel();
        db.on_durable(commit, tell(&sender)).unwrap();
        soon(&receiver).unwrap();
    }
}

#[test]
fn callbacks_that_wait_together_share_a_sync() {
    let db = over(&MemoryFs::new()).open("db").unwrap();
    let release = hold(&db);
    let before = db.metrics().log_syncs;
    let (sender, receiver) = channel();
    for n in 0..200u32 {
        let commit = db.put(n.to_be_bytes(), "value").unwrap();
        assert!(!db.is_durable(commit));
        db.on_durable(commit, tell(&sender)).unwrap();
    }
    drop((release, sender));
    assert!(receiver.iter().all(|outcome| outcome.is_ok()));
    assert_eq!(db.metrics().log_syncs, before + 1);
}

#[test]
fn callbacks_hear_of_a_failed_sync_unless_their_commit_was_durable_before() {
    let fs = MemoryFs::new();
    let db = over(&fs).open("db").unwrap();
    let early = db.with(WriteOptions::sync()).put("early", "value").unwrap();
    let release = hold(&db);
    let late = db.put("late", "value").unwrap();
    let ((of_early, early_is), (of_late, late_is)) = (channel(), channel());
    db.on_durable(late, tell(&of_late)).unwrap();
    db.on_durable(early, tell(&of_early)).unwrap();
    fs.inject(Fault::on(FileOp::SyncRange).forever());
    drop(release);
    assert_eq!(soon(&late_is).unwrap_err().name(), "OUTCOME_UNKNOWN");
    soon(&early_is).unwrap();
    fs.clear_faults();
    assert!(db.is_durable(early) && !db.is_durable(late));
    // The database is poisoned: nothing is synced any more, and waiting callbacks get the error.
    db.on_durable(late, tell(&of_late)).unwrap();
    assert!(soon(&late_is).is_err_and(|error| error.is_outcome_unknown()));
    db.on_durable(early, tell(&of_early)).unwrap();
    soon(&early_is).unwrap();
    assert!(db.close().is_err());
}

#[test]
fn a_close_runs_what_waits_and_refuses_what_comes_later() {
    let fs = MemoryFs::new();
    for closes in [true, false] {
        let db = over(&fs).open("db").unwrap();
        let family = db.default_family();
        let release = hold(&db);
        let commit = db.put("key", "value").unwrap();
        let (sender, receiver) = channel();
        for _ in 0..5 {
            db.on_durable(commit, tell(&sender)).unwrap();
        }
        // Else the closer has the last handle: its drop waits for the callbacks.
        let kept = closes.then(|| db.clone());
        let closer = thread::spawn(move || match closes {
            true => db.close().unwrap(),
            false => drop((db, family)),
        });
        if let Some(db) = kept {
            while family_is_open(&db) {
                thread::yield_now();
            }
            let refused = db.on_durable(commit, |_| panic!("it was refused")).unwrap_err();
            assert!(refused.is_closed());
        }
        // The close has released the directory. What remains of it is the wait for the callbacks.
        while let Err(error) = over(&fs).open("db") {
            assert_eq!(error.name(), "LOCKED");
            thread::yield_now();
        }
        thread::sleep(Duration::from_millis(50));
        assert!(!closer.is_finished(), "five callbacks have not run");
        drop((release, sender));
        closer.join().unwrap();
        (0..5).for_each(|_| soon(&receiver).unwrap());
        assert!(receiver.try_recv().is_err());
    }
}

fn family_is_open(db: &Db) -> bool {
    db.get("key").is_ok()
}

/// A panic payload that panics again when it is dropped.
struct Spiteful;

impl Drop for Spiteful {
    fn drop(&mut self) {
        panic!("dropped");
    }
}

#[test]
fn a_callback_that_panics_harms_no_other() {
    let db = over(&MemoryFs::new()).open("db").unwrap();
    let release = hold(&db);
    let commit = db.put("key", "value").unwrap();
    let (sender, receiver) = channel();
    db.on_durable(commit, |_| panic!("on purpose")).unwrap();
    db.on_durable(commit, tell(&sender)).unwrap();
    db.on_durable(commit, |_| std::panic::panic_any(Spiteful)).unwrap();
    db.on_durable(commit, tell(&sender)).unwrap();
    drop((release, sender));
    assert_eq!(receiver.iter().filter(Result::is_ok).count(), 2);
    db.put("after", "value").unwrap();
    db.close().unwrap();
}

#[test]
fn a_callback_may_call_the_database() {
    let fs = MemoryFs::new();
    let db = over(&fs).open("db").unwrap();
    let (sender, receiver) = channel();
    let (inner, commit) = (db.clone(), db.put("key", "value").unwrap());
    let callback = move |outcome: Result<()>| {
        let again = sender.clone();
        let calls = || -> Result<()> {
            outcome?;
            assert_eq!(inner.get("key")?.unwrap(), "value");
            let family = inner.family("made by a callback")?;
            let commit = family.with(WriteOptions::sync()).put("key", vec![7; 200 << 10])?;
            inner.flush()?;
            inner.compact()?;
            inner.sync()?;
            inner.on_durable(commit, tell(&again))
        };
        sender.send(calls()).unwrap();
    };
    db.on_durable(commit, callback).unwrap();
    assert!(receiver.iter().all(|outcome| outcome.is_ok()));
    db.close().unwrap();
}

/// The database, once a close has given it up that goes on elsewhere.
fn opened_soon(fs: &MemoryFs) -> Db {
    for _ in 0..120_000 {
        match over(fs).open("db") {
            Ok(db) => return db,
            Err(error) => assert_eq!(error.name(), "LOCKED", "the close goes on elsewhere"),
        }
        thread::sleep(Duration::from_millis(1));
    }
    panic!("the close never ends")
}

#[test]
fn a_callback_may_close_the_database_and_own_its_last_handle() {
    let fs = MemoryFs::new();
    for closes in [true, false] {
        let db = over(&fs).open("db").unwrap();
        let commit = db.put("key", "value").unwrap();
        let (sender, receiver) = channel();
        let own = db.clone();
        let callback = move |_| {
            if closes {
                assert!(own.close().is_err_and(|error| error.is_closed()));
            } else {
                drop(own);
            }
            sender.send(()).unwrap();
        };
        // The handle of this thread is gone by then.
        let release = hold(&db);
        db.on_durable(commit, callback).unwrap();
        drop(db);
        drop(release);
        soon(&receiver);
        let db = opened_soon(&fs);
        assert_eq!(db.get("key").unwrap().unwrap(), "value");
    }
}

#[test]
fn a_listener_of_another_database_may_close_the_one_whose_callback_made_it_hear() {
    let (fs, other_fs) = (MemoryFs::new(), MemoryFs::new());
    let db = over(&fs).open("db").unwrap();
    let (heard, hears) = channel();
    let (heard, known) = (Mutex::new(heard), Mutex::new(Some(db.clone())));
    let listener = move |event: &Event| {
        let Event::BackgroundError { .. } = event else { return };
        let Some(db) = known.lock().unwrap().take() else { return };
        heard.lock().unwrap().send(db.close()).unwrap();
    };
    // It tells of a change that fails on the thread that asked for it.
    let other = over(&other_fs).on_event(listener).open("other").unwrap();
    other_fs.inject(Fault::on(FileOp::Write).forever());
    let commit = db.put("key", "value").unwrap();
    db.on_durable(commit, move |_| drop(other.family("family"))).unwrap();
    assert!(soon(&hears).is_err_and(|error| error.is_closed()));
    db.close().unwrap();
    over(&fs).open("db").unwrap();
}

#[test]
fn callbacks_that_own_the_last_handles_of_each_others_databases_end() {
    let fs = [MemoryFs::new(), MemoryFs::new()];
    let [one, other] = fs.each_ref().map(|fs| over(fs).open("db").unwrap());
    let commits = [&one, &other].map(|db| db.put("key", "value").unwrap());
    let (ended, ends) = channel();
    // Both run before either goes on.
    let meet = Arc::new(Barrier::new(2));
    let drops = |handle: Db| {
        let (ended, meet) = (ended.clone(), meet.clone());
        move |_| {
            meet.wait();
            drop(handle);
            ended.send(()).unwrap();
        }
    };
    let releases = [&one, &other].map(hold);
    one.on_durable(commits[0], drops(other.clone())).unwrap();
    other.on_durable(commits[1], drops(one.clone())).unwrap();
    drop((one, other));
    drop(releases);
    soon(&ends);
    soon(&ends);
    for fs in &fs {
        drop(opened_soon(fs));
    }
}

#[test]
fn points_of_other_databases_and_of_lost_commits_are_refused() {
    let fs = MemoryFs::new();
    let (db, other) = (over(&fs).open("db").unwrap(), over(&fs).open("other").unwrap());
    let foreign = other.put("key", "value").unwrap();
    assert!(!db.is_durable(foreign));
    let refused = db.on_durable(foreign, |_| panic!("it was refused")).unwrap_err();
    assert_eq!(refused.name(), "INVALID_ARGUMENT");
    let kept = db.with(WriteOptions::sync()).put("kept", "value").unwrap();
    let lost = db.put("lost", "value").unwrap();
    let crashed = fs.crashed(|_| 0);
    let db = over(&crashed).open("db").unwrap();
    assert!(db.is_durable(kept) && !db.is_durable(lost));
    let (sender, receiver) = channel();
    db.on_durable(kept, tell(&sender)).unwrap();
    soon(&receiver).unwrap();
    assert!(db.on_durable(lost, |_| panic!("it was refused")).is_err());
    drop(db);
    let reader = over(&crashed).read_only(true).open("db").unwrap();
    assert_eq!(reader.on_durable(kept, |_| panic!("refused")).unwrap_err().name(), "READ_ONLY");
    assert!(!reader.is_durable(kept), "a reader syncs nothing, so it knows of no sync");
}

#[test]
fn of_callbacks_that_race_a_close_each_accepted_one_runs_and_no_refused_one_does() {
    for round in 0..20 {
        let fs = MemoryFs::new();
        let db = over(&fs).open("db").unwrap();
        let (accepted, ran) = (AtomicU64::new(0), Arc::new(AtomicU64::new(0)));
        thread::scope(|scope| {
            for thread in 0..4u8 {
                let (db, accepted, ran) = (&db, &accepted, &ran);
                scope.spawn(move || {
                    for n in 0..400u32 {
                        let Ok(commit) = db.put([thread, n as u8], "value") else { return };
                        let ran = ran.clone();
                        let count = move |outcome: Result<()>| {
                            outcome.unwrap();
                            ran.fetch_add(1, Ordering::Relaxed);
                        };
                        match db.on_durable(commit, count) {
                            Ok(()) => drop(accepted.fetch_add(1, Ordering::Relaxed)),
                            Err(error) => return assert!(error.is_closed(), "{error}"),
                        }
                    }
                });
            }
            thread::sleep(Duration::from_millis(round));
            db.clone().close().unwrap();
            // The threads may still be about to count what was accepted.
        });
        assert_eq!(accepted.into_inner(), ran.load(Ordering::Relaxed), "round {round}");
    }
}
