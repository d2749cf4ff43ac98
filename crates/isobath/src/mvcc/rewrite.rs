//! The one loop over versions that flushes, compactions and repairs share. What no reader needs stays
//! behind.

use super::{Cursor, Entry, ReaderPoints, Retain, Verdict};
use crate::error::Result;

/// What a rewrite walks: versions by key ascending, then newest first. Every [`Cursor`] is one, and what only moves
/// forward needs no more than this.
pub(crate) trait Versions {
    /// Where the walk stands.
    fn entry(&self) -> Option<Entry<'_>>;
    /// As [`Cursor::next`].
    fn next(&mut self) -> Result<()>;
    /// As [`Cursor::next_key`].
    fn next_key(&mut self, scratch: &mut Vec<u8>) -> Result<()>;
}

impl<C: Cursor> Versions for C {
    #[inline(always)]
    fn entry(&self) -> Option<Entry<'_>> {
        Cursor::entry(self)
    }

    #[inline(always)]
    fn next(&mut self) -> Result<()> {
        Cursor::next(self)
    }

    #[inline(always)]
    fn next_key(&mut self, scratch: &mut Vec<u8>) -> Result<()> {
        Cursor::next_key(self, scratch)
    }
}

/// What takes the versions that stay, and what it knows that the versions do not tell. `C` is what is walked.
pub(crate) trait Rewrite<C> {
    /// Asked before each version; if it refuses, the walk ends there. `enters` is false if the version may be of the
    /// same key as the one before.
    #[inline(always)]
    fn goes_on(&mut self, _walked: &C, _entry: &Entry<'_>, _enters: bool) -> Result<bool> {
        Ok(true)
    }

    /// True if no version of the key lies beneath what is walked. It is asked only for tombstones that nothing else
    /// keeps; keys come ascending.
    fn is_alone(&mut self, key: &[u8]) -> bool;

    /// Told what becomes of each version, before that happens.
    #[inline(always)]
    fn note(&mut self, _verdict: Verdict, _entry: &Entry<'_>, _enters: bool) {}

    /// Takes a version that stays.
    fn add(&mut self, entry: Entry<'_>, enters: bool) -> Result<()>;
}

/// Walks on from where `cursor` stands, and hands on what `readers` need.
#[inline]
pub(crate) fn rewrite<C: Versions>(
    cursor: &mut C,
    readers: &ReaderPoints,
    to: &mut impl Rewrite<C>,
) -> Result<()> {
    let mut retain = Retain::new(readers);
    let mut scratch = Vec::new();
    while let Some(entry) = cursor.entry() {
        let enters = retain.enters(entry.key);
        if !to.goes_on(cursor, &entry, enters)? {
            break;
        }
        let verdict = retain.judge(&entry, || to.is_alone(entry.key));
        to.note(verdict, &entry, enters);
        if verdict.keeps() {
            to.add(entry, enters)?;
        }
        match verdict {
            Verdict::Keep | Verdict::Drop => cursor.next()?,
            Verdict::KeepLast | Verdict::DropRest => cursor.next_key(&mut scratch)?,
        }
    }
    Ok(())
}
