//! Folding against lists of versions: every reader finds the same before and after. Operands are
//! appended, so that order and loss show.

use super::super::operator::MergeOperator;
use super::super::operator::bundled::Append;
use super::*;
use crate::error::BoxError;
use proptest::prelude::*;
use std::collections::BTreeMap;

/// Fails on operands of even numbers, alone or among others, and joins nothing.
struct FailsOnEven;

impl MergeOperator for FailsOnEven {
    fn name(&self) -> &str {
        "fails on even"
    }

    fn merge(
        &self,
        key: &[u8],
        existing: Option<&[u8]>,
        operands: &[&[u8]],
        out: &mut Vec<u8>,
    ) -> Result<(), BoxError> {
        match operands.iter().any(|operand| operand[0] % 2 == 0) {
            true => Err("even".into()),
            false => Append.merge(key, existing, operands, out),
        }
    }
}

/// Appends, and joins only odd operands with one another.
struct JoinsOdd;

impl MergeOperator for JoinsOdd {
    fn name(&self) -> &str {
        "joins odd"
    }

    fn merge(
        &self,
        key: &[u8],
        existing: Option<&[u8]>,
        operands: &[&[u8]],
        out: &mut Vec<u8>,
    ) -> Result<(), BoxError> {
        Append.merge(key, existing, operands, out)
    }

    fn merge_partial(&self, key: &[u8], left: &[u8], right: &[u8], out: &mut Vec<u8>) -> bool {
        let is_odd = left.iter().chain(right).all(|byte| byte % 2 == 1);
        is_odd && Append.merge(key, None, &[left, right], out).is_ok()
    }
}

const KEY: &[u8] = b"key";

fn by(operator: Option<&dyn MergeOperator>) -> Folder<'_> {
    Folder { operator, key: KEY, longest: usize::MAX }
}

/// What a reader at `point` finds, by appending. Range deletes are numbers.
fn answer(versions: &[Folded], spans: &[Lsn], point: Lsn) -> Option<Vec<u8>> {
    let cover = spans.iter().copied().filter(|span| *span < point).max().unwrap_or(0);
    let mut operands: Vec<&[u8]> = Vec::new();
    let mut existing: Option<&[u8]> = None;
    for version in versions.iter().filter(|v| v.seq < point && v.seq > cover) {
        match &version.does {
            Does::Operand(operand) => operands.push(operand),
            Does::Put(value) => existing = Some(value),
            Does::Delete => {}
            Does::PutExpiring(_) | Does::Separated(..) => unreachable!("drawn in `rewrite`"),
        }
        if !is_operand(version) {
            break;
        }
    }
    if operands.is_empty() {
        return existing.map(<[u8]>::to_vec);
    }
    operands.reverse();
    Some(existing.into_iter().chain(operands).collect::<Vec<_>>().concat())
}

fn version(seq: Lsn, does: Does) -> Folded {
    Folded { seq, does, cover: None }
}

fn op(seq: Lsn) -> Folded {
    version(seq, Does::Operand(vec![seq as u8]))
}

fn put(seq: Lsn) -> Folded {
    version(seq, Does::Put(vec![seq as u8]))
}

/// Versions newest first with the covers that `spans` are to them, and what is beneath.
fn covered(mut versions: Vec<Folded>, spans: &[Lsn]) -> (Vec<Folded>, Option<Lsn>) {
    let least_above = |seq: Lsn| spans.iter().copied().filter(|span| *span > seq).min();
    versions.sort_by_key(|version| std::cmp::Reverse(version.seq));
    versions.iter_mut().for_each(|version| version.cover = least_above(version.seq));
    (versions, least_above(0))
}

fn folded(
    versions: &[Folded],
    spans: &[Lsn],
    readers: &ReaderPoints,
    is_alone: bool,
) -> Vec<Folded> {
    let (versions, cover) = covered(versions.to_vec(), spans);
    fold(by(Some(&Append)), readers, (None, versions), Beneath { is_alone, cover })
}

