//! Fuzz targets for the decoders of tables. Each takes any bytes and must return. The decoders
//! return a result or an error. Where the bytes happen to be valid, different ways to read them
//! must agree. See `fuzzing/mod.rs`.

use super::block::Block;
use super::codec::{Codec, Compressor, Decompressor};
use super::filter::{Filter, put_filter};
use super::footer::{FOOTER_LEN, Footer, decode_directory, put_directory};
use super::frame::put_frame;
use super::index::{handle_of, index_entry, parse_index};
use super::inspect::{BlockKind, DumpItem, TableFile};
use super::key_buffer::KeyBuffer;
use super::root::Root;
use super::staging::BlockForm;
use super::{
    BlockHandle, RowLimits, Rows, SliceMeta, Table, TableContext, TableOptions, TableWriter,
};
use crate::cursor::{Cursor, Entry};
use crate::error::{Decoded, Error, Result};
use crate::format::{Decoder, Lsn, OpKind, Salt, checksum64};
use crate::table::cache::{BlockCache, FileCache, table_path};
use crate::vfs::{FileAccess, FileSystem, MemoryFs};
use std::path::Path;
use std::sync::{Arc, OnceLock};

/// All decoders, with the error that each returns.
#[cfg(test)]
pub(crate) const DECODERS: [crate::error::NamedDecoder; 12] = [
    ("block", |bytes| Block::parse(bytes.to_vec()).err()),
    ("block's columns", |bytes| Block::parse(bytes.to_vec()).ok()?.check_columns().err()),
    ("index", |bytes| parse_index(bytes.to_vec()).err()),
    ("index entry", |bytes| {
        let block = Block::parse(bytes.to_vec()).ok()?;
        handle_of(&block, index_entry(&block, 0).ok()?, 0).err()
    }),
    ("filter", |bytes| Filter::decode(bytes).err()),
    ("footer", |bytes| Footer::decode(bytes.last_chunk()?, bytes.len() as u64).err()),
    ("directory", |bytes| decode_directory(bytes).err()),
    ("root", |bytes| Root::decode(bytes, BlockHandle { offset: 1 << 20, len: 9 }).err()),
    ("label", |bytes| super::origin::Label::decode(bytes).err()),
    ("files", |bytes| super::origin::decode_files(bytes).err()),
    ("frame", |bytes| super::frame::open_frame(bytes, Salt::NONE.mark(128)).err()),
    ("codec", |bytes| {
        let codec = match Codec::from_byte(*bytes.first()?) {
            Ok(codec) => codec,
            Err(error) => return Some(error),
        };
        Decompressor::default().decompress(codec, &bytes[1..], &mut Vec::new()).err()
    }),
];

/// Searches and walks a block.
pub(crate) fn block(data: &[u8]) {
    let Ok(block) = Block::parse(data.to_vec()) else { return };
    let walked = walk(&block);
    let is_sound = block.check_columns().is_ok() && walked.is_whole;
    for (key, seq) in &walked.versions {
        for point in [seq.saturating_add(1), *seq, 0, Lsn::MAX] {
            let _ = block.search_restarts(key, point);
            let hit = block.search(key, point);
            // In a block that follows all the rules, a search finds what a walk finds.
            if is_sound && point == seq.wrapping_add(1) {
                let hit = hit.expect("a sound block").expect("the version is there");
                assert!(hit.is_equal, "the search missed {}", key.escape_ascii());
            }
        }
    }
    for restart in 0..block.restart_count().min(64) {
        let _ = block.entry_at(block.restart(restart));
        let _ = block.head(restart);
    }
    for key in [&b""[..], b"\0", b"k", b"\xff\xff\xff\xff\xff\xff\xff\xff\xff"] {
        let _ = block.search(key, Lsn::MAX);
        let _ = block.search_restarts(key, 0);
    }
}

