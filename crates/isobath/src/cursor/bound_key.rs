//! The bounds of a visible cursor's range, with what most comparisons need: the head of a key
//! decides them without the bytes behind it.

use super::key_head;
use std::cmp::Ordering;
use std::ops::Bound;

/// A key that bounds a range.
#[derive(Debug)]
pub(super) struct BoundKey {
    head: u64,
    pub(super) key: Box<[u8]>,
}

impl BoundKey {
    pub(super) fn new(key: &[u8]) -> BoundKey {
        BoundKey { head: key_head(key), key: key.into() }
    }

    #[inline]
    fn compare(&self, key: &[u8]) -> Ordering {
        key_head(key).cmp(&self.head).then_with(|| key.cmp(&self.key))
    }
}

/// True if `key` lies above an upper bound.
#[inline]
pub(super) fn is_above(upper: &Bound<BoundKey>, key: &[u8]) -> bool {
    match upper {
        Bound::Unbounded => false,
        Bound::Included(bound) => bound.compare(key) == Ordering::Greater,
        Bound::Excluded(bound) => bound.compare(key) != Ordering::Less,
    }
}

/// True if `key` lies below a lower bound.
#[inline]
pub(super) fn is_below(lower: &Bound<BoundKey>, key: &[u8]) -> bool {
    match lower {
        Bound::Unbounded => false,
        Bound::Included(bound) => bound.compare(key) == Ordering::Less,
        Bound::Excluded(bound) => bound.compare(key) != Ordering::Greater,
    }
}

/// The least key that may lie above a lower bound.
pub(super) fn least_within<'k>(lower: &'k Bound<BoundKey>, scratch: &'k mut Vec<u8>) -> &'k [u8] {
    match lower {
        Bound::Unbounded => &[],
        Bound::Included(bound) => &bound.key,
        Bound::Excluded(bound) => {
            scratch.clear();
            scratch.extend_from_slice(&bound.key);
            scratch.push(0);
            scratch
        }
    }
}
