//! `repair`: undamaged databases stay as they are, damaged ones work again, and the report says
//! what was lost.

mod support;

use support::*;

#[test]
fn a_sound_database_is_left_alone() {
    for home in [Home::compacted(), Home::killed()] {
        let before = contents(&home.path());
        assert!(home.run("repair", &[]).ok().contains("nothing is damaged"));
        assert_eq!(contents(&home.path()), before);
    }
}

#[test]
fn a_damaged_table_is_repaired_and_what_is_lost_is_named() {
    let home = Home::compacted();
    let table = home.files("table", ".tbl").remove(0);
    flip(&table, 1000);
    // As in a copy that left it out.
    std::fs::remove_file(home.path().join("LOCK")).unwrap();
    let before = contents(&home.path());
    home.run("repair", &["--dry-run"]).fails_with(
        1,
        &["damage: ", "lost: ", "; family default; keys key000", "nothing was changed"],
    );
    assert_eq!(contents(&home.path()), before);
    assert!(!home.path().join("LOCK").exists(), "a dry run writes nothing");
    let run = home.run("repair", &["--json"]);
    let report: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
    let lost = report["losses"][0]["entries"].as_u64().unwrap();
    assert!(run.code == 1 && (1..500).contains(&lost), "{run:?}");
    home.run("verify", &[]).ok();
    let left = home.run("scan", &["-k"]).ok().lines().count() as u64;
    assert_eq!(left, 2000 - lost);
    assert_eq!(home.files("lost+found", ".tbl").len(), 1);
    home.run("repair", &[]).ok();
}

#[test]
fn a_database_that_lost_its_manifest_loses_nothing() {
    let home = Home::killed();
    home.run("families create", &["users", "--codec", "zstd"]).ok();
    home.run("put", &["-f", "users", "ann", "1"]).ok();
    let path = home.manifest();
    std::fs::remove_file(path).unwrap();
    home.run("get", &["key000000"]).fails_with(2, &["isobath repair"]);
    let said = home.run("repair", &[]).ok();
    for word in ["damage: ", "guess: column family 1 is called \"users\"", "nothing was lost"] {
        assert!(said.contains(word), "{word:?} is not in {said}");
    }
    assert_eq!(home.run("scan", &["-k"]).ok().lines().count(), 100);
    assert_eq!(home.run("get", &["-f", "users", "ann"]).ok(), "1\n");
    home.run("verify", &[]).ok();
    std::fs::remove_file(home.path().join("CURRENT")).unwrap();
    home.run("get", &["key000000"]).fails_with(2, &["isobath repair"]);
    home.run("repair", &[]).ok();
    assert_eq!(home.run("scan", &["-k"]).ok().lines().count(), 100);
}

#[test]
fn a_directory_without_a_database_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_str().unwrap();
    isobath(&["repair", path]).fails_with(2, &["is not an Isobath database"]);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn reports_name_paths_that_are_no_unicode() {
    use std::os::unix::ffi::OsStrExt;
    let home = Home::compacted();
    flip(&home.files("table", ".tbl").remove(0), 1000);
    let odd = home.path().with_file_name(std::ffi::OsStr::from_bytes(b"caf\xe9"));
    std::fs::rename(home.path(), &odd).unwrap();
    let json = |command: &str| {
        let run = isobath(&[command.as_ref(), odd.as_os_str(), "--json".as_ref()]);
        (run.code, serde_json::from_str::<serde_json::Value>(&run.stdout).unwrap())
    };
    assert_eq!(json("verify").0, 1);
    let (code, report) = json("repair");
    let kept = report["kept_in"].as_str().unwrap();
    assert!(code == 1 && kept.ends_with("/caf\u{fffd}/lost+found/report.txt"), "{report}");
    let text = std::fs::read_to_string(odd.join("lost+found/report.txt")).unwrap();
    let begins = |with: &str| text.lines().any(|line| line.starts_with(with));
    assert!(
        begins("damage: ") && begins("lost: ") && text.ends_with("\nend: 1 losses\n"),
        "{text}"
    );
    assert!(text.contains("; family default; keys key000"), "{text}");
    assert_eq!(json("stats").0, 0);
}
