//! Range deletes: spans of keys that were deleted as a whole.
//!
//! - `fragment`  cuts overlapping spans into disjoint ascending fragments
//! - `set`       looks fragments up: what covers a key, what lies within a range
//!
//! A *span* holds the keys from `start` on and below `end`, and has a sequence number. It hides
//! every version of its keys with a lower sequence number from every reader that sees the span. A
//! span without an end holds all keys from its start on. All other bounds that a program can name
//! are converted into these two exactly ([`within`]). That is possible because keys have a maximum
//! length: so every key except the greatest has a next one.
//!
//! Nothing here knows where spans are stored. A memtable holds them as they came
//! (`memtable/spans.rs`); tables hold fragments (`table/spans.rs`).

mod fragment;
mod set;

pub(crate) use fragment::{Fragments, fragments};
pub(crate) use set::{Fragment, SpanSet};

use crate::error::Result;
use crate::limits::MAX_KEY_LEN;
use crate::mvcc::Lsn;
use std::cmp::Ordering;
use std::ops::Bound;
use std::sync::Arc;

/// A key of a span. Neighbouring fragments share the key between them.
pub(crate) type SpanKey = Arc<[u8]>;

/// A deleted range of keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) start: SpanKey,
    /// The first key that is not in it any more; `None` if all from the start on are in it.
    pub(crate) end: Option<SpanKey>,
    pub(crate) seq: Lsn,
}

/// What hides the versions of a key from a reader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cover {
    /// Versions below this are hidden.
    pub(crate) seq: Lsn,
    pub(crate) start: SpanKey,
    pub(crate) end: Option<SpanKey>,
}

/// The range deletes of the sources of a scan.
pub(crate) trait Covers: Send + Sync {
    /// What covers `key` for a reader at `point`, and the number of the source that it is in. All
    /// versions of covered keys in later sources are older than it.
    fn cover(&self, key: &[u8], point: Lsn) -> Result<Option<(Cover, usize)>>;
}

impl Cover {
    /// True if it covers `key`.
    #[inline]
    pub(crate) fn holds(&self, key: &[u8]) -> bool {
        *self.start <= *key && is_below_end(key, self.end.as_deref())
    }
}

/// True if the key lies below the end.
#[inline]
pub(crate) fn is_below_end(key: &[u8], end: Option<&[u8]>) -> bool {
    end.is_none_or(|end| key < end)
}

/// Compares two ends. The absent one is the greatest.
#[inline]
pub(crate) fn compare_ends(a: Option<&[u8]>, b: Option<&[u8]>) -> Ordering {
    match (a, b) {
        (Some(a), Some(b)) => a.cmp(b),
        (None, None) => Ordering::Equal,
        (None, Some(_)) => Ordering::Greater,
        (Some(_), None) => Ordering::Less,
    }
}

/// True if a range of keys `[start, end)` may have a key within the bounds.
pub(crate) fn meets(
    (start, end): (&[u8], Option<&[u8]>),
    lower: Bound<&[u8]>,
    upper: Bound<&[u8]>,
) -> bool {
    let reaches_up = match lower {
        Bound::Included(lower) | Bound::Excluded(lower) => is_below_end(lower, end),
        Bound::Unbounded => true,
    };
    let reaches_down = match upper {
        Bound::Included(upper) => start <= upper,
        Bound::Excluded(upper) => start < upper,
        Bound::Unbounded => true,
    };
    reaches_up && reaches_down
}

/// The start and the end of the span of all keys within the bounds; `None` if there is no such key.
pub(crate) fn within(
    lower: Bound<&[u8]>,
    upper: Bound<&[u8]>,
) -> Option<(Vec<u8>, Option<Vec<u8>>)> {
    let start = match lower {
        Bound::Unbounded => Vec::new(),
        Bound::Included(key) => key.to_vec(),
        Bound::Excluded(key) => next_key(key)?,
    };
    let end = match upper {
        Bound::Unbounded => None,
        Bound::Excluded(key) => Some(key.to_vec()),
        Bound::Included(key) => next_key(key),
    };
    end.as_ref().is_none_or(|end| start < *end).then_some((start, end))
}

/// The first key behind all that begin with `prefix`; `None` if there is none.
fn behind_all_with(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte < u8::MAX)?;
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Some(end)
}

/// The least key above `key` that a key may be; `None` if there is none.
fn next_key(key: &[u8]) -> Option<Vec<u8>> {
    if key.len() >= MAX_KEY_LEN {
        return behind_all_with(&key[..MAX_KEY_LEN]);
    }
    let mut next = Vec::with_capacity(key.len() + 1);
    next.extend_from_slice(key);
    next.push(0);
    Some(next)
}

#[cfg(all(test, not(any(loom, shuttle))))]
pub(crate) mod tests;
