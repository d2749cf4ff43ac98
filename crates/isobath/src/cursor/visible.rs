//! Shows a cursor over versions as a reader at a read point sees it: each key within the bounds
//! once, with its newest value below the point, and no deleted keys. Range deletes lie apart from
//! the versions ([`Covers`]): a value is shown if no range delete that the reader sees is newer.
//! Gaps of the family are jumped over, and long rows of dead keys are kept for it ([`Walk`]). The
//! public iterator wraps this cursor.
//!
//! The entry is not copied: the inner cursor stands on the version that is shown.

use super::bound_key::{BoundKey, is_above, is_below, least_within};
use super::dead::Dead;
use super::hidden::Hidden;
use super::{Cursor, Entry};
use crate::env::{Plant, Reach, planted, preempt, reached, reached_if};
use crate::error::{Error, MergeFailure, Result};
use crate::gap::{Gaps, Stretch, Toward};
use crate::limits::OWN_SEQS;
use crate::mvcc::expiry::{EXPIRY_LEN, lives_at};
use crate::mvcc::{Expiring, FirstEnd, Lsn, Moment, Resolved, resolve};
use crate::span::Covers;
use std::ops::Bound;
use std::sync::Arc;

/// A cursor over visible keys. There is no entry until a seek. Moving past a bound is like moving
/// past the end.
#[derive(Debug)]
pub(crate) struct VisibleCursor<C> {
    inner: C,
    at: Moment,
    lower: Bound<BoundKey>,
    upper: Bound<BoundKey>,
    shows: Shows,
    scratch: Vec<u8>,
    hidden: Option<Box<Hidden>>,
    folding: Option<Box<Folding>>,
    dead: Dead,
    /// True if the reader relies on what it is shown.
    notes_ends: bool,
    first_end: Option<Box<FirstEnd>>,
}

/// What the entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shows {
    /// There is none.
    Nothing,
    /// The version at which the inner cursor stands.
    Stored,
    /// The same, whose value ends later.
    Expiring,
    /// The same, whose value lies in a blob file.
    Separated,
    /// The key at which the inner cursor stands, with the value that was made of its operands.
    Folded,
    /// The same key, of whose operands no value could be made. The move that led here has failed,
    /// and the next one goes on from here.
    Unfolded,
}

/// Makes values of operands, for the same reader over the same sources.
pub(crate) trait Folds: Send + Sync {
    /// The value of `key`, of which the reader sees an operand first, and from when on it is
    /// another one if nothing is written, in milliseconds since 1970.
    fn fold(&self, key: &[u8]) -> Result<(Vec<u8>, u64)>;
}

struct Folding {
    folds: Box<dyn Folds>,
    value: Vec<u8>,
}

impl std::fmt::Debug for Folding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Folding({} bytes)", self.value.len())
    }
}

impl<C: Cursor> VisibleCursor<C> {
    /// Shows `inner` to a reader at `point`, within the bounds.
    pub(crate) fn new(inner: C, point: Lsn, lower: Bound<&[u8]>, upper: Bound<&[u8]>) -> Self {
        let (lower, upper) = (lower.map(BoundKey::new), upper.map(BoundKey::new));
        let (scratch, at) = (Vec::new(), Moment { point, unix_ms: 0 });
        let (shows, hidden, folding, dead) = (Shows::Nothing, None, None, Dead::default());
        VisibleCursor {
            inner,
            at,
            lower,
            upper,
            shows,
            scratch,
            hidden,
            folding,
            dead,
            notes_ends: false,
            first_end: None,
        }
    }

    /// Hides values that have ended at this time.
    pub(crate) fn at_time(&mut self, unix_ms: u64) {
        self.at.unix_ms = unix_ms;
    }

    /// Notes which of the values that are shown ends first, if that is asked for.
    pub(crate) fn noting_ends(&mut self, notes_ends: bool) {
        self.notes_ends = notes_ends;
    }

    /// Hides what these cover, too. They number the sources of the inner cursor.
    pub(crate) fn hiding(&mut self, covers: Option<Box<dyn Covers>>) {
        let hidden = |covers| Box::new(Hidden::new(covers));
        self.hidden = covers.map(hidden);
    }

