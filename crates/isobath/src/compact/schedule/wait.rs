//! Waiting until no compaction is due.

use super::{Holdings, JobId, Jobs, Start, choose, start_jobs};
use crate::engine::{Engine, Keyspace};
use crate::error::{Error, Result};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Waits until no compaction is due or running in any family, including those that could wait for
/// an idle time. Returns false if `deadline_ns` passes first; running compactions then continue.
pub(crate) fn wait_until_idle(engine: &Arc<Engine>, deadline_ns: Option<u64>) -> Result<bool> {
    let (mut families, mut last) = (engine.families.all(), BTreeMap::new());
    loop {
        let (mut has_waited, holdings) = (false, Holdings::of(engine, &families));
        for family in families {
            match wait_for_family(engine, &family, &holdings, deadline_ns)? {
                Waited::NotAtAll => {}
                Waited::ForJobs => has_waited = true,
                Waited::TooLong => return Ok(false),
            }
        }
        // Slices may leave files that are mostly dead by now. Those that cannot leave are chosen
        // again. The waits begin the jobs, so that they hear of what fails.
        let chosen = choose(engine).into_iter().map(|(family, files)| (family.id, files));
        let chosen: BTreeMap<_, _> = chosen.collect();
        if !has_waited && (chosen.is_empty() || chosen == last) {
            return Ok(true);
        }
        // A job may have left garbage in blob files in which earlier families have values.
        families = engine.families.all();
        families.retain(|family| family.view().tree.has_blobs() || chosen.contains_key(&family.id));
        last = chosen;
    }
}

pub(super) enum Waited {
    NotAtAll,
    ForJobs,
    TooLong,
}

pub(super) fn wait_for_family(
    engine: &Arc<Engine>,
    family: &Arc<Keyspace>,
    holdings: &Holdings,
    deadline_ns: Option<u64>,
) -> Result<Waited> {
    let first = forget_failure(family);
    let (mut waited, mut newer) = (Waited::NotAtAll, None);
    loop {
        engine.check_writable()?;
        // Started after each job: a finished job is counted before its successor is planned.
        let holdings = newer.as_ref().unwrap_or(holdings);
        let mut jobs = Jobs::new(engine);
        let is_idle = start_jobs(&mut jobs, engine, family, Start::Idle, holdings).is_idle;
        // The small ones begin with that.
        drop(jobs);
        let mut state = family.compactions.state.lock();
        let had_failure = state.has_failed();
        match state.failure_since(first) {
            Some(_) if family.is_dropped() => return Ok(waited),
            Some(error) => return Err(told(engine, &error)),
            // The old failure kept jobs from starting, so try again.
            None if had_failure => {}
            None if is_idle => return Ok(waited),
            // The last job has ended since, and another one may be due by now.
            None if state.running == 0 => {}
            None => match deadline_ns.map(|at| at.saturating_sub(engine.pacer.now_ns())) {
                Some(0) => return Ok(Waited::TooLong),
                left_ns => {
                    waited = Waited::ForJobs;
                    match left_ns.map(Duration::from_nanos) {
                        None => family.compactions.ended.wait(&mut state),
                        Some(left) => family.compactions.ended.wait_for(&mut state, left),
                    }
                    drop(state);
                    newer = Some(Holdings::of(engine, std::slice::from_ref(family)));
                }
            },
        }
    }
}

/// The error of a wait for compactions. If a close cancelled them, it says that the database is
/// closed.
pub(super) fn told(engine: &Engine, failure: &Error) -> Error {
    engine.check_open().err().unwrap_or_else(|| failure.clone())
}

/// Forgets the failure of a job, so that compactions start again. Returns the name of the next job.
pub(super) fn forget_failure(family: &Keyspace) -> JobId {
    let mut state = family.compactions.state.lock();
    state.forget_failures();
    state.busy.next_id()
}
