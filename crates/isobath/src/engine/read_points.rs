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
//! The drop of a family closes the points below the drop in the same way: a reader whose point the
//! drop did not see begins again above it.
//!
//! **No dropped family is forgotten**, by the same argument: a release frees the slot, then loads
//! `has_dropped`; a drop stores `has_dropped`, then looks at the slots. The thread that comes later
//! in the single order sees what the other has stored, so the family goes with the last point that
//! sees it. While no dropped family is held, a release takes no lock.
//!
//! A point stays in its slot until its last holder has gone: a copy in another slot could be missed
//! by a compaction that has passed that slot already.

use super::family::Keyspace;
use crate::env::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use crate::env::sync::{Mutex, Rank, fence_for_loom};
use crate::env::{Plant, Point, Reach, is_unwinding, planted, reached, thread_number, yield_point};
use crate::mvcc::{Lsn, ReaderPoints};
use crate::wal::Log;
use crossbeam_utils::CachePadded;
use std::collections::BTreeMap;
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
    /// Some dropped family is held for the points that see it.
    has_dropped: AtomicBool,
}

/// A place for one point.
struct Slot {
    point: AtomicU64,
    /// The number of holders besides the one that took the slot.
    others: AtomicU32,
}

impl Slot {
    fn try_take(&self, point: Lsn) -> bool {
        self.point.load(Ordering::Relaxed) == FREE
            && self.point.compare_exchange(FREE, point, Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }

    /// Gives up one hold, and frees the slot with the last. Returns true if it is free.
    fn give_back(&self) -> bool {
        // Only a holder adds holders, so a sole holder stays the sole one.
        if self.others.load(Ordering::Acquire) > 0 {
            if self.others.fetch_sub(1, Ordering::AcqRel) > 0 {
                return false;
            }
            // The others have gone since the load, and the subtraction wrapped.
            self.others.store(0, Ordering::Relaxed);
        }
        let point = self.point.swap(FREE, Ordering::SeqCst);
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
}

/// A registered point. It is released by [`ReadPoints::release`], not by a drop.
#[derive(Debug)]
#[must_use]
pub(crate) struct Hold {
    point: Lsn,
    /// The number of its slot; [`SLOTS`] for the map.
    place: u32,
}

impl Hold {
    #[inline]
    pub(crate) fn point(&self) -> Lsn {
        self.point
    }
}

impl Registry {
    /// Gives up one hold of a point. Returns true if it was the last.
    fn give_back(&mut self, point: Lsn) -> bool {
        let holders = self.points.get_mut(&point).expect("a point is released once by each holder");
        *holders -= 1;
        let is_last = *holders == 0;
        if is_last {
            self.points.remove(&point);
        }
        is_last
    }
}

impl Default for ReadPoints {
    fn default() -> Self {
        let slot = || Slot { point: AtomicU64::new(FREE), others: AtomicU32::new(0) };
        let gate = Gate { horizon: AtomicU64::new(0), has_dropped: AtomicBool::new(false) };
        let slots = std::array::from_fn(|_| CachePadded::new(slot()));
        ReadPoints {
            shared: Box::new(Shared { gate: CachePadded::new(gate), slots }),
            registry: Mutex::new(Rank::ReadPoints, Registry::default()),
        }
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
        let mut horizon = 0;
        loop {
            let point = visible();
            assert!(
                point >= horizon,
                "a reader begins at {point:#x}, where compactions have dropped versions up to \
                 {horizon:#x}",
            );
            yield_point(Point::Registering);
            let hold = self.hold(point);
            horizon = self.shared.gate.horizon.load(Ordering::SeqCst);
            if point >= horizon || planted(Plant::PointNotChecked) {
                return hold;
            }
            reached(Reach::PointTooOld);
            self.release(&hold);
        }
    }

    /// Puts a point where compactions look. The caller's next load of the horizon follows in the
    /// order that all threads see.
    #[inline]
    fn hold(&self, point: Lsn) -> Hold {
        let home = thread_number().wrapping_mul(STRIDE);
        let listed = if planted(Plant::PointNotRegistered) { FREE - 1 } else { point };
        for nth in 0..TRIED_MAX {
            let place = home.wrapping_add(nth) % SLOTS;
            if self.shared.slots[place].try_take(listed) {
                fence_for_loom();
                return Hold { point, place: place as u32 };
            }
        }
        self.hold_in_map(point)
    }

    #[cold]
    fn hold_in_map(&self, point: Lsn) -> Hold {
        reached(Reach::PointInMap);
        *self.registry.lock().points.entry(point).or_insert(0) += 1;
        Hold { point, place: SLOTS as u32 }
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
        fence_for_loom();
        if is_free && self.shared.gate.has_dropped.load(Ordering::SeqCst) {
            self.let_unseen_go();
        }
    }

    /// Releases the dropped families that no point sees any more.
    #[cold]
    fn let_unseen_go(&self) {
        let mut registry = self.registry.lock();
        let points = self.list(&registry);
        let is_unseen = |family: &mut Arc<Keyspace>| family.last_seen_from(&points).is_none();
        let unseen: Vec<_> = registry.dropped.extract_if(.., is_unseen).collect();
        self.shared.gate.has_dropped.store(!registry.dropped.is_empty(), Ordering::SeqCst);
        drop(registry);
        unseen.iter().for_each(|family| family.let_go());
    }

    /// Releases a dropped family now or, if a point sees it, with the last such point. The drop is
    /// visible already, so no later point sees the family.
    pub(crate) fn let_go(&self, family: &Arc<Keyspace>) {
        let mut registry = self.registry.lock();
        self.shared.gate.has_dropped.store(true, Ordering::SeqCst);
        let (_, points) = self.close_below(family.gone_from(), &registry);
        let last = family.last_seen_from(&points);
        registry.dropped.extend(last.map(|_| family.clone()));
        self.shared.gate.has_dropped.store(!registry.dropped.is_empty(), Ordering::SeqCst);
        drop(registry);
        match last {
            Some(last) => family.cut_memory(last),
            None => family.let_go(),
        }
    }

    /// Releases all dropped families: the database is closed, and no read follows.
    pub(super) fn shut(&self) {
        let dropped = std::mem::take(&mut self.registry.lock().dropped);
        dropped.iter().for_each(|family| family.shut());
    }

    /// The readers that a flush or a compaction that starts now must respect.
    pub(crate) fn readers(&self, log: &Log) -> ReaderPoints {
        self.readers_from(log.visible())
    }

    pub(super) fn readers_from(&self, visible: Lsn) -> ReaderPoints {
        let registry = self.registry.lock();
        let (horizon, points) = self.close_below(visible, &registry);
        ReaderPoints::new(points, horizon)
    }

    /// The points in use that are below `horizon`, ascending. No more of them come.
    pub(super) fn last_below(&self, horizon: Lsn) -> Vec<Lsn> {
        let (_, mut points) = self.close_below(horizon, &self.registry.lock());
        points.retain(|point| *point < horizon);
        points
    }

    /// Lets no reader begin below `horizon` from now on. Returns the horizon, which another thread
    /// may have raised further, and the points in use, ascending.
    fn close_below(&self, horizon: Lsn, registry: &Registry) -> (Lsn, Vec<Lsn>) {
        let before = self.shared.gate.horizon.fetch_max(horizon, Ordering::SeqCst);
        fence_for_loom();
        (before.max(horizon), self.list(registry))
    }

    /// The points in use, ascending.
    fn list(&self, registry: &Registry) -> Vec<Lsn> {
        let mut points: Vec<Lsn> =
            self.shared.slots.iter().filter_map(|slot| slot.point()).collect();
        points.extend(registry.points.keys());
        points.sort_unstable();
        points.dedup();
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
        (in_slots + in_map, self.list(&registry).first().copied())
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::Options;
    use crate::engine::Epochs;
    use crate::memtable::ChunkPool;
    use crate::options::FamilyOptions;
    use crate::version::{Tree, fixtures};

    /// The first LSNs of the epochs in which the family was written.
    const STARTS: [Lsn; 4] = [90, 120, 150, 180];
    const CREATED_AT: Lsn = 100;
    const DROPPED_AT: Lsn = 200;

    /// A dropped family with a run and a memtable in each epoch.
    fn dropped_family() -> Arc<Keyspace> {
        let run = fixtures::slice(1, "a", "z", (100, 110));
        let tree = Arc::new(Tree::default().with(&[], vec![(0, run)]).unwrap());
        let options = FamilyOptions::default();
        let family = Arc::new(Keyspace::new(1, "brief", options, CREATED_AT, tree));
        let epochs = Epochs::new(Arc::new(ChunkPool::new(16 << 10, 0, 0)), STARTS[0]);
        for next in &STARTS[1..] {
            family.memtable_in(&epochs.list().open);
            epochs.seal(&epochs.lock(), || Ok::<Lsn, ()>(*next)).unwrap();
        }
        family.memtable_in(&epochs.list().open);
        family.mark_dropped(DROPPED_AT);
        family
    }

    /// The first LSNs of the epochs whose memtables the family holds, and the number of its runs.
    fn held_by(family: &Keyspace) -> (Vec<Lsn>, usize) {
        let view = family.view();
        let mut starts: Vec<Lsn> = view.memtables.iter().map(|of| of.epoch.start).collect();
        starts.reverse();
        (starts, view.tree.runs.len())
    }

    #[test]
    fn a_dropped_family_holds_what_its_points_see_until_the_last_of_them_goes() {
        let known = [99, 100, 101, 120, 121, 180, 200, 201];
        let seen = |point: Lsn| CREATED_AT < point && point <= DROPPED_AT;
        for choice in 0..1u32 << known.len() {
            let chosen = |(at, _): &(usize, &Lsn)| choice & 1 << at != 0;
            let mut taken: Vec<Lsn> =
                known.iter().enumerate().filter(chosen).map(|(_, point)| *point).collect();
            // One point is held twice.
            taken.extend(taken.first().copied());
            let points = ReadPoints::default();
            let in_map = |place: usize| (choice as usize + place).is_multiple_of(3);
            let mut holds: Vec<Hold> = (taken.iter().enumerate())
                .map(|(at, point)| match in_map(at) {
                    true => points.hold_in_map(*point),
                    false => points.hold(*point),
                })
                .collect();
            let family = dropped_family();
            points.let_go(&family);
            let expected = match taken.iter().copied().filter(|point| seen(*point)).max() {
                Some(last) => (STARTS.into_iter().filter(|start| *start < last).collect(), 1),
                None => (Vec::new(), 0),
            };
            let turn = choice as usize % holds.len().max(1);
            holds.rotate_left(turn);
            while let Some(hold) = holds.pop() {
                assert_eq!(held_by(&family), expected, "{holds:?} and {hold:?}");
                points.release(&hold);
                if !holds.iter().any(|hold| seen(hold.point())) {
                    break;
                }
            }
            assert_eq!(held_by(&family), (Vec::new(), 0), "with {holds:?} left");
            holds.drain(..).for_each(|hold| points.release(&hold));
            assert_eq!(points.held(), (0, None));
            assert_eq!(points.dropped_count(), 0);
            assert!(!points.shared.gate.has_dropped.load(Ordering::Relaxed));
        }
    }

    #[test]
    fn a_close_releases_dropped_families_though_points_see_them() {
        let (points, family) = (ReadPoints::default(), dropped_family());
        let hold = points.hold(150);
        points.let_go(&family);
        assert_ne!(held_by(&family), (Vec::new(), 0));
        points.shut();
        assert_eq!(held_by(&family), (Vec::new(), 0));
        points.release(&hold);
    }

    #[test]
    fn a_point_is_kept_until_its_last_holder_gives_it_back() {
        let db = Options::in_memory().open("/db").unwrap();
        let log = &db.engine().log;
        let points = ReadPoints::default();
        let kept = || {
            let readers = points.readers(log);
            assert_eq!(readers.horizon(), log.visible());
            readers.registered().to_vec()
        };
        assert_eq!((kept(), points.held()), (vec![], (0, None)));
        let first = points.register(log);
        let older = first.point();
        assert_eq!(older, log.visible());
        let second = points.register(log);
        assert_eq!(second.point(), older);
        db.put("key", "value").unwrap();
        let third = points.register(log);
        let newer = third.point();
        assert_eq!(newer, log.visible());
        assert!(older < newer);
        assert_eq!((kept(), points.held()), (vec![older, newer], (3, Some(older))));
        points.release(&first);
        assert_eq!((kept(), points.held()), (vec![older, newer], (2, Some(older))));
        points.release(&second);
        assert_eq!((kept(), points.held()), (vec![newer], (1, Some(newer))));
        points.release(&third);
        assert_eq!((kept(), points.held()), (vec![], (0, None)));
    }

    #[test]
    fn a_point_that_is_held_again_stays_in_its_place_until_all_holders_have_gone() {
        let points = ReadPoints::default();
        for in_map in [false, true] {
            let mut holds = vec![if in_map { points.hold_in_map(70) } else { points.hold(70) }];
            let place = holds[0].place;
            for count in 1..4 {
                assert_eq!(points.held(), (count, Some(70)));
                holds.push(points.hold_again(&holds[count / 2]));
                assert_eq!((holds[count].point(), holds[count].place), (70, place));
            }
            for (gone, hold) in holds.iter().enumerate() {
                assert_eq!(points.held(), (holds.len() - gone, Some(70)));
                points.release(hold);
            }
            assert_eq!(points.held(), (0, None));
        }
    }

    #[test]
    fn points_beyond_the_slots_near_a_thread_are_kept_as_well() {
        let points = ReadPoints::default();
        let count = TRIED_MAX as u64 + 3;
        let holds: Vec<Hold> = (1..=count).map(|point| points.register_at(|| point)).collect();
        assert_eq!(points.held(), (count as usize, Some(1)));
        let in_map = holds.iter().filter(|hold| hold.place == SLOTS as u32).count();
        assert_eq!((in_map, points.registry.lock().points.len()), (3, 3));
        assert!(points.readers_from(count + 1).registered().iter().copied().eq(1..=count));
        assert!(points.last_below(4).into_iter().eq(1..4));
        holds.iter().for_each(|hold| points.release(hold));
        assert_eq!(points.held(), (0, None));
    }

    #[test]
    #[allow(clippy::disallowed_methods)] // A test may have threads of its own.
    fn threads_begin_with_slots_that_lie_apart() {
        let points = ReadPoints::default();
        let points = &points;
        let mut places = std::thread::scope(|scope| {
            let threads = [(); 8].map(|()| {
                scope.spawn(move || {
                    let holds = [points.hold(5), points.hold(5)];
                    assert_eq!(holds[1].place, (holds[0].place + 1) % SLOTS as u32);
                    holds
                })
            });
            threads.map(|thread| thread.join().unwrap())
        });
        places.sort_unstable_by_key(|[first, _]| first.place);
        assert!(places.is_sorted_by(|[_, second], [first, _]| second.place < first.place));
        places.as_flattened().iter().for_each(|hold| points.release(hold));
    }

    /// What a compaction does between a reader's load of its point and its look at the horizon.
    #[test]
    fn a_reader_whose_point_a_compaction_has_passed_begins_again() {
        let points = ReadPoints::default();
        let loads = std::cell::Cell::new(0);
        let hold = points.register_at(|| {
            loads.set(loads.get() + 1);
            let point = 100 * loads.get();
            if loads.get() < 3 {
                assert!(points.readers_from(point + 50).registered().is_empty());
            }
            point
        });
        assert_eq!((hold.point(), loads.get()), (300, 3));
        assert_eq!(points.held(), (1, Some(300)));
        points.release(&hold);
    }

    /// The drop of a family, in place of the compaction.
    #[test]
    fn a_reader_whose_point_the_drop_of_a_family_did_not_see_begins_above_it() {
        let points = ReadPoints::default();
        let family = dropped_family();
        let is_over = std::cell::Cell::new(false);
        let hold = points.register_at(|| match is_over.replace(true) {
            false => {
                points.let_go(&family);
                DROPPED_AT
            }
            true => DROPPED_AT + 32,
        });
        assert_eq!(hold.point(), DROPPED_AT + 32);
        assert_eq!(held_by(&family), (Vec::new(), 0));
        points.release(&hold);
    }

    #[test]
    #[should_panic(expected = "a reader begins at 0x63")]
    fn no_reader_begins_below_what_compactions_have_dropped() {
        let points = ReadPoints::default();
        assert_eq!(points.readers_from(100).horizon(), 100);
        points.release(&points.register_at(|| 100));
        drop(points.register_at(|| 99));
    }

    #[test]
    fn the_horizon_of_readers_never_goes_back() {
        let points = ReadPoints::default();
        assert_eq!(points.readers_from(100).horizon(), 100);
        assert_eq!(points.readers_from(99).horizon(), 100);
        assert_eq!(points.readers_from(101).horizon(), 101);
    }

    #[test]
    fn only_points_below_a_moment_hold_back_what_is_older() {
        let points = ReadPoints::default();
        let holds = [7, 9, 9, 12].map(|point| points.register_at(|| point));
        assert!(points.last_below(7).is_empty());
        assert_eq!(points.last_below(9), [7]);
        assert_eq!(points.last_below(12), [7, 9]);
        assert_eq!(points.last_below(13), [7, 9, 12]);
        holds.iter().for_each(|hold| points.release(hold));
    }

    #[test]
    #[should_panic(expected = "a point is released once by each holder")]
    fn a_point_that_is_released_twice_is_noticed() {
        let points = ReadPoints::default();
        let hold = points.register_at(|| 77);
        points.release(&hold);
        points.release(&hold);
    }

    #[cfg(debug_assertions)]
    #[test]
    #[should_panic(expected = "read points outlive the database: [77]")]
    fn a_point_that_is_never_released_is_noticed() {
        drop(ReadPoints::default().register_at(|| 77));
    }
}
