//! Which versions of a key a reader can still see, and which may be dropped.
//!
//! A reader needs a version if the reader's point lies above the version's sequence number and not
//! above that of the next newer version ([`ReaderPoints::see`]). All other versions may be dropped.
//!
//! A range delete that covers a version counts as a newer version of its key.
//!
//! A needed tombstone may still be dropped if two conditions hold. First, no older version of its
//! key lies beneath, in lower levels or in older runs outside this rewrite. Second, its sequence
//! number is below every reader's point, so no older version in this stream stays either. Correct
//! reads alone do not require the second condition. It is there for transactions: one that read the
//! key before the delete must find the delete when it checks for conflicts.

use super::{Entry, Lsn, ReaderPoints};
use crate::env::{Reach, reached, reached_if};

/// Judges versions in stream order: by key ascending, then newest first.
#[derive(Debug)]
pub(crate) struct Retain<'a> {
    readers: &'a ReaderPoints,
    oldest_reader: Lsn,
    /// The key of the last version that is not below all readers. Older versions of it may follow.
    key: Vec<u8>,
    newer_seq: Option<Lsn>,
}

/// What to do with a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Keep it.
    Keep,
    /// Drop it: no reader can see it.
    Drop,
    /// Keep it and drop all older versions of its key: move on to the next key.
    KeepLast,
    /// Drop it and all older versions of its key: move on to the next key.
    DropRest,
}

impl Verdict {
    /// True if the version stays.
    #[inline(always)]
    pub(crate) fn keeps(self) -> bool {
        match self {
            Verdict::Keep | Verdict::KeepLast => true,
            Verdict::Drop | Verdict::DropRest => false,
        }
    }
}

impl<'a> Retain<'a> {
    pub(crate) fn new(readers: &'a ReaderPoints) -> Self {
        let oldest_reader = readers.oldest();
        Retain { readers, oldest_reader, key: Vec::new(), newer_seq: None }
    }

    /// True if a reader needs the version. Tombstones are treated like other versions. A range
    /// delete that covers the version is its next newer one if it comes before that.
    fn keeps(&mut self, entry: &Entry<'_>, cover: Option<Lsn>) -> bool {
        if self.enters(entry.key) {
            self.key.clear();
            self.key.extend_from_slice(entry.key);
            self.newer_seq = None;
        }
        let newer_seq = self.newer_seq.replace(entry.seq);
        let newer_seq = newer_seq.into_iter().chain(cover).min();
        let is_seen = self.readers.see(entry.seq, newer_seq);
        reached_if(Reach::SpanKeptForReader, || is_seen && newer_seq == cover && cover.is_some());
        is_seen
    }

