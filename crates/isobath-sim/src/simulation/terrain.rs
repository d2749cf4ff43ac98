//! What a seed's database looks like: few keys in flat trees, to which everything happens soon, or
//! thousands in trees of many small tables, over a log of small segments.

use super::edits::{edited, editing};
use super::filters::filtering;
use super::hook::Witness;
use super::keyspace::Keyspace;
use super::preload;
use isobath::{Codec, Durability, FamilyOptions, IoMode, Options, Sizes};
use std::rc::Rc;
use std::time::Duration;

/// Drawn once for a seed; options are drawn anew for each of its lives.
#[derive(Clone)]
pub(crate) struct Terrain {
    pub(crate) keys: Rc<Keyspace>,
    is_tree: bool,
    /// Budgets are small in half of the lives.
    is_small: bool,
    /// So many values of a hundred are no longer than what names their writer.
    short_percent: u8,
    /// Between two flushes commits go to few keys, after the next to others, so that runs share
    /// none.
    pub(crate) has_seasons: bool,
    /// Lives begin with a tree of four levels.
    pub(crate) is_preloaded: bool,
    /// For how long earlier states are kept.
    history: Option<Duration>,
}

/// So many keys, at least, make a tree of four levels with values of some hundred bytes.
const PRELOADED_KEYS: usize = 3000;

/// Longer than all lives of a seed, however often the clock is set.
const ALWAYS: Duration = Duration::from_secs(100 * 365 * 86_400);

fn history(rng: &mut fastrand::Rng) -> Option<Duration> {
    match rng.u8(..8) {
        0 => Some(Duration::from_millis(1 << rng.u32(..16))),
        1 => Some(ALWAYS),
        _ => None,
    }
}

impl Terrain {
    pub(crate) fn flat(rng: &mut fastrand::Rng) -> Terrain {
        Terrain {
            keys: Keyspace::few(rng),
            is_tree: false,
            is_small: false,
            short_percent: 0,
            has_seasons: false,
            is_preloaded: false,
            history: history(rng),
        }
    }

    pub(crate) fn tree(rng: &mut fastrand::Rng) -> Terrain {
        let is_preloaded = rng.u8(..8) == 0;
        Terrain {
            keys: Keyspace::many(if is_preloaded { PRELOADED_KEYS } else { 0 }, rng),
            is_tree: true,
            is_small: false,
            short_percent: 0,
            has_seasons: rng.bool(),
            is_preloaded,
            history: history(rng),
        }
    }

    /// Few keys and mostly short values: what costs little.
    pub(crate) fn small(short_percent: u8, rng: &mut fastrand::Rng) -> Terrain {
        Terrain { is_small: true, short_percent, history: None, ..Terrain::flat(rng) }
    }

    /// Few keys, in trees of either kind.
    pub(crate) fn of_threads(rng: &mut fastrand::Rng) -> Terrain {
        let (keys, is_tree) = (Keyspace::few(rng), rng.bool());
        let (is_small, short_percent) = (false, 0);
        let (has_seasons, is_preloaded, history) = (false, false, None);
        Terrain { keys, is_tree, is_small, short_percent, has_seasons, is_preloaded, history }
    }

    /// True if no state is ever given up.
    pub(crate) fn keeps_all(&self) -> bool {
        self.history == Some(ALWAYS)
    }

    pub(crate) fn is_tree(&self) -> bool {
        self.is_tree
    }

    /// Options of a life: small, so that seals, flushes and compactions happen all the time.
    pub(crate) fn options(&self, rng: &mut fastrand::Rng) -> Options {
        let intervals =
            [None, None, Some(Duration::from_millis(1)), Some(Duration::from_millis(20))];
        let has_small_sizes = self.is_tree || self.is_small && rng.bool();
        let budgets = match has_small_sizes {
            true => [16 << 10, 16 << 10, 32 << 10, 64 << 10],
            false => [64 << 10, 96 << 10, 256 << 10, 1 << 20],
        };
        let options = Options::new()
            .write_buffer(budgets[rng.usize(..4)])
            .block_cache([0, 16 << 10, 1 << 20][rng.usize(..3)])
            .compaction_threads(rng.usize(1..4))
            .max_open_files(rng.usize(8..64))
            .io(match (rng.usize(..2), rng.usize(..2)) {
                (0, 0) => IoMode::Mapped,
                // The simulated disk writes in place, so `Auto` maps the log. It never maps tables.
                (0, _) => IoMode::Auto,
                _ => IoMode::Positional,
            })
            .sync_interval(intervals[rng.usize(..4)])
            .history(self.history)
            .durability(
                [Durability::Process, Durability::Process, Durability::Sync][rng.usize(..3)],
            )
            .lock_timeout([Duration::from_millis(2), Duration::from_secs(10)][rng.usize(..2)])
            .family(self.family_options(rng));
        let limits = [None, None, None, Some(1 << 20)];
        let options = options.io_rate_limit(limits[rng.usize(..4)]);
        // With a hook no commit names files.
        let options = if rng.bool() { options.commit_hook(Witness::default()) } else { options };
        let mut sizes = if has_small_sizes { sizes(rng) } else { Sizes::default() };
        // So few slots that unrelated keys often share one.
        sizes.stamp_slots = [2, 2, 16, 1 << 16][rng.usize(..4)];
        sizes.pending_max = [1, 2, 1 << 10, 1 << 10][rng.usize(..4)];
        sizes.slots_written_max = [1, 3, 4096, 4096][rng.usize(..4)];
        sizes.footprint_max = [600, 1000, 4000, u64::MAX, u64::MAX, u64::MAX][rng.usize(..6)];
        sizes.spill_files_max = [2, 3, 14][rng.usize(..3)];
        sizes.large_from = [0, 2000, u64::MAX][rng.usize(..3)];
        sizes.stream_frame_len = 256;
        sizes.blobs_in_slice_max = [1, 3, 256][rng.usize(..3)];
        // So high that it refuses nothing: what is long here would need more than the least.
        let is_below = sizes.pending_max == 1 && sizes.spill_files_max == 2;
        let options = options.memory(is_below.then_some(1 << 30));
        filtering(editing(options.sizes(sizes)))
    }

