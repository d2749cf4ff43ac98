//! What can be read of the values in blob files.
//!
//! A value that cannot be read is lost, and nothing else: its table is written anew without the
//! entry. If only the header of a blob file is damaged, its values can be read, but no open would
//! read them there. They move to a new blob file, with the tables that have their addresses.
//!
//! A stream is one value. If its header, its end or a frame of it is damaged, it is lost as a
//! whole; its file goes to `lost+found` as it is.

use super::super::blob_files::{BlobFiles, ByPlace};
use super::super::report::is_loss_of;
use super::Repair;
use super::facts::Facts;
use super::plan::Placed;
use super::report::Loss;
use crate::cursor::Entry;
use crate::error::{Decoded, Error, ErrorKind, Result};
use crate::format::{Address, FamilyId, StreamAddress};
use crate::table::{SliceMeta, TableFile};
use crate::version::{COUNTED_END, TABLE_DIR, table_number, table_path};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// So many values that a slice has lost in a file are named one by one.
const NAMED_MAX: usize = 100;
/// The number of values between two checks whether to continue.
const CANCEL_INTERVAL: u64 = 256;

/// The blob files.
pub(super) struct Blobs {
    files: BlobFiles,
    states: BTreeMap<u64, FileState>,
    /// The files that are something else.
    others: BTreeSet<u64>,
    /// The values that cannot be read, though their file is there.
    lost: BTreeSet<Place>,
    /// The identity of the database.
    uuid: Option<[u8; 16]>,
    /// The length of all files.
    pub(super) bytes: u64,
    reads: u64,
    value: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FileState {
    Missing,
    /// Another file has its name: a value in it is none of this one.
    Foreign,
    Sound,
    /// Its header is damaged. Its values can be read, but not by the database.
    Headless,
}

/// Where a value lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    /// Among others in a blob file.
    Among(Address),
    /// It is a stream.
    Own(StreamAddress),
}

impl Place {
    fn of(entry: &Entry<'_>) -> Decoded<Place> {
        match entry.kind.is_streamed() {
            true => StreamAddress::of(entry.kind, entry.value).map(Place::Own),
            false => Address::of(entry.kind, entry.value).map(Place::Among),
        }
    }

    fn file(&self) -> u64 {
        match self {
            Place::Among(address) => address.file,
            Place::Own(address) => address.file,
        }
    }
}

/// What becomes of an entry.
pub(super) enum Fate<'a> {
    /// It stays as it is.
    Stays,
    /// It stays with this value, which has to be elsewhere.
    Moves(&'a [u8]),
    /// Its value is lost.
    Lost,
}

/// What a slice has in blob files.
#[derive(Default)]
pub(super) struct Surveyed {
    /// The slice cannot stay as it is.
    pub(super) is_changed: bool,
    /// The number of entries whose values are lost.
    pub(super) lost: u64,
    /// The files that do not exist.
    pub(super) blobs_missing: BTreeSet<u64>,
    /// By file: those that are named one by one, and all others together.
    losses: BTreeMap<u64, (Vec<Loss>, Option<Loss>)>,
}

impl Surveyed {
    pub(super) fn losses(self) -> impl Iterator<Item = Loss> {
        self.losses.into_values().flat_map(|(named, rest)| named.into_iter().chain(rest))
    }

    /// Notes a lost value. Without an error the whole file is lost.
    fn lose(&mut self, file: u64, error: Option<&Error>, one: Loss) {
        self.is_changed = true;
        self.lost += 1;
        let (named, rest) = self.losses.entry(file).or_default();
        if let Some(error) = error.filter(|_| named.len() < NAMED_MAX) {
            let (offset, detail) = match error.kind() {
                ErrorKind::Corruption { offset, detail, .. } => (Some(*offset), detail.clone()),
                _ => (None, error.to_string()),
            };
            named.push(Loss { offset, detail, ..one });
            return;
        }
        match rest {
            Some(rest) => widen(rest, one),
            None => {
                let detail = match error {
                    Some(_) => "more values in the blob file cannot be read",
                    None => "the blob file is missing, or another one has its name",
                };
                *rest = Some(Loss { detail: detail.to_owned(), ..one });
            }
        }
    }
}

