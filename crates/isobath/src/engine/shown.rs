//! What readers see of a database that is open for reading only: one moment of it. Catching up
//! replaces the moment as a whole.
//!
//! A view and a read point fit because a reader loads both as one value. A snapshot reads at its
//! own point, which may be older. While catching up only follows the log, newer views serve older
//! points as well, since the views only gained versions above them. When catching up changes to
//! newer tables, these may lack what a snapshot sees: versions that the writer kept for no reader
//! of its own, what its compaction filter has changed, which has no LSN, and families that it has
//! dropped. So each change of tables begins an *era* (`held.rs`), and a registered reader is served
//! by the moment of the era in which it began, however often the tables change. A moment is kept
//! while such a reader may be there: at a point that was the newest one in its era, or at an
//! earlier one that was asked for then. The history is served by the newest tables, down to their
//! *floor*.

use super::epochs::Epoch;
use super::family::View;
use super::held::Registered;
use super::line::{Doubtful, Line};
use super::read_points::{Hold, ReadPoints};
use crate::env::preempt;
use crate::env::sync::{Mutex, Rank};
use crate::format::{FamilyId, Lsn};
use crate::wal::Log;
use arc_swap::{ArcSwap, Guard};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// After so many registrations of earlier points those that are gone are forgotten.
const ASKED_SWEEP: usize = 256;

/// The moment that readers see, and the line from which the next one is made.
pub(crate) struct Shown {
    moment: ArcSwap<Moment>,
    /// The earlier points that readers of the present era have asked for. Held while one registers,
    /// and while an era begins.
    asked: Mutex<BTreeSet<Lsn>>,
    /// Held while the reader catches up. `None` once the database is closed.
    pub(crate) line: Mutex<Option<Line>>,
}

#[derive(Clone)]
struct Moment {
    /// Readers see everything with a sequence below this point.
    point: Lsn,
    /// The least point that the views serve.
    floor: Lsn,
    /// When its tables came: readers of earlier eras go on reading an earlier moment ...
    era: u64,
    /// ... and its point then.
    began: Lsn,
    /// The earlier points that readers of its era have asked for, once that is over.
    asked: BTreeSet<Lsn>,
    views: BTreeMap<FamilyId, Arc<View>>,
    epoch: Option<Arc<Epoch>>,
    in_doubt: Arc<BTreeMap<Lsn, Doubtful>>,
    /// Earlier moments that snapshots still need, newest first.
    older: Vec<Arc<Moment>>,
}

impl Moment {
    /// The moment that `line` has reached, in the era of new tables.
    fn of(line: &Line, era: u64) -> Moment {
        let (point, asked, older) = (line.next, BTreeSet::new(), Vec::new());
        let (views, epoch) = (line.views(), Some(line.epoch.clone()));
        let (floor, in_doubt) = (line.floor(), line.in_doubt().clone());
        Moment { point, floor, era, began: point, asked, views, epoch, in_doubt, older }
    }

    /// True if a reader of the moment's era may have this point.
    fn may_serve(&self, point: Lsn) -> bool {
        (self.began..=self.point).contains(&point) || self.asked.contains(&point)
    }
}

impl Shown {
    /// Shows the moment that `line` has reached.
    pub(crate) fn new(line: Line) -> Shown {
        let moment = ArcSwap::from_pointee(Moment::of(&line, 0));
        let asked = Mutex::new(Rank::OldPoints, BTreeSet::new());
        Shown { moment, asked, line: Mutex::new(Rank::Line, Some(line)) }
    }

    fn now(&self) -> Guard<Arc<Moment>> {
        preempt();
        self.moment.load()
    }

    fn put(&self, moment: Moment) {
        preempt();
        self.moment.store(Arc::new(moment));
    }

    /// The point at which reads and snapshots begin. Both use the same one; otherwise a later read
    /// could see an older state than an earlier one.
    pub(super) fn point(&self) -> Lsn {
        self.now().point
    }

    /// Registers an earlier point of the history. `None` if the present tables do not serve it.
    pub(super) fn register_old(&self, points: &ReadPoints, point: Lsn) -> Option<Hold> {
        let mut asked = self.asked.lock();
        let hold = points.register_old(point)?;
        asked.insert(point);
        if asked.len().is_multiple_of(ASKED_SWEEP) {
            let in_use = points.points();
            asked.retain(|point| in_use.binary_search(point).is_ok());
        }
        Some(hold)
    }

    /// The view of a family, and a read point that it serves: that of the reader, or the newest.
    /// `None` if the family does not exist at that point.
    pub(crate) fn pin(
        &self,
        family: FamilyId,
        reader: Option<Registered>,
    ) -> Option<(Guard<Arc<View>>, Lsn)> {
        let now = self.now();
        let point = reader.map_or(now.point, |reader| reader.point);
        let serving = match reader.filter(|reader| reader.era < now.era) {
            None => Some(&**now),
            Some(reader) => {
                let began_before = |older: &&Arc<Moment>| older.era <= reader.era;
                now.older.iter().find(began_before).map(|older| &**older)
            }
        };
        debug_assert!(
            serving.is_none_or(|serving| serving.floor <= point),
            "a reader at {point:#x} is served by tables without what it sees"
        );
        // A family that came later is empty at the point, also if an older moment serves that.
        let later = || now.views.get(&family).filter(|view| !view.is_seen_from(point));
        let view = serving?.views.get(&family).or_else(later);
        let view = view.filter(|view| view.exists_at(point))?;
        let view = if view.is_seen_from(point) { view.clone() } else { view.before_creation() };
        Some((Guard::from_inner(view), point))
    }

