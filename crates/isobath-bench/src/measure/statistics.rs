//! Medians, bootstrap intervals of a ratio of medians, and the sentence they allow.

use crate::generate::Rng;
use serde::{Deserialize, Serialize};

const RESAMPLES: usize = 2000;
/// With fewer repeats an interval says nothing: the bootstrap of three or four medians is too
/// narrow.
const REPEATS_MIN: usize = 5;
/// Runs of one machine differ by about this much whatever is measured.
const NOISE_FLOOR: f64 = 0.02;

/// The median of what is known of the values, if anything is.
pub(crate) fn median_known(values: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    let known: Vec<f64> = values.flatten().collect();
    (!known.is_empty()).then(|| median(&known))
}

pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    match sorted.len() {
        0 => 0.0,
        len if len % 2 == 1 => sorted[len / 2],
        len => (sorted[len / 2 - 1] + sorted[len / 2]) / 2.0,
    }
}

/// What may be said of two samples.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Verdict {
    Faster,
    Slower,
    /// The interval includes 1.
    Noise,
    /// Too few repeats to tell.
    Unknown,
}

/// A ratio of medians, with its interval.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(crate) struct Comparison {
    pub(crate) ratio: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
    pub(crate) repeats: usize,
    pub(crate) verdict: Verdict,
}

impl Comparison {
    /// A plain sentence for a table.
    pub(crate) fn sentence(&self, subject: &str, base: &str) -> String {
        let interval = format!("95% interval {:.2} to {:.2}", self.low, self.high);
        match self.verdict {
            Verdict::Faster => format!("{subject} is {:.2}x {base} ({interval})", self.ratio),
            Verdict::Slower => format!("{subject} is only {:.2}x {base} ({interval})", self.ratio),
            Verdict::Noise => {
                format!("the difference of {subject} and {base} is inside the noise ({interval})")
            }
            Verdict::Unknown => format!(
                "{subject} is {:.2}x {base}, from {} repeat(s): too few to tell it from noise",
                self.ratio, self.repeats
            ),
        }
    }
}

/// Compares two samples of a rate, by resampling each (percentile bootstrap, 95 %).
pub(crate) fn compare_samples(subject: &[f64], base: &[f64]) -> Comparison {
    let ratio = quotient(median(subject), median(base));
    let repeats = subject.len().min(base.len());
    if repeats < REPEATS_MIN {
        return Comparison { ratio, low: ratio, high: ratio, repeats, verdict: Verdict::Unknown };
    }
    let mut rng = Rng::new(0x5eed);
    let mut ratios: Vec<f64> = (0..RESAMPLES)
        .map(|_| quotient(resampled_median(subject, &mut rng), resampled_median(base, &mut rng)))
        .collect();
    ratios.sort_unstable_by(f64::total_cmp);
    let (low, high) = (ratios[RESAMPLES / 40], ratios[RESAMPLES - 1 - RESAMPLES / 40]);
    let verdict = match () {
        () if low > 1.0 && ratio > 1.0 + NOISE_FLOOR => Verdict::Faster,
        () if high < 1.0 && ratio < 1.0 - NOISE_FLOOR => Verdict::Slower,
        () => Verdict::Noise,
    };
    Comparison { ratio, low, high, repeats, verdict }
}

fn resampled_median(values: &[f64], rng: &mut Rng) -> f64 {
    let drawn: Vec<f64> =
        values.iter().map(|_| values[rng.below(values.len() as u64) as usize]).collect();
    median(&drawn)
}

fn quotient(subject: f64, base: f64) -> f64 {
    if base > 0.0 { subject / base } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_of_odd_even_and_no_values() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert_eq!(median(&[]), 0.0);
    }

    #[test]
    fn a_clear_difference_is_called_by_its_direction() {
        let (fast, slow) = ([200.0, 205.0, 198.0, 202.0, 201.0], [100.0, 103.0, 99.0, 101.0, 98.0]);
        assert_eq!(compare_samples(&fast, &slow).verdict, Verdict::Faster);
        assert_eq!(compare_samples(&slow, &fast).verdict, Verdict::Slower);
    }

    #[test]
    fn overlapping_samples_are_inside_the_noise() {
        let comparison =
            compare_samples(&[100.0, 120.0, 90.0, 105.0, 99.0], &[102.0, 95.0, 115.0, 99.0, 101.0]);
        assert_eq!(comparison.verdict, Verdict::Noise);
        assert!(comparison.sentence("a", "b").contains("inside the noise"));
    }

    #[test]
    fn a_tiny_steady_difference_is_still_noise() {
        assert_eq!(compare_samples(&[101.0; 5], &[100.0; 5]).verdict, Verdict::Noise);
    }

    #[test]
    fn fewer_than_five_repeats_prove_nothing() {
        assert_eq!(compare_samples(&[200.0; 4], &[100.0; 4]).verdict, Verdict::Unknown);
    }

    #[test]
    fn equal_populations_are_called_different_about_one_time_in_twenty() {
        let mut rng = Rng::new(12);
        let mut sample =
            || -> Vec<f64> { (0..9).map(|_| 100.0 + 20.0 * (rng.unit() - 0.5)).collect() };
        let wrong = (0..300)
            .filter(|_| compare_samples(&sample(), &sample()).verdict != Verdict::Noise)
            .count();
        assert!(wrong < 40, "{wrong} of 300");
    }
}
