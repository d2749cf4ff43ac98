//! Writing, reading back, recycling, and terms.

use super::support::*;
use crate::env::sync::atomic::{Ordering::Relaxed, *};
use crate::env::{Priority, SystemThreads, ThreadHandle, Threads};
use crate::vfs::FileAccess;
use crate::wal::record::record_len;
use crate::wal::*;
use std::io;
use std::sync::Arc;
use std::time::Duration;

#[test]
fn records_of_every_length_come_back_across_segments() {
    for mode in [FileAccess::Mapped, FileAccess::Positional] {
        let home = Home::new();
        let log = home.start_with(LogOptions { mode, ..home.options() });
        // From empty to longer than five segments.
        let lens = (0..64).chain([999, 4000, 4064, 4065, 4096, 9000, 22_000]);
        let payloads: Vec<_> = lens.enumerate().map(|(n, len)| payload(n as u64, len)).collect();
        let mut end = START;
        for payload in &payloads {
            let range = put(&log, payload).unwrap();
            assert_eq!(range, (end, end + record_len(payload.len() as u64)));
            end = range.1;
        }
        assert_eq!((log.tail(), log.copied(), log.visible()), (end, end, end));
        log.close().unwrap();
        assert_eq!(log.durable(), end);
        drop(log);
        let (found, scanned) = home.scan().unwrap();
        assert_eq!(found, payloads);
        assert_eq!((scanned.end, scanned.tail), (end, Tail::Clean));
    }
}

#[test]
fn what_was_acknowledged_is_there_if_the_process_dies() {
    let home = Home::new();
    let log = home.start();
    let payloads: Vec<_> = (0..300).map(|n| payload(n, 100)).collect();
    for payload in &payloads {
        put(&log, payload).unwrap();
    }
    assert_eq!(log.durable(), START, "no sync was asked for");
    assert_eq!(home.scan().unwrap().0, payloads);
    drop(log);
    assert_eq!(home.scan().unwrap().0, payloads);
}

#[test]
fn an_empty_or_absent_log_ends_where_it_begins() {
    let home = Home::new();
    std::fs::create_dir(home.path()).unwrap();
    assert_eq!(home.scan().unwrap().1, ScanEnd { end: START, records: 0, tail: Tail::Clean });
    home.start().close().unwrap();
    assert_eq!(home.scan().unwrap().1, ScanEnd { end: START, records: 0, tail: Tail::Clean });
}

#[test]
fn a_dropped_reservation_leaves_a_hole_that_no_reader_sees() {
    let home = Home::new();
    let log = home.start();
    put(&log, b"before").unwrap();
    for len in [32, 4096, 9000] {
        drop(log.reserve(len).unwrap());
    }
    let (_, end) = put(&log, b"after").unwrap();
    log.sync_to(end).unwrap();
    log.close().unwrap();
    assert_eq!(home.scan().unwrap().0, [b"before".to_vec(), b"after".to_vec()]);
}

#[test]
fn a_commit_given_up_after_its_record_was_written_poisons() {
    let home = Home::new();
    let log = home.start();
    let mut record = record_of(b"half");
    let mut record = seal(&mut record);
    let mut reservation = log.reserve(record.len() as u64).unwrap();
    reservation.write(&mut record);
    drop(reservation);
    assert_eq!(log.reserve(32).err().unwrap().name(), "POISONED");
    assert_eq!(log.wait_visible(log.tail()).unwrap_err().name(), "OUTCOME_UNKNOWN");
    assert!(log.close().is_err());
}

#[test]
fn retired_segments_are_written_again_and_their_old_records_never_read() {
    let home = Home::new();
    let log = home.start();
    // One record fills a segment, so a recycled segment still holds a whole old record.
    let whole = payload(0, SEGMENT_LEN as usize - RECORD_HEADER_LEN);
    for _ in 0..10 {
        let (start, end) = put(&log, &whole).unwrap();
        log.sync_to(end).unwrap();
        log.retire(start);
    }
    let (start, end) = put(&log, b"last").unwrap();
    log.close().unwrap();
    assert!(log.stats().segments_recycled > 3, "{:?}", log.stats());
    let (found, scanned) = home.scan_from(start, end).unwrap();
    assert_eq!(found, [b"last"]);
    assert_eq!((scanned.end, scanned.tail), (end, Tail::Clean));
    assert!(home.names(".spare").len() <= 4);
    assert!(home.names(".wal").len() <= 5);
}

