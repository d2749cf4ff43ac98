//! Drawn programs beside a model, with and without a history.

use super::{World, moment, ms};
use crate::env::sync::atomic::Ordering;
use crate::{Batch, Db, ErrorKind, Expiry, ReadPoint, Snapshot};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

#[derive(Clone, Debug)]
enum Do {
    Put(u8),
    PutTtl(u8, u64),
    PutAt(u8, i64),
    Delete(u8),
    DeleteRange(u8, u8),
    SetExpiry(u8, Option<u64>),
    Batch(Vec<(u8, Option<u64>)>),
    Transact(u8, u8, u64),
    Go(u64),
    GoBack(u64),
    Tick,
    Flush,
    Compact,
    Hold,
    LetGo,
    Reopen,
    Cut,
    /// A power cut that may take what was not synced; of it so many quarters stay.
    Lose(usize),
}

fn program() -> impl Strategy<Value = Vec<Do>> {
    let key = || 0u8..6;
    let ttl = || 1u64..30;
    let step = prop_oneof![
        2 => key().prop_map(Do::Put),
        4 => (key(), ttl()).prop_map(|(key, ttl)| Do::PutTtl(key, ttl)),
        1 => (key(), -5i64..20).prop_map(|(key, by)| Do::PutAt(key, by)),
        1 => key().prop_map(Do::Delete),
        1 => (key(), key()).prop_map(|(from, to)| Do::DeleteRange(from, to)),
        1 => (key(), prop::option::of(ttl())).prop_map(|(key, ttl)| Do::SetExpiry(key, ttl)),
        1 => prop::collection::vec((key(), prop::option::of(ttl())), 1..6).prop_map(Do::Batch),
        1 => (key(), key(), ttl()).prop_map(|(read, put, ttl)| Do::Transact(read, put, ttl)),
        3 => (0u64..20).prop_map(Do::Go),
        1 => (0u64..20).prop_map(Do::GoBack),
        1 => Just(Do::Tick),
        2 => Just(Do::Flush),
        1 => Just(Do::Compact),
        2 => Just(Do::Hold),
        1 => Just(Do::LetGo),
        1 => Just(Do::Reopen),
        1 => Just(Do::Cut),
        1 => (0usize..5).prop_map(Do::Lose),
    ];
    prop::collection::vec(step, 1..60)
}

type Content = BTreeMap<u8, (u64, Option<u64>)>;

/// What lives at a time.
fn living(content: &Content, now_ms: u64) -> BTreeMap<u8, u64> {
    let lives = |(_, end): &(u64, Option<u64>)| end.is_none_or(|end| now_ms < end);
    content
        .iter()
        .filter(|(_, value)| lives(value))
        .map(|(key, (value, _))| (*key, *value))
        .collect()
}

fn shown(items: crate::Range<'_>) -> BTreeMap<u8, u64> {
    let item = |item: crate::Result<(crate::Key, crate::Value)>| {
        let (key, value) = item.unwrap();
        (key[0], u64::from_be_bytes(value.as_ref().try_into().unwrap()))
    };
    items.map(item).collect()
}

/// What lives now, with its ends.
fn with_ends(db: &Db) -> Content {
    let mut cursor = db.cursor(..).unwrap();
    let mut content = Content::new();
    let mut entry = cursor.first().unwrap();
    while let Some(at) = entry {
        let end = match at.expiry() {
            Expiry::At(moment) => moment.duration_since(SystemTime::UNIX_EPOCH).ok(),
            _ => None,
        };
        let value = u64::from_be_bytes(at.value().unwrap().try_into().unwrap());
        content.insert(at.key()[0], (value, end.map(|end| end.as_millis() as u64)));
        entry = cursor.next().unwrap();
    }
    content
}

/// A database and a model that knows each key's newest value and its end.
struct Run {
    world: World,
    db: Option<Db>,
    content: Content,
    held: Vec<(Snapshot, BTreeMap<u8, u64>)>,
    points: Vec<(ReadPoint, BTreeMap<u8, u64>)>,
    /// What a power cut may leave, besides the content.
    earlier: Vec<Content>,
}

impl Run {
    fn new(history: Option<Duration>) -> Run {
        let world = World { history, ..World::new() };
        let db = Some(world.open());
        let (content, held, points) = (Content::new(), Vec::new(), Vec::new());
        Run { world, db, content, held, points, earlier: Vec::new() }
    }

    fn db(&self) -> &Db {
        self.db.as_ref().unwrap()
    }

    fn now_ms(&self) -> u64 {
        self.db().engine().now_ms()
    }

    fn living(&self) -> BTreeMap<u8, u64> {
        living(&self.content, self.now_ms())
    }

