//! What the tasks of a simulation do to the database: several writers, readers and a janitor at
//! once, each drawing its next operation from the seed.

use super::awaited::Awaited;
use super::clones;
use super::edits::{Chain, Step, as_operand, far_end, has_end};
use super::families::{Change, Content};
use super::keepsakes::Keepsake;
use super::keyspace::Keyspace;
use super::leases::LEASES;
use super::oracle::{History, marker, stepper};
use super::questions::prefixed;
use super::runtime;
use super::simulate::DB;
use super::streams::is_streamed;
use super::terrain::Terrain;
use super::values::{Draft, Key, Place, Value, Values, Write};
use super::world::{Death, Life, Shared};
use crate::existing::Existing;
use crate::position::position;
use isobath::{Batch, BlockCache, Db, Durability, Family, Ingest, SortedFileWriter, WriteOptions};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::{Bound, RangeBounds};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::SystemTime;

pub(crate) const WRITERS: usize = 3;

/// What the tasks share.
pub(crate) struct Stage {
    pub(crate) db: Db,
    pub(crate) side: Family,
    pub(crate) life: Arc<Life>,
    pub(crate) terrain: Terrain,
    pub(crate) keys: Rc<Keyspace>,
    /// The number of the present season, if the seed has seasons: it decides to which keys commits
    /// go.
    pub(crate) season: Cell<u64>,
    pub(crate) history: Shared<History>,
    /// The first failure.
    pub(crate) failure: Shared<Option<String>>,
    /// True if the disk was damaged before: finding that is an answer, too.
    pub(crate) is_damaged: bool,
    pub(crate) closing: Shared<Closing>,
    /// One that it shares with another database.
    pub(crate) cache: Option<BlockCache>,
    /// Snapshots that are kept for most of the life.
    pub(crate) keepsakes: Shared<Vec<Keepsake>>,
    /// Callbacks that wait for durability.
    pub(crate) awaited: Shared<Vec<Awaited>>,
}

/// A close while others still work.
#[derive(Debug, Default)]
pub(crate) enum Closing {
    #[default]
    No,
    Begun,
    Done(isobath::Result<()>),
}

/// What became of a commit.
#[derive(PartialEq, Eq)]
enum Written {
    Done,
    /// It failed, and left nothing.
    Nothing,
    /// It may be there or not: the writer must not go on.
    Unknown,
}

/// A range delete of a commit.
struct Sweep {
    /// The place among the writes that it comes before.
    before: usize,
    family: u8,
    start: Bound<Key>,
    end: Bound<Key>,
    /// If it is of all keys that begin so, which are those between the bounds.
    prefix: Option<Key>,
}

impl Sweep {
    fn range(&self) -> (Bound<&[u8]>, Bound<&[u8]>) {
        (self.start.as_ref().map(|key| &**key), self.end.as_ref().map(|key| &**key))
    }

    fn holds(&self, key: &[u8]) -> bool {
        RangeBounds::<[u8]>::contains(&self.range(), key)
    }
}

/// What a commit has beside its writes: a range delete, and a step of the writer's chain. And
/// whether it is made by an ingest.
type Beside<'a> = (Option<&'a Sweep>, Option<&'a Step>, bool);

/// About the longest commit. A log of the smallest segments takes a record of twice this length
/// with a value of the greatest length in it.
const COMMIT_LEN_MAX: usize = 2 << 20;

/// How long a task waits after it met a full disk.
const RETRY_NS: u64 = 5_000_000;

impl Stage {
    pub(crate) fn fail(&self, what: String) {
        self.failure.borrow_mut().get_or_insert(what);
    }

    pub(crate) fn is_over(&self) -> bool {
        self.life.is_over() || self.failure.borrow().is_some()
    }

    pub(crate) fn is_closing(&self) -> bool {
        !matches!(*self.closing.borrow(), Closing::No)
    }

    /// Closes the database while other tasks use it.
    pub(crate) fn close_soon(&self, mut rng: fastrand::Rng) {
        for _ in 0..rng.u16(..2000) {
            if self.is_over() {
                return;
            }
            runtime::yield_now();
        }
        *self.closing.borrow_mut() = Closing::Begun;
        let closed = self.db.clone().close();
        *self.closing.borrow_mut() = Closing::Done(closed);
    }

