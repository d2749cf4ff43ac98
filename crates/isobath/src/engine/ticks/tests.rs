//! Values that end, against a model, while the clock of a test goes on and jumps back.

mod drawn;
mod edges;
mod leaps;
mod moved;
mod restless;

use crate::env::sync::atomic::{AtomicU64, Ordering};
use crate::env::{Clock, Env};
use crate::error::ConflictKind;
use crate::mvcc::{Expiring, OpKind};
use crate::vfs::MemoryFs;
use crate::{Batch, Db, ErrorKind, Expiry, FamilyOptions, Isolation, Options, TransactionOptions};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

const STARTED_MS: u64 = 1_700_000_000_000;

/// A wall clock, which tests may set, and how far time has gone on.
struct Wall(AtomicU64, AtomicU64);

impl Clock for Wall {
    fn now_ns(&self) -> u64 {
        (STARTED_MS + self.1.load(Ordering::Relaxed)) * 1_000_000
    }

    fn unix_ms(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Wall {
    fn go(&self, ms: u64) {
        self.0.fetch_add(ms, Ordering::Relaxed);
        self.1.fetch_add(ms, Ordering::Relaxed);
    }
}

fn moment(unix_ms: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_millis(unix_ms)
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

struct World {
    fs: MemoryFs,
    clock: Arc<Wall>,
    history: Option<Duration>,
}

impl World {
    fn new() -> World {
        let clock = Arc::new(Wall(AtomicU64::new(STARTED_MS), AtomicU64::new(0)));
        World { fs: MemoryFs::new(), clock, history: None }
    }

    fn open(&self) -> Db {
        let (fs, clock) = (Arc::new(self.fs.clone()), self.clock.clone());
        let env = Env { fs, clock, ..Env::system() };
        let options = Options::new().write_buffer(64 << 10).compaction_threads(1);
        options.history(self.history).env(env).open("/db").unwrap()
    }
}

fn get(db: &Db, key: &str) -> Option<String> {
    db.get(key).unwrap().map(|value| String::from_utf8(value.to_vec()).unwrap())
}

#[test]
fn a_value_is_there_until_its_end_for_every_way_to_read() {
    let world = World::new();
    let db = world.open();
    db.put("a", "stays").unwrap();
    db.put_ttl("b", "goes", ms(10)).unwrap();
    let snapshot = db.snapshot();
    world.clock.go(9);
    assert_eq!(get(&db, "b").as_deref(), Some("goes"));
    let (value, expiry) = db.get_expiry("b").unwrap().unwrap();
    assert_eq!((&*value, expiry), (&b"goes"[..], Expiry::At(moment(STARTED_MS + 10))));
    assert_eq!(db.get_expiry("a").unwrap().unwrap().1, Expiry::Never);
    let mut cursor = db.cursor(..).unwrap();
    assert_eq!(cursor.last().unwrap().unwrap().expiry(), Expiry::At(moment(STARTED_MS + 10)));
    assert_eq!(cursor.entry().unwrap().value_len(), 4);
    assert_eq!(cursor.entry().unwrap().pin().unwrap(), b"goes");
    assert_eq!(cursor.first().unwrap().unwrap().expiry(), Expiry::Never);
    world.clock.go(1);
    for is_flushed in [false, true] {
        if is_flushed {
            db.flush().unwrap();
        }
        assert_eq!(get(&db, "b"), None);
        assert!(!db.contains("b").unwrap());
        assert!(db.get_expiry("b").unwrap().is_none());
        assert_eq!(db.multi_get(["b", "a"]).unwrap()[0], None);
        assert_eq!(db.count(..).unwrap(), 1);
        assert_eq!(db.last().unwrap().unwrap().0, b"a");
        assert_eq!(snapshot.get("b").unwrap().unwrap(), b"goes");
        assert_eq!(snapshot.count(..).unwrap(), 2);
    }
}

#[test]
fn a_clock_that_is_set_back_revives_nothing() {
    let world = World::new();
    let db = world.open();
    db.put_ttl("k", "v", ms(10)).unwrap();
    world.clock.go(10);
    assert_eq!(get(&db, "k"), None);
    world.clock.0.store(STARTED_MS, Ordering::Relaxed);
    assert_eq!(get(&db, "k"), None);
    // The time that a time to live counts from does not go back either.
    db.put_ttl("next", "v", ms(10)).unwrap();
    let ends = Expiry::At(moment(STARTED_MS + 20));
    assert_eq!(db.get_expiry("next").unwrap().unwrap().1, ends);
    drop(db);
    let db = world.open();
    assert_eq!(get(&db, "k"), None);
    assert_eq!(db.get_expiry("next").unwrap().unwrap().1, ends);
    db.compact().unwrap();
    drop(db);
    assert_eq!(get(&world.open(), "k"), None);
}

#[test]
fn a_reader_that_may_not_write_goes_by_its_own_clock() {
    let world = World::new();
    let db = world.open();
    db.put_ttl("a", "v", ms(10)).unwrap();
    db.put_ttl("b", "v", ms(20)).unwrap();
    db.flush().unwrap();
    db.put_ttl("c", "v", ms(10)).unwrap();
    drop(db);
    let open_reader = || {
        let (fs, clock) = (Arc::new(world.fs.clone()), world.clock.clone());
        let env = Env { fs, clock, ..Env::system() };
        Options::new().read_only(true).env(env).open("/db").unwrap()
    };
    let reader = open_reader();
    let snapshot = reader.snapshot();
    assert_eq!(reader.count(..).unwrap(), 3);
    world.clock.go(10);
    assert_eq!((get(&reader, "a"), get(&reader, "b").as_deref()), (None, Some("v")));
    assert_eq!(reader.count(..).unwrap(), 1);
    assert!(reader.multi_get(["a", "c"]).unwrap().iter().all(Option::is_none));
    assert_eq!(open_reader().snapshot().count(..).unwrap(), 1, "it opens later");
    world.clock.0.store(STARTED_MS, Ordering::Relaxed);
    assert_eq!(reader.count(..).unwrap(), 1, "a clock that is set back revives nothing");
    assert_eq!(get(&reader, "c"), None);
    assert_eq!(snapshot.count(..).unwrap(), 3);
    assert!(snapshot.get("a").unwrap().is_some());
}

#[test]
fn a_database_without_ends_tells_no_time() {
    let world = World::new();
    let db = world.open();
    let written = |db: &Db| db.engine().log.tail();
    db.put("k", "v").unwrap();
    let before = written(&db);
    for _ in 0..3 {
        world.clock.go(5000);
        db.engine().tick_for_others();
        drop(db.snapshot());
        assert_eq!(db.count(..).unwrap(), 1);
        assert!(db.get("k").unwrap().is_some());
    }
    assert_eq!(written(&db), before);
    db.put_ttl("e", "v", ms(10_000)).unwrap();
    db.engine().tick_for_others();
    let before = written(&db);
    assert!(db.get("e").unwrap().is_some());
    assert_eq!(written(&db), before, "a get of what has not ended asks for no tick");
    world.clock.go(10_000);
    db.engine().tick_for_others();
    assert!(written(&db) > before, "readers in other processes are told");
    let before = written(&db);
    world.clock.go(1_000_000);
    assert!(db.get("e").unwrap().is_none());
    drop(db.snapshot());
    db.engine().tick_for_others();
    assert_eq!(written(&db), before, "there is nothing left to end");
}

#[test]
fn what_has_ended_leaves_with_all_beneath_it() {
    let world = World::new();
    let db = world.open();
    let entries = |db: &Db| -> u64 {
        let versions = db.engine().versions.lock();
        let tree = &versions.state().family(0).unwrap().tree;
        tree.iter().map(|(_, slice)| slice.meta.entries).sum()
    };
    for key in ["a", "b"] {
        db.put(key, "old").unwrap();
    }
    db.flush().unwrap();
    db.put_ttl("a", "new", ms(10)).unwrap();
    db.flush().unwrap();
    let snapshot = db.snapshot();
    world.clock.go(10);
    db.compact().unwrap();
    assert_eq!(entries(&db), 2, "the snapshot sees both");
    assert_eq!(snapshot.get("a").unwrap().unwrap(), b"new");
    drop(snapshot);
    assert_eq!(get(&db, "a"), None);
    db.put("c", "more").unwrap();
    db.compact().unwrap();
    assert_eq!(entries(&db), 2, "b and c");
    assert_eq!((get(&db, "a"), get(&db, "b").as_deref()), (None, Some("old")));
}

#[test]
fn slices_whose_values_have_all_ended_leave_unread() {
    // Maintenance, which is needed here, compacts what is left alone for some seconds.
    assert!((0..20).any(|_| do_slices_leave_unread()));
}

/// False if a compaction has read them.
fn do_slices_leave_unread() -> bool {
    let world = World::new();
    let db = world.open();
    let figures = || {
        let versions = db.engine().versions.lock();
        let slices = versions.state().family(0).unwrap().tree.iter().count();
        (slices, db.engine().gauges.slices_dropped.get(), db.engine().gauges.compactions.get())
    };
    for ttl in [10, 20, 30] {
        db.put_ttl([ttl], "v", ms(ttl.into())).unwrap();
        db.flush().unwrap();
    }
    if figures() != (3, 0, 0) {
        return false;
    }
    let snapshot = db.snapshot();
    world.clock.go(15);
    assert_eq!(db.count(..).unwrap(), 2);
    db.engine()
        .families
        .all()
        .iter()
        .for_each(|family| crate::compact::schedule(db.engine(), family));
    db.engine().compactors.wait_idle();
    let (_, dropped, compacted) = figures();
    assert_eq!(dropped, 0, "the snapshot sees all");
    if compacted > 0 {
        return false;
    }
    drop(snapshot);
    world.clock.go(60_000);
    while figures() != (0, 3, 0) {
        if figures().2 > 0 {
            return false;
        }
        db.engine().check_writable().unwrap();
        db.engine().maintenance.kick();
        db.engine().options.env.threads.sleep(ms(1));
    }
    // On a slow machine it would find the database idle, and compact.
    db.engine().maintenance.close();
    assert_eq!(db.count(..).unwrap(), 0);
    // Over an older value one stays.
    db.put("k", "old").unwrap();
    db.flush().unwrap();
    db.put_ttl("k", "new", ms(10)).unwrap();
    db.flush().unwrap();
    world.clock.go(60_000);
    assert_eq!(get(&db, "k"), None);
    db.engine()
        .families
        .all()
        .iter()
        .for_each(|family| crate::compact::schedule(db.engine(), family));
    assert_eq!(figures().0, 2);
    assert_eq!(get(&db, "k"), None);
    true
}

#[test]
fn a_family_gives_its_values_an_end_unless_they_say() {
    let world = World::new();
    let db = world.open();
    let pages = db.family(("pages", FamilyOptions::new().ttl(ms(100)))).unwrap();
    pages.put("default", "v").unwrap();
    pages.put_ttl("short", "v", ms(10)).unwrap();
    pages.put_ttl("never", "v", Expiry::Never).unwrap();
    let mut batch = Batch::new();
    batch.put("other family", "v");
    batch.of(&pages).put("batch default", "v").put_ttl("batch short", "v", ms(10));
    batch.of(&pages).put_ttl("batch never", "v", Expiry::Never).delete("gone");
    db.write(&mut batch).unwrap();
    db.transact(|tx| {
        tx.of(&pages).put("tx default", "v")?;
        tx.of(&pages).put_ttl("tx short", "v", ms(10))?;
        assert_eq!(tx.of(&pages).get("tx short")?.unwrap(), b"v");
        let ends = Expiry::At(moment(STARTED_MS + 10));
        assert_eq!(tx.of(&pages).get_expiry("tx short")?.unwrap().1, ends);
        tx.of(&pages).put_ttl("tx never", "v", Expiry::Never)
    })
    .unwrap();
    assert_eq!(pages.count(..).unwrap(), 9);
    world.clock.go(10);
    assert_eq!(pages.count(..).unwrap(), 6);
    // The batch is as it was: its times to live count anew.
    db.write(&mut batch).unwrap();
    assert_eq!(pages.count(..).unwrap(), 7);
    world.clock.go(100);
    let keys: Vec<_> = pages.range(..).keys().map(|key| key.unwrap().to_vec()).collect();
    assert_eq!(keys, [&b"batch never"[..], b"never", b"tx never"]);
    drop((pages, db));
    let db = world.open();
    let pages = db.family("pages").unwrap();
    pages.put("again", "v").unwrap();
    assert_ne!(pages.get_expiry("again").unwrap().unwrap().1, Expiry::Never);
}

#[test]
fn another_end_is_given_to_a_value_that_is_there() {
    let world = World::new();
    let db = world.open();
    db.put_ttl("k", "v", ms(10)).unwrap();
    assert!(db.set_expiry("k", Expiry::Never).unwrap());
    world.clock.go(20);
    assert_eq!(get(&db, "k").as_deref(), Some("v"));
    assert!(db.set_expiry("k", ms(5)).unwrap());
    world.clock.go(5);
    assert_eq!(get(&db, "k"), None);
    assert!(!db.set_expiry("k", Expiry::Never).unwrap());
    assert!(!db.set_expiry("absent", ms(5)).unwrap());
    db.put("k", "again").unwrap();
    assert!(db.set_expiry("k", Expiry::At(moment(5))).unwrap());
    assert_eq!(get(&db, "k"), None, "its end has passed");
}

#[test]
fn what_cannot_be_an_end_is_refused_and_nothing_written() {
    let world = World::new();
    let db = world.open();
    let long_ago = SystemTime::UNIX_EPOCH - Duration::from_secs(1);
    for expiry in [Expiry::After(ms(0)), Expiry::At(long_ago), Expiry::After(Duration::MAX)] {
        let refused = |error: crate::Error| {
            assert!(matches!(error.kind(), ErrorKind::InvalidArgument { .. }), "{error}");
        };
        refused(db.put_ttl("k", "v", expiry).unwrap_err());
        refused(db.write(Batch::new().put("a", "v").put_ttl("k", "v", expiry)).unwrap_err());
        refused(db.begin().put_ttl("k", "v", expiry).unwrap_err());
        db.put("there", "v").unwrap();
        refused(db.set_expiry("there", expiry).unwrap_err());
        assert_eq!(db.count(..).unwrap(), 1);
    }
    let refused = db.family(("none", FamilyOptions::new().ttl(ms(0)))).unwrap_err();
    assert!(matches!(refused.kind(), ErrorKind::InvalidArgument { .. }), "{refused}");
}

#[test]
fn a_commit_that_relies_on_a_value_which_has_ended_is_a_conflict() {
    let world = World::new();
    let db = world.open();
    let levels = [Isolation::Snapshot, Isolation::RepeatableRead, Isolation::Serializable];
    for isolation in levels {
        for how in 0..5 {
            db.put_ttl("k", "v", ms(10)).unwrap();
            let tx = db.with(TransactionOptions { isolation, ..Default::default() }).begin();
            match how {
                0 => assert!(tx.get("k").unwrap().is_some()),
                1 => assert!(tx.contains("k").unwrap()),
                2 => assert!(tx.multi_get(["k"]).unwrap()[0].is_some()),
                3 => assert_eq!(tx.range(..).count(), 1),
                _ => assert!(tx.cursor(..).unwrap().first().unwrap().is_some()),
            }
            world.clock.go(10);
            assert_eq!(get(&db, "k"), None);
            assert_eq!(tx.get("k").unwrap().unwrap(), b"v", "it reads at its moment");
            tx.put(format!("other {how}"), "v").unwrap();
            let committed = tx.commit();
            if isolation == Isolation::Snapshot {
                committed.unwrap();
            } else {
                let error = committed.unwrap_err();
                match error.kind() {
                    ErrorKind::Conflict { kind, key, .. } => {
                        assert_eq!(
                            (*kind, key.as_ref()),
                            (ConflictKind::Expired, &b"k"[..]),
                            "{how}"
                        );
                    }
                    other => panic!("{other}"),
                }
            }
            db.delete_range(..).unwrap();
        }
    }
    // What was absent because it had ended stays absent.
    db.put_ttl("k", "v", ms(10)).unwrap();
    world.clock.go(10);
    let tx = db.begin();
    assert!(tx.get("k").unwrap().is_none());
    world.clock.go(10);
    db.engine().tick(world.clock.unix_ms());
    tx.put("other", "v").unwrap();
    tx.commit().unwrap();
}

/// Otherwise a lease would be renewed that others have seen to be over.
#[test]
fn a_step_relies_on_the_value_that_it_has_read_at_each_level() {
    for isolation in [Isolation::ReadUncommitted, Isolation::ReadCommitted, Isolation::Snapshot] {
        for (way, is_large) in (0..4).flat_map(|way| [(way, false), (way, true)]) {
            let world = World::new();
            let db = world.open();
            db.put_ttl("k", "v", ms(10)).unwrap();
            let tx = db.with(TransactionOptions { isolation, ..Default::default() }).begin();
            match way {
                0 => assert!(tx.put_if("k", Some(b"v"), "w").unwrap()),
                1 => assert!(tx.fetch_update("k", |_| Some("w")).unwrap().is_some()),
                2 => assert!(tx.fetch_update("k", |_| None::<&str>).unwrap().is_some()),
                _ => assert!(tx.set_expiry("k", ms(500)).unwrap()),
            }
            if is_large {
                (0..3000u32).for_each(|key| tx.put(key.to_be_bytes(), [7; 100]).unwrap());
            }
            world.clock.go(10);
            assert_eq!(get(&db, "k"), None);
            let error = tx.commit().unwrap_err();
            let ErrorKind::Conflict { kind, .. } = error.kind() else { panic!("{error}") };
            assert_eq!(*kind, ConflictKind::Expired, "{isolation:?} {way} {is_large}");
            assert_eq!(db.count(..).unwrap(), 0);
            // What the transaction has put itself stays until it ends, for steps as well.
            let tx = db.with(TransactionOptions { isolation, ..Default::default() }).begin();
            tx.put_ttl("own", "v", ms(10)).unwrap();
            assert!(tx.put_if("own", Some(b"v"), "w").unwrap());
            world.clock.go(10);
            db.engine().tick(world.clock.unix_ms());
            tx.commit().unwrap();
            // A step that writes nothing relies on nothing.
            db.put_ttl("k", "v", ms(10)).unwrap();
            let tx = db.with(TransactionOptions { isolation, ..Default::default() }).begin();
            assert!(!tx.put_if("k", Some(b"other"), "w").unwrap());
            tx.put("else", "v").unwrap();
            world.clock.go(10);
            db.engine().tick(world.clock.unix_ms());
            tx.commit().unwrap();
            // A step within a step leaves it its own.
            db.put_ttl("k", "v", ms(10)).unwrap();
            let tx = db.with(TransactionOptions { isolation, ..Default::default() }).begin();
            let nested = |_: Option<&[u8]>| {
                assert!(tx.put_if("inner", None, "v").unwrap());
                Some("w")
            };
            assert!(tx.fetch_update("k", nested).unwrap().is_some());
            world.clock.go(10);
            db.engine().tick(world.clock.unix_ms());
            assert!(tx.commit().unwrap_err().is_conflict());
            // A decision may come later, and cannot fail.
            db.put_ttl("k", "v", ms(10)).unwrap();
            let tx = db.with(TransactionOptions { isolation, ..Default::default() }).begin();
            assert!(tx.put_if("k", Some(b"v"), "w").unwrap());
            assert!(tx.prepare("x").unwrap_err().to_string().contains("value that ends"));
        }
    }
}

#[test]
fn a_prepared_transaction_relies_on_no_value_that_ends() {
    let world = World::new();
    let db = world.open();
    db.put_ttl("k", "v", ms(10)).unwrap();
    let tx = db.begin();
    tx.get("k").unwrap();
    tx.put_ttl("own", "v", ms(10)).unwrap();
    assert!(tx.prepare("1").unwrap_err().to_string().contains("value that ends"));
    let tx = db.begin();
    tx.put_ttl("own", "v", ms(10)).unwrap();
    drop(tx.prepare("2").unwrap());
    drop(db);
    let db = world.open();
    db.commit_prepared(&"2".into()).unwrap();
    assert_eq!(get(&db, "own").as_deref(), Some("v"));
    world.clock.go(10);
    assert_eq!(db.count(..).unwrap(), 0);
}

#[test]
fn operands_outlive_the_value_beneath_them() {
    let world = World::new();
    let db = world.open();
    let words = FamilyOptions::new().merge_operator("isobath.append");
    let words = db.family(("words", words)).unwrap();
    words.put_ttl("k", "a", ms(10)).unwrap();
    words.merge("k", "b").unwrap();
    let snapshot = db.snapshot();
    let folded = || words.get("k").unwrap().unwrap().to_vec();
    assert_eq!(folded(), b"ab");
    db.compact().unwrap();
    assert_eq!(folded(), b"ab");
    let tx = db.begin();
    assert_eq!(tx.of(&words).get("k").unwrap().unwrap(), b"ab");
    world.clock.go(10);
    assert_eq!(folded(), b"b");
    tx.put("k", "v").unwrap();
    let error = tx.commit().unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Conflict { kind: ConflictKind::Expired, .. }));
    assert_eq!((db.metrics().conflicts_expired, db.metrics().conflicts_read), (1, 0));
    assert_eq!(words.range(..).next().unwrap().unwrap().1, b"b");
    assert_eq!(snapshot.of(&words).get("k").unwrap().unwrap(), b"ab");
    drop(snapshot);
    words.merge("k", "c").unwrap();
    db.compact().unwrap();
    assert_eq!(folded(), b"bc");
    let tx = db.begin();
    tx.of(&words).put_ttl("own", "a", ms(10)).unwrap();
    let error = tx.of(&words).merge("own", "b").unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::InvalidArgument { .. }), "{error}");
}

#[test]
fn a_stored_end_that_is_too_short_has_no_value() {
    assert!(Expiring::split(b"1234567").is_none());
    assert_eq!(OpKind::known(5), Some(OpKind::PutExpiring));
}

#[test]
fn a_read_writes_no_tick_if_no_end_can_change_what_it_finds() {
    let world = World::new();
    let db = world.open();
    db.engine().maintenance.close();
    let words = db.family(("words", FamilyOptions::new().merge_operator("isobath.append")));
    let words = words.unwrap();
    words.merge("k", "a").unwrap();
    let tail = || db.engine().log.tail();
    let before = tail();
    world.clock.go(10);
    assert_eq!(words.get("k").unwrap().unwrap(), b"a");
    assert_eq!(tail(), before, "no value ends");
    db.put_ttl("b", "goes", ms(10)).unwrap();
    let snapshot = db.snapshot();
    let before = tail();
    world.clock.go(20);
    assert_eq!(snapshot.count(..).unwrap(), 1);
    assert_eq!(tail(), before, "for a snapshot no time passes");
    assert_eq!(db.count(..).unwrap(), 0);
    assert!(tail() > before);
}
