//! Decides without a manifest which slices are superseded.
//!
//! A compaction records in each of its outputs which files it read. It was installed if the
//! readable part of the manifest has one of its outputs, if a file it read is gone, or if a later
//! compaction that was installed read one of its outputs. Then its outputs are in use and its other
//! inputs are not: a put in an input may have been hidden by a delete that was dropped together
//! with it at the last level. If all inputs exist, the compaction may never have been installed.
//! The inputs then contain all that the outputs contain, so the outputs are left out. But damaged
//! inputs do not contain everything, so then both stay, and are merged. Only in a family with a
//! merge operator are the outputs left out even then: what was folded from operands lies beside
//! them, and both together would count twice.

use crate::format::FamilyId;
use std::collections::{BTreeMap, BTreeSet};

/// What is known about the lineage of a slice.
#[derive(Clone, Debug, Default)]
pub(super) struct Kin {
    pub(super) family: FamilyId,
    pub(super) file: u64,
    /// The whole slice can be read.
    pub(super) is_sound: bool,
    /// The slice may have what a merge operator has made of operands.
    pub(super) merges: bool,
    /// The manifest, or the readable part of it, has the slice in the tree.
    pub(super) is_installed: bool,
    pub(super) inputs: Vec<u64>,
    /// Files from which the inputs were made, and which may still be on disk.
    pub(super) ancestors: Vec<u64>,
}

/// The slices, by family and file, that other slices replace.
pub(super) fn superseded(slices: &[Kin]) -> BTreeSet<(FamilyId, u64)> {
    let by_file: BTreeMap<_, _> = slices.iter().map(|kin| ((kin.family, kin.file), kin)).collect();
    // All outputs of one compaction name the same inputs. Later compactions have larger file
    // numbers.
    let mut compactions: BTreeMap<(FamilyId, &[u64]), Vec<&Kin>> = BTreeMap::new();
    for kin in slices.iter().filter(|kin| !kin.inputs.is_empty()) {
        compactions.entry((kin.family, &kin.inputs)).or_default().push(kin);
    }
    let mut compactions: Vec<_> = compactions.into_iter().collect();
    compactions.sort_by_key(|(_, outputs)| {
        std::cmp::Reverse(outputs.iter().map(|kin| kin.file).max().unwrap_or(0))
    });
    let mut out = BTreeSet::new();
    // Files read by a compaction that was installed.
    let mut read_on = BTreeSet::new();
    for ((family, inputs), outputs) in compactions {
        let there: Vec<_> =
            inputs.iter().filter_map(|file| by_file.get(&(family, *file))).collect();
        let is_installed = there.len() < inputs.len()
            || outputs.iter().any(|kin| kin.is_installed || read_on.contains(&(family, kin.file)));
        if is_installed {
            let ancestors = outputs.iter().flat_map(|kin| &kin.ancestors);
            for file in inputs.iter().chain(ancestors) {
                out.insert((family, *file));
                read_on.insert((family, *file));
            }
        } else if there.iter().all(|kin| kin.is_sound) || outputs.iter().any(|kin| kin.merges) {
            out.extend(outputs.iter().map(|kin| (family, kin.file)));
        }
    }
    out.retain(|slice| by_file.contains_key(slice));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kin(file: u64, inputs: &[u64], ancestors: &[u64]) -> Kin {
        let (inputs, ancestors) = (inputs.to_vec(), ancestors.to_vec());
        let (is_sound, merges, is_installed) = (true, false, false);
        Kin { family: 1, file, is_sound, merges, is_installed, inputs, ancestors }
    }

    fn gone(slices: &[Kin]) -> Vec<u64> {
        superseded(slices).into_iter().map(|(_, file)| file).collect()
    }

    #[test]
    fn what_was_folded_from_operands_does_not_count_beside_them() {
        // It may be from before the family got its operator.
        let hurt = Kin { is_sound: false, ..kin(2, &[], &[]) };
        let output = |merges| Kin { merges, ..kin(3, &[1, 2], &[]) };
        let beside = |merges| gone(&[kin(1, &[], &[]), hurt.clone(), output(merges)]);
        assert_eq!((beside(false), beside(true)), (vec![], vec![3]));
    }

    #[test]
    fn outputs_beside_all_their_inputs_say_nothing_new() {
        assert_eq!(gone(&[kin(1, &[], &[]), kin(2, &[], &[]), kin(3, &[1, 2], &[])]), [3]);
    }

    #[test]
    fn an_input_that_is_gone_shows_that_the_compaction_was_installed() {
        assert_eq!(gone(&[kin(2, &[], &[]), kin(3, &[1, 2], &[]), kin(4, &[1, 2], &[])]), [2]);
    }

    #[test]
    fn what_the_manifest_names_is_installed() {
        let output = Kin { is_installed: true, ..kin(3, &[1, 2], &[]) };
        assert_eq!(gone(&[kin(1, &[], &[]), kin(2, &[], &[]), output]), [1, 2]);
    }

    #[test]
    fn an_installed_compaction_shows_that_those_before_it_were() {
        // Files 1 and 2 became 3. Files 3 and 4 became 5; 4 is gone.
        let slices =
            [kin(1, &[], &[]), kin(2, &[], &[]), kin(3, &[1, 2], &[]), kin(5, &[3, 4], &[])];
        assert_eq!(gone(&slices), [1, 2, 3]);
    }

    #[test]
    fn ancestors_are_superseded_though_what_was_between_is_gone() {
        // File 1 still exists for another family. File 3, made from it, became 5 and is gone.
        assert_eq!(gone(&[kin(1, &[], &[]), kin(5, &[3, 4], &[1])]), [1]);
    }

    #[test]
    fn damaged_inputs_stay_beside_their_outputs() {
        let damaged = Kin { is_sound: false, ..kin(1, &[], &[]) };
        assert_eq!(gone(&[damaged, kin(2, &[], &[]), kin(3, &[1, 2], &[])]), [0; 0]);
    }

    #[test]
    fn families_are_apart() {
        let other = Kin { family: 2, ..kin(1, &[], &[]) };
        assert_eq!(superseded(&[other, kin(3, &[1], &[])]), BTreeSet::new());
    }
}
