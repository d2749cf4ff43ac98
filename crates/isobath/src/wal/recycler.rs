//! Segment files that are not in use: spares kept for reuse, and leftovers of earlier terms.
//!
//! Files of an earlier term stay untouched until the engine says that the manifest no longer needs
//! them: a second recovery would read them.
//!
//! **One name, one file.** A spare's name is a number that is counted up from the term's start, or
//! from the greatest in the directory at open if that is above it, and no rename here replaces a
//! file. A term is longer than the numbers that it gives. So a name never stands for a second file,
//! also if no spare was left at the open.
//!
//! **One file, one name.** A file that was renamed is renamed again only after the directory was
//! synced in between. If changes to names survive a power cut independently, the second rename
//! without the first would leave one file with two names, and later two segments in it. A process
//! that renamed a file may have died before it synced the directory, so files found at open are not
//! renamed before a sync either. If a sync has failed, a later one may not cover the first rename,
//! and after a power cut the file has two names. The header of the second segment was durable
//! before its name. So a file found at open whose header is that of another place is not used
//! again: this name of it is removed. Nor is a spare whose header another file has, too, or whose
//! header is damaged.

use super::log::LogOptions;
use super::segment::{HEADER_PAGE_LEN, SegmentInfo, SegmentKind, file_name, inventory};
use crate::env::sync::{Mutex, Rank};
use crate::env::{Reach, reached_if};
use crate::error::Result;
use crate::format::{FILE_HEADER_LEN, FileHeader, FileKind, Lsn};
use crate::vfs::{Directory, FileAccess, FileSystem, SegmentFile};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A term begins with segments of the regular length if at least this many files of that length
/// exist. A clean close leaves one of them, or two if a flush failed.
const STOCK_MIN: usize = 3;

/// A file that may be reused.
pub(super) struct Spare {
    pub(super) path: PathBuf,
    /// The file, if it stayed open since its last use.
    pub(super) file: Option<Arc<dyn SegmentFile>>,
}

pub(super) struct Recycler {
    dir: PathBuf,
    /// Held open: a failed sync is final, and a sync that merely could not open the directory would
    /// be taken for one.
    open_dir: Arc<dyn Directory>,
    file_len: u64,
    spares_max: usize,
    start: Lsn,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    spares: Vec<Spare>,
    /// The number in the next spare's name.
    next_number: u64,
    /// How many files were renamed to spares, and how many of those renames survive power loss.
    named: u64,
    synced: u64,
    /// The spares that stayed unused since the last call of [`Recycler::thin_out`].
    unused: usize,
    /// Files that are no longer needed. A thread that no writer waits for removes them.
    obsolete: Vec<Spare>,
    /// Segments of earlier terms.
    leftovers: Vec<SegmentInfo>,
}

/// Removes the segments that were being made when an earlier process ended. What an open does
/// before it starts its log may need their room. One that cannot be removed does no harm: nothing
/// reads it.
pub(crate) fn remove_unfinished(fs: &dyn FileSystem, dir: &Path) -> Result<()> {
    if !fs.exists(dir)? {
        return Ok(());
    }
    let found = inventory(fs, dir)?;
    let mut unfinished =
        found.iter().filter(|info| info.kind == SegmentKind::Unfinished).peekable();
    if unfinished.peek().is_none() {
        return Ok(());
    }
    unfinished.for_each(|info| drop(fs.remove(&info.path)));
    // A file system may keep the room of what was removed until then.
    fs.sync_dir(dir)
}

