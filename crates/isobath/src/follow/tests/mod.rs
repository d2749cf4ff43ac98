//! A reader changes nothing on disk and shows what an open for writing would show. Beside a writer
//! it always shows a prefix of the writer's commits.

mod beside;
mod clones;
mod eras;
mod steps;

use crate::env::Env;
use crate::env::fixtures::TestThreads;
use crate::error::Error;
use crate::sizes::Sizes;
use crate::vfs::{Fault, FileOp, FileSystem, MemoryFs};
use crate::{Batch, Db, Options, WriteOptions};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Small sizes, so that a little data is flushed and compacted and the log reuses its segments.
fn options(fs: &MemoryFs) -> Options {
    let env = Env { fs: Arc::new(fs.clone()), ..Env::system() };
    let mut options = Options::new().write_buffer(64 << 10).env(env);
    options.sizes = Sizes { segment_len_min: 16 << 10, table_len_min: 16 << 10, ..options.sizes };
    options
}

/// A reader's options, with threads that fail the test if one is started.
fn reading(fs: &MemoryFs) -> Options {
    let before_spawn = Box::new(|name: &str| panic!("a reader starts the thread {name}"));
    let threads = Arc::new(TestThreads { before_spawn, ..TestThreads::default() });
    let env = Env { fs: Arc::new(fs.clone()), threads, ..Env::system() };
    options(fs).env(env).read_only(true)
}

fn read(fs: &MemoryFs) -> Db {
    reading(fs).open("/db").unwrap()
}

type Entries = Vec<(Vec<u8>, Vec<u8>)>;

/// All families with everything in them.
fn contents(db: &Db) -> Vec<(String, Entries)> {
    let snapshot = db.snapshot();
    let entries = |name: &str| -> Entries {
        let family = db.family(name).unwrap();
        let range = snapshot.of(&family).iter();
        range.map(Result::unwrap).map(|(key, value)| (key.to_vec(), value.to_vec())).collect()
    };
    db.list_families().into_iter().map(|name| (name.clone(), entries(&name))).collect()
}

/// A database that was written for a while, and whose process was killed: tables, families, a log.
fn left_behind(rounds: u32) -> MemoryFs {
    let fs = MemoryFs::new();
    let db = options(&fs).open("/db").unwrap();
    let users = db.family("users").unwrap();
    let brief = db.family("brief").unwrap();
    for i in 0..rounds {
        db.put((i % 300).to_be_bytes(), [i as u8; 100]).unwrap();
        users.put(i.to_be_bytes(), [i as u8; 20]).unwrap();
        if i % 3 == 0 {
            db.delete((i % 200).to_be_bytes()).unwrap();
            brief.put("key", "value").unwrap();
        }
    }
    db.drop_family(&brief).unwrap();
    db.rename_family(&users, "people").unwrap();
    db.family("late").unwrap().put("key", "value").unwrap();
    db.with(WriteOptions::sync()).put("last", "value").unwrap();
    fs.killed()
}

/// Makes every operation that changes something fail from now on.
fn forbid_changes(fs: &MemoryFs) {
    use FileOp::*;
    for op in [
        CreateDir,
        Create,
        OpenSegment,
        Rename,
        Link,
        Remove,
        RemoveDir,
        SyncDir,
        Lock,
        Write,
        Sync,
        CopyIn,
        SyncRange,
    ] {
        fs.inject(Fault::on(op).forever());
    }
}

#[test]
fn a_reader_touches_nothing_and_starts_no_thread() {
    for rounds in [0, 100, 3000] {
        let fs = left_behind(rounds);
        forbid_changes(&fs);
        let steps = fs.steps();
        let db = read(&fs);
        assert_eq!(db.get("last").unwrap().unwrap(), b"value");
        assert_eq!(db.list_families(), ["default", "people", "late"]);
        assert_eq!(db.family("people").unwrap().iter().count(), rounds as usize);
        assert!(db.metrics().memtable_bytes > 0);
        assert_eq!(
            db.snapshot().of(&db.family("late").unwrap()).get("key").unwrap().unwrap(),
            b"value"
        );
        db.catch_up().unwrap();
        db.close().unwrap();
        assert_eq!(fs.steps(), steps);
    }
}

