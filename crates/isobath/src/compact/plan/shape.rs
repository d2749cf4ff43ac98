//! How large each level of a tree should be, and how far it is from that.
//!
//! The largest level is taken as it is, and the capacities of the levels above follow from its
//! measured size (dynamic capacity adaptation; Spooky, Dayan et al., VLDB 2022). So the tree never
//! holds more than a fixed fraction of obsolete data, whatever its size. Most data is in the last
//! level. As the tree grows, levels above it come into use from the bottom up. Level 0 is compacted
//! into the *base*, the first level in use.
//!
//! # How many levels, and how large
//!
//! Compacting a batch of `B` bytes from level 0 into a base of `C` bytes rewrites `1 + C/B` bytes
//! for each byte of the batch. Below the base, jobs take the slices that overlap least. Under
//! uniform writes those are twice as dense as average, so a ratio `T` between levels costs `1 +
//! T/2`. For `k` levels above the last one, of size `N`, the cost is least with `C/B = T/2` and
//! equal ratios, hence `T = (2N/B)^(1/(k+1))`. The planner takes the fewest levels that keep `T`
//! within the policy's limit.

use super::held_up::HeldUp;
use super::policy::{Hints, Policy};
use crate::blob::GarbageDebt;
use crate::engine::{Busy, Claim};
use crate::env::{Reach, reached_if};
use crate::version::{Slice, Tree};
use std::sync::Arc;

/// Below this many batches in the whole tree, compacting level 0 directly into the last level is
/// cheapest.
const BATCHES_WITHOUT_MIDDLE: f64 = 4.0;
/// A batch counts for as much as `output_bytes_min`, or for this fraction of the policy's batch if
/// that is less: tiny trees need no levels.
const BATCH_FRACTION_MIN: u64 = 256;

/// A run that is longer than the mean moves the mean by one part in so many ...
const RUN_RISE: u64 = 4;
/// ... and a shorter one by one part in the first of these numbers that the levels bear: each
/// change of shape costs work, and the more levels there are, the more.
const RUN_FALLS: [u64; 5] = [16, 64, 256, 1024, 4096];

/// While the size of runs is unknown, a batch is taken for at most so many times the policy's.
const BATCHES_GUESSED_MAX: u32 = 8;

/// Runs that damage holds up are no debt until there are more of them than so many batches have.
const HELD_UP_BATCHES: usize = 2;

/// The levels in use and their capacities.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Shape {
    /// The level that level 0 is compacted into.
    pub(crate) base: usize,
    /// The last level.
    pub(crate) bottom: usize,
    /// The bytes in level 0 at which it is compacted down.
    pub(crate) batch_bytes: u64,
    /// The first level that the present size of the tree calls for. Levels above it hold data from
    /// when the tree had more levels.
    first_needed: usize,
    /// The capacity of each level in bytes, index 0 for level 0.
    capacities: Vec<u64>,
    ratio: f64,
}

impl Shape {
    pub(crate) fn of(tree: &Tree, policy: &Policy, hints: &Hints) -> Shape {
        match hints.run_bytes {
            0 => Shape::guessed(tree, policy),
            run_bytes => Shape::for_batch(tree, policy, batch_of(run_bytes, policy)),
        }
    }

    /// The shape while the size of runs is unknown. The levels were made for some batch: it is
    /// taken for the policy's, or for a larger one if they are too full for that.
    fn guessed(tree: &Tree, policy: &Policy) -> Shape {
        let usual = policy.base_bytes.max(1);
        let fits = |shape: &Shape| {
            let held: Vec<u64> = (0..=shape.bottom).map(|level| tree.held_bytes(level)).collect();
            shape.is_fit_for(&held)
        };
        let larger =
            (0..=BATCHES_GUESSED_MAX.ilog2()).map(|twice| usual.saturating_mul(1 << twice));
        let mut shapes = larger.map(|batch_bytes| Shape::for_batch(tree, policy, batch_bytes));
        let fitting = shapes.find(fits);
        reached_if(Reach::ShapeGuessedLarger, || {
            fitting.as_ref().is_some_and(|shape| shape.batch_bytes > usual)
        });
        reached_if(Reach::ShapeGuessedNone, || fitting.is_none());
        fitting.unwrap_or_else(|| Shape::for_batch(tree, policy, usual))
    }

