//! Chooses slices to rewrite because their values lie in blob files that are mostly garbage.

use super::pick::Picker;
use super::shape::Shape;
use super::{Hints, Plan, Policy, plan};
use crate::blob::Garbage;
use crate::engine::Busy;
use crate::env::{Reach, reached, reached_if};
use crate::events::CompactionReason;
use crate::version::{Slice, Tree};

/// Decides on the next job as [`plan`] does, and on collections: if nothing else is to be done, or
/// if garbage exceeds what there may be of it further than any level its capacity.
pub(crate) fn plan_with_garbage(
    tree: &Tree,
    policy: &Policy,
    busy: &Busy,
    hints: &Hints,
    garbage: &Garbage,
) -> Plan {
    if garbage.collected.is_empty() {
        return plan(tree, policy, busy, hints);
    }
    let shape = Shape::of(tree, policy, hints);
    let picker = Picker { tree, policy, busy, hints, shape: &shape };
    let full = garbage.fullness();
    let is_fullest = || picker.fullness().iter().all(|(_, of_level)| full >= *of_level);
    let is_first = full >= 1.0 && is_fullest();
    reached_if(Reach::CollectAfterLevel, || full >= 1.0 && !is_first);
    if is_first && let Some(collection) = picker.collect(garbage) {
        reached(Reach::CollectFirst);
        return collection;
    }
    reached_if(Reach::CollectWaits, || is_first);
    match plan(tree, policy, busy, hints) {
        Plan::DoNothing => picker
            .collect(garbage)
            .or_else(|| picker.compact_runs_for(garbage))
            .unwrap_or(Plan::DoNothing),
        planned => planned,
    }
}

/// Bytes of the slice in blob files that are collected, behind whether no clone shares any of
/// these.
fn collected_bytes(slice: &Slice, garbage: &Garbage) -> (bool, u64) {
    let shares = slice.meta.blobs.iter();
    let shares = shares.filter(|share| garbage.collected.contains_key(&share.file));
    shares.fold((true, 0), |(is_own, bytes), share| {
        (is_own && !garbage.shared.contains(&share.file), bytes + share.bytes)
    })
}

