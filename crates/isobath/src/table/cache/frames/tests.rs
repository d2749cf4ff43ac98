//! Frames by number: pins, evictions, stale numbers, and what is freed when.

use super::*;
use std::sync::atomic::{AtomicBool, AtomicUsize};

/// A value that counts how many of its kind there are, and knows its key.
#[derive(Debug)]
struct Counted {
    key: u64,
    alive: Arc<AtomicUsize>,
}

impl Counted {
    fn new(key: u64, alive: &Arc<AtomicUsize>) -> Counted {
        alive.fetch_add(1, Ordering::Relaxed);
        Counted { key, alive: alive.clone() }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.alive.fetch_sub(1, Ordering::Relaxed);
    }
}

fn frames() -> (Frames<u64, Counted>, Arc<AtomicUsize>) {
    (Frames::new(), Arc::default())
}

/// Puts a value into a frame, for which there may have to be more.
fn put(
    frames: &Frames<u64, Counted>,
    key: u64,
    alive: &Arc<AtomicUsize>,
) -> (u32, FrameRef<u64, Counted>) {
    frames.put(key, Counted::new(key, alive)).unwrap_or_else(|value| {
        assert!(frames.grow());
        frames.put(key, value).unwrap()
    })
}

#[test]
fn without_a_free_frame_a_value_comes_back_until_there_are_more() {
    let (frames, alive) = frames();
    let refused = frames.put(1, Counted::new(1, &alive)).unwrap_err();
    assert!(frames.grow() && frames.grow(), "the second call has nothing to do");
    for key in 1..=FIRST_LEN as u64 {
        frames.put(key, Counted::new(key, &alive)).unwrap();
    }
    let refused = frames.put(2, refused).unwrap_err();
    frames.stock.lock().is_growing = true;
    assert!(!frames.grow(), "another thread is about to");
    frames.stock.lock().is_growing = false;
    assert!(frames.grow());
    frames.put(2, refused).unwrap();
    assert_eq!(frames.made() as usize, FIRST_LEN + 1);
    frames.stock.lock().last = u32::MAX;
    assert!(!frames.grow(), "there are no more numbers");
    frames.stock.lock().last = FIRST_LEN as u32 + 1;
}

#[test]
fn a_value_is_found_by_number_and_key_until_it_is_evicted() {
    let (frames, alive) = frames();
    let (number, first) = put(&frames, 7, &alive);
    assert_eq!((number, first.key), (1, 7));
    drop(first);
    assert_eq!(frames.get(number, &7).unwrap().key, 7);
    assert!(frames.get(number, &8).is_none(), "another key");
    for unknown in [0, 2, 63, 64, 65, 1 << 20, u32::MAX] {
        assert!(frames.get(unknown, &7).is_none(), "{unknown}");
        assert!(frames.evict(unknown).is_none() && !frames.take_touch(unknown));
    }
    drop(frames.evict(number).unwrap());
    assert_eq!(alive.load(Ordering::Relaxed), 0, "no one held it");
    assert!(frames.get(number, &7).is_none() && frames.evict(number).is_none());
}

#[test]
fn a_reader_keeps_what_is_evicted_and_its_frame_is_used_again_only_then() {
    let (frames, alive) = frames();
    let (first, held) = put(&frames, 1, &alive);
    let again = held.clone();
    drop(frames.evict(first).unwrap());
    assert!(frames.get(first, &1).is_none(), "no new reader finds it");
    let (second, _) = put(&frames, 2, &alive);
    assert_ne!(first, second, "its frame is still in use");
    drop(held);
    assert_eq!((again.key, alive.load(Ordering::Relaxed)), (1, 2));
    drop(again);
    assert_eq!(alive.load(Ordering::Relaxed), 1);
    let (third, _) = put(&frames, 3, &alive);
    assert_eq!((first, frames.made()), (third, 2));
    assert!(frames.get(first, &1).is_none(), "an old number leads to another value");
    assert_eq!(frames.get(third, &3).unwrap().key, 3);
}

