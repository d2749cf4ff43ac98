//! Drawn programs of large transactions beside a model: all levels, range deletes, operands,
//! savepoints, pops, snapshots and earlier points, open iterators, families that come and go,
//! flushes and compactions, readers beside the writer, kills, power cuts and repairs.
//!
//! One thread drives all. Flushes may be kept back, so that layers lie in the views for long.
//! `ISOBATH_LARGE_SEEDS=from..to` runs other seeds.

mod model;

use super::*;
use crate::options::{Durability, FamilyOptions, TransactionOptions};
use crate::tools::{self, RepairOptions};
use crate::{Range as Rows, ReadPoint, Snapshot};
use model::{Done, Maps, Read, Span, Write, bounds, is_in};
use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::time::Duration;

const STEPS: u32 = 120;
const SEEDS: std::ops::Range<u64> = 1..7;
const LEVELS: [Isolation; 5] = [
    Isolation::ReadUncommitted,
    Isolation::ReadCommitted,
    Isolation::RepeatableRead,
    Isolation::Snapshot,
    Isolation::Serializable,
];
/// The default family, another one, one that merges, and one that comes and goes.
const COUNT: usize = 4;
const MERGING: usize = 2;
const BRIEF: usize = 3;

/// An iterator, and what is left of what it shows.
type Open = (Rows<'static>, VecDeque<(Vec<u8>, Vec<u8>)>);

struct World {
    // Declared first: what closes the database waits for a flush.
    busy: Option<Busy>,
    seed: u64,
    step: u32,
    rng: Rng,
    fs: MemoryFs,
    db: Db,
    families: Vec<Family>,
    maps: Maps,
    has_brief: bool,
    snapshots: Vec<(Snapshot, Vec<Family>, Maps)>,
    points: Vec<(ReadPoint, Maps)>,
    iters: Vec<Open>,
    reader: Option<Db>,
    conflicts: u32,
    committed: u32,
}

fn options(fs: &MemoryFs, seed: u64) -> Options {
    let mut options = over(fs)
        .lock_timeout(Duration::ZERO)
        .write_buffer(256 << 10)
        .durability(Durability::Sync)
        .history(Duration::from_secs(3600))
        .compaction_threads(1)
        .family(FamilyOptions::new().block_size(256).level_size_ratio(2));
    options.sizes.footprint_max = [2000, 6000, 20_000][seed as usize % 3];
    options.sizes.spill_files_max = [2, 3, 14][seed as usize / 3 % 3];
    options.sizes.large_from = 0;
    options.sizes.l0_trigger_runs = 3;
    options
}

fn families_of(db: &Db, has_brief: bool) -> Vec<Family> {
    let merging = || FamilyOptions::new().block_size(256).merge_operator("isobath.append");
    let mut families = vec![
        db.default_family(),
        db.family("side").unwrap(),
        db.family(("sums", merging())).unwrap(),
    ];
    if has_brief {
        families.push(db.family("brief").unwrap());
    }
    families
}

impl World {
    fn new(seed: u64) -> World {
        let fs = MemoryFs::new();
        let db = options(&fs, seed).open("/db").unwrap();
        World {
            seed,
            step: 0,
            rng: Rng(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15)),
            families: families_of(&db, true),
            fs,
            db,
            maps: Maps::default(),
            has_brief: true,
            snapshots: Vec::new(),
            points: Vec::new(),
            iters: Vec::new(),
            reader: None,
            busy: None,
            conflicts: 0,
            committed: 0,
        }
    }

    fn place(&self) -> String {
        format!("seed {} step {}", self.seed, self.step)
    }

    fn key(&mut self) -> Vec<u8> {
        let letters = [0, b'a', b'b', b'c', 0xff];
        let len = 1 + self.rng.below(3);
        match self.rng.below(40) {
            0 => Vec::new(),
            1 => vec![0xff; 900],
            _ => (0..len).map(|_| letters[self.rng.below(5) as usize]).collect(),
        }
    }

    fn range(&mut self) -> Span {
        let mut ends = [self.key(), self.key()];
        ends.sort();
        let [from, to] = ends;
        match self.rng.below(12) {
            0 => (Vec::new(), None),
            1 => (from, None),
            _ => (from, Some(to)),
        }
    }

    fn family(&mut self) -> usize {
        self.rng.below(self.families.len() as u64) as usize
    }

    fn write(&mut self, merges: bool, len: u64) -> Write {
        let at = self.family();
        match self.rng.below(14) {
            0 => Write::DeleteRange(at, self.range()),
            1..4 => Write::Delete(at, self.key()),
            4..7 if merges && at == MERGING => {
                Write::Merge(at, self.key(), format!("<{}>", self.step).into_bytes())
            }
            _ => {
                let mut value = self.step.to_string().into_bytes();
                value.resize(2 + self.rng.below(len) as usize, b'.');
                Write::Put(at, self.key(), value)
            }
        }
    }

    fn run(&mut self) {
        for step in 0..STEPS {
            self.step = step;
            match self.rng.below(27) {
                0..4 => self.write_some(),
                4..11 => self.transact(),
                11 => self.settle(|world| world.db.flush().unwrap()),
                12 => self.settle(|world| world.db.compact().unwrap()),
                13 | 14 => self.take(),
                15 | 16 => self.check_older(),
                17 => self.pop(),
                18 | 19 => self.read_beside(),
                20 | 21 => self.check_copy(),
                22 => self.change_family(),
                23 => self.reopen(),
                24 => self.repair_without_manifest(),
                _ => self.step_iters(),
            }
            self.check();
        }
        self.busy = None;
    }

    fn settle(&mut self, act: impl FnOnce(&mut World)) {
        self.busy = None;
        act(self);
    }

    fn check(&mut self) {
        for (family, map) in self.families.iter().zip(&self.maps) {
            assert!(rows(family.range(..)) == *map, "{} {}", self.place(), family.name());
        }
        for _ in 0..6 {
            let (at, key) = (self.family(), self.key());
            let (family, map) = (&self.families[at], &self.maps[at]);
            let got = family.get(&key).unwrap().map(|value| value.to_vec());
            assert_eq!(got.as_ref(), map.get(&key), "{} {at} {key:?}", self.place());
            assert_eq!(family.contains(&key).unwrap(), map.contains_key(&key));
            let mut cursor = family.cursor(..).unwrap();
            let key_of = |entry: crate::Entry<'_>| entry.key().to_vec();
            let got = cursor.seek(&key).unwrap().map(key_of);
            assert_eq!(got.as_ref(), map.range(key.clone()..).next().map(|(key, _)| key));
            let got = cursor.prev().unwrap().map(key_of);
            let before = map.range(..key.clone()).next_back().map(|(key, _)| key);
            assert_eq!(got.as_ref(), before, "{} {at} {key:?}", self.place());
            let got = cursor.seek_for_prev(&key).unwrap().map(key_of);
            assert_eq!(got.as_ref(), map.range(..=key.clone()).next_back().map(|(key, _)| key));
            let got = cursor.next().unwrap().map(key_of);
            let behind = (Bound::Excluded(key.clone()), Bound::Unbounded);
            let behind = map.range::<Vec<u8>, _>(behind).next().map(|(key, _)| key);
            assert_eq!(got.as_ref(), behind, "{} {at} {key:?}", self.place());
            family.estimate(..).unwrap();
        }
    }

    fn write_some(&mut self) {
        for _ in 0..=self.rng.below(5) {
            let write = self.write(true, 60);
            write.to_db(&self.families).unwrap();
            write.apply(&mut self.maps);
        }
    }

    /// A transaction that goes to files, mostly, while others write or do not.
    fn transact(&mut self) {
        self.busy = None;
        if self.rng.below(2) == 0 {
            self.busy = Some(Busy::flusher(&self.db));
        }
        let level = LEVELS[self.rng.below(5) as usize];
        let with = TransactionOptions::new().isolation(level).lock_timeout(Duration::ZERO);
        let tx = self.db.with(with.locking(self.rng.below(5) == 0)).begin();
        let base = self.maps.clone();
        let done = self.draw_transaction(&tx);
        let has_others = self.rng.below(3) == 0 && self.write_others();
        if has_others {
            // Its flush has to end.
            self.busy = None;
        }
        match tx.commit() {
            Ok(_) => {
                self.committed += 1;
                if has_others {
                    self.check_reads(level, base, &done);
                }
                done.writes.iter().for_each(|write| write.apply(&mut self.maps));
            }
            Err(error) => {
                assert!(has_others && error.is_conflict(), "{} {level:?} {error}", self.place());
                self.conflicts += 1;
            }
        }
    }

    /// Writes between the transaction's operations and its commit. True if there are any.
    fn write_others(&mut self) -> bool {
        let mut has_others = false;
        for _ in 0..self.rng.below(3) {
            let write = self.write(true, 60);
            match write.to_db(&self.families) {
                Ok(()) => {
                    write.apply(&mut self.maps);
                    has_others = true;
                }
                Err(error) => assert!(error.is_conflict(), "{} {error}", self.place()),
            }
        }
        has_others
    }

    fn draw_transaction(&mut self, tx: &Transaction) -> Done {
        let len = [40, 200, 900][self.rng.below(3) as usize];
        let mut done = Done::of(self.maps.clone());
        let mut saved = None;
        for _ in 0..self.rng.below(150) {
            match self.rng.below(20) {
                0 => self.read_key(tx, &mut done),
                1 => self.read_range(tx, &mut done),
                2 => self.pop_in(tx, &mut done),
                3 if self.rng.below(4) == 0 => self.save(tx, &mut done, &mut saved),
                _ => {
                    let merges = self.rng.below(40) == 0;
                    let write = self.write(merges, len);
                    match write.to_tx(tx, &self.families) {
                        Ok(()) => done.write(write),
                        Err(error) => self.assert_too_large(&error),
                    }
                }
            }
        }
        done
    }

    #[track_caller]
    fn assert_too_large(&self, error: &crate::Error) {
        assert_eq!(error.name(), "TRANSACTION_TOO_LARGE", "{}", self.place());
    }

    fn read_key(&mut self, tx: &Transaction, done: &mut Done) {
        let (at, key) = (self.family(), self.key());
        let got = tx.of(&self.families[at]).get(&key).unwrap().map(|value| value.to_vec());
        assert_eq!(got.as_ref(), done.own[at].get(&key), "{} {key:?}", self.place());
        done.read(Read::Key(at, key));
    }

    fn read_range(&mut self, tx: &Transaction, done: &mut Done) {
        let (at, range) = (self.family(), self.range());
        let want = done.own[at].iter().filter(|(key, _)| is_in(key, &range));
        let part = tx.of(&self.families[at]);
        if self.rng.below(2) == 0 {
            let got = rows(part.range(bounds(&range)));
            assert!(got.iter().eq(want), "{} {range:?}", self.place());
        } else {
            let got = part.range(bounds(&range)).rev().map(|row| row.unwrap().0);
            let want = want.rev().map(|(key, _)| key);
            assert!(got.map(|key| key.to_vec()).eq(want.cloned()), "{}", self.place());
        }
        done.read(Read::Range(at, range));
    }

    fn pop_in(&mut self, tx: &Transaction, done: &mut Done) {
        let (at, range) = (self.family(), self.range());
        let want = done.own[at].keys().find(|key| is_in(key, &range)).cloned();
        let got = match tx.of(&self.families[at]).pop_first(bounds(&range)) {
            Ok(got) => got.map(|(key, _)| key.to_vec()),
            Err(error) => return self.assert_too_large(&error),
        };
        assert_eq!(got, want, "{} {range:?}", self.place());
        if let Some(key) = got {
            done.read(Read::Range(at, (range.0, Some([&key[..], &[0]].concat()))));
            done.write(Write::Delete(at, key));
        }
    }

    fn save(&mut self, tx: &Transaction, done: &mut Done, saved: &mut Option<(usize, Maps)>) {
        let Some((len, before)) = saved.take() else {
            tx.savepoint("s").unwrap();
            *saved = Some((done.writes.len(), done.own.clone()));
            return;
        };
        if self.rng.below(2) == 0 {
            tx.rollback_to("s").unwrap();
            done.roll_back(len, before);
        }
        tx.release("s").unwrap();
    }

    /// What a committed transaction has read is the same at its commit.
    fn check_reads(&self, level: Isolation, mut then: Maps, all: &Done) {
        if !matches!(level, Isolation::RepeatableRead | Isolation::Serializable) {
            return;
        }
        let mut now = self.maps.clone();
        let mut done = 0;
        for (at, read) in &all.reads {
            for write in &all.writes[done..*at] {
                write.apply(&mut then);
                write.apply(&mut now);
            }
            done = *at;
            match read {
                Read::Key(of, key) => {
                    assert_eq!(then[*of].get(key), now[*of].get(key), "{} {key:?}", self.place());
                }
                Read::Range(of, range) if level == Isolation::Serializable => {
                    let of_range = |maps: &Maps| {
                        let rows = maps[*of].iter().filter(|(key, _)| is_in(key, range));
                        rows.map(|(key, value)| (key.clone(), value.clone())).collect::<Map>()
                    };
                    assert!(of_range(&then) == of_range(&now), "{} {range:?}", self.place());
                }
                Read::Range(..) => {}
            }
        }
    }

    fn take(&mut self) {
        if self.snapshots.len() > 3 {
            self.snapshots.remove(self.rng.below(4) as usize);
        }
        let snapshot = self.db.snapshot();
        self.points.push((snapshot.read_point(), self.maps.clone()));
        self.snapshots.push((snapshot, self.families.clone(), self.maps.clone()));
        let at = self.family();
        let all = self.maps[at].iter().map(|(key, value)| (key.clone(), value.clone())).collect();
        let mut iter = (self.families[at].range(..), all);
        // It pins its view when it first moves.
        step_iter(&mut iter, self.rng.below(2) == 0, "fresh");
        self.iters.push(iter);
        if self.iters.len() > 4 {
            self.iters.remove(0);
        }
    }

    fn check_older(&mut self) {
        let place = self.place();
        for (snapshot, families, maps) in &self.snapshots {
            for (family, map) in families.iter().zip(maps) {
                let reads = snapshot.of(family);
                assert!(rows(reads.range(..)) == *map, "{place} {}", family.name());
                let back: Vec<_> =
                    reads.range(..).rev().map(|row| row.unwrap().0.to_vec()).collect();
                assert!(back.iter().eq(map.keys().rev()), "{place}");
            }
        }
        if self.points.is_empty() {
            return;
        }
        let at = self.rng.below(self.points.len() as u64) as usize;
        let (point, maps) = &self.points[at];
        let snapshot = match self.db.snapshot_at(*point) {
            Ok(snapshot) => snapshot,
            // A power cut has lost the marker of an epoch below it.
            Err(error) if point.tag != self.db.oldest_readable().tag => {
                assert_eq!(error.name(), "POINT_TOO_OLD", "{place}");
                return drop(self.points.remove(at));
            }
            Err(error) => panic!("{place} {point:?} {error}"),
        };
        for (family, map) in self.families.iter().zip(maps).take(BRIEF) {
            assert!(rows(snapshot.of(family).range(..)) == *map, "{place} {at}");
            for key in map.keys() {
                assert_eq!(snapshot.of(family).get(key).unwrap().unwrap(), map[key], "{place}");
            }
        }
    }

    fn step_iters(&mut self) {
        let mut iters = std::mem::take(&mut self.iters);
        for iter in &mut iters {
            for _ in 0..self.rng.below(10) {
                step_iter(iter, self.rng.below(2) == 0, &self.place());
            }
        }
        self.iters = iters;
    }

    fn pop(&mut self) {
        let (at, range) = (self.family(), self.range());
        let mut keys = self.maps[at].keys().filter(|key| is_in(key, &range));
        let (want, got) = match self.rng.below(2) {
            0 => (keys.next().cloned(), self.families[at].pop_first(bounds(&range))),
            _ => (keys.next_back().cloned(), self.families[at].pop_last(bounds(&range))),
        };
        let got = got.unwrap().map(|(key, _)| key.to_vec());
        assert_eq!(got, want, "{}", self.place());
        got.into_iter().for_each(|key| drop(self.maps[at].remove(&key)));
    }

    #[track_caller]
    fn assert_same(&self, db: &Db) {
        assert_eq!(db.family_if_exists("brief").unwrap().is_some(), self.has_brief);
        for (family, map) in self.families.iter().zip(&self.maps) {
            let family = db.family_if_exists(&family.name()).unwrap().unwrap();
            assert!(rows(family.range(..)) == *map, "{} {}", self.place(), family.name());
            for key in map.keys() {
                assert_eq!(family.get(key).unwrap().unwrap(), map[key], "{}", self.place());
            }
        }
    }

    fn read_beside(&mut self) {
        let reader = match self.reader.take() {
            Some(reader) if self.rng.below(3) > 0 => {
                reader.catch_up().unwrap();
                reader
            }
            _ => options(&self.fs, self.seed).read_only(true).open("/db").unwrap(),
        };
        self.assert_same(&reader);
        self.reader = Some(reader);
    }

    /// Opens, verifies or repairs what a kill or a power cut would leave.
    fn check_copy(&mut self) {
        let mut draw = Rng(self.rng.below(1 << 30));
        let left = match self.rng.below(3) {
            0 => self.fs.killed(),
            1 => self.fs.crashed(|_| 0),
            _ => self.fs.crashed(|it| draw.below(it.steps.len() as u64 + 1) as usize),
        };
        let env = || Env { fs: Arc::new(left.clone()), ..Env::system() };
        let report = tools::verify(Path::new("/db"), &env(), &mut |_, _| ()).unwrap();
        let is_harmless = report.findings.iter().all(|one| one.detail.contains("no data is lost"));
        assert!(is_harmless, "{} {report:?}", self.place());
        match self.rng.below(4) {
            0 => {}
            1 => {
                let reader = options(&left, self.seed).read_only(true).open("/db").unwrap();
                self.assert_same(&reader);
            }
            way => {
                if way == 3 {
                    left.remove(Path::new("/db/CURRENT")).unwrap();
                }
                repair(&left);
            }
        }
        let first = options(&left, self.seed).open("/db").unwrap();
        assert_eq!(spill_files(&left), 0);
        self.assert_same(&first);
        let again = left.crashed(|_| 0);
        drop(first);
        let again = options(&again, self.seed).open("/db").unwrap();
        self.assert_same(&again);
        again.compact().unwrap();
        self.assert_same(&again);
    }

    /// Repairs what a kill leaves, without the manifest.
    fn repair_without_manifest(&mut self) {
        let left = self.fs.killed();
        lose_manifest(&left);
        let report = repair(&left);
        let is_of_commit = |loss: &tools::Loss| loss.path.ends_with("spill");
        assert!(!report.losses.iter().any(is_of_commit), "{} {report:?}", self.place());
        let db = options(&left, self.seed).open("/db").unwrap();
        for (family, map) in self.families.iter().zip(&self.maps).take(BRIEF) {
            let family = db.family_if_exists(&family.name()).unwrap();
            let got = family.map(|family| rows(family.range(..))).unwrap_or_default();
            assert!(got == *map, "{} {report:?}", self.place());
        }
    }

    fn change_family(&mut self) {
        if self.has_brief && self.rng.below(3) == 0 {
            let name = format!("brief{}", self.step);
            self.db.rename_family(&self.families[BRIEF], &name).unwrap();
            self.db.rename_family(&self.families[BRIEF], "brief").unwrap();
        } else if self.has_brief {
            self.db.drop_family(&self.families[BRIEF]).unwrap();
            self.families.truncate(BRIEF);
            self.maps[BRIEF].clear();
            self.has_brief = false;
        } else {
            self.families.push(self.db.family("brief").unwrap());
            self.has_brief = true;
        }
    }

    fn reopen(&mut self) {
        self.snapshots.clear();
        self.iters.clear();
        self.reader = None;
        let mut draw = Rng(self.rng.below(1 << 30));
        match self.rng.below(3) {
            0 => {
                self.busy = None;
                self.db.clone().close().unwrap();
            }
            1 => self.fs = self.fs.killed(),
            _ => {
                self.fs = self.fs.crashed(|it| draw.below(it.steps.len() as u64 + 1) as usize);
            }
        }
        self.busy = None;
        self.db = options(&self.fs, self.seed).open("/db").unwrap();
        self.families = families_of(&self.db, self.has_brief);
    }
}

