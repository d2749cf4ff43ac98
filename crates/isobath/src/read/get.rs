//! Reads of one key: the memtables newest first, then the runs of level 0 newest first, then one
//! slice of each level.
//!
//! The first version found is the answer, because every source holds only older versions than the
//! sources before it. A range delete that covers the key ends the search in the same way, unless
//! its own source has a newer version. A hit in memory or in a cached block makes no system call
//! and no allocation. The key is hashed once, for all filters.

use crate::engine::View;
use crate::env::{Plant, Reach, planted, reached_if};
use crate::error::Result;
use crate::format::{Lsn, checksum64};
use crate::memtable::Memtable;
use crate::mvcc::Effect;
use crate::pinned::Value;
use crate::read::begin::ReadAt;
use crate::read::fold::get_folded;
use crate::span::SpanSet;
use crate::table::Table;
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
        if of.memtable.has_spans() && is_hidden_in(&of.memtable, key, point) {
            return Ok(None);
        }
        if let Some(found) = of.memtable.get(key, point) {
            debug_assert!(found.seq < point, "a reader sees what was written after its point");
            return Ok(match (found.kind.effect(), wanted) {
                (Effect::Absent, _) => None,
                (Effect::Operand, _) => Some(get_folded(at, view, key, point)?),
                (Effect::Value, Wanted::Presence) => Some(Value::copied(&[])),
                (Effect::Value, Wanted::Value) => {
                    Some(Value::in_memtable(found.value, &of.memtable))
                }
            });
        }
    }
    if view.tree.is_empty() { Ok(None) } else { get_in_tree(at, view, key, point) }
}

/// A function of its own, so that how one part is compiled says nothing about the other.
#[inline(never)]
fn get_in_tree(at: &ReadAt<'_>, view: &View, key: &[u8], point: Lsn) -> Result<Option<Value>> {
    let (tree, hash) = (&view.tree, checksum64(key));
    for run in tree.runs.iter().filter(|run| run.meta.may_hold(key)) {
        if let Some(found) = get_in_slice(at, run, key, hash, point)? {
            return found.value(at, view, key, point);
        }
    }
    for level in &tree.levels {
        if let Some(slice) = level.find(key)
            && let Some(found) = get_in_slice(at, slice, key, hash, point)?
        {
            return found.value(at, view, key, point);
        }
    }
    Ok(None)
}

/// True if a range delete of the memtable hides all older versions of the key, and the memtable has
/// no newer one.
#[cold]
#[inline(never)]
fn is_hidden_in(memtable: &Memtable, key: &[u8], point: Lsn) -> bool {
    let cover = memtable.newest_span_at(key, point);
    debug_assert!(cover == 0 || cover < point, "a range delete newer than the reader hides a key");
    let newest = memtable.get(key, point).map_or(0, |found| found.seq);
    let is_hidden = cover > 0 && is_hidden(newest, cover);
    reached_if(Reach::SpanHidInMemory, || is_hidden);
    is_hidden
}

/// The same for a slice.
#[cold]
#[inline(never)]
fn is_hidden_by(
    (spans, table): (&SpanSet, &Table),
    (key, hash): (&[u8], u64),
    point: Lsn,
    fills: bool,
) -> Result<bool> {
    let cover = spans.newest_at(key, point);
    debug_assert!(cover == 0 || cover < point, "a range delete newer than the reader hides a key");
    if cover == 0 {
        return Ok(false);
    }
    let newest = table.get_with(key, hash, point, fills)?.map_or(0, |found| found.seq);
    let is_hidden = is_hidden(newest, cover);
    reached_if(Reach::SpanHidInTable, || is_hidden);
    Ok(is_hidden)
}

/// True if a range delete hides a version of its source; 0 is none.
fn is_hidden(seq: Lsn, cover: Lsn) -> bool {
    reached_if(Reach::SpanBelowVersion, || cover > 0 && cover < seq);
    cover > seq || (cover > 0 && planted(Plant::SpanHidesNewer))
}

/// What the newest version says that a reader sees in a slice.
enum Found {
    Absent,
    Value(Value),
    Operand,
}

impl Found {
    #[inline(always)]
    fn value(self, at: &ReadAt<'_>, view: &View, key: &[u8], point: Lsn) -> Result<Option<Value>> {
        match self {
            Found::Absent => Ok(None),
            Found::Value(value) => Ok(Some(value)),
            Found::Operand => get_folded(at, view, key, point).map(Some),
        }
    }
}

/// `None` if the slice holds no version visible to the reader and no range delete that covers the
/// key.
#[inline(always)]
fn get_in_slice(
    at: &ReadAt<'_>,
    slice: &TableSlice,
    key: &[u8],
    hash: u64,
    point: Lsn,
) -> Result<Option<Found>> {
    if slice.meta.min_seq >= point {
        return Ok(None);
    }
    let table = slice.table(&at.engine.tables)?;
    if let Some(spans) = table.spans()
        && is_hidden_by((spans, table), (key, hash), point, at.options.fill_cache)?
    {
        return Ok(Some(Found::Absent));
    }
    let found = table.get_with(key, hash, point, at.options.fill_cache);
    let found = match found {
        Ok(Some(found)) => found,
        Ok(None) => return Ok(None),
        Err(error) if error.is_corruption() && planted(Plant::DamageSkipped) => return Ok(None),
        Err(error) => return Err(error),
    };
    debug_assert!(found.seq < point);
    Ok(Some(match found.kind.effect() {
        Effect::Absent => Found::Absent,
        Effect::Value => Found::Value(Value::in_block(found.value)),
        Effect::Operand => Found::Operand,
    }))
}
