//! Many writers at once.

use super::support::*;
use crate::env::sync::atomic::*;
use crate::wal::*;

fn writers(threads: u64, each: u64, sync_every: Option<u64>) {
    let home = Home::new();
    let options = LogOptions { segment_len: 1 << 16, ..home.options() };
    let log = Log::start(&home.env, options, 1 << 16, CEILING, 1).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let log = &log;
            scope.spawn(move || {
                for n in 0..each {
                    let mut payload = (thread << 32 | n).to_le_bytes().to_vec();
                    payload.resize(8 + ((thread * 7 + n * 13) % 300) as usize, thread as u8);
                    let (_, end) = put(log, &payload).unwrap();
                    assert!(log.visible() >= end && log.copied() >= end);
                    if sync_every.is_some_and(|every| n % every == 0) {
                        log.sync_to(end).unwrap();
                        assert!(log.durable() >= end);
                    }
                }
            });
        }
    });
    log.close().unwrap();
    assert_eq!(log.durable(), log.tail());
    let (found, scanned) = home.scan_from(1 << 16, log.tail()).unwrap();
    assert_eq!(scanned.tail, Tail::Clean);
    assert_eq!(found.len() as u64, threads * each);
    let mut next = vec![0; threads as usize];
    for payload in found {
        let id = u64::from_le_bytes(payload[..8].try_into().unwrap());
        let (thread, n) = ((id >> 32) as usize, id & 0xffff_ffff);
        assert_eq!(n, next[thread], "a thread's records stand in its order");
        next[thread] += 1;
        assert!(payload[8..].iter().all(|byte| *byte == thread as u8));
    }
}

#[test]
fn every_record_of_many_writers_is_there_once_and_in_order() {
    for threads in [1, 2, 4, 16, 32] {
        writers(threads, 6000 / threads, None);
    }
}

#[test]
fn writers_that_sync_share_the_syncs() {
    writers(8, 200, Some(1));
    writers(4, 300, Some(5));
}

/// Writes records up to ten segments long among small ones, while old ones are synced and recycled.
fn recycle(home: &Home, threads: u64, each: u64) {
    let log = home.start();
    let writing = AtomicU64::new(threads);
    let mut from = START;
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (log, writing) = (&log, &writing);
            scope.spawn(move || {
                for n in 0..each {
                    let long = (thread + n) % 29 == 0;
                    put(log, &payload(thread, if long { 40_000 } else { 300 })).unwrap();
                }
                writing.fetch_sub(1, Ordering::SeqCst);
            });
        }
        while writing.load(Ordering::SeqCst) > 0 {
            let copied = log.copied();
            log.sync_to(copied).unwrap();
            log.retire(from);
            from = copied;
        }
    });
    log.close().unwrap();
    assert!(log.stats().segments_recycled > 0);
    let (found, scanned) = home.scan_from(from, log.tail()).unwrap();
    assert_eq!((scanned.end, scanned.tail), (log.tail(), Tail::Clean));
    for found in found {
        let thread = (0..8).find(|thread| found.starts_with(&payload(*thread, 8))).unwrap();
        assert_eq!(found, payload(thread, found.len()));
    }
}

#[test]
fn segments_are_recycled_under_the_feet_of_many_writers() {
    recycle(&Home::new(), 8, 150);
}

/// The same in memory, so that Miri can run it:
/// `MIRIFLAGS=-Zmiri-disable-isolation cargo +nightly miri test --lib
/// wal::tests::concurrency::in_memory`
#[test]
fn in_memory_too() {
    let (threads, each) = if cfg!(miri) { (3, 8) } else { (8, 150) };
    recycle(&Home::in_memory(), threads, each);
}