#[test]
fn tools_that_look_touch_nothing() {
    let fs = left_behind(2000);
    fs.clear_faults();
    let steps = fs.steps();
    for op in [FileOp::Create, FileOp::Rename, FileOp::Remove, FileOp::Write, FileOp::SyncDir] {
        fs.inject(Fault::on(op).forever());
    }
    let env = Env { fs: Arc::new(fs.clone()), ..Env::system() };
    let report = crate::tools::verify(Path::new("/db"), &env, &mut |_, _| ()).unwrap();
    assert!(report.is_clean(), "{report:?}");
    crate::tools::inspect(Path::new("/db"), &env).unwrap();
    assert_eq!(fs.steps(), steps);
}

#[test]
fn a_reader_shows_what_the_next_open_for_writing_recovers() {
    for rounds in [0, 1, 500, 3000] {
        let fs = left_behind(rounds);
        for chance in [0, 1, 2, 5, usize::MAX] {
            let mut n = 0;
            let fs = fs.crashed(|unsynced| {
                n += 1;
                if chance == usize::MAX {
                    unsynced.steps.len()
                } else {
                    n * chance % (unsynced.steps.len() + 1)
                }
            });
            let shown = reading(&fs).open("/db").map(|db| contents(&db));
            let recovered = options(&fs).open("/db").map(|db| contents(&db));
            match (shown, recovered) {
                (Ok(shown), Ok(recovered)) => assert!(shown == recovered, "{rounds} {chance}"),
                (Err(_), Err(_)) => {}
                (shown, recovered) => panic!("{:?} but {:?}", shown.err(), recovered.err()),
            }
        }
    }
}

#[test]
fn a_closed_database_and_one_of_an_older_term_are_read() {
    let fs = left_behind(1000);
    for _ in 0..3 {
        let db = options(&fs).open("/db").unwrap();
        db.put("more", "value").unwrap();
        let before = contents(&db);
        assert!(contents(&read(&fs)) == before, "beside the writer");
        db.close().unwrap();
        assert!(contents(&read(&fs)) == before, "after it");
    }
}

#[test]
fn whatever_changes_something_answers_read_only() {
    let db = read(&left_behind(100));
    let people = db.family("people").unwrap();
    let mut batch = Batch::new();
    batch.of(&people).put("key", "value");
    let refusals = [
        db.put("key", "value").map(drop),
        db.delete("key").map(drop),
        people.put("key", "value").map(drop),
        db.write(batch).map(drop),
        db.write(Batch::new()).map(drop),
        db.sync(),
        db.flush(),
        db.compact(),
        people.compact(..),
        db.wait_for_compactions(None).map(drop),
        db.family("new").map(drop),
        db.drop_family(&people),
        db.rename_family(&people, "new"),
        db.sync_to(db.snapshot().read_point()),
    ];
    for (at, refusal) in refusals.into_iter().enumerate() {
        assert!(
            matches!(refusal.as_ref().map_err(Error::name), Err("READ_ONLY")),
            "{at}: {refusal:?}"
        );
    }
    assert_eq!(people.iter().count(), 100);
    // A program that names options names them wherever it opens the database.
    let again = db.family(("people", people.options())).unwrap();
    assert_eq!(again.iter().count(), 100);
    let other = people.options().block_size(512);
    assert_eq!(db.family(("people", other)).unwrap_err().name(), "READ_ONLY");
}

#[test]
fn what_is_no_database_is_refused_and_not_created() {
    let fs = MemoryFs::new();
    let refused = reading(&fs).open("/db");
    assert!(matches!(refused.as_ref().map_err(Error::name), Err("NOT_A_DATABASE")), "{refused:?}");
    assert_eq!(fs.steps(), 0);
}

#[test]
fn a_log_that_does_not_fit_memory_is_a_typed_error() {
    let fs = MemoryFs::new();
    let db = options(&fs).write_buffer(4 << 20).open("/db").unwrap();
    for i in 0..3000u32 {
        db.put(i.to_be_bytes(), [7; 300]).unwrap();
    }
    let refused = reading(&fs).open("/db");
    assert!(matches!(refused.as_ref().map_err(Error::name), Err("MEMORY_LIMIT")), "{refused:?}");
    reading(&fs).write_buffer(4 << 20).open("/db").unwrap();
}

