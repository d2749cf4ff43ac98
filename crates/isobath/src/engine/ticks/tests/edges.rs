//! What bad disks, long rows of ticks and a transaction's own values do to values that end.

use super::{STARTED_MS, World, get, ms};
use crate::engine::ticks::{LOOKS, Ticks, UNKNOWN_ENDS_MS};
use crate::env::sync::Mutex;
use crate::env::sync::atomic::Ordering;
use crate::env::{Clock, Env, Priority};
use crate::version::{Change, Tick};
use crate::vfs::{Fault, FileOp};
use crate::{
    BoxError, ConflictKind, Db, ErrorKind, FamilyOptions, Isolation, LockMode, MergeOperator,
    Options, TransactionOptions,
};
use std::io;
use std::sync::{Arc, mpsc};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(120);

/// Does this on a thread of its own, and sends what it returns.
fn aside<T: Send + 'static>(
    db: &Db,
    body: impl FnOnce(&Db) -> T + Send + 'static,
) -> mpsc::Receiver<T> {
    let (sender, receiver) = mpsc::channel();
    let threads = db.engine().options.env.threads.clone();
    let db = db.clone();
    let body = Box::new(move || drop(sender.send(body(&db))));
    threads.spawn("test".to_owned(), Priority::Normal, body).unwrap();
    receiver
}

fn pause() {
    Env::system().threads.sleep(ms(1));
}

#[test]
fn a_tick_that_breaks_the_log_holds_up_no_read() {
    let world = World::new();
    let db = world.open();
    db.put_ttl("k", "v", ms(10)).unwrap();
    world.clock.go(10);
    world.fs.inject(Fault::on(FileOp::CopyIn).kind(io::ErrorKind::Other));
    let reads = aside(&db, |db| (get(db, "k"), get(db, "k"), db.count(..).unwrap()));
    let read = reads.recv_timeout(PATIENCE).expect("a read hangs");
    assert!(db.put("k", "v").is_err());
    assert_eq!(read, (Some("v".to_owned()), Some("v".to_owned()), 1));
}

#[test]
fn a_read_that_begins_while_a_tick_is_written_waits_for_it() {
    let world = World::new();
    let db = world.open();
    db.put_ttl("k", "v", ms(10)).unwrap();
    world.clock.go(10);
    world.fs.inject(Fault::on(FileOp::CopyIn).kind(io::ErrorKind::StorageFull).forever());
    let ticking = aside(&db, |db| get(db, "k"));
    while world.fs.struck() == 0 {
        pause();
    }
    let scan = aside(&db, |db| db.count(..).unwrap());
    let early = scan.recv_timeout(ms(50)).ok();
    world.fs.clear_faults();
    assert_eq!(ticking.recv_timeout(PATIENCE).unwrap(), None);
    let count = early.unwrap_or_else(|| scan.recv_timeout(PATIENCE).unwrap());
    assert_eq!(count, 0, "it began when the value had ended");
}

#[test]
fn maintenance_goes_on_while_no_disk_has_room_for_its_tick() {
    let world = World::new();
    let db = world.open();
    db.put_ttl("k", "v", ms(10)).unwrap();
    world.clock.go(10);
    world.fs.inject(Fault::on(FileOp::CopyIn).kind(io::ErrorKind::StorageFull).forever());
    while world.fs.struck() == 0 {
        db.engine().maintenance.kick();
        pause();
    }
    let end = aside(&db, |db| db.engine().maintenance.close());
    let gone_on = end.recv_timeout(PATIENCE);
    world.fs.clear_faults();
    gone_on.expect("maintenance hangs");
}

#[test]
fn reads_that_only_tick_do_not_let_the_log_grow_for_ever() {
    let world = World::new();
    let db = world.open();
    db.put("k", "v").unwrap();
    db.put_ttl("far", "v", Duration::from_secs(3600)).unwrap();
    // What is idle would be flushed with what it holds.
    db.flush().unwrap();
    let engine = db.engine();
    let begun = engine.versions.lock().state().replay_from();
    for _ in 0..4000 {
        world.clock.go(1);
        assert_eq!(db.count(..).unwrap(), 2);
    }
    for _ in 0..120_000 {
        world.clock.go(1);
        assert_eq!(db.count(..).unwrap(), 2);
        if engine.versions.lock().state().replay_from() > begun + (64 << 10) {
            return;
        }
        engine.maintenance.kick();
        engine.options.env.threads.sleep(ms(1));
    }
    panic!("{} bytes of ticks stay in the log", engine.log.tail() - begun);
}

