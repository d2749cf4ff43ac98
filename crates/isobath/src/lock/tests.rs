//! Tests of the rules of locks, with threads where an owner sleeps, and of random programs against
//! a simple model (`tests/drawn.rs`).

mod drawn;
mod hidden;
mod ranges;

use super::*;
use crate::env::fixtures::Stage;
use crate::env::sync::thread_id;
use crate::env::{SystemClock, Threads as _};
use LockMode::{Exclusive, Shared};
use std::thread::{Scope, ScopedJoinHandle};

const NEVER: u64 = u64::MAX;

/// The bits of two slots: keys of even length belong to one, the others to the other.
#[derive(Debug, Default)]
pub(super) struct Bits([AtomicU64; 2]);

impl Slots for Bits {
    fn slot(&self, _: FamilyId, key: &[u8]) -> usize {
        key.len() % 2
    }

    fn set_locked(&self, slot: usize) {
        assert_eq!(self.0[slot].swap(1, Ordering::SeqCst), 0, "set once");
    }

    fn clear_locked(&self, slot: usize) {
        assert_eq!(self.0[slot].swap(0, Ordering::SeqCst), 1, "cleared once");
    }
}

impl Bits {
    pub(super) fn is_locked(&self, slot: usize) -> bool {
        self.0[slot].load(Ordering::SeqCst) == 1
    }
}

impl Locks {
    /// Locks a key if that needs no wait. Ranges are not looked for.
    fn try_take(
        &self,
        owner: &Arc<Owner>,
        (family, key): (FamilyId, &[u8]),
        mode: LockMode,
    ) -> bool {
        self.take_at_once(owner, (family, key), mode).is_some()
    }
}

struct Table {
    locks: Locks,
    bits: Arc<Bits>,
}

impl Table {
    fn new() -> Table {
        Table::with_clock(Arc::new(SystemClock::new()))
    }

    fn with_clock(clock: Arc<dyn Clock>) -> Table {
        let bits = Arc::new(Bits::default());
        Table { locks: Locks::new(2, Arc::clone(&bits) as _, clock), bits }
    }

    fn take(&self, owner: &Arc<Owner>, key: &str, mode: LockMode) -> Result<(), LockRefusal> {
        self.locks.take(owner, (0, key.as_bytes()), mode, NEVER)
    }

    /// Runs `ask` in another thread, from which the owner is called from then on, and returns when
    /// it waits or has ended.
    fn ask<'s, 'e>(
        &'e self,
        scope: &'s Scope<'s, 'e>,
        owner: &Arc<Owner>,
        ask: impl FnOnce(&Locks, &Arc<Owner>) -> Result<(), LockRefusal> + Send + 's,
    ) -> ScopedJoinHandle<'s, Result<(), LockRefusal>> {
        let tickets = || self.locks.ticket.load(Ordering::Relaxed);
        let (owner, before) = (Arc::clone(owner), tickets());
        let asking = scope.spawn(move || {
            owner.note_thread();
            ask(&self.locks, &owner)
        });
        while tickets() == before && !asking.is_finished() {
            std::thread::yield_now();
        }
        asking
    }

    /// Takes a key like [`Table::ask`].
    fn queue<'s, 'e>(
        &'e self,
        scope: &'s Scope<'s, 'e>,
        owner: &Arc<Owner>,
        (key, want): (&'static str, Want),
    ) -> ScopedJoinHandle<'s, Result<(), LockRefusal>> {
        self.ask(scope, owner, move |locks, owner| {
            locks.obtain(owner, (0, key.as_bytes()), want, NEVER).map(drop)
        })
    }

    /// Gives back all that these hold, keys and ranges.
    fn release<'o>(&self, owners: impl IntoIterator<Item = &'o Arc<Owner>>) {
        for owner in owners {
            self.locks.release_all(owner);
            self.locks.release_ranges(owner);
        }
    }

    fn is_free(&self) -> bool {
        self.locks.is_free() && !self.bits.is_locked(0) && !self.bits.is_locked(1)
    }
}

/// A transaction that was last called from a thread of its own.
fn owner(id: u64) -> Arc<Owner> {
    std::thread::spawn(move || Owner::transaction(id)).join().unwrap()
}

