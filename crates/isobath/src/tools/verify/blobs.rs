//! Checks the values in blob files: that each file exists and is the one that slices name, and that
//! every value can be read that a table has the address of, and all frames of a stream. Other bytes
//! of these files are garbage, and no read uses them.

use super::super::blob_files::{BlobFiles, ByPlace};
use super::super::report::is_loss_of;
use super::Verification;
use crate::cursor::Entry;
use crate::error::{Error, Result};
use crate::format::{Address, StreamAddress};
use crate::table::{Origin, SliceMeta, TableFile};
use crate::version::{State, table_path};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// So many values of a file that cannot be read are named one by one.
const NAMED_MAX: u64 = 1000;

/// The blob files to check.
pub(super) struct Blobs {
    files: BlobFiles,
    found: BTreeMap<u64, Found>,
    /// Streams that were checked.
    streams: BTreeSet<StreamAddress>,
    /// Files of which nothing more is read, with errors that are no damage.
    unreadable: Vec<(PathBuf, Error)>,
    value: Vec<u8>,
}

/// A file that exists.
struct Found {
    /// The bytes of which progress does not know yet that they were checked.
    left: u64,
    /// The values that cannot be read.
    damaged: u64,
}

/// The numbers of the blob files that slices name.
pub(super) fn named(state: &State) -> impl Iterator<Item = u64> {
    let families = state.families().map(|(_, family)| &family.tree);
    let slices = families.flat_map(|tree| tree.iter().map(|(_, slice)| &slice.meta));
    slices.flat_map(SliceMeta::value_files)
}

fn note_shares(meta: &SliceMeta, values: &mut BTreeMap<u64, u64>) {
    for share in &meta.blobs {
        let of_file = values.entry(share.file).or_insert(0);
        *of_file = of_file.saturating_add(share.values);
    }
    for share in &meta.streams {
        let of_file = values.entry(share.file).or_insert(0);
        *of_file = of_file.saturating_add(1);
    }
}

/// True if of each slice that has values in the blob file there is a compaction's output that has
/// none: the slice's table is left of before, shared with other families.
fn is_moved(blob: u64, slices: &[(SliceMeta, Origin)]) -> bool {
    let needs = |meta: &SliceMeta| meta.value_files().any(|file| file == blob);
    let replaces = |old: &SliceMeta, (meta, origin): &(SliceMeta, Origin)| {
        let mut files = origin.inputs.iter().chain(&*origin.ancestors);
        let is_output = meta.family == old.family && files.any(|file| *file == old.file);
        is_output && !needs(meta) && !origin.is_of_repair()
    };
    let mut users = slices.iter().filter(|(meta, _)| needs(meta));
    users.all(|(old, _)| slices.iter().any(|slice| replaces(old, slice)))
}

impl Blobs {
    /// Takes the blob files out of the files `present`, which are there with their lengths: those
    /// that the manifest names or, without a manifest, those that say what they are, or that a
    /// table names.
    pub(super) fn gather(
        verification: &mut Verification<'_>,
        state: Option<&State>,
        present: &mut BTreeMap<u64, u64>,
    ) -> Blobs {
        let mut files = BlobFiles::new(verification.fs, verification.db, state.map(State::uuid));
        let mut wanted: BTreeMap<u64, u64> = BTreeMap::new();
        let trees = state.into_iter().flat_map(State::families).map(|(_, family)| &family.tree);
        let slices = trees.flat_map(|tree| tree.iter());
        slices.for_each(|(_, slice)| note_shares(&slice.meta, &mut wanted));
        let mut slices = Vec::new();
        if state.is_none() {
            let mut paths = present.keys().map(|number| table_path(verification.db, *number));
            if let Some(table) = paths.find_map(|path| TableFile::open(verification.fs, &path).ok())
            {
                files.suppose(table.header().uuid);
            }
            for number in present.keys() {
                let path = table_path(verification.db, *number);
                match TableFile::open(verification.fs, &path) {
                    Ok(table) => {
                        table.slices().iter().for_each(|meta| note_shares(meta, &mut wanted));
                        slices.extend(
                            table
                                .slices()
                                .iter()
                                .map(|meta| (meta.clone(), table.origin(meta).unwrap_or_default())),
                        );
                    }
                    Err(_) if files.is_blob(*number) => drop(wanted.entry(*number).or_insert(0)),
                    Err(_) => {}
                }
            }
        }
        let mut found = BTreeMap::new();
        for (number, values) in wanted {
            let path = files.path(number);
            match present.remove(&number) {
                Some(len) => {
                    verification.expect(len);
                    found.insert(number, Found { left: len, damaged: 0 });
                    if values == 0 {
                        let detail = "a blob file in which no table has a value";
                        verification.report.note(&path, None, detail);
                    }
                }
                None if state.is_none() && is_moved(number, &slices) => {
                    let detail = "a blob file that is gone; compactions have moved its values";
                    verification.report.note(&path, None, detail);
                }
                None => {
                    let detail = format!("it is missing, yet slices have {values} values in it");
                    verification.report.damage(&path, None, detail);
                }
            }
        }
        verification.report.blob_files += found.len() as u64;
        let (streams, unreadable, value) = (BTreeSet::new(), Vec::new(), Vec::new());
        Blobs { files, found, streams, unreadable, value }
    }

