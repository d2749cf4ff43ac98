//! One family's tree: runs in level 0, sorted levels below.
//!
//! A tree never changes once it is shared: [`Tree::with`] makes a changed copy that shares every
//! level it did not touch. Invariants of every tree, checked each time one is made:
//!
//! - Runs are ordered newest first. Where two runs share keys, all sequences of one are above all
//!   sequences of the other.
//! - Below level 0, the slices of a level are ascending, and no user key is in two of them.
//! - A file appears once.

use super::level::Level;
use super::slice::Slice;
#[cfg(any(debug_assertions, feature = "paranoid"))]
use crate::env::{Plant, planted};
use crate::env::{Reach, reached_if};
use crate::error::{DecodeError, Decoded};
use crate::table::ExtentRef;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The greatest number of levels, level 0 included. No real tree needs nearly as many; it bounds
/// hostile input.
pub(crate) const LEVELS_MAX: usize = 32;

/// The slices of one family.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tree {
    /// Level 0, newest first. Runs may share keys.
    pub(crate) runs: Vec<Arc<Slice>>,
    /// Level 1 and below: `levels[0]` is level 1.
    pub(crate) levels: Vec<Arc<Level>>,
}

impl Tree {
    /// True if any slice has values in blob files.
    pub(crate) fn has_blobs(&self) -> bool {
        self.runs.iter().any(|run| !run.blobs.is_empty())
            || self.levels.iter().any(|level| level.has_blobs())
    }

    /// True if any slice has streams.
    pub(crate) fn has_streams(&self) -> bool {
        self.runs.iter().any(|run| !run.streams.is_empty())
            || self.levels.iter().any(|level| level.has_streams())
    }

    /// A copy without the slices `removed` (level, file) and with the slices `added`.
    #[cfg(any(test, feature = "bench-internals"))]
    pub(crate) fn with(
        &self,
        removed: &[(usize, u64)],
        added: Vec<(usize, Arc<Slice>)>,
    ) -> Decoded<Tree> {
        let mut tree = self.clone();
        tree.remove(removed)?;
        tree.add(added)?;
        Ok(tree)
    }

    /// Counts shapes of trees, so that a simulation can tell which ones occurred.
    fn note_shape(&self) {
        let depth = || self.levels.iter().filter(|level| !level.is_empty()).count();
        reached_if(Reach::LevelsTwo, || depth() >= 2);
        reached_if(Reach::LevelsThree, || depth() >= 3);
        reached_if(Reach::LevelsFour, || depth() >= 4);
        let has_slices = |count| self.levels.iter().any(|level| level.len() >= count);
        reached_if(Reach::SlicesFour, || has_slices(4));
        reached_if(Reach::SlicesSixteen, || has_slices(16));
    }

    /// The second half of a change: adds slices, in place. Copies only the levels that are shared.
    /// After an error the tree is unusable.
    pub(super) fn add(&mut self, added: Vec<(usize, Arc<Slice>)>) -> Decoded<()> {
        let files: Vec<u64> = added.iter().map(|(_, slice)| slice.meta.file).collect();
        self.check_each_is_new(files)?;
        for (level, slice) in added {
            self.insert(level, slice)?;
        }
        while self.levels.last().is_some_and(|level| level.is_empty()) {
            self.levels.pop();
        }
        self.note_shape();
        #[cfg(any(debug_assertions, feature = "paranoid"))]
        assert!(self.is_sound() || planted(Plant::OverlappingFiles), "a tree broke its invariants");
        Ok(())
    }

    /// The first half of a change: removes slices (level, file), in place, and returns them. Passes
    /// once over each level that loses any. A change that adds nothing ends with a [`Tree::add`]
    /// of nothing. After an error the tree is unusable.
    pub(super) fn remove(&mut self, removed: &[(usize, u64)]) -> Decoded<Vec<Arc<Slice>>> {
        let is_absent = |level: usize, file: u64| {
            DecodeError::damaged(format!("file {file} is to leave level {level}, where it is not"))
        };
        let mut of_levels: BTreeMap<usize, BTreeSet<u64>> = BTreeMap::new();
        for &(level, file) in removed {
            if !of_levels.entry(level).or_default().insert(file) {
                return Err(is_absent(level, file));
            }
        }
        let mut gone = Vec::with_capacity(removed.len());
        for (level, mut files) in of_levels {
            match level.checked_sub(1).map(|at| self.levels.get_mut(at)) {
                None => self.runs.retain(|run| {
                    let leaves = files.remove(&run.meta.file);
                    gone.extend(leaves.then(|| run.clone()));
                    !leaves
                }),
                Some(Some(slices)) => gone.extend(Arc::make_mut(slices).remove(&mut files)),
                Some(None) => {}
            }
            if let Some(file) = files.first() {
                return Err(is_absent(level, *file));
            }
        }
        debug_assert_eq!(gone.len(), removed.len(), "a slice is removed twice or not at all");
        Ok(gone)
    }

