//! When compactions run: after each flush and each compaction, as many disjoint ones at once as
//! there are threads.
//!
//! The running jobs of a family are listed in its `Compactions` (`engine/compactions.rs`), and the
//! next plan avoids them. A family has at most as many jobs as there are threads, so a plan sees a
//! tree that is nearly the present one. A job offers its parts to the other compaction threads;
//! idle threads take some.
//!
//! Slices that range deletes cover leave before anything else is planned. The planner needs these
//! range deletes, which tables hold. So tables that have some are opened before the jobs are looked
//! at; whatever cannot be opened only delays.
//!
//! Writers wait for the flusher, so a flush starts what can be planned at once, and a compaction
//! thread looks for the rest. A thread that waits for compactions plans, too, and relies on
//! neither.
//!
//! On disk: the job writes and syncs the outputs, then syncs their directory. Until the edit they
//! are orphans. One edit removes the inputs and adds the outputs. Then the view is replaced, and
//! each input file is removed after its last reader. Several small jobs share these steps
//! (`small.rs`, `carry_out.rs`).

mod carry_out;
mod damage;
mod manual;
mod small;
mod wait;

pub(crate) use manual::compact_range;
pub(crate) use wait::wait_until_idle;

use super::clean::choose;
use super::garbage::Holdings;
use super::plan::{Compaction, Debts, Hints, Plan, Policy};
use super::plan::{debts, note_begun, run_bytes_after};
use super::plan::{plan_clean, plan_drop, plan_ended, plan_short, plan_with_garbage};
use super::run::Progress;
use crate::background::CancelToken;
use crate::blob::Garbage;
use crate::engine::{CompactionDebt, CompactionState, Engine, JobId, Keyspace};
use crate::env::sync::atomic::Ordering;
use crate::env::{Reach, is_unwinding, reached};
use crate::error::{Error, PoisonCause};
use crate::table::Codec;
use crate::version::{Slice, Tree};
pub(super) use small::Jobs;
use std::sync::Arc;

/// What starts jobs, and how many.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Start {
    /// All that are due.
    Due,
    /// Also those that pay off only later.
    Idle,
    /// One of either kind.
    OneIdle,
}

/// What was started.
#[derive(Clone, Copy, Default)]
pub(super) struct Started {
    pub(super) begun: usize,
    /// No job is due, and none runs.
    pub(super) is_idle: bool,
}

/// The policy that follows from the options of a family.
pub(super) fn policy_of(engine: &Engine, family: &Keyspace) -> Policy {
    let options = family.options();
    let budget = engine.options.buffer_len();
    let plain_depths = options.codecs.iter().take_while(|codec| **codec == Codec::None).count();
    let all_plain = plain_depths == options.codecs.len();
    let (sizes, defaults) = (&engine.options.sizes, Policy::default());
    Policy {
        size_ratio_max: options.level_size_ratio,
        base_bytes: budget * 4,
        l0_trigger_runs: sizes.l0_trigger_runs,
        target_file_bytes: (budget / 2).clamp(sizes.table_len_min, defaults.target_file_bytes),
        output_bytes_min: sizes.table_len_min,
        job_bytes_max: (budget * 4).min(defaults.job_bytes_max),
        plain_depths: if all_plain { 0 } else { plain_depths },
        output_keys_min: engine.ceiling.output_keys_min(),
        inputs_max: engine.ceiling.inputs_max(),
        delete_within_ms: options.delete_within_ms(),
        ..defaults
    }
}

pub(super) fn hints_of(engine: &Engine, state: &CompactionState, is_idle: bool) -> Hints {
    let (oldest_reader, oldest_ms) = engine.oldest_reader();
    let now_ms = engine.clock_ms();
    Hints { run_bytes: state.run_bytes, oldest_reader, oldest_ms, now_ms, is_idle }
}

/// The bytes that compactions of `family` must still read, as the planner estimates them.
pub(crate) fn debt_bytes(engine: &Engine, family: &Keyspace) -> u64 {
    debts_of(engine, family, &family.compactions.state.lock()).total()
}

fn debts_of(engine: &Engine, family: &Keyspace, state: &CompactionState) -> Debts {
    // Debts use no other hint. Compactions compute debts often, so reading the snapshots each time
    // would cost too much.
    let hints = Hints { run_bytes: state.run_bytes, ..Hints::default() };
    let (tree, policy) = (family.view().tree.clone(), policy_of(engine, family));
    debts(&tree, &policy, &state.busy, &hints, state.garbage)
}

