//! Tests what a reader sees against a slow and simple computation of it.

use super::super::MergeCursor;
use super::super::fixtures::{ListCursor, Version, sort_versions};
use super::super::merge::tests::{key, sources};
use super::*;
use crate::mvcc::OpKind;
use crate::span::{Cover, Covers};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::ops::RangeBounds;

mod endless;

type Seen = BTreeMap<Vec<u8>, Vec<u8>>;

/// A range delete as it is drawn: its source, how much newer it is than the oldest version there,
/// and its bounds.
type DrawnCover = (usize, u64, Vec<u8>, Option<Vec<u8>>);

/// Range deletes of several sources, each with the number of its source.
#[derive(Clone, Debug, Default)]
struct Drawn(Vec<(Cover, usize)>);

impl Drawn {
    /// One for each of these, if it is not empty.
    fn of(count: usize, drawn: Vec<DrawnCover>) -> Drawn {
        let cover = |(source, newer, start, end): DrawnCover| {
            let is_empty = source >= count || end.as_ref().is_some_and(|end| *end <= start);
            let seq = (count.saturating_sub(source) * 10) as u64 + newer;
            let cover = Cover { seq, start: start.into(), end: end.map(Into::into) };
            (!is_empty).then_some((cover, source))
        };
        Drawn(drawn.into_iter().filter_map(cover).collect())
    }

    fn newest(&self, key: &[u8], point: Lsn) -> Option<&(Cover, usize)> {
        let covers = self.0.iter().filter(|(cover, _)| cover.seq < point && cover.holds(key));
        covers.max_by_key(|(cover, _)| cover.seq)
    }
}

impl Covers for Drawn {
    fn cover(&self, key: &[u8], point: Lsn) -> Result<Option<(Cover, usize)>> {
        Ok(self.newest(key, point).cloned())
    }
}

/// What is left of this once range deletes have hidden what is older.
fn uncovered(mut seen: Seen, versions: &[Version], covers: &Drawn, point: Lsn) -> Seen {
    seen.retain(|key, _| {
        let of_key = versions.iter().filter(|version| version.key == *key && version.seq < point);
        let newest = of_key.map(|version| version.seq).max();
        covers
            .newest(key, point)
            .is_none_or(|(cover, _)| newest.is_some_and(|seq| cover.seq <= seq))
    });
    seen
}

/// What a reader at `point` must see, computed the slow way.
fn seen(versions: &[Version], point: Lsn, lower: Bound<&[u8]>, upper: Bound<&[u8]>) -> Seen {
    let mut newest: BTreeMap<&[u8], &Version> = BTreeMap::new();
    for version in versions.iter().filter(|version| version.seq < point) {
        let best = newest.entry(&version.key).or_insert(version);
        if version.seq > best.seq {
            *best = version;
        }
    }
    let inside = |key: &[u8]| RangeBounds::<[u8]>::contains(&(lower, upper), key);
    let shown =
        newest.values().filter(|version| version.kind == OpKind::Put && inside(&version.key));
    shown.map(|version| (version.key.clone(), version.value.clone())).collect()
}

#[derive(Clone, Debug)]
enum Move {
    First,
    Last,
    Seek(Vec<u8>),
    SeekForPrev(Vec<u8>),
    Next,
    Prev,
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let one = prop_oneof![
        1 => Just(Move::First),
        1 => Just(Move::Last),
        3 => key().prop_map(Move::Seek),
        3 => key().prop_map(Move::SeekForPrev),
        6 => Just(Move::Next),
        6 => Just(Move::Prev),
    ];
    prop::collection::vec(one, 1..50)
}

fn bound() -> impl Strategy<Value = Bound<Vec<u8>>> {
    prop_oneof![
        Just(Bound::Unbounded),
        key().prop_map(Bound::Included),
        key().prop_map(Bound::Excluded),
    ]
}

