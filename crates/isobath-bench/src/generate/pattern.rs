//! Which key each operation of a suite touches.

use super::{KeyShape, Permutation, Rng, Zipf};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The order in which keys are visited, and their shape.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Pattern {
    /// Ascending, each thread in a stripe of its own.
    Seq,
    /// Every key once, in a random order; keys are random bytes.
    Random,
    /// Few keys often: rank k with frequency 1/k^0.99, hot keys scattered.
    Zipfian,
    /// Any key each time, with repetition.
    Uniform,
    /// Ascending in time, all threads at the same edge.
    Timestamp,
    /// Descending, each thread in a stripe of its own.
    Reverse,
    /// The "random" order of TidesDB's articles: a counter with its bytes swapped.
    Swapped,
}

impl Pattern {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Pattern::Seq => "seq",
            Pattern::Random => "random",
            Pattern::Zipfian => "zipfian",
            Pattern::Uniform => "uniform",
            Pattern::Timestamp => "timestamp",
            Pattern::Reverse => "reverse",
            Pattern::Swapped => "swapped",
        }
    }

    /// The pattern in which a database is filled for this one: the same keys, each once.
    pub(crate) fn of_population(self) -> Pattern {
        match self {
            Pattern::Zipfian | Pattern::Uniform => Pattern::Random,
            Pattern::Reverse => Pattern::Seq,
            other => other,
        }
    }

    pub(crate) fn key_shape(self) -> KeyShape {
        match self {
            Pattern::Seq | Pattern::Reverse => KeyShape::Ordered,
            Pattern::Random | Pattern::Zipfian | Pattern::Uniform => KeyShape::Hashed,
            Pattern::Timestamp => KeyShape::Timestamp,
            Pattern::Swapped => KeyShape::Swapped,
        }
    }
}

/// One thread's choices over the indexes `[0, keys)`.
pub(crate) struct Chooser {
    pattern: Pattern,
    keys: u64,
    first: u64,
    stripe: u64,
    thread: u64,
    threads: u64,
    step: u64,
    rng: Rng,
    permutation: Permutation,
    zipf: Option<Arc<Zipf>>,
}

impl Chooser {
    /// `seed` is that of the phase: a read phase with another seed than the load visits the keys in
    /// another order than they were written.
    pub(crate) fn new(
        pattern: Pattern,
        keys: u64,
        thread: u64,
        threads: u64,
        seed: u64,
    ) -> Chooser {
        let first = keys * thread / threads;
        Chooser {
            pattern,
            keys,
            first,
            stripe: (keys * (thread + 1) / threads - first).max(1),
            thread,
            threads,
            step: 0,
            rng: Rng::new(seed.wrapping_add(thread)),
            permutation: Permutation::new(keys, seed),
            zipf: (pattern == Pattern::Zipfian)
                .then(|| Arc::new(Zipf::new(keys, Zipf::YCSB_EXPONENT, 1))),
        }
    }

    /// The index of the next operation's key.
    #[inline]
    pub(crate) fn next(&mut self) -> u64 {
        let step = self.step;
        self.step += 1;
        match self.pattern {
            Pattern::Seq | Pattern::Swapped => self.first + step % self.stripe,
            Pattern::Reverse => self.first + self.stripe - 1 - step % self.stripe,
            Pattern::Random => self.permutation.at(self.first + step % self.stripe),
            Pattern::Timestamp => (step * self.threads + self.thread) % self.keys,
            Pattern::Uniform => self.rng.below(self.keys),
            Pattern::Zipfian => match &self.zipf {
                Some(zipf) => zipf.scattered(&mut self.rng),
                None => 0,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draws(pattern: Pattern, keys: u64, threads: u64, each: u64) -> Vec<u64> {
        (0..threads)
            .flat_map(|thread| {
                let mut chooser = Chooser::new(pattern, keys, thread, threads, 42);
                (0..each).map(move |_| chooser.next()).collect::<Vec<_>>()
            })
            .collect()
    }

    #[test]
    fn patterns_that_promise_it_visit_every_key_once_over_all_threads() {
        for pattern in
            [Pattern::Seq, Pattern::Reverse, Pattern::Random, Pattern::Timestamp, Pattern::Swapped]
        {
            let mut seen = draws(pattern, 4000, 4, 1000);
            seen.sort_unstable();
            assert_eq!(seen, (0..4000).collect::<Vec<_>>(), "{pattern:?}");
        }
    }

    #[test]
    fn seq_ascends_and_reverse_descends() {
        assert_eq!(draws(Pattern::Seq, 10, 1, 4), [0, 1, 2, 3]);
        assert_eq!(draws(Pattern::Reverse, 10, 1, 4), [9, 8, 7, 6]);
    }

    #[test]
    fn threads_of_a_timestamp_pattern_share_the_edge() {
        let mut chooser = Chooser::new(Pattern::Timestamp, 100, 1, 4, 0);
        assert_eq!([chooser.next(), chooser.next(), chooser.next()], [1, 5, 9]);
    }

    #[test]
    fn zipfian_has_a_hot_head_and_uniform_has_none() {
        let hottest = |pattern| {
            let mut counts = vec![0u32; 10_000];
            for index in draws(pattern, 10_000, 1, 100_000) {
                counts[index as usize] += 1;
            }
            counts.sort_unstable_by(|a, b| b.cmp(a));
            counts[..100].iter().sum::<u32>()
        };
        // The head's exact share is H(100, 0.99) / H(10000, 0.99) = 0.525.
        assert!(
            (50_500..54_500).contains(&hottest(Pattern::Zipfian)),
            "{}",
            hottest(Pattern::Zipfian)
        );
        assert!(hottest(Pattern::Uniform) < 3_000);
    }
}
