//! An open database as a whole: what it refuses, what it reports, which files it removes, and how
//! full its memory is.

use super::*;
use crate::Db;
use crate::env::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::env::{Clock, Env, SystemClock};
use crate::error::ErrorKind;
use crate::format::OpKind;
use crate::version::{Change, Edit};
use crate::vfs::{Fault, FileOp, FileSystem, MemoryFs};
use std::cell::{Cell, RefCell};
use std::io::{self, Write};
use std::path::Path;
use std::sync::{OnceLock, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

type Told = Arc<Mutex<Vec<Event>>>;

/// A database in memory, with a listener that records events.
fn listened() -> (Db, MemoryFs, Told) {
    let (fs, told) = (MemoryFs::new(), Told::default());
    let env = Env { fs: Arc::new(fs.clone()), ..Env::system() };
    let remember = {
        let told = told.clone();
        move |event: &Event| told.lock().push(event.clone())
    };
    let options = Options::new().write_buffer(64 << 10).env(env);
    (options.on_event(remember).open("/db").unwrap(), fs, told)
}

/// The jobs whose failures were reported.
fn failures(told: &Told) -> Vec<BackgroundJob> {
    let failure = |event: &Event| match event {
        Event::BackgroundError { job, .. } => Some(*job),
        _ => None,
    };
    told.lock().iter().filter_map(failure).collect()
}

fn removed(told: &Told) -> Vec<PathBuf> {
    let path = |event: &Event| match event {
        Event::FileRemoved { path } => Some(path.clone()),
        _ => None,
    };
    told.lock().iter().filter_map(path).collect()
}

#[test]
fn a_job_that_fails_refuses_writes_and_is_told_of_unless_it_was_to_end() {
    let (db, _, told) = listened();
    let engine = db.engine();
    for end in [Error::cancelled(), Error::closed()] {
        engine.poison(BackgroundJob::Flush, end);
        engine.check_writable().unwrap();
    }
    assert_eq!(failures(&told), []);
    db.put("key", "value").unwrap();
    engine.poison(BackgroundJob::Flush, Error::invalid_argument("planted"));
    assert!(matches!(
        engine.check_writable().as_ref().map_err(Error::kind),
        Err(ErrorKind::Poisoned { cause: why, .. }) if why.to_string().contains("planted")
    ));
    engine.check_open().unwrap();
    assert_eq!(db.get("key").unwrap().unwrap(), b"value");
    assert_eq!(failures(&told), [BackgroundJob::Flush]);
    db.put("key", "later").unwrap_err();
}

/// A program that only reads would never hear of it.
#[test]
fn a_sync_of_the_log_that_fails_in_the_background_is_told_once() {
    let (fs, told) = (MemoryFs::new(), Told::default());
    let env = Env { fs: Arc::new(fs.clone()), ..Env::system() };
    let options = Options::new().sync_interval(Duration::from_millis(1)).env(env);
    let remember = {
        let told = told.clone();
        move |event: &Event| told.lock().push(event.clone())
    };
    let db = options.on_event(remember).open("/db").unwrap();
    let engine = db.engine();
    fs.inject(Fault::on(FileOp::SyncRange).forever());
    db.put("key", "value").unwrap();
    let (clock, mut rounds) = (SystemClock::new(), 0);
    let began_ns = clock.now_ns();
    while failures(&told).is_empty() || rounds < 3 {
        assert!(clock.now_ns() - began_ns < 120_000_000_000, "it is never told");
        rounds += u32::from(!failures(&told).is_empty());
        engine.maintenance.kick();
        engine.options.env.threads.sleep(Duration::from_millis(5));
    }
    assert_eq!(failures(&told), [BackgroundJob::Log]);
    assert_eq!(db.get("key").unwrap().unwrap(), b"value");
}

/// Neither as a failure of the log a second later.
#[test]
fn a_compaction_that_makes_writes_refused_is_told_once() {
    // Maintenance compacts what is left alone for some seconds, and is needed here.
    let begun = (0..20).find_map(|_| {
        let (db, fs, told) = listened();
        for value in ["1", "2"] {
            db.put("key", value).unwrap();
            db.flush().unwrap();
        }
        fs.inject(Fault::on(FileOp::Write).suffix("MANIFEST-000001").forever());
        (db.engine().default_family.view().tree.runs.len() == 2).then_some((db, told))
    });
    let (db, told) = begun.expect("two runs that no compaction has met");
    db.compact().unwrap_err();
    let engine = db.engine();
    assert!(engine.check_writable().is_err());
    for _ in 0..3 {
        engine.maintenance.kick();
        engine.options.env.threads.sleep(Duration::from_millis(20));
    }
    assert_eq!(failures(&told), [BackgroundJob::Compaction]);
}

/// Judged by one good round: a busy machine may delay a wait, but a waiter that is not woken sleeps
/// a tenth of a second in each round.
#[test]
fn who_waits_for_room_hears_at_once_that_writes_are_refused() {
    const ROUNDS_MAX: u32 = 300;
    let (db, _, _) = listened();
    let (engine, clock) = (db.engine(), SystemClock::new());
    let mut waits = (0..ROUNDS_MAX).map(|_| {
        std::thread::scope(|scope| {
            let mut right = engine.epochs.lock();
            scope.spawn(|| {
                // The lock is free once the waiter sleeps.
                drop(engine.epochs.lock());
                engine.poison(BackgroundJob::Flush, Error::invalid_argument("planted"));
            });
            let began = clock.now_ns();
            engine.epochs.wait_for_room(&mut right);
            clock.now_ns() - began
        })
    });
    assert!(waits.any(|waited_ns| waited_ns < 50_000_000));
}

#[test]
fn a_closed_database_is_neither_read_nor_written_from_the_first_moment_of_its_close() {
    let (db, _, _) = listened();
    let engine = db.engine();
    engine.check_writable().unwrap();
    engine.closed.store(true, Ordering::SeqCst);
    assert_eq!(engine.check_open().unwrap_err().name(), "CLOSED");
    assert_eq!(engine.check_writable().unwrap_err().name(), "CLOSED");
    engine.closed.store(false, Ordering::SeqCst);
    engine.check_writable().unwrap();
}

#[test]
fn a_handle_that_outlives_a_close_holds_no_table() {
    let (db, _, _) = listened();
    db.put("key", "value").unwrap();
    db.flush().unwrap();
    let engine = db.engine().clone();
    let runs = || {
        let versions = engine.versions.lock();
        versions.state().families().map(|(_, family)| family.tree.runs.len()).sum::<usize>()
    };
    assert_eq!(runs(), 1);
    db.close().unwrap();
    assert_eq!(runs(), 0);
}

#[test]
fn a_listener_is_told_on_a_thread_that_knows_it_is_telling() {
    let (engine, was_telling) =
        (Arc::new(OnceLock::<Arc<Engine>>::new()), Arc::new(AtomicBool::new(false)));
    let listener = {
        let (engine, was_telling) = (engine.clone(), was_telling.clone());
        move |_: &Event| {
            if let Some(engine) = engine.get() {
                was_telling.store(engine.is_telling(), Ordering::SeqCst);
            }
        }
    };
    let db = Options::in_memory().on_event(listener).open("/db").unwrap();
    let other = Options::in_memory().open("/other").unwrap();
    engine.set(db.engine().clone()).ok().unwrap();
    assert!(!db.engine().is_telling());
    db.engine().tell(Event::FileRemoved { path: "planted".into() });
    assert!(was_telling.load(Ordering::SeqCst));
    assert!(!db.engine().is_telling());
    call_back(&**other.engine(), || assert!(!db.engine().is_telling(), "another one tells"));
}

#[test]
fn memory_is_full_when_every_budget_is_used_up() {
    let (db, fs, _) = listened();
    let engine = db.engine();
    let open_share = || engine.epochs.list().open.bytes() as f64 / f64::from(64 << 10);
    let expect = |sealed: f64| {
        assert_eq!(engine.epochs.list().sealed.len() as f64, sealed);
        assert_eq!(engine.memory_fullness(), (sealed + open_share().min(1.0)) / 3.0);
    };
    expect(0.0);
    // No table can be written, so epochs stay.
    fs.inject(Fault::on(FileOp::Create).suffix(".tbl").forever().kind(io::ErrorKind::StorageFull));
    for sealed in [0.0, 1.0] {
        db.put("key", [7; 20 << 10]).unwrap();
        assert!(open_share() > 0.25 && open_share() < 1.0);
        expect(sealed);
        db.flush().unwrap_err();
        expect(sealed + 1.0);
    }
    db.put("key", vec![7; 100 << 10]).unwrap();
    assert!(open_share() > 1.0);
    expect(2.0);
    assert_eq!(engine.memory_fullness(), 1.0);
    fs.clear_faults();
}

#[test]
fn files_that_nothing_needs_are_closed_removed_and_told_of() {
    let (db, fs, told) = listened();
    let engine = db.engine();
    // It compacts what is left alone for some seconds.
    engine.maintenance.close();
    for round in 0..2 {
        db.put("key", [round; 100]).unwrap();
        db.flush().unwrap();
        db.get("key").unwrap().unwrap();
    }
    let view = engine.default_family.view();
    let inputs: Vec<PathBuf> =
        view.tree.runs.iter().map(|run| engine.tables.files.path(run.meta.file)).collect();
    assert_eq!((inputs.len(), engine.tables.files.open_count()), (2, 2));
    db.compact().unwrap();
    engine.compactors.wait_idle();
    engine.remove_obsolete_files();
    assert!(removed(&told).is_empty() && inputs.iter().all(|path| fs.exists(path).unwrap()));
    drop(view);
    // One file cannot be removed: it stays until the next open.
    fs.inject(Fault::on(FileOp::Remove).suffix(".tbl"));
    engine.remove_obsolete_files();
    let left: Vec<_> = inputs.iter().filter(|path| fs.exists(path).unwrap()).collect();
    assert_eq!((left.len(), removed(&told).len()), (1, 1));
    assert!(inputs.contains(&removed(&told)[0]) && removed(&told)[0] != *left[0]);
    assert_eq!(engine.tables.files.open_count(), 0, "a removed file that is open takes room");
    assert_eq!(db.get("key").unwrap().unwrap(), [1; 100]);
    engine.check_writable().unwrap();
}

/// The sync marker of the last edit must survive power loss first.
#[test]
fn files_stay_where_it_is_not_certain_that_nothing_needs_them() {
    for (kind, is_final) in [(io::ErrorKind::StorageFull, false), (io::ErrorKind::Other, true)] {
        let (db, fs, told) = listened();
        let engine = db.engine();
        engine.maintenance.close();
        let file = engine.files.allocate();
        let path = engine.tables.files.path(file.number());
        drop(fs.create(&path).unwrap());
        let lsn = engine.versions.lock().state().ceiling() + 1;
        let edit = Edit::new(vec![Change::LsnCeiling { lsn }]);
        engine.versions.lock().install(edit, &[]).unwrap();
        fs.inject(Fault::on(FileOp::Sync).forever().kind(kind));
        drop(file);
        engine.remove_obsolete_files();
        assert!(fs.exists(&path).unwrap() && removed(&told).is_empty());
        fs.clear_faults();
        match is_final {
            true => {
                engine.check_writable().unwrap_err();
                assert_eq!(failures(&told).first(), Some(&BackgroundJob::TableRemoval));
            }
            false => engine.check_writable().unwrap(),
        }
    }
}

#[test]
fn handles_that_outlive_the_database_hold_none_of_its_memory() {
    let (db, _, _) = listened();
    let engine = db.engine();
    let family = engine.default_family.clone();
    db.put("key", "value").unwrap();
    db.flush().unwrap();
    let tree = Arc::downgrade(&family.view().tree);
    // A commit that is applied late comes after the flush of the close.
    let late = Arc::downgrade(&family.memtable_in(&engine.epochs.list().open));
    late.upgrade().unwrap().insert(b"late", 1 << 40, OpKind::Put, b"");
    assert!(tree.upgrade().is_some_and(|tree| !tree.is_empty()));
    drop(db);
    assert!(family.view().memtables.is_empty() && family.view().tree.is_empty());
    assert!(late.upgrade().is_none());
}

#[test]
fn a_directory_of_tables_is_no_larger_than_the_tree() {
    let (db, fs, _) = listened();
    for round in 0..4 {
        db.put("key", [round; 100]).unwrap();
        db.flush().unwrap();
    }
    db.compact().unwrap();
    db.close().unwrap();
    assert_eq!(fs.list(Path::new("/db/table")).unwrap().len(), 1);
}

/// No edit tells of numbers that were given out in vain, so the next opening gives them out again.
#[test]
fn who_still_removes_files_behind_a_close_takes_none_of_the_next_opening() {
    let fs = MemoryFs::new();
    let options = Options::new().env(Env { fs: Arc::new(fs.clone()), ..Env::system() });
    let (tell, told) = mpsc::channel();
    let (let_go, go_on) = mpsc::channel::<()>();
    let (tell, go_on) = (Mutex::unranked(tell), Mutex::unranked(go_on));
    let listener = move |event: &Event| {
        if matches!(event, Event::FileRemoved { .. }) {
            tell.lock().send(()).unwrap();
            let _ = go_on.lock().recv();
        }
    };
    let db = options.clone().on_event(listener).open("/db").unwrap();
    let engine = db.engine().clone();
    engine.maintenance.close();
    let (first, second) = (engine.files.allocate(), engine.files.allocate());
    let paths = [&first, &second].map(|file| engine.tables.files.path(file.number()));
    drop((fs.create(&paths[0]).unwrap(), first, second));
    let removing = std::thread::spawn(move || engine.remove_obsolete_files());
    told.recv().unwrap();
    db.close().unwrap();
    let db = options.clone().open("/db").unwrap();
    for key in 0..4u8 {
        db.put([key], "value").unwrap();
        db.flush().unwrap();
    }
    assert!(fs.exists(&paths[1]).unwrap(), "the number was not given out again");
    assert!(!removing.is_finished(), "it has nothing more to remove");
    drop(let_go);
    removing.join().unwrap();
    db.close().unwrap();
    assert_eq!(options.open("/db").unwrap().count(..).unwrap(), 4);
}

/// A file that nothing needs, with its path.
fn obsolete_file(db: &Db) -> PathBuf {
    let file = db.engine().files.allocate();
    let path = db.engine().tables.files.path(file.number());
    drop(db.engine().options.env.fs.create(&path).unwrap());
    path
}

/// Goes on by ten milliseconds with each removal of a file.
struct Removals;

static REMOVED: AtomicU64 = AtomicU64::new(0);

impl Clock for Removals {
    fn now_ns(&self) -> u64 {
        REMOVED.load(Ordering::Relaxed) * 10_000_000
    }

    fn unix_ms(&self) -> u64 {
        0
    }
}

/// A compaction thread has jobs to plan, and maintenance has other duties.
#[test]
fn who_has_other_things_to_do_leaves_files_to_those_who_come_later() {
    let fs = MemoryFs::new();
    let env = Env { fs: Arc::new(fs.clone()), clock: Arc::new(Removals), ..Env::system() };
    let db = Options::new().env(env).open("/db").unwrap();
    let engine = db.engine();
    engine.maintenance.close();
    (0..200).for_each(|_| drop(obsolete_file(&db)));
    fs.inject(Fault::on(FileOp::Remove).forever().runs(|| {
        REMOVED.fetch_add(1, Ordering::Relaxed);
    }));
    let left = || fs.list(Path::new("/db/table")).unwrap().len();
    engine.remove_obsolete_within(1_000_000_000);
    assert_eq!(left(), 100);
    // However slow the disk is, they become fewer.
    engine.remove_obsolete_within(0);
    assert_eq!(left() as u64, 100 - REMOVED_MIN);
    engine.remove_obsolete_files();
    assert_eq!(left(), 0);
}

thread_local! {
    static TO_COMPACT: RefCell<Option<Db>> = const { RefCell::new(None) };
    static COMPACTING: RefCell<Option<JoinHandle<()>>> = const { RefCell::new(None) };
    static HAS_WAITED: Cell<Option<bool>> = const { Cell::new(None) };
}

#[test]
fn a_compaction_on_request_waits_for_the_thread_that_removes_a_file() {
    let (db, fs, _) = listened();
    db.engine().maintenance.close();
    let path = obsolete_file(&db);
    TO_COMPACT.set(Some(db.clone()));
    fs.inject(Fault::on(FileOp::Remove).suffix(".tbl").runs(|| {
        let (db, (tell, told)) = (TO_COMPACT.take().unwrap(), mpsc::channel());
        COMPACTING.set(Some(std::thread::spawn(move || {
            db.compact().unwrap();
            let _ = tell.send(());
        })));
        HAS_WAITED.set(Some(told.recv_timeout(Duration::from_millis(100)).is_err()));
    }));
    db.engine().remove_obsolete_files();
    assert!(!fs.exists(&path).unwrap());
    assert_eq!(HAS_WAITED.get(), Some(true));
    COMPACTING.take().unwrap().join().unwrap();
}

/// It waits for no listener either.
#[test]
fn a_compaction_on_request_removes_what_another_thread_has_not_come_to() {
    let fs = MemoryFs::new();
    let options = Options::new().env(Env { fs: Arc::new(fs.clone()), ..Env::system() });
    let (tell, told) = mpsc::channel();
    let (let_go, go_on) = mpsc::channel::<()>();
    let (tell, go_on) = (Mutex::unranked(tell), Mutex::unranked(go_on));
    let listener = move |event: &Event| {
        if matches!(event, Event::FileRemoved { .. }) && tell.lock().send(()).is_ok() {
            let _ = go_on.lock().recv();
        }
    };
    let db = options.on_event(listener).open("/db").unwrap();
    let engine = db.engine().clone();
    engine.maintenance.close();
    let paths = [obsolete_file(&db), obsolete_file(&db)];
    let removing = std::thread::spawn(move || engine.remove_obsolete_files());
    told.recv().unwrap();
    drop(told);
    assert!(!fs.exists(&paths[0]).unwrap() && fs.exists(&paths[1]).unwrap());
    db.compact().unwrap();
    assert!(!fs.exists(&paths[1]).unwrap() && !removing.is_finished());
    drop(let_go);
    removing.join().unwrap();
}

thread_local! {
    static CLOSING: Cell<Option<Arc<Engine>>> = const { Cell::new(None) };
    static IS_AWAITED: Cell<Option<bool>> = const { Cell::new(None) };
}

#[test]
fn a_close_waits_for_who_makes_or_removes_a_file() {
    type Act = fn(&Db);
    let acts: [(FileOp, Act); 3] = [
        (FileOp::Create, |db| {
            let mut writer = db.value_writer(&db.default_family()).unwrap();
            // Less is held in memory until the value is complete.
            let _ = writer.write_all(&vec![7; 4 << 20]);
        }),
        (FileOp::Remove, |db| {
            let file = db.engine().files.allocate();
            drop(db.engine().options.env.fs.create(&db.engine().tables.files.path(file.number())));
            drop(file);
            db.engine().remove_obsolete_files();
        }),
        (FileOp::Remove, |db| {
            db.engine().versions.lock().renew().unwrap();
            db.engine().remove_manifests();
        }),
    ];
    for (nth, (op, act)) in acts.into_iter().enumerate() {
        let fs = MemoryFs::new();
        let env = Env { fs: Arc::new(fs.clone()), ..Env::system() };
        let db = Options::new().env(env).open("/db").unwrap();
        db.engine().maintenance.close();
        CLOSING.set(Some(db.engine().clone()));
        IS_AWAITED.set(None);
        fs.inject(Fault::on(op).runs(|| {
            let (engine, (tell, told)) = (CLOSING.take().unwrap(), mpsc::channel());
            std::thread::spawn(move || {
                engine.errands.close();
                let _ = tell.send(());
            });
            IS_AWAITED.set(Some(told.recv_timeout(Duration::from_millis(100)).is_err()));
        }));
        act(&db);
        assert_eq!(IS_AWAITED.get(), Some(true), "{nth}");
    }
}
