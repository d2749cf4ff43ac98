//! The loop over versions that flushes, compactions and repairs share. It drops the versions that
//! no reader needs.

use super::fold::{Beneath, Does, Folded, fold};
use super::{Cursor, Entry, Lsn, Merging, OpKind, ReaderPoints, Retain, Verdict};
use crate::env::{Plant, Reach, planted, reached};
use crate::error::Result;

/// The input of a rewrite: versions by key ascending, then newest first. Every [`Cursor`] is one. A
/// source that only moves forward needs only these methods.
pub(crate) trait Versions {
    /// The entry at the current position.
    fn entry(&self) -> Option<Entry<'_>>;
    /// Like [`Cursor::next`].
    fn next(&mut self) -> Result<()>;
    /// Like [`Cursor::next_key`].
    fn next_key(&mut self, scratch: &mut Vec<u8>) -> Result<()>;
}

impl<C: Cursor> Versions for C {
    #[inline(always)]
    fn entry(&self) -> Option<Entry<'_>> {
        Cursor::entry(self)
    }

    #[inline(always)]
    fn next(&mut self) -> Result<()> {
        Cursor::next(self)
    }

    #[inline(always)]
    fn next_key(&mut self, scratch: &mut Vec<u8>) -> Result<()> {
        Cursor::next_key(self, scratch)
    }
}

/// The output of a rewrite. It takes the versions that stay, and answers questions that the
/// versions do not. `C` is the input.
pub(crate) trait Rewrite<C> {
    /// Called before each version. If it returns false, the walk ends there. `enters` is false if
    /// the version may have the same key as the one before.
    #[inline(always)]
    fn goes_on(&mut self, _walked: &C, _entry: &Entry<'_>, _enters: bool) -> Result<bool> {
        Ok(true)
    }

    /// True if no version of the key lies beneath the input. It is called only for tombstones that
    /// nothing else keeps. Keys come in ascending order.
    fn is_alone(&mut self, key: &[u8]) -> bool;

    /// The least sequence number above `seq` of a range delete that covers `key`. Keys come in
    /// ascending order.
    #[inline(always)]
    fn cover_above(&mut self, _key: &[u8], _seq: Lsn) -> Option<Lsn> {
        None
    }

    /// How the family merges; `None` if it does not.
    #[inline(always)]
    fn merging(&self) -> Option<&Merging> {
        None
    }

    /// Called with the verdict for each version, before the verdict is carried out.
    #[inline(always)]
    fn note(&mut self, _verdict: Verdict, _entry: &Entry<'_>, _enters: bool) {}

    /// Takes a version that stays.
    fn add(&mut self, entry: Entry<'_>, enters: bool) -> Result<()>;
}

/// Walks on from the position of `cursor`, and passes on the versions that `readers` need.
#[inline]
pub(crate) fn rewrite<C: Versions>(
    cursor: &mut C,
    readers: &ReaderPoints,
    to: &mut impl Rewrite<C>,
) -> Result<()> {
    let mut retain = Retain::new(readers);
    let mut scratch = Vec::new();
    while let Some(entry) = cursor.entry() {
        debug_assert!(!entry.kind.is_span(), "a range delete stands among the versions of keys");
        let enters = retain.enters(entry.key);
        if !to.goes_on(cursor, &entry, enters)? {
            break;
        }
        let has_ended = readers.see_ended(&entry);
        if has_ended && planted(Plant::ExpiredHidesNothing) {
            cursor.next_key(&mut scratch)?;
            continue;
        }
        let entry = if has_ended { ended(entry) } else { entry };
        if entry.kind.is_operand() {
            fold_key(cursor, &mut retain, to, &mut scratch)?;
            continue;
        }
        let cover = to.cover_above(entry.key, entry.seq);
        let verdict = retain.judge(&entry, cover, || to.is_alone(entry.key));
        to.note(verdict, &entry, enters);
        if verdict.keeps() {
            to.add(entry, enters)?;
        }
        match verdict {
            Verdict::Keep | Verdict::Drop => cursor.next()?,
            Verdict::KeepLast | Verdict::DropRest => cursor.next_key(&mut scratch)?,
        }
    }
    Ok(())
}

/// Judges the versions of a key from the first operand on together, and moves on to the next key.
/// What stays of a version whose value has ended for every reader: it hides what is older.
#[cold]
fn ended(entry: Entry<'_>) -> Entry<'_> {
    reached(Reach::ExpiredRewritten);
    Entry { kind: OpKind::Delete, value: &[], ..entry }
}

#[cold]
fn fold_key<C: Versions>(
    cursor: &mut C,
    retain: &mut Retain<'_>,
    to: &mut impl Rewrite<C>,
    scratch: &mut Vec<u8>,
) -> Result<()> {
    let Some(first) = cursor.entry() else { return Ok(()) };
    let (key, enters) = (first.key.to_vec(), retain.enters(first.key));
    let newer = retain.newer_of(&key);
    let (versions, beneath) = versions_of(cursor, &key, retain.readers(), to)?;
    if cursor.entry().is_some_and(|entry| entry.key == key) {
        cursor.next_key(scratch)?;
    }
    reached(Reach::OperandsRewritten);
    let operator = to.merging().and_then(Merging::operator);
    let none_yet = ReaderPoints::newest();
    let readers = if planted(Plant::OperandOverPoint) { &none_yet } else { retain.readers() };
    let kept = fold(operator, readers, &key, (newer, versions), beneath);
    for (nth, Folded { seq, does, .. }) in kept.iter().enumerate() {
        let (kind, value) = does.stored();
        let (entry, enters) = (Entry { key: &key, seq: *seq, kind, value }, enters && nth == 0);
        to.note(Verdict::Keep, &entry, enters);
        to.add(entry, enters)?;
    }
    Ok(())
}

/// The versions of `key` from the cursor's position on, as far down as a reader's answer may depend
/// on them, and what is known of what lies beneath.
fn versions_of<C: Versions>(
    cursor: &mut C,
    key: &[u8],
    readers: &ReaderPoints,
    to: &mut impl Rewrite<C>,
) -> Result<(Vec<Folded>, Beneath)> {
    let mut versions = Vec::new();
    let mut is_first = true;
    while let Some(entry) = cursor.entry().filter(|entry| entry.key == key) {
        if !std::mem::replace(&mut is_first, false) {
            let goes_on = to.goes_on(cursor, &entry, false)?;
            debug_assert!(goes_on, "a walk ends within a key");
        }
        let entry = if readers.see_ended(&entry) { ended(entry) } else { entry };
        let cover = to.cover_above(key, entry.seq);
        let is_old = entry.seq < readers.oldest();
        if is_old && cover.is_some_and(|cover| cover < readers.oldest()) {
            return Ok((versions, Beneath { is_alone: false, cover }));
        }
        let (does, is_base) = (Does::of(&entry), is_old && !entry.kind.is_operand());
        versions.push(Folded { seq: entry.seq, does, cover });
        if is_base {
            let is_alone = entry.kind.is_tombstone() && to.is_alone(key);
            return Ok((versions, Beneath { is_alone, cover: None }));
        }
        cursor.next()?;
    }
    let is_alone = to.is_alone(key) || planted(Plant::OperandsBaseDropped);
    let cover = to.cover_above(key, 0);
    Ok((versions, Beneath { is_alone, cover }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cursor::fixtures::{ListCursor, Version, sort_versions};
    use crate::mvcc::{Effect, Expiring, Lsn, Operators};
    use proptest::prelude::*;

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

    /// Versions of one key with range deletes, above at most one version beneath.
    struct Kept<'a> {
        merging: Option<Merging>,
        spans: &'a [Lsn],
        is_alone: bool,
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

        fn add(&mut self, entry: Entry<'_>, enters: bool) -> Result<()> {
            assert!(!enters || self.added.last().is_none_or(|last| *last.key != *entry.key));
            let Entry { key, seq, kind, value } = entry;
            self.added.push(Version { key: key.into(), seq, kind, value: value.into() });
            Ok(())
        }
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
                        operands.push(ends.value);
                    }
                    break;
                }
                Effect::Absent => break,
            }
        }
        operands.reverse();
        (!operands.is_empty()).then(|| operands.concat())
    }

