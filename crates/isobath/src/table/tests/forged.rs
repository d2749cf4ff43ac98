//! Changes every byte of every block and frames the block again with the right checksum. A writer
//! with a bug, or a forger, could have written such files. Also damages parts of a file, and
//! checks what a repair recovers from the rest.
//!
//! Everything that `verify` accepts must read as the same slice in every way. The other results of
//! `verify` are compared in sums with `forged.txt`, and what a repair finds with `salvaged.txt`; of
//! slotted blocks, with `forged_slots.txt` and `salvaged_slots.txt`. So
//! a check that is no longer made shows there. After an intended change, put the text that the test
//! prints into that file.

use super::fixtures::*;
use crate::cursor::Cursor;
use crate::error::Result;
use crate::format::Address;
use crate::format::{Lsn, OpKind, checksum64};
use crate::table::block::{Block, KIND_MASK, SEQ_MAX, TAIL_LEN};
use crate::table::frame::{TRAILER_LEN, open_frame, put_frame};
use crate::table::slotted::EXTENSION_LEN;
use crate::table::staging::BlockForm;
use crate::table::{
    BlobShare, BlockHandle, Codec, DumpItem, Part, RowLimits, Rows, SliceMeta, Table, TableFile,
    TableOptions, salvage,
};
use crate::vfs::{FileAccess, FileSystem};
use std::fmt::Write;
use std::sync::Arc;

pub(super) fn sample() -> Vec<(u32, Vec<Version>)> {
    let many = (0..30u64).flat_map(|i| {
        (0..1 + i % 3).rev().map(move |v| {
            let version = Version::put(format!("key{:04}", i * 3), 5000 + i * 10 + v, "value");
            match (i + v) % 5 {
                0 => Version { kind: OpKind::Delete, value: Vec::new(), ..version },
                _ => version,
            }
        })
    });
    let hot = (0..40).rev().map(|v| Version::put("hot", 900 + v * 300, vec![v as u8; 4]));
    vec![(0, vec![Version::put("only", 77, "one")]), (3, many.collect()), (9, hot.collect())]
}

pub(super) const FORMS: [(BlockForm, &str, &str); 2] = [
    (BlockForm::Chained, include_str!("forged.txt"), include_str!("salvaged.txt")),
    (BlockForm::Slotted, include_str!("forged_slots.txt"), include_str!("salvaged_slots.txt")),
];

pub(super) fn fixture(form: BlockForm) -> (Fixture, Vec<SliceMeta>) {
    let fixture = Fixture::new();
    let options = TableOptions {
        form,
        block_len: 130,
        restart_interval: 3,
        index_block_len: 70,
        flat_index_part: 0,
        codec: Codec::None,
        ..TableOptions::default()
    };
    let finished = fixture.write(&options, &sample());
    (fixture, finished.slices)
}

fn blocks(fixture: &Fixture) -> Vec<BlockHandle> {
    let fs: Arc<dyn FileSystem> = fixture.fs.clone();
    let mut handles = Vec::new();
    let show = &mut |item: DumpItem<'_>| {
        if let DumpItem::Block { handle, .. } = item {
            handles.push(handle);
        }
        Ok(())
    };
    TableFile::open(&fs, &fixture.path()).unwrap().dump(show).unwrap();
    handles
}

/// Reads a verified slice in every way.
fn read(fixture: &Fixture, meta: &SliceMeta) -> Result<()> {
    let table = Table::open(fixture.context(FileAccess::Positional, 1 << 20), meta)?;
    let all = forward(&mut table.cursor(true))?;
    assert_eq!(meta.entries, all.len() as u64);
    assert!(all.windows(2).all(|pair| (&pair[0].key, pair[1].seq) < (&pair[1].key, pair[0].seq)));
    for version in &all {
        let found = table.get(&version.key, checksum64(&version.key), version.seq + 1)?.unwrap();
        assert_eq!(
            (found.seq, found.kind, &*found.value),
            (version.seq, version.kind, &*version.value)
        );
        let mut cursor = table.cursor(false);
        cursor.seek(&version.key)?;
        assert_eq!(cursor.entry().unwrap().key, version.key);
    }
    let mut newest = all.clone();
    newest.dedup_by(|a, b| a.key == b.key);
    newest.reverse();
    assert_eq!(backward(&mut table.cursor(true))?, newest);
    Ok(())
}

/// The result of a check of a file: an error, or the number of bytes read.
fn judged(fixture: &Fixture) -> String {
    let fs: Arc<dyn FileSystem> = fixture.fs.clone();
    let mut bytes = 0;
    let judged = TableFile::open(&fs, &fixture.path()).and_then(|file| {
        file.verify(&mut |more| bytes += more)?;
        file.slices().iter().try_for_each(|meta| read(fixture, meta))
    });
    match judged {
        Ok(()) => format!("sound {bytes}"),
        Err(error) => error.to_string(),
    }
}

