//! Failed syncs, failed writes, and a full disk.

use super::support::*;
use crate::env::Env;
use crate::env::fixtures::soon;
use crate::env::sync::atomic::*;
use crate::error::{Error, ErrorKind, Result, StallCause};
use crate::vfs::{Fault, FileOp, FileSystem, MemoryFs};
use crate::wal::recycler::Recycler;
use crate::wal::*;
use std::io;
use std::sync::Arc;

#[test]
fn a_failed_sync_poisons_for_ever() {
    let home = Home::new();
    let log = home.start();
    let (_, durable) = put(&log, b"durable").unwrap();
    log.sync_to(durable).unwrap();
    let (_, lost) = put(&log, b"lost").unwrap();
    home.faults.sync_fails.store(true, Ordering::SeqCst);
    assert_eq!(log.sync_to(lost).unwrap_err().name(), "OUTCOME_UNKNOWN");
    home.faults.sync_fails.store(false, Ordering::SeqCst);
    assert!(log.sync_to(lost).as_ref().is_err_and(Error::is_outcome_unknown), "never synced again");
    let refused = log.reserve(32).err().unwrap();
    assert!(
        matches!(
            refused.kind(),
            ErrorKind::Poisoned { cause, .. } if cause.to_string().contains("planted")
        ),
        "{refused}"
    );
    log.sync_to(durable).unwrap();
    log.wait_visible(lost).unwrap();
    assert_eq!(log.durable(), durable);
    assert_eq!(log.close().unwrap_err().name(), "POISONED");
}

#[test]
fn a_sync_under_way_when_the_log_is_poisoned_makes_nothing_durable() {
    let home = Home::new();
    let log = home.start();
    put(&log, b"copied").unwrap();
    let inner = log.take_over();
    log.poison(&Error::planted());
    home.faults.synced.lock().clear();
    // `copied` may have passed a record whose copy failed.
    let told = inner.sync_once();
    assert!(
        matches!(
            told.as_ref().map_err(Error::kind),
            Err(ErrorKind::Poisoned { cause, .. }) if cause.to_string().contains("planted")
        ),
        "{told:?}"
    );
    assert_eq!(*home.faults.synced.lock(), []);
}

#[test]
fn everyone_who_waits_for_a_sync_that_fails_is_told() {
    let home = Home::new();
    let log = home.start();
    home.faults.sync_fails.store(true, Ordering::SeqCst);
    std::thread::scope(|scope| {
        for n in 0..8 {
            let log = &log;
            scope.spawn(move || match put(log, &payload(n, 100)) {
                Ok((_, end)) => {
                    assert_eq!(log.sync_to(end).unwrap_err().name(), "OUTCOME_UNKNOWN");
                }
                Err(error) => assert!(
                    matches!(
                        error.kind(),
                        ErrorKind::Poisoned { .. } | ErrorKind::OutcomeUnknown { .. }
                    ),
                    "{error}"
                ),
            });
        }
    });
}

#[test]
fn a_failed_write_poisons_and_wakes_those_behind_it() {
    let home = Home::new();
    let log = home.start();
    let mut first = record_of(b"first");
    let mut first = seal(&mut first);
    let mut blocked = log.reserve(first.len() as u64).unwrap();
    std::thread::scope(|scope| {
        let behind = scope.spawn(|| put(&log, b"behind"));
        while log.tail() < START + 80 {
            std::thread::yield_now();
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
        home.faults.copy_fails.store(true, Ordering::SeqCst);
        blocked.write(&mut first);
        blocked.publish();
        assert_eq!(behind.join().unwrap().unwrap_err().name(), "OUTCOME_UNKNOWN");
    });
    assert_eq!((log.visible(), log.durable()), (START, START));
    assert_eq!(log.reserve(32).err().unwrap().name(), "POISONED");
    assert_eq!(log.sync_to(log.tail()).unwrap_err().name(), "OUTCOME_UNKNOWN");
    assert_eq!(log.durable(), START, "what `copied` says of a poisoned log is not synced");
}

#[test]
fn a_close_of_a_poisoned_log_waits_for_the_last_one_who_writes_to_it() {
    let home = Home::new();
    let log = home.start();
    let mut late = record_of(b"late");
    let mut late = seal(&mut late);
    let mut reservation = log.reserve(late.len() as u64).unwrap();
    log.poison(&Error::planted());
    let is_closed = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let closer = scope.spawn(|| {
            let closed = log.close();
            is_closed.store(true, Ordering::SeqCst);
            closed
        });
        std::thread::sleep(std::time::Duration::from_millis(50));
        assert!(!is_closed.load(Ordering::SeqCst), "a thread is about to write to the log");
        reservation.write(&mut late);
        reservation.publish();
        assert_eq!(closer.join().unwrap().unwrap_err().name(), "POISONED");
    });
}