fn holder_of(refused: Result<(), LockRefusal>) -> Option<u64> {
    match refused {
        Err(LockRefusal::Timeout { holder }) => holder,
        other => panic!("{other:?}"),
    }
}

/// The owners of a deadlock and the keys that they wait for.
fn cycle_of(refused: Result<(), LockRefusal>) -> Vec<(Option<u64>, String)> {
    let Err(LockRefusal::Deadlock { cycle }) = refused else { panic!("{refused:?}") };
    cycle.iter().map(|at| (at.owner, String::from_utf8(at.key.to_vec()).unwrap())).collect()
}

#[test]
fn shared_locks_stand_beside_each_other_and_nothing_beside_an_exclusive_one() {
    let table = Table::new();
    let owners = [owner(1), owner(2)];
    let modes = [Shared, Exclusive];
    for (first, second) in modes.iter().flat_map(|one| modes.map(|other| (*one, other))) {
        table.take(&owners[0], "k", first).unwrap();
        let is_granted = table.locks.try_take(&owners[1], (0, b"k"), second);
        assert_eq!(is_granted, first == Shared && second == Shared, "{first:?} {second:?}");
        assert!(table.locks.try_take(&owners[1], (1, b"k"), Exclusive), "another family's key");
        assert_eq!(owners[0].holds(0, b"k"), Some(first));
        table.release(&owners);
        assert!(table.is_free() && !owners[0].holds_any());
    }
}

#[test]
fn who_holds_a_key_is_granted_it_again_and_the_stronger_mode_stays() {
    let table = Table::new();
    let [one, other] = [owner(1), owner(2)];
    for mode in [Shared, Shared, Exclusive, Shared, Exclusive] {
        table.take(&one, "k", mode).unwrap();
    }
    assert_eq!((one.holds(0, b"k"), one.held_count(0)), (Some(Exclusive), 1));
    assert!(!table.locks.try_take(&other, (0, b"k"), Shared));
    table.locks.release(&one, (0, b"k"));
    table.locks.release(&one, (0, b"k"));
    assert!(table.is_free());
}

#[test]
fn a_slot_is_marked_while_any_of_its_keys_is_locked() {
    let table = Table::new();
    let owners = [owner(1), owner(2)];
    table.take(&owners[0], "a", Exclusive).unwrap();
    table.take(&owners[1], "b", Shared).unwrap();
    assert!(table.bits.is_locked(1) && !table.bits.is_locked(0));
    table.locks.release_all(&owners[0]);
    assert!(table.bits.is_locked(1), "the other key of the slot is locked");
    table.locks.release_all(&owners[1]);
    assert!(table.is_free());
}

#[test]
fn requests_are_granted_in_the_order_of_arrival() {
    let table = Table::new();
    let [first, second, third, fourth] = [owner(1), owner(2), owner(3), owner(4)];
    table.take(&first, "k", Shared).unwrap();
    std::thread::scope(|scope| {
        let exclusive = table.queue(scope, &second, ("k", Want::Hold(Exclusive)));
        let later =
            [&third, &fourth].map(|owner| table.queue(scope, owner, ("k", Want::Hold(Shared))));
        assert!(later.iter().all(|one| !one.is_finished()), "behind the exclusive request");
        table.locks.release_all(&first);
        exclusive.join().unwrap().unwrap();
        assert!(later.iter().all(|one| !one.is_finished()));
        table.locks.release_all(&second);
        later.into_iter().for_each(|one| one.join().unwrap().unwrap());
    });
    table.release([&third, &fourth]);
    assert!(table.is_free());
}

#[test]
fn who_holds_a_key_and_wants_it_alone_goes_before_those_who_hold_nothing() {
    let table = Table::new();
    let [one, other, third] = [owner(1), owner(2), owner(3)];
    table.take(&one, "k", Shared).unwrap();
    table.take(&other, "k", Shared).unwrap();
    std::thread::scope(|scope| {
        let outside = table.queue(scope, &third, ("k", Want::Hold(Exclusive)));
        let upgrade = table.queue(scope, &one, ("k", Want::Hold(Exclusive)));
        table.locks.release_all(&other);
        upgrade.join().unwrap().unwrap();
        assert_eq!((one.holds(0, b"k"), third.holds(0, b"k")), (Some(Exclusive), None));
        table.locks.release_all(&one);
        outside.join().unwrap().unwrap();
    });
    table.locks.release_all(&third);
    assert!(table.is_free());
}

