//! The registry of read points that compactions and flushes must respect, and of dropped families
//! that some of these points still see.
//!
//! A point lies in one of a few padded slots, or in a map under a lock if the slots near the
//! thread's own are taken. So threads that begin and end reads share no cache line and take no
//! lock.
//!
//! **No point is overlooked** (as in Dekker's algorithm). A reader stores its point in a slot, then
//! loads the *horizon*. A compaction raises the horizon, then looks at all slots. All four accesses
//! are sequentially consistent. So either the compaction sees the point, or the reader sees the
//! horizon. In the second case a point at or above the horizon is safe, because the compaction
//! keeps what such points see; with one below the reader releases its slot and begins again with a
//! newer point. A compaction may see a point that is given up in this way, and then keeps too much.
//! Points in the map obey the same order: one is inserted before its reader loads the horizon, and
//! the map is read after the horizon is raised.
//!
//! The drop of a family closes the points below the drop in the same way, but only to readers who
//! want the newest point: one whose point the drop did not see begins again above it. So there are
//! two bounds, `horizon` for earlier points and `begin`, never below it, for the newest.
//!
//! **No dropped family is forgotten**, by the same argument: a release frees the slot, then loads
//! `look_below`; a drop raises `look_below` above the points that see the family, then looks at the
//! slots. The thread that comes later in the single order sees what the other has stored, so the
//! family goes with the last point that sees it. A release of a point that sees no dropped family
//! takes no lock. Of the points that keep a family or a view one is *awaited*, the greatest: until
//! it is free the others go without a look. Which ones are awaited is settled under the lock that a
//! release takes when it has freed its slot. So the release finds its point among them, or they
//! were settled after the slot was free.
//!
//! A point comes with its *era* (`held.rs`), which is loaded once the point is in its slot. An
//! installation of what a compaction filter has changed makes the era odd, then looks at all slots.
//! So it sees the point, or the point is of the era that begins when the installation is over: a
//! reader waits while the era is odd.
//!
//! A point stays in its slot until its last holder has gone: a copy in another slot could be missed
//! by a compaction that has passed that slot already.

use super::family::Keyspace;
use crate::env::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::env::sync::{Mutex, Rank, fence_for_loom, yield_now};
use crate::env::{Plant, Point, Reach, is_unwinding, planted, reached, thread_number, yield_point};
use crate::mvcc::{Lsn, ReaderPoints};
use crate::wal::Log;
use crossbeam_utils::CachePadded;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The number of slots. Simulators and model checkers have few, so that the map is used too.
const SLOTS: usize = match (cfg!(loom), cfg!(any(shuttle, feature = "simulation"))) {
    (true, _) => 1,
    (false, true) => 4,
    (false, false) => 256,
};
/// How many slots a thread tries before it turns to the map.
const TRIED_MAX: usize = if SLOTS < 16 { SLOTS } else { 16 };
/// How far apart the first slots of successive threads lie. It is odd, so all slots are used, and
/// near `SLOTS` times the golden ratio, so few threads lie close to each other.
const STRIDE: usize = 159;
/// The content of a slot without a point.
const FREE: Lsn = Lsn::MAX;

/// The read points in use, and the dropped families that live only for them.
pub(crate) struct ReadPoints {
    /// Apart from the rest, which lies among other fields that readers use: the padding would
    /// spread these over more cache lines.
    shared: Box<Shared>,
    registry: Mutex<Registry>,
}

/// What readers store and load without a lock.
struct Shared {
    gate: CachePadded<Gate>,
    slots: [CachePadded<Slot>; SLOTS],
}

/// What every reader loads and few threads write.
struct Gate {
    /// No point below this is registered from now on. It only rises. Versions that only points
    /// below it see may be gone, except those that were registered when it rose.
    horizon: AtomicU64,
    /// No reader who wants the newest point gets one below this. It only rises.
    begin: AtomicU64,
    /// A release of a point below this looks after families: some dropped family is held that such
    /// a point may see, or some family holds a view for points. 0 if nothing is held.
    look_below: AtomicU64,
    /// Counts installations of what filters have changed: twice each, and odd meanwhile.
    era: AtomicU64,
}

/// A place for one point.
struct Slot {
    point: AtomicU64,
    /// The number of holders besides the one that took the slot.
    others: AtomicU32,
}

impl Slot {
    fn try_take(&self, point: Lsn) -> bool {
        let is_taken = self.point.load(Ordering::Relaxed) == FREE
            && self
                .point
                .compare_exchange(FREE, point, Ordering::SeqCst, Ordering::Relaxed)
                .is_ok();
        if is_taken {
            fence_for_loom();
        }
        is_taken
    }

