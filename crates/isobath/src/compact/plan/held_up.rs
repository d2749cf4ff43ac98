//! What damage holds up.
//!
//! A slice that a job could not read is the input of no other. So nothing that shares keys with it
//! goes down from the level above it, nor does a run that lies over one that stays. All of that
//! waits until the slice is gone: it is no work for compactions, and no reason to slow writers.

use super::shape::Shape;
use crate::engine::Busy;
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
        let mut staying: Vec<&Arc<Slice>> = Vec::new();
        for run in tree.runs.iter().rev() {
            let overlaps = |older: &&Arc<Slice>| older.extent().overlaps(&run.extent());
            let is_held = busy.is_damaged(run.meta.file)
                || is_over_damage(tree, busy, shape, run)
                || staying.iter().any(overlaps);
            if is_held {
                held_up.add(0, run);
                staying.push(run);
            }
        }
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

    /// Leaves what is held up out of the bytes of each level.
    pub(super) fn leave_out_of(&self, held: &mut [u64]) {
        for (held, bytes) in held.iter_mut().zip(&self.bytes) {
            *held = held.saturating_sub(*bytes);
        }
    }
}

/// True if a damaged slice of the base has keys of the run.
pub(super) fn is_over_damage(tree: &Tree, busy: &Busy, shape: &Shape, run: &Slice) -> bool {
    !busy.damaged().is_empty()
        && tree
            .overlapping(shape.base, &run.extent())
            .iter()
            .any(|slice| busy.is_damaged(slice.meta.file))
}
