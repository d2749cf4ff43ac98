//! Lengths that a program cannot choose: smallest sizes, and how far ahead the engine reserves.
//!
//! The defaults suit real data. With them a test needs many megabytes before a tree has several
//! levels or the log reuses a segment. Under the feature `simulation` a simulator sets smaller ones
//! by [`crate::Options::sizes`]: then a few hundred kilobytes give a tree of four levels and a log
//! that reuses its segments.

use crate::limits::{MAX_VALUE_LEN, SPILL_FILES_MAX};
use crate::memory::CEILING_MIN;

/// The lengths.
#[cfg_attr(not(feature = "simulation"), allow(unreachable_pub))] // Public in the other build.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Sizes {
    /// The smallest [`crate::Options::write_buffer`].
    pub write_buffer_min: u64,
    /// The smallest [`crate::Options::memory`].
    pub memory_min: u64,
    /// The shortest log segment, a power of two.
    pub segment_len_min: u64,
    /// The shortest chunk of memory for memtables, a power of two.
    pub chunk_len_min: u64,
    /// The shortest table that a compaction writes while it has more output for the level.
    pub table_len_min: u64,
    /// The most blob files that a slice has values in. Of further ones a compaction moves the
    /// values.
    pub blobs_in_slice_max: usize,
    /// A value that is written piece by piece stays in memory up to this length. If it is longer,
    /// it has a file of its own, with so many bytes of it in a frame.
    pub stream_frame_len: usize,
    /// The longest stream that a read returns as one value.
    pub whole_value_max: u64,
    /// The number of runs in level 0 at which a compaction is due.
    pub l0_trigger_runs: usize,
    /// So many dead bytes of table files may stay, beside a share of what is alive.
    /// [`crate::Options::write_buffer`] is a limit as well.
    pub dead_space_max: u64,
    /// How many LSNs an edit of the manifest reserves at a time.
    pub ceiling_step: u64,
    /// The slots of the table in which commits look for conflicts, a power of two.
    pub stamp_slots: usize,
    /// The most commits that may be announced on one of these slots, at most 1024.
    pub pending_max: u32,
    /// A commit of more operations announces on the words of its families instead of on slots.
    pub slots_written_max: usize,
    /// The most memory that a transaction takes before what it has written goes to files. Half of
    /// [`crate::Options::write_buffer`] is a limit as well.
    pub footprint_max: u64,
    /// The most files that a transaction writes to before some of them become one, 2 to 14.
    pub spill_files_max: usize,
    /// A transaction that has gone to files and takes more than this commits without bringing them
    /// back. [`crate::Options::write_buffer`] is a limit as well.
    pub large_from: u64,
}

impl Default for Sizes {
    fn default() -> Self {
        Sizes {
            write_buffer_min: 64 << 10,
            memory_min: CEILING_MIN,
            segment_len_min: 64 << 10,
            chunk_len_min: 16 << 10,
            table_len_min: 64 << 10,
            blobs_in_slice_max: 256,
            stream_frame_len: 256 << 10,
            whole_value_max: MAX_VALUE_LEN as u64,
            l0_trigger_runs: 8,
            dead_space_max: u64::MAX,
            // An open after a crash skips at most this many LSNs. There are enough for four billion
            // crashes.
            ceiling_step: 1 << 32,
            stamp_slots: 1 << 16,
            pending_max: 1 << 10,
            slots_written_max: 4096,
            footprint_max: u64::MAX,
            spill_files_max: SPILL_FILES_MAX,
            large_from: u64::MAX,
        }
    }
}