/// A panic anywhere ends the waits for what the thread was doing.
#[test]
fn a_panic_of_the_preparer_poisons_and_wakes_those_who_wait_for_room() {
    let home = Home::new();
    let options = LogOptions { raise_ceiling: Box::new(|_| panic!("planted")), ..home.options() };
    let log = Log::start(&home.env, options, START, START + SEGMENT_LEN, 1).unwrap();
    let error = loop {
        match put(&log, &payload(1, 500)) {
            Ok(_) => assert!(log.tail() <= START + SEGMENT_LEN),
            Err(error) => break error,
        }
    };
    let names_it = |error: &Error| error.to_string().contains("preparing the log");
    assert!(matches!(error.kind(), ErrorKind::Poisoned { .. }) && names_it(&error), "{error}");
    assert_eq!(log.close().unwrap_err().name(), "POISONED");
}

#[test]
fn a_panic_in_a_sync_poisons_and_wakes_those_who_wait_for_it() {
    let home = Home::new();
    let log = home.start();
    home.faults.sync_panics.store(true, Ordering::SeqCst);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..8)
            .map(|n| {
                let log = &log;
                scope.spawn(move || {
                    let (_, end) = put(log, &payload(n, 100))?;
                    log.sync_to(end)
                })
            })
            .collect();
        let ended: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
        assert_eq!(ended.iter().filter(|ended| ended.is_err()).count(), 1, "one led the sync");
        for told in ended.into_iter().flatten() {
            assert!(
                matches!(told.as_ref().map_err(Error::name), Err("POISONED" | "OUTCOME_UNKNOWN")),
                "{told:?}"
            );
        }
    });
    assert_eq!(log.check_healthy().unwrap_err().name(), "POISONED");
}

#[test]
fn a_panic_in_a_copy_poisons_and_wakes_those_behind_it() {
    let home = Home::new();
    let log = home.start();
    let mut first = record_of(b"first");
    let mut first = seal(&mut first);
    let mut blocked = log.reserve(first.len() as u64).unwrap();
    std::thread::scope(|scope| {
        let behind = scope.spawn(|| put(&log, b"behind"));
        while log.tail() < START + 80 {
            std::thread::yield_now();
        }
        home.faults.copy_panics.store(true, Ordering::SeqCst);
        let writer = scope.spawn(move || blocked.write(&mut first));
        assert!(writer.join().is_err());
        // This thread may have panicked in its own copy, too.
        if let Ok(told) = behind.join() {
            assert!(told.as_ref().is_err_and(Error::is_outcome_unknown));
        }
    });
    assert_eq!(log.close().unwrap_err().name(), "POISONED");
}

