//! Models of locks: of the bit that says `locked` beside writers that announce, and of ranges
//! beside writers that look for them twice (loom); of the queues and the graph of waits (shuttle).
//!
//! Waits have no timeouts in a model, so a wake-up that is missing is a deadlock, and so is a cycle
//! of waits that is not found.
//!
//! These bugs were planted and found by loom. Of the bit: a first locked key that does not set it;
//! a key that clears it for another one when it is released; a stamp that clears it; a locker that
//! does not wait for announcements; no fence between it and the word of a family, on either side.
//! Of ranges: a version that does not change; one that changes after the range is granted; a writer
//! that does not look again; a holder that does not wait for what was reserved before, or that
//! gives the range up before it has its LSN; a tail that is touched or taken by relaxed exchanges.

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
    use crate::env::sync::atomic::AtomicBool;
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
        room: Room,
        finished: [AtomicBool; 8],
        value: AtomicU64,
    }

    impl World {
        fn new() -> Arc<World> {
            let stamps = Arc::new(Stamps::new(1, 4, START));
            stamps.load(Slot::at(0));
            let locks = Locks::new(1, stamps, Arc::new(NoClock));
            let room = Room::new(START, 1 << 20);
            room.extend(1 << 16);
            let (finished, value) = (Default::default(), AtomicU64::new(0));
            Arc::new(World { locks, room, finished, value })
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

#[cfg(shuttle)]
mod of_the_queue {
    use super::*;
    use crate::env::sync::Mutex;
    use shuttle::thread;

    struct Bits(AtomicU64);

    impl Slots for Bits {
        fn slot(&self, _: FamilyId, _: &[u8]) -> usize {
            0
        }
        fn set_locked(&self, _: usize) {
            assert_eq!(self.0.swap(1, Ordering::SeqCst), 0);
        }
        fn clear_locked(&self, _: usize) {
            assert_eq!(self.0.swap(0, Ordering::SeqCst), 1);
        }
    }

    /// Owners that hold keys `a` and `b` in each mode, as the program believes.
    type Believed = Mutex<[Vec<LockMode>; 2]>;

    /// What one task asks for, one after the other; then it gives all back. `None` passes.
    type Steps = &'static [(usize, Option<LockMode>)];

    fn run_steps(locks: &Locks, believed: &Believed, id: u64, steps: Steps) -> bool {
        const KEYS: [&[u8]; 2] = [b"a", b"b"];
        let owner = Owner::transaction(id);
        let mut held: [Option<LockMode>; 2] = [None; 2];
        let mut is_dead = false;
        for (key, mode) in steps {
            let name = (0, KEYS[*key]);
            let told = match mode {
                Some(mode) => locks.take(&owner, name, *mode, NEVER),
                None => locks.await_key(&owner, name, NEVER),
            };
            if told.is_err() {
                is_dead = true;
                break;
            }
            if let Some(mode) = mode {
                let mut believed = believed.lock();
                if let Some(before) = held[*key].replace((*mode).max(held[*key].unwrap_or(*mode))) {
                    let at = believed[*key].iter().position(|held| *held == before).unwrap();
                    believed[*key].swap_remove(at);
                }
                believed[*key].extend(held[*key]);
                let is_exclusive = believed[*key].contains(&Exclusive);
                assert!(!is_exclusive || believed[*key].len() == 1, "{:?}", *believed);
            }
        }
        for (key, held) in held.into_iter().enumerate() {
            let mut believed = believed.lock();
            if let Some(at) = believed[key].iter().position(|one| Some(*one) == held) {
                believed[key].swap_remove(at);
            }
        }
        locks.release_all(&owner);
        is_dead
    }

    /// Runs the tasks at once. Returns through `may_die` how many may end in a deadlock.
    fn run(schedules: usize, tasks: &'static [Steps], may_die: usize) {
        check(schedules, move || {
            let bits = Arc::new(Bits(AtomicU64::new(0)));
            let locks = Arc::new(Locks::new(2, Arc::clone(&bits) as _, Arc::new(NoClock)));
            let believed = Arc::new(Mutex::<[Vec<LockMode>; 2]>::default());
            let threads: Vec<_> = (1..)
                .zip(tasks)
                .map(|(id, steps)| {
                    let (locks, believed) = (Arc::clone(&locks), Arc::clone(&believed));
                    thread::spawn(move || run_steps(&locks, &believed, id, steps))
                })
                .collect();
            let dead = threads.into_iter().map(|thread| thread.join().unwrap());
            assert!(dead.filter(|is_dead| *is_dead).count() <= may_die);
            assert_eq!(bits.0.load(Ordering::SeqCst), 0);
        });
    }

    const S: Option<LockMode> = Some(Shared);
    const X: Option<LockMode> = Some(Exclusive);

    #[test]
    fn those_who_lock_in_one_order_all_come_through() {
        run(20_000, &[&[(0, X), (1, X)], &[(0, S), (1, X)], &[(0, S), (1, S)], &[(1, None)]], 0);
    }

    #[test]
    fn crossing_orders_cost_one_of_two() {
        run(20_000, &[&[(0, X), (1, X)], &[(1, X), (0, X)]], 1);
    }

    #[test]
    fn who_shares_a_key_and_wants_it_alone_goes_on_or_dies() {
        run(20_000, &[&[(0, S), (0, X)], &[(0, S), (0, X)], &[(0, X)]], 1);
    }

    /// The case of the note on edges: the second only waits, and yet it is part of the cycle.
    #[test]
    fn a_cycle_through_a_waiter_is_found() {
        run(20_000, &[&[(0, S), (1, X)], &[(0, X)], &[(1, X), (0, S)]], 2);
    }

    /// The last, which fails first, may hide a cycle from the third.
    #[test]
    fn a_cycle_behind_a_waiter_that_dies_is_found() {
        run(20_000, &[&[(0, S), (1, X)], &[(0, X)], &[(1, X), (0, S)], &[(0, X)]], 2);
    }

    #[test]
    fn a_writer_that_holds_locks_and_waits_is_part_of_the_graph() {
        run(20_000, &[&[(0, X), (1, None)], &[(1, X), (0, None)], &[(0, S), (1, S)]], 2);
    }

    /// Keys `a` and `b` lie in the range. A thread that locks one of them alone says so in `alone`.
    fn run_ranges(schedules: usize, tasks: &'static [&'static [&'static str]], may_die: usize) {
        check(schedules, move || {
            let bits = Arc::new(Bits(AtomicU64::new(0)));
            let locks = Arc::new(Locks::new(2, Arc::clone(&bits) as _, Arc::new(NoClock)));
            let alone = Arc::new(AtomicU64::new(0));
            let threads: Vec<_> = (1..)
                .zip(tasks)
                .map(|(id, steps)| {
                    let (locks, alone) = (Arc::clone(&locks), Arc::clone(&alone));
                    thread::spawn(move || {
                        let owner = Owner::transaction(id);
                        let mut told = Ok(());
                        let mut own = 0;
                        for step in steps.iter() {
                            let upper = if *step == "more" { b"d" } else { b"c" };
                            let span =
                                Span { lower: b"a"[..].into(), upper: Some(upper[..].into()) };
                            told = told.and_then(|()| match *step {
                                "range" => locks.take_range(&owner, (0, &span), Shared, NEVER),
                                "more" => locks.take_range(&owner, (0, &span), Exclusive, NEVER),
                                key => locks.take(&owner, (0, key.as_bytes()), Exclusive, NEVER),
                            });
                            if told.is_ok() && matches!(*step, "range" | "more") {
                                assert_eq!(alone.load(Ordering::SeqCst), own);
                            } else if told.is_ok() && *step < "c" {
                                alone.fetch_add(1, Ordering::SeqCst);
                                own += 1;
                            }
                        }
                        alone.fetch_sub(own, Ordering::SeqCst);
                        locks.release_all(&owner);
                        locks.release_ranges(&owner);
                        told.is_err()
                    })
                })
                .collect();
            let dead = threads.into_iter().map(|thread| thread.join().unwrap());
            assert!(dead.filter(|is_dead| *is_dead).count() <= may_die);
            assert!(locks.is_free() && bits.0.load(Ordering::SeqCst) == 0);
        });
    }

    #[test]
    fn a_range_and_the_keys_in_it_exclude_each_other() {
        run_ranges(20_000, &[&["range"], &["a"], &["b"], &["range"]], 0);
    }

    /// The key is held up more than once, so it takes a turn among the ranges.
    #[test]
    fn a_key_among_ranges_that_are_locked_one_after_the_other_comes_through() {
        run_ranges(20_000, &[&["more"], &["more"], &["more"], &["a"]], 0);
        run_ranges(20_000, &[&["more"], &["range"], &["a"], &["a"]], 0);
    }

    #[test]
    fn who_shares_a_range_and_wants_more_and_alone_goes_on_or_dies_of_another_such() {
        run_ranges(20_000, &[&["range", "more"], &["more"], &["more"], &["a"]], 0);
        run_ranges(20_000, &[&["range", "more"], &["range", "more"], &["more"]], 1);
    }

    #[test]
    fn a_cycle_over_ranges_and_keys_is_found() {
        run_ranges(20_000, &[&["range", "x"], &["x", "a"], &["a"]], 1);
        run_ranges(20_000, &[&["range", "a"], &["range", "b"]], 1);
    }

    /// The log, as a writer and one who locks a range use it: what was reserved, and what of that
    /// is done.
    #[derive(Default)]
    struct Order {
        reserved: AtomicU64,
        done: AtomicU64,
        /// Set while a locker believes that there are no writers in the range.
        is_alone: AtomicU64,
    }

    impl Order {
        fn wait_for(&self, reserved: u64) {
            while self.done.load(Ordering::SeqCst) < reserved {
                thread::yield_now();
            }
        }

        /// Locks the range, as a transaction that waits for all before it.
        fn lock(&self, locks: &Locks, id: u64) {
            let owner = Owner::transaction(id);
            let span = Span { lower: b"a"[..].into(), upper: Some(b"c"[..].into()) };
            locks.take_range(&owner, (0, &span), Exclusive, NEVER).unwrap();
            self.wait_for(self.reserved.fetch_add(0, Ordering::SeqCst));
            self.is_alone.store(1, Ordering::SeqCst);
            (0..4).for_each(|_| thread::yield_now());
            self.is_alone.store(0, Ordering::SeqCst);
            locks.release_ranges(&owner);
        }

        /// Looks for ranges before it reserves, and again behind that.
        fn write(&self, locks: &Locks, id: u64) {
            let writer = Owner::write(id);
            loop {
                let seen = locks.ranges_version();
                if locks.has_ranges() && locks.is_in_range_against(None, (0, b"b")) {
                    locks.await_ranges(&writer, (0, b"b"), Exclusive, NEVER).unwrap();
                    continue;
                }
                let nth = self.reserved.fetch_add(1, Ordering::SeqCst);
                let is_overtaken = locks.ranges_version() != seen;
                let is_alone = self.is_alone.load(Ordering::SeqCst) == 1;
                assert!(is_overtaken || !is_alone, "a write into a range that is locked");
                self.wait_for(nth);
                self.done.fetch_add(1, Ordering::SeqCst);
                if !is_overtaken {
                    return;
                }
            }
        }
    }

    #[test]
    fn a_writer_sees_each_range_also_one_that_was_waited_for() {
        check(20_000, || {
            let bits = Arc::new(Bits(AtomicU64::new(0)));
            let locks = Arc::new(Locks::new(1, bits, Arc::new(NoClock)));
            let order = Arc::new(Order::default());
            let threads: Vec<_> = (1..=3)
                .map(|id| {
                    let (locks, order) = (Arc::clone(&locks), Arc::clone(&order));
                    thread::spawn(move || match id {
                        1 => (0..8).for_each(|_| order.write(&locks, id)),
                        _ => (0..2).for_each(|_| order.lock(&locks, id)),
                    })
                })
                .collect();
            threads.into_iter().for_each(|thread| thread.join().unwrap());
            assert!(locks.is_free());
        });
    }

    #[test]
    fn an_abort_is_never_lost() {
        check(20_000, || {
            let bits = Arc::new(Bits(AtomicU64::new(0)));
            let locks = Arc::new(Locks::new(1, bits, Arc::new(NoClock)));
            let [holder, waiter] = [1, 2].map(Owner::transaction);
            locks.take(&holder, (0, b"a"), Exclusive, NEVER).unwrap();
            let waits = {
                let (locks, waiter) = (Arc::clone(&locks), Arc::clone(&waiter));
                thread::spawn(move || {
                    waiter.note_thread();
                    let told = locks.take(&waiter, (0, b"a"), Exclusive, NEVER);
                    locks.release_all(&waiter);
                    told
                })
            };
            let aborts = thread::spawn(move || waiter.abort());
            let behind = thread::spawn({
                let locks = Arc::clone(&locks);
                move || {
                    let behind = Owner::transaction(3);
                    locks.take(&behind, (0, b"a"), Shared, NEVER).unwrap();
                    locks.release_all(&behind);
                }
            });
            aborts.join().unwrap();
            assert_eq!(waits.join().unwrap(), Err(LockRefusal::Aborted));
            locks.release_all(&holder);
            behind.join().unwrap();
        });
    }
}
