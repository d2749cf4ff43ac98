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
use crate::error::{Error, Result};
use crate::format::OpKind;
use crate::lock::LockMode;
use crate::options::ReadOptions;
use crate::pinned::Value;
use crate::read::ReadAt;
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

/// An operand outlives a value that ends, and one operation of a key cannot say both.
fn ends_before_merge(key: &[u8]) -> Error {
    Error::invalid_argument(format!(
        "a merge in a transaction would have to put the value of \"{}\", which ends; commit before it",
        key[..key.len().min(32)].escape_ascii()
    ))
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
        if self.own_stored(family, key)?.is_some_and(|(kind, _)| kind.is_expiring()) {
            return Err(ends_before_merge(key));
        }
        let value = match self.own(engine, family, key)? {
            Own::Value(own) => apply(engine, family, key, own.as_deref(), operand)?,
            Own::Nothing if self.spilled.is_empty() => {
                return self.operate(engine, family, OpKind::Merge, key, operand);
            }
            Own::Nothing => {
                let existing = self.get_to_merge(engine, family, key, None)?;
                apply(engine, family, key, existing.as_deref(), operand)?
            }
            Own::Operand(older) => {
                let merging = family.merging(&engine.options.operators);
                let joined = merging.and_then(|merging| merging.join(key, (&older, operand)));
                if let Some(joined) = joined {
                    // It keeps the chunk from being written to.
                    drop(older);
                    return self.operate(engine, family, OpKind::Merge, key, &joined);
                }
                let existing = self.get_to_merge(engine, family, key, Some(older))?;
                apply(engine, family, key, existing.as_deref(), operand)?
            }
        };
        self.write_op(engine, family, OpKind::Put, key, &value)
    }

    /// The value of `key` with an operand of the transaction's own, which the commit finds
    /// unchanged. An error if the value beneath ends: the put would keep it.
    fn get_to_merge(
        &mut self,
        engine: &Arc<Engine>,
        family: &Arc<Keyspace>,
        key: &[u8],
        own: Option<Value>,
    ) -> Result<Option<Value>> {
        let options = ReadOptions::default();
        let at = if !self.checks_nothing() {
            self.track(engine, family, key, options)?
        } else {
            let locked = self.lock_newest(engine, family, key, LockMode::Exclusive);
            locked.map_err(|error| self.note(error))?;
            ReadAt { engine, family, point: self.registered(), options }
        };
        let read = self.get_noting(at, key)?;
        if read.as_ref().is_some_and(|read| read.holds_until < u64::MAX) {
            return Err(ends_before_merge(key));
        }
        let existing = read.map(|read| read.value);
        match own {
            Some(operand) => merged(engine, family, key, existing, &operand).map(Some),
            None => Ok(existing),
        }
    }
}
