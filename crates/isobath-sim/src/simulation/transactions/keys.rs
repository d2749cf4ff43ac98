//! The keys that transactions meet on: a few neighbours of the life's keys, some far oftener than
//! others.

use super::super::keyspace::Keyspace;
use super::super::values::{Key, Place};

/// Where the transactions of a life meet.
#[derive(Clone, Debug)]
pub(crate) struct Arena {
    keys: Vec<Key>,
    /// How far draws lean towards the first keys: 1 not at all.
    skew: i32,
    /// Now and then all sleep until the same moment, so long that the gate closes: then one opens
    /// it while others write.
    pub(super) has_tides: bool,
}

impl Arena {
    pub(crate) fn draw(keys: &Keyspace, rng: &mut fastrand::Rng) -> Arena {
        let count = [4, 8, 16, 48][rng.usize(..4)];
        let keys = keys.neighbours(None, count, rng).to_vec();
        Arena { keys, skew: [1, 2, 4][rng.usize(..3)], has_tides: rng.u8(..3) == 0 }
    }

    fn at(&self, rng: &mut fastrand::Rng) -> usize {
        let at = rng.f64().powi(self.skew) * self.keys.len() as f64;
        (at as usize).min(self.keys.len() - 1)
    }

    pub(super) fn key(&self, rng: &mut fastrand::Rng) -> Key {
        self.keys[self.at(rng)].clone()
    }

    pub(super) fn place(&self, rng: &mut fastrand::Rng) -> Place {
        // Mostly in one family, so that they meet.
        (u8::from(rng.u8(..4) == 0), self.key(rng))
    }

    /// The ends of a stretch, the lesser first.
    pub(super) fn range(&self, rng: &mut fastrand::Rng) -> (Key, Key) {
        let (one, other) = (self.at(rng), self.at(rng));
        (self.keys[one.min(other)].clone(), self.keys[one.max(other)].clone())
    }
}
