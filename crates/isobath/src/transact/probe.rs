//! Probes: the newest version of a key, in the sources that can hold one from an LSN on.
//!
//! A registered read point makes flushes and compactions keep each key's newest version, deletes
//! and range deletes included, so a probe is exact. Usually it looks into one memtable.

use crate::engine::{Engine, Keyspace, MemtableOf, View};
use crate::env::{Reach, reached_if};
use crate::error::Result;
use crate::format::{Lsn, checksum64};
use arc_swap::Guard;
use std::sync::Arc;

/// The LSNs of the versions that a probe asks for: `from` and above, below `bound`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Since {
    pub(super) from: Lsn,
    pub(super) bound: Lsn,
}

/// A view that holds everything below the visible frontier of this moment. A close empties the
/// views, and an empty view would look as if nothing had changed. So this checks, after it has
/// pinned the view, that the database is still open.
pub(super) fn pin_open(engine: &Engine, family: &Keyspace) -> Result<Guard<Arc<View>>> {
    let (view, _) = family.pin(&engine.log);
    engine.check_open()?;
    Ok(view)
}

/// True if the view holds a version of `key` in this range of LSNs.
pub(super) fn is_written(engine: &Engine, view: &View, key: &[u8], since: Since) -> Result<bool> {
    debug_assert!(since.from <= since.bound, "no version can be between these points: {since:?}");
    engine.gauges.probes.add(1);
    let is_cloned = view.is_cloned_since(since.from);
    reached_if(Reach::CloneConflict, || is_cloned);
    let is_written = is_cloned || newest_is_in(engine, view, key, since)?;
    engine.gauges.probes_cleared.add(u64::from(!is_written));
    Ok(is_written)
}

fn newest_is_in(engine: &Engine, view: &View, key: &[u8], since: Since) -> Result<bool> {
    if let Some(is_newer) = in_memory(view, key, since) {
        return Ok(is_newer);
    }
    let hash = checksum64(key);
    let layers = view.layers_at_key(since.bound, key);
    for layer in layers.filter(|layer| layer.lsn >= since.from) {
        if layer.part.find(key, hash, true)?.is_some() {
            return Ok(true);
        }
    }
    let levels = view.tree.levels.iter().filter_map(|level| level.find(key));
    let runs = view.tree.runs.iter().filter(|run| run.extent().contains(key));
    for slice in runs.chain(levels) {
        if slice.meta.max_seq < since.from || slice.meta.min_seq >= since.bound {
            continue;
        }
        let table = slice.table(&engine.tables)?;
        let cover = table.spans().map_or(0, |spans| spans.newest_at(key, since.bound));
        let found = table.get_with(key, hash, since.bound, true)?;
        let newest = cover.max(found.map_or(0, |found| found.seq));
        if newest > 0 {
            reached_if(Reach::SpanConflict, || cover >= since.from);
            return Ok(newest >= since.from);
        }
    }
    Ok(false)
}

/// Like [`is_written`], from memory alone. `None` if no memtable that reaches into the range holds
/// the key.
pub(super) fn in_memory(view: &View, key: &[u8], since: Since) -> Option<bool> {
    let reaches = view.memtables.iter().take_while(|of| of.epoch.end() > since.from);
    let newest_in = |of: &MemtableOf| {
        let cover = of.memtable.newest_span_at(key, since.bound);
        reached_if(Reach::SpanConflict, || cover >= since.from);
        cover.max(of.memtable.get(key, since.bound).map_or(0, |found| found.seq))
    };
    let newest = reaches.map(newest_in).find(|newest| *newest > 0)?;
    Some(newest >= since.from)
}
