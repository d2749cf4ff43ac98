//! The first phase of a transaction that commits in two: it becomes ready to commit, and waits for
//! the decision, however late that comes.
//!
//! ```text
//! claim    the xid and the families: no drop of one begins from here on
//! ask      the commit hook, which is not asked again at the decision
//! lock     what is written and what the level relies on, in one order of all prepares
//! look     from the read point up to now: what is locked stays unchanged from here on
//! log      enter the entry for flushes before the record is published; sync
//! ```
//!
//! What an entry in doubt takes is charged before all that: no decision and no flush may lack it.
//!
//! Two prepares of the same keys queue for the first one, because all lock in one order. What is
//! locked needs no judgement after the reservation, and nothing is announced: nothing is written.
//! `docs/internals/two-phase.md` has the protocol.

use super::begin::Life;
use super::commit::decide;
use super::lock::span_of;
use crate::engine::{Engine, PreparedEntry, Watch};
use crate::env::{Plant, Point, planted, yield_point};
use crate::error::{Error, Result};
use crate::footprint::{Footprint, Interval};
use crate::format::{FamilyId, LockedKey, LockedRange, Lsn, Op, Payload, Prepare, put_payload};
use crate::limits::{MAX_BATCH_LEN, MAX_XID_LEN};
use crate::lock::{LockMode, Owner, Span, lock_bytes, range_bytes};
use crate::memory::Allowance;
use crate::options::Isolation;
use crate::write::{self, Course};
use crate::xid::Xid;
use std::sync::Arc;

/// Something to lock: a key or, with a span, a range that begins there.
pub(super) type Wanted = (FamilyId, Arc<[u8]>, Option<Span>, LockMode);

impl Life {
    /// Prepares the transaction. Afterwards it is over, or doomed, or as it was.
    pub(crate) fn prepare(
        &mut self,
        engine: &Arc<Engine>,
        xid: &Xid,
    ) -> Result<Arc<PreparedEntry>> {
        self.enter(engine)?;
        let prepared = self.check().and_then(|()| self.try_to_prepare(engine, xid));
        if let Some(watch) = &self.watch
            && prepared.as_ref().is_err_and(Error::is_conflict)
        {
            watch.undecide();
        }
        let prepared = prepared.map_err(|error| self.note(error));
        if prepared.is_ok() {
            engine.gauges.transactions_prepared.add(1);
            self.is_committed = true;
        }
        self.leave(engine);
        prepared
    }

    fn try_to_prepare(&mut self, engine: &Arc<Engine>, xid: &Xid) -> Result<Arc<PreparedEntry>> {
        check_xid(xid)?;
        engine.check_not_read_only()?;
        engine.check_writable()?;
        self.unspill_to_prepare(engine)?;
        if self.has_streams() {
            return Err(Error::invalid_argument(
                "a transaction that puts a stream, or gives one another end, cannot be prepared; do that first, in a commit of its own",
            ));
        }
        // The decision must not fail for lack of memory.
        engine.ceiling.check_commit(self.written_bytes(), self.footprint.len() as u64)?;
        self.footprint.settle_reads();
        self.check_lasting()?;
        let wanted = self.wanted();
        let mut allowance = self.charge_entry(engine, &wanted)?;
        let claim = self.claim(engine, xid)?;
        if self.footprint.len() > 0 {
            self.ask_hook(engine)?;
        }
        self.lock_wanted(engine, wanted)?;
        let point = self.began_at;
        if let Some(mut validation) = self.validation(engine) {
            validation.look(point, engine.conflicts.gate.valid())?;
        }
        let payload = self.encode(engine, xid)?;
        allowance.grow_as_far_as_there_is_room(payload.len() as u64);
        allowance.shrink_to(payload.len() as u64);
        let course = &mut Preparing {
            engine,
            entry: &claim.entry,
            payload: &payload,
            allowance,
            watch: self.watch.as_deref(),
        };
        let logged = write::log_prepare(engine, &payload, self.options.write, course);
        if let Err(error) = &logged
            && claim.entry.lsn() == 0
        {
            return Err(error.clone());
        }
        // It may be in the log, so it is in doubt, and so are its locks.
        let entry = claim.keep();
        // The locks are the entry's: the end of this call, by the watch, must not give them back.
        self.watch = None;
        self.be_unlisted(engine);
        if let Some(held) = self.locks.hand_over() {
            entry.give(held);
        }
        yield_point(Point::Prepared);
        logged.map(|_| entry)
    }

