//! Exhaustive models of a frame: readers who pin it beside the one who evicts it and puts another
//! value in. Loom checks that no content is written while it is read, and that no value is lost.
//!
//! Each of these changes makes a model fail: a pin, the giving up of one, the store or the load of
//! `FREE`, the store of `RESIDENT`, or the look of `get_mut` with a relaxed order; a last holder
//! that does not acquire, or that drops what is resident; a frame that is pinned in any state, that
//! stays resident when it is evicted, or that is used while it is held; a key that is not compared;
//! a clone that does not count; a cache that ends and holds on to its values; a chunk whose base is
//! stored or loaded relaxed. Not found, since the evictor's own pin is given up with a release: an
//! eviction that clears `RESIDENT` relaxed.

use super::*;
use crate::env::model::check;
use loom::thread;

/// Loom reports one that is never dropped, and one that is dropped twice.
struct Tracked {
    key: u64,
    _alive: loom::sync::Arc<()>,
}

impl Tracked {
    fn new(key: u64) -> Tracked {
        Tracked { key, _alive: loom::sync::Arc::new(()) }
    }
}

type Shared = Arc<Frames<u64, Tracked>>;

/// Frames with a value of key 7 in frame 1.
fn with_one() -> Shared {
    let frames = Frames::new();
    assert!(frames.grow());
    let (number, put) = frames.put(7, Tracked::new(7)).ok().expect("there is a frame");
    assert_eq!((number, put.key), (1, 7));
    drop(put);
    Arc::new(frames)
}

fn spawn(frames: &Shared, body: impl FnOnce(&Shared) + 'static) -> thread::JoinHandle<()> {
    let frames = frames.clone();
    thread::spawn(move || body(&frames))
}

/// The last holder drops the value, and the frame is used again only then.
#[test]
fn an_evicted_value_goes_with_its_last_reader() {
    check(3, || {
        let frames = with_one();
        let reader = spawn(&frames, |frames| {
            if let Some(found) = frames.get(1, &7) {
                let again = found.clone();
                drop(found);
                assert_eq!(again.key, 7);
            }
        });
        drop(frames.evict(1).expect("the cache holds it"));
        let (number, put) = frames.put(8, Tracked::new(8)).ok().expect("there is a frame");
        assert_eq!(put.key, 8);
        assert!(number <= 2 && frames.get(1, &7).is_none());
        reader.join().unwrap();
    });
}

/// A number that is old leads to the value of its key or to none.
#[test]
fn an_old_number_leads_to_no_other_value() {
    check(3, || {
        let frames = with_one();
        let readers = [7, 8].map(|key| {
            spawn(&frames, move |frames| {
                for number in [1, 2] {
                    if let Some(found) = frames.get(number, &key) {
                        assert_eq!(found.key, key);
                    }
                }
            })
        });
        drop(frames.evict(1).expect("the cache holds it"));
        drop(frames.put(8, Tracked::new(8)).ok().expect("there is a frame"));
        readers.into_iter().for_each(|reader| reader.join().unwrap());
    });
}

/// A reader who has a number in a chunk that is just made finds it, or not.
#[test]
fn a_new_chunk_is_found_whole() {
    check(3, || {
        let frames = with_one();
        let two = frames.put(2, Tracked::new(2)).ok().expect("there is a frame");
        assert_eq!(two.0, 2, "the first chunk is full");
        let reader = spawn(&frames, |frames| {
            if let Some(found) = frames.get(3, &8) {
                assert_eq!(found.key, 8);
            }
        });
        assert!(frames.grow());
        let (number, put) = frames.put(8, Tracked::new(8)).ok().expect("there is a frame");
        assert_eq!((number, put.key), (3, 8));
        reader.join().unwrap();
    });
}

/// What readers hold when the cache ends stays until they let it go.
#[test]
fn a_value_outlives_its_cache() {
    check(3, || {
        let frames = with_one();
        let reader = spawn(&frames, |frames| {
            let found = frames.get(1, &7).expect("nothing evicts it");
            let other = thread::spawn({
                let found = found.clone();
                move || assert_eq!(found.key, 7)
            });
            drop(found);
            other.join().unwrap();
        });
        drop(frames);
        reader.join().unwrap();
    });
}

/// The one who holds a value alone may change it.
#[test]
fn a_value_is_changed_by_its_only_holder() {
    check(3, || {
        let frames = with_one();
        let mut held = frames.get(1, &7).expect("nothing evicts it");
        let other = spawn(&frames, |frames| {
            if let Some(found) = frames.get(1, &7) {
                assert_eq!(found.key, 7);
            }
        });
        drop(frames.evict(1));
        if let Some(value) = held.get_mut() {
            value.key = 9;
        }
        other.join().unwrap();
        assert!(held.get_mut().is_some());
    });
}

/// Two who put when no frame is free: one makes more, and no one loses a value or gets a frame that
/// the other has.
#[test]
fn two_who_put_while_frames_grow_share_nothing() {
    fn put(frames: &Shared, key: u64) -> Option<(u32, FrameRef<u64, Tracked>)> {
        let mut value = Tracked::new(key);
        for _ in 0..2 {
            match frames.put(key, value) {
                Ok(put) => return Some(put),
                Err(back) => value = back,
            }
            if !frames.grow() {
                break;
            }
        }
        assert_eq!(value.key, key);
        None
    }
    check(2, || {
        let frames = with_one();
        let (_, second) = frames.put(8, Tracked::new(8)).ok().expect("there is a frame");
        let others = frames.clone();
        let other = thread::spawn(move || put(&others, 9));
        let own = put(&frames, 10);
        let other = other.join().unwrap();
        match (&own, &other) {
            (Some((one, value)), Some((two, others))) => {
                assert!(one != two && (value.key, others.key) == (10, 9));
            }
            (None, None) => panic!("no one made a frame"),
            _ => {}
        }
        assert_eq!(second.key, 8);
    });
}
