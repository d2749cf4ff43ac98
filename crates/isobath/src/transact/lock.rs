//! Locks of a transaction: locking reads, locks of what it writes, and the keys that a rerun locks
//! first.
//!
//! A key that is locked and has not changed since the transaction's read point is *covered*. It
//! stays unchanged until the commit, so the commit need not validate it. A locking read sees the
//! newest version. If that is younger than the read point, the point has to move, and everything
//! that the transaction has read before must be unchanged up to the new one. The new point is
//! registered beside the old one, which is released last. Otherwise a compaction could in between
//! drop the versions that show the change.
//!
//! A transaction that is run again after a conflict on a key locks that key before it takes its
//! read point. So it is covered from the start, and others that want it wait in a queue instead of
//! failing. After a deadlock it does so with the keys over which it died.

use super::begin::Life;
use super::merge::merged;
use super::probe::{Since, is_written, pin_open};
use super::ranges::look_in_range;
use super::read::Own;
use crate::engine::{Engine, Hold, Keyspace, Registered};
use crate::env::{Plant, Reach, planted, reached};
use crate::error::{ConflictKind, DeadlockWait, Error, ErrorKind, Result};
use crate::footprint::{Cut, Interval};
use crate::format::{FamilyId, Lsn};
use crate::limits::check_key;
use crate::lock::{LockMode, Owner, Span, lock_bytes, range_bytes};
use crate::options::{Isolation, ReadOptions};
use crate::pinned::Value;
use crate::read::{ReadAt, ScanBounds};
use crate::write::Changed;
use std::sync::Arc;

/// The most keys that a rerun locks before it begins.
const FIRST_MAX: usize = 16;

/// A key, or a range that begins there, that a rerun locks before it begins.
pub(super) struct First {
    family: Arc<Keyspace>,
    key: Box<[u8]>,
    range: Option<Span>,
    mode: LockMode,
    /// The range that keys are taken from; the key is its end.
    queue: Option<Span>,
}

impl First {
    fn of_range(family: Arc<Keyspace>, range: &Interval, mode: LockMode) -> First {
        let span = span_of(range);
        First { family, key: (*span.lower).into(), range: Some(span), mode, queue: None }
    }

    fn place(&self) -> (FamilyId, &[u8]) {
        (self.family.id, &self.key)
    }
}

impl Life {
    /// The value of `key`, locked against changes by others until the transaction ends.
    pub(crate) fn get_locked(
        &mut self,
        engine: &Arc<Engine>,
        family: &Arc<Keyspace>,
        key: &[u8],
        mode: LockMode,
        options: ReadOptions,
    ) -> Result<Option<Value>> {
        self.lock_to_read(engine, family, key, mode)?;
        let at = ReadAt { engine, family, point: self.registered(), options };
        match self.own(engine, family, key)? {
            Own::Value(own) => Ok(own),
            Own::Nothing => self.get_at(at, key),
            Own::Operand(operand) => {
                let existing = self.get_at(at, key)?;
                merged(engine, family, key, existing, &operand).map(Some)
            }
        }
    }

    /// Locks a key for a read that keeps it so.
    pub(super) fn lock_to_read(
        &mut self,
        engine: &Arc<Engine>,
        family: &Arc<Keyspace>,
        key: &[u8],
        mode: LockMode,
    ) -> Result<()> {
        self.check()?;
        engine.check_open()?;
        engine.check_not_read_only()?;
        check_key(key)?;
        self.lock_newest(engine, family, key, mode).map_err(|error| self.note(error))
    }

    /// Locks a key in such a way that the transaction reads its newest version.
    pub(super) fn lock_newest(
        &mut self,
        engine: &Arc<Engine>,
        family: &Arc<Keyspace>,
        key: &[u8],
        mode: LockMode,
    ) -> Result<()> {
        self.name_family(family);
        let changed = self.take(engine, family, key, mode)?;
        let Some(point) = self.point.filter(|_| !self.locks.is_covered(family.id, key)) else {
            return Ok(());
        };
        if is_changed(engine, family, key, point, changed)? {
            if self.options.isolation == Isolation::Snapshot {
                return Err(Error::conflict(&family.name(), key, ConflictKind::Write));
            }
            self.move_point(engine)?;
        }
        self.cover(engine, family, key);
        Ok(())
    }

