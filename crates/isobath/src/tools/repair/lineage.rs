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
//! them, and both together would count twice. An input of which nothing can be read is damaged, and
//! not gone; with a merge operator it counts as gone, since the outputs may have what was in it.
//! Nor is an input gone that a clone shares with another family, as long as its file is there, but
//! with a merge operator: what the clone shared is in its outputs alone then.
//!
//! An input may outlive a blob file in which it has values: it is shared with other families, and
//! the compaction has moved these values. But a missing blob file in which outputs have nothing
//! does not show that the compaction was installed: the file may be lost by damage, and the process
//! may have died before all outputs were written. Where both can stay, both do, and what one output
//! holds of these values is no loss. In a family with a merge operator an output counts only if it
//! reaches over everything that can be read of the inputs: then it has all of that, whatever is
//! true. What a repair has written shows nothing: it left out what was lost.
//!
//! Where this may cost keys, or bring deleted ones back, and no loss says so, there is a [`Doubt`].

use crate::format::FamilyId;
use std::collections::{BTreeMap, BTreeSet};

/// The first and the last key of a slice.
pub(super) type Keys = (Box<[u8]>, Box<[u8]>);

/// What is known about the lineage of a slice.
#[derive(Clone, Debug, Default)]
pub(super) struct Kin {
    pub(super) family: FamilyId,
    pub(super) file: u64,
    /// The whole slice can be read.
    pub(super) is_sound: bool,
    /// Nothing of the slice can be read but, perhaps, its root.
    pub(super) is_emptied: bool,
    /// The first and the last key that can be read. `None` with range deletes, which reach further.
    pub(super) keys: Option<Keys>,
    /// The slice may have what a merge operator has made of operands.
    pub(super) merges: bool,
    /// The manifest, or the readable part of it, has the slice in the tree.
    pub(super) is_installed: bool,
    /// A repair has written the slice.
    pub(super) is_of_repair: bool,
    /// The blob files in which it has values and which do not exist.
    pub(super) blobs_missing: BTreeSet<u64>,
    pub(super) inputs: Vec<u64>,
    /// Files from which the inputs were made, and which may still be on disk.
    pub(super) ancestors: Vec<u64>,
}

/// What follows from the lineage of all slices.
#[derive(Debug, Default)]
pub(super) struct Lineage {
    /// The slices, by family and file, that other slices replace.
    pub(super) superseded: BTreeSet<(FamilyId, u64)>,
    pub(super) moved: Vec<Moved>,
    pub(super) doubts: Vec<Doubt>,
}

/// What may be wrong about a compaction.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Doubt {
    pub(super) family: FamilyId,
    pub(super) cause: Cause,
    /// The inputs of which nothing can be read; for [`Cause::NothingLeft`], such outputs.
    pub(super) unreadable: Vec<u64>,
    /// The inputs that can be read, and what these were made from.
    pub(super) readable: Vec<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// The outputs count, and what can be read of the inputs does not. Some outputs may not have
    /// been written.
    OutputsStandIn,
    /// The outputs count, and nothing can be read of them.
    NothingLeft,
    /// Inputs and outputs count. What cannot be read may have had deletes that the outputs lack.
    DeletesLost,
}

/// Blob files that are gone, though no output of a compaction has values there: what an output
/// reaches over of its inputs it holds.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Moved {
    pub(super) family: FamilyId,
    pub(super) inputs: Vec<u64>,
    pub(super) outputs: Vec<u64>,
    pub(super) blobs: BTreeSet<u64>,
}

/// The outputs of one compaction.
struct Compaction<'a> {
    family: FamilyId,
    inputs: &'a [u64],
    outputs: Vec<&'a Kin>,
}

/// The compactions that the slices tell of, the latest first.
fn compactions(slices: &[Kin]) -> Vec<Compaction<'_>> {
    // All outputs of one compaction name the same inputs. Later compactions have larger file
    // numbers.
    let mut found: BTreeMap<(FamilyId, &[u64]), Vec<&Kin>> = BTreeMap::new();
    for kin in slices.iter().filter(|kin| !kin.inputs.is_empty()) {
        found.entry((kin.family, &kin.inputs)).or_default().push(kin);
    }
    let found = found.into_iter();
    let mut found: Vec<_> =
        found.map(|((family, inputs), outputs)| Compaction { family, inputs, outputs }).collect();
    found.sort_by_key(|compaction| {
        std::cmp::Reverse(compaction.outputs.iter().map(|kin| kin.file).max().unwrap_or(0))
    });
    found
}

