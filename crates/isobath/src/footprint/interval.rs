//! Intervals of keys, and sets of them: what scans have passed.
//!
//! An interval begins and ends at a *cut*, a place between keys: directly before a key or directly
//! after it. So two intervals touch if one ends where the other begins, and an excluded bound never
//! has to be turned into an included one by appending a byte to the key. A set joins what overlaps
//! or touches.
//!
//! The key of a cut is one that may exist. Scans take bounds of any length; but what was read may
//! have to be locked, and the lock may have to be written to the log, which takes no longer key.

use crate::limits::MAX_KEY_LEN;
use std::collections::BTreeMap;
use std::ops::Bound;

/// The memory that is charged for an interval of a set, in addition to its keys.
const INTERVAL_CHARGE: u64 = 96;

/// A place between keys. The order of the fields makes the order of places.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Cut {
    pub(crate) key: Vec<u8>,
    /// Directly after the key, not directly before it.
    pub(crate) is_after: bool,
}

impl Cut {
    pub(crate) fn before(key: &[u8]) -> Cut {
        Cut::at(key, false)
    }

    pub(crate) fn after(key: &[u8]) -> Cut {
        Cut::at(key, true)
    }

    fn at(key: &[u8], is_after: bool) -> Cut {
        let mut cut = Cut::default();
        cut.set(key, is_after);
        cut
    }

    /// Moves the cut. Between a key that is too long and the longest key that it begins with, there
    /// is no other.
    pub(crate) fn set(&mut self, key: &[u8], is_after: bool) {
        let is_cut_short = key.len() > MAX_KEY_LEN;
        self.key.clear();
        self.key.extend_from_slice(&key[..key.len().min(MAX_KEY_LEN)]);
        self.is_after = is_after || is_cut_short;
    }

    /// True if `key` lies above this place.
    #[inline]
    fn is_below(&self, key: &[u8]) -> bool {
        if self.is_after { *self.key < *key } else { *self.key <= *key }
    }
}

/// The keys between two cuts. It may hold none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Interval {
    pub(crate) start: Cut,
    /// None: no end.
    pub(crate) end: Option<Cut>,
}

impl Interval {
    /// Exactly one key.
    pub(crate) fn of_key(key: &[u8]) -> Interval {
        Interval { start: Cut::before(key), end: Some(Cut::after(key)) }
    }

    /// The keys from a start on and below an end; an end that is empty is none.
    pub(crate) fn of_span(start: &[u8], end: &[u8]) -> Interval {
        let end = (!end.is_empty()).then(|| Cut::before(end));
        Interval { start: Cut::before(start), end }
    }

    /// The keys within bounds.
    pub(crate) fn within(lower: &Bound<Vec<u8>>, upper: &Bound<Vec<u8>>) -> Interval {
        let start = match lower {
            Bound::Included(key) => Cut::before(key),
            Bound::Excluded(key) => Cut::after(key),
            Bound::Unbounded => Cut::default(),
        };
        let end = match upper {
            Bound::Included(key) => Some(Cut::after(key)),
            Bound::Excluded(key) => Some(Cut::before(key)),
            Bound::Unbounded => None,
        };
        Interval { start, end }
    }

    /// True if `key` lies in the interval.
    #[inline]
    pub(crate) fn contains(&self, key: &[u8]) -> bool {
        !self.starts_after(key) && !self.ends_before(key)
    }

    /// True if `key` lies below the whole interval.
    #[inline]
    pub(crate) fn starts_after(&self, key: &[u8]) -> bool {
        !self.start.is_below(key)
    }

    /// True if `key` lies above the whole interval.
    #[inline]
    pub(crate) fn ends_before(&self, key: &[u8]) -> bool {
        self.end.as_ref().is_some_and(|end| end.is_below(key))
    }

    /// True if no key can lie in it.
    pub(crate) fn is_empty(&self) -> bool {
        is_empty(&self.start, &self.end)
    }

    /// The bounds, as a scan or an extent takes them.
    pub(crate) fn bounds(&self) -> (Bound<&[u8]>, Bound<&[u8]>) {
        let start = &self.start;
        let lower = match start.is_after {
            true => Bound::Excluded(&*start.key),
            false => Bound::Included(&*start.key),
        };
        let upper = match &self.end {
            Some(end) if end.is_after => Bound::Included(&*end.key),
            Some(end) => Bound::Excluded(&*end.key),
            None => Bound::Unbounded,
        };
        (lower, upper)
    }
}

