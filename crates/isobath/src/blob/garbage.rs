//! How much of a family's blob files is garbage, and which files are collected: what compactions
//! meet of them moves on.
//!
//! What is alive of a blob file is the sum over the slices of all families, which say how much they
//! have in it; a level keeps the sum over its own. So nothing is counted that could be counted
//! wrong. A version that a newer one has
//! replaced in a slice above counts as alive until both meet in a compaction.
//!
//! A clone has the values of its source. So of a family and its clones only the one counts that has
//! most in the file: with the sum of both, a file would never be garbage of which each has
//! overwritten a half. If they have overwritten different halves, that is less than what is alive.
//! Then the file is collected though it has no garbage, once: afterwards each has its values for
//! itself. To collect a file that clones share frees nothing until each has moved its values, and
//! these take more room then, so such files come last.

use crate::format::{FILE_HEADER_LEN, FamilyId};
use crate::version::{LiveFile, Tree};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};

/// A blob file is collected if more than this share of its bytes is garbage, in percent, and
/// collection is urgent if so much of all files is. A smaller share takes less room on disk and
/// writes values more often.
const GARBAGE_PERCENT: u64 = 35;

/// The blob files in which a family has values.
#[derive(Clone, Debug, Default)]
pub(crate) struct Garbage {
    /// Those that are collected. They may go at any time, as soon as no slice needs them.
    pub(crate) collected: Arc<BTreeMap<u64, Weak<LiveFile>>>,
    /// Those of them in which several clones have values.
    pub(crate) shared: BTreeSet<u64>,
    all: Held,
}

/// What is left of [`Garbage`] for the pace of writers. It holds no file.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct GarbageDebt {
    /// True if any file is collected.
    pub(crate) is_collecting: bool,
    /// Bytes that have to be moved until there is as much garbage as there should be at most.
    pub(crate) pending_bytes: u64,
}

impl GarbageDebt {
    /// Bytes that have to be moved at most for each byte of garbage that is freed: those of a file
    /// that has just become one to collect.
    pub(crate) const TOLL: f64 = (100 - GARBAGE_PERCENT) as f64 / GARBAGE_PERCENT as f64;
}

/// What files hold.
#[derive(Clone, Copy, Debug, Default)]
struct Held {
    bytes: u64,
    live: u64,
}

impl Held {
    fn add(&mut self, other: Held) {
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.live = self.live.saturating_add(other.live);
    }

    fn garbage(self) -> u64 {
        // Damage may have made a file shorter than what is alive in it.
        self.bytes.saturating_sub(self.live)
    }

    /// How much of the allowed share of garbage there is: 1 is all of it.
    fn fullness(self) -> f64 {
        let allowed = self.live as f64 * GARBAGE_PERCENT as f64 / (100 - GARBAGE_PERCENT) as f64;
        self.garbage() as f64 / allowed.max(1.0)
    }
}

#[cfg(test)]
thread_local! {
    /// How often this thread has summed up what families have.
    pub(crate) static SUMS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
    /// How many figures it has added for that.
    static ADDED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// What is alive of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Live {
    pub(crate) bytes: u64,
    /// Several clones have values in it.
    pub(crate) is_shared: bool,
}

/// What is alive of each file, over the trees of families, each with the root of its family: of
/// those with one root the most that any of them has.
pub(crate) fn live_bytes<'t>(
    trees: impl Iterator<Item = (FamilyId, &'t Tree)>,
) -> BTreeMap<u64, Live> {
    #[cfg(test)]
    SUMS.set(SUMS.get() + 1);
    let mut most: BTreeMap<(u64, FamilyId), Live> = BTreeMap::new();
    for (root, tree) in trees {
        let mut of_tree: BTreeMap<u64, u64> = BTreeMap::new();
        let of_runs = tree.runs.iter().flat_map(|run| &run.meta.blobs);
        let of_runs = of_runs.map(|share| (share.file, share.bytes));
        let of_levels = tree.levels.iter().flat_map(|level| level.blob_bytes());
        for (file, bytes) in of_runs.chain(of_levels) {
            #[cfg(test)]
            ADDED.set(ADDED.get() + 1);
            let live = of_tree.entry(file).or_default();
            *live = live.saturating_add(bytes);
        }
        for (file, bytes) in of_tree {
            let first = Live { bytes, is_shared: false };
            let of_clone =
                |most: &mut Live| *most = Live { bytes: bytes.max(most.bytes), is_shared: true };
            most.entry((file, root)).and_modify(of_clone).or_insert(first);
        }
    }
    let mut live: BTreeMap<u64, Live> = BTreeMap::new();
    for ((file, _), of_root) in most {
        let of_file = live.entry(file).or_default();
        of_file.bytes = of_file.bytes.saturating_add(of_root.bytes);
        of_file.is_shared |= of_root.is_shared;
    }
    live
}

