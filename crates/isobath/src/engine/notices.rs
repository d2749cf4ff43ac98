//! Callbacks that wait until a commit survives power loss
//! ([`Db::on_durable`](crate::Db::on_durable)), and the thread that syncs the log for them.
//!
//! The thread starts with the first callback and ends with the close. In each turn it takes all
//! callbacks that wait, syncs the log once for all of them, and runs them one after the other;
//! those that come meanwhile share the next turn.
//!
//! Invariants:
//!
//! - A callback that [`Notices::add`] accepts runs exactly once. [`Notices::close`] refuses new
//!   ones and waits until the thread has run all others. A callback that is refused never runs.
//! - A failed sync is reported to the callbacks that wait for it. So is a panic of the file system
//!   or the clock.
//! - Callbacks run without any lock of the engine, so they may call the database. They run on its
//!   behalf (`host/callback.rs`). A callback may close the database or drop its last handle. The
//!   close waits for this thread, so another thread does the closing.
//! - A panic of a callback is caught. Callbacks are also dropped without a lock, because they may
//!   own a handle.

use super::Engine;
use crate::env::sync::{Condvar, Mutex, Rank};
use crate::env::{Priority, ThreadHandle, call_back};
use crate::error::{Error, PoisonCause, Result};
use crate::format::Lsn;
use crate::telemetry;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// A callback that runs once, with the outcome.
pub(crate) type Notice = Box<dyn FnOnce(Result<()>) + Send>;

pub(crate) struct Notices {
    state: Mutex<State>,
    /// Signalled when a callback is added or the close begins.
    work: Condvar,
}

#[derive(Default)]
struct State {
    /// Callbacks, each with the LSN below which everything must be durable.
    waiting: Vec<(Lsn, Notice)>,
    thread: Option<Box<dyn ThreadHandle>>,
    is_closed: bool,
}

impl Notices {
    pub(crate) fn new() -> Notices {
        Notices { state: Mutex::new(Rank::Notices, State::default()), work: Condvar::new() }
    }

    /// Runs `notice` once everything below `lsn` is durable, or once it is clear that it never will
    /// be. This term has handed `lsn` out. If `add` fails, `notice` never runs.
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

    /// Refuses new callbacks, and returns when all accepted ones have run. Must not be called from
    /// the thread that runs them.
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
            debug_assert!(
                synced.is_err() || engine.log.durable() >= up_to,
                "a sync ended below what it was asked for"
            );
            for (lsn, notice) in due {
                let outcome = if engine.log.durable() >= lsn { Ok(()) } else { synced.clone() };
                call_back(engine, || telemetry::call_out(|| notice(outcome)));
            }
        }
    }

    /// Waits for callbacks, and takes all of them, at least one. `None` once no more will come.
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

/// Makes everything below `up_to` durable. If the file system panics, the log is poisoned.
fn sync(engine: &Engine, up_to: Lsn) -> Result<()> {
    catch_unwind(AssertUnwindSafe(|| engine.log.sync_to(up_to))).unwrap_or_else(|_| {
        Err(Error::outcome_unknown(PoisonCause::panicked("while it synced the log", "")))
    })
}

impl std::fmt::Debug for Notices {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Notices")
    }
}
