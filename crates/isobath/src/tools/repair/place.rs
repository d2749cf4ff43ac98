//! Decides the levels of slices without a manifest, or with one that knows only some of them.
//!
//! Readers take the first version of a key that they find, searching from level 0 down. So versions
//! in an upper level must be newer than those below. A slice of unknown level is merged with the
//! slices from which its sequence numbers do not separate it. Then it goes as deep as it can: above
//! what is older and shares keys with it, or to the last level. So slices that are apart lie in one
//! level, although a large commit may give all of them the same sequence number. In level 0 that
//! would not do, and those that do not get deeper are merged. Slices of known levels keep these,
//! unless they cannot have been in one tree. If edits are lost between those that tell two levels,
//! the slice that was learned of first may have been moved down meanwhile, below what came later.
//! Slices of known levels that become one go to the uppermost of these levels, and what lies
//! between their levels comes with them. All else stays, however its sequence numbers lie.

use crate::table::Extent;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

/// A slice to be placed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) extent: Extent,
    pub(super) min_seq: u64,
    pub(super) max_seq: u64,
    pub(super) level: Option<usize>,
    /// How many gaps lie before the edit that tells the level. Between edits with the same number
    /// none is lost.
    pub(super) learned: u64,
}

/// Slices and the level to which they go: one slice stays as it is, several are merged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Placed {
    /// The indices of the pieces.
    pub(super) members: Vec<usize>,
    pub(super) level: usize,
}

impl Piece {
    fn overlaps(&self, other: &Piece) -> bool {
        self.extent.overlaps(&other.extent)
    }

    fn is_above(&self, lower: &Piece) -> bool {
        self.min_seq > lower.max_seq
    }

    /// True if this one may hide what is newer in the other. It has its level from an edit before
    /// one that is lost, and may have been moved down since. Then the other may have come to lie
    /// above it. Slices whose levels are known from edits between which none is lost were in one
    /// tree, and none of them passes another when they move.
    fn may_hide(&self, lower: &Piece) -> bool {
        self.level < lower.level && self.learned < lower.learned && !self.is_above(lower)
    }

    /// True if the two cannot lie in one tree, each in its known level or in level 0.
    fn clashes(&self, other: &Piece) -> bool {
        if !self.overlaps(other) {
            return false;
        }
        match (self.level, other.level) {
            (Some(level), Some(deep)) if level.max(deep) > 0 => {
                level == deep || self.may_hide(other) || other.may_hide(self)
            }
            (None, Some(level)) if level > 0 => !self.is_above(other),
            (Some(level), None) if level > 0 => !other.is_above(self),
            _ => !self.is_above(other) && !other.is_above(self),
        }
    }
}

/// Slices that become one.
#[derive(Clone, Debug)]
struct Group {
    extent: Extent,
    min_seq: u64,
    max_seq: u64,
    /// The uppermost and the lowest level of its slices, if all of them are known. It goes to the
    /// uppermost: nothing but what lies between its slices has to be merged with it then.
    band: Option<(usize, usize)>,
    /// The indices of the pieces.
    members: Vec<usize>,
}

impl Group {
    fn of(at: usize, piece: &Piece) -> Group {
        let band = piece.level.map(|level| (level, level));
        let (extent, min_seq, max_seq) = (piece.extent.clone(), piece.min_seq, piece.max_seq);
        Group { extent, min_seq, max_seq, band, members: vec![at] }
    }

    fn level(&self) -> Option<usize> {
        self.band.map(|(top, _)| top)
    }

    fn join(&mut self, other: Group) {
        self.extent = self.extent.borrowed().join(other.extent.borrowed()).owned();
        self.min_seq = self.min_seq.min(other.min_seq);
        self.max_seq = self.max_seq.max(other.max_seq);
        let both = self.band.zip(other.band);
        self.band = both.map(|(one, other)| (one.0.min(other.0), one.1.max(other.1)));
        self.members.extend(other.members);
    }

    fn is_above(&self, lower: &Group) -> bool {
        self.min_seq > lower.max_seq
    }

    /// True if the two cannot lie in one tree, each in its known level or in level 0. No slice of
    /// one clashes with a slice of the other.
    fn clashes(&self, other: &Group) -> bool {
        if !self.extent.overlaps(&other.extent) {
            return false;
        }
        match (self.band, other.band) {
            (Some(one), Some(two)) if one.0.max(two.0) > 0 => {
                let (upper, lower) = if one <= two { (one, two) } else { (two, one) };
                // A slice of the upper one would rise past one of the lower.
                upper.0 == lower.0 || lower.0 < upper.1
            }
            (None, Some((level, _))) if level > 0 => !self.is_above(other),
            (Some((level, _)), None) if level > 0 => !other.is_above(self),
            _ => !self.is_above(other) && !other.is_above(self),
        }
    }
}

