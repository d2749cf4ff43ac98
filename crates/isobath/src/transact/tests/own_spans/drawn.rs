//! Drawn programs of one transaction with range deletes, beside a map: every read after each step,
//! and what the commit leaves behind.

use super::super::assert_at_rest;
use super::{AFTERWARDS, Key, LEVELS, Map, open_on, pair, rows};
use crate::Transaction;
use crate::options::TransactionOptions;
use crate::vfs::MemoryFs;
use proptest::prelude::*;
use std::ops::{Bound, RangeBounds};

type Ends = (Bound<Key>, Bound<Key>);

#[derive(Clone, Debug)]
enum Step {
    Put(Key),
    Delete(Key),
    DeleteRange(Ends),
    DeletePrefix(Key),
    PopFirst(Ends),
    PopLast(Ends),
    PutIf(Key),
    FetchUpdate(Key),
    Savepoint(u8),
    RollbackTo(u8),
    Release(u8),
}

fn key() -> impl Strategy<Value = Key> {
    proptest::collection::vec(0u8..3, 0..3)
}

fn ends() -> impl Strategy<Value = Ends> {
    let bound = || {
        prop_oneof![
            3 => key().prop_map(Bound::Included),
            3 => key().prop_map(Bound::Excluded),
            1 => Just(Bound::Unbounded),
        ]
    };
    (bound(), bound()).prop_filter("the range is turned round", |ends| !is_reversed(ends))
}

fn is_reversed((lower, upper): &Ends) -> bool {
    use Bound::{Excluded, Included, Unbounded};
    match (lower, upper) {
        (Unbounded, _) | (_, Unbounded) => false,
        (Excluded(lower), Excluded(upper)) => lower >= upper,
        (Included(lower) | Excluded(lower), Included(upper) | Excluded(upper)) => lower > upper,
    }
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => key().prop_map(Step::Put),
        2 => key().prop_map(Step::Delete),
        5 => ends().prop_map(Step::DeleteRange),
        1 => key().prop_map(Step::DeletePrefix),
        1 => ends().prop_map(Step::PopFirst),
        1 => ends().prop_map(Step::PopLast),
        1 => key().prop_map(Step::PutIf),
        1 => key().prop_map(Step::FetchUpdate),
        2 => (0u8..2).prop_map(Step::Savepoint),
        2 => (0u8..2).prop_map(Step::RollbackTo),
        1 => (0u8..2).prop_map(Step::Release),
    ]
}

/// A transaction beside a map and copies of it.
struct Run<'a> {
    tx: &'a Transaction,
    map: Map,
    savepoints: Vec<(String, Map)>,
}

