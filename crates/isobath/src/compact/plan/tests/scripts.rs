//! Plans of small trees, as text: a tree, the running jobs, the request, and the plan that must
//! result.
//!
//! A slice is `file:smallest..largest`. It may state its length in MiB (`32M`, the default), its
//! share of deletes in percent (`d90`), when the oldest of them was flushed in seconds (`t60`), and
//! its sequences (`@10-19`). By default the sequences of
//! level `n` are the ten from `(9 - n) * 1000` on, so deeper levels are older.

use super::super::*;
use crate::blob::GarbageDebt;
use crate::table::{BlockHandle, OldestDelete, SliceMeta};
use crate::version::{LiveFile, ObsoleteFiles, Slice, Tree};
use std::fmt::Write;
use std::ops::Bound;
use std::sync::Arc;

fn parse_slice(level: usize, text: &str) -> Arc<Slice> {
    let mut words = text.split_whitespace();
    let (file, keys) = words.next().unwrap().split_once(':').unwrap();
    let (smallest, largest) = keys.split_once("..").unwrap_or((keys, keys));
    let age = (9 - level as u64) * 1000;
    let (mut mib, mut deletes, mut oldest_delete, mut seqs) = (32, 0, None, (age, age + 9));
    for word in words {
        if let Some(len) = word.strip_suffix('M') {
            mib = len.parse().unwrap();
        } else if let Some(percent) = word.strip_prefix('d') {
            deletes = percent.parse().unwrap();
        } else if let Some(seconds) = word.strip_prefix('t') {
            let flushed_ms = seconds.parse::<u64>().unwrap() * 1000;
            oldest_delete = Some(OldestDelete { seq: age, flushed_ms });
        } else {
            let (min, max) = word.strip_prefix('@').unwrap().split_once('-').unwrap();
            seqs = (min.parse().unwrap(), max.parse().unwrap());
        }
    }
    let file: u64 = file.parse().unwrap();
    let meta = SliceMeta {
        file,
        family: 0,
        root: BlockHandle { offset: 128, len: 64 },
        disk_bytes: mib << 20,
        raw_bytes: mib << 20,
        entries: mib * 10_000,
        deletes: mib * 100 * deletes,
        smallest: smallest.as_bytes().into(),
        largest: largest.as_bytes().into(),
        min_seq: seqs.0,
        max_seq: seqs.1,
        spans: None,
        ends: None,
        oldest_delete,
        blobs: Box::default(),
        streams: Box::default(),
    };
    Slice::new(meta, LiveFile::new(file, &ObsoleteFiles::new()), Box::default())
}

/// Lines of `level | slice, slice, ...`. Runs of level 0 are given newest first.
pub(super) fn parse_tree(text: &str) -> Tree {
    let mut added = Vec::new();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let (level, slices) = line.trim().split_once('|').unwrap();
        let level = level.trim().parse().unwrap();
        let slices: Vec<_> =
            slices.split(',').map(str::trim).filter(|text| !text.is_empty()).collect();
        for (at, slice) in slices.iter().enumerate() {
            let given = slice.contains('@');
            let age = 10_000 + (slices.len() - at) * 10;
            let seqs =
                if level == 0 && !given { format!(" @{age}-{}", age + 9) } else { String::new() };
            added.push((level, parse_slice(level, &format!("{slice}{seqs}"))));
        }
    }
    Tree::default().with(&[], added).unwrap()
}

pub(super) fn describe(plan: &Plan) -> String {
    let mut out = String::new();
    match plan {
        Plan::DoNothing => out.push_str("nothing"),
        Plan::Drop(dropped) => unreachable!("no range deletes were given: {dropped:?}"),
        Plan::Move(moves) => {
            out.push_str("move");
            for step in moves {
                write!(out, " {}:{}->{}", step.slice.meta.file, step.from, step.to).unwrap();
            }
        }
        Plan::Compaction(compaction) => {
            write!(out, "{:?} {}:", compaction.reason, compaction.target).unwrap();
            for (level, slice) in &compaction.inputs {
                write!(out, " {level}/{}", slice.meta.file).unwrap();
            }
            let keys = |keys: &[Box<[u8]>]| {
                keys.iter()
                    .map(|key| String::from_utf8_lossy(key).into_owned())
                    .collect::<Vec<_>>()
                    .join(" ")
            };
            let notes = [("fences", keys(&compaction.fences)), ("cuts", keys(&compaction.cuts))];
            for (name, keys) in notes.iter().filter(|(_, keys)| !keys.is_empty()) {
                write!(out, " {name} {keys}").unwrap();
            }
            if !compaction.is_bottom() {
                out.push_str(" above");
                for slice in compaction.beneath.iter().flatten() {
                    write!(out, " {}", slice.meta.file).unwrap();
                }
            }
        }
    }
    out
}

