//! Sequences of operations against a map. The bytes say what to do to a database in memory, and to
//! one `BTreeMap` for each family. Every answer is compared. Flushes, compactions, closes and
//! deaths of the process happen in between.

use crate::batch::Batch;
use crate::db::Db;
use crate::env::Env;
use crate::family::Family;
use crate::format::Decoder;
use crate::options::{FamilyOptions, Options};
use crate::snapshot::Snapshot;
use crate::table::Codec;
use crate::vfs::MemoryFs;
use std::collections::BTreeMap;
use std::ops::{Bound, Range, RangeBounds};
use std::sync::Arc;

const FAMILIES: [&str; 2] = ["default", "side"];
const STEPS_MAX: usize = 300;
const SNAPSHOTS_MAX: usize = 4;

type Map = BTreeMap<Vec<u8>, Vec<u8>>;
type Maps = [Map; 2];
type Bounds = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// Does what the bytes say.
pub(super) fn operations(data: &[u8]) {
    let mut decoder = Decoder::new(data);
    let Ok(settings) = decoder.u8() else { return };
    let mut run = Run::new(MemoryFs::new(), settings, Maps::default());
    for step in 0..STEPS_MAX {
        let Ok(op) = decoder.u8() else { break };
        // A sequence ends when its bytes end.
        let Some(next) = run.step(step, op, &mut decoder) else { return };
        run = next;
    }
    run.check_all();
}

/// A database and its expected content.
struct Run {
    fs: MemoryFs,
    db: Db,
    families: [Family; 2],
    maps: Maps,
    snapshots: Vec<(Snapshot, Maps)>,
}

fn options(settings: u8, fs: &MemoryFs) -> Options {
    let codecs = [Codec::None, Codec::Lz4, Codec::Zstd, Codec::Snappy];
    let family = FamilyOptions::new()
        .codec(codecs[usize::from(settings & 3)])
        .block_size([256, 4096][usize::from(settings >> 2 & 1)])
        .filter_bits_per_key([0, 10][usize::from(settings >> 3 & 1)])
        .level_size_ratio([2, 10][usize::from(settings >> 4 & 1)]);
    Options::new()
        .env(Env { fs: Arc::new(fs.clone()), ..Env::system() })
        .write_buffer(64 << 10)
        .block_cache([0, 1 << 16][usize::from(settings >> 5 & 1)])
        .compaction_threads(1)
        .family(family)
}

impl Run {
    fn new(fs: MemoryFs, settings: u8, maps: Maps) -> Run {
        let db = options(settings, &fs).open("/db").expect("memory does not fail");
        let side = db.family(FAMILIES[1]).expect("memory does not fail");
        let families = [db.default_family(), side];
        Run { fs, db, families, maps, snapshots: Vec::new() }
    }

    /// Does one operation. `None` if the bytes end within it.
    fn step(mut self, step: usize, op: u8, decoder: &mut Decoder<'_>) -> Option<Run> {
        match op % 16 {
            0..4 => self.write(1, step, decoder)?,
            4 => {
                let count = decoder.u8().ok()? % 20;
                self.write(count, step, decoder)?;
            }
            5 => self.get(decoder)?,
            6 | 7 => self.scan(decoder)?,
            8 => {
                if self.snapshots.len() == SNAPSHOTS_MAX {
                    self.snapshots.remove(usize::from(decoder.u8().ok()?) % SNAPSHOTS_MAX);
                }
                self.snapshots.push((self.db.snapshot(), self.maps.clone()));
            }
            9 => self.snapshots.truncate(usize::from(decoder.u8().ok()? % 4)),
            10 => self.db.flush().expect("memory does not fail"),
            11 => {
                let family = usize::from(decoder.u8().ok()? & 1);
                let bounds = bounds(decoder)?;
                self.families[family].compact(bounds).expect("memory");
            }
            12 => {
                self.db.sync().expect("memory does not fail");
                self.db.wait_for_compactions(None).expect("memory does not fail");
            }
            13 => self.check_all(),
            14 => return self.reopen(decoder.u8().ok()?),
            _ => return self.die(decoder.u8().ok()?),
        }
        Some(self)
    }

    /// Puts, deletes and range deletes. Bit 0 of a byte selects the family, bits 1 and 2 the
    /// operation.
    fn write(&mut self, count: u8, step: usize, decoder: &mut Decoder<'_>) -> Option<()> {
        let mut batch = Batch::new();
        for nth in 0..count {
            let how = decoder.u8().ok()?;
            let family = usize::from(how & 1);
            if how >> 1 & 3 == 2 && how >> 3 & 1 == 0 {
                let bounds = bounds(decoder)?;
                self.delete_range(family, bounds, &mut batch);
                continue;
            }
            let key = key(decoder)?;
            if how >> 1 & 3 == 0 {
                batch.of(&self.families[family]).delete(&key);
                self.maps[family].remove(&key);
            } else {
                let mut value = format!("{step}.{nth}.").into_bytes();
                value.resize(usize::from(decoder.u8().ok()?) * usize::from(how >> 3), how);
                batch.of(&self.families[family]).put(&key, &value);
                self.maps[family].insert(key, value);
            }
        }
        if step.is_multiple_of(2) {
            // Writing a batch twice has the same result as writing it once.
            self.db.write(&mut batch).expect("memory does not fail");
        }
        self.db.write(batch).expect("memory does not fail");
        Some(())
    }