    fn for_batch(tree: &Tree, policy: &Policy, batch_bytes: u64) -> Shape {
        let bottom = (policy.levels_max.max(2) - 1).max(tree.level_count() - 1);
        let largest = (1..=bottom).map(|level| tree.held_bytes(level)).max().unwrap_or(0);
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
        debug_assert!(1 <= base && base <= first_needed && first_needed <= bottom, "levels fit");
        debug_assert!(
            capacities[first_needed..].is_sorted(),
            "a level takes less than the one above it: {capacities:?}"
        );
        Shape { base, bottom, batch_bytes, first_needed, capacities, ratio }
    }

    /// The most bytes that a level should hold.
    pub(crate) fn capacity(&self, level: usize) -> u64 {
        self.capacities.get(level).copied().unwrap_or(u64::MAX)
    }

    /// The most levels of data that may lie above `level`: 0 for level 0, 1 for the base.
    pub(crate) fn depth(&self, level: usize) -> usize {
        if level == 0 { 0 } else { 1 + level.saturating_sub(self.base) }
    }

    /// The level that a job takes slices of `level` to: the next level in use.
    pub(crate) fn next(&self, tree: &Tree, level: usize) -> usize {
        let filled = (level + 1..=self.bottom).find(|below| !tree.slices(*below).is_empty());
        let needed = self.first_needed.max(level + 1);
        filled.map_or(needed, |filled| filled.min(needed)).min(self.bottom)
    }

    /// True for a level that the size of the tree no longer calls for.
    pub(crate) fn is_left_over(&self, level: usize) -> bool {
        level < self.first_needed
    }

    /// The bytes read for each byte that goes from one level below level 0 to the next.
    fn toll(&self) -> f64 {
        1.0 + self.ratio / 2.0
    }

    /// For each level, the bytes that must leave it until no level is too full, if the levels hold
    /// so many.
    fn leaving(&self, held: &[u64]) -> Vec<f64> {
        let mut leaving = vec![0.0; self.bottom + 1];
        for level in self.base..self.bottom {
            let passing = if level > self.base { leaving[level - 1] } else { 0.0 };
            let over = passing + held[level] as f64 - self.capacity(level) as f64;
            leaving[level] = f64::max(over, 0.0);
        }
        leaving
    }

    /// The bytes read to take a batch from level 0 all the way down, through a base of so many.
    fn batch_debt(&self, base_bytes: u64) -> f64 {
        let below_base = (self.bottom - self.base) as f64;
        base_bytes as f64 + self.batch_bytes as f64 * (1.0 + below_base * self.toll())
    }

    /// True if levels that hold so many bytes are at most so much too full that it takes the work
    /// for half a batch to relieve them.
    fn is_fit_for(&self, held: &[u64]) -> bool {
        let leaving: f64 = self.leaving(held).iter().sum();
        let base = held[self.base].min(self.capacity(self.base));
        2.0 * leaving * self.toll() <= self.batch_debt(base)
    }

    /// How full each level from the base to the last but one is, without what running jobs take
    /// away and what damage holds up: 1 is full. A delete counts as much as the data that it hides.
    pub(crate) fn fullness(&self, tree: &Tree, busy: &Busy) -> Vec<(usize, f64)> {
        let (scale, held_up) = (Weight::of(tree), HeldUp::of(tree, busy, self));
        let leaves = |slice: &&Arc<Slice>| !busy.reads(slice.meta.file) && !held_up.holds(slice);
        let full = |level: usize| {
            let slices = tree.slices(level).iter().filter(leaves);
            let weight: f64 = slices.map(|slice| scale.weigh(slice)).sum();
            (level, weight / self.capacity(level) as f64)
        };
        (self.base..self.bottom).map(full).collect()
    }
}

/// How much a slice counts for: its bytes, and for each delete the bytes of an average entry,
/// because compacting the delete down frees about that much.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Weight {
    entry_bytes: f64,
}

impl Weight {
    pub(crate) fn of(tree: &Tree) -> Weight {
        let (mut bytes, mut entries) = (0, 0);
        for (_, slice) in tree.iter() {
            bytes += slice.held_bytes;
            entries += slice.meta.entries;
        }
        Weight { entry_bytes: bytes as f64 / entries.max(1) as f64 }
    }

