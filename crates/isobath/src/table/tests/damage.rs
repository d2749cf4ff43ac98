//! Tests damaged files: reads return the right answer or a typed error, never a wrong answer or a
//! panic.

use super::fixtures::*;
use crate::cursor::Cursor;
use crate::error::{Error, ErrorKind, ReadError, Result};
use crate::format::{FILE_HEADER_LEN, Lsn, checksum64};
use crate::table::block::Block;
use crate::table::root::Content;
use crate::table::staging::BlockForm;
use crate::table::{
    BlockHandle, Codec, SliceMeta, Table, TableContext, TableFile, TableOptions, TableWriter,
};
use crate::vfs::{FileAccess, FileSystem};
use std::sync::Arc;

fn is_typed(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Corruption { .. } | ErrorKind::NewerFormat { .. })
}

fn sample() -> Vec<(u32, Vec<Version>)> {
    let many = (0..14u64).flat_map(|i| {
        (0..1 + i % 3).rev().map(move |v| {
            Version::put(format!("key{i:04}"), 5000 + i * 10 + v, vec![i as u8; 8 + v as usize])
        })
    });
    vec![(0, vec![Version::put("only", 77, "one")]), (3, many.collect())]
}

/// Reads everything in every way. Answers must be right. Errors must be typed and name the file.
fn read_all(context: &TableContext, meta: &SliceMeta, expected: &[Version]) -> Result<()> {
    let table = Table::open(context.clone(), meta)?;
    let mut first_error = None;
    let mut note = |error: Error| {
        first_error.get_or_insert(error);
    };
    for version in expected {
        match table.get(&version.key, checksum64(&version.key), version.seq + 1) {
            Ok(found) => {
                let found = found.expect("a version that was written is found");
                assert_eq!((found.seq, &*found.value), (version.seq, &version.value[..]));
            }
            Err(error) => note(error),
        }
    }
    let newest: Vec<_> =
        expected.chunk_by(|a, b| a.key == b.key).rev().map(|of_key| of_key[0].clone()).collect();
    for fill_cache in [true, false] {
        match forward(&mut table.cursor(fill_cache)) {
            Ok(seen) => assert_eq!(seen, expected),
            Err(error) => note(error),
        }
        match backward(&mut table.cursor(fill_cache)) {
            Ok(seen) => assert_eq!(seen, newest),
            Err(error) => note(error),
        }
    }
    if let Err(error) = table.verify(&mut |_| {}, &mut |_| ()) {
        note(error);
    }
    first_error.map_or(Ok(()), Err)
}

fn check_damaged(fixture: &Fixture, metas: &[SliceMeta], slices: &[(u32, Vec<Version>)]) -> bool {
    let context = fixture.context(FileAccess::Positional, 1 << 20);
    for (meta, (_, expected)) in metas.iter().zip(slices) {
        if let Err(error) = read_all(&context, meta, expected) {
            assert!(is_typed(&error), "{error:?}");
            assert!(error.to_string().contains("0000000042.tbl"), "{error}");
        }
    }
    let fs: Arc<dyn FileSystem> = fixture.fs.clone();
    let verified = TableFile::open(&fs, &fixture.path()).and_then(|file| file.verify(&mut |_| {}));
    match verified {
        Ok(()) => false,
        Err(error) => {
            assert!(is_typed(&error), "{error:?}");
            true
        }
    }
}

fn small_blocks(codec: Codec) -> TableOptions {
    TableOptions {
        block_len: 120,
        index_block_len: 60,
        flat_index_part: 0,
        codec,
        ..Default::default()
    }
}

fn of_form(form: BlockForm) -> TableOptions {
    TableOptions { form, ..small_blocks(Codec::None) }
}

const FORMS: [BlockForm; 2] = [BlockForm::Chained, BlockForm::Slotted];