#[test]
fn a_reader_sees_its_moment_until_it_catches_up_and_snapshots_see_theirs_for_good() {
    let fs = MemoryFs::new();
    let writer = options(&fs).open("/db").unwrap();
    let put_all = |value: u8| {
        (0..300u32).for_each(|i| writer.put(i.to_be_bytes(), [value; 100]).map(|_| ()).unwrap())
    };
    put_all(0);
    let reader = read(&fs);
    let mut snapshots = Vec::new();
    let sees = |range: crate::Range, value: u8| {
        let mut count = 0;
        for entry in range {
            assert_eq!(entry.unwrap().1[..], [value; 100]);
            count += 1;
        }
        assert_eq!(count, 300);
    };
    for value in 1..20 {
        snapshots.push((reader.snapshot(), value - 1));
        let under_way = reader.iter();
        let before = reader.snapshot().read_point();
        put_all(value);
        if value % 3 == 0 {
            writer.flush().unwrap();
        }
        if value % 5 == 0 {
            writer.compact().unwrap();
        }
        sees(reader.iter(), value - 1);
        assert!(reader.catch_up().unwrap() > before);
        sees(reader.iter(), value);
        sees(under_way, value - 1);
        for (snapshot, value) in &snapshots {
            sees(snapshot.iter(), *value);
        }
        if value % 4 == 0 {
            snapshots.remove(0);
        }
    }
}

#[test]
fn families_come_and_go_and_swap_names_beside_a_reader_whose_handles_stay() {
    let fs = MemoryFs::new();
    let writer = options(&fs).open("/db").unwrap();
    let [one, two] = ["one", "two"].map(|name| writer.family(name).unwrap());
    one.put("key", "1").unwrap();
    two.put("key", "2").unwrap();
    let reader = read(&fs);
    let [seen_one, seen_two] = ["one", "two"].map(|name| reader.family(name).unwrap());
    let early = reader.snapshot();
    for flushes in [false, true] {
        let names = [one.name(), two.name()];
        writer.rename_family(&one, "away").unwrap();
        writer.rename_family(&two, &names[0]).unwrap();
        writer.rename_family(&one, &names[1]).unwrap();
        let brief = writer.family("brief").unwrap();
        brief.put("key", "brief").unwrap();
        if flushes {
            (0..2000u32).for_each(|i| writer.put(i.to_be_bytes(), [7; 100]).map(|_| ()).unwrap());
            writer.flush().unwrap();
        }
        reader.catch_up().unwrap();
        let swapped = if flushes { ["one", "two"] } else { ["two", "one"] };
        assert_eq!([seen_one.name(), seen_two.name()], swapped);
        assert_eq!(reader.family(swapped[0]).unwrap().get("key").unwrap().unwrap(), b"1");
        assert_eq!(seen_two.get("key").unwrap().unwrap(), b"2");
        let seen_brief = reader.family("brief").unwrap();
        let held = reader.snapshot();
        writer.drop_family(&brief).unwrap();
        assert_eq!(seen_brief.get("key").unwrap().unwrap(), b"brief");
        reader.catch_up().unwrap();
        assert_eq!(seen_brief.get("key").unwrap_err().name(), "UNKNOWN_FAMILY");
        assert!(reader.family_if_exists("brief").unwrap().is_none());
        assert_eq!(held.of(&seen_brief).get("key").unwrap().unwrap(), b"brief");
        assert_eq!(early.of(&seen_one).get("key").unwrap().unwrap(), b"1");
    }
}

#[test]
fn a_reader_goes_on_over_restarts_of_the_writer() {
    let fs = MemoryFs::new();
    let mut writer = options(&fs).open("/db").unwrap();
    writer.put("count", 0u32.to_be_bytes()).unwrap();
    let reader = read(&fs);
    for count in 1..12u32 {
        writer.put("count", count.to_be_bytes()).unwrap();
        if count % 2 == 0 {
            reader.catch_up().unwrap();
            assert_eq!(reader.get("count").unwrap().unwrap(), count.to_be_bytes());
        }
        if count % 3 == 0 {
            writer.close().unwrap();
            reader.catch_up().unwrap();
            writer = options(&fs).open("/db").unwrap();
        }
        reader.catch_up().unwrap();
        assert_eq!(reader.get("count").unwrap().unwrap(), count.to_be_bytes());
    }
}