    pub(crate) fn weigh(self, slice: &Slice) -> f64 {
        slice.held_bytes as f64 + slice.meta.deletes as f64 * self.entry_bytes
    }
}

fn batch_of(run_bytes: u64, policy: &Policy) -> u64 {
    let batch_bytes = run_bytes.saturating_mul(policy.l0_trigger_runs as u64);
    let least = policy.output_bytes_min.min(policy.base_bytes / BATCH_FRACTION_MIN);
    batch_bytes.max(least).max(1)
}

/// The size of runs to reckon with once a flush has added a run of `flushed` bytes: a mean over the
/// last ones, in which a smaller one counts less than a larger one.
///
/// With smaller batches the levels should hold less, and what they then hold too much was not
/// written by those who are made to wait for it. So the mean falls by small steps, or not at all,
/// while a smaller one would make the levels much too full.
pub(crate) fn run_bytes_after(
    flushed: u64,
    tree: &Tree,
    policy: &Policy,
    busy: &Busy,
    hints: &Hints,
) -> u64 {
    let before = match hints.run_bytes {
        0 => Shape::guessed(tree, policy).batch_bytes / policy.l0_trigger_runs.max(1) as u64,
        known => known,
    }
    .max(1);
    if flushed >= before {
        return before + (flushed - before) / RUN_RISE;
    }
    let lower = |fall: u64| (before - (before - flushed).div_ceil(fall)).max(1);
    let is_borne = |run_bytes: &u64| {
        let shape = Shape::for_batch(tree, policy, batch_of(*run_bytes, policy));
        let held = held_after(tree, busy, &shape, &HeldUp::of(tree, busy, &shape));
        shape.is_fit_for(&held)
    };
    let borne = RUN_FALLS.into_iter().map(lower).find(is_borne);
    reached_if(Reach::RunBytesFallSlowly, || {
        borne.is_some_and(|run_bytes| run_bytes > lower(RUN_FALLS[0]))
    });
    reached_if(Reach::RunBytesKept, || borne.is_none());
    borne.unwrap_or(before)
}

/// The bytes of each level, once the running jobs have ended, without what damage holds up.
fn held_after(tree: &Tree, busy: &Busy, shape: &Shape, held_up: &HeldUp) -> Vec<u64> {
    let mut held: Vec<u64> = (0..=shape.bottom).map(|level| tree.held_bytes(level)).collect();
    busy.foresee(&mut held);
    held_up.leave_out_of(&mut held);
    held
}

/// The number of levels between level 0 and the last, and the ratio between levels.
fn middle_levels(largest: u64, batch: u64, policy: &Policy, most: usize) -> (usize, f64) {
    let batches = largest as f64 / batch as f64;
    if batches <= BATCHES_WITHOUT_MIDDLE {
        return (0, 1.0);
    }
    let limit = f64::from(policy.size_ratio_max.max(2));
    let ratio = |count: usize| (2.0 * batches).powf(1.0 / (count + 1) as f64);
    let fewest = (1..=most).find(|count| ratio(*count) <= limit);
    reached_if(Reach::ShapeTooFewLevels, || fewest.is_none());
    let count = fewest.unwrap_or(most);
    (count, if count == 0 { 1.0 } else { ratio(count) })
}

/// The eighths of a batch's debt for which all levels below level 0 count at most in the pace of
/// writers: they may then add two thirds of what compactions take in.
const BELOW_EIGHTHS_MAX: u64 = 18;

/// The work that compactions have still to do, in bytes that they will read. Writers are paced by
/// it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Debts {
    /// For each level, the bytes to read until what it holds over its size is where it belongs.
    /// Level 0 counts in full, down to the last level.
    pub(crate) pending_bytes: Vec<u64>,
    /// Bytes that running jobs have still to read ...
    pub(crate) unread_bytes: u64,
    /// ... and of these the bytes for data that has left level 0 before.
    pub(crate) unread_below_bytes: u64,
    /// The bytes to read to take a slice of a level below level 0 to the next one.
    pub(crate) slice_debt: u64,
    /// Bytes of values to move until garbage is what it may be.
    pub(crate) collection_bytes: u64,
    /// The bytes to read when level 0 is just due and the levels below are just full ...
    pub(crate) batch_debt: u64,
    /// ... and the bytes that such a level 0 holds.
    pub(crate) batch_bytes: u64,
}