pub(super) fn hints() -> Hints {
    Hints { run_bytes: 32 << 20, oldest_reader: 20_000, ..Hints::default() }
}

#[track_caller]
fn expect(tree: &str, plan_wanted: &str) {
    let tree = parse_tree(tree);
    let made = describe(&plan(&tree, &Policy::default(), &Busy::default(), &hints()));
    assert_eq!(made, plan_wanted);
}

#[track_caller]
fn expect_idle(tree: &str, oldest_reader: u64, plan_wanted: &str) {
    let hints = Hints { oldest_reader, is_idle: true, ..hints() };
    let made = plan(&parse_tree(tree), &Policy::default(), &Busy::default(), &hints);
    assert_eq!(describe(&made), plan_wanted);
}

const EIGHT_RUNS: &str =
    "0 | 18:a..z, 17:a..z, 16:a..z, 15:a..z, 14:a..z, 13:a..z, 12:a..z, 11:a..z";

#[test]
fn an_empty_tree_needs_nothing() {
    expect("", "nothing");
}

#[test]
fn runs_wait_for_company_unless_nothing_is_in_their_way() {
    expect("0 | 3:a..z, 2:a..z\n6 | 1:a..z", "nothing");
    expect("0 | 2:n..z\n6 | 1:a..m", "move 2:0->6");
    expect("0 | 2:n..z\n5 | 9:n..o\n6 | 1:a..m", "nothing");
    expect("0 | 2:n..z\n4 | 9:a..b\n6 | 1:n..q", "move 2:0->5");
}

#[test]
fn ascending_runs_go_to_the_last_level_together_however_many() {
    expect("0 | 4:x..z, 3:u..w, 2:r..t\n6 | 1:a..q", "move 2:0->6 3:0->6 4:0->6");
}

#[test]
fn runs_without_compression_are_rewritten_where_they_could_be_moved() {
    let ascending = "0 | 18:r, 17:q, 16:p, 15:o, 14:n, 13:m, 12:l, 11:k\n6 | 1:a..b";
    let policy = Policy { plain_depths: 1, ..Policy::default() };
    let made = |tree: &str, policy: &Policy| {
        describe(&plan(&parse_tree(tree), policy, &Busy::default(), &hints()))
    };
    assert!(made(ascending, &Policy::default()).starts_with("move 11:0->6 12:0->6"));
    assert!(made(ascending, &policy).starts_with("Runs 6: 0/18 0/17"));
    assert_eq!(made("0 | 11:k\n6 | 1:a..b", &policy), "nothing");
    let two_plain = Policy { plain_depths: 2, ..Policy::default() };
    assert_eq!(made("0 | 11:k\n5 | 2:c..d 90M\n6 | 1:a..z 3000M", &two_plain), "move 11:0->5");
    assert_eq!(made("0 | 11:k\n6 | 1:a..b", &two_plain), "nothing");
}

#[test]
fn a_run_stays_above_an_older_run_that_stays() {
    expect("0 | 4:r..t, 3:s..z, 2:a..s\n6 | 1:a..c", "nothing");
    expect("0 | 4:r..t, 3:u..z, 2:a..s\n6 | 1:a..c", "move 3:0->6");
}

#[test]
fn a_short_run_is_not_moved_alone_but_goes_down_with_others() {
    expect("0 | 3:c..d 1M\n6 | 1:a..b", "nothing");
    expect(
        "0 | 9:q 1M, 8:p 1M, 7:o 1M, 6:n 1M, 5:m 1M, 4:l 1M, 3:k 1M, 2:j 1M\n6 | 1:a..b",
        "Runs 6: 0/9 0/8 0/7 0/6 0/5 0/4 0/3 0/2",
    );
}

#[test]
fn enough_runs_are_compacted_all_at_once_into_the_last_level_of_a_small_tree() {
    expect(
        &format!("{EIGHT_RUNS}\n6 | 1:c..d, 2:e..f"),
        "Runs 6: 0/18 0/17 0/16 0/15 0/14 0/13 0/12 0/11 6/1 6/2 cuts e",
    );
}

