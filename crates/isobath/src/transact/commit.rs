//! The commit of a transaction: an ordinary batch record, around whose reservation the transaction
//! looks for conflicts.
//!
//! ```text
//! prepare  enter the gate; look from the read point up to a frontier; announce what is written
//! settle   judge from that frontier up to the commit's LSN; stamp; give the locks back
//! finish   leave the gate
//! ```
//!
//! A transaction that relies on nothing and holds no lock takes the course of a plain write.
//!
//! If others are about to write keys on which the transaction relies, the commit locks these keys
//! before it reserves its LSN: a commit that waits after that stops every commit behind it. A
//! commit with a long record locks all its keys, because a conflict after the reservation leaves
//! the whole length of the record unused in the log.

use super::begin::Life;
use super::lock::{is_changed, span_of};
use super::ranges::Ranges;
use super::validate::{Judged, Validation, judge_end};
use crate::conflict::Pass;
use crate::engine::{Engine, Keyspace, Watch};
use crate::env::{Plant, Point, planted, yield_point};
use crate::error::{ConflictKind, Error, ErrorKind, Result};
use crate::footprint::{Footprint, Interval, Operation, ReadKey};
use crate::format::{FamilyId, Lsn, checksum64};
use crate::lock::LockMode;
use crate::options::{Durability, Isolation};
use crate::write::{self, Announcement, Asker, Commit, Course, KeyLocks, Plain, Targets, Together};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A commit whose record is longer than this locks the keys on which it relies.
const LONG_RECORD: usize = 64 << 10;

impl Life {
    /// Commits the transaction. Afterwards it is over, or doomed.
    pub(crate) fn commit(&mut self, engine: &Arc<Engine>) -> Result<Commit> {
        self.enter(engine)?;
        debug_assert!(!self.is_committed, "a transaction commits once");
        let committed = self.check().and_then(|()| self.try_commit(engine));
        let committed = self.note_commit(engine, committed);
        self.leave(engine);
        committed
    }

    pub(super) fn note_commit(
        &mut self,
        engine: &Engine,
        committed: Result<Commit>,
    ) -> Result<Commit> {
        let gauges = &engine.gauges;
        match &committed {
            Ok(commit) => {
                debug_assert!(self.began_at <= commit.point, "a commit lies before its begin");
                gauges.transactions_committed.add(1);
                self.is_committed = true;
                self.tell_hook(engine, *commit);
            }
            Err(error) => {
                if let ErrorKind::Conflict { kind, .. } = error.kind() {
                    let counter = match kind {
                        ConflictKind::Read => &gauges.conflicts_read,
                        ConflictKind::Write => &gauges.conflicts_write,
                        ConflictKind::Range => &gauges.conflicts_range,
                        ConflictKind::Expired => &gauges.conflicts_expired,
                    };
                    counter.add(1);
                }
            }
        }
        if let Some(watch) = &self.watch
            && committed.as_ref().is_err_and(Error::is_conflict)
        {
            watch.undecide();
        }
        committed.map_err(|error| self.note(error))
    }

    fn try_commit(&mut self, engine: &Arc<Engine>) -> Result<Commit> {
        engine.check_open()?;
        if self.is_large(engine) || !self.has_room_to_unspill(engine)? {
            self.check_unstreamed(engine)?;
            return self.commit_large(engine);
        }
        self.unspill()?;
        self.footprint.settle_reads();
        if self.footprint.len() == 0 {
            return self.commit_nothing(engine);
        }
        self.ask_hook(engine)?;
        let (count, options, isolation) =
            (self.footprint.len(), self.options.write, self.options.isolation);
        let some = (self.families.len() > 1).then(|| self.written());
        let streams = self.named_streams();
        let Life { footprint, families, locks, began_at, watch, .. } = self;
        let (footprint, families) = (&**footprint, &**families);
        let written = some.as_deref().unwrap_or(families);
        let ops = || footprint.writes();
        let validation = validation_of(engine, isolation, footprint, families, locks);
        let relies_on_nothing = validation.as_ref().is_none_or(Validation::is_empty);
        // A plain write cannot be aborted.
        if relies_on_nothing && watch.is_none() && !locks.holds_any() {
            let targets = |_: &[u8]| targets_of(engine, footprint, written);
            let plain = Plain::new(engine, options.fail_fast, targets);
            let drops = (written.len() > 1).then(|| engine.families.drops());
            let families = || written.iter().map(|family| &**family);
            let course = &mut Together::new(engine, drops, families, plain);
            return write::commit_sorted(engine, (written, &streams), count, ops, options, course);
        }
        let targets = targets_of(engine, footprint, written);
        let course = &mut Validated {
            engine,
            point: *began_at,
            validation: validation.unwrap_or_else(|| Validation::of_nothing(engine, families)),
            announcement: Announcement::new(&engine.conflicts.stamps, targets),
            pass: None,
            footprint,
            locks,
            asker: Asker::new(options.fail_fast),
            may_wait: !options.fail_fast,
            locks_all: false,
            watch: watch.as_deref(),
            record_len: 0,
        };
        write::commit_sorted(engine, (written, &streams), count, ops, options, course)
    }

