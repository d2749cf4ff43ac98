//! `dump`: each kind of file, whole and damaged.

mod support;

use std::path::Path;
use support::*;

fn dump(path: &Path, rest: &[&str]) -> Run {
    isobath(&[&["dump", path.to_str().unwrap()], rest].concat())
}

#[test]
fn a_table_is_shown_block_by_block_and_entry_by_entry() {
    let home = Home::compacted();
    let table = home.files("table", ".tbl").remove(0);
    let shown = dump(&table, &[]).ok();
    for word in [
        "header kind=table",
        "data block",
        "separator",
        "filter",
        "root",
        "inputs",
        "directory",
        "footer",
    ] {
        assert!(shown.contains(word), "{word:?} is not in {shown}");
    }
    assert_eq!(shown.matches(" entry ").count(), 2000);
    assert!(shown.contains("key=key000007 value=value7."), "{shown}");
    let shown = dump(&table, &["--limit", "3", "--hex"]).ok();
    assert_eq!(shown.matches(" entry ").count(), 3);
    assert!(shown.contains("key=6b6579303030303030"), "{shown}");
}

#[test]
fn a_damaged_block_is_shown_as_such_between_those_that_are_whole() {
    let home = Home::compacted();
    let table = home.files("table", ".tbl").remove(0);
    flip(&table, 1000);
    let run = dump(&table, &[]);
    assert_eq!(run.code, 1);
    assert_eq!(run.stdout.matches(" damage ").count(), 1, "{}", run.stdout);
    assert!(run.stdout.contains("checksum does not match"), "{}", run.stdout);
    assert!((1000..2000).contains(&run.stdout.matches(" entry ").count()));
    let len = std::fs::metadata(&table).unwrap().len() as usize;
    flip(&table, len - 20);
    dump(&table, &[]).fails_with(1, &["damage", "footer"]);
}

#[test]
fn a_value_that_ends_is_shown_without_its_end() {
    let home = Home::new();
    home.run("put", &["key", "value", "--ttl", "2100-01-01T00:00:00Z"]).ok();
    for file in home.files("wal", ".wal").iter().chain(&home.files("table", ".tbl")) {
        let shown = dump(file, &[]).ok();
        assert!(shown.contains("key=key expires_ms=4102444800000 value=value\n"), "{shown}");
    }
}

#[test]
fn a_manifest_is_shown_edit_by_edit() {
    let home = Home::compacted();
    let manifest = home.manifest();
    let shown = dump(&manifest, &[]).ok();
    for word in
        ["header kind=manifest", "edit changes=", "create family 0 \"default\"", "clean close"]
    {
        assert!(shown.contains(word), "{word:?} is not in {shown}");
    }
    assert_eq!(dump(&manifest, &["-n", "1"]).ok().matches(" edit ").count(), 1);
    flip(&manifest, 150);
    dump(&manifest, &[]).fails_with(1, &["damage", "a record of the manifest is damaged"]);
    assert!(dump(&home.path().join("CURRENT"), &[]).ok().contains("names manifest="));
}

#[test]
fn a_log_segment_is_shown_record_by_record() {
    let home = Home::killed();
    let segment = home.files("wal", ".wal").remove(0);
    let shown = dump(&segment, &[]).ok();
    assert!(shown.contains("header kind=log base=0x"), "{shown}");
    assert_eq!(shown.matches(" record ").count(), 100);
    assert!(shown.contains("put family=0") && shown.contains("key=key000042 value=value42."));
    assert_eq!(dump(&segment, &["-n", "5"]).ok().matches(" put ").count(), 5);
    let bytes = std::fs::read(&segment).unwrap();
    let at = bytes.windows(9).position(|window| window == b"key000050").unwrap();
    flip(&segment, at);
    let run = dump(&segment, &[]);
    assert_eq!((run.code, run.stdout.matches(" put ").count()), (1, 99), "{}", run.stdout);
    assert!(run.stdout.contains("does not match its checksum"), "{}", run.stdout);
}

#[test]
fn segments_whose_records_straddle_are_shown_without_damage() {
    let home = Home::killed_after(1500);
    let segments = home.files("wal", ".wal");
    assert!(segments.len() > 1);
    let shown: Vec<_> = segments.iter().map(|segment| dump(segment, &[]).ok()).collect();
    let records: usize = shown.iter().map(|shown| shown.matches(" put ").count()).sum();
    assert_eq!(records, 1500);
}

#[test]
fn files_of_no_database_are_refused() {
    let home = Home::new();
    let stranger = home.path().join("letter.txt");
    std::fs::write(&stranger, "dear").unwrap();
    dump(&stranger, &[]).fails_with(2, &["MANIFEST-*"]);
    dump(&home.path(), &[]).fails_with(2, &["is a directory"]);
    dump(&home.path().join("none"), &[]).fails_with(2, &["could not open"]);
}

#[test]
fn no_damage_makes_a_dump_fail() {
    let (closed, killed) = (Home::compacted(), Home::killed());
    let files = [
        closed.manifest(),
        closed.path().join("CURRENT"),
        closed.files("table", ".tbl").remove(0),
        killed.files("wal", ".wal").remove(0),
    ];
    for path in files {
        let good = std::fs::read(&path).unwrap();
        for step in 0..12 {
            let mut bad = good.clone();
            let at = step * 37 % good.len();
            bad[at] ^= 0x80;
            std::fs::write(&path, &bad).unwrap();
            let run = dump(&path, &["-n", "20"]);
            assert!(run.code <= 1 || run.stderr.contains("error: "), "{run:?}");
            assert!(!run.stderr.contains("panicked"), "{run:?}");
            std::fs::write(&path, &good[..good.len() * step / 12]).unwrap();
            let run = dump(&path, &["-n", "20"]);
            assert!(!run.stderr.contains("panicked"), "{run:?}");
        }
        std::fs::write(&path, &good).unwrap();
    }
}
