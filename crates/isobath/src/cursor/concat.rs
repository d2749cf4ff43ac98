//! Presents the disjoint slices of a level as one cursor.
//!
//! At most one slice's cursor is open. It is opened only when an entry of that slice is needed; the
//! bounds of the slices decide which slice. Versions of one key never span two slices.

use super::{Cursor, Entry};
use crate::env::{Plant, Reach, planted, reached, reached_if};
use crate::error::{Error, Result};

/// A list of slices in ascending key order. They are disjoint, and none is empty.
pub(crate) trait SliceProvider {
    type Cursor: Cursor;
    /// The number of slices.
    fn count(&self) -> usize;
    /// The smallest key of a slice.
    fn smallest(&self, index: usize) -> &[u8];
    /// The largest key of a slice.
    fn largest(&self, index: usize) -> &[u8];
    /// The index of the first slice that ends at or after `key`, or the number of slices. A slice
    /// may end behind its largest key, but before the next slice begins.
    fn lower_bound(&self, key: &[u8]) -> usize {
        let (mut low, mut high) = (0, self.count());
        while low < high {
            let middle = low.midpoint(high);
            if self.largest(middle) < key { low = middle + 1 } else { high = middle }
        }
        low
    }
    /// A cursor over a slice, without a position.
    fn open(&self, index: usize) -> Result<Self::Cursor>;
    /// Called once a seek has positioned the cursor of a slice.
    #[inline(always)]
    fn note_entered(&mut self, _index: usize, _cursor: &Self::Cursor) {}
    /// Called before the cursor is positioned by another seek, or dropped.
    #[inline(always)]
    fn note_left(&mut self, _index: usize, _cursor: &Self::Cursor) {}
    /// The error for a slice with a key outside of its bounds, at which its cursor stands.
    fn damaged(cursor: &Self::Cursor) -> Error;
    /// Whether a slice may hold a key that lies within its bounds, according to its filter.
    fn may_hold(&self, _index: usize, _key: &[u8], _hash: u64) -> Result<bool> {
        Ok(true)
    }
}

/// Walks a list of slices.
#[derive(Debug)]
pub(crate) struct ConcatCursor<P: SliceProvider> {
    slices: P,
    open: Option<(usize, P::Cursor)>,
    /// False if `open` is kept only for reuse.
    has_entry: bool,
}

impl<P: SliceProvider> ConcatCursor<P> {
    pub(crate) fn new(slices: P) -> Self {
        let is_apart = |at: usize| slices.largest(at - 1) < slices.smallest(at);
        debug_assert!(
            (1..slices.count()).all(is_apart) || planted(Plant::OverlappingFiles),
            "slices that are read one after the other share keys"
        );
        ConcatCursor { slices, open: None, has_entry: false }
    }

    /// The cursor of the slice that holds the entry.
    #[inline]
    pub(crate) fn current(&self) -> Option<&P::Cursor> {
        self.open.as_ref().filter(|_| self.has_entry).map(|(_, cursor)| cursor)
    }

    /// The same, to move it to an entry of the same slice.
    #[inline]
    pub(crate) fn current_mut(&mut self) -> Option<&mut P::Cursor> {
        self.open.as_mut().filter(|_| self.has_entry).map(|(_, cursor)| cursor)
    }

    /// Leaves the slice that is open, and gives the slices back.
    pub(crate) fn into_slices(mut self) -> P {
        if let Some((left, cursor)) = &self.open {
            self.slices.note_left(*left, cursor);
        }
        self.slices
    }

    /// The index of the first slice that ends at or after `key`, or the number of slices.
    fn first_ending_at_or_after(&self, key: &[u8]) -> usize {
        let found = self.slices.lower_bound(key);
        debug_assert!(
            found.checked_sub(1).is_none_or(|before| self.slices.largest(before) < key)
                || planted(Plant::OverlappingFiles),
            "the slice before also ends at or after the key"
        );
        debug_assert!(
            found + 1 >= self.slices.count()
                || self.slices.smallest(found + 1) > key
                || planted(Plant::OverlappingFiles),
            "the key lies behind the slice that was found for it"
        );
        found
    }

    /// Positions the cursor of slice `index`. Opens that slice unless it is already open.
    fn position(
        &mut self,
        index: usize,
        seek: impl FnOnce(&mut P::Cursor) -> Result<()>,
    ) -> Result<()> {
        debug_assert!(index < self.slices.count(), "there is no slice {index}");
        self.has_entry = false;
        if let Some((left, cursor)) = &self.open {
            self.slices.note_left(*left, cursor);
        }
        if !matches!(&self.open, Some((open, _)) if *open == index) {
            self.open = None;
            self.open = Some((index, self.slices.open(index)?));
        }
        if let Some((_, cursor)) = &mut self.open {
            seek(cursor)?;
            self.has_entry = true;
            self.slices.note_entered(index, cursor);
        }
        Ok(())
    }

