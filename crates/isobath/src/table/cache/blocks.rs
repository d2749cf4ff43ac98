//! The block cache: decoded blocks, shared by the tables of one database or of several.
//!
//! The cache is sharded, weighted by the bytes that each block really holds, and resistant to scans
//! (`quick_cache`, a variant of S3-FIFO and CLOCK-Pro). It has no threads, clocks or seeds: the
//! same calls leave the same blocks. A hit costs a hash, a shared lock on one shard and a reference
//! count.

use super::Striped;
use crate::env::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::env::{Reach, preempt, reached_if, without_preemption};
use crate::table::Block;
use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{OptionsBuilder, Weighter};
use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::Arc;

/// Identifies one of the databases that share a cache.
pub(crate) type CacheId = u32;

const SHARD_COUNT_MAX: u64 = 64;
const SHARD_BYTES_MIN: u64 = 1 << 20;
const BLOCK_LEN_TYPICAL: u64 = 4 << 10;
/// What the cache itself keeps for each block: the key, the pointer and its own links.
pub(crate) const ENTRY_OVERHEAD: u64 = 64;

/// The key of a block in the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

impl Hash for BlockKey {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.mixed());
    }
}

/// A hasher that uses the key's own mixed bits as the hash.
#[derive(Clone, Copy, Debug, Default)]
struct FixedHasher(u64);

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

#[derive(Clone, Copy, Debug)]
struct ByCharge;

impl Weighter<BlockKey, Arc<Block>> for ByCharge {
    fn weight(&self, _key: &BlockKey, block: &Arc<Block>) -> u64 {
        block.charge() as u64 + ENTRY_OVERHEAD
    }
}

#[derive(Default)]
struct Counts {
    hits: AtomicU64,
    misses: AtomicU64,
}

struct Inner {
    blocks: Cache<BlockKey, Arc<Block>, ByCharge, FixedHasher>,
    capacity: AtomicU64,
    next_id: AtomicU32,
    resident: AtomicU64,
    counts: Striped<Counts>,
}

/// A cache of decoded blocks. Clones share it.
#[derive(Clone)]
pub struct BlockCache(Arc<Inner>);

impl BlockCache {
    /// A cache of at most `capacity` bytes. With a capacity of 0 it keeps nothing.
    pub fn new(capacity: u64) -> BlockCache {
        let shard_count = (capacity / SHARD_BYTES_MIN).clamp(1, SHARD_COUNT_MAX);
        // Rounded down, because the cache rounds up the number of shards and the capacity of each
        // shard.
        let shard_count = 1 << shard_count.ilog2();
        let options = OptionsBuilder::new()
            .shards(shard_count as usize)
            .weight_capacity(capacity / shard_count * shard_count)
            .estimated_items_capacity((capacity / BLOCK_LEN_TYPICAL) as usize)
            .build()
            .expect("both capacities are given");
        let lifecycle = DefaultLifecycle::default();
        BlockCache(Arc::new(Inner {
            blocks: Cache::with_options(options, ByCharge, FixedHasher::default(), lifecycle),
            capacity: AtomicU64::new(capacity),
            next_id: AtomicU32::new(0),
            resident: AtomicU64::new(0),
            counts: Striped::default(),
        }))
    }

    /// An id that no other database of this cache has.
    pub(crate) fn new_id(&self) -> CacheId {
        let id = self.0.next_id.fetch_add(1, Ordering::Relaxed);
        debug_assert!(id < CacheId::MAX, "two databases would share blocks");
        id
    }

    /// The block, if the cache has it.
    #[inline]
    pub(crate) fn get(&self, key: &BlockKey) -> Option<Arc<Block>> {
        preempt();
        let found = without_preemption(|| self.0.blocks.get(key));
        reached_if(Reach::CacheHit, || found.is_some());
        let counts = self.0.counts.of(key);
        let counter = if found.is_some() { &counts.hits } else { &counts.misses };
        counter.fetch_add(1, Ordering::Relaxed);
        found
    }

    /// Keeps a block. Other blocks may have to go for it.
    pub(crate) fn insert(&self, key: BlockKey, block: Arc<Block>) {
        preempt();
        without_preemption(|| self.0.blocks.insert(key, block));
    }

    /// The maximum number of bytes of cached blocks.
    pub(crate) fn capacity(&self) -> u64 {
        self.0.capacity.load(Ordering::Relaxed)
    }

