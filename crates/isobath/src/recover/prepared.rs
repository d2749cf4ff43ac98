//! Prepared transactions during a recovery, and after it.
//!
//! The replay begins with the entries that the manifest names and follows the log. Each edit that
//! it installs moves `replay from`, and so files every entry that was prepared below and is not
//! decided so far, and removes those that are: a second recovery begins behind them.
//!
//! What is in doubt at the end of the log is in files then. Each file is read once more to lock
//! what the transaction had locked, before the database takes its first write.

use crate::engine::{Engine, EntryLocks, isolation_of};
use crate::env::{Plant, Reach, planted, reached};
use crate::error::{DecodeError, Decoded, Result};
use crate::flush::{FiledEntry, file_entry};
use crate::format::{
    Decision, FamilyId, LockedKey, LockedRange, Lsn, Payload, Prepare, decode_payload,
};
use crate::lock::{LockMode, Owner, Span};
use crate::memory::Allowance;
use crate::version::{
    Change, FileNumbers, PreparedFile, State, TABLE_DIR, read_own_entry, table_path,
};
use crate::vfs::FileSystem;
use crate::xid::Xid;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// The transactions in doubt at one point of the log.
pub(super) struct InDoubt<'a> {
    fs: &'a dyn FileSystem,
    db: &'a Path,
    uuid: [u8; 16],
    /// By the LSN of the prepare.
    entries: BTreeMap<Lsn, Known>,
    /// Those with files that were decided since the last edit.
    removed: Vec<Lsn>,
    /// The memory that payloads take.
    bytes: u64,
    /// What is charged of it: as far as there is room.
    allowance: Allowance,
}

struct Known {
    xid: Arc<[u8]>,
    place: Place,
}

/// Where the payload of a prepare is.
enum Place {
    Memory(Arc<[u8]>),
    File(u64),
}

impl<'a> InDoubt<'a> {
    /// Those that the manifest names.
    pub(super) fn new(
        fs: &'a dyn FileSystem,
        db: &'a Path,
        state: &State,
        allowance: Allowance,
    ) -> InDoubt<'a> {
        let known = |(lsn, prepared): (&Lsn, &PreparedFile)| {
            let place = Place::File(prepared.file.number());
            (*lsn, Known { xid: prepared.xid.clone(), place })
        };
        let entries = state.prepared().iter().map(known).collect();
        let (uuid, removed) = (state.uuid(), Vec::new());
        InDoubt { fs, db, uuid, entries, removed, bytes: 0, allowance }
    }

    /// The memory that payloads take.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// A transaction is prepared by the record at `lsn`.
    pub(super) fn prepare(&mut self, lsn: Lsn, xid: &[u8], payload: &[u8]) {
        debug_assert!(
            self.entries.last_key_value().is_none_or(|(last, _)| *last < lsn),
            "the log is replayed in order"
        );
        self.bytes += payload.len() as u64;
        self.allowance.grow_as_far_as_there_is_room(self.bytes);
        let (xid, place) = (Arc::<[u8]>::from(xid), Place::Memory(payload.into()));
        self.entries.insert(lsn, Known { xid, place });
    }

    /// A record decides a transaction that is in doubt. Returns the payload of its prepare if it is
    /// to be applied.
    pub(super) fn decide(&mut self, decision: &Decision<'_>) -> Result<Option<Arc<[u8]>>> {
        let Some(known) = self.entries.get(&decision.prepared) else { return Ok(None) };
        debug_assert_eq!(*known.xid, *decision.xid, "a decision is of another transaction");
        let payload = match (&known.place, decision.is_commit) {
            (_, false) => None,
            (Place::Memory(payload), true) => Some(payload.clone()),
            (Place::File(number), true) => {
                let (fs, prepared) = (self.fs, decision.prepared);
                Some(read_own_entry(fs, self.db, self.uuid, *number, prepared)?.into())
            }
        };
        match self.entries.remove(&decision.prepared).map(|known| known.place) {
            Some(Place::Memory(payload)) => {
                self.bytes -= payload.len() as u64;
                self.allowance.shrink_to(self.bytes);
            }
            Some(Place::File(_)) => self.removed.push(decision.prepared),
            None => {}
        }
        reached(Reach::PreparedReplayed);
        Ok(payload)
    }

    /// Writes the files of those that have none, for an edit that moves `replay from` behind them.
    /// Returns the changes of that edit, and the files that it names.
    pub(super) fn file(&mut self, numbers: &FileNumbers) -> Result<(Vec<Change>, Vec<FiledEntry>)> {
        let removed = std::mem::take(&mut self.removed);
        let mut changes: Vec<_> =
            removed.into_iter().map(|lsn| Change::RemovePrepared { lsn }).collect();
        let mut filed = Vec::new();
        for (lsn, known) in &mut self.entries {
            let Place::Memory(payload) = &known.place else { continue };
            reached(Reach::PreparedRecovered);
            let what = (*lsn, &*known.xid, &**payload);
            let entry = file_entry(self.fs, self.db, self.uuid, numbers, what)?;
            changes.push(entry.change());
            known.place = Place::File(entry.file.number());
            filed.push(entry);
        }
        debug_assert!(
            self.entries.values().all(|known| matches!(known.place, Place::File(_))),
            "an entry stays in the log that is not replayed any more"
        );
        self.bytes = 0;
        self.allowance.shrink_to(0);
        if !filed.is_empty() {
            numbers.sync_names(self.fs, &self.db.join(TABLE_DIR))?;
        }
        Ok((changes, filed))
    }
}

