//! Spans against a model that lists, for each of a few keys, what covers it.

use super::*;
use crate::mvcc::ReaderPoints;
use proptest::prelude::*;
use std::collections::BTreeSet;

/// Keys at, before and behind every key that a drawn span can begin or end at.
fn probes() -> Vec<Vec<u8>> {
    let mut all = vec![Vec::new()];
    for a in 0..5u8 {
        all.push(vec![a]);
        all.push(vec![a, 0]);
        (0..5).for_each(|b| all.push(vec![a, b]));
    }
    all.push(vec![255; 3]);
    all
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(0u8..5, 0..3)
}

pub(crate) fn bound() -> impl Strategy<Value = Bound<Vec<u8>>> {
    prop_oneof![
        3 => key().prop_map(Bound::Included),
        3 => key().prop_map(Bound::Excluded),
        1 => Just(Bound::Unbounded)
    ]
}

/// Spans that hold at least one key, with sequence numbers of their own.
pub(crate) fn spans(max: usize) -> impl Strategy<Value = Vec<Span>> {
    proptest::collection::vec((bound(), bound(), any::<bool>()), 0..max).prop_map(|drawn| {
        let spans = drawn.into_iter().enumerate().filter_map(|(at, (lower, upper, _))| {
            let (start, end) =
                within(lower.as_ref().map(Vec::as_slice), upper.as_ref().map(Vec::as_slice))?;
            let seq = (at as u64 * 37) % 83 + 10;
            Some(Span { start: start.into(), end: end.map(Into::into), seq })
        });
        spans.collect()
    })
}

/// The fragments with all sequence numbers that readers tell apart, whatever they hide.
pub(crate) fn all_fragments(spans: Vec<Span>, readers: &ReaderPoints) -> SpanSet {
    let ends = spans.iter().filter_map(|span| span.end.clone());
    let places: BTreeSet<SpanKey> =
        spans.iter().map(|span| span.start.clone()).chain(ends).collect();
    let places: Vec<SpanKey> = places.into_iter().collect();
    let mut made: Vec<Fragment> = Vec::new();
    for (at, start) in places.iter().enumerate() {
        let seqs = spans.iter().filter(|span| holds(span, start)).map(|span| span.seq);
        let seqs: BTreeSet<Lsn> = seqs.collect();
        let newer = |seq: Lsn| seqs.range(seq + 1..).next();
        let is_seen =
            |seq: &Lsn| newer(*seq).is_none_or(|newer| readers.least_above(*seq) <= *newer);
        let seqs: Box<[Lsn]> = seqs.iter().rev().copied().filter(is_seen).collect();
        let (start, end) = (start.clone(), places.get(at + 1).cloned());
        match made.last_mut() {
            Some(last) if last.seqs == seqs && last.end.as_ref() == Some(&start) => last.end = end,
            _ if seqs.is_empty() => {}
            _ => made.push(Fragment { start, end, seqs }),
        }
    }
    SpanSet::new(made)
}

fn holds(span: &Span, key: &[u8]) -> bool {
    *span.start <= *key && is_below_end(key, span.end.as_deref())
}

/// What the spans hide of `key` at `point`.
fn newest(spans: &[Span], key: &[u8], point: Lsn) -> Lsn {
    let seqs = spans.iter().filter(|span| holds(span, key) && span.seq < point);
    seqs.map(|span| span.seq).max().unwrap_or(0)
}

/// Any point may be read.
fn all_points() -> ReaderPoints {
    ReaderPoints::new(Vec::new(), 0)
}

proptest! {
    #[test]
    fn fragments_cover_what_their_spans_cover_at_every_point(spans in spans(12)) {
        let set = all_fragments(spans.clone(), &all_points());
        prop_assert!(set.is_sound());
        for key in probes() {
            for point in 0..100 {
                prop_assert_eq!(set.newest_at(&key, point), newest(&spans, &key, point));
                let above = spans.iter().filter(|span| holds(span, &key) && span.seq > point);
                let above = above.map(|span| span.seq).min();
                prop_assert_eq!(set.least_above(&key, point), above);
                let cover = set.cover(&key, point);
                let is_there = cover.is_none_or(|cover| {
                    *cover.start <= *key && is_below_end(&key, cover.end.as_deref())
                });
                prop_assert!(is_there);
            }
        }
    }

    #[test]
    fn readers_find_the_same_in_fragments_thinned_for_them(
        spans in spans(12),
        registered in proptest::collection::btree_set(0u64..100, 0..4),
        horizon in 0u64..120,
    ) {
        let registered: Vec<Lsn> = registered.into_iter().collect();
        let readers = ReaderPoints::new(registered.clone(), horizon);
        let set = all_fragments(spans.clone(), &readers);
        for key in probes() {
            for point in registered.iter().copied().chain(horizon..horizon + 100) {
                prop_assert_eq!(set.newest_at(&key, point), newest(&spans, &key, point));
            }
        }
    }

    #[test]
    fn pieces_of_a_set_put_together_are_the_set(
        spans in spans(12),
        cuts in proptest::collection::btree_set(key(), 0..4),
    ) {
        let set = all_fragments(spans, &all_points());
        let mut pieces = Vec::new();
        let mut start = Vec::new();
        for cut in cuts.into_iter().filter(|cut| !cut.is_empty()) {
            let piece = set.truncated(&start, Some(&cut));
            let is_within = piece.fragments().iter().all(|fragment| {
                *fragment.start >= *start && fragment.end.as_ref().is_some_and(|end| **end <= *cut)
            });
            prop_assert!(is_within);
            pieces.extend(piece.spans());
            start = cut;
        }
        pieces.extend(set.truncated(&start, None).spans());
        prop_assert_eq!(all_fragments(pieces, &all_points()), set);
    }

    #[test]
    fn the_fragments_within_bounds_are_those_that_meet_them(
        spans in spans(12),
        lower in bound(),
        upper in bound(),
    ) {
        let set = all_fragments(spans, &all_points());
        let bounds = (lower.as_ref().map(Vec::as_slice), upper.as_ref().map(Vec::as_slice));
        let found = set.within(bounds.0, bounds.1);
        for fragment in set.fragments() {
            let holds_a_probe = probes().iter().any(|key| {
                use std::ops::RangeBounds;
                set.at(key) == Some(fragment) && (lower.clone(), upper.clone()).contains(key)
            });
            prop_assert!(!holds_a_probe || found.contains(fragment));
        }
    }

    #[test]
    fn bounds_become_the_span_that_has_the_same_keys(lower in bound(), upper in bound()) {
        use std::ops::RangeBounds;
        let range = within(lower.as_ref().map(Vec::as_slice), upper.as_ref().map(Vec::as_slice));
        for key in probes() {
            let is_in = range.as_ref().is_some_and(|(start, end)| {
                *start <= key && is_below_end(&key, end.as_deref())
            });
            prop_assert_eq!(is_in, (lower.clone(), upper.clone()).contains(&key), "{:?}", key);
        }
    }
}

