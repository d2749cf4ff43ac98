//! The loop over versions that flushes, compactions and repairs share. It drops the versions that
//! no reader needs.

use super::{Cursor, Entry, Lsn, ReaderPoints, Retain, Verdict};
use crate::error::Result;

/// The input of a rewrite: versions by key ascending, then newest first. Every [`Cursor`] is one. A
/// source that only moves forward needs only these methods.
pub(crate) trait Versions {
    /// The entry at the current position.
    fn entry(&self) -> Option<Entry<'_>>;
    /// Like [`Cursor::next`].
    fn next(&mut self) -> Result<()>;
    /// Like [`Cursor::next_key`].
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

/// The output of a rewrite. It takes the versions that stay, and answers questions that the
/// versions do not. `C` is the input.
pub(crate) trait Rewrite<C> {
    /// Called before each version. If it returns false, the walk ends there. `enters` is false if
    /// the version may have the same key as the one before.
    #[inline(always)]
    fn goes_on(&mut self, _walked: &C, _entry: &Entry<'_>, _enters: bool) -> Result<bool> {
        Ok(true)
    }

    /// True if no version of the key lies beneath the input. It is called only for tombstones that
    /// nothing else keeps. Keys come in ascending order.
    fn is_alone(&mut self, key: &[u8]) -> bool;

    /// The least sequence number above `seq` of a range delete that covers `key`. Keys come in
    /// ascending order.
    #[inline(always)]
    fn cover_above(&mut self, _key: &[u8], _seq: Lsn) -> Option<Lsn> {
        None
    }

    /// Called with the verdict for each version, before the verdict is carried out.
    #[inline(always)]
    fn note(&mut self, _verdict: Verdict, _entry: &Entry<'_>, _enters: bool) {}

    /// Takes a version that stays.
    fn add(&mut self, entry: Entry<'_>, enters: bool) -> Result<()>;
}

/// Walks on from the position of `cursor`, and passes on the versions that `readers` need.
#[inline]
pub(crate) fn rewrite<C: Versions>(
    cursor: &mut C,
    readers: &ReaderPoints,
    to: &mut impl Rewrite<C>,
) -> Result<()> {
    let mut retain = Retain::new(readers);
    let mut scratch = Vec::new();
    while let Some(entry) = cursor.entry() {
        debug_assert!(!entry.kind.is_span(), "a range delete stands among the versions of keys");
        let enters = retain.enters(entry.key);
        if !to.goes_on(cursor, &entry, enters)? {
            break;
        }
        let cover = to.cover_above(entry.key, entry.seq);
        let verdict = retain.judge(&entry, cover, || to.is_alone(entry.key));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cursor::fixtures::{ListCursor, Version};
    use crate::mvcc::Lsn;

    /// Records the verdict for each version, and the versions that stay.
    #[derive(Default)]
    struct Told {
        noted: Vec<(Lsn, Verdict, bool)>,
        added: Vec<(Lsn, bool)>,
    }

    impl Rewrite<ListCursor> for Told {
        fn is_alone(&mut self, _key: &[u8]) -> bool {
            true
        }

        fn note(&mut self, verdict: Verdict, entry: &Entry<'_>, enters: bool) {
            self.noted.push((entry.seq, verdict, enters));
        }

        fn add(&mut self, entry: Entry<'_>, enters: bool) -> Result<()> {
            assert!(self.noted.last().is_some_and(|(seq, _, _)| *seq == entry.seq));
            self.added.push((entry.seq, enters));
            Ok(())
        }
    }

    #[test]
    fn what_becomes_of_each_version_that_is_judged_is_told_first() {
        use Verdict::*;
        let put = |key: &[u8], seq| Version::put(key, seq, b"value");
        // There are readers at 20, and at any point from 40 on.
        let keys = [
            put(b"a", 45),
            put(b"a", 30),
            put(b"a", 25),
            put(b"a", 19),
            put(b"a", 9),
            Version::delete(b"b", 18),
            put(b"b", 17),
            put(b"c", 16),
            put(b"c", 15),
        ];
        let mut cursor = ListCursor::new(keys.to_vec());
        cursor.seek_first().unwrap();
        let mut told = Told::default();
        rewrite(&mut cursor, &ReaderPoints::new(vec![20], 40), &mut told).unwrap();
        let noted = [
            (45, Keep, true),
            (30, Keep, false),
            (25, Drop, false),
            (19, KeepLast, false),
            (18, DropRest, true),
            (16, KeepLast, true),
        ];
        assert_eq!(told.noted, noted);
        assert_eq!(told.added, [(45, true), (30, false), (19, false), (16, true)]);
    }
}
