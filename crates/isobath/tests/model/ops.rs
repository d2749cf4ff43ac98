//! What can happen in a history, and the options with which a database may be opened.

use isobath::vfs::MemoryFs;
use isobath::{Codec, FamilyOptions, IoMode, Options, env::Env};
use proptest::prelude::*;
use std::sync::Arc;

/// Keys come from a small space, so that operations often meet the same key.
pub(crate) type KeyIndex = u8;

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
    Write { writes: Vec<Write>, sync: bool },
    Get { family: u8, key: KeyIndex },
    MultiGet { family: u8, keys: Vec<KeyIndex> },
    Range { family: u8, from: KeyIndex, to: KeyIndex, backwards: u32, snapshot: Option<u8> },
    Prefix { family: u8, key: KeyIndex, len: u8 },
    Cursor { family: u8, from: KeyIndex, to: KeyIndex, moves: Vec<Move>, snapshot: Option<u8> },
    TakeSnapshot,
    ReadSnapshot { snapshot: u8, family: u8, key: KeyIndex },
    ReleaseSnapshot(u8),
    Flush,
    Sync,
    Settle,
    Compact { family: u8, from: KeyIndex, to: KeyIndex },
    CreateFamily { name: u8, options: FamilyOptions },
    DropFamily(u8),
    RenameFamily { family: u8, name: u8 },
    Reopen(Settings),
    Kill(Settings),
    CutPower(Cut, Settings),
}

/// Options of one open.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    write_buffer: u64,
    block_cache: u64,
    io: IoMode,
    threads: usize,
    max_open_files: usize,
    family: FamilyOptions,
}

impl Settings {
    pub(crate) fn options(&self, fs: &MemoryFs) -> Options {
        Options::new()
            .env(Env { fs: Arc::new(fs.clone()), ..Env::system() })
            .write_buffer(self.write_buffer)
            .block_cache(self.block_cache)
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
        prop::sample::select(vec![256, 1000, 4096, 16384]),
        prop::sample::select(vec![0, 1, 10]),
        prop::sample::select(vec![2, 4, 10]),
    )
        .prop_map(|(codecs, block_size, bits, ratio)| {
            FamilyOptions::new()
                .codecs(codecs)
                .block_size(block_size)
                .filter_bits_per_key(bits)
                .level_size_ratio(ratio)
        })
}

pub(crate) fn options() -> impl Strategy<Value = Settings> {
    (
        prop::sample::select(vec![64 << 10, 100_000, 256 << 10]),
        prop::sample::select(vec![0, 10_000, 1 << 20]),
        prop::sample::select(vec![IoMode::Auto, IoMode::Mapped, IoMode::Positional]),
        1..4usize,
        prop::sample::select(vec![8, 100]),
        family_options(),
    )
        .prop_map(|(write_buffer, block_cache, io, threads, files, family)| Settings {
            write_buffer,
            block_cache,
            io,
            threads,
            max_open_files: files,
            family,
        })
}

fn write() -> impl Strategy<Value = Write> {
    let len = prop_oneof![
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
        6 => (a(), a(), a(), any::<u32>(), s()).prop_map(|(family, from, to, backwards, snapshot)|
            Op::Range { family, from, to, backwards, snapshot }),
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
        1 => Just(Op::Settle),
        2 => (a(), a(), a()).prop_map(|(family, from, to)| Op::Compact { family, from, to }),
        3 => (a(), family_options()).prop_map(|(name, options)| Op::CreateFamily { name, options }),
        3 => a().prop_map(Op::DropFamily),
        2 => (a(), a()).prop_map(|(family, name)| Op::RenameFamily { family, name }),
        2 => options().prop_map(Op::Reopen),
        2 => options().prop_map(Op::Kill),
        3 => (cut(), options()).prop_map(|(cut, options)| Op::CutPower(cut, options)),
    ]
}
