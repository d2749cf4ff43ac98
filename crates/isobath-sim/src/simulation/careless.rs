//! A task that uses the API as people do, carelessly: a batch written twice, extended after a
//! write, retried after an error, even one that does not pass, or cleared; handles kept across
//! drops and renames; handles of another database; bad arguments; syncs up to old commits.
//!
//! Its commits carry no marker. They are reported to the oracle like all others, and the oracle
//! finds them by their values.

use super::figures::nonsense_in;
use super::oracle::CARELESS;
use super::runtime;
use super::transactions::is_too_large;
use super::twin::Twin;
use super::values::{Draft, Place, Value};
use super::workload::Stage;
use crate::existing::Existing;
use crate::position::position;
use isobath::env::reach::{Reach, reached};
use isobath::{
    Batch, Commit, Durability, Error, ErrorKind, Family, MAX_KEY_LEN, ReadPoint, WriteOptions,
};
use std::time::Duration;

/// A handle of a family that comes and goes.
struct Held {
    family: Family,
    /// The name it was asked for by.
    name: String,
    has_content: bool,
    is_gone: bool,
}

/// What the task keeps from call to call.
struct Careless<'a> {
    stage: &'a Stage,
    rng: fastrand::Rng,
    batch: Batch,
    /// What is in the batch.
    ops: Vec<(Place, Option<Value>)>,
    held: Vec<Held>,
    twin: Twin,
    /// What became of one of its commits is unknown, so the task writes no more, but for its batch,
    /// once.
    doubt: Option<Doubt>,
}

/// A commit failed with an error that does not pass.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Doubt {
    /// The engine does not know the outcome either: it must take no write any more.
    Unknown,
    /// The engine may still take writes.
    Failed,
    /// The batch was written once more.
    Retried,
}

/// How often a retryable write is tried again.
const TRIES: u32 = 3;
const PAUSE_NS: u64 = 2_000_000;

impl Stage {
    /// The careless task's life.
    pub(crate) fn blunder(&self, count: u32, mut rng: fastrand::Rng) {
        let twin = match Twin::new(self, rng.fork()) {
            Ok(twin) => twin,
            Err(error) => return self.fail(format!("a second database: {error}")),
        };
        let (batch, ops, held) = (Batch::default(), Vec::new(), Vec::new());
        let mut task = Careless { stage: self, rng, batch, ops, held, twin, doubt: None };
        for _ in 0..count {
            if self.is_over() {
                break;
            }
            task.step();
        }
        task.twin.end(self);
    }

    /// Makes a call that must be refused with an error that `is_expected` accepts.
    pub(crate) fn refuses<T>(
        &self,
        what: &str,
        result: isobath::Result<T>,
        is_expected: impl Fn(&Error) -> bool,
    ) {
        match result {
            Ok(_) => self.fail(format!("{what} is not refused")),
            Err(error) if is_expected(&error) => {}
            Err(error) => self.judge_write(what, &error),
        }
    }
}

fn is_invalid(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::InvalidArgument { .. })
}

