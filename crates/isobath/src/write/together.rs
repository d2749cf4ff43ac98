//! Commits over several families.
//!
//! What a commit writes to a family that was dropped before it is gone. In one family alone that is
//! what a commit before the drop would have come to. Over several it would be half a commit: so if
//! one of its families is dropped before it, none is written.

use super::announce::Course;
use super::commit::check_family;
use crate::engine::{Engine, Keyspace};
use crate::error::Result;
use crate::format::Lsn;

/// The course of a commit that may name several families.
pub(crate) struct Together<'a, F, C> {
    engine: &'a Engine,
    /// The drops before the families were checked; `None` if it names the default family alone,
    /// which stays, or one family.
    drops: Option<u64>,
    /// The bytes that it takes in the log.
    record_len: u64,
    /// Lists the families.
    families: F,
    course: C,
}

impl<'a, F, C> Together<'a, F, C> {
    #[inline(always)]
    pub(crate) fn new(engine: &'a Engine, drops: Option<u64>, families: F, course: C) -> Self {
        Together { engine, drops, record_len: 0, families, course }
    }
}

impl<'f, F, C, I> Course for Together<'_, F, C>
where
    F: Fn() -> I,
    I: Iterator<Item = &'f Keyspace>,
    C: Course,
{
    #[inline(always)]
    fn prepare(&mut self, record: &[u8]) -> Result<()> {
        self.record_len = record.len() as u64;
        self.course.prepare(record)
    }

    #[inline(always)]
    fn settle(&mut self, lsn: Lsn) -> Result<bool> {
        if let Some(drops) = self.drops
            && self.engine.families.may_have_dropped(drops)
        {
            // A drop is marked before it is visible.
            self.engine.log.wait_predecessors(lsn)?;
            (self.families)().try_for_each(check_family).inspect_err(|_| {
                self.engine.gauges.reserved_bytes_skipped.add(self.record_len);
            })?;
        }
        self.course.settle(lsn)
    }

    #[inline(always)]
    fn finish(&mut self, lsn: Lsn) {
        self.course.finish(lsn);
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use crate::env::Env;
    use crate::options::Options;
    use crate::vfs::MemoryFs;
    use crate::{Batch, Db, Family, Result};
    use std::sync::Arc;

    fn open(fs: &MemoryFs) -> Db {
        let fs = Arc::new(fs.clone());
        Options::new().env(Env { fs, ..Env::system() }).open("/db").unwrap()
    }

    /// Has a write to both families wait for a lock while one of them is dropped.
    fn overtake(write: impl Fn(&Db, [&Family; 2]) -> Result<()> + Sync) {
        let fs = MemoryFs::new();
        let db = open(&fs);
        let [dropped, other] = ["dropped", "other"].map(|name| db.family(name).unwrap());
        let holder = db.begin();
        holder.of(&other).get_for_update("key").unwrap();
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| write(&db, [&dropped, &other]));
            while db.engine().locks.sleepers() == 0 && !writer.is_finished() {
                std::thread::yield_now();
            }
            let families = &db.engine().families;
            let before = families.drops();
            db.drop_family(&dropped).unwrap();
            assert!(families.may_have_dropped(before));
            assert!(!families.may_have_dropped(families.drops()), "the drop has ended");
            holder.rollback();
            let told = writer.join().unwrap().unwrap_err();
            assert_eq!(told.name(), "UNKNOWN_FAMILY", "{told}");
        });
        assert!(other.get("key").unwrap().is_none());
        other.put("key", "later").unwrap();
        let left = open(&fs.killed()).family("other").unwrap();
        assert_eq!(left.get("key").unwrap().unwrap(), "later");
    }

    #[test]
    fn a_drop_that_is_under_way_may_come_before_a_write_that_begins() {
        let families = crate::engine::Families::default();
        for is_under_way in [false, true, false] {
            assert_eq!(families.may_have_dropped(families.drops()), is_under_way);
            families.note_drop();
        }
    }

    #[test]
    fn a_batch_of_which_a_family_is_dropped_before_it_changes_no_other() {
        overtake(|db, families| {
            let mut batch = Batch::new();
            for family in families {
                batch.of(family).put("key", "value");
            }
            db.write(&mut batch).map(drop)
        });
    }

    #[test]
    fn a_transaction_that_only_writes_changes_no_family_if_one_is_dropped_before_it() {
        overtake(|db, families| {
            db.transact(|tx| {
                families.iter().try_for_each(|family| tx.of(family).put("key", "value"))
            })
        });
    }
}
