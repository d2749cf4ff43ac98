//! The sums of what the runs of many seeds did.

use super::levels::{Levels, TwoPhase};
use isobath::env::reach::{self, Reach};
use std::fmt;

/// Counts over one seed or many.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) seeds: u64,
    /// Commits and reads.
    pub(crate) operations: u64,
    pub(crate) crashes: u64,
    pub(crate) opens: u64,
    /// Lives whose late reads could not be judged.
    pub(crate) unjudged: u64,
    /// Operations on files that were made to fail, and pieces of the disk that were damaged.
    pub(crate) faults: u64,
    pub(crate) steps: u64,
    /// A digest of every decision made, to show that a seed repeats.
    pub(crate) digest: u64,
    pub(crate) reached: Reached,
    pub(crate) levels: Levels,
    pub(crate) two_phase: TwoPhase,
}

/// How often each place was reached that a run has to reach.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reached {
    counts: Vec<u64>,
    /// The seeds that came there.
    seeds: Vec<u64>,
}

impl Reached {
    /// The places that the calling thread has reached since its last call, in one seed.
    pub(crate) fn take() -> Reached {
        let counts = reach::take();
        let seeds = counts.iter().map(|count| u64::from(*count > 0)).collect();
        Reached { counts, seeds }
    }

    fn add(&mut self, other: &Reached) {
        add_each(&mut self.counts, &other.counts);
        add_each(&mut self.seeds, &other.seeds);
    }

    fn counts(&self) -> impl Iterator<Item = (Reach, u64)> {
        by_place(&self.counts)
    }

    /// How many seeds came to each place.
    pub(crate) fn in_seeds(&self) -> impl Iterator<Item = (Reach, u64)> {
        by_place(&self.seeds)
    }

    /// The places that were never reached.
    pub(crate) fn missed(&self) -> Vec<Reach> {
        self.counts().filter(|(_, count)| *count == 0).map(|(place, _)| place).collect()
    }
}

fn add_each(counts: &mut Vec<u64>, more: &[u64]) {
    counts.resize(Reach::ALL.len(), 0);
    counts.iter_mut().zip(more).for_each(|(count, more)| *count += more);
}

fn by_place(counts: &[u64]) -> impl Iterator<Item = (Reach, u64)> {
    Reach::ALL.iter().copied().zip(counts.iter().copied().chain(std::iter::repeat(0)))
}

impl fmt::Display for Reached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts: Vec<String> =
            self.counts().map(|(place, count)| format!("{} {count}", place.name())).collect();
        f.write_str(&counts.join(", "))
    }
}

impl Tally {
    pub(crate) fn add(&mut self, other: Tally) {
        self.seeds += other.seeds;
        self.operations += other.operations;
        self.crashes += other.crashes;
        self.opens += other.opens;
        self.unjudged += other.unjudged;
        self.faults += other.faults;
        self.steps += other.steps;
        self.digest = self.digest.rotate_left(7) ^ other.digest;
        self.reached.add(&other.reached);
        self.levels.add(&other.levels);
        self.two_phase.add(&other.two_phase);
    }

    /// The counts that a ledger keeps.
    pub(crate) fn counts(&self) -> impl Iterator<Item = (String, u64)> {
        let places = Reach::ALL.len() - self.reached.missed().len();
        let counts = [
            ("seeds", self.seeds),
            ("operations", self.operations),
            ("crashes", self.crashes),
            ("faults", self.faults),
            ("places", places as u64),
        ];
        let counts = counts.into_iter().map(|(name, count)| (name.to_owned(), count));
        counts.chain(self.two_phase.counts()).chain(self.levels.counts())
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} seeds, {} operations, {} crashes, {} opens, {} unjudged, {} faults, {} steps, digest {:016x}",
            self.seeds,
            self.operations,
            self.crashes,
            self.opens,
            self.unjudged,
            self.faults,
            self.steps,
            self.digest
        )
    }
}
