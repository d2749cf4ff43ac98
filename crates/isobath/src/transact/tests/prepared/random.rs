//! Drawn programs of prepared transactions beside a model: range deletes, two families, all levels,
//! flushes, compactions, snapshots, readers beside the writer, kills, power cuts and repairs.
//!
//! One thread drives all and no lock is waited for, so the model says of each write whether
//! something in doubt bars it. `ISOBATH_PREPARED_SEEDS=from..to` runs other seeds.

mod model;

use super::*;
use crate::options::{Durability, FamilyOptions, WriteOptions};
use crate::{Batch, Family, Range as Rows, Snapshot, Transaction};
use model::{Entry, Map, Maps, Rng, Write};
use std::collections::BTreeMap;
use std::ops::ControlFlow;

const STEPS: u32 = 250;
const SEEDS: std::ops::Range<u64> = 1..9;
const XIDS: u64 = 12;
const LEVELS: [Isolation; 4] = [
    Isolation::ReadCommitted,
    Isolation::RepeatableRead,
    Isolation::Snapshot,
    Isolation::Serializable,
];

fn options(fs: &MemoryFs) -> Options {
    over(fs)
        .lock_timeout(Duration::ZERO)
        .write_buffer(256 << 10)
        .durability(Durability::Sync)
        .compaction_threads(1)
        .family(FamilyOptions::new().block_size(256).level_size_ratio(2))
}

fn rows(range: Rows<'_>) -> Vec<(Vec<u8>, Vec<u8>)> {
    let pair = |item: crate::Result<(crate::Value, crate::Value)>| {
        let (key, value) = item.unwrap();
        (key.to_vec(), value.to_vec())
    };
    range.map(pair).collect()
}

fn content(db: &Db) -> Maps {
    let side = db.family_if_exists("side").unwrap().unwrap();
    [rows(db.range(..)), rows(side.range(..))].map(|rows| rows.into_iter().collect())
}

struct World {
    seed: u64,
    step: u32,
    rng: Rng,
    fs: MemoryFs,
    db: Db,
    families: [Family; 2],
    maps: Maps,
    doubt: BTreeMap<String, Entry>,
    snapshots: Vec<(Snapshot, Maps)>,
    reader: Option<Db>,
}

impl World {
    fn new(seed: u64) -> World {
        let fs = MemoryFs::new();
        let db = options(&fs).open("/db").unwrap();
        let families = [db.default_family(), db.family("side").unwrap()];
        World {
            seed,
            step: 0,
            rng: Rng::new(seed),
            fs,
            db,
            families,
            maps: Maps::default(),
            doubt: BTreeMap::new(),
            snapshots: Vec::new(),
            reader: None,
        }
    }

    fn run(&mut self) {
        for step in 0..STEPS {
            self.step = step;
            match self.rng.below(20) {
                0..3 => self.write_batch(),
                3..9 => self.transact(),
                9..12 => self.decide(),
                12 => self.db.flush().unwrap(),
                13 if self.rng.one_in(2) => self.families[1].compact(..).unwrap(),
                13 => self.db.compact().unwrap(),
                14 => self.take_snapshot(),
                15 => self.check_snapshots(),
                16 => self.pop(),
                17 => self.read_beside(),
                18 => self.repair_copy(),
                _ => self.reopen(),
            }
            if step % 10 == 0 {
                assert!(content(&self.db) == self.maps, "{}", self.place());
            }
        }
    }

    fn place(&self) -> String {
        format!("seed {} step {}", self.seed, self.step)
    }

    fn draw_write(&mut self) -> Write {
        let family = self.rng.below(2) as usize;
        match self.rng.below(4) {
            0 => Write::Delete(family, self.rng.key()),
            1 => Write::DeleteRange(family, self.rng.range()),
            _ => {
                let mut value = self.step.to_string().into_bytes();
                value.resize([3, 100, 2000][self.rng.below(3) as usize], b'.');
                Write::Put(family, self.rng.key(), value)
            }
        }
    }

    fn is_barred(&self, writes: &[Write]) -> bool {
        self.doubt.values().any(|entry| entry.bars(writes))
    }

    fn apply(&mut self, writes: &[Write]) {
        writes.iter().for_each(|write| write.apply(&mut self.maps));
    }

