//! Scans of transactions against a map, and what they pass against sets of keys: in all short
//! courses of a range, and in random courses of a cursor.

use crate::env::Env;
use crate::error::{ConflictKind, ErrorKind};
use crate::options::{Isolation, Options, TransactionOptions};
use crate::vfs::{Fault, FileOp, MemoryFs};
use crate::{Db, Prefix, Readable, Result, Transaction, Value};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

type Model = BTreeMap<u8, Vec<u8>>;

fn open() -> Db {
    Options::in_memory().open("/db").unwrap()
}

fn begin(db: &Db, isolation: Isolation) -> Transaction {
    db.with(TransactionOptions::new().isolation(isolation)).begin()
}

fn item((key, value): (Value, Value)) -> (u8, Vec<u8>) {
    (key[0], value.to_vec())
}

/// Values of several lengths: in the value itself, in a chunk, in a chunk of its own.
fn value(key: u8, round: u8) -> Vec<u8> {
    vec![key ^ round; [3, 200, 20_000][usize::from(key) % 3]]
}

/// Keys in a level, in a run, and in memory; deletes above them.
fn filled(db: &Db) -> Model {
    let mut model = Model::new();
    for (round, keys) in
        [[2, 6, 10, 14, 18], [4, 6, 8, 14, 20], [1, 8, 12, 18, 23]].into_iter().enumerate()
    {
        for key in keys {
            db.put([key], value(key, round as u8)).unwrap();
            model.insert(key, value(key, round as u8));
        }
        for key in [10, 4].into_iter().take(round) {
            db.delete([key]).unwrap();
            model.remove(&key);
        }
        match round {
            0 => db.compact().unwrap(),
            1 => db.flush().unwrap(),
            _ => {}
        }
    }
    model
}

#[derive(Clone, Debug)]
enum Move {
    First,
    Last,
    Seek(u8),
    SeekForPrev(u8),
    Next,
    Prev,
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let one = prop_oneof![
        1 => Just(Move::First),
        1 => Just(Move::Last),
        2 => (0u8..26).prop_map(Move::Seek),
        2 => (0u8..26).prop_map(Move::SeekForPrev),
        5 => Just(Move::Next),
        5 => Just(Move::Prev),
    ];
    proptest::collection::vec(one, 0..14)
}

fn bound() -> impl Strategy<Value = Bound<[u8; 1]>> {
    let key = || (0u8..26).prop_map(|key| [key]);
    prop_oneof![
        key().prop_map(Bound::Included),
        key().prop_map(Bound::Excluded),
        Just(Bound::Unbounded)
    ]
}

fn holds(bounds: &(Bound<[u8; 1]>, Bound<[u8; 1]>), key: u8) -> bool {
    std::ops::RangeBounds::contains(bounds, &[key])
}

/// Where a cursor stands, by the rules of its page, and which keys its moves have passed.
struct Course {
    /// The keys that it can show.
    keys: Vec<u8>,
    /// All keys within its bounds.
    within: Vec<u8>,
    at: At,
    passed: BTreeSet<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum At {
    Fresh,
    Before,
    Key(u8),
    Behind,
}

impl Course {
    fn pass(&mut self, from: u8, to: u8) {
        self.passed.extend(self.within.iter().filter(|key| (from..=to).contains(key)));
    }

    /// To the first key from `from` on.
    fn forward(&mut self, from: u8) {
        let found = self.keys.iter().copied().find(|key| *key >= from);
        self.pass(from, found.unwrap_or(u8::MAX));
        self.at = found.map_or(At::Behind, At::Key);
    }

    fn backward(&mut self, from: u8) {
        let found = self.keys.iter().copied().rev().find(|key| *key <= from);
        self.pass(found.unwrap_or(0), from);
        self.at = found.map_or(At::Before, At::Key);
    }

