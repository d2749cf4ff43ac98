//! About how many different keys a family has: the union of the sketches of its tables
//! (`table/sketch.rs`), and of the keys in memory.

use super::ReadAt;
use crate::cursor::Cursor;
use crate::error::Result;
use crate::format::checksum64;
use crate::memtable::MemtableCursor;
use crate::table::{STANDARD_ERROR, Sketch, SliceMeta, Table};
use std::sync::Arc;

/// About how many different keys there are: the result of
/// [`Family::distinct_keys`](crate::Family::distinct_keys).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct DistinctKeys {
    /// About how many keys.
    pub keys: u64,
    /// The standard error of `keys`, as a share of it: two of three estimates are off by no more,
    /// nineteen of twenty by no more than twice as much. Up to thirty keys they are mostly right.
    pub standard_error: f64,
    /// Entries in tables that have no sketch, because an earlier version wrote them. Each counts as
    /// a key of its own. Compactions bring this down.
    pub unsketched_entries: u64,
}

impl ReadAt<'_> {
    /// About how many different keys the newest view has.
    pub(crate) fn distinct_keys(self) -> Result<DistinctKeys> {
        let (view, point) = self.begin()?;
        let (mut sketch, mut unsketched_entries) = (Sketch::default(), 0);
        let mut add = |meta: &SliceMeta, table: &Arc<Table>| {
            if !table.add_keys_to(&mut sketch)? {
                unsketched_entries += meta.entries - meta.deletes;
            }
            Ok(())
        };
        for layer in view.layers_at(point) {
            add(layer.part.meta(), layer.part.table())?;
        }
        for (_, slice) in view.tree.iter() {
            let table = slice.table(&self.engine.tables)?;
            add(&slice.meta, &table)?;
        }
        for of in &view.memtables {
            let mut cursor = MemtableCursor::new(of.memtable.clone());
            cursor.seek_first()?;
            while let Some(entry) = cursor.entry() {
                if entry.kind.puts_value() {
                    sketch.add(checksum64(entry.key));
                }
                cursor.next()?;
            }
        }
        Ok(DistinctKeys {
            keys: sketch.estimate().saturating_add(unsketched_entries),
            standard_error: STANDARD_ERROR,
            unsketched_entries,
        })
    }
}