    fn write_batch(&mut self) {
        let writes: Vec<Write> = (0..=self.rng.below(6)).map(|_| self.draw_write()).collect();
        let mut batch = Batch::new();
        for write in &writes {
            match write {
                Write::Put(of, key, value) => {
                    batch.of(&self.families[*of]).put(key, value);
                }
                Write::Delete(of, key) => {
                    batch.of(&self.families[*of]).delete(key);
                }
                Write::DeleteRange(of, range) => {
                    batch.of(&self.families[*of]).delete_range(range.bounds());
                }
            }
        }
        let told = self.db.write(batch);
        assert_eq!(told.is_err(), self.is_barred(&writes), "{} {told:?}", self.place());
        if told.is_ok() {
            self.apply(&writes);
        }
    }

    /// What a transaction does, and what it saw, which must be the model's and its own. None if a
    /// range delete met a lock.
    fn draw_transaction(&mut self, tx: &Transaction, level: Isolation) -> Entry {
        let (mut entry, mut own) = (Entry::default(), self.maps.clone());
        let keeps_keys = matches!(level, Isolation::RepeatableRead | Isolation::Serializable);
        for _ in 0..=self.rng.below(6) {
            let family = self.rng.below(2) as usize;
            let part = tx.of(&self.families[family]);
            match self.rng.below(7) {
                0 => {
                    let key = self.rng.key();
                    let got = part.get(&key).unwrap().map(|value| value.to_vec());
                    assert_eq!(got.as_ref(), own[family].get(&key), "{}", self.place());
                    entry.reads.extend(keeps_keys.then_some((family, key)));
                }
                1 => {
                    let range = self.rng.range();
                    let got: Map = rows(part.range(range.bounds())).into_iter().collect();
                    let mut want = own[family].clone();
                    want.retain(|key, _| range.holds(key));
                    assert!(got == want, "{} {range:?}", self.place());
                    match level {
                        Isolation::Serializable => entry.scans.push((family, range)),
                        Isolation::RepeatableRead => {
                            entry.reads.extend(want.into_keys().map(|key| (family, key)));
                        }
                        _ => {}
                    }
                }
                _ => {
                    let write = self.draw_write();
                    match &write {
                        Write::Put(of, key, value) => {
                            tx.of(&self.families[*of]).put(key, value).unwrap();
                        }
                        Write::Delete(of, key) => tx.of(&self.families[*of]).delete(key).unwrap(),
                        Write::DeleteRange(of, range) => {
                            tx.of(&self.families[*of]).delete_range(range.bounds()).unwrap();
                        }
                    }
                    write.apply(&mut own);
                    entry.writes.push(write);
                }
            }
        }
        entry
    }

    fn transact(&mut self) {
        let level = LEVELS[self.rng.below(4) as usize];
        let with = TransactionOptions::new().isolation(level).lock_timeout(Duration::ZERO);
        let tx = self.db.with(with).begin();
        let entry = self.draw_transaction(&tx, level);
        let is_barred = self.is_barred(&entry.writes);
        if self.rng.one_in(3) {
            let told = tx.commit();
            assert_eq!(told.is_err(), is_barred, "{} {told:?} {entry:?}", self.place());
            if told.is_ok() {
                self.apply(&entry.writes);
            }
            return;
        }
        let name = format!("x{}", self.rng.below(XIDS));
        match tx.prepare(name.as_str()).map(drop) {
            told if self.doubt.contains_key(&name) => {
                assert_eq!(told.unwrap_err().name(), "TRANSACTION_EXISTS", "{}", self.place());
            }
            Ok(()) => {
                assert!(!is_barred, "{} {entry:?}", self.place());
                self.doubt.insert(name, entry);
            }
            Err(error) => {
                let may_bar = self.doubt.values().any(|other| other.may_bar(&entry));
                assert!(may_bar && error.is_conflict(), "{} {error} {entry:?}", self.place());
            }
        }
    }

    fn decide(&mut self) {
        let name = format!("x{}", self.rng.below(XIDS));
        let is_commit = !self.rng.one_in(3);
        let told = match is_commit {
            true => self.db.commit_prepared(&xid(&name)).map(drop),
            false => self.db.rollback_prepared(&xid(&name)),
        };
        let Some(entry) = self.doubt.remove(&name) else {
            return assert_eq!(told.unwrap_err().name(), "UNKNOWN_TRANSACTION");
        };
        told.unwrap();
        if is_commit {
            self.apply(&entry.writes);
        }
    }

    fn take_snapshot(&mut self) {
        if self.snapshots.len() > 3 {
            self.snapshots.remove(self.rng.below(4) as usize);
        }
        self.snapshots.push((self.db.snapshot(), self.maps.clone()));
    }

