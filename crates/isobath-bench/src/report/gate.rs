//! One report against an earlier one: what became slower, as a gate.

use super::record::{Measured, Report};
use crate::measure::{Comparison, Verdict, compare_samples};

/// How a row changed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Change {
    Better,
    Same,
    Worse,
    /// It was measured before and isn't now.
    Gone,
}

/// One row of the comparison.
#[derive(Debug)]
pub(crate) struct Judged {
    pub(crate) name: String,
    pub(crate) change: Change,
    pub(crate) rate: Option<Comparison>,
    /// p99 now over p99 before, of the slowest kind.
    pub(crate) p99_ratio: f64,
}

/// All rows, and whether to let the change pass.
#[derive(Debug)]
pub(crate) struct Gate {
    pub(crate) rows: Vec<Judged>,
}

impl Gate {
    pub(crate) fn count(&self, change: Change) -> usize {
        self.rows.iter().filter(|row| row.change == change).count()
    }

    pub(crate) fn passes(&self) -> bool {
        self.count(Change::Worse) + self.count(Change::Gone) == 0
    }
}

/// Judges `after` by `before`. A rate that fell by more than `threshold` (0.05 is 5 %) is worse,
/// unless the repeats say that the difference is noise.
pub(crate) fn judge(before: &Report, after: &Report, threshold: f64) -> Gate {
    let mut rows = Vec::new();
    for engine in before.engines() {
        for subject in before.subjects() {
            let old = before.repeats(engine, subject);
            if old.is_empty() {
                continue;
            }
            let new = after.repeats(engine, subject);
            let name = format!("{engine} {}", subject.label());
            if new.is_empty() || super::compare::unequal(&new, &old).is_some() {
                rows.push(Judged { name, change: Change::Gone, rate: None, p99_ratio: 0.0 });
                continue;
            }
            let comparison =
                compare_samples(&super::compare::rates(&new), &super::compare::rates(&old));
            let p99_ratio = p99(&new) / p99(&old).max(1e-9);
            rows.push(Judged {
                name,
                change: change(&comparison, threshold),
                rate: Some(comparison),
                p99_ratio,
            });
        }
    }
    Gate { rows }
}

fn change(comparison: &Comparison, threshold: f64) -> Change {
    let telling = comparison.verdict != Verdict::Noise;
    match comparison.ratio {
        ratio if telling && ratio < 1.0 - threshold => Change::Worse,
        ratio if telling && ratio > 1.0 + threshold => Change::Better,
        _ => Change::Same,
    }
}

fn p99(rows: &[&Measured]) -> f64 {
    let worst = rows
        .iter()
        .map(|row| row.kinds.iter().map(|entry| entry.latency.p99_us).fold(0.0, f64::max));
    crate::measure::median(&worst.collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::testing::sample_report;

    #[test]
    fn a_report_passes_against_itself() {
        let report = sample_report();
        let gate = judge(&report, &report, 0.05);
        assert!(gate.passes());
        assert!(gate.rows.iter().all(|row| row.change == Change::Same), "{gate:?}");
    }

    #[test]
    fn a_row_that_takes_twice_as_long_fails_and_half_as_long_passes() {
        let at = |seconds: f64| {
            let mut report = sample_report();
            let rows = report
                .rows
                .iter_mut()
                .filter(|row| row.engine == "memory" && row.subject.test == "write_seq_b1");
            rows.for_each(|row| row.seconds = seconds);
            report
        };
        let slower = judge(&at(1.0), &at(2.0), 0.05);
        assert_eq!((slower.count(Change::Worse), slower.passes()), (1, false));
        let faster = judge(&at(1.0), &at(0.5), 0.05);
        assert_eq!((faster.count(Change::Better), faster.passes()), (1, true));
    }

    #[test]
    fn a_row_that_is_gone_fails() {
        let before = sample_report();
        let mut after = before.clone();
        after.rows.retain(|row| row.subject.test != "write_seq_b1");
        assert!(!judge(&before, &after, 0.05).passes());
    }
}
