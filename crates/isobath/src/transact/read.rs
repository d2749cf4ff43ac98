//! Reads of a transaction: its own writes first, then the database at its read point.
//!
//! A read whose key the isolation level checks is recorded before it is done, because the program
//! may also rely on a read that failed. A read that the transaction's own write answers relies on
//! nothing in the database. A locking transaction locks the key instead.

use super::begin::Life;
use super::merge::merged;
use crate::engine::{Engine, Keyspace};
use crate::error::Result;
use crate::footprint::ReadKey;
use crate::format::checksum64;
use crate::lock::LockMode;
use crate::mvcc::expiry::EXPIRY_LEN;
use crate::mvcc::{Effect, Expiring, OpKind};
use crate::options::{Isolation, ReadOptions};
use crate::pinned::Value;
use crate::read::{Read, ReadAt};
use std::sync::Arc;

/// What a transaction has written to a key.
pub(super) enum Own {
    Nothing,
    /// What the key has from then on, if anything.
    Value(Option<Value>),
    /// An operand, of what the database has.
    Operand(Value),
}

/// The value of a put of the transaction's own that ends; `None` if its end had passed before.
pub(super) fn living(stored: &Value) -> Option<Read> {
    let ends = Expiring::split(stored).filter(|ends| ends.lives_at(0))?;
    let (expires_ms, value) = (ends.expires_ms, stored.slice(EXPIRY_LEN..));
    Some(Read { value, expires_ms: Some(expires_ms), holds_until: expires_ms })
}

impl Life {
    /// True if the isolation level checks what was read.
    pub(super) fn checks_reads(&self) -> bool {
        matches!(self.options.isolation, Isolation::RepeatableRead | Isolation::Serializable)
    }

    /// True if a value that is read now may have to be there still at the commit.
    fn may_rely_on_ends(&self) -> bool {
        self.checks_reads() || self.step.is_reading
    }

    /// True if the isolation level checks neither what was read nor what is written.
    pub(super) fn checks_nothing(&self) -> bool {
        matches!(self.options.isolation, Isolation::ReadUncommitted | Isolation::ReadCommitted)
    }

    /// What the transaction itself has written to a key.
    pub(super) fn own(&self, engine: &Engine, family: &Keyspace, key: &[u8]) -> Result<Own> {
        Ok(match self.own_stored(family, key)? {
            None => Own::Nothing,
            Some((kind, stored)) if kind.is_streamed() => {
                let lives = !kind.is_expiring() || living(&stored).is_some();
                let fetch = || Life::fetch_own(engine, key, (kind, &stored));
                Own::Value(lives.then(fetch).transpose()?)
            }
            Some((kind, stored)) => match kind.effect() {
                Effect::Absent => Own::Value(None),
                Effect::Value => Own::Value(Some(stored)),
                // It is there until the transaction ends: when it was put, its end was to come.
                Effect::Expiring => Own::Value(living(&stored).map(|own| own.value)),
                Effect::Operand => Own::Operand(stored),
                Effect::Separated => unreachable!("a transaction has addresses of streams alone"),
            },
        })
    }

    /// The operation that the transaction itself has written to a key, and what is stored with it.
    pub(super) fn own_stored(
        &self,
        family: &Keyspace,
        key: &[u8],
    ) -> Result<Option<(OpKind, Value)>> {
        let Some(written) = self.footprint.get(family.id, key) else {
            let is_in_memory = self.spilled.is_empty();
            return if is_in_memory { Ok(None) } else { self.own_spilled(family, key) };
        };
        let stored = match written.chunk {
            None => Value::default(),
            Some((chunk, at)) => Value::in_chunk(chunk, at, written.value.len()),
        };
        Ok(Some((written.kind, stored)))
    }

    /// Reads a key from the database. A level that checks reads also checks that the value has not
    /// ended, and so does each level for a step.
    pub(super) fn get_at(&mut self, at: ReadAt<'_>, key: &[u8]) -> Result<Option<Value>> {
        if !self.may_rely_on_ends() || at.engine.ticks.last_end() == 0 {
            return at.get(key);
        }
        Ok(self.get_noting(at, key)?.map(|read| read.value))
    }

    #[cold]
    pub(super) fn get_noting(&mut self, at: ReadAt<'_>, key: &[u8]) -> Result<Option<Read>> {
        let read = at.get_expiry(key)?;
        self.note_end_of(at.family, key, read.as_ref().map(|read| read.holds_until));
        Ok(read)
    }

    /// Notes until when what was read holds, if that is checked. At a level that does not check
    /// reads it is if a step has read it and writes.
    pub(super) fn note_end_of(&mut self, family: &Keyspace, key: &[u8], holds_until: Option<u64>) {
        let Some(holds_until) = holds_until.filter(|until| *until < u64::MAX) else { return };
        if self.checks_reads() {
            self.footprint.note_end(family.id, holds_until, key);
        } else if self.step.is_reading {
            self.step.end = Some(holds_until);
        }
    }

