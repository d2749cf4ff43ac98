//! Transactions on threads of the system must pass `isobath-sim threads`, in memory and on real
//! files; and a planted bug must be found. Each bug has a process of its own, because it is planted
//! for all threads.

use std::process::{Command, Output};

fn threads(arguments: &[&str]) -> Output {
    let program = env!("CARGO_BIN_EXE_isobath-sim");
    let output = Command::new(program).arg("threads").args(arguments).output().unwrap();
    println!("{}", String::from_utf8_lossy(&output.stdout));
    eprintln!("{}", String::from_utf8_lossy(&output.stderr));
    output
}

#[test]
fn what_threads_read_is_so_in_the_order_of_the_log() {
    let dir = std::env::temp_dir().join(format!("isobath-sim-threads-{}", std::process::id()));
    std::fs::create_dir(&dir).unwrap();
    let mixed = threads(&["--seconds", "4", "--dir", dir.to_str().unwrap()]);
    std::fs::remove_dir_all(&dir).unwrap();
    let crowded = threads(&["--seconds", "4", "--profile", "crowded"]);
    for output in [mixed, crowded] {
        assert!(output.status.success(), "{}", output.status);
    }
}

#[test]
fn a_commit_that_relies_on_reads_which_it_does_not_check_is_noticed() {
    let output = threads(&["--seconds", "600", "--control", "reads-not-validated"]);
    assert!(output.status.success(), "{}", output.status);
}

#[test]
fn a_round_that_hangs_is_in_the_ledger_as_a_failure() {
    let ledger = std::env::temp_dir().join(format!("isobath-sim-hangs-{}.tsv", std::process::id()));
    let path = ledger.to_str().unwrap();
    let output = threads(&["--seed", "7", "--patience", "0.001", "--ledger", path]);
    assert_eq!(output.status.code(), Some(3));
    let rows = std::fs::read_to_string(&ledger).unwrap();
    std::fs::remove_file(&ledger).unwrap();
    let rows: Vec<&str> = rows.lines().filter(|line| !line.starts_with('#')).collect();
    let fields: Vec<Vec<&str>> = rows.iter().map(|row| row.split('\t').collect()).collect();
    let [begun, failed] = fields.as_slice() else { panic!("two rows, not {rows:?}") };
    assert_eq!((begun[1], begun[4]), ("begun", "0"));
    assert_eq!((failed[1], failed[2], failed[4]), ("threads", "mixed 7..8 on 4", "1"));
    assert!(failed[5].contains("ended=1"), "it shows as begun and not ended: {rows:?}");
}
