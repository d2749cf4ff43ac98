//! The second phase: a transaction in doubt is committed or rolled back, by its name.
//!
//! ```text
//! load     the operations, from memory or from the file; pace, and wait for memory
//! take     the right to decide: a second decider waits, and then finds nothing to decide
//! log      announce, reserve, store the decision, stamp, give the locks back, apply, publish
//! sync     the coordinator forgets its decision once this returns
//! ```
//!
//! A step that can wait for a flush comes first, or waits while it holds nothing that a flush
//! needs. A flush reads the stored decision and does not need the right to decide.

use super::hook::tell_of_prepared;
use crate::engine::{Engine, EntryLocks, Fate, PreparedEntry};
use crate::env::{Plant, Point, planted, yield_point};
use crate::error::{Error, Result};
use crate::format::{Decision, Lsn, Op, Payload, Prepare, checksum64, decode_payload};
use crate::lock::Owner;
use crate::memory::Allowance;
use crate::version::{read_own_entry, table_path};
use crate::write::{self, Announcement, Asker, Commit, Course, KeyLocks, Targets};
use crate::xid::Xid;
use std::sync::Arc;

/// Commits the transaction in doubt of this name, or rolls it back.
pub(crate) fn decide(engine: &Arc<Engine>, xid: &Xid, is_commit: bool) -> Result<Commit> {
    engine.check_open()?;
    engine.check_not_read_only()?;
    let entry = engine.prepared.find(xid).ok_or_else(|| Error::unknown_transaction(xid))?;
    decide_entry(engine, &entry, is_commit)
}

/// Commits a transaction in doubt, or rolls it back.
pub(crate) fn decide_entry(
    engine: &Arc<Engine>,
    entry: &Arc<PreparedEntry>,
    is_commit: bool,
) -> Result<Commit> {
    engine.check_writable()?;
    if entry.fate() != Fate::InDoubt && !planted(Plant::DecidedTwice) {
        return Err(already_decided(engine, entry));
    }
    let (payload, _allowance) = if is_commit { load(engine, entry)? } else { Default::default() };
    let prepare = if is_commit { Some(decode(engine, entry, &payload)?) } else { None };
    let ops = prepare.as_ref().map_or(&[][..], |prepare| &prepare.ops);
    let early = planted(Plant::MutexHeldWhileAdmitting).then(|| entry.hold());
    let promise = write::admit_prepared(engine, (payload.len() as u64, ops.len()))?;
    let mut held = early.unwrap_or_else(|| entry.hold());
    let Some(owner) = held.as_ref().map(|held| held.owner.clone()) else {
        drop(held);
        return Err(already_decided(engine, entry));
    };
    let decision = Decision { is_commit, xid: entry.xid.as_bytes(), prepared: entry.lsn() };
    let targets = targets_of(engine, ops);
    let course = &mut Deciding {
        engine,
        entry,
        is_commit,
        owner,
        announcement: is_commit.then(|| Announcement::new(&engine.conflicts.stamps, targets)),
    };
    let decided = write::log_decision(engine, decision, (ops, promise), course);
    if entry.fate() != Fate::InDoubt && !planted(Plant::DecidedTwice) {
        give_back(engine, &mut held);
        drop(held);
    }
    // Where the decision may not be durable, the name stays: who repeats the decision must not hear
    // that it is unknown, and forget it.
    let commit = decided?;
    if entry.fate() != Fate::InDoubt && !planted(Plant::DecidedTwice) {
        engine.prepared.close(entry);
    }
    let gauges = &engine.gauges;
    let counter = if is_commit { &gauges.prepared_committed } else { &gauges.prepared_rolled_back };
    counter.add(1);
    if let Some(prepare) = prepare.filter(|prepare| !prepare.ops.is_empty()) {
        tell_of_prepared(engine, commit, &prepare.ops);
    }
    Ok(commit)
}

/// The answer to a second decider. It comes once the decision of the first one is durable, because
/// a coordinator that hears it forgets the transaction. If that decision cannot become durable, the
/// log says so.
fn already_decided(engine: &Engine, entry: &PreparedEntry) -> Error {
    drop(entry.hold());
    engine.check_writable().err().unwrap_or_else(|| Error::unknown_transaction(&entry.xid))
}

