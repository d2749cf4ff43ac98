//! The block cache: decoded blocks, shared by the tables of one database or of several.
//!
//! Blocks lie in frames (`frames.rs`). A table remembers the frame of each of its blocks as a hint,
//! so a hit takes no lock and computes no hash. What has no hint, or an old one, is found through
//! the shards, which also decide who stays (`shard.rs`). The cache has no threads, clocks or seeds:
//! the same calls leave the same blocks. `docs/internals/block-cache.md` has the whole of it.

use super::frames::{FrameRef, Frames};
use super::shard::Shard;
use crate::env::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use crate::env::sync::{Mutex, Rank, thread_slot};
use crate::env::{Reach, preempt, reached_if, without_preemption};
use crate::error::MemoryClass;
use crate::memory::Budget;
use crate::table::Block;
use crossbeam_utils::CachePadded;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;

/// Identifies one of the databases that share a cache.
pub(crate) type CacheId = u32;

/// A block that stays in memory as long as this lives, whether or not the cache holds it.
pub(crate) type BlockRef = FrameRef<BlockKey, Block>;

const SHARD_COUNT_MAX: u64 = 64;
const SHARD_BYTES_MIN: u64 = 1 << 20;
/// What the cache itself keeps for each block: the rest of its frame, which is 128 bytes with the
/// block, and 128 for its places in the map, in a queue and among the ghosts.
pub(super) const ENTRY_OVERHEAD: u64 = 152;
/// A block and its key have the two lines of a frame.
#[cfg(all(not(any(loom, shuttle)), any(target_arch = "x86_64", target_arch = "aarch64")))]
const _: () = assert!(Frames::<BlockKey, Block>::FRAME_LEN == 128);
/// How often a block tries to go in while others take the room that was made for it.
const TRIES_MAX: usize = 4;
/// The first threads that were started, so many of them, count in stripes of their own.
const STRIPE_COUNT: usize = if cfg!(any(loom, shuttle)) { 1 } else { 64 };

/// The key of a block in the cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BlockKey {
    pub(crate) id: CacheId,
    pub(crate) file: u64,
    pub(crate) offset: u64,
}

impl BlockKey {
    /// 64 well-mixed bits of the key.
    #[inline]
    pub(super) fn mixed(&self) -> u64 {
        let owner = self.file.wrapping_add(u64::from(self.id) << 40);
        fold(fold(owner, 0x9e37_79b9_7f4a_7c15) ^ self.offset, 0xd6e8_feb8_6659_fd93)
    }
}

/// Combines both halves of the product, so that every bit of `value` counts.
#[inline]
fn fold(value: u64, factor: u64) -> u64 {
    let product = u128::from(value) * u128::from(factor);
    (product ^ product >> 64) as u64
}

/// A hasher for keys that are mixed already.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FixedHasher(u64);

impl Hasher for FixedHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = fold(self.0 ^ u64::from(byte), 0x9e37_79b9_7f4a_7c15);
        }
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = value;
    }
}

impl BuildHasher for FixedHasher {
    type Hasher = FixedHasher;

    fn build_hasher(&self) -> FixedHasher {
        *self
    }
}

/// The frames in which the blocks of an index were last found. None of it is relied on.
#[derive(Debug, Default)]
pub(crate) struct Hints(Box<[AtomicU32]>);

impl Hints {
    pub(crate) fn new(block_count: u32) -> Hints {
        Hints((0..block_count).map(|_| AtomicU32::new(0)).collect())
    }

    /// The memory that they take, in bytes.
    pub(crate) fn charge(&self) -> usize {
        size_of_val(&*self.0)
    }

    /// The hint of a block of the index, if there is one.
    #[inline(always)]
    pub(crate) fn of(&self, nth: u32) -> Hint<'_> {
        self.0.get(nth as usize)
    }
}

/// A place for the number of a frame.
pub(crate) type Hint<'a> = Option<&'a AtomicU32>;

/// What the threads of one stripe have counted.
#[derive(Debug, Default)]
struct Counts {
    hits: AtomicU64,
    misses: AtomicU64,
}

#[inline(always)]
fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

struct Inner {
    frames: Frames<BlockKey, Block>,
    shards: Box<[CachePadded<Mutex<Shard>>]>,
    capacity: AtomicU64,
    /// What the blocks are charged. It only grows under the lock of a shard, with a block in it.
    used: CachePadded<AtomicU64>,
    /// The shard that is next to give way for the others.
    hand: AtomicUsize,
    next_id: AtomicU32,
    resident: AtomicU64,
    /// What frames are charged to, and the most that they may take.
    below: Option<(Arc<Budget>, u64)>,
    counts: [CachePadded<Counts>; STRIPE_COUNT],
}

impl Inner {
    fn shard_of(&self, mixed: u64) -> usize {
        // The maps in the shards use the other bits.
        (mixed >> 32) as usize % self.shards.len()
    }

