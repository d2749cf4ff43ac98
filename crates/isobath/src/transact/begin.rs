//! A running transaction: its read point, the families it has named, its footprint, and what dooms
//! it.
//!
//! A transaction that met a conflict or was aborted is doomed: all its later calls return the same
//! error, even if the program ignores the first one.

use super::lock::First;
use super::steps::Step;
use crate::engine::{Engine, Hold, Keyspace, Registered, SpillFile, Watch};
use crate::env::{Point, Reach, reached, yield_point};
use crate::error::{Error, Result};
use crate::footprint::{Interval, Lent, NoRoom, Operation};
use crate::format::{FamilyId, Lsn, OpKind};
use crate::limits::{MAX_BATCH_LEN, check_key, check_value, note_written};
use crate::options::Expiry;
use crate::options::{Isolation, TransactionOptions};
use crate::version::LiveFile;
use crate::write::{self, KeyLocks, default_expiry};
use smallvec::SmallVec;
use std::sync::Arc;

/// A transaction between its begin and its end. [`Life::end`] must be called before it is dropped.
pub(crate) struct Life {
    pub(super) options: TransactionOptions,
    /// The read point; `None` if every read takes the newest, and after the end.
    pub(super) point: Option<Lsn>,
    /// The era of the read point.
    pub(super) era: u64,
    /// Keeps the read point registered.
    pub(super) hold: Option<Hold>,
    /// The point from which it began, registered or not.
    pub(super) began_at: Lsn,
    /// True if the read point has moved since.
    pub(super) has_moved: bool,
    /// The step that reads.
    pub(super) step: Step,
    pub(super) footprint: Lent,
    /// What was written before the write set in the footprint, and is in files. Oldest first.
    pub(super) spilled: Vec<Arc<SpillFile>>,
    /// The length of the longest key and value in these files together.
    pub(super) spilled_longest: u64,
    /// The files of streams that it has put, also of those that it has replaced since.
    pub(super) streams: Vec<Arc<LiveFile>>,
    /// The families that were read or written, by ascending id.
    pub(super) families: SmallVec<[Arc<Keyspace>; 1]>,
    pub(super) locks: KeyLocks,
    /// What the next attempt locks before it begins, in order.
    pub(super) firsts: Vec<First>,
    /// What other threads abort it through, if they may.
    pub(super) watch: Option<Arc<Watch>>,
    doomed: Option<Error>,
    pub(super) is_committed: bool,
}

impl Life {
    /// Begins a transaction. It needs nothing that commits hold, so it waits for none, unless
    /// values end: then its point may need a tick, which is visible once all that was reserved
    /// before is (`engine/ticks.rs`).
    pub(crate) fn begin(engine: &Engine, options: TransactionOptions) -> Life {
        let lock_timeout = options.lock_timeout.unwrap_or(engine.options.lock_timeout);
        let mut life = Life {
            options,
            point: None,
            era: 0,
            hold: None,
            began_at: 0,
            has_moved: false,
            step: Step::default(),
            footprint: new_footprint(engine),
            spilled: Vec::new(),
            spilled_longest: 0,
            streams: Vec::new(),
            families: SmallVec::new(),
            locks: KeyLocks::of_transaction(options.isolation, lock_timeout),
            firsts: Vec::new(),
            watch: None,
            doomed: None,
            is_committed: false,
        };
        life.take_point(engine);
        engine.gauges.transactions_begun.add(1);
        if options.timeout.is_some() || options.idle_timeout.is_some() {
            life.be_watched(engine);
            life.leave(engine);
        }
        life
    }

    fn take_point(&mut self, engine: &Engine) {
        debug_assert!(self.hold.is_none(), "a transaction holds one point at a time");
        debug_assert!(self.footprint.len() == 0, "an attempt begins with nothing written");
        self.has_moved = false;
        match self.options.isolation > Isolation::ReadCommitted {
            true => {
                let hold = self.hold.insert(engine.register_point());
                let Registered { point, era } = hold.registered();
                (self.point, self.began_at, self.era) = (Some(point), point, era);
            }
            false => self.began_at = engine.newest_point(),
        }
        yield_point(Point::Begun);
    }

