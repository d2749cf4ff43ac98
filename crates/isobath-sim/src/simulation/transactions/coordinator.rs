//! Tasks that commit in two phases: each prepares a transaction, and decides it by its name: at
//! once, after a while, or in a later life of the database.
//!
//! A coordinator has one transaction in doubt at a time, whose marker is locked with the rest. So
//! an open must list exactly what earlier lives left ([`Doubt::check`]). A transaction whose
//! prepare has returned is in doubt after every crash until its decision is durable. What it relies
//! on must be true just before its commit, whichever life that happens in.
//!
//! Some transactions have a timeout or an idle timeout, and some may be aborted by other tasks:
//! until they are prepared, and never afterwards. What is drawn for that has a stream of its own.
//!
//! A coordinator that has done its work decides what it has left in doubt after a while, as one
//! that recovers does. Others would wait for it otherwise. Once they have ended, it stays in doubt
//! for the next life.

use super::super::levels::{Phase, What};
use super::super::observe::Sight;
use super::super::oracle::{COORDINATORS, History, Placed, coordinator, marker_number};
use super::super::runtime::{self, real};
use super::super::values::{Place, Value, Values};
use super::super::workload::Stage;
use super::attempt::Attempt;
use super::body::{Plot, pause};
use super::keys::{Abort, Arena, Told};
use crate::position::position;
use isobath::{
    Db, Error, ErrorKind, Family, Isolation, Prepared, TransactionOptions, WriteOptions, Xid,
};
use std::sync::Arc;
use std::time::Duration;

/// So many coordinators a life draws from, unless its profile asks for more.
pub(crate) const USUAL: usize = 3;

/// How long a task waits after it met a full disk.
const RETRY_NS: u64 = 5_000_000;

/// Tells the stream of what may end a transaction from that of everything else.
const OF_LIMITS: u64 = 0x6c69_6d69_7473;

/// The names of the tasks that may wait for what is in doubt.
const WAITING: [&str; 6] = ["writer", "reader", "janitor", "careless", "tenant", "transactor"];

/// What a coordinator may have in doubt.
#[derive(Clone, Debug)]
pub(crate) struct Doubt {
    xid: Xid,
    level: Isolation,
    /// The number of the commit that it is to be.
    number: u64,
    writes: Vec<(Place, Option<Value>)>,
    /// What must be true just before its commit.
    lasting: Vec<Sight>,
    /// Its prepare has returned.
    is_certain: bool,
    /// The decision that was asked for, if its call has not returned, or left it open.
    decision: Option<bool>,
    /// The machine has died meanwhile.
    has_crashed: bool,
}

impl Doubt {
    fn phase(&self) -> Phase {
        match (self.is_certain, self.decision) {
            (_, Some(_)) => Phase::Deciding,
            (true, None) => Phase::Prepared,
            (false, None) => Phase::Preparing,
        }
    }

    /// Checks what an open found of it.
    fn check(&self, writer: usize, found: &Values, is_listed: bool) -> Result<(), String> {
        let is_there = marker_number(found, writer) == self.number;
        let may_be = match (self.is_certain, self.decision) {
            (true, None) => is_listed && !is_there,
            (_, Some(true)) => is_listed != is_there,
            (false, None) | (_, Some(false)) => !is_there,
        };
        match may_be {
            true => Ok(()),
            false => Err(format!(
                "the prepared transaction {} is in doubt: {is_listed}, committed: {is_there}; it was prepared for sure: \
                 {}, and its decision was {:?}",
                self.xid, self.is_certain, self.decision
            )),
        }
    }
}

