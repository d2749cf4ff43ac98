//! Counters in which many threads count at once. Each lies in several stripes, which share no cache
//! line, and what is counted says which one counts it: so threads that read different blocks or
//! values mostly write to different lines.

use super::BlockKey;
use crate::env::sync::atomic::{AtomicU64, Ordering};
use crossbeam_utils::CachePadded;

const STRIPE_COUNT: usize = 16;

/// Counters of kind `T`, once for each stripe.
#[derive(Debug, Default)]
pub(crate) struct Striped<T>([CachePadded<T>; STRIPE_COUNT]);

impl<T> Striped<T> {
    /// The counters of the stripe of a block or a value.
    #[inline]
    pub(crate) fn of(&self, key: &BlockKey) -> &T {
        &self.0[(key.mixed() >> 32) as usize % STRIPE_COUNT]
    }

    /// One counter, over all stripes.
    pub(crate) fn sum(&self, counter: impl Fn(&T) -> &AtomicU64) -> u64 {
        self.0.iter().map(|stripe| counter(stripe).load(Ordering::Relaxed)).sum()
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn neighbours_count_in_many_stripes_and_the_sum_has_them_all() {
        let striped = Striped::<AtomicU64>::default();
        for offset in 0..400 {
            let key = BlockKey { id: 1, file: 7, offset: 128 + offset * 4096 };
            striped.of(&key).fetch_add(2, Ordering::Relaxed);
        }
        assert_eq!(striped.sum(|count| count), 800);
        let shares = striped.0.iter().map(|count| count.load(Ordering::Relaxed));
        assert!(shares.clone().all(|share| (10..=120).contains(&share)), "{shares:?}");
        assert!(size_of_val(&striped) >= STRIPE_COUNT * 64, "each has a line of its own");
    }
}