/// What a walk over a block shows.
struct Walked {
    versions: Vec<(Vec<u8>, Lsn)>,
    /// True if every entry could be read and comes after the one before.
    is_whole: bool,
}

fn walk(block: &Block) -> Walked {
    let mut key = KeyBuffer::default();
    let mut walked = Walked { versions: Vec::new(), is_whole: true };
    let mut at = 0;
    block.begin_key(&mut key);
    for index in 0..block.entry_count() {
        let read = block.entry_of(index, at).and_then(|entry| {
            block.extend_key(entry, &mut key)?;
            Ok((entry, block.version(index)?.0))
        });
        let Ok((entry, seq)) = read else {
            walked.is_whole = false;
            return walked;
        };
        if let Some((before, before_seq)) = walked.versions.last() {
            let is_after = before.as_slice() < key.as_slice()
                || (before == key.as_slice() && *before_seq > seq);
            walked.is_whole &= is_after && seq < Lsn::MAX;
        }
        walked.versions.push((key.as_slice().to_vec(), seq));
        at = entry.end;
    }
    walked
}

/// Reads every handle of an index block, by ordinal and by search.
pub(crate) fn index(data: &[u8]) {
    let Ok(index) = parse_index(data.to_vec()) else { return };
    for ordinal in 0..index.entry_count() {
        let Ok(entry) = index_entry(&index, ordinal) else { continue };
        let _ = handle_of(&index, entry, Lsn::MAX - 1000);
        let _ = handle_of(&index, entry, 128);
        let key = index.unshared(entry).to_vec();
        for point in [0, 1, Lsn::MAX] {
            if let Ok(Some((_, found))) = index.search_restarts(&key, point) {
                let _ = handle_of(&index, found, 128);
            }
        }
    }
}

/// Uses a filter as it lies in a file, and a filter built from keys.
pub(crate) fn filter(data: &[u8]) {
    if let Ok(Some(filter)) = Filter::decode(data) {
        for hash in [0, 1, u64::MAX, checksum64(data)] {
            let _ = filter.may_contain(hash);
        }
        assert!(filter.charge() <= data.len());
    }
    let Some((bits_per_key, keys)) = data.split_first() else { return };
    let hashes: Vec<u64> = keys.chunks(5).map(checksum64).collect();
    let mut stored = Vec::new();
    put_filter(&mut stored, &hashes, u32::from(*bits_per_key));
    let filter = Filter::decode(&stored).expect("a filter just made").expect("of a known kind");
    assert!(hashes.iter().all(|hash| filter.may_contain(*hash)), "a key is denied");
}

/// Decodes a footer as it is, and with a valid checksum; and a directory.
pub(crate) fn footer(data: &[u8]) {
    if let Some(bytes) = data.first_chunk::<FOOTER_LEN>() {
        let mut bytes = *bytes;
        let _ = Footer::decode(&bytes, data.len() as u64);
        bytes[48..56].copy_from_slice(b"ISOTABLE");
        let sum = checksum64(&bytes[..56]);
        bytes[56..].copy_from_slice(&sum.to_le_bytes());
        let len = u64::from_le_bytes(*bytes[32..].first_chunk().expect("eight bytes"));
        if let Ok(footer) = Footer::decode(&bytes, len) {
            let again = Footer::decode(&footer.encode(), len).expect("a footer just made");
            assert_eq!(again, footer);
        }
    }
    if let Ok(slices) = decode_directory(data) {
        let mut again = Vec::new();
        put_directory(&mut again, &slices);
        assert_eq!(decode_directory(&again).expect("a directory just made"), slices);
    }
}

/// Decodes the root of a slice.
pub(crate) fn root(data: &[u8]) {
    let handle = BlockHandle { offset: 1 << 40, len: data.len() as u32 };
    let Ok(root) = Root::decode(data, handle) else { return };
    let mut again = Vec::new();
    root.encode(&mut again);
    assert_eq!(Root::decode(&again, handle).expect("a root just made"), root);
    let _ = root.meta(1, handle);
    assert!(root.base(handle) <= handle.offset);
}

