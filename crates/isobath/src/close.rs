//! Closing a database, step by step:
//!
//! 1. The database refuses new calls, and compactions are cancelled.
//! 2. The memtables are flushed to tables. A power cut during this step costs nothing that the log
//!    does not hold.
//! 3. The close waits for background jobs. Outputs that were not installed are orphans; the next
//!    open removes them.
//! 4. The log is synced and ended.
//! 5. A new manifest begins with a snapshot of the state. It may stay in force for months. Damage
//!    to a snapshot is always reported as corruption, never taken for a torn tail. Otherwise damage
//!    to the last flush's edit could look like a torn tail, and the next open would go back to the
//!    state before that flush. That state lacks commits that only the tables hold, because the log
//!    need not have been synced.
//! 6. One edit records that the close was clean. The next open replays only what a commit that
//!    raced the close left in the log, which is usually nothing.
//! 7. Memory and tables are released, so that handles that outlive the database do not hold them.
//!    The lock on the directory is released.
//! 8. The last callbacks of [`Db::on_durable`](crate::Db::on_durable) have run. They may call the
//!    database and wait for it; everything that they could wait for has ended by then.
//!
//! If the program's own code panics during a close, the close goes on as for a database that has
//! failed: it writes nothing more.
//!
//! A listener may close the database too, for example by dropping the last handle. Closing waits
//! for the thread that calls the listener, or that thread holds a lock that the close needs. So the
//! close runs on another thread, and the listener continues at once. The same holds for a callback
//! of [`Db::on_durable`](crate::Db::on_durable), and for the drop of the last handle inside a
//! callback of another database.

use crate::engine::Engine;
use crate::env::sync::atomic::Ordering;
use crate::env::{Priority, is_called_back};
use crate::error::{Error, PoisonCause, Result};
use crate::events::BackgroundJob;
use crate::version::{Change, Edit};
use crate::write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Closes the database. A second call waits for the first one and returns the same result. A call
/// from a listener waits for nothing.
pub(crate) fn close(engine: &Arc<Engine>) -> Result<()> {
    check_not_forked(engine)?;
    if engine.is_telling() {
        let is_closed = engine.closed.load(Ordering::SeqCst);
        return if is_closed { Err(Error::closed()) } else { close_elsewhere(engine) };
    }
    engine.closed.store(true, Ordering::SeqCst);
    let mut outcome = engine.close_outcome.lock();
    let close = || {
        let closed = close_or_fail(engine);
        engine.notices.close();
        closed
    };
    outcome.get_or_insert_with(close).clone()
}

/// Fails in a process that was forked from the one which opened the database. It has the handles,
/// and neither the threads nor the lock: a flush there would write into the files of the other
/// process, and wait for ever. So the database is left to itself, and never dropped.
fn check_not_forked(engine: &Arc<Engine>) -> Result<()> {
    // A reader has no threads, and nothing to write.
    if engine.errands.process.is_this() || engine.shown.is_some() {
        return Ok(());
    }
    std::mem::forget(engine.clone());
    Err(Error::invalid_argument(
        "the database was opened by the process that this one was forked from, and only that one \
         may use it; open databases after a fork, or let the child execute another program",
    ))
}

/// Closes the database when its last handle is dropped, where no caller gets the result. Inside a
/// callback of any database this waits for nothing, because the callbacks of two databases may own
/// the last handles of each other's database. A database that is open for reading only has nothing
/// to wait for, so it starts no thread.
pub(crate) fn close_unheard(engine: &Arc<Engine>) {
    if !is_called_back() || engine.shown.is_some() {
        let _ = close(engine);
    } else if !engine.closed.load(Ordering::SeqCst)
        && close_elsewhere(engine).is_err_and(|error| !error.is_closed())
        && !engine.is_telling()
    {
        // No thread could be started, so this one closes.
        let _ = close(engine);
    }
}

fn close_or_fail(engine: &Arc<Engine>) -> Result<()> {
    match catch_unwind(AssertUnwindSafe(|| close_once(engine))) {
        Ok(closed) => closed,
        Err(_) => {
            let error = Error::poisoned(PoisonCause::panicked("while it closed the database", ""));
            engine.poison(BackgroundJob::Close, error.clone());
            end_jobs(engine);
            engine.installer.close();
            let _ = engine.log.close();
            give_up(engine);
            Err(error)
        }
    }
}

