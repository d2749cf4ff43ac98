//! Versions that own their bytes, and the simplest cursor: a sorted list of them that implements
//! every movement by a scan, directly from the contract. Tests use it as a source and, over all
//! versions, as the oracle.

use super::{Cursor, Entry};
use crate::error::{Error, Result};
use crate::format::{Lsn, OpKind};

/// An owned version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Version {
    pub(crate) key: Vec<u8>,
    pub(crate) seq: Lsn,
    pub(crate) kind: OpKind,
    pub(crate) value: Vec<u8>,
}

impl Version {
    pub(crate) fn put(key: impl AsRef<[u8]>, seq: Lsn, value: impl AsRef<[u8]>) -> Self {
        let (key, value) = (key.as_ref().to_vec(), value.as_ref().to_vec());
        Version { key, seq, kind: OpKind::Put, value }
    }

    pub(crate) fn delete(key: impl AsRef<[u8]>, seq: Lsn) -> Self {
        Version { key: key.as_ref().to_vec(), seq, kind: OpKind::Delete, value: Vec::new() }
    }

    pub(crate) fn as_entry(&self) -> Entry<'_> {
        Entry { key: &self.key, seq: self.seq, kind: self.kind, value: &self.value }
    }
}

/// Sorts by key, then newest first.
pub(crate) fn sort_versions(versions: &mut [Version]) {
    versions.sort_by(|a, b| a.key.cmp(&b.key).then(b.seq.cmp(&a.seq)));
}

/// A cursor over a list of versions.
#[derive(Clone, Debug, Default)]
pub(crate) struct ListCursor {
    versions: Vec<Version>,
    at: Option<usize>,
    /// `may_hold` returns the exact answer instead of "perhaps".
    pub(crate) has_filter: bool,
    /// The movement after this many fails.
    pub(crate) fail_after: Option<usize>,
    /// The number of movements that have failed.
    pub(crate) failed: usize,
}

impl ListCursor {
    pub(crate) fn new(mut versions: Vec<Version>) -> Self {
        sort_versions(&mut versions);
        ListCursor { versions, ..ListCursor::default() }
    }

    /// A list in which the keys may be out of order, as in a table that was forged.
    pub(crate) fn forged(versions: Vec<Version>) -> Self {
        ListCursor { versions, ..ListCursor::default() }
    }

    fn go(&mut self, at: Option<usize>) -> Result<()> {
        self.at = at;
        match &mut self.fail_after {
            Some(0) => {
                self.at = None;
                self.failed += 1;
                Err(Error::cancelled())
            }
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn newest_of_last_key(&self, wanted: impl Fn(&[u8]) -> bool) -> Option<usize> {
        let last = self.versions.iter().rposition(|version| wanted(&version.key))?;
        self.versions.iter().position(|version| version.key == self.versions[last].key)
    }
}

impl Cursor for ListCursor {
    fn seek_first(&mut self) -> Result<()> {
        self.go(if self.versions.is_empty() { None } else { Some(0) })
    }

    fn seek_last(&mut self) -> Result<()> {
        self.go(self.newest_of_last_key(|_| true))
    }

    fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.go(self.versions.iter().position(|version| version.key.as_slice() >= key))
    }

    fn seek_for_prev(&mut self, key: &[u8]) -> Result<()> {
        self.go(self.newest_of_last_key(|other| other <= key))
    }

    fn next(&mut self) -> Result<()> {
        let at = self.at.expect("next needs an entry") + 1;
        self.go((at < self.versions.len()).then_some(at))
    }

    fn prev_key(&mut self) -> Result<()> {
        let key = self.versions[self.at.expect("prev_key needs an entry")].key.clone();
        self.go(self.newest_of_last_key(|other| other < key.as_slice()))
    }

    fn entry(&self) -> Option<Entry<'_>> {
        self.at.map(|at| self.versions[at].as_entry())
    }

    fn may_hold(&self, key: &[u8], _hash: u64) -> Result<bool> {
        Ok(!self.has_filter || self.versions.iter().any(|version| version.key == key))
    }
}