/// Makes the transactions known that the recovery left in doubt, and locks what they had locked.
pub(super) fn restore(engine: &Engine) -> Result<()> {
    let prepared: Vec<(Lsn, PreparedFile)> = {
        let versions = engine.versions.lock();
        let prepared = versions.state().prepared();
        prepared.iter().map(|(lsn, prepared)| (*lsn, prepared.clone())).collect()
    };
    for (lsn, prepared) in prepared {
        reached(Reach::PreparedRestored);
        let number = prepared.file.number();
        let fs = &*engine.options.env.fs;
        let payload = read_own_entry(fs, &engine.dir, engine.uuid, number, lsn)?;
        let damaged = |error: DecodeError| error.in_file(&table_path(&engine.dir, number), 0);
        let Payload::Prepare(prepare) = decode_payload(&payload).map_err(damaged)? else {
            return Err(damaged(DecodeError::damaged("it holds no prepared transaction")));
        };
        let held = EntryLocks {
            owner: Owner::transaction(engine.locks.next_id()),
            gate: Some(engine.conflicts.gate.hold(|| engine.grace())?),
        };
        prepare.ops.iter().for_each(|op| engine.ticks.note_op(op.kind, op.value));
        if !planted(Plant::InDoubtUnlocked) {
            lock(engine, &held.owner, &prepare).map_err(damaged)?;
        }
        let of_locks = engine.locks.bytes_of(&held.owner);
        held.owner.charge_held(of_locks, || engine.ceiling.allowance());
        held.owner.leave_thread();
        let name = (Xid::new(prepare.xid), isolation_of(prepare.isolation));
        let (families, bytes) = (prepare.families(), payload.len() as u64);
        engine.prepared.restore(name, families, (lsn, bytes), prepared.file, held);
    }
    Ok(())
}