impl Picker<'_> {
    /// A job that rewrites the slice with the most bytes in the blob files that are collected, one
    /// that shares none of these files with a clone if there is any. Neighbours of it are rewritten
    /// with it, until a job's worth of values moves. Afterwards the slices have nothing in these
    /// files. Runs are left to the compaction of level 0, which meets most of their garbage.
    fn collect(&self, garbage: &Garbage) -> Option<Plan> {
        let moves = |slice: &Slice| collected_bytes(slice, garbage).1;
        let is_free = |level: usize, at: usize| self.cost_of(level, at..at + 1, level).is_some();
        let mut best: Option<((bool, u64), usize, usize)> = None;
        for level in 1..self.tree.level_count() {
            for (at, slice) in self.tree.slices(level).iter().enumerate() {
                let bytes = collected_bytes(slice, garbage);
                let is_better = bytes.1 > 0 && best.is_none_or(|(most, ..)| bytes > most);
                if is_better && is_free(level, at) {
                    best = Some((bytes, level, at));
                }
            }
        }
        let ((is_own, mut bytes), level, at) = best?;
        reached_if(Reach::CollectShared, || !is_own);
        let (slices, mut window) = (self.tree.slices(level), at..at + 1);
        while let Some(next) = slices.get(window.end)
            && moves(next) > 0
            && bytes + moves(next) <= self.job_bytes_max()
            && self.cost_of(level, window.start..window.end + 1, level).is_some()
        {
            bytes += moves(next);
            window.end += 1;
        }
        reached_if(Reach::CollectSeveral, || window.len() > 1);
        let reason = CompactionReason::Garbage;
        Some(Plan::Compaction(self.compaction_of_window(level, window, level, reason)))
    }

    /// A compaction of runs with values in blob files that are collected. A family that is not
    /// written any more would hold the garbage of others, whose values lie in the same files, for
    /// ever.
    fn compact_runs_for(&self, garbage: &Garbage) -> Option<Plan> {
        let is_due =
            self.runs_free_to_leave().into_iter().any(|run| collected_bytes(run, garbage).1 > 0);
        is_due.then(|| self.compact_runs(CompactionReason::Garbage)).flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::small_policy;
    use super::*;
    use crate::blob::GarbageDebt;
    use crate::compact::plan::debts;
    use crate::format::FILE_HEADER_LEN;
    use crate::table::BlobShare;
    use crate::version::fixtures::meta;
    use crate::version::{LiveFile, ObsoleteFiles};

    /// So many runs over a slice of the last level, which has all there is in a blob file.
    fn tree(runs: u64, policy: &Policy) -> Tree {
        let bottom = policy.levels_max - 1;
        let own = |file| LiveFile::new(file, &ObsoleteFiles::new());
        let mut old = meta(0, 1, "a", "z", (1, 2));
        old.blobs = [BlobShare { file: 9, values: 1, bytes: 1000 }].into();
        let mut slices = vec![(bottom, Slice::new(old, own(1), [own(9)].into()))];
        let run = |nth| {
            Slice::new(meta(0, 10 + nth, "a", "z", (10 + nth, 10 + nth)), own(10 + nth), [].into())
        };
        slices.extend((0..runs).map(|nth| (0, run(nth))));
        Tree::default().with(&[], slices).unwrap()
    }

    fn reason(tree: &Tree, policy: &Policy, file_bytes: u64) -> Option<CompactionReason> {
        let len = |_: &LiveFile| Some(FILE_HEADER_LEN as u64 + file_bytes);
        let garbage = Garbage::among((0, tree), std::iter::empty(), len);
        match plan_with_garbage(tree, policy, &Busy::default(), &Hints::default(), &garbage) {
            Plan::Compaction(compaction) => Some(compaction.reason),
            _ => None,
        }
    }

    #[test]
    fn what_exceeds_its_measure_most_comes_first() {
        let policy = small_policy();
        let (quiet, full) = (tree(0, &policy), tree(policy.l0_trigger_runs as u64, &policy));
        // 35 % are allowed: of 1538 bytes if 1000 are alive.
        assert_eq!(reason(&quiet, &policy, 1500), None);
        assert_eq!(reason(&quiet, &policy, 1600), Some(CompactionReason::Garbage));
        assert_eq!(reason(&full, &policy, 1500), Some(CompactionReason::Runs));
        assert_eq!(reason(&full, &policy, 1600), Some(CompactionReason::Garbage));
        let fuller = tree(2 * policy.l0_trigger_runs as u64, &policy);
        assert_eq!(reason(&fuller, &policy, 1600), Some(CompactionReason::Runs));
    }

    #[test]
    fn garbage_is_a_debt_of_one_batch_at_most() {
        let policy = small_policy();
        let tree = tree(1, &policy);
        let of = |garbage| debts(&tree, &policy, &Busy::default(), &Hints::default(), garbage);
        let none = of(GarbageDebt::default());
        let much = of(GarbageDebt { is_collecting: true, pending_bytes: u64::MAX });
        assert_eq!((none.collection_bytes, much.collection_bytes), (0, much.batch_debt));
        assert!(much.batch_debt > none.batch_debt, "what a batch hides has to be moved once");
        let little = of(GarbageDebt { is_collecting: true, pending_bytes: 1 });
        assert_eq!(little.total(), much.total() - much.batch_debt + 1);
    }

    /// Blob files with bytes in them.
    type Shares<'a> = &'a [(u64, u64)];

    /// What a clone shares takes room until each of the two has moved it, and then twice the room.
    #[test]
    fn what_no_clone_shares_is_collected_first() {
        let policy = small_policy();
        let own = |file| LiveFile::new(file, &ObsoleteFiles::new());
        let tree = |slices: &[(u64, &str, Shares<'_>)]| {
            let slice = |&(number, key, shares): &(u64, &str, Shares<'_>)| {
                let mut meta = meta(0, number, key, key, (1, 2));
                let share = |&(file, bytes)| BlobShare { file, values: 1, bytes };
                meta.blobs = shares.iter().map(share).collect();
                let blobs = shares.iter().map(|(file, _)| own(*file)).collect();
                (policy.levels_max - 1, Slice::new(meta, own(number), blobs))
            };
            Tree::default().with(&[], slices.iter().map(slice).collect()).unwrap()
        };
        // The last one has most of what is not shared, and shares a little.
        let source = tree(&[
            (1, "a", &[(8, 1000)]),
            (3, "k", &[(9, 600)]),
            (5, "p", &[(10, 700)]),
            (7, "z", &[(8, 50), (11, 800)]),
        ]);
        let other = tree(&[(2, "a", &[(8, 200)])]);
        let len = |_: &LiveFile| Some(FILE_HEADER_LEN as u64 + 2000);
        let first = |root| {
            let garbage = Garbage::among((0, &source), [(root, &other)].into_iter(), len);
            let hints = Hints::default();
            match plan_with_garbage(&source, &policy, &Busy::default(), &hints, &garbage) {
                Plan::Compaction(compaction) => compaction.inputs[0].1.meta.file,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!((first(7), first(0)), (1, 5));
    }

    #[test]
    fn neighbours_of_a_slice_move_with_it_until_a_job_has_enough() {
        let policy = small_policy();
        let own = |file| LiveFile::new(file, &ObsoleteFiles::new());
        let moved = |bytes: u64| {
            let slice = |(file, key)| {
                let mut meta = meta(0, file, key, key, (1, 2));
                meta.blobs = [BlobShare { file: 9, values: 1, bytes }].into();
                (policy.levels_max - 1, Slice::new(meta, own(file), [own(9)].into()))
            };
            let slices = (1..).zip(["a", "b", "c"]).map(slice).collect();
            let tree = Tree::default().with(&[], slices).unwrap();
            let len = |_: &LiveFile| Some(FILE_HEADER_LEN as u64 + 6 * bytes);
            let garbage = Garbage::among((0, &tree), std::iter::empty(), len);
            match plan_with_garbage(&tree, &policy, &Busy::default(), &Hints::default(), &garbage) {
                Plan::Compaction(compaction) => compaction.inputs.len(),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!((moved(1000), moved(1 << 30)), (3, 1));
    }
}
