//! The steps of an open one by one: what it creates, what it leaves, and what it reports.

use super::*;
use crate::env::Random;
use crate::env::fixtures::TestThreads;
use crate::error::ErrorKind;
use crate::options::WriteOptions;
use crate::version::{ManifestReader, manifest_path, read_current};
use crate::vfs::{Fault, FileOp, FileSystem, MemoryFs};
use std::cell::RefCell;

/// The changes of the last edit of the manifest in force.
fn last_edit(fs: &MemoryFs) -> Vec<Change> {
    let path = manifest_path(Path::new("db"), read_current(fs, Path::new("db")).unwrap());
    let manifest = ManifestReader::open(fs, &path).unwrap();
    manifest.edits().last().unwrap().unwrap().1.changes
}

type Told = Arc<Mutex<Vec<Event>>>;

fn listening(fs: &MemoryFs) -> (Options, Told) {
    let told = Told::default();
    let heard = told.clone();
    let listener = move |event: &Event| heard.lock().push(event.clone());
    (options(fs).on_event(listener), told)
}

/// What a killed database left: a record in its log. Also where the log ended, and its ceiling.
fn left_behind() -> (MemoryFs, Lsn, Lsn) {
    let fs = MemoryFs::new();
    let db = options(&fs).open("db").unwrap();
    db.with(WriteOptions::sync()).put("key", "value").unwrap();
    let ceiling = db.engine().versions.lock().state().ceiling();
    let end = db.engine().log.tail();
    (fs.killed(), end, ceiling)
}

#[test]
fn the_edit_that_ends_a_term_says_where_the_log_ended_and_where_it_goes_on() {
    let (mut fs, mut end, mut ceiling) = left_behind();
    let step = options(&fs).sizes.ceiling_step;
    let mut seeds = std::collections::BTreeSet::new();
    for term in 3..6 {
        let db = options(&fs).open("db").unwrap();
        let resumes_at = ceiling.next_multiple_of(segment_len(&options(&fs)));
        let slice = |change: &Change| matches!(change, Change::AddSlice { .. });
        let changes: Vec<_> = last_edit(&fs).into_iter().filter(|change| !slice(change)).collect();
        let files = |change: &&Change| !matches!(change, Change::NextFile { .. });
        let changes: Vec<_> = changes.iter().filter(files).cloned().collect();
        let seed = db.engine().versions.lock().state().term().seed;
        assert!(seed != 0 && seeds.insert(seed), "each opening has its own");
        let this = Term { term, ended_at: end, resumes_at, seed };
        let expected = [
            Change::Term(this),
            Change::ReplayFrom { lsn: resumes_at },
            Change::DurableLsn { lsn: resumes_at },
            Change::LsnCeiling { lsn: resumes_at + step },
            Change::OldestReadable { lsn: resumes_at },
        ];
        assert_eq!(changes, expected);
        let point_tag = crate::engine::point_tag(&db.engine().uuid, this);
        assert_eq!((db.engine().point_tag, db.engine().log.tail()), (point_tag, resumes_at));
        assert_eq!(db.metrics().recovered_records, 1);
        db.with(WriteOptions::sync()).put("key", "value").unwrap();
        (end, ceiling) = (db.engine().log.tail(), resumes_at + step);
        fs = fs.killed();
    }
    let db = options(&fs).open("db").unwrap();
    let last = db.engine().log.tail();
    db.close().unwrap();
    // A close gives back the LSNs that were not used.
    let db = options(&fs).open("db").unwrap();
    assert!(db.engine().log.tail() <= last + segment_len(&options(&fs)));
}

#[test]
fn new_segments_begin_behind_the_one_that_holds_the_start_of_replay() {
    let fs = MemoryFs::new();
    let dir = Path::new("db").join(LOG_DIR);
    fs.create_dir_all(&dir).unwrap();
    assert_eq!(end_of_segment(&fs, Path::new("db"), 0x10_000).unwrap(), 0);
    for (name, len) in [
        ("0000000000010000.wal", 0x1000),
        ("0000000000011000.wal", 0x2000),
        ("0000000000013000.wal", 0x2000),
        ("0000000000010000.spare", 0x8000),
        ("0000000000020000.spare", 0x8000),
        ("0000000000030000.new", 0x8000),
    ] {
        let mut file = fs.create(&dir.join(name)).unwrap();
        file.append(&vec![0; wal::HEADER_PAGE_LEN as usize + len]).unwrap();
        file.sync().unwrap();
    }
    let end_at = |lsn| end_of_segment(&fs, Path::new("db"), lsn).unwrap();
    for (lsn, end) in [
        (0xffff, 0),
        (0x10_000, 0x11_000),
        (0x10_fff, 0x11_000),
        (0x11_000, 0x13_000),
        (0x12_fff, 0x13_000),
        (0x13_000, 0x15_000),
        (0x15_000, 0),
        (0x20_000, 0),
        (0x30_000, 0),
    ] {
        assert_eq!(end_at(lsn), end, "{lsn:#x}");
    }
    fs.inject(Fault::on(FileOp::List));
    end_of_segment(&fs, Path::new("db"), 0x10_000).unwrap_err();
}

