//! The registry of read points that compactions and flushes must respect, and of dropped families
//! that some of these points still see.

use super::family::Keyspace;
use crate::env::sync::{Mutex, Rank};
use crate::env::{Plant, is_unwinding, planted};
use crate::mvcc::{Lsn, ReaderPoints};
use crate::wal::Log;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The read points in use, and the dropped families that live only for them.
pub(crate) struct Snapshots {
    registry: Mutex<Registry>,
}

impl Default for Snapshots {
    fn default() -> Self {
        Snapshots { registry: Mutex::new(Rank::Snapshots, Registry::default()) }
    }
}

#[derive(Default)]
struct Registry {
    /// Each point with the number of its holders.
    points: BTreeMap<Lsn, usize>,
    /// Dropped families that at least one point sees.
    dropped: Vec<Arc<Keyspace>>,
    /// The greatest horizon that a flush or a compaction was given. Versions that only points below
    /// it see may be gone.
    horizon: Lsn,
}

impl Registry {
    /// Releases one hold of a point. Returns the dropped families that no point sees any more.
    fn give_back(&mut self, point: Lsn) -> Vec<Arc<Keyspace>> {
        let holders = self.points.get_mut(&point).expect("a point is released once by each holder");
        *holders -= 1;
        if *holders > 0 {
            return Vec::new();
        }
        self.points.remove(&point);
        let points = &self.points;
        self.dropped.extract_if(.., |family| family.last_seen_from(points).is_none()).collect()
    }

    fn move_horizon(&mut self, to: Lsn) {
        let from = self.horizon;
        assert!(to >= from, "the horizon of readers goes back from {from:#x} to {to:#x}");
        self.horizon = to;
    }

    /// Registers a dropped family if a point sees it, and returns the last such point.
    fn note_dropped(&mut self, family: &Arc<Keyspace>) -> Option<Lsn> {
        let last = family.last_seen_from(&self.points)?;
        self.dropped.push(family.clone());
        Some(last)
    }
}

impl Drop for Registry {
    /// Checks that no point is left: each holder of a point holds the database too.
    fn drop(&mut self) {
        debug_assert!(
            self.points.is_empty() || is_unwinding(),
            "read points outlive the database: {:?}",
            self.points
        );
    }
}

impl Snapshots {
    /// Registers the newest read point.
    pub(crate) fn register(&self, log: &Log) -> Lsn {
        self.register_at(|| match planted(Plant::SnapshotSeesTooMuch) {
            true => log.tail(),
            false => log.visible(),
        })
    }

    pub(super) fn register_at(&self, visible: impl FnOnce() -> Lsn) -> Lsn {
        // The point is loaded under the lock, so registering and `readers` exclude each other. A
        // compaction therefore either sees the point or has taken a horizon at or below it.
        let mut registry = self.registry.lock();
        let point = visible();
        assert!(
            point >= registry.horizon,
            "a reader begins at {point:#x}, where compactions have dropped versions up to {:#x}",
            registry.horizon
        );
        *registry.points.entry(point).or_insert(0) += 1;
        point
    }

    /// Adds a hold to a point that the caller already holds.
    pub(crate) fn hold_again(&self, point: Lsn) {
        let mut registry = self.registry.lock();
        *registry.points.get_mut(&point).expect("the caller holds it") += 1;
    }

    /// Releases one hold of a point. If it was the last that saw a dropped family, releases that
    /// family's memory and files too.
    pub(crate) fn release(&self, point: Lsn) {
        let unseen = self.registry.lock().give_back(point);
        unseen.iter().for_each(|family| family.let_go());
    }

    /// Releases a dropped family now or, if a point sees it, with the last such point. The drop is
    /// visible already, so no later point sees the family.
    pub(crate) fn let_go(&self, family: &Arc<Keyspace>) {
        let last = self.registry.lock().note_dropped(family);
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
        self.readers_at(|| log.visible())
    }