fn salvaged(fixture: &Fixture, known: &[SliceMeta]) -> String {
    let salvage = salvage(fixture.bytes(), IDENTITY, known).unwrap();
    let mut out = format!("{} {}", salvage.has_directory, salvage.homeless_bytes);
    for slice in &salvage.slices {
        let meta = slice.meta.as_ref().map(|meta| (meta.entries, meta.root.offset));
        write!(out, "; {:?} {meta:?} {}", slice.family, slice.root.is_some()).unwrap();
        let visit = &mut |part: Part<'_>| {
            match part {
                Part::Entry(entry) => write!(out, " {:?}@{}", entry.key, entry.seq).unwrap(),
                Part::Gap { offset, len } => write!(out, " gap {offset}+{len}").unwrap(),
            }
            Ok(())
        };
        salvage.visit(slice, visit).unwrap();
    }
    out
}

fn sum(sum: u64, text: &str) -> u64 {
    sum.wrapping_mul(0x100_0000_01b3) ^ checksum64(text.as_bytes())
}

fn compare(before: &str, out: &str) {
    if before != out {
        println!("{out}");
        let changed = before.lines().zip(out.lines()).find(|(was, is)| was != is);
        panic!("what is said has changed: {changed:#?}");
    }
}

#[test]
fn what_is_verified_reads_as_one_slice_in_every_way() {
    for (form, before, _) in FORMS {
        compare(before, &forged(form));
    }
}

fn forged(form: BlockForm) -> String {
    let (fixture, _) = fixture(form);
    let mut out = format!("{}\n", judged(&fixture));
    let mut blocks: Vec<(BlockHandle, u32, u64)> = Vec::new();
    each_forged(&fixture, |handle, _| {
        let verdict = judged(&fixture);
        if blocks.last().is_none_or(|(last, ..)| *last != handle) {
            blocks.push((handle, 0, 0));
        }
        let (_, passed, said) = blocks.last_mut().unwrap();
        *passed += u32::from(verdict.starts_with("sound"));
        *said = sum(*said, &verdict);
    });
    for (BlockHandle { offset, len }, passed, said) in blocks {
        writeln!(out, "{offset}+{len}: {passed} sound, {said:016x}").unwrap();
    }
    out
}

/// Calls `then` with the file in which one byte differs, for each byte of each block and three
/// times, with the block and the byte's place.
pub(super) fn each_forged(fixture: &Fixture, mut then: impl FnMut(BlockHandle, usize)) {
    let good = fixture.bytes();
    for handle in blocks(fixture) {
        let (start, len) = (handle.offset as usize, handle.len as usize);
        let end = start + len;
        for place in start..end - TRAILER_LEN {
            let byte = good[place];
            for forged in [byte ^ 1, byte.wrapping_add(3), byte ^ 0x80] {
                let mut payload = good[start..end - TRAILER_LEN].to_vec();
                payload[place - start] = forged;
                let mut framed = Vec::new();
                put_frame(&mut framed, Codec::None, &payload, mark(handle.offset));
                fixture.set_bytes([&good[..start], &framed, &good[end..]].concat());
                then(handle, place);
            }
        }
    }
}

/// The base of the sequence numbers is all that a forger changes, so each block is whole otherwise.
#[test]
fn a_block_of_which_any_sequence_number_is_impossible_is_not_salvaged() {
    let fixture = Fixture::new();
    let options = TableOptions { block_len: 70, codec: Codec::None, ..TableOptions::default() };
    let versions = (0..12u64).map(|i| Version::put(format!("key{i:02}"), 500 - i, [7; 30]));
    let known = fixture.write(&options, &[(0, versions.collect())]).slices;
    let good = fixture.bytes();
    let seqs = |fixture: &Fixture| {
        let salvage = salvage(fixture.bytes(), IDENTITY, &known).unwrap();
        let (mut seqs, mut gaps) = (Vec::new(), 0);
        let visit = &mut |part: Part<'_>| {
            match part {
                Part::Entry(entry) => seqs.push(entry.seq),
                Part::Gap { .. } => gaps += 1,
            }
            Ok(())
        };
        salvage.slices.iter().for_each(|slice| salvage.visit(slice, visit).unwrap());
        (seqs, gaps)
    };
    assert_eq!(seqs(&fixture), ((0..12).map(|i| 500 - i).collect(), 0));
    let mut forged_count = 0;
    for handle in blocks(&fixture) {
        let (start, end) =
            (handle.offset as usize, (handle.offset + u64::from(handle.len)) as usize);
        let mut payload = good[start..end - TRAILER_LEN].to_vec();
        let Some(base_at) = payload.len().checked_sub(TAIL_LEN) else { continue };
        let base = u64::from_le_bytes(payload[base_at..base_at + 8].try_into().unwrap());
        if !(480..=500).contains(&base) {
            continue;
        }
        payload[base_at..base_at + 8].copy_from_slice(&SEQ_MAX.to_le_bytes());
        let mut framed = Vec::new();
        put_frame(&mut framed, Codec::None, &payload, mark(handle.offset));
        fixture.set_bytes([&good[..start], &framed, &good[end..]].concat());
        let (seqs, gaps) = seqs(&fixture);
        assert!(seqs.iter().all(|seq| *seq <= 500) && seqs.len() < 12 && gaps == 1, "{seqs:?}");
        forged_count += 1;
    }
    assert!(forged_count > 3);
}