    /// Locks a key that the transaction is about to write without having read it.
    pub(super) fn lock_written(
        &mut self,
        engine: &Arc<Engine>,
        family: &Arc<Keyspace>,
        key: &[u8],
    ) -> Result<()> {
        let changed = self.take(engine, family, key, LockMode::Exclusive)?;
        let Some(point) = self.point.filter(|_| !self.locks.is_covered(family.id, key)) else {
            return Ok(());
        };
        match is_changed(engine, family, key, point, changed)? {
            false => self.cover(engine, family, key),
            true if self.options.isolation == Isolation::Snapshot => {
                return Err(Error::conflict(&family.name(), key, ConflictKind::Write));
            }
            // The key need not have been read. If the transaction has read it, the commit finds the
            // change.
            true => {}
        }
        Ok(())
    }

    /// Locks a range that the transaction is about to delete without having read it.
    pub(super) fn lock_deleted(
        &mut self,
        engine: &Arc<Engine>,
        family: &Arc<Keyspace>,
        range: &Interval,
    ) -> Result<()> {
        let (span, mode) = (span_of(range), LockMode::Exclusive);
        if self.locks.covers_range(family.id, &span, mode) {
            return Ok(());
        }
        self.admit_lock(engine, range_bytes(&span.lower, &span.upper))?;
        self.locks.take_range(engine, (family.id, &span), mode)?;
        let Some(point) = self.point else { return Ok(()) };
        if !self.locks.is_range_covered(family.id, &span)
            && let Err(changed) =
                look_in_range(engine, family, range, point, (ConflictKind::Write, true))
        {
            if changed.is_conflict() && self.options.isolation != Isolation::Snapshot {
                // The deleted range need not have been read. If the transaction has read it, the
                // commit finds the change.
                return Ok(());
            }
            self.lock_first(First::of_range(family.clone(), range, mode));
            return Err(changed);
        }
        self.locks.cover_range(family.id, &span, mode);
        Ok(())
    }

    /// Locks all keys within `bounds`, those that are there and all others. What is read there from
    /// now on is the newest, and stays so until the transaction ends.
    pub(crate) fn lock_range(
        &mut self,
        engine: &Arc<Engine>,
        family: &Arc<Keyspace>,
        bounds: &ScanBounds,
        mode: LockMode,
    ) -> Result<()> {
        self.check()?;
        engine.check_open()?;
        engine.check_not_read_only()?;
        if family.is_dropped() {
            return Err(Error::unknown_family(&family.name()));
        }
        let range = Interval::within(&bounds.lower, &bounds.upper);
        if range.is_empty() {
            return Ok(());
        }
        reached(Reach::RangeLocked);
        let locked = self.lock_newest_range(engine, family, &range, mode);
        locked.map_err(|error| self.note(error))
    }

    fn lock_newest_range(
        &mut self,
        engine: &Arc<Engine>,
        family: &Arc<Keyspace>,
        range: &Interval,
        mode: LockMode,
    ) -> Result<()> {
        self.name_family(family);
        let span = span_of(range);
        if self.locks.covers_range(family.id, &span, mode) {
            return Ok(());
        }
        self.admit_lock(engine, range_bytes(&span.lower, &span.upper))?;
        self.locks.take_range(engine, (family.id, &span), mode)?;
        // The commit does not look again for others that wrote what it writes in the range.
        let asked = (ConflictKind::Range, self.options.isolation == Isolation::Snapshot);
        if let Some(point) = self.point
            && !self.locks.is_range_covered(family.id, &span)
            && !planted(Plant::RangeCoveredUnchecked)
            && let Err(changed) = look_in_range(engine, family, range, point, asked)
        {
            if changed.is_conflict() && self.options.isolation == Isolation::Snapshot {
                // An attempt that locks it before its read point waits instead of failing.
                self.lock_first(First::of_range(family.clone(), range, mode));
                return Err(changed);
            }
            if !changed.is_conflict() {
                return Err(changed);
            }
            self.move_point(engine)?;
        }
        self.locks.cover_range(family.id, &span, mode);
        Ok(())
    }

    fn take(
        &mut self,
        engine: &Engine,
        family: &Keyspace,
        key: &[u8],
        mode: LockMode,
    ) -> Result<Changed> {
        if family.is_dropped() {
            return Err(Error::unknown_family(&family.name()));
        }
        let holds = |owner: &Arc<Owner>| owner.holds(family.id, key).is_some();
        if let Err(error) = self.admit_lock(engine, lock_bytes(key))
            && !self.locks.owner().is_some_and(holds)
        {
            return Err(error);
        }
        self.locks.take(engine, family, key, mode)
    }

