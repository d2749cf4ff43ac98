//! xoshiro256++ (Blackman and Vigna) seeded by splitmix64, and splitmix64's mixer as a bijection.

const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
const FIRST: u64 = 0xbf58_476d_1ce4_e5b9;
const SECOND: u64 = 0x94d0_49bb_1331_11eb;

/// A bijection of 64-bit numbers that looks random.
#[inline]
pub(crate) fn mix(number: u64) -> u64 {
    let mut z = number.wrapping_add(GOLDEN);
    z = (z ^ (z >> 30)).wrapping_mul(FIRST);
    z = (z ^ (z >> 27)).wrapping_mul(SECOND);
    z ^ (z >> 31)
}

/// The inverse of [`mix`].
#[inline]
pub(crate) fn unmix(mixed: u64) -> u64 {
    let mut z = unshift(mixed, 31);
    z = unshift(z.wrapping_mul(inverse(SECOND)), 27);
    z = unshift(z.wrapping_mul(inverse(FIRST)), 30);
    z.wrapping_sub(GOLDEN)
}

/// Undoes `z ^ (z >> shift)`.
const fn unshift(z: u64, shift: u32) -> u64 {
    let mut known = z;
    let mut bits = shift;
    while bits < 64 {
        known = z ^ (known >> shift);
        bits += shift;
    }
    known
}

/// The inverse of an odd number modulo 2^64, by Newton's iteration.
const fn inverse(odd: u64) -> u64 {
    let mut x = odd;
    let mut round = 0;
    while round < 5 {
        x = x.wrapping_mul(2u64.wrapping_sub(odd.wrapping_mul(x)));
        round += 1;
    }
    x
}

#[derive(Clone, Debug)]
pub(crate) struct Rng {
    state: [u64; 4],
}

impl Rng {
    pub(crate) fn new(seed: u64) -> Rng {
        Rng { state: [0, 1, 2, 3].map(|word| mix(seed.wrapping_add(GOLDEN.wrapping_mul(word)))) }
    }

    #[inline]
    pub(crate) fn next(&mut self) -> u64 {
        let [a, b, c, d] = self.state;
        let result = a.wrapping_add(d).rotate_left(23).wrapping_add(a);
        let (c, d) = (c ^ a, d ^ b);
        self.state = [a ^ d, b ^ c, c ^ (b << 17), d.rotate_left(45)];
        result
    }

    /// Uniform in `[0, bound)`, by multiplication; the bias is below `bound / 2^64`.
    #[inline]
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    /// Uniform in `[0, 1)`.
    #[inline]
    pub(crate) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mix_is_undone_by_unmix() {
        for number in (0..1000).chain([u64::MAX, u64::MAX / 3, 1 << 63]) {
            assert_eq!(unmix(mix(number)), number);
        }
    }

    #[test]
    fn xoshiro_follows_the_published_recurrence() {
        let mut rng = Rng { state: [1, 2, 3, 4] };
        let first: Vec<u64> = (0..4).map(|_| rng.next()).collect();
        assert_eq!(first, [41943041, 58720359, 3588806011781223, 3591011842654386]);
    }

    #[test]
    fn uniform_draws_pass_a_chi_squared_test() {
        let mut rng = Rng::new(7);
        let mut counts = [0u32; 100];
        for _ in 0..1_000_000 {
            counts[rng.below(100) as usize] += 1;
        }
        let chi: f64 =
            counts.iter().map(|&count| (f64::from(count) - 10_000.0).powi(2) / 10_000.0).sum();
        // 99 degrees of freedom: 148.2 is the 99.9 % quantile.
        assert!(chi < 148.2, "chi squared {chi}");
    }

    #[test]
    fn equal_seeds_give_equal_streams_and_others_differ() {
        let stream = |seed| {
            let mut rng = Rng::new(seed);
            [rng.next(), rng.next(), rng.next()]
        };
        assert_eq!(stream(1), stream(1));
        assert_ne!(stream(1), stream(2));
    }
}
