//! Reads of one key: the memtables newest first, then the runs of level 0 newest first, then one
//! slice of each level.
//!
//! The first version found is the answer, because every source holds only older versions than the
//! sources before it. A hit in memory or in a cached block makes no system call and no allocation.
//! The key is hashed once, for all filters.

use crate::engine::View;
use crate::env::{Plant, planted};
use crate::error::Result;
use crate::format::{Lsn, checksum64};
use crate::mvcc::Effect;
use crate::pinned::Value;
use crate::read::begin::ReadAt;
use crate::version::Slice as TableSlice;

/// What the caller wants to know.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wanted {
    Value,
    /// Only whether the key has a value.
    Presence,
}

impl ReadAt<'_> {
    /// The value of `key`.
    pub(crate) fn get(&self, key: &[u8]) -> Result<Option<Value>> {
        let (view, point) = self.begin()?;
        get_in(self, &view, key, point, Wanted::Value)
    }

    /// True if `key` has a value.
    pub(crate) fn contains(&self, key: &[u8]) -> Result<bool> {
        let (view, point) = self.begin()?;
        Ok(get_in(self, &view, key, point, Wanted::Presence)?.is_some())
    }

    /// The values of several keys, all at one read point.
    pub(crate) fn multi_get<K: AsRef<[u8]>>(
        &self,
        keys: impl IntoIterator<Item = K>,
    ) -> Result<Vec<Option<Value>>> {
        let (view, point) = self.begin()?;
        let keys = keys.into_iter();
        // Limit the allocation: `size_hint` is not to be trusted for any amount of memory.
        let mut values = Vec::with_capacity(keys.size_hint().0.min(1024));
        for key in keys {
            values.push(get_in(self, &view, key.as_ref(), point, Wanted::Value)?);
        }
        Ok(values)
    }
}

fn get_in(
    at: &ReadAt<'_>,
    view: &View,
    key: &[u8],
    point: Lsn,
    wanted: Wanted,
) -> Result<Option<Value>> {
    for of in &view.memtables {
        if let Some(found) = of.memtable.get(key, point) {
            return Ok(match (found.kind.effect(), wanted) {
                (Effect::Absent, _) => None,
                (Effect::Value, Wanted::Presence) => Some(Value::copied(&[])),
                (Effect::Value, Wanted::Value) => {
                    Some(Value::in_memtable(found.value, &of.memtable))
                }
            });
        }
    }
    if view.tree.is_empty() {
        return Ok(None);
    }
    let hash = checksum64(key);
    let levels = view.tree.levels.iter().filter_map(|level| level.find(key));
    let runs = view.tree.runs.iter().filter(|run| run.extent().contains(key));
    for slice in runs.chain(levels) {
        if let Some(found) = get_in_slice(at, slice, key, hash, point)? {
            return Ok(found);
        }
    }
    Ok(None)
}

/// `None` if the slice holds no version visible to the reader, `Some(None)` if it holds a delete.
#[inline]
fn get_in_slice(
    at: &ReadAt<'_>,
    slice: &TableSlice,
    key: &[u8],
    hash: u64,
    point: Lsn,
) -> Result<Option<Option<Value>>> {
    if slice.meta.min_seq >= point {
        return Ok(None);
    }
    let found = slice.table(&at.engine.tables)?.get_with(key, hash, point, at.options.fill_cache);
    let found = match found {
        Err(error) if error.is_corruption() && planted(Plant::DamageSkipped) => None,
        other => other?,
    };
    Ok(found.map(|found| {
        debug_assert!(found.seq < point);
        match found.kind.effect() {
            Effect::Absent => None,
            Effect::Value => Some(Value::in_block(found.value)),
        }
    }))
}
