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
//! mixes two up. Nor does a flush overtake the manifest: one that would move `replay from` over the record waits until
//! the edit holds ([`Logged`]), or a crash in between would lose the change and keep what came after it.

use crate::compact;
use crate::components::sync::MutexGuard;
use crate::components::{Plant, planted};
use crate::engine::{Engine, Keyspace};
use crate::error::{Error, Result};
use crate::events::Event;
use crate::format::{DEFAULT_FAMILY, FamilyId, Lsn, Payload, put_payload};
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
) -> Result<Arc<Keyspace>> {
    check_family_name(name)?;
    options.check_asked()?;
    engine.check_writable()?;
    let _changing = engine.families_change.lock();
    if engine.families.contains_name(name) {
        return Err(Error::FamilyExists(name.to_owned()));
    }
    let id = engine.versions.lock().state().next_family();
    if id == FamilyId::MAX {
        return Err(Error::InvalidArgument("the ids for column families are used up".into()));
    }
    let json = options.to_json();
    let logged = log_change(engine, &Payload::FamilyCreate { id, name, options: &json }, |_| ())?;
    let lsn = logged.lsn;
    logged.install(Change::CreateFamily {
        family: id,
        name: name.to_owned(),
        options: json,
        lsn,
    })?;
    let family = Arc::new(Keyspace::new(id, name, options, lsn, Arc::new(Tree::default())));
    engine.families.insert(family.clone());
    Ok(family)
}

/// Drops a family: its keys are gone; its memory and files go once no snapshot from before needs them.
pub(crate) fn drop_family(engine: &Arc<Engine>, family: &Arc<Keyspace>) -> Result<()> {
    engine.check_writable()?;
    if family.id == DEFAULT_FAMILY {
        return Err(Error::InvalidArgument("the default column family cannot be dropped".into()));
    }
    let _changing = engine.families_change.lock();
    if family.is_dropped() {
        return Err(Error::UnknownFamily(family.name().to_string()));
    }
    let mut logged =
        log_change(engine, &Payload::FamilyDrop { id: family.id }, |lsn| family.mark_dropped(lsn))?;
    // From here on merges of the family no longer install: they find it gone, under the same lock.
    if planted(Plant::FamilyHalfDropped) {
        logged.is_settled = true;
    } else {
        let lsn = logged.lsn;
        logged.install(Change::DropFamily { family: family.id, lsn })?;
    }
    engine.families.remove(family.id);
    engine.snapshots.let_go(family);
    compact::forget(engine, family);
    Ok(())
}

/// Gives a family another name.
pub(crate) fn rename_family(
    engine: &Arc<Engine>,
    family: &Arc<Keyspace>,
    name: &str,
) -> Result<()> {
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
    let logged = log_change(engine, &Payload::FamilyRename { id: family.id, name }, |_| ())?;
    let lsn = logged.lsn;
    logged.install(Change::RenameFamily { family: family.id, name: name.to_owned(), lsn })?;
    engine.families.rename(family.id, name);
    Ok(())
}

/// A change that is in the log and not in the manifest yet. No flush installs meanwhile: it takes the same lock once all
/// that it flushes is visible, and this one was taken before the record was.
struct Logged<'engine> {
    engine: &'engine Engine,
    lsn: Lsn,
    is_settled: bool,
    _pending: MutexGuard<'engine, ()>,
}

impl Drop for Logged<'_> {
    /// A change that is given up halfway, by a panic, is known to memory and log alone.
    fn drop(&mut self) {
        if !self.is_settled {
            let cause = "a change of a column family was given up after it was logged".to_owned();
            self.engine.log.poison(&Error::Poisoned(cause));
        }
    }
}