    /// Gives up one hold, and frees the slot with the last. Returns true if it is free.
    fn give_back(&self) -> bool {
        // Only a holder adds holders, so a sole holder stays the sole one.
        let one_less = |others: u32| others.checked_sub(1);
        if self.others.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_less).is_ok() {
            return false;
        }
        let point = self.point.swap(FREE, Ordering::SeqCst);
        fence_for_loom();
        assert!(point != FREE, "a point is released once by each holder");
        true
    }

    /// The point in the slot.
    fn point(&self) -> Option<Lsn> {
        Some(self.point.load(Ordering::SeqCst)).filter(|point| *point != FREE)
    }
}

#[derive(Default)]
struct Registry {
    /// Each point that found no slot, with the number of its holders.
    points: BTreeMap<Lsn, usize>,
    /// Dropped families that at least one point sees.
    dropped: Vec<Arc<Keyspace>>,
    /// Families with views that are held for points.
    holding: Vec<Arc<Keyspace>>,
    /// The greatest point in use that sees each of these families, or needs each of these views.
    awaited: BTreeSet<Lsn>,
}

#[cfg(test)]
thread_local! {
    /// How many points this thread has looked at.
    pub(crate) static LOOKS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// Counts points that are looked at, for tests.
#[inline(always)]
fn note_looks(_count: usize) {
    #[cfg(test)]
    LOOKS.set(LOOKS.get() + _count);
}

/// The points in use at one moment.
struct InUse<'a> {
    /// Those in slots, ascending.
    in_slots: Vec<Lsn>,
    in_map: &'a BTreeMap<Lsn, usize>,
}

impl InUse<'_> {
    /// The greatest point above `above` and not above `upto`.
    fn greatest(&self, (above, upto): (Lsn, Lsn)) -> Option<Lsn> {
        note_looks(1);
        let below = self.in_slots.partition_point(|point| *point <= upto);
        let in_slot = self.in_slots[..below].last().copied();
        let in_map = self.in_map.range(..=upto).next_back().map(|(point, _)| *point);
        in_slot.max(in_map).filter(|point| *point > above)
    }
}

/// A registered point. It is released by [`ReadPoints::release`], not by a drop.
#[derive(Debug)]
#[must_use]
pub(crate) struct Hold {
    point: Lsn,
    /// The number of its slot; [`SLOTS`] for the map.
    place: u32,
    era: u64,
}

impl Hold {
    #[inline]
    pub(crate) fn point(&self) -> Lsn {
        self.point
    }

    #[inline]
    pub(super) fn era(&self) -> u64 {
        self.era
    }
}

/// An era that begins when this is dropped. A panic begins it, too: readers wait for it.
#[must_use]
pub(super) struct ComingEra<'a> {
    gate: &'a Gate,
    era: u64,
    /// No earlier point is registered in it, and none below the second as the newest.
    bounds: (Lsn, Lsn),
}

impl ComingEra<'_> {
    pub(super) fn number(&self) -> u64 {
        self.era
    }

    /// What is shown from now on serves points from `horizon` on, and has been the newest from
    /// `newest` on. The caller closes what lies below, and does not come to it if it panics.
    pub(super) fn serves(&mut self, horizon: Lsn, newest: Lsn) {
        self.bounds = (horizon, newest);
    }
}

impl Drop for ComingEra<'_> {
    fn drop(&mut self) {
        if is_unwinding() {
            let (horizon, newest) = self.bounds;
            self.gate.horizon.fetch_max(horizon, Ordering::SeqCst);
            self.gate.begin.fetch_max(horizon.max(newest), Ordering::SeqCst);
        }
        self.gate.era.store(self.era, Ordering::SeqCst);
    }
}

impl Registry {
    /// Gives up one hold of a point. Returns true if it was the last.
    fn give_back(&mut self, point: Lsn) -> bool {
        let holders = self.points.get_mut(&point).expect("a point is released once by each holder");
        debug_assert!(*holders > 0, "a point without holders is kept");
        *holders -= 1;
        let is_last = *holders == 0;
        if is_last {
            self.points.remove(&point);
        }
        is_last
    }
}

#[cfg(test)]
impl Default for ReadPoints {
    fn default() -> Self {
        ReadPoints::new(0)
    }
}

