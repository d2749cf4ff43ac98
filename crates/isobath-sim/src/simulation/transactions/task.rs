//! A task that runs transactions one after the other, by explicit calls or by `transact`, and plain
//! writes.

use super::super::edits::Chain;
use super::super::levels::What;
use super::super::oracle::{Look, Placed, marker, stepper, transactor};
use super::super::runtime;
use super::super::values::{Draft, Write};
use super::super::workload::Stage;
use super::attempt::{Attempt, Record, patience_ns};
use super::body::{Plot, pause};
use super::deal::Story;
use super::keys::{Abort, Arena, Told};
use crate::position::position;
use isobath::{
    AbortReason, Durability, Error, ErrorKind, Isolation, Transaction, TransactionOptions,
    WriteOptions,
};
use std::cell::Cell;
use std::time::Duration;

pub(super) const LEVELS: [Isolation; 8] = [
    Isolation::Serializable,
    Isolation::Serializable,
    Isolation::Serializable,
    Isolation::Snapshot,
    Isolation::Snapshot,
    Isolation::RepeatableRead,
    Isolation::ReadCommitted,
    Isolation::ReadUncommitted,
];

/// Longer than the gate stays open when no transaction comes.
const TIDE_NS: u64 = 3_000_000_000;
/// How long a task waits after it met a full disk.
const RETRY_NS: u64 = 5_000_000;

/// A task that runs transactions.
pub(super) struct Transactor<'a> {
    pub(super) stage: &'a Stage,
    pub(super) arena: &'a Arena,
    /// The writer of its transactions, and that of its single steps.
    writer: usize,
    pub(super) stepper: usize,
    pub(super) rng: fastrand::Rng,
    /// What its transactions merge into: a key that no other task writes.
    chain: Chain,
    /// The number of values written so far. No two values are equal, committed or not.
    nth: usize,
    /// True if a sync had failed before its commit began.
    had_failed_sync: Cell<bool>,
    /// True if the outcome of one of its commits is unknown. Then it writes no more.
    pub(super) is_in_doubt: bool,
    /// True if its present transaction has a timeout, or other tasks may abort it.
    may_abort: bool,
    /// How that is run.
    story: Story,
}

impl Stage {
    /// Runs one task of transactions.
    pub(crate) fn transact(&self, nth: usize, arena: &Arena, count: u32, rng: fastrand::Rng) {
        let (writer, stepper) = (transactor(nth), stepper(nth));
        let mut task = Transactor {
            stage: self,
            arena,
            writer,
            stepper,
            rng,
            chain: Chain::of_transactions(),
            nth: 0,
            had_failed_sync: Cell::new(false),
            is_in_doubt: false,
            may_abort: false,
            story: Story::default(),
        };
        for _ in 0..count {
            if self.is_over() || task.is_in_doubt {
                return;
            }
            if arena.has_tides && task.rng.u8(..4) == 0 {
                runtime::sleep_ns(TIDE_NS - runtime::now_ns() % TIDE_NS);
            }
            if task.rng.u8(..4) == 0 {
                arena.abort_one(&mut task.rng);
            }
            match task.rng.u8(..16) {
                0..10 if !arena.is_crowded => task.by_hand(),
                0..13 => task.rerun(),
                13 => task.plain(),
                _ => task.step(),
            }
        }
    }

    /// A transaction that was aborted must not commit or be prepared, and one that was not must not
    /// say so.
    pub(super) fn check_abort<T>(&self, abort: Option<&Told>, committed: &isobath::Result<T>) {
        let abort = abort.map_or(Abort::None, Told::get);
        let asked = |error: &Error| {
            let reason = AbortReason::Asked;
            matches!(error.kind(), ErrorKind::TransactionAborted { reason: told, .. } if *told == reason)
        };
        let is_wrong = match committed {
            Ok(_) => abort == Abort::Done,
            Err(error) => asked(error) && matches!(abort, Abort::None | Abort::Refused),
        };
        if is_wrong {
            let told = committed.as_ref().map(|_| ());
            self.fail(format!("its abort was {abort:?}, and its end {told:?}"));
        }
    }

    /// The oracle's number of a family, if the oracle tracks it.
    pub(super) fn family_number(&self, name: &str) -> Option<u8> {
        match name {
            "default" => Some(0),
            "side" => Some(1),
            _ => None,
        }
    }
}

