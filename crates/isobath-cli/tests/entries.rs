//! `create`, `get`, `put`, `merge`, `delete`, `scan`: what is written comes back, as text and as
//! hexadecimal digits.

mod support;

use isobath::{Options, ReadPoint};
use std::time::{Duration, SystemTime};
use support::*;

#[test]
fn what_is_put_is_there_until_it_is_deleted() {
    let home = Home::new();
    home.run("put", &["key", "value"]).ok();
    assert_eq!(home.run("get", &["key"]).ok(), "value\n");
    assert_eq!(home.run("get", &["key", "--raw"]).ok(), "value");
    home.run("put", &["key", "other", "--sync"]).ok();
    assert_eq!(home.run("get", &["key"]).ok(), "other\n");
    home.run("delete", &["key"]).ok();
    home.run("delete", &["key", "--sync"]).ok();
    assert_eq!(home.run("get", &["key"]).code, 1);
}

#[test]
fn a_missing_key_is_exit_code_1_and_no_output() {
    let run = Home::new().run("get", &["nothing"]);
    assert_eq!((run.code, run.stdout.as_str(), run.stderr.as_str()), (1, "", ""));
}

#[test]
fn bytes_come_back_as_escaped_text_and_as_hexadecimal_digits() {
    let home = Home::new();
    for (text, hex) in [
        ("plain", "706c61696e"),
        ("tab\\tnewline\\nzero\\x00", "746162096e65776c696e650a7a65726f00"),
        ("back\\\\slash", "6261636b5c736c617368"),
        ("é\\xff", "c3a9ff"),
    ] {
        home.run("put", &[text, text]).ok();
        assert_eq!(home.run("get", &[text]).ok(), format!("{text}\n"));
        assert_eq!(home.run("get", &["--hex", hex]).ok(), format!("{hex}\n"));
        let scanned = home.run("scan", &[]).ok();
        assert!(scanned.lines().any(|line| line == format!("{text}\t{text}")), "{scanned}");
        // Text that `scan` prints is valid as an argument of `put`.
        home.run("put", &["--hex", hex, "00"]).ok();
        assert_eq!(home.run("get", &[text]).ok(), "\\x00\n");
    }
    home.run("get", &["C:\\dir"]).fails_with(2, &["--hex"]);
    home.run("get", &["--hex", "abc"]).fails_with(2, &["two digits"]);
}

#[test]
fn a_value_is_read_from_a_file_or_standard_input_as_it_is() {
    let home = Home::new();
    let bytes = b"\\x00 \xff\n";
    isobath_piped(&["put", &home.db(), "pipe", "--from-file", "-"], bytes).ok();
    let file = home.path().with_file_name("value");
    std::fs::write(&file, bytes).unwrap();
    home.run("put", &["file", "--from-file", file.to_str().unwrap()]).ok();
    isobath_from(&["put", &home.db(), "input", "--from-file", "-"], &file).ok();
    for key in ["pipe", "file", "input"] {
        assert_eq!(home.run("get", &[key]).ok(), "\\\\x00 \\xff\\n\n", "{key}");
    }
    assert_eq!(home.run("get", &["pipe", "--hex"]).code, 2);
    let missing = file.with_file_name("missing");
    home.run("put", &["k", "--from-file", missing.to_str().unwrap()])
        .fails_with(2, &["could not read", "missing"]);
}

#[test]
fn a_value_that_is_missing_replaces_nothing() {
    let home = Home::new();
    let db = home.db();
    home.run("put", &["kept", "1"]).ok();
    // A value that was forgotten, with nothing on standard input.
    home.run("put", &["kept"]).fails_with(2, &["VALUE", "--from-file"]);
    // `get --raw DB missing | put DB kept`
    let run = isobath_piped(&["put", &db, "kept"], b"");
    run.fails_with(2, &["VALUE"]);
    let run = isobath_piped(&["put", &db, "kept", "--from-file", "-"], b"");
    run.fails_with(2, &["standard input is empty", "''"]);
    home.run("put", &["kept", "--from-file", "-"]).fails_with(2, &["is empty"]);
    home.run("put", &["kept", "--from-file", "/dev/null"]).fails_with(2, &["/dev/null is empty"]);
    home.run("put", &["kept", "2", "--from-file", "-"]).fails_with(2, &["cannot be used with"]);
    assert_eq!(home.run("get", &["kept"]).ok(), "1\n");
    // The empty value has to be meant. An empty file is one that was made so.
    home.run("put", &["empty", ""]).ok();
    let file = home.path().with_file_name("value");
    std::fs::write(&file, "").unwrap();
    home.run("put", &["too", "--from-file", file.to_str().unwrap()]).ok();
    assert_eq!(home.run("scan", &[]).ok(), "empty\t\nkept\t1\ntoo\t\n");
}