#[test]
fn a_larger_tree_gets_a_level_between() {
    expect(
        &format!("{EIGHT_RUNS}\n5 | 9:a\n6 | 1:a..d 1024M, 2:e..f 1024M"),
        "Runs 5: 0/18 0/17 0/16 0/15 0/14 0/13 0/12 0/11 5/9 above 1 2",
    );
}

#[test]
fn slices_that_no_run_touches_are_fenced_off() {
    expect(
        "0 | 18:a..c, 17:a..c, 16:a..c, 15:x..z, 14:x..z, 13:x..z, 12:a..c, 11:a..c\n6 | 1:b, 2:g..h, 3:y",
        "Runs 6: 0/18 0/17 0/16 0/15 0/14 0/13 0/12 0/11 6/1 6/3 fences g cuts y",
    );
}

#[test]
fn a_full_level_gives_the_slice_that_overlaps_least() {
    let below = "6 | 1:a..b 900M, 2:c..d 300M, 3:e..f 900M";
    expect(&format!("5 | 7:a..b 350M, 8:c..d 350M, 9:e..f 350M\n{below}"), "Size 6: 5/8 6/2");
    expect(&format!("5 | 7:a..b 20M, 8:c..d 20M, 9:e..f 20M\n{below}"), "nothing");
}

#[test]
fn what_overlaps_nothing_is_moved_as_far_as_the_level_is_too_full() {
    let below = "6 | 1:a..b 3000M";
    expect(&format!("5 | 7:c..d 600M, 8:e..f 600M, 9:g..h 600M\n{below}"), "move 7:5->6 8:5->6");
}

#[test]
fn neighbours_that_cost_little_come_along() {
    expect(
        "5 | 6:a..b 900M, 7:c..d 16M, 8:e..f 16M, 9:g..h 900M\n6 | 1:a..b 3000M, 2:c..f 32M, 3:g..h 3000M",
        "Size 6: 5/7 5/8 6/2",
    );
}

#[test]
fn deletes_make_a_slice_weigh_more() {
    let below = "6 | 1:a..b 900M, 2:c..d 900M, 3:e..f 900M";
    expect(&format!("5 | 7:a..b 250M, 8:c..d 240M d90, 9:e..f 250M\n{below}"), "Size 6: 5/8 6/2");
}

#[test]
fn slices_full_of_deletes_go_down_once_there_is_time() {
    let tree = "5 | 8:c..d 8M d90, 9:g 8M\n6 | 1:a..b 900M, 2:c..d 900M, 3:e..f 900M";
    expect(tree, "nothing");
    expect_idle(tree, 20_000, "Deletes 6: 5/8 6/2");
    expect_idle("0 | 9:c..d 8M d90\n6 | 2:c..d 90M", 20_000, "Deletes 6: 0/9 6/2");
}

#[test]
fn the_last_level_is_rewritten_only_if_that_frees_it_of_deletes() {
    let tree = "6 | 1:a..b d60 @5-9, 2:c..d d70 @5-9, 3:e..f d10 @5-9";
    expect_idle(tree, 10, "Deletes 6: 6/1 6/2");
    expect_idle(tree, 9, "nothing");
}

#[test]
fn without_writers_fewer_runs_are_enough() {
    let tree = "0 | 14:a..z, 13:a..z, 12:a..z, 11:a..z\n6 | 1:c..d, 2:e..f";
    expect(tree, "nothing");
    expect_idle(
        tree,
        20_000,
        "Runs 6: 0/14 0/13 0/12 0/11 6/1 6/2 cuts e".replace("Runs", "Idle").as_str(),
    );
    expect_idle("0 | 12:a..z 1M, 11:a..z 1M\n6 | 1:c..d", 20_000, "nothing");
}

#[test]
fn levels_left_over_from_a_larger_tree_are_emptied_once_there_is_time() {
    let tree = "3 | 5:a..c\n6 | 1:a..b, 2:c..d";
    expect(tree, "nothing");
    expect_idle(tree, 20_000, "Idle 6: 3/5 6/1 6/2");
}

