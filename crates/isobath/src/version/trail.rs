//! A manifest that another process writes, as far as a reader has folded it.
//!
//! The next look reads only what is behind. It begins anew if `CURRENT` names another manifest, or
//! if the file is not the one that was read: it is shorter, or has another header or another last
//! record. So it does if what is behind makes no sense, and then tells what a reader of the whole
//! file finds.

use super::current;
use super::files::{LiveFile, ObsoleteFiles};
use super::layout::Layout;
use super::names::manifest_path;
use super::orphans::survey;
use super::parts::Joiner;
use super::reader::{Edits, Folded, ManifestReader};
use super::record::{RECORD_HEADER_LEN, Records, SYNC_MARKER_LEN};
use super::set::{demand_manifest, refuse_stale_current};
use super::state::State;
use crate::error::Result;
use crate::format::FILE_HEADER_LEN;
use crate::vfs::{FileAccess, FileSystem, len_in_memory};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

/// This many files more than are in use are remembered at least, before those that are not in use
/// are forgotten.
const FILES_SPARE: usize = 1024;

/// What was read of a manifest. It survives the errors of later looks.
#[derive(Debug, Default)]
pub(crate) struct Trail(Option<Read>);

#[derive(Debug)]
struct Read {
    number: u64,
    uuid: [u8; 16],
    header: [u8; FILE_HEADER_LEN],
    folded: Folded,
    joiner: Joiner,
    /// The last record's offset, and its header.
    last: (u64, [u8; RECORD_HEADER_LEN]),
    /// Where the next record begins.
    end: u64,
    /// So many files are remembered before those that are not in use are forgotten.
    known_max: usize,
    /// Takes no file: a reader removes none.
    obsolete: Arc<ObsoleteFiles>,
}

impl Trail {
    /// Reads on, to the last whole edit of the manifest in force.
    pub(crate) fn follow(&mut self, fs: &dyn FileSystem, db: &Path) -> Result<()> {
        let number = current::read(fs, db)?;
        let path = manifest_path(db, number);
        demand_manifest(fs, &path)?;
        let news = match &self.0 {
            Some(read) if read.number == number => read.news(fs, &path)?,
            _ => None,
        };
        if let Some((mut read, news)) = self.0.take().zip(news)
            && read.fold(&path, &news).is_ok()
        {
            self.0 = Some(read);
            return Ok(());
        }
        self.0 = Some(Read::anew(fs, db, number)?);
        Ok(())
    }

    /// The manifest that was read last.
    pub(crate) fn manifest(&self) -> u64 {
        self.0.as_ref().map_or(0, |read| read.number)
    }

    /// What it describes. It must have been read.
    pub(crate) fn state(&self) -> &State {
        &self.0.as_ref().expect("a manifest was read").folded.state
    }

    /// Checks that the tables which the manifest names exist.
    pub(crate) fn demand_tables(&self, fs: &dyn FileSystem, db: &Path) -> Result<()> {
        survey(fs, db, self.manifest(), self.state()).map(drop)
    }

    /// Forgets all files but these.
    pub(crate) fn keep_only(&mut self, files: &BTreeSet<u64>) {
        if let Some(read) = &mut self.0 {
            read.folded.known.retain(|number, _| files.contains(number));
        }
    }
}

impl Read {
    fn anew(fs: &dyn FileSystem, db: &Path, number: u64) -> Result<Read> {
        Layout::examine(fs, db)?.demand_database(db)?;
        let path = manifest_path(db, number);
        let reader = ManifestReader::open(fs, &path)?;
        let obsolete = ObsoleteFiles::new();
        obsolete.shut();
        let (header, rest) = reader.bytes().split_at(FILE_HEADER_LEN);
        let mut read = Read {
            number,
            uuid: reader.header().uuid,
            header: header.try_into().expect("it was split there"),
            folded: Folded::default(),
            joiner: Joiner::default(),
            last: (0, [0; RECORD_HEADER_LEN]),
            end: FILE_HEADER_LEN as u64,
            known_max: 0,
            obsolete,
        };
        read.fold(&path, rest)?;
        read.folded.demand_snapshot(&path)?;
        refuse_stale_current(fs, db, number)?;
        Ok(read)
    }

    /// What is in the file behind what was read; `None` if the file is another one.
    fn news(&self, fs: &dyn FileSystem, path: &Path) -> Result<Option<Vec<u8>>> {
        let file = fs.open_read(path, FileAccess::Positional)?;
        let (mut header, mut last) = ([0; FILE_HEADER_LEN], [0; RECORD_HEADER_LEN]);
        // The last record is whole, though its sync marker may not be there yet.
        if file.len() + (SYNC_MARKER_LEN as u64) < self.end {
            return Ok(None);
        }
        file.read_at(0, &mut header)?;
        file.read_at(self.last.0, &mut last)?;
        if header != self.header || last != self.last.1 {
            return Ok(None);
        }
        let mut news = vec![0; len_in_memory(file.len().saturating_sub(self.end), path)?];
        if !news.is_empty() {
            file.read_at(self.end, &mut news)?;
        }
        Ok(Some(news))
    }

    /// Folds the edits in the bytes behind what was read.
    fn fold(&mut self, path: &Path, bytes: &[u8]) -> Result<()> {
        let records = Records::behind(bytes, self.number, self.end);
        let mut edits = Edits::behind(path, records, std::mem::take(&mut self.joiner));
        self.folded.fold(&mut edits, self.uuid, &self.obsolete)?;
        let (records, joiner) = edits.into_parts();
        self.joiner = joiner;
        if let Some((last, end)) = records.last_place() {
            let at = (last - self.end) as usize;
            self.last = (last, *bytes[at..].first_chunk().expect("a record has a header"));
            self.end = end;
        }
        self.forget_files();
        Ok(())
    }

    /// Forgets files that nothing uses, once they may be as many as the others.
    fn forget_files(&mut self) {
        let known = &mut self.folded.known;
        if known.len() > self.known_max {
            known.retain(|_, file: &mut Arc<LiveFile>| Arc::strong_count(file) > 1);
            self.known_max = 2 * known.len() + FILES_SPARE;
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
