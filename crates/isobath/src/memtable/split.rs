//! Makes room: a full node is split, and the tree grows at its root.
//!
//! Room is made from the top. On the way down, a full inner node is split before its child is. So a
//! split changes one node and its parent, and holds no other lock. The left half stays in place.
//! The right half is built before it is visible and is complete when it is published: through the
//! left half, its right neighbour and the parent.
//!
//! If keys come in runs, the node is split where the next key of the run goes. So ascending or
//! descending inserts leave full nodes behind.

use super::Memtable;
use super::head::{HEAD_LEN, common_prefix_len, head_at};
use super::lock::{Backoff, Stamp};
use super::node::{Node, Prefix};
use super::record::Record;
use crate::env::sync::atomic::Ordering::Relaxed;
use crate::env::{Plant, planted};

/// A prefix that is longer than the known one by no more than this is not worth comparing.
const UNKNOWN_LEN_MIN: usize = HEAD_LEN / 2;
/// If the best prefix is longer than the present one by no more than this, the heads still
/// distinguish keys well, and are not recomputed.
const SKIP_SLACK: usize = 2;

impl Memtable {
    /// Returns after a moment at which the leaf for `pending`, a record not yet in the tree, had
    /// room.
    #[cold]
    pub(super) fn make_room(&self, pending: Record<'_>) {
        let mut backoff = Backoff::new();
        while !self.try_make_room(pending) {
            backoff.wait();
        }
    }

    fn try_make_room(&self, pending: Record<'_>) -> bool {
        let mut node = self.root();
        let Some(mut stamp) = node.lock().read() else { return false };
        if self.root() != node {
            return false;
        }
        let mut parent = None;
        loop {
            if node.is_full() {
                return self.try_split(parent, (node, stamp), pending) && node.level() == 0;
            }
            if node.level() == 0 {
                return node.lock().validate(stamp);
            }
            let Some(child) = child_under(node, stamp, pending.key()) else { return false };
            parent = Some((node, stamp));
            (node, stamp) = child;
        }
    }

    /// Splits `node` if neither it nor its parent has changed since their stamps were taken.
    /// Without a parent, `node` is the root.
    fn try_split<'a>(
        &'a self,
        parent: Option<(Node<'a>, Stamp)>,
        (node, stamp): (Node<'a>, Stamp),
        pending: Record<'a>,
    ) -> bool {
        if parent.is_some_and(|(parent, stamp)| !parent.lock().try_lock(stamp)) {
            return false;
        }
        if !node.lock().try_lock(stamp) {
            if let Some((parent, stamp)) = parent {
                parent.lock().unlock_unchanged(stamp);
            }
            return false;
        }
        if node.level() == 0 && node.capacity() < self.fanout {
            self.grow(node);
            node.lock().unlock_replaced(stamp);
            return true;
        }
        let (separator, right) = self.split(node, pending);
        match parent {
            Some((parent, stamp)) => {
                parent.insert_separator(separator, right);
                parent.lock().unlock_changed(stamp);
            }
            None => self.root.store(self.root_over(node, separator, right)),
        }
        node.lock().unlock_changed(stamp);
        true
    }

    /// A root over two nodes. It is not published.
    fn root_over<'a>(&'a self, left: Node<'a>, separator: Record<'a>, right: Node<'a>) -> Node<'a> {
        let root = Node::create(&self.arena, left.level() + 1, self.fanout, None);
        root.insert_child(0, left, 0);
        root.insert_separator(separator, right);
        root
    }

    /// Replaces a root that is a small leaf by a larger leaf. So small tables stay small.
    fn grow(&self, leaf: Node<'_>) {
        let capacity = (leaf.capacity() * 4).min(self.fanout);
        let larger = Node::create(&self.arena, 0, capacity, None);
        larger.set_prefix(leaf.prefix(), leaf.prefix_of());
        leaf.copy_keys(0, larger);
        larger.set_tally(leaf.totals());
        larger.settle_prefix(None);
        self.root.store(larger);
    }

    /// Moves the upper part of a locked node to a new one, and links the new one in among the
    /// leaves.
    fn split<'a>(&'a self, node: Node<'a>, pending: Record<'a>) -> (Record<'a>, Node<'a>) {
        let count = node.count();
        let (first, last) = (key_in(node, 0), key_in(node, count - 1));
        // A guess: the prefix that later keys will share in a half that starts nearly empty.
        let guess = common_prefix_len(first.key(), last.key())
            .min(common_prefix_len(first.key(), pending.key()));
        let at = split_point(node, pending.key());
        debug_assert!(at <= count && count > 0, "a node is split behind its end");
        let separator = if at == count { pending } else { key_in(node, at) };
        let right = Node::create(&self.arena, node.level(), self.fanout, Some(separator));
        right.set_prefix(node.prefix(), node.prefix_of());
        // The separator of an inner node moves up; its children on both sides stay.
        node.copy_keys(at + usize::from(node.level() > 0), right);
        if !planted(Plant::SplitForgetsSequence) {
            right.set_max_seq(node.totals().max_seq);
        }
        right.set_high(node.high());
        right.settle_prefix(Some((guess, pending)));
        right.set_next(node.next());
        right.set_prev(node);
        if node.level() == 0 {
            self.leaves.fetch_add(1, Relaxed);
            match node.next() {
                Some(next) => next.set_prev(right),
                None => self.set_rightmost(right, separator),
            }
        }
        node.truncate(at);
        node.set_high(Some(separator));
        node.set_next(Some(right));
        node.settle_prefix(Some((guess, pending)));
        debug_assert!(
            right.high().is_none_or(|high| separator.key() < high.key()),
            "nothing belongs to the new node"
        );
        (separator, right)
    }
}

