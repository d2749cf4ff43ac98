//! A sorted level: slices in ascending order, with no user key in two of them.
//!
//! All versions of a key are in one slice, so a reader visits at most one slice of a level. It
//! finds that slice by a fence: an array of 8-byte heads, contiguous in memory. Each head holds 8
//! bytes of the key at which a slice's extent ends, those after the prefix that all these keys
//! share. A whole key is compared only where heads are equal. The fence of a changed level is
//! built as the level is installed, before readers see it. A replay of many edits builds none:
//! there the first search does.

use super::slice::Slice;
use crate::env::{Plant, planted};
use crate::error::{DecodeError, Decoded};
use crate::table::{End, ExtentRef};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Bound, Deref};
use std::sync::{Arc, OnceLock};

/// The slices of one level below level 0.
#[derive(Clone, Debug, Default)]
pub(crate) struct Level {
    slices: Vec<Arc<Slice>>,
    /// The file of each slice, so that a removal does not visit the slices.
    files: Vec<u64>,
    disk_bytes: u64,
    held_bytes: u64,
    /// The slices that have range deletes, in the same order: most levels have none.
    spanned: Vec<Arc<Slice>>,
    /// How many have values that end.
    with_ends: usize,
    /// How many have values in blob files.
    with_blobs: usize,
    /// How many have streams.
    with_streams: usize,
    /// What they have in each blob file, so that it is not summed up over the slices each time.
    alive: BTreeMap<u64, Alive>,
    fence: OnceLock<Fence>,
}

/// What slices have in one blob file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Alive {
    bytes: u64,
    slices: usize,
}

#[derive(Clone, Debug)]
struct Fence {
    /// The bytes with which all ends begin.
    prefix: Box<[u8]>,
    /// The head of each slice's end. The last slice may have no end, and then no head.
    heads: Vec<u64>,
}

impl Deref for Level {
    type Target = [Arc<Slice>];

    fn deref(&self) -> &[Arc<Slice>] {
        &self.slices
    }
}

impl Level {
    pub(crate) fn disk_bytes(&self) -> u64 {
        self.disk_bytes
    }

