//! Sealing and retiring epochs, and what is told of flushes that fail.

use super::*;
use crate::env::{Clock, SystemClock};
use crate::error::{ErrorKind, MemoryClass, StallCause};
use crate::memory::{Budget, Shares};
use crate::version::ObsoleteFiles;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

fn epochs() -> Epochs {
    Epochs::new(Arc::new(ChunkPool::new(4096, 0, 0)), 4096)
}

#[test]
fn sealing_gives_the_lsns_before_the_marker_to_the_old_epoch() {
    let epochs = epochs();
    let old = epochs.list().open.clone();
    let right = epochs.lock();
    epochs.seal(&right, || Ok::<Lsn, ()>(5040)).unwrap();
    drop(right);
    assert_eq!(epochs.owner(4999).id, old.id);
    assert_eq!(epochs.owner(5040).id, old.id + 1);
}

#[test]
fn an_epoch_is_full_of_streams_by_their_number_or_length_and_each_counts_once() {
    let obsolete = ObsoleteFiles::new();
    obsolete.shut();
    let file = |number, len| {
        let file = LiveFile::new(number, &obsolete);
        file.len_or(|| Ok(len)).unwrap();
        file
    };
    let (first, second) = (epochs().list().open.clone(), epochs().list().open.clone());
    (1..1024).for_each(|number| first.add_streams(&[file(number, 10)]));
    let last = file(1024, 10);
    assert!(!first.is_full_of_streams(1 << 20));
    first.add_streams(std::slice::from_ref(&last));
    assert!(first.is_full_of_streams(1 << 20));
    second.add_streams(&[last, file(1, 16 * 1000 - 1)]);
    assert!(!second.is_full_of_streams(1000) && second.has_streams());
    second.add_streams(&[file(2, 1)]);
    assert!(second.is_full_of_streams(1000));
    assert!(second.stream(1024).is_some() && second.stream(3).is_none());
}

#[test]
fn a_seal_without_log_room_changes_nothing() {
    let epochs = epochs();
    let right = epochs.lock();
    assert!(epochs.seal::<Lsn, ()>(&right, || Err(())).is_err());
    drop(right);
    assert_eq!(epochs.owner(9999).id, 1);
    assert!(epochs.list().sealed.is_empty());
}

#[test]
fn a_seal_that_panics_changes_nothing() {
    let epochs = epochs();
    let seal = || epochs.seal::<Lsn, ()>(&epochs.lock(), || resume_unwind(Box::new("planted")));
    assert!(catch_unwind(AssertUnwindSafe(seal)).is_err());
    assert!(epochs.list().open.owns_while_open(9999));
    assert!(epochs.list().sealed.is_empty());
}

#[test]
fn a_flush_that_succeeds_takes_back_the_failure_of_one_before() {
    let epochs = epochs();
    let right = epochs.lock();
    let (first, _) = epochs.seal(&right, || Ok::<Lsn, ()>(5040)).unwrap();
    drop(right);
    epochs.note_flush_failure(Error::would_stall(StallCause::LogFull), 0);
    assert!(epochs.check_flushes().is_err());
    epochs.retire_oldest(&first);
    epochs.check_flushes().unwrap();
}

#[test]
#[should_panic(expected = "the marker of an epoch lies in it")]
fn a_marker_before_its_epoch_is_refused() {
    let epochs = epochs();
    let _ = epochs.seal(&epochs.lock(), || Ok::<Lsn, ()>(4096));
}

#[test]
#[should_panic(expected = "epoch 1 is flushed after 1")]
fn an_epoch_is_flushed_once() {
    let epochs = epochs();
    epochs.note_flushed(1);
    epochs.note_flushed(1);
}

