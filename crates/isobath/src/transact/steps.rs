//! Small transactions on one key: read it, and write it or not.
//!
//! Outside a transaction a step is one of its own, which is run again on a conflict. Within one it
//! is a read and a write like any other. At a level that checks neither, another commit could come
//! between them and be undone. So there the key is locked before it is read.

use super::begin::Life;
use super::rerun::{Outcome, rerun};
use crate::engine::{Engine, Keyspace};
use crate::error::{ErrorKind, Result};
use crate::format::OpKind;
use crate::lock::LockMode;
use crate::options::Expiry;
use crate::options::{Isolation, ReadOptions, TransactionOptions, WriteOptions};
use crate::pinned::Value;
use crate::read::{Content, Located, Stream};
use crate::write::Commit;
use std::sync::Arc;
use std::time::Duration;

/// Runs `body` in a transaction of its own, again after each conflict. `prepare` comes before the
/// first run.
pub(super) fn alone<T>(
    engine: &Arc<Engine>,
    options: TransactionOptions,
    prepare: impl FnOnce(&mut Life),
    mut body: impl FnMut(&mut Life) -> Result<T>,
) -> Result<(T, Commit)> {
    let mut life = Ended { engine, life: Life::begin(engine, options) };
    prepare(&mut life.life);
    let mut is_first = true;
    rerun(engine, options.attempts, || {
        if !std::mem::take(&mut is_first) {
            life.life.begin_again(engine);
        }
        let ran = match life.life.doom().cloned() {
            Some(doomed) => Err(doomed),
            None => body(&mut life.life),
        };
        match life.life.conclude(engine, ran) {
            // As a put, which would not begin anew either.
            Outcome::Conflict(error, _) | Outcome::Failed(error)
                if matches!(error.kind(), ErrorKind::LockTimeout { .. }) =>
            {
                Outcome::Failed(error.into_stall(options.write.fail_fast))
            }
            outcome => outcome,
        }
    })
}

/// The options of a step. It waits for locks as long as any write outside a transaction.
pub(super) fn options_of(isolation: Isolation, write: WriteOptions) -> TransactionOptions {
    let lock_timeout = write.fail_fast.then_some(Duration::ZERO);
    TransactionOptions { isolation, write, lock_timeout, ..TransactionOptions::default() }
}

/// Runs a step on `key` in a transaction of its own, which relies on this key only.
pub(crate) fn step<T>(
    engine: &Arc<Engine>,
    family: &Arc<Keyspace>,
    key: &[u8],
    write: WriteOptions,
    mut body: impl FnMut(&mut Alone<'_>) -> Result<T>,
) -> Result<(T, Commit)> {
    let options = options_of(Isolation::RepeatableRead, write);
    alone(engine, options, |_| (), |life| body(&mut Alone { engine, family, key, life }))
}

/// Ends the transaction of a step, also if its closure panics.
struct Ended<'a> {
    engine: &'a Arc<Engine>,
    life: Life,
}

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.life.end(self.engine);
    }
}

/// A key that a step reads and then writes or leaves.
pub(crate) trait OneKey {
    /// The value now, which is the same at the commit if this writes the key.
    fn get(&mut self) -> Result<Option<Value>>;

    /// Writes the key.
    fn operate(&mut self, kind: OpKind, value: &[u8]) -> Result<()>;

    /// Puts a value that ends so.
    fn put_expiring(&mut self, value: &[u8], expiry: Expiry) -> Result<()>;

    /// As [`OneKey::get`], without reading any of a stream.
    fn locate(&mut self) -> Result<Option<Located>>;

    /// Puts a stream that is there so that it ends so.
    fn put_located(&mut self, stream: Stream, expiry: Expiry) -> Result<()>;
}

/// Writes `value` if the key's value is the expected one. False if it is not.
pub(crate) fn put_if(at: &mut impl OneKey, expected: Option<&[u8]>, value: &[u8]) -> Result<bool> {
    let is_expected = match (at.locate()?, expected) {
        (None, expected) => expected.is_none(),
        (Some(found), Some(expected)) if found.len() == expected.len() as u64 => {
            match found.content {
                Content::Value(value) => *value == *expected,
                Content::Stream(_) => at.get()?.as_deref() == Some(expected),
            }
        }
        (Some(_), _) => false,
    };
    if is_expected {
        at.operate(OpKind::Put, value)?;
    }
    Ok(is_expected)
}