    /// Shows the moment that `line` has reached. With `is_anew`, the line has other tables than the
    /// moment before.
    pub(crate) fn show(&self, line: &Line, is_anew: bool, points: &ReadPoints, log: &Log) {
        let before = Guard::into_inner(self.now());
        assert!(before.point <= line.next, "points never go back");
        let mut asked = self.asked.lock();
        let mut coming = is_anew.then(|| points.begin_era());
        let mut now = Moment::of(line, coming.as_ref().map_or(before.era, |era| era.number()));
        match coming {
            Some(_) => {
                let (asked, older) = (asked.clone(), Vec::new());
                now.older.push(Arc::new(Moment { asked, older, ..Moment::clone(&before) }));
            }
            None => (now.floor, now.began) = (before.floor, before.began),
        }
        now.older.extend(before.older.iter().cloned());
        debug_assert!(
            now.older.iter().all(|older| older.era < now.era)
                && now.older.is_sorted_by(|newer, older| newer.era > older.era),
            "a reader is served by the newest moment that had begun before it"
        );
        self.put(now.clone());
        if let Some(era) = &mut coming {
            era.serves(now.floor, now.began);
            asked.clear();
        }
        log.show(line.next);
        // A reader that registers in this era has a point from here on, or asks for an earlier one.
        let in_use = points.close_for(now.floor, now.began);
        drop(coming);
        drop(asked);
        if now.older.is_empty() {
            return;
        }
        now.older.retain(|older| in_use.iter().any(|point| older.may_serve(*point)));
        self.put(now);
    }

    /// Changes what the present point shows, unless a reader is registered there. None registers
    /// meanwhile: an era begins, of the same tables.
    pub(crate) fn change_unread(&self, points: &ReadPoints, change: impl FnOnce()) {
        let asked = self.asked.lock();
        let coming = points.begin_era();
        if points.points().binary_search(&self.point()).is_err() {
            change();
        }
        drop(coming);
        drop(asked);
    }

    /// The moments that are kept for snapshots.
    #[cfg(test)]
    pub(crate) fn older_count(&self) -> usize {
        self.now().older.len()
    }

    /// The earlier points that are taken to be in use.
    #[cfg(test)]
    pub(crate) fn asked_count(&self) -> usize {
        self.asked.lock().len()
    }

    /// The prepared transactions that are in doubt, by the LSN of the prepare.
    pub(crate) fn in_doubt(&self) -> Arc<BTreeMap<Lsn, Doubtful>> {
        self.now().in_doubt.clone()
    }

    /// Bytes of memory that the applied records take, over all moments.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let now = self.now();
        let moments = now.older.iter().map(|older| &**older).chain([&**now]);
        moments.filter_map(|moment| moment.epoch.as_ref()).map(|epoch| epoch.bytes()).sum()
    }

    /// Releases everything, because the database is closed.
    pub(super) fn let_go(&self) {
        let mut line = self.line.lock();
        let before = Guard::into_inner(self.now());
        let (views, asked, older) = (BTreeMap::new(), BTreeSet::new(), Vec::new());
        let (epoch, in_doubt) = (None, Arc::default());
        let Moment { point, floor, era, began, .. } = *before;
        let empty = Moment { point, floor, era, began, asked, views, epoch, in_doubt, older };
        self.put(empty);
        *line = None;
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use crate::env::Env;
    use crate::vfs::MemoryFs;
    use crate::{Db, Options};
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Arc;

    /// Shows the line once more, as if it had other tables, and panics on the way.
    fn show_in_vain(reader: &Db) {
        let engine = reader.engine();
        let shown = engine.shown.as_ref().unwrap();
        let line = shown.line.lock();
        let line = line.as_ref().unwrap();
        engine.log.show(line.next + 8);
        let show = || shown.show(line, true, &engine.points, &engine.log);
        assert!(catch_unwind(AssertUnwindSafe(show)).is_err());
    }

    #[test]
    fn a_moment_whose_showing_panics_keeps_no_reader_waiting() {
        let fs = MemoryFs::new();
        let options = || Options::new().env(Env { fs: Arc::new(fs.clone()), ..Env::system() });
        let writer = options().open("/db").unwrap();
        writer.put("k", "old").unwrap();
        let reader = options().read_only(true).open("/db").unwrap();
        let before = reader.snapshot();
        let (engine, point) = (reader.engine(), before.read_point());
        let shown = engine.shown.as_ref().unwrap();
        show_in_vain(&reader);
        assert!(!engine.points.is_between_eras(), "readers wait");
        assert_eq!((shown.older_count(), shown.asked_count()), (1, 0));
        let early = || engine.points.register_at(|| point.lsn - 8);
        assert!(catch_unwind(AssertUnwindSafe(early)).is_err(), "it serves no point below");
        let again = reader.snapshot_at(point).unwrap();
        for snapshot in [&before, &again, &reader.snapshot()] {
            assert_eq!(snapshot.get("k").unwrap().unwrap(), "old");
        }
        writer.put("k", "new").unwrap();
        reader.catch_up().unwrap();
        assert_eq!(reader.get("k").unwrap().unwrap(), "new");
        assert_eq!(before.get("k").unwrap().unwrap(), "old");
    }
}
