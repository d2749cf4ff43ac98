//! Models of locks beside writes: of the bit that says `locked` beside writers that announce, of
//! ranges beside writers that look for them twice, and of lockers that wait for no announcement.
//!
//! Lockers are written after these functions, which need a whole database to name owners and to
//! tell of refusals: `Bench::lock` after `KeyLocks::take`, `Bench::hold_range` after
//! `KeyLocks::take_range`. The gate is open all the time, as `KeyLocks::hold_gate` keeps it.
//!
//! These bugs were planted in the engine, and found by loom. Of the bit: no fence between it and
//! the word of a family, in `try_make` or `drain`; a commit on the family's word that does not look
//! for locks; a writer that ignores the bit, or the key in the map. Of `Announcement`: one that is
//! not taken back where a key is held, or where it is overtaken; one that is not overtaken; a stamp
//! that is left out, on a slot or on the family. Of `drain`: no wait for announcements, nor for
//! what is stamped to be visible; no overtaking, or one after the tail is touched; a tail that is
//! only loaded; no wait for what was reserved before; words as they were before that wait. Of
//! ranges: a writer that does not look for them; a grace that waits for nothing, or only loads the
//! tail. A reservation that comes before the announcement, and one that goes on though it is not
//! settled.
//!
//! Earlier ones, with the same locks: a first locked key that does not set the bit; a key that
//! clears it for another one when it is released; a stamp that clears it; a version that does not
//! change, or changes after the range is granted; a holder that gives the range up before it has
//! its LSN.
//!
//! Not found: a version that is read once the commit is announced, before it looks for locks.

use super::*;
use crate::env::sync::atomic::{AtomicU64, Ordering};
use crate::lock::Span;
#[cfg(loom)]
use crate::write::drain::{Around, Changed, drain};
use LockMode::Exclusive;

/// Keys of one slot, and of one range.
const KEYS: [&[u8]; 2] = [b"a", b"b"];

/// Each key has a number that is read and written without synchronization.
struct Bench {
    world: World,
    values: [AtomicU64; 2],
}

impl Bench {
    fn new() -> Arc<Bench> {
        let world = World::new(1, 1 << 16);
        world.open_gate();
        Arc::new(Bench { world, values: Default::default() })
    }

    fn value(&self, at: usize) -> u64 {
        self.values[at].load(Ordering::Relaxed)
    }

    fn add(&self, at: usize, more: u64) {
        self.values[at].store(self.value(at) + more, Ordering::Relaxed);
    }

    /// A plain write of a key that adds 100. Returns its LSN.
    fn write(&self, id: u64, at: usize, on_family: bool) -> Lsn {
        let mut writer = Writer::new(&self.world, id, KEYS[at], on_family);
        self.world.write(&mut writer, World::reserve, || self.add(at, 100))
    }

    /// A commit that adds 1. Returns its LSN once it is visible.
    fn commit(&self, at: usize) -> Lsn {
        self.add(at, 1);
        let lsn = self.world.reserve().start;
        self.world.log().wait_predecessors(lsn + LEN).unwrap();
        lsn
    }

    /// A transaction that relies on the range and writes into it. Returns two LSNs between which no
    /// other write into it may lie: what it waited for, and its own.
    fn hold_range(&self, id: u64) -> (Lsn, Lsn) {
        let (owner, locks) = (Owner::transaction(id), &self.world.locks);
        let span = Span { lower: KEYS[0].into(), upper: Some(b"c"[..].into()) };
        locks.take_range(&owner, (DEFAULT_FAMILY, &span), Exclusive, NEVER).unwrap();
        let from = self.world.log().grace().unwrap();
        let lsn = self.commit(1);
        locks.release_ranges(&owner);
        (from, lsn)
    }

    /// Fails unless each write is in the value, and lies before or behind each holder.
    fn check(&self, at: usize, holds: &[(Lsn, Lsn)], writes: &[Lsn]) {
        for (from, lsn) in holds {
            let is_apart = |write: &Lsn| write < from || write > lsn;
            assert!(writes.iter().all(is_apart), "{writes:x?} beside {from:#x}..{lsn:#x}");
        }
        assert_eq!(self.value(at), (100 * writes.len() + holds.len()) as u64);
        assert!(self.world.locks.is_free(), "nothing is left behind");
    }
}

fn spawn<R: Send + 'static>(
    bench: &Arc<Bench>,
    body: impl FnOnce(&Bench) -> R + Send + 'static,
) -> thread::JoinHandle<R> {
    let bench = Arc::clone(bench);
    thread::spawn(move || body(&bench))
}

#[cfg(shuttle)]
#[test]
fn a_writer_sees_each_range_also_one_that_was_waited_for() {
    check(20_000, || {
        let bench = Bench::new();
        let writer = spawn(&bench, |bench| [(); 8].map(|()| bench.write(1, 1, false)));
        let holders =
            [2, 3].map(|id| spawn(&bench, move |bench| [(); 2].map(|()| bench.hold_range(id))));
        let holds = holders.map(|holder| holder.join().unwrap());
        bench.check(1, holds.as_flattened(), &writer.join().unwrap());
    });
}

#[cfg(loom)]
mod exhaustive {
    use super::*;

