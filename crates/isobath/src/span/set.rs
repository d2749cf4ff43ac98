//! Disjoint fragments of spans, and what they cover.

use super::{Cover, Span, SpanKey, is_below_end, meets};
use crate::mvcc::Lsn;
use std::ops::Bound;

/// A stretch of keys with the sequence numbers of the spans that hold all of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fragment {
    pub(crate) start: SpanKey,
    pub(crate) end: Option<SpanKey>,
    /// Descending, at least one.
    pub(crate) seqs: Box<[Lsn]>,
}

impl Fragment {
    /// The newest sequence number below `point`.
    #[inline]
    pub(crate) fn newest_below(&self, point: Lsn) -> Option<Lsn> {
        let at = self.seqs.partition_point(|seq| *seq >= point);
        self.seqs.get(at).copied()
    }

    /// The least sequence number above `seq`.
    #[inline]
    pub(crate) fn least_above(&self, seq: Lsn) -> Option<Lsn> {
        let at = self.seqs.partition_point(|other| *other > seq);
        Some(self.seqs[at.checked_sub(1)?])
    }
}

/// Fragments, ascending and disjoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SpanSet {
    fragments: Vec<Fragment>,
}

impl SpanSet {
    /// The fragments must be ascending and disjoint.
    pub(crate) fn new(fragments: Vec<Fragment>) -> SpanSet {
        let set = SpanSet { fragments };
        debug_assert!(set.is_sound(), "{set:?}");
        set
    }

    /// A set of these fragments, if they are ascending and disjoint.
    pub(crate) fn checked(fragments: Vec<Fragment>) -> Option<SpanSet> {
        Some(SpanSet { fragments }).filter(SpanSet::is_sound)
    }

    /// True if the fragments are ascending, disjoint and not empty, and their sequence numbers
    /// descend.
    pub(crate) fn is_sound(&self) -> bool {
        let is_whole = |fragment: &Fragment| {
            is_below_end(&fragment.start, fragment.end.as_deref())
                && !fragment.seqs.is_empty()
                && fragment.seqs.is_sorted_by(|a, b| a > b)
        };
        self.fragments.iter().all(is_whole)
            && self
                .fragments
                .windows(2)
                .all(|pair| pair[0].end.as_ref().is_some_and(|end| *end <= pair[1].start))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.fragments.is_empty()
    }

    pub(crate) fn fragments(&self) -> &[Fragment] {
        &self.fragments
    }

    /// The smallest and the largest sequence number.
    pub(crate) fn seqs(&self) -> Option<(Lsn, Lsn)> {
        let all = || self.fragments.iter().flat_map(|fragment| fragment.seqs.iter().copied());
        Some((all().min()?, all().max()?))
    }

    /// The bytes of memory that it takes.
    pub(crate) fn charge(&self) -> usize {
        let bytes = |fragment: &Fragment| {
            size_of::<Fragment>()
                + fragment.start.len()
                + fragment.end.as_ref().map_or(0, |end| end.len())
                + fragment.seqs.len() * size_of::<Lsn>()
        };
        self.fragments.iter().map(bytes).sum()
    }

    /// The fragment that holds `key`.
    #[inline]
    pub(crate) fn at(&self, key: &[u8]) -> Option<&Fragment> {
        let behind = self.fragments.partition_point(|fragment| *fragment.start <= *key);
        let fragment = self.fragments.get(behind.checked_sub(1)?)?;
        is_below_end(key, fragment.end.as_deref()).then_some(fragment)
    }

    /// The newest sequence number below `point` of what covers `key`; 0 if nothing does.
    #[inline]
    pub(crate) fn newest_at(&self, key: &[u8], point: Lsn) -> Lsn {
        self.at(key).and_then(|fragment| fragment.newest_below(point)).unwrap_or(0)
    }

    /// What covers `key` for a reader at `point`.
    pub(crate) fn cover(&self, key: &[u8], point: Lsn) -> Option<Cover> {
        let fragment = self.at(key)?;
        let seq = fragment.newest_below(point)?;
        debug_assert!(seq < point, "a reader sees what is below its point");
        Some(Cover { seq, start: fragment.start.clone(), end: fragment.end.clone() })
    }

    /// The least sequence number above `seq` of what covers `key`.
    #[inline]
    pub(crate) fn least_above(&self, key: &[u8], seq: Lsn) -> Option<Lsn> {
        self.at(key)?.least_above(seq)
    }

    /// The fragments that may have a key within the bounds.
    pub(crate) fn within(&self, lower: Bound<&[u8]>, upper: Bound<&[u8]>) -> &[Fragment] {
        let start = self.fragments.partition_point(|fragment| {
            let end = fragment.end.as_deref();
            !meets((&fragment.start, end), lower, Bound::Unbounded)
        });
        let behind = &self.fragments[start..];
        let len = behind
            .partition_point(|fragment| meets((&fragment.start, None), Bound::Unbounded, upper));
        &behind[..len]
    }

    /// The part of the fragment that lies from `start` on and before `end`.
    pub(crate) fn truncated(&self, start: &[u8], end: Option<&[u8]>) -> SpanSet {
        let upper = end.map_or(Bound::Unbounded, Bound::Excluded);
        let mut kept = self.within(Bound::Included(start), upper).to_vec();
        if let Some(first) = kept.first_mut()
            && *first.start < *start
        {
            first.start = start.into();
        }
        if let Some(last) = kept.last_mut()
            && let Some(end) = end
            && last.end.as_ref().is_none_or(|of_last| **of_last > *end)
        {
            last.end = Some(end.into());
        }
        kept.retain(|fragment| is_below_end(&fragment.start, fragment.end.as_deref()));
        debug_assert!(kept.first().is_none_or(|first| *first.start >= *start));
        SpanSet::new(kept)
    }

    /// Each fragment once for each of its sequence numbers.
    pub(crate) fn spans(&self) -> impl Iterator<Item = Span> + '_ {
        self.fragments.iter().flat_map(|Fragment { start, end, seqs }| {
            seqs.iter().map(|seq| Span { start: start.clone(), end: end.clone(), seq: *seq })
        })
    }

    /// Looks for fragments beneath which, as `is_clear` says, nothing older lies. Removes from each
    /// of them the sequence number below `oldest`, the point of the oldest reader.
    pub(crate) fn without_idle(
        self,
        oldest: Lsn,
        mut is_clear: impl FnMut(&Fragment) -> bool,
    ) -> SpanSet {
        let mut fragments = self.fragments;
        fragments.retain_mut(|fragment| {
            let below = fragment.seqs.partition_point(|seq| *seq >= oldest);
            if below < fragment.seqs.len() && is_clear(fragment) {
                fragment.seqs = fragment.seqs[..below].into();
            }
            !fragment.seqs.is_empty()
        });
        SpanSet::new(fragments)
    }
}
