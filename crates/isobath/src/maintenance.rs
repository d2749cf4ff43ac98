//! Periodic work, once a second, whether or not anything is written:
//!
//! - It tells the time in the log while values end, and the program that the clock has leapt.
//! - It notes at which point the database is.
//! - It prepares memory for writers, so that their first writes cost no page faults, and returns
//!   what they have not needed for a while.
//! - It charges what the list of tables takes below a ceiling for memory, and gives the block cache
//!   what is left.
//! - It removes table files and log segments that nothing needs any more.
//! - It tells the program that the log has failed.
//! - It raises the log's ceiling, and tries flushes and compactions again that failed on a full
//!   disk.
//! - It ends transactions that have taken too long.
//! - It closes the gate of transactions when none has come for a while.
//! - It hands the database's figures to the `metrics` recorder, if there is one.
//! - It has slices leave table files that are mostly dead.
//! - It takes deletes down, from memory too, that have stayed as long as their families allow.
//! - It starts optional compactions of families that rest, and of all when the database is idle.
//!   Then it flushes what is in memory.

use crate::background::{PanicReport, Ticker};
use crate::engine::{Engine, Keyspace};
use crate::env::sync::atomic::{AtomicBool, Ordering};
use crate::env::{Env, Priority};
use crate::error::Result;
use crate::flush;
use crate::format::Lsn;
use crate::metrics::Metrics;
use crate::{compact, telemetry, write};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

/// The pause between two rounds.
const ROUND: Duration = Duration::from_secs(1);

/// For how long a round removes files, before it comes to what writers may wait for.
const REMOVALS_NS: u64 = 500_000_000;

/// After this many rounds without a write, and then each time as many more, compactions start that
/// pay off only later. Each time as many rounds have passed, those start of families that rest.
const QUIET_ROUNDS: u32 = 5;

/// After this many rounds without a write, and then each time as many more, the memtables are
/// flushed.
const IDLE_ROUNDS: u32 = 60;

/// Once in this many rounds, the log gives up spare segments, and the memtables idle memory, that
/// they did not need since the last time; the log, if it rests, what it has prepared; and
/// compactions look for garbage in blob files.
const SPARE_ROUNDS: u32 = 60;

/// Once in this many rounds, the list of tables is charged, if there is a ceiling for memory: each
/// slice of each tree is looked at.
const LIST_ROUNDS: u32 = 8;

/// Raises the log's ceiling before a writer reaches it, on the installer's thread.
fn raise_ceiling(engine: &Engine) {
    if engine.log.wants_ceiling() {
        let log = engine.log.clone();
        // An error means that the database is closing, or that the job panicked, which is reported
        // elsewhere.
        let _ = engine.installer.run(move || log.raise_ceiling());
    }
}

/// Seals the memtables of an idle database, which starts their flush.
fn seal_idle(engine: &Arc<Engine>) {
    if write::is_anything_written(engine) {
        seal(engine);
    }
}

/// Seals the memtables, if there is room for more that are sealed.
fn seal(engine: &Arc<Engine>) {
    let weak = Arc::downgrade(engine);
    // Commits wait until the marker is published. So a thread of normal priority writes it. On a
    // full disk that may wait for room (copy-on-write), and the installer must not: without it no
    // compaction can give room back.
    let _ = engine.flusher.submit(Box::new(move |_| {
        let Some(engine) = weak.upgrade() else { return };
        // A failure poisons the log; the next writer gets the error.
        let _ = write::seal_if_room(&engine);
    }));
}

/// Does what may make room on the disk, if writers were refused some.
fn make_room(engine: &Arc<Engine>) {
    if engine.disk_room.begin_round() {
        engine.log.give_up_spares();
        seal(engine);
        compact::schedule_idle(engine);
    }
}

/// What another thread does about values that have ended. One job of each kind at a time has its
/// flag.
#[derive(Default)]
struct Telling {
    is_telling: AtomicBool,
    is_planning: AtomicBool,
}