    /// A few files are searched for one by one, the many of a snapshot are sorted. Neither is slow.
    fn check_each_is_new(&self, mut files: Vec<u64>) -> Decoded<()> {
        const FEW: usize = 16;
        let here = |file: &u64| {
            self.runs.iter().any(|run| run.meta.file == *file)
                || self.levels.iter().any(|level| level.files().contains(file))
        };
        let known = if files.len() <= FEW {
            files.iter().copied().find(here)
        } else {
            let mut here: Vec<_> = self.iter().map(|(_, slice)| slice.meta.file).collect();
            here.sort_unstable();
            files.iter().copied().find(|file| here.binary_search(file).is_ok())
        };
        files.sort_unstable();
        let twice = files.windows(2).find(|pair| pair[0] == pair[1]).map(|pair| pair[0]);
        match known.or(twice) {
            Some(file) => Err(DecodeError::damaged(format!(
                "an edit adds file {file} to the tree a second time"
            ))),
            None => Ok(()),
        }
    }

    fn insert(&mut self, level: usize, slice: Arc<Slice>) -> Decoded<()> {
        if level >= LEVELS_MAX {
            return Err(DecodeError::damaged(format!("there is no level {level}")));
        }
        if level == 0 {
            return self.insert_run(slice);
        }
        if self.levels.len() < level {
            self.levels.resize_with(level, Arc::default);
        }
        Arc::make_mut(&mut self.levels[level - 1]).insert(slice)
    }

    fn insert_run(&mut self, slice: Arc<Slice>) -> Decoded<()> {
        if let Some(other) = self.runs.iter().find(|other| !is_run_apart(&slice, other)) {
            return Err(DecodeError::damaged(format!(
                "files {} and {} of family {} are runs that share keys and sequences",
                other.meta.file, slice.meta.file, slice.meta.family
            )));
        }
        let at = self.runs.partition_point(|other| other.meta.max_seq > slice.meta.max_seq);
        self.runs.insert(at, slice);
        Ok(())
    }

    /// The number of levels down to the deepest that has slices, level 0 included: at least 1.
    pub(crate) fn level_count(&self) -> usize {
        1 + self.levels.len()
    }

    /// The slices of a level: newest first for level 0, in key order for the others.
    pub(crate) fn slices(&self, level: usize) -> &[Arc<Slice>] {
        match level {
            0 => &self.runs,
            _ => self.levels.get(level - 1).map_or(&[], |slices| slices),
        }
    }

    /// All slices with their level, from level 0 down.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, &Arc<Slice>)> {
        (0..self.level_count())
            .flat_map(|level| self.slices(level).iter().map(move |slice| (level, slice)))
    }

    /// Bytes on disk of a level's slices.
    pub(crate) fn disk_bytes(&self, level: usize) -> u64 {
        match level {
            0 => self.runs.iter().map(|run| run.meta.disk_bytes).sum(),
            _ => self.levels.get(level - 1).map_or(0, |slices| slices.disk_bytes()),
        }
    }

    /// The same, with their values in blob files.
    pub(crate) fn held_bytes(&self, level: usize) -> u64 {
        match level {
            0 => self.runs.iter().map(|run| run.held_bytes).sum(),
            _ => self.levels.get(level - 1).map_or(0, |slices| slices.held_bytes()),
        }
    }

    /// Bytes on disk of the whole tree.
    #[cfg(test)]
    pub(crate) fn disk_bytes_total(&self) -> u64 {
        (0..self.level_count()).map(|level| self.disk_bytes(level)).sum()
    }

    /// The slice of a level below 0 that may hold `key`.
    #[cfg(test)]
    pub(crate) fn find(&self, level: usize, key: &[u8]) -> Option<&Arc<Slice>> {
        self.levels.get(level.checked_sub(1)?)?.find(key)
    }

    /// The slices of any level that overlap an extent.
    pub(crate) fn overlapping(&self, level: usize, extent: &ExtentRef<'_>) -> Vec<Arc<Slice>> {
        match level {
            0 => {
                let runs = self.runs.iter().filter(|run| run.extent().overlaps(extent));
                runs.cloned().collect()
            }
            _ => self
                .levels
                .get(level - 1)
                .map_or(Vec::new(), |slices| slices.overlapping(extent).to_vec()),
        }
    }

    /// The slice of a file, with its level, if the tree has it. The extent must be the slice's.
    pub(crate) fn locate(&self, file: u64, extent: &ExtentRef<'_>) -> Option<(usize, Arc<Slice>)> {
        (0..self.level_count()).find_map(|level| {
            let mut slices = self.overlapping(level, extent).into_iter();
            Some((level, slices.find(|slice| slice.meta.file == file)?))
        })
    }

    /// The slice of a file, if the tree has it at that level.
    pub(crate) fn get(&self, level: usize, file: u64) -> Option<&Arc<Slice>> {
        if level == 0 {
            return self.runs.iter().find(|run| run.meta.file == file);
        }
        let slices = self.levels.get(level - 1)?;
        slices.get(slices.files().iter().position(|&number| number == file)?)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.runs.is_empty() && self.levels.is_empty()
    }

    /// Checks the invariants of this module on the whole tree.
    #[cfg(any(test, debug_assertions, feature = "paranoid", feature = "bench-internals"))]
    pub(crate) fn is_sound(&self) -> bool {
        let runs_descend =
            self.runs.windows(2).all(|pair| pair[0].meta.max_seq > pair[1].meta.max_seq);
        let runs_are_apart = self
            .runs
            .iter()
            .enumerate()
            .all(|(at, run)| self.runs[at + 1..].iter().all(|older| is_run_apart(run, older)));
        runs_descend
            && runs_are_apart
            && self.levels.iter().all(|level| level.is_ascending_and_disjoint())
            && self.levels.last().is_none_or(|deepest| !deepest.is_empty())
            && self.each_file_appears_once()
    }

    #[cfg(any(test, debug_assertions, feature = "paranoid", feature = "bench-internals"))]
    fn each_file_appears_once(&self) -> bool {
        let mut files: Vec<_> = self.iter().map(|(_, slice)| slice.meta.file).collect();
        files.sort_unstable();
        files.windows(2).all(|pair| pair[0] != pair[1])
    }
}

