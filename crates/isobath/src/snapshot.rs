//! A snapshot: every family as it was at one moment, for as long as the snapshot lives.

use crate::column_family::ColumnFamily;
use crate::engine::{Engine, Family};
use crate::error::{Error, Result};
use crate::format::Lsn;
use crate::iter::{Cursor, Range, bounds_of};
use crate::pinned::Slice;
use crate::read::{self, Wanted};
use std::ops::RangeBounds;
use std::sync::Arc;

/// The database at one read point. Taking one costs a lock and no copying; while it lives, merges keep the
/// versions that it sees.
///
/// ```
/// # fn main() -> isobath::Result<()> {
/// # let db = isobath::Options::in_memory().open("snapshot")?;
/// db.put(b"key", b"before")?;
/// let snapshot = db.snapshot();
/// db.put(b"key", b"after")?;
/// assert_eq!(snapshot.get(b"key")?.unwrap(), b"before");
/// # Ok(())
/// # }
/// ```
pub struct Snapshot {
    engine: Arc<Engine>,
    point: Lsn,
}

impl Snapshot {
    pub(crate) fn new(engine: &Arc<Engine>) -> Snapshot {
        Snapshot { point: engine.snapshots.register(&engine.log), engine: engine.clone() }
    }

    /// The read point: the snapshot sees the operations with sequences below it.
    pub fn point(&self) -> Lsn {
        self.point
    }

    /// The value of `key` in the default family.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Slice>> {
        self.get_from(&self.engine.default_family, key.as_ref())
    }

    /// The value of `key` in `family`.
    pub fn get_in(&self, family: &ColumnFamily, key: impl AsRef<[u8]>) -> Result<Option<Slice>> {
        family.check_engine(&self.engine)?;
        self.get_from(family.inner(), key.as_ref())
    }

    fn get_from(&self, family: &Family, key: &[u8]) -> Result<Option<Slice>> {
        self.engine.check_open()?;
        if family.is_dropped() {
            return Err(Error::UnknownFamily(family.name().to_string()));
        }
        read::get(&self.engine, family, key, Some(self.point), Wanted::Value)
    }

    /// The keys within `range` of the default family, with their values.
    pub fn range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Range {
        Range::new(&self.engine, &self.engine.default_family, Some(self.point), bounds_of(range))
    }

    /// The keys within `range` of `family`, with their values.
    pub fn range_in<K: AsRef<[u8]>>(
        &self,
        family: &ColumnFamily,
        range: impl RangeBounds<K>,
    ) -> Range {
        Range::new(&self.engine, family.inner(), Some(self.point), bounds_of(range))
    }

    /// A seekable cursor over `range` of the default family.
    pub fn cursor<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Result<Cursor> {
        Cursor::new(&self.engine, &self.engine.default_family, Some(self.point), &bounds_of(range))
    }

    /// A seekable cursor over `range` of `family`.
    pub fn cursor_in<K: AsRef<[u8]>>(
        &self,
        family: &ColumnFamily,
        range: impl RangeBounds<K>,
    ) -> Result<Cursor> {
        family.check_engine(&self.engine)?;
        Cursor::new(&self.engine, family.inner(), Some(self.point), &bounds_of(range))
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        self.engine.snapshots.release(self.point);
    }
}

impl std::fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Snapshot({})", self.point)
    }
}
