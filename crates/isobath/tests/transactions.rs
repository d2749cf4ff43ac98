//! The cases of Hermitage, by hand, at every level: each is an interleaving that shows an anomaly
//! where a level permits it. What a level forbids must not occur; what it permits must, or the case
//! tests nothing. Here are optimistic transactions; those that lock what they touch are in
//! `transactions/locking.rs`.

mod transactions {
    mod locking;
}

use isobath::{Db, ErrorKind, Isolation, Options, Transaction, TransactionOptions};

const LEVELS: [Isolation; 5] = [
    Isolation::ReadUncommitted,
    Isolation::ReadCommitted,
    Isolation::RepeatableRead,
    Isolation::Snapshot,
    Isolation::Serializable,
];

/// A database with two keys: `1` is 10 and `2` is 20.
struct Lab {
    db: Db,
    level: Isolation,
}

impl Lab {
    fn new(level: Isolation) -> Lab {
        let db = Options::in_memory().open("lab").unwrap();
        db.put("1", "10").unwrap();
        db.put("2", "20").unwrap();
        Lab { db, level }
    }

    fn begin(&self) -> Transaction {
        self.db.with(TransactionOptions::default().isolation(self.level)).begin()
    }

    fn both(&self) -> (String, String) {
        (text(self.db.get("1").unwrap()), text(self.db.get("2").unwrap()))
    }
}

fn text(value: Option<isobath::Value>) -> String {
    value.map_or("none".to_owned(), |value| String::from_utf8(value.to_vec()).unwrap())
}

fn read(tx: &Transaction, key: &str) -> String {
    text(tx.get(key).unwrap())
}

/// True if it commits; otherwise it must be for a conflict.
fn commits(tx: Transaction) -> bool {
    match tx.commit() {
        Ok(_) => true,
        Err(error) => {
            assert!(matches!(error.kind(), ErrorKind::Conflict { .. }), "{error}");
            assert!(error.is_conflict());
            false
        }
    }
}

/// Runs a case at each level: it says whether the anomaly occurred.
#[track_caller]
fn occurs_at(permitted: &[Isolation], case: impl Fn(&Lab) -> bool) {
    for level in LEVELS {
        let occurred = case(&Lab::new(level));
        assert_eq!(occurred, permitted.contains(&level), "at {level:?}");
    }
}

const BELOW_A_POINT: &[Isolation] = &[Isolation::ReadUncommitted, Isolation::ReadCommitted];
/// Levels that do not check what was read.
const READS_UNCHECKED: &[Isolation] =
    &[Isolation::ReadUncommitted, Isolation::ReadCommitted, Isolation::Snapshot];

#[test]
fn g0_writes_of_two_transactions_are_never_mixed() {
    occurs_at(&[], |lab| {
        let (one, two) = (lab.begin(), lab.begin());
        one.put("1", "11").unwrap();
        two.put("1", "12").unwrap();
        one.put("2", "21").unwrap();
        assert!(commits(one));
        let between = lab.both();
        two.put("2", "22").unwrap();
        let is_both = commits(two);
        let after = lab.both();
        let whole = |found: &(String, String), of: (&str, &str)| (&*found.0, &*found.1) == of;
        let is_right = whole(&after, if is_both { ("12", "22") } else { ("11", "21") });
        // Blind writes conflict at Snapshot alone.
        assert_eq!(is_both, lab.level != Isolation::Snapshot);
        !(is_right && whole(&between, ("11", "21")))
    });
}

#[test]
fn g1a_what_was_rolled_back_is_never_read() {
    occurs_at(&[], |lab| {
        let (one, two) = (lab.begin(), lab.begin());
        one.put("1", "101").unwrap();
        let first = read(&two, "1");
        one.rollback();
        let second = read(&two, "1");
        assert!(commits(two));
        first != "10" || second != "10"
    });
}

#[test]
fn g1b_what_was_replaced_before_the_commit_is_never_read() {
    occurs_at(&[], |lab| {
        let (one, two) = (lab.begin(), lab.begin());
        one.put("1", "101").unwrap();
        let first = read(&two, "1");
        one.put("1", "11").unwrap();
        assert!(commits(one));
        let second = read(&two, "1");
        let expected = if BELOW_A_POINT.contains(&lab.level) { "11" } else { "10" };
        assert_eq!(second, expected);
        assert!(commits(two));
        first == "101" || second == "101"
    });
}

