//! Reads of one key: the memtables newest first, then the files of large commits, then the runs of
//! level 0 newest first, then one slice of each level.
//!
//! The first version found is the answer, because every source holds only older versions than the
//! sources before it. A range delete that covers the key ends the search in the same way, unless
//! its own source has a newer version. A hit in memory or in a cached block makes no system call
//! and no allocation. The key is hashed once, for all filters.

use crate::cursor::Entry;
use crate::engine::View;
use crate::env::{Plant, Reach, planted, reached, reached_if};
use crate::error::Result;
use crate::format::{Lsn, checksum64};
use crate::memtable::Memtable;
use crate::mvcc::{Effect, OpKind};
use crate::pinned::Value;
use crate::read::begin::ReadAt;
use crate::span::SpanSet;
use crate::table::{Found as TableFound, Table};
use crate::version::Slice as TableSlice;
use arc_swap::Guard;
use std::sync::Arc;

/// What the caller wants to know.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    Value,
    /// Only whether the key has a value.
    Presence,
}

/// What the newest version says that a reader sees.
pub(super) enum Found {
    Absent,
    Value(Value),
    /// What is stored of a value that ends, and its kind.
    Expiring(OpKind, Value),
    Operand,
    /// Where the value lies.
    Separated(OpKind, Value),
}

impl ReadAt<'_> {
    /// The value of `key`.
    pub(crate) fn get(&self, key: &[u8]) -> Result<Option<Value>> {
        let (view, point) = self.begin()?;
        match find(self, &view, key, point, Wanted::Value)? {
            Found::Absent => Ok(None),
            Found::Value(value) => Ok(Some(value)),
            found => self.resolve(key, found, (view, point)),
        }
    }

    /// True if `key` has a value.
    pub(crate) fn contains(&self, key: &[u8]) -> Result<bool> {
        let (view, point) = self.begin()?;
        let wanted = Wanted::Presence;
        match find(self, &view, key, point, wanted)?.for_reader_of(wanted) {
            Found::Absent => Ok(false),
            Found::Value(_) => Ok(true),
            found => self.resolve_presence(key, found, (view, point)),
        }
    }

    /// The value of a key whose newest version says where it lies. The caller pins the view in
    /// which it has found that.
    pub(super) fn fetch(&self, key: &[u8], (kind, stored): (OpKind, &[u8])) -> Result<Value> {
        reached(Reach::BlobValueGot);
        let entry = Entry { key, seq: 0, kind, value: stored };
        self.engine.fetcher(self.options.fill_cache).fetch(&entry).map(Value::in_block)
    }

    #[cold]
    #[inline(never)]
    fn resolve(
        &self,
        key: &[u8],
        found: Found,
        (view, point): (Guard<Arc<View>>, Lsn),
    ) -> Result<Option<Value>> {
        let read = self.resolve_now(key, found, (view, point), Wanted::Value)?;
        Ok(read.map(|read| read.value))
    }

    #[cold]
    #[inline(never)]
    fn resolve_presence(
        &self,
        key: &[u8],
        found: Found,
        (view, point): (Guard<Arc<View>>, Lsn),
    ) -> Result<bool> {
        Ok(self.resolve_now(key, found, (view, point), Wanted::Presence)?.is_some())
    }
}

/// The newest version of a key that a reader sees.
#[inline(always)]
pub(super) fn find(
    at: &ReadAt<'_>,
    view: &View,
    key: &[u8],
    point: Lsn,
    wanted: Wanted,
) -> Result<Found> {
    let mut hash = None;
    if let Some(found) = find_above_tree(at, view, (key, &mut hash), point, wanted)? {
        return Ok(found);
    }
    if view.tree.is_empty() {
        return Ok(Found::Absent);
    }
    find_in_tree(at, view, (key, hash.unwrap_or_else(|| checksum64(key))), point)
}

