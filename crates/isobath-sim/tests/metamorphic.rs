//! Bugs planted in the engine must change an answer of `isobath-sim metamorphic`: each in a process
//! of its own, since the engine's threads run there and the bug is planted for all of them.

use std::process::Command;

fn is_caught(bug: &str) {
    let arguments = ["metamorphic", "--control", bug, "--seeds", "0..200", "--variants", "4"];
    let output = Command::new(env!("CARGO_BIN_EXE_isobath-sim")).args(arguments).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    println!("{said}");
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}\n{said}{complained}", output.status);
    assert!(said.starts_with(&format!("control {bug}: caught after ")), "{said}");
}

#[test]
fn a_delete_that_is_dropped_too_early_changes_an_answer() {
    is_caught("tombstone-dropped");
}

#[test]
fn a_filter_that_denies_its_keys_changes_an_answer() {
    is_caught("filter-denies");
}

#[test]
fn a_compaction_that_leaves_files_overlapping_changes_an_answer() {
    is_caught("overlapping-files");
}

/// Takes some dozen sets of options: this one runs only where there is time.
#[test]
fn a_compaction_that_ignores_snapshots_changes_an_answer() {
    if std::env::var_os("ISOBATH_TEST_LONG").is_some() {
        is_caught("snapshot-ignored");
    }
}
