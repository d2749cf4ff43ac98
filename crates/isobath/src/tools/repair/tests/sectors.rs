//! Sectors of the log that the device cannot read.

use super::*;
use crate::format::{Lsn, Payload, decode_payload};
use crate::vfs::{Fault, FileOp};
use crate::wal::{self, HEADER_PAGE_LEN};

/// Which record of the log has each key: its LSN.
fn records(fs: &MemoryFs) -> BTreeMap<(String, Vec<u8>), Lsn> {
    let mut records = BTreeMap::new();
    wal::dump(fs, &Path::new(DB).join(LOG_DIR), 0, &mut |dumped| {
        let Some(Ok(Payload::Batch(ops))) = dumped.payload.map(decode_payload) else {
            return Ok(());
        };
        for op in ops {
            let family = if op.family == 0 { "default" } else { USERS };
            records.insert((family.to_owned(), op.key.to_vec()), dumped.header.lsn);
        }
        Ok(())
    })
    .unwrap();
    records
}

/// The segment and the offset of the last record, and where it ends.
fn last_record(fs: &MemoryFs) -> (PathBuf, u64, u64) {
    let mut last = None;
    wal::dump(fs, &Path::new(DB).join(LOG_DIR), 0, &mut |dumped| {
        let end = dumped.offset + dumped.header.record_len();
        last = Some((dumped.path.clone(), dumped.offset, end));
        Ok(())
    })
    .unwrap();
    last.unwrap()
}

fn name_of(path: &Path) -> &str {
    path.file_name().unwrap().to_str().unwrap()
}

/// Checks that the report names the record of each key that is gone.
#[track_caller]
fn check_records(
    report: &RepairReport,
    (found, expected): (&Content, &Content),
    records: &BTreeMap<(String, Vec<u8>), Lsn>,
) {
    check_losses(report, found, expected);
    for key in expected.keys().filter(|key| !found.contains_key(*key)) {
        let lsn = records[key];
        let has = |lsns: (Lsn, Lsn)| lsns.0 <= lsn && lsn < lsns.1;
        let is_told = report.losses.iter().any(|loss| loss.lsns.is_some_and(has));
        assert!(is_told, "{key:?} at {lsn:#x} is gone without a word: {report:?}");
    }
}

/// The device fails from one read of a sector on, or for so long that a repair gives it up.
#[test]
fn a_sector_that_fails_at_some_read_costs_nothing_that_is_not_told() {
    let (left, expected) = left_behind();
    let (segment, _, end) = last_record(&left);
    let (name, records) = (name_of(&segment), records(&left));
    // Any other damage makes the repair take the log into tables.
    let damaged = bytes(&left, &segment).windows(7).rposition(|window| window == b"value 3");
    left.corrupt(&segment, damaged.unwrap() as u64, 1).unwrap();
    let (mut failed, mut lost) = (0, 0);
    let sectors = (HEADER_PAGE_LEN..end).step_by(4096);
    for (at, has_manifest) in sectors.flat_map(|at| [(at, true), (at, false)]) {
        for (nth, is_for_good) in (1..).flat_map(|nth| [(nth, true), (nth, false)]) {
            let fs = left.killed();
            if !has_manifest {
                manifests(&fs).iter().for_each(|path| fs.remove(path).unwrap());
            }
            let before = everything(&fs);
            let fault = Fault::on(FileOp::Read).suffix(name).at(at..at + 4096);
            match is_for_good {
                true => fs.inject(fault.nth(nth).forever()),
                // A piece is read, and then the sector alone.
                false => [nth, nth + 1].iter().for_each(|nth| fs.inject(fault.clone().nth(*nth))),
            }
            let outcome = run(&fs, false);
            let has_struck = fs.struck() > 0;
            fs.clear_faults();
            match outcome {
                Ok(report) => {
                    let db = options(&fs).create_if_missing(false).open(DB).unwrap();
                    let found = content(&db);
                    check_records(&report, (&found, &expected), &records);
                    lost += u64::from(found.len() + 1 < expected.len());
                }
                Err(error) => {
                    assert!(matches!(error.kind(), crate::ErrorKind::Io { .. }), "{error}");
                    assert!(everything(&fs) == before, "{error}");
                    failed += 1;
                }
            }
            if !has_struck {
                break;
            }
        }
    }
    assert!(failed > 0 && lost > 0, "{failed} {lost}");
}

