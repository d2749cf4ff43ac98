//! Inserting: find the leaf, copy key and value into the arena, lock the leaf, link them in.
//!
//! The copy is complete before the lock is taken. The lock is taken by compare-exchange on the
//! stamp of the search. So under the lock, everything that the search found still holds. If the
//! exchange fails, the search starts again and the copy is kept. A second version of a key also
//! locks the key's leaf, for the order of versions and for the tally, but readers need not notice
//! it.
//!
//! Two shortcuts save the descent. A key above the last leaf's lower bound tries that leaf first. A
//! sorted batch tries the leaf of its previous key. That key shows what the leaf's keys begin with,
//! but only while it belongs to the leaf. So a leaf whose upper bound has moved since is not used.

use super::head::head_at;
use super::lock::{Backoff, Stamp};
use super::node::Node;
use super::record::{Record, Version};
use super::search::Target;
use super::{Arena, Memtable};
use crate::env::sync::atomic::Ordering::Relaxed;
use crate::format::{Lsn, OpKind, checksum64};
use std::cmp::Ordering;

/// An operation to be inserted into the tree.
struct Operation<'k, 'a> {
    key: &'k [u8],
    seq: Lsn,
    kind: OpKind,
    value: &'k [u8],
    arena: &'a Arena,
    copied: Copied<'a>,
}

/// The part of an operation that is already in the arena.
enum Copied<'a> {
    Nothing,
    /// Key and value. If the key turns out to be in the tree already, only the version is used.
    Record(Record<'a>),
    /// Only the value: the key was found in the tree, and keys are never removed.
    Version(Version<'a>),
}

impl<'a> Operation<'_, 'a> {
    fn record(&mut self) -> Record<'a> {
        if let Copied::Record(record) = self.copied {
            return record;
        }
        let record = Record::create(self.arena, self.key, self.seq, self.kind, self.value);
        self.copied = Copied::Record(record);
        record
    }

    /// The operation as a version of the key of `record`.
    fn version_of(&mut self, record: Record<'_>) -> Version<'a> {
        match self.copied {
            Copied::Record(record) => record.newest(),
            Copied::Version(version) => version,
            Copied::Nothing => {
                let what = (self.seq, self.kind, self.value);
                let version = Version::create(self.arena, what, record.wants_milestone());
                self.copied = Copied::Version(version);
                version
            }
        }
    }
}

/// The leaf where a sorted batch put its last key, and the leaf's upper bound at that time.
struct Finger<'k, 'a> {
    leaf: Node<'a>,
    high: Option<Record<'a>>,
    key: &'k [u8],
}

enum Placed<'a> {
    /// Done, in a leaf with this upper bound.
    Below(Option<Record<'a>>),
    /// The leaf has changed since its stamp was taken.
    Changed,
    /// The leaf has no room for another key.
    Full,
}

impl Memtable {
    /// Adds a version of a key. No two versions of a key may have the same sequence number; they
    /// may come in any order. Never fails. It never waits for more than a few stores of another
    /// thread.
    pub(crate) fn insert(&self, key: &[u8], seq: Lsn, kind: OpKind, value: &[u8]) {
        debug_assert!(!kind.is_span(), "`apply` tells range deletes apart");
        let mut op =
            Operation { key, seq, kind, value, arena: &self.arena, copied: Copied::Nothing };
        self.add_to_filter(key);
        self.place(self.rightmost_for(key), &mut op);
    }

    /// Adds an operation of any kind.
    pub(crate) fn apply(&self, key: &[u8], seq: Lsn, kind: OpKind, value: &[u8]) {
        match kind.is_span() {
            true => self.delete_range(key, value, seq),
            false => self.insert(key, seq, kind, value),
        }
    }

