//! Layers: what a large commit has written, read where it is until a flush takes it in.
//!
//! The record of such a commit names spill files (`spill.rs`). Each of them is a layer of the views
//! of its families, between the memtables and the tree. That place is right: the commit has locked
//! the hull of each file, from its first key to its last, and flushed what was there. So in the
//! hull the memtables have only what is newer than the layer, and the tree only what is older.
//! Elsewhere the layer has nothing. Layers whose hulls overlap lie in the order of their commits,
//! and those of one commit in the order of its files.
//!
//! A layer enters the views once its commit has an LSN, and before it is visible. It leaves them
//! when the epoch that owns the LSN is installed. Readers at an older point do not see it.

use super::epochs::Epoch;
use super::family::{Keyspace, View};
use super::spill::{SpillFile, SpilledPart};
use crate::env::{Plant, Reach, planted, reached, reached_if};
use crate::format::{Lsn, spilled_seq};
use crate::gap::Gaps;
use crate::table::{End, SliceMeta};
use std::sync::Arc;

/// What one file of a large commit has of one family.
#[derive(Clone)]
pub(crate) struct Layer {
    /// The LSN of the commit.
    pub(crate) lsn: Lsn,
    /// The id of the epoch that owns it.
    epoch: u64,
    pub(crate) part: SpilledPart,
}

impl Layer {
    /// True if a reader at `point` sees it.
    #[inline]
    pub(crate) fn is_seen_from(&self, point: Lsn) -> bool {
        self.lsn < point || planted(Plant::LayerSeenTooEarly)
    }
}

impl View {
    /// The layers that a reader at `point` sees, newest first.
    #[inline]
    pub(crate) fn layers_at(&self, point: Lsn) -> impl Iterator<Item = &Layer> {
        self.layers.iter().filter(move |layer| layer.is_seen_from(point))
    }

    /// True if a large commit came from `lsn` on, as far as this view knows: what it wrote may be
    /// in no memtable.
    pub(crate) fn has_layer_from(&self, lsn: Lsn) -> bool {
        self.last_layer >= lsn && !planted(Plant::LayerNotJudged)
    }
}

impl Keyspace {
    /// Lays what the files of a large commit, oldest first, have of the family over the tree. The
    /// commit has its LSN, which `epoch` owns, and is not visible yet.
    pub(crate) fn lay(&self, files: &[Arc<SpillFile>], epoch: &Arc<Epoch>, lsn: Lsn) {
        let layer = |(nth, file): (usize, &Arc<SpillFile>)| {
            let part = SpilledPart::with_seq(file, self.id, spilled_seq(lsn, nth))?;
            Some(Layer { lsn, epoch: epoch.id, part })
        };
        let layers: Vec<Layer> = files.iter().enumerate().rev().filter_map(layer).collect();
        reached(Reach::LayerLaid);
        epoch.add_layers(self.id, &layers);
        let right = self.lock_view();
        let view = self.view();
        if view.is_let_go() || !view.exists_at(epoch.start + 1) {
            // The commit raced the drop.
            return;
        }
        drop(view);
        self.replace_with(&right, |view| {
            if !planted(Plant::GapKeptOverLayer) {
                layers.iter().for_each(|layer| forget_gaps(&mut view.gaps, layer.part.meta()));
            }
            let at = view.layers.partition_point(|other| other.lsn > lsn);
            view.layers.splice(at..at, layers);
            view.last_layer = view.last_layer.max(lsn);
        });
    }
}

impl View {
    /// Removes the layers of an epoch, which the tree has taken in.
    pub(super) fn lift_layers(&mut self, epoch: &Epoch) {
        reached_if(Reach::LayerFlushed, || !self.layers.is_empty());
        self.layers.retain(|layer| layer.epoch != epoch.id);
    }
}

/// Forgets the gaps in which a layer may put keys.
fn forget_gaps(gaps: &mut Option<Arc<Gaps>>, meta: &SliceMeta) {
    let Some(known) = gaps else { return };
    let extent = meta.extent();
    let mut left = Gaps::clone(known);
    match extent.end {
        End::Included(last) => left.forget(extent.start, Some(&[last, &[0]].concat())),
        End::Excluded(end) => left.forget(extent.start, Some(end)),
        End::Unbounded => left.forget(extent.start, None),
    }
    *gaps = (!left.is_empty()).then(|| Arc::new(left));
}