/// Checks what is in doubt after an open, against what each coordinator left. Returns what they
/// have in doubt from now on.
///
/// After damage to the log, what was decided may be in doubt again. A name that was used again
/// since then does not tell which of the two it is, so no coordinator goes on: [`end_doubts`].
pub(crate) fn check_doubts(
    doubts: &[Option<Doubt>],
    found: &Values,
    listed: &[Xid],
    may_lose: bool,
) -> Result<Vec<Option<Doubt>>, String> {
    if may_lose {
        return Ok(vec![None; doubts.len()]);
    }
    let is_listed = |doubt: &Doubt| listed.contains(&doubt.xid);
    for (nth, doubt) in doubts.iter().enumerate() {
        let checked = doubt.as_ref().map(|one| one.check(coordinator(nth), found, is_listed(one)));
        checked.unwrap_or(Ok(()))?;
    }
    let is_known = |xid: &&Xid| doubts.iter().flatten().any(|doubt| doubt.xid == **xid);
    if let Some(stranger) = listed.iter().find(|xid| !is_known(xid)) {
        return Err(format!("{stranger} is in doubt, though it was decided or never prepared"));
    }
    let left = |doubt: &Option<Doubt>| {
        let left = doubt.clone().filter(is_listed)?;
        Some(Doubt { is_certain: true, decision: None, ..left })
    };
    Ok(doubts.iter().map(left).collect())
}

/// Ends all that is in doubt.
pub(crate) fn end_doubts(db: &Db) -> isobath::Result<()> {
    db.in_doubt().iter().try_for_each(|one| db.rollback_prepared(&one.xid))
}

/// Checks that what is in doubt cannot be written. The error says what could be.
pub(crate) fn check_locked(db: &Db, side: &Family, doubts: &[Option<Doubt>]) -> Result<(), String> {
    let hasty = WriteOptions::default().fail_fast(true);
    for doubt in doubts.iter().flatten() {
        for ((family, key), _) in &doubt.writes {
            let written = match family {
                0 => db.with(hasty).delete(key),
                _ => side.with(hasty).delete(key),
            };
            if written.is_ok() {
                return Err(format!("a key of {}, which is in doubt, is not locked", doubt.xid));
            }
        }
    }
    Ok(())
}

impl Stage {
    /// The life of one coordinator.
    pub(crate) fn coordinate(&self, nth: usize, arena: &Arena, count: u32, rng: fastrand::Rng) {
        let limits = fastrand::Rng::with_seed(rng.get_seed() ^ OF_LIMITS);
        let (is_watched, told, values) = (false, None, 0);
        let mut task =
            Coordinator { stage: self, arena, nth, rng, limits, is_watched, told, values };
        for _ in 0..count {
            pause(&mut task.rng);
            if self.is_over() || !task.step() {
                return;
            }
        }
        task.recover();
    }
}

struct Coordinator<'a> {
    stage: &'a Stage,
    arena: &'a Arena,
    nth: usize,
    rng: fastrand::Rng,
    /// Draws what may end its transactions.
    limits: fastrand::Rng,
    /// True if its present transaction has a timeout, or other tasks may abort it.
    is_watched: bool,
    /// The result of an abort of its present transaction.
    told: Option<Arc<Told>>,
    /// Values written so far.
    values: usize,
}

/// True if a transaction was not prepared because a value that it has read may end before it is
/// decided.
fn relies_on_an_end(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::InvalidArgument { .. })
        && error.to_string().contains("value that ends")
}

