//! The 17 figures of TidesDB's articles, with their titles and definitions and in their order.
//! Between them stand figures of ours: bytes by the engine's own count, anonymous memory, scaling,
//! iteration. A figure whose rows weren't run is left out.

use super::bars::BarFigure;
use super::lines::{Axes, Line, LineFigure};
use super::series::{Group, Spread, groups, label, spread, worst};
use crate::measure::OpKind;
use crate::report::compare;
use crate::report::record::{Measured, Report, Subject, quotient};
use crate::report::units::{amplification, bytes, count, micros, seconds};
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
        "Speedup Summary",
        "Rate of the subject over each base, medians; only rows of equal durability.",
        speedups,
    ),
    ("Write Throughput", "Keys written a second.", |report| {
        bars(report, "Writes", |s| s.workload == "write" && is_plain(s), rate, count, false)
    }),
    (
        "Read and Mixed Workload Throughput",
        "Keys read a second; of mixed work, puts and gets apart: keys of each kind for a second spent in it.",
        reads_and_mixed,
    ),
    ("Delete Throughput", "Keys deleted a second.", |report| {
        bars(report, "Deletes", |s| s.workload == "delete", rate, count, false)
    }),
    ("Seek Throughput", "Fresh cursors positioned a second.", |report| {
        bars(report, "Seeks", |s| s.workload == "seek", rate, count, false)
    }),
    ("Range Scan Throughput", "Ranges a second, and rows a second for whole scans.", |report| {
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
        "Batch Size Scaling",
        "Keys a second by keys in a batch, random writes of 100-byte values.",
        batch_scaling,
    ),
    ("Value Size Impact", "Keys a second by size of the value.", |report| {
        value_sizes(report, "keys/s", &rate)
    }),
    (
        "Value Size Impact in Bytes",
        "Bytes of keys and values a second by size of the value.",
        |report| {
            value_sizes(report, "bytes/s", &|row| Some(row.per_second(row.user_bytes_written)))
        },
    ),
    ("Latency Overview", "Mean latency of a call; a batch is one call.", |report| {
        bars(report, "Mean latency", |_| true, mean, micros, true)
    }),
    (
        "Latency Percentiles",
        "p50, p95, p99, p99.9 and the longest call, each as far as there are calls enough.",
        percentiles,
    ),
    (
        "Write Amplification",
        "Bytes to files for each byte the user wrote, until the debt was paid, as the kernel counts them.",
        |report| {
            let of = Measured::write_amplification;
            bars(report, "Write amplification", is_written, of, amplification, false)
        },
    ),
    (
        "Write Amplification by the Engine",
        "Log, flushes and compactions for each byte the user wrote, as the engine counts them.",
        |report| {
            let of = Measured::engine_write_amplification;
            bars(report, "Write amplification, its own", is_written, of, amplification, false)
        },
    ),
    ("Space Efficiency", "Bytes on disk at the end.", |report| {
        let of = |row: &Measured| Some(row.db_bytes as f64);
        bars(report, "Size on disk", is_written, of, bytes, false)
    }),
    ("Space Amplification", "Bytes on disk for each byte that a reader can see.", |report| {
        let of = Measured::space_amplification;
        bars(report, "Space amplification", is_written, of, amplification, false)
    }),
    ("Resource Usage: Memory", "Resident memory at its peak.", |report| {
        bars(report, "Peak resident memory", |_| true, Measured::resident_peak, bytes, false)
    }),
    (
        "Resource Usage: Anonymous Memory",
        "Anonymous memory at its peak: what the kernel can't take back.",
        |report| {
            let of = Measured::anonymous_peak;
            bars(report, "Peak anonymous memory", |_| true, of, bytes, false)
        },
    ),
    ("Resource Usage: Disk Writes", "Bytes to files until the debt was paid.", |report| {
        let of = |row: &Measured| Some(row.usage_settled.device_write_bytes? as f64);
        bars(report, "Disk writes", is_written, of, bytes, false)
    }),
    ("Resource Usage: CPU", "Processor time over wall time; 100% is one core.", |report| {
        let of = |row: &Measured| Some(row.cpu_percent());
        bars(report, "CPU", |_| true, of, |x| format!("{x:.0}%"), false)
    }),
    ("Tail Latency", "p99 over the mean: how much worse a bad call is.", |report| {
        let of = |row: &Measured| Some(quotient(worst(row, |l| l.p99_us)?, mean(row)?));
        bars(report, "p99 / mean", |_| true, of, |x| format!("{x:.1}x"), true)
    }),
    ("Duration Comparison", "Seconds for a million keys.", |report| {
        let of = |row: &Measured| Some(quotient(row.seconds * 1e6, row.primitives() as f64));
        bars(report, "Seconds for a million keys", |_| true, of, seconds, true)
    }),
    ("Latency Variability", "Standard deviation over mean, in percent.", |report| {
        let of = |row: &Measured| worst(row, |l| Some(l.cv_percent()));
        bars(report, "Coefficient of variation", |_| true, of, |x| format!("{x:.0}%"), true)
    }),
    ("Sync Write Performance", "Writes a second that survive a power cut, by threads.", |report| {
        by_threads(report, "Synced writes", &|s| s.test.contains("sync") && s.batch_size == 1)
    }),
    (
        "Thread Scaling",
        "Keys a second by threads, for each kind of work that was run on several.",
        |report| by_threads(report, "Scaling", &|s| s.pattern != "lua" && is_plain(s)),
    ),
    (
        "Iteration",
        "Keys a second of a whole pass over what the row left, before it settled.",
        |report| {
            let of = |row: &Measured| row.iteration.as_ref()?.rate();
            bars(report, "Iteration", |_| true, of, count, false)
        },
    ),
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
    of: impl Fn(&Measured) -> Option<f64>,
    format: fn(f64) -> String,
    logarithmic: bool,
) -> Result<Option<String>> {
    draw_groups(report, title, &groups(report, include, of), format, logarithmic)
}

