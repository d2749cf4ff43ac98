//! When an epoch is sealed, which callers wait for its flush, and which errors the others get.

use super::open;
use crate::Error;
use crate::engine::{Engine, MAX_SEALED, MAX_SMALL, RETRY_PAUSE_NS_MAX};
use crate::env::sync::MutexGuard;
use crate::env::sync::atomic::{AtomicU64, Ordering};
use crate::env::{Clock, Env, SystemClock};
use crate::error::{ErrorKind, MemoryClass, StallCause};
use crate::options::{Options, WriteOptions};
use crate::vfs::{Fault, FileOp, MemoryFs};
use crate::wal::{RECORD_ALIGN, RECORD_HEADER_LEN};
use crate::write::seal::{
    flush_now, flush_up_to, is_full, make_room, seal_epoch, seal_if_room, seal_if_written,
};
use std::io;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

/// The bytes of a marker in the log: its payload is one byte.
const MARKER_LEN: u64 = RECORD_HEADER_LEN as u64 + RECORD_ALIGN;

/// Fills the log with a skip record until the open epoch has `bytes` of it.
fn fill_log(engine: &Engine, bytes: u64) {
    let start = engine.epochs.list().open.start;
    drop(engine.log.reserve(start + bytes - engine.log.tail()).unwrap());
}

#[test]
fn an_epoch_is_full_once_it_takes_twice_the_budget_in_the_log() {
    for steps in [[32, 0], [40, 8]] {
        let db = open(&MemoryFs::new());
        let engine = db.engine();
        let limit = 2 * engine.options.buffer_len();
        assert!(!is_full(engine));
        for short_by in steps {
            fill_log(engine, limit - short_by);
            assert_eq!(is_full(engine), short_by == 0, "{short_by} bytes below the limit");
        }
        fill_log(engine, limit + 32);
        assert!(is_full(engine));
        let (sealed, full) = (engine.epochs.list().sealed.len(), engine.epochs.list().open.id);
        assert_eq!(sealed, 0, "nothing but a write or a flush seals");
        db.put("key", "value").unwrap();
        assert_eq!(engine.epochs.list().open.id, full + 1);
        assert!(!is_full(engine));
    }
}

#[test]
fn an_epoch_is_full_once_it_takes_the_budget_in_memory() {
    let db = open(&MemoryFs::new());
    let engine = db.engine();
    let budget = engine.options.buffer_len();
    let first = engine.epochs.list().open.clone();
    for n in 0..u32::MAX {
        db.put(n.to_be_bytes(), [7; 100]).unwrap();
        assert_eq!(engine.epochs.list().open.id, first.id, "sealed at {} bytes", first.bytes());
        assert_eq!(is_full(engine), first.bytes() >= budget);
        if is_full(engine) {
            break;
        }
    }
    assert!(engine.log.tail() - first.start < 2 * budget, "its memory was full first");
    db.put("key", "value").unwrap();
    assert_eq!(engine.epochs.list().open.id, first.id + 1);
}

#[test]
fn an_epoch_that_is_not_full_stays_open_when_room_is_asked_for() {
    let db = open(&MemoryFs::new());
    let engine = db.engine();
    db.put("key", "value").unwrap();
    let (open, tail) = (engine.epochs.list().open.id, engine.log.tail());
    for fail_fast in [true, false] {
        make_room(engine, fail_fast).unwrap();
        assert_eq!((engine.epochs.list().open.id, engine.log.tail()), (open, tail));
    }
}

#[test]
fn an_epoch_is_sealed_on_request_if_anything_was_reserved_in_it() {
    let db = open(&MemoryFs::new());
    let engine = db.engine();
    assert!(seal_if_written(engine).unwrap().is_none());
    for is_skipped in [true, false] {
        let before = engine.epochs.list().open.clone();
        match is_skipped {
            true => fill_log(engine, 32),
            false => drop(db.put("key", "value").unwrap()),
        }
        let tail = engine.log.tail();
        let sealed = seal_if_written(engine).unwrap().unwrap();
        assert!(Arc::ptr_eq(&sealed, &before));
        assert_eq!((sealed.end(), engine.log.tail()), (tail + MARKER_LEN, tail + MARKER_LEN));
        assert_eq!(engine.epochs.list().open.start, tail + MARKER_LEN);
        assert!(seal_if_written(engine).unwrap().is_none(), "nothing came since");
        flush_now(engine).unwrap();
        assert!(engine.epochs.list().sealed.is_empty());
    }
    engine.log.poison(&Error::planted());
    assert_eq!(seal_if_written(engine).map(drop).unwrap_err().name(), "POISONED");
    assert_eq!(flush_now(engine).unwrap_err().name(), "POISONED");
}