/// What memtables and the files of large commits say. The key's hash is made if it is needed.
#[inline(always)]
pub(super) fn find_above_tree(
    at: &ReadAt<'_>,
    view: &View,
    (key, hash): (&[u8], &mut Option<u64>),
    point: Lsn,
    wanted: Wanted,
) -> Result<Option<Found>> {
    for of in &view.memtables {
        if of.memtable.has_spans() && is_hidden_in(&of.memtable, key, point) {
            return Ok(Some(Found::Absent));
        }
        if let Some(filter) = of.memtable.filter()
            && !filter.may_hold(*hash.get_or_insert_with(|| checksum64(key)))
        {
            reached(Reach::MemtableDenied);
            debug_assert!(
                of.memtable.get(key, point).is_none() || planted(Plant::MemtableDenies),
                "the filter of a memtable denies a key that a reader sees there"
            );
            continue;
        }
        if let Some(found) = of.memtable.get(key, point) {
            debug_assert!(found.seq < point, "a reader sees what was written after its point");
            return Ok(Some(match (found.kind.effect(), wanted) {
                (Effect::Absent, _) => Found::Absent,
                (Effect::Operand, _) => Found::Operand,
                (Effect::Expiring, _) => {
                    Found::Expiring(found.kind, Value::in_memtable(found.value, &of.memtable))
                }
                (Effect::Separated, _) => {
                    Found::Separated(found.kind, Value::in_memtable(found.value, &of.memtable))
                }
                (Effect::Value, Wanted::Presence) => Found::Value(Value::copied(&[])),
                (Effect::Value, Wanted::Value) => {
                    Found::Value(Value::in_memtable(found.value, &of.memtable))
                }
            }));
        }
    }
    if view.layers.is_empty() {
        return Ok(None);
    }
    let hash = *hash.get_or_insert_with(|| checksum64(key));
    find_in_layers(at, view, (key, hash), point)
}

/// What large commits say of the key whose files no flush has taken in yet.
#[cold]
#[inline(never)]
fn find_in_layers(
    at: &ReadAt<'_>,
    view: &View,
    (key, hash): (&[u8], u64),
    point: Lsn,
) -> Result<Option<Found>> {
    for layer in view.layers_at_key(point, key) {
        let Some((seq, found)) = layer.part.find(key, hash, at.options.fill_cache)? else {
            continue;
        };
        debug_assert!(seq < point || planted(Plant::LayerSeenTooEarly));
        reached(Reach::LayerHit);
        let Some(found) = found else { return Ok(Some(Found::Absent)) };
        return Ok(Some(Found::in_table(found)));
    }
    Ok(None)
}

/// A function of its own, so that how one part is compiled says nothing about the other.
#[inline(never)]
fn find_in_tree(
    at: &ReadAt<'_>,
    view: &View,
    (key, hash): (&[u8], u64),
    point: Lsn,
) -> Result<Found> {
    let tree = &view.tree;
    for run in tree.runs.iter().filter(|run| run.meta.may_hold(key)) {
        if let Some(found) = find_in_slice(at, run, key, hash, point)? {
            return Ok(found);
        }
    }
    for level in &tree.levels {
        if let Some(slice) = level.find(key)
            && let Some(found) = find_in_slice(at, slice, key, hash, point)?
        {
            return Ok(found);
        }
    }
    Ok(Found::Absent)
}

/// True if a range delete of the memtable hides all older versions of the key, and the memtable has
/// no newer one.
#[cold]
#[inline(never)]
fn is_hidden_in(memtable: &Memtable, key: &[u8], point: Lsn) -> bool {
    let cover = memtable.newest_span_at(key, point);
    debug_assert!(cover == 0 || cover < point, "a range delete newer than the reader hides a key");
    if cover == 0 {
        return false;
    }
    let newest = memtable.get(key, point).map_or(0, |found| found.seq);
    let is_hidden = is_hidden(newest, cover);
    reached_if(Reach::SpanHidInMemory, || is_hidden);
    is_hidden
}

/// The same for a slice.
#[cold]
#[inline(never)]
pub(super) fn is_hidden_by(
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

impl Found {
    /// The same as a reader needs it: of one that asks for presence, values lie nowhere.
    #[inline]
    pub(super) fn for_reader_of(self, wanted: Wanted) -> Found {
        match self {
            Found::Separated(..) if wanted == Wanted::Presence => Found::Value(Value::default()),
            Found::Expiring(kind, stored) if wanted == Wanted::Presence => {
                Found::Expiring(kind.joined(), stored)
            }
            found => found,
        }
    }

    #[inline(always)]
    pub(super) fn in_table(found: TableFound) -> Found {
        match found.kind.effect() {
            Effect::Absent => Found::Absent,
            Effect::Value => Found::Value(Value::in_block(found.value)),
            Effect::Expiring => Found::Expiring(found.kind, Value::in_block(found.value)),
            Effect::Operand => Found::Operand,
            Effect::Separated => Found::Separated(found.kind, Value::in_block(found.value)),
        }
    }
}

/// `None` if the slice holds no version visible to the reader and no range delete that covers the
/// key.
#[inline(always)]
fn find_in_slice(
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
        && is_hidden_by((spans, &table), (key, hash), point, at.options.fill_cache)?
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
    Ok(Some(Found::in_table(found)))
}
