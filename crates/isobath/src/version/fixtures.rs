//! For tests: slices without a table behind them, and damage to a manifest.

use super::edit::{Change, Edit, Term};
use super::files::{LiveFile, ObsoleteFiles};
use super::names::manifest_path;
use super::reader::ManifestReader;
use super::record::{put_record, sync_marker};
use super::slice::Slice;
use crate::format::FamilyId;
use crate::table::{BlockHandle, SliceMeta};
use crate::vfs::{FileSystem, MemoryFs};
use std::path::Path;
use std::sync::Arc;

/// A slice of 100 bytes on disk that holds the keys `smallest..=largest` and the sequences `seqs`,
/// both ends included.
pub(crate) fn meta(
    family: FamilyId,
    file: u64,
    smallest: &str,
    largest: &str,
    seqs: (u64, u64),
) -> SliceMeta {
    SliceMeta {
        file,
        family,
        root: BlockHandle { offset: 128, len: 64 },
        disk_bytes: 100,
        raw_bytes: 200,
        entries: 10,
        deletes: 1,
        smallest: smallest.as_bytes().into(),
        largest: largest.as_bytes().into(),
        min_seq: seqs.0,
        max_seq: seqs.1,
        spans: None,
        ends: None,
        oldest_delete: None,
        blobs: Box::default(),
        streams: Box::default(),
    }
}

/// A slice of family 0 in its own file.
pub(crate) fn slice(file: u64, smallest: &str, largest: &str, seqs: (u64, u64)) -> Arc<Slice> {
    let file_of_its_own = LiveFile::new(file, &ObsoleteFiles::new());
    Slice::new(meta(0, file, smallest, largest, seqs), file_of_its_own, Box::default())
}

/// The first edit of the manifest of an empty database.
pub(crate) fn first_edit() -> Edit {
    Edit::new(vec![
        Change::Database { uuid: [7; 16] },
        Change::Term(Term { term: 1, ended_at: 0, resumes_at: 0, seed: 0 }),
        Change::NextFile { number: 1 },
        Change::CreateFamily {
            family: 0,
            name: "default".to_owned(),
            options: b"{}".to_vec(),
            lsn: 0,
        },
    ])
}

/// Writes a manifest of these edits in place of the one in force, and returns their offsets.
pub(crate) fn rewrite_manifest(fs: &MemoryFs, db: &Path, edits: &[Edit]) -> Vec<u64> {
    let number = super::current::read(fs, db).unwrap();
    let path = manifest_path(db, number);
    let reader = ManifestReader::open(fs, &path).unwrap();
    let (mut bytes, mut offsets) = (reader.header().encode().to_vec(), Vec::new());
    for edit in edits {
        let offset = bytes.len() as u64;
        offsets.push(offset);
        put_record(&mut bytes, number, offset, &edit.encode()).unwrap();
        bytes.extend_from_slice(&sync_marker(number, offset));
    }
    fs.remove(&path).unwrap();
    let mut file = fs.create(&path).unwrap();
    file.append(&bytes).unwrap();
    file.sync().unwrap();
    offsets
}

/// Flips a bit in the last edit of the manifest in force.
pub(crate) fn damage_last_edit(fs: &MemoryFs, db: &Path) {
    let path = manifest_path(db, super::current::read(fs, db).unwrap());
    let manifest = ManifestReader::open(fs, &path).unwrap();
    let (offset, _) = manifest.edits().last().unwrap().unwrap();
    fs.corrupt(&path, offset, 1).unwrap();
}
