//! Creating, dropping and renaming column families, and changing their options.
//!
//! All but a change of options are a record in the log, synced, then an edit in the manifest. The
//! record gives the change its place in history, between the commits before and after it. The edit
//! is what opens read. On disk, step by step:
//!
//! 1. the record is reserved and copied; power loss here loses an unacknowledged change
//! 2. the log is synced through the record: from here on recovery applies the change from the log
//! 3. the edit is appended and synced: from here on the record is a repetition, which recovery
//!    skips
//!
//! The manifest never overtakes the log, and ids are never reused, so a loss at any step neither
//! revives a family nor confuses two. A flush does not overtake the manifest either. A flush that
//! would move `replay from` past the record waits until the edit holds ([`Logged`]); otherwise a
//! crash in between would lose the change and keep what came after it.
//!
//! Several families that are created at once have a record each, in one reservation of the log, and
//! share the sync and the edit. Power loss in step 1 keeps a prefix of the records: only the first
//! few of the families exist, with nothing in them, or none. From step 2 on all of them exist.
//! Their ids ascend with their LSNs, so creating them one by one passes through the same states.
//!
//! A change of options is only an edit, so after a power cut either the old options hold or the new
//! ones.

use super::announce::{Course, Plain, Targets};
use super::changing::Changing;
use super::commit::reserve;
use crate::compact;
use crate::engine::{Engine, Keyspace};
use crate::env::sync::MutexGuard;
use crate::env::{Plant, planted};
use crate::error::{Error, PoisonCause, Result};
use crate::family_spec::FamilySpec;
use crate::format::{DEFAULT_FAMILY, FamilyId, Lsn, Payload, put_payload};
use crate::limits::check_family_name;
use crate::options::FamilyOptions;
use crate::version::{Change, Edit, Tree, VersionSet};
use crate::wal::{self, RECORD_HEADER_LEN};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// How long a change that found no room on the disk waits before it tries again.
const RETRY_PAUSE: Duration = Duration::from_millis(50);

/// The most new families that are logged and installed together.
const AT_ONCE_MAX: usize = 1000;

/// A family that is to be created.
struct New {
    id: FamilyId,
    name: String,
    options: FamilyOptions,
}

/// Opens these families, and creates those that do not exist: up to a thousand new ones by one sync
/// of the log and one edit. Options that a spec gives become the family's options.
pub(crate) fn open_families(
    engine: &Arc<Engine>,
    specs: &[FamilySpec],
) -> Result<Vec<Arc<Keyspace>>> {
    for spec in specs {
        check_family_name(&spec.name)?;
        spec.options.iter().try_for_each(|options| engine.options.check_family(options))?;
    }
    engine.check_open()?;
    let by_name = || specs.iter().map(|spec| engine.families.by_name(&spec.name)).collect();
    let is_reader = engine.shown.is_some();
    if is_reader || specs.iter().all(|spec| spec.options.is_none()) {
        let known: Result<Vec<_>> = by_name();
        if let Ok(known) = known
            && are_as_asked(&known, specs)?
        {
            return Ok(known);
        }
    }
    let mut changing = Changing::begin(engine)?;
    specs.chunks(AT_ONCE_MAX).try_for_each(|specs| create_or_change(&mut changing, specs))?;
    by_name()
}