#[test]
fn a_retired_segment_takes_no_name_that_a_spare_has() {
    let home = Home::new();
    std::fs::create_dir(home.path()).unwrap();
    // Files that an earlier term prepared and never used, one of them where this term starts.
    for n in 0..3 {
        let name = format!("{:016x}.wal", START + n * SEGMENT_LEN);
        let bytes = vec![0xee; (HEADER_PAGE_LEN + SEGMENT_LEN) as usize];
        std::fs::write(home.path().join(name), bytes).unwrap();
    }
    let log = home.start();
    let whole = payload(0, SEGMENT_LEN as usize - RECORD_HEADER_LEN);
    let (_, end) = put(&log, &whole).unwrap();
    assert_eq!(home.names(".spare").len(), 1, "of three, two are in use");
    log.retire(end);
    assert_eq!(home.names(".spare").len(), 2, "the retired one came, none went");
    let from = log.tail();
    let payloads: Vec<_> = (1..9).map(|n| payload(n, 2000)).collect();
    for payload in &payloads {
        put(&log, payload).unwrap();
    }
    drop(log);
    assert_eq!(home.scan_from(from, 0).unwrap().0, payloads);
}

#[test]
fn what_is_retired_counts_as_durable_and_needs_no_sync() {
    let home = Home::new();
    let log = home.start();
    for n in 0..100 {
        put(&log, &payload(n, 200)).unwrap();
    }
    let names = home.names(".wal");
    log.retire(log.tail());
    log.discard_files();
    assert_eq!((log.durable(), log.stats().sync.syncs), (log.tail(), 0));
    let last = START + (log.tail() - START) / SEGMENT_LEN * SEGMENT_LEN;
    let kept = names.iter().filter(|name| home.names(".wal").contains(name));
    assert!(kept.clone().all(|name| *name >= format!("{last:016x}.wal")), "{kept:?}");
}

#[test]
fn a_segment_that_is_still_written_to_is_not_retired() {
    let home = Home::new();
    let log = home.start();
    let mut slow = record_of(b"slow");
    let mut slow = seal(&mut slow);
    let mut reservation = log.reserve(slow.len() as u64).unwrap();
    let writers = 3 * SEGMENT_LEN / 200;
    std::thread::scope(|scope| {
        for n in 0..writers {
            let log = &log;
            scope.spawn(move || put(log, &payload(n, 168)).unwrap());
        }
        while log.tail() < START + 2 * SEGMENT_LEN {
            std::thread::yield_now();
        }
        log.retire(log.tail());
        assert_eq!(log.durable(), START);
        assert!(home.names(".wal").contains(&format!("{START:016x}.wal")));
        reservation.write(&mut slow);
        reservation.publish();
    });
    log.retire(log.tail());
    assert!(!home.names(".wal").contains(&format!("{START:016x}.wal")));
}

#[test]
fn a_sync_covers_what_was_copied_before_it_began_and_no_more() {
    let home = Home::new();
    let log = home.start();
    let (_, before) = put(&log, b"before").unwrap();
    let mut late = record_of(b"late");
    let mut late = seal(&mut late);
    let mut reservation = log.reserve(late.len() as u64).unwrap();
    log.sync_to(before).unwrap();
    assert_eq!(log.durable(), before, "what is reserved is not copied");
    home.faults.sync_is_held.store(true, Ordering::SeqCst);
    reservation.write(&mut late);
    let copied = reservation.end();
    std::thread::scope(|scope| {
        let sync = scope.spawn(|| log.sync_to(copied));
        while home.faults.syncs_begun.load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
        let mut later = record_of(b"later");
        let mut later = seal(&mut later);
        let mut reservation = log.reserve(later.len() as u64).unwrap();
        reservation.write(&mut later);
        reservation.publish();
        assert!(log.copied() > copied && log.durable() == before);
        home.faults.sync_is_held.store(false, Ordering::SeqCst);
        sync.join().unwrap().unwrap();
    });
    assert_eq!(log.durable(), copied, "what was copied while it ran is not covered");
    reservation.publish();
}

/// The ranges that were synced since the last call.
fn synced_ranges(home: &Home) -> Vec<(u64, u64)> {
    std::mem::take(&mut home.faults.synced.lock())
}

