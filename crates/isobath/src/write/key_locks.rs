//! The locks of one transaction, or of one plain write that was held up so often that it locks its
//! keys.
//!
//! No other commit can change the newest version of a locked key. For that, three things are
//! needed, in this order:
//!
//! 1. The gate is open, and everything reserved before it opened is visible. So every writer
//!    announces itself, and those that do not have been waited for. It stays open until the
//!    transaction's commit is visible.
//! 2. The key stands in the map of locks, and its slot says so. Writers that announce themselves
//!    from now on see it, and wait.
//! 3. Those that had announced themselves before are stamped, and `visible` has passed the stamps;
//!    or they have no LSN yet, and will look for locks again once they have. None of them waits for
//!    a lock: a writer that does takes its announcement back first.

use super::announce::Pauses;
use super::ask::Held;
use super::drain::{Changed, drain};
use crate::conflict::Hold;
use crate::engine::{Engine, EntryLocks, Keyspace};
use crate::env::{Point, yield_point};
use crate::error::{AbortReason, DeadlockWait, Error, Result};
use crate::format::{FamilyId, checksum64};
use crate::lock::{Got, LockMode, LockRefusal, OwnRanges, Owner, Span, Wait};
use crate::options::Isolation;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// How long a locker waits for announcements at least, also if it may not wait for locks. Those who
/// announced are about to end, unless the log has no room.
const DRAIN_MIN: Duration = Duration::from_millis(20);

/// The locks of one owner, which need no room before the first one is taken. They must be given
/// back by [`KeyLocks::release`] and [`KeyLocks::leave`].
#[derive(Debug)]
pub(crate) struct KeyLocks {
    owner: Option<Arc<Owner>>,
    /// Keeps the gate open while something is locked.
    hold: Option<Hold>,
    kind: Kind,
    timeout: Duration,
    /// No wait lasts longer.
    until_ns: u64,
    has_ranges: bool,
    /// A range is locked, and what was reserved before may not be visible yet.
    is_settling: bool,
    /// Ranges that are locked and have not changed since the transaction's read point.
    covered: BTreeMap<FamilyId, OwnRanges>,
    /// What it held or was locking around the keys over which it died in the last deadlock.
    died_in: Vec<(FamilyId, Span)>,
}

/// Whose locks they are.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Transaction(Isolation),
    Write,
}

impl KeyLocks {
    /// For a transaction, through all its attempts.
    pub(crate) fn of_transaction(isolation: Isolation, timeout: Duration) -> KeyLocks {
        KeyLocks::new(Kind::Transaction(isolation), timeout)
    }

    /// For a plain write.
    pub(crate) fn of_write(engine: &Engine) -> KeyLocks {
        KeyLocks::new(Kind::Write, engine.options.lock_timeout)
    }

    fn new(kind: Kind, timeout: Duration) -> KeyLocks {
        let (owner, hold, covered, died_in) = (None, None, BTreeMap::new(), Vec::new());
        let until_ns = u64::MAX;
        let (has_ranges, is_settling) = (false, false);
        KeyLocks { owner, hold, kind, timeout, until_ns, has_ranges, is_settling, covered, died_in }
    }

    /// The owner as locks know it, if it has locked or waited yet.
    #[inline]
    pub(crate) fn owner(&self) -> Option<&Arc<Owner>> {
        self.owner.as_ref()
    }

    /// The owner, which is called from this thread. It is made when it is first needed. From then
    /// on the transaction has an age, which it keeps through later attempts.
    pub(crate) fn known(&mut self, engine: &Engine) -> &Arc<Owner> {
        let kind = self.kind;
        let owner = self.owner.get_or_insert_with(|| {
            let id = engine.locks.next_id();
            match kind {
                Kind::Write => Owner::write(id),
                Kind::Transaction(isolation) => {
                    let owner = Owner::transaction(id);
                    engine.running.enter(&owner, isolation, engine.options.env.clock.now_ns());
                    owner
                }
            }
        });
        owner.note_thread();
        owner
    }

    /// Notes that the transaction is called from this thread, and what memory it takes by now.
    #[inline]
    pub(crate) fn note_call(&self, bytes: impl FnOnce() -> u64) {
        if let Some(owner) = &self.owner {
            owner.note_thread();
            owner.note_bytes(bytes() + owner.held_bytes());
        }
    }

