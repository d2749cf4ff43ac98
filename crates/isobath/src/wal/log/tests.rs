//! What tests reach inside a log whose threads have ended.

use super::{Inner, Log};
use crate::error::Result;
use crate::format::Lsn;

impl Log {
    /// Ends the log's threads. What they did, the test does.
    pub(in crate::wal) fn take_over(&self) -> &Inner {
        self.end_threads();
        &self.inner
    }
}

impl Inner {
    /// One round of a sync, whoever asked for it.
    pub(in crate::wal) fn sync_once(&self) -> Result<Lsn> {
        self.sync_round()
    }
}
