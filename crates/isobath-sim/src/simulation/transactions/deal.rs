//! What a transaction was told, and what its level promises of that.
//!
//! Whatever the level, a transaction with a read point finds everything as of that point, whether
//! it commits or not. What a commit validates must be so just before it in the log
//! ([`Found::lasting`]): at Serializable all that was found, at RepeatableRead the items alone,
//! below neither; and at every level what was locked. A locking read may move the point on: then
//! the same must be so at the new one. At Snapshot no other commit between its point
//! and its own writes what it writes (`rules.rs`).

use super::super::observe::Sight;
use super::super::values::Place;
use isobath::{ConflictKind, Isolation};

/// A transaction that has ended.
#[derive(Clone, Debug)]
pub(crate) struct Deal {
    pub(crate) level: Isolation,
    /// Its read point; none where each call has its own moment.
    pub(crate) point: Option<u64>,
    /// The point that its commit was acknowledged with, if it wrote anything.
    pub(crate) committed: Option<u64>,
    /// When it had ended, in the oracle's count of events.
    pub(crate) ended: u64,
    pub(crate) found: Found,
    /// Where it wrote.
    pub(crate) writes: Vec<Place>,
}

/// What a transaction found, its own writes left out.
#[derive(Clone, Debug, Default)]
pub(crate) struct Found {
    /// Single keys, there or not.
    pub(crate) items: Vec<Sight>,
    /// Stretches of keys.
    pub(crate) scans: Vec<Sight>,
    /// What it asked for without wanting it validated.
    pub(crate) untracked: Vec<Sight>,
    /// What it has locked against changes until its end: single keys, and stretches.
    pub(crate) locked: Vec<Sight>,
}

impl Found {
    /// All of it.
    pub(crate) fn sights(&self) -> Vec<Sight> {
        [&self.items[..], &self.scans, &self.untracked, &self.locked].concat()
    }

    /// Adds what was found later.
    pub(crate) fn append(&mut self, later: &Found) {
        self.items.extend_from_slice(&later.items);
        self.scans.extend_from_slice(&later.scans);
        self.untracked.extend_from_slice(&later.untracked);
        self.locked.extend_from_slice(&later.locked);
    }

    /// What a transaction of this level must find the same later.
    pub(crate) fn lasting(&self, level: Isolation) -> Vec<Sight> {
        let mut lasting = self.locked.clone();
        match level {
            Isolation::Serializable => {
                lasting.extend_from_slice(&self.items);
                lasting.extend_from_slice(&self.scans);
            }
            Isolation::RepeatableRead => lasting.extend(self.all_items()),
            _ => {}
        }
        lasting
    }

    /// Single keys, those among them that scans returned.
    fn all_items(&self) -> Vec<Sight> {
        let of_scans = self.scans.iter().flat_map(|scan| {
            let item = |(key, value): (&_, &Option<_>)| {
                Sight::of_key(scan.family, Clone::clone(key), Some(*value))
            };
            scan.found.iter().map(item)
        });
        self.items.iter().cloned().chain(of_scans).collect()
    }
}

/// True if a level reads as of one point, false if each call is as of its own moment.
pub(crate) fn has_point(level: Isolation) -> bool {
    !matches!(level, Isolation::ReadUncommitted | Isolation::ReadCommitted)
}

/// A transaction that was told of a conflict: of a change of this key after its point.
#[derive(Clone, Debug)]
pub(crate) struct Refusal {
    pub(crate) place: Place,
    pub(crate) kind: ConflictKind,
    pub(crate) point: u64,
    /// When it was told.
    pub(crate) told: u64,
}
