//! The cases of Hermitage with transactions that lock what they touch. A call that would wait for a
//! transaction of the same thread is refused at once, and who is refused rolls back.

use crate::{BELOW_A_POINT, Lab, READS_UNCHECKED, occurs_at, text, try_keys};
use isobath::{Isolation, LockMode, Transaction, TransactionOptions};

/// A transaction that locks; gone once a call of it was refused.
struct Locking(Option<Transaction>);

impl Locking {
    fn begin(lab: &Lab) -> Locking {
        let options = TransactionOptions::default().isolation(lab.level).locking(true);
        Locking(Some(lab.db.with(options).begin()))
    }

    /// What a call gives, unless it is refused: then the transaction is rolled back.
    fn call<T>(&mut self, call: impl FnOnce(&Transaction) -> isobath::Result<T>) -> Option<T> {
        match call(self.0.as_ref()?) {
            Ok(value) => Some(value),
            Err(error) => {
                assert!(error.is_conflict(), "{error}");
                self.0 = None;
                None
            }
        }
    }

    fn read(&mut self, key: &str) -> Option<String> {
        self.call(|tx| tx.get(key)).map(text)
    }

    fn keys(&mut self) -> Option<Vec<String>> {
        self.call(try_keys)
    }

    fn put(&mut self, key: &str, value: &str) {
        self.call(|tx| tx.put(key, value));
    }

    fn commits(self) -> bool {
        match self.0.map(Transaction::commit) {
            None => false,
            Some(Ok(_)) => true,
            Some(Err(error)) => {
                assert!(error.is_conflict(), "{error}");
                false
            }
        }
    }
}

/// True if both commit. One of them always does: nothing stands in its way.
fn both_commit(one: Locking, two: Locking) -> bool {
    let (first, second) = (one.commits(), two.commits());
    assert!(first || second);
    first && second
}

#[test]
fn g0_locked_writes_are_never_mixed() {
    occurs_at(&[], |lab| {
        let (mut one, mut two) = (Locking::begin(lab), Locking::begin(lab));
        one.put("1", "11");
        two.put("1", "12");
        one.put("2", "21");
        let first = one.commits();
        two.put("2", "22");
        let second = two.commits();
        assert!(first || second);
        let (one, two) = lab.both();
        one.as_bytes()[1] != two.as_bytes()[1]
    });
}

#[test]
fn p4_a_locked_update_is_lost_only_if_the_read_was_not_locked() {
    occurs_at(BELOW_A_POINT, |lab| {
        let (mut one, mut two) = (Locking::begin(lab), Locking::begin(lab));
        let found = (one.read("1"), two.read("1"));
        one.put("1", "11");
        let first = one.commits();
        two.put("1", "12");
        let second = two.commits();
        assert!(first || second);
        first && second && found.0 == found.1
    });
}

#[test]
fn p4_an_update_of_a_key_that_is_read_for_update_is_never_lost() {
    occurs_at(&[], |lab| {
        let (mut one, mut two) = (Locking::begin(lab), Locking::begin(lab));
        let before = two.read("2");
        let first = one.call(|tx| tx.get_for_update("1")).map(text);
        let second = two.call(|tx| tx.get_for_update("1")).map(text);
        assert_eq!((before.as_deref(), first.as_deref()), (Some("20"), Some("10")));
        assert_eq!(second, None, "it is refused, since one thread cannot wait for itself");
        one.put("1", "11");
        !one.commits() || lab.both().0 != "11" || two.commits()
    });
}

#[test]
fn g_single_locked_reads_are_of_one_moment() {
    occurs_at(BELOW_A_POINT, |lab| {
        let (mut one, mut two) = (Locking::begin(lab), Locking::begin(lab));
        let first = one.read("1");
        two.put("1", "12");
        two.put("2", "18");
        let is_changed = two.commits();
        let second = one.read("2");
        assert!(one.commits());
        is_changed && first.as_deref() == Some("10") && second.as_deref() == Some("18")
    });
}

#[test]
fn g2_item_writes_are_skewed_where_reads_are_not_locked() {
    occurs_at(READS_UNCHECKED, |lab| {
        let (mut one, mut two) = (Locking::begin(lab), Locking::begin(lab));
        for tx in [&mut one, &mut two] {
            tx.read("1");
            tx.read("2");
        }
        one.put("1", "11");
        two.put("2", "21");
        both_commit(one, two)
    });
}

#[test]
fn g2_item_a_key_that_was_absent_is_locked_too() {
    occurs_at(READS_UNCHECKED, |lab| {
        let (mut one, mut two) = (Locking::begin(lab), Locking::begin(lab));
        assert_eq!(one.call(|tx| tx.contains("3")), Some(false));
        two.read("4");
        one.put("4", "40");
        two.put("3", "30");
        both_commit(one, two)
    });
}

/// Levels at which a locking transaction locks what it gets.
const READS_LOCKED: &[Isolation] = &[Isolation::RepeatableRead, Isolation::Serializable];

/// What a read gives at this level: below a point, at Snapshot, and where it is locked.
fn expected<'a>(lab: &Lab, newest: &'a str, of_point: &'a str) -> Option<&'a str> {
    match lab.level {
        level if BELOW_A_POINT.contains(&level) => Some(newest),
        Isolation::Snapshot => Some(of_point),
        _ => None,
    }
}

