//! Below a ceiling for memory no job reads more inputs at once than it always has memory for,
//! however many runs there are.

use super::super::fixtures::{Model, small_policy};
use super::super::{Hints, ManualPlan, ManualRange, Plan, Policy, plan, plan_manual};
use crate::engine::Busy;

const INPUTS_MAX: usize = 27;

fn policy() -> Policy {
    Policy { inputs_max: INPUTS_MAX, ..small_policy() }
}

fn hints() -> Hints {
    Hints { oldest_reader: u64::MAX, is_idle: true, ..Hints::default() }
}

/// A slice of the last level, and so many runs above it that overlap each other.
fn behind(runs: usize) -> Model {
    let mut model = Model::new();
    let base = model.slice((0, 999), 1000, 0, (1, 1000));
    let bottom = policy().levels_max - 1;
    model.tree = model.tree.with(&[], vec![(bottom, base)]).unwrap();
    model.next_seq = 2000;
    (0..runs).for_each(|_| model.flush((0, 999), 50, 0));
    model
}

/// Carries out one plan after the other until there is none. Returns the inputs of each job.
fn carry_out(model: &mut Model, mut next: impl FnMut(&Model) -> Plan) -> Vec<usize> {
    let mut inputs = Vec::new();
    loop {
        let planned = next(model);
        match &planned {
            Plan::DoNothing => return inputs,
            Plan::Compaction(compaction) => inputs.push(compaction.input_rows()),
            _ => {}
        }
        assert!(inputs.len() < 1000, "no end to it");
        let done = model.run(&planned, &hints());
        model.install(done);
    }
}

#[test]
fn many_runs_go_down_by_several_jobs() {
    let mut model = behind(200);
    let next = |model: &Model| plan(&model.tree, &policy(), &Busy::default(), &hints());
    let inputs = carry_out(&mut model, next);
    assert!(inputs.iter().all(|inputs| *inputs <= INPUTS_MAX), "{inputs:?}");
    assert_eq!(inputs[..7], [INPUTS_MAX; 7]);
    assert!(model.tree.runs.is_empty());
}

#[test]
fn a_request_takes_many_runs_down_by_several_jobs() {
    let mut model = behind(200);
    let range = ManualRange::everything();
    let next = |model: &Model| match plan_manual(
        &model.tree,
        &policy(),
        &Busy::default(),
        &hints(),
        &range,
    ) {
        ManualPlan::Do(planned) => planned,
        ManualPlan::Wait => panic!("it waits, though nothing runs"),
        ManualPlan::Done => Plan::DoNothing,
    };
    let inputs = carry_out(&mut model, next);
    assert!(inputs.iter().all(|inputs| *inputs <= INPUTS_MAX), "{inputs:?}");
    assert_eq!(inputs[..7], [INPUTS_MAX; 7]);
    assert!(model.tree.runs.is_empty());
}

#[test]
fn many_runs_over_what_cannot_be_read_become_few_by_several_jobs() {
    let mut model = behind(200);
    let mut busy = Busy::default();
    let (_, base) = model.tree.iter().last().unwrap();
    busy.note_damaged(busy.next_id(), base.meta.file, base.extent().owned());
    let inputs = carry_out(&mut model, |model| plan(&model.tree, &policy(), &busy, &hints()));
    assert!(inputs.iter().all(|inputs| *inputs <= INPUTS_MAX), "{inputs:?}");
    assert!(inputs.contains(&INPUTS_MAX));
    assert!(model.tree.runs.len() < policy().l0_trigger_runs, "{}", model.tree.runs.len());
}
