//! Carrying out what was planned: jobs run one after the other on a compaction thread, and are
//! installed together.
//!
//! Most often that is one job. Small jobs that were planned at the same time, of families that were
//! due at once, come several at a time (`small.rs`): they share the sync of their names, the record
//! of their edits, and the confirmation before their inputs are removed. A job that fails leaves
//! the others as they are.

use super::super::filter::{filtering_of, note};
use super::super::garbage::Holdings;
use super::super::plan::{Compaction, Dropped, Move, Plan};
use super::super::plants::{blobs_left, delete_inputs, leave_out};
use super::super::run::{CompactionContext, CompactionJob, Outcome, Progress, lineage};
use super::small::Task;
use super::{damage, policy_of, progress_of, schedule_these};
use crate::background::CancelToken;
use crate::engine::{Engine, JobId, Keyspace, raised_from};
use crate::env::{Plant, Point, planted, yield_point};
use crate::error::{Error, Result};
use crate::events::{BackgroundJob, Event};
use crate::metrics::CompactionMetrics;
use crate::table::{FlushTimes, Origin, TableContext};
use crate::version::{Ahead, Edit, Joint, Planned, State, TABLE_DIR};
use std::sync::Arc;

/// For how long a compaction thread removes files before it plans the next jobs. There may be tens
/// of thousands, of a family that was dropped or where an old iterator has ended.
const REMOVALS_NS: u64 = 100_000_000;

/// What a job has done, before its edit.
pub(super) struct Worked {
    outcome: Outcome,
    what: What,
}

enum What {
    Moves(Vec<Move>),
    Drop(Dropped),
    Compaction(CompactionMetrics),
}

/// Runs planned jobs, installs their results, and looks for the next jobs.
pub(super) fn carry_out(engine: &Arc<Engine>, tasks: Vec<Task>, cancel: &CancelToken) {
    let mut begun = Vec::with_capacity(tasks.len());
    let mut worked = Vec::with_capacity(tasks.len());
    for Task { planned, begun: job } in tasks {
        worked.push(work(engine, &job.family, planned, job.id, cancel));
        begun.push(job);
    }
    let families: Vec<Arc<Keyspace>> = begun.iter().map(|job| job.family.clone()).collect();
    let results = install_all(engine, &families, worked);
    for (job, result) in begun.into_iter().zip(results) {
        let failure = result.err();
        if failure.as_ref().is_some_and(Error::is_out_of_space) {
            engine.log.give_up_spares();
        }
        if let Some(error) = failure.clone().filter(|error| !error.is_cancelled()) {
            engine.tell(Event::BackgroundError { job: BackgroundJob::Compaction, error });
        }
        job.end(engine, failure);
    }
    engine.remove_obsolete_within(REMOVALS_NS);
    schedule_these(engine, &families);
}

/// Does the work of a job, up to the names of its outputs. `None` if there is none.
pub(super) fn work(
    engine: &Arc<Engine>,
    family: &Arc<Keyspace>,
    planned: Plan,
    id: JobId,
    cancel: &CancelToken,
) -> Result<Option<Worked>> {
    let mut compaction = match planned {
        Plan::DoNothing => return Ok(None),
        Plan::Move(moves) => {
            let outcome = Outcome::of_moves(&moves);
            return Ok(Some(Worked { outcome, what: What::Moves(moves) }));
        }
        Plan::Drop(dropped) => {
            let outcome = Outcome::of_drop(&dropped);
            return Ok(Some(Worked { outcome, what: What::Drop(dropped) }));
        }
        Plan::Compaction(compaction) => compaction,
    };
    leave_out(&mut compaction);
    let started = engine.pacer.now_ns();
    let (into_level, reason) = (compaction.target, compaction.reason);
    let progress = progress_of(engine, family, &compaction, id);
    let context = context_of(engine, family, &compaction, cancel, progress)?;
    let job = Arc::new(CompactionJob::new(compaction, context));
    for _ in 1..job.part_count().min(engine.compactor_count) {
        let (weak_job, weak, family) =
            (Arc::downgrade(&job), Arc::downgrade(engine), family.clone());
        // If no helper can be queued, the job only takes longer. One that waits behind another job
        // keeps no input of this one.
        let _ = engine.compactors.submit(Box::new(move |_| {
            let (Some(engine), Some(helped)) = (weak.upgrade(), weak_job.upgrade()) else { return };
            share(&engine, &family, &helped, id);
        }));
    }
    share(engine, family, &job, id);
    // The names are made durable with those of the jobs that are installed together with this one.
    let outcome = job.finish(|_| Ok(())).inspect_err(|error| {
        damage::note(engine, family, (id, job.inputs()), error);
    })?;
    let done = CompactionMetrics {
        count: 1,
        read_entries: outcome.entries_in,
        written_entries: outcome.entries_out,
        read_deletes: outcome.deletes_in,
        written_deletes: outcome.deletes_out,
        read_bytes: outcome.bytes_read,
        written_bytes: outcome.bytes_written,
        took_ns: engine.pacer.now_ns() - started,
        ..CompactionMetrics::none(reason, into_level)
    };
    Ok(Some(Worked { outcome, what: What::Compaction(done) }))
}