    /// The memory that the locks take, about.
    #[inline]
    pub(crate) fn bytes(&self, engine: &Engine) -> u64 {
        match (&self.owner, self.has_ranges) {
            (None, _) => 0,
            (Some(owner), false) => owner.held_bytes(),
            (Some(owner), true) => engine.locks.bytes_of(owner),
        }
    }

    /// Charges `more` bytes of locks, which are about to be taken, or fails.
    #[inline]
    pub(crate) fn charge(&mut self, engine: &Engine, more: u64) -> Result<()> {
        if !engine.ceiling.is_set() {
            return Ok(());
        }
        let bytes = self.bytes(engine) + more;
        self.known(engine).charge_locks(bytes, || engine.ceiling.allowance())
    }

    /// Charges the locks that are held, as far as there is room.
    #[inline]
    fn charge_held(&self, engine: &Engine) {
        if let Some(owner) = &self.owner
            && engine.ceiling.is_set()
        {
            owner.charge_held(self.bytes(engine), || engine.ceiling.allowance());
        }
    }

    /// True if any key is locked.
    #[inline]
    pub(crate) fn holds_any(&self) -> bool {
        self.hold.is_some()
    }

    /// True if the key is locked and has not changed since the transaction's read point.
    pub(crate) fn is_covered(&self, family: FamilyId, key: &[u8]) -> bool {
        let owner = self.owner.as_ref();
        owner.is_some_and(|owner| owner.is_covered(family, key))
            || self.covered.get(&family).is_some_and(|ranges| ranges.contains(key))
    }

    /// True if the range is locked and has not changed since the transaction's read point.
    pub(crate) fn is_range_covered(&self, family: FamilyId, span: &Span) -> bool {
        self.covers_range(family, span, LockMode::Shared)
    }

    /// The same, for a range that is locked in this mode or a stronger one.
    pub(crate) fn covers_range(&self, family: FamilyId, span: &Span, mode: LockMode) -> bool {
        self.covered.get(&family).is_some_and(|ranges| ranges.give(span, mode))
    }

    /// Notes that a range, which is locked, has not changed since the transaction's read point.
    pub(crate) fn cover_range(&mut self, family: FamilyId, span: &Span, mode: LockMode) {
        debug_assert!(self.has_ranges, "a range that is free may change");
        debug_assert!(!self.is_settling, "a range changes until what came before is visible");
        self.covered.entry(family).or_default().add(span, mode);
    }

    /// Locks a key and waits until what others have done to it is visible. Returns what is known of
    /// its last change. If the wait is refused, the key is locked no more than before.
    pub(crate) fn take(
        &mut self,
        engine: &Engine,
        family: &Keyspace,
        key: &[u8],
        mode: LockMode,
    ) -> Result<Changed> {
        let (at, deadline_ns) = ((family.id, key), self.deadline_ns(engine));
        let taken = self.take_by(engine, family, key, deadline_ns, |owner| {
            engine.locks.take_anew(owner, at, mode, deadline_ns).map(Some)
        })?;
        Ok(taken.expect("it waits for ranges").1)
    }

    /// Locks a key alone, unless a range of others is in the way. Tells how that is taken back;
    /// `None` if there was such a range, and the key is locked no more than before.
    pub(super) fn take_beside_ranges(
        &mut self,
        engine: &Engine,
        family: &Keyspace,
        key: &[u8],
        deadline_ns: u64,
    ) -> Result<Option<Got>> {
        let at = (family.id, key);
        let taken = self.take_by(engine, family, key, deadline_ns, |owner| {
            engine.locks.take_beside_ranges(owner, at, LockMode::Exclusive, deadline_ns)
        })?;
        Ok(taken.map(|(got, _)| got))
    }