    /// Moves to the first key of slice `index`.
    fn begin_at(&mut self, index: usize) -> Result<()> {
        self.position(index, P::Cursor::seek_first)?;
        self.check_bounds()
    }

    /// Moves to the newest version of the last key of slice `index`.
    fn end_at(&mut self, index: usize) -> Result<()> {
        self.position(index, P::Cursor::seek_last)?;
        self.check_bounds()
    }

    /// A forged slice may have keys outside of its bounds. A seek for one that lies between there
    /// and here would go to another slice, so that a scan might never leave the two.
    fn check_bounds(&mut self) -> Result<()> {
        let Some((index, cursor)) = &self.open else { return Ok(()) };
        let (smallest, largest) = (self.slices.smallest(*index), self.slices.largest(*index));
        if cursor.key().is_some_and(|key| key < smallest || key > largest) {
            self.has_entry = false;
            return Err(P::damaged(cursor));
        }
        Ok(())
    }

    /// True if the open slice's cursor has moved past an end.
    #[inline(always)]
    fn is_off(&self) -> bool {
        self.has_entry && self.open.as_ref().is_some_and(|(_, cursor)| cursor.key().is_none())
    }

    /// Moves on to the slices after the open one, if its cursor has moved past its end.
    #[inline(always)]
    fn cross_forward(&mut self) -> Result<()> {
        if self.is_off() { self.open_after() } else { Ok(()) }
    }

    #[cold]
    fn open_after(&mut self) -> Result<()> {
        while self.is_off()
            && let Some((index, _)) = &self.open
        {
            let next = index + 1;
            if next == self.slices.count() {
                self.has_entry = false;
                break;
            }
            reached(Reach::ConcatCrossed);
            self.begin_at(next)?;
        }
        Ok(())
    }

    #[inline(always)]
    fn cross_backward(&mut self) -> Result<()> {
        if self.is_off() { self.open_before() } else { Ok(()) }
    }

    #[cold]
    fn open_before(&mut self) -> Result<()> {
        while self.is_off()
            && let Some((index, _)) = &self.open
        {
            let Some(before) = index.checked_sub(1) else {
                self.has_entry = false;
                break;
            };
            reached(Reach::ConcatCrossedBack);
            self.end_at(before)?;
        }
        Ok(())
    }

    #[inline]
    fn step(&mut self, step: impl FnOnce(&mut P::Cursor) -> Result<()>) -> Result<()> {
        if !self.has_entry {
            return Ok(());
        }
        debug_assert!(self.open.is_some(), "the entry belongs to no slice");
        if let Some((_, cursor)) = &mut self.open
            && let Err(error) = step(cursor)
        {
            self.has_entry = false;
            return Err(error);
        }
        Ok(())
    }
}

impl<P: SliceProvider> Cursor for ConcatCursor<P> {
    fn seek_first(&mut self) -> Result<()> {
        self.has_entry = false;
        if self.slices.count() == 0 {
            return Ok(());
        }
        self.begin_at(0)?;
        self.cross_forward()
    }

    fn seek_last(&mut self) -> Result<()> {
        self.has_entry = false;
        let Some(last) = self.slices.count().checked_sub(1) else { return Ok(()) };
        self.end_at(last)?;
        self.cross_backward()
    }

    fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.has_entry = false;
        let index = self.first_ending_at_or_after(key);
        if index == self.slices.count() {
            return Ok(());
        }
        reached_if(Reach::ConcatSeekLeast, || {
            self.slices.count() > 1 && self.slices.smallest(index) == key
        });
        self.position(index, |cursor| cursor.seek(key))?;
        self.cross_forward()
    }

    fn seek_for_prev(&mut self, key: &[u8]) -> Result<()> {
        self.has_entry = false;
        let ending = self.first_ending_at_or_after(key);
        if ending < self.slices.count() && self.slices.smallest(ending) <= key {
            self.position(ending, |cursor| cursor.seek_for_prev(key))?;
        } else if let Some(before) = ending.checked_sub(1) {
            self.end_at(before)?;
        } else {
            return Ok(());
        }
        self.cross_backward()
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        self.step(P::Cursor::next)?;
        self.cross_forward()
    }

    fn prev_key(&mut self) -> Result<()> {
        self.step(P::Cursor::prev_key)?;
        self.cross_backward()
    }

    #[inline]
    fn entry(&self) -> Option<Entry<'_>> {
        self.current()?.entry()
    }

    #[inline]
    fn key(&self) -> Option<&[u8]> {
        self.current()?.key()
    }

    #[inline]
    fn next_key(&mut self, scratch: &mut Vec<u8>) -> Result<()> {
        self.step(|cursor| cursor.next_key(scratch))?;
        self.cross_forward()
    }

    fn may_hold(&self, key: &[u8], hash: u64) -> Result<bool> {
        let index = self.first_ending_at_or_after(key);
        if index == self.slices.count() || self.slices.smallest(index) > key {
            return Ok(false);
        }
        self.slices.may_hold(index, key, hash)
    }
}

#[cfg(test)]
mod tests;