impl Recycler {
    /// Sorts the files in the directory. Unfinished files are removed. Spares, and segments at or
    /// above `start` (which an earlier term prepared and never used), become spares. Segments below
    /// `start` are leftovers.
    pub(super) fn open(fs: &dyn FileSystem, options: &LogOptions, start: Lsn) -> Result<Recycler> {
        if !fs.exists(&options.dir)? {
            fs.create_dir_all(&options.dir)?;
            if let Some(parent) = options.dir.parent() {
                fs.sync_dir(parent)?;
            }
        }
        let recycler = Recycler {
            dir: options.dir.clone(),
            open_dir: fs.open_dir(&options.dir)?,
            file_len: HEADER_PAGE_LEN + options.segment_len,
            spares_max: options.spare_segments,
            start,
            state: Mutex::new(Rank::Spares, State::default()),
        };
        let found = inventory(fs, &options.dir)?;
        let is_spare = |info: &&SegmentInfo| info.kind == SegmentKind::Spare;
        let greatest = found.iter().filter(is_spare).map(|info| info.base).max();
        recycler.state.lock().next_number = greatest.map_or(0, |number| number + 1).max(start);
        if found.iter().any(|info| info.kind == SegmentKind::Spare || info.base >= start) {
            recycler.open_dir.sync()?;
        }
        let twins = twins(fs, &found);
        for info in found {
            match info.kind {
                SegmentKind::Unfinished => drop(fs.remove(&info.path)),
                SegmentKind::Log if info.base < start => recycler.state.lock().leftovers.push(info),
                SegmentKind::Log | SegmentKind::Spare
                    if !twins.contains(&info.path) && recycler.recycle(fs, &info, None)? => {}
                // It must not keep the name, which a new segment will get.
                SegmentKind::Log => fs.remove(&info.path)?,
                // One that stays is not listed, and no file will get its name.
                SegmentKind::Spare => drop(fs.remove(&info.path)),
            }
        }
        Ok(recycler)
    }

    /// A recycler without files, for a log that is only read.
    pub(super) fn bare(fs: &dyn FileSystem, options: &LogOptions, start: Lsn) -> Result<Recycler> {
        Ok(Recycler {
            dir: options.dir.clone(),
            open_dir: fs.open_dir(&options.dir)?,
            file_len: HEADER_PAGE_LEN + options.segment_len,
            spares_max: 0,
            start,
            state: Mutex::new(Rank::Spares, State::default()),
        })
    }

    /// True if earlier terms wrote so much that this one should not begin with short segments.
    pub(super) fn is_stocked(&self) -> bool {
        let state = self.state.lock();
        let regular = state.leftovers.iter().filter(|info| info.file_len == self.file_len);
        state.spares.len() + regular.count() >= STOCK_MIN
    }

    /// Makes a spare of a file that is no longer needed. False if there are enough spares, the file
    /// has another length, or it may be in use under another name.
    pub(super) fn recycle(
        &self,
        fs: &dyn FileSystem,
        info: &SegmentInfo,
        file: Option<Arc<dyn SegmentFile>>,
    ) -> Result<bool> {
        reached_if(Reach::SegmentOtherLength, || info.file_len != self.file_len);
        let wanted =
            info.file_len == self.file_len && self.state.lock().spares.len() < self.spares_max;
        if !wanted {
            return Ok(false);
        }
        if info.kind == SegmentKind::Spare {
            self.put_back(Spare { path: info.path.clone(), file });
            return Ok(true);
        }
        if file.is_none() && !is_own_name(fs, info) {
            return Ok(false);
        }
        let path = self.new_path();
        fs.rename(&info.path, &path)?;
        if let Some(file) = &file {
            file.renamed(&path);
        }
        // In one step: once a spare can be taken, its rename is counted as not synced.
        let mut state = self.state.lock();
        state.named += 1;
        state.spares.push(Spare { path, file });
        debug_assert!(state.synced < state.named, "a new name counts as synced");
        Ok(true)
    }

    /// A name that no file has.
    fn new_path(&self) -> PathBuf {
        let mut state = self.state.lock();
        let number = state.next_number;
        state.next_number += 1;
        self.dir.join(file_name(number, SegmentKind::Spare))
    }

    /// Takes back a spare that was not used, or never was before. One too many is obsolete.
    pub(super) fn put_back(&self, spare: Spare) {
        let mut state = self.state.lock();
        match state.spares.len() < self.spares_max {
            true => state.spares.push(spare),
            false => state.obsolete.push(spare),
        }
    }

    pub(super) fn take(&self) -> Option<Spare> {
        let mut state = self.state.lock();
        let spare = state.spares.pop();
        state.unused = state.unused.min(state.spares.len());
        debug_assert!(
            spare.as_ref().is_none_or(|spare| state.spares.iter().all(|s| s.path != spare.path)),
            "a spare segment is listed twice"
        );
        spare
    }

