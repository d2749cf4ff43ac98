//! What seeds amounted to.

use std::fmt;

/// Counts over one seed or many.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) seeds: u64,
    /// Commits and reads.
    pub(crate) operations: u64,
    pub(crate) crashes: u64,
    pub(crate) opens: u64,
    /// Operations on files that were made to fail, and pieces of the disk that were damaged.
    pub(crate) faults: u64,
    pub(crate) steps: u64,
    /// Of every decision made, to show that a seed repeats.
    pub(crate) digest: u64,
}

impl Tally {
    pub(crate) fn add(&mut self, other: Tally) {
        self.seeds += other.seeds;
        self.operations += other.operations;
        self.crashes += other.crashes;
        self.opens += other.opens;
        self.faults += other.faults;
        self.steps += other.steps;
        self.digest = self.digest.rotate_left(7) ^ other.digest;
    }

    /// The counts that a ledger keeps.
    pub(crate) fn counts(&self) -> [(&'static str, u64); 4] {
        [
            ("seeds", self.seeds),
            ("operations", self.operations),
            ("crashes", self.crashes),
            ("faults", self.faults),
        ]
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} seeds, {} operations, {} crashes, {} opens, {} faults, {} steps, digest {:016x}",
            self.seeds,
            self.operations,
            self.crashes,
            self.opens,
            self.faults,
            self.steps,
            self.digest
        )
    }
}
