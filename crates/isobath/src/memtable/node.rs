//! Nodes of the tree: only their memory, not what the tree does with them.
//!
//! ```text
//! leaf    | header, 128 bytes | heads: u64 × capacity | records: pointer × capacity |
//! inner   | header, 128 bytes | heads               | separators | children: pointer × (capacity + 1) |
//! ```
//!
//! A node covers the keys from `low` to below `high`. A missing bound is open. `low`, `level` and
//! `capacity` are set before a node is published. Every other word is atomic, changes only under
//! the node's lock, and is used by a reader only after validation. Whatever a torn read combines,
//! it stays within the node: a slot below the capacity holds null or a record (or child) of the
//! arena, which lives as long as the tree.
//!
//! `heads[i]` is the head of key `i` after the node's prefix. Heads at and above `count` are all
//! ones, so a search does not need the count. Heads and keys ascend. `count` is at most `capacity`.

use super::arena::Arena;
use super::lock::VersionLock;
use super::record::{Record, RecordHeader};
use crate::env::prefetch;
use crate::env::sync::atomic::{AtomicPtr, AtomicU16, AtomicU64, Ordering::*};
use crate::format::Lsn;
use std::marker::PhantomData;
use std::ptr::{NonNull, null_mut};

/// Slots of a node of full size.
pub(super) const FANOUT: usize = 64;

#[repr(C, align(64))]
pub(super) struct Header {
    lock: VersionLock,
    count: AtomicU16,
    /// The slot of the last insert. Consecutive inserts show a run of ascending or descending keys.
    last_insert: AtomicU16,
    level: u16,
    capacity: u16,
    prefix: AtomicU64,
    prefix_of: AtomicPtr<RecordHeader>,
    high: AtomicPtr<RecordHeader>,
    high_head: AtomicU64,
    low: *mut RecordHeader,
    next: AtomicPtr<Header>,
    // The second cache line is used only in leaves, and only by writers and backward cursors.
    prev: AtomicPtr<Header>,
    tally: Tally,
}

/// Sums over what was put into a leaf. A split leaves them with the left half, so only sums over
/// all leaves have a meaning. One figure holds for each leaf by itself: no version in it has a
/// sequence number above `max_seq`, which a split hands on to the right half.
struct Tally {
    versions: AtomicU64,
    bytes: AtomicU64,
    min_seq: AtomicU64,
    max_seq: AtomicU64,
}

/// The bytes before the heads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Prefix {
    /// The number of bytes of each key before its head. All keys of the node have the same bytes
    /// there.
    pub(super) skip: u32,
    /// How many of these bytes every possible key between the node's bounds shares. The others must
    /// be compared with [`Node::prefix_of`]. Never above `skip`.
    pub(super) known: u32,
}

/// Sums over a tree or a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Totals {
    pub(super) keys: u64,
    pub(super) versions: u64,
    pub(super) bytes: u64,
    pub(super) min_seq: Lsn,
    pub(super) max_seq: Lsn,
}

impl Totals {
    pub(super) const NONE: Totals =
        Totals { keys: 0, versions: 0, bytes: 0, min_seq: Lsn::MAX, max_seq: 0 };

    pub(super) fn add(self, other: Totals) -> Totals {
        Totals {
            keys: self.keys + other.keys,
            versions: self.versions + other.versions,
            bytes: self.bytes + other.bytes,
            min_seq: self.min_seq.min(other.min_seq),
            max_seq: self.max_seq.max(other.max_seq),
        }
    }
}

/// A node of a tree whose arena lives for `'a`.
#[derive(Clone, Copy)]
pub(super) struct Node<'a>(NonNull<Header>, PhantomData<&'a Arena>);

// SAFETY: a shared reference to memory that is immutable or atomic.
unsafe impl Send for Node<'_> {}

impl PartialEq for Node<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

/// A changeable pointer to a node, or to none.
pub(super) struct Link(AtomicPtr<Header>);

impl Link {
    pub(super) fn null() -> Link {
        Link(AtomicPtr::new(null_mut()))
    }

    pub(super) fn store(&self, node: Node<'_>) {
        self.0.store(node.0.as_ptr(), Release);
    }

    /// # Safety
    /// Only nodes of an arena that lives for `'a` were ever stored in it.
    #[inline]
    pub(super) unsafe fn load<'a>(&self) -> Option<Node<'a>> {
        NonNull::new(self.0.load(Acquire)).map(|node| Node(node, PhantomData))
    }
}

const HEADER_LEN: usize = size_of::<Header>();
#[cfg(not(any(loom, shuttle)))]
const _: () = assert!(HEADER_LEN == 128);