impl Careless<'_> {
    fn step(&mut self) {
        match self.rng.u8(..16) {
            0..3 => self.single(),
            3..8 => self.reuse(),
            8..10 => self.hold(),
            10 => self.misuse(),
            11 => self.misuse_families(),
            12 => self.maintenance(),
            13 => self.sync_old_commits(),
            _ => {
                let stage = self.stage;
                self.twin.step(stage);
                self.foreign();
            }
        }
    }

    /// A commit that is reported to the oracle. Returns the error after which it may be tried
    /// again.
    fn commit(
        &mut self,
        ops: Vec<(Place, Option<Value>)>,
        is_synced: bool,
        call: impl FnOnce(&mut Self) -> isobath::Result<Commit>,
    ) -> Result<(), Error> {
        let stage = self.stage;
        stage.history.borrow_mut().begin(CARELESS, ops);
        runtime::forget_reserved();
        match call(self) {
            Ok(commit) => {
                let mut history = stage.history.borrow_mut();
                history.acknowledge(CARELESS, position(commit), is_synced);
                history.tokens.push(commit);
                Ok(())
            }
            Err(error) => {
                let is_refused = error.is_conflict()
                    || matches!(
                        error.kind(),
                        ErrorKind::InvalidArgument { .. } | ErrorKind::UnknownFamily { .. }
                    );
                if !is_refused {
                    stage.judge_write("a careless commit", &error);
                }
                if is_refused || error.is_retryable() {
                    stage.history.borrow_mut().withdraw(CARELESS);
                } else {
                    let place = runtime::last_reserved().into();
                    stage.history.borrow_mut().fail(CARELESS, place);
                    self.doubt = self.doubt.or(Some(match error.kind() {
                        ErrorKind::OutcomeUnknown { .. } | ErrorKind::Poisoned { .. } => {
                            Doubt::Unknown
                        }
                        _ => Doubt::Failed,
                    }));
                }
                Err(error)
            }
        }
    }

    fn op(&mut self) -> (Place, Option<Vec<u8>>) {
        let place = self.stage.keys.place(&mut self.rng);
        let number = u64::from(self.rng.u32(..));
        let len = self.rng.usize(..200);
        let is_put = self.rng.u8(..4) > 0;
        (place, is_put.then(|| Draft::of(CARELESS, number, 0, len).bytes()))
    }

    fn options(&mut self) -> WriteOptions {
        match self.rng.u8(..8) {
            0 => WriteOptions::sync(),
            1 => WriteOptions::default().durability(Durability::Process),
            2 => WriteOptions::default().fail_fast(true),
            _ => WriteOptions::default(),
        }
    }

    /// One operation, by one of the calls for it.
    fn single(&mut self) {
        if self.doubt.is_some() {
            return;
        }
        let ((family, key), value) = self.op();
        let options = self.options();
        let (has_options, side) = (self.rng.bool(), self.stage.side.clone());
        let is_synced = options == WriteOptions::sync() && has_options;
        let ops = vec![((family, key.clone()), value.as_deref().map(Value::of))];
        let outcome = self.commit(ops, is_synced, |task| {
            let (db, writes) = (&task.stage.db, side.with(options));
            match (family, value, has_options) {
                (0, Some(value), true) => db.with(options).put(&key, value),
                (0, None, true) => db.with(options).delete(&key),
                (_, Some(value), true) => writes.put(&key, value),
                (_, None, true) => writes.delete(&key),
                (0, Some(value), false) => db.put(&key, value),
                (0, None, false) => db.delete(&key),
                (_, Some(value), false) => side.put(&key, value),
                (_, None, false) => side.delete(&key),
            }
        });
        self.wait_after(&outcome);
    }

    fn wait_after(&self, outcome: &Result<(), Error>) {
        if outcome.as_ref().is_err_and(Error::is_retryable) {
            runtime::sleep_ns(PAUSE_NS);
        }
    }

    /// Writes the batch that it always writes, as it is, with more in it, or with something else.
    fn reuse(&mut self) {
        match self.rng.u8(..6) {
            0 | 1 => {
                self.batch.clear();
                self.ops.clear();
                self.extend(0..6);
            }
            2 => self.extend(1..4),
            3 => {
                self.batch = Batch::with_capacity(self.rng.usize(..500));
                self.ops.clear();
                self.extend(0..9);
            }
            _ => {}
        }
        if self.batch.len() != self.ops.len() || self.batch.is_empty() != self.ops.is_empty() {
            self.stage.fail("a batch does not know what is in it".to_owned());
        }
        for _ in 0..TRIES {
            if self.stage.is_over() {
                return;
            }
            if self.doubt.is_some() {
                return self.retry_in_doubt();
            }
            let outcome = self.write_unchanged();
            self.wait_after(&outcome);
            let is_retryable = outcome.is_err_and(|error| error.is_retryable());
            if !is_retryable && self.doubt.is_none() {
                return;
            }
        }
    }

    /// Writes the batch, which must not change it.
    fn write_unchanged(&mut self) -> Result<(), Error> {
        let byte_len = self.batch.byte_len();
        let outcome = self.write_batch();
        if self.batch.byte_len() != byte_len || self.batch.len() != self.ops.len() {
            self.stage.fail("a batch changed when it was written".to_owned());
        }
        outcome
    }

    /// Writes the batch once more after an error that does not pass, as people do. If the engine
    /// does not know the outcome of a commit, it must refuse; after another error it may take it.
    fn retry_in_doubt(&mut self) {
        let doubt = self.doubt.replace(Doubt::Retried);
        if doubt == Some(Doubt::Retried) {
            return;
        }
        let outcome = self.write_unchanged();
        if doubt == Some(Doubt::Unknown) && !self.stage.is_over() {
            reached(Reach::RetriedInDoubt);
            let is_refusal = |error: &Error| {
                matches!(error.kind(), ErrorKind::Poisoned { .. } | ErrorKind::Closed { .. })
            };
            if !outcome.as_ref().is_err_and(is_refusal) {
                self.stage.fail(format!("a write after one of unknown outcome: {outcome:?}"));
            }
        }
    }

    fn extend(&mut self, count: std::ops::Range<usize>) {
        for _ in 0..self.rng.usize(count) {
            let ((family, key), value) = self.op();
            let side = &self.stage.side;
            match (family, &value) {
                (0, Some(value)) => drop(self.batch.put(&key, value)),
                (0, None) => drop(self.batch.delete(&key)),
                (_, Some(value)) => drop(self.batch.of(side).put(&key, value)),
                (_, None) => drop(self.batch.of(side).delete(&key)),
            }
            self.ops.push(((family, key), value.as_deref().map(Value::of)));
        }
        if self.rng.u8(..8) == 0 {
            let (stage, long) = (self.stage, vec![b'k'; MAX_KEY_LEN + 1]);
            let (mut first, mut long_key) = (self.batch.clone(), self.batch.clone());
            first.put(&long, "").put("key", "value");
            long_key.of(&stage.side).delete(long);
            stage.refuses("a batch's first long key", stage.db.write(first), is_invalid);
            stage.refuses("a batch's long key", stage.db.write(&mut long_key), is_invalid);
        }
    }

    fn write_batch(&mut self) -> Result<(), Error> {
        let options = self.options();
        let way = self.rng.u8(..4);
        if self.ops.is_empty() {
            let written = self.stage.db.with(options).write(&mut self.batch);
            return written.map(drop).inspect_err(|error| self.stage.judge_write("nothing", error));
        }
        let is_synced = options == WriteOptions::sync() && way > 0;
        self.commit(self.ops.clone(), is_synced, |task| match way {
            0 => task.stage.db.write(task.batch.clone()),
            1 => task.stage.db.with(options).write(task.batch.clone()),
            _ => task.stage.db.with(options).write(&mut task.batch),
        })
    }

    /// Handles of families that the janitor renames and drops while the task uses them.
    fn hold(&mut self) {
        let db = &self.stage.db;
        if self.held.len() < 6 {
            let names = db.list_families();
            let name = names[self.rng.usize(..names.len())].clone();
            match db.existing(&name) {
                Ok(family) if name.starts_with("guest") => {
                    self.held.push(Held { family, name, has_content: false, is_gone: false });
                }
                Ok(_) => {}
                Err(error) if matches!(error.kind(), ErrorKind::UnknownFamily { .. }) => {}
                Err(error) => self.stage.judge_read("a look for a family", &error),
            }
        }
        if self.held.is_empty() {
            return;
        }
        let nth = self.rng.usize(..self.held.len());
        if self.rng.u8(..3) == 0 {
            return self.rely_on_held(nth);
        }
        self.use_held(nth);
        if self.rng.u8(..8) == 0 {
            self.held.swap_remove(nth);
        }
    }

    /// A transaction that has read a family cannot commit what it writes elsewhere once the family
    /// is gone.
    fn rely_on_held(&mut self, nth: usize) {
        let (stage, family) = (self.stage, self.held[nth].family.clone());
        if self.doubt.is_some() {
            return;
        }
        let tx = stage.db.begin();
        match tx.of(&family).get("key") {
            Ok(_) => {}
            Err(error) if is_unknown(&error) => return,
            Err(error) => {
                return stage.judge_read("a read of a family that comes and goes", &error);
            }
        }
        let name = family.name();
        for _ in 0..self.rng.u16(..2000) {
            runtime::yield_now();
            if family.name() != name || stage.is_over() {
                break;
            }
        }
        let is_gone = family.get("key").is_err_and(|error| is_unknown(&error));
        let ((of, key), value) = self.op();
        let ops = vec![((of, key.clone()), value.as_deref().map(Value::of))];
        let written = match (of, &value) {
            (0, Some(value)) => tx.put(&key, value),
            (0, None) => tx.delete(&key),
            (_, Some(value)) => tx.of(&stage.side).put(&key, value),
            (_, None) => tx.of(&stage.side).delete(&key),
        };
        match written {
            Ok(()) => {}
            Err(error) if is_too_large(&error) => return,
            Err(error) => return stage.judge_write("a write of a transaction", &error),
        }
        let outcome = self.commit(ops, false, |_| tx.commit());
        if is_gone && outcome.is_ok() {
            stage.fail(format!("a transaction commits that has read {name}, which is gone"));
        }
    }

    fn use_held(&mut self, nth: usize) {
        let (db, held) = (&self.stage.db, &mut self.held[nth]);
        let family = held.family.clone();
        let (id, name, _) = (family.id(), family.name(), family.options());
        if id == db.default_family().id() || !name.starts_with("guest") {
            self.stage.fail(format!("a handle of {} has become one of {name}", held.name));
        }
        let first = |found: Option<isobath::Result<_>>| found.transpose().map(drop);
        let content = family.get("key").map(|value| {
            // The handle still has the name with which the family was created.
            let is_right = match &value {
                Some(value) => held.name.as_bytes().starts_with(value),
                None => !held.has_content,
            };
            held.has_content = value.is_some();
            if !is_right {
                self.stage.fail(format!("a handle of {} reads {value:?}", held.name));
            }
        });
        let reads = [
            content,
            family.contains("key").map(drop),
            family.multi_get(["key", "other"]).map(drop),
            family.count(..).map(drop),
            family.first().and(family.last()).map(drop),
            first(family.iter().next()),
            first(family.prefix("k").next_back()),
            family.cursor(..).map(drop),
        ];
        // A drop refuses writes at once, and reads when it is visible.
        let compacts = self.rng.u8(..4) == 0;
        let writes = [
            family.put("other", "value").map(drop),
            family.delete("other").map(drop),
            if compacts { family.compact(..) } else { Ok(()) },
        ];
        for (nth, result) in reads.into_iter().chain(writes).enumerate() {
            let is_call = nth < 10 || compacts;
            match result {
                Ok(()) if held.is_gone && is_call => {
                    self.stage.fail(format!(
                        "call {nth} of a handle of {} works after its drop",
                        held.name
                    ));
                }
                Err(error) if is_unknown(&error) && nth < 8 => held.is_gone = true,
                Err(error) if is_unknown(&error) => {}
                Ok(()) => {}
                Err(error) => self.stage.judge_write("a handle that was kept", &error),
            }
        }
        if held.is_gone {
            self.refused_batch(&family, is_unknown);
        }
    }

    /// A batch that names a dropped family is refused, and leaves nothing.
    fn refused_batch(&self, family: &Family, is_expected: impl Fn(&Error) -> bool) {
        let mut batch = Batch::new();
        let key = self.stage.keys.all()[0].clone();
        batch.put(&key, "refused");
        batch.of(family).put(&key, "it");
        for _ in 0..2 {
            let written = self.stage.db.write(&mut batch);
            self.stage.refuses("a batch of a family that is not there", written, &is_expected);
        }
    }

    fn misuse(&mut self) {
        let (stage, db) = (self.stage, &self.stage.db);
        let long = vec![b'k'; MAX_KEY_LEN + 1];
        stage.refuses("a long key", stage.side.put(&long, "value"), is_invalid);
        stage.refuses("the delete of a long key", db.delete(&long), is_invalid);
        for found in [db.get(&long), stage.side.get(&long)] {
            match found {
                Ok(None) => {}
                Ok(Some(_)) => stage.fail("a key that cannot be has a value".to_owned()),
                Err(error) => stage.judge_read("a get of a key that cannot be", &error),
            }
        }
        let (tx, key) = (db.begin(), stage.keys.key(&mut self.rng));
        if tx.get_for_update(&key).is_ok() {
            // The call may first wait for a transaction that locks a range and itself waits for
            // this key. One of the two fails by the deadlock, and that may take longer than a short
            // timeout.
            let is_refused = |error: &Error| error.is_conflict();
            let put = db.put(&key, "");
            stage.refuses("a put of a key that the caller has locked", put, is_refused);
        }
        tx.rollback();
        if let Err(error) = stage.side.compact("z".."a") {
            stage.judge_write("a compaction of nothing", &error);
        }
    }

    fn misuse_families(&mut self) {
        let (stage, db) = (self.stage, &self.stage.db);
        let exists = |error: &Error| matches!(error.kind(), ErrorKind::FamilyExists { .. });
        let default = db.default_family();
        let (options, specs) = (stage.terrain.family_options(&mut self.rng), ["side", "default"]);
        let kept = [&stage.side, &default].map(|family| family.id());
        match db.open_families(specs).and_then(|families| {
            stage.side.set_options(options.clone())?;
            Ok((families, db.families([("side", options.clone())])?))
        }) {
            Ok((families, [side])) if families.iter().map(|family| family.id()).eq(kept) => {
                if side.id() != kept[0] || side.options() != options {
                    stage.fail("options that were set do not hold".to_owned());
                }
            }
            Ok(_) => stage.fail("an open of families gives others".to_owned()),
            Err(error) => stage.judge_write("families that are there", &error),
        }
        stage.refuses("a family's name twice", db.rename_family(&stage.side, "default"), exists);
        stage.refuses("a clone's name twice", db.clone_family(&stage.side, "default"), exists);
        stage.refuses("a clone without a name", db.clone_family(&stage.side, ""), is_invalid);
        stage.refuses("a family without a name", db.family(""), is_invalid);
        stage.refuses("the drop of the default family", db.drop_family(&default), is_invalid);
        stage.refuses(
            "a new name of the default family",
            db.rename_family(&default, "new"),
            is_invalid,
        );
        match db.family_if_exists("nowhere") {
            Ok(None) => {}
            Ok(Some(_)) => stage.fail("there is a family that never was".to_owned()),
            Err(error) => stage.judge_read("a look for a family that never was", &error),
        }
    }

    fn maintenance(&mut self) {
        let db = &self.stage.db;
        let metrics = db.metrics();
        if let Some(what) = nonsense_in(&metrics) {
            self.stage.fail(format!("metrics make no sense, {what}: {metrics:?}"));
        }
        let result = match self.rng.u8(..4) {
            0 => db.flush().and_then(|()| db.flush()),
            1 => db.compact(),
            2 => db.sync(),
            _ => db.wait_for_compactions(Some(Duration::from_millis(100))).map(drop),
        };
        if let Err(error) = result {
            self.stage.judge_write("careless maintenance", &error);
        }
    }

    /// Syncs up to a commit of this life, of the life before, or of another database.
    fn sync_old_commits(&mut self) {
        let (stage, db) = (self.stage, &self.stage.db);
        let history = stage.history.borrow();
        let pick = |tokens: &[Commit], rng: &mut fastrand::Rng| {
            (!tokens.is_empty()).then(|| tokens[rng.usize(..tokens.len())])
        };
        let new = pick(&history.tokens, &mut self.rng);
        let old = pick(&history.old_tokens, &mut self.rng);
        let keeps_old = history.keeps_old_tokens;
        drop(history);
        if let Some(commit) = new {
            match db.sync_to(commit) {
                Ok(()) => stage.history.borrow_mut().synced(position(commit)),
                Err(error) => stage.judge_write("a late sync up to a commit", &error),
            }
        }
        if let Some(commit) = old {
            // A value that the program kept must still have its bytes.
            let point = ReadPoint::from(commit);
            match db.sync_to(ReadPoint::from_bytes(point.to_bytes())) {
                Err(error)
                    if matches!(error.kind(), ErrorKind::InvalidArgument { detail, .. }
                        if !keeps_old || detail.contains("too long ago")) => {}
                Err(error) => stage.judge_write("a sync up to an old commit", &error),
                Ok(()) => {}
            }
        }
        if let Some(commit) = self.twin.commit() {
            stage.refuses("the commit of another database", db.sync_to(commit), is_invalid);
        }
    }

    /// Handles of another database, and of that one before it was opened again.
    fn foreign(&mut self) {
        let Some(family) = self.twin.any_handle() else { return };
        let (stage, db) = (self.stage, &self.stage.db);
        stage.refuses("a foreign drop_family", db.drop_family(&family), is_invalid);
        stage.refuses("a foreign rename_family", db.rename_family(&family, "mine"), is_invalid);
        stage.refuses("a foreign clone_family", db.clone_family(&family, "mine"), is_invalid);
        let tx = db.begin();
        stage.refuses("a transaction's foreign get", tx.of(&family).get("key"), is_invalid);
        stage.refuses("a transaction's foreign put", tx.of(&family).put("key", ""), is_invalid);
        tx.rollback();
        stage.refuses_reads(db, &family);
        self.refused_batch(&family, is_invalid);
    }
}

fn is_unknown(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::UnknownFamily { .. })
}
