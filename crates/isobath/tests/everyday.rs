//! Tests everyday use: write, read, scan, snapshot, flush, compact, close, reopen.

use isobath::{Batch, Db, Options};
use std::time::Duration;

fn small() -> Options {
    Options::new().write_buffer(256 << 10).block_cache(1 << 20)
}

fn key(i: u32) -> Vec<u8> {
    format!("key{i:08}").into_bytes()
}

fn value(i: u32, round: u32) -> Vec<u8> {
    let mut value = format!("value{i}.{round}.").into_bytes();
    value.resize(100, b'.');
    value
}

#[test]
fn a_cursor_goes_on_reading_while_compactions_remove_the_files_below_it() {
    let db = Options::in_memory().write_buffer(256 << 10).block_cache(0).open("db").unwrap();
    for i in 0..1000 {
        db.put(key(i), value(i, 0)).unwrap();
    }
    db.flush().unwrap();
    let mut cursor = db.cursor(..).unwrap();
    assert!(cursor.first().unwrap().is_some());
    for i in 0..1000 {
        db.put(key(i), value(i, 1)).unwrap();
    }
    db.compact().unwrap();
    // Files that are not needed any more are removed after flushes.
    db.put("more", "value").unwrap();
    db.flush().unwrap();
    std::thread::sleep(std::time::Duration::from_millis(50));
    for i in 0..1000 {
        let entry = cursor.entry().unwrap();
        assert_eq!((entry.key(), entry.value().unwrap()), (&key(i)[..], &value(i, 0)[..]));
        cursor.next().unwrap();
    }
}

#[test]
fn what_is_written_is_there_after_flush_compaction_and_reopen() {
    let dir = tempfile::tempdir().unwrap();
    let db = small().open(dir.path()).unwrap();
    for round in 0..3 {
        for i in 0..20_000u32 {
            let i = i.wrapping_mul(7919) % 20_000;
            db.put(key(i), value(i, round)).unwrap();
        }
    }
    for i in (0..20_000).step_by(3) {
        db.delete(key(i)).unwrap();
    }
    let check = |db: &Db| {
        for i in 0..20_000 {
            let found = db.get(key(i)).unwrap();
            if i % 3 == 0 {
                assert!(found.is_none(), "{i}");
            } else {
                assert_eq!(found.unwrap(), value(i, 2), "{i}");
            }
        }
        let all: Vec<_> = db.range(..).map(|item| item.unwrap().0.to_vec()).collect();
        assert_eq!(all.len(), 20_000 - 6667);
        assert!(all.is_sorted());
        let mut back: Vec<_> = db.range(..).rev().map(|item| item.unwrap().0.to_vec()).collect();
        back.reverse();
        assert_eq!(all, back);
    };
    check(&db);
    db.flush().unwrap();
    check(&db);
    db.wait_for_compactions(None).unwrap();
    check(&db);
    println!("{:?}", db.metrics());
    db.compact().unwrap();
    check(&db);
    println!("{:?}", db.metrics());
    db.close().unwrap();
    let db = small().open(dir.path()).unwrap();
    check(&db);
}

#[test]
fn a_wait_for_compactions_can_be_given_up_and_taken_up_again() {
    let dir = tempfile::tempdir().unwrap();
    let db = small().open(dir.path()).unwrap();
    for i in 0..20_000 {
        db.put(key(i), value(i, 1)).unwrap();
    }
    while !db.wait_for_compactions(Some(Duration::from_millis(1))).unwrap() {}
    assert!(db.wait_for_compactions(Some(Duration::ZERO)).unwrap(), "nothing is left to do");
    assert_eq!(db.metrics().immutable_memtables, 0);
    assert_eq!(db.get(key(19_999)).unwrap().unwrap(), value(19_999, 1));
    db.close().unwrap();
}

#[test]
fn batches_across_families_are_atomic_and_families_live_their_own_lives() {
    let dir = tempfile::tempdir().unwrap();
    let db = small().open(dir.path()).unwrap();
    let users = db.family("users").unwrap();
    let mut batch = Batch::new();
    for i in 0..100 {
        batch.put(key(i), b"default");
        batch.of(&users).put(key(i), b"users");
        batch.of(&users).delete(key(i / 2));
    }
    db.write(batch).unwrap();
    assert_eq!(db.get(key(7)).unwrap().unwrap(), b"default");
    assert!(users.get(key(7)).unwrap().is_none());
    assert_eq!(users.get(key(77)).unwrap().unwrap(), b"users");
    db.rename_family(&users, "people").unwrap();
    let other = db.family("users").unwrap();
    assert!(other.get(key(77)).unwrap().is_none());
    db.drop_family(&other).unwrap();
    assert!(other.put(key(1), b"x").is_err());
    drop((db, users, other));
    let db = small().open(dir.path()).unwrap();
    assert_eq!(db.list_families(), ["default", "people"]);
    let people = db.family_if_exists("people").unwrap().unwrap();
    assert_eq!(people.range(..).count(), 50);
}

#[test]
fn a_snapshot_sees_its_moment_through_flush_and_compaction() {
    let dir = tempfile::tempdir().unwrap();
    let db = small().open(dir.path()).unwrap();
    for i in 0..5000 {
        db.put(key(i), value(i, 0)).unwrap();
    }
    let snapshot = db.snapshot();
    for i in 0..5000 {
        if i % 2 == 0 {
            db.put(key(i), value(i, 1)).unwrap()
        } else {
            db.delete(key(i)).unwrap()
        };
    }
    db.flush().unwrap();
    db.compact().unwrap();
    for i in 0..5000 {
        assert_eq!(snapshot.get(key(i)).unwrap().unwrap(), value(i, 0), "{i}");
    }
    assert_eq!(snapshot.range(..).count(), 5000);
    assert_eq!(db.range(..).count(), 2500);
    drop(snapshot);
    db.compact().unwrap();
    assert_eq!(db.range(..).count(), 2500);
}

/// The bytes that a directory and its subdirectories take on disk.
#[cfg(unix)]
fn taken(dir: &std::path::Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
    let size = |entry: std::fs::DirEntry| match entry.metadata().unwrap() {
        metadata if metadata.is_dir() => taken(&entry.path()),
        metadata => metadata.blocks() * 512,
    };
    entries.map(size).sum()
}

#[cfg(unix)]
#[test]
fn a_database_of_one_key_is_small_on_disk() {
    let dir = tempfile::tempdir().unwrap();
    for round in 0..3 {
        let db = Db::open(dir.path()).unwrap();
        db.put("key", "value").unwrap();
        db.sync().unwrap();
        let open = taken(dir.path());
        assert!(open < 640 << 10, "{open} bytes while open, in round {round}");
        db.close().unwrap();
        let closed = taken(dir.path());
        assert!(closed < 384 << 10, "{closed} bytes once closed, in round {round}");
    }
}