impl Debts {
    pub(crate) fn total(&self) -> u64 {
        self.pending_bytes.iter().sum::<u64>() + self.unread_bytes + self.collection_bytes
    }

    /// The bytes by which writers are paced. Slices go down as a whole. Where batches are small one
    /// slice of a lower level costs as much as several batches, and is no sign that compactions
    /// are behind. However much there is below level 0, by an ingest for example, it counts for
    /// [`BELOW_EIGHTHS_MAX`] at most: at that pace it gets less.
    pub(crate) fn paced_bytes(&self) -> u64 {
        let below = self.pending_bytes.iter().skip(1).sum::<u64>() + self.unread_below_bytes;
        let most = self.batch_debt.saturating_mul(BELOW_EIGHTHS_MAX) / 8;
        self.total() - below + below.saturating_sub(self.slice_debt).min(most)
    }
}

/// Measures what compactions have still to do: the running ones, and then those that bring the
/// resulting tree into shape. The measure hardly changes when a job of the planner's begins or its
/// result is installed; it falls while the job reads.
///
/// Each run counts with its share of a batch. Runs beyond the first batch count so too, although
/// they will be compacted along with it for less. Otherwise a written byte would seem to cost more
/// while a batch fills than after it is full. It counts with the values, too, that have to be moved
/// once it has shown what is garbage.
///
/// What damage holds up is no work: nothing that compactions may do makes it less. Only runs are
/// made fewer. So those beyond [`HELD_UP_BATCHES`] count as others do, and as much of what jobs
/// that make such runs fewer have still to read: writers must not outrun a long one.
///
/// However much garbage there is, it counts for one batch at most: that slows writers to about the
/// pace at which it does not grow. A great range delete must not stop them.
pub(crate) fn debts(
    tree: &Tree,
    policy: &Policy,
    busy: &Busy,
    hints: &Hints,
    garbage: GarbageDebt,
) -> Debts {
    let shape = Shape::of(tree, policy, hints);
    let of_tree: Vec<u64> = (0..=shape.bottom).map(|level| tree.held_bytes(level)).collect();
    let read_share = read_share(tree, &of_tree);
    let held_up = HeldUp::of(tree, busy, &shape);
    let held = held_after(tree, busy, &shape, &held_up);
    let pending = |leaving: f64| (leaving * shape.toll() * read_share) as u64;
    let mut pending_bytes: Vec<u64> = shape.leaving(&held).into_iter().map(pending).collect();
    let batch = shape.batch_bytes as f64;
    let moved = if garbage.is_collecting { batch * GarbageDebt::TOLL } else { 0.0 };
    let batch_debt = |base: u64| moved + read_share * shape.batch_debt(base);
    // A compaction in place goes no further than to the newest run that is damaged itself.
    let may_merge = tree.runs.iter().take_while(|run| !busy.is_damaged(run.meta.file));
    let stuck: Vec<_> = may_merge.filter(|run| held_up.holds(run)).collect();
    let others: Vec<_> = tree.runs.iter().filter(|run| !held_up.holds(run)).collect();
    let trigger = policy.l0_trigger_runs.max(1);
    let beyond = |runs: usize| runs.saturating_sub(HELD_UP_BATCHES * trigger);
    let batches = |runs: usize| runs as f64 / trigger as f64;
    let left = |runs: &[&Arc<Slice>]| runs.iter().filter(|run| !busy.reads(run.meta.file)).count();
    reached_if(Reach::DebtOfHeldUp, || beyond(left(&stuck)) > 0);
    let runs = left(&others) + beyond(left(&stuck));
    pending_bytes[0] = (batches(runs) * batch_debt(held[shape.base])) as u64;
    let of_batch = batch_debt(held[shape.base].min(shape.capacity(shape.base))) as u64;
    let is_of_stuck = |claim: &Claim| claim.target == 0 && held_up.holds_any(&claim.files);
    let counted_of_stuck = (batches(beyond(stuck.len())) * of_batch as f64) as u64;
    let unread_of_stuck = busy.unread_bytes(is_of_stuck).min(counted_of_stuck);
    Debts {
        pending_bytes,
        unread_bytes: busy.unread_bytes(|claim| !is_of_stuck(claim)) + unread_of_stuck,
        unread_below_bytes: busy.unread_bytes(|claim| claim.target > shape.base),
        slice_debt: pending(policy.target_file_bytes as f64),
        collection_bytes: garbage.pending_bytes.min(of_batch),
        batch_debt: of_batch,
        batch_bytes: shape.batch_bytes,
    }
}

