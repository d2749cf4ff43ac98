//! Cuts spans into disjoint fragments, while the keys of a rewrite pass in order.
//!
//! The sweep goes over the starts and ends in order, with the spans that hold the current place.
//! Each stretch between two neighbouring places becomes a fragment. Neighbours with the same
//! sequence numbers are joined again, so a span that hides nothing more leaves no trace.
//!
//! A fragment keeps few of the numbers that hold all of it: the least, the newest, and those that
//! hide a version which the rewrite keeps ([`Fragments::note`]). Of these only what some reader's
//! point distinguishes. The other numbers hide what the number before them hides, because the
//! versions between the two are here or nowhere: `docs/internals/range-deletes.md`. So a log that
//! is trimmed at its beginning again and again takes two numbers a fragment, not one for each later
//! trim.

use super::{Fragment, Span, SpanKey, SpanSet, compare_ends, is_below_end};
use crate::env::{Reach, reached_if};
use crate::mvcc::{Lsn, ReaderPoints};
use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};
use std::iter::Peekable;
use std::ops::Bound;

/// The disjoint fragments of spans that come in any order, of which only the newest counts at each
/// place.
pub(crate) fn fragments(spans: Vec<Span>) -> SpanSet {
    Fragments::new(spans, &ReaderPoints::newest()).take_up_to(None)
}

/// The fragments of spans that come in any order, for these readers. Keys pass in ascending order.
#[derive(Clone)]
pub(crate) struct Fragments<'a> {
    readers: &'a ReaderPoints,
    /// The spans that begin behind the place of the sweep, by their start.
    spans: Peekable<std::vec::IntoIter<Span>>,
    /// The place of the sweep: where the current stretch begins.
    at: Option<SpanKey>,
    /// The next place, at which a span begins or ends: where the current stretch ends.
    next: Option<SpanKey>,
    /// The sequence numbers of the spans that hold the stretch, and how many spans have each: parts
    /// of one span may lie in many tables.
    active: BTreeMap<Lsn, usize>,
    ends: BinaryHeap<Reverse<End>>,
    /// The numbers that hide a kept version of a key of the stretch.
    noted: BTreeSet<Lsn>,
    /// The fragments before the place, as far as they were not taken.
    made: VecDeque<Fragment>,
}

/// The place at which the sweep drops a span: the span's end.
#[derive(Clone)]
struct End {
    end: Option<SpanKey>,
    seq: Lsn,
}

impl Ord for End {
    fn cmp(&self, other: &Self) -> Ordering {
        compare_ends(self.end.as_deref(), other.end.as_deref()).then(self.seq.cmp(&other.seq))
    }
}