#[test]
fn a_write_that_finds_no_room_in_its_segment_waits_for_some_or_for_the_end() {
    let home = Home::new();
    let log = home.start();
    home.faults.copy_finds_no_room.store(true, Ordering::SeqCst);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| put(&log, b"waits"));
        soon(|| log.check_prompt().is_err());
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert!(!waiting.is_finished());
        let refused = log.check_prompt();
        home.faults.copy_finds_no_room.store(false, Ordering::SeqCst);
        let (_, end) = waiting.join().unwrap().unwrap();
        assert_eq!(log.visible(), end);
        assert_eq!(refused.unwrap_err().name(), "WOULD_STALL");
        log.check_prompt().unwrap();
    });
    home.faults.copy_finds_no_room.store(true, Ordering::SeqCst);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| put(&log, b"waits in vain"));
        while log.tail() == log.visible() {
            std::thread::yield_now();
        }
        assert!(log.close().is_err());
        assert!(waiting.join().unwrap().is_err());
        log.check_prompt().unwrap();
    });
}

#[test]
fn no_space_is_a_retryable_error_and_passes() {
    let home = Home::new();
    let log = home.start();
    home.faults.full.store(true, Ordering::SeqCst);
    let error = loop {
        match put(&log, &payload(1, 500)) {
            Ok(_) => assert!(log.tail() < START + 8 * SEGMENT_LEN),
            Err(error) => break error,
        }
    };
    assert!(error.is_out_of_space() && error.is_retryable(), "{error}");
    // The engine's own small records still find room, so an epoch can be sealed and flushed.
    let mut marker = record_of(b"marker");
    let mut marker = seal(&mut marker);
    let mut reservation = log.reserve_internal(marker.len() as u64).unwrap();
    reservation.write(&mut marker);
    reservation.publish();
    assert!(put(&log, &payload(1, 500)).is_err());
    assert_eq!(home.names(".new"), Vec::<String>::new());
    home.faults.full.store(false, Ordering::SeqCst);
    put(&log, &payload(1, 500)).unwrap();
    log.close().unwrap();
    assert_eq!(home.scan().unwrap().1.end, log.tail());
}

#[test]
fn room_that_retiring_makes_is_used_when_the_disk_is_full() {
    let home = Home::new();
    let log = home.start();
    while log.tail() < START + 6 * SEGMENT_LEN {
        put(&log, &payload(1, 500)).unwrap();
    }
    home.faults.full.store(true, Ordering::SeqCst);
    while put(&log, &payload(1, 500)).is_ok() {}
    log.sync_to(log.tail()).unwrap();
    log.retire(log.tail());
    put(&log, &payload(1, 500)).unwrap();
}

#[test]
fn a_failed_sync_of_the_directory_poisons() {
    let home = Home::new();
    let log = home.start();
    home.faults.sync_dir_fails.store(true, Ordering::SeqCst);
    let error = loop {
        match put(&log, &payload(1, 500)) {
            Ok(_) => assert!(log.tail() < START + 8 * SEGMENT_LEN),
            Err(error) => break error,
        }
    };
    assert!(
        matches!(error.kind(), ErrorKind::Poisoned { .. } | ErrorKind::OutcomeUnknown { .. }),
        "{error}"
    );
}

#[test]
fn a_ceiling_that_cannot_be_raised_is_told_to_the_writers() {
    let home = Home::new();
    let stuck = Arc::new(AtomicBool::new(true));
    let is_stuck = Arc::clone(&stuck);
    let options = LogOptions {
        raise_ceiling: Box::new(move |wanted| match is_stuck.load(Ordering::SeqCst) {
            true => Err(Error::would_stall(StallCause::LogFull)),
            false => Ok(wanted + CEILING),
        }),
        ..home.options()
    };
    let log = Log::start(&home.env, options, START, START + SEGMENT_LEN, 1).unwrap();
    let error = loop {
        match put(&log, &payload(1, 500)) {
            Ok(_) => assert!(log.tail() <= START + SEGMENT_LEN),
            Err(error) => break error,
        }
    };
    assert!(matches!(error.kind(), ErrorKind::WouldStall { .. }), "{error}");
    stuck.store(false, Ordering::SeqCst);
    put(&log, &payload(1, 500)).unwrap();
}