/// Ends all background threads but those of the log and the installer, which changes the manifest
/// for other threads.
fn end_jobs(engine: &Engine) {
    engine.compactors.close();
    engine.maintenance.close();
    engine.flusher.close();
}

/// Releases memory, tables and the lock on the directory. No thread writes to the directory any
/// more.
fn give_up(engine: &Engine) {
    engine.files.obsolete().shut();
    engine.let_go();
    engine.lock.lock().take();
}

/// Starts a thread that closes the database. If there is none, the database stays as it is: open,
/// unless another thread has closed it meanwhile. Two that start one each close it once.
fn close_elsewhere(engine: &Arc<Engine>) -> Result<()> {
    let closing = engine.clone();
    let body = Box::new(move || drop(close(&closing)));
    let threads = &engine.options.env.threads;
    match threads.spawn("isobath-close".to_owned(), Priority::Normal, body) {
        Ok(_) => {
            engine.closed.store(true, Ordering::SeqCst);
            Err(Error::closed())
        }
        Err(error) => Err(Error::io("start a thread that closes", &engine.dir, error)),
    }
}

fn close_once(engine: &Arc<Engine>) -> Result<()> {
    if engine.shown.is_some() {
        engine.let_go();
        return Ok(());
    }
    // A full disk may stay full. What is given up was not acknowledged.
    engine.log.hurry();
    // A wait for a lock could be a wait for a transaction that never ends.
    engine.locks.close();
    // Compactions stop while the flush runs. The flush waits for none of them.
    engine.compactors.cancel();
    engine.io_limit.lift();
    // A running change of families finishes first: its log record and its edit belong together.
    let _changing = engine.families_change.lock();
    let flushed = engine.log.check_healthy().and_then(|()| write::flush_now(engine));
    end_jobs(engine);
    engine.remove_obsolete_files();
    engine.installer.close();
    let synced = engine.log.close();
    let noted = worse_of(flushed, synced).and_then(|()| {
        let end = engine.log.tail();
        // `replay from` stays where the last flush put it: a commit that raced the close is only in
        // the log.
        engine.note_last_moment();
        let mut edit = Edit::new(vec![Change::DurableLsn { lsn: end }]);
        let mut versions = engine.versions.lock();
        edit.changes.extend(engine.history.changes(versions.state(), 0, end).0);
        edit.push(Change::CleanClose { end });
        // If there is no room for a new manifest, the old one stays in force.
        versions.renew().or_else(|error| if error.is_retryable() { Ok(()) } else { Err(error) })?;
        versions.install(edit, &[]).map(|_| ())
    });
    engine.remove_manifests();
    give_up(engine);
    noted
}