    fn take_by(
        &mut self,
        engine: &Engine,
        family: &Keyspace,
        key: &[u8],
        deadline_ns: u64,
        take: impl FnOnce(&Arc<Owner>) -> std::result::Result<Option<Got>, LockRefusal>,
    ) -> Result<Option<(Got, Changed)>> {
        self.hold_gate(engine)?;
        let owner = self.known(engine);
        let got = match take(owner) {
            Ok(Some(got)) => got,
            Ok(None) => return Ok(None),
            Err(why) => return Err(self.refuse(engine, (family.id, key), None, why)),
        };
        yield_point(Point::Locked);
        let slot = engine.conflicts.stamps.slot(family.id, checksum64(key));
        let mut until_ns = None;
        let check = || {
            let least_ns = || engine.locks.deadline_ns(DRAIN_MIN);
            let until_ns = *until_ns.get_or_insert_with(|| deadline_ns.max(least_ns()));
            let waits = engine.locks.check_wait(owner, until_ns);
            waits.map_err(|why| refused(engine, (family.id, key), why))
        };
        let mut pauses = Pauses::new();
        let pause = || pauses.pause(engine);
        let drained = drain(engine.around(), (slot, &family.changed), check, pause);
        if drained.is_err() {
            engine.locks.take_back(owner, (family.id, key), got);
        }
        debug_assert!(self.hold.is_some(), "a key is locked while writers need not announce");
        self.charge_held(engine);
        drained.map(|changed| Some((got, changed)))
    }

    /// Takes back what the lock of a key has changed.
    pub(super) fn take_back(&self, engine: &Engine, at: (FamilyId, &[u8]), got: Got) {
        if let Some(owner) = &self.owner {
            engine.locks.take_back(owner, at, got);
        }
    }

    /// Locks a range and waits until all that was reserved before is visible. So what is in the
    /// range stays as it is until [`KeyLocks::leave`].
    pub(crate) fn take_range(
        &mut self,
        engine: &Engine,
        range: (FamilyId, &Span),
        mode: LockMode,
    ) -> Result<()> {
        self.ask_range(engine, range, mode)?;
        self.settle_ranges(engine)
    }

    /// Locks a range, in which records that were reserved before may still become visible. A caller
    /// that locks many waits for those once, by [`KeyLocks::settle_ranges`].
    pub(crate) fn ask_range(
        &mut self,
        engine: &Engine,
        range: (FamilyId, &Span),
        mode: LockMode,
    ) -> Result<()> {
        let deadline_ns = self.deadline_ns(engine);
        self.ask_by(engine, range, |owner| engine.locks.take_range(owner, range, mode, deadline_ns))
    }

    /// Locks a range alone, among ranges. Keys in it that others have locked are still to be waited
    /// for, by [`KeyLocks::wait_for`], and then for what was reserved before.
    pub(super) fn ask_among_ranges(
        &mut self,
        engine: &Engine,
        range: (FamilyId, &Span),
        deadline_ns: u64,
    ) -> Result<()> {
        self.ask_by(engine, range, |owner| {
            engine.locks.take_among_ranges(owner, range, LockMode::Exclusive, deadline_ns)
        })
    }

    fn ask_by(
        &mut self,
        engine: &Engine,
        (family, span): (FamilyId, &Span),
        take: impl FnOnce(&Arc<Owner>) -> std::result::Result<(), LockRefusal>,
    ) -> Result<()> {
        self.hold_gate(engine)?;
        (self.has_ranges, self.is_settling) = (true, true);
        let taken = take(self.known(engine));
        taken.map_err(|why| self.refuse(engine, (family, &span.lower), Some(span), why))?;
        debug_assert!(self.hold.is_some(), "a range is locked while writers need not announce");
        self.charge_held(engine);
        yield_point(Point::Locked);
        Ok(())
    }

    /// True if a range is locked.
    pub(super) fn has_ranges(&self) -> bool {
        self.has_ranges
    }

    /// Waits until all is visible that was reserved before the last range was locked.
    pub(crate) fn settle_ranges(&mut self, engine: &Engine) -> Result<()> {
        if self.is_settling {
            engine.grace()?;
            self.is_settling = false;
        }
        Ok(())
    }

    fn hold_gate(&mut self, engine: &Engine) -> Result<()> {
        if self.hold.is_none() {
            self.hold = Some(engine.conflicts.gate.hold(|| engine.grace())?);
        }
        Ok(())
    }

    /// Gives back the ranges. What was written under them is visible or never will be.
    pub(crate) fn release_ranges(&mut self, engine: &Engine) {
        debug_assert!(self.has_ranges || self.covered.is_empty(), "a free range is covered");
        if !std::mem::take(&mut self.has_ranges) {
            return;
        }
        self.covered.clear();
        self.is_settling = false;
        if let Some(owner) = &self.owner {
            engine.locks.release_ranges(owner);
        }
    }