#[test]
fn g1c_two_transactions_never_read_what_the_other_has_not_committed() {
    occurs_at(&[], |lab| {
        let (one, two) = (lab.begin(), lab.begin());
        one.put("1", "11").unwrap();
        two.put("2", "22").unwrap();
        let found = (read(&one, "2"), read(&two, "1"));
        assert!(commits(one));
        // The other has read what the first replaced.
        assert_eq!(commits(two), READS_UNCHECKED.contains(&lab.level));
        found != ("20".to_owned(), "10".to_owned())
    });
}

#[test]
fn otv_what_was_seen_of_a_commit_does_not_vanish() {
    occurs_at(&[], |lab| {
        let (one, two, three) = (lab.begin(), lab.begin(), lab.begin());
        one.put("1", "11").unwrap();
        one.put("2", "19").unwrap();
        two.put("1", "12").unwrap();
        assert!(commits(one));
        let first = read(&three, "1");
        two.put("2", "18").unwrap();
        let _ = commits(two);
        let (second, again) = (read(&three, "2"), read(&three, "1"));
        assert!(commits(three));
        match lab.level {
            Isolation::ReadUncommitted | Isolation::ReadCommitted => {
                (&*first, &*second, &*again) != ("11", "18", "12")
            }
            _ => (&*first, &*second, &*again) != ("10", "20", "10"),
        }
    });
}

#[test]
fn p4_an_update_is_lost_where_reads_are_not_validated() {
    occurs_at(BELOW_A_POINT, |lab| {
        let (one, two) = (lab.begin(), lab.begin());
        assert_eq!((read(&one, "1"), read(&two, "1")), ("10".to_owned(), "10".to_owned()));
        one.put("1", "11").unwrap();
        two.put("1", "12").unwrap();
        assert!(commits(one));
        commits(two)
    });
}

#[test]
fn g_single_two_reads_are_of_two_moments_where_there_is_no_point() {
    occurs_at(BELOW_A_POINT, |lab| {
        let (one, two) = (lab.begin(), lab.begin());
        assert_eq!(read(&one, "1"), "10");
        two.put("1", "12").unwrap();
        two.put("2", "18").unwrap();
        assert!(commits(two));
        let found = read(&one, "2");
        // It has written nothing.
        assert!(commits(one));
        found == "18"
    });
}

#[test]
fn g_single_what_was_read_has_changed_when_it_is_written() {
    occurs_at(BELOW_A_POINT, |lab| {
        let (one, two) = (lab.begin(), lab.begin());
        assert_eq!(read(&one, "1"), "10");
        two.put("1", "12").unwrap();
        two.put("2", "18").unwrap();
        assert!(commits(two));
        one.delete("2").unwrap();
        commits(one)
    });
}

#[test]
fn g2_item_writes_are_skewed_where_reads_are_not_validated() {
    occurs_at(READS_UNCHECKED, |lab| {
        let (one, two) = (lab.begin(), lab.begin());
        for tx in [&one, &two] {
            assert_eq!((read(tx, "1"), read(tx, "2")), ("10".to_owned(), "20".to_owned()));
        }
        one.put("1", "11").unwrap();
        two.put("2", "21").unwrap();
        assert!(commits(one));
        commits(two)
    });
}

#[test]
fn g2_item_a_key_that_was_absent_counts_as_read() {
    occurs_at(READS_UNCHECKED, |lab| {
        let (one, two) = (lab.begin(), lab.begin());
        assert!(!one.contains("3").unwrap());
        assert_eq!(two.multi_get(["4", "5"]).unwrap(), [None, None]);
        one.put("4", "40").unwrap();
        two.put("3", "30").unwrap();
        assert!(commits(one));
        commits(two)
    });
}

