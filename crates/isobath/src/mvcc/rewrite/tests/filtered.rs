//! What a compaction filter is asked about, and what readers find after it has decided.

use super::*;
use crate::mvcc::{FilterEntry, FilterVerdict, Filtering, Tally};
use std::sync::Arc;

/// Rewrites with a filter.
struct Filtered<'a> {
    kept: Kept<'a>,
    filtering: Filtering,
    tally: Tally,
}

impl Rewrite<ListCursor> for Filtered<'_> {
    fn is_alone(&mut self, key: &[u8]) -> bool {
        self.kept.is_alone(key)
    }

    fn cover_above(&mut self, key: &[u8], seq: Lsn) -> Option<Lsn> {
        self.kept.cover_above(key, seq)
    }

    fn merging(&self) -> Option<&Merging> {
        self.kept.merging.as_ref()
    }

    fn filters(&self) -> bool {
        true
    }

    fn judge(&mut self, put: &Entry<'_>) -> FilterVerdict {
        self.filtering.judge(put, u64::MAX, &mut self.tally)
    }

    fn add(&mut self, entry: Entry<'_>, enters: bool) -> Result<()> {
        self.kept.add(entry, enters)
    }
}

/// Decides by the bytes of a value.
fn verdict(value: &[u8]) -> FilterVerdict {
    let sum = value.iter().fold(0u8, |sum, byte| sum.wrapping_add(*byte));
    match sum % 4 {
        0 => FilterVerdict::Remove,
        1 => FilterVerdict::Replace(vec![200 + sum % 16, sum]),
        _ => FilterVerdict::Keep,
    }
}

/// What a value becomes that is judged.
fn judged(value: Vec<u8>) -> Option<Vec<u8>> {
    match verdict(&value) {
        FilterVerdict::Keep => Some(value),
        FilterVerdict::Remove => None,
        FilterVerdict::Replace(new) => Some(new),
    }
}

fn run<'a>(versions: &[Version], readers: &ReaderPoints, kept: Kept<'a>) -> Filtered<'a> {
    let filter = Arc::new(|entry: FilterEntry<'_>| verdict(entry.value));
    let filtering = Filtering { filter, family: "f".into(), level: 1 };
    let mut to = Filtered { kept, filtering, tally: Tally::default() };
    let mut cursor = ListCursor::new(versions.to_vec());
    cursor.seek_first().unwrap();
    rewrite(&mut cursor, readers, &mut to).unwrap();
    to
}

/// What a reader to come at `point` may find of a key: what it found before, or what the filter
/// makes of it. With operands both may be, as it is judged only once it is folded.
fn possible(
    versions: &[Version],
    spans: &[Lsn],
    (key, point): (u8, Lsn),
    readers: &ReaderPoints,
    has_operator: bool,
) -> Vec<Option<Vec<u8>>> {
    let before = answer(key, versions, spans, point);
    let cover = spans.iter().copied().filter(|span| *span < point).max().unwrap_or(0);
    let of_key: Vec<_> = versions.iter().filter(|v| *v.key == [key]).collect();
    let top = of_key.iter().find(|v| v.seq < point && v.seq > cover);
    let (Some(value), Some(top)) = (before.clone(), top) else { return vec![before] };
    if top.seq >= readers.horizon() {
        return vec![before];
    }
    let newer = of_key.iter().map(|v| v.seq).filter(|seq| *seq > top.seq);
    let covers = spans.iter().copied().filter(|span| *span > top.seq);
    let next = newer.chain(covers).min();
    let is_seen = |at: &Lsn| *at > top.seq && next.is_none_or(|next| *at <= next);
    if of_key.iter().any(|v| v.kind.is_operand()) {
        let may_fold = has_operator || !top.kind.is_operand();
        return if may_fold { vec![before, judged(value)] } else { vec![before] };
    }
    match readers.registered().iter().any(is_seen) {
        true => vec![before],
        false => vec![judged(value)],
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(5000))]

    #[test]
    fn a_filter_judges_what_readers_to_come_see_and_changes_nothing_for_those_who_are_there(
        drawn in prop::collection::btree_map((0u8..2, 10u64..40), 0u8..16, 0..16),
        has_operands in any::<bool>(),
        lifetime in 0u64..40,
        mut spans in prop::collection::vec(5u64..45, 0..2),
        snapshots in prop::collection::btree_set(5u64..45, 0..3),
        horizon in 5u64..45,
        beneath in prop::option::of(0u8..4),
        has_operator in any::<bool>(),
    ) {
        spans.retain(|span| drawn.keys().all(|(_, seq)| seq != span));
        let operand = if has_operands { OpKind::Merge } else { OpKind::Put };
        let kinds = [operand; 4].into_iter().chain([OpKind::Put; 5]).chain([OpKind::Delete]);
        let kinds: Vec<_> = kinds.chain([OpKind::PutExpiring; 6]).collect();
        let version = |key: u8, seq: Lsn, kind: OpKind| drawn_version(key, seq, kind, lifetime);
        let mut versions: Vec<_> = drawn
            .iter()
            .map(|((key, seq), kind)| version(*key, *seq, kinds[*kind as usize]))
            .collect();
        sort_versions(&mut versions);
        let readers = ReaderPoints::new(snapshots.iter().copied().collect(), horizon);
        let oldest = readers.oldest();
        let readers = readers.at_time(time_at(oldest));
        let merging = has_operator.then(|| Merging::new("isobath.append", &Operators::default()));
        let is_alone = beneath.is_none();
        let kept = Kept { merging, spans: &spans, is_alone, unreadable: 1, added: Vec::new() };
        let Filtered { kept, tally, .. } = run(&versions, &readers, kept);
        let of_beneath = [operand, OpKind::Put, OpKind::Delete, OpKind::PutExpiring];
        let beneath = beneath.map(|kind| of_beneath[kind as usize]);
        let with_beneath = |versions: &[Version]| {
            let of_both = beneath.iter().flat_map(|kind| (0..2).map(|key| version(key, 2, *kind)));
            let mut all: Vec<_> = versions.iter().cloned().chain(of_both).collect();
            sort_versions(&mut all);
            all
        };
        let (before, after) = (with_beneath(&versions), with_beneath(&kept.added));
        for key in 0..2 {
            for point in snapshots.iter().copied().filter(|point| *point < horizon) {
                let (was, is) =
                    (answer(key, &before, &spans, point), answer(key, &after, &spans, point));
                prop_assert_eq!(was, is, "{} at {}, of {:?}", key, point, kept.added);
            }
            for point in horizon..50 {
                let at = (key, point);
                let mut possible = possible(&before, &spans, at, &readers, has_operator);
                let of_beneath = before.iter().find(|v| *v.key == [key] && v.seq < point);
                if of_beneath.is_some_and(|v| v.seq == 2) {
                    // It is no input.
                    possible = vec![answer(key, &before, &spans, point)];
                }
                let is = answer(key, &after, &spans, point);
                prop_assert!(
                    possible.contains(&is),
                    "{} at {}: {:?}, not of {:?}; of {:?}", key, point, is, possible, kept.added
                );
            }
        }
        let seqs: Vec<_> = versions.iter().map(|v| (v.key.clone(), v.seq)).collect();
        prop_assert!(kept.added.iter().all(|v| seqs.contains(&(v.key.clone(), v.seq))));
        prop_assert_eq!(tally.changed_from.is_some(), tally.removed + tally.replaced > 0);
        let seen = |from: &Lsn| snapshots.iter().any(|point| point == from);
        prop_assert!(!tally.changed_from.iter().any(|from| *from >= horizon && seen(from)));
    }
}