fn expect(seen: &Seen, at: &Option<Vec<u8>>, step: &Move) -> Option<Vec<u8>> {
    let key = match step {
        Move::First => seen.keys().next(),
        Move::Last => seen.keys().next_back(),
        Move::Seek(key) => seen.range(key.clone()..).next().map(|pair| pair.0),
        Move::SeekForPrev(key) => seen.range(..=key.clone()).next_back().map(|pair| pair.0),
        Move::Next => {
            let after = (Bound::Excluded(at.clone()?), Bound::Unbounded);
            seen.range(after).next().map(|pair| pair.0)
        }
        Move::Prev => seen.range(..at.clone()?).next_back().map(|pair| pair.0),
    };
    key.cloned()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn a_reader_sees_exactly_its_point_within_its_bounds(
        sources in sources(5),
        point in 0u64..60,
        lower in bound(),
        upper in bound(),
        moves in moves(),
    ) {
        let (lower, upper) = (lower.as_ref().map(Vec::as_slice), upper.as_ref().map(Vec::as_slice));
        let seen = seen(&sources.concat(), point, lower, upper);
        let merge = MergeCursor::new(sources.into_iter().map(ListCursor::new).collect());
        let mut cursor = VisibleCursor::new(merge, point, lower, upper);
        let mut at = None;
        for step in moves {
            apply(&mut cursor, &step).unwrap();
            at = expect(&seen, &at, &step);
            let expected = at.as_ref().map(|key| (key.as_slice(), seen[key].as_slice()));
            prop_assert_eq!(cursor.entry(), expected, "after {:?}", step);
        }
    }

    /// The first `own` sources are those of a transaction, of which gaps say nothing. Each range
    /// that is drawn becomes a gap if the reader sees none of its keys in the other sources. Each
    /// source may have range deletes.
    #[test]
    fn skips_change_nothing_that_is_shown_and_each_stretch_that_is_found_is_empty(
        sources in sources(5),
        covers in prop::collection::vec((0usize..5, 0u64..5, key(), prop::option::of(key())), 0..4),
        own in 0usize..3,
        point in 0u64..60,
        lower in bound(),
        upper in bound(),
        ranges in prop::collection::vec((key(), key()), 0..8),
        moves in moves(),
    ) {
        let (lower, upper) = (lower.as_ref().map(Vec::as_slice), upper.as_ref().map(Vec::as_slice));
        let (own, all) = (own.min(sources.len()), sources.concat());
        let covers = Drawn::of(sources.len(), covers);
        let seen = uncovered(seen(&all, point, lower, upper), &all, &covers, point);
        let (first, last, others) = (Bound::Unbounded, Bound::Unbounded, sources[own..].concat());
        let foreign = covers.0.iter().filter(|(_, source)| *source >= own);
        let foreign = Drawn(foreign.cloned().collect());
        let of_others = self::seen(&others, point, first, last);
        let of_others = uncovered(of_others, &others, &foreign, point);
        let mut gaps = Gaps::default();
        let is_gap = |(start, end): &(Vec<u8>, Vec<u8>)| {
            start < end && of_others.range(start.clone()..end.clone()).next().is_none()
        };
        for (start, end) in ranges.into_iter().filter(is_gap) {
            gaps.announce(&Stretch::of(&start, &end));
            gaps.touched(point, point);
        }
        let merge = MergeCursor::new(sources.into_iter().map(ListCursor::new).collect());
        let mut cursor = VisibleCursor::new(merge, point, lower, upper);
        cursor.jumping(Some(Arc::new(gaps)), own);
        cursor.hiding((!covers.0.is_empty()).then(|| Box::new(covers) as Box<dyn Covers>));
        let mut at = None;
        for step in moves {
            apply(&mut cursor, &step).unwrap();
            at = expect(&seen, &at, &step);
            let expected = at.as_ref().map(|key| (key.as_slice(), seen[key].as_slice()));
            prop_assert_eq!(cursor.entry(), expected, "after {:?}", step);
            prop_assert!(own == 0 || !cursor.has_stretch());
            if let Some(Stretch { start, end, .. }) = cursor.take_stretch() {
                prop_assert!(start < end);
                let shown = of_others.range(start.clone()..end.clone()).next();
                prop_assert!(shown.is_none(), "{:?} in {:?}..{:?}", shown, start, end);
            }
        }
    }

    #[test]
    fn a_failure_below_is_passed_on_and_leaves_no_entry(
        sources in sources(3),
        point in 0u64..40,
        lower in bound(),
        upper in bound(),
        moves in moves(),
        fail_after in 0usize..12,
    ) {
        let (lower, upper) = (lower.as_ref().map(Vec::as_slice), upper.as_ref().map(Vec::as_slice));
        let mut list = ListCursor::new(sources.concat());
        list.fail_after = Some(fail_after);
        let mut cursor = VisibleCursor::new(list, point, lower, upper);
        for step in moves {
            let before = cursor.inner().failed;
            let moved = apply(&mut cursor, &step);
            prop_assert_eq!(moved.is_err(), cursor.inner().failed > before, "{:?}", step);
            if moved.is_err() {
                prop_assert_eq!(cursor.entry(), None);
                prop_assert_eq!(cursor.inner().failed, before + 1, "it went on");
                cursor.inner.fail_after = Some(fail_after);
            }
        }
    }
}

