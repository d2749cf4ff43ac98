//! Where in a slice a key lies, by its index alone: no data block is read.

use super::block::Block;
use super::reader::{Table, Way};
use crate::error::Result;
use crate::format::Lsn;
use std::borrow::Cow;

impl Table {
    /// About which share of the slice's data lies before `key`, from 0 to 1. It is at most half a
    /// data block off. It is exact for a slice that is a single block, which an open table holds.
    pub(crate) fn rank(&self, key: &[u8]) -> Result<f64> {
        let (index, at) = match &self.way {
            Way::Data(block) => return self.rank_in(block, key),
            Way::Index(index) => (Cow::Borrowed(index), self.root_at),
            Way::Top(top) => match self.follow(top, self.root_at, key, Lsn::MAX)? {
                Some(place) => (Cow::Owned(self.index_block(place)?), place.at),
                None => return Ok(1.0),
            },
        };
        let Some(place) = self.follow(&index, at, key, Lsn::MAX)? else { return Ok(1.0) };
        let handle = place.at;
        debug_assert!(self.base <= handle.offset, "handles lie within the slice");
        let middle = handle.offset.saturating_sub(self.base) + u64::from(handle.len) / 2;
        Ok((middle as f64 / self.data_len.max(1) as f64).clamp(0.0, 1.0))
    }

    fn rank_in(&self, block: &Block, key: &[u8]) -> Result<f64> {
        let hit = block.search(key, Lsn::MAX).map_err(|error| self.located(error, self.root_at))?;
        Ok(hit.map_or(1.0, |hit| f64::from(hit.index) / f64::from(block.entry_count().max(1))))
    }
}
