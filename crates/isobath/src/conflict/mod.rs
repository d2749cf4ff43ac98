//! Evidence of conflicts: a fixed table that says which keys were surely not written since an LSN.
//!
//! - `word`    the last commit of a slot, and how many commits are about to write there
//! - `stamps`  the table of slots, which all families share
//! - `gate`    whether plain writers take part, which they do only while transactions validate
//!
//! The table costs constant memory and never answers wrongly: a slot that looks untouched is
//! untouched; for one that does not, the caller looks at the versions of the key.
//! `docs/internals/transactions.md` describes the protocol.

mod gate;
mod stamps;
mod word;

pub(crate) use gate::{Gate, Hold, Look, Pass};
pub(crate) use stamps::{Slot, Stamps};
#[cfg(all(test, loom))]
pub(crate) use word::Seen;
pub(crate) use word::{Full, Word};

use crate::format::Lsn;
use std::sync::Arc;

/// What an open database needs to find conflicts.
pub(crate) struct Conflicts {
    /// Shared with the locks, which mark slots in it.
    pub(crate) stamps: Arc<Stamps>,
    pub(crate) gate: Gate,
}

impl Conflicts {
    /// For a term whose first LSN is `start`.
    pub(crate) fn new(slots: usize, pending_max: u32, start: Lsn) -> Conflicts {
        Conflicts { stamps: Arc::new(Stamps::new(slots, pending_max, start)), gate: Gate::new() }
    }

    /// Notes on the word of a family that all of it came at `lsn`. Nothing else uses the word yet.
    pub(crate) fn note_clone(&self, word: &Word, lsn: Lsn) {
        let announced = self.stamps.announce_word(word);
        debug_assert!(announced.is_ok_and(|seen| seen.pending == 0), "the word is in use");
        self.stamps.stamp_word(word, lsn);
    }
}
