//! The slots in which locked keys are marked, so that a writer sees without asking the maps that it
//! has nothing to ask.

use crate::conflict::{Slot, Stamps};
use crate::format::{FamilyId, checksum64};

/// The slots of the table of stamps, of which each has a bit that says `locked`.
pub(crate) trait Slots: Send + Sync {
    /// The slot of a key.
    fn slot(&self, family: FamilyId, key: &[u8]) -> usize;
    /// Sets the bit. The caller holds the lock on the slot's shard.
    fn set_locked(&self, slot: usize);
    /// Clears the bit. The caller holds the lock on the slot's shard.
    fn clear_locked(&self, slot: usize);
}

impl Slots for Stamps {
    fn slot(&self, family: FamilyId, key: &[u8]) -> usize {
        Stamps::slot(self, family, checksum64(key)).index()
    }

    fn set_locked(&self, slot: usize) {
        Stamps::set_locked(self, Slot::at(slot));
    }

    fn clear_locked(&self, slot: usize) {
        Stamps::clear_locked(self, Slot::at(slot));
    }
}
