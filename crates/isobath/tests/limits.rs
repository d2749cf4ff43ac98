//! Bad input, bad directories, bad files and a machine without space. Each causes a typed error
//! that says what to do, and nothing is lost or changed.
#![cfg(unix)]

use isobath::env::Env;
use isobath::vfs::{FileSystem, MemoryFs};
use isobath::{
    Batch, Db, Error, ErrorKind, FamilyOptions, FilterEntry, FilterVerdict, LockHolder,
    MAX_KEY_LEN, MAX_VALUE_LEN, Options, Result, WriteOptions,
};
use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

fn over(fs: &MemoryFs) -> Options {
    let env = Env { fs: Arc::new(fs.clone()), ..Env::system() };
    Options::new().env(env).write_buffer(64 << 10)
}

#[track_caller]
fn refused(result: Result<impl Sized>, words: &str) {
    let Err(error) = result else { panic!("accepted, though it should say {words:?}") };
    assert!(matches!(error.kind(), ErrorKind::InvalidArgument { .. }), "{error}");
    assert!(error.to_string().contains(words), "{error}");
}

#[test]
fn keys_outside_the_limits_are_refused_and_change_nothing() {
    let db = Options::in_memory().open("db").unwrap();
    let (longest, too_long) = (vec![b'k'; MAX_KEY_LEN], vec![b'k'; MAX_KEY_LEN + 1]);
    refused(db.put(&too_long, "value"), "at most 65536 bytes, this one has 65537");
    let mut batch = Batch::new();
    batch.put("good", "value");
    refused(db.write(batch.clone().put(&too_long, "value")), "at most 65536 bytes");
    refused(db.write(batch.clone().delete(&too_long)), "at most 65536 bytes");
    assert!(db.get("good").unwrap().is_none());
    db.write(batch).unwrap();
    db.put(&longest, "longest").unwrap();
    db.flush().unwrap();
    assert_eq!(db.get(&longest).unwrap().unwrap(), b"longest");
    assert_eq!(db.range(..).count(), 2);
    assert!(db.get("").unwrap().is_none() && db.get(&too_long).unwrap().is_none());
}

/// A key that reads differently each time.
struct Fickle(Cell<usize>);

impl AsRef<[u8]> for Fickle {
    fn as_ref(&self) -> &[u8] {
        let time = self.0.replace(self.0.get() + 1);
        [&b"key"[..], b""][time.min(1)]
    }
}

#[test]
fn a_key_that_was_checked_is_the_key_that_is_written() {
    let db = Options::in_memory().open("db").unwrap();
    let family = db.family("family").unwrap();
    let fickle = || Fickle(Cell::new(0));
    db.put(fickle(), "value").unwrap();
    db.delete(fickle()).unwrap();
    family.put(fickle(), "value").unwrap();
    family.delete(fickle()).unwrap();
    let mut batch = Batch::new();
    batch.put(fickle(), "value");
    batch.of(&family).delete(fickle());
    db.write(batch).unwrap();
    assert_eq!(db.get("key").unwrap().unwrap(), b"value");
    assert_eq!(family.get("key").unwrap(), None);
}

#[test]
fn a_value_over_four_gibibytes_is_refused_by_its_length_alone() {
    // Reserved addresses that are never touched. Reading one byte in each page would take 4 GiB.
    let map =
        memmap2::MmapOptions::new().len(MAX_VALUE_LEN + 1).no_reserve_swap().map_anon().unwrap();
    let db = Options::in_memory().open("db").unwrap();
    refused(
        db.put("key", &map[..]),
        &format!("at most {MAX_VALUE_LEN} bytes, this one has {}", MAX_VALUE_LEN + 1),
    );
    refused(db.write(Batch::new().put("key", &map[..])), "a value may have at most");
    assert!(db.get("key").unwrap().is_none());
}