    /// The families that the write set names, by ascending id.
    fn written(&self) -> Vec<Arc<Keyspace>> {
        let mut writes = self.footprint.writes().map(|operation| operation.family).peekable();
        let is_written = |family: &&Arc<Keyspace>| {
            let is_written = writes.peek() == Some(&family.id);
            while writes.next_if_eq(&family.id).is_some() {}
            is_written
        };
        let written = self.families.iter().filter(is_written).cloned().collect();
        debug_assert!(writes.peek().is_none(), "a family is written that is not named");
        written
    }

    /// What the isolation level checks.
    pub(super) fn validation<'a>(&'a self, engine: &'a Arc<Engine>) -> Option<Validation<'a>> {
        let Life { footprint, families, locks, .. } = self;
        validation_of(engine, self.options.isolation, footprint, families, locks)
    }

    /// The end of a transaction that wrote nothing. Commits that it has read may not be durable
    /// yet; if it asks for durability, it waits until they are.
    ///
    /// What it has read is true at its read point. If that has moved, this is not known yet of the
    /// ends of what a scan has shown that was open meanwhile. One that was leaked never tells.
    ///
    /// Its locks are of no use then, and others need not wait for the sync.
    fn commit_nothing(&mut self, engine: &Engine) -> Result<Commit> {
        let point = self.read_point(engine);
        if self.has_moved && self.checks_reads() {
            judge_end(engine, self.footprint.first_end().as_ref(), point)?;
        }
        decide(self.watch.as_deref())?;
        self.locks.end(engine);
        let durability = self.options.write.durability.unwrap_or(engine.options.durability);
        if durability == Durability::Sync && engine.shown.is_none() {
            engine.log.sync_to(point)?;
        }
        Ok(Commit::at(engine, point))
    }
}

/// What the level checks and no lock covers; `None` if that is nothing.
fn validation_of<'a>(
    engine: &'a Arc<Engine>,
    isolation: Isolation,
    footprint: &'a Footprint,
    families: &'a [Arc<Keyspace>],
    locks: &KeyLocks,
) -> Option<Validation<'a>> {
    let is_open = |key: &ReadKey<'_>| !locks.is_covered(key.family, key.key);
    let is_range_open = |(family, range): &(FamilyId, Interval)| {
        !locks.holds_any() || !locks.is_range_covered(*family, &span_of(range))
    };
    match isolation {
        Isolation::ReadUncommitted | Isolation::ReadCommitted => footprint
            .first_end()
            .map(|end| Validation::of_nothing(engine, families).with_end(Some(end))),
        Isolation::Snapshot => {
            let keys = footprint.writes().filter(|operation| !operation.kind.is_span());
            let keys = keys.map(|Operation { family, key, .. }| ReadKey {
                family,
                hash: checksum64(key),
                key,
            });
            let keys = keys.filter(is_open);
            // A range delete writes every key of its range.
            let ranges = footprint.deleted_ranges().filter(is_range_open);
            let ranges = ranges.filter(|_| !planted(Plant::DeletedRangesUnchecked));
            let ranges = Ranges::new(ConflictKind::Write, families, ranges);
            let written = Validation::new(engine, ConflictKind::Write, families, keys, ranges);
            Some(written.with_end(footprint.first_end()))
        }
        Isolation::RepeatableRead | Isolation::Serializable => {
            let keys = footprint.read_keys().iter().filter(is_open);
            let ranges = match footprint.has_read_ranges() {
                true => {
                    let ranges = footprint.read_ranges().filter(is_range_open);
                    Ranges::new(ConflictKind::Range, families, ranges)
                }
                false => Ranges::none(),
            };
            let relied_on = Validation::new(engine, ConflictKind::Read, families, keys, ranges);
            Some(relied_on.with_end(footprint.first_end()))
        }
    }
}

