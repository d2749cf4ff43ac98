//! Creating, dropping and renaming column families.
//!
//! Each is a record in the log, hardened, then an edit in the manifest. The record puts the change at a place in
//! history, between the commits before and after it; the edit is what opens read. On disk, step by step:
//!
//! 1. the record is reserved and copied; power loss here loses an unacknowledged change
//! 2. the log is hardened through it: from here on recovery applies the change from the log
//! 3. the edit is appended and synced: from here on the record is a repetition, which recovery skips
//!
//! The manifest never overtakes the log, and ids are never reused, so neither order of loss revives a family or
//! mixes two up.

use crate::compact;
use crate::components::{Plant, planted};
use crate::engine::{Engine, Family};
use crate::error::{Error, Result};
use crate::events::Event;
use crate::format::{DEFAULT_FAMILY, Lsn, Payload, put_payload};
use crate::limits::check_family_name;
use crate::options::FamilyOptions;
use crate::version::{Change, Edit, Tree};
use crate::wal::{self, RECORD_HEADER_LEN};
use std::sync::Arc;
use std::time::Duration;

/// How long a change that found no room on the disk waits before it tries again.
const RETRY_PAUSE: Duration = Duration::from_millis(50);

/// Creates a family.
pub(crate) fn create_family(
    engine: &Arc<Engine>,
    name: &str,
    options: FamilyOptions,
) -> Result<Arc<Family>> {
    check_family_name(name)?;
    options.check()?;
    engine.check_writable()?;
    let _changing = engine.families_change.lock();
    if engine.families.contains_name(name) {
        return Err(Error::FamilyExists(name.to_owned()));
    }
    let id = engine.versions.lock().state().next_family();
    let json = options.to_json();
    let lsn = log_change(engine, &Payload::FamilyCreate { id, name, options: &json }, |_| ())?;
    install(
        engine,
        Change::CreateFamily { family: id, name: name.to_owned(), options: json, lsn },
    )?;
    let family = Arc::new(Family::new(id, name, options, lsn, Arc::new(Tree::default())));
    engine.families.insert(family.clone());
    Ok(family)
}

/// Drops a family: its keys are gone; its memory and files go once no snapshot from before needs them.
pub(crate) fn drop_family(engine: &Arc<Engine>, family: &Arc<Family>) -> Result<()> {
    engine.check_writable()?;
    if family.id == DEFAULT_FAMILY {
        return Err(Error::InvalidArgument("the default column family cannot be dropped".into()));
    }
    let _changing = engine.families_change.lock();
    if family.is_dropped() {
        return Err(Error::UnknownFamily(family.name().to_string()));
    }
    let lsn =
        log_change(engine, &Payload::FamilyDrop { id: family.id }, |lsn| family.mark_dropped(lsn))?;
    // From here on merges of the family no longer install: they find it gone, under the same lock.
    if !planted(Plant::FamilyHalfDropped) {
        install(engine, Change::DropFamily { family: family.id, lsn })?;
    }
    engine.families.remove(family.id);
    engine.snapshots.let_go(family);
    compact::forget(engine, family);
    Ok(())
}

/// Gives a family another name.
pub(crate) fn rename_family(engine: &Arc<Engine>, family: &Arc<Family>, name: &str) -> Result<()> {
    check_family_name(name)?;
    engine.check_writable()?;
    if family.id == DEFAULT_FAMILY {
        return Err(Error::InvalidArgument("the default column family cannot be renamed".into()));
    }
    let _changing = engine.families_change.lock();
    if family.is_dropped() {
        return Err(Error::UnknownFamily(family.name().to_string()));
    }
    if engine.families.contains_name(name) {
        return Err(Error::FamilyExists(name.to_owned()));
    }
    let lsn = log_change(engine, &Payload::FamilyRename { id: family.id, name }, |_| ())?;
    install(engine, Change::RenameFamily { family: family.id, name: name.to_owned(), lsn })?;
    engine.families.rename(family.id, name);
    Ok(())
}

/// Puts a record into the log and hardens it. `mark` is told its LSN before any reader is above it.
fn log_change(engine: &Engine, payload: &Payload<'_>, mark: impl FnOnce(Lsn)) -> Result<Lsn> {
    let mut record = vec![0; RECORD_HEADER_LEN];
    put_payload(&mut record, payload);
    let mut record = wal::seal(&mut record);
    let mut reservation = engine.log.reserve(record.len() as u64)?;
    reservation.write(&mut record);
    let (start, end) = (reservation.start(), reservation.end());
    mark(start);
    reservation.publish();
    engine.log.wait_visible(end)?;
    if !planted(Plant::FamilyNotHardened) {
        engine.log.harden(end)?;
    }
    Ok(start)
}

/// Installs a change whose record is in the log already: it cannot be taken back, so on a full disk this waits
/// for room.
fn install(engine: &Engine, change: Change) -> Result<()> {
    const JOB: &str = "change of a column family";
    let edit = Edit::new(vec![change]);
    let mut is_told = false;
    loop {
        let Err(error) = engine.versions.lock().install(edit.clone(), &[]) else { return Ok(()) };
        if !error.is_retryable() || engine.check_writable().is_err() {
            engine.poison(JOB, error.clone());
            return Err(Error::OutcomeUnknown(error.to_string()));
        }
        if !std::mem::replace(&mut is_told, true) {
            engine.tell(Event::BackgroundError { job: JOB, error });
        }
        engine.options.components.threads.sleep(RETRY_PAUSE);
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use crate::engine::Owed;
    use crate::options::Options;

    #[test]
    fn a_dropped_family_paces_nobody() {
        let db = Options::in_memory().open("/db").unwrap();
        let family = db.create_family("crowded").unwrap();
        let engine = db.engine();
        let owed = Owed { bytes: 3 << 20, batch_debt: 1 << 20, batch_bytes: 1 << 20 };
        engine.backlog.lock().note(family.id(), Some(owed));
        let (excess, drain) = engine.backlog.lock().pressure();
        engine.pacer.set_merges(excess, drain);
        let admit = || engine.pacer.admit(1 << 30, true, || 0.0);
        admit().unwrap();
        admit().unwrap_err();
        db.drop_family(&family).unwrap();
        assert_eq!(engine.backlog.lock().pressure().0, 0.0);
        admit().unwrap();
        admit().unwrap();
    }

    #[test]
    fn a_dropped_family_keeps_only_the_memory_that_a_snapshot_sees() {
        let db = Options::in_memory().open("/db").unwrap();
        let family = db.create_family("family").unwrap();
        let memtables =
            |family: &crate::ColumnFamily| family.of(db.engine()).unwrap().view().memtables.len();
        db.put_in(&family, "key", "value").unwrap();
        let snapshot = db.snapshot();
        db.flush().unwrap();
        db.put_in(&family, "key", "of another epoch").unwrap();
        assert_eq!(memtables(&family), 1);
        db.drop_family(&family).unwrap();
        assert_eq!(memtables(&family), 0);
        assert_eq!(snapshot.get_in(&family, "key").unwrap().unwrap(), b"value");
        let family = db.create_family("family").unwrap();
        db.put_in(&family, "key", "value").unwrap();
        let snapshot = db.snapshot();
        db.drop_family(&family).unwrap();
        db.flush().unwrap();
        assert_eq!(memtables(&family), 1);
        assert_eq!(snapshot.get_in(&family, "key").unwrap().unwrap(), b"value");
        drop(snapshot);
        assert_eq!(memtables(&family), 0);
    }
}
