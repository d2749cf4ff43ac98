//! Tables of many records for a person at a terminal: what each used, and the medians of a sweep.

use super::compare;
use super::console::new_table;
use super::record::{Measured, Report, Subject};
use super::units::{amplification, bytes, count, known, micros, percent, seconds};
use crate::measure::{Latency, OpKind, median, median_known};
use comfy_table::{Attribute, Cell, CellAlignment, Table};

/// For every row and engine the medians of: the longest call, processor time, bytes, memory, waits,
/// and failed attempts for each transaction that committed.
pub(super) fn resources(report: &Report) -> Table {
    let mut table = titled(&[
        "row",
        "engine",
        "max",
        "cpu/op",
        "to files",
        "write amp",
        "its own",
        "on disk",
        "anon",
        "file",
        "held back",
        "level 0",
        "aborts",
    ]);
    for subject in report.subjects() {
        let mut name = subject.test.clone();
        for engine in report.engines() {
            let rows = report.repeats(engine, subject);
            if rows.is_empty() {
                continue;
            }
            let some = |value: fn(&Measured) -> Option<f64>| {
                median_known(rows.iter().map(|row| value(row)))
            };
            table.add_row(vec![
                std::mem::take(&mut name),
                engine.to_owned(),
                known(some(|row| slowest(row, |latency| Some(latency.max_us))), micros),
                known(some(Measured::cpu_us_per_op), micros),
                known(some(|row| Some(row.usage_settled.device_write_bytes? as f64)), bytes),
                known(some(Measured::write_amplification), amplification),
                known(some(Measured::engine_write_amplification), amplification),
                known(some(|row| Some(row.db_bytes as f64)), bytes),
                known(some(Measured::anonymous_peak), bytes),
                known(some(Measured::file_peak), bytes),
                known(some(|row| Some(row.stall_us? as f64 / 1e6)), seconds),
                level_zero(&rows),
                some(Measured::aborts_per_commit).map_or(String::new(), amplification),
            ]);
        }
    }
    table
}

/// The most files and, for a sustained row, whether compactions kept up.
fn level_zero(rows: &[&Measured]) -> String {
    let most = rows.iter().filter_map(|row| row.level_zero_files_max()).max();
    let most = known(most.map(|files| files as f64), count);
    if rows.iter().any(|row| row.backlog_grew()) {
        return format!("{most}, DEBT GREW");
    }
    most
}

/// For every point of a sweep the median rate with its low and high, and percentiles. None for a
/// single record.
pub(super) fn sweep(report: &Report) -> Option<Table> {
    if report.rows.len() < 2 {
        return None;
    }
    let pairs = compare::pairs(report);
    let over = pairs.first().map_or("ratio".to_owned(), |pair| format!("{} ÷", pair.engine));
    let mut table = titled(&[
        "point", "engine", "units/s", "keys/s", "low", "high", "hits", "p50", "p99", "p99.9",
        "max", &over,
    ]);
    for subject in report.subjects() {
        for engine in report.engines() {
            let rows = report.repeats(engine, subject);
            if !rows.is_empty() {
                let pair = pairs.iter().find(|pair| pair.subject == subject && pair.base == engine);
                let ratio = pair.map_or(String::new(), |pair| pair.short());
                table.add_row(point(subject, engine, &rows, ratio));
            }
        }
    }
    Some(table)
}

fn point(subject: &Subject, engine: &str, rows: &[&Measured], ratio: String) -> Vec<String> {
    let rates = compare::rates(rows);
    let units: Vec<f64> = rows.iter().map(|row| row.per_second(row.units)).collect();
    let hits: Vec<f64> = rows.iter().filter_map(|row| row.hit_rate()).collect();
    let at = |of: fn(&Latency) -> Option<f64>| {
        known(median_known(rows.iter().map(|row| slowest(row, of))), micros)
    };
    vec![
        subject.label(),
        engine.to_owned(),
        count(median(&units)),
        count(median(&rates)),
        count(rates.iter().copied().fold(f64::INFINITY, f64::min)),
        count(rates.iter().copied().fold(0.0, f64::max)),
        if hits.is_empty() { String::new() } else { percent(median(&hits)) },
        at(|latency| latency.p50_us),
        at(|latency| latency.p99_us),
        at(|latency| latency.p999_us),
        at(|latency| Some(latency.max_us)),
        ratio,
    ]
}

/// The slowest kind of call decides, of those that have calls enough to tell.
pub(super) fn slowest(row: &Measured, of: fn(&Latency) -> Option<f64>) -> Option<f64> {
    let kinds = row.kinds.iter().filter(|entry| entry.kind != OpKind::Unit);
    kinds.filter_map(|entry| of(&entry.latency)).max_by(f64::total_cmp)
}

fn titled(names: &[&str]) -> Table {
    let mut table = new_table();
    table.set_header(names.iter().map(|name| Cell::new(name).add_attribute(Attribute::Bold)));
    for column in table.column_iter_mut().skip(2) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::testing::sample_report;

    #[test]
    fn a_sweep_shows_the_median_between_its_low_and_high() {
        let mut report = sample_report();
        for (row, seconds) in report.rows.iter_mut().zip([1.0, 4.0, 2.0, 2.0, 2.0]) {
            row.seconds = seconds;
        }
        let keys = report.rows[0].primitives() as f64;
        let text = sweep(&report).unwrap().to_string();
        let first = text.lines().find(|line| line.contains("write_seq_b1 t2")).unwrap();
        for rate in [keys / 2.0, keys / 4.0, keys] {
            assert!(first.contains(&count(rate)), "{rate} in {first}");
        }
    }

    #[test]
    fn a_sustained_row_whose_debt_grows_is_marked() {
        let mut report = sample_report();
        assert!(!resources(&report).to_string().contains("DEBT GREW"));
        let sample = report.rows[0].timeline[0].clone();
        report.rows[0].sustained = true;
        report.rows[0].timeline = (1..=40u64)
            .map(|at| crate::measure::Sample {
                seconds: at as f64,
                backlog: Some(at * 1000),
                level_zero_files: Some(at),
                ..sample.clone()
            })
            .collect();
        assert!(resources(&report).to_string().contains("40, DEBT GREW"));
        let said = compare::sentences(&report).join("\n");
        assert!(said.contains("did different work"), "{said}");
    }
}
