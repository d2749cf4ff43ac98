//! A reader that follows a log which is written: what it remembers of its looks hides no damage.

use super::support::*;
use crate::error::Result;
use crate::format::Lsn;
use crate::wal::*;
use std::fs::OpenOptions;
use std::io::{Seek, SeekFrom, Write};

/// A log with long segments, and a reader of it.
struct Followed {
    home: Home,
    log: Log,
    segment_len: u64,
    looked: Looked,
    next: Lsn,
    /// The records that the reader has seen.
    seen: u64,
}

impl Followed {
    fn new(segment_len: u64) -> Followed {
        let home = Home::new();
        let options = LogOptions { segment_len, first_segment_len: segment_len, ..home.options() };
        let start = 4 << 20;
        let log = Log::start(&home.env, options, start, CEILING, 1).unwrap();
        Followed { home, log, segment_len, looked: Looked::default(), next: start, seen: 0 }
    }

    fn put(&self, len: usize) -> (Lsn, Lsn) {
        put(&self.log, &payload(7, len)).unwrap()
    }

    /// Puts a record and syncs the log: the next record names that.
    fn put_synced(&self, len: usize) -> (Lsn, Lsn) {
        let range = self.put(len);
        self.log.sync_to(range.1).unwrap();
        range
    }

    /// Changes bytes in place, below the mapping of the log that is open.
    fn overwrite(&self, lsn: Lsn, bytes: &[u8]) {
        let path = self
            .home
            .path()
            .join(format!("{:016x}.wal", lsn / self.segment_len * self.segment_len));
        let mut file = OpenOptions::new().write(true).open(path).unwrap();
        file.seek(SeekFrom::Start(HEADER_PAGE_LEN + lsn % self.segment_len)).unwrap();
        file.write_all(bytes).unwrap();
    }

    fn follow(&mut self) -> Result<Tail> {
        self.follow_and(&mut || ())
    }

    /// Calls `meanwhile` on the way through long stretches.
    fn follow_and(&mut self, meanwhile: &mut dyn FnMut()) -> Result<Tail> {
        let (mut looked, mut next, mut seen) = (self.looked, self.next, self.seen);
        let followed = follow(
            &mut looked,
            (&*self.home.env.fs, &self.home.path(), UUID),
            (self.next, 0),
            &mut |lsn, payload| {
                next = lsn + RECORD_HEADER_LEN as u64 + payload.len().next_multiple_of(8) as u64;
                seen += 1;
                Ok(())
            },
            &mut |_, _| meanwhile(),
        );
        (self.next, self.seen) = (next, seen);
        let end = followed?;
        assert_eq!(end.end, self.next);
        self.looked = looked;
        Ok(end.tail)
    }

    fn is_damaged(&mut self) -> bool {
        // The log may make a segment during a look, which then tells nothing.
        let looks = (0..6).filter(|_| self.follow().is_err_and(|error| error.is_corruption()));
        looks.count() >= 3
    }
}

#[test]
fn a_reader_sees_each_record_once_however_often_it_looks() {
    let mut log = Followed::new(1 << 20);
    for round in 1..=60 {
        log.put((round % 7 * 30_000) as usize);
        for _ in 0..round % 3 {
            assert_eq!(log.follow().unwrap(), Tail::Clean);
            assert_eq!(log.seen, round);
        }
        let again = log.looked;
        if round % 3 > 1 {
            assert_eq!(log.follow().unwrap(), Tail::Clean);
            assert_eq!((log.looked.is_same_stop(&again), log.seen), (true, round));
        }
    }
}

/// What is wrong with the record at the end of what is read.
#[derive(Clone, Copy, Debug)]
enum Wrong {
    Payload,
    Header,
    Check,
    Gone,
}

impl Followed {
    fn damage(&self, at: Lsn, wrong: Wrong) {
        match wrong {
            Wrong::Payload => self.overwrite(at + RECORD_HEADER_LEN as u64 + 3, &[0xee; 4]),
            Wrong::Header => self.overwrite(at + 20, &[0xee; 4]),
            Wrong::Check => self.overwrite(at, &[0xee; 4]),
            Wrong::Gone => self.overwrite(at, &[0xee; RECORD_HEADER_LEN]),
        }
    }
}

