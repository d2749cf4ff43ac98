//! Databases below the least ceiling for memory, where something else holds what they might have.

use super::{Content, content};
use crate::env::fixtures::{Wall, soon};
use crate::env::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::env::{Clock, Env};
use crate::error::MemoryClass;
use crate::events::Event;
use crate::memory::Charge;
use crate::options::{Options, WriteOptions};
use crate::vfs::{Fault, FileOp, MemoryFs};
use crate::write::seal::{is_full, promise};
use crate::{BackgroundJob, Batch, Db, Error};
use std::borrow::Cow;
use std::cell::Cell;
use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

fn open(fs: &MemoryFs) -> Db {
    open_with(fs, Env::system().clock)
}

/// A clock that stands still: no wait is too long before the test moves it.
fn still() -> Arc<Wall> {
    Arc::new(Wall(AtomicU64::new(3_600_000)))
}

fn open_with(fs: &MemoryFs, clock: Arc<dyn Clock>) -> Db {
    let env = Env { fs: Arc::new(fs.clone()), clock, ..Env::system() };
    Options::new().memory(24 << 20).compaction_threads(1).env(env).open("db").unwrap()
}

/// Takes so many bytes of what is not reserved, or all of it.
fn take(db: &Db, class: MemoryClass, bytes: u64) -> Charge {
    let budget = db.engine().ceiling.of_tables().unwrap().budget.clone();
    let charge = || {
        let free = budget.ceiling() - budget.held();
        budget.try_charge(class, bytes.min(free))
    };
    // Blocks leave the cache for it, and others may come meanwhile.
    (0..100).find_map(|_| charge().ok()).unwrap()
}

fn key(n: u64) -> Vec<u8> {
    format!("{:06}", n * 7919 % 30_000).into_bytes()
}

/// Writes so much that some tables lie in several levels.
fn fill(db: &Db, expected: &mut Content, round: u64) {
    for n in 0..30_000 {
        let value = format!("{round} {n:090}").into_bytes();
        db.put(key(n), &value).unwrap();
        expected.insert(key(n), value);
    }
    let gone = b"012000".to_vec()..b"013000".to_vec();
    db.delete_range(gone.clone()).unwrap();
    expected.retain(|key, _| !gone.contains(key));
    db.flush().unwrap();
}

fn check(db: &Db, expected: &Content) {
    assert_eq!(content(db), *expected);
    let keys: Vec<_> = (0..300).map(|n| key(n * 97)).collect();
    let found = db.multi_get(&keys).unwrap();
    for (key, found) in keys.iter().zip(found) {
        assert_eq!(db.get(key).unwrap().as_deref(), expected.get(key).map(Vec::as_slice));
        assert_eq!(found.as_deref(), expected.get(key).map(Vec::as_slice));
    }
    let backwards = db.range(..).rev().map(|row| row.unwrap().0.to_vec());
    assert!(backwards.eq(expected.keys().rev().cloned()));
}

#[test]
fn a_database_of_which_no_table_may_stay_open_is_written_read_and_compacted() {
    let fs = MemoryFs::new();
    let (db, mut expected) = (open(&fs), Content::new());
    let _others = take(&db, MemoryClass::Tables, (24 << 20) / 16 * 3);
    for round in 0..2 {
        fill(&db, &mut expected, round);
        check(&db, &expected);
    }
    db.compact().unwrap();
    check(&db, &expected);
    let engine = db.engine();
    for (_, slice) in engine.default_family.view().tree.iter() {
        let table = slice.table(&engine.tables).unwrap();
        assert!(matches!(table, Cow::Owned(_)), "{table:?} stays open");
    }
    drop(db);
    check(&open(&fs), &expected);
}

#[test]
fn what_is_reserved_suffices_to_write_flush_and_compact() {
    let fs = MemoryFs::new();
    let (db, mut expected) = (open(&fs), Content::new());
    fill(&db, &mut expected, 0);
    db.wait_for_compactions(None).unwrap();
    let others = take(&db, MemoryClass::Jobs, u64::MAX);
    for round in 1..3 {
        fill(&db, &mut expected, round);
    }
    db.compact().unwrap();
    assert!(db.metrics().memory.unwrap().held <= 24 << 20);
    check(&db, &expected);
    drop(others);
    check(&db, &expected);
}

