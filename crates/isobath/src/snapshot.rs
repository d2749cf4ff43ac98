//! A snapshot: every family as it was at one moment, for as long as the snapshot lives.

use crate::column_family::ColumnFamily;
use crate::engine::Engine;
use crate::error::Result;
use crate::format::Lsn;
use crate::iter::{Cursor, Range, bounds_of};
use crate::pinned::Slice;
use crate::read::{self, Wanted};
use std::ops::RangeBounds;
use std::sync::Arc;

/// The database at one read point. Taking one costs a lock and no copying; while it lives, merges keep the
/// versions that it sees.
///
/// A family that is dropped later can still be read through a handle from before the drop; its files, and what of it was
/// in memory, go with the last snapshot that sees it. A family created later has no keys in the snapshot.
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
        let family = &self.engine.default_family;
        read::get(&self.engine, family, key.as_ref(), Some(self.point), Wanted::Value)
    }

    /// The value of `key` in `family`.
    pub fn get_in(&self, family: &ColumnFamily, key: impl AsRef<[u8]>) -> Result<Option<Slice>> {
        let family = family.of(&self.engine)?;
        read::get(&self.engine, family, key.as_ref(), Some(self.point), Wanted::Value)
    }

    /// The keys within `range` of the default family, with their values.
    pub fn range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Range {
        let family = Ok(&self.engine.default_family);
        Range::new(&self.engine, family, Some(self.point), bounds_of(range))
    }

    /// The keys within `range` of `family`, with their values. A handle that cannot be read is the first item's error.
    pub fn range_in<K: AsRef<[u8]>>(
        &self,
        family: &ColumnFamily,
        range: impl RangeBounds<K>,
    ) -> Range {
        Range::new(&self.engine, family.of(&self.engine), Some(self.point), bounds_of(range))
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
        let family = family.of(&self.engine)?;
        Cursor::new(&self.engine, family, Some(self.point), &bounds_of(range))
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

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use crate::Options;

    #[test]
    fn a_snapshot_reads_its_own_moment_in_every_way_and_holds_it_while_it_lives() {
        let db = Options::in_memory().open("/db").unwrap();
        let family = db.create_family("other").unwrap();
        db.put("key", "before").unwrap();
        db.put_in(&family, "key", "there").unwrap();
        let held = || db.engine().snapshots.held();
        let snapshot = db.snapshot();
        assert_eq!(held(), (1, Some(snapshot.point())));
        for value in ["after", "later"] {
            db.put("key", value).unwrap();
            db.put_in(&family, "key", value).unwrap();
            assert_eq!(snapshot.get("key").unwrap().unwrap(), b"before");
            assert_eq!(snapshot.get_in(&family, "key").unwrap().unwrap(), b"there");
            assert!(snapshot.get("else").unwrap().is_none());
            let first = |mut range: crate::Range| range.next().unwrap().unwrap().1;
            assert_eq!(first(snapshot.range::<&str>(..)), b"before");
            assert_eq!(first(snapshot.range_in::<&str>(&family, ..)), b"there");
            let mut cursor = snapshot.cursor::<&str>(..).unwrap();
            cursor.seek_to_first().unwrap();
            assert_eq!(cursor.value(), Some(&b"before"[..]));
            let mut cursor = snapshot.cursor_in::<&str>(&family, ..).unwrap();
            cursor.seek_to_last().unwrap();
            assert_eq!(cursor.value(), Some(&b"there"[..]));
            db.flush().unwrap();
            db.compact().unwrap();
        }
        assert_eq!(format!("{snapshot:?}"), format!("Snapshot({})", snapshot.point()));
        drop(snapshot);
        assert_eq!(held(), (0, None));
    }
}
