//! `suite`: every row × repeat × engine, engines taking turns, each in a process of its own.
//!
//! A filled database is made once for each engine and shape of data; rows that only read open it,
//! rows that change it work on a copy.

use super::job::run_in_group;
use super::memory_group::MemoryGroup;
use super::repeats::Budget;
use super::suite_config::SuiteConfig;
use super::{Job, directory, exit_code, place, run_isolated};
use crate::cli::SuiteFlags;
use crate::drive::Stop;
use crate::engine;
use crate::measure::{ensure_room, sync_files};
use crate::report::{self, Measured, REPORT_FORMAT, Report};
use crate::suite::{Memtable, Phase, Row, SuiteJob};
use anyhow::{Context, Result};
use std::fs;
use std::io::IsTerminal;
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

const WORK_DIR: &str = "row";

pub(super) fn execute(flags: &SuiteFlags) -> Result<ExitCode> {
    let config = SuiteConfig::from_flags(flags)?;
    let rows = config.chosen_rows()?;
    let base = &config.common.path;
    directory::claim(base)?;
    ensure_room(base, room_needed(&config, &rows))?;
    let mut report = begin(&config, base)?;
    let stop = Stop::on_signal()?;
    let start = Instant::now();
    run_rows(&config, &rows, &stop, &mut report)?;
    if !config.keep {
        for name in &config.engines {
            directory::clear(base, name)?;
        }
    }
    place::warn_of_builds(&mut report);
    report::print_suite(&report);
    if let Some(out) = &flags.shared.out {
        report::write_all(&report, out)?;
        println!("the report is in {}", out.display());
    }
    println!("took {:.0} s; to do it again: {}", start.elapsed().as_secs_f64(), report.command);
    Ok(exit_code(&report, &stop))
}

/// Fixtures of every engine at their largest, a copy, and as much again for compactions.
fn room_needed(config: &SuiteConfig, rows: &[Row]) -> u64 {
    let largest =
        rows.iter().map(|row| row.keys.max(row.operations) * row.entry_bytes()).max().unwrap_or(0);
    let mut fixtures: Vec<(String, u64)> = rows
        .iter()
        .filter(|row| row.work.populated())
        .map(|row| (row.fixture(), row.keys * row.entry_bytes()))
        .collect();
    fixtures.sort_unstable();
    fixtures.dedup();
    let kept: u64 = fixtures.iter().map(|(_, bytes)| bytes).sum();
    kept * config.engines.len() as u64 + 3 * largest
}

fn begin(config: &SuiteConfig, base: &Path) -> Result<Report> {
    let machine = place::describe(&config.engines, base)?;
    let text = toml::to_string(config).context("writing the configuration")?;
    let saved = base.join("suite.toml");
    fs::write(&saved, &text).with_context(|| format!("writing {}", saved.display()))?;
    let warnings = place::warn(base);
    Ok(Report {
        format: REPORT_FORMAT,
        run_id: super::run::run_id(),
        title: format!(
            "suite {} at scale {}, {} durability",
            config.suite,
            config.scale.unwrap_or(0.0),
            config.common.durability.name()
        ),
        command: format!("isobath-bench suite --config {}", saved.display()),
        config: text,
        machine,
        rows: Vec::new(),
        failures: Vec::new(),
        warnings,
    })
}

fn run_rows(config: &SuiteConfig, rows: &[Row], stop: &Stop, report: &mut Report) -> Result<()> {
    let budget = Budget::new(config.minutes);
    for repeat in 0..config.repeat {
        if !budget.allows_another(repeat) {
            break;
        }
        for (number, row) in rows.iter().enumerate() {
            for turn in 0..config.engines.len() {
                let name = config.engines[(turn + repeat as usize + number) % config.engines.len()]
                    .as_str();
                if stop.requested() {
                    return Ok(());
                }
                if std::io::stderr().is_terminal() {
                    let turn = format!("{}/{}", number + 1, rows.len());
                    eprintln!("[{turn}, repeat {}] {} on {name}", repeat + 1, row.name);
                }
                match run_row(config, row, name, repeat, stop) {
                    Ok(measured) => report.rows.push(measured),
                    Err(error) if stop.requested() => {
                        let reason = format!("{} on {name} is missing: {error:#}", row.name);
                        report.warnings.push(reason);
                    }
                    Err(error) => {
                        let reason = format!("{} on {name}: {error:#}", row.name);
                        eprintln!("FAILED: {reason}");
                        report.failures.push(reason);
                    }
                }
            }
        }
    }
    Ok(())
}

fn run_row(
    config: &SuiteConfig,
    row: &Row,
    name: &str,
    repeat: u64,
    stop: &Stop,
) -> Result<Measured> {
    let base = &config.common.path;
    let home = base.join(name);
    fs::create_dir_all(&home).with_context(|| format!("making {}", home.display()))?;
    let job = |phase, directory: &str| -> Result<Job> {
        Ok(Job::Suite(Box::new(SuiteJob {
            engine: name.to_owned(),
            config: config.engine_config(name, row, directory)?,
            row: row.clone(),
            phase,
            repeat,
            rate: config.rate,
            settle_limit_seconds: config.settle_limit_seconds,
        })))
    };
    if !engine::find(name)?.persistent {
        return run_isolated(&job(Phase::Both, WORK_DIR)?, base, stop);
    }
    // What is to be in a memtable has to be written by the process that measures.
    let alone = row.memtable == Memtable::Alone;
    if !row.work.populated() || alone {
        remove(&home.join(WORK_DIR))?;
        let phase = if alone { Phase::Both } else { Phase::Measure };
        return run_isolated(&job(phase, WORK_DIR)?, base, stop);
    }
    let fixture = row.fixture();
    let told = home.join(format!("{fixture}.load.json"));
    if !home.join(&fixture).exists() {
        let partial = format!("{fixture}.partial");
        remove(&home.join(&partial))?;
        let populated =
            run_isolated(&job(Phase::Populate, &partial)?, base, stop).context("populating")?;
        fs::write(&told, serde_json::to_vec(&populated.load)?)
            .with_context(|| format!("writing {}", told.display()))?;
        fs::rename(home.join(&partial), home.join(&fixture))
            .context("keeping a filled database")?;
    }
    let changes = row.work.destructive() || row.memtable == Memtable::Before;
    let place = if changes { WORK_DIR } else { &fixture };
    if changes {
        remove(&home.join(WORK_DIR))?;
        directory::copy(&home.join(&fixture), &home.join(WORK_DIR))?;
    }
    let group = match row.memory_bytes {
        Some(limit) => {
            // Pages that are cached already are not charged to the group, so its reads of them
            // would be free.
            sync_files(&home)?;
            directory::forget(&home.join(place))?;
            Some(MemoryGroup::make(limit)?)
        }
        None => None,
    };
    let measured = run_in_group(&job(Phase::Measure, place)?, base, group.as_ref(), stop)?;
    // A database that an older build has filled has no such file.
    let load = fs::read(&told).ok().and_then(|text| serde_json::from_slice(&text).ok());
    Ok(Measured { load: load.unwrap_or_default(), ..measured })
}

fn remove(dir: &Path) -> Result<()> {
    if dir.exists() {
        fs::remove_dir_all(dir).with_context(|| format!("deleting {}", dir.display()))?;
    }
    Ok(())
}
