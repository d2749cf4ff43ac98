//! `transactions`: what is in doubt is listed and decided by its name.

mod support;

use isobath::Options;
use support::*;

/// Leaves transactions in doubt, one in a file and one in the log.
fn prepared(home: &Home) {
    let db = Options::new().open(home.path()).unwrap();
    for (xid, key) in [("transfer 7", "a"), ("\0\u{1}", "b")] {
        let tx = db.begin();
        tx.put(key, xid).unwrap();
        drop(tx.prepare(xid).unwrap());
    }
    db.close().unwrap();
}

#[test]
fn what_is_in_doubt_is_listed_and_decided_by_its_name() {
    let home = Home::new();
    assert_eq!(home.run("transactions list", &[]).ok(), "");
    prepared(&home);
    let listed = home.run("transactions list", &[]).ok();
    let lines: Vec<_> = listed.lines().collect();
    assert!(lines[0].starts_with("\\x00\\x01\tserializable\t"), "{listed}");
    assert!(lines[1].starts_with("transfer 7\tserializable\t") && lines.len() == 2, "{listed}");
    let json = home.run("transactions list", &["--json"]).ok();
    assert!(json.contains("\"xid\": \"transfer 7\""), "{json}");
    assert!(home.run("stats", &[]).ok().contains("in doubt       2 prepared transactions"));
    assert!(home.run("stats", &["--json"]).ok().contains("\"xid\": \"transfer 7\""));
    home.run("verify", &[]).ok();
    assert_eq!(home.run("get", &["a"]).code, 1);
    home.run("transactions commit", &["transfer 7"]).ok();
    assert_eq!(home.run("get", &["a"]).ok(), "transfer 7\n");
    home.run("transactions rollback", &["0001", "--hex"]).ok();
    assert_eq!(home.run("get", &["b"]).code, 1);
    assert_eq!(home.run("transactions list", &[]).ok(), "");
}

#[test]
fn a_name_that_is_not_in_doubt_is_exit_code_2_and_says_so() {
    let home = Home::new();
    for command in ["transactions commit", "transactions rollback"] {
        home.run(command, &["none"]).fails_with(2, &["\"none\"", "decided and forgotten"]);
    }
}

#[test]
fn the_file_of_a_prepared_transaction_can_be_dumped() {
    let home = Home::new();
    prepared(&home);
    let tables: Vec<_> = std::fs::read_dir(home.path().join("table")).unwrap().collect();
    assert_eq!(tables.len(), 2);
    let mut shown = String::new();
    for table in tables {
        let path = table.unwrap().path();
        shown += &isobath(&["dump", path.to_str().unwrap()]).ok();
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[150] ^= 1;
        std::fs::write(&path, bytes).unwrap();
        isobath(&["dump", path.to_str().unwrap()]).fails_with(1, &["damage"]);
    }
    for part in ["kind=prepared", "prepared transaction lsn=", "prepare xid=", "put ", "transfer 7"]
    {
        assert!(shown.contains(part), "{part:?} is not in {shown}");
    }
    home.run("verify", &[]).fails_with(1, &[".tbl"]);
    home.run("repair", &[]).fails_with(1, &["transfer 7"]);
    assert_eq!(home.run("transactions list", &[]).ok(), "");
    home.run("verify", &[]).ok();
}