#[test]
fn a_writer_comes_when_the_key_is_free_and_leaves_no_lock() {
    let table = Table::new();
    let [one, other] = [owner(1), owner(2)];
    let writer = Owner::write(3);
    table.locks.await_key(&writer, (0, b"k"), NEVER).unwrap();
    for mode in [Shared, Exclusive] {
        table.take(&one, "k", mode).unwrap();
        table.locks.await_key(&one, (0, b"k"), NEVER).unwrap();
        std::thread::scope(|scope| {
            let writer = table.queue(scope, &writer, ("k", Want::Pass(Exclusive)));
            let behind = table.queue(scope, &other, ("k", Want::Hold(Shared)));
            assert!(!writer.is_finished() && !behind.is_finished());
            table.locks.release_all(&one);
            writer.join().unwrap().unwrap();
            behind.join().unwrap().unwrap();
        });
        assert!(!writer.holds_any());
        table.locks.release_all(&other);
        assert!(table.is_free());
    }
}

#[test]
fn only_what_another_holds_is_held_against_a_writer() {
    let table = Table::new();
    let [one, other] = [owner(1), owner(2)];
    table.take(&one, "a", Shared).unwrap();
    let against = |owner: Option<&Owner>, key: &[u8], mode| {
        table.locks.is_held_against(owner, (0, key), mode)
    };
    assert!(against(None, b"a", Exclusive) && against(Some(&other), b"a", Exclusive));
    assert!(!against(None, b"a", Shared) && !against(Some(&one), b"a", Exclusive));
    assert!(!against(None, b"b", Exclusive), "another key of the slot");
    table.locks.release_all(&one);
}

#[test]
fn the_youngest_of_a_cycle_dies_and_the_error_names_the_cycle() {
    let table = Table::new();
    for is_last_to_come_younger in [true, false] {
        let [one, other] = if is_last_to_come_younger { [1, 2] } else { [2, 1] }.map(owner);
        table.take(&one, "a", Exclusive).unwrap();
        table.take(&other, "b", Exclusive).unwrap();
        std::thread::scope(|scope| {
            let first = table.queue(scope, &one, ("b", Want::Hold(Exclusive)));
            let second = table.queue(scope, &other, ("a", Want::Hold(Shared)));
            let (dead, dead_owner, lives, living) = match is_last_to_come_younger {
                true => (second, &other, first, &one),
                false => (first, &one, second, &other),
            };
            let keys = if is_last_to_come_younger { ["a", "b"] } else { ["b", "a"] };
            let told = cycle_of(dead.join().unwrap());
            assert_eq!(told, [(Some(2), keys[0].to_owned()), (Some(1), keys[1].to_owned())]);
            assert!(!lives.is_finished(), "what the victim holds is its own to give back");
            table.locks.release_all(dead_owner);
            lives.join().unwrap().unwrap();
            table.locks.release_all(living);
        });
        assert!(table.is_free());
    }
    assert_eq!(table.locks.counts().deadlocks.load(Ordering::Relaxed), 2);
}

/// No owner holds what closes the cycle.
#[test]
fn an_edge_leads_to_an_earlier_request_as_well_as_to_a_holder() {
    let table = Table::new();
    let [one, other, third] = [owner(1), owner(2), owner(3)];
    table.take(&one, "a", Shared).unwrap();
    table.take(&third, "b", Exclusive).unwrap();
    std::thread::scope(|scope| {
        let waits = table.queue(scope, &other, ("a", Want::Hold(Exclusive)));
        let behind = table.queue(scope, &third, ("a", Want::Hold(Shared)));
        let closes = table.queue(scope, &one, ("b", Want::Hold(Exclusive)));
        let told = cycle_of(behind.join().unwrap());
        let owners: Vec<_> = told.into_iter().map(|(owner, _)| owner.unwrap()).collect();
        assert_eq!(owners, [3, 2, 1]);
        table.locks.release_all(&third);
        closes.join().unwrap().unwrap();
        table.locks.release_all(&one);
        waits.join().unwrap().unwrap();
    });
    table.locks.release_all(&other);
    assert!(table.is_free());
}