    #[inline(always)]
    fn counts(&self) -> &Counts {
        &self.counts[thread_slot() % STRIPE_COUNT]
    }

    /// The block, found through its shard.
    #[inline(never)]
    fn find(&self, hint: Hint<'_>, key: BlockKey) -> Option<BlockRef> {
        let mixed = key.mixed();
        let number = self.shards[self.shard_of(mixed)].lock().number_of(mixed);
        let found = number.and_then(|number| self.frames.get(number, &key));
        if let (Some(hint), Some(number), true) = (hint, number, found.is_some()) {
            hint.store(number, Ordering::Relaxed);
        }
        count(if found.is_some() { &self.counts().hits } else { &self.counts().misses });
        found
    }

    fn insert(&self, hint: Hint<'_>, key: BlockKey, mut block: Block) -> BlockRef {
        let (mixed, charge) = (key.mixed(), block.charge() as u64 + ENTRY_OVERHEAD);
        let own = self.shard_of(mixed);
        for _ in 0..TRIES_MAX {
            if !self.make_room(own, charge) {
                break;
            }
            let mut shard = self.shards[own].lock();
            let other = shard.number_of(mixed);
            // Another thread may have read the block meanwhile.
            if let Some(other) = other.and_then(|number| self.frames.get(number, &key)) {
                return other;
            }
            if !self.reserve(charge) {
                continue;
            }
            match self.frames.put(key, block) {
                Ok((number, put)) => {
                    shard.add(mixed, number, charge);
                    if let Some(hint) = hint {
                        hint.store(number, Ordering::Relaxed);
                    }
                    return put;
                }
                Err(refused) => {
                    self.used.fetch_sub(charge, Ordering::Relaxed);
                    block = refused;
                    drop(shard);
                    // Without more frames, one of those that there are has to do.
                    if !self.grow() && !self.evict_if(own, |_| true) {
                        break;
                    }
                }
            }
        }
        BlockRef::alone(block)
    }

    /// Makes frames, if there is memory for more. They are there as long as the cache, so they may
    /// take a part of it only, and make no one give way.
    fn grow(&self) -> bool {
        self.frames.grow_if(|bytes| {
            let Some((budget, most)) = &self.below else { return Some(None) };
            // Those before it take as much together.
            if 2 * bytes > *most {
                return None;
            }
            budget.charge_if_free(MemoryClass::Blocks, bytes).map(Some)
        })
    }

    /// Adds to the bytes that are used, if they fit. The caller holds the lock of a shard.
    fn reserve(&self, charge: u64) -> bool {
        let capacity = self.capacity.load(Ordering::Relaxed);
        let grown = |used: u64| used.checked_add(charge).filter(|used| *used <= capacity);
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, grown).is_ok()
    }

    /// Lets blocks go until so many bytes more fit. False if that is not possible.
    fn make_room(&self, own: usize, charge: u64) -> bool {
        // How many in a row had nothing to let go; a success of another thread may hide one.
        let (mut at, mut is_own, mut refusals) = (own, true, 0);
        loop {
            let capacity = self.capacity.load(Ordering::Relaxed);
            if self.used.load(Ordering::Relaxed).saturating_add(charge) <= capacity {
                return true;
            }
            if charge > capacity || refusals > 2 * self.shards.len() {
                return false;
            }
            let has_gone = self.evict_if(at, |shard| !is_own || shard.bytes() >= self.share());
            refusals = if has_gone { 0 } else { refusals + 1 };
            is_own &= has_gone;
            // Others give way in turn, so that a long block empties none of them.
            if !is_own {
                at = self.hand.fetch_add(1, Ordering::Relaxed) % self.shards.len();
            }
        }
    }

    /// The bytes of a shard if all had the same.
    fn share(&self) -> u64 {
        self.used.load(Ordering::Relaxed) / self.shards.len() as u64
    }

    /// Lets one block of a shard go. False if the shard has none, or is not to.
    fn evict_if(&self, at: usize, condition: impl FnOnce(&Shard) -> bool) -> bool {
        let mut shard = self.shards[at].lock();
        if !condition(&shard) {
            return false;
        }
        let Some((charge, evicted)) = shard.evict(&self.frames) else { return false };
        let used = self.used.fetch_sub(charge, Ordering::Relaxed);
        debug_assert!(used >= charge, "more leaves than there was");
        drop(shard);
        // The block is freed outside of the lock, unless someone reads it.
        drop(evicted);
        true
    }

    fn set_capacity(&self, capacity: u64) {
        self.capacity.store(capacity, Ordering::Relaxed);
        let is_over = || self.used.load(Ordering::Relaxed) > self.capacity.load(Ordering::Relaxed);
        // First what each has beyond its share, so that the first are not emptied for the others.
        let share = capacity / self.shards.len() as u64;
        for at in 0..self.shards.len() {
            while self.evict_if(at, |shard| is_over() && shard.bytes() > share) {}
        }
        loop {
            // Once its lock was taken, a shard lets nothing in by the old capacity.
            for at in 0..self.shards.len() {
                while self.evict_if(at, |_| is_over()) {}
            }
            if !is_over() {
                return;
            }
        }
    }
}

