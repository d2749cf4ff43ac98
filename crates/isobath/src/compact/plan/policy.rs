//! What the planner is told: fixed choices, and what it cannot see in the tree.

use crate::format::Lsn;

/// How a tree is kept. The defaults were chosen by simulation, see docs/internals/compaction.md.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Policy {
    /// Level 0 is compacted down once it holds this many runs. More: fewer bytes rewritten, slower
    /// reads.
    pub(crate) l0_trigger_runs: usize,
    /// The most a level may be larger than the one above. Smaller: more levels, each cheaper to
    /// compact into.
    pub(crate) size_ratio_max: u32,
    /// Bytes in level 0 when it is compacted down, as long as nothing is known of the runs.
    pub(crate) base_bytes: u64,
    /// About the length of an output below level 0, in levels large enough for many of them.
    pub(crate) target_file_bytes: u64,
    /// No output is cut shorter, however small its level is: below this the fixed cost of a file
    /// outweighs what finer cuts save.
    pub(crate) output_bytes_min: u64,
    /// About the most a job below level 0 reads, so that none takes long.
    pub(crate) job_bytes_max: u64,
    /// The most parts a job is cut into.
    pub(crate) parts_max: usize,
    /// Levels of a tree, level 0 included. The largest data settles in the last.
    pub(crate) levels_max: usize,
    /// A slice with at least this share of deletes is compacted down without waiting for its level
    /// to fill.
    pub(crate) delete_percent: u32,
    /// How many depths from level 0 down are written without compression, the last level excepted:
    /// a slice is not moved from one of these to another level but rewritten.
    pub(crate) plain_depths: usize,
}

impl Default for Policy {
    fn default() -> Self {
        Policy {
            l0_trigger_runs: 8,
            size_ratio_max: 8,
            base_bytes: 256 << 20,
            target_file_bytes: 32 << 20,
            output_bytes_min: 64 << 10,
            job_bytes_max: 256 << 20,
            parts_max: 8,
            levels_max: 7,
            delete_percent: 50,
            plain_depths: 0,
        }
    }
}

/// What the tree does not show.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Hints {
    /// Smoothed bytes on disk of the runs that flushes add to this tree; 0 if unknown.
    pub(crate) run_bytes: u64,
    /// The least read point of any reader, now or later.
    pub(crate) oldest_reader: Lsn,
    /// Compactions have had little to do for a while: there is time for what pays only later.
    pub(crate) is_idle: bool,
}