    /// Adds operations in ascending key order; equal keys may follow each other. Keys that are
    /// neighbours in the tree share one descent.
    pub(crate) fn insert_sorted<'k>(
        &self,
        ops: impl Iterator<Item = (&'k [u8], Lsn, OpKind, &'k [u8])>,
    ) {
        let mut finger: Option<Finger<'_, '_>> = None;
        for (key, seq, kind, value) in ops {
            let mut op =
                Operation { key, seq, kind, value, arena: &self.arena, copied: Copied::Nothing };
            self.add_to_filter(key);
            let start = match finger {
                Some(finger) => finger.stamp_if_below_high(key),
                None => self.rightmost_for(key),
            };
            let (leaf, high) = self.place(start, &mut op);
            finger = Some(Finger { leaf, high, key });
        }
    }

    #[inline(always)]
    fn add_to_filter(&self, key: &[u8]) {
        if let Some(filter) = &self.filter {
            filter.add(checksum64(key));
        }
    }

    /// Puts an operation into its leaf. Tries the leaf in `start` first, if there is one. Returns
    /// the leaf and its upper bound.
    #[inline]
    fn place<'a>(
        &'a self,
        start: Option<(Node<'a>, Stamp)>,
        op: &mut Operation<'_, 'a>,
    ) -> (Node<'a>, Option<Record<'a>>) {
        let mut start = start;
        let mut backoff = Backoff::new();
        loop {
            let (leaf, stamp) = start.take().unwrap_or_else(|| self.find_leaf(Target::Key(op.key)));
            match leaf.try_place(stamp, op) {
                Placed::Below(high) => return (leaf, high),
                Placed::Changed => backoff.wait(),
                Placed::Full => self.make_room(op.record()),
            }
        }
    }

    /// The last leaf of the tree, if the key belongs there.
    #[inline]
    fn rightmost_for(&self, key: &[u8]) -> Option<(Node<'_>, Stamp)> {
        if head_at(key, 0) < self.rightmost_head.load(Relaxed) {
            return None;
        }
        let leaf = self.rightmost()?;
        let stamp = leaf.lock().read()?;
        let belongs = leaf.high().is_none() && leaf.low().is_none_or(|low| low.key() <= key);
        belongs.then_some((leaf, stamp))
    }
}

impl<'a> Node<'a> {
    #[inline]
    fn try_place(self, stamp: Stamp, op: &mut Operation<'_, 'a>) -> Placed<'a> {
        let slot = self.search(op.key);
        let bytes = op.key.len() + op.value.len();
        if let Some(record) = slot.record {
            let version = op.version_of(record);
            if !self.lock().try_lock(stamp) {
                return Placed::Changed;
            }
            let high = self.high();
            record.link(version);
            self.tally(op.seq, bytes);
            self.lock().unlock_unchanged(stamp);
            return Placed::Below(high);
        }
        if self.is_full() {
            let certain = self.lock().validate(stamp);
            return if certain { Placed::Full } else { Placed::Changed };
        }
        let record = op.record();
        if !self.lock().try_lock(stamp) {
            return Placed::Changed;
        }
        let high = self.high();
        debug_assert!(
            self.low().is_none_or(|low| low.key() <= op.key),
            "a key is below the leaf that takes it"
        );
        debug_assert!(
            high.is_none_or(|high| op.key < high.key()),
            "a key is above the leaf that takes it"
        );
        let head = if slot.has_prefix { slot.head } else { self.shorten_prefix(op.key) };
        self.insert_key(slot.index, head, record);
        self.tally(op.seq, bytes);
        self.lock().unlock_changed(stamp);
        Placed::Below(high)
    }
}