    fn check_snapshots(&mut self) {
        let key = self.rng.key();
        for (snapshot, maps) in &self.snapshots {
            for (family, map) in self.families.iter().zip(maps) {
                let mut got: Vec<_> = snapshot.of(family).range(..).rev().collect();
                got.reverse();
                let got = got.into_iter().map(Result::unwrap);
                let got: Map = got.map(|(key, value)| (key.to_vec(), value.to_vec())).collect();
                assert!(got == *map, "{}", self.place());
            }
            let got = snapshot.get(&key).unwrap().map(|value| value.to_vec());
            assert_eq!(got.as_ref(), maps[0].get(&key), "{}", self.place());
        }
    }

    /// A step, which wants one end of a range and no more.
    fn pop(&mut self) {
        let (range, family) = (self.rng.range(), self.families[1].clone());
        let first = self.maps[1].iter().find(|(key, _)| range.holds(key));
        let first = first.map(|(key, value)| (key.clone(), value.clone()));
        match family.with(WriteOptions::new().fail_fast(true)).pop_first(range.bounds()) {
            Ok(got) => {
                let got = got.map(|(key, value)| (key.to_vec(), value.to_vec()));
                assert_eq!(got, first, "{}", self.place());
                if let Some((key, _)) = got {
                    let write = Write::Delete(1, key);
                    assert!(!self.is_barred(std::slice::from_ref(&write)), "{}", self.place());
                    self.apply(&[write]);
                }
            }
            Err(error) => {
                let is_met = self.doubt.values().any(|entry| entry.touches(1, &range));
                let is_told = error.name() == "WOULD_STALL";
                assert!(is_met && is_told, "{} {error} {range:?}", self.place());
            }
        }
    }

    fn names(&self) -> Vec<String> {
        self.doubt.keys().cloned().collect()
    }

    /// A reader beside the writer, new or one that catches up.
    fn read_beside(&mut self) {
        let reader = match self.reader.take() {
            Some(reader) if !self.rng.one_in(3) => {
                reader.catch_up().unwrap();
                reader
            }
            _ => options(&self.fs).read_only(true).open("/db").unwrap(),
        };
        assert_eq!(names(&reader), self.names(), "{}", self.place());
        assert!(content(&reader) == self.maps, "{}", self.place());
        self.reader = Some(reader);
    }

    /// Verifies and repairs what a kill or a power cut would leave, with its manifest or without.
    fn repair_copy(&mut self) {
        let left = if self.rng.one_in(2) { self.fs.killed() } else { self.fs.crashed(|_| 0) };
        let env = || Env { fs: Arc::new(left.clone()), ..Env::system() };
        let report = crate::tools::verify(Path::new("/db"), &env(), &mut |_, _| ()).unwrap();
        let is_harmless = report.findings.iter().all(|one| one.detail.contains("no data is lost"));
        assert!(is_harmless, "{} {report:?}", self.place());
        if self.rng.one_in(2) {
            left.remove(Path::new("/db/CURRENT")).unwrap();
        }
        let with = crate::tools::RepairOptions::new().env(env());
        let mut go_on = |_, _| ControlFlow::Continue(());
        crate::tools::repair(Path::new("/db"), &with, &mut go_on).unwrap();
        let copy = options(&left).open("/db").unwrap();
        assert_eq!(names(&copy), self.names(), "{}", self.place());
        assert!(content(&copy) == self.maps, "{}", self.place());
    }

    /// Opens the database again after a close, a kill or a power cut.
    fn reopen(&mut self) {
        self.snapshots.clear();
        self.reader = None;
        match self.rng.below(4) {
            0 => self.db.clone().close().unwrap(),
            1 => self.fs = self.fs.killed(),
            _ => {
                let mut rng = Rng::new(self.rng.below(1 << 30));
                self.fs = self.fs.crashed(move |_| rng.below(3) as usize);
            }
        }
        self.db = options(&self.fs).open("/db").unwrap();
        self.families = [self.db.default_family(), self.db.family("side").unwrap()];
        assert_eq!(names(&self.db), self.names(), "{}", self.place());
    }
}

#[test]
fn drawn_programs_of_prepared_transactions_leave_what_the_model_has() {
    let given = std::env::var("ISOBATH_PREPARED_SEEDS").ok();
    let parsed = given.and_then(|seeds| {
        let (from, to) = seeds.split_once("..")?;
        Some(from.parse().ok()?..to.parse().ok()?)
    });
    for seed in parsed.unwrap_or(SEEDS) {
        World::new(seed).run();
    }
}