impl Coordinator<'_> {
    /// Prepares a transaction, or decides the one that is in doubt. False if nothing more can be
    /// known of it in this life.
    fn step(&mut self) -> bool {
        let doubt = self.doubt();
        let Some(doubt) = doubt else { return self.prepare() };
        match self.rng.u8(..8) {
            0 => runtime::sleep_ns(1 << self.rng.u32(10..24)),
            1 => (0..self.rng.u16(..300)).for_each(|_| runtime::yield_now()),
            2..7 if self.arena.is_deferring => {
                (0..self.rng.u16(..100)).for_each(|_| runtime::yield_now());
            }
            _ => return self.decide(doubt, None),
        }
        true
    }

    /// Decides what it has left in doubt. Where decisions are put off, others seldom wait for it,
    /// and most of it stays for the next life.
    fn recover(&mut self) {
        if self.arena.is_deferring && self.limits.u8(..4) > 0 {
            return;
        }
        while let Some(doubt) = self.doubt().filter(|_| !self.stage.is_over()) {
            let goes_on = if real::is_here() {
                // On a thread of the system no other life comes that would decide it.
                self.step()
            } else {
                runtime::sleep_ns(1 << self.limits.u32(18..32));
                let is_waiting = |name: &str| WAITING.iter().any(|of| name.starts_with(of));
                !(self.stage.is_over() || self.stage.is_closing())
                    && runtime::is_at_work(is_waiting)
                    && self.decide(doubt, None)
            };
            if !goes_on {
                return;
            }
        }
    }

    fn doubt(&self) -> Option<Doubt> {
        self.stage.history.borrow().doubts[self.nth].clone()
    }

    fn set(&self, doubt: Option<Doubt>) {
        self.stage.history.borrow_mut().doubts[self.nth] = doubt;
    }

    /// Draws the options of a transaction.
    fn options(&mut self) -> (TransactionOptions, Isolation) {
        let level = self.arena.level(&mut self.rng);
        let write = WriteOptions::default().fail_fast(self.rng.u8(..16) == 0);
        let options = TransactionOptions::default().isolation(level).write(write);
        let options = options
            .locking(self.rng.u8(..4) == 0)
            .lock_timeout(Duration::from_micros(1 << self.rng.u32(6..14)));
        // Few end before they are prepared.
        let limit = Duration::from_micros(1 << self.limits.u32(6..28));
        let (options, is_watched) = match self.limits.u8(..8) {
            0 => (options.timeout(limit), true),
            1 => (options.idle_timeout(limit), true),
            _ => (options, false),
        };
        self.is_watched = is_watched;
        (options, level)
    }

    fn prepare(&mut self) -> bool {
        let (stage, writer) = (self.stage, coordinator(self.nth));
        let (options, level) = self.options();
        let look = stage.look();
        let tx = stage.db.with(options).begin();
        let is_offered = self.limits.u8(..8) == 0;
        self.told = is_offered.then(|| self.arena.offer(tx.abort_handle()));
        self.is_watched |= is_offered;
        let attempt = Attempt::new(stage, &tx, level, look, (writer, self.values));
        let mut attempt = attempt.may_abort(self.is_watched).without_streams();
        let number = stage.history.borrow().next_number(writer);
        let played = attempt.play(Plot::draw(self.arena, &mut self.rng), self.arena, &mut self.rng);
        let played = match played {
            Ok(()) if !attempt.record.own.is_empty() => attempt.mark(),
            played => played,
        };
        self.values = attempt.nth;
        let mut record = attempt.record;
        if played.is_err() || record.own.is_empty() {
            drop(tx);
            record.end(stage, None);
            return true;
        }
        let xid = Xid::new(format!("{writer}.{number}"));
        let (writes, lasting) = (record.own.all(), record.lasting());
        let (is_certain, decision, has_crashed, xid_of) = (false, None, false, xid.clone());
        let doubt = Doubt {
            xid: xid_of,
            level,
            number,
            writes,
            lasting,
            is_certain,
            decision,
            has_crashed,
        };
        self.set(Some(doubt.clone()));
        let prepared = tx.prepare(xid);
        stage.check_abort(self.told.as_deref(), &prepared);
        if prepared.as_ref().is_err_and(relies_on_an_end) {
            record.end(stage, None);
            self.set(None);
            return true;
        }
        let prepared = record.outcome(stage, "a prepare", prepared);
        record.end(stage, None);
        self.settle(doubt, prepared)
    }

    /// Handles a prepare that has returned.
    fn settle(&mut self, doubt: Doubt, prepared: Result<Prepared, Error>) -> bool {
        let stage = self.stage;
        match prepared {
            Ok(prepared) => {
                let doubt = Doubt { is_certain: true, ..doubt };
                stage.history.borrow_mut().two_phase.prepared += 1;
                self.set(Some(doubt.clone()));
                if prepared.xid().as_bytes() != doubt.xid.as_bytes() {
                    stage.fail(format!("{} was prepared for {}", prepared.xid(), doubt.xid));
                }
                let checked = self.check_listed(&doubt).and_then(|()| self.check_kept(&doubt));
                checked.unwrap_or_else(|wrong| stage.fail(wrong));
                match self.rng.u8(..4) {
                    0 => self.decide(doubt, Some(prepared)),
                    _ => true,
                }
            }
            Err(error) => {
                let is_open = matches!(error.kind(), ErrorKind::OutcomeUnknown { .. });
                if is_open || stage.life.is_over() {
                    return false;
                }
                self.set(None);
                if error.is_retryable() {
                    runtime::sleep_ns(RETRY_NS);
                }
                true
            }
        }
    }

    fn check_listed(&self, doubt: &Doubt) -> Result<(), String> {
        let listed = self.stage.db.in_doubt();
        let is_sorted = listed.windows(2).all(|pair| pair[0].xid < pair[1].xid);
        match is_sorted && listed.iter().any(|one| one.xid == doubt.xid) {
            true => Ok(()),
            false if self.stage.is_closing() => Ok(()),
            false => Err(format!("{} is not listed, or too often: {listed:?}", doubt.xid)),
        }
    }

    /// Sometimes checks that a transaction which others might have ended has kept its locks.
    fn check_kept(&mut self, doubt: &Doubt) -> Result<(), String> {
        if !self.is_watched || self.limits.u8(..4) > 0 || self.stage.is_over() {
            return Ok(());
        }
        check_locked(&self.stage.db, &self.stage.side, &[Some(doubt.clone())])
    }

    /// Decides what is in doubt, by its handle or its name.
    fn decide(&mut self, doubt: Doubt, handle: Option<Prepared>) -> bool {
        if doubt.is_certain && !doubt.has_crashed {
            self.check_kept(&doubt).unwrap_or_else(|wrong| self.stage.fail(wrong));
        }
        let (stage, writer, is_commit) = (self.stage, coordinator(self.nth), self.rng.u8(..4) > 0);
        self.set(Some(Doubt { decision: Some(is_commit), ..doubt.clone() }));
        if is_commit {
            stage.history.borrow_mut().begin(writer, doubt.writes.clone());
        }
        runtime::forget_reserved();
        let decided = match (handle, is_commit) {
            (Some(handle), true) => handle.commit().map(|commit| Some(position(commit))),
            (Some(handle), false) => handle.rollback().map(|()| None),
            (None, true) => {
                stage.db.commit_prepared(&doubt.xid).map(|commit| Some(position(commit)))
            }
            (None, false) => stage.db.rollback_prepared(&doubt.xid).map(|()| None),
        };
        match decided {
            Ok(point) => {
                if self.told.take().is_some_and(|told| told.get() == Abort::Done) {
                    stage.fail(format!("{} was aborted after its prepare", doubt.xid));
                }
                let mut history = stage.history.borrow_mut();
                history.two_phase.decided(is_commit, doubt.has_crashed);
                if let Some(point) = point {
                    history.levels.note(doubt.level, What::Committed);
                    history.acknowledge(writer, point, true);
                    history.saw_before(
                        "a prepared transaction's commit",
                        point,
                        doubt.lasting.clone(),
                    );
                }
                drop(history);
                self.set(None);
                self.decide_again(&doubt.xid);
                true
            }
            Err(error) => {
                let is_open = matches!(error.kind(), ErrorKind::OutcomeUnknown { .. });
                let mut history = stage.history.borrow_mut();
                if is_open || stage.life.is_over() {
                    if is_commit {
                        history.fail(writer, Placed::from(runtime::last_reserved()));
                    }
                    drop(history);
                    stage.judge_write("a decision", &error);
                    if is_open {
                        self.decide_unheard(&doubt.xid);
                    }
                    return false;
                }
                if is_commit {
                    history.withdraw(writer);
                }
                drop(history);
                self.set(Some(doubt));
                stage.judge_write("a decision", &error);
                runtime::sleep_ns(RETRY_NS);
                true
            }
        }
    }
}