#[test]
fn a_value_larger_than_every_budget_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let large = vec![7; 24 << 20];
    let options = Options::new().write_buffer(64 << 10);
    let db = options.open(dir.path()).unwrap();
    db.put("large", &large).unwrap();
    db.put("small", "value").unwrap();
    assert!(db.get("large").unwrap().unwrap() == large[..]);
    db.close().unwrap();
    let db = options.open(dir.path()).unwrap();
    assert!(db.get("large").unwrap().unwrap() == large[..]);
}

#[test]
fn names_and_handles_that_mean_nothing_here_are_refused() {
    let (db, elsewhere) =
        (Options::in_memory().open("db").unwrap(), Options::in_memory().open("db").unwrap());
    assert!(db.family_if_exists("nowhere").unwrap().is_none());
    refused(db.family(""), "1 to 255 bytes");
    refused(db.family("n".repeat(256)), "1 to 255 bytes");
    refused(db.family("line\nbreak"), "control characters");
    let foreign = elsewhere.family("family").unwrap();
    let own = db.family("family").unwrap();
    let renamed = db.rename_family(&own, "default");
    assert!(matches!(
        renamed.as_ref().map_err(Error::kind),
        Err(ErrorKind::FamilyExists { name, .. }) if name == "default"
    ));
    refused(db.snapshot().of(&foreign).get("key"), "another database");
    for foreign in [foreign, elsewhere.default_family()] {
        let mut batch = Batch::new();
        batch.put("key", "value");
        batch.of(&foreign).put("key", "value");
        refused(db.write(batch), "another database");
    }
    assert!(db.get("key").unwrap().is_none());
    for n in 0..100 {
        elsewhere.put(format!("{n}"), "value").unwrap();
    }
    let commit = elsewhere.put("key", "value").unwrap();
    refused(db.sync_to(commit), "in another database");
    refused(db.drop_family(&db.default_family()), "default");
    db.drop_family(&own).unwrap();
    assert_eq!(own.get("key").unwrap_err().name(), "UNKNOWN_FAMILY");
    assert_eq!(db.snapshot().of(&own).get("key").unwrap_err().name(), "UNKNOWN_FAMILY");
    assert_eq!(db.drop_family(&own).unwrap_err().name(), "UNKNOWN_FAMILY");
    refused(Options::in_memory().sync_interval(Some(Duration::ZERO)).open("db"), "sync_interval");
}

/// The child of the test below.
#[test]
#[ignore = "run by another test, in a process of its own"]
fn child_opens() {
    let Some(dir) = std::env::var_os("ISOBATH_OPEN_DIR") else { return };
    println!("answer: {}", Db::open(dir).unwrap_err());
}

fn child(test: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--ignored", "--nocapture"]);
    command
}

#[test]
fn a_second_open_is_told_who_holds_the_database() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path()).unwrap();
    let error = Db::open(dir.path()).unwrap_err();
    assert!(
        matches!(error.kind(), ErrorKind::Locked { holder: LockHolder::ThisProcess, .. }),
        "{error}"
    );
    assert!(error.is_retryable());
    let output = child("child_opens").env("ISOBATH_OPEN_DIR", dir.path()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains(&format!("is locked by process {}", std::process::id())), "{said}");
    db.put("key", "value").unwrap();
    drop(db);
    assert_eq!(Db::open(dir.path()).unwrap().get("key").unwrap().unwrap(), b"value");
}

fn listing(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(listing(&path));
            found.push((path, Vec::new()));
        } else {
            found.push((path.clone(), std::fs::read(path).unwrap()));
        }
    }
    found.sort();
    found
}