/// Adds an entry to a loss.
fn widen(loss: &mut Loss, one: Loss) {
    loss.entries = loss.entries.zip(one.entries).map(|(all, more)| all + more);
    let hull = |((from, to), (start, end)): ((Vec<u8>, Vec<u8>), _)| (from.min(start), to.max(end));
    loss.keys = loss.keys.take().zip(one.keys).map(hull);
    let join =
        |((from, to), (start, end)): ((u64, u64), (u64, u64))| (from.min(start), to.max(end));
    loss.lsns = loss.lsns.zip(one.lsns).map(join);
}

/// Finds the blob files: those that slices name and, if the manifest is not completely known, all
/// that say, at their beginning or their end, that they are. The files in `others` are none.
pub(super) fn examine(
    repair: &mut Repair<'_>,
    facts: &Facts,
    others: &BTreeSet<u64>,
) -> Result<Blobs> {
    let dir = repair.db.join(TABLE_DIR);
    let entries = if repair.fs.exists(&dir)? { repair.fs.list(&dir)? } else { Vec::new() };
    let present: BTreeMap<u64, u64> =
        entries.iter().filter_map(|entry| Some((table_number(&entry.name)?, entry.len))).collect();
    let mut blobs = Blobs {
        files: BlobFiles::new(&repair.fs, repair.db, facts.uuid),
        states: BTreeMap::new(),
        others: others.clone(),
        lost: BTreeSet::new(),
        uuid: facts.uuid,
        bytes: 0,
        reads: 0,
        value: Vec::new(),
    };
    blobs.others.extend(facts.slices.keys().map(|(_, file)| *file));
    let mut wanted: BTreeSet<u64> = BTreeSet::new();
    let mut want = |meta: &SliceMeta| wanted.extend(meta.value_files());
    facts.slices.values().for_each(|(_, meta)| want(meta));
    if !facts.is_exact {
        for number in present.keys().filter(|number| !others.contains(number)) {
            let Ok(table) = TableFile::open(&repair.fs, &table_path(repair.db, *number)) else {
                continue;
            };
            blobs.others.insert(*number);
            table.slices().iter().for_each(&mut want);
        }
        let uuid = blobs.uuid.unwrap_or_default();
        let rest = present.keys().copied().filter(|number| !blobs.others.contains(number));
        // The header of a stream may be damaged.
        let is_blob =
            |number: &u64| blobs.files.is_blob(*number) || blobs.files.is_stream(*number, uuid);
        wanted.extend(rest.filter(is_blob));
    }
    wanted.retain(|number| *number < COUNTED_END && !blobs.others.contains(number));
    for number in wanted {
        blobs.bytes += present.get(&number).copied().unwrap_or(0);
        blobs.state_of(repair, number)?;
    }
    repair.total_bytes += blobs.bytes;
    Ok(blobs)
}

impl Blobs {
    /// The files that are no tables.
    pub(super) fn numbers(&self) -> impl Iterator<Item = u64> {
        self.states.keys().copied()
    }

    /// The files that exist and that none of the slices needs, nor the log, which has `streams`.
    pub(super) fn unused(&self, slices: &[Placed], streams: &BTreeSet<u64>) -> Vec<PathBuf> {
        let of_slices = slices.iter().flat_map(|(_, _, meta)| meta.value_files());
        let used: BTreeSet<u64> = of_slices.chain(streams.iter().copied()).collect();
        let there = self.states.iter().filter(|(_, state)| **state != FileState::Missing);
        let unused = there.filter(|(number, _)| !used.contains(number));
        unused.map(|(number, _)| self.files.path(*number)).collect()
    }

    fn state_of(&mut self, repair: &mut Repair<'_>, number: u64) -> Result<FileState> {
        if let Some(state) = self.states.get(&number) {
            return Ok(*state);
        }
        let is_other = number >= COUNTED_END || self.others.contains(&number);
        if is_other || !repair.fs.exists(&self.files.path(number))? {
            if !is_other {
                self.states.insert(number, FileState::Missing);
            }
            return Ok(FileState::Missing);
        }
        let checked = self.files.check_header(number);
        let state = match repair.absorb(checked)? {
            Some(()) => FileState::Sound,
            None if self.files.is_blob(number) => FileState::Foreign,
            None => FileState::Headless,
        };
        self.states.insert(number, state);
        Ok(state)
    }

