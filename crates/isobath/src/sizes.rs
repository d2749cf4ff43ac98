//! Lengths that no program chooses: least sizes, and how far ahead something is done.
//!
//! They make sense for real data and hide what a tree or a log does behind megabytes of it. A
//! simulator makes them small, with [`crate::Options::sizes`] under the feature `simulation`, so
//! that a few hundred kilobytes are a tree of four levels over a log that goes round.

/// The lengths.
#[cfg_attr(not(feature = "simulation"), allow(unreachable_pub))] // Public in the other build.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Sizes {
    /// The smallest [`crate::Options::write_buffer`].
    pub write_buffer_min: u64,
    /// The shortest log segment, a power of two.
    pub segment_len_min: u64,
    /// The shortest chunk of memory for memtables, a power of two.
    pub chunk_len_min: u64,
    /// The shortest table that a compaction cuts its output into, as long as a level is longer.
    pub table_len_min: u64,
    /// Runs in level 0 that call for a compaction.
    pub l0_trigger_runs: usize,
    /// LSNs reserved in the manifest at a time.
    pub ceiling_step: u64,
}

impl Default for Sizes {
    fn default() -> Self {
        Sizes {
            write_buffer_min: 64 << 10,
            segment_len_min: 64 << 10,
            chunk_len_min: 16 << 10,
            table_len_min: 64 << 10,
            l0_trigger_runs: 8,
            // An open after a crash skips at most this many; there are enough for four billion
            // crashes.
            ceiling_step: 1 << 32,
        }
    }
}
