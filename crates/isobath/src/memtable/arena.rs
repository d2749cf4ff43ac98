//! The arena of an epoch: the memory from which all its memtables allocate. It is freed as a whole.
//!
//! Under a lock, chunks from the [`ChunkPool`] are cut into *runs*. Allocations take a run's memory
//! by `fetch_add`. Threads use several runs, so they seldom share a cache line. Tree nodes have a
//! run of their own, so the index is dense and apart from the records. No allocation is freed
//! alone, so a reference into the arena is valid while the arena lives.
//!
//! ```text
//! chunk   | run: header, records ...... | run: header, nodes ... | run ... | large record | unused |
//! record  8-byte granules         node  64-byte granules
//! ```

use super::chunk::Chunk;
use super::pool::ChunkPool;
use crate::env::sync::atomic::{AtomicPtr, AtomicUsize, Ordering::*};
use crate::env::sync::{Mutex, Rank, thread_slot};
use crossbeam_utils::CachePadded;
use std::ptr::NonNull;
use std::sync::Arc;

const SHARDS: usize = 8;
const RUNS_PER_CHUNK: usize = 32;
const RECORD_GRANULE: usize = 8;
/// Nodes, and runs themselves, are aligned to a cache line.
const NODE_GRANULE: usize = 64;

/// Bump-allocated memory for records and nodes, shared by any number of threads and memtables.
#[derive(Debug)]
pub(crate) struct Arena {
    records: [CachePadded<Bump>; SHARDS],
    nodes: CachePadded<Bump>,
    carver: Mutex<Carver>,
    allocated_bytes: AtomicUsize,
    run_len: usize,
    pool: Arc<ChunkPool>,
}

/// The run from which one shard allocates now.
#[derive(Debug)]
struct Bump(AtomicPtr<Run>);

/// The header of a run. The run's memory starts at the next node granule.
struct Run {
    used: AtomicUsize,
    len: usize,
}

const RUN_HEADER_LEN: usize = size_of::<Run>().next_multiple_of(NODE_GRANULE);

#[derive(Debug)]
struct Carver {
    /// Runs are cut from the last one.
    chunks: Vec<Chunk>,
    carved: usize,
    /// Allocations too large for a chunk.
    large: Vec<Chunk>,
}

impl Arena {
    pub(crate) fn new(pool: Arc<ChunkPool>) -> Arena {
        let run_len = (pool.chunk_len() / RUNS_PER_CHUNK).max(512) & !(NODE_GRANULE - 1);
        Arena {
            records: std::array::from_fn(|_| CachePadded::new(Bump::empty())),
            nodes: CachePadded::new(Bump::empty()),
            carver: Mutex::new(
                Rank::Arena,
                Carver { chunks: Vec::new(), carved: 0, large: Vec::new() },
            ),
            allocated_bytes: AtomicUsize::new(0),
            run_len,
            pool,
        }
    }

    /// Bytes taken so far, counted in whole runs. They are charged to the epoch's memory budget.
    pub(crate) fn allocated_bytes(&self) -> usize {
        self.allocated_bytes.load(Relaxed)
    }

    /// Counts memory that belongs to the epoch and does not come from here.
    pub(super) fn charge(&self, bytes: usize) {
        self.allocated_bytes.fetch_add(bytes, Relaxed);
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
        if len > self.run_len / 4 {
            return self.alloc_apart(len);
        }
        loop {
            let run = bump.0.load(Acquire);
            if let Some(run) = NonNull::new(run)
                && let Some(memory) = take_from(run, len)
            {
                return memory;
            }
            self.refill(bump, run);
        }
    }

    /// An allocation that would waste much of a run. It comes directly from a chunk, or gets memory
    /// of its own.
    #[cold]
    fn alloc_apart(&self, len: usize) -> NonNull<u8> {
        let len = len.next_multiple_of(NODE_GRANULE);
        let mut carver = self.carver.lock();
        if len <= self.pool.chunk_len() / 4 {
            return self.carve(&mut carver, len);
        }
        self.allocated_bytes.fetch_add(len, Relaxed);
        let chunk = Chunk::new(len);
        let memory = chunk.base();
        carver.large.push(chunk);
        memory
    }

    /// Replaces the run `spent` by a new one, unless another thread has already done so.
    #[cold]
    fn refill(&self, bump: &Bump, spent: *mut Run) {
        let mut carver = self.carver.lock();
        if bump.0.load(Relaxed) != spent {
            return;
        }
        let run = self.carve(&mut carver, self.run_len).cast::<Run>();
        let len = self.run_len - RUN_HEADER_LEN;
        // SAFETY: the memory just cut is ours alone, aligned to a cache line and longer than the
        // header.
        unsafe { run.write(Run { used: AtomicUsize::new(0), len }) };
        bump.0.store(run.as_ptr(), Release);
    }

    fn carve(&self, carver: &mut Carver, len: usize) -> NonNull<u8> {
        let full = carver.chunks.last().is_none_or(|chunk| chunk.len() - carver.carved < len);
        if full {
            carver.chunks.push(self.pool.take());
            carver.carved = 0;
        }
        let chunk = carver.chunks.last().expect("pushed if there was none");
        debug_assert!(len <= chunk.len() - carver.carved, "a chunk holds what is cut from it");
        debug_assert!(len.is_multiple_of(NODE_GRANULE), "what is cut next begins at a cache line");
        // SAFETY: `carved + len` is within the chunk, by the check above.
        let memory = unsafe { chunk.base().add(carver.carved) };
        carver.carved += len;
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
fn take_from(run: NonNull<Run>, len: usize) -> Option<NonNull<u8>> {
    // SAFETY: a run is written before it is published, and lives as long as its arena.
    let (used, capacity) = unsafe {
        let run = run.as_ref();
        (run.used.fetch_add(len, Relaxed), run.len)
    };
    if used.checked_add(len)? > capacity {
        return None;
    }
    // SAFETY: the run's memory follows its header, and `used + len` is within it. Each caller of
    // `fetch_add` got a different `used`, so no other caller has these bytes.
    Some(unsafe { run.cast::<u8>().add(RUN_HEADER_LEN + used) })
}

impl Drop for Arena {
    fn drop(&mut self) {
        let carver = &mut *self.carver.lock();
        carver.chunks.drain(..).for_each(|chunk| self.pool.give_back(chunk));
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
    fn memory_is_counted_by_the_run_and_long_records_by_themselves() {
        let pool = Arc::new(ChunkPool::new(16 << 10, 0, 4));
        let arena = Arena::new(pool.clone());
        assert_eq!((arena.allocated_bytes(), arena.run_len), (0, 512));
        let in_run = (512 - RUN_HEADER_LEN) / 8;
        for n in 0..3 * in_run {
            arena.alloc_record(1);
            assert_eq!(arena.allocated_bytes(), 512 * (n / in_run + 1));
        }
        // A quarter of a run is still taken from a run, and a quarter of a chunk from a chunk.
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
        for _ in 0..32 * in_run {
            arena.alloc_record(8);
        }
        assert_eq!((arena.allocated_bytes(), pool.stats().handed_out), (16 << 10, before + 1));
        arena.alloc_record(8);
        assert_eq!(pool.stats().handed_out, before + 2, "the chunk was full to the last byte");
    }
}
