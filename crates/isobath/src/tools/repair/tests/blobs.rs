//! Tests of damage to blob files: a value is read as it was written, or its error says where it
//! was; a verification finds the same; and a repair loses these values alone.

use super::*;
use crate::error::ErrorKind;
use crate::format::{FILE_HEADER_LEN, FileKind};
use crate::tools::Report;
use crate::vfs::FileOp;

/// The number of keys in each of the two families.
const COUNT: u32 = 24;
const STEP: usize = 13;

fn separating(from: u64) -> FamilyOptions {
    FamilyOptions::new().block_size(256).separate_from(from)
}

fn open(fs: &MemoryFs) -> crate::Result<crate::Db> {
    options(fs).family(separating(60)).open(DB)
}

/// Long enough for a blob file, but for one of six.
fn long(n: u32) -> Vec<u8> {
    match n % 6 {
        0 => value(n),
        _ => format!("{n} ")
            .into_bytes()
            .into_iter()
            .chain((0..100).map(|at| (at * n) as u8))
            .collect(),
    }
}

/// A closed database with a compacted table and a flushed one, each with a blob file. The log has
/// nothing of them any more, as they are of an earlier term.
fn separated() -> (MemoryFs, Content) {
    let fs = MemoryFs::new();
    let db = open(&fs).unwrap();
    let users = db.family((USERS, separating(40))).unwrap();
    for half in 0..2 {
        for n in (0..COUNT).filter(|n| n % 2 == half) {
            db.put(key(n), long(n)).unwrap();
            users.put(key(n), long(n + 1)).unwrap();
        }
        match half {
            0 => db.default_family().compact(..).unwrap(),
            _ => db.flush().unwrap(),
        }
    }
    let content = content(&db);
    db.close().unwrap();
    open(&fs).unwrap().close().unwrap();
    assert_eq!(content.len() as u32, 2 * COUNT);
    (fs, content)
}

/// The blob files.
fn blobs(fs: &MemoryFs) -> Vec<PathBuf> {
    let mut found = tables(fs);
    found.retain(|path| bytes(fs, path)[8] == FileKind::Blob as u8);
    found
}

fn verified(fs: &MemoryFs) -> Report {
    verify(Path::new(DB), &env(fs), &mut |_, _| ()).unwrap()
}

fn lose_manifest(fs: &MemoryFs) {
    manifests(fs).iter().for_each(|path| fs.remove(path).unwrap());
}

/// Repairs, and checks that exactly the values are lost that the report names.
#[track_caller]
fn check_repair(fs: &MemoryFs, expected: &Content) -> (RepairReport, usize) {
    let found = verified(fs);
    assert!(!found.is_clean());
    let (report, content) = repaired(fs);
    check_losses(&report, &content, expected);
    let lost = expected.len() - content.len();
    let counted: u64 = report.losses.iter().filter_map(|loss| loss.entries).sum();
    assert_eq!(counted as usize, lost, "{report:?}");
    (report, lost)
}

#[test]
fn sound_blob_files_are_counted_and_are_no_tables() {
    let (fs, expected) = separated();
    assert_eq!(blobs(&fs).len(), 2, "{:?}", tables(&fs));
    let mut told = (0, 0);
    let report = verify(Path::new(DB), &env(&fs), &mut |done, total| told = (done, total)).unwrap();
    assert!(report.is_clean() && report.notes.is_empty(), "{report:?}");
    assert_eq!(told.0, told.1);
    let lens: u64 = blobs(&fs).iter().map(|path| bytes(&fs, path).len() as u64).sum();
    let live = lens - 2 * FILE_HEADER_LEN as u64;
    let long = expected.values().filter(|value| value.len() >= 60).count();
    assert_eq!((report.blob_files, report.blob_values), (2, long as u64));
    assert_eq!(report.blob_bytes, live, "nothing is garbage");
    assert!(report.bytes > lens, "{report:?}");
    // Without a manifest, they are recognised by their headers.
    lose_manifest(&fs);
    let report = verified(&fs);
    assert!(report.blob_files == 2 && report.blob_values >= long as u64, "{report:?}");
    assert!(report.findings.iter().all(|finding| !finding.path.starts_with("db/table")));
    let (report, found) = repaired(&fs);
    assert!(report.losses.is_empty() && report.tables_made == 0, "{report:?}");
    assert_eq!(found, expected);
    assert_eq!(blobs(&fs).len(), 2);
}

