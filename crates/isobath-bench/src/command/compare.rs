//! `compare`: an earlier report against a later one; the exit code is a gate. `render`: the page and
//! the tables of a report again. `markdown`: reports as tables for a page that is kept.

use crate::report::{self, Change, Gate};
use anyhow::Result;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

pub(super) fn execute(before: &Path, after: &Path, threshold_percent: f64) -> Result<ExitCode> {
    let (old, new) = (report::read(before)?, report::read(after)?);
    let gate = report::judge(&old, &new, threshold_percent / 100.0);
    if old.machine.cpu != new.machine.cpu || old.machine.file_system != new.machine.file_system {
        println!("warning: the two reports come from different machines or file systems");
    }
    if old.title != new.title {
        println!("warning: `{}` is compared with `{}`", new.title, old.title);
    }
    print(&gate);
    Ok(if gate.passes() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn print(gate: &Gate) {
    for row in &gate.rows {
        let word = match row.change {
            Change::Better => "better",
            Change::Same => "same",
            Change::Worse => "WORSE",
            Change::Gone => "GONE",
        };
        match &row.rate {
            Some(rate) => println!(
                "{word:<7} {:<44} rate {:>6.2}x ({:.2} to {:.2}, {} repeats)  p99 {:>6.2}x",
                row.name, rate.ratio, rate.low, rate.high, rate.repeats, row.p99_ratio
            ),
            None => println!("{word:<7} {:<44} not measured alike in the later report", row.name),
        }
    }
    println!(
        "{} better, {} the same, {} worse, {} gone",
        gate.count(Change::Better),
        gate.count(Change::Same),
        gate.count(Change::Worse),
        gate.count(Change::Gone)
    );
}

pub(super) fn print_markdown(paths: &[PathBuf]) -> Result<ExitCode> {
    let reports = paths.iter().map(|path| report::read(path)).collect::<Result<Vec<_>>>()?;
    print!("{}", report::markdown(&reports));
    Ok(ExitCode::SUCCESS)
}

pub(super) fn render(path: &Path, out: &Path) -> Result<ExitCode> {
    report::write_all(&report::read(path)?, out)?;
    println!("the report is in {}", out.display());
    Ok(ExitCode::SUCCESS)
}
