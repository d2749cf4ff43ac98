//! Where an engine stands against the others: of each figure, in how many rows it is worse, and one
//! list of all of them. Medians alone decide here; what the repeats prove stands beside each rate
//! in the tables.

use super::compare::{self, unequal};
use super::record::{Measured, Report, Subject};
use crate::measure::{OpKind, Verdict, median_known};
use std::fmt::Write;

/// A figure.
struct Figure {
    name: &'static str,
    /// Of rates more is better, of all others less.
    rate: bool,
    /// For each kind of call that the row has, or once.
    by_kind: bool,
    of: Of,
}

const FIGURES: &[Figure] = &[
    rate("rate", |row, _| Some(row.per_second(row.primitives()))),
    // The time that making keys and values takes counts too: an engine whose background works on
    // meanwhile gains nothing by it.
    rate("wall rate", |row, _| row.wall_rate()),
    // So does the time until flushes and compactions are done.
    rate("paid rate", |row, _| row.paid_rate()),
    Figure { by_kind: true, ..cost("p99", |row, kind| row.kind(kind)?.latency.p99_us) },
    Figure { by_kind: true, ..cost("p99.9", |row, kind| row.kind(kind)?.latency.p999_us) },
    cost("CPU/op", |row, _| row.cpu_us_per_op()),
    cost("paid CPU/op", |row, _| row.paid_cpu_us_per_op()),
    cost("write amp", |row, _| row.write_amplification()),
    cost("on disk", |row, _| Some(row.db_bytes as f64)),
    cost("resident", |row, _| row.resident_peak()),
    cost("anon memory", |row, _| row.anonymous_peak()),
];

type Of = fn(&Measured, OpKind) -> Option<f64>;

const fn rate(name: &'static str, of: Of) -> Figure {
    Figure { name, rate: true, by_kind: false, of }
}

const fn cost(name: &'static str, of: Of) -> Figure {
    Figure { name, rate: false, by_kind: false, of }
}

/// One figure of one row that both engines have.
struct Compared {
    figure: &'static Figure,
    base: String,
    label: String,
    /// The engine's figure divided by the base's.
    ratio: f64,
}

impl Compared {
    fn lost(&self) -> bool {
        if self.figure.rate { self.ratio < 1.0 } else { self.ratio > 1.0 }
    }

    /// How many times worse.
    fn factor(&self) -> f64 {
        if self.figure.rate { 1.0 / self.ratio } else { self.ratio }
    }
}

/// The tally of rates, the figures lost of those compared, and the losses.
pub(super) fn write_standing(text: &mut String, reports: &[Report]) -> std::fmt::Result {
    tally(text, reports)?;
    debts(text, reports)?;
    let compared: Vec<Compared> = reports.iter().flat_map(all).collect();
    if compared.is_empty() {
        return Ok(());
    }
    let mut bases: Vec<&str> = Vec::new();
    for one in &compared {
        if !bases.contains(&one.base.as_str()) {
            bases.push(&one.base);
        }
    }
    let names: Vec<&str> = FIGURES.iter().map(|figure| figure.name).collect();
    let of = |figure: &str, base: &str| -> Vec<&Compared> {
        compared.iter().filter(|one| one.figure.name == figure && one.base == base).collect()
    };
    writeln!(
        text,
        "Of each figure, in how many rows its median is worse than the other's; latencies count \
         for each kind of call, and what one side doesn't know isn't compared.\n\n\
         | worse than | {} |\n|---|{}",
        names.join(" | "),
        "--:|".repeat(names.len())
    )?;
    for base in &bases {
        write!(text, "| {base} |")?;
        for name in &names {
            let compared = of(name, base);
            let lost = compared.iter().filter(|one| one.lost()).count();
            match compared.len() {
                0 => write!(text, " – |")?,
                all => write!(text, " {lost} of {all} |")?,
            }
        }
        writeln!(text)?;
    }
    writeln!(text, "\nLosses, the worst first, with how many times worse:\n")?;
    for base in &bases {
        for name in &names {
            losses(text, name, base, of(name, base))?;
        }
    }
    writeln!(text)
}

/// Sustained rows in which the debt of the first engine grew and that of another didn't. They have
/// no ratio, and would otherwise be lost without a word.
fn debts(text: &mut String, reports: &[Report]) -> std::fmt::Result {
    let grew = |rows: &[&Measured]| rows.iter().any(|row| row.backlog_grew());
    for report in reports {
        for pair in compare::pairs(report) {
            let of = |engine| report.repeats(engine, pair.subject);
            if grew(&of(pair.engine)) && !grew(&of(pair.base)) {
                writeln!(
                    text,
                    "- **debt**: {} could not keep up its rate in {}, and {} could\n",
                    pair.engine,
                    pair.subject.label(),
                    pair.base
                )?;
            }
        }
    }
    Ok(())
}

fn losses(
    text: &mut String,
    figure: &str,
    base: &str,
    mut compared: Vec<&Compared>,
) -> std::fmt::Result {
    compared.retain(|one| one.lost());
    if compared.is_empty() {
        return Ok(());
    }
    compared.sort_by(|a, b| b.factor().total_cmp(&a.factor()));
    let rows: Vec<String> =
        compared.iter().map(|one| format!("{} {:.2}", one.label, one.factor())).collect();
    writeln!(text, "- **{figure}** beside {base} ({}): {}", rows.len(), rows.join(", "))
}