#[test]
fn what_is_left_of_a_damaged_file_is_found() {
    for (form, _, before) in FORMS {
        compare(before, &left(form));
    }
}

fn left(form: BlockForm) -> String {
    let (fixture, known) = fixture(form);
    let good = fixture.bytes();
    let mut out = String::new();
    for (len, step) in [(1, 37), (60, 61), (400, 151), (usize::MAX, 701)] {
        for known in [&known[..], &known[..1], &[]] {
            let mut said = 0;
            for at in (0..good.len()).step_by(step) {
                let mut bad = good.clone();
                let end = at.saturating_add(len).min(good.len());
                bad[at..end].iter_mut().for_each(|byte| *byte ^= 0x55);
                fixture.set_bytes(bad);
                said = sum(said, &salvaged(&fixture, known));
            }
            writeln!(out, "{len:#x} lost, {} known: {said:016x}", known.len()).unwrap();
        }
    }
    out
}

#[test]
fn shares_of_blob_files_that_do_not_agree_with_the_entries_are_damage() {
    let address = |file| Address { file, offset: 128, stored_len: 70, value_len: 60 };
    let version = |key: &str, file| {
        let mut stored = Vec::new();
        address(file).put_in(OpKind::Put, b"", &mut stored);
        Version { kind: OpKind::PutSeparated, ..Version::put(key, 9, stored) }
    };
    let fixture = Fixture::new();
    let versions = vec![version("a", 3), version("b", 3), version("c", 5)];
    let good = fixture.write(&TableOptions::default(), &[(0, versions)]).slices.remove(0);
    let share = |file, values| BlobShare { file, values, bytes: 70 * values };
    assert_eq!(*good.blobs, [share(3, 2), share(5, 1)]);
    let fs: Arc<dyn FileSystem> = fixture.fs.clone();
    TableFile::open(&fs, &fixture.path()).unwrap().verify(&mut |_| ()).unwrap();
    let whole = fixture.bytes();
    let (start, end) =
        (good.root.offset as usize, (good.root.offset + u64::from(good.root.len)) as usize);
    let (codec, payload) = open_frame(&whole[start..end], mark(good.root.offset)).unwrap();
    let field = |shares: &[BlobShare]| {
        let mut field = Vec::new();
        BlobShare::put_all(shares, &mut field);
        field
    };
    let stated = field(&good.blobs);
    let at = payload.windows(stated.len()).position(|bytes| bytes == stated).unwrap();
    for forged in [
        [BlobShare { values: 1, ..share(3, 2) }, share(5, 1)],
        [share(3, 2), share(6, 1)],
        [share(3, 2), BlobShare { bytes: 71, ..share(5, 1) }],
    ] {
        let (mut bytes, mut payload) = (whole.clone(), payload.to_vec());
        let forged = field(&forged);
        payload[at..at + stated.len()].copy_from_slice(&forged);
        let mut root = Vec::new();
        put_frame(&mut root, codec, &payload, mark(good.root.offset));
        bytes[start..end].copy_from_slice(&root);
        fixture.set_bytes(bytes);
        let error = TableFile::open(&fs, &fixture.path()).unwrap().verify(&mut |_| ()).unwrap_err();
        assert!(error.to_string().contains("shares of blob files"), "{error}");
    }
}

fn slotted(block_len: u32) -> TableOptions {
    let form = BlockForm::Slotted;
    TableOptions { form, block_len, codec: Codec::None, ..TableOptions::default() }
}

/// Changes the slotted block with ordinal `at`, and frames it again.
fn forge_slots(fixture: &Fixture, at: usize, change: impl Fn(&mut [u8])) {
    let mut bytes = fixture.bytes();
    let found = blocks(fixture).into_iter().filter_map(|handle| {
        let (start, end) = (handle.offset, handle.offset + u64::from(handle.len));
        let payload = bytes[start as usize..end as usize - TRAILER_LEN].to_vec();
        let is_slotted = Block::parse(payload.clone()).is_ok_and(|block| block.is_slotted());
        is_slotted.then_some((handle.offset, payload))
    });
    let (offset, mut payload) = found.into_iter().nth(at).unwrap();
    change(&mut payload);
    let mut framed = Vec::new();
    put_frame(&mut framed, Codec::None, &payload, mark(offset));
    bytes[offset as usize..][..framed.len()].copy_from_slice(&framed);
    fixture.set_bytes(bytes);
}

