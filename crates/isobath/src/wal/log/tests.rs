//! Access for tests to the inside of a log whose threads have ended.

use super::{Inner, Log};
use crate::error::Result;
use crate::format::Lsn;

impl Log {
    /// Ends the log's threads. The test then does their work.
    pub(in crate::wal) fn take_over(&self) -> &Inner {
        self.end_threads();
        &self.inner
    }
}

impl Inner {
    /// Runs one round of a sync.
    pub(in crate::wal) fn sync_once(&self) -> Result<Lsn> {
        self.sync_round(self.syncer.durable())
    }
}