    /// One writer's life.
    pub(crate) fn write(&self, writer: usize, count: u32, mut rng: fastrand::Rng) {
        let mut chain = Chain::default();
        for _ in 0..count {
            if self.is_over() {
                return;
            }
            let number = self.history.borrow().next_number(writer);
            let is_ingested = number % 9 == 4;
            let step = chain.step(writer, number);
            let mut writes = self.draw_writes(writer, number, &mut rng);
            // Anywhere: any operation may be the first of its commit, whose sequence is a
            // snapshot's very point.
            let number = Some(Draft::text(number.to_string()));
            writes.insert(rng.usize(..=writes.len()), (marker(writer), number));
            let durability = match rng.u8(..16) {
                0 | 1 => Durability::Sync,
                _ => Durability::Process,
            };
            let options =
                WriteOptions::default().durability(durability).fail_fast(rng.u8(..16) == 0);
            let sweep = (rng.u8(..10) == 0).then(|| self.draw_sweep(writes.len(), &mut rng));
            if is_ingested {
                match self.ingest(writer, writes) {
                    Written::Unknown => return,
                    Written::Done | Written::Nothing => continue,
                }
            }
            match self.write_with(writer, &writes, (sweep.as_ref(), Some(&step), false), options) {
                Written::Done => chain.done(step),
                Written::Nothing => {}
                Written::Unknown => return,
            }
        }
    }

    /// Writes sorted keys, each once: by an ingest or, with a hook, as a batch.
    fn ingest(&self, writer: usize, writes: Vec<Write>) -> Written {
        // Of several writes to one place the last wins.
        let writes: Vec<Write> =
            writes.into_iter().collect::<BTreeMap<_, _>>().into_iter().collect();
        self.write_with(writer, &writes, (None, None, true), WriteOptions::default())
    }

    /// A range delete, before one of so many writes of its commit. Markers are never in it.
    fn draw_sweep(&self, len: usize, rng: &mut fastrand::Rng) -> Sweep {
        let (from, to) = self.keys.range(rng);
        let is_of_few = self.keys.all().len() < 100;
        let end = match rng.u8(..4) {
            0 => Bound::Excluded(to.clone()),
            1 if is_of_few => Bound::Unbounded,
            _ => Bound::Included(to.clone()),
        };
        let start = match rng.u8(..4) {
            0 => Bound::Excluded(from.clone()),
            1 if is_of_few => Bound::Unbounded,
            _ => Bound::Included(from.clone()),
        };
        // An excluded bound below the other one leaves at least a place between keys.
        let is_empty =
            from == to && !matches!((&start, &end), (Bound::Included(_), Bound::Included(_)));
        let (start, end) =
            if is_empty { (Bound::Included(from), Bound::Included(to)) } else { (start, end) };
        let prefix = (rng.u8(..8) == 0).then(|| self.keys.key(rng));
        let (start, end) = match prefix.as_ref().map(|prefix| prefixed(0, prefix)) {
            Some(span) => span.bounds(),
            None => (start, end),
        };
        let mut sweep =
            Sweep { before: rng.usize(..=len), family: rng.u8(..2), start, end, prefix };
        if (0..stepper(0)).any(|writer| sweep.holds(&marker(writer).1)) {
            sweep.family = 1;
        }
        sweep
    }

    /// What a commit writes beside its writer's marker.
    fn draw_writes(&self, writer: usize, number: u64, rng: &mut fastrand::Rng) -> Vec<Write> {
        let len = self.terrain.batch_len(rng);
        let (family, delete_percent) = (rng.u8(..2), [25, 25, 25, 90][rng.usize(..4)]);
        let season = self.terrain.has_seasons.then(|| self.season.get());
        // As a load does: one key after the other, each once.
        let ascends = self.terrain.is_tree() && rng.u8(..3) == 0;
        let ascending = if ascends { self.keys.neighbours(season, len, rng) } else { &[] };
        let (mut writes, mut bytes) = (Vec::with_capacity(len + 1), 0);
        for nth in 0..len {
            let place = match ascending.get(nth) {
                Some(key) => (family, key.clone()),
                None => (rng.u8(..2), self.keys.key_in(season, rng)),
            };
            let is_put = rng.u8(..100) >= delete_percent;
            let value = is_put.then(|| Draft::of(writer, number, nth, self.terrain.value_len(rng)));
            bytes += place.1.len() + value.as_ref().map_or(0, Draft::len);
            writes.push((place, value));
            if bytes > COMMIT_LEN_MAX {
                break;
            }
        }
        writes
    }

    /// Returns false if the writer must not go on, because the outcome of a commit is unknown.
    pub(crate) fn write_once(
        &self,
        writer: usize,
        writes: &[Write],
        options: WriteOptions,
    ) -> bool {
        self.write_with(writer, writes, (None, None, false), options) != Written::Unknown
    }

