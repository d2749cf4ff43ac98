//! The table of words: a key's slot is a hash of its family and itself, so different keys may share
//! one.
//!
//! The table is made when the gate opens for the first time: a database without transactions pays
//! no memory for it. Words of families stand beside it and are read on the same scale.

use super::word::{Full, PENDING_MAX, Scale, Seen, Word};
use crate::env::{Plant, planted};
use crate::format::{FamilyId, Lsn};
use std::sync::OnceLock;

/// The place of a key in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Slot(u32);

impl Slot {
    /// The slot of this number.
    pub(crate) fn at(index: usize) -> Slot {
        Slot(index as u32)
    }

    /// The number of the slot. Keys of one slot have the same.
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// The words of all slots.
pub(crate) struct Stamps {
    slots: usize,
    scale: Scale,
    words: OnceLock<Box<[Word]>>,
}

impl Stamps {
    /// A table of `slots` words, a power of two, for a term whose first LSN is `start`.
    pub(crate) fn new(slots: usize, pending_max: u32, start: Lsn) -> Stamps {
        assert!(slots.is_power_of_two() && u32::try_from(slots).is_ok());
        // One unit below the first commit, so that a fresh word lies below every read point.
        let scale = Scale { origin: start - 8, pending_max: pending_max.min(PENDING_MAX) };
        Stamps { slots, scale, words: OnceLock::new() }
    }

    /// The slot of a key, by the hash of the key alone.
    #[inline]
    pub(crate) fn slot(&self, family: FamilyId, key_hash: u64) -> Slot {
        // The multiplier is odd, so that families whose ids differ spread one key over all slots.
        let mixed = key_hash ^ u64::from(family).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Slot((mixed ^ mixed >> 32) as u32 & (self.slots - 1) as u32)
    }

    #[inline]
    fn word(&self, slot: Slot) -> &Word {
        let make = || (0..self.slots).map(|_| Word::default()).collect();
        &self.words.get_or_init(make)[slot.index()]
    }

    /// What the slot says.
    #[inline]
    pub(crate) fn load(&self, slot: Slot) -> Seen {
        self.load_word(self.word(slot))
    }

    /// Announces a commit on the slot, and returns what the slot said before.
    pub(crate) fn announce(&self, slot: Slot) -> Result<Seen, Full> {
        self.announce_word(self.word(slot))
    }

    /// Withdraws the announcement of a commit that will not write.
    pub(crate) fn withdraw(&self, slot: Slot) {
        self.word(slot).withdraw();
    }

    /// Stamps the slot with the LSN of a commit that announced itself.
    pub(crate) fn stamp(&self, slot: Slot, lsn: Lsn) {
        self.word(slot).stamp(self.scale, lsn);
    }

    /// Notes that a key of the slot is locked. The caller holds the lock of the slot's shard.
    pub(crate) fn set_locked(&self, slot: Slot) {
        self.word(slot).set_locked();
    }

    /// Notes that no key of the slot is locked any more. The caller holds the shard's lock.
    pub(crate) fn clear_locked(&self, slot: Slot) {
        self.word(slot).clear_locked();
    }

    /// What the word of a family says.
    #[inline]
    pub(crate) fn load_word(&self, word: &Word) -> Seen {
        word.load(self.scale)
    }

    /// Announces on the word of a family.
    pub(crate) fn announce_word(&self, word: &Word) -> Result<Seen, Full> {
        let announced = word.announce(self.scale);
        if announced.is_err() && planted(Plant::PendingOverflows) {
            return Ok(word.load(self.scale));
        }
        announced
    }

    /// Stamps the word of a family.
    pub(crate) fn stamp_word(&self, word: &Word, lsn: Lsn) {
        word.stamp(self.scale, lsn);
    }

    /// Withdraws an announcement from the word of a family.
    pub(crate) fn withdraw_word(&self, word: &Word) {
        word.withdraw();
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::format::checksum64;

    #[test]
    fn a_key_has_one_slot_and_another_one_in_another_family() {
        let stamps = Stamps::new(1 << 16, 1024, 4096);
        let slot = |family, key: &str| stamps.slot(family, checksum64(key.as_bytes()));
        assert_eq!(slot(3, "key"), slot(3, "key"));
        let slots = [slot(0, "key"), slot(1, "key"), slot(2, "key"), slot(0, "yek")];
        for (at, one) in slots.iter().enumerate() {
            assert!(one.index() < 1 << 16 && slots[..at].iter().all(|other| other != one));
        }
    }

    #[test]
    fn slots_are_announced_stamped_and_locked_each_for_itself() {
        let stamps = Stamps::new(2, 2, 4096);
        let slots = [Slot(0), Slot(1)];
        stamps.announce(slots[1]).unwrap();
        stamps.announce(slots[1]).unwrap();
        assert_eq!(stamps.announce(slots[1]), Err(Full));
        stamps.stamp(slots[1], 8192);
        stamps.withdraw(slots[1]);
        stamps.set_locked(slots[1]);
        let fresh = Seen { stamp: 4088, pending: 0, locked: false };
        assert_eq!(stamps.load(slots[0]), fresh);
        assert_eq!(stamps.load(slots[1]), Seen { stamp: 8192, pending: 0, locked: true });
        stamps.clear_locked(slots[1]);
        assert_eq!(stamps.load(slots[1]), Seen { stamp: 8192, pending: 0, locked: false });
    }

    #[test]
    fn the_word_of_a_family_is_read_as_those_of_slots() {
        let (stamps, word) = (Stamps::new(2, 2, 4096), Word::default());
        stamps.announce_word(&word).unwrap();
        assert_eq!(stamps.load_word(&word).pending, 1);
        stamps.stamp_word(&word, 4096);
        stamps.announce_word(&word).unwrap();
        stamps.withdraw_word(&word);
        assert_eq!(stamps.load_word(&word), Seen { stamp: 4096, pending: 0, locked: false });
    }
}
