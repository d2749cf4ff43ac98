//! Bugs that a harness plants in the log (`host/planted.rs`). Without the feature `simulation` none
//! of this code is compiled in.

use super::log::Inner;
use super::segment::Segment;
use crate::env::{Plant, planted};
use crate::error::Result;
use crate::format::Lsn;

impl Inner {
    /// What a sync round covers: everything copied. With [`Plant::HoleAcknowledged`]: everything
    /// reserved.
    #[inline]
    pub(super) fn to_sync(&self) -> Lsn {
        if planted(Plant::HoleAcknowledged) { self.room.tail() } else { self.copied.at() }
    }
}

impl Segment {
    /// Syncs the segment. With [`Plant::SyncSkipped`] it does nothing; with
    /// [`Plant::FailedSyncRetried`] it syncs again after a failure and trusts the second result.
    #[inline]
    pub(super) fn sync_range_unless_planted(&self, from: Lsn, to: Lsn) -> Result<()> {
        if planted(Plant::SyncSkipped) {
            return Ok(());
        }
        let synced = self.sync_range(from, to);
        if planted(Plant::FailedSyncRetried) {
            synced.or_else(|_| self.sync_range(from, to))
        } else {
            synced
        }
    }
}
