//! Latencies by kind of operation, in HdrHistograms: three significant digits from 1 ns to an hour,
//! never samples.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

const HIGHEST_NS: u64 = 3_600_000_000_000;
const SIGNIFICANT_DIGITS: u8 = 3;

/// A kind of call whose latency is a distribution of its own.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum OpKind {
    Put,
    Get,
    Del,
    Range,
    Scan,
    Seek,
    Mput,
    Mget,
    Mdel,
    /// A transaction, from its first beginning until it has committed, however often it is run
    /// again.
    Txn,
    /// A whole call of a workload's `run`.
    Unit,
}

impl OpKind {
    pub(crate) const ALL: [OpKind; 11] = [
        OpKind::Put,
        OpKind::Get,
        OpKind::Del,
        OpKind::Range,
        OpKind::Scan,
        OpKind::Seek,
        OpKind::Mput,
        OpKind::Mget,
        OpKind::Mdel,
        OpKind::Txn,
        OpKind::Unit,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            OpKind::Put => "put",
            OpKind::Get => "get",
            OpKind::Del => "del",
            OpKind::Range => "range",
            OpKind::Scan => "scan",
            OpKind::Seek => "seek",
            OpKind::Mput => "mput",
            OpKind::Mget => "mget",
            OpKind::Mdel => "mdel",
            OpKind::Txn => "txn",
            OpKind::Unit => "unit",
        }
    }

    pub(crate) fn writes(self) -> bool {
        matches!(self, OpKind::Put | OpKind::Del | OpKind::Mput | OpKind::Mdel | OpKind::Txn)
    }
}

/// One thread's histograms; a kind costs memory once it is used.
#[derive(Default)]
pub(crate) struct Recorder {
    histograms: [Option<Box<Histogram<u64>>>; OpKind::ALL.len()],
    primitives: [u64; OpKind::ALL.len()],
}

impl Recorder {
    pub(crate) fn new() -> Recorder {
        Recorder::default()
    }

    /// One call of `kind` took `nanos` and touched `primitives` keys.
    #[inline]
    pub(crate) fn record(&mut self, kind: OpKind, nanos: u64, primitives: u64) {
        let histogram = self.histograms[kind as usize].get_or_insert_with(new_histogram);
        histogram.saturating_record(nanos.max(1));
        self.primitives[kind as usize] += primitives;
    }

    /// Makes room for a kind ahead of time, its pages touched, so that its first call isn't
    /// charged.
    pub(crate) fn prepare(&mut self, kind: OpKind) {
        self.histograms[kind as usize].get_or_insert_with(new_histogram).reset();
    }

    pub(crate) fn merge(&mut self, other: &Recorder) {
        for (index, theirs) in other.histograms.iter().enumerate() {
            if let Some(theirs) = theirs {
                let ours = self.histograms[index].get_or_insert_with(new_histogram);
                // Both histograms have the same bounds, so no value is out of range.
                let added = ours.add(theirs.as_ref());
                debug_assert!(added.is_ok());
            }
            self.primitives[index] += other.primitives[index];
        }
    }

    pub(crate) fn has(&self, kind: OpKind) -> bool {
        self.histograms[kind as usize].as_ref().is_some_and(|calls| !calls.is_empty())
    }

    /// Each kind that occurred.
    pub(crate) fn kinds(&self) -> Vec<KindLatency> {
        OpKind::ALL
            .into_iter()
            .filter_map(|kind| {
                let histogram = self.histograms[kind as usize]
                    .as_ref()
                    .filter(|histogram| !histogram.is_empty())?;
                let primitives = self.primitives[kind as usize];
                Some(KindLatency { kind, primitives, latency: Latency::of(histogram) })
            })
            .collect()
    }
}

#[expect(clippy::expect_used, reason = "the bounds are constants and valid")]
fn new_histogram() -> Box<Histogram<u64>> {
    Box::new(Histogram::new_with_bounds(1, HIGHEST_NS, SIGNIFICANT_DIGITS).expect("valid bounds"))
}

/// A kind of operation with its count of keys touched.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct KindLatency {
    pub(crate) kind: OpKind,
    pub(crate) primitives: u64,
    pub(crate) latency: Latency,
}

/// A distribution of latencies, in microseconds.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Latency {
    pub(crate) count: u64,
    pub(crate) mean_us: f64,
    pub(crate) stddev_us: f64,
    pub(crate) min_us: f64,
    /// A percentile is `None` where too few calls lie beyond it, see [`enough_for`].
    pub(crate) p50_us: Option<f64>,
    pub(crate) p95_us: Option<f64>,
    pub(crate) p99_us: Option<f64>,
    pub(crate) p999_us: Option<f64>,
    pub(crate) max_us: f64,
    /// (quantile, microseconds) pairs for drawing the curve, as far as there are calls enough.
    pub(crate) curve: Vec<(f64, f64)>,
}

const CURVE_QUANTILES: [f64; 12] =
    [0.0, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.995, 0.999, 0.9999, 0.99999, 1.0];

/// Ten calls must lie beyond a quantile. With fewer, its value depends on the chance of a few
/// calls. The number beyond varies from run to run by about its square root, so ten still tell the
/// size of a tail to a third. That makes 20 calls for p50, 1,000 for p99, 10,000 for p99.9.
const CALLS_BEYOND: f64 = 10.0;

