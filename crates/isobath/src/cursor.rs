//! The one way to walk versions in order, whatever holds them: a memtable, a table, a merge of several.

use crate::error::Result;
use crate::format::{Lsn, OpKind};

/// One version of one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) seq: Lsn,
    pub(crate) kind: OpKind,
    /// Empty for a delete.
    pub(crate) value: &'a [u8],
}

/// Walks versions ordered by key ascending, then by sequence *descending* (newest first).
///
/// Forward movement visits every version. Backward movement goes key by key and always stops on the key's
/// newest version, so that whoever resolves a read point walks on with [`Cursor::next`] in either direction.
///
/// A cursor that has run off either end has no entry and stays so until a seek. After an error it has no
/// entry either.
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
}
