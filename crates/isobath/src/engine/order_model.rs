//! Exhaustive models of the places where the engine relies on the order of two atomics: the closing
//! mark against the log's tail, a view's number against the visible frontier, a reader's slot
//! against the horizon of compactions and against the mark of dropped families, the newest tick's
//! LSN against its time.
//!
//! These bugs were planted and found: a `Room::try_take` with relaxed exchanges; an `Epochs::seal`
//! that sets the mark after it has reserved; a `Keyspace::pin` that loads the point and the number
//! before the view. In `ReadPoints`: no fence behind the store of a point, the raise of the horizon
//! or the release of a slot; a `register_at` that does not look at the horizon, that looks before
//! its point is in the map, or that gives its point up without a look at `look_below`; a
//! `close_below` that lists the points before it raises the horizon; a `give_back` that lets the
//! last of two holders leave the slot taken; a `let_go` that sets no mark, or raises no horizon. A
//! transaction that gives its point up before it has looked for changes at the new one. The time
//! of a tick stored or loaded relaxed, or its LSN not looked at again; a stored, not exchanged,
//! next end.

use super::ticks::UNKNOWN_ENDS_MS;
use super::*;
use crate::env::model::check;
use crate::env::sync::atomic::AtomicU64;
use crate::format::Lsn;
use crate::memtable::ChunkPool;
use crate::options::FamilyOptions;
use crate::version::{Tick, Tree};
use crate::wal::Room;
use loom::thread;

fn epochs() -> Epochs {
    Epochs::new(Arc::new(ChunkPool::new(16 << 10, 0, 0)), 64)
}

/// If a writer has an LSN and then finds the epoch open, the LSN is below the epoch's end, however
/// soon the epoch is sealed.
#[test]
fn an_open_epoch_owns_what_was_reserved_before_its_end() {
    check(4, || {
        let epochs = epochs();
        let room = Arc::new(Room::new(64, 1 << 20));
        room.extend(1 << 12);
        let open = epochs.list().open.clone();
        let writers = [(); 2].map(|()| {
            let (open, room) = (open.clone(), room.clone());
            thread::spawn(move || {
                let lsn = room.try_take(32, 0).unwrap();
                open.owns_while_open(lsn).then_some(lsn)
            })
        });
        let right = epochs.lock();
        let reserve = || room.try_take(32, 0).map(|start| start + 32).ok_or(());
        let (sealed, end) = epochs.seal(&right, reserve).unwrap();
        assert_eq!(sealed.end(), end);
        for writer in writers {
            assert!(writer.join().unwrap().is_none_or(|lsn| lsn < end));
        }
    });
}

/// If a view is current after the point was loaded, it has every memtable written below the point.
#[test]
fn what_is_visible_is_in_the_view() {
    check(3, || {
        let epoch = epochs().list().open.clone();
        let family = Arc::new(Keyspace::new(
            0,
            "default",
            FamilyOptions::default(),
            1,
            Arc::new(Tree::default()),
        ));
        let visible = Arc::new(AtomicU64::new(64));
        let reader = {
            let (family, visible) = (family.clone(), visible.clone());
            thread::spawn(move || {
                let (view, point) = family.pin_at(|| visible.load(Ordering::Acquire));
                assert!(point == 64 || view.memtables.len() == 1);
            })
        };
        family.memtable_in(&epoch);
        visible.store(96, Ordering::Release);
        reader.join().unwrap();
    });
}

const BEFORE: Lsn = 64;
const AFTER: Lsn = 96;

/// Registers a point while others move `visible` from `BEFORE` to `AFTER`.
fn register(points: &ReadPoints, visible: &AtomicU64) -> Hold {
    points.register_at(|| visible.load(Ordering::Acquire))
}

/// A compaction lists a reader's point, or its horizon is not above the point. The second reader's
/// point goes to the map, as there is one slot.
#[test]
fn a_compaction_knows_of_every_reader_below_its_horizon() {
    check(3, || {
        let points = Arc::new(ReadPoints::default());
        let visible = Arc::new(AtomicU64::new(BEFORE));
        let readers = [(); 2].map(|()| {
            let (points, visible) = (points.clone(), visible.clone());
            thread::spawn(move || register(&points, &visible))
        });
        visible.store(AFTER, Ordering::Release);
        let kept = points.readers_from(AFTER);
        for reader in readers {
            let hold = reader.join().unwrap();
            let is_listed = kept.registered().contains(&hold.point());
            assert!(is_listed || kept.horizon() <= hold.point());
            points.release(&hold);
        }
        assert_eq!(points.held(), (0, None));
    });
}

/// A reader at an earlier point is refused, or a compaction with a later horizon lists its point.
#[test]
fn a_compaction_knows_of_every_earlier_point_that_is_not_refused() {
    check(4, || {
        let points = Arc::new(ReadPoints::default());
        let reader = {
            let points = points.clone();
            thread::spawn(move || points.register_old(BEFORE))
        };
        let kept = points.readers_from(AFTER);
        if let Some(hold) = reader.join().unwrap() {
            assert!(kept.registered().contains(&hold.point()));
            points.release(&hold);
        }
        assert_eq!(points.held(), (0, None));
    });
}

