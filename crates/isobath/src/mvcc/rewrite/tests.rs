//! What flushes and compactions keep of drawn versions, and that every reader finds the same after.

use super::*;
use crate::cursor::fixtures::{ListCursor, Version, sort_versions};
use crate::error::Error;
use crate::mvcc::{Effect, Expiring, Lsn, Operators};
use proptest::prelude::*;
use std::path::Path;

/// Records the verdict for each version, and the versions that stay.
#[derive(Default)]
struct Told {
    noted: Vec<(Lsn, Verdict, bool)>,
    added: Vec<(Lsn, bool)>,
}

impl Rewrite<ListCursor> for Told {
    fn is_alone(&mut self, _key: &[u8]) -> bool {
        true
    }

    fn note(&mut self, verdict: Verdict, entry: &Entry<'_>, enters: bool) {
        self.noted.push((entry.seq, verdict, enters));
    }

    fn add(&mut self, entry: Entry<'_>, enters: bool) -> Result<()> {
        assert!(self.noted.last().is_some_and(|(seq, _, _)| *seq == entry.seq));
        self.added.push((entry.seq, enters));
        Ok(())
    }
}

#[test]
fn what_becomes_of_each_version_that_is_judged_is_told_first() {
    use Verdict::*;
    let put = |key: &[u8], seq| Version::put(key, seq, b"value");
    // There are readers at 20, and at any point from 40 on.
    let keys = [
        put(b"a", 45),
        put(b"a", 30),
        put(b"a", 25),
        put(b"a", 19),
        put(b"a", 9),
        Version::delete(b"b", 18),
        put(b"b", 17),
        put(b"c", 16),
        put(b"c", 15),
    ];
    let mut cursor = ListCursor::new(keys.to_vec());
    cursor.seek_first().unwrap();
    let mut told = Told::default();
    rewrite(&mut cursor, &ReaderPoints::new(vec![20], 40), &mut told).unwrap();
    let noted = [
        (45, Keep, true),
        (30, Keep, false),
        (25, Drop, false),
        (19, KeepLast, false),
        (18, DropRest, true),
        (16, KeepLast, true),
    ];
    assert_eq!(told.noted, noted);
    assert_eq!(told.added, [(45, true), (30, false), (19, false), (16, true)]);
}

/// A range delete at 47 covers all keys, and no reader is between it and the newest versions.
#[test]
fn the_first_version_that_stays_enters_its_key_though_newer_ones_went() {
    struct Covered(Vec<(Lsn, bool)>);

    impl Rewrite<ListCursor> for Covered {
        fn is_alone(&mut self, _key: &[u8]) -> bool {
            false
        }

        fn cover_above(&mut self, _key: &[u8], seq: Lsn) -> Option<Lsn> {
            (seq < 47).then_some(47)
        }

        fn add(&mut self, entry: Entry<'_>, enters: bool) -> Result<()> {
            self.0.push((entry.seq, enters));
            Ok(())
        }
    }

    let put = |key: &[u8], seq| Version::put(key, seq, b"value");
    let keys = [put(b"a", 46), put(b"a", 19), put(b"a", 9), put(b"b", 45), put(b"b", 8)];
    let mut cursor = ListCursor::new(keys.to_vec());
    cursor.seek_first().unwrap();
    let mut covered = Covered(Vec::new());
    rewrite(&mut cursor, &ReaderPoints::new(vec![10, 20], 50), &mut covered).unwrap();
    assert_eq!(covered.0, [(19, true), (9, false), (8, true)]);
}

/// Versions of one key with range deletes, above at most one version beneath.
struct Kept<'a> {
    merging: Option<Merging>,
    spans: &'a [Lsn],
    is_alone: bool,
    /// Values in blob files cannot be read whose sequence number this divides.
    unreadable: Lsn,
    added: Vec<Version>,
}

