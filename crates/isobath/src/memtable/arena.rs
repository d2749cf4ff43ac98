//! The arena of an epoch: the memory from which all its memtables allocate. It is freed as a whole.
//!
//! Under a lock, chunks from the [`ChunkPool`] are cut into *slabs*. Allocations take a slab's
//! memory by `fetch_add`. Threads use several slabs, so they seldom share a cache line. Tree nodes
//! have a slab of their own, so the index is dense and apart from the records. No allocation is
//! freed alone, so a reference into the arena is valid while the arena lives.
//!
//! ```text
//! chunk   | slab: header, records ...... | slab: header, nodes ... | slab ... | large record | unused |
//! record  8-byte granules         node  64-byte granules
//! ```

use super::chunk::{Chunk, PAGE_LEN};
use super::pool::{ChunkPool, Promise};
use crate::env::sync::atomic::{AtomicPtr, AtomicUsize, Ordering::*};
use crate::env::sync::{Mutex, Rank, thread_slot};
use crate::error::Result;
use crossbeam_utils::CachePadded;
use std::ptr::NonNull;
use std::sync::Arc;

const SHARDS: usize = 8;
const SLABS_PER_CHUNK: usize = 32;
const RECORD_GRANULE: usize = 8;
/// Nodes, and slabs themselves, are aligned to a cache line.
const NODE_GRANULE: usize = 64;

/// Bump-allocated memory for records and nodes, shared by any number of threads and memtables.
#[derive(Debug)]
pub(crate) struct Arena {
    records: [CachePadded<Bump>; SHARDS],
    nodes: CachePadded<Bump>,
    stock: Mutex<Stock>,
    allocated_bytes: AtomicUsize,
    slab_len: usize,
    pool: Arc<ChunkPool>,
}

/// The slab from which one shard allocates now.
#[derive(Debug)]
struct Bump(AtomicPtr<Slab>);

/// The header of a slab. The slab's memory starts at the next node granule.
struct Slab {
    used: AtomicUsize,
    len: usize,
}

const SLAB_HEADER_LEN: usize = size_of::<Slab>().next_multiple_of(NODE_GRANULE);

#[derive(Debug, Default)]
struct Stock {
    /// Slabs are cut from the last one.
    chunks: Vec<Chunk>,
    used: usize,
    /// Allocations too large for a chunk.
    large: Vec<Chunk>,
    /// Bytes of all that was taken, whole chunks among it.
    taken: u64,
    /// What was spoken for: the arena takes so much without asking.
    spoken: u64,
    /// What large commits have spoken for that are being applied, beside that.
    promised: u64,
    /// The least that is spoken for, while the epoch is open.
    least: u64,
    /// What small commits may still take, until the epoch is complete.
    rest: u64,
}

impl Stock {
    /// Counts memory that is taken. Returns how much of it is beyond what was spoken for.
    fn take(&mut self, bytes: u64) -> u64 {
        self.taken += bytes;
        let beyond = self.taken.saturating_sub(self.spoken + self.promised);
        self.spoken += beyond;
        beyond
    }

    /// Gives up what is spoken for and will not be taken. Returns how much that is.
    fn give_up(&mut self) -> u64 {
        let needed = self.least.max(self.taken + self.rest);
        let less = self.spoken.saturating_sub(needed);
        self.spoken -= less;
        less
    }
}

/// A large commit that is being applied. When it is dropped, the arena keeps of what the commit has
/// spoken for only what it needs.
pub(crate) struct Landed {
    arena: Arc<Arena>,
    bytes: u64,
}

impl Drop for Landed {
    fn drop(&mut self) {
        let mut stock = self.arena.stock.lock();
        stock.promised -= self.bytes;
        stock.spoken += self.bytes;
        self.arena.unspeak_rest(&mut stock);
    }
}

impl Arena {
    pub(crate) fn new(pool: Arc<ChunkPool>) -> Arena {
        Arena::with(pool, 0)
    }

