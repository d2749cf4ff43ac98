//! Table files that are mostly dead: which are chosen, and how slices leave them.

use super::super::clean::{CleaningLimits, choose_files, plan_clean};
use super::super::fixtures::{Model, small_policy};
use super::super::{Hints, Plan, Policy};
use super::drawn::{Answer, walk, walk_past_damage};
use super::scripts::{describe, hints, parse_tree};
use super::soundness::check_compaction;
use crate::engine::Busy;
use crate::events::CompactionReason;
use crate::format::{FILE_HEADER_LEN, FamilyId};
use crate::version::TableUse;
use std::collections::BTreeMap;

/// Files, each with what it is worth in MiB to leave it.
#[track_caller]
fn expect(tree: &str, files: &[(u64, u64)], wanted: &str) {
    let files = files.iter().map(|&(file, mib)| (file, mib << 20)).collect();
    let (tree, policy) = (parse_tree(tree), Policy::default());
    let plan = plan_clean(&tree, &policy, &Busy::default(), &hints(), &files);
    assert_eq!(describe(&plan), wanted);
}

#[test]
fn a_family_that_rests_gets_one_file_if_that_is_paid_for() {
    expect("0 | 3:a..c 1M", &[], "nothing");
    expect("0 | 3:a..c 1M", &[(2, 64)], "nothing");
    expect("0 | 3:a..c 1M", &[(3, 64)], "DeadSpace 6: 0/3");
    expect("0 | 4:a..c 1M, 3:b..d 1M", &[(4, 6)], "DeadSpace 6: 0/4 0/3");
    expect("0 | 4:a..c 1M, 3:b..d 1M", &[(4, 5)], "DeadSpace 0: 0/4 above 3");
    let over_base = "0 | 4:a..z 1M, 3:a..z 1M\n6 | 1:a..z 20M";
    expect(over_base, &[(3, 66)], "DeadSpace 6: 0/4 0/3 6/1");
    expect(over_base, &[(3, 65)], "DeadSpace 0: 0/3 above 1");
    expect(over_base, &[(3, 33), (4, 33)], "DeadSpace 6: 0/4 0/3 6/1");
    // Beside the base it would be one more slice for good.
    let beside = "0 | 4:x..y 1M\n6 | 1:a..c 20M";
    expect(beside, &[(4, 64)], "DeadSpace 0: 0/4");
    let four = "0 | 7:x..y 1M, 6:x..y 1M, 5:x..y 1M, 4:x..y 1M\n6 | 1:a..c 20M";
    expect(four, &[(4, 64)], "DeadSpace 6: 0/7 0/6 0/5 0/4");
}

#[test]
fn a_slice_that_stays_where_it_is_gets_a_file_of_its_own() {
    expect("0 | 5:a..z, 4:a..z, 3:a..z", &[(4, 96)], "DeadSpace 0: 0/4 above 3");
    expect("5 | 3:a..c\n6 | 1:a..c, 2:d..f", &[(2, 96)], "DeadSpace 6: 6/2");
    expect("5 | 3:a..c\n6 | 1:a..c, 2:d..f", &[(3, 96)], "DeadSpace 5: 5/3 above 1");
}

#[test]
fn neither_a_slice_that_a_job_reads_nor_one_that_cannot_be_read_leaves() {
    let tree = parse_tree("0 | 4:a..z 1M, 3:a..z 1M\n6 | 1:a..c 1M, 2:x..z 1M");
    let (policy, files) = (Policy::default(), [1, 2, 3, 4].map(|file| (file, 6 << 20)).into());
    let mut busy = Busy::default();
    let next = |busy: &mut Busy| {
        let plan = plan_clean(&tree, &policy, busy, &hints(), &files);
        busy.begin(&plan);
        describe(&plan)
    };
    assert_eq!(next(&mut busy), "DeadSpace 6: 0/4 0/3 6/1 6/2");
    assert_eq!(next(&mut busy), "nothing");
    let mut busy = Busy::default();
    for (_, slice) in tree.iter().filter(|(_, slice)| [2, 3].contains(&slice.meta.file)) {
        busy.note_damaged(busy.next_id(), slice.meta.file, slice.extent().owned());
    }
    assert_eq!(next(&mut busy), "DeadSpace 0: 0/4 above 3 1 2");
    assert_eq!(next(&mut busy), "DeadSpace 6: 6/1");
    assert_eq!(next(&mut busy), "nothing");
}

