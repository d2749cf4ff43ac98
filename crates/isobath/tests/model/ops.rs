//! What can happen in a history, and the options with which a database may be opened.
//!
//! A history does not contain options. An operation refers to an entry of a separate list, so one
//! history can be played under many options.

use isobath::{Codec, Durability, FamilyOptions, IoMode, Options};
use proptest::prelude::*;
use std::time::Duration;

/// Keys come from a small space, so that operations often meet the same key.
pub(crate) type KeyIndex = u8;

/// An index into the list of settings, modulo its length.
pub(crate) type SettingsIndex = u8;

#[derive(Clone, Debug)]
pub(crate) enum Write {
    Put { family: u8, key: KeyIndex, len: u32 },
    Delete { family: u8, key: KeyIndex },
}

/// What a power cut does with data that was not synced.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Cut {
    LosesAll,
    LosesNothing,
    StopsAt(u16),
    Random(u64),
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Move {
    First,
    Last,
    Seek(KeyIndex),
    SeekForPrev(KeyIndex),
    Next,
    Prev,
}

#[derive(Clone, Debug)]
pub(crate) enum Op {
    Write {
        writes: Vec<Write>,
        sync: bool,
    },
    Get {
        family: u8,
        key: KeyIndex,
    },
    MultiGet {
        family: u8,
        keys: Vec<KeyIndex>,
    },
    Range {
        family: u8,
        from: KeyIndex,
        to: KeyIndex,
        /// One bit for each item: 1 takes it from the back.
        backwards: u32,
        /// The most items to take.
        limit: usize,
        snapshot: Option<u8>,
    },
    Prefix {
        family: u8,
        key: KeyIndex,
        len: u8,
    },
    Cursor {
        family: u8,
        from: KeyIndex,
        to: KeyIndex,
        moves: Vec<Move>,
        snapshot: Option<u8>,
    },
    TakeSnapshot,
    ReadSnapshot {
        snapshot: u8,
        family: u8,
        key: KeyIndex,
    },
    ReleaseSnapshot(u8),
    Flush,
    Sync,
    WaitForCompactions,
    Compact {
        family: u8,
        from: KeyIndex,
        to: KeyIndex,
    },
    CreateFamily {
        name: u8,
        settings: SettingsIndex,
    },
    DropFamily(u8),
    RenameFamily {
        family: u8,
        name: u8,
    },
    CloneFamily {
        family: u8,
        name: u8,
    },
    Reopen(SettingsIndex),
    Kill(SettingsIndex),
    CutPower(Cut, SettingsIndex),
}

/// Options of one open, and of families created.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    write_buffer: u64,
    block_cache: u64,
    durability: Durability,
    sync_interval: Option<Duration>,
    io: IoMode,
    threads: usize,
    max_open_files: usize,
    pub(crate) family: FamilyOptions,
}

impl Settings {
    pub(crate) fn options(&self) -> Options {
        Options::new()
            .write_buffer(self.write_buffer)
            .block_cache(self.block_cache)
            .durability(self.durability)
            .sync_interval(self.sync_interval)
            .io(self.io)
            .compaction_threads(self.threads)
            .max_open_files(self.max_open_files)
            .family(self.family.clone())
    }
}

fn family_options() -> impl Strategy<Value = FamilyOptions> {
    let codecs = prop::sample::select(vec![Codec::None, Codec::Lz4, Codec::Zstd, Codec::Snappy]);
    (
        prop::collection::vec(codecs, 1..4),
        prop::sample::select(vec![256, 999, 4096, 16_384, 65_536]),
        prop::sample::select(vec![0, 1, 10, 40]),
        prop::sample::select(vec![2, 3, 4, 10, 100]),
        prop::option::weighted(0.4, prop::sample::select(vec![1, 60, 1000, 4096])),
    )
        .prop_map(|(codecs, block_size, bits, ratio, separate_from)| {
            FamilyOptions::new()
                .codecs(codecs)
                .block_size(block_size)
                .filter_bits_per_key(bits)
                .level_size_ratio(ratio)
                .separate_from(separate_from)
        })
}

