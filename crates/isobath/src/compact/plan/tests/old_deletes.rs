//! When deletes go down because they have stayed too long.

use super::super::pick::MOVES_MAX;
use super::super::*;
use super::scripts::{describe, hints, parse_tree};

/// Five minutes: shares of 75 seconds without levels between level 0 and the last one, and of a
/// minute with one.
const BOUND_MS: u64 = 300_000;

fn planned(tree: &str, seconds: u64, oldest_reader: u64) -> String {
    let policy = Policy { delete_within_ms: BOUND_MS, ..Policy::default() };
    let hints = Hints { oldest_reader, now_ms: seconds * 1000, ..hints() };
    let tree = parse_tree(tree);
    let plan = describe(&plan(&tree, &policy, &Busy::default(), &hints));
    let is_due = delete_ages(&tree, &policy, &hints).unwrap().is_due;
    assert_eq!(is_due, plan.starts_with("OldDeletes") || plan.starts_with("move"), "{plan}");
    plan
}

#[track_caller]
fn expect(tree: &str, seconds: u64, wanted: &str) {
    assert_eq!(planned(tree, seconds, 20_000), wanted);
}

#[test]
fn runs_go_down_once_a_delete_has_stayed_for_a_share() {
    let tree = "0 | 3:a..z, 2:a..z d1 t10\n6 | 1:a..z";
    expect(tree, 84, "nothing");
    expect(tree, 85, "OldDeletes 6: 0/3 0/2 6/1");
    expect("0 | 3:a..z, 2:a..z\n6 | 1:a..z", 9999, "nothing");
}

#[test]
fn each_level_between_has_a_share_of_its_own() {
    let tree = "0 | 3:a..z d1 t30\n5 | 2:a..c, 4:m..n d1 t10\n6 | 1:a..z";
    expect(tree, 89, "nothing");
    expect(tree, 90, "OldDeletes 5: 0/3 5/2 5/4 above 1");
    let tree = "0 | 3:a..z d1 t80\n5 | 2:a..c, 4:m..n d1 t10\n6 | 1:a..z";
    expect(tree, 129, "nothing");
    // What costs no more goes along.
    expect(tree, 130, "OldDeletes 6: 5/2 5/4 6/1");
    expect("5 | 2:a..c, 4:m..n d1 t10\n6 | 1:a..d, 5:x..z", 130, "move 4:5->6");
}

#[test]
fn in_the_last_level_deletes_wait_for_readers() {
    let tree = "6 | 1:a..c d1 t10, 2:d..m d1 t11, 3:n..z d1 t12";
    expect(tree, 84, "nothing");
    expect(tree, 85, "OldDeletes 6: 6/1");
    expect(tree, 90, "OldDeletes 6: 6/1 6/2 6/3");
    assert_eq!(planned(tree, 90, 3009), "nothing");
    assert_eq!(planned(tree, 90, 3010), "OldDeletes 6: 6/1 6/2 6/3");
}

#[test]
fn deletes_of_an_unknown_age_are_old() {
    expect("6 | 1:a..c d1, 2:d..m d1 t70", 100, "OldDeletes 6: 6/1");
    // So are those of a time to come.
    expect("0 | 3:a..z d1 t145\n6 | 1:a..z", 85, "nothing");
    expect("0 | 3:a..z d1 t146\n6 | 1:a..z", 85, "OldDeletes 6: 0/3 6/1");
}

#[test]
fn what_writers_wait_for_comes_before_old_deletes() {
    let policy = Policy { delete_within_ms: BOUND_MS, ..Policy::default() };
    let hints = Hints { now_ms: 9_999_000, ..hints() };
    let planned = |runs: u64| {
        let runs: Vec<_> = (0..runs).map(|n| format!("{}:a..z", 40 - n)).collect();
        let tree = format!("0 | {}\n5 | 1:a..c d1 t0, 2:d..f d1 t0\n6 | 3:a..z", runs.join(", "));
        describe(&plan(&parse_tree(&tree), &policy, &Busy::default(), &hints))
    };
    assert!(planned(1).starts_with("OldDeletes 6"), "{}", planned(1));
    assert!(planned(11).starts_with("OldDeletes"), "{}", planned(11));
    assert!(planned(12).starts_with("Runs"), "{}", planned(12));
}

/// Twelve runs, the newest first, of which no few can become one, over these levels.
fn crowded(first: u64, levels: &str) -> String {
    let len = |nth: u64| if nth < 2 { 1 } else { 64 };
    let runs: Vec<_> = (0..12).map(|nth| format!("{}:a..m {}M", first - nth, len(nth))).collect();
    format!("0 | {}\n{levels}", runs.join(", "))
}

#[test]
fn while_level_0_is_crowded_and_can_not_go_down_old_deletes_do_but_not_from_the_base() {
    // The share is 50 seconds: the base lets go after two of them, the next level after three.
    let levels = "4 | 1:a..c, 2:n..z d1 t0\n5 | 3:a..c, 4:n..z d1 t0\n6 | 5:a..z 320M";
    let older = crowded(30, levels);
    let newer = crowded(50, levels).replace("\n4", ", X\n4");
    let newer = newer.replace('X', older.lines().next().unwrap().split_once("| ").unwrap().1);
    let policy = Policy { delete_within_ms: BOUND_MS, ..Policy::default() };
    let at = |seconds: u64| Hints { now_ms: seconds * 1000, ..hints() };
    let mut busy = Busy::default();
    let runs = plan(&parse_tree(&older), &policy, &busy, &at(0));
    assert!(describe(&runs).starts_with("Runs 4: 0/30"), "{}", describe(&runs));
    busy.begin(&runs);
    let planned = |seconds, busy: &Busy| plan(&parse_tree(&newer), &policy, busy, &at(seconds));
    assert_eq!(describe(&planned(149, &busy)), "nothing", "the base has a due one");
    assert_eq!(describe(&planned(150, &busy)), "OldDeletes 6: 5/4 6/5");
    // After as much again as the bound it is the base's turn, and then level 0's again.
    assert_eq!(describe(&planned(399, &busy)), "OldDeletes 6: 5/4 6/5");
    let overdue = planned(400, &busy);
    assert_eq!(describe(&overdue), "OldDeletes 5: 4/2 5/4 above 5");
    busy.begin(&overdue);
    assert_eq!(describe(&planned(9999, &busy)), "nothing");
}

