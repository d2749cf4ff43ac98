//! The gaps of a family, as one immutable value.
//!
//! *Known* gaps are used by readers. They ascend and do not overlap. *Tentative* ones are announced
//! to writers only; scans at a later point make them known if they find the range empty again.
//! Whatever is done to a gap narrows its claim or proves it anew: a part of a gap is a gap.

use super::Stretch;
use crate::env::{Plant, planted};
use crate::mvcc::Lsn;
use std::sync::Arc;

/// The most known gaps of a family. Each change copies the list, and each holds two keys. Of more,
/// the one that was found longest ago is forgotten.
const KNOWN_MAX: usize = 128;
/// The most tentative ones. Writers compare their keys with each.
const TENTATIVE_MAX: usize = 8;
/// A gap that was cut so often since a scan has found it is forgotten with all that is left of it,
/// because someone fills it.
pub(super) const CUTS_MAX: u8 = 16;

/// The keys from `start` on and below `end`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Gap {
    pub(crate) start: Arc<[u8]>,
    pub(crate) end: Arc<[u8]>,
    /// Of a known gap: readers at this point or a later one see nothing in it. Of a tentative one:
    /// a scan at this point or a later one may make it known.
    from: Lsn,
    /// The number of the gap that this one was cut out of, and how often that was cut.
    origin: u64,
    cuts: u8,
}

impl Gap {
    pub(super) fn holds(&self, key: &[u8]) -> bool {
        *self.start <= *key && *key < *self.end
    }

    fn overlaps(&self, start: &[u8], end: &[u8]) -> bool {
        *self.start < *end && *start < *self.end
    }

    fn lies_within(&self, start: &[u8], end: &[u8]) -> bool {
        *start <= *self.start && *self.end <= *end
    }

    /// What is left of the gap below `start` and from `end` on.
    fn without(&self, start: &[u8], end: &[u8]) -> impl Iterator<Item = Gap> + use<> {
        let below = (*self.start < *start)
            .then(|| Gap { end: (&*self.end).min(start).into(), ..self.clone() });
        let above = (*end < *self.end)
            .then(|| Gap { start: (&*self.start).max(end).into(), ..self.clone() });
        below.into_iter().chain(above)
    }
}

/// What a family makes of a stretch of dead keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lesson {
    /// It is known already, or will be soon.
    Nothing,
    /// It holds tentative gaps, which are known now.
    Confirms,
    /// It is news.
    New,
}

/// The gaps of a family.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gaps {
    known: Vec<Gap>,
    tentative: Vec<Gap>,
    /// The number of the last gap that was found.
    found: u64,
}

impl Gaps {
    /// True if a put of `key` has to cut gaps.
    pub(crate) fn hold(&self, key: &[u8]) -> bool {
        self.known_at(key).is_some() || self.tentative.iter().any(|gap| gap.holds(key))
    }

    /// The gap that holds `key` for a reader at `point`.
    pub(crate) fn find(&self, key: &[u8], point: Lsn) -> Option<&Gap> {
        self.known_at(key).filter(|gap| gap.is_for(point))
    }

    /// The gaps for a reader at `point` that reach into the keys from `start` on, `end` included;
    /// no end is the end of all keys. They ascend and do not overlap.
    pub(crate) fn within(
        &self,
        start: &[u8],
        end: Option<&[u8]>,
        point: Lsn,
    ) -> impl Iterator<Item = &Gap> {
        let first = self.known.partition_point(|gap| *gap.end <= *start);
        let met = self.known[first..].iter();
        let met = met.take_while(move |gap| end.is_none_or(|end| *gap.start <= *end));
        met.filter(move |gap| gap.is_for(point))
    }

    fn known_at(&self, key: &[u8]) -> Option<&Gap> {
        let below = self.known.partition_point(|gap| *gap.start <= *key);
        self.known[..below].last().filter(|gap| *key < *gap.end)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.known.is_empty() && self.tentative.is_empty()
    }

    /// What a stretch teaches that a scan at `point` has passed.
    pub(crate) fn lesson(&self, stretch: &Stretch, point: Lsn) -> Lesson {
        let Stretch { start, end, .. } = stretch;
        if self.known_at(start).is_some_and(|gap| **end <= *gap.end) {
            return Lesson::Nothing;
        }
        let is_confirmed = |gap: &Gap| gap.from <= point && gap.lies_within(start, end);
        if self.tentative.iter().any(is_confirmed) {
            return Lesson::Confirms;
        }
        let is_pending = |gap: &Gap| gap.from > point && gap.overlaps(start, end);
        if self.tentative.iter().any(is_pending) { Lesson::Nothing } else { Lesson::New }
    }