    pub(crate) fn family_options(&self, rng: &mut fastrand::Rng) -> FamilyOptions {
        let codecs =
            [Codec::None, Codec::Lz4, Codec::None, Codec::Zstd, Codec::None, Codec::Snappy];
        let depth = rng.usize(1..4);
        let (blocks, ratio_max) =
            if self.is_tree { ([256, 256, 512, 4096], 5) } else { ([256, 1024, 4096, 16384], 11) };
        let ratio_most = if self.is_preloaded { preload::RATIO_MAX } else { ratio_max };
        let drawn: Vec<_> = (0..depth).map(|_| codecs[rng.usize(..6)]).collect();
        let options = match drawn[..] {
            [codec] => FamilyOptions::new().codec(codec),
            _ => FamilyOptions::new().codecs(drawn),
        };
        let options = options
            .block_size(blocks[rng.usize(..4)])
            .filter_bits_per_key([0, 2, 10][rng.usize(..3)])
            .level_size_ratio(rng.u32(2..ratio_max).min(ratio_most))
            .separate_from(separate_from(rng));
        // It costs no draw, so that no other run is changed.
        let bound = (options.level_size_ratio == 2).then_some(Duration::from_secs(60));
        edited(FamilyOptions::delete_within(options, bound))
    }

    /// Operations of a commit, its writer's marker not counted.
    pub(crate) fn batch_len(&self, rng: &mut fastrand::Rng) -> usize {
        match rng.u16(..1000) {
            _ if rng.u8(..4) == 0 => 0,
            0 if self.is_tree => rng.usize(1000..3000),
            1..50 if self.is_tree => rng.usize(50..300),
            50..300 if self.is_tree => rng.usize(5..50),
            _ => rng.usize(1..5),
        }
    }

    /// The length of a value, without the part that names its writer.
    pub(crate) fn value_len(&self, rng: &mut fastrand::Rng) -> usize {
        match rng.u16(..10_000) {
            _ if self.short_percent > 0 && rng.u8(..100) < self.short_percent => 0,
            0 if self.is_tree => rng.usize(1 << 16..3 << 20),
            1..20 if self.is_tree => rng.usize(1 << 10..1 << 16),
            0..1000 if !self.is_tree => rng.usize(1000..6000),
            1000..3000 => rng.usize(100..400),
            _ => rng.usize(0..40),
        }
    }
}

/// From how many bytes on values go to blob files: in a third of the draws, and most that are
/// longer than a writer's name then do.
fn separate_from(rng: &mut fastrand::Rng) -> Option<u64> {
    match rng.u8(..12) {
        0 => Some(1),
        1 | 2 => Some(rng.u64(2..40)),
        3 => Some(rng.u64(40..200)),
        _ => None,
    }
}

/// So small that a few hundred kilobytes are a tree of four levels, over a log that goes round.
fn sizes(rng: &mut fastrand::Rng) -> Sizes {
    let mut sizes = Sizes::default();
    sizes.write_buffer_min = 4 << 10;
    sizes.segment_len_min = [4 << 10, 8 << 10, 16 << 10, 64 << 10][rng.usize(..4)];
    sizes.chunk_len_min = 4 << 10;
    sizes.table_len_min = [1 << 10, 2 << 10, 4 << 10, 16 << 10][rng.usize(..4)];
    sizes.dead_space_max = sizes.table_len_min;
    sizes.l0_trigger_runs = [2, 2, 4, 8][rng.usize(..4)];
    sizes.ceiling_step = [1 << 18, 1 << 22, 1 << 32][rng.usize(..3)];
    sizes
}