    /// Releases what the transaction holds. At this moment its commit is over, or it has written
    /// nothing.
    pub(crate) fn end(&mut self, engine: &Engine) {
        self.be_unwatched();
        self.locks.end(engine);
        self.end_attempt(engine);
        engine.spare_footprints.give(&mut self.footprint);
        if let Some(owner) = self.locks.owner() {
            engine.running.leave(owner.id);
        }
    }

    /// Gives back everything but the locks and the footprint.
    fn end_attempt(&mut self, engine: &Engine) {
        debug_assert!(
            self.hold.as_ref().is_none_or(|hold| Some(hold.point()) == self.point),
            "a transaction reads at the point that it holds"
        );
        self.point = None;
        if let Some(hold) = self.hold.take() {
            engine.points.release(&hold);
        }
        if !std::mem::replace(&mut self.is_committed, true) {
            engine.gauges.transactions_rolled_back.add(1);
        }
        self.spilled.clear();
        self.spilled_longest = 0;
        self.streams.clear();
        self.families.clear();
    }

    /// Empties the transaction and moves it to the newest read point.
    pub(crate) fn reset(&mut self, engine: &Engine) {
        self.be_unwatched();
        self.locks.end(engine);
        self.end_attempt(engine);
        engine.spare_footprints.give(&mut self.footprint);
        self.footprint = new_footprint(engine);
        self.firsts.clear();
        (self.doomed, self.is_committed) = (None, false);
        self.be_watched_again();
        self.take_point(engine);
        self.leave(engine);
    }

    /// Like [`Life::reset`], but first locks the keys on which earlier attempts met conflicts. If
    /// that fails, the transaction is doomed, and its body is not to be run.
    pub(crate) fn begin_again(&mut self, engine: &Engine) {
        self.doomed = None;
        if self.enter(engine).is_err() {
            return;
        }
        self.keep_firsts(engine);
        self.end_attempt(engine);
        self.footprint.begin_again(footprint_max(engine));
        self.is_committed = false;
        let locked = self.lock_firsts(engine);
        self.take_point(engine);
        match locked {
            Ok(()) => self.cover_firsts(),
            Err(error) => {
                let error = self.note(error);
                self.doom_by(error);
            }
        }
        self.leave(engine);
    }

    /// The number by which errors name the transaction.
    pub(crate) fn id(&mut self, engine: &Engine) -> u64 {
        self.locks.known(engine).id
    }

    /// The point that the transaction reads.
    pub(crate) fn read_point(&self, engine: &Engine) -> Lsn {
        self.point.unwrap_or_else(|| engine.newest_point())
    }

    /// Where the transaction reads; `None` for the newest point.
    #[inline]
    pub(super) fn registered(&self) -> Option<Registered> {
        self.point.map(|point| Registered { point, era: self.era })
    }

    /// Fails if the transaction is doomed.
    #[inline]
    pub(super) fn check(&self) -> Result<()> {
        match &self.doomed {
            None => {
                self.locks.note_call(|| self.footprint.charge());
                Ok(())
            }
            Some(error) => Err(error.clone()),
        }
    }

    /// Dooms the transaction, unless it is doomed already. Returns the error that it is doomed by.
    pub(super) fn doom_by(&mut self, error: Error) -> Error {
        self.doomed.get_or_insert(error).clone()
    }

    /// The error that dooms the transaction, if it is not a conflict. Then another attempt would
    /// not help.
    pub(crate) fn fatal(&self) -> Option<&Error> {
        self.doom().filter(|error| !error.is_conflict())
    }

    /// The conflict or the abort that dooms the transaction.
    pub(crate) fn doom(&self) -> Option<&Error> {
        self.doomed.as_ref()
    }

    /// Dooms the transaction if the error is a conflict, or if the transaction was aborted.
    pub(super) fn note(&mut self, error: Error) -> Error {
        let error = self.or_aborted(error);
        if error.is_transaction_aborted() {
            return self.doom_by(error);
        }
        if error.is_conflict() && self.doomed.is_none() {
            self.note_first(&error);
            self.doomed = Some(error.clone());
        }
        error
    }

    /// Adds a family that the transaction reads or writes.
    #[inline]
    pub(super) fn name_family(&mut self, family: &Arc<Keyspace>) {
        if let Err(at) = self.place_of(family.id) {
            self.families.insert(at, family.clone());
            debug_assert!(
                self.families.is_sorted_by(|one, next| one.id < next.id),
                "families are found by a binary search"
            );
        }
    }