/// Tells the time in the log if values may have ended, and has compactions planned that drop them.
/// For the reasons above another thread does both.
fn tell_time(engine: &Arc<Engine>, telling: &Arc<Telling>) {
    let now_ms = engine.clock_ms();
    if !engine.ticks.is_due(now_ms) || telling.is_telling.swap(true, Ordering::AcqRel) {
        return;
    }
    let (weak, telling) = (Arc::downgrade(engine), telling.clone());
    let _ = engine.flusher.submit(Box::new(move |_| {
        let Some(engine) = weak.upgrade() else { return };
        if engine.tick_for_others() {
            plan_drops(&engine, &telling);
        }
        telling.is_telling.store(false, Ordering::Release);
    }));
}

/// Has compactions planned that drop what has ended. Flushes would wait if their thread did it for
/// many families. A compaction thread does: while none is free, none could carry anything out.
fn plan_drops(engine: &Arc<Engine>, telling: &Arc<Telling>) {
    if telling.is_planning.swap(true, Ordering::AcqRel) {
        return;
    }
    let (weak, telling) = (Arc::downgrade(engine), telling.clone());
    let _ = engine.compactors.submit(Box::new(move |_| {
        // A time that is told from here on may need another plan.
        telling.is_planning.store(false, Ordering::Release);
        let Some(engine) = weak.upgrade() else { return };
        compact::schedule_all(&engine);
    }));
}

/// The memory that the list of tables takes.
fn listed_bytes(engine: &Engine) -> u64 {
    let families = engine.families.all();
    let of_family = |family: &Arc<Keyspace>| {
        let view = family.view();
        view.tree.iter().map(|(_, slice)| slice.listed_bytes()).sum::<u64>()
    };
    families.iter().map(of_family).sum()
}

/// Hands the figures to the recorder of the crate `metrics`, if the program has one: to collect
/// them, each slice of each tree is looked at.
fn hand_over_figures(engine: &Engine) {
    if telemetry::has_recorder() {
        let figures = Metrics::collect(engine);
        telemetry::call_out(|| telemetry::record(&engine.dir.to_string_lossy(), &figures));
    }
}

