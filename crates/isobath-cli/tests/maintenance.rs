//! `families`, `flush`, `compact`, `stats`, and what happens when the database is open elsewhere.

mod support;

use support::*;

#[test]
fn families_are_created_listed_renamed_and_dropped() {
    let home = Home::new();
    home.run("families create", &["users", "--codec", "zstd"]).ok();
    home.run("put", &["--family", "users", "ann", "1"]).ok();
    home.run("get", &["ann"]).fails_with(1, &[]);
    home.run("families rename", &["users", "people"]).ok();
    assert_eq!(home.run("families list", &[]).ok(), "default\npeople\n");
    let listed: serde_json::Value =
        serde_json::from_str(&home.run("families list", &["--json"]).ok()).unwrap();
    assert_eq!(listed[1]["name"], "people");
    assert_eq!(listed[1]["options"]["codecs"][0], "zstd");
    assert_eq!(home.run("scan", &["-f", "people"]).ok(), "ann\t1\n");
    home.run("families create", &["people"]).fails_with(2, &["exists already"]);
    home.run("families rename", &["absent", "x"]).fails_with(2, &["families list"]);
    home.run("families drop", &["people"]).ok();
    home.run("families drop", &["default"]).fails_with(2, &[]);
    home.run("scan", &["-f", "people"]).fails_with(2, &["no column family \"people\""]);
}

#[test]
fn flush_takes_the_log_into_tables_and_compact_brings_them_down() {
    let home = Home::killed();
    home.run("flush", &[]).ok();
    assert_eq!(home.run("scan", &["-k"]).ok().lines().count(), 100);
    home.run("put", &["key000000", "new"]).ok();
    home.run("compact", &[]).ok();
    let stats: serde_json::Value =
        serde_json::from_str(&home.run("stats", &["--json"]).ok()).unwrap();
    let levels = stats["metrics"]["families"][0]["levels"].as_array().unwrap();
    assert_eq!(levels[0]["slices"], 0);
    let entries: u64 = levels.iter().map(|level| level["entries"].as_u64().unwrap()).sum();
    assert_eq!(entries, 100);
    assert_eq!(home.run("get", &["key000000"]).ok(), "new\n");
}

#[test]
fn stats_tells_levels_files_and_amplification() {
    let home = Home::compacted();
    let stats: serde_json::Value =
        serde_json::from_str(&home.run("stats", &["--json"]).ok()).unwrap();
    assert_eq!(
        stats["layout"]["tables"].as_array().unwrap().len(),
        home.files("table", ".tbl").len()
    );
    assert!(stats["amplification"]["space"].as_f64().unwrap() > 0.0);
    assert_eq!(stats["amplification"]["read_runs"], 1);
    let text = home.run("stats", &["--files"]).ok();
    for word in ["family default", "2000", ".tbl", "key000000 to key001999", ".wal"] {
        assert!(text.contains(word), "{word:?} is not in {text}");
    }
}

#[test]
fn a_database_that_is_open_elsewhere_is_left_alone_and_its_holder_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_str().unwrap();
    let db = small().open(path).unwrap();
    db.put("key", "value").unwrap();
    let before = contents(dir.path());
    let holder = format!("locked by process {}", std::process::id());
    for command in [&["flush", path][..], &["put", path, "key", "x"]] {
        isobath(command).fails_with(2, &[&holder]);
    }
    let told = isobath(&["verify", path]).ok();
    assert!(told.contains("open for writing") && told.contains("nothing is damaged"), "{told}");
    assert_eq!(isobath(&["get", path, "key"]).ok(), "value\n");
    assert_eq!(isobath(&["scan", path]).ok(), "key\tvalue\n");
    assert_eq!(isobath(&["families", "list", path]).ok(), "default\n");
    assert!(isobath(&["stats", path]).ok().contains("family default"));
    assert_eq!(contents(dir.path()), before);
    assert_eq!(db.get("key").unwrap().unwrap(), b"value");
    db.close().unwrap();
}

/// Commands that only look, each of which must succeed.
fn look(home: &Home) {
    assert_eq!(home.run("get", &["key000007"]).ok(), "value7.value7.value7.value7.value7.\n");
    assert_eq!(home.run("scan", &["-k"]).ok().lines().count(), 100);
    home.run("stats", &["--files"]).ok();
    assert_eq!(home.run("families list", &[]).ok(), "default\n");
    assert!(home.run("verify", &[]).ok().contains("nothing is damaged"));
}

#[test]
fn looking_changes_nothing_of_what_a_killed_process_left() {
    let home = Home::killed();
    let everything = || {
        let lock = home.path().join("LOCK");
        let written = std::fs::metadata(&lock).unwrap().modified().unwrap();
        (contents(&home.path()), std::fs::read(lock).unwrap(), written)
    };
    let before = everything();
    look(&home);
    assert!(everything() == before);
}

#[cfg(unix)]
#[test]
fn looking_needs_no_permission_to_write() {
    use std::os::unix::fs::PermissionsExt;
    let home = Home::killed();
    let set = |mode| {
        for dir in ["wal", "table", ""] {
            let permissions = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(home.path().join(dir), permissions).unwrap();
        }
    };
    set(0o555);
    if std::fs::write(home.path().join("probe"), "").is_ok() {
        println!("skipped: this user may write everywhere");
    } else {
        let lock = home.path().join("LOCK");
        for mode in [0o444, 0o000] {
            std::fs::set_permissions(&lock, std::fs::Permissions::from_mode(mode)).unwrap();
            look(&home);
        }
    }
    set(0o755);
}

#[test]
fn help_names_the_exit_codes() {
    let help = isobath(&["--help"]).ok();
    assert!(help.contains("Exit codes:"), "{help}");
    assert_eq!(isobath::<&str>(&[]).code, 2);
    assert_eq!(isobath(&["get"]).code, 2);
}