#[test]
fn ticks_that_no_reader_asks_for_are_forgotten_beside_a_snapshot() {
    let world = World::new();
    let db = world.open();
    db.put_ttl("short", "v", ms(10)).unwrap();
    db.put_ttl("far", "v", Duration::from_secs(3600)).unwrap();
    let first = db.snapshot();
    let mut held = vec![first];
    for round in 0..3 {
        for _ in 0..500 {
            world.clock.go(1);
            assert!(db.count(..).unwrap() >= 1);
        }
        if round == 0 {
            held.push(db.snapshot());
        }
        db.put("k", "v").unwrap();
        db.flush().unwrap();
        db.engine().readers();
    }
    let count = db.engine().ticks.count();
    assert!(count < 20, "{count} ticks are kept for two snapshots");
    assert_eq!(held[0].count(..).unwrap(), 2);
    assert_eq!(held[0].get("short").unwrap().unwrap(), b"v");
    assert_eq!((held[1].count(..).unwrap(), held[1].get("short").unwrap()), (1, None));
    drop(held);
    let filed = db.engine().versions.lock().state().ticks().len();
    assert!(filed < 20, "{filed} ticks are in the manifest");
}

#[test]
fn a_snapshot_of_a_reader_goes_by_the_clock_of_the_last_look_where_nothing_is_written() {
    let world = World::new();
    let db = world.open();
    db.put_ttl("k", "v", ms(10)).unwrap();
    db.put_ttl("later", "v", ms(25)).unwrap();
    world.clock.go(5);
    db.engine().tick(STARTED_MS + 5);
    drop(db);
    let env = Env { fs: Arc::new(world.fs.clone()), clock: world.clock.clone(), ..Env::system() };
    let reader = Options::new().read_only(true).env(env).open("/db").unwrap();
    let held = reader.snapshot();
    for _ in 0..2 {
        world.clock.go(5);
        reader.catch_up().unwrap();
        assert_eq!(held.count(..).unwrap(), 2, "it shows the same until it ends");
    }
    assert_eq!(reader.snapshot().count(..).unwrap(), 2, "one point has one time");
    assert_eq!(get(&reader, "k"), None);
    drop(held);
    for (goes_ms, left) in [(1, 1), (10, 0)] {
        world.clock.go(goes_ms);
        reader.catch_up().unwrap();
        let snapshot = reader.snapshot();
        assert_eq!((snapshot.count(..).unwrap(), reader.count(..).unwrap()), (left, left));
    }
}

#[test]
fn a_reader_that_follows_for_long_forgets_ticks() {
    let world = World::new();
    let db = world.open();
    db.put_ttl("short", "v", ms(10)).unwrap();
    db.put_ttl("far", "v", Duration::from_secs(3600)).unwrap();
    let env = Env { fs: Arc::new(world.fs.clone()), clock: world.clock.clone(), ..Env::system() };
    let reader =
        Options::new().write_buffer(64 << 10).read_only(true).env(env).open("/db").unwrap();
    let snapshot = reader.snapshot();
    for _ in 0..60 {
        for _ in 0..100 {
            world.clock.go(1);
            assert!(db.count(..).unwrap() >= 1);
        }
        db.flush().unwrap();
        reader.catch_up().unwrap();
        assert_eq!(snapshot.get("short").unwrap().unwrap(), b"v");
    }
    let count = reader.engine().ticks.count();
    assert!(count < 3000, "{count} ticks are kept for one snapshot");
    assert_eq!(snapshot.count(..).unwrap(), 2);
    assert_eq!(reader.get("short").unwrap(), None);
}