/// Decompresses the bytes; also compresses and decompresses them.
pub(crate) fn codec(data: &[u8]) {
    let Some((first, payload)) = data.split_first() else { return };
    let Ok(codec) = Codec::from_byte(first % 4) else { return };
    let decompressor = Decompressor::default();
    let mut out = Vec::new();
    if decompressor.decompress(codec, payload, &mut out).is_ok() {
        assert!(out.len() <= (16 << 20).max(payload.len() * 256), "more than was asked for");
    }
    let mut compressor = Compressor::default();
    let (stored_as, stored) = compressor.compress(codec, payload);
    let stored = stored.to_vec();
    decompressor.decompress(stored_as, &stored, &mut out).expect("a payload just made");
    assert_eq!(out, payload);
}

/// So much of a table is compressed as a seed: in longer ones chance seldom finds the lengths.
const SQUEEZED_LEN: usize = 3000;

const DIR: &str = "/tables";
const NUMBER: u64 = 42;
const UUID: [u8; 16] = [9; 16];
/// More moves than any cursor over the sample needs. A damaged block must not make a cursor loop.
const MOVES_MAX: usize = 10_000;

/// Reads a whole table file whose blocks are changed *behind* their checksums: block by block, one
/// is chosen, patched and framed again. Reading may fail or return forged data, but it must end.
/// Without a patch it must return the sample.
pub(crate) fn table(data: &[u8]) {
    static SAMPLE: OnceLock<Sample> = OnceLock::new();
    let sample = SAMPLE.get_or_init(Sample::new);
    let mut bytes = sample.bytes.clone();
    let mut decoder = Decoder::new(data);
    let mut is_forged = false;
    while !decoder.is_done() && forge(&mut decoder, &sample.blocks, &mut bytes).is_ok() {
        is_forged = true;
    }
    let fs = file_of(&bytes);
    if let Ok(file) = TableFile::open(&fs, &table_path(Path::new(DIR), NUMBER)) {
        let found = file.check(&mut |_| ());
        assert!(is_forged || found.is_empty(), "a sound table: {found:?}");
        assert!(found.iter().all(names_table), "{found:?}");
        let _ = file.dump(&mut |_| Ok(()));
        file.slices().iter().for_each(|meta| read(&fs, meta, None));
    }
    for (meta, versions) in &sample.slices {
        read(&fs, meta, (!is_forged).then_some(versions));
    }
}

/// Patches one block. The data selects the block, the number of bytes, and the position and new
/// value of each.
fn forge(decoder: &mut Decoder<'_>, blocks: &[BlockHandle], bytes: &mut [u8]) -> Decoded<()> {
    let handle = blocks[usize::from(decoder.u8()?) % blocks.len()];
    let (start, len) = (handle.offset as usize, handle.len as usize);
    let mut payload = bytes[start..start + len - 9].to_vec();
    for _ in 0..decoder.u8()? % 16 + 1 {
        let place = usize::from(u16::from_le_bytes([decoder.u8()?, decoder.u8()?]));
        let place = place % payload.len();
        payload[place] = decoder.u8()?;
    }
    let mut framed = Vec::new();
    put_frame(&mut framed, Codec::None, &payload, Salt::of(UUID, NUMBER).mark(handle.offset));
    bytes[start..start + len].copy_from_slice(&framed);
    Ok(())
}

type Versions = Vec<(Vec<u8>, Lsn, OpKind, Vec<u8>)>;

/// A table with every kind of block.
struct Sample {
    bytes: Vec<u8>,
    slices: Vec<(SliceMeta, Versions)>,
    blocks: Vec<BlockHandle>,
}

