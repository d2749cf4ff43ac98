//! One point of a `run`: one engine, one number of threads, one value of each swept parameter.
//!
//! open → load (measured, in parallel) → settle if asked → run → settle → close

use super::check::Provenance;
use super::state::ThreadState;
use super::transact::Ways;
use super::workload::{evaluate, function, lua_error};
use super::{Settings, Workload, context, generator, kv};
use crate::drive::{Limits, Pace, Progress, Share, Stop, TeamResult, Ticket, run_team};
use crate::engine::{self, Engine, EngineConfig, Marks, Settled, settle};
use crate::generate::Values;
use crate::measure::{
    OpKind, Probe, Recorder, Stopwatch, dir_bytes, reset_peak_memory, sync_files, thread_cpu,
};
use crate::report::{Load, Measured, Subject};
use anyhow::{Context, Result, anyhow};
use mlua::{Function, Lua, Table};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// How long a call into Lua may go on after it was told to end.
const PATIENCE: Duration = Duration::from_secs(5);
/// What a process ends with when Ctrl-C ends it.
const INTERRUPTED: i32 = 130;

/// All that a process needs to run a point.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct LuaPoint {
    pub(crate) engine: String,
    pub(crate) config: EngineConfig,
    pub(crate) workload: PathBuf,
    pub(crate) settings: Settings,
    pub(crate) params: BTreeMap<String, String>,
    pub(crate) threads: u64,
    pub(crate) load_threads: u64,
    /// Whether to call `load`; otherwise the database holds its data already.
    pub(crate) load: bool,
    pub(crate) settle: bool,
    pub(crate) seconds: f64,
    pub(crate) units: Option<u64>,
    pub(crate) rate: Option<f64>,
    pub(crate) repeat: u64,
    /// Counts the points of a run, which may follow each other on one database.
    pub(crate) number: u64,
    pub(crate) settle_limit_seconds: f64,
}

/// Runs the point, showing progress.
pub(crate) fn run_point(point: &LuaPoint, stop: &Stop) -> Result<Measured> {
    let workload = Workload::read(&point.workload)?;
    let kind = engine::find(&point.engine)?;
    let engine = (kind.open)(&point.config).with_context(|| format!("opening {}", point.engine))?;
    let cast = point.cast(&workload, (engine.as_ref(), kind.answers), stop);
    let load = if point.load { cast.load()? } else { None };
    reset_peak_memory().ok();
    if kind.persistent {
        sync_files(&point.config.path)?;
    }
    let (before, marks) = (Probe::read(), Marks::read(engine.as_ref()));
    let result = cast.run()?;
    let stall_us = marks.stall_us(engine.as_ref());
    let peak = Probe::read();
    let (settled, settle_cpu_seconds) = cast.check_and_settle(&peak)?;
    let (counters, written) = (engine.counters(), marks.written(engine.as_ref()));
    engine.close().with_context(|| format!("closing {}", point.engine))?;
    let usage_settled = Probe::read().since(&before);
    let TeamResult { recorder, share, wall_seconds, usage, sampler, .. } = result;
    Ok(Measured {
        engine: point.engine.clone(),
        engine_version: (kind.version)(),
        subject: point.subject(&workload),
        repeat: point.repeat,
        durability: point.config.durability,
        rate: point.rate,
        sustained: false,
        seconds_min: 0.0,
        load,
        // A unit is the time in Lua and in calls together, so its rate is over the whole time.
        seconds: wall_seconds,
        wall_seconds,
        units: share.units,
        hits: share.hits,
        misses: share.misses,
        kinds: recorder.kinds(),
        write_buffer_bytes: Some(point.config.write_buffer_bytes),
        user_bytes_written: share.user_bytes_written,
        user_bytes_read: share.user_bytes_read,
        usage,
        usage_settled,
        written,
        settled,
        settle_cpu_seconds,
        iteration: None,
        rss_peak_bytes: peak.rss_peak_bytes,
        vms_peak_bytes: peak.vms_peak_bytes,
        rss_anon_peak_bytes: sampler.rss_anon_peak_bytes,
        rss_file_peak_bytes: sampler.rss_file_peak_bytes,
        db_bytes: dir_bytes(&point.config.path),
        live_bytes: None,
        stall_us,
        timeline: sampler.samples,
        counters,
        rows_verified: 0,
        aborts: recorder.has(OpKind::Txn).then_some(share.aborts),
        beside: None,
        interrupted: stop.requested(),
    })
}

