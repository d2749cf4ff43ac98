//! Families that were dropped, and time, in databases whose log is damaged.

use super::*;
use crate::Db;
use crate::env::Clock;
use crate::env::sync::atomic::{AtomicU64, Ordering};
use crate::version::CURRENT;
use crate::wal::{HEADER_PAGE_LEN, RECORD_HEADER_LEN};
use std::time::Duration;

/// Damages the record of the log that has these bytes.
fn damage_record(fs: &MemoryFs, with: &[u8]) {
    let all = segments(fs).into_iter().map(|path| (bytes(fs, &path), path));
    let mut found = all.filter_map(|(bytes, path)| {
        let at = bytes.windows(with.len()).position(|window| window == with)?;
        Some((path, at))
    });
    let (path, at) = found.next_back().unwrap();
    fs.corrupt(&path, at as u64, 1).unwrap();
}

fn put(db: &Db, key: &str) {
    db.with(WriteOptions::sync()).put(key, "value").unwrap();
}

fn keys(found: &Content) -> Vec<(&str, &str)> {
    found.keys().map(|(family, key)| (&**family, std::str::from_utf8(key).unwrap())).collect()
}

#[test]
fn a_family_that_was_dropped_since_the_last_flush_stays_dropped() {
    for loses_drop in [false, true] {
        let fs = MemoryFs::new();
        let db = options(&fs).open(DB).unwrap();
        let users = db.family(USERS).unwrap();
        put(&db, "damaged");
        users.put("old", "1").unwrap();
        let dropped_at = db.engine().log.tail();
        db.drop_family(&users).unwrap();
        put(&db, "kept");
        let fs = fs.killed();
        if loses_drop {
            let offset = HEADER_PAGE_LEN + dropped_at % (64 << 10);
            fs.corrupt(&segments(&fs)[0], offset + RECORD_HEADER_LEN as u64, 1).unwrap();
        } else {
            damage_record(&fs, b"damaged");
        }
        let (report, found) = repaired(&fs);
        let rest: &[_] = if loses_drop { &["damaged", "kept"] } else { &["kept"] };
        let rest: Vec<_> = rest.iter().map(|key| ("default", *key)).collect();
        assert_eq!(keys(&found), rest, "{report:?}");
        let db = options(&fs).open(DB).unwrap();
        assert_eq!(db.list_families(), ["default"], "{report:?}");
        assert!(report.guesses.is_empty(), "{report:?}");
    }
}

/// Without a manifest the table that has both families' keys would name it.
#[test]
fn the_report_guesses_nothing_about_a_family_that_the_log_drops() {
    let fs = MemoryFs::new();
    let db = options(&fs).open(DB).unwrap();
    let users = db.family(USERS).unwrap();
    users.put("old", "1").unwrap();
    put(&db, "kept");
    db.flush().unwrap();
    db.drop_family(&users).unwrap();
    let fs = fs.killed();
    manifests(&fs).iter().for_each(|path| fs.remove(path).unwrap());
    let (report, found) = repaired(&fs);
    assert_eq!(keys(&found), [("default", "kept")], "{report:?}");
    assert!(report.guesses.is_empty(), "{report:?}");
}

/// The next change of a family is in the manifest, so that the log's records before it count as
/// known.
#[test]
fn a_family_stays_dropped_though_the_manifest_has_lost_its_drop() {
    let fs = MemoryFs::new();
    let db = options(&fs).open(DB).unwrap();
    let users = db.family(USERS).unwrap();
    users.put("old", "1").unwrap();
    db.flush().unwrap();
    let manifest = manifests(&fs).pop().unwrap();
    let before = bytes(&fs, &manifest);
    db.drop_family(&users).unwrap();
    let at = (0..before.len()).rfind(|at| before[*at] != bytes(&fs, &manifest)[*at]);
    let at = at.unwrap_or(before.len() + 8);
    db.family("next").unwrap();
    put(&db, "kept");
    let fs = fs.killed();
    fs.corrupt(&manifest, at as u64, 1).unwrap();
    let (report, found) = repaired(&fs);
    assert_eq!(keys(&found), [("default", "kept")], "{report:?}");
    assert_eq!(options(&fs).open(DB).unwrap().list_families(), ["default", "next"], "{report:?}");
}