    /// Marks as obsolete the spares that stayed unused since the last call.
    pub(super) fn thin_out(&self) {
        let unused = self.state.lock().unused;
        self.mark_spares_obsolete(unused);
        let mut state = self.state.lock();
        state.unused = state.spares.len();
    }

    /// Marks up to `count` spares as obsolete, the oldest first.
    pub(super) fn mark_spares_obsolete(&self, count: usize) {
        let mut state = self.state.lock();
        let count = count.min(state.spares.len());
        let obsolete: Vec<_> = state.spares.drain(..count).collect();
        state.obsolete.extend(obsolete);
    }

    /// Marks a file for removal by [`Recycler::discard`]. No other file will get its name.
    pub(super) fn mark_obsolete(&self, path: PathBuf, file: Option<Arc<dyn SegmentFile>>) {
        self.state.lock().obsolete.push(Spare { path, file });
    }

    /// Removes the obsolete files and returns how many. Takes long if files are large.
    pub(super) fn discard(&self, fs: &dyn FileSystem) -> usize {
        let obsolete = std::mem::take(&mut self.state.lock().obsolete);
        // A file that cannot be removed stays until the next start.
        obsolete.iter().filter(|file| fs.remove(&file.path).is_ok()).count()
    }

    /// Makes the spares' names survive power loss, unless they already do.
    pub(super) fn sync_names(&self) -> Result<()> {
        let all_synced = {
            let state = self.state.lock();
            state.synced == state.named
        };
        if all_synced { Ok(()) } else { self.sync_dir() }
    }

    /// Makes every name in the directory survive power loss.
    pub(super) fn sync_dir(&self) -> Result<()> {
        let named = self.state.lock().named;
        self.open_dir.sync()?;
        let mut state = self.state.lock();
        state.synced = state.synced.max(named);
        debug_assert!(state.synced <= state.named, "more names are synced than were given");
        Ok(())
    }

    /// Removes from the list the leftovers that hold nothing at or above `below`. No record of an
    /// earlier term lies at or above this term's start.
    pub(super) fn leftovers_below(&self, below: Lsn) -> Vec<SegmentInfo> {
        let mut state = self.state.lock();
        let start = self.start;
        state.leftovers.extract_if(.., |info| info.end().min(start) <= below).collect()
    }
}

/// False if the header says that the segment lies at another place than its name does, or if it
/// cannot be read. A file without a header has not been a segment yet.
fn is_own_name(fs: &dyn FileSystem, info: &SegmentInfo) -> bool {
    let header = read_header(fs, info).map(|bytes| FileHeader::decode(&bytes, FileKind::Log));
    header.is_ok_and(|header| header.map_or(true, |header| header.number == info.base))
}

/// The spares that may be other files, too, by their headers: those of two segments differ.
fn twins(fs: &dyn FileSystem, found: &[SegmentInfo]) -> Vec<PathBuf> {
    if found.iter().all(|info| info.kind != SegmentKind::Spare) {
        return Vec::new();
    }
    let headers: Vec<_> = found.iter().map(|info| read_header(fs, info)).collect();
    let is_twin = |at: usize| match &headers[at] {
        // It was no segment yet.
        Ok(bytes) if *bytes == [0; FILE_HEADER_LEN] => false,
        Ok(bytes) if FileHeader::decode(bytes, FileKind::Log).is_ok() => headers
            .iter()
            .enumerate()
            .any(|(other, header)| other != at && header.as_ref().is_ok_and(|of| of == bytes)),
        _ => true,
    };
    let spares = (0..found.len()).filter(|at| found[*at].kind == SegmentKind::Spare);
    let twins = spares.filter(|at| is_twin(*at)).map(|at| found[at].path.clone());
    twins.collect()
}

fn read_header(fs: &dyn FileSystem, info: &SegmentInfo) -> Result<[u8; FILE_HEADER_LEN]> {
    let mut bytes = [0; FILE_HEADER_LEN];
    fs.open_read(&info.path, FileAccess::Positional)?.read_at(0, &mut bytes)?;
    Ok(bytes)
}