fn repair(fs: &MemoryFs) -> tools::RepairReport {
    let with = RepairOptions::new().env(Env { fs: Arc::new(fs.clone()), ..Env::system() });
    tools::repair(Path::new("/db"), &with, &mut |_, _| ControlFlow::Continue(())).unwrap()
}

#[track_caller]
fn step_iter((iter, left): &mut Open, is_forward: bool, place: &str) {
    let (got, want) = match is_forward {
        true => (iter.next(), left.pop_front()),
        false => (iter.next_back(), left.pop_back()),
    };
    let got = got.map(|row| row.unwrap()).map(|(key, value)| (key.to_vec(), value.to_vec()));
    assert!(got == want, "{place}");
}

#[test]
fn drawn_programs_of_large_transactions_leave_what_the_model_has() {
    let given = std::env::var("ISOBATH_LARGE_SEEDS").ok();
    let parsed = given.and_then(|seeds| {
        let (from, to) = seeds.split_once("..")?;
        Some(from.parse().ok()?..to.parse().ok()?)
    });
    let (mut conflicts, mut committed) = (0, 0);
    for seed in parsed.unwrap_or(SEEDS) {
        let mut world = World::new(seed);
        world.run();
        (conflicts, committed) = (conflicts + world.conflicts, committed + world.committed);
    }
    assert!(conflicts > 0 && committed > 20, "{conflicts} {committed}");
}
