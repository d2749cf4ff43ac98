//! Which slices are superseded, told without a manifest.
//!
//! A compaction writes into each of its outputs what it read. If a file it read is gone, or was
//! read on by a later compaction that is known to have been installed, then its outputs are in
//! force and whatever else it read is not: a put in it may be one that a delete, dropped at the
//! last level together with it, had hidden. If all that it read is there, the compaction may never
//! have been installed; then the inputs say all that the outputs say, and the outputs are left out.
//! Inputs that are damaged do not say all, so then both stay, and are merged.

use crate::format::FamilyId;
use std::collections::{BTreeMap, BTreeSet};

/// A slice as far as its lineage goes.
#[derive(Clone, Debug, Default)]
pub(super) struct Kin {
    pub(super) family: FamilyId,
    pub(super) file: u64,
    /// All of it can be read.
    pub(super) is_sound: bool,
    /// The manifest, or what is left of it, has it in the tree.
    pub(super) is_installed: bool,
    pub(super) inputs: Vec<u64>,
    /// What the inputs were made of and may still be on disk.
    pub(super) ancestors: Vec<u64>,
}

/// The slices, by family and file, that something else stands for.
pub(super) fn superseded(slices: &[Kin]) -> BTreeSet<(FamilyId, u64)> {
    let by_file: BTreeMap<_, _> = slices.iter().map(|kin| ((kin.family, kin.file), kin)).collect();
    // Outputs of one compaction name the same inputs. Later compactions have greater numbers.
    let mut compactions: BTreeMap<(FamilyId, &[u64]), Vec<&Kin>> = BTreeMap::new();
    for kin in slices.iter().filter(|kin| !kin.inputs.is_empty()) {
        compactions.entry((kin.family, &kin.inputs)).or_default().push(kin);
    }
    let mut compactions: Vec<_> = compactions.into_iter().collect();
    compactions.sort_by_key(|(_, outputs)| {
        std::cmp::Reverse(outputs.iter().map(|kin| kin.file).max().unwrap_or(0))
    });
    let mut out = BTreeSet::new();
    // Read by a compaction that was installed.
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
        } else if there.iter().all(|kin| kin.is_sound) {
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
        Kin { family: 1, file, is_sound: true, is_installed: false, inputs, ancestors }
    }

    fn gone(slices: &[Kin]) -> Vec<u64> {
        superseded(slices).into_iter().map(|(_, file)| file).collect()
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
        // 1 and 2 became 3; 3 and 4, of which 4 is gone, became 5.
        let slices =
            [kin(1, &[], &[]), kin(2, &[], &[]), kin(3, &[1, 2], &[]), kin(5, &[3, 4], &[])];
        assert_eq!(gone(&slices), [1, 2, 3]);
    }

    #[test]
    fn ancestors_are_superseded_though_what_was_between_is_gone() {
        // 1 lives on for another family; 3, made of it, became 5 and is gone.
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
