//! Counts the jobs that begin, each by what it is for and what it does, so that a simulation can
//! tell which kinds of jobs it has had. What led to a job, and what kept one from being chosen, is
//! counted where that is decided.

use super::{Compaction, Plan};
use crate::env::{Reach, reached, reached_if};
use crate::events::CompactionReason as Reason;

/// A job begins.
pub(crate) fn note_begun(plan: &Plan) {
    match plan {
        Plan::DoNothing => {}
        Plan::Move(moves) if moves.iter().all(|moved| moved.from == 0) => {
            reached(Reach::PlanMoveRuns);
        }
        Plan::Move(_) => reached(Reach::PlanMoveSlices),
        Plan::Drop(dropped) => reached(place_of(dropped.reason)),
        Plan::Compaction(compaction) => note_compaction(compaction),
    }
}

fn note_compaction(compaction: &Compaction) {
    let reason = compaction.reason;
    reached(place_of(reason));
    reached_if(Reach::Guided, || !compaction.guides.is_empty());
    reached_if(Reach::Fenced, || !compaction.fences.is_empty());
    reached_if(Reach::CompactedInParts, || !compaction.cuts.is_empty());
    let is_run = |(level, _): &(usize, _)| *level == 0;
    let is_of_runs = compaction.inputs.iter().any(is_run);
    reached_if(Reach::LandedDeep, || {
        is_of_runs && compaction.depth > 1 && compaction.inputs.iter().all(is_run)
    });
    let stays = compaction.inputs.iter().all(|(level, _)| *level == compaction.target);
    match reason {
        Reason::Deletes if is_of_runs => reached(Reach::PlanDeletesOfRuns),
        Reason::OldDeletes if is_of_runs => reached(Reach::PlanOldDeletesOfRuns),
        Reason::Deletes | Reason::OldDeletes if stays => {
            reached(Reach::PlanRewrite);
            reached_if(Reach::PlanRewriteOld, || reason == Reason::OldDeletes);
        }
        Reason::Deletes => reached(Reach::PlanDeletesOfLevel),
        Reason::OldDeletes => reached(Reach::PlanOldDeletesOfLevel),
        Reason::Manual if is_of_runs => reached(Reach::PlanManualOfRuns),
        Reason::Manual if stays => reached(Reach::PlanManualRewrite),
        Reason::Manual => reached(Reach::PlanManualOfLevel),
        Reason::Idle if !is_of_runs => reached(Reach::PlanLeftOver),
        Reason::Garbage if is_of_runs => reached(Reach::PlanCollectRuns),
        Reason::DeadSpace if is_of_runs && stays => reached(Reach::PlanCleanRun),
        Reason::DeadSpace if is_of_runs => reached(Reach::PlanCleanRuns),
        _ => {}
    }
}

/// Where a simulation is when such a job begins.
fn place_of(reason: Reason) -> Reach {
    match reason {
        Reason::Runs => Reach::PlanRuns,
        Reason::RunsInPlace => Reach::PlanRunsInPlace,
        Reason::Size => Reach::PlanSize,
        Reason::Deletes => Reach::PlanDeletes,
        Reason::Idle => Reach::PlanIdle,
        Reason::Manual => Reach::PlanManual,
        Reason::Covered => Reach::PlanDrop,
        Reason::Expired => Reach::PlanEnded,
        Reason::Garbage => Reach::PlanCollect,
        Reason::DeadSpace => Reach::PlanClean,
        Reason::ShortSlices => Reach::PlanShort,
        Reason::OldDeletes => Reach::PlanOldDeletes,
    }
}
