//! The registry of read points that merges and flushes must respect.

use crate::components::sync::Mutex;
use crate::components::{Plant, planted};
use crate::format::Lsn;
use crate::wal::Log;
use std::collections::BTreeMap;

/// Read points in use, with how many hold each.
#[derive(Default)]
pub(crate) struct Snapshots {
    points: Mutex<BTreeMap<Lsn, usize>>,
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
        let mut points = self.points.lock();
        let point = if planted(Plant::SnapshotSeesTooMuch) { log.tail() } else { log.visible() };
        *points.entry(point).or_insert(0) += 1;
        point
    }

    pub(crate) fn release(&self, point: Lsn) {
        let mut points = self.points.lock();
        let holders = points.get_mut(&point).expect("a point is released once by each holder");
        *holders -= 1;
        if *holders == 0 {
            points.remove(&point);
        }
    }

    /// What a merge that starts now must keep.
    pub(crate) fn keep(&self, log: &Log) -> Keep {
        let points = self.points.lock();
        Keep { horizon: log.visible(), points: points.keys().copied().collect() }
    }

    /// How many points are held, and the oldest.
    pub(crate) fn held(&self) -> (usize, Option<Lsn>) {
        let points = self.points.lock();
        (points.values().sum(), points.keys().next().copied())
    }
}