const LEAF_LEN: usize =
    HEADER_LEN + FANOUT * (size_of::<AtomicU64>() + size_of::<AtomicPtr<RecordHeader>>());

fn keys_offset(capacity: usize) -> usize {
    HEADER_LEN + capacity * size_of::<AtomicU64>()
}

fn children_offset(capacity: usize) -> usize {
    keys_offset(capacity) + capacity * size_of::<AtomicPtr<RecordHeader>>()
}

impl<'a> Node<'a> {
    /// An empty node that is not published yet.
    pub(super) fn create(
        arena: &'a Arena,
        level: u16,
        capacity: usize,
        low: Option<Record<'a>>,
    ) -> Node<'a> {
        let children = if level > 0 { capacity + 1 } else { 0 };
        let len = children_offset(capacity) + children * size_of::<AtomicPtr<Header>>();
        let header = Header {
            lock: VersionLock::new(),
            count: AtomicU16::new(0),
            last_insert: AtomicU16::new(u16::MAX - 1),
            level,
            capacity: u16::try_from(capacity).expect("nodes are small"),
            prefix: AtomicU64::new(0),
            prefix_of: AtomicPtr::new(null_mut()),
            high: AtomicPtr::new(null_mut()),
            high_head: AtomicU64::new(0),
            low: low.map_or(null_mut(), Record::as_ptr),
            next: AtomicPtr::new(null_mut()),
            prev: AtomicPtr::new(null_mut()),
            tally: Tally {
                versions: AtomicU64::new(0),
                bytes: AtomicU64::new(0),
                min_seq: AtomicU64::new(Lsn::MAX),
                max_seq: AtomicU64::new(0),
            },
        };
        let memory = arena.alloc_node(len);
        let node = Node(memory.cast(), PhantomData);
        debug_assert!(memory.cast::<Header>().is_aligned(), "a node begins at a cache line");
        // SAFETY: the allocation is ours alone, aligned to a cache line, and `len` covers header
        // and arrays.
        unsafe {
            node.0.write(header);
            let heads = memory.add(HEADER_LEN).cast::<AtomicU64>();
            let keys = memory.add(keys_offset(capacity)).cast::<AtomicPtr<RecordHeader>>();
            for i in 0..capacity {
                heads.add(i).write(AtomicU64::new(u64::MAX));
                keys.add(i).write(AtomicPtr::new(null_mut()));
            }
            let links = memory.add(children_offset(capacity)).cast::<AtomicPtr<Header>>();
            (0..children).for_each(|i| links.add(i).write(AtomicPtr::new(null_mut())));
        }
        node
    }

    #[inline]
    fn header(self) -> &'a Header {
        // SAFETY: `create` wrote it, and it lives as long as the arena. All words in it that change
        // are atomic.
        unsafe { self.0.as_ref() }
    }

    #[inline]
    fn head_word(self, i: usize) -> &'a AtomicU64 {
        assert!(i < self.capacity());
        // SAFETY: the array of `capacity` heads starts there, initialised by `create`.
        unsafe { self.0.byte_add(HEADER_LEN).cast::<AtomicU64>().add(i).as_ref() }
    }

    #[inline]
    fn key_word(self, i: usize) -> &'a AtomicPtr<RecordHeader> {
        assert!(i < self.capacity());
        let offset = keys_offset(self.capacity());
        // SAFETY: the array of `capacity` records starts there, initialised by `create`.
        unsafe { self.0.byte_add(offset).cast::<AtomicPtr<RecordHeader>>().add(i).as_ref() }
    }

    #[inline]
    fn child_word(self, i: usize) -> &'a AtomicPtr<Header> {
        assert!(self.level() > 0 && i <= self.capacity());
        let offset = children_offset(self.capacity());
        // SAFETY: an inner node's array of `capacity + 1` children starts there, initialised by
        // `create`.
        unsafe { self.0.byte_add(offset).cast::<AtomicPtr<Header>>().add(i).as_ref() }
    }

    #[inline]
    pub(super) fn lock(self) -> &'a VersionLock {
        &self.header().lock
    }

    /// 0 for a leaf; otherwise the distance to the leaves.
    #[inline]
    pub(super) fn level(self) -> u16 {
        self.header().level
    }

    #[inline]
    pub(super) fn capacity(self) -> usize {
        self.header().capacity as usize
    }

    #[inline]
    pub(super) fn count(self) -> usize {
        self.header().count.load(Relaxed) as usize
    }

    pub(super) fn is_full(self) -> bool {
        self.count() == self.capacity()
    }

    pub(super) fn last_insert(self) -> usize {
        self.header().last_insert.load(Relaxed) as usize
    }

    #[inline]
    pub(super) fn head(self, i: usize) -> u64 {
        self.head_word(i).load(Relaxed)
    }

    /// The record in slot `i`, or the separator between children `i` and `i + 1`. `None` past the
    /// last one; a torn read can lead there.
    #[inline]
    pub(super) fn key(self, i: usize) -> Option<Record<'a>> {
        // SAFETY: slots hold null or published records of this tree's arena.
        unsafe { Record::from_ptr(self.key_word(i).load(Acquire)) }
    }

    #[inline]
    pub(super) fn child(self, i: usize) -> Option<Node<'a>> {
        NonNull::new(self.child_word(i).load(Acquire)).map(|child| Node(child, PhantomData))
    }

    #[inline]
    pub(super) fn prefix(self) -> Prefix {
        let word = self.header().prefix.load(Relaxed);
        Prefix { skip: word as u32, known: (word >> 32) as u32 }
    }

    /// A record whose key starts with the node's prefix.
    pub(super) fn prefix_of(self) -> Option<Record<'a>> {
        // SAFETY: null or a record of this tree's arena.
        unsafe { Record::from_ptr(self.header().prefix_of.load(Acquire)) }
    }

    pub(super) fn low(self) -> Option<Record<'a>> {
        // SAFETY: null or a record of this tree's arena.
        unsafe { Record::from_ptr(self.header().low) }
    }

    pub(super) fn high(self) -> Option<Record<'a>> {
        // SAFETY: null or a record of this tree's arena.
        unsafe { Record::from_ptr(self.header().high.load(Acquire)) }
    }

    /// The head of the upper bound after the known part of the prefix.
    pub(super) fn high_head(self) -> u64 {
        self.header().high_head.load(Relaxed)
    }

    /// The leaf to the right. Its `low` is this leaf's `high`.
    #[inline]
    pub(super) fn next(self) -> Option<Node<'a>> {
        NonNull::new(self.header().next.load(Acquire)).map(|node| Node(node, PhantomData))
    }

    /// A leaf to the left. While a neighbour splits, it may not be the nearest one.
    pub(super) fn prev(self) -> Option<Node<'a>> {
        NonNull::new(self.header().prev.load(Acquire)).map(|node| Node(node, PhantomData))
    }

    pub(super) fn totals(self) -> Totals {
        let tally = &self.header().tally;
        Totals {
            keys: self.count() as u64,
            versions: tally.versions.load(Relaxed),
            bytes: tally.bytes.load(Relaxed),
            min_seq: tally.min_seq.load(Relaxed),
            max_seq: tally.max_seq.load(Relaxed),
        }
    }

    /// No version in this leaf has a larger sequence number.
    #[inline]
    pub(super) fn max_seq(self) -> Lsn {
        self.header().tally.max_seq.load(Relaxed)
    }

    /// Prefetches all cache lines of a leaf of full size at once: a search needs most of them, one
    /// after another.
    #[inline]
    pub(super) fn prefetch_leaf(self) {
        let start = self.0.as_ptr().cast::<u8>();
        (0..LEAF_LEN).step_by(64).for_each(|offset| prefetch(start.wrapping_add(offset)));
    }

    /// # Safety
    /// The caller keeps the arena alive as long as it uses the result.
    #[inline]
    pub(super) unsafe fn detach(self) -> Node<'static> {
        Node(self.0, PhantomData)
    }
}

