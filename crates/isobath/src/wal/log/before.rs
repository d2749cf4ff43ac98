//! What a commit that looks for conflicts asks of the log: to wait for those before it, and to take
//! part in the order of reservations without one.

use super::Log;
use crate::error::{Error, Result};
use crate::format::Lsn;

impl Log {
    /// Returns once every record below `lsn` is published, for a caller that has written nothing.
    /// If the log fails meanwhile, nothing of the caller's is lost.
    #[inline]
    pub(crate) fn wait_predecessors(&self, lsn: Lsn) -> Result<()> {
        self.inner
            .visible
            .wait(lsn)
            .map_err(|_| self.inner.health.check().err().unwrap_or_else(Error::closed))
    }

    /// The tail, in one order with the reservations: one that comes later sees what the caller did
    /// before.
    pub(crate) fn touch(&self) -> Lsn {
        self.inner.room.touch()
    }
}
