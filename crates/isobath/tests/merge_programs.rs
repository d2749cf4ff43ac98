//! Drawn programs of transactions with merges, over histories, followers and prepared transactions:
//! what each way to read says against a map, and what was readable stays as it was.

use isobath::{
    Batch, BoxError, Db, Family, FamilyOptions, Isolation, MergeOperator, Options, ReadPoint,
    Transaction, TransactionFamily, TransactionOptions,
};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::time::Duration;

/// Appends; joins nothing.
struct Plain;

impl MergeOperator for Plain {
    fn name(&self) -> &str {
        "test.plain"
    }

    fn merge(
        &self,
        _key: &[u8],
        existing: Option<&[u8]>,
        operands: &[&[u8]],
        out: &mut Vec<u8>,
    ) -> Result<(), BoxError> {
        existing.iter().chain(operands).for_each(|bytes| out.extend_from_slice(bytes));
        Ok(())
    }
}

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn entries(family: &Family) -> Model {
    let entries = family.iter().map(|entry| entry.unwrap());
    entries.map(|(key, value)| (key.to_vec(), value.to_vec())).collect()
}

#[derive(Clone, Debug)]
enum Own {
    Put(u8, u8),
    Merge(u8, u8),
    Delete(u8),
    DeleteRange(u8, u8),
    Savepoint,
    RollbackTo,
    PutIf(u8, u8),
    FetchUpdate(u8, u8),
    Pop(bool),
    ForUpdate(u8),
    Get(u8),
    Untracked(u8),
    Scan,
}

#[derive(Clone, Debug)]
enum End {
    Commit,
    Rollback,
    Prepare,
    PrepareReopen,
}

#[derive(Clone, Debug)]
enum Step {
    Merge(u8, u8),
    Put(u8, u8),
    DeleteRange(u8, u8),
    Transact(Vec<Own>, End, u8, bool),
    PutIf(u8, u8),
    FetchUpdate(u8, u8),
    Pop(bool),
    Flush,
    Compact,
    Note,
    CatchUp,
    Reopen,
}

