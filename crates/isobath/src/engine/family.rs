//! A column family of an open database, and the view that its readers pin.
//!
//! A view is immutable: the memtables of the family, newest first, what large commits have laid
//! over the tree (`layer.rs`), and the tree of its slices on disk. A new view replaces it when the
//! family is first written in an epoch, when a large commit writes to it, when one of its
//! epochs is installed, and when a compaction is installed. Readers reach it through an `ArcSwap`:
//! a load takes no lock and never contends, and an idle thread pins neither memory nor files.
//!
//! A reader needs a view and a read point that fit. A view that is too old misses memtables created
//! since. A point that is too old may need versions that a compaction has dropped. So the reader
//! loads the view, then loads `visible`, then checks that the view is still current. A memtable is
//! published before any commit in it becomes visible. Hence a view that is still current holds
//! everything below the point. A view's number becomes current before the view can be seen. The
//! reason: a second writer may find the memtable in the new view, and its commit may become
//! visible, while the first writer is still publishing.
//!
//! A drop marks the view with its LSN before the record of the drop becomes visible. So a reader
//! learns from the view that it pinned whether the family exists at its point. The marked view
//! keeps its memtables and its tree, and nothing is installed into it once the edit of the drop is
//! durable. Snapshots below the drop go on reading it until `read_points.rs` releases the family.

use super::compactions::Compactions;
use super::epochs::Epoch;
use super::held::HeldView;
use super::layer::Layer;
use crate::conflict::Word;
use crate::env::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::env::sync::{Mutex, MutexGuard, Rank, yield_now};
use crate::env::{Plant, Point, planted, preempt, yield_point};
use crate::format::{FamilyId, Lsn};
use crate::gap::Gaps;
use crate::memtable::Memtable;
use crate::mvcc::{Merging, Operators};
use crate::options::FamilyOptions;
use crate::table::TableOptions;
use crate::version::Tree;
use crate::wal::Log;
use arc_swap::{ArcSwap, Guard};
use std::sync::{Arc, OnceLock};

/// A memtable and its epoch.
#[derive(Clone)]
pub(crate) struct MemtableOf {
    pub(crate) epoch: Arc<Epoch>,
    pub(crate) memtable: Arc<Memtable>,
}

/// What a reader of a family pins.
#[derive(Clone)]
pub(crate) struct View {
    number: u64,
    /// Newest epoch first.
    pub(crate) memtables: Vec<MemtableOf>,
    /// Newest first. Shared, because they may be very many and views are replaced often.
    pub(crate) layers: Arc<Vec<Layer>>,
    /// The LSN of the newest layer that there is or was; 0 if there was none.
    pub(super) last_layer: Lsn,
    pub(crate) tree: Arc<Tree>,
    /// The greatest point that does not see the family.
    created_at: Lsn,
    /// The same if the family is a clone that was made since the database was opened, or 0.
    cloned_at: Lsn,
    /// The LSN at which the log drops the family; `Lsn::MAX` if it does not.
    dropped_at: Lsn,
    /// No reader sees the family any more, and the view stays empty.
    is_let_go: bool,
    /// The id of the last epoch whose memtable the tree took in; 0 if there was none.
    pub(crate) flushed: u64,
    /// Where readers of this view find nothing, and writers tell of what they put there; `None` if
    /// there is no such place.
    pub(crate) gaps: Option<Arc<Gaps>>,
    /// What readers go on reading who began before a filter changed values, oldest first.
    pub(super) held: Vec<HeldView>,
}

impl View {
    /// A view of a database that is open for reading only. It never changes; a new one replaces it.
    pub(super) fn of_reader(
        memtable: Option<MemtableOf>,
        tree: Arc<Tree>,
        (created_at, dropped_at): (Lsn, Lsn),
    ) -> Arc<View> {
        let memtables = memtable.into_iter().collect();
        Arc::new(View {
            number: 0,
            memtables,
            layers: Arc::default(),
            last_layer: 0,
            tree,
            created_at,
            cloned_at: 0,
            dropped_at,
            is_let_go: false,
            flushed: 0,
            gaps: None,
            held: Vec::new(),
        })
    }

    /// True if no reader sees the family any more.
    pub(super) fn is_let_go(&self) -> bool {
        self.is_let_go
    }

    /// False if the family was dropped before `point`.
    #[inline]
    pub(crate) fn exists_at(&self, point: Lsn) -> bool {
        point <= self.dropped_at
    }

    /// True if a reader at `point` sees the family. A clone has older versions than itself, which
    /// no reader below it may see.
    #[inline]
    pub(crate) fn is_seen_from(&self, point: Lsn) -> bool {
        point > self.created_at || planted(Plant::CloneSeenTooEarly)
    }

