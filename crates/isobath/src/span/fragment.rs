//! Cuts spans into disjoint fragments.
//!
//! The sweep goes over the starts and ends in order, with the spans that hold the current place.
//! Each stretch between two neighbouring places becomes a fragment. The fragment keeps only
//! sequence numbers that some reader's point distinguishes. Neighbours with the same sequence
//! numbers are joined again, so a span that hides nothing more leaves no trace.

use super::{Fragment, Span, SpanKey, SpanSet, compare_ends};
use crate::mvcc::{Lsn, ReaderPoints};
use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BinaryHeap};

/// The disjoint fragments of spans that come in any order, for these readers.
pub(crate) fn fragments(mut spans: Vec<Span>, readers: &ReaderPoints) -> SpanSet {
    spans.sort_unstable_by(|a, b| a.start.cmp(&b.start));
    let mut sweep = Sweep::default();
    let mut spans = spans.into_iter().peekable();
    let mut made: Vec<Fragment> = Vec::new();
    loop {
        let next_start = spans.peek().map(|span| span.start.clone());
        let next_end = sweep.ends.peek().and_then(|Reverse(End { end, .. })| end.clone());
        let place = match (next_start, next_end) {
            (Some(start), Some(end)) => start.min(end),
            (Some(place), None) | (None, Some(place)) => place,
            (None, None) => break,
        };
        sweep.emit_up_to(Some(&place), readers, &mut made);
        sweep.leave(&place);
        while let Some(span) = spans.next_if(|span| span.start == place) {
            sweep.enter(span);
        }
        sweep.at = Some(place);
    }
    sweep.emit_up_to(None, readers, &mut made);
    SpanSet::new(made)
}

/// The spans that hold the place of the sweep.
#[derive(Default)]
struct Sweep {
    at: Option<SpanKey>,
    /// Sequence numbers, and how many spans have each: parts of one span may lie in many tables.
    active: BTreeMap<Lsn, usize>,
    ends: BinaryHeap<Reverse<End>>,
}

/// The place at which the sweep drops a span: the span's end.
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

impl Sweep {
    fn enter(&mut self, Span { start, end, seq }: Span) {
        if end.as_ref().is_none_or(|end| start < *end) {
            *self.active.entry(seq).or_default() += 1;
            self.ends.push(Reverse(End { end, seq }));
        }
    }

    /// Takes out the spans that end at or before the place.
    fn leave(&mut self, place: &SpanKey) {
        debug_assert!(self.at.as_ref().is_none_or(|at| at < place), "the sweep goes forward");
        while let Some(Reverse(End { end, seq })) = self.ends.peek()
            && end.as_ref().is_some_and(|end| end <= place)
        {
            if let Some(count) = self.active.get_mut(seq) {
                *count -= 1;
                if *count == 0 {
                    self.active.remove(seq);
                }
            }
            self.ends.pop();
        }
    }

    /// Adds the stretch from the last place up to this one.
    fn emit_up_to(
        &self,
        place: Option<&SpanKey>,
        readers: &ReaderPoints,
        made: &mut Vec<Fragment>,
    ) {
        let Some(start) = self.at.clone().filter(|_| !self.active.is_empty()) else { return };
        let seqs = told_apart(&self.active, readers);
        let end = place.cloned();
        if let Some(last) = made.last_mut()
            && last.end.as_ref() == Some(&start)
            && last.seqs == seqs
        {
            last.end = end;
            return;
        }
        debug_assert!(!seqs.is_empty(), "a reader to come sees the newest span");
        made.push(Fragment { start, end, seqs });
    }
}

/// The sequence numbers, descending, that some reader needs: for each reader point the newest below
/// it. Takes no longer for those that no reader tells apart, however many there are.
fn told_apart(active: &BTreeMap<Lsn, usize>, readers: &ReaderPoints) -> Box<[Lsn]> {
    let newest_below = |point: Lsn| active.range(..point).next_back().map(|(seq, _)| *seq);
    let above_horizon = active.range(readers.horizon()..).rev().map(|(seq, _)| *seq);
    let mut kept: Vec<Lsn> = above_horizon.collect();
    kept.extend(newest_below(readers.horizon()));
    let registered = readers.registered().iter().filter(|point| **point < readers.horizon());
    kept.extend(registered.rev().filter_map(|point| newest_below(*point)));
    kept.dedup();
    debug_assert!(kept.is_sorted_by(|a, b| a > b), "{kept:?} for {readers:?}");
    kept.into()
}