    /// True if the file, which the manifest does not name, says that it is a blob file.
    pub(super) fn is_blob(&mut self, number: u64) -> bool {
        self.files.is_blob(number)
    }

    /// Checks the headers. Returns errors that are no damage.
    pub(super) fn check_headers(
        &mut self,
        verification: &mut Verification<'_>,
    ) -> Vec<(PathBuf, Error)> {
        let mut unreadable = Vec::new();
        for number in self.found.keys() {
            let checked = self.files.check_header(*number);
            let absorbed = checked.or_else(|error| verification.report.absorb(error));
            unreadable.extend(absorbed.err().map(|error| (self.files.path(*number), error)));
        }
        unreadable
    }

    /// Checks the values that a table's slices have the addresses of.
    pub(super) fn check_values<'s>(
        &mut self,
        verification: &mut Verification<'_>,
        table: &TableFile,
        slices: impl Iterator<Item = &'s SliceMeta>,
    ) -> Result<()> {
        let mut gathered = ByPlace::default();
        for meta in slices.filter(|meta| meta.value_files().next().is_some()) {
            table.visit(meta, &mut |entry| {
                if entry.kind.is_streamed() {
                    return self.check_stream(verification, &entry);
                }
                match entry.kind.is_separated() && gathered.add(&entry) {
                    true => gathered.visit(&mut |entry| self.check(verification, entry)),
                    false => Ok(()),
                }
            })?;
        }
        gathered.visit(&mut |entry| self.check(verification, entry))
    }

    fn check(&mut self, verification: &mut Verification<'_>, entry: &Entry<'_>) -> Result<()> {
        // That an address is none, or of a file that the slice does not name, the table's check
        // tells; that a file is missing was told.
        let Ok(address) = Address::of(entry.kind, entry.value) else { return Ok(()) };
        let Some(found) = self.found.get_mut(&address.file) else { return Ok(()) };
        let stored_len = u64::from(address.stored_len);
        let advanced = stored_len.min(found.left);
        found.left -= advanced;
        verification.report.blob_values += 1;
        verification.report.blob_bytes += stored_len;
        let read = self.files.read(&address, entry.key, &mut self.value);
        verification.advance(advanced);
        self.note_read(verification, address.file, read)
    }

    /// Checks a stream with all its frames, the first time that an entry has it.
    fn check_stream(
        &mut self,
        verification: &mut Verification<'_>,
        entry: &Entry<'_>,
    ) -> Result<()> {
        let Ok(address) = StreamAddress::of(entry.kind, entry.value) else { return Ok(()) };
        let Some(found) = self.found.get_mut(&address.file) else { return Ok(()) };
        if !self.streams.insert(address) {
            return Ok(());
        }
        verification.report.blob_values += 1;
        verification.report.blob_bytes += address.file_len;
        let left = &mut found.left;
        let mut advance = |len: u64| {
            let advanced = len.min(*left);
            *left -= advanced;
            verification.advance(advanced);
        };
        let read = self.files.check_stream(&address, entry.key, &mut advance);
        self.note_read(verification, address.file, read)
    }

    /// Notes whether a value in a file could be read.
    fn note_read(
        &mut self,
        verification: &mut Verification<'_>,
        file: u64,
        read: Result<()>,
    ) -> Result<()> {
        let Some(found) = self.found.get_mut(&file) else { return Ok(()) };
        match read {
            Err(error) if error.is_corruption() || is_loss_of(&error) => {
                found.damaged += 1;
                match found.damaged <= NAMED_MAX {
                    true => verification.report.absorb(error),
                    false => Ok(()),
                }
            }
            Err(error) => {
                verification.advance(found.left);
                self.found.remove(&file);
                self.unreadable.push((self.files.path(file), error));
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    /// Ends the check. Returns errors that are no damage.
    pub(super) fn finish(self, verification: &mut Verification<'_>) -> Vec<(PathBuf, Error)> {
        for (number, found) in self.found {
            if let Some(more) = found.damaged.checked_sub(NAMED_MAX).filter(|more| *more > 0) {
                let detail = format!("{more} more values in it cannot be read");
                verification.report.damage(&self.files.path(number), None, detail);
            }
            verification.advance(found.left);
        }
        self.unreadable
    }
}