    /// The view for readers of this one that do not see the family yet: nothing is in it.
    #[cold]
    pub(crate) fn before_creation(&self) -> Arc<View> {
        View::of_reader(None, Arc::default(), (self.created_at, self.dropped_at))
    }

    /// True if the family came as a whole, as a clone, from `lsn` on.
    #[inline]
    pub(crate) fn is_cloned_since(&self, lsn: Lsn) -> bool {
        self.cloned_at >= lsn && self.cloned_at > 0 && !planted(Plant::CloneNotJudged)
    }
}

/// The right to replace the view of a family.
pub(super) type ViewRight<'a> = MutexGuard<'a, ()>;

/// An open column family.
pub(crate) struct Keyspace {
    pub(crate) id: FamilyId,
    name: Mutex<Arc<str>>,
    options: Mutex<Arc<FamilyOptions>>,
    /// The family that the first of its ancestors is, if it is a clone; otherwise itself.
    pub(crate) root: FamilyId,
    /// The greatest point that does not see the family: the LSN of the log record that created it.
    created_at: Lsn,
    view: ArcSwap<View>,
    /// The number of the current view, stored before the view itself.
    current: AtomicU64,
    /// Held while the view is replaced.
    change: Mutex<()>,
    dropped: AtomicBool,
    /// Where commits announce themselves that do not announce key by key: those of very many keys,
    /// and the drop of the family.
    pub(crate) changed: Word,
    pub(crate) compactions: Compactions,
    /// True once the options name a merge operator, which they do for good.
    merges: AtomicBool,
    merging: OnceLock<Arc<Merging>>,
    /// True once the options name a compaction filter, until the database is closed.
    filters: AtomicBool,
    /// The time to live of values that do not say, in milliseconds; 0 for ever.
    ttl_ms: AtomicU64,
}

impl Keyspace {
    pub(crate) fn new(
        id: FamilyId,
        name: &str,
        options: FamilyOptions,
        created_at: Lsn,
        tree: Arc<Tree>,
    ) -> Keyspace {
        let merges = AtomicBool::new(options.merge_operator.is_some());
        let filters = AtomicBool::new(options.compaction_filter.is_some());
        let ttl_ms = AtomicU64::new(options.ttl_ms());
        let mut view = View::clone(&View::of_reader(None, tree, (created_at, Lsn::MAX)));
        view.number = 1;
        Keyspace {
            id,
            root: id,
            name: Mutex::new(Rank::FamilyName, name.into()),
            options: Mutex::new(Rank::FamilyOptions, Arc::new(options)),
            created_at,
            view: ArcSwap::from_pointee(view),
            current: AtomicU64::new(1),
            change: Mutex::new(Rank::View, ()),
            dropped: AtomicBool::new(false),
            changed: Word::default(),
            compactions: Compactions::default(),
            merges,
            merging: OnceLock::new(),
            filters,
            ttl_ms,
        }
    }

    /// The same as a clone of `root`, or of a clone of it.
    pub(crate) fn of_root(self, root: FamilyId) -> Keyspace {
        Keyspace { root, ..self }
    }

    /// The same as a clone that has just been made. Transactions that began below it, and have read
    /// there, have not seen what is in it.
    pub(crate) fn cloned(self) -> Keyspace {
        self.replace(|view| view.cloned_at = view.created_at);
        self
    }

    /// How the family merges; `None` if its options name no operator.
    #[inline]
    pub(crate) fn merging(&self, operators: &Operators) -> Option<&Arc<Merging>> {
        // Options come before the first operand, whose commit a reader has seen.
        if self.merges.load(Ordering::Acquire) { self.find_merging(operators) } else { None }
    }

    #[cold]
    fn find_merging(&self, operators: &Operators) -> Option<&Arc<Merging>> {
        if let Some(merging) = self.merging.get() {
            return Some(merging);
        }
        let options = self.options();
        let name = options.merge_operator.as_deref()?;
        Some(self.merging.get_or_init(|| Arc::new(Merging::new(name, operators))))
    }

    /// The greatest point that does not see the family.
    pub(crate) fn created_at(&self) -> Lsn {
        self.created_at
    }

    pub(crate) fn name(&self) -> Arc<str> {
        self.name.lock().clone()
    }

    pub(crate) fn rename(&self, name: &str) {
        *self.name.lock() = name.into();
    }

    /// The options for tables that are written from now on.
    pub(crate) fn options(&self) -> Arc<FamilyOptions> {
        self.options.lock().clone()
    }