/// Starts the maintenance of a database that is being opened. The caller sets `engine` once it
/// exists.
pub(crate) fn start(
    env: &Env,
    engine: Arc<OnceLock<Weak<Engine>>>,
    report: PanicReport,
) -> Result<Ticker> {
    let (mut tail, mut quiet_rounds, mut rounds) = (Lsn::MAX, 0, 0u32);
    let mut of_list = None;
    let (telling, mut cleaner) = (Arc::new(Telling::default()), compact::Cleaner::default());
    let mut old_deletes = compact::OldDeletes::default();
    let round = Box::new(move || {
        let Some(engine) = engine.get().and_then(Weak::upgrade) else { return };
        tell_time(&engine, &telling);
        engine.running.reap(&engine);
        engine.tell_leap();
        engine.note_moment();
        engine.note_point_time();
        engine.epochs.pool().prefault_spares();
        if rounds.is_multiple_of(LIST_ROUNDS) {
            engine.ceiling.charge_list(&mut of_list, || listed_bytes(&engine));
        }
        engine.ceiling.settle(&engine.tables.blocks);
        engine.remove_obsolete_within(REMOVALS_NS);
        engine.note_held_bytes();
        make_room(&engine);
        engine.file_late_moments();
        rounds = rounds.wrapping_add(1);
        if rounds % SPARE_ROUNDS == 0 {
            engine.epochs.pool().thin_out();
            engine.log.thin_out_spares();
            engine.log.rest_if_idle();
            compact::schedule_collections(&engine);
        }
        engine.log.discard_files();
        engine.tell_failure();
        raise_ceiling(&engine);
        engine.conflicts.gate.close_if_idle();
        flush::retry(&engine);
        compact::retry(&engine);
        cleaner.round(&engine);
        let is_late = old_deletes.round(&engine);
        hand_over_figures(&engine);
        // Who only reads may tick, too.
        let here = engine.log.tail() - engine.ticks.written_bytes();
        quiet_rounds = if here == tail { quiet_rounds + 1 } else { 0 };
        tail = here;
        if quiet_rounds % QUIET_ROUNDS == QUIET_ROUNDS - 1 {
            compact::schedule_idle(&engine);
        }
        if rounds % QUIET_ROUNDS == 0 {
            compact::schedule_resting(&engine);
        }
        if quiet_rounds % IDLE_ROUNDS == IDLE_ROUNDS - 1 {
            seal_idle(&engine);
        } else if is_late || write::is_long(&engine) {
            seal(&engine);
        }
    });
    Ticker::new(&*env.threads, "isobath-maint", Priority::Low, ROUND, round, report)
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use crate::compact;
    use crate::db::Db;
    use crate::env::fixtures::soon;
    use crate::env::{Env, Priority};
    use crate::family::Family;
    use crate::key_range::bounds_of;
    use crate::options::Options;
    use crate::sizes::Sizes;
    use crate::vfs::{Fault, FileOp, FileSystem, MemoryFs};
    use crate::wal::{SegmentKind, inventory};
    use crate::write;
    use std::collections::BTreeSet;
    use std::io;
    use std::path::{Path, PathBuf};
    use std::sync::{Arc, mpsc};
    use std::time::Duration;

    /// If a thread of low priority sealed, it would panic, which poisons the database.
    #[test]
    fn what_an_idle_database_holds_in_memory_is_flushed_by_threads_that_writers_may_wait_for() {
        let db = Options::in_memory().open("/db").unwrap();
        let engine = db.engine();
        db.put("key", "value").unwrap();
        while engine.gauges.flushes.get() == 0 {
            engine.check_writable().unwrap();
            engine.maintenance.kick();
            engine.options.env.threads.sleep(Duration::from_millis(1));
        }
        assert!(!write::is_anything_written(engine));
        assert_eq!(db.get("key").unwrap().unwrap(), b"value");
    }

    #[test]
    fn a_compaction_makes_room_while_an_idle_database_waits_for_some_to_write_to_its_log() {
        let fs = MemoryFs::new();
        let env = Env { fs: Arc::new(fs.clone()), ..Env::system() };
        let db = Options::new().env(env).open("/db").unwrap();
        for value in ["old", "new"] {
            db.put("key", value).unwrap();
            db.flush().unwrap();
        }
        db.put("late", "value").unwrap();
        fs.inject(Fault::on(FileOp::CopyIn).kind(io::ErrorKind::StorageFull).forever());
        let engine = db.engine();
        let spawn = |body: Box<dyn FnOnce() + Send>| {
            let threads = &engine.options.env.threads;
            threads.spawn("test".to_owned(), Priority::Normal, body).unwrap()
        };
        let sealing = engine.clone();
        spawn(Box::new(move || super::seal_idle(&sealing)));
        while fs.struck() == 0 {
            engine.options.env.threads.sleep(Duration::from_millis(1));
        }
        let (compacting, (compacted, is_compacted)) = (engine.clone(), mpsc::channel());
        spawn(Box::new(move || {
            let (family, everything) = (compacting.default_family.clone(), bounds_of(..));
            compacted.send(compact::compact_range(&compacting, &family, &everything)).unwrap();
        }));
        is_compacted.recv_timeout(Duration::from_secs(120)).unwrap().unwrap();
        while fs.list(Path::new("/db/table")).unwrap().len() > 1 {
            engine.options.env.threads.sleep(Duration::from_millis(1));
        }
        fs.clear_faults();
        db.flush().unwrap();
    }

    /// A family whose compactions have failed once, with a backlog. Then only others are written.
    fn comes_to_rest_after(fault: Fault) {
        let fs = MemoryFs::new();
        let env = Env { fs: Arc::new(fs.clone()), ..Env::system() };
        let db = Options::new().compaction_threads(1).env(env).open("/db").unwrap();
        let (engine, other) = (db.engine(), db.family("other").unwrap());
        let family = engine.families.all().into_iter().find(|of| &*of.name() == "other").unwrap();
        let state = &family.compactions.state;
        // Until the runs are there, no thread is free for it.
        state.lock().running = 1;
        for round in 0..24 {
            for key in 0..50 {
                other.put(format!("{key:03}{round}"), [round; 100]).unwrap();
            }
            db.flush().unwrap();
        }
        fs.inject(fault.forever());
        state.lock().running = 0;
        compact::schedule(engine, &family);
        while !state.lock().has_failed() || engine.backlog.lock().pressure().0 == 0.0 {
            engine.options.env.threads.sleep(Duration::from_millis(1));
        }
        fs.clear_faults();
        let mut rounds = 0..12_000;
        while rounds.next().is_some() && !family.view().tree.runs.is_empty() {
            db.put("key", "value").unwrap();
            engine.maintenance.kick();
            engine.options.env.threads.sleep(Duration::from_millis(10));
        }
        assert!(family.view().tree.runs.is_empty(), "{:?}", family.view().tree.runs);
        while rounds.next().is_some() && engine.backlog.lock().pressure().0 > 0.0 {
            engine.options.env.threads.sleep(Duration::from_millis(10));
        }
        assert_eq!(engine.backlog.lock().pressure().0, 0.0);
    }

    #[test]
    fn a_family_whose_compaction_found_no_descriptor_is_compacted_while_others_are_written() {
        comes_to_rest_after(Fault::no_descriptors());
    }

    #[test]
    fn a_family_whose_compaction_could_not_write_is_compacted_while_others_are_written() {
        comes_to_rest_after(Fault::on(FileOp::Create).suffix(".tbl").errno(5));
    }

    fn slices(db: &Db, family: &Family) -> usize {
        family.of(db.engine()).unwrap().view().tree.iter().count()
    }

    /// A family with deletes above what they delete. On a busy machine maintenance may have found
    /// it idle by now.
    fn deletes_above() -> Option<(Db, Family)> {
        let db = Options::in_memory().open("/db").unwrap();
        let resting = db.family("resting").unwrap();
        (0..200).for_each(|key| _ = resting.put(format!("{key:03}"), "value").unwrap());
        resting.compact(..).unwrap();
        (0..200).for_each(|key| _ = resting.delete(format!("{key:03}")).unwrap());
        db.flush().unwrap();
        (slices(&db, &resting) == 2).then_some((db, resting))
    }

    /// How many slices such a family has after so many rounds in which `write` has written, or once
    /// there are none.
    fn slices_after(rounds: u32, write: impl Fn(&Db, &Family)) -> usize {
        let above = (0..20).find_map(|_| deletes_above());
        let (db, resting) = above.expect("the deletes lie above what they delete");
        let engine = db.engine();
        let mut rounds = 0..rounds;
        while rounds.next().is_some() && slices(&db, &resting) > 0 {
            write(&db, &resting);
            engine.maintenance.kick();
            engine.options.env.threads.sleep(Duration::from_millis(5));
        }
        slices(&db, &resting)
    }

    #[test]
    fn deletes_of_a_family_that_rests_go_down_while_others_are_written() {
        let of_others = |db: &Db, _: &Family| _ = db.put("key", "value").unwrap();
        assert_eq!(slices_after(24_000, of_others), 0, "nothing is left of them");
    }

    #[test]
    fn a_family_does_not_rest_while_it_is_written_however_slowly_memory_fills() {
        let of_its_own = |_: &Db, family: &Family| _ = family.put("key", "value").unwrap();
        // On a busy machine some rounds may pass without a write, but not each time.
        assert!((0..20).any(|_| slices_after(200, of_its_own) == 2));
    }

    #[cfg(feature = "metrics")]
    mod recorders {
        use super::*;
        use crate::blob::SUMS;
        use crate::env::sync::atomic::{AtomicBool, Ordering};
        use ::metrics::{
            Counter, Gauge, Histogram, Key, KeyName, Metadata, NoopRecorder, Recorder,
            SharedString, Unit,
        };

        /// Counts what it is asked to register, if there is anything to count it with.
        struct Heard<T>(T);

        trait Count {
            fn count(&self) {}
        }

        impl Count for () {}

        impl Count for AtomicBool {
            fn count(&self) {
                self.store(true, Ordering::Relaxed);
            }
        }

        impl<T: Count> Recorder for Heard<T> {
            fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
            fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
            fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

            fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
                self.0.count();
                Counter::noop()
            }

            fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
                Gauge::noop()
            }

            fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
                Histogram::noop()
            }
        }

        #[test]
        fn figures_are_collected_for_a_recorder_and_otherwise_not() {
            let db = Options::in_memory().open("/db").unwrap();
            let collected = || {
                SUMS.set(0);
                super::super::hand_over_figures(db.engine());
                SUMS.get()
            };
            assert_eq!(collected(), 0, "the program has none");
            let heard = Heard(AtomicBool::new(false));
            assert_eq!(::metrics::with_local_recorder(&heard, collected), 1);
            assert!(heard.0.into_inner());
            let empty: Box<dyn Recorder> = Box::new(Heard(()));
            assert_eq!(::metrics::with_local_recorder(&*empty, collected), 1, "it has no fields");
            static NONE: NoopRecorder = NoopRecorder;
            assert_eq!(::metrics::with_local_recorder(&NONE, collected), 0);
        }
    }

    /// A small database with spare segments of the log.
    fn with_spares(fs: &MemoryFs) -> Db {
        let env = Env { fs: Arc::new(fs.clone()), ..Env::system() };
        let db = Options::new().write_buffer(64 << 10).env(env).open("/db").unwrap();
        while spares(fs).len() < 2 {
            db.put("key", [7; 1000]).unwrap();
        }
        db
    }

    fn spares(fs: &MemoryFs) -> BTreeSet<String> {
        let names = fs.list(Path::new("/db/wal")).unwrap().into_iter().map(|entry| entry.name);
        names.filter(|name| name.ends_with(".spare")).collect()
    }

    #[test]
    fn a_refused_writer_has_spares_given_up_and_memory_flushed() {
        let fs = MemoryFs::new();
        let db = with_spares(&fs);
        let engine = db.engine();
        engine.maintenance.close();
        db.flush().unwrap();
        db.put("key", "value").unwrap();
        let (before, removed) = (spares(&fs), fs.tried(FileOp::Remove));
        super::make_room(engine);
        assert_eq!(fs.tried(FileOp::Remove), removed, "none was refused");
        fs.set_capacity(1 << 20);
        assert!(engine.disk_room.admit_segment(2 << 20).unwrap_err().is_out_of_space());
        fs.set_capacity(u64::MAX);
        super::make_room(engine);
        assert!(spares(&fs).is_disjoint(&before), "spares stay");
        assert!(soon(|| !write::is_anything_written(engine)), "what is in memory stays there");
    }

    #[test]
    fn an_idle_database_gives_its_spare_log_segments_back() {
        let fs = MemoryFs::new();
        let db = with_spares(&fs);
        let engine = db.engine();
        for _ in 0..120_000 {
            if spares(&fs).is_empty() {
                return;
            }
            engine.maintenance.kick();
            engine.options.env.threads.sleep(Duration::from_millis(1));
        }
        panic!("{:?} stay", spares(&fs));
    }

    #[test]
    fn an_idle_database_gives_memory_back_that_it_does_not_need() {
        let db = Options::in_memory().write_buffer(1 << 20).open("/db").unwrap();
        let engine = db.engine();
        for n in 0..4000u32 {
            db.put(n.to_be_bytes(), [7; 1000]).unwrap();
        }
        db.flush().unwrap();
        let idle = || engine.epochs.pool().stats().idle_bytes;
        let before = idle();
        assert!(before > 1 << 20, "{before}: two epochs have been written");
        let mut rounds = 0..60_000;
        while rounds.next().is_some() && idle() > before / 2 {
            engine.maintenance.kick();
            engine.options.env.threads.sleep(Duration::from_millis(1));
        }
        assert!(idle() <= before / 2, "{} of {before} bytes stay", idle());
    }

    #[test]
    fn an_idle_database_gives_log_segments_back_that_it_has_prepared() {
        let fs = MemoryFs::new();
        let env = Env { fs: Arc::new(fs.clone()), ..Env::system() };
        let options = Options::new().write_buffer(64 << 10).env(env);
        let db = options.clone().open("/db").unwrap();
        let (engine, dir) = (db.engine(), Path::new("/db/wal"));
        let ahead = || {
            let found = inventory(&fs, dir).unwrap().into_iter();
            found.filter(|info| info.kind != SegmentKind::Log || info.base > engine.log.tail())
        };
        // Two segments are prepared ahead, and the tail is in the first half of its own.
        while ahead().count() < 2 || engine.log.tail() & (32 << 10) != 0 {
            db.put("key", [7; 1000]).unwrap();
        }
        let mut rounds = 0..60_000;
        while rounds.next().is_some() && ahead().count() > 0 {
            engine.maintenance.kick();
            engine.options.env.threads.sleep(Duration::from_millis(1));
        }
        assert_eq!(ahead().map(|info| info.path).collect::<Vec<_>>(), [] as [PathBuf; 0]);
        for n in 0..500u32 {
            db.put(n.to_be_bytes(), [8; 1000]).unwrap();
        }
        db.sync().unwrap();
        let left = Arc::new(fs.crashed(|_| 0));
        drop(db);
        let db = options.env(Env { fs: left, ..Env::system() }).open("/db").unwrap();
        assert_eq!(db.count(..).unwrap(), 501);
    }

    #[test]
    fn the_ceiling_of_the_log_is_raised_before_a_writer_comes_to_it() {
        let mut options = Options::in_memory();
        options.sizes = Sizes { ceiling_step: 1 << 20, ..options.sizes };
        let db = options.open("/db").unwrap();
        let engine = db.engine();
        let ceiling = || engine.versions.lock().state().ceiling();
        let at_first = engine.log.tail() + (1 << 20);
        for _ in 0..120_000 {
            if ceiling() > at_first {
                return;
            }
            engine.maintenance.kick();
            engine.options.env.threads.sleep(Duration::from_millis(1));
        }
        panic!("the ceiling was not raised");
    }

    /// If a thread of low priority did, it would panic in the manifest, which poisons the database.
    #[test]
    fn no_thread_of_low_priority_writes_to_the_manifest() {
        let fs = MemoryFs::new();
        let env = Env { fs: Arc::new(fs.clone()), ..Env::system() };
        let mut options = Options::new().write_buffer(64 << 10).env(env);
        options.sizes = Sizes { ceiling_step: 1 << 20, ..options.sizes };
        let db = options.open("/db").unwrap();
        let engine = db.engine();
        let ceiling = || engine.versions.lock().state().ceiling();
        let (opened_at, mut flushes) = (ceiling(), 0);
        // These must happen: a compaction, the removal of its inputs, and a raise of the log's
        // ceiling.
        while engine.gauges.compactions.get() == 0 || ceiling() == opened_at {
            db.put("key", [flushes; 100]).unwrap();
            db.flush().unwrap();
            flushes = flushes.wrapping_add(1);
            engine.options.env.threads.sleep(Duration::from_millis(10));
        }
        db.compact().unwrap();
        while fs.list(Path::new("/db/table")).unwrap().len() > 1 {
            db.put("key", "value").unwrap();
            engine.options.env.threads.sleep(Duration::from_millis(10));
        }
    }
}