#[test]
fn an_open_whose_last_edit_fails_is_refused_and_keeps_the_log() {
    // Of the new manifest: its beginning, the edit, its sync marker.
    let steps = [(FileOp::Create, 1), (FileOp::Write, 2), (FileOp::Sync, 3)];
    for (op, nth) in steps.into_iter().flat_map(|(op, max)| (1..=max).map(move |nth| (op, nth))) {
        let (fs, _, _) = left_behind();
        let number = read_current(&fs, Path::new("db")).unwrap() + 1;
        let path = manifest_path(Path::new("db"), number);
        let name = path.file_name().unwrap().to_str().unwrap();
        let segments = || {
            let found = wal::inventory(&fs, &Path::new("db").join(LOG_DIR)).unwrap();
            let old = found.into_iter().filter(|info| info.kind == SegmentKind::Log);
            old.map(|info| info.path).collect::<Vec<_>>()
        };
        let before = segments();
        fs.inject(Fault::on(op).suffix(name).nth(nth));
        assert!(options(&fs).open("db").is_err(), "{op:?} {nth}");
        assert_eq!(fs.struck(), 1, "{op:?} {nth}");
        assert!(before.iter().all(|path| segments().contains(path)), "{op:?} {nth}");
        let fs = fs.killed();
        let db = options(&fs).open("db").unwrap();
        assert_eq!(db.get("key").unwrap().as_deref(), Some(&b"value"[..]));
    }
}

#[test]
fn a_log_that_was_replayed_is_given_up() {
    let (fs, _, _) = left_behind();
    let db = options(&fs).open("db").unwrap();
    let from = db.engine().versions.lock().state().replay_from();
    let old = || {
        let found = wal::inventory(&fs, &Path::new("db").join(LOG_DIR)).unwrap();
        found.iter().filter(|info| info.kind == SegmentKind::Log && info.end() <= from).count()
    };
    for _ in 0..24_000 {
        if old() == 0 {
            return;
        }
        db.engine().options.env.threads.sleep(std::time::Duration::from_millis(5));
    }
    panic!("{} segments are left", old());
}

#[test]
fn leftovers_go_once_the_open_has_its_edit_and_each_is_told() {
    let (fs, _, _) = left_behind();
    let leave = |name: &str| drop(fs.create(&Path::new("db").join(name)).unwrap());
    // A later manifest than the one in force, which was never finished.
    let old = manifest_path(Path::new("db"), 5);
    drop(fs.create(&old).unwrap());
    leave("another's");
    let (listening, told) = listening(&fs);
    fs.inject(Fault::on(FileOp::Remove).suffix(old.file_name().unwrap().to_str().unwrap()));
    drop(listening.open("db").unwrap());
    let errors = |events: &[Event]| {
        let is_one = |event: &&Event| {
            matches!(event, Event::BackgroundError { job: BackgroundJob::LeftoverRemoval, .. })
        };
        events.iter().filter(is_one).count()
    };
    let removed = |events: &[Event]| {
        let is_one = |event: &&Event| matches!(event, Event::FileRemoved { path } if *path == old);
        events.iter().filter(is_one).count()
    };
    let events = std::mem::take(&mut *told.lock());
    assert_eq!((fs.exists(&old).unwrap(), errors(&events), removed(&events)), (true, 1, 0));
    drop(listening.open("db").unwrap());
    let events = std::mem::take(&mut *told.lock());
    assert_eq!((fs.exists(&old).unwrap(), errors(&events), removed(&events)), (false, 0, 1));
    assert!(fs.exists(Path::new("db/another's")).unwrap());
}

