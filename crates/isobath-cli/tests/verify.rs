//! `verify`: an undamaged database is clean, each damage is reported with file and offset, and
//! nothing is changed.

mod support;

use std::path::Path;
use support::*;

/// The findings of a verification that must have found something.
#[track_caller]
fn findings(home: &Home) -> Vec<(String, Option<u64>)> {
    let before = contents(&home.path());
    let run = home.run("verify", &["--json"]);
    assert_eq!(run.code, 1, "{run:?}");
    assert_eq!(contents(&home.path()), before);
    let report: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
    let findings = report["findings"].as_array().unwrap().iter();
    findings
        .map(|finding| (finding["path"].as_str().unwrap().to_owned(), finding["offset"].as_u64()))
        .collect()
}

/// The one file that is damaged, and where.
#[track_caller]
fn the_finding(home: &Home, path: &Path) -> u64 {
    let found = findings(home);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(Path::new(&found[0].0), path);
    found[0].1.expect("an offset")
}

#[test]
fn sound_databases_are_clean_and_stay_as_they_are() {
    for home in [Home::new(), Home::compacted(), Home::killed()] {
        let before = contents(&home.path());
        let said = home.run("verify", &[]).ok();
        assert!(said.contains("nothing is damaged"), "{said}");
        assert_eq!(contents(&home.path()), before);
    }
    let said = Home::killed().run("verify", &[]).ok();
    assert!(said.contains("100 log records"), "{said}");
    let said = Home::compacted().run("verify", &[]).ok();
    assert!(said.contains("with 2000 entries"), "{said}");
}

#[test]
fn every_damaged_block_of_a_table_is_named() {
    let home = Home::compacted();
    let table = home.files("table", ".tbl").remove(0);
    let len = std::fs::metadata(&table).unwrap().len() as usize;
    flip(&table, 1000);
    let offset = the_finding(&home, &table);
    assert!((128..=1000).contains(&offset), "{offset}");
    flip(&table, len / 2);
    let found = findings(&home);
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found[1].1.unwrap() as usize <= len / 2, "{found:?}");
    home.run("verify", &[])
        .fails_with(1, &[table.to_str().unwrap(), "at offset", "2 damaged places"]);
}

#[test]
fn the_header_and_the_footer_of_a_table_are_checked() {
    for (from_end, place) in [(false, 40), (true, 20)] {
        let home = Home::compacted();
        let table = home.files("table", ".tbl").remove(0);
        let len = std::fs::metadata(&table).unwrap().len();
        let offset = if from_end { len - place } else { place };
        flip(&table, offset as usize);
        assert_eq!(the_finding(&home, &table), if from_end { len - 64 } else { 0 });
    }
}

#[test]
fn a_missing_table_and_a_cut_one_are_named() {
    let home = Home::compacted();
    let table = home.files("table", ".tbl").remove(0);
    let bytes = std::fs::read(&table).unwrap();
    std::fs::write(&table, &bytes[..bytes.len() / 2]).unwrap();
    the_finding(&home, &table);
    std::fs::remove_file(&table).unwrap();
    assert_eq!(findings(&home), [(table.to_str().unwrap().to_owned(), None)]);
}

#[test]
fn a_damaged_manifest_is_named_and_the_rest_is_checked_without_it() {
    let home = Home::compacted();
    let (manifest, table) = (home.manifest(), home.files("table", ".tbl").remove(0));
    flip(&manifest, 150);
    assert_eq!(the_finding(&home, &manifest), 128);
    flip(&table, 1000);
    let found = findings(&home);
    let paths: Vec<_> = found.iter().map(|(path, _)| Path::new(path)).collect();
    assert_eq!(paths, [manifest.as_path(), table.as_path()]);
}

#[test]
fn a_damaged_or_missing_current_is_named() {
    let home = Home::compacted();
    let current = home.path().join("CURRENT");
    flip(&current, 3);
    assert_eq!(the_finding(&home, &current), 0);
    std::fs::remove_file(&current).unwrap();
    assert_eq!(findings(&home), [(current.to_str().unwrap().to_owned(), None)]);
}

#[test]
fn a_flipped_byte_in_a_synced_record_is_named_by_the_record_it_is_in() {
    let home = Home::killed();
    let segments = home.files("wal", ".wal");
    let (segment, offset) = segments
        .iter()
        .find_map(|path| {
            let bytes = std::fs::read(path).unwrap();
            let at = bytes.windows(9).position(|window| window == b"key000050")?;
            Some((path, at))
        })
        .unwrap();
    flip(segment, offset);
    let found = the_finding(&home, segment) as usize;
    assert!(found < offset && offset - found < 64, "{found} {offset}");
    flip(segment, offset);
    // Damage the header, so that not even the record's length is known.
    flip(segment, found + 1);
    assert_eq!(the_finding(&home, segment) as usize, found);
    let bytes = std::fs::read(segment).unwrap();
    let later = bytes.windows(9).position(|window| window == b"key000070").unwrap();
    flip(segment, later);
    assert_eq!(findings(&home).len(), 2);
}

#[test]
fn a_flipped_byte_in_the_log_is_noted_even_where_nothing_needs_it() {
    let home = Home::new();
    let db = small().open(home.path()).unwrap();
    for i in 0..100 {
        db.with(isobath::WriteOptions::sync()).put(key(i), value(i)).unwrap();
    }
    db.close().unwrap();
    home.run("verify", &[]).ok();
    let damaged = home.files("wal", ".wal").into_iter().find_map(|path| {
        let bytes = std::fs::read(&path).unwrap();
        let at = bytes.windows(9).position(|window| window == b"key000050")?;
        flip(&path, at);
        Some(path)
    });
    let name = damaged.expect("the last segment is still there");
    let name = name.file_name().unwrap().to_str().unwrap();
    let said = home.run("verify", &[]).ok();
    assert!(said.contains(name) && said.contains("no data is lost"), "{said}");
}

#[test]
fn a_damaged_header_page_and_a_missing_segment_are_named() {
    let home = Home::killed_after(1000);
    let segment = home.files("wal", ".wal").remove(0);
    flip(&segment, 3000);
    assert_eq!(the_finding(&home, &segment), 3000);
    flip(&segment, 3000);
    flip(&segment, 50);
    assert!(findings(&home).contains(&(segment.to_str().unwrap().to_owned(), Some(0))));
    std::fs::remove_file(&segment).unwrap();
    let found = findings(&home);
    assert!(found.iter().any(|(path, _)| Path::new(path) == segment), "{found:?}");
}

#[test]
fn a_torn_end_of_the_log_is_a_note_and_no_damage() {
    let home = Home::killed();
    let segment = home.files("wal", ".wal").remove(0);
    let bytes = std::fs::read(&segment).unwrap();
    let last = bytes.windows(9).rposition(|window| window == b"key000099").unwrap();
    flip(&segment, last);
    let said = home.run("verify", &[]).ok();
    assert!(said.contains("note: ") && said.contains("never promised"), "{said}");
}

#[test]
fn a_log_without_the_segment_where_replay_begins_is_damaged() {
    let home = Home::killed();
    let segments = home.files("wal", ".wal");
    for segment in &segments {
        std::fs::remove_file(segment).unwrap();
    }
    assert_eq!(the_finding(&home, &segments[0]), 0);
    home.run("get", &["key000000"]).fails_with(2, &["is missing", "isobath repair"]);
}