/// A failed sync of the directory is final, and failing to open the directory would be taken for
/// one.
#[test]
fn an_open_log_opens_no_directory() {
    let home = Home::in_memory();
    let fs = MemoryFs::new();
    let env = Env { fs: Arc::new(fs.clone()), ..Env::system() };
    let log = Log::start(&env, home.options(), START, CEILING, 1).unwrap();
    fs.inject(Fault::on(FileOp::OpenDir).errno(24).forever());
    while log.stats().segments_recycled < 2 {
        put(&log, &payload(1, 500)).unwrap();
        log.sync_to(log.tail()).unwrap();
        log.retire(log.tail());
    }
    log.close().unwrap();
    assert_eq!(fs.struck(), 0);
}

/// Creates a segment file, and gives it to the recycler as a spare.
fn recycle_one(home: &Home, recycler: &Recycler) {
    let fs = &*home.env.fs;
    let path = home.path().join(format!("{START:016x}.wal"));
    let file_len = HEADER_PAGE_LEN + SEGMENT_LEN;
    fs.create(&path).unwrap().append(&vec![0; file_len as usize]).unwrap();
    let info = SegmentInfo { path, kind: SegmentKind::Log, base: START, file_len };
    recycler.recycle(fs, &info, None).unwrap();
}

#[test]
fn a_spare_is_not_taken_for_synced_because_its_directory_was_synced_before_it_came() {
    let home = Home::in_memory();
    let fs = &home.env.fs;
    let recycler = Arc::new(Recycler::open(&**fs, &home.options(), START).unwrap());
    let its_recycler = Arc::clone(&recycler);
    let preparer = move || its_recycler.sync_names().unwrap();
    *home.faults.before_rename.lock() = Some(Box::new(preparer));
    recycle_one(&home, &recycler);
    let synced = home.faults.dirs_synced.load(Ordering::SeqCst);
    recycler.sync_names().unwrap();
    assert_eq!(home.faults.dirs_synced.load(Ordering::SeqCst), synced + 1);
    recycler.sync_names().unwrap();
    assert_eq!(home.faults.dirs_synced.load(Ordering::SeqCst), synced + 1, "once is enough");
    *home.faults.before_rename.lock() = None;
}

#[test]
fn names_that_could_not_be_synced_are_still_to_be_synced() {
    let home = Home::in_memory();
    let fs = &*home.env.fs;
    let recycler = Recycler::open(fs, &home.options(), START).unwrap();
    recycle_one(&home, &recycler);
    home.faults.sync_dir_fails.store(true, Ordering::SeqCst);
    assert!(recycler.sync_names().is_err());
    assert!(recycler.sync_names().is_err());
    home.faults.sync_dir_fails.store(false, Ordering::SeqCst);
    let synced = home.faults.dirs_synced.load(Ordering::SeqCst);
    recycler.sync_names().unwrap();
    assert_eq!(home.faults.dirs_synced.load(Ordering::SeqCst), synced + 1);
}