#[test]
fn two_who_share_a_key_and_both_want_it_alone_are_a_deadlock() {
    let table = Table::new();
    let owners = [owner(1), owner(2)];
    for owner in &owners {
        table.take(owner, "k", Shared).unwrap();
    }
    std::thread::scope(|scope| {
        let first = table.queue(scope, &owners[0], ("k", Want::Hold(Exclusive)));
        let second = table.queue(scope, &owners[1], ("k", Want::Hold(Exclusive)));
        assert_eq!(cycle_of(second.join().unwrap()).len(), 2);
        table.locks.release_all(&owners[1]);
        first.join().unwrap().unwrap();
    });
    assert_eq!(owners[0].holds(0, b"k"), Some(Exclusive));
}

#[test]
fn waiting_for_a_holder_that_the_same_thread_called_last_is_a_deadlock_at_once() {
    let table = Table::new();
    let [holder, other] = [Owner::transaction(1), Owner::transaction(2)];
    table.take(&holder, "k", Exclusive).unwrap();
    let writer = Owner::write(3);
    let told = cycle_of(table.locks.await_key(&writer, (0, b"k"), NEVER));
    assert_eq!(told, [(None, "k".to_owned())]);
    assert_eq!(cycle_of(table.take(&other, "k", Shared)), [(Some(2), "k".to_owned())]);
    assert_eq!(table.locks.waits.count(), 0);
    // Once another thread has called it, it may go on there.
    let holder = std::thread::spawn(move || {
        holder.note_thread();
        holder
    });
    let holder = holder.join().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while table.locks.waits.count() == 0 {
                std::thread::yield_now();
            }
            table.locks.release_all(&holder);
        });
        table.take(&other, "k", Shared).unwrap();
    });
}

#[test]
fn a_cycle_through_a_thread_is_found_by_each_that_can_close_it() {
    let table = Table::new();
    // This thread called `idle` last. It then sleeps for a lock that `far` holds, and `far` waits
    // for a lock that `idle` holds.
    let idle = Owner::transaction(1);
    let far = owner(2);
    table.take(&idle, "a", Exclusive).unwrap();
    table.take(&far, "b", Exclusive).unwrap();
    let writer = Owner::write(3);
    std::thread::scope(|scope| {
        let sleeps = table.queue(scope, &far, ("a", Want::Hold(Exclusive)));
        // `far` dies: the plain write holds nothing.
        let freed = scope.spawn(|| {
            let told = cycle_of(sleeps.join().unwrap());
            assert_eq!(told, [(Some(2), "a".to_owned()), (None, "b".to_owned())]);
            table.locks.release_all(&far);
        });
        table.locks.await_key(&writer, (0, b"b"), NEVER).unwrap();
        freed.join().unwrap();
    });
    table.locks.release_all(&idle);
    assert!(table.is_free());
}

#[test]
fn a_wait_whose_time_is_up_names_a_holder_and_lets_those_behind_go_on() {
    let stage = Arc::new(Stage::default());
    let table = Table::with_clock(Arc::clone(&stage) as _);
    let [holder, waiter, behind] = [owner(1), owner(2), owner(3)];
    table.take(&holder, "k", Shared).unwrap();
    let told = table.locks.take(&waiter, (0, b"k"), Exclusive, 0);
    assert_eq!(holder_of(told), Some(1));
    // The time is up when the test says so.
    let table = Table::with_clock(Arc::clone(&stage) as _);
    table.take(&holder, "k", Shared).unwrap();
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| {
            waiter.note_thread();
            let deadline_ns = table.locks.clock.now_ns() + 50_000_000;
            table.locks.take(&waiter, (0, b"k"), Exclusive, deadline_ns)
        });
        while table.locks.waits.count() == 0 {
            std::thread::yield_now();
        }
        let behind = table.queue(scope, &behind, ("k", Want::Hold(Shared)));
        stage.sleep(Duration::from_nanos(50_000_000));
        assert_eq!(holder_of(waits.join().unwrap()), Some(1));
        behind.join().unwrap().unwrap();
    });
    assert_eq!(table.locks.counts().timeouts.load(Ordering::Relaxed), 1);
    assert!(table.locks.counts().waited_ns_max.load(Ordering::Relaxed) >= 50_000_000);
    table.release([&holder, &behind]);
    assert!(table.is_free());
}

