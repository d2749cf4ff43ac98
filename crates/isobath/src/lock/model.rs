//! Models of locks: of the bit that says `locked` beside writers that announce, and of ranges
//! beside writers that look for them twice (loom); of the queues and the graph of waits (shuttle).
//!
//! Waits have no timeouts in a model, so a wake-up that is missing is a deadlock, and so is a cycle
//! of waits that is not found.
//!
//! These bugs were planted and found by loom. Of the bit: a first locked key that does not set it;
//! a key that clears it for another one when it is released; a stamp that clears it; a locker that
//! does not wait for announcements; no fence between it and the word of a family, on either side.
//! Of a key whose locker overtakes writers: a version that does not change, or changes before the
//! key is locked; a locker that does not wait for what was reserved before. Of ranges: a version
//! that does not change; one that changes after the range is granted; a writer
//! that does not look again; a holder that does not wait for what was reserved before, or that
//! gives the range up before it has its LSN; a tail that is touched or taken by relaxed exchanges.

#[cfg(shuttle)]
mod of_the_queue;

use super::*;
use crate::env::model::check;
use LockMode::{Exclusive, Shared};

const NEVER: u64 = u64::MAX;

struct NoClock;

impl Clock for NoClock {
    fn now_ns(&self) -> u64 {
        0
    }
    fn unix_ms(&self) -> u64 {
        0
    }
}

#[cfg(loom)]
mod of_the_bit {
    use super::*;
    use crate::conflict::Word;
    use crate::env::sync::atomic::fence;
    use crate::env::sync::spin_hint;
    use crate::format::Lsn;
    use loom::thread;

    const START: Lsn = 4096;

    /// A table of one slot beside the word of the family. Each key has a number that is read and
    /// written without synchronization.
    struct World {
        locks: Locks,
        stamps: Arc<Stamps>,
        family: Word,
        values: [AtomicU64; 2],
    }

    /// What a task does to a key, of which there are two.
    #[derive(Clone, Copy)]
    enum Task {
        /// Adds 1 under the lock on the key.
        Lock(usize),
        /// Adds 100, announced on the slot. At most one such task for each key.
        Write(usize),
        /// The same, announced on the word of the family.
        WriteMany(usize),
    }

    impl World {
        fn new() -> Arc<World> {
            let stamps = Arc::new(Stamps::new(1, 4, START));
            stamps.load(Slot::at(0));
            let locks = Locks::new(1, Arc::clone(&stamps) as _, Arc::new(NoClock));
            Arc::new(World { locks, stamps, family: Word::default(), values: Default::default() })
        }

        fn key(at: usize) -> (FamilyId, &'static [u8]) {
            (0, [&b"a"[..], b"b"][at])
        }

        fn add(&self, at: usize, more: u64) {
            let value = self.values[at].load(Ordering::Relaxed);
            self.values[at].store(value + more, Ordering::Relaxed);
        }

        fn announced(&self) -> u32 {
            let (of_slot, of_family) =
                (self.stamps.load(Slot::at(0)), self.stamps.load_word(&self.family));
            of_slot.pending + of_family.pending
        }

        /// As `KeyLocks::take` does.
        fn lock_and_add(&self, id: u64, at: usize) {
            let owner = Owner::transaction(id);
            self.locks.take(&owner, World::key(at), Exclusive, NEVER).unwrap();
            fence(Ordering::SeqCst);
            while self.announced() > 0 {
                spin_hint();
            }
            self.add(at, 1);
            self.locks.release_all(&owner);
        }

        /// As `Announcement::make` and what follows it do.
        fn announce_and_add(&self, id: u64, at: usize, on_family: bool) {
            let (writer, slot, lsn) = (Owner::write(id), Slot::at(0), START + 8 * id);
            loop {
                let is_locked = match on_family {
                    false => self.stamps.announce(slot).unwrap().locked,
                    true => {
                        self.stamps.announce_word(&self.family).unwrap();
                        fence(Ordering::SeqCst);
                        self.stamps.load(slot).locked
                    }
                };
                if !is_locked || !self.locks.is_held_against(None, World::key(at), Exclusive) {
                    break;
                }
                match on_family {
                    false => self.stamps.withdraw(slot),
                    true => self.stamps.withdraw_word(&self.family),
                }
                self.locks.await_key(&writer, World::key(at), NEVER).unwrap();
            }
            self.add(at, 100);
            match on_family {
                false => self.stamps.stamp(slot, lsn),
                true => self.stamps.stamp_word(&self.family, lsn),
            }
        }

        fn run(&self, id: u64, task: Task) {
            match task {
                Lock(at) => self.lock_and_add(id, at),
                Write(at) => self.announce_and_add(id, at, false),
                WriteMany(at) => self.announce_and_add(id, at, true),
            }
        }
    }