/// The words that the write set changes.
fn targets_of(engine: &Engine, footprint: &Footprint, families: &[Arc<Keyspace>]) -> Targets {
    if footprint.has_deleted_ranges() || footprint.len() > engine.options.sizes.slots_written_max {
        return Targets::Families(families.to_vec());
    }
    let stamps = &engine.conflicts.stamps;
    let slot = |operation: Operation<'_>| stamps.slot(operation.family, checksum64(operation.key));
    if footprint.len() == 1 {
        return Targets::One(footprint.writes().map(slot).next().expect("it has one"));
    }
    Targets::of_slots(footprint.writes().map(slot).collect())
}

/// The course of a transaction that relies on something.
struct Validated<'a> {
    engine: &'a Arc<Engine>,
    /// The transaction's read point.
    point: Lsn,
    validation: Validation<'a>,
    announcement: Announcement<'a>,
    /// Held until the commit is visible, or has failed.
    pass: Option<Pass<'a>>,
    footprint: &'a Footprint,
    locks: &'a mut KeyLocks,
    asker: Asker,
    /// True if it may wait for locks that correctness does not need.
    may_wait: bool,
    /// True if it locks what it relies on and what it writes before it announces itself.
    locks_all: bool,
    /// What other threads abort it through, if they may.
    watch: Option<&'a Watch>,
    /// The bytes that it takes in the log.
    record_len: u64,
}

/// Marks the moment from which the commit may be in the log: other threads can no longer abort it.
/// Fails if it was aborted before.
pub(super) fn decide(watch: Option<&Watch>) -> Result<()> {
    watch.map_or(Ok(()), Watch::decide).map_err(Error::transaction_aborted)
}

