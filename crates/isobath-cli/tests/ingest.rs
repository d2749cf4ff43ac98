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
    let hex = file(&home, "hex", "00ff\t01\n");
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
        ("b\t1\tsoon\n", "line 1: cannot read \"soon\""),
        ("b\t1\tnever\t\n", "line 1: a key, a tab"),
        ("b\t1\nc\t2\r\n", "line 2: it ends with a carriage return"),
        ("b\t1\r\n", "CRLF"),
        ("b\t1\r\n", "to a value is written \\r"),
        ("# begin\r\nb\t1\r\n# end\r\n", "line 1: it ends with a carriage return"),
        ("# end\r\n", "line 1: it ends with a carriage return"),
        ("ISOBATH\0 damaged", "corruption"),
    ] {
        let bad = file(&home, "bad", text);
        let told = home.run("ingest", &[good.to_str().unwrap(), bad.to_str().unwrap()]);
        assert_eq!(told.code, 2, "{text}");
        assert!(told.stderr.contains(said), "{text}: {}", told.stderr);
        assert_eq!(home.run("scan", &["--keys-only"]).ok(), "kept\n");
    }
    assert_eq!(home.run("ingest", &["/nowhere"]).code, 2);
    // A carriage return that is meant.
    let returns = file(&home, "returns", "l\tone\\r\nm\tt\rwo\n");
    home.run("ingest", &[returns.to_str().unwrap()]).ok();
    assert_eq!(home.run("scan", &["--from", "l"]).ok(), "l\tone\\r\nm\tt\\rwo\n");
}

#[test]
fn an_input_that_was_cut_short_changes_nothing() {
    let home = Home::new();
    let arguments = ["ingest", &home.db(), "-"];
    home.run("put", &["kept", "1"]).ok();
    for (text, said) in [
        ("a\t1\nb\ttrunc", "line 2: it has no newline"),
        ("# begin\na\t1\n", "the last line is not `# end`"),
        ("# begin\n", "the last line is not `# end`"),
        ("# begin\n# end", "line 2: it has no newline"),
        ("# begin", "line 1: it has no newline"),
        ("a\t1\n# end\nb\t2\n", "line 3: nothing may follow `# end`"),
        ("a\t1\n# begin\n# end\n", "line 2: a key, a tab"),
        ("# end\n\n", "line 2: nothing may follow"),
    ] {
        let cut = file(&home, "cut", text);
        for run in [
            isobath_piped(&arguments, text.as_bytes()),
            isobath_from(&arguments, &cut),
            home.run("ingest", &[cut.to_str().unwrap()]),
        ] {
            assert!(run.code == 2 && run.stderr.contains(said), "{text:?}: {run:?}");
            assert!(run.stderr.contains("nothing was written"), "{run:?}");
        }
    }
    // The exit code of its writer comes too late, so a pipe has to say that it is whole.
    for text in ["", "a\t1\n"] {
        isobath_piped(&arguments, text.as_bytes())
            .fails_with(2, &["standard input: the last line is not `# end`", "&& echo '# end'"]);
    }
    home.run("ingest", &["-"]).fails_with(2, &["# end"]);
    home.run("ingest", &["/dev/null"]).fails_with(2, &["# end"]);
    assert_eq!(home.run("scan", &[]).ok(), "kept\t1\n");
    for (text, keys) in [
        ("a\t1\n# end\n", "a\nkept\n"),
        ("# begin\nb\t1\n# end\n", "a\nb\nkept\n"),
        ("# end\n", "a\nb\nkept\n"),
    ] {
        isobath_piped(&arguments, text.as_bytes()).ok();
        assert_eq!(home.run("scan", &["-k"]).ok(), keys);
    }
    isobath_from(&arguments, &file(&home, "whole", "c\t1\n")).ok();
    assert_eq!(home.run("scan", &["-k"]).ok(), "a\nb\nc\nkept\n");
}

#[test]
fn an_empty_file_is_no_input() {
    let home = Home::new();
    let none = file(&home, "none", "");
    let arguments = ["ingest", &home.db(), "-"];
    for run in [home.run("ingest", &[none.to_str().unwrap()]), isobath_from(&arguments, &none)] {
        run.fails_with(2, &["is empty", "its writer has failed", "# end", "nothing was written"]);
    }
    for text in ["# end\n", "# begin\n# end\n", "# begin text\n# end\n"] {
        home.run("ingest", &[file(&home, "nothing", text).to_str().unwrap()]).ok();
    }
}