#[test]
fn slices_that_are_overdue_by_the_bound_take_turns_with_a_crowded_level_0() {
    let policy = Policy { delete_within_ms: BOUND_MS, ..Policy::default() };
    let tree = parse_tree(&crowded(30, "6 | 1:a..c d1 t0, 2:d..f d1 t0, 3:x..z d1 t0"));
    // The share is 75 seconds.
    let planned = |seconds: u64, busy: &Busy| {
        plan(&tree, &policy, busy, &Hints { now_ms: seconds * 1000, ..hints() })
    };
    let mut busy = Busy::default();
    let runs = planned(375, &busy);
    assert!(describe(&runs).starts_with("Runs 6"), "{}", describe(&runs));
    let job = busy.begin(&runs);
    busy.end(job);
    // As many runs have come meanwhile.
    assert!(describe(&planned(374, &busy)).starts_with("Runs 6"), "not overdue yet");
    let overdue = planned(375, &busy);
    assert!(describe(&overdue).starts_with("OldDeletes 6: 6/1"), "{}", describe(&overdue));
    let job = busy.begin(&overdue);
    busy.end(job);
    let next = describe(&planned(375, &busy));
    assert!(next.starts_with("Runs 6"), "{next}");
}

#[test]
fn a_move_of_old_deletes_gives_the_turn_back() {
    let policy = Policy { delete_within_ms: BOUND_MS, ..Policy::default() };
    let tree = parse_tree(&crowded(30, "5 | 1:a..b d1 t0, 2:c..d d1 t0\n6 | 3:x..z"));
    let planned = |busy: &Busy| plan(&tree, &policy, busy, &Hints { now_ms: 1_000_000, ..hints() });
    let mut busy = Busy::default();
    for _ in 0..2 {
        let runs = planned(&busy);
        assert!(describe(&runs).starts_with("Runs "), "{}", describe(&runs));
        let job = busy.begin(&runs);
        busy.end(job);
        let moved = planned(&busy);
        let Plan::Move(moves) = &moved else { panic!("{}", describe(&moved)) };
        assert_eq!(moves.len(), 2, "all that overlap nothing");
        let job = busy.begin(&moved);
        busy.end(job);
    }
}

#[test]
fn one_edit_moves_no_more_than_a_plan_may_look_through() {
    let policy = Policy { delete_within_ms: BOUND_MS, ..Policy::default() };
    let slices: Vec<_> =
        (1..=MOVES_MAX + 3).map(|n| format!("{n}:{n:05}a..{n:05}b d1 t0")).collect();
    let tree = parse_tree(&format!("5 | {}\n6 | 999:x..z", slices.join(", ")));
    let planned = plan(&tree, &policy, &Busy::default(), &Hints { now_ms: 1_000_000, ..hints() });
    let Plan::Move(moves) = &planned else { panic!("{}", describe(&planned)) };
    assert_eq!(moves.len(), MOVES_MAX);
}

#[test]
fn jobs_beside_change_nothing_of_whose_turn_it_is() {
    let policy = Policy { delete_within_ms: BOUND_MS, ..Policy::default() };
    let tree = parse_tree(&crowded(30, "6 | 1:a..c d1 t0, 2:d..f d1 t0, 3:x..z d1 t0"));
    let planned = |busy: &Busy| plan(&tree, &policy, busy, &Hints { now_ms: 375_000, ..hints() });
    let of = |reason, target, level| {
        let inputs = vec![(level, tree.slices(6)[2].clone())];
        let mut job = match planned(&Busy::default()) {
            Plan::Compaction(job) => job,
            other => panic!("{}", describe(&other)),
        };
        (job.reason, job.target, job.inputs) = (reason, target, inputs);
        Plan::Compaction(job)
    };
    let did = |busy: &mut Busy, plan: &Plan| {
        let job = busy.begin(plan);
        busy.end(job);
    };
    let mut busy = Busy::default();
    did(&mut busy, &planned(&Busy::default()));
    did(&mut busy, &of(CompactionReason::Size, 7, 6));
    let overdue = planned(&busy);
    assert!(describe(&overdue).starts_with("OldDeletes 6"), "{}", describe(&overdue));
    did(&mut busy, &overdue);
    did(&mut busy, &of(CompactionReason::Runs, 0, 0));
    let next = describe(&planned(&busy));
    assert!(next.starts_with("Runs 6"), "{next}");
}

#[test]
fn the_least_bound_still_divides_and_without_one_nothing_is_due() {
    let tree = parse_tree("0 | 3:a..z d1 t0\n6 | 1:a..z d1 t0");
    let hints = Hints { now_ms: u64::MAX, ..hints() };
    let (none, busy) = (Policy::default(), Busy::default());
    assert_eq!(delete_ages(&tree, &none, &hints), None);
    assert_eq!(describe(&plan(&tree, &none, &busy, &hints)), "nothing");
    let least = Policy { delete_within_ms: 60_000, ..Policy::default() };
    let ages = DeleteAges { share_ms: 15_000, is_due: true };
    assert_eq!(delete_ages(&tree, &least, &hints), Some(ages));
}
