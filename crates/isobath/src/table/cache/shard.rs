//! Who stays in the cache: S3-FIFO (Yang et al., SOSP 2023), a part of the cache at a time.
//!
//! A new block goes to the small queue. If it is used there before its turn to leave comes, it
//! moves to the main queue; otherwise only its key stays, as a ghost. A block whose ghost is known
//! goes to the main queue at once. From there the oldest leaves that was not used since its last
//! turn. So a scan, which uses each block once, passes through the small queue alone.
//!
//! A shard says who leaves and does the accounts. The frames know who was used.

use super::blocks::{BlockKey, FixedHasher};
use super::frames::{FrameRef, Frames};
use crate::table::Block;
use std::collections::{HashMap, VecDeque};

/// The small queue may have one part in this many of a shard's bytes before it is drawn on.
/// (`docs/internals/block-cache.md` compares some.)
const SMALL_PART: u64 = 32;
/// So many blocks get another turn in one eviction. If all are used all the time, one leaves
/// nevertheless.
const TURNS_MAX: usize = 64;
/// A shard remembers as many ghosts as it has blocks, and at least this many.
const GHOSTS_MIN: usize = 16;

/// A block in a queue.
#[derive(Clone, Copy, Debug)]
struct Entry {
    /// The mixed key.
    mixed: u64,
    charge: u64,
    number: u32,
}

#[derive(Debug, Default)]
struct Queue {
    entries: VecDeque<Entry>,
    bytes: u64,
}

impl Queue {
    fn push(&mut self, entry: Entry) {
        self.bytes += entry.charge;
        self.entries.push_back(entry);
    }

    fn pop(&mut self) -> Option<Entry> {
        let entry = self.entries.pop_front()?;
        debug_assert!(self.bytes >= entry.charge, "a queue holds what its blocks are charged");
        self.bytes -= entry.charge;
        Some(entry)
    }
}

/// Keys of blocks that left the small queue, for a while.
#[derive(Debug, Default)]
struct Ghosts {
    /// Oldest first. Some are known no longer, or by a later turn.
    order: VecDeque<u64>,
    /// With the turn in which each came last.
    known: HashMap<u64, u64, FixedHasher>,
    next_turn: u64,
}

impl Ghosts {
    fn add(&mut self, mixed: u64, limit: usize) {
        while self.order.len() >= limit {
            let turn = self.next_turn - self.order.len() as u64;
            let Some(oldest) = self.order.pop_front() else { break };
            if self.known.get(&oldest) == Some(&turn) {
                self.known.remove(&oldest);
            }
        }
        self.known.insert(mixed, self.next_turn);
        self.order.push_back(mixed);
        self.next_turn += 1;
    }
}

/// A part of the cache. Its lock is held while a block goes in or out.
#[derive(Debug, Default)]
pub(super) struct Shard {
    /// Frames by mixed key.
    numbers: HashMap<u64, u32, FixedHasher>,
    small: Queue,
    main: Queue,
    ghosts: Ghosts,
}

impl Shard {
    pub(super) fn bytes(&self) -> u64 {
        self.small.bytes + self.main.bytes
    }

    /// The frame in which the block with this mixed key was put.
    pub(super) fn number_of(&self, mixed: u64) -> Option<u32> {
        self.numbers.get(&mixed).copied()
    }

    /// Takes over a block that was put into a frame.
    pub(super) fn add(&mut self, mixed: u64, number: u32, charge: u64) {
        let entry = Entry { mixed, charge, number };
        self.numbers.insert(mixed, number);
        match self.ghosts.known.remove(&mixed).is_some() {
            true => self.main.push(entry),
            false => self.small.push(entry),
        }
    }

    /// Lets the block go whose turn it is. Returns what it was charged, and the cache's hold on it.
    pub(super) fn evict(
        &mut self,
        frames: &Frames<BlockKey, Block>,
    ) -> Option<(u64, FrameRef<BlockKey, Block>)> {
        let mut turns = 0;
        let leaves = loop {
            turns += 1;
            let is_last = turns > TURNS_MAX;
            let draws_on_small =
                self.main.entries.is_empty() || self.small.bytes * SMALL_PART > self.bytes();
            if draws_on_small {
                let entry = self.small.pop()?;
                if frames.take_touches(entry.number) && !is_last {
                    self.main.push(entry);
                    continue;
                }
                let limit = self.numbers.len().max(GHOSTS_MIN);
                self.ghosts.add(entry.mixed, limit);
                break entry;
            }
            let entry = self.main.pop()?;
            if frames.take_touch(entry.number) && !is_last {
                self.main.push(entry);
                continue;
            }
            break entry;
        };
        if self.numbers.get(&leaves.mixed) == Some(&leaves.number) {
            self.numbers.remove(&leaves.mixed);
        }
        let evicted = frames.evict(leaves.number);
        debug_assert!(evicted.is_some(), "what a queue names is resident");
        Some((leaves.charge, evicted?))
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn a_ghost_that_came_back_stays_as_long_as_one_of_its_turn() {
        let mut ghosts = Ghosts::default();
        ghosts.add(1, 4);
        assert!(ghosts.known.remove(&1).is_some(), "it is asked for again");
        for mixed in [2, 1, 3, 4] {
            ghosts.add(mixed, 4);
        }
        // Its first turn has ended, its second has not.
        let known: Vec<u64> = (1..=4).filter(|mixed| ghosts.known.contains_key(mixed)).collect();
        assert_eq!((known, ghosts.order.len()), (vec![1, 2, 3, 4], 4));
    }
}
