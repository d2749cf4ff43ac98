//! A snapshot: every family at one moment, for as long as the snapshot lives.

use crate::db::Owner;
use crate::engine::{Engine, Hold};
use crate::error::Result;
use crate::family::Family;
#[cfg(test)]
use crate::format::Lsn;
use crate::options::ReadOptions;
use crate::read::ReadAt;
use crate::read_point::ReadPoint;
use crate::reads::{Reads, reads};
use std::sync::Arc;

/// The database at one read point. Its own methods read the default family; [`Snapshot::of`] reads
/// another one. Taking a snapshot copies nothing, and takes no lock unless many are alive. While
/// the snapshot lives, compactions keep the versions that it sees, and the database stays open.
///
/// A family that is dropped later can still be read through a handle from before the drop. Its
/// files and its part of the memtables are freed with the last snapshot that sees them. A family
/// created later has no keys in the snapshot.
///
/// ```
/// # fn main() -> isobath::Result<()> {
/// # let db = isobath::Options::in_memory().open("snapshot")?;
/// # let users = db.family("users")?;
/// db.put(b"key", b"before")?;
/// let snapshot = db.snapshot();
/// db.put(b"key", b"after")?;
/// assert_eq!(snapshot.get(b"key")?.unwrap(), b"before");
/// assert!(snapshot.of(&users).get(b"key")?.is_none());
/// # Ok(())
/// # }
/// ```
pub struct Snapshot {
    owner: Arc<Owner>,
    hold: Hold,
}

reads!(Snapshot);

impl Snapshot {
    pub(crate) fn new(owner: &Arc<Owner>) -> Snapshot {
        Snapshot::of_hold(owner, owner.engine().register_point())
    }

    /// The snapshot at a point that was registered for it.
    pub(crate) fn of_hold(owner: &Arc<Owner>, hold: Hold) -> Snapshot {
        Snapshot { hold, owner: owner.clone() }
    }

    /// The read point of the snapshot.
    pub fn read_point(&self) -> ReadPoint {
        self.engine().read_point(self.hold.point())
    }

    #[cfg(test)]
    pub(crate) fn point(&self) -> Lsn {
        self.hold.point()
    }

    /// Reads of `family` at this read point.
    #[inline]
    pub fn of<'a>(&'a self, family: &'a Family) -> Reads<'a> {
        let point = Some(self.hold.registered());
        Reads::new(self.engine(), family, point, ReadOptions::default())
    }

    /// The snapshot, read with these options.
    #[inline]
    pub fn with(&self, options: ReadOptions) -> Reads<'_> {
        Reads::at_place(self.place(options))
    }

    #[inline]
    fn engine(&self) -> &Arc<Engine> {
        self.owner.engine()
    }

    #[inline]
    fn place(&self, options: ReadOptions) -> ReadAt<'_> {
        let engine = self.engine();
        let (family, point) = (&engine.default_family, Some(self.hold.registered()));
        ReadAt { engine, family, point, options }
    }

    #[inline]
    fn at(&self) -> Result<ReadAt<'_>> {
        Ok(self.place(ReadOptions::default()))
    }

    fn part<'a>(&'a self, family: &'a Family) -> Reads<'a> {
        self.of(family)
    }
}

impl Clone for Snapshot {
    fn clone(&self) -> Snapshot {
        let hold = self.engine().points.hold_again(&self.hold);
        Snapshot { owner: self.owner.clone(), hold }
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        self.engine().points.release(&self.hold);
    }
}

impl std::fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Snapshot({})", self.hold.point())
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use crate::Options;

    #[test]
    fn a_snapshot_reads_its_own_moment_in_every_way_and_holds_it_while_it_lives() {
        let db = Options::in_memory().open("/db").unwrap();
        let family = db.family("other").unwrap();
        db.put("key", "before").unwrap();
        family.put("key", "there").unwrap();
        let held = || db.engine().points.held();
        let snapshot = db.snapshot();
        assert_eq!(held(), (1, Some(snapshot.point())));
        for value in ["after", "later"] {
            db.put("key", value).unwrap();
            family.put("key", value).unwrap();
            assert_eq!(snapshot.get("key").unwrap().unwrap(), b"before");
            assert_eq!(snapshot.of(&family).get("key").unwrap().unwrap(), b"there");
            assert!(snapshot.get("else").unwrap().is_none());
            let first = |mut range: crate::Range| range.next().unwrap().unwrap().1;
            assert_eq!(first(snapshot.range(..)), b"before");
            assert_eq!(first(snapshot.of(&family).range(..)), b"there");
            let mut cursor = snapshot.cursor(..).unwrap();
            assert_eq!(cursor.first().unwrap().unwrap().value().unwrap(), b"before");
            let mut cursor = snapshot.of(&family).cursor(..).unwrap();
            assert_eq!(cursor.last().unwrap().unwrap().value().unwrap(), b"there");
            db.flush().unwrap();
            db.compact().unwrap();
        }
        assert_eq!(format!("{snapshot:?}"), format!("Snapshot({})", snapshot.point()));
        drop(snapshot);
        assert_eq!(held(), (0, None));
    }
}