/// Places the slices of one family. Slices that lie above no other go to `last_level`.
pub(super) fn place(pieces: &[Piece], last_level: usize) -> Vec<Placed> {
    let mut groups = groups(pieces);
    loop {
        while let Some(pair) = first_clash(&groups) {
            join(&mut groups, pair);
        }
        let levels = levels(&groups, last_level);
        let Some(pair) = first_tie(&groups, &levels) else {
            let placed =
                groups.into_iter().zip(levels).map(|(Group { mut members, .. }, level)| {
                    members.sort_unstable();
                    Placed { members, level }
                });
            return placed.collect();
        };
        join(&mut groups, pair);
    }
}

/// One group for slices that clash with each other, in the order of smallest keys. What two groups
/// have in common after that is their keys and sequence numbers as a whole.
fn groups(pieces: &[Piece]) -> Vec<Group> {
    let mut order: Vec<usize> = (0..pieces.len()).collect();
    order.sort_by(|a, b| pieces[*a].extent.start.cmp(&pieces[*b].extent.start));
    // For each piece one with which it becomes one, and itself for one of each group.
    let mut with: Vec<usize> = (0..pieces.len()).collect();
    let first_of = |with: &[usize], mut at: usize| {
        while with[at] != at {
            at = with[at];
        }
        at
    };
    for (nth, &at) in order.iter().enumerate() {
        let is_near = |other: &&usize| !pieces[at].extent.is_below(&pieces[**other].extent);
        for &other in order[nth + 1..].iter().take_while(is_near) {
            if pieces[at].clashes(&pieces[other]) {
                let (one, two) = (first_of(&with, at), first_of(&with, other));
                with[two] = one;
            }
        }
    }
    let mut groups: BTreeMap<usize, Group> = BTreeMap::new();
    for &at in &order {
        let group = Group::of(at, &pieces[at]);
        match groups.entry(first_of(&with, at)) {
            Entry::Vacant(place) => drop(place.insert(group)),
            Entry::Occupied(mut place) => place.get_mut().join(group),
        }
    }
    let mut groups: Vec<Group> = groups.into_values().collect();
    groups.sort_by(|a, b| a.extent.start.cmp(&b.extent.start));
    groups
}

/// Makes two groups one. In the order of smallest keys, the first stays where it is.
fn join(groups: &mut Vec<Group>, (first, second): (usize, usize)) {
    let group = groups.remove(second);
    groups[first].join(group);
}

/// The level of each group. None clashes with another.
fn levels(groups: &[Group], last_level: usize) -> Vec<usize> {
    let mut oldest_first: Vec<usize> = (0..groups.len()).collect();
    oldest_first.sort_by_key(|at| groups[*at].max_seq);
    let mut levels: Vec<Option<usize>> = groups.iter().map(Group::level).collect();
    for at in oldest_first {
        let group = &groups[at];
        let others = groups.iter().zip(&levels);
        let beneath = others
            .filter(|(other, _)| group.is_above(other) && group.extent.overlaps(&other.extent));
        let beneath = beneath.filter_map(|(_, level)| *level).min();
        let deepest = beneath.map_or(last_level, |level| last_level.min(level.saturating_sub(1)));
        levels[at].get_or_insert(deepest);
    }
    levels.into_iter().flatten().collect()
}

/// Two groups that would be runs of which neither is the newer.
fn first_tie(groups: &[Group], levels: &[usize]) -> Option<(usize, usize)> {
    let mut seen = BTreeMap::new();
    let mut runs = groups.iter().zip(levels).enumerate().filter(|(_, (_, level))| **level == 0);
    runs.find_map(|(at, (group, _))| Some((seen.insert(group.max_seq, at)?, at)))
}