#[test]
fn a_missing_blob_file_costs_its_values_alone() {
    let (left, expected) = separated();
    for blob in blobs(&left) {
        for removes_manifest in [false, true] {
            let fs = left.killed();
            fs.remove(&blob).unwrap();
            let error = open(&fs).unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::Corruption { path, .. } if *path == blob));
            assert!(verified(&fs).findings.iter().any(|finding| finding.path == blob));
            if removes_manifest {
                lose_manifest(&fs);
            }
            let (report, lost) = check_repair(&fs, &expected);
            assert!((10..expected.len()).contains(&lost), "{report:?}");
            assert!(report.findings.iter().any(|finding| finding.path == blob), "{report:?}");
            assert!(report.losses.iter().all(|loss| loss.path == blob), "{report:?}");
        }
    }
}

#[test]
fn of_a_blob_file_cut_anywhere_the_values_in_front_are_kept() {
    let (left, expected) = separated();
    for blob in blobs(&left) {
        let whole = bytes(&left, &blob).len();
        let (mut before, mut refused) = (usize::MAX, 0);
        for len in (0..whole).step_by(whole / 9) {
            let fs = left.killed();
            fs.truncate(&blob, len as u64).unwrap();
            match open(&fs) {
                // Each family may share its values with others, so the end may be gone of theirs.
                Ok(db) => db.close().unwrap(),
                Err(error) => {
                    assert!(error.to_string().contains("the file ends before"), "{error}");
                    refused += 1;
                }
            }
            let (report, lost) = check_repair(&fs, &expected);
            assert!(lost > 0 && lost <= before, "cut to {len}: {report:?}");
            before = lost;
        }
        assert!(before < 5 && refused > 3, "{before} values are no end; {refused} opens refused");
    }
}

#[test]
fn of_a_blob_file_flipped_anywhere_one_value_is_lost_or_none() {
    let (left, expected) = separated();
    for blob in blobs(&left) {
        for at in (0..bytes(&left, &blob).len()).step_by(STEP) {
            let fs = left.killed();
            fs.corrupt(&blob, at as u64, 1 << (at % 8)).unwrap();
            if at % 2 == 0 {
                lose_manifest(&fs);
            }
            let (report, lost) = check_repair(&fs, &expected);
            let is_value = at >= FILE_HEADER_LEN;
            assert_eq!(lost, usize::from(is_value), "byte {at}: {report:?}");
            for loss in &report.losses {
                let (from, to) = loss.keys.clone().unwrap();
                assert!(from == to && loss.path == blob && loss.offset.unwrap() <= at as u64);
                assert!(loss.detail.contains(&*String::from_utf8_lossy(&from)), "{loss:?}");
            }
        }
    }
}

#[test]
fn a_verification_names_each_value_that_cannot_be_read() {
    let (left, _) = separated();
    for blob in blobs(&left) {
        let whole = bytes(&left, &blob);
        for at in (0..whole.len()).step_by(STEP) {
            for removes_manifest in [false, true] {
                let fs = left.killed();
                fs.corrupt(&blob, at as u64, 1 << (at % 8)).unwrap();
                if removes_manifest {
                    lose_manifest(&fs);
                }
                let report = verified(&fs);
                let mut of_blob = report.findings.iter().filter(|finding| finding.path == blob);
                let finding = of_blob.next().unwrap_or_else(|| panic!("byte {at}: {report:?}"));
                assert!(of_blob.next().is_none(), "byte {at}: {report:?}");
                assert!(finding.offset.unwrap() <= at as u64, "{finding:?}");
                let names_key = finding.detail.contains("the value of key \"key00");
                assert_eq!(names_key, at >= FILE_HEADER_LEN, "{finding:?}");
            }
        }
        // What is behind the last value is garbage.
        let fs = left.killed();
        let mut file = fs.create(Path::new("db/other")).unwrap();
        file.append(&whole).unwrap();
        file.append(b"garbage").unwrap();
        file.sync().unwrap();
        fs.remove(&blob).unwrap();
        fs.rename(Path::new("db/other"), &blob).unwrap();
        assert!(verified(&fs).is_clean());
    }
}

