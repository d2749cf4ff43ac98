//! One attempt of a transaction: its calls, the checks of their results that need only the
//! transaction itself, and the reports to the oracle, which checks the rest.
//!
//! What was written comes back. What was found otherwise goes into [`Found`], or, at levels where
//! each call is as of its own moment, to the oracle at once.

use super::super::edits::{Chain, Step, as_operand, far_end, has_end};
use super::super::levels::What;
use super::super::observe::Sight;
use super::super::oracle::Look;
use super::super::runtime::{self, Waits, real};
use super::super::streams::read_back;
use super::super::values::{Draft, Key, Place, Value};
use super::super::workload::Stage;
use super::deal::{Deal, Found, Refusal, Story, has_point};
use super::own::Own;
use crate::position::position;
use isobath::{ConflictKind, Error, ErrorKind, Isolation, ReadOptions, Transaction};
use std::time::SystemTime;

/// One put of so many is of a stream. Such a transaction does not go to files, so they are few.
const PUTS_A_STREAM: usize = 11;

/// The longer of the two lock timeouts: longer than the scheduler keeps any task from running, and
/// longer than the engine paces one that holds locks. In a tiny tree on a slow disk that is a
/// thousand seconds of simulated time: a megabyte a second, for values of megabytes.
pub(super) fn patience_ns() -> u64 {
    if real::is_here() { real::PATIENCE_NS } else { 10_000_000_000_000 }
}

/// What is known of a transaction after its last call.
pub(super) struct Record {
    pub(super) level: Isolation,
    /// When it was begun, in simulated time.
    begun_ns: u64,
    /// Its read point, at levels that have one.
    pub(super) point: Option<u64>,
    look: Look,
    pub(super) own: Own,
    /// What it found at its read point, and what it found at earlier ones, before a locking read
    /// moved the point.
    found: Found,
    earlier: Found,
    /// The ranges that it deletes.
    pub(super) asked: Vec<Sight>,
    /// What it does to the chain of its writer.
    pub(super) step: Option<Step>,
    /// The error if the transaction has failed by a conflict, a deadlock, a timeout or an abort:
    /// every later call must fail with the same one.
    pub(super) doomed: Option<String>,
    /// True if it has a timeout, or other tasks may abort it.
    may_abort: bool,
    story: Story,
    /// How often its task had waited when it began.
    waited: Waits,
}

/// A transaction under way, as its task sees it.
pub(super) struct Attempt<'a> {
    pub(super) stage: &'a Stage,
    pub(super) tx: &'a Transaction,
    pub(super) record: Record,
    /// What its values consist of: the writer, the number of the commit that it will be, and the
    /// number of the write, counted through all attempts.
    writer: usize,
    number: u64,
    pub(super) nth: usize,
    /// False if it is to be prepared, which none with a stream or a `set_expiry` can be.
    may_stream: bool,
}

