//! Merge operators as a program uses them: every way to read sees the same values, whatever was
//! flushed, compacted, snapshotted, reopened or replayed in between.

use isobath::operators::Append;
use isobath::{
    Batch, BoxError, Db, ErrorKind, Family, FamilyOptions, MergeFailure, MergeOperator, Options,
    Transaction,
};
use proptest::prelude::*;
use std::collections::BTreeMap;

const APPEND: &str = "isobath.append";

/// Appends, but refuses an operand `!`, panics at `?`, and joins nothing.
struct Fussy;

impl MergeOperator for Fussy {
    fn name(&self) -> &str {
        "test.fussy"
    }

    fn merge(
        &self,
        key: &[u8],
        existing: Option<&[u8]>,
        operands: &[&[u8]],
        out: &mut Vec<u8>,
    ) -> Result<(), BoxError> {
        assert!(!operands.contains(&&b"?"[..]), "as it was asked");
        if operands.contains(&&b"!"[..]) {
            return Err("it is excited".into());
        }
        Append.merge(key, existing, operands, out)
    }
}

fn appending(db: &Db) -> Family {
    db.family(("log", FamilyOptions::new().merge_operator(APPEND))).unwrap()
}

fn all(family: &Family) -> Vec<(Vec<u8>, Vec<u8>)> {
    family.iter().map(|entry| entry.unwrap()).map(|(k, v)| (k.to_vec(), v.to_vec())).collect()
}

/// What every way to read says of the whole family, if they agree.
fn agreed(family: &Family, keys: &[Vec<u8>]) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let forward = all(family);
    let mut backward: Vec<_> = family
        .iter()
        .rev()
        .map(|entry| entry.unwrap())
        .map(|(k, v)| (k.to_vec(), v.to_vec()))
        .collect();
    backward.reverse();
    assert_eq!(forward, backward);
    let by_key: BTreeMap<_, _> = forward.iter().cloned().collect();
    let several = family.multi_get(keys).unwrap();
    for (key, value) in keys.iter().zip(several) {
        let value = value.map(|value| value.to_vec());
        assert_eq!(value.as_ref(), by_key.get(key));
        assert_eq!(family.get(key).unwrap().map(|value| value.to_vec()), value);
        assert_eq!(family.contains(key).unwrap(), value.is_some());
    }
    assert_eq!(family.count(..).unwrap(), forward.len() as u64);
    let mut cursor = family.cursor(..).unwrap();
    let mut entry = cursor.first().unwrap();
    for (key, value) in &forward {
        let at = entry.unwrap();
        assert_eq!((at.key(), at.value().unwrap()), (&key[..], &value[..]));
        assert_eq!(
            (at.pin().unwrap().to_vec(), at.value_len()),
            (value.clone(), value.len() as u64)
        );
        entry = cursor.next().unwrap();
    }
    by_key
}

#[derive(Clone, Debug)]
enum Step {
    Put(u8, u8),
    Merge(u8, u8),
    Delete(u8),
    DeleteRange(u8, u8),
    Batch(Vec<(u8, u8)>),
    Transact(Vec<(u8, u8)>, bool),
    Flush,
    Compact,
    Snapshot,
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    let key = 0u8..6;
    prop_oneof![
        2 => (key.clone(), any::<u8>()).prop_map(|(k, v)| Step::Put(k, v)),
        12 => (key.clone(), any::<u8>()).prop_map(|(k, v)| Step::Merge(k, v)),
        1 => key.clone().prop_map(Step::Delete),
        1 => (key.clone(), 0u8..7).prop_map(|(a, b)| Step::DeleteRange(a.min(b), a.max(b))),
        2 => prop::collection::vec((key.clone(), any::<u8>()), 1..12).prop_map(Step::Batch),
        2 => (prop::collection::vec((key, any::<u8>()), 1..6), any::<bool>())
            .prop_map(|(ops, reads)| Step::Transact(ops, reads)),
        3 => Just(Step::Flush),
        1 => Just(Step::Compact),
        1 => Just(Step::Snapshot),
        1 => Just(Step::Reopen),
    ]
}

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// An odd byte is merged, an even one in four is put, the others are deleted or merged.
fn apply(model: &mut Model, key: u8, byte: u8) {
    match byte % 8 {
        0 => drop(model.insert(vec![key], vec![byte])),
        2 => drop(model.remove(&vec![key])),
        _ => model.entry(vec![key]).or_default().push(byte),
    }
}

