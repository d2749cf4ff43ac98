//! What is kept and when, and what a lack of room has given up.

use super::*;
use crate::env::Env;
use crate::env::fixtures::soon;
use crate::options::Options;
use crate::vfs::{Fault, FileOp, FileSystem, MemoryFs};
use crate::write::seal_if_written;
use crate::{Db, compact};
use std::collections::BTreeSet;
use std::path::Path;

fn full() -> Error {
    Error::io("write", "table".as_ref(), io::ErrorKind::StorageFull.into())
}

#[test]
fn some_buffers_are_kept_and_more_once_a_compaction_found_no_room() {
    let fs = MemoryFs::new();
    let room = DiskRoom::new(Arc::new(fs.clone()), "/".into(), 100);
    let is_admitted = |free| {
        fs.set_capacity(free);
        room.admit_segment(0).is_ok()
    };
    assert!(is_admitted(1), "an empty database keeps nothing");
    room.note_held(1000);
    room.note_more(600);
    assert!(is_admitted(400) && !is_admitted(399), "four buffers, a quarter");
    room.note_compaction(Some(&Error::closed()));
    assert!(is_admitted(400) && !room.calls_for_compactions());
    room.note_compaction(Some(&full()));
    assert!(is_admitted(800) && !is_admitted(799), "half");
    assert!(!room.calls_for_compactions());
    room.note_held(10_000);
    assert!(is_admitted(1600) && !is_admitted(1599), "sixteen buffers");
    let mut calls = |free| {
        fs.set_capacity(free);
        room.calls_for_compactions()
    };
    assert_eq!([1600, 1601, 1602, 3203, 3204].map(&mut calls), [false, true, false, false, true]);
    room.note_compaction(Some(&full()));
    assert_eq!([1601, 6500].map(&mut calls), [false, true]);
    room.note_compaction(None);
    assert!(!calls(50_000));
    room.note_compaction(Some(&full()));
    assert!(calls(1601));
    room.note_compaction(None);
    assert!(is_admitted(400) && !is_admitted(399));
    fs.set_capacity(450);
    assert!(room.admit(50).is_ok() && room.admit(51).is_err());
    let error = room.admit(51).unwrap_err();
    assert!(error.is_out_of_space() && error.is_retryable(), "{error}");
}

#[test]
fn a_large_commit_needs_room_for_its_tables_and_calls_for_more_where_it_is_refused() {
    let fs = MemoryFs::new();
    let room = DiskRoom::new(Arc::new(fs.clone()), "/".into(), 100);
    room.note_held(1600);
    let is_admitted = |free| {
        fs.set_capacity(free);
        let admitted = room.admit_layer(1000, 50).is_ok();
        assert_eq!(room.begin_round(), !admitted, "{free}");
        admitted
    };
    assert!(!is_admitted(0), "the flush of an opening's first one would find none either");
    assert!(is_admitted(1450) && !is_admitted(1449));
    fs.inject(Fault::on(FileOp::FreeSpace));
    assert!(is_admitted(0), "the system tells nothing");
    room.note_compaction(Some(&full()));
    assert!(is_admitted(1850) && !is_admitted(1849), "what is kept then stays");
}

#[test]
fn a_segment_passes_now_and_then_while_what_is_to_be_flushed_finds_room() {
    let fs = MemoryFs::new();
    let room = DiskRoom::new(Arc::new(fs.clone()), "/".into(), 100);
    room.note_held(1000);
    fs.set_capacity(150);
    assert!(!room.begin_round(), "none was refused");
    let passed = |rounds, unflushed| {
        let mut passed = 0;
        for _ in 0..rounds {
            if room.admit_segment(unflushed).is_ok() {
                passed += 1;
            }
            assert!(room.admit_segment(unflushed).is_err(), "no second one in a round");
            assert!(room.admit(unflushed).is_err(), "a file of its own does not pass");
            assert!(room.begin_round(), "a round learns of a refusal");
            assert!(!room.begin_round(), "and of one without any");
        }
        passed
    };
    assert_eq!([passed(10, 150), passed(10, 150), passed(10, 150)], [0, 1, 1]);
    assert_eq!([passed(1, 150), passed(10, 151)], [1, 0]);
    fs.set_capacity(100_000);
    room.admit_segment(150).unwrap();
    fs.set_capacity(150);
    assert_eq!([passed(10, 150), passed(1, 150)], [0, 1], "counted from the last one admitted");
}

#[test]
fn what_the_system_cannot_tell_keeps_no_writer_out() {
    let fs = MemoryFs::new();
    let room = DiskRoom::new(Arc::new(fs.clone()), "/".into(), 100);
    room.note_held(1000);
    fs.set_capacity(0);
    room.admit(151).unwrap();
    assert!(room.begin_round(), "it may be full, and then maintenance should make room");
    fs.set_capacity(150);
    fs.inject(Fault::on(FileOp::FreeSpace));
    room.admit(151).unwrap();
    assert!(!room.begin_round());
    room.admit(151).unwrap_err();
    room.note_compaction(Some(&full()));
    fs.inject(Fault::on(FileOp::FreeSpace));
    assert!(room.calls_for_compactions(), "there may be room");
}

