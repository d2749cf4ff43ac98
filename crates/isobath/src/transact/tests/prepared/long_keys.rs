//! Prepared transactions that have read with keys and bounds longer than a key can be. Their
//! records must decode; otherwise the database would not open again.

use super::*;
use crate::lock::LockMode;
use crate::{MAX_KEY_LEN, Transaction};
use std::ops::Bound;

type Read = fn(&Transaction, Vec<u8>);

const READS: [Read; 8] = [
    |tx, long| assert!(tx.get(long).unwrap().is_none()),
    |tx, long| assert_eq!(tx.range(long..).count(), 1),
    |tx, long| assert_eq!(tx.range(..long).count(), 1),
    |tx, long| assert_eq!(tx.range(long..).rev().count(), 1),
    |tx, long| assert_eq!(tx.prefix(long).count(), 0),
    |tx, long| assert_eq!(tx.count(..=long).unwrap(), 1),
    |tx, long| tx.lock_range(long.., LockMode::Exclusive).unwrap(),
    |tx, long| {
        let bounds = (Bound::<Vec<u8>>::Unbounded, Bound::Included(long));
        tx.lock_range(bounds, LockMode::Shared).unwrap();
    },
];

#[test]
fn a_prepare_after_reads_beyond_the_longest_key_is_found_again() {
    for (nth, read) in READS.into_iter().enumerate() {
        for len in [MAX_KEY_LEN, MAX_KEY_LEN + 1, MAX_KEY_LEN + 2, 3 * MAX_KEY_LEN] {
            let fs = MemoryFs::new();
            let db = open(&fs);
            db.put("a", "below").unwrap();
            db.put("z", "above").unwrap();
            let tx = db.begin();
            read(&tx, vec![b'm'; len]);
            tx.put("written", "now").unwrap();
            drop(tx.prepare("x").unwrap());
            // From the log, then from a file.
            let mut left = fs.crashed(|_| 0);
            for _ in 0..2 {
                let db = open(&left);
                assert_eq!(names(&db), ["x"], "{nth} {len}");
                left = left.crashed(|_| 0);
            }
            open(&left).commit_prepared(&xid("x")).unwrap();
        }
    }
}

#[test]
fn a_range_that_ends_at_a_key_that_is_too_long_is_locked_up_to_the_last_key_below() {
    let db = open(&MemoryFs::new());
    let (long, longest) = (vec![b'm'; MAX_KEY_LEN + 1], vec![b'm'; MAX_KEY_LEN]);
    let tx = db.begin();
    tx.lock_range(..long.clone(), LockMode::Exclusive).unwrap();
    tx.put("z", "now").unwrap();
    let prepared = tx.prepare("x").unwrap();
    assert!(db.put(&longest, "other").unwrap_err().is_conflict());
    db.put("n", "free").unwrap();
    prepared.commit().unwrap();
    let tx = db.begin();
    tx.lock_range(long.., LockMode::Exclusive).unwrap();
    tx.put("a", "now").unwrap();
    let prepared = tx.prepare("x").unwrap();
    assert!(db.put("n", "other").unwrap_err().is_conflict());
    db.put(&longest, "free").unwrap();
    prepared.commit().unwrap();
    assert_at_rest(db.engine());
}
