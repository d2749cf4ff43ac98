//! The results of a run: records, and the sinks that show them.

mod columns;
mod compare;
mod console;
mod gate;
mod html;
mod markdown;
mod record;
mod standing;
mod tables;
#[cfg(test)]
pub(crate) mod testing;
mod units;

pub(crate) use console::{print_report, print_suite};
pub(crate) use gate::{Change, Gate, Tolerances, differences, judge};
pub(crate) use markdown::markdown;
pub(crate) use record::{Iteration, Load, Measured, REPORT_FORMAT, Report, Subject};
pub(crate) use units::micros;

use anyhow::{Context, Result, bail};
use std::path::Path;

/// Writes the report in every form below `dir`.
pub(crate) fn write_all(report: &Report, dir: &Path) -> Result<()> {
    std::fs::create_dir_all(dir).with_context(|| format!("making {}", dir.display()))?;
    let write = |name: &str, text: String| {
        let path = dir.join(name);
        std::fs::write(&path, text).with_context(|| format!("writing {}", path.display()))
    };
    write("report.json", serde_json::to_string(report)?)?;
    write("report.html", html::render(report)?)?;
    write("report.csv", columns::separated(report, b',')?)?;
    write("report.tsv", columns::separated(report, b'\t')?)?;
    write("timeline.tsv", columns::timeline(report)?)?;
    write("config.toml", report.config.clone())
}

/// Reads a report that was written as JSON.
pub(crate) fn read(path: &Path) -> Result<Report> {
    let text =
        std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    let report: Report = serde_json::from_str(&text)
        .with_context(|| format!("{} isn't a report of isobath-bench", path.display()))?;
    if report.format != REPORT_FORMAT {
        bail!(
            "{} has format {}, and this build reads {REPORT_FORMAT}",
            path.display(),
            report.format
        );
    }
    Ok(report)
}