impl Compaction<'_> {
    /// The missing blob files in which inputs have values, and outputs have none.
    fn blobs_moved(&self, inputs: &[&Kin]) -> BTreeSet<u64> {
        let outputs = || self.outputs.iter().filter(|kin| !kin.is_of_repair);
        if outputs().next().is_none() {
            return BTreeSet::new();
        }
        let missing = inputs.iter().flat_map(|kin| &kin.blobs_missing).copied();
        let needed = |blob: &u64| outputs().any(|kin| kin.blobs_missing.contains(blob));
        missing.filter(|blob| !needed(blob)).collect()
    }

    /// True if one output reaches over all that can be read of the inputs. It has all of that, even
    /// if other outputs were not written.
    fn holds_all(&self, inputs: &[&Kin]) -> bool {
        let reaches_over = |output: &Kin, input: &Kin| match (&output.keys, &input.keys) {
            _ if input.is_emptied => true,
            (Some((first, last)), Some((from, to))) => first <= from && to <= last,
            _ => false,
        };
        let whole = self.outputs.iter().filter(|kin| kin.is_sound && !kin.is_of_repair);
        whole.into_iter().any(|output| inputs.iter().all(|input| reaches_over(output, input)))
    }

    /// True if an input is gone: none of the files `there` may have it.
    fn is_proven(&self, inputs: &[&Kin], there: &BTreeSet<u64>, merges: bool) -> bool {
        // Without its operands, what is left of the inputs is less than the outputs have.
        let as_gone = merges && self.outputs.iter().any(|kin| !kin.is_emptied);
        let is_there = |file: &u64| match inputs.iter().find(|kin| kin.file == *file) {
            Some(kin) => !(as_gone && kin.is_emptied),
            None => !as_gone && there.contains(file),
        };
        !self.inputs.iter().all(is_there)
    }

    /// What may be wrong, and no loss tells. `read_on` has what later compactions have read.
    fn doubt(
        &self,
        by_file: &BTreeMap<(FamilyId, u64), &Kin>,
        unclear: &BTreeSet<u64>,
        (is_installed, stands_in): (bool, bool),
        read_on: &BTreeSet<(FamilyId, u64)>,
    ) -> Option<Doubt> {
        let of = |file: u64| by_file.get(&(self.family, file));
        let is_lost = |file: &u64| match of(*file) {
            Some(kin) => kin.is_emptied,
            None => unclear.contains(file),
        };
        let ancestors = self.outputs.iter().flat_map(|kin| &kin.ancestors);
        let readable: BTreeSet<u64> = self
            .inputs
            .iter()
            .chain(ancestors)
            .copied()
            .filter(|file| of(*file).is_some_and(|kin| !kin.is_emptied))
            .collect();
        let readable: Vec<u64> = readable.into_iter().collect();
        let lost: Vec<u64> = self.inputs.iter().copied().filter(is_lost).collect();
        let has_outputs = self.outputs.iter().any(|kin| !kin.is_emptied);
        let was_read_on =
            || self.outputs.iter().all(|kin| read_on.contains(&(self.family, kin.file)));
        let (cause, unreadable) = match is_installed {
            true if stands_in => (Cause::OutputsStandIn, lost),
            true if !has_outputs && !readable.is_empty() && !was_read_on() => {
                (Cause::NothingLeft, self.outputs.iter().map(|kin| kin.file).collect())
            }
            false if !lost.is_empty() => (Cause::DeletesLost, lost),
            _ => return None,
        };
        Some(Doubt { family: self.family, cause, unreadable, readable })
    }

    /// True if nothing is left of the outputs, and everything of the inputs.
    fn is_undone(&self, inputs: &[&Kin]) -> bool {
        inputs.len() == self.inputs.len()
            && inputs.iter().all(|kin| kin.is_sound)
            && self.outputs.iter().all(|kin| kin.is_emptied)
    }
}

