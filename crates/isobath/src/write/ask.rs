//! What a commit does about keys that others have locked.
//!
//! It finds out after it has announced itself: a slot says that some key of it is locked, and the
//! map of locks knows which. If it is none of the commit's, the commit goes on; a locker of its
//! keys from then on sees the announcement and waits. Otherwise the commit takes back all that it
//! has announced, because the locker waits for that, and sleeps like one who wants the lock. Then
//! it begins again.
//!
//! Between its sleep and its next announcement another may lock the key. A commit to which
//! this happens thrice locks its keys itself, in their order, and so has its turn.

use crate::conflict::Stamps;
use crate::engine::Engine;
use crate::env::{Plant, planted};
use crate::error::{Error, Result, StallCause};
use crate::format::{FamilyId, Op, Payload, checksum64, decode_payload};
use crate::lock::{LockMode, Owner};
use crate::wal;
use crate::write::key_locks::KeyLocks;

/// A commit that has slept so often locks its keys.
const ROUNDS_MAX: u32 = 3;

/// How one commit has fared with locks.
#[derive(Debug)]
pub(crate) struct Asker {
    rounds: u32,
    /// When all its waits have lasted too long.
    deadline_ns: Option<u64>,
    /// It would rather fail than wait.
    fail_fast: bool,
}

impl Asker {
    pub(crate) fn new(fail_fast: bool) -> Asker {
        Asker { rounds: 0, deadline_ns: None, fail_fast }
    }

    /// Deals with a lock that stands in the way, for a commit that has taken back its announcement.
    pub(super) fn give_way(
        &mut self,
        engine: &Engine,
        record: &[u8],
        (held, is_range): Held<'_>,
        locks: &mut KeyLocks,
    ) -> Result<()> {
        if self.fail_fast {
            return Err(Error::would_stall(StallCause::KeyLocked));
        }
        self.rounds += 1;
        let ops = operations(record);
        if self.rounds > ROUNDS_MAX && ops.len() <= engine.options.sizes.slots_written_max {
            return lock_all(engine, ops, locks);
        }
        let deadline_ns = *self.deadline_ns.get_or_insert_with(|| locks.deadline_ns(engine));
        match is_range {
            true => locks.wait_for_ranges(engine, held, deadline_ns),
            false => locks.wait_for(engine, held, deadline_ns),
        }
    }
}

/// A key that others have locked, and whether they have locked a range around it.
pub(super) type Held<'r> = ((FamilyId, &'r [u8]), bool);

/// A key of the record that an owner other than `owner` has locked, or a range around it.
pub(super) fn held_key<'r>(
    engine: &Engine,
    record: &'r [u8],
    owner: Option<&Owner>,
) -> Option<Held<'r>> {
    if planted(Plant::PutIgnoresLock) && owner.is_none() {
        return None;
    }
    let stamps: &Stamps = &engine.conflicts.stamps;
    let is_held = |op: &Op<'_>| {
        let slot = stamps.slot(op.family, checksum64(op.key));
        let key = (op.family, op.key);
        stamps.load(slot).locked && engine.locks.is_held_against(owner, key, LockMode::Exclusive)
    };
    // Who locks the range now waits for keys that the owner had locked before.
    let is_own = |key: (FamilyId, &[u8])| {
        owner.and_then(|owner| owner.holds(key.0, key.1)) == Some(LockMode::Exclusive)
    };
    let is_in_range = |op: &Op<'_>| {
        let key = (op.family, op.key);
        engine.locks.is_in_range_against(owner, key) && !is_own(key)
    };
    let has_ranges = engine.locks.has_ranges();
    operations(record).into_iter().find_map(|op| {
        let is_range = has_ranges && is_in_range(&op);
        (is_range || is_held(&op)).then_some(((op.family, op.key), is_range))
    })
}

/// The operations of a sealed record. A change of families has none.
fn operations(record: &[u8]) -> Vec<Op<'_>> {
    match wal::payload_of(record).map(decode_payload) {
        Some(Ok(Payload::Batch(ops))) => ops,
        _ => Vec::new(),
    }
}

/// Locks all keys of a record, in an order that all commits keep to.
fn lock_all(engine: &Engine, mut ops: Vec<Op<'_>>, locks: &mut KeyLocks) -> Result<()> {
    ops.sort_unstable_by_key(|op| (op.family, op.key));
    ops.dedup_by_key(|op| (op.family, op.key));
    for op in ops {
        let family = engine.families.by_id(op.family);
        let family = family.ok_or_else(|| Error::unknown_family("(dropped)"))?;
        locks.take(engine, &family, op.key, LockMode::Exclusive)?;
    }
    Ok(())
}