    /// The arena of an epoch that takes writes. If the pool has a lease, what the epoch may take is
    /// spoken for, and that may fail.
    pub(crate) fn of_epoch(pool: &Arc<ChunkPool>) -> Result<Arena> {
        let spoken = pool.speak_for_epoch()?;
        let arena = Arena::with(pool.clone(), spoken);
        let mut stock = arena.stock.lock();
        (stock.least, stock.rest) = (spoken, pool.rest_of_epoch());
        drop(stock);
        Ok(arena)
    }

    fn with(pool: Arc<ChunkPool>, spoken: u64) -> Arena {
        let slab_len = (pool.chunk_len() / SLABS_PER_CHUNK).max(512) & !(NODE_GRANULE - 1);
        Arena {
            records: std::array::from_fn(|_| CachePadded::new(Bump::empty())),
            nodes: CachePadded::new(Bump::empty()),
            stock: Mutex::new(Rank::Arena, Stock { spoken, ..Stock::default() }),
            allocated_bytes: AtomicUsize::new(0),
            slab_len,
            pool,
        }
    }

    /// The bytes that it takes at a time.
    pub(crate) fn chunk_len(&self) -> u64 {
        self.pool.chunk_len() as u64
    }

    /// The bytes of a slab.
    pub(crate) fn slab_len(&self) -> u64 {
        self.slab_len as u64
    }

    /// Bytes taken so far, counted in whole slabs. They are charged to the epoch's memory budget.
    pub(crate) fn allocated_bytes(&self) -> usize {
        self.allocated_bytes.load(Relaxed)
    }

    /// Counts memory that belongs to the epoch and does not come from here.
    pub(super) fn charge(&self, bytes: usize) {
        self.allocated_bytes.fetch_add(bytes, Relaxed);
        if bytes > 0 && self.pool.is_leased() {
            self.take_apart(&mut self.stock.lock(), bytes);
        }
    }

    fn take_apart(&self, stock: &mut Stock, bytes: usize) {
        let beyond = stock.take(bytes as u64);
        self.pool.take_apart(bytes as u64, beyond);
    }

    /// A commit that is about to be applied takes no more than this beside all else.
    pub(crate) fn land(self: &Arc<Self>, promise: Promise) -> Landed {
        let bytes = promise.into_bytes();
        debug_assert!(bytes > 0, "a commit lands that has spoken for nothing");
        self.stock.lock().promised += bytes;
        Landed { arena: self.clone(), bytes }
    }

    /// The epoch is sealed: it takes no more than commits do that are admitted already.
    pub(crate) fn note_sealed(&self) {
        let mut stock = self.stock.lock();
        stock.least = 0;
        self.unspeak_rest(&mut stock);
    }

    /// The epoch is complete: it takes nothing more.
    pub(crate) fn note_complete(&self) {
        let mut stock = self.stock.lock();
        debug_assert_eq!(stock.promised, 0, "a commit is applied to an epoch that is complete");
        (stock.least, stock.rest) = (0, 0);
        self.unspeak_rest(&mut stock);
    }

    fn unspeak_rest(&self, stock: &mut Stock) {
        let less = stock.give_up();
        if less > 0 {
            self.pool.unspeak(less);
        }
    }

    /// `len` uninitialised bytes, aligned to 8, which live as long as the arena.
    #[inline]
    pub(super) fn alloc_record(&self, len: usize) -> NonNull<u8> {
        self.alloc(&self.records[thread_slot() % SHARDS], len.next_multiple_of(RECORD_GRANULE))
    }

    /// `len` uninitialised bytes, aligned to a cache line, which live as long as the arena.
    pub(super) fn alloc_node(&self, len: usize) -> NonNull<u8> {
        self.alloc(&self.nodes, len.next_multiple_of(NODE_GRANULE))
    }