/// Options that must not change any answer.
pub(crate) fn settings() -> impl Strategy<Value = Settings> {
    let durability = prop_oneof![2 => Just(Durability::Process), 1 => Just(Durability::Sync)];
    (
        prop::sample::select(vec![64 << 10, 100_000, 256 << 10, 4 << 20]),
        prop::sample::select(vec![0, 10_000, 1 << 20]),
        (durability, prop::option::weighted(0.3, Just(Duration::from_millis(2)))),
        prop::sample::select(vec![IoMode::Auto, IoMode::Mapped, IoMode::Positional]),
        1..4usize,
        prop::sample::select(vec![8, 20, 100, 500]),
        family_options(),
    )
        .prop_map(|(write_buffer, block_cache, sync, io, threads, max_open_files, family)| {
            let (durability, sync_interval) = sync;
            Settings {
                write_buffer,
                block_cache,
                durability,
                sync_interval,
                io,
                threads,
                max_open_files,
                family,
            }
        })
}

fn write() -> impl Strategy<Value = Write> {
    let len = prop_oneof![
        10 => 0..200u32,
        20 => 0..3000u32,
        2 => 3000..40_000u32,
        1 => 100_000..300_000u32,
    ];
    prop_oneof![
        3 => (any::<u8>(), any::<u8>(), len).prop_map(|(family, key, len)| Write::Put { family, key, len }),
        1 => (any::<u8>(), any::<u8>()).prop_map(|(family, key)| Write::Delete { family, key }),
    ]
}

fn moves() -> impl Strategy<Value = Move> {
    prop_oneof![
        1 => Just(Move::First),
        1 => Just(Move::Last),
        2 => any::<u8>().prop_map(Move::Seek),
        2 => any::<u8>().prop_map(Move::SeekForPrev),
        5 => Just(Move::Next),
        5 => Just(Move::Prev),
    ]
}

fn cut() -> impl Strategy<Value = Cut> {
    prop_oneof![
        Just(Cut::LosesAll),
        Just(Cut::LosesNothing),
        any::<u16>().prop_map(Cut::StopsAt),
        any::<u64>().prop_map(Cut::Random),
    ]
}

/// A range read from one end or both, to its end or in part.
fn range() -> impl Strategy<Value = Op> {
    let backwards = prop_oneof![2 => any::<u32>(), 1 => Just(0), 1 => Just(u32::MAX)];
    let limit = prop::sample::select(vec![3, 20, usize::MAX]);
    let snapshot = prop::option::weighted(0.3, any::<u8>());
    (any::<u8>(), any::<u8>(), any::<u8>(), backwards, limit, snapshot).prop_map(
        |(family, from, to, backwards, limit, snapshot)| Op::Range {
            family,
            from,
            to,
            backwards,
            limit,
            snapshot,
        },
    )
}

pub(crate) fn op() -> impl Strategy<Value = Op> {
    let (a, s) = (any::<u8>, || prop::option::weighted(0.3, any::<u8>()));
    let many = prop::collection::vec(write(), 0..40);
    let one = prop::collection::vec(write(), 1..2);
    let writes = prop_oneof![3 => one, 1 => many];
    prop_oneof![
        60 => (writes, prop::bool::weighted(0.1)).prop_map(|(writes, sync)| Op::Write { writes, sync }),
        10 => (a(), a()).prop_map(|(family, key)| Op::Get { family, key }),
        3 => (a(), prop::collection::vec(a(), 0..20))
            .prop_map(|(family, keys)| Op::MultiGet { family, keys }),
        6 => range(),
        2 => (a(), a(), 0..9u8).prop_map(|(family, key, len)| Op::Prefix { family, key, len }),
        6 => (a(), a(), a(), prop::collection::vec(moves(), 1..40), s())
            .prop_map(|(family, from, to, moves, snapshot)|
                Op::Cursor { family, from, to, moves, snapshot }),
        4 => Just(Op::TakeSnapshot),
        8 => (a(), a(), a()).prop_map(|(snapshot, family, key)|
            Op::ReadSnapshot { snapshot, family, key }),
        3 => a().prop_map(Op::ReleaseSnapshot),
        4 => Just(Op::Flush),
        1 => Just(Op::Sync),
        1 => Just(Op::WaitForCompactions),
        2 => (a(), a(), a()).prop_map(|(family, from, to)| Op::Compact { family, from, to }),
        3 => (a(), a()).prop_map(|(name, settings)| Op::CreateFamily { name, settings }),
        3 => a().prop_map(Op::DropFamily),
        2 => (a(), a()).prop_map(|(family, name)| Op::RenameFamily { family, name }),
        3 => (a(), a()).prop_map(|(family, name)| Op::CloneFamily { family, name }),
        2 => a().prop_map(Op::Reopen),
        2 => a().prop_map(Op::Kill),
        3 => (cut(), a()).prop_map(|(cut, settings)| Op::CutPower(cut, settings)),
    ]
}