#[test]
fn a_transaction_relies_on_no_end_of_what_it_has_put_itself() {
    for way in 0..4 {
        let world = World::new();
        let db = world.open();
        let isolation = Isolation::Serializable;
        let tx = db.with(TransactionOptions { isolation, ..Default::default() }).begin();
        tx.put_ttl("own", "v", ms(10)).unwrap();
        match way {
            0 => assert_eq!(tx.range(..).count(), 1),
            1 => assert_eq!(tx.count(..).unwrap(), 1),
            2 => assert!(tx.first().unwrap().is_some()),
            _ => assert!(tx.cursor(..).unwrap().last().unwrap().is_some()),
        }
        world.clock.go(10);
        db.engine().tick(STARTED_MS + 10);
        assert_eq!(tx.range(..).count(), 1, "it stays until the transaction ends");
        tx.put("other", "v").unwrap();
        tx.commit().unwrap_or_else(|error| panic!("{way}: {error}"));
        assert_eq!(db.count(..).unwrap(), 1);
    }
}

#[test]
fn each_way_to_look_at_a_value_that_ends_is_relied_on() {
    for way in 0..12 {
        let world = World::new();
        let db = world.open();
        db.put_ttl("k", "v", ms(10)).unwrap();
        let isolation = Isolation::Serializable;
        let tx = db.with(TransactionOptions { isolation, ..Default::default() }).begin();
        match way {
            0 => assert_eq!(tx.count(..).unwrap(), 1),
            1 => assert!(tx.first().unwrap().is_some()),
            2 => assert!(tx.last().unwrap().is_some()),
            3 => assert_eq!(tx.range(..).rev().count(), 1),
            4 => assert_eq!(tx.range(..).keys().count(), 1),
            5 => assert!(tx.get_for_update("k").unwrap().is_some()),
            6 => assert!(tx.get_expiry("k").unwrap().is_some()),
            7 => assert!(tx.set_expiry("k", ms(500)).unwrap()),
            8 => {
                tx.lock_range(.., LockMode::Shared).unwrap();
                assert_eq!(tx.range(..).count(), 1);
            }
            9 => {
                tx.lock_range(.., LockMode::Shared).unwrap();
                assert_eq!(tx.count(..).unwrap(), 1);
            }
            10 => {
                tx.lock_range(.., LockMode::Exclusive).unwrap();
                assert!(tx.pop_first(..).unwrap().is_some());
            }
            _ => assert!(tx.pop_first(..).unwrap().is_some()),
        }
        world.clock.go(10);
        assert_eq!(get(&db, "k"), None);
        tx.put("other", "v").unwrap();
        let Err(error) = tx.commit() else { panic!("{way}: it commits") };
        let ErrorKind::Conflict { kind, .. } = error.kind() else { panic!("{error}") };
        assert_eq!(*kind, ConflictKind::Expired, "{way}");
        world.clock.0.store(STARTED_MS, Ordering::Relaxed);
    }
}

#[test]
fn a_value_that_is_too_long_with_its_end_is_refused() {
    let value = vec![0; crate::MAX_VALUE_LEN];
    for len in [crate::MAX_VALUE_LEN - 7, crate::MAX_VALUE_LEN] {
        let error = crate::write::stored(1, &value[..len]).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::InvalidArgument { .. }), "{error}");
    }
}

#[test]
fn a_compaction_by_a_tick_that_a_power_cut_takes_from_the_log_revives_nothing() {
    let world = World::new();
    let db = world.open();
    db.put("old", "beneath").unwrap();
    db.flush().unwrap();
    for key in ["old", "new"] {
        db.put_ttl(key, "v", ms(10)).unwrap();
    }
    db.flush().unwrap();
    db.put_ttl("late", "v", ms(10)).unwrap();
    db.sync().unwrap();
    world.clock.go(10);
    assert_eq!(db.count(..).unwrap(), 0);
    db.put("lost", "v").unwrap();
    db.engine().families.all().iter().for_each(|family| {
        crate::compact::compact_range(db.engine(), family, &crate::key_range::bounds_of(..))
            .unwrap();
    });
    let left = world.fs.crashed(|_| 0);
    drop(db);
    world.clock.0.store(STARTED_MS, Ordering::Relaxed);
    let world = World { fs: left, ..world };
    for _ in 0..2 {
        let db = world.open();
        let is_lost = db.get("lost").unwrap().is_none();
        assert_eq!(db.count(..).unwrap(), u64::from(!is_lost), "the time is in the manifest");
        for key in ["old", "new", "late"] {
            assert_eq!(get(&db, key), None, "{key}");
        }
        db.compact().unwrap();
    }
}

