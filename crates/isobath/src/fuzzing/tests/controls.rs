//! The controls. A target that has never failed proves nothing. So each bug that a target should
//! catch is planted on purpose, and the target must fail on the inputs that every test run gives
//! it.

use super::*;
use crate::env::planted::{Plant, plant_here};
use std::process::Command;

/// Targets that need no other thread, each with a planted bug that this target alone must catch.
const CONTROLS: [(&str, Plant); 15] = [
    ("payload", Plant::KeyLengthBelieved),
    ("payload", Plant::LengthBelieved),
    ("log", Plant::TornTailAccepted),
    ("log", Plant::HoleAccepted),
    ("edit", Plant::LengthBelieved),
    ("manifest", Plant::EditBelieved),
    ("current", Plant::CurrentBelieved),
    ("block", Plant::EntryBelieved),
    ("index", Plant::EntryBelieved),
    ("filter", Plant::FilterDenies),
    ("footer", Plant::LengthBelieved),
    ("root", Plant::LengthBelieved),
    ("codec", Plant::LengthBelieved),
    ("table", Plant::DescentBelieved),
    ("bounds", Plant::PrefixWraps),
];

#[test]
fn each_target_catches_what_is_planted_for_it() {
    for (name, bug) in CONTROLS {
        let target = TARGETS.iter().find(|target| target.name == name).unwrap();
        let inputs = inputs(target, 1500);
        plant_here(bug);
        let caught = first_failure(target, inputs);
        plant_here(Plant::Nothing);
        let (nth, _) = caught.unwrap_or_else(|| panic!("{name} misses {}", bug.name()));
        println!("{name} catches {} after {nth} inputs", bug.name());
    }
}

/// Runs the test of the target again in a process of its own. The engine's threads do the work
/// here, so the bug must be planted for all threads.
fn sequences_catch(bug: Plant) {
    const TEST: &str = "the_engine_answers_as_a_map_would_over_what_chance_makes_of_sequences";
    let test = format!("fuzzing::tests::{TEST}");
    let mut again = Command::new(std::env::current_exe().unwrap());
    again.args(["--exact", &test, "--nocapture"]);
    again.env("ISOBATH_PLANT", bug.name()).env_remove("ISOBATH_TEST_LONG");
    let output = again.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    let how = said.lines().find_map(|line| line.strip_prefix("operations fails over input "));
    let how = how.unwrap_or_else(|| panic!("operations misses {}: {said}", bug.name()));
    let nth = how.split_once(':').map_or("", |(nth, _)| nth);
    println!("operations catches {} after {nth} inputs", bug.name());
}

#[test]
fn sequences_of_operations_catch_what_is_planted_in_the_engine() {
    for bug in [
        Plant::TombstoneDropped,
        Plant::OverlappingFiles,
        Plant::SnapshotIgnored,
        Plant::FilterDenies,
        Plant::FamilyReplayedTwice,
    ] {
        sequences_catch(bug);
    }
}
