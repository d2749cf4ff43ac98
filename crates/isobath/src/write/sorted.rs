//! Commits operations that are sorted already and name each key once: the write set of a
//! transaction.

use super::announce::Course;
use super::commit::{Commit, check_family, commit, in_memtable};
use crate::engine::{Engine, Keyspace};
use crate::env::with_scratch;
use crate::error::Result;
use crate::footprint::Operation;
use crate::format::{Op, put_batch_prefix, put_op};
use crate::options::WriteOptions;
use crate::wal::RECORD_HEADER_LEN;
use std::sync::Arc;

/// Commits `count` operations, which `ops` lists by ascending family and key. `families` holds the
/// families that they name, by ascending id.
pub(crate) fn commit_sorted<'a, I: Iterator<Item = Operation<'a>>>(
    engine: &Arc<Engine>,
    families: &[Arc<Keyspace>],
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
            let mut ops = ops().zip(lsn..).peekable();
            for family in families {
                in_memtable(engine, family, lsn, |memtable| {
                    let of_family = std::iter::from_fn(|| {
                        let (op, seq) = ops.next_if(|(op, _)| op.family == family.id)?;
                        Some((op.key, seq, op.kind, op.value))
                    });
                    memtable.insert_sorted(of_family);
                });
            }
            debug_assert!(ops.peek().is_none(), "every family of the operations is given");
        })
    })
}
