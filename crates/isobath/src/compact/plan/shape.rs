//! How large each level of a tree should be, and how far it is from that.
//!
//! The largest level is taken as it is, and the capacities of the levels above it follow from its
//! measured size (dynamic capacity adaptation; Spooky, Dayan et al., VLDB 2022). So the tree never
//! holds more than a fixed fraction of obsolete data, at any size. Data settles in the last level;
//! levels above come into use from the bottom up as the tree grows, and level 0 is compacted into
//! the *base*, the first level in use.
//!
//! # How many levels, and how large
//!
//! Compacting a batch of `B` bytes from level 0 into a base of `C` bytes rewrites `1 + C/B` bytes
//! for each byte of the batch. Below, jobs take the slices that overlap least, which under uniform
//! writes finds slices twice as dense as average, so that a ratio `T` between levels costs `1 +
//! T/2`. For `k` levels above the last one, of size `N`, the cost is least with `C/B = T/2` and
//! equal ratios, hence `T = (2N/B)^(1/(k+1))`. The planner takes the fewest levels that keep `T`
//! within the policy's limit.

use super::policy::{Hints, Policy};
use crate::engine::Busy;
use crate::version::{Slice, Tree};

/// Below this many batches in the whole tree, compacting level 0 right into the last level is
/// cheapest.
const BATCHES_WITHOUT_MIDDLE: f64 = 4.0;
/// Batches are not taken for smaller than this fraction of the policy's: tiny trees need no levels.
const BATCH_FRACTION_MIN: u64 = 256;

/// The levels in use and their capacities.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Shape {
    /// Where level 0 is compacted to.
    pub(crate) base: usize,
    /// The last level.
    pub(crate) bottom: usize,
    /// Bytes in level 0 when it is compacted down.
    pub(crate) batch_bytes: u64,
    /// The first level that the size of the tree calls for; levels above it are left from other
    /// times.
    first_needed: usize,
    /// By level, 0 for level 0.
    capacities: Vec<u64>,
    ratio: f64,
}

impl Shape {
    pub(crate) fn of(tree: &Tree, policy: &Policy, hints: &Hints) -> Shape {
        let bottom = (policy.levels_max.max(2) - 1).max(tree.level_count() - 1);
        let largest = (1..=bottom).map(|level| tree.disk_bytes(level)).max().unwrap_or(0);
        let batch_bytes = batch_bytes(tree, policy, hints);
        let (middle_count, ratio) = middle_levels(largest, batch_bytes, policy, bottom - 1);
        let first_needed = bottom - middle_count;
        let mut capacities = vec![batch_bytes; bottom + 1];
        capacities[0] = 0;
        capacities[bottom] = u64::MAX;
        let mut capacity = largest as f64;
        for level in (first_needed..bottom).rev() {
            capacity /= ratio;
            capacities[level] = (capacity as u64).max(1);
        }
        let first_filled = (1..=bottom).find(|level| !tree.slices(*level).is_empty());
        let base = first_filled.map_or(first_needed, |filled| filled.min(first_needed));
        Shape { base, bottom, batch_bytes, first_needed, capacities, ratio }
    }

    /// The bytes a level should hold at most.
    pub(crate) fn capacity(&self, level: usize) -> u64 {
        self.capacities.get(level).copied().unwrap_or(u64::MAX)
    }

    /// How many levels of data may lie above `level` at most: 0 for level 0, 1 for the base.
    pub(crate) fn depth(&self, level: usize) -> usize {
        if level == 0 { 0 } else { 1 + level.saturating_sub(self.base) }
    }

    /// Where a job takes what leaves `level`: the next level in use.
    pub(crate) fn next(&self, tree: &Tree, level: usize) -> usize {
        let filled = (level + 1..=self.bottom).find(|below| !tree.slices(*below).is_empty());
        let needed = self.first_needed.max(level + 1);
        filled.map_or(needed, |filled| filled.min(needed)).min(self.bottom)
    }

    /// True for a level that the size of the tree no longer calls for.
    pub(crate) fn is_left_over(&self, level: usize) -> bool {
        level < self.first_needed
    }

    /// How full each level from the base to the last but one is, leaving out what running jobs take
    /// away: 1 is full. Deletes weigh as much as what they hide.
    pub(crate) fn fullness(&self, tree: &Tree, busy: &Busy) -> Vec<(usize, f64)> {
        let scale = Weight::of(tree);
        let full = |level: usize| {
            let slices = tree.slices(level).iter().filter(|slice| !busy.reads(slice.meta.file));
            let weight: f64 = slices.map(|slice| scale.weigh(slice)).sum();
            (level, weight / self.capacity(level) as f64)
        };
        (self.base..self.bottom).map(full).collect()
    }
}

/// How much a slice counts for: its bytes, and for each delete the bytes of an average entry, which
/// the delete makes free once it is compacted down.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Weight {
    entry_bytes: f64,
}