    /// What a task does to a key.
    #[derive(Clone, Copy)]
    enum Task {
        /// Adds 1 under the lock on the key.
        Lock(usize),
        /// Adds 100, announced on the slot. At most one such task for each key.
        Write(usize),
        /// The same, announced on the word of the family.
        WriteMany(usize),
    }

    use Task::{Lock, Write, WriteMany};

    impl Bench {
        fn announced(&self) -> u32 {
            let stamps = &self.world.conflicts.stamps;
            stamps.load(Slot::at(0)).pending + stamps.load_word(&self.world.family.changed).pending
        }

        /// Locks a key. One that is `patient` lets those end that are announced; else it soon has
        /// them look for locks again.
        fn lock(&self, owner: &Arc<Owner>, at: usize, patient: bool) -> Changed {
            let World { conflicts, locks, family, .. } = &self.world;
            let around = Around { conflicts, locks, log: self.world.log() };
            let key = (DEFAULT_FAMILY, KEYS[at]);
            locks.take_anew(owner, key, Exclusive, NEVER).unwrap();
            let version = locks.ranges_version();
            let pause = || {
                if patient || locks.ranges_version() != version {
                    spin_hint();
                }
            };
            let words = (self.world.slot_of(KEYS[at]), &family.changed);
            drain(around, words, || Ok(()), pause).unwrap()
        }

        fn lock_and_add(&self, id: u64, at: usize) {
            let owner = Owner::transaction(id);
            self.lock(&owner, at, true);
            self.add(at, 1);
            self.world.locks.release_all(&owner);
        }

        /// A transaction that locks the second key and waits for no announcement. Returns two LSNs
        /// between which no other write of the key may lie. None below the first may be newer than
        /// what the stamps say.
        fn hold_key(&self, id: u64) -> (Lsn, Lsn) {
            let owner = Owner::transaction(id);
            let changed = self.lock(&owner, 1, false);
            let from = self.world.visible.at();
            let is_known = self.value(1) < 100 || !changed.is_before(START);
            assert!(is_known, "a write has left no stamp");
            let lsn = self.commit(1);
            self.world.locks.release_all(&owner);
            (from, lsn)
        }

        fn run(&self, id: u64, task: Task) {
            match task {
                Lock(at) => self.lock_and_add(id, at),
                Write(at) => _ = self.write(id, at, false),
                WriteMany(at) => _ = self.write(id, at, true),
            }
        }
    }

    fn run(tasks: &'static [Task], preemptions: usize) {
        check(preemptions, move || {
            let bench = Bench::new();
            let threads: Vec<_> = (2..)
                .zip(&tasks[1..])
                .map(|(id, task)| spawn(&bench, move |bench| bench.run(id, *task)))
                .collect();
            bench.run(1, tasks[0]);
            threads.into_iter().for_each(|thread| thread.join().unwrap());
            let added = |at| {
                let of_key = tasks.iter().map(move |task| match task {
                    Lock(key) if *key == at => 1,
                    Write(key) | WriteMany(key) if *key == at => 100,
                    _ => 0,
                });
                of_key.sum::<u64>()
            };
            assert_eq!([0, 1].map(|at| bench.value(at)), [0, 1].map(added));
            let is_marked = bench.world.conflicts.stamps.load(Slot::at(0)).locked;
            assert!(bench.announced() == 0 && !is_marked, "nothing is left behind");
        });
    }

    #[test]
    fn a_writer_and_a_locker_of_one_key_do_not_miss_each_other() {
        run(&[Lock(0), Write(0)], 5);
    }

    #[test]
    fn a_writer_of_very_many_keys_and_a_locker_do_not_miss_each_other() {
        run(&[Lock(0), WriteMany(0)], 5);
    }

    #[test]
    fn a_key_of_the_slot_stays_locked_when_another_is_released() {
        run(&[Lock(0), Write(1), Lock(1)], 2);
    }

    #[test]
    fn a_key_of_the_slot_stays_locked_when_another_is_written() {
        run(&[Lock(0), Write(1), Write(0)], 2);
    }

    /// A write into a range comes before all that its holder reads, or behind the holder's LSN.
    #[test]
    fn a_write_lies_before_or_behind_a_range_that_is_locked() {
        check(4, || {
            let bench = Bench::new();
            let writer = spawn(&bench, |bench| bench.write(2, 1, false));
            let held = bench.hold_range(1);
            bench.check(1, &[held], &[writer.join().unwrap()]);
        });
    }

    /// A write of a key whose locker waits for no announcement comes before all that the locker
    /// reads, or behind the locker's LSN.
    fn check_overtaken(on_family: bool) {
        check(5, move || {
            let bench = Bench::new();
            let writer = spawn(&bench, move |bench| bench.write(2, 1, on_family));
            let held = bench.hold_key(1);
            bench.check(1, &[held], &[writer.join().unwrap()]);
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
        check(2, || {
            let bench = Bench::new();
            let writer = spawn(&bench, |bench| bench.write(3, 1, false));
            let second = spawn(&bench, |bench| bench.hold_range(2));
            let holds = [bench.hold_range(1), second.join().unwrap()];
            bench.check(1, &holds, &[writer.join().unwrap()]);
        });
    }
}
