//! Options drawn at random: everything that may change how, and nothing that may change what.

use isobath::{Codec, Durability, FamilyOptions, IoMode, Options};
use std::time::Duration;

fn one_of<T: Copy>(rng: &mut fastrand::Rng, choices: &[T]) -> T {
    choices[rng.usize(..choices.len())]
}

/// Options of an open.
pub(super) fn options(rng: &mut fastrand::Rng) -> Options {
    Options::new()
        .write_buffer(one_of(rng, &[64 << 10, 100_000, 256 << 10, 4 << 20]))
        .block_cache(one_of(rng, &[0, 10_000, 1 << 20]))
        .durability(one_of(rng, &[Durability::Process, Durability::Process, Durability::Sync]))
        .sync_interval(one_of(rng, &[None, None, Some(Duration::from_millis(2))]))
        .io(one_of(rng, &[IoMode::Auto, IoMode::Mapped, IoMode::Positional]))
        .compaction_threads(rng.usize(1..4))
        .max_open_files(one_of(rng, &[8, 20, 500]))
        .family(family(rng))
}

/// Options of a family.
pub(super) fn family(rng: &mut fastrand::Rng) -> FamilyOptions {
    let codecs = [Codec::None, Codec::Lz4, Codec::Zstd, Codec::Snappy];
    let codecs: Vec<_> = (0..rng.usize(1..4)).map(|_| one_of(rng, &codecs)).collect();
    FamilyOptions::new()
        .codecs(codecs)
        .block_size(one_of(rng, &[256, 999, 4096, 65_536]))
        .filter_bits_per_key(one_of(rng, &[0, 1, 10, 40]))
        .level_size_ratio(one_of(rng, &[2, 3, 10, 100]))
}
