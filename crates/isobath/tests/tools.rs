//! Tests what tools report of a database: every flipped byte that a checksum covers, in every file.

use isobath::env::Env;
use isobath::tools::{self, Report};
use isobath::{Options, WriteOptions};
use std::path::{Path, PathBuf};

fn small() -> Options {
    Options::new().write_buffer(64 << 10).block_cache(1 << 20)
}

fn verify(db: &Path) -> Report {
    tools::verify(db, &Env::system(), &mut |_, _| ()).unwrap()
}

/// Flips a bit of each byte of `places` in turn. A verification must name the file, and an offset
/// at or before the byte.
fn every_flip_is_found(db: &Path, file: &Path, places: impl Iterator<Item = usize>) {
    let good = std::fs::read(file).unwrap();
    let mut count = 0;
    for at in places {
        let mut bad = good.clone();
        bad[at] ^= 1 << (at % 8);
        std::fs::write(file, &bad).unwrap();
        let report = verify(db);
        let is_found = report
            .findings
            .iter()
            .any(|finding| finding.path == file && finding.offset.is_some_and(|o| o <= at as u64));
        assert!(is_found, "byte {at} of {}: {report:?}", file.display());
        count += 1;
    }
    assert!(count > 0, "{}", file.display());
    std::fs::write(file, good).unwrap();
    assert!(verify(db).is_clean());
}

/// The distance between flipped bytes, so that the debug build takes only seconds.
const STEP: usize = 3;

fn files(dir: &Path, ending: &str) -> Vec<PathBuf> {
    let paths = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let mut found: Vec<_> = paths.filter(|path| path.to_str().unwrap().contains(ending)).collect();
    found.sort();
    found
}

#[test]
fn every_flipped_byte_of_tables_manifest_and_current_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let db = small().open(dir.path()).unwrap();
    let other = db.family("other").unwrap();
    // For it deletes are written, though they hide nothing.
    let snapshot = db.snapshot();
    for i in 0..60u32 {
        db.put(i.to_be_bytes(), [i as u8; 40]).unwrap();
        other.put(i.to_be_bytes(), b"v").unwrap();
        db.delete(i.to_le_bytes()).unwrap();
    }
    db.flush().unwrap();
    drop(snapshot);
    db.close().unwrap();
    let report = verify(dir.path());
    assert!(report.is_clean() && report.notes.is_empty(), "{report:?}");
    assert!(report.slices == 2 && report.entries >= 179, "{report:?}");
    for file in files(&dir.path().join("table"), ".tbl") {
        let len = std::fs::read(&file).unwrap().len();
        every_flip_is_found(dir.path(), &file, (0..len).step_by(STEP));
    }
    let manifest = files(dir.path(), "MANIFEST").remove(0);
    let len = std::fs::read(&manifest).unwrap().len();
    // The last sync marker itself is not synced. Without it the record still counts.
    every_flip_is_found(dir.path(), &manifest, (0..len - 8).step_by(STEP));
    every_flip_is_found(dir.path(), &dir.path().join("CURRENT"), 0..33);
}

#[test]
fn beside_the_process_that_writes_what_a_reader_needs_is_checked() {
    let dir = tempfile::tempdir().unwrap();
    let db = small().open(dir.path()).unwrap();
    for i in 0..60u32 {
        db.put(i.to_be_bytes(), [i as u8; 40]).unwrap();
    }
    db.flush().unwrap();
    for i in 0..9u32 {
        db.with(WriteOptions::sync()).put(i.to_le_bytes(), "in the log").unwrap();
    }
    let report = verify(dir.path());
    assert!(report.is_clean(), "{report:?}");
    let [note] = &report.notes[..] else { panic!("{report:?}") };
    assert!(note.detail.contains("has it open for writing"), "{note:?}");
    assert_eq!((report.slices, report.entries, report.log_records), (1, 60, 9));
    let table = files(&dir.path().join("table"), ".tbl").remove(0);
    let len = std::fs::read(&table).unwrap().len();
    every_flip_is_found(dir.path(), &table, (0..len).step_by(STEP));
    let manifest = files(dir.path(), "MANIFEST").remove(0);
    every_flip_is_found(dir.path(), &manifest, (0..120).step_by(STEP));
    let gone = dir.path().join("gone");
    std::fs::rename(&table, &gone).unwrap();
    assert!(verify(dir.path()).findings.iter().any(|finding| finding.path == table));
    std::fs::rename(&gone, &table).unwrap();
    db.close().unwrap();
    assert!(verify(dir.path()).notes.is_empty());
}

#[test]
fn nothing_that_a_busy_writer_does_is_called_damage() {
    let dir = tempfile::tempdir().unwrap();
    let db = small().open(dir.path()).unwrap();
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for i in (0u32..).take_while(|_| !done.load(std::sync::atomic::Ordering::Relaxed)) {
                db.put((i % 3000).to_be_bytes(), [i as u8; 100]).unwrap();
            }
        });
        let mut reports = Vec::new();
        while reports.len() < 40 || db.metrics().compactions < 4 {
            reports.push(tools::verify(dir.path(), &Env::system(), &mut |_, _| ()));
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        let mut count = 0;
        for report in reports {
            match report {
                Ok(report) => {
                    assert!(report.is_clean() && report.notes.len() == 1, "{report:?}");
                    count += 1;
                }
                // A machine that is busy with the writer alone is no damage either.
                Err(error) => assert_eq!(error.name(), "OUTRUN", "{error}"),
            }
        }
        assert!(count > 0, "each look was outrun");
    });
    db.close().unwrap();
}

#[test]
fn every_flipped_byte_of_a_synced_record_is_found() {
    let (live, killed) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let db = small().open(live.path()).unwrap();
    for i in 0..20u64 {
        // A header of 32 bytes and a payload of 40, so that there is no padding, which no checksum
        // covers.
        db.with(WriteOptions::sync()).put(i.to_be_bytes(), [7; 23]).unwrap();
    }
    copy(live.path(), killed.path());
    let report = verify(killed.path());
    assert!(report.is_clean() && report.log_records == 20, "{report:?}");
    let segment = files(&killed.path().join("wal"), ".wal").remove(0);
    every_flip_is_found(killed.path(), &segment, (0..4096 + 19 * 72).step_by(STEP));
}

#[test]
fn an_inspection_tells_what_the_manifest_says() {
    let dir = tempfile::tempdir().unwrap();
    let db = small().open(dir.path()).unwrap();
    db.put("a", "1").unwrap();
    db.put("b", "2").unwrap();
    let env = Env::system();
    let found = tools::inspect(dir.path(), &env).unwrap();
    assert!(!found.closed_cleanly && found.term == 2 && found.tables.is_empty(), "{found:?}");
    db.close().unwrap();
    let found = tools::inspect(dir.path(), &env).unwrap();
    assert!(found.closed_cleanly && found.term == 2 && found.tables.len() == 1, "{found:?}");
    let slice = &found.tables[0].slices[0];
    assert_eq!((slice.entries, &slice.smallest[..], &slice.largest[..]), (2, &b"a"[..], &b"b"[..]));
    assert_eq!(found.tables[0].bytes, std::fs::metadata(&found.tables[0].path).unwrap().len());
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let (path, name) = entry.map(|entry| (entry.path(), entry.file_name())).unwrap();
        if path.is_dir() {
            copy(&path, &to.join(name))
        } else {
            std::fs::copy(&path, to.join(name)).map(|_| ()).unwrap()
        }
    }
}