/// In each tree and beside each job, whatever is to be left.
#[test]
fn cleaning_passes_nothing_older_and_leaves_running_jobs_alone() {
    let mut planned = [0; 2];
    let mut check = |scene: &super::drawn::Scene, _: &Answer| {
        for worth in [0, 100, u64::MAX] {
            let all = scene.tree.iter().map(|(_, slice)| slice.meta.file);
            let files = all.filter(|file| file % 3 != 0).map(|file| (file, worth)).collect();
            let plan = plan_clean(&scene.tree, &scene.policy, &scene.busy, &scene.hints, &files);
            let Plan::Compaction(compaction) = plan else { continue };
            assert_eq!(compaction.reason, CompactionReason::DeadSpace);
            let files_of = || compaction.inputs.iter().map(|(_, slice)| slice.meta.file);
            assert!(files_of().any(|file| files.contains_key(&file)), "it frees nothing");
            assert!(files_of().all(|file| !scene.busy.bars(file)));
            let is_paid = worth == u64::MAX || compaction.input_bytes() <= 100 * 9 / 3;
            assert!(compaction.inputs.len() == 1 || is_paid, "{compaction:?}");
            planned[usize::from(compaction.target > 0)] += 1;
            check_compaction(scene, &compaction);
        }
    };
    for seed in 0..1500 {
        walk(seed, &mut check);
        walk_past_damage(seed, &mut check);
    }
    assert!(planned.iter().all(|count| *count > 100), "{planned:?}");
}

/// A new file is not among those to be left.
#[test]
fn each_slice_leaves_once() {
    for worth in [0, 10_000, u64::MAX] {
        let mut model = Model::new();
        for run in 0..3 {
            model.flush((run * 100, run * 100 + 250), 20, 5);
        }
        let deep = model.slice((0, 1000), 500, 0, (1, 1));
        model.tree = model.tree.with(&[], vec![(4, deep)]).unwrap();
        model.next_seq = 1000;
        model.flush((0, 900), 40, 0);
        let files: BTreeMap<u64, u64> =
            model.tree.iter().map(|(_, slice)| (slice.meta.file, worth)).collect();
        let mut jobs = 0;
        loop {
            let (policy, busy) = (small_policy(), Busy::default());
            let hints = Hints { run_bytes: 1600, ..Hints::default() };
            let plan = plan_clean(&model.tree, &policy, &busy, &hints, &files);
            if matches!(plan, Plan::DoNothing) {
                break;
            }
            jobs += 1;
            let done = model.run(&plan, &hints);
            model.install(done);
        }
        assert!(model.tree.iter().all(|(_, slice)| !files.contains_key(&slice.meta.file)));
        assert_eq!(jobs, if worth == 0 { 5 } else { 2 }, "worth {worth}");
    }
}

fn table(number: u64, dead: u64, holders: &[(FamilyId, u64)]) -> TableUse {
    let live = holders.iter().map(|(_, bytes)| bytes).sum();
    TableUse { number, len: FILE_HEADER_LEN as u64 + live + dead, live, holders: holders.into() }
}

const LIMITS: CleaningLimits =
    CleaningLimits { dead_bytes: 1000, toll: 10, slices_max: 4, bytes_max: 1000 };