impl Rewrite<ListCursor> for Kept<'_> {
    fn is_alone(&mut self, _key: &[u8]) -> bool {
        self.is_alone
    }

    fn cover_above(&mut self, _key: &[u8], seq: Lsn) -> Option<Lsn> {
        self.spans.iter().copied().filter(|span| *span > seq).min()
    }

    fn merging(&self) -> Option<&Merging> {
        self.merging.as_ref()
    }

    fn fetch(&mut self, separated: &Entry<'_>) -> Result<Vec<u8>> {
        match separated.seq.is_multiple_of(self.unreadable) {
            true => Err(Error::corruption(Path::new("blob"), 0, "damaged")),
            false => Ok(fetched(separated.value_part()).to_vec()),
        }
    }

    fn add(&mut self, entry: Entry<'_>, enters: bool) -> Result<()> {
        assert_eq!(enters, self.added.last().is_none_or(|last| *last.key != *entry.key));
        let Entry { key, seq, kind, value } = entry;
        self.added.push(Version { key: key.into(), seq, kind, value: value.into() });
        Ok(())
    }
}

/// Before a value that is taken for one in a blob file.
const APART: u8 = 0xff;

fn fetched(address: &[u8]) -> &[u8] {
    assert_eq!(address[0], APART);
    &address[1..]
}

/// Time goes as points do.
fn time_at(point: Lsn) -> u64 {
    1000 + point
}

/// What a reader at `point` finds, by appending.
fn answer(key: u8, versions: &[Version], spans: &[Lsn], point: Lsn) -> Option<Vec<u8>> {
    let cover = spans.iter().copied().filter(|span| *span < point).max().unwrap_or(0);
    let mut operands: Vec<&[u8]> = Vec::new();
    let of_key = versions.iter().filter(|v| *v.key == [key] && v.seq < point && v.seq > cover);
    for version in of_key {
        match version.kind.effect() {
            Effect::Operand => operands.push(&version.value),
            Effect::Value => {
                operands.push(&version.value);
                break;
            }
            Effect::Expiring => {
                let ends = Expiring::split(&version.value).unwrap();
                if ends.lives_at(time_at(point)) {
                    let is_apart = version.kind.is_separated();
                    operands.push(if is_apart { fetched(ends.value) } else { ends.value });
                }
                break;
            }
            Effect::Absent => break,
            Effect::Separated => {
                operands.push(fetched(&version.value));
                break;
            }
        }
    }
    operands.reverse();
    (!operands.is_empty()).then(|| operands.concat())
}

#[test]
fn a_failure_among_operands_is_passed_on_wherever_it_comes() {
    let version = |seq, kind| Version { key: b"a"[..].into(), seq, kind, value: b"x"[..].into() };
    let versions = [(9, OpKind::Merge), (8, OpKind::Merge), (7, OpKind::Put)];
    let versions = versions.map(|(seq, kind)| version(seq, kind)).to_vec();
    for fail_after in 0..2 {
        let mut cursor = ListCursor::new(versions.clone());
        cursor.seek_first().unwrap();
        cursor.fail_after = Some(fail_after);
        let merging = Some(Merging::new("isobath.append", &Operators::default()));
        let mut kept =
            Kept { merging, spans: &[], is_alone: true, unreadable: 1, added: Vec::new() };
        rewrite(&mut cursor, &ReaderPoints::newest(), &mut kept).unwrap_err();
        assert!(kept.added.is_empty(), "{fail_after}");
    }
}

