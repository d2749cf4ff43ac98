//! What a reader must withstand: the writer beside it, and people who move or replace directories.

use super::{options, read, reading};
use crate::error::ErrorKind;
use crate::vfs::{FileAccess, FileSystem, MemoryFs};
use crate::{Db, FamilyOptions, ReadPoint};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, mpsc};
use std::time::Duration;

/// Replaces the files of `to` by copies of those of `from`.
fn put_copy(from: &MemoryFs, to: &MemoryFs) {
    for dir in ["/db", "/db/wal", "/db/table"].map(Path::new) {
        for entry in to.list(dir).unwrap().into_iter().filter(|entry| !entry.is_dir) {
            to.remove(&dir.join(entry.name)).unwrap();
        }
        for entry in from.list(dir).unwrap().into_iter().filter(|entry| !entry.is_dir) {
            let path = dir.join(entry.name);
            let file = from.open_read(&path, FileAccess::Positional).unwrap();
            let mut bytes = vec![0; file.len() as usize];
            file.read_at(0, &mut bytes).unwrap();
            let mut copy = to.create(&path).unwrap();
            copy.append(&bytes).unwrap();
            copy.sync().unwrap();
        }
    }
}

#[test]
fn an_older_copy_that_is_written_on_is_refused() {
    // A manifest has the last 64 terms.
    for (was_closed, reopens) in [(false, 1), (true, 1), (false, 70), (true, 70)] {
        let fs = MemoryFs::new();
        let writer = options(&fs).open("/db").unwrap();
        writer.put("count", "1").unwrap();
        let older = fs.killed();
        if was_closed {
            options(&older).open("/db").unwrap().close().unwrap();
        }
        (0..100u32).for_each(|i| writer.put("count", i.to_be_bytes()).map(|_| ()).unwrap());
        writer.put("count", "2").unwrap();
        let reader = read(&fs);
        writer.close().unwrap();
        put_copy(&older, &fs);
        for _ in 0..reopens {
            options(&fs).open("/db").unwrap().put("other", "value").unwrap();
        }
        let caught_up = reader.catch_up();
        assert_eq!(reader.get("count").unwrap().unwrap(), b"2");
        let error = caught_up.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::NotADatabase { .. }), "{error}");
    }
}

/// Whether it is another history, nothing tells.
#[test]
fn a_reader_that_knows_none_of_the_terms_that_are_kept_is_told_to_open_again() {
    let fs = MemoryFs::new();
    options(&fs).open("/db").unwrap().put("key", "old").unwrap();
    let reader = read(&fs);
    let reopen = |count: u32| {
        (0..count).for_each(|_| drop(options(&fs).open("/db").unwrap()));
        options(&fs).open("/db").unwrap().put("key", count.to_be_bytes()).unwrap();
    };
    reopen(62);
    reader.catch_up().unwrap();
    reopen(63);
    for _ in 0..2 {
        let error = reader.catch_up().unwrap_err();
        let told = error.to_string();
        assert!(matches!(error.kind(), ErrorKind::NotADatabase { .. }), "{told}");
        assert!(told.contains("too often") && told.contains("open it again"), "{told}");
    }
    assert_eq!(reader.get("key").unwrap().unwrap(), 62u32.to_be_bytes());
    assert_eq!(read(&fs).get("key").unwrap().unwrap(), 63u32.to_be_bytes());
}

#[test]
fn a_commit_of_a_reader_is_of_the_term_that_it_has_read() {
    let fs = MemoryFs::new();
    options(&fs).open("/db").unwrap().put("key", "old").unwrap();
    let reader = read(&fs);
    let writer = options(&fs).open("/db").unwrap();
    writer.put("key", "new").unwrap();
    reader.catch_up().unwrap();
    let tx = reader.begin();
    assert_eq!(tx.get("key").unwrap().unwrap(), b"new");
    let seen = tx.commit().unwrap();
    for db in [&reader, &writer] {
        assert_eq!(db.snapshot_at(seen).unwrap().get("key").unwrap().unwrap(), b"new");
    }
}