    /// The points of readers.
    pub(crate) fn readers(&self) -> &'a ReaderPoints {
        self.readers
    }

    /// The sequence number of the last judged version of the key, if there was one.
    pub(crate) fn newer_of(&self, key: &[u8]) -> Option<Lsn> {
        self.newer_seq.filter(|_| self.key == key)
    }

    /// True if the entry is the first judged version of its key. Relies on the walk to skip the
    /// older versions after `KeepLast` and `DropRest`.
    #[inline]
    pub(crate) fn enters(&self, key: &[u8]) -> bool {
        self.newer_seq.is_none() || self.key != key
    }

    /// Decides about a version. `cover` is the least sequence number above the version's of a range
    /// delete that covers its key. `is_alone` tells whether no version of the key lies beneath. It
    /// is called only for tombstones that nothing else keeps.
    #[inline]
    pub(crate) fn judge(
        &mut self,
        entry: &Entry<'_>,
        cover: Option<Lsn>,
        is_alone: impl FnOnce() -> bool,
    ) -> Verdict {
        reached_if(Reach::RetainAtOldest, || entry.seq == self.oldest_reader);
        debug_assert!(
            cover.is_none_or(|cover| cover > entry.seq),
            "a range delete hides a version newer than itself"
        );
        if entry.seq >= self.oldest_reader {
            return if self.keeps(entry, cover) { Verdict::Keep } else { Verdict::Drop };
        }
        // Every reader sees the range delete, and it hides all that is older.
        if cover.is_some_and(|cover| cover < self.oldest_reader) {
            reached(Reach::SpanHidInCompaction);
            return Verdict::DropRest;
        }
        // Only the newest version below all readers comes here, once for each key. The oldest
        // reader sees it, because any newer version is not below that reader's point.
        if entry.kind.is_tombstone() && is_alone() { Verdict::DropRest } else { Verdict::KeepLast }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cursor::fixtures::ListCursor;
    use crate::cursor::fixtures::{Version, sort_versions};
    use crate::error::Result;
    use crate::mvcc::{Cursor, OpKind, Rewrite, rewrite};
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};

    /// The versions that a rewrite keeps, and the keys that have a version beneath.
    struct Kept<'a>(Vec<Version>, &'a Beneath);

    impl Rewrite<ListCursor> for Kept<'_> {
        fn is_alone(&mut self, key: &[u8]) -> bool {
            !self.1.contains_key(key)
        }

        fn add(&mut self, entry: Entry<'_>, _enters: bool) -> Result<()> {
            let Entry { key, seq, kind, value } = entry;
            self.0.push(Version { key: key.into(), seq, kind, value: value.into() });
            Ok(())
        }
    }

    /// The stream after judging, walked in the same way as by flushes and compactions.
    fn judged(
        versions: &[Version],
        snapshots: &[Lsn],
        horizon: Lsn,
        below: &Beneath,
    ) -> Vec<Version> {
        let mut cursor = ListCursor::new(versions.to_vec());
        cursor.seek_first().unwrap();
        let mut kept = Kept(Vec::new(), below);
        rewrite(&mut cursor, &ReaderPoints::new(snapshots.to_vec(), horizon), &mut kept).unwrap();
        kept.0
    }

    /// Keys with one old version each in lower levels.
    type Beneath = BTreeMap<Vec<u8>, Lsn>;

    /// What a reader at `point` finds: for every key with a value, the sequence number of that
    /// value.
    fn answers(versions: &[Version], below: &Beneath, point: Lsn) -> BTreeMap<Vec<u8>, Lsn> {
        let mut newest: BTreeMap<Vec<u8>, (Lsn, OpKind)> = BTreeMap::new();
        let beneath = below.iter().map(|(key, seq)| (key, *seq, OpKind::Put));
        let here = versions.iter().map(|version| (&version.key, version.seq, version.kind));
        for (key, seq, kind) in beneath.chain(here).filter(|(_, seq, _)| *seq < point) {
            let best = newest.entry(key.clone()).or_insert((seq, kind));
            if seq > best.0 {
                *best = (seq, kind);
            }
        }
        let found = newest.into_iter().filter(|(_, (_, kind))| *kind == OpKind::Put);
        found.map(|(key, (seq, _))| (key, seq)).collect()
    }

    fn versions() -> impl Strategy<Value = Vec<Version>> {
        let one = (0u8..4, 10u64..40, prop::bool::weighted(0.4));
        prop::collection::vec(one, 0..30).prop_map(|drawn| {
            let mut seqs = BTreeSet::new();
            let mut versions: Vec<_> = drawn
                .into_iter()
                .filter(|(key, seq, _)| seqs.insert((*key, *seq)))
                .map(|(key, seq, is_delete)| match is_delete {
                    true => Version::delete([key], seq),
                    false => Version::put([key], seq, b"v"),
                })
                .collect();
            sort_versions(&mut versions);
            versions
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(3000))]

        #[test]
        fn every_reader_finds_the_same_before_and_after(
            versions in versions(),
            snapshots in prop::collection::btree_set(5u64..45, 0..5),
            horizon in 5u64..45,
            below in prop::collection::btree_map(prop::collection::vec(0u8..4, 1), 1u64..9, 0..4),
        ) {
            let snapshots: Vec<_> = snapshots.into_iter().collect();
            let kept = judged(&versions, &snapshots, horizon, &below);
            for point in snapshots.iter().copied().chain(horizon..50) {
                let (before, after) = (answers(&versions, &below, point), answers(&kept, &below, point));
                prop_assert_eq!(before, after, "at {}", point);
            }
        }

        #[test]
        fn what_no_reader_needs_is_gone(
            versions in versions(),
            snapshots in prop::collection::btree_set(5u64..45, 0..5),
            horizon in 5u64..45,
        ) {
            let snapshots: Vec<_> = snapshots.into_iter().collect();
            let points = || snapshots.iter().copied().chain(horizon..50);
            let kept = judged(&versions, &snapshots, horizon, &Beneath::new());
            for version in &kept {
                let newer = kept.iter().rfind(|other| other.key == version.key && other.seq > version.seq);
                let is_read = points().any(|p| version.seq < p && newer.is_none_or(|newer| p <= newer.seq));
                let guards = newer.is_none() && points().any(|p| p <= version.seq);
                prop_assert!(is_read || guards, "{:?} is of no use", version);
                prop_assert!(version.kind == OpKind::Put || points().any(|p| p <= version.seq));
            }
        }

        #[test]
        fn a_flush_keeps_what_a_compaction_above_data_keeps(
            versions in versions(),
            snapshots in prop::collection::btree_set(5u64..45, 0..5),
            horizon in 5u64..45,
        ) {
            let snapshots: Vec<_> = snapshots.into_iter().collect();
            let everywhere = (0u8..4).map(|key| (vec![key], 1)).collect();
            let compacted = judged(&versions, &snapshots, horizon, &everywhere);
            let readers = ReaderPoints::new(snapshots, horizon);
            let mut retain = Retain::new(&readers);
            let mut flushed = versions.clone();
            flushed.retain(|version| retain.keeps(&version.as_entry(), None));
            prop_assert_eq!(flushed, compacted);
        }
    }

    #[test]
    fn a_version_is_hidden_by_a_range_delete_that_comes_before_its_next_newer_one() {
        let readers = ReaderPoints::new(vec![30], 50);
        let keeps = |seq, cover| {
            let mut retain = Retain::new(&readers);
            assert!(retain.keeps(&Version::put(b"k", 40, b"").as_entry(), None));
            retain.keeps(&Version::put(b"k", seq, b"").as_entry(), cover)
        };
        let seen = [(29, None), (29, Some(30)), (10, Some(35)), (10, Some(45))];
        assert!(seen.into_iter().all(|(seq, cover)| keeps(seq, cover)));
        let unseen = [(30, None), (30, Some(35)), (10, Some(29)), (10, Some(11))];
        assert!(!unseen.into_iter().any(|(seq, cover)| keeps(seq, cover)));
    }

    #[test]
    fn a_delete_stays_while_a_reader_is_below_it_even_with_nothing_beneath() {
        let versions = [Version::delete(b"k", 20)];
        let alone = Beneath::new();
        assert!(judged(&versions, &[], 21, &alone).is_empty());
        assert_eq!(judged(&versions, &[], 20, &alone), versions);
        assert_eq!(judged(&versions, &[20], 30, &alone), versions);
        assert!(judged(&versions, &[21], 30, &alone).is_empty());
    }
}
