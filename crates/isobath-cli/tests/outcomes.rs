//! Exit codes: they tell what was done and found, whatever becomes of what is printed, and also
//! where the database could not be closed.

mod support;

use support::*;

/// Takes the names of the next table files, so that no flush can write one.
fn block_flushes(home: &Home) {
    for number in 1..100 {
        let path = home.path().join(format!("table/{number:010}.tbl"));
        if !path.exists() {
            std::fs::create_dir_all(path.join("in the way")).unwrap();
        }
    }
}

fn let_flush(home: &Home) {
    for path in home.files("table", ".tbl").iter().filter(|path| path.is_dir()) {
        std::fs::remove_dir_all(path).unwrap();
    }
}

/// A database with an operand, and a commit of the next one that could not be closed.
fn unclosed() -> (Home, Run) {
    let home = Home::new();
    home.run("families create", &["log", "--merge-operator", "isobath.append"]).ok();
    home.run("merge", &["-f", "log", "k", "a"]).ok();
    block_flushes(&home);
    let run = home.run("merge", &["-f", "log", "k", "b"]);
    (home, run)
}

#[test]
fn what_was_committed_before_the_close_failed_is_exit_code_3_and_is_there() {
    let (home, run) = unclosed();
    assert_eq!(run.code, 3, "{run:?}");
    for word in ["it was done", "could not be closed", "do not repeat"] {
        assert!(run.stderr.contains(word), "{word:?} is not in {run:?}");
    }
    assert_eq!(home.run("get", &["-f", "log", "k"]).ok(), "ab\n");
    let_flush(&home);
    home.run("flush", &[]).ok();
    assert_eq!(home.run("get", &["-f", "log", "k"]).ok(), "ab\n");
    home.run("verify", &[]).ok();
}

#[test]
fn a_script_prints_what_it_read_also_where_the_close_failed() {
    let home = Home::new();
    home.run("put", &["old", "1"]).ok();
    block_flushes(&home);
    let script = home.path().with_file_name("script");
    std::fs::write(&script, "get old\nput new 2\n").unwrap();
    let run = home.run("transact", &[script.to_str().unwrap()]);
    assert_eq!((run.code, run.stdout.as_str()), (3, "old\t1\n"), "{run:?}");
    assert_eq!(home.run("get", &["new"]).ok(), "2\n");
}

#[test]
fn what_was_done_and_could_not_be_printed_is_exit_code_3() {
    let home = Home::compacted();
    let db = home.db();
    let script = home.path().with_file_name("script.txt");
    std::fs::write(&script, "get key000001\nput key000001 new\n").unwrap();
    for command in [&["transact", &db, script.to_str().unwrap()][..], &["compact", &db, "--report"]]
    {
        let run = isobath_to_full(command);
        assert!(run.code == 3 && run.stderr.contains("it was done"), "{run:?}");
        let run = isobath_unread(command);
        assert_eq!((run.code, run.stderr.as_str()), (0, ""), "{command:?}");
    }
    assert_eq!(home.run("get", &["key000001"]).ok(), "new\n");
    let run = isobath_to_full(&["scan", &db]);
    assert!(run.code == 2 && run.stderr.contains("could not write the output"), "{run:?}");
    flip(&home.files("table", ".tbl")[0], 1000);
    assert_eq!(isobath_to_full(&["repair", &db, "--dry-run"]).code, 2);
    assert_eq!(isobath_to_full(&["repair", &db]).code, 3);
    home.run("repair", &[]).ok();
}

#[test]
fn a_reader_that_ends_early_hides_no_damage() {
    let home = Home::compacted();
    let db = home.db();
    let table = home.files("table", ".tbl").remove(0);
    let dump = ["dump", table.to_str().unwrap()];
    for command in [&["verify", &db][..], &["repair", &db, "--dry-run"], &dump, &["scan", &db]] {
        let run = isobath_unread(command);
        assert_eq!((run.code, run.stderr.as_str()), (0, ""), "{command:?}");
    }
    let len = std::fs::metadata(&table).unwrap().len() as usize;
    for offset in [len / 2, 1000] {
        flip(&table, offset);
        for command in [
            &["verify", &db][..],
            &["verify", &db, "--json"],
            &["repair", &db, "--dry-run"],
            &["repair", &db, "--dry-run", "--json"],
            &dump,
        ] {
            let run = isobath_unread(command);
            assert_eq!((run.code, run.stderr.as_str()), (1, ""), "{offset} {command:?}");
        }
        flip(&table, offset);
    }
    flip(&table, 1000);
    let run = isobath_unread(&["scan", &db]);
    assert!(run.code == 2 && run.stderr.contains("corruption"), "{run:?}");
    assert_eq!(isobath_unread(&["repair", &db]).code, 1);
    assert_eq!(isobath_unread(&["verify", &db]).code, 0);
}

#[test]
fn the_exit_code_is_the_same_where_standard_error_takes_nothing() {
    let home = Home::killed();
    let none = home.path().with_file_name("none");
    assert_eq!(isobath_unheard(&["get", none.to_str().unwrap(), "k"]).code, 2);
    let script = home.path().with_file_name("script.txt");
    std::fs::write(&script, "expect-absent key000001\n").unwrap();
    let run = isobath_unheard(&["transact", &home.db(), script.to_str().unwrap()]);
    assert_eq!(run.code, 1);
    // What an open tells of the log that it found.
    let home = Home::killed();
    let segment = home.files("wal", ".wal").remove(0);
    let bytes = std::fs::read(&segment).unwrap();
    flip(&segment, bytes.windows(9).rposition(|window| window == b"key000099").unwrap());
    assert_eq!(isobath_unheard(&["put", &home.db(), "k", "v"]).code, 0);
    assert_eq!(home.run("get", &["k"]).ok(), "v\n");
}
