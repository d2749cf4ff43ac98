//! What a commit does about keys that others have locked.
//!
//! It finds out after it has announced itself: a slot says that some key of it is locked, and the
//! map of locks knows which. If no key of the commit is locked, the commit goes on; a transaction
//! that locks one of its keys later sees the announcement and waits. Otherwise the commit withdraws
//! all its announcements, because the owner of the lock waits for that, and sleeps in the queue of
//! the key. Then it begins again.
//!
//! Between its sleep and its next announcement another transaction may lock the key. A commit to
//! which this happens three times locks its keys itself, in their order, and so gets its turn in
//! the queue. From then on it need not ask: who wants a key of it, or a range around one, waits.
//! If it meets a range, or writes one, it locks each key as a range of its own, and all in one
//! order. A commit of very many keys locks the range around them instead.

use crate::conflict::Stamps;
use crate::engine::Engine;
use crate::env::{Plant, Reach, planted, reached};
use crate::error::{Error, ErrorKind, Result, StallCause};
use crate::format::{FamilyId, Op, Payload, checksum64, decode_payload};
use crate::lock::{Got, LockMode, Locks, OwnRanges, Owner, Span};
use crate::wal;
use crate::write::key_locks::KeyLocks;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// After how many sleeps a commit locks its keys.
const ROUNDS_MAX: u32 = 3;

/// How often a plain write gives back what it has locked, for a deadlock, and tries again.
const DEADLOCKS_MAX: u32 = 16;

/// For how many keys in its ranges a commit waits, one after the other, before it locks the ranges.
const AWAITED_MAX: usize = 4;

/// How long a commit waits for keys before it locks the ranges around them, and how long it then
/// keeps these for the rest of the keys, at first.
const PATIENCE_MIN: Duration = Duration::from_millis(20);

/// Before it locks them for the first time, it waits for one part in so many of its time.
const FIRST_SHARE: u32 = 4;

/// What one commit has met of locks so far.
#[derive(Debug)]
pub(crate) struct Asker {
    rounds: u32,
    /// How often it has lost its LSN to others that lock.
    overtaken: u32,
    deadlocks: u32,
    /// The moment at which all its waits together have lasted too long.
    deadline_ns: Option<u64>,
    /// True if it must fail rather than wait (`fail_fast`).
    fail_fast: bool,
    /// True once it has locked all that it writes.
    has_all: bool,
}

impl Asker {
    pub(crate) fn new(fail_fast: bool) -> Asker {
        let (rounds, overtaken, deadlocks) = (0, 0, 0);
        Asker { rounds, overtaken, deadlocks, deadline_ns: None, fail_fast, has_all: false }
    }

    /// True if the commit has locked all that it writes.
    pub(super) fn has_all(&self) -> bool {
        self.has_all
    }

    /// Notes that the commit has locked all that it writes.
    pub(crate) fn note_all_locked(&mut self) {
        self.has_all = true;
    }

    /// Notes that the commit starts over because others have locked something, maybe of its own.
    pub(crate) fn note_overtaken(&mut self) {
        self.overtaken += 1;
    }

    /// A commit that is announced for long may be overtaken each time, and gives up as much of the
    /// log each time. So after some times it locks what it writes, before it is announced.
    pub(super) fn lock_if_overtaken(
        &mut self,
        engine: &Engine,
        record: &[u8],
        locks: &mut KeyLocks,
    ) -> Result<()> {
        if self.overtaken < ROUNDS_MAX || self.has_all {
            return Ok(());
        }
        reached(Reach::LockedSinceOvertaken);
        if self.fail_fast {
            return Err(Error::would_stall(StallCause::KeyLocked));
        }
        self.lock_record(engine, record, locks)
    }

    fn lock_record(&mut self, engine: &Engine, record: &[u8], locks: &mut KeyLocks) -> Result<()> {
        let deadline_ns = *self.deadline_ns.get_or_insert_with(|| locks.deadline_ns(engine));
        let locked = lock_all(engine, operations(record), deadline_ns, locks);
        self.has_all = locked.is_ok();
        locked.or_else(|why| self.give_all_back(engine, locks, why))
    }

    /// Deals with a lock that stands in the way, for a commit that has taken back its announcement.
    pub(super) fn give_way(
        &mut self,
        engine: &Engine,
        record: &[u8],
        held: Held,
        locks: &mut KeyLocks,
    ) -> Result<()> {
        if self.fail_fast {
            return Err(Error::would_stall(StallCause::KeyLocked));
        }
        self.rounds += 1;
        if self.rounds > ROUNDS_MAX {
            return self.lock_record(engine, record, locks);
        }
        let deadline_ns = *self.deadline_ns.get_or_insert_with(|| locks.deadline_ns(engine));
        locks.wait_for(engine, held, deadline_ns)
    }
}