/// Writes so many runs that overlap, which no compaction takes down.
fn write_runs(fs: &MemoryFs, runs: u32) {
    let env = Env { fs: Arc::new(fs.clone()), ..Env::system() };
    let mut patient = Options::new().write_buffer(256 << 10).env(env);
    patient.sizes.l0_trigger_runs = 10_000;
    let db = patient.open("db").unwrap();
    // It compacts what is left alone for some seconds.
    db.engine().maintenance.close();
    for run in 0..runs {
        for n in [1, 500, 999] {
            db.put(key(n), run.to_le_bytes()).unwrap();
        }
        db.flush().unwrap();
    }
    assert_eq!(db.engine().default_family.view().tree.runs.len(), runs as usize);
}

#[test]
fn more_runs_than_one_job_has_memory_for_are_compacted() {
    for all_is_taken in [false, true] {
        let fs = MemoryFs::new();
        write_runs(&fs, 160);
        let db = open(&fs);
        let _others = all_is_taken.then(|| take(&db, MemoryClass::Jobs, u64::MAX));
        db.compact().unwrap();
        assert!(db.engine().default_family.view().tree.runs.is_empty());
        assert_eq!(db.get(key(500)).unwrap().unwrap(), 159u32.to_le_bytes());
    }
}

#[test]
fn a_job_that_waits_for_memory_ends_when_writing_does() {
    let fs = MemoryFs::new();
    write_runs(&fs, 3);
    let db = open(&fs);
    let engine = db.engine();
    let parts = engine.ceiling.of_parts().unwrap();
    let reserve = parts.admit((1, 1), &|| Ok(())).unwrap();
    let _others = take(&db, MemoryClass::Jobs, u64::MAX);
    thread::scope(|scope| {
        let compaction = scope.spawn(|| db.compact());
        thread::sleep(Duration::from_millis(100));
        assert!(!compaction.is_finished());
        let poison = || engine.poison(BackgroundJob::Flush, Error::planted());
        scope.spawn(poison).join().unwrap();
        let has_ended = soon(|| compaction.is_finished());
        drop(reserve);
        assert_eq!(compaction.join().unwrap().unwrap_err().name(), "POISONED");
        assert!(has_ended);
    });
}

/// Lets each flush be installed only once the open epoch is full, until `is_over`.
fn hold_flushes(db: &Db, is_over: &AtomicBool) {
    let epochs = &db.engine().epochs;
    let oldest = || epochs.list().sealed.first().map(|epoch| epoch.id);
    let wait = |until: &dyn Fn() -> bool| {
        while !until() && !is_over.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(1));
        }
    };
    while !is_over.load(Ordering::Relaxed) {
        let held = db.engine().families_pending.lock();
        wait(&|| oldest().is_some() && is_full(db.engine()));
        let flushed = oldest();
        drop(held);
        wait(&|| oldest() != flushed);
    }
}

#[test]
fn small_commits_that_fill_memory_leave_a_large_one_its_turn() {
    // A flush lets go of its memory some time after writers hear of it.
    let linger = |event: &Event| {
        if let Event::Flushed { .. } = event {
            thread::sleep(Duration::from_millis(20));
        }
    };
    let env = Env { fs: Arc::new(MemoryFs::new()), ..Env::system() };
    let db = Options::new().memory(24 << 20).on_event(linger).env(env).open("db").unwrap();
    let _others = take(&db, MemoryClass::Jobs, u64::MAX);
    let is_over = AtomicBool::new(false);
    let write = |thread: u64| {
        for n in 0.. {
            if is_over.load(Ordering::Relaxed) {
                break;
            }
            db.put(key(thread << 20 | n), [7; 1000]).unwrap();
        }
    };
    thread::scope(|scope| {
        scope.spawn(|| hold_flushes(&db, &is_over));
        (0..4).for_each(|thread| drop(scope.spawn(move || write(thread))));
        let large = scope.spawn(|| {
            while db.engine().epochs.list().sealed.is_empty() {
                thread::yield_now();
            }
            db.put("large", [7; 8 << 10])
        });
        let has_ended = soon(|| large.is_finished());
        is_over.store(true, Ordering::Relaxed);
        large.join().unwrap().unwrap();
        assert!(has_ended, "it waits while others write");
    });
}

