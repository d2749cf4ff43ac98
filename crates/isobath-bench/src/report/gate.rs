//! One report against an earlier one: what became worse, as a gate. Rates, p99, memory, size on
//! disk and amplification each have a tolerance of their own; reports of different machines or
//! settings do not show the effect of a change, and are refused.

use super::compare::rates;
use super::record::{Measured, Report};
use crate::measure::{Comparison, OpKind, Verdict, compare_samples};

/// How a row changed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Change {
    Better,
    Same,
    Worse,
    /// It was measured before and isn't now.
    Gone,
}

/// By how much a figure may get worse: 0.05 is 5 %.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tolerances {
    pub(crate) rate: f64,
    pub(crate) p99: f64,
    pub(crate) memory: f64,
    pub(crate) disk: f64,
    pub(crate) amplification: f64,
}

/// A figure of which less is better, now over before.
#[derive(Debug)]
pub(crate) struct Cost {
    pub(crate) name: String,
    pub(crate) comparison: Comparison,
    pub(crate) worse: bool,
}

/// One row of the comparison.
#[derive(Debug)]
pub(crate) struct Judged {
    pub(crate) name: String,
    pub(crate) change: Change,
    pub(crate) rate: Option<Comparison>,
    pub(crate) costs: Vec<Cost>,
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

/// Why the two reports can't be compared: what differs of machine, build and settings.
pub(crate) fn differences(before: &Report, after: &Report) -> Vec<String> {
    let (old, new) = (&before.machine, &after.machine);
    let profile = |build: &str| if build.contains("debug") { "debug" } else { "release" };
    let gibibytes = |bytes: u64| format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30));
    let facts = [
        ("processor", old.cpu.clone(), new.cpu.clone()),
        ("cores", old.cores.to_string(), new.cores.to_string()),
        ("memory", gibibytes(old.memory_bytes), gibibytes(new.memory_bytes)),
        ("system", old.system.clone(), new.system.clone()),
        ("kernel", old.kernel.clone(), new.kernel.clone()),
        ("file system", old.file_system.clone(), new.file_system.clone()),
        ("allocator", old.allocator.clone(), new.allocator.clone()),
        ("build", profile(&old.build).to_owned(), profile(&new.build).to_owned()),
        ("title", before.title.clone(), after.title.clone()),
        ("settings", settings(&before.config), settings(&after.config)),
    ];
    let unlike = facts.into_iter().filter(|(_, old, new)| old != new);
    unlike
        .map(|(name, old, new)| format!("{name}: `{}` and `{}`", old.trim(), new.trim()))
        .collect()
}

/// The configuration without what changes no figure: how often, where, which rows.
fn settings(config: &str) -> String {
    let Ok(mut table) = config.parse::<toml::Table>() else { return config.to_owned() };
    for name in ["repeat", "minutes", "keep", "rows", "engines"] {
        table.remove(name);
    }
    if let Some(toml::Value::Table(common)) = table.get_mut("common") {
        common.remove("path");
    }
    table.to_string()
}

/// Judges `after` by `before`. A figure that got worse by more than its tolerance is a regression,
/// unless the repeats say that the difference is noise.
pub(crate) fn judge(before: &Report, after: &Report, tolerances: &Tolerances) -> Gate {
    let mut rows = Vec::new();
    for engine in before.engines() {
        for subject in before.subjects() {
            let old = before.repeats(engine, subject);
            if old.is_empty() {
                continue;
            }
            let new = after.repeats(engine, subject);
            let name = format!("{engine} {}", subject.label());
            let unlike = || new.iter().any(|at| old.iter().any(|was| at.unlike(was).is_some()));
            if new.is_empty() || unlike() {
                rows.push(Judged { name, change: Change::Gone, rate: None, costs: Vec::new() });
                continue;
            }
            let rate = compare_samples(&rates(&new), &rates(&old));
            let costs = costs(&old, &new, tolerances);
            let change = match rate_change(&rate, tolerances.rate) {
                Change::Worse => Change::Worse,
                _ if costs.iter().any(|cost| cost.worse) => Change::Worse,
                change => change,
            };
            rows.push(Judged { name, change, rate: Some(rate), costs });
        }
    }
    Gate { rows }
}

fn rate_change(comparison: &Comparison, tolerance: f64) -> Change {
    let telling = comparison.verdict != Verdict::Noise;
    match comparison.ratio {
        ratio if telling && ratio < 1.0 - tolerance => Change::Worse,
        ratio if telling && ratio > 1.0 + tolerance => Change::Better,
        _ => Change::Same,
    }
}

fn costs(old: &[&Measured], new: &[&Measured], tolerances: &Tolerances) -> Vec<Cost> {
    let mut costs = Vec::new();
    for kind in OpKind::ALL {
        let of = |row: &Measured| row.kinds.iter().find(|entry| entry.kind == kind)?.latency.p99_us;
        let name = format!("p99 of {}", kind.name());
        costs.extend(cost(name, tolerances.p99, old, new, of));
    }
    let disk = |row: &Measured| Some(row.db_bytes as f64);
    let named = |name: &str| name.to_owned();
    costs.extend(cost(
        named("anonymous memory"),
        tolerances.memory,
        old,
        new,
        Measured::anonymous_peak,
    ));
    costs.extend(cost(named("size on disk"), tolerances.disk, old, new, disk));
    let amplification = tolerances.amplification;
    let of = Measured::write_amplification;
    costs.extend(cost(named("write amplification"), amplification, old, new, of));
    let of = Measured::engine_write_amplification;
    // The background work that is left grows now and did not before. So the rate is that of a
    // burst.
    let grows = |rows: &[&Measured]| rows.iter().any(|row| row.backlog_grew());
    if grows(new) && !grows(old) {
        let end = |row: &Measured| Some(row.backlog_trend()?.1);
        let backlog = cost(named("backlog at the end"), 0.0, old, new, end);
        costs.extend(backlog.map(|cost| Cost { worse: true, ..cost }));
    }
    costs.extend(cost(named("its own write amplification"), amplification, old, new, of));
    costs
}