/// Every figure of every pair of engines that did equal work.
fn all(report: &Report) -> Vec<Compared> {
    let mut compared = Vec::new();
    let mut seen: Vec<(&Subject, &str)> = Vec::new();
    for pair in compare::pairs(report) {
        let (ours, theirs) =
            (report.repeats(pair.engine, pair.subject), report.repeats(pair.base, pair.subject));
        if unequal(&ours, &theirs).is_some() || seen.contains(&(pair.subject, pair.base)) {
            continue;
        }
        seen.push((pair.subject, pair.base));
        for figure in FIGURES {
            let kinds: Vec<OpKind> = match figure.by_kind {
                true => OpKind::ALL.into_iter().filter(|kind| *kind != OpKind::Unit).collect(),
                false => vec![OpKind::Unit],
            };
            for kind in kinds {
                let of = |rows: &[&Measured]| {
                    median_known(rows.iter().map(|row| (figure.of)(row, kind)))
                };
                let (Some(our), Some(their)) = (of(&ours), of(&theirs)) else { continue };
                if their <= 0.0 {
                    continue;
                }
                let label = match figure.by_kind {
                    true => format!("{} {}", pair.subject.label(), kind.name()),
                    false => pair.subject.label(),
                };
                let base = pair.base.to_owned();
                compared.push(Compared { figure, base, label, ratio: our / their });
            }
        }
    }
    compared
}

/// Wins and losses of rates against each base, over all reports.
fn tally(text: &mut String, reports: &[Report]) -> std::fmt::Result {
    let mut lines: Vec<(String, [usize; 6])> = Vec::new();
    for report in reports {
        for pair in compare::pairs(report) {
            let name = format!("{} against {}", pair.engine, pair.base);
            let place = lines.iter().position(|line| line.0 == name).unwrap_or_else(|| {
                lines.push((name, [0; 6]));
                lines.len() - 1
            });
            let counts = &mut lines[place].1;
            let Ok(comparison) = pair.comparison else {
                counts[5] += 1;
                continue;
            };
            counts[if comparison.ratio >= 1.0 { 0 } else { 1 }] += 1;
            counts[match comparison.verdict {
                Verdict::Faster => 2,
                Verdict::Slower => 3,
                Verdict::Noise | Verdict::Unknown => 4,
            }] += 1;
        }
    }
    if lines.is_empty() {
        return Ok(());
    }
    writeln!(
        text,
        "Each compared row is counted twice: by its median alone, and by what the repeats prove.\n\n\
         | | higher | lower | proven faster | proven slower | undecided | not compared |\n\
         |---|--:|--:|--:|--:|--:|--:|"
    )?;
    for (name, counts) in lines {
        let cells: Vec<String> = counts.iter().map(usize::to_string).collect();
        writeln!(text, "| {name} | {} |", cells.join(" | "))?;
    }
    writeln!(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::testing::sample_report;

    fn standing(change: impl Fn(&mut Measured)) -> String {
        let mut report = sample_report();
        report.rows.retain(|row| row.subject.test == "mixed_uniform");
        // There are too few calls for a p99.
        for entry in report.rows.iter_mut().flat_map(|row| &mut row.kinds) {
            entry.latency.p99_us = Some(1.0);
        }
        report.rows.iter_mut().filter(|row| row.engine == "memory").for_each(change);
        let mut text = String::new();
        write_standing(&mut text, &[report]).unwrap();
        text
    }

    #[test]
    fn a_rate_that_only_the_other_engine_can_keep_up_is_a_loss() {
        let owing = |row: &mut Measured| {
            let sample = row.timeline[0].clone();
            let at = |second: u64| crate::measure::Sample {
                seconds: second as f64,
                backlog: Some(1_000_000 * second),
                ..sample.clone()
            };
            (row.sustained, row.timeline) = (true, (1..=40).map(at).collect());
        };
        let lost = standing(owing);
        let said =
            "- **debt**: memory could not keep up its rate in mixed_uniform t2, and null could";
        assert!(lost.contains(said), "{lost}");
        assert!(!standing(|_| ()).contains("**debt**"));
    }

    #[test]
    fn what_is_worse_is_listed_by_figure_and_kind_of_call_and_what_is_better_is_not() {
        let worse = standing(|row| {
            row.rss_anon_peak_bytes = 1 << 50;
            (row.seconds, row.wall_seconds) = (1e9, 1e9);
            for entry in &mut row.kinds {
                entry.latency.p99_us = Some(1e9);
                entry.latency.p999_us = None;
            }
        });
        for part in [
            "- **anon memory** beside null (1): mixed_uniform t2 ",
            "- **rate** beside null (1): mixed_uniform t2 ",
            "- **wall rate** beside null (1): mixed_uniform t2 ",
            "mixed_uniform t2 put ",
            "mixed_uniform t2 get ",
        ] {
            assert!(worse.contains(part), "no {part} in {worse}");
        }
        assert!(!worse.contains("**p99.9**"), "what is unknown isn't lost: {worse}");
        let better = standing(|row| {
            (row.rss_anon_peak_bytes, row.seconds, row.wall_seconds) = (1, 1e-9, 1e-9);
            row.kinds.iter_mut().for_each(|entry| entry.latency.p99_us = Some(1e-9));
        });
        for figure in ["**anon memory**", "**rate**", "**wall rate**", "**p99**"] {
            assert!(!better.contains(figure), "{figure} in {better}");
        }
        assert!(better.contains("| null | 0 of 1 |"), "{better}");
    }
}