impl<'a> Finger<'_, 'a> {
    /// A stamp of the leaf, if `key` belongs to it too. `key` must not be below the last key.
    fn stamp_if_below_high(&self, key: &[u8]) -> Option<(Node<'a>, Stamp)> {
        debug_assert!(self.key <= key, "a sorted batch ascends");
        let leaf = self.leaf;
        let stamp = leaf.lock().read()?;
        // Bounds only fall. So if the upper bound is the same, the last key still belongs to this
        // leaf. After a split it may not, and then it says nothing about the leaf's prefix.
        if leaf.high() != self.high {
            return None;
        }
        let Some(high) = self.high else { return Some((leaf, stamp)) };
        let known = leaf.prefix().known as usize;
        // The leaf's keys share the known prefix. A greater key without that prefix lies beyond
        // them.
        if key.len() < known || self.key.get(..known) != key.get(..known) {
            return None;
        }
        let below = match head_at(key, known).cmp(&leaf.high_head()) {
            Ordering::Less => true,
            Ordering::Equal => key < high.key(),
            Ordering::Greater => false,
        };
        below.then_some((leaf, stamp))
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::memtable::ChunkPool;
    use std::sync::Arc;

    fn table_of(keys: &[&str]) -> Memtable {
        let arena = Arc::new(Arena::new(Arc::new(ChunkPool::new(64 << 10, 0, 0))));
        let table = Memtable::with_fanout(arena, 4, 4);
        keys.iter().for_each(|key| table.insert(key.as_bytes(), 10, OpKind::Put, b""));
        table
    }

    #[test]
    fn nothing_is_placed_under_a_stamp_from_before_a_change() {
        for (count, key) in [(2, "b"), (2, "c"), (4, "b"), (4, "x")] {
            let table = table_of(&["a", "b", "c", "d"][..count]);
            let (leaf, stale) = table.find_leaf(Target::First);
            assert!(leaf.lock().try_lock(stale));
            leaf.lock().unlock_changed(stale);
            let arena = &table.arena;
            let (key, copied) = (key.as_bytes(), Copied::Nothing);
            let mut op = Operation { key, seq: 20, kind: OpKind::Put, value: b"v", arena, copied };
            assert!(matches!(leaf.try_place(stale, &mut op), Placed::Changed));
            assert_eq!(
                (table.len(), table.keys(), table.max_seq()),
                (count as u64, count as u64, 10)
            );
            let (stamp, was_there) = (leaf.lock().read().unwrap(), table.get(key, 11).is_some());
            let placed = leaf.try_place(stamp, &mut op);
            let has_room = was_there || count < 4;
            assert_eq!(matches!(placed, Placed::Below(None)), has_room);
            assert_eq!(matches!(placed, Placed::Full), !has_room);
            assert_eq!(table.len(), (count + usize::from(has_room)) as u64);
            assert_eq!(table.get(key, 21).is_some_and(|found| found.seq == 20), has_room);
            assert_eq!(leaf.lock().validate(stamp), was_there || !has_room, "readers must notice");
        }
    }

    #[test]
    fn what_was_copied_for_one_attempt_serves_the_next() {
        let table = table_of(&["a"]);
        let (arena, copied) = (&table.arena, Copied::Nothing);
        let mut op =
            Operation { key: b"k", seq: 20, kind: OpKind::Put, value: b"v", arena, copied };
        let record = op.record();
        assert!(op.record() == record);
        assert_eq!((op.version_of(record).seq(), op.version_of(record).value()), (20, &b"v"[..]));
        let copied = Copied::Nothing;
        let mut op =
            Operation { key: b"k", seq: 30, kind: OpKind::Delete, value: b"", arena, copied };
        assert_eq!(
            (op.version_of(record).seq(), op.version_of(record).kind()),
            (30, OpKind::Delete)
        );
        assert!(matches!(op.copied, Copied::Version(_)));
        assert_eq!((op.record().key(), op.version_of(record).seq()), (&b"k"[..], 30));
    }

    #[test]
    fn the_last_leaf_is_tried_first_for_the_keys_that_belong_there() {
        let table = table_of(&["k1", "k2", "k3", "k4"]);
        assert!(table.rightmost_for(b"k9").is_none(), "there was no split yet");
        for n in 5..=9 {
            table.insert(format!("k{n}").as_bytes(), 10, OpKind::Put, b"");
        }
        let last = table.find_leaf(Target::Last).0;
        let low = last.low().unwrap().key();
        for (key, belongs) in [(low, true), (b"z", true), (b"k1", false), (b"", false)] {
            let found = table.rightmost_for(key);
            assert_eq!(found.map(|(leaf, _)| leaf == last), belongs.then_some(true), "{key:?}");
        }
        // The key has the same head as the bound, but is below it.
        let table = table_of(&["the same1", "the same2", "the same3", "the same4", "the same5"]);
        let last = table.find_leaf(Target::Last).0;
        assert!(last.low().unwrap().key() > &b"the same1"[..]);
        assert!(table.rightmost_for(b"the same1").is_none());
        assert!(table.rightmost_for(b"the same9").is_some());
    }

    #[test]
    fn a_sorted_batch_stays_in_its_leaf_below_the_bound_of_that_and_only_there() {
        for (keys, below, beyond) in [
            (["k1", "k2", "k3", "k4", "k5"], "k1x", "k9"),
            // The head of the bound decides nothing.
            (["the same1", "the same2", "the same3", "the same4", "the same5"], "the same1x", "zz"),
        ] {
            let table = table_of(&keys);
            let (leaf, _) = table.find_leaf(Target::First);
            let high = leaf.high().unwrap();
            let finger = || Finger { leaf, high: Some(high), key: keys[0].as_bytes() };
            for (key, belongs) in
                [(below.as_bytes(), true), (high.key(), false), (beyond.as_bytes(), false)]
            {
                let found = finger().stamp_if_below_high(key);
                assert_eq!(
                    found.map(|(found, _)| found == leaf),
                    belongs.then_some(true),
                    "{key:?}"
                );
            }
        }
    }
}
