//! Phantoms: what is inserted, changed or deleted where a scan has passed, wherever it is when the
//! commit looks, and however many others commit at once.

use super::{RANGE_LEAVES_MAX, Ranges, Since};
use crate::error::{ConflictKind, Error, ErrorKind, Result};
use crate::footprint::Interval;
use crate::format::Lsn;
use crate::options::{MIB, Options, TransactionOptions};
use crate::{Db, LockMode, Prefix, Transaction};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

fn open() -> Db {
    Options::in_memory().open("/db").unwrap()
}

#[track_caller]
fn key_of_range_conflict(told: Result<impl std::fmt::Debug>) -> Vec<u8> {
    match told.as_ref().map_err(Error::kind) {
        Err(ErrorKind::Conflict { key, kind: ConflictKind::Range, .. }) => key.clone(),
        _ => panic!("no conflict of a range: {told:?}"),
    }
}

/// A transaction that has scanned everything, and written something elsewhere.
fn scanned(db: &Db) -> Transaction {
    let tx = db.begin();
    tx.iter().for_each(|item| drop(item.unwrap()));
    tx.of(&db.family("elsewhere").unwrap()).put("own", "x").unwrap();
    tx
}

#[test]
fn a_change_is_found_wherever_flushes_and_compactions_have_put_it() {
    let changes: [fn(&Db); 3] = [
        |db| _ = db.put("key05x", "new").unwrap(),
        |db| _ = db.put("key05", "changed").unwrap(),
        |db| _ = db.delete("key05").unwrap(),
    ];
    let moves: [fn(&Db); 4] = [
        |_| {},
        |db| db.flush().unwrap(),
        |db| db.compact().unwrap(),
        |db| {
            db.put("key99", "").unwrap();
            db.compact().unwrap();
            db.delete("key99").unwrap();
            db.flush().unwrap();
        },
    ];
    for change in changes {
        for to in moves {
            let db = open();
            for n in 0..20 {
                db.put(format!("key{n:02}"), "old").unwrap();
            }
            db.compact().unwrap();
            let tx = scanned(&db);
            let narrow = db.begin();
            assert_eq!(narrow.prefix("key1").count(), 10);
            narrow.put("own", "x").unwrap();
            change(&db);
            to(&db);
            assert!(key_of_range_conflict(tx.commit()).starts_with(b"key"));
            narrow.commit().unwrap();
        }
    }
}

#[test]
fn what_was_there_before_is_no_conflict_wherever_it_is() {
    let db = open();
    for round in 0..4 {
        for n in 0..300 {
            db.put(format!("key{n:03}"), format!("{round}")).unwrap();
        }
        db.delete("key007").unwrap();
        let tx = scanned(&db);
        match round {
            0 => {}
            1 => db.flush().unwrap(),
            _ => db.compact().unwrap(),
        }
        tx.commit().unwrap();
    }
}

#[test]
fn a_family_dropped_after_it_was_scanned_fails_the_commit() {
    let db = open();
    let family = db.family("f").unwrap();
    let tx = db.begin();
    assert_eq!(tx.of(&family).count(..).unwrap(), 0);
    tx.put("own", "x").unwrap();
    db.drop_family(&family).unwrap();
    assert!(matches!(tx.commit().unwrap_err().kind(), ErrorKind::UnknownFamily { .. }));
}

#[test]
fn a_savepoint_takes_writes_back_and_leaves_what_was_scanned() {
    let db = open();
    let family = db.family("f").unwrap();
    let tx = db.begin();
    tx.put("kept", "1").unwrap();
    tx.savepoint("s").unwrap();
    tx.put("kept", "2").unwrap();
    tx.of(&family).put("gone", "x").unwrap();
    assert_eq!(tx.count(Prefix("q")).unwrap(), 0);
    let open = tx.of(&family).iter();
    tx.rollback_to("s").unwrap();
    assert_eq!(open.count(), 1);
    assert_eq!(tx.get("kept").unwrap().unwrap(), "1");
    assert!(!tx.of(&family).contains("gone").unwrap());
    tx.release("s").unwrap();
    for told in [tx.rollback_to("s"), tx.release("s"), tx.rollback_to("never")] {
        assert!(matches!(told.unwrap_err().kind(), ErrorKind::InvalidArgument { .. }));
    }
    db.put("question", "inserted").unwrap();
    assert_eq!(key_of_range_conflict(tx.commit()), b"question");
    assert!(!db.contains("kept").unwrap());
}

