//! What a transaction sees of values that end once its read point has moved, and of its own.

use super::{World, get, ms};
use crate::{ConflictKind, ErrorKind, Expiry, Isolation, LockMode, TransactionOptions};

#[test]
fn what_a_transaction_has_put_stays_in_its_scans_when_its_point_moves() {
    let isolations = [Isolation::ReadCommitted, Isolation::RepeatableRead, Isolation::Serializable];
    for (isolation, hides) in isolations.into_iter().flat_map(|one| [(one, false), (one, true)]) {
        let world = World::new();
        let db = world.open();
        let tx = db.with(TransactionOptions { isolation, ..Default::default() }).begin();
        tx.put_ttl("gone", "v", ms(10)).unwrap();
        tx.put_ttl("own", "v", ms(10)).unwrap();
        tx.delete("gone").unwrap();
        if hides {
            tx.delete_range("p"..).unwrap();
        }
        db.put("k", "1").unwrap();
        world.clock.go(10);
        tx.get_for_update("k").unwrap();
        assert!(tx.get("own").unwrap().is_some(), "{isolation:?}");
        assert_eq!(tx.count(..).unwrap(), 2, "{isolation:?}");
        let last = tx.range("own"..).next_back().unwrap().unwrap();
        assert_eq!(last.0, "own", "{isolation:?}");
        let mut cursor = tx.cursor(..).unwrap();
        assert_eq!(cursor.last().unwrap().unwrap().key(), b"own", "{isolation:?}");
        assert_eq!(tx.pop_first("l"..).unwrap().unwrap().0, "own", "{isolation:?}");
    }
}

#[test]
fn what_a_transaction_has_put_with_an_end_in_the_past_is_in_none_of_its_reads() {
    let isolations = [Isolation::ReadCommitted, Isolation::RepeatableRead, Isolation::Serializable];
    for (isolation, hides) in isolations.into_iter().flat_map(|one| [(one, false), (one, true)]) {
        let world = World::new();
        let db = world.open();
        let past = std::time::UNIX_EPOCH + ms(5);
        db.put("a", "v").unwrap();
        let tx = db.with(TransactionOptions { isolation, ..Default::default() }).begin();
        if hides {
            tx.delete_range("p"..).unwrap();
        }
        tx.put_ttl("k", "v", Expiry::At(past)).unwrap();
        assert!(tx.set_expiry("a", Expiry::At(past)).unwrap());
        assert_eq!((tx.get("a").unwrap(), tx.get("k").unwrap()), (None, None));
        assert_eq!(tx.count(..).unwrap(), 0, "{isolation:?}");
        assert!(tx.range(..).next().is_none() && tx.range(..).next_back().is_none());
        assert!(tx.pop_first(..).unwrap().is_none() && tx.pop_last(..).unwrap().is_none());
    }
}

#[test]
fn a_value_that_has_ended_is_a_conflict_where_the_point_moves() {
    for isolation in [Isolation::RepeatableRead, Isolation::Serializable] {
        for way in 0..6 {
            let world = World::new();
            let db = world.open();
            db.put_ttl("lease", "A", ms(10)).unwrap();
            let tx = db.with(TransactionOptions { isolation, ..Default::default() }).begin();
            let mut open = None;
            match way % 2 {
                0 => assert!(tx.get("lease").unwrap().is_some()),
                _ => open = Some(tx.range("l".."m")),
            }
            assert!(open.as_mut().is_none_or(|scan| scan.next().is_some()));
            world.clock.go(10);
            assert_eq!(get(&db, "lease"), None);
            db.put("k", "B").unwrap();
            let read = match way / 2 {
                0 => tx.get_for_update("k").map(|_| ()),
                1 => tx.get_for_share("k").map(|_| ()),
                _ => tx.lock_range("k".."l", LockMode::Shared),
            };
            assert_eq!(read.is_err(), open.is_none(), "the open scan may not have shown it yet");
            match isolation {
                Isolation::Serializable => drop(open),
                _ => std::mem::forget(open),
            }
            let error = read.and_then(|()| tx.commit().map(|_| ())).unwrap_err();
            let ErrorKind::Conflict { kind, .. } = error.kind() else { panic!("{error}") };
            assert_eq!(*kind, ConflictKind::Expired, "{isolation:?} {way}");
        }
    }
}

#[test]
fn a_transaction_that_wrote_nothing_commits_after_the_end_of_what_it_read() {
    let world = World::new();
    let db = world.open();
    db.put_ttl("lease", "A", ms(10)).unwrap();
    db.put("k", "1").unwrap();
    let tx = db.begin();
    assert!(tx.get("lease").unwrap().is_some());
    assert!(tx.get_for_update("k").unwrap().is_some());
    world.clock.go(10);
    assert_eq!(get(&db, "lease"), None);
    tx.commit().unwrap();
}