    /// The same, with their values in blob files.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.held_bytes
    }

    /// The slices that have range deletes.
    #[inline]
    pub(crate) fn spanned(&self) -> &[Arc<Slice>] {
        &self.spanned
    }

    /// That of them which may hold `key`.
    pub(crate) fn find_spanned(&self, key: &[u8]) -> Option<&Arc<Slice>> {
        self.spanned_from(key).first().filter(|slice| !slice.meta.starts_after(key))
    }

    /// Those of them that do not end before `key`.
    fn spanned_from(&self, key: &[u8]) -> &[Arc<Slice>] {
        &self.spanned[self.spanned.partition_point(|slice| slice.extent().ends_before(key))..]
    }

    /// True if one of them may have a key within the bounds.
    pub(crate) fn has_spans_within(&self, lower: &Bound<Vec<u8>>, upper: &Bound<Vec<u8>>) -> bool {
        let from = match lower {
            Bound::Unbounded => &*self.spanned,
            Bound::Included(key) | Bound::Excluded(key) => self.spanned_from(key),
        };
        // The first may end with a key that is excluded.
        from.iter().take(2).any(|slice| slice.extent().meets(lower, upper))
    }

    /// True if any slice has values that end.
    #[inline]
    pub(crate) fn has_ends(&self) -> bool {
        self.with_ends > 0
    }

    /// True if any slice has values in blob files.
    #[inline]
    pub(crate) fn has_blobs(&self) -> bool {
        self.with_blobs > 0
    }

    /// True if any slice has streams.
    #[inline]
    pub(crate) fn has_streams(&self) -> bool {
        self.with_streams > 0
    }

    /// The blob files in which slices have values, each with the bytes of all these values.
    pub(crate) fn blob_bytes(&self) -> impl Iterator<Item = (u64, u64)> {
        self.alive.iter().map(|(file, alive)| (*file, alive.bytes))
    }

    /// Counts what a slice has in blob files.
    fn add_alive(&mut self, slice: &Slice) {
        for share in &slice.meta.blobs {
            let alive = self.alive.entry(share.file).or_default();
            alive.bytes = alive.bytes.saturating_add(share.bytes);
            alive.slices += 1;
        }
    }

    /// Counts it no more.
    fn subtract_alive(&mut self, slice: &Slice) {
        for share in &slice.meta.blobs {
            let Some(alive) = self.alive.get_mut(&share.file) else { continue };
            alive.bytes = alive.bytes.saturating_sub(share.bytes);
            alive.slices -= 1;
            if alive.slices == 0 {
                self.alive.remove(&share.file);
            }
        }
    }

    /// The file of each slice, in the order of the slices.
    pub(super) fn files(&self) -> &[u64] {
        &self.files
    }

    /// The index of the first slice that does not end before `key`.
    pub(crate) fn lower_bound(&self, key: &[u8]) -> usize {
        let found = self.lower_bound_by_fence(key);
        debug_assert!(
            found == self.slices.partition_point(|slice| slice.extent().ends_before(key))
                || planted(Plant::OverlappingFiles),
            "the fence leads to another slice than the slices themselves"
        );
        found
    }

    /// Builds the fence, so that no search has to.
    pub(super) fn prepare(&self) {
        self.fence();
    }

    fn fence(&self) -> &Fence {
        self.fence.get_or_init(|| Fence::new(&self.slices))
    }

    fn lower_bound_by_fence(&self, key: &[u8]) -> usize {
        if self.slices.is_empty() {
            return 0;
        }
        let fence = self.fence();
        let rest = match fence.prefix.is_empty() {
            true => key,
            false => match key.strip_prefix(&*fence.prefix) {
                Some(rest) => rest,
                None if *key < *fence.prefix => return 0,
                None => return fence.heads.len(),
            },
        };
        let wanted = head(rest);
        let low = fence.heads.partition_point(|&head| head < wanted);
        match fence.heads.get(low) {
            Some(&head) if head == wanted => self.lower_bound_from(low, wanted, key),
            _ => low,
        }
    }

    /// The same, where the head of the slice at `low` is the first that equals the key's.
    #[inline(never)]
    fn lower_bound_from(&self, low: usize, wanted: u64, key: &[u8]) -> usize {
        let heads = &self.fence.get().expect("a head was found in it").heads;
        let equal = heads[low..].partition_point(|&head| head == wanted);
        low + self.slices[low..low + equal].partition_point(|slice| slice.meta.ends_before(key))
    }

    /// The slice that may hold `key`.
    #[inline]
    pub(crate) fn find(&self, key: &[u8]) -> Option<&Arc<Slice>> {
        // Most trees have empty levels above the last one.
        if self.slices.is_empty() {
            return None;
        }
        let slice = self.slices.get(self.lower_bound(key))?;
        (!slice.meta.starts_after(key)).then_some(slice)
    }

    /// The slices that overlap an extent.
    pub(crate) fn overlapping(&self, extent: &ExtentRef<'_>) -> &[Arc<Slice>] {
        let start = self.lower_bound(extent.start);
        let begins_within = |at: &usize| {
            self.slices.get(*at).is_some_and(|slice| !extent.is_below(&slice.extent()))
        };
        let end = match extent.end.key().map(|key| self.lower_bound(key)) {
            Some(at) => at + usize::from(begins_within(&at)),
            None => self.slices.len(),
        };
        let found = &self.slices[start..end.max(start)];
        debug_assert!(
            found.iter().all(|slice| slice.extent().overlaps(extent))
                || planted(Plant::OverlappingFiles),
            "a slice between two that overlap does not"
        );
        found
    }

    /// Removes the slices of these files in one pass, however many they are. What the level has is
    /// taken out of `files`.
    pub(super) fn remove(&mut self, files: &mut BTreeSet<u64>) -> Vec<Arc<Slice>> {
        let mut removed = Vec::with_capacity(files.len());
        let leaves: Vec<bool> = self.files.iter().map(|file| files.remove(file)).collect();
        let mut flags = leaves.iter();
        self.files.retain(|_| flags.next() == Some(&false));
        let mut flags = leaves.into_iter();
        self.slices.retain(|slice| {
            let leaves = flags.next() == Some(true);
            removed.extend(leaves.then(|| slice.clone()));
            !leaves
        });
        self.fence.take();
        for slice in &removed {
            self.disk_bytes = self.disk_bytes.saturating_sub(slice.meta.disk_bytes);
            self.held_bytes = self.held_bytes.saturating_sub(slice.held_bytes);
            self.with_ends -= usize::from(slice.meta.ends.is_some());
            self.with_blobs -= usize::from(!slice.blobs.is_empty());
            self.with_streams -= usize::from(!slice.streams.is_empty());
            self.subtract_alive(slice);
        }
        debug_assert_eq!(self.files.len(), self.slices.len(), "files and slices have one order");
        let with_spans = removed.iter().filter(|slice| slice.meta.spans.is_some());
        let gone: BTreeSet<u64> = with_spans.map(|slice| slice.meta.file).collect();
        if !gone.is_empty() {
            self.spanned.retain(|slice| !gone.contains(&slice.meta.file));
        }
        removed
    }

    /// Inserts a slice at its place. An error leaves the level as it was.
    pub(super) fn insert(&mut self, slice: Arc<Slice>) -> Decoded<()> {
        let at = self.slices.partition_point(|other| other.extent().is_below(&slice.extent()));
        if let Some(next) = self.slices.get(at)
            && next.extent().overlaps(&slice.extent())
            && !planted(Plant::OverlappingFiles)
        {
            return Err(DecodeError::damaged(format!(
                "files {} and {} of family {} hold the same keys in one level",
                next.meta.file, slice.meta.file, slice.meta.family
            )));
        }
        self.disk_bytes = self.disk_bytes.saturating_add(slice.meta.disk_bytes);
        self.held_bytes = self.held_bytes.saturating_add(slice.held_bytes);
        if slice.meta.spans.is_some() {
            let is_below = |other: &Arc<Slice>| other.extent().is_below(&slice.extent());
            self.spanned.insert(self.spanned.partition_point(is_below), slice.clone());
        }
        self.with_ends += usize::from(slice.meta.ends.is_some());
        self.with_blobs += usize::from(!slice.blobs.is_empty());
        self.with_streams += usize::from(!slice.streams.is_empty());
        self.add_alive(&slice);
        self.files.insert(at, slice.meta.file);
        self.slices.insert(at, slice);
        self.fence.take();
        Ok(())
    }

    /// The invariant of every level, however it was made. Not checked in releases, because it
    /// visits all slices.
    #[cfg(any(test, debug_assertions, feature = "paranoid", feature = "bench-internals"))]
    pub(super) fn is_ascending_and_disjoint(&self) -> bool {
        self.slices.windows(2).all(|pair| pair[0].extent().is_below(&pair[1].extent()))
            && self.slices.iter().map(|slice| slice.meta.file).eq(self.files.iter().copied())
            && self.slices.iter().map(|slice| slice.meta.disk_bytes).sum::<u64>() == self.disk_bytes
            && self.slices.iter().map(|slice| slice.held_bytes).sum::<u64>() == self.held_bytes
            && self
                .slices
                .iter()
                .filter(|slice| slice.meta.spans.is_some())
                .map(|slice| slice.meta.file)
                .eq(self.spanned.iter().map(|slice| slice.meta.file))
            && self.slices.iter().filter(|slice| slice.meta.ends.is_some()).count()
                == self.with_ends
            && self.slices.iter().filter(|slice| !slice.blobs.is_empty()).count() == self.with_blobs
            && self.slices.iter().filter(|slice| !slice.streams.is_empty()).count()
                == self.with_streams
            && self.is_alive_right()
    }

    #[cfg(any(test, debug_assertions, feature = "paranoid", feature = "bench-internals"))]
    fn is_alive_right(&self) -> bool {
        let mut all = Level::default();
        self.slices.iter().for_each(|slice| all.add_alive(slice));
        all.alive == self.alive
    }
}

