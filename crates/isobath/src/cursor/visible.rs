//! Shows a cursor over versions as a reader at a read point sees it: each key within the bounds
//! once, with its newest value below the point, and no deleted keys. The public iterator wraps this
//! cursor.
//!
//! The entry is not copied: the inner cursor stands on the version that is shown.

use super::{Cursor, key_head};
use crate::error::Result;
use crate::mvcc::{Lsn, Resolved, resolve};
use std::cmp::Ordering;
use std::ops::Bound;

/// A cursor over visible keys. There is no entry until a seek. Moving past a bound is like moving
/// past the end.
#[derive(Debug)]
pub(crate) struct VisibleCursor<C> {
    inner: C,
    point: Lsn,
    lower: Bound<BoundKey>,
    upper: Bound<BoundKey>,
    has_entry: bool,
    scratch: Vec<u8>,
}

#[derive(Debug)]
struct BoundKey {
    head: u64,
    key: Box<[u8]>,
}

impl BoundKey {
    #[inline]
    fn compare(&self, key: &[u8]) -> Ordering {
        key_head(key).cmp(&self.head).then_with(|| key.cmp(&self.key))
    }
}

impl<C: Cursor> VisibleCursor<C> {
    /// Shows `inner` to a reader at `point`, within the bounds.
    pub(crate) fn new(inner: C, point: Lsn, lower: Bound<&[u8]>, upper: Bound<&[u8]>) -> Self {
        let own = |key: &[u8]| BoundKey { head: key_head(key), key: key.into() };
        let (lower, upper) = (lower.map(own), upper.map(own));
        VisibleCursor { inner, point, lower, upper, has_entry: false, scratch: Vec::new() }
    }

    /// The inner cursor, which stands on the version of the current entry. `None` without an entry.
    #[inline]
    pub(crate) fn shown(&self) -> Option<&C> {
        if self.has_entry { Some(&self.inner) } else { None }
    }

    #[cfg(test)]
    pub(crate) fn inner(&self) -> &C {
        &self.inner
    }

    /// The key at the cursor's position.
    #[inline]
    pub(crate) fn key(&self) -> Option<&[u8]> {
        self.shown()?.key()
    }

    /// The key and value at the cursor's position.
    #[inline]
    pub(crate) fn entry(&self) -> Option<(&[u8], &[u8])> {
        self.shown()?.entry().map(|entry| (entry.key, entry.value))
    }

    /// True if the cursor stands on a key.
    #[inline]
    pub(crate) fn has_entry(&self) -> bool {
        self.has_entry
    }

    /// Drops the entry. There is none until the next seek.
    pub(crate) fn leave(&mut self) {
        self.has_entry = false;
    }

    /// Moves to the smallest visible key.
    pub(crate) fn seek_first(&mut self) -> Result<()> {
        self.has_entry = false;
        match &self.lower {
            Bound::Unbounded => self.inner.seek_first()?,
            Bound::Included(bound) | Bound::Excluded(bound) => self.inner.seek(&bound.key)?,
        }
        if self.inner.key().is_some_and(|key| self.is_below_range(key)) {
            self.inner.next_key(&mut self.scratch)?;
        }
        self.settle_forward()
    }

    /// Moves to the largest visible key.
    pub(crate) fn seek_last(&mut self) -> Result<()> {
        self.has_entry = false;
        match &self.upper {
            Bound::Unbounded => self.inner.seek_last()?,
            Bound::Included(bound) | Bound::Excluded(bound) => {
                self.inner.seek_for_prev(&bound.key)?;
            }
        }
        if self.inner.key().is_some_and(|key| self.is_above_range(key)) {
            self.inner.prev_key()?;
        }
        self.settle_backward()
    }

    /// Moves to the smallest visible key at or above `key`.
    pub(crate) fn seek(&mut self, key: &[u8]) -> Result<()> {
        if self.is_below_range(key) {
            return self.seek_first();
        }
        self.has_entry = false;
        self.inner.seek(key)?;
        self.settle_forward()
    }

    /// Moves to the largest visible key at or below `key`.
    pub(crate) fn seek_for_prev(&mut self, key: &[u8]) -> Result<()> {
        if self.is_above_range(key) {
            return self.seek_last();
        }
        self.has_entry = false;
        self.inner.seek_for_prev(key)?;
        self.settle_backward()
    }

    /// Moves to the next visible key. Does nothing if there is no entry.
    #[inline]
    pub(crate) fn next(&mut self) -> Result<()> {
        if !std::mem::replace(&mut self.has_entry, false) {
            return Ok(());
        }
        self.inner.next_key(&mut self.scratch)?;
        self.settle_forward()
    }

    /// Moves to the previous visible key. Does nothing if there is no entry.
    pub(crate) fn prev(&mut self) -> Result<()> {
        if !std::mem::replace(&mut self.has_entry, false) {
            return Ok(());
        }
        self.inner.prev_key()?;
        self.settle_backward()
    }

    /// Moves from the newest version of a key to the first visible key: this one or a later one.
    #[inline(always)]
    fn settle_forward(&mut self) -> Result<()> {
        while let Some(entry) = self.inner.entry() {
            if self.is_above_range(entry.key) {
                break;
            }
            let newest = (entry.seq, entry.kind);
            match resolve(&mut self.inner, newest, self.point, &mut self.scratch)? {
                Resolved::Shown => {
                    debug_assert!(
                        self.inner.entry().is_some_and(|entry| entry.seq < self.point),
                        "a reader sees what was written after its point"
                    );
                    self.has_entry = true;
                    break;
                }
                Resolved::Deleted => self.inner.next_key(&mut self.scratch)?,
                Resolved::Passed => {}
            }
        }
        Ok(())
    }

    fn settle_backward(&mut self) -> Result<()> {
        while let Some(entry) = self.inner.entry() {
            if self.is_below_range(entry.key) {
                break;
            }
            let newest = (entry.seq, entry.kind);
            match resolve(&mut self.inner, newest, self.point, &mut self.scratch)? {
                Resolved::Shown => {
                    debug_assert!(
                        self.inner.entry().is_some_and(|entry| entry.seq < self.point),
                        "a reader sees what was written after its point"
                    );
                    self.has_entry = true;
                    break;
                }
                Resolved::Deleted => self.inner.prev_key()?,
                Resolved::Passed => {
                    match self.inner.entry() {
                        Some(_) => self.inner.prev_key()?,
                        None => self.inner.seek_for_prev(&self.scratch)?,
                    }
                    self.inner.prev_key()?;
                }
            }
        }
        Ok(())
    }

    #[inline]
    fn is_above_range(&self, key: &[u8]) -> bool {
        match &self.upper {
            Bound::Unbounded => false,
            Bound::Included(bound) => bound.compare(key) == Ordering::Greater,
            Bound::Excluded(bound) => bound.compare(key) != Ordering::Less,
        }
    }

    #[inline]
    fn is_below_range(&self, key: &[u8]) -> bool {
        match &self.lower {
            Bound::Unbounded => false,
            Bound::Included(bound) => bound.compare(key) == Ordering::Less,
            Bound::Excluded(bound) => bound.compare(key) != Ordering::Greater,
        }
    }
}

#[cfg(test)]
mod tests;