impl Drop for ReadPoints {
    /// Checks that no point is left: each holder of a point holds the database too.
    fn drop(&mut self) {
        if cfg!(debug_assertions) && !is_unwinding() {
            let points = self.list(&self.registry.lock());
            assert!(points.is_empty(), "read points outlive the database: {points:?}");
        }
    }
}

impl ReadPoints {
    /// No points yet, of a database that serves points from `horizon` on.
    pub(crate) fn new(horizon: Lsn) -> ReadPoints {
        let slot = || Slot { point: AtomicU64::new(FREE), others: AtomicU32::new(0) };
        let gate = Gate {
            horizon: AtomicU64::new(horizon),
            begin: AtomicU64::new(horizon),
            look_below: AtomicU64::new(0),
            era: AtomicU64::new(0),
        };
        let slots = std::array::from_fn(|_| CachePadded::new(slot()));
        ReadPoints {
            shared: Box::new(Shared { gate: CachePadded::new(gate), slots }),
            registry: Mutex::new(Rank::ReadPoints, Registry::default()),
        }
    }

    /// Registers the newest read point.
    #[inline]
    pub(crate) fn register(&self, log: &Log) -> Hold {
        self.register_at(|| match planted(Plant::SnapshotSeesTooMuch) {
            true => log.tail(),
            false => log.visible(),
        })
    }

    #[inline]
    pub(super) fn register_at(&self, visible: impl Fn() -> Lsn) -> Hold {
        let mut begin = 0;
        loop {
            let point = visible();
            assert!(
                point >= begin,
                "a reader begins at {point:#x}, where compactions have dropped versions up to \
                 {begin:#x}",
            );
            yield_point(Point::Registering);
            let hold = self.hold(point);
            begin = self.shared.gate.begin.load(Ordering::SeqCst);
            if point >= begin || planted(Plant::PointNotChecked) {
                return hold;
            }
            reached(Reach::PointTooOld);
            self.release(&hold);
        }
    }

    /// Registers an earlier point of the database. `None` if compactions need not keep what it
    /// sees.
    pub(super) fn register_old(&self, point: Lsn) -> Option<Hold> {
        let hold = self.hold(point);
        if point >= self.shared.gate.horizon.load(Ordering::SeqCst) {
            return Some(hold);
        }
        self.release(&hold);
        None
    }

    /// The least point that can be registered.
    pub(super) fn horizon(&self) -> Lsn {
        self.shared.gate.horizon.load(Ordering::Acquire)
    }

    /// Puts a point where compactions look. The caller's next load of the horizon follows in the
    /// order that all threads see.
    #[inline]
    fn hold(&self, point: Lsn) -> Hold {
        debug_assert!(point != FREE, "this LSN says that a slot is free");
        let home = thread_number().wrapping_mul(STRIDE);
        let listed = if planted(Plant::PointNotRegistered) { FREE - 1 } else { point };
        for nth in 0..TRIED_MAX {
            let place = home.wrapping_add(nth) % SLOTS;
            if self.shared.slots[place].try_take(listed) {
                return Hold { point, place: place as u32, era: self.era() };
            }
        }
        self.hold_in_map(point)
    }

    #[cold]
    fn hold_in_map(&self, point: Lsn) -> Hold {
        reached(Reach::PointInMap);
        *self.registry.lock().points.entry(point).or_insert(0) += 1;
        Hold { point, place: SLOTS as u32, era: self.era() }
    }

    /// The present era. Waits while another one begins: a read before may have shown it already.
    #[inline]
    fn era(&self) -> u64 {
        loop {
            let era = self.shared.gate.era.load(Ordering::SeqCst);
            if era.is_multiple_of(2) {
                return era;
            }
            yield_now();
        }
    }