impl Transactor<'_> {
    /// Draws the options of a transaction. The `bool` says whether its commit must survive power
    /// loss.
    fn options(&mut self) -> (TransactionOptions, Isolation, bool) {
        let level = self.arena.level(&mut self.rng);
        let is_synced = self.rng.u8(..8) == 0;
        let durability = if is_synced { Durability::Sync } else { Durability::Process };
        let write = WriteOptions::default().durability(durability);
        let write = write.fail_fast(self.rng.u8(..16) == 0);
        let patience = match self.arena.has_coordinators {
            true => Duration::from_millis(50),
            false => Duration::from_nanos(patience_ns()),
        };
        let timeout = [Duration::from_millis(5), patience][self.rng.usize(..2)];
        let options = TransactionOptions::default().isolation(level).write(write);
        self.story = Story { nth_try: 0, is_locking: self.rng.u8(..4) == 0 };
        let mut options = options.locking(self.story.is_locking).lock_timeout(timeout);
        let brief = |rng: &mut fastrand::Rng| Duration::from_micros(1 << rng.u32(6..16));
        match self.rng.u8(..16) {
            0 => options = options.timeout(brief(&mut self.rng)),
            1 => options = options.idle_timeout(brief(&mut self.rng)),
            _ => {}
        }
        self.may_abort = options.timeout.is_some() || options.idle_timeout.is_some();
        (options.attempts(self.rng.u32(1..20)), level, is_synced)
    }

    /// Runs a transaction by explicit calls and ends it in some way; sometimes resets and uses it
    /// again.
    fn by_hand(&mut self) {
        let (options, level, is_synced) = self.options();
        let stage = self.stage;
        let mut look = stage.look();
        let mut tx = stage.db.with(options).begin();
        if self.rng.u8(..8) == 0 {
            let id = tx.id();
            let listed = stage.db.transactions();
            let is_sorted = listed.windows(2).all(|pair| pair[0].id < pair[1].id);
            if !is_sorted || !listed.iter().any(|one| one.id == id) {
                stage.fail(format!("transaction {id} is not listed, or too often: {listed:?}"));
            }
        }
        let is_offered = self.rng.u8(..6) == 0;
        let abort = is_offered.then(|| self.arena.offer(tx.abort_handle()));
        self.may_abort |= is_offered;
        loop {
            let (record, played) = self.attempt(&tx, level, look);
            let end = played.unwrap_or(Ending::Rollback);
            match end {
                Ending::Commit => {
                    self.begin_commit(&record);
                    let committed = tx.commit().map(|commit| Some(position(commit)));
                    stage.check_abort(abort.as_deref(), &committed);
                    return self.settle(record, committed, is_synced);
                }
                Ending::Reset => {
                    record.end(stage, None);
                    look = stage.look();
                    let id = tx.id();
                    tx.reset();
                    abort.iter().for_each(|abort| abort.set(Abort::Earlier));
                    if tx.id() != id {
                        stage.fail("a transaction that begins anew is another".to_owned());
                    }
                }
                Ending::Rollback => {
                    tx.rollback();
                    return record.end(stage, None);
                }
                Ending::Drop => {
                    drop(tx);
                    return record.end(stage, None);
                }
            }
        }
    }

    /// One attempt: its calls, and how it should end. An error of a call leaves it half done.
    fn attempt(
        &mut self,
        tx: &Transaction,
        level: Isolation,
        look: Look,
    ) -> (Record, Result<Ending, Error>) {
        let plot = Plot::draw(self.arena, &mut self.rng);
        let attempt = Attempt::new(self.stage, tx, level, look, (self.writer, self.nth));
        self.story.nth_try += 1;
        let mut attempt = attempt.may_abort(self.may_abort).told(self.story);
        let played = attempt.play(plot, self.arena, &mut self.rng);
        let marked = match played {
            Ok(()) if !attempt.record.own.is_empty() => {
                attempt.mark().and_then(|()| attempt.link(&self.chain))
            }
            played => played,
        };
        self.nth = attempt.nth;
        let is_doomed = attempt.is_doomed();
        // Where they are counted, most commit.
        let ends = if self.arena.is_even { 64 } else { 16 };
        let end = match self.rng.u8(..ends) {
            0 => Ending::Rollback,
            1 => Ending::Drop,
            2..4 => Ending::Reset,
            _ => Ending::Commit,
        };
        // Some doomed transactions try to commit all the same, and must get the error again.
        (
            attempt.record,
            marked.or_else(|error| if is_doomed { Ok(()) } else { Err(error) }).map(|()| end),
        )
    }

    fn begin_commit(&self, record: &Record) {
        runtime::forget_reserved();
        self.had_failed_sync.set(self.stage.life.has_failed_sync());
        if !record.own.is_empty() {
            self.stage.history.borrow_mut().begin(self.writer, record.own.all());
        }
    }

    /// Handles a commit that has returned, with its read point if the call returns one.
    fn settle(
        &mut self,
        mut record: Record,
        committed: isobath::Result<Option<u64>>,
        is_synced: bool,
    ) {
        let (stage, wrote) = (self.stage, !record.own.is_empty());
        if committed.is_ok() {
            stage.history.borrow_mut().levels.note(record.level, What::Committed);
        }
        match record.outcome(stage, "a transaction's commit", committed) {
            Ok(told) if wrote => {
                let reserved = runtime::last_reserved();
                let Some(point) = reserved.filter(|at| told.is_none_or(|told| told == *at)) else {
                    return stage.fail(format!("it committed at {told:?}, not at {reserved:?}"));
                };
                if self.had_failed_sync.get() && !stage.life.is_over() {
                    stage.fail("a transaction committed after a failed sync".to_owned());
                }
                stage.history.borrow_mut().acknowledge(self.writer, point, is_synced);
                if let Some(step) = record.step.take() {
                    self.chain.done(step);
                }
                record.end(stage, Some(point));
            }
            Ok(_) => {
                if let Some(point) = record.point.filter(|_| is_synced) {
                    // What the transaction has read must survive, too.
                    stage.history.borrow_mut().synced(point);
                }
                record.end(stage, None);
            }
            Err(error) => {
                record.end(stage, None);
                self.failed(self.writer, wrote, &error);
            }
        }
    }

    /// A commit has failed.
    pub(super) fn failed(&mut self, writer: usize, wrote: bool, error: &Error) {
        let is_open = matches!(error.kind(), ErrorKind::OutcomeUnknown { .. });
        let mut history = self.stage.history.borrow_mut();
        match wrote {
            false => {}
            true if is_open || self.stage.life.is_over() => {
                history.fail(writer, Placed::from(runtime::last_reserved()));
                self.is_in_doubt = true;
            }
            // Every other error says that nothing was written.
            true => history.withdraw(writer),
        }
        drop(history);
        if error.is_retryable() {
            runtime::sleep_ns(RETRY_NS);
        }
    }

    /// Runs a transaction by `transact`, which runs the body again after a conflict.
    fn rerun(&mut self) {
        let (options, mut level, mut is_synced) = self.options();
        // In a crowd mostly with the defaults, so that conflicts lead to locks.
        let ways = match self.arena.is_crowded {
            _ if self.arena.is_even => 2,
            true => 12,
            false => 4,
        };
        let (stage, way) = (self.stage, self.rng.u8(..ways));
        if way >= 2 {
            // With the defaults.
            (level, is_synced) = (Isolation::Serializable, false);
            self.story.is_locking = false;
        }
        // Taken before this attempt began.
        let (mut last, mut look) = (None::<Record>, stage.look());
        let mut body = |tx: &Transaction| {
            if let Some(record) = last.take() {
                self.again(record);
            }
            let (record, played) = self.attempt(tx, level, look);
            if let Err(error) = played {
                record.end(stage, None);
                return Err(error);
            }
            self.begin_commit(&record);
            last = Some(record);
            look = stage.look();
            Ok(())
        };
        let transactions = stage.db.with(options);
        let told = |((), commit)| Some(position(commit));
        let committed = match way {
            0 => transactions.transact(&mut body).map(told),
            1 => transactions.try_transact(&mut body).map(told),
            2 => stage.db.transact(&mut body).map(|()| None),
            _ => stage.db.try_transact(&mut body).map(|()| None),
        };
        match last {
            Some(mut record) => {
                // The next attempt was aborted, or refused what it locks first, before its body was
                // called. So the error of this attempt does not count.
                if committed.as_ref().is_err_and(comes_before_a_body) {
                    record.doomed = None;
                }
                self.settle(record, committed, is_synced);
            }
            // A call of the body has failed, and was judged there.
            None => drop(committed),
        }
    }

    /// The attempt before this one failed by a conflict.
    fn again(&self, record: Record) {
        let mut history = self.stage.history.borrow_mut();
        history.levels.note(record.level, What::Rerun);
        if !record.own.is_empty() {
            history.withdraw(self.writer);
        }
        drop(history);
        record.end(self.stage, None);
    }

    /// A write without a transaction, of several keys.
    fn plain(&mut self) {
        let number = self.stage.history.borrow().next_number(self.writer);
        let mark = (marker(self.writer), Some(Draft::text(number.to_string())));
        let mut writes: Vec<Write> = vec![mark];
        for nth in 0..self.rng.usize(1..4) {
            let place = self.arena.place(&mut self.rng);
            let is_put = self.rng.u8(..4) > 0;
            let len = self.stage.terrain.value_len(&mut self.rng);
            writes.push((place, is_put.then(|| Draft::of(self.writer, number, nth, len))));
        }
        pause(&mut self.rng);
        let options = WriteOptions::default().durability(Durability::Process);
        self.is_in_doubt = !self.stage.write_once(self.writer, &writes, options);
    }
}

/// True of errors that an attempt may meet before its body is called.
fn comes_before_a_body(error: &Error) -> bool {
    let is_of_lock =
        matches!(error.kind(), ErrorKind::Deadlock { .. } | ErrorKind::LockTimeout { .. });
    is_of_lock || error.is_transaction_aborted()
}

/// How an attempt ends.
#[derive(Clone, Copy, Debug)]
enum Ending {
    Commit,
    Rollback,
    Drop,
    Reset,
}
