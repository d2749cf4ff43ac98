//! Every engine of this build answers like the memory engine: before and after a flush and a
//! reopening, and with several threads.

use super::{Durability, Engine, EngineConfig, Operation, Session, find, plain_names};
use crate::generate::Rng;
use std::collections::BTreeMap;
use std::path::Path;

const KEYS: u64 = 300;

fn config(dir: &Path, durability: Durability) -> EngineConfig {
    let path = dir.join("db");
    EngineConfig {
        path,
        durability,
        write_buffer_bytes: 1 << 20,
        cache_bytes: 1 << 20,
        ..EngineConfig::default()
    }
}

fn key(number: u64) -> Vec<u8> {
    format!("key{number:05}").into_bytes()
}

type Rows = Vec<(Vec<u8>, Vec<u8>)>;

fn rows(session: &mut dyn Session, from: &[u8], to: Option<&[u8]>, limit: usize) -> Rows {
    let mut rows = Rows::new();
    session
        .scan(from, to, &mut |key, value| {
            rows.push((key.to_vec(), value.to_vec()));
            rows.len() == limit
        })
        .unwrap();
    rows
}

fn value_of(session: &mut dyn Session, key: &[u8]) -> Option<Vec<u8>> {
    let mut found = None;
    let hit = session.get(key, &mut |value| found = Some(value.to_vec())).unwrap();
    assert_eq!(hit, found.is_some());
    found
}

/// The same random operations on the session and on a model.
fn churn(
    session: &mut dyn Session,
    model: &mut BTreeMap<Vec<u8>, Vec<u8>>,
    rng: &mut Rng,
    steps: u64,
) {
    for step in 0..steps {
        let (first, second) = (key(rng.below(KEYS)), key(rng.below(KEYS)));
        let value = vec![step as u8; rng.below(2000) as usize + 1];
        match rng.below(4) {
            0 => {
                session.put(&first, &value).unwrap();
                model.insert(first, value);
            }
            1 => {
                session.delete(&first).unwrap();
                model.remove(&first);
            }
            _ => {
                session
                    .write_batch(&[Operation::Put(&first, &value), Operation::Delete(&second)])
                    .unwrap();
                model.insert(first, value);
                model.remove(&second);
            }
        }
    }
}

fn compare(session: &mut dyn Session, model: &BTreeMap<Vec<u8>, Vec<u8>>, rng: &mut Rng) {
    let all: Rows = model.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
    assert_eq!(rows(session, b"", None, usize::MAX), all);
    for _ in 0..100 {
        let (low, high) = (key(rng.below(KEYS)), key(rng.below(KEYS)));
        assert_eq!(value_of(session, &low), model.get(&low).cloned());
        let expected: Rows =
            all.iter().filter(|(key, _)| *key >= low && *key < high).take(5).cloned().collect();
        assert_eq!(rows(session, &low, Some(&high), 5), expected);
        let mut first = None;
        session.seek(&low, &mut |key, value| first = Some((key.to_vec(), value.to_vec()))).unwrap();
        assert_eq!(
            first,
            model.range(low..).next().map(|(key, value)| (key.clone(), value.clone()))
        );
    }
    let keys: Vec<Vec<u8>> = (0..KEYS).step_by(7).map(key).collect();
    let slices: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let mut found = vec![None; keys.len()];
    session.multi_get(&slices, &mut |index, value| found[index] = Some(value.to_vec())).unwrap();
    assert_eq!(found, keys.iter().map(|key| model.get(key).cloned()).collect::<Vec<_>>());
}

fn conform(name: &str, durability: Durability) {
    let kind = find(name).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let config = config(dir.path(), durability);
    let mut model = BTreeMap::new();
    let mut rng = Rng::new(99);
    let mut engine: Box<dyn Engine> = (kind.open)(&config).unwrap();
    for _ in 0..3 {
        let mut session = engine.session().unwrap();
        churn(session.as_mut(), &mut model, &mut rng, 400);
        compare(session.as_mut(), &model, &mut rng);
        engine.flush().unwrap();
        compare(session.as_mut(), &model, &mut rng);
        drop(session);
        if kind.persistent {
            engine.close().unwrap();
            engine = (kind.open)(&config).unwrap();
            compare(engine.session().unwrap().as_mut(), &model, &mut rng);
        }
    }
    engine.close().unwrap();
}

#[test]
fn every_engine_answers_like_a_map_at_every_durability_it_serves() {
    for name in plain_names().into_iter().filter(|name| *name != "null") {
        for durability in find(name).unwrap().durabilities {
            conform(name, *durability);
        }
    }
}

#[test]
fn sessions_write_at_once_and_nothing_is_lost() {
    for name in plain_names().into_iter().filter(|name| *name != "null") {
        let kind = find(name).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let engine = (kind.open)(&config(dir.path(), kind.serve(Durability::Process))).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                let engine = &engine;
                scope.spawn(move || {
                    let mut session = engine.session().unwrap();
                    for step in 0..50 {
                        session.put(&key(thread * 1000 + step), &[thread as u8; 64]).unwrap();
                    }
                });
            }
        });
        assert_eq!(
            rows(engine.session().unwrap().as_mut(), b"", None, usize::MAX).len(),
            200,
            "{name}"
        );
        engine.close().unwrap();
    }
}

#[test]
fn a_knob_that_an_engine_does_not_know_is_refused() {
    for name in plain_names() {
        let dir = tempfile::tempdir().unwrap();
        let mut config = config(dir.path(), Durability::Process);
        config.knobs.insert("no_such_knob".to_owned(), "1".to_owned());
        let error =
            (find(name).unwrap().open)(&config).err().map(|error| format!("{error:#}")).unwrap();
        assert!(error.contains("no_such_knob"), "{name}: {error}");
    }
}

#[test]
fn a_level_that_is_not_served_becomes_a_weaker_one_and_is_named() {
    let memory = find("memory").unwrap();
    assert_eq!(memory.serve(Durability::Sync), Durability::Sync);
    for name in plain_names() {
        let kind = find(name).unwrap();
        let served = kind.serve(Durability::Process);
        assert!(kind.durabilities.contains(&served), "{name}");
    }
}