    /// Writes, with a range delete among the writes and a step of the writer's chain behind them.
    fn write_with(
        &self,
        writer: usize,
        writes: &[Write],
        (sweep, step, is_ingested): Beside<'_>,
        options: WriteOptions,
    ) -> Written {
        let is_synced = options.durability == Some(Durability::Sync);
        let is_refused = self.life.has_failed_sync();
        let writes: Vec<_> =
            writes.iter().map(|(place, draft)| (place, draft.as_ref().map(Draft::bytes))).collect();
        let values =
            writes.iter().map(|(place, bytes)| ((*place).clone(), bytes.as_deref().map(Value::of)));
        let mut values: Vec<_> = values.collect();
        if let Some(sweep) = sweep {
            let swept = self.keys.all().iter().filter(|key| sweep.holds(key));
            let swept = swept.map(|key| ((sweep.family, key.clone()), None));
            values.splice(sweep.before..sweep.before, swept.collect::<Vec<_>>());
        }
        values.extend(step.map(Step::outcome));
        self.history.borrow_mut().begin(writer, values);
        runtime::forget_reserved();
        let error = match self.commit(&writes, (sweep, step, is_ingested), options) {
            Ok(point) => {
                if is_refused && !self.life.is_over() {
                    self.fail(
                        "a commit was begun after a failed sync, and acknowledged".to_owned(),
                    );
                }
                self.history.borrow_mut().acknowledge(writer, point, is_synced);
                return Written::Done;
            }
            Err(error) => error,
        };
        if error.is_conflict() {
            // The write waited for a lock until its timeout ended.
            self.history.borrow_mut().withdraw(writer);
            return Written::Nothing;
        }
        self.judge_write("a commit", &error);
        if error.is_retryable() {
            // The failed commit has left nothing. The next one may find room.
            self.history.borrow_mut().withdraw(writer);
            runtime::sleep_ns(RETRY_NS);
            return Written::Nothing;
        }
        // The commit may or may not be there: nothing more can be known of this writer in this
        // life.
        self.history.borrow_mut().fail(writer, runtime::last_reserved().into());
        Written::Unknown
    }

    fn commit(
        &self,
        writes: &[(&Place, Option<Vec<u8>>)],
        (sweep, step, is_ingested): Beside<'_>,
        options: WriteOptions,
    ) -> isobath::Result<u64> {
        if is_ingested && let Ok(ingest) = self.db.ingest() {
            return self.commit_ingest(ingest, writes);
        }
        if let ([((0, key), Some(value))], None, None) = (writes, sweep, step) {
            let writes = self.db.with(options);
            let commit = match as_operand(0, value) {
                Some(operand) => writes.merge(key, operand)?,
                None if has_end(0, key) => writes.put_ttl(key, value, far_end())?,
                None if is_streamed(0, value) => writes.put_reader(key, &value[..])?,
                None => writes.put(key, value)?,
            };
            return Ok(position(commit));
        }
        let mut batch = Batch::new();
        let sweep_before = |nth: usize, batch: &mut Batch| {
            if let Some(sweep) = sweep.filter(|sweep| sweep.before == nth) {
                match (sweep.family, &sweep.prefix) {
                    (0, Some(prefix)) => drop(batch.delete_prefix(prefix)),
                    (0, None) => drop(batch.delete_range(sweep.range())),
                    (_, Some(prefix)) => drop(batch.of(&self.side).delete_prefix(prefix)),
                    (_, None) => drop(batch.of(&self.side).delete_range(sweep.range())),
                }
            }
        };
        for (nth, ((family, key), value)) in writes.iter().enumerate() {
            sweep_before(nth, &mut batch);
            let operand = value.as_ref().and_then(|value| as_operand(nth, value));
            match (family, value, operand) {
                (0, _, Some(operand)) => drop(batch.merge(key, operand)),
                (_, _, Some(operand)) => drop(batch.of(&self.side).merge(key, operand)),
                (0, Some(value), None) if has_end(nth, key) => {
                    batch.put_ttl(key, value, far_end());
                }
                (0, None, None) if has_end(nth, key) => {
                    batch.put_ttl(key, "ended", SystemTime::UNIX_EPOCH);
                }
                (_, Some(value), None) if has_end(nth, key) => {
                    batch.of(&self.side).put_ttl(key, value, far_end());
                }
                (_, None, None) if has_end(nth, key) => {
                    batch.of(&self.side).put_ttl(key, "ended", SystemTime::UNIX_EPOCH);
                }
                (0, Some(value), None) if is_streamed(nth, value) => {
                    batch.put_streamed(key, self.streamed(value)?);
                }
                (_, Some(value), None) if is_streamed(nth, value) => {
                    batch.of(&self.side).put_streamed(key, self.streamed(value)?);
                }
                (0, Some(value), None) => drop(batch.put(key, value)),
                (0, None, None) => drop(batch.delete(key)),
                (_, Some(value), None) => drop(batch.of(&self.side).put(key, value)),
                (_, None, None) => drop(batch.of(&self.side).delete(key)),
            }
        }
        sweep_before(writes.len(), &mut batch);
        step.into_iter().for_each(|step| step.add_to(&mut batch));
        Ok(position(self.db.with(options).write(batch)?))
    }

