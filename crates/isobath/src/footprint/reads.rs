//! What a transaction has read and a commit has to check: single keys, absent ones included, and
//! the stretches that scans passed.
//!
//! A key is kept once. Its hash finds its stamp; its bytes are needed for a probe.
//!
//! A scan *watches* its whole bounds from the moment it is opened. When it ends, it reports what it
//! passed, and the report replaces the bounds. A scan that was leaked, or that met an error,
//! reports nothing, so its whole bounds stay. The watch is shared with the iterator and written
//! once, so an iterator may be moved to another thread.
//!
//! When there is no more room, keys that are neighbours in the order become intervals, and
//! neighbouring intervals become one. So nothing that was read is ever forgotten; more commits of
//! others conflict.

use super::interval::{Interval, Intervals};
use crate::format::{FamilyId, checksum64};
use crate::limits::MAX_KEY_LEN;
use crate::memory::Allowance;
use crate::mvcc::FirstEnd;
use std::sync::{Arc, OnceLock};

/// The memory that is charged for a key, in addition to its bytes.
const KEY_CHARGE: u64 = 48;
/// The memory that is charged for an open scan, and of that, what is for its record.
const WATCH_CHARGE: u64 = 256;
pub(crate) const RECORD_CHARGE: u64 = 128;
/// Up to this many keys are compared one by one; more are found through a hash table.
const LINEAR_MAX: usize = 8;
/// This many keys become one interval when memory runs out.
const KEYS_JOINED: usize = 16;

/// A key that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReadKey<'a> {
    pub(crate) family: FamilyId,
    /// [`checksum64`] of the key.
    pub(crate) hash: u64,
    pub(crate) key: &'a [u8],
}

#[derive(Clone, Copy, Debug)]
struct KeyAt {
    hash: u64,
    at: usize,
    len: u32,
    family: FamilyId,
}

/// Keys, each once.
#[derive(Clone, Debug, Default)]
pub(crate) struct Keys {
    bytes: Vec<u8>,
    keys: Vec<KeyAt>,
    /// Numbers of keys plus one, by hash; 0 for an empty slot. Empty while there are few keys.
    table: Vec<u32>,
}

impl Keys {
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.keys.len()
    }

    pub(crate) fn charge(&self) -> u64 {
        self.bytes.len() as u64 + self.keys.len() as u64 * KEY_CHARGE
    }

    #[inline]
    fn get(&self, number: usize) -> ReadKey<'_> {
        let KeyAt { hash, at, len, family } = self.keys[number];
        ReadKey { family, hash, key: &self.bytes[at..at + len as usize] }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = ReadKey<'_>> {
        (0..self.keys.len()).map(|number| self.get(number))
    }

    /// Adds a key unless it is there.
    #[inline]
    pub(crate) fn add(&mut self, wanted: ReadKey<'_>) {
        if self.table.is_empty() {
            if (0..self.keys.len()).any(|number| self.get(number) == wanted) {
                return;
            }
        } else {
            let slot = self.slot(wanted);
            if self.table[slot] != 0 {
                return;
            }
            self.table[slot] = self.keys.len() as u32 + 1;
        }
        let ReadKey { family, hash, key } = wanted;
        self.keys.push(KeyAt { hash, at: self.bytes.len(), len: key.len() as u32, family });
        self.bytes.extend_from_slice(key);
        if self.keys.len() > LINEAR_MAX && self.keys.len() * 2 > self.table.len() {
            self.grow();
        }
    }

    /// The slot of a key, or the empty slot where it belongs.
    fn slot(&self, wanted: ReadKey<'_>) -> usize {
        debug_assert!(self.table.len().is_power_of_two(), "a mask finds the slot");
        debug_assert!(self.keys.len() < self.table.len(), "a search in a full table never ends");
        let mask = self.table.len() - 1;
        let mut slot = (wanted.hash ^ u64::from(wanted.family).wrapping_mul(0x9e37_79b9)) as usize;
        loop {
            slot &= mask;
            match self.table[slot] {
                0 => return slot,
                number if self.get(number as usize - 1) == wanted => return slot,
                _ => slot += 1,
            }
        }
    }

    #[cold]
    fn grow(&mut self) {
        let slots = (self.keys.len() * 4).next_power_of_two();
        self.table = vec![0; slots];
        for number in 0..self.keys.len() {
            let slot = self.slot(self.get(number));
            self.table[slot] = number as u32 + 1;
        }
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.keys.clear();
        self.table.clear();
    }
}