fn in_batch(batch: &mut Batch, family: &Family, key: u8, byte: u8) {
    let mut part = batch.of(family);
    match byte % 8 {
        0 => part.put([key], [byte]),
        2 => part.delete([key]),
        _ => part.merge([key], [byte]),
    };
}

fn in_transaction(tx: &Transaction, family: &Family, key: u8, byte: u8) -> isobath::Result<()> {
    let part = tx.of(family);
    match byte % 8 {
        0 => part.put([key], [byte]),
        2 => part.delete([key]),
        _ => part.merge([key], [byte]),
    }
}

/// What the fussy operator refuses, which is tested apart.
fn is_plain(byte: u8) -> bool {
    byte != b'!' && byte != b'?'
}

fn carry_out(db: &Db, family: &Family, model: &mut Model, step: Step) {
    match step {
        Step::Put(key, value) => {
            family.put([key], [value]).unwrap();
            model.insert(vec![key], vec![value]);
        }
        Step::Merge(key, byte) if is_plain(byte) => {
            family.merge([key], [byte]).unwrap();
            model.entry(vec![key]).or_default().push(byte);
        }
        Step::Merge(..) => {}
        Step::Delete(key) => {
            family.delete([key]).unwrap();
            model.remove(&vec![key]);
        }
        Step::DeleteRange(from, to) => {
            family.delete_range([from].as_slice()..[to].as_slice()).unwrap();
            model.retain(|key, _| !(vec![from]..vec![to]).contains(key));
        }
        Step::Batch(ops) => {
            let mut batch = Batch::new();
            for (key, byte) in ops.into_iter().filter(|(_, byte)| is_plain(*byte)) {
                in_batch(&mut batch, family, key, byte);
                apply(model, key, byte);
            }
            db.write(batch).unwrap();
        }
        Step::Transact(ops, reads) => {
            let tx = db.begin();
            for (key, byte) in ops.into_iter().filter(|(_, byte)| is_plain(*byte)) {
                in_transaction(&tx, family, key, byte).unwrap();
                apply(model, key, byte);
                if reads {
                    let own = tx.of(family).get([key]).unwrap().map(|value| value.to_vec());
                    assert_eq!(own.as_ref(), model.get(&vec![key]));
                }
            }
            let seen: Model = tx
                .of(family)
                .iter()
                .map(|entry| entry.unwrap())
                .map(|(key, value)| (key.to_vec(), value.to_vec()))
                .collect();
            assert_eq!(&seen, model);
            tx.commit().unwrap();
        }
        Step::Flush => db.flush().unwrap(),
        Step::Compact => family.compact(..).unwrap(),
        Step::Snapshot | Step::Reopen => unreachable!("the caller does it"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(80))]

    #[test]
    fn every_way_to_read_finds_what_a_map_has(
        steps in prop::collection::vec(step(), 1..60),
        which in 0..2,
    ) {
        let dir = tempfile::tempdir().unwrap();
        let options = || Options::new().merge_operator(Fussy).write_buffer(isobath::MIB);
        let name = [APPEND, "test.fussy"][which as usize];
        let keys: Vec<Vec<u8>> = (0..6).map(|key| vec![key]).collect();
        let open = || {
            let db = options().open(dir.path()).unwrap();
            let family = db.family(("log", FamilyOptions::new().merge_operator(name))).unwrap();
            (db, family)
        };
        let (mut db, mut family) = open();
        let mut model = Model::new();
        let mut snapshots = Vec::new();
        for step in steps {
            match step {
                Step::Snapshot => snapshots.push((db.snapshot(), model.clone())),
                Step::Reopen => {
                    snapshots.clear();
                    drop(family);
                    db.close().unwrap();
                    (db, family) = open();
                }
                step => carry_out(&db, &family, &mut model, step),
            }
            prop_assert_eq!(&agreed(&family, &keys), &model);
            for (snapshot, then) in &snapshots {
                let seen: Model = snapshot.of(&family).iter().map(|entry| entry.unwrap())
                    .map(|(key, value)| (key.to_vec(), value.to_vec())).collect();
                prop_assert_eq!(&seen, then);
            }
        }
    }
}

