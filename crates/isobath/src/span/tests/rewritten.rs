//! Fragments that a rewrite makes: they hide what all numbers of their spans hide, and are few.

use super::*;

/// A version: its key and its sequence number.
type Version = (Vec<u8>, Lsn);

/// The versions that readers need, and the range deletes, as a flush or a compaction writes them
/// into outputs that end at `cuts`.
fn rewritten(
    spans: Vec<Span>,
    versions: &BTreeSet<Version>,
    readers: &ReaderPoints,
    cuts: &BTreeSet<Vec<u8>>,
) -> (Vec<Fragment>, BTreeSet<Version>) {
    let mut fragments = Fragments::new(spans, readers);
    let (mut kept, mut made) = (BTreeSet::new(), Vec::new());
    let mut cuts = cuts.iter().peekable();
    let keys: BTreeSet<&Vec<u8>> = versions.iter().map(|(key, _)| key).collect();
    for key in keys {
        let mut newer = None;
        for (_, seq) in versions.iter().rev().filter(|(of, _)| of == key) {
            let cover = fragments.least_above(key, *seq);
            if readers.see(*seq, newer.into_iter().chain(cover).min()) {
                while let Some(cut) = cuts.next_if(|cut| *cut <= key) {
                    made.extend_from_slice(fragments.take_up_to(Some(cut)).fragments());
                }
                fragments.note(key, *seq);
                kept.insert((key.clone(), *seq));
            }
            newer = Some(*seq);
        }
    }
    for cut in cuts {
        made.extend_from_slice(fragments.take_up_to(Some(cut)).fragments());
    }
    made.extend_from_slice(fragments.take_up_to(None).fragments());
    (made, kept)
}

fn versions() -> impl Strategy<Value = Vec<Vec<u8>>> {
    proptest::collection::vec(key(), 0..20)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    /// Epochs are flushed, and merged one after the other while the horizon rises.
    #[test]
    fn fragments_hide_what_all_numbers_of_their_spans_hide(
        spans in spans(24),
        versions in versions(),
        registered in proptest::collection::btree_set(0u64..100, 0..3),
        horizons in proptest::collection::vec(0u64..120, 3),
        cuts in proptest::collection::btree_set(key(), 0..4),
    ) {
        // Every other number is free of spans.
        let spans = spans.iter().map(|span| Span { seq: span.seq * 2, ..span.clone() });
        let spans: Vec<Span> = spans.collect();
        let versions = versions.into_iter().enumerate();
        let all: BTreeSet<Version> =
            versions.map(|(at, key)| (key, (at as Lsn * 29) % 83 * 2 + 21)).collect();
        let mut horizons = horizons.iter().map(|horizon| horizon * 2).collect::<Vec<_>>();
        horizons.sort_unstable();
        let registered: Vec<Lsn> = registered.into_iter().map(|point| point * 2).collect();
        let (mut held, mut kept) = (Vec::new(), BTreeSet::new());
        for (epoch, horizon) in horizons.iter().enumerate() {
            let readers = ReaderPoints::new(registered.clone(), *horizon);
            let (from, below) = (epoch as Lsn * 70, epoch as Lsn * 70 + 70);
            let is_of = |seq: Lsn| from <= seq && seq < below;
            let here = spans.iter().filter(|span| is_of(span.seq)).cloned().collect();
            let fresh = all.iter().filter(|(_, seq)| is_of(*seq)).cloned().collect();
            let flushed = rewritten(here, &fresh, &ReaderPoints::new(registered.clone(), horizons[0]), &cuts);
            kept.extend(flushed.1);
            let inputs = SpanSet::new(held).spans().chain(SpanSet::new(flushed.0).spans()).collect();
            (held, kept) = rewritten(inputs, &kept, &readers, &cuts);
            let set = SpanSet::new(held.clone());
            let seen: Vec<Span> = spans.iter().filter(|span| span.seq < below).cloned().collect();
            for key in probes() {
                prop_assert_eq!(set.newest_at(&key, Lsn::MAX), newest(&seen, &key, Lsn::MAX));
                // One version lies beneath.
                let here = kept.iter().filter(|(of, _)| *of == key).map(|(_, seq)| *seq);
                for seq in here.chain([1]) {
                    for point in registered.iter().copied().chain(*horizon..*horizon + 400) {
                        if seq < point {
                            let is_hidden = seq < newest(&seen, &key, point);
                            prop_assert_eq!(seq < set.newest_at(&key, point), is_hidden);
                        }
                    }
                    // No reader tells the two apart.
                    let of_all = all_fragments(seen.clone(), &readers).least_above(&key, seq);
                    let first = |above: Option<Lsn>| above.map(|seq| readers.least_above(seq));
                    prop_assert_eq!(first(set.least_above(&key, seq)), first(of_all));
                }
            }
        }
    }
}

