//! Writes as programs make them, carelessly: objects used twice, after an error, or in another life of the database.

use crate::batch::Batch;
use crate::components::Components;
use crate::options::{Options, WriteOptions};
use crate::vfs::{Fault, FileOp, MemoryFs};
use crate::write::Commit;
use crate::{Db, Error};
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::sync::Arc;

type Content = BTreeMap<Vec<u8>, Vec<u8>>;

fn open(fs: &MemoryFs) -> Db {
    let components = Components { fs: Arc::new(fs.clone()), ..Components::system() };
    // Segments are the shortest there are, and an epoch takes four.
    Options::new().write_budget(256 << 10).components(components).open("db").unwrap()
}

fn content(db: &Db) -> Content {
    let rows = db.range::<&[u8]>(..).map(|row| row.unwrap());
    rows.map(|(key, value)| (key.to_vec(), value.to_vec())).collect()
}

/// Adds a put; their lengths differ, so that records take every number of bytes of padding.
fn extend(batch: &mut Batch, expected: &mut Content) {
    let n = batch.len();
    let (key, value) = (format!("key{n:03}").into_bytes(), vec![b'v'; n % 11]);
    batch.put(&key, &value).unwrap();
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
        db.write_reusing(&mut batch, WriteOptions::default()).unwrap();
        db.write_reusing(&mut batch, WriteOptions::sync()).unwrap();
        assert_eq!(batch.byte_len(), len);
    }
    // No room for another segment of the log, nor for a table.
    for op in [FileOp::OpenSegment, FileOp::Create] {
        fs.inject(Fault::on(op).kind(ErrorKind::StorageFull).forever());
    }
    let (large, value) = (b"large".to_vec(), vec![7; 5001]);
    let error = loop {
        let mut batch = Batch::new();
        batch.put(&large, &value).unwrap();
        if let Err(error) = db.write_reusing(&mut batch, WriteOptions::default()) {
            break error;
        }
    };
    assert!(error.is_out_of_space(), "{error}");
    let refused = loop {
        // Shorter and shorter records find what room is left.
        match db.write_reusing(&mut batch, WriteOptions::default()) {
            Ok(_) => extend(&mut batch, &mut expected),
            Err(error) => break error,
        }
    };
    assert!(refused.is_retryable(), "{refused}");
    fs.clear_faults();
    extend(&mut batch, &mut expected);
    db.write_reusing(&mut batch, WriteOptions::sync()).unwrap();
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
    batch.put("first", "1").unwrap();
    db.write_reusing(&mut batch, WriteOptions::default()).unwrap();
    batch.clear();
    assert!(batch.is_empty());
    batch.put("second", "2").unwrap();
    db.delete("first").unwrap();
    db.write_reusing(&mut batch, WriteOptions::default()).unwrap();
    let expected = Content::from([(b"second".to_vec(), b"2".to_vec())]);
    assert_eq!(content(&db), expected);
    assert_eq!(content(&open(&fs.killed())), expected);
}

#[track_caller]
fn refused(db: &Db, commit: Commit, why: &str) {
    match db.harden(commit) {
        Err(Error::InvalidArgument(what)) => assert!(what.contains(why), "{what}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_commit_of_an_earlier_life_is_judged_by_what_became_of_it() {
    let fs = MemoryFs::new();
    let db = open(&fs);
    let kept = db.put_with("kept", "1", WriteOptions::sync()).unwrap();
    let lost = db.put("lost", "2").unwrap();
    let mut left = fs.crashed(|_| 0);
    drop(db);
    for _ in 0..3 {
        let db = open(&left);
        let own = db.put("own", "3").unwrap();
        db.harden(kept).unwrap();
        refused(&db, lost, "was lost");
        db.harden(own).unwrap();
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
    let nothing = db.write_reusing(&mut batch, options).unwrap();
    db.harden(nothing).unwrap();
    assert!(later < latest);
    refused(&db, latest, "none of this database");
}
