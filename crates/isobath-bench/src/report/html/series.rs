//! Numbers of a figure, taken out of the records: a median with its low and high over the repeats.

use crate::measure::{Latency, OpKind, median};
use crate::report::record::{Measured, Report, Subject};

/// A value with the range of its repeats.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Spread {
    pub(super) median: f64,
    pub(super) low: f64,
    pub(super) high: f64,
}

impl Spread {
    fn of(values: &[f64]) -> Option<Spread> {
        let low = values.iter().copied().min_by(f64::total_cmp)?;
        let high = values.iter().copied().max_by(f64::total_cmp)?;
        Some(Spread { median: median(values), low, high })
    }
}

/// One bar group or tick: a name and a value for each engine.
pub(super) struct Group {
    pub(super) name: String,
    pub(super) values: Vec<Option<Spread>>,
}

/// The groups of the subjects that `include` chooses, valued by `of`.
pub(super) fn groups(
    report: &Report,
    include: impl Fn(&Subject) -> bool,
    of: impl Fn(&Measured) -> Option<f64>,
) -> Vec<Group> {
    let engines = report.engines();
    report
        .subjects()
        .into_iter()
        .filter(|subject| include(subject))
        .map(|subject| Group {
            name: label(subject),
            values: engines
                .iter()
                .map(|engine| spread(&report.repeats(engine, subject), &of))
                .collect(),
        })
        .filter(|group| group.values.iter().any(Option::is_some))
        .collect()
}

/// Over the repeats that know it.
pub(super) fn spread(rows: &[&Measured], of: &impl Fn(&Measured) -> Option<f64>) -> Option<Spread> {
    Spread::of(&rows.iter().filter_map(|row| of(row)).collect::<Vec<_>>())
}

/// The test's name, with what its name doesn't say.
pub(super) fn label(subject: &Subject) -> String {
    let params: String =
        subject.params.iter().map(|(name, value)| format!(" {name}={value}")).collect();
    if subject.pattern == "lua" {
        format!("{} t{}{params}", subject.test, subject.threads)
    } else {
        subject.test.clone()
    }
}

/// The slowest kind of operation decides a record's percentile.
pub(super) fn worst(row: &Measured, of: impl Fn(&Latency) -> Option<f64>) -> Option<f64> {
    let kinds = row.kinds.iter().filter(|entry| entry.kind != OpKind::Unit);
    kinds.filter_map(|entry| of(&entry.latency)).max_by(f64::total_cmp)
}