    /// Fails if the locks that the program asks for, with another one of so many bytes, would take
    /// more memory than they may, or than there is. What a commit locks by itself is in the
    /// footprint, which has a limit of its own.
    fn admit_lock(&mut self, engine: &Engine, more: u64) -> Result<()> {
        debug_assert!(more > 0, "each lock takes memory");
        let (needed, limit) = (self.locks.bytes(engine) + more, engine.options.buffer_len() / 2);
        match needed <= limit {
            true => self.locks.charge(engine, more),
            false => Err(Error::transaction_too_large(needed, limit)),
        }
    }

    fn cover(&mut self, engine: &Engine, family: &Keyspace, key: &[u8]) {
        let owner = self.locks.known(engine);
        debug_assert!(owner.holds(family.id, key).is_some(), "a key that is free may change");
        owner.cover(family.id, key);
    }

    /// Moves the read point to the newest, if all that was read is unchanged since the present one.
    fn move_point(&mut self, engine: &Arc<Engine>) -> Result<()> {
        let Some(old) = self.point else { return Ok(()) };
        let is_early = planted(Plant::PointMovedBeforeChecked);
        let give_back = |hold: &mut Option<Hold>| {
            if let Some(hold) = hold.take() {
                engine.points.release(&hold);
            }
        };
        if is_early {
            give_back(&mut self.hold);
        }
        let hold = engine.register_point();
        let Registered { point: new, era } = hold.registered();
        debug_assert!(
            old <= new || planted(Plant::SnapshotSeesTooMuch),
            "a transaction's point goes back from {old:#x} to {new:#x}"
        );
        self.footprint.settle_reads();
        let mut checked = Ok(());
        if let Some(mut validation) = self.validation(engine) {
            checked = validation.look(old, engine.conflicts.gate.valid());
        }
        checked = checked.and_then(|()| self.judge_known_end(engine, new));
        // After a conflict the transaction keeps its read point: what it has read is true there.
        if checked.is_err() && self.hold.is_some() {
            engine.points.release(&hold);
            return checked;
        }
        give_back(&mut self.hold);
        self.hold = Some(hold);
        (self.point, self.began_at, self.era) = (Some(new), new, era);
        self.has_moved = true;
        checked
    }

    /// Notes that the transaction failed of a conflict on a key, or of a deadlock over keys, which
    /// the next attempt locks first. To be called while the write set is still there.
    pub(super) fn note_first(&mut self, error: &Error) {
        if let ErrorKind::Deadlock { cycle } = error.kind() {
            return self.note_deadlock(cycle);
        }
        let ErrorKind::Conflict { family, key, kind, .. } = error.kind() else { return };
        let family = self.families.iter().find(|known| *known.name() == **family);
        let Some(family) = family.cloned() else { return };
        let first = match kind {
            // A lock does not keep a value from ending.
            ConflictKind::Expired => None,
            // At each level a lost pop is a conflict of another kind. A key that was popped is one
            // that was deleted; any other one of the range says nothing of the pop.
            _ if (*kind == ConflictKind::Range || self.deletes(&family, key))
                && self.lock_queue(&family, key, kind) =>
            {
                None
            }
            ConflictKind::Range => self.first_range(family, key),
            ConflictKind::Write if self.footprint.deleted_range_at(family.id, key).is_some() => {
                self.first_deleted(family, key)
            }
            _ => Some(self.first_key(family, key)),
        };
        first.into_iter().for_each(|first| self.lock_first(first));
    }

    /// Notes that the next attempt first locks, alone, the key that the victim of a deadlock waited
    /// for, and the one that it held and the last of the cycle waits for. If it locked them in the
    /// body again, with others that do the same, it could only meet them in the next deadlock. Of a
    /// key in a range that it held, or was locking, it locks the range: with the key it would be in
    /// the way of the next one that locks the range.
    fn note_deadlock(&mut self, cycle: &[DeadlockWait]) {
        let ends = cycle.first().into_iter().chain(cycle.last());
        for (nth, DeadlockWait { family, key, .. }) in ends.enumerate() {
            let firsts = self.firsts.iter().map(|first| &first.family);
            let mut known = self.families.iter().chain(firsts);
            let Some(family) = known.find(|known| *known.name() == **family).cloned() else {
                continue;
            };
            if let Some(span) = self.locks.died_in(family.id, key).cloned() {
                let (key, mode) = ((*span.lower).into(), LockMode::Exclusive);
                self.lock_first(First { family, key, range: Some(span), mode, queue: None });
                continue;
            }
            let is_held = self.holds(&family, key);
            let is_around = |first: &&mut First| {
                first.family.id == family.id
                    && first.range.as_ref().is_some_and(|range| range.contains(key))
            };
            match self.firsts.iter_mut().find(is_around) {
                Some(first) => first.mode = LockMode::Exclusive,
                // The last one waits for a range that begins there, and has a key of the victim.
                None if nth == 1 && !is_held => {}
                None => self.lock_first(First {
                    family,
                    key: (**key).into(),
                    range: None,
                    mode: LockMode::Exclusive,
                    queue: None,
                }),
            }
        }
    }

