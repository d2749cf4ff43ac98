//! Tables for a person at a terminal.

use super::record::{Measured, Report};
use super::tables::slowest;
use super::units::{amplification, bytes, count, known, micros, percent, seconds};
use crate::measure::{Latency, median, median_known};
use comfy_table::{Attribute, Cell, CellAlignment, ContentArrangement, Table, presets};
use std::io::{IsTerminal, Write};

/// Prints the report to standard output.
pub(crate) fn print_report(report: &Report) {
    let text = render(report);
    // If the reader of the output has closed the pipe, the run has not failed.
    let _ = std::io::stdout().write_all(text.as_bytes());
}

/// Prints a suite to standard output: a line for each row, engines side by side.
pub(crate) fn print_suite(report: &Report) {
    let resources = super::tables::resources(report);
    let mut text = format!("{}\n{resources}\n{}", suite_table(report), notes(report));
    for (verdict, count) in super::compare::tally(report) {
        text.push_str(&format!("{verdict}: {count} rows\n"));
    }
    let _ = std::io::stdout().write_all(text.as_bytes());
}

fn suite_table(report: &Report) -> Table {
    let engines = report.engines();
    let mut table = new_table();
    let mut header = vec!["row".to_owned(), "t".to_owned()];
    for engine in &engines {
        header.extend([
            format!("{engine} ops/s"),
            "p50".to_owned(),
            "p99".to_owned(),
            "p99.9".to_owned(),
        ]);
    }
    let pairs = super::compare::pairs(report);
    let bases: Vec<&str> = engines
        .iter()
        .copied()
        .filter(|engine| pairs.iter().any(|pair| pair.base == *engine))
        .collect();
    header.extend(bases.iter().map(|base| format!("÷ {base}")));
    table.set_header(header.iter().map(|name| Cell::new(name).add_attribute(Attribute::Bold)));
    for subject in report.subjects() {
        let mut cells = vec![subject.test.clone(), subject.threads.to_string()];
        for engine in &engines {
            cells.extend(engine_cells(&report.repeats(engine, subject)));
        }
        for base in &bases {
            let pair = pairs.iter().find(|pair| pair.subject == subject && pair.base == *base);
            cells.push(pair.map_or(String::new(), super::compare::Pair::short));
        }
        table.add_row(cells);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// Median rate and the percentiles of the slowest kind of operation.
fn engine_cells(rows: &[&Measured]) -> [String; 4] {
    if rows.is_empty() {
        return Default::default();
    }
    let percentile = |of: fn(&Latency) -> Option<f64>| {
        known(median_known(rows.iter().map(|row| slowest(row, of))), micros)
    };
    let rate = median(&super::compare::rates(rows));
    let mark = if rows.iter().any(|row| row.writes()) {
        rows[0].durability.name().chars().next()
    } else {
        None
    };
    let mark = mark.map_or(String::new(), |mark| format!(" {mark}"));
    [
        format!("{}{mark}", count(rate)),
        percentile(|latency| latency.p50_us),
        percentile(|latency| latency.p99_us),
        percentile(|latency| latency.p999_us),
    ]
}

fn notes(report: &Report) -> String {
    let mut text = String::from(
        "b buffered, p process, s sync: what a returned write survived; ratios are of equals only\n",
    );
    text.push_str(match report.rows.iter().any(|row| row.rate.is_some()) {
        true => "open loop: latency counts from when a call was due\n",
        false => "closed loop: a thread calls again once it was answered, so a stall delays one call of each\n",
    });
    for row in report.rows.iter().filter(|row| row.short()) {
        let (name, seconds) = (row.subject.label(), row.wall_seconds);
        text.push_str(&format!("short: {name} on {} ended after {seconds:.1} s\n", row.engine));
    }
    for row in &report.rows {
        let Some(beside) = &row.beside else { continue };
        text.push_str(&format!(
            "reader beside {} on {}: {} of {} gets/s kept, p99 {}\n",
            row.subject.label(),
            row.engine,
            known(beside.kept(), percent),
            count(beside.alone.per_second),
            known(beside.beside.latency.p99_us, micros)
        ));
    }
    text.extend(report.warnings.iter().map(|warning| format!("warning: {warning}\n")));
    text.extend(report.failures.iter().map(|failure| format!("FAILED: {failure}\n")));
    text
}

fn render(report: &Report) -> String {
    let mut text = String::new();
    for row in &report.rows {
        text.push_str(&describe(row));
        text.push('\n');
    }
    if let Some(table) = super::tables::sweep(report) {
        text.push_str(&format!("{table}\n"));
    }
    for comparison in super::compare::sentences(report) {
        text.push_str(&comparison);
        text.push('\n');
    }
    for warning in &report.warnings {
        text.push_str(&format!("warning: {warning}\n"));
    }
    for failure in &report.failures {
        text.push_str(&format!("FAILED: {failure}\n"));
    }
    text
}

fn describe(row: &Measured) -> String {
    let mut text = format!("{}\n", headline(row));
    if let Some(load) = &row.load {
        let rate = load.operations as f64 / load.seconds.max(1e-9);
        text.push_str(&format!(
            "  load     {} in {} ({}/s), {} written",
            count(load.operations as f64),
            seconds(load.seconds),
            count(rate),
            known(load.device_write_bytes.map(|count| count as f64), bytes)
        ));
        if load.settled.seconds > 0.0 {
            text.push_str(&format!(", settled in {}", seconds(load.settled.seconds)));
        }
        text.push('\n');
    }
    let primitives = row.primitives();
    if row.units > 0 && row.units != primitives {
        text.push_str(&format!("  rate     {} units/s, ", count(row.per_second(row.units))));
    } else {
        text.push_str("  rate     ");
    }
    text.push_str(&format!(
        "{} ops/s over {}\n",
        count(row.per_second(primitives)),
        seconds(row.seconds)
    ));
    if let Some(rate) = row.hit_rate() {
        text.push_str(&format!("  hits     {}\n", percent(rate)));
    }
    if let Some(aborts) = row.aborts_per_commit() {
        text.push_str(&format!("  aborts   {} a commit\n", amplification(aborts)));
    }
    text.push_str(&format!("{}\n", latency_table(row)));
    text.push_str(&resources(row));
    text
}

fn headline(row: &Measured) -> String {
    let line = format!(
        "{} {} · {} · {} threads · {} B values · {} durability{}",
        row.engine,
        row.engine_version,
        row.subject.label(),
        row.subject.threads,
        row.subject.value_size,
        row.durability.name(),
        if row.interrupted { " · INTERRUPTED" } else { "" },
    );
    if std::io::stdout().is_terminal() { format!("\x1b[1m{line}\x1b[0m") } else { line }
}

fn latency_table(row: &Measured) -> Table {
    let mut table = new_table();
    table.set_header(
        ["operation", "calls", "calls/s", "mean", "p50", "p95", "p99", "p99.9", "max", "cv"]
            .map(|name| Cell::new(name).add_attribute(Attribute::Bold)),
    );
    for entry in &row.kinds {
        let latency = &entry.latency;
        let times = [
            Some(latency.mean_us),
            latency.p50_us,
            latency.p95_us,
            latency.p99_us,
            latency.p999_us,
            Some(latency.max_us),
        ];
        let mut cells = vec![
            entry.kind.name().to_owned(),
            count(latency.count as f64),
            count(row.per_second(latency.count)),
        ];
        cells.extend(times.map(|time| known(time, micros)));
        cells.push(format!("{:.0}%", latency.cv_percent()));
        table.add_row(cells);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

fn resources(row: &Measured) -> String {
    let size = |count: Option<u64>| known(count.map(|count| count as f64), bytes);
    let mut text = format!(
        "  written  {} by the user, {} to files ({}x until settled); {} on disk\n",
        bytes(row.user_bytes_written as f64),
        size(row.usage_settled.device_write_bytes),
        known(row.write_amplification(), amplification),
        bytes(row.db_bytes as f64),
    );
    text.push_str(&format!(
        "  counted  {} log, {} flushed, {} compacted, by the engine itself ({}x)\n",
        size(row.written.log),
        size(row.written.flush),
        size(row.written.compaction),
        known(row.engine_write_amplification(), amplification),
    ));
    text.push_str(&format!(
        "  memory   {} peak ({} anonymous, {} file-backed)\n",
        known(row.resident_peak(), bytes),
        known(row.anonymous_peak(), bytes),
        known(row.file_peak(), bytes),
    ));
    text.push_str(&format!(
        "  cpu      {} us/op ({} user, {} system); writers held back {}\n",
        known(row.cpu_us_per_op(), |us| format!("{us:.2}")),
        seconds(row.usage.cpu_user_seconds),
        seconds(row.usage.cpu_system_seconds),
        known(row.stall_us.map(|us| us as f64 / 1e6), seconds),
    ));
    if row.settled.debt_left > 0 {
        text.push_str(&format!(
            "  DEBT     {} left after {}\n",
            row.settled.debt_left,
            seconds(row.settled.seconds)
        ));
    }
    text
}

pub(super) fn new_table() -> Table {
    let mut table = Table::new();
    table
        .load_style(presets::UTF8_BORDERS_ONLY)
        .set_content_arrangement(ContentArrangement::Dynamic);
    table
}