#[test]
fn a_scan_that_met_damage_or_was_killed_copies_nothing() {
    let (from, to) = (Home::compacted(), Home::new());
    let whole = from.run("scan", &["--export"]).ok();
    let arguments = ["ingest", &to.db(), "-"];
    for len in [whole.len() - "# end".len() - 1, 64 << 10, 1000] {
        assert_eq!(isobath_piped(&arguments, &whole.as_bytes()[..len]).code, 2, "{len}");
    }
    let table = from.files("table", ".tbl").remove(0);
    let len = std::fs::metadata(&table).unwrap().len() as usize;
    flip(&table, len / 2);
    let run = from.run("scan", &["--export"]);
    assert!(run.code == 2 && run.stdout.lines().count() > 100, "{}", run.stderr);
    assert_eq!(isobath_piped(&arguments, run.stdout.as_bytes()).code, 2);
    assert_eq!(to.run("scan", &[]).ok(), "");
    isobath_piped(&arguments, whole.as_bytes()).ok();
    assert_eq!(to.run("scan", &["--export"]).ok(), whole);
    from.run("scan", &["--export", "--keys-only"]).fails_with(2, &["cannot be used with"]);
    from.run("scan", &["--export", "--reverse"]).fails_with(2, &["cannot be used with"]);
}

#[test]
fn an_export_is_not_read_in_the_other_form() {
    let (from, to) = (Home::new(), Home::new());
    // Digits are text, too.
    from.run("put", &["63", "64"]).ok();
    for (export, ingest, said) in [
        (&["--export"][..], &["--hex"][..], "line 1: the lines are text; leave out --hex"),
        (&["--export", "--hex"], &[], "line 1: the lines are hexadecimal digits; say --hex"),
    ] {
        let lines = from.run("scan", export).ok();
        let db = to.db();
        let run = isobath_piped(&[&["ingest", &db, "-"], ingest].concat(), lines.as_bytes());
        run.fails_with(2, &[said, "nothing was written"]);
        assert_eq!(to.run("scan", &[]).ok(), "");
    }
    // The plain mark says nothing of the form.
    let db = to.db();
    isobath_piped(&["ingest", &db, "-", "--hex"], b"# begin\n6a\t6b\n# end\n").ok();
    isobath_piped(&["ingest", &db, "-"], b"# begin\nk\tl\n# end\n").ok();
    assert_eq!(to.run("scan", &[]).ok(), "j\tk\nk\tl\n");
}

#[test]
fn an_export_keeps_the_ends_of_values() {
    let (from, to) = (Home::new(), Home::new());
    to.run("families create", &["pages", "--ttl", "1h"]).ok();
    assert_eq!(from.run("scan", &["--export"]).ok(), "# begin text\n# end\n");
    from.run("put", &["# end", "tab \\t and newline \\n"]).ok();
    from.run("put", &["goes", "2", "--ttl", "2h"]).ok();
    from.run("put", &["late", "3", "--ttl", "99999999d"]).ok();
    from.run("put", &["then", "", "--ttl", "2100-01-02T03:04:05.678Z"]).ok();
    let lines = from.run("scan", &["--export"]).ok();
    for part in [
        "# begin text\n# end\ttab \\t and newline \\n\tnever\ngoes\t2\t2",
        "Z\nthen\t\t2100-01-02T03:04:05.678Z\n# end\n",
    ] {
        assert!(lines.contains(part), "{part:?} is not in {lines}");
    }
    let arguments = ["ingest", &to.db(), "-f", "pages", "-"];
    isobath_piped(&arguments, lines.as_bytes()).ok();
    assert_eq!(to.run("scan", &["-f", "pages", "--export"]).ok(), lines);
    let hex = from.run("scan", &["--export", "--hex", "--from", "67", "-n", "1"]).ok();
    assert!(
        hex.starts_with("# begin hex\n676f6573\t32\t2") && hex.ends_with("Z\n# end\n"),
        "{hex}"
    );
    isobath_piped(&["ingest", &to.db(), "--hex", "-"], hex.as_bytes()).ok();
    assert_eq!(to.run("scan", &["--export", "--hex"]).ok(), hex);
    let prefixed = from.run("scan", &["--export", "--prefix", "t"]).ok();
    assert_eq!(prefixed.lines().count(), 3, "{prefixed}");
    // An end may be a duration, and what has ended is not there.
    let own = file(&to, "own", "goes\t3\t2000-01-01T00:00:00Z\nnews\t4\t15m\nplain\t5\n");
    to.run("ingest", &["-f", "pages", own.to_str().unwrap()]).ok();
    assert_eq!(to.run("get", &["-f", "pages", "goes"]).code, 1);
    for key in ["news", "plain"] {
        assert_ne!(to.run("get", &["-f", "pages", key, "--expiry"]).ok(), "never\n");
    }
}
