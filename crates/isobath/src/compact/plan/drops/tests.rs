//! Which slices leave unread: by hand, and for drawn trees against each key and each reader.

use super::super::fixtures::Model;
use super::*;
use crate::span::Span;
use crate::span::tests::all_fragments;
use proptest::prelude::*;

/// Range deletes `[start, end)` at a sequence; an end of 0 stands for none.
fn set(spans: &[(u64, u64, Lsn)]) -> SpanSet {
    let span = |&(start, end, seq): &(u64, u64, Lsn)| Span {
        start: start.to_be_bytes().into(),
        end: (end > 0).then(|| end.to_be_bytes().into()),
        seq,
    };
    all_fragments(spans.iter().map(span).collect(), &ReaderPoints::from(0))
}

/// A tree with one slice of keys 10 to 20 and sequences 5 to 9 in level 3.
fn one() -> Model {
    let mut model = Model::new();
    let slice = model.slice((10, 20), 11, 0, (5, 9));
    model.tree = model.tree.with(&[], vec![(3, slice)]).unwrap();
    model
}

fn dropped(model: &Model, readers: &ReaderPoints, covers: &[SpanSet]) -> Vec<u64> {
    let covers: Vec<&SpanSet> = covers.iter().collect();
    match plan_drop(&model.tree, &Busy::default(), readers, &covers) {
        Plan::Drop(dropped) => dropped.slices.iter().map(|(_, slice)| slice.meta.file).collect(),
        Plan::DoNothing => Vec::new(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_slice_leaves_if_newer_range_deletes_cover_all_its_keys() {
    let (model, readers) = (one(), ReaderPoints::from(100));
    let leaves = |spans: &[(u64, u64, Lsn)]| !dropped(&model, &readers, &[set(spans)]).is_empty();
    assert!(leaves(&[(10, 21, 10)]));
    assert!(leaves(&[(0, 0, 10)]));
    assert!(leaves(&[(0, 15, 30), (15, 40, 20)]), "two that touch");
    assert!(leaves(&[(0, 15, 9), (0, 0, 20)]), "an older one below does not matter");
    assert!(!leaves(&[(10, 20, 10)]), "the last key is left");
    assert!(!leaves(&[(11, 30, 10)]), "the first key is left");
    assert!(!leaves(&[(0, 15, 30), (16, 40, 30)]), "a key between is left");
    assert!(!leaves(&[(0, 30, 9)]), "it is no newer than the newest version");
    assert!(!leaves(&[(0, 15, 30), (15, 40, 9)]), "half of it is not newer");
    let two = [set(&[(0, 15, 30)]), set(&[(15, 40, 20)])];
    assert_eq!(dropped(&model, &readers, &two), [1], "of two slices");
}

#[test]
fn a_slice_stays_while_a_reader_sees_something_of_it() {
    let model = one();
    let leaves = |registered: &[Lsn], horizon| {
        let readers = ReaderPoints::new(registered.to_vec(), horizon);
        !dropped(&model, &readers, &[set(&[(0, 15, 30), (15, 40, 20)])]).is_empty()
    };
    assert!(leaves(&[], 31));
    assert!(!leaves(&[], 30), "a reader to come may begin before the range delete");
    assert!(!leaves(&[], 0), "as with a history");
    for point in 6..=30 {
        assert!(!leaves(&[point], 31), "{point}");
    }
    assert!(leaves(&[1, 5, 31, 40], 50), "they see nothing of it, or the range deletes");
}

#[test]
fn a_slice_that_a_job_reads_stays_and_one_that_leaves_is_read_by_no_job() {
    let (mut model, readers) = (one(), ReaderPoints::from(100));
    let set = set(&[(0, 0, 50)]);
    let mut busy = Busy::default();
    let planned = plan_drop(&model.tree, &busy, &readers, &[&set]);
    let job = busy.begin(&planned);
    assert!(busy.reads(1));
    assert!(matches!(plan_drop(&model.tree, &busy, &readers, &[&set]), Plan::DoNothing));
    let everything = ExtentRef::default();
    assert!((0..6).all(|level| !busy.lands_between(level, 6, &everything)));
    let done = model.run(&planned, &super::super::Hints::default());
    model.install(done);
    busy.end(job);
    assert!(model.tree.is_empty());
}

/// Pebble #720: a range delete is noted, and then its slice is compacted with all that it covers,
/// with keys that are newer, and with an old version that a reader kept. What was noted must not
/// take the output away.
#[test]
fn a_range_delete_noted_before_a_compaction_spares_what_the_compaction_has_written() {
    let (mut model, readers) = (one(), ReaderPoints::from(300));
    let noted = [set(&[(0, 30, 100)])];
    assert_eq!(dropped(&model, &readers, &noted), [1]);
    for seqs in [(5, 200), (101, 200), (100, 101)] {
        let output = model.slice((10, 20), 22, 0, seqs);
        let inputs: Vec<_> =
            model.tree.iter().map(|(level, slice)| (level, slice.meta.file)).collect();
        model.tree = model.tree.with(&inputs, vec![(3, output)]).unwrap();
        assert!(dropped(&model, &readers, &noted).is_empty(), "{seqs:?}");
    }
}

/// A slice of a drawn tree: keys, sequences.
type DrawnSlice = ((u64, u64), (Lsn, Lsn));

fn drawn_slices() -> impl Strategy<Value = Vec<DrawnSlice>> {
    let one = ((0u64..12, 0u64..12), (1u64..40, 0u64..6));
    let ordered =
        |((a, b), (seq, more)): ((u64, u64), (u64, u64))| ((a.min(b), a.max(b)), (seq, seq + more));
    prop::collection::vec(one.prop_map(ordered), 1..6)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn what_leaves_is_what_no_reader_sees_key_by_key(
        slices in drawn_slices(),
        sets in prop::collection::vec(prop::collection::vec((0u64..13, 0u64..14, 1u64..50), 1..4), 0..3),
        registered in prop::collection::btree_set(1u64..50, 0..4),
        horizon in 20u64..55,
    ) {
        let mut model = Model::new();
        for (at, (keys, seqs)) in slices.iter().enumerate() {
            let slice = model.slice(*keys, 1, 0, *seqs);
            model.tree = model.tree.with(&[], vec![(at + 1, slice)]).unwrap();
        }
        let sets: Vec<SpanSet> = sets
            .iter()
            .map(|spans| spans.iter().filter(|(start, end, _)| *end == 0 || start < end).copied())
            .map(|spans| set(&spans.collect::<Vec<_>>()))
            .collect();
        let readers = ReaderPoints::new(registered.iter().copied().collect(), horizon);
        let leaving = dropped(&model, &readers, &sets);
        for (at, ((first, last), (oldest, newest))) in slices.iter().enumerate() {
            let points = || registered.iter().copied().chain(horizon..60);
            let is_hidden = |key: u64, point: Lsn| {
                let cover = |set: &SpanSet| set.newest_at(&key.to_be_bytes(), point);
                point <= *oldest || sets.iter().any(|set| cover(set) > *newest)
            };
            // The model has no keys between these, but a slice may: each stands for those behind.
            let unseen = (*first..=*last).all(|key| points().all(|point| is_hidden(key, point)));
            let leaves = leaving.contains(&(at as u64 + 1));
            prop_assert!(!leaves || unseen, "slice {} of {:?} is seen", at + 1, slices);
        }
    }
}
