//! `stats`: what the database consists of, and what it costs.

use super::Outcome;
use super::open::reading;
use super::output::Output;
use crate::cli::Stats;
use crate::failure::Result;
use crate::text::{Form, size};
use isobath::Env;
use isobath::tools::{self, Inspection};
use isobath::{FamilyMetrics, LevelMetrics, Metrics};
use serde::Serialize;

/// Everything, as `--json` prints it.
#[derive(Serialize)]
struct Everything<'a> {
    metrics: &'a Metrics,
    amplification: &'a Amplification,
    layout: &'a Inspection,
}

/// What the tree costs over what it holds.
#[derive(Serialize)]
struct Amplification {
    /// Bytes written to the device for each byte committed, since the database was opened.
    write: f64,
    /// Bytes of tables for each byte of keys and values in them, old versions included.
    space: f64,
    /// Runs that a read of a key may have to look into, in the deepest family.
    read_runs: u64,
}

impl Amplification {
    fn of(metrics: &Metrics) -> Amplification {
        let levels = || metrics.families.iter().flat_map(|family| &family.levels);
        let raw_bytes: u64 = levels().map(|level| level.raw_bytes).sum();
        Amplification {
            write: metrics.write_amplification(),
            space: metrics.table_bytes() as f64 / raw_bytes.max(1) as f64,
            read_runs: metrics.families.iter().map(runs).max().unwrap_or(0),
        }
    }
}

/// In level 0 each slice is a run, below it each level is one.
fn runs(family: &FamilyMetrics) -> u64 {
    let mut levels = family.levels.iter().map(|level| level.slices);
    levels.next().unwrap_or(0) + levels.filter(|slices| *slices > 0).count() as u64
}

pub(super) fn stats(asked: &Stats) -> Result<Outcome> {
    let path = &asked.database.path;
    let metrics = reading(path, |db| Ok(db.metrics()))?;
    let layout = tools::inspect(path, &Env::system())?;
    let amplification = Amplification::of(&metrics);
    let mut output = Output::new();
    if asked.json {
        let everything =
            Everything { metrics: &metrics, amplification: &amplification, layout: &layout };
        output.json(&everything)?;
    } else {
        summary(&mut output, &metrics, &amplification, &layout)?;
        for family in &metrics.families {
            tree(&mut output, family)?;
        }
        counters(&mut output, &metrics)?;
        if asked.files {
            files(&mut output, &layout)?;
        }
    }
    output.finish()?;
    Ok(Outcome::Yes)
}

fn summary(
    output: &mut Output,
    metrics: &Metrics,
    amplification: &Amplification,
    layout: &Inspection,
) -> Result<()> {
    let table_bytes: u64 = layout.tables.iter().map(|table| table.bytes).sum();
    let log_bytes: u64 = layout.segments.iter().map(|segment| segment.bytes).sum();
    let in_use = layout.segments.iter().filter(|segment| segment.in_use).count();
    output.line(&format!("database       {}", layout.uuid))?;
    output.line(&format!("manifest       {:06}, term {}", layout.manifest, layout.term))?;
    output.line(&format!("tables         {} files, {}", layout.tables.len(), size(table_bytes)))?;
    output.line(&format!(
        "log            {} files, {}; {in_use} of them in use",
        layout.segments.len(),
        size(log_bytes)
    ))?;
    if metrics.transactions_in_doubt > 0 {
        let in_doubt = metrics.transactions_in_doubt;
        let how = "see `isobath transactions list`";
        output.line(&format!("in doubt       {in_doubt} prepared transactions: {how}"))?;
    }
    output.line(&format!("families       {}", metrics.families.len()))?;
    output.line(&format!(
        "amplification  {:.2} bytes on disk for each byte of keys and values; a read searches up to {} runs",
        amplification.space, amplification.read_runs
    ))
}

fn tree(output: &mut Output, family: &FamilyMetrics) -> Result<()> {
    let name = Form::Text.show(family.name.as_bytes());
    output.line(&format!("\nfamily {name} (id {})", family.id))?;
    output.line("  level  slices     on disk         raw      entries      deletes")?;
    let mut total = LevelMetrics::default();
    for (depth, level) in family.levels.iter().enumerate() {
        row(output, &depth.to_string(), level)?;
        total.slices += level.slices;
        total.disk_bytes += level.disk_bytes;
        total.raw_bytes += level.raw_bytes;
        total.entries += level.entries;
        total.deletes += level.deletes;
    }
    row(output, "all", &total)
}

fn row(output: &mut Output, title: &str, level: &LevelMetrics) -> Result<()> {
    output.line(&format!(
        "  {title:<5}  {:>6}  {:>10}  {:>10}  {:>11}  {:>11}",
        level.slices,
        size(level.disk_bytes),
        size(level.raw_bytes),
        level.entries,
        level.deletes
    ))
}

/// The counters that are not zero: the database was open for this command only.
fn counters(output: &mut Output, metrics: &Metrics) -> Result<()> {
    let counters = [
        ("log records replayed", metrics.recovered_records),
        ("log bytes replayed", metrics.recovered_bytes),
        ("flushes", metrics.flushes),
        ("flushed bytes", metrics.flush_bytes),
        ("compactions", metrics.compactions),
        ("bytes read by compactions", metrics.compaction_read_bytes),
        ("bytes written by compactions", metrics.compaction_written_bytes),
        ("trivial moves", metrics.trivial_moves),
        ("slices dropped unread", metrics.slices_dropped),
        ("bytes dropped unread", metrics.dropped_bytes),
        ("blocks read", metrics.cache_misses),
        ("bytes of filters and indexes", metrics.filter_index_bytes),
    ];
    let mut is_first = true;
    for (name, count) in counters.into_iter().filter(|(_, count)| *count > 0) {
        if std::mem::take(&mut is_first) {
            output.line("\ncounters since this command opened the database")?;
        }
        output.line(&format!("  {name:<38} {count:>14}"))?;
    }
    Ok(())
}

fn files(output: &mut Output, layout: &Inspection) -> Result<()> {
    output.line("\ntable files")?;
    for table in &layout.tables {
        output.line(&format!("  {}  {}", table.path.display(), size(table.bytes)))?;
        for slice in &table.slices {
            output.line(&format!(
                "    family {} level {}: {} entries ({} deletes), {}, {} to {}",
                slice.family,
                slice.level,
                slice.entries,
                slice.deletes,
                size(slice.disk_bytes),
                Form::Text.show(&slice.smallest),
                Form::Text.show(&slice.largest)
            ))?;
        }
    }
    output.line("\nlog files")?;
    for segment in &layout.segments {
        let use_of = if segment.in_use { "in use" } else { "waits to be used again" };
        let (path, bytes) = (segment.path.display(), size(segment.bytes));
        output.line(&format!("  {path}  {bytes}  from LSN {:#x}, {use_of}", segment.base))?;
    }
    Ok(())
}
