//! Header pages that cannot be synced: their files are given up, and nothing that was acknowledged
//! is lost.

use super::support::*;
use crate::env::Env;
use crate::format::Lsn;
use crate::vfs::*;
use crate::wal::*;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// No room on the device, and none in the quota.
const CODES: [i32; 2] = [28, 122];

/// A log with one record that is synced. With `spares`, segments before it wait to be used again.
fn used_log(fs: &MemoryFs, spares: bool) -> (Log, PathBuf) {
    let home = Home::in_memory();
    let env = Env { fs: Arc::new(fs.clone()), ..Env::system() };
    fs.create_dir_all(&home.path()).unwrap();
    fs.sync_dir(Path::new("/")).unwrap();
    let log = Log::start(&env, home.options(), START, CEILING, 1).unwrap();
    while spares && log.tail() < START + 8 * SEGMENT_LEN {
        put(&log, &payload(1, 500)).unwrap();
    }
    log.retire(log.tail());
    log.discard_files();
    (log, home.path())
}

fn count(fs: &MemoryFs, dir: &Path, kind: SegmentKind) -> usize {
    inventory(fs, dir).unwrap().iter().filter(|info| info.kind == kind).count()
}

/// The payloads that a scan finds from `from` on.
fn scanned(fs: &MemoryFs, dir: &Path, from: Lsn) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    let visit = &mut |_, payload: &[u8]| {
        found.push(payload.to_vec());
        Ok(())
    };
    scan(fs, dir, UUID, from, 0, visit, &mut |_, _| ()).unwrap();
    found
}

/// Cuts the power in several ways. Each time all that was acknowledged is there, and the next term
/// takes over the files and loses nothing either.
fn assert_survives_power_cuts(fs: &MemoryFs, dir: &Path, from: Lsn, acknowledged: &[Vec<u8>]) {
    let is_name = |unsynced: &Unsynced<'_>| unsynced.kind == UnsyncedKind::Name;
    for way in 0..4 {
        let choice = |unsynced: &Unsynced<'_>| match (way, is_name(unsynced)) {
            (0, _) | (1, true) | (2, false) => 0,
            _ => unsynced.steps.len(),
        };
        let left = fs.crashed(choice);
        assert_eq!(scanned(&left, dir, from), acknowledged, "way {way}");
        let (env, start) = (Env { fs: Arc::new(left.clone()), ..Env::system() }, 1 << 20);
        let options = LogOptions { dir: dir.to_owned(), ..Home::in_memory().options() };
        let log = Log::start(&env, options, start, CEILING, 2).unwrap();
        let records: Vec<_> = (0..60).map(|n| payload(n, 500)).collect();
        let ends = records.iter().map(|record| put(&log, record).unwrap().1);
        log.sync_to(ends.max().unwrap()).unwrap();
        let left = left.crashed(choice);
        assert_eq!(scanned(&left, dir, start), records, "way {way}");
    }
}

#[test]
fn a_header_that_cannot_be_synced_costs_its_file_and_not_the_log() {
    for (spares, code) in [false, true].into_iter().flat_map(|is| CODES.map(|code| (is, code))) {
        let fs = MemoryFs::new();
        let (log, dir) = used_log(&fs, spares);
        let (inner, from) = (log.take_over(), log.tail());
        let counts = || {
            let kinds = [SegmentKind::Spare, SegmentKind::Log, SegmentKind::Unfinished];
            kinds.map(|kind| count(&fs, &dir, kind))
        };
        let [spare_count, segment_count, _] = counts();
        assert_eq!(spare_count > 0, spares);
        fs.inject(Fault::on(FileOp::SyncRange).errno(code));
        let told = inner.prepare_segment().unwrap_err();
        assert_eq!((told.name(), told.is_retryable()), ("IO", true), "{told}");
        log.check_healthy().unwrap();
        let spares_left = spare_count - usize::from(spares);
        assert_eq!(counts(), [spares_left, segment_count, 0], "{spares} {code}");
        assert_survives_power_cuts(&fs, &dir, from, &[]);
        while !log.has_room_at(log.tail() + 4 * SEGMENT_LEN) {
            inner.prepare_segment().unwrap();
        }
        let record = payload(2, 2 * SEGMENT_LEN as usize);
        let (_, end) = put(&log, &record).unwrap();
        log.sync_to(end).unwrap();
        assert_survives_power_cuts(&fs, &dir, from, &[record]);
    }
}