    /// Writes the keys of a family to a file without a database, and has them added.
    fn add_sorted(
        &self,
        of: u8,
        writes: &[(&Place, Option<Vec<u8>>)],
        mut add: impl FnMut(&Path) -> isobath::Result<u64>,
    ) -> isobath::Result<u64> {
        let (env, dir) = (self.life.env(), Path::new("sorted"));
        env.fs.create_dir_all(dir)?;
        // Each writer has a file of its own, which is named after its marker.
        let marker = writes.iter().find(|((_, key), _)| key.starts_with(b"!writer"));
        let by = marker.map(|((_, key), _)| String::from_utf8_lossy(&key[1..]).into_owned());
        let path = dir.join(format!("{of}-{}", by.expect("a commit has a marker")));
        if env.fs.exists(&path)? {
            env.fs.remove(&path)?;
        }
        let mut file = SortedFileWriter::create_in(&path, &env)?;
        for ((_, key), value) in writes.iter().filter(|((family, _), _)| *family == of) {
            match value {
                Some(value) => file.put(key, value)?,
                None => file.delete(key)?,
            }
        }
        file.finish()?;
        add(&path)
    }

    fn commit_ingest(
        &self,
        mut ingest: Ingest,
        writes: &[(&Place, Option<Vec<u8>>)],
    ) -> isobath::Result<u64> {
        // On threads of the system the database has another file system than the tasks.
        if writes.len() % 2 == 1 && runtime::current().is_some() {
            let own = self.add_sorted(0, writes, |path| ingest.add_file(path))?;
            let add = |path: &Path| ingest.of(&self.side).add_file(path);
            let of_side = self.add_sorted(1, writes, add)?;
            if own + of_side != writes.len() as u64 {
                self.fail(format!("sorted files of {own} and {of_side} keys"));
            }
            return Ok(position(ingest.commit()?));
        }
        for (nth, ((family, key), value)) in writes.iter().enumerate() {
            match (family, value) {
                (0, Some(value)) if has_end(nth, key) => ingest.put_ttl(key, value, far_end())?,
                (0, Some(value)) => ingest.put(key, value)?,
                (0, None) => ingest.delete(key)?,
                (_, Some(value)) if has_end(nth, key) => {
                    ingest.of(&self.side).put_ttl(key, value, far_end())?;
                }
                (_, Some(value)) => ingest.of(&self.side).put(key, value)?,
                (_, None) => ingest.of(&self.side).delete(key)?,
            }
            if nth.is_multiple_of(4) {
                runtime::yield_now();
            }
        }
        Ok(position(ingest.commit()?))
    }

    /// Flushes, compactions, syncs, and families that come and go.
    pub(crate) fn tidy(self: &Rc<Self>, count: u32, mut rng: fastrand::Rng) {
        // What is acknowledged as synced with a change of the families must survive a power cut
        // right after.
        let dies_changing = rng.u8(..5) == 0;
        for nth in 0..count {
            if self.is_over() {
                return;
            }
            if rng.u8(..8) == 0 {
                self.intrude(DB);
            }
            if rng.u8(..8) == 0 {
                self.follow(DB, &mut rng);
            }
            let result = match rng.u8(..12) {
                9 => self.durable_snapshot(),
                10 | 11 => self.await_durable(),
                0 | 1 => {
                    self.season.set(self.season.get().wrapping_add(1));
                    self.db.flush()
                }
                2 => self.db.compact(),
                3 => {
                    let (lower, upper) = self.keys.range(&mut rng);
                    let about = self.side.estimate(&*lower..=&*upper);
                    about.and_then(|_| self.side.compact(&*lower..=&*upper))
                }
                4 => self.sync(),
                5 => self.db.wait_for_compactions(None).map(drop),
                _ => self.visit(nth, &mut rng).map(|is_change_alone| {
                    if is_change_alone && dies_changing && rng.bool() {
                        self.life.die(Death::Power);
                    }
                }),
            };
            if let Err(error) = result {
                // A guest's key may be locked for longer than the write waits.
                if !error.is_conflict() {
                    self.judge_write("maintenance", &error);
                    if !error.is_retryable() {
                        return;
                    }
                }
                runtime::sleep_ns(RETRY_NS);
            }
            for _ in 0..rng.u8(0..30) {
                runtime::yield_now();
            }
        }
    }

