//! What a commit locks once it has had to give way, and who overtakes whom.

use super::*;
use crate::Options;
use crate::env::sync::atomic::Ordering;
use crate::error::DeadlockWait;
use crate::format::{DEFAULT_FAMILY, OpKind, put_payload};
use crate::options::Isolation;
use crate::wal::RECORD_HEADER_LEN;
use crate::write::Targets;
use crate::write::announce::Announcement;

fn record_of(ops: Vec<Op<'_>>) -> Vec<u8> {
    let mut record = vec![0; RECORD_HEADER_LEN];
    put_payload(&mut record, &Payload::Batch(ops));
    wal::seal(&mut record);
    record
}

/// A range that is locked around a key of it waits for that key, so it need not start over.
#[test]
fn a_commit_that_has_locked_what_it_writes_is_not_overtaken_by_ranges() {
    let db = Options::in_memory().open("/db").unwrap();
    let engine = db.engine();
    let op = Op { kind: OpKind::Put, family: DEFAULT_FAMILY, key: b"k", value: b"value" };
    let record = record_of(vec![op]);
    let targets = Targets::Many(Vec::new());
    let mut announcement = Announcement::new(&engine.conflicts.stamps, targets);
    let (mut locks, mut asker) = (KeyLocks::of_write(engine), Asker::new(false));
    asker.rounds = ROUNDS_MAX;
    let held = Held::Key(DEFAULT_FAMILY, b"k"[..].into());
    asker.give_way(engine, &record, held, &mut locks).unwrap();
    let other = Owner::transaction(engine.locks.next_id());
    let around = Span::of_delete(b"", b"");
    let range = (DEFAULT_FAMILY, &around);
    for (asker, is_overtaken) in [(&asker, false), (&Asker::new(false), true)] {
        announcement.make_unasked(engine).unwrap();
        let locked = engine.locks.take_range(&other, range, LockMode::Exclusive, 0);
        assert!(locked.is_err() && engine.locks.is_in_range_against(None, (0, b"k")));
        assert_eq!(announcement.is_overtaken(&engine.locks, asker), is_overtaken);
        announcement.withdraw();
        engine.locks.release_ranges(&other);
    }
    locks.end(engine);
    assert!(engine.locks.is_free());
}

/// The owner of a range waits for keys in it.
#[test]
fn a_commit_that_meets_a_range_keeps_none_of_its_keys() {
    let db = Options::in_memory().open("/db").unwrap();
    let engine = db.engine();
    let owner = Owner::transaction(engine.locks.next_id());
    let span = Span::of_delete(b"m", b"n");
    let range = (DEFAULT_FAMILY, &span);
    assert!(engine.locks.take_range(&owner, range, LockMode::Exclusive, 0).is_ok());
    let op = |key| Op { kind: OpKind::Put, family: DEFAULT_FAMILY, key, value: b"value" };
    let is_held = |key: &'static str| {
        let at = (DEFAULT_FAMILY, key.as_bytes());
        engine.locks.is_held_against(None, at, LockMode::Shared)
    };
    for (last, is_locked) in [("m", false), ("z", true)] {
        let mut locks = KeyLocks::of_write(engine);
        let mut ops = vec![op(b"a"), op(b"b"), op(last.as_bytes())];
        assert_eq!(lock_keys(engine, &mut ops, u64::MAX, &mut locks).unwrap(), is_locked);
        assert_eq!(["a", "b", last].map(is_held), [is_locked; 3]);
        locks.end(engine);
    }
    engine.locks.release_ranges(&owner);
    assert!(engine.locks.is_free());
}

#[test]
fn a_commit_that_locks_what_it_writes_locks_every_key_and_every_range_of_it() {
    let db = Options::in_memory().open("/db").unwrap();
    let engine = db.engine();
    let op = |kind, key, value| Op { kind, family: DEFAULT_FAMILY, key, value };
    let ops = vec![
        op(OpKind::Put, b"b", &b"value"[..]),
        op(OpKind::Put, b"a", b"value"),
        op(OpKind::DeleteRange, b"p", b"t"),
        op(OpKind::Delete, b"b", b""),
        op(OpKind::DeleteRange, b"p", b"z"),
    ];
    let mut locks = KeyLocks::of_write(engine);
    lock_all(engine, ops, u64::MAX, &mut locks).unwrap();
    let key = |key: &'static str| (DEFAULT_FAMILY, key.as_bytes());
    let is_held = |name| engine.locks.is_held_against(None, key(name), LockMode::Shared);
    let is_in_range = |name| engine.locks.is_in_range_against(None, key(name));
    assert_eq!(["a", "b", "c", "p"].map(is_held), [false; 4], "keys are ranges of their own");
    assert_eq!(["a", "b", "b1", "c"].map(is_in_range), [true, true, false, false]);
    assert_eq!(["o", "p", "s", "t", "z"].map(is_in_range), [false, true, true, true, false]);
    locks.end(engine);
    assert!(engine.locks.is_free());
}

