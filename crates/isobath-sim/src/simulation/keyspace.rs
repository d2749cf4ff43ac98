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

    /// Those from `lower` to `upper`, both included.
    pub(crate) fn within(&self, lower: &[u8], upper: &[u8]) -> &[Key] {
        let start = self.keys.partition_point(|key| **key < *lower);
        let end = self.keys.partition_point(|key| **key <= *upper);
        &self.keys[start..end.max(start)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_within_a_range_are_those_between_its_ends() {
        let keys = Keyspace::few();
        let within = |lower: &str, upper: &str| {
            let found = keys.within(lower.as_bytes(), upper.as_bytes());
            found.iter().map(|key| String::from_utf8_lossy(key).into_owned()).collect::<Vec<_>>()
        };
        assert_eq!(within("key003", "key005"), ["key003", "key004", "key005"]);
        assert_eq!(within("key0035", "key005"), ["key004", "key005"]);
        assert!(within("l", "m").is_empty());
        assert!(within("key005", "key003").is_empty());
        assert_eq!(keys.within(b"", b"z").len(), keys.all().len());
    }
}