    use Task::{Lock, Write, WriteMany};

    fn run(tasks: &'static [Task], preemptions: usize) {
        check(preemptions, move || {
            let world = World::new();
            let threads: Vec<_> = (2..)
                .zip(&tasks[1..])
                .map(|(id, task)| {
                    let world = Arc::clone(&world);
                    thread::spawn(move || world.run(id, *task))
                })
                .collect();
            world.run(1, tasks[0]);
            threads.into_iter().for_each(|thread| thread.join().unwrap());
            let added = |at| {
                let of_key = tasks.iter().map(move |task| match task {
                    Lock(key) if *key == at => 1,
                    Write(key) | WriteMany(key) if *key == at => 100,
                    _ => 0,
                });
                of_key.sum::<u64>()
            };
            let values = [0, 1].map(|at| world.values[at].load(Ordering::Relaxed));
            assert_eq!(values, [added(0), added(1)]);
            let is_marked = world.stamps.load(Slot::at(0)).locked;
            assert!(world.announced() == 0 && !is_marked, "nothing is left behind");
        });
    }

    #[test]
    fn a_writer_and_a_locker_of_one_key_do_not_miss_each_other() {
        run(&[Lock(0), Write(0)], 3);
    }

    #[test]
    fn a_writer_of_very_many_keys_and_a_locker_do_not_miss_each_other() {
        run(&[Lock(0), WriteMany(0)], 3);
    }

    #[test]
    fn a_key_of_the_slot_stays_locked_when_another_is_released() {
        run(&[Lock(0), Write(1), Lock(1)], 2);
    }

    #[test]
    fn a_key_of_the_slot_stays_locked_when_another_is_written() {
        run(&[Lock(0), Write(1), Write(0)], 3);
    }
}

#[cfg(loom)]
mod of_ranges {
    use super::*;
    use crate::conflict::Word;
    use crate::env::sync::atomic::{AtomicBool, fence};
    use crate::env::sync::spin_hint;
    use crate::format::Lsn;
    use crate::wal::Room;
    use loom::thread;

    const START: Lsn = 4096;
    const LEN: u64 = 32;

    /// A log of records of one length, whose frontier is a count of those that are finished, and a
    /// key in the range that is read and written without synchronization.
    struct World {
        locks: Locks,
        stamps: Arc<Stamps>,
        family: Word,
        room: Room,
        finished: [AtomicBool; 8],
        value: AtomicU64,
    }

    impl World {
        fn new() -> Arc<World> {
            let stamps = Arc::new(Stamps::new(1, 4, START));
            stamps.load(Slot::at(0));
            let locks = Locks::new(1, Arc::clone(&stamps) as _, Arc::new(NoClock));
            let room = Room::new(START, 1 << 20);
            room.extend(1 << 16);
            let (finished, value) = (Default::default(), AtomicU64::new(0));
            let family = Word::default();
            Arc::new(World { locks, stamps, family, room, finished, value })
        }

        fn reserve(&self) -> Lsn {
            self.room.try_take(LEN, 0).expect("there is room")
        }

        fn finish(&self, lsn: Lsn) {
            self.finished[((lsn - START) / LEN) as usize].store(true, Ordering::Release);
        }

        fn wait(&self, below: Lsn) {
            for finished in &self.finished[..((below - START) / LEN) as usize] {
                while !finished.load(Ordering::Acquire) {
                    spin_hint();
                }
            }
        }

        fn add(&self, more: u64) {
            let value = self.value.load(Ordering::Relaxed);
            self.value.store(value + more, Ordering::Relaxed);
        }

        /// A transaction that relies on the range and writes into it. Returns two LSNs between
        /// which no other write into it may lie: what it waited for, and its own.
        fn hold(&self, id: u64) -> (Lsn, Lsn) {
            let owner = Owner::transaction(id);
            let span = Span { lower: b"a"[..].into(), upper: Some(b"c"[..].into()) };
            self.locks.take_range(&owner, (0, &span), Exclusive, NEVER).unwrap();
            let from = self.room.touch();
            self.wait(from);
            self.add(1);
            let lsn = self.reserve();
            self.finish(lsn);
            self.wait(lsn + LEN);
            self.locks.release_ranges(&owner);
            (from, lsn)
        }

        /// A plain write of a key in the range. Returns its LSN.
        fn write(&self, id: u64) -> Lsn {
            let writer = Owner::write(id);
            loop {
                let seen = self.locks.ranges_version();
                if self.locks.has_ranges() && self.locks.is_in_range_against(None, (0, b"b")) {
                    self.locks.await_ranges(&writer, (0, b"b"), Exclusive, NEVER).unwrap();
                    continue;
                }
                let lsn = self.reserve();
                if self.locks.ranges_version() != seen {
                    self.finish(lsn);
                    continue;
                }
                self.add(100);
                self.finish(lsn);
                self.wait(lsn);
                return lsn;
            }
        }