#[test]
fn epochs_retire_in_order() {
    let epochs = epochs();
    let right = epochs.lock();
    let (first, _) = epochs.seal(&right, || Ok::<Lsn, ()>(5040)).unwrap();
    let (second, _) = epochs.seal(&right, || Ok::<Lsn, ()>(6040)).unwrap();
    drop(right);
    epochs.retire_oldest(&first);
    epochs.retire_oldest(&second);
    assert!(epochs.list().sealed.is_empty());
}

#[test]
fn every_lsn_has_the_epoch_it_was_reserved_in() {
    let epochs = epochs();
    let open_id = || epochs.list().open.id;
    for (id, end) in [(1, 5040), (2, 6040), (3, 7040)] {
        assert_eq!((open_id(), epochs.list().open.end()), (id, Lsn::MAX));
        let (sealed, marker) = epochs.seal(&epochs.lock(), || Ok::<Lsn, ()>(end)).unwrap();
        assert_eq!((sealed.id, sealed.end(), marker), (id, end, end));
    }
    assert_eq!((open_id(), epochs.list().open.start), (4, 7040));
    for (lsn, id) in
        [(4096, 1), (5039, 1), (5040, 2), (6039, 2), (6040, 3), (7039, 3), (7040, 4), (9999, 4)]
    {
        assert_eq!(epochs.owner(lsn).id, id, "{lsn}");
    }
}

#[test]
fn an_epoch_owns_what_begins_in_it_unless_it_is_closing() {
    let epochs = epochs();
    let open = epochs.list().open.clone();
    let owned = || [4095, 4096, 4097, 9999].map(|lsn| open.owns_while_open(lsn));
    assert_eq!(owned(), [false, true, true, true]);
    let refuse = || {
        assert_eq!(owned(), [false; 4]);
        Err::<Lsn, _>("no room")
    };
    assert_eq!(epochs.seal(&epochs.lock(), refuse).err(), Some("no room"));
    assert_eq!(owned(), [false, true, true, true]);
    epochs.seal(&epochs.lock(), || Ok::<Lsn, ()>(5040)).unwrap();
    assert_eq!(owned(), [false; 4]);
}

#[test]
fn a_writer_whose_epoch_is_being_decided_waits_for_the_answer() {
    let epochs = epochs();
    std::thread::scope(|scope| {
        let (asks, is_asked) = std::sync::mpsc::channel();
        let mut writers = Vec::new();
        let reserve = || {
            for lsn in [5039, 5040] {
                let (epochs, asks) = (&epochs, asks.clone());
                writers.push(scope.spawn(move || {
                    asks.send(()).unwrap();
                    epochs.owner(lsn).id
                }));
            }
            is_asked.iter().take(2).for_each(drop);
            std::thread::sleep(Duration::from_millis(20));
            assert!(writers.iter().all(|writer| !writer.is_finished()));
            Ok::<Lsn, ()>(5040)
        };
        epochs.seal(&epochs.lock(), reserve).unwrap();
        let owners: Vec<u64> = writers.into_iter().map(|writer| writer.join().unwrap()).collect();
        assert_eq!(owners, [1, 2]);
    });
}

#[test]
fn an_epoch_has_a_memtable_for_each_family_that_asked_and_counts_their_memory() {
    let epochs = epochs();
    let epoch = epochs.list().open.clone();
    assert!(epoch.is_empty() && epoch.bytes() == 0);
    let seven = epoch.memtable(7);
    let two = epoch.memtable(2);
    assert!(!epoch.is_empty());
    assert!(Arc::ptr_eq(&seven, &epoch.memtable(7)));
    let families: Vec<FamilyId> = epoch.memtables().iter().map(|(id, _)| *id).collect();
    assert_eq!(families, [2, 7]);
    assert!(Arc::ptr_eq(&two, &epoch.memtables()[0].1));
    seven.insert(b"key", 4096, crate::format::OpKind::Put, &[7; 1000]);
    assert!(epoch.bytes() >= 1000 && epoch.bytes() == epoch.arena.allocated_bytes() as u64);
}