#[test]
fn every_flipped_bit_gives_the_right_answer_or_a_typed_error() {
    // Without compression every bit. With compression a block has one checksum anyway, so every
    // third bit.
    for (form, codec, step) in [
        (BlockForm::Chained, Codec::None, 1),
        (BlockForm::Slotted, Codec::None, 1),
        (BlockForm::Either, Codec::Lz4, 3),
    ] {
        let fixture = Fixture::new();
        let slices = sample();
        let options = TableOptions { form, ..small_blocks(codec) };
        let finished = fixture.write(&options, &slices);
        let good = fixture.bytes();
        assert!(!check_damaged(&fixture, &finished.slices, &slices));
        for bit in (0..good.len() * 8).step_by(step) {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            fixture.set_bytes(bad);
            let noticed = check_damaged(&fixture, &finished.slices, &slices);
            assert!(noticed, "verify missed bit {bit} of {}", good.len() * 8);
        }
    }
}

#[test]
fn truncated_and_extended_files_are_errors() {
    let fixture = Fixture::new();
    let slices = sample();
    let finished = fixture.write(&small_blocks(Codec::Lz4), &slices);
    let good = fixture.bytes();
    for len in 0..good.len() {
        fixture.set_bytes(good[..len].to_vec());
        assert!(check_damaged(&fixture, &finished.slices, &slices), "{len}");
    }
    fixture.set_bytes([&good[..], &[0]].concat());
    assert!(check_damaged(&fixture, &finished.slices, &slices));
}

/// The handles of the data blocks.
pub(super) fn data_blocks(fixture: &Fixture) -> Vec<BlockHandle> {
    let fs: Arc<dyn FileSystem> = fixture.fs.clone();
    let mut handles = Vec::new();
    let show = &mut |item: crate::table::DumpItem<'_>| {
        if let crate::table::DumpItem::Block { kind, handle, .. } = item
            && kind == crate::table::BlockKind::Data
        {
            handles.push(handle);
        }
        Ok(())
    };
    TableFile::open(&fs, &fixture.path()).unwrap().dump(show).unwrap();
    handles
}

#[test]
fn blocks_that_swapped_places_are_noticed() {
    let fixture = Fixture::new();
    let versions: Vec<_> =
        (0..64u64).map(|i| Version::put(format!("{i:016}"), 5000 + i, vec![1; 100])).collect();
    let options = TableOptions { codec: Codec::None, ..small_blocks(Codec::None) };
    let finished = fixture.write(&options, &[(0, versions.clone())]);
    let mut bytes = fixture.bytes();
    let handles = data_blocks(&fixture);
    let same = handles.windows(2).find(|pair| pair[0].len == pair[1].len).unwrap();
    let (a, b) = (same[0], same[1]);
    let (a, b, len) = (a.offset as usize, b.offset as usize, a.len as usize);
    let (front, back) = bytes.split_at_mut(b);
    front[a..a + len].swap_with_slice(&mut back[..len]);
    fixture.set_bytes(bytes);
    let table = fixture.open(&finished, 0);
    let error = forward(&mut table.cursor(true)).unwrap_err();
    assert!(error.is_corruption() && error.to_string().contains(&format!("offset {a}")), "{error}");
}

#[test]
fn a_slice_that_the_manifest_does_not_mean_is_refused() {
    let fixture = Fixture::new();
    let finished = fixture.write(&small_blocks(Codec::None), &sample());
    let context = fixture.context(FileAccess::Mapped, 0);
    let good = finished.slices[1].clone();
    for bad in [
        SliceMeta { family: 4, ..good.clone() },
        SliceMeta { entries: 1, ..good.clone() },
        SliceMeta { largest: (*b"zzz").into(), ..good.clone() },
        SliceMeta { root: finished.slices[0].root, ..good.clone() },
    ] {
        assert!(Table::open(context.clone(), &bad).unwrap_err().is_corruption());
    }
    assert!(Table::open(context, &good).is_ok());
}

