//! Writes by careless programs: objects used twice, used after an error, or used after the database
//! was closed and opened again.

mod ceiling;
mod clone;
mod commits;
mod families;
mod seals;
mod streams;

use crate::batch::Batch;
use crate::env::Env;
use crate::format::{Payload, put_payload};
use crate::options::{Options, WriteOptions};
use crate::sizes::Sizes;
use crate::vfs::{Fault, FileOp, FileSystem, MemoryFs};
use crate::wal::RECORD_HEADER_LEN;
use crate::write::Commit;
use crate::{Db, Error};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

type Content = BTreeMap<Vec<u8>, Vec<u8>>;

fn open(fs: &MemoryFs) -> Db {
    let env = Env { fs: Arc::new(fs.clone()), ..Env::system() };
    // Segments are the shortest there are, and an epoch takes four.
    Options::new().write_buffer(256 << 10).env(env).open("db").unwrap()
}

fn content(db: &Db) -> Content {
    let rows = db.range(..).map(|row| row.unwrap());
    rows.map(|(key, value)| (key.to_vec(), value.to_vec())).collect()
}

/// Adds a put. Lengths differ from put to put, so that records need every length of padding.
fn extend(batch: &mut Batch, expected: &mut Content) {
    let n = batch.len();
    let (key, value) = (format!("key{n:03}").into_bytes(), vec![b'v'; n % 11]);
    batch.put(&key, &value);
    expected.insert(key, value);
}

#[test]
fn a_batch_written_again_extended_and_retried_is_whole_at_the_next_open() {
    let fs = MemoryFs::new();
    let db = open(&fs);
    let (mut batch, mut expected) = (Batch::new(), Content::new());
    for _ in 0..24 {
        extend(&mut batch, &mut expected);
        let len = batch.byte_len();
        db.write(&mut batch).unwrap();
        db.with(WriteOptions::sync()).write(&mut batch).unwrap();
        assert_eq!(batch.byte_len(), len);
    }
    let (large, value) = (b"large".to_vec(), vec![7; 5001]);
    db.put(&large, &value).unwrap();
    // No room for another segment of the log, nor for a table.
    for op in [FileOp::OpenSegment, FileOp::Create] {
        fs.inject(Fault::on(op).kind(io::ErrorKind::StorageFull).forever());
    }
    let error = loop {
        let mut batch = Batch::new();
        batch.put(&large, &value);
        if let Err(error) = db.write(&mut batch) {
            break error;
        }
    };
    assert!(error.is_out_of_space(), "{error}");
    let refused = loop {
        // Shorter and shorter records find what room is left.
        match db.write(&mut batch) {
            Ok(_) => extend(&mut batch, &mut expected),
            Err(error) => break error,
        }
    };
    assert!(refused.is_retryable(), "{refused}");
    fs.clear_faults();
    extend(&mut batch, &mut expected);
    db.with(WriteOptions::sync()).write(&mut batch).unwrap();
    expected.insert(large, value);
    assert_eq!(content(&db), expected);
    for left in [fs.killed(), fs.crashed(|_| 0)] {
        assert_eq!(content(&open(&left)), expected);
    }
}

#[test]
fn a_cleared_batch_holds_nothing_of_what_was_written() {
    let fs = MemoryFs::new();
    let db = open(&fs);
    let mut batch = Batch::new();
    batch.put("first", "1");
    db.write(&mut batch).unwrap();
    batch.clear();
    assert!(batch.is_empty());
    batch.put("second", "2");
    db.delete("first").unwrap();
    db.write(&mut batch).unwrap();
    let expected = Content::from([(b"second".to_vec(), b"2".to_vec())]);
    assert_eq!(content(&db), expected);
    assert_eq!(content(&open(&fs.killed())), expected);
}

#[test]
fn a_batch_of_refused_operations_alone_is_not_empty_and_is_written_to_be_told() {
    let db = open(&MemoryFs::new());
    let family = db.family("family").unwrap();
    let (mut batch, long) = (Batch::new(), vec![0; 70_000]);
    batch.of(&family).put(&long, "1");
    assert!(!batch.is_empty());
    batch.put("key", "2").delete(&long);
    assert_eq!(batch.len(), 3);
    for _ in 0..2 {
        let error = db.write(&mut batch).unwrap_err().to_string();
        assert!(error.contains("operation 1 of the batch (Put of"), "{error}");
    }
    assert!(content(&db).is_empty());
    batch.clear();
    assert!(batch.is_empty());
    batch.put("key", "2");
    db.write(&mut batch).unwrap();
    assert_eq!((batch.len(), content(&db).len()), (1, 1));
}