/// What is left of a put with this value between two points of readers.
fn left_of(value: &[u8], registered: Vec<Lsn>, is_alone: bool) -> Vec<(Lsn, OpKind, Vec<u8>)> {
    let versions = [Version::put(b"k", 20, value), Version::put(b"k", 10, b"old")];
    let kept = Kept { merging: None, spans: &[], is_alone, unreadable: 1, added: Vec::new() };
    let done = run(&versions, &ReaderPoints::new(registered, 30), kept);
    done.kept.added.into_iter().map(|v| (v.seq, v.kind, v.value.to_vec())).collect()
}

#[test]
fn a_value_that_is_removed_becomes_a_delete_which_leaves_where_nothing_is_beneath() {
    let delete = (20, OpKind::Delete, Vec::new());
    assert_eq!(left_of(&[4], Vec::new(), false), std::slice::from_ref(&delete));
    assert_eq!(left_of(&[4], Vec::new(), true), []);
    // A reader sees the old value, so the delete stays as well.
    let old = (10, OpKind::Put, b"old".to_vec());
    assert_eq!(left_of(&[4], vec![20], true), [delete, old.clone()]);
    // The reader sees the value itself.
    assert_eq!(left_of(&[4], vec![21], true), [(20, OpKind::Put, vec![4])]);
    let replaced = (20, OpKind::Put, vec![205, 5]);
    assert_eq!(left_of(&[5], vec![15], true), [replaced, old]);
    assert_eq!(left_of(&[6], Vec::new(), true), [(20, OpKind::Put, vec![6])]);
}

#[test]
fn a_value_made_of_operands_is_judged_and_one_beneath_operands_is_not() {
    let operand = |seq: Lsn, value: u8| Version {
        key: b"k"[..].into(),
        seq,
        kind: OpKind::Merge,
        value: vec![value],
    };
    let left = |operator: &str, versions: &[Version], horizon| {
        let merging = Some(Merging::new(operator, &Operators::default()));
        let kept = Kept { merging, spans: &[], is_alone: true, unreadable: 1, added: Vec::new() };
        let done = run(versions, &ReaderPoints::from(horizon), kept);
        let left: Vec<_> = done.kept.added.iter().map(|v| (v.seq, v.kind)).collect();
        (left, done.tally.kept + done.tally.removed + done.tally.replaced)
    };
    let versions = [operand(12, 3), operand(11, 3), Version::put(b"k", 10, [2])];
    assert_eq!(left("isobath.append", &versions, 20), (vec![], 1), "2 + 3 + 3");
    let all = vec![(12, OpKind::Merge), (11, OpKind::Merge), (10, OpKind::Put)];
    assert_eq!(left("unknown", &versions, 20), (all, 0));
    // The newest operand is above a point to which a reader may come.
    let some = vec![(12, OpKind::Merge), (11, OpKind::Put)];
    assert_eq!(left("isobath.append", &versions, 12), (some, 0));
}
