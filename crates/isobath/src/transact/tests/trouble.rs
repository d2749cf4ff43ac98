//! Commits of transactions, optimistic and locking, where the disk is full or fails at any
//! operation. Those that are prepared have tests of their own (`prepared/trouble.rs`).

use super::*;
use crate::env::Env;
use crate::options::Durability;
use crate::vfs::{Fault, FileOp, MemoryFs};
use std::io;
use std::sync::Arc;

fn over(fs: &MemoryFs) -> Options {
    Options::new().env(Env { fs: Arc::new(fs.clone()), ..Env::system() })
}

fn open_on(fs: &MemoryFs) -> Db {
    over(fs).open("/db").unwrap()
}

fn options(locking: bool) -> TransactionOptions {
    let synced = WriteOptions::new().durability(Durability::Sync);
    TransactionOptions::new().locking(locking).write(synced)
}

/// Sets two keys to `nth`, and notes that it was there.
fn commit(db: &Db, nth: u32, options: TransactionOptions) -> Result<()> {
    let tx = db.with(options).begin();
    tx.get("count")?;
    tx.get("absent")?;
    tx.put("count", nth.to_string())?;
    tx.put("again", nth.to_string())?;
    tx.put(note(nth), "")?;
    tx.commit().map(drop)
}

fn note(nth: u32) -> String {
    format!("of {nth}")
}

fn count(db: &Db, key: &str) -> u32 {
    let count = db.get(key).unwrap();
    count.map_or(0, |count| std::str::from_utf8(&count).unwrap().parse().unwrap())
}

/// Four commits, with a flush in their midst.
fn commits(db: &Db, options: TransactionOptions) -> Vec<Result<()>> {
    let told = |nth| {
        if nth == 3 {
            let _ = db.flush();
        }
        commit(db, nth, options)
    };
    (1..=4).map(told).collect()
}

/// Each commit is there as a whole, or not at all.
#[track_caller]
fn check(db: &Db, told: &[Result<()>], case: &str) {
    let mut last = 0;
    for (nth, told) in (1..).zip(told) {
        let is_there = db.contains(note(nth)).unwrap();
        last = if is_there { nth } else { last };
        match told {
            Ok(()) => assert!(is_there, "{case}: {nth} is lost"),
            Err(error) if error.is_outcome_unknown() => {}
            Err(error) => assert!(!is_there, "{case}: {nth} was refused: {error}"),
        }
    }
    assert_eq!((count(db, "count"), count(db, "again")), (last, last), "{case}: {told:?}");
}

/// A name, and the fault of the `nth` operation.
type Case = (String, Box<dyn Fn(u64) -> Fault>);

/// On a disk that is full for ever a record that has its place in the log waits for room, so there
/// only other operations fail.
fn faults() -> Vec<Case> {
    use FileOp::*;
    let mut faults: Vec<Case> = vec![
        ("once".into(), Box::new(|nth| Fault::on_any().nth(nth))),
        ("for ever".into(), Box::new(|nth| Fault::on_any().nth(nth).forever())),
        ("full".into(), Box::new(|nth| Fault::on_any().nth(nth).kind(io::ErrorKind::StorageFull))),
    ];
    for op in [Create, OpenSegment, Write, Sync] {
        let full = move |nth| Fault::on(op).nth(nth).kind(io::ErrorKind::StorageFull).forever();
        faults.push((format!("full for ever, {op:?}"), Box::new(full)));
    }
    faults
}

#[test]
fn whatever_fails_a_commit_is_there_as_a_whole_or_not_at_all() {
    for locking in [false, true] {
        let (mut struck, mut refused, mut unknown) = (0, 0, 0);
        for (name, fault) in faults() {
            for nth in 1.. {
                let case = format!("locking {locking}, {name}, operation {nth}");
                let fs = MemoryFs::new();
                let db = open_on(&fs);
                db.sync().unwrap();
                fs.inject(fault(nth));
                let told = commits(&db, options(locking));
                let has_struck = fs.struck() > 0;
                fs.clear_faults();
                let errors = || told.iter().filter_map(|told| told.as_ref().err());
                refused += errors().count();
                unknown += errors().filter(|error| error.is_outcome_unknown()).count();
                assert_at_rest(db.engine());
                check_what_is_left(&fs, &told, locking, &case);
                // The log of this opening has failed, or it goes on.
                match commit(&db, 5, options(locking)) {
                    Ok(()) => assert_eq!(count(&db, "again"), 5, "{case}"),
                    Err(error) => assert_eq!(error.name(), "POISONED", "{case}"),
                }
                assert_at_rest(db.engine());
                if !has_struck {
                    break;
                }
                struck += 1;
            }
        }
        assert!(struck > 40 && refused > 20, "{struck} were struck, {refused} refused");
        assert!(unknown > 2 && unknown < refused, "{unknown} of unknown outcome");
    }
}

fn check_what_is_left(fs: &MemoryFs, told: &[Result<()>], locking: bool, case: &str) {
    for left in [fs.killed(), fs.crashed(|_| 0)] {
        let left = open_on(&left);
        check(&left, told, case);
        commit(&left, 5, options(locking)).unwrap();
        assert_at_rest(left.engine());
    }
}

#[test]
fn a_commit_whose_sync_fails_is_of_unknown_outcome_and_the_next_open_tells() {
    for (locking, survives) in [(false, false), (false, true), (true, false), (true, true)] {
        let fs = MemoryFs::new();
        let db = open_on(&fs);
        commit(&db, 1, options(locking)).unwrap();
        fs.inject(Fault::on(FileOp::SyncRange));
        let told = commit(&db, 2, options(locking)).unwrap_err();
        assert!(told.is_outcome_unknown(), "{told}");
        fs.clear_faults();
        assert_eq!(commit(&db, 3, options(locking)).unwrap_err().name(), "POISONED");
        assert_at_rest(db.engine());
        let left = if survives { fs.killed() } else { fs.crashed(|_| 0) };
        let db = open_on(&left);
        assert_eq!(count(&db, "count"), if survives { 2 } else { 1 });
        commit(&db, 3, options(locking)).unwrap();
    }
}

/// A commit that finds no room in the log, and none on the disk to make some, has changed nothing,
/// and gives its locks back.
#[test]
fn a_commit_without_room_in_the_log_may_be_repeated_once_there_is_some() {
    for locking in [false, true] {
        let fs = MemoryFs::new();
        let db = over(&fs).write_buffer(1 << 20).open("/db").unwrap();
        db.put("key", "value").unwrap();
        fs.set_capacity(0);
        let hasty = WriteOptions::new().fail_fast(true);
        let attempt = |round: u32| {
            let tx = db.with(options(locking).write(hasty)).begin();
            (0..20u8).for_each(|key| tx.put([key], vec![7; 10_000]).unwrap());
            tx.put("round", round.to_string()).unwrap();
            tx.commit()
        };
        let mut rounds = 0;
        let refused = loop {
            match attempt(rounds + 1) {
                Ok(_) => rounds += 1,
                Err(error) => break error,
            }
        };
        assert!(refused.is_retryable(), "{refused}");
        assert_eq!(count(&db, "round"), rounds);
        assert_at_rest(db.engine());
        fs.set_capacity(u64::MAX);
        while let Err(error) = attempt(rounds + 1) {
            assert!(error.is_retryable(), "{error}");
            db.flush().unwrap();
        }
        assert_eq!(count(&db, "round"), rounds + 1);
        assert_at_rest(db.engine());
    }
}
