//! An index of a write set: operations sorted by (family, key), each key once. A write set has one
//! for the operations on keys, and one for its range deletes, whose key is where they begin.
//!
//! It has two levels: a list of leaves, and in each leaf at most [`LEAF_MAX`] entries. An entry
//! says where key and value lie in the chunks (`writes.rs`), and holds the first eight bytes of the
//! key, so that most comparisons read no chunk. Every leaf has an entry, entries ascend, and the
//! top repeats family and head of each leaf's first entry.
//!
//! A leaf is shared by all who hold a clone of the index, and copied when it is written while it
//! is shared. So a clone stays as it was, and costs one reference count a leaf.

use super::writes::Chunks;
use crate::cursor::key_head;
use crate::format::{FamilyId, OpKind};
use std::cmp::Ordering;
use std::ops::Range;
use std::sync::Arc;

/// The most entries of a leaf.
pub(super) const LEAF_MAX: usize = 256;

/// Where a piece of a key or of a value lies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) chunk: u32,
    pub(super) at: u32,
    pub(super) len: u32,
}

/// The newest operation of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) head: u64,
    pub(super) family: FamilyId,
    pub(super) key: Place,
    /// Empty if the kind has no value. Where a range delete ends; empty if it has no end.
    pub(super) value: Place,
    pub(super) kind: OpKind,
}

#[derive(Clone, Debug)]
struct Leaf {
    /// Family and head of the first entry.
    first: (FamilyId, u64),
    entries: Arc<Vec<Entry>>,
}

/// Where an entry stands, or where it would. A spot is valid until the next change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Spot {
    pub(super) leaf: usize,
    pub(super) slot: usize,
}

/// The sorted entries.
#[derive(Clone, Debug, Default)]
pub(super) struct Index {
    leaves: Vec<Leaf>,
    len: usize,
    /// The memory of a leaf that was emptied.
    spare: Option<Arc<Vec<Entry>>>,
}

impl Index {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub(super) fn get(&self, spot: Spot) -> Option<&Entry> {
        self.leaves.get(spot.leaf)?.entries.get(spot.slot)
    }

    /// The spot of a key if it has an entry, otherwise the spot at which it belongs.
    #[inline]
    pub(super) fn find(&self, chunks: &Chunks, family: FamilyId, key: &[u8]) -> Result<Spot, Spot> {
        let wanted = (family, key_head(key));
        let order = |entry: &Entry| {
            (entry.family, entry.head).cmp(&wanted).then_with(|| chunks.bytes(entry.key).cmp(key))
        };
        let above = self.leaves.partition_point(|leaf| match leaf.first.cmp(&wanted) {
            Ordering::Less => true,
            Ordering::Greater => false,
            Ordering::Equal => order(&leaf.entries[0]) != Ordering::Greater,
        });
        let leaf = above.saturating_sub(1);
        let Some(entries) = self.leaves.get(leaf).map(|leaf| &leaf.entries) else {
            return Err(Spot { leaf: 0, slot: 0 });
        };
        match entries.binary_search_by(order) {
            Ok(slot) => Ok(Spot { leaf, slot }),
            Err(slot) => Err(Spot { leaf, slot }),
        }
    }

    /// The entry that may be changed without moving it: its key stays.
    pub(super) fn entry_mut(&mut self, spot: Spot) -> &mut Entry {
        &mut Arc::make_mut(&mut self.leaves[spot.leaf].entries)[spot.slot]
    }

