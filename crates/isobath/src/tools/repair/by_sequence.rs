//! Merges several cursors when it is unknown which source is newer: equal keys order by sequence
//! number.
//!
//! [`MergeCursor`](crate::cursor::MergeCursor) orders equal keys by source, because the tree knows
//! which slice is above which. A repair without a manifest does not know it. A version that several
//! sources have comes once: a repair that was interrupted may have written it a second time, and
//! operands must not count twice. If a version is an operand in one source and a value in another,
//! a compaction has folded it, onto what lies beneath: the value stands for all of it.

use crate::cursor::{Cursor, Entry};
use crate::error::Result;
use crate::format::Lsn;
use crate::mvcc::Versions;
use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

/// A source and a copy of its position. The largest one in the heap has the smallest key and, for
/// equal keys, the largest sequence number; of equal versions, the one that is no operand.
struct Source<C> {
    cursor: C,
    key: Vec<u8>,
    seq: Lsn,
    is_whole: bool,
}

impl<C: Cursor> Source<C> {
    /// Copies the cursor's position. Returns false if the cursor has no entry.
    fn note(&mut self) -> bool {
        let Some(entry) = self.cursor.entry() else { return false };
        self.key.clear();
        self.key.extend_from_slice(entry.key);
        self.seq = entry.seq;
        self.is_whole = !entry.kind.is_operand();
        true
    }
}

impl<C> Source<C> {
    fn rank(&self) -> (Reverse<&[u8]>, Lsn, bool) {
        (Reverse(&self.key), self.seq, self.is_whole)
    }
}

impl<C> PartialEq for Source<C> {
    fn eq(&self, other: &Self) -> bool {
        self.rank() == other.rank()
    }
}

impl<C> Eq for Source<C> {}

impl<C> PartialOrd for Source<C> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<C> Ord for Source<C> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.rank().cmp(&other.rank())
    }
}

/// Walks the versions of all sources by key, then newest first. A new one already stands on the
/// first version.
pub(super) struct BySequence<C> {
    heap: BinaryHeap<Source<C>>,
    /// The key of the version that was left last.
    left: Vec<u8>,
    /// Its value, if it was an operand.
    operand: Vec<u8>,
    /// The first key of which two sources have one operand with different bytes, and how many such
    /// operands there are.
    contested: Option<(Box<[u8]>, u64)>,
}

impl<C: Cursor> BySequence<C> {
    pub(super) fn new(cursors: Vec<C>) -> Result<Self> {
        let mut heap = BinaryHeap::with_capacity(cursors.len());
        for mut cursor in cursors {
            cursor.seek_first()?;
            let mut source = Source { cursor, key: Vec::new(), seq: 0, is_whole: false };
            if source.note() {
                heap.push(source);
            }
        }
        Ok(BySequence { heap, left: Vec::new(), operand: Vec::new(), contested: None })
    }

    /// The first key so far of which two sources have one operand with different bytes, and how
    /// many such operands there are. One of the two is what a compaction has made of several, and
    /// which one was taken is chance.
    pub(super) fn contested(&self) -> Option<(&[u8], u64)> {
        self.contested.as_ref().map(|(first, count)| (&**first, *count))
    }

    /// Compares what the first source has for the version that was just left.
    fn compare_operand(&mut self, has_left_operand: bool) {
        let entry = self.heap.peek().and_then(|first| first.cursor.entry());
        let is_other = entry
            .is_some_and(|entry| entry.kind.is_operand() && entry.value != self.operand.as_slice());
        if has_left_operand && is_other {
            let first = || (self.left.as_slice().into(), 0);
            self.contested.get_or_insert_with(first).1 += 1;
        }
    }

    /// Moves the first source.
    fn step(&mut self, step: impl FnOnce(&mut C) -> Result<()>) -> Result<()> {
        let Some(mut first) = self.heap.peek_mut() else { return Ok(()) };
        let moved = step(&mut first.cursor);
        if !first.note() {
            PeekMut::pop(first);
        }
        moved
    }
}

