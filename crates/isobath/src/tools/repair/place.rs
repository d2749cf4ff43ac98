//! Decides the levels of slices without a manifest, or with one that knows only some of them.
//!
//! Readers take the first version of a key that they find, searching from level 0 down. So versions
//! in an upper level must be newer than those below. A slice of unknown level goes to level 0 if
//! its sequence numbers allow that. Otherwise it is merged with the slices from which it cannot be
//! separated, and the result goes to level 0. Slices of known levels were in one tree, and keep
//! these levels. A slice that shares keys with no other goes to the last level.

use crate::table::Extent;
use std::collections::BTreeMap;

/// A slice to be placed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) extent: Extent,
    pub(super) min_seq: u64,
    pub(super) max_seq: u64,
    pub(super) level: Option<usize>,
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

    fn join(&mut self, other: Piece) {
        self.extent = self.extent.borrowed().join(other.extent.borrowed()).owned();
        self.min_seq = self.min_seq.min(other.min_seq);
        self.max_seq = self.max_seq.max(other.max_seq);
        self.level = None;
    }

    /// True if `self` cannot be in level 0, or in its known level, beside `other`.
    fn clashes(&self, other: &Piece) -> bool {
        if !self.overlaps(other) {
            return false;
        }
        let is_above = |upper: &Piece, lower: &Piece| upper.min_seq > lower.max_seq;
        match (self.level, other.level) {
            (Some(_), Some(_)) => false,
            (None, Some(level)) if level > 0 => !is_above(self, other),
            (Some(level), None) if level > 0 => !is_above(other, self),
            _ => !is_above(self, other) && !is_above(other, self),
        }
    }
}

/// Places the slices of one family. Slices that share keys with no other go to `last_level`.
pub(super) fn place(pieces: &[Piece], last_level: usize) -> Vec<Placed> {
    let mut groups: Vec<(Piece, Vec<usize>)> =
        pieces.iter().cloned().enumerate().map(|(at, piece)| (piece, vec![at])).collect();
    groups.sort_by(|a, b| a.0.extent.start.cmp(&b.0.extent.start));
    while let Some((first, second)) = first_clash(&groups) {
        let (piece, members) = groups.remove(second);
        groups[first].0.join(piece);
        groups[first].1.extend(members);
    }
    let alone: BTreeMap<usize, bool> = (0..groups.len())
        .map(|at| {
            let others = groups.iter().enumerate().filter(|(other, _)| *other != at);
            (at, others.into_iter().all(|(_, other)| !other.0.overlaps(&groups[at].0)))
        })
        .collect();
    let placed = groups.into_iter().enumerate().map(|(at, (piece, mut members))| {
        members.sort_unstable();
        let level = piece.level.unwrap_or(if alone[&at] { last_level } else { 0 });
        Placed { members, level }
    });
    placed.collect()
}

/// Two groups, in the order of their smallest keys, that must become one. The order stays valid
/// when the second joins the first.
fn first_clash(groups: &[(Piece, Vec<usize>)]) -> Option<(usize, usize)> {
    for (at, (piece, _)) in groups.iter().enumerate() {
        let is_near = |(other, _): &&(Piece, Vec<usize>)| !piece.extent.is_below(&other.extent);
        let rest = groups[at + 1..].iter().take_while(is_near);
        for (step, (other, _)) in rest.enumerate() {
            if piece.clashes(other) {
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

    fn piece(keys: &str, seqs: (u64, u64), level: Option<usize>) -> Piece {
        let (smallest, largest) = keys.split_once("..").unwrap();
        let end = End::Included(largest.as_bytes().into());
        let extent = Extent { start: smallest.as_bytes().into(), end };
        Piece { extent, min_seq: seqs.0, max_seq: seqs.1, level }
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
    fn runs_that_follow_each_other_in_time_are_runs() {
        let pieces = [piece("a..m", (1, 9), None), piece("f..z", (10, 20), None)];
        assert_eq!(placed(&pieces), [(vec![0], 0), (vec![1], 0)]);
    }

    #[test]
    fn what_cannot_be_told_apart_is_merged_with_all_that_follows_from_it() {
        let pieces = [
            piece("a..f", (1, 9), None),
            piece("e..k", (5, 12), None),
            piece("j..z", (11, 20), None),
            piece("b..c", (30, 40), None),
        ];
        assert_eq!(placed(&pieces), [(vec![0, 1, 2], 0), (vec![3], 0)]);
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
}