fn own() -> impl Strategy<Value = Own> {
    let key = 0u8..5;
    let byte = any::<u8>();
    prop_oneof![
        2 => (key.clone(), byte).prop_map(|(k, v)| Own::Put(k, v)),
        10 => (key.clone(), byte).prop_map(|(k, v)| Own::Merge(k, v)),
        1 => key.clone().prop_map(Own::Delete),
        1 => (key.clone(), 0u8..6).prop_map(|(a, b)| Own::DeleteRange(a.min(b), a.max(b))),
        2 => Just(Own::Savepoint),
        2 => Just(Own::RollbackTo),
        1 => (key.clone(), byte).prop_map(|(k, v)| Own::PutIf(k, v)),
        1 => (key.clone(), byte).prop_map(|(k, v)| Own::FetchUpdate(k, v)),
        1 => any::<bool>().prop_map(Own::Pop),
        1 => key.clone().prop_map(Own::ForUpdate),
        2 => key.clone().prop_map(Own::Get),
        1 => key.prop_map(Own::Untracked),
        2 => Just(Own::Scan),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let key = 0u8..5;
    let byte = any::<u8>();
    let end = prop_oneof![
        5 => Just(End::Commit),
        1 => Just(End::Rollback),
        1 => Just(End::Prepare),
        1 => Just(End::PrepareReopen)
    ];
    prop_oneof![
        8 => (key.clone(), byte).prop_map(|(k, v)| Step::Merge(k, v)),
        1 => (key.clone(), byte).prop_map(|(k, v)| Step::Put(k, v)),
        1 => (key.clone(), 0u8..6).prop_map(|(a, b)| Step::DeleteRange(a.min(b), a.max(b))),
        6 => (prop::collection::vec(own(), 1..14), end, 0u8..5, any::<bool>())
            .prop_map(|(ops, end, level, locks)| Step::Transact(ops, end, level, locks)),
        1 => (key.clone(), byte).prop_map(|(k, v)| Step::PutIf(k, v)),
        1 => (key, byte).prop_map(|(k, v)| Step::FetchUpdate(k, v)),
        1 => any::<bool>().prop_map(Step::Pop),
        3 => Just(Step::Flush),
        2 => Just(Step::Compact),
        2 => Just(Step::Note),
        2 => Just(Step::CatchUp),
        1 => Just(Step::Reopen),
    ]
}

fn remove_range(model: &mut Model, from: u8, to: u8) {
    model.retain(|key, _| !(vec![from]..vec![to]).contains(key));
}

fn updated(old: Option<&[u8]>, byte: u8) -> Option<Vec<u8>> {
    (!byte.is_multiple_of(4)).then(|| [old.unwrap_or_default(), &[byte]].concat())
}

fn update(model: &mut Model, key: u8, byte: u8) {
    let old = model.get(&vec![key]).cloned();
    match updated(old.as_deref(), byte) {
        Some(new) => drop(model.insert(vec![key], new)),
        None => drop(model.remove(&vec![key])),
    }
}

fn popped(model: &mut Model, is_first: bool) -> Option<(Vec<u8>, Vec<u8>)> {
    if is_first { model.pop_first() } else { model.pop_last() }
}

/// Carries out the operations, and checks each answer.
fn transact(tx: &Transaction, family: &Family, model: &mut Model, ops: Vec<Own>) {
    let part = tx.of(family);
    let mut saved: Option<Model> = None;
    for op in ops {
        match op {
            Own::Savepoint => {
                tx.savepoint("s").unwrap();
                saved = Some(model.clone());
            }
            Own::RollbackTo => {
                if let Some(saved) = &saved {
                    tx.rollback_to("s").unwrap();
                    model.clone_from(saved);
                }
            }
            op => {
                write(&part, model, &op);
                check(&part, model, &op);
            }
        }
    }
}

/// Carries out what changes something.
fn write(part: &TransactionFamily<'_>, model: &mut Model, op: &Own) {
    match *op {
        Own::Put(key, byte) => {
            part.put([key], [byte]).unwrap();
            model.insert(vec![key], vec![byte]);
        }
        Own::Merge(key, byte) => {
            part.merge([key], [byte]).unwrap();
            model.entry(vec![key]).or_default().push(byte);
        }
        Own::Delete(key) => {
            part.delete([key]).unwrap();
            model.remove(&vec![key]);
        }
        Own::DeleteRange(from, to) => {
            part.delete_range([from].as_slice()..[to].as_slice()).unwrap();
            remove_range(model, from, to);
        }
        Own::PutIf(key, byte) => {
            let expected = model.get(&vec![key]).cloned();
            assert!(!part.put_if([key], Some(b"none has it"), [byte]).unwrap());
            assert!(part.put_if([key], expected.as_deref(), [byte]).unwrap());
            model.insert(vec![key], vec![byte]);
        }
        Own::FetchUpdate(key, byte) => {
            let old = part.fetch_update([key], |old| updated(old, byte)).unwrap();
            assert_eq!(old.as_deref(), model.get(&vec![key]).map(Vec::as_slice));
            update(model, key, byte);
        }
        Own::Pop(is_first) => {
            let found = if is_first { part.pop_first(..) } else { part.pop_last(..) };
            assert_eq!(found.unwrap().map(copied), popped(model, is_first));
        }
        _ => {}
    }
}

/// Checks the answer of what only reads.
fn check(part: &TransactionFamily<'_>, model: &Model, op: &Own) {
    let expected = |key: u8| model.get(&vec![key]).map(Vec::as_slice);
    match *op {
        Own::ForUpdate(key) => {
            assert_eq!(part.get_for_update([key]).unwrap().as_deref(), expected(key));
        }
        Own::Get(key) => {
            assert_eq!(part.get([key]).unwrap().as_deref(), expected(key));
            assert_eq!(part.contains([key]).unwrap(), expected(key).is_some());
            let several = part.multi_get([[key], [key]]).unwrap();
            assert!(several.iter().all(|each| each.as_deref() == expected(key)));
        }
        Own::Untracked(key) => {
            assert_eq!(part.get_untracked([key]).unwrap().as_deref(), expected(key));
        }
        Own::Scan => {
            let forward: Vec<_> = part.iter().map(|entry| copied(entry.unwrap())).collect();
            let mut back: Vec<_> = part.iter().rev().map(|entry| copied(entry.unwrap())).collect();
            back.reverse();
            assert_eq!(forward, back);
            assert_eq!(&forward.into_iter().collect::<Model>(), model);
        }
        _ => {}
    }
}

fn copied((key, value): (isobath::Key, isobath::Value)) -> (Vec<u8>, Vec<u8>) {
    (key.to_vec(), value.to_vec())
}

const LEVELS: [Isolation; 5] = [
    Isolation::ReadUncommitted,
    Isolation::ReadCommitted,
    Isolation::RepeatableRead,
    Isolation::Snapshot,
    Isolation::Serializable,
];

fn opened(reads: bool) -> Options {
    let options = Options::new().merge_operator(Plain).write_buffer(isobath::MIB);
    let options = options.history(Duration::from_secs(3600));
    if reads { options.read_only(true) } else { options }
}

fn family_of(db: &Db, name: &str) -> Family {
    db.family(("log", FamilyOptions::new().merge_operator(name))).unwrap()
}

/// A database, a reader beside it, and what both must answer.
struct World {
    dir: tempfile::TempDir,
    operator: &'static str,
    /// `None` only while the database is opened again.
    open: Option<(Db, Family)>,
    follower: Db,
    model: Model,
    notes: Vec<(ReadPoint, Model)>,
}

impl World {
    fn new(operator: &'static str) -> World {
        let dir = tempfile::tempdir().unwrap();
        let db = opened(false).open(dir.path()).unwrap();
        let family = family_of(&db, operator);
        let follower = opened(true).open(dir.path()).unwrap();
        let (open, model, notes) = (Some((db, family)), Model::new(), Vec::new());
        World { dir, operator, open, follower, model, notes }
    }

    fn db(&self) -> &Db {
        &self.open.as_ref().unwrap().0
    }

    fn family(&self) -> Family {
        self.open.as_ref().unwrap().1.clone()
    }

    fn reopen(&mut self) {
        let (db, family) = self.open.take().unwrap();
        drop(family);
        db.close().unwrap();
        let db = opened(false).open(self.dir.path()).unwrap();
        let family = family_of(&db, self.operator);
        self.open = Some((db, family));
    }

    fn step(&mut self, nth: usize, step: Step) {
        let family = self.family();
        let model = &mut self.model;
        match step {
            Step::Merge(key, byte) => {
                family.merge([key], [byte]).unwrap();
                model.entry(vec![key]).or_default().push(byte);
            }
            Step::Put(key, byte) => {
                family.put([key], [byte]).unwrap();
                model.insert(vec![key], vec![byte]);
            }
            Step::DeleteRange(from, to) => {
                family.delete_range([from].as_slice()..[to].as_slice()).unwrap();
                remove_range(model, from, to);
            }
            Step::PutIf(key, byte) => {
                let expected = model.get(&vec![key]).cloned();
                family.put_if([key], expected.as_deref(), [byte]).unwrap();
                model.insert(vec![key], vec![byte]);
            }
            Step::FetchUpdate(key, byte) => {
                let old = family.fetch_update([key], |old| updated(old, byte)).unwrap();
                assert_eq!(old.as_deref(), model.get(&vec![key]).map(Vec::as_slice));
                update(model, key, byte);
            }
            Step::Pop(is_first) => {
                let found = if is_first { family.pop_first(..) } else { family.pop_last(..) };
                assert_eq!(found.unwrap().map(copied), popped(model, is_first));
            }
            Step::Transact(ops, end, level, locks) => {
                drop(family);
                self.transact(nth, ops, end, (LEVELS[level as usize], locks));
            }
            Step::Flush => self.db().flush().unwrap(),
            Step::Compact => family.compact(..).unwrap(),
            Step::Note => self.notes.push((self.db().snapshot().read_point(), self.model.clone())),
            Step::CatchUp => {
                self.follower.catch_up().unwrap();
                if let Some(seen) = self.follower.family_if_exists("log").unwrap() {
                    assert_eq!(entries(&seen), self.model);
                }
            }
            Step::Reopen => {
                drop(family);
                self.reopen();
            }
        }
    }

    fn transact(&mut self, nth: usize, ops: Vec<Own>, end: End, how: (Isolation, bool)) {
        let (level, locks) = how;
        let options = TransactionOptions::default().isolation(level).locking(locks);
        let tx = self.db().with(options).begin();
        let mut after = self.model.clone();
        transact(&tx, &self.family(), &mut after, ops);
        let xid = isobath::Xid::from(format!("{nth}").as_bytes());
        match end {
            End::Commit => drop(tx.commit().unwrap()),
            End::Rollback => {
                tx.rollback();
                return;
            }
            End::Prepare => drop(tx.prepare(xid).unwrap().commit().unwrap()),
            End::PrepareReopen => {
                drop(tx.prepare(xid.clone()).unwrap());
                self.reopen();
                assert_eq!(entries(&self.family()), self.model);
                if !self.db().in_doubt().is_empty() {
                    self.db().commit_prepared(&xid).unwrap();
                }
            }
        }
        self.model = after;
    }

    fn check(&self) {
        assert_eq!(entries(&self.family()), self.model);
        for (point, then) in &self.notes {
            let snapshot = self.db().snapshot_at(*point).unwrap();
            let seen = snapshot.of(&self.family()).iter().map(|entry| copied(entry.unwrap()));
            assert_eq!(&seen.collect::<Model>(), then);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn transactions_histories_and_followers_agree_with_a_map(
        steps in prop::collection::vec(step(), 1..50),
        joins in any::<bool>(),
    ) {
        let mut world = World::new(if joins { "isobath.append" } else { "test.plain" });
        for (nth, step) in steps.into_iter().enumerate() {
            world.step(nth, step);
            world.check();
        }
    }
}

/// A merge is no read, so it must not undo what others write, at whatever level.
#[test]
fn merges_that_cannot_be_joined_lose_no_operand_of_others() {
    for level in LEVELS {
        let db = Options::in_memory().merge_operator(Plain).open("/db").unwrap();
        let family = family_of(&db, "test.plain");
        let options = TransactionOptions::default().isolation(level);
        let tx = db.with(options).begin();
        tx.of(&family).merge("k", "a").unwrap();
        tx.of(&family).merge("k", "b").unwrap();
        let others = {
            let family = family.clone();
            std::thread::spawn(move || family.merge("k", "c").unwrap())
        };
        std::thread::sleep(Duration::from_millis(200));
        let committed = tx.commit();
        others.join().unwrap();
        let value = family.get("k").unwrap().unwrap().to_vec();
        assert!(value.contains(&b'c'), "{level:?}: {value:?}, {committed:?}");
        assert_eq!(committed.is_ok(), value.contains(&b'b'), "{level:?}: {value:?}");
    }
}

#[test]
fn a_reader_learns_of_an_operator_that_a_family_gets_later() {
    let dir = tempfile::tempdir().unwrap();
    let db = Options::new().open(dir.path()).unwrap();
    let families = ["one", "two"].map(|name| db.family(name).unwrap());
    for family in &families {
        family.put("k", "a").unwrap();
    }
    let follower = Options::new().read_only(true).open(dir.path()).unwrap();
    for (family, flushes) in families.iter().zip([false, true]) {
        let seen = follower.family(family.name().as_str()).unwrap();
        assert_eq!(seen.get("k").unwrap().unwrap(), "a");
        family.set_options(FamilyOptions::new().merge_operator("isobath.append")).unwrap();
        family.merge("k", "b").unwrap();
        if flushes {
            // Then the follower begins anew, from the tables.
            db.flush().unwrap();
            family.merge("k", "c").unwrap();
        }
        follower.catch_up().unwrap();
        let value = seen.get("k").unwrap().unwrap();
        assert_eq!(value, if flushes { "abc" } else { "ab" });
        assert_eq!(seen.iter().next().unwrap().unwrap().1, value);
    }
    let made = FamilyOptions::new().merge_operator("isobath.append");
    db.family(("made later", made)).unwrap().merge("k", "c").unwrap();
    follower.catch_up().unwrap();
    let seen = follower.family_if_exists("made later").unwrap().unwrap();
    assert_eq!(seen.get("k").unwrap().unwrap(), "c");
}

/// Long lists of operands cost each step no more than their length: otherwise this takes minutes.
#[test]
fn a_hundred_thousand_operands_of_a_key_are_read_and_rewritten() {
    for name in ["test.plain", "isobath.counter"] {
        let db = Options::in_memory().merge_operator(Plain).open("/db").unwrap();
        let family = family_of(&db, name);
        let (count, mut snapshots) = (100_000u64, Vec::new());
        for nth in 0..count {
            family.merge("k", 1u64.to_le_bytes()).unwrap();
            if nth % 100 == 0 {
                snapshots.push((nth + 1, db.snapshot()));
            }
        }
        let check = |found: &[u8], nth: u64| match name {
            "test.plain" => assert_eq!(found.len() as u64, nth * 8),
            _ => assert_eq!(found, nth.to_le_bytes()),
        };
        for stage in 0..3 {
            check(&family.get("k").unwrap().unwrap(), count);
            check(&family.iter().next().unwrap().unwrap().1, count);
            for (nth, snapshot) in snapshots.iter().step_by(100) {
                check(&snapshot.of(&family).get("k").unwrap().unwrap(), *nth);
            }
            match stage {
                0 => db.flush().unwrap(),
                _ => family.compact(..).unwrap(),
            }
        }
    }
}

/// All orders of up to three operations on a key: one digit each, to the base of four.
fn orders() -> impl Iterator<Item = Vec<u8>> {
    (1..=3).flat_map(|len| {
        (0..4u32.pow(len)).map(move |n| (0..len).map(|at| (n / 4u32.pow(at) % 4) as u8).collect())
    })
}

/// Does the operations to a key that has the value `0`, in a batch and in a transaction. Returns
/// what the key has then.
fn operate(
    family: &Family,
    key: &[u8],
    order: &[u8],
    batch: &mut Batch,
    tx: &Transaction,
) -> Option<Vec<u8>> {
    let after = [key, &[0]].concat();
    let mut value = Some(b"0".to_vec());
    for (at, what) in order.iter().enumerate() {
        let byte = b'a' + at as u8;
        let (mut in_batch, in_tx) = (batch.of(family), tx.of(family));
        match what {
            0 => {
                in_batch.put(key, [byte]);
                in_tx.put(key, [byte]).unwrap();
                value = Some(vec![byte]);
            }
            1 => {
                in_batch.delete(key);
                in_tx.delete(key).unwrap();
                value = None;
            }
            2 => {
                in_batch.delete_range(key..&after);
                in_tx.delete_range(key..&after).unwrap();
                value = None;
            }
            _ => {
                in_batch.merge(key, [byte]);
                in_tx.merge(key, [byte]).unwrap();
                value.get_or_insert_default().push(byte);
            }
        }
    }
    value
}

/// In batches that are sorted and that are too small for it, and in transactions.
#[test]
fn operations_on_a_key_in_one_commit_count_in_their_order() {
    for name in ["test.plain", "isobath.append"] {
        let db = Options::in_memory().merge_operator(Plain).open("/db").unwrap();
        let family = family_of(&db, name);
        let mut model = Model::new();
        for way in 0..4u8 {
            for (nth, order) in orders().enumerate() {
                let key = [&[way][..], &(nth as u32).to_be_bytes()].concat();
                family.put(&key, "0").unwrap();
                let (mut batch, tx) = (Batch::new(), db.begin());
                let value = operate(&family, &key, &order, &mut batch, &tx);
                match way {
                    0 => drop(db.write(batch).unwrap()),
                    1 => {
                        // So that the batch is long enough to be sorted.
                        for other in 0..9u8 {
                            batch.put([other], "other");
                        }
                        db.write(batch).unwrap();
                    }
                    2 => drop(tx.commit().unwrap()),
                    _ => drop(tx.prepare(&key[..]).unwrap().commit().unwrap()),
                }
                if let Some(value) = value {
                    model.insert(key, value);
                }
            }
        }
        for stage in 0..3 {
            assert!(entries(&family) == model, "{name} {stage}");
            for way in 0..4u8 {
                for nth in 0..84u32 {
                    let key = [&[way][..], &nth.to_be_bytes()].concat();
                    let found = family.get(&key).unwrap().map(|value| value.to_vec());
                    assert_eq!(found.as_ref(), model.get(&key), "{name} {stage} {way} {nth}");
                }
            }
            match stage {
                0 => db.flush().unwrap(),
                _ => family.compact(..).unwrap(),
            }
        }
    }
}
