//! Models of the queues and the graph of waits, as shuttle runs them. Locks beside writers that
//! announce themselves are in `write/model/beside_locks.rs`.
//!
//! Waits have no timeouts in a model, so a wake-up that is missing is a deadlock, and so is a cycle
//! of waits that is not found.

use super::*;
use crate::env::model::check;
use crate::env::sync::Mutex;
use LockMode::{Exclusive, Shared};
use shuttle::thread;

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

/// The second steps before the last, which came earlier, and may hide a cycle from it.
#[test]
fn a_cycle_behind_one_that_steps_before_others_and_dies_is_found() {
    const STEPS: [Steps; 4] =
        [&[(0, S), (1, X)], &[(0, S), (0, X)], &[(1, X), (0, S)], &[(0, S), (0, X)]];
    run(20_000, &STEPS, 3);
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
                        let span = Span { lower: b"a"[..].into(), upper: Some(upper[..].into()) };
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