#[test]
fn who_comes_to_seal_an_epoch_that_another_has_sealed_leaves_the_next_one_open() {
    let db = open(&MemoryFs::new());
    let engine = db.engine();
    db.put("key", "value").unwrap();
    let first = engine.epochs.list().open.id;
    seal_if_written(engine).unwrap().unwrap();
    db.put("key", "later").unwrap();
    assert!(seal_epoch(engine, first).unwrap().is_none());
    assert_eq!(engine.epochs.list().open.id, first + 1);
    flush_now(engine).unwrap();
    assert_eq!(engine.epochs.list().open.id, first + 2, "a flush takes what came before it");
    assert!(engine.epochs.list().sealed.is_empty());
}

/// Seals the most epochs that may be sealed, and fills the next. While the guard is held none of
/// them is installed.
fn without_room<'a>(db: &'a crate::Db) -> MutexGuard<'a, bool> {
    let engine = db.engine();
    let held = engine.families_pending.lock();
    for n in 0..MAX_SEALED {
        assert_eq!(engine.epochs.list().sealed.len(), n);
        db.put("key", n.to_le_bytes()).unwrap();
        fill_log(engine, engine.options.buffer_len());
        seal_if_written(engine).unwrap().unwrap();
    }
    assert_eq!(engine.epochs.list().sealed.len(), MAX_SEALED);
    fill_log(engine, 2 * engine.options.buffer_len());
    held
}

#[test]
fn requests_for_a_flush_of_little_leave_writers_their_buffers() {
    leave_buffers(&open(&MemoryFs::new()), 1);
    // Writers take nine slabs at once, and a chunk is a quarter of the buffer.
    let env = Env { fs: Arc::new(MemoryFs::new()), ..Env::system() };
    leave_buffers(&Options::new().write_buffer(8_500_000).env(env).open("db").unwrap(), 32);
}

fn leave_buffers(db: &crate::Db, writers: usize) {
    let engine = db.engine();
    let held = engine.families_pending.lock();
    for n in 1..=MAX_SMALL + 3 {
        let all_alive = Barrier::new(writers);
        let write = || {
            db.put("key", "value").unwrap();
            all_alive.wait();
        };
        thread::scope(|scope| (0..writers).for_each(|_| drop(scope.spawn(write))));
        seal_if_room(engine).unwrap();
        let list = engine.epochs.list();
        let sizes: Vec<_> = list.sealed.iter().map(|epoch| epoch.bytes()).collect();
        assert_eq!((sizes.len(), engine.heavy_epochs()), (n.min(MAX_SMALL), 0), "{sizes:?}");
    }
    for heavy in 1..=MAX_SEALED {
        fill_log(engine, 2 * engine.options.buffer_len());
        make_room(engine, true).unwrap();
        assert_eq!(engine.heavy_epochs(), heavy);
        db.put("key", "value").unwrap();
    }
    assert_eq!(engine.epochs.list().sealed.len(), MAX_SMALL + MAX_SEALED);
    fill_log(engine, 2 * engine.options.buffer_len());
    let told = make_room(engine, true).unwrap_err();
    assert!(matches!(told.kind(), ErrorKind::WouldStall { cause: StallCause::MemoryFull, .. }));
    drop(held);
    flush_now(engine).unwrap();
    assert!(engine.epochs.list().sealed.is_empty());
}

/// The system's time, moved forward by 13 days.
struct Later(SystemClock);

impl Clock for Later {
    fn now_ns(&self) -> u64 {
        self.0.now_ns() + (1 << 50)
    }
    fn unix_ms(&self) -> u64 {
        self.0.unix_ms()
    }
}

/// On a busy machine the write may come only when there is room again.
#[test]
fn a_write_into_full_memory_waits_for_a_flush_unless_it_was_asked_not_to() {
    assert!((0..300).any(|_| is_a_wait_counted()));
}

