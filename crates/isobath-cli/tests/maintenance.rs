//! `families`, `flush`, `compact`, `stats`, and what happens when the database is open elsewhere.

mod support;

use isobath::{FamilyOptions, FilterEntry, FilterVerdict, Options};
use std::io::{Read, Write};
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
fn a_family_is_cloned_and_stats_count_what_is_shared_once() {
    let home = Home::compacted();
    let rows = home.run("scan", &[]).ok();
    home.run("families clone", &["default", "trial"]).ok();
    assert_eq!(home.run("families list", &[]).ok(), "default\ntrial\n");
    assert_eq!(home.run("scan", &["-f", "trial"]).ok(), rows);
    let stats: serde_json::Value =
        serde_json::from_str(&home.run("stats", &["--json"]).ok()).unwrap();
    let tables = home.files("table", ".tbl").len();
    assert_eq!(stats["layout"]["tables"].as_array().unwrap().len(), tables);
    assert!(stats["metrics"]["shared_bytes"].as_u64().unwrap() > 0);
    let text = home.run("stats", &[]).ok();
    assert!(text.contains("of tables are in the figures of clones"), "{text}");
    home.run("verify", &[]).ok();
    home.run("families clone", &["default", "trial"]).fails_with(2, &["trial"]);
    home.run("families clone", &["absent", "x"]).fails_with(2, &["families list"]);
    home.run("families drop", &["trial"]).ok();
    assert_eq!(home.run("scan", &[]).ok(), rows);
}

#[test]
fn flush_takes_the_log_into_tables_and_compact_brings_them_down() {
    let home = Home::killed();
    home.run("flush", &[]).ok();
    assert_eq!(home.run("scan", &["-k"]).ok().lines().count(), 100);
    home.run("put", &["key000000", "new"]).ok();
    let report = home.run("compact", &["--report"]).ok();
    for word in ["manual into level ", ", 1 times:", "101 entries (0 deletes)", "100 entries"] {
        assert!(report.contains(word), "{word:?} is not in {report}");
    }
    let stats: serde_json::Value =
        serde_json::from_str(&home.run("stats", &["--json"]).ok()).unwrap();
    let levels = stats["metrics"]["families"][0]["levels"].as_array().unwrap();
    assert_eq!(levels[0]["slices"], 0);
    let entries: u64 = levels.iter().map(|level| level["entries"].as_u64().unwrap()).sum();
    assert_eq!(entries, 100);
    assert_eq!(home.run("get", &["key000000"]).ok(), "new\n");
}

#[test]
fn a_compaction_filter_that_the_command_lacks_is_noted() {
    let home = Home::new();
    let keep = |_: FilterEntry<'_>| FilterVerdict::Keep;
    let db = Options::new().compaction_filter("ours.drop_old", keep).open(home.path()).unwrap();
    let filtered = FamilyOptions::new().compaction_filter("ours.drop_old");
    db.family(("cache", filtered)).unwrap().put("k", "v").unwrap();
    db.close().unwrap();
    let run = home.run("compact", &["-f", "cache"]);
    assert_eq!((run.code, run.stdout.as_str()), (0, ""), "{run:?}");
    for word in ["note: ", "ours.drop_old", "\"cache\"", "kept"] {
        assert!(run.stderr.contains(word), "{word:?} is not in {run:?}");
    }
    assert_eq!(home.run("get", &["-f", "cache", "k"]).ok(), "v\n");
    let run = home.run("compact", &[]);
    assert_eq!((run.code, run.stderr.as_str()), (0, ""), "{run:?}");
}

#[test]
fn what_a_writing_open_discards_is_noted_and_readers_discard_nothing() {
    let home = Home::new();
    home.run("put", &["k", "v"]).ok();
    let manifest = home.manifest();
    let mut file = std::fs::File::options().append(true).open(&manifest).unwrap();
    file.write_all(&[7; 40]).unwrap();
    let run = home.run("get", &["k"]);
    assert_eq!((run.code, run.stderr.as_str()), (0, ""), "{run:?}");
    let run = home.run("flush", &[]);
    assert_eq!(run.code, 0, "{run:?}");
    for word in ["note: ", manifest.to_str().unwrap(), "40 bytes", "discarded"] {
        assert!(run.stderr.contains(word), "{word:?} is not in {run:?}");
    }
    assert_eq!(home.run("get", &["k"]).ok(), "v\n");
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
    // One family alone leaves none but the directories of its files.
    let dead = stats["metrics"]["table_dead_bytes"].as_u64().unwrap();
    let tables = home.files("table", ".tbl").len() as u64;
    assert!((1..200 * tables).contains(&dead), "{dead}");
    let keys = stats["distinct_keys"]["default"]["keys"].as_u64().unwrap();
    assert!((1900..2100).contains(&keys), "{keys}");
    let text = home.run("stats", &["--files"]).ok();
    assert!(text.contains("dead space     "), "{text}");
    let about = format!("about {keys} different keys");
    for word in [&about, "family default", "2000", ".tbl", "key000000 to key001999", ".wal"] {
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
    assert!(help.contains("Exit codes:") && help.contains("  3  it was done"), "{help}");
    assert_eq!(isobath::<&str>(&[]).code, 2);
    assert_eq!(isobath(&["get"]).code, 2);
}

#[test]
fn long_values_of_a_family_lie_in_blob_files_that_stats_and_verify_count() {
    let home = Home::new();
    home.run("families create", &["pages", "--separate-from", "100"]).ok();
    home.run("put", &["-f", "pages", "long", &"x".repeat(5000)]).ok();
    home.run("put", &["-f", "pages", "short", "y"]).ok();
    let stats: serde_json::Value =
        serde_json::from_str(&home.run("stats", &["--json"]).ok()).unwrap();
    assert_eq!(stats["metrics"]["blob_files"], 1);
    assert_eq!(stats["layout"]["blobs"].as_array().unwrap().len(), 1);
    let said = home.run("stats", &["--files"]).ok();
    assert!(said.contains("blob files     1 files") && said.contains("\nblob files\n"), "{said}");
    assert!(
        said.contains(" is live, ")
            && said.contains("% is garbage\n")
            && !said.contains("\nstreams "),
        "{said}"
    );
    assert!(said.contains("separated      1 values in blob files, "), "{said}");
    assert!(said.contains("; 50% of all entries\n"), "{said}");
    let said = home.run("verify", &[]).ok();
    assert!(said.contains("1 blob files: 1 values"), "{said}");
    assert_eq!(home.run("get", &["-f", "pages", "long"]).ok().trim().len(), 5000);
    let db = Options::new().open(home.path()).unwrap();
    let pages = db.family_if_exists("pages").unwrap().unwrap();
    pages.put_reader("film", std::io::repeat(b'x').take(300 << 10)).unwrap();
    db.close().unwrap();
    let said = home.run("stats", &[]).ok();
    assert!(said.contains("streams        1 values with a file of their own, "), "{said}");
    assert!(said.contains("; 33% of all entries\n"), "{said}");
}