/// True if it is clear which of two runs is newer: all of one is newer than all of the other or, if
/// they share no key, at least its newest version is.
fn is_run_apart(a: &Slice, b: &Slice) -> bool {
    let (older, newer) = if a.meta.max_seq < b.meta.max_seq { (a, b) } else { (b, a) };
    older.meta.max_seq < newer.meta.min_seq
        || (older.meta.max_seq != newer.meta.max_seq && !older.extent().overlaps(&newer.extent()))
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::slice;
    use super::*;
    use crate::env::fixtures::thread_time;
    use crate::table::{End, Extent};

    fn sample() -> Tree {
        let added = vec![
            (0, slice(1, "a", "m", (10, 20))),
            (0, slice(2, "a", "z", (30, 40))),
            (1, slice(3, "a", "f", (1, 9))),
            (1, slice(4, "g", "k", (1, 9))),
            (3, slice(5, "a", "z", (1, 1))),
        ];
        Tree::default().with(&[], added).unwrap()
    }

    fn files(slices: &[Arc<Slice>]) -> Vec<u64> {
        slices.iter().map(|slice| slice.meta.file).collect()
    }

    #[test]
    fn runs_stand_newest_first_and_levels_in_key_order() {
        let tree = sample();
        assert_eq!(files(&tree.runs), [2, 1]);
        assert_eq!(files(tree.slices(1)), [3, 4]);
        assert!(files(tree.slices(2)).is_empty());
        assert_eq!(files(tree.slices(3)), [5]);
        assert!(files(tree.slices(9)).is_empty());
        assert_eq!(tree.level_count(), 4);
        assert_eq!(tree.disk_bytes(1), 200);
        assert_eq!(tree.disk_bytes_total(), 500);
        assert!(tree.is_sound());
    }

    #[test]
    fn a_tree_is_unsound_whose_runs_do_not_descend_or_cannot_be_told_apart() {
        let runs = |of: [(&str, &str, (u64, u64)); 2]| {
            let run = |(at, (smallest, largest, seqs)): (usize, (&str, &str, _))| {
                slice(at as u64 + 1, smallest, largest, seqs)
            };
            let runs = of.into_iter().enumerate().map(run).collect();
            Tree { runs, levels: Vec::new() }.is_sound()
        };
        assert!(runs([("a", "m", (30, 40)), ("a", "m", (10, 20))]));
        assert!(!runs([("a", "m", (10, 20)), ("a", "m", (30, 40))]), "they ascend");
        assert!(!runs([("a", "m", (15, 40)), ("a", "m", (10, 20))]), "which one is newer?");
        assert!(runs([("a", "c", (15, 40)), ("d", "m", (10, 20))]), "they share no key");
    }

    #[test]
    fn a_change_makes_a_copy_that_shares_the_untouched_levels() {
        let old = sample();
        let new = old.with(&[(0, 1), (1, 3)], vec![(1, slice(6, "a", "e", (1, 20)))]).unwrap();
        assert_eq!(files(&old.runs), [2, 1]);
        assert_eq!(files(old.slices(1)), [3, 4]);
        assert_eq!(files(&new.runs), [2]);
        assert_eq!(files(new.slices(1)), [6, 4]);
        assert!(Arc::ptr_eq(&old.levels[2], &new.levels[2]));
        assert!(new.is_sound());
    }

    #[test]
    fn a_level_that_empties_at_the_bottom_is_gone() {
        let tree = sample().with(&[(3, 5)], vec![]).unwrap();
        assert_eq!(tree.level_count(), 2);
        let tree = tree.with(&[(0, 1), (0, 2), (1, 3), (1, 4)], vec![]).unwrap();
        assert!(tree.is_empty());
        assert_eq!(tree.level_count(), 1);
    }

    #[test]
    fn a_slice_that_is_not_there_cannot_be_removed() {
        for removed in [(0, 3), (1, 1), (2, 5), (7, 5), (1, 99)] {
            assert!(sample().with(&[removed], vec![]).unwrap_err().is_damage());
        }
    }

    /// Looked for one after the other, each would be found behind all those that are left.
    #[test]
    fn a_hundred_thousand_slices_leave_a_level_at_once() {
        let count = 100_000;
        let at = |nth: u64| format!("{nth:06}");
        let slices = (0..count).map(|nth| (1, slice(nth + 1, &at(nth), &at(nth), (1, 2))));
        let tree = Tree::default().with(&[], slices.collect()).unwrap();
        let removed: Vec<_> = (1..count).rev().map(|file| (1, file)).collect();
        let (mut changed, began) = (tree.clone(), thread_time());
        assert_eq!(changed.remove(&removed).unwrap().len(), removed.len());
        let took = thread_time() - began;
        assert!(took.as_secs() < 5, "{took:?}");
        changed.add(Vec::new()).unwrap();
        assert_eq!(files(changed.slices(1)), [count]);
        assert!(tree.with(&[(1, 1), (1, 1)], vec![]).unwrap_err().is_damage(), "it leaves twice");
    }

    #[test]
    fn slices_that_would_break_an_invariant_are_refused() {
        let refused = [
            (1, slice(9, "f", "f", (50, 60))),
            (0, slice(9, "a", "b", (15, 60))),
            (0, slice(9, "x", "z", (10, 20))),
            (0, slice(9, "p", "z", (35, 60))),
            (3, slice(2, "zz", "zz", (50, 60))),
            (0, slice(5, "a", "b", (50, 60))),
            (LEVELS_MAX, slice(9, "a", "b", (1, 2))),
        ];
        for (level, slice) in refused {
            let what = format!("level {level}: {:?}", slice.meta);
            assert!(sample().with(&[], vec![(level, slice)]).is_err(), "{what}");
        }
    }

    #[test]
    fn a_file_given_twice_is_refused_among_few_and_among_many() {
        for count in [2, 100] {
            let mut added: Vec<_> = (0..count)
                .map(|at| (1, slice(100 + at, &format!("{at:03}"), &format!("{at:03}"), (1, 2))))
                .collect();
            let tree = Tree::default().with(&[], added.clone()).unwrap();
            assert!(tree.with(&[], vec![(2, slice(101, "a", "b", (1, 2)))]).is_err());
            let moved = (100..100 + count).map(|file| (1, file)).collect::<Vec<_>>();
            assert!(tree.with(&moved, added.clone()).unwrap().is_sound());
            assert!(tree.with(&moved[1..], added.clone()).is_err());
            added.push((2, slice(101, "a", "b", (1, 2))));
            assert!(Tree::default().with(&[], added).is_err());
        }
    }

    #[test]
    fn runs_without_a_common_key_may_be_of_the_same_time() {
        let tree = sample().with(&[], vec![(0, slice(9, "n", "z", (12, 22)))]).unwrap();
        assert_eq!(files(&tree.runs), [2, 9, 1]);
        assert!(tree.is_sound());
    }

    #[test]
    fn searches_name_the_slices_that_may_hold_a_key() {
        let tree = sample();
        assert_eq!(tree.find(1, b"h").unwrap().meta.file, 4);
        assert!(tree.find(1, b"z").is_none());
        assert!(tree.find(0, b"h").is_none());
        assert!(tree.find(2, b"h").is_none());
        let extent = |start: &'static [u8], end| Extent { start, end: End::Included(end) };
        assert_eq!(files(&tree.overlapping(0, &extent(b"n", b"o"))), [2]);
        assert_eq!(files(&tree.overlapping(1, &extent(b"f", b"g"))), [3, 4]);
        assert!(files(&tree.overlapping(9, &extent(b"f", b"g"))).is_empty());
    }
}
