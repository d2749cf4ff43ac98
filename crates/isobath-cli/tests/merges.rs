//! `merge`, and writes to families with a merge operator: what a bundled operator cannot read is
//! refused, since the key could not be read any more.

mod support;

use support::*;

/// A database with a family for each operator that does not take all bytes.
fn home() -> Home {
    let home = Home::new();
    home.run("families create", &["count", "--merge-operator", "isobath.counter"]).ok();
    home.run("families create", &["set", "--merge-operator", "isobath.set_union"]).ok();
    home.run("merge", &["-f", "count", "--hex", "6b", "0100000000000000"]).ok();
    home.run("merge", &["-f", "set", "--hex", "6b", "0100000061"]).ok();
    home
}

fn is_unchanged(home: &Home) {
    let count = "k\t\\x01\\x00\\x00\\x00\\x00\\x00\\x00\\x00\n";
    assert_eq!(home.run("scan", &["-f", "count"]).ok(), count);
    assert_eq!(home.run("scan", &["-f", "set"]).ok(), "k\t\\x01\\x00\\x00\\x00a\n");
}

#[test]
fn an_operand_that_the_operator_cannot_read_is_refused() {
    let home = home();
    for (family, operand, why) in [
        ("count", "1", "a counter has eight bytes"),
        ("count", "", "a counter has eight bytes"),
        ("set", "a", "within an element"),
    ] {
        for key in ["k", "new"] {
            let run = home.run("merge", &["-f", family, key, operand]);
            run.fails_with(2, &["the operand", &format!("\"{family}\""), why, "nothing was"]);
        }
    }
    is_unchanged(&home);
    home.run("merge", &["-f", "set", "k", ""]).ok();
    is_unchanged(&home);
}

#[test]
fn a_value_that_the_operator_cannot_read_is_refused_by_every_command_that_puts() {
    let home = home();
    let file = |name: &str, text: &str| {
        let path = home.path().with_file_name(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let said = ["the value", "\"count\"", "isobath.counter", "eight bytes", "nothing was written"];
    home.run("put", &["-f", "count", "k", "7"]).fails_with(2, &said);
    home.run("put", &["-f", "count", "k", "7", "--ttl", "1h"]).fails_with(2, &said);
    home.run("put", &["-f", "count", "k", "--from-file", &file("one", "1")]).fails_with(2, &said);
    let script = file("script", "put a 1\nfamily count\nput k 12345678\nput k 7\n");
    home.run("transact", &[&script]).fails_with(2, &[&said[..], &["line 4: "]].concat());
    let lines = file("lines", "j\t12345678\nk\t7\n");
    let run = home.run("ingest", &["-f", "count", &lines]);
    run.fails_with(2, &[&said[..], &["line 2: "]].concat());
    let lines = file("ending", "k\t7\tnever\n");
    home.run("ingest", &["-f", "count", &lines])
        .fails_with(2, &[&said[..], &["line 1: "]].concat());
    is_unchanged(&home);
    assert_eq!(home.run("scan", &[]).ok(), "");
    home.run("put", &["-f", "count", "j", "12345678"]).ok();
    home.run("merge", &["-f", "count", "--hex", "6a", "0100000000000000"]).ok();
    assert_eq!(home.run("get", &["-f", "count", "j"]).ok(), "22345678\n");
    // Other operators take all bytes.
    home.run("families create", &["log", "--merge-operator", "isobath.append"]).ok();
    home.run("put", &["-f", "log", "k", "7"]).ok();
}

/// What a program puts is not looked into: a value that `family` cannot merge with.
fn put_by_a_program(home: &Home, family: &str, key: &str, value: &str) {
    let db = small().open(home.path()).unwrap();
    db.family_if_exists(family).unwrap().unwrap().put(key, value).unwrap();
    db.close().unwrap();
}

#[test]
fn a_value_that_is_there_and_cannot_be_merged_with_stays_readable() {
    let home = home();
    for (family, operand, why) in
        [("count", "12345678", "a counter has eight bytes"), ("set", "", "within an element")]
    {
        put_by_a_program(&home, family, "old", "7");
        let run = home.run("merge", &["-f", family, "old", operand]);
        run.fails_with(2, &["the value that the key has", why, "nothing was written", "hint"]);
        assert_eq!(home.run("get", &["-f", family, "old"]).ok(), "7\n");
        // The hint.
        home.run("delete", &["-f", family, "old"]).ok();
        home.run("merge", &["-f", family, "old", operand]).ok();
        assert_eq!(home.run("get", &["-f", family, "old"]).ok(), format!("{operand}\n"));
        home.run("delete", &["-f", family, "old"]).ok();
    }
    is_unchanged(&home);
}

#[test]
fn an_export_is_taken_with_values_that_cannot_be_merged_with() {
    let (from, to) = (home(), home());
    put_by_a_program(&from, "count", "old", "7");
    for form in [&[][..], &["--hex"]] {
        let export = from.run("scan", &[&["-f", "count", "--export"], form].concat()).ok();
        let db = to.db();
        let arguments = [&["ingest", &db, "-f", "count", "-"], form].concat();
        isobath_piped(&arguments, export.as_bytes()).ok();
        assert_eq!(to.run("scan", &[&["-f", "count", "--export"], form].concat()).ok(), export);
        // The same entries without its first line, or with another one.
        let (_, entries) = export.split_once('\n').unwrap();
        for lines in [entries.to_owned(), format!("# begin\n{entries}")] {
            let run = isobath_piped(&arguments, lines.as_bytes());
            run.fails_with(2, &["the value", "eight bytes", "nothing was written"]);
        }
        to.run("delete", &["-f", "count", "--all"]).ok();
    }
}
