//! A sorted level: slices in ascending order, no user key in two of them.
//!
//! All versions of a key sit in one slice, so a reader visits at most one slice of a level. It finds that
//! slice in a fence of 8-byte heads (of the slices' largest keys, behind their common prefix) that lies
//! contiguous in memory; a whole key is compared only where heads are equal. The fence is built by the first
//! search after a change, so that a replay of many edits does not build it for each.

use super::slice::Slice;
use crate::components::{Plant, planted};
use crate::error::{Error, Result};
use std::ops::{Deref, Range};
use std::sync::{Arc, OnceLock};

/// The slices of one level below level 0.
#[derive(Clone, Debug, Default)]
pub(crate) struct Level {
    slices: Vec<Arc<Slice>>,
    /// The file of each slice, so that a removal need not visit the slices.
    files: Vec<u64>,
    disk_bytes: u64,
    fence: OnceLock<Fence>,
}

#[derive(Clone, Debug)]
struct Fence {
    /// Bytes that all largest keys begin with.
    prefix_len: usize,
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

    /// The file of each slice, in the slices' order.
    pub(super) fn files(&self) -> &[u64] {
        &self.files
    }

    /// The index of the first slice whose largest key is at or above `key`.
    pub(crate) fn lower_bound(&self, key: &[u8]) -> usize {
        let Some(first) = self.slices.first() else { return 0 };
        let fence = self.fence.get_or_init(|| Fence::new(&self.slices));
        let prefix = &first.meta.largest[..fence.prefix_len];
        let key_prefix = &key[..key.len().min(fence.prefix_len)];
        match key_prefix.cmp(prefix) {
            std::cmp::Ordering::Less => return 0,
            std::cmp::Ordering::Greater => return self.slices.len(),
            std::cmp::Ordering::Equal => {}
        }
        let wanted = head(&key[fence.prefix_len..]);
        let low = fence.heads.partition_point(|&head| head < wanted);
        let equal = fence.heads[low..].iter().take_while(|&&head| head == wanted).count();
        low + self.slices[low..low + equal].partition_point(|slice| &*slice.meta.largest < key)
    }

    /// The slice that holds `key`, if one can.
    pub(crate) fn find(&self, key: &[u8]) -> Option<&Arc<Slice>> {
        let slice = self.slices.get(self.lower_bound(key))?;
        (&*slice.meta.smallest <= key).then_some(slice)
    }

    /// The indexes of the slices that may hold a key in `smallest..=largest`.
    pub(crate) fn overlapping_range(&self, smallest: &[u8], largest: &[u8]) -> Range<usize> {
        let start = self.lower_bound(smallest);
        let end = match self.lower_bound(largest) {
            at if at < self.slices.len() && &*self.slices[at].meta.smallest <= largest => at + 1,
            at => at,
        };
        start..end.max(start)
    }

    /// The slices that may hold a key in `smallest..=largest`.
    pub(crate) fn overlapping(&self, smallest: &[u8], largest: &[u8]) -> &[Arc<Slice>] {
        &self.slices[self.overlapping_range(smallest, largest)]
    }

    pub(super) fn remove(&mut self, file: u64) -> Option<Arc<Slice>> {
        let at = self.files.iter().position(|&number| number == file)?;
        self.files.remove(at);
        self.fence.take();
        let slice = self.slices.remove(at);
        self.disk_bytes = self.disk_bytes.saturating_sub(slice.meta.disk_bytes);
        Some(slice)
    }

    /// Puts a slice in its place. An error leaves the level as it was.
    pub(super) fn insert(&mut self, slice: Arc<Slice>) -> Result<()> {
        let at = self.slices.partition_point(|other| other.meta.largest < slice.meta.smallest);
        if let Some(next) = self.slices.get(at)
            && next.overlaps(&slice.meta.smallest, &slice.meta.largest)
            && !planted(Plant::OverlappingFiles)
        {
            return Err(Error::malformed(format!(
                "files {} and {} of family {} hold the same keys in one level",
                next.meta.file, slice.meta.file, slice.meta.family
            )));
        }
        self.disk_bytes = self.disk_bytes.saturating_add(slice.meta.disk_bytes);
        self.files.insert(at, slice.meta.file);
        self.slices.insert(at, slice);
        self.fence.take();
        Ok(())
    }

    /// What every level keeps to, whatever made it. For `paranoid` builds and tests: it visits all slices.
    #[cfg(test)]
    pub(super) fn is_ascending_and_disjoint(&self) -> bool {
        self.slices.windows(2).all(|pair| pair[0].meta.largest < pair[1].meta.smallest)
            && self.slices.iter().map(|slice| slice.meta.file).eq(self.files.iter().copied())
            && self.slices.iter().map(|slice| slice.meta.disk_bytes).sum::<u64>() == self.disk_bytes
    }
}

impl Fence {
    fn new(slices: &[Arc<Slice>]) -> Fence {
        let (first, last) = (&slices[0].meta.largest, &slices[slices.len() - 1].meta.largest);
        let prefix_len = first.iter().zip(last.iter()).take_while(|(a, b)| a == b).count();
        let heads = slices.iter().map(|slice| head(&slice.meta.largest[prefix_len..])).collect();
        Fence { prefix_len, heads }
    }
}

/// The first 8 bytes as a big-endian integer, zeros where there are fewer: it orders as the bytes do,
/// except that it may be equal where they are not.
fn head(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    let len = bytes.len().min(8);
    word[..len].copy_from_slice(&bytes[..len]);
    u64::from_be_bytes(word)
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::slice;
    use super::*;
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
            assert!(level.insert(slice(9, smallest, largest, (1, 2))).unwrap_err().is_corruption());
            assert_eq!(level.len(), 2);
            assert!(level.is_ascending_and_disjoint());
        }
    }

    #[test]
    fn a_removed_slice_is_no_longer_found() {
        let mut level = level(&[("a", "c"), ("f", "h"), ("k", "m")]);
        assert_eq!(level.find(b"g").unwrap().meta.file, 2);
        assert_eq!(level.remove(2).unwrap().meta.file, 2);
        assert!(level.remove(2).is_none());
        assert!(level.find(b"g").is_none());
        assert_eq!(level.find(b"k").unwrap().meta.file, 3);
        assert!(level.is_ascending_and_disjoint());
    }

    #[test]
    fn an_empty_level_holds_nothing() {
        let level = Level::default();
        assert!(level.find(b"a").is_none());
        assert!(level.overlapping(b"a", b"z").is_empty());
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
                let holder = level.iter().find(|slice| slice.overlaps(key, key));
                prop_assert_eq!(level.find(key).map(|s| s.meta.file), holder.map(|s| s.meta.file));
                for other in &probes {
                    let (low, high) = (probe.min(other).as_bytes(), probe.max(other).as_bytes());
                    let found = level.overlapping(low, high).iter().map(|s| s.meta.file);
                    let expected = level.iter().filter(|s| s.overlaps(low, high)).map(|s| s.meta.file);
                    prop_assert!(found.eq(expected));
                }
            }
        }
    }
}