impl<'a> Attempt<'a> {
    /// `look` was taken before the transaction began.
    pub(super) fn new(
        stage: &'a Stage,
        tx: &'a Transaction,
        level: Isolation,
        mut look: Look,
        (writer, nth): (usize, usize),
    ) -> Attempt<'a> {
        let point = has_point(level).then(|| position(tx.read_point()));
        let number = {
            let mut history = stage.history.borrow_mut();
            history.levels.note(level, What::Begun);
            if let Some(point) = point {
                let acknowledged = look.acknowledged();
                history.pinned_at(&mut look, point);
                if point < acknowledged {
                    stage.fail(format!("a transaction at {point} misses commit {acknowledged}"));
                }
            }
            history.next_number(writer)
        };
        let (own, found, doomed) = (Own::default(), Found::default(), None);
        let (earlier, asked) = (Found::default(), Vec::new());
        let begun_ns = runtime::now_ns();
        let (may_abort, story, waited) = (false, Story::default(), runtime::waits());
        let record = Record {
            level,
            begun_ns,
            point,
            look,
            own,
            found,
            earlier,
            asked,
            step: None,
            doomed,
            may_abort,
            story,
            waited,
        };
        Attempt { stage, tx, record, writer, number, nth, may_stream: true }
    }

    /// Has it put no streams.
    pub(super) fn without_streams(mut self) -> Attempt<'a> {
        self.may_stream = false;
        self
    }

    /// Says whether its calls may report an abort.
    pub(super) fn may_abort(mut self, may_abort: bool) -> Attempt<'a> {
        self.record.may_abort = may_abort;
        self
    }

    /// How it is run.
    pub(super) fn told(mut self, story: Story) -> Attempt<'a> {
        self.record.story = story;
        self
    }

    /// The value of its next write.
    fn draft(&mut self, rng: &mut fastrand::Rng) -> Draft {
        self.nth += 1;
        Draft::of(self.writer, self.number, self.nth, self.stage.terrain.value_len(rng))
    }

    /// Judges the outcome of a call.
    pub(super) fn outcome<T>(
        &mut self,
        doing: &str,
        result: isobath::Result<T>,
    ) -> Result<T, Error> {
        let result = self.record.outcome(self.stage, doing, result);
        if result.is_ok() {
            self.follow();
        }
        result
    }

    /// A locking call may have moved the read point.
    pub(super) fn follow(&mut self) {
        self.record.move_to(self.stage, position(self.tx.read_point()));
    }

    pub(super) fn is_doomed(&self) -> bool {
        self.record.doomed.is_some()
    }

    /// The bounds of a call that reads at a moment of its own.
    pub(super) fn look(&self) -> Option<Look> {
        self.record.point.is_none().then(|| self.stage.look())
    }

    /// Records what a call found, including the transaction's own writes.
    pub(super) fn saw(&mut self, look: Option<Look>, sights: Vec<Sight>, kind: Kind) {
        let mut parts = Vec::new();
        for sight in sights {
            match self.record.own.take_out(sight) {
                Ok(more) => parts.extend(more),
                Err(wrong) => self.stage.fail(wrong),
            }
        }
        if let Some(look) = look {
            let told = self.stage.saw("a call of a transaction", look, (parts.clone(), Ok(())));
            drop(told);
        }
        match kind {
            Kind::Item => self.record.found.items.extend(parts),
            Kind::Scan => self.record.found.scans.extend(parts),
            Kind::Untracked => self.record.found.untracked.extend(parts),
            Kind::Locked => self.record.found.locked.extend(parts),
        }
    }

    /// Reads one key by one of the calls that can.
    pub(super) fn get(&mut self, place: &Place, rng: &mut fastrand::Rng) -> Result<(), Error> {
        let (tx, side, key) = (self.tx, &self.stage.side, &place.1);
        let look = self.look();
        let (way, uncached) = (rng.u8(..8), ReadOptions::default().fill_cache(false));
        let result = match (way, place.0) {
            (0, 0) => tx.contains(key).map(|is_there| is_there.then_some(None)),
            (0, _) => tx.of(side).contains(key).map(|is_there| is_there.then_some(None)),
            (2, 0) => tx.with(uncached).get(key).map(known),
            (2, _) => tx.of(side).with(uncached).get(key).map(known),
            (1, 0) => tx.get_untracked(key).map(known),
            (1, _) => tx.of(side).get_untracked(key).map(known),
            (3, 0) => tx.get_reader(key).and_then(read_back).map(digested),
            (3, _) => tx.of(side).get_reader(key).and_then(read_back).map(digested),
            (_, 0) => tx.get(key).map(known),
            (..) => tx.of(side).get(key).map(known),
        };
        let value = self.outcome("a transaction's get", result)?;
        let kind = if way == 1 { Kind::Untracked } else { Kind::Item };
        self.saw(look, vec![Sight::of_key(place.0, key.clone(), value)], kind);
        Ok(())
    }

    /// Reads one key and locks it until the end.
    pub(super) fn get_locked(
        &mut self,
        place: &Place,
        rng: &mut fastrand::Rng,
    ) -> Result<(), Error> {
        let (tx, side, key) = (self.tx, &self.stage.side, &place.1);
        let look = self.look();
        let result = match (rng.u8(..3) > 0, place.0) {
            (true, 0) => tx.get_for_update(key),
            (true, _) => tx.of(side).get_for_update(key),
            (false, 0) => tx.get_for_share(key),
            (false, _) => tx.of(side).get_for_share(key),
        };
        let value = self.outcome("a transaction's locking read", result)?;
        self.saw(look, vec![Sight::of_key(place.0, key.clone(), known(value))], Kind::Locked);
        Ok(())
    }

    /// Reads several keys of a family in one call.
    pub(super) fn multi_get(&mut self, family: u8, keys: &[Key]) -> Result<(), Error> {
        let look = self.look();
        let result = match family {
            0 => self.tx.multi_get(keys),
            _ => self.tx.of(&self.stage.side).multi_get(keys),
        };
        let values = self.outcome("a transaction's multi_get", result)?;
        if values.len() != keys.len() {
            self.stage.fail("a transaction's multi_get answers other keys".to_owned());
        }
        let sights = keys.iter().zip(values);
        let sights = sights.map(|(key, value)| Sight::of_key(family, key.clone(), known(value)));
        self.saw(look, sights.collect(), Kind::Item);
        Ok(())
    }

    pub(super) fn put(&mut self, place: Place, rng: &mut fastrand::Rng) -> Result<(), Error> {
        let bytes = self.draft(rng).bytes();
        let ends = has_end(bytes.len(), &place.1);
        if self.may_stream && !ends && (bytes.len() + self.nth).is_multiple_of(PUTS_A_STREAM) {
            let streamed = self.stage.streamed(&bytes);
            let streamed =
                streamed.inspect_err(|error| self.stage.judge_write("a stream", error))?;
            let result = match place.0 {
                0 => self.tx.put_streamed(&place.1, streamed),
                _ => self.tx.of(&self.stage.side).put_streamed(&place.1, streamed),
            };
            self.outcome("a transaction's stream", result)?;
            self.record.own.write(place, Some(Value::of(&bytes)));
            return Ok(());
        }
        let (tx, side, key) = (self.tx, &self.stage.side, &place.1);
        // Merges never conflict with one another, which the rule for Snapshot knows nothing of.
        let may_merge = self.record.level != Isolation::Snapshot;
        let operand = as_operand(self.nth, &bytes).filter(|_| may_merge);
        let result = match (place.0, operand) {
            (0, _) if ends => tx.put_ttl(key, &bytes, far_end()),
            (_, _) if ends => tx.of(side).put_ttl(key, &bytes, far_end()),
            (0, Some(operand)) => match tx.merge(key, operand) {
                Err(error) if meets_an_end(&error) => tx.put(key, &bytes),
                merged => merged,
            },
            (_, Some(operand)) => match tx.of(side).merge(key, operand) {
                Err(error) if meets_an_end(&error) => tx.of(side).put(key, &bytes),
                merged => merged,
            },
            (0, None) => tx.put(key, &bytes),
            (_, None) => tx.of(side).put(key, &bytes),
        };
        self.outcome("a transaction's put", result)?;
        self.record.own.write(place, Some(Value::of(&bytes)));
        Ok(())
    }

    pub(super) fn delete(&mut self, place: Place) -> Result<(), Error> {
        let result = match place.0 {
            0 => self.tx.delete(&place.1),
            _ => self.tx.of(&self.stage.side).delete(&place.1),
        };
        self.outcome("a transaction's delete", result)?;
        self.record.own.write(place, None);
        Ok(())
    }

    /// Has the value of a key end now, if the key has one.
    pub(super) fn set_expiry(&mut self, place: Place) -> Result<(), Error> {
        if !self.may_stream {
            return self.delete(place);
        }
        let (tx, side, key) = (self.tx, &self.stage.side, &place.1);
        let (look, end) = (self.look(), SystemTime::UNIX_EPOCH);
        let result = match place.0 {
            0 => tx.set_expiry(key, end),
            _ => tx.of(side).set_expiry(key, end),
        };
        let is_set = self.outcome("a transaction's set_expiry", result)?;
        let found = is_set.then_some(None);
        self.saw(look, vec![Sight::of_key(place.0, key.clone(), found)], Kind::Item);
        if is_set {
            self.record.own.write(place, None);
        }
        Ok(())
    }

    /// Calls `put_if` with the key's present value, or with one that it never had.
    pub(super) fn put_if(&mut self, place: Place, rng: &mut fastrand::Rng) -> Result<(), Error> {
        let (tx, side, key) = (self.tx, &self.stage.side, &place.1);
        let look = self.look();
        let result = if place.0 == 0 { tx.get(key) } else { tx.of(side).get(key) };
        let old = self.outcome("a transaction's get", result)?;
        let found = known(old.clone());
        self.saw(look, vec![Sight::of_key(place.0, key.clone(), found)], Kind::Item);
        let is_sought = rng.u8(..4) > 0;
        let expected = if is_sought { old.as_deref() } else { Some(&b"never"[..]) };
        let (look, bytes) = (self.look(), self.draft(rng).bytes());
        let result = match place.0 {
            0 => tx.put_if(key, expected, &bytes),
            _ => tx.of(side).put_if(key, expected, &bytes),
        };
        let is_put = self.outcome("a transaction's put_if", result)?;
        let may_differ = look.is_some() && is_sought;
        if is_put != is_sought && !may_differ {
            self.stage.fail(format!("a transaction's put_if says {is_put}"));
        }
        if is_put {
            self.saw(look, vec![Sight::of_key(place.0, key.clone(), found)], Kind::Item);
            self.record.own.write(place, Some(Value::of(&bytes)));
        }
        Ok(())
    }

    /// Calls `fetch_update`, which replaces or deletes the value.
    pub(super) fn fetch_update(
        &mut self,
        place: Place,
        rng: &mut fastrand::Rng,
    ) -> Result<(), Error> {
        let (tx, side, key) = (self.tx, &self.stage.side, &place.1);
        let look = self.look();
        let new = (rng.u8(..4) > 0).then(|| self.draft(rng).bytes());
        let mut seen = None;
        let update = |old: Option<&[u8]>| {
            seen = Some(old.map(Value::of));
            new.clone()
        };
        let result = match place.0 {
            0 => tx.fetch_update(key, update),
            _ => tx.of(side).fetch_update(key, update),
        };
        let old = self.outcome("a transaction's fetch_update", result)?;
        let found = known(old);
        if seen.map(|seen| seen.map(Some)) != Some(found) {
            self.stage.fail("a transaction's fetch_update returns another value".to_owned());
        }
        self.saw(look, vec![Sight::of_key(place.0, key.clone(), found)], Kind::Item);
        if found.is_some() || new.is_some() {
            self.record.own.write(place, new.as_deref().map(Value::of));
        }
        Ok(())
    }

    /// Takes a step of its writer's chain if its number is even, and looks at the outcome now and
    /// then. What has operands cannot go to files, so others have none.
    pub(super) fn link(&mut self, chain: &Chain) -> Result<(), Error> {
        if !self.number.is_multiple_of(2) {
            return Ok(());
        }
        let step = chain.step(self.writer, self.number);
        let ((place, value), look) = (step.outcome(), self.look());
        if step.sweeps() {
            self.record.asked.push(Sight::of_key(place.0, place.1.clone(), None));
        }
        let taken = step.take(self.tx);
        self.outcome("a transaction's step of its chain", taken)?;
        self.record.own.write(place.clone(), value);
        self.record.step = Some(step);
        if self.number.is_multiple_of(3) {
            let found = self.outcome("a transaction's look at its chain", self.tx.get(&place.1))?;
            self.saw(look, vec![Sight::of_key(place.0, place.1, known(found))], Kind::Item);
        }
        Ok(())
    }

    /// Writes the marker of its writer, which is in every commit that writes anything.
    pub(super) fn mark(&mut self) -> Result<(), Error> {
        let number = Draft::text(self.number.to_string()).bytes();
        let place = super::super::oracle::marker(self.writer);
        let result = self.tx.put(&place.1, &number);
        self.outcome("a transaction's marker", result)?;
        self.record.own.write(place, Some(Value::of(&number)));
        Ok(())
    }
}