/// Changes. The caller holds the node's lock, or the node is not published yet.
impl<'a> Node<'a> {
    /// Inserts a key at slot `i` and moves the keys from there on up by one.
    #[inline]
    pub(super) fn insert_key(self, i: usize, head: u64, record: Record<'a>) {
        let count = self.count();
        assert!(i <= count && count < self.capacity());
        for slot in (i..count).rev() {
            self.head_word(slot + 1).store(self.head(slot), Relaxed);
        }
        for slot in (i..count).rev() {
            self.key_word(slot + 1).store(self.key_word(slot).load(Relaxed), Release);
        }
        debug_assert!(
            i == 0 || self.key(i - 1).is_some_and(|before| before.key() < record.key()),
            "a key is not above the one before it"
        );
        debug_assert!(
            i == count || self.key(i + 1).is_some_and(|behind| record.key() < behind.key()),
            "a key is not below the one behind it"
        );
        debug_assert!(i == 0 || self.head(i - 1) <= head, "heads order as their keys do");
        debug_assert!(i == count || head <= self.head(i + 1), "heads order as their keys do");
        self.head_word(i).store(head, Relaxed);
        self.key_word(i).store(record.as_ptr(), Release);
        self.header().count.store((count + 1) as u16, Relaxed);
        self.header().last_insert.store(i as u16, Relaxed);
    }