    /// Notes that the next attempt, if there is one, locks the end of a range first: others that
    /// take keys from there then queue.
    pub(super) fn note_queue(&mut self, family: &Arc<Keyspace>, end: &[u8], range: &Interval) {
        let (family, key, mode) = (family.clone(), end.into(), LockMode::Exclusive);
        let queue = Some(span_of(range));
        self.lock_first(First { family, key, range: None, mode, queue });
    }

    /// True if keys are taken from a range that holds this key. If the attempt had its turn in the
    /// queue, a caller that does not queue caused the conflict. Then the next attempt also locks
    /// the whole range.
    fn lock_queue(&mut self, family: &Keyspace, key: &[u8], kind: &ConflictKind) -> bool {
        // As of a range that was read, the key may be the one behind which it begins.
        let mut read = self.footprint.read_ranges().filter(|(of, _)| *of == family.id);
        let names_bound =
            *kind == ConflictKind::Range && !read.any(|(_, range)| range.contains(key));
        let begins_behind = |queue: &Span| queue.lower.strip_suffix(&[0]) == Some(key);
        let owner = self.locks.owner();
        let mut firsts = self.firsts.iter_mut().filter(|first| first.family.id == family.id);
        let is_around = |first: &&mut First| {
            let is_its =
                |queue: &Span| queue.contains(key) || (names_bound && begins_behind(queue));
            first.queue.as_ref().is_some_and(is_its)
        };
        let Some(first) = firsts.find(is_around) else { return false };
        let had_turn = owner.is_some_and(|owner| owner.holds(family.id, &first.key).is_some());
        if had_turn {
            first.range = first.queue.clone();
        }
        true
    }

    fn holds(&self, family: &Keyspace, key: &[u8]) -> bool {
        self.locks.owner().is_some_and(|owner| owner.holds(family.id, key).is_some())
    }

    fn deletes(&self, family: &Keyspace, key: &[u8]) -> bool {
        self.footprint.get(family.id, key).is_some_and(|own| own.kind.is_tombstone())
    }

    fn lock_first(&mut self, first: First) {
        match self.firsts.binary_search_by(|known| known.place().cmp(&first.place())) {
            Ok(at) => {
                let known = &mut self.firsts[at];
                known.mode = known.mode.max(first.mode);
                known.queue = known.queue.take().or(first.queue);
                known.range = first.range.or(known.range.take());
            }
            Err(at) if self.firsts.len() < FIRST_MAX => self.firsts.insert(at, first),
            Err(_) => {}
        }
        debug_assert!(
            self.firsts.is_sorted_by(|one, next| one.place() < next.place()),
            "firsts are locked in one order, so that few of them form deadlocks"
        );
    }

    fn first_key(&self, family: Arc<Keyspace>, key: &[u8]) -> First {
        let is_written = self.footprint.get(family.id, key).is_some();
        let held = self.locks.owner().and_then(|owner| owner.holds(family.id, key));
        let mode = match is_written || held == Some(LockMode::Exclusive) {
            true => LockMode::Exclusive,
            false => LockMode::Shared,
        };
        First { family, key: key.into(), range: None, mode, queue: None }
    }

    /// The range that was read and that holds the key. Each attempt may meet another key.
    fn first_range(&self, family: Arc<Keyspace>, key: &[u8]) -> Option<First> {
        let mut read = self.footprint.read_ranges().filter(|(of, _)| *of == family.id);
        // A conflict with a range delete names the key at which a scan began, also one that began
        // behind it.
        let is_around = |range: &Interval| {
            !range.is_empty()
                && !range.ends_before(key)
                && (!range.starts_after(key) || *range.start.key == *key)
        };
        let (_, range) = read.find(|(_, range)| is_around(range))?;
        let mut span = span_of(&range);
        self.widen(family.id, &mut span);
        let end = span.upper.as_ref().map(|upper| Cut::before(upper));
        let range = Interval { start: Cut::before(&span.lower), end };
        let mode = match self.footprint.writes_into(family.id, &range) {
            true => LockMode::Exclusive,
            false => LockMode::Shared,
        };
        Some(First::of_range(family, &range, mode))
    }