/// Plans, marks the plan as running, and plans again.
fn plans_while_running(tree: &str, count: usize) -> Vec<String> {
    let (tree, mut busy) = (parse_tree(tree), Busy::default());
    let mut made = Vec::new();
    for _ in 0..count {
        let next = plan(&tree, &Policy::default(), &busy, &hints());
        made.push(describe(&next));
        busy.begin(&next);
    }
    made
}

#[test]
fn jobs_that_run_together_share_no_slice_and_no_range() {
    let tree = "5 | 6:a..b 700M, 7:c..d 700M, 8:e..f 700M
                6 | 1:a..b 2000M, 2:c..d 2000M, 3:e..f 2000M";
    let made = plans_while_running(tree, 3);
    assert_eq!(made, ["Size 6: 5/6 6/1", "Size 6: 5/7 6/2", "nothing"]);
}

#[test]
fn new_runs_are_compacted_among_themselves_while_the_base_is_busy() {
    let runs: Vec<_> = (11..27).rev().map(|file| format!("{file}:a..z")).collect();
    let (newer, older) = runs.split_at(8);
    let tree = format!("0 | {}\n6 | 1:a..z", older.join(","));
    let first = plan(&parse_tree(&tree), &Policy::default(), &Busy::default(), &hints());
    assert!(describe(&first).starts_with("Runs 6:"));
    let mut busy = Busy::default();
    let id = busy.begin(&first);
    let tree = parse_tree(&format!("0 | {},{}\n6 | 1:a..z", newer.join(","), older.join(",")));
    let second = plan(&tree, &Policy::default(), &busy, &hints());
    let expected =
        "RunsInPlace 0: 0/26 0/25 0/24 0/23 0/22 0/21 0/20 0/19 above 11 12 13 14 15 16 17 18 1";
    assert_eq!(describe(&second), expected);
    busy.end(id);
    let third = plan(&tree, &Policy::default(), &busy, &hints());
    assert!(describe(&third).starts_with("Runs 6:"));
}

#[test]
fn a_run_does_not_slip_below_what_a_running_job_will_put_there() {
    let tree = parse_tree("0 | 12:c..m, 11:k..z\n6 | 1:a..b");
    let mut busy = Busy::default();
    let compaction = plan_manual(
        &parse_tree("0 | 11:k..z\n6 | 1:k..l"),
        &Policy::default(),
        &busy,
        &hints(),
        &everything(),
    );
    let ManualPlan::Do(compaction) = compaction else { panic!("{compaction:?}") };
    busy.begin(&compaction);
    assert_eq!(describe(&plan(&tree, &Policy::default(), &busy, &hints())), "nothing");
}

fn everything() -> ManualRange {
    ManualRange { upto: 20_000, ..ManualRange::everything() }
}

#[track_caller]
fn expect_manual(tree: &str, range: &ManualRange, wanted: &str) {
    let hints = hints();
    let made =
        match plan_manual(&parse_tree(tree), &Policy::default(), &Busy::default(), &hints, range) {
            ManualPlan::Do(plan) => describe(&plan),
            ManualPlan::Wait => "wait".to_owned(),
            ManualPlan::Done => "done".to_owned(),
        };
    assert_eq!(made, wanted);
}

#[test]
fn a_request_takes_everything_down_level_by_level() {
    expect_manual(
        "0 | 9:a..z, 8:a..z\n5 | 5:a..c\n6 | 1:b",
        &everything(),
        "Manual 5: 0/9 0/8 5/5 above 1",
    );
    expect_manual(
        "5 | 5:a..c, 6:d..e\n6 | 1:b, 2:c..f",
        &everything(),
        "Manual 6: 5/5 5/6 6/1 6/2 cuts c",
    );
    expect_manual("5 | 5:a..c, 6:d..e\n6 | 1:k..l", &everything(), "move 5:5->6 6:5->6");
    expect_manual("6 | 1:a..c, 2:d..e d1", &everything(), "Manual 6: 6/2");
    expect_manual("6 | 1:a..c, 2:d..e", &everything(), "done");
}

#[test]
fn a_request_for_a_range_takes_only_what_may_hold_it_and_what_lies_under_that() {
    let range = |lower: &str, upper: &str| ManualRange {
        lower: Bound::Included(lower.as_bytes().into()),
        upper: Bound::Excluded(upper.as_bytes().into()),
        upto: 20_000,
        judged_from: None,
    };
    let tree = "0 | 9:a..f 1M, 8:m..n 1M, 7:e..g 1M\n6 | 1:b, 2:f, 3:m";
    expect_manual(tree, &range("a", "c"), "Manual 6: 0/9 0/7 6/1 6/2");
    expect_manual(tree, &range("k", "m"), "done");
    expect_manual(tree, &range("k", "n"), "Manual 6: 0/8 6/3");
}