#[cfg(test)]
thread_local! {
    /// How many fences this thread has built.
    pub(super) static FENCES: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

impl Fence {
    fn new(slices: &[Arc<Slice>]) -> Fence {
        #[cfg(test)]
        FENCES.set(FENCES.get() + 1);
        let ends: Vec<&[u8]> = slices.iter().filter_map(|slice| end_key(slice)).collect();
        let (first, last) = (ends.first(), ends.last());
        let both = first.into_iter().zip(last).flat_map(|(first, last)| first.iter().zip(*last));
        let prefix_len = both.take_while(|(a, b)| a == b).count();
        debug_assert!(
            ends.iter().all(|end| first.is_none_or(|first| end.starts_with(&first[..prefix_len])))
                || planted(Plant::OverlappingFiles),
            "what the first end and the last share, the ends between share too"
        );
        let prefix = first.map_or(&[][..], |first| &first[..prefix_len]).into();
        Fence { prefix, heads: ends.iter().map(|end| head(&end[prefix_len..])).collect() }
    }
}

/// The key at which a slice ends; `None` if it has no end.
#[inline]
fn end_key(slice: &Slice) -> Option<&[u8]> {
    if slice.meta.spans.is_none() {
        return Some(&slice.meta.largest);
    }
    match slice.extent().end {
        End::Included(key) | End::Excluded(key) => Some(key),
        End::Unbounded => None,
    }
}

/// The first 8 bytes as a big-endian integer, padded with zeros. It orders as the bytes do, but can
/// be equal for different bytes.
#[inline]
fn head(bytes: &[u8]) -> u64 {
    if let Some(word) = bytes.first_chunk() {
        return u64::from_be_bytes(*word);
    }
    let mut word = [0; 8];
    let len = bytes.len().min(8);
    word[..len].copy_from_slice(&bytes[..len]);
    u64::from_be_bytes(word)
}

#[cfg(test)]
mod tests {
    use super::super::files::{LiveFile, ObsoleteFiles};
    use super::super::fixtures::{meta, slice};
    use super::*;
    use crate::table::{Extent, SpanMeta};
    use proptest::prelude::*;

    fn level(bounds: &[(&str, &str)]) -> Level {
        let mut level = Level::default();
        for (at, (smallest, largest)) in bounds.iter().enumerate() {
            level.insert(slice(at as u64 + 1, smallest, largest, (1, 2))).unwrap();
        }
        level
    }

    #[test]
    fn slices_stand_in_key_order_whatever_order_they_came_in() {
        let level = level(&[("m", "p"), ("a", "c"), ("x", "z"), ("d", "l")]);
        let smallest: Vec<_> = level.iter().map(|slice| &*slice.meta.smallest).collect();
        assert_eq!(smallest, [b"a", b"d", b"m", b"x"]);
        assert_eq!(level.disk_bytes(), 400);
        assert!(level.is_ascending_and_disjoint());
    }

    #[test]
    fn a_slice_that_shares_even_one_key_is_refused() {
        for (smallest, largest) in
            [("c", "c"), ("a", "a"), ("b", "b"), ("a", "z"), ("c", "e"), ("0", "a")]
        {
            let mut level = level(&[("a", "c"), ("f", "h")]);
            assert!(level.insert(slice(9, smallest, largest, (1, 2))).unwrap_err().is_damage());
            assert_eq!(level.len(), 2);
            assert!(level.is_ascending_and_disjoint());
        }
    }

    #[test]
    fn a_level_is_unsound_if_slices_meet_or_if_what_it_counts_is_wrong() {
        let changed = |change: fn(&mut Level)| {
            let mut level = level(&[("a", "c"), ("f", "h")]);
            change(&mut level);
            level.is_ascending_and_disjoint()
        };
        assert!(changed(|_| {}));
        assert!(!changed(|level| level.slices[1] = slice(2, "c", "h", (1, 2))));
        assert!(!changed(|level| level.files[1] = 3));
        assert!(!changed(|level| level.disk_bytes += 1));
        assert!(!changed(|level| level.held_bytes += 1));
        assert!(!changed(|level| level.spanned.push(level.slices[1].clone())));
        assert!(!changed(|level| level.with_ends += 1));
        assert!(!changed(|level| level.with_blobs += 1));
        assert!(!changed(|level| level.with_streams += 1));
        assert!(!changed(|level| _ = level.alive.insert(7, Alive::default())));
    }

    #[test]
    fn a_removed_slice_is_no_longer_found() {
        let mut level = level(&[("a", "c"), ("f", "h"), ("k", "m")]);
        assert_eq!(level.find(b"g").unwrap().meta.file, 2);
        let mut files = BTreeSet::from([2, 7]);
        let removed = level.remove(&mut files);
        assert!(removed.iter().map(|slice| slice.meta.file).eq([2]) && files.iter().eq([&7]));
        assert!(level.remove(&mut BTreeSet::from([2])).is_empty());
        assert!(level.find(b"g").is_none());
        assert_eq!(level.find(b"k").unwrap().meta.file, 3);
        assert!(level.is_ascending_and_disjoint());
    }

    #[test]
    fn an_empty_level_holds_nothing() {
        let level = Level::default();
        assert!(level.find(b"a").is_none());
        assert!(level.overlapping(&Extent::default()).is_empty());
    }

    proptest! {
        #[test]
        fn searches_agree_with_looking_at_every_slice(
            mut keys in proptest::collection::btree_set("(user/)?[ab\0]{0,12}", 2..40),
            probes in proptest::collection::vec("(user/)?[ab\0]{0,12}", 20),
        ) {
            if keys.len() % 2 == 1 {
                keys.pop_last();
            }
            let keys: Vec<_> = keys.into_iter().collect();
            let bounds: Vec<_> = keys.chunks(2).map(|pair| (&*pair[0], &*pair[1])).collect();
            let level = level(&bounds);
            for probe in probes.iter().chain(&keys) {
                let key = probe.as_bytes();
                let expected = level.iter().position(|slice| &*slice.meta.largest >= key);
                prop_assert_eq!(level.lower_bound(key), expected.unwrap_or(level.len()));
                let holder = level.iter().find(|slice| slice.extent().contains(key));
                prop_assert_eq!(level.find(key).map(|s| s.meta.file), holder.map(|s| s.meta.file));
                for other in &probes {
                    let (low, high) = (probe.min(other).as_bytes(), probe.max(other).as_bytes());
                    for end in [End::Included(high), End::Excluded(high), End::Unbounded] {
                        let extent = Extent { start: low, end };
                        let found = level.overlapping(&extent).iter().map(|s| s.meta.file);
                        let expected = level.iter().filter(|s| s.extent().overlaps(&extent));
                        // No key lies between an end that is excluded and a start at the same key.
                        let is_some = low < high || end != End::Excluded(high);
                        prop_assert!(!is_some || found.eq(expected.map(|s| s.meta.file)));
                    }
                }
            }
        }

        #[test]
        fn slices_with_range_deletes_are_found_as_if_all_were_looked_at(
            keys in proptest::collection::btree_set("[ab]{1,5}", 4..40),
            drawn in proptest::collection::vec(0..4u8, 20),
            probes in proptest::collection::vec("[ab]{0,6}", 12),
        ) {
            let keys: Vec<_> = keys.into_iter().collect();
            let mut level = Level::default();
            for (nth, pair) in keys.chunks_exact(2).enumerate() {
                let file = nth as u64 + 1;
                let mut meta = meta(0, file, &pair[0], &pair[1], (1, 2));
                // Its range deletes end before its last key, before the next slice, or are none.
                let next = keys.get(2 * nth + 2);
                let end = [Some(&pair[1]), next, None, None][usize::from(drawn[nth])];
                let bytes = |key: &String| Box::<[u8]>::from(key.as_bytes());
                meta.spans = end.map(|end| {
                    let (start, end) = (bytes(&pair[0]), Some(bytes(end)));
                    Box::new(SpanMeta { fragments: 1, start, end })
                });
                let file = LiveFile::new(file, &ObsoleteFiles::new());
                level.insert(Slice::new(meta, file, Box::default())).unwrap();
            }
            let gone = drawn.iter().map(|nth| u64::from(*nth) * 3).collect();
            level.remove(&mut BTreeSet::clone(&gone));
            prop_assert!(level.is_ascending_and_disjoint());
            let spanned = || level.iter().filter(|slice| slice.meta.spans.is_some());
            let file = |slice: &Arc<Slice>| slice.meta.file;
            for probe in probes.iter().chain(&keys) {
                let holder = spanned().find(|slice| slice.extent().contains(probe.as_bytes()));
                let found = level.find_spanned(probe.as_bytes());
                prop_assert_eq!(found.map(file), holder.map(file));
                for other in &probes {
                    let (low, high) = (probe.min(other).as_bytes(), probe.max(other).as_bytes());
                    let bounds = |key: &[u8]| {
                        let key = key.to_vec();
                        [Bound::Included(key.clone()), Bound::Excluded(key), Bound::Unbounded]
                    };
                    for (lower, upper) in bounds(low).into_iter().zip(bounds(high)) {
                        let met = spanned().any(|slice| slice.extent().meets(&lower, &upper));
                        prop_assert_eq!(level.has_spans_within(&lower, &upper), met);
                    }
                }
            }
        }
    }
}