#[test]
fn an_abort_ends_the_wait_and_every_later_one_and_lets_those_behind_go_on() {
    let table = Table::new();
    let [holder, aborted, behind] = [owner(1), owner(2), owner(3)];
    table.take(&holder, "k", Shared).unwrap();
    std::thread::scope(|scope| {
        let waits = table.queue(scope, &aborted, ("k", Want::Hold(Exclusive)));
        let behind = table.queue(scope, &behind, ("k", Want::Hold(Shared)));
        aborted.abort();
        assert_eq!(waits.join().unwrap(), Err(LockRefusal::Aborted));
        behind.join().unwrap().unwrap();
    });
    assert_eq!(table.take(&aborted, "k", Exclusive), Err(LockRefusal::Aborted));
    table.release([&holder, &behind]);
    assert!(table.is_free());
}

#[test]
fn a_close_ends_every_wait_and_refuses_later_ones() {
    let table = Table::new();
    let [holder, waiter] = [owner(1), owner(2)];
    table.take(&holder, "k", Exclusive).unwrap();
    std::thread::scope(|scope| {
        let waits = table.queue(scope, &waiter, ("k", Want::Hold(Shared)));
        table.locks.close();
        assert_eq!(waits.join().unwrap(), Err(LockRefusal::Closed));
    });
    assert_eq!(table.take(&waiter, "k", Shared), Err(LockRefusal::Closed));
    table.take(&waiter, "free", Shared).unwrap();
    table.release([&holder, &waiter]);
    assert!(table.is_free());
}

#[test]
fn a_key_is_covered_until_it_is_given_back_or_the_transaction_begins_anew() {
    let table = Table::new();
    let one = owner(1);
    one.cover(0, b"k");
    assert!(!one.is_covered(0, b"k"), "it is not held");
    table.take(&one, "k", Shared).unwrap();
    assert!(!one.is_covered(0, b"k"));
    one.cover(0, b"k");
    table.take(&one, "k", Exclusive).unwrap();
    assert!(one.is_covered(0, b"k") && !one.is_covered(1, b"k"));
    one.uncover();
    assert!(!one.is_covered(0, b"k") && one.holds(0, b"k") == Some(Exclusive));
    one.cover(0, b"k");
    table.locks.release_all(&one);
    table.take(&one, "k", Shared).unwrap();
    assert!(!one.is_covered(0, b"k"));
}

#[test]
fn threads_that_draw_keys_never_hold_one_at_once_and_never_stand_still() {
    let table = Table::new();
    let counts: [AtomicU64; 4] = Default::default();
    let ids = AtomicU64::new(1);
    std::thread::scope(|scope| {
        for seed in 0..4 {
            let (table, counts, ids) = (&table, &counts, &ids);
            scope.spawn(move || {
                let mut draw = crate::env::fixtures::Draw::new(seed);
                for _ in 0..if cfg!(miri) { 5 } else { 500 } {
                    let id = ids.fetch_add(1, Ordering::Relaxed);
                    let owner = Owner::transaction(id);
                    let keys = [draw.index(4), draw.index(4), draw.index(4)];
                    let names = ["a", "b", "cc", "dd"];
                    let locked = keys
                        .iter()
                        .take_while(|at| table.take(&owner, names[**at], Exclusive).is_ok());
                    for at in locked.copied().collect::<std::collections::BTreeSet<_>>() {
                        let seen = counts[at].load(Ordering::Relaxed);
                        std::thread::yield_now();
                        counts[at].store(seen + 1, Ordering::Relaxed);
                        assert_eq!(counts[at].load(Ordering::Relaxed), seen + 1);
                    }
                    table.locks.release_all(&owner);
                }
            });
        }
    });
    assert!(table.is_free());
    assert_ne!(thread_id(), std::thread::spawn(thread_id).join().unwrap());
}

