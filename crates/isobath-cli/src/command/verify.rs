//! `verify`: every checksum of every file, with nothing changed.

use super::Outcome;
use super::output::Output;
use crate::cli::Verify;
use crate::failure::Result;
use crate::progress::Progress;
use crate::text::size;
use isobath::Env;
use isobath::tools::{self, Finding, Report};

pub(super) fn verify(asked: &Verify) -> Result<Outcome> {
    let progress = Progress::new("verifying");
    let mut tell = |done_bytes, total_bytes| progress.set(done_bytes, total_bytes);
    let report = tools::verify(&asked.database.path, &Env::system(), &mut tell)?;
    drop(progress);
    let outcome = if report.is_clean() { Outcome::Yes } else { Outcome::No };
    Output::answer(outcome, |output| match asked.json {
        true => output.json(&report),
        false => print(output, &report),
    })
}

fn print(output: &mut Output, report: &Report) -> Result<()> {
    for note in &report.notes {
        output.line(&line("note", note))?;
    }
    for finding in &report.findings {
        output.line(&line("damage", finding))?;
    }
    output.line(&format!(
        "checked {} files ({}): {} manifest edits, {} slices with {} entries, {} log records",
        report.files,
        size(report.bytes),
        report.edits,
        report.slices,
        report.entries,
        report.log_records
    ))?;
    if report.blob_files > 0 {
        let (files, values) = (report.blob_files, report.blob_values);
        let bytes = size(report.blob_bytes);
        output.line(&format!("among them {files} blob files: {values} values in use ({bytes})"))?;
    }
    match report.findings.len() {
        0 => output.line("nothing is damaged"),
        count => output.line(&format!(
            "{count} damaged place{}; nothing was changed. Restore the files named above from a backup or, with a copy \
             of the directory at hand, run `isobath repair`",
            if count == 1 { "" } else { "s" }
        )),
    }
}

fn line(what: &str, finding: &Finding) -> String {
    let path = finding.path.display();
    match finding.offset {
        Some(offset) => format!("{what}: {path} at offset {offset}: {}", finding.detail),
        None => format!("{what}: {path}: {}", finding.detail),
    }
}