    /// Makes the tentative gaps known that a scan at `point` has found empty again.
    pub(crate) fn confirm(&mut self, stretch: &Stretch, point: Lsn) {
        let Stretch { start, end, .. } = stretch;
        let is_confirmed = |gap: &mut Gap| gap.from <= point && gap.lies_within(start, end);
        let confirmed: Vec<_> = self.tentative.extract_if(.., is_confirmed).collect();
        for gap in confirmed {
            self.insert(Gap { from: point, ..gap });
        }
    }

    /// Announces a gap. It is of no use before [`Gaps::touched`].
    pub(crate) fn announce(&mut self, stretch: &Stretch) {
        let Stretch { start, end, .. } = stretch;
        debug_assert!(start < end, "a gap holds a key");
        self.tentative.retain(|gap| !gap.overlaps(start, end));
        if self.tentative.len() == TENTATIVE_MAX {
            self.tentative.remove(0);
        }
        let (start, end) = (start[..].into(), end[..].into());
        self.found += 1;
        let (from, origin) = (Lsn::MAX, self.found);
        self.tentative.push(Gap { start, end, from, origin, cuts: 0 });
    }

    /// The gap that was announced last was found by a scan at `point`, and after that the log's
    /// tail was touched at `tail`. If there was nothing in between, the gap is known.
    pub(crate) fn touched(&mut self, point: Lsn, tail: Lsn) {
        debug_assert!(point <= tail, "a reader's point lies above all that was reserved");
        let announced = self.tentative.pop_if(|gap| gap.from == Lsn::MAX);
        let Some(gap) = announced else {
            debug_assert!(false, "no gap was announced");
            return;
        };
        if tail == point || planted(Plant::GapKnownUntouched) {
            self.insert(Gap { from: point, ..gap });
        } else {
            self.tentative.push(Gap { from: tail, ..gap });
        }
    }

    /// Enters a known gap. What others claim of its keys, they claim no more.
    fn insert(&mut self, gap: Gap) {
        if self.known_at(&gap.start).is_some_and(|other| *gap.end <= *other.end) {
            return;
        }
        let start = self.known.partition_point(|other| *other.end <= *gap.start);
        let count = self.known[start..].partition_point(|other| *other.start < *gap.end);
        let met = self.known[start..start + count].iter();
        let rest: Vec<_> = met.flat_map(|other| other.without(&gap.start, &gap.end)).collect();
        let below = rest.partition_point(|other| other.start < gap.start);
        let at = start + below;
        self.known.splice(start..start + count, rest);
        self.known.insert(at, gap);
        while self.known.len() > KNOWN_MAX {
            let oldest = self.known.iter().enumerate().min_by_key(|(_, gap)| gap.from);
            let oldest = oldest.map_or(0, |(at, _)| at);
            self.known.remove(oldest);
        }
        debug_assert!(
            self.known.is_sorted_by(|one, next| one.end <= next.start),
            "known gaps ascend and do not overlap"
        );
    }

    /// Forgets every gap that reaches into the keys from `start` on and below `end`, because many
    /// of them get a value. No end is the end of all keys.
    pub(crate) fn forget(&mut self, start: &[u8], end: Option<&[u8]>) {
        let is_apart = |gap: &Gap| *gap.end <= *start || end.is_some_and(|end| *end <= *gap.start);
        self.known.retain(is_apart);
        self.tentative.retain(is_apart);
    }

    /// Cuts a key out of every gap, because it gets a value.
    pub(crate) fn cut(&mut self, key: &[u8]) {
        let behind = after(key);
        for gaps in [&mut self.known, &mut self.tentative] {
            while let Some(at) = gaps.iter().position(|gap| gap.holds(key)) {
                let origin = gaps[at].origin;
                let parts: Vec<_> = gaps[at].without(key, &behind).collect();
                gaps.splice(at..=at, parts);
                gaps.iter_mut().filter(|gap| gap.origin == origin).for_each(|gap| gap.cuts += 1);
                gaps.retain(|gap| gap.cuts < CUTS_MAX);
            }
        }
        debug_assert!(!self.hold(key), "a gap holds a key that was put");
    }
}

impl Gap {
    fn is_for(&self, point: Lsn) -> bool {
        self.from <= point || planted(Plant::GapForOlderReaders)
    }
}

/// The least key above `key`.
fn after(key: &[u8]) -> Vec<u8> {
    let mut after = Vec::with_capacity(key.len() + 1);
    after.extend_from_slice(key);
    after.push(0);
    after
}
