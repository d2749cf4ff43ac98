//! A model of gaps: readers, who find and use them, beside writers, who put keys into them. The
//! family, the log's tail and its frontier, the memtable, the scan and what a commit does between
//! its reservation and its publishing (`Keyspace::insert_at`) are the engine's own. Each reader
//! compares what its scan shows with what gets find, which know nothing of gaps.
//!
//! Written after functions that need a whole database: `World::commit` after `commit_admitted` from
//! the reservation on, and `World::scan_at` after the scans of a `Pin` and `Pin::learn_gap`.
//!
//! These bugs were planted and found: a put that leaves the gap that it falls into; a gap that is
//! known without regard to commits that have their LSN already; a gap that is used by a reader at
//! an older point; a `Keyspace::pin` that does not look whether the view is still current.
//!
//! `db_model.rs` and the simulator check the same with the commits and pops of a whole database.

use crate::cursor::{MergeCursor, VisibleCursor};
use crate::engine::{Epochs, Keyspace};
use crate::env::model::check;
use crate::format::{Lsn, OpKind};
use crate::memtable::{ChunkPool, MemtableCursor};
use crate::options::FamilyOptions;
use crate::version::Tree;
use crate::wal::{Frontier, Room};
use shuttle::thread;
use std::ops::Bound;
use std::sync::Arc;

const START: Lsn = 4096;
const RECORD_LEN: u64 = 32;
/// Keys from 1 on; the last one stays live.
const KEYS: u8 = 6;

struct World {
    family: Keyspace,
    epochs: Epochs,
    room: Room,
    visible: Frontier,
    /// A snapshot's point, at which all keys but the first are live.
    before: Lsn,
}

impl World {
    /// All keys but the last one are dead.
    fn new() -> Arc<World> {
        let tree = Arc::new(Tree::default());
        let family = Keyspace::new(0, "default", FamilyOptions::default(), 1, tree);
        let epochs = Epochs::new(Arc::new(ChunkPool::new(16 << 10, 0, 0)), START);
        let room = Room::new(START, 1 << 20);
        room.extend(START + 8192);
        let (visible, before) =
            (Frontier::new(START, 64), START + RECORD_LEN * u64::from(KEYS + 1));
        let world = World { family, epochs, room, visible, before };
        (1..=KEYS).for_each(|key| world.commit(key, OpKind::Put));
        (1..KEYS).for_each(|key| world.commit(key, OpKind::Delete));
        Arc::new(world)
    }

    fn commit(&self, key: u8, kind: OpKind) {
        let lsn = self.room.try_take(RECORD_LEN, 0).unwrap();
        let key = &[key][..];
        let put = kind.puts_value().then_some(key);
        self.family.insert_at(&self.epochs, lsn, put, |memtable| {
            memtable.insert(key, lsn, kind, b"");
        });
        self.visible.mark(lsn, lsn + RECORD_LEN);
        self.visible.wait(lsn + RECORD_LEN).unwrap();
    }

    /// Scans in one direction and tells the family of the dead keys it has passed.
    fn scan(&self, is_forward: bool) {
        self.scan_at(None, is_forward);
    }

    fn scan_at(&self, before: Option<Lsn>, is_forward: bool) {
        let (view, newest) = self.family.pin_at(|| self.visible.at());
        let point = before.unwrap_or(newest);
        let memtable = &view.memtables[0].memtable;
        let merge = MergeCursor::new(vec![MemtableCursor::new(memtable.clone())]);
        let mut scan = VisibleCursor::new(merge, point, Bound::Unbounded, Bound::Unbounded);
        scan.jumping(view.gaps.clone(), 0);
        let mut shown = Vec::new();
        if is_forward { scan.seek_first() } else { scan.seek_last() }.unwrap();
        while let Some(key) = scan.key() {
            shown.push(key[0]);
            if is_forward { scan.next() } else { scan.prev() }.unwrap();
        }
        if !is_forward {
            shown.reverse();
        }
        let is_live = |key: &u8| {
            let found = memtable.get(&[*key], point);
            found.is_some_and(|found| found.kind.puts_value())
        };
        let live: Vec<u8> = (1..=KEYS).filter(is_live).collect();
        assert_eq!(shown, live, "at {point} with {:?}", view.gaps);
        if let Some(stretch) = scan.take_stretch() {
            self.family.learn_gap(&stretch, point, || self.room.touch());
        }
    }
}

fn spawn(world: &Arc<World>, body: impl FnOnce(&World) + Send + 'static) -> thread::JoinHandle<()> {
    let world = world.clone();
    thread::spawn(move || body(&world))
}

#[test]
fn a_scan_over_gaps_shows_what_gets_find() {
    check(20_000, || {
        let world = World::new();
        let threads = [
            spawn(&world, |world| world.commit(2, OpKind::Put)),
            spawn(&world, |world| {
                world.commit(4, OpKind::Put);
                world.commit(4, OpKind::Delete);
            }),
            spawn(&world, |world| (0..3).for_each(|_| world.scan(true))),
            spawn(&world, |world| {
                world.scan(false);
                world.scan_at(Some(world.before), true);
                world.scan(true);
            }),
        ];
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        [true, false, true].into_iter().for_each(|is_forward| world.scan(is_forward));
    });
}

/// A gap is found while a put is under way that took its LSN before.
#[test]
fn a_put_from_before_a_gap_was_announced_is_seen() {
    check(20_000, || {
        let world = World::new();
        let writer = spawn(&world, |world| world.commit(3, OpKind::Put));
        let other = spawn(&world, |world| world.scan(true));
        (0..3).for_each(|_| world.scan(true));
        writer.join().unwrap();
        world.scan(true);
        other.join().unwrap();
        world.scan(false);
    });
}
