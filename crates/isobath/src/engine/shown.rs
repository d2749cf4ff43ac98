//! What readers see of a database that is open for reading only: one moment of it. Catching up
//! replaces the moment as a whole.
//!
//! A view and a read point fit because a reader loads both as one value. A snapshot reads at its
//! own point, which may be older. While catching up only follows the log, newer views serve older
//! points as well, since the views only gained versions above them. When catching up changes to
//! newer tables, the new views may lack versions that a snapshot sees. So a moment has a *floor*:
//! points below it are served by an earlier moment, which is kept while a snapshot needs it.

use super::epochs::Epoch;
use super::family::View;
use super::line::{Doubtful, Line};
use super::read_points::ReadPoints;
use crate::env::sync::{Mutex, Rank};
use crate::format::{FamilyId, Lsn};
use crate::wal::Log;
use arc_swap::{ArcSwap, Guard};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The moment that readers see, and the line from which the next one is made.
pub(crate) struct Shown {
    moment: ArcSwap<Moment>,
    /// Held while the reader catches up. `None` once the database is closed.
    pub(crate) line: Mutex<Option<Line>>,
}

#[derive(Clone)]
struct Moment {
    /// Readers see everything with a sequence below this point.
    point: Lsn,
    /// The least point that the views serve.
    floor: Lsn,
    views: BTreeMap<FamilyId, Arc<View>>,
    epoch: Option<Arc<Epoch>>,
    in_doubt: Arc<BTreeMap<Lsn, Doubtful>>,
    /// Earlier moments that snapshots still need, newest first.
    older: Vec<Arc<Moment>>,
}

impl Moment {
    fn of(line: &Line, floor: Lsn) -> Moment {
        let (views, epoch) = (line.views(), Some(line.epoch.clone()));
        let in_doubt = line.in_doubt().clone();
        Moment { point: line.next, floor, views, epoch, in_doubt, older: Vec::new() }
    }
}

impl Shown {
    /// Shows the moment that `line` has reached.
    pub(crate) fn new(line: Line) -> Shown {
        let moment = ArcSwap::from_pointee(Moment::of(&line, line.floor()));
        Shown { moment, line: Mutex::new(Rank::Line, Some(line)) }
    }

    /// The point at which reads and snapshots begin. Both use the same one; otherwise a later read
    /// could see an older state than an earlier one.
    pub(super) fn point(&self) -> Lsn {
        self.moment.load().point
    }

    /// The view of a family, and a read point that it serves: the registered `point`, or the
    /// newest. `None` if the family does not exist at that point.
    pub(crate) fn pin(
        &self,
        family: FamilyId,
        point: Option<Lsn>,
    ) -> Option<(Guard<Arc<View>>, Lsn)> {
        let now = self.moment.load();
        let point = point.unwrap_or(now.point);
        let serving = match point >= now.floor {
            true => Some(&**now),
            false => now.older.iter().find(|older| older.floor <= point).map(|older| &**older),
        };
        // A family that came later is empty at the point, also if an older moment serves that.
        let later = || now.views.get(&family).filter(|view| !view.is_seen_from(point));
        let view = serving?.views.get(&family).or_else(later);
        let view = view.filter(|view| view.exists_at(point))?;
        let view = if view.is_seen_from(point) { view.clone() } else { view.before_creation() };
        Some((Guard::from_inner(view), point))
    }

    /// Shows the moment that `line` has reached. With `is_anew`, the line has other tables than the
    /// moment before, and its views serve no older point.
    pub(crate) fn show(&self, line: &Line, is_anew: bool, points: &ReadPoints, log: &Log) {
        let before = self.moment.load_full();
        assert!(before.point <= line.next, "points never go back");
        let mut now = Moment::of(line, if is_anew { line.floor() } else { before.floor });
        if is_anew {
            now.older.push(Arc::new(Moment { older: Vec::new(), ..Moment::clone(&before) }));
        }
        now.older.extend(before.older.iter().cloned());
        debug_assert!(
            now.older.is_sorted_by(|newer, older| newer.floor >= older.floor),
            "a point is served by the newest moment whose floor is not above it"
        );
        self.moment.store(Arc::new(now.clone()));
        log.show(line.next);
        if now.older.is_empty() {
            return;
        }
        // A snapshot whose point is not in this list begins at the new moment's floor or above.
        let held = points.last_below(now.floor);
        let mut end = now.floor;
        now.older.retain(|older| {
            let served = older.floor..std::mem::replace(&mut end, older.floor);
            held.iter().any(|point| served.contains(point))
        });
        self.moment.store(Arc::new(now));
    }

    /// The prepared transactions that are in doubt, by the LSN of the prepare.
    pub(crate) fn in_doubt(&self) -> Arc<BTreeMap<Lsn, Doubtful>> {
        self.moment.load().in_doubt.clone()
    }

    /// Bytes of memory that the applied records take, over all moments.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let now = self.moment.load();
        let moments = now.older.iter().map(|older| &**older).chain([&**now]);
        moments.filter_map(|moment| moment.epoch.as_ref()).map(|epoch| epoch.bytes()).sum()
    }

    /// Releases everything, because the database is closed.
    pub(super) fn let_go(&self) {
        let mut line = self.line.lock();
        let (point, floor) = (self.moment.load().point, 0);
        let (views, older) = (BTreeMap::new(), Vec::new());
        let in_doubt = Arc::default();
        self.moment.store(Arc::new(Moment { point, floor, views, epoch: None, in_doubt, older }));
        *line = None;
    }
}