#[test]
fn an_empty_bound_deletes_nothing() {
    let home = Home::new();
    for key in ["a", "b"] {
        home.run("put", &[key, "1"]).ok();
    }
    // What a shell makes of variables that are not set.
    for range in [
        &["--prefix", ""][..],
        &["--from", ""],
        &["--to", ""],
        &["--from", "", "--to", ""],
        &["--from", "", "--to", "b"],
        &["--from", "a", "--to", ""],
        &["--hex", "--prefix", ""],
    ] {
        home.run("delete", range).fails_with(2, &["is empty", "--all"]);
    }
    let script = home.path().with_file_name("script");
    for (text, said) in [
        ("delete_prefix ", "a prefix"),
        ("delete_prefix\t", "is empty"),
        ("delete_range a ", "1 are given"),
        ("delete_range  b", "1 are given"),
        ("delete_range  ", "0 are given"),
        ("delete_range\ta", "`delete_from KEY`"),
        ("delete_range\ta\t", "is empty"),
        ("delete_range\t\tb", "is empty"),
        ("delete_range\t\t", "is empty"),
        ("delete_from ", "a key"),
        ("delete_from\t", "is empty"),
        ("delete_all a", "takes nothing"),
    ] {
        std::fs::write(&script, format!("{text}\n")).unwrap();
        home.run("transact", &[script.to_str().unwrap()]).fails_with(2, &["line 1: ", said]);
    }
    assert_eq!(home.run("scan", &["-k"]).ok(), "a\nb\n");
    std::fs::write(&script, "delete_all\n").unwrap();
    home.run("transact", &[script.to_str().unwrap()]).ok();
    assert_eq!(home.run("scan", &["-k"]).ok(), "");
    home.run("put", &["a", "1"]).ok();
    home.run("delete", &["--all"]).ok();
    assert_eq!(home.run("scan", &["-k"]).ok(), "");
}

#[test]
fn an_empty_end_of_a_range_is_refused_where_it_is_read_too() {
    let home = Home::new();
    home.run("put", &["a", "1"]).ok();
    for command in ["scan", "estimate", "compact"] {
        for bounds in [&["--to", ""][..], &["--from", "a", "--to", ""], &["--hex", "--to", ""]] {
            home.run(command, bounds).fails_with(2, &["--to is empty", "leave it out"]);
        }
        home.run(command, &["--from", "", "--to", "b"]).ok();
    }
    let run = home.run("scan", &["--export", "--to", ""]);
    assert_eq!((run.code, run.stdout.as_str()), (2, ""));
    assert_eq!(home.run("scan", &["--from", ""]).ok(), "a\t1\n");
}

#[test]
fn bounds_that_are_turned_round_or_equal_are_refused() {
    let home = Home::new();
    for key in ["a", "b"] {
        home.run("put", &[key, "1"]).ok();
    }
    let said = ["--to is not above --from", "exchange"];
    for bounds in [["--from", "b", "--to", "a"], ["--from", "a", "--to", "a"]] {
        for command in ["scan", "estimate", "compact", "delete"] {
            home.run(command, &bounds).fails_with(2, &said);
        }
        let run = home.run("scan", &[&bounds[..], &["--export"]].concat());
        assert_eq!((run.code, run.stdout.as_str()), (2, ""));
    }
    home.run("scan", &["--hex", "--from", "61", "--to", "4a"]).fails_with(2, &said);
    assert_eq!(home.run("scan", &["--hex", "--from", "4A", "--to", "61"]).ok(), "");
    assert_eq!(home.run("scan", &["-k"]).ok(), "a\nb\n");
}

