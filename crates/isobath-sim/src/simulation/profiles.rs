//! What the lives of each profile are like: how many a seed has, how long they are, and which tasks
//! take part.
//!
//! Two profiles exist for what they count. `levels` has as many judged transactions as fit into an
//! hour: small values, all levels evenly, transactions and a janitor and nothing else. `two-phase`
//! has as many crashes as fit between a prepare and its end: short lives, and eight coordinators
//! that put their decisions off.

use super::oracle::{COORDINATORS, TRANSACTORS};
use super::settings::{Profile, Trim};
use super::terrain::Terrain;
use super::transactions::Cast;
use isobath::env::reach::Reach;
use std::ops::Range;

impl Profile {
    /// True if everything happens that may: then each place that there is must be reached.
    pub(crate) fn is_of_everything(self) -> bool {
        !matches!(self, Profile::Levels | Profile::TwoPhase)
    }

    /// The places that a profile of its own is for.
    pub(crate) fn leads_to(self) -> &'static [Reach] {
        match self {
            Profile::Levels => &[
                Reach::AnomalyWriteSkew,
                Reach::AnomalyPhantom,
                Reach::AnomalyLostUpdate,
                Reach::AnomalyReadSkew,
                Reach::JudgedByVersions,
                Reach::RangeAwaited,
                Reach::SegmentRecycled,
            ],
            Profile::TwoPhase => &[
                Reach::PreparedFiled,
                Reach::PreparedFiledCommitted,
                Reach::PreparedUnfiled,
                Reach::PreparedRecovered,
                Reach::PreparedReplayed,
                Reach::PreparedRestored,
            ],
            _ => Reach::ALL,
        }
    }

    pub(super) fn terrain(self, rng: &mut fastrand::Rng) -> Terrain {
        let is_tree = self == Profile::Tree || rng.u8(..3) == 0;
        match self {
            Profile::Levels => Terrain::small(95, rng),
            // Some long values, so that memory is short and recoveries are done in pieces.
            Profile::TwoPhase => Terrain::small(60, rng),
            _ if is_tree => Terrain::tree(rng),
            _ => Terrain::flat(rng),
        }
    }

    pub(super) fn lives(self, rng: &mut fastrand::Rng) -> u32 {
        match self {
            Profile::Mixed | Profile::Tree | Profile::Transactions | Profile::Levels => {
                rng.u32(2..7)
            }
            Profile::Short | Profile::TwoPhase => rng.u32(6..20),
        }
    }

    /// The operations on files of a life, among which the machine may die.
    pub(super) fn working(self, is_tree: bool, rng: &mut fastrand::Rng) -> Range<u64> {
        match self {
            Profile::Short if is_tree => 20..800,
            Profile::Short => 20..250,
            // Some get so old that a recovery of them is done in pieces.
            Profile::TwoPhase if rng.u8(..24) == 0 => 20..4000,
            Profile::TwoPhase => 20..400,
            Profile::Levels => 20..6000,
            _ if is_tree => 20..8000,
            _ => 20..1500,
        }
    }

    /// Operations of each task.
    pub(super) fn count(self, rng: &mut fastrand::Rng) -> u32 {
        match self {
            Profile::Mixed | Profile::Tree | Profile::Transactions => {
                [30, 120, 400][rng.usize(..3)]
            }
            Profile::Short => [5, 15, 40][rng.usize(..3)],
            Profile::Levels => [100, 300, 900][rng.usize(..3)],
            Profile::TwoPhase => [10, 20, 60][rng.usize(..3)],
        }
    }

    /// Which tasks of transactions there are, where the other tasks have so many operations.
    pub(super) fn cast(self, count: u32, rng: &mut fastrand::Rng) -> Cast {
        let tasks = match self {
            Profile::Transactions | Profile::Levels => rng.usize(3..=TRANSACTORS),
            Profile::TwoPhase => rng.usize(1..3),
            _ if rng.bool() => rng.usize(2..=TRANSACTORS),
            _ => 0,
        };
        let count = match self {
            Profile::Transactions | Profile::Levels | Profile::TwoPhase => count,
            _ => count / 4,
        };
        let coordinators = match self {
            Profile::Levels => Some(0),
            Profile::TwoPhase => Some(COORDINATORS),
            _ => None,
        };
        let is_even = !self.is_of_everything();
        Cast { tasks, count, coordinators, is_even }
    }

    /// True if a life may have trouble beside its end.
    pub(super) fn may_have_trouble(self, rng: &mut fastrand::Rng) -> bool {
        self.is_of_everything() || rng.u8(..8) == 0
    }

    /// Leaves out the tasks that the profile has not.
    pub(super) fn trim(self, trim: Trim) -> Trim {
        if self.is_of_everything() { trim } else { Trim { writers: 0, readers: 0, ..trim } }
    }
}