#[test]
fn rows_end_where_a_kind_is_unknown() {
    let fixture = Fixture::new();
    let versions = (0..100u64).map(|i| Version::put(format!("{i:016}"), 100 + i, [7; 100]));
    let finished = fixture.write(&slotted(1 << 20), &[(0, versions.collect())]);
    // The block still says that all its entries are values that stay.
    forge_slots(&fixture, 0, |payload| {
        let width = usize::from(payload[payload.len() - 1]);
        let versions_at = payload.len() - TAIL_LEN - EXTENSION_LEN - 100 * width;
        (7..100).for_each(|i| payload[versions_at + i * width] |= KIND_MASK as u8);
    });
    let mut cursor = fixture.open(&finished, 0).cursor(true);
    cursor.seek_first().unwrap();
    let (mut rows, mut seen) = (Rows::default(), vec![cursor.key().unwrap().to_vec()]);
    let limits = RowLimits { point: Lsn::MAX, count: 9, head: u64::MAX };
    let is_refused = (0..200).any(|_| {
        cursor.take_rows(&mut rows, limits, |_| true);
        seen.extend((0..rows.len()).map(|at| rows.key(at).to_vec()));
        if rows.len() > 0 {
            return false;
        }
        let moved = cursor.next();
        seen.extend(cursor.key().map(<[u8]>::to_vec));
        moved.is_err()
    });
    assert!(is_refused && seen.len() == 7, "{} keys", seen.len());
    assert!(seen.is_sorted_by(|one, next| one < next));
}

#[test]
fn a_slotted_block_with_a_key_that_is_too_long_is_a_gap() {
    let fixture = Fixture::new();
    let key = |block: u8, rest: &[u8]| [&[block; 65_530][..], rest].concat();
    let rests: [&[u8]; 3] = [b"a", b"bbbbbb", b"c"];
    let keys = (0..4).flat_map(|block| rests.map(|rest| key(block, rest)));
    let value = [&[0][..], &[7; 5000]].concat();
    let versions = keys.map(|key| Version::put(key, 9, value.clone()));
    let finished = fixture.write(&slotted(80_000), &[(0, versions.collect())]);
    // The second key of a block takes the first byte of its value.
    forge_slots(&fixture, 1, |payload| {
        let at = payload.windows(7).position(|bytes| bytes == b"\x06bbbbbb").unwrap();
        payload[at] += 1;
    });
    let salvage = salvage(fixture.bytes(), IDENTITY, &finished.slices).unwrap();
    let (mut entries, mut gaps) = (0, 0);
    let visited = salvage.visit(&salvage.slices[0], &mut |part| {
        match part {
            Part::Entry(_) => entries += 1,
            Part::Gap { .. } => gaps += 1,
        }
        Ok(())
    });
    visited.unwrap();
    assert_eq!((entries, gaps), (9, 1));
    let mut cursor = fixture.open(&finished, 0).cursor(true);
    cursor.seek(&key(1, b"a")).unwrap();
    let limits = RowLimits { point: Lsn::MAX, count: 9, head: u64::MAX };
    let mut rows = Rows::default();
    cursor.take_rows(&mut rows, limits, |_| true);
    assert_eq!(rows.len(), 0, "rows end before that key");
    cursor.next().unwrap_err();
    cursor.seek(&key(1, b"c")).unwrap();
    assert_eq!(cursor.key(), Some(&key(1, b"c")[..]));
    cursor.prev_key().unwrap_err();
}

#[test]
fn a_block_that_a_newer_version_wrote_is_no_gap_though_the_footer_is_damaged() {
    let fixture = Fixture::new();
    let versions = (0..100u64).map(|i| Version::put(format!("{i:016}"), 100 + i, [7; 100]));
    let finished = fixture.write(&slotted(1024), &[(0, versions.collect())]);
    let salvaged = |bytes: Vec<u8>| salvage(bytes, IDENTITY, &finished.slices).map(drop);
    let mut bytes = fixture.bytes();
    let footer = bytes.len() - 20;
    bytes[footer] ^= 1;
    salvaged(bytes).unwrap();
    forge_slots(&fixture, 3, |payload| {
        let form = payload.len() - 17;
        payload[form] += 1;
    });
    let mut bytes = fixture.bytes();
    bytes[footer] ^= 1;
    assert!(salvaged(bytes).unwrap_err().is_newer_format());
}