#[test]
fn a_sync_covers_what_was_not_durable_and_no_more() {
    let home = Home::new();
    let log = home.start();
    for n in 0..5 {
        put(&log, &payload(n, 300)).unwrap();
    }
    let first = log.tail();
    log.sync_to(first).unwrap();
    synced_ranges(&home);
    let (_, end) = put(&log, b"next").unwrap();
    log.sync_to(end).unwrap();
    let place = |lsn: u64| HEADER_PAGE_LEN + (lsn - START);
    // The preparer may sync later segments meanwhile; those ranges begin at the header page.
    let synced = || {
        let ranges = synced_ranges(&home).into_iter();
        ranges.filter(|(offset, _)| *offset != 0).collect::<Vec<_>>()
    };
    assert_eq!(synced(), [(place(first), end - first)]);

    let len = SEGMENT_LEN as usize;
    let (start, end) = put(&log, &payload(9, len)).unwrap();
    synced_ranges(&home);
    log.sync_to(end).unwrap();
    let in_first = (place(start), START + SEGMENT_LEN - start);
    let in_second = (HEADER_PAGE_LEN, end - (START + SEGMENT_LEN));
    assert_eq!(synced(), [in_first, in_second]);
}

#[test]
fn a_segment_is_synced_whole_before_its_use_if_commits_sync_and_else_its_header_only() {
    let home = Home::new();
    let log = home.start();
    let file_len = HEADER_PAGE_LEN + SEGMENT_LEN;
    assert_eq!(
        synced_ranges(&home),
        [(0, file_len)],
        "the first, as it is not known yet whether there will be syncs"
    );
    let many = || {
        for n in 0..3 {
            put(&log, &payload(n, SEGMENT_LEN as usize)).unwrap();
        }
        synced_ranges(&home).into_iter().filter(|(offset, _)| *offset == 0).collect::<Vec<_>>()
    };
    let headers = many();
    assert!(!headers.is_empty() && headers.iter().all(|range| *range == (0, HEADER_PAGE_LEN)));
    let (_, end) = put(&log, b"synced").unwrap();
    log.sync_to(end).unwrap();
    // The preparer may have begun one of these before the sync.
    many();
    let wholes = many();
    assert!(!wholes.is_empty() && wholes.iter().all(|range| *range == (0, file_len)));
}

#[test]
fn a_new_term_leaves_the_old_one_alone_until_it_is_retired() {
    let home = Home::new();
    let log = home.start();
    let payloads: Vec<_> = (0..100).map(|n| payload(n, 150)).collect();
    for payload in &payloads {
        put(&log, payload).unwrap();
    }
    drop(log);
    std::fs::write(home.path().join("0000000000ffff00.new"), b"half").unwrap();
    let term_start = 0x10_0000;
    // A file that the old term prepared and never used has a name that the new term needs.
    let in_the_way = home.path().join(format!("{term_start:016x}.wal"));
    std::fs::write(in_the_way, vec![0xee; (HEADER_PAGE_LEN + SEGMENT_LEN) as usize]).unwrap();
    let log = Log::start(&home.env, home.options(), term_start, CEILING, 2).unwrap();
    put(&log, b"new term").unwrap();
    assert!(home.scan().unwrap_err().to_string().contains("missing"));
    assert_eq!(home.names(".new"), Vec::<String>::new());
    assert_eq!(home.scan_from(term_start, 0).unwrap().0, [b"new term"]);
    assert!(home.names(".wal").contains(&format!("{START:016x}.wal")));
    log.retire(term_start);
    assert!(!home.names(".wal").contains(&format!("{START:016x}.wal")));
    assert_eq!(home.scan_from(term_start, 0).unwrap().0, [b"new term"]);
}

#[test]
fn a_longer_segment_of_an_earlier_term_does_not_hide_the_new_one() {
    let home = Home::new();
    let long = LogOptions { segment_len: 1 << 16, first_segment_len: 1 << 16, ..home.options() };
    let log = Log::start(&home.env, long, 1 << 16, CEILING, 1).unwrap();
    put(&log, b"old").unwrap();
    drop(log);
    let term_start = (1 << 16) + 8 * SEGMENT_LEN;
    let log = Log::start(&home.env, home.options(), term_start, CEILING, 2).unwrap();
    put(&log, b"new").unwrap();
    assert!(home.scan_from(1 << 16, 0).unwrap_err().is_corruption());
    assert_eq!(home.scan_from(term_start, 0).unwrap().0, [b"new"]);
}