/// False if the write did not have to wait.
fn is_a_wait_counted() -> bool {
    let clock = Arc::new(Later(SystemClock::new()));
    let env = Env { fs: Arc::new(MemoryFs::new()), clock, ..Env::system() };
    let db = Options::new().write_buffer(256 << 10).env(env).open("db").unwrap();
    let engine = db.engine();
    // It would seal what so long a log holds, too.
    engine.maintenance.close();
    let held = without_room(&db);
    let (open_id, tail) = (engine.epochs.list().open.id, engine.log.tail());
    let told = db.with(WriteOptions::default().fail_fast(true)).put("hasty", "value");
    assert!(
        matches!(
            told.as_ref().map_err(Error::kind),
            Err(ErrorKind::WouldStall { cause: StallCause::MemoryFull, .. })
        ),
        "{told:?}"
    );
    let stall = &engine.pacer.stalls()[StallCause::MemoryFull as usize];
    assert_eq!(stall.count.load(Ordering::Relaxed), 0, "it did not wait");
    thread::scope(|scope| {
        let writer = scope.spawn(|| db.put("patient", "value"));
        thread::sleep(Duration::from_millis(100));
        assert!(!writer.is_finished());
        assert_eq!((engine.epochs.list().open.id, engine.log.tail()), (open_id, tail));
        drop(held);
        writer.join().unwrap().unwrap();
    });
    assert_eq!(engine.epochs.list().open.id, open_id + 1);
    let counted = stall.count.load(Ordering::Relaxed);
    if counted == 0 {
        return false;
    }
    assert_eq!(counted, 1);
    let waited = Duration::from_nanos(stall.total_ns.load(Ordering::Relaxed));
    assert!(waited > Duration::ZERO && waited < Duration::from_secs(600), "{waited:?}");
    db.flush().unwrap();
    assert_eq!(stall.count.load(Ordering::Relaxed), 1, "a flush is no write");
    assert_eq!(db.get("patient").unwrap().unwrap(), b"value");
    true
}

#[test]
fn a_write_that_waits_for_memory_is_told_when_the_writing_ends() {
    let db = open(&MemoryFs::new());
    let held = without_room(&db);
    thread::scope(|scope| {
        let writer = scope.spawn(|| db.put("patient", "value"));
        let flusher = scope.spawn(|| db.flush());
        thread::sleep(Duration::from_millis(30));
        assert!(!writer.is_finished() && !flusher.is_finished());
        // The listener is called under no lock of the engine.
        let poison = || db.engine().poison(crate::BackgroundJob::Flush, Error::planted());
        scope.spawn(poison).join().unwrap();
        assert_eq!(writer.join().unwrap().unwrap_err().name(), "POISONED");
        assert_eq!(flusher.join().unwrap().unwrap_err().name(), "POISONED");
    });
    drop(held);
}

#[test]
fn an_epoch_is_sealed_without_a_wait_only_while_few_wait_for_their_flush() {
    let db = open(&MemoryFs::new());
    let engine = db.engine();
    seal_if_room(engine).unwrap();
    assert_eq!(engine.epochs.list().open.id, 1, "nothing was written");
    db.put("key", "value").unwrap();
    seal_if_room(engine).unwrap();
    assert_eq!(engine.epochs.list().open.id, 2);
    db.flush().unwrap();
    let held = without_room(&db);
    let open_id = engine.epochs.list().open.id;
    seal_if_room(engine).unwrap();
    assert_eq!(engine.epochs.list().open.id, open_id);
    drop(held);
    engine.log.poison(&Error::planted());
    assert_eq!(seal_if_room(engine).unwrap_err().name(), "POISONED");
}

#[test]
fn a_flush_waits_for_what_was_sealed_before_it_though_nothing_came_since() {
    let db = open(&MemoryFs::new());
    let engine = db.engine();
    let held = engine.families_pending.lock();
    db.put("key", "value").unwrap();
    seal_if_written(engine).unwrap().unwrap();
    let open_id = engine.epochs.list().open.id;
    thread::scope(|scope| {
        let flusher = scope.spawn(|| db.flush());
        thread::sleep(Duration::from_millis(100));
        assert!(!flusher.is_finished());
        drop(held);
        flusher.join().unwrap().unwrap();
    });
    let list = engine.epochs.list();
    assert_eq!((list.sealed.len(), list.open.id), (0, open_id), "there was nothing to seal");
}

