//! How a commit that has its LSN handles earlier commits that are still under way. A test plays one
//! of these: it has announced a write to a key that the transaction has read, and has reserved its
//! LSN.

use super::open;
use crate::conflict::Slot;
use crate::error::{ConflictKind, Error, Result};
use crate::footprint::ReadKey;
use crate::format::{Op, OpKind, checksum64, put_batch_prefix, put_op};
use crate::options::{TransactionOptions, WriteOptions};
use crate::transact::ranges::Ranges;
use crate::transact::validate::{Judged, Validation};
use crate::wal::{self, RECORD_HEADER_LEN, Reservation};
use crate::write::Targets;
use crate::{Commit, Db};

/// The record of a put to the default family.
fn record(key: &[u8], value: &[u8]) -> Vec<u8> {
    let mut record = vec![0; RECORD_HEADER_LEN];
    put_batch_prefix(&mut record, 1);
    put_op(&mut record, &Op { kind: OpKind::Put, family: 0, key, value });
    record
}

/// Commits a transaction that has read "key", behind a commit under way that writes it. `end` ends
/// that one, when the transaction has its LSN and waits, or returns its reservation, which then
/// stays until the transaction is over.
fn commit_behind<'db>(
    db: &'db Db,
    end: impl FnOnce(Reservation<'db>, Slot) -> Option<Reservation<'db>>,
) -> Result<Commit> {
    let engine = db.engine();
    // The gate is open from here on.
    db.put_if("any", None, "value")?;
    // It would lock "key" to avoid a wait after it has its LSN, but with `fail_fast` it must not
    // wait for locks.
    let options = TransactionOptions::new().write(WriteOptions::new().fail_fast(true));
    let tx = db.with(options).begin();
    tx.get("key")?;
    tx.put("mine", "value")?;
    let slot = engine.conflicts.stamps.slot(0, checksum64(b"key"));
    engine.conflicts.stamps.announce(slot).unwrap();
    let len = wal::seal(&mut record(b"key", b"theirs")).len() as u64;
    let before = engine.log.reserve(len)?;
    let behind = before.end();
    std::thread::scope(|scope| {
        let committed = scope.spawn(move || tx.commit());
        while engine.log.tail() == behind {
            std::thread::yield_now();
        }
        let _under_way = end(before, slot);
        committed.join().unwrap()
    })
}

#[test]
fn a_commit_before_it_that_gives_up_is_no_conflict() {
    let db = open();
    let stamps = &db.engine().conflicts.stamps;
    let gives_up = |before: Reservation<'_>, slot| {
        stamps.withdraw(slot);
        drop(before);
        None
    };
    commit_behind(&db, gives_up).unwrap();
    assert_eq!(db.get("mine").unwrap().unwrap(), "value");
    super::assert_at_rest(db.engine());
}

#[test]
fn a_commit_before_it_that_writes_what_it_read_is_a_conflict() {
    for is_stamped_early in [true, false] {
        let db = open();
        let engine = db.engine();
        let writes = |mut before: Reservation<'_>, slot| {
            let lsn = before.start();
            if is_stamped_early {
                engine.conflicts.stamps.stamp(slot, lsn);
            }
            before.write(&mut wal::seal(&mut record(b"key", b"theirs")));
            let open = engine.epochs.list().open.clone();
            let memtable = engine.default_family.memtable_in(&open);
            memtable.insert(b"key", lsn, OpKind::Put, b"theirs");
            before.publish();
            if !is_stamped_early {
                engine.conflicts.stamps.stamp(slot, lsn);
            }
            None
        };
        let told = commit_behind(&db, writes);
        assert_eq!(super::conflict_of(told), (b"key".to_vec(), ConflictKind::Read));
        assert!(db.get("mine").unwrap().is_none());
        super::assert_at_rest(engine);
    }
}

#[test]
fn a_log_that_fails_while_it_waits_tells_that_nothing_was_written() {
    let db = open();
    let engine = db.engine();
    let told = commit_behind(&db, |before, slot| {
        engine.log.poison(&Error::planted());
        engine.conflicts.stamps.withdraw(slot);
        Some(before)
    });
    assert_eq!(told.unwrap_err().name(), "POISONED");
    assert!(db.get("mine").unwrap().is_none());
    super::assert_at_rest(engine);
}

#[test]
fn very_many_keys_whose_words_changed_are_not_looked_up_while_others_wait() {
    let db = open();
    let engine = db.engine();
    db.put("any", "value").unwrap();
    let names: Vec<_> = (0..65u32).map(u32::to_be_bytes).collect();
    let keys = |count| {
        let names = names[..count].iter();
        names.map(|key| ReadKey { family: 0, hash: checksum64(key), key })
    };
    let families = [engine.default_family.clone()];
    let (stamps, own) = (&engine.conflicts.stamps, Targets::Many(Vec::new()));
    for (count, told) in [(64, Judged::Unchanged), (65, Judged::TooMany(64))] {
        let mut validation =
            Validation::new(engine, ConflictKind::Read, &families, keys(count), Ranges::none());
        let visible = engine.log.visible();
        validation.look(visible, visible).unwrap();
        for key in keys(count) {
            let slot = stamps.slot(0, key.hash);
            stamps.announce(slot).unwrap();
            stamps.stamp(slot, visible);
        }
        assert_eq!(validation.judge(visible, &own).unwrap(), told);
    }
}

/// It must not wait for locks, and others must not wait for it.
#[test]
fn a_commit_that_does_not_wait_gives_up_if_very_many_of_its_keys_keep_changing() {
    for count in [64, 65] {
        let db = open();
        let engine = db.engine();
        db.put_if("any", None, "value").unwrap();
        let options = TransactionOptions::new().write(WriteOptions::new().fail_fast(true));
        let tx = db.with(options).begin();
        let keys: Vec<_> = (0..count).map(u32::to_be_bytes).collect();
        keys.iter().for_each(|key| assert!(tx.get(key).unwrap().is_none()));
        tx.put("mine", "value").unwrap();
        let stamps = &engine.conflicts.stamps;
        let slots: Vec<_> = keys.iter().map(|key| stamps.slot(0, checksum64(key))).collect();
        slots.iter().for_each(|slot| _ = stamps.announce(*slot).unwrap());
        let told = tx.commit();
        slots.iter().for_each(|slot| stamps.withdraw(*slot));
        match count {
            64 => _ = told.unwrap(),
            _ => assert!(told.unwrap_err().is_conflict()),
        }
        super::assert_at_rest(engine);
    }
}