fn sequences() -> impl Strategy<Value = BTreeMap<Lsn, u8>> {
    prop::collection::btree_map(10u64..40, 0u8..10, 0..16)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn every_reader_finds_the_same_before_and_after(
        drawn in sequences(),
        snapshots in prop::collection::btree_set(5u64..45, 0..5),
        horizon in 5u64..45,
        below in prop::option::of((1u64..9, any::<bool>())),
        which in 0usize..4,
        longest in prop_oneof![Just(usize::MAX), 1usize..6],
    ) {
        let mut spans = Vec::new();
        let mut versions = Vec::new();
        for (seq, kind) in drawn {
            match kind {
                0..6 => versions.push(op(seq)),
                6..8 => versions.push(put(seq)),
                8 => versions.push(version(seq, Does::Delete)),
                _ => spans.push(seq),
            }
        }
        let (versions, cover) = covered(versions, &spans);
        let operators: [Option<&dyn MergeOperator>; 4] =
            [Some(&Append), Some(&FailsOnEven), Some(&JoinsOdd), None];
        let readers = ReaderPoints::new(snapshots.iter().copied().collect(), horizon);
        let beneath = Beneath { is_alone: below.is_none(), cover };
        let folder = Folder { longest, ..by(operators[which]) };
        let kept = fold(folder, &readers, (None, versions.clone()), beneath);
        let below = below.map(|(seq, is_operand)| if is_operand { op(seq) } else { put(seq) });
        let with_below = |versions: &[Folded]| {
            let mut all = versions.to_vec();
            all.extend(below.clone());
            all
        };
        for point in snapshots.iter().copied().chain(horizon..50) {
            let before = answer(&with_below(&versions), &spans, point);
            let after = answer(&with_below(&kept), &spans, point);
            prop_assert_eq!(before, after, "at {} of {:?}", point, kept);
        }
        for version in &kept {
            let is_old = versions.iter().any(|old| old.seq == version.seq);
            prop_assert!(is_old, "a sequence number of its own: {:?}", version);
            let stays = version.seq < horizon || versions.contains(version);
            prop_assert!(stays, "folded at or above the horizon: {:?}", version);
            prop_assert!(version.does.stored().1.len() <= longest, "too long: {:?}", version);
        }
    }

    #[test]
    fn an_operator_that_can_leaves_one_version_between_two_reader_points(
        drawn in prop::collection::btree_set(10u64..40, 0..16),
        snapshots in prop::collection::btree_set(5u64..45, 0..5),
        is_alone in any::<bool>(),
    ) {
        let versions: Vec<_> = drawn.iter().copied().map(op).collect();
        let readers = ReaderPoints::new(snapshots.iter().copied().collect(), 60);
        let kept = folded(&versions, &[], &readers, is_alone);
        let intervals: std::collections::BTreeSet<_> =
            drawn.iter().map(|seq| snapshots.iter().filter(|point| *point <= seq).count()).collect();
        prop_assert_eq!(kept.len(), intervals.len());
        prop_assert!(kept.iter().all(|version| is_operand(version) != is_alone));
    }
}

#[test]
fn operands_below_and_above_a_snapshot_are_not_folded_together() {
    let versions = [op(30), op(20), op(10)];
    let readers = ReaderPoints::new(vec![25], 40);
    let kept = folded(&versions, &[], &readers, false);
    let joined = version(20, Does::Operand(vec![10, 20]));
    assert_eq!(kept, [op(30), joined]);
}

#[test]
fn a_put_stays_for_its_reader_below_the_put_that_its_operands_became() {
    let readers = ReaderPoints::new(vec![15], 40);
    let kept = folded(&[op(30), op(20), put(10)], &[], &readers, false);
    assert_eq!(kept, [version(30, Does::Put(vec![10, 20, 30])), put(10)]);
}

#[test]
fn operands_over_a_delete_or_a_range_delete_start_from_nothing() {
    let readers = ReaderPoints::from(40);
    let versions = [op(30), version(20, Does::Delete), put(10)];
    assert_eq!(folded(&versions, &[], &readers, false), [version(30, Does::Put(vec![30]))]);
    let kept = folded(&[op(30), op(10)], &[20], &readers, false);
    assert_eq!(kept, [version(30, Does::Put(vec![30]))]);
}

