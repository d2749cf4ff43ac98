//! A second database in the same process, on the same block cache: its keys are those of the first,
//! its values are not. It is closed, dropped and opened again while ranges and snapshots of it
//! live, and handles of all its openings are given to both databases.
//!
//! Its disk is its own and has no trouble, and one task uses it: it must always hold exactly what
//! that task put there.

use super::terrain::Terrain;
use super::values::{Draft, Key, Value};
use super::workload::Stage;
use super::world::Life;
use isobath::vfs::MemoryFs;
use isobath::{
    Batch, BlockCache, Codec, Commit, Db, Error, ErrorKind, Family, FamilyOptions, Options, Range,
    Snapshot,
};
use std::collections::BTreeMap;
use std::sync::Arc;

type Values = BTreeMap<(u8, Key), Value>;

/// The writer that its values name. No writer of the first database has this number.
const TWIN: usize = 9;
const PATH: &str = "twin";

pub(crate) struct Twin {
    life: Arc<Life>,
    terrain: Terrain,
    cache: Option<BlockCache>,
    rng: fastrand::Rng,
    open: Option<Open>,
    values: Values,
    /// Handles of all openings, including the last.
    handles: Vec<Family>,
    last_commit: Option<Commit>,
    count: u64,
}

struct Open {
    db: Db,
    family: Family,
}

/// What is kept of a database that is closed.
struct Left {
    db: Db,
    snapshot: Snapshot,
    range: Range<'static>,
    first: Option<(Key, Value)>,
}

fn is_invalid(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::InvalidArgument { .. })
}

fn is_closed(error: &Error) -> bool {
    error.is_closed()
}

impl Stage {
    /// Checks that no read through a handle of another database succeeds.
    pub(crate) fn refuses_reads(&self, db: &Db, family: &Family) {
        let first = |mut range: Range| range.next().transpose().map(drop);
        let snapshot = db.snapshot();
        let part = snapshot.of(family);
        let refuses = |what: &str, result| self.refuses(what, result, is_invalid);
        refuses("a foreign get", part.get("key").map(drop));
        refuses("a foreign contains", part.contains("key").map(drop));
        refuses("a foreign multi_get", part.multi_get(["key"]).map(drop));
        refuses("a foreign first", part.first().map(drop));
        refuses("a foreign count", part.count(..).map(drop));
        refuses("a foreign range", first(part.range(..)));
        refuses("a foreign prefix", first(part.prefix("k")));
        refuses("a foreign cursor", part.cursor(..).map(drop));
    }
}

impl Twin {
    pub(crate) fn new(stage: &Stage, rng: fastrand::Rng) -> isobath::Result<Twin> {
        let mut twin = Twin {
            life: Life::quiet(MemoryFs::new()),
            terrain: stage.terrain.clone(),
            cache: stage.cache.clone(),
            rng,
            open: None,
            values: Values::new(),
            handles: Vec::new(),
            last_commit: None,
            count: 0,
        };
        let nothing = twin.options().create_if_missing(false).open(PATH);
        stage.refuses("a database that is not there", nothing, |error| {
            matches!(error.kind(), ErrorKind::NotADatabase { .. })
        });
        twin.open_it()?;
        Ok(twin)
    }

    /// Options that differ from one opening to the next.
    fn options(&mut self) -> Options {
        let options = self.terrain.options(&mut self.rng).env(self.life.env());
        match &self.cache {
            Some(cache) => options.memory(None).shared_cache(cache.clone()),
            None => options,
        }
    }

    fn open_it(&mut self) -> isobath::Result<()> {
        let db = self.options().open(PATH)?;
        let family = db.family(("side", FamilyOptions::new().codec(Codec::Lz4)))?;
        self.handles.extend([family.clone(), db.default_family()]);
        self.open = Some(Open { db, family });
        Ok(())
    }

    /// A commit of it, if there is one.
    pub(crate) fn commit(&self) -> Option<Commit> {
        self.last_commit
    }

    pub(crate) fn any_handle(&mut self) -> Option<Family> {
        let count = self.handles.len();
        (count > 0).then(|| self.handles[self.rng.usize(..count)].clone())
    }

    pub(crate) fn step(&mut self, stage: &Stage) {
        if let Err(error) = self.try_step(stage) {
            stage.fail(format!("the second database: {error}"));
        }
    }

    fn try_step(&mut self, stage: &Stage) -> isobath::Result<()> {
        match self.rng.u8(..8) {
            0 => self.reopen(stage),
            1 => self.compare(stage),
            2 => self.open.as_ref().map_or(Ok(()), |open| open.db.flush()),
            3 => self.misuse(stage),
            4 | 5 => self.get(stage),
            _ => self.write(stage),
        }
    }

    fn write(&mut self, stage: &Stage) -> isobath::Result<()> {
        let Some(Open { db, family }) = &self.open else { return Ok(()) };
        for _ in 0..self.rng.u8(1..20) {
            let (of, key) = stage.keys.place(&mut self.rng);
            self.count += 1;
            let is_put = self.rng.u8(..4) > 0;
            let value = Draft::of(TWIN, self.count, 0, self.rng.usize(..300)).bytes();
            let commit = match (of, is_put) {
                (0, true) => db.put(&key, &value)?,
                (0, false) => db.delete(&key)?,
                (_, true) => family.put(&key, &value)?,
                (_, false) => family.delete(&key)?,
            };
            self.last_commit = Some(commit);
            match is_put {
                true => self.values.insert((of, key), Value::of(&value)),
                false => self.values.remove(&(of, key)),
            };
        }
        Ok(())
    }