/// The owner that enters finds a cycle whose victim no longer waits. Its search must end all the
/// same.
#[test]
fn a_wait_that_has_just_timed_out_is_no_part_of_a_deadlock() {
    let [older, younger] = [1, 2].map(Owner::transaction);
    // No thread that sleeps here has called them.
    std::thread::scope(|scope| {
        scope.spawn(|| [&older, &younger].map(|owner| owner.note_thread()));
    });
    let waits = waits::Waits::new();
    let place = |ticket| Place::of_range(0, b"key", ticket);
    let blockers = |at: &Place| vec![Arc::clone(if at.ticket == 1 { &younger } else { &older })];
    younger.begin_wait(2).unwrap();
    assert_eq!(waits.enter(&younger, place(2), &blockers), 0);
    // The owner's timeout has ended, and the owner has not left the graph yet.
    younger.sleep(&SystemClock::new(), 0).unwrap_err();
    older.begin_wait(1).unwrap();
    assert_eq!(waits.enter(&older, place(1), &blockers), 0);
    assert!(older.waits(1));
}

/// The owner that enters last stood in the queue before one that has entered, which looked no
/// further than its request.
#[test]
fn those_behind_a_request_that_fails_as_it_enters_find_the_cycle_that_it_hid() {
    for is_aborted in [false, true] {
        let [first, holder, last, late] = [1, 2, 3, 9].map(owner);
        let waits = waits::Waits::new();
        let place = |ticket| Place::of_range(0, b"key", ticket);
        let blockers = |at: &Place| {
            let blocker = match at.ticket {
                1 => &holder,
                2 => &first,
                3 if late.waits(2) => &late,
                3 => &first,
                _ => &last,
            };
            vec![Arc::clone(blocker)]
        };
        late.begin_wait(2).unwrap();
        for (ticket, owner) in [(1, &first), (4, &holder), (3, &last)] {
            owner.begin_wait(ticket).unwrap();
            assert_eq!(waits.enter(owner, place(ticket), &blockers), 0);
        }
        if is_aborted {
            late.abort();
        }
        assert_eq!(waits.enter(&late, place(2), &blockers), if is_aborted { 1 } else { 2 });
        assert!(!late.waits(2) && !last.waits(3), "the youngest of each cycle");
        assert!(first.waits(1) && holder.waits(4));
    }
}

/// How much the last of so many looks at who wait for one key or range after each other.
fn looks_of_the_last(waiters: u64, is_range: bool) -> usize {
    let table = Table::new();
    let locks = &table.locks;
    let holder = owner(1);
    let span = Span { lower: b"k".as_slice().into(), upper: None };
    match is_range {
        true => locks.take_range(&holder, (0, &span), Exclusive, NEVER).unwrap(),
        false => table.take(&holder, "k", Exclusive).unwrap(),
    }
    let slot = locks.slots.slot(0, b"k");
    let blockers = |at: &Place| match is_range {
        true => locks.ranges.blockers(0, at.ticket),
        false => locks.shard(slot).lock().blockers(&at.name, at.ticket),
    };
    let mut looks = 0;
    for id in 0..waiters {
        let owner = Owner::transaction(id + 2);
        let place = if is_range {
            let want = RangeWant::Hold(Exclusive);
            let ticket = locks.ranges.request(&owner, (0, span.clone()), want, &locks.ticket);
            Place::of_range(0, b"k", ticket.unwrap().unwrap())
        } else {
            let (want, tickets) = (Want::Hold(Exclusive), Some(&locks.ticket));
            let (mut shard, at) = (locks.shard(slot).lock(), (slot, 0, &b"k"[..]));
            match shard.request(&*locks.slots, at, &owner, want, tickets).unwrap() {
                Answer::Queued(place) => place,
                other => panic!("{other:?}"),
            }
        };
        waits::LOOKS.set(0);
        assert_eq!(locks.waits.enter(&owner, place, &blockers), 0);
        looks = waits::LOOKS.get();
    }
    looks
}

#[test]
fn who_waits_looks_at_few_requests_for_each_that_waits_before() {
    for is_range in [false, true] {
        for waiters in [100, 400] {
            let looks = looks_of_the_last(waiters, is_range);
            let allowed = waiters as usize * 20;
            assert!(looks <= allowed, "{looks} looks of {waiters} waiters, range: {is_range}");
        }
    }
}