impl Coordinator<'_> {
    /// Sometimes asks for a decision, in either direction, on a transaction that is decided
    /// already: its name must be unknown.
    fn decide_again(&mut self, xid: &Xid) {
        let again = match self.rng.u8(..8) {
            0 => self.stage.db.commit_prepared(xid).map(drop),
            1 => self.stage.db.rollback_prepared(xid),
            _ => return,
        };
        match again.map_err(|error| (error.name(), error)) {
            Err(("UNKNOWN_TRANSACTION", _)) => {}
            Err((_, error)) => self.stage.judge_write("a second decision", &error),
            Ok(()) => self.stage.fail(format!("{xid} was decided twice")),
        }
    }

    /// Asks for a decision again whose outcome is unknown. A power cut may take it, so no answer
    /// may have its coordinator forget it.
    fn decide_unheard(&mut self, xid: &Xid) {
        let again = match self.rng.bool() {
            true => self.stage.db.commit_prepared(xid).map(drop),
            false => self.stage.db.rollback_prepared(xid),
        };
        match again.map_err(|error| (error.name(), error)) {
            Err(("UNKNOWN_TRANSACTION", _)) => {
                self.stage.fail(format!("{xid} is forgotten, though its decision may be lost"));
            }
            Err((_, error)) => self.stage.judge_write("a decision of unknown outcome", &error),
            Ok(()) => self.stage.fail(format!("{xid} was decided twice")),
        }
    }
}

