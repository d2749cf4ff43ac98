//! The range deletes of a write set.
//!
//! A range delete takes out of the set what was written to its keys before. So whatever the set has
//! on a key came later than every range delete that holds the key, and the order of the two needs
//! no number. Range deletes that overlap or touch become one: those of a family are disjoint, and
//! between each two there is a key.
//!
//! A range delete costs four searches, one move for each leaf of operations that it meets, and a
//! step for each operation and each range delete that it removes. Each of those was added by one
//! call. So each call costs a few searches on average, however much the deleted ranges overlap.

use super::index::{Entry, Index, Spot};
use super::interval::Interval;
use super::writes::{Body, Chunks, Operation, Writes};
use crate::cursor::key_head;
use crate::env::{Plant, planted};
use crate::format::{FamilyId, OpKind};
use crate::span::{compare_ends, is_below_end, meets};

/// Where a range delete of a write set begins, and where it ends; an end that is empty is none.
pub(super) type Ends<'a> = (&'a [u8], &'a [u8]);

fn end_of(end: &[u8]) -> Option<&[u8]> {
    (!end.is_empty()).then_some(end)
}

/// The spot of the first entry of a family at or above a key.
fn at_or_above(index: &Index, chunks: &Chunks, family: FamilyId, key: &[u8]) -> Spot {
    match index.find(chunks, family, key) {
        Ok(spot) | Err(spot) => spot,
    }
}

/// The spot behind the last entry of a family.
fn end_of_family(index: &Index, chunks: &Chunks, family: FamilyId) -> Spot {
    match family.checked_add(1) {
        Some(next) => at_or_above(index, chunks, next, &[]),
        None => index.end(),
    }
}

impl Writes {
    #[inline]
    pub(super) fn has_spans(&self) -> bool {
        self.body().is_some_and(|body| body.spans.len() > 0)
    }

    /// The range deletes, by family and start.
    pub(super) fn spans(&self) -> impl Iterator<Item = Operation<'_>> {
        let body = self.body().into_iter();
        body.flat_map(|body| body.spans.iter().map(|entry| body.operation(entry)))
    }

    /// The range delete that holds a key.
    #[inline]
    pub(super) fn span_at(&self, family: FamilyId, key: &[u8]) -> Option<Operation<'_>> {
        self.body()?.span_at(family, key)
    }

    /// True if an operation is on a key of the range.
    pub(super) fn meets(&self, family: FamilyId, range: &Interval) -> bool {
        self.body()
            .is_some_and(|body| body.has_key_in(family, range) || body.has_span_in(family, range))
    }

    /// How many operations a range delete would take out or change.
    pub(super) fn replaced_by(&self, family: FamilyId, ends: Ends<'_>) -> usize {
        let Some(body) = self.body() else { return 0 };
        let (from, to) = body.keys_in(family, ends);
        let (first, last) = body.spans_at(family, ends);
        body.index.count_between(from, to) + body.spans.count_between(first, last)
    }

    /// Adds a range delete. Calls `note` with each operation that it sets or takes out, and with
    /// what was there before. With `keeps_old`, the bytes of replaced operations stay.
    pub(super) fn delete_range(
        &mut self,
        family: FamilyId,
        (start, end): Ends<'_>,
        keeps_old: bool,
        mut note: impl FnMut(Entry, Option<Entry>),
    ) {
        debug_assert!(end.is_empty() || start < end, "a range delete ends before it begins");
        let body = self.body_mut();
        let (from, to) = body.keys_in(family, (start, end));
        if !planted(Plant::RangeDeleteKeepsWrites) {
            body.index.remove_between(from, to, |entry| note(entry, Some(entry)));
        }
        let (first, last) = body.spans_at(family, (start, end));
        let Body { spans, chunks, .. } = body;
        let met = spans.count_between(first, last);
        let kind = OpKind::DeleteRange;
        if met == 0 {
            let (head, key, value) = (key_head(start), chunks.add(start), chunks.add(end));
            let entry = Entry { head, family, key, value, kind };
            spans.insert(first, entry);
            return note(entry, None);
        }
        let first = spans.at_or_after(first).expect("it meets one");
        let old = *spans.get(first).expect("it meets one");
        let newest = *spans.before(last).and_then(|spot| spans.get(spot)).expect("it meets one");
        let keeps_start = chunks.bytes(old.key) <= start;
        let keeps_end = compare_ends(end_of(chunks.bytes(newest.value)), end_of(end)).is_ge();
        if met == 1 && keeps_start && keeps_end {
            return;
        }
        let value = match (keeps_end, keeps_start && !keeps_old) {
            (true, _) => newest.value,
            (false, true) => chunks.overwrite(old.value, end).unwrap_or_else(|| chunks.add(end)),
            (false, false) => chunks.add(end),
        };
        let others = Spot { slot: first.slot + usize::from(keeps_start), ..first };
        spans.remove_between(others, last, |entry| note(entry, Some(entry)));
        if keeps_start {
            let entry = spans.entry_mut(first);
            entry.value = value;
            return note(*entry, Some(old));
        }
        let entry = Entry { head: key_head(start), family, key: chunks.add(start), value, kind };
        spans.insert(at_or_above(spans, chunks, family, start), entry);
        note(entry, None);
    }
}

