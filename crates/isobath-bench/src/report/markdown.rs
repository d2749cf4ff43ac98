//! Reports as Markdown tables, for a page that is kept: medians side by side, ratios with their intervals,
//! and how many rows were won, lost and undecided. Several reports follow each other, in order.

use super::compare::{self, Pair};
use super::record::{Measured, Report, Subject};
use super::tables::slowest;
use super::units::{bytes, count, micros};
use crate::measure::{Verdict, median};
use std::fmt::Write;

/// All of it, as one text.
pub(crate) fn markdown(reports: &[Report]) -> String {
    let mut text = String::new();
    // Writing to a string can't fail.
    let _ = write_all(&mut text, reports);
    text
}

fn write_all(text: &mut String, reports: &[Report]) -> std::fmt::Result {
    if let Some(first) = reports.first() {
        environment(text, first)?;
    }
    tally(text, reports)?;
    for report in reports {
        writeln!(text, "### {}: {}\n", report.title, report.engines().join(", "))?;
        let repeats = report.rows.iter().map(|row| row.repeat + 1).max().unwrap_or(0);
        writeln!(text, "`{}` · {repeats} repeat(s), engines taking turns\n", report.command)?;
        for failure in &report.failures {
            writeln!(text, "- **failed:** {failure}")?;
        }
        for warning in &report.warnings {
            writeln!(text, "- warning: {warning}")?;
        }
        rates(text, report)?;
        resources(text, report)?;
    }
    Ok(())
}

fn environment(text: &mut String, report: &Report) -> std::fmt::Result {
    let machine = &report.machine;
    writeln!(
        text,
        "{}, {} cores, {}; {}, Linux {}; {}; {}; {}.\n",
        machine.cpu,
        machine.cores,
        bytes(machine.memory_bytes as f64),
        machine.system,
        machine.kernel,
        machine.file_system,
        machine.allocator,
        machine.build
    )
}

/// Wins and losses against each base, over all reports.
fn tally(text: &mut String, reports: &[Report]) -> std::fmt::Result {
    let mut lines: Vec<(String, [usize; 4])> = Vec::new();
    for report in reports {
        for pair in compare::pairs(report) {
            let name = format!("{} against {}", pair.engine, pair.base);
            let place = lines.iter().position(|line| line.0 == name).unwrap_or_else(|| {
                lines.push((name, [0; 4]));
                lines.len() - 1
            });
            let column = match pair.comparison.map(|comparison| comparison.verdict) {
                Ok(Verdict::Faster) => 0,
                Ok(Verdict::Slower) => 1,
                Ok(Verdict::Noise | Verdict::Unknown) => 2,
                Err(_) => 3,
            };
            lines[place].1[column] += 1;
        }
    }
    if lines.is_empty() {
        return Ok(());
    }
    writeln!(text, "| | faster | slower | undecided | not compared |\n|---|--:|--:|--:|--:|")?;
    for (name, [faster, slower, undecided, unequal]) in lines {
        writeln!(text, "| {name} | {faster} | {slower} | {undecided} | {unequal} |")?;
    }
    writeln!(text)
}

fn rates(text: &mut String, report: &Report) -> std::fmt::Result {
    let (engines, pairs) = (report.engines(), compare::pairs(report));
    let bases: Vec<&str> = engines
        .iter()
        .copied()
        .filter(|name| pairs.iter().any(|pair| pair.base == *name))
        .collect();
    write!(text, "\n| row |")?;
    engines.iter().try_for_each(|engine| write!(text, " {engine} keys/s | p99 |"))?;
    bases.iter().try_for_each(|base| write!(text, " ÷ {base} |"))?;
    write!(text, "\n|---|")?;
    (0..2 * engines.len() + bases.len()).try_for_each(|_| write!(text, "--:|"))?;
    writeln!(text)?;
    for subject in report.subjects() {
        write!(text, "| {} |", subject.label())?;
        for engine in &engines {
            let rows = report.repeats(engine, subject);
            if rows.is_empty() {
                write!(text, " | |")?;
                continue;
            }
            let mark = if rows[0].writes() { &rows[0].durability.name()[..1] } else { "" };
            let p99 = middle(&rows, |row| slowest(row, |latency| latency.p99_us));
            write!(text, " {} {mark} | {} |", count(median(&compare::rates(&rows))), micros(p99))?;
        }
        for base in &bases {
            let pair = pairs.iter().find(|pair| pair.subject == subject && pair.base == *base);
            write!(text, " {} |", pair.map_or(String::new(), ratio))?;
        }
        writeln!(text)?;
    }
    writeln!(text)
}