impl<C: Cursor> Versions for BySequence<C> {
    fn entry(&self) -> Option<Entry<'_>> {
        self.heap.peek().and_then(|first| first.cursor.entry())
    }

    fn next(&mut self) -> Result<()> {
        let Some(first) = self.heap.peek() else { return Ok(()) };
        let seq = first.seq;
        self.left.clone_from(&first.key);
        let operand = first.cursor.entry().filter(|entry| entry.kind.is_operand());
        let is_operand = operand.is_some();
        self.operand.clear();
        self.operand.extend_from_slice(operand.map_or(&[], |entry| entry.value));
        self.step(C::next)?;
        while self.heap.peek().is_some_and(|first| first.seq == seq && first.key == self.left) {
            self.compare_operand(is_operand);
            self.step(C::next)?;
        }
        Ok(())
    }

    fn next_key(&mut self, scratch: &mut Vec<u8>) -> Result<()> {
        let Some(key) = self.heap.peek().map(|first| first.key.clone()) else { return Ok(()) };
        while self.heap.peek().is_some_and(|first| first.key == key) {
            self.step(|cursor| cursor.next_key(scratch))?;
        }
        Ok(())
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::cursor::fixtures::{ListCursor, Version, sort_versions};
    use crate::format::OpKind;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn all_versions_come_by_key_and_sequence_and_a_key_can_be_passed_over(
            drawn in prop::collection::vec((0u8..6, 0usize..3), 0..40),
            skips in prop::collection::vec(any::<bool>(), 40),
        ) {
            let mut of_source = vec![Vec::new(); 3];
            for (at, (key, source)) in drawn.iter().enumerate() {
                of_source[*source].push(Version::put([*key], at as u64, b"value"));
            }
            let mut expected = of_source.concat();
            sort_versions(&mut expected);
            let mut walk = BySequence::new(of_source.into_iter().map(ListCursor::new).collect()).unwrap();
            let (mut rest, mut scratch) = (&expected[..], Vec::new());
            for skip in skips {
                prop_assert_eq!(walk.entry(), rest.first().map(Version::as_entry));
                let Some((first, others)) = rest.split_first() else { break };
                match skip {
                    true => {
                        walk.next_key(&mut scratch).unwrap();
                        let of_key = rest.iter().take_while(|other| other.key == first.key).count();
                        rest = &rest[of_key..];
                    }
                    false => {
                        walk.next().unwrap();
                        rest = others;
                    }
                }
            }
        }
    }

    #[test]
    fn a_version_that_several_sources_have_comes_once() {
        let list =
            |seqs: [Lsn; 2]| ListCursor::new(seqs.map(|seq| Version::put(b"key", seq, b"")).into());
        let mut walk = BySequence::new(vec![list([3, 1]), list([3, 2]), list([2, 1])]).unwrap();
        let mut seqs = Vec::new();
        while let Some(entry) = walk.entry() {
            seqs.push(entry.seq);
            walk.next().unwrap();
        }
        assert_eq!(seqs, [3, 2, 1]);
    }

    #[test]
    fn a_value_that_was_folded_stands_for_its_newest_operand() {
        let folded = Version::put(b"key", 10, b"all");
        let operand = Version { kind: OpKind::Merge, ..Version::put(b"key", 10, b"one") };
        for versions in [[folded.clone(), operand.clone()], [operand, folded]] {
            let cursors = versions.map(|version| ListCursor::new(vec![version]));
            let mut walk = BySequence::new(cursors.into()).unwrap();
            assert_eq!(walk.entry().unwrap().value, b"all");
            walk.next().unwrap();
            assert!(walk.entry().is_none() && walk.contested().is_none());
        }
    }

    #[test]
    fn operands_that_differ_though_they_are_one_are_told() {
        let operand = |key: &[u8], seq, value: &[u8]| Version {
            kind: OpKind::Merge,
            ..Version::put(key, seq, value)
        };
        let one = vec![operand(b"a", 1, b"1"), operand(b"b", 10, b"7+10"), operand(b"c", 3, b"3")];
        let other = vec![operand(b"b", 10, b"10"), operand(b"b", 7, b"7"), operand(b"c", 3, b"3")];
        let mut walk = BySequence::new([one, other].map(ListCursor::new).into()).unwrap();
        while walk.entry().is_some() {
            walk.next().unwrap();
        }
        assert_eq!(walk.contested(), Some((&b"b"[..], 1)));
    }

    #[test]
    fn an_error_of_a_source_is_told_and_the_walk_has_no_entry_of_it() {
        let list = |key: &[u8]| {
            ListCursor::new(vec![Version::put(key, 1, b""), Version::put(key, 2, b"")])
        };
        let mut failing = list(b"a");
        failing.fail_after = Some(1);
        let mut walk = BySequence::new(vec![failing, list(b"b")]).unwrap();
        assert_eq!(walk.entry().unwrap().key, b"a");
        walk.next().unwrap_err();
        assert_eq!(walk.entry().unwrap().key, b"b");
    }
}