#[test]
fn without_its_operator_every_operand_stays_with_its_base() {
    let readers = ReaderPoints::from(40);
    let versions = vec![op(30), op(20), put(10), put(5)];
    let beneath = Beneath { is_alone: true, cover: None };
    let kept = fold(by(None), &readers, (None, versions.clone()), beneath);
    assert_eq!(kept, versions[..3]);
}

#[test]
fn operands_that_make_too_much_are_joined_as_far_as_they_may() {
    let versions: Vec<_> = (11..=20).rev().map(op).chain([put(10)]).collect();
    let beneath = Beneath { is_alone: true, cover: None };
    let readers = ReaderPoints::from(40);
    let of = |longest| {
        let folder = Folder { longest, ..by(Some(&Append)) };
        let kept = fold(folder, &readers, (None, versions.clone()), beneath);
        assert_eq!(answer(&kept, &[], 40), answer(&versions, &[], 40));
        kept.iter().map(|version| version.does.stored().1.len()).collect::<Vec<_>>()
    };
    assert_eq!(of(11), [11]);
    assert_eq!(of(10), [10, 1], "the put stays");
    assert_eq!(of(4), [2, 4, 4, 1]);
    assert_eq!(of(1), [1; 11]);
}

#[test]
fn a_hundred_thousand_operands_become_one_value() {
    let versions: Vec<_> = (1..=100_000).rev().map(op).collect();
    let kept = folded(&versions, &[], &ReaderPoints::from(200_000), true);
    assert_eq!(kept.len(), 1);
    assert!(matches!(&kept[0].does, Does::Put(value) if value.len() == 100_000));
}

#[test]
fn an_operand_needs_nothing_from_beneath_a_range_delete() {
    let (versions, cover) = covered(vec![op(30), put(10)], &[20]);
    let beneath = Beneath { is_alone: false, cover };
    let kept = fold(by(None), &ReaderPoints::from(40), (None, versions.clone()), beneath);
    assert_eq!(kept, versions[..1]);
}

#[test]
fn what_a_put_above_hides_from_every_reader_goes() {
    let (versions, cover) = covered(vec![op(20), put(10)], &[]);
    let beneath = Beneath { is_alone: true, cover };
    let above = |newer, readers: ReaderPoints| {
        fold(by(Some(&Append)), &readers, (newer, versions.clone()), beneath)
    };
    assert!(above(Some(30), ReaderPoints::from(40)).is_empty());
    let both = version(20, Does::Put(vec![10, 20]));
    assert_eq!(above(Some(30), ReaderPoints::new(vec![25], 40)), std::slice::from_ref(&both));
    assert_eq!(above(None, ReaderPoints::from(40)), [both]);
}

#[test]
fn a_delete_stays_while_a_reader_may_be_below_it_even_with_nothing_beneath() {
    let versions = [version(20, Does::Delete)];
    assert_eq!(folded(&versions, &[], &ReaderPoints::from(20), true), versions);
    assert!(folded(&versions, &[], &ReaderPoints::from(21), true).is_empty());
}

#[test]
fn a_long_value_is_not_there_once_for_each_reader() {
    let points: Vec<Lsn> = (2..40).collect();
    let readers = ReaderPoints::new(points.clone(), 50);
    let operand = |seq| Folded { seq, does: Does::Operand(vec![seq as u8]), cover: None };
    let base = Folded { seq: 1, does: Does::Put(vec![0; 2 * TWICE_MAX]), cover: None };
    let versions: Vec<_> = (2..=40).rev().map(operand).chain([base]).collect();
    let beneath = Beneath { is_alone: true, cover: None };
    for operator in [&Append as &dyn MergeOperator, &JoinsOdd] {
        let folded = fold(by(Some(operator)), &readers, (None, versions.clone()), beneath);
        let puts = folded.iter().filter(|version| matches!(version.does, Does::Put(_)));
        assert_eq!(puts.count(), 1);
        for point in points.iter().copied().chain(50..52) {
            assert_eq!(answer(&folded, &[], point), answer(&versions, &[], point), "{point}");
        }
        // Once they are gone, all of it becomes one value.
        let folded = fold(by(Some(operator)), &ReaderPoints::newest(), (None, folded), beneath);
        assert!(matches!(&folded[..], [Folded { seq: 40, does: Does::Put(_), .. }]));
    }
}
