//! What trees have in table files, and how much of these files is dead.
//!
//! A flush writes one file for all families, and a file goes with its last slice. So a small slice
//! of a quiet family keeps the room of all other slices that were in its file: dead space.

use super::files::LiveFile;
use super::tree::Tree;
use crate::format::{FILE_HEADER_LEN, FamilyId};
use std::sync::Arc;

/// A table file, and what trees have in it.
#[derive(Debug)]
pub(crate) struct TableUse {
    pub(crate) number: u64,
    pub(crate) len: u64,
    /// Bytes of the slices in it, each counted once.
    pub(crate) live: u64,
    /// The families that have a slice in it, and its bytes. One that clones share counts for each.
    pub(crate) holders: Vec<(FamilyId, u64)>,
}

impl TableUse {
    /// Bytes of the file in which no slice lies. Its directory counts as dead: some bytes a slice.
    pub(crate) fn dead(&self) -> u64 {
        // Damage may have made a file shorter than what is alive in it.
        self.len.saturating_sub(FILE_HEADER_LEN as u64).saturating_sub(self.live)
    }
}

/// What the trees of these families have in each table file. `len` tells how long a file is; those
/// of which it does not know are left out.
pub(crate) fn tables_in_use<'t>(
    trees: impl Iterator<Item = (FamilyId, &'t Tree)>,
    len: impl Fn(&Arc<LiveFile>) -> Option<u64>,
) -> Vec<TableUse> {
    let mut slices = Vec::new();
    for (holder, tree) in trees {
        slices.extend(tree.iter().map(|(_, slice)| (slice.meta.file, holder, slice)));
    }
    slices.sort_unstable_by_key(|(file, holder, slice)| (*file, slice.meta.family, *holder));
    let of_file = |slices: &[(u64, FamilyId, &Arc<super::Slice>)]| {
        let (number, _, first) = slices.first()?;
        let owners = slices.chunk_by(|a, b| a.2.meta.family == b.2.meta.family);
        let live = owners.map(|of| of[0].2.meta.disk_bytes).sum();
        let holders = slices.iter().map(|(_, holder, slice)| (*holder, slice.meta.disk_bytes));
        Some(TableUse { number: *number, len: len(&first.file)?, live, holders: holders.collect() })
    };
    slices.chunk_by(|a, b| a.0 == b.0).filter_map(of_file).collect()
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::meta;
    use super::super::{ObsoleteFiles, Slice};
    use super::*;

    #[test]
    fn a_slice_that_clones_share_is_alive_once_and_held_by_each() {
        let obsolete = ObsoleteFiles::new();
        let files = [1, 2, 3].map(|number| LiveFile::new(number, &obsolete));
        let slice = |owner, file: usize| {
            Slice::new(
                meta(owner, file as u64 + 1, "a", "z", (10 + file as u64, 10 + file as u64)),
                files[file].clone(),
                [].into(),
            )
        };
        let tree = |slices: Vec<Arc<Slice>>| {
            Tree::default().with(&[], slices.into_iter().map(|slice| (0, slice)).collect()).unwrap()
        };
        let source = tree(vec![slice(5, 0), slice(5, 1)]);
        let (clone, other) = (source.clone(), tree(vec![slice(6, 0), slice(6, 2)]));
        let trees = [(5, &source), (9, &clone), (6, &other)];
        let len = |file: &Arc<LiveFile>| match file.number() {
            1 => Some(FILE_HEADER_LEN as u64 + 1000),
            2 => Some(30),
            _ => None,
        };
        let used = tables_in_use(trees.into_iter(), len);
        let told = |used: &TableUse| (used.number, used.live, used.dead(), used.holders.clone());
        let used: Vec<_> = used.iter().map(told).collect();
        let of_first = vec![(5, 100), (9, 100), (6, 100)];
        assert_eq!(
            used,
            [(1, 200, 800, of_first), (2, 100, 0, vec![(5, 100), (9, 100)])],
            "file 3 has no known length, and file 2 is too short for what it holds"
        );
    }
}
