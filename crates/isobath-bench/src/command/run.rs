//! `run`: every engine × threads × parameter × repeat of a Lua workload, engines taking turns.

use super::repeats::Budget;
use super::run_config::RunConfig;
use super::{Job, directory, exit_code, place, ramp, run_isolated};
use crate::cli::RunFlags;
use crate::drive::Stop;
use crate::engine;
use crate::lua::{LuaPoint, Workload};
use crate::measure::ensure_room;
use crate::report::{self, REPORT_FORMAT, Report};
use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

pub(super) fn execute(flags: &RunFlags) -> Result<ExitCode> {
    let mut config = RunConfig::from_flags(flags)?;
    let workload = Workload::read(&config.workload)?;
    config.make_effective(&workload)?;
    let settings = config.settings(&workload)?;
    let base = config.common.path.clone();
    directory::claim(&base)?;
    let needed = settings
        .items
        .saturating_mul((settings.key_size + settings.value_size) as u64)
        .saturating_mul(2 + config.engines.len() as u64);
    if !config.no_load {
        ensure_room(&base, needed)?;
    }
    let mut report = begin(&config, &workload, &base)?;
    let saved = base.join("run.toml");
    std::fs::write(&saved, &report.config)
        .with_context(|| format!("writing {}", saved.display()))?;
    let stop = Stop::on_signal()?;
    match config.ramp_p99_ms {
        Some(objective) => ramp::run_ramps(&config, &workload, objective, &stop, &mut report)?,
        None => run_points(&config, &workload, &stop, &mut report)?,
    }
    place::warn_of_builds(&mut report);
    report::print_report(&report);
    if let Some(out) = &flags.shared.out {
        report::write_all(&report, out)?;
        println!("the report is in {}", out.display());
    }
    println!("to do it again: {}", report.command);
    Ok(exit_code(&report, &stop))
}

fn begin(config: &RunConfig, workload: &Workload, base: &Path) -> Result<Report> {
    let machine = place::describe(&config.engines, base)?;
    let warnings = place::warn(base);
    Ok(Report {
        format: REPORT_FORMAT,
        run_id: run_id(),
        title: title(config, workload),
        command: format!("isobath-bench run --config {}", base.join("run.toml").display()),
        config: toml::to_string(config).context("writing the configuration")?,
        machine,
        rows: Vec::new(),
        failures: Vec::new(),
        warnings,
    })
}

fn title(config: &RunConfig, workload: &Workload) -> String {
    let durability = config.common.durability.name();
    match workload.about.as_str() {
        "" => format!("{}, {durability} durability", workload.name),
        about => format!("{}: {about}, {durability} durability", workload.name),
    }
}

/// Seconds since 1970, in a form that sorts.
pub(super) fn run_id() -> String {
    format!(
        "{:x}",
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis())
    )
}

fn run_points(
    config: &RunConfig,
    workload: &Workload,
    stop: &Stop,
    report: &mut Report,
) -> Result<()> {
    let combinations = config.combinations();
    let alone =
        config.engines.len() * config.threads.len() * combinations.len() * config.repeat as usize
            == 1;
    let mut loaded: Vec<&str> = Vec::new();
    let mut numbers = 0..;
    let budget = Budget::new(config.minutes);
    for repeat in 0..config.repeat {
        if !budget.allows_another(repeat) {
            break;
        }
        let mut places = 0..;
        for params in &combinations {
            for &threads in &config.threads {
                // Each point of each repeat begins with another engine, so that none always goes
                // first.
                let first = repeat as usize + places.next().unwrap_or_default();
                for turn in 0..config.engines.len() {
                    let name = config.engines[(first + turn) % config.engines.len()].as_str();
                    if stop.requested() {
                        return Ok(());
                    }
                    let there = config.no_load || (config.load_once && loaded.contains(&name));
                    let number = numbers.next().unwrap_or_default();
                    let load = !there;
                    let point = LuaPoint {
                        number,
                        ..point(config, workload, name, threads, params, repeat, load)?
                    };
                    match run_one(config, point, alone, stop) {
                        Ok(measured) => {
                            loaded.push(name);
                            report.rows.push(measured);
                        }
                        Err(error) if stop.requested() && !alone => {
                            report
                                .warnings
                                .push(format!("{name} t{threads} is missing: {error:#}"));
                        }
                        Err(error) => {
                            let reason = format!(
                                "{name} on {} t{threads} {params:?}: {error:#}",
                                workload.name
                            );
                            eprintln!("FAILED: {reason}");
                            report.failures.push(reason);
                        }
                    }
                }
            }
        }
    }
    Ok(())
}

pub(super) fn point(
    config: &RunConfig,
    workload: &Workload,
    name: &str,
    threads: u64,
    params: &BTreeMap<String, String>,
    repeat: u64,
    load: bool,
) -> Result<LuaPoint> {
    Ok(LuaPoint {
        engine: name.to_owned(),
        config: config.engine_config(name)?,
        workload: config.workload.clone(),
        settings: config.settings(workload)?,
        params: params.clone(),
        threads,
        load_threads: config.load_threads.unwrap_or(1),
        load,
        settle: config.settle,
        seconds: config.seconds,
        units: config.units,
        rate: config.rate,
        repeat,
        number: 0,
        settle_limit_seconds: config.settle_limit_seconds,
    })
}

pub(super) fn run_one(
    config: &RunConfig,
    point: LuaPoint,
    alone: bool,
    stop: &Stop,
) -> Result<report::Measured> {
    let base = &config.common.path;
    if point.load {
        directory::clear(base, &point.engine)?;
    }
    let persistent = engine::find(&point.engine)?.persistent;
    let point = LuaPoint { load: point.load || !persistent, ..point };
    let job = Job::Lua(Box::new(point));
    if alone { job.run(stop) } else { run_isolated(&job, base, stop) }
}