/// None if one of the reports does not have the figure, or if it was zero before.
fn cost(
    name: String,
    tolerance: f64,
    old: &[&Measured],
    new: &[&Measured],
    of: impl Fn(&Measured) -> Option<f64>,
) -> Option<Cost> {
    let known = |rows: &[&Measured]| rows.iter().filter_map(|row| of(row)).collect::<Vec<f64>>();
    let (old, new) = (known(old), known(new));
    if new.is_empty() || crate::measure::median(&old) <= 0.0 {
        return None;
    }
    let comparison = compare_samples(&new, &old);
    let worse = comparison.verdict != Verdict::Noise && comparison.ratio > 1.0 + tolerance;
    Some(Cost { name, comparison, worse })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::testing::sample_report;

    const TOLERANCES: Tolerances =
        Tolerances { rate: 0.05, p99: 0.25, memory: 0.1, disk: 0.05, amplification: 0.05 };

    #[test]
    fn a_report_passes_against_itself() {
        let report = sample_report();
        let gate = judge(&report, &report, &TOLERANCES);
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
        let slower = judge(&at(1.0), &at(2.0), &TOLERANCES);
        assert_eq!((slower.count(Change::Worse), slower.passes()), (1, false));
        let faster = judge(&at(1.0), &at(0.5), &TOLERANCES);
        assert_eq!((faster.count(Change::Better), faster.passes()), (1, true));
    }

    #[test]
    fn a_row_that_is_gone_fails() {
        let before = sample_report();
        let mut after = before.clone();
        after.rows.retain(|row| row.subject.test != "write_seq_b1");
        assert!(!judge(&before, &after, &TOLERANCES).passes());
    }

    /// A report whose first engine's first row is changed.
    fn changed(change: impl Fn(&mut Measured)) -> Report {
        let mut report = sample_report();
        let (engine, subject) = (report.rows[0].engine.clone(), report.rows[0].subject.clone());
        let rows = report.rows.iter_mut();
        rows.filter(|row| row.engine == engine && row.subject == subject).for_each(change);
        report
    }

    #[test]
    fn worse_tails_memory_size_and_amplification_fail_at_an_equal_rate() {
        type Set = fn(&mut Measured, f64);
        let figures: [(&str, Set); 5] = [
            ("p99 of put", |row, by| row.kinds[0].latency.p99_us = Some(10.0 * by)),
            ("anonymous memory", |row, by| row.rss_anon_peak_bytes = (1e6 * by) as u64),
            ("size on disk", |row, by| row.db_bytes = (1e6 * by) as u64),
            ("write amplification", |row, by| {
                row.usage_settled.device_write_bytes = Some((1e6 * by) as u64)
            }),
            ("its own write amplification", |row, by| {
                let known = Some((1e6 * by) as u64);
                row.written = crate::engine::Written { log: known, flush: known, compaction: known }
            }),
        ];
        for (name, set) in figures {
            let gate = |by: f64| {
                judge(&changed(|row| set(row, 1.0)), &changed(|row| set(row, by)), &TOLERANCES)
            };
            let worse = gate(2.0);
            let blamed: Vec<&str> = worse.rows[0]
                .costs
                .iter()
                .filter(|cost| cost.worse)
                .map(|cost| cost.name.as_str())
                .collect();
            assert_eq!((blamed, worse.passes()), (vec![name], false));
            assert!(gate(1.02).passes() && gate(0.5).passes(), "{name}");
        }
    }

    #[test]
    fn debt_that_grows_fails_where_it_did_not_before_and_only_there() {
        let owing = |slope: u64| {
            changed(|row| {
                row.sustained = true;
                let sample = row.timeline[0].clone();
                let at = |second: u64| crate::measure::Sample {
                    seconds: second as f64,
                    backlog: Some(1_000_000 + second * slope),
                    ..sample.clone()
                };
                row.timeline = (1..=40).map(at).collect();
            })
        };
        let (steady, growing) = (owing(0), owing(1_000_000));
        assert!(judge(&growing, &growing, &TOLERANCES).passes(), "as it was");
        assert!(judge(&growing, &steady, &TOLERANCES).passes());
        let worse = judge(&steady, &growing, &TOLERANCES);
        assert_eq!((worse.count(Change::Worse), worse.count(Change::Gone)), (1, 0));
    }

    #[test]
    fn what_a_side_does_not_know_is_no_regression() {
        let unknown = changed(|row| row.usage_settled.device_write_bytes = None);
        assert!(judge(&unknown, &sample_report(), &TOLERANCES).passes());
        assert!(judge(&sample_report(), &unknown, &TOLERANCES).passes());
    }

    #[test]
    fn other_machines_and_settings_are_told_and_other_places_and_repeats_are_not() {
        let at = |config: &str| Report { config: config.to_owned(), ..sample_report() };
        let base = at("scale = 1.0\nrepeat = 5\n[common]\npath = '/a'\ncache_bytes = 7\n");
        let elsewhere = at("scale = 1.0\nrepeat = 9\n[common]\npath = '/b'\ncache_bytes = 7\n");
        assert_eq!(differences(&base, &elsewhere), Vec::<String>::new());
        let larger = at("scale = 1.0\n[common]\ncache_bytes = 8\n");
        assert!(differences(&base, &larger)[0].starts_with("settings: "));
        let mut other = base.clone();
        other.machine.kernel = "1.0".to_owned();
        assert!(differences(&base, &other)[0].starts_with("kernel: "));
    }
}
