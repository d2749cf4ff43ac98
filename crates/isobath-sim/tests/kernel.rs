//! A few seconds of each harness of the real kernel, and of a planted bug that each catches. Where
//! root or loop devices are lacking a command says so and succeeds; this test then shows what it
//! said. A bug may take far more deaths than it needs as a rule: on a busy machine a writer writes
//! little before it dies.
#![cfg(target_os = "linux")]

use std::process::Command;

fn run(arguments: &[&str]) {
    let output = Command::new(env!("CARGO_BIN_EXE_isobath-sim")).args(arguments).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let complained = String::from_utf8_lossy(&output.stderr);
    println!("{said}");
    assert!(output.status.success(), "{arguments:?}: {}\n{said}{complained}", output.status);
}

#[test]
fn kills_lose_nothing_acknowledged() {
    run(&["kill", "--kills", "40"]);
}

#[test]
fn kills_catch_a_log_that_is_given_up_too_early() {
    run(&["kill", "--kills", "20000", "--control", "log-retired-early"]);
}

#[test]
fn power_cuts_leave_a_prefix_with_everything_synced() {
    run(&["powercut", "--cuts", "25"]);
}

#[test]
fn power_cuts_catch_syncs_that_are_skipped() {
    run(&["powercut", "--cuts", "4000", "--control", "sync-skipped"]);
}

#[test]
fn power_cuts_catch_a_stream_that_is_not_synced_before_its_commit() {
    run(&["powercut", "--cuts", "4000", "--control", "stream-not-synced"]);
}

/// A cut shows this bug only by chance: it takes some hundred cuts or more. So this test runs only
/// where there is time.
#[test]
fn power_cuts_catch_a_recovery_that_reads_on_behind_a_hole() {
    if std::env::var_os("ISOBATH_TEST_LONG").is_some() {
        run(&["powercut", "--cuts", "10000", "--control", "hole-accepted"]);
    }
}

#[test]
fn a_full_file_system_loses_nothing_and_works_again() {
    run(&["enospc", "--rounds", "5"]);
}

#[test]
fn a_failing_device_leaves_a_prefix_with_everything_synced() {
    run(&["enospc", "--on", "device", "--rounds", "3"]);
}

#[test]
fn a_failing_device_catches_a_sync_that_is_tried_again_and_believed() {
    run(&["enospc", "--on", "device", "--rounds", "400", "--control", "failed-sync-retried"]);
}
