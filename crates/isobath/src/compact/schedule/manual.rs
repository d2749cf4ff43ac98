//! Compactions of a range that a caller asked for and waits for.

use super::super::filter::is_filtering;
use super::super::plan::{Hints, ManualPlan, ManualRange, Plan, plan_manual};
use super::small::{Task, submit};
use super::wait::{forget_failure, told};
use super::{Begun, drops, hints_of, open_spans, policy_of};
use crate::engine::{CompactionState, Engine, Keyspace};
use crate::env::{Reach, reached};
use crate::error::{Error, Result};
use crate::read::ScanBounds;
use std::ops::Bound;
use std::sync::Arc;

/// Compacts a range down to the last level, for the data that is in tables now.
pub(crate) fn compact_range(
    engine: &Arc<Engine>,
    family: &Arc<Keyspace>,
    bounds: &ScanBounds,
) -> Result<()> {
    let own = |bound: &Bound<Vec<u8>>| bound.clone().map(Vec::into_boxed_slice);
    let mut range = ManualRange {
        lower: own(&bounds.lower),
        upper: own(&bounds.upper),
        upto: engine.log.visible(),
        judged_from: None,
    };
    let ended_by_ms = engine.clock_ms().max(engine.ticks.newest());
    let mut own_jobs = Vec::new();
    let first = forget_failure(family);
    loop {
        engine.check_writable()?;
        if family.is_dropped() {
            return Err(Error::unknown_family(&family.name()));
        }
        if bounds.is_empty() {
            return Ok(());
        }
        open_spans(engine, &family.view().tree);
        let mut state = family.compactions.state.lock();
        match state.failure_since(first) {
            // The drop has cancelled the job.
            Some(_) if family.is_dropped() => continue,
            Some(error) => return Err(told(engine, &error)),
            None => {}
        }
        if range.judged_from.is_none() && is_filtering(engine, family) {
            // Jobs of before this call may have asked for a reader who is gone.
            if state.busy.holds_before(first) {
                family.compactions.ended.wait(&mut state);
                continue;
            }
            range.judged_from = Some(engine.files.next());
        }
        // Jobs that no thread has taken would hold up all others behind them.
        own_jobs.retain(|id| state.busy.holds(*id));
        if own_jobs.len() >= engine.compactor_count.max(1) {
            family.compactions.ended.wait(&mut state);
            continue;
        }
        match next_step(engine, family, &state, &range, ended_by_ms) {
            // A job of this call is counted and reported only after it is installed; wait for that.
            ManualPlan::Done if !own_jobs.is_empty() => {
                family.compactions.ended.wait(&mut state);
            }
            ManualPlan::Done => {
                drop(state);
                engine.remove_obsolete_files();
                engine.files.obsolete().wait_for_removals();
                return Ok(());
            }
            ManualPlan::Wait => {
                reached(Reach::PlanManualWait);
                debug_assert!(state.running > 0, "it waits for a job, and none runs");
                family.compactions.ended.wait(&mut state);
            }
            ManualPlan::Do(planned) => {
                let begun = Begun::new(family, &mut state, &planned);
                drop(state);
                own_jobs.push(begun.id);
                submit(engine, vec![Task { planned, begun }]);
            }
        }
    }
}

/// What ends after `ended_by_ms` is left alone, or the request would never be done.
fn next_step(
    engine: &Engine,
    family: &Keyspace,
    state: &CompactionState,
    range: &ManualRange,
    ended_by_ms: u64,
) -> ManualPlan {
    let hints = hints_of(engine, state, false);
    let hints = Hints { oldest_ms: hints.oldest_ms.min(ended_by_ms), ..hints };
    let tree = family.view().tree.clone();
    match drops(engine, &tree, state) {
        Plan::DoNothing => {
            plan_manual(&tree, &policy_of(engine, family), &state.busy, &hints, range)
        }
        dropped => ManualPlan::Do(dropped),
    }
}
