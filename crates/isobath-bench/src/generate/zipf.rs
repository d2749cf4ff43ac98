//! Zipfian ranks in constant time and memory, by rejection-inversion (Hörmann and Derflinger,
//! "Rejection-inversion to generate variates from monotone discrete distributions", 1996).
//!
//! P(rank = k) is proportional to 1 / (k + 1)^s for k in `[0, n)`. With `scattered`, ranks are
//! hashed over the key space so that hot keys aren't neighbours.

use super::{Permutation, Rng};

#[derive(Clone, Debug)]
pub(crate) struct Zipf {
    exponent: f64,
    integral_low: f64,
    integral_high: f64,
    shortcut: f64,
    len: f64,
    scatter: Permutation,
}

impl Zipf {
    /// The exponent that YCSB uses.
    pub(crate) const YCSB_EXPONENT: f64 = 0.99;

    pub(crate) fn new(len: u64, exponent: f64, seed: u64) -> Zipf {
        let mut zipf = Zipf {
            exponent,
            integral_low: 0.0,
            integral_high: 0.0,
            shortcut: 0.0,
            len: len.max(1) as f64,
            scatter: Permutation::new(len, seed),
        };
        zipf.integral_low = zipf.integral(1.5) - 1.0;
        zipf.integral_high = zipf.integral(zipf.len + 0.5);
        zipf.shortcut = 2.0 - zipf.integral_inverse(zipf.integral(2.5) - zipf.density(2.0));
        zipf
    }

    /// A rank: 0 is the most frequent.
    #[inline]
    pub(crate) fn rank(&self, rng: &mut Rng) -> u64 {
        loop {
            let u = self.integral_high + rng.unit() * (self.integral_low - self.integral_high);
            let x = self.integral_inverse(u);
            let k = x.round().clamp(1.0, self.len);
            if k - x <= self.shortcut || u >= self.integral(k + 0.5) - self.density(k) {
                return k as u64 - 1;
            }
        }
    }

    /// An index whose frequency is Zipfian, its rank hidden by a permutation.
    #[inline]
    pub(crate) fn scattered(&self, rng: &mut Rng) -> u64 {
        self.scatter.at(self.rank(rng))
    }

    #[inline]
    fn density(&self, x: f64) -> f64 {
        (-self.exponent * x.ln()).exp()
    }

    /// The integral of the density up to a constant, exact and stable at an exponent near 1.
    #[inline]
    fn integral(&self, x: f64) -> f64 {
        let log = x.ln();
        let scaled = (1.0 - self.exponent) * log;
        if scaled.abs() < 1e-8 {
            log * (1.0 + scaled / 2.0)
        } else {
            log * (scaled.exp_m1() / scaled)
        }
    }

    #[inline]
    fn integral_inverse(&self, y: f64) -> f64 {
        let scaled = (y * (1.0 - self.exponent)).max(-1.0);
        let factor = if scaled.abs() < 1e-8 { 1.0 - scaled / 2.0 } else { scaled.ln_1p() / scaled };
        (factor * y).exp()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Chi squared of `draws` ranks against the exact law, the tail pooled.
    fn chi_squared(len: u64, exponent: f64, draws: u32) -> f64 {
        let zipf = Zipf::new(len, exponent, 3);
        let mut rng = Rng::new(11);
        let mut counts = [0u32; 51];
        for _ in 0..draws {
            counts[zipf.rank(&mut rng).min(50) as usize] += 1;
        }
        let weights: Vec<f64> = (1..=len).map(|k| (k as f64).powf(-exponent)).collect();
        let total: f64 = weights.iter().sum();
        let expected = |cell: usize| {
            let weight = if cell < 50 { weights[cell] } else { weights[50..].iter().sum() };
            weight / total * f64::from(draws)
        };
        (0..51)
            .map(|cell| (f64::from(counts[cell]) - expected(cell)).powi(2) / expected(cell))
            .sum()
    }

    #[test]
    fn ranks_follow_the_law_at_every_exponent() {
        for exponent in [0.5, 0.99, 1.0, 1.3] {
            let chi = chi_squared(1000, exponent, 500_000);
            // 50 degrees of freedom: 86.7 is the 99.9 % quantile.
            assert!(chi < 86.7, "exponent {exponent}: chi squared {chi}");
        }
    }

    #[test]
    fn ranks_stay_inside() {
        let mut rng = Rng::new(1);
        for len in [1, 2, 10] {
            let zipf = Zipf::new(len, 0.99, 1);
            assert!(
                (0..10_000).all(|_| zipf.rank(&mut rng) < len && zipf.scattered(&mut rng) < len)
            );
        }
    }
}
