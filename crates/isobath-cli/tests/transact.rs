//! `transact`: what a script does happens together or not at all.

mod support;

use std::io::Write;
use std::process::{Command, Stdio};
use support::*;

/// Runs a script from a file.
fn script(home: &Home, text: &str, rest: &[&str]) -> Run {
    let file = home.path().with_file_name("script");
    std::fs::write(&file, text).unwrap();
    home.run("transact", &[&[file.to_str().unwrap()], rest].concat())
}

#[test]
fn a_script_writes_to_all_families_at_once_and_sees_its_own_writes() {
    let home = Home::new();
    home.run("families create", &["side"]).ok();
    home.run("put", &["old", "1"]).ok();
    let told = script(
        &home,
        "# moves the old value\nexpect old 1\nget old\ndelete old\nget old\nput new 2\n\
         family side\nexpect-absent new\nput\tnew key\ttwo words\nget\tnew key\nfamily default\n\
         get new",
        &["--sync"],
    );
    assert_eq!(told.ok(), "old\t1\nnew key\ttwo words\nnew\t2\n");
    assert_eq!(home.run("scan", &[]).ok(), "new\t2\n");
    assert_eq!(home.run("scan", &["--family", "side"]).ok(), "new key\ttwo words\n");
    assert_eq!(script(&home, "put 00ff 01\nget 00ff", &["--hex"]).ok(), "00ff\t01\n");
}

#[test]
fn a_script_deletes_ranges_and_what_it_puts_there_afterwards_stays() {
    let home = Home::new();
    for key in ["a", "cart/7/apple", "cart/7/pear", "cart/8/plum", "log/1", "log/2", "z"] {
        home.run("put", &[key, "1"]).ok();
    }
    let text = "put cart/7/early 1\ndelete_prefix cart/7/\nput cart/7/fig 2\nget cart/7/early\n\
                delete_range log/ log/2\nget log/1\nget log/2\ndelete_range y\nget z";
    assert_eq!(script(&home, text, &[]).ok(), "log/2\t1\n");
    let left = "a\t1\ncart/7/fig\t2\ncart/8/plum\t1\nlog/2\t1\n";
    assert_eq!(home.run("scan", &[]).ok(), left);
    let reversed = "delete_prefix a\ndelete_range m c";
    script(&home, reversed, &[]).fails_with(2, &["line 2: "]);
    assert_eq!(home.run("scan", &[]).ok(), left);
}

#[test]
fn what_is_not_as_expected_is_exit_code_1_and_nothing_is_written() {
    let home = Home::new();
    home.run("put", &["key", "value"]).ok();
    for (text, line, word) in [
        ("put a 1\nexpect key other\nput b 2", 2, "has the value \"value\""),
        ("put a 1\n\nexpect nothing value", 3, "is not there"),
        ("put a 1\nget a\nexpect-absent key", 3, "is there"),
    ] {
        let run = script(&home, text, &[]);
        assert_eq!((run.code, run.stdout.as_str()), (1, ""), "{run:?}");
        assert!(run.stderr.contains(&format!("line {line}: ")), "{run:?}");
        assert!(run.stderr.contains(word) && run.stderr.contains("nothing was written"), "{run:?}");
        assert_eq!(home.run("scan", &[]).ok(), "key\tvalue\n");
    }
}

#[test]
fn a_mistake_in_the_last_line_is_exit_code_2_with_its_number_and_nothing_is_written() {
    let home = Home::new();
    for (last, word) in [
        ("put b", "a key and a value"),
        ("remove b", "is no operation"),
        ("put b \\q", "--hex"),
        ("family none", "no column family \"none\""),
    ] {
        script(&home, &format!("put a 1\n{last}"), &[]).fails_with(2, &["line 2: ", word]);
        assert_eq!(home.run("scan", &[]).ok(), "");
    }
    home.run("transact", &["/nowhere/script"]).fails_with(2, &["could not read /nowhere/script"]);
    let none = home.path().with_file_name("none");
    isobath(&["transact", none.to_str().unwrap(), "/dev/null"]).fails_with(2, &["isobath create"]);
    script(&home, "# nothing", &[]).ok();
}

#[test]
fn a_script_of_more_than_memory_holds_is_done_as_a_whole_or_not_at_all() {
    let home = Home::new();
    let value = "v".repeat(1 << 20);
    let text: String = (0..130).map(|n| format!("put key{n} {value}\n")).collect();
    script(&home, &format!("{text}nonsense"), &[]).fails_with(2, &["line 131: "]);
    assert_eq!(home.run("scan", &[]).ok(), "");
    script(&home, &text, &[]).ok();
    assert_eq!(home.run("get", &["key129"]).ok(), format!("{value}\n"));
    assert_eq!(home.run("scan", &["--keys-only"]).ok().lines().count(), 130);
}

#[test]
fn a_dash_stands_for_standard_input() {
    let home = Home::new();
    let mut child = Command::new(env!("CARGO_BIN_EXE_isobath"))
        .args(["transact", &home.db(), "-"])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"put key value\n").unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(home.run("get", &["key"]).ok(), "value\n");
}
