//! A file system or a clock of the program's own panics once, at any of its uses. The caller gets
//! the panic or an error, no thread sleeps for ever, the database can be closed, and it opens again
//! with every acknowledged write.

use crate::env::{Clock, Env, SystemClock};
use crate::options::{Options, WriteOptions};
use crate::vfs::{Fault, FileOp, MemoryFs};
use crate::{Db, Result};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// A clock that panics once, at a chosen call.
struct Fuse {
    clock: SystemClock,
    looks_left: AtomicU64,
}

impl Fuse {
    fn new(looks: u64) -> Arc<Fuse> {
        Arc::new(Fuse { clock: SystemClock::new(), looks_left: AtomicU64::new(looks) })
    }

    fn is_burnt(&self) -> bool {
        self.looks_left.load(Ordering::Relaxed) > u64::MAX / 2
    }
}

impl Clock for Fuse {
    fn now_ns(&self) -> u64 {
        if self.looks_left.fetch_sub(1, Ordering::Relaxed) == 0 {
            resume_unwind(Box::new("planted"));
        }
        self.clock.now_ns()
    }
    fn unix_ms(&self) -> u64 {
        self.clock.unix_ms()
    }
}

fn over(fs: &MemoryFs, clock: Arc<dyn Clock>) -> Options {
    let env = Env { fs: Arc::new(fs.clone()), clock, ..Env::system() };
    Options::new().write_buffer(64 << 10).compaction_threads(1).env(env)
}

/// The result of a call; `None` if it panicked or failed.
fn attempt<T>(call: impl FnOnce() -> Result<T>) -> Option<T> {
    catch_unwind(AssertUnwindSafe(call)).ok()?.ok()
}

const VALUE: [u8; 3000] = [7; 3000];

/// Puts keys of one writer until a call fails. Returns how many puts were acknowledged.
fn write(db: &Db, writer: u8) -> u32 {
    for at in 0..40u32 {
        let key = [&[writer][..], &at.to_be_bytes()].concat();
        let options = if at % 8 == 0 { WriteOptions::sync() } else { WriteOptions::default() };
        if attempt(|| db.with(options).put(&key, VALUE)).is_none() {
            return at;
        }
    }
    40
}

/// Makes all other calls that a program makes.
fn use_otherwise(db: &Db) -> Option<()> {
    for round in 0..3 {
        let family = attempt(|| db.family(format!("family {round}")))?;
        attempt(|| family.put("key", "value"))?;
        attempt(|| db.flush())?;
        attempt(|| db.compact())?;
        attempt(|| db.range(..).try_for_each(|item| item.map(drop)))?;
        attempt(|| db.drop_family(&family))?;
        attempt(|| db.wait_for_compactions(None))?;
    }
    Some(())
}

/// The result of a thread that ends by itself.
#[track_caller]
fn ended<T>(thread: JoinHandle<T>) -> T {
    let began = Instant::now();
    while !thread.is_finished() {
        assert!(began.elapsed() < Duration::from_secs(300), "it hangs");
        thread::sleep(Duration::from_millis(1));
    }
    thread.join().unwrap()
}

/// Opens, uses and closes a database whose `options` hold something that may panic.
fn live(fs: &MemoryFs, options: Options) {
    let Some(db) = attempt(|| options.open("db")) else { return check(fs, &[]) };
    let spawn = |writer| {
        let db = db.clone();
        thread::spawn(move || write(&db, writer))
    };
    let writers: Vec<_> = (0..3).map(spawn).collect();
    let other = db.clone();
    let other = thread::spawn(move || use_otherwise(&other));
    let acknowledged: Vec<u32> = writers.into_iter().map(ended).collect();
    ended(other);
    let killed = fs.killed();
    ended(thread::spawn(move || attempt(|| db.close())));
    check(&killed, &acknowledged);
    check(fs, &acknowledged);
}

#[track_caller]
fn check(fs: &MemoryFs, acknowledged: &[u32]) {
    fs.clear_faults();
    let db = over(fs, Arc::new(SystemClock::new())).open("db").unwrap();
    for (writer, count) in acknowledged.iter().enumerate() {
        for at in 0..*count {
            let key = [&[writer as u8][..], &at.to_be_bytes()].concat();
            assert_eq!(db.get(key).unwrap().unwrap(), VALUE);
        }
    }
    db.put("more", "value").unwrap();
    db.close().unwrap();
}

#[test]
fn a_file_system_that_panics_stops_no_thread_for_ever_and_loses_nothing() {
    for nth in (1..).step_by(9) {
        let fs = MemoryFs::new();
        fs.inject(Fault::on_any().nth(nth).panics());
        live(&fs, over(&fs, Arc::new(SystemClock::new())));
        if fs.struck() == 0 {
            assert!(nth > 200);
            break;
        }
    }
}

#[test]
fn a_clock_that_panics_stops_no_thread_for_ever_and_loses_nothing() {
    for looks in (0..).step_by(5) {
        let (fs, fuse) = (MemoryFs::new(), Fuse::new(looks));
        live(&fs, over(&fs, fuse.clone()));
        if !fuse.is_burnt() {
            assert!(looks > 30);
            break;
        }
    }
}

/// The edit of a flush is synced, and the write of its sync marker panics: memory lacks a table
/// that the manifest names.
#[test]
fn what_an_edit_names_that_a_panic_cut_short_stays() {
    let fs = MemoryFs::new();
    let options = over(&fs, Arc::new(SystemClock::new()));
    let db = options.clone().open("db").unwrap();
    let family = db.family("family").unwrap();
    db.put("key", "value").unwrap();
    let manifest = db.engine().versions.lock().manifest().path();
    let manifest = manifest.file_name().unwrap().to_str().unwrap().to_owned();
    fs.inject(Fault::on(FileOp::Write).suffix(&manifest).nth(2).panics());
    assert_eq!(db.flush().unwrap_err().name(), "POISONED");
    assert_eq!(fs.struck(), 1);
    // If files were still removed, the table would go now.
    db.engine().remove_obsolete_files();
    assert!(attempt(|| db.drop_family(&family)).is_none());
    assert!(attempt(|| db.close()).is_none());
    let db = options.open("db").unwrap();
    assert_eq!(db.get("key").unwrap().unwrap(), b"value");
}

#[test]
fn a_close_that_panics_gives_the_directory_up_and_is_the_last() {
    let fs = MemoryFs::new();
    let options = over(&fs, Arc::new(SystemClock::new()));
    let db = options.clone().open("db").unwrap();
    db.put("key", "value").unwrap();
    db.flush().unwrap();
    let again = db.clone();
    fs.inject(Fault::on(FileOp::Create).panics());
    for db in [db, again] {
        assert_eq!(db.close().unwrap_err().name(), "POISONED");
    }
    assert_eq!(fs.struck(), 1);
    assert_eq!(options.open("db").unwrap().get("key").unwrap().unwrap(), b"value");
}