    /// Makes values of operands by `folds`.
    pub(crate) fn folding(&mut self, folds: Box<dyn Folds>) {
        self.folding = Some(Box::new(Folding { folds, value: Vec::new() }));
    }

    /// Jumps over these gaps in the sources from number `first_source` on. They were loaded after
    /// the point was taken. Keeps rows of dead keys if no source comes before those.
    pub(crate) fn jumping(&mut self, gaps: Option<Arc<Gaps>>, first_source: usize) {
        self.dead = Dead { gaps, first_source, keeps: first_source == 0, walk: None };
    }

    /// True if a row of dead keys waits to be taken.
    #[inline]
    pub(crate) fn has_stretch(&self) -> bool {
        self.dead.walk.as_ref().is_some_and(|walk| walk.has_found())
    }

    /// The longest row of dead keys since this was asked last, if one is worth a gap.
    #[cold]
    pub(crate) fn take_stretch(&mut self) -> Option<Stretch> {
        self.dead.walk.as_mut()?.take()
    }

    /// The inner cursor, which stands on the version of the current key, or on the newest of its
    /// operands. `None` without a key.
    #[inline]
    pub(crate) fn shown(&self) -> Option<&C> {
        match self.shows {
            Shows::Nothing => None,
            Shows::Stored
            | Shows::Expiring
            | Shows::Separated
            | Shows::Folded
            | Shows::Unfolded => Some(&self.inner),
        }
    }

    /// The value of the current entry, if it was made of operands.
    #[inline]
    pub(crate) fn folded(&self) -> Option<&[u8]> {
        match self.shows {
            Shows::Nothing
            | Shows::Stored
            | Shows::Expiring
            | Shows::Separated
            | Shows::Unfolded => None,
            Shows::Folded => self.folding.as_ref().map(|folding| &*folding.value),
        }
    }

    #[inline(always)]
    pub(crate) fn inner(&self) -> &C {
        &self.inner
    }

    /// The key at the cursor's position.
    #[inline]
    pub(crate) fn key(&self) -> Option<&[u8]> {
        self.shown()?.key()
    }

    /// True if the current entry is shown as it is stored, as most are.
    #[inline(always)]
    pub(crate) fn is_stored(&self) -> bool {
        self.shows == Shows::Stored
    }