/// One wants keys in the range that the others lock, writes or transactions.
#[test]
fn writes_of_keys_and_those_who_lock_ranges_around_them_lock_all_without_a_deadlock() {
    let db = Options::in_memory().lock_timeout(Duration::from_secs(600)).open("/db").unwrap();
    let engine = db.engine();
    let op = |kind, key, value| Op { kind, family: DEFAULT_FAMILY, key, value };
    let range = record_of(vec![op(OpKind::DeleteRange, b"m", &b"z"[..])]);
    let keys = ["p", "q"].map(|key| op(OpKind::Put, key.as_bytes(), b"value"));
    let keys = record_of(keys.to_vec());
    let lock_once = |record: &[u8]| {
        let (mut locks, mut asker) = (KeyLocks::of_write(engine), Asker::new(false));
        asker.rounds = ROUNDS_MAX;
        let mut told = Ok(());
        while told.is_ok() && !asker.has_all() {
            let held = Held::Key(DEFAULT_FAMILY, b"p"[..].into());
            told = asker.give_way(engine, record, held, &mut locks);
            std::thread::sleep(Duration::from_micros(200));
        }
        locks.end(engine);
        told
    };
    let lock_range = || {
        let tx = db.begin();
        let told = tx.lock_range("m".."z", LockMode::Exclusive);
        std::thread::sleep(Duration::from_micros(200));
        told
    };
    for are_writes in [true, false] {
        let is_over = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            let rangers = [(); 3].map(|()| {
                scope.spawn(|| {
                    let mut told = Ok(());
                    while told.is_ok() && !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                        told = if are_writes { lock_once(&range) } else { lock_range() };
                    }
                    told
                })
            });
            let told: Result<Vec<()>> = (0..100).map(|_| lock_once(&keys)).collect();
            is_over.store(true, std::sync::atomic::Ordering::Relaxed);
            let rangers = rangers.map(|ranger| ranger.join().unwrap());
            assert!(told.is_ok() && rangers.iter().all(Result::is_ok), "{told:?} {rangers:?}");
        });
        assert!(engine.locks.is_free());
    }
    assert_eq!(engine.locks.counts().deadlocks.load(Ordering::Relaxed), 0);
}

/// Other writers in the range of very many keys go on while one of the keys is locked. On a busy
/// machine the commit may stand still while it has the range, so one of several runs suffices.
#[test]
fn a_commit_of_very_many_keys_holds_no_others_up_while_it_waits_for_a_key() {
    assert!((0..20).any(|_| do_others_go_on()));
}

/// True if others write in time in the range of a commit that waits.
fn do_others_go_on() -> bool {
    const LONG: Duration = Duration::from_secs(600);
    let mut options = Options::in_memory().lock_timeout(Duration::from_millis(100));
    options.sizes.slots_written_max = 2;
    let db = options.open("/db").unwrap();
    let engine = db.engine();
    let put = |key| Op { kind: OpKind::Put, family: DEFAULT_FAMILY, key, value: &b"value"[..] };
    let record = record_of(["a", "m", "z"].map(|key| put(key.as_bytes())).to_vec());
    let holder = Owner::transaction(engine.locks.next_id());
    holder.leave_thread();
    for nth in 0..8 {
        let key = (DEFAULT_FAMILY, format!("m{nth}"));
        let locked = engine.locks.take(&holder, (key.0, key.1.as_bytes()), LockMode::Exclusive, 0);
        locked.unwrap();
    }
    let is_put = || match db.put("c", "value") {
        Ok(_) => true,
        Err(error) => {
            assert!(matches!(error.kind(), ErrorKind::LockTimeout { .. }), "{error}");
            false
        }
    };
    let mut are_in_time = true;
    std::thread::scope(|scope| {
        let long = scope.spawn(|| {
            let isolation = crate::options::Isolation::ReadCommitted;
            let mut locks = KeyLocks::of_transaction(isolation, LONG);
            let mut asker = Asker::new(false);
            asker.rounds = ROUNDS_MAX;
            let held = Held::Key(DEFAULT_FAMILY, b"m"[..].into());
            let told = asker.give_way(engine, &record, held, &mut locks);
            locks.end(engine);
            told
        });
        let mut spans: BTreeMap<FamilyId, OwnRanges> = BTreeMap::new();
        let around = Span::of_delete(b"a", b"z");
        spans.entry(DEFAULT_FAMILY).or_default().add(&around, LockMode::Exclusive);
        // In the order in which they are found. It waits for a few before it locks.
        while let Some((family, key)) = engine.locks.key_in_any(&spans, None) {
            while engine.locks.sleepers() == 0 {
                std::thread::yield_now();
            }
            for _ in 0..3 {
                std::thread::sleep(Duration::from_millis(5));
                are_in_time = are_in_time && is_put();
            }
            engine.locks.release(&holder, (family, &key));
        }
        long.join().unwrap().unwrap();
    });
    assert!(engine.locks.is_free());
    are_in_time
}

