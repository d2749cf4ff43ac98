//! Closing a database.
//!
//! 1. new calls are refused
//! 2. what is in memory is flushed to tables; power loss here costs nothing that the log does not hold
//! 3. jobs are cancelled and waited for; outputs that were not installed are orphans, which the next open removes
//! 4. the log is hardened and ended
//! 5. one edit says that the close was clean: the next open replays what a racing commit left, or nothing
//! 6. the lock is given up

use crate::components::sync::atomic::Ordering;
use crate::engine::Engine;
use crate::error::Result;
use crate::version::{Change, Edit};
use crate::write;
use std::sync::Arc;

/// Closes the database. A second call does nothing.
pub(crate) fn close(engine: &Arc<Engine>) -> Result<()> {
    if engine.closed.swap(true, Ordering::SeqCst) {
        return Ok(());
    }
    // Whoever changes families finishes first: its record and its edit belong together.
    let _changing = engine.families_change.lock();
    let flushed = engine.log.check_healthy().and_then(|()| write::flush_now(engine));
    engine.compactors.close();
    engine.upkeep.close();
    engine.flusher.close();
    engine.remove_dead_files();
    let hardened = engine.log.close();
    let noted = flushed.and(hardened).and_then(|()| {
        let end = engine.log.tail();
        // `replay from` stays where the last flush put it: a commit that raced the close is in the log only.
        let edit = Edit::new(vec![Change::DurableLsn { lsn: end }, Change::CleanClose { end }]);
        engine.versions.lock().install(edit, &[]).map(|_| ())
    });
    engine.versions.lock().files().graveyard().shut();
    engine.lock.lock().take();
    noted
}

#[cfg(test)]
mod tests {
    use crate::batch::Batch;
    use crate::components::Components;
    use crate::options::Options;
    use crate::vfs::MemoryFs;
    use crate::wal;
    use std::sync::Arc;

    #[test]
    fn a_commit_that_races_the_close_is_there_at_the_next_open() {
        let fs = Arc::new(MemoryFs::new());
        let options = Options::new().components(Components { fs, ..Components::system() });
        let db = options.open("/db").unwrap();
        db.put("before", "value").unwrap();
        let engine = db.engine().clone();
        let mut batch = Batch::new();
        batch.put("racing", "value").unwrap();
        let (record, _, _) = batch.parts();
        wal::seal(record);
        // A writer that was admitted, and is in the log, but not in a memtable yet.
        let mut reservation = engine.log.reserve(record.len() as u64).unwrap();
        reservation.write(record);
        super::close(&engine).unwrap();
        reservation.publish();
        drop((db, engine));
        let db = options.open("/db").unwrap();
        assert_eq!(db.get("before").unwrap().unwrap(), b"value");
        assert_eq!(db.get("racing").unwrap().unwrap(), b"value");
    }
}