    /// Fails if the transaction relies on a value that ends. It may end before the decision, which
    /// must not fail.
    fn check_lasting(&self) -> Result<()> {
        match self.footprint.first_end() {
            None => Ok(()),
            Some((_, first)) => Err(Error::invalid_argument(format!(
                "a prepared transaction cannot rely on a value that ends, as that of \"{}\"; read it with `get_untracked`, or by a plain read at Snapshot",
                first.key.escape_ascii()
            ))),
        }
    }

    /// Claims the xid, and makes sure that the families stay.
    fn claim<'a>(&self, engine: &'a Engine, xid: &Xid) -> Result<Claim<'a>> {
        let families = self.families.iter().map(|family| family.id).collect();
        let check = |is_dropping: &dyn Fn(FamilyId) -> bool| {
            let gone = self.families.iter().find(|one| one.is_dropped() || is_dropping(one.id));
            gone.map_or(Ok(()), |family| Err(Error::unknown_family(&family.name())))
        };
        let isolation = self.options.isolation;
        let entry = engine.prepared.claim(xid, isolation, families, check)?;
        Ok(Claim { engine, entry, is_kept: false })
    }

    /// Charges what the transaction takes in doubt: the payload of its record, and locks.
    fn charge_entry(&mut self, engine: &Engine, wanted: &[Wanted]) -> Result<Allowance> {
        /// What the payload has of an operation or a lock beside its bytes, at most.
        const PART_LEN: u64 = 24;
        let mut allowance = engine.ceiling.allowance();
        if !engine.ceiling.is_set() {
            return Ok(allowance);
        }
        let owner = self.locks.known(engine).clone();
        let held = owner.held_keys().into_iter().map(|(_, key, _)| (key, None));
        let ranges = engine.locks.ranges_of(&owner).into_iter();
        let held = held.chain(ranges.map(|(_, span, _)| (span.lower, span.upper)));
        let payload_of = |key: &[u8], upper: Option<&[u8]>| {
            PART_LEN + (key.len() + upper.map_or(0, <[u8]>::len)) as u64
        };
        let mut of_payload: u64 = held.map(|(key, upper)| payload_of(&key, upper.as_deref())).sum();
        let mut of_locks = 0;
        for (family, key, span, _) in wanted {
            let upper = span.as_ref().and_then(|span| span.upper.as_deref());
            of_payload += payload_of(key, upper);
            of_locks += match span {
                Some(Span { lower, upper }) => range_bytes(lower, upper),
                None if owner.holds(*family, key).is_some() => 0,
                None => lock_bytes(key),
            };
        }
        allowance.grow_to(self.written_bytes() + of_payload)?;
        self.locks.charge(engine, of_locks)?;
        Ok(allowance)
    }

    /// Locks all this, in one order.
    pub(super) fn lock_wanted(
        &mut self,
        engine: &Arc<Engine>,
        mut wanted: Vec<Wanted>,
    ) -> Result<()> {
        self.locks.known(engine);
        if self.options.write.fail_fast {
            self.locks.end_at(0);
        }
        wanted.sort_unstable_by(|one, other| {
            // A range stands before a key at its lower bound.
            let place = |wanted: &Wanted| (wanted.0, wanted.1.clone(), wanted.2.is_none());
            place(one).cmp(&place(other))
        });
        debug_assert!(
            wanted.is_sorted_by(|one, next| (one.0, &one.1) <= (next.0, &next.1)),
            "two prepares that lock in different orders wait for each other"
        );
        let Life { families, locks, .. } = self;
        let locked = wanted.into_iter().try_for_each(|(id, key, span, mode)| {
            let at = families.binary_search_by_key(&id, |family| family.id);
            let family = &families[at.expect("every family of a transaction is named")];
            match span {
                Some(span) => locks.ask_range(engine, (id, &span), mode),
                None => locks.take(engine, family, &key, mode).map(drop),
            }
        });
        let until_ns = self.watch.as_ref().map_or(u64::MAX, |watch| watch.deadline_ns());
        self.locks.end_at(until_ns);
        let locked = locked.map_err(|error| error.into_stall(self.options.write.fail_fast));
        locked.and_then(|()| self.locks.settle_ranges(engine))
    }

    /// What is written, and what the level relies on and is not locked yet.
    pub(super) fn wanted(&self) -> Vec<Wanted> {
        let Life { footprint, locks, .. } = self;
        let writes = footprint.writes().map(|write| {
            let span = write.kind.is_span().then(|| Span::of_delete(write.key, write.value));
            (write.family, Arc::from(write.key), span, LockMode::Exclusive)
        });
        let mut wanted: Vec<Wanted> = writes.collect();
        let relies_on_reads =
            matches!(self.options.isolation, Isolation::RepeatableRead | Isolation::Serializable);
        if !relies_on_reads {
            return wanted;
        }
        let is_open = |family, key: &[u8]| {
            !locks.is_covered(family, key) && footprint.get(family, key).is_none()
        };
        let reads = footprint.read_keys().iter().filter(|read| is_open(read.family, read.key));
        wanted.extend(reads.map(|read| (read.family, Arc::from(read.key), None, LockMode::Shared)));
        for (family, range) in footprint.read_ranges().filter(|(_, range)| !range.is_empty()) {
            let span = span_of(&range);
            if !locks.is_range_covered(family, &span) {
                let mode = mode_of(footprint, family, &range);
                wanted.push((family, span.lower.clone(), Some(span), mode));
            }
        }
        wanted
    }

    /// The payload of the record.
    fn encode(&mut self, engine: &Engine, xid: &Xid) -> Result<Arc<[u8]>> {
        let owner: Arc<Owner> = self.locks.known(engine).clone();
        let (keys, ranges) = (owner.held_keys(), engine.locks.ranges_of(&owner));
        let is_read = |(family, key): (FamilyId, &[u8])| self.footprint.get(family, key).is_none();
        let ops = self.footprint.writes().map(|write| Op {
            kind: write.kind,
            family: write.family,
            key: write.key,
            value: write.value,
        });
        let keys = keys.iter().filter(|(family, key, _)| is_read((*family, key)));
        let prepare = Prepare {
            xid: xid.as_bytes(),
            isolation: self.options.isolation as u8,
            ops: ops.collect(),
            keys: keys
                .map(|(family, key, mode)| LockedKey {
                    family: *family,
                    is_exclusive: *mode == LockMode::Exclusive,
                    key,
                })
                .collect(),
            ranges: ranges
                .iter()
                .map(|(family, span, mode)| LockedRange {
                    family: *family,
                    is_exclusive: *mode == LockMode::Exclusive,
                    lower: &span.lower,
                    upper: span.upper.as_deref(),
                })
                .collect(),
        };
        let mut payload = Vec::new();
        put_payload(&mut payload, &Payload::Prepare(prepare));
        match payload.len() <= MAX_BATCH_LEN {
            true => Ok(payload.into()),
            false => Err(Error::transaction_too_large(payload.len() as u64, MAX_BATCH_LEN as u64)),
        }
    }

    /// Takes the transaction out of the list of those under way.
    fn be_unlisted(&self, engine: &Engine) {
        if let Some(owner) = self.locks.owner() {
            engine.running.leave(owner.id);
        }
    }
}

