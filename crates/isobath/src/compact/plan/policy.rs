//! The inputs of the planner beside the tree: fixed choices, and hints that the tree does not show.

use crate::format::Lsn;

/// How a tree is kept. The defaults were chosen by simulation: see docs/internals/compaction.md.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Policy {
    /// Level 0 is compacted down once it holds this many runs. More runs mean fewer bytes rewritten
    /// and slower reads.
    pub(crate) l0_trigger_runs: usize,
    /// The largest ratio between a level and the one above. A smaller ratio means more levels, each
    /// cheaper to compact into.
    pub(crate) size_ratio_max: u32,
    /// The bytes in level 0 at which it is compacted down, while the size of its runs is unknown,
    /// unless the levels have been made for more.
    pub(crate) base_bytes: u64,
    /// About the length of an output below level 0, in levels that are large enough for many of
    /// them.
    pub(crate) target_file_bytes: u64,
    /// No output is shorter than this because its level is small: below this length the fixed cost
    /// of a file exceeds what finer cuts save.
    pub(crate) output_bytes_min: u64,
    /// About the most that a job below level 0 reads, so that no job takes long.
    pub(crate) job_bytes_max: u64,
    /// The most parts that a job is cut into.
    pub(crate) parts_max: usize,
    /// An output may have to end with so many keys: for more of them there may be no memory.
    pub(crate) output_keys_min: u64,
    /// The most inputs that a job reads at once: each run is one, and so is each level below. For
    /// more of them there may be no memory.
    pub(crate) inputs_max: usize,
    /// The number of levels of a tree, level 0 included. Most data ends up in the last one.
    pub(crate) levels_max: usize,
    /// A slice with at least this share of deletes, in percent, is compacted down before its level
    /// is full.
    pub(crate) delete_percent: u32,
    /// For how long deletes may stay, in milliseconds; 0 if there is no bound.
    pub(crate) delete_within_ms: u64,
    /// How many depths from level 0 down are written without compression, except the last level. A
    /// slice of these depths is rewritten instead of moved to another level.
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
            output_keys_min: u64::MAX,
            inputs_max: usize::MAX,
            levels_max: 7,
            delete_percent: 50,
            delete_within_ms: 0,
            plain_depths: 0,
        }
    }
}

/// What the planner needs to know and the tree does not show.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Hints {
    /// The size in bytes of the runs that flushes add, as `run_bytes_after` reckons; 0 if unknown.
    pub(crate) run_bytes: u64,
    /// The least read point that any reader has or will have.
    pub(crate) oldest_reader: Lsn,
    /// The time at that point, in milliseconds since 1970.
    pub(crate) oldest_ms: u64,
    /// What time it is now.
    pub(crate) now_ms: u64,
    /// Compactions have had little to do for a while, so work that pays off only later may start.
    pub(crate) is_idle: bool,
}