    /// Widens a range that a scan has passed, and in which the attempt has lost, if a range that
    /// begins or ends there was locked first and was of no use: others took away what the scan
    /// stopped at, so it goes further each time. How far it may go is not known any more.
    fn widen(&self, family: FamilyId, span: &mut Span) {
        let firsts = self.firsts.iter().filter(|first| first.family.id == family);
        let held = |first: &First| {
            let range = first.range.as_ref().filter(|_| first.queue.is_none())?;
            self.locks.covers_range(family, range, first.mode).then(|| range.clone())
        };
        for useless in firsts.filter_map(held) {
            if useless.lower == span.lower && useless.upper != span.upper {
                span.upper = None;
            } else if useless.upper == span.upper && useless.lower > span.lower {
                span.lower = [][..].into();
            }
        }
    }

    /// The range that was deleted and that holds the key. Each attempt may meet another key.
    fn first_deleted(&self, family: Arc<Keyspace>, key: &[u8]) -> Option<First> {
        let range = self.footprint.deleted_range_at(family.id, key)?;
        Some(First::of_range(family, &range, LockMode::Exclusive))
    }

    /// True if the next attempt begins with a lock.
    pub(super) fn has_firsts(&self) -> bool {
        !self.firsts.is_empty()
    }

    /// Gives back the locks of an attempt, but not those of keys that the next one locks first. The
    /// keys are locked in their order, so one is kept only with all before it. Those in families
    /// that were dropped meanwhile are forgotten.
    pub(super) fn keep_firsts(&mut self, engine: &Engine) {
        self.firsts.retain(|first| !first.family.is_dropped());
        self.locks.release_ranges(engine);
        let Some(owner) = self.locks.owner() else { return };
        owner.uncover();
        let is_held = |first: &First| {
            let held = owner.holds(first.family.id, &first.key);
            first.range.is_none() && held.is_some_and(|held| held >= first.mode)
        };
        let kept = self.firsts.iter().take_while(|first| is_held(first)).count();
        let kept: Vec<_> = self.firsts[..kept].iter().map(First::place).collect();
        engine.locks.release_all_but(owner, &kept);
        if kept.is_empty() {
            self.locks.leave(engine);
        }
    }

    /// Locks the keys that earlier attempts met conflicts on, and then takes the read point.
    pub(super) fn lock_firsts(&mut self, engine: &Engine) -> Result<()> {
        // A family may be dropped while this goes on. All firsts are locked even so, because all
        // are noted as covered.
        for first in &self.firsts {
            // The place in the queue comes first: its holder may wait for this range.
            if first.queue.is_some() || first.range.is_none() {
                self.locks.take(engine, &first.family, &first.key, first.mode)?;
            }
            if let Some(span) = &first.range {
                self.locks.ask_range(engine, (first.family.id, span), first.mode)?;
            }
        }
        self.locks.settle_ranges(engine)
    }

    /// Notes that the keys that were locked before the read point was taken have not changed since.
    pub(super) fn cover_firsts(&mut self) {
        let Life { locks, firsts, .. } = self;
        for First { family, key, range, mode, .. } in firsts {
            match (range, locks.owner()) {
                (Some(span), _) => locks.cover_range(family.id, span, *mode),
                (None, Some(owner)) => owner.cover(family.id, key),
                (None, None) => {}
            }
        }
    }
}

/// The same keys, as locks name them. A zero byte appended to a key gives the place directly after
/// it.
pub(super) fn span_of(range: &Interval) -> Span {
    let place = |cut: &Cut| {
        let mut key = cut.key.clone();
        key.extend(cut.is_after.then_some(0));
        key.into()
    };
    Span { lower: place(&range.start), upper: range.end.as_ref().map(place) }
}

/// True if a locked key has a version from `point` on.
pub(super) fn is_changed(
    engine: &Engine,
    family: &Keyspace,
    key: &[u8],
    point: Lsn,
    changed: Changed,
) -> Result<bool> {
    if changed.is_before(point) {
        return Ok(false);
    }
    let view = pin_open(engine, family)?;
    is_written(engine, &view, key, Since { from: point, bound: Lsn::MAX })
}
