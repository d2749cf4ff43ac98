//! The conclusion that the measurements of two engines allow on one subject.

use super::record::{Measured, Report, Subject};
use crate::measure::{Comparison, Verdict, compare_samples};
use std::collections::BTreeMap;

/// One engine against the base on one subject.
pub(crate) struct Pair<'a> {
    pub(crate) subject: &'a Subject,
    pub(crate) engine: &'a str,
    pub(crate) base: &'a str,
    /// The ratio, or the reason why there is none.
    pub(crate) comparison: Result<Comparison, &'static str>,
}

impl Pair<'_> {
    /// A ratio for a cell; `~` marks one inside the noise, `?` one of too few repeats.
    pub(crate) fn short(&self) -> String {
        match &self.comparison {
            Err(_) => "unequal".to_owned(),
            Ok(comparison) => {
                let mark = match comparison.verdict {
                    Verdict::Noise => " ~",
                    Verdict::Unknown => " ?",
                    Verdict::Faster | Verdict::Slower => "",
                };
                format!("{:.2}x{mark}", comparison.ratio)
            }
        }
    }
}

/// How many rows fell which way, against each base: by their medians alone, and by what is proven.
pub(crate) fn tally(report: &Report) -> Vec<(String, usize)> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for pair in pairs(report) {
        let outcome = match &pair.comparison {
            Err(reason) => &format!("not compared: they {reason}"),
            Ok(comparison) => match comparison.verdict {
                Verdict::Faster => "faster",
                Verdict::Slower => "slower",
                Verdict::Noise => "inside the noise",
                Verdict::Unknown => "too few repeats to tell it from noise",
            },
        };
        let name = format!("{} against {}", pair.engine, pair.base);
        if let Ok(comparison) = &pair.comparison {
            let side = if comparison.ratio >= 1.0 { "higher" } else { "lower" };
            *counts.entry(format!("{name}, by the median alone: {side}")).or_default() += 1;
        }
        *counts.entry(format!("{name}, {outcome}")).or_default() += 1;
    }
    counts.into_iter().collect()
}

/// Every engine against the base: `isobath` against each peer where it ran, else the first engine.
pub(crate) fn pairs(report: &Report) -> Vec<Pair<'_>> {
    let engines = report.engines();
    let Some(subject_engine) =
        engines.iter().copied().find(|name| *name == "isobath").or(engines.first().copied())
    else {
        return Vec::new();
    };
    let mut pairs = Vec::new();
    for subject in report.subjects() {
        let ours = report.repeats(subject_engine, subject);
        for base in engines.iter().copied().filter(|name| *name != subject_engine) {
            let theirs = report.repeats(base, subject);
            if !ours.is_empty() && !theirs.is_empty() {
                let comparison = match unequal(&ours, &theirs) {
                    Some(reason) => Err(reason),
                    None => Ok(compare_samples(&rates(&ours), &rates(&theirs))),
                };
                pairs.push(Pair { subject, engine: subject_engine, base, comparison });
            }
        }
    }
    pairs
}

/// Why two samples can't be compared, if any two of their repeats can't.
pub(crate) fn unequal(ours: &[&Measured], theirs: &[&Measured]) -> Option<&'static str> {
    ours.iter().flat_map(|our| theirs.iter().map(|their| our.unequal(their))).find_map(|it| it)
}

/// Primitive operations a second of each repeat.
pub(crate) fn rates(rows: &[&Measured]) -> Vec<f64> {
    rows.iter().map(|row| row.per_second(row.primitives())).collect()
}

/// A sentence for each pair.
pub(crate) fn sentences(report: &Report) -> Vec<String> {
    pairs(report)
        .into_iter()
        .map(|pair| {
            let label = pair.subject.label();
            match pair.comparison {
                Ok(comparison) => {
                    format!("{label}: {}", comparison.sentence(pair.engine, pair.base))
                }
                Err(reason) => format!(
                    "{label}: {} and {} {reason} and aren't compared",
                    pair.engine, pair.base
                ),
            }
        })
        .collect()
}