    fn delete_range(&mut self, family: usize, (lower, upper): Bounds, batch: &mut Batch) {
        let is_reversed = match (&lower, &upper) {
            (Bound::Included(a) | Bound::Excluded(a), Bound::Included(b) | Bound::Excluded(b)) => {
                a > b
            }
            _ => false,
        };
        let (lower, upper) = if is_reversed { (upper, lower) } else { (lower, upper) };
        batch.of(&self.families[family]).delete_range((lower.clone(), upper.clone()));
        self.maps[family].retain(|key, _| !(lower.clone(), upper.clone()).contains(key));
    }

    fn get(&self, decoder: &mut Decoder<'_>) -> Option<()> {
        let which = decoder.u8().ok()?;
        let family = usize::from(which & 1);
        let key = key(decoder)?;
        let found = self.families[family].get(&key).expect("memory does not fail");
        assert_eq!(found.as_deref(), self.maps[family].get(&key).map(Vec::as_slice));
        let is_there = self.families[family].contains(&key).expect("memory does not fail");
        assert_eq!(is_there, self.maps[family].contains_key(&key));
        let first = self.families[family].first().expect("memory does not fail");
        assert_eq!(first.as_ref().map(|(key, _)| &**key), first_of(&self.maps[family]));
        let last = self.families[family].last().expect("memory does not fail");
        let last_of = self.maps[family].last_key_value().map(|(key, _)| &**key);
        assert_eq!(last.as_ref().map(|(key, _)| &**key), last_of);
        let count = self.families[family].count(..).expect("memory does not fail");
        assert_eq!(count, self.maps[family].len() as u64);
        if let Some((snapshot, maps)) = self.snapshots.get(usize::from(which >> 1)) {
            let found = snapshot.of(&self.families[family]).get(&key).expect("memory");
            assert_eq!(found.as_deref(), maps[family].get(&key).map(Vec::as_slice));
        }
        Some(())
    }

    /// Reads a range from both ends. The bits of a byte give the order.
    fn scan(&self, decoder: &mut Decoder<'_>) -> Option<()> {
        let which = decoder.u8().ok()?;
        let family = usize::from(which & 1);
        let order = decoder.u8().ok()?;
        let bounds = bounds(decoder)?;
        let (mut range, maps) = match self.snapshots.get(usize::from(which >> 1)) {
            Some((snapshot, maps)) => {
                (snapshot.of(&self.families[family]).range(bounds.clone()), maps)
            }
            None => (self.families[family].range(bounds.clone()), &self.maps),
        };
        let is_empty = match (&bounds.0, &bounds.1) {
            (Bound::Included(a) | Bound::Excluded(a), Bound::Included(b) | Bound::Excluded(b)) => {
                a > b
                    || (a == b
                        && bounds != (Bound::Included(a.clone()), Bound::Included(b.clone())))
            }
            _ => false,
        };
        let none = Map::new();
        let mut expected =
            if is_empty { none.range::<Vec<u8>, _>(..) } else { maps[family].range(bounds) };
        for turn in 0.. {
            let (found, wanted) = match order >> (turn % 8) & 1 {
                0 => (range.next(), expected.next()),
                _ => (range.next_back(), expected.next_back()),
            };
            let found = found.map(|item| item.expect("memory does not fail"));
            assert_eq!(
                found.as_ref().map(|(key, value)| (&**key, &**value)),
                wanted.map(|(key, value)| (key.as_slice(), value.as_slice()))
            );
            if found.is_none() {
                break;
            }
        }
        Some(())
    }

    fn check_all(&self) {
        let all = [(None, &self.maps)];
        let taken = self.snapshots.iter().map(|(snapshot, maps)| (Some(snapshot), maps));
        for (snapshot, maps) in all.into_iter().chain(taken) {
            for (family, map) in self.families.iter().zip(maps) {
                let range = match snapshot {
                    Some(snapshot) => snapshot.of(family).range(..),
                    None => family.range(..),
                };
                let found: Vec<_> = range.map(|item| item.expect("memory")).collect();
                let found = found.iter().map(|(key, value)| (&**key, &**value));
                assert!(found.eq(map.iter().map(|(k, v)| (k.as_slice(), v.as_slice()))));
                for (key, value) in map {
                    let found = match snapshot {
                        Some(snapshot) => snapshot.of(family).get(key),
                        None => family.get(key),
                    };
                    assert_eq!(found.expect("memory").as_deref(), Some(value.as_slice()));
                }
            }
        }
    }