/// A set of keys, as intervals that neither overlap nor touch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Intervals {
    by_start: BTreeMap<Cut, Option<Cut>>,
    key_bytes: u64,
}

fn is_empty(start: &Cut, end: &Option<Cut>) -> bool {
    end.as_ref().is_some_and(|end| end <= start || are_one_place(start, end))
}

/// True if no key lies between the cuts, because the second is before the very next key.
fn are_one_place(after: &Cut, before: &Cut) -> bool {
    after.is_after && !before.is_after && before.key.strip_suffix(&[0]) == Some(&*after.key)
}

fn key_bytes(start: &Cut, end: &Option<Cut>) -> u64 {
    (start.key.len() + end.as_ref().map_or(0, |end| end.key.len())) as u64
}

impl Intervals {
    /// The memory that the set takes.
    pub(crate) fn charge(&self) -> u64 {
        self.key_bytes + self.by_start.len() as u64 * INTERVAL_CHARGE
    }

    /// Adds the keys of an interval.
    pub(crate) fn add(&mut self, Interval { mut start, mut end }: Interval) {
        if is_empty(&start, &end) {
            return;
        }
        // From the right: each interval that begins at or below the end, and does not end below the
        // start, is taken in.
        loop {
            let mut below = match &end {
                Some(end) => self.by_start.range(..=end.clone()),
                None => self.by_start.range::<Cut, _>(..),
            };
            let Some((other_start, other_end)) = below.next_back() else { break };
            if other_end.as_ref().is_some_and(|other| *other < start) {
                break;
            }
            let other = other_start.clone();
            let other_end = self.by_start.remove(&other).flatten();
            self.key_bytes -= key_bytes(&other, &other_end);
            end = match (end, other_end) {
                (Some(a), Some(b)) => Some(a.max(b)),
                _ => None,
            };
            start = start.min(other);
        }
        self.key_bytes += key_bytes(&start, &end);
        self.by_start.insert(start, end);
        self.check();
    }

    /// What holds between changes of the set.
    fn check(&self) {
        let ends_below = |end: &Option<Cut>, next: &Cut| end.as_ref().is_some_and(|end| end < next);
        debug_assert!(
            self.by_start.iter().is_sorted_by(|(_, end), (next, _)| ends_below(end, next)),
            "intervals of a set overlap or touch"
        );
        debug_assert!(
            self.by_start.iter().all(|(start, end)| !is_empty(start, end)),
            "an interval holds no key"
        );
        debug_assert_eq!(
            self.key_bytes,
            self.by_start.iter().map(|(start, end)| key_bytes(start, end)).sum::<u64>(),
            "the set's charge is wrong"
        );
    }

    /// True if the key is in the set.
    pub(crate) fn covers(&self, key: &[u8]) -> bool {
        let below = self.by_start.range(..=Cut::before(key)).next_back();
        below.is_some_and(|(_, end)| end.as_ref().is_none_or(|end| !end.is_below(key)))
    }

    /// Joins neighbours, with what lies between them, until the set takes at most `charge_max` or
    /// is one interval.
    pub(crate) fn coarsen(&mut self, charge_max: u64) {
        while self.charge() > charge_max && self.by_start.len() > 1 {
            let mut fine = std::mem::take(self).into_iter();
            while let Some(mut interval) = fine.next() {
                if let Some(neighbour) = fine.next() {
                    interval.end = neighbour.end;
                }
                self.key_bytes += key_bytes(&interval.start, &interval.end);
                self.by_start.insert(interval.start, interval.end);
            }
        }
        self.check();
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Interval> {
        self.by_start.iter().map(|(start, end)| Interval { start: start.clone(), end: end.clone() })
    }
}

impl IntoIterator for Intervals {
    type Item = Interval;
    type IntoIter = std::iter::Map<
        std::collections::btree_map::IntoIter<Cut, Option<Cut>>,
        fn((Cut, Option<Cut>)) -> Interval,
    >;

    fn into_iter(self) -> Self::IntoIter {
        self.by_start.into_iter().map(|(start, end)| Interval { start, end })
    }
}