/// Whether `count` calls say anything of the quantile.
pub(crate) fn enough_for(quantile: f64, count: u64) -> bool {
    // Slightly less than ten, because binary fractions cannot represent some quantiles.
    count as f64 * (1.0 - quantile) >= CALLS_BEYOND - 1e-6
}

impl Latency {
    fn of(histogram: &Histogram<u64>) -> Latency {
        let value = |quantile| histogram.value_at_quantile(quantile) as f64 / 1e3;
        let at = |quantile| enough_for(quantile, histogram.len()).then(|| value(quantile));
        let shown = |quantile: &f64| *quantile == 1.0 || at(*quantile).is_some();
        Latency {
            count: histogram.len(),
            mean_us: histogram.mean() / 1e3,
            stddev_us: histogram.stdev() / 1e3,
            min_us: histogram.min() as f64 / 1e3,
            p50_us: at(0.5),
            p95_us: at(0.95),
            p99_us: at(0.99),
            p999_us: at(0.999),
            max_us: histogram.max() as f64 / 1e3,
            curve: CURVE_QUANTILES
                .into_iter()
                .filter(shown)
                .map(|quantile| (quantile, value(quantile)))
                .collect(),
        }
    }

    /// Standard deviation as a percentage of the mean.
    pub(crate) fn cv_percent(&self) -> f64 {
        if self.mean_us > 0.0 { self.stddev_us / self.mean_us * 100.0 } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::Rng;

    fn close(estimate: f64, exact: f64) -> bool {
        (estimate - exact).abs() <= exact * 0.002
    }

    #[test]
    fn quantiles_are_within_three_digits_of_the_exact_ones() {
        let mut rng = Rng::new(4);
        let mut recorder = Recorder::new();
        // Log-uniform from 100 ns to 100 ms, as latencies with a long tail are.
        let mut exact: Vec<u64> =
            (0..200_000).map(|_| (100.0 * 10f64.powf(rng.unit() * 6.0)) as u64).collect();
        for &nanos in &exact {
            recorder.record(OpKind::Get, nanos, 1);
        }
        exact.sort_unstable();
        let latency = &recorder.kinds()[0].latency;
        let at = |quantile: f64| {
            exact[((quantile * exact.len() as f64).ceil() as usize).max(1) - 1] as f64 / 1e3
        };
        for (estimate, quantile) in [
            (latency.p50_us, 0.5),
            (latency.p95_us, 0.95),
            (latency.p99_us, 0.99),
            (latency.p999_us, 0.999),
            (Some(latency.max_us), 1.0),
        ] {
            let estimate = estimate.unwrap();
            assert!(
                close(estimate, at(quantile)),
                "{quantile}: {estimate} against {}",
                at(quantile)
            );
        }
        let mean = exact.iter().sum::<u64>() as f64 / exact.len() as f64 / 1e3;
        assert!(close(latency.mean_us, mean));
        let variance = exact.iter().map(|&ns| (ns as f64 / 1e3 - mean).powi(2)).sum::<f64>()
            / exact.len() as f64;
        assert!(close(latency.stddev_us, variance.sqrt()));
    }

    #[test]
    fn a_percentile_is_told_once_ten_calls_lie_beyond_it() {
        let of = |calls: u64| {
            let mut recorder = Recorder::new();
            (1..=calls).for_each(|nanos| recorder.record(OpKind::Get, nanos * 1000, 1));
            recorder.kinds().remove(0).latency
        };
        let told = |latency: &Latency| {
            [latency.p50_us, latency.p95_us, latency.p99_us, latency.p999_us].map(|at| at.is_some())
        };
        assert_eq!(told(&of(19)), [false; 4]);
        assert_eq!(told(&of(20)), [true, false, false, false]);
        assert_eq!(told(&of(999)), [true, true, false, false]);
        assert_eq!(told(&of(1000)), [true, true, true, false]);
        assert_eq!(told(&of(9_999)), [true, true, true, false]);
        let whole = of(10_000);
        assert_eq!(told(&whole), [true; 4]);
        assert!(whole.curve.iter().all(|(quantile, _)| *quantile <= 0.999 || *quantile == 1.0));
        assert!(of(5).max_us < 5.01, "the longest call is a fact at any count");
    }

    #[test]
    fn merging_threads_is_the_same_as_one_recorder() {
        let (mut left, mut right, mut whole) = (Recorder::new(), Recorder::new(), Recorder::new());
        for nanos in 1..1000 {
            if nanos % 2 == 0 { &mut left } else { &mut right }.record(OpKind::Mput, nanos, 10);
            whole.record(OpKind::Mput, nanos, 10);
        }
        left.merge(&right);
        let (merged, expected) = (&left.kinds()[0], &whole.kinds()[0]);
        assert_eq!(merged.primitives, expected.primitives);
        assert_eq!(merged.latency.curve, expected.latency.curve);
    }

    #[test]
    fn an_hour_long_stall_is_kept_not_dropped() {
        let mut recorder = Recorder::new();
        recorder.record(OpKind::Put, u64::MAX, 1);
        assert!(recorder.kinds()[0].latency.max_us >= 3.5e9);
    }
}