/// It is in a term of the same number as the reader, and may be ahead of it. The manifest may have
/// the name and the length that it had, so only an edit tells.
#[test]
fn a_copy_that_is_opened_as_often_is_another_history() {
    for count in [50u32, 100, 200] {
        let fs = MemoryFs::new();
        options(&fs).open("/db").unwrap().close().unwrap();
        let copy = fs.killed();
        let put = |db: &Db, i: u32, of: &str| assert!(db.put(i.to_be_bytes(), of).is_ok());
        let writer = options(&fs).open("/db").unwrap();
        (0..100).for_each(|i| put(&writer, i, "one"));
        let reader = read(&fs);
        writer.close().unwrap();
        put_copy(&copy, &fs);
        let refused = || {
            let error = reader.catch_up().unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::NotADatabase { .. }), "{count}: {error}");
        };
        refused();
        let writer = options(&fs).open("/db").unwrap();
        (0..count).for_each(|i| put(&writer, i, "two"));
        writer.flush().unwrap();
        refused();
        writer.close().unwrap();
        let writer = options(&fs).open("/db").unwrap();
        (0..count).for_each(|i| put(&writer, i, "two"));
        refused();
        let is_of_one =
            |item: crate::Result<(crate::Value, crate::Value)>| item.unwrap().1 == "one";
        assert!(reader.range(..).all(is_of_one));
    }
}

/// The reader has shown nothing of the writer's last term, only what came before.
#[test]
fn a_copy_that_was_made_before_the_last_term_is_refused_though_nothing_of_that_is_shown() {
    for terms_behind in [0, 1] {
        let fs = MemoryFs::new();
        options(&fs).open("/db").unwrap().close().unwrap();
        let older = fs.killed();
        let writer = options(&fs).open("/db").unwrap();
        writer.put("k1", "value").unwrap();
        let copy = if terms_behind == 0 { fs.killed() } else { older };
        writer.put("k2", "value").unwrap();
        writer.close().unwrap();
        let writer = options(&fs).open("/db").unwrap();
        let reader = read(&fs);
        writer.close().unwrap();
        put_copy(&copy, &fs);
        let writer = options(&fs).open("/db").unwrap();
        let refused = || {
            let error = reader.catch_up().unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::NotADatabase { .. }), "{error}");
        };
        refused();
        writer.put("k3", "value").unwrap();
        refused();
        assert_eq!(reader.get("k2").unwrap().unwrap(), "value");
    }
}

#[test]
fn tables_that_the_writer_removed_are_held_open_for_snapshots_only() {
    let fs = MemoryFs::new();
    let writer = options(&fs).open("/db").unwrap();
    let reader = read(&fs);
    for round in 0..30u32 {
        (0..1000u32).for_each(|i| {
            writer.put(i.to_be_bytes(), [round as u8; 100]).unwrap();
            if i % 300 == 0 {
                reader.catch_up().unwrap();
            }
        });
        writer.compact().unwrap();
        reader.catch_up().unwrap();
    }
    let there = fs.list(Path::new("/db/table")).unwrap().len();
    let open = reader.engine().tables.files.open_count();
    assert!(open <= there + 20, "{open} are open, {there} exist");
}

