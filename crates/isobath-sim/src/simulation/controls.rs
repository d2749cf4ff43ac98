//! The controls: with each planted bug the engine must fail on some of the seeds on which it passes
//! without the bug.
//!
//! A harness that has never failed proves nothing. The tests below are a sample: bugs that any few
//! seeds catch.

use super::{Profile, Settings, simulate};
use isobath::env::planted::Plant;
use std::time::{Duration, Instant};

/// The classes of bugs that runs, crashes and damaged disks can show. The bugs of other classes
/// show only with forged bytes: the fuzz targets look for those, and have controls of their own.
const CLASSES: [std::ops::RangeInclusive<u8>; 2] = [1..=15, TRANSACTIONS..=TRANSACTIONS];

/// The class of bugs of transactions.
const TRANSACTIONS: u8 = 17;

/// Bugs that a unit test of the engine plants and finds, because no life is likely to lead there: a
/// write would have to stand for a second of simulated time, and nothing else to happen meanwhile.
pub(crate) const FOUND_BY_TESTS: [(Plant, &str); 1] =
    [(Plant::LeftGateBeforeVisible, "planted_bugs_of_the_gate_are_found")];

/// What the simulator is to catch.
pub(crate) fn plants() -> impl Iterator<Item = Plant> {
    let is_for_lives = |plant: &Plant| {
        CLASSES.iter().any(|of| of.contains(&plant.class()))
            && FOUND_BY_TESTS.iter().all(|(found, _)| found != plant)
    };
    Plant::ALL.iter().copied().filter(is_for_lives)
}

/// Whether a planted bug was caught.
pub(crate) struct Caught {
    pub(crate) plant: Plant,
    /// The first seed that failed and what it said, if any did.
    pub(crate) by: Option<(u64, String)>,
    pub(crate) seeds: u64,
    pub(crate) took: Duration,
}

/// Bugs of transactions between prepare and decision.
const IN_DOUBT: [Plant; 6] = [
    Plant::RegisteredAfterPublish,
    Plant::PrepareNotFiled,
    Plant::FiledOnlyUndecided,
    Plant::InstallForgetsEntries,
    Plant::DecidedTwice,
    Plant::InDoubtUnlocked,
];

/// What a control runs of a seed: half of them live shortly, or run transactions all the time where
/// the bug is one of theirs; or all have the profile that was asked for.
pub(crate) fn control(seed: u64, plant: Plant, profile: Option<Profile>) -> Settings {
    let profile = profile.unwrap_or(match plant.class() {
        TRANSACTIONS if IN_DOUBT.contains(&plant) => Profile::TwoPhase,
        TRANSACTIONS => Profile::Transactions,
        _ if seed.is_multiple_of(2) => Profile::Mixed,
        _ => Profile::Short,
    });
    Settings { plant, profile, ..Settings::default() }
}

/// Runs seeds from `from` on with a bug planted, at most `seeds_max`, until one fails.
pub(crate) fn hunt(plant: Plant, profile: Option<Profile>, from: u64, seeds_max: u64) -> Caught {
    let started = Instant::now();
    let fails =
        |seed| simulate(seed, &control(seed, plant, profile)).err().map(|wrong| (seed, wrong));
    let caught = (from..from + seeds_max).find_map(fails);
    let seeds = caught.as_ref().map_or(seeds_max, |(seed, _)| seed - from + 1);
    Caught { plant, by: caught, seeds, took: started.elapsed() }
}

#[cfg(test)]
mod tests {
    use super::super::hook;
    use super::*;

    /// Bugs that a few seeds do not always catch. The command `controls` runs enough seeds for
    /// them.
    const RARE: [Plant; 17] = [
        Plant::LogRetiredEarly,
        Plant::PointBeforeView,
        Plant::PointNotChecked,
        Plant::SweptEarly,
        Plant::RecoveryInTwoEdits,
        Plant::TornTailFatal,
        Plant::FailedSyncRetried,
        Plant::FailedTableSyncIgnored,
        Plant::FailedEditIgnored,
        Plant::FailedFlushForgotten,
        Plant::SpillNamesNotSynced,
        Plant::ExpiredTooEarly,
        Plant::EndedDroppedOverOthers,
        Plant::FamilyNotSynced,
        Plant::BlockChecksumSkipped,
        Plant::DamageSkipped,
        Plant::StreamGoesWithFlush,
    ];

    /// Plants without a row in the table of `docs/testing.md`, and why.
    const NOT_IN_TABLE: &[(Plant, &str)] = &[];

    const SEEDS_MAX: u64 = 300;

    /// What the page says of a plant between two of its lines.
    fn has_row(page: &str, from: &str, to: &str, plant: Plant) -> bool {
        let (_, section) = page.split_once(from).expect("the page has this section");
        let (section, _) = section.split_once(to).expect("the section ends");
        let name = format!("`{}`", plant.name());
        section.lines().any(|line| line.starts_with('|') && line.contains(&name))
    }

    #[test]
    fn each_plant_is_in_a_table_of_the_page_or_there_is_a_reason() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/testing.md");
        let page = std::fs::read_to_string(page).unwrap();
        let by_tests = || FOUND_BY_TESTS.iter().map(|(found, _)| *found);
        let is_in_table = |plant: Plant| match plants().chain(by_tests()).any(|it| it == plant) {
            true => has_row(&page, "<!-- controls -->", "<!-- /controls -->", plant),
            // What only forged bytes show.
            false => has_row(&page, "### Fuzzing", "\n## ", plant),
        };
        for plant in Plant::ALL.iter().copied().filter(|plant| *plant != Plant::Nothing) {
            let reason = NOT_IN_TABLE.iter().find(|(other, _)| *other == plant);
            assert_ne!(
                is_in_table(plant),
                reason.is_some(),
                "{} is to be in a table of docs/testing.md, or else in NOT_IN_TABLE",
                plant.name()
            );
        }
    }

    fn each_is_caught(classes: std::ops::Range<u8>) {
        hook();
        for plant in plants().filter(|plant| classes.contains(&plant.class())) {
            if RARE.contains(&plant) {
                continue;
            }
            let caught = hunt(plant, None, 0, SEEDS_MAX);
            assert!(caught.by.is_some(), "{} is not caught", plant.name());
        }
    }

    #[test]
    fn planted_bugs_of_log_and_recovery_are_caught() {
        each_is_caught(1..5);
    }

    #[test]
    fn planted_bugs_of_syncs_are_caught() {
        each_is_caught(5..7);
    }

    #[test]
    fn planted_bugs_of_reads_and_compactions_are_caught() {
        each_is_caught(7..13);
    }

    #[test]
    fn planted_bugs_of_families_and_limits_are_caught() {
        each_is_caught(13..16);
    }

    #[test]
    fn without_a_plant_the_same_seeds_find_nothing() {
        hook();
        for seed in 0..8 {
            let clean = simulate(seed, &control(seed, Plant::Nothing, None));
            assert_eq!(clean.err(), None, "seed {seed}");
        }
    }
}