#[test]
fn a_reader_sees_what_no_order_explains_at_snapshot() {
    // Fekete, O'Neil and O'Neil: two writers, and a reader that begins between their commits.
    occurs_at(READS_UNCHECKED, |lab| {
        let two = lab.begin();
        assert_eq!((read(&two, "1"), read(&two, "2")), ("10".to_owned(), "20".to_owned()));
        let one = lab.begin();
        assert_eq!(read(&one, "2"), "20");
        one.put("2", "25").unwrap();
        assert!(commits(one));
        let three = lab.begin();
        let found = (read(&three, "1"), read(&three, "2"));
        assert_eq!(found, ("10".to_owned(), "25".to_owned()));
        assert!(commits(three));
        two.put("1", "0").unwrap();
        commits(two)
    });
}

#[test]
fn untracked_reads_are_of_the_point_and_are_not_validated() {
    for level in LEVELS {
        let lab = Lab::new(level);
        let tx = lab.begin();
        assert_eq!(text(tx.get_untracked("1").unwrap()), "10");
        lab.db.put("1", "11").unwrap();
        let expected = if BELOW_A_POINT.contains(&level) { "11" } else { "10" };
        assert_eq!(text(tx.get_untracked("1").unwrap()), expected);
        tx.put("2", "21").unwrap();
        assert!(commits(tx), "{level:?}");
    }
}

fn keys(tx: &Transaction) -> Vec<String> {
    try_keys(tx).unwrap()
}

fn try_keys(tx: &Transaction) -> isobath::Result<Vec<String>> {
    tx.range(..).keys().map(|key| Ok(String::from_utf8(key?.to_vec()).unwrap())).collect()
}

#[test]
fn pmp_a_scan_shows_what_was_inserted_since_where_there_is_no_point() {
    occurs_at(BELOW_A_POINT, |lab| {
        let (one, two) = (lab.begin(), lab.begin());
        assert_eq!(keys(&one), ["1", "2"]);
        two.put("3", "30").unwrap();
        assert!(commits(two));
        let again = keys(&one);
        assert!(commits(one));
        again.len() == 3
    });
}

#[test]
fn g2_what_was_inserted_into_a_scan_counts_at_serializable_alone() {
    let permitted = [READS_UNCHECKED, &[Isolation::RepeatableRead]].concat();
    occurs_at(&permitted, |lab| {
        let (one, two) = (lab.begin(), lab.begin());
        assert_eq!(
            (keys(&one), keys(&two)),
            (vec!["1".into(), "2".into()], vec!["1".into(), "2".into()])
        );
        one.put("3", "30").unwrap();
        two.put("4", "40").unwrap();
        assert!(commits(one));
        commits(two)
    });
}

#[test]
fn g2_what_was_deleted_from_a_scan_counts_from_repeatable_read_on() {
    occurs_at(READS_UNCHECKED, |lab| {
        let (one, two) = (lab.begin(), lab.begin());
        assert_eq!(one.range("1"..).count(), 2);
        two.delete("2").unwrap();
        assert!(commits(two));
        one.put("3", "30").unwrap();
        commits(one)
    });
}

#[test]
fn a_reader_sees_what_no_order_explains_of_scans_below_serializable() {
    occurs_at(&[READS_UNCHECKED, &[Isolation::RepeatableRead]].concat(), |lab| {
        let two = lab.begin();
        assert_eq!(keys(&two), ["1", "2"]);
        lab.db.put("3", "30").unwrap();
        // It comes behind the insert, and before the write that rests on its absence.
        let three = lab.begin();
        assert_eq!((read(&three, "1"), read(&three, "3")), ("10".to_owned(), "30".to_owned()));
        assert!(commits(three));
        two.put("1", "no key but two").unwrap();
        commits(two)
    });
}

#[test]
fn a_scan_that_stopped_early_relies_on_what_it_passed_and_no_more() {
    for (key, is_passed) in [("0", true), ("1", true), ("10", false), ("2", false), ("3", false)] {
        let lab = Lab::new(Isolation::Serializable);
        let tx = lab.begin();
        assert_eq!(tx.range(..).next().unwrap().unwrap().0, "1");
        lab.db.put(key, "changed").unwrap();
        tx.put("9", "90").unwrap();
        assert_eq!(commits(tx), !is_passed, "{key}");
    }
}