/// Releases the locks that the entry still holds. What was written under them is visible now, or it
/// was rolled back and never becomes visible.
fn give_back(engine: &Engine, held: &mut Option<EntryLocks>) {
    let Some(EntryLocks { owner, gate }) = held.take() else { return };
    debug_assert!(gate.is_some() || owner.held_len() == 0, "keys are locked behind a closed gate");
    engine.locks.release_all(&owner);
    engine.locks.release_ranges(&owner);
    if let Some(gate) = gate {
        engine.conflicts.gate.let_go(gate);
    }
}

/// The payload of an entry's record, and what is charged for it.
type Loaded = (Arc<[u8]>, Option<Arc<Allowance>>);

/// Loads what an entry in doubt has to write. One that is in a file comes back whether there is
/// memory or not, as others wait for the decision.
fn load(engine: &Engine, entry: &PreparedEntry) -> Result<Loaded> {
    let content = entry.content();
    match (content.payload, content.file) {
        (Some(payload), _) => Ok((payload, content.allowance)),
        (None, Some(file)) => {
            let fs = &*engine.options.env.fs;
            let number = file.number();
            let mut allowance = engine.ceiling.allowance();
            allowance.grow_as_far_as_there_is_room(entry.bytes());
            let payload = read_own_entry(fs, &engine.dir, engine.uuid, number, entry.lsn())?;
            Ok((payload.into(), Some(Arc::new(allowance))))
        }
        // Decided and flushed since it was looked for.
        (None, None) => Err(already_decided(engine, entry)),
    }
}

fn decode<'a>(engine: &Engine, entry: &PreparedEntry, payload: &'a [u8]) -> Result<Prepare<'a>> {
    let path = || {
        let number = entry.content().file.map_or(0, |file| file.number());
        table_path(&engine.dir, number)
    };
    match decode_payload(payload).map_err(|error| error.in_file(&path(), 0))? {
        Payload::Prepare(prepare) => Ok(prepare),
        _ => Err(Error::corruption(&path(), 0, "it holds no prepared transaction")),
    }
}

/// The words that the operations change.
fn targets_of(engine: &Engine, ops: &[Op<'_>]) -> Targets {
    let has_span = ops.iter().any(|op| op.kind.is_span());
    if has_span || ops.len() > engine.options.sizes.slots_written_max {
        let mut ids: Vec<_> = ops.iter().map(|op| op.family).collect();
        ids.dedup();
        return Targets::Families(
            ids.into_iter().filter_map(|id| engine.families.by_id(id)).collect(),
        );
    }
    let stamps = &engine.conflicts.stamps;
    Targets::of_slots(ops.iter().map(|op| stamps.slot(op.family, checksum64(op.key))).collect())
}

/// The course of a decision. The keys that it writes are locked, so it conflicts with no other
/// commit.
struct Deciding<'a> {
    engine: &'a Engine,
    entry: &'a PreparedEntry,
    is_commit: bool,
    owner: Arc<Owner>,
    /// None for a rollback, which writes nothing.
    announcement: Option<Announcement<'a>>,
}

impl Course for Deciding<'_> {
    fn prepare(&mut self, record: &[u8]) -> Result<()> {
        let Some(announcement) = &mut self.announcement else { return Ok(()) };
        let (mut asker, mut locks) = (Asker::new(false), KeyLocks::of_write(self.engine));
        let is_made = announcement.make(self.engine, record, &mut asker, &mut locks)?;
        debug_assert!(is_made, "a decision names no key that another could have locked");
        Ok(())
    }

    fn settle(&mut self, lsn: Lsn) -> Result<bool> {
        self.entry.decide(lsn, self.is_commit);
        yield_point(Point::Decided);
        if let Some(announcement) = &mut self.announcement {
            announcement.stamp(lsn);
        }
        self.engine.locks.release_all(&self.owner);
        Ok(true)
    }

    fn finish(&mut self, _lsn: Lsn) {}
}