#[test]
fn no_failing_call_makes_a_scan_or_a_dump_end_early() {
    let home = Home::in_memory();
    let fs = MemoryFs::new();
    let env = Env { fs: Arc::new(fs.clone()), ..Env::system() };
    let log = Log::start(&env, home.options(), START, CEILING, 1).unwrap();
    let ends: Vec<_> = (0..60).map(|n| put(&log, &payload(n, 300)).unwrap().1).collect();
    log.close().unwrap();
    drop(log);
    let scan = |from| {
        let (visit, tell) = (&mut |_, _: &[u8]| Ok(()), &mut |_, _| ());
        scan(&fs, &home.path(), UUID, from, 0, visit, tell)
    };
    let dump = || {
        let mut count = 0;
        let mut visit = |_: &Dumped<'_>| {
            count += 1;
            Ok(())
        };
        dump(&fs, &home.path(), 0, &mut visit).map(|()| count)
    };
    assert_eq!((scan(START).unwrap().records, dump().unwrap()), (60, 60));
    assert_eq!(scan(ends[57]).unwrap().records, 2);
    let runs: [&dyn Fn() -> Result<u64>; 2] = [&|| scan(START).map(|end| end.records), &dump];
    for op in [FileOp::List, FileOp::OpenRead, FileOp::Read] {
        for (is_dump, run) in runs.iter().enumerate() {
            for nth in 1.. {
                let before = fs.struck();
                fs.inject(Fault::on(op).nth(nth));
                let outcome = run();
                fs.clear_faults();
                if fs.struck() == before {
                    assert!(nth > 1, "{op:?} was never tried");
                    assert_eq!(outcome.unwrap(), 60);
                    break;
                }
                let is_told = matches!(outcome.as_ref().map_err(Error::name), Err("IO"));
                assert!(is_told, "{op:?} {nth} of {is_dump}: {outcome:?}");
            }
        }
    }
}

/// A log of short records, all of which but the last few are retired, so that there are spares.
fn used_log(fs: &MemoryFs, spares: bool) -> (Log, std::path::PathBuf) {
    let home = Home::in_memory();
    let env = Env { fs: Arc::new(fs.clone()), ..Env::system() };
    let log = Log::start(&env, home.options(), START, CEILING, 1).unwrap();
    put(&log, b"first").unwrap();
    while spares && log.tail() < START + 8 * SEGMENT_LEN {
        put(&log, &payload(1, 500)).unwrap();
    }
    log.retire(log.tail());
    log.discard_files();
    (log, home.path())
}

#[test]
fn a_record_that_finds_no_room_leaves_no_segments_behind() {
    let no_room = |op| Fault::on(op).errno(28).forever();
    for spares in [false, true] {
        for fault in [
            no_room(FileOp::OpenSegment).nth(8),
            Fault::on(FileOp::OpenSegment).errno(24).forever().nth(8),
            no_room(FileOp::CopyIn).suffix(".new").nth(8),
            no_room(FileOp::Rename).nth(8),
        ] {
            let fs = MemoryFs::new();
            let (log, dir) = used_log(&fs, spares);
            // More than a small writer needs ahead is made for the long record alone.
            let ahead = (log.tail() + 3 * SEGMENT_LEN).next_multiple_of(SEGMENT_LEN);
            fs.inject(fault);
            let error = put(&log, &payload(2, 20 * SEGMENT_LEN as usize)).unwrap_err();
            assert!(error.is_retryable(), "{error}");
            let left = || inventory(&fs, &dir).unwrap();
            // The preparer removes what it has made before it tells the writer.
            let is_more =
                |info: &&SegmentInfo| info.kind != SegmentKind::Spare && info.end() > ahead;
            assert!(!left().iter().any(|info| is_more(&info)), "{:?}", left());
            assert!(left().iter().all(|info| info.kind != SegmentKind::Unfinished));
            put(&log, b"small").unwrap();
            fs.clear_faults();
            let used: u64 = left().iter().map(|info| info.file_len).sum();
            fs.set_capacity(used + 8 * SEGMENT_LEN);
            let mut table = fs.create("/table".as_ref()).unwrap();
            table.append(&[0; 4 * SEGMENT_LEN as usize]).unwrap();
            fs.set_capacity(u64::MAX);
            let from = log.tail();
            put(&log, &payload(3, 20 * SEGMENT_LEN as usize)).unwrap();
            log.close().unwrap();
            let mut found = Vec::new();
            let visit = &mut |_, payload: &[u8]| {
                found.push(payload.len());
                Ok(())
            };
            scan(&fs, &dir, UUID, from, 0, visit, &mut |_, _| ()).unwrap();
            assert_eq!(found, [20 * SEGMENT_LEN as usize]);
        }
    }
}