#[test]
fn a_memtable_has_a_filter_if_the_epoch_before_had_one_of_its_family() {
    let epochs = epochs();
    let first = epochs.list().open.clone();
    assert!([2, 7].iter().all(|family| first.memtable(*family).filter().is_none()));
    let key = |i: u64| i.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
    let put = crate::format::OpKind::Put;
    (0..1000).for_each(|i| first.memtable(7).insert(&key(i), 4096 + i, put, b""));
    epochs.seal(&epochs.lock(), || Ok::<Lsn, ()>(6000)).unwrap();
    let second = epochs.list().open.clone();
    let absent = crate::format::checksum64(b"absent");
    let lacks = |family| second.memtable(family).filter().map(|it| !it.may_hold(absent));
    assert_eq!([2, 7, 9].map(lacks), [Some(true), Some(true), None]);
    assert!(second.bytes() >= 64 * u64::from(1 + first.memtable(7).leaves()));
}

#[test]
fn a_failed_flush_is_told_until_it_is_taken() {
    let epochs = epochs();
    epochs.check_flushes().unwrap();
    assert!(epochs.take_flush_failure().is_none());
    epochs.note_flush_failure(Error::would_stall(StallCause::LogFull), 0);
    for _ in 0..2 {
        assert!(matches!(
            epochs.check_flushes().as_ref().map_err(Error::kind),
            Err(ErrorKind::WouldStall { cause: StallCause::LogFull, .. })
        ));
    }
    assert_eq!(epochs.take_flush_failure().unwrap().name(), "WOULD_STALL");
    epochs.check_flushes().unwrap();
    assert!(epochs.take_flush_failure().is_none());
}

#[test]
fn writes_pause_longer_and_longer_between_attempts_to_flush_until_one_succeeds() {
    let epochs = epochs();
    let (sealed, _) = epochs.seal(&epochs.lock(), || Ok::<Lsn, ()>(5040)).unwrap();
    let fail = |now_ns| epochs.note_flush_failure(Error::would_stall(StallCause::LogFull), now_ns);
    for now_ns in [100; FREE_FAILURES as usize] {
        fail(now_ns);
        assert!(epochs.is_retry_due(now_ns), "the want of room may be short");
    }
    for pause_ms in [10, 20, 40, 80, 160, 320, 500, 500].into_iter().chain([500; 100]) {
        fail(100);
        let due_ns = 100 + pause_ms * 1_000_000;
        assert!(!epochs.is_retry_due(due_ns - 1) && epochs.is_retry_due(due_ns), "{pause_ms}");
        assert!(epochs.check_flushes().is_err(), "meanwhile it is told");
    }
    epochs.retire_oldest(&sealed);
    fail(100);
    assert!(epochs.is_retry_due(100));
}

/// True if one of so many waits is short: a busy machine may delay a wait but not shorten it.
fn is_woken(rounds_max: usize, wake: impl Fn(&Epochs, Arc<Epoch>) + Sync) -> bool {
    let clock = SystemClock::new();
    let mut waits = (0..rounds_max).map(|_| {
        let epochs = epochs();
        let (sealed, _) = epochs.seal(&epochs.lock(), || Ok::<Lsn, ()>(5040)).unwrap();
        std::thread::scope(|scope| {
            let mut right = epochs.lock();
            scope.spawn(|| {
                // The lock is free once the waiter sleeps.
                drop(epochs.lock());
                wake(&epochs, sealed);
            });
            let began = clock.now_ns();
            epochs.wait_for_room(&mut right);
            clock.now_ns() - began
        })
    });
    waits.any(|waited_ns| waited_ns < 50_000_000)
}

#[test]
fn who_waits_for_room_is_woken_by_all_that_may_have_made_some() {
    assert!(!is_woken(2, |_, _| ()), "no call wakes it");
    assert!(is_woken(300, |epochs, _| epochs.wake_all()));
    assert!(is_woken(300, |epochs, oldest| epochs.retire_oldest(&oldest)));
    let fail =
        |epochs: &Epochs, _| epochs.note_flush_failure(Error::would_stall(StallCause::LogFull), 0);
    assert!(is_woken(300, fail));
}