    fn place_of(&self, family: FamilyId) -> std::result::Result<usize, usize> {
        self.families.binary_search_by_key(&family, |known| known.id)
    }

    /// Adds an operation to the write set, a put with the end that its family gives it.
    pub(crate) fn operate(
        &mut self,
        engine: &Arc<Engine>,
        family: &Arc<Keyspace>,
        kind: OpKind,
        key: &[u8],
        value: &[u8],
    ) -> Result<()> {
        if kind.is_lasting_put() && family.ttl_ms() > 0 {
            return self.put_expiring(engine, family, (key, value), default_expiry(family));
        }
        self.write_op(engine, family, kind, key, value)
    }

    /// Puts a value that ends so.
    #[cold]
    pub(crate) fn put_expiring(
        &mut self,
        engine: &Arc<Engine>,
        family: &Arc<Keyspace>,
        (key, value): (&[u8], &[u8]),
        expiry: Expiry,
    ) -> Result<()> {
        check_value(value)?;
        match engine.note_expiry(expiry)? {
            None => self.write_op(engine, family, OpKind::Put, key, value),
            Some(expires_ms) => {
                let stored = write::stored(expires_ms, value)?;
                self.write_op(engine, family, OpKind::PutExpiring, key, &stored)
            }
        }
    }

    /// Adds an operation to the write set as it is.
    pub(super) fn write_op(
        &mut self,
        engine: &Arc<Engine>,
        family: &Arc<Keyspace>,
        kind: OpKind,
        key: &[u8],
        value: &[u8],
    ) -> Result<()> {
        self.check_write(engine, family)?;
        check_key(key)?;
        check_value(value)?;
        engine.ceiling.check_entry(key, value)?;
        note_written(key, value);
        self.name_family(family);
        if self.options.locking {
            self.lock_written(engine, family, key).map_err(|error| self.note(error))?;
        }
        let operation = Operation { family: family.id, kind, key, value };
        match self.footprint.write(operation) {
            Ok(()) => Ok(()),
            Err(refused) => {
                self.spill(engine, refused, (key.len() + value.len()) as u64)?;
                self.footprint.write(operation).map_err(NoRoom::into_error)
            }
        }
    }

    /// Adds a range delete to the write set. `span` has the first key and the first key behind the
    /// range; if the latter is empty, the range has no end. Without a span, only the checks of
    /// every write are made.
    pub(crate) fn delete_range(
        &mut self,
        engine: &Arc<Engine>,
        family: &Arc<Keyspace>,
        span: Option<(&[u8], &[u8])>,
    ) -> Result<()> {
        self.check_write(engine, family)?;
        let Some((start, end)) = span else { return Ok(()) };
        debug_assert!(end.is_empty() || start < end, "a range ends before it begins");
        reached(Reach::SpanInTransaction);
        self.name_family(family);
        if self.options.locking {
            let range = Interval::of_span(start, end);
            self.lock_deleted(engine, family, &range).map_err(|error| self.note(error))?;
        }
        match self.footprint.delete_range(family.id, (start, end)) {
            Ok(()) => Ok(()),
            Err(refused) => {
                self.spill(engine, refused, (start.len() + end.len()) as u64)?;
                self.footprint.delete_range(family.id, (start, end)).map_err(NoRoom::into_error)
            }
        }
    }

    pub(super) fn check_write(&self, engine: &Engine, family: &Keyspace) -> Result<()> {
        self.check()?;
        engine.check_open()?;
        engine.check_not_read_only()?;
        if family.is_dropped() {
            return Err(Error::unknown_family(&family.name()));
        }
        Ok(())
    }
}

fn new_footprint(engine: &Engine) -> Lent {
    engine.spare_footprints.take(footprint_max(engine), || engine.ceiling.allowance())
}

/// The most memory that the footprint of a transaction may take before it commits.
pub(super) fn footprint_max(engine: &Engine) -> u64 {
    let max = engine.options.sizes.footprint_max.min(MAX_BATCH_LEN as u64);
    (engine.options.buffer_len() / 2).min(max)
}