#[test]
fn ends_go_on_in_spilled_and_large_transactions_and_after_reopening() {
    let mut clocks = 0;
    for is_flushed in [false, true] {
        let world = World::new();
        let db = world.open();
        let tx = db.begin();
        for key in 0..3000u32 {
            let (key, value) = (key.to_be_bytes(), [7; 100]);
            match key[3] % 3 {
                0 => tx.put_ttl(key, value, ms(10)).unwrap(),
                1 => tx.put_ttl(key, value, ms(20)).unwrap(),
                _ => tx.put(key, value).unwrap(),
            }
        }
        let (third, all) = (tx.range(..).filter(|_| true).count() / 3, 3000);
        assert_eq!(third, 1000);
        assert!(tx.get_expiry(0u32.to_be_bytes()).unwrap().is_some());
        tx.commit().unwrap();
        assert_eq!(db.count(..).unwrap(), all);
        let snapshot = db.snapshot();
        if is_flushed {
            db.flush().unwrap();
        }
        let ends = |shift: u8| (0..3000u32).filter(|key| key.to_be_bytes()[3] % 3 == shift).count();
        let left = [3000 - ends(0), ends(2)];
        for left in left {
            world.clock.go(10);
            clocks += 1;
            let found = (0..3000u32).filter(|key| db.contains(key.to_be_bytes()).unwrap());
            assert_eq!(found.count(), left);
            assert_eq!(db.count(..).unwrap(), left as u64);
            assert_eq!(snapshot.count(..).unwrap(), all);
        }
        drop((snapshot, db));
        world.clock.0.store(STARTED_MS, Ordering::Relaxed);
        let db = world.open();
        assert_eq!(db.count(..).unwrap(), ends(2) as u64);
    }
    assert_eq!(clocks, 4);
}

#[test]
fn a_dropped_family_leaves_no_end_to_the_next_of_its_name() {
    let world = World::new();
    let db = world.open();
    let options = || FamilyOptions::new().ttl(ms(10));
    let first = db.family(("pages", options())).unwrap();
    first.put("k", "v").unwrap();
    db.drop_family(&first).unwrap();
    let second = db.family("pages").unwrap();
    second.put("k", "stays").unwrap();
    world.clock.go(10);
    assert_eq!(second.get("k").unwrap().unwrap(), b"stays");
    second.set_options(options()).unwrap();
    second.put("new", "goes").unwrap();
    let mut batch = crate::Batch::new();
    batch.of(&second).put("in a batch", "goes");
    db.write(&mut batch).unwrap();
    second.set_options(FamilyOptions::new()).unwrap();
    second.put("last", "stays").unwrap();
    db.write(&mut batch).unwrap();
    drop((first, second, db));
    let db = world.open();
    let family = db.family("pages").unwrap();
    assert_eq!(family.count(..).unwrap(), 4);
    world.clock.go(10);
    let keys: Vec<_> = family.range(..).keys().map(|key| key.unwrap().to_vec()).collect();
    assert_eq!(keys, [&b"in a batch"[..], b"k", b"last"]);
}

#[test]
fn what_is_prepared_ends_at_its_time_whenever_it_is_decided() {
    for is_reopened in [false, true] {
        let world = World::new();
        let db = world.open();
        db.put("k", "older").unwrap();
        let tx = db.begin();
        tx.put_ttl("k", "v", ms(10)).unwrap();
        tx.put_ttl("far", "v", ms(30)).unwrap();
        drop(tx.prepare("1").unwrap());
        world.clock.go(20);
        let db = if is_reopened {
            drop(db);
            world.open()
        } else {
            db
        };
        assert_eq!(get(&db, "k").as_deref(), Some("older"));
        db.commit_prepared(&"1".into()).unwrap();
        assert_eq!((get(&db, "k"), get(&db, "far").as_deref()), (None, Some("v")));
        assert_eq!(db.count(..).unwrap(), 1);
        world.clock.go(10);
        assert_eq!(db.snapshot().count(..).unwrap(), 0);
        drop(db);
        world.clock.0.store(STARTED_MS, Ordering::Relaxed);
        assert_eq!(world.open().count(..).unwrap(), 0);
    }
}

