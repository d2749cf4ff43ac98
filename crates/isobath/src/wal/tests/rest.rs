//! Room that is given back once the log rests.

use super::support::*;
use crate::env::Env;
use crate::env::sync::atomic::*;
use crate::error::Error;
use crate::format::Lsn;
use crate::vfs::{Fault, FileOp, MemoryFs};
use crate::wal::log::Inner;
use crate::wal::room::Room;
use crate::wal::*;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Barrier};

fn start(fs: &MemoryFs) -> (Log, PathBuf) {
    let home = Home::in_memory();
    let env = Env { fs: Arc::new(fs.clone()), ..Env::system() };
    (Log::start(&env, home.options(), START, CEILING, 1).unwrap(), home.path())
}

/// The first LSNs of the segments in use.
fn bases(fs: &MemoryFs, dir: &Path) -> Vec<Lsn> {
    let found = inventory(fs, dir).unwrap();
    let in_use = found.iter().filter(|info| info.kind == SegmentKind::Log);
    in_use.map(|info| info.base).collect()
}

/// A log whose threads have ended, with one record in its first segment and three more segments.
fn prepared(fs: &MemoryFs) -> (Log, PathBuf) {
    let (log, dir) = start(fs);
    let inner = log.take_over();
    put(&log, b"first").unwrap();
    while !log.has_room_at(START + 4 * SEGMENT_LEN - 1) {
        inner.prepare_segment().unwrap();
    }
    assert_eq!(bases(fs, &dir), [1, 2, 3, 4].map(|n| n * SEGMENT_LEN));
    (log, dir)
}

/// Lets the log rest as the preparer does.
fn rest(log: &Log, inner: &Inner) {
    log.rest_if_idle();
    log.rest_if_idle();
    inner.give_room_back();
}

/// The preparer may have read the tail before a writer moved it and the rest noted it.
#[test]
fn since_a_rest_nothing_is_written_at_a_tail_from_before_it() {
    let fs = MemoryFs::new();
    let (log, _) = start(&fs);
    let inner = log.take_over();
    put(&log, b"first").unwrap();
    let before = log.tail();
    put(&log, b"second").unwrap();
    rest(&log, inner);
    assert_eq!(inner.written_since_rest(before), 0);
    put(&log, b"third").unwrap();
    assert!(inner.written_since_rest(log.tail()) > 0);
}

#[test]
fn room_is_taken_back_unless_a_writer_has_come_near_or_the_log_is_shut() {
    let room = Room::new(4096, 1 << 20);
    room.extend(4096 + 10_000);
    let keep = 4096 + 5000;
    assert!(!room.take_back(4096 + 10_000), "there is no more");
    assert!(!room.take_back(4096 + 2047), "records that must not wait find no room");
    assert!(room.take_back(keep));
    assert_eq!((room.tail(), room.touch(), room.prepared()), (4096, 4096, keep));
    assert!(room.wants_segments(5000).is_none() && room.wants_segments(5001).is_some());
    assert_eq!((room.try_take(5001, 0), room.try_take(1000, 0)), (None, Some(4096)));
    room.extend(4096 + 20_000);
    assert_eq!(room.try_take(100, 0), Some(5096), "the turn of the tail shows nowhere");
    assert!(room.take_back(keep));
    room.extend(4096 + 20_000);
    assert!(!room.take_back(keep), "nothing was reserved since");
    assert_eq!(room.try_take(3000, 0), Some(5196));
    assert!(!room.take_back(keep), "the tail is near");
    assert!(room.take_back(8196 + 2048));
    room.extend(4096 + 20_000);
    assert_eq!(room.try_take(8, 0), Some(8196));
    room.shut();
    assert!(!room.take_back(4096 + 15_000));
    assert_eq!((room.tail(), room.try_take(8, 0)), (8204, None));
}

#[test]
fn room_is_not_taken_back_while_a_writer_waits_for_more() {
    let room = Room::new(4096, 1 << 20);
    room.extend(4096 + 10_000);
    let clock = Env::system().clock;
    let refusal = Error::cancelled;
    std::thread::scope(|scope| {
        let take = || room.take(20_000, 0, Patience::Waits, &*clock, &|| (), &refusal);
        let waiter = scope.spawn(take);
        while !room.has_waiters() {
            std::thread::yield_now();
        }
        assert!(!room.take_back(4096 + 5000));
        room.extend(4096 + 20_000);
        assert_eq!(waiter.join().unwrap().unwrap(), 4096);
    });
}