impl LuaPoint {
    fn cast<'a>(
        &'a self,
        workload: &'a Workload,
        (engine, checked): (&'a dyn Engine, bool),
        stop: &'a Stop,
    ) -> Cast<'a> {
        let Settings { value_size, compressibility, .. } = self.settings;
        Cast {
            point: self,
            workload,
            values: Arc::new(Values::new(value_size, compressibility)),
            provenance: Provenance::new(self.load),
            checked,
            engine,
            stop,
            tallies: Mutex::default(),
        }
    }

    fn subject(&self, workload: &Workload) -> Subject {
        Subject {
            test: workload.name.clone(),
            workload: workload.name.clone(),
            pattern: "lua".to_owned(),
            threads: self.threads,
            batch_size: self.settings.batch,
            key_size: self.settings.key_size,
            value_size: self.settings.value_size,
            range_size: 0,
            params: self.params.clone(),
        }
    }
}

/// The participants of a phase.
struct Cast<'a> {
    point: &'a LuaPoint,
    workload: &'a Workload,
    values: Arc<Values>,
    provenance: Provenance,
    /// Off for an engine that keeps nothing.
    checked: bool,
    engine: &'a dyn Engine,
    stop: &'a Stop,
    /// What all threads have counted.
    tallies: Mutex<BTreeMap<String, i64>>,
}

/// One thread's Lua.
struct Actor {
    state: Rc<RefCell<ThreadState>>,
    ctx: Table,
    table: Table,
    _lua: Lua,
}

impl Cast<'_> {
    fn actor(&self, thread: u64, threads: u64, published: Arc<AtomicU64>) -> Result<Actor> {
        let settings = &self.point.settings;
        let session = Ways::new(self.engine.session()?, self.engine.transactor().ok());
        let seed = settings.seed.wrapping_add(thread);
        let (values, provenance) = (Arc::clone(&self.values), self.provenance.clone());
        let state =
            ThreadState::new(session, settings.clone(), values, provenance, seed, published);
        let state = Rc::new(RefCell::new(state));
        let lua = Lua::new();
        kv::install(&lua, &state).map_err(lua_error)?;
        generator::install(&lua, &state).map_err(lua_error)?;
        lua.load(format!("math.randomseed({seed})")).exec().map_err(lua_error)?;
        let ctx = context::build(&lua, settings, &self.point.params, thread, threads)
            .map_err(lua_error)?;
        ctx.set("ops", self.point.units.unwrap_or(0)).map_err(lua_error)?;
        ctx.set("checked", self.checked).map_err(lua_error)?;
        ctx.set("point", self.point.number).map_err(lua_error)?;
        let table = evaluate(&lua, &self.workload.path, &self.workload.source)?;
        Ok(Actor { state, ctx, table, _lua: lua })
    }

    fn load(&self) -> Result<Option<Load>> {
        let threads = self.point.load_threads;
        if function(&self.actor(0, threads, Arc::default())?.table, "load")?.is_none() {
            return Ok(None);
        }
        let title = format!("{} load", self.point.engine);
        let progress = Progress::count(&title, self.point.settings.items);
        let patience = Patience::new(self.stop, "load");
        let before = Probe::read();
        let result = run_team(
            self.engine,
            threads,
            Limits::default(),
            self.stop,
            &|done| {
                progress.set(done);
                patience.end_if_over();
            },
            |ticket, _, share| {
                let actor = self.actor(ticket.thread, ticket.threads, ticket.counter())?;
                actor.state.borrow_mut().stop = Some(self.stop.clone());
                let load =
                    function(&actor.table, "load")?.ok_or_else(|| anyhow!("`load` is gone"))?;
                end_or_fail(load.call::<()>(&actor.ctx), ticket)?;
                share.units = actor.state.borrow().operations;
                Ok(())
            },
        )?;
        drop(progress);
        let mut load = Load {
            operations: result.share.units,
            seconds: result.wall_seconds,
            timeline: result.sampler.samples,
            ..Load::default()
        };
        if self.point.settle {
            load.settled = self.settle()?;
        }
        load.device_write_bytes = Probe::read().since(&before).device_write_bytes;
        Ok(Some(load))
    }

    fn settle(&self) -> Result<Settled> {
        let spinner = Progress::spinner(&format!("{} settle", self.point.engine));
        let limit = Duration::from_secs_f64(self.point.settle_limit_seconds);
        settle(self.engine, limit, self.stop, |debt| spinner.message(format!("debt {debt}")))
    }

    fn run(&self) -> Result<TeamResult> {
        // After a Ctrl-C during the load nothing runs, but the load is still reported.
        if self.stop.requested() {
            return Ok(TeamResult::default());
        }
        let point = self.point;
        let title = format!("{} {} t{}", point.engine, self.workload.name, point.threads);
        let progress = Progress::clock(&title, point.seconds);
        let start = Instant::now();
        let limits = Limits { seconds: Some(point.seconds), rate: point.rate };
        let patience = Patience::new(self.stop, "run");
        let show = |done: u64| {
            patience.end_if_over();
            let elapsed = start.elapsed().as_secs_f64();
            progress.set(elapsed as u64);
            progress.message(format!("{:.0} ops/s", done as f64 / elapsed.max(0.001)));
        };
        run_team(self.engine, point.threads, limits, self.stop, &show, |ticket, recorder, share| {
            let actor = self.actor(ticket.thread, ticket.threads, ticket.counter())?;
            let run = function(&actor.table, "run")?.ok_or_else(|| anyhow!("`run` is gone"))?;
            let share_of_units = point.units.map(|units| {
                units * (ticket.thread + 1) / ticket.threads
                    - units * ticket.thread / ticket.threads
            });
            actor.state.borrow_mut().stop = Some(self.stop.clone());
            for kind in OpKind::ALL {
                recorder.prepare(kind);
                actor.state.borrow_mut().recorder.prepare(kind);
            }
            let units = drive(&actor, &run, ticket, recorder, share_of_units)?;
            let mut state = actor.state.borrow_mut();
            recorder.merge(&state.recorder);
            let mut tallies = self.tallies.lock();
            for (name, amount) in &state.tallies {
                *tallies.entry(name.clone()).or_default() += amount;
            }
            *share = Share { units, ..std::mem::take(&mut state.share) };
            Ok(())
        })
    }
}