/// Starts the compactions that the new runs call for. Writers wait for the flusher, which calls
/// this. So what reads the disk or sums up blob files is left to a compaction thread, and so is all
/// where another thread plans: that thread may be of low priority.
pub(crate) fn after_flush(engine: &Arc<Engine>, families: &[Arc<Keyspace>]) {
    engine.has_flushed.store(true, Ordering::Relaxed);
    if engine.disk_room.calls_for_compactions() {
        let weak = Arc::downgrade(engine);
        let retry = move |_: &CancelToken| weak.upgrade().iter().for_each(retry_for_room);
        let _ = engine.compactors.submit(Box::new(retry));
    }
    let (mut jobs, mut due) = (Jobs::new(engine), Vec::new());
    for family in families {
        family.compactions.note_flushed();
        if !start_promptly(&mut jobs, engine, family) && family.compactions.become_due() {
            due.push(family.clone());
        }
    }
    drop(jobs);
    if due.is_empty() {
        return;
    }
    let weak = Arc::downgrade(engine);
    // If they are closed, nothing is to be started any more.
    let _ = engine.compactors.submit(Box::new(move |_| {
        // A flush from here on may call for another plan.
        due.iter().for_each(|family| family.compactions.begin_planning());
        let Some(engine) = weak.upgrade() else { return };
        schedule_these(&engine, &due);
    }));
}

/// Starts the jobs that are due and sets the pace of writers, without reading or waiting. False if
/// there may be more to do.
fn start_promptly(jobs: &mut Jobs<'_>, engine: &Arc<Engine>, family: &Arc<Keyspace>) -> bool {
    let (policy, garbage) = (policy_of(engine, family), Garbage::default());
    loop {
        let Some(mut state) = family.compactions.state.try_lock() else { return false };
        take_in_flush(family, &policy, &mut state);
        let tree = family.view().tree.clone();
        let is_prompt =
            !tree.has_blobs() && with_spans(&tree).all(|slice| slice.spans_if_open().is_some());
        let next = match is_prompt {
            true => begin_next(engine, family, Start::Due, (&policy, &garbage), &mut state).ok(),
            false => None,
        };
        let Some((planned, job)) = next else {
            note_backlog_of(engine, family, &state);
            return is_prompt;
        };
        drop(state);
        jobs.add(planned, job);
    }
}

/// Takes in that a flush has added to the family, if one has since.
fn take_in_flush(family: &Keyspace, policy: &Policy, state: &mut CompactionState) {
    if !family.compactions.take_flushed() {
        return;
    }
    let tree = family.view().tree.clone();
    // A compaction may have taken it down already.
    if let Some(newest) = tree.runs.first() {
        let hints = Hints { run_bytes: state.run_bytes, ..Hints::default() };
        // One stream may be longer than all that an epoch holds of others.
        let flushed = newest.held_bytes.min(policy.base_bytes.saturating_mul(4));
        state.run_bytes = run_bytes_after(flushed, &tree, policy, &state.busy, &hints);
    }
    state.forget_failures();
    state.begin_rest();
}

/// Sets the pace of writers by the present debt of `family`.
fn note_backlog(engine: &Engine, family: &Keyspace) {
    let mut state = family.compactions.state.lock();
    take_in_flush(family, &policy_of(engine, family), &mut state);
    note_backlog_of(engine, family, &state);
}

/// The same for who holds the state, until the end, so that no older figure replaces this one.
fn note_backlog_of(engine: &Engine, family: &Keyspace, state: &CompactionState) {
    let debt = (!family.is_dropped()).then(|| {
        let debts = debts_of(engine, family, state);
        let (batch_debt, batch_bytes) = (debts.batch_debt, debts.batch_bytes);
        CompactionDebt { bytes: debts.paced_bytes(), batch_debt, batch_bytes }
    });
    let mut backlog = engine.backlog.lock();
    backlog.note(family.id, debt);
    let (lag, drain) = backlog.pressure();
    engine.pacer.set_compactions(lag, drain);
}

/// The progress callback of a compaction: updates the debt and the pace of writers.
fn progress_of(
    engine: &Arc<Engine>,
    family: &Arc<Keyspace>,
    compaction: &Compaction,
    id: JobId,
) -> Progress {
    let entries: u64 = compaction.inputs.iter().map(|(_, slice)| slice.meta.entries).sum();
    let entry_bytes = compaction.input_bytes() as f64 / entries.max(1) as f64;
    let began_ns = engine.pacer.now_ns();
    let (engine, family) = (Arc::downgrade(engine), family.clone());
    Arc::new(move |entries, moved_bytes, goes_on| {
        let Some(engine) = engine.upgrade() else { return };
        let bytes = (entries as f64 * entry_bytes) as u64;
        // What is read last sets no pace: a job that reads little mostly waits for syncs.
        if goes_on {
            engine.backlog.lock().note_read(bytes + moved_bytes, began_ns, engine.pacer.now_ns());
        }
        family.compactions.state.lock().busy.note_read(id, bytes);
        note_backlog(&engine, &family);
    })
}