    #[inline]
    fn alloc(&self, bump: &Bump, len: usize) -> NonNull<u8> {
        debug_assert!(len > 0 && len.is_multiple_of(RECORD_GRANULE), "records stay aligned");
        if len > self.slab_len / 4 {
            return self.alloc_apart(len);
        }
        loop {
            let slab = bump.0.load(Acquire);
            if let Some(slab) = NonNull::new(slab)
                && let Some(memory) = take_from(slab, len)
            {
                return memory;
            }
            self.refill(bump, slab);
        }
    }

    /// An allocation that would waste much of a slab. It comes directly from a chunk, or gets
    /// memory of its own.
    #[cold]
    fn alloc_apart(&self, len: usize) -> NonNull<u8> {
        let len = len.next_multiple_of(NODE_GRANULE);
        let mut stock = self.stock.lock();
        if len <= self.pool.chunk_len() / 4 {
            return self.cut(&mut stock, len);
        }
        self.allocated_bytes.fetch_add(len, Relaxed);
        // A mapping has whole pages.
        self.take_apart(&mut stock, len.next_multiple_of(PAGE_LEN));
        let chunk = Chunk::new(len);
        let memory = chunk.base();
        stock.large.push(chunk);
        memory
    }

    /// Replaces the slab `spent` by a new one, unless another thread has already done so.
    #[cold]
    fn refill(&self, bump: &Bump, spent: *mut Slab) {
        let mut stock = self.stock.lock();
        if bump.0.load(Relaxed) != spent {
            return;
        }
        let slab = self.cut(&mut stock, self.slab_len).cast::<Slab>();
        let len = self.slab_len - SLAB_HEADER_LEN;
        // SAFETY: the memory just cut is ours alone, aligned to a cache line and longer than the
        // header.
        unsafe { slab.write(Slab { used: AtomicUsize::new(0), len }) };
        bump.0.store(slab.as_ptr(), Release);
    }

    fn cut(&self, stock: &mut Stock, len: usize) -> NonNull<u8> {
        let full = stock.chunks.last().is_none_or(|chunk| chunk.len() - stock.used < len);
        if full {
            if self.pool.is_leased() {
                // What is left of the last chunk is used up as well. Two chunks are spoken for
                // beyond what an epoch counts, not more.
                let rest = stock.chunks.last().map_or(0, |chunk| chunk.len() - stock.used);
                self.allocated_bytes.fetch_add(rest, Relaxed);
            }
            let beyond = stock.take(self.pool.chunk_len() as u64);
            stock.chunks.push(self.pool.take(beyond));
            stock.used = 0;
        }
        let chunk = stock.chunks.last().expect("pushed if there was none");
        debug_assert!(len <= chunk.len() - stock.used, "a chunk holds what is cut from it");
        debug_assert!(len.is_multiple_of(NODE_GRANULE), "what is cut next begins at a cache line");
        // SAFETY: `used + len` is within the chunk, by the check above.
        let memory = unsafe { chunk.base().add(stock.used) };
        stock.used += len;
        self.allocated_bytes.fetch_add(len, Relaxed);
        memory
    }
}

impl Bump {
    fn empty() -> Bump {
        Bump(AtomicPtr::new(std::ptr::null_mut()))
    }
}

#[inline]
fn take_from(slab: NonNull<Slab>, len: usize) -> Option<NonNull<u8>> {
    // SAFETY: a slab is written before it is published, and lives as long as its arena.
    let (used, capacity) = unsafe {
        let slab = slab.as_ref();
        (slab.used.fetch_add(len, Relaxed), slab.len)
    };
    if used.checked_add(len)? > capacity {
        return None;
    }
    // SAFETY: the slab's memory follows its header, and `used + len` is within it. Each caller of
    // `fetch_add` got a different `used`, so no other caller has these bytes.
    Some(unsafe { slab.cast::<u8>().add(SLAB_HEADER_LEN + used) })
}

