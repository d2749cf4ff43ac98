//! `stats`: what the database consists of, and what it costs.

use super::Outcome;
use super::open::reading;
use super::output::Output;
use crate::cli::Stats;
use crate::failure::Result;
use crate::text::{Form, size};
use isobath::Env;
use isobath::tools::{self, Inspection};
use isobath::{DistinctKeys, FamilyMetrics, LevelMetrics, Metrics};
use serde::Serialize;
use std::collections::BTreeMap;

/// Everything, as `--json` prints it.
#[derive(Serialize)]
struct Everything<'a> {
    metrics: &'a Metrics,
    distinct_keys: &'a BTreeMap<String, DistinctKeys>,
    amplification: &'a Amplification,
    layout: &'a Inspection,
}

/// What the tree costs over what it holds.
#[derive(Serialize)]
struct Amplification {
    /// Bytes written to the device for each byte committed, since the database was opened.
    write: f64,
    /// Bytes of tables and blob files for each byte of keys and values in them, old versions
    /// included. Values in blob files count as they are stored.
    space: f64,
    /// Runs that a read of a key may have to look into, in the deepest family.
    read_runs: u64,
}

impl Amplification {
    fn of(metrics: &Metrics) -> Amplification {
        let levels = || metrics.families.iter().flat_map(|family| &family.levels);
        let held_bytes: u64 = levels().map(|level| level.raw_bytes + level.separated_bytes).sum();
        Amplification {
            write: metrics.write_amplification(),
            space: (metrics.table_bytes() + metrics.blob_bytes) as f64 / held_bytes.max(1) as f64,
            read_runs: metrics
                .families
                .iter()
                .map(|it| it.total().read_amplification)
                .max()
                .unwrap_or(0),
        }
    }
}

pub(super) fn stats(asked: &Stats) -> Result<Outcome> {
    let path = &asked.database.path;
    let (metrics, distinct_keys) = reading(path, |db| {
        let mut distinct_keys = BTreeMap::new();
        for name in db.list_families() {
            if let Some(family) = db.family_if_exists(&name)? {
                distinct_keys.insert(name, family.distinct_keys()?);
            }
        }
        Ok((db.metrics(), distinct_keys))
    })?;
    let layout = tools::inspect(path, &Env::system())?;
    let amplification = Amplification::of(&metrics);
    let mut output = Output::new();
    if asked.json {
        let (metrics, amplification) = (&metrics, &amplification);
        let everything =
            Everything { metrics, distinct_keys: &distinct_keys, amplification, layout: &layout };
        output.json(&everything)?;
    } else {
        summary(&mut output, &metrics, &amplification, &layout)?;
        for family in &metrics.families {
            tree(&mut output, family, distinct_keys.get(&family.name))?;
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
    if metrics.shared_bytes > 0 {
        let bytes = size(metrics.shared_bytes);
        output
            .line(&format!("shared         {bytes} of tables are in the figures of clones, too"))?;
    }
    let dead_share = 100 * metrics.table_dead_bytes / table_bytes.max(1);
    output.line(&format!(
        "dead space     {} of the tables, {dead_share}%",
        size(metrics.table_dead_bytes)
    ))?;
    apart(output, metrics)?;
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

/// What lies apart from its key.
fn apart(output: &mut Output, metrics: &Metrics) -> Result<()> {
    if metrics.blob_files > 0 {
        let (bytes, garbage) = (metrics.blob_bytes, metrics.blob_garbage_bytes());
        let (files, garbage_share) = (metrics.blob_files, 100 * garbage / bytes.max(1));
        let (bytes, live) = (size(bytes), size(metrics.blob_live_bytes));
        output.line(&format!(
            "blob files     {files} files, {bytes}; {live} is live, {garbage_share}% is garbage"
        ))?;
    }
    let families = || metrics.families.iter().map(FamilyMetrics::total);
    let separated: u64 = families().map(|total| total.separated_values).sum();
    if separated > 0 {
        let entries: u64 = families().map(|total| total.entries).sum();
        let (share, bytes) =
            (100 * separated / entries.max(1), families().map(|total| total.separated_bytes).sum());
        output.line(&format!(
            "separated      {separated} values in blob files, {}; {share}% of all entries",
            size(bytes)
        ))?;
    }
    if metrics.streams > 0 {
        let (files, bytes) = (metrics.streams, size(metrics.stream_bytes));
        output.line(&format!("streams        {files} values with a file of their own, {bytes}"))?;
    }
    Ok(())
}

fn tree(output: &mut Output, family: &FamilyMetrics, keys: Option<&DistinctKeys>) -> Result<()> {
    let name = Form::Text.show(family.name.as_bytes());
    output.line(&format!("\nfamily {name} (id {})", family.id))?;
    output.line(
        "  level  slices  runs     on disk         raw      entries      deletes  share   oldest",
    )?;
    for (depth, level) in family.levels.iter().enumerate() {
        row(output, &depth.to_string(), level)?;
    }
    row(output, "all", &family.total())?;
    let Some(keys) = keys else { return Ok(()) };
    output.line(&format!(
        "  about {} different keys with a stored value (standard error {:.1}%)",
        keys.keys,
        100.0 * keys.standard_error
    ))
}

fn row(output: &mut Output, title: &str, level: &LevelMetrics) -> Result<()> {
    output.line(&format!(
        "  {title:<5}  {:>6}  {:>4}  {:>10}  {:>10}  {:>11}  {:>11}  {:>4.0}%  {:>7}",
        level.slices,
        level.read_amplification,
        size(level.disk_bytes),
        size(level.raw_bytes),
        level.entries,
        level.deletes,
        100.0 * level.delete_share(),
        level.oldest_delete_age_ms.map_or_else(|| "-".to_owned(), age)
    ))
}

/// A time ago, in the largest unit of which there are two.
fn age(ms: u64) -> String {
    let units = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000)];
    let unit = units.into_iter().find(|(_, unit_ms)| ms >= 2 * unit_ms);
    let (name, unit_ms) = unit.unwrap_or(("ms", 1));
    format!("{} {name}", ms / unit_ms)
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
    if !layout.blobs.is_empty() {
        output.line("\nblob files")?;
    }
    for blob in &layout.blobs {
        output.line(&format!("  {}  {}", blob.path.display(), size(blob.bytes)))?;
    }
    output.line("\nlog files")?;
    for segment in &layout.segments {
        let use_of = if segment.in_use { "in use" } else { "waits to be used again" };
        let (path, bytes) = (segment.path.display(), size(segment.bytes));
        output.line(&format!("  {path}  {bytes}  from LSN {:#x}, {use_of}", segment.base))?;
    }
    Ok(())
}