#[test]
fn memory_is_given_back_where_tables_hold_what_the_log_said() {
    let fs = MemoryFs::new();
    let writer = options(&fs).open("/db").unwrap();
    let reader = read(&fs);
    let mut most = 0;
    for i in 0..20_000u32 {
        writer.put((i % 500).to_be_bytes(), [i as u8; 100]).unwrap();
        if i % 100 == 0 {
            reader.catch_up().unwrap();
            most = most.max(reader.metrics().memtable_bytes);
        }
    }
    assert!(most < 8 * (64 << 10), "{most}");
    writer.put("key", "value").unwrap();
    reader.catch_up().unwrap();
    let memory_bytes = || reader.engine().shown.as_ref().unwrap().memory_bytes();
    assert!(memory_bytes() > 0);
    reader.clone().close().unwrap();
    assert_eq!(memory_bytes(), 0);
}

#[test]
fn another_database_in_the_place_of_the_one_that_was_opened_is_refused() {
    let fs = MemoryFs::new();
    options(&fs).open("/db").unwrap().put("key", "old").unwrap();
    let reader = read(&fs);
    for name in ["/db/CURRENT", "/db/MANIFEST-000001"] {
        let _ = fs.remove(Path::new(name));
    }
    for dir in ["/db", "/db/wal", "/db/table"] {
        for entry in fs.list(Path::new(dir)).unwrap().into_iter().filter(|entry| !entry.is_dir) {
            fs.remove(&Path::new(dir).join(entry.name)).unwrap();
        }
    }
    options(&fs).open("/db").unwrap().put("key", "new").unwrap();
    let refused = reader.catch_up();
    assert!(matches!(refused.as_ref().map_err(Error::name), Err("NOT_A_DATABASE")), "{refused:?}");
    assert_eq!(reader.get("key").unwrap().unwrap(), b"old");
}

/// Commit `n` writes `n` under `n % KEYS` in the default family and under "n" in another. So a read
/// tells which commit is the last one present, and that all before it are present.
const KEYS: u64 = 97;

fn commit(db: &Db, family: &crate::Family, n: u64) {
    let mut batch = Batch::new();
    batch.put((n % KEYS).to_be_bytes(), n.to_be_bytes());
    batch.of(family).put("n", [&n.to_be_bytes()[..], &[7; 200]].concat());
    db.write(batch).unwrap();
}

/// The last commit that is present. Panics unless exactly the commits up to it are.
fn check_prefix(db: &Db, snapshot: &crate::Snapshot) -> u64 {
    let number = |bytes: &[u8]| u64::from_be_bytes(*bytes.first_chunk().unwrap());
    let last = snapshot.of(&db.family("other").unwrap()).get("n").unwrap();
    let Some(last) = last.map(|value| number(&value)) else { return 0 };
    let mut seen = 0;
    for entry in snapshot.iter() {
        let (key, value) = entry.unwrap();
        let (key, n) = (number(&key), number(&value));
        assert!(
            n % KEYS == key && n <= last && n + KEYS > last,
            "{n} under {key}, the last is {last}"
        );
        seen += 1;
    }
    assert_eq!(seen, KEYS.min(last));
    last
}

#[test]
fn beside_a_busy_writer_a_reader_sees_prefixes_only_and_never_goes_back() {
    let fs = MemoryFs::new();
    let writer = options(&fs).open("/db").unwrap();
    let other = writer.family("other").unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for n in 1..=20_000u64 {
                commit(&writer, &other, n);
                if n % 1000 == 0 {
                    writer.flush().unwrap();
                }
                if n % 3000 == 0 {
                    let brief = writer.family("brief").unwrap();
                    brief.put("key", "value").unwrap();
                    writer.compact().unwrap();
                    writer.drop_family(&brief).unwrap();
                }
            }
            done.store(true, Ordering::Release);
        });
        let mut reader = read(&fs);
        let (mut last, mut rounds) = (0, 0u32);
        let mut held = Vec::new();
        loop {
            let is_done = done.load(Ordering::Acquire);
            if rounds % 7 == 3 {
                held.clear();
                reader = read(&fs);
            }
            match reader.catch_up() {
                Ok(_) => {}
                Err(error) if error.name() == "OUTRUN" => {}
                Err(error) => panic!("{error}"),
            }
            let snapshot = reader.snapshot();
            let now = check_prefix(&reader, &snapshot);
            assert!(now >= last, "{now} after {last}");
            last = now;
            held.push((snapshot, now));
            for (snapshot, then) in &held {
                assert_eq!(check_prefix(&reader, snapshot), *then);
            }
            if held.len() > 3 {
                held.remove(0);
            }
            rounds += 1;
            if is_done {
                break;
            }
        }
        assert_eq!(last, 20_000);
    });
}