/// Of two compactions that begin at once, each knows of the reader or keeps what the reader sees.
#[test]
fn compactions_that_begin_at_once_both_respect_a_reader() {
    check(3, || {
        let points = Arc::new(ReadPoints::default());
        let visible = Arc::new(AtomicU64::new(BEFORE));
        let reader = {
            let (points, visible) = (points.clone(), visible.clone());
            thread::spawn(move || register(&points, &visible))
        };
        let slow = {
            let (points, visible) = (points.clone(), visible.clone());
            thread::spawn(move || points.readers_from(visible.load(Ordering::Acquire)))
        };
        visible.store(AFTER, Ordering::Release);
        let fast = points.readers_from(AFTER);
        let slow = slow.join().unwrap();
        let hold = reader.join().unwrap();
        for kept in [fast, slow] {
            let is_listed = kept.registered().contains(&hold.point());
            assert!(is_listed || kept.horizon() <= hold.point());
        }
        points.release(&hold);
    });
}

/// A family that was dropped at `BEFORE`.
fn dropped() -> Arc<Keyspace> {
    let family = Keyspace::new(1, "f", FamilyOptions::default(), 1, Arc::default());
    family.mark_dropped(BEFORE);
    Arc::new(family)
}

/// Two holders of one point, or of one in the slot and one in the map, go while a family is let go.
#[test]
fn the_last_point_that_sees_a_dropped_family_lets_it_go() {
    for is_same in [true, false] {
        check(3, move || {
            let points = Arc::new(ReadPoints::default());
            let first = points.register_at(|| BEFORE);
            let second = match is_same {
                true => points.hold_again(&first),
                false => points.register_at(|| BEFORE),
            };
            let readers = [first, second].map(|hold| {
                let points = points.clone();
                thread::spawn(move || points.release(&hold))
            });
            points.let_go(&dropped());
            readers.into_iter().for_each(|reader| reader.join().unwrap());
            assert_eq!((points.held(), points.dropped_count()), ((0, None), 0));
        });
    }
}

/// A reader that begins while a family is let go sees the drop, or holds the family.
#[test]
fn a_reader_below_a_drop_holds_the_family() {
    check(4, || {
        let points = Arc::new(ReadPoints::default());
        let visible = Arc::new(AtomicU64::new(BEFORE));
        let reader = {
            let (points, visible) = (points.clone(), visible.clone());
            thread::spawn(move || register(&points, &visible))
        };
        visible.store(AFTER, Ordering::Release);
        points.let_go(&dropped());
        let hold = reader.join().unwrap();
        assert_eq!(points.dropped_count(), usize::from(hold.point() == BEFORE));
        points.release(&hold);
        assert_eq!(points.dropped_count(), 0);
    });
}

/// A delete between two points of a transaction.
const DELETED: Lsn = 80;

/// A locking read moves the point of a transaction: what tells of a change since the old point is
/// kept until it has been looked at, whatever compaction comes in between.
#[test]
fn what_tells_of_a_change_is_kept_while_a_point_moves() {
    check(4, || {
        let points = Arc::new(ReadPoints::default());
        let (visible, is_delete_kept) =
            (Arc::new(AtomicU64::new(AFTER)), Arc::new(AtomicU64::new(1)));
        let old = points.register_at(|| BEFORE);
        let mover = {
            let (points, visible, is_delete_kept) =
                (points.clone(), visible.clone(), is_delete_kept.clone());
            thread::spawn(move || {
                let new = register(&points, &visible);
                assert_eq!(is_delete_kept.load(Ordering::Acquire), 1, "the key looks unchanged");
                points.release(&old);
                points.release(&new);
            })
        };
        // The compaction drops a delete that every reader sees, and that hides nothing.
        let kept = points.readers_from(visible.load(Ordering::Acquire));
        if kept.oldest() > DELETED {
            is_delete_kept.store(0, Ordering::Release);
        }
        mover.join().unwrap();
        assert_eq!(points.held(), (0, None));
    });
}

/// A point has the time of the last tick below it, also while the next tick becomes known.
#[test]
fn a_point_has_the_time_of_the_last_tick_below_it() {
    check(4, || {
        let ticks = Arc::new(Ticks::of(&[Tick { lsn: 32, unix_ms: 1 }]));
        let visible = Arc::new(AtomicU64::new(BEFORE));
        let reader = {
            let (ticks, visible) = (ticks.clone(), visible.clone());
            thread::spawn(move || {
                let point = visible.load(Ordering::Acquire);
                let unix_ms = if point == BEFORE { 1 } else { 2 };
                assert_eq!(ticks.time_at(point), Some(unix_ms));
            })
        };
        ticks.learn(&[Tick { lsn: BEFORE, unix_ms: 2 }]);
        visible.store(AFTER, Ordering::Release);
        reader.join().unwrap();
    });
}

/// The thread that notes an end may come too late for what is told just now.
#[test]
fn an_end_that_is_noted_while_the_time_is_told_is_due_later() {
    const TOLD_MS: u64 = 10;
    check(4, || {
        let ticks = Arc::new(Ticks::of(&[]));
        ticks.note_end(TOLD_MS);
        let noting = {
            let ticks = ticks.clone();
            thread::spawn(move || ticks.note_end(TOLD_MS + 1))
        };
        ticks.note_told(TOLD_MS);
        noting.join().unwrap();
        assert!(ticks.is_due(TOLD_MS + UNKNOWN_ENDS_MS), "nothing is to come");
    });
}