/// What a scan passed.
#[derive(Debug)]
pub(crate) enum Passed {
    /// These stretches.
    Intervals(Intervals),
    /// These keys, which it returned; nothing between them matters.
    Keys(Keys),
}

/// A scan that was opened.
#[derive(Debug)]
pub(crate) struct Watch {
    family: FamilyId,
    bounds: Interval,
    /// Locks cover the bounds, so only the ends of values are of interest.
    is_locked: bool,
    passed: OnceLock<(Passed, Allowance)>,
    /// Of the values that it has returned, the one that ends first, if any does. Set when it ends,
    /// also after an error, and before `passed`.
    first_end: OnceLock<Option<FirstEnd>>,
}

impl Watch {
    pub(crate) fn family(&self) -> FamilyId {
        self.family
    }

    pub(crate) fn bounds(&self) -> &Interval {
        &self.bounds
    }

    /// The scan is about to end. Of the values that it has returned, this one ends first, if any
    /// does.
    pub(crate) fn set_end(&self, first_end: Option<FirstEnd>) {
        let is_first = self.first_end.set(first_end).is_ok();
        debug_assert!(is_first, "a scan ends once");
    }

    /// The scan has ended, and passed no more than this, for which it has charged the allowance.
    pub(crate) fn narrow(&self, passed: Passed, allowance: Allowance) {
        let is_first = self.passed.set((passed, allowance)).is_ok();
        debug_assert!(is_first, "a scan ends once");
    }
}

/// All that was read.
#[derive(Debug, Default)]
pub(super) struct Reads {
    keys: Keys,
    /// What ended scans have passed.
    ranges: Vec<(FamilyId, Intervals)>,
    open: Vec<Arc<Watch>>,
    /// Of the values that were read, the one that ends first.
    first_end: Option<(FamilyId, FirstEnd)>,
    /// The number of watches at which those that have ended are looked for.
    sweep_at: usize,
}

impl Passed {
    /// The memory that the record takes.
    pub(crate) fn charge(&self) -> u64 {
        match self {
            Passed::Intervals(passed) => passed.charge(),
            Passed::Keys(keys) => keys.charge(),
        }
    }
}

impl Reads {
    #[inline]
    pub(super) fn charge(&self) -> u64 {
        let ranges: u64 = self.ranges.iter().map(|(_, ranges)| ranges.charge()).sum();
        self.keys.charge() + ranges + self.open.len() as u64 * WATCH_CHARGE
    }

    /// A key that is too long cannot be written, so what was read there never changes.
    #[inline]
    pub(super) fn add_key(&mut self, read: ReadKey<'_>) {
        if read.key.len() > MAX_KEY_LEN {
            return;
        }
        if self.ranges.is_empty() || !self.covers(read.family, read.key) {
            self.keys.add(read);
        }
    }

    fn covers(&self, family: FamilyId, key: &[u8]) -> bool {
        self.ranges.iter().any(|(of, ranges)| *of == family && ranges.covers(key))
    }

    pub(super) fn add_range(&mut self, family: FamilyId, interval: Interval) {
        self.ranges_of(family).add(interval);
    }

    fn ranges_of(&mut self, family: FamilyId) -> &mut Intervals {
        let at = match self.ranges.binary_search_by_key(&family, |(of, _)| *of) {
            Ok(at) => at,
            Err(at) => {
                self.ranges.insert(at, (family, Intervals::default()));
                debug_assert!(
                    self.ranges.is_sorted_by(|(one, _), (next, _)| one < next),
                    "families are found by a binary search"
                );
                at
            }
        };
        &mut self.ranges[at].1
    }

    pub(super) fn watch(
        &mut self,
        family: FamilyId,
        bounds: Interval,
        is_locked: bool,
    ) -> Arc<Watch> {
        if self.open.len() >= self.sweep_at {
            self.sweep();
            self.sweep_at = self.open.len() * 2 + 1;
        }
        let (passed, first_end) = (OnceLock::new(), OnceLock::new());
        let watch = Arc::new(Watch { family, bounds, is_locked, passed, first_end });
        self.open.push(watch.clone());
        watch
    }