    /// Lets no reader register until the era that is returned has begun.
    pub(super) fn begin_era(&self) -> ComingEra<'_> {
        let before = self.shared.gate.era.fetch_add(1, Ordering::SeqCst);
        fence_for_loom();
        assert!(before.is_multiple_of(2), "eras begin one after the other");
        ComingEra { gate: &self.shared.gate, era: before + 2, bounds: (0, 0) }
    }

    /// True if readers wait for an era.
    #[cfg(all(test, not(any(loom, shuttle))))]
    pub(super) fn is_between_eras(&self) -> bool {
        !self.shared.gate.era.load(Ordering::SeqCst).is_multiple_of(2)
    }

    /// The points in use, ascending.
    pub(super) fn points(&self) -> Vec<Lsn> {
        self.list(&self.registry.lock())
    }

    /// Has the family give up the views that it holds with the last points that need them.
    pub(super) fn watch_held(&self, family: &Arc<Keyspace>) {
        let mut registry = self.registry.lock();
        if !registry.holding.iter().any(|known| known.id == family.id) {
            registry.holding.push(family.clone());
        }
        self.shared.gate.look_below.store(Lsn::MAX, Ordering::SeqCst);
        drop(registry);
        fence_for_loom();
        self.let_unseen_go(None);
    }

    /// Adds a hold to a point that the caller already holds.
    pub(crate) fn hold_again(&self, hold: &Hold) -> Hold {
        match self.shared.slots.get(hold.place as usize) {
            Some(slot) => {
                slot.others.fetch_add(1, Ordering::Relaxed);
            }
            None => {
                let mut registry = self.registry.lock();
                *registry.points.get_mut(&hold.point).expect("the caller holds it") += 1;
            }
        }
        Hold { ..*hold }
    }

    /// Releases one hold of a point. If it was the last that saw a dropped family, releases that
    /// family's memory and files too.
    #[inline]
    pub(crate) fn release(&self, hold: &Hold) {
        let is_free = match self.shared.slots.get(hold.place as usize) {
            Some(slot) => slot.give_back(),
            None => self.registry.lock().give_back(hold.point),
        };
        if is_free && hold.point < self.shared.gate.look_below.load(Ordering::SeqCst) {
            self.let_unseen_go(Some(hold.point));
        }
    }

    /// Releases the dropped families that no point sees any more, and the views that are held for
    /// points that are gone. Nothing of that if the point that was freed is not an awaited one.
    #[cold]
    fn let_unseen_go(&self, freed: Option<Lsn>) {
        let mut registry = self.registry.lock();
        if freed.is_some_and(|freed| !registry.awaited.contains(&freed)) {
            return;
        }
        // A view of a later era may be held for readers who are not among the points yet.
        let era = self.shared.gate.era.load(Ordering::SeqCst);
        fence_for_loom();
        let in_slots = self.list_slots();
        let Registry { points, dropped, holding, awaited } = &mut *registry;
        let in_use = InUse { in_slots, in_map: points };
        awaited.clear();
        let mut is_awaited = |range: (Lsn, Lsn)| {
            let greatest = in_use.greatest(range);
            awaited.extend(greatest);
            greatest.is_some()
        };
        let is_unseen = |family: &mut Arc<Keyspace>| !is_awaited(family.seen_within());
        let unseen: Vec<_> = dropped.extract_if(.., is_unseen).collect();
        let unneeded = |family: &Arc<Keyspace>| {
            let views = family.unneeded_views(era, &mut is_awaited);
            (family.clone(), views)
        };
        let unneeded: Vec<_> = holding.iter().map(unneeded).collect();
        self.note_waiting(&registry);
        drop(registry);
        unseen.iter().for_each(|family| family.let_go());
        if !unneeded.is_empty() {
            unneeded.iter().for_each(|(family, eras)| family.release_held(eras));
            let mut registry = self.registry.lock();
            registry.holding.retain(|family| family.is_holding());
            self.note_waiting(&registry);
        }
    }

    /// Notes of which points a release has to look after families. Under the registry's lock, so
    /// that it takes back no more than what the caller has looked after. A family may have been cut
    /// since its awaited point was looked for, and end below that.
    fn note_waiting(&self, registry: &Registry) {
        let gone_from = registry.dropped.iter().map(|family| family.gone_from());
        let above_awaited = registry.awaited.last().map(|awaited| awaited + 1);
        let below = match registry.holding.is_empty() {
            true => gone_from.chain(above_awaited).max().unwrap_or(0),
            false => Lsn::MAX,
        };
        debug_assert!(
            registry.awaited.last().is_none_or(|awaited| *awaited < below),
            "the release of an awaited point looks after what waits for it"
        );
        self.shared.gate.look_below.store(below, Ordering::SeqCst);
    }

    /// Releases a dropped family now or, if a point sees it, with the last such point. The drop is
    /// visible already, so no later point sees the family.
    pub(crate) fn let_go(&self, family: &Arc<Keyspace>) {
        match self.note_dropped(family) {
            Some(last) => family.cut(last),
            None => family.let_go(),
        }
    }

    /// Lists a dropped family if a point sees it. Returns the last such point.
    fn note_dropped(&self, family: &Arc<Keyspace>) -> Option<Lsn> {
        debug_assert!(family.is_dropped(), "a family that lives would lose its data");
        let mut registry = self.registry.lock();
        self.shared.gate.look_below.fetch_max(family.gone_from(), Ordering::SeqCst);
        self.shared.gate.begin.fetch_max(family.gone_from(), Ordering::SeqCst);
        fence_for_loom();
        let in_use = InUse { in_slots: self.list_slots(), in_map: &registry.points };
        let last = in_use.greatest(family.seen_within());
        registry.dropped.extend(last.map(|_| family.clone()));
        registry.awaited.extend(last);
        self.note_waiting(&registry);
        last
    }

    /// Releases all dropped families: the database is closed, and no read follows.
    pub(super) fn shut(&self) {
        let mut registry = self.registry.lock();
        let dropped = std::mem::take(&mut registry.dropped);
        registry.holding.clear();
        registry.awaited.clear();
        drop(registry);
        dropped.iter().for_each(|family| family.shut());
    }

    /// The readers that a flush or a compaction that starts now must respect. Those to come begin
    /// at `retained` or above, or at what is visible if that is less.
    pub(super) fn readers(&self, log: &Log, retained: Lsn) -> ReaderPoints {
        self.readers_from(log.visible().min(retained))
    }

    /// The same, with this horizon. Another thread may have raised its own further, for an edit
    /// that may never come: what this one keeps in vain the next one gives up.
    pub(super) fn readers_from(&self, horizon: Lsn) -> ReaderPoints {
        let registry = self.registry.lock();
        ReaderPoints::new(self.close_below(horizon, &registry), horizon)
    }

    /// The lowest point that a reader can have, now or later: that of [`ReadPoints::readers`].
    pub(super) fn oldest(&self, log: &Log, retained: Lsn) -> Lsn {
        let registry = self.registry.lock();
        let horizon = log.visible().min(retained);
        let oldest = self.close_and(horizon, || {
            let in_map = registry.points.first_key_value().map(|(point, _)| *point);
            self.list_slots().first().copied().into_iter().chain(in_map).min()
        });
        oldest.map_or(horizon, |oldest| oldest.min(horizon))
    }

    /// Lets no reader begin below `horizon` from now on, and none who wants the newest point below
    /// `newest`. Returns the points in use, ascending.
    pub(super) fn close_for(&self, horizon: Lsn, newest: Lsn) -> Vec<Lsn> {
        let registry = self.registry.lock();
        self.shared.gate.begin.fetch_max(newest, Ordering::SeqCst);
        self.close_below(horizon, &registry)
    }

    /// Lets no reader begin below `horizon` from now on. Returns the points in use, ascending.
    fn close_below(&self, horizon: Lsn, registry: &Registry) -> Vec<Lsn> {
        self.close_and(horizon, || self.list(registry))
    }

    /// The same, with what `list` says once no reader begins there any more.
    fn close_and<T>(&self, horizon: Lsn, list: impl FnOnce() -> T) -> T {
        self.shared.gate.horizon.fetch_max(horizon, Ordering::SeqCst);
        self.shared.gate.begin.fetch_max(horizon, Ordering::SeqCst);
        fence_for_loom();
        list()
    }

    /// The points in use, ascending.
    fn list(&self, registry: &Registry) -> Vec<Lsn> {
        let mut points = self.list_slots();
        points.extend(registry.points.keys());
        note_looks(registry.points.len());
        // Two ascending runs, which a stable sort merges.
        points.sort();
        points.dedup();
        points
    }

    /// The points in slots, ascending.
    fn list_slots(&self) -> Vec<Lsn> {
        let mut points: Vec<Lsn> =
            self.shared.slots.iter().filter_map(|slot| slot.point()).collect();
        note_looks(points.len());
        points.sort_unstable();
        yield_point(Point::Listed);
        points
    }

    /// The number of dropped families that are held.
    #[cfg(all(test, not(shuttle)))]
    pub(super) fn dropped_count(&self) -> usize {
        self.registry.lock().dropped.len()
    }

    /// The number of holds, and the oldest point.
    pub(crate) fn held(&self) -> (usize, Option<Lsn>) {
        let registry = self.registry.lock();
        let holders = |slot: &CachePadded<Slot>| {
            slot.point().map_or(0, |_| slot.others.load(Ordering::Relaxed).wrapping_add(1) as usize)
        };
        let in_slots: usize = self.shared.slots.iter().map(holders).sum();
        let in_map: usize = registry.points.values().sum();
        let points = self.shared.slots.iter().filter_map(|slot| slot.point());
        let oldest = points.chain(registry.points.keys().next().copied()).min();
        (in_slots + in_map, oldest)
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
