//! Transactions in doubt: what the state knows of them, and how many it takes.

use super::*;
use crate::env::fixtures::thread_time;

fn prepared(lsn: Lsn, xid: &[u8], file: u64) -> Change {
    Change::AddPrepared { lsn, xid: xid.to_vec(), file, len: 300 }
}

#[test]
fn a_transaction_in_doubt_has_its_name_alone_until_it_is_decided() {
    let names = |state: &State| -> Vec<(Lsn, Vec<u8>)> {
        state.prepared().iter().map(|(lsn, one)| (*lsn, one.xid.to_vec())).collect()
    };
    let removed = |lsn| Change::RemovePrepared { lsn };
    let mut state = sample();
    apply(&mut state, vec![Change::ReplayFrom { lsn: 500 }]).unwrap();
    apply(&mut state, vec![prepared(8, b"x", 1), prepared(16, b"y", 2)]).unwrap();
    let next_file = state.next_file();
    for refused in [
        vec![prepared(24, b"z", next_file)],
        vec![prepared(24, b"x", 3)],
        vec![prepared(24, b"z", 3), prepared(32, b"z", 4)],
        vec![prepared(8, b"z", 3)],
        vec![removed(8), prepared(24, b"x", 3), prepared(32, b"x", 4)],
        vec![removed(24)],
        vec![removed(8), removed(8)],
        vec![prepared(24, b"", 3)],
    ] {
        let told = apply(&mut state, refused.clone());
        assert!(told.is_err_and(|error| error.is_damage()), "{refused:?}");
        assert_eq!(names(&state), [(8, b"x".to_vec()), (16, b"y".to_vec())]);
    }
    // The name is free in the same edit, and in a later one.
    apply(&mut state, vec![removed(8), prepared(24, b"x", 3)]).unwrap();
    assert_eq!(names(&state), [(16, b"y".to_vec()), (24, b"x".to_vec())]);
    let there_and_back = vec![prepared(32, b"z", 4), removed(32), prepared(40, b"z", 5)];
    apply(&mut state, there_and_back).unwrap();
    assert!(apply(&mut state, vec![prepared(48, b"z", 6)]).is_err());
    apply(&mut state, vec![removed(40), removed(24), removed(16)]).unwrap();
    assert_eq!(names(&state), []);
    apply(
        &mut state,
        [b"x", b"y", b"z"].map(|xid| prepared(48 + u64::from(xid[0]), xid, 7)).into(),
    )
    .unwrap();
    assert_eq!(names(&state).len(), 3);
    let again = State::of(&state.snapshot()).unwrap();
    assert_eq!(names(&again), names(&state));
}

/// Comparing the name of each with all others takes minutes.
#[test]
fn very_many_transactions_in_doubt_are_taken_one_by_one() {
    let count = 100_000;
    let xid = |nth: u64| format!("{nth:08}").into_bytes();
    let mut changes = first_edit().changes;
    let end = 8 * (count + 1);
    changes.push(Change::LsnCeiling { lsn: end });
    changes.push(Change::ReplayFrom { lsn: end });
    changes.push(Change::NextFile { number: count + 1 });
    changes.extend((1..=count).map(|nth| prepared(8 * nth, &xid(nth), nth)));
    let began = thread_time();
    let state = State::of(&Edit::new(changes)).unwrap();
    let took = thread_time() - began;
    assert!(took.as_secs() < 20, "{took:?}");
    assert_eq!(state.prepared().len() as u64, count);
}

/// As a manifest has it: no job says which files there are.
#[test]
fn a_transaction_in_doubt_whose_file_no_number_was_given_to_is_refused() {
    let of = |file| {
        let mut changes = first_edit().changes;
        changes.push(Change::LsnCeiling { lsn: 1000 });
        changes.push(Change::ReplayFrom { lsn: 500 });
        changes.push(Change::NextFile { number: 3 });
        changes.push(prepared(8, b"x", file));
        State::of(&Edit::new(changes))
    };
    assert_eq!(of(2).unwrap().prepared().len(), 1);
    assert!(of(3).unwrap_err().to_string().contains("next file"));
}
