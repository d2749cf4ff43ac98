//! What a campaign does around its mutants: jobs, nets with deadlines, results that are taken up
//! again, builds that are not repeated, and the tables with what people said of survivors. The
//! programs are scripts of the shell.

use super::super::built;
use super::super::campaign::{at_once, left};
use super::super::compile::Programs;
use super::super::explained::{self, Is};
use super::super::nets::{Nets, Simulation, Verdict};
use super::super::report::{self, Row};
use super::super::site::Mutant;
use super::{file, found};
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Barrier, Mutex};
use std::time::Duration;

/// A folder of the test's own, empty.
pub(super) fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("xtask-{}-{name}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(folder.join("crates/isobath")).unwrap();
    folder
}

pub(super) fn script(folder: &Path, name: &str, text: &str) -> PathBuf {
    let path = folder.join(name);
    let draft = folder.join(format!("{name}.draft"));
    fs::write(&draft, format!("#!/bin/sh\n{text}\n")).unwrap();
    fs::set_permissions(&draft, fs::Permissions::from_mode(0o755)).unwrap();
    // This process never has the script open for writing. Otherwise a child that another thread
    // starts at that moment would have it open, too, and nothing could run it meanwhile.
    assert!(Command::new("cp").arg("-p").arg(&draft).arg(&path).status().unwrap().success());
    path
}

/// Throws a mutant into units and a simulator that are such scripts; what became of it, and what
/// the simulator was asked.
fn thrown(name: &str, mutant: usize, units: &str, simulator: &str) -> (Verdict, Vec<String>) {
    let folder = folder(name);
    let asked = folder.join("asked");
    let simulator = format!("echo \"$*\" >> {}\n{simulator}", asked.display());
    let programs = Programs {
        units: script(&folder, "units", units),
        tests: Vec::new(),
        simulator: script(&folder, "simulator", &simulator),
    };
    let profiles = vec!["mixed".to_owned(), "tree".to_owned()];
    let simulation = Simulation { minutes: 10.0, profiles, with_tests: true };
    let (tree, paces) = (&*folder, &Mutex::default());
    let nets = Nets { programs: &programs, tree, target: &folder, simulation, paces, jobs: 1 };
    let verdict = nets.throw(0, mutant, "wal", 7000).unwrap();
    let asked = fs::read_to_string(asked).unwrap_or_default();
    fs::remove_dir_all(&folder).unwrap();
    (verdict, asked.lines().map(str::to_owned).collect())
}

#[test]
fn a_mutant_that_no_net_came_to_is_spared_nine_tenths_of_the_simulation() {
    let (verdict, asked) = thrown("not-reached", 3, "true", "true");
    assert!(verdict.caught.is_none() && !verdict.is_reached);
    assert_eq!(asked.len(), 2, "{asked:?}");
    assert!(asked.iter().all(|one| one.ends_with("--minutes 0.500")), "{asked:?}");

    let reached = "[ -z \"$ISOBATH_MUTANT_REACHED\" ] || : > \"$ISOBATH_MUTANT_REACHED\"";
    let (verdict, asked) = thrown("reached", 3, reached, "true");
    assert!(verdict.caught.is_none() && verdict.is_reached);
    assert_eq!(asked.len(), 4, "{asked:?}");
    assert!(asked[3].ends_with("--minutes 4.500"), "{asked:?}");

    // The simulation's first tenth may be the first to reach the mutant.
    let (verdict, asked) = thrown("reached-late", 3, "true", reached);
    assert!(verdict.is_reached);
    assert_eq!(asked.len(), 4, "{asked:?}");
}

#[test]
fn the_engine_as_it_is_gets_all_of_the_simulation() {
    let (verdict, asked) = thrown("unchanged", 0, "true", "true");
    assert!(verdict.caught.is_none());
    assert_eq!(asked.len(), 4, "{asked:?}");
}