impl Asker {
    /// A plain write is in no hurry to fail: if it gives back all that it has locked, the others of
    /// a deadlock can go on, and it begins again.
    #[cold]
    fn give_all_back(&mut self, engine: &Engine, locks: &mut KeyLocks, why: Error) -> Result<()> {
        // A cycle of one leads through its thread, and does not end.
        let is_among_others =
            matches!(why.kind(), ErrorKind::Deadlock { cycle } if cycle.len() > 1);
        if !locks.is_of_write() || !is_among_others || self.deadlocks == DEADLOCKS_MAX {
            return Err(why);
        }
        self.deadlocks += 1;
        locks.end(engine);
        debug_assert!(!locks.holds_any(), "a write waits again while others wait for it");
        Ok(())
    }
}

/// What others have locked of what a commit writes.
pub(super) enum Held {
    /// A key.
    Key(FamilyId, Arc<[u8]>),
    /// A range that overlaps this one.
    Range(FamilyId, Span),
}

/// A key of the record that an owner other than `owner` has locked, or a range around it.
pub(super) fn held_key(
    stamps: &Stamps,
    locks: &Locks,
    record: &[u8],
    owner: Option<&Owner>,
) -> Option<Held> {
    if planted(Plant::PutIgnoresLock) && owner.is_none() {
        return None;
    }
    let mut spans: BTreeMap<FamilyId, OwnRanges> = BTreeMap::new();
    for op in operations(record) {
        if !op.kind.is_span() {
            if let Some(held) = held_at_key(stamps, locks, &op, owner) {
                return Some(held);
            }
            continue;
        }
        let span = span_of(&op);
        if locks.has_ranges() && locks.is_range_against(owner, (op.family, &span)) {
            return Some(Held::Range(op.family, span));
        }
        spans.entry(op.family).or_default().add(&span, LockMode::Exclusive);
    }
    if spans.is_empty() {
        return None;
    }
    // Keys have no slot in common with a range delete, so the whole map is asked.
    let (family, key) = locks.key_in_any(&spans, owner)?;
    Some(Held::Key(family, key))
}

fn held_at_key(stamps: &Stamps, locks: &Locks, op: &Op<'_>, owner: Option<&Owner>) -> Option<Held> {
    let key = (op.family, op.key);
    let is_held = || {
        let slot = stamps.slot(op.family, checksum64(op.key));
        stamps.load(slot).locked && locks.is_held_against(owner, key, LockMode::Exclusive)
    };
    // Who is locking the range waits for keys that the owner had locked before.
    let is_own = || match owner.and_then(|owner| Some((owner, owner.holds(key.0, key.1)?))) {
        Some((_, LockMode::Exclusive)) => true,
        Some((owner, LockMode::Shared)) => !locks.is_range_against_sharer(owner, key),
        None => false,
    };
    if locks.has_ranges() && locks.is_in_range_against(owner, key) && !is_own() {
        return Some(Held::Range(op.family, Span::of_key(op.key)));
    }
    is_held().then(|| Held::Key(op.family, op.key.into()))
}

fn span_of(op: &Op<'_>) -> Span {
    if !op.kind.is_span() {
        return Span::of_key(op.key);
    }
    let upper = (!op.value.is_empty()).then(|| op.value.into());
    Span { lower: op.key.into(), upper }
}

/// The operations of a sealed record. A change of families has none.
fn operations(record: &[u8]) -> Vec<Op<'_>> {
    match wal::payload_of(record).map(decode_payload) {
        Some(Ok(Payload::Batch(ops))) => ops,
        _ => Vec::new(),
    }
}

/// What a commit locks of a family as ranges.
type Spans = BTreeMap<FamilyId, OwnRanges>;

