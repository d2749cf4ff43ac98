//! The keys that a seed's lives write and read.

use super::values::{Key, Place};
use std::rc::Rc;

/// Keys in order.
pub(crate) struct Keyspace {
    keys: Vec<Key>,
}

impl Keyspace {
    /// Few short keys: everything happens to each of them.
    pub(crate) fn few() -> Rc<Keyspace> {
        let keys = (0..48).map(|number| format!("key{number:03}").into_bytes().into());
        Rc::new(Keyspace { keys: keys.collect() })
    }

    /// All of them, ascending.
    pub(crate) fn all(&self) -> &[Key] {
        &self.keys
    }

    /// One of them.
    pub(crate) fn key(&self, rng: &mut fastrand::Rng) -> Key {
        self.keys[rng.usize(..self.keys.len())].clone()
    }

    pub(crate) fn place(&self, rng: &mut fastrand::Rng) -> Place {
        (rng.u8(..2), self.key(rng))
    }

    /// Two of them, the lesser first.
    pub(crate) fn range(&self, rng: &mut fastrand::Rng) -> (Key, Key) {
        let (one, other) = (self.key(rng), self.key(rng));
        if one <= other { (one, other) } else { (other, one) }
    }
}