#[test]
fn a_manifest_that_was_cut_short_is_told() {
    let (fs, _, _) = left_behind();
    let db = options(&fs).open("db").unwrap();
    let lsn = db.engine().versions.lock().state().ceiling() + 1;
    db.engine().versions.lock().install(Edit::new(vec![Change::LsnCeiling { lsn }]), &[]).unwrap();
    let fs = fs.killed();
    let path = manifest_path(Path::new("db"), read_current(&fs, Path::new("db")).unwrap());
    let offset = ManifestReader::open(&fs, &path).unwrap().edits().last().unwrap().unwrap().0;
    fs.truncate(&path, offset + 11).unwrap();
    let (listening, told) = listening(&fs);
    drop(listening.open("db").unwrap());
    let is_it = |event: &Event| match event {
        Event::ManifestTailDiscarded { path: of, offset: at, discarded_bytes } => {
            (of, *at, *discarded_bytes) == (&path, offset, 11)
        }
        _ => false,
    };
    assert_eq!(told.lock().iter().filter(|event| is_it(event)).count(), 1);
}

#[test]
fn the_names_in_a_database_are_made_to_survive_before_it_is_built_upon() {
    let fs = MemoryFs::new();
    let db = Path::new("/db");
    fs.create_dir_all(db).unwrap();
    fs.sync_dir(Path::new("/")).unwrap();
    sync_dirs(&fs, db).unwrap();
    let dirs = [db.to_owned(), db.join(LOG_DIR), db.join(TABLE_DIR)];
    for dir in &dirs {
        fs.create_dir_all(dir).unwrap();
        drop(fs.create(&dir.join("name")).unwrap());
    }
    for dir in &dirs {
        let left = fs.crashed(|_| 0);
        assert!(!left.exists(&dir.join("name")).unwrap());
    }
    sync_dirs(&fs, db).unwrap();
    let left = fs.crashed(|_| 0);
    for dir in &dirs {
        assert!(left.exists(&dir.join("name")).unwrap(), "{}", dir.display());
        fs.inject(Fault::on(FileOp::SyncDir).suffix(dir.to_str().unwrap()));
        sync_dirs(&fs, db).unwrap_err();
    }
    // An open syncs the directory even if it creates no table and renames nothing.
    let (fs, _, _) = left_behind();
    drop(options(&fs).open("db").unwrap().close());
    fs.inject(Fault::on(FileOp::SyncDir).suffix(TABLE_DIR));
    options(&fs).open("db").unwrap_err();
}

#[test]
fn what_may_be_opened_is_judged_by_names_before_anything_is_touched() {
    let db = Path::new("/db");
    let at = |fs: &MemoryFs, options: &Options| judge(fs, db, options);
    let fs = MemoryFs::new();
    let create = options(&fs);
    let (mut only_open, mut only_new) = (create.clone(), create.clone());
    (only_open.create_if_missing, only_new.error_if_exists) = (false, true);
    let refused = |fs: &MemoryFs, options: &Options, words: &str| {
        let error = at(fs, options).unwrap_err();
        assert!(error.to_string().contains(words), "{error}");
    };
    // The directory does not exist; is empty; holds what a create leaves early; holds something
    // else.
    assert!(at(&fs, &create).unwrap() && at(&fs, &only_new).unwrap());
    refused(&fs, &only_open, "create_if_missing");
    fs.create_dir_all(db).unwrap();
    assert!(at(&fs, &create).unwrap());
    for name in [LOCK, CURRENT_TMP] {
        drop(fs.create(&db.join(name)).unwrap());
        assert!(at(&fs, &create).unwrap(), "{name}");
    }
    for dir in [LOG_DIR, TABLE_DIR] {
        fs.create_dir_all(&db.join(dir)).unwrap();
    }
    assert!(at(&fs, &create).unwrap());
    drop(fs.create(&db.join("letter.txt")).unwrap());
    refused(&fs, &create, "it holds other files");
    refused(&fs, &only_open, "create_if_missing");
    // A manifest and no CURRENT: a create was cut short.
    drop(fs.create(&manifest_path(db, 1)).unwrap());
    assert!(at(&fs, &create).unwrap());
    refused(&fs, &only_open, "create_if_missing");
    drop(fs.create(&db.join("CURRENT")).unwrap());
    assert!(!at(&fs, &create).unwrap() && !at(&fs, &only_open).unwrap());
    refused(&fs, &only_new, "error_if_exists");
}

/// Random bits that a test supplies.
struct Scripted(Mutex<Vec<u64>>);

impl Random for Scripted {
    fn next_u64(&self) -> u64 {
        self.0.lock().pop().unwrap()
    }
}

