//! Reports as Markdown tables, for a page that is kept: medians side by side, ratios with their
//! intervals, and how many rows were won, lost and undecided. Several reports follow each other, in
//! order.

use super::compare::{self, Pair};
use super::record::{Measured, Report, Subject};
use super::standing::write_standing;
use super::tables::slowest;
use super::units::{amplification, bytes, count, known, micros, percent, seconds};
use crate::measure::{Latency, OpKind, Verdict, median, median_known};
use crate::suite::Beside;
use std::collections::BTreeSet;
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
        versions(text, reports)?;
    }
    write_standing(text, reports)?;
    for report in reports {
        writeln!(text, "### {}: {}\n", report.title, report.engines().join(", "))?;
        let repeats = report.rows.iter().map(|row| row.repeat + 1).max().unwrap_or(0);
        let command = &report.command;
        writeln!(
            text,
            "`{command}` · {repeats} repeat(s), engines taking turns · {}\n",
            looped(report)
        )?;
        for failure in &report.failures {
            writeln!(text, "- **failed:** {failure}")?;
        }
        for warning in &report.warnings {
            writeln!(text, "- warning: {warning}")?;
        }
        rates(text, report)?;
        kinds(text, report)?;
        sustained(text, report)?;
        transactions(text, report)?;
        readers(text, report)?;
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

/// The engines of all reports, each once.
fn versions(text: &mut String, reports: &[Report]) -> std::fmt::Result {
    let all = reports.iter().flat_map(|report| &report.machine.engines);
    let all: BTreeSet<String> = all.map(|(name, version)| format!("{name} {version}")).collect();
    let all: Vec<String> = all.into_iter().collect();
    if all.is_empty() { Ok(()) } else { writeln!(text, "Engines: {}.\n", all.join("; ")) }
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
            let short = if rows.iter().any(|row| row.short()) { " *short*" } else { "" };
            if rows.is_empty() {
                write!(text, " | |")?;
                continue;
            }
            let mark = if rows[0].writes() { &rows[0].durability.name()[..1] } else { "" };
            let p99 = some(&rows, |row| slowest(row, |latency| latency.p99_us));
            let rate = count(median(&compare::rates(&rows)));
            // A range of a suite counts as one, however many keys it reads.
            let unit = if subject.workload == "range" { " ranges/s" } else { "" };
            write!(text, " {rate}{unit} {mark}{short} | {} |", known(p99, micros))?;
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

/// How calls were started; `short` marks a row that ran out of keys before its time was over.
fn looped(report: &Report) -> String {
    match report.rows.iter().find_map(|row| row.rate) {
        Some(rate) => format!("open loop at {} operations a second", count(rate)),
        None => "closed loop".to_owned(),
    }
}

fn some(rows: &[&Measured], of: impl Fn(&Measured) -> Option<f64>) -> Option<f64> {
    median_known(rows.iter().map(|row| of(row)))
}

/// A table of rows that make several kinds of calls, with a line for each kind. One p99 for all
/// calls of a row would hide that of its rare kinds.
fn kinds(text: &mut String, report: &Report) -> std::fmt::Result {
    let several =
        |row: &&Measured| row.kinds.iter().filter(|entry| entry.kind != OpKind::Unit).count() > 1;
    if !report.rows.iter().any(|row| several(&row)) {
        return Ok(());
    }
    writeln!(
        text,
        "Kinds of call apart; a rate is keys for a second spent in that kind of call.\n\n\
         | row | engine | call | keys/s | p50 | p99 | p99.9 | max |\n|---|---|---|--:|--:|--:|--:|--:|"
    )?;
    for subject in report.subjects() {
        for engine in report.engines() {
            let rows: Vec<&Measured> =
                report.repeats(engine, subject).into_iter().filter(several).collect();
            for kind in OpKind::ALL.into_iter().filter(|kind| *kind != OpKind::Unit) {
                kind_line(text, subject, engine, &rows, kind)?;
            }
        }
    }
    writeln!(text)
}

fn kind_line(
    text: &mut String,
    subject: &Subject,
    engine: &str,
    rows: &[&Measured],
    kind: OpKind,
) -> std::fmt::Result {
    if rows.iter().all(|row| row.kind(kind).is_none()) {
        return Ok(());
    }
    let of = |of: fn(&Latency) -> Option<f64>| {
        known(some(rows, |row| of(&row.kind(kind)?.latency)), micros)
    };
    writeln!(
        text,
        "| {} | {engine} | {} | {} | {} | {} | {} | {} |",
        subject.label(),
        kind.name(),
        known(some(rows, |row| row.rate_of(row.kind(kind)?)), count),
        of(|latency| latency.p50_us),
        of(|latency| latency.p99_us),
        of(|latency| latency.p999_us),
        of(|latency| Some(latency.max_us)),
    )
}

/// For sustained rows: whether the rate stays level, and whether compactions keep up.
fn sustained(text: &mut String, report: &Report) -> std::fmt::Result {
    if !report.rows.iter().any(|row| row.sustained) {
        return Ok(());
    }
    writeln!(
        text,
        "Sustained: the rate of windows of five seconds (or of tenths, where there are fewer), the most that one differs from the next, the \
         backlog in the engine's own unit, level 0, waits.\n\n\
         | row | engine | slowest window | fastest window | step | backlog, middle | backlog, end | level 0 at most | held back | paid its way |\n\
         |---|---|--:|--:|--:|--:|--:|--:|--:|---|"
    )?;
    for subject in report.subjects() {
        for engine in report.engines() {
            let mut rows = report.repeats(engine, subject);
            rows.retain(|row| row.sustained);
            if rows.is_empty() {
                continue;
            }
            let window = |pick: fn(f64, f64) -> f64| {
                known(some(&rows, |row| row.windows().into_iter().reduce(pick)), count)
            };
            let paid = match rows.iter().all(|row| row.backlog_trend().is_some()) {
                false => "unknown",
                true if rows.iter().any(|row| row.backlog_grew()) => "**no**",
                true => "yes",
            };
            writeln!(
                text,
                "| {} | {engine} | {} | {} | {} | {} | {} | {} | {} | {paid} |",
                subject.label(),
                window(f64::min),
                window(f64::max),
                known(some(&rows, Measured::steepest_step), |step| format!("{step:.2}×")),
                known(some(&rows, |row| Some(row.backlog_trend()?.0)), count),
                known(some(&rows, |row| Some(row.backlog_trend()?.1)), count),
                known(some(&rows, |row| Some(row.level_zero_files_max()? as f64)), count),
                known(some(&rows, |row| Some(row.stall_us? as f64 / 1e6)), seconds),
            )?;
        }
    }
    writeln!(text)
}

/// A table of rows of transactions: commits, and what they cost.
fn transactions(text: &mut String, report: &Report) -> std::fmt::Result {
    if report.rows.iter().all(|row| row.aborts.is_none()) {
        return Ok(());
    }
    writeln!(
        text,
        "Transactions: commits a second, runs in vain for each commit, time until committed, peak of memory.\n\n\
         | row | engine | commits/s | aborts/commit | p50 | p99 | p99.9 | max | anon memory |\n\
         |---|---|--:|--:|--:|--:|--:|--:|--:|"
    )?;
    for subject in report.subjects() {
        for engine in report.engines() {
            let mut rows = report.repeats(engine, subject);
            rows.retain(|row| row.aborts.is_some());
            if rows.is_empty() {
                continue;
            }
            let of = |of: fn(&Latency) -> Option<f64>| {
                known(some(&rows, |row| of(&row.kind(OpKind::Txn)?.latency)), micros)
            };
            let commits =
                |row: &Measured| Some(row.per_second(row.kind(OpKind::Txn)?.latency.count));
            let cells = [
                subject.label(),
                engine.to_owned(),
                known(some(&rows, commits), count),
                known(some(&rows, Measured::aborts_per_commit), amplification),
                of(|latency| latency.p50_us),
                of(|latency| latency.p99_us),
                of(|latency| latency.p999_us),
                of(|latency| Some(latency.max_us)),
                known(some(&rows, Measured::anonymous_peak), bytes),
            ];
            writeln!(text, "| {} |", cells.join(" | "))?;
        }
    }
    writeln!(text)
}

/// A table of rows with a reader beside the writers.
fn readers(text: &mut String, report: &Report) -> std::fmt::Result {
    if report.rows.iter().all(|row| row.beside.is_none()) {
        return Ok(());
    }
    writeln!(
        text,
        "A reader beside the writers, counted apart: gets a second before they begin and beside them, with how much of a core.\n\n\
         | row | engine | alone | cores | beside | cores | kept | p50 | p99 | p99.9 | max |\n\
         |---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|"
    )?;
    for subject in report.subjects() {
        for engine in report.engines() {
            let rows = report.repeats(engine, subject);
            if rows.iter().all(|row| row.beside.is_none()) {
                continue;
            }
            let of = |of: fn(&Beside) -> Option<f64>| some(&rows, |row| of(row.beside.as_ref()?));
            let time = |at: fn(&Beside) -> Option<f64>| known(of(at), micros);
            let cells = [
                subject.label(),
                engine.to_owned(),
                known(of(|at| Some(at.alone.per_second)), count),
                known(of(|at| Some(at.alone.cores)), amplification),
                known(of(|at| Some(at.beside.per_second)), count),
                known(of(|at| Some(at.beside.cores)), amplification),
                known(of(Beside::kept), percent),
                time(|at| at.beside.latency.p50_us),
                time(|at| at.beside.latency.p99_us),
                time(|at| at.beside.latency.p999_us),
                time(|at| Some(at.beside.latency.max_us)),
            ];
            writeln!(text, "| {} |", cells.join(" | "))?;
        }
    }
    writeln!(text)
}

fn resources(text: &mut String, report: &Report) -> std::fmt::Result {
    writeln!(text, "<details><summary>What each used</summary>\n")?;
    writeln!(
        text,
        "| row | engine | p50 | p99.9 | max | CPU/op | to files | write amp | log, flushed, compacted | its own write amp | \
         on disk | space amp | resident | anon memory | held back | level 0 | buffers | iteration | timed | paid keys/s | paid CPU/op |\n\
         |---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|"
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
    let size = |of: fn(&Measured) -> Option<u64>| {
        known(some(rows, |row| of(row).map(|count| count as f64)), bytes)
    };
    let time = |of: fn(&Latency) -> Option<f64>| known(some(rows, |row| slowest(row, of)), micros);
    let cells = [
        subject.label(),
        engine.to_owned(),
        time(|latency| latency.p50_us),
        time(|latency| latency.p999_us),
        time(|latency| Some(latency.max_us)),
        known(some(rows, Measured::cpu_us_per_op), micros),
        size(|row| row.usage_settled.device_write_bytes),
        known(some(rows, Measured::write_amplification), amplification),
        format!(
            "{}, {}, {}",
            size(|row| row.written.log),
            size(|row| row.written.flush),
            size(|row| row.written.compaction)
        ),
        known(some(rows, Measured::engine_write_amplification), amplification),
        size(|row| Some(row.db_bytes)),
        known(some(rows, Measured::space_amplification), amplification),
        known(some(rows, Measured::resident_peak), bytes),
        known(some(rows, Measured::anonymous_peak), bytes),
        known(some(rows, |row| Some(row.stall_us? as f64 / 1e6)), seconds),
        format!(
            "{}{grew}",
            known(some(rows, |row| Some(row.level_zero_files_max()? as f64)), count)
        ),
        known(some(rows, Measured::buffers_filled), |buffers| format!("{buffers:.1}")),
        known(some(rows, |row| row.iteration.as_ref()?.rate()), count),
        known(some(rows, Measured::timed_share), percent),
        known(some(rows, Measured::paid_rate), count),
        known(some(rows, Measured::paid_cpu_us_per_op), micros),
    ];
    writeln!(text, "| {} |", cells.join(" | "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::testing::sample_report;

    #[test]
    fn every_subject_and_engine_has_its_line_and_every_pair_is_counted() {
        let mut report = sample_report();
        report.machine.engines.insert("memory".to_owned(), "1.2".to_owned());
        let text = markdown(&[report.clone(), report.clone()]);
        let subjects = report.subjects().len();
        assert_eq!(text.matches("Engines: memory 1.2.").count(), 1, "{text}");
        let lines = |start: &str| text.lines().filter(|line| line.starts_with(start)).count();
        assert_eq!(lines("| write_seq_b1 t2 |"), 2 * 3, "rates once, resources for two engines");
        let total = text.lines().find(|line| line.starts_with("| memory against null |")).unwrap();
        let counted: usize =
            total.split('|').filter_map(|cell| cell.trim().parse::<usize>().ok()).sum();
        assert_eq!(counted, 2 * 2 * subjects, "by the median and by the verdict");
        assert!(text.contains("| mixed_uniform t2 | memory | put |"), "{text}");
        let range = text.lines().find(|line| line.starts_with("| range_random_100 t2 |")).unwrap();
        assert_eq!(range.matches("ranges/s").count(), 2, "{range}");
        assert!(text.contains("| mixed_uniform t2 | memory | get |"));
        for line in text.lines().filter(|line| line.starts_with("| write_seq_b1")) {
            let columns = line.matches('|').count();
            assert!(columns == 7 || columns == 22, "{line}");
        }
    }
}