impl Record {
    /// Judges the outcome of a call. Once a transaction is doomed, every call must fail with the
    /// same error.
    pub(super) fn outcome<T>(
        &mut self,
        stage: &Stage,
        doing: &str,
        result: isobath::Result<T>,
    ) -> Result<T, Error> {
        match &result {
            Ok(_) if self.doomed.is_some() => {
                stage.fail(format!("{doing} works in a transaction that is doomed"));
            }
            Ok(_) => {}
            Err(error) if error.is_conflict() => self.conflict(stage, doing, error),
            Err(error) if self.may_abort && error.is_transaction_aborted() => {
                self.conflict(stage, doing, error);
            }
            // Memory budgets are drawn so small that a transaction may exceed them.
            Err(error) if is_too_large(error) => {}
            Err(error) => stage.judge_write(doing, error),
        }
        result
    }

    fn conflict(&mut self, stage: &Stage, doing: &str, error: &Error) {
        let told = error.to_string();
        match &self.doomed {
            Some(first) if *first != told => {
                stage.fail(format!("{doing}: {told}; it was doomed by {first}"));
            }
            Some(_) => {}
            None => {
                stage.history.borrow_mut().levels.refused(self.level, error);
                self.refused(stage, error);
                self.gave_up(stage, doing, error);
                self.doomed = Some(told);
            }
        }
    }

