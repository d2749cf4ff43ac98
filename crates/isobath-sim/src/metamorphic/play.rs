//! A stream played to the real engine, with real threads, under options of its own.

use super::settings;
use super::stream::{At, Bounds, Ends, Move, Op, PLACES, Stream};
use super::{Answers, Digest};
use isobath::env::Env;
use isobath::vfs::MemoryFs;
use isobath::{Batch, Cursor, Db, Family, Options, Range, Result, Snapshot, Value, WriteOptions};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The answers to every read of the stream, under options drawn from `rng`.
pub(super) fn answers(
    stream: &Stream,
    rng: &mut fastrand::Rng,
) -> std::result::Result<Answers, String> {
    let home = Home::new(rng.bool());
    let mut play = Play::open(home, rng).map_err(|error| format!("the first open: {error}"))?;
    let mut answers = Vec::new();
    for (at, op) in stream.ops.iter().enumerate() {
        match play.step(op, rng) {
            Ok(None) => {}
            Ok(Some(digest)) => answers.push((at, digest.0)),
            Err(error) => return Err(format!("operation {at}, {op:?}: {error}")),
        }
    }
    play.close().map_err(|error| format!("the last close: {error}"))?;
    Ok(answers)
}

/// Where the database is: in memory, or in a directory of the system's that goes away with it.
enum Home {
    Memory(MemoryFs),
    Files(PathBuf),
}

impl Home {
    fn new(in_memory: bool) -> Home {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        if in_memory {
            return Home::Memory(MemoryFs::new());
        }
        let nth = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("isobath-metamorphic-{}-{nth}", std::process::id());
        Home::Files(std::env::temp_dir().join(name))
    }

    fn open(&self, options: Options) -> Result<Db> {
        match self {
            Home::Memory(fs) => {
                let fs = Arc::new(fs.clone());
                options.env(Env { fs, ..Env::system() }).open("/db")
            }
            Home::Files(dir) => options.open(dir),
        }
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        if let Home::Files(dir) = self {
            // Nothing depends on its being gone.
            let _ = std::fs::remove_dir_all(dir);
        }
    }
}

struct Play {
    db: Db,
    families: [Option<Family>; PLACES],
    snapshots: BTreeMap<u8, Snapshot>,
    home: Home,
}

fn name(place: usize) -> String {
    format!("place {place}")
}

impl Play {
    fn open(home: Home, rng: &mut fastrand::Rng) -> Result<Play> {
        let db = home.open(settings::options(rng))?;
        let families = std::array::from_fn(|place| match place {
            0 => Some(db.default_family()),
            _ => db.family_if_exists(&name(place)).ok().flatten(),
        });
        Ok(Play { db, families, snapshots: BTreeMap::new(), home })
    }

    fn close(self) -> Result<Home> {
        drop(self.snapshots);
        self.db.close()?;
        Ok(self.home)
    }

    fn step(&mut self, op: &Op, rng: &mut fastrand::Rng) -> Result<Option<Digest>> {
        match op {
            Op::Write { writes, is_sync } => {
                let mut batch = Batch::new();
                for write in writes {
                    let Some(family) = &self.families[write.place] else { continue };
                    let mut part = batch.of(family);
                    match &write.value {
                        Some(value) => part.put(&write.key, value),
                        None => part.delete(&write.key),
                    };
                }
                let options = if *is_sync { WriteOptions::sync() } else { WriteOptions::default() };
                if batch.len() % 2 == 1 {
                    // Twice leaves what once leaves.
                    self.db.write(&mut batch)?;
                }
                self.db.with(options).write(batch)?;
            }
            Op::TakeSnapshot(nth) => drop(self.snapshots.insert(*nth, self.db.snapshot())),
            Op::DropSnapshot(nth) => drop(self.snapshots.remove(nth)),
            Op::Flush => self.db.flush()?,
            Op::Settle => drop(self.db.wait_for_compactions(None)?),
            Op::Compact { place, bounds } => {
                if let Some(family) = &self.families[*place] {
                    family.compact(bounds.clone())?;
                }
            }
            Op::ChangeFamily { place } => match self.families[*place].take() {
                Some(family) => self.db.drop_family(&family)?,
                None => {
                    let options = settings::family(rng);
                    let created = self.db.family((&name(*place), options))?;
                    self.families[*place] = Some(created);
                }
            },
            Op::Reopen => self.reopen(rng)?,
            _ => return self.read(op),
        }
        Ok(None)
    }

    fn reopen(&mut self, rng: &mut fastrand::Rng) -> Result<()> {
        self.snapshots.clear();
        self.db.clone().close()?;
        let home = std::mem::replace(&mut self.home, Home::Memory(MemoryFs::new()));
        *self = Play::open(home, rng)?;
        Ok(())
    }

    fn read(&self, op: &Op) -> Result<Option<Digest>> {
        let mut digest = Digest::new();
        let (Op::Get { place, .. }
        | Op::MultiGet { place, .. }
        | Op::Scan { place, .. }
        | Op::Prefix { place, .. }
        | Op::Walk { place, .. }) = op
        else {
            return Ok(None);
        };
        let Some(family) = &self.families[*place] else { return Ok(None) };
        match op {
            Op::Get { key, at: At::Now, .. } => {
                digest.add_value(family.get(key)?.as_deref());
            }
            Op::Get { key, at: At::Snapshot(nth), .. } => {
                let Some(snapshot) = self.snapshots.get(nth) else { return Ok(None) };
                digest.add_value(snapshot.of(family).get(key)?.as_deref());
            }
            Op::MultiGet { keys, .. } => {
                let found = family.multi_get(keys)?;
                found.iter().for_each(|value| digest.add_value(value.as_deref()));
            }
            Op::Scan { bounds, at, limit, ends, .. } => {
                let Some(range) = self.range(family, bounds, *at) else { return Ok(None) };
                scan(range, *limit, *ends, &mut digest)?;
            }
            Op::Prefix { prefix, .. } => {
                scan(family.prefix(prefix), usize::MAX, Ends::Front, &mut digest)?;
            }
            Op::Walk { bounds, moves, .. } => {
                walk(&mut family.cursor(bounds.clone())?, moves, &mut digest)?;
            }
            _ => return Ok(None),
        }
        Ok(Some(digest))
    }

    fn range(&self, family: &Family, bounds: &Bounds, at: At) -> Option<Range> {
        Some(match at {
            At::Now => family.range(bounds.clone()),
            At::Snapshot(nth) => self.snapshots.get(&nth)?.of(family).range(bounds.clone()),
        })
    }
}

fn scan(mut range: Range, limit: usize, ends: Ends, digest: &mut Digest) -> Result<()> {
    for turn in 0..limit {
        let item: Option<Result<(Value, Value)>> = match (ends, turn % 2) {
            (Ends::Front, _) | (Ends::Turns, 0) => range.next(),
            _ => range.next_back(),
        };
        let Some(item) = item else { break };
        let (key, value) = item?;
        digest.add(&key);
        digest.add(&value);
    }
    Ok(())
}

fn walk(cursor: &mut Cursor, moves: &[Move], digest: &mut Digest) -> Result<()> {
    for one in moves {
        let entry = match one {
            Move::First => cursor.first()?,
            Move::Last => cursor.last()?,
            Move::Seek(key) => cursor.seek(key)?,
            Move::SeekForPrev(key) => cursor.seek_for_prev(key)?,
            Move::Next => cursor.next()?,
            Move::Prev => cursor.prev()?,
        };
        digest.add_value(entry.map(|entry| entry.key()));
        digest.add_value(entry.map(|entry| entry.value()).transpose()?);
    }
    Ok(())
}