#[test]
fn spans_that_say_nothing_new_leave_no_trace() {
    let span = |start: &str, end: &str, seq| Span {
        start: start.as_bytes().into(),
        end: Some(end.as_bytes().into()),
        seq,
    };
    let many = (0..100).map(|n| span("a", "m", 10 + n)).chain([span("m", "z", 109)]).collect();
    let set = fragments(many);
    assert_eq!(set.spans().collect::<Vec<_>>(), [span("a", "z", 109)]);
}

#[test]
fn what_no_reader_tells_apart_and_nothing_lies_beneath_goes() {
    let span = |start: &str, end: &str, seq| Span {
        start: start.as_bytes().into(),
        end: Some(end.as_bytes().into()),
        seq,
    };
    let spans = vec![span("a", "m", 10), span("a", "z", 20), span("b", "c", 40)];
    let readers = ReaderPoints::new(vec![15], 30);
    let set = all_fragments(spans, &readers);
    let idle = set.clone().without_idle(30, |fragment| fragment.end.as_deref() != Some(b"z"));
    // Only "m".."z" is not clear beneath; "b".."c" has a newer span, which stays.
    assert_eq!(idle.spans().collect::<Vec<_>>(), [span("b", "c", 40), span("m", "z", 20)]);
    let kept = set.clone().without_idle(15, |_| true);
    assert_eq!(kept.newest_at(b"d", 15), 0);
    assert_eq!(kept.newest_at(b"d", 30), 20);
    assert_eq!(set.clone().without_idle(5, |_| true), set);
}

#[test]
fn nested_spans_above_an_old_snapshot_are_one_fragment_sequence_each() {
    let nested = (0..20_000u32).map(|n| Span {
        start: [][..].into(),
        end: Some(n.to_be_bytes().to_vec().into()),
        seq: 1000 + u64::from(n),
    });
    let readers = ReaderPoints::new(vec![5, 900], 1 << 40);
    let set = Fragments::new(nested.skip(1).collect(), &readers).take_up_to(None);
    assert_eq!(set.spans().collect::<Vec<_>>().len(), 1);
    assert_eq!(set.newest_at(&9u32.to_be_bytes(), Lsn::MAX), 1000 + 19_999);
}

#[test]
fn keys_of_the_greatest_length_have_a_next_key_but_for_the_greatest_key() {
    let longest = vec![7; MAX_KEY_LEN];
    let (start, end) = within(Bound::Included(&longest), Bound::Included(&longest)).unwrap();
    let end = end.unwrap();
    assert_eq!((start.len(), end.len()), (MAX_KEY_LEN, MAX_KEY_LEN));
    assert!(end > longest && end[MAX_KEY_LEN - 1] == 8);
    let greatest = vec![255; MAX_KEY_LEN];
    assert_eq!(within(Bound::Excluded(&greatest), Bound::Unbounded), None);
    assert_eq!(within(Bound::Included(&greatest), Bound::Included(&greatest)).unwrap().1, None);
    let mut carried = greatest.clone();
    carried[0] = 3;
    assert_eq!(within(Bound::Excluded(&carried), Bound::Unbounded).unwrap().0, [4]);
}

#[test]
fn ranges_without_a_key_are_no_span() {
    for (lower, upper) in [
        (Bound::Included(&b"b"[..]), Bound::Excluded(&b"b"[..])),
        (Bound::Included(b"b"), Bound::Included(b"a")),
        (Bound::Excluded(b"b"), Bound::Included(b"b")),
        (Bound::Excluded(b"b"), Bound::Excluded(b"b\0")),
        (Bound::Unbounded, Bound::Excluded(b"")),
    ] {
        assert_eq!(within(lower, upper), None, "{lower:?} {upper:?}");
    }
}

mod rewritten;
