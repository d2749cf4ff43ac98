//! Reads of a transaction: its own writes first, then the database at its read point.
//!
//! A read whose key the isolation level checks is recorded before it is done, because the program
//! may also rely on a read that failed. A read that the transaction's own write answers relies on
//! nothing in the database. A locking transaction locks the key instead.

use super::begin::Life;
use crate::engine::{Engine, Keyspace};
use crate::error::Result;
use crate::footprint::ReadKey;
use crate::format::checksum64;
use crate::lock::LockMode;
use crate::mvcc::Effect;
use crate::options::{Isolation, ReadOptions};
use crate::pinned::Value;
use crate::read::ReadAt;
use std::sync::Arc;

impl Life {
    /// True if the isolation level checks what was read.
    pub(super) fn checks_reads(&self) -> bool {
        matches!(self.options.isolation, Isolation::RepeatableRead | Isolation::Serializable)
    }

    /// The value that the transaction's own operation gives to a key. `None` if it has none.
    pub(super) fn own(&self, family: &Keyspace, key: &[u8]) -> Result<Option<Option<Value>>> {
        let Some(written) = self.footprint.get(family.id, key) else {
            return if self.spilled.is_empty() { Ok(None) } else { self.own_spilled(family, key) };
        };
        Ok(Some(match (written.kind.effect(), written.chunk) {
            (Effect::Absent, _) => None,
            (Effect::Value, None) => Some(Value::default()),
            (Effect::Value, Some((chunk, at))) => {
                Some(Value::in_chunk(chunk, at, written.value.len()))
            }
        }))
    }

    /// Prepares a read of `key` that goes to the database, and says where to read.
    fn track<'a>(
        &mut self,
        engine: &'a Arc<Engine>,
        family: &'a Arc<Keyspace>,
        key: &[u8],
        options: ReadOptions,
    ) -> Result<ReadAt<'a>> {
        if self.checks_reads() && self.options.locking && engine.shown.is_none() {
            let locked = self.lock_newest(engine, family, key, LockMode::Shared);
            locked.map_err(|error| self.note(error))?;
        } else if self.checks_reads() && !self.locks.is_covered(family.id, key) {
            self.name_family(family);
            let hash = checksum64(key);
            self.footprint.track_read(ReadKey { family: family.id, hash, key });
        }
        Ok(ReadAt { engine, family, point: self.point, options })
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
        match self.own(family, key)? {
            Some(own) => engine.check_open().map(|()| own),
            None => self.track(engine, family, key, options)?.get(key),
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
        match self.own(family, key)? {
            Some(own) => engine.check_open().map(|()| own.is_some()),
            None => self.track(engine, family, key, options)?.contains(key),
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
        let mut at = ReadAt { engine, family, point: self.point, options };
        for key in keys {
            if self.own(family, key.as_ref())?.is_none() {
                at = self.track(engine, family, key.as_ref(), options)?;
            }
        }
        let mut values = at.multi_get(keys)?;
        for (key, value) in keys.iter().zip(&mut values) {
            if let Some(own) = self.own(family, key.as_ref())? {
                *value = own;
            }
        }
        Ok(values)
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
        match self.own(family, key)? {
            Some(own) => engine.check_open().map(|()| own),
            None => ReadAt { engine, family, point: self.point, options }.get(key),
        }
    }
}
