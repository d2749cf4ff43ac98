//! The pool from which arenas take chunks, and to which they return them.
//!
//! A returned chunk is warm: its pages are present. A background thread calls
//! [`ChunkPool::prefault_spares`], so that a writer that needs a chunk gets a warm one and takes no
//! page fault. The pool counts how often it had to give out a cold one. Idle chunks that were not
//! needed for a while go back to the system ([`ChunkPool::thin_out`]).
//!
//! Below a ceiling for memory the pool has a lease (`lease.rs`), and its arenas take no more than
//! they have spoken for.

use super::chunk::Chunk;
use super::lease::Lease;
use crate::env::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use crate::env::sync::{Mutex, Rank};
use crate::error::Result;
use crate::memory::{Charge, Shares};
use std::sync::Arc;

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
    idle: Mutex<Idle>,
    /// What an epoch speaks for when it is opened, and what commits may take of it that were
    /// admitted before it was full; `None` without a lease.
    epoch: Option<(u64, u64)>,
    handed_out: AtomicU64,
    handed_out_cold: AtomicU64,
    held_bytes: AtomicUsize,
}

/// What lies idle, and what may.
#[derive(Debug, Default)]
struct Idle {
    chunks: Vec<Chunk>,
    /// The fewest chunks that there were since the pool was last thinned out.
    fewest: usize,
    lease: Option<Lease>,
}

impl Idle {
    /// Takes the chunk that was returned last: it may be in the processor's caches.
    fn pop(&mut self) -> Option<Chunk> {
        let chunk = self.chunks.pop();
        self.fewest = self.fewest.min(self.chunks.len());
        chunk
    }

    /// Takes out the chunks that have no place beside what arenas have taken.
    fn surplus(&mut self, chunk_len: usize) -> Vec<Chunk> {
        let Some(lease) = &self.lease else { return Vec::new() };
        let max = (lease.idle_max() / chunk_len as u64) as usize;
        self.fewest = self.fewest.min(max);
        self.chunks.split_off(max.min(self.chunks.len()))
    }
}

/// What a commit has spoken for. If the commit fails, it ends with that; else the arena that takes
/// the commit takes it over.
pub(crate) struct Promise {
    pool: Arc<ChunkPool>,
    bytes: u64,
}

impl Promise {
    /// Hands over what is spoken for.
    pub(super) fn into_bytes(mut self) -> u64 {
        std::mem::take(&mut self.bytes)
    }
}