#[test]
fn flushes_and_compactions_leave_one_version_of_a_counter() {
    let db = Options::in_memory().open("/db").unwrap();
    let counters =
        db.family(("counters", FamilyOptions::new().merge_operator("isobath.counter"))).unwrap();
    for round in 0..5 {
        for _ in 0..1000 {
            counters.merge("hits", 1u64.to_le_bytes()).unwrap();
        }
        db.flush().unwrap();
        let hits = counters.get("hits").unwrap().unwrap();
        assert_eq!(hits, ((round + 1) * 1000u64).to_le_bytes());
    }
    counters.compact(..).unwrap();
    let metrics = db.metrics();
    let of_counters = metrics.families.iter().find(|family| family.name == "counters").unwrap();
    assert_eq!(of_counters.levels.iter().map(|level| level.entries).sum::<u64>(), 1);
}

#[test]
fn without_its_operator_a_database_opens_and_only_keys_with_operands_fail() {
    let dir = tempfile::tempdir().unwrap();
    let db = Options::new().merge_operator(Fussy).open(dir.path()).unwrap();
    let family = db.family(("log", FamilyOptions::new().merge_operator("test.fussy"))).unwrap();
    family.put("a", "plain").unwrap();
    family.put("b", "x").unwrap();
    db.flush().unwrap();
    family.merge("b", "y").unwrap();
    family.merge("b", "z").unwrap();
    db.close().unwrap();
    for _ in 0..2 {
        // The replay flushes the operands, and the compaction keeps them.
        let db = Options::new().open(dir.path()).unwrap();
        let family = db.family("log").unwrap();
        family.compact(..).unwrap();
        assert_eq!(family.get("a").unwrap().unwrap(), "plain");
        let error = family.get("b").unwrap_err();
        let ErrorKind::MergeFailed { operator, family: of, key, failure, .. } = error.kind() else {
            panic!("{error:?}")
        };
        assert_eq!(
            (operator.as_str(), of.as_str(), key.as_slice()),
            ("test.fussy", "log", &b"b"[..])
        );
        assert_eq!(*failure, MergeFailure::NoOperator);
        assert!(error.to_string().contains("test.fussy"), "{error}");
        assert!(family.iter().any(|entry| entry.is_err()));
        assert!(family.merge("a", "y").is_err());
        db.close().unwrap();
    }
    let db = Options::new().merge_operator(Fussy).open(dir.path()).unwrap();
    assert_eq!(db.family("log").unwrap().get("b").unwrap().unwrap(), "xyz");
}

#[test]
fn an_operator_that_refuses_or_panics_fails_reads_of_that_key_and_loses_nothing() {
    let db = Options::in_memory().merge_operator(Fussy).open("/db").unwrap();
    let family = db.family(("log", FamilyOptions::new().merge_operator("test.fussy"))).unwrap();
    for (key, operand) in [("refused", "!"), ("panics", "?")] {
        family.put(key, "x").unwrap();
        family.merge(key, operand).unwrap();
        family.merge(key, "y").unwrap();
    }
    family.put("sound", "x").unwrap();
    for _ in 0..2 {
        let failure = |key| match family.get(key).unwrap_err().kind() {
            ErrorKind::MergeFailed { failure, .. } => failure.clone(),
            other => panic!("{other:?}"),
        };
        assert_eq!(failure("refused"), MergeFailure::Refused("it is excited".into()));
        assert_eq!(failure("panics"), MergeFailure::Panicked);
        assert_eq!(family.get("sound").unwrap().unwrap(), "x");
        db.flush().unwrap();
        family.compact(..).unwrap();
    }
    // A put ends the trouble.
    family.put("refused", "new").unwrap();
    family.merge("refused", "er").unwrap();
    assert_eq!(family.get("refused").unwrap().unwrap(), "newer");
}

