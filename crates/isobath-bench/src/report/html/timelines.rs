//! Plots over time, and over what a run swept.

use super::figures::Figure;
use super::lines::{Axes, Line, LineFigure};
use super::series::{label, spread};
use crate::measure::Sample;
use crate::report::record::{Measured, Report, Subject};
use crate::report::units::{bytes, count};
use anyhow::Result;
use std::collections::BTreeMap;

/// Shorter phases have nothing to show over time.
const SECONDS_MIN: f64 = 3.5;

/// What is drawn, its unit, its value from two samples that follow each other, and how to write it.
type Plot = (&'static str, &'static str, fn(&Sample, &Sample) -> Option<f64>, fn(f64) -> String);

/// The plots of one subject: loading, rate, memory, bytes, stalls and debt over time.
pub(super) fn timelines(report: &Report, subject: &Subject) -> Result<Vec<String>> {
    let mut drawn = Vec::new();
    let plots: [Plot; 6] = [
        (
            "operations",
            "keys/s",
            |a, b| Some((b.operations - a.operations) as f64 / (b.seconds - a.seconds)),
            count,
        ),
        ("anonymous memory", "bytes", |_, b| Some(b.rss_anon_bytes as f64), bytes),
        (
            "bytes to files",
            "bytes/s",
            |a, b| {
                let written = b.device_write_bytes?.saturating_sub(a.device_write_bytes?);
                Some(written as f64 / (b.seconds - a.seconds))
            },
            bytes,
        ),
        (
            "writers held back",
            "ms/s",
            |a, b| {
                let held = b.stall_us?.saturating_sub(a.stall_us?);
                Some(held as f64 / 1e3 / (b.seconds - a.seconds))
            },
            count,
        ),
        ("files of level 0", "files", |_, b| Some(b.level_zero_files? as f64), count),
        ("backlog, in each engine's unit", "backlog", |_, b| Some(b.backlog? as f64), count),
    ];
    let rate = plots[0];
    drawn.extend(over_time(report, subject, ("loading", rate.1, rate.2, rate.3), |row| {
        row.load.as_ref().map_or(&[], |load| &load.timeline)
    })?);
    for plot in plots {
        drawn.extend(over_time(report, subject, plot, |row| &row.timeline)?);
    }
    Ok(drawn)
}

/// A line for each engine's first repeat, where it took long enough and there is anything to see.
fn over_time(
    report: &Report,
    subject: &Subject,
    (what, y_name, of, format): Plot,
    samples: impl Fn(&Measured) -> &[Sample],
) -> Result<Option<String>> {
    let line = |engine: &str| {
        let row = report.repeats(engine, subject).into_iter().next()?;
        let points = points(samples(row), of);
        Some(Line { engine: engine.to_owned(), qualifier: String::new(), points })
    };
    let lines: Vec<Line> = report
        .engines()
        .into_iter()
        .filter_map(line)
        .filter(|line| {
            line.points.len() > 2 && line.points.last().is_some_and(|point| point.0 >= SECONDS_MIN)
        })
        .collect();
    if !lines.iter().flat_map(|line| &line.points).any(|point| point.1 > 0.0) {
        return Ok(None);
    }
    let title = format!("{}: {what}", label(subject));
    let (axes, x_name) = (Axes::Time, "seconds");
    LineFigure { title: &title, x_name, y_name, lines: &lines, axes, format }.draw().map(Some)
}

fn points(samples: &[Sample], of: fn(&Sample, &Sample) -> Option<f64>) -> Vec<(f64, f64)> {
    let pairs = samples.windows(2).filter(|pair| pair[1].seconds > pair[0].seconds + 0.1);
    pairs.filter_map(|pair| Some((pair[1].seconds, of(&pair[0], &pair[1])?))).collect()
}

/// The plots of Lua workloads: rate over threads, and over each numeric parameter.
pub(super) fn sweeps(report: &Report) -> Result<Vec<Figure>> {
    let rate = |row: &Measured| Some(row.per_second(row.primitives()));
    let mut axes: Vec<String> = vec!["threads".to_owned()];
    for subject in report.subjects() {
        axes.extend(
            subject.params.keys().filter(|name| !axes.contains(name)).cloned().collect::<Vec<_>>(),
        );
    }
    let mut drawn = Vec::new();
    for axis in axes {
        let mut lines: BTreeMap<(String, String), Vec<(f64, f64)>> = BTreeMap::new();
        for subject in report.subjects().into_iter().filter(|subject| subject.pattern == "lua") {
            let Some((x, rest)) = place(subject, &axis) else { continue };
            for engine in report.engines() {
                if let Some(value) = spread(&report.repeats(engine, subject), &rate) {
                    lines
                        .entry((engine.to_owned(), rest.clone()))
                        .or_default()
                        .push((x, value.median));
                }
            }
        }
        let lines: Vec<Line> = lines
            .into_iter()
            .map(|((engine, qualifier), points)| Line { engine, qualifier, points })
            .filter(|line| line.points.len() > 1)
            .collect();
        if !lines.is_empty() {
            let title = format!("Rate over {axis}");
            let svg = LineFigure {
                title: &title,
                x_name: &axis,
                y_name: "keys/s",
                lines: &lines,
                axes: Axes::Steps,
                format: count,
            }
            .draw()?;
            drawn.push(Figure {
                name: format!("sweep {axis}"),
                note: "Medians; the other parameters name the lines.",
                svg,
            });
        }
    }
    Ok(drawn)
}

/// Where the subject lies on the axis, and what else tells it apart.
fn place(subject: &Subject, axis: &str) -> Option<(f64, String)> {
    let mut rest: Vec<String> = subject
        .params
        .iter()
        .filter(|(name, _)| *name != axis)
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    if axis == "threads" {
        return Some((subject.threads as f64, rest.join(" ")));
    }
    rest.push(format!("t{}", subject.threads));
    Some((subject.params.get(axis)?.parse().ok()?, rest.join(" ")))
}
