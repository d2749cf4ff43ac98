//! `transact`: what a script does happens together or not at all.

mod support;

use support::*;

/// Runs a script from a file, whose last line gets its newline.
fn script(home: &Home, text: &str, rest: &[&str]) -> Run {
    let file = home.path().with_file_name("script");
    std::fs::write(&file, format!("{text}\n")).unwrap();
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
                delete_range log/ log/2\nget log/1\nget log/2\ndelete_from y\nget z";
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
    script(&home, "# nothing", &[]).ok();
    let nothing = home.path().with_file_name("script");
    isobath(&["transact", none.to_str().unwrap(), nothing.to_str().unwrap()])
        .fails_with(2, &["isobath create"]);
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
fn values_of_any_size_are_in_scripts_and_given_other_ends() {
    let home = Home::new();
    let (value, longer) = ("v".repeat(9 << 20), "w".repeat(40 << 20));
    let text = format!("get a\nput a {value}\nput b {longer}\nexpect b {longer}\nput c 1\nget c");
    assert_eq!(script(&home, &text, &[]).ok(), "c\t1\n");
    home.run("expire", &["a", "2100-01-02T03:04:05Z"]).ok();
    assert_eq!(home.run("get", &["a", "--expiry"]).ok(), "2100-01-02T03:04:05.000Z\n");
    assert!(home.run("get", &["a"]).ok() == format!("{value}\n"));
    assert!(home.run("get", &["b"]).ok() == format!("{longer}\n"));
    // What was read in an attempt that was too large is not printed.
    let text = format!("get c\nput c {value}\nexpect-absent c");
    let run = script(&home, &text, &[]);
    assert_eq!((run.code, run.stdout.as_str()), (1, ""));
    let text = format!("get c\nput d {value}\nget c");
    assert_eq!(script(&home, &text, &[]).ok(), "c\t1\nc\t1\n");
}

#[test]
fn a_dash_stands_for_standard_input() {
    let home = Home::new();
    let arguments = ["transact", &home.db(), "-"];
    let text = "put key value\nget key\n# all of it\ncommit\n\n# thanks\n";
    assert_eq!(isobath_piped(&arguments, text.as_bytes()).ok(), "key\tvalue\n");
    assert_eq!(isobath_piped(&arguments, b"get key\ncommit").ok(), "key\tvalue\n");
    assert_eq!(script(&home, "get key\ncommit", &[]).ok(), "key\tvalue\n");
    // A regular file need not say where it ends.
    let file = home.path().with_file_name("script");
    std::fs::write(&file, "get key\n").unwrap();
    assert_eq!(isobath_from(&arguments, &file).ok(), "key\tvalue\n");
}

#[test]
fn help_names_every_operation() {
    let help = isobath(&["transact", "--help"]).ok();
    let told = script(&Home::new(), "nonsense", &[]).stderr;
    let (_, named) = told.split_once("there are ").unwrap();
    let (named, _) = named.split_once(';').unwrap();
    let names: Vec<_> = named.split([',', ' ']).filter(|word| !word.is_empty()).collect();
    assert!(names.len() > 9, "{told}");
    for name in names.into_iter().filter(|name| *name != "and") {
        assert!(help.contains(&format!("\n  {name} ")), "{name} is not in {help}");
    }
}

#[test]
fn a_script_that_was_cut_short_changes_nothing() {
    let home = Home::new();
    let arguments = ["transact", &home.db(), "-"];
    let file = home.path().with_file_name("script");
    for (text, said) in [
        ("put a 1\nput b trunc", "line 2: it has no newline"),
        ("put a 1\n# commen", "line 2: it has no newline"),
        ("put a 1\ncommit\nput b 1\n", "line 3: nothing may follow `commit`"),
        ("put a 1\ncommit\ncommit\n", "line 3: nothing may follow `commit`"),
        ("put a 1\ncommit now\n", "line 2: `commit` takes nothing"),
    ] {
        std::fs::write(&file, text).unwrap();
        for run in [
            isobath_piped(&arguments, text.as_bytes()),
            isobath_from(&arguments, &file),
            home.run("transact", &[file.to_str().unwrap()]),
        ] {
            assert!(run.code == 2 && run.stderr.contains(said), "{text:?}: {run:?}");
            assert!(run.stderr.contains("nothing was written"), "{run:?}");
        }
    }
    // The exit code of its writer comes too late, so a pipe has to say that it is whole.
    for text in ["", "put a 1\n"] {
        isobath_piped(&arguments, text.as_bytes())
            .fails_with(2, &["standard input does not end with the line `commit`", "nothing was"]);
    }
    home.run("transact", &["-"]).fails_with(2, &["`commit`"]);
    home.run("transact", &["/dev/null"]).fails_with(2, &["/dev/null does not end"]);
    assert_eq!(home.run("scan", &[]).ok(), "");
}

#[test]
fn an_empty_file_is_no_script() {
    let home = Home::new();
    let file = home.path().with_file_name("script");
    std::fs::write(&file, "").unwrap();
    let arguments = ["transact", &home.db(), "-"];
    for run in [home.run("transact", &[file.to_str().unwrap()]), isobath_from(&arguments, &file)] {
        run.fails_with(2, &["is empty", "its writer has failed", "`commit`", "nothing was"]);
    }
    script(&home, "commit", &[]).ok();
    script(&home, "# nothing to do", &[]).ok();
}