#[test]
fn a_flush_waits_for_its_epoch_if_another_has_sealed_it_and_leaves_the_next_one_open() {
    let db = open(&MemoryFs::new());
    let engine = db.engine();
    let held = engine.families_pending.lock();
    db.put("key", "value").unwrap();
    let first = engine.epochs.list().open.id;
    seal_if_written(engine).unwrap().unwrap();
    db.put("key", "later").unwrap();
    thread::scope(|scope| {
        let flusher = scope.spawn(|| flush_up_to(engine, first));
        thread::sleep(Duration::from_millis(100));
        assert!(!flusher.is_finished());
        drop(held);
        flusher.join().unwrap().unwrap();
    });
    let list = engine.epochs.list();
    assert_eq!((list.sealed.len(), list.open.id), (0, first + 1));
}

#[test]
fn writers_are_paced_while_a_sealed_epoch_waits_behind_another() {
    let db = open(&MemoryFs::new());
    let engine = db.engine();
    let held = engine.families_pending.lock();
    // The first write adds so much debt that the second would have to wait.
    let admit = || engine.pacer.admit(1 << 30, true, || 1.0);
    for is_behind in [false, true] {
        db.put("key", "value").unwrap();
        seal_if_written(engine).unwrap().unwrap();
        admit().unwrap();
        assert_eq!(admit().is_err(), is_behind);
    }
    drop(held);
    db.flush().unwrap();
    admit().unwrap();
    admit().unwrap();
}

#[test]
fn a_write_that_is_paced_is_refused_before_it_is_logged_if_it_was_asked_not_to_wait() {
    let db = open(&MemoryFs::new());
    let engine = db.engine();
    engine.pacer.set_compactions(1.0, 1e6);
    engine.pacer.admit(1 << 30, true, || 0.0).unwrap();
    let hasty = || db.with(WriteOptions::default().fail_fast(true)).put("key", "value");
    let tail = engine.log.tail();
    assert_eq!(hasty().unwrap_err().name(), "WOULD_STALL");
    assert_eq!(engine.log.tail(), tail);
    engine.pacer.set_compactions(0.0, 1e6);
    hasty().unwrap();
}

/// A clock that a test moves by hand.
struct Hand(AtomicU64);