#[test]
fn a_cursor_has_no_entry_after_an_error_and_recovers_by_a_seek() {
    let fixture = Fixture::new();
    let versions: Vec<_> =
        (0..200u64).map(|i| Version::put(format!("{i:016}"), 5000 + i, vec![1; 100])).collect();
    let finished = fixture.write(&small_blocks(Codec::None), &[(0, versions.clone())]);
    let mut bytes = fixture.bytes();
    bytes[3000] ^= 1;
    fixture.set_bytes(bytes);
    let table = fixture.open(&finished, 0);
    for fill_cache in [true, false] {
        let mut cursor = table.cursor(fill_cache);
        cursor.seek_first().unwrap();
        let mut good = 0;
        let error = loop {
            match cursor.next() {
                Ok(()) => good += 1,
                Err(error) => break error,
            }
        };
        assert!(error.is_corruption() && good > 5 && cursor.entry().is_none());
        cursor.next().unwrap();
        cursor.prev_key().unwrap();
        assert!(cursor.entry().is_none());
        cursor.seek(&versions[150].key).unwrap();
        assert_eq!(cursor.entry(), Some(versions[150].as_entry()));
    }
    assert!(table.get(&versions[3].key, checksum64(&versions[3].key), Lsn::MAX).unwrap().is_some());
}

/// A valid checksum does not make bytes trusted. Reading forged bytes may give wrong answers, but
/// must end.
#[test]
fn steps_back_over_a_forged_block_come_to_an_end() {
    let fixture = Fixture::new();
    let versions: Vec<_> = (0..40u64)
        .flat_map(|i| (0..1 + i % 3).rev().map(move |v| (i, v)))
        .map(|(i, v)| Version::put(format!("key{i:04}"), 5000 + i * 10 + v, vec![i as u8; 9]))
        .collect();
    let finished = fixture.write(&small_blocks(Codec::None), &[(0, versions)]);
    let good = fixture.bytes();
    let fs: Arc<dyn FileSystem> = fixture.fs.clone();
    let mut handles = Vec::new();
    let show = &mut |item: crate::table::DumpItem<'_>| {
        if let crate::table::DumpItem::Block { handle, .. } = item {
            handles.push(handle);
        }
        Ok(())
    };
    TableFile::open(&fs, &fixture.path()).unwrap().dump(show).unwrap();
    for handle in handles {
        let (start, len) = (handle.offset as usize, handle.len as usize);
        for (place, byte) in (0..len - 9).flat_map(|place| [(place, 7), (place, 0xff)]) {
            let mut payload = good[start..start + len - 9].to_vec();
            payload[place] = byte;
            let mut framed = Vec::new();
            crate::table::frame::put_frame(&mut framed, Codec::None, &payload, mark(handle.offset));
            let mut bytes = good.clone();
            bytes[start..start + len].copy_from_slice(&framed);
            fixture.set_bytes(bytes);
            let context = fixture.context(FileAccess::Mapped, 1 << 20);
            let Ok(table) = Table::open(context, &finished.slices[0]) else { continue };
            let mut cursor = table.cursor(true);
            let mut stepped = cursor.seek_last();
            let mut steps = 0;
            while stepped.is_ok() && cursor.entry().is_some() {
                steps += 1;
                assert!(steps < 1000, "byte {place} of the block at {start} as {byte}: no end");
                stepped = cursor.prev_key();
            }
        }
    }
}