/// Starts the jobs that are due, and sets the pace of writers.
pub(crate) fn schedule(engine: &Arc<Engine>, family: &Arc<Keyspace>) {
    schedule_these(engine, std::slice::from_ref(family));
}

/// The same for all families.
pub(crate) fn schedule_all(engine: &Arc<Engine>) {
    schedule_these(engine, &engine.families.all());
}

pub(super) fn schedule_these(engine: &Arc<Engine>, families: &[Arc<Keyspace>]) {
    let holdings = Holdings::of(engine, families);
    let mut jobs = Jobs::new(engine);
    for family in families {
        start_jobs(&mut jobs, engine, family, Start::Due, &holdings);
        note_backlog(engine, family);
    }
}

/// Starts the jobs that are due, and those that pay off only later. Called when there has been no
/// write for a while.
pub(crate) fn schedule_idle(engine: &Arc<Engine>) {
    let families = engine.families.all();
    let holdings = Holdings::of(engine, &families);
    let mut jobs = Jobs::new(engine);
    for family in &families {
        start_jobs(&mut jobs, engine, family, Start::Idle, &holdings);
    }
}

/// Starts such jobs of families that rest, while others may be written and nothing waits for a
/// thread. At most half as many of them run as there are threads: a job that writers wait for may
/// come behind.
pub(crate) fn schedule_resting(engine: &Arc<Engine>) {
    let written = engine.epochs.families_in_memory();
    let mut families = engine.families.all();
    let mut running = 0;
    families.retain(|family| {
        let mut state = family.compactions.state.lock();
        running += state.running;
        if written.contains(&family.id) {
            state.begin_rest();
        }
        state.rests() && state.running == 0
    });
    let most = (engine.compactor_count / 2).max(1);
    if engine.compactors.queued_count() > 0 || engine.backlog.lock().pressure().0 > 0.0 {
        return;
    }
    let holdings = Holdings::of(engine, &families);
    let mut jobs = Jobs::new(engine);
    for family in families {
        if running >= most {
            break;
        }
        match start_jobs(&mut jobs, engine, &family, Start::OneIdle, &holdings).begun {
            0 => family.compactions.state.lock().begin_rest(),
            one => running += one,
        }
    }
}

/// Starts the jobs of families with values in blob files. What others have left of these files may
/// be garbage by now, although the family itself was not written.
pub(crate) fn schedule_collections(engine: &Arc<Engine>) {
    let families = engine.families.all();
    let holdings = Holdings::of(engine, &families);
    let mut jobs = Jobs::new(engine);
    for family in families.iter().filter(|family| family.view().tree.has_blobs()) {
        start_jobs(&mut jobs, engine, family, Start::Due, &holdings);
    }
}

/// Opens the tables of the tree that have range deletes. An error is told by those who read them.
fn open_spans(engine: &Engine, tree: &Tree) {
    for slice in with_spans(tree) {
        let _ = slice.table(&engine.tables);
    }
}

/// The slices that have range deletes.
fn with_spans(tree: &Tree) -> impl Iterator<Item = &Arc<Slice>> {
    let runs = tree.runs.iter().filter(|run| run.meta.spans.is_some());
    runs.chain(tree.levels.iter().flat_map(|level| level.spanned()))
}

/// True if the tree may have values that end.
fn has_ends(tree: &Tree) -> bool {
    tree.runs.iter().any(|run| run.meta.ends.is_some())
        || tree.levels.iter().any(|level| level.has_ends())
}

/// The slices that can leave the tree unread.
fn drops(engine: &Engine, tree: &Tree, state: &CompactionState) -> Plan {
    let covers: Vec<_> = with_spans(tree).filter_map(|slice| slice.spans_if_open()).collect();
    let planned = match covers.is_empty() {
        true => Plan::DoNothing,
        false => plan_drop(tree, &state.busy, &engine.readers(), &covers),
    };
    match planned {
        Plan::DoNothing if has_ends(tree) => {
            let horizon = || engine.readers().horizon();
            plan_ended(tree, &state.busy, engine.oldest_reader(), horizon)
        }
        planned => planned,
    }
}