/// True if none of these families would get other options.
fn are_as_asked(known: &[Arc<Keyspace>], specs: &[FamilySpec]) -> Result<bool> {
    for (family, spec) in known.iter().zip(specs) {
        let Some(mut options) = spec.options.clone() else { continue };
        options.take_over(&family.options())?;
        if *family.options() != options {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Creates the families that do not exist, and sets the options that differ.
fn create_or_change(changing: &mut Changing<'_>, specs: &[FamilySpec]) -> Result<()> {
    let engine = changing.engine;
    let (mut news, mut places) = (Vec::<New>::new(), BTreeMap::<&String, usize>::new());
    let mut changed = BTreeMap::new();
    let next_family = engine.versions.lock().state().next_family();
    for FamilySpec { name, options } in specs {
        match (engine.families.by_name(name), places.get(name), options) {
            (Ok(family), _, Some(options)) => {
                changed.insert(family.id, (family, options.clone()));
            }
            (Ok(_), _, None) | (Err(_), Some(_), None) => {}
            (Err(_), Some(place), Some(options)) => news[*place].options = options.clone(),
            (Err(_), None, options) => {
                // A family of this name was dropped, but the drop failed before its edit and never
                // will be confirmed.
                if engine.families.contains_name(name) {
                    return Err(Error::family_exists(name));
                }
                let id = next_family.saturating_add(news.len() as FamilyId);
                if id == FamilyId::MAX {
                    let spent = "the ids for column families are used up";
                    return Err(Error::invalid_argument(spent));
                }
                places.insert(name, news.len());
                let options = options.clone().unwrap_or_else(|| engine.options.new_family());
                news.push(New { id, name: name.clone(), options });
            }
        }
    }
    set_options(changing, changed.into_values().collect())?;
    if news.is_empty() { Ok(()) } else { create(changing, news) }
}

/// Creates families. After a power cut before the log is synced, only those whose records it kept
/// exist: the first few, or none. After that point all of them exist.
fn create(changing: &mut Changing<'_>, news: Vec<New>) -> Result<()> {
    let engine = changing.engine;
    debug_assert!(
        news.is_sorted_by(|one, next| one.id < next.id),
        "ids ascend with the LSNs of their records"
    );
    let jsons: Vec<_> = news.iter().map(|new| new.options.to_stored()).collect();
    let payloads: Vec<_> = std::iter::zip(&news, &jsons)
        .map(|(new, options)| Payload::FamilyCreate { id: new.id, name: &new.name, options })
        .collect();
    let logged = log_changes(changing, &payloads, None, |_| ())?;
    let lsns = logged.lsns.clone();
    let change = |((new, options), lsn): ((&New, Vec<u8>), &Lsn)| Change::CreateFamily {
        family: new.id,
        name: new.name.clone(),
        options,
        lsn: *lsn,
    };
    logged.install(changing, news.iter().zip(jsons).zip(&lsns).map(change).collect())?;
    for (New { id, name, options }, lsn) in std::iter::zip(news, lsns) {
        let family = Keyspace::new(id, &name, options, lsn, Arc::new(Tree::default()));
        engine.families.insert(Arc::new(family));
    }
    Ok(())
}

/// Changes the options of families. Only the manifest stores them: no commit depends on which
/// options hold. If the disk is full, the old options stay. But if the process ends before another
/// edit, the next open may find the new ones.
fn set_options(
    changing: &mut Changing<'_>,
    mut changed: Vec<(Arc<Keyspace>, FamilyOptions)>,
) -> Result<()> {
    let engine = changing.engine;
    // Keep the merge operator, and options of a later version that this version does not know.
    for (family, options) in &mut changed {
        options.take_over(&family.options())?;
    }
    changed.retain(|(family, options)| *family.options() != *options);
    let change = |(family, options): &(Arc<Keyspace>, FamilyOptions)| Change::SetFamilyOptions {
        family: family.id,
        options: options.to_stored(),
    };
    let installed = match &*changed {
        // These options hold. But the next open may find others, from a call that has failed.
        [] => engine.versions.lock().settle_doubt(),
        _ => {
            let edit = Edit::new(changed.iter().map(change).collect());
            engine.versions.lock().install(edit, &[]).map(drop)
        }
    };
    installed.map_err(|error| match error {
        refused if refused.is_retryable() || refused.is_closed() => refused,
        error => changing.give_up(error),
    })?;
    for (family, options) in changed {
        family.set_options(options);
        compact::schedule(engine, &family);
    }
    Ok(())
}

/// Changes the options of a family. Data written from now on uses them.
pub(crate) fn set_family_options(
    engine: &Arc<Engine>,
    family: &Arc<Keyspace>,
    options: FamilyOptions,
) -> Result<()> {
    engine.options.check_family(&options)?;
    let mut changing = Changing::begin(engine)?;
    if family.is_dropped() {
        return Err(Error::unknown_family(&family.name()));
    }
    set_options(&mut changing, vec![(family.clone(), options)])
}

/// Drops a family. Its keys are gone at once; its memory and files are freed when no earlier
/// snapshot needs them.
pub(crate) fn drop_family(engine: &Arc<Engine>, family: &Arc<Keyspace>) -> Result<()> {
    engine.check_writable()?;
    if family.id == DEFAULT_FAMILY {
        return Err(Error::invalid_argument("the default column family cannot be dropped"));
    }
    let mut changing = Changing::begin(engine)?;
    if family.is_dropped() {
        return Err(Error::unknown_family(&family.name()));
    }
    let _dropping = Dropping::begin(engine, family)?;
    let payload = Payload::FamilyDrop { id: family.id };
    let mark = |lsn| family.mark_dropped(lsn);
    let mut logged = log_changes(&changing, &[payload], Some(family), mark)?;
    // Once this edit is installed, no compaction of the family is: it looks for the family under
    // the same lock, and finds it gone.
    if planted(Plant::FamilyHalfDropped) {
        logged.is_settled = true;
    } else {
        let lsn = logged.lsns[0];
        logged.install(&mut changing, vec![Change::DropFamily { family: family.id, lsn }])?;
    }
    engine.families.remove(family.id);
    engine.points.let_go(family);
    compact::forget(engine, family);
    Ok(())
}

/// The drop of a family that no transaction in doubt names, nor any that is about to be prepared.
struct Dropping<'a> {
    engine: &'a Engine,
    family: FamilyId,
}

impl<'a> Dropping<'a> {
    fn begin(engine: &'a Engine, family: &Keyspace) -> Result<Dropping<'a>> {
        engine.prepared.begin_drop(family.id).map_err(|xid| {
            Error::invalid_argument(format!(
                "the prepared transaction \"{xid}\", which is in doubt, names column family {:?}; commit it or roll it \
                 back first",
                &*family.name()
            ))
        })?;
        engine.families.note_drop();
        Ok(Dropping { engine, family: family.id })
    }
}

impl Drop for Dropping<'_> {
    fn drop(&mut self) {
        self.engine.families.note_drop();
        self.engine.prepared.end_drop(self.family);
    }
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
        return Err(Error::invalid_argument("the default column family cannot be renamed"));
    }
    let mut changing = Changing::begin(engine)?;
    if family.is_dropped() {
        return Err(Error::unknown_family(&family.name()));
    }
    if engine.families.contains_name(name) {
        return Err(Error::family_exists(name));
    }
    let payload = Payload::FamilyRename { id: family.id, name };
    let logged = log_changes(&changing, &[payload], None, |_| ())?;
    let (lsn, name) = (logged.lsns[0], name.to_owned());
    let renamed = Change::RenameFamily { family: family.id, name: name.clone(), lsn };
    logged.install(&mut changing, vec![renamed])?;
    engine.families.rename(family.id, &name);
    Ok(())
}

/// Changes that are in the log and not yet in the manifest. No flush is installed meanwhile: a
/// flush takes the `families_pending` lock once everything it flushes is visible, and the change
/// took that lock before its record became visible.
struct Logged<'engine> {
    engine: &'engine Engine,
    lsns: Vec<Lsn>,
    is_settled: bool,
    pending: MutexGuard<'engine, bool>,
}