#[test]
fn a_directory_that_holds_something_else_is_left_alone() {
    for is_dir in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        match is_dir {
            true => std::fs::create_dir(dir.path().join("photos")).unwrap(),
            false => std::fs::write(dir.path().join("photo"), b"pixels").unwrap(),
        }
        let before = listing(dir.path());
        let error = Db::open(dir.path()).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::NotADatabase { .. }), "{error}");
        assert!(error.to_string().contains("give an empty or a new directory"), "{error}");
        assert_eq!(listing(dir.path()), before);
    }
    let dir = tempfile::tempdir().unwrap();
    let none = dir.path().join("none");
    let error = Options::new().create_if_missing(false).open(&none).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::NotADatabase { .. }), "{error}");
    assert!(!none.exists());
    std::fs::write(&none, b"a file").unwrap();
    Db::open(&none).unwrap_err();
    assert_eq!(std::fs::read(&none).unwrap(), b"a file");
}

/// A closed database on disk with something in a table and something in the log.
fn filled() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path()).unwrap();
    for n in 0..500 {
        db.put(format!("key {n:05}"), [7; 100]).unwrap();
    }
    db.close().unwrap();
    dir
}

fn find(dir: &Path, part: &str) -> PathBuf {
    let found = listing(dir).into_iter().find(|(path, _)| path.to_string_lossy().contains(part));
    found.unwrap_or_else(|| panic!("no {part}")).0
}

#[test]
fn files_of_a_newer_format_are_left_to_a_newer_version() {
    for part in ["MANIFEST", ".tbl"] {
        let dir = filled();
        let path = find(dir.path(), part);
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[10] += 1;
        let sum = xxhash_rust::xxh3::xxh3_64(&bytes[..120]);
        bytes[120..128].copy_from_slice(&sum.to_le_bytes());
        std::fs::write(&path, &bytes).unwrap();
        let error = Db::open(dir.path()).and_then(|db| db.get("key 00001").map(drop)).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::NewerFormat { .. }), "{part}: {error}");
        assert!(error.to_string().contains(&*path.to_string_lossy()), "{error}");
        assert!(error.to_string().contains("open it with a newer Isobath"), "{error}");
        assert_eq!(std::fs::read(&path).unwrap(), bytes);
    }
}

