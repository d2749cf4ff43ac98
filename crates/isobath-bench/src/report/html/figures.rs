//! The seeds' 17 figures, in their order. A figure whose rows weren't run is left out.

use super::bars::BarFigure;
use super::lines::{Axes, Line, LineFigure};
use super::series::{Group, Spread, groups, label, spread, worst};
use crate::measure::OpKind;
use crate::report::compare;
use crate::report::record::{Measured, Report, Subject, quotient};
use crate::report::units::{bytes, count, micros, seconds};
use anyhow::Result;
use std::collections::{BTreeMap, BTreeSet};

pub(super) struct Figure {
    pub(super) name: String,
    pub(super) note: &'static str,
    pub(super) svg: String,
}

type Draw = fn(&Report) -> Result<Option<String>>;

const FIGURES: &[(&str, &str, Draw)] = &[
    (
        "speedup",
        "Rate of the subject over each base, medians; only rows of equal durability.",
        speedups,
    ),
    ("write throughput", "Keys written a second.", |report| {
        bars(report, "Writes", |s| s.workload == "write" && is_plain(s), rate, count, false)
    }),
    ("read and mixed throughput", "Keys read or written a second.", |report| {
        bars(
            report,
            "Reads and mixed",
            |s| ["read", "absent", "mixed"].contains(&s.workload.as_str()) || s.pattern == "lua",
            rate,
            count,
            false,
        )
    }),
    ("delete throughput", "Keys deleted a second.", |report| {
        bars(report, "Deletes", |s| s.workload == "delete", rate, count, false)
    }),
    ("seek throughput", "Fresh cursors positioned a second.", |report| {
        bars(report, "Seeks", |s| s.workload == "seek", rate, count, false)
    }),
    ("range throughput", "Ranges a second, and rows a second for whole scans.", |report| {
        bars(
            report,
            "Ranges and scans",
            |s| ["range", "scan"].contains(&s.workload.as_str()),
            rate,
            count,
            true,
        )
    }),
    (
        "batch scaling",
        "Keys a second by keys in a batch, random writes of 100-byte values.",
        batch_scaling,
    ),
    ("value size", "Bytes of keys and values a second by size of the value.", value_sizes),
    ("latency overview", "Mean latency of a call; a batch is one call.", |report| {
        bars(report, "Mean latency", |_| true, |row| worst(row, |l| l.mean_us), micros, true)
    }),
    (
        "latency percentiles",
        "The whole distribution, each engine's rows one after the other.",
        percentiles,
    ),
    (
        "write amplification",
        "Bytes to files for each byte the user wrote, until the debt was paid.",
        |report| {
            bars(
                report,
                "Write amplification",
                is_written,
                Measured::write_amplification,
                |x| format!("{x:.2}"),
                false,
            )
        },
    ),
    ("space", "Bytes on disk at the end.", |report| {
        bars(report, "Size on disk", is_written, |row| row.db_bytes as f64, bytes, false)
    }),
    ("resources", "Anonymous memory at its peak.", |report| {
        bars(
            report,
            "Peak anonymous memory",
            |_| true,
            |row| row.rss_anon_peak_bytes as f64,
            bytes,
            false,
        )
    }),
    ("tails", "p99.9 over the mean: how much worse a bad call is.", |report| {
        bars(
            report,
            "p99.9 / mean",
            |_| true,
            |row| quotient(worst(row, |l| l.p999_us), worst(row, |l| l.mean_us)),
            |x| format!("{x:.1}x"),
            true,
        )
    }),
    ("duration", "Seconds for a million keys.", |report| {
        bars(
            report,
            "Seconds for a million keys",
            |_| true,
            |row| quotient(row.seconds * 1e6, row.primitives() as f64),
            seconds,
            true,
        )
    }),
    ("latency variability", "Standard deviation over mean, in percent.", |report| {
        bars(
            report,
            "Coefficient of variation",
            |_| true,
            |row| worst(row, |l| l.cv_percent()),
            |x| format!("{x:.0}%"),
            true,
        )
    }),
    ("sync scaling", "Writes a second that survive a power cut, by threads.", sync_scaling),
];

/// Every figure that the report has rows for.
pub(super) fn figures(report: &Report) -> Result<Vec<Figure>> {
    let mut drawn = Vec::new();
    for (name, note, draw) in FIGURES {
        if let Some(svg) = draw(report)? {
            drawn.push(Figure { name: (*name).to_owned(), note, svg });
        }
    }
    Ok(drawn)
}

fn bars(
    report: &Report,
    title: &str,
    include: impl Fn(&Subject) -> bool,
    of: impl Fn(&Measured) -> f64,
    format: fn(f64) -> String,
    logarithmic: bool,
) -> Result<Option<String>> {
    let groups = groups(report, include, of);
    if groups.is_empty() {
        return Ok(None);
    }
    BarFigure {
        title,
        engines: &report.engines(),
        groups: &groups,
        logarithmic,
        reference: None,
        format,
    }
    .draw()
    .map(Some)
}

fn rate(row: &Measured) -> f64 {
    row.per_second(row.primitives())
}

fn is_plain(subject: &Subject) -> bool {
    !subject.test.contains("sync")
}

fn is_written(subject: &Subject) -> bool {
    ["write", "mixed", "delete"].contains(&subject.workload.as_str()) || subject.pattern == "lua"
}

