//! Commits operations that are sorted already and name each key once: the write set of a
//! transaction.
//!
//! The range deletes of a family come before its keys, in the record as in the write set. So their
//! sequence numbers are below those of the keys, which stay, and a replay of the record finds the
//! same.

use super::announce::Course;
use super::apply::in_memtable;
use super::commit::{Commit, check_family, commit};
use super::stream::hand_over;
use crate::engine::{Engine, Keyspace};
use crate::env::{Plant, Reach, planted, reached, with_scratch};
use crate::error::Result;
use crate::footprint::Operation;
use crate::format::{Op, put_batch_prefix, put_op};
use crate::options::WriteOptions;
use crate::version::LiveFile;
use crate::wal::RECORD_HEADER_LEN;
use std::sync::Arc;

/// Commits `count` operations, which `ops` lists by ascending family, of each the range deletes
/// first, then by key. `families` holds the families that they name, by ascending id, and `streams`
/// the files of their streams.
pub(crate) fn commit_sorted<'a, I: Iterator<Item = Operation<'a>> + Clone>(
    engine: &Arc<Engine>,
    (families, streams): (&[Arc<Keyspace>], &[Arc<LiveFile>]),
    count: usize,
    ops: impl Fn() -> I,
    options: WriteOptions,
    course: &mut impl Course,
) -> Result<Commit> {
    families.iter().try_for_each(|family| check_family(family))?;
    with_scratch(|record| {
        record.resize(RECORD_HEADER_LEN, 0);
        put_batch_prefix(record, count as u32);
        for Operation { family, kind, key, value } in ops() {
            put_op(record, &Op { kind, family, key, value });
        }
        commit(engine, record, options, course, |_, lsn| {
            hand_over(engine, lsn, streams);
            let mut ops = ops().zip(lsn..).peekable();
            for family in families {
                let of_family = ops.clone().map(|(op, _)| op);
                let of_family = of_family.take_while(|op| op.family == family.id);
                let puts = of_family.filter(|op| op.kind.puts_value()).map(|op| op.key);
                in_memtable(engine, family, lsn, puts, |memtable| {
                    let is_span = |op: &Operation<'_>| op.family == family.id && op.kind.is_span();
                    while let Some((op, seq)) = ops.next_if(|(op, _)| is_span(op)) {
                        reached(Reach::SpanWritten);
                        let is_behind = planted(Plant::SpansBehindKeys);
                        let seq = if is_behind { lsn + count as u64 } else { seq };
                        memtable.delete_range(op.key, op.value, seq);
                    }
                    let of_family = std::iter::from_fn(|| {
                        let (op, seq) = ops.next_if(|(op, _)| op.family == family.id)?;
                        debug_assert!(!op.kind.is_span(), "a range delete behind a key hides it");
                        Some((op.key, seq, op.kind, op.value))
                    });
                    memtable.insert_sorted(of_family);
                });
            }
            debug_assert!(ops.peek().is_none(), "every family of the operations is given");
        })
    })
}