    /// Inserts an entry at the spot where [`Index::find`] missed it.
    pub(super) fn insert(&mut self, mut spot: Spot, entry: Entry) {
        self.len += 1;
        if self.leaves.is_empty() {
            let mut entries = self.spare.take().unwrap_or_default();
            Arc::make_mut(&mut entries).push(entry);
            return self.leaves.push(Leaf { first: (entry.family, entry.head), entries });
        }
        if self.leaves[spot.leaf].entries.len() == LEAF_MAX {
            spot = self.make_room(spot);
        }
        let leaf = &mut self.leaves[spot.leaf];
        Arc::make_mut(&mut leaf.entries).insert(spot.slot, entry);
        leaf.first = (leaf.entries[0].family, leaf.entries[0].head);
        debug_assert!(leaf.entries.len() <= LEAF_MAX, "a leaf has more entries than it may");
        debug_assert!(
            leaf.entries.is_sorted_by_key(|entry| (entry.family, entry.head)),
            "an entry is not where it is searched for"
        );
    }

    /// Splits a full leaf in the middle, or behind its end if the entry goes last: ascending writes
    /// leave full leaves behind. Returns the spot's new place.
    fn make_room(&mut self, spot: Spot) -> Spot {
        debug_assert!(spot.slot <= LEAF_MAX, "an entry belongs behind its leaf");
        let full = &mut self.leaves[spot.leaf].entries;
        let is_last = spot.slot == LEAF_MAX;
        let at = if is_last { LEAF_MAX } else { LEAF_MAX / 2 };
        let mut upper = Vec::with_capacity(if is_last { 16 } else { LEAF_MAX });
        upper.extend_from_slice(&full[at..]);
        if !is_last {
            Arc::make_mut(full).truncate(at);
        }
        let first = upper.first().map_or((0, 0), |entry| (entry.family, entry.head));
        self.leaves.insert(spot.leaf + 1, Leaf { first, entries: Arc::new(upper) });
        match spot.slot < at {
            true => spot,
            false => Spot { leaf: spot.leaf + 1, slot: spot.slot - at },
        }
    }

    /// Removes the entry at a spot.
    pub(super) fn remove(&mut self, spot: Spot) {
        debug_assert!(self.get(spot).is_some(), "an entry is removed that is not there");
        debug_assert!(self.get(spot).is_some(), "only what is there can be removed");
        self.len -= 1;
        let leaf = &mut self.leaves[spot.leaf];
        let entries = Arc::make_mut(&mut leaf.entries);
        entries.remove(spot.slot);
        match entries.first() {
            Some(entry) => leaf.first = (entry.family, entry.head),
            None => drop(self.leaves.remove(spot.leaf)),
        }
    }

    /// The number of entries from one spot on and before another.
    pub(super) fn count_between(&self, from: Spot, to: Spot) -> usize {
        (from.leaf..=to.leaf).map(|leaf| self.slots_between(leaf, from, to).len()).sum()
    }

    /// The slots of a leaf that lie between two spots.
    fn slots_between(&self, leaf: usize, from: Spot, to: Spot) -> Range<usize> {
        let len = self.leaves.get(leaf).map_or(0, |leaf| leaf.entries.len());
        let start = if leaf == from.leaf { from.slot } else { 0 };
        let end = if leaf == to.leaf { to.slot } else { len };
        debug_assert!(start <= len && end <= len, "a spot lies behind the end of its leaf");
        start..end.max(start)
    }

    /// Removes the entries from one spot on and before another, and passes each to the caller. Each
    /// leaf costs one move of its remaining entries, however many of its entries are removed.
    pub(super) fn remove_between(&mut self, from: Spot, to: Spot, mut tell: impl FnMut(Entry)) {
        let mut emptied = to.leaf + 1..to.leaf + 1;
        for leaf in (from.leaf..=to.leaf).rev() {
            let slots = self.slots_between(leaf, from, to);
            if slots.is_empty() {
                continue;
            }
            self.len -= slots.len();
            let Leaf { first, entries } = &mut self.leaves[leaf];
            entries[slots.clone()].iter().copied().for_each(&mut tell);
            if slots.len() == entries.len() {
                emptied = leaf..if emptied.is_empty() { leaf + 1 } else { emptied.end };
                continue;
            }
            let entries = Arc::make_mut(entries);
            entries.drain(slots);
            *first = (entries[0].family, entries[0].head);
        }
        if !emptied.is_empty() {
            self.leaves.drain(emptied);
        }
        debug_assert!(
            self.leaves.iter().all(|leaf| !leaf.entries.is_empty()),
            "a leaf was emptied and kept"
        );
    }

