//! The page around the figures.

use super::escape::escape;
use super::figures::{Figure, figures};
use super::timelines::{sweeps, timelines};
use crate::measure::OpKind;
use crate::report::compare;
use crate::report::record::{Measured, Report};
use crate::report::units::{amplification, bytes, count, micros, percent, seconds};
use anyhow::Result;
use std::fmt::Write;

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// The whole page.
pub(crate) fn render(report: &Report) -> Result<String> {
    let mut page = String::new();
    let title = escape(&report.title);
    write!(
        page,
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{title}</title>\
         <meta name=\"viewport\" content=\"width=device-width\"><style>{STYLE}</style></head><body><h1>{title}</h1>"
    )?;
    notices(&mut page, report)?;
    environment(&mut page, report)?;
    findings(&mut page, report)?;
    let drawn = figures(report)?;
    section(&mut page, "Figures", &drawn)?;
    section(&mut page, "Sweeps", &sweeps(report)?)?;
    table(&mut page, report)?;
    over_time(&mut page, report)?;
    write!(page, "<h2>Configuration</h2><pre>{}</pre>", escape(&report.config))?;
    writeln!(page, "<script>{SCRIPT}</script></body></html>")?;
    Ok(page)
}

fn notices(page: &mut String, report: &Report) -> Result<()> {
    for failure in &report.failures {
        write!(page, "<p class=\"failure\">Failed: {}</p>", escape(failure))?;
    }
    for warning in &report.warnings {
        write!(page, "<p class=\"warning\">{}</p>", escape(warning))?;
    }
    if report.rows.iter().any(|row| row.interrupted) {
        write!(
            page,
            "<p class=\"warning\">The run was interrupted: its last rows are shorter.</p>"
        )?;
    }
    Ok(())
}

fn environment(page: &mut String, report: &Report) -> Result<()> {
    let machine = &report.machine;
    let engines: Vec<String> =
        machine.engines.iter().map(|(name, version)| format!("{name} {version}")).collect();
    let lines = [
        ("Engines", engines.join(", ")),
        (
            "Machine",
            format!(
                "{}, {} cores, {}",
                machine.cpu,
                machine.cores,
                bytes(machine.memory_bytes as f64)
            ),
        ),
        ("System", format!("{}, Linux {}", machine.system, machine.kernel)),
        ("File system", machine.file_system.clone()),
        ("Allocator", machine.allocator.clone()),
        ("Build", machine.build.clone()),
        ("Run", report.run_id.clone()),
        ("To repeat", report.command.clone()),
    ];
    write!(page, "<h2>Environment</h2><table class=\"facts\">")?;
    for (name, value) in lines {
        write!(page, "<tr><th>{name}</th><td>{}</td></tr>", escape(&value))?;
    }
    write!(page, "</table>")?;
    Ok(())
}

fn findings(page: &mut String, report: &Report) -> Result<()> {
    let tally = compare::tally(report);
    if tally.is_empty() {
        return Ok(());
    }
    write!(page, "<h2>Findings</h2><table class=\"facts\">")?;
    for (finding, rows) in tally {
        write!(page, "<tr><th>{}</th><td>{rows} rows</td></tr>", escape(&finding))?;
    }
    write!(page, "</table><details><summary>Each row in a sentence</summary><ul>")?;
    for sentence in compare::sentences(report) {
        write!(page, "<li>{}</li>", escape(&sentence))?;
    }
    write!(page, "</ul></details>")?;
    Ok(())
}

fn section(page: &mut String, title: &str, figures: &[Figure]) -> Result<()> {
    if figures.is_empty() {
        return Ok(());
    }
    write!(page, "<h2>{title}</h2>")?;
    for figure in figures {
        write!(
            page,
            "<figure id=\"{}\">{}<figcaption><b>{}.</b> {}</figcaption></figure>",
            figure.name.to_lowercase().replace(": ", "-").replace(' ', "-"),
            figure.svg,
            escape(&figure.name),
            escape(figure.note)
        )?;
    }
    Ok(())
}

