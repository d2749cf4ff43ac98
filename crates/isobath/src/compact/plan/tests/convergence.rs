//! Plans carried out until there is nothing to do, on random trees: several jobs at once, which end
//! in any order. `Tree` itself checks at every step that the tree is sound.

use super::super::fixtures::{Done, ENTRY_BYTES, Model, small_policy};
use super::super::shape::Shape;
use super::super::{
    Hints, ManualPlan, ManualRange, Plan, Policy, debts, delete_ages, plan, plan_manual,
};
use crate::blob::GarbageDebt;
use crate::engine::{Busy, JobId};
use proptest::prelude::*;

const KEYS: u64 = 60_000;
/// More jobs than any of these trees can need.
const JOBS_MAX: usize = 3000;

#[derive(Clone, Debug)]
struct Drawn {
    /// Ends of slices by level, to be sorted and paired; level 0 holds runs.
    levels: Vec<Vec<u64>>,
    runs: Vec<(u64, u64)>,
    fill: Vec<u64>,
    deletes: Vec<u64>,
}

fn drawn() -> impl Strategy<Value = Drawn> {
    let ends = prop::collection::btree_set(0..KEYS, 0..60);
    let level = ends.prop_map(|ends| ends.into_iter().collect::<Vec<_>>());
    (
        prop::collection::vec(level, 4),
        prop::collection::vec((0..KEYS, 0..KEYS), 0..20),
        prop::collection::vec(1u64..=100, 7),
        prop::collection::vec(0u64..=100, 5),
    )
        .prop_map(|(levels, runs, fill, deletes)| Drawn { levels, runs, fill, deletes })
}

fn inputs_max() -> impl Strategy<Value = usize> {
    prop_oneof![Just(usize::MAX), Just(4), Just(7)]
}

fn build(drawn: &Drawn) -> Model {
    let mut model = Model::new();
    let mut salt = 0;
    let mut amounts = |start: u64, end: u64| {
        salt += 1;
        let fill = drawn.fill[salt % drawn.fill.len()];
        let entries = ((end - start + 1) * fill / 100).max(1);
        (entries, entries * drawn.deletes[salt % drawn.deletes.len()] / 100)
    };
    let mut added = Vec::new();
    for (at, ends) in drawn.levels.iter().enumerate().rev() {
        let base = (10 - at as u64) * 1000;
        for pair in ends.chunks_exact(2) {
            let (entries, deletes) = amounts(pair[0], pair[1]);
            added.push((
                at + 1,
                model.slice((pair[0], pair[1]), entries, deletes, (base, base + 999)),
            ));
        }
    }
    model.tree = model.tree.with(&[], added).unwrap();
    model.next_seq = 20_000;
    for &(a, b) in &drawn.runs {
        let (entries, deletes) = amounts(a.min(b), a.max(b));
        model.flush((a.min(b), a.max(b)), entries, deletes);
    }
    model
}

/// Runs jobs, up to `threads` at once, until none is planned. `picks` says which job ends next.
fn compact_all(
    model: &mut Model,
    hints: &Hints,
    threads: usize,
    picks: &[usize],
    mut next: impl FnMut(&Model, &Busy) -> Plan,
) -> usize {
    let mut busy = Busy::default();
    let mut running: Vec<(JobId, Done)> = Vec::new();
    for jobs in 0..JOBS_MAX {
        let plan = if running.len() < threads { next(model, &busy) } else { Plan::DoNothing };
        if !matches!(plan, Plan::DoNothing) {
            let id = busy.begin(&plan);
            let done = model.run(&plan, hints);
            running.push((id, done));
            continue;
        }
        if running.is_empty() {
            return jobs;
        }
        let at = picks[jobs % picks.len()] % running.len();
        let (id, done) = running.swap_remove(at);
        model.install(done);
        busy.end(id);
    }
    panic!("no end to it");
}