fn speedups(report: &Report) -> Result<Option<String>> {
    let pairs = compare::pairs(report);
    let mut bases: Vec<&str> = Vec::new();
    for pair in &pairs {
        if !bases.contains(&pair.base) {
            bases.push(pair.base);
        }
    }
    let Some(subject_engine) = pairs.first().map(|pair| pair.engine) else { return Ok(None) };
    let mut groups: Vec<Group> = Vec::new();
    for subject in report.subjects() {
        let value = |base: &&str| {
            let pair = pairs.iter().find(|pair| pair.subject == subject && pair.base == *base)?;
            let comparison = pair.comparison.ok()?;
            Some(Spread { median: comparison.ratio, low: comparison.low, high: comparison.high })
        };
        let values: Vec<Option<Spread>> = bases.iter().map(value).collect();
        if values.iter().any(Option::is_some) {
            groups.push(Group { name: label(subject), values });
        }
    }
    if groups.is_empty() {
        return Ok(None);
    }
    let title = format!("{subject_engine} over each base");
    BarFigure {
        title: &title,
        engines: &bases,
        groups: &groups,
        logarithmic: true,
        reference: Some(1.0),
        format: |x| format!("{x:.2}x"),
    }
    .draw()
    .map(Some)
}

/// A line for each engine over `x` of the subjects chosen.
fn over(
    report: &Report,
    include: impl Fn(&Subject) -> bool,
    x: impl Fn(&Subject) -> f64,
    y: impl Fn(&Measured) -> f64,
) -> Vec<Line> {
    let line = |engine: &str| {
        let subjects = report.subjects().into_iter().filter(|subject| include(subject));
        let mut points: Vec<(f64, f64)> = subjects
            .filter_map(|subject| {
                Some((x(subject), spread(&report.repeats(engine, subject), &y)?.median))
            })
            .collect();
        points.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
        Line { engine: engine.to_owned(), qualifier: String::new(), points }
    };
    report.engines().into_iter().map(line).filter(|line| line.points.len() > 1).collect()
}

fn drawn(
    title: &str,
    x_name: &str,
    y_name: &str,
    lines: &[Line],
    format: fn(f64) -> String,
) -> Result<Option<String>> {
    if lines.is_empty() {
        return Ok(None);
    }
    LineFigure { title, x_name, y_name, lines, axes: Axes::Steps, format }.draw().map(Some)
}

fn batch_scaling(report: &Report) -> Result<Option<String>> {
    let include = |s: &Subject| {
        s.workload == "write" && s.pattern == "random" && s.value_size == 100 && is_plain(s)
    };
    drawn(
        "Batch scaling",
        "keys in a batch",
        "keys/s",
        &over(report, include, |s| s.batch_size as f64, rate),
        count,
    )
}

fn value_sizes(report: &Report) -> Result<Option<String>> {
    let include = |s: &Subject| {
        s.workload == "write"
            && s.pattern == "random"
            && is_plain(s)
            && !s.test.contains("sustained")
    };
    let per_second = |row: &Measured| row.per_second(row.user_bytes_written);
    // All of one batch size: the one that most sizes of values were written in.
    let mut sizes: BTreeMap<u64, BTreeSet<usize>> = BTreeMap::new();
    for subject in report.subjects().into_iter().filter(|subject| include(subject)) {
        sizes.entry(subject.batch_size).or_default().insert(subject.value_size);
    }
    let batch = sizes.iter().max_by_key(|(_, sizes)| sizes.len()).map_or(1, |(batch, _)| *batch);
    let chosen = |s: &Subject| include(s) && s.batch_size == batch;
    let lines = over(report, chosen, |s| s.value_size as f64, per_second);
    drawn(&format!("Value size, batches of {batch}"), "bytes of a value", "bytes/s", &lines, count)
}

fn sync_scaling(report: &Report) -> Result<Option<String>> {
    let include = |s: &Subject| s.test.contains("sync");
    drawn(
        "Synced writes",
        "threads",
        "writes/s",
        &over(report, include, |s| s.threads as f64, rate),
        count,
    )
}

/// p50, p95, p99, p99.9 and max of a few rows that stand for the kinds of work.
fn percentiles(report: &Report) -> Result<Option<String>> {
    let mut chosen: Vec<&Subject> = Vec::new();
    for subject in report.subjects() {
        let seen = chosen
            .iter()
            .any(|other| other.workload == subject.workload && subject.pattern != "lua");
        if !seen && chosen.len() < 8 {
            chosen.push(subject);
        }
    }
    let engines = report.engines();
    let mut groups = Vec::new();
    for subject in chosen {
        let rows: Vec<Vec<&Measured>> =
            engines.iter().map(|engine| report.repeats(engine, subject)).collect();
        for kind in OpKind::ALL.into_iter().filter(|kind| *kind != OpKind::Unit) {
            for (name, quantile) in [("p50", 0usize), ("p99", 1), ("p99.9", 2), ("max", 3)] {
                let of = |row: &Measured| {
                    let latency = row
                        .kinds
                        .iter()
                        .find(|entry| entry.kind == kind)
                        .map(|entry| &entry.latency);
                    latency.map_or(0.0, |l| [l.p50_us, l.p99_us, l.p999_us, l.max_us][quantile])
                };
                let values: Vec<Option<Spread>> = rows
                    .iter()
                    .map(|rows| spread(rows, &of).filter(|spread| spread.median > 0.0))
                    .collect();
                if values.iter().any(Option::is_some) {
                    groups.push(Group {
                        name: format!("{} {} {name}", label(subject), kind.name()),
                        values,
                    });
                }
            }
        }
    }
    if groups.is_empty() {
        return Ok(None);
    }
    BarFigure {
        title: "Latency percentiles",
        engines: &engines,
        groups: &groups,
        logarithmic: true,
        reference: None,
        format: micros,
    }
    .draw()
    .map(Some)
}

#[cfg(test)]
pub(super) const FIGURE_COUNT: usize = FIGURES.len();
