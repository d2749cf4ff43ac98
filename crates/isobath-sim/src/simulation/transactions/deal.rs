//! What the reads of a transaction returned, and what its isolation level promises about it.
//!
//! At every level that has a read point, all reads show the database as of that point, whether the
//! transaction commits or not. What a commit validates must be unchanged just before the commit in
//! the log ([`Found::lasting`]): at Serializable all that was found, at RepeatableRead the single
//! keys only, at lower levels nothing; at every level, what was locked. A locking read may move the
//! read point: then the same must hold at the new point. At Snapshot, no commit between the read
//! point and the transaction's own commit writes a key that the transaction writes (`rules.rs`).

use super::super::observe::Sight;
use super::super::values::Place;
use isobath::{ConflictKind, Isolation};

/// A transaction that has ended.
#[derive(Clone, Debug)]
pub(crate) struct Deal {
    pub(crate) level: Isolation,
    /// Its read point; `None` at levels where each call reads at a moment of its own.
    pub(crate) point: Option<u64>,
    /// The read point that its commit returned, if it wrote anything.
    pub(crate) committed: Option<u64>,
    /// When it ended, in the oracle's count of events.
    pub(crate) ended: u64,
    pub(crate) found: Found,
    /// Where it wrote.
    pub(crate) writes: Vec<Place>,
    pub(crate) story: Story,
}

/// How a transaction was run, for people.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Story {
    /// Which try of its body it was: 0 for a single step.
    pub(crate) nth_try: u32,
    /// It locks whatever it reads and writes.
    pub(crate) is_locking: bool,
}

/// What a transaction found, without its own writes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Found {
    /// Single keys, present or absent.
    pub(crate) items: Vec<Sight>,
    /// Stretches of keys.
    pub(crate) scans: Vec<Sight>,
    /// What it read without validation (`get_untracked`).
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

    /// What must be unchanged when a transaction of this level commits.
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

    /// Single keys, including those that scans returned.
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

/// True if all reads of a level are as of one point, false if each call reads at a moment of its
/// own.
pub(crate) fn has_point(level: Isolation) -> bool {
    !matches!(level, Isolation::ReadUncommitted | Isolation::ReadCommitted)
}

/// A transaction that failed by a conflict, which said that this key changed after its read point.
#[derive(Clone, Debug)]
pub(crate) struct Refusal {
    pub(crate) place: Place,
    pub(crate) kind: ConflictKind,
    pub(crate) point: u64,
    /// When the conflict was reported, in the oracle's count of events.
    pub(crate) told: u64,
}