    /// The value of `key`, with its end.
    pub(crate) fn get_expiry(
        &mut self,
        engine: &Arc<Engine>,
        family: &Arc<Keyspace>,
        key: &[u8],
        options: ReadOptions,
    ) -> Result<Option<Read>> {
        self.check()?;
        match self.own_stored(family, key)? {
            None => {
                let at = self.track(engine, family, key, options)?;
                self.get_noting(at, key)
            }
            Some((kind, stored)) if kind.is_expiring() => {
                let read = living(&stored);
                let Some(read) = read.filter(|_| kind.is_streamed()) else {
                    return Ok(living(&stored));
                };
                let value = Life::fetch_own(engine, key, (kind, &stored))?;
                Ok(Some(Read { value, ..read }))
            }
            Some(_) => Ok(self.get(engine, family, key, options)?.map(Read::lasting)),
        }
    }

    /// Prepares a read of `key` that goes to the database, and says where to read.
    pub(super) fn track<'a>(
        &mut self,
        engine: &'a Arc<Engine>,
        family: &'a Arc<Keyspace>,
        key: &[u8],
        options: ReadOptions,
    ) -> Result<ReadAt<'a>> {
        if self.checks_reads() && self.options.locking && engine.shown.is_none() {
            let locked = self.lock_newest(engine, family, key, LockMode::Shared);
            locked.map_err(|error| self.note(error))?;
        } else if self.checks_reads() {
            // A lock of the key holds up no drop of its family.
            self.name_family(family);
            if !self.locks.is_covered(family.id, key) {
                let hash = checksum64(key);
                self.footprint.track_read(ReadKey { family: family.id, hash, key });
                self.footprint.check_reads()?;
            }
        }
        Ok(ReadAt { engine, family, point: self.registered(), options })
    }

    /// The value of `key`.
    pub(crate) fn get(
        &mut self,
        engine: &Arc<Engine>,
        family: &Arc<Keyspace>,
        key: &[u8],
        options: ReadOptions,
    ) -> Result<Option<Value>> {
        self.check()?;
        match self.own(engine, family, key)? {
            Own::Value(own) => engine.check_open().map(|()| own),
            Own::Nothing => {
                let at = self.track(engine, family, key, options)?;
                self.get_at(at, key)
            }
            Own::Operand(operand) => {
                let at = self.track(engine, family, key, options)?;
                let existing = self.get_at(at, key)?;
                merged(engine, family, key, existing, &operand).map(Some)
            }
        }
    }

    /// True if `key` has a value.
    pub(crate) fn contains(
        &mut self,
        engine: &Arc<Engine>,
        family: &Arc<Keyspace>,
        key: &[u8],
        options: ReadOptions,
    ) -> Result<bool> {
        self.check()?;
        if let Some((kind, stored)) = self.own_stored(family, key)?
            && kind.is_streamed()
        {
            // It is not read.
            engine.check_open()?;
            return Ok(!kind.is_expiring() || living(&stored).is_some());
        }
        match self.own(engine, family, key)? {
            Own::Value(own) => engine.check_open().map(|()| own.is_some()),
            Own::Nothing => {
                let at = self.track(engine, family, key, options)?;
                if !self.checks_reads() || engine.ticks.last_end() == 0 {
                    return at.contains(key);
                }
                let read = at.get_presence(key)?;
                self.note_end_of(family, key, read.as_ref().map(|read| read.holds_until));
                Ok(read.is_some())
            }
            Own::Operand(_) => Ok(self.get(engine, family, key, options)?.is_some()),
        }
    }

    /// The values of several keys, all at one moment.
    pub(crate) fn multi_get<K: AsRef<[u8]>>(
        &mut self,
        engine: &Arc<Engine>,
        family: &Arc<Keyspace>,
        keys: &[K],
        options: ReadOptions,
    ) -> Result<Vec<Option<Value>>> {
        self.check()?;
        let mut at = ReadAt { engine, family, point: self.registered(), options };
        let (mut owns, mut asked) = (Vec::with_capacity(keys.len()), Vec::new());
        for key in keys.iter().map(K::as_ref) {
            let own = self.own(engine, family, key)?;
            if !matches!(own, Own::Value(_)) {
                at = self.track(engine, family, key, options)?;
                asked.push(key);
            }
            owns.push(own);
        }
        let found = match self.checks_reads() && engine.ticks.last_end() > 0 {
            true => asked.iter().map(|key| self.get_at(at, key)).collect::<Result<Vec<_>>>()?,
            false => at.multi_get(&asked)?,
        };
        let mut found = found.into_iter();
        let mut answer = |(key, own): (&K, Own)| match own {
            Own::Value(own) => Ok(own),
            Own::Nothing => Ok(found.next().flatten()),
            Own::Operand(operand) => {
                let value = found.next().flatten();
                merged(engine, family, key.as_ref(), value, &operand).map(Some)
            }
        };
        keys.iter().zip(owns).map(&mut answer).collect()
    }

    /// The value of `key`, without relying on it: a change of the key is no conflict.
    pub(crate) fn get_untracked(
        &self,
        engine: &Arc<Engine>,
        family: &Arc<Keyspace>,
        key: &[u8],
        options: ReadOptions,
    ) -> Result<Option<Value>> {
        self.check()?;
        let at = ReadAt { engine, family, point: self.registered(), options };
        match self.own(engine, family, key)? {
            Own::Value(own) => engine.check_open().map(|()| own),
            Own::Nothing => at.get(key),
            Own::Operand(operand) => merged(engine, family, key, at.get(key)?, &operand).map(Some),
        }
    }
}
