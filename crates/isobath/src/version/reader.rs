//! Reads a manifest: record by record for tools, or folded into the state that it describes.

use super::draft::FileSource;
use super::edit::Edit;
use super::files::ObsoleteFiles;
use super::names::manifest_number;
use super::record::{RECORD_HEADER_LEN, Records, TornTail, sync_marker};
use super::state::State;
use crate::error::{Error, Result};
use crate::format::{FILE_HEADER_LEN, FileHeader, FileKind};
use crate::vfs::{FileAccess, FileSystem, len_in_memory};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The bytes of a manifest whose header has been checked.
#[derive(Debug)]
pub(crate) struct ManifestReader {
    path: PathBuf,
    header: FileHeader,
    bytes: Vec<u8>,
}

impl ManifestReader {
    pub(crate) fn open(fs: &dyn FileSystem, path: &Path) -> Result<ManifestReader> {
        let file = fs.open_read(path, FileAccess::Positional)?;
        let mut bytes = vec![0; len_in_memory(file.len(), path)?];
        file.read_at(0, &mut bytes)?;
        let header = FileHeader::decode(&bytes, FileKind::Manifest)
            .map_err(|error| error.in_file(path, 0))?;
        let name = path.file_name().and_then(|name| name.to_str());
        if name.and_then(manifest_number).is_some_and(|number| number != header.number) {
            let detail = format!("the header says that this is manifest {}", header.number);
            return Err(Error::corruption(path, 48, detail));
        }
        Ok(ManifestReader { path: path.to_owned(), header, bytes })
    }

    pub(crate) fn header(&self) -> &FileHeader {
        &self.header
    }

    /// The length of the file in bytes.
    pub(crate) fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// The edits in order, each with the offset of its record.
    pub(crate) fn edits(&self) -> Edits<'_> {
        let records = Records::new(&self.bytes, self.header.number, FILE_HEADER_LEN);
        Edits { path: &self.path, records }
    }

    /// The offsets of sync markers that are wrong although a later record's is right. They had been
    /// synced, so they are damaged.
    pub(crate) fn damaged_sync_markers(&self) -> Vec<u64> {
        let (mut damaged, mut suspects) = (Vec::new(), Vec::new());
        let mut records = Records::new(&self.bytes, self.header.number, FILE_HEADER_LEN);
        while let Some(Ok(record)) = records.next() {
            let at = record.offset as usize + RECORD_HEADER_LEN + record.payload.len();
            let is_whole =
                self.bytes[at..].starts_with(&sync_marker(self.header.number, record.offset));
            if is_whole {
                damaged.append(&mut suspects);
            } else {
                suspects.push(at as u64);
            }
        }
        damaged
    }

    /// The offset of the last record's sync marker, if its bytes are neither the sync marker nor
    /// absent. Zeros, and a file that ends early, count as absent: power loss leaves them where a
    /// sync marker was not synced yet.
    pub(crate) fn odd_last_sync_marker(&self) -> Option<u64> {
        let records = Records::new(&self.bytes, self.header.number, FILE_HEADER_LEN);
        let last = records.map_while(Result::ok).last()?;
        let at = last.offset as usize + RECORD_HEADER_LEN + last.payload.len();
        let expected = sync_marker(self.header.number, last.offset);
        let found = &self.bytes[at..(at + expected.len()).min(self.bytes.len())];
        let is_nothing = found.iter().all(|byte| *byte == 0);
        (!is_nothing && found != expected).then_some(at as u64)
    }

    /// Folds all edits into a state. A torn tail is not an error: the success of its edit was never
    /// reported. The files that the edits added and removed again are obsolete afterwards.
    pub(crate) fn fold(&self, obsolete: &Arc<ObsoleteFiles>) -> Result<(State, Option<TornTail>)> {
        let mut state = State::default();
        let mut known = BTreeMap::new();
        let mut edits = self.edits();
        for edit in edits.by_ref() {
            let (offset, edit) = edit?;
            let source = FileSource::Replay { known: &mut known, obsolete };
            state.replay(&edit, source).map_err(|error| error.in_file(&self.path, offset))?;
            if state.uuid() != self.header.uuid {
                let detail = "the snapshot is of another database than the file's header";
                return Err(Error::corruption(&self.path, offset, detail));
            }
        }
        let torn_tail = edits.torn_tail();
        if edits.records.offset() == FILE_HEADER_LEN as u64 {
            let detail = "the snapshot that a manifest begins with is damaged or missing";
            return Err(Error::corruption(&self.path, FILE_HEADER_LEN as u64, detail));
        }
        Ok((state, torn_tail))
    }
}

/// All edits that can be read from the bytes of manifest `number`, with their offsets, whatever
/// bytes lie between them.
pub(crate) fn salvage_edits(bytes: &[u8], number: u64) -> Vec<(u64, Edit)> {
    let valid = Records::new(bytes, number, FILE_HEADER_LEN).every_valid();
    valid
        .into_iter()
        .filter_map(|record| Some((record.offset, Edit::decode(record.payload).ok()?)))
        .collect()
}

/// The edits of a manifest. It ends after an error.
#[derive(Debug)]
pub(crate) struct Edits<'a> {
    path: &'a Path,
    records: Records<'a>,
}

impl Edits<'_> {
    /// What follows the last valid record. Call it once the iterator has ended.
    pub(crate) fn torn_tail(&self) -> Option<TornTail> {
        self.records.torn_tail()
    }
}

impl Iterator for Edits<'_> {
    type Item = Result<(u64, Edit)>;

    fn next(&mut self) -> Option<Self::Item> {
        let record = match self.records.next()? {
            Ok(record) => record,
            Err(error) => return Some(Err(error.in_file(self.path, self.records.offset()))),
        };
        let base = record.offset + RECORD_HEADER_LEN as u64;
        let edit = Edit::decode(record.payload).map_err(|error| error.in_file(self.path, base));
        if edit.is_err() {
            self.records.stop();
        }
        Some(edit.map(|edit| (record.offset, edit)))
    }
}