/// The same for indexes whose handles lead anywhere, above all near the largest numbers.
#[test]
fn forged_handles_lead_to_errors() {
    let fixture = Fixture::new();
    let versions: Vec<_> =
        (0..40u64).map(|i| Version::put(format!("key{i:04}"), 5000 + i, vec![1; 40])).collect();
    let finished = fixture.write(&small_blocks(Codec::None), &[(0, versions.clone())]);
    let good = fixture.bytes();
    let root_at = finished.slices[0].root;
    let mut root = crate::table::reader::read_root(&fixture.file(), root_at).unwrap();
    let sound = data_blocks(&fixture);
    let offsets = [u64::MAX, u64::MAX - (1 << 10), u64::MAX - (1 << 15), 1 << 63, 1 << 20];
    for (offset, sound_count) in offsets.into_iter().flat_map(|offset| [(offset, 0), (offset, 4)]) {
        let mut index = crate::table::index::IndexBuilder::new();
        for n in 0..40u64 {
            let far = BlockHandle { offset: offset - 50 + n, len: 60 };
            let handle = *sound[..sound_count].get(n as usize).unwrap_or(&far);
            let handle = BlockHandle { offset: handle.offset - root.base(root_at), ..handle };
            index.add(format!("key{:04}", 2 * n).as_bytes(), 0, handle);
        }
        root.content = Content::Index { levels: 1, top: index.finish().to_vec() };
        let (mut payload, mut framed) = (Vec::new(), Vec::new());
        root.encode(&mut payload);
        crate::table::frame::put_frame(&mut framed, Codec::None, &payload, mark(root_at.offset));
        let bytes = [&good[..root_at.offset as usize], &framed].concat();
        let meta = root.meta(NUMBER, BlockHandle { len: framed.len() as u32, ..root_at });
        let salvage =
            crate::table::salvage(bytes.clone(), IDENTITY, std::slice::from_ref(&meta)).unwrap();
        assert!(salvage.slices.len() == 1);
        fixture.set_bytes(bytes);
        for mode in [FileAccess::Mapped, FileAccess::Positional] {
            let table = Table::open(fixture.context(mode, 1 << 20), &meta).unwrap();
            let get = |key: &[u8]| table.get(key, checksum64(key), Lsn::MAX);
            assert!(get(b"key0030").unwrap_err().is_corruption());
            for fill_cache in [true, false] {
                let mut cursor = table.cursor(fill_cache);
                assert!(forward(&mut cursor).unwrap_err().is_corruption(), "{offset:#x}");
                assert!(backward(&mut cursor).unwrap_err().is_corruption(), "{offset:#x}");
            }
            assert!(table.verify(&mut |_| {}, &mut |_| ()).is_err());
        }
    }
}

/// The start of the versions column in a decoded block.
fn versions_at(block: &[u8]) -> usize {
    let tail = block.len() - 16;
    let count = u32::from_le_bytes(block[tail + 8..tail + 12].try_into().unwrap()) as usize;
    let end = match block[tail + 14] {
        // A slotted block has an extension.
        0 => tail - 12,
        _ => tail,
    };
    end - count * usize::from(block[tail + 15])
}

/// Makes the last restart or head of a decoded block say something else than its entry.
fn make_meaningless(block: &mut [u8]) {
    let before = if block[block.len() - 2] == 0 { 1 } else { 4 };
    let versions = versions_at(block);
    block[versions - before] ^= 1;
}

/// Gives the first version in a decoded block a kind of a newer version.
fn make_newer(block: &mut [u8]) {
    let versions = versions_at(block);
    block[versions] |= 0x0f;
}

/// A table with the blocks of one slice. The second block is changed and has the right checksum.
fn with_second_block(form: BlockForm, change: fn(&mut [u8])) -> (Fixture, SliceMeta, BlockHandle) {
    let fixture = Fixture::new();
    let versions: Vec<_> =
        (0..40u64).map(|i| Version::put(format!("key{i:04}"), 5000 + i, vec![1; 40])).collect();
    let mut finished = fixture.write(&of_form(form), &[(0, versions)]);
    let mut bytes = fixture.bytes();
    let handle = data_blocks(&fixture)[1];
    let (start, end) = (handle.offset as usize, (handle.offset + u64::from(handle.len)) as usize);
    let mut payload = bytes[start..end - 9].to_vec();
    change(&mut payload);
    let mut framed = Vec::new();
    crate::table::frame::put_frame(&mut framed, Codec::None, &payload, mark(handle.offset));
    bytes[start..end].copy_from_slice(&framed);
    fixture.set_bytes(bytes);
    (fixture, finished.slices.remove(0), handle)
}