impl Drop for Logged<'_> {
    /// A panic that interrupts a change leaves it in memory and in the log only, so it poisons the
    /// log.
    fn drop(&mut self) {
        if !self.is_settled {
            let cause = PoisonCause::given_up("a change of a column family, which is logged,");
            self.engine.log.poison(&Error::poisoned(cause));
            *self.pending = true;
        }
    }
}

/// Writes a record for each payload into the log and syncs them. `mark` receives the LSN of the
/// first before any reader's point is above it. Transactions that rely on `changed` learn of it.
///
/// This holds a lock while it waits for all records before its own. A second one at the same time
/// could have reserved the earlier record and wait for that lock, so a change must be under way.
fn log_changes<'engine>(
    changing: &Changing<'engine>,
    payloads: &[Payload<'_>],
    changed: Option<&Arc<Keyspace>>,
    mark: impl FnOnce(Lsn),
) -> Result<Logged<'engine>> {
    let engine: &'engine Engine = changing.engine;
    let encode = |payload: &Payload<'_>| {
        let mut record = vec![0; RECORD_HEADER_LEN];
        put_payload(&mut record, payload);
        record
    };
    let mut records: Vec<_> = payloads.iter().map(encode).collect();
    let records: Vec<_> = records.iter_mut().map(wal::seal).collect();
    // One reservation for all: between two reservations, a wait for room would wait for a flush,
    // and the flush waits for this change.
    let len = records.iter().map(|record| record.len() as u64).sum();
    let targets = |_: &[u8]| Targets::Families(changed.into_iter().cloned().collect());
    let mut course = Plain::new(engine, false, targets);
    let mut reservation = reserve(engine, (&[], len), false, &mut course)?;
    let (start, end) = (reservation.start(), reservation.end());
    let pending = engine.families_pending.lock();
    let mut logged = Logged { engine, lsns: vec![start], is_settled: false, pending };
    logged.lsns = reservation.write_several(&records);
    debug_assert_eq!(logged.lsns.len(), payloads.len(), "each change has an LSN of its own");
    mark(start);
    reservation.publish();
    engine.log.wait_visible(end)?;
    course.finish(start);
    if !planted(Plant::FamilyNotSynced) {
        engine.log.sync_to(end)?;
    }
    Ok(logged)
}

