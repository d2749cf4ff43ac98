//! About how much lies within a range of keys, by what the engine knows without reading data: the
//! descriptions of slices, their indexes, and the sums that memtables keep.
//!
//! A slice within the range counts as its description says. A slice at an end of the range counts
//! with the share of its data that lies within by its index, which is at most half a data block
//! off.

use super::{ReadAt, ScanBounds};
use crate::error::Result;
use crate::table::{End, Extent, SliceMeta};
use crate::version::{OpenTable, Slice, Tree};
use std::borrow::Cow;
use std::ops::Bound;
use std::sync::Arc;

/// About how much lies within a range: the result of [`Family::estimate`](crate::Family::estimate).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Estimate {
    /// Keys with a value. A key that was overwritten counts once more for each older version until
    /// a flush or a compaction drops that; each delete counts as if it hid one of these.
    pub keys: u64,
    /// Deletes of single keys that were not dropped yet.
    pub deletes: u64,
    /// Bytes of tables on disk, with their indexes and filters, and of values in blob files.
    pub disk_bytes: u64,
    /// Bytes of keys and values in memory, which a flush will write.
    pub memory_bytes: u64,
}

impl ReadAt<'_> {
    /// About what lies within the bounds.
    pub(crate) fn estimate(self, bounds: &ScanBounds) -> Result<Estimate> {
        let (view, point) = self.begin()?;
        let mut sum = Estimate::default();
        if bounds.is_empty() {
            return Ok(sum);
        }
        let mut entries = 0;
        for of in &view.memtables {
            let held = of.memtable.holding(key_of(&bounds.lower), key_of(&bounds.upper));
            entries += held.keys;
            sum.deletes += held.deletes;
            sum.memory_bytes += held.bytes;
        }
        for layer in view.layers_within(point, bounds.borrowed()) {
            let (meta, table) = (layer.part.meta(), layer.part.table());
            let share = share_within(meta, || Ok(Cow::Borrowed(table)), bounds)?;
            entries += sum.add(meta, share);
        }
        for slice in slices_within(&view.tree, bounds) {
            let table = || slice.table(&self.engine.tables);
            let share = share_within(&slice.meta, table, bounds)?;
            entries += sum.add(&slice.meta, share);
        }
        sum.keys = entries.saturating_sub(2 * sum.deletes);
        Ok(sum)
    }
}

impl Estimate {
    /// Adds this share of a slice, and returns about how many entries that is.
    fn add(&mut self, meta: &SliceMeta, share: f64) -> u64 {
        let part = |whole: u64| (whole as f64 * share).round() as u64;
        self.deletes += part(meta.deletes);
        self.disk_bytes += part(meta.disk_bytes + meta.blob_bytes() + meta.stream_bytes());
        part(meta.entries)
    }
}

/// The slices that may hold keys within the bounds, which are not empty. Of each level only those
/// are looked at that are near the bounds.
fn slices_within<'t>(tree: &'t Tree, bounds: &ScanBounds) -> impl Iterator<Item = &'t Arc<Slice>> {
    let end = match &bounds.upper {
        Bound::Included(key) => End::Included(&**key),
        Bound::Excluded(key) => End::Excluded(&**key),
        Bound::Unbounded => End::Unbounded,
    };
    let near = Extent { start: key_of(&bounds.lower).unwrap_or_default(), end };
    let of_levels = tree.levels.iter().flat_map(move |level| level.overlapping(&near));
    tree.runs.iter().chain(of_levels).filter(move |slice| {
        #[cfg(all(test, not(any(loom, shuttle))))]
        tests::LOOKS.set(tests::LOOKS.get() + 1);
        slice.extent().meets(&bounds.lower, &bounds.upper)
    })
}

fn key_of(bound: &Bound<Vec<u8>>) -> Option<&[u8]> {
    match bound {
        Bound::Included(key) | Bound::Excluded(key) => Some(key),
        Bound::Unbounded => None,
    }
}