#[test]
fn a_log_that_creates_an_impossible_family_is_refused_by_its_name() {
    let fs = MemoryFs::new();
    let db = open(&fs);
    db.put("before", "1").unwrap();
    let mut record = vec![0; RECORD_HEADER_LEN];
    let id = u32::MAX;
    put_payload(&mut record, &Payload::FamilyCreate { id, name: "last", options: b"{}" });
    let mut record = crate::wal::seal(&mut record);
    let mut reservation = db.engine().log.reserve(record.len() as u64).unwrap();
    reservation.write(&mut record);
    reservation.publish();
    db.put("behind", "2").unwrap();
    let env = Env { fs: Arc::new(fs.killed()), ..Env::system() };
    let error = Options::new().env(env).open("db").unwrap_err();
    assert!(error.is_corruption() && error.to_string().contains(".wal"), "{error}");
}

#[track_caller]
fn refused(db: &Db, commit: Commit, why: &str) {
    let error = db.sync_to(commit).unwrap_err();
    assert_eq!(error.name(), "INVALID_ARGUMENT");
    assert!(error.to_string().contains(why), "{error}");
}

#[test]
fn a_commit_of_an_earlier_life_is_judged_by_what_became_of_it() {
    let fs = MemoryFs::new();
    let db = open(&fs);
    let kept = db.with(WriteOptions::sync()).put("kept", "1").unwrap();
    let lost = db.put("lost", "2").unwrap();
    let mut left = fs.crashed(|_| 0);
    drop(db);
    for _ in 0..3 {
        let db = open(&left);
        let own = db.put("own", "3").unwrap();
        db.sync_to(kept).unwrap();
        refused(&db, lost, "may be lost");
        db.sync_to(own).unwrap();
        assert!(db.get("kept").unwrap().is_some() && db.get("lost").unwrap().is_none());
        left = left.crashed(|_| 0);
    }
}

#[test]
fn a_commit_of_another_database_or_of_a_later_life_is_refused() {
    let (fs, elsewhere) = (MemoryFs::new(), MemoryFs::new());
    let db = open(&fs);
    let foreign = open(&elsewhere).put("key", "value").unwrap();
    for _ in 0..9 {
        db.put("key", "value").unwrap();
    }
    refused(&db, foreign, "another database");
    let copy = fs.killed();
    db.close().unwrap();
    let later = open(&fs).put("key", "value").unwrap();
    let latest = open(&fs.killed()).put("key", "value").unwrap();
    let db = open(&copy);
    let (mut batch, options) = (Batch::new(), WriteOptions::default());
    let nothing = db.with(options).write(&mut batch).unwrap();
    db.sync_to(nothing).unwrap();
    assert!(later < latest);
    refused(&db, latest, "a later life of a copy");
}

#[test]
fn a_write_that_would_not_wait_is_refused_when_the_log_has_no_room() {
    let fs = MemoryFs::new();
    let db = open(&fs);
    fs.inject(Fault::on(FileOp::OpenSegment).kind(io::ErrorKind::StorageFull).forever());
    let hasty = WriteOptions::default().fail_fast(true);
    let error = loop {
        if let Err(error) = db.with(hasty).put("key", [7; 5000]) {
            break error;
        }
    };
    assert!(error.is_retryable(), "{error}");
    fs.clear_faults();
    let patient = WriteOptions::default();
    db.with(patient).put("key", "value").unwrap();
}

/// The preparer is making room and nothing has failed: a write that waits would wait for the
/// manifest.
#[test]
fn a_write_that_would_not_wait_is_refused_while_room_in_the_log_is_being_made() {
    let hasty = WriteOptions::default().fail_fast(true);
    let db = loop {
        let mut options = Options::in_memory();
        options.sizes = Sizes { ceiling_step: 1 << 20, ..options.sizes };
        let db = options.open("db").unwrap();
        db.engine().maintenance.close();
        // On a busy machine maintenance may have raised the ceiling by now.
        let ceiling = db.engine().log.tail() + (1 << 20);
        let is_first = db.engine().versions.lock().state().ceiling() == ceiling;
        if is_first {
            break db;
        }
    };
    let held = db.engine().versions.lock();
    std::thread::scope(|scope| {
        let (told, error) = std::sync::mpsc::channel();
        let db = db.clone();
        scope.spawn(move || {
            let put = |_| db.with(hasty).put("key", [7; 5000]).err();
            told.send((0..300).find_map(put)).unwrap();
        });
        let error = error.recv_timeout(std::time::Duration::from_secs(120));
        drop(held);
        let error = error.expect("it waits").expect("there is no room for all");
        assert_eq!(error.name(), "WOULD_STALL");
    });
    db.put("key", "value").unwrap();
}

#[test]
fn a_write_is_not_told_of_a_failed_flush_that_would_succeed_now() {
    let fs = MemoryFs::new();
    let db = open(&fs);
    // It would try again, too, and after some failures writes pause.
    db.engine().maintenance.close();
    fs.inject(Fault::on(FileOp::Create).suffix(".tbl").kind(io::ErrorKind::StorageFull).forever());
    let error = loop {
        if let Err(error) = db.put("key", [7; 5000]) {
            break error;
        }
    };
    assert!(error.is_out_of_space(), "{error}");
    while db.engine().epochs.check_flushes().is_ok() {
        std::thread::yield_now();
    }
    fs.clear_faults();
    db.put("key", "value").unwrap();
    assert_eq!(db.get("key").unwrap().unwrap(), b"value");
}