    /// Does what writes, and all else otherwise.
    fn step(&mut self, count: u64, step: &Do) {
        let (value, now_ms) = (count.to_be_bytes(), self.now_ms());
        let db = self.db.as_ref().unwrap();
        match step {
            Do::Put(key) => {
                db.put([*key], value).unwrap();
                self.content.insert(*key, (count, None));
            }
            Do::PutTtl(key, ttl) => {
                db.put_ttl([*key], value, ms(*ttl)).unwrap();
                self.content.insert(*key, (count, Some(now_ms + ttl)));
            }
            Do::PutAt(key, by) => {
                let end = now_ms.saturating_add_signed(*by);
                db.put_ttl([*key], value, moment(end)).unwrap();
                self.content.insert(*key, (count, Some(if end <= now_ms { 0 } else { end })));
            }
            Do::Delete(key) => {
                db.delete([*key]).unwrap();
                self.content.remove(key);
            }
            Do::DeleteRange(from, to) if from <= to => {
                db.delete_range(&[*from][..]..&[*to][..]).unwrap();
                self.content.retain(|key, _| !(*from..*to).contains(key));
            }
            Do::DeleteRange(..) => {}
            Do::SetExpiry(key, ttl) => {
                let expiry = ttl.map_or(Expiry::Never, |ttl| Expiry::After(ms(ttl)));
                let lives = living(&self.content, now_ms).contains_key(key);
                assert_eq!(db.set_expiry([*key], expiry).unwrap(), lives);
                if let Some(known) = self.content.get_mut(key).filter(|_| lives) {
                    known.1 = ttl.map(|ttl| now_ms + ttl);
                }
            }
            Do::Batch(ops) => {
                let mut batch = Batch::new();
                for (key, ttl) in ops {
                    match ttl {
                        None => batch.put([*key], value),
                        Some(ttl) => batch.put_ttl([*key], value, ms(*ttl)),
                    };
                    self.content.insert(*key, (count, ttl.map(|ttl| now_ms + ttl)));
                }
                db.write(batch).unwrap();
            }
            Do::Transact(read, put, ttl) => {
                let tx = db.begin();
                let seen = tx.get([*read]).unwrap().is_some();
                assert_eq!(seen, living(&self.content, now_ms).contains_key(read));
                tx.put_ttl([*put], value, ms(*ttl)).unwrap();
                tx.commit().unwrap();
                self.content.insert(*put, (count, Some(now_ms + ttl)));
            }
            _ => self.step_aside(step),
        }
    }

    fn step_aside(&mut self, step: &Do) {
        let is_cut = matches!(step, Do::Cut);
        match step {
            Do::Go(by) => self.world.clock.go(*by),
            Do::GoBack(by) => drop(self.world.clock.0.fetch_sub(*by, Ordering::Relaxed)),
            Do::Tick => drop(self.db().engine().tick_for_others()),
            Do::Flush => self.db().flush().unwrap(),
            Do::Compact => self.db().compact().unwrap(),
            Do::Hold => {
                let (snapshot, living) = (self.db().snapshot(), self.living());
                self.points.push((snapshot.read_point(), living.clone()));
                self.held.push((snapshot, living));
            }
            Do::LetGo => self.held.clear(),
            Do::Lose(quarters) => {
                self.held.clear();
                let kept = |steps: usize| steps * quarters / 4;
                let left = self.world.fs.crashed(|unsynced| kept(unsynced.steps.len()));
                drop(self.db.take());
                self.world.fs = left;
                self.db = Some(self.world.open());
                let (found, now_ms) = (with_ends(self.db()), self.now_ms());
                self.earlier.push(std::mem::take(&mut self.content));
                let mut left =
                    std::mem::take(&mut self.earlier).into_iter().rev().map(|mut content| {
                        content.retain(|_, (_, end)| end.is_none_or(|end| now_ms < end));
                        content
                    });
                let left = left.find(|content| *content == found);
                self.content = left.unwrap_or_else(|| panic!("no state was {found:?}"));
                // Without this the next power cut may take the tick that has just ended values, and
                // they live again if the clock was set back meanwhile.
                self.db().sync().unwrap();
            }
            _ => {
                self.earlier.clear();
                self.held.clear();
                if is_cut {
                    self.db().sync().unwrap();
                }
                let left = is_cut.then(|| self.world.fs.crashed(|_| 0));
                drop(self.db.take());
                self.world.fs = left.unwrap_or_else(|| self.world.fs.clone());
                self.db = Some(self.world.open());
            }
        }
    }

    /// Reads everything in every way.
    fn check(&self, after: &str) {
        let (db, expected) = (self.db(), self.living());
        for key in 0..6u8 {
            let found = db.get([key]).unwrap();
            let found = found.map(|value| u64::from_be_bytes((*value).try_into().unwrap()));
            assert_eq!(found, expected.get(&key).copied(), "{key} after {after}");
        }
        assert_eq!(shown(db.range(..)), expected, "after {after}");
        let mut back: Vec<_> = db.range(..).rev().map(|item| item.unwrap().0[0]).collect();
        back.reverse();
        assert_eq!(back, expected.keys().copied().collect::<Vec<_>>(), "after {after}");
        for (snapshot, at_its_time) in &self.held {
            assert_eq!(shown(snapshot.range(..)), *at_its_time, "after {after}");
            let is_there = |key: u8| snapshot.get([key]).unwrap().is_some();
            assert!((0..6).all(|key| is_there(key) == at_its_time.contains_key(&key)), "{after}");
        }
        for (point, at_its_time) in &self.points {
            match db.snapshot_at(*point) {
                Ok(snapshot) => assert_eq!(shown(snapshot.range(..)), *at_its_time, "{after}"),
                Err(error) => assert!(matches!(error.kind(), ErrorKind::PointTooOld { .. })),
            }
        }
    }
}

fn run(program: &[Do], history: Option<Duration>) {
    let mut run = Run::new(history);
    for (count, step) in program.iter().enumerate() {
        run.earlier.push(run.content.clone());
        run.step(count as u64, step);
        run.check(&format!("{count}: {step:?}"));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 300 }))]

    #[test]
    fn drawn_programs_read_as_a_model(program in program()) {
        run(&program, None);
    }

    #[test]
    fn drawn_programs_read_their_past_as_a_model(program in program()) {
        run(&program, Some(Duration::from_secs(3600)));
    }
}
