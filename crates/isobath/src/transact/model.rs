//! Models of transactions that another thread ends, over a whole database in memory: an abort
//! beside calls that lock, wait and commit, under random schedules. An aborted transaction leaves
//! nothing in the database, and a refused abort changes nothing. No lock, read point or place in
//! the gate is left in either case. A model has no time, so a wait that only a timeout would end
//! shows as a deadlock.

use crate::env::model::{check, env};
use crate::error::Error;
use crate::vfs::MemoryFs;
use crate::{Db, Options, Transaction};
use shuttle::thread;
use std::sync::Arc;

fn open() -> Arc<Db> {
    let options = Options::new().write_buffer(64 << 10).compaction_threads(1);
    Arc::new(options.env(env(Arc::new(MemoryFs::new()))).open("/db").unwrap())
}

/// True if it committed; false if it was aborted.
fn run(tx: Transaction, key: &[u8], value: &[u8]) -> bool {
    let done = tx.get_for_update(key).and_then(|_| tx.put(key, value)).and_then(|()| tx.commit());
    assert!(done.as_ref().err().is_none_or(Error::is_transaction_aborted), "{done:?}");
    done.is_ok()
}

fn assert_at_rest(db: &Db) {
    let engine = db.engine();
    assert!(engine.locks.is_free());
    assert_eq!(engine.points.held(), (0, None));
    assert!(engine.running.list().is_empty());
}

#[test]
fn an_abort_prevents_the_commit_or_is_refused() {
    check(1000, || {
        let db = open();
        let tx = db.begin();
        let handle = tx.abort_handle();
        let commits = thread::spawn(move || run(tx, b"key", b"mine"));
        let aborted = handle.abort();
        assert_eq!(commits.join().unwrap(), !aborted);
        assert_eq!(db.contains("key").unwrap(), !aborted);
        assert!(!handle.abort());
        assert_at_rest(&db);
    });
}

#[test]
fn an_abort_of_one_that_waits_for_a_lock_wakes_it_and_lets_others_go_on() {
    check(1000, || {
        let db = open();
        let (first, second) = (db.begin(), db.begin());
        first.get_for_update("key").unwrap();
        let handles = [first.abort_handle(), second.abort_handle()];
        let waits = thread::spawn(move || run(second, b"key", b"second"));
        let aborts = thread::spawn(move || handles.map(|handle| handle.abort()));
        let puts = {
            let db = db.clone();
            thread::spawn(move || _ = db.put("key", "plain").unwrap())
        };
        let committed = [run(first, b"key", b"first"), waits.join().unwrap()];
        assert_eq!(aborts.join().unwrap().map(|is_aborted| !is_aborted), committed);
        puts.join().unwrap();
        assert_at_rest(&db);
    });
}