    /// Changes the maximum. Blocks leave at once if they are more.
    pub(crate) fn set_capacity(&self, capacity: u64) {
        preempt();
        self.0.capacity.store(capacity, Ordering::Relaxed);
        let shard_count = self.0.blocks.num_shards() as u64;
        let even = capacity / shard_count * shard_count;
        without_preemption(|| self.0.blocks.set_capacity(even));
    }

    /// The bytes that the cached blocks hold.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.0.blocks.weight()
    }

    /// The bytes that open tables hold while they are open: filters and index tops.
    pub(crate) fn filter_index_bytes(&self) -> u64 {
        self.0.resident.load(Ordering::Relaxed)
    }

    pub(crate) fn hits(&self) -> u64 {
        self.0.counts.sum(|counts| &counts.hits)
    }

    pub(crate) fn misses(&self) -> u64 {
        self.0.counts.sum(|counts| &counts.misses)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::block_of_len;

    fn key(file: u64, offset: u64) -> BlockKey {
        BlockKey { id: 0, file, offset }
    }

    #[test]
    fn the_weight_never_exceeds_the_capacity() {
        for capacity in [0, 5_000, 100_000, 1 << 20, 9_999_999] {
            let cache = BlockCache::new(capacity);
            for i in 0..6_000 {
                cache.insert(key(i % 7, i * 4096), Arc::new(block_of_len(100 + i as usize % 9000)));
                assert!(cache.used_bytes() <= capacity, "{} of {capacity}", cache.used_bytes());
            }
            assert!(cache.used_bytes() >= capacity / 2 || capacity < 20_000);
        }
    }

    #[test]
    fn a_cache_that_shrinks_gives_its_blocks_up_at_once_and_grows_again() {
        let cache = BlockCache::new(8 << 20);
        let fill = || {
            for i in 0..6_000 {
                cache.insert(key(i % 7, i * 4096), Arc::new(block_of_len(2000)));
            }
            cache.used_bytes()
        };
        let full = fill();
        assert!(full > 6 << 20, "{full}");
        cache.set_capacity(1 << 20);
        assert!((800 << 10..=1 << 20).contains(&cache.used_bytes()), "{}", cache.used_bytes());
        let small = fill();
        assert!(small <= 1 << 20 && cache.capacity() == 1 << 20, "{small}");
        cache.set_capacity(8 << 20);
        assert!(fill() > 6 << 20);
    }

    #[test]
    fn charges_are_the_bytes_really_held() {
        let cache = BlockCache::new(1 << 20);
        let block = Arc::new(block_of_len(3000));
        cache.insert(key(1, 0), block.clone());
        assert_eq!(cache.used_bytes(), block.charge() as u64 + ENTRY_OVERHEAD);
        drop(cache);
        let charge = block.charge();
        let bytes = Arc::into_inner(block).unwrap().into_bytes().capacity();
        // The `Arc` also holds its two counters.
        assert_eq!(charge, bytes + size_of::<Block>() + 2 * size_of::<usize>());
        assert!(charge >= 3000);
    }

    #[test]
    fn databases_do_not_see_each_others_blocks() {
        let cache = BlockCache::new(1 << 20);
        let (a, b) = (cache.new_id(), cache.new_id());
        assert_ne!(a, b);
        cache.insert(BlockKey { id: a, file: 1, offset: 0 }, Arc::new(block_of_len(100)));
        assert!(cache.get(&BlockKey { id: b, file: 1, offset: 0 }).is_none());
        assert!(cache.clone().get(&BlockKey { id: a, file: 1, offset: 0 }).is_some());
        assert_eq!((cache.hits(), cache.misses()), (1, 1));
    }

    #[test]
    fn hashes_of_neighbouring_blocks_spread_over_all_bits() {
        let mut ones = [0u32; 64];
        for i in 0..4096 {
            let hash = key(3, 128 + i * 2048).mixed();
            for (bit, count) in ones.iter_mut().enumerate() {
                *count += (hash >> bit & 1) as u32;
            }
        }
        assert!(ones.iter().all(|count| (1800..2300).contains(count)), "{ones:?}");
    }

    #[test]
    fn resident_bytes_are_released_on_drop() {
        let cache = BlockCache::new(0);
        let charge = cache.charge_resident(700);
        assert_eq!(cache.filter_index_bytes(), 700);
        drop(charge);
        assert_eq!(cache.filter_index_bytes(), 0);
    }
}