#[test]
fn an_identity_is_random_but_for_version_and_variant() {
    let uuid = |first: u64, second: u64| {
        let random = Arc::new(Scripted(Mutex::unranked(vec![second, first])));
        new_uuid(&Env { random, ..Env::system() })
    };
    let (mut zeros, mut ones) = ([0; 16], [0xff; 16]);
    (zeros[6], zeros[8], ones[6], ones[8]) = (0x40, 0x80, 0x4f, 0xbf);
    assert_eq!(uuid(0, 0), zeros);
    assert_eq!(uuid(u64::MAX, u64::MAX), ones);
    let some = uuid(0x0807_0605_0403_0201, 0x1817_1615_1413_1211);
    let expected = [1, 2, 3, 4, 5, 6, 0x47, 8, 0x91, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18];
    assert_eq!(some, expected);
}

#[test]
fn lengths_follow_the_write_buffer() {
    let fs = MemoryFs::new();
    let of = |budget: u64| {
        let options = options(&fs).write_buffer(budget);
        let segment_len = segment_len(&options);
        (segment_len, spare_segments(&options, segment_len), chunks(&options))
    };
    assert_eq!(of(64 << 10), (64 << 10, 4, (16 << 10, 8)));
    assert_eq!(of(100_000), (64 << 10, 6, (16 << 10, 13)));
    assert_eq!(of(300_000), (128 << 10, 9, (64 << 10, 10)));
    assert_eq!(of(8 << 20), (2 << 20, 16, (1 << 20, 16)));
    assert_eq!(of(64 << 20), (16 << 20, 16, (2 << 20, 64)));
    assert_eq!(of(1 << 30), (64 << 20, 16, (2 << 20, 1024)));
    let first_segment = |budget| {
        let fs = MemoryFs::new();
        let _db = options(&fs).write_buffer(budget).open("db").unwrap();
        let found = wal::inventory(&fs, &Path::new("db").join(LOG_DIR)).unwrap();
        found[0].end() - found[0].base
    };
    assert_eq!(first_segment(64 << 10), FIRST_SEGMENT_LEN_MIN);
    assert_eq!(first_segment(8 << 20), 32 << 10);
    assert_eq!(first_segment(128 << 20), FIRST_SEGMENT_LEN_MAX);
}

#[test]
fn half_of_the_processors_compact_unless_the_options_say_so() {
    for (parallelism, expected) in [(1, 1), (2, 1), (4, 2), (7, 3), (64, 4)] {
        let fs: Arc<dyn FileSystem> = Arc::new(MemoryFs::new());
        let threads = Arc::new(TestThreads { parallelism, ..TestThreads::default() });
        let env = Env { fs, threads, ..Env::system() };
        let db = Options::new().env(env).open("db").unwrap();
        assert_eq!(db.engine().compactor_count, expected, "{parallelism}");
    }
}

#[test]
fn a_job_that_panics_has_writes_refused() {
    let fs = MemoryFs::new();
    let db = options(&fs).open("db").unwrap();
    db.engine().flusher.submit(Box::new(|_| panic!("planted"))).unwrap();
    db.engine().flusher.wait_idle();
    let refused = db.put("key", "value").unwrap_err();
    assert!(matches!(refused.kind(), ErrorKind::Poisoned { .. }), "{refused}");
    let told = refused.to_string();
    assert!(told.contains("isobath-flush") && told.contains("planted"), "{told}");
}

/// An open writes a manifest of its own with its first edit.
#[test]
fn an_open_fails_while_there_is_no_room_for_the_edit_that_begins_its_term() {
    let (fs, ..) = left_behind();
    let next = read_current(&fs, Path::new("db")).unwrap() + 1;
    let manifest = manifest_path(Path::new("db"), next);
    let name = manifest.file_name().unwrap().to_str().unwrap();
    for op in [FileOp::Write, FileOp::Sync] {
        fs.inject(Fault::on(op).kind(std::io::ErrorKind::StorageFull).suffix(name));
        let before = fs.struck();
        let refused = options(&fs).open("db").map(drop).unwrap_err();
        assert!(refused.is_out_of_space() && fs.struck() > before, "{op:?}: {refused}");
    }
    let db = options(&fs).open("db").unwrap();
    assert_eq!(db.get("key").unwrap().unwrap(), b"value");
}