#[test]
fn a_request_leaves_newer_writes_alone() {
    let range = ManualRange { upto: 10_000, ..everything() };
    expect_manual("0 | 9:a..z 1M @10000-10020\n6 | 1:b @1-3", &range, "done");
    expect_manual("0 | 9:a..z 1M @9999-10020\n6 | 1:b @1-3", &range, "Manual 6: 0/9 6/1");
}

#[test]
fn debts_grow_with_what_is_left_to_compact() {
    let of = |tree: &str| {
        debts(
            &parse_tree(tree),
            &Policy::default(),
            &Busy::default(),
            &hints(),
            GarbageDebt::default(),
        )
    };
    assert_eq!(of("6 | 1:a..b 900M").total(), 0);
    let one = of("0 | 9:a..z\n6 | 1:a..b 900M");
    let two = of("0 | 9:a..z, 8:a..z\n6 | 1:a..b 900M");
    assert!(two.total() > one.total() && one.total() > 32 << 20);
    let full = of("5 | 5:a..b 900M\n6 | 1:a..b 2000M");
    assert!(full.pending_bytes[5] > 0 && full.pending_bytes[0] == 0);
}

#[test]
fn debts_pass_from_the_plan_to_the_job_and_fall_while_it_reads() {
    let of = |tree: &str, busy: &Busy| {
        let debts =
            debts(&parse_tree(tree), &Policy::default(), busy, &hints(), GarbageDebt::default());
        (debts.pending_bytes.iter().sum::<u64>() >> 20, debts.unread_bytes >> 20)
    };
    let (mut busy, tree) = (Busy::default(), format!("{EIGHT_RUNS}\n6 | 1:a..z 400M"));
    assert_eq!(of(&tree, &busy), (8 * 32 + 400, 0));
    let planned = plan(&parse_tree(&tree), &Policy::default(), &busy, &hints());
    let job = busy.begin(&planned);
    assert_eq!(of(&tree, &busy), (0, 656));
    busy.note_read(job, 600 << 20);
    assert_eq!(of(&tree, &busy), (0, 56));
    // A run that comes now will be compacted with the runs that the job leaves.
    let with_one_more = tree.replace("0 |", "0 | 19:a..z,");
    assert_eq!(of(&with_one_more, &busy), (32 + 656 / 8, 56));
    busy.note_read(job, 600 << 20);
    assert_eq!(of(&with_one_more, &busy), (32 + 656 / 8, 0));
    busy.end(job);
    assert_eq!(of("0 | 19:a..z\n6 | 1:a..z 656M", &busy), (32 + 656 / 8, 0));
}

#[test]
fn what_a_level_holds_too_much_is_a_debt_of_a_job_or_of_the_level_never_of_both() {
    let tree =
        "5 | 7:a..b 350M, 8:c..d 350M, 9:e..f 350M\n6 | 1:a..b 900M, 2:c..d 300M, 3:e..f 900M";
    let of = |busy: &Busy| {
        debts(&parse_tree(tree), &Policy::default(), busy, &hints(), GarbageDebt::default())
    };
    let mut busy = Busy::default();
    let before = of(&busy).pending_bytes[5];
    let planned = plan(&parse_tree(tree), &Policy::default(), &busy, &hints());
    assert_eq!(describe(&planned), "Size 6: 5/8 6/2");
    busy.begin(&planned);
    let after = of(&busy);
    assert_eq!(after.unread_bytes, 650 << 20);
    assert!(after.pending_bytes[5] < before && after.total() < before + (200 << 20));
}

/// Marks the slices of these files as ones that a job could not read.
fn with_damage(tree: &Tree, files: &[u64]) -> Busy {
    let mut busy = Busy::default();
    let job = busy.begin(&Plan::DoNothing);
    for (_, slice) in tree.iter().filter(|(_, slice)| files.contains(&slice.meta.file)) {
        busy.note_damaged(job, slice.meta.file, slice.extent().owned());
    }
    busy.end(job);
    busy
}

