//! `repair`: a usable database out of a damaged one, and what was lost.

use super::Outcome;
use super::output::Output;
use crate::cli::Repair;
use crate::failure::{Failure, Result};
use crate::progress::Progress;
use crate::text::Form;
use isobath::tools::{self, RepairOptions, RepairReport};
use std::ops::ControlFlow;

pub(super) fn repair(asked: &Repair) -> Result<Outcome> {
    let progress = Progress::new("repairing");
    let options = RepairOptions::new().dry_run(asked.dry_run).lose_unknown(asked.lose_unknown);
    let report = tools::repair(&asked.database.path, &options, &mut |done_bytes, total_bytes| {
        progress.set(done_bytes, total_bytes);
        ControlFlow::Continue(())
    })?;
    drop(progress);
    let is_well = report.losses.is_empty() && (report.is_sound() || !report.is_dry_run);
    let outcome = if is_well { Outcome::Yes } else { Outcome::No };
    let told = Output::answer(outcome, |output| match asked.json {
        true => output.json(&report),
        false => print(output, &report, Form::of(asked.form.hex)),
    });
    match asked.dry_run {
        true => told,
        false => told.map_err(Failure::once_done),
    }
}

fn print(output: &mut Output, report: &RepairReport, form: Form) -> Result<()> {
    for line in report.lines(|key| form.show(key)) {
        output.line(&line)?;
    }
    if let Some(path) = &report.kept_in {
        output.line(&format!("these lines are also in {}", path.display()))?;
    }
    if report.is_sound() {
        return output.line("nothing is damaged; nothing was changed");
    }
    let would = if report.is_dry_run { "to be made" } else { "made" };
    output.line(&format!(
        "{} tables kept, {} {would}; {} entries saved from damaged tables, {} records from the log",
        report.tables_kept, report.tables_made, report.entries_saved, report.records_saved
    ))?;
    match (report.is_dry_run, report.losses.len()) {
        (true, _) => output.line("nothing was changed; without --dry-run it would be repaired"),
        (false, 0) => output.line("repaired; nothing was lost"),
        (false, count) => output.line(&format!("repaired; {count} losses, see above")),
    }
}