#[test]
fn the_first_failure_ends_a_trial() {
    let (verdict, asked) = thrown("fails", 3, "true", "echo 'seed 8 FAILED: lost'; exit 1");
    let (net, seen) = verdict.caught.unwrap();
    assert_eq!((&*net, &*seen, asked.len()), ("simulation, mixed", "seed 8 FAILED: lost", 1));
}

#[test]
fn a_test_that_passes_when_it_runs_again_kills_no_mutant() {
    let seen = |name, fails: &str| {
        let units = format!(
            "case \"$*\" in *'--skip wal::slow') exit 0;; esac
            if {fails}; then echo 'test wal::slow - should panic ... FAILED'; exit 101; fi"
        );
        thrown(name, 3, &units, "true").0.caught
    };
    let units = Some(("unit tests".into(), "test wal::slow - should panic ... FAILED".into()));
    assert_eq!(seen("fails-again", "true"), units);
    assert_eq!(seen("fails-with-others", "[ \"$*\" != 'wal::slow --exact' ]"), None);
    assert_eq!(seen("passes", "false"), None);
}

#[test]
fn jobs_at_once_have_scratch_of_their_own_and_time_for_each_other() {
    let folder = folder("jobs");
    // Each job writes its mutant to a file, waits, and fails if another job has replaced the file.
    let text = "echo $ISOBATH_MUTANT > $TMPDIR/own; sleep 0.3; [ \"$(cat $TMPDIR/own)\" = $ISOBATH_MUTANT ] || exit 1\n\
                [ $ISOBATH_MUTANT = 2 ] && : > $ISOBATH_MUTANT_REACHED; true";
    let programs = Programs { units: script(&folder, "units", text), ..Programs::default() };
    let simulation = Simulation { minutes: 0.0, profiles: Vec::new(), with_tests: true };
    let (tree, paces) = (&*folder, &Mutex::default());
    let nets = Nets { programs: &programs, tree, target: &folder, simulation, paces, jobs: 3 };
    let verdicts = Mutex::new(Vec::new());
    at_once(3, &[1, 2, 3], |job, &mutant| {
        let verdict = nets.throw(job, mutant, "wal", 0)?;
        assert!(verdict.caught.is_none(), "{:?}", verdict.caught);
        verdicts.lock().unwrap().push((mutant, verdict.is_reached));
        Ok(())
    })
    .unwrap();
    let mut verdicts = verdicts.into_inner().unwrap();
    verdicts.sort_unstable();
    assert_eq!(verdicts, [(1, false), (2, true), (3, false)]);
    let alone = Nets { jobs: 1, simulation: nets.simulation.clone(), ..nets };
    let usual = Duration::from_secs(10);
    assert_eq!(alone.deadline(usual), Duration::from_secs(100));
    assert_eq!(nets.deadline(usual), Duration::from_secs(180));
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn so_many_jobs_run_at_once_and_do_each_piece_once() {
    let (all_there, done) = (Barrier::new(3), Mutex::new(Vec::new()));
    at_once(3, &[0, 1, 2, 3, 4, 5], |_, &piece| {
        all_there.wait();
        done.lock().unwrap().push(piece);
        Ok(())
    })
    .unwrap();
    let mut done = done.into_inner().unwrap();
    done.sort_unstable();
    assert_eq!(done, [0, 1, 2, 3, 4, 5]);
}

#[test]
fn the_first_error_ends_all_jobs() {
    let done = Mutex::new(0);
    // More than the other job can do while the one that fails gets no processor.
    let pieces: Vec<u32> = (0..300_000).collect();
    let failed = at_once(2, &pieces, |_, &piece| {
        *done.lock().unwrap() += 1;
        std::thread::sleep(Duration::from_millis(1));
        if piece == 3 { Err(io::Error::other("no room")) } else { Ok(()) }
    });
    assert_eq!(failed.unwrap_err().to_string(), "no room");
    assert!(done.into_inner().unwrap() < pieces.len());
}

fn mutants(text: &str) -> Vec<Mutant> {
    found(text).1
}

fn row(mutant: &Mutant, trial: &str, net: &str) -> Row {
    let caught = (net != "survived" && net != "not reached")
        .then(|| (net.to_owned(), "seen a|b\tc\nd".to_owned()));
    let is_reached = net != "not reached";
    Row::new(mutant, 7, trial, &Verdict { caught, seconds: 1.5, is_reached, unsure: None })
}

#[test]
fn rows_come_back_from_their_lines_and_are_not_tried_again() {
    let mutants = mutants("fn f() -> u64 { g(a < b); a + b }");
    let rows: Vec<Row> = mutants.iter().map(|one| row(one, "t", "unit tests")).collect();
    let text: String = rows.iter().map(Row::encode).collect();
    let read = report::parse(&text).unwrap();
    assert_eq!(read.iter().map(Row::encode).collect::<String>(), text);
    let chosen: Vec<usize> = (0..mutants.len()).rev().collect();
    assert_eq!(left(&chosen, &mutants, &read, 7, "t"), []);
    let some = left(&chosen, &mutants, &read[1..], 7, "t");
    assert_eq!(some, [(chosen.len() - 1, 0)], "its place among the chosen stays, and so its seeds");
    assert_eq!(left(&chosen, &mutants, &read, 8, "t").len(), chosen.len(), "another seed");
    assert_eq!(left(&chosen, &mutants, &read, 7, "u").len(), chosen.len(), "other sources");
}

#[test]
fn of_several_rows_of_a_mutant_in_one_trial_the_last_counts() {
    let mutants = mutants("fn f() -> u64 { a + b }");
    let rows = [("t", "survived"), ("u", "unit tests"), ("t", "unit tests"), ("t", "not reached")];
    let text: String =
        rows.iter().map(|(trial, net)| row(&mutants[0], trial, net).encode()).collect();
    let read = report::parse(&text).unwrap();
    let wanted = [row(&mutants[0], "t", "not reached"), row(&mutants[0], "u", "unit tests")];
    let encoded = |rows: &[Row]| rows.iter().map(Row::encode).collect::<String>();
    assert_eq!(encoded(&read), encoded(&wanted));
    assert!(report::parse("wal\t-\n").is_err());
}

const SOURCE: &str = "fn f() -> u64 { g(a < b); g(c < d); h(c < d); a + b }";

fn explained(entries: &str) -> (explained::Reasons, Vec<String>) {
    let head =
        "[[explained]]\nfile = \"crates/isobath/src/wal/a.rs\"\nis = \"speed only\"\nwhy = \"w\"\n";
    let list = explained::parse(&entries.replace("ENTRY", head)).unwrap();
    explained::resolve(&list, [file(SOURCE)].iter(), &mutants(SOURCE))
}

#[test]
fn an_explanation_is_of_the_mutants_that_begin_in_its_text() {
    let of = |entries: &str| {
        let (reasons, stale) = explained(entries);
        assert_eq!(stale, [""; 0], "{entries}");
        reasons
            .into_keys()
            .map(|key| key.rsplit("a.rs:").next().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    let comparison = "ENTRY find = \"g(a < b)\"\noperator = \"comparison\"";
    let both = ["1:19 comparison: `a < b` -> `<=`", "1:19 comparison: `a < b` -> `>=`"];
    assert_eq!(of(&format!("{comparison}\ncount = 2")), both);
    assert_eq!(of(&format!("{comparison}\nchange = \"-> `>=`\"")), both[1..]);
    let second = "ENTRY find = \"c < d\"\nnth = 2\noperator = \"comparison\"\nchange = \"<=\"";
    assert_eq!(of(second), ["1:39 comparison: `c < d` -> `<=`"]);
}

#[test]
fn an_explanation_that_fits_no_mutant_or_others_than_it_counts_is_told() {
    for entry in [
        "ENTRY find = \"c < d\"\noperator = \"comparison\"",
        "ENTRY find = \"c < e\"\noperator = \"comparison\"",
        "ENTRY find = \"c < d\"\nnth = 3\noperator = \"comparison\"",
        "ENTRY find = \"a < b\"\noperator = \"arithmetic\"",
        "ENTRY find = \"a < b\"\noperator = \"comparison\"\nchange = \"-> `>`\"",
        "ENTRY find = \"a < b\"\noperator = \"comparison\"",
        "ENTRY find = \"a < b\"\noperator = \"comparison\"\ncount = 3",
        "ENTRY find = \"a < b\"\noperator = \"comparison\"\nchange = \"<=\"\ncount = 2",
    ] {
        let (reasons, stale) = explained(entry);
        assert_eq!((reasons.len(), stale.len()), (0, 1), "{entry}");
    }
}

#[test]
fn the_tables_tell_killed_explained_and_other_survivors_apart() {
    let mutants = mutants("fn f() -> u64 { a + b; c < d; e + f; 1 }");
    let nets = ["unit tests", "survived", "not reached", "test model", "simulation, mixed"];
    let nets = nets.into_iter().chain(["survived", "all unit tests"]);
    let rows: Vec<Row> = mutants.iter().zip(nets).map(|(one, net)| row(one, "t", net)).collect();
    let reasons = [(0, Is::SpeedOnly), (1, Is::Equivalent)]
        .map(|(at, is): (usize, Is)| (mutants[at].key(), (is, "since\n  so".to_owned())));
    let text = report::tables(&rows, &[], &reasons.into());
    assert_eq!(rows.len(), 7, "{mutants:?}");
    assert!(text.starts_with("Seed 7, t.\n\n| module |"), "{text}");
    assert!(text.contains("\n| `wal` | 7 | 1 | 1 | 1 | 0 | 1 | 1 | 0 | 1 | 1 | 57% |\n"), "{text}");
    assert!(text.contains("\n| all | 7 | 1 | 1 | 1 | 0 | 1 | 1 | 0 | 1 | 1 | 57% |\n"), "{text}");
    let line = |at: usize, rest: &str| {
        let place = mutants[at].key().replace("crates/isobath/src/", "").replace('|', "\\|");
        format!("\n| {place} | {rest} |\n")
    };
    assert!(text.contains(&line(0, "**killed all the same** | since so")), "{text}");
    assert!(text.contains(&line(1, "equivalent | since so")), "{text}");
    assert!(text.contains(&line(2, "not reached")), "{text}");
    assert!(text.contains(&line(5, "")), "{text}");
}

#[test]
fn a_build_is_at_hand_while_its_sources_and_programs_are() {
    let folder = folder("built");
    fs::create_dir_all(folder.join("xtask/src/mutants")).unwrap();
    let write = |name: &str, text: &str| fs::write(folder.join(name), text).unwrap();
    write("crates/isobath/a.rs", "a");
    write("known.toml", "k");
    write("units", "u");
    let digest = || built::digest(&folder, &["crates/isobath"], Path::new("known.toml")).unwrap();
    let (record, first) = (folder.join("built.json"), digest());
    assert_eq!(built::programs(&record, &first), None);
    let programs = Programs { units: folder.join("units"), ..Programs::default() };
    built::note(&record, &first, &programs).unwrap();
    assert_eq!(built::programs(&record, &digest()), Some(programs.clone()));
    for (name, text) in
        [("crates/isobath/a.rs", "b"), ("known.toml", "l"), ("xtask/src/mutants/weave.rs", "w")]
    {
        let before = digest();
        write(name, text);
        assert_ne!(digest(), before, "{name}");
        assert_eq!(built::programs(&record, &digest()), None, "{name}");
    }
    assert_eq!(built::programs(&record, &first), Some(programs));
    fs::remove_file(folder.join("units")).unwrap();
    assert_eq!(built::programs(&record, &first), None);
    built::forget(&record).unwrap();
    built::forget(&record).unwrap();
    fs::remove_dir_all(&folder).unwrap();
}