/// Writes a record that readers of the log skip.
pub(super) fn log_nothing(changing: &Changing<'_>) -> Result<()> {
    let mut logged = log_changes(changing, &[Payload::EpochMarker], None, |_| ())?;
    logged.is_settled = true;
    Ok(())
}

impl Logged<'_> {
    /// Puts the changes into the manifest.
    fn install(mut self, changing: &mut Changing<'_>, changes: Vec<Change>) -> Result<()> {
        install(changing, changes)?;
        self.is_settled = true;
        Ok(())
    }
}

/// Puts changes into the manifest by one edit. A logged change cannot be taken back, so this waits
/// for room.
fn install(changing: &mut Changing<'_>, changes: Vec<Change>) -> Result<()> {
    let edit = Edit::new(changes);
    patiently(changing, |versions| versions.install(edit.clone(), &[]).map(drop))
}

/// Changes the manifest. If the disk is full this waits for room.
pub(super) fn patiently<T>(
    changing: &mut Changing<'_>,
    mut change: impl FnMut(&mut VersionSet) -> Result<T>,
) -> Result<T> {
    let engine = changing.engine;
    let mut is_told = false;
    loop {
        let changed = change(&mut engine.versions.lock());
        let error = match changed {
            Ok(changed) => return Ok(changed),
            Err(error) => error,
        };
        if !error.is_retryable() || engine.check_writable().is_err() {
            return Err(changing.give_up(error));
        }
        if !std::mem::replace(&mut is_told, true) {
            changing.tell_of_wait(error);
        }
        engine.options.env.threads.sleep(RETRY_PAUSE);
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::Changing;
    use crate::engine::CompactionDebt;
    use crate::env::Env;
    use crate::env::fixtures::TestThreads;
    use crate::events::{BackgroundJob, Event};
    use crate::format::FamilyId;
    use crate::options::{Options, WriteOptions};
    use crate::version::{Change, Edit};
    use crate::vfs::{Fault, FileOp, FileSystem, MemoryFs};
    use std::io;
    use std::path::Path;
    use std::sync::{Arc, mpsc};
    use std::thread;
    use std::time::{Duration, Instant};

    fn over(fs: &MemoryFs) -> Options {
        let fs = Arc::new(fs.clone());
        Options::new().env(Env { fs, ..Env::system() })
    }

    /// Makes the change's first edit find no room.
    fn fill_up(fs: &MemoryFs) {
        fs.inject(no_room());
    }

    fn no_room() -> Fault {
        Fault::on(FileOp::Write).kind(io::ErrorKind::StorageFull)
    }

    #[test]
    fn no_flush_makes_a_commit_outlive_the_drop_before_it() {
        let fs = MemoryFs::new();
        let (told, is_told) = mpsc::channel();
        let listener = move |event: &Event| {
            if matches!(event, Event::BackgroundError { job: BackgroundJob::FamilyChange, .. }) {
                told.send(()).unwrap();
            }
        };
        let db = over(&fs).on_event(listener).open("/db").unwrap();
        let family = db.family("family").unwrap();
        family.put("key", "value").unwrap();
        let manifest = fs.list(Path::new("/db")).unwrap().into_iter();
        let manifest = manifest.map(|entry| entry.name).find(|name| name.contains("MANIFEST"));
        fs.inject(no_room().suffix(&manifest.unwrap()).forever());
        let left = thread::scope(|scope| {
            let dropper = scope.spawn(|| db.drop_family(&family));
            is_told.recv().unwrap();
            // The drop is in the log, and its edit finds no room.
            db.with(WriteOptions::sync()).put("later", "value").unwrap();
            let flusher = scope.spawn(|| db.flush());
            let began = Instant::now();
            while !flusher.is_finished() && began.elapsed() < Duration::from_millis(300) {
                thread::sleep(Duration::from_millis(5));
            }
            let left = fs.killed();
            fs.clear_faults();
            dropper.join().unwrap().unwrap();
            flusher.join().unwrap().unwrap();
            left
        });
        let db = over(&left).open("/db").unwrap();
        assert_eq!(db.get("later").unwrap().unwrap(), b"value");
        assert!(db.family_if_exists("family").unwrap().is_none());
    }

    #[test]
    fn a_change_that_a_panic_cuts_in_half_is_the_last() {
        let fs = MemoryFs::new();
        let before_sleep = Box::new(|| panic!("planted"));
        let threads = Arc::new(TestThreads { before_sleep, ..TestThreads::default() });
        let env = Env { fs: Arc::new(fs.clone()), threads, ..Env::system() };
        let db = Options::new().env(env).open("/db").unwrap();
        db.family("first").unwrap();
        fill_up(&fs);
        let other = db.clone();
        assert!(thread::spawn(move || other.family("second").map(drop)).join().is_err());
        assert_eq!(db.family("third").unwrap_err().name(), "POISONED");
        drop(db);
        let db = over(&fs).open("/db").unwrap();
        assert_eq!(db.list_families(), ["default", "first", "second"]);
    }

    #[test]
    fn a_family_whose_drop_was_not_confirmed_is_not_found() {
        let fs = MemoryFs::new();
        let db = over(&fs).open("/db").unwrap();
        let family = db.family("family").unwrap();
        fs.inject(Fault::on(FileOp::SyncRange));
        db.drop_family(&family).unwrap_err();
        assert_eq!(family.get("key").unwrap_err().name(), "UNKNOWN_FAMILY");
        assert!(db.family_if_exists("family").unwrap().is_none());
        assert_eq!(db.list_families(), ["default"]);
    }

    /// Ids are never reused, and no real database creates four billion families: only damage or
    /// forgery reaches the last id.
    #[test]
    fn the_last_id_is_given_to_no_family() {
        let fs = MemoryFs::new();
        let db = over(&fs).open("/db").unwrap();
        let skip = Edit::new(vec![Change::NextFamily { family: FamilyId::MAX - 1 }]);
        db.engine().versions.lock().install(skip, &[]).unwrap();
        let last = db.family("last").unwrap();
        assert_eq!(last.id(), FamilyId::MAX - 1);
        last.put("key", "value").unwrap();
        let refused = db.family("one more").unwrap_err();
        assert!(refused.to_string().contains("ids for column families are used up"), "{refused}");
        db.with(WriteOptions::sync()).put("key", "value").unwrap();
        // Each open reads another source: the log, the manifest, and what the open before left.
        let mut left = fs.killed();
        for _ in 0..3 {
            let db = over(&left).open("/db").unwrap();
            assert_eq!(db.list_families(), ["default", "last"]);
            assert_eq!(db.family("last").unwrap().get("key").unwrap().unwrap(), b"value");
            assert_eq!(db.family("one more").unwrap_err().name(), "INVALID_ARGUMENT");
            left = left.killed();
        }
    }

    /// A closed database holds no tables any more, so a manifest written from its state would name
    /// none.
    #[test]
    fn no_manifest_is_written_for_a_database_that_is_closed() {
        let small = crate::options::FamilyOptions::new().block_size(512);
        let mut answers = Vec::new();
        for nth in 1..=8 {
            let fs = MemoryFs::new();
            let db = over(&fs).open("/db").unwrap();
            db.put("key", "value").unwrap();
            db.flush().unwrap();
            let engine = db.engine().clone();
            fs.inject(Fault::on(FileOp::Write).kind(io::ErrorKind::StorageFull).nth(nth));
            let closed = db.close();
            fs.clear_faults();
            let changed = vec![(engine.default_family.clone(), small.clone())];
            answers.push(super::set_options(&mut Changing::lock(&engine), changed));
            let left = over(&fs).open("/db").unwrap();
            let value = left.get("key").unwrap();
            assert_eq!(value.as_deref(), Some(&b"value"[..]), "{nth}: {closed:?} {answers:?}");
        }
        assert!(
            answers.iter().all(|late| late.as_ref().is_err_and(crate::Error::is_closed)),
            "{answers:?}"
        );
    }

    #[test]
    fn a_dropped_family_paces_no_writer() {
        let db = Options::in_memory().open("/db").unwrap();
        let family = db.family("crowded").unwrap();
        let engine = db.engine();
        let debt = CompactionDebt { bytes: 3 << 20, batch_debt: 1 << 20, batch_bytes: 1 << 20 };
        engine.backlog.lock().note(family.id(), Some(debt));
        let (lag, drain) = engine.backlog.lock().pressure();
        engine.pacer.set_compactions(lag, drain);
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
        let family = db.family("family").unwrap();
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
        let family = db.family("family").unwrap();
        family.put("key", "value").unwrap();
        let snapshot = db.snapshot();
        db.drop_family(&family).unwrap();
        db.flush().unwrap();
        assert_eq!(memtables(&family), 1);
        assert_eq!(snapshot.of(&family).get("key").unwrap().unwrap(), b"value");
        drop(snapshot);
        assert_eq!(memtables(&family), 0);
    }

    #[test]
    fn after_a_drop_that_failed_what_names_the_family_can_be_prepared() {
        let db = over(&MemoryFs::new()).open("/db").unwrap();
        let family = db.family("family").unwrap();
        let keyspace = db.engine().families.by_id(family.id()).unwrap();
        drop(super::Dropping::begin(db.engine(), &keyspace).unwrap());
        let tx = db.begin();
        tx.of(&family).put("key", "value").unwrap();
        tx.prepare("x").unwrap().commit().unwrap();
        db.drop_family(&family).unwrap();
    }
}