/// A batch that takes all that a large commit may take.
fn largest() -> Batch {
    let mut batch = Batch::new();
    for nth in 0..3u8 {
        batch.put([nth], vec![7; 300_000]);
    }
    batch
}

#[test]
fn a_large_commit_waits_half_a_second_whatever_others_try() {
    let clock = still();
    let db = open_with(&MemoryFs::new(), clock.clone());
    let _others = take(&db, MemoryClass::Jobs, u64::MAX);
    let epochs = &db.engine().epochs;
    let held = epochs.pool().promise(db.engine().ceiling.commit_max).unwrap();
    thread::scope(|scope| {
        let waits = scope.spawn(|| db.write(&mut largest()));
        while !epochs.are_promises_awaited() {
            thread::yield_now();
        }
        for _ in 0..10 {
            db.with(WriteOptions::new().fail_fast(true)).write(&mut largest()).unwrap_err();
            clock.0.fetch_add(49, Ordering::Relaxed);
        }
        thread::sleep(Duration::from_millis(100));
        drop(held);
        let is_served = soon(|| waits.is_finished());
        clock.0.fetch_add(500, Ordering::Relaxed);
        waits.join().unwrap().unwrap();
        assert!(is_served);
    });
    assert!(!epochs.are_promises_awaited());
}

#[test]
fn a_large_commit_comes_before_smaller_ones_that_came_later() {
    let clock = still();
    let db = open_with(&MemoryFs::new(), clock.clone());
    let _others = take(&db, MemoryClass::Jobs, u64::MAX);
    let (engine, small) = (db.engine(), 100 << 10);
    let pool = engine.epochs.pool();
    let held = pool.promise(engine.ceiling.commit_max).unwrap();
    let (large, later) = thread::scope(|scope| {
        let large = scope.spawn(|| promise(engine, false, engine.ceiling.commit_max).is_ok());
        while !engine.epochs.are_promises_awaited() {
            thread::yield_now();
        }
        let never = promise(engine, false, engine.ceiling.commit_max + 1).map(drop);
        assert!(!never.unwrap_err().is_retryable(), "it would stand before all that come later");
        // There is room for this one, and it would keep the other one waiting.
        let later = promise(engine, true, small);
        drop(held);
        let is_served = soon(|| large.is_finished());
        clock.0.fetch_add(500, Ordering::Relaxed);
        (large.join().unwrap() && is_served, later)
    });
    assert!(large && later.is_err());
}

#[test]
fn who_waits_behind_a_large_commit_is_not_refused_with_it() {
    let db = open(&MemoryFs::new());
    let _others = take(&db, MemoryClass::Jobs, u64::MAX);
    let (engine, small) = (db.engine(), 100 << 10);
    let _held = engine.epochs.pool().promise(engine.ceiling.commit_max).unwrap();
    assert!(promise(engine, false, small).unwrap().is_some(), "for this one there is room");
    thread::scope(|scope| {
        let large = scope.spawn(|| promise(engine, false, engine.ceiling.commit_max).map(drop));
        while !engine.epochs.are_promises_awaited() {
            thread::yield_now();
        }
        let behind = (0..4).map(|_| scope.spawn(|| promise(engine, false, small).is_ok()));
        let behind: Vec<_> = behind.collect();
        assert!(large.join().unwrap().is_err());
        assert!(behind.into_iter().all(|one| one.join().unwrap()));
    });
}