#[test]
fn one_of_two_transactions_that_count_and_insert_loses() {
    let db = open();
    let (a, b) = (db.begin(), db.begin());
    for (tx, key) in [(&a, "item a"), (&b, "item b")] {
        assert_eq!(tx.count(Prefix("item")).unwrap(), 0);
        tx.put(key, "x").unwrap();
    }
    a.commit().unwrap();
    assert_eq!(key_of_range_conflict(b.commit()), b"item a");
}

/// Each thread inserts the number of keys that it counted. Any phantom makes two insert the same.
#[test]
fn threads_that_count_and_insert_count_to_the_end() {
    const THREADS: u32 = 4;
    const EACH: u32 = 40;
    let db = open();
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let patient = db.with(TransactionOptions::new().attempts(10_000));
                for _ in 0..EACH {
                    let insert = |tx: &Transaction| {
                        let count = tx.count(Prefix("n"))?;
                        tx.put(format!("n{count:06}"), "x")
                    };
                    patient.transact(insert).unwrap();
                }
            });
        }
    });
    let keys: Vec<_> = db.prefix("n").keys().map(Result::unwrap).collect();
    let expected: Vec<_> = (0..THREADS * EACH).map(|n| format!("n{n:06}")).collect();
    assert_eq!(keys, expected);
}

/// A scan that meets too many leaves to be judged commits while no other does, and otherwise
/// commits or is a conflict, but never holds the others up.
#[test]
fn a_wide_scan_commits_or_conflicts_beside_a_busy_writer() {
    let db = Options::in_memory().write_buffer(64 * MIB).open("/db").unwrap();
    let busy = db.family("busy").unwrap();
    (0..20_000u32).for_each(|n| _ = db.put(n.to_be_bytes(), "x").unwrap());
    let tx = scanned(&db);
    tx.commit().unwrap();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut n = 0u32;
            while !is_over.load(Relaxed) {
                n += 1;
                busy.put((n % 100).to_be_bytes(), "x").unwrap();
            }
        });
        for _ in 0..10 {
            match scanned(&db).commit() {
                Ok(_) => {}
                told => assert_eq!(key_of_range_conflict(told), b""),
            }
        }
        is_over.store(true, Relaxed);
    });
}

/// A transaction of very many small scans, which all lie in one leaf or two.
#[test]
fn small_scans_in_one_leaf_are_not_wide() {
    let db = open();
    (0..100u32).for_each(|n| _ = db.put(n.to_be_bytes(), "x").unwrap());
    let (engine, family) = (db.engine(), &db.engine().default_family);
    let (families, view) = (std::slice::from_ref(family), family.view());
    let point = engine.log.visible();
    let scans = |count: u32| {
        let of = |n: u32| (family.id, Interval::of_key(&(n * 37 % count).to_be_bytes()));
        Ranges::new(ConflictKind::Range, families, (0..count).map(of))
    };
    let mut ranges = scans(100);
    ranges.look(engine, std::iter::once((family, &**view)), point, point).unwrap();
    assert!(!ranges.are_wide(), "{} leaves", ranges.leaves);
    let since = Since { from: point, bound: Lsn::MAX };
    let mut leaves = RANGE_LEAVES_MAX;
    let judge = |leaves: &mut usize| ranges.judge(0, family, (&view, &view), since, leaves);
    assert!(judge(&mut leaves).unwrap(), "what is not wide can be judged");
    assert_eq!(RANGE_LEAVES_MAX - leaves, ranges.leaves, "as many leaves as were met before");
    db.put(40u32.to_be_bytes(), "changed").unwrap();
    assert_eq!(key_of_range_conflict(judge(&mut leaves)), 40u32.to_be_bytes());
    let mut many = scans(2000);
    let now = engine.log.visible();
    many.look(engine, std::iter::once((family, &**view)), now, now).unwrap();
    assert!(many.are_wide(), "each of them costs something while others wait");
    // In a family that was never written to there is nothing to look for.
    let id = db.family("quiet").unwrap().id();
    let quiet = engine.families.by_id(id).unwrap();
    let ranges = (0..2000u32).map(|n| (quiet.id, Interval::of_key(&n.to_be_bytes())));
    let mut many = Ranges::new(ConflictKind::Range, std::slice::from_ref(&quiet), ranges);
    many.look(engine, std::iter::once((&quiet, &**quiet.view())), point, point).unwrap();
    assert!(!many.are_wide());
}