impl Weight {
    pub(crate) fn of(tree: &Tree) -> Weight {
        let (mut bytes, mut entries) = (0, 0);
        for (_, slice) in tree.iter() {
            bytes += slice.meta.disk_bytes;
            entries += slice.meta.entries;
        }
        Weight { entry_bytes: bytes as f64 / entries.max(1) as f64 }
    }

    pub(crate) fn weigh(self, slice: &Slice) -> f64 {
        slice.meta.disk_bytes as f64 + slice.meta.deletes as f64 * self.entry_bytes
    }
}

fn batch_bytes(tree: &Tree, policy: &Policy, hints: &Hints) -> u64 {
    let trigger = policy.l0_trigger_runs as u64;
    let run_bytes = match (hints.run_bytes, tree.runs.len() as u64) {
        (0, 0) => return policy.base_bytes.max(1),
        (0, runs) => tree.disk_bytes(0) / runs,
        (run_bytes, _) => run_bytes,
    };
    run_bytes.saturating_mul(trigger).max(policy.base_bytes / BATCH_FRACTION_MIN).max(1)
}

/// How many levels between level 0 and the last, and the ratio between levels.
fn middle_levels(largest: u64, batch: u64, policy: &Policy, most: usize) -> (usize, f64) {
    let batches = largest as f64 / batch as f64;
    if batches <= BATCHES_WITHOUT_MIDDLE {
        return (0, 1.0);
    }
    let limit = f64::from(policy.size_ratio_max.max(2));
    let ratio = |count: usize| (2.0 * batches).powf(1.0 / (count + 1) as f64);
    let fewest = (1..=most).find(|count| ratio(*count) <= limit);
    let count = fewest.unwrap_or(most);
    (count, if count == 0 { 1.0 } else { ratio(count) })
}

/// What compactions have still to do, in bytes that they will read. Writers are paced by it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Debts {
    /// By level, to bring what it holds too much to where it belongs. Level 0 counts in full, all
    /// the way down.
    pub(crate) pending_bytes: Vec<u64>,
    /// Of jobs under way.
    pub(crate) unread_bytes: u64,
    /// What a level 0 that is just due has to read if the levels below are just full ...
    pub(crate) batch_debt: u64,
    /// ... and its bytes.
    pub(crate) batch_bytes: u64,
}

impl Debts {
    pub(crate) fn total(&self) -> u64 {
        self.pending_bytes.iter().sum::<u64>() + self.unread_bytes
    }
}

/// Measures what compactions have still to do: those under way, and then those that bring the tree
/// they will leave into shape. It neither leaps when a job begins nor when its result is installed,
/// but falls while it reads.
///
/// Each run has a debt of its share of a batch, also those beyond the first batch, which will go
/// along for less: or what a writer brings would seem to cost more while a batch fills than after.
pub(crate) fn debts(tree: &Tree, policy: &Policy, busy: &Busy, hints: &Hints) -> Debts {
    let shape = Shape::of(tree, policy, hints);
    let mut held: Vec<u64> = (0..=shape.bottom).map(|level| tree.disk_bytes(level)).collect();
    busy.foresee(&mut held);
    let toll = 1.0 + shape.ratio / 2.0;
    let mut pending_bytes = vec![0; shape.bottom + 1];
    let mut passing = 0.0;
    for level in shape.base..shape.bottom {
        passing = f64::max(passing + held[level] as f64 - shape.capacity(level) as f64, 0.0);
        pending_bytes[level] = (passing * toll) as u64;
    }
    let below_base = (shape.bottom - shape.base) as f64;
    let batch_debt = |base: u64| base as f64 + shape.batch_bytes as f64 * (1.0 + below_base * toll);
    let runs = tree.runs.iter().filter(|run| !busy.reads(run.meta.file)).count();
    let batches = runs as f64 / policy.l0_trigger_runs.max(1) as f64;
    pending_bytes[0] = (batches * batch_debt(held[shape.base])) as u64;
    Debts {
        pending_bytes,
        unread_bytes: busy.unread_bytes(),
        batch_debt: batch_debt(held[shape.base].min(shape.capacity(shape.base))) as u64,
        batch_bytes: shape.batch_bytes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_as_many_runs_as_trigger_a_compaction_and_within_bounds() {
        let policy = Policy { l0_trigger_runs: 4, base_bytes: 1 << 20, ..Policy::default() };
        let batch = |run_bytes, policy: &Policy| {
            batch_bytes(&Tree::default(), policy, &Hints { run_bytes, ..Hints::default() })
        };
        assert_eq!(batch(0, &policy), 1 << 20, "nothing is known");
        assert_eq!(batch(1, &policy), 4096, "the least fraction of the policy's");
        assert_eq!(batch(1024, &policy), 4096);
        assert_eq!(batch(1025, &policy), 4100);
        assert_eq!(batch(1 << 62, &policy), u64::MAX);
        let without_base = Policy { base_bytes: 0, l0_trigger_runs: 0, ..policy };
        assert_eq!((batch(0, &without_base), batch(9, &without_base)), (1, 1));
    }
}
