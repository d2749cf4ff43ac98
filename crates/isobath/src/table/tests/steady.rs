//! Random slices: every movement of a cursor is compared with a list of the slice's versions. The
//! bytes written, and the reads made, are compared with `steady.txt`.
//!
//! A table with the same content in other bytes is correct, and so is a cursor that reads a block
//! twice. But databases with the present bytes exist, and each read has a cost. So a change of
//! either shows here. If the change is intended, put the text that the test prints into that file.

use super::fixtures::*;
use crate::cursor::Cursor;
use crate::cursor::fixtures::{ListCursor, sort_versions};
use crate::format::{OpKind, checksum64};
use crate::table::staging::BlockForm;
use crate::table::{Codec, Label, Origin, SliceMeta, Table, TableContext, TableOptions};
use crate::vfs::FileAccess;
use std::fmt::Write;
use std::sync::Arc;

const SLICES: u64 = 160;
const STEPS: u64 = 60;

/// Numbers derived from a seed.
struct Draw(u64);

impl Draw {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(1);
        checksum64(&self.0.to_le_bytes()) % end
    }

    fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }

    fn key(&mut self, form: u64) -> Vec<u8> {
        match form {
            0 => format!("user{:05}", self.below(900)).into_bytes(),
            1 => (0..self.below(9)).map(|_| self.one(&[0, 1, b'a', 255])).collect(),
            2 => {
                let (mut key, tail) =
                    (vec![b'l'; self.one(&[126, 127, 128, 129, 300])], self.below(300));
                key.extend_from_slice(&tail.to_be_bytes()[6..]);
                key
            }
            _ => {
                let form = self.below(3);
                self.key(form)
            }
        }
    }

    fn versions(&mut self) -> Vec<Version> {
        let (form, len) = (self.below(4), self.one(&[0, 5, 20, 100, 130, 1000]));
        let base = self.one(&[1, 15, 1 << 20, 1 << 40, (1 << 60) - 300]);
        let mut versions = Vec::new();
        for _ in 0..1 + self.one(&[0, 1, 8, 60, 250]) {
            let key = self.key(form);
            if versions.iter().any(|other: &Version| other.key == key) {
                continue;
            }
            let count = self.one(&[1, 1, 1, 2, 3, 20]);
            for at in 0..count {
                let seq = base + self.below(8) + at * 8;
                let value = vec![self.below(256) as u8; self.below(len + 1) as usize];
                versions.push(match self.below(6) {
                    0 => Version::delete(&key, seq),
                    _ => Version::put(&key, seq, &value),
                });
            }
        }
        sort_versions(&mut versions);
        versions
    }

    fn options(&mut self, form: BlockForm) -> TableOptions {
        let label = Label { name: "a family".to_owned(), options: b"{}".to_vec() };
        let origin = Origin {
            label: (self.below(2) == 0).then(|| Arc::new(label)),
            inputs: (0..self.below(4)).map(|at| at * 130 + 1).collect(),
            ancestors: (0..self.below(3)).map(|at| at * 9 + 5).collect(),
        };
        TableOptions {
            form,
            block_len: self.one(&[1, 64, 200, 500, 1000, 4096]),
            restart_interval: self.one(&[0, 1, 2, 3, 7, 16, 255, 300]),
            codec: Codec::None,
            filter_bits_per_key: self.one(&[0, 1, 4, 10, 20, 40]),
            index_block_len: self.one(&[1, 40, 100, 300, 4096]),
            flat_index_part: 0,
            origin,
            ..TableOptions::default()
        }
    }
}

fn written(
    fixture: &Fixture,
    draw: &mut Draw,
    versions: &[Version],
    form: BlockForm,
    out: &mut String,
) -> SliceMeta {
    let mut writer = fixture.writer();
    let mut sums = 0u64;
    // So that the slice does not begin at the start of the file.
    let before = TableOptions { form, restart_interval: 16, ..TableOptions::default() };
    writer.begin_slice(1, &before).unwrap();
    writer.add(Version::put("before", 7, vec![1; draw.below(3000) as usize]).as_entry()).unwrap();
    writer.finish_slice().unwrap();
    writer.begin_slice(3, &draw.options(form)).unwrap();
    for version in versions {
        writer.add(version.as_entry()).unwrap();
        sums = sums.wrapping_mul(31).wrapping_add(writer.slice_disk_bytes());
    }
    let finished = writer.finish().unwrap();
    let meta = finished.slices.last().unwrap().clone();
    let sum = checksum64(&fixture.bytes());
    write!(out, " {} of {} bytes, sums {sum:016x} {sums:016x}", meta.entries, meta.disk_bytes)
        .unwrap();
    let is_delete = |version: &&Version| version.kind == OpKind::Delete;
    assert_eq!(meta.entries, versions.len() as u64);
    assert_eq!(meta.deletes, versions.iter().filter(is_delete).count() as u64);
    assert_eq!(meta.min_seq, versions.iter().map(|version| version.seq).min().unwrap());
    assert_eq!(meta.max_seq, versions.iter().map(|version| version.seq).max().unwrap());
    assert_eq!(*meta.smallest, versions[0].key);
    assert_eq!(*meta.largest, versions[versions.len() - 1].key);
    let raw = versions.iter().map(|version| (version.key.len() + version.value.len()) as u64);
    assert_eq!(meta.raw_bytes, raw.sum::<u64>());
    meta
}