impl<'a> Node<'a> {
    /// Adds a child to the right of the one that covered `separator` until now.
    fn insert_separator(self, separator: Record<'a>, right: Node<'a>) {
        let slot = self.search(separator.key());
        let head = if slot.has_prefix { slot.head } else { self.shorten_prefix(separator.key()) };
        let children = self.count() + 1;
        self.insert_child(slot.index + 1, right, children);
        self.insert_key(slot.index, head, separator);
        if self.count().is_power_of_two() {
            self.settle_prefix(None);
        }
    }

    /// Shortens the prefix so that a key without it fits. Returns the key's head.
    pub(super) fn shorten_prefix(self, key: &[u8]) -> u64 {
        let Prefix { known, .. } = self.prefix();
        let of = self.prefix_of();
        let common = of.map_or(0, |of| common_prefix_len(of.key(), key));
        let skip = common.max(known as usize);
        self.set_heads(skip);
        self.set_prefix(Prefix { skip: skip as u32, known }, of);
        head_at(key, skip)
    }

    /// Chooses the prefix from the node's bounds and keys. If there is only one key or none,
    /// `guess` gives the expected length of the prefix, and a record that has it.
    fn settle_prefix(self, guess: Option<(usize, Record<'a>)>) {
        let count = self.count();
        let known = match (self.low(), self.high()) {
            (Some(low), Some(high)) => common_prefix_len(low.key(), high.key()),
            _ => 0,
        };
        let (common, of) = if count >= 2 {
            let (first, last) = (key_in(self, 0), key_in(self, count - 1));
            (common_prefix_len(first.key(), last.key()), Some(first))
        } else {
            guess.map_or((known, None), |(common, of)| (common, Some(of)))
        };
        let best = if common > known + UNKNOWN_LEN_MIN { common } else { known };
        let current = self.prefix().skip as usize;
        let skip = if current <= best && best - current <= SKIP_SLACK { current } else { best };
        if skip != current {
            self.set_heads(skip);
        }
        let known = known.min(skip);
        self.set_prefix(Prefix { skip: skip as u32, known: known as u32 }, of);
        self.set_high_head(self.high().map_or(u64::MAX, |high| head_at(high.key(), known)));
    }

    fn set_heads(self, skip: usize) {
        for i in 0..self.count() {
            self.set_head(i, head_at(key_in(self, i).key(), skip));
        }
    }
}

/// The child for `key`, with a stamp; `None` if `node` has changed since its own stamp. Then the
/// child may be another one: split for `key`, it would get a bound outside of its range.
fn child_under<'a>(node: Node<'a>, stamp: Stamp, key: &[u8]) -> Option<(Node<'a>, Stamp)> {
    let child = node.child_for(key)?;
    let child_stamp = child.lock().read()?;
    if !node.lock().validate(stamp) {
        return None;
    }
    Some((child, child_stamp))
}

/// The number of keys that stay in the left half when `key` makes the node split.
fn split_point(node: Node<'_>, key: &[u8]) -> usize {
    let count = node.count();
    let last = node.last_insert();
    if node.level() > 0 {
        let ascending = node.high().is_none() && last + 1 == count;
        return if ascending { count - 1 } else { count / 2 };
    }
    let slot = node.search(key);
    let goes_last = slot.index == count && node.high().is_none();
    let in_a_run = goes_last || slot.index == last + 1 || slot.index == last;
    // Another thread may have inserted the same key. A split before that key could leave the left
    // half without a range.
    if in_a_run && slot.record.is_none() { slot.index } else { count / 2 }
}

