//! The memtable: the newest writes to one family, sorted, in memory.
//!
//! It is an insert-only B+-tree whose nodes and records lie in the epoch's [`Arena`]. Readers take
//! no locks: they read, then validate (`lock.rs`). A writer first copies its key and value into the
//! arena, then holds the lock of one leaf for a few dozen stores. Nodes search an array of key
//! heads (`node.rs`, `head.rs`) after a prefix that all keys of the node share (`split.rs` chooses
//! it). The versions of a key form a list from its record, newest first (`record.rs`). Nothing is
//! removed, so everything found stays valid while the arena lives. `docs/internals/memtable.md`
//! proves the protocol and lists measurements.

mod arena;
mod changes;
mod chunk;
mod cursor;
mod estimate;
mod filter;
mod head;
mod insert;
mod lease;
mod lock;
#[cfg(all(test, any(loom, shuttle)))]
mod model;
mod node;
mod pool;
mod record;
mod search;
mod spans;
mod split;
#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;

pub(crate) use arena::{Arena, Landed};
pub(crate) use changes::{Changes, TooManyLeaves, Walk};
pub(crate) use cursor::MemtableCursor;
pub(crate) use filter::KeyFilter;
pub(crate) use pool::{ChunkPool, Promise};
pub(crate) use spans::Spans;

use crate::env::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use crate::format::{Lsn, OpKind};
use crate::span::Span;
use head::head_at;
use node::{FANOUT, Link, Node, Totals};
use record::Record;
use search::Target;
use spans::SpanTree;
use std::sync::Arc;

/// Slots of the first leaf. A family with a few keys then takes some hundred bytes.
const FIRST_LEAF_CAPACITY: usize = 8;

/// A sorted map from keys to their versions. Any number of threads can write at once.
pub(crate) struct Memtable {
    root: Link,
    /// The last leaf, or a leaf that was the last one until recently. None before the first split.
    rightmost: Link,
    /// The head of the last leaf's lower bound. A key with a lower head cannot belong to that leaf.
    rightmost_head: AtomicU64,
    fanout: usize,
    /// The number of leaves.
    leaves: AtomicU32,
    filter: Option<KeyFilter>,
    spans: SpanTree,
    arena: Arc<Arena>,
}

/// The version that a read found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found<'a> {
    pub(crate) seq: Lsn,
    pub(crate) kind: OpKind,
    /// Empty for a delete.
    pub(crate) value: &'a [u8],
}

impl Memtable {
    pub(crate) fn new(arena: Arc<Arena>) -> Memtable {
        Memtable::with_fanout(arena, FIRST_LEAF_CAPACITY, FANOUT)
    }

    /// A memtable that is expected to have so many leaves, with a filter if it is worth one.
    pub(crate) fn expecting(arena: Arc<Arena>, leaves: u32) -> Memtable {
        let filter = KeyFilter::for_leaves(leaves);
        arena.charge(filter.as_ref().map_or(0, KeyFilter::bytes));
        Memtable { filter, ..Memtable::new(arena) }
    }

    fn with_fanout(arena: Arc<Arena>, first_leaf: usize, fanout: usize) -> Memtable {
        assert!((2..=fanout).contains(&first_leaf) && (4..=FANOUT).contains(&fanout));
        let root = Link::null();
        root.store(Node::create(&arena, 0, first_leaf, None));
        Memtable {
            root,
            rightmost: Link::null(),
            rightmost_head: AtomicU64::new(u64::MAX),
            fanout,
            leaves: AtomicU32::new(1),
            filter: None,
            spans: SpanTree::new(),
            arena,
        }
    }

    /// What tells most keys that it does not hold, if it has that.
    #[inline(always)]
    pub(crate) fn filter(&self) -> Option<&KeyFilter> {
        self.filter.as_ref()
    }

    /// The number of leaves, now.
    pub(crate) fn leaves(&self) -> u32 {
        self.leaves.load(Relaxed)
    }