/// About which share of a slice lies within the bounds, from 0 to 1.
fn share_within<'t>(
    meta: &SliceMeta,
    table: impl Fn() -> Result<OpenTable<'t>>,
    bounds: &ScanBounds,
) -> Result<f64> {
    let (smallest, largest) = (&*meta.smallest, &*meta.largest);
    let rank = |key: &[u8]| match key {
        key if key <= smallest => Ok(0.0),
        key if key > largest => Ok(1.0),
        key => table()?.rank(key),
    };
    let before = key_of(&bounds.lower).map_or(Ok(0.0), rank)?;
    let behind = match &bounds.upper {
        Bound::Unbounded => 1.0,
        Bound::Included(key) if **key >= *largest => 1.0,
        Bound::Included(key) | Bound::Excluded(key) => rank(key)?,
    };
    debug_assert!((0.0..=1.0).contains(&before) && (0.0..=1.0).contains(&behind));
    Ok(f64::max(behind - before, 0.0))
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::error::Error;
    use crate::version::fixtures::{meta, slice};
    use std::cell::Cell;

    thread_local! {
        /// How many slices were compared with bounds.
        pub(super) static LOOKS: Cell<usize> = const { Cell::new(0) };
    }

    #[test]
    fn only_runs_and_slices_near_the_bounds_are_looked_at() {
        use Bound::{Excluded, Included, Unbounded};
        let key = |at: u64| format!("{at:04}");
        let of_level = |at: u64| slice(at + 1, &key(2 * at), &key(2 * at + 1), (1, 1));
        let mut added: Vec<_> = (0..1_000).map(|at| (2, of_level(at))).collect();
        added.extend((0..3).map(|at| (0, slice(2_000 + at, "0", "1", (2 + at, 2 + at)))));
        let tree = Tree::default().with(&[], added).unwrap();
        let cases = [
            (Included(key(20)), Excluded(key(22)), vec![11], 1),
            (Excluded(key(21)), Included(key(24)), vec![12, 13], 3),
            (Excluded(key(21)), Excluded(key(22)), vec![], 1),
            (Included(key(1_997)), Unbounded, vec![999, 1_000], 2),
            (Unbounded, Included(key(0)), vec![1], 1),
        ];
        for (lower, upper, expected, near) in cases {
            let of = |bound: &Bound<String>| bound.clone().map(String::into_bytes);
            let bounds = ScanBounds { lower: of(&lower), upper: of(&upper) };
            LOOKS.set(0);
            let found = slices_within(&tree, &bounds).map(|slice| slice.meta.file);
            let found: Vec<_> = found.filter(|file| *file < 2_000).collect();
            assert_eq!(found, expected, "{lower:?} {upper:?}");
            assert!(LOOKS.get() <= 3 + near, "{} looks, {lower:?} {upper:?}", LOOKS.get());
        }
        let all = ScanBounds { lower: Unbounded, upper: Unbounded };
        assert_eq!(slices_within(&tree, &all).count(), 1_003);
    }

    #[test]
    fn a_table_is_asked_only_for_keys_within_it() {
        use Bound::{Excluded, Included, Unbounded};
        let meta = meta(0, 1, "g", "p", (10, 20));
        let share = |lower: Bound<&str>, upper: Bound<&str>| {
            let of = |bound: Bound<&str>| bound.map(|key| key.as_bytes().to_vec());
            let bounds = ScanBounds { lower: of(lower), upper: of(upper) };
            share_within(&meta, || Err(Error::cancelled()), &bounds).ok()
        };
        for bound in [Included, Excluded] {
            assert_eq!(share(bound("g"), bound("p0")), Some(1.0));
            assert_eq!(share(bound("p0"), Unbounded), Some(0.0));
            assert_eq!(share(Unbounded, bound("g")), Some(0.0));
            assert_eq!(share(bound("k"), Unbounded), None);
            assert_eq!(share(Unbounded, bound("k")), None);
        }
        assert_eq!(share(Unbounded, Included("p")), Some(1.0));
        assert_eq!(share(Unbounded, Excluded("p")), None);
        assert_eq!(share(Excluded("p"), Unbounded), None);
    }
}