    /// The options for a table that is written for this level.
    pub(crate) fn table_options(&self, level: usize) -> TableOptions {
        let (options, name) = (self.options(), self.name());
        match self.root == self.id {
            true => options.table_options(self.id, &name, level),
            false => options.of_clone(self.root).table_options(self.id, &name, level),
        }
    }

    /// Replaces the options, after the manifest has them.
    pub(crate) fn set_options(&self, options: FamilyOptions) {
        let merges = options.merge_operator.is_some();
        if options.compaction_filter.is_some() {
            self.forget_gaps();
        }
        self.ttl_ms.store(options.ttl_ms(), Ordering::Relaxed);
        *self.options.lock() = Arc::new(options);
        if merges {
            self.merges.store(true, Ordering::Release);
        }
    }

    /// True if a compaction filter has ever been named since the database was opened. Such a family
    /// has no gaps: for readers of an earlier era a key may have a value that the gap denies.
    pub(super) fn has_filtered(&self) -> bool {
        self.filters.load(Ordering::Acquire)
    }

    /// From now on the family has no gaps.
    fn forget_gaps(&self) {
        self.filters.store(true, Ordering::Release);
        if self.view().gaps.is_some() {
            self.replace(|view| view.gaps = None);
        }
    }

    /// The time to live of values that do not say, in milliseconds; 0 for ever.
    #[inline]
    pub(crate) fn ttl_ms(&self) -> u64 {
        self.ttl_ms.load(Ordering::Relaxed)
    }

    pub(crate) fn is_dropped(&self) -> bool {
        self.dropped.load(Ordering::Acquire)
    }

    /// Marks the family as dropped. Each view states from which point on the family is gone.
    pub(super) fn note_gone(&self) {
        self.dropped.store(true, Ordering::Release);
    }

    /// Makes the family refuse writes, and readers above `lsn`. The drop has reserved `lsn` and not
    /// yet published its record.
    pub(crate) fn mark_dropped(&self, lsn: Lsn) {
        self.dropped.store(true, Ordering::Release);
        self.replace(|view| {
            debug_assert_eq!(view.dropped_at, Lsn::MAX, "a family is dropped once");
            debug_assert!(self.created_at < lsn, "a family is dropped before it was created");
            view.dropped_at = lsn;
        });
    }

    /// The first point that does not see the dropped family, whose drop it sees.
    pub(super) fn gone_from(&self) -> Lsn {
        self.view.load().dropped_at.saturating_add(1)
    }

    /// Points above the first of these and not above the second see the dropped family: those
    /// between its creation and its drop.
    pub(super) fn seen_within(&self) -> (Lsn, Lsn) {
        (self.created_at, self.view.load().dropped_at)
    }

    /// Releases the memtables that no reader of the dropped family at `point` or below sees. From
    /// here on the family exists at no later point.
    pub(super) fn cut(&self, point: Lsn) {
        self.replace(|view| {
            view.memtables.retain(|of| of.epoch.start < point);
            view.retain_layers(|layer| layer.is_seen_from(point));
            view.dropped_at = view.dropped_at.min(point);
        });
    }

    /// Releases memory and files of the dropped family, except for what readers have pinned. From
    /// here on it exists only at points from before its creation, where it is empty.
    pub(super) fn let_go(&self) {
        self.empty_from(self.created_at);
    }

    /// Releases memory and files because the database is closed. From here on the family exists at
    /// no read point.
    pub(super) fn shut(&self) {
        self.empty_from(0);
    }

    /// Empties the view. Above `point` a read finds that the family is gone, not that it is empty.
    fn empty_from(&self, point: Lsn) {
        self.replace(|view| {
            let dropped_at = view.dropped_at.min(point);
            (view.memtables, view.tree, view.gaps) = (Vec::new(), Arc::default(), None);
            view.layers = Arc::default();
            view.held.clear();
            (view.dropped_at, view.is_let_go) = (dropped_at, true);
        });
    }

