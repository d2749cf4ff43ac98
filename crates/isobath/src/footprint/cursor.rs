//! Walks the operations of one family in a write set, as the newest source of a scan.
//!
//! The cursor keeps the set as it was when the cursor was made. All operations have one sequence
//! number: the read point less one. A reader at the point sees them, and no operation of the log
//! can have that number, because the record that ends at the point has a header. Each key occurs
//! once, so the next entry is always the next key.
//!
//! Range deletes hide what is in the database and nothing of the set, which is newer than they are:
//! their number is the read point less two, which no operation of the log can have either.

use super::index::Spot;
use super::writes::Body;
use crate::cursor::{Cursor, Entry};
use crate::error::Result;
use crate::format::{FamilyId, Lsn};
use crate::span::Cover;
use std::sync::Arc;

/// A write set as it was at one moment, for the scans of one iterator.
#[derive(Clone, Debug)]
pub(crate) struct WriteSet(Arc<Body>);

impl WriteSet {
    pub(super) fn new(body: &Arc<Body>) -> WriteSet {
        WriteSet(body.clone())
    }

    /// A cursor over the operations of a family, for a reader at `point`.
    pub(crate) fn cursor(&self, family: FamilyId, point: Lsn) -> WriteSetCursor {
        WriteSetCursor { body: self.0.clone(), family, seq: point.saturating_sub(1), at: None }
    }

    /// True if the set has range deletes, of any family.
    pub(crate) fn has_spans(&self) -> bool {
        self.0.spans.len() > 0
    }

    /// The range delete that hides `key` from a reader at `point`, unless the set itself has the
    /// key.
    pub(crate) fn cover(&self, family: FamilyId, key: &[u8], point: Lsn) -> Option<Cover> {
        let span = self.0.span_at(family, key)?;
        let end = (!span.value.is_empty()).then(|| span.value.into());
        Some(Cover { seq: point.saturating_sub(2), start: span.key.into(), end })
    }
}

/// A [`Cursor`] over one family's operations.
#[derive(Debug)]
pub(crate) struct WriteSetCursor {
    body: Arc<Body>,
    family: FamilyId,
    seq: Lsn,
    /// An entry of the family, or none.
    at: Option<Spot>,
}

impl WriteSetCursor {
    /// Moves to the entry at a spot if it belongs to the family; otherwise to no entry.
    #[inline]
    fn stand(&mut self, spot: Option<Spot>) -> Result<()> {
        self.at = spot.filter(|spot| {
            self.body.index.get(*spot).is_some_and(|entry| entry.family == self.family)
        });
        Ok(())
    }

    /// The chunk that holds the current value, and where in the chunk the value lies.
    pub(crate) fn value_in_chunk(&self) -> Option<(&Arc<[u8]>, usize)> {
        let value = self.body.index.get(self.at?)?.value;
        (value.len > 0).then(|| (self.body.chunks.chunk(value), value.at as usize))
    }
}

impl Cursor for WriteSetCursor {
    fn seek_first(&mut self) -> Result<()> {
        self.seek(&[])
    }

    fn seek_last(&mut self) -> Result<()> {
        let end = match self.family.checked_add(1) {
            Some(next) => self.body.lower_bound(next, &[]),
            None => self.body.index.end(),
        };
        self.stand(self.body.index.before(end))
    }

    fn seek(&mut self, key: &[u8]) -> Result<()> {
        let spot = self.body.lower_bound(self.family, key);
        self.stand(self.body.index.at_or_after(spot))
    }

    fn seek_for_prev(&mut self, key: &[u8]) -> Result<()> {
        match self.body.index.find(&self.body.chunks, self.family, key) {
            Ok(spot) => self.stand(Some(spot)),
            Err(spot) => self.stand(self.body.index.before(spot)),
        }
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        let next = self.at.and_then(|Spot { leaf, slot }| {
            self.body.index.at_or_after(Spot { leaf, slot: slot + 1 })
        });
        self.stand(next)
    }

    fn prev_key(&mut self) -> Result<()> {
        let before = self.at.and_then(|spot| self.body.index.before(spot));
        self.stand(before)
    }

    #[inline]
    fn entry(&self) -> Option<Entry<'_>> {
        let operation = self.body.operation(self.body.index.get(self.at?)?);
        let (key, value) = (operation.key, operation.value);
        Some(Entry { key, seq: self.seq, kind: operation.kind, value })
    }

    #[inline]
    fn key(&self) -> Option<&[u8]> {
        Some(self.body.chunks.bytes(self.body.index.get(self.at?)?.key))
    }

    #[inline]
    fn next_key(&mut self, _scratch: &mut Vec<u8>) -> Result<()> {
        self.next()
    }
}