impl Garbage {
    /// Looks at the files in which the tree of a family has values. `live` is what all families
    /// have in them, or had a while ago: a file that it lacks is newer, and does not count. `len`
    /// tells how long a file is, if it can be read.
    pub(crate) fn of(
        own: &Tree,
        live: &BTreeMap<u64, Live>,
        len: impl Fn(&LiveFile) -> Option<u64>,
    ) -> Garbage {
        let mut files: BTreeMap<u64, Arc<LiveFile>> = BTreeMap::new();
        for file in own.iter().flat_map(|(_, slice)| &slice.blobs) {
            files.entry(file.number()).or_insert_with(|| file.clone());
        }
        let (mut garbage, mut collected) = (Garbage::default(), BTreeMap::new());
        for (number, file) in files {
            // What is garbage there stays, so it is no work.
            if file.is_damaged() {
                continue;
            }
            let Some(live) = live.get(&number) else { continue };
            // Who reads a file that cannot be opened is told so.
            let Some(len) = len(&file) else { continue };
            let bytes = len.saturating_sub(FILE_HEADER_LEN as u64);
            let held = Held { bytes, live: live.bytes };
            garbage.all.add(held);
            if held.fullness() > 1.0 {
                collected.insert(number, Arc::downgrade(&file));
                garbage.shared.extend(live.is_shared.then_some(number));
            }
        }
        Garbage { collected: Arc::new(collected), ..garbage }
    }