/// Locks what a prepared transaction had locked. The database takes no calls yet.
fn lock(engine: &Engine, owner: &Arc<Owner>, prepare: &Prepare<'_>) -> Decoded<()> {
    let mode_of = |is_exclusive| match is_exclusive {
        true => LockMode::Exclusive,
        false => LockMode::Shared,
    };
    let refused = |_| DecodeError::damaged("two prepared transactions have locked one key");
    let lives = |family: FamilyId| engine.families.by_id(family).is_some();
    let written = prepare.ops.iter().filter(|op| !op.kind.is_span());
    let written = written.map(|op| (op.family, op.key, LockMode::Exclusive));
    let read = |key: &LockedKey<'_>| (key.family, key.is_exclusive);
    let keys = prepare.keys.iter().map(|key| {
        let (family, is_exclusive) = read(key);
        (family, key.key, mode_of(is_exclusive))
    });
    for (family, key, mode) in written.chain(keys).filter(|(family, ..)| lives(*family)) {
        engine.locks.take(owner, (family, key), mode, 0).map_err(refused)?;
    }
    let deleted = prepare.ops.iter().filter(|op| op.kind.is_span()).map(|op| {
        let upper = (!op.value.is_empty()).then_some(op.value);
        LockedRange { family: op.family, is_exclusive: true, lower: op.key, upper }
    });
    let ranges = prepare.ranges.iter().copied().chain(deleted);
    for LockedRange { family, is_exclusive, lower, upper } in ranges.filter(|one| lives(one.family))
    {
        let span = Span { lower: lower.into(), upper: upper.map(Arc::from) };
        // A range strictly between a key and the very next one was locked before 28 November 2026.
        if span.holds_keys() {
            let mode = mode_of(is_exclusive);
            engine.locks.take_range(owner, (family, &span), mode, 0).map_err(refused)?;
        }
    }
    Ok(())
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::Options;
    use crate::env::Env;
    use crate::format::{DEFAULT_FAMILY, Op, OpKind};
    use crate::vfs::MemoryFs;

    const fn range<'a>(lower: &'a [u8], upper: &'a [u8]) -> LockedRange<'a> {
        LockedRange { family: DEFAULT_FAMILY, is_exclusive: true, lower, upper: Some(upper) }
    }

    const fn op<'a>(kind: OpKind, key: &'a [u8], value: &'a [u8]) -> Op<'a> {
        Op { kind, family: DEFAULT_FAMILY, key, value }
    }

    const fn prepare<'a>(ops: Vec<Op<'a>>, ranges: Vec<LockedRange<'a>>) -> Prepare<'a> {
        Prepare { xid: b"x", isolation: 0, ops, keys: Vec::new(), ranges }
    }

    #[test]
    fn two_prepared_transactions_that_have_locked_the_same_are_damage() {
        let env = Env { fs: Arc::new(MemoryFs::new()), ..Env::system() };
        let db = Options::new().env(env).open("/db").unwrap();
        let engine = db.engine();
        let owner = || Owner::transaction(engine.locks.next_id());
        let (first, second) = (owner(), owner());
        let put = op(OpKind::Put, b"m", b"value");
        let delete = op(OpKind::DeleteRange, b"p", b"t");
        lock(engine, &first, &prepare(vec![put, delete], vec![range(b"a", b"c")])).unwrap();
        for (what, is_free) in [
            (prepare(vec![op(OpKind::Delete, b"m", b"")], Vec::new()), false),
            (prepare(vec![op(OpKind::DeleteRange, b"s", b"z")], Vec::new()), false),
            (prepare(Vec::new(), vec![range(b"b", b"d")]), false),
            (prepare(Vec::new(), vec![range(b"b", b"b")]), true),
            (prepare(vec![op(OpKind::Put, b"n", b"")], vec![range(b"t", b"z")]), true),
        ] {
            assert_eq!(lock(engine, &second, &what).is_ok(), is_free, "{what:?}");
        }
        for owner in [&first, &second] {
            engine.locks.release_all(owner);
            engine.locks.release_ranges(owner);
        }
    }

    #[test]
    fn a_file_whose_locks_another_holds_is_damage() {
        let env = Env { fs: Arc::new(MemoryFs::new()), ..Env::system() };
        let db = Options::new().env(env).open("/db").unwrap();
        let tx = db.begin();
        tx.put("key", "value").unwrap();
        let prepared = tx.prepare("x").unwrap();
        db.flush().unwrap();
        // The transaction itself holds them.
        let refused = restore(db.engine()).unwrap_err();
        assert!(refused.is_corruption() && refused.to_string().contains("locked one key"));
        prepared.commit().unwrap();
    }
}