fn apply<C: Cursor>(cursor: &mut VisibleCursor<C>, step: &Move) -> Result<()> {
    match step {
        Move::First => cursor.seek_first(),
        Move::Last => cursor.seek_last(),
        Move::Seek(key) => cursor.seek(key),
        Move::SeekForPrev(key) => cursor.seek_for_prev(key),
        Move::Next => cursor.next(),
        Move::Prev => cursor.prev(),
    }
}

#[test]
fn a_delete_hides_the_key_only_from_points_above_it() {
    let versions = vec![Version::put(b"k", 5, b"v"), Version::delete(b"k", 7)];
    for (point, shown) in [(5, false), (6, true), (7, true), (8, false)] {
        let list = ListCursor::new(versions.clone());
        let mut cursor = VisibleCursor::new(list, point, Bound::Unbounded, Bound::Unbounded);
        cursor.seek_first().unwrap();
        assert_eq!(cursor.entry().is_some(), shown, "at {point}");
    }
}

#[test]
fn nothing_below_is_asked_to_move_without_an_entry() {
    // The list refuses to move without an entry, and has no entry at or beside either bound.
    let versions = vec![Version::put(b"k", 5, b"v")];
    for versions in [vec![], versions] {
        for (lower, upper) in [
            (Bound::Included(&b"l"[..]), Bound::Included(&b"j"[..])),
            (Bound::Excluded(&b"k"[..]), Bound::Excluded(&b"k"[..])),
        ] {
            let mut cursor = VisibleCursor::new(ListCursor::new(versions.clone()), 9, lower, upper);
            for step in [Move::First, Move::Next, Move::Last, Move::Prev] {
                apply(&mut cursor, &step).unwrap();
                assert_eq!(cursor.entry(), None, "{step:?}");
            }
        }
        let list = ListCursor::new(versions.clone());
        let mut cursor = VisibleCursor::new(list, 9, Bound::Unbounded, Bound::Unbounded);
        for step in [Move::First, Move::Last] {
            apply(&mut cursor, &step).unwrap();
            assert_eq!(cursor.entry().is_some(), !versions.is_empty(), "{step:?}");
        }
    }
}

/// A range delete over all keys from b to x.
struct OneCover;

impl Covers for OneCover {
    fn cover(&self, key: &[u8], _: Lsn) -> Result<Option<(Cover, usize)>> {
        let cover = Cover { seq: 100, start: b"b"[..].into(), end: Some(b"y"[..].into()) };
        Ok(cover.holds(key).then_some((cover, 0)))
    }
}

#[test]
fn a_failure_among_hidden_keys_is_passed_on_in_both_directions() {
    let versions: Vec<_> = (b'a'..=b'z').map(|key| Version::put([key], 5, b"v")).collect();
    for is_back in [false, true] {
        let mut failures = 0;
        for fail_after in 0..60 {
            let mut list = ListCursor::new(versions.clone());
            list.fail_after = Some(fail_after);
            let mut cursor = VisibleCursor::new(list, 200, Bound::Unbounded, Bound::Unbounded);
            cursor.hiding(Some(Box::new(OneCover)));
            let (first, step) =
                if is_back { (Move::Last, Move::Prev) } else { (Move::First, Move::Next) };
            let mut keys = Vec::new();
            let mut walked = apply(&mut cursor, &first);
            while let (Ok(()), Some((key, _))) = (&walked, cursor.entry()) {
                keys.extend_from_slice(key);
                walked = apply(&mut cursor, &step);
            }
            assert_eq!(walked.is_err(), cursor.inner().failed > 0, "{is_back}, {fail_after}");
            failures += usize::from(walked.is_err());
            let expected = if is_back { b"zya" } else { b"ayz" };
            assert!(walked.is_err() || keys == expected, "{is_back}, {fail_after}: {keys:?}");
        }
        assert!((20..60).contains(&failures), "{failures}");
    }
}