#[test]
fn a_ceiling_that_cannot_be_written_is_not_raised() {
    let fs = MemoryFs::new();
    let db = options(&fs).open("db").unwrap();
    let versions = db.engine().versions.clone();
    let there = versions.lock().state().ceiling();
    let raise = ceiling_raiser(versions.clone(), 100);
    let len = || {
        let path = versions.lock().manifest().path();
        fs.open_read(&path, FileAccess::Positional).unwrap().len()
    };
    let before = len();
    assert_eq!(raise(there - 100).unwrap(), there);
    assert_eq!(len(), before, "it is there already");
    let path = versions.lock().manifest().path();
    fs.inject(Fault::on(FileOp::Sync).suffix(path.file_name().unwrap().to_str().unwrap()));
    raise(there).unwrap_err();
    assert_eq!(versions.lock().state().ceiling(), there);
}

#[test]
fn compactions_that_were_due_go_on_after_an_open() {
    let fs = MemoryFs::new();
    let mut patient = options(&fs);
    patient.sizes.l0_trigger_runs = 100;
    let db = patient.open("db").unwrap();
    for i in 0..12u32 {
        db.put("key", i.to_be_bytes()).unwrap();
        db.flush().unwrap();
    }
    db.close().unwrap();
    let db = options(&fs).open("db").unwrap();
    db.engine().compactors.wait_idle();
    let tree = db.engine().default_family.view().tree.clone();
    assert!(tree.slices(0).len() < 8, "{}", tree.slices(0).len());
}

/// A process was killed while it made the segments of a long record.
#[test]
fn segments_that_were_being_made_go_before_the_replay_needs_their_room() {
    let fs = MemoryFs::new();
    let db = options(&fs).open("db").unwrap();
    db.put("key", [7; 2000]).unwrap();
    let fs = fs.killed();
    let mut file = fs.create(Path::new("db/wal/00000000000f0000.new")).unwrap();
    file.append(&[0; 1 << 20]).unwrap();
    file.sync().unwrap();
    drop(file);
    let dirs = ["db", "db/wal", "db/table"].map(Path::new);
    let lens = dirs.iter().flat_map(|dir| fs.list(dir).unwrap()).map(|entry| entry.len);
    fs.set_capacity(lens.sum());
    let db = options(&fs).open("db").unwrap();
    assert_eq!(db.get("key").unwrap().unwrap(), [7; 2000]);
}

#[test]
fn a_segment_that_was_being_made_and_stays_stops_no_open() {
    let fs = MemoryFs::new();
    let db = options(&fs).open("db").unwrap();
    db.put("key", "value").unwrap();
    let fs = fs.killed();
    let name = Path::new("db/wal/00000000000f0000.new");
    drop(fs.create(name).unwrap());
    fs.inject(Fault::on(FileOp::Remove).suffix(".new").forever());
    let db = options(&fs).open("db").unwrap();
    assert_eq!(db.get("key").unwrap().unwrap(), "value");
    assert!(fs.exists(name).unwrap());
}

thread_local! {
    static DISK: RefCell<Option<MemoryFs>> = const { RefCell::new(None) };
}

/// Both had found nothing there.
#[test]
fn who_comes_second_to_create_a_database_opens_what_the_first_has_left() {
    let fs = MemoryFs::new();
    DISK.set(Some(fs.clone()));
    fs.inject(Fault::on(FileOp::Lock).runs(|| {
        let first = options(&DISK.take().unwrap()).open("db").unwrap();
        first.put("key", "value").unwrap();
        first.close().unwrap();
    }));
    let second = options(&fs).open("db").unwrap();
    assert_eq!(second.get("key").unwrap().unwrap(), "value");
}

/// What a failed sync covered is lost though a later one succeeds.
#[test]
fn a_creation_that_is_tried_again_makes_its_directories_anew() {
    let mut failed = 0;
    for nth in 1..5 {
        let fs = MemoryFs::new();
        let options =
            |fs: &MemoryFs| Options::new().env(Env { fs: Arc::new(fs.clone()), ..Env::system() });
        let fault = Fault::on(FileOp::SyncDir).suffix("/db").nth(nth);
        fs.inject(fault.kind(std::io::ErrorKind::StorageFull));
        let opened = options(&fs).open("/db");
        failed += usize::from(opened.is_err());
        let db = opened.or_else(|_| options(&fs).open("/db")).unwrap();
        db.with(WriteOptions::sync()).put("key", "value").unwrap();
        let left = options(&fs.crashed(|_| 0)).open("/db").unwrap();
        assert_eq!(left.get("key").unwrap().unwrap(), "value", "{nth}");
    }
    assert!(failed > 0, "{failed}");
}
