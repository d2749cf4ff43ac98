//! Rows of dead keys, as a scan passes them: which it jumps over, and which it keeps for others.

use crate::gap::{Gaps, Walk};
use crate::mvcc::Lsn;
use std::sync::Arc;

/// What is done about dead keys.
#[derive(Debug, Default)]
pub(super) struct Dead {
    /// The gaps of the family, loaded after the point was taken.
    pub(super) gaps: Option<Arc<Gaps>>,
    /// The number of the first source that gaps speak of. Those before hold what the reader's
    /// transaction has written itself.
    pub(super) first_source: usize,
    /// True if rows of dead keys are kept.
    pub(super) keeps: bool,
    /// Made at the first row of dead keys.
    pub(super) walk: Option<Box<Walk>>,
}

/// So many dead keys in a row cost nothing but their steps while the family has no gaps.
const FREE_MAX: u32 = if cfg!(any(test, feature = "simulation")) { 0 } else { 4 };

impl Dead {
    /// From which dead key in a row on the walk follows, counted from 0.
    pub(super) fn begins_at(&self) -> u32 {
        if self.gaps.is_some() { 0 } else { FREE_MAX }
    }

    /// The walk that follows the `count`th dead key in a row, counted from 0; `None` if there is no
    /// need to follow.
    pub(super) fn walk(&mut self, count: u32, point: Lsn) -> Option<&mut Walk> {
        let begins_at = self.begins_at();
        if count < begins_at || self.gaps.is_none() && !self.keeps {
            return None;
        }
        let new = || Box::new(Walk::new(self.gaps.clone(), point));
        let walk = self.walk.get_or_insert_with(new);
        if count == begins_at {
            walk.begin();
        }
        Some(walk)
    }
}