#[test]
fn a_segment_that_got_its_name_in_vain_and_cannot_be_removed_is_used() {
    let fs = MemoryFs::new();
    let (log, dir) = used_log(&fs, false);
    let tail = log.tail();
    fs.inject(Fault::on(FileOp::Rename).nth(8));
    fs.inject(Fault::on(FileOp::Remove).suffix(".wal").nth(3).forever());
    assert_eq!(put(&log, &payload(2, 20 * SEGMENT_LEN as usize)).unwrap_err().name(), "IO");
    fs.clear_faults();
    assert!(log.has_room_at(tail + 3 * SEGMENT_LEN) && !log.has_room_at(tail + 7 * SEGMENT_LEN));
    put(&log, &payload(3, 20 * SEGMENT_LEN as usize)).unwrap();
    log.close().unwrap();
    let (visit, tell) = (&mut |_, _: &[u8]| Ok(()), &mut |_, _| ());
    assert_eq!(scan(&fs, &dir, UUID, tail, 0, visit, tell).unwrap().records, 1);
}

#[test]
fn a_segment_whose_name_is_gone_though_its_removal_failed_is_not_used() {
    for kind in [io::ErrorKind::Other, io::ErrorKind::NotFound] {
        let fs = MemoryFs::new();
        let (log, dir) = used_log(&fs, false);
        let tail = log.tail();
        fs.inject(Fault::on(FileOp::Rename).nth(8));
        fs.inject(Fault::on(FileOp::Remove).suffix(".wal").nth(3).late().kind(kind));
        assert_eq!(put(&log, &payload(2, 20 * SEGMENT_LEN as usize)).unwrap_err().name(), "IO");
        fs.clear_faults();
        let (_, end) = put(&log, &payload(3, 100)).unwrap();
        put(&log, &payload(4, 20 * SEGMENT_LEN as usize)).unwrap();
        log.sync_to(end).unwrap();
        let (visit, tell) = (&mut |_, _: &[u8]| Ok(()), &mut |_, _| ());
        assert_eq!(scan(&fs.killed(), &dir, UUID, tail, 0, visit, tell).unwrap().records, 2);
    }
}

/// A writer must not get a file that may have no name.
#[test]
fn a_segment_whose_name_may_be_gone_ends_the_log() {
    let fs = MemoryFs::new();
    let (log, _) = used_log(&fs, false);
    fs.inject(Fault::on(FileOp::Rename).nth(8));
    fs.inject(Fault::on(FileOp::Remove).suffix(".wal").nth(3));
    fs.inject(Fault::on(FileOp::Exists).suffix(".wal").forever());
    put(&log, &payload(2, 20 * SEGMENT_LEN as usize)).unwrap_err();
    fs.clear_faults();
    assert_eq!(put(&log, &payload(3, 100)).unwrap_err().name(), "POISONED");
}

/// As one of an earlier term that lies over a bad sector of a device.
#[test]
fn a_spare_that_cannot_be_opened_is_given_up_for_a_new_file() {
    for fault in [Fault::on(FileOp::OpenSegment), Fault::on(FileOp::CopyIn)] {
        let first = MemoryFs::new();
        let (log, dir) = used_log(&first, true);
        let fs = first.killed();
        drop(log);
        let spares = || {
            let all = inventory(&fs, &dir).unwrap().into_iter();
            all.filter(|info| info.kind == SegmentKind::Spare).count()
        };
        let before = spares();
        assert!(before > 0, "the preparer has taken all");
        let home = Home::in_memory();
        let env = Env { fs: Arc::new(fs.clone()), ..Env::system() };
        fs.inject(fault.suffix(".spare").forever());
        let log = Log::start(&env, home.options(), CEILING / 2, CEILING, 2).unwrap();
        put(&log, &payload(1, 6 * SEGMENT_LEN as usize)).unwrap();
        log.close().unwrap();
        assert!(spares() < before);
    }
}
