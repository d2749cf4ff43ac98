//! Exit codes: they tell what was done and found, whatever becomes of what is printed.

mod support;

use support::*;

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
