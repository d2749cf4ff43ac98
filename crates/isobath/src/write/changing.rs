//! One change of families at a time, and what listeners are told of it.
//!
//! A listener may call the database, so it is told once the locks of the change are gone: of each
//! event in order, before the call that made the change returns. A change that waits for room on a
//! full disk may wait long; of that another thread tells at once, and the change waits for that
//! thread after it has given its locks back.

use crate::engine::Engine;
use crate::env::sync::MutexGuard;
use crate::env::{Priority, ThreadHandle};
use crate::error::{Error, PoisonCause, Result};
use crate::events::Event;
use std::sync::Arc;

/// What events call a change.
const JOB: &str = "change of a column family";

/// The lock of a change, and what is to be told after it.
pub(super) struct Changing<'engine> {
    pub(super) engine: &'engine Arc<Engine>,
    lock: Option<MutexGuard<'engine, ()>>,
    /// One for each wait: a thousand families at a time are installed by an edit of their own.
    tellers: Vec<Box<dyn ThreadHandle>>,
    untold: Vec<Event>,
}

impl<'engine> Changing<'engine> {
    /// Begins a change: until its end no other runs and no close begins. A close that ran while
    /// this waited is over, and nothing may be written after it; the log would refuse to, the
    /// manifest is another's by then.
    pub(super) fn begin(engine: &'engine Arc<Engine>) -> Result<Self> {
        engine.check_writable()?;
        let changing = Changing::lock(engine);
        engine.check_writable()?;
        Ok(changing)
    }

    /// Begins a change, of whatever state the database is in.
    pub(super) fn lock(engine: &'engine Arc<Engine>) -> Self {
        let lock = Some(engine.families_change.lock());
        Changing { engine, lock, tellers: Vec::new(), untold: Vec::new() }
    }

    /// Tells that the change waits since `error` kept it from its edit. Other threads may need the
    /// locks that this one holds, so the listener is called on a thread that holds none.
    pub(super) fn tell_of_wait(&mut self, error: Error) {
        let event = Event::BackgroundError { job: JOB, error };
        let (engine, told) = (self.engine.clone(), event.clone());
        let body = Box::new(move || engine.tell(told));
        let threads = &self.engine.options.env.threads;
        match threads.spawn("isobath-tell".to_owned(), Priority::Normal, body) {
            Ok(teller) => self.tellers.push(teller),
            Err(_) => self.untold.push(event),
        }
    }

    /// Ends the writing: nobody knows whether an edit holds.
    pub(super) fn give_up(&mut self, error: Error) -> Error {
        self.untold.extend(self.engine.poison_untold(JOB, error.clone()));
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
    use crate::db::Db;
    use crate::env::sync::Mutex;
    use crate::env::{Env, SystemThreads, Threads};
    use crate::events::Event;
    use crate::options::Options;
    use crate::vfs::{Fault, FileOp, MemoryFs};
    use std::io;
    use std::sync::{Arc, OnceLock};
    use std::time::Duration;

    /// Of each error that a listener was told: whether the change goes on, and what the listener's
    /// own call came to.
    type Told = Arc<Mutex<Vec<(bool, &'static str)>>>;

    /// A database whose listener calls it back, with a call that needs the locks of a change, at
    /// each error.
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
        // The edit of the first thousand finds no room, nor does that of the last family.
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