    /// Notes that a value was read that ends then.
    #[cold]
    pub(super) fn note_end(&mut self, family: FamilyId, unix_ms: u64, key: &[u8]) {
        if self.first_end.as_ref().is_none_or(|(_, first)| unix_ms < first.unix_ms) {
            self.first_end = Some((family, FirstEnd { unix_ms, key: key.into() }));
        }
    }

    /// Of the values that were read, without those of scans that have not ended, the one that ends
    /// first.
    pub(super) fn known_end(&self) -> Option<&(FamilyId, FirstEnd)> {
        self.first_end.as_ref()
    }

    /// Of the values that were read, the one that ends first. Of a scan that has not ended nothing
    /// is known: it counts as one whose value has ended if any has.
    pub(super) fn first_end(&self) -> Option<(FamilyId, FirstEnd)> {
        let open = self.open.iter().find(|watch| watch.first_end.get().is_none());
        let open = open.map(|watch| {
            let key = watch.bounds.start.key.as_slice().into();
            (watch.family, FirstEnd { unix_ms: 1, key })
        });
        open.or_else(|| self.first_end.clone())
    }

    /// True if there are scans whose reports were not taken in yet.
    #[inline]
    pub(super) fn has_open(&self) -> bool {
        !self.open.is_empty()
    }

    /// If this is false, [`Reads::ranges`] has nothing.
    #[inline]
    pub(super) fn has_ranges(&self) -> bool {
        !self.ranges.is_empty() || self.has_open()
    }

    /// Takes in what ended scans have passed.
    pub(super) fn sweep(&mut self) {
        for watch in std::mem::take(&mut self.open) {
            // A scan that ends on another thread sets its end first, so this is loaded first.
            let passed = watch.passed.get().map(|(passed, _)| passed);
            if let Some(Some(end)) = watch.first_end.get() {
                self.note_end(watch.family, end.unix_ms, &end.key);
            }
            match passed {
                Some(_) if watch.is_locked => {}
                Some(Passed::Keys(keys)) => keys.iter().for_each(|key| self.add_key(key)),
                Some(Passed::Intervals(passed)) => {
                    let ranges = self.ranges_of(watch.family);
                    passed.iter().for_each(|interval| ranges.add(interval));
                }
                None => self.open.push(watch),
            }
        }
    }

    /// Makes do with `charge_max`, if that is possible at all: what was read stays covered.
    #[cold]
    pub(super) fn coarsen(&mut self, charge_max: u64) {
        self.sweep();
        if self.charge() <= charge_max {
            return;
        }
        let keys = std::mem::take(&mut self.keys);
        let mut sorted: Vec<ReadKey<'_>> = keys.iter().collect();
        sorted.sort_unstable_by_key(|read| (read.family, read.key));
        for of_family in sorted.chunk_by(|a, b| a.family == b.family) {
            for joined in of_family.chunks(KEYS_JOINED) {
                let mut interval = Interval::of_key(joined[0].key);
                interval.end = Interval::of_key(joined[joined.len() - 1].key).end;
                self.add_range(joined[0].family, interval);
            }
        }
        let others = self.open.len() as u64 * WATCH_CHARGE;
        let share = charge_max.saturating_sub(others) / self.ranges.len().max(1) as u64;
        self.ranges.iter_mut().for_each(|(_, ranges)| ranges.coarsen(share));
    }

    pub(super) fn keys(&self) -> &Keys {
        &self.keys
    }

    /// What scans have passed, and the bounds of those that have not ended.
    pub(super) fn ranges(&self) -> impl Iterator<Item = (FamilyId, Interval)> {
        let ended = self
            .ranges
            .iter()
            .flat_map(|(family, ranges)| ranges.iter().map(|interval| (*family, interval)));
        let open = self.open.iter().filter(|watch| !watch.is_locked);
        ended.chain(open.map(|watch| (watch.family, watch.bounds.clone())))
    }

    pub(super) fn clear(&mut self) {
        self.keys.clear();
        self.ranges.clear();
        self.open.clear();
        self.first_end = None;
        self.sweep_at = 0;
    }
}

impl<'a> ReadKey<'a> {
    pub(crate) fn new(family: FamilyId, key: &'a [u8]) -> ReadKey<'a> {
        ReadKey { family, hash: checksum64(key), key }
    }
}
