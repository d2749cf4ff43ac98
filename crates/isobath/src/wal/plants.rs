//! Bugs of the log that a harness plants (`host/planted.rs`); without the feature `simulation`
//! nothing of this is left.

use super::log::Inner;
use super::segment::Segment;
use crate::env::{Plant, planted};
use crate::error::Result;
use crate::format::Lsn;

impl Inner {
    /// What a round of syncs covers: all that is copied. [`Plant::HoleAcknowledged`]: all that is
    /// reserved.
    #[inline]
    pub(super) fn to_sync(&self) -> Lsn {
        if planted(Plant::HoleAcknowledged) { self.room.tail() } else { self.copied.at() }
    }
}

impl Segment {
    /// Hardens the segment. [`Plant::SyncSkipped`]: does not. [`Plant::FailedSyncRetried`]: tries
    /// again, and believes it.
    #[inline]
    pub(super) fn harden_unless_planted(&self, from: Lsn, to: Lsn) -> Result<()> {
        if planted(Plant::SyncSkipped) {
            return Ok(());
        }
        let hardened = self.harden(from, to);
        if planted(Plant::FailedSyncRetried) {
            hardened.or_else(|_| self.harden(from, to))
        } else {
            hardened
        }
    }
}
