//! Merges in a transaction.
//!
//! The write set has at most one operation for each key. So a merge of a key that the transaction
//! has written becomes part of that: of a value at once a value, of an operand one operand for both
//! if the operator can join them. If it cannot, or if something was spilled, the merge reads the
//! key, as any read does, and becomes a put. Otherwise it reads nothing, and relies on nothing.
//!
//! A put that stands for operands must not undo what others write. So at a level that checks
//! neither reads nor writes, the key is locked before it is read.

use super::begin::Life;
use super::read::Own;
use crate::engine::{Engine, Keyspace};
use crate::error::Result;
use crate::format::OpKind;
use crate::lock::LockMode;
use crate::options::{Isolation, ReadOptions};
use crate::pinned::Value;
use crate::write::check_merges;
use std::sync::Arc;

/// What an operand makes of a value.
pub(super) fn merged(
    engine: &Engine,
    family: &Keyspace,
    key: &[u8],
    existing: Option<Value>,
    operand: &[u8],
) -> Result<Value> {
    apply(engine, family, key, existing.as_deref(), operand).map(|value| Value::copied(&value))
}

fn apply(
    engine: &Engine,
    family: &Keyspace,
    key: &[u8],
    existing: Option<&[u8]>,
    operand: &[u8],
) -> Result<Vec<u8>> {
    check_merges(engine, family, key)?;
    let Some(merging) = family.merging(&engine.options.operators) else { return Ok(Vec::new()) };
    merging.apply((&family.name(), key), existing, &[operand])
}

impl Life {
    /// Adds an operand to a key.
    pub(crate) fn merge(
        &mut self,
        engine: &Arc<Engine>,
        family: &Arc<Keyspace>,
        key: &[u8],
        operand: &[u8],
    ) -> Result<()> {
        self.check_write(engine, family)?;
        check_merges(engine, family, key)?;
        let value = match self.own(family, key)? {
            Own::Value(own) => apply(engine, family, key, own.as_deref(), operand)?,
            Own::Nothing if self.spilled.is_empty() => {
                return self.operate(engine, family, OpKind::Merge, key, operand);
            }
            Own::Nothing => {
                let existing = self.get_to_merge(engine, family, key)?;
                apply(engine, family, key, existing.as_deref(), operand)?
            }
            Own::Operand(older) => {
                let merging = family.merging(&engine.options.operators);
                let joined = merging.and_then(|merging| merging.join(key, (&older, operand)));
                if let Some(joined) = joined {
                    return self.operate(engine, family, OpKind::Merge, key, &joined);
                }
                let existing = self.get_to_merge(engine, family, key)?;
                apply(engine, family, key, existing.as_deref(), operand)?
            }
        };
        self.operate(engine, family, OpKind::Put, key, &value)
    }

    /// The value of `key`, which the commit finds unchanged.
    fn get_to_merge(
        &mut self,
        engine: &Arc<Engine>,
        family: &Arc<Keyspace>,
        key: &[u8],
    ) -> Result<Option<Value>> {
        let options = ReadOptions::default();
        if self.checks_reads() || self.options.isolation == Isolation::Snapshot {
            return self.get(engine, family, key, options);
        }
        self.get_locked(engine, family, key, LockMode::Exclusive, options)
    }
}
