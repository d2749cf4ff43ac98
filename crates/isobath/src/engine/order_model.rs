//! Exhaustive models of the two places where the engine relies on the order of two atomics: the
//! closing mark against the log's tail, and a view's number against the visible frontier.
//!
//! These bugs were planted and found: a `Room::try_take` with relaxed exchanges; an `Epochs::seal`
//! that sets the mark after it has reserved; a `Keyspace::pin` that loads the point and the number
//! before the view.
//! reserved; `Keyspace::pin` that loads point and number before the view.

use super::*;
use crate::env::model::check;
use crate::env::sync::atomic::AtomicU64;
use crate::memtable::ChunkPool;
use crate::options::FamilyOptions;
use crate::version::Tree;
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
