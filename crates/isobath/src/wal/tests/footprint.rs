//! How much disk space the log takes: little if little is written, and later no more than it needs.

use super::support::*;
use crate::env::Env;
use crate::vfs::{FileOp, MemoryFs};
use crate::wal::*;
use std::sync::Arc;

const LONG: u64 = 16 * SEGMENT_LEN;

/// The options of a log whose term starts with short segments.
fn options(home: &Home) -> LogOptions {
    LogOptions { segment_len: LONG, first_segment_len: SEGMENT_LEN, ..home.options() }
}

fn start(home: &Home) -> Log {
    Log::start(&home.env, options(home), LONG, CEILING, 1).unwrap()
}

/// Base and length of each segment in use, in units of the shortest length.
fn segments(home: &Home) -> Vec<(u64, u64)> {
    let found = inventory(&*home.env.fs, &home.path()).unwrap();
    let in_use = found.iter().filter(|info| info.kind == SegmentKind::Log);
    in_use.map(|info| (info.base / SEGMENT_LEN, info.data_len().unwrap() / SEGMENT_LEN)).collect()
}

#[test]
fn a_log_begins_with_a_short_segment_and_doubles_what_it_holds() {
    let home = Home::new();
    let log = start(&home);
    assert_eq!(segments(&home), [(16, 1)]);
    let payloads: Vec<_> = (0..90).map(|n| payload(n, 2000 + n as usize * 20)).collect();
    for payload in &payloads {
        put(&log, payload).unwrap();
    }
    assert!(log.tail() > 3 * LONG);
    let found = segments(&home);
    assert_eq!(found[..6], [(16, 1), (17, 1), (18, 2), (20, 4), (24, 8), (32, 16)], "{found:?}");
    assert!(found[6..].iter().all(|(_, len)| *len == 16), "{found:?}");
    log.sync_to(log.tail()).unwrap();
    log.close().unwrap();
    let (came_back, scanned) = home.scan_from(LONG, log.tail()).unwrap();
    assert_eq!((came_back, scanned.tail), (payloads, Tail::Clean));
}

#[test]
fn a_record_longer_than_many_short_segments_finds_room() {
    let home = Home::new();
    let log = start(&home);
    let payloads = [payload(1, 100), payload(2, 5 * LONG as usize), payload(3, 100)];
    for payload in &payloads {
        put(&log, payload).unwrap();
    }
    log.close().unwrap();
    assert_eq!(home.scan_from(LONG, log.tail()).unwrap().0, payloads);
}

#[test]
fn short_segments_are_removed_and_long_ones_written_again() {
    let home = Home::new();
    let log = start(&home);
    while log.tail() < 3 * LONG {
        put(&log, &payload(1, 3000)).unwrap();
    }
    log.retire(log.tail());
    log.discard_files();
    assert!(segments(&home).iter().all(|(_, len)| *len == 16), "{:?}", segments(&home));
    while log.tail() < 7 * LONG {
        put(&log, &payload(1, 3000)).unwrap();
    }
    log.close().unwrap();
    assert!(log.stats().segments_recycled > 0, "{:?}", log.stats());
}

/// The flusher retires segments while writers wait for it, and removing a large file takes long.
#[test]
fn who_retires_segments_removes_no_file() {
    let home = Home::in_memory();
    let fs = MemoryFs::new();
    let env = Env { fs: Arc::new(fs.clone()), ..Env::system() };
    let log = Log::start(&env, options(&home), LONG, CEILING, 1).unwrap();
    while log.tail() < 3 * LONG {
        put(&log, &payload(1, 3000)).unwrap();
    }
    let removed = fs.tried(FileOp::Remove);
    log.retire(log.tail());
    assert_eq!(fs.tried(FileOp::Remove), removed);
    log.discard_files();
    assert!(fs.tried(FileOp::Remove) > removed);
    log.close().unwrap();
}

#[test]
fn a_term_after_one_that_wrote_much_begins_with_a_long_segment() {
    let home = Home::new();
    let log = start(&home);
    while log.tail() < 6 * LONG {
        put(&log, &payload(1, 3000)).unwrap();
    }
    drop(log);
    let term_start = 64 * LONG;
    let log = Log::start(&home.env, options(&home), term_start, CEILING, 2).unwrap();
    assert_eq!(segments(&home).last(), Some(&(64 * 16, 16)));
    log.retire(term_start);
}

#[test]
fn a_term_begins_with_a_short_segment_if_the_disk_has_no_room_for_a_long_one() {
    let home = Home::in_memory();
    let fs = MemoryFs::new();
    let env = Env { fs: Arc::new(fs.clone()), ..Env::system() };
    let log = Log::start(&env, options(&home), LONG, CEILING, 1).unwrap();
    while log.tail() < 6 * LONG {
        put(&log, &payload(1, 3000)).unwrap();
    }
    drop(log);
    let found = || inventory(&fs, &home.path()).unwrap();
    let used: u64 = found().iter().map(|info| info.file_len).sum();
    fs.set_capacity(used + LONG);
    let log = Log::start(&env, options(&home), 64 * LONG, CEILING, 2).unwrap();
    assert_eq!(found().last().unwrap().data_len(), Some(SEGMENT_LEN));
    log.retire(64 * LONG);
    put(&log, &payload(1, 3000)).unwrap();
    log.close().unwrap();
}

#[test]
fn spares_that_are_not_needed_for_a_while_are_given_up() {
    let home = Home::new();
    let log = home.start();
    while log.tail() < START + 6 * SEGMENT_LEN {
        put(&log, &payload(1, 500)).unwrap();
    }
    log.retire(log.tail());
    log.thin_out_spares();
    log.discard_files();
    assert!(!home.names(".spare").is_empty(), "they have just come");
    // The preparer may have taken a spare. That spare counts as needed, and keeps its old name
    // until it is ready.
    let mut left = 10_000;
    while !home.names(".spare").is_empty() {
        log.thin_out_spares();
        log.discard_files();
        std::thread::sleep(std::time::Duration::from_millis(10));
        left -= 1;
        assert!(left > 0, "{:?}", home.names(".spare"));
    }
    for _ in 0..100 {
        put(&log, &payload(1, 500)).unwrap();
    }
}

#[test]
fn a_clean_close_removes_segments_that_were_prepared_and_not_reached() {
    let home = Home::new();
    let log = home.start();
    // Less than half a segment is left, so the next one is prepared.
    put(&log, &payload(1, 3000)).unwrap();
    let began = std::time::Instant::now();
    while segments(&home).len() < 2 {
        assert!(began.elapsed().as_secs() < 60, "no segment is prepared ahead");
        std::thread::yield_now();
    }
    log.close().unwrap();
    assert_eq!(segments(&home), [(1, 1)]);
}

#[test]
fn a_clean_close_leaves_the_segments_up_to_the_tail_and_nothing_else() {
    let home = Home::new();
    let log = home.start();
    while log.tail() < START + 6 * SEGMENT_LEN {
        put(&log, &payload(1, 500)).unwrap();
    }
    log.retire(START + 3 * SEGMENT_LEN);
    let from = log.tail();
    put(&log, b"last").unwrap();
    log.close().unwrap();
    assert_eq!((home.names(".spare"), home.names(".new")), (vec![], vec![]));
    let last = log.tail() / SEGMENT_LEN;
    assert_eq!(segments(&home), (4..=last).map(|base| (base, 1)).collect::<Vec<_>>());
    assert_eq!(home.scan_from(from, log.tail()).unwrap().0, [b"last"]);
}