impl Drop for Arena {
    fn drop(&mut self) {
        let stock = &mut *self.stock.lock();
        stock.large.clear();
        let in_chunks = (stock.chunks.len() * self.pool.chunk_len()) as u64;
        debug_assert!(in_chunks <= stock.taken, "each chunk was counted");
        self.pool.give_back_apart(stock.taken - in_chunks);
        stock.chunks.drain(..).for_each(|chunk| self.pool.give_back(chunk));
        debug_assert_eq!(stock.promised, 0, "a commit that is being applied keeps the arena");
        self.pool.unspeak(stock.spoken);
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    fn arena(chunk_len: usize) -> Arena {
        Arena::new(Arc::new(ChunkPool::new(chunk_len, 0, 4)))
    }

    #[test]
    fn allocations_of_all_sizes_and_threads_do_not_overlap() {
        let arena = arena(16 << 10);
        let fill = |seed: usize| {
            let mut taken = Vec::new();
            for i in 0..if cfg!(miri) { 60 } else { 2000 } {
                let len = 1 + (i * 37 + seed * 11) % 100 + if i % 50 == 0 { i * 10 } else { 0 };
                let memory =
                    if i % 9 == 0 { arena.alloc_node(len) } else { arena.alloc_record(len) };
                assert_eq!(memory.as_ptr().addr() % if i % 9 == 0 { 64 } else { 8 }, 0);
                // SAFETY: freshly allocated with this length.
                unsafe { memory.write_bytes((seed * 100 + i) as u8, len) };
                taken.push((memory.as_ptr().addr(), len, (seed * 100 + i) as u8));
            }
            taken
        };
        let mut taken: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..3).map(|seed| scope.spawn(move || fill(seed))).collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        taken.sort_unstable();
        for pair in taken.windows(2) {
            assert!(pair[0].0 + pair[0].1 <= pair[1].0, "{pair:?}");
        }
        let bytes: usize = taken.iter().map(|&(_, len, _)| len).sum();
        assert!(arena.allocated_bytes() >= bytes);
    }

    #[test]
    fn chunks_go_back_to_the_pool_with_the_arena() {
        let pool = Arc::new(ChunkPool::new(4096, 0, 8));
        let arena = Arena::new(pool.clone());
        for _ in 0..100 {
            arena.alloc_record(100);
        }
        arena.alloc_record(100_000);
        let stats = pool.stats();
        assert!(stats.handed_out >= 2 && stats.idle_bytes == 0);
        drop(arena);
        assert_eq!(pool.stats().idle_bytes, (stats.handed_out as usize).min(8) * 4096);
    }

    #[test]
    fn memory_is_counted_by_the_slab_and_long_records_by_themselves() {
        let pool = Arc::new(ChunkPool::new(16 << 10, 0, 4));
        let arena = Arena::new(pool.clone());
        assert_eq!((arena.allocated_bytes(), arena.slab_len), (0, 512));
        let in_slab = (512 - SLAB_HEADER_LEN) / 8;
        for n in 0..3 * in_slab {
            arena.alloc_record(1);
            assert_eq!(arena.allocated_bytes(), 512 * (n / in_slab + 1));
        }
        // A quarter of a slab is still taken from a slab, and a quarter of a chunk from a chunk.
        let mut bytes = arena.allocated_bytes();
        for (len, more, chunks) in
            [(128, 512, 1), (128, 0, 1), (129, 192, 1), (4096, 4096, 1), (4097, 4160, 1)]
        {
            arena.alloc_record(len);
            bytes += more;
            assert_eq!(
                (arena.allocated_bytes(), pool.stats().handed_out),
                (bytes, chunks),
                "{len}"
            );
        }
        drop(arena);
        let arena = Arena::new(pool.clone());
        let before = pool.stats().handed_out;
        for _ in 0..32 * in_slab {
            arena.alloc_record(8);
        }
        assert_eq!((arena.allocated_bytes(), pool.stats().handed_out), (16 << 10, before + 1));
        arena.alloc_record(8);
        assert_eq!(pool.stats().handed_out, before + 2, "the chunk was full to the last byte");
    }
}
