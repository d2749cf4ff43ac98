//! Handles a round that does not end: prints what each transaction waits for, reports it, and ends
//! the process.

use super::super::runtime::real::PATIENCE_NS;
use isobath::Db;
use std::process;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// A round that takes this long hangs: every wait for a lock has timed out by then, on a busy
/// machine too.
pub(crate) const HANGS_AFTER: Duration = Duration::from_nanos(15 * PATIENCE_NS);

/// What to do about a round that hangs, and after how long.
pub(crate) struct Hanging {
    pub(crate) after: Duration,
    /// Called before the process ends.
    pub(crate) report: Box<dyn FnOnce() + Send>,
}

/// Watches one round.
pub(super) struct Watchdog {
    end: Sender<()>,
    thread: JoinHandle<()>,
}

impl Watchdog {
    pub(super) fn begin(db: &Db, seed: u64, hanging: Hanging) -> Watchdog {
        let (end, ended) = mpsc::channel();
        let (db, Hanging { after, report }) = (db.clone(), hanging);
        let watch = move || {
            if ended.recv_timeout(after) == Err(RecvTimeoutError::Timeout) {
                eprintln!("FAILED: round {seed} has not ended after {after:?}");
                // First of all: what is printed below asks a database in which something hangs.
                report();
                eprintln!("{:#?}\nin doubt: {:?}", db.transactions(), db.in_doubt());
                process::exit(3);
            }
        };
        Watchdog { end, thread: thread::spawn(watch) }
    }

    /// The round has ended.
    pub(super) fn end(self) {
        drop(self.end);
        // If it panicked it has said so.
        let _ = self.thread.join();
    }
}