    /// The newest version of the key that a reader at `point` sees: the one with the largest
    /// sequence number below it. Takes no lock and allocates nothing.
    #[inline(always)]
    pub(crate) fn get(&self, key: &[u8], point: Lsn) -> Option<Found<'_>> {
        let record = loop {
            let (leaf, stamp) = self.find_leaf(Target::Key(key));
            let slot = leaf.search(key);
            // If the record found has the right key, it is right even without validation, because
            // keys are never removed. This matters where other threads write all the time.
            if leaf.lock().validate(stamp) || slot.record.is_some_and(|record| record.key() == key)
            {
                break slot.record;
            }
        };
        let version = record?.newest_below(point)?;
        Some(Found { seq: version.seq(), kind: version.kind(), value: version.value() })
    }

    /// Adds a range delete of the keys from `start` on and below `end`; an empty end is none.
    pub(crate) fn delete_range(&self, start: &[u8], end: &[u8], seq: Lsn) {
        let end = (!end.is_empty()).then(|| end.into());
        let bytes = self.spans.add(Span { start: start.into(), end, seq });
        self.arena.charge(bytes);
    }

    /// The range deletes at this moment, if there are any.
    #[inline]
    pub(crate) fn spans(&self) -> Option<Spans> {
        self.spans.load()
    }

    /// True if it holds range deletes. Every one is seen that a reader at a visible point sees.
    #[inline]
    pub(crate) fn has_spans(&self) -> bool {
        self.spans.is_any()
    }

    /// The newest sequence number below `point` of a range delete that covers `key`; 0 if there is
    /// none.
    #[inline]
    pub(crate) fn newest_span_at(&self, key: &[u8], point: Lsn) -> Lsn {
        self.spans.newest_at(key, point)
    }

    /// The number of versions. Like the other figures it walks over all leaves, so ask when a table
    /// is sealed, not at every write. While writers run it may be slightly behind.
    pub(crate) fn len(&self) -> u64 {
        self.totals().versions
    }

    /// The number of keys.
    #[cfg(test)]
    pub(crate) fn keys(&self) -> u64 {
        self.totals().keys
    }

    /// The bytes of keys and values. A key counts once for each of its versions.
    #[cfg(test)]
    pub(crate) fn key_value_bytes(&self) -> u64 {
        self.totals().bytes
    }

    /// The smallest sequence number of a version; `Lsn::MAX` if there is none.
    #[cfg(test)]
    pub(crate) fn min_seq(&self) -> Lsn {
        self.totals().min_seq
    }

    /// The largest sequence number of a version; 0 if there is none.
    #[cfg(test)]
    pub(crate) fn max_seq(&self) -> Lsn {
        self.totals().max_seq
    }

    /// True if nothing was ever inserted.
    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        let root = self.root();
        root.level() == 0 && root.count() == 0
    }

    #[cfg(feature = "bench-internals")]
    pub(crate) fn arena(&self) -> &Arc<Arena> {
        &self.arena
    }

    fn totals(&self) -> Totals {
        let mut sum = Totals::NONE;
        let (mut leaf, mut stamp) = self.find_leaf(Target::First);
        loop {
            let (totals, next) = (leaf.totals(), leaf.next());
            if !leaf.lock().validate(stamp) {
                match leaf.lock().read() {
                    Some(again) => stamp = again,
                    // Only a root that is a leaf is ever replaced, so nothing has been summed yet.
                    None => (leaf, stamp) = self.find_leaf(Target::First),
                }
                continue;
            }
            sum = sum.add(totals);
            let Some(next) = next else { return sum };
            let Some(next_stamp) = next.lock().read() else { return sum };
            (leaf, stamp) = (next, next_stamp);
        }
    }

    #[inline]
    fn root(&self) -> Node<'_> {
        // SAFETY: `new` and the splits store nodes of this table's arena, which `self` keeps alive.
        unsafe { self.root.load() }.expect("a table has a root from the start")
    }

    #[inline]
    fn rightmost(&self) -> Option<Node<'_>> {
        // SAFETY: splits store nodes of this table's arena, which `self` keeps alive.
        unsafe { self.rightmost.load() }
    }

    /// The caller holds the lock of the leaf that was the last one until now.
    fn set_rightmost(&self, leaf: Node<'_>, low: Record<'_>) {
        self.rightmost_head.store(head_at(low.key(), 0), Relaxed);
        self.rightmost.store(leaf);
    }
}

impl std::fmt::Debug for Memtable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Memtable").field("totals", &self.totals()).finish()
    }
}
