//! How readers who began before a compaction go on reading what its filter has changed.
//!
//! What a compaction filter decides changes what a point shows, without an LSN. So the point alone
//! does not say what a reader sees. The *era* of a reader says how often such changes had been
//! installed when it registered its point. Where one is installed while readers are registered who
//! see what was changed, the view goes on having the one before it, for readers of earlier eras.
//! So each registered reader sees one and the same at its point until it ends
//! (`docs/internals/compaction-filters.md`).
//!
//! A view that is held is whole: its memtables too, since a flush may have moved what they have
//! into the tree that the reader must not see. They stay in memory as long as it is held.

use super::family::{Keyspace, View};
use super::read_points::{Hold, ReadPoints};
use crate::env::{Plant, Reach, planted, reached};
use crate::format::Lsn;
use crate::version::Tree;
use arc_swap::Guard;
use std::sync::Arc;

/// A registered point, and since when it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Registered {
    pub(crate) point: Lsn,
    pub(crate) era: u64,
}

impl Hold {
    /// What reads at the point need.
    #[inline]
    pub(crate) fn registered(&self) -> Registered {
        Registered { point: self.point(), era: self.era() }
    }
}

/// A view that readers of earlier eras go on reading.
#[derive(Clone)]
pub(super) struct HeldView {
    /// The era that began when another view took its place.
    era: u64,
    /// Readers at this point or below see nothing of what was changed.
    from: Lsn,
    /// No reader of an earlier era has a point above this.
    upto: Lsn,
    view: Arc<View>,
}

impl View {
    /// The view that serves a registered reader, if it is not this one.
    #[inline]
    pub(crate) fn held_for(&self, reader: Registered) -> Option<&Arc<View>> {
        match &self.held[..] {
            [] => None,
            held => held_in(held, reader),
        }
    }
}

impl Keyspace {
    /// Pins the view that serves a reader, and the point at which it reads: a registered one, or
    /// the newest.
    #[inline]
    pub(crate) fn pin_for(
        &self,
        reader: Option<Registered>,
        visible: impl Fn() -> Lsn,
    ) -> (Guard<Arc<View>>, Lsn) {
        let (view, newest) = self.pin_at(visible);
        let point = reader.map_or(newest, |registered| registered.point);
        let held = reader.and_then(|registered| view.held_for(registered).cloned());
        let view = held.map_or(view, Guard::from_inner);
        debug_assert!(
            point <= newest
                || planted(Plant::SnapshotSeesTooMuch)
                || planted(Plant::PointBeforeView),
            "a reader's point {point:#x} lies above {newest:#x}, all that is visible"
        );
        (view, point)
    }
}

/// The oldest one that is held for the reader.
#[cold]
fn held_in(held: &[HeldView], reader: Registered) -> Option<&Arc<View>> {
    reached(Reach::ViewHeldRead);
    let is_for = |held: &&HeldView| reader.era < held.era && reader.point > held.from;
    held.iter().find(is_for).map(|held| &held.view)
}

impl ReadPoints {
    /// Installs a tree whose filter has changed values with sequence numbers from `changed_from`
    /// on. Holds the view before for the registered readers who see these values. Installations are
    /// made one after the other: the caller has locked the versions.
    pub(crate) fn install_filtered(
        &self,
        family: &Arc<Keyspace>,
        tree: Arc<Tree>,
        changed_from: Lsn,
        visible: impl Fn() -> Lsn,
    ) {
        let coming = self.begin_era();
        // Readers of earlier eras have their points already. Who sees one of those points in its
        // slot sees at least that frontier, so it is loaded behind them.
        let is_seen = self.points().iter().any(|point| *point > changed_from);
        let upto = visible();
        family.install_over(tree, is_seen.then_some((coming.number(), changed_from, upto)));
        drop(coming);
        if is_seen {
            self.watch_held(family);
        }
    }
}

impl Keyspace {
    /// Installs a tree. Keeps the view before for readers of eras before `era` at points above
    /// `from`, of whom none is above `upto`.
    fn install_over(&self, tree: Arc<Tree>, held: Option<(u64, Lsn, Lsn)>) {
        let right = self.lock_view();
        let mut before = View::clone(&self.view());
        before.held.clear();
        self.replace_with(&right, |view| {
            if let Some((era, from, upto)) = held.filter(|_| !view.is_let_go()) {
                reached(Reach::ViewHeld);
                debug_assert!(view.held.last().is_none_or(|last| last.era < era));
                view.held.push(HeldView { era, from, upto, view: Arc::new(before) });
            }
            view.tree = tree;
        });
    }

    /// True if there is a view that is held for readers.
    pub(super) fn is_holding(&self) -> bool {
        !self.view().held.is_empty()
    }

    /// The number of views that are held for readers.
    pub(crate) fn held_views(&self) -> usize {
        self.view().held.len()
    }

    /// The eras of views that no reader needs. `is_any` says whether a point in use lies above one
    /// point and not above another. Points were listed at `era` or later, so for views of an era
    /// that began after that they tell nothing.
    pub(super) fn unneeded_views(
        &self,
        era: u64,
        mut is_any: impl FnMut((Lsn, Lsn)) -> bool,
    ) -> Vec<u64> {
        let view = self.view();
        let unneeded = |held: &&HeldView| held.era <= era + 1 && !is_any((held.from, held.upto));
        view.held.iter().filter(unneeded).map(|held| held.era).collect()
    }

    /// Gives up the views of these eras.
    pub(super) fn release_held(&self, eras: &[u64]) {
        if eras.is_empty() {
            return;
        }
        let right = self.lock_view();
        self.replace_with(&right, |view| view.held.retain(|held| !eras.contains(&held.era)));
    }
}

#[cfg(all(test, loom))]
mod model;