/// The share of what the tree holds that compactions read: they pass over values that lie apart.
fn read_share(tree: &Tree, held: &[u64]) -> f64 {
    if !tree.has_blobs() && !tree.has_streams() {
        return 1.0;
    }
    let disk: u64 = (0..held.len()).map(|level| tree.disk_bytes(level)).sum();
    disk as f64 / held.iter().sum::<u64>().max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::StreamShare;
    use crate::version::fixtures::meta;
    use crate::version::{LiveFile, ObsoleteFiles};

    #[test]
    fn a_batch_is_as_many_runs_as_trigger_a_compaction_and_within_bounds() {
        let policy = Policy { l0_trigger_runs: 4, base_bytes: 1 << 20, ..Policy::default() };
        let batch = |run_bytes, policy: &Policy| {
            let hints = Hints { run_bytes, ..Hints::default() };
            Shape::of(&Tree::default(), policy, &hints).batch_bytes
        };
        assert_eq!(batch(0, &policy), 1 << 20, "nothing is known");
        assert_eq!(batch(1, &policy), 4096, "the least fraction of the policy's");
        assert_eq!(batch(1024, &policy), 4096);
        assert_eq!(batch(1025, &policy), 4100);
        assert_eq!(batch(1 << 62, &policy), u64::MAX);
        let without_base = Policy { base_bytes: 0, l0_trigger_runs: 0, ..policy };
        assert_eq!((batch(0, &without_base), batch(9, &without_base)), (1, 1));
    }

    #[test]
    fn streams_are_no_work_for_compactions() {
        let policy = Policy { l0_trigger_runs: 4, base_bytes: 1 << 20, ..Policy::default() };
        let own = |number| LiveFile::new(number, &ObsoleteFiles::new());
        let slice = |file, seqs, len| {
            let mut meta = meta(0, file, "a", "z", seqs);
            meta.disk_bytes = 1 << 20;
            meta.streams = [StreamShare { file: 100 + file, len }].into();
            Slice::with_streams(meta, own(file), [].into(), [own(100 + file)].into(), 0)
        };
        let all = vec![
            (0, slice(1, (10, 11), 1 << 36)),
            (0, slice(2, (8, 9), 1 << 36)),
            (policy.levels_max - 1, slice(3, (1, 2), 1 << 38)),
        ];
        let tree = Tree::default().with(&[], all).unwrap();
        for run_bytes in [0, 1 << 36] {
            let hints = Hints { run_bytes, ..Hints::default() };
            let debts = debts(&tree, &policy, &Busy::default(), &hints, GarbageDebt::default());
            assert!((1..64 << 20).contains(&debts.total()), "{debts:?}");
        }
    }

    #[test]
    fn what_one_slice_below_level_0_costs_paces_no_writer() {
        let of = |slice_debt, batch_debt| Debts {
            pending_bytes: vec![10, 50, 30],
            unread_bytes: 40,
            unread_below_bytes: 20,
            collection_bytes: 5,
            batch_debt,
            slice_debt,
            ..Debts::default()
        };
        let paced = [0, 60, 100, 101, 1000].map(|slice_debt| of(slice_debt, 1000).paced_bytes());
        assert_eq!((of(60, 1000).total(), paced), (135, [135, 75, 35, 35, 35]));
        let capped = [(0, 8), (0, 40), (60, 8), (90, 8), (0, 0)];
        let capped = capped.map(|(slice_debt, batch)| of(slice_debt, batch).paced_bytes());
        assert_eq!(capped, [35 + 18, 35 + 90, 35 + 18, 35 + 10, 35]);
    }

    #[test]
    fn without_room_for_levels_in_the_middle_there_is_no_ratio() {
        let policy = Policy { size_ratio_max: 10, ..Policy::default() };
        assert_eq!(middle_levels(1 << 30, 1 << 20, &policy, 0), (0, 1.0));
        assert_eq!(middle_levels(1 << 20, 1 << 20, &policy, 5), (0, 1.0));
        let (count, ratio) = middle_levels(1 << 30, 1 << 20, &policy, 5);
        assert!(count == 3 && (6.7..6.8).contains(&ratio), "{count} {ratio}");
    }
}
