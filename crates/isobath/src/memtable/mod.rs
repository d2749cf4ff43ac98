//! The memtable: what was written lately to one family, sorted, in memory.
//!
//! An insert-only B+-tree whose nodes and records lie in the epoch's [`Arena`]. Readers take no
//! locks: they read, then validate (`lock.rs`). A writer copies its key and value into the arena
//! first, then holds the lock of one leaf for a few dozen stores. Nodes search an array of key
//! heads (`node.rs`, `head.rs`) behind a prefix that all keys of the node share (`split.rs` chooses
//! it); the versions of a key hang newest first off its record (`record.rs`). Nothing is removed,
//! so what was found stays good while the arena lives. `docs/internals/memtable.md` argues the
//! protocol and tells what was measured.

mod arena;
mod chunk;
mod cursor;
mod head;
mod insert;
mod lock;
#[cfg(all(test, any(loom, shuttle)))]
mod model;
mod node;
mod pool;
mod prefetch;
mod record;
mod search;
mod split;
#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;

pub(crate) use arena::Arena;
pub(crate) use cursor::MemtableCursor;
pub(crate) use pool::ChunkPool;

use crate::env::sync::atomic::{AtomicU64, Ordering::Relaxed};
use crate::format::{Lsn, OpKind};
use head::head_at;
use node::{FANOUT, Link, Node, Totals};
use record::Record;
use search::Target;
use std::sync::Arc;

/// Slots of the first leaf: a family with a few keys costs some hundred bytes.
const FIRST_LEAF_CAPACITY: usize = 8;

/// A sorted map from keys to their versions, written by any number of threads at once.
pub(crate) struct Memtable {
    root: Link,
    /// The last leaf, or one that was the last until lately; none before the first split.
    rightmost: Link,
    /// The head of the last leaf's lower bound: keys below it can't belong there.
    rightmost_head: AtomicU64,
    fanout: usize,
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

    fn with_fanout(arena: Arc<Arena>, first_leaf: usize, fanout: usize) -> Memtable {
        assert!((2..=fanout).contains(&first_leaf) && (4..=FANOUT).contains(&fanout));
        let root = Link::null();
        root.store(Node::create(&arena, 0, first_leaf, None));
        Memtable {
            root,
            rightmost: Link::null(),
            rightmost_head: AtomicU64::new(u64::MAX),
            fanout,
            arena,
        }
    }

    /// The newest version of the key that a reader at `point` sees: the one with the greatest
    /// sequence below it. Takes no lock and allocates nothing.
    #[inline]
    pub(crate) fn get(&self, key: &[u8], point: Lsn) -> Option<Found<'_>> {
        let record = loop {
            let (leaf, stamp) = self.find_leaf(Target::Key(key));
            let slot = leaf.search(key);
            // Where others write all the time the right record is right without validation: keys
            // stay.
            if leaf.lock().validate(stamp) || slot.record.is_some_and(|record| record.key() == key)
            {
                break slot.record;
            }
        };
        let version = record?.newest_below(point)?;
        Some(Found { seq: version.seq(), kind: version.kind(), value: version.value() })
    }

    /// How many versions there are. Like the other figures it walks all leaves, so ask when a table
    /// is sealed, not for every write; while writers run it may be a little behind.
    #[cfg(test)]
    pub(crate) fn len(&self) -> u64 {
        self.totals().versions
    }

    /// How many keys there are.
    #[cfg(test)]
    pub(crate) fn keys(&self) -> u64 {
        self.totals().keys
    }

    /// The bytes of keys and values, the key counted with each of its versions.
    #[cfg(test)]
    pub(crate) fn key_value_bytes(&self) -> u64 {
        self.totals().bytes
    }

    /// The least sequence of a version; `Lsn::MAX` if there is none.
    #[cfg(test)]
    pub(crate) fn min_seq(&self) -> Lsn {
        self.totals().min_seq
    }

    /// The greatest sequence of a version; 0 if there is none.
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
                    // Only a root that is a leaf is ever replaced, so nothing was summed yet.
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

    /// Called under the lock of the leaf that was the last so far.
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