impl Run<'_> {
    fn step(&mut self, step: &Step, nth: usize) {
        let (tx, value) = (self.tx, format!("mine {nth}").into_bytes());
        match step {
            Step::Put(key) => {
                tx.put(key, &value).unwrap();
                self.map.insert(key.clone(), value);
            }
            Step::Delete(key) => {
                tx.delete(key).unwrap();
                self.map.remove(key);
            }
            Step::DeleteRange(ends) => {
                tx.delete_range(ends.clone()).unwrap();
                self.map.retain(|key, _| !ends.contains(key));
            }
            Step::DeletePrefix(prefix) => {
                tx.delete_prefix(prefix).unwrap();
                self.map.retain(|key, _| !key.starts_with(prefix));
            }
            Step::PopFirst(ends) => {
                let first = self.map.keys().find(|key| ends.contains(*key)).cloned();
                let expected = first.and_then(|key| self.map.remove_entry(&key));
                assert_eq!(tx.pop_first(ends.clone()).unwrap().map(pair), expected);
            }
            Step::PopLast(ends) => {
                let last = self.map.keys().rev().find(|key| ends.contains(*key)).cloned();
                let expected = last.and_then(|key| self.map.remove_entry(&key));
                assert_eq!(tx.pop_last(ends.clone()).unwrap().map(pair), expected);
            }
            Step::PutIf(key) => {
                assert_eq!(tx.put_if(key, None, &value).unwrap(), !self.map.contains_key(key));
                self.map.entry(key.clone()).or_insert(value);
            }
            Step::FetchUpdate(key) => {
                let old = tx.fetch_update(key, |_| Some(&value)).unwrap();
                let expected = self.map.insert(key.clone(), value.clone());
                assert_eq!(old.map(|old| old.to_vec()), expected);
            }
            Step::Savepoint(name) => {
                tx.savepoint(&name.to_string()).unwrap();
                self.savepoints.push((name.to_string(), self.map.clone()));
            }
            Step::RollbackTo(name) => {
                let at = self.savepoints.iter().rposition(|(other, _)| *other == name.to_string());
                assert_eq!(tx.rollback_to(&name.to_string()).is_ok(), at.is_some());
                if let Some(at) = at {
                    self.savepoints.truncate(at + 1);
                    self.map = self.savepoints[at].1.clone();
                }
            }
            Step::Release(name) => {
                let at = self.savepoints.iter().rposition(|(other, _)| *other == name.to_string());
                assert_eq!(tx.release(&name.to_string()).is_ok(), at.is_some());
                self.savepoints.truncate(at.unwrap_or(self.savepoints.len()));
            }
        }
    }

    /// Every read, against the map.
    fn check(&self) {
        let (tx, map) = (self.tx, &self.map);
        let all: Vec<_> = map.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
        let keys = every_key();
        let values = tx.multi_get(&keys).unwrap();
        for (key, value) in keys.iter().zip(values) {
            let expected = map.get(key);
            assert_eq!(value.as_deref(), expected.map(|value| &value[..]), "{key:?}");
            assert_eq!(tx.get(key).unwrap().as_deref(), expected.map(|value| &value[..]));
            assert_eq!(tx.get_untracked(key).unwrap().is_some(), expected.is_some());
            assert_eq!(tx.contains(key).unwrap(), expected.is_some());
        }
        assert_eq!(tx.first().unwrap().map(pair).as_ref(), all.first());
        assert_eq!(tx.last().unwrap().map(pair).as_ref(), all.last());
        assert_eq!(tx.count(..).unwrap(), all.len() as u64);
        let forward: Vec<_> = tx.iter().map(|item| pair(item.unwrap())).collect();
        assert_eq!(forward, all);
        let mut backward: Vec<_> = tx.iter().rev().map(|item| pair(item.unwrap())).collect();
        backward.reverse();
        assert_eq!(backward, all);
        let only: Vec<_> = tx.iter().keys().map(|key| key.unwrap().to_vec()).collect();
        assert_eq!(only, map.keys().cloned().collect::<Vec<_>>());
        for letter in 0..3u8 {
            let within = tx.prefix([letter]).map(|item| pair(item.unwrap()).0);
            let expected = map.keys().filter(|key| key.starts_with(&[letter])).cloned();
            assert_eq!(within.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
            let count = map.keys().filter(|key| key[..] >= [letter][..]).count() as u64;
            assert_eq!(tx.count([letter]..).unwrap(), count);
        }
        self.check_cursor(&keys);
    }

    fn check_cursor(&self, keys: &[Key]) {
        let mut cursor = self.tx.cursor(..).unwrap();
        for key in keys {
            let mut above = self.map.range(key.clone()..).map(|(key, _)| key);
            let found = cursor.seek(key).unwrap().map(|entry| entry.key().to_vec());
            assert_eq!(found.as_ref(), above.next());
            if found.is_some() {
                let next = cursor.next().unwrap().map(|entry| entry.key().to_vec());
                assert_eq!(next.as_ref(), above.next());
            }
            let mut below = self.map.range(..=key.clone()).rev().map(|(key, _)| key);
            let found = cursor.seek_for_prev(key).unwrap().map(|entry| entry.key().to_vec());
            assert_eq!(found.as_ref(), below.next());
            if found.is_some() {
                let before = cursor.prev().unwrap().map(|entry| entry.key().to_vec());
                assert_eq!(before.as_ref(), below.next());
            }
        }
    }
}

fn every_key() -> Vec<Key> {
    let mut keys = vec![Vec::new()];
    for first in 0..3u8 {
        keys.push(vec![first]);
        keys.extend((0..3u8).map(|second| vec![first, second]));
    }
    keys
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn a_transaction_with_range_deletes_agrees_with_a_map_in_all_reads_and_leaves_the_same_behind(
        before in proptest::collection::vec((key(), any::<bool>()), 0..12),
        level in 0..LEVELS.len(),
        locking in any::<bool>(),
        steps in proptest::collection::vec(step(), 1..25),
    ) {
        let fs = MemoryFs::new();
        let db = open_on(&fs);
        for (nth, (key, flushes)) in before.iter().enumerate() {
            db.put(key, format!("theirs {nth}")).unwrap();
            if *flushes {
                db.flush().unwrap();
            }
        }
        let options = TransactionOptions::new().isolation(LEVELS[level]).locking(locking);
        let tx = db.with(options).begin();
        let mut run = Run { tx: &tx, map: rows(&db), savepoints: Vec::new() };
        for (nth, step) in steps.iter().enumerate() {
            run.step(step, nth);
            run.check();
        }
        let map = run.map;
        tx.commit().unwrap();
        assert_eq!(rows(&db), map);
        assert_at_rest(db.engine());
        drop(db);
        // As replay finds it in the log.
        let db = open_on(&fs.killed());
        for afterwards in AFTERWARDS {
            afterwards(&db);
            assert_eq!(rows(&db), map);
            for key in every_key() {
                assert_eq!(db.get(&key).unwrap().as_deref(), map.get(&key).map(|value| &value[..]));
            }
        }
    }
}
