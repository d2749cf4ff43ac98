//! Finds what has changed within a range of keys since an LSN, while other threads insert.
//!
//! Each leaf knows the largest sequence number in it, so a leaf without a newer one costs a look at
//! its header. The walk reads a leaf under a stamp and goes on only if the stamp still holds; else
//! it reads the leaf again. A leaf covers the keys from its lower bound, which never changes, and
//! hands keys on only to the leaves behind it. So the walk skips nothing that was there when it
//! began. What is inserted meanwhile it may or may not see.

use super::Memtable;
use super::lock::Stamp;
use super::node::Node;
use super::record::{Record, Version};
use super::search::Target;
use crate::env::{Plant, Reach, planted, reached};
use crate::format::Lsn;
use std::ops::Bound;

/// Which changes a walk looks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Changes<'k> {
    pub(crate) lower: Bound<&'k [u8]>,
    pub(crate) upper: Bound<&'k [u8]>,
    /// Versions with a sequence number from here on ...
    pub(crate) from: Lsn,
    /// ... and below this.
    pub(crate) below: Lsn,
}

/// A walk met more leaves than it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooManyLeaves;

impl Memtable {
    /// A key within the range where such a range delete begins, or where the range does.
    #[inline]
    pub(crate) fn find_span(&self, changes: &Changes<'_>) -> Option<Box<[u8]>> {
        let spans = self.spans()?;
        let bounds = (changes.lower, changes.upper);
        let found = spans.find(bounds, changes.from, changes.below)?;
        reached(Reach::SpanConflict);
        let lower = match changes.lower {
            Bound::Included(lower) | Bound::Excluded(lower) => lower,
            Bound::Unbounded => &[],
        };
        Some((&*found.start).max(lower).into())
    }

    /// A walk over ranges of this memtable.
    pub(crate) fn walk(&self) -> Walk<'_> {
        Walk { memtable: self, last: None }
    }
}

/// Walks over one range after the other, by ascending key. Ranges that lie in one leaf meet it
/// once: the walk stays there.
pub(crate) struct Walk<'m> {
    memtable: &'m Memtable,
    /// The leaf that it met last.
    last: Option<Node<'m>>,
}

impl<'m> Walk<'m> {
    /// A key that has such a version. `leaves` is the number of leaves that the walk may meet; it
    /// is lowered by those that it met.
    pub(crate) fn find_change(
        &mut self,
        changes: &Changes<'_>,
        leaves: &mut usize,
    ) -> Result<Option<&'m [u8]>, TooManyLeaves> {
        let start = match changes.lower {
            Bound::Included(key) | Bound::Excluded(key) => Target::Key(key),
            Bound::Unbounded => Target::First,
        };
        let (mut leaf, mut stamp) =
            self.stay(start).unwrap_or_else(|| self.memtable.find_leaf(start));
        loop {
            let is_met = self.last == Some(leaf);
            if !is_met && *leaves == 0 {
                return Err(TooManyLeaves);
            }
            let is_last = leaf.high().is_none_or(|high| changes.end_before(high.key()));
            // A version that is found is there, also if the leaf has changed meanwhile.
            if leaf.max_seq() >= changes.from
                && let Some(changed) = changes.find_in(leaf, is_last)
            {
                return Ok(Some(changed.key()));
            }
            let next = leaf.next();
            if !leaf.lock().validate(stamp) {
                match leaf.lock().read() {
                    Some(again) => stamp = again,
                    // Only a root that is a leaf is ever replaced.
                    None => (leaf, stamp) = self.memtable.find_leaf(start),
                }
                continue;
            }
            *leaves -= usize::from(!is_met);
            self.last = Some(leaf);
            let Some(next) = next.filter(|_| !is_last) else { return Ok(None) };
            (leaf, stamp) = match next.lock().read() {
                Some(stamp) => (next, stamp),
                None => self.memtable.find_leaf(start),
            };
        }
    }

    /// The leaf that it met last, if a range that begins there begins in it, and the stamp under
    /// which that is true.
    fn stay(&self, start: Target<'_>) -> Option<(Node<'m>, Stamp)> {
        let (Target::Key(key), leaf) = (start, self.last?) else { return None };
        let stamp = leaf.lock().read()?;
        let is_in = leaf.low().is_none_or(|low| low.key() <= key)
            && leaf.high().is_none_or(|high| key < high.key());
        (is_in && leaf.lock().validate(stamp)).then_some((leaf, stamp))
    }
}