    fn sync(&self) -> isobath::Result<()> {
        let point = self.history.borrow().newest_acknowledged();
        self.db.sync()?;
        self.history.borrow_mut().synced(point);
        Ok(())
    }

    fn durable_snapshot(&self) -> isobath::Result<()> {
        let snapshot = self.db.snapshot();
        self.db.sync_to(snapshot.read_point())?;
        self.history.borrow_mut().synced(position(snapshot.read_point()));
        Ok(())
    }

    /// A family comes, is renamed, or goes. True if nothing was written after that.
    fn visit(&self, nth: u32, rng: &mut fastrand::Rng) -> isobath::Result<bool> {
        let guest = self.history.borrow().guests.any();
        if rng.u8(..3) == 0 {
            self.clone_side(nth, rng)?;
            return Ok(false);
        }
        let Some(name) = guest.filter(|_| rng.u8(..3) > 0) else {
            let name = format!("guest{:08x}{nth}", rng.u32(..));
            self.change(Change::Create { name: name.clone() }, || {
                self.db.family((&name, self.terrain.family_options(rng))).map(drop)
            })?;
            let guest = self.db.existing(&name)?;
            let value = name.as_bytes();
            let mut batch = Batch::new();
            batch.of(&guest).put(b"key", value);
            self.db.with(WriteOptions::sync()).write(batch)?;
            self.history.borrow_mut().guests.put(&name, value);
            return Ok(false);
        };
        if clones::is_copy(&name) {
            self.check_copy(&name)?;
        }
        let guest = self.db.existing(&name)?;
        if rng.bool() {
            let to = format!("{name}-renamed");
            let change = Change::Rename { from: name, to: to.clone() };
            self.change(change, || self.db.rename_family(&guest, &to))?;
        } else {
            self.change(Change::Drop { name }, || self.db.drop_family(&guest))?;
        }
        Ok(true)
    }

    /// A change of the families is synced with the log, and so is all that was acknowledged before.
    pub(crate) fn change(
        &self,
        change: Change,
        body: impl FnOnce() -> isobath::Result<()>,
    ) -> isobath::Result<()> {
        let point = self.history.borrow().newest_acknowledged();
        self.history.borrow_mut().guests.begin(change);
        let outcome = body();
        let mut history = self.history.borrow_mut();
        match &outcome {
            Ok(()) => {
                history.guests.acknowledge();
                history.synced(point);
            }
            Err(error) if error.is_retryable() => history.guests.withdraw(),
            // It may or may not have happened.
            Err(_) => {}
        }
        outcome
    }
}

/// Everything there is, by two full scans.
pub(crate) fn everything(db: &Db, side: &Family) -> isobath::Result<Values> {
    let mut values = Values::new();
    for (family, range) in [(0, db.range(..)), (1, side.range(..))] {
        for item in range {
            let (key, value) = item?;
            values.insert((family, key[..].into()), Value::of(&value));
        }
    }
    Ok(values)
}

/// Every family beside the two that stay, with what was put into it.
pub(crate) fn guests(db: &Db) -> isobath::Result<BTreeMap<String, Content>> {
    let mut guests = BTreeMap::new();
    for name in db.list_families() {
        if name == "default" || name == "side" || name == LEASES {
            continue;
        }
        let content = match clones::is_copy(&name) {
            true => clones::content(db, &name)?,
            false => db.existing(&name)?.get(b"key")?.map(|content| content.to_vec()),
        };
        guests.insert(name, content);
    }
    Ok(guests)
}

/// The answers of gets for every key. Gets that a damaged disk fails are left out.
pub(crate) fn answers(
    db: &Db,
    side: &Family,
    keys: &Keyspace,
) -> isobath::Result<Vec<(Place, Option<Value>)>> {
    let mut answers = Vec::new();
    for key in keys.all() {
        for (family, answer) in [(0, db.get(key)), (1, side.get(key))] {
            match answer {
                Ok(value) => {
                    answers.push(((family, key.clone()), value.map(|value| Value::of(&value))));
                }
                Err(error) if error.is_corruption() => {}
                Err(other) => return Err(other),
            }
        }
    }
    Ok(answers)
}
