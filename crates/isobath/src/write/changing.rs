//! Runs one change of families at a time, and reports it to listeners.
//!
//! A listener may call the database, so it is called only after the change has released its locks.
//! It receives each event in order, before the call that made the change returns. A change that
//! waits for room on a full disk may wait long. Another thread reports that wait at once; the
//! change joins that thread after it has released its locks.

use crate::engine::Engine;
use crate::env::sync::MutexGuard;
use crate::env::{Priority, ThreadHandle};
use crate::error::{Error, PoisonCause, Result};
use crate::events::{BackgroundJob, Event};
use std::sync::Arc;

/// The lock of a change, and the events to report after it.
pub(super) struct Changing<'engine> {
    pub(super) engine: &'engine Arc<Engine>,
    lock: Option<MutexGuard<'engine, ()>>,
    /// One thread for each wait: each thousand families are installed by their own edit, which may
    /// wait.
    tellers: Vec<Box<dyn ThreadHandle>>,
    untold: Vec<Event>,
}

impl<'engine> Changing<'engine> {
    /// Begins a change. Until it ends, no other change runs and no close begins. A close may have
    /// run while this call waited for the lock. Nothing may be written after it, so the state is
    /// checked again: the log would refuse a write, but the manifest may belong to another process
    /// by then.
    pub(super) fn begin(engine: &'engine Arc<Engine>) -> Result<Self> {
        engine.check_writable()?;
        let changing = Changing::lock(engine);
        engine.check_writable()?;
        Ok(changing)
    }

    /// Begins a change without checking the state of the database.
    pub(super) fn lock(engine: &'engine Arc<Engine>) -> Self {
        let lock = Some(engine.families_change.lock());
        Changing { engine, lock, tellers: Vec::new(), untold: Vec::new() }
    }

    /// Reports that `error` keeps the change from installing its edit, so that it waits. Other
    /// threads may need the locks that this thread holds, so a thread without locks calls the
    /// listener.
    pub(super) fn tell_of_wait(&mut self, error: Error) {
        let event = Event::BackgroundError { job: BackgroundJob::FamilyChange, error };
        let (engine, told) = (self.engine.clone(), event.clone());
        let body = Box::new(move || engine.tell(told));
        let threads = &self.engine.options.env.threads;
        match threads.spawn("isobath-tell".to_owned(), Priority::Normal, body) {
            Ok(teller) => self.tellers.push(teller),
            Err(_) => self.untold.push(event),
        }
    }

    /// Ends all writing: it is unknown whether the edit is on disk.
    pub(super) fn give_up(&mut self, error: Error) -> Error {
        self.untold.extend(self.engine.poison_untold(BackgroundJob::FamilyChange, error.clone()));
        Error::outcome_unknown(PoisonCause::of(&error))
    }
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        self.lock = None;
        self.tellers.drain(..).for_each(|teller| teller.join());
        self.untold.drain(..).for_each(|event| self.engine.tell(event));
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::db::Db;
    use crate::env::sync::Mutex;
    use crate::env::{Env, SystemThreads, Threads};
    use crate::options::Options;
    use crate::vfs::{Fault, FileOp, MemoryFs};
    use std::io;
    use std::sync::OnceLock;
    use std::time::Duration;

    /// For each error the listener received: whether the change goes on, and the outcome of the
    /// listener's own call.
    type Told = Arc<Mutex<Vec<(bool, &'static str)>>>;

    /// A database whose listener, at each error, makes a call that needs the locks of a change.
    fn calling_back(fs: &MemoryFs) -> (Db, Told) {
        let (told, db) = (Told::new(Mutex::unranked(Vec::new())), Arc::new(OnceLock::<Db>::new()));
        let listener = {
            let (told, db) = (told.clone(), db.clone());
            move |event: &Event| {
                let Event::BackgroundError { error, .. } = event else { return };
                let name = format!("family {}", told.lock().len());
                let called = db.get().unwrap().family(name.as_str()).and_then(|family| {
                    family.put("key", "value")?;
                    db.get().unwrap().flush()
                });
                let answer = called.err().map_or("OK", |error| error.name());
                told.lock().push((error.is_retryable(), answer));
            }
        };
        let env = Env { fs: Arc::new(fs.clone()), ..Env::system() };
        let opened = Options::new().env(env).on_event(listener).open("/db").unwrap();
        db.set(opened.clone()).ok().unwrap();
        (opened, told)
    }

    fn no_room() -> Fault {
        Fault::on(FileOp::Write).kind(io::ErrorKind::StorageFull)
    }

    /// The other change may wait for room for as long as the disk is full.
    #[test]
    fn a_change_that_the_log_refuses_does_not_wait_for_one_under_way() {
        let db = Options::in_memory().open("/db").unwrap();
        let under_way = Changing::begin(db.engine()).unwrap();
        db.engine().log.poison(&Error::planted());
        assert_eq!(Changing::begin(db.engine()).err().unwrap().name(), "POISONED");
        drop(under_way);
    }

    #[test]
    fn a_listener_that_is_told_of_a_change_may_make_another() {
        let fs = MemoryFs::new();
        let (db, told) = calling_back(&fs);
        fs.inject(no_room());
        db.family("asked for").unwrap().put("key", "value").unwrap();
        assert_eq!(*told.lock(), [(true, "OK")]);
        assert_eq!(db.list_families(), ["default", "asked for", "family 0"]);
    }

    #[test]
    fn a_listener_has_been_told_of_every_wait_when_the_call_returns() {
        let (fs, told) = (MemoryFs::new(), Arc::new(Mutex::unranked(0)));
        let (counted, first) = (told.clone(), OnceLock::new());
        let listener = move |event: &Event| {
            let Event::BackgroundError { .. } = event else { return };
            if first.set(()).is_ok() {
                SystemThreads.sleep(Duration::from_millis(500));
            }
            *counted.lock() += 1;
        };
        let env = Env { fs: Arc::new(fs.clone()), ..Env::system() };
        let db = Options::new().env(env).on_event(listener).open("/db").unwrap();
        // Neither the edit of the first thousand finds room, nor that of the last family.
        fs.inject(no_room());
        fs.inject(no_room().nth(7));
        db.open_families((0..1001).map(|nth| nth.to_string())).unwrap();
        assert_eq!(*told.lock(), 2);
    }

    #[test]
    fn a_listener_is_told_of_a_change_in_order_before_the_call_returns() {
        let fs = MemoryFs::new();
        let (db, told) = calling_back(&fs);
        fs.inject(no_room());
        fs.inject(Fault::on(FileOp::Write).forever());
        assert_eq!(db.family("asked for").unwrap_err().name(), "OUTCOME_UNKNOWN");
        assert_eq!(*told.lock(), [(true, "POISONED"), (false, "POISONED")]);
    }
}