const HEADINGS: [&str; 23] = [
    "row",
    "engine",
    "durability",
    "operation",
    "threads",
    "per second",
    "mean",
    "p50",
    "p95",
    "p99",
    "p99.9",
    "max",
    "cv",
    "hits",
    "cpu/op",
    "to files",
    "write amp",
    "its own",
    "on disk",
    "anon memory",
    "file memory",
    "held back",
    "level 0",
];

/// Every record, a line for each kind of operation; a click on a heading sorts.
fn table(page: &mut String, report: &Report) -> Result<()> {
    write!(page, "<h2>Rows</h2><table class=\"rows\" id=\"rows\"><thead><tr>")?;
    for heading in HEADINGS {
        write!(page, "<th>{heading}</th>")?;
    }
    write!(page, "</tr></thead><tbody>")?;
    for row in &report.rows {
        for entry in row
            .kinds
            .iter()
            .filter(|entry| entry.kind != OpKind::Unit || row.subject.pattern == "lua")
        {
            write!(page, "<tr>")?;
            for (shown, sorted) in cells(row, entry) {
                write!(page, "<td data-v=\"{}\">{}</td>", escape(&sorted), escape(&shown))?;
            }
            write!(page, "</tr>")?;
        }
    }
    write!(page, "</tbody></table>")?;
    Ok(())
}

/// What each cell shows, and what it sorts by.
fn cells(row: &Measured, entry: &crate::measure::KindLatency) -> Vec<(String, String)> {
    let text = |text: String| (text.clone(), text);
    let number = |value: f64, format: fn(f64) -> String| (format(value), format!("{value}"));
    let maybe = |value: Option<f64>, format: fn(f64) -> String| match value {
        Some(value) => number(value, format),
        None => ("–".to_owned(), "-1".to_owned()),
    };
    let latency = &entry.latency;
    let params: String =
        row.subject.params.iter().map(|(name, value)| format!(" {name}={value}")).collect();
    let repeat = if row.repeat > 0 { format!(" #{}", row.repeat + 1) } else { String::new() };
    vec![
        text(format!("{}{params}{repeat}", row.subject.test)),
        text(row.engine.clone()),
        text(row.durability.name().to_owned()),
        text(entry.kind.name().to_owned()),
        number(row.subject.threads as f64, |threads| format!("{threads:.0}")),
        number(row.per_second(entry.primitives), count),
        number(latency.mean_us, micros),
        maybe(latency.p50_us, micros),
        maybe(latency.p95_us, micros),
        maybe(latency.p99_us, micros),
        maybe(latency.p999_us, micros),
        number(latency.max_us, micros),
        number(latency.cv_percent(), |cv| format!("{cv:.0}%")),
        maybe(row.hit_rate(), percent),
        maybe(row.cpu_us_per_op(), micros),
        maybe(row.usage_settled.device_write_bytes.map(|count| count as f64), bytes),
        maybe(row.write_amplification(), amplification),
        maybe(row.engine_write_amplification(), amplification),
        number(row.db_bytes as f64, bytes),
        maybe(row.anonymous_peak(), bytes),
        maybe(row.file_peak(), bytes),
        maybe(row.stall_us.map(|us| us as f64 / 1e6), seconds),
        maybe(row.level_zero_files_max().map(|files| files as f64), count),
    ]
}

fn over_time(page: &mut String, report: &Report) -> Result<()> {
    let mut opened = false;
    for subject in report.subjects() {
        let plots = timelines(report, subject)?;
        if plots.is_empty() {
            continue;
        }
        if !opened {
            write!(page, "<h2>Over time</h2>")?;
            opened = true;
        }
        write!(page, "<details><summary>{}</summary>", escape(&subject.label()))?;
        for plot in plots {
            write!(page, "<figure>{plot}</figure>")?;
        }
        write!(page, "</details>")?;
    }
    Ok(())
}
