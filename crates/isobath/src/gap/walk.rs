//! Follows a scan over dead keys: past the gaps that it meets, and to a stretch that is worth being
//! a gap.
//!
//! A stretch holds what the scan walked over and the gaps that it jumped over, one joined to the
//! next. For the scan's point no key in it has a value: of the keys that it walked over each is
//! dead, between two of them no source has another that the reader sees, and gaps are claims of
//! the same kind.

use super::Gaps;
use crate::mvcc::Lsn;
use std::sync::Arc;

/// So many dead keys in a row are worth a gap ...
const WALKED_MIN: u32 = if cfg!(any(test, feature = "simulation")) { 2 } else { 32 };
/// ... and so many more next to a gap are worth a longer one.
const WALKED_MORE: u32 = if cfg!(any(test, feature = "simulation")) { 1 } else { 8 };
/// Two gaps that a scan passes one after the other are worth being one.
const JUMPED_MIN: u32 = 2;
/// No gap begins or ends at a longer key, because memory is charged to nothing.
const KEY_LEN_MAX: usize = 1024;

/// Keys from `start` on and below `end` that are dead for the scan that has passed them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stretch {
    pub(crate) start: Vec<u8>,
    pub(crate) end: Vec<u8>,
    /// How many keys were walked over, and how many gaps were jumped over.
    walked: u32,
    jumped: u32,
}

impl Stretch {
    #[cfg(test)]
    pub(crate) fn of(start: &[u8], end: &[u8]) -> Stretch {
        Stretch { start: start.to_vec(), end: end.to_vec(), walked: 1, jumped: 0 }
    }

    /// Joins what comes next. Its end is a key, or the place directly behind it.
    fn join(&mut self, toward: Toward, start: &[u8], (end, is_behind): (&[u8], bool)) {
        let is_first = self.walked + self.jumped == 0;
        if is_first || toward == Toward::Start || *start < *self.start {
            self.start.clear();
            self.start.extend_from_slice(start);
        }
        if is_first || toward == Toward::End || *self.end < *end {
            self.end.clear();
            self.end.extend_from_slice(end);
            if is_behind {
                self.end.push(0);
            }
        }
        debug_assert!(self.start < self.end, "a stretch holds the keys that it has passed");
    }

    fn is_worth_a_gap(&self) -> bool {
        let walked_min = if self.jumped == 0 { WALKED_MIN } else { WALKED_MORE };
        (self.walked >= walked_min || self.jumped >= JUMPED_MIN)
            && self.start.len().max(self.end.len()) <= KEY_LEN_MAX
    }
}

/// The direction of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Toward {
    End,
    Start,
}

/// The walk of one scan.
#[derive(Debug)]
pub(crate) struct Walk {
    gaps: Option<Arc<Gaps>>,
    point: Lsn,
    /// What it passes now.
    stretch: Stretch,
    /// The longest stretch that is worth a gap, until it is taken.
    found: Option<Stretch>,
}

impl Walk {
    /// A walk past these gaps by a scan at `point`. The gaps were there after the point was taken.
    pub(crate) fn new(gaps: Option<Arc<Gaps>>, point: Lsn) -> Walk {
        Walk { gaps, point, stretch: Stretch::default(), found: None }
    }

    /// The next dead key begins a stretch.
    pub(crate) fn begin(&mut self) {
        (self.stretch.walked, self.stretch.jumped) = (0, 0);
    }

    /// Passes a dead key. If a gap holds it, returns where the scan goes on: from the gap's end, or
    /// below its start.
    pub(crate) fn pass(&mut self, toward: Toward, key: &[u8]) -> Option<&[u8]> {
        let Walk { gaps, point, stretch, .. } = self;
        let Some(gap) = gaps.as_ref().and_then(|gaps| gaps.find(key, *point)) else {
            stretch.join(toward, key, (key, true));
            stretch.walked += 1;
            return None;
        };
        stretch.join(toward, &gap.start, (&gap.end, false));
        stretch.jumped += 1;
        Some(if toward == Toward::End { &gap.end } else { &gap.start })
    }

    /// Passes the gap in which a scan toward greater keys begins, at `key`, if there is one.
    /// Returns its end.
    pub(crate) fn jump(&mut self, key: &[u8]) -> Option<&[u8]> {
        self.gaps.as_ref()?.find(key, self.point)?;
        self.pass(Toward::End, key)
    }

    /// The stretch has come to its end, at a live key or where the scan ends. If it came from a
    /// bound without meeting a live key, it begins at `lower`, the least key within.
    pub(crate) fn end(&mut self, lower: Option<&[u8]>) {
        if let Some(lower) = lower
            && *lower < *self.stretch.start
        {
            self.stretch.start.clear();
            self.stretch.start.extend_from_slice(lower);
        }
        if self.stretch.is_worth_a_gap()
            && self.found.as_ref().is_none_or(|found| found.walked <= self.stretch.walked)
        {
            self.found = Some(self.stretch.clone());
        }
        self.begin();
    }

    /// True if there is a stretch to be taken.
    pub(crate) fn has_found(&self) -> bool {
        self.found.is_some()
    }

    /// The longest stretch since this was asked last.
    pub(crate) fn take(&mut self) -> Option<Stretch> {
        self.found.take()
    }
}