/// The mode in which to lock a range: exclusive if the transaction writes into it.
fn mode_of(footprint: &Footprint, family: FamilyId, range: &Interval) -> LockMode {
    match footprint.writes_into(family, range) {
        true => LockMode::Exclusive,
        false => LockMode::Shared,
    }
}

fn check_xid(xid: &Xid) -> Result<()> {
    let len = xid.as_bytes().len();
    match (1..=MAX_XID_LEN).contains(&len) {
        true => Ok(()),
        false => Err(Error::invalid_argument(format!(
            "the name of a prepared transaction has 1 to {MAX_XID_LEN} bytes, this one has {len}"
        ))),
    }
}

/// A claimed xid, given up unless the transaction is prepared.
struct Claim<'a> {
    engine: &'a Engine,
    entry: Arc<PreparedEntry>,
    is_kept: bool,
}

impl Claim<'_> {
    fn keep(mut self) -> Arc<PreparedEntry> {
        self.is_kept = true;
        self.entry.clone()
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        if !self.is_kept {
            self.engine.prepared.give_up(&self.entry);
        }
    }
}

/// The course of a prepare, whose locks are taken.
struct Preparing<'a> {
    engine: &'a Engine,
    entry: &'a Arc<PreparedEntry>,
    payload: &'a Arc<[u8]>,
    /// What is charged for the payload.
    allowance: Allowance,
    watch: Option<&'a Watch>,
}

impl Preparing<'_> {
    fn enter(&mut self, lsn: Lsn) {
        let allowance = std::mem::take(&mut self.allowance);
        self.engine.prepared.enter(self.entry, lsn, (self.payload.clone(), allowance));
    }
}

impl Course for Preparing<'_> {
    fn prepare(&mut self, _record: &[u8]) -> Result<()> {
        decide(self.watch)
    }

    fn settle(&mut self, lsn: Lsn) -> Result<bool> {
        if !planted(Plant::RegisteredAfterPublish) {
            self.enter(lsn);
        }
        Ok(true)
    }

    fn finish(&mut self, lsn: Lsn) {
        if planted(Plant::RegisteredAfterPublish) {
            self.enter(lsn);
        }
    }
}
