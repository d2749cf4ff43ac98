//! Reads a manifest: record by record for tools, or folded into the state that it describes.

use super::draft::FileSource;
use super::edit::Edit;
use super::files::{LiveFile, ObsoleteFiles};
use super::names::manifest_number;
use super::parts::Joiner;
use super::record::{RECORD_HEADER_LEN, Records, SYNC_MARKER_LEN, TornTail, sync_marker};
use super::state::State;
use crate::error::{DecodeError, Decoded, Error, Result};
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
        Edits::behind(&self.path, records, Joiner::default())
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
        let mut folded = Folded::default();
        let mut edits = self.edits();
        folded.fold(&mut edits, self.header.uuid, obsolete)?;
        let torn_tail = edits.torn_tail();
        folded.demand_snapshot(&self.path)?;
        Ok((folded.state, torn_tail))
    }

    /// The bytes of the file.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
thread_local! {
    /// How many edits this thread has folded.
    pub(crate) static FOLDS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// What the edits so far make of nothing.
#[derive(Debug, Default)]
pub(super) struct Folded {
    pub(super) state: State,
    /// The files that any edit has named.
    pub(super) known: BTreeMap<u64, Arc<LiveFile>>,
    has_snapshot: bool,
}

impl Folded {
    /// Adds edits of a manifest of database `uuid`. After an error the state is unusable.
    pub(super) fn fold(
        &mut self,
        edits: &mut Edits<'_>,
        uuid: [u8; 16],
        obsolete: &Arc<ObsoleteFiles>,
    ) -> Result<()> {
        let path = edits.path;
        for edit in edits.by_ref() {
            let (offset, edit) = edit?;
            self.has_snapshot = true;
            #[cfg(test)]
            FOLDS.set(FOLDS.get() + 1);
            let source = FileSource::Replay { known: &mut self.known, obsolete };
            let replayed = self.state.replay(&edit, source);
            replayed.map_err(|error| error.in_file(path, offset))?;
            if self.state.uuid() != uuid {
                let detail = "the snapshot is of another database than the file's header";
                return Err(Error::corruption(path, offset, detail));
            }
        }
        Ok(())
    }

    pub(super) fn demand_snapshot(&self, path: &Path) -> Result<()> {
        if self.has_snapshot {
            return Ok(());
        }
        let detail = "the snapshot that a manifest begins with is damaged or missing";
        Err(Error::corruption(path, FILE_HEADER_LEN as u64, detail))
    }
}

/// An edit that can be read from a damaged manifest.
#[derive(Debug)]
pub(crate) struct SalvagedEdit {
    pub(crate) edit: Edit,
    /// True if no other edit can have been between it and the one that was found before, or the
    /// beginning of the file.
    pub(crate) follows: bool,
}

/// All edits that can be read from the bytes of manifest `number`, whatever bytes lie between them.
/// An edit of several records of which one is lost is lost as a whole: nothing tells which of its
/// changes belong together. An edit that only a later version can read is an error.
pub(crate) fn salvage_edits(bytes: &[u8], number: u64) -> Decoded<Vec<SalvagedEdit>> {
    let mut salvaged = Vec::new();
    let mut joiner = Joiner::default();
    let (mut end, mut follows) = (FILE_HEADER_LEN as u64, true);
    for record in Records::new(bytes, number, FILE_HEADER_LEN).every_valid() {
        if record.offset != end {
            (joiner, follows) = (Joiner::default(), false);
        }
        end = record.offset + (RECORD_HEADER_LEN + record.payload.len() + SYNC_MARKER_LEN) as u64;
        let mut taken = joiner.take(record.offset, record.payload);
        if taken.as_ref().is_err_and(DecodeError::is_damage) {
            // What was begun is lost. The record may begin anew.
            follows = false;
            taken = joiner.take(record.offset, record.payload);
        }
        match taken {
            Ok(None) => {}
            Ok(Some((_, edit))) => {
                salvaged.push(SalvagedEdit { edit, follows });
                follows = true;
            }
            Err(error) if error.is_damage() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(salvaged)
}

/// The edits of a manifest. It ends after an error.
#[derive(Debug)]
pub(crate) struct Edits<'a> {
    path: &'a Path,
    /// The length of the file.
    len: u64,
    records: Records<'a>,
    joiner: Joiner,
}

impl<'a> Edits<'a> {
    /// The edits of `records` of the file of this path, behind what `joiner` has begun.
    pub(super) fn behind(path: &'a Path, records: Records<'a>, joiner: Joiner) -> Edits<'a> {
        let len = records.end();
        Edits { path, len, records, joiner }
    }

    /// The records, and what the last ones have begun.
    pub(super) fn into_parts(self) -> (Records<'a>, Joiner) {
        (self.records, self.joiner)
    }

    /// What follows the last valid record, or begins with an edit whose last part is missing. Call
    /// it once the iterator has ended.
    pub(crate) fn torn_tail(&self) -> Option<TornTail> {
        match self.joiner.begun_at() {
            Some(offset) => Some(TornTail { offset, len: self.len - offset }),
            None => self.records.torn_tail(),
        }
    }

    fn error(&mut self, error: DecodeError, offset: u64) -> Error {
        self.records.stop();
        self.joiner = Joiner::default();
        error.in_file(self.path, offset)
    }
}

impl Iterator for Edits<'_> {
    type Item = Result<(u64, Edit)>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let record = match self.records.next()? {
                Ok(record) => record,
                Err(error) => return Some(Err(self.error(error, self.records.offset()))),
            };
            match self.joiner.take(record.offset, record.payload) {
                Ok(None) => {}
                Ok(Some(edit)) => return Some(Ok(edit)),
                Err(error) => {
                    let base = record.offset + RECORD_HEADER_LEN as u64;
                    return Some(Err(self.error(error, base)));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::edit::Change;
    use super::super::fixtures::first_edit;
    use super::super::parts::payloads;
    use super::super::record::put_record;
    use super::*;

    const NUMBER: u64 = 1;

    fn in_two(edit: &Edit) -> Vec<Vec<u8>> {
        (0..).map(|len_max| payloads(edit, len_max)).find(|parts| parts.len() == 2).unwrap()
    }

    /// Records with these payloads, and where each begins.
    fn manifest(payloads: &[&[u8]]) -> (Vec<u8>, Vec<usize>) {
        let (mut bytes, mut places) = (vec![0; FILE_HEADER_LEN], Vec::new());
        for payload in payloads {
            let offset = bytes.len();
            places.push(offset);
            put_record(&mut bytes, NUMBER, offset as u64, payload).unwrap();
            bytes.extend_from_slice(&sync_marker(NUMBER, offset as u64));
        }
        (bytes, places)
    }

    /// The first one's beginning is not taken for that of the second.
    #[test]
    fn of_two_edits_that_lost_a_part_each_nothing_is_salvaged() {
        let edit = first_edit();
        let whole = Edit::new(vec![Change::NextFile { number: 7 }]);
        let parts = in_two(&edit);
        let [first, second] = &parts[..] else { unreachable!() };
        let plain = whole.encode();
        let (bytes, places) = manifest(&[first, second, first, second, &plain]);
        let found = |damaged: &[usize]| -> Vec<(Edit, bool)> {
            let mut bytes = bytes.clone();
            for at in damaged {
                bytes[places[*at] + RECORD_HEADER_LEN] ^= 1;
            }
            let salvaged = salvage_edits(&bytes, NUMBER).unwrap();
            salvaged.into_iter().map(|found| (found.edit, found.follows)).collect()
        };
        let known = |edit: &Edit, follows| (edit.clone(), follows);
        assert_eq!(found(&[1, 2]), [known(&whole, false)]);
        assert_eq!(found(&[0, 3]), [known(&whole, false)]);
        assert_eq!(found(&[1]), [known(&edit, false), known(&whole, true)]);
        assert_eq!(found(&[2]), [known(&edit, true), known(&whole, false)]);
        assert_eq!(found(&[]), [known(&edit, true), known(&edit, true), known(&whole, true)]);
    }

    #[test]
    fn what_means_nothing_in_a_part_is_named_by_its_place_in_the_file() {
        let edit = first_edit();
        let parts = in_two(&edit);
        let fields_len = 2 + usize::from(parts[0][1]);
        // No change has this tag, nor does any later version's, since the rest does not fit.
        let mut wrong = parts[0].clone();
        wrong.truncate(fields_len);
        wrong.push(2);
        let told = Joiner::default().take(0, &wrong).unwrap_err().to_string();
        let plain = Edit::decode(&[2]).unwrap_err().to_string();
        assert!(plain.contains("(at byte 1)"), "{plain}");
        assert!(told.contains(&format!("(at byte {})", fields_len + 1)), "{told}");
    }
}
