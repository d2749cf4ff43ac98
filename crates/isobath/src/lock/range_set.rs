//! The ranges of a family that one owner has locked, joined where they overlap or touch.
//!
//! Joined ranges lie apart from each other. So the last one that begins at or before a key is the
//! only one that can hold the key, and of all that begin later the first one is the only one that
//! has to be compared with a range. Each question is a search by lower bound, however many ranges
//! there are.

use super::LockMode;
use super::ranges::Span;
use std::collections::BTreeMap;
use std::ops::Bound::{self, Excluded, Included, Unbounded};
use std::sync::Arc;

/// Where a range ends; `None` behind all keys.
type End = Option<Arc<[u8]>>;

/// The memory that a range takes beside its ends, here and with its owner.
const RANGE_BYTES: u64 = 250;

/// The memory that a locked range takes, about.
pub(crate) fn range_bytes(lower: &[u8], upper: &End) -> u64 {
    RANGE_BYTES + (lower.len() + upper.as_ref().map_or(0, |upper| upper.len())) as u64
}

/// Ranges of keys that lie apart.
#[derive(Debug, Default)]
pub(super) struct RangeSet {
    /// The end of each range, by where it begins.
    ends: BTreeMap<Arc<[u8]>, End>,
    /// The memory that they take, about.
    bytes: u64,
    /// How many of them were looked at.
    #[cfg(test)]
    looks: std::cell::Cell<usize>,
}

impl RangeSet {
    /// Adds a range, and joins it with those that it overlaps or touches.
    fn add(&mut self, span: &Span) {
        let (mut lower, mut upper) = (Arc::clone(&span.lower), span.upper.clone());
        if let Some((begin, end)) = self.at_or_before(&lower)
            && end.as_ref().is_none_or(|end| *end >= lower)
        {
            lower = Arc::clone(begin);
        }
        while let Some((begin, _)) = self.first_from(Included(&lower))
            && upper.as_ref().is_none_or(|upper| upper >= begin)
        {
            let begin = Arc::clone(begin);
            let end = self.ends.remove(&begin).flatten();
            debug_assert!(self.bytes >= range_bytes(&begin, &end), "what is joined was charged");
            self.bytes -= range_bytes(&begin, &end);
            upper = upper.zip(end).map(|(one, other)| one.max(other));
        }
        debug_assert!(
            self.first_from(Included(&lower))
                .is_none_or(|(next, _)| { upper.as_ref().is_some_and(|upper| upper < next) }),
            "ranges of a set overlap or touch"
        );
        self.bytes += range_bytes(&lower, &upper);
        self.ends.insert(lower, upper);
    }

    fn spans(&self) -> impl Iterator<Item = Span> {
        let span = |(lower, upper): (&Arc<[u8]>, &End)| Span {
            lower: Arc::clone(lower),
            upper: upper.clone(),
        };
        self.ends.iter().map(span)
    }

    fn at_or_before(&self, key: &[u8]) -> Option<(&Arc<[u8]>, &End)> {
        self.note_look();
        self.ends.range::<[u8], _>((Unbounded, Included(key))).next_back()
    }

    fn first_from(&self, lower: Bound<&[u8]>) -> Option<(&Arc<[u8]>, &End)> {
        self.note_look();
        self.ends.range::<[u8], _>((lower, Unbounded)).next()
    }

    fn note_look(&self) {
        #[cfg(test)]
        self.looks.set(self.looks.get() + 1);
    }

    pub(super) fn contains(&self, key: &[u8]) -> bool {
        let before = self.at_or_before(key);
        before.is_some_and(|(_, end)| end.as_ref().is_none_or(|end| *key < **end))
    }

    /// True if every key of the range lies in one of these.
    fn covers(&self, span: &Span) -> bool {
        let before = self.at_or_before(&span.lower);
        before.is_some_and(|(_, end)| match (end, &span.upper) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(own), Some(other)) => own >= other,
        })
    }

    /// True if a key may lie in the range and in one of these.
    pub(super) fn overlaps(&self, span: &Span) -> bool {
        let ends_later = |(_, end): (_, &End)| end.as_ref().is_none_or(|end| *end > span.lower);
        let begins_within =
            |(begin, _): (&Arc<[u8]>, _)| span.upper.as_ref().is_none_or(|upper| begin < upper);
        self.at_or_before(&span.lower).is_some_and(ends_later)
            || self.first_from(Excluded(&span.lower)).is_some_and(begins_within)
    }
}