/// A version whose value tells its sequence number.
fn drawn_version(key: u8, seq: Lsn, kind: OpKind, lifetime: u64) -> Version {
    let mut value = Vec::new();
    if kind.is_expiring() {
        // Not all end in the order in which they were put.
        let expires_ms = time_at(seq) + lifetime * (seq % 3);
        Expiring { expires_ms, value: &[] }.put(&mut value);
    }
    if kind.is_separated() {
        value.push(APART);
    }
    if kind.has_value() {
        value.push(seq as u8);
    }
    Version { key: [key].into(), seq, kind, value }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(5000))]

    #[test]
    fn every_reader_finds_the_same_values_of_operands_before_and_after(
        drawn in prop::collection::btree_map((0u8..2, 10u64..40), 0u8..16, 0..24),
        lifetime in 0u64..40,
        mut spans in prop::collection::vec(5u64..45, 0..2),
        snapshots in prop::collection::btree_set(5u64..45, 0..4),
        horizon in 5u64..45,
        beneath in prop::option::of(0u8..4),
        has_operator in any::<bool>(),
        apart in any::<u64>(),
        unreadable in prop::sample::select(vec![100u64, 2, 3, 1]),
    ) {
        spans.retain(|span| drawn.keys().all(|(_, seq)| seq != span));
        let kinds = [OpKind::Merge; 6].into_iter().chain([OpKind::Put; 3]).chain([OpKind::Delete]);
        let kinds: Vec<_> = kinds.chain([OpKind::PutExpiring; 6]).collect();
        let version = |key: u8, seq: Lsn, kind: OpKind| {
            let separated = kind.separated().filter(|_| apart >> seq & 1 > 0);
            drawn_version(key, seq, separated.unwrap_or(kind), lifetime)
        };
        let mut versions: Vec<_> =
            drawn.iter().map(|((key, seq), kind)| version(*key, *seq, kinds[*kind as usize])).collect();
        sort_versions(&mut versions);
        let readers = ReaderPoints::new(snapshots.iter().copied().collect(), horizon);
        let oldest = readers.oldest();
        let readers = readers.at_time(time_at(oldest));
        let merging = has_operator.then(|| Merging::new("isobath.append", &Operators::default()));
        let is_alone = beneath.is_none();
        let mut kept = Kept { merging, spans: &spans, is_alone, unreadable, added: Vec::new() };
        let mut cursor = ListCursor::new(versions.clone());
        cursor.seek_first().unwrap();
        rewrite(&mut cursor, &readers, &mut kept).unwrap();
        let of_beneath = [OpKind::Merge, OpKind::Put, OpKind::Delete, OpKind::PutExpiring];
        let beneath = beneath.map(|kind| of_beneath[kind as usize]);
        let with_beneath = |versions: &[Version]| {
            let of_both = beneath.iter().flat_map(|kind| (0..2).map(|key| version(key, 2, *kind)));
            let mut all: Vec<_> = versions.iter().cloned().chain(of_both).collect();
            sort_versions(&mut all);
            all
        };
        let (before, after) = (with_beneath(&versions), with_beneath(&kept.added));
        for point in snapshots.iter().copied().chain(horizon..50) {
            for key in 0..2 {
                prop_assert_eq!(
                    answer(key, &before, &spans, point),
                    answer(key, &after, &spans, point),
                    "{} at {}, of {:?}", key, point, kept.added
                );
            }
        }
        prop_assert!(kept.added.len() <= versions.len());
    }
}

/// What stays for `readers` of versions above others.
fn kept(versions: &[Version], spans: &[Lsn], readers: &ReaderPoints) -> Vec<(Lsn, OpKind)> {
    let merging = Some(Merging::new("isobath.append", &Operators::default()));
    let mut kept = Kept { merging, spans, is_alone: false, unreadable: 1, added: Vec::new() };
    let mut cursor = ListCursor::new(versions.to_vec());
    cursor.seek_first().unwrap();
    rewrite(&mut cursor, readers, &mut kept).unwrap();
    kept.added.iter().map(|version| (version.seq, version.kind)).collect()
}

#[test]
fn operands_beneath_a_newer_put_go_and_operands_over_a_range_delete_become_a_put() {
    use OpKind::{Merge, Put};
    let version = |seq, kind| Version { key: b"k".to_vec(), seq, kind, value: vec![seq as u8] };
    let readers = ReaderPoints::new(vec![25], 60);
    let versions = [version(30, Put), version(28, Merge), version(20, Put)];
    assert_eq!(kept(&versions, &[], &readers), [(30, Put), (20, Put)]);
    let versions = [version(30, Merge), version(10, Merge)];
    assert_eq!(kept(&versions, &[20], &ReaderPoints::from(40)), [(30, Put)]);
}

mod filtered;
