//! A random permutation of `[0, n)` without a table: a four-round Feistel network on the next even
//! number of bits, walked until it lands inside (at most four steps on average).

use super::mix;

#[derive(Clone, Debug)]
pub(crate) struct Permutation {
    len: u64,
    half_bits: u32,
    keys: [u64; 4],
}

impl Permutation {
    pub(crate) fn new(len: u64, seed: u64) -> Permutation {
        let bits = (64 - len.saturating_sub(1).leading_zeros()).max(2);
        let keys = [1, 2, 3, 4].map(|round| mix(seed ^ mix(round)));
        Permutation { len: len.max(1), half_bits: bits.div_ceil(2), keys }
    }

    /// Where `position` goes.
    #[inline]
    pub(crate) fn at(&self, position: u64) -> u64 {
        let mut index = self.round_trip(position % self.len);
        while index >= self.len {
            index = self.round_trip(index);
        }
        index
    }

    #[inline]
    fn round_trip(&self, number: u64) -> u64 {
        let mask = (1u64 << self.half_bits) - 1;
        let (mut left, mut right) = (number >> self.half_bits, number & mask);
        for key in self.keys {
            let scrambled = (right ^ key).wrapping_mul(0xff51_afd7_ed55_8ccd) >> 32;
            (left, right) = (right, left ^ (scrambled & mask));
        }
        (left << self.half_bits) | right
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_index_comes_exactly_once() {
        for len in [1, 2, 3, 7, 64, 1000, 4097] {
            let permutation = Permutation::new(len, 5);
            let mut seen: Vec<u64> = (0..len).map(|position| permutation.at(position)).collect();
            seen.sort_unstable();
            assert_eq!(seen, (0..len).collect::<Vec<_>>(), "len {len}");
        }
    }

    #[test]
    fn neighbours_are_scattered() {
        let len = 1 << 20;
        let permutation = Permutation::new(len, 9);
        let near = (0..10_000)
            .filter(|&p| permutation.at(p).abs_diff(permutation.at(p + 1)) < len / 100)
            .count();
        // Two random points lie within a hundredth of each other about 2 % of the time.
        assert!((100..300).contains(&near), "{near} of 10000");
    }
}
