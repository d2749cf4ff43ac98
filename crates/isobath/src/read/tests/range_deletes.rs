//! Reads of a memtable with very many range deletes.

use crate::env::fixtures::thread_time;
use crate::{Db, Options};
use std::time::Duration;

fn key(n: u32) -> String {
    format!("{n:06}")
}

/// Overlapping range deletes in memory. Of four keys the first is hidden and the second was put
/// again since.
fn with_range_deletes(count: u32) -> Db {
    let db = Options::in_memory().write_buffer(64 << 20).open("/db").unwrap();
    for n in 0..count {
        db.put(key(4 * n), "old").unwrap();
        db.put(key(4 * n + 1), "old").unwrap();
    }
    (0..count).for_each(|n| _ = db.delete_range(key(4 * n)..key(4 * n + 6)).unwrap());
    (0..count).for_each(|n| _ = db.put(key(4 * n + 1), "new").unwrap());
    db
}

/// What reads take that are spread over all keys.
fn time_of_reads(count: u32) -> Duration {
    let db = with_range_deletes(count);
    let began = thread_time();
    for at in 0..1000 {
        let first = 4 * (at * 7919 % count);
        assert!(db.get(key(first)).unwrap().is_none());
        assert_eq!(db.get(key(first + 1)).unwrap().unwrap(), "new");
        let (found, value) = db.range(key(first)..).next().unwrap().unwrap();
        assert_eq!((&*found, &*value), (key(first + 1).as_bytes(), &b"new"[..]));
    }
    thread_time() - began
}

/// RocksDB #4808: each read cut all range deletes of a memtable into fragments, so a hundred times
/// as many made it take a hundred times as long.
#[test]
fn a_read_does_not_go_through_all_range_deletes_of_a_memtable() {
    let (few, many) = (time_of_reads(100), time_of_reads(10_000));
    assert!(many < 10 * few + Duration::from_millis(200), "{few:?}, then {many:?}");
}