/// A slice so small that it lies in its root. Its block is changed and has the right checksum.
fn with_small_slice(form: BlockForm, keys: &[&str], change: fn(&mut [u8])) -> (Fixture, SliceMeta) {
    let fixture = Fixture::new();
    let versions = keys.iter().map(|key| Version::put(*key, 77, "one")).collect();
    let mut finished = fixture.write(&of_form(form), &[(0, versions)]);
    let meta = finished.slices.remove(0);
    let file = fixture.file();
    let mut root = crate::table::reader::read_root(&file, meta.root).unwrap();
    let Content::Data(block) = &mut root.content else { panic!("a small slice lies in its root") };
    change(block);
    let (mut payload, mut framed) = (Vec::new(), Vec::new());
    root.encode(&mut payload);
    crate::table::frame::put_frame(&mut framed, Codec::None, &payload, mark(meta.root.offset));
    let mut bytes = fixture.bytes();
    let start = meta.root.offset as usize;
    bytes[start..start + framed.len()].copy_from_slice(&framed);
    fixture.set_bytes(bytes);
    (fixture, meta)
}

/// The readable rest of the only slice: its entries, and the places where something is missing.
fn salvage_slice(fixture: &Fixture, meta: &SliceMeta) -> Result<(u64, Vec<u64>), ReadError> {
    let salvage = crate::table::salvage(fixture.bytes(), IDENTITY, std::slice::from_ref(meta))?;
    assert_eq!(salvage.slices.len(), 1);
    let (mut entries, mut gaps) = (0, Vec::new());
    let visit = &mut |part: crate::table::Part<'_>| {
        match part {
            crate::table::Part::Entry(_) => entries += 1,
            crate::table::Part::Gap { offset, .. } => gaps.push(offset),
        }
        Ok(())
    };
    salvage.visit(&salvage.slices[0], visit)?;
    Ok((entries, gaps))
}

#[test]
fn a_whole_block_that_does_not_decode_is_a_gap_to_a_repair() {
    for form in FORMS {
        let (fixture, meta, handle) = with_second_block(form, make_meaningless);
        let (entries, gaps) = salvage_slice(&fixture, &meta).unwrap();
        assert!((30..40).contains(&entries) && gaps == [handle.offset], "{entries} {gaps:?}");
    }
}

#[test]
fn a_small_slice_that_does_not_decode_is_a_gap_to_a_repair() {
    for form in FORMS {
        // A key alone is the prefix, and its head is nothing: here it becomes something.
        let (fixture, meta) = with_small_slice(form, &["only"], make_meaningless);
        assert_eq!(salvage_slice(&fixture, &meta).unwrap(), (0, vec![meta.root.offset]));
    }
}

#[test]
fn a_slice_behind_a_lost_root_is_found_though_what_leads_to_its_first_block_is_lost() {
    let fixture = Fixture::new();
    let put = |i: u64| Version::put(format!("key{i:04}"), 5000 + i, vec![1; 40]);
    let slices = [0, 1].map(|family| (family, (0..40).map(put).collect()));
    let finished = fixture.write(&small_blocks(Codec::None), &slices);
    let [first, second] = &finished.slices[..] else { panic!("two slices were written") };
    let file = fixture.file();
    let root = crate::table::reader::read_root(&file, second.root).unwrap();
    assert!(matches!(root.content, Content::Index { levels: 2.., .. }));
    let first_leaf = root.base(second.root) + root.data_len;
    let mut bytes = fixture.bytes();
    let footer = bytes.len() - 20;
    for at in [first.root.offset as usize + 5, first_leaf as usize + 5, footer] {
        bytes[at] ^= 1;
    }
    fixture.set_bytes(bytes);
    assert_eq!(salvage_slice(&fixture, second).unwrap(), (40, vec![]));
}