#[test]
fn what_cannot_be_read_stays_with_what_lies_over_it_and_the_rest_goes_past_it() {
    let expect = |tree: &str, damaged: &[u64], wanted: &str| {
        let tree = parse_tree(tree);
        let made = plan(&tree, &Policy::default(), &with_damage(&tree, damaged), &hints());
        assert_eq!(describe(&made), wanted);
    };
    let in_place = "RunsInPlace 0: 0/18 0/17 0/16 0/15 0/14 0/13 0/12 0/11 above 1 2";
    expect(&format!("{EIGHT_RUNS}\n6 | 1:a..m, 2:n..z"), &[1], in_place);
    let apart = "0 | 18:a..c, 17:a..c, 16:a..c, 15:a..c, 14:x..z, 13:x..z, 12:x..z, 11:x..z";
    let all = "Runs 6: 0/18 0/17 0/16 0/15 0/14 0/13 0/12 0/11 6/1 6/3 fences m cuts x";
    expect(&format!("{apart}\n6 | 1:a..c, 2:m..n, 3:x..z"), &[2], all);
    let more = apart.replace("0 |", "0 | 22:x..z, 21:x..z, 20:x..z, 19:x..z,");
    let right = "Runs 6: 0/22 0/21 0/20 0/19 0/14 0/13 0/12 0/11 6/3";
    expect(&format!("{more}\n6 | 1:a..c, 2:m..n, 3:x..z"), &[1], right);
    // The oldest run cannot be read, and the others lie over it.
    let newer = "RunsInPlace 0: 0/18 0/17 0/16 0/15 0/14 0/13 0/12 above 11 1";
    expect(
        &format!("0 | 19:a..z, {}\n6 | 1:a..z", &EIGHT_RUNS[4..]),
        &[11],
        &newer.replace("0: ", "0: 0/19 "),
    );
    expect(&format!("{EIGHT_RUNS}\n6 | 1:a..z"), &[11], "nothing");
    let level =
        "5 | 6:a..b 700M, 7:c..d 700M, 8:e..f 700M\n6 | 1:a..b 2000M, 2:c..d 2000M, 3:e..f 2000M";
    expect(level, &[1], "Size 6: 5/7 6/2");
    expect(level, &[6], "Size 6: 5/7 6/2");
    expect(level, &[6, 2], "nothing");
    expect("0 | 2:n..z\n6 | 1:a..m", &[2], "nothing");
}

#[test]
fn a_request_reads_what_could_not_be_read_before() {
    let tree = parse_tree("0 | 11:a..z\n6 | 1:a..m, 2:n..z");
    let busy = with_damage(&tree, &[1, 11]);
    let made = plan_manual(&tree, &Policy::default(), &busy, &hints(), &everything());
    let ManualPlan::Do(made) = made else { panic!("{made:?}") };
    assert_eq!(describe(&made), "Manual 6: 0/11 6/1 6/2");
}

#[test]
fn what_damage_holds_up_is_no_debt() {
    let of = |tree: &str, damaged: &[u64]| {
        let tree = parse_tree(tree);
        let (policy, busy) = (Policy::default(), with_damage(&tree, damaged));
        debts(&tree, &policy, &busy, &hints(), GarbageDebt::default()).pending_bytes
    };
    let runs = format!("{EIGHT_RUNS}\n6 | 1:a..m, 2:n..z");
    assert!(of(&runs, &[])[0] > 0);
    assert_eq!(of(&runs, &[1]).iter().sum::<u64>(), 0);
    assert_eq!(of(&runs, &[11]).iter().sum::<u64>(), 0);
    assert_eq!(of(&runs, &[18])[0] * 8, of(&runs, &[])[0] * 7, "one run alone is held up");
    let level = "5 | 6:a..b 900M, 7:c..d 100M\n6 | 1:a..b 2000M, 2:c..d 2000M";
    assert!(of(level, &[])[5] > 0);
    assert_eq!((of(level, &[1])[5], of(level, &[6])[5]), (0, 0));
    assert!(of(level, &[2])[5] > 0);
}

/// So many runs of equal length over a slice that cannot be read.
fn runs_over_damage(count: u64) -> Tree {
    let runs: Vec<_> = (0..count).rev().map(|nth| format!("{}:a..z", 100 + nth)).collect();
    parse_tree(&format!("0 | {}\n6 | 1:a..z 320M", runs.join(",")))
}

