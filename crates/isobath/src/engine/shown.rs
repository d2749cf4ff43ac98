//! What readers see of a database that is open for reading: one moment of it, replaced as a whole.
//!
//! Views and read point fit because both come from the one value that a reader loads. A snapshot
//! reads at its own point, which may be older. As long as catching up goes on along the log, newer
//! views serve it, since they only gained versions above it. Where it changed over to newer tables
//! they may lack versions that the snapshot sees; so from there on (the *floor*) older points are
//! served by the moment before, which is kept while a snapshot needs it.

use super::epochs::Epoch;
use super::family::View;
use super::line::Line;
use super::snapshots::Snapshots;
use crate::env::sync::{Mutex, Rank};
use crate::format::{FamilyId, Lsn};
use crate::wal::Log;
use arc_swap::{ArcSwap, Guard};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The moment that readers see, and the line that the next one comes from.
pub(crate) struct Shown {
    moment: ArcSwap<Moment>,
    /// Held by whoever catches up. `None` once the database is closed.
    pub(crate) line: Mutex<Option<Line>>,
}

#[derive(Clone)]
struct Moment {
    /// Readers see what has sequences below.
    point: Lsn,
    /// The least point that the views serve.
    floor: Lsn,
    views: BTreeMap<FamilyId, Arc<View>>,
    epoch: Option<Arc<Epoch>>,
    /// Moments that held points still need, newest first.
    older: Vec<Arc<Moment>>,
}

impl Moment {
    fn of(line: &Line, floor: Lsn) -> Moment {
        let (views, epoch) = (line.views(), Some(line.epoch.clone()));
        Moment { point: line.next, floor, views, epoch, older: Vec::new() }
    }
}

impl Shown {
    /// Shows where `line` stands.
    pub(crate) fn new(line: Line) -> Shown {
        let moment = ArcSwap::from_pointee(Moment::of(&line, line.next));
        Shown { moment, line: Mutex::new(Rank::Line, Some(line)) }
    }

    /// The point that reads and snapshots begin at: the same for both, or one would go back behind
    /// the other.
    pub(super) fn point(&self) -> Lsn {
        self.moment.load().point
    }

    /// The view of a family and a read point it can serve: the registered `point`, or the newest.
    /// `None` if the family does not exist there.
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
        let view = serving?.views.get(&family).filter(|view| view.exists_at(point))?;
        Some((Guard::from_inner(view.clone()), point))
    }

    /// Shows where `line` stands now. With `is_anew` it has other tables than what was shown
    /// before, and its views serve no older point.
    pub(crate) fn show(&self, line: &Line, is_anew: bool, snapshots: &Snapshots, log: &Log) {
        let before = self.moment.load_full();
        assert!(before.point <= line.next, "points never go back");
        let mut now = Moment::of(line, if is_anew { line.next } else { before.floor });
        if is_anew {
            now.older.push(Arc::new(Moment { older: Vec::new(), ..Moment::clone(&before) }));
        }
        now.older.extend(before.older.iter().cloned());
        self.moment.store(Arc::new(now.clone()));
        log.show(line.next);
        if now.older.is_empty() {
            return;
        }
        // A snapshot whose point is not among these is taken later, and so finds this moment.
        let held = snapshots.points();
        let mut end = now.floor;
        now.older.retain(|older| {
            let served = older.floor..std::mem::replace(&mut end, older.floor);
            held.iter().any(|point| served.contains(point))
        });
        self.moment.store(Arc::new(now));
    }

    /// Bytes of memory that hold what the log says.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let now = self.moment.load();
        let moments = now.older.iter().map(|older| &**older).chain([&**now]);
        moments.filter_map(|moment| moment.epoch.as_ref()).map(|epoch| epoch.bytes()).sum()
    }

    /// Holds nothing any more: the database is closed.
    pub(super) fn let_go(&self) {
        let mut line = self.line.lock();
        let (point, floor) = (self.moment.load().point, 0);
        let (views, older) = (BTreeMap::new(), Vec::new());
        self.moment.store(Arc::new(Moment { point, floor, views, epoch: None, older }));
        *line = None;
    }
}