/// In each family of a record with very many keys, the range from the first to the last.
#[cold]
fn hulls_of(ops: &[Op<'_>]) -> Spans {
    let mut hulls: BTreeMap<FamilyId, Span> = BTreeMap::new();
    for op in ops {
        match hulls.get_mut(&op.family) {
            None => _ = hulls.insert(op.family, span_of(op)),
            Some(hull) => hull.reach_over(&span_of(op)),
        }
    }
    let mut spans = Spans::new();
    for (family, hull) in &hulls {
        spans.entry(*family).or_default().add(hull, LockMode::Exclusive);
    }
    debug_assert!(
        ops.iter().all(|op| spans[&op.family].contains(op.key)),
        "a key is written that is not locked"
    );
    spans
}

/// Each key and each range of a record as a range. Those that overlap or touch are one.
fn spans_of(ops: &[Op<'_>]) -> Spans {
    let mut spans = Spans::new();
    for op in ops {
        spans.entry(op.family).or_default().add(&span_of(op), LockMode::Exclusive);
    }
    debug_assert_eq!(spans.is_empty(), ops.is_empty(), "each operation writes somewhere");
    spans
}

/// Locks all that a record writes.
fn lock_all(
    engine: &Engine,
    mut ops: Vec<Op<'_>>,
    deadline_ns: u64,
    locks: &mut KeyLocks,
) -> Result<()> {
    if ops.len() > engine.options.sizes.slots_written_max {
        return lock_spans(engine, &hulls_of(&ops), deadline_ns, locks);
    }
    let has_spans = ops.iter().any(|op| op.kind.is_span());
    if !has_spans && lock_keys(engine, &mut ops, deadline_ns, locks)? {
        return Ok(());
    }
    lock_spans(engine, &spans_of(&ops), deadline_ns, locks)
}

/// Locks all keys of a record, in an order that all commits keep to. False if a range was in the
/// way. Then all is given back: the owner of the range waits for keys in it, and who kept one
/// of them and waited for the range would be a deadlock with each owner that locks it next.
fn lock_keys(
    engine: &Engine,
    ops: &mut Vec<Op<'_>>,
    deadline_ns: u64,
    locks: &mut KeyLocks,
) -> Result<bool> {
    ops.sort_unstable_by_key(|op| (op.family, op.key));
    ops.dedup_by_key(|op| (op.family, op.key));
    debug_assert!(
        ops.is_sorted_by(|one, next| (one.family, one.key) < (next.family, next.key)),
        "two commits that lock in different orders wait for each other"
    );
    let mut taken: Vec<((FamilyId, &[u8]), Got)> = Vec::new();
    for op in &*ops {
        let family = engine.families.by_id(op.family);
        let family = family.ok_or_else(|| Error::unknown_family("(dropped)"))?;
        match locks.take_beside_ranges(engine, &family, op.key, deadline_ns)? {
            Some(got) => taken.push(((op.family, op.key), got)),
            None => {
                taken.into_iter().for_each(|(at, got)| locks.take_back(engine, at, got));
                return Ok(false);
            }
        }
    }
    Ok(true)
}

/// Locks all that a record writes as ranges: first among ranges, in one order, so that those who
/// wait for one of them are overtaken; then it waits for keys in them that others hold. Meanwhile
/// no other writes there. So it waits for some of these keys before it locks anything, and if the
/// rest lasts long, it gives the ranges back and begins again, with more patience each time. Where
/// a key goes from hand to hand, no wait before the ranges ends by itself, so that has an end, too.
fn lock_spans(
    engine: &Engine,
    spans: &Spans,
    deadline_ns: u64,
    locks: &mut KeyLocks,
) -> Result<()> {
    for family in spans.keys() {
        engine.families.by_id(*family).ok_or_else(|| Error::unknown_family("(dropped)"))?;
    }
    // Joined ranges cannot be taken apart, so who had some before gives none back.
    let had_ranges = locks.has_ranges();
    debug_assert!(!spans.is_empty(), "a commit that writes nothing asks for no lock");
    // Who waits for the ranges meanwhile still gets them in time.
    let patience_max = PATIENCE_MIN.max(engine.options.lock_timeout / 2);
    let mut patience = PATIENCE_MIN;
    let is_more_time = |why: &Error, until_ns| {
        until_ns < deadline_ns && matches!(why.kind(), ErrorKind::LockTimeout { .. })
    };
    // The owner of such a key may want another one in the ranges, which then would be a deadlock.
    let left_ns = deadline_ns.saturating_sub(engine.locks.deadline_ns(Duration::ZERO));
    let left = Duration::from_nanos(left_ns).min(engine.options.lock_timeout);
    let mut first = left / FIRST_SHARE;
    loop {
        let until_ns = engine.locks.deadline_ns(patience.max(first)).min(deadline_ns);
        first = Duration::ZERO;
        match await_keys(engine, spans, AWAITED_MAX, until_ns, locks) {
            Err(why) if !is_more_time(&why, until_ns) => return Err(why),
            _ => {}
        }
        for (family, spans) in spans {
            let mut spans = spans.all();
            spans.try_for_each(|(span, _)| {
                locks.ask_among_ranges(engine, (*family, &span), deadline_ns)
            })?;
        }
        let until_ns = match had_ranges {
            true => deadline_ns,
            false => engine.locks.deadline_ns(patience).min(deadline_ns),
        };
        match await_keys(engine, spans, usize::MAX, until_ns, locks) {
            Ok(()) => return locks.settle_ranges(engine),
            Err(why) if !is_more_time(&why, until_ns) => return Err(why),
            Err(_) => {}
        }
        debug_assert!(!had_ranges, "a range is given back on which the commit relies");
        locks.release_ranges(engine);
        patience = (patience * 2).min(patience_max);
    }
}

/// Waits until no other holds a key in the ranges, or so many waits are over.
fn await_keys(
    engine: &Engine,
    spans: &Spans,
    waits_max: usize,
    until_ns: u64,
    locks: &mut KeyLocks,
) -> Result<()> {
    for _ in 0..waits_max {
        let owner = locks.known(engine);
        let Some((family, key)) = engine.locks.key_in_any(spans, Some(owner)) else {
            return Ok(());
        };
        locks.wait_for(engine, Held::Key(family, key), until_ns)?;
    }
    Ok(())
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