/// Works on a compaction and reports what this thread did.
fn share(engine: &Engine, family: &Keyspace, job: &CompactionJob, id: JobId) {
    let started = engine.pacer.now_ns();
    job.help(|parts| {
        let took_us = (engine.pacer.now_ns() - started) / 1000;
        let family = family.name().to_string();
        engine.tell(Event::SubcompactionDone { family, job: id.0, parts, took_us });
    });
}

fn context_of(
    engine: &Arc<Engine>,
    family: &Arc<Keyspace>,
    compaction: &Compaction,
    cancel: &CancelToken,
    progress: Progress,
) -> Result<CompactionContext> {
    let weak = Arc::downgrade(engine);
    let check = move || weak.upgrade().ok_or_else(Error::closed)?.check_writable();
    let mut readers = engine.readers();
    if planted(Plant::SnapshotIgnored) {
        readers.forget_registered();
    }
    let codec_level = if compaction.is_last_level { usize::MAX } else { compaction.depth };
    let mut options = engine.ceiling.fit(family.table_options(codec_level));
    let fs = engine.options.env.fs.clone();
    let table_dir = engine.dir.join(TABLE_DIR);
    let inputs = compaction.inputs.iter().map(|(_, slice)| &slice.meta);
    options.flushed = FlushTimes::of(inputs, engine.clock_ms());
    let label = options.origin.label.take();
    options.origin = Origin { label, ..lineage(compaction, &engine.tables, &*fs, &table_dir)? };
    Ok(CompactionContext {
        fs,
        table_dir,
        uuid: engine.uuid,
        family: family.id,
        tables: TableContext::clone(&engine.tables),
        files: engine.files.clone(),
        options,
        readers,
        cancel: cancel.clone(),
        io_limit: Some(engine.io_limit.clone()),
        progress,
        merging: family.merging(&engine.options.operators).cloned(),
        filtering: filtering_of(engine, family, compaction.target),
        collected: match compaction.inputs.iter().any(|(_, slice)| !slice.blobs.is_empty()) {
            true => {
                let holdings = Holdings::of(engine, std::slice::from_ref(family));
                holdings.garbage_of(engine, family).collected
            }
            false => Arc::default(),
        },
        blobs_max: engine.options.sizes.blobs_in_slice_max,
        values_max: policy_of(engine, family).job_bytes_max,
        memory: engine.ceiling.of_job(check),
    })
}

/// Makes the names of the outputs durable, installs what has been done, counts it and tells of it.
/// Returns the outcome of each job.
pub(super) fn install_all(
    engine: &Arc<Engine>,
    families: &[Arc<Keyspace>],
    mut worked: Vec<Result<Option<Worked>>>,
) -> Vec<Result<()>> {
    let began_ns = engine.pacer.now_ns();
    sync_names(engine, &mut worked);
    yield_point(Point::Built);
    let (mut joint, mut left) = (Vec::new(), Vec::new());
    for (family, worked) in families.iter().zip(&worked) {
        if let Ok(Some(Worked { outcome, .. })) = worked {
            left.push(blobs_left(family, outcome));
            joint.push(joint_of(engine, family, outcome));
        }
    }
    let jobs = joint.len().max(1) as u64;
    let mut installed = engine.install_joint(joint).into_iter().zip(left);
    // Each has its share of the time that they took together.
    let took_ns = (engine.pacer.now_ns() - began_ns) / jobs;
    let settle = |(family, worked): (&Arc<Keyspace>, Result<Option<Worked>>)| {
        let Some(worked) = worked? else { return Ok(()) };
        let (installed, blobs_left) = installed.next().expect("one for each that has worked");
        if let Err(error) = installed {
            if !error.is_retryable() && !error.is_cancelled() && !error.is_closed() {
                // Who began the job tells of it.
                drop(engine.poison_untold(BackgroundJob::Compaction, error.clone()));
            }
            return Err(error);
        }
        delete_inputs(engine, &worked.outcome, &blobs_left);
        tell(engine, family, worked, took_ns);
        Ok(())
    };
    families.iter().zip(worked).map(settle).collect()
}