    /// Reports a conflict to the oracle, which checks that the key that it names has changed.
    fn refused(&self, stage: &Stage, error: &Error) {
        let ErrorKind::Conflict { family, key, kind, .. } = error.kind() else { return };
        let (Some(point), Some(family)) = (self.point, stage.family_number(family)) else {
            return;
        };
        let (place, mut kind) = ((family, Key::from(&key[..])), *kind);
        if kind == ConflictKind::Write && self.asked.iter().any(|range| range.covers(&place)) {
            // The key that changed may be any key of the range.
            kind = ConflictKind::Range;
        }
        stage.history.borrow_mut().refused(Refusal { place, kind, point, told: 0 });
    }

    /// Every task makes progress and ends its transactions soon. So a wait this long is a deadlock
    /// that the engine has not found.
    fn gave_up(&self, stage: &Stage, doing: &str, error: &Error) {
        let patience_ns = patience_ns();
        let is_patient = runtime::now_ns() - self.begun_ns >= patience_ns;
        if is_patient && matches!(error.kind(), ErrorKind::LockTimeout { .. }) {
            stage.fail(format!("{doing} has waited for {patience_ns} ns: {error}"));
        }
    }

    /// Notes that a locking read has moved the read point. What the transaction relies on must hold
    /// at the new point, too.
    fn move_to(&mut self, stage: &Stage, point: u64) {
        if self.point.is_none_or(|old| old == point) {
            return;
        }
        // The point moved at some moment between the transaction's begin and now.
        let mut look = self.look;
        let mut history = stage.history.borrow_mut();
        history.pinned_at(&mut look, point);
        let found = std::mem::take(&mut self.found);
        let old = std::mem::replace(&mut self.look, look);
        history.saw("a transaction whose point has moved", old, found.sights());
        self.earlier.append(&found);
        history.saw("a transaction at its new point", look, self.earlier.lasting(self.level));
        self.point = Some(point);
    }