/// Keys that are dead and known to be so, in so many leaves that no commit may walk over them.
fn worn(db: &Db) {
    (0..5000u32).for_each(|n| _ = db.put(n.to_be_bytes(), "").unwrap());
    (0..5000u32).for_each(|n| _ = db.delete(n.to_be_bytes()).unwrap());
    assert!(db.first().unwrap().is_none());
    assert!(db.metrics().gaps_found > 0);
}

#[test]
fn what_lies_in_gaps_from_before_the_read_point_is_not_walked_over() {
    let db = open();
    worn(&db);
    db.family("elsewhere").unwrap();
    let tx = scanned(&db);
    let (engine, family) = (db.engine(), &db.engine().default_family);
    let (families, view) = (std::slice::from_ref(family), family.view());
    let point = engine.log.visible();
    let all = [Interval::default()];
    let of = |kind, from| {
        let ranges = Ranges::new(kind, families, std::iter::empty());
        ranges.without_gaps(&view, &all[0], from).into_owned()
    };
    assert_ne!(of(ConflictKind::Range, point), all);
    assert_eq!(of(ConflictKind::Write, point), all, "the first committer wins");
    assert_eq!(of(ConflictKind::Range, 1), all, "there may have been something then");
    let mut ranges =
        Ranges::new(ConflictKind::Range, families, [(family.id, all[0].clone())].into_iter());
    ranges.look(engine, std::iter::once((family, &**view)), point, point).unwrap();
    assert!(!ranges.are_wide(), "{} leaves", ranges.leaves);
    tx.commit().unwrap();
}

#[test]
fn a_put_into_a_gap_conflicts_with_who_has_jumped_over_it() {
    let db = open();
    worn(&db);
    db.family("elsewhere").unwrap();
    let tx = scanned(&db);
    db.put(1000u32.to_be_bytes(), "").unwrap();
    assert_eq!(key_of_range_conflict(tx.commit()), 1000u32.to_be_bytes());
    db.delete(1000u32.to_be_bytes()).unwrap();
    let tx = scanned(&db);
    db.put(1000u32.to_be_bytes(), "").unwrap();
    db.delete(1000u32.to_be_bytes()).unwrap();
    assert_eq!(db.count(..).unwrap(), 0, "which makes it one gap again");
    assert_eq!(key_of_range_conflict(tx.commit()), 1000u32.to_be_bytes());
}

/// What a Snapshot transaction writes in a range that it has locked is not looked at any more.
#[test]
fn a_delete_in_a_gap_since_the_read_point_is_found_where_a_range_is_locked_for_writes() {
    use crate::Isolation::{Serializable, Snapshot};
    for (level, conflicts) in [(Snapshot, true), (Serializable, false)] {
        let db = open();
        worn(&db);
        let tx = db.with(TransactionOptions::default().isolation(level)).begin();
        assert!(tx.get("elsewhere").unwrap().is_none());
        db.delete(1000u32.to_be_bytes()).unwrap();
        let told = tx.lock_range(.., LockMode::Exclusive);
        assert_eq!(told.is_err_and(|error| error.is_conflict()), conflicts, "{level:?}");
    }
}

#[test]
fn a_gap_that_came_later_does_not_hide_what_was_deleted_in_it() {
    let db = open();
    worn(&db);
    db.family("elsewhere").unwrap();
    db.put(2000u32.to_be_bytes(), "").unwrap();
    let tx = scanned(&db);
    db.delete(2000u32.to_be_bytes()).unwrap();
    assert_eq!(db.count(..).unwrap(), 0);
    assert_eq!(key_of_range_conflict(tx.commit()), 2000u32.to_be_bytes());
}