#[test]
fn damage_at_the_end_is_found_once_something_behind_it_proves_it() {
    for wrong in [Wrong::Payload, Wrong::Header, Wrong::Check, Wrong::Gone] {
        for (looks, good) in (0..3).flat_map(|looks| [(looks, 0), (looks, 2)]) {
            // Looked at while nothing is behind it. Then nothing tells what was never a header.
            if matches!(wrong, Wrong::Gone) && looks > 0 {
                continue;
            }
            let mut log = Followed::new(1 << 20);
            log.put(100);
            log.follow().unwrap();
            for _ in 0..good {
                log.put(100);
            }
            let (at, _) = log.put_synced(100);
            log.damage(at, wrong);
            for nth in 0..looks {
                // Behind a new end it looks for records, and at the end only the next time.
                let is_torn = matches!(log.follow().unwrap(), Tail::Torn { .. });
                assert!(is_torn || nth == 0 && good > 0, "{wrong:?}");
            }
            log.put_synced(100);
            log.put(100);
            assert!(log.is_damaged(), "{wrong:?} after {looks} looks and {good} records");
            assert_eq!(log.seen, 1 + good);
        }
        for looks in 0..3 {
            // Looked at before anything is there.
            let mut log = Followed::new(1 << 20);
            log.put(100);
            for _ in 0..looks {
                assert_eq!(log.follow().unwrap(), Tail::Clean);
            }
            log.put(100);
            let (at, _) = log.put_synced(100);
            log.damage(at, wrong);
            log.put_synced(100);
            assert!(log.is_damaged(), "{wrong:?} after {looks} looks before");
            assert_eq!(log.seen, 2);
        }
    }
}

#[test]
fn a_record_whose_header_is_gone_is_missed_within_a_few_looks() {
    // The second one ends where the first look does.
    for (len, looks) in [(5 << 19, 2), ((1 << 20) - RECORD_HEADER_LEN, 1)] {
        let mut log = Followed::new(4 << 20);
        log.put(100);
        log.follow().unwrap();
        log.put(100);
        let (at, _) = log.put_synced(len);
        log.overwrite(at, &[0; 64]);
        log.put_synced(100);
        let missed = (0..6).take_while(|_| log.follow().is_ok()).count();
        assert!((looks..looks + 3).contains(&missed), "{missed}: one look for each MiB");
        assert!(log.is_damaged() && log.seen == 2);
    }
}

#[test]
fn a_look_during_which_the_log_has_grown_is_not_remembered() {
    let mut log = Followed::new(1 << 20);
    log.put(100);
    log.follow().unwrap();
    log.put(100);
    let (at, _) = log.put_synced(3 << 19);
    log.overwrite(at, &[0; 64]);
    let (_, end) = log.put_synced(100);
    let names = |home: &Home| home.names(".wal");
    let is_behind = |name: &String| name.trim_end_matches(".wal") > &*format!("{end:016x}");
    while !names(&log.home).iter().any(is_behind) {
        std::thread::yield_now();
    }
    assert!(log.follow().is_ok(), "one look for each MiB");
    let made = log.home.path().join(names(&log.home).into_iter().find(is_behind).unwrap());
    let away = made.with_extension("away");
    std::fs::rename(&made, &away).unwrap();
    let mut is_made = false;
    let looked = log.follow_and(&mut || {
        if !std::mem::replace(&mut is_made, true) {
            std::fs::rename(&away, &made).unwrap();
        }
    });
    assert!(looked.is_ok() && is_made, "what it saw is no proof, for the log has grown");
    assert!(log.is_damaged());
}

/// It may be that of a record whose payload is still to come.
#[test]
fn a_look_that_has_seen_a_header_is_not_remembered() {
    let mut log = Followed::new(1 << 20);
    log.put(100);
    log.follow().unwrap();
    log.put(100);
    let ((first, _), (second, _)) = (log.put(100), log.put_synced(100));
    log.overwrite(first, &[0; RECORD_HEADER_LEN]);
    log.overwrite(second + 40, &[0xee; 8]);
    assert_eq!(log.follow().unwrap(), Tail::Clean);
    log.put_synced(100);
    assert!(log.is_damaged());
    assert_eq!(log.seen, 2);
}

/// Of a record that is longer than what is read at once, its bytes alone are read.
#[test]
fn what_lies_behind_a_damaged_record_is_seen_whatever_its_length() {
    for len in [10_000, 10_003, 40_001] {
        let mut log = Followed::new(1 << 20);
        let ((first, _), (second, _)) = (log.put(100), log.put_synced(len));
        log.put_synced(100);
        log.overwrite(first, &[0; RECORD_HEADER_LEN]);
        log.overwrite(second + 500, &[0xee; 8]);
        assert!(log.is_damaged(), "{len}");
    }
}