/// Puts a record into the log and hardens it. `mark` is told its LSN before any reader is above it.
fn log_change<'engine>(
    engine: &'engine Engine,
    payload: &Payload<'_>,
    mark: impl FnOnce(Lsn),
) -> Result<Logged<'engine>> {
    let mut record = vec![0; RECORD_HEADER_LEN];
    put_payload(&mut record, payload);
    let mut record = wal::seal(&mut record);
    let mut reservation = engine.log.reserve(record.len() as u64)?;
    let (start, end) = (reservation.start(), reservation.end());
    let pending = engine.families_pending.lock();
    let logged = Logged { engine, lsn: start, is_settled: false, _pending: pending };
    reservation.write(&mut record);
    mark(start);
    reservation.publish();
    engine.log.wait_visible(end)?;
    if !planted(Plant::FamilyNotHardened) {
        engine.log.harden(end)?;
    }
    Ok(logged)
}

impl Logged<'_> {
    /// Puts the change into the manifest. It cannot be taken back, so on a full disk this waits for room.
    fn install(mut self, change: Change) -> Result<()> {
        const JOB: &str = "change of a column family";
        let engine = self.engine;
        let edit = Edit::new(vec![change]);
        let mut is_told = false;
        loop {
            let installed = engine.versions.lock().install(edit.clone(), &[]);
            let Err(error) = installed else {
                self.is_settled = true;
                return Ok(());
            };
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
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use crate::components::{Components, Priority, SystemThreads, ThreadHandle, Threads};
    use crate::engine::Owed;
    use crate::error::Error;
    use crate::events::Event;
    use crate::format::FamilyId;
    use crate::options::{Options, WriteOptions};
    use crate::version::{Change, Edit};
    use crate::vfs::{Fault, FileOp, MemoryFs};
    use std::io::ErrorKind;
    use std::sync::{Arc, mpsc};
    use std::thread;
    use std::time::{Duration, Instant};

    fn over(fs: &MemoryFs) -> Options {
        let fs = Arc::new(fs.clone());
        Options::new().components(Components { fs, ..Components::system() })
    }

    /// The change's first edit finds no room.
    fn fill_up(fs: &MemoryFs) {
        fs.inject(Fault::on(FileOp::Write).kind(ErrorKind::StorageFull));
    }

    #[test]
    #[allow(clippy::disallowed_methods)] // A test may have threads of its own.
    fn no_flush_makes_a_commit_outlive_the_drop_before_it() {
        let fs = MemoryFs::new();
        let (told, is_told) = mpsc::channel();
        let (may_go_on, go_on) = mpsc::channel::<()>();
        let channels = crate::components::sync::Mutex::unranked((told, go_on));
        let listener = move |event: &Event| {
            if matches!(event, Event::BackgroundError { job: "change of a column family", .. }) {
                let channels = channels.lock();
                channels.0.send(()).unwrap();
                let _ = channels.1.recv();
            }
        };
        let db = over(&fs).listener(Arc::new(listener)).open("/db").unwrap();
        let family = db.create_family("family").unwrap();
        family.put("key", "value").unwrap();
        fill_up(&fs);
        let left = thread::scope(|scope| {
            let dropper = scope.spawn(|| db.drop_family(&family));
            is_told.recv().unwrap();
            // The drop is in the log, and its thread is held up.
            db.with(WriteOptions::sync()).put("later", "value").unwrap();
            let flusher = scope.spawn(|| db.flush());
            let began = Instant::now();
            while !flusher.is_finished() && began.elapsed() < Duration::from_millis(300) {
                thread::sleep(Duration::from_millis(5));
            }
            let left = fs.killed();
            drop(may_go_on);
            dropper.join().unwrap().unwrap();
            flusher.join().unwrap().unwrap();
            left
        });
        let db = over(&left).open("/db").unwrap();
        assert_eq!(db.get("later").unwrap().unwrap(), b"value");
        assert!(matches!(db.family("family"), Err(Error::UnknownFamily(_))));
    }

    /// Threads that do not sleep.
    struct Sleepless;

    impl Threads for Sleepless {
        fn spawn(
            &self,
            name: String,
            priority: Priority,
            body: Box<dyn FnOnce() + Send>,
        ) -> std::io::Result<Box<dyn ThreadHandle>> {
            SystemThreads.spawn(name, priority, body)
        }
        fn sleep(&self, _: Duration) {
            panic!("planted");
        }
        fn parallelism(&self) -> usize {
            1
        }
    }

    #[test]
    #[allow(clippy::disallowed_methods)] // A test may have threads of its own.
    fn a_change_that_a_panic_cuts_in_half_is_the_last() {
        let fs = MemoryFs::new();
        let components = Components {
            fs: Arc::new(fs.clone()),
            threads: Arc::new(Sleepless),
            ..Components::system()
        };
        let db = Options::new().components(components).open("/db").unwrap();
        db.create_family("first").unwrap();
        fill_up(&fs);
        let other = db.clone();
        assert!(thread::spawn(move || other.create_family("second").map(drop)).join().is_err());
        assert!(matches!(db.create_family("third"), Err(Error::Poisoned(_))));
        drop(db);
        let db = over(&fs).open("/db").unwrap();
        assert_eq!(db.list_families(), ["default", "first", "second"]);
    }

    #[test]
    fn a_family_whose_drop_was_not_confirmed_is_not_found() {
        let fs = MemoryFs::new();
        let db = over(&fs).open("/db").unwrap();
        let family = db.create_family("family").unwrap();
        fs.inject(Fault::on(FileOp::Harden));
        db.drop_family(&family).unwrap_err();
        assert!(matches!(family.get("key"), Err(Error::UnknownFamily(_))));
        assert!(matches!(db.family("family"), Err(Error::UnknownFamily(_))));
        assert_eq!(db.list_families(), ["default"]);
    }

    /// Ids are never reused, and no database makes four billion families: only damage or a forger gets there.
    #[test]
    fn the_last_id_is_given_to_no_family() {
        let fs = MemoryFs::new();
        let db = over(&fs).open("/db").unwrap();
        let skip = Edit::new(vec![Change::NextFamily { family: FamilyId::MAX - 1 }]);
        db.engine().versions.lock().install(skip, &[]).unwrap();
        let last = db.create_family("last").unwrap();
        assert_eq!(last.id(), FamilyId::MAX - 1);
        last.put("key", "value").unwrap();
        let refused = db.create_family("one more").unwrap_err();
        assert!(refused.to_string().contains("ids for column families are used up"), "{refused}");
        db.with(WriteOptions::sync()).put("key", "value").unwrap();
        // By what the log says, by the manifest, and by what a close left.
        let mut left = fs.killed();
        for _ in 0..3 {
            let db = over(&left).open("/db").unwrap();
            assert_eq!(db.list_families(), ["default", "last"]);
            assert_eq!(db.family("last").unwrap().get("key").unwrap().unwrap(), b"value");
            assert!(matches!(db.create_family("one more"), Err(Error::InvalidArgument(_))));
            left = left.killed();
        }
    }

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
            |family: &crate::Family| family.of(db.engine()).unwrap().view().memtables.len();
        family.put("key", "value").unwrap();
        let snapshot = db.snapshot();
        db.flush().unwrap();
        family.put("key", "of another epoch").unwrap();
        assert_eq!(memtables(&family), 1);
        db.drop_family(&family).unwrap();
        assert_eq!(memtables(&family), 0);
        assert_eq!(snapshot.of(&family).get("key").unwrap().unwrap(), b"value");
        let family = db.create_family("family").unwrap();
        family.put("key", "value").unwrap();
        let snapshot = db.snapshot();
        db.drop_family(&family).unwrap();
        db.flush().unwrap();
        assert_eq!(memtables(&family), 1);
        assert_eq!(snapshot.of(&family).get("key").unwrap().unwrap(), b"value");
        drop(snapshot);
        assert_eq!(memtables(&family), 0);
    }
}