/// Of two failures the one that the caller must not take for harmless. After a flush that found no
/// room all is in the log, unless that could not be synced.
fn worse_of(flushed: Result<()>, synced: Result<()>) -> Result<()> {
    match (flushed, synced) {
        (Err(full), Err(lost)) if full.is_retryable() => Err(lost),
        (flushed, synced) => flushed.and(synced),
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use crate::batch::Batch;
    use crate::db::Db;
    use crate::engine::Engine;
    use crate::env::fixtures::{TestThreads, soon};
    use crate::env::{Env, call_back};
    use crate::error::Error;
    use crate::events::Event;
    use crate::options::Options;
    use crate::vfs::{Fault, FileOp, FileSystem, MemoryFs};
    use crate::wal;
    use std::io;
    use std::path::Path;
    use std::sync::{Arc, OnceLock, mpsc};
    use std::time::Duration;

    #[test]
    fn a_sync_that_failed_is_told_rather_than_a_flush_that_found_no_room() {
        let dir = Path::new("/db");
        let full = || Err(Error::io("write", dir, io::ErrorKind::StorageFull.into()));
        let lost = || Err(Error::io("sync", dir, io::Error::other("planted")));
        let told = |flushed, synced| super::worse_of(flushed, synced).err().map(|e| e.to_string());
        let [of_full, of_lost] =
            [full(), lost()].map(|told: super::Result<()>| Some(told.unwrap_err().to_string()));
        assert_eq!(told(full(), lost()), of_lost);
        assert_eq!(
            (told(full(), Ok(())), told(Ok(()), lost())),
            (of_full.clone(), of_lost.clone())
        );
        assert_eq!((told(lost(), full()), told(Ok(()), Ok(()))), (of_lost, None));
    }

    #[test]
    fn a_fork_neither_closes_the_database_nor_writes_to_it() {
        let fs = MemoryFs::new();
        let options = Options::new().write_buffer(64 << 10);
        let options = options.env(Env { fs: Arc::new(fs.clone()), ..Env::system() });
        let db = options.clone().open("/db").unwrap();
        let engine = db.engine().clone();
        db.put("key", "value").unwrap();
        let tx = db.begin();
        (0..1000).for_each(|n: u32| tx.put(n.to_be_bytes(), [7; 300]).unwrap());
        let spilled = || fs.list(Path::new("/db/spill")).unwrap().len();
        assert!(spilled() > 0);
        engine.errands.process.pretend(true);
        tx.rollback();
        assert!(spilled() > 0);
        let tail = engine.log.tail();
        let told = db.clone().close().unwrap_err();
        assert!(told.to_string().contains("forked"), "{told}");
        drop(db);
        assert!(engine.check_open().is_ok() && engine.log.tail() == tail);
        engine.errands.process.pretend(false);
        super::close(&engine).unwrap();
        assert_eq!(options.open("/db").unwrap().get("key").unwrap().unwrap(), "value");
    }

    /// A writer that was admitted: it copies its record into the log, signals that, and applies it
    /// late.
    fn write_slowly(engine: &Engine, copied: &mpsc::Sender<()>, go_on: &mpsc::Receiver<()>) {
        let mut batch = Batch::new();
        batch.put("racing", "value");
        let record = batch.parts().record;
        let mut record = wal::seal(record);
        let mut reservation = engine.log.reserve(record.len() as u64).unwrap();
        reservation.write(&mut record);
        copied.send(()).unwrap();
        go_on.recv().unwrap();
        reservation.publish();
    }

    #[test]
    fn a_database_that_failed_stays_locked_while_a_thread_writes_to_its_log() {
        let fs = Arc::new(MemoryFs::new());
        let options = Options::new().env(Env { fs, ..Env::system() });
        let db = options.clone().open("/db").unwrap();
        let engine = db.engine().clone();
        let mut batch = Batch::new();
        batch.put("late", "value");
        let record = batch.parts().record;
        let mut record = wal::seal(record);
        let mut reservation = engine.log.reserve(record.len() as u64).unwrap();
        engine.log.poison(&Error::planted());
        std::thread::scope(|scope| {
            let closer = scope.spawn(move || db.close());
            while !engine.log.has_sleepers_for_copies() {
                assert!(!closer.is_finished(), "it waits for the copy");
                std::thread::yield_now();
            }
            assert_eq!(options.open("/db").unwrap_err().name(), "LOCKED");
            reservation.write(&mut record);
            reservation.publish();
            assert!(closer.join().unwrap().is_err());
        });
        options.open("/db").unwrap();
    }

    #[test]
    fn a_commit_that_races_the_close_is_there_at_the_next_open() {
        let fs = Arc::new(MemoryFs::new());
        let options = Options::new().env(Env { fs, ..Env::system() });
        let engine: Arc<OnceLock<Arc<Engine>>> = Arc::default();
        let (may_begin, begin) = mpsc::channel();
        let (copied, is_copied) = mpsc::channel();
        let (may_end, end) = mpsc::channel();
        let (known, first) = (engine.clone(), OnceLock::new());
        let channels = crate::env::sync::Mutex::unranked((may_begin, is_copied));
        // The flush of the close has ended and the log is still open: the close waits for this
        // thread.
        let listener = move |event: &Event| {
            if matches!(event, Event::Flushed { .. })
                && known.get().is_some()
                && first.set(()).is_ok()
            {
                let channels = channels.lock();
                channels.0.send(()).unwrap();
                channels.1.recv().unwrap();
            }
        };
        let db = options.clone().on_event(listener).open("/db").unwrap();
        db.put("before", "value").unwrap();
        engine.set(db.engine().clone()).map_err(drop).unwrap();
        std::thread::scope(|scope| {
            let engine = engine.get().unwrap();
            scope.spawn(move || {
                begin.recv().unwrap();
                write_slowly(engine, &copied, &end);
            });
            super::close(engine).unwrap();
            may_end.send(()).unwrap();
        });
        let db = options.open("/db").unwrap();
        assert_eq!(db.get("before").unwrap().unwrap(), b"value");
        assert_eq!(db.get("racing").unwrap().unwrap(), b"value");
    }

    #[test]
    fn a_damaged_end_of_the_manifest_of_a_closed_database_loses_nothing_unnoticed() {
        let fs = MemoryFs::new();
        let on = |fs: &MemoryFs| {
            let fs = Arc::new(fs.clone());
            Options::new().env(Env { fs, ..Env::system() })
        };
        let db = on(&fs).open("/db").unwrap();
        db.put("key", "value").unwrap();
        db.close().unwrap();
        let fs = fs.crashed(|_| 0);
        let dir = Path::new("/db");
        let entries = fs.list(dir).unwrap();
        let manifest = entries.iter().find(|entry| entry.name.starts_with("MANIFEST")).unwrap();
        for kept in 0..manifest.len {
            let fs = fs.crashed(|_| 0);
            fs.truncate(&dir.join(&manifest.name), kept).unwrap();
            match on(&fs).open("/db") {
                Ok(db) => {
                    assert_eq!(db.get("key").unwrap().as_deref(), Some(&b"value"[..]), "{kept}")
                }
                Err(error) => assert!(error.is_corruption(), "{kept}: {error}"),
            }
        }
    }

    /// The compaction is stopped at its first progress report, with most of its work still to do.
    /// The close is stopped at its flush.
    #[test]
    fn a_close_does_not_let_compactions_run_to_their_end() {
        let fs = MemoryFs::new();
        let env = Env { fs: Arc::new(fs.clone()), ..Env::system() };
        let options = Options::new().write_buffer(8 << 20).env(env);
        let db = options.clone().open("/db").unwrap();
        let engine = db.engine().clone();
        // It compacts what is left alone for some seconds.
        engine.maintenance.close();
        for run in 0..4u32 {
            for at in 0..500u32 {
                db.put((4 * at + run).to_be_bytes(), [7; 1000]).unwrap();
            }
            db.flush().unwrap();
        }
        let read = fs.tried(FileOp::Read);
        let (flushing, pacing) = (engine.families_pending.lock(), engine.backlog.lock());
        std::thread::scope(|scope| {
            let compacting = scope.spawn(|| db.compact());
            assert!(soon(|| fs.tried(FileOp::Read) > read));
            scope.spawn(|| db.put("last", "value").unwrap()).join().unwrap();
            let closing = db.clone();
            let closer = scope.spawn(move || closing.close());
            assert!(soon(|| engine.compactors.submit(Box::new(|_| ())).is_err()));
            drop(pacing);
            assert_eq!(compacting.join().unwrap().unwrap_err().name(), "CLOSED");
            assert!(!closer.is_finished());
            drop(flushing);
            closer.join().unwrap().unwrap();
        });
        assert_eq!(engine.gauges.compactions.get(), 0);
        assert_eq!(options.open("/db").unwrap().range(..).count(), 2001);
    }

    #[test]
    fn a_second_close_returns_when_the_first_has_given_the_directory_up() {
        let fs = Arc::new(MemoryFs::new());
        let options = Options::new().env(Env { fs, ..Env::system() });
        let (closing, is_closing) = mpsc::channel();
        let listener = move |event: &Event| {
            if matches!(event, Event::Flushed { .. }) {
                closing.send(()).unwrap();
                std::thread::sleep(Duration::from_millis(50));
            }
        };
        let db = options.clone().on_event(listener).open("/db").unwrap();
        db.put("key", "value").unwrap();
        let second = db.clone();
        let first = std::thread::spawn(move || db.close());
        is_closing.recv().unwrap();
        second.close().unwrap();
        options.open("/db").unwrap();
        first.join().unwrap().unwrap();
    }

    #[test]
    fn the_last_handle_for_reading_closes_where_it_is_dropped() {
        let fs = Arc::new(MemoryFs::new());
        let options = Options::new().env(Env { fs, ..Env::system() });
        options.open("/db").unwrap().close().unwrap();
        let reader = options.clone().read_only(true).open("/db").unwrap();
        let engine = reader.engine().clone();
        call_back(&options, || drop(reader));
        assert!(engine.close_outcome.lock().is_some());
    }

    #[test]
    fn a_listener_that_closes_the_database_waits_for_nothing() {
        for is_first in [false, true] {
            let fs = Arc::new(MemoryFs::new());
            let options = Options::new().env(Env { fs, ..Env::system() });
            let held: Arc<OnceLock<Db>> = Arc::default();
            let (answered, answer) = mpsc::channel();
            let (known, answered) = (held.clone(), crate::env::sync::Mutex::unranked(answered));
            // The flusher calls this, and every close waits for the flusher.
            let listener = move |event: &Event| {
                if let Some(db) = known.get().filter(|_| matches!(event, Event::Flushed { .. })) {
                    answered.lock().send(db.clone().close()).unwrap();
                }
            };
            let db = options.clone().on_event(listener).open("/db").unwrap();
            db.put("key", "value").unwrap();
            held.set(db.clone()).unwrap();
            let begun = std::thread::spawn(move || match is_first {
                true => drop(db.flush()),
                false => db.close().unwrap(),
            });
            let answer = answer.recv_timeout(Duration::from_secs(120)).unwrap();
            assert!(answer.as_ref().is_err_and(Error::is_closed), "{answer:?}");
            begun.join().unwrap();
            held.get().unwrap().clone().close().unwrap();
            let db = options.open("/db").unwrap();
            assert_eq!(db.get("key").unwrap().unwrap(), b"value");
        }
    }

    /// A listener closes the database, and no thread can be started; meanwhile another thread has
    /// closed it.
    #[test]
    fn a_database_that_is_closed_stays_so_when_a_listener_gets_no_thread_to_close_it() {
        let fs = Arc::new(MemoryFs::new());
        let held: Arc<OnceLock<Db>> = Arc::default();
        let known = held.clone();
        let before_spawn = move |name: &str| {
            if name != "isobath-close" {
                return Ok(());
            }
            let db = known.get().unwrap().clone();
            std::thread::spawn(move || db.close()).join().unwrap().unwrap();
            Err(io::ErrorKind::WouldBlock.into())
        };
        let threads =
            TestThreads { before_spawn: Box::new(before_spawn), ..TestThreads::default() };
        let env = Env { fs, threads: Arc::new(threads), ..Env::system() };
        let options = Options::new().env(env);
        let db = options.clone().open("/db").unwrap();
        db.put("key", "value").unwrap();
        held.set(db.clone()).map_err(drop).unwrap();
        let engine = db.engine().clone();
        call_back(&*engine, || assert_eq!(db.close().unwrap_err().name(), "IO"));
        assert!(engine.check_open().unwrap_err().is_closed());
        assert!(held.get().unwrap().get("key").unwrap_err().is_closed());
        assert_eq!(options.open("/db").unwrap().get("key").unwrap().unwrap(), b"value");
    }

    /// The disk has no room for a record whose place in the log is taken already (on a
    /// copy-on-write file system), and gets none.
    #[test]
    fn a_close_does_not_wait_for_room_on_a_full_disk() {
        for what in ["a write", "a change of families", "the marker of the close"] {
            let fs = MemoryFs::new();
            let env = Env { fs: Arc::new(fs.clone()), ..Env::system() };
            let options = Options::new().env(env);
            let db = options.clone().open("/db").unwrap();
            db.put("before", "value").unwrap();
            fs.inject(Fault::on(FileOp::CopyIn).kind(io::ErrorKind::StorageFull).forever());
            let struck = fs.struck();
            let writing = (what != "the marker of the close").then(|| {
                let db = db.clone();
                let is_put = what == "a write";
                std::thread::spawn(move || match is_put {
                    true => db.put("late", "value").map(drop),
                    false => db.family("late").map(drop),
                })
            });
            while writing.is_some() && fs.struck() == struck {
                std::thread::yield_now();
            }
            let (closed, is_closed) = mpsc::channel();
            std::thread::spawn(move || closed.send(db.close()).unwrap());
            let outcome = is_closed.recv_timeout(Duration::from_secs(120));
            assert!(outcome.expect(what).is_err(), "{what}");
            if let Some(writing) = writing {
                assert_eq!(writing.join().unwrap().unwrap_err().name(), "OUTCOME_UNKNOWN");
            }
            fs.clear_faults();
            let db = options.open("/db").unwrap();
            assert_eq!(db.get("before").unwrap().unwrap(), b"value", "{what}");
        }
    }
}
