//! `compare`: an earlier report against a later one; the exit code is a gate. `render`: the page
//! and the tables of a report again. `markdown`: reports as tables for a page that is kept.

use crate::cli::CompareFlags;
use crate::measure::Comparison;
use crate::report::{self, Change, Gate, Tolerances};
use anyhow::{Result, bail};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

pub(super) fn execute(flags: &CompareFlags) -> Result<ExitCode> {
    let (old, new) = (report::read(&flags.before)?, report::read(&flags.after)?);
    let differences = report::differences(&old, &new);
    if !differences.is_empty() {
        let list = differences.join("\n  ");
        if !flags.unlike {
            bail!(
                "the reports aren't of equal machines and settings, so a difference means nothing \
                 (--unlike compares all the same):\n  {list}"
            );
        }
        println!("warning: the reports aren't of equal machines and settings:\n  {list}");
    }
    let tolerances = Tolerances {
        rate: flags.threshold / 100.0,
        p99: flags.p99_threshold / 100.0,
        memory: flags.memory_threshold / 100.0,
        disk: flags.disk_threshold / 100.0,
        amplification: flags.amplification_threshold / 100.0,
    };
    let gate = report::judge(&old, &new, &tolerances);
    print(&gate);
    Ok(if gate.passes() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn print(gate: &Gate) {
    let figure = |at: &Comparison| {
        format!("{:>6.2}x ({:.2} to {:.2}, {} repeats)", at.ratio, at.low, at.high, at.repeats)
    };
    for row in &gate.rows {
        let word = match row.change {
            Change::Better => "better",
            Change::Same => "same",
            Change::Worse => "WORSE",
            Change::Gone => "GONE",
        };
        match &row.rate {
            Some(rate) => println!("{word:<7} {:<44} rate {}", row.name, figure(rate)),
            None => println!("{word:<7} {:<44} not measured alike in the later report", row.name),
        }
        for cost in row.costs.iter().filter(|cost| cost.worse) {
            println!("        {:<44} {} {}", "", cost.name, figure(&cost.comparison));
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