/// Two groups, in the order of their smallest keys, that must become one.
fn first_clash(groups: &[Group]) -> Option<(usize, usize)> {
    for (at, group) in groups.iter().enumerate() {
        let is_near = |other: &&Group| !group.extent.is_below(&other.extent);
        let rest = groups[at + 1..].iter().take_while(is_near);
        for (step, other) in rest.enumerate() {
            if group.clashes(other) {
                return Some((at, at + 1 + step));
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::End;
    use crate::version::{Tree, fixtures};
    use proptest::prelude::*;

    fn piece(keys: &str, seqs: (u64, u64), level: Option<usize>) -> Piece {
        let (smallest, largest) = keys.split_once("..").unwrap();
        let end = End::Included(largest.as_bytes().into());
        let extent = Extent { start: smallest.as_bytes().into(), end };
        Piece { extent, min_seq: seqs.0, max_seq: seqs.1, level, learned: 0 }
    }

    fn placed(pieces: &[Piece]) -> Vec<(Vec<usize>, usize)> {
        place(pieces, 6).into_iter().map(|placed| (placed.members, placed.level)).collect()
    }

    #[test]
    fn what_shares_keys_with_nothing_goes_to_the_last_level() {
        let pieces = [piece("m..z", (1, 9), None), piece("a..f", (2, 8), None)];
        assert_eq!(placed(&pieces), [(vec![1], 6), (vec![0], 6)]);
    }

    #[test]
    fn of_slices_that_follow_each_other_in_time_the_newer_lies_above() {
        let pieces = [piece("a..m", (1, 9), None), piece("f..z", (10, 20), None)];
        assert_eq!(placed(&pieces), [(vec![0], 6), (vec![1], 5)]);
    }

    #[test]
    fn what_cannot_be_told_apart_is_merged_with_all_that_follows_from_it() {
        let pieces = [
            piece("a..f", (1, 9), None),
            piece("e..k", (5, 12), None),
            piece("j..z", (11, 20), None),
            piece("b..c", (30, 40), None),
        ];
        assert_eq!(placed(&pieces), [(vec![0, 1, 2], 6), (vec![3], 5)]);
    }

    #[test]
    fn known_levels_stay_and_a_newer_slice_of_unknown_level_goes_above() {
        let pieces = [
            piece("a..m", (1, 50), Some(1)),
            piece("a..z", (1, 40), Some(2)),
            piece("c..d", (60, 70), None),
        ];
        assert_eq!(placed(&pieces), [(vec![0], 1), (vec![1], 2), (vec![2], 0)]);
    }

    #[test]
    fn an_older_slice_of_unknown_level_is_merged_with_what_it_might_hide() {
        let pieces = [piece("a..m", (10, 50), Some(3)), piece("c..z", (1, 5), None)];
        assert_eq!(placed(&pieces), [(vec![0, 1], 6)]);
    }

    #[test]
    fn slices_of_one_large_commit_lie_beside_each_other_in_one_level() {
        let pieces = [
            piece("a..c", (1, 9), None),
            piece("d..f", (1, 9), None),
            piece("a..b", (10, 19), None),
            piece("e..f", (10, 19), None),
            piece("a..f", (20, 20), None),
        ];
        let expected = [(vec![0], 6), (vec![2], 5), (vec![4], 4), (vec![1], 6), (vec![3], 5)];
        assert_eq!(placed(&pieces), expected);
    }

    #[test]
    fn runs_that_end_at_one_sequence_number_are_merged() {
        let pieces = [
            piece("a..z", (1, 9), Some(1)),
            piece("a..c", (10, 19), None),
            piece("e..f", (11, 19), None),
            piece("h..k", (12, 18), None),
        ];
        assert_eq!(placed(&pieces), [(vec![0], 1), (vec![1, 2], 0), (vec![3], 0)]);
    }

    #[test]
    fn slices_that_share_keys_were_never_in_one_level() {
        let pieces = [piece("a..m", (1, 9), Some(2)), piece("c..z", (10, 20), Some(2))];
        assert_eq!(placed(&pieces), [(vec![0, 1], 2)]);
    }

    #[test]
    fn a_slice_that_may_have_been_moved_down_since_is_merged_with_a_newer_one_that_lies_deeper() {
        let known = |seqs, level, learned| Piece { learned, ..piece("a..m", seqs, Some(level)) };
        let before = known((1, 9), 1, 0);
        // Without a gap between the two edits they lay in one tree so.
        assert_eq!(placed(&[before.clone(), known((5, 20), 2, 0)]), [(vec![0], 1), (vec![1], 2)]);
        assert_eq!(placed(&[before.clone(), known((5, 20), 2, 1)]), [(vec![0, 1], 1)]);
        assert_eq!(placed(&[known((5, 20), 2, 1), before.clone()]), [(vec![0, 1], 1)]);
        // What came later and lies above stays there, and what is older may lie below.
        assert_eq!(placed(&[before, known((5, 20), 0, 1)]), [(vec![0], 1), (vec![1], 0)]);
        let newer = known((30, 40), 1, 0);
        assert_eq!(placed(&[newer, known((5, 20), 2, 1)]), [(vec![0], 1), (vec![1], 2)]);
    }

    /// Slices of half a key range each, and one of them whose level was told later than the others.
    #[test]
    fn a_slice_that_was_moved_past_a_gap_takes_few_others_with_it() {
        let key = |n: usize| format!("{n:04}");
        let mut pieces = Vec::new();
        for level in 1..=6 {
            for nth in 0..50 {
                let (from, to) = (20 * nth + level, 20 * nth + level + 17);
                let seqs = ((nth * level) as u64 % 7, 1000 - level as u64);
                pieces.push(piece(&format!("{}..{}", key(from), key(to)), seqs, Some(level)));
            }
        }
        pieces[50 + 25].learned = 1;
        let placed = place(&pieces, 6);
        let alone = placed.iter().filter(|placed| placed.members.len() == 1);
        assert_eq!(alone.clone().count(), 298);
        assert!(alone.clone().all(|placed| Some(placed.level) == pieces[placed.members[0]].level));
    }

    /// A group that has a slice of the level of another one, and of whose slices one shares keys
    /// with it.
    #[test]
    fn slices_of_one_level_that_share_keys_become_one_whatever_else_they_become_one_with() {
        let pieces = [
            piece("a..d", (1, 9), Some(1)),
            Piece { learned: 1, ..piece("a..m", (2, 10), Some(2)) },
            piece("k..z", (3, 11), Some(2)),
            piece("y..z", (1, 90), Some(3)),
        ];
        assert_eq!(placed(&pieces), [(vec![0, 1, 2], 1), (vec![3], 3)]);
    }

    fn drawn_piece() -> impl Strategy<Value = Piece> {
        let level = prop_oneof![3 => Just(None), 1 => (0usize..4).prop_map(Some)];
        let drawn = ((0u8..20, 0u8..6), (1u64..16, 0u64..3), level, 0u64..3);
        drawn.prop_map(|((first, more), (seq, later), level, learned)| {
            let [first, last] = [first, first + more].map(|at| char::from(b'a' + at));
            Piece { learned, ..piece(&format!("{first}..{last}"), (seq, seq + later), level) }
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(3000))]

        #[test]
        fn whatever_is_placed_is_a_tree_in_which_nothing_hides_what_is_newer(
            pieces in prop::collection::vec(drawn_piece(), 1..24),
            last_level in 1usize..7,
        ) {
            let placed = place(&pieces, last_level);
            let mut members: Vec<usize> =
                placed.iter().flat_map(|placed| placed.members.iter().copied()).collect();
            members.sort_unstable();
            prop_assert!(members.into_iter().eq(0..pieces.len()), "each slice is placed once");
            // Each file has the number of its group.
            let slices = placed.iter().zip(0..).map(|(placed, file)| {
                let of = || placed.members.iter().map(|at| &pieces[*at]);
                let text = |key: &[u8]| String::from_utf8(key.to_vec()).unwrap();
                let smallest = of().map(|piece| text(&piece.extent.start)).min().unwrap();
                let largest = of().map(|piece| text(piece.extent.end.key().unwrap())).max().unwrap();
                let seqs = (
                    of().map(|piece| piece.min_seq).min().unwrap(),
                    of().map(|piece| piece.max_seq).max().unwrap(),
                );
                (placed.level, fixtures::slice(file, &smallest, &largest, seqs))
            });
            let tree = Tree::default().with(&[], slices.collect());
            prop_assert!(tree.is_ok(), "{:?}: {:?}", tree, placed);
            let tree = tree.unwrap();
            let found: Vec<_> = tree.iter().collect();
            // Of two slices that share keys the upper one is newer, or was known to lie above.
            let is_right = |upper: &Piece, lower: &Piece| {
                let was_above = upper.level < lower.level && upper.level.is_some();
                !upper.overlaps(lower)
                    || upper.is_above(lower)
                    || was_above && !upper.may_hide(lower)
            };
            let members = |file: u64| placed[file as usize].members.iter().map(|at| &pieces[*at]);
            for (at, (_, upper)) in found.iter().enumerate() {
                for (_, lower) in &found[at + 1..] {
                    let (upper, lower) = (&upper.meta, &lower.meta);
                    let is_fine = members(upper.file)
                        .all(|upper| members(lower.file).all(|lower| is_right(upper, lower)));
                    prop_assert!(is_fine, "{:?} hides {:?}", upper, lower);
                }
            }
        }
    }
}
