//! What the preparer does behind the tail. The test does it after the preparer has ended.

use super::support::*;
use crate::env::sync::{Mutex, atomic::Ordering};
use crate::format::Lsn;
use crate::wal::*;
use std::sync::Arc;

/// A sync within this many bytes of log means that another is expected.
const SYNC_MEMORY: u64 = 256 << 20;

/// Fills the log up to `end` with a skip record.
fn fill(log: &Log, end: Lsn) {
    drop(log.reserve(end - log.tail()).unwrap());
    assert_eq!(log.copied(), end);
}

#[test]
fn whole_pieces_of_each_segment_are_written_back_from_what_is_durable_on() {
    const U: u64 = SEGMENT_LEN;
    let home = Home::in_memory();
    let options = LogOptions { segment_len: 4 * U, ..home.options() };
    let log = Log::start(&home.env, options, 4 * U, CEILING, 1).unwrap();
    let inner = log.take_over();
    // The segments have the lengths U, U, 2 U and from then on 4 U, which is also the length of a
    // piece.
    while !log.has_room_at(28 * U) {
        inner.prepare_segment().unwrap();
    }
    let write_back = |from| {
        let to = inner.write_back_once(from);
        (to, std::mem::take(&mut *home.faults.written_back.lock()))
    };
    fill(&log, 8 * U - 32);
    assert_eq!(write_back(4 * U), (4 * U, vec![]), "no sync was asked for");
    log.sync_to(log.tail()).unwrap();
    assert_eq!(write_back(4 * U), (4 * U, vec![]), "no piece is whole");
    fill(&log, 8 * U + 32);
    let pieces = [U, U, 2 * U].map(|len| (HEADER_PAGE_LEN, len)).to_vec();
    assert_eq!(write_back(4 * U), (8 * U, pieces));
    for from in [8 * U, 12 * U] {
        assert_eq!(write_back(from), (from, vec![]), "it is done");
    }
    fill(&log, 17 * U);
    log.sync_to(log.tail()).unwrap();
    assert_eq!(write_back(4 * U), (16 * U, vec![]), "it is durable");
    fill(&log, 21 * U);
    assert_eq!(write_back(4 * U), (20 * U, vec![(HEADER_PAGE_LEN, 4 * U)]));
}

#[test]
fn a_piece_within_a_segment_is_written_back_at_its_place() {
    const M: u64 = 1 << 20;
    let home = Home::in_memory();
    let options = LogOptions { segment_len: 4 * M, first_segment_len: 4 * M, ..home.options() };
    let log = Log::start(&home.env, options, 4 * M, CEILING, 1).unwrap();
    let inner = log.take_over();
    while !log.has_room_at(12 * M) {
        inner.prepare_segment().unwrap();
    }
    fill(&log, 4 * M + 32);
    log.sync_to(log.tail()).unwrap();
    for (filled, from, to, expected) in [
        (6 * M + 32, 4 * M, 6 * M, vec![(0, 2 * M)]),
        (7 * M - 32, 6 * M, 6 * M, vec![]),
        (9 * M, 6 * M, 9 * M, vec![(2 * M, 2 * M), (0, M)]),
    ] {
        fill(&log, filled);
        assert_eq!(inner.write_back_once(from), to);
        let found = std::mem::take(&mut *home.faults.written_back.lock());
        let expected = expected.into_iter().map(|(at, len)| (HEADER_PAGE_LEN + at, len));
        assert_eq!(found, expected.collect::<Vec<_>>());
    }
}

#[test]
fn syncs_are_expected_for_so_many_bytes_after_the_last() {
    let home = Home::in_memory();
    let log = home.start();
    let inner = log.take_over();
    let (_, end) = put(&log, b"record").unwrap();
    assert!(!inner.has_syncs_to_expect(), "none was asked for");
    log.sync_to(end).unwrap();
    assert!(inner.has_syncs_to_expect());
    for (copied, is_expected) in [(end + SYNC_MEMORY - 32, true), (end + SYNC_MEMORY, false)] {
        inner.copied.mark(inner.copied.at(), copied);
        assert_eq!(inner.has_syncs_to_expect(), is_expected);
    }
}

#[test]
fn records_whose_pages_were_not_touched_ahead_are_counted() {
    let home = Home::in_memory();
    let log = home.start();
    let inner = log.take_over();
    while !log.has_room_at(START + 4 * SEGMENT_LEN) {
        inner.prepare_segment().unwrap();
    }
    inner.prefault();
    put(&log, &payload(1, 100)).unwrap();
    assert_eq!(log.stats().bytes_not_prefaulted, 0);
    let touched = inner.prefaulted.load(Ordering::Relaxed);
    while !log.has_room_at(touched + SEGMENT_LEN) {
        inner.prepare_segment().unwrap();
    }
    fill(&log, touched);
    put(&log, &payload(2, 100)).unwrap();
    assert_eq!(log.stats().bytes_not_prefaulted, log.tail() - touched);
}

#[test]
fn the_preparer_touches_the_pages_of_new_segments_by_itself() {
    let home = Home::in_memory();
    let log = home.start();
    let touched = || log.inner.prefaulted.load(Ordering::Relaxed);
    let first = touched();
    for n in 0..1000 {
        if touched() > first.max(log.tail()) {
            return;
        }
        put(&log, &payload(n, 1000)).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    panic!("{:#x} bytes were written, and the preparer touched nothing", log.tail() - START);
}

#[test]
fn a_segment_asks_for_its_own_room_and_for_that_of_all_that_the_log_holds() {
    const U: u64 = SEGMENT_LEN;
    let home = Home::in_memory();
    let asked = Arc::<Mutex<Vec<u64>>>::default();
    let admit_segment = {
        let asked = Arc::clone(&asked);
        Box::new(move |bytes| {
            asked.lock().push(bytes);
            Ok(())
        })
    };
    let log = home.start_with(LogOptions { admit_segment, ..home.options() });
    let inner = log.take_over();
    for _ in 0..3 {
        asked.lock().clear();
        let base = inner.room.prepared();
        inner.prepare_next(&mut Vec::new(), 64 * U).unwrap();
        assert_eq!(
            (inner.room.prepared(), &**asked.lock()),
            (base + U, &[base + 2 * U - START][..])
        );
    }
}