/// A cache of decoded blocks. Clones share it.
#[derive(Clone)]
pub struct BlockCache(Arc<Inner>);

impl BlockCache {
    /// A cache of at most `capacity` bytes. With a capacity of 0 it keeps nothing.
    pub fn new(capacity: u64) -> BlockCache {
        BlockCache::with(capacity, None)
    }

    /// The same below a ceiling: its frames are charged and take no more than so many bytes.
    pub(crate) fn below(capacity: u64, budget: &Arc<Budget>, frames_max: u64) -> BlockCache {
        BlockCache::with(capacity, Some((budget.clone(), frames_max)))
    }

    fn with(capacity: u64, below: Option<(Arc<Budget>, u64)>) -> BlockCache {
        let shard_count = (capacity / SHARD_BYTES_MIN).clamp(1, SHARD_COUNT_MAX);
        let shard = |_| CachePadded::new(Mutex::new(Rank::CacheShard, Shard::default()));
        BlockCache(Arc::new(Inner {
            frames: Frames::new(),
            shards: (0..shard_count).map(shard).collect(),
            capacity: AtomicU64::new(capacity),
            used: CachePadded::new(AtomicU64::new(0)),
            hand: AtomicUsize::new(0),
            next_id: AtomicU32::new(0),
            resident: AtomicU64::new(0),
            below,
            counts: std::array::from_fn(|_| CachePadded::default()),
        }))
    }

    /// An id that no other database of this cache has.
    pub(crate) fn new_id(&self) -> CacheId {
        let id = self.0.next_id.fetch_add(1, Ordering::Relaxed);
        debug_assert!(id < CacheId::MAX, "two databases would share blocks");
        id
    }

    /// The block, if the cache has it. The hint is where its frame is remembered.
    #[inline(always)]
    pub(crate) fn get(&self, hint: Hint<'_>, key: BlockKey) -> Option<BlockRef> {
        preempt();
        let found = without_preemption(|| {
            let number = hint.map_or(0, |hint| hint.load(Ordering::Relaxed));
            match self.0.frames.get(number, &key) {
                Some(found) => {
                    count(&self.0.counts().hits);
                    Some(found)
                }
                None => self.0.find(hint, key),
            }
        });
        reached_if(Reach::CacheHit, || found.is_some());
        found
    }

    /// The block, if the cache has it, for those who keep no hints.
    pub(crate) fn find(&self, key: BlockKey) -> Option<BlockRef> {
        preempt();
        let found = without_preemption(|| self.0.find(None, key));
        reached_if(Reach::CacheHit, || found.is_some());
        found
    }

    /// Keeps a block, if it fits at all. Other blocks may have to go for it.
    pub(crate) fn insert(&self, hint: Hint<'_>, key: BlockKey, block: Block) -> BlockRef {
        preempt();
        without_preemption(|| self.0.insert(hint, key, block))
    }

    /// Changes the maximum number of bytes. What is too much is let go before this returns.
    pub(crate) fn set_capacity(&self, capacity: u64) {
        preempt();
        without_preemption(|| self.0.set_capacity(capacity));
    }

    /// The maximum number of bytes of cached blocks.
    pub(crate) fn capacity(&self) -> u64 {
        self.0.capacity.load(Ordering::Relaxed)
    }

    /// The bytes that the cached blocks hold.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.0.used.load(Ordering::Relaxed)
    }

    /// The bytes that open tables hold while they are open: filters, index tops and hints.
    pub(crate) fn filter_index_bytes(&self) -> u64 {
        self.0.resident.load(Ordering::Relaxed)
    }

    pub(crate) fn hits(&self) -> u64 {
        self.0.counts.iter().map(|counts| counts.hits.load(Ordering::Relaxed)).sum()
    }

    pub(crate) fn misses(&self) -> u64 {
        self.0.counts.iter().map(|counts| counts.misses.load(Ordering::Relaxed)).sum()
    }

    /// Counts `bytes` as resident until the returned value is dropped.
    pub(crate) fn charge_resident(&self, bytes: u64) -> ResidentCharge {
        self.0.resident.fetch_add(bytes, Ordering::Relaxed);
        ResidentCharge { cache: self.clone(), bytes }
    }
}

impl std::fmt::Debug for BlockCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "BlockCache({} of {} bytes)", self.used_bytes(), self.capacity())
    }
}

/// Bytes of memory that an open table holds.
#[derive(Debug)]
pub(crate) struct ResidentCharge {
    cache: BlockCache,
    bytes: u64,
}

impl Drop for ResidentCharge {
    fn drop(&mut self) {
        let resident = self.cache.0.resident.fetch_sub(self.bytes, Ordering::Relaxed);
        debug_assert!(resident >= self.bytes, "more is given back than was charged");
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