#[test]
fn the_waits_of_equally_large_commits_do_not_add_up() {
    let clock = still();
    let db = open_with(&MemoryFs::new(), clock.clone());
    let _others = take(&db, MemoryClass::Jobs, u64::MAX);
    let (engine, most) = (db.engine(), db.engine().ceiling.commit_max);
    let held = engine.epochs.pool().promise(most).unwrap();
    thread::scope(|scope| {
        let waits = (0..8).map(|_| scope.spawn(|| promise(engine, false, most).is_ok()));
        let waits: Vec<_> = waits.collect();
        assert!(soon(|| engine.epochs.promises_awaited() == 8));
        // The last of them sleeps once it gives the lock back. Half a second is enough for all.
        drop(engine.epochs.lock());
        clock.0.fetch_add(500, Ordering::Relaxed);
        let are_over = soon(|| waits.iter().all(|one| one.is_finished()));
        drop(held);
        assert!(waits.into_iter().all(|one| !one.join().unwrap()));
        assert!(are_over, "one waits after the other");
    });
    assert!(!engine.epochs.are_promises_awaited());
}

#[test]
fn epochs_that_come_in_quick_succession_refuse_no_large_commit() {
    let clock = still();
    let db = open_with(&MemoryFs::new(), clock.clone());
    let _others = take(&db, MemoryClass::Jobs, u64::MAX);
    let (engine, most) = (db.engine(), db.engine().ceiling.commit_max);
    let held = engine.epochs.pool().promise(most).unwrap();
    thread::scope(|scope| {
        let waits = scope.spawn(|| promise(engine, false, most).map(drop));
        while !engine.epochs.are_promises_awaited() {
            thread::yield_now();
        }
        for n in 0..8 {
            db.put(key(n), "value").unwrap();
            db.flush().unwrap();
            clock.0.fetch_add(49, Ordering::Relaxed);
        }
        thread::sleep(Duration::from_millis(100));
        drop(held);
        let is_served = soon(|| waits.is_finished());
        clock.0.fetch_add(500, Ordering::Relaxed);
        waits.join().unwrap().unwrap();
        assert!(is_served);
    });
}

thread_local! {
    /// After so many looks at its clock a thread panics.
    static LOOKS_LEFT: Cell<u64> = const { Cell::new(u64::MAX) };
}

struct PanickingClock(Arc<Wall>);

impl Clock for PanickingClock {
    fn now_ns(&self) -> u64 {
        match LOOKS_LEFT.get() {
            u64::MAX => {}
            0 => panic!("planted"),
            left => LOOKS_LEFT.set(left - 1),
        }
        self.0.now_ns()
    }

    fn unix_ms(&self) -> u64 {
        self.0.unix_ms()
    }
}

#[test]
fn a_thread_that_panics_while_it_waits_for_memory_leaves_its_place() {
    let db = open_with(&MemoryFs::new(), Arc::new(PanickingClock(still())));
    let _others = take(&db, MemoryClass::Jobs, u64::MAX);
    let (engine, most) = (db.engine(), db.engine().ceiling.commit_max);
    let held = engine.epochs.pool().promise(most).unwrap();
    for looks in 0..5 {
        thread::scope(|scope| {
            let waits = scope.spawn(|| {
                LOOKS_LEFT.set(looks);
                promise(engine, false, most).map(drop)
            });
            assert!(waits.join().is_err(), "it panics at look {looks}");
        });
        assert!(!engine.epochs.are_promises_awaited(), "look {looks}");
    }
    drop(held);
    assert!(promise(engine, true, most).unwrap().is_some());
}

#[test]
fn a_large_commit_is_told_of_the_full_disk_that_keeps_memory_from_coming_free() {
    let fs = MemoryFs::new();
    let db = open(&fs);
    let _others = take(&db, MemoryClass::Jobs, u64::MAX);
    fs.inject(Fault::on(FileOp::Create).suffix(".tbl").kind(io::ErrorKind::StorageFull).forever());
    for n in 0.. {
        if is_full(db.engine()) {
            break;
        }
        db.put(key(n), [7; 1000]).unwrap();
    }
    let told = db.put("large", [7; 8 << 10]).unwrap_err();
    assert!(told.is_out_of_space(), "{told}");
    fs.clear_faults();
    db.flush().unwrap();
    db.put("large", [7; 8 << 10]).unwrap();
}