    /// Reads the values of a slice that is intact.
    pub(super) fn survey(
        &mut self,
        repair: &mut Repair<'_>,
        table: &TableFile,
        meta: &SliceMeta,
    ) -> Result<Surveyed> {
        let (mut seen, mut gathered) = (Surveyed::default(), ByPlace::default());
        if meta.value_files().next().is_none() {
            return Ok(seen);
        }
        let mut see = |entry: &Entry<'_>| {
            self.see(repair, (meta.family, table.path()), entry, &mut seen).map(drop)
        };
        table.visit(meta, &mut |entry| {
            if entry.kind.is_streamed() {
                return see(&entry);
            }
            match entry.kind.is_separated() && gathered.add(&entry) {
                true => gathered.visit(&mut see),
                false => Ok(()),
            }
        })?;
        gathered.visit(&mut see)?;
        Ok(seen)
    }

    /// Reads the value of an entry, if it lies apart. Returns false if it is lost.
    pub(super) fn see(
        &mut self,
        repair: &mut Repair<'_>,
        (family, table): (FamilyId, &Path),
        entry: &Entry<'_>,
        seen: &mut Surveyed,
    ) -> Result<bool> {
        if !entry.kind.is_apart() {
            return Ok(true);
        }
        let loss_in = |path: PathBuf| Loss {
            path,
            family: Some(family),
            keys: Some((entry.key.to_vec(), entry.key.to_vec())),
            lsns: Some((entry.seq, entry.seq + 1)),
            entries: Some(1),
            ..Loss::default()
        };
        let place = match Place::of(entry) {
            Ok(place) => place,
            Err(error) => {
                let error = error.in_file(table, 0).for_key(entry.key);
                seen.lose(0, Some(&error), loss_in(table.to_owned()));
                return Ok(false);
            }
        };
        let file = place.file();
        let loss = loss_in(self.files.path(file));
        let state = self.state_of(repair, file)?;
        if matches!(state, FileState::Missing | FileState::Foreign) {
            if state == FileState::Missing {
                seen.blobs_missing.insert(file);
            }
            seen.lose(file, None, loss);
            return Ok(false);
        }
        self.reads += 1;
        if self.reads.is_multiple_of(CANCEL_INTERVAL) {
            repair.look()?;
        }
        match self.read(&place, entry.key) {
            Ok(()) => {
                seen.is_changed |= state == FileState::Headless;
                Ok(true)
            }
            Err(error) if error.is_corruption() || is_loss_of(&error) => {
                self.lost.insert(place);
                seen.lose(file, Some(&error), loss);
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Reads a value, or all of a stream.
    fn read(&mut self, place: &Place, key: &[u8]) -> Result<()> {
        match place {
            Place::Among(address) => self.files.read(address, key, &mut self.value),
            Place::Own(address) => self.files.check_stream(address, key, &mut |_| ()),
        }
    }

    /// What becomes of an entry that [`Blobs::see`] has seen.
    pub(super) fn fate(&mut self, entry: &Entry<'_>) -> Result<Fate<'_>> {
        if !entry.kind.is_apart() {
            return Ok(Fate::Stays);
        }
        let Ok(place) = Place::of(entry) else { return Ok(Fate::Lost) };
        match self.states.get(&place.file()) {
            _ if self.lost.contains(&place) => Ok(Fate::Lost),
            Some(FileState::Sound) => Ok(Fate::Stays),
            // The header is a part of what the address of a stream vouches for.
            Some(FileState::Headless) if entry.kind.is_streamed() => Ok(Fate::Lost),
            Some(FileState::Headless) => {
                self.read(&place, entry.key)?;
                Ok(Fate::Moves(&self.value))
            }
            Some(FileState::Missing | FileState::Foreign) | None => Ok(Fate::Lost),
        }
    }
}
