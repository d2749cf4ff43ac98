//! The points that readers read at: what a flush or a compaction keeps answers for.

use super::Lsn;
use crate::env::{Reach, reached_if};

/// Where readers stand, now or later: at the registered points, which are known one by one, and at
/// any point from the horizon on. A reader at point `p` sees of each key the newest version with a
/// sequence below `p`.
#[derive(Clone, Debug)]
pub(crate) struct ReaderPoints {
    /// Ascending.
    registered: Vec<Lsn>,
    horizon: Lsn,
}

impl ReaderPoints {
    /// Readers at `registered` (ascending) and at any point from `horizon` on.
    pub(crate) fn new(registered: Vec<Lsn>, horizon: Lsn) -> ReaderPoints {
        debug_assert!(registered.is_sorted());
        ReaderPoints { registered, horizon }
    }

    /// Where nobody reads yet: of each key only the newest version counts.
    pub(crate) const fn newest() -> ReaderPoints {
        ReaderPoints { registered: Vec::new(), horizon: Lsn::MAX }
    }

    /// No reader has a point below this, now or later.
    pub(crate) fn oldest(&self) -> Lsn {
        self.registered.first().map_or(self.horizon, |oldest| self.horizon.min(*oldest))
    }

    /// True if a reader sees a version at `seq` whose next newer one is at `newer_seq`: a point
    /// lies above the first, and not above the second.
    #[inline]
    pub(crate) fn see(&self, seq: Lsn, newer_seq: Option<Lsn>) -> bool {
        let Some(newer_seq) = newer_seq else { return true };
        if newer_seq >= self.horizon {
            return true;
        }
        reached_if(Reach::RetainAtPoint, || self.registered.binary_search(&seq).is_ok());
        let above = self.registered.partition_point(|point| *point <= seq);
        self.registered.get(above).is_some_and(|point| *point <= newer_seq)
    }

    /// The registered points.
    #[cfg(test)]
    pub(crate) fn registered(&self) -> &[Lsn] {
        &self.registered
    }

    #[cfg(test)]
    pub(crate) fn horizon(&self) -> Lsn {
        self.horizon
    }

    /// Forgets the registered points, as no compaction may.
    pub(crate) fn forget_registered(&mut self) {
        self.registered.clear();
    }
}