    /// What must hold just before its commit.
    pub(super) fn lasting(&self) -> Vec<Sight> {
        let mut found = self.found.clone();
        found.append(&self.earlier);
        found.lasting(self.level)
    }

    /// Reports its end to the oracle: committed at this point, or, with `None`, not committed or
    /// without writes.
    pub(super) fn end(self, stage: &Stage, committed: Option<u64>) {
        let Record { level, point, look, own, mut found, earlier, story, waited, .. } = self;
        let mut history = stage.history.borrow_mut();
        history.levels.waited(level, runtime::waits().since(waited));
        if point.is_some() {
            history.saw("a transaction", look, found.sights());
        }
        found.append(&earlier);
        let writes = own.places();
        history.ended(Deal { level, point, committed, ended: 0, found, writes, story });
    }
}

/// The kind of a read.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    Item,
    Scan,
    Untracked,
    Locked,
}

/// True if the transaction has exceeded its memory budget, which is drawn very small.
pub(crate) fn is_too_large(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::TransactionTooLarge { .. })
}

/// True if a merge was refused because it would have to put a value that ends. A put takes its
/// place.
fn meets_an_end(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::InvalidArgument { .. })
        && error.to_string().contains("which ends; commit before it")
}

fn digested(value: Option<Vec<u8>>) -> Option<Option<Value>> {
    value.map(|value| Some(Value::of(&value)))
}

fn known(value: Option<isobath::Value>) -> Option<Option<Value>> {
    value.map(|value| Some(Value::of(&value)))
}