#[test]
fn a_header_that_the_device_cannot_sync_ends_the_log() {
    for spares in [false, true] {
        let fs = MemoryFs::new();
        let (log, dir) = used_log(&fs, spares);
        let (inner, from) = (log.take_over(), log.tail());
        fs.inject(Fault::on(FileOp::SyncRange).errno(5));
        assert!(!inner.prepare_segment().unwrap_err().is_retryable());
        assert_eq!(log.check_healthy().unwrap_err().name(), "POISONED");
        assert_survives_power_cuts(&fs, &dir, from, &[]);
    }
}

#[test]
fn a_writer_whose_segment_gets_no_header_for_want_of_room_can_try_again() {
    for spares in [false, true] {
        let fs = MemoryFs::new();
        let (log, dir) = used_log(&fs, spares);
        let from = log.tail();
        for suffix in [".spare", ".new"] {
            fs.inject(Fault::on(FileOp::SyncRange).suffix(suffix).errno(28).forever());
        }
        let told = put(&log, &payload(1, 20 * SEGMENT_LEN as usize)).unwrap_err();
        assert!(told.is_out_of_space() && told.is_retryable(), "{told}");
        log.check_healthy().unwrap();
        assert_survives_power_cuts(&fs, &dir, from, &[]);
        fs.clear_faults();
        let records = [payload(2, 20 * SEGMENT_LEN as usize), b"last".to_vec()];
        for record in &records {
            let (_, end) = put(&log, record).unwrap();
            log.sync_to(end).unwrap();
        }
        assert_survives_power_cuts(&fs, &dir, from, &records);
        log.close().unwrap();
        assert_eq!(scanned(&fs, &dir, from), records);
    }
}

/// What the failed sync covered may be lost.
#[test]
fn an_unfinished_segment_that_could_not_be_removed_is_made_anew() {
    let fs = MemoryFs::new();
    let (log, dir) = used_log(&fs, false);
    let inner = log.take_over();
    fs.inject(Fault::on(FileOp::SyncRange).errno(28));
    fs.inject(Fault::on(FileOp::Remove).suffix(".new").nth(1));
    fs.inject(Fault::on(FileOp::Remove).suffix(".new").nth(2));
    assert!(inner.prepare_segment().unwrap_err().is_out_of_space());
    assert_eq!(count(&fs, &dir, SegmentKind::Unfinished), 1);
    assert_eq!(inner.prepare_segment().unwrap_err().name(), "IO", "it is still there");
    let opened = fs.tried(FileOp::OpenSegment);
    inner.prepare_segment().unwrap();
    assert_eq!(fs.tried(FileOp::OpenSegment), opened + 1);
    assert_eq!(count(&fs, &dir, SegmentKind::Unfinished), 0);
    log.check_healthy().unwrap();
}

/// A term that would begin with a regular segment needs little room to open.
#[test]
fn a_term_whose_first_regular_segment_gets_no_header_begins_with_a_short_one() {
    const LONG: u64 = 16 * SEGMENT_LEN;
    let (home, fs) = (Home::in_memory(), MemoryFs::new());
    let env = Env { fs: Arc::new(fs.clone()), ..Env::system() };
    let options =
        || LogOptions { segment_len: LONG, first_segment_len: SEGMENT_LEN, ..home.options() };
    let log = Log::start(&env, options(), LONG, CEILING, 1).unwrap();
    while log.tail() < 6 * LONG {
        put(&log, &payload(1, 3000)).unwrap();
    }
    drop(log);
    fs.inject(Fault::on(FileOp::SyncRange).errno(28));
    let log = Log::start(&env, options(), 64 * LONG, CEILING, 2).unwrap();
    let found = inventory(&fs, &home.path()).unwrap();
    assert_eq!(found.last().unwrap().data_len(), Some(SEGMENT_LEN));
    put(&log, &payload(1, 3000)).unwrap();
    log.close().unwrap();
}