#[test]
fn g1a_what_was_rolled_back_is_never_read_beside_locks() {
    occurs_at(&[], |lab| {
        let (mut one, mut two) = (Locking::begin(lab), Locking::begin(lab));
        one.put("1", "101");
        let first = two.read("1");
        assert_eq!(first.as_deref(), expected(lab, "10", "10"));
        one.0.unwrap().rollback();
        let second = two.read("1");
        assert_eq!(second, first);
        // The lock has gone with the transaction.
        let third = Locking::begin(lab).read("1");
        assert_eq!(two.commits(), first.is_some());
        [first, second, third].iter().flatten().any(|found| found != "10")
    });
}

#[test]
fn g1b_what_was_replaced_before_the_commit_is_never_read_beside_locks() {
    occurs_at(&[], |lab| {
        let (mut one, mut two) = (Locking::begin(lab), Locking::begin(lab));
        one.put("1", "101");
        let first = two.read("1");
        one.put("1", "11");
        assert!(one.commits());
        let second = two.read("1");
        assert_eq!(first.as_deref(), expected(lab, "10", "10"));
        assert_eq!(second.as_deref(), expected(lab, "11", "10"));
        assert_eq!(two.commits(), first.is_some());
        [first, second].iter().flatten().any(|found| found == "101")
    });
}

#[test]
fn g1c_two_transactions_never_read_what_the_other_has_locked() {
    occurs_at(&[], |lab| {
        let (mut one, mut two) = (Locking::begin(lab), Locking::begin(lab));
        one.put("1", "11");
        two.put("2", "22");
        let found = (one.read("2"), two.read("1"));
        // Who is refused has rolled back, and holds no lock.
        assert_eq!(found.0.as_deref(), expected(lab, "20", "20"));
        assert_eq!(found.1.as_deref(), Some("10"));
        assert_eq!(both_commit(one, two), !READS_LOCKED.contains(&lab.level));
        found.0.as_deref() == Some("22") || found.1.as_deref() == Some("11")
    });
}

#[test]
fn otv_what_was_seen_of_a_locked_commit_does_not_vanish() {
    occurs_at(&[], |lab| {
        let [mut one, mut two, mut three] = [(); 3].map(|()| Locking::begin(lab));
        one.put("1", "11");
        one.put("2", "19");
        assert!(one.commits());
        two.put("1", "12");
        let first = three.read("1");
        two.put("2", "18");
        let second = three.read("2");
        // At Snapshot the first committer of a key wins.
        assert_eq!(two.commits(), lab.level != Isolation::Snapshot);
        let (third, fourth) = (three.read("2"), three.read("1"));
        assert_eq!(three.commits(), first.is_some());
        let found = [first, second, third, fourth];
        let newest = ["11", "19", "18", "12"].into_iter().zip(["10", "20", "20", "10"]);
        !found
            .iter()
            .zip(newest)
            .all(|(found, (newest, of_point))| found.as_deref() == expected(lab, newest, of_point))
    });
}

#[test]
fn pmp_a_scan_is_of_one_moment_though_it_locks_nothing() {
    occurs_at(BELOW_A_POINT, |lab| {
        let (mut one, mut two) = (Locking::begin(lab), Locking::begin(lab));
        assert_eq!(one.keys().unwrap(), ["1", "2"]);
        two.put("3", "30");
        assert!(two.commits(), "a scan locks nothing");
        let again = one.keys().unwrap();
        assert!(one.commits());
        again.len() == 3
    });
}

#[test]
fn g2_what_was_inserted_into_a_scan_is_found_by_the_commit_at_serializable_alone() {
    let permitted = [READS_UNCHECKED, &[Isolation::RepeatableRead]].concat();
    occurs_at(&permitted, |lab| {
        let (mut one, mut two) = (Locking::begin(lab), Locking::begin(lab));
        assert_eq!((one.keys().unwrap().len(), two.keys().unwrap().len()), (2, 2));
        one.put("3", "30");
        two.put("4", "40");
        both_commit(one, two)
    });
}

#[test]
fn g2_what_was_inserted_into_a_locked_range_is_refused_at_every_level() {
    occurs_at(&[], |lab| {
        let (mut one, mut two) = (Locking::begin(lab), Locking::begin(lab));
        for tx in [&mut one, &mut two] {
            tx.call(|tx| tx.lock_range(.., LockMode::Shared)).unwrap();
            assert_eq!(tx.keys().unwrap().len(), 2);
        }
        one.put("3", "30");
        two.put("4", "40");
        both_commit(one, two)
    });
}

#[test]
fn g2_what_was_deleted_from_a_scan_is_found_by_the_commit_from_repeatable_read_on() {
    occurs_at(READS_UNCHECKED, |lab| {
        let (mut one, mut two) = (Locking::begin(lab), Locking::begin(lab));
        assert_eq!(one.keys().unwrap().len(), 2);
        two.call(|tx| tx.delete("2"));
        assert!(two.commits());
        one.put("3", "30");
        one.commits()
    });
}

#[test]
fn a_reader_sees_what_no_order_explains_where_reads_are_not_locked() {
    occurs_at(READS_UNCHECKED, |lab| {
        let mut two = Locking::begin(lab);
        assert_eq!((two.read("1"), two.read("2")), (Some("10".into()), Some("20".into())));
        let mut one = Locking::begin(lab);
        assert_eq!(one.read("2").as_deref(), Some("20"));
        one.put("2", "25");
        let is_first = one.commits();
        let mut three = Locking::begin(lab);
        let found = (three.read("1"), three.read("2"));
        assert!(three.commits());
        two.put("1", "0");
        let is_second = two.commits();
        assert!(is_first || is_second);
        is_first && is_second && found == (Some("10".into()), Some("25".into()))
    });
}