#[test]
fn what_lies_in_a_large_epoch_is_not_asked_for_its_weight() {
    let (epochs, write_buffer) = (epochs(), 64 << 10);
    let end = 4096 + write_buffer;
    let (large, _) = epochs.seal(&epochs.lock(), || Ok::<Lsn, ()>(end)).unwrap();
    std::thread::scope(|scope| {
        let content = large.content.lock();
        let (tells, told) = std::sync::mpsc::channel();
        let list = epochs.list().clone();
        scope.spawn(move || tells.send(list.heavy(write_buffer, end)));
        let heavy = told.recv_timeout(Duration::from_secs(120));
        drop(content);
        assert_eq!(heavy, Ok(1), "a writer waits for a thread that reads the content");
    });
}

/// Epochs at the least ceiling, of which memtables have no more than what is reserved for them.
fn at_the_least() -> (Epochs, u64) {
    let shares = Shares::new(24 << 20, u64::MAX, 64 << 10, 16 << 10);
    let budget = Budget::new(shares.lease(), &[]);
    let charge = budget.try_charge(MemoryClass::Memtables, shares.lease()).unwrap();
    let pool = ChunkPool::leased(0, charge, &shares);
    (Epochs::new(Arc::new(pool), 4096), shares.commit_max())
}

#[test]
fn large_commits_that_wait_come_before_the_next_epoch() {
    let (epochs, large) = at_the_least();
    let first = epochs.pool().promise(large).unwrap().unwrap();
    assert!(epochs.pool().promise(large).is_err());
    let mut right = epochs.lock();
    let [one, other] = [right.enter(large), right.enter(large)];
    // What the first has spoken for comes free with no flush, so the epoch is not held up.
    drop(epochs.next_arena(&mut right).unwrap());
    assert!(right.take(one).is_none());
    drop(first);
    drop(epochs.next_arena(&mut right).unwrap());
    let promise = right.take(one).expect("it has its turn");
    right.leave(one);
    drop(epochs.next_arena(&mut right).unwrap());
    assert!(right.take(other).is_none());
    drop(promise);
    drop(epochs.next_arena(&mut right).unwrap());
    right.leave(other);
    // Who leaves without it gives it back.
    epochs.pool().promise(large).unwrap().unwrap();
}

#[test]
fn an_epoch_is_not_sealed_while_a_flush_may_give_memory_to_a_large_commit() {
    let (epochs, large) = at_the_least();
    let mut right = epochs.lock();
    let arena = epochs.next_arena(&mut right).unwrap();
    let (sealed, _) = epochs.seal_into(&right, arena, || Ok::<Lsn, ()>(5040)).unwrap();
    assert!(epochs.pool().promise(large).is_ok(), "nothing was written");
    let _held = epochs.pool().promise(large / 2).unwrap();
    let ticket = right.enter(large);
    assert!(epochs.next_arena(&mut right).is_err());
    drop(right);
    epochs.retire_oldest(&sealed);
    let mut right = epochs.lock();
    assert!(epochs.next_arena(&mut right).is_err(), "its memory is still on the way");
    drop(right);
    epochs.note_flushed(sealed.id);
    let mut right = epochs.lock();
    for passes in 0..=6 {
        assert_eq!(right.is_passed_over(ticket), passes > 5);
        drop(epochs.next_arena(&mut right).unwrap());
    }
}

#[test]
fn however_often_a_flush_has_failed_the_next_attempt_comes_after_a_pause() {
    let mut failures = Failures { count: u32::MAX, ..Failures::default() };
    failures.note(Error::planted(), 7);
    assert_eq!(failures.retry_ns, 7 + RETRY_PAUSE_NS_MAX);
}
