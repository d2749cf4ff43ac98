//! The compactions of one family that are under way, and what the next plan has to know of the last
//! ones.

use super::busy::{Busy, JobId};
use crate::env::sync::{Condvar, Mutex, Rank};
use crate::error::Error;

/// The compactions of one family.
pub(crate) struct Compactions {
    pub(crate) state: Mutex<CompactionState>,
    /// A job ended.
    pub(crate) ended: Condvar,
}

impl Default for Compactions {
    fn default() -> Self {
        let state = Mutex::new(Rank::Compactions, CompactionState::default());
        Compactions { state, ended: Condvar::new() }
    }
}

/// What [`Compactions`] protects.
#[derive(Default)]
pub(crate) struct CompactionState {
    pub(crate) busy: Busy,
    pub(crate) running: usize,
    /// Smoothed bytes of the runs that flushes add.
    pub(crate) run_bytes: u64,
    /// Which job failed last, and why; cleared by the next flush, which tries again.
    pub(crate) failure: Option<(JobId, Error)>,
}

impl CompactionState {
    /// Why a job failed that began as `first` or later. That one failed which began before says
    /// nothing of what may be done now: it is forgotten.
    pub(crate) fn failure_since(&mut self, first: JobId) -> Option<Error> {
        self.failure.take_if(|(id, _)| *id < first);
        self.failure.as_ref().map(|(_, error)| error.clone())
    }
}
