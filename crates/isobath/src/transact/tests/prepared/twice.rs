//! A second decider, and a list of what is in doubt, beside a decision that is not durable yet.

use super::*;
use std::sync::mpsc::channel;

/// Stores a decision as a decider does before its record is published, and holds on.
fn decide_halfway(db: &Db, between: impl FnOnce()) {
    let entry = db.engine().prepared.find(&xid("x")).unwrap();
    let mut right = entry.hold();
    entry.decide(db.engine().log.tail(), true);
    between();
    let held = right.take().unwrap();
    db.engine().locks.release_all(&held.owner);
    drop(right);
    db.engine().prepared.close(&entry);
    db.engine().conflicts.gate.let_go(held.gate.unwrap());
}

#[test]
fn what_is_decided_and_not_durable_yet_is_listed_as_in_doubt() {
    let db = open(&MemoryFs::new());
    drop(prepare(&db, "x", &["key"]));
    decide_halfway(&db, || assert_eq!(names(&db), ["x"]));
    assert!(names(&db).is_empty());
}

#[test]
fn a_second_decider_has_its_answer_once_the_first_decision_is_final() {
    for is_commit in [false, true] {
        let db = open(&MemoryFs::new());
        drop(prepare(&db, "x", &["key"]));
        let (answers, is_answered) = channel();
        decide_halfway(&db, || {
            let second = db.clone();
            std::thread::spawn(move || {
                let told = match is_commit {
                    true => second.commit_prepared(&xid("x")).map(drop),
                    false => second.rollback_prepared(&xid("x")),
                };
                answers.send(told.unwrap_err().name()).unwrap();
            });
            let early = is_answered.recv_timeout(Duration::from_millis(50));
            assert!(early.is_err(), "{early:?}");
        });
        let answer = is_answered.recv_timeout(Duration::from_secs(120)).unwrap();
        assert_eq!(answer, "UNKNOWN_TRANSACTION");
    }
}
