//! Periodic work, once a second, whether or not anything is written:
//!
//! - It tells the time in the log while values end.
//! - It notes at which point the database is, if a history is kept.
//! - It prepares memory for writers, so that their first writes cost no page faults.
//! - It removes table files and log segments that nothing needs any more.
//! - It raises the log's ceiling, and tries flushes again that failed on a full disk.
//! - It ends transactions that have taken too long.
//! - It closes the gate of transactions when none has come for a while.
//! - It hands the database's figures to the `metrics` recorder.
//! - When the database is idle, it starts optional compactions and then flushes what is in memory.

use crate::background::{PanicReport, Ticker};
use crate::engine::Engine;
use crate::env::sync::atomic::{AtomicBool, Ordering};
use crate::env::{Env, Priority};
use crate::error::Result;
use crate::flush;
use crate::format::Lsn;
use crate::metrics::Metrics;
use crate::{compact, telemetry, write};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

/// The pause between two rounds.
const ROUND: Duration = Duration::from_secs(1);

/// After this many rounds without a write, and then each time as many more, compactions start that
/// pay off only later. Compactions that failed for lack of space or file descriptors are tried
/// again at such moments too, at ever longer intervals.
const QUIET_ROUNDS: u32 = 5;

/// After this many rounds without a write, and then each time as many more, the memtables are
/// flushed.
const IDLE_ROUNDS: u32 = 60;

/// Once in this many rounds, the log gives up spare segments that it did not need since the last
/// time, and compactions look for garbage in blob files.
const SPARE_ROUNDS: u32 = 60;

/// Raises the log's ceiling before a writer reaches it, on the installer's thread.
fn raise_ceiling(engine: &Engine) {
    if engine.log.wants_ceiling() {
        let log = engine.log.clone();
        // An error means that the database is closing, or that the job panicked, which is reported
        // elsewhere.
        let _ = engine.installer.run(move || log.raise_ceiling());
    }
}

/// Seals the memtables of an idle database, which starts their flush.
fn seal_idle(engine: &Arc<Engine>) {
    if write::is_anything_written(engine) {
        seal(engine);
    }
}

/// Seals the memtables, if there is room for more that are sealed.
fn seal(engine: &Arc<Engine>) {
    let weak = Arc::downgrade(engine);
    // Commits wait until the marker is published. So a thread of normal priority writes it. On a
    // full disk that may wait for room (copy-on-write), and the installer must not: without it no
    // compaction can give room back.
    let _ = engine.flusher.submit(Box::new(move |_| {
        let Some(engine) = weak.upgrade() else { return };
        // A failure poisons the log; the next writer gets the error.
        let _ = write::seal_if_room(&engine);
    }));
}

/// Tells the time in the log if values may have ended, and plans compactions that drop them. For
/// the reasons above another thread does so. One such job at a time has this flag.
fn tell_time(engine: &Arc<Engine>, is_telling: &Arc<AtomicBool>) {
    let now_ms = engine.options.env.clock.unix_ms();
    if !engine.ticks.is_due(now_ms) || is_telling.swap(true, Ordering::AcqRel) {
        return;
    }
    let (weak, is_telling) = (Arc::downgrade(engine), is_telling.clone());
    let _ = engine.flusher.submit(Box::new(move |_| {
        let Some(engine) = weak.upgrade() else { return };
        if engine.tick_for_others() {
            engine.families.all().iter().for_each(|family| compact::schedule(&engine, family));
        }
        is_telling.store(false, Ordering::Release);
    }));
}