/// Checks that every way to read reports a newer format and names the file, and that a repair does
/// not see a gap.
#[track_caller]
fn check_newer(fixture: &Fixture, meta: &SliceMeta, key: &[u8]) {
    let is_newer = |error: Error| match error.kind() {
        ErrorKind::NewerFormat { path, .. } => *path == fixture.path(),
        _ => false,
    };
    let table = Table::open(fixture.context(FileAccess::Positional, 1 << 20), meta).unwrap();
    assert!(is_newer(table.get(key, checksum64(key), Lsn::MAX).unwrap_err()));
    for fill_cache in [true, false] {
        let mut cursor = table.cursor(fill_cache);
        assert!(is_newer(forward(&mut cursor).unwrap_err()));
        assert!(is_newer(backward(&mut cursor).unwrap_err()));
        assert!(is_newer(cursor.seek(key).unwrap_err()));
    }
    let fs: Arc<dyn FileSystem> = fixture.fs.clone();
    let file = TableFile::open(&fs, &fixture.path()).unwrap();
    assert!(is_newer(file.verify(&mut |_| {}).unwrap_err()));
    let newer = salvage_slice(fixture, meta).unwrap_err().in_file(&fixture.path(), 0);
    assert!(matches!(newer.kind(), ErrorKind::NewerFormat { .. }), "{newer}");
}

#[test]
fn an_unknown_kind_of_operation_in_a_table_is_a_newer_format() {
    for form in FORMS {
        let (fixture, meta, handle) = with_second_block(form, make_newer);
        let file = fixture.file();
        let mut block = Vec::new();
        let decompressor = &crate::table::Decompressor::default();
        crate::table::read_block(&file, handle, decompressor, &mut block).unwrap();
        let block = Block::parse(block).unwrap();
        let first = block.entry_of(0, 0).unwrap();
        let key = [block.stored_prefix(), block.unshared(first)].concat();
        check_newer(&fixture, &meta, &key);
        let (fixture, meta) = with_small_slice(form, &["only"], make_newer);
        check_newer(&fixture, &meta, b"only");
    }
}

#[test]
fn a_cursor_has_no_entry_after_an_error_between_two_entries() {
    for form in FORMS {
        let (fixture, meta) = with_small_slice(form, &["a", "b", "c"], |block| {
            let second = versions_at(block) + usize::from(block[block.len() - 1]);
            block[second] |= 0x0f;
        });
        let table = Table::open(fixture.context(FileAccess::Positional, 1 << 20), &meta).unwrap();
        let mut cursor = table.cursor(true);
        backward(&mut cursor).unwrap_err();
        assert!(cursor.key().is_none() && cursor.entry().is_none());
    }
}

#[test]
fn a_slotted_block_of_which_the_root_does_not_tell_is_noticed() {
    let fixture = Fixture::new();
    let versions: Vec<_> = ["a", "b", "c"].map(|key| Version::put(key, 77, "one")).into();
    let mut finished = fixture.write(&of_form(BlockForm::Slotted), &[(0, versions)]);
    let meta = finished.slices.remove(0);
    let fs: Arc<dyn FileSystem> = fixture.fs.clone();
    let file = fixture.file();
    let mut root = crate::table::reader::read_root(&file, meta.root).unwrap();
    assert!(root.has_slotted);
    root.has_slotted = false;
    // A field that may be ignored takes the place of the form.
    root.unknown.push((77, vec![0]));
    let (mut payload, mut framed) = (Vec::new(), Vec::new());
    root.encode(&mut payload);
    payload.truncate(meta.root.len as usize - 9);
    crate::table::frame::put_frame(&mut framed, Codec::None, &payload, mark(meta.root.offset));
    let mut bytes = fixture.bytes();
    let start = meta.root.offset as usize;
    assert_eq!(framed.len(), meta.root.len as usize);
    bytes[start..start + framed.len()].copy_from_slice(&framed);
    fixture.set_bytes(bytes);
    let error = TableFile::open(&fs, &fixture.path()).unwrap().verify(&mut |_| ()).unwrap_err();
    assert!(error.is_corruption() && error.to_string().contains("form"), "{error}");
}

