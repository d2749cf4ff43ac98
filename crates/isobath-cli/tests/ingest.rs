//! `ingest`: sorted lines and sorted files come in together or not at all.

mod support;

use isobath::SortedFileWriter;
use std::path::PathBuf;
use support::*;

fn file(home: &Home, name: &str, text: &str) -> PathBuf {
    let path = home.path().with_file_name(name);
    std::fs::write(&path, text).unwrap();
    path
}

#[test]
fn what_scan_prints_comes_in_again_from_several_files() {
    let home = Home::new();
    home.run("families create", &["side"]).ok();
    home.run("put", &["zebra", "old"]).ok();
    let lines = file(&home, "lines", "ant\t6 legs\nbee\ttab \\t and newline \\n\n");
    let sorted = home.path().with_file_name("sorted");
    let mut writer = SortedFileWriter::create(&sorted).unwrap();
    writer.put("cricket", "sings").unwrap();
    writer.put("zebra", "new").unwrap();
    writer.finish().unwrap();
    let paths = [lines.to_str().unwrap(), sorted.to_str().unwrap()];
    assert_eq!(home.run("ingest", &[&paths[..], &["--sync"]].concat()).ok(), "");
    let expected = "ant\t6 legs\nbee\ttab \\t and newline \\n\ncricket\tsings\nzebra\tnew\n";
    assert_eq!(home.run("scan", &[]).ok(), expected);
    home.run("ingest", &[paths[0], "--family", "side"]).ok();
    assert_eq!(home.run("scan", &["--family", "side", "--keys-only"]).ok(), "ant\nbee\n");
    let hex = file(&home, "hex", "00ff\t01");
    home.run("ingest", &[hex.to_str().unwrap(), "--hex"]).ok();
    assert_eq!(home.run("get", &["00ff", "--hex"]).ok(), "01\n");
}

#[test]
fn a_mistake_is_told_by_its_line_and_changes_nothing() {
    let home = Home::new();
    home.run("put", &["kept", "1"]).ok();
    let good = file(&home, "good", "a\t1\n");
    for (text, said) in [
        ("b\t1\na\t2\n", "line 2: the key \"a\""),
        ("b\t1\nwithout\n", "line 2: a key, a tab"),
        ("b\\q\t1\n", "line 1: cannot read"),
        ("a\t1\n", "line 1: the key \"a\""),
        ("ISOBATH\0 damaged", "corruption"),
    ] {
        let bad = file(&home, "bad", text);
        let told = home.run("ingest", &[good.to_str().unwrap(), bad.to_str().unwrap()]);
        assert_eq!(told.code, 2, "{text}");
        assert!(told.stderr.contains(said), "{text}: {}", told.stderr);
        assert_eq!(home.run("scan", &["--keys-only"]).ok(), "kept\n");
    }
    assert_eq!(home.run("ingest", &["/nowhere"]).code, 2);
}
