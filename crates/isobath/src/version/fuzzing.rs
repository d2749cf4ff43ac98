//! The entry points of the fuzzer for the manifest: single edits, and whole files of edits with
//! some bytes changed. See `fuzzing/mod.rs`.

use super::draft::FileSource;
use super::edit::{Change, Edit, Term};
use super::files::ObsoleteFiles;
use super::names::manifest_path;
use super::parts::{Joiner, payloads};
use super::reader::{ManifestReader, salvage_edits};
use super::record::{put_record, sync_marker};
use super::state::State;
use super::{CURRENT, read_current};
use crate::error::{Error, ErrorKind};
use crate::format::{Decoder, FileHeader, FileKind, checksum64, put_bytes};
use crate::table::{BlockHandle, SliceMeta};
use crate::vfs::{FileSystem, MemoryFs};
use std::collections::BTreeMap;
use std::path::Path;

const UUID: [u8; 16] = [7; 16];
const NUMBER: u64 = 5;
const DB: &str = "/db";

/// All decoders of this room, with the names they have in errors.
#[cfg(test)]
pub(crate) const DECODERS: [crate::error::NamedDecoder; 3] = [
    ("file header", |bytes| FileHeader::decode(bytes, FileKind::Manifest).err()),
    ("edit", |bytes| Edit::decode(bytes).err()),
    ("state", |bytes| {
        let files =
            FileSource::Replay { known: &mut BTreeMap::new(), obsolete: &ObsoleteFiles::new() };
        State::default().apply(&Edit::decode(bytes).ok()?, files).err()
    }),
];

/// An edit: decoding, encoding and decoding again gives the same edit, and applying it breaks no
/// invariant of the state.
pub(crate) fn edit(data: &[u8]) {
    let Ok(edit) = Edit::decode(data) else { return };
    assert_eq!(Edit::decode(&edit.encode()).expect("an edit just made"), edit);
    edit.changes.iter().for_each(|change| drop(change.to_string()));
    for before in [Edit::default(), first_edit()] {
        let mut state = State::default();
        let obsolete = ObsoleteFiles::new();
        let mut known = BTreeMap::new();
        for edit in [&before, &edit, &edit] {
            let files = FileSource::Replay { known: &mut known, obsolete: &obsolete };
            let _ = state.apply(edit, files);
        }
        check_snapshot(&state);
    }
}

/// A state is restored from its own snapshot.
fn check_snapshot(state: &State) {
    if state.uuid() == [0; 16] {
        return;
    }
    let mut again = State::default();
    let mut known = BTreeMap::new();
    let files = FileSource::Replay { known: &mut known, obsolete: &ObsoleteFiles::new() };
    let snapshot = state.snapshot();
    again.apply(&snapshot, files).expect("the snapshot of a state");
    assert_eq!(again.snapshot(), snapshot);
}

/// A manifest of these edits (each with its length) with some bytes changed. It must be read as
/// written up to some edit, or be refused.
pub(crate) fn manifest(data: &[u8]) {
    let mut decoder = Decoder::new(data);
    let Ok(count) = decoder.u8() else { return };
    let header = FileHeader::new(FileKind::Manifest, UUID, NUMBER);
    let mut bytes = header.encode().to_vec();
    let mut edits = vec![first_edit().encode()];
    for _ in 0..count % 8 {
        match decoder.bytes() {
            Ok(edit) => edits.push(edit.to_vec()),
            Err(_) => break,
        }
    }
    for edit in &edits {
        let offset = bytes.len() as u64;
        put_record(&mut bytes, NUMBER, offset, edit).expect("a short edit");
        bytes.extend_from_slice(&sync_marker(NUMBER, offset));
    }
    let sound = bytes.clone();
    while let (Ok(low), Ok(high), Ok(byte)) = (decoder.u8(), decoder.u8(), decoder.u8()) {
        let place = usize::from(u16::from_le_bytes([low, high])) % bytes.len();
        bytes[place] = byte;
    }
    let fs = MemoryFs::new();
    fs.create_dir_all(Path::new(DB)).expect("memory");
    let path = manifest_path(Path::new(DB), NUMBER);
    let mut file = fs.create(&path).expect("memory");
    file.append(&bytes).and_then(|()| file.flush()).expect("memory");
    let reader = match ManifestReader::open(&fs, &path) {
        Ok(reader) => reader,
        Err(error) => return assert!(bytes != sound && is_typed(&error), "{error}"),
    };
    let read: Vec<Vec<u8>> =
        reader.edits().map_while(|edit| edit.ok()).map(|(_, edit)| edit.encode()).collect();
    let mut joiner = Joiner::default();
    let joined = edits.iter().map_while(|edit| joiner.take(0, edit).ok()).flatten();
    let written = joined.map(|(_, edit)| edit.encode()).take(read.len());
    assert!(read.iter().eq(written.collect::<Vec<_>>().iter()), "other edits");
    // It fails only over what a later version wrote.
    if let Ok(salvaged) = salvage_edits(&bytes, NUMBER) {
        assert!(salvaged.len() >= read.len(), "what can be read can be salvaged");
    }
    let _ = reader.damaged_sync_markers();
    match reader.fold(&ObsoleteFiles::new()) {
        Ok((state, _)) => check_snapshot(&state),
        Err(error) => assert!(is_typed(&error), "{error}"),
    }
}