impl Validated<'_> {
    fn enter(&mut self) -> Result<Lsn> {
        let engine = self.engine;
        let pass = match self.pass.take() {
            Some(pass) => pass,
            None => {
                let pass = engine.conflicts.gate.enter(|| engine.grace())?;
                yield_point(Point::Entered);
                pass
            }
        };
        Ok(self.pass.insert(pass).valid())
    }

    fn judge(&mut self, lsn: Lsn) -> Result<bool> {
        let judged = self.validation.judge(lsn, &self.announcement.targets)?;
        match judged {
            Judged::TooMany(_) if self.may_wait => self.locks_all = true,
            Judged::TooMany(at) => self.validation.note_retry(at)?,
            Judged::Unchanged | Judged::Unknown => {}
        }
        Ok(judged == Judged::Unchanged)
    }

    /// Counts a reservation that is given up.
    #[cold]
    fn count_skip(&self, judged: &Result<bool>) {
        let gauges = &self.engine.gauges;
        gauges.reserved_bytes_skipped.add(self.record_len);
        gauges.conflicts_reserved.add(u64::from(judged.is_err()));
    }

    /// Looks for changes and announces the writes. Returns false if it had to wait for another
    /// commit or lock. That wait is over when it returns, and the caller tries again.
    fn try_prepare(&mut self, record: &[u8], valid: Lsn) -> Result<bool> {
        self.watch.map_or(Ok(()), Watch::check).map_err(Error::transaction_aborted)?;
        self.validation.look(self.point, valid)?;
        yield_point(Point::Looked);
        let wide = if self.may_wait { self.validation.wide_ranges() } else { Vec::new() };
        if !wide.is_empty() {
            // Before anything is announced: a holder of a key in the range waits for announcements.
            for (family, range) in wide {
                let mode = self.mode_of(family.id, &range);
                self.locks.ask_range(self.engine, (family.id, &span_of(&range)), mode)?;
            }
            self.locks.settle_ranges(self.engine)?;
            self.validation.note_ranges_locked();
            return Ok(false);
        }
        if !self.announcement.make(self.engine, record, &mut self.asker, self.locks)? {
            return Ok(false);
        }
        let crowded = if self.may_wait {
            self.validation.crowded(&self.announcement.targets)
        } else {
            Vec::new()
        };
        if !crowded.is_empty() {
            self.announcement.withdraw();
            self.lock(&crowded, std::iter::empty())?;
        }
        Ok(crowded.is_empty())
    }

    /// The mode in which to lock a range: exclusive if the transaction writes into it, because two
    /// that share it would wait for each other.
    fn mode_of(&self, family: FamilyId, range: &Interval) -> LockMode {
        match self.footprint.writes_into(family, range) {
            true => LockMode::Exclusive,
            false => LockMode::Shared,
        }
    }

    /// Locks the ranges that the transaction has deleted. They come before keys: an owner that
    /// holds a key in a range while it waits for the range can be part of a deadlock.
    fn lock_deleted(&mut self) -> Result<()> {
        for (family, range) in self.footprint.deleted_ranges() {
            let span = span_of(&range);
            self.locks.ask_range(self.engine, (family, &span), LockMode::Exclusive)?;
        }
        self.locks.settle_ranges(self.engine)
    }

    /// Locks tracked keys, by their places, and also `written` ones, all in one order. The tracked
    /// keys are covered then.
    fn lock<'w>(
        &mut self,
        places: &[usize],
        written: impl Iterator<Item = Operation<'w>>,
    ) -> Result<()> {
        let engine = self.engine;
        let family_of = |id: FamilyId| engine.families.by_id(id);
        let mut wanted: Vec<(FamilyId, &[u8], LockMode)> = Vec::new();
        for at in places {
            let (family, key) = self.validation.tracked(*at);
            let mode = match self.footprint.get(family.id, key) {
                Some(_) => LockMode::Exclusive,
                None => LockMode::Shared,
            };
            wanted.push((family.id, key, mode));
        }
        wanted.extend(written.map(|write| (write.family, write.key, LockMode::Exclusive)));
        wanted.sort_unstable();
        wanted.dedup_by_key(|(family, key, _)| (*family, *key));
        debug_assert!(
            wanted.iter().all(|(family, key, mode)| {
                *mode == LockMode::Exclusive || self.footprint.get(*family, key).is_none()
            }),
            "a key that is written would be locked as one that is read"
        );
        let mut changes = BTreeMap::new();
        for (id, key, mode) in wanted {
            let family = family_of(id).ok_or_else(|| Error::unknown_family("(dropped)"))?;
            let changed = self.locks.take(engine, &family, key, mode)?;
            changes.insert((id, key), changed);
        }
        for at in places {
            let (family, key) = self.validation.tracked(*at);
            let changed = changes[&(family.id, key)];
            if is_changed(engine, family, key, self.point, changed)? {
                return Err(self.validation.conflict_at(*at));
            }
            self.locks.known(engine).cover(family.id, key);
        }
        self.validation.forget(places);
        Ok(())
    }
}