impl Cast<'_> {
    /// Also gives the processor time since the phase `ended`, without that of the check.
    fn check_and_settle(&self, ended: &Probe) -> Result<(Settled, Option<f64>)> {
        let before = thread_cpu();
        self.check()?;
        let own = thread_cpu().saturating_sub(before).as_secs_f64();
        if !self.point.settle {
            return Ok(Default::default());
        }
        let settled = self.settle()?;
        let seconds = Probe::read().since(ended).cpu_seconds() - own;
        Ok((settled, Some(seconds.max(0.0))))
    }

    /// Calls the workload's own check of the database. A workload may need to know all that was
    /// done to the database: then only data that this point has loaded is checked.
    fn check(&self) -> Result<()> {
        let is_known = self.point.load || self.workload.check_always;
        if !is_known || !self.checked || self.stop.requested() {
            return Ok(());
        }
        let actor = self.actor(0, 1, Arc::default())?;
        let Some(check) = function(&actor.table, "check")? else { return Ok(()) };
        actor.ctx.set("tally", self.tallies.lock().clone()).map_err(lua_error)?;
        actor.ctx.set("loaded", self.point.load).map_err(lua_error)?;
        check.call::<()>(&actor.ctx).map_err(lua_error).context("the workload's check failed")
    }
}

/// Ends the process when a call into Lua goes on and on after it was told to end. The verbs notice
/// that by themselves; a loop that calls none can't be ended in another way.
struct Patience<'a> {
    stop: &'a Stop,
    function: &'static str,
    asked: OnceLock<Instant>,
}

impl<'a> Patience<'a> {
    fn new(stop: &'a Stop, function: &'static str) -> Patience<'a> {
        Patience { stop, function, asked: OnceLock::new() }
    }

    /// Is called again and again while the threads work.
    fn end_if_over(&self) {
        if self.stop.requested() && self.asked.get_or_init(Instant::now).elapsed() >= PATIENCE {
            eprintln!(
                "error: `{}` goes on {} s after it was told to end: a loop in it calls no verb, or \
                 the engine doesn't answer; this point is lost",
                self.function,
                PATIENCE.as_secs()
            );
            std::process::exit(INTERRUPTED);
        }
    }
}

/// A call that is told to end early ends with an error that the harness has raised. That error is
/// no failure of the workload.
fn end_or_fail(outcome: mlua::Result<()>, ticket: &Ticket<'_>) -> Result<()> {
    match outcome {
        Err(_) if ticket.stopped() => Ok(()),
        outcome => outcome.map_err(lua_error),
    }
}

/// Calls `run` until time, units or patience are over; returns the units done.
fn drive(
    actor: &Actor,
    run: &Function,
    ticket: &Ticket<'_>,
    recorder: &mut Recorder,
    limit: Option<u64>,
) -> Result<u64> {
    let mut pace =
        ticket.rate.map(|rate| Pace::new(rate, ticket.thread, ticket.threads, ticket.start));
    let mut units = 0;
    let mut stopwatch = Stopwatch::start();
    while limit.is_none_or(|limit| units < limit) && !ticket.over(stopwatch.last()) {
        let due = pace.as_mut().map(|pace| pace.wait(1));
        actor.ctx.raw_set("iter", units).map_err(lua_error)?;
        end_or_fail(run.call::<()>(&actor.ctx), ticket)?;
        if ticket.stopped() {
            // The stop may have interrupted this call, so it is not counted.
            break;
        }
        let lap = stopwatch.lap();
        // In an open loop a unit's time starts when it was due, so it includes the wait for its
        // turn.
        let nanos = due
            .map_or(lap, |due| stopwatch.last().saturating_duration_since(due).as_nanos() as u64);
        recorder.record(OpKind::Unit, nanos, 1);
        units += 1;
    }
    Ok(units)
}