#[test]
fn a_write_names_the_first_invalid_operation_of_its_batch_and_commits_nothing() {
    let db = open(&MemoryFs::new());
    let family = db.family("family").unwrap();
    let mut batch = Batch::new();
    let too_long = "t".repeat(crate::MAX_KEY_LEN + 1);
    batch.put("key", "value").delete(too_long);
    batch.of(&family).put(vec![b'k'; crate::MAX_KEY_LEN + 1], "value");
    batch.put("other", "value");
    for _ in 0..2 {
        let error = db.write(&mut batch).unwrap_err();
        let words =
            format!("operation 2 of the batch (Delete of \"{}...\"): a key may", "t".repeat(32));
        assert!(error.to_string().contains(&words), "{error}");
    }
    assert!(db.get("key").unwrap().is_none() && db.get("other").unwrap().is_none());
    batch.clear();
    batch.of(&family).put("k".repeat(crate::MAX_KEY_LEN + 1), "value");
    let error = db.write(&mut batch).unwrap_err();
    let words = format!("operation 1 of the batch (Put of \"{}...\"): a key may", "k".repeat(32));
    assert!(error.to_string().contains(&words), "{error}");
    batch.clear();
    db.write(batch.put("key", "value")).unwrap();
    assert_eq!(db.get("key").unwrap().unwrap(), b"value");
    drop(family);
    let engine = db.engine().clone();
    db.close().unwrap();
    let options = WriteOptions::default();
    let nothing =
        super::commit_batch(&engine, &engine.default_family, Batch::new().parts(), options);
    assert!(nothing.as_ref().is_err_and(Error::is_closed));
}

#[test]
fn a_cursor_that_failed_does_not_look_like_one_at_its_end() {
    let fs = MemoryFs::new();
    let db = open(&fs);
    (0..50).for_each(|n| db.put(format!("key{n:02}"), [7; 3000]).map(drop).unwrap());
    db.flush().unwrap();
    db.close().unwrap();
    let env = Env { fs: Arc::new(fs.clone()), ..Env::system() };
    let options = Options::new().env(env).block_cache(0);
    let db = options.open("db").unwrap();
    let mut cursor = db.cursor(..).unwrap();
    for backward in [false, true] {
        let begin = if backward { cursor.last() } else { cursor.first() };
        assert!(begin.unwrap().is_some());
        fs.inject(Fault::on(FileOp::Read).suffix(".tbl").forever());
        let step = |cursor: &mut crate::Cursor| match backward {
            true => cursor.prev().map(|entry| entry.is_some()),
            false => cursor.next().map(|entry| entry.is_some()),
        };
        let error = loop {
            match step(&mut cursor) {
                Ok(has_entry) => assert!(has_entry, "the end was not reached"),
                Err(error) => break error.to_string(),
            }
        };
        for _ in 0..2 {
            assert!(cursor.entry().is_none());
            assert_eq!(step(&mut cursor).unwrap_err().to_string(), error);
        }
        fs.clear_faults();
        assert_eq!(step(&mut cursor).unwrap_err().to_string(), error);
        cursor.seek("key10").unwrap();
        step(&mut cursor).unwrap();
        let key = cursor.entry().map(|entry| entry.key());
        assert_eq!(key, Some(if backward { &b"key09"[..] } else { b"key11" }));
    }
}

/// Meanwhile the same directory is opened again, or holds another database.
#[test]
fn a_range_that_outlives_its_database_shows_what_it_saw_or_fails() {
    for is_replaced in [false, true] {
        let fs = MemoryFs::new();
        let env = || Env { fs: Arc::new(fs.clone()), ..Env::system() };
        let options = || Options::new().env(env());
        let db = options().open("db").unwrap();
        for n in 0..60 {
            db.put(format!("key{n:02}"), [1; 2000]).unwrap();
            if n % 20 == 19 {
                db.flush().unwrap();
            }
        }
        let (mut begun, later) = (db.range(..), db.range(..));
        begun.next().unwrap().unwrap();
        let snapshot = db.snapshot();
        db.close().unwrap();
        if is_replaced {
            for dir in ["db", "db/wal", "db/table"] {
                for entry in fs.list(Path::new(dir)).unwrap() {
                    let path = Path::new(dir).join(&entry.name);
                    let _ = if entry.is_dir { Ok(()) } else { fs.remove(&path) };
                }
            }
        }
        let db = options().open("db").unwrap();
        for n in 0..60 {
            db.put(format!("key{n:02}"), [2; 2000]).unwrap();
            if n % 20 == 19 {
                db.flush().unwrap();
            }
        }
        db.compact().unwrap();
        for range in [begun, later] {
            for row in range.flatten() {
                assert!(*row.1 == [1; 2000], "{row:?} was never seen by this range");
            }
        }
        assert_eq!(snapshot.get("key00").unwrap_err().name(), "CLOSED");
        assert!(db.range(..).all(|row| *row.unwrap().1 == [2; 2000]));
    }
}