#[test]
fn what_was_gone_stays_so_over_gaps_and_range_deletes() {
    let world = World::new();
    let db = world.open();
    for key in 0..200u8 {
        db.put([key], "beneath").unwrap();
    }
    db.flush().unwrap();
    for key in 0..200u8 {
        db.put_ttl([key], "v", ms(10 + u64::from(key % 2) * 10)).unwrap();
    }
    let snapshot = db.snapshot();
    world.clock.go(10);
    for _ in 0..3 {
        assert_eq!(db.count(..).unwrap(), 100);
    }
    assert_eq!(db.pop_first(..).unwrap().unwrap().0, [1]);
    world.clock.go(10);
    let between = db.snapshot();
    for _ in 0..3 {
        assert_eq!(db.count(..).unwrap(), 0);
        assert!(db.pop_last(..).unwrap().is_none());
    }
    assert!(!db.set_expiry([7], ms(10)).unwrap());
    db.put_ttl([7], "again", ms(10)).unwrap();
    assert_eq!(db.count(..).unwrap(), 1);
    assert_eq!(db.pop_first(..).unwrap().unwrap().0, [7]);
    db.put_ttl([9], "again", ms(10)).unwrap();
    db.delete_range(&[8][..]..&[20][..]).unwrap();
    assert_eq!((db.count(..).unwrap(), between.count(..).unwrap()), (0, 0));
    assert_eq!((snapshot.count(..).unwrap(), snapshot.get([9]).unwrap().is_some()), (200, true));
    world.clock.0.store(STARTED_MS, Ordering::Relaxed);
    db.compact().unwrap();
    assert_eq!((db.count(..).unwrap(), snapshot.count(..).unwrap()), (0, 200));
    drop((snapshot, between));
    db.compact().unwrap();
    assert_eq!(db.range(..).rev().count(), 0);
}

#[test]
fn a_large_transaction_relies_on_ends_too_and_merges_onto_none() {
    let world = World::new();
    let db = world.open();
    let words = db.family(("words", FamilyOptions::new().merge_operator("isobath.append")));
    let words = words.unwrap();
    db.put_ttl([0xff], "v", ms(10)).unwrap();
    words.put_ttl("k", "a", ms(100)).unwrap();
    let isolation = Isolation::Serializable;
    let tx = db.with(TransactionOptions { isolation, ..Default::default() }).begin();
    assert!(tx.get([0xff]).unwrap().is_some());
    for key in 0..3000u32 {
        tx.put(key.to_be_bytes(), [7; 100]).unwrap();
    }
    let error = tx.of(&words).merge("k", "b").unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::InvalidArgument { .. }), "{error}");
    world.clock.go(10);
    assert!(db.get([0xff]).unwrap().is_none());
    let error = tx.commit().unwrap_err();
    let ErrorKind::Conflict { kind, .. } = error.kind() else { panic!("{error}") };
    assert_eq!(*kind, ConflictKind::Expired);
    assert_eq!(db.count(..).unwrap(), 0);
}

/// Cannot join operands.
struct Apart;

impl MergeOperator for Apart {
    fn name(&self) -> &str {
        "test.apart"
    }

    fn merge(
        &self,
        _key: &[u8],
        existing: Option<&[u8]>,
        operands: &[&[u8]],
        out: &mut Vec<u8>,
    ) -> Result<(), BoxError> {
        existing.iter().chain(operands).for_each(|part| out.extend_from_slice(part));
        Ok(())
    }
}

/// Two operands that cannot be joined become a put of what they make of the value beneath. If that
/// ends, the put would keep it for ever.
#[test]
fn operands_that_become_a_put_are_not_put_onto_a_value_that_ends() {
    let world = World::new();
    let env = Env { fs: Arc::new(world.fs.clone()), clock: world.clock.clone(), ..Env::system() };
    let family = FamilyOptions::new().merge_operator("test.apart");
    let options = Options::new().merge_operator(Apart).family(family).env(env);
    let db = options.open("/db").unwrap();
    for isolation in [Isolation::ReadCommitted, Isolation::Snapshot, Isolation::Serializable] {
        db.put_ttl("k", "a", ms(10)).unwrap();
        let tx = db.with(TransactionOptions { isolation, ..Default::default() }).begin();
        tx.merge("k", "b").unwrap();
        let error = tx.merge("k", "c").unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::InvalidArgument { .. }), "{error}");
        drop(tx);
        assert!(db.set_expiry("k", crate::Expiry::Never).unwrap());
        let tx = db.with(TransactionOptions { isolation, ..Default::default() }).begin();
        tx.merge("k", "b").unwrap();
        tx.merge("k", "c").unwrap();
        assert_eq!(tx.get("k").unwrap().unwrap(), b"abc");
        tx.commit().unwrap();
        assert_eq!(db.get("k").unwrap().unwrap(), b"abc");
    }
}