/// The machine has died: counts what was in doubt, each at the first time.
pub(crate) fn note_crash(history: &mut History) {
    for doubt in history.doubts.iter_mut().flatten() {
        if !std::mem::replace(&mut doubt.has_crashed, true) {
            history.two_phase.crashed(doubt.phase());
        }
    }
}

/// What coordinators have in doubt at first.
pub(crate) fn no_doubts() -> Vec<Option<Doubt>> {
    vec![None; COORDINATORS]
}

#[cfg(test)]
mod tests {
    use super::super::super::oracle::marker;
    use super::*;

    fn doubt(is_certain: bool, decision: Option<bool>) -> Doubt {
        Doubt {
            xid: Xid::new("0.7"),
            level: Isolation::Serializable,
            number: 7,
            writes: Vec::new(),
            lasting: Vec::new(),
            is_certain,
            decision,
            has_crashed: false,
        }
    }

    /// What an open lists, and the newest commit of the coordinator that it finds.
    fn opened(doubt: &Doubt, is_listed: bool, number: u64) -> Result<Vec<Option<Doubt>>, String> {
        let marker = (marker(coordinator(0)), Value::of(number.to_string().as_bytes()));
        let listed: &[Xid] = if is_listed { std::slice::from_ref(&doubt.xid) } else { &[] };
        check_doubts(&[Some(doubt.clone())], &Values::from([marker]), listed, false)
    }

    #[test]
    fn an_open_lists_what_was_prepared_until_it_is_decided() {
        // Prepared for sure, the decision asked for, in doubt, committed.
        let allowed = [
            (true, None, true, false),
            (false, None, true, false),
            (false, None, false, false),
            (true, Some(true), true, false),
            (true, Some(true), false, true),
            (false, Some(true), true, false),
            (false, Some(true), false, true),
            (true, Some(false), true, false),
            (true, Some(false), false, false),
            (false, Some(false), true, false),
            (false, Some(false), false, false),
        ];
        for is_certain in [false, true] {
            for decision in [None, Some(false), Some(true)] {
                for (is_listed, is_there) in
                    [(false, false), (false, true), (true, false), (true, true)]
                {
                    let is_allowed = allowed.contains(&(is_certain, decision, is_listed, is_there));
                    let number = if is_there { 7 } else { 6 };
                    let left = opened(&doubt(is_certain, decision), is_listed, number);
                    let case = (is_certain, decision, is_listed, is_there);
                    assert_eq!(left.is_ok(), is_allowed, "{case:?}: {left:?}");
                }
            }
        }
    }

    #[test]
    fn what_is_still_listed_is_in_doubt_for_sure_from_then_on() {
        let left = opened(&doubt(false, Some(true)), true, 6).expect("still in doubt");
        let left = left[0].as_ref().expect("still in doubt");
        assert!(left.is_certain && left.decision.is_none());
        assert!(opened(&doubt(false, None), false, 6).expect("never prepared")[0].is_none());
    }

    #[test]
    fn an_open_lists_no_stranger_unless_the_log_was_damaged() {
        let stranger = [Xid::new("0.6")];
        let listed = |may_lose| check_doubts(&[None], &Values::new(), &stranger, may_lose);
        assert!(listed(false).is_err());
        assert!(listed(true).expect("nothing is known")[0].is_none());
    }
}
