//! Models of read points, over a whole database in memory: writers race with seals, flushes,
//! compactions and readers under random schedules. All writers write one key, each time with a new
//! value. So every answer is known once the commits' LSNs are known: a read at a point sees the
//! value of the newest commit that ends at or below that point.
//!
//! All code under test is the engine's own, from `Db::put` to the tables that flushes and
//! compactions write.
//!
//! These bugs were planted and found: a flush that does not wait until its epoch is complete; a
//! seal that does not mark the open epoch as closing. Two planted bugs show too rarely to be found
//! here: a read point that is taken before its view, and a view whose number is not checked again.
//! A unit test of `Keyspace::pin_at`, which replaces the view in between, finds both, and so does
//! the simulator.

use crate::env::model::{check, env};
use crate::format::Lsn;
use crate::vfs::MemoryFs;
use crate::{Db, Options};
use shuttle::thread;
use std::sync::{Arc, Mutex};

const KEY: &[u8] = b"k";

/// A database, and what the model's threads noted. The lock of the notes is the standard library's,
/// so the checker never switches threads there.
struct World {
    db: Db,
    notes: Mutex<Notes>,
}

#[derive(Default)]
struct Notes {
    begun: u8,
    /// Commits that have returned: their read points and their values.
    commits: Vec<(Lsn, u8)>,
    /// What a snapshot at a read point showed.
    seen: Vec<(Lsn, Option<u8>)>,
}

impl World {
    fn new() -> Arc<World> {
        let options = Options::new().write_buffer(64 << 10).compaction_threads(1);
        let db = options.env(env(Arc::new(MemoryFs::new()))).open("/db").unwrap();
        Arc::new(World { db, notes: Mutex::default() })
    }

    fn commit(&self) {
        let mut notes = self.notes.lock().unwrap();
        notes.begun += 1;
        let value = notes.begun;
        drop(notes);
        let point = self.db.put(KEY, [value]).unwrap().point;
        self.notes.lock().unwrap().commits.push((point, value));
        self.read_newest();
    }

    /// A read sees every commit that returned before it, or a newer one.
    fn read_newest(&self) {
        let newest = self.notes.lock().unwrap().commits.iter().copied().max();
        let found = self.db.get(KEY).unwrap().map(|value| value[0]);
        let notes = self.notes.lock().unwrap();
        let point_of = |value| notes.commits.iter().find(|(_, known)| *known == value);
        match (newest, found) {
            (None, None) => {}
            (Some(newest), None) => panic!("{newest:?} is not seen"),
            // A commit that has not returned yet is newer than all that returned before this read
            // began.
            (newest, Some(found)) => match point_of(found) {
                Some((point, _)) => assert!(newest.is_none_or(|(newest, _)| newest <= *point)),
                None => assert!(found <= notes.begun),
            },
        }
    }

    fn read_by_snapshot(&self) {
        let snapshot = self.db.snapshot();
        for _ in 0..2 {
            let found = snapshot.get(KEY).unwrap().map(|value| value[0]);
            let scanned = snapshot.range(..).next().map(|item| item.unwrap().1[0]);
            assert_eq!(found, scanned);
            self.notes.lock().unwrap().seen.push((snapshot.point(), found));
        }
    }

    /// Checks what the snapshots showed, once every commit has returned.
    fn end(&self) {
        self.read_newest();
        let mut notes = self.notes.lock().unwrap();
        notes.commits.sort_unstable();
        for (point, found) in &notes.seen {
            let below = notes.commits.partition_point(|(committed, _)| committed <= point);
            let expected = below.checked_sub(1).map(|newest| notes.commits[newest].1);
            assert_eq!(*found, expected, "at {point}, of {:?}", notes.commits);
        }
    }
}

fn spawn(world: &Arc<World>, body: impl Fn(&World) + Send + 'static) -> thread::JoinHandle<()> {
    let world = world.clone();
    thread::spawn(move || body(&world))
}

#[test]
fn writers_that_race_a_seal_lose_nothing() {
    check(1000, || {
        let world = World::new();
        let writers = [(); 2].map(|()| {
            spawn(&world, |world| {
                world.commit();
                world.commit();
            })
        });
        world.db.flush().unwrap();
        world.db.flush().unwrap();
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        world.end();
    });
}

#[test]
fn a_view_and_a_read_point_always_fit() {
    check(1000, || {
        let world = World::new();
        world.commit();
        let writer = spawn(&world, |world| {
            world.commit();
            world.commit();
        });
        let reader = spawn(&world, |world| {
            world.read_newest();
            world.read_by_snapshot();
            world.read_newest();
        });
        world.db.flush().unwrap();
        world.db.flush().unwrap();
        world.db.compact().unwrap();
        writer.join().unwrap();
        reader.join().unwrap();
        world.end();
    });
}

#[test]
fn compactions_keep_what_snapshots_see_whenever_they_are_taken() {
    check(1000, || {
        let world = World::new();
        let writer = spawn(&world, |world| {
            world.commit();
            world.commit();
        });
        let readers = [(); 2].map(|()| spawn(&world, World::read_by_snapshot));
        for _ in 0..2 {
            world.db.flush().unwrap();
            world.db.compact().unwrap();
        }
        writer.join().unwrap();
        readers.into_iter().for_each(|reader| reader.join().unwrap());
        world.end();
    });
}
