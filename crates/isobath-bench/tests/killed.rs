//! Runs of transactions that are killed in the middle and begun again on what is left: the
//! workloads' own checks must hold there. Both say `check_always`.

mod support;

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;
use support::{PROGRAM, bench, lua, refuse, str_of, succeed, text, workloads};

const KILLS: u64 = 4;

fn arguments<'a>(workload: &'a Path, db: &'a Path, more: &[&'a str]) -> Vec<&'a str> {
    let head = ["run", str_of(workload), "-e", "isobath", "--db", str_of(db)];
    let sizes = ["--users", "2", "--items", "200", "-t", "3"];
    [&head[..], &sizes[..], more].concat()
}

/// Loads a database, kills runs on it, and has each next one check what is left, until a check
/// fails. Returns what it said.
fn first_fault_after_kills(path: &Path, kills: u64) -> Option<String> {
    let dir = tempfile::tempdir().unwrap();
    let db = dir.path().join("db");
    succeed(&arguments(path, &db, &["--units", "300"]));
    (1..=kills).find_map(|nth| {
        let mut run = Command::new(PROGRAM);
        run.args(arguments(path, &db, &["--no-load", "--seconds", "600"]));
        let mut run = run.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        // On a slow machine the first kills may come before any transaction.
        thread::sleep(Duration::from_millis(400 + 17 * nth + nth * nth));
        assert!(run.try_wait().unwrap().is_none(), "the run ended by itself");
        run.kill().unwrap();
        run.wait().unwrap();
        let checked = bench(&arguments(path, &db, &["--no-load", "--units", "30"]));
        (!checked.status.success()).then(|| text(&checked))
    })
}

#[test]
fn the_conditions_of_tpcc_hold_after_kills() {
    assert_eq!(first_fault_after_kills(&workloads().join("tpcc-lite.lua"), KILLS), None);
}

#[test]
fn the_money_of_smallbank_is_all_there_after_kills() {
    assert_eq!(first_fault_after_kills(&workloads().join("smallbank.lua"), KILLS), None);
}

#[test]
fn a_run_on_what_is_there_is_checked_if_the_workload_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let db = dir.path().join("db");
    let source = |always: bool| {
        format!(
            "return {{ load = function() kv.put('a', 'b') end, run = function() kv.put('a', 'c') end,
             check_always = {always}, check = function(ctx) assert(ctx.loaded, 'it looked') end }}"
        )
    };
    let path = lua(dir.path(), &source(true));
    succeed(&arguments(&path, &db, &["--units", "9"]));
    let shown = refuse(&arguments(&path, &db, &["--units", "9", "--no-load"]));
    assert!(shown.contains("it looked"), "{shown}");
    fs::write(&path, source(false)).unwrap();
    succeed(&arguments(&path, &db, &["--units", "9", "--no-load"]));
}

/// What belongs to one transaction, in two: a kill in between shows, so the checks see what they
/// should.
#[test]
fn a_workload_that_commits_in_two_parts_fails_its_check_after_kills() {
    let late_row = "ctx.brought = sum\n    write(brought(ctx.thread), sum)\n";
    let cut = "  end)\n  kv.transact(function()\n    local paid, next";
    let cases = [
        ("smallbank", "    write(brought(ctx.thread), sum)\n", "the bank holds"),
        ("tpcc-lite", "W) + amount)\n    local paid, next", "condition 1"),
    ];
    for (workload, one, fault) in cases {
        let source = fs::read_to_string(workloads().join(format!("{workload}.lua"))).unwrap();
        assert_eq!(source.matches(one).count(), 1, "{workload}");
        let broken = match workload {
            "smallbank" => source.replace(one, "").replace("ctx.brought = sum\n", late_row),
            _ => source.replace(one, &format!("W) + amount)\n{cut}")),
        };
        let dir = tempfile::tempdir().unwrap();
        let path = lua(dir.path(), &broken);
        let found = first_fault_after_kills(&path, 100).expect("a kill comes between the two");
        assert!(found.contains(fault), "{workload}: {found}");
    }
}