    /// The version of the current entry, if that says where the value lies.
    #[inline]
    pub(crate) fn separated(&self) -> Option<Entry<'_>> {
        match self.shows {
            Shows::Nothing | Shows::Stored | Shows::Folded | Shows::Unfolded => None,
            Shows::Separated if planted(Plant::AddressShown) => None,
            Shows::Separated | Shows::Expiring => {
                self.inner.entry().filter(|entry| entry.kind.is_apart())
            }
        }
    }

    /// The key and value at the cursor's position. A value that lies elsewhere is not known here.
    #[inline]
    pub(crate) fn entry(&self) -> Option<(&[u8], &[u8])> {
        let entry = self.shown()?.entry()?;
        let value = match self.shows {
            Shows::Nothing | Shows::Stored => entry.value,
            Shows::Separated | Shows::Expiring if entry.kind.is_apart() => &[],
            Shows::Separated | Shows::Expiring => entry.value.get(EXPIRY_LEN..).unwrap_or_default(),
            Shows::Folded => self.folded().unwrap_or_default(),
            Shows::Unfolded => return None,
        };
        Some((entry.key, value))
    }

    /// When the value of the current entry ends, in milliseconds since 1970, if it does.
    #[inline]
    pub(crate) fn expires_ms(&self) -> Option<u64> {
        let ends = Expiring::split(self.inner.entry().filter(|_| self.ends())?.value)?;
        Some(ends.expires_ms)
    }

    /// True if the value of the current entry ends, so that its end is stored before it.
    #[inline]
    pub(crate) fn ends(&self) -> bool {
        self.shows == Shows::Expiring
    }

    /// True if the cursor stands on a key.
    #[inline]
    pub(crate) fn has_entry(&self) -> bool {
        self.shows != Shows::Nothing
    }

    /// Drops the entry. There is none until the next seek.
    pub(crate) fn leave(&mut self) {
        self.shows = Shows::Nothing;
    }

    /// Moves to the smallest visible key.
    pub(crate) fn seek_first(&mut self) -> Result<()> {
        self.shows = Shows::Nothing;
        if self.dead.gaps.is_some() && self.jump_from_lower()? {
            return self.settle_forward(1, true);
        }
        match &self.lower {
            Bound::Unbounded => self.inner.seek_first()?,
            Bound::Included(bound) | Bound::Excluded(bound) => self.inner.seek(&bound.key)?,
        }
        if self.inner.key().is_some_and(|key| self.is_below_range(key)) {
            self.inner.next_key(&mut self.scratch)?;
        }
        self.settle_forward(0, true)
    }

    /// Goes to the end of the gap in which the lower bound lies, if there is one for all sources.
    #[cold]
    fn jump_from_lower(&mut self) -> Result<bool> {
        if self.dead.first_source > 0 {
            return Ok(false);
        }
        let lower = least_within(&self.lower, &mut self.scratch);
        let jump_to = self.dead.walk(0, self.at.point).and_then(|walk| walk.jump(lower));
        let Some(end) = jump_to else { return Ok(false) };
        reached(Reach::GapPassedFirst);
        self.inner.seek(end)?;
        Ok(true)
    }

    /// Moves to the largest visible key.
    pub(crate) fn seek_last(&mut self) -> Result<()> {
        self.shows = Shows::Nothing;
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
        self.shows = Shows::Nothing;
        self.inner.seek(key)?;
        self.settle_forward(0, false)
    }

    /// Moves to the largest visible key at or below `key`.
    pub(crate) fn seek_for_prev(&mut self, key: &[u8]) -> Result<()> {
        if self.is_above_range(key) {
            return self.seek_last();
        }
        self.shows = Shows::Nothing;
        self.inner.seek_for_prev(key)?;
        self.settle_backward()
    }

    /// Moves to the next visible key. Does nothing if there is no entry.
    #[inline]
    pub(crate) fn next(&mut self) -> Result<()> {
        if std::mem::replace(&mut self.shows, Shows::Nothing) == Shows::Nothing {
            return Ok(());
        }
        self.inner.next_key(&mut self.scratch)?;
        self.settle_forward(0, false)
    }

    /// Lets the inner cursor go on by itself, to a key that this cursor then shows as it is stored.
    /// `go` gets the point of the reader, and what is true of keys below the upper bound. `None`,
    /// and nothing is done, if the cursor has no entry, or if what is stored may be hidden.
    pub(crate) fn go_alone<R>(
        &mut self,
        go: impl FnOnce(&mut C, Lsn, &dyn Fn(&[u8]) -> bool) -> Option<R>,
    ) -> Option<R> {
        if self.shows != Shows::Stored || self.hidden.is_some() {
            return None;
        }
        preempt();
        let upper = &self.upper;
        go(&mut self.inner, self.at.point, &|key| !is_above(upper, key))
    }

    /// Moves to the previous visible key. Does nothing if there is no entry.
    pub(crate) fn prev(&mut self) -> Result<()> {
        if std::mem::replace(&mut self.shows, Shows::Nothing) == Shows::Nothing {
            return Ok(());
        }
        self.inner.prev_key()?;
        self.settle_backward()
    }

    /// Moves from the newest version of a key to the first visible key: this one or a later one. So
    /// many dead ones in a row came before. `is_first` if the cursor came from the lower bound.
    #[inline(always)]
    fn settle_forward(&mut self, mut dead_count: u32, is_first: bool) -> Result<()> {
        while let Some(entry) = self.inner.entry() {
            if self.is_above_range(entry.key) {
                break;
            }
            let newest = (entry.seq, entry.kind);
            match resolve(&mut self.inner, newest, self.at, &mut self.scratch)? {
                Resolved::Shown if self.hidden.is_some() && self.is_hidden()? => {
                    self.pass_hidden_forward(dead_count)?;
                    dead_count += 1;
                }
                Resolved::Shown => {
                    debug_assert!(
                        self.inner.entry().is_some_and(|entry| entry.seq < self.at.point),
                        "a reader sees what was written after its point"
                    );
                    self.shows = Shows::Stored;
                    break;
                }
                Resolved::Expiring if self.shows_expiring()? => break,
                Resolved::Separated if self.shows_separated()? => break,
                Resolved::Operand if self.folds()? => break,
                Resolved::Expiring | Resolved::Separated | Resolved::Operand => {
                    self.pass_hidden_forward(dead_count)?;
                    dead_count += 1;
                }
                Resolved::Ended if self.keeps_own() && self.shows_expiring()? => break,
                Resolved::Deleted | Resolved::Ended => {
                    self.pass_dead_forward(dead_count)?;
                    dead_count += 1;
                }
                Resolved::Passed => {}
            }
        }
        if dead_count > 0 {
            self.end_dead(dead_count, is_first);
        }
        Ok(())
    }

    /// Shows the key at which the inner cursor stands with the value of its operands. False if a
    /// range delete hides them.
    #[cold]
    #[inline(never)]
    fn folds(&mut self) -> Result<bool> {
        if self.hidden.is_some() && self.is_hidden()? {
            return Ok(false);
        }
        let key = self.inner.key().unwrap_or_default();
        let Some(folding) = &mut self.folding else {
            return Err(Error::merge_failed("", "", key, MergeFailure::NoOperator));
        };
        let folded = folding.folds.fold(key);
        let (value, holds_until) = folded.inspect_err(|_| self.shows = Shows::Unfolded)?;
        folding.value = value;
        self.note_end(holds_until);
        self.shows = Shows::Folded;
        Ok(true)
    }

    /// Shows the version at which the inner cursor stands, whose value ends later. False if a range
    /// delete hides it.
    #[cold]
    #[inline(never)]
    fn shows_expiring(&mut self) -> Result<bool> {
        if self.hidden.is_some() && self.is_hidden()? {
            return Ok(false);
        }
        let foreign = self.inner.entry().filter(|_| !self.keeps_own());
        let ends = foreign.and_then(|entry| Expiring::split(entry.value));
        self.note_end(ends.map_or(u64::MAX, |ends| ends.expires_ms));
        self.shows = Shows::Expiring;
        Ok(true)
    }

    /// True if the reader's transaction has put the value at which the inner cursor stands, which
    /// stays until the transaction ends. One whose end had passed before is as good as a delete.
    #[cold]
    fn keeps_own(&self) -> bool {
        let is_own = |entry: &Entry<'_>| entry.seq + OWN_SEQS >= self.at.point;
        let own = self.inner.entry().filter(|entry| self.dead.first_source > 0 && is_own(entry));
        own.is_some_and(|entry| lives_at(entry.value, 0))
    }

    /// Shows the version at which the inner cursor stands, whose value lies elsewhere. False if a
    /// range delete hides it.
    #[cold]
    #[inline(never)]
    fn shows_separated(&mut self) -> Result<bool> {
        if self.hidden.is_some() && self.is_hidden()? {
            return Ok(false);
        }
        self.shows = Shows::Separated;
        Ok(true)
    }

    /// Notes that what is shown holds until then, if nothing is written.
    fn note_end(&mut self, unix_ms: u64) {
        if self.notes_ends
            && unix_ms < self.first_end.as_ref().map_or(u64::MAX, |first| first.unix_ms)
        {
            let key = self.inner.key().unwrap_or_default().into();
            self.first_end = Some(Box::new(FirstEnd { unix_ms, key }));
        }
    }

    /// The first end among the values that were shown, if such ends are noted.
    pub(crate) fn first_end(&self) -> Option<&FirstEnd> {
        self.first_end.as_deref()
    }

    /// True if a range delete hides the version at which the inner cursor stands.
    #[cold]
    fn is_hidden(&mut self) -> Result<bool> {
        match (&mut self.hidden, self.inner.entry()) {
            (Some(hidden), Some(entry)) => hidden.hides(entry.key, entry.seq, self.at.point),
            _ => Ok(false),
        }
    }

    #[cold]
    fn pass_hidden_forward(&mut self, count: u32) -> Result<()> {
        debug_assert!(!self.has_entry(), "a key is shown and hidden");
        self.pass_dead_forward(count)?;
        match self.hidden.as_ref().and_then(|hidden| hidden.skipped()) {
            Some((cover, older)) => self.inner.skip_forward(older, cover.end.as_deref()),
            None => Ok(()),
        }
    }

    #[cold]
    fn pass_hidden_backward(&mut self, count: u32) -> Result<()> {
        debug_assert!(!self.has_entry(), "a key is shown and hidden");
        self.pass_dead_backward(count)?;
        match self.hidden.as_ref().and_then(|hidden| hidden.skipped()) {
            Some((cover, older)) => self.inner.skip_backward(older, &cover.start),
            None => Ok(()),
        }
    }

    /// Moves from a dead key to the next key that may be live, `count` dead ones in a row after the
    /// first.
    #[inline(never)]
    fn pass_dead_forward(&mut self, count: u32) -> Result<()> {
        let VisibleCursor { inner, dead, scratch, at, .. } = self;
        let first_source = dead.first_source;
        let jump_to = dead
            .walk(count, at.point)
            .and_then(|walk| walk.pass(Toward::End, inner.key().unwrap_or_default()));
        inner.next_key(scratch)?;
        if let Some(end) = jump_to {
            reached(Reach::GapPassed);
            reached_if(Reach::GapUnderOwn, || first_source > 0);
            inner.skip_forward(first_source, Some(end))?;
        }
        Ok(())
    }

    /// Like [`VisibleCursor::pass_dead_forward`], backward.
    #[inline(never)]
    fn pass_dead_backward(&mut self, count: u32) -> Result<()> {
        let VisibleCursor { inner, dead, at, .. } = self;
        let first_source = dead.first_source;
        let jump_below = dead
            .walk(count, at.point)
            .and_then(|walk| walk.pass(Toward::Start, inner.key().unwrap_or_default()));
        inner.prev_key()?;
        if let Some(start) = jump_below {
            reached(Reach::GapPassedBack);
            inner.skip_backward(first_source, start)?;
        }
        Ok(())
    }

    /// A row of `count` dead keys is over. If it is the first one above the lower bound, it begins
    /// at the bound, so that no scan from there has to look for it.
    #[inline(never)]
    fn end_dead(&mut self, count: u32, is_first: bool) {
        if count > self.dead.begins_at()
            && let Some(walk) = &mut self.dead.walk
        {
            walk.end(is_first.then(|| least_within(&self.lower, &mut self.scratch)));
            if !self.dead.keeps {
                walk.take();
            }
        }
    }

    fn settle_backward(&mut self) -> Result<()> {
        let mut dead_count = 0;
        while let Some(entry) = self.inner.entry() {
            if self.is_below_range(entry.key) {
                break;
            }
            let newest = (entry.seq, entry.kind);
            match resolve(&mut self.inner, newest, self.at, &mut self.scratch)? {
                Resolved::Shown if self.hidden.is_some() && self.is_hidden()? => {
                    self.pass_hidden_backward(dead_count)?;
                    dead_count += 1;
                }
                Resolved::Shown => {
                    debug_assert!(
                        self.inner.entry().is_some_and(|entry| entry.seq < self.at.point),
                        "a reader sees what was written after its point"
                    );
                    self.shows = Shows::Stored;
                    break;
                }
                Resolved::Expiring if self.shows_expiring()? => break,
                Resolved::Separated if self.shows_separated()? => break,
                Resolved::Operand if self.folds()? => break,
                Resolved::Expiring | Resolved::Separated | Resolved::Operand => {
                    self.pass_hidden_backward(dead_count)?;
                    dead_count += 1;
                }
                Resolved::Ended if self.keeps_own() && self.shows_expiring()? => break,
                Resolved::Deleted | Resolved::Ended => {
                    self.pass_dead_backward(dead_count)?;
                    dead_count += 1;
                }
                Resolved::Passed => {
                    if self.inner.key().is_some() {
                        self.inner.prev_key()?;
                    }
                    // Else the key was the last, or another one is there since. Or a table is
                    // forged: then, too, the way back goes from the key itself.
                    if self.inner.key() != Some(self.scratch.as_slice()) {
                        self.inner.seek_for_prev(&self.scratch)?;
                    }
                    while self.inner.key().is_some_and(|key| key >= self.scratch.as_slice()) {
                        self.inner.prev_key()?;
                    }
                }
            }
        }
        if dead_count > 0 {
            self.end_dead(dead_count, false);
        }
        Ok(())
    }

    #[inline]
    fn is_above_range(&self, key: &[u8]) -> bool {
        is_above(&self.upper, key)
    }

    #[inline]
    fn is_below_range(&self, key: &[u8]) -> bool {
        is_below(&self.lower, key)
    }
}

#[cfg(test)]
mod tests;