fn key_in(node: Node<'_>, i: usize) -> Record<'_> {
    node.key(i).expect("a locked node has a key in every slot below its count")
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::format::OpKind;
    use crate::memtable::search::Target;
    use crate::memtable::{Arena, ChunkPool};
    use std::sync::Arc;

    fn stale(node: Node<'_>) -> Stamp {
        let stamp = node.lock().read().unwrap();
        assert!(node.lock().try_lock(stamp));
        node.lock().unlock_changed(stamp);
        stamp
    }

    #[test]
    fn a_split_under_a_stamp_from_before_a_change_does_nothing_and_holds_no_lock() {
        let arena = Arc::new(Arena::new(Arc::new(ChunkPool::new(64 << 10, 0, 0))));
        let table = Memtable::with_fanout(arena, 4, 4);
        for key in [b"a", b"b", b"c", b"d"] {
            table.insert(key, 10, OpKind::Put, b"");
        }
        let pending = Record::create(&table.arena, b"e", 10, OpKind::Put, b"");
        let leaf = table.root();
        assert!(!table.try_split(None, (leaf, stale(leaf)), pending));
        assert!(table.root() == leaf && leaf.next().is_none());
        assert!(table.try_split(None, (leaf, leaf.lock().read().unwrap()), pending));
        let root = table.root();
        assert_eq!((root.level(), root.count(), root.capacity()), (1, 1, 4));
        assert!(root.child(0) == Some(leaf) && root.child(1) == leaf.next());

        let sound = |node: Node<'_>| node.lock().read().unwrap();
        for (parent, child) in [(stale(root), sound(leaf)), (sound(root), stale(leaf))] {
            let now = (sound(root), sound(leaf));
            assert!(!table.try_split(Some((root, parent)), (leaf, child), pending));
            assert!(root.lock().validate(now.0) && leaf.lock().validate(now.1));
            assert_eq!(root.count(), 1);
        }
        assert!(table.try_split(Some((root, sound(root))), (leaf, sound(leaf)), pending));
        assert_eq!(root.count(), 2);
        assert!(table.find_leaf(Target::Key(b"e")).0 == table.find_leaf(Target::Last).0);
    }

    #[test]
    fn a_child_read_under_a_stamp_from_before_a_change_is_not_the_one_for_a_key() {
        let arena = Arc::new(Arena::new(Arc::new(ChunkPool::new(64 << 10, 0, 0))));
        let table = Memtable::with_fanout(arena, 4, 4);
        for key in [b"a", b"b", b"c", b"d", b"e"] {
            table.insert(key, 10, OpKind::Put, b"");
        }
        let (root, last) = (table.root(), table.find_leaf(Target::Last).0);
        let stamp = root.lock().read().unwrap();
        let (child, child_stamp) = child_under(root, stamp, b"e").unwrap();
        assert!(child == last && child.lock().validate(child_stamp));
        assert!(child_under(root, stale(root), b"e").is_none());
    }

    #[test]
    fn a_small_root_grows_in_steps_of_four_before_it_is_split() {
        let arena = Arc::new(Arena::new(Arc::new(ChunkPool::new(64 << 10, 0, 0))));
        let table = Memtable::with_fanout(arena, 2, 32);
        let mut capacities = Vec::new();
        for n in 0..33_u8 {
            table.insert(&[n], 10 + u64::from(n), OpKind::Put, b"v");
            capacities.push((table.root().level(), table.root().capacity()));
        }
        capacities.dedup();
        assert_eq!(capacities, [(0, 2), (0, 8), (0, 32), (1, 32)]);
        assert_eq!((table.keys(), table.len(), table.key_value_bytes()), (33, 33, 66));
        assert_eq!((table.min_seq(), table.max_seq()), (10, 42));
    }

    #[test]
    fn a_root_that_grows_takes_its_heads_behind_what_its_keys_share() {
        let arena = Arc::new(Arena::new(Arc::new(ChunkPool::new(64 << 10, 0, 0))));
        let table = Memtable::with_fanout(arena, 2, 32);
        for n in 0..3 {
            table.insert(format!("what all keys share {n}").as_bytes(), 10, OpKind::Put, b"");
        }
        let root = table.root();
        assert_eq!((root.level(), root.capacity(), root.prefix().skip), (0, 8, 20));
        assert_eq!(root.head(1), u64::from(b'1') << 56);
    }
}
