//! What an open does with the files that a killed process, a power cut or a loss of files left.

mod steps;

use super::*;
use crate::error::ErrorKind;
use crate::options::WriteOptions;
use crate::version::fixtures;
use crate::vfs::{Fault, FileOp, IoMode, MemoryFs, UnsyncedKind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

fn options(fs: &MemoryFs) -> Options {
    let fs: Arc<dyn FileSystem> = Arc::new(fs.clone());
    Options::new().write_buffer(64 << 10).env(Env { fs, ..Env::system() })
}

/// What the death of a database's process leaves, and the paths of its log segments.
fn killed(db: &crate::Db, fs: &MemoryFs) -> (MemoryFs, Vec<std::path::PathBuf>) {
    let replay_from = db.engine().versions.lock().state().replay_from();
    let fs = fs.killed();
    let segments = crate::wal::inventory(&fs, &Path::new("db").join(LOG_DIR)).unwrap();
    let needed = |info: &crate::wal::SegmentInfo| {
        info.kind == crate::wal::SegmentKind::Log && info.end() > replay_from
    };
    (fs, segments.into_iter().filter(needed).map(|info| info.path).collect())
}

#[test]
fn a_ceiling_that_is_asked_for_second_and_is_lower_stays_where_it_is() {
    let fs = MemoryFs::new();
    let db = options(&fs).open("db").unwrap();
    let versions = db.engine().versions.clone();
    let there = versions.lock().state().ceiling();
    let raise = ceiling_raiser(versions.clone(), 100);
    assert_eq!(raise(there + 1000).unwrap(), there + 1100);
    assert_eq!(raise(there + 500).unwrap(), there + 1100);
    assert_eq!(versions.lock().state().ceiling(), there + 1100);
    assert_eq!(raise(there + 2000).unwrap(), there + 2100);
}

#[test]
fn the_number_of_a_table_that_no_edit_names_is_not_given_out_again() {
    let fs = MemoryFs::new();
    drop(options(&fs).open("db").unwrap());
    let orphan = crate::version::table_path(Path::new("db"), 7);
    fs.create(&orphan).unwrap();
    options(&fs).open("db").unwrap().close().unwrap();
    assert!(!fs.exists(&orphan).unwrap(), "no edit names it");
    let db = options(&fs).open("db").unwrap();
    assert!(db.engine().versions.lock().files().next() > 7);
}

#[test]
fn a_first_log_segment_that_is_missing_is_no_empty_log() {
    for flushes in [0, 1, 2] {
        let fs = MemoryFs::new();
        let db = options(&fs).open("db").unwrap();
        for i in 0..flushes {
            db.put("flushed", [i; 100]).unwrap();
            db.flush().unwrap();
        }
        db.with(WriteOptions::sync()).put("key", "value").unwrap();
        let (fs, segments) = killed(&db, &fs);
        for segment in &segments {
            fs.remove(segment).unwrap();
        }
        for _ in 0..2 {
            let error = options(&fs).open("db").unwrap_err();
            let first = segments[0].to_str().unwrap();
            // After a flush only other segments could tell the name of the missing one.
            let path = if flushes == 0 { first } else { "db/wal" };
            let words = [path, "is missing", "isobath repair"];
            assert!(error.is_corruption(), "{error}");
            assert!(words.iter().all(|word| error.to_string().contains(word)), "{error}");
        }
    }
}

#[test]
fn a_database_closed_cleanly_needs_no_log() {
    let fs = MemoryFs::new();
    let db = options(&fs).open("db").unwrap();
    db.put("key", "value").unwrap();
    db.close().unwrap();
    let fs = fs.killed();
    let dir = Path::new("db").join(LOG_DIR);
    for entry in fs.list(&dir).unwrap() {
        fs.remove(&dir.join(&entry.name)).unwrap();
    }
    let db = options(&fs).open("db").unwrap();
    assert_eq!(db.get("key").unwrap().as_deref(), Some(&b"value"[..]));
}

#[test]
fn an_open_that_is_cut_short_at_any_step_can_be_repeated() {
    let ops = [FileOp::Create, FileOp::OpenSegment, FileOp::Write, FileOp::Rename]
        .into_iter()
        .chain([FileOp::Sync, FileOp::SyncRange, FileOp::SyncDir, FileOp::Remove]);
    for (op, nth) in ops.flat_map(|op| (1..8).map(move |nth| (op, nth))) {
        let fs = MemoryFs::new();
        let db = options(&fs).open("db").unwrap();
        for i in 0..900u32 {
            db.put(i.to_be_bytes(), [7; 100]).unwrap();
        }
        db.with(WriteOptions::sync()).put("key", "value").unwrap();
        let mut fs = killed(&db, &fs).0;
        for power_lasts in [true, false] {
            fs.inject(Fault::on(op).nth(nth));
            drop(options(&fs).open("db"));
            fs = if power_lasts { fs.killed() } else { fs.crashed(|_| 0) };
            fs.clear_faults();
        }
        let db = options(&fs).open("db").unwrap();
        let value = db.get("key").unwrap();
        assert_eq!(value.as_deref(), Some(&b"value"[..]), "{op:?} {nth} failed");
    }
}

/// The edit of the last close may be in the page cache only. If it is lost, recovery needs this
/// segment.
#[test]
fn the_segment_where_replay_begins_keeps_its_name_until_the_open_has_its_edit() {
    let ops = [FileOp::Create, FileOp::OpenSegment, FileOp::Rename, FileOp::SyncRange];
    for (op, nth) in ops.into_iter().flat_map(|op| (1..4).map(move |nth| (op, nth))) {
        let fs = MemoryFs::new();
        let db = options(&fs).open("db").unwrap();
        let (_, segments) = killed(&db, &fs);
        db.close().unwrap();
        let fs = fs.killed();
        let current = crate::version::read_current(&fs, Path::new("db")).unwrap();
        fs.inject(Fault::on(op).nth(nth));
        let opened = options(&fs).open("db").is_ok();
        let is_new = crate::version::read_current(&fs, Path::new("db")).unwrap() != current;
        assert!(opened || is_new || fs.exists(&segments[0]).unwrap(), "{op:?} {nth} failed");
    }
}

/// Without that edit the replayed log would count again, but some of its segments were reused
/// meanwhile.
#[test]
fn damage_of_the_edit_that_ended_a_recovery_is_no_torn_tail() {
    let fs = MemoryFs::new();
    let large = |fs| options(fs).write_buffer(256 << 10);
    let db = large(&fs).open("db").unwrap();
    for i in 0..1000u32 {
        db.with(WriteOptions::sync()).put(i.to_be_bytes(), [7; 100]).unwrap();
    }
    let (fs, segments) = killed(&db, &fs);
    assert!(segments.len() > 2);
    let db = large(&fs).open("db").unwrap();
    // A power cut loses everything that was not synced, except the names of the other segments.
    let is_first = |path: &Path| path.file_stem() == segments[0].file_stem();
    let left = fs.crashed(|unsynced| match unsynced.kind {
        UnsyncedKind::Name if !is_first(unsynced.path) => unsynced.steps.len(),
        _ => 0,
    });
    drop(db);
    fixtures::damage_last_edit(&left, Path::new("db"));
    let error = large(&left).open("db").unwrap_err();
    assert!(error.is_corruption() && error.to_string().contains("sync marker"), "{error}");
}

#[test]
fn a_log_is_mapped_only_where_no_store_can_lack_room_unless_the_options_say_so() {
    let fs = MemoryFs::new();
    let modes: Arc<Mutex<Vec<(IoMode, String)>>> = Arc::default();
    let heard = modes.clone();
    let listener = move |event: &Event| {
        if let Event::LogModeChosen { mode, file_system } = event {
            heard.lock().push((*mode, file_system.clone()));
        }
    };
    let options = options(&fs).on_event(listener);
    let open = |options: &Options| options.open("db").unwrap().metrics().log_mode;
    let (mapped, positional) = (IoMode::Mapped, IoMode::Positional);
    assert_eq!(open(&options), mapped);
    fs.set_kind(FileSystemKind { name: "btrfs".to_owned(), stores_in_place: false });
    assert_eq!(open(&options), positional);
    assert_eq!(open(&options.clone().io(mapped)), mapped);
    fs.set_kind(FileSystemKind { name: "ext4".to_owned(), stores_in_place: true });
    assert_eq!(open(&options.io(positional)), positional);
    let told = [(mapped, "memory"), (positional, "btrfs"), (mapped, "btrfs"), (positional, "ext4")];
    assert_eq!(*modes.lock(), told.map(|(mode, name)| (mode, name.to_owned())));
}

#[test]
fn an_empty_path_is_refused_before_anything_is_made() {
    let fs = MemoryFs::new();
    let refused = options(&fs).open("").unwrap_err();
    assert!(matches!(refused.kind(), ErrorKind::InvalidArgument { .. }), "{refused}");
    assert!(fs.list(Path::new("/")).unwrap().is_empty());
}

#[test]
fn what_is_above_a_database_is_not_synced_to_open_it() {
    let fs = MemoryFs::new();
    drop(options(&fs).open("/there/db").unwrap());
    fs.inject(Fault::on(FileOp::SyncDir).suffix("/").forever());
    fs.inject(Fault::on(FileOp::SyncDir).suffix("/there").forever());
    drop(options(&fs).open("/there/db").unwrap());
}

#[test]
fn a_creation_that_was_cut_short_anywhere_survives_power_loss_once_it_is_opened() {
    for nth in 1..40 {
        let fs = MemoryFs::new();
        fs.inject(Fault::on_any().nth(nth).forever());
        drop(options(&fs).open("/not/there/db"));
        let fs = fs.killed();
        let db = options(&fs).open("/not/there/db").unwrap();
        db.with(WriteOptions::sync()).put("key", "value").unwrap();
        let fs = fs.crashed(|_| 0);
        let db = options(&fs).open("/not/there/db").unwrap();
        assert_eq!(db.get("key").unwrap().as_deref(), Some(&b"value"[..]), "cut at {nth}");
    }
}

#[test]
fn a_time_without_file_descriptors_stops_nothing_for_good() {
    let fs = MemoryFs::new();
    let db = options(&fs).open("db").unwrap();
    let put = |i: u32| db.with(WriteOptions::sync()).put(i.to_be_bytes(), [7; 1000]).map(|_| ());
    (0..100).for_each(|i| put(i).unwrap());
    fs.inject(Fault::no_descriptors());
    let refused = (100..2000).find_map(|i| put(i).err()).unwrap();
    assert!(refused.is_too_many_files() && refused.is_retryable(), "{refused}");
    fs.clear_faults();
    // The refusal may come from a failed flush, which is retried at once only on request.
    db.flush().unwrap();
    (2000..2300).for_each(|i| put(i).unwrap());
    db.flush().unwrap();
}

#[test]
fn a_database_whose_creation_was_cut_short_survives_power_loss_once_it_is_opened() {
    for nth in 1..8 {
        let fs = MemoryFs::new();
        fs.inject(Fault::on(FileOp::SyncDir).nth(nth));
        drop(options(&fs).open("there/db"));
        let fs = fs.killed();
        let db = options(&fs).open("there/db").unwrap();
        db.with(WriteOptions::sync()).put("key", "value").unwrap();
        let fs = fs.crashed(|_| 0);
        let db = options(&fs).open("there/db").unwrap();
        assert_eq!(db.get("key").unwrap().as_deref(), Some(&b"value"[..]), "sync {nth} failed");
    }
}

/// Else it would be the last one to hold the database, and wait for its own end.
#[test]
fn maintenance_does_not_hold_a_database_that_fails_to_open() {
    static HAS_BEGUN: AtomicBool = AtomicBool::new(false);
    const A_WHILE: Duration = Duration::from_millis(300);

    #[derive(Debug)]
    struct Slow(crate::env::SystemClock);

    impl crate::env::Clock for Slow {
        fn now_ns(&self) -> u64 {
            self.0.now_ns()
        }
        fn unix_ms(&self) -> u64 {
            if std::thread::current().name() == Some("isobath-maint") {
                HAS_BEGUN.store(true, Ordering::SeqCst);
                std::thread::sleep(A_WHILE);
            }
            self.0.unix_ms()
        }
    }

    let fs = MemoryFs::new();
    let db = options(&fs).open("db").unwrap();
    let tx = db.begin();
    tx.put("key", "value").unwrap();
    drop(tx.prepare("x").unwrap());
    db.close().unwrap();
    fs.inject(Fault::on(FileOp::Read).suffix(".tbl").calls(|| {
        // Maintenance never gets so far, unless the open is wrong: then it does within a second or
        // two.
        let started = Instant::now();
        while !HAS_BEGUN.load(Ordering::SeqCst) && started.elapsed() < 10 * A_WHILE {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::io::ErrorKind::TimedOut.into()
    }));
    let clock = Arc::new(Slow(crate::env::SystemClock::new()));
    let env = Env { fs: Arc::new(fs), clock, ..Env::system() };
    let options = Options::new().env(env);
    let error = options.open("db").unwrap_err();
    assert!(error.to_string().contains(".tbl"), "{error}");
    let db = options.open("db").unwrap();
    db.commit_prepared(&crate::Xid::new("x")).unwrap();
    assert_eq!(db.get("key").unwrap().unwrap(), b"value");
}