/// A device that loses a write leaves what was there before.
#[test]
fn a_block_of_another_file_at_the_same_place_is_noticed() {
    let versions = || (0..40u64).map(|i| Version::put(format!("key{i:04}"), 5000 + i, [1; 40]));
    let fixture = Fixture::new();
    let finished = fixture.write(&small_blocks(Codec::None), &[(0, versions().collect())]);
    let (own, blocks) = (fixture.bytes(), data_blocks(&fixture));
    for (uuid, number) in [(UUID, NUMBER - 1), ([7; 16], NUMBER)] {
        let file = fixture.fs.create(&fixture.path()).unwrap();
        let mut writer = TableWriter::create(file, uuid, number).unwrap();
        writer.begin_slice(0, &small_blocks(Codec::None)).unwrap();
        versions().for_each(|version| writer.add(version.as_entry()).unwrap());
        writer.finish_slice().unwrap();
        writer.finish().unwrap();
        let other = fixture.bytes();
        assert!(other.len() == own.len() && data_blocks(&fixture) == blocks);
        for block in &blocks {
            let within = block.offset as usize..(block.offset + u64::from(block.len)) as usize;
            let mut bytes = own.clone();
            bytes[within.clone()].copy_from_slice(&other[within]);
            fixture.set_bytes(bytes);
            let mut cursor = fixture.open(&finished, 0).cursor(true);
            let error = forward(&mut cursor).unwrap_err();
            assert!(error.is_corruption(), "{error}");
            let (entries, gaps) = salvage_slice(&fixture, &finished.slices[0]).unwrap();
            assert!(entries < 40 && gaps == [block.offset], "{entries} {gaps:?}");
        }
    }
}

/// A file may be all that is left, and then nothing says which database it is of.
#[test]
fn a_table_without_a_header_is_salvaged_whatever_is_known_of_its_database() {
    let fixture = Fixture::new();
    let versions = (0..40u64).map(|i| Version::put(format!("key{i:04}"), 5000 + i, [1; 40]));
    fixture.write(&small_blocks(Codec::None), &[(0, versions.collect())]);
    for (of, with_header) in [(IDENTITY, true), (IDENTITY, false)]
        .into_iter()
        .chain([None, Some([7; 16])].map(|uuid| ((uuid, NUMBER), false)))
    {
        let mut bytes = fixture.bytes();
        if !with_header {
            bytes[..FILE_HEADER_LEN].fill(0xff);
        }
        let salvage = crate::table::salvage(bytes, of, &[]).unwrap();
        let [slice] = &salvage.slices[..] else { panic!("{of:?}: not one slice") };
        let mut entries = 0;
        let visit = &mut |part: crate::table::Part<'_>| {
            assert!(matches!(part, crate::table::Part::Entry(_)));
            entries += 1;
            Ok(())
        };
        assert!(salvage.has_directory && salvage.visit(slice, visit).is_ok() && entries == 40);
    }
}

#[test]
fn a_value_that_looks_like_the_end_of_its_block_hides_nothing_from_a_repair() {
    for form in FORMS {
        let fixture = Fixture::new();
        let marker = b"here would be the checksum";
        let write = |value: &[u8]| {
            let mut versions: Vec<_> = (0..40u64)
                .map(|i| Version::put(format!("key{i:04}"), 5000 + i, vec![1; 40]))
                .collect();
            versions[0] = Version::put("key0000", 5000, value);
            fixture.write(&of_form(form), &[(0, versions)]).slices.remove(0)
        };
        write(marker);
        let bytes = fixture.bytes();
        let at = bytes.windows(marker.len()).position(|window| window == marker).unwrap();
        let first = data_blocks(&fixture)[0].offset;
        let mut forged = Vec::new();
        let before = &bytes[first as usize..at];
        crate::table::frame::put_frame(&mut forged, Codec::None, before, mark(first));
        let mut value = *marker;
        value[..9].copy_from_slice(&forged[before.len()..]);
        let meta = write(&value);
        let last = *data_blocks(&fixture).last().unwrap();
        let mut bytes = fixture.bytes();
        bytes[last.offset as usize + 1] ^= 1;
        fixture.set_bytes(bytes);
        let (entries, gaps) = salvage_slice(&fixture, &meta).unwrap();
        assert!((35..40).contains(&entries) && gaps == [last.offset], "{entries} {gaps:?}");
    }
}