impl Drop for Promise {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.pool.unspeak(self.bytes);
        }
    }
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
            idle: Mutex::new(Rank::Chunks, Idle::default()),
            epoch: None,
            handed_out: AtomicU64::new(0),
            handed_out_cold: AtomicU64::new(0),
            held_bytes: AtomicUsize::new(0),
        }
    }

    /// A pool whose arenas take no more than they have spoken for, below a ceiling that is divided
    /// into `shares`. `charge` is for what memtables always have.
    pub(crate) fn leased(spares: usize, charge: Charge, shares: &Shares) -> ChunkPool {
        let chunk_len = shares.chunk_len as usize;
        let pool = ChunkPool::new(chunk_len, spares, (shares.lease() / shares.chunk_len) as usize);
        pool.idle.lock().lease = Some(Lease::new(charge, shares));
        ChunkPool { epoch: Some((shares.epoch(), shares.rest_of_epoch())), ..pool }
    }

    pub(crate) fn chunk_len(&self) -> usize {
        self.chunk_len
    }

    pub(super) fn is_leased(&self) -> bool {
        self.epoch.is_some()
    }

    /// Speaks for what a new epoch may take, and returns it; 0 without a lease.
    pub(super) fn speak_for_epoch(&self) -> Result<u64> {
        let Some((bytes, _)) = self.epoch else { return Ok(0) };
        self.idle.lock().lease.as_mut().map_or(Ok(()), |lease| lease.speak(bytes))?;
        Ok(bytes)
    }

    /// What commits may still take of an epoch that is sealed.
    pub(super) fn rest_of_epoch(&self) -> u64 {
        self.epoch.map_or(0, |(_, rest)| rest)
    }

    /// How much is spoken for, and what commits may still take of an epoch that is sealed.
    #[cfg(all(test, not(any(loom, shuttle))))]
    pub(crate) fn spoken(&self) -> (u64, u64) {
        (self.idle.lock().lease.as_ref().map_or(0, |lease| lease.spoken()), self.rest_of_epoch())
    }

    /// Speaks for a commit that may take so many bytes; `None` without a lease.
    pub(crate) fn promise(self: &Arc<Self>, bytes: u64) -> Result<Option<Promise>> {
        match &mut self.idle.lock().lease {
            None => return Ok(None),
            Some(lease) => lease.speak_for_commit(bytes)?,
        }
        Ok(Some(Promise { pool: self.clone(), bytes }))
    }

    /// So many bytes are no longer spoken for.
    pub(super) fn unspeak(&self, bytes: u64) {
        if self.epoch.is_none() {
            return;
        }
        let mut idle = self.idle.lock();
        idle.lease.iter_mut().for_each(|lease| lease.unspeak(bytes));
        idle.surplus(self.chunk_len).into_iter().for_each(|chunk| self.free(chunk));
        let idle_bytes = (idle.chunks.len() * self.chunk_len) as u64;
        idle.lease.iter_mut().for_each(|lease| lease.shrink(idle_bytes));
    }

    /// An arena takes memory that is no chunk, `beyond` of it beyond what it has spoken for.
    pub(super) fn take_apart(&self, bytes: u64, beyond: u64) {
        if self.epoch.is_none() {
            return;
        }
        let mut idle = self.idle.lock();
        if let Some(lease) = &mut idle.lease {
            lease.take(bytes, beyond);
        }
        // Freed while the lock is held, so that all memory together is never more than the lease.
        idle.surplus(self.chunk_len).into_iter().for_each(|chunk| self.free(chunk));
    }

    /// A warm chunk if there is one; otherwise a new one. `beyond` of it is beyond what the arena
    /// has spoken for.
    pub(super) fn take(&self, beyond: u64) -> Chunk {
        self.handed_out.fetch_add(1, Relaxed);
        let mut idle = self.idle.lock();
        let warm = idle.pop();
        if let Some(lease) = &mut idle.lease {
            lease.take(self.chunk_len as u64, beyond);
        }
        drop(idle);
        warm.unwrap_or_else(|| {
            self.handed_out_cold.fetch_add(1, Relaxed);
            self.fresh()
        })
    }

    /// Takes back a chunk from [`ChunkPool::take`].
    pub(super) fn give_back(&self, chunk: Chunk) {
        debug_assert_eq!(chunk.len(), self.chunk_len);
        let mut idle = self.idle.lock();
        if let Some(lease) = &mut idle.lease {
            lease.untake(self.chunk_len as u64);
        }
        if let Some(chunk) = self.keep(&mut idle, chunk) {
            drop(idle);
            self.free(chunk);
        }
    }

    /// Memory that is no chunk is free again.
    pub(super) fn give_back_apart(&self, bytes: u64) {
        if let Some(lease) = &mut self.idle.lock().lease {
            lease.untake(bytes);
        }
    }

    /// Keeps a chunk idle if it has a place there, else returns it.
    fn keep(&self, idle: &mut Idle, chunk: Chunk) -> Option<Chunk> {
        let max = match &idle.lease {
            Some(lease) => (lease.idle_max() / self.chunk_len as u64) as usize,
            None => self.idle_max,
        };
        if idle.chunks.len() >= max.min(self.idle_max) {
            return Some(chunk);
        }
        idle.chunks.push(chunk);
        None
    }

    /// Makes warm idle chunks until there are as many as asked for. Returns how many it made. For a
    /// background thread: a chunk takes from tens of microseconds to a millisecond.
    pub(crate) fn prefault_spares(&self) -> usize {
        let mut made = 0;
        loop {
            let mut idle = self.idle.lock();
            let room = idle.lease.as_ref().map_or(u64::MAX, |lease| lease.idle_max());
            let wanted = self.spares.min((room / self.chunk_len as u64).min(1 << 20) as usize);
            if idle.chunks.len() >= wanted {
                return made;
            }
            // Counted as taken while its pages are made, beyond what any arena has spoken for.
            let len = self.chunk_len as u64;
            if let Some(lease) = &mut idle.lease {
                if !lease.speak_within(len) {
                    return made;
                }
                lease.take(len, 0);
            }
            drop(idle);
            let mut chunk = self.fresh();
            chunk.prefault();
            self.give_back(chunk);
            self.unspeak(len);
            made += 1;
        }
    }

    /// Returns the chunks to the system that were not needed since the last call, but for spares.
    /// For a background thread: a chunk takes up to a tenth of a millisecond, in which others wait.
    pub(crate) fn thin_out(&self) {
        let unneeded = {
            let mut idle = self.idle.lock();
            std::mem::replace(&mut idle.fewest, usize::MAX).saturating_sub(self.spares)
        };
        for _ in 0..unneeded {
            let mut idle = self.idle.lock();
            if idle.chunks.len() <= self.spares {
                break;
            }
            let unneeded = idle.pop();
            // With a lease it is freed while the lock is held, as in `take_apart`.
            if idle.lease.is_none() {
                drop(idle);
            }
            unneeded.into_iter().for_each(|chunk| self.free(chunk));
        }
        let mut idle = self.idle.lock();
        idle.fewest = idle.chunks.len();
    }

    pub(crate) fn stats(&self) -> ChunkPoolStats {
        ChunkPoolStats {
            handed_out: self.handed_out.load(Relaxed),
            handed_out_cold: self.handed_out_cold.load(Relaxed),
            held_bytes: self.held_bytes.load(Relaxed),
            idle_bytes: self.idle.lock().chunks.len() * self.chunk_len,
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
    use super::super::Arena;
    use super::*;
    use crate::error::MemoryClass;
    use crate::memory::Budget;

    const LEN: usize = 4096;

    #[test]
    fn a_returned_chunk_is_handed_out_again_and_is_not_cold() {
        let pool = ChunkPool::new(LEN, 1, 2);
        let chunk = pool.take(0);
        let base = chunk.base();
        pool.give_back(chunk);
        assert_eq!(pool.take(0).base(), base);
        let stats = pool.stats();
        assert_eq!((stats.handed_out, stats.handed_out_cold), (2, 1));
    }

    #[test]
    fn spares_are_made_once_and_bounded() {
        let pool = ChunkPool::new(LEN, 3, 2);
        assert_eq!(pool.prefault_spares(), 2);
        assert_eq!(pool.prefault_spares(), 0);
        pool.take(0);
        assert_eq!(pool.stats().handed_out_cold, 0);
        assert_eq!(pool.prefault_spares(), 1);
    }

    #[test]
    fn no_more_chunks_than_allowed_stay_idle_and_those_that_nobody_needs_go() {
        let pool = ChunkPool::new(LEN, 1, 6);
        let held = || (pool.stats().held_bytes / LEN, pool.stats().idle_bytes / LEN);
        let take = |count: usize| (0..count).map(|_| pool.take(0)).collect::<Vec<_>>();
        let give_back = |chunks: Vec<Chunk>| chunks.into_iter().for_each(|one| pool.give_back(one));
        give_back(take(9));
        assert_eq!(held(), (6, 6));
        pool.thin_out();
        assert_eq!(held(), (6, 6), "all of them were needed since it was made");
        let some = take(2);
        give_back(some);
        pool.thin_out();
        assert_eq!(held(), (3, 3), "two were needed, and one is a spare");
        pool.thin_out();
        assert_eq!(held(), (1, 1));
        let all = take(3);
        pool.thin_out();
        assert_eq!(held(), (3, 0), "those in use stay");
        give_back(all);
        pool.thin_out();
        assert_eq!(held(), (3, 3), "they were in use a moment ago");
    }

    /// Fills an arena as an epoch is filled: until it is full, and by what was admitted before.
    fn fill(arena: &Arena, shares: &Shares) {
        let small = shares.small_commit() as usize;
        for nth in 0.. {
            arena.alloc_record([40, 200, 3000, 20_000, small][nth % 5]);
            arena.alloc_node(1152);
            if arena.allocated_bytes() as u64 >= shares.write_buffer {
                break;
            }
        }
        (0..6).for_each(|_| _ = arena.alloc_record(small));
    }

    #[test]
    fn arenas_and_idle_chunks_of_a_lease_are_never_more_than_it() {
        let shares = Shares::new(24 << 20, u64::MAX, 64 << 10, 16 << 10);
        let budget = Budget::new(shares.lease(), &[]);
        let charge = budget.try_charge(MemoryClass::Memtables, shares.lease()).unwrap();
        let pool = Arc::new(ChunkPool::leased(4, charge, &shares));
        let within = |what: &str| {
            let idle = pool.idle.lock();
            let lease = idle.lease.as_ref().unwrap();
            let idle_bytes = (idle.chunks.len() * pool.chunk_len) as u64;
            let taken = lease.taken();
            assert!(taken + idle_bytes <= shares.lease(), "{what}: {taken} and {idle_bytes} idle");
        };
        let mut before = None;
        for round in 0..6 {
            pool.prefault_spares();
            let arena = Arc::new(Arena::of_epoch(&pool).unwrap());
            fill(&arena, &shares);
            within("small commits");
            let large = pool.promise(shares.commit_max());
            assert_eq!(
                large.is_err(),
                round > 0,
                "the next epoch has no room beside the one before"
            );
            drop((large, before.take()));
            within("the epoch before is gone");
            let promise = pool.promise(shares.commit_max()).unwrap().unwrap();
            if round % 2 == 0 {
                let landed = arena.land(promise);
                arena.alloc_record(shares.commit_max() as usize - 8192);
                drop(landed);
            }
            within("a large commit");
            arena.note_sealed();
            arena.note_complete();
            before = Some(arena);
        }
        let open = Arena::of_epoch(&pool).unwrap();
        assert!(Arena::of_epoch(&pool).is_err(), "there is room for three and a half buffers");
        assert_eq!(budget.held(), shares.lease());
        drop((before, open));
        within("nothing is taken");
        assert!(pool.stats().idle_bytes > 0);
    }

    /// A pool whose lease cannot grow, and what is divided.
    fn pinned() -> (Arc<ChunkPool>, Shares) {
        let shares = Shares::new(24 << 20, u64::MAX, 64 << 10, 16 << 10);
        let budget = Budget::new(shares.lease(), &[]);
        let charge = budget.try_charge(MemoryClass::Memtables, shares.lease()).unwrap();
        (Arc::new(ChunkPool::leased(0, charge, &shares)), shares)
    }

    fn spoken(pool: &ChunkPool) -> u64 {
        pool.spoken().0
    }

    #[test]
    fn commits_that_are_applied_leave_room_for_the_next_epoch() {
        let (pool, shares) = pinned();
        let arena = Arc::new(Arena::of_epoch(&pool).unwrap());
        let (bytes, ops) = (100 * 410, 100);
        while (arena.allocated_bytes() as u64) < shares.write_buffer {
            let promise = pool.promise(bytes + ops * 256).unwrap().unwrap();
            let landed = arena.land(promise);
            (0..ops).for_each(|_| _ = arena.alloc_record(410 + 40));
            drop(landed);
            let most = shares.epoch() + 2 * shares.chunk_len;
            assert!(spoken(&pool) <= most, "what was applied is not spoken for twice");
        }
        let landed = arena.land(pool.promise(shares.commit_max()).unwrap().unwrap());
        arena.alloc_record(shares.commit_max() as usize - 8192);
        drop(landed);
        let next = Arena::of_epoch(&pool).expect("the largest epoch, and the next one");
        arena.note_sealed();
        arena.note_complete();
        drop((arena, next));
        assert_eq!(spoken(&pool), 0);
    }

    #[test]
    fn two_large_commits_at_once_leave_room_for_the_next_epoch() {
        let (pool, shares) = pinned();
        let arena = Arc::new(Arena::of_epoch(&pool).unwrap());
        while (arena.allocated_bytes() as u64) + (32 << 10) < shares.write_buffer {
            arena.alloc_record(10_000);
        }
        // As of threads that found that the epoch is not full.
        let bytes = 1500 << 10;
        let asked = [pool.promise(bytes), pool.promise(bytes)];
        let granted: Vec<_> = asked.into_iter().filter_map(|asked| asked.ok().flatten()).collect();
        assert_eq!(granted.len(), 1, "the other one waits until the epoch is sealed");
        for promise in granted {
            let landed = arena.land(promise);
            arena.alloc_record(bytes as usize - 8192);
            drop(landed);
        }
        let refused = pool.promise(bytes).map(|_| ()).unwrap_err();
        assert!(refused.is_retryable(), "{refused}");
        let _next = Arena::of_epoch(&pool).expect("the epoch can be sealed");
        arena.note_sealed();
        arena.note_complete();
        drop(arena);
        assert!(pool.promise(bytes).is_ok(), "it was flushed");
    }

    #[test]
    fn a_seal_leaves_what_a_large_commit_has_spoken_for_that_is_being_applied() {
        let (pool, shares) = pinned();
        let arena = Arc::new(Arena::of_epoch(&pool).unwrap());
        arena.alloc_record(1000);
        let promise = pool.promise(shares.commit_max()).unwrap().unwrap();
        let landed = arena.land(promise);
        arena.note_sealed();
        let _next = Arena::of_epoch(&pool).unwrap();
        let before = spoken(&pool);
        assert!(before >= shares.epoch() + shares.commit_max());
        arena.alloc_record(shares.commit_max() as usize - 8192);
        assert_eq!(spoken(&pool), before, "what it takes was spoken for");
        drop(landed);
        arena.note_complete();
        assert!(spoken(&pool) < before);
    }

    #[test]
    fn idle_chunks_give_way_to_what_an_arena_takes_apart() {
        let (pool, shares) = pinned();
        let arena = Arena::new(pool.clone());
        while (arena.allocated_bytes() as u64) < shares.lease() - (64 << 10) {
            arena.alloc_record(4000);
        }
        drop(arena);
        assert!(pool.stats().idle_bytes > 0);
        let arena = Arena::new(pool.clone());
        arena.alloc_record((shares.lease() / 2) as usize);
        let stats = pool.stats();
        let held = (stats.idle_bytes + arena.allocated_bytes()) as u64;
        assert!(held <= shares.lease(), "{held} of {}", shares.lease());
    }

    #[test]
    fn what_is_taken_beyond_the_lease_is_charged_while_there_is_room() {
        let shares = Shares::new(24 << 20, u64::MAX, 64 << 10, 16 << 10);
        let budget = Budget::new(shares.lease() + (1 << 20), &[]);
        let charge = budget.try_charge(MemoryClass::Memtables, shares.lease()).unwrap();
        let pool = Arc::new(ChunkPool::leased(0, charge, &shares));
        let replayed = Arena::new(pool.clone());
        replayed.alloc_record(shares.lease() as usize);
        assert_eq!(budget.held(), shares.lease());
        replayed.alloc_record(600 << 10);
        assert_eq!(budget.held(), shares.lease() + (600 << 10));
        replayed.alloc_record(900 << 10);
        assert_eq!(budget.held(), budget.ceiling());
        drop(replayed);
        assert_eq!(budget.held(), shares.lease());
    }
}