    /// The current view, and a read point that fits it.
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
            // The publishing thread may have been interrupted between its two stores.
            drop(view);
            yield_now();
        }
    }

    /// The current view, for a reader whose point is registered already or is taken later.
    #[inline]
    pub(crate) fn view(&self) -> Guard<Arc<View>> {
        yield_point(Point::Viewing);
        self.view.load()
    }

    /// The memtable of `epoch`. The epoch owns an LSN that the caller has reserved. The family's
    /// first write in the epoch creates and publishes the memtable.
    pub(crate) fn memtable_in(&self, epoch: &Arc<Epoch>) -> Arc<Memtable> {
        let right = self.change.lock();
        let view = self.view.load_full();
        let at = view.memtables.partition_point(|of| of.epoch.id > epoch.id);
        if let Some(known) = view.memtables.get(at).filter(|of| of.epoch.id == epoch.id) {
            return known.memtable.clone();
        }
        let memtable = epoch.memtable(self.id);
        if view.is_let_go || epoch.start >= view.dropped_at {
            // The commit raced the drop. A view with this memtable would only keep it in memory.
            return memtable;
        }
        let mut view = View::clone(&view);
        view.memtables.insert(at, MemtableOf { epoch: epoch.clone(), memtable: memtable.clone() });
        self.publish(view);
        drop(right);
        memtable
    }

    /// Installs a new tree, and removes the memtable and the layers of the epoch that was flushed
    /// into it.
    pub(crate) fn install(&self, tree: Arc<Tree>, flushed: Option<&Arc<Epoch>>) {
        self.replace(|view| {
            debug_assert!(
                flushed.is_none_or(|epoch| {
                    view.memtables.iter().all(|of| of.epoch.id >= epoch.id)
                        || planted(Plant::FlushedBeforeComplete)
                        || planted(Plant::SealForgetsRacers)
                }),
                "a memtable older than the tree would hide what the tree has"
            );
            debug_assert!(
                flushed.is_none_or(|epoch| epoch.id >= view.flushed),
                "epochs are flushed in order"
            );
            view.memtables.retain(|of| flushed.is_none_or(|epoch| of.epoch.id != epoch.id));
            flushed.into_iter().for_each(|epoch| view.lift_layers(epoch));
            view.flushed = flushed.map_or(view.flushed, |epoch| epoch.id);
            view.tree = tree;
        });
    }

    fn replace(&self, change: impl FnOnce(&mut View)) {
        let right = self.change.lock();
        self.replace_with(&right, change);
    }

    /// Like `replace`, for who has taken `change`.
    pub(super) fn replace_with(&self, _right: &ViewRight<'_>, change: impl FnOnce(&mut View)) {
        let mut view = View::clone(&self.view.load());
        change(&mut view);
        self.publish(view);
    }

    /// The right to replace the view more than once.
    pub(super) fn lock_view(&self) -> ViewRight<'_> {
        self.change.lock()
    }

    /// Replaces the current view by a changed copy of it. The caller holds `change`.
    fn publish(&self, mut view: View) {
        view.number += 1;
        debug_assert!(
            view.memtables.is_sorted_by(|newer, older| newer.epoch.id > older.epoch.id),
            "a reader takes the first version that it finds"
        );
        let view = Arc::new(view);
        self.current.store(view.number, Ordering::Release);
        yield_point(Point::Publishing);
        preempt();
        self.view.store(view);
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::engine::Epochs;
    use crate::format::OpKind;
    use crate::memtable::ChunkPool;

    #[test]
    fn a_dropped_family_holds_no_memory_though_a_commit_races_the_drop() {
        let epochs = Epochs::new(Arc::new(ChunkPool::new(16 << 10, 0, 0)), 4096);
        let tree = Arc::new(Tree::default());
        let family = Keyspace::new(1, "brief", FamilyOptions::default(), 1, tree);
        let epoch = epochs.list().open.clone();
        family.memtable_in(&epoch);
        family.mark_dropped(4096);
        family.let_go();
        family.memtable_in(&epoch);
        assert!(family.view().memtables.is_empty());
    }

    #[test]
    fn a_commit_below_the_drop_that_is_slow_to_apply_is_seen_below_the_drop() {
        let epochs = Epochs::new(Arc::new(ChunkPool::new(16 << 10, 0, 0)), 4096);
        let family = Keyspace::new(1, "f", FamilyOptions::default(), 1, Arc::default());
        family.mark_dropped(5000);
        family.memtable_in(&epochs.list().open).insert(b"k", 4999, OpKind::Put, b"");
        let view = family.view();
        assert!(view.exists_at(5000) && !view.exists_at(5001));
        assert!(view.memtables[0].memtable.get(b"k", 5000).is_some());
    }

    /// Four epochs that begin at 4096, 5000, 6000 and 7000.
    fn four_epochs() -> Vec<Arc<Epoch>> {
        let epochs = Epochs::new(Arc::new(ChunkPool::new(16 << 10, 0, 0)), 4096);
        for end in [5000, 6000, 7000] {
            epochs.seal(&epochs.lock(), || Ok::<Lsn, ()>(end)).unwrap();
        }
        let list = epochs.list();
        list.sealed.iter().chain([&list.open]).cloned().collect()
    }

    fn family() -> Keyspace {
        Keyspace::new(3, "f", FamilyOptions::default(), 1, Arc::default())
    }

    /// The epochs of the memtables that a reader finds, in the order in which it searches them.
    /// Each view has its own number and is current.
    fn pinned(family: &Keyspace, number: u64) -> Vec<u64> {
        assert_eq!(family.current.load(Ordering::Acquire), number);
        assert_eq!(family.view().number, number);
        let (view, point) = family.pin_at(|| 77);
        assert_eq!((view.number, point), (number, 77));
        view.memtables.iter().map(|of| of.epoch.id).collect()
    }

    #[test]
    fn a_view_has_one_memtable_of_each_epoch_newest_first_whatever_the_order_of_their_coming() {
        let (family, epochs) = (family(), four_epochs());
        assert_eq!(pinned(&family, 1), [0; 0]);
        for (number, (come, expected)) in
            [(1, &[2][..]), (3, &[4, 2]), (0, &[4, 2, 1]), (2, &[4, 3, 2, 1])]
                .into_iter()
                .enumerate()
        {
            let memtable = family.memtable_in(&epochs[come]);
            assert!(Arc::ptr_eq(&memtable, &epochs[come].memtable(3)));
            assert!(Arc::ptr_eq(&memtable, &family.memtable_in(&epochs[come])));
            assert_eq!(pinned(&family, number as u64 + 2), expected);
        }
    }

    #[test]
    fn an_installed_tree_takes_the_place_of_the_memtable_that_it_holds() {
        let (family, epochs) = (family(), four_epochs());
        epochs[..3].iter().for_each(|epoch| drop(family.memtable_in(epoch)));
        let run = |file| crate::version::fixtures::slice(file, "a", "z", (file * 2, file * 2 + 1));
        let compacted = Arc::new(Tree::default().with(&[], vec![(0, run(1))]).unwrap());
        family.install(compacted.clone(), None);
        assert_eq!(pinned(&family, 5), [3, 2, 1]);
        assert!(Arc::ptr_eq(&family.view().tree, &compacted));
        let flushed = Arc::new(compacted.with(&[], vec![(0, run(2))]).unwrap());
        family.install(flushed.clone(), Some(&epochs[0]));
        assert_eq!(pinned(&family, 6), [3, 2]);
        assert!(Arc::ptr_eq(&family.view().tree, &flushed));
        family.install(flushed, Some(&epochs[0]));
        assert_eq!(pinned(&family, 7), [3, 2], "it had no memtable of that epoch");
    }

    #[cfg(debug_assertions)]
    #[test]
    #[should_panic(expected = "a memtable older than the tree would hide what the tree has")]
    fn no_tree_is_installed_beneath_a_memtable_older_than_it() {
        let (family, epochs) = (family(), four_epochs());
        epochs[..2].iter().for_each(|epoch| drop(family.memtable_in(epoch)));
        family.install(Arc::default(), Some(&epochs[1]));
    }

    /// What a writer does between the two loads of a reader.
    #[test]
    fn a_view_that_is_replaced_while_the_point_is_loaded_is_not_pinned() {
        let (family, epochs) = (family(), four_epochs());
        let loads = std::cell::Cell::new(0);
        let (view, point) = family.pin_at(|| {
            loads.set(loads.get() + 1);
            if loads.get() <= 2 {
                family.memtable_in(&epochs[loads.get() as usize]);
            }
            4096 + loads.get()
        });
        assert_eq!((view.number, view.memtables.len(), point, loads.get()), (3, 2, 4099, 3));
    }

    #[test]
    fn a_dropped_family_takes_in_epochs_from_before_its_drop_only() {
        let (family, epochs) = (family(), four_epochs());
        assert!(!family.is_dropped() && family.view().exists_at(Lsn::MAX));
        family.mark_dropped(6000);
        assert!(family.is_dropped());
        epochs.iter().for_each(|epoch| drop(family.memtable_in(epoch)));
        assert_eq!(pinned(&family, 4), [2, 1]);
        family.cut(5000);
        assert_eq!(pinned(&family, 5), [1]);
        family.let_go();
        assert_eq!(pinned(&family, 6), [0; 0]);
        epochs.iter().for_each(|epoch| drop(family.memtable_in(epoch)));
        assert_eq!(pinned(&family, 6), [0; 0]);
    }

    #[test]
    fn a_family_has_the_name_it_was_given_last() {
        let family = family();
        assert_eq!(&*family.name(), "f");
        family.rename("g");
        assert_eq!(&*family.name(), "g");
    }
}