impl Clock for Hand {
    fn now_ns(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
    fn unix_ms(&self) -> u64 {
        0
    }
}

#[test]
fn writes_into_full_memory_cost_few_flushes_while_the_disk_stays_full() {
    let (fs, hand) = (MemoryFs::new(), Arc::new(Hand(AtomicU64::new(1))));
    let (disk, clock) = (Arc::new(fs.clone()), hand.clone());
    let env = Env { fs: disk, clock, ..Env::system() };
    let db = Options::new().write_buffer(256 << 10).env(env).open("db").unwrap();
    let engine = db.engine();
    fs.inject(Fault::on(FileOp::Create).suffix(".tbl").kind(io::ErrorKind::StorageFull).forever());
    for _ in 0..MAX_SEALED {
        db.put("key", "value").unwrap();
        fill_log(engine, engine.options.buffer_len());
        assert!(db.flush().unwrap_err().is_out_of_space());
    }
    fill_log(engine, 2 * engine.options.buffer_len());
    let write = || {
        while engine.epochs.check_flushes().is_ok() {
            thread::yield_now();
        }
        assert!(make_room(engine, false).unwrap_err().is_out_of_space());
    };
    // Maintenance tries once a second, too.
    let (began, tried) = (Instant::now(), fs.tried(FileOp::Create));
    for _ in 0..300 {
        write();
    }
    let of_maintenance = |began: Instant| began.elapsed().as_secs() + 1;
    let tried = fs.tried(FileOp::Create) - tried;
    assert!(tried <= 30 + 2 * of_maintenance(began), "{tried} for 300 writes");
    // Once there is room, writes get the old error for no longer than the longest pause.
    fs.clear_faults();
    hand.0.fetch_add(RETRY_PAUSE_NS_MAX, Ordering::Relaxed);
    make_room(engine, false).unwrap();
}

#[test]
fn a_flush_that_finds_no_room_is_told_and_tried_again_by_the_next() {
    let fs = MemoryFs::new();
    let db = open(&fs);
    let engine = db.engine();
    // While it tried again, there would be no failure to be told.
    engine.maintenance.close();
    db.put("key", "value").unwrap();
    fill_log(engine, engine.options.buffer_len());
    fs.inject(Fault::on(FileOp::Create).suffix(".tbl").kind(io::ErrorKind::StorageFull).forever());
    assert!(db.flush().unwrap_err().is_out_of_space());
    assert_eq!(engine.epochs.list().sealed.len(), 1);
    db.put("key", "another").unwrap();
    fill_log(engine, engine.options.buffer_len());
    assert!(db.flush().unwrap_err().is_out_of_space());
    assert_eq!(engine.epochs.list().sealed.len(), MAX_SEALED);
    fill_log(engine, 2 * engine.options.buffer_len());
    while engine.epochs.check_flushes().is_ok() {
        thread::yield_now();
    }
    let hasty = || db.with(WriteOptions::default().fail_fast(true)).put("hasty", "value");
    let told = hasty().unwrap_err();
    assert!(told.is_out_of_space(), "{told}");
    fs.clear_faults();
    // The writes with `fail_fast` themselves cause another attempt.
    let mut left = 24_000;
    while let Err(told) = hasty() {
        assert!(told.is_retryable(), "{told}");
        left -= 1;
        assert!(left > 0, "{told}");
        thread::sleep(Duration::from_millis(5));
    }
    db.flush().unwrap();
    assert!(engine.epochs.list().sealed.is_empty());
    assert_eq!(db.get("key").unwrap().unwrap(), b"another");
}

#[test]
fn a_flush_is_not_told_of_the_failure_of_one_that_began_before() {
    let db = open(&MemoryFs::new());
    let engine = db.engine();
    let (fail, failing) = std::sync::mpsc::channel();
    let began_before = engine.clone();
    let job = move |_: &_| {
        failing.recv().unwrap();
        let error = Error::would_stall(StallCause::LogFull);
        began_before.epochs.note_flush_failure(error, began_before.pacer.now_ns());
        // The next flush does not begin before the failure was seen.
        let began = Instant::now();
        while began_before.epochs.check_flushes().is_err() && began.elapsed().as_secs() < 2 {
            thread::yield_now();
        }
    };
    engine.flusher.submit(Box::new(job)).unwrap();
    db.put("key", "value").unwrap();
    thread::scope(|scope| {
        let flush = scope.spawn(|| db.flush());
        while engine.epochs.list().sealed.is_empty() {
            thread::yield_now();
        }
        fail.send(()).unwrap();
        flush.join().unwrap().unwrap();
    });
    assert!(engine.epochs.list().sealed.is_empty());
}

#[test]
fn memory_that_comes_free_a_moment_after_the_last_flush_is_waited_for() {
    let hand = Arc::new(Hand(AtomicU64::new(1)));
    let (fs, clock) = (Arc::new(MemoryFs::new()), hand.clone());
    let env = Env { fs, clock, ..Env::system() };
    let db = Options::new().memory(24 << 20).env(env).open("db").unwrap();
    let engine = db.engine();
    let budget = engine.ceiling.of_tables().unwrap().budget.clone();
    let free = budget.ceiling() - budget.held();
    let _others = budget.try_charge(MemoryClass::Jobs, free).unwrap();
    let held = engine.epochs.next_arena(&mut engine.epochs.lock()).unwrap();
    fill_log(engine, 2 * engine.options.buffer_len());
    let is_refused = |error: Error| matches!(error.kind(), ErrorKind::MemoryLimit { .. });
    assert!(is_refused(make_room(engine, true).unwrap_err()));
    thread::scope(|scope| {
        let told = scope.spawn(|| make_room(engine, false).unwrap_err());
        while !told.is_finished() {
            hand.0.fetch_add(1_000_000, Ordering::Relaxed);
            thread::sleep(Duration::from_millis(1));
        }
        assert!(is_refused(told.join().unwrap()), "no one lets go of it");
    });
    // The time stands still, so this one waits as long as it takes.
    let open = engine.epochs.list().open.id;
    thread::scope(|scope| {
        scope.spawn(move || {
            thread::sleep(Duration::from_millis(50));
            drop(held);
        });
        make_room(engine, false).unwrap();
    });
    assert_eq!(engine.epochs.list().open.id, open + 1);
}