    /// Waits until no other holds the key, or a range that meets this one. The caller has announced
    /// nothing.
    pub(super) fn wait_for(&mut self, engine: &Engine, held: Held, deadline_ns: u64) -> Result<()> {
        let owner = self.known(engine);
        let (waited, family, key) = match held {
            Held::Key(family, key) => {
                (engine.locks.await_key(owner, (family, &key), deadline_ns), family, key)
            }
            Held::Range(family, span) => {
                let (mode, lower) = (LockMode::Exclusive, Arc::clone(&span.lower));
                (engine.locks.await_span(owner, (family, span), mode, deadline_ns), family, lower)
            }
        };
        waited.map_err(|why| self.refuse(engine, (family, &key), None, why))
    }

    /// The error for a lock that was refused, if it is one of a range, while it locked this one.
    #[cold]
    fn refuse(
        &mut self,
        engine: &Engine,
        at: (FamilyId, &[u8]),
        asked: Option<&Span>,
        why: LockRefusal,
    ) -> Error {
        if let (LockRefusal::Deadlock { cycle }, Some(owner)) = (&why, &self.owner) {
            let asked = asked.map(|span| (at.0, span.clone()));
            let held = engine.locks.ranges_of(owner).into_iter().map(|held| (held.0, held.1));
            let own: Vec<_> = asked.into_iter().chain(held).collect();
            let around = |end: &Wait| {
                own.iter().find(|own| own.0 == end.family && own.1.contains(&end.key)).cloned()
            };
            self.died_in =
                cycle.first().into_iter().chain(cycle.last()).filter_map(around).collect();
        }
        refused(engine, at, why)
    }

    /// The range that it held or was locking around a key over which it died.
    pub(crate) fn died_in(&self, family: FamilyId, key: &[u8]) -> Option<&Span> {
        let around = |died: &&(FamilyId, Span)| died.0 == family && died.1.contains(key);
        self.died_in.iter().find(around).map(|(_, span)| span)
    }

    /// When a wait that begins now has lasted too long.
    pub(crate) fn deadline_ns(&self, engine: &Engine) -> u64 {
        engine.locks.deadline_ns(self.timeout).min(self.until_ns)
    }

    /// From now on no wait lasts beyond this moment.
    pub(crate) fn end_at(&mut self, until_ns: u64) {
        self.until_ns = until_ns;
    }

    /// Hands out what keeps the gate open. What is locked stays locked.
    pub(crate) fn lend_gate(&mut self) -> Option<Hold> {
        self.hold.take()
    }

    /// Takes back what [`KeyLocks::lend_gate`] handed out.
    pub(crate) fn take_gate_back(&mut self, hold: Option<Hold>) {
        debug_assert!(
            self.hold.is_none() || hold.is_none(),
            "of two places in the gate one is never left"
        );
        self.hold = hold.or(self.hold.take());
    }

    /// Hands everything over to a prepared transaction, and begins with nothing.
    pub(crate) fn hand_over(&mut self) -> Option<EntryLocks> {
        debug_assert!(!self.is_settling, "what is handed over may still change");
        self.has_ranges = false;
        self.covered.clear();
        let (owner, gate) = (self.owner.take()?, self.hold.take());
        debug_assert!(
            gate.is_some() || owner.held_len() == 0,
            "keys are locked behind a closed gate"
        );
        owner.leave_thread();
        Some(EntryLocks { owner, gate })
    }

    /// True for a plain write.
    pub(super) fn is_of_write(&self) -> bool {
        matches!(self.kind, Kind::Write)
    }

    /// Gives back the locks of keys.
    pub(crate) fn release(&mut self, engine: &Engine) {
        if self.hold.is_some()
            && let Some(owner) = &self.owner
        {
            engine.locks.release_all(owner);
        }
    }

    /// Leaves the gate. Nothing is locked any more, and what was written under the locks is visible
    /// or never will be.
    pub(crate) fn leave(&mut self, engine: &Engine) {
        self.release_ranges(engine);
        if let Some(hold) = self.hold.take() {
            engine.conflicts.gate.let_go(hold);
        }
    }

    /// Gives everything back: nothing is written under the locks.
    pub(crate) fn end(&mut self, engine: &Engine) {
        self.release(engine);
        self.leave(engine);
        if let Some(owner) = &self.owner {
            // Others may hold the owner for longer, and locks may be charged that were not taken.
            engine.locks.settle_charge(owner);
        }
    }
}

