//! What the size of runs does to the shape of a tree: a tree that long runs have filled, and then
//! short ones.

use super::super::fixtures::{ENTRY_BYTES, Model};
use super::super::shape::Shape;
use super::super::{Debts, Hints, Plan, Policy, debts, plan, run_bytes_after};
use super::scripts::parse_tree;
use crate::blob::GarbageDebt;
use crate::engine::Busy;
use crate::version::Tree;

const KEYS: u64 = 1 << 40;
const MIB: u64 = 1 << 20;

fn debts_of(tree: &Tree, policy: &Policy, run_bytes: u64) -> Debts {
    let hints = Hints { run_bytes, ..Hints::default() };
    debts(tree, policy, &Busy::default(), &hints, GarbageDebt::default())
}

fn batches(debts: &Debts) -> f64 {
    debts.total() as f64 / debts.batch_debt as f64
}

fn after(flushed: u64, tree: &Tree, policy: &Policy, run_bytes: u64) -> u64 {
    let hints = Hints { run_bytes, ..Hints::default() };
    run_bytes_after(flushed, tree, policy, &Busy::default(), &hints)
}

#[test]
fn the_size_of_runs_is_a_mean_that_rises_faster_than_it_falls() {
    let (tree, policy) = (Tree::default(), Policy::default());
    let of = |flushed, before| after(flushed, &tree, &policy, before);
    assert_eq!(of(1600, 800), 1000);
    assert_eq!(of(800, 800), 800);
    assert_eq!(of(0, 800), 750);
    assert_eq!((of(799, 800), of(801, 800), of(0, 1)), (799, 800, 1));
    let usual = policy.base_bytes / 8;
    assert_eq!(of(0, 0), usual - usual / 16, "nothing was known");
    assert_eq!(of(5 * usual, 0), 2 * usual);
    assert_eq!(of(u64::MAX, u64::MAX), u64::MAX);
    let odd = Policy { l0_trigger_runs: 0, base_bytes: 0, ..policy };
    assert_eq!(after(0, &tree, &odd, 0), 1);
}

#[test]
fn short_runs_make_no_debt_of_levels_that_long_ones_have_filled() {
    let policy = Policy::default();
    for (name, tree) in [
        ("2 GB", "0 | 9:a..z 1M\n5 | 7:a..m 330M, 8:n..z 330M\n6 | 1:a..z 2000M"),
        ("5 GB", "0 | 9:a..z 1M\n5 | 7:a..m 520M, 8:n..z 520M\n6 | 1:a..z 5000M"),
        (
            "18 GB",
            "0 | 9:a..z 1M\n4 | 5:a..m 480M, 6:n..z 480M\n5 | 7:a..m 2000M, 8:n..z 2000M
             6 | 1:a..z 18000M",
        ),
    ] {
        let tree = parse_tree(tree);
        for before in [0, 60 * MIB] {
            let mut run_bytes = before;
            for nth in 0..500 {
                run_bytes = after(128 << 10, &tree, &policy, run_bytes);
                let debts = debts_of(&tree, &policy, run_bytes);
                assert!(batches(&debts) < 0.7, "{name}, run {nth} from {before}: {debts:?}");
            }
            assert!(run_bytes > MIB, "{name}: it falls no further while the levels are so full");
        }
    }
}

/// Levels are full nearly always, so that no step is ever free.
#[test]
fn the_size_of_runs_falls_also_where_many_levels_are_full() {
    for batches in [100, 400, 600, 1024, 1500] {
        let (policy, known) = (Policy::default(), 32 * MIB);
        let batch = policy.l0_trigger_runs as u64 * known;
        let largest = batches * batch;
        let last = format!("6 | 1:a..z {}M", largest / MIB);
        let hints = Hints { run_bytes: known, ..Hints::default() };
        let shape = Shape::of(&parse_tree(&last), &policy, &hints);
        let middle = (shape.base..shape.bottom).map(|level| {
            let half = shape.capacity(level) / 2 / MIB;
            format!("{level} | {level}0:a..m {half}M, {level}1:n..z {half}M\n")
        });
        let tree = parse_tree(&(middle.collect::<String>() + &last));
        let fallen = after(128 << 10, &tree, &policy, known);
        assert!(fallen < known, "{batches} batches");
        let of = debts_of(&tree, &policy, fallen);
        assert!(self::batches(&of) < 0.7, "{batches}: {of:?}");
    }
}