#[test]
fn the_ceiling_is_raised_ahead_and_never_passed() {
    let home = Home::new();
    let first = START + 2 * SEGMENT_LEN;
    let ceiling = Arc::new(AtomicU64::new(first));
    let raised = Arc::clone(&ceiling);
    let options = LogOptions {
        raise_ceiling: Box::new(move |wanted| {
            std::thread::sleep(Duration::from_millis(1));
            raised.store(wanted + 100, Ordering::SeqCst);
            Ok(wanted + 100)
        }),
        ..home.options()
    };
    let log = Log::start(&home.env, options, START, first, 1).unwrap();
    while log.tail() < START + 64 * SEGMENT_LEN {
        let (_, end) = put(&log, &payload(1, 500)).unwrap();
        assert!(end <= ceiling.load(Ordering::SeqCst));
    }
    log.close().unwrap();
}

/// While the manifest is busy, writers go on as long as they are below the ceiling.
#[test]
fn raising_the_ceiling_early_keeps_no_writer_waiting() {
    let home = Home::new();
    let manifest_is_free = Arc::new(AtomicBool::new(false));
    let (is_free, is_asked) = (Arc::clone(&manifest_is_free), Arc::new(AtomicBool::new(false)));
    let asked = Arc::clone(&is_asked);
    let options = LogOptions {
        raise_ceiling: Box::new(move |wanted| {
            asked.store(true, Ordering::SeqCst);
            while !is_free.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            Ok(wanted + CEILING)
        }),
        ..home.options()
    };
    let ceiling = START + 6 * SEGMENT_LEN;
    let log = Log::start(&home.env, options, START, ceiling, 1).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| log.raise_ceiling());
        while !is_asked.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        while log.tail() < START + 5 * SEGMENT_LEN {
            put(&log, &payload(1, 500)).unwrap();
        }
        manifest_is_free.store(true, Ordering::SeqCst);
    });
    while log.tail() < ceiling + SEGMENT_LEN {
        put(&log, &payload(1, 500)).unwrap();
    }
}

#[test]
fn nothing_is_reserved_once_a_close_has_begun() {
    for _ in 0..20 {
        let home = Home::new();
        let log = home.start();
        std::thread::scope(|scope| {
            for n in 0..4 {
                let log = &log;
                scope.spawn(move || while put(log, &payload(n, 40)).is_ok() {});
            }
            while log.tail() < START + 1000 {
                std::thread::yield_now();
            }
            log.close().unwrap();
            assert_eq!((log.tail(), log.copied()), (log.durable(), log.durable()));
        });
        assert_eq!(log.tail(), log.durable());
        assert_eq!(home.scan().unwrap().1.end, log.durable());
    }
}

#[test]
fn the_interval_syncs_without_being_asked() {
    let home = Home::new();
    let sync_interval = Some(Duration::from_millis(2));
    let log = home.start_with(LogOptions { sync_interval, ..home.options() });
    let (_, end) = put(&log, b"soon").unwrap();
    while log.durable() < end {
        std::thread::yield_now();
    }
}

#[test]
fn a_closed_log_refuses_records_and_a_second_close_does_nothing() {
    let home = Home::new();
    let log = home.start();
    put(&log, b"last").unwrap();
    log.close().unwrap();
    log.close().unwrap();
    assert!(log.reserve(32).err().unwrap().is_closed());
    assert_eq!(log.check_healthy().unwrap_err().name(), "CLOSED");
}

/// The process that opens the directory next must not meet a thread that prepares segments there.
#[test]
fn the_threads_of_a_log_have_ended_when_its_close_returns() {
    struct Slow(Arc<AtomicU64>);

    impl Threads for Slow {
        fn spawn(
            &self,
            name: String,
            priority: Priority,
            body: Box<dyn FnOnce() + Send>,
        ) -> io::Result<Box<dyn ThreadHandle>> {
            let ended = self.0.clone();
            let body = move || {
                body();
                SystemThreads.sleep(Duration::from_millis(100));
                ended.fetch_add(1, Relaxed);
            };
            SystemThreads.spawn(name, priority, Box::new(body))
        }

        fn sleep(&self, duration: Duration) {
            SystemThreads.sleep(duration);
        }

        fn parallelism(&self) -> usize {
            SystemThreads.parallelism()
        }
    }

    let (mut home, ended) = (Home::in_memory(), Arc::new(AtomicU64::new(0)));
    home.env.threads = Arc::new(Slow(ended.clone()));
    let log = home.start_with(LogOptions {
        sync_interval: Some(Duration::from_secs(3600)),
        ..home.options()
    });
    put(&log, b"last").unwrap();
    log.close().unwrap();
    assert_eq!(ended.load(Relaxed), 2, "the preparer's and the interval's");
}