/// The ranges of one owner in one family, by mode.
#[derive(Debug, Default)]
pub(crate) struct OwnRanges {
    shared: RangeSet,
    exclusive: RangeSet,
}

impl OwnRanges {
    pub(crate) fn add(&mut self, span: &Span, mode: LockMode) {
        match mode {
            LockMode::Shared => self.shared.add(span),
            LockMode::Exclusive => self.exclusive.add(span),
        }
    }

    /// True if the key is locked in any mode.
    pub(crate) fn contains(&self, key: &[u8]) -> bool {
        self.shared.contains(key) || self.exclusive.contains(key)
    }

    /// True if the key is in a range that others may have, too.
    pub(super) fn share(&self, key: &[u8]) -> bool {
        self.shared.contains(key)
    }

    /// True if the whole range is locked in this mode or a stronger one.
    pub(crate) fn give(&self, span: &Span, mode: LockMode) -> bool {
        self.exclusive.covers(span) || (mode == LockMode::Shared && self.shared.covers(span))
    }

    /// Notes that the owner relies on a range that it has locked in this mode or a stronger one.
    /// True if that changes what it shares with others.
    pub(super) fn rely_on(&mut self, span: &Span, mode: LockMode) -> bool {
        debug_assert!(self.give(span, mode), "it relies on a range that is free");
        let is_new = mode == LockMode::Shared && !self.shared.covers(span);
        if is_new {
            self.shared.add(span);
        }
        is_new
    }

    /// True if a key of the range may be locked in any mode.
    pub(crate) fn meet(&self, span: &Span) -> bool {
        self.exclude(LockMode::Exclusive, |held| held.overlaps(span))
    }

    /// True if those ranges meet, as `meets` tells, that others cannot have in this mode.
    pub(super) fn exclude(&self, mode: LockMode, meets: impl Fn(&RangeSet) -> bool) -> bool {
        meets(&self.exclusive) || (mode == LockMode::Exclusive && meets(&self.shared))
    }

    /// The memory that they take, about.
    pub(super) fn bytes(&self) -> u64 {
        self.shared.bytes + self.exclusive.bytes
    }

    pub(super) fn len(&self) -> usize {
        self.shared.ends.len() + self.exclusive.ends.len()
    }

    /// How many ranges were looked at so far.
    #[cfg(test)]
    pub(super) fn looks(&self) -> usize {
        self.shared.looks.get() + self.exclusive.looks.get()
    }

    /// All ranges, each with its mode.
    pub(crate) fn all(&self) -> impl Iterator<Item = (Span, LockMode)> {
        let shared = self.shared.spans().map(|span| (span, LockMode::Shared));
        shared.chain(self.exclusive.spans().map(|span| (span, LockMode::Exclusive)))
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::env::fixtures::Draw;

    fn drawn(draw: &mut Draw) -> Span {
        let lower = draw.below(30) as u8;
        let upper = (draw.below(8) > 0).then(|| lower + 1 + draw.below(4) as u8);
        Span { lower: [lower][..].into(), upper: upper.map(|upper| [upper][..].into()) }
    }

    #[test]
    fn joined_ranges_answer_as_the_ranges_do_that_they_were_made_of() {
        for seed in 0..if cfg!(miri) { 3 } else { 300 } {
            let mut draw = Draw::new(seed);
            let (mut own, mut is_in) = (RangeSet::default(), [false; 40]);
            for _ in 0..8 {
                let added = drawn(&mut draw);
                own.add(&added);
                (0..40u8).for_each(|key| is_in[key as usize] |= added.contains(&[key]));
                let keys = |span: &Span| -> Vec<bool> {
                    let within = (0..40u8).filter(|key| span.contains(&[*key]));
                    within.map(|key| is_in[key as usize]).collect()
                };
                for key in 0..40u8 {
                    assert_eq!(own.contains(&[key]), is_in[key as usize], "{key} in {own:?}");
                }
                for _ in 0..20 {
                    let asked = drawn(&mut draw);
                    let keys = keys(&asked);
                    assert_eq!(own.covers(&asked), !keys.contains(&false), "{asked:?} {own:?}");
                    assert_eq!(own.overlaps(&asked), keys.contains(&true), "{asked:?} {own:?}");
                }
                let bytes = own.ends.iter().map(|(lower, upper)| range_bytes(lower, upper));
                assert_eq!(own.bytes, bytes.sum::<u64>());
                let all: Vec<_> = own.ends.iter().collect();
                assert!(all.windows(2).all(|two| two[0].1.as_ref().unwrap() < two[1].0), "apart");
            }
        }
    }
}