/// Starts the maintenance of a database that is being opened. The caller sets `engine` once it
/// exists.
pub(crate) fn start(
    env: &Env,
    engine: Arc<OnceLock<Weak<Engine>>>,
    report: PanicReport,
) -> Result<Ticker> {
    let (mut tail, mut quiet_rounds, mut rounds) = (Lsn::MAX, 0, 0u32);
    let is_telling = Arc::new(AtomicBool::new(false));
    let round = Box::new(move || {
        let Some(engine) = engine.get().and_then(Weak::upgrade) else { return };
        tell_time(&engine, &is_telling);
        engine.note_moment();
        engine.epochs.pool().prefault_spares();
        engine.remove_obsolete_files();
        rounds = rounds.wrapping_add(1);
        if rounds % SPARE_ROUNDS == 0 {
            engine.log.thin_out_spares();
            compact::schedule_collections(&engine);
        }
        engine.log.discard_files();
        raise_ceiling(&engine);
        engine.running.reap(&engine);
        engine.conflicts.gate.close_if_idle();
        flush::retry(&engine);
        let figures = Metrics::collect(&engine);
        telemetry::call_out(|| telemetry::record(&engine.dir.to_string_lossy(), &figures));
        // Who only reads may tick, too.
        let here = engine.log.tail() - engine.ticks.written_bytes();
        quiet_rounds = if here == tail { quiet_rounds + 1 } else { 0 };
        tail = here;
        if quiet_rounds % QUIET_ROUNDS == QUIET_ROUNDS - 1 {
            if (quiet_rounds / QUIET_ROUNDS + 1).is_power_of_two() {
                compact::retry(&engine);
            }
            compact::schedule_idle(&engine);
        }
        if quiet_rounds % IDLE_ROUNDS == IDLE_ROUNDS - 1 {
            seal_idle(&engine);
        } else if write::is_log_long(&engine) {
            seal(&engine);
        }
    });
    Ticker::new(&*env.threads, "isobath-maint", Priority::Low, ROUND, round, report)
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use crate::compact;
    use crate::env::{Env, Priority};
    use crate::key_range::bounds_of;
    use crate::options::Options;
    use crate::sizes::Sizes;
    use crate::vfs::{Fault, FileOp, FileSystem, MemoryFs};
    use crate::write;
    use std::io;
    use std::path::Path;
    use std::sync::{Arc, mpsc};
    use std::time::Duration;

    /// If a thread of low priority sealed, it would panic, which poisons the database.
    #[test]
    fn what_an_idle_database_holds_in_memory_is_flushed_by_threads_that_writers_may_wait_for() {
        let db = Options::in_memory().open("/db").unwrap();
        let engine = db.engine();
        db.put("key", "value").unwrap();
        while engine.gauges.flushes.get() == 0 {
            engine.check_writable().unwrap();
            engine.maintenance.kick();
            engine.options.env.threads.sleep(Duration::from_millis(1));
        }
        assert!(!write::is_anything_written(engine));
        assert_eq!(db.get("key").unwrap().unwrap(), b"value");
    }

    #[test]
    fn a_compaction_makes_room_while_an_idle_database_waits_for_some_to_write_to_its_log() {
        let fs = MemoryFs::new();
        let env = Env { fs: Arc::new(fs.clone()), ..Env::system() };
        let db = Options::new().env(env).open("/db").unwrap();
        for value in ["old", "new"] {
            db.put("key", value).unwrap();
            db.flush().unwrap();
        }
        db.put("late", "value").unwrap();
        fs.inject(Fault::on(FileOp::CopyIn).kind(io::ErrorKind::StorageFull).forever());
        let engine = db.engine();
        let spawn = |body: Box<dyn FnOnce() + Send>| {
            let threads = &engine.options.env.threads;
            threads.spawn("test".to_owned(), Priority::Normal, body).unwrap()
        };
        let sealing = engine.clone();
        spawn(Box::new(move || super::seal_idle(&sealing)));
        while fs.struck() == 0 {
            engine.options.env.threads.sleep(Duration::from_millis(1));
        }
        let (compacting, (compacted, is_compacted)) = (engine.clone(), mpsc::channel());
        spawn(Box::new(move || {
            let (family, everything) = (compacting.default_family.clone(), bounds_of(..));
            compacted.send(compact::compact_range(&compacting, &family, &everything)).unwrap();
        }));
        is_compacted.recv_timeout(Duration::from_secs(120)).unwrap().unwrap();
        while fs.list(Path::new("/db/table")).unwrap().len() > 1 {
            engine.options.env.threads.sleep(Duration::from_millis(1));
        }
        fs.clear_faults();
        db.flush().unwrap();
    }

    #[test]
    fn an_idle_database_gives_its_spare_log_segments_back() {
        let fs = MemoryFs::new();
        let env = Env { fs: Arc::new(fs.clone()), ..Env::system() };
        let db = Options::new().write_buffer(64 << 10).env(env).open("/db").unwrap();
        let spares = || {
            let names = fs.list(Path::new("/db/wal")).unwrap().into_iter().map(|entry| entry.name);
            names.filter(|name| name.ends_with(".spare")).count()
        };
        while spares() < 2 {
            db.put("key", [7; 1000]).unwrap();
        }
        let engine = db.engine();
        for _ in 0..120_000 {
            if spares() == 0 {
                return;
            }
            engine.maintenance.kick();
            engine.options.env.threads.sleep(Duration::from_millis(1));
        }
        panic!("{} spares stay", spares());
    }

    #[test]
    fn the_ceiling_of_the_log_is_raised_before_a_writer_comes_to_it() {
        let mut options = Options::in_memory();
        options.sizes = Sizes { ceiling_step: 1 << 20, ..options.sizes };
        let db = options.open("/db").unwrap();
        let engine = db.engine();
        let ceiling = || engine.versions.lock().state().ceiling();
        let at_first = engine.log.tail() + (1 << 20);
        for _ in 0..120_000 {
            if ceiling() > at_first {
                return;
            }
            engine.maintenance.kick();
            engine.options.env.threads.sleep(Duration::from_millis(1));
        }
        panic!("the ceiling was not raised");
    }

    /// If a thread of low priority did, it would panic in the manifest, which poisons the database.
    #[test]
    fn no_thread_of_low_priority_writes_to_the_manifest() {
        let fs = MemoryFs::new();
        let env = Env { fs: Arc::new(fs.clone()), ..Env::system() };
        let mut options = Options::new().write_buffer(64 << 10).env(env);
        options.sizes = Sizes { ceiling_step: 1 << 20, ..options.sizes };
        let db = options.open("/db").unwrap();
        let engine = db.engine();
        let ceiling = || engine.versions.lock().state().ceiling();
        let (opened_at, mut flushes) = (ceiling(), 0);
        // These must happen: a compaction, the removal of its inputs, and a raise of the log's
        // ceiling.
        while engine.gauges.compactions.get() == 0 || ceiling() == opened_at {
            db.put("key", [flushes; 100]).unwrap();
            db.flush().unwrap();
            flushes = flushes.wrapping_add(1);
            engine.options.env.threads.sleep(Duration::from_millis(10));
        }
        db.compact().unwrap();
        while fs.list(Path::new("/db/table")).unwrap().len() > 1 {
            db.put("key", "value").unwrap();
            engine.options.env.threads.sleep(Duration::from_millis(10));
        }
    }
}