#[test]
fn what_is_missing_cut_or_flipped_is_named_and_nothing_else_is_harmed() {
    type Damage = (&'static str, fn(&Path));
    let damages: [Damage; 3] = [
        ("missing", |path| std::fs::remove_file(path).unwrap()),
        ("cut", |path| {
            std::fs::OpenOptions::new().write(true).open(path).unwrap().set_len(70).unwrap()
        }),
        ("flipped", |path| {
            let mut bytes = std::fs::read(path).unwrap();
            bytes.iter_mut().for_each(|byte| *byte ^= 4);
            std::fs::write(path, bytes).unwrap();
        }),
    ];
    for part in ["CURRENT", "MANIFEST", ".tbl"] {
        for (what, damage) in damages {
            let dir = filled();
            let path = find(dir.path(), part);
            damage(&path);
            let before: Vec<_> = listing(dir.path());
            let error =
                Db::open(dir.path()).and_then(|db| db.get("key 00001").map(drop)).unwrap_err();
            let text = error.to_string();
            let is_typed = error.is_corruption()
                || matches!(error.kind(), ErrorKind::NotADatabase { .. } | ErrorKind::Io { .. });
            assert!(is_typed, "{part} {what}: {text}");
            let name = path.file_name().unwrap().to_string_lossy();
            assert!(text.contains(&*name), "{part} {what}: {text}");
            // Recovery may begin a new manifest and a new log. The tables, and the damaged file,
            // stay as they are.
            let after = listing(dir.path());
            for old in before.iter().filter(|(path, _)| path.to_string_lossy().contains(".tbl")) {
                assert!(after.contains(old), "{part} {what}: {} was touched", old.0.display());
            }
        }
    }
}

#[test]
fn a_full_disk_is_survived_and_forgotten_once_there_is_room() {
    let fs = MemoryFs::new();
    let db = over(&fs).open("/db").unwrap();
    db.put("before", "value").unwrap();
    fs.set_capacity(0);
    let mut written = 0;
    let error = loop {
        match db.put(format!("key {written:06}"), [7; 200]) {
            Ok(_) => written += 1,
            Err(error) => break error,
        }
        assert!(written < 10_000, "the disk is full, and no write failed");
    };
    assert!(error.is_out_of_space() && error.is_retryable(), "after {written} puts: {error}");
    let error = db.flush().unwrap_err();
    assert!(error.is_out_of_space(), "{error}");
    assert_eq!(db.get("before").unwrap().unwrap(), b"value");
    assert_eq!(db.range(..).map(Result::unwrap).count(), written + 1);
    // The process may also die here.
    let killed = fs.killed();
    killed.set_capacity(u64::MAX);
    let other = over(&killed).open("/db").unwrap();
    assert_eq!(other.range(..).map(Result::unwrap).count(), written + 1);

    fs.set_capacity(u64::MAX);
    let began = Instant::now();
    while let Err(error) = db.put("after", "value") {
        assert!(error.is_retryable() && began.elapsed() < Duration::from_secs(120), "{error}");
        std::thread::sleep(Duration::from_millis(20));
    }
    db.compact().unwrap();
    assert_eq!(db.range(..).map(Result::unwrap).count(), written + 2);
    db.close().unwrap();
}

/// The next value of a stream that does not compress.
fn noise(state: &mut u64, len: usize) -> Vec<u8> {
    let mut next = || {
        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (*state >> 33) as u8
    };
    std::iter::repeat_with(&mut next).take(len).collect()
}

/// Compactions are late, so that the disk fills up with what has been overwritten. They need room
/// before they make some, which writers must have left to them.
#[test]
fn a_disk_that_is_full_of_what_was_overwritten_does_not_stay_full() {
    let fs = MemoryFs::new();
    let gate = Arc::new(std::sync::RwLock::new(()));
    let late = {
        let gate = gate.clone();
        move |_: FilterEntry<'_>| {
            drop(gate.read());
            FilterVerdict::Keep
        }
    };
    let default = FamilyOptions::new().compaction_filter("late");
    let options = over(&fs).compaction_filter("late", late).family(default);
    let db = options.open("/db").unwrap();
    db.put("kept", "value").unwrap();
    fs.set_capacity(2 << 20);
    let closed = gate.write().unwrap();
    let (mut state, mut written) = (7, 0);
    let eager = db.with(WriteOptions::new().fail_fast(true));
    let mut refused = None;
    let began = Instant::now();
    while refused.is_none() && began.elapsed() < Duration::from_secs(60) {
        match eager.put(format!("key {}", written % 10), noise(&mut state, 1000)) {
            Ok(_) => written += 1,
            Err(error) if error.is_out_of_space() => refused = Some(error),
            // A flush is under way.
            Err(error) => {
                assert!(error.is_retryable(), "{error}");
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
    assert!(written > 500 && refused.is_some(), "{written}, {refused:?}");
    drop(closed);
    for at in 0..2000 {
        let began = Instant::now();
        while let Err(error) = db.put(format!("key {}", at % 10), noise(&mut state, 1000)) {
            assert!(error.is_out_of_space(), "{error}");
            assert!(began.elapsed() < Duration::from_secs(60), "after {at} puts: {error}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    db.compact().unwrap();
    assert_eq!(db.get("kept").unwrap().unwrap(), b"value");
    assert_eq!(db.range(..).map(Result::unwrap).count(), 11);
}

#[test]
fn a_database_is_closed_and_reopened_around_a_full_disk() {
    let fs = MemoryFs::new();
    let db = over(&fs).open("/db").unwrap();
    for n in 0..20 {
        db.put(format!("key {n}"), [7; 1000]).unwrap();
    }
    fs.set_capacity(0);
    let error = db.close().unwrap_err();
    assert!(error.is_out_of_space(), "{error}");
    let error = over(&fs).open("/db").unwrap_err();
    assert!(error.is_out_of_space(), "{error}");
    fs.set_capacity(u64::MAX);
    let db = over(&fs).open("/db").unwrap();
    assert_eq!(db.range(..).map(Result::unwrap).count(), 20);
}

#[test]
fn a_change_of_families_waits_for_room() {
    let fs = MemoryFs::new();
    let db = over(&fs).open("/db").unwrap();
    fs.set_capacity(0);
    std::thread::scope(|scope| {
        let created = scope.spawn(|| db.family("family"));
        std::thread::sleep(Duration::from_millis(300));
        fs.set_capacity(u64::MAX);
        let family = created.join().unwrap().unwrap();
        family.put("key", "value").unwrap();
    });
    drop(db);
    let db = over(&fs).open("/db").unwrap();
    let family = db.family_if_exists("family").unwrap().unwrap();
    assert_eq!(family.get("key").unwrap().unwrap(), b"value");
}

#[test]
fn a_new_database_survives_a_cut_of_power_with_the_directories_made_for_it() {
    let fs = MemoryFs::new();
    let db = over(&fs).open("/new/directories/db").unwrap();
    db.with(isobath::WriteOptions::sync()).put("key", "value").unwrap();
    let left = fs.crashed(|_| 0);
    assert!(left.exists(Path::new("/new/directories/db/CURRENT")).unwrap());
    let db = over(&left).create_if_missing(false).open("/new/directories/db").unwrap();
    assert_eq!(db.get("key").unwrap().unwrap(), b"value");
}

/// The child of the test below. It opens at most as many files as the limit allows.
#[test]
#[ignore = "run by another test, in a process of its own"]
fn child_with_few_files() {
    let Some(dir) = std::env::var_os("ISOBATH_FILES_DIR") else { return };
    let set_limit = |files: u64| {
        let limit = libc::rlimit { rlim_cur: files, rlim_max: 4096 };
        // SAFETY: `setrlimit` only reads the struct that it gets.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) }, 0);
    };
    let options = Options::new().write_buffer(64 << 10).max_open_files(8).block_cache(0);
    set_limit(64);
    let db = options.open(&dir).unwrap();
    for n in (0..4000u32).map(|n| n.wrapping_mul(2_654_435_761)) {
        // Hard to compress, so that there is enough for many tables.
        let value: Vec<u8> =
            (1..=500u32).map(|i| (n ^ i.wrapping_mul(n | 1)).to_le_bytes()[2]).collect();
        db.put(n.to_be_bytes(), value).unwrap();
    }
    db.wait_for_compactions(None).unwrap();
    let files = std::fs::read_dir(Path::new(&dir).join("table")).unwrap().count();
    assert!(files > 8, "{files} tables");
    let count = || db.range(..).map(Result::unwrap).count();
    assert_eq!(count(), 4000);
    // No more files can be opened. Calls that need none work, the others return an error, and
    // everything works again afterwards.
    set_limit(3);
    db.put("key", "value").unwrap();
    let error = db.flush().unwrap_err();
    assert!(error.is_too_many_files() && error.is_retryable(), "{error}");
    assert_eq!(db.get("key").unwrap().unwrap(), b"value");
    let error = options.open(Path::new(&dir).join("another")).unwrap_err();
    assert!(error.is_too_many_files(), "{error}");
    // Writes until memory and log are full. The log meanwhile takes segments that are still open.
    let refused = (0..10_000u32).find_map(|n| db.put(n.to_le_bytes(), [7; 500]).err()).unwrap();
    assert!(refused.is_too_many_files(), "{refused}");
    set_limit(64);
    db.flush().unwrap();
    db.put("key", "value").unwrap();
    assert!(count() > 4001);
    db.close().unwrap();
    println!("answer: all is well");
}

#[test]
fn too_many_open_files_is_an_error_that_passes() {
    let dir = tempfile::tempdir().unwrap();
    let output =
        child("child_with_few_files").env("ISOBATH_FILES_DIR", dir.path()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("answer: all is well"), "{said}\n{complaint}");
}
