//! Handles a round that does not end: prints what each transaction waits for, and ends the process.

use super::super::runtime::real::PATIENCE_NS;
use isobath::Db;
use std::process;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// A round that takes this long hangs: every wait for a lock has timed out by then, on a busy
/// machine too.
const HANGS_AFTER: Duration = Duration::from_nanos(15 * PATIENCE_NS);

/// Watches one round.
pub(super) struct Watchdog {
    end: Sender<()>,
    thread: JoinHandle<()>,
}

impl Watchdog {
    pub(super) fn begin(db: &Db, seed: u64) -> Watchdog {
        let (end, ended) = mpsc::channel();
        let db = db.clone();
        let watch = move || {
            if ended.recv_timeout(HANGS_AFTER) == Err(RecvTimeoutError::Timeout) {
                eprintln!("FAILED: round {seed} has not ended after {HANGS_AFTER:?}");
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