    /// Inserts a child at place `i` and moves the children from there on up by one. `children` is
    /// their number.
    pub(super) fn insert_child(self, i: usize, child: Node<'a>, children: usize) {
        debug_assert!(i <= children && children <= self.capacity(), "a node has no such child");
        debug_assert_eq!(child.level() + 1, self.level(), "all leaves are equally deep");
        for place in (i..children).rev() {
            self.child_word(place + 1).store(self.child_word(place).load(Relaxed), Release);
        }
        self.child_word(i).store(child.0.as_ptr(), Release);
    }

    /// Copies the keys from slot `from` on, and the children after them, into `to`. `to` is empty
    /// and has the same prefix.
    pub(super) fn copy_keys(self, from: usize, to: Node<'a>) {
        let count = self.count();
        debug_assert!(count.saturating_sub(from) <= to.capacity(), "the copied keys have no room");
        for (i, slot) in (from..count).enumerate() {
            to.head_word(i).store(self.head(slot), Relaxed);
            to.key_word(i).store(self.key_word(slot).load(Relaxed), Release);
        }
        if self.level() > 0 {
            for (i, place) in (from..=count).enumerate() {
                to.child_word(i).store(self.child_word(place).load(Relaxed), Release);
            }
        }
        to.header().count.store(count.saturating_sub(from) as u16, Relaxed);
    }

    pub(super) fn truncate(self, count: usize) {
        debug_assert!(count <= self.count(), "a node grows by inserting");
        for slot in count..self.count() {
            self.set_head(slot, u64::MAX);
        }
        self.header().count.store(count as u16, Relaxed);
        self.header().last_insert.store(u16::MAX - 1, Relaxed);
    }

    pub(super) fn set_head(self, i: usize, head: u64) {
        self.head_word(i).store(head, Relaxed);
    }

    pub(super) fn set_prefix(self, prefix: Prefix, of: Option<Record<'a>>) {
        self.header().prefix_of.store(of.map_or(null_mut(), Record::as_ptr), Release);
        let word = u64::from(prefix.known) << 32 | u64::from(prefix.skip);
        self.header().prefix.store(word, Relaxed);
    }

    pub(super) fn set_high(self, high: Option<Record<'a>>) {
        self.header().high.store(high.map_or(null_mut(), Record::as_ptr), Release);
    }

    pub(super) fn set_high_head(self, head: u64) {
        self.header().high_head.store(head, Relaxed);
    }

    pub(super) fn set_next(self, next: Option<Node<'a>>) {
        self.header().next.store(next.map_or(null_mut(), |next| next.0.as_ptr()), Release);
    }

    /// Needs the lock of the leaf that `prev` was split from. It does not need this node's own
    /// lock.
    pub(super) fn set_prev(self, prev: Node<'a>) {
        self.header().prev.store(prev.0.as_ptr(), Release);
    }

    /// Counts one more version.
    #[inline]
    pub(super) fn tally(self, seq: Lsn, bytes: usize) {
        let tally = &self.header().tally;
        tally.versions.store(tally.versions.load(Relaxed) + 1, Relaxed);
        tally.bytes.store(tally.bytes.load(Relaxed) + bytes as u64, Relaxed);
        tally.min_seq.store(tally.min_seq.load(Relaxed).min(seq), Relaxed);
        tally.max_seq.store(tally.max_seq.load(Relaxed).max(seq), Relaxed);
    }

    pub(super) fn set_max_seq(self, seq: Lsn) {
        self.header().tally.max_seq.store(seq, Relaxed);
    }

    pub(super) fn set_tally(self, totals: Totals) {
        let tally = &self.header().tally;
        tally.versions.store(totals.versions, Relaxed);
        tally.bytes.store(totals.bytes, Relaxed);
        tally.min_seq.store(totals.min_seq, Relaxed);
        tally.max_seq.store(totals.max_seq, Relaxed);
    }
}

/// Search. Without the lock, the answer means nothing until it is validated.
impl Node<'_> {
    /// The number of heads below `head`.
    #[inline]
    pub(super) fn heads_below(self, head: u64) -> usize {
        if self.capacity() != FANOUT {
            return (0..self.capacity()).filter(|&i| self.head(i) < head).count();
        }
        // SAFETY: the array of `capacity` heads starts there, initialised by `create`.
        let heads: &[AtomicU64; FANOUT] = unsafe { self.0.byte_add(HEADER_LEN).cast().as_ref() };
        // The loads within each step do not depend on each other, so their cache misses overlap.
        let group: usize =
            (0..7).map(|group| usize::from(heads[group * 8 + 7].load(Relaxed) < head)).sum();
        let start = group * 8;
        let within: usize =
            heads[start..start + 8].iter().map(|word| usize::from(word.load(Relaxed) < head)).sum();
        start + within
    }
}
