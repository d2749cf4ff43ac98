//! What a run leaves: records, and the sinks that show them.

mod compare;
mod console;
mod record;
mod units;

pub(crate) use console::{print_report, print_suite};
pub(crate) use record::{Load, Measured, REPORT_FORMAT, Report, Subject};

use anyhow::{Context, Result};
use std::path::Path;

/// Writes the report in every form below `dir`.
pub(crate) fn write_all(report: &Report, dir: &Path) -> Result<()> {
    std::fs::create_dir_all(dir).with_context(|| format!("making {}", dir.display()))?;
    let write = |name: &str, text: String| {
        let path = dir.join(name);
        std::fs::write(&path, text).with_context(|| format!("writing {}", path.display()))
    };
    write("report.json", serde_json::to_string_pretty(report)?)?;
    write("run.toml", report.config.clone())
}
