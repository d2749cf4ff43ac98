//! Callbacks that wait until a commit survives power loss
//! ([`Db::on_durable`](crate::Db::on_durable)), and the thread that syncs the log for them.
//!
//! The thread starts with the first callback and ends with the close. In each turn it takes all
//! callbacks that wait, syncs the log once for all of them, and runs them one after the other;
//! those that come meanwhile share the next turn.
//!
//! What always holds:
//!
//! - A callback that [`Notices::add`] accepts runs exactly once: [`Notices::close`] refuses new
//!   ones and waits until the thread has run the last of the others. A callback that is refused
//!   never runs.
//! - A failed sync is told to the callbacks that it concerns, and so is a panic of the file system
//!   or the clock.
//! - Callbacks run without any lock of the engine, so they may call the database. They run on its
//!   behalf (`host/callback.rs`), so a close that one of them asks for, or the drop of the last
//!   handle, is left to another thread: it waits for this one.
//! - A panic of a callback ends there. Callbacks are dropped without a lock, too: they may own a
//!   handle.

use super::Engine;
use crate::env::sync::{Condvar, Mutex, Rank};
use crate::env::{Priority, ThreadHandle, call_back};
use crate::error::{Error, PoisonCause, Result};
use crate::format::Lsn;
use crate::telemetry;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// What is run once, with the outcome.
pub(crate) type Notice = Box<dyn FnOnce(Result<()>) + Send>;

pub(crate) struct Notices {
    state: Mutex<State>,
    /// A callback came, or the close began.
    work: Condvar,
}

#[derive(Default)]
struct State {
    /// Callbacks with the LSN below which everything is to be durable.
    waiting: Vec<(Lsn, Notice)>,
    thread: Option<Box<dyn ThreadHandle>>,
    is_closed: bool,
}

impl Notices {
    pub(crate) fn new() -> Notices {
        Notices { state: Mutex::new(Rank::Notices, State::default()), work: Condvar::new() }
    }

    /// Has `notice` run once everything below `lsn`, which this term has handed out, is durable, or
    /// never will be. After an error it does not run.
    pub(crate) fn add(&self, engine: &Arc<Engine>, lsn: Lsn, notice: Notice) -> Result<()> {
        let mut state = self.state.lock();
        if state.is_closed {
            return Err(Error::closed());
        }
        if state.thread.is_none() {
            let own = Arc::clone(engine);
            let body = Box::new(move || own.notices.run(&own));
            let threads = &engine.options.env.threads;
            let thread = threads
                .spawn("isobath-durable".to_owned(), Priority::Normal, body)
                .map_err(|error| Error::io("start a thread that syncs", &engine.dir, error))?;
            state.thread = Some(thread);
        }
        state.waiting.push((lsn, notice));
        drop(state);
        self.work.notify_one();
        Ok(())
    }

    /// Refuses callbacks from now on, and returns when all others have run. From any thread but the
    /// one that runs them.
    pub(crate) fn close(&self) {
        let thread = {
            let mut state = self.state.lock();
            state.is_closed = true;
            state.thread.take()
        };
        self.work.notify_one();
        if let Some(thread) = thread {
            thread.join();
        }
    }

    fn run(&self, engine: &Engine) {
        while let Some(due) = self.wait() {
            let up_to = due.iter().map(|(lsn, _)| *lsn).max().unwrap_or_default();
            let synced = sync(engine, up_to);
            for (lsn, notice) in due {
                let outcome = if engine.log.durable() >= lsn { Ok(()) } else { synced.clone() };
                call_back(engine, || telemetry::call_out(|| notice(outcome)));
            }
        }
    }

    /// All callbacks that wait, at least one; `None` once there will be no more.
    fn wait(&self) -> Option<Vec<(Lsn, Notice)>> {
        let mut state = self.state.lock();
        loop {
            if !state.waiting.is_empty() {
                return Some(std::mem::take(&mut state.waiting));
            }
            if state.is_closed {
                return None;
            }
            self.work.wait(&mut state);
        }
    }
}

/// Makes everything below `up_to` durable. A panic of the file system has poisoned the log.
fn sync(engine: &Engine, up_to: Lsn) -> Result<()> {
    catch_unwind(AssertUnwindSafe(|| engine.log.harden(up_to))).unwrap_or_else(|_| {
        Err(Error::outcome_unknown(PoisonCause::panicked("while it synced the log", "")))
    })
}

impl std::fmt::Debug for Notices {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Notices")
    }
}