    /// The same for the family `own` beside `others`, each with its root.
    #[cfg(test)]
    pub(crate) fn among<'t>(
        own: (FamilyId, &'t Tree),
        others: impl Iterator<Item = (FamilyId, &'t Tree)>,
        len: impl Fn(&LiveFile) -> Option<u64>,
    ) -> Garbage {
        Garbage::of(own.1, &live_bytes(others.chain([own])), len)
    }

    /// How much garbage there is in all files: 1 is as much as there should be at most. 0 if
    /// nothing can be collected.
    pub(crate) fn fullness(&self) -> f64 {
        if self.collected.is_empty() { 0.0 } else { self.all.fullness() }
    }

    /// What has to be moved, by the toll of the dearest file. Otherwise writers could go on making
    /// so much garbage that it is cheap to free.
    pub(crate) fn debt(&self) -> GarbageDebt {
        let over = 1.0 - 1.0 / self.fullness().max(1.0);
        let pending_bytes = (over * self.all.garbage() as f64 * GarbageDebt::TOLL) as u64;
        GarbageDebt { is_collecting: !self.collected.is_empty(), pending_bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::BlobShare;
    use crate::version::fixtures::meta;
    use crate::version::{ObsoleteFiles, Slice};

    /// A tree of slices of one level with values in blob files: pairs of a number and bytes.
    fn tree(shares: &[&[(u64, u64)]], files: &BTreeMap<u64, Arc<LiveFile>>) -> Tree {
        let slice = |(nth, shares): (usize, &&[(u64, u64)])| {
            let key = format!("{nth:04}");
            let mut meta = meta(0, 100 + nth as u64, &key, &key, (1, 2));
            let share = |&(file, bytes)| BlobShare { file, values: 1, bytes };
            meta.blobs = shares.iter().map(share).collect();
            let blobs = shares.iter().map(|(file, _)| files[file].clone()).collect();
            let table = LiveFile::new(meta.file, &ObsoleteFiles::new());
            (1, Slice::new(meta, table, blobs))
        };
        Tree::default().with(&[], shares.iter().enumerate().map(slice).collect()).unwrap()
    }

    fn files(numbers: std::ops::Range<u64>) -> BTreeMap<u64, Arc<LiveFile>> {
        let file = |number| (number, LiveFile::new(number, &ObsoleteFiles::new()));
        numbers.map(file).collect()
    }

    #[test]
    fn a_file_is_collected_above_a_share_of_garbage() {
        let is_collected = |bytes: u64, live| {
            let tree = tree(&[&[(1, live)]], &files(1..2));
            let len = |_: &LiveFile| Some(FILE_HEADER_LEN as u64 + bytes);
            !Garbage::among((0, &tree), std::iter::empty(), len).collected.is_empty()
        };
        assert!(!is_collected(1000, 1000) && !is_collected(1000, 650));
        assert!(is_collected(1000, 649) && is_collected(1000, 1));
        assert!(!is_collected(1000, 2000), "damage has made it shorter");
    }

    #[test]
    fn what_all_slices_of_all_families_have_in_a_file_is_alive() {
        let files = files(1..4);
        let own = tree(&[&[(1, 300), (2, 500)], &[(1, 200)]], &files);
        let other = tree(&[&[(1, 200), (3, 100)]], &files);
        let len = |file: &LiveFile| {
            assert!(file.number() != 3, "the family has nothing in it");
            Some(FILE_HEADER_LEN as u64 + 1000)
        };
        let garbage = Garbage::among((0, &own), [(1, &other)].into_iter(), len);
        assert!(garbage.collected.keys().eq([&2]), "{garbage:?}");
        assert_eq!((garbage.all.bytes, garbage.all.live), (2000, 1200));
        files[&2].note_damaged();
        let garbage = Garbage::among((0, &own), [(1, &other)].into_iter(), len);
        assert!(garbage.collected.is_empty() && garbage.fullness() == 0.0);
        let newer = Garbage::of(&own, &live_bytes(std::iter::empty()), len);
        assert!(newer.collected.is_empty() && newer.all.bytes == 0);
        let unreadable = Garbage::among((0, &own), std::iter::empty(), |_| None);
        assert!(unreadable.collected.is_empty() && unreadable.debt().pending_bytes == 0);
    }

    #[test]
    fn the_slices_of_a_level_are_not_summed_up_one_by_one() {
        let files = files(1..4);
        let shares: Vec<[(u64, u64); 2]> =
            (0..500).map(|nth| [(1, 10), (2 + nth % 2, 1)]).collect();
        let shares: Vec<&[(u64, u64)]> = shares.iter().map(|shares| &shares[..]).collect();
        let tree = tree(&shares, &files);
        let bytes_of = |tree: &Tree| {
            ADDED.set(0);
            let live = live_bytes(std::iter::once((0, tree)));
            assert!(ADDED.get() <= 3, "{} figures were added", ADDED.get());
            live.into_iter().map(|(file, live)| (file, live.bytes)).collect::<Vec<_>>()
        };
        assert_eq!(bytes_of(&tree), [(1, 5_000), (2, 250), (3, 250)]);
        let even: Vec<_> = (0..250).map(|nth| (1, 100 + 2 * nth)).collect();
        let tree = tree.with(&even, Vec::new()).unwrap();
        assert_eq!(bytes_of(&tree), [(1, 2_500), (3, 250)]);
    }

    #[test]
    fn what_clones_have_in_a_file_counts_once_each_file_by_the_one_that_has_most() {
        let files = files(1..3);
        let trees = [
            tree(&[&[(1, 400), (2, 100)], &[(1, 100)]], &files),
            tree(&[&[(1, 500), (2, 300)]], &files),
            tree(&[&[(1, 60)]], &files),
        ];
        let with = |roots: [FamilyId; 3]| {
            let live = live_bytes(std::iter::zip(roots, &trees)).into_values();
            live.map(|live| (live.bytes, live.is_shared)).collect::<Vec<_>>()
        };
        assert_eq!(with([7, 8, 9]), [(1060, false), (400, false)]);
        assert_eq!(with([7, 8, 7]), [(1000, true), (400, false)]);
        assert_eq!(with([7, 7, 9]), [(560, true), (300, true)]);
        assert_eq!(with([7, 7, 7]), [(500, true), (300, true)]);
        let len = |_: &LiveFile| Some(FILE_HEADER_LEN as u64 + 1000);
        let of = |root| Garbage::among((7, &trees[0]), [(root, &trees[1])].into_iter(), len);
        assert!(of(8).collected.keys().eq([&2]), "half of file 1 is not known to be garbage");
        assert!(of(7).collected.keys().eq([&1, &2]));
        assert!(of(8).shared.is_empty() && of(7).shared.len() == 2);
    }

    #[test]
    fn what_is_pending_brings_garbage_down_to_its_share() {
        let tree = tree(&[&[(1, 100), (2, 1000)]], &files(1..3));
        let len = |_: &LiveFile| Some(FILE_HEADER_LEN as u64 + 1000);
        let garbage = Garbage::among((0, &tree), std::iter::empty(), len);
        // Of 1100 live bytes 592 more may be garbage, and 900 are.
        assert!((1.51..1.53).contains(&garbage.fullness()), "{garbage:?}");
        assert!((570..573).contains(&garbage.debt().pending_bytes), "308 times 1.86: {garbage:?}");
        let tree = self::tree(&[&[(1, 600), (2, 1000)]], &files(1..3));
        let garbage = Garbage::among((0, &tree), std::iter::empty(), len);
        assert_eq!((garbage.collected.len(), garbage.debt().pending_bytes), (1, 0));
        assert!(garbage.fullness() < 1.0);
    }

    #[test]
    fn files_of_impossible_lengths_are_garbage_all_the_same() {
        let tree = tree(&[&[(1, 100), (2, 100)]], &files(1..3));
        let len = |_: &LiveFile| Some(FILE_HEADER_LEN as u64 + (1 << 63));
        let garbage = Garbage::among((0, &tree), std::iter::empty(), len);
        assert!(garbage.fullness() > 1.0 && garbage.debt().pending_bytes > 1 << 62, "{garbage:?}");
    }

    #[test]
    fn garbage_that_cannot_move_is_no_debt() {
        let files = files(1..4);
        let len = |_: &LiveFile| Some(FILE_HEADER_LEN as u64 + 1000);
        let of = |shares: &[(u64, u64)]| {
            let tree = tree(&[shares], &files);
            let garbage = Garbage::among((0, &tree), std::iter::empty(), len);
            (garbage.fullness(), garbage.debt().pending_bytes, garbage.collected.len())
        };
        let alone = of(&[(2, 100), (3, 900)]);
        assert!(alone.0 > 1.0 && alone.1 > 0 && alone.2 == 1, "{alone:?}");
        assert!(of(&[(1, 10), (2, 100), (3, 900)]).1 > alone.1);
        files[&1].note_damaged();
        assert_eq!(of(&[(1, 10), (2, 100), (3, 900)]), alone);
    }
}
