//! Exhaustive models of the places where threads meet without a common lock all the way: the tail,
//! the frontier and the syncer. Loom reports a forgotten mark or sleeper as a deadlock.
//!
//! Each of these changes to the code was tried and makes a model fail: `frontier::announce` with a
//! plain store and without its fence; `Frontier::mark_ahead` that does not wait for its lap;
//! `Frontier::at` relaxed; `Syncer::finish` that hands nothing over, or that goes on after a
//! failure; `Syncer::finish` that stores what its round reached; `Room::shut` without the tail's
//! top bit; `Room::try_take` that reads the limit only once, or the tail relaxed; `Room::take_back`
//! that flips no turn, flips it before it lowers the limit, flips it twice at one tail, or does not
//! look at the tail again.

use super::frontier::Frontier;
use super::room::{Room, SLACK};
use super::syncer::Syncer;
use crate::env::Clock;
use crate::env::model::check;
use crate::env::sync::atomic::*;
use crate::error::Error;
use loom::thread;
use std::sync::Arc;

fn spawn<T>(shared: &Arc<T>, body: impl FnOnce(&T) + 'static) -> thread::JoinHandle<()>
where
    T: Send + Sync + 'static,
{
    let shared = Arc::clone(shared);
    thread::spawn(move || body(&shared))
}

/// The tail of a shut log is the end of what was handed out: each byte once, none above the limit,
/// none after the shut.
#[test]
fn nothing_is_handed_out_twice_or_after_the_shut() {
    check(4, || {
        let room = Arc::new(Room::new(64, 1 << 20));
        room.extend(64 + 96);
        let takers = [(); 2].map(|()| {
            let room = Arc::clone(&room);
            thread::spawn(move || [(); 2].map(|()| room.try_take(32, 0)))
        });
        room.shut();
        let tail = room.tail();
        let taken = takers.map(|taker| taker.join().unwrap());
        let mut starts: Vec<u64> = taken.as_flattened().iter().copied().flatten().collect();
        starts.sort_unstable();
        assert!(starts.iter().copied().eq((64..tail).step_by(32)), "{starts:?} below {tail}");
        assert!(tail <= 64 + 96 && room.tail() == tail && room.try_take(32, 0).is_none());
    });
}

/// Room that is taken back was handed to no writer, and none gets it before it is there again. That
/// holds of the last time that it is, also if it was there again in between. A writer sees the
/// segments of the room that it gets.
#[test]
fn no_writer_has_or_gets_room_that_is_taken_back() {
    const LONG: u64 = 2 * SLACK + 512;
    for times in [1, 2] {
        check(4, move || {
            let room = Arc::new(Room::new(64, 1 << 20));
            let keep = 64 + LONG;
            let installed = Arc::new(AtomicU64::new(0));
            let takers = [32, LONG].map(|len| {
                let (room, installed) = (Arc::clone(&room), Arc::clone(&installed));
                thread::spawn(move || {
                    let end = room.try_take(len, 0)? + len;
                    assert!(installed.load(Ordering::Relaxed) >= end, "no segment is there");
                    Some(end)
                })
            });
            let mut is_back = false;
            installed.store(64 + 2 * LONG, Ordering::Relaxed);
            for _ in 0..times {
                room.extend(64 + 2 * LONG);
                is_back = room.take_back(keep);
            }
            let tail = room.tail();
            let ends = takers.map(|taker| taker.join().unwrap());
            let is_within = ends.iter().flatten().all(|end| *end <= keep);
            assert!(!is_back || (is_within && tail <= keep), "{ends:?}");
            room.extend(64 + 3 * LONG);
            assert_eq!(room.try_take(LONG, 0), Some(room.tail() - LONG));
        });
    }
}

/// A thread that has published and waited sees every record below its own, whichever thread
/// finished it.
#[test]
fn a_record_that_is_passed_is_finished_with_all_before_it() {
    check(3, || {
        let done: Arc<[AtomicU64; 3]> = Arc::new(std::array::from_fn(|_| AtomicU64::new(0)));
        let frontier = Arc::new(Frontier::new(0, 8));
        let threads = [(0, 40), (40, 80)].map(|(start, end)| {
            let done = Arc::clone(&done);
            spawn(&frontier, move |frontier| {
                done[(start / 40) as usize].store(1, Ordering::Relaxed);
                frontier.mark(start, end);
                frontier.wait(end).unwrap();
                for before in 0..end / 40 {
                    assert_eq!(done[before as usize].load(Ordering::Relaxed), 1);
                }
            })
        });
        done[2].store(1, Ordering::Relaxed);
        frontier.mark(80, 120);
        frontier.wait(120).unwrap();
        assert!(done.iter().all(|done| done.load(Ordering::Relaxed) == 1));
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(frontier.at(), 120);
    });
}

/// No mark is forgotten even if no thread waits or comes after: the frontier ends at the end.
#[test]
fn the_frontier_ends_at_the_end_of_the_last_record() {
    check(4, || {
        let frontier = Arc::new(Frontier::new(0, 8));
        let threads = [(0, 40), (40, 80)]
            .map(|(start, end)| spawn(&frontier, move |frontier| frontier.mark(start, end)));
        frontier.mark(80, 120);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(frontier.at(), 120);
    });
}

/// In a ring of two slots, a record two granules ahead must wait for the record that has its slot.
#[test]
fn laps_of_the_ring_do_not_mix() {
    check(3, || {
        let frontier = Arc::new(Frontier::new(0, 2));
        let first = spawn(&frontier, |frontier| frontier.mark(0, 32));
        let second = spawn(&frontier, |frontier| {
            frontier.mark(64, 96);
            frontier.mark(96, 128);
        });
        frontier.mark(32, 64);
        frontier.wait(128).unwrap();
        first.join().unwrap();
        second.join().unwrap();
        assert_eq!(frontier.at(), 128);
    });
}

#[test]
fn an_interrupted_waiter_always_wakes() {
    check(4, || {
        let frontier = Arc::new(Frontier::new(0, 8));
        let waiter = spawn(&frontier, |frontier| {
            let _ = frontier.wait(40);
        });
        let marker = spawn(&frontier, |frontier| frontier.mark(40, 80));
        frontier.interrupt();
        waiter.join().unwrap();
        marker.join().unwrap();
        assert_eq!(frontier.at(), 0);
    });
}

struct StoppedClock;

impl Clock for StoppedClock {
    fn now_ns(&self) -> u64 {
        0
    }
    fn unix_ms(&self) -> u64 {
        0
    }
}

/// Three writers with one record each. A round covers what is copied when it begins, and a thread
/// that finds its record durable sees what the round has done.
#[test]
fn every_writer_is_covered_and_rounds_never_overlap() {
    check(3, || {
        let (copied, synced) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let syncer = Arc::new(Syncer::new(0));
        let in_round = Arc::new(AtomicBool::new(false));
        let write = {
            let (copied, synced, in_round) = (copied.clone(), synced.clone(), in_round.clone());
            move |syncer: &Syncer| {
                let end = copied.fetch_add(1, Ordering::AcqRel) + 1;
                let round = |_| {
                    assert!(!in_round.swap(true, Ordering::AcqRel), "one round at a time");
                    let reached = copied.load(Ordering::Acquire);
                    synced.store(reached, Ordering::Relaxed);
                    in_round.store(false, Ordering::Release);
                    Ok(reached)
                };
                syncer.sync_to(end, &StoppedClock, &round).unwrap();
                assert!(syncer.durable() >= end && synced.load(Ordering::Relaxed) >= end);
            }
        };
        let threads = [(); 2].map(|()| spawn(&syncer, write.clone()));
        write(&syncer);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(syncer.durable(), 3);
    });
}

/// A thread that a failed round did not cover, or that arrives later, gets an error.
#[test]
fn a_failed_round_is_the_last_and_everyone_hears_of_it() {
    check(3, || {
        let copied = Arc::new(AtomicU64::new(0));
        let failed = Arc::new(AtomicBool::new(false));
        let syncer = Arc::new(Syncer::new(0));
        let write = move |syncer: &Syncer, copied: &AtomicU64, failed: &AtomicBool| {
            let end = copied.fetch_add(1, Ordering::AcqRel) + 1;
            let outcome = syncer.sync_to(end, &StoppedClock, &|_| {
                assert!(!failed.swap(true, Ordering::AcqRel), "no round after a failure");
                Err(Error::cancelled())
            });
            assert!(outcome.is_err());
        };
        let threads = [(); 2].map(|()| {
            let (copied, failed) = (Arc::clone(&copied), Arc::clone(&failed));
            spawn(&syncer, move |syncer| write(syncer, &copied, &failed))
        });
        write(&syncer, &copied, &failed);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(syncer.durable(), 0);
    });
}

/// An LSN that became durable without a round counts, too, and `durable` never goes back. A thread
/// that finds it durable sees what the advance is based on.
#[test]
fn a_round_and_an_advance_do_not_undo_each_other() {
    check(4, || {
        let syncer = Arc::new(Syncer::new(0));
        let is_based = Arc::new(AtomicBool::new(false));
        let base = Arc::clone(&is_based);
        let advance = spawn(&syncer, move |syncer| {
            base.store(true, Ordering::Relaxed);
            syncer.advance(2);
            assert!(syncer.durable() >= 2);
        });
        let sync = spawn(&syncer, |syncer| {
            syncer.sync_to(1, &StoppedClock, &|_| Ok(1)).unwrap();
            assert!(syncer.durable() >= 1);
        });
        syncer.sync_to(1, &StoppedClock, &|_| Ok(1)).unwrap();
        assert!(syncer.durable() < 2 || is_based.load(Ordering::Relaxed));
        advance.join().unwrap();
        sync.join().unwrap();
        assert_eq!(syncer.durable(), 2);
        syncer.sync_to(3, &StoppedClock, &|_| Ok(3)).unwrap();
    });
}
