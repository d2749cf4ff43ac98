//! Foretells in a dry run whether the repaired state would be accepted.
//!
//! The tables that a repair would write are not there. Slices stand for them that have the keys and
//! the sequence numbers of all that goes into a table, and the number of one of its files.

use super::plan::{Placed, Plan};
use super::tables::FoundTable;
use crate::format::FamilyId;
use crate::table::{BlockHandle, End, ExtentRef, SliceMeta, SpanMeta};
use std::collections::BTreeMap;

/// All slices of the repaired database with their levels, but for those that the log becomes.
pub(super) fn foretold(plan: &Plan, tables: &[FoundTable]) -> Vec<Placed> {
    let found = tables.iter().flat_map(|table| &table.slices);
    let found: BTreeMap<_, _> =
        found.map(|slice| ((slice.holder, slice.meta.file), &slice.meta)).collect();
    let stand_in = |level: usize, members: &[(FamilyId, u64)]| {
        let (family, _) = members.first()?;
        let members = members.iter().filter_map(|member| found.get(member).copied());
        Some((level, *family, stand_in(&members.collect::<Vec<_>>())?))
    };
    let saved =
        plan.saved.iter().filter_map(|(level, family, file)| stand_in(*level, &[(*family, *file)]));
    let merged = plan.merged.iter().filter_map(|(level, members)| stand_in(*level, members));
    plan.kept.iter().cloned().chain(saved).chain(merged).collect()
}

/// A slice with the keys and the sequence numbers of all of these.
fn stand_in(metas: &[&SliceMeta]) -> Option<SliceMeta> {
    let first = metas.first()?;
    let hull = ExtentRef::hull(metas.iter().map(|meta| meta.extent()))?;
    let span = |end: Option<&[u8]>| {
        Some(Box::new(SpanMeta {
            fragments: 1,
            start: hull.start.into(),
            end: end.map(Into::into),
        }))
    };
    let (largest, spans) = match hull.end {
        End::Included(largest) => (largest, None),
        End::Excluded(end) => (hull.start, span(Some(end))),
        End::Unbounded => (hull.start, span(None)),
    };
    Some(SliceMeta {
        file: first.file,
        family: first.family,
        root: BlockHandle { offset: 0, len: 0 },
        disk_bytes: 0,
        raw_bytes: 0,
        entries: 1,
        deletes: 0,
        smallest: hull.start.into(),
        largest: largest.into(),
        min_seq: metas.iter().map(|meta| meta.min_seq).min()?,
        max_seq: metas.iter().map(|meta| meta.max_seq).max()?,
        spans,
        ends: None,
        oldest_delete: None,
        blobs: Box::default(),
    })
}