    pub(super) fn readers_at(&self, visible: impl FnOnce() -> Lsn) -> ReaderPoints {
        let mut registry = self.registry.lock();
        registry.move_horizon(visible());
        ReaderPoints::new(registry.points.keys().copied().collect(), registry.horizon)
    }

    /// The points in use, ascending.
    pub(super) fn points(&self) -> Vec<Lsn> {
        self.registry.lock().points.keys().copied().collect()
    }

    /// The number of holds, and the oldest point.
    pub(crate) fn held(&self) -> (usize, Option<Lsn>) {
        let points = &self.registry.lock().points;
        (points.values().sum(), points.keys().next().copied())
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
            let mut points: Vec<Lsn> =
                known.iter().enumerate().filter(chosen).map(|(_, point)| *point).collect();
            let snapshots = Snapshots::default();
            // One point is held twice.
            points.extend(points.first().copied());
            for point in &points {
                *snapshots.registry.lock().points.entry(*point).or_insert(0) += 1;
            }
            let family = dropped_family();
            snapshots.let_go(&family);
            let expected = match points.iter().copied().filter(|point| seen(*point)).max() {
                Some(last) => (STARTS.into_iter().filter(|start| *start < last).collect(), 1),
                None => (Vec::new(), 0),
            };
            let turn = choice as usize % points.len().max(1);
            points.rotate_left(turn);
            while let Some(point) = points.pop() {
                assert_eq!(held_by(&family), expected, "{points:?} and {point}");
                snapshots.release(point);
                if !points.iter().any(|point| seen(*point)) {
                    break;
                }
            }
            assert_eq!(held_by(&family), (Vec::new(), 0), "with {points:?} left");
            points.drain(..).for_each(|point| snapshots.release(point));
            assert_eq!(snapshots.held(), (0, None));
            assert!(snapshots.registry.lock().dropped.is_empty());
        }
    }

    #[test]
    fn a_point_is_kept_until_its_last_holder_gives_it_back() {
        let db = Options::in_memory().open("/db").unwrap();
        let log = &db.engine().log;
        let snapshots = Snapshots::default();
        let kept = || {
            let readers = snapshots.readers(log);
            assert_eq!(readers.horizon(), log.visible());
            readers.registered().to_vec()
        };
        assert_eq!((kept(), snapshots.held()), (vec![], (0, None)));
        let older = snapshots.register(log);
        assert_eq!(older, log.visible());
        assert_eq!(snapshots.register(log), older);
        db.put("key", "value").unwrap();
        let newer = snapshots.register(log);
        assert_eq!(newer, log.visible());
        assert!(older < newer);
        assert_eq!((kept(), snapshots.held()), (vec![older, newer], (3, Some(older))));
        snapshots.release(older);
        assert_eq!((kept(), snapshots.held()), (vec![older, newer], (2, Some(older))));
        snapshots.release(older);
        assert_eq!((kept(), snapshots.held()), (vec![newer], (1, Some(newer))));
        snapshots.release(newer);
        assert_eq!((kept(), snapshots.held()), (vec![], (0, None)));
    }

    #[test]
    #[should_panic(expected = "a reader begins at 0x63")]
    fn no_reader_begins_below_what_compactions_have_dropped() {
        let snapshots = Snapshots::default();
        assert_eq!(snapshots.readers_at(|| 100).horizon(), 100);
        snapshots.release(snapshots.register_at(|| 100));
        snapshots.register_at(|| 99);
    }

    #[test]
    #[should_panic(expected = "the horizon of readers goes back from 0x64 to 0x63")]
    fn the_horizon_of_readers_never_goes_back() {
        let snapshots = Snapshots::default();
        snapshots.readers_at(|| 100);
        snapshots.readers_at(|| 99);
    }

    #[cfg(debug_assertions)]
    #[test]
    #[should_panic(expected = "read points outlive the database: {77: 1}")]
    fn a_point_that_is_never_released_is_noticed() {
        Snapshots::default().register_at(|| 77);
    }
}