fn draw_groups(
    report: &Report,
    title: &str,
    groups: &[Group],
    format: fn(f64) -> String,
    logarithmic: bool,
) -> Result<Option<String>> {
    if groups.is_empty() {
        return Ok(None);
    }
    let engines = &report.engines();
    BarFigure { title, engines, groups, logarithmic, reference: None, format }.draw().map(Some)
}

fn rate(row: &Measured) -> Option<f64> {
    Some(row.per_second(row.primitives()))
}

fn mean(row: &Measured) -> Option<f64> {
    worst(row, |latency| Some(latency.mean_us))
}

fn reads_and_mixed(report: &Report) -> Result<Option<String>> {
    let whole =
        |s: &Subject| ["read", "absent"].contains(&s.workload.as_str()) || s.pattern == "lua";
    let mut drawn = groups(report, whole, rate);
    for kind in OpKind::ALL {
        let of = |row: &Measured| row.rate_of(row.kinds.iter().find(|entry| entry.kind == kind)?);
        let apart = groups(report, |s| ["mixed", "ycsb"].contains(&s.workload.as_str()), of);
        let named =
            |group: Group| Group { name: format!("{} {}", group.name, kind.name()), ..group };
        drawn.extend(apart.into_iter().map(named));
    }
    draw_groups(report, "Reads and mixed", &drawn, count, false)
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
    y: impl Fn(&Measured) -> Option<f64>,
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

fn value_sizes(
    report: &Report,
    unit: &str,
    of: &dyn Fn(&Measured) -> Option<f64>,
) -> Result<Option<String>> {
    let include = |s: &Subject| {
        s.workload == "write"
            && s.pattern == "random"
            && is_plain(s)
            && !s.test.contains("sustained")
    };
    // All subjects have one batch size: the one with which most sizes of values were measured.
    let mut sizes: BTreeMap<u64, BTreeSet<usize>> = BTreeMap::new();
    for subject in report.subjects().into_iter().filter(|subject| include(subject)) {
        sizes.entry(subject.batch_size).or_default().insert(subject.value_size);
    }
    let batch = sizes.iter().max_by_key(|(_, sizes)| sizes.len()).map_or(1, |(batch, _)| *batch);
    let chosen = |s: &Subject| include(s) && s.batch_size == batch;
    let lines = over(report, chosen, |s| s.value_size as f64, of);
    drawn(&format!("Value size, batches of {batch}"), "bytes of a value", unit, &lines, count)
}

/// A line for each engine and work, over the threads it was run on.
fn by_threads(
    report: &Report,
    title: &str,
    include: &dyn Fn(&Subject) -> bool,
) -> Result<Option<String>> {
    let work = |s: &Subject| match s.test.rsplit_once("_t") {
        Some((work, digits)) if digits.parse::<u64>().is_ok() => work.to_owned(),
        _ => s.test.clone(),
    };
    let subjects: Vec<&Subject> = report.subjects().into_iter().filter(|s| include(s)).collect();
    let works: BTreeSet<String> = subjects.iter().map(|s| work(s)).collect();
    let mut lines = Vec::new();
    for name in &works {
        let qualifier = if works.len() > 1 { name.clone() } else { String::new() };
        let of_work = over(report, |s| include(s) && work(s) == *name, |s| s.threads as f64, rate);
        lines.extend(of_work.into_iter().map(|line| Line { qualifier: qualifier.clone(), ..line }));
    }
    drawn(title, "threads", "keys/s", &lines, count)
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
            for (name, quantile) in
                [("p50", 0usize), ("p95", 1), ("p99", 2), ("p99.9", 3), ("max", 4)]
            {
                let of = |row: &Measured| {
                    let latency = row
                        .kinds
                        .iter()
                        .find(|entry| entry.kind == kind)
                        .map(|entry| &entry.latency);
                    latency.and_then(|l| {
                        [l.p50_us, l.p95_us, l.p99_us, l.p999_us, Some(l.max_us)][quantile]
                    })
                };
                let values: Vec<Option<Spread>> =
                    rows.iter().map(|rows| spread(rows, &of)).collect();
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
