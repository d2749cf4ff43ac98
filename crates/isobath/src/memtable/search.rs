//! Finds a key in a node, and a leaf in the tree, without locks.
//!
//! The search reaches a node by routing. So the key lies within the node's bounds and has the known
//! part of the prefix; no comparison is needed for that. Only at the edges of a cluster of keys is
//! the prefix longer than what the bounds show. Then the rest of the prefix is compared first.

use super::Memtable;
use super::head::{compare_behind_head, equal_between, head_at};
use super::lock::{Backoff, Stamp};
use super::node::{Node, Prefix};
use super::record::Record;
use std::cmp::Ordering;

/// The position of a key in a node, or the position where it would be inserted.
pub(super) struct Slot<'a> {
    /// The first slot whose key is not below the key searched for.
    pub(super) index: usize,
    /// The key itself, if it exists.
    pub(super) record: Option<Record<'a>>,
    /// The head of the key searched for. Meaningless if that key does not have the node's prefix.
    pub(super) head: u64,
    pub(super) has_prefix: bool,
}

impl<'a> Node<'a> {
    #[inline]
    pub(super) fn search(self, key: &[u8]) -> Slot<'a> {
        let prefix = self.prefix();
        if prefix.skip > prefix.known
            && let Some(side) = self.beside_prefix(key, prefix)
        {
            let index = if side == Ordering::Less { 0 } else { self.count() };
            return Slot { index, record: None, head: 0, has_prefix: false };
        }
        let skip = prefix.skip as usize;
        let head = head_at(key, skip);
        let index = self.heads_below(head);
        let count = self.count();
        if index < count && self.head(index) == head {
            return self.search_equal_heads(key, skip, head, index, count);
        }
        Slot { index: index.min(count), record: None, head, has_prefix: true }
    }

    /// On which side of all keys with the node's prefix the key lies. `None` if it has the prefix.
    #[inline]
    fn beside_prefix(self, key: &[u8], prefix: Prefix) -> Option<Ordering> {
        let of = self.prefix_of()?.key();
        let (known, skip) = (prefix.known as usize, prefix.skip as usize);
        if equal_between(key, of, known, skip) {
            return None;
        }
        // A torn read may have found a record without the prefix. Validation will detect it.
        let side = key[..key.len().min(skip)].cmp(&of[..of.len().min(skip)]);
        (side != Ordering::Equal).then_some(side)
    }

    #[inline]
    fn search_equal_heads(
        self,
        key: &[u8],
        skip: usize,
        head: u64,
        first: usize,
        count: usize,
    ) -> Slot<'a> {
        let slot = |index, record| Slot { index, record, head, has_prefix: true };
        let Some(record) = self.key(first) else { return slot(first, None) };
        record.prefetch_rest();
        match compare_behind_head(key, record.key(), skip) {
            Ordering::Equal => return slot(first, Some(record)),
            Ordering::Less => return slot(first, None),
            Ordering::Greater => {}
        }
        let (mut low, mut high) = (first + 1, count);
        if low < high && self.head(low) != head {
            return slot(low, None);
        }
        if let Some(above) = head.checked_add(1) {
            high = self.heads_below(above).clamp(low, count.max(low));
        }
        while low < high {
            let middle = low + (high - low) / 2;
            let Some(record) = self.key(middle) else { break };
            match compare_behind_head(key, record.key(), skip) {
                Ordering::Equal => return slot(middle, Some(record)),
                Ordering::Less => high = middle,
                Ordering::Greater => low = middle + 1,
            }
        }
        slot(low, None)
    }

    /// The child of an inner node whose range holds the key. `None` only in a torn read.
    #[inline]
    pub(super) fn child_for(self, key: &[u8]) -> Option<Node<'a>> {
        let slot = self.search(key);
        self.child(slot.index + usize::from(slot.record.is_some()))
    }
}

/// Where to go down the tree.
#[derive(Clone, Copy)]
pub(super) enum Target<'k> {
    First,
    Last,
    Key(&'k [u8]),
}

impl Memtable {
    /// The leaf to which the target belongs, and the stamp under which that is true.
    #[inline]
    pub(super) fn find_leaf(&self, target: Target<'_>) -> (Node<'_>, Stamp) {
        if let Some(found) = self.try_find_leaf(target) {
            return found;
        }
        let mut backoff = Backoff::new();
        loop {
            backoff.wait();
            if let Some(found) = self.try_find_leaf(target) {
                return found;
            }
        }
    }

    #[inline]
    fn try_find_leaf(&self, target: Target<'_>) -> Option<(Node<'_>, Stamp)> {
        let mut node = self.root();
        let mut stamp = node.lock().read()?;
        // If the root was split before the stamp was taken, this node covers only a part of the
        // keys. It is not the root any more then.
        if self.root() != node {
            return None;
        }
        while node.level() > 0 {
            let child = match target {
                Target::Key(key) => node.child_for(key),
                Target::First => node.child(0),
                Target::Last => node.child(node.count()),
            };
            let child = child?;
            if node.level() == 1 {
                child.prefetch_leaf();
            }
            let child_stamp = child.lock().read()?;
            // Validate after the child's stamp is taken: a split of the child changes this node
            // first.
            if !node.lock().validate(stamp) {
                return None;
            }
            (node, stamp) = (child, child_stamp);
        }
        Some((node, stamp))
    }
}