/// Starts jobs until no job is due or no thread is free. Small ones begin once `jobs` is dropped,
/// or earlier.
pub(super) fn start_jobs(
    jobs: &mut Jobs<'_>,
    engine: &Arc<Engine>,
    family: &Arc<Keyspace>,
    start: Start,
    holdings: &Holdings,
) -> Started {
    let (policy, garbage) = (policy_of(engine, family), holdings.garbage_of(engine, family));
    let mut begun = 0;
    while begun == 0 || start != Start::OneIdle {
        open_spans(engine, &family.view().tree);
        let mut state = family.compactions.state.lock();
        take_in_flush(family, &policy, &mut state);
        match begin_next(engine, family, start, (&policy, &garbage), &mut state) {
            Err(is_idle) => return Started { begun, is_idle },
            Ok((planned, job)) => {
                drop(state);
                jobs.add(planned, job);
                begun += 1;
            }
        }
    }
    Started { begun, is_idle: false }
}

/// Plans a job and counts it as running. An error says whether none is due and none runs.
fn begin_next(
    engine: &Engine,
    family: &Arc<Keyspace>,
    start: Start,
    (policy, garbage): (&Policy, &Garbage),
    state: &mut CompactionState,
) -> Result<(Plan, Begun), bool> {
    state.garbage = garbage.debt();
    if family.is_dropped() {
        return Err(state.running == 0);
    }
    if state.running >= engine.compactor_count || state.is_suspended() {
        return Err(false);
    }
    let hints = hints_of(engine, state, start != Start::Due);
    let tree = family.view().tree.clone();
    damage::forget_gone(state, &tree);
    let planned = match drops(engine, &tree, state) {
        Plan::DoNothing => plan_with_garbage(&tree, policy, &state.busy, &hints, garbage),
        dropped => dropped,
    };
    let planned = match planned {
        Plan::DoNothing => plan_clean(&tree, policy, &state.busy, &hints, &state.cleaned),
        planned => planned,
    };
    let planned = match planned {
        Plan::DoNothing if may_compact_short(engine, state, start) => {
            let short = plan_short(&tree, policy, &state.busy, &hints);
            // What clones share they would share no longer.
            let has_work = !matches!(short, Plan::DoNothing);
            match has_work && engine.families.has_relative(family) {
                true => {
                    reached(Reach::ShortShared);
                    Plan::DoNothing
                }
                false => short,
            }
        }
        planned => planned,
    };
    if matches!(planned, Plan::DoNothing) {
        return Err(state.running == 0);
    }
    let job = Begun::new(family, state, &planned);
    Ok((planned, job))
}

/// True if short slices may become longer: it is never urgent.
fn may_compact_short(engine: &Engine, state: &CompactionState, start: Start) -> bool {
    state.running == 0 && (start != Start::Due || engine.compactors.queued_count() == 0)
}

/// A job that has begun. Those who wait for it learn of its end however it ends: a close drops jobs
/// that no thread has taken, and a job may panic.
struct Begun {
    family: Arc<Keyspace>,
    id: JobId,
    is_ended: bool,
}

impl Begun {
    fn new(family: &Arc<Keyspace>, state: &mut CompactionState, planned: &Plan) -> Begun {
        Begun { family: family.clone(), id: begin(state, planned), is_ended: false }
    }

    fn end(mut self, engine: &Engine, failure: Option<Error>) {
        self.is_ended = true;
        engine.disk_room.note_compaction(failure.as_ref());
        end(&self.family, self.id, failure);
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        if !self.is_ended {
            let panicked = || Error::poisoned(PoisonCause::panicked("in a compaction", ""));
            let error = if is_unwinding() { panicked() } else { Error::closed() };
            end(&self.family, self.id, Some(error));
        }
    }
}

fn begin(state: &mut CompactionState, planned: &Plan) -> JobId {
    note_begun(planned);
    state.running += 1;
    state.busy.begin(planned)
}

fn end(family: &Keyspace, id: JobId, failure: Option<Error>) {
    family.compactions.state.lock().note_end(id, failure);
    family.compactions.ended.notify_all();
}

/// Starts compactions again that found no room.
fn retry_for_room(engine: &Arc<Engine>) {
    let mut families = engine.families.all();
    families.retain(|family| family.compactions.state.lock().try_now());
    schedule_these(engine, &families);
}

/// Called once a round of maintenance: starts compactions again that failed, although no flush of
/// their family has come since.
pub(crate) fn retry(engine: &Arc<Engine>) {
    if engine.check_writable().is_err() {
        return;
    }
    let has_flushed = engine.has_flushed.swap(false, Ordering::Relaxed);
    let (mut families, mut waits) = (engine.families.all(), false);
    families.retain(|family| {
        let mut state = family.compactions.state.lock();
        waits |= state.is_suspended_for_now() || state.running > 0;
        if has_flushed {
            state.note_flush();
        }
        state.tries_again()
    });
    engine.disk_room.note_waits(waits);
    schedule_these(engine, &families);
}

/// A dropped family no longer paces writers.
pub(crate) fn forget(engine: &Engine, family: &Keyspace) {
    note_backlog(engine, family);
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