impl Sample {
    fn new() -> Sample {
        let many: Versions = (0..40u64)
            .flat_map(|i| (0..1 + i % 3).rev().map(move |v| (i, v)))
            .map(|(i, v)| {
                let kind = if i % 7 == v { OpKind::Delete } else { OpKind::Put };
                let value = if kind.has_value() { vec![i as u8; 9] } else { Vec::new() };
                (format!("key{i:04}").into_bytes(), 5000 + i * 10 + v, kind, value)
            })
            .collect();
        let one = vec![(b"only".to_vec(), 77, OpKind::Put, b"one".to_vec())];
        let options = |form| TableOptions {
            form,
            block_len: 120,
            index_block_len: 60,
            flat_index_part: 0,
            codec: Codec::None,
            // More than one KiB, so that the filter is a block of its own.
            filter_bits_per_key: 250,
            ..TableOptions::default()
        };
        let fs = MemoryFs::new();
        fs.create_dir_all(Path::new(DIR)).expect("memory");
        let path = table_path(Path::new(DIR), NUMBER);
        let file = fs.create(&path).expect("memory");
        let mut writer = TableWriter::create(file, UUID, NUMBER).expect("memory");
        let families = [
            (0, one, BlockForm::Chained),
            (3, many.clone(), BlockForm::Chained),
            (9, many[..30].to_vec(), BlockForm::Slotted),
        ];
        for (family, versions, form) in &families {
            writer.begin_slice(*family, &options(*form)).expect("in order");
            for (key, seq, kind, value) in versions {
                writer.add(Entry { key, seq: *seq, kind: *kind, value }).expect("in order");
            }
            writer.finish_slice().expect("memory");
        }
        let finished = writer.finish().expect("memory");
        let mut bytes = vec![0; finished.file_len as usize];
        let file = fs.open_read(&path, FileAccess::Positional).expect("just written");
        file.read_at(0, &mut bytes).expect("just written");
        let slices = finished.slices.into_iter().zip(families.map(|(_, versions, _)| versions));
        let blocks = blocks_of(&file_of(&bytes));
        Sample { bytes, slices: slices.collect(), blocks }
    }
}

/// A file system that holds the table.
fn file_of(bytes: &[u8]) -> Arc<dyn FileSystem> {
    let fs = MemoryFs::new();
    fs.create_dir_all(Path::new(DIR)).expect("memory");
    let mut file = fs.create(&table_path(Path::new(DIR), NUMBER)).expect("memory");
    file.append(bytes).expect("memory");
    file.flush().expect("memory");
    Arc::new(fs)
}

fn blocks_of(fs: &Arc<dyn FileSystem>) -> Vec<BlockHandle> {
    let file = TableFile::open(fs, &table_path(Path::new(DIR), NUMBER)).expect("a sound table");
    let mut handles = Vec::new();
    let mut kinds = Vec::new();
    let dumped = file.dump(&mut |item| {
        if let DumpItem::Block { kind, handle, .. } = item {
            handles.push(handle);
            kinds.push(kind);
        }
        Ok(())
    });
    dumped.expect("a sound table");
    use BlockKind::{Data, Directory, Filter, Index, Root};
    assert!([Data, Directory, Filter, Index, Root].iter().all(|kind| kinds.contains(kind)));
    handles
}