fn check_shape(model: &Model, policy: &Policy, hints: &Hints) -> Result<(), TestCaseError> {
    prop_assert!(model.tree.runs.len() < policy.l0_trigger_runs);
    let shape = Shape::of(&model.tree, policy, hints);
    for (level, full) in shape.fullness(&model.tree, &Busy::default()) {
        prop_assert!(full < 1.0, "level {} is {} full", level, full);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn any_tree_comes_into_shape_and_to_rest(
        drawn in drawn(),
        threads in 1usize..4,
        picks in prop::collection::vec(0usize..4, 8),
        is_idle: bool,
        all_readers_gone: bool,
        run_bytes in prop_oneof![Just(0), Just(40 * ENTRY_BYTES), Just(4000 * ENTRY_BYTES)],
        inputs_max in inputs_max(),
    ) {
        let mut model = build(&drawn);
        let policy = Policy { inputs_max, ..small_policy() };
        let oldest_reader = if all_readers_gone { u64::MAX } else { 0 };
        let hints = Hints { run_bytes, oldest_reader, is_idle, ..Hints::default() };
        compact_all(&mut model, &hints, threads, &picks, |model, busy| plan(&model.tree, &policy, busy, &hints));
        check_shape(&model, &policy, &hints)?;
        let debts = debts(&model.tree, &policy, &Busy::default(), &hints, GarbageDebt::default());
        let base = policy.levels_max - 1;
        prop_assert!(debts.pending_bytes[1..base].iter().all(|bytes| *bytes == 0));
    }

    /// Nothing is known of the ages of the model's deletes, so all have stayed too long.
    #[test]
    fn any_tree_comes_to_rest_once_old_deletes_are_gone_or_wait_for_readers_alone(
        drawn in drawn(),
        threads in 1usize..4,
        picks in prop::collection::vec(0usize..4, 8),
        oldest_reader in prop_oneof![Just(0), 8000u64..12_000, Just(u64::MAX)],
        run_bytes in prop_oneof![Just(0), Just(40 * ENTRY_BYTES), Just(4000 * ENTRY_BYTES)],
    ) {
        let mut model = build(&drawn);
        let policy = Policy { delete_within_ms: 60_000, ..small_policy() };
        let hints = Hints { run_bytes, oldest_reader, now_ms: 60_000, ..Hints::default() };
        compact_all(&mut model, &hints, threads, &picks, |model, busy| plan(&model.tree, &policy, busy, &hints));
        check_shape(&model, &policy, &hints)?;
        let bottom = policy.levels_max - 1;
        for (level, slice) in model.tree.iter() {
            let waits = level == bottom && slice.meta.max_seq >= oldest_reader;
            prop_assert!(slice.meta.deletes == 0 || waits, "level {}: {:?}", level, slice.meta);
        }
        prop_assert!(!delete_ages(&model.tree, &policy, &hints).unwrap().is_due);
    }

    #[test]
    fn any_tree_comes_to_rest_past_what_cannot_be_read(
        drawn in drawn(),
        threads in 1usize..4,
        picks in prop::collection::vec(0usize..4, 8),
        is_idle: bool,
        nth in 1usize..10,
        inputs_max in inputs_max(),
    ) {
        let mut model = build(&drawn);
        let policy = Policy { inputs_max, ..small_policy() };
        let hints = Hints { oldest_reader: u64::MAX, is_idle, ..Hints::default() };
        let damaged: Vec<u64> =
            model.tree.iter().map(|(_, slice)| slice.meta.file).step_by(nth).collect();
        let past_damage = |model: &Model, busy: &Busy| {
            let mut busy = busy.clone();
            for (_, slice) in model.tree.iter() {
                if damaged.contains(&slice.meta.file) {
                    busy.note_damaged(busy.next_id(), slice.meta.file, slice.extent().owned());
                }
            }
            busy
        };
        compact_all(&mut model, &hints, threads, &picks, |model, busy| {
            plan(&model.tree, &policy, &past_damage(model, busy), &hints)
        });
        let is_left = |file: &u64| model.tree.iter().any(|(_, slice)| slice.meta.file == *file);
        prop_assert!(damaged.iter().all(is_left));
        let busy = past_damage(&model, &Busy::default());
        let shape = Shape::of(&model.tree, &policy, &hints);
        for (level, full) in shape.fullness(&model.tree, &busy) {
            prop_assert!(full < 1.0, "level {} is {} full", level, full);
        }
        let debts = debts(&model.tree, &policy, &busy, &hints, GarbageDebt::default());
        let base = policy.levels_max - 1;
        prop_assert!(debts.pending_bytes[1..base].iter().all(|bytes| *bytes == 0));
    }

    #[test]
    fn a_tree_under_a_stream_of_flushes_stays_in_shape(
        flushes in prop::collection::vec((0..KEYS, 1..KEYS, 1u64..=100, 0u64..=100), 1..80),
        threads in 1usize..4,
        picks in prop::collection::vec(0usize..4, 8),
    ) {
        let mut model = Model::new();
        let policy = small_policy();
        for (start, len, fill, deletes) in flushes {
            let entries = (len * fill / 100).max(1);
            model.flush((start, start + len - 1), entries, entries * deletes / 100);
            let hints = Hints { oldest_reader: u64::MAX, ..Hints::default() };
            compact_all(&mut model, &hints, threads, &picks, |model, busy| plan(&model.tree, &policy, busy, &hints));
            check_shape(&model, &policy, &hints)?;
        }
    }

    #[test]
    fn a_request_for_everything_leaves_one_level_and_no_deletes(
        drawn in drawn(),
        threads in 1usize..4,
        picks in prop::collection::vec(0usize..4, 8),
        all_readers_gone: bool,
        inputs_max in inputs_max(),
    ) {
        let mut model = build(&drawn);
        let policy = Policy { inputs_max, ..small_policy() };
        let oldest_reader = if all_readers_gone { u64::MAX } else { 0 };
        let hints = Hints { oldest_reader, ..Hints::default() };
        let range = ManualRange { upto: u64::MAX, ..ManualRange::everything() };
        let mut is_done = false;
        compact_all(&mut model, &hints, threads, &picks, |model, busy| {
            match plan_manual(&model.tree, &policy, busy, &hints, &range) {
                ManualPlan::Do(plan) => plan,
                ManualPlan::Wait => {
                    assert!(!busy.is_idle(), "nothing runs that it could wait for");
                    Plan::DoNothing
                }
                ManualPlan::Done => {
                    is_done = true;
                    Plan::DoNothing
                }
            }
        });
        prop_assert!(is_done);
        let bottom = policy.levels_max - 1;
        for (level, slice) in model.tree.iter() {
            prop_assert_eq!(level, bottom);
            prop_assert!(!all_readers_gone || slice.meta.deletes == 0);
        }
    }
}
