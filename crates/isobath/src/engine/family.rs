//! A column family while the database is open, and the view its readers pin.
//!
//! A view is immutable: the memtables of the family, newest first, and the tree of its slices on disk. It is
//! replaced when the family is first written in an epoch, when an epoch of its is installed, and when a merge
//! is installed. Readers reach it through an `ArcSwap`: a load takes no lock and contends with nobody, and an
//! idle thread pins neither memory nor files.
//!
//! A reader needs a view and a read point that fit: the view alone misses memtables created since, the point
//! alone may meet a merge that dropped what it needs. So: load the view, load `visible`, and check that the
//! view is still current; a memtable is published before any commit in it becomes visible, hence a view that
//! is still current holds everything below the point. A view's number becomes current before the view can be
//! seen: a second writer may find the memtable in it, and be visible, while the first is still publishing.

use super::epochs::Epoch;
use crate::compact::Merges;
use crate::components::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::components::sync::{Mutex, yield_now};
use crate::components::{Plant, Point, planted, preempt, yield_point};
use crate::format::{FamilyId, Lsn};
use crate::memtable::Memtable;
use crate::options::FamilyOptions;
use crate::version::Tree;
use crate::wal::Log;
use arc_swap::{ArcSwap, Guard};
use std::sync::Arc;

/// A memtable and the epoch it belongs to.
#[derive(Clone)]
pub(crate) struct MemtableOf {
    pub(crate) epoch: Arc<Epoch>,
    pub(crate) memtable: Arc<Memtable>,
}

/// What a reader of a family pins.
pub(crate) struct View {
    number: u64,
    /// Newest epoch first.
    pub(crate) memtables: Vec<MemtableOf>,
    pub(crate) tree: Arc<Tree>,
}

/// An open column family.
pub(crate) struct Family {
    pub(crate) id: FamilyId,
    name: Mutex<Arc<str>>,
    pub(crate) options: FamilyOptions,
    view: ArcSwap<View>,
    /// The number of the current view, stored before the view itself.
    current: AtomicU64,
    /// Held by whoever replaces the view.
    change: Mutex<()>,
    dropped: AtomicBool,
    pub(crate) merges: Merges,
}

impl Family {
    pub(crate) fn new(id: FamilyId, name: &str, options: FamilyOptions, tree: Arc<Tree>) -> Family {
        Family {
            id,
            name: Mutex::new(name.into()),
            options,
            view: ArcSwap::from_pointee(View { number: 1, memtables: Vec::new(), tree }),
            current: AtomicU64::new(1),
            change: Mutex::new(()),
            dropped: AtomicBool::new(false),
            merges: Merges::default(),
        }
    }

    pub(crate) fn name(&self) -> Arc<str> {
        self.name.lock().clone()
    }

    pub(crate) fn rename(&self, name: &str) {
        *self.name.lock() = name.into();
    }

    pub(crate) fn is_dropped(&self) -> bool {
        self.dropped.load(Ordering::Acquire)
    }

    /// Makes the family refuse writes and lets go of its memory and files, but for what readers still pin.
    pub(crate) fn mark_dropped(&self) {
        self.dropped.store(true, Ordering::Release);
        self.replace(|_| (Vec::new(), Arc::new(Tree::default())));
    }

    /// The current view and a read point it can serve.
    #[inline]
    pub(crate) fn pin(&self, log: &Log) -> (Guard<Arc<View>>, Lsn) {
        self.pin_at(|| log.visible())
    }

    #[inline]
    pub(super) fn pin_at(&self, visible: impl Fn() -> Lsn) -> (Guard<Arc<View>>, Lsn) {
        loop {
            if planted(Plant::PointBeforeView) {
                let point = visible();
                yield_point(Point::Pinned);
                return (self.view(), point);
            }
            let view = self.view();
            yield_point(Point::Pinned);
            let point = visible();
            if self.current.load(Ordering::Acquire) == view.number {
                return (view, point);
            }
            // Whoever publishes may have been interrupted halfway.
            drop(view);
            yield_now();
        }
    }

    /// The current view, for a reader whose point is registered or still to be taken.
    #[inline]
    pub(crate) fn view(&self) -> Guard<Arc<View>> {
        preempt();
        self.view.load()
    }

    /// The memtable of `epoch`, which owns an LSN that the caller has reserved; created and published if this
    /// is the family's first write in the epoch.
    pub(crate) fn memtable_in(&self, epoch: &Arc<Epoch>) -> Arc<Memtable> {
        let right = self.change.lock();
        let view = self.view.load_full();
        if let Some(known) = view.memtables.iter().find(|of| of.epoch.id == epoch.id) {
            return known.memtable.clone();
        }
        let memtable = epoch.memtable(self.id);
        if self.is_dropped() {
            // A commit that raced the drop; a view that had it would keep it in memory for good.
            return memtable;
        }
        let mut memtables = view.memtables.clone();
        let at = memtables.partition_point(|of| of.epoch.id > epoch.id);
        memtables.insert(at, MemtableOf { epoch: epoch.clone(), memtable: memtable.clone() });
        self.publish(&view, memtables, view.tree.clone());
        drop(right);
        memtable
    }

    /// Puts a new tree in place, and leaves out the memtable of an epoch that is now in the tree.
    pub(crate) fn install(&self, tree: Arc<Tree>, flushed: Option<&Arc<Epoch>>) {
        self.replace(|view| {
            let keep = |of: &&MemtableOf| flushed.is_none_or(|epoch| of.epoch.id != epoch.id);
            (view.memtables.iter().filter(keep).cloned().collect(), tree)
        });
    }

    fn replace(&self, change: impl FnOnce(&View) -> (Vec<MemtableOf>, Arc<Tree>)) {
        let _right = self.change.lock();
        let view = self.view.load_full();
        let (memtables, tree) = change(&view);
        self.publish(&view, memtables, tree);
    }

    /// Called with `change` held.
    fn publish(&self, old: &View, memtables: Vec<MemtableOf>, tree: Arc<Tree>) {
        let number = old.number + 1;
        let view = Arc::new(View { number, memtables, tree });
        self.current.store(number, Ordering::Release);
        yield_point(Point::Publishing);
        preempt();
        self.view.store(view);
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::engine::Epochs;
    use crate::memtable::ChunkPool;

    #[test]
    fn a_dropped_family_holds_no_memory_though_a_commit_races_the_drop() {
        let epochs = Epochs::new(Arc::new(ChunkPool::new(16 << 10, 0, 0)), 4096);
        let tree = Arc::new(Tree::default());
        let family = Family::new(1, "brief", FamilyOptions::default(), tree);
        let epoch = epochs.list().open.clone();
        family.memtable_in(&epoch);
        family.mark_dropped();
        family.memtable_in(&epoch);
        assert!(family.view().memtables.is_empty());
    }
}