/// Pairs of a family and a file, each with what it is worth.
fn chosen(tables: &[TableUse], limits: CleaningLimits) -> Vec<(FamilyId, u64, u64)> {
    let chosen = choose_files(tables, &limits, |family, file| (family, file) == (9, 9));
    let of = |(family, files): (FamilyId, BTreeMap<u64, u64>)| {
        files.into_iter().map(move |(file, worth)| (family, file, worth))
    };
    chosen.into_iter().flat_map(of).collect()
}

#[test]
fn files_are_chosen_once_all_dead_space_is_more_than_a_buffer_and_a_share_of_what_is_alive() {
    let tables = |dead| [table(1, dead, &[(1, 90)]), table(2, 0, &[(2, 310)])];
    assert_eq!(chosen(&tables(1100), LIMITS), []);
    assert_eq!(chosen(&tables(1101), LIMITS), [(1, 1, 1101)]);
}

#[test]
fn a_file_pays_with_three_dead_bytes_for_each_that_is_written() {
    let pays = |dead, holders: &[(FamilyId, u64)]| {
        let limits = CleaningLimits { dead_bytes: 0, ..LIMITS };
        !chosen(&[table(1, dead, holders)], limits).is_empty()
    };
    assert!(pays(330, &[(1, 100)]) && !pays(329, &[(1, 100)]));
    assert!(pays(360, &[(1, 50), (2, 50)]) && !pays(359, &[(1, 50), (2, 50)]));
    // A slice that clones share is written for each of them.
    let shared = |dead: u64| TableUse { live: 100, ..table(1, dead - 100, &[(1, 100), (2, 100)]) };
    let limits = CleaningLimits { dead_bytes: 0, ..LIMITS };
    assert_eq!(shared(660).dead(), 660);
    assert_eq!(chosen(&[shared(660)], limits), [(1, 1, 330), (2, 1, 330)]);
    assert_eq!(chosen(&[shared(659)], limits), []);
    // Nothing is free, and nothing is worth nothing.
    let free = CleaningLimits { toll: 0, ..limits };
    assert_eq!(chosen(&[table(1, 0, &[(1, 0)])], free), []);
}

#[test]
fn what_pays_best_comes_first_until_enough_is_free() {
    let tables = |over: u64| {
        [
            table(1, 400, &[(1, 90)]),
            table(2, 800, &[(1, 90)]),
            table(3, 600, &[(2, 90)]),
            table(4, over, &[(3, 90_000)]),
        ]
    };
    let limits = CleaningLimits { dead_bytes: 0, ..LIMITS };
    // A quarter of 90,270 bytes may be dead.
    let of = |over: u64| chosen(&tables(22_567 - 1800 + over), limits);
    assert_eq!(of(0), []);
    assert_eq!(of(800), [(1, 2, 800)]);
    assert_eq!(of(801), [(1, 2, 800), (2, 3, 600)]);
    assert_eq!(of(1401), [(1, 1, 400), (1, 2, 800), (2, 3, 600)]);
    assert_eq!(of(5000).len(), 3, "the fourth does not pay");
}

#[test]
fn a_look_chooses_so_many_slices_and_bytes() {
    let limits = CleaningLimits { dead_bytes: 0, ..LIMITS };
    let holders: Vec<(FamilyId, u64)> = (1..=6).map(|family| (family, 10)).collect();
    let first = chosen(&[table(1, 6000, &holders)], limits);
    assert_eq!(first, [(1, 1, 1000), (2, 1, 1000), (3, 1, 1000), (4, 1, 1000)]);
    let long = [table(1, 9000, &[(1, 1200)]), table(2, 6000, &[(2, 1200)])];
    assert_eq!(chosen(&long, limits), [(1, 1, 9000)]);
}

#[test]
fn a_file_with_a_slice_that_cannot_leave_is_left_alone() {
    let limits = CleaningLimits { dead_bytes: 0, ..LIMITS };
    let tables = [table(8, 500, &[(9, 10)]), table(9, 900, &[(1, 10), (9, 10)])];
    assert_eq!(chosen(&tables, limits), [(9, 8, 500)]);
}