#[test]
fn values_in_blob_files_that_the_writer_removed_stay_readable() {
    let fs = MemoryFs::new();
    let writer = options(&fs).family(FamilyOptions::new().separate_from(50)).open("/db").unwrap();
    let put = |round: u8| {
        for key in 0..20u8 {
            writer.put([key], [round; 100]).unwrap();
        }
        writer.compact().unwrap();
    };
    put(1);
    let reader = read(&fs);
    let names = || fs.list(Path::new("/db/table")).unwrap().into_iter().map(|entry| entry.name);
    let before: Vec<String> = names().collect();
    put(2);
    for _ in 0..12_000 {
        if names().all(|name| !before.contains(&name)) {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(names().all(|name| !before.contains(&name)), "the writer keeps nothing for a reader");
    // Others may need the room among the open files.
    reader.engine().tables.files.keep_only(&BTreeSet::new());
    assert_eq!(reader.get([7]).unwrap().unwrap(), [1; 100]);
    assert!(reader.range(..).all(|item| item.unwrap().1 == [1; 100]));
    reader.catch_up().unwrap();
    assert_eq!(reader.get([7]).unwrap().unwrap(), [2; 100]);
}

/// A table without the blob files that its addresses name is worth little.
#[test]
fn a_reader_that_holds_few_files_holds_the_values_of_the_tables_that_it_holds() {
    let fs = MemoryFs::new();
    let writer = options(&fs).open("/db").unwrap();
    let names = || fs.list(Path::new("/db/table")).unwrap().into_iter().map(|entry| entry.name);
    let of = |db: &Db, nth: u8| {
        db.family((format!("f{nth:02}"), FamilyOptions::new().separate_from(50))).unwrap()
    };
    let families: Vec<_> = (0..12).map(|nth| of(&writer, nth)).collect();
    for family in &families {
        family.put("k", [1; 100]).unwrap();
        writer.flush().unwrap();
    }
    writer.wait_for_compactions(None).unwrap();
    let before: Vec<String> = names().collect();
    assert_eq!(before.len(), 24, "a table and a blob file each");
    let reader = reading(&fs).max_open_files(8).open("/db").unwrap();
    for family in &families {
        family.put("k", [2; 100]).unwrap();
    }
    writer.compact().unwrap();
    for _ in 0..12_000 {
        if names().all(|name| !before.contains(&name)) {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(names().all(|name| !before.contains(&name)), "the writer keeps nothing for a reader");
    let is_read = |nth: &u8| {
        let family = reader.family(format!("f{nth:02}")).unwrap();
        family.get("k").is_ok_and(|value| value.unwrap() == [1; 100])
    };
    assert_eq!((0..12).filter(is_read).count(), 4, "four tables and what their addresses name");
}

/// A listener that calls the database at each event.
struct Meddler {
    db: OnceLock<Db>,
    told: AtomicUsize,
    answered: AtomicUsize,
    closes: bool,
}

impl Meddler {
    fn meddle(&self) {
        let Some(db) = self.db.get() else { return };
        self.told.fetch_add(1, Ordering::Relaxed);
        let _ = if self.closes { db.clone().close() } else { db.catch_up().map(drop) };
        self.answered.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_listener_may_call_the_reader() {
    for closes in [false, true] {
        let fs = MemoryFs::new();
        let writer = options(&fs).open("/db").unwrap();
        let meddler = Arc::new(Meddler {
            db: OnceLock::new(),
            told: AtomicUsize::new(0),
            answered: AtomicUsize::new(0),
            closes,
        });
        let told = meddler.clone();
        let reader = reading(&fs).on_event(move |_| told.meddle()).open("/db").unwrap();
        meddler.db.set(reader.clone()).unwrap();
        writer.put("key", "value").unwrap();
        let (done, is_done) = mpsc::channel();
        std::thread::spawn(move || done.send(reader.catch_up().map(drop)));
        let caught_up = is_done.recv_timeout(Duration::from_secs(120));
        assert!(matches!(caught_up, Ok(Ok(()))), "{caught_up:?}");
        let [told, answered] =
            [&meddler.told, &meddler.answered].map(|count| count.load(Ordering::Relaxed));
        assert_eq!(told, answered, "the listener's call came to no end");
    }
}

#[test]
fn a_read_and_a_snapshot_of_one_thread_never_go_back_behind_each_other() {
    let fs = MemoryFs::new();
    let writer = options(&fs).open("/db").unwrap();
    writer.put("count", 0u64.to_be_bytes()).unwrap();
    let reader = read(&fs);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for count in 1..6_000u64 {
                writer.put("count", count.to_be_bytes()).unwrap();
                reader.catch_up().unwrap();
            }
            done.store(true, Ordering::Release);
        });
        let number = |value: crate::Value| u64::from_be_bytes(*value.first_chunk().unwrap());
        while !done.load(Ordering::Acquire) {
            let before = reader.snapshot();
            let newest = number(reader.get("count").unwrap().unwrap());
            let after = reader.snapshot();
            let [before, after] =
                [&before, &after].map(|at| number(at.get("count").unwrap().unwrap()));
            assert!(before <= newest && newest <= after, "{before} {newest} {after}");
        }
    });
}

/// A program writes in one process, and waits in another until a reader has caught up.
#[test]
fn a_point_of_a_reader_is_that_of_the_writer_over_restarts_of_the_writer() {
    let fs = MemoryFs::new();
    let mut writer = options(&fs).open("/db").unwrap();
    let reader = read(&fs);
    let mut held = Vec::new();
    for count in 0..8u32 {
        let commit = writer.put("count", count.to_be_bytes()).unwrap();
        let reached = reader.catch_up().unwrap();
        assert_eq!(reached, ReadPoint::from(commit), "restart {count}");
        writer.sync_to(reached).unwrap();
        held.push(reader.snapshot());
        for snapshot in &held {
            writer.sync_to(snapshot.read_point()).unwrap();
            assert!(writer.is_durable(snapshot.read_point()));
        }
        writer.close().unwrap();
        writer = options(&fs).open("/db").unwrap();
    }
}

#[test]
fn a_transaction_that_is_in_doubt_no_more_takes_no_memory_of_a_reader() {
    let fs = MemoryFs::new();
    let writer = options(&fs).write_buffer(1 << 20).open("/db").unwrap();
    let reader = reading(&fs).write_buffer(1 << 20).open("/db").unwrap();
    let bytes = || {
        reader.catch_up().unwrap();
        let line = reader.engine().shown.as_ref().unwrap().line.lock();
        line.as_ref().unwrap().bytes()
    };
    let before = bytes();
    let tx = writer.begin();
    tx.put("key", vec![7; 100_000]).unwrap();
    let prepared = tx.prepare("x").unwrap();
    assert!(bytes() >= before + 100_000);
    prepared.rollback().unwrap();
    assert!(bytes() < before + 50_000);
}
