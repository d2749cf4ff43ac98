//! What snapshots of a reader go on seeing when the writer takes it away without an LSN, or within
//! its history: what a compaction filter changes, and families that are dropped.

use super::*;
use crate::env::fixtures::Wall;
use crate::env::sync::atomic::AtomicU64;
use crate::{Family, FamilyOptions, FilterEntry, FilterVerdict, Snapshot};
use std::time::Duration;

/// A writer with a history of ten seconds and a family whose filter takes what says "old".
struct Beside {
    fs: MemoryFs,
    wall: Arc<Wall>,
    writer: Db,
    filtered: Family,
}

impl Beside {
    fn new(verdict: fn() -> FilterVerdict) -> Beside {
        let (fs, wall) = (MemoryFs::new(), Arc::new(Wall(AtomicU64::new(1_700_000_000_000))));
        let judge = move |entry: FilterEntry<'_>| match entry.value {
            b"old" => verdict(),
            _ => FilterVerdict::Keep,
        };
        let options = Beside::env(&fs, &wall).history(Duration::from_secs(10));
        let writer = options.compaction_filter("no old", judge).open("/db").unwrap();
        // It would note moments of its own.
        writer.engine().maintenance.close();
        let of = FamilyOptions::new().compaction_filter("no old");
        let filtered = writer.family(("filtered", of)).unwrap();
        Beside { fs, wall, writer, filtered }
    }

    fn env(fs: &MemoryFs, wall: &Arc<Wall>) -> Options {
        let env = Env { fs: Arc::new(fs.clone()), clock: wall.clone(), ..Env::system() };
        options(fs).env(env)
    }

    /// A reader, and its handle of the family.
    fn reader(&self) -> (Db, Family) {
        let reader = Beside::env(&self.fs, &self.wall).read_only(true).open("/db").unwrap();
        let seen = reader.family("filtered").unwrap();
        (reader, seen)
    }

    /// Writes something else, so that the reader has to begin anew from the manifest.
    fn go_on(&self, reader: &Db) {
        self.writer.put("other", "value").unwrap();
        self.writer.flush().unwrap();
        reader.catch_up().unwrap();
    }
}

/// The number of moments that are kept for snapshots.
fn kept(reader: &Db) -> usize {
    reader.engine().shown.as_ref().unwrap().older_count()
}

fn value(snapshot: &Snapshot, of: &Family) -> Option<Vec<u8>> {
    snapshot.of(of).get("k").unwrap().map(|value| value.to_vec())
}

#[test]
fn snapshots_go_on_seeing_what_a_compaction_filter_has_changed() {
    let verdicts: [fn() -> FilterVerdict; 2] =
        [|| FilterVerdict::Remove, || FilterVerdict::Replace(b"new".to_vec())];
    for verdict in verdicts {
        let left = match verdict() {
            FilterVerdict::Replace(new) => Some(new),
            _ => None,
        };
        let left = left.as_deref();
        let beside = Beside::new(verdict);
        beside.filtered.put("k", "old").unwrap();
        // The flush notes a moment, as one has passed since the open.
        beside.wall.0.fetch_add(5_000, Ordering::Relaxed);
        beside.writer.flush().unwrap();
        beside.wall.0.fetch_add(60_000, Ordering::Relaxed);
        let (reader, seen) = beside.reader();
        let newest = reader.snapshot();
        let earlier = reader.snapshot_at(newest.read_point()).unwrap();
        beside.filtered.compact(..).unwrap();
        let filtered = beside.filtered.get("k").unwrap().map(|value| value.to_vec());
        assert_eq!(filtered.as_deref(), left, "the filter was asked");
        for _ in 0..3 {
            beside.go_on(&reader);
            for snapshot in [&newest, &earlier] {
                assert_eq!(value(snapshot, &seen).unwrap(), b"old");
            }
            let later = reader.snapshot();
            assert_eq!(value(&later, &seen).as_deref(), left);
            let again = reader.snapshot_at(newest.read_point()).unwrap();
            assert_eq!(value(&again, &seen).as_deref(), left, "who comes later sees the change");
        }
        drop((newest, earlier));
        beside.go_on(&reader);
        beside.go_on(&reader);
        assert_eq!(kept(&reader), 0);
    }
}

#[test]
fn a_snapshot_goes_on_seeing_a_family_that_is_dropped_within_the_history() {
    let beside = Beside::new(|| FilterVerdict::Keep);
    beside.filtered.put("k", "value").unwrap();
    let (reader, seen) = beside.reader();
    let snapshot = reader.snapshot();
    beside.writer.drop_family(&beside.filtered).unwrap();
    for _ in 0..2 {
        beside.go_on(&reader);
        assert_eq!(value(&snapshot, &seen).unwrap(), b"value");
        assert_eq!(seen.get("k").unwrap_err().name(), "UNKNOWN_FAMILY");
    }
}

#[test]
fn one_moment_is_kept_for_a_snapshot_however_often_the_tables_change() {
    let beside = Beside::new(|| FilterVerdict::Keep);
    beside.filtered.put("k", "value").unwrap();
    let (reader, seen) = beside.reader();
    let snapshot = reader.snapshot();
    for round in 0..10 {
        beside.go_on(&reader);
        assert_eq!(kept(&reader), 1, "in round {round}");
        assert_eq!(value(&snapshot, &seen).unwrap(), b"value");
    }
    // Two at the point of one era, and one of another.
    let second = reader.snapshot();
    beside.go_on(&reader);
    assert_eq!(kept(&reader), 2);
    drop(snapshot);
    beside.go_on(&reader);
    assert_eq!(kept(&reader), 1);
    assert_eq!(value(&second, &seen).unwrap(), b"value");
    drop(second);
    beside.go_on(&reader);
    assert_eq!(kept(&reader), 0);
}

/// Points that were asked for and are gone keep nothing, however many they were.
#[test]
fn earlier_points_are_forgotten_once_no_one_reads_there() {
    let beside = Beside::new(|| FilterVerdict::Keep);
    let put = |n: u32| {
        beside.filtered.put(n.to_be_bytes(), "value").unwrap();
        beside.writer.snapshot().read_point()
    };
    let points: Vec<_> = (0..600).map(put).collect();
    beside.writer.flush().unwrap();
    let (reader, _) = beside.reader();
    let first = reader.snapshot_at(points[0]).unwrap();
    for point in &points {
        drop(reader.snapshot_at(*point).unwrap());
    }
    assert!(reader.engine().shown.as_ref().unwrap().asked_count() < 300);
    beside.go_on(&reader);
    assert_eq!(kept(&reader), 1);
    drop(first);
    beside.go_on(&reader);
    assert_eq!(kept(&reader), 0);
}
