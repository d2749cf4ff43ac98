//! Layers: what a large commit has written, read where it is until a flush takes it in.
//!
//! The record of such a commit names spill files (`spill.rs`). Each of them is a layer of the views
//! of its families, between the memtables and the tree. That place is right: the commit has locked
//! the hull of each file, from its first key to its last, and flushed what was there. So in the
//! hull the memtables have only what is newer than the layer, and the tree only what is older.
//! Elsewhere the layer has nothing. Layers whose hulls overlap lie in the order of their commits,
//! and those of one commit in the order of its files; or, if they lie apart, by their keys.
//!
//! A reader asks only the layers whose extent meets what it looks for. The extent has the keys and
//! the range deletes, so what is left out says nothing of it.
//!
//! A layer enters the views once its commit has an LSN, and before it is visible. It leaves them
//! when the epoch that owns the LSN is installed. Readers at an older point do not see it.

use super::epochs::Epoch;
use super::family::{Keyspace, View};
use super::spill::{SpillFile, SpilledPart};
use crate::env::{Plant, Reach, planted, reached, reached_if};
use crate::format::{Lsn, spilled_seq};
use crate::gap::Gaps;
use crate::table::{End, ExtentRef};
use std::ops::Bound;
use std::sync::Arc;

/// What one file of a large commit has of one family.
#[derive(Clone)]
pub(crate) struct Layer {
    /// The LSN of the commit.
    pub(crate) lsn: Lsn,
    /// The id of the epoch that owns it.
    epoch: u64,
    /// How many layers of the commit, from this one on, lie apart from each other, the one with the
    /// highest keys first. At least 1.
    apart: usize,
    pub(crate) part: SpilledPart,
}

impl Layer {
    /// True if a reader at `point` sees it.
    #[inline]
    pub(crate) fn is_seen_from(&self, point: Lsn) -> bool {
        self.lsn < point || planted(Plant::LayerSeenTooEarly)
    }

    /// Where its keys and its range deletes lie.
    fn extent(&self) -> ExtentRef<'_> {
        self.part.meta().extent()
    }
}

/// Puts the layers of one commit in the order of their keys, the highest first, if they lie apart;
/// their order does not matter then.
fn set_apart(layers: &mut [Layer]) {
    let mut places: Vec<usize> = (0..layers.len()).collect();
    places.sort_by_key(|at| std::cmp::Reverse(layers[*at].extent().start));
    let is_below =
        |one: &usize, next: &usize| layers[*next].extent().is_below(&layers[*one].extent());
    if !places.is_sorted_by(is_below) {
        return;
    }
    let sorted: Vec<Layer> = places.into_iter().map(|at| layers[at].clone()).collect();
    layers.clone_from_slice(&sorted);
    let len = layers.len();
    layers.iter_mut().enumerate().for_each(|(at, layer)| layer.apart = len - at);
}

impl View {
    /// The layers that a reader at `point` sees, newest first.
    #[inline]
    pub(crate) fn layers_at(&self, point: Lsn) -> impl Iterator<Item = &Layer> {
        self.layers.iter().filter(move |layer| layer.is_seen_from(point))
    }

    /// Those of them that may have a key within the bounds, or delete one.
    pub(crate) fn layers_within<'v>(
        &'v self,
        point: Lsn,
        bounds: (Bound<&'v [u8]>, Bound<&'v [u8]>),
    ) -> impl Iterator<Item = &'v Layer> {
        self.layer_groups_within(point, bounds).flatten()
    }

    /// The same, with those together that lie apart from each other, the one with the highest keys
    /// first. No group is empty. The files of an ingest may be very many, and lie apart; so those
    /// that lie above the bounds are not looked at.
    pub(crate) fn layer_groups_within<'v>(
        &'v self,
        point: Lsn,
        (lower, upper): (Bound<&'v [u8]>, Bound<&'v [u8]>),
    ) -> impl Iterator<Item = &'v [Layer]> {
        let mut rest = &self.layers[..];
        let groups = std::iter::from_fn(move || {
            let (group, others) = rest.split_at(rest.first()?.apart);
            rest = others;
            Some(group)
        });
        groups.filter(move |group| group[0].is_seen_from(point)).filter_map(move |group| {
            let is_above = |layer: &Layer| match upper {
                Bound::Included(upper) => layer.extent().starts_after(upper),
                Bound::Excluded(upper) => layer.extent().start >= upper,
                Bound::Unbounded => false,
            };
            let group = &group[group.partition_point(is_above)..];
            let len = group.partition_point(|layer| layer.extent().meets(&lower, &upper));
            (len > 0).then(|| &group[..len])
        })
    }

    /// The same for one key.
    #[inline]
    pub(crate) fn layers_at_key<'v>(
        &'v self,
        point: Lsn,
        key: &'v [u8],
    ) -> impl Iterator<Item = &'v Layer> {
        self.layers_within(point, (Bound::Included(key), Bound::Included(key)))
    }

    /// True if a large commit came from `lsn` on, as far as this view knows: what it wrote may be
    /// in no memtable.
    pub(crate) fn has_layer_from(&self, lsn: Lsn) -> bool {
        self.last_layer >= lsn && !planted(Plant::LayerNotJudged)
    }
}

impl Keyspace {
    /// Lays what files of a large commit have of the family over the tree. Each file comes with its
    /// number among those of the commit, and they come newest first. The commit has its LSN, which
    /// `epoch` owns, and is not visible yet.
    pub(crate) fn lay<'f>(
        &self,
        files: impl Iterator<Item = (usize, &'f Arc<SpillFile>)>,
        epoch: &Arc<Epoch>,
        lsn: Lsn,
    ) {
        let layer = |(nth, file): (usize, &Arc<SpillFile>)| {
            let part = SpilledPart::with_seq(file, self.id, spilled_seq(lsn, nth))?;
            Some(Layer { lsn, epoch: epoch.id, apart: 1, part })
        };
        let mut layers: Vec<Layer> = files.filter_map(layer).collect();
        set_apart(&mut layers);
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
                forget_gaps(&mut view.gaps, &layers);
            }
            let at = view.layers.partition_point(|other| other.lsn > lsn);
            Arc::make_mut(&mut view.layers).splice(at..at, layers);
            view.last_layer = view.last_layer.max(lsn);
        });
    }
}

impl View {
    /// Removes the layers of an epoch, which the tree has taken in.
    pub(super) fn lift_layers(&mut self, epoch: &Epoch) {
        reached_if(Reach::LayerFlushed, || !self.layers.is_empty());
        self.retain_layers(|layer| layer.epoch != epoch.id);
    }

    pub(super) fn retain_layers(&mut self, is_kept: impl Fn(&Layer) -> bool) {
        if !self.layers.iter().all(&is_kept) {
            Arc::make_mut(&mut self.layers).retain(is_kept);
        }
    }
}

/// Forgets the gaps in which layers may put keys.
fn forget_gaps(gaps: &mut Option<Arc<Gaps>>, layers: &[Layer]) {
    let Some(known) = gaps else { return };
    let mut left = Gaps::clone(known);
    for extent in layers.iter().map(Layer::extent) {
        match extent.end {
            End::Included(last) => left.forget(extent.start, Some(&[last, &[0]].concat())),
            End::Excluded(end) => left.forget(extent.start, Some(end)),
            End::Unbounded => left.forget(extent.start, None),
        }
    }
    *gaps = (!left.is_empty()).then(|| Arc::new(left));
}