/// Replaces the key's value by what `update` makes of it; `None` deletes it. Returns the old value.
pub(crate) fn fetch_update<V: AsRef<[u8]>>(
    at: &mut impl OneKey,
    update: &mut impl FnMut(Option<&[u8]>) -> Option<V>,
) -> Result<Option<Value>> {
    let old = at.get()?.map(Value::apart);
    match update(old.as_deref()) {
        Some(value) => at.operate(OpKind::Put, value.as_ref())?,
        None if old.is_none() => {}
        None => at.operate(OpKind::Delete, &[])?,
    }
    Ok(old)
}

/// Gives the key's value another end. False if it has none.
pub(crate) fn set_expiry(at: &mut impl OneKey, expiry: Expiry) -> Result<bool> {
    let Some(found) = at.locate()? else { return Ok(false) };
    match found.content {
        Content::Value(value) => at.put_expiring(&value.apart(), expiry)?,
        Content::Stream(stream) => at.put_located(stream, expiry)?,
    }
    Ok(true)
}

/// A step that reads, below the levels that check reads.
#[derive(Default)]
pub(super) struct Step {
    pub(super) is_reading: bool,
    /// Until when what it has read holds, if that ends; until the step asks for it.
    pub(super) end: Option<u64>,
}

impl Life {
    /// The value of the key of a step within the transaction.
    pub(crate) fn get_of_step(
        &mut self,
        engine: &Arc<Engine>,
        family: &Arc<Keyspace>,
        key: &[u8],
        options: ReadOptions,
    ) -> Result<Option<Value>> {
        self.as_step(|life| match life.checks_nothing() {
            true => life.get_locked(engine, family, key, LockMode::Exclusive, options),
            false => life.get(engine, family, key, options),
        })
    }

    /// Reads for a step: if it writes, others may not have written the key before the commit, nor
    /// may its value have ended.
    fn as_step<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        debug_assert!(!self.step.is_reading, "nothing runs while a step reads");
        self.step = Step { is_reading: true, end: None };
        let done = read(self);
        self.step.is_reading = false;
        done
    }

    /// Until when what the step has just read holds, if the level does not check that and it ends.
    pub(crate) fn end_of_step(&mut self) -> Option<u64> {
        self.step.end.take()
    }

    /// A step writes what it has made of a value that holds until then.
    pub(crate) fn rely_on_step(&mut self, family: &Keyspace, key: &[u8], holds_until: u64) {
        debug_assert!(!self.checks_reads(), "such a level has noted it when it read");
        self.footprint.note_end(family.id, holds_until, key);
    }

    /// The same, without reading any of a stream.
    pub(crate) fn locate_for_step(
        &mut self,
        engine: &Arc<Engine>,
        family: &Arc<Keyspace>,
        key: &[u8],
        options: ReadOptions,
    ) -> Result<Option<Located>> {
        if self.checks_nothing() {
            self.lock_to_read(engine, family, key, LockMode::Exclusive)?;
        }
        self.as_step(|life| life.locate(engine, family, key, options))
    }
}

/// The key of a step that is a transaction of its own.
pub(crate) struct Alone<'a> {
    engine: &'a Arc<Engine>,
    family: &'a Arc<Keyspace>,
    key: &'a [u8],
    life: &'a mut Life,
}

impl OneKey for Alone<'_> {
    fn get(&mut self) -> Result<Option<Value>> {
        self.life.get(self.engine, self.family, self.key, ReadOptions::default())
    }

    fn operate(&mut self, kind: OpKind, value: &[u8]) -> Result<()> {
        self.life.operate(self.engine, self.family, kind, self.key, value)
    }

    fn put_expiring(&mut self, value: &[u8], expiry: Expiry) -> Result<()> {
        self.life.put_expiring(self.engine, self.family, (self.key, value), expiry)
    }

    fn locate(&mut self) -> Result<Option<Located>> {
        self.life.locate(self.engine, self.family, self.key, ReadOptions::default())
    }

    fn put_located(&mut self, stream: Stream, expiry: Expiry) -> Result<()> {
        self.life.put_located(self.engine, self.family, (self.key, stream), expiry)
    }
}