/// Wherever in a sector the last record begins.
#[test]
fn the_last_record_is_told_to_be_lost_if_its_header_goes_on_in_a_bad_sector() {
    for begin in [4056, 4064, 4072, 4080, 4088, 0] {
        let fs = MemoryFs::new();
        let db = options(&fs).open(DB).unwrap();
        let put = |key: &str, len: usize| {
            db.put(key, vec![b'v'; len]).unwrap();
            let (_, from, end) = last_record(&fs);
            (end - from, end)
        };
        let (len, end) = put("first", 200);
        let more = (begin + 3 * 4096 - end % 4096 - len) % 4096;
        put("filler", 199 + more as usize);
        put("last", 100);
        db.sync().unwrap();
        let expected = content(&db);
        let left = fs.killed();
        let (segment, from, end) = last_record(&left);
        assert_eq!(from % 4096, begin);
        let bad = (end - 1) / 4096 * 4096;
        for has_manifest in [true, false] {
            let fs = left.killed();
            if !has_manifest {
                manifests(&fs).iter().for_each(|path| fs.remove(path).unwrap());
            }
            let fault = Fault::on(FileOp::Read).suffix(name_of(&segment)).at(bad..bad + 4096);
            fs.inject(fault.forever());
            let report = run(&fs, false).unwrap();
            fs.clear_faults();
            let found = content(&options(&fs).create_if_missing(false).open(DB).unwrap());
            assert_eq!(found.len(), 2, "{report:?}");
            check_records(&report, (&found, &expected), &records(&left));
        }
    }
}

#[test]
fn a_segment_with_a_sector_that_cannot_be_read_is_kept_as_it_is() {
    let (left, _) = left_behind();
    let (segment, from, _) = last_record(&left);
    let whole = bytes(&left, &segment);
    for op in [FileOp::Read, FileOp::Rename, FileOp::SyncDir] {
        let fs = left.killed();
        let fault = Fault::on(FileOp::Read).suffix(name_of(&segment));
        fs.inject(fault.at(from..from + 1).forever());
        if op != FileOp::Read {
            fs.inject(Fault::on(op).nth(2));
        }
        let report = run(&fs, false);
        fs.clear_faults();
        let is_there = |path: &PathBuf| fs.exists(path).unwrap() && bytes(&fs, path) == whole;
        let target = crate::tools::lost_and_found::LOST_AND_FOUND;
        let is_made = fs.exists(&Path::new(DB).join(target)).unwrap();
        let moved = if is_made { files(&fs, target, ".wal") } else { Vec::new() };
        let in_place = report.is_err() && is_there(&segment);
        assert!(in_place || moved.iter().any(is_there), "{op:?}: {report:?}");
    }
}

/// At the header of a segment, in its first record, between others, behind the last one.
#[test]
fn a_sector_of_the_log_that_cannot_be_read_costs_what_lies_in_it() {
    let (left, expected) = left_behind();
    let sectors = segments(&left).into_iter().flat_map(|path| {
        let len = bytes(&left, &path).len() as u64;
        (0..len).step_by(4096).map(move |at| (path.clone(), at))
    });
    let mut costly = 0;
    for ((segment, at), has_manifest) in sectors.flat_map(|at| [(at.clone(), true), (at, false)]) {
        let fs = left.killed();
        if !has_manifest {
            manifests(&fs).iter().for_each(|path| fs.remove(path).unwrap());
        }
        let name = segment.file_name().unwrap().to_str().unwrap();
        fs.inject(Fault::on(FileOp::Read).suffix(name).at(at + 100..at + 600).forever());
        let verified = verify(Path::new(DB), &env(&fs), &mut |_, _| ()).unwrap();
        let is_named = |of: &crate::tools::Finding| of.path == segment && of.offset == Some(at);
        let report = run(&fs, false).unwrap();
        if at > 0 {
            assert!(verified.findings.iter().any(is_named), "{name} {at}: {verified:?}");
            assert!(report.findings.iter().any(is_named), "{name} {at}: {report:?}");
        }
        fs.clear_faults();
        let found = content(&options(&fs).create_if_missing(false).open(DB).unwrap());
        check_losses(&report, &found, &expected);
        let lost = expected.len() - found.len();
        assert!(lost < 70, "{name} {at}: {lost} lost: {report:?}");
        let reaches = |offset: u64| offset < at + 4096 && (lost == 0 || offset + 4096 > at);
        let is_told = |loss: &super::super::Loss| match (loss.path == segment, loss.offset) {
            (true, Some(offset)) => reaches(offset),
            // It may have begun in the segment before.
            _ => at <= 4096 && loss.path.starts_with(Path::new(DB).join(LOG_DIR)),
        };
        assert!(lost == 0 || report.losses.iter().any(is_told), "{name} {at}: {report:?}");
        costly += u64::from(lost > 0);
    }
    assert!(costly > 0);
}
