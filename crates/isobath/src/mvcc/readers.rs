//! The points at which readers read. A flush or a compaction must keep the versions they need.

use super::expiry::lives_at;
use super::{Entry, Lsn};
use crate::env::{Reach, reached_if};

/// The points of readers, now or later: each registered point, and any point from the horizon on.
/// For each key, a reader at point `p` sees the newest version with a sequence number below `p`.
#[derive(Clone, Debug)]
pub(crate) struct ReaderPoints {
    /// Ascending.
    registered: Vec<Lsn>,
    horizon: Lsn,
    /// The time at the lowest point, in milliseconds since 1970.
    unix_ms: u64,
}

impl ReaderPoints {
    /// Readers at the points `registered` (ascending) and at any point from `horizon` on.
    pub(crate) fn new(registered: Vec<Lsn>, horizon: Lsn) -> ReaderPoints {
        debug_assert!(registered.is_sorted());
        ReaderPoints { registered, horizon, unix_ms: 0 }
    }

    /// Readers at any point from `horizon` on.
    pub(crate) fn from(horizon: Lsn) -> ReaderPoints {
        ReaderPoints::new(Vec::new(), horizon)
    }

    /// No readers yet: for each key only the newest version counts.
    pub(crate) const fn newest() -> ReaderPoints {
        ReaderPoints { registered: Vec::new(), horizon: Lsn::MAX, unix_ms: 0 }
    }

    /// With this time at the lowest point, in milliseconds since 1970. Otherwise no value has
    /// ended.
    pub(crate) fn at_time(self, unix_ms: u64) -> ReaderPoints {
        ReaderPoints { unix_ms, ..self }
    }

    /// The time at the lowest point, in milliseconds since 1970.
    pub(crate) fn unix_ms(&self) -> u64 {
        self.unix_ms
    }

    /// True if for every reader the value of a version has ended.
    #[inline]
    pub(crate) fn see_ended(&self, entry: &Entry<'_>) -> bool {
        entry.kind.is_expiring()
            && entry.seq < self.oldest()
            && !lives_at(entry.value, self.unix_ms)
    }

    /// The lowest point that a reader can have, now or later.
    pub(crate) fn oldest(&self) -> Lsn {
        self.registered.first().map_or(self.horizon, |oldest| self.horizon.min(*oldest))
    }

    /// True if a reader needs a version at `seq` whose next newer version is at `newer_seq`: a
    /// reader's point lies above `seq` and not above `newer_seq`.
    #[inline]
    pub(crate) fn see(&self, seq: Lsn, newer_seq: Option<Lsn>) -> bool {
        let Some(newer_seq) = newer_seq else { return true };
        if newer_seq >= self.horizon {
            return true;
        }
        reached_if(Reach::RetainAtPoint, || self.registered.binary_search(&seq).is_ok());
        self.first_above(seq).is_some_and(|point| point <= newer_seq)
    }

    /// The least registered point of a reader who sees what is at `seq`.
    #[inline]
    fn first_above(&self, seq: Lsn) -> Option<Lsn> {
        let above = self.registered.partition_point(|point| *point <= seq);
        self.registered.get(above).copied()
    }

    /// The least point of a reader, now or later, who sees what is at `seq`.
    #[inline]
    pub(crate) fn least_above(&self, seq: Lsn) -> Lsn {
        let to_come = self.horizon.max(seq.saturating_add(1));
        self.first_above(seq).map_or(to_come, |point| point.min(to_come))
    }

    /// True if a compaction filter may judge a version at `seq`, whose next newer version or range
    /// delete that covers it is at `newer_seq`: readers to come see it, and no registered one does.
    pub(crate) fn leave_to_filter(&self, seq: Lsn, newer_seq: Option<Lsn>) -> bool {
        if seq >= self.horizon || newer_seq.is_some_and(|newer_seq| newer_seq < self.horizon) {
            return false;
        }
        let next = self.first_above(seq);
        let is_seen = next.is_some_and(|point| newer_seq.is_none_or(|newer| point <= newer));
        reached_if(Reach::FilterHeldBack, || is_seen);
        !is_seen
    }

    /// The registered points, ascending.
    pub(crate) fn registered(&self) -> &[Lsn] {
        &self.registered
    }

    /// The least point that a reader to come can have.
    pub(crate) fn horizon(&self) -> Lsn {
        self.horizon
    }

    /// Removes the registered points. A real compaction must never do this.
    pub(crate) fn forget_registered(&mut self) {
        self.registered.clear();
    }
}
