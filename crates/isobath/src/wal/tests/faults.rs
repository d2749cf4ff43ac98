//! Failing syncs, failing writes, no space.

use super::support::*;
use crate::components::sync::atomic::*;
use crate::error::Error;
use crate::wal::*;
use std::sync::Arc;

#[test]
fn a_failed_sync_poisons_for_ever() {
    let home = Home::new();
    let log = home.start();
    let (_, durable) = put(&log, b"durable").unwrap();
    log.harden(durable).unwrap();
    let (_, lost) = put(&log, b"lost").unwrap();
    home.faults.sync_fails.store(true, Ordering::SeqCst);
    assert!(matches!(log.harden(lost), Err(Error::OutcomeUnknown(_))));
    home.faults.sync_fails.store(false, Ordering::SeqCst);
    assert!(matches!(log.harden(lost), Err(Error::OutcomeUnknown(_))), "never synced again");
    let refused = log.reserve(32).err().unwrap();
    assert!(matches!(&refused, Error::Poisoned(cause) if cause.contains("planted")), "{refused}");
    log.harden(durable).unwrap();
    log.wait_visible(lost).unwrap();
    assert_eq!(log.durable(), durable);
    assert!(matches!(log.close(), Err(Error::Poisoned(_))));
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
                    assert!(matches!(log.harden(end), Err(Error::OutcomeUnknown(_))));
                }
                Err(error) => assert!(
                    matches!(error, Error::Poisoned(_) | Error::OutcomeUnknown(_)),
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
        assert!(matches!(behind.join().unwrap(), Err(Error::OutcomeUnknown(_))));
    });
    assert_eq!(log.copied(), START);
    assert!(matches!(log.reserve(32).err(), Some(Error::Poisoned(_))));
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
    let mut reservation = log.reserve_internal(marker.len() as u64, Patience::Waits).unwrap();
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
    log.harden(log.tail()).unwrap();
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
    assert!(matches!(error, Error::Poisoned(_) | Error::OutcomeUnknown(_)), "{error}");
}

#[test]
fn a_ceiling_that_cannot_be_raised_is_told_to_the_writers() {
    let home = Home::new();
    let stuck = Arc::new(AtomicBool::new(true));
    let is_stuck = Arc::clone(&stuck);
    let options = LogOptions {
        raise_ceiling: Box::new(move |wanted| match is_stuck.load(Ordering::SeqCst) {
            true => Err(Error::WouldStall("planted")),
            false => Ok(wanted + CEILING),
        }),
        ..home.options()
    };
    let log = Log::start(&home.components, options, START, START + SEGMENT_LEN, 1).unwrap();
    let error = loop {
        match put(&log, &payload(1, 500)) {
            Ok(_) => assert!(log.tail() <= START + SEGMENT_LEN),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, Error::WouldStall(_)), "{error}");
    stuck.store(false, Ordering::SeqCst);
    put(&log, &payload(1, 500)).unwrap();
}