#[test]
fn a_blob_file_in_the_place_of_another_is_damage() {
    let (left, expected) = separated();
    let [one, other] = &blobs(&left)[..] else { panic!() };
    let fs = left.killed();
    fs.remove(one).unwrap();
    fs.link(other, one).unwrap();
    let finding = &verified(&fs).findings[0];
    assert!(finding.path == *one && finding.offset == Some(48), "{finding:?}");
    let (report, lost) = check_repair(&fs, &expected);
    assert!(lost > 10, "{report:?}");
}

#[test]
fn a_blob_file_that_nothing_names_is_noted_as_one() {
    let (fs, expected) = separated();
    let stray = crate::version::table_path(Path::new(DB), 900);
    fs.link(&blobs(&fs)[0], &stray).unwrap();
    let report = verified(&fs);
    assert!(report.is_clean(), "{report:?}");
    let [note] = &report.notes[..] else { panic!("{report:?}") };
    assert!(note.path == stray && note.detail.starts_with("a blob file that"), "{note:?}");
    lose_manifest(&fs);
    let (report, found) = repaired(&fs);
    assert!(found == expected && report.losses.is_empty(), "{report:?}");
    assert!(report.moved.iter().any(|moved| moved.from == stray), "{report:?}");
}

#[test]
fn a_lost_value_may_show_an_older_one() {
    let fs = MemoryFs::new();
    let db = open(&fs).unwrap();
    for version in [1, 2] {
        db.put("key", long(version)).unwrap();
        db.put(format!("other{version}"), long(version)).unwrap();
        db.flush().unwrap();
    }
    db.close().unwrap();
    let newer = blobs(&fs).pop().unwrap();
    fs.corrupt(&newer, FILE_HEADER_LEN as u64 + 9, 1).unwrap();
    let db = open(&fs).unwrap();
    assert!(db.get("key").unwrap_err().to_string().contains("the value of key \"key\""));
    assert_eq!(db.get("other2").unwrap().unwrap(), *long(2));
    db.close().unwrap();
    let report = run(&fs, false).unwrap();
    assert_eq!(report.losses.len(), 1, "{report:?}");
    assert!(verified(&fs).is_clean());
    let db = open(&fs).unwrap();
    assert_eq!(db.get("key").unwrap().unwrap(), *long(1));
    for version in [1, 2] {
        assert_eq!(db.get(format!("other{version}")).unwrap().unwrap(), *long(version));
    }
}

#[test]
fn of_many_lost_values_some_are_named_and_all_are_counted() {
    let fs = MemoryFs::new();
    let db = open(&fs).unwrap();
    let count = 200;
    for n in 0..count {
        db.put(key(n), [n as u8; 100]).unwrap();
    }
    db.flush().unwrap();
    db.close().unwrap();
    let blob = blobs(&fs).remove(0);
    for at in FILE_HEADER_LEN..bytes(&fs, &blob).len() {
        fs.corrupt(&blob, at as u64, 1).unwrap();
    }
    assert_eq!(verified(&fs).findings.len(), count as usize);
    let (report, found) = repaired(&fs);
    assert!(found.is_empty() && report.losses.len() == 101, "{report:?}");
    let rest = report.losses.last().unwrap();
    assert_eq!(rest.entries, Some(100));
    assert_eq!(rest.keys, Some((key(100), key(199))));
    assert!(rest.offset.is_none() && rest.lsns.is_some_and(|(from, to)| from + 100 <= to));
}

/// The keys of a slice pass over more files than are kept open, twice.
#[test]
fn values_are_read_file_by_file() {
    let count = 80;
    let fs = MemoryFs::new();
    let db = open(&fs).unwrap();
    for n in 0..count {
        db.put(key(n), [n as u8; 100]).unwrap();
        db.put(key(n + count), [n as u8; 100]).unwrap();
        db.flush().unwrap();
    }
    db.default_family().compact(..).unwrap();
    db.close().unwrap();
    assert_eq!(blobs(&fs).len() as u32, count);
    let opened = |body: &dyn Fn()| {
        let before = fs.tried(FileOp::OpenRead);
        body();
        fs.tried(FileOp::OpenRead) - before
    };
    // Each once for its header, and once for its values.
    let most = 2 * u64::from(count) + 20;
    let by_check = opened(&|| assert!(verified(&fs).is_clean()));
    assert!(by_check <= most, "{by_check}");
    let by_repair = opened(&|| assert!(run(&fs, true).unwrap().is_sound()));
    assert!(by_repair <= most, "{by_repair}");
}