#[test]
fn a_family_without_an_operator_refuses_merges_and_batches_with_them() {
    let db = Options::in_memory().open("/db").unwrap();
    let plain = db.family("plain").unwrap();
    let is_refused = |error: isobath::Error| {
        matches!(error.kind(), ErrorKind::InvalidArgument { .. })
            && error.to_string().contains("merge operator")
    };
    assert!(is_refused(plain.merge("k", "v").unwrap_err()));
    assert!(is_refused(db.merge("k", "v").unwrap_err()));
    let options = isobath::WriteOptions::default;
    assert!(is_refused(db.with(options()).merge("k", "v").unwrap_err()));
    assert!(is_refused(plain.with(options()).merge("k", "v").unwrap_err()));
    let mut batch = Batch::new();
    batch.put("k", "v").merge("k", "v");
    assert!(is_refused(db.write(&mut batch).unwrap_err()));
    let mut batch = Batch::new();
    batch.of(&plain).merge("k", "v");
    assert!(is_refused(db.write(&mut batch).unwrap_err()));
    assert!(is_refused(db.begin().of(&plain).merge("k", "v").unwrap_err()));
    assert!(db.get("k").unwrap().is_none());
}

#[test]
fn an_operator_is_set_once_and_has_to_be_known() {
    let dir = tempfile::tempdir().unwrap();
    let db = Options::new().open(dir.path()).unwrap();
    let with = |name: &str| FamilyOptions::new().merge_operator(name);
    assert!(db.family(("log", with("test.fussy"))).is_err());
    assert!(db.family(("log", with("with \"quotes\""))).is_err());
    let family = db.family("log").unwrap();
    family.put("k", "v").unwrap();
    family.set_options(with(APPEND)).unwrap();
    family.merge("k", "w").unwrap();
    assert_eq!(family.get("k").unwrap().unwrap(), "vw");
    let error = family.set_options(with("isobath.max")).unwrap_err();
    assert!(error.to_string().contains(APPEND), "{error}");
    family.set_options(FamilyOptions::new().block_size(8192u64)).unwrap();
    assert_eq!(family.options().merge_operator.as_deref(), Some(APPEND));
    drop(family);
    db.close().unwrap();
    let db = Options::new().family(with("isobath.max")).open(dir.path()).unwrap();
    let family = appending(&db);
    assert_eq!(family.get("k").unwrap().unwrap(), "vw");
    // The default family got the other one.
    db.merge("k", "a").unwrap();
    db.merge("k", "b").unwrap();
    assert_eq!(db.get("k").unwrap().unwrap(), "b");
    db.close().unwrap();
    assert!(Options::new().family(with(APPEND)).open(dir.path()).is_err());
}

#[test]
fn blind_merges_of_serializable_transactions_do_not_conflict() {
    let db = Options::in_memory().open("/db").unwrap();
    let family = db.family(("n", FamilyOptions::new().merge_operator("isobath.counter"))).unwrap();
    let (one, two) = (db.begin(), db.begin());
    one.of(&family).merge("k", 1u64.to_le_bytes()).unwrap();
    two.of(&family).merge("k", 2u64.to_le_bytes()).unwrap();
    two.of(&family).merge("k", 4u64.to_le_bytes()).unwrap();
    one.commit().unwrap();
    two.commit().unwrap();
    assert_eq!(family.get("k").unwrap().unwrap(), 7u64.to_le_bytes());
    // One that has read the key relies on it.
    let three = db.begin();
    three.of(&family).merge("k", 1u64.to_le_bytes()).unwrap();
    assert_eq!(three.of(&family).get("k").unwrap().unwrap(), 8u64.to_le_bytes());
    family.merge("k", 1u64.to_le_bytes()).unwrap();
    assert!(three.commit().unwrap_err().is_conflict());
    let four = db.begin();
    four.of(&family).merge("k", 1u64.to_le_bytes()).unwrap();
    let values = four.of(&family).multi_get(["k"]).unwrap();
    assert_eq!(values[0].as_deref().unwrap(), 9u64.to_le_bytes());
    family.merge("k", 1u64.to_le_bytes()).unwrap();
    assert!(four.commit().unwrap_err().is_conflict());
}