#[test]
fn a_tree_whose_runs_are_not_known_yet_is_taken_for_one_that_is_in_shape() {
    let policy = Policy::default();
    let batch = |tree: &str| Shape::of(&parse_tree(tree), &policy, &Hints::default()).batch_bytes;
    let long = "4 | 5:a..m 480M, 6:n..z 480M\n5 | 7:a..m 2000M, 8:n..z 2000M\n6 | 1:a..z 18000M";
    assert_eq!(batch(long), 512 * MIB);
    assert_eq!(batch(&format!("0 | 9:a..z 1M\n{long}")), 512 * MIB, "whatever level 0 holds");
    assert_eq!(batch(&long.replace("480M", "200M").replace("2000M", "1000M")), 256 * MIB);
    assert_eq!(batch("0 | 9:a..z 1M\n6 | 1:a..z 300M"), 256 * MIB);
    let far_too_full = "5 | 7:a..m 9000M, 8:n..z 8000M\n6 | 1:a..z 18000M";
    assert_eq!(batch(far_too_full), 256 * MIB, "no batch is large enough for it");
}

/// A tree that runs of so many entries have filled, each compacted at once, and what is known of
/// the size of its runs.
fn loaded(policy: &Policy, run_entries: u64, runs: u64) -> (Model, u64) {
    let (mut model, mut run_bytes) = (Model::new(), 0);
    for _ in 0..runs {
        model.flush((0, KEYS - 1), run_entries, 0);
        run_bytes = after(run_entries * ENTRY_BYTES, &model.tree, policy, run_bytes);
        while compact_once(&mut model, policy, run_bytes) > 0 {}
    }
    (model, run_bytes)
}

/// Returns how many entries the job has read, and at least 1; 0 if there is none.
fn compact_once(model: &mut Model, policy: &Policy, run_bytes: u64) -> u64 {
    let hints = Hints { run_bytes, ..Hints::default() };
    let planned = plan(&model.tree, policy, &Busy::default(), &hints);
    if matches!(planned, Plan::DoNothing) {
        return 0;
    }
    let done = model.run(&planned, &hints);
    let read = done.work.entries_in.max(1);
    model.install(done);
    read
}

/// Level by level the tree becomes one that is good for short runs, without a debt that would slow
/// writers, and then they cost little.
#[test]
fn a_tree_that_was_filled_by_long_runs_comes_into_shape_for_short_ones_without_a_great_debt() {
    let policy = Policy {
        base_bytes: 4 * MIB,
        target_file_bytes: MIB / 2,
        job_bytes_max: 4 * MIB,
        output_bytes_min: MIB / 64,
        ..Policy::default()
    };
    let long = 15_000;
    for is_opened_anew in [false, true] {
        let (mut model, known) = loaded(&policy, long, 300);
        assert!(known > 9 * long * ENTRY_BYTES / 10, "{known}");
        let mut run_bytes = if is_opened_anew { 0 } else { known };
        assert!(batches(&debts_of(&model.tree, &policy, run_bytes)) < 0.6);
        let (short, mut read) = (300, Vec::new());
        for nth in 0..400 {
            model.flush((0, KEYS - 1), short, 0);
            run_bytes = after(short * ENTRY_BYTES, &model.tree, &policy, run_bytes);
            let debts = debts_of(&model.tree, &policy, run_bytes);
            assert!(batches(&debts) < 2.0, "{nth}: {debts:?}");
            // About what one thread reads in a second, in a tree 64 times as large.
            let mut entries = 0;
            while entries < 60_000 {
                match compact_once(&mut model, &policy, run_bytes) {
                    0 => break,
                    more => entries += more,
                }
            }
            read.push(entries);
        }
        assert!(run_bytes < 4 * short * ENTRY_BYTES, "{run_bytes}");
        let passes = |read: &[u64]| read.iter().sum::<u64>() / (short * read.len() as u64);
        assert!(passes(&read[300..]) < 60, "{}", passes(&read[300..]));
    }
}

/// Where thousands of families share a write buffer, each flush gives one of them a few kilobytes.
#[test]
fn a_small_family_is_not_rewritten_as_a_whole_for_each_eight_short_runs() {
    let policy = Policy::default();
    for (tree_bytes, passes_max) in [(MIB / 4, 10), (MIB, 12), (4 * MIB, 14), (32 * MIB, 12)] {
        let (keys, run_entries) = (tree_bytes / ENTRY_BYTES, 4096 / ENTRY_BYTES);
        let mut model = Model::new();
        model.flush((0, keys - 1), 2 * keys, 0);
        let (mut run_bytes, mut read, mut sources) = (0, 0, 0);
        for nth in 0..600 {
            model.flush((0, keys - 1), run_entries, 0);
            run_bytes = after(run_entries * ENTRY_BYTES, &model.tree, &policy, run_bytes);
            loop {
                match compact_once(&mut model, &policy, run_bytes) {
                    0 => break,
                    entries if nth >= 200 => read += entries,
                    _ => {}
                }
            }
            let filled = model.tree.levels.iter().filter(|level| !level.is_empty()).count();
            sources = sources.max(model.tree.runs.len() + filled);
        }
        let passes = read / (400 * run_entries);
        assert!(passes <= passes_max && sources <= 12, "{tree_bytes}: {passes}, {sources}");
    }
}