#[test]
fn a_value_is_copied_by_the_shell_as_it_is() {
    let home = Home::new();
    home.run("put", &["--hex", "61", "2d0a00ff5c0a"]).ok();
    let copies = "
        set -e
        isobath() { \"$ISOBATH\" \"$@\"; }
        value=$(isobath get \"$DB\" a) && isobath put \"$DB\" -- b \"$value\"
        isobath get --raw \"$DB\" a > \"$DB.value\" && isobath put \"$DB\" c --from-file \"$DB.value\"
        if value=$(isobath get \"$DB\" none) && isobath put \"$DB\" -- b \"$value\"; then exit 3; fi
        if isobath get --raw \"$DB\" none | isobath put \"$DB\" b --from-file -; then exit 4; fi";
    let shell = std::process::Command::new("sh")
        .args(["-c", copies])
        .envs([("ISOBATH", env!("CARGO_BIN_EXE_isobath")), ("DB", &home.db())])
        .output()
        .unwrap();
    assert!(shell.status.success(), "{shell:?}");
    for key in ["62", "63"] {
        assert_eq!(home.run("get", &["--hex", key]).ok(), "2d0a00ff5c0a\n");
    }
}

#[test]
fn scans_keep_to_their_bounds_in_both_directions() {
    let home = Home::new();
    for key in ["a", "b1", "b2", "c", "d\\xff", "d\\xff\\xff"] {
        home.run("put", &[key, "v"]).ok();
    }
    let keys = |rest: &[&str]| {
        let all = [rest, &["--keys-only"]].concat();
        home.run("scan", &all).ok().lines().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(keys(&[]), ["a", "b1", "b2", "c", "d\\xff", "d\\xff\\xff"]);
    assert_eq!(keys(&["--from", "b1", "--to", "c"]), ["b1", "b2"]);
    assert_eq!(keys(&["--from", "b2", "--reverse"]), ["d\\xff\\xff", "d\\xff", "c", "b2"]);
    assert_eq!(keys(&["--prefix", "b"]), ["b1", "b2"]);
    assert_eq!(keys(&["--prefix", "d\\xff", "--reverse", "-n", "1"]), ["d\\xff\\xff"]);
    assert_eq!(keys(&["--limit", "2"]), ["a", "b1"]);
    assert_eq!(keys(&["--hex", "--from", "64"]), ["64ff", "64ffff"]);
    assert_eq!(keys(&["--from", "a\\0", "--to", "b"]), [""; 0]);
    home.run("scan", &["--prefix", "b", "--from", "a"]).fails_with(2, &["cannot be used with"]);
}

#[test]
fn output_that_is_read_no_further_is_no_failure() {
    let home = Home::compacted();
    let run = isobath_unread(&["scan", &home.db()]);
    assert_eq!((run.code, run.stderr.as_str()), (0, ""));
}

#[test]
fn create_leaves_alone_what_is_there() {
    let home = Home::new();
    home.run("put", &["key", "value"]).ok();
    home.run("create", &[]).fails_with(2, &["holds a database already", "another directory"]);
    assert_eq!(home.run("get", &["key"]).ok(), "value\n");
    let other = tempfile::tempdir().unwrap();
    std::fs::write(other.path().join("letter.txt"), "dear").unwrap();
    let run = isobath(&["create", other.path().to_str().unwrap()]);
    assert!(!run.stderr.contains("isobath create"), "what failed is no advice: {run:?}");
    run.fails_with(2, &["other files", "hint: check the path"]);
    assert_eq!(std::fs::read_dir(other.path()).unwrap().count(), 1);
}

#[test]
fn a_path_without_a_database_is_exit_code_2_and_stays_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    for path in [dir.path().to_owned(), dir.path().join("none")] {
        let path = path.to_str().unwrap();
        for command in ["get", "put", "delete", "scan", "stats", "verify", "flush", "compact"] {
            let rest = match command {
                "get" | "delete" => &["k"][..],
                "put" => &["k", "v"],
                _ => &[],
            };
            let run = isobath(&[&[command, path], rest].concat());
            run.fails_with(2, &["isobath create"]);
        }
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn the_empty_key_is_a_key() {
    let home = Home::new();
    home.run("put", &["key", "other"]).ok();
    home.run("put", &["", "value"]).ok();
    assert_eq!(home.run("get", &[""]).ok(), "value\n");
    assert_eq!(home.run("get", &["--hex", ""]).ok(), "76616c7565\n");
    assert_eq!(home.run("scan", &[]).ok(), "\tvalue\nkey\tother\n");
    home.run("delete", &[""]).ok();
    assert_eq!(home.run("get", &[""]).code, 1);
}

#[test]
fn keys_out_of_limits_are_refused() {
    let home = Home::new();
    home.run("put", &[&"k".repeat(70_000), "value"]).fails_with(2, &["at most 65536"]);
}

#[test]
fn earlier_states_are_read_by_point_and_by_time() {
    let home = Home::new();
    let options = || Options::new().history(Duration::from_secs(3600));
    let point = {
        let db = options().open(home.db()).unwrap();
        let first = db.put("key", "before").unwrap();
        db.put("key", "after").unwrap();
        db.delete("gone").unwrap();
        db.close().unwrap();
        ReadPoint::from(first).to_string()
    };
    let closed = utc(SystemTime::now());
    std::thread::sleep(Duration::from_millis(20));
    // Opens without the option, too, keep what is within the history.
    home.run("put", &["key", "last"]).ok();
    home.run("put", &["new", "later"]).ok();
    assert_eq!(home.run("get", &["key"]).ok(), "last\n");
    assert_eq!(home.run("get", &["key", "--as-of", &point]).ok(), "before\n");
    assert_eq!(home.run("scan", &["--as-of", &point]).ok(), "key\tbefore\n");
    assert_eq!(home.run("get", &["key", "--as-of", "0s"]).ok(), "last\n");
    assert_eq!(home.run("get", &["key", "--as-of", &closed]).ok(), "after\n");
    assert_eq!(home.run("scan", &["--as-of", &closed]).ok(), "key\tafter\n");
    home.run("get", &["new", "--as-of", &closed]).fails_with(1, &[]);
    let last = {
        let db = options().read_only(true).open(home.db()).unwrap();
        db.snapshot().read_point().to_string()
    };
    home.run("get", &["key", "--as-of", "50m"]).fails_with(2, &["history", "hint: earlier states"]);
    home.run("get", &["key", "--as-of", "yesterday"]).fails_with(2, &["2026-11-22T15:04:05Z"]);
    home.run("scan", &["--as-of", &"0".repeat(32)]).fails_with(2, &["another database"]);
    let ahead =
        format!("{:016x}{}", u64::from_str_radix(&last[..16], 16).unwrap() + 1, &last[16..]);
    home.run("get", &["key", "--as-of", &ahead]).fails_with(2, &["ahead of the newest"]);
    // An open that ends the history.
    options().history(Duration::ZERO).open(home.db()).unwrap().close().unwrap();
    for when in [&point, &closed] {
        home.run("get", &["key", "--as-of", when]).fails_with(2, &["the oldest point is"]);
    }
}

#[test]
fn the_help_says_what_a_family_is_before_it_was_created() {
    let home = Home::new();
    home.run("families create", &["side"]).ok();
    home.run("put", &["-f", "side", "key", "old"]).ok();
    let point = {
        let db = Options::new().history(Duration::from_secs(3600)).open(home.db()).unwrap();
        let point = ReadPoint::from(db.put("key", "before").unwrap()).to_string();
        db.close().unwrap();
        point
    };
    let at = ["-f", "side", "--as-of", &point];
    assert_eq!(home.run("scan", &at).ok(), "key\told\n");
    home.run("families drop", &["side"]).ok();
    home.run("scan", &at).fails_with(2, &["no column family"]);
    home.run("families create", &["side"]).ok();
    assert_eq!(home.run("scan", &at).ok(), "");
    home.run("families clone", &["default", "clone"]).ok();
    assert_eq!(home.run("scan", &["-f", "clone", "--as-of", &point]).ok(), "");
    for command in ["get", "scan"] {
        let help =
            isobath(&[command, "--help"]).ok().split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(help.contains("a column family that was created later is empty"), "{help}");
    }
}

/// A time as `--as-of` reads it.
fn utc(time: SystemTime) -> String {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let (seconds, millis) = (since.as_secs(), since.subsec_millis());
    let (mut day, mut year, mut month) = (seconds / 86_400, 1970, 1);
    let is_leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    while day >= 365 + u64::from(is_leap(year)) {
        day -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    for days in [31, 28 + u64::from(is_leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30] {
        if day < days {
            break;
        }
        day -= days;
        month += 1;
    }
    let [hour, minute, second] = [seconds / 3600 % 24, seconds / 60 % 60, seconds % 60];
    format!("{year}-{month:02}-{:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z", day + 1)
}

#[test]
fn operands_are_added_and_read_as_one_value() {
    let home = Home::new();
    home.run("families create", &["log", "--merge-operator", "isobath.append"]).ok();
    home.run("merge", &["-f", "log", "k", "a"]).ok();
    home.run("merge", &["-f", "log", "k", "b", "--sync"]).ok();
    assert_eq!(home.run("get", &["-f", "log", "k"]).ok(), "ab\n");
    assert_eq!(home.run("scan", &["-f", "log"]).ok(), "k\tab\n");
    home.run("merge", &["k", "a"]).fails_with(2, &["no merge operator"]);
    home.run("families create", &["odd", "--merge-operator", "no.such"])
        .fails_with(2, &["no.such", "not known"]);
}