        /// The same for a transaction that locks the key alone, and waits for no announcement, as
        /// `drain` does where there is always one. Between the two LSNs no other write of the key
        /// may lie, and none below the first may be newer than what the stamps say.
        fn hold_key(&self, id: u64) -> (Lsn, Lsn) {
            let owner = Owner::transaction(id);
            self.locks.take(&owner, (0, b"b"), Exclusive, NEVER).unwrap();
            fence(Ordering::SeqCst);
            self.locks.overtake();
            let from = self.room.touch();
            self.wait(from);
            let of_family = self.stamps.load_word(&self.family).stamp;
            let before = self.stamps.load(Slot::at(0)).stamp.max(of_family);
            let value = self.value.load(Ordering::Relaxed);
            assert!(value < 100 || before >= START, "a write has left no stamp");
            self.value.store(value + 1, Ordering::Relaxed);
            let lsn = self.reserve();
            self.finish(lsn);
            self.wait(lsn + LEN);
            self.locks.release_all(&owner);
            (from, lsn)
        }

        /// A plain write of the key that announces itself on its slot, or on the family.
        fn write_announced(&self, id: u64, on_family: bool) -> Lsn {
            let (writer, slot) = (Owner::write(id), Slot::at(0));
            let withdraw = || match on_family {
                false => self.stamps.withdraw(slot),
                true => self.stamps.withdraw_word(&self.family),
            };
            loop {
                let seen = self.locks.ranges_version();
                let is_locked = match on_family {
                    false => self.stamps.announce(slot).unwrap().locked,
                    true => {
                        self.stamps.announce_word(&self.family).unwrap();
                        fence(Ordering::SeqCst);
                        self.stamps.load(slot).locked
                    }
                };
                if is_locked && self.locks.is_held_against(None, (0, b"b"), Exclusive) {
                    withdraw();
                    self.locks.await_key(&writer, (0, b"b"), NEVER).unwrap();
                    continue;
                }
                let lsn = self.reserve();
                if self.locks.ranges_version() != seen {
                    withdraw();
                    self.finish(lsn);
                    continue;
                }
                match on_family {
                    false => self.stamps.stamp(slot, lsn),
                    true => self.stamps.stamp_word(&self.family, lsn),
                }
                self.add(100);
                self.finish(lsn);
                self.wait(lsn);
                return lsn;
            }
        }

        fn check(&self, holds: &[(Lsn, Lsn)], write: Lsn) {
            for (from, lsn) in holds {
                let is_apart = write < *from || write > *lsn;
                assert!(is_apart, "a write at {write:#x} lies in {from:#x}..{lsn:#x}");
            }
            let value = self.value.load(Ordering::Relaxed);
            assert_eq!(value, 100 + holds.len() as u64);
            assert!(self.locks.is_free(), "nothing is left behind");
        }
    }

    /// A write into a range comes before all that its holder reads, or behind the holder's LSN.
    #[test]
    fn a_write_lies_before_or_behind_a_range_that_is_locked() {
        check(3, || {
            let world = World::new();
            let writer = {
                let world = Arc::clone(&world);
                thread::spawn(move || world.write(2))
            };
            let held = world.hold(1);
            let write = writer.join().unwrap();
            world.check(&[held], write);
        });
    }

    /// A write of a key whose locker waits for no announcement comes before all that the locker
    /// reads, or behind the locker's LSN.
    fn check_overtaken(on_family: bool) {
        check(3, move || {
            let world = World::new();
            let writer = {
                let world = Arc::clone(&world);
                thread::spawn(move || world.write_announced(2, on_family))
            };
            let held = world.hold_key(1);
            let write = writer.join().unwrap();
            world.check(&[held], write);
        });
    }

    #[test]
    fn a_write_of_a_key_lies_before_or_behind_a_locker_that_overtakes_it() {
        check_overtaken(false);
    }

    #[test]
    fn a_write_of_very_many_keys_lies_before_or_behind_a_locker_that_overtakes_it() {
        check_overtaken(true);
    }

    /// Like above, where one holder may have waited for another one.
    #[test]
    fn a_range_that_was_waited_for_is_seen_like_one_that_was_free() {
        check(3, || {
            let world = World::new();
            let writer = {
                let world = Arc::clone(&world);
                thread::spawn(move || world.write(3))
            };
            let second = {
                let world = Arc::clone(&world);
                thread::spawn(move || world.hold(2))
            };
            let first = world.hold(1);
            let (second, write) = (second.join().unwrap(), writer.join().unwrap());
            world.check(&[first, second], write);
        });
    }
}
