//! One version of one key, and the one way to walk versions in order, whatever holds them: a
//! memtable, a table, a merge of several.

use super::{Lsn, OpKind};
use crate::error::Result;

/// One version of one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) seq: Lsn,
    pub(crate) kind: OpKind,
    /// Empty if the kind has none.
    pub(crate) value: &'a [u8],
}

/// Walks versions ordered by key ascending, then by sequence *descending* (newest first).
///
/// Forward movement visits every version. Backward movement goes key by key and always stops on the
/// key's newest version, so that [`resolve`](super::resolve) walks on with [`Cursor::next`] in
/// either direction.
///
/// A cursor that has run off either end has no entry and stays so until a seek. After an error it
/// has no entry either.
pub(crate) trait Cursor {
    /// Moves to the newest version of the least key.
    fn seek_first(&mut self) -> Result<()>;
    /// Moves to the newest version of the greatest key.
    fn seek_last(&mut self) -> Result<()>;
    /// Moves to the newest version of the least key at or above `key`.
    fn seek(&mut self, key: &[u8]) -> Result<()>;
    /// Moves to the newest version of the greatest key at or below `key`.
    fn seek_for_prev(&mut self, key: &[u8]) -> Result<()>;
    /// Moves to the next version: of the same key, or the newest of the next key. Needs an entry.
    fn next(&mut self) -> Result<()>;
    /// Moves to the newest version of the key before the current one. Needs an entry.
    fn prev_key(&mut self) -> Result<()>;
    /// Where the cursor stands.
    fn entry(&self) -> Option<Entry<'_>>;

    /// The key of the entry. Overridden where the key alone is cheaper to come by.
    #[inline]
    fn key(&self) -> Option<&[u8]> {
        self.entry().map(|entry| entry.key)
    }

    /// Moves past every version of the current key, to the newest version of the next key. Needs an
    /// entry.
    ///
    /// A cursor that knows where its keys end overrides this; the provided way compares with a copy
    /// of the key in `scratch`, whose content means nothing before or after.
    fn next_key(&mut self, scratch: &mut Vec<u8>) -> Result<()> {
        next_key_by_comparing(self, scratch)
    }

    /// False only if there is surely no version of `key`. Moves nothing and costs little: a table
    /// asks its filter. A merge asks before it positions a source. `hash` is the key's XXH3-64,
    /// as filters take it.
    fn may_hold(&self, _key: &[u8], _hash: u64) -> Result<bool> {
        Ok(true)
    }
}

/// [`Cursor::next_key`] for a cursor that does not know where keys end.
pub(crate) fn next_key_by_comparing<C: Cursor + ?Sized>(
    cursor: &mut C,
    scratch: &mut Vec<u8>,
) -> Result<()> {
    scratch.clear();
    scratch.extend_from_slice(cursor.key().unwrap_or_default());
    loop {
        cursor.next()?;
        if cursor.key().is_none_or(|key| key != scratch.as_slice()) {
            return Ok(());
        }
    }
}