/// A ratio with its interval; one that proves something stands out.
fn ratio(pair: &Pair<'_>) -> String {
    let Ok(comparison) = &pair.comparison else { return "unequal".to_owned() };
    let interval = format!("({:.2}–{:.2})", comparison.low, comparison.high);
    match comparison.verdict {
        Verdict::Faster => format!("**{:.2}** {interval}", comparison.ratio),
        Verdict::Slower => format!("***{:.2}*** slower {interval}", comparison.ratio),
        Verdict::Noise => format!("{:.2} ~ {interval}", comparison.ratio),
        Verdict::Unknown => format!("{:.2} ?", comparison.ratio),
    }
}

fn middle(rows: &[&Measured], of: impl Fn(&Measured) -> f64) -> f64 {
    median(&rows.iter().map(|row| of(row)).collect::<Vec<_>>())
}

fn resources(text: &mut String, report: &Report) -> std::fmt::Result {
    writeln!(text, "<details><summary>What each used</summary>\n")?;
    writeln!(
        text,
        "| row | engine | p99.9 | max | CPU/op | to files | write amp | on disk | anon memory | held back | level 0 |\n\
         |---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|"
    )?;
    for subject in report.subjects() {
        for engine in report.engines() {
            let rows = report.repeats(engine, subject);
            if !rows.is_empty() {
                used(text, subject, engine, &rows)?;
            }
        }
    }
    writeln!(text, "\n</details>\n")
}

fn used(
    text: &mut String,
    subject: &Subject,
    engine: &str,
    rows: &[&Measured],
) -> std::fmt::Result {
    let grew = if rows.iter().any(|row| row.backlog_grew()) { ", debt grew" } else { "" };
    writeln!(
        text,
        "| {} | {engine} | {} | {} | {} | {} | {:.2} | {} | {} | {:.0} ms | {}{grew} |",
        subject.label(),
        micros(middle(rows, |row| slowest(row, |latency| latency.p999_us))),
        micros(middle(rows, |row| slowest(row, |latency| latency.max_us))),
        micros(middle(rows, Measured::cpu_us_per_op)),
        bytes(middle(rows, |row| row.usage_settled.device_write_bytes as f64)),
        middle(rows, Measured::write_amplification),
        bytes(middle(rows, |row| row.db_bytes as f64)),
        bytes(middle(rows, |row| row.rss_anon_peak_bytes as f64)),
        middle(rows, |row| row.stall_us as f64 / 1e3),
        rows.iter().map(|row| row.level_zero_files_max()).max().unwrap_or(0),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::testing::sample_report;

    #[test]
    fn every_subject_and_engine_has_its_line_and_every_pair_is_counted() {
        let report = sample_report();
        let text = markdown(&[report.clone(), report.clone()]);
        let subjects = report.subjects().len();
        let lines = |start: &str| text.lines().filter(|line| line.starts_with(start)).count();
        assert_eq!(lines("| write_seq_b1 t2 |"), 2 * 3, "rates once, resources for two engines");
        let total = text.lines().find(|line| line.starts_with("| memory against null |")).unwrap();
        let counted: usize =
            total.split('|').filter_map(|cell| cell.trim().parse::<usize>().ok()).sum();
        assert_eq!(counted, 2 * subjects);
        for line in text.lines().filter(|line| line.starts_with("| write_seq_b1")) {
            let columns = line.matches('|').count();
            assert!(columns == 7 || columns == 12, "{line}");
        }
    }
}
