//! A few seconds of kills and of power cuts of a program that uses the engine from outside,
//! `isobath-bank`, and of mistakes of its own that each must catch. Where root or loop devices are
//! lacking a command says so and succeeds.
//!
//! The program is built here: cargo builds no programs of other packages for a test.
#![cfg(target_os = "linux")]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{self, Command, Stdio};
use std::sync::OnceLock;

/// Builds the program, once, and puts a copy where no other build replaces it.
fn program() -> &'static str {
    static PROGRAM: OnceLock<String> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.current_dir(env!("CARGO_MANIFEST_DIR"));
        cargo.args(["build", "--locked", "-p", "isobath-bank"]);
        cargo.arg("--message-format=json-render-diagnostics");
        if !cfg!(debug_assertions) {
            cargo.arg("--release");
        }
        let output = cargo.stderr(Stdio::inherit()).output().unwrap();
        assert!(output.status.success(), "isobath-bank was not built: {}", output.status);
        let said = String::from_utf8(output.stdout).unwrap();
        let (_, after) = said.split_once("\"executable\":\"").expect("it has an executable");
        let built = after.split_once('"').expect("a string ends").0;
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let (copy, fresh) = (dir.join("isobath-bank"), dir.join(format!("bank-{}", process::id())));
        fs::copy(built, &fresh).unwrap();
        fs::rename(&fresh, &copy).unwrap();
        copy.to_str().expect("a path of the workspace").to_owned()
    })
}

fn run(arguments: &[&str]) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_isobath-sim"));
    let output = command.args(arguments).args(["--program", program()]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let complained = String::from_utf8_lossy(&output.stderr);
    println!("{said}");
    assert!(output.status.success(), "{arguments:?}: {}\n{said}{complained}", output.status);
}

#[test]
fn kills_of_a_bank_lose_nothing_acknowledged() {
    let ledger = Path::new(env!("CARGO_TARGET_TMPDIR")).join("kills.tsv");
    let _ = fs::remove_file(&ledger);
    run(&["kill", "--kills", "40", "--ledger", ledger.to_str().unwrap()]);
    assert!(fs::read_to_string(&ledger).unwrap().contains("kill of isobath-bank\t"));
}

#[test]
fn deaths_of_a_program_with_another_engine_are_not_counted() {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("old-{}", process::id()));
    fs::create_dir(&dir).unwrap();
    let (old, ledger) = (dir.join("old-bank"), dir.join("ledger.tsv"));
    fs::write(&old, "#!/bin/sh\necho 0123456789abcdef\n").unwrap();
    fs::set_permissions(&old, fs::Permissions::from_mode(0o755)).unwrap();
    for command in ["kill", "powercut"] {
        let mut sim = Command::new(env!("CARGO_BIN_EXE_isobath-sim"));
        sim.arg(command).arg("--program").arg(&old).arg("--ledger").arg(&ledger);
        let output = sim.output().unwrap();
        let complained = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{command}");
        assert!(complained.contains("has the sources \"0123456789abcdef\""), "{complained}");
        assert!(!ledger.exists(), "{command} has counted them");
    }
    fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn power_cuts_of_a_bank_leave_a_prefix_with_everything_synced() {
    run(&["powercut", "--cuts", "25"]);
}

#[test]
fn kills_catch_a_bank_that_writes_a_transfer_in_two_batches() {
    run(&["kill", "--kills", "4000", "--mistake", "two-batches"]);
}

#[test]
fn kills_catch_a_bank_that_reads_outside_of_its_transaction() {
    run(&["kill", "--kills", "4000", "--mistake", "reads-by-db"]);
}

#[test]
fn kills_catch_a_bank_that_takes_what_it_prepares_for_prepared() {
    run(&["kill", "--kills", "4000", "--mistake", "prepared-early"]);
}

#[test]
fn power_cuts_catch_a_bank_that_takes_what_is_not_synced_for_synced() {
    run(&["powercut", "--cuts", "4000", "--mistake", "sync-forgotten"]);
}
