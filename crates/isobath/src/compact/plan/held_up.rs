//! What damage holds up.
//!
//! A slice that a job could not read is the input of no other. So nothing that shares keys with it
//! goes down from the level above it, nor does a run that lies over one that stays. All of that
//! waits until the slice is gone. Runs among it are made fewer in place; the rest is no work for
//! compactions, and no reason to slow writers.

use super::policy::{Hints, Policy};
use super::shape::Shape;
use crate::engine::Busy;
use crate::env::{Reach, reached_if};
use crate::table::ExtentRef;
use crate::version::{Slice, Tree};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The slices that stay where they are because of damage, the damaged ones among them.
#[derive(Debug, Default)]
pub(super) struct HeldUp {
    files: BTreeSet<u64>,
    /// Their bytes by level, values in blob files included. Empty if nothing is held up.
    bytes: Vec<u64>,
}

impl HeldUp {
    pub(super) fn of(tree: &Tree, busy: &Busy, shape: &Shape) -> HeldUp {
        let mut held_up = HeldUp::default();
        if busy.damaged().is_empty() {
            return held_up;
        }
        held_up.bytes = vec![0; shape.bottom + 1];
        for (file, extent) in busy.damaged() {
            let extent = extent.borrowed();
            let Some((level, slice)) = tree.locate(*file, &extent) else { continue };
            held_up.add(level, &slice);
            for above in (1..level).filter(|above| shape.next(tree, *above) == level) {
                tree.overlapping(above, &extent).iter().for_each(|over| held_up.add(above, over));
            }
        }
        let base = DamagedBase::of(tree, busy, shape);
        let mut staying: Vec<&Arc<Slice>> = Vec::new();
        for run in tree.runs.iter().rev() {
            let overlaps = |older: &&Arc<Slice>| older.extent().overlaps(&run.extent());
            let is_held = busy.is_damaged(run.meta.file)
                || base.lies_under(run)
                || staying.iter().any(overlaps);
            if is_held {
                held_up.add(0, run);
                staying.push(run);
            }
        }
        reached_if(Reach::HeldUpByDamage, || held_up.files.len() > busy.damaged().len());
        held_up
    }

    fn add(&mut self, level: usize, slice: &Slice) {
        debug_assert!(level < self.bytes.len(), "the shape has all levels of the tree");
        if self.files.insert(slice.meta.file) {
            self.bytes[level] = self.bytes[level].saturating_add(slice.held_bytes);
        }
    }

    pub(super) fn holds(&self, slice: &Slice) -> bool {
        self.files.contains(&slice.meta.file)
    }

    pub(super) fn holds_any(&self, files: &[u64]) -> bool {
        files.iter().any(|file| self.files.contains(file))
    }

    /// Leaves what is held up out of the bytes of each level.
    pub(super) fn leave_out_of(&self, held: &mut [u64]) {
        for (held, bytes) in held.iter_mut().zip(&self.bytes) {
            *held = held.saturating_sub(*bytes);
        }
    }
}

/// The blob files in which slices have values that no job moves for the sake of garbage: damaged
/// slices, and runs that have to stay. What is held up in other levels is rewritten in place.
pub(crate) fn stuck_blobs(
    tree: &Tree,
    policy: &Policy,
    busy: &Busy,
    hints: &Hints,
) -> BTreeSet<u64> {
    if busy.damaged().is_empty() || !tree.has_blobs() {
        return BTreeSet::new();
    }
    let held_up = HeldUp::of(tree, busy, &Shape::of(tree, policy, hints));
    let staying = tree.iter().filter(|(level, slice)| match level {
        0 => held_up.holds(slice),
        _ => busy.is_damaged(slice.meta.file),
    });
    let shares = staying.flat_map(|(_, slice)| slice.meta.blobs.iter());
    let stuck: BTreeSet<u64> = shares.map(|share| share.file).collect();
    reached_if(Reach::BlobsHeldUp, || !stuck.is_empty());
    stuck
}

/// The damaged slices of the base.
pub(super) struct DamagedBase<'a>(Vec<ExtentRef<'a>>);

impl<'a> DamagedBase<'a> {
    pub(super) fn of(tree: &Tree, busy: &'a Busy, shape: &Shape) -> DamagedBase<'a> {
        let is_of_base = |file: u64, extent: &ExtentRef<'_>| {
            tree.locate(file, extent).is_some_and(|(level, _)| level == shape.base)
        };
        let extents = busy.damaged().iter().map(|(file, extent)| (*file, extent.borrowed()));
        let of_base = extents.filter(|(file, extent)| is_of_base(*file, extent));
        DamagedBase(of_base.map(|(_, extent)| extent).collect())
    }

    /// True if one of them has keys of the run.
    pub(super) fn lies_under(&self, run: &Slice) -> bool {
        self.0.iter().any(|extent| extent.overlaps(&run.extent()))
    }
}
