//! A reader that follows a manifest finds what a reader of the whole file finds, and reads little.

use super::super::edit::{Change, Edit};
use super::super::fixtures::{first_edit, meta};
use super::super::parts::payloads;
use super::super::reader::FOLDS;
use super::super::record::{put_record, sync_marker};
use super::super::set::VersionSet;
use super::*;
use crate::env::fixtures::Draw;
use crate::format::{FileHeader, FileKind};
use crate::vfs::{FileOp, MemoryFs};

const DB: &str = "/db";
const NUMBER: u64 = 1;

/// Edits that add and remove runs, from the snapshot on.
fn edits() -> Vec<Edit> {
    let mut edits = vec![first_edit()];
    for file in 1..30 {
        let seq = 10 * file;
        let mut changes = vec![
            Change::LsnCeiling { lsn: seq + 10 },
            Change::NextFile { number: file + 1 },
            Change::AddSlice { level: 0, meta: meta(0, file, "a", "z", (seq, seq + 9)) },
        ];
        if file % 3 == 0 {
            let gone = file - 1;
            changes.push(Change::RemoveSlice { family: 0, level: 0, file: gone });
        }
        edits.push(Edit::new(changes));
    }
    edits
}

/// A manifest of these edits, of which those longer than `len_max` are divided.
fn manifest(edits: &[Edit], len_max: usize) -> Vec<u8> {
    let header = FileHeader::new(FileKind::Manifest, [7; 16], NUMBER);
    let mut bytes = header.encode().to_vec();
    for payload in edits.iter().flat_map(|edit| payloads(edit, len_max)) {
        let offset = bytes.len() as u64;
        put_record(&mut bytes, NUMBER, offset, &payload).unwrap();
        bytes.extend_from_slice(&sync_marker(NUMBER, offset));
    }
    bytes
}

fn database() -> MemoryFs {
    let fs = MemoryFs::new();
    VersionSet::create(Arc::new(fs.clone()), Path::new(DB), [7; 16], b"{}").unwrap();
    fs
}

fn put(fs: &MemoryFs, bytes: &[u8]) {
    let path = manifest_path(Path::new(DB), NUMBER);
    fs.remove(&path).unwrap();
    fs.create(&path).unwrap().append(bytes).unwrap();
}

fn whole(fs: &MemoryFs) -> Result<Edit> {
    let mut trail = Trail::default();
    trail.follow(fs, Path::new(DB))?;
    let reader = ManifestReader::open(fs, &manifest_path(Path::new(DB), NUMBER))?;
    let (state, _) = reader.fold(&ObsoleteFiles::new())?;
    assert_eq!(trail.state().snapshot(), state.snapshot());
    Ok(state.snapshot())
}

/// Wherever the file ends when it is looked at: in a record, before a sync marker, between parts.
#[test]
fn a_trail_finds_what_a_reader_of_the_whole_finds_wherever_the_file_ends() {
    for len_max in [1 << 20, 40] {
        let (fs, bytes) = (database(), manifest(&edits(), len_max));
        let (mut trail, mut draw) = (Trail::default(), Draw::new(5));
        let mut len = FILE_HEADER_LEN;
        while len < bytes.len() {
            len = (len + 1 + draw.index(40)).min(bytes.len());
            put(&fs, &bytes[..len]);
            let followed = trail.follow(&fs, Path::new(DB)).map(|()| trail.state().snapshot());
            match whole(&fs) {
                Ok(state) => assert_eq!(followed.unwrap(), state, "length {len}"),
                Err(error) => {
                    assert_eq!(followed.unwrap_err().to_string(), error.to_string());
                }
            }
        }
        // Back and forth, as if older copies had taken its place.
        for _ in 0..200 {
            let len = FILE_HEADER_LEN + draw.index(bytes.len() - FILE_HEADER_LEN + 1);
            put(&fs, &bytes[..len]);
            let followed = trail.follow(&fs, Path::new(DB)).map(|()| trail.state().snapshot());
            assert_eq!(followed.ok(), whole(&fs).ok(), "length {len}");
        }
    }
}