/// Range deletes that begin at one place, each of which ends further on.
fn trims(numbers: std::ops::Range<u32>) -> Vec<Span> {
    let trim = |n: u32| Span {
        start: [][..].into(),
        end: Some((n + 1).to_be_bytes().into()),
        seq: 1000 + 10 * u64::from(n),
    };
    numbers.map(trim).collect()
}

fn numbers(fragments: &[Fragment]) -> usize {
    fragments.iter().map(|fragment| fragment.seqs.len()).sum()
}

#[test]
fn trims_within_a_history_take_two_numbers_each() {
    const COUNT: u32 = 10_000;
    // Keys are trimmed a while after they were written.
    let log: BTreeSet<Version> =
        (0..COUNT).map(|n| (n.to_be_bytes().to_vec(), 900 + 10 * u64::from(n))).collect();
    let (history, no_cuts) = (ReaderPoints::from(0), BTreeSet::new());
    let mut fragments = Fragments::new(trims(0..COUNT), &history);
    log.iter().for_each(|(key, seq)| fragments.note(key, *seq));
    let made = fragments.take_up_to(None).fragments().to_vec();
    assert_eq!((made.len(), numbers(&made)), (COUNT as usize, 2 * COUNT as usize - 1));
    // Ten tables of a tenth each, put together.
    let tenth = |nth: u32| {
        let trims = trims(nth * COUNT / 10..(nth + 1) * COUNT / 10);
        SpanSet::new(rewritten(trims, &BTreeSet::new(), &history, &no_cuts).0)
    };
    let tables: Vec<SpanSet> = (0..10).map(tenth).collect();
    let spans: Vec<Span> = tables.iter().flat_map(SpanSet::spans).collect();
    assert!(spans.len() <= 2 * COUNT as usize);
    assert_eq!(rewritten(spans, &BTreeSet::new(), &history, &no_cuts).0, made);
    // Below the horizon one is left.
    let later = ReaderPoints::from(1 << 40);
    let spans = SpanSet::new(made).spans().collect();
    let (made, _) = rewritten(spans, &BTreeSet::new(), &later, &no_cuts);
    assert_eq!((made.len(), numbers(&made)), (1, 1));
}

#[test]
fn a_number_stays_for_each_version_that_was_written_between_trims() {
    let spans =
        (1..=5u8).map(|n| Span { start: b"a"[..].into(), end: None, seq: u64::from(n) * 10 });
    let spans: Vec<Span> = spans.collect();
    let kept = |written: &[(&str, Lsn)]| {
        let history = ReaderPoints::from(0);
        let mut fragments = Fragments::new(spans.clone(), &history);
        written.iter().for_each(|(key, seq)| fragments.note(key.as_bytes(), *seq));
        fragments.take_up_to(None).fragments()[0].seqs.to_vec()
    };
    assert_eq!(kept(&[]), [50, 10]);
    assert_eq!(kept(&[("b", 5)]), [50, 10]);
    assert_eq!(kept(&[("b", 25), ("b", 15), ("c", 22), ("d", 55)]), [50, 30, 20, 10]);
    assert_eq!(kept(&[("b", 45)]), [50, 10]);
}