#[test]
fn what_is_kept_does_not_grow_with_buffers_for_ever() {
    let fs = MemoryFs::new();
    let room = DiskRoom::new(Arc::new(fs.clone()), "/".into(), 1 << 40);
    room.note_held(1 << 40);
    fs.set_capacity(256 << 20);
    room.admit(0).unwrap();
    room.note_compaction(Some(&full()));
    room.admit(0).unwrap_err();
    fs.set_capacity(1 << 30);
    room.admit(0).unwrap();
    fs.set_capacity(256 << 20);
    [false, false, true, false, false].into_iter().for_each(|waits| room.note_waits(waits));
    room.admit(0).unwrap_err();
    room.note_waits(false);
    room.admit(0).unwrap();
}

/// A database that holds half a MB or more in tables, with a write buffer of 64 KiB and spare
/// segments of the log. Maintenance does nothing by itself.
fn with_tables(fs: &MemoryFs) -> Db {
    let env = Env { fs: Arc::new(fs.clone()), ..Env::system() };
    let db = Options::new().write_buffer(64 << 10).env(env).open("/db").unwrap();
    db.engine().maintenance.close();
    let mut at = 0u64;
    // The last flush may have used them up.
    while at == 0 || spares(fs).is_empty() {
        assert!(at < 100_000, "each flush uses up all spares");
        while at < 800 || spares(fs).len() < 2 {
            // Values that no codec makes shorter.
            let word = |n: u64| (at << 8 | n).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23);
            let value: Vec<u8> = (0..125).flat_map(|n| word(n).to_be_bytes()).collect();
            db.put(at.to_be_bytes(), value).unwrap();
            at += 1;
        }
        db.flush().unwrap();
        assert!(db.wait_for_compactions(None).unwrap());
    }
    db.engine().note_held_bytes();
    assert!(db.engine().disk_room.held.load(Relaxed) > 500_000);
    db
}

fn spares(fs: &MemoryFs) -> BTreeSet<String> {
    let names = fs.list(Path::new("/db/wal")).unwrap().into_iter().map(|entry| entry.name);
    names.filter(|name| name.ends_with(".spare")).collect()
}

/// Leaves so much of the disk.
fn leave(fs: &MemoryFs, bytes: u64) {
    fs.set_capacity(u64::MAX);
    let used = u64::MAX - fs.free_space(Path::new("/")).unwrap();
    fs.set_capacity(used + bytes);
}

/// True if the spares that there were are soon gone. Meanwhile others may come.
fn are_given_up(fs: &MemoryFs, before: &BTreeSet<String>) -> bool {
    assert!(!before.is_empty(), "there was none");
    soon(|| spares(fs).is_disjoint(before))
}

#[test]
fn a_flush_that_found_no_room_has_spares_given_up() {
    let fs = MemoryFs::new();
    let db = with_tables(&fs);
    let before = spares(&fs);
    db.put("key", "value").unwrap();
    fs.inject(Fault::on(FileOp::Create).suffix(".tbl").kind(io::ErrorKind::StorageFull));
    seal_if_written(db.engine()).unwrap().unwrap();
    assert!(are_given_up(&fs, &before));
}

#[test]
fn a_compaction_that_found_no_room_has_spares_given_up_and_more_kept_until_one_did() {
    let fs = MemoryFs::new();
    let db = with_tables(&fs);
    let (engine, before) = (db.engine(), spares(&fs));
    db.put(0u64.to_be_bytes(), "another").unwrap();
    db.flush().unwrap();
    fs.inject(Fault::on(FileOp::Create).suffix(".tbl").kind(io::ErrorKind::StorageFull).forever());
    assert!(db.compact().unwrap_err().is_out_of_space());
    assert!(are_given_up(&fs, &before));
    assert!(engine.disk_room.is_short.load(Relaxed));
    fs.clear_faults();
    db.compact().unwrap();
    assert!(!engine.disk_room.is_short.load(Relaxed));
}

#[test]
fn no_more_is_kept_once_no_compaction_waits_for_room() {
    let fs = MemoryFs::new();
    let db = with_tables(&fs);
    let engine = db.engine();
    engine.disk_room.note_compaction(Some(&full()));
    leave(&fs, (engine.disk_room.kept(false) + engine.disk_room.kept(true)) / 2);
    assert!(engine.disk_room.admit_segment(0).is_err());
    (0..ROUNDS_CALM).for_each(|_| compact::retry(engine));
    engine.disk_room.admit_segment(0).unwrap();
}

#[test]
fn a_stream_and_a_spill_begin_no_file_in_the_room_that_is_kept() {
    let fs = MemoryFs::new();
    let db = with_tables(&fs);
    leave(&fs, db.engine().disk_room.kept(false) / 2);
    let created = fs.tried(FileOp::Create);
    let long = vec![7; 4 << 20];
    assert!(db.put_reader("key", &*long).unwrap_err().is_out_of_space());
    let tx = db.begin();
    let told = (0..10_000u32).find_map(|n| tx.put(n.to_be_bytes(), [7; 200]).err());
    assert!(told.unwrap().is_out_of_space());
    assert_eq!(fs.tried(FileOp::Create), created);
    fs.set_capacity(u64::MAX);
    db.put_reader("key", &*long).unwrap();
}