#[test]
fn another_file_in_the_place_of_the_one_that_was_read_is_read_as_a_whole() {
    let (fs, one) = (database(), edits());
    let mut trail = Trail::default();
    put(&fs, &manifest(&one[..3], 1 << 20));
    trail.follow(&fs, Path::new(DB)).unwrap();
    // As long, with another last record, and then a longer one.
    let mut other = one[..3].to_vec();
    let Change::AddSlice { meta, .. } = &mut other[2].changes[2] else { panic!("no slice") };
    meta.largest = b"y".as_slice().into();
    let len_of = |edits: &[Edit]| manifest(edits, 1 << 20).len();
    assert_eq!(len_of(&other), len_of(&one[..3]));
    for edits in [&other[..], &one[..3], &other[..], &one[..9]] {
        put(&fs, &manifest(edits, 1 << 20));
        trail.follow(&fs, Path::new(DB)).unwrap();
        assert_eq!(trail.state().snapshot(), whole(&fs).unwrap());
    }
}

#[test]
fn damage_behind_what_was_read_is_told_as_by_a_reader_of_the_whole_and_passes() {
    let (fs, bytes) = (database(), manifest(&edits(), 1 << 20));
    let (mut trail, half) = (Trail::default(), manifest(&edits()[..15], 1 << 20).len());
    put(&fs, &bytes[..half]);
    trail.follow(&fs, Path::new(DB)).unwrap();
    let mut bad = bytes.clone();
    bad[half + 20] ^= 1;
    put(&fs, &bad);
    let error = trail.follow(&fs, Path::new(DB)).unwrap_err();
    assert!(error.is_corruption());
    assert_eq!(error.to_string(), whole(&fs).unwrap_err().to_string());
    put(&fs, &bytes);
    trail.follow(&fs, Path::new(DB)).unwrap();
    assert_eq!(trail.state().snapshot(), whole(&fs).unwrap());
}

#[test]
fn a_look_reads_and_folds_what_is_new_and_a_new_manifest_as_a_whole() {
    let fs = MemoryFs::new();
    let mut set = VersionSet::create(Arc::new(fs.clone()), Path::new(DB), [7; 16], b"{}").unwrap();
    let mut trail = Trail::default();
    trail.follow(&fs, Path::new(DB)).unwrap();
    let mut anew = 0;
    for round in 1..=300u64 {
        if round == 250 {
            set.renew().unwrap();
        }
        let edit = Edit::new(vec![Change::LsnCeiling { lsn: 10_000 + round }]);
        set.install(edit, &[]).unwrap();
        let (read, opened, folds) = (fs.read_bytes(), fs.tried(FileOp::OpenRead), FOLDS.get());
        trail.follow(&fs, Path::new(DB)).unwrap();
        assert_eq!(trail.state().snapshot(), set.state().snapshot());
        let read = fs.read_bytes() - read;
        if trail.manifest() == 1 || round != 250 {
            assert!(read < 300, "{read} bytes in round {round}");
            assert_eq!((fs.tried(FileOp::OpenRead) - opened, FOLDS.get() - folds), (2, 1));
        } else {
            anew += 1;
        }
        let folds = FOLDS.get();
        trail.follow(&fs, Path::new(DB)).unwrap();
        assert_eq!(FOLDS.get(), folds, "nothing is new");
    }
    assert_eq!(anew, 1);
}

#[test]
fn files_that_nothing_names_are_forgotten() {
    let (fs, mut all) = (database(), vec![first_edit()]);
    for file in 1..5000u64 {
        let seq = 10 * file;
        let mut changes = vec![
            Change::LsnCeiling { lsn: seq + 10 },
            Change::NextFile { number: file + 1 },
            Change::AddSlice { level: 0, meta: meta(0, file, "a", "z", (seq, seq + 9)) },
        ];
        if file > 1 {
            changes.push(Change::RemoveSlice { family: 0, level: 0, file: file - 1 });
        }
        all.push(Edit::new(changes));
    }
    let (bytes, mut trail) = (manifest(&all, 1 << 20), Trail::default());
    for share in 1..=20 {
        put(&fs, &bytes[..bytes.len() * share / 20]);
        trail.follow(&fs, Path::new(DB)).unwrap();
        let known = trail.0.as_ref().unwrap().folded.known.len();
        assert!(known <= FILES_SPARE + 600, "{known} files are remembered");
    }
    trail.keep_only(&BTreeSet::from([4999]));
    let known = &trail.0.as_ref().unwrap().folded.known;
    assert_eq!(known.keys().copied().collect::<Vec<_>>(), [4999]);
}