impl Changes<'_> {
    /// True if `key` and all keys above it lie outside the range.
    fn end_before(&self, key: &[u8]) -> bool {
        match self.upper {
            Bound::Included(upper) => upper < key,
            Bound::Excluded(upper) => upper <= key,
            Bound::Unbounded => false,
        }
    }

    /// True if `key` and all keys below it lie outside the range.
    fn begin_behind(&self, key: &[u8]) -> bool {
        match self.lower {
            Bound::Included(lower) => key < lower,
            Bound::Excluded(lower) => key <= lower,
            Bound::Unbounded => false,
        }
    }

    fn contain(&self, key: &[u8]) -> bool {
        !self.end_before(key) && !self.begin_behind(key)
    }

    /// A record of the leaf with a version that is looked for.
    fn find_in<'a>(&self, leaf: Node<'a>, is_last: bool) -> Option<Record<'a>> {
        let start = match self.lower {
            Bound::Included(key) | Bound::Excluded(key)
                if leaf.low().is_none_or(|low| low.key() < key) =>
            {
                leaf.search(key).index
            }
            _ => 0,
        };
        let end = match self.upper {
            Bound::Included(key) | Bound::Excluded(key) if is_last => {
                leaf.search(key).index.saturating_add(1)
            }
            _ => usize::MAX,
        };
        let end = end.min(leaf.count()).min(leaf.capacity());
        let is_new = |version: Version<'_>| {
            let is_overlooked = planted(Plant::RangeSkipsDeletes) && version.kind().is_tombstone();
            version.seq() >= self.from && !is_overlooked
        };
        (start..end).filter_map(|slot| leaf.key(slot)).find(|record| {
            record.newest_below(self.below).is_some_and(is_new) && self.contain(record.key())
        })
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::format::OpKind;
    use crate::memtable::{Arena, ChunkPool};
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use std::ops::RangeBounds;
    use std::sync::Arc;

    fn table(fanout: usize) -> Memtable {
        let arena = Arc::new(Arena::new(Arc::new(ChunkPool::new(64 << 10, 0, 0))));
        Memtable::with_fanout(arena, 2, fanout)
    }

    fn all_from(from: Lsn) -> Changes<'static> {
        let (lower, upper) = (Bound::Unbounded, Bound::Unbounded);
        Changes { lower, upper, from, below: Lsn::MAX }
    }

    #[test]
    fn a_leaf_split_off_knows_how_new_its_keys_are() {
        for newest in 0..12u8 {
            let table = table(4);
            for n in 0..12u8 {
                let seq = if n == newest { 500 } else { 100 + u64::from(n) };
                table.insert(&[n * 7 % 12], seq, OpKind::Put, b"");
            }
            // Splits of every leaf, by keys that are older than all of it.
            for n in 0..12u8 {
                (0..6).for_each(|m| table.insert(&[n, m], 50 + u64::from(m), OpKind::Put, b""));
            }
            let mut leaf = Some(table.find_leaf(Target::First).0);
            while let Some(at) = leaf {
                let newest = (0..at.count()).filter_map(|i| at.key(i)).map(|r| r.newest().seq());
                assert!(at.max_seq() >= newest.max().unwrap_or(0));
                leaf = at.next();
            }
            let found = table.walk().find_change(&all_from(500), &mut usize::MAX.clone());
            assert_eq!(found, Ok(Some(&[newest * 7 % 12][..])));
        }
    }

    #[test]
    fn a_walk_counts_the_leaves_it_meets_and_stops_beyond_its_limit() {
        let table = table(4);
        (0..200u8).for_each(|n| table.insert(&[n], u64::from(n) + 10, OpKind::Put, b""));
        let mut left = 1000;
        assert_eq!(table.walk().find_change(&all_from(10_000), &mut left), Ok(None));
        let leaves = 1000 - left;
        assert!((50..=100).contains(&leaves), "{leaves}");
        let mut exactly = leaves;
        assert_eq!(table.walk().find_change(&all_from(10_000), &mut exactly), Ok(None));
        assert_eq!(exactly, 0);
        let mut less = leaves - 1;
        assert_eq!(table.walk().find_change(&all_from(10_000), &mut less), Err(TooManyLeaves));
        let within = Changes {
            lower: Bound::Included(&[50]),
            upper: Bound::Included(&[51]),
            ..all_from(10_000)
        };
        let mut left = 2;
        assert_eq!(table.walk().find_change(&within, &mut left), Ok(None));
    }

    #[test]
    fn ranges_in_one_leaf_meet_it_once() {
        let table = table(16);
        (0..200u8).for_each(|n| table.insert(&[n], u64::from(n) + 10, OpKind::Put, b""));
        let leaves_of = |walk: &mut Walk<'_>, changes: &Changes<'_>| {
            let mut left = 1000;
            assert_eq!(walk.find_change(changes, &mut left), Ok(None));
            1000 - left
        };
        let all = leaves_of(&mut table.walk(), &all_from(10_000));
        assert!(all < 50, "{all} leaves");
        fn single(key: &[u8], from: Lsn) -> Changes<'_> {
            let (lower, upper) = (Bound::Included(key), Bound::Included(key));
            Changes { lower, upper, ..all_from(from) }
        }
        let (mut walk, mut met) = (table.walk(), 0);
        for n in 0..200u8 {
            met += leaves_of(&mut walk, &single(&[n], 10_000));
        }
        assert_eq!(met, all);
        // Leaves between two ranges are not met.
        let mut walk = table.walk();
        for n in [0, 199] {
            assert_eq!(leaves_of(&mut walk, &single(&[n], 10_000)), 1);
        }
        // Backward, and while the leaves are split, nothing is overlooked.
        let mut walk = table.walk();
        for n in (0..200u8).rev() {
            let seq = u64::from(n) + 10;
            assert_eq!(walk.find_change(&single(&[n], seq), &mut 1), Ok(Some(&[n][..])));
            (0..3).for_each(|m| table.insert(&[n, m], 5, OpKind::Put, b""));
            assert_eq!(walk.find_change(&single(&[n], seq + 1), &mut 1), Ok(None));
        }
    }

    fn key() -> impl Strategy<Value = Vec<u8>> {
        proptest::collection::vec(0u8..4, 0..4)
    }

    fn bound() -> impl Strategy<Value = Bound<Vec<u8>>> {
        prop_oneof![
            key().prop_map(Bound::Included),
            key().prop_map(Bound::Excluded),
            Just(Bound::Unbounded)
        ]
    }

    proptest! {
        #[test]
        fn a_change_is_found_if_and_only_if_there_is_one(
            inserted in proptest::collection::vec((key(), any::<bool>()), 0..80),
            fanout in 4usize..9,
            ranges in proptest::collection::vec((bound(), bound(), 0u64..90, 0u64..90), 1..20),
        ) {
            let table = table(fanout);
            let mut all: BTreeMap<Vec<u8>, Vec<Lsn>> = BTreeMap::new();
            // Sequence numbers come in no order.
            for (at, (key, is_delete)) in inserted.iter().enumerate() {
                let seq = (at as u64 * 37) % 83 + 1;
                let kind = if *is_delete { OpKind::Delete } else { OpKind::Put };
                if all.entry(key.clone()).or_default().contains(&seq) {
                    continue;
                }
                table.insert(key, seq, kind, b"");
                all.entry(key.clone()).or_default().push(seq);
            }
            for (lower, upper, from, below) in &ranges {
                let bounds = (lower.as_ref().map(Vec::as_slice), upper.as_ref().map(Vec::as_slice));
                let changes =
                    Changes { lower: bounds.0, upper: bounds.1, from: *from, below: *below };
                let is_change = |key: &[u8], seqs: &[Lsn]| {
                    (lower.clone(), upper.clone()).contains(&key.to_vec())
                        && seqs.iter().any(|seq| (*from..*below).contains(seq))
                };
                let expected = all.iter().any(|(key, seqs)| is_change(key, seqs));
                let found = table.walk().find_change(&changes, &mut usize::MAX.clone()).unwrap();
                prop_assert_eq!(found.is_some(), expected, "{:?}", changes);
                prop_assert!(found.is_none_or(|key| is_change(key, &all[key])));
            }
        }
    }

    #[test]
    fn what_was_there_before_a_walk_is_found_while_other_threads_split_its_leaves() {
        const ROUNDS: u64 = if cfg!(miri) { 3 } else { 200 };
        for round in 0..ROUNDS {
            let table = table(4);
            let key = |n: u64| (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ round).to_be_bytes();
            for n in 0..40 {
                table.insert(&key(n), 10, OpKind::Put, b"");
            }
            table.insert(&key(round % 40), 99, OpKind::Delete, b"");
            std::thread::scope(|scope| {
                for id in 1..3u64 {
                    let table = &table;
                    scope.spawn(move || {
                        (0..200).for_each(|n| {
                            table.insert(&key(id * 1000 + n), 20, OpKind::Put, b"");
                        });
                    });
                }
                for _ in 0..20 {
                    let changes = Changes { below: 100, ..all_from(99) };
                    let found = table.walk().find_change(&changes, &mut usize::MAX.clone());
                    assert_eq!(found, Ok(Some(&key(round % 40)[..])));
                }
            });
        }
    }
}