    /// The first entry from a spot on, which may lie behind the end of its leaf.
    #[inline]
    pub(super) fn at_or_after(&self, spot: Spot) -> Option<Spot> {
        let leaf = self.leaves.get(spot.leaf)?;
        if spot.slot < leaf.entries.len() {
            return Some(spot);
        }
        (spot.leaf + 1 < self.leaves.len()).then_some(Spot { leaf: spot.leaf + 1, slot: 0 })
    }

    /// The last entry before a spot.
    #[inline]
    pub(super) fn before(&self, spot: Spot) -> Option<Spot> {
        if spot.slot > 0 {
            return Some(Spot { slot: spot.slot - 1, ..spot });
        }
        let leaf = spot.leaf.checked_sub(1)?;
        debug_assert!(!self.leaves[leaf].entries.is_empty(), "an empty leaf was kept");
        Some(Spot { leaf, slot: self.leaves[leaf].entries.len() - 1 })
    }

    /// The spot behind the last entry.
    pub(super) fn end(&self) -> Spot {
        match self.leaves.last() {
            Some(leaf) => Spot { leaf: self.leaves.len() - 1, slot: leaf.entries.len() },
            None => Spot { leaf: 0, slot: 0 },
        }
    }

    pub(super) fn iter(&self) -> Entries<'_> {
        let mut entries = Entries { of_leaf: [].iter(), leaves: self.leaves.iter() };
        entries.refill();
        entries
    }

    /// Empties the index, and keeps the memory of a leaf that is not shared.
    pub(super) fn clear(&mut self) {
        self.len = 0;
        self.leaves.truncate(1);
        if let Some(mut leaf) = self.leaves.pop()
            && let Some(entries) = Arc::get_mut(&mut leaf.entries)
        {
            entries.clear();
            self.spare = Some(leaf.entries);
        }
    }
}

/// Walks over the entries. A transaction walks a few times over a few of them, so this is leaner
/// than adapters are.
#[derive(Clone, Debug)]
pub(super) struct Entries<'a> {
    /// Not empty, unless all are passed.
    of_leaf: std::slice::Iter<'a, Entry>,
    leaves: std::slice::Iter<'a, Leaf>,
}

impl<'a> Entries<'a> {
    /// The next entry.
    #[inline]
    pub(super) fn peek(&self) -> Option<&'a Entry> {
        self.of_leaf.as_slice().first()
    }

    fn refill(&mut self) {
        while self.of_leaf.as_slice().is_empty()
            && let Some(leaf) = self.leaves.next()
        {
            self.of_leaf = leaf.entries.iter();
        }
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = &'a Entry;

    #[inline]
    fn next(&mut self) -> Option<&'a Entry> {
        let next = self.of_leaf.next();
        if self.of_leaf.as_slice().is_empty() {
            self.refill();
        }
        next
    }
}

#[cfg(test)]
impl Index {
    /// What always holds.
    pub(super) fn check(&self, chunks: &Chunks) {
        assert_eq!(self.len, self.leaves.iter().map(|leaf| leaf.entries.len()).sum::<usize>());
        for leaf in &self.leaves {
            assert!((1..=LEAF_MAX).contains(&leaf.entries.len()));
            assert_eq!(leaf.first, (leaf.entries[0].family, leaf.entries[0].head));
        }
        let keys = || self.iter().map(|entry| (entry.family, chunks.bytes(entry.key)));
        assert!(keys().is_sorted_by(|a, b| a < b));
        assert!(self.iter().all(|entry| entry.head == key_head(chunks.bytes(entry.key))));
    }
}