/// A commit that locked the ranges while it holds a key in them would be a deadlock.
#[test]
fn who_holds_a_key_for_long_and_then_wants_another_does_not_die_of_a_range_around_both() {
    // The commit waits for a part of it before it locks the range.
    let db = Options::in_memory().lock_timeout(Duration::from_secs(120)).open("/db").unwrap();
    let engine = db.engine();
    let range = Op { kind: OpKind::DeleteRange, family: DEFAULT_FAMILY, key: b"a", value: b"z" };
    let record = record_of(vec![range]);
    let tx = db.begin();
    tx.get_for_update("m").unwrap();
    std::thread::scope(|scope| {
        let long = scope.spawn(|| {
            let (mut locks, mut asker) = (KeyLocks::of_write(engine), Asker::new(false));
            asker.rounds = ROUNDS_MAX;
            let held = Held::Key(DEFAULT_FAMILY, b"m"[..].into());
            let told = asker.give_way(engine, &record, held, &mut locks);
            locks.end(engine);
            told
        });
        std::thread::sleep(PATIENCE_MIN * 26);
        tx.get_for_update("n").unwrap();
        tx.commit().unwrap();
        long.join().unwrap().unwrap();
    });
    assert!(engine.locks.is_free());
}

/// The key is never free of others that came before, and each wait for it lasts 400 ms. On a busy
/// machine the waits may last longer, so one of several commits suffices.
#[test]
fn a_commit_locks_its_ranges_in_time_though_a_key_in_them_goes_from_hand_to_hand() {
    let patience = Duration::from_millis(1200);
    let db = Options::in_memory().lock_timeout(patience).open("/db").unwrap();
    let engine = db.engine();
    let range = Op { kind: OpKind::DeleteRange, family: DEFAULT_FAMILY, key: b"a", value: b"z" };
    let record = record_of(vec![range]);
    let is_over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                    let tx = db
                        .with(crate::TransactionOptions::new().lock_timeout(patience * 500))
                        .begin();
                    tx.get_for_update("m").unwrap();
                    std::thread::sleep(Duration::from_millis(100));
                }
            });
        }
        let lock_in_time = || {
            while engine.locks.sleepers() < 3 {
                std::thread::yield_now();
            }
            let (mut locks, mut asker) = (KeyLocks::of_write(engine), Asker::new(false));
            asker.rounds = ROUNDS_MAX;
            let held = Held::Key(DEFAULT_FAMILY, b"m"[..].into());
            let told = asker.give_way(engine, &record, held, &mut locks);
            locks.end(engine);
            told.is_ok() && asker.has_all()
        };
        let is_any_in_time = (0..10).any(|_| lock_in_time());
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(is_any_in_time, "its time is over before it has its turn");
    });
    assert!(engine.locks.is_free());
}

#[test]
fn a_commit_of_very_many_keys_locks_the_range_from_its_first_to_its_last_in_each_family() {
    let mut options = Options::in_memory();
    options.sizes.slots_written_max = 2;
    let db = options.open("/db").unwrap();
    let other = db.family("other").unwrap().id();
    let engine = db.engine();
    let put = |family, key| Op { kind: OpKind::Put, family, key, value: &b"value"[..] };
    let delete = |family, key, value| Op { kind: OpKind::DeleteRange, family, key, value };
    let ops = |is_open: bool| {
        let end = if is_open { &b""[..] } else { b"r" };
        vec![put(0, &b"k"[..]), put(0, b"c"), delete(other, b"p", end), put(other, b"q")]
    };
    for is_open in [false, true] {
        let (mut locks, mut asker) = (KeyLocks::of_write(engine), Asker::new(false));
        asker.rounds = ROUNDS_MAX;
        let held = Held::Key(DEFAULT_FAMILY, b"k"[..].into());
        asker.give_way(engine, &record_of(ops(is_open)), held, &mut locks).unwrap();
        let is_in =
            |family, key: &str| engine.locks.is_in_range_against(None, (family, key.as_bytes()));
        assert_eq!(
            ["b", "c", "d", "k", "k1"].map(|key| is_in(0, key)),
            [false, true, true, true, false]
        );
        assert_eq!(["o", "p", "q", "r"].map(|key| is_in(other, key)), [false, true, true, is_open]);
        assert!(asker.has_all());
        locks.end(engine);
        assert!(engine.locks.is_free());
    }
}

#[test]
fn a_plain_write_gives_way_in_some_deadlocks_with_others_and_a_transaction_in_none() {
    let db = Options::in_memory().open("/db").unwrap();
    let engine = db.engine();
    let wait =
        || DeadlockWait { transaction: None, family: "default".to_owned(), key: b"k".to_vec() };
    let of = |others: usize| Error::deadlock((0..=others).map(|_| wait()).collect());
    let mut locks = KeyLocks::of_write(engine);
    let mut asker = Asker::new(false);
    assert!(asker.give_all_back(engine, &mut locks, of(0)).is_err(), "its own thread");
    for _ in 0..DEADLOCKS_MAX {
        asker.give_all_back(engine, &mut locks, of(1)).unwrap();
    }
    assert_eq!(asker.give_all_back(engine, &mut locks, of(1)).unwrap_err().name(), "DEADLOCK");
    let mut locks = KeyLocks::of_transaction(Isolation::Serializable, Duration::ZERO);
    assert!(Asker::new(false).give_all_back(engine, &mut locks, of(1)).is_err());
}
