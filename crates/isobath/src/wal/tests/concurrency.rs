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
    let (writing, retired) = (AtomicU64::new(threads), AtomicU64::new(START));
    let mut from = START;
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (log, writing, retired) = (&log, &writing, &retired);
            scope.spawn(move || {
                for n in 0..each {
                    // Or all would be written before the first segments come back.
                    while n == each / 2 && retired.load(Ordering::SeqCst) < START + 2 * SEGMENT_LEN
                    {
                        std::thread::yield_now();
                    }
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
            retired.store(from, Ordering::SeqCst);
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

#[test]
fn small_records_go_on_while_the_segments_of_a_long_one_are_made() {
    const AHEAD: u64 = 2048;
    let home = Home::in_memory();
    let log = home.start();
    let inner = log.take_over();
    std::thread::scope(|scope| {
        let long = scope.spawn(|| put(&log, &payload(1, 30 * SEGMENT_LEN as usize)));
        while !inner.room.has_waiters() {
            std::thread::yield_now();
        }
        let mut made = Vec::new();
        for _ in 0..20 {
            inner.prepare_next(&mut made, AHEAD).unwrap();
        }
        assert!(made.len() >= 19, "none of them can be taken back once it is installed");
        for n in 0..40 {
            while !log.has_room_at(log.tail() + AHEAD) {
                inner.prepare_next(&mut made, AHEAD).unwrap();
            }
            put(&log, &payload(n, 500)).unwrap();
            assert!(!made.is_empty() && inner.room.has_waiters());
        }
        let behind = log.tail();
        while inner.room.has_waiters() {
            if inner.room.wants_segments(AHEAD).is_some() {
                inner.prepare_next(&mut made, AHEAD).unwrap();
            }
        }
        assert!(made.is_empty());
        assert_eq!(long.join().unwrap().unwrap().0, behind);
    });
}

#[test]
fn a_close_while_the_segments_of_a_long_record_are_made_leaves_none_of_them() {
    let home = Home::in_memory();
    let log = home.start();
    put(&log, b"first").unwrap();
    home.faults.sync_is_held.store(true, Ordering::SeqCst);
    std::thread::scope(|scope| {
        let long = scope.spawn(|| put(&log, &payload(1, 200 * SEGMENT_LEN as usize)));
        while home.faults.syncs_begun.load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
        let close = scope.spawn(|| log.close());
        assert_eq!(long.join().unwrap().unwrap_err().name(), "CLOSED");
        home.faults.sync_is_held.store(false, Ordering::SeqCst);
        close.join().unwrap().unwrap();
    });
    let left = inventory(&*home.env.fs, &home.path()).unwrap();
    assert!(left.iter().all(|info| info.base <= log.tail()), "{left:?}");
    assert!(left.iter().all(|info| info.kind == SegmentKind::Log), "{left:?}");
}