#[test]
fn a_log_at_rest_keeps_the_segment_of_its_tail_and_makes_the_others_anew() {
    let fs = MemoryFs::new();
    let (log, dir) = prepared(&fs);
    let inner = &log.inner;
    log.rest_if_idle();
    put(&log, &payload(1, 2100)).unwrap();
    log.rest_if_idle();
    inner.prefault();
    log.rest_if_idle();
    assert_eq!(bases(&fs, &dir).len(), 4, "the preparer does it");
    inner.give_room_back();
    // Of the first segment less is left than a log keeps ready.
    assert_eq!(bases(&fs, &dir), [1, 2].map(|n| n * SEGMENT_LEN));
    assert!(
        log.has_room_at(START + 2 * SEGMENT_LEN - 1) && !log.has_room_at(START + 2 * SEGMENT_LEN)
    );
    assert!(inner.prefaulted.load(Ordering::Relaxed) <= START + 2 * SEGMENT_LEN);
    let synced = fs.tried(FileOp::SyncDir);
    inner.prepare_segment().unwrap();
    assert_eq!(fs.tried(FileOp::SyncDir), synced + 2, "the removals, then the new name");
    inner.prepare_segment().unwrap();
    assert_eq!(fs.tried(FileOp::SyncDir), synced + 3);
    assert_eq!(bases(&fs, &dir), [1, 2, 3, 4].map(|n| n * SEGMENT_LEN));
    let long = payload(2, 2 * SEGMENT_LEN as usize);
    let (_, end) = put(&log, &long).unwrap();
    log.sync_to(end).unwrap();
    let mut found = Vec::new();
    let visit = &mut |_, payload: &[u8]| {
        found.push(payload.to_vec());
        Ok(())
    };
    scan(&fs.crashed(|_| 0), &dir, UUID, START, 0, visit, &mut |_, _| ()).unwrap();
    assert_eq!(found, [b"first".to_vec(), payload(1, 2100), long]);
}

#[test]
fn a_busy_log_gives_nothing_back() {
    let fs = MemoryFs::new();
    let (log, dir) = prepared(&fs);
    log.rest_if_idle();
    put(&log, &payload(1, SEGMENT_LEN as usize)).unwrap();
    log.inner.give_room_back();
    let kept = bases(&fs, &dir).len();
    log.rest_if_idle();
    log.inner.give_room_back();
    assert_eq!(bases(&fs, &dir).len(), kept, "more was written than a log keeps ready");
}

#[test]
fn a_segment_whose_file_could_not_be_removed_is_not_used_before_it_is_made_anew() {
    let fs = MemoryFs::new();
    let (log, dir) = prepared(&fs);
    let inner = &log.inner;
    for nth in 1..=3 {
        fs.inject(Fault::on(FileOp::Remove).suffix(".wal").nth(nth));
    }
    rest(&log, inner);
    assert_eq!(bases(&fs, &dir).len(), 4);
    // The others are not given up.
    assert!(
        log.has_room_at(START + 3 * SEGMENT_LEN - 1) && !log.has_room_at(START + 3 * SEGMENT_LEN)
    );
    for _ in 0..2 {
        assert_eq!(inner.prepare_segment().unwrap_err().name(), "IO");
    }
    log.check_healthy().unwrap();
    inner.prepare_segment().unwrap();
    assert!(log.has_room_at(START + 4 * SEGMENT_LEN - 1));
    let (_, end) = put(&log, &payload(2, 3 * SEGMENT_LEN as usize)).unwrap();
    log.sync_to(end).unwrap();
    let (visit, tell) = (&mut |_, _: &[u8]| Ok(()), &mut |_, _| ());
    let scanned = scan(&fs.crashed(|_| 0), &dir, UUID, START, 0, visit, tell).unwrap();
    assert_eq!((scanned.records, scanned.end), (2, end));
}

/// Writers go on at any moment of a rest.
#[test]
fn writers_lose_nothing_to_rests_that_they_interrupt() {
    const ROUNDS: usize = if cfg!(miri) { 2 } else { 100 };
    let fs = MemoryFs::new();
    let (log, dir) = start(&fs);
    let begin = Barrier::new(3);
    let write = |writer: usize| {
        let rounds = (0..ROUNDS).map(|round| {
            begin.wait();
            // The log is at rest, or is coming to rest.
            (0..round % 50).for_each(|_| std::thread::yield_now());
            let lens = [10, 3000, 100, 4000, if round % 9 == 0 { 13_000 } else { 50 }];
            lens.map(|len| {
                put(&log, &payload((len + writer) as u64, len + writer)).unwrap();
                len + writer
            })
        });
        rounds.flatten().collect::<Vec<_>>()
    };
    let mut lens = std::thread::scope(|scope| {
        let writers = [0, 1].map(|writer| {
            let write = &write;
            scope.spawn(move || write(writer))
        });
        for _ in 0..ROUNDS {
            begin.wait();
            log.rest_if_idle();
            log.rest_if_idle();
        }
        writers.map(|writer| writer.join().unwrap()).concat()
    });
    assert!(fs.tried(FileOp::Remove) > 0, "no rest gave anything back");
    log.close().unwrap();
    let mut found = Vec::new();
    let visit = &mut |_, bytes: &[u8]| {
        assert_eq!(bytes, payload(bytes.len() as u64, bytes.len()));
        found.push(bytes.len());
        Ok(())
    };
    let scanned = scan(&fs.crashed(|_| 0), &dir, UUID, START, 0, visit, &mut |_, _| ()).unwrap();
    found.sort_unstable();
    lens.sort_unstable();
    assert_eq!((found, scanned.end), (lens, log.tail()));
}
