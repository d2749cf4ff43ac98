//! The rules for every job, stated a second time and simply: by looking at every slice of the tree.

use super::super::shape::Shape;
use super::super::{Compaction, Move, Plan, hull as hull_of};
use super::drawn::{Answer, Scene, walk, walk_past_damage};
use crate::engine::Claims;
use crate::version::Slice;
use std::sync::Arc;

fn share_keys(a: &Slice, b: &Slice) -> bool {
    a.meta.smallest <= b.meta.largest && b.meta.smallest <= a.meta.largest
}

/// True if readers look at `other` after `slice` of `level`: `other` is an older run or lies in a
/// deeper level.
fn is_under(
    scene: &Scene,
    (level, slice): (usize, &Slice),
    (deeper, other): (usize, &Slice),
) -> bool {
    let age = |slice: &Slice| scene.tree.runs.iter().position(|run| std::ptr::eq(&**run, slice));
    deeper > level || (level == 0 && deeper == 0 && age(other) > age(slice))
}

fn is_input(compaction: &Compaction, slice: &Slice) -> bool {
    compaction.inputs.iter().any(|(_, input)| input.meta.file == slice.meta.file)
}

fn numbers(slices: &[Arc<Slice>]) -> Vec<u64> {
    slices.iter().map(|slice| slice.meta.file).collect()
}

/// Checks that no slice that `slice` hides stays where a reader would look first.
fn check_nothing_is_passed(
    scene: &Scene,
    from: (usize, &Slice),
    to: usize,
    goes_along: impl Fn(&Slice) -> bool,
) {
    for (level, other) in scene.tree.iter() {
        let is_passed =
            is_under(scene, from, (level, other)) && level <= to && (to > 0 || level > 0);
        if is_passed && share_keys(from.1, other) {
            assert!(goes_along(other), "{} passes {}", from.1.meta.file, other.meta.file);
        }
    }
}

fn check_moves(scene: &Scene, moves: &[Move]) {
    assert!(!moves.is_empty());
    let shape = Shape::of(&scene.tree, &scene.policy, &scene.hints);
    for (at, step) in moves.iter().enumerate() {
        let meta = &step.slice.meta;
        assert!(step.from < step.to && step.to <= shape.bottom);
        assert!(scene.tree.slices(step.from).iter().any(|slice| Arc::ptr_eq(slice, &step.slice)));
        assert!(!scene.busy.reads(meta.file));
        assert!(!scene.busy.lands_between(step.from, step.to, &meta.extent()));
        check_nothing_is_passed(scene, (step.from, &step.slice), step.to, |_| false);
        assert!(moves[..at].iter().all(|other| other.slice.meta.file != meta.file));
    }
}

pub(super) fn check_compaction(scene: &Scene, compaction: &Compaction) {
    let Scene { tree, policy, hints, busy, .. } = scene;
    let shape = Shape::of(tree, policy, hints);
    let hull = compaction.hull();
    let (smallest, largest) = (hull.start, hull.end.key().unwrap());
    assert!(!compaction.inputs.is_empty() && smallest <= largest);
    for (at, (level, input)) in compaction.inputs.iter().enumerate() {
        assert!(tree.slices(*level).iter().any(|slice| Arc::ptr_eq(slice, input)));
        assert!(!busy.reads(input.meta.file), "{} is read already", input.meta.file);
        assert!(
            compaction.inputs[..at].iter().all(|(_, other)| other.meta.file != input.meta.file)
        );
        assert!(smallest <= &*input.meta.smallest && &*input.meta.largest <= largest);
        assert!(*level <= compaction.target);
        check_nothing_is_passed(scene, (*level, input), compaction.target, |other| {
            is_input(compaction, other)
        });
    }
    // What lies in the target already stays in its level.
    let moved = compaction.inputs.iter().filter(|(level, _)| *level < compaction.target);
    if let Some(least) = moved.clone().map(|(level, _)| *level).min() {
        let of_moved = hull_of(moved.map(|(_, slice)| slice)).expect("something is moved");
        let passes = busy.lands_between(least, compaction.target, &of_moved);
        assert!(!passes, "{busy:?} writes between what {compaction:?} moves and where");
    }
    if let Some(above) = compaction.target.checked_sub(1) {
        let meets = busy.lands_between(above, compaction.target, &hull);
        assert!(!meets, "{busy:?} writes within {compaction:?}");
    }
    let is_ordered = |pair: &[(usize, Arc<Slice>)]| {
        let [(upper, a), (lower, b)] = pair else { unreachable!() };
        upper < lower || (upper == lower && (*upper == 0 || a.meta.largest < b.meta.smallest))
    };
    assert!(compaction.inputs.windows(2).all(is_ordered));
    check_around(scene, compaction, &shape);
    if compaction.target == 0 {
        let others = tree.runs.iter().filter(|run| !is_input(compaction, run));
        let oldest = compaction.inputs.iter().map(|(_, run)| run.meta.min_seq).min().unwrap();
        let newest = compaction.inputs.iter().map(|(_, run)| run.meta.max_seq).max().unwrap();
        for run in others.filter(|run| run.extent().overlaps(&hull)) {
            let is_aside = run.meta.max_seq < oldest || newest < run.meta.min_seq;
            assert!(is_aside, "{} would lie on both sides", run.meta.file);
        }
    }
    assert_eq!(compaction.is_last_level, compaction.target == shape.bottom);
    assert_eq!(compaction.depth, shape.depth(compaction.target));
    assert!(compaction.cuts.windows(2).all(|pair| pair[0] < pair[1]));
    assert!(compaction.cuts.iter().all(|cut| smallest < &**cut && &**cut <= largest));
    assert!(compaction.cuts.len() < policy.parts_max);
}

