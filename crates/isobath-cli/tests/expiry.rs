//! Values that end, by the command.

mod support;

use isobath::{Options, ReadPoint};
use std::time::{Duration, SystemTime};
use support::*;

#[test]
fn a_value_is_there_until_its_end_which_can_be_asked_for_and_moved() {
    let home = Home::new();
    home.run("put", &["stays", "1"]).ok();
    home.run("put", &["goes", "2", "--ttl", "1h"]).ok();
    home.run("put", &["gone", "3", "--ttl", "2000-01-01T00:00:00Z"]).ok();
    assert_eq!(home.run("scan", &["--keys-only"]).ok(), "goes\nstays\n");
    assert_eq!(home.run("get", &["stays", "--expiry"]).ok(), "never\n");
    let end = home.run("get", &["goes", "--expiry"]).ok();
    assert!(end.starts_with("20") && end.ends_with("Z\n"), "{end}");
    home.run("expire", &["goes", "never"]).ok();
    assert_eq!(home.run("get", &["goes", "--expiry"]).ok(), "never\n");
    home.run("expire", &["goes", "2100-01-02T03:04:05Z"]).ok();
    assert_eq!(home.run("get", &["goes", "--expiry"]).ok(), "2100-01-02T03:04:05.000Z\n");
    assert_eq!(home.run("get", &["goes"]).ok(), "2\n");
    home.run("expire", &["goes", "2000-01-01T00:00:00Z"]).ok();
    home.run("get", &["goes"]).fails_with(1, &[]);
    home.run("expire", &["goes", "1h"]).fails_with(1, &[]);
    home.run("expire", &["absent", "1h"]).fails_with(1, &[]);
}

#[test]
fn a_value_ends_while_no_process_has_the_database_open() {
    let home = Home::new();
    home.run("put", &["k", "v", "--ttl", "1s"]).ok();
    std::thread::sleep(std::time::Duration::from_millis(1100));
    home.run("get", &["k"]).fails_with(1, &[]);
    assert_eq!(home.run("scan", &[]).ok(), "");
}

#[test]
fn a_family_gives_its_values_an_end() {
    let home = Home::new();
    home.run("families create", &["pages", "--ttl", "2h"]).ok();
    home.run("put", &["-f", "pages", "news", "html"]).ok();
    home.run("put", &["-f", "pages", "about", "html", "--ttl", "never"]).ok();
    assert_ne!(home.run("get", &["-f", "pages", "news", "--expiry"]).ok(), "never\n");
    assert_eq!(home.run("get", &["-f", "pages", "about", "--expiry"]).ok(), "never\n");
}

#[test]
fn ends_that_cannot_be_read_and_those_that_cannot_be_are_told() {
    let home = Home::new();
    home.run("put", &["k", "v", "--ttl", "soon"]).fails_with(2, &["cannot read", "90s"]);
    home.run("put", &["k", "v", "--ttl", "0s"]).fails_with(2, &["zero"]);
    home.run("expire", &["k", ""]).fails_with(2, &["cannot read"]);
    home.run("families create", &["x", "--ttl", "never"]).fails_with(2, &["duration"]);
    home.run("families create", &["x", "--ttl", "0s"]).fails_with(2, &["ttl"]);
}

#[test]
fn an_export_of_an_earlier_state_has_the_ends_that_the_values_had_then() {
    let (from, to) = (Home::new(), Home::new());
    let db = Options::new().history(Duration::from_secs(3600)).open(from.db()).unwrap();
    let end = SystemTime::now() + Duration::from_secs(1);
    let point = ReadPoint::from(db.put_ttl("k", "v", end).unwrap()).to_string();
    db.close().unwrap();
    std::thread::sleep(Duration::from_millis(1100));
    assert_eq!(from.run("scan", &["--export"]).ok(), "# begin text\n# end\n");
    let export = from.run("scan", &["--export", "--as-of", &point]).ok();
    assert!(export.starts_with("# begin text\nk\tv\t20"), "{export}");
    isobath_piped(&["ingest", &to.db(), "-"], export.as_bytes()).ok();
    assert_eq!(to.run("scan", &[]).ok(), "");
}
