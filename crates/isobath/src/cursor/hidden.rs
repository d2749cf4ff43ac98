//! What range deletes hide from a scan.

use crate::env::{Plant, Reach, planted, reached, reached_if};
use crate::error::Result;
use crate::mvcc::Lsn;
use crate::span::{Cover, Covers};

/// What range deletes hide. Most scans have none.
pub(super) struct Hidden {
    covers: Box<dyn Covers>,
    /// The last cover that hid a key, and the number of its source.
    last: Option<(Cover, usize)>,
    /// How many keys in a row it has hidden.
    in_a_row: u32,
}

/// After so many hidden keys in a row, older sources are moved to the end of what hides them.
const SKIP_AFTER: u32 = if cfg!(any(test, feature = "simulation")) { 1 } else { 8 };

impl std::fmt::Debug for Hidden {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hidden").field("last", &self.last).finish_non_exhaustive()
    }
}

impl Hidden {
    pub(super) fn new(covers: Box<dyn Covers>) -> Hidden {
        Hidden { covers, last: None, in_a_row: 0 }
    }

    /// True if a range delete that the reader at `point` sees hides this version.
    pub(super) fn hides(&mut self, key: &[u8], seq: Lsn, point: Lsn) -> Result<bool> {
        let is_hidden_by = |last: &(Cover, usize)| last.0.holds(key) && hides(&last.0, seq);
        if self.last.as_ref().is_some_and(is_hidden_by) {
            self.in_a_row += 1;
            return Ok(true);
        }
        let found = self.covers.cover(key, point)?;
        self.in_a_row = 0;
        debug_assert!(
            found.as_ref().is_none_or(|(cover, _)| cover.holds(key) && cover.seq < point)
        );
        self.last = found.filter(|(cover, _)| hides(cover, seq));
        Ok(self.last.is_some())
    }

    /// The cover to whose end it is worth to skip, and the first source that is older than it.
    pub(super) fn skipped(&self) -> Option<(&Cover, usize)> {
        let (cover, source) = self.last.as_ref().filter(|_| self.in_a_row >= SKIP_AFTER)?;
        reached(Reach::SpanSkipped);
        Some((cover, source + 1))
    }
}

fn hides(cover: &Cover, seq: Lsn) -> bool {
    let is_hidden = cover.seq > seq || planted(Plant::SpanHidesNewer);
    reached_if(Reach::SpanHidInScan, || is_hidden);
    is_hidden
}
