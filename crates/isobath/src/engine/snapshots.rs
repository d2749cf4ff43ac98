//! The registry of read points that merges and flushes must respect, and of the dropped families that they still see.

use super::family::Family;
use crate::components::sync::Mutex;
use crate::components::{Plant, planted};
use crate::format::Lsn;
use crate::wal::Log;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Read points in use, and what lives for them alone.
#[derive(Default)]
pub(crate) struct Snapshots {
    registry: Mutex<Registry>,
}

#[derive(Default)]
struct Registry {
    /// With how many hold each.
    points: BTreeMap<Lsn, usize>,
    /// Dropped families that a point sees.
    dropped: Vec<Arc<Family>>,
}

impl Registry {
    /// Takes out the dropped families that no point sees.
    fn take_unseen(&mut self) -> Vec<Arc<Family>> {
        let points = &self.points;
        self.dropped.extract_if(.., |family| family.last_seen_from(points).is_none()).collect()
    }
}

/// What a merge must keep: for every point, the newest version below it; and every version at or above the
/// horizon.
#[derive(Clone, Debug)]
pub(crate) struct Keep {
    /// Registered points, ascending, all at or below the horizon.
    pub(crate) points: Vec<Lsn>,
    /// No reader that comes later has a point below this.
    pub(crate) horizon: Lsn,
}

impl Snapshots {
    /// Registers the newest read point there is.
    pub(crate) fn register(&self, log: &Log) -> Lsn {
        // Loading the point under the lock makes registering and `keep` exclude each other: a merge either
        // sees the point or took a horizon at or below it.
        let mut registry = self.registry.lock();
        let point = if planted(Plant::SnapshotSeesTooMuch) { log.tail() } else { log.visible() };
        *registry.points.entry(point).or_insert(0) += 1;
        point
    }

    /// Gives a point back, and with the last one that saw a dropped family its memory and files.
    pub(crate) fn release(&self, point: Lsn) {
        let mut registry = self.registry.lock();
        let points = &mut registry.points;
        let holders = points.get_mut(&point).expect("a point is released once by each holder");
        *holders -= 1;
        if *holders > 0 {
            return;
        }
        points.remove(&point);
        let unseen = registry.take_unseen();
        drop(registry);
        unseen.iter().for_each(|family| family.let_go());
    }

    /// Lets go of a dropped family now or, if a point sees it, with the last such point. The drop is visible, so no
    /// point that comes later sees the family.
    pub(crate) fn let_go(&self, family: &Arc<Family>) {
        let mut registry = self.registry.lock();
        let Some(last) = family.last_seen_from(&registry.points) else {
            drop(registry);
            return family.let_go();
        };
        registry.dropped.push(family.clone());
        drop(registry);
        family.cut_memory(last);
    }

    /// What a merge that starts now must keep.
    pub(crate) fn keep(&self, log: &Log) -> Keep {
        let registry = self.registry.lock();
        Keep { horizon: log.visible(), points: registry.points.keys().copied().collect() }
    }

    /// How many points are held, and the oldest.
    pub(crate) fn held(&self) -> (usize, Option<Lsn>) {
        let points = &self.registry.lock().points;
        (points.values().sum(), points.keys().next().copied())
    }
}