#[test]
fn options_that_cannot_work_are_refused() {
    let home = Home::new();
    let start = |len, start| {
        let options = LogOptions { segment_len: len, ..home.options() };
        Log::start(&home.env, options, start, CEILING, 1).err()
    };
    for (len, at) in [(5000, 5000), (2048, 2048), (4096, 0), (4096, 4104)] {
        assert_eq!(start(len, at).unwrap().name(), "INVALID_ARGUMENT", "{len} {at}");
    }
    let log = home.start();
    let too_long = log.record_len_max() + 8;
    assert_eq!(log.reserve(too_long).err().unwrap().name(), "INVALID_ARGUMENT");
}

#[test]
fn progress_is_told_once_a_mebibyte_and_at_the_end() {
    let home = Home::new();
    let (len, start) = (1 << 19, 1 << 20);
    let long = LogOptions { segment_len: len, first_segment_len: len, ..home.options() };
    let log = Log::start(&home.env, long, start, CEILING, 1).unwrap();
    while log.tail() < start + (7 << 19) {
        put(&log, &payload(1, 50_000)).unwrap();
    }
    let end = log.tail();
    log.close().unwrap();
    let mut told = Vec::new();
    let visit = &mut |_, _: &[u8]| Ok(());
    let tell = &mut |done, total| told.push((done, total));
    scan(&*home.env.fs, &home.path(), UUID, start, 0, visit, tell).unwrap();
    let total = told[0].1;
    assert_eq!(told.pop(), Some((total, total)));
    assert!(total >= end - start && told.iter().all(|told| told.1 == total), "{told:?}");
    let (record, mut before) = (record_len(50_000), 0);
    assert!(told.len() >= 3, "{told:?}");
    for (done, _) in told {
        // The part after the last record is searched window by window.
        let is_in_time = done <= before + (1 << 20) + record.max(1 << 20);
        assert!(done >= before + (1 << 20) && is_in_time, "{done} after {before}");
        before = done;
    }
}

#[test]
fn the_dump_shows_every_record_and_where_it_is() {
    let home = Home::new();
    let log = home.start();
    let first = put(&log, b"first").unwrap();
    let second = put(&log, b"second").unwrap();
    log.sync_to(second.1).unwrap();
    drop(log.reserve(64).unwrap());
    log.close().unwrap();
    home.edit(first.0 + 33, |byte| !byte);
    let mut seen = Vec::new();
    dump(&*home.env.fs, &home.path(), 0, &mut |dumped| {
        let payload = dumped.payload.map(<[u8]>::to_vec);
        seen.push((dumped.offset, dumped.header.lsn, dumped.header.skip, payload));
        Ok(())
    })
    .unwrap();
    assert_eq!(
        seen,
        [
            (4096, first.0, false, None),
            (4096 + 40, second.0, false, Some(b"second".to_vec())),
            (4096 + 80, second.1, true, None),
        ]
    );
}

#[test]
#[should_panic(expected = "the log would be given up beyond its tail")]
fn a_log_is_not_given_up_before_it_is_written() {
    let home = Home::new();
    let log = home.start();
    put(&log, &payload(1, 100)).unwrap();
    log.retire(log.tail());
    log.retire(log.tail() + 32);
}

#[test]
fn a_scan_reads_no_spare_whatever_its_number() {
    let home = Home::in_memory();
    let log = home.start();
    let payloads: Vec<_> = (0..9).map(|n| payload(n, 700)).collect();
    for payload in &payloads {
        put(&log, payload).unwrap();
    }
    log.close().unwrap();
    for number in [START / 2, START + SEGMENT_LEN / 2, START + SEGMENT_LEN, START * 50] {
        let path = home.path().join(format!("{number:016x}.spare"));
        let mut spare = home.env.fs.create(&path).unwrap();
        spare.append(&vec![0; (HEADER_PAGE_LEN + SEGMENT_LEN) as usize]).unwrap();
        let (found, _) = home.scan().unwrap();
        assert_eq!(found, payloads, "beside {number:#x}");
    }
}