impl Body {
    /// The range delete that holds a key.
    #[inline]
    pub(super) fn span_at(&self, family: FamilyId, key: &[u8]) -> Option<Operation<'_>> {
        if self.spans.len() == 0 { None } else { self.find_span_at(family, key) }
    }

    fn find_span_at(&self, family: FamilyId, key: &[u8]) -> Option<Operation<'_>> {
        let spot = match self.spans.find(&self.chunks, family, key) {
            Ok(spot) => spot,
            Err(spot) => self.spans.before(spot)?,
        };
        let span = self.operation(self.spans.get(spot)?);
        let holds = span.family == family && is_below_end(key, end_of(span.value));
        debug_assert!(!holds || span.key <= key, "a range delete holds no key below its start");
        holds.then_some(span)
    }

    /// Where the operations on keys between two ends begin, and where they end.
    fn keys_in(&self, family: FamilyId, (start, end): Ends<'_>) -> (Spot, Spot) {
        let Body { index, chunks, .. } = self;
        let behind = match end_of(end) {
            Some(end) => at_or_above(index, chunks, family, end),
            None => end_of_family(index, chunks, family),
        };
        (at_or_above(index, chunks, family, start), behind)
    }

    /// Where the range deletes begin that overlap or touch what is between two ends, and where they
    /// end. If there is none, a range delete that begins at the start belongs there.
    fn spans_at(&self, family: FamilyId, (start, end): Ends<'_>) -> (Spot, Spot) {
        let Body { spans, chunks, .. } = self;
        let touches = |spot: &Spot| {
            let span = spans.get(*spot).map(|entry| self.operation(entry));
            span.is_some_and(|span| {
                span.family == family && end_of(span.value).is_none_or(|end| start <= end)
            })
        };
        let first = match spans.find(chunks, family, start) {
            Ok(spot) => spot,
            Err(spot) => spans.before(spot).filter(touches).unwrap_or(spot),
        };
        let last = match end_of(end).map(|end| spans.find(chunks, family, end)) {
            Some(Ok(Spot { leaf, slot })) => Spot { leaf, slot: slot + 1 },
            Some(Err(spot)) => spot,
            None => end_of_family(spans, chunks, family),
        };
        (first, last)
    }

    fn has_key_in(&self, family: FamilyId, range: &Interval) -> bool {
        let start = match self.index.find(&self.chunks, family, &range.start.key) {
            Ok(Spot { leaf, slot }) if range.start.is_after => Spot { leaf, slot: slot + 1 },
            Ok(spot) | Err(spot) => spot,
        };
        let entry = self.index.at_or_after(start).and_then(|spot| self.index.get(spot));
        entry.is_some_and(|entry| {
            entry.family == family && !range.ends_before(self.chunks.bytes(entry.key))
        })
    }

    fn has_span_in(&self, family: FamilyId, range: &Interval) -> bool {
        let (lower, upper) = range.bounds();
        let is_in = |spot: Spot| {
            let span = self.spans.get(spot).map(|entry| self.operation(entry));
            span.is_some_and(|span| {
                span.family == family && meets((span.key, end_of(span.value)), lower, upper)
            })
        };
        let next = at_or_above(&self.spans, &self.chunks, family, &range.start.key);
        self.spans.before(next).is_some_and(is_in)
            || self.spans.at_or_after(next).is_some_and(is_in)
    }
}

#[cfg(test)]
impl Body {
    /// What always holds.
    pub(super) fn check_spans(&self) {
        let spans: Vec<_> = self.spans.iter().map(|entry| self.operation(entry)).collect();
        for span in &spans {
            assert!(span.kind.is_span() && (span.value.is_empty() || span.key < span.value));
        }
        for pair in spans.windows(2).filter(|pair| pair[0].family == pair[1].family) {
            assert!(!pair[0].value.is_empty() && pair[0].value < pair[1].key, "{spans:?}");
        }
        assert!(self.index.iter().all(|entry| !entry.kind.is_span()));
    }
}