#[test]
fn a_damaged_table_and_a_damaged_blob_file_cost_what_is_in_both() {
    let (left, expected) = separated();
    let blobs = blobs(&left);
    for table in tables(&left).into_iter().filter(|path| !blobs.contains(path)) {
        for at in (0..bytes(&left, &table).len()).step_by(STEP * 7) {
            let fs = left.killed();
            fs.corrupt(&table, at as u64, 1 << (at % 8)).unwrap();
            for blob in &blobs {
                fs.corrupt(blob, FILE_HEADER_LEN as u64 + 20, 1).unwrap();
                fs.corrupt(blob, 3, 1).unwrap();
            }
            let (report, found) = repaired(&fs);
            check_losses(&report, &found, &expected);
            let lost = expected.len() - found.len();
            assert!((1..=24).contains(&lost), "byte {at}, {lost} lost: {report:?}");
        }
    }
}

/// Nothing says that the file is a blob file before the entries of the table are read.
#[test]
fn a_blob_file_without_a_header_is_replaced_once_though_its_table_has_lost_its_root() {
    let fs = MemoryFs::new();
    let db = open(&fs).unwrap();
    for n in 0..COUNT {
        db.put(key(n), long(n)).unwrap();
    }
    db.flush().unwrap();
    let expected = content(&db);
    let tree = db.engine().default_family.view().tree.clone();
    let root = tree.runs[0].meta.root;
    let table = crate::version::table_path(Path::new(DB), tree.runs[0].meta.file);
    drop(tree);
    db.close().unwrap();
    let blob = blobs(&fs).remove(0);
    lose_manifest(&fs);
    fs.corrupt(&table, root.offset, 1).unwrap();
    fs.corrupt(&blob, 3, 1).unwrap();
    let (report, found) = repaired(&fs);
    assert_eq!(found, expected, "{report:?}");
    assert_eq!(report.moved.iter().filter(|moved| moved.from == blob).count(), 1, "{report:?}");
}

#[test]
fn a_read_from_a_blob_file_with_a_flipped_bit_is_right_or_an_error() {
    let fs = MemoryFs::new();
    let db = open(&fs).unwrap();
    let value = |n: u32| [n as u8; 70].map(|byte| byte.wrapping_mul(n as u8));
    for n in 0..3 {
        db.put(key(n), value(n)).unwrap();
    }
    db.flush().unwrap();
    db.close().unwrap();
    let blob = blobs(&fs).remove(0);
    for bit in 0..bytes(&fs, &blob).len() * 8 {
        let (fs, at) = (fs.killed(), bit as u64 / 8);
        fs.corrupt(&blob, at, 1 << (bit % 8)).unwrap();
        let db = open(&fs).unwrap();
        let mut errors = 0;
        for n in 0..3 {
            let name = String::from_utf8(key(n)).unwrap();
            match db.get(key(n)) {
                Ok(found) => assert_eq!(found.unwrap(), value(n), "bit {bit}"),
                Err(error) => {
                    let ErrorKind::Corruption { path, offset, detail } = error.kind() else {
                        panic!("bit {bit}: {error}");
                    };
                    assert!(*path == blob && *offset <= at, "bit {bit}: {error}");
                    assert!(detail.contains(&format!("the value of key \"{name}\"")), "{error}");
                    errors += 1;
                }
            }
        }
        let is_header = at < FILE_HEADER_LEN as u64;
        assert_eq!(errors, if is_header { 3 } else { 1 }, "bit {bit}");
        // Keys can be read without their values, and a scan goes on to the error.
        let scanned = db.range(..).take_while(Result::is_ok).count();
        assert!(scanned < 3, "bit {bit}");
        db.close().unwrap();
    }
}
