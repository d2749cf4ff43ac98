//! Models of read points, over a whole database in memory: writers race with seals, flushes,
//! compactions and readers under random schedules. All write one key, each a value of its own, so
//! every answer is known once the writers' points are: at a point, the value of the newest commit
//! that ends there or below.
//!
//! All of it is the engine's own code, from `Db::put` to the tables that flushes and compactions
//! write.
//!
//! Seen to fail: a flush that does not wait until its epoch is complete; a seal that does not mark
//! the open epoch as closing. Not seen to, as too rare here: a point that is taken before its view,
//! a view whose number is not looked at again. A unit test of `Keyspace::pin_at`, which replaces
//! the view in between, and the simulator see both.

use crate::env::model::{check, env};
use crate::format::Lsn;
use crate::vfs::MemoryFs;
use crate::{Db, Options};
use shuttle::thread;
use std::sync::{Arc, Mutex};

const KEY: &[u8] = b"k";

/// A database, and what its observers noted; their lock is no place to switch at.
struct World {
    db: Db,
    notes: Mutex<Notes>,
}

#[derive(Default)]
struct Notes {
    begun: u8,
    /// Commits that returned: the point and the value.
    commits: Vec<(Lsn, u8)>,
    /// What a snapshot at a point showed.
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

    /// A commit that returned is seen by whoever reads then, or one that came after it.
    fn read_newest(&self) {
        let newest = self.notes.lock().unwrap().commits.iter().copied().max();
        let found = self.db.get(KEY).unwrap().map(|value| value[0]);
        let notes = self.notes.lock().unwrap();
        let point_of = |value| notes.commits.iter().find(|(_, known)| *known == value);
        match (newest, found) {
            (None, None) => {}
            (Some(newest), None) => panic!("{newest:?} is not seen"),
            // One that has not returned yet is newer than all that had before this read began.
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

    /// Judges what the snapshots showed, now that every commit has returned.
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
