//! Steps in transactions, at each level: of two that take or replace one value, one is refused.

use super::*;
use crate::lock::LockMode;
use std::time::Duration;

const LEVELS: [Isolation; 5] = [
    Isolation::ReadUncommitted,
    Isolation::ReadCommitted,
    Isolation::RepeatableRead,
    Isolation::Snapshot,
    Isolation::Serializable,
];

/// A step on `key`, which has the value `0`; true if it has written.
type Step = fn(&Transaction) -> Result<bool>;

const STEPS: [Step; 5] = [
    |tx| tx.put_if("key", Some(b"0"), "1"),
    |tx| Ok(tx.fetch_update("key", |old| old.map(|_| "1"))?.is_some()),
    |tx| tx.set_expiry("key", Duration::from_secs(3600)),
    |tx| Ok(tx.pop_first(..)?.is_some()),
    |tx| Ok(tx.pop_last("k".."l")?.is_some()),
];

#[test]
fn of_two_transactions_that_do_a_step_on_one_value_one_is_refused_at_every_level() {
    for (level, at) in LEVELS.iter().flat_map(|level| (0..STEPS.len()).map(|at| (*level, at))) {
        let db = open();
        db.put("key", "0").unwrap();
        let brief = TransactionOptions::new().isolation(level).lock_timeout(Duration::ZERO);
        let (one, two) = (db.with(brief).begin(), db.with(brief).begin());
        let run = STEPS[at];
        assert!(run(&one).unwrap(), "{level:?} {at}");
        let (told, two) = std::thread::spawn(move || (run(&two), two)).join().unwrap();
        one.commit().unwrap();
        let told = told.and_then(|is_done| two.commit().map(|_| is_done));
        assert!(told.is_err_and(|error| error.is_conflict()), "{level:?} {at}");
        assert_at_rest(db.engine());
    }
}

#[test]
fn a_step_that_waited_for_another_finds_what_that_has_left() {
    for level in [Isolation::ReadUncommitted, Isolation::ReadCommitted] {
        let db = open();
        (0..40u32).for_each(|n| _ = db.put(n.to_be_bytes(), "").unwrap());
        db.put("sum", "0").unwrap();
        let options = TransactionOptions::new().isolation(level);
        let number = |text: &[u8]| std::str::from_utf8(text).unwrap().parse::<u32>().unwrap();
        let work = || {
            (0..10)
                .map(|_| {
                    let tx = db.with(options).begin();
                    let (key, _) = tx.pop_first(..[0, 0, 0, 200]).unwrap().unwrap();
                    let more = |old: Option<&[u8]>| old.map(|old| (number(old) + 1).to_string());
                    tx.fetch_update("sum", more).unwrap();
                    tx.commit().unwrap();
                    key.to_vec()
                })
                .collect::<Vec<_>>()
        };
        let mut taken: Vec<Vec<u8>> = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..4).map(|_| scope.spawn(work)).collect();
            workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
        });
        taken.sort();
        let all: Vec<_> = (0..40u32).map(|n| n.to_be_bytes().to_vec()).collect();
        assert!(taken == all, "{level:?}: a key was taken twice");
        assert_eq!(db.get("sum").unwrap().unwrap(), "40");
        assert_at_rest(db.engine());
    }
}

#[test]
fn a_step_that_checks_nothing_locks_no_more_than_it_relies_on() {
    let db = open();
    db.put("b", "0").unwrap();
    let options = TransactionOptions::new().isolation(Isolation::ReadCommitted);
    let brief = db.with(options.lock_timeout(Duration::ZERO));
    let (one, two) = (brief.begin(), brief.begin());
    assert!(!one.put_if("b", Some(b"other"), "1").unwrap());
    assert!(one.pop_first("d".."f").unwrap().is_none());
    assert!(one.pop_first("f".."d").unwrap().is_none(), "an empty range locks nothing");
    assert_eq!(one.get("c").unwrap(), None);
    std::thread::scope(|scope| {
        let others = || {
            let refused = |told: Result<()>| told.unwrap_err().name();
            assert_eq!(refused(brief.begin().put_if("b", None, "").map(drop)), "LOCK_TIMEOUT");
            assert_eq!(refused(brief.begin().pop_last("e"..).map(drop)), "LOCK_TIMEOUT");
            two.put("c", "").unwrap();
            two.lock_range("f".., LockMode::Exclusive).unwrap();
            two.commit().unwrap();
        };
        scope.spawn(others).join().unwrap();
    });
    one.commit().unwrap();
    assert_at_rest(db.engine());
}
