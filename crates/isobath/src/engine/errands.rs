//! What any thread may be doing with names in the database's directory when it closes.
//!
//! A close ends the database's own threads. A thread of the program may be making a file then, such
//! as a stream's, or be removing some. It must not do so behind the close: the next opening sweeps
//! the directory, and may give the same number to a file of its own. So each such step is an
//! errand, which a close waits for, and after which none begins. What was still to be removed is
//! left to the next open.
//!
//! A process that was forked from the one which opened the database has copies of all that removes
//! files when it is dropped. So no errand begins there.

use crate::env::Process;
use crate::env::sync::{Condvar, Mutex, Rank};
use std::sync::Arc;

/// The errands of a database.
pub(crate) struct Errands {
    /// The process that opened the database.
    pub(crate) process: Process,
    /// Not held over I/O: a thread of low priority removes files, for which writers must not wait.
    state: Mutex<State>,
    /// The last one has ended that had begun before the close.
    ended: Condvar,
}

struct State {
    is_open: bool,
    running: usize,
}

/// Held while a file is made or removed.
pub(crate) struct Errand<'a>(&'a Errands);

impl Errands {
    pub(crate) fn new() -> Arc<Errands> {
        let state = State { is_open: true, running: 0 };
        let (process, ended) = (Process::current(), Condvar::new());
        Arc::new(Errands { process, state: Mutex::new(Rank::Errands, state), ended })
    }

    /// Begins an errand, which ends when the result is dropped. `None` once the database has
    /// closed, and in a process that did not open it.
    pub(crate) fn begin(&self) -> Option<Errand<'_>> {
        if !self.process.is_this() {
            return None;
        }
        let mut state = self.state.lock();
        state.is_open.then(|| {
            state.running += 1;
            Errand(self)
        })
    }

    /// Has no errand begin from now on, and waits for those that run.
    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        state.is_open = false;
        while state.running > 0 {
            self.ended.wait(&mut state);
        }
    }
}

impl Drop for Errand<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        debug_assert!(state.running > 0, "what ends has begun");
        state.running -= 1;
        if state.running == 0 && !state.is_open {
            self.0.ended.notify_all();
        }
    }
}
