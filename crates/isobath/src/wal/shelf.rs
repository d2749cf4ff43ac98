//! Segments that are not in the log: spares that wait to be written again, and what earlier terms left.
//!
//! Nothing of an earlier term is touched before the engine says that the manifest no longer needs it:
//! it is what a second recovery would read.
//!
//! A file that was renamed to a spare is renamed again only after the directory was synced in between:
//! if changes to names survive a power cut independently, the second without the first would leave two
//! names of one file, and one day two segments in it.

use super::log::LogOptions;
use super::segment::{HEADER_PAGE_LEN, SegmentInfo, SegmentKind, file_name, inventory};
use crate::components::sync::Mutex;
use crate::error::Result;
use crate::format::Lsn;
use crate::vfs::{Directory, FileSystem, SegmentFile};
use std::path::PathBuf;
use std::sync::Arc;

/// A file that may be written again.
pub(super) struct Spare {
    pub(super) path: PathBuf,
    /// Open since it was in use, or not opened yet.
    pub(super) file: Option<Arc<dyn SegmentFile>>,
}

pub(super) struct Shelf {
    dir: PathBuf,
    /// Held open: a sync that fails is final, and one that cannot open the directory would be told for that.
    open_dir: Arc<dyn Directory>,
    file_len: u64,
    spares_max: usize,
    start: Lsn,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    spares: Vec<Spare>,
    /// A spare's name may not survive power loss.
    unsynced: bool,
    /// Segments of earlier terms.
    leftovers: Vec<SegmentInfo>,
}

impl Shelf {
    /// Sorts what is in the directory: unfinished files are removed; spares, and segments at or above
    /// `start` (prepared by an earlier term, never used), become spares; segments below are leftovers.
    pub(super) fn open(fs: &dyn FileSystem, options: &LogOptions, start: Lsn) -> Result<Shelf> {
        if !fs.exists(&options.dir)? {
            fs.create_dir_all(&options.dir)?;
            if let Some(parent) = options.dir.parent() {
                fs.sync_dir(parent)?;
            }
        }
        let shelf = Shelf {
            dir: options.dir.clone(),
            open_dir: fs.open_dir(&options.dir)?,
            file_len: HEADER_PAGE_LEN + options.segment_len,
            spares_max: options.spare_segments,
            start,
            state: Mutex::default(),
        };
        for info in inventory(fs, &options.dir)? {
            match info.kind {
                SegmentKind::Log if info.base < start => shelf.state.lock().leftovers.push(info),
                SegmentKind::Unfinished => fs.remove(&info.path)?,
                SegmentKind::Log | SegmentKind::Spare => shelf.shelve(fs, &info, None)?,
            }
        }
        Ok(shelf)
    }

    /// Makes a spare of a file nobody needs, or removes it if there are enough or it has another length.
    pub(super) fn shelve(
        &self,
        fs: &dyn FileSystem,
        info: &SegmentInfo,
        file: Option<Arc<dyn SegmentFile>>,
    ) -> Result<()> {
        let wanted =
            info.file_len == self.file_len && self.state.lock().spares.len() < self.spares_max;
        if !wanted {
            return fs.remove(&info.path);
        }
        let path = self.dir.join(file_name(info.base, SegmentKind::Spare));
        if info.path != path {
            self.state.lock().unsynced = true;
            fs.rename(&info.path, &path)?;
        }
        if let Some(file) = &file {
            file.renamed(&path);
        }
        self.put_back(Spare { path, file });
        Ok(())
    }

    /// The log's directory.
    pub(super) fn dir(&self) -> &dyn Directory {
        &*self.open_dir
    }

    pub(super) fn put_back(&self, spare: Spare) {
        self.state.lock().spares.push(spare);
    }

    pub(super) fn take(&self) -> Option<Spare> {
        self.state.lock().spares.pop()
    }

    /// Makes the spares' names survive power loss, if they might not.
    pub(super) fn sync_names(&self) -> Result<()> {
        if std::mem::take(&mut self.state.lock().unsynced) {
            self.open_dir.sync()?;
        }
        Ok(())
    }

    /// Takes out the leftovers that hold nothing at or above `below`. What an earlier term's file could
    /// hold ends where this term starts.
    pub(super) fn leftovers_below(&self, below: Lsn) -> Vec<SegmentInfo> {
        let mut state = self.state.lock();
        let start = self.start;
        state.leftovers.extract_if(.., |info| info.end().min(start) <= below).collect()
    }
}