#[test]
fn frames_grow_by_chunks_and_each_number_keeps_its_place() {
    let (frames, alive) = frames();
    for key in 1..=1000 {
        let (number, _) = put(&frames, key, &alive);
        assert_eq!(u64::from(number), key);
    }
    for key in 1..=1000u32 {
        assert_eq!(frames.get(key, &key.into()).unwrap().key, u64::from(key));
    }
    for number in [1, 64, 65, 192, 193, 1000, u32::MAX] {
        let (chunk, place) = place_of(number);
        let len = FIRST_LEN << chunk;
        assert!((len..2 * len).contains(&place) && chunk < CHUNK_COUNT - 1, "{number}");
    }
    assert_eq!(place_of(0).0, CHUNK_COUNT - 1);
    drop(frames);
    assert_eq!(alive.load(Ordering::Relaxed), 0, "what a dropped cache held goes with it");
}

#[test]
fn a_value_outlives_the_cache_and_one_alone_needs_none() {
    let (frames, alive) = frames();
    let held: Vec<_> = (1..=100).map(|key| put(&frames, key, &alive).1).collect();
    drop(frames.evict(5));
    drop(frames);
    assert_eq!(alive.load(Ordering::Relaxed), 100);
    assert!(held.iter().zip(1..).all(|(value, key)| value.key == key));
    drop(held);
    let mut alone = FrameRef::<u64, _>::alone(Counted::new(9, &alive));
    alone.get_mut().unwrap().key = 10;
    let mut clone = alone.clone();
    assert!(alone.get_mut().is_none() && clone.get_mut().is_none(), "two hold it");
    drop(alone);
    assert_eq!(clone.get_mut().unwrap().key, 10);
    drop(clone);
    assert_eq!(alive.load(Ordering::Relaxed), 0);
}

#[test]
fn no_one_changes_a_value_that_the_cache_holds() {
    let (frames, alive) = frames();
    let (number, mut only) = put(&frames, 1, &alive);
    assert!(only.get_mut().is_none());
    drop(frames.evict(number));
    assert!(only.get_mut().is_some(), "now it is the reader's alone");
}

#[test]
fn a_number_of_another_value_uses_it_not() {
    let (frames, alive) = frames();
    let (number, _) = put(&frames, 1, &alive);
    assert!(frames.get(number, &2).is_none());
    assert!(!frames.take_touch(number));
}

#[test]
fn uses_are_counted_up_to_three() {
    let (frames, alive) = frames();
    let (number, _) = put(&frames, 1, &alive);
    assert!(!frames.take_touch(number), "putting is no use");
    for uses in 1..6 {
        for _ in 0..uses {
            assert!(frames.get(number, &1).is_some());
        }
        let taken = std::iter::from_fn(|| frames.take_touch(number).then_some(())).count();
        assert_eq!(taken, uses.min(3));
    }
    assert!(frames.get(number, &1).is_some());
    assert!(frames.take_touches(number) && !frames.take_touches(number));
}

/// Readers of old and new numbers, beside one thread that puts and evicts.
#[test]
fn readers_find_the_value_of_their_key_or_none() {
    let (frames, alive) = frames();
    let (done, found) = (AtomicBool::new(false), AtomicUsize::new(0));
    let rounds = if cfg!(miri) { 200 } else { 100_000 };
    std::thread::scope(|scope| {
        for reader in 0..3u64 {
            let (frames, done, found) = (&frames, &done, &found);
            scope.spawn(move || {
                let mut kept = VecDeque::new();
                for nth in reader.. {
                    if done.load(Ordering::Relaxed) {
                        break;
                    }
                    let (number, key) = ((nth % 9) as u32, nth % 7);
                    if let Some(value) = frames.get(number, &key) {
                        assert_eq!(value.key, key);
                        found.fetch_add(1, Ordering::Relaxed);
                        kept.push_back(value.clone());
                    }
                    if kept.len() > 3 {
                        drop(kept.pop_front());
                    }
                    assert!(kept.iter().all(|value: &FrameRef<u64, Counted>| value.key < 7));
                }
            });
        }
        let mut resident = VecDeque::new();
        for round in 0..rounds {
            let (number, new) = put(&frames, round % 7, &alive);
            assert_eq!(new.key, round % 7);
            resident.push_back(number);
            if resident.len() > 4 {
                drop(frames.evict(resident.pop_front().unwrap()).expect("it is resident"));
            }
        }
        done.store(true, Ordering::Relaxed);
    });
    assert!(found.load(Ordering::Relaxed) > 0 || cfg!(miri));
    // Readers held four values each at most, beside the one that each looked at.
    assert!(frames.made() < 64, "{}", frames.made());
    assert_eq!(alive.load(Ordering::Relaxed), 4);
    drop(frames);
    assert_eq!(alive.load(Ordering::Relaxed), 0);
}
