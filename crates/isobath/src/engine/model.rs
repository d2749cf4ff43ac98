//! Models of single parts of the engine that several threads use at once: the switch of epochs,
//! what a reader pins, the registry of read points, waiting for room, pacing. Each part is called
//! as the engine calls it. Models of a whole database, in `point_model.rs` and `db_model.rs`, check
//! the parts together.
//!
//! These bugs were planted and found: an `Epochs::owner` that takes the open epoch when no sealed
//! one fits; a `Keyspace::publish` that stores the number after the view; a
//! `ReadPoints::register_at` that does not look at the horizon; an `Epochs::wake_all` without
//! the lock; a `Pacer` whose setters do not take its lock.

use super::*;
use crate::env::model::{check, env};
use crate::env::sync::atomic::AtomicU64;
use crate::format::Lsn;
use crate::memtable::ChunkPool;
use crate::options::FamilyOptions;
use crate::version::Tree;
use crate::vfs::MemoryFs;
use crate::wal::Room;
use shuttle::thread;

const START: Lsn = 4096;
const RECORD_LEN: u64 = 32;

fn epochs() -> Epochs {
    Epochs::new(Arc::new(ChunkPool::new(16 << 10, 0, 0)), START)
}

#[test]
fn writers_that_race_seals_are_in_the_epoch_of_their_lsn() {
    check(20_000, || {
        let (epochs, room) = (Arc::new(epochs()), Arc::new(Room::new(START, 1 << 20)));
        room.extend(START + 4096);
        let writers = [(); 2].map(|()| {
            let (epochs, room) = (epochs.clone(), room.clone());
            thread::spawn(move || {
                [(); 2].map(|()| {
                    let lsn = room.try_take(RECORD_LEN, 0).unwrap();
                    (lsn, epochs.owner(lsn))
                })
            })
        });
        for _ in 0..2 {
            let reserve = || room.try_take(RECORD_LEN, 0).map(|lsn| lsn + RECORD_LEN).ok_or(());
            epochs.seal(&epochs.lock(), reserve).unwrap();
        }
        for (lsn, owner) in writers.into_iter().flat_map(|writer| writer.join().unwrap()) {
            assert!(owner.start <= lsn && lsn < owner.end(), "{lsn}");
        }
    });
}

/// A compaction keeps what a snapshot sees: it knows of the snapshot, or the snapshot's point is
/// not below its horizon.
#[test]
fn a_compaction_knows_of_every_snapshot_below_its_horizon() {
    check(20_000, || {
        let points = Arc::new(ReadPoints::default());
        let visible = Arc::new(AtomicU64::new(START));
        let reader = {
            let (points, visible) = (points.clone(), visible.clone());
            thread::spawn(move || points.register_at(|| visible.load(Ordering::SeqCst)))
        };
        let writer = {
            let visible = visible.clone();
            thread::spawn(move || {
                for _ in 0..2 {
                    visible.fetch_add(RECORD_LEN, Ordering::SeqCst);
                }
            })
        };
        let readers = points.readers_from(visible.load(Ordering::SeqCst));
        writer.join().unwrap();
        let hold = reader.join().unwrap();
        assert!(readers.registered() == [hold.point()] || readers.horizon() <= hold.point());
        points.release(&hold);
    });
}

/// The second writer finds the memtable that the first one made. The second writer's commit may be
/// visible before the first writer has finished publishing the memtable.
#[test]
fn a_memtable_is_in_every_view_that_sees_its_commits() {
    check(8000, || {
        let epoch = epochs().list().open.clone();
        let tree = Arc::new(Tree::default());
        let family = Arc::new(Keyspace::new(0, "default", FamilyOptions::default(), 1, tree));
        let visible = Arc::new(AtomicU64::new(START));
        let first = {
            let family = family.clone();
            thread::spawn(move || drop(family.memtable_in(&epoch)))
        };
        let second = {
            let (family, visible) = (family.clone(), visible.clone());
            thread::spawn(move || {
                while family.view().memtables.is_empty() {
                    thread::yield_now();
                }
                visible.store(START + 32, Ordering::SeqCst);
            })
        };
        let (view, point) = family.pin_at(|| visible.load(Ordering::SeqCst));
        assert!(point == START || view.memtables.len() == 1);
        first.join().unwrap();
        second.join().unwrap();
    });
}

#[test]
fn a_writer_that_waits_for_room_hears_of_a_failed_flush() {
    check(20_000, || {
        let epochs = Arc::new(epochs());
        let waiter = {
            let epochs = epochs.clone();
            thread::spawn(move || {
                let mut right = epochs.lock();
                while epochs.check_flushes().is_ok() {
                    epochs.wait_for_room(&mut right);
                }
            })
        };
        epochs.note_flush_failure(Error::closed(), 0);
        waiter.join().unwrap();
    });
}

/// Flushes and compactions set the pace at the same time. Neither may undo what the other has set.
#[test]
fn writers_are_paced_while_there_is_a_reason() {
    check(2000, || {
        let env = env(Arc::new(MemoryFs::new()));
        let pacer = Arc::new(Pacer::new(env.clock, env.threads));
        let flusher = {
            let pacer = pacer.clone();
            thread::spawn(move || pacer.set_flush(|| false, None))
        };
        pacer.set_compactions(1.0, 1e6);
        flusher.join().unwrap();
        pacer.admit(1 << 20, true, || 0.0).unwrap();
        pacer.admit(1 << 20, true, || 0.0).unwrap_err();
    });
}