/// Checks what a compaction states about the slices around it.
fn check_around(scene: &Scene, compaction: &Compaction, shape: &Shape) {
    let tree = &scene.tree;
    let hull = compaction.hull();
    let within = |level: usize| -> Vec<Arc<Slice>> {
        let all = tree.slices(level).iter();
        all.filter(|slice| slice.extent().overlaps(&hull)).cloned().collect()
    };
    let fences: Vec<_> = match compaction.target {
        0 => Vec::new(),
        target => {
            let left_out = within(target).into_iter().filter(|slice| !is_input(compaction, slice));
            left_out.map(|slice| slice.meta.smallest.clone()).collect()
        }
    };
    assert_eq!(compaction.fences, fences);
    let mut beneath: Vec<Vec<u64>> = Vec::new();
    if compaction.target == 0 {
        let last = tree.runs.iter().rposition(|run| is_input(compaction, run)).unwrap();
        beneath.extend(tree.runs[last + 1..].iter().rev().map(|run| vec![run.meta.file]));
    }
    let deeper = (compaction.target + 1..=shape.bottom).map(|level| numbers(&within(level)));
    beneath.extend(deeper.filter(|slices| !slices.is_empty()));
    assert_eq!(
        compaction.beneath.iter().map(|slices| numbers(slices)).collect::<Vec<_>>(),
        beneath
    );
    let below = match compaction.target {
        0 => Vec::new(),
        target if target == shape.bottom => Vec::new(),
        target => within(shape.next(tree, target)),
    };
    assert_eq!(numbers(&compaction.guides), numbers(&below));
}

pub(super) fn check(scene: &Scene, answer: &Answer) {
    match answer.plan() {
        Some(Plan::Move(moves)) => check_moves(scene, moves),
        Some(Plan::Compaction(compaction)) => check_compaction(scene, compaction),
        Some(Plan::DoNothing | Plan::Drop(_)) | None => {}
    }
}

#[test]
fn whatever_is_planned_passes_nothing_older_and_leaves_running_jobs_alone() {
    (0..3000).for_each(|seed| walk(seed, check));
}

#[test]
fn nothing_is_planned_with_what_cannot_be_read_unless_it_is_asked_for() {
    let mut asked = 0;
    for seed in 0..3000 {
        walk_past_damage(seed, |scene, answer| {
            check(scene, answer);
            let files = answer.plan().map_or(Vec::new(), Claims::claims);
            let mut files = files.into_iter().flat_map(|claim| claim.files);
            let is_damaged = files.any(|file| scene.busy.is_damaged(file));
            match answer {
                Answer::Planned(plan) => assert!(!is_damaged, "{plan:?}"),
                Answer::Requested(_) => asked += u32::from(is_damaged),
            }
        });
    }
    assert!(asked > 100, "{asked}");
}