/// Makes the names of all outputs durable. If that fails, all jobs that have outputs have failed.
fn sync_names(engine: &Arc<Engine>, worked: &mut [Result<Option<Worked>>]) {
    let has_outputs = |worked: &Result<Option<Worked>>| match worked {
        Ok(Some(Worked { outcome, what: What::Compaction(_) })) => !outcome.added.is_empty(),
        _ => false,
    };
    if !worked.iter().any(has_outputs) {
        return;
    }
    // Asked for here, so that whose turn comes before this thread's syncs these names, too.
    let asked = engine.files.ask_names();
    let (files, fs) = (engine.files.clone(), engine.options.env.fs.clone());
    let dir = engine.dir.join(TABLE_DIR);
    let synced = engine.run_promptly(move || files.sync_names_for(asked, &*fs, &dir));
    if let Err(error) = synced {
        let failed = worked.iter_mut().filter(|worked| has_outputs(worked));
        failed.for_each(|worked| *worked = Err(error.clone()));
    }
}

/// The edit of a job, and what makes its effect visible.
fn joint_of(engine: &Arc<Engine>, family: &Arc<Keyspace>, outcome: &Outcome) -> Joint {
    let (id, horizon) = (family.id, outcome.horizon);
    let (changes, outputs) = (outcome.changes(id), outcome.files.clone());
    let (ticks, knows) = (engine.ticks.clone(), engine.clone());
    let plan = move |ahead: &Ahead<'_>| {
        if !ahead.has_family(id) {
            // The family was dropped meanwhile. The outputs are removed with their last holder.
            return Err(Error::cancelled());
        }
        let mut edit = Edit::new(changes);
        edit.changes.extend(raised_from(ahead.oldest_readable(), horizon));
        let moments = knows.history.changes_behind(ahead.last_moment(), ahead.replay_from());
        edit.changes.extend(moments);
        // What was dropped had ended by one of these.
        edit.changes.extend(ticks.changes_behind(ahead.last_tick(), horizon, horizon));
        Ok(Planned { edit, outputs })
    };
    let (worked_on, changed_from) = (family.clone(), outcome.tally.changed_from);
    let (of, ticks) = (engine.clone(), engine.ticks.clone());
    let settle = move |state: &State| {
        ticks.note_filed(horizon);
        state.moments().last().into_iter().for_each(|last| of.history.note_filed(*last));
        let Some(state) = state.family(id) else { return };
        let tree = state.tree.clone();
        match changed_from {
            None => worked_on.install(tree, None),
            Some(from) => {
                of.points.install_filtered(&worked_on, tree, from, || of.log.visible());
            }
        }
    };
    Joint { family: id, plan: Box::new(plan), settle: Box::new(settle) }
}

/// Counts what was installed in this time, and tells of it.
fn tell(engine: &Engine, family: &Keyspace, worked: Worked, took_ns: u64) {
    let Worked { outcome, what } = worked;
    match what {
        What::Moves(moves) => tell_moves(engine, family, &moves),
        What::Drop(dropped) => tell_drop(engine, family, &dropped),
        What::Compaction(mut done) => {
            done.took_ns += took_ns;
            note(engine, family, &outcome.tally);
            report(engine, family, &done, &outcome);
        }
    }
}

fn tell_moves(engine: &Engine, family: &Keyspace, moves: &[Move]) {
    engine.gauges.trivial_moves.add(moves.len() as u64);
    for step in moves {
        let (from_level, into_level) = (step.from, step.to);
        let family = family.name().to_string();
        engine.tell(Event::TriviallyMoved { family, from_level, into_level });
    }
}

fn tell_drop(engine: &Engine, family: &Keyspace, dropped: &Dropped) {
    debug_assert!(!dropped.slices.is_empty(), "an edit without changes");
    let metas = || dropped.slices.iter().map(|(_, slice)| &slice.meta);
    let slices = dropped.slices.len();
    let bytes = dropped.slices.iter().map(|(_, slice)| slice.held_bytes).sum();
    engine.gauges.slices_dropped.add(slices as u64);
    engine.gauges.dropped_bytes.add(bytes);
    engine.tell(Event::Dropped {
        family: family.name().to_string(),
        reason: dropped.reason,
        slices,
        entries: metas().map(|meta| meta.entries).sum(),
        bytes,
    });
}

fn report(engine: &Engine, family: &Keyspace, done: &CompactionMetrics, outcome: &Outcome) {
    family.compactions.state.lock().note_done(done);
    engine.gauges.compactions.add(1);
    engine.gauges.compaction_read_bytes.add(done.read_bytes);
    engine.gauges.compaction_written_bytes.add(done.written_bytes);
    engine.gauges.compaction_ns.add(done.took_ns);
    engine.tell(Event::Compacted {
        family: family.name().to_string(),
        reason: done.reason,
        into_level: done.into_level,
        read_entries: done.read_entries,
        written_entries: done.written_entries,
        read_deletes: done.read_deletes,
        written_deletes: done.written_deletes,
        removed_entries: outcome.tally.removed,
        replaced_entries: outcome.tally.replaced,
        read_bytes: done.read_bytes,
        written_bytes: done.written_bytes,
        took_us: done.took_ns / 1000,
    });
}
