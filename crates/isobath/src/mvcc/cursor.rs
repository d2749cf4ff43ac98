//! One version of one key, and the trait to walk versions in order in any source: a memtable, a
//! table, or a merge of several.

use super::expiry::value_of;
use super::{Lsn, OpKind};
use crate::error::Result;

/// One version of one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) seq: Lsn,
    pub(crate) kind: OpKind,
    /// Empty if the kind has no value.
    pub(crate) value: &'a [u8],
}

impl Entry<'_> {
    /// The entry's value, or where it lies.
    #[inline]
    pub(crate) fn value_part(&self) -> &[u8] {
        value_of(self.kind, self.value)
    }

    /// What is stored with the entry once `value` is back in its place: see [`OpKind::joined`].
    pub(crate) fn joined_with(&self, value: &[u8]) -> Vec<u8> {
        let before = self.value.len() - self.value_part().len();
        [&self.value[..before], value].concat()
    }
}

/// Walks versions ordered by key ascending, then by sequence *descending* (newest first).
///
/// Forward movement visits every version. Backward movement goes key by key, and always stops at
/// the newest version of the key. So [`resolve`](super::resolve) can continue with [`Cursor::next`]
/// after a move in either direction.
///
/// A cursor that has moved past either end has no entry until the next seek. It has no entry after
/// an error either.
pub(crate) trait Cursor {
    /// Moves to the newest version of the smallest key.
    fn seek_first(&mut self) -> Result<()>;
    /// Moves to the newest version of the largest key.
    fn seek_last(&mut self) -> Result<()>;
    /// Moves to the newest version of the smallest key at or above `key`.
    fn seek(&mut self, key: &[u8]) -> Result<()>;
    /// Moves to the newest version of the largest key at or below `key`.
    fn seek_for_prev(&mut self, key: &[u8]) -> Result<()>;
    /// Moves to the next version: the next older one of the same key, or the newest one of the next
    /// key. Needs an entry.
    fn next(&mut self) -> Result<()>;
    /// Like [`Cursor::next`], for a reader at `point` who does not see the present entry: may pass
    /// older versions of the key that it does not see either.
    fn next_below(&mut self, _point: Lsn) -> Result<()> {
        self.next()
    }

    /// Moves to the newest version of the key before the current one. Needs an entry.
    fn prev_key(&mut self) -> Result<()>;
    /// The entry at the cursor's position.
    fn entry(&self) -> Option<Entry<'_>>;

    /// The key of the entry. Overridden where getting only the key is cheaper.
    #[inline]
    fn key(&self) -> Option<&[u8]> {
        self.entry().map(|entry| entry.key)
    }

    /// Moves past every version of the current key, to the newest version of the next key. Needs an
    /// entry.
    ///
    /// A cursor that knows where its keys end overrides this method. The default method copies the
    /// key into `scratch` and compares. The content of `scratch` has no meaning before or after the
    /// call.
    fn next_key(&mut self, scratch: &mut Vec<u8>) -> Result<()> {
        next_key_by_comparing(self, scratch)
    }

    /// Moves the sources from number `first` on forward to `to`, or to their end; nothing that is
    /// passed is of use to the caller. A cursor over one source stays where it is. Needs a place
    /// reached by [`Cursor::next_key`].
    fn skip_forward(&mut self, _first: usize, _to: Option<&[u8]>) -> Result<()> {
        Ok(())
    }

    /// Like [`Cursor::skip_forward`], backward to the last keys below `to`. Needs a place reached
    /// by [`Cursor::prev_key`].
    fn skip_backward(&mut self, _first: usize, _to: &[u8]) -> Result<()> {
        Ok(())
    }

    /// False only if there is certainly no version of `key`. Does not move the cursor and costs
    /// little: a table asks its filter. A merge asks before it positions a source. `hash` is the
    /// XXH3-64 of the key, as filters use it.
    fn may_hold(&self, _key: &[u8], _hash: u64) -> Result<bool> {
        Ok(true)
    }
}

/// [`Cursor::next_key`] for a cursor that does not know where keys end.
pub(crate) fn next_key_by_comparing<C: Cursor + ?Sized>(
    cursor: &mut C,
    scratch: &mut Vec<u8>,
) -> Result<()> {
    debug_assert!(cursor.key().is_some(), "a cursor without an entry is on no key");
    scratch.clear();
    scratch.extend_from_slice(cursor.key().unwrap_or_default());
    loop {
        cursor.next()?;
        if cursor.key().is_none_or(|key| key != scratch.as_slice()) {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_comes_back_to_its_entry() {
        let stored = b"\x05\0\0\0\0\0\0\0address";
        let entry = |kind, value| Entry { key: b"k", seq: 1, kind, value };
        let ends = entry(OpKind::PutExpiringSeparated, stored);
        assert_eq!(ends.value_part(), b"address");
        assert_eq!(ends.joined_with(b"value"), b"\x05\0\0\0\0\0\0\0value");
        assert_eq!(entry(OpKind::PutSeparated, b"address").joined_with(b"value"), b"value");
    }
}
