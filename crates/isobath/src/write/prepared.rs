//! The records of two-phase commit take the way of every write, and are always synced: who
//! coordinates the transaction acts on the answer.

use super::announce::Course;
use super::apply::in_memtable;
use super::commit::{Commit, admit_record, commit, commit_admitted};
use super::seal;
use crate::engine::Engine;
use crate::env::with_scratch;
use crate::error::Result;
use crate::format::{Decision, Lsn, Op, Payload, put_payload};
use crate::memory::commit_bytes;
use crate::memtable::Promise;
use crate::options::WriteOptions;
use crate::wal::RECORD_HEADER_LEN;
use std::sync::Arc;

/// Writes the encoded payload of a prepared transaction into the log and syncs it. Nothing of it
/// is applied.
pub(crate) fn log_prepare(
    engine: &Arc<Engine>,
    payload: &[u8],
    options: WriteOptions,
    course: &mut impl Course,
) -> Result<Commit> {
    with_scratch(|record| {
        record.resize(RECORD_HEADER_LEN, 0);
        record.extend_from_slice(payload);
        let options = WriteOptions { fail_fast: options.fail_fast, ..WriteOptions::sync() };
        commit(engine, record, options, course, |_, _| {})
    })
}

/// Waits for the room in memory that the operations of a prepared transaction will take. Comes
/// before the right to decide is taken. What an opening with a larger ceiling, or with none, has
/// prepared may take more than one commit may, and still has to be decided: it speaks for the most
/// that one may, and takes the rest without that.
pub(crate) fn admit_prepared(
    engine: &Arc<Engine>,
    (bytes, ops): (u64, usize),
) -> Result<Option<Promise>> {
    admit_record(engine, bytes, false)?;
    let takes = commit_bytes(bytes, ops as u64);
    if takes <= engine.ceiling.small_commit {
        return Ok(None);
    }
    seal::promise(engine, false, takes.min(engine.ceiling.commit_max))
}

/// Writes the decision about a prepared transaction into the log, applies its operations, and
/// syncs it. It was admitted, and is not again: to wait for memory while holding what it has spoken
/// for could be to wait for itself.
pub(crate) fn log_decision(
    engine: &Arc<Engine>,
    decision: Decision<'_>,
    (ops, promise): (&[Op<'_>], Option<Promise>),
    course: &mut impl Course,
) -> Result<Commit> {
    with_scratch(|record| {
        record.resize(RECORD_HEADER_LEN, 0);
        put_payload(record, &Payload::Decide(decision));
        engine.check_writable()?;
        let options = WriteOptions::sync();
        commit_admitted(engine, record, (options, promise, 0), course, |_, lsn| {
            apply(engine, ops, lsn);
        })
    })
}

fn apply(engine: &Engine, ops: &[Op<'_>], lsn: Lsn) {
    for of_family in ops.chunk_by(|one, next| one.family == next.family) {
        // No family is dropped while a transaction in doubt names it.
        let Some(family) = engine.families.by_id(of_family[0].family) else { continue };
        let puts = of_family.iter().filter(|op| op.kind.puts_value()).map(|op| op.key);
        in_memtable(engine, &family, lsn, puts, |memtable| {
            of_family
                .iter()
                .for_each(|op| memtable.apply(op.key, op.decided_at(lsn), op.kind, op.value));
        });
    }
}
