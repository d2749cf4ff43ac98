//! What a commit that looks for conflicts asks of the log: to wait for those before it, and to take
//! part in the order of reservations without one.

use super::Log;
use crate::error::Result;
use crate::format::Lsn;
use crate::wal::frontier::Frontier;
use crate::wal::health::Health;
use crate::wal::room::Room;

/// The parts of a log that say what was reserved, and what of that is visible.
#[derive(Clone, Copy)]
pub(crate) struct Before<'a> {
    pub(crate) room: &'a Room,
    pub(crate) visible: &'a Frontier,
    pub(crate) health: &'a Health,
}

impl Before<'_> {
    /// Every record below this LSN is applied.
    #[inline]
    pub(crate) fn visible(self) -> Lsn {
        self.visible.at()
    }

    /// Fails if the log was poisoned or closed.
    #[inline]
    pub(crate) fn check_healthy(self) -> Result<()> {
        self.health.check()
    }

    /// Returns once every record below `lsn` is published, for a caller that has written nothing.
    /// If the log fails meanwhile, nothing of the caller's is lost.
    #[inline]
    pub(crate) fn wait_predecessors(self, lsn: Lsn) -> Result<()> {
        self.visible.wait(lsn).map_err(|_| self.health.why())
    }

    /// The tail, in one order with the reservations: one that comes later sees what the caller did
    /// before.
    #[inline]
    pub(crate) fn touch(self) -> Lsn {
        self.room.touch()
    }

    /// Waits until all that was reserved by now is visible; for the gate of transactions.
    pub(crate) fn grace(self) -> Result<Lsn> {
        let reserved = self.touch();
        self.wait_predecessors(reserved)?;
        let visible = self.visible();
        debug_assert!(reserved <= visible, "a record below {reserved:#x} is not visible");
        Ok(visible)
    }
}

impl Log {
    /// What those ask who wait for others.
    #[inline]
    pub(crate) fn before(&self) -> Before<'_> {
        let inner = &*self.inner;
        Before { room: &inner.room, visible: &inner.visible, health: &inner.health }
    }

    /// See [`Before::wait_predecessors`].
    #[inline]
    pub(crate) fn wait_predecessors(&self, lsn: Lsn) -> Result<()> {
        self.before().wait_predecessors(lsn)
    }

    /// See [`Before::touch`].
    pub(crate) fn touch(&self) -> Lsn {
        self.before().touch()
    }
}