impl PartialOrd for End {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for End {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for End {}

impl<'a> Fragments<'a> {
    pub(crate) fn new(mut spans: Vec<Span>, readers: &'a ReaderPoints) -> Fragments<'a> {
        spans.sort_unstable_by(|a, b| a.start.cmp(&b.start));
        let mut fragments = Fragments {
            readers,
            spans: spans.into_iter().peekable(),
            at: None,
            next: None,
            active: BTreeMap::new(),
            ends: BinaryHeap::new(),
            noted: BTreeSet::new(),
            made: VecDeque::new(),
        };
        fragments.next = fragments.find_next();
        fragments
    }

    /// The least sequence number above `seq` of what covers `key`, as far as readers tell numbers
    /// apart.
    pub(crate) fn least_above(&mut self, key: &[u8], seq: Lsn) -> Option<Lsn> {
        self.pass(key);
        let above = self.active.range((Bound::Excluded(seq), Bound::Unbounded));
        let least = above.map(|(seq, _)| *seq).next()?;
        Some(self.told_apart(least))
    }

    /// Notes a version that stays: what hides it stays, too.
    pub(crate) fn note(&mut self, key: &[u8], seq: Lsn) {
        if let Some(cover) = self.least_above(key, seq) {
            debug_assert!(cover > seq, "a range delete hides what is newer");
            if self.noted.last() != Some(&cover) {
                self.noted.insert(cover);
            }
        }
    }

    /// Takes the fragments that lie before `end`, and were not taken. What reaches across is cut
    /// there. All noted keys must lie before `end`.
    pub(crate) fn take_up_to(&mut self, end: Option<&[u8]>) -> SpanSet {
        while self.next.as_ref().is_some_and(|next| is_below_end(next, end)) {
            self.step();
        }
        let is_within = match (&self.at, end) {
            (Some(at), Some(end)) => **at < *end && self.next.as_deref() != Some(end),
            _ => false,
        };
        let mut is_cut = is_within && !self.active.is_empty();
        self.emit_up_to(end.map(SpanKey::from));
        let mut taken = Vec::new();
        while self.made.front().is_some_and(|first| is_below_end(&first.start, end))
            && let Some(first) = self.made.pop_front()
        {
            taken.push(first);
        }
        if let Some(last) = taken.last_mut()
            && let Some(end) = end
            && last.end.as_ref().is_none_or(|of_last| **of_last > *end)
        {
            let (start, seqs) = (SpanKey::from(end), last.seqs.clone());
            let of_last = last.end.replace(start.clone());
            self.made.push_front(Fragment { start, end: of_last, seqs });
            is_cut = true;
        }
        reached_if(Reach::SpanCut, || is_cut);
        SpanSet::new(taken)
    }

    /// Moves on to the stretch that holds `key`.
    fn pass(&mut self, key: &[u8]) {
        debug_assert!(
            self.noted.is_empty() || self.at.as_ref().is_some_and(|at| **at <= *key),
            "keys pass in ascending order"
        );
        while self.next.as_ref().is_some_and(|next| **next <= *key) {
            self.step();
        }
    }

    /// Moves on by a stretch.
    fn step(&mut self) {
        let Some(place) = self.next.take() else { return };
        debug_assert!(self.at.as_ref().is_none_or(|at| *at <= place), "the sweep goes forward");
        self.emit_up_to(Some(place.clone()));
        while let Some(End { end, seq }) = self.ends.peek().map(|Reverse(end)| end)
            && end.as_ref().is_some_and(|end| *end <= place)
        {
            if let Some(count) = self.active.get_mut(seq) {
                *count -= 1;
                if *count == 0 {
                    self.active.remove(seq);
                }
            }
            self.ends.pop();
        }
        while let Some(Span { start, end, seq }) = self.spans.next_if(|span| span.start == place) {
            if is_below_end(&start, end.as_deref()) {
                *self.active.entry(seq).or_default() += 1;
                self.ends.push(Reverse(End { end, seq }));
            }
        }
        self.next = self.find_next();
    }

    /// The next start or end behind the place.
    fn find_next(&mut self) -> Option<SpanKey> {
        let start = self.spans.peek().map(|span| span.start.clone());
        let end = self.ends.peek().and_then(|Reverse(End { end, .. })| end.clone());
        match (start, end) {
            (Some(start), Some(end)) => Some(start.min(end)),
            (one, other) => one.or(other),
        }
    }

    /// Ends the stretch at `end`, where the next one begins.
    fn emit_up_to(&mut self, end: Option<SpanKey>) {
        let start = match &self.at {
            Some(at) if is_below_end(at, end.as_deref()) => at.clone(),
            // Nothing was seen yet, or the place lies behind the end.
            at => {
                self.at = at.clone().or(end);
                return;
            }
        };
        let seqs = self.kept();
        (self.at, self.noted) = (end.clone(), BTreeSet::new());
        if seqs.is_empty() {
            return;
        }
        if let Some(last) = self.made.back_mut()
            && last.end.as_ref() == Some(&start)
            && *last.seqs == *seqs
        {
            last.end = end;
            return;
        }
        self.made.push_back(Fragment { start, end, seqs: seqs.into() });
    }

    /// The sequence numbers, descending, that the fragment of the stretch keeps.
    fn kept(&self) -> Vec<Lsn> {
        let (Some(least), Some(newest)) = (self.active.keys().next(), self.active.keys().last())
        else {
            return Vec::new();
        };
        let mut kept = vec![*newest];
        kept.extend(self.noted.iter().rev());
        kept.push(self.told_apart(*least));
        kept.dedup();
        debug_assert!(kept.is_sorted_by(|a, b| a > b), "{kept:?} for {:?}", self.readers);
        kept
    }

    /// The least number from `seq` on that readers tell apart: the newest one that the first reader
    /// sees who sees `seq`.
    fn told_apart(&self, seq: Lsn) -> Lsn {
        let seen = self.active.range(..self.readers.least_above(seq)).next_back();
        seen.map_or(seq, |(newest, _)| *newest)
    }
}