    fn go(&mut self, step: &Move) {
        match (step, self.at) {
            (Move::First, _) | (Move::Next, At::Fresh | At::Before) => self.forward(0),
            (Move::Last, _) | (Move::Prev, At::Fresh | At::Behind) => self.backward(u8::MAX),
            (Move::Seek(key), _) => self.forward(*key),
            (Move::SeekForPrev(key), _) => self.backward(*key),
            (Move::Next, At::Key(key)) => self.forward(key + 1),
            (Move::Prev, At::Key(0)) => self.at = At::Before,
            (Move::Prev, At::Key(key)) => self.backward(key - 1),
            (Move::Next, At::Behind) | (Move::Prev, At::Before) => {}
        }
    }
}

fn run(cursor: &mut crate::Cursor<'_>, step: &Move) -> Option<(u8, Vec<u8>)> {
    let entry = match step {
        Move::First => cursor.first(),
        Move::Last => cursor.last(),
        Move::Seek(key) => cursor.seek([*key]),
        Move::SeekForPrev(key) => cursor.seek_for_prev([*key]),
        Move::Next => cursor.next(),
        Move::Prev => cursor.prev(),
    };
    let entry = entry.unwrap()?;
    assert_eq!(entry.pin().unwrap(), entry.value().unwrap());
    Some((entry.key()[0], entry.value().unwrap().to_vec()))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn iterators_of_a_transaction_show_its_writes_over_the_state_at_its_point(
        own in proptest::collection::vec((0u8..26, any::<bool>()), 0..12),
        later in proptest::collection::vec((0u8..26, any::<bool>()), 0..6),
        bounds in (bound(), bound()),
        pulls in proptest::collection::vec(any::<bool>(), 0..30),
        moves in moves(),
    ) {
        let db = open();
        let mut model = filled(&db);
        let tx = db.begin();
        for (key, is_put) in &later {
            if *is_put { db.put([*key], "later").unwrap() } else { db.delete([*key]).unwrap() };
        }
        for (key, is_put) in &own {
            match is_put {
                true => {
                    tx.put([*key], value(*key, 9)).unwrap();
                    model.insert(*key, value(*key, 9));
                }
                false => {
                    tx.delete([*key]).unwrap();
                    model.remove(key);
                }
            }
        }
        let shown: Vec<(u8, Vec<u8>)> =
            model.into_iter().filter(|(key, _)| holds(&bounds, *key)).collect();
        prop_assert_eq!(tx.count(bounds).unwrap(), shown.len() as u64);
        let mut left = &shown[..];
        let mut range = tx.range(bounds);
        for is_front in pulls {
            let pulled = if is_front { range.next() } else { range.next_back() };
            let taken = if is_front { left.split_first() } else { left.split_last() };
            prop_assert_eq!(pulled.map(|pulled| item(pulled.unwrap())), taken.map(|(item, _)| item.clone()));
            left = taken.map_or(left, |(_, rest)| rest);
            // What is written now belongs to later iterators only.
            tx.put([0], "now").unwrap();
        }
        drop(range);
        tx.rollback();

        let tx = db.begin();
        let keys = |tx: &Transaction| tx.range(bounds).keys().map(|key| key.unwrap()[0]).collect::<Vec<_>>();
        let within = (0..26).filter(|key| holds(&bounds, *key)).collect();
        let keys = keys(&tx);
        let mut course = Course { keys, within, at: At::Fresh, passed: BTreeSet::new() };
        let mut cursor = tx.cursor(bounds).unwrap();
        for step in &moves {
            course.go(step);
            let found = run(&mut cursor, step);
            let expected = match course.at { At::Key(key) => Some(key), _ => None };
            prop_assert_eq!(found.map(|(key, _)| key), expected, "{:?}", step);
        }
    }

    #[test]
    fn a_cursor_conflicts_with_writes_where_it_passed_and_nowhere_else(
        bounds in (bound(), bound()),
        moves in moves(),
        writes in proptest::collection::vec((0u8..26, any::<bool>()), 26),
        goes_into_tables in any::<bool>(),
    ) {
        let db = open();
        let elsewhere = db.family("elsewhere").unwrap();
        filled(&db);
        let within: Vec<u8> = (0..26).filter(|key| holds(&bounds, *key)).collect();
        for (key, is_put) in writes {
            let keys: Vec<u8> = db.range(bounds).keys().map(|key| key.unwrap()[0]).collect();
            // To delete a key that has no value changes nothing, and gaps may tell so.
            let is_change = is_put || keys.contains(&key);
            let (within, passed) = (within.clone(), BTreeSet::new());
            let mut course = Course { keys, within, at: At::Fresh, passed };
            let tx = db.begin();
            let mut cursor = tx.cursor(bounds).unwrap();
            for step in &moves {
                course.go(step);
                run(&mut cursor, step);
            }
            drop(cursor);
            if is_put { db.put([key], "other").unwrap() } else { db.delete([key]).unwrap() };
            if goes_into_tables {
                db.flush().unwrap();
            }
            tx.of(&elsewhere).put("own", "x").unwrap();
            let told = tx.commit();
            let is_passed = course.passed.contains(&key);
            if is_change || !is_passed {
                prop_assert_eq!(told.is_err(), is_passed, "{} after {:?}", key, moves);
            }
            if let Err(error) = told {
                let ErrorKind::Conflict { key: named, kind, .. } = error.kind() else {
                    panic!("{error}")
                };
                prop_assert_eq!((&named[..], *kind), (&[key][..], ConflictKind::Range));
            }
        }
    }
}

/// What a range has passed after so many pulls from its front and its back.
fn passed_by(keys: &[u8], within: &[u8], front: usize, back: usize) -> BTreeSet<u8> {
    if front + back > keys.len() {
        return within.iter().copied().collect();
    }
    let low = front.checked_sub(1).map(|at| keys[at]);
    let high = back.checked_sub(1).map(|at| keys[keys.len() - 1 - at]);
    let is_passed =
        |key: &&u8| low.is_some_and(|low| **key <= low) || high.is_some_and(|high| **key >= high);
    within.iter().filter(is_passed).copied().collect()
}

#[test]
fn a_range_conflicts_with_writes_where_it_passed_and_nowhere_else() {
    let db = open();
    let base = [2u8, 4, 6, 8];
    base.iter().for_each(|key| _ = db.put([*key], "base").unwrap());
    for (lower, upper) in [(0u8, 10u8), (3, 9), (4, 8), (5, 6)] {
        let within: Vec<u8> = (lower..upper).collect();
        let keys: Vec<u8> = base.into_iter().filter(|key| within.contains(key)).collect();
        for (front, back) in (0..6).flat_map(|front| (0..6).map(move |back| (front, back))) {
            if front + back > keys.len() + 1 {
                continue;
            }
            let passed = passed_by(&keys, &within, front, back);
            for key in 0..11u8 {
                for isolation in
                    [Isolation::Serializable, Isolation::RepeatableRead, Isolation::Snapshot]
                {
                    let tx = begin(&db, isolation);
                    let mut range = tx.range([lower]..[upper]);
                    let mut returned = BTreeSet::new();
                    for _ in 0..front {
                        returned.extend(range.next().map(|pulled| item(pulled.unwrap()).0));
                    }
                    for _ in 0..back {
                        returned.extend(range.next_back().map(|pulled| item(pulled.unwrap()).0));
                    }
                    drop(range);
                    let is_base = base.contains(&key);
                    if is_base {
                        db.delete([key]).unwrap()
                    } else {
                        db.put([key], "new").unwrap()
                    };
                    tx.put([100], "own").unwrap();
                    let expected = match isolation {
                        Isolation::Serializable => passed.contains(&key),
                        Isolation::RepeatableRead => returned.contains(&key),
                        _ => false,
                    };
                    let told = tx.commit();
                    assert_eq!(
                        told.is_err(),
                        expected,
                        "{key} in {lower}..{upper}, {front} and {back}, {isolation:?}"
                    );
                    if is_base {
                        db.put([key], "base").unwrap()
                    } else {
                        db.delete([key]).unwrap()
                    };
                }
            }
        }
    }
}

#[test]
fn one_key_asked_for_by_order_is_relied_on_with_what_lies_before_it() {
    let db = open();
    db.put("d", "1").unwrap();
    db.put("m", "2").unwrap();
    let conflicts = |read: fn(&Transaction), key: &str| {
        let tx = db.begin();
        read(&tx);
        db.put(key, "x").unwrap();
        tx.put("own", "x").unwrap();
        let told = tx.commit();
        db.delete("own").unwrap();
        if !["d", "m"].contains(&key) {
            db.delete(key).unwrap();
        }
        told.is_err()
    };
    let first: fn(&Transaction) = |tx| assert_eq!(tx.first().unwrap().unwrap().0, "d");
    let last: fn(&Transaction) = |tx| assert_eq!(tx.last().unwrap().unwrap().0, "m");
    assert!(conflicts(first, "a") && conflicts(first, "d") && !conflicts(first, "e"));
    assert!(conflicts(last, "z") && conflicts(last, "m") && !conflicts(last, "l"));
    let none: fn(&Transaction) = |tx| assert!(tx.prefix("e").next().is_none());
    assert!(conflicts(none, "ex") && conflicts(none, "e") && !conflicts(none, "f"));
    let count: fn(&Transaction) = |tx| assert_eq!(tx.count("e".."m").unwrap(), 0);
    assert!(conflicts(count, "e") && conflicts(count, "l") && !conflicts(count, "m"));
}

#[test]
fn a_range_that_was_leaked_or_never_pulled_counts_whole_or_not_at_all() {
    let db = open();
    db.put("a", "1").unwrap();
    for leaks in [true, false] {
        let tx = db.begin();
        let range = tx.range("a".."k");
        match leaks {
            true => std::mem::forget(range),
            false => drop(range),
        }
        db.put("b", "2").unwrap();
        tx.put("z", "own").unwrap();
        assert_eq!(tx.commit().is_err(), leaks);
    }
}

#[test]
fn a_scan_that_met_an_error_counts_whole() {
    let fs = MemoryFs::new();
    let open = || {
        let env = Env { fs: Arc::new(fs.clone()), ..Env::system() };
        Options::new().env(env).open("/db").unwrap()
    };
    let db = open();
    (0..20u8).for_each(|key| _ = db.put([key], vec![key; 3000]).unwrap());
    db.compact().unwrap();
    db.close().unwrap();
    let walks: [fn(&Transaction) -> bool; 4] = [
        |tx| tx.iter().next().unwrap().is_err(),
        |tx| tx.cursor(..).and_then(|mut cursor| cursor.last().map(|_| ())).is_err(),
        |tx| tx.count(..).is_err(),
        |tx| tx.pop_first(..).is_err(),
    ];
    for walk in walks {
        let db = open();
        let tx = db.begin();
        fs.inject(Fault::on(FileOp::Read).forever());
        assert!(walk(&tx));
        fs.clear_faults();
        db.put("z", "inserted").unwrap();
        tx.put("own", "x").unwrap();
        assert!(tx.commit().unwrap_err().is_conflict());
        db.delete("z").unwrap();
        db.close().unwrap();
    }
}

#[test]
fn a_range_of_a_transaction_can_be_pulled_on_another_thread() {
    let db = open();
    (0..50u8).for_each(|key| _ = db.put([key], "value").unwrap());
    let tx = db.begin();
    let range = tx.range([10u8]..[20u8]);
    let pulled = std::thread::scope(|scope| scope.spawn(|| range.count()).join().unwrap());
    assert_eq!(pulled, 10);
    db.put([15], "other").unwrap();
    tx.put("own", "x").unwrap();
    assert!(tx.commit().unwrap_err().is_conflict());
}

#[test]
fn what_is_readable_is_readable_in_a_transaction_too() {
    fn sum(from: &impl crate::Readable, family: &crate::Family) -> Result<usize> {
        let own: usize = from.iter().map(|item| item.unwrap().1.len()).sum();
        let of = from.of(family);
        Ok(own + of.iter().map(|item| item.unwrap().1.len()).sum::<usize>())
    }
    let db = open();
    let family = db.family("f").unwrap();
    db.put("a", "12").unwrap();
    family.put("b", "345").unwrap();
    let tx = db.begin();
    tx.of(&family).put("c", "6").unwrap();
    assert_eq!(sum(&db, &family).unwrap(), 5);
    assert_eq!(sum(&tx, &family).unwrap(), 6);
    assert_eq!(sum(&tx.of(&family), &family).unwrap(), 8);
    assert_eq!(tx.of(&family).prefix("c").count(), 1);
    assert!(tx.range(Prefix("c")).next().is_none());
}
