//! Short neighbours of the last level: which become longer, and what that costs.

use super::super::fixtures::{ENTRY_BYTES, Model, small_policy};
use super::super::{Hints, Plan, Policy, debts, plan, plan_short};
use super::scripts::{describe, hints, parse_tree};
use crate::blob::GarbageDebt;
use crate::engine::Busy;
use crate::table::BlobShare;
use crate::version::fixtures::meta;
use crate::version::{LiveFile, ObsoleteFiles, Slice, Tree};

/// A last level of a long slice, and then slices of so many MiB.
fn level(lens: &[u64]) -> String {
    let mut text = "6 | 1:a..b 512M".to_owned();
    for (at, len) in lens.iter().enumerate() {
        text.push_str(&format!(", {}:{} {len}M", at + 2, char::from(b'c' + at as u8)));
    }
    text
}

#[track_caller]
fn expect(lens: &[u64], wanted: &str) {
    let made =
        plan_short(&parse_tree(&level(lens)), &Policy::default(), &Busy::default(), &hints());
    assert_eq!(describe(&made), wanted);
}

const EIGHT: &str = "ShortSlices 6: 6/2 6/3 6/4 6/5 6/6 6/7 6/8 6/9";

#[test]
fn eight_short_neighbours_become_a_longer_slice() {
    expect(&[1; 8], EIGHT);
    expect(&[7; 8], EIGHT);
    expect(&[8; 8], "nothing");
    expect(&[1; 7], "nothing");
    expect(&[1, 1, 1, 1, 8, 1, 1, 1, 1], "nothing");
    expect(&[9, 1, 1, 1, 1, 1, 1, 1, 1], "ShortSlices 6: 6/3 6/4 6/5 6/6 6/7 6/8 6/9 6/10");
}

#[test]
fn a_slice_is_left_out_that_is_longer_than_the_others_together() {
    expect(&[7, 1, 1, 1, 1, 1, 1, 1], EIGHT);
    expect(&[7, 1, 1, 1, 1, 1, 1], "nothing");
    let others = "ShortSlices 6: 6/3 6/4 6/5 6/6 6/7 6/8 6/9 6/10";
    expect(&[7, 1, 1, 1, 1, 1, 0, 0, 0], others);
}

#[test]
fn what_a_job_reads_and_what_cannot_be_read_is_passed_over() {
    let tree = parse_tree(&level(&[1; 12]));
    let mut busy = Busy::default();
    let next = |busy: &Busy| plan_short(&tree, &Policy::default(), busy, &hints());
    let (_, damaged) = tree.iter().find(|(_, slice)| slice.meta.file == 5).unwrap();
    busy.note_damaged(busy.next_id(), 5, damaged.extent().owned());
    let first = next(&busy);
    assert_eq!(describe(&first), "ShortSlices 6: 6/6 6/7 6/8 6/9 6/10 6/11 6/12 6/13");
    busy.begin(&first);
    assert_eq!(describe(&next(&busy)), "nothing");
}

#[test]
fn no_more_is_taken_than_one_job_should_read() {
    let policy = Policy { job_bytes_max: 3 << 20, target_file_bytes: 5 << 20, ..Policy::default() };
    let made = |policy: &Policy| {
        describe(&plan_short(&parse_tree(&level(&[1; 12])), policy, &Busy::default(), &hints()))
    };
    assert!(made(&Policy::default()).ends_with(" 6/12 6/13"));
    // Each has 10,000 keys.
    let few_keys = |output_keys_min| Policy { output_keys_min, ..Policy::default() };
    assert_eq!(made(&few_keys(40_000)), "nothing");
    assert!(made(&few_keys(40_004)).ends_with(" 6/12 6/13"));
    assert!(made(&policy).ends_with(" 6/10 6/11"), "{}", made(&policy));
}

#[test]
fn values_that_lie_apart_are_neither_read_nor_do_they_end_an_output() {
    let own = |number| LiveFile::new(number, &ObsoleteFiles::new());
    let made = |apart: u64| {
        let slice = |file: u64, keys: (&str, &str), mib: u64, bytes: u64| {
            let mut meta = meta(0, file, keys.0, keys.1, (1, 2));
            meta.disk_bytes = mib << 20;
            meta.blobs = [BlobShare { file: 100 + file, values: 1, bytes }].into();
            (6, Slice::new(meta, own(file), [own(100 + file)].into()))
        };
        let short = (2..10).map(|file| {
            let key = char::from(b'a' + file as u8).to_string();
            slice(file, (&key, &key), 1, apart)
        });
        let slices = [slice(1, ("a", "b"), 512, 0)].into_iter().chain(short).collect();
        let tree = Tree::default().with(&[], slices).unwrap();
        describe(&plan_short(&tree, &Policy::default(), &Busy::default(), &hints()))
    };
    assert_eq!(made(32 << 20), EIGHT);
    assert_eq!(made(33 << 20), "nothing", "eight of them are more than one output may have");
}

#[test]
fn what_is_not_due_is_no_debt_while_it_runs() {
    let (tree, mut busy) = (parse_tree(&level(&[1; 8])), Busy::default());
    let of = |busy: &Busy| {
        debts(&tree, &Policy::default(), busy, &hints(), GarbageDebt::default()).total()
    };
    let before = of(&busy);
    busy.begin(&plan_short(&tree, &Policy::default(), &busy, &hints()));
    assert_eq!(of(&busy), before);
}

/// Ascending keys, in runs that are too short to be moved.
#[test]
fn ascending_keys_in_short_runs_come_to_slices_of_the_usual_length_for_few_passes() {
    const RUN: u64 = 128;
    let (mut model, policy) = (Model::new(), small_policy());
    let hints = Hints { run_bytes: RUN * ENTRY_BYTES, oldest_reader: u64::MAX, ..Hints::default() };
    let (mut read, mut most) = (0, 0);
    for round in 0..4000 {
        model.flush((round * RUN, round * RUN + RUN - 1), RUN, 0);
        for jobs in 0.. {
            assert!(jobs < 20, "no end to it");
            let mut next = plan(&model.tree, &policy, &Busy::default(), &hints);
            if matches!(next, Plan::DoNothing) {
                next = plan_short(&model.tree, &policy, &Busy::default(), &hints);
            }
            if matches!(next, Plan::DoNothing) {
                break;
            }
            let done = model.run(&next, &hints);
            read += done.work.entries_in;
            model.install(done);
        }
        most = most.max(model.tree.iter().count());
    }
    let usual = 4000 * RUN * ENTRY_BYTES / policy.target_file_bytes;
    let passes = read as f64 / (4000 * RUN) as f64;
    assert!(most as u64 <= 2 * usual, "{most} slices, where {usual} are usual");
    assert!(passes <= 3.5, "{passes} passes");
}