/// A key of the slice, a key just above or just below one, or any key.
fn probe(draw: &mut Draw, versions: &[Version]) -> Vec<u8> {
    let mut key = versions[draw.below(versions.len() as u64) as usize].key.clone();
    match draw.below(4) {
        0 => {}
        1 => key.push(0),
        2 => match key.pop() {
            Some(last) if last > 0 => key.extend_from_slice(&[last - 1, 255]),
            _ => {}
        },
        _ => key = draw.key(3),
    }
    key
}

/// Moves a cursor and a list in the same way.
fn walk(draw: &mut Draw, cursor: &mut dyn Cursor, versions: &[Version]) {
    let mut list = ListCursor::new(versions.to_vec());
    let mut scratch = Vec::new();
    for _ in 0..STEPS {
        let (step, times) = (draw.below(9), draw.one(&[1, 1, 2, 5, 40]));
        let key = probe(draw, versions);
        for _ in 0..if step < 6 { 1 } else { times } {
            if step >= 6 && list.entry().is_none() {
                break;
            }
            let both: [&mut dyn Cursor; 2] = [&mut *cursor, &mut list];
            for cursor in both {
                match step {
                    0 => cursor.seek_first().unwrap(),
                    1 => cursor.seek_last().unwrap(),
                    2 | 3 => cursor.seek(&key).unwrap(),
                    4 | 5 => cursor.seek_for_prev(&key).unwrap(),
                    6 => cursor.next().unwrap(),
                    7 => cursor.prev_key().unwrap(),
                    _ => cursor.next_key(&mut scratch).unwrap(),
                }
            }
            assert_eq!(cursor.entry(), list.entry(), "step {step} with {key:?}");
        }
    }
}

fn get(draw: &mut Draw, table: &Table, versions: &[Version]) {
    let key = probe(draw, versions);
    let point = versions[draw.below(versions.len() as u64) as usize].seq + draw.below(2);
    let found = table.get(&key, checksum64(&key), point).unwrap();
    let expected = versions.iter().find(|version| version.key == key && version.seq < point);
    assert_eq!(found.as_ref().map(|found| found.seq), expected.map(|version| version.seq));
    if let (Some(found), Some(version)) = (found, expected) {
        assert_eq!((found.kind, &*found.value), (version.kind, &*version.value));
    }
}

fn note_reads(fixture: &Fixture, name: &str, out: &mut String) {
    let (mut reads, mut ahead, mut sum) = (0, 0, 0u64);
    for (is_ahead, offset, len) in fixture.fs.take_trace() {
        *if is_ahead { &mut ahead } else { &mut reads } += 1;
        sum = sum
            .wrapping_mul(0x100_0000_01b3)
            .wrapping_add(offset * 7 + len * 3 + u64::from(is_ahead));
    }
    write!(out, ", {name} {reads}+{ahead} {sum:016x}").unwrap();
}

fn slice(seed: u64, form: BlockForm) -> String {
    let (mut draw, fixture) = (Draw(seed << 32), Fixture::new());
    let mut out = format!("{seed}:");
    let versions = draw.versions();
    let meta = written(&fixture, &mut draw, &versions, form, &mut out);
    for (fill_cache, mode) in [
        (true, FileAccess::Positional),
        (true, FileAccess::Mapped),
        (false, FileAccess::Positional),
        (false, FileAccess::Mapped),
    ] {
        let context: TableContext = fixture.context(mode, draw.one(&[0u64, 1 << 30]));
        let table = Table::open(context, &meta).unwrap();
        fixture.fs.take_trace();
        let mut cursor = table.cursor(fill_cache);
        let read: Vec<_> =
            forward(&mut cursor).unwrap().iter().map(|version| version.seq).collect();
        assert!(read.iter().eq(versions.iter().map(|version| &version.seq)));
        walk(&mut draw, &mut cursor, &versions);
        note_reads(&fixture, "walk", &mut out);
        (0..20).for_each(|_| get(&mut draw, &table, &versions));
        note_reads(&fixture, "get", &mut out);
    }
    out
}

#[test]
fn slices_read_as_they_should_and_cost_what_they_did() {
    for (form, before) in [
        (BlockForm::Chained, include_str!("steady.txt")),
        (BlockForm::Slotted, include_str!("steady_slots.txt")),
    ] {
        let out: String = (0..SLICES).map(|seed| slice(seed, form) + "\n").collect();
        if before != out {
            println!("{out}");
            let changed = before.lines().zip(out.lines()).find(|(was, is)| was != is);
            panic!("bytes or reads have changed: {changed:#?}");
        }
    }
}
