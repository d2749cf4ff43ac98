//! What writes a single key or range: a database, a family, or either with options of its own.

use isobath::{
    Commit, Db, Durability, Family, KeyRange, Result, Value, WriteOptions, Writes, WritesFamily,
};
use std::time::SystemTime;

/// One of the handles that write.
pub(super) enum Hand<'a> {
    Db(&'a Db),
    Family(&'a Family),
    Writes(Writes<'a>),
    Part(WritesFamily<'a>),
}

/// Does the same with whichever handle it is.
impl<'a> Hand<'a> {
    /// A handle of one of the two families, and whether its writes must survive power loss.
    pub(super) fn draw(
        (db, side): (&'a Db, &'a Family),
        family: u8,
        rng: &mut fastrand::Rng,
    ) -> (Hand<'a>, bool) {
        let is_synced = rng.u8(..8) == 0;
        let durability = if is_synced { Durability::Sync } else { Durability::Process };
        let options = WriteOptions::new().durability(durability);
        match (is_synced || rng.bool(), family) {
            (false, 0) => (Hand::Db(db), false),
            (false, _) => (Hand::Family(side), false),
            (true, 0) => (Hand::Writes(db.with(options)), is_synced),
            (true, _) => (Hand::Part(side.with(options)), is_synced),
        }
    }

    pub(super) fn put(&self, key: &[u8], value: &[u8]) -> Result<Commit> {
        match self {
            Hand::Db(db) => db.put(key, value),
            Hand::Family(family) => family.put(key, value),
            Hand::Writes(writes) => writes.put(key, value),
            Hand::Part(of_side) => of_side.put(key, value),
        }
    }

    pub(super) fn put_ttl(&self, key: &[u8], value: &[u8], end: SystemTime) -> Result<Commit> {
        match self {
            Hand::Db(db) => db.put_ttl(key, value, end),
            Hand::Family(family) => family.put_ttl(key, value, end),
            Hand::Writes(writes) => writes.put_ttl(key, value, end),
            Hand::Part(of_side) => of_side.put_ttl(key, value, end),
        }
    }

    pub(super) fn put_reader(&self, key: &[u8], value: &[u8]) -> Result<Commit> {
        match self {
            Hand::Db(db) => db.put_reader(key, value),
            Hand::Family(family) => family.put_reader(key, value),
            Hand::Writes(writes) => writes.put_reader(key, value),
            Hand::Part(of_side) => of_side.put_reader(key, value),
        }
    }

    pub(super) fn merge(&self, key: &[u8], operand: &[u8]) -> Result<Commit> {
        match self {
            Hand::Db(db) => db.merge(key, operand),
            Hand::Family(family) => family.merge(key, operand),
            Hand::Writes(writes) => writes.merge(key, operand),
            Hand::Part(of_side) => of_side.merge(key, operand),
        }
    }

    pub(super) fn delete(&self, key: &[u8]) -> Result<Commit> {
        match self {
            Hand::Db(db) => db.delete(key),
            Hand::Family(family) => family.delete(key),
            Hand::Writes(writes) => writes.delete(key),
            Hand::Part(of_side) => of_side.delete(key),
        }
    }

    pub(super) fn delete_range(&self, range: impl KeyRange) -> Result<Commit> {
        match self {
            Hand::Db(db) => db.delete_range(range),
            Hand::Family(family) => family.delete_range(range),
            Hand::Writes(writes) => writes.delete_range(range),
            Hand::Part(of_side) => of_side.delete_range(range),
        }
    }

    pub(super) fn delete_prefix(&self, prefix: &[u8]) -> Result<Commit> {
        match self {
            Hand::Db(db) => db.delete_prefix(prefix),
            Hand::Family(family) if prefix.is_empty() => family.clear(),
            Hand::Family(family) => family.delete_prefix(prefix),
            Hand::Writes(writes) => writes.delete_prefix(prefix),
            Hand::Part(of_side) => of_side.delete_prefix(prefix),
        }
    }

    pub(super) fn put_if(
        &self,
        key: &[u8],
        expected: Option<&[u8]>,
        value: &[u8],
    ) -> Result<Option<Commit>> {
        match self {
            Hand::Db(db) => db.put_if(key, expected, value),
            Hand::Family(family) => family.put_if(key, expected, value),
            Hand::Writes(writes) => writes.put_if(key, expected, value),
            Hand::Part(of_side) => of_side.put_if(key, expected, value),
        }
    }

    pub(super) fn fetch_update(
        &self,
        key: &[u8],
        update: impl FnMut(Option<&[u8]>) -> Option<Vec<u8>>,
    ) -> Result<Option<Value>> {
        match self {
            Hand::Db(db) => db.fetch_update(key, update),
            Hand::Family(family) => family.fetch_update(key, update),
            Hand::Writes(writes) => writes.fetch_update(key, update),
            Hand::Part(of_side) => of_side.fetch_update(key, update),
        }
    }

    pub(super) fn set_expiry(&self, key: &[u8], end: SystemTime) -> Result<bool> {
        match self {
            Hand::Db(db) => db.set_expiry(key, end),
            Hand::Family(family) => family.set_expiry(key, end),
            Hand::Writes(writes) => writes.set_expiry(key, end),
            Hand::Part(of_side) => of_side.set_expiry(key, end),
        }
    }

    pub(super) fn pop_first(&self, range: impl KeyRange) -> Result<Option<(Value, Value)>> {
        match self {
            Hand::Db(db) => db.pop_first(range),
            Hand::Family(family) => family.pop_first(range),
            Hand::Writes(writes) => writes.pop_first(range),
            Hand::Part(of_side) => of_side.pop_first(range),
        }
    }

    pub(super) fn pop_last(&self, range: impl KeyRange) -> Result<Option<(Value, Value)>> {
        match self {
            Hand::Db(db) => db.pop_last(range),
            Hand::Family(family) => family.pop_last(range),
            Hand::Writes(writes) => writes.pop_last(range),
            Hand::Part(of_side) => of_side.pop_last(range),
        }
    }
}