/// A clock that stands still until it is set.
struct Stopped(AtomicU64);

impl Clock for Stopped {
    fn now_ns(&self) -> u64 {
        self.unix_ms() * 1_000_000
    }

    fn unix_ms(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

#[test]
fn what_had_ended_stays_ended_though_the_clock_is_set_back() {
    for removes_manifest in [false, true] {
        let (fs, clock) = (MemoryFs::new(), Arc::new(Stopped(AtomicU64::new(1000))));
        let open = |fs: &MemoryFs| {
            options(fs).env(Env { clock: clock.clone(), ..env(fs) }).open(DB).unwrap()
        };
        let db = open(&fs);
        db.put_ttl("short", "value", Duration::from_millis(10)).unwrap();
        put(&db, "damaged");
        clock.0.store(1010, Ordering::Relaxed);
        assert!(db.get("short").unwrap().is_none());
        put(&db, "kept");
        let fs = fs.killed();
        damage_record(&fs, b"damaged");
        if removes_manifest {
            manifests(&fs).iter().for_each(|path| fs.remove(path).unwrap());
        }
        clock.0.store(1000, Ordering::Relaxed);
        let report = run(&fs, false).unwrap();
        assert_eq!(report.losses.len(), 1, "{report:?}");
        let db = open(&fs);
        assert!(db.get("kept").unwrap().is_some() && db.get("damaged").unwrap().is_none());
        assert!(db.get("short").unwrap().is_none(), "{report:?}");
    }
}

/// A program need not name the span at each open: the manifest remembers it.
#[test]
fn a_repaired_database_goes_on_keeping_a_history() {
    for loses_current in [true, false] {
        let fs = MemoryFs::new();
        let db = options(&fs).history(Duration::from_secs(3600)).open(DB).unwrap();
        put(&db, "key");
        db.close().unwrap();
        match loses_current {
            true => fs.remove(&Path::new(DB).join(CURRENT)).unwrap(),
            // The last record, behind which is its sync marker.
            false => {
                let manifest = manifests(&fs).pop().unwrap();
                fs.corrupt(&manifest, bytes(&fs, &manifest).len() as u64 - 12, 1).unwrap();
            }
        }
        assert!(!repaired(&fs).0.is_sound());
        let db = options(&fs).open(DB).unwrap();
        let earlier = db.put("key", "earlier").unwrap();
        db.put("key", "later").unwrap();
        db.compact().unwrap();
        let found = db.snapshot_at(earlier).unwrap();
        assert_eq!(found.get("key").unwrap().unwrap(), "earlier", "{loses_current}");
    }
}

/// A power cut has torn a commit, and spared the record of a drop behind it. An open would discard
/// both.
#[test]
fn a_drop_in_the_discarded_end_of_the_log_drops_no_family() {
    for is_flushed in [false, true] {
        let fs = MemoryFs::new();
        let db = options(&fs).open(DB).unwrap();
        let users = db.family(USERS).unwrap();
        users.put("old", "1").unwrap();
        if is_flushed {
            db.flush().unwrap();
        }
        put(&db, "kept");
        db.put("torn", "value").unwrap();
        db.drop_family(&users).unwrap();
        let fs = fs.killed();
        damage_record(&fs, b"torn");
        manifests(&fs).iter().for_each(|path| fs.remove(path).unwrap());
        let (report, found) = repaired(&fs);
        assert_eq!(keys(&found), [("default", "kept"), (USERS, "old")], "{report:?}");
        let db = options(&fs).open(DB).unwrap();
        assert_eq!(db.list_families(), ["default", USERS], "{report:?}");
    }
}