/// Judges all slices that exist, also those of which nothing can be read. Of the files in `unclear`
/// it is not known which slices they have.
pub(super) fn judge(slices: &[Kin], unclear: &BTreeSet<u64>) -> Lineage {
    let by_file: BTreeMap<_, _> = slices.iter().map(|kin| ((kin.family, kin.file), kin)).collect();
    let there = slices.iter().map(|kin| kin.file).chain(unclear.iter().copied()).collect();
    let (mut out, mut all_moved, mut doubts) = (BTreeSet::new(), Vec::new(), Vec::new());
    // Files read by a compaction that was installed.
    let mut read_on = BTreeSet::new();
    for compaction in compactions(slices) {
        let Compaction { family, inputs, ref outputs } = compaction;
        let known = inputs.iter().filter_map(|file| by_file.get(&(family, *file)).copied());
        let known: Vec<&Kin> = known.collect();
        let blobs = compaction.blobs_moved(&known);
        let merges = outputs.iter().any(|kin| kin.merges);
        let is_undone = compaction.is_undone(&known);
        let is_certain = compaction.is_proven(&known, &there, false)
            || outputs.iter().any(|kin| {
                (kin.is_installed && !is_undone) || read_on.contains(&(family, kin.file))
            });
        let stands_in = !is_certain && compaction.is_proven(&known, &there, merges);
        let is_installed = is_certain || stands_in;
        let takes_outputs = merges && !blobs.is_empty() && compaction.holds_all(&known);
        if !is_installed && !blobs.is_empty() && (takes_outputs || !merges) {
            let outputs = outputs.iter().map(|kin| kin.file).collect();
            all_moved.push(Moved { family, inputs: inputs.to_vec(), outputs, blobs });
        }
        let is_installed = is_installed || takes_outputs;
        let taken = (is_installed, stands_in);
        doubts.extend(compaction.doubt(&by_file, unclear, taken, &read_on));
        if is_installed {
            let ancestors = outputs.iter().flat_map(|kin| &kin.ancestors);
            for file in inputs.iter().chain(ancestors) {
                // What such an input has lost is told: the outputs may lack it.
                let is_told =
                    merges && by_file.get(&(family, *file)).is_some_and(|kin| kin.is_emptied);
                if !is_told || takes_outputs {
                    out.insert((family, *file));
                }
                read_on.insert((family, *file));
            }
        } else if merges || known.len() == inputs.len() && known.iter().all(|kin| kin.is_sound) {
            out.extend(outputs.iter().map(|kin| (family, kin.file)));
        }
    }
    out.retain(|slice| by_file.contains_key(slice));
    Lineage { superseded: out, moved: all_moved, doubts }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kin(file: u64, inputs: &[u64], ancestors: &[u64]) -> Kin {
        let (inputs, ancestors) = (inputs.to_vec(), ancestors.to_vec());
        let keys = Some((b"a"[..].into(), b"z"[..].into()));
        Kin { family: 1, file, is_sound: true, keys, inputs, ancestors, ..Kin::default() }
    }

    fn gone(slices: &[Kin]) -> Vec<u64> {
        let judged = judge(slices, &BTreeSet::new());
        judged.superseded.into_iter().map(|(_, file)| file).collect()
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
        assert_eq!(gone(&[other, kin(3, &[1], &[])]), [0; 0]);
    }

    #[test]
    fn what_a_clone_shares_is_not_gone_while_its_file_is_there() {
        // The clone had file 1 of another family, and wrote file 2 itself. The process died before
        // all outputs were there.
        let shared = Kin { family: 2, ..kin(1, &[], &[]) };
        assert_eq!(gone(&[shared.clone(), kin(2, &[], &[]), kin(3, &[1, 2], &[])]), [0; 0]);
        // File 4, which it wrote too, is gone: the compaction was installed.
        assert_eq!(gone(&[shared, kin(2, &[], &[]), kin(3, &[1, 2, 4], &[])]), [2]);
    }

    /// A slice of which nothing can be read, or nothing but its root.
    fn emptied(file: u64, inputs: &[u64]) -> Kin {
        Kin { is_sound: false, is_emptied: true, keys: None, ..kin(file, inputs, &[]) }
    }

    #[test]
    fn an_input_of_which_nothing_is_left_counts_as_gone_where_operands_are_folded() {
        let output = Kin { merges: true, ..kin(3, &[1, 2], &[]) };
        assert_eq!(gone(&[emptied(1, &[]), kin(2, &[], &[]), output.clone()]), [2]);
        let judged = judge(&[kin(2, &[], &[]), output], &BTreeSet::from([1]));
        assert_eq!(judged.superseded, BTreeSet::from([(1, 2)]));
        // Nothing is left of the output: what is left of the inputs counts.
        let output = Kin { merges: true, ..emptied(3, &[1, 2]) };
        assert_eq!(gone(&[emptied(1, &[]), kin(2, &[], &[]), output]), [3]);
    }

    #[test]
    fn outputs_of_which_nothing_is_left_replace_no_whole_inputs() {
        let output = |file| Kin { is_installed: true, ..emptied(file, &[1, 2]) };
        let [one, two] = [1, 2].map(|file| kin(file, &[], &[]));
        assert_eq!(gone(&[one.clone(), two.clone(), output(3), output(4)]), [3, 4]);
        assert_eq!(gone(&[one.clone(), two, kin(3, &[1, 2], &[]), output(4)]), [1, 2]);
        assert_eq!(gone(&[one, emptied(2, &[]), output(3)]), [1, 2]);
    }

    #[test]
    fn an_input_of_which_nothing_is_left_is_not_gone() {
        assert_eq!(gone(&[emptied(1, &[]), kin(2, &[], &[]), kin(3, &[1, 2], &[])]), [0; 0]);
        let unclear = |files: &[u64]| {
            let slices = [kin(2, &[], &[]), kin(3, &[1, 2], &[])];
            let judged = judge(&slices, &files.iter().copied().collect());
            judged.superseded.into_iter().map(|(_, file)| file).collect::<Vec<_>>()
        };
        assert_eq!((unclear(&[]), unclear(&[1])), (vec![2], vec![]));
    }

    #[test]
    fn an_output_of_which_nothing_is_left_still_tells_of_its_compaction() {
        assert_eq!(gone(&[kin(2, &[], &[]), emptied(3, &[1, 2])]), [2]);
        // Files 1 and 2 became 3; 3 and 4 became 5.
        let slices =
            [kin(1, &[], &[]), kin(2, &[], &[]), emptied(3, &[1, 2]), kin(5, &[3, 4], &[])];
        assert_eq!(gone(&slices), [1, 2, 3]);
    }

    #[test]
    fn where_keys_may_be_missing_or_deleted_ones_be_back_there_is_a_doubt() {
        let of = |cause, unreadable: &[u64], readable: &[u64]| {
            let (unreadable, readable) = (unreadable.to_vec(), readable.to_vec());
            vec![Doubt { family: 1, cause, unreadable, readable }]
        };
        let doubts = |slices: &[Kin], unclear: &[u64]| {
            judge(slices, &unclear.iter().copied().collect()).doubts
        };
        let [two, three] = [kin(2, &[], &[]), kin(3, &[1, 2], &[])];
        let merged = Kin { merges: true, ..three.clone() };
        for (output, cause) in
            [(three.clone(), Cause::DeletesLost), (merged.clone(), Cause::OutputsStandIn)]
        {
            let slices = [emptied(1, &[]), two.clone(), output.clone()];
            assert_eq!(doubts(&slices, &[]), of(cause, &[1], &[2]));
            assert_eq!(doubts(&[two.clone(), output.clone()], &[1]), of(cause, &[1], &[2]));
            // An input is gone, or the manifest has the output: it was installed.
            assert_eq!(doubts(&[two.clone(), output.clone()], &[]), []);
            let installed = Kin { is_installed: true, ..output };
            assert_eq!(doubts(&[emptied(1, &[]), two.clone(), installed], &[]), []);
        }
        let merged = Kin { merges: true, ..emptied(3, &[1, 2]) };
        let all = [emptied(1, &[]), two.clone(), merged];
        assert_eq!(doubts(&all, &[]), of(Cause::DeletesLost, &[1], &[2]));
        let nothing = |outputs: &[u64], readable: &[u64]| of(Cause::NothingLeft, outputs, readable);
        assert_eq!(doubts(&[two.clone(), emptied(3, &[1, 2])], &[]), nothing(&[3], &[2]));
        let with_ancestor = Kin { ancestors: vec![7], ..emptied(3, &[1, 2]) };
        assert_eq!(doubts(&[kin(7, &[], &[]), with_ancestor], &[]), nothing(&[3], &[7]));
        // A later compaction has read it.
        let slices = [two, emptied(3, &[1, 2]), kin(5, &[3, 4], &[])];
        assert_eq!(doubts(&slices, &[]), []);
        assert_eq!(doubts(&[kin(1, &[], &[]), three], &[]), [], "one that is gone is no doubt");
        let whole = [kin(1, &[], &[]), kin(2, &[], &[]), kin(3, &[1, 2], &[])];
        assert_eq!(doubts(&whole, &[]), []);
    }

    fn without(blobs: &[u64], slice: Kin) -> Kin {
        Kin { is_sound: false, blobs_missing: blobs.iter().copied().collect(), ..slice }
    }

    #[test]
    fn a_missing_blob_file_that_outputs_do_not_need_was_emptied() {
        let inputs = [without(&[8, 9], kin(1, &[], &[])), kin(2, &[], &[])];
        let judged = |outputs: &[Kin]| {
            let slices: Vec<Kin> = inputs.iter().chain(outputs).cloned().collect();
            let Lineage { superseded, moved, doubts } = judge(&slices, &BTreeSet::new());
            assert_eq!(doubts, []);
            let blobs = moved.into_iter().map(|one| (one.inputs, one.outputs, one.blobs));
            (
                superseded.into_iter().map(|(_, file)| file).collect::<Vec<_>>(),
                blobs.collect::<Vec<_>>(),
            )
        };
        let [three, four] = [3, 4].map(|file| kin(file, &[1, 2], &[]));
        let both = [three.clone(), four.clone()];
        let of = |blobs: &[u64]| vec![(vec![1, 2], vec![3, 4], blobs.iter().copied().collect())];
        assert_eq!(judged(&both), (vec![], of(&[8, 9])));
        assert_eq!(judged(&[three.clone(), without(&[9], four.clone())]), (vec![], of(&[8])));
        let (three, four) = (without(&[8], three), without(&[9], four));
        assert_eq!(judged(&[three, four.clone()]), (vec![], vec![]));
        // What a repair has written lacks the values as well.
        let repaired = both.clone().map(|output| Kin { is_of_repair: true, ..output });
        assert_eq!(judged(&repaired), (vec![], vec![]));
        // Where operands are folded, only one side can count.
        let merging = both.map(|output| Kin { merges: true, ..output });
        assert_eq!(judged(&merging), (vec![1, 2], of(&[8, 9])));
        // One that reaches less far is not known to be followed by all others.
        let keys = |from: &[u8], to: &[u8]| Some((from.into(), to.into()));
        let [three, four] = merging.clone();
        let parts = [
            Kin { keys: keys(b"a", b"f"), ..three.clone() },
            Kin { keys: keys(b"q", b"z"), ..four.clone() },
        ];
        assert_eq!(judged(&parts), (vec![3, 4], vec![]));
        let spans = [Kin { keys: None, ..three.clone() }];
        assert_eq!(judged(&spans), (vec![3], vec![]));
        // An output that a repair has written beside it changes nothing.
        let of_repair = Kin { is_of_repair: true, ..four.clone() };
        assert_eq!(judged(&[three.clone(), of_repair]), (vec![1, 2], of(&[8, 9])));
        let needed = [without(&[8, 9], three), four];
        assert_eq!(judged(&needed), (vec![3, 4], vec![]));
        let repaired = merging.map(|output| Kin { is_of_repair: true, ..output });
        assert_eq!(judged(&repaired), (vec![3, 4], vec![]));
    }
}