impl Course for Validated<'_> {
    fn prepare(&mut self, record: &[u8]) -> Result<()> {
        self.record_len = record.len() as u64;
        let valid = self.enter()?;
        let footprint = self.footprint;
        let is_long = record.len() > LONG_RECORD
            && self.may_wait
            && footprint.len() <= self.engine.options.sizes.slots_written_max;
        if is_long || std::mem::take(&mut self.locks_all) {
            self.lock_deleted()?;
            let all = self.validation.all();
            self.lock(&all, footprint.writes().filter(|operation| !operation.kind.is_span()))?;
            self.asker.note_all_locked();
        }
        while !self.try_prepare(record, valid)? {}
        if planted(Plant::ValidatedBeforeReserve) {
            self.judge(self.engine.log.visible())?;
        }
        decide(self.watch)
    }

    fn settle(&mut self, lsn: Lsn) -> Result<bool> {
        debug_assert!(self.pass.is_some(), "a commit is judged while writers announce");
        let judged =
            if planted(Plant::ValidatedBeforeReserve) { Ok(true) } else { self.judge(lsn) };
        let is_overtaken = self.announcement.is_overtaken(&self.engine.locks, &self.asker);
        if !matches!(judged, Ok(true)) || is_overtaken {
            self.announcement.withdraw();
            if is_overtaken {
                self.asker.note_overtaken();
            }
            self.count_skip(&judged);
            if judged.is_ok()
                && let Some(watch) = self.watch
            {
                watch.undecide();
            }
            return judged.map(|_| false);
        }
        yield_point(Point::Validated);
        if !planted(Plant::StampedAfterPublish) {
            self.announcement.stamp(lsn);
        }
        self.locks.release(self.engine);
        if planted(Plant::LeftGateBeforeVisible) {
            self.pass = None;
        }
        Ok(true)
    }

    fn finish(&mut self, lsn: Lsn) {
        if planted(Plant::StampedAfterPublish) {
            self.announcement.stamp(lsn);
        }
        self.pass = None;
        self.locks.leave(self.engine);
    }

    fn holds_locks(&self) -> bool {
        self.locks.holds_any()
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::format::{Op, OpKind, put_batch_prefix, put_op};
    use crate::wal::{self, RECORD_HEADER_LEN};
    use std::time::Duration;

    fn record(key: &[u8]) -> Vec<u8> {
        let mut record = vec![0; RECORD_HEADER_LEN];
        put_batch_prefix(&mut record, 1);
        put_op(&mut record, &Op { kind: OpKind::Put, family: 0, key, value: b"" });
        wal::seal(&mut record).to_vec()
    }

    /// A plain write finds the gate closed and gets its LSN. Then a commit that relies on the key
    /// opens the gate, gets the next LSN and is done but for what comes before it, which it has not
    /// seen. Tells whether the gate closes while the commit is not visible, and whether the write
    /// goes on though it was not seen.
    fn pass_each_other() -> (bool, bool) {
        let db = crate::Options::in_memory().open("/db").unwrap();
        let engine = db.engine();
        let gate = &engine.conflicts.gate;
        assert!(gate.look().is_closed());
        let slot = |_: &[u8]| Targets::One(engine.conflicts.stamps.slot(0, checksum64(b"key")));
        let (theirs, mine) = (record(b"key"), record(b"mine"));
        let mut write = Plain::new(engine, true, slot);
        write.prepare(&theirs).unwrap();

        let mut footprint = Footprint::new(1 << 20);
        footprint.track_read(ReadKey { family: 0, hash: checksum64(b"key"), key: b"key" });
        let put = Operation { family: 0, kind: OpKind::Put, key: b"mine", value: b"" };
        footprint.write(put).unwrap();
        let families = [engine.default_family.clone()];
        let isolation = Isolation::Serializable;
        let mut locks = KeyLocks::of_transaction(isolation, Duration::ZERO);
        let validation = validation_of(engine, isolation, &footprint, &families, &locks);
        let targets = targets_of(engine, &footprint, &families);
        let mut commit = Validated {
            engine,
            point: engine.newest_point(),
            validation: validation.unwrap(),
            announcement: Announcement::new(&engine.conflicts.stamps, targets),
            pass: None,
            footprint: &footprint,
            locks: &mut locks,
            asker: Asker::new(true),
            may_wait: false,
            locks_all: false,
            watch: None,
            record_len: 0,
        };
        commit.prepare(&mine).unwrap();
        let before = engine.log.reserve(theirs.len() as u64).unwrap();
        let own = engine.log.reserve(mine.len() as u64).unwrap();
        assert!(commit.settle(own.start()).unwrap(), "no writer has announced the key");
        (0..3).for_each(|_| gate.close_if_idle());
        let closes = gate.look().is_closed();
        let goes_on = write.settle(before.start()).unwrap();
        commit.finish(own.start());
        (closes, goes_on)
    }

    #[test]
    fn a_write_that_a_commit_above_it_has_not_seen_starts_over() {
        assert_eq!(pass_each_other(), (false, false));
    }

    /// Either half of the bug alone would do no harm.
    #[cfg(feature = "simulation")]
    #[test]
    fn planted_bugs_of_the_gate_are_found() {
        use crate::env::planted::{Plant, plant_here};
        plant_here(Plant::LeftGateBeforeVisible);
        let told = pass_each_other();
        plant_here(Plant::Nothing);
        assert_eq!(told, (true, true));
    }
}