/// `CURRENT`.
pub(crate) fn current(data: &[u8]) {
    let fs = MemoryFs::new();
    fs.create_dir_all(Path::new(DB)).expect("memory");
    let mut file = fs.create(&Path::new(DB).join(CURRENT)).expect("memory");
    file.append(data).and_then(|()| file.flush()).expect("memory");
    match read_current(&fs, Path::new(DB)) {
        Ok(number) => {
            let name = format!("MANIFEST-{number:06}");
            let line = format!("{name} {:016x}\n", checksum64(name.as_bytes()));
            assert_eq!(data, line.as_bytes(), "a line that was never written");
        }
        Err(error) => assert!(is_typed(&error), "{error}"),
    }
}

fn is_typed(error: &Error) -> bool {
    match error.kind() {
        ErrorKind::Corruption { path, .. } | ErrorKind::NewerFormat { path, .. } => {
            !path.as_os_str().is_empty()
        }
        _ => false,
    }
}

fn first_edit() -> Edit {
    Edit::new(vec![
        Change::Database { uuid: UUID },
        Change::Term(Term { term: 1, ended_at: 4096, resumes_at: 4096, seed: 1 << 40 }),
        Change::LsnCeiling { lsn: 1 << 20 },
        Change::NextFile { number: 10 },
        Change::CreateFamily {
            family: 0,
            name: "default".to_owned(),
            options: b"{}".to_vec(),
            lsn: 4096,
        },
    ])
}

/// The first inputs of the fuzzer.
pub(crate) fn seeds(target: &str) -> Vec<Vec<u8>> {
    let meta = SliceMeta {
        file: 9,
        family: 0,
        root: BlockHandle { offset: 128, len: 64 },
        disk_bytes: 100,
        raw_bytes: 200,
        entries: 10,
        deletes: 1,
        smallest: (*b"a").into(),
        largest: (*b"b").into(),
        min_seq: 4100,
        max_seq: 4200,
        spans: None,
        ends: None,
        oldest_delete: None,
        blobs: Box::default(),
        streams: Box::default(),
    };
    let options = b"{}".to_vec();
    let edits = [
        first_edit(),
        Edit::new(vec![
            Change::CreateFamily { family: 1, name: "one".to_owned(), options, lsn: 4300 },
            Change::RenameFamily { family: 1, name: "uno".to_owned(), lsn: 4400 },
            Change::SetFamilyOptions { family: 1, options: b"[]".to_vec() },
        ]),
        Edit::new(vec![
            Change::AddSlice { level: 0, meta: meta.clone() },
            Change::ReplayFrom { lsn: 4300 },
            Change::DurableLsn { lsn: 4300 },
        ]),
        Edit::new(vec![
            Change::RemoveSlice { family: 0, level: 0, file: 9 },
            Change::AddSlice { level: 6, meta },
            Change::DropFamily { family: 1, lsn: 4500 },
        ]),
        Edit::new(vec![Change::CleanClose { end: 5000 }]),
    ];
    let encoded: Vec<_> = edits.iter().map(Edit::encode).collect();
    match target {
        "current" => vec![b"MANIFEST-000007 9b27af94d75fde38\n".to_vec(), b"MANIFEST-".to_vec()],
        "edit" => encoded,
        _ => {
            let mut sound = vec![encoded.len() as u8 - 1];
            encoded[1..].iter().for_each(|edit| put_bytes(&mut sound, edit));
            let patched = [&sound[..], &[200, 0, 1]].concat();
            // One edit in two parts.
            let parts = payloads(&edits[1], encoded[1].len() - 1);
            let mut divided = vec![parts.len() as u8];
            parts.iter().for_each(|part| put_bytes(&mut divided, part));
            vec![sound, patched, divided]
        }
    }
}
