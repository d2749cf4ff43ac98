//! The running compactions of one family, and what the next plan needs to know of earlier ones.

use super::busy::{Busy, JobId};
use crate::env::sync::{Condvar, Mutex, Rank};
use crate::error::Error;

/// The compactions of one family.
pub(crate) struct Compactions {
    pub(crate) state: Mutex<CompactionState>,
    /// Signalled when a job has ended.
    pub(crate) ended: Condvar,
}

impl Default for Compactions {
    fn default() -> Self {
        let state = Mutex::new(Rank::Compactions, CompactionState::default());
        Compactions { state, ended: Condvar::new() }
    }
}

/// The part of [`Compactions`] that its lock protects.
#[derive(Default)]
pub(crate) struct CompactionState {
    pub(crate) busy: Busy,
    pub(crate) running: usize,
    /// The smoothed size in bytes of the runs that flushes add.
    pub(crate) run_bytes: u64,
    /// Which job failed last, and why. The next flush clears it, so that compactions are tried
    /// again.
    pub(crate) failure: Option<(JobId, Error)>,
}

impl CompactionState {
    /// The failure of a job that began as `first` or later. An older failure says nothing about
    /// now, so it is forgotten.
    pub(crate) fn failure_since(&mut self, first: JobId) -> Option<Error> {
        self.failure.take_if(|(id, _)| *id < first);
        self.failure.as_ref().map(|(_, error)| error.clone())
    }
}