type Deed = Box<dyn FnOnce() + Send>;

/// A clock that does something when this thread asks it for the time.
struct Meanwhile(Arc<super::Wall>, Mutex<Option<(std::thread::ThreadId, Deed)>>);

impl Clock for Meanwhile {
    fn now_ns(&self) -> u64 {
        self.0.now_ns()
    }

    fn unix_ms(&self) -> u64 {
        let this = std::thread::current().id();
        let deed = self.1.lock().take_if(|(thread, _)| *thread == this);
        if let Some((_, deed)) = deed {
            deed();
        }
        self.0.unix_ms()
    }
}

#[test]
fn a_read_that_lets_time_go_on_looks_again_for_what_was_put_meanwhile() {
    let world = World::new();
    let clock = Arc::new(Meanwhile(world.clock.clone(), Mutex::unranked(None)));
    let env = Env { fs: Arc::new(world.fs.clone()), clock: clock.clone(), ..Env::system() };
    let db = Options::new().env(env).open("/db").unwrap();
    db.put_ttl("key", "old", ms(10)).unwrap();
    world.clock.go(20);
    let other = db.clone();
    let put = Box::new(move || other.put("key", "new").map(drop).unwrap());
    *clock.1.lock() = Some((std::thread::current().id(), put));
    assert_eq!(get(&db, "key").as_deref(), Some("new"));
    assert!(clock.1.lock().is_none(), "nobody asked for the time");
}

#[test]
fn ends_that_are_not_known_one_by_one_are_told_of_in_time() {
    let ticks = Ticks::of(&[]);
    assert!(!ticks.is_due(u64::MAX - 1), "nothing ends");
    ticks.note_end(200_000);
    ticks.note_end(5);
    assert!(ticks.is_due(5));
    ticks.note_told(5);
    assert!(!ticks.is_due(6) && ticks.is_due(5 + UNKNOWN_ENDS_MS));
    ticks.note_told(200_000);
    assert!(!ticks.is_due(u64::MAX - 1), "all has ended");
}

#[test]
fn ticks_for_the_manifest_are_found_without_a_look_at_those_that_it_has() {
    let ticks_to = |count: u64| -> Vec<Tick> {
        (1..=count).map(|nth| Tick { lsn: 10 * nth, unix_ms: nth }).collect()
    };
    let told = |known: &Ticks, horizon, lsn| match known.changes(horizon, lsn) {
        Some(Change::Ticks { ticks }) => ticks,
        other => panic!("{other:?}"),
    };
    let known = Ticks::of(&ticks_to(10_000));
    known.note_filed(99_991);
    LOOKS.set(0);
    assert_eq!(told(&known, 0, u64::MAX), [Tick { lsn: 100_000, unix_ms: 10_000 }]);
    assert!(LOOKS.get() <= 50, "{} looks", LOOKS.get());
    // Those that are told are the ones that are asked for and not filed.
    let few = ticks_to(4);
    for filed in 0..50 {
        let known = Ticks::of(&few);
        known.note_filed(filed);
        for (horizon, lsn) in (0..50).flat_map(|horizon| (0..50).map(move |lsn| (horizon, lsn))) {
            let asked = few.iter().filter(|tick| {
                let next = few.iter().find(|other| other.lsn > tick.lsn);
                next.is_none_or(|next| next.lsn >= horizon)
            });
            let expected: Vec<Tick> =
                asked.filter(|tick| (filed..lsn).contains(&tick.lsn)).copied().collect();
            let found = match known.changes(horizon, lsn) {
                None => Vec::new(),
                Some(_) => told(&known, horizon, lsn),
            };
            // Nor those that an edit before in the same record has told.
            let last = few[filed as usize % few.len()];
            let behind = match known.changes_behind(Some(last), horizon, lsn) {
                Some(Change::Ticks { ticks }) => ticks,
                _ => Vec::new(),
            };
            assert!(behind.iter().eq(found.iter().filter(|tick| tick.lsn > last.lsn)));
            assert_eq!(found, expected, "from {horizon} below {lsn}, filed below {filed}");
        }
    }
}