#[test]
fn runs_that_damage_holds_up_are_a_debt_when_they_are_far_too_many() {
    let policy = Policy::default();
    let of =
        |tree: &Tree, busy: &Busy| debts(tree, &policy, busy, &hints(), GarbageDebt::default());
    for (count, batches) in [(8, 0..1), (12, 0..1), (16, 0..1), (20, 0..1), (100, 8..13)] {
        let tree = runs_over_damage(count);
        let mut busy = with_damage(&tree, &[1]);
        let planned = plan(&tree, &policy, &busy, &hints());
        let before = of(&tree, &busy);
        let job = busy.begin(&planned);
        let during = of(&tree, &busy);
        for debts in [&before, &during] {
            assert!(batches.contains(&(debts.total() / debts.batch_debt)), "{count}: {debts:?}");
            assert!(count > 16 || debts.total() == 0, "{count}: {debts:?}");
            assert!(count <= 16 || debts.total() > 0, "{count}: {debts:?}");
        }
        busy.note_read(job, u64::MAX);
        assert_eq!(of(&tree, &busy).total(), 0, "{count}: one run is left");
    }
}

#[test]
fn runs_that_no_compaction_in_place_can_reach_are_no_debt() {
    let (tree, policy) = (runs_over_damage(60), Policy::default());
    let of = |damaged: &[u64]| {
        let busy = with_damage(&tree, damaged);
        let planned = describe(&plan(&tree, &policy, &busy, &hints()));
        let debts = debts(&tree, &policy, &busy, &hints(), GarbageDebt::default());
        (debts.total() / debts.batch_debt, planned)
    };
    let all: Vec<u64> = (100..160).collect();
    assert_eq!(of(&all), (0, "nothing".to_owned()), "all are damaged");
    let (debt, planned) = of(&[1, 129]);
    assert!(planned.starts_with("RunsInPlace 0: 0/159"), "{planned}");
    assert_eq!(debt, (30 - 16) / 8, "of the newer ones alone");
    assert_eq!(of(&[1]).0, (60 - 16) / 8);
}

#[test]
fn a_compaction_in_place_counts_beside_damage_that_has_nothing_to_do_with_it() {
    let tree = runs_over_damage(8);
    let mut busy = with_damage(&tree, &[1]);
    let job = busy.begin(&plan(&tree, &Policy::default(), &busy, &hints()));
    let unread = |tree: &Tree, busy: &Busy| {
        let garbage = GarbageDebt::default();
        debts(tree, &Policy::default(), busy, &hints(), garbage).unread_bytes >> 20
    };
    assert_eq!(unread(&tree, &busy), 0);
    busy.forget_damaged(|_, _| false);
    assert_eq!(unread(&tree, &busy), 8 * 32);
    let with_another = tree.with(&[], vec![(6, parse_slice(6, "2:zz"))]).unwrap();
    busy.note_damaged(job, 2, parse_slice(6, "2:zz").extent().owned());
    assert_eq!(unread(&with_another, &busy), 8 * 32);
}

#[test]
fn runs_that_damage_holds_up_send_no_single_run_to_the_base() {
    let of = |free: u64, held_up: &str, is_idle: bool| {
        let free: Vec<_> = (0..free).rev().map(|nth| format!("{}:x..z 1M", 30 + nth)).collect();
        let tree = format!("0 | {}, {held_up}\n6 | 1:a..m, 3:x..z", free.join(","));
        let tree = parse_tree(&tree);
        let hints = Hints { is_idle, ..hints() };
        describe(&plan(&tree, &Policy::default(), &with_damage(&tree, &[1]), &hints))
    };
    let few = "27:a..m 1M, 26:a..m 1M, 25:a..m 1M, 24:a..m 4M, 23:a..m 5M, 22:a..m 6M, 21:a..m 7M";
    assert_eq!(of(1, few, false), "nothing");
    assert_eq!(of(1, few, true), "nothing");
    assert_eq!(of(7, few, false), "nothing");
    assert_eq!(of(8, few, false), "Runs 6: 0/37 0/36 0/35 0/34 0/33 0/32 0/31 0/30 6/3");
    let due = of(1, &format!("28:a..m 1M, {few}"), false);
    assert!(due.starts_with("RunsInPlace 0: 0/30 0/28 0/27 0/26 0/25 0/24"), "{due}");
}