/// Reads a slice in every way. `expected` is its content, if it is known.
fn read(fs: &Arc<dyn FileSystem>, meta: &SliceMeta, expected: Option<&Versions>) {
    let files = FileCache::new(fs.clone(), DIR.into(), FileAccess::Positional, 4);
    let context = TableContext::new(Arc::new(files), BlockCache::new(1 << 16));
    let table = match Table::open(context, meta) {
        Ok(table) => table,
        Err(error) => return assert!(expected.is_none() && names_table(&error), "{error}"),
    };
    for key in [&b"key0007"[..], b"key0039", b"only", b"", b"key00070", b"\xff"] {
        for point in [Lsn::MAX, 5071, 0] {
            let got = table.get(key, checksum64(key), point);
            assert!(got.as_ref().err().is_none_or(names_table), "{got:?}");
        }
    }
    for (key, seq, kind, value) in expected.into_iter().flatten() {
        let found = table.get(key, checksum64(key), seq + 1).expect("a sound table");
        let found = found.expect("a version that was written");
        assert_eq!((found.seq, found.kind, &*found.value), (*seq, *kind, value.as_slice()));
    }
    for fill_cache in [true, false] {
        let cursor = &mut table.cursor(fill_cache);
        match moves(cursor, Cursor::seek_first, Cursor::next) {
            Ok(count) => assert!(expected.is_none_or(|expected| count == expected.len())),
            Err(error) => assert!(expected.is_none() && names_table(&error), "{error}"),
        }
        let limits = RowLimits { point: Lsn::MAX, count: 9, head: u64::MAX };
        let by_rows = moves(cursor, Cursor::seek_first, |cursor| {
            let mut rows = Rows::default();
            cursor.take_rows(&mut rows, limits, |_| true);
            let last = rows.len().checked_sub(1).map(|last| rows.key(last));
            assert!(last.is_none() || last == cursor.key(), "the cursor stands before its rows");
            cursor.next()
        });
        assert!(expected.is_none() || by_rows.is_ok(), "{by_rows:?}");
        let back = moves(cursor, Cursor::seek_last, Cursor::prev_key);
        assert!(expected.is_none() || back.is_ok(), "{back:?}");
        for key in [&b"key0007"[..], b"z", b""] {
            let _ = moves(cursor, |cursor| cursor.seek(key), Cursor::prev_key);
            let _ = moves(cursor, |cursor| cursor.seek_for_prev(key), Cursor::next);
        }
    }
}

/// True if the text of the error names the table's file.
fn names_table(error: &Error) -> bool {
    error.to_string().contains(&*table_path(Path::new(DIR), NUMBER).to_string_lossy())
}

/// Moves until the end. There must be an end.
fn moves<C: Cursor>(
    cursor: &mut C,
    begin: impl FnOnce(&mut C) -> Result<()>,
    step: impl Fn(&mut C) -> Result<()>,
) -> Result<usize> {
    begin(cursor)?;
    for count in 0..MOVES_MAX {
        if cursor.entry().is_none() {
            return Ok(count);
        }
        step(cursor)?;
    }
    panic!("the cursor does not come to an end");
}

/// Initial inputs for the fuzzer.
pub(crate) fn seeds(target: &str) -> Vec<Vec<u8>> {
    let sample = Sample::new();
    let payload = |handle: &BlockHandle| {
        let start = handle.offset as usize;
        sample.bytes[start..start + handle.len as usize - 9].to_vec()
    };
    let payloads: Vec<Vec<u8>> = sample.blocks.iter().map(payload).collect();
    match target {
        "footer" => {
            let at = sample.bytes.len() - FOOTER_LEN;
            let mut seeds = vec![sample.bytes[at..].to_vec()];
            seeds.extend(payloads.last().cloned());
            seeds
        }
        "codec" => [Codec::Lz4, Codec::Zstd, Codec::Snappy, Codec::None]
            .iter()
            .map(|codec| {
                let mut compressor = Compressor::default();
                let (_, packed) = compressor.compress(*codec, &sample.bytes[..SQUEEZED_LEN]);
                [&[*codec as u8], packed].concat()
            })
            .collect(),
        "table" => vec![
            Vec::new(),
            vec![0, 0, 7, 0, 1],
            vec![9, 1, 3, 0, 0xff, 1, 0, 2],
            // These bytes once made a cursor loop when it stepped back. The second do so in the
            // sample as it is since roots have sketches.
            vec![1, 0, 0x2c, 0x0b, 7],
            vec![1, 0x10, 0x18, 0x2b, 7],
            // The same change to the slice of slotted blocks.
            vec![21, 0, 124, 0, 7],
        ],
        // Blocks of every kind: each decoder should see the blocks of the others too.
        _ => payloads,
    }
}