    fn get(&mut self, stage: &Stage) -> isobath::Result<()> {
        let Some(Open { db, family }) = &self.open else { return Ok(()) };
        for _ in 0..8 {
            let (of, key) = stage.keys.place(&mut self.rng);
            let found = if of == 0 { db.get(&key)? } else { family.get(&key)? };
            if found.as_deref().map(Value::of) != self.values.get(&(of, key.clone())).copied() {
                stage.fail(format!("the second database has {found:?} at {}", key.escape_ascii()));
            }
        }
        Ok(())
    }

    fn compare(&self, stage: &Stage) -> isobath::Result<()> {
        let Some(Open { db, family }) = &self.open else { return Ok(()) };
        let mut found = Values::new();
        for (of, range) in [(0, db.range(..)), (1, family.range(..))] {
            for item in range {
                let (key, value) = item?;
                found.insert((of, key[..].into()), Value::of(&value));
            }
        }
        if found != self.values {
            let wrong = found.iter().find(|(place, value)| self.values.get(*place) != Some(*value));
            let lost = self.values.keys().find(|place| !found.contains_key(*place));
            stage.fail(format!("the second database holds {wrong:?}, and no {lost:?}"));
        }
        Ok(())
    }

    /// Opens of a database that is open, and handles of openings that are over.
    fn misuse(&mut self, stage: &Stage) -> isobath::Result<()> {
        let second = self.options().open(PATH);
        stage.refuses("a second open", second, |error| {
            matches!(error.kind(), ErrorKind::Locked { .. })
        });
        let Some(Open { db, family }) = &self.open else { return Ok(()) };
        for handle in self.handles.iter().rev().skip(2).take(2) {
            stage.refuses("an old put", handle.put("key", "value"), is_closed);
            stage.refuses("an old get", handle.get("key"), is_closed);
            stage.refuses("an old drop_family", db.drop_family(handle), is_invalid);
            stage.refuses_reads(db, handle);
        }
        // The second database must refuse handles of the first.
        let mut batch = Batch::new();
        batch.put("key", "value").of(&stage.side).put("key", "value");
        stage.refuses("a foreign part of a batch", db.write(batch), is_invalid);
        stage.refuses_reads(db, &stage.side);
        family.get("key").map(drop)
    }

    /// Closes it, or drops its handles, while ranges and snapshots of it are still held, and opens
    /// it again.
    fn reopen(&mut self, stage: &Stage) -> isobath::Result<()> {
        let Some(Open { db, family }) = self.open.take() else { return Ok(()) };
        let range = family.range(..);
        let side = self.values.iter().find(|((of, _), _)| *of == 1);
        let first = side.map(|((_, key), value)| (key.clone(), *value));
        let (snapshot, cursor) = (db.snapshot(), db.cursor(..)?);
        let left = match self.rng.bool() {
            true => {
                db.clone().close()?;
                Some(Left { db, snapshot, range, first })
            }
            false => {
                drop((db, snapshot));
                // A handle or a snapshot of this opening would keep it open.
                self.handles.truncate(self.handles.len() - 2);
                None
            }
        };
        if let Some(left) = &left {
            left.answer(&family).unwrap_or_else(|wrong| stage.fail(wrong));
        }
        drop(family);
        let exists = self.options().error_if_exists(true).open(PATH);
        let is_there = |error: &Error| matches!(error.kind(), ErrorKind::AlreadyExists { .. });
        stage.refuses("a database that exists", exists, is_there);
        self.open_it()?;
        drop(cursor);
        if let Some(left) = left {
            left.read_on().unwrap_or_else(|wrong| stage.fail(wrong));
        }
        self.compare(stage)
    }

    /// Checks its contents a last time.
    pub(crate) fn end(mut self, stage: &Stage) {
        let compared = self.compare(stage);
        let closed = self.open.take().map_or(Ok(()), |open| open.db.close());
        if let Err(error) = compared.and(closed) {
            stage.fail(format!("the end of the second database: {error}"));
        }
    }
}

impl Left {
    /// Every call is answered with the same error.
    fn answer(&self, family: &Family) -> Result<(), String> {
        let Left { db, snapshot, .. } = self;
        let answers = [
            db.get("key").map(drop),
            db.put("key", "value").map(drop),
            family.get("key").map(drop),
            db.flush(),
            db.sync(),
            db.compact(),
            db.family("new").map(drop),
            snapshot.get("key").map(drop),
            db.range(..).next().transpose().map(drop),
            db.cursor(..).map(drop),
        ];
        let is_closed = |answer: &isobath::Result<()>| answer.as_ref().is_err_and(Error::is_closed);
        match answers.iter().position(|answer| !is_closed(answer)) {
            Some(nth) => Err(format!("call {nth} of a closed database: {:?}", answers[nth])),
            None => db.clone().close().map_err(|error| format!("a second close: {error}")),
        }
    }

    /// A range that was begun before reads on or says that it cannot, whatever its database has
    /// become.
    fn read_on(mut self) -> Result<(), String> {
        match (self.range.next(), self.first) {
            (None, None) | (Some(Err(_)), _) => Ok(()),
            (Some(Ok((key, value))), Some(first))
                if (&key[..], Value::of(&value)) == (&first.0[..], first.1) =>
            {
                Ok(())
            }
            (item, first) => Err(format!("a range of a closed database: {item:?} for {first:?}")),
        }
    }
}
