//! The pool from which arenas take chunks, and to which they return them.
//!
//! A returned chunk is warm: its pages are present. A background thread calls
//! [`ChunkPool::prefault_spares`], so that a writer that needs a chunk gets a warm one and takes no
//! page fault. The pool counts how often it had to give out a cold one.

use super::chunk::Chunk;
use crate::env::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use crate::env::sync::{Mutex, Rank};

/// Figures of a [`ChunkPool`] since its creation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ChunkPoolStats {
    /// Chunks given out.
    pub(crate) handed_out: u64,
    /// Chunks given out whose pages were not present yet.
    pub(crate) handed_out_cold: u64,
    /// Bytes of all chunks, in arenas and idle.
    pub(crate) held_bytes: usize,
    /// Bytes of the idle chunks.
    pub(crate) idle_bytes: usize,
}

/// Gives out memory chunks of one length.
#[derive(Debug)]
pub(crate) struct ChunkPool {
    chunk_len: usize,
    spares: usize,
    idle_max: usize,
    idle: Mutex<Vec<Chunk>>,
    handed_out: AtomicU64,
    handed_out_cold: AtomicU64,
    held_bytes: AtomicUsize,
}

impl ChunkPool {
    /// A pool of chunks of `chunk_len` bytes (1 to 2 MiB is good). [`ChunkPool::prefault_spares`]
    /// keeps `spares` of them ready. The pool never keeps more than `idle_max` idle chunks.
    pub(crate) fn new(chunk_len: usize, spares: usize, idle_max: usize) -> ChunkPool {
        assert!(chunk_len >= 1024, "a chunk holds many records");
        ChunkPool {
            chunk_len,
            spares: spares.min(idle_max),
            idle_max,
            idle: Mutex::new(Rank::Chunks, Vec::new()),
            handed_out: AtomicU64::new(0),
            handed_out_cold: AtomicU64::new(0),
            held_bytes: AtomicUsize::new(0),
        }
    }

    pub(crate) fn chunk_len(&self) -> usize {
        self.chunk_len
    }

    /// A warm chunk if there is one; otherwise a new one.
    pub(super) fn take(&self) -> Chunk {
        self.handed_out.fetch_add(1, Relaxed);
        let warm = self.idle.lock().pop();
        warm.unwrap_or_else(|| {
            self.handed_out_cold.fetch_add(1, Relaxed);
            self.fresh()
        })
    }

    /// Takes back a chunk from [`ChunkPool::take`].
    pub(super) fn give_back(&self, chunk: Chunk) {
        debug_assert_eq!(chunk.len(), self.chunk_len);
        let mut idle = self.idle.lock();
        if idle.len() < self.idle_max {
            idle.push(chunk);
            return;
        }
        drop(idle);
        self.free(chunk);
    }

    /// Makes warm idle chunks until there are as many as asked for. Returns how many it made. For a
    /// background thread: a chunk takes from tens of microseconds to a millisecond.
    pub(crate) fn prefault_spares(&self) -> usize {
        let mut made = 0;
        while self.idle.lock().len() < self.spares {
            let mut chunk = self.fresh();
            chunk.prefault();
            self.give_back(chunk);
            made += 1;
        }
        made
    }

    /// Returns all idle chunks to the system, and returns their number of bytes.
    #[cfg(test)]
    pub(crate) fn trim(&self) -> usize {
        let idle = std::mem::take(&mut *self.idle.lock());
        let bytes = idle.len() * self.chunk_len;
        idle.into_iter().for_each(|chunk| self.free(chunk));
        bytes
    }

    pub(crate) fn stats(&self) -> ChunkPoolStats {
        ChunkPoolStats {
            handed_out: self.handed_out.load(Relaxed),
            handed_out_cold: self.handed_out_cold.load(Relaxed),
            held_bytes: self.held_bytes.load(Relaxed),
            idle_bytes: self.idle.lock().len() * self.chunk_len,
        }
    }

    fn fresh(&self) -> Chunk {
        self.held_bytes.fetch_add(self.chunk_len, Relaxed);
        Chunk::new(self.chunk_len)
    }

    fn free(&self, chunk: Chunk) {
        self.held_bytes.fetch_sub(chunk.len(), Relaxed);
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    const LEN: usize = 4096;

    #[test]
    fn a_returned_chunk_is_handed_out_again_and_is_not_cold() {
        let pool = ChunkPool::new(LEN, 1, 2);
        let chunk = pool.take();
        let base = chunk.base();
        pool.give_back(chunk);
        assert_eq!(pool.take().base(), base);
        let stats = pool.stats();
        assert_eq!((stats.handed_out, stats.handed_out_cold), (2, 1));
    }

    #[test]
    fn spares_are_made_once_and_bounded() {
        let pool = ChunkPool::new(LEN, 3, 2);
        assert_eq!(pool.prefault_spares(), 2);
        assert_eq!(pool.prefault_spares(), 0);
        pool.take();
        assert_eq!(pool.stats().handed_out_cold, 0);
        assert_eq!(pool.prefault_spares(), 1);
    }

    #[test]
    fn no_more_chunks_than_allowed_stay_idle_and_trim_frees_them() {
        let pool = ChunkPool::new(LEN, 0, 2);
        let chunks: Vec<_> = (0..5).map(|_| pool.take()).collect();
        assert_eq!(pool.stats().held_bytes, 5 * LEN);
        chunks.into_iter().for_each(|chunk| pool.give_back(chunk));
        assert_eq!(pool.stats().held_bytes, 2 * LEN);
        assert_eq!(pool.stats().idle_bytes, 2 * LEN);
        assert_eq!(pool.trim(), 2 * LEN);
        assert_eq!(pool.stats().held_bytes, 0);
    }
}