    #[test]
    fn a_failure_among_operands_is_passed_on_wherever_it_comes() {
        let version =
            |seq, kind| Version { key: b"a"[..].into(), seq, kind, value: b"x"[..].into() };
        let versions = [(9, OpKind::Merge), (8, OpKind::Merge), (7, OpKind::Put)];
        let versions = versions.map(|(seq, kind)| version(seq, kind)).to_vec();
        for fail_after in 0..2 {
            let mut cursor = ListCursor::new(versions.clone());
            cursor.seek_first().unwrap();
            cursor.fail_after = Some(fail_after);
            let merging = Some(Merging::new("isobath.append", &Operators::default()));
            let mut kept = Kept { merging, spans: &[], is_alone: true, added: Vec::new() };
            rewrite(&mut cursor, &ReaderPoints::newest(), &mut kept).unwrap_err();
            assert!(kept.added.is_empty(), "{fail_after}");
        }
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
        ) {
            spans.retain(|span| drawn.keys().all(|(_, seq)| seq != span));
            let kinds = [OpKind::Merge; 6].into_iter().chain([OpKind::Put; 3]).chain([OpKind::Delete]);
            let kinds: Vec<_> = kinds.chain([OpKind::PutExpiring; 6]).collect();
            let version = |key: u8, seq: Lsn, kind: OpKind| {
                let mut value = Vec::new();
                if kind == OpKind::PutExpiring {
                    // Not all end in the order in which they were put.
                    let expires_ms = time_at(seq) + lifetime * (seq % 3);
                    Expiring { expires_ms, value: &[] }.put(&mut value);
                }
                if kind.has_value() {
                    value.push(seq as u8);
                }
                Version { key: [key].into(), seq, kind, value }
            };
            let mut versions: Vec<_> =
                drawn.iter().map(|((key, seq), kind)| version(*key, *seq, kinds[*kind as usize])).collect();
            sort_versions(&mut versions);
            let readers = ReaderPoints::new(snapshots.iter().copied().collect(), horizon);
            let oldest = readers.oldest();
            let readers = readers.at_time(time_at(oldest));
            let merging = has_operator.then(|| Merging::new("isobath.append", &Operators::default()));
            let is_alone = beneath.is_none();
            let mut kept = Kept { merging, spans: &spans, is_alone, added: Vec::new() };
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
        let mut kept = Kept { merging, spans, is_alone: false, added: Vec::new() };
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
}