/// The error for a lock that was refused.
#[cold]
fn refused(engine: &Engine, (family, key): (FamilyId, &[u8]), why: LockRefusal) -> Error {
    let name = |family: FamilyId| {
        let family = engine.families.by_id(family);
        family.map_or_else(|| "(dropped)".to_owned(), |family| family.name().to_string())
    };
    match why {
        LockRefusal::Deadlock { cycle } => {
            let told = |wait: &Wait| DeadlockWait {
                transaction: wait.owner,
                family: name(wait.family),
                key: wait.key.to_vec(),
            };
            Error::deadlock(cycle.iter().map(told).collect())
        }
        LockRefusal::Timeout { holder } => {
            let xid = holder.and_then(|holder| engine.prepared.xid_of(holder));
            Error::lock_timeout(&name(family), key, holder, xid)
        }
        LockRefusal::Aborted => Error::transaction_aborted(AbortReason::Asked),
        LockRefusal::Closed => Error::closed(),
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::env::fixtures::soon;
    use crate::format::DEFAULT_FAMILY;
    use crate::{Options, TransactionOptions};
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
    use std::thread;

    #[test]
    fn many_ranges_are_all_locked_before_one_wait_for_what_was_reserved_before() {
        let long = Duration::from_secs(600);
        let db = Options::in_memory().lock_timeout(long).open("/db").unwrap();
        let engine = db.engine();
        // The gate is open, so nothing waits for that.
        let other = db.begin();
        other.get_for_update("other").unwrap();
        let tx = db.begin();
        (0..9u8).for_each(|n| tx.delete_range(vec![n]..vec![n, 0]).unwrap());
        let unfinished = engine.log.reserve(64).unwrap();
        thread::scope(|scope| {
            let prepares = scope.spawn(|| tx.prepare("many"));
            let is_locked = |n: u8| {
                let span = Span::of_delete(&[n], &[n, 0]);
                engine.locks.is_range_against(None, (DEFAULT_FAMILY, &span))
            };
            let are_locked = soon(|| (0..9).all(is_locked));
            assert!(are_locked, "it waits for each");
            assert!(!prepares.is_finished());
            drop(unfinished);
            prepares.join().unwrap().unwrap().commit().unwrap();
        });
    }

    /// A commit that is announced and has its LSN, or one before it, keeps lockers waiting.
    #[test]
    fn a_wait_for_announcements_ends_with_the_time_for_locks_and_with_an_abort() {
        let db = Options::in_memory().open("/db").unwrap();
        let engine = db.engine();
        let stamps = &engine.conflicts.stamps;
        let slot = stamps.slot(DEFAULT_FAMILY, checksum64(b"key"));
        let options = |ms| TransactionOptions::new().lock_timeout(Duration::from_millis(ms));
        for (patience_ms, is_held_before, expected) in [
            (30, false, "LOCK_TIMEOUT"),
            (30, true, "LOCK_TIMEOUT"),
            (0, false, "LOCK_TIMEOUT"),
            (600_000, false, "TRANSACTION_ABORTED"),
        ] {
            let tx = db.with(options(patience_ms)).begin();
            // Who opens the gate waits for all that was reserved.
            let opens = db.begin();
            opens.get_for_update("another key").unwrap();
            if is_held_before {
                tx.get_for_share("key").unwrap();
            }
            assert!(stamps.announce(slot).is_ok());
            let unfinished = engine.log.reserve(64).unwrap();
            let aborts = tx.abort_handle();
            let ended = &AtomicBool::new(false);
            thread::scope(|scope| {
                scope.spawn(move || {
                    thread::sleep(Duration::from_millis(10));
                    if patience_ms > 1000 {
                        aborts.abort();
                    }
                    let began = std::time::Instant::now();
                    while !ended.load(Relaxed) && began.elapsed() < Duration::from_secs(120) {
                        thread::sleep(Duration::from_millis(1));
                    }
                    stamps.withdraw(slot);
                    drop(unfinished);
                    assert!(ended.load(Relaxed), "the locker waits on");
                });
                let told = tx.get_for_update("key").map(drop);
                ended.store(true, Relaxed);
                assert_eq!(told.unwrap_err().name(), expected);
            });
            let is_held = |mode| engine.locks.is_held_against(None, (DEFAULT_FAMILY, b"key"), mode);
            assert!(!is_held(LockMode::Shared), "it is not held alone");
            assert_eq!(is_held(LockMode::Exclusive), is_held_before);
            drop((tx, opens));
            assert!(engine.locks.is_free());
        }
    }
}