    fn reopen(self, settings: u8) -> Option<Run> {
        let Run { fs, db, maps, snapshots, families } = self;
        drop((snapshots, families));
        db.close().expect("memory does not fail");
        Some(Run::new(fs, settings, maps))
    }

    /// The process dies and another one opens the database: nothing acknowledged may be lost.
    fn die(self, settings: u8) -> Option<Run> {
        let left = self.fs.killed();
        let run = Run::new(left, settings, self.maps.clone());
        run.check_all();
        Some(run)
    }
}

fn first_of(map: &Map) -> Option<&[u8]> {
    map.first_key_value().map(|(key, _)| &**key)
}

/// Mostly short keys from a small space, sometimes a long key or the empty key.
fn key(decoder: &mut Decoder<'_>) -> Option<Vec<u8>> {
    let first = decoder.u8().ok()?;
    Some(match first % 8 {
        0 if first == 0 => Vec::new(),
        0 => vec![first; 200],
        1 => vec![0xff; usize::from(first >> 3) + 1],
        2 => vec![first >> 3, 0],
        _ => vec![b'k', first >> 3],
    })
}

fn bounds(decoder: &mut Decoder<'_>) -> Option<Bounds> {
    let how = decoder.u8().ok()?;
    let bound = |how: u8, decoder: &mut Decoder<'_>| {
        Some(match how % 3 {
            0 => Bound::Unbounded,
            1 => Bound::Included(key(decoder)?),
            _ => Bound::Excluded(key(decoder)?),
        })
    };
    Some((bound(how, decoder)?, bound(how / 3, decoder)?))
}

/// Writes the bytes of a deliberate sequence. Keys are numbers below 96, in the default family.
struct Script(Vec<u8>);

impl Script {
    /// Uses the smallest blocks and the smallest level size ratio, and filters.
    fn new() -> Script {
        Script(vec![1 << 3])
    }

    fn key(nth: u8) -> u8 {
        (nth % 32) << 3 | (1 + nth / 32)
    }

    /// One batch of at most 19 keys, with values of 255 × `scale` bytes.
    fn put(mut self, keys: Range<u8>, scale: u8) -> Script {
        self.0.extend([4, keys.len() as u8]);
        keys.for_each(|nth| self.0.extend([2 | scale << 3, Script::key(nth), 255]));
        self
    }

    fn delete(mut self, nth: u8) -> Script {
        self.0.extend([0, 0, Script::key(nth)]);
        self
    }

    /// Deletes the keys from `from` on and below `to`.
    fn delete_range(mut self, from: u8, to: u8) -> Script {
        self.0.extend([0, 4, 1 + 2 * 3, Script::key(from), Script::key(to)]);
        self
    }

    fn snapshot(mut self) -> Script {
        self.0.push(8);
        self
    }

    fn flush(mut self) -> Script {
        self.0.push(10);
        self
    }

    fn compact(mut self) -> Script {
        self.0.extend([11, 0, 0]);
        self
    }

    /// Checks everything after all compactions are done.
    fn check(mut self) -> Script {
        self.0.extend([12, 13]);
        self
    }
}

/// Data that a snapshot sees is overwritten and deleted, then compacted.
fn compacted_under_a_snapshot() -> Vec<u8> {
    let script = Script::new().put(0..10, 1).flush().snapshot().put(0..5, 1).delete(7).flush();
    script.compact().check().snapshot().put(3..9, 1).compact().check().0
}

/// Deletes of keys whose values are some levels below, compacted several times.
fn deleted_above_old_versions() -> Vec<u8> {
    let batches = (0..6).map(|nth| nth * 16..nth * 16 + 16);
    let mut script = batches.fold(Script::new(), |script, keys| script.put(keys, 31)).compact();
    for nth in 0..10 {
        script = script.delete(nth * 9).put(nth..nth + 2, 2).flush().check();
    }
    script.0
}

/// Range deletes between puts and snapshots, over several levels.
fn ranges_deleted_under_snapshots() -> Vec<u8> {
    let batches = (0..6).map(|nth| nth * 16..nth * 16 + 16);
    let mut script = batches.fold(Script::new(), |script, keys| script.put(keys, 31)).compact();
    for nth in 0..6 {
        script = script.snapshot().delete_range(nth * 7, nth * 7 + 20).put(nth..nth + 2, 2);
        script = script.flush().check().delete_range(nth, nth + 40).check().flush();
    }
    script.compact().check().0
}

/// Initial inputs: deliberate sequences, and random ones from a small generator.
pub(super) fn seeds(_: &str) -> Vec<Vec<u8>> {
    let stream = |mut state: u64, len: usize| -> Vec<u8> {
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 56) as u8
        };
        (0..len).map(|_| next()).collect()
    };
    vec![
        stream(1, 80),
        stream(2, 300),
        stream(3, 1200),
        vec![0x2d],
        compacted_under_a_snapshot(),
        deleted_above_old_versions(),
        ranges_deleted_under_snapshots(),
    ]
}
