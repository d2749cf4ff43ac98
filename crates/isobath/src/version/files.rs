//! How long a table file lives.
//!
//! Slices of several families may share a file, and a slice is shared by every version of its tree,
//! every job and every iterator that uses it. All of them hold the one [`LiveFile`] of that file;
//! when the last lets go, the file is obsolete: its number goes to the [`ObsoleteFiles`], whose
//! owner removes the file. A job holds the `LiveFile` of its output from the moment it creates the
//! file, so an output that is never installed is removed the same way.
//!
//! It hands out nothing until the last edit is confirmed (until then a file that memory has let go
//! may be named by the manifest that the next open finds) and forgets what it has once the database
//! closes; what is left behind then is an orphan, and the next open removes it.

use crate::env::sync::atomic::{AtomicU64, Ordering};
use crate::env::sync::{Mutex, Rank};
use crate::env::{Plant, demand_normal_priority, planted};
use crate::error::{Error, PoisonCause, Result};
use crate::vfs::{FileSystem, ReadFile};
use std::path::Path;
use std::sync::{Arc, OnceLock};

/// Gives out file numbers, each once. Shared by all jobs.
#[derive(Debug)]
pub(crate) struct FileNumbers {
    next: AtomicU64,
    obsolete: Arc<ObsoleteFiles>,
    /// Why names may be lost for good. Held while they are synced.
    names_lost: Mutex<Option<PoisonCause>>,
}

impl FileNumbers {
    pub(crate) fn new(next: u64, obsolete: Arc<ObsoleteFiles>) -> Arc<FileNumbers> {
        Arc::new(FileNumbers {
            next: AtomicU64::new(next),
            obsolete,
            names_lost: Mutex::new(Rank::TableNames, None),
        })
    }

    /// Takes charge of a new file, which the caller may now create.
    pub(crate) fn allocate(&self) -> Arc<LiveFile> {
        // Only the number's uniqueness matters, so no order with other memory is needed.
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let number = if planted(Plant::FileNumberWraps) { number % 24 + 1 } else { number };
        LiveFile::new(number, &self.obsolete)
    }

    /// Makes the names of the files in `dir` survive power loss. A failure is final for the files
    /// of all jobs: it may have lost names that another job has given and would sync next, with
    /// success.
    pub(crate) fn sync_names(&self, fs: &dyn FileSystem, dir: &Path) -> Result<()> {
        if planted(Plant::TableNameNotSynced) {
            return Ok(());
        }
        demand_normal_priority("syncs the names of tables");
        let dir = fs.open_dir(dir)?;
        let mut lost = self.names_lost.lock();
        if let Some(why) = &*lost {
            return Err(Error::poisoned(why.clone()));
        }
        *lost = Some(PoisonCause::panicked("while it synced a directory", ""));
        let synced = dir.sync();
        *lost = synced.as_ref().err().map(PoisonCause::of);
        synced
    }

    /// Above every number given out so far.
    pub(super) fn next(&self) -> u64 {
        self.next.load(Ordering::Relaxed)
    }

    pub(crate) fn obsolete(&self) -> &Arc<ObsoleteFiles> {
        &self.obsolete
    }
}

/// A table file in use.
pub(crate) struct LiveFile {
    number: u64,
    obsolete: Arc<ObsoleteFiles>,
    /// Kept open by readers beside a process that writes, which may remove its name at any time.
    open: OnceLock<Arc<dyn ReadFile>>,
}

impl LiveFile {
    /// Takes charge of file `number`. There must be one `LiveFile` of a number at any time.
    pub(crate) fn new(number: u64, obsolete: &Arc<ObsoleteFiles>) -> Arc<LiveFile> {
        let obsolete = Arc::clone(obsolete);
        Arc::new(LiveFile { number, obsolete, open: OnceLock::new() })
    }

    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Keeps the file open as long as anything refers to it.
    pub(crate) fn keep_open(&self, file: Arc<dyn ReadFile>) {
        self.open.get_or_init(|| file);
    }
}

impl std::fmt::Debug for LiveFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "LiveFile({})", self.number)
    }
}

impl Drop for LiveFile {
    fn drop(&mut self) {
        self.obsolete.add(self.number);
    }
}

/// The numbers of files that nothing in memory refers to.
#[derive(Debug)]
pub(crate) struct ObsoleteFiles {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    numbers: Vec<u64>,
    access: Access,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Access {
    #[default]
    Open,
    Held,
    Shut,
}

impl ObsoleteFiles {
    pub(crate) fn new() -> Arc<ObsoleteFiles> {
        Arc::new(ObsoleteFiles { inner: Mutex::new(Rank::ObsoleteFiles, Inner::default()) })
    }

    pub(super) fn add(&self, number: u64) {
        let mut inner = self.inner.lock();
        if inner.access != Access::Shut && !planted(Plant::FilesLeaked) {
            debug_assert!(
                !inner.numbers.contains(&number)
                    || planted(Plant::FileNumberReused)
                    || planted(Plant::FileNumberWraps),
                "two had charge of file {number}"
            );
            inner.numbers.push(number);
        }
    }

    /// True if no file waits to be removed.
    pub(crate) fn is_empty(&self) -> bool {
        self.inner.lock().numbers.is_empty()
    }

    /// The files to remove now. Each number is handed out once.
    pub(crate) fn take(&self) -> Vec<u64> {
        let mut inner = self.inner.lock();
        match inner.access {
            Access::Open => std::mem::take(&mut inner.numbers),
            Access::Held | Access::Shut => Vec::new(),
        }
    }

    /// Keeps every file for now: the next open's manifest may name files that memory has let go.
    pub(crate) fn hold(&self) {
        let mut inner = self.inner.lock();
        if inner.access == Access::Open {
            inner.access = Access::Held;
        }
    }

    /// Ends [`ObsoleteFiles::hold`]: what the manifest names is known again.
    pub(crate) fn release(&self) {
        let mut inner = self.inner.lock();
        if inner.access == Access::Held {
            inner.access = Access::Open;
        }
    }

    /// Removes nothing ever again: the database closes, or no longer knows what the manifest names.
    pub(crate) fn shut(&self) {
        let mut inner = self.inner.lock();
        inner.access = Access::Shut;
        inner.numbers.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vfs::{Fault, FileOp, MemoryFs};

    #[test]
    fn no_job_trusts_the_names_of_files_after_another_failed_to_sync_them() {
        let fs = MemoryFs::new();
        let numbers = FileNumbers::new(1, ObsoleteFiles::new());
        let dir = Path::new("/table");
        fs.create_dir_all(dir).unwrap();
        fs.inject(Fault::no_descriptors());
        assert!(numbers.sync_names(&fs, dir).unwrap_err().is_retryable());
        fs.clear_faults();
        numbers.sync_names(&fs, dir).unwrap();
        // A flush has made its file, a compaction fails to sync all names, and the flush would
        // succeed.
        drop(fs.create(&dir.join("flushed")).unwrap());
        fs.inject(Fault::on(FileOp::SyncDir));
        numbers.sync_names(&fs, dir).unwrap_err();
        assert_eq!(numbers.sync_names(&fs, dir).unwrap_err().name(), "POISONED");
        fs.sync_dir(dir).unwrap();
        assert!(!fs.crashed(|_| 0).exists(&dir.join("flushed")).unwrap(), "it was lost indeed");
    }

    #[test]
    fn a_file_dies_with_its_last_user_and_is_handed_out_once() {
        let obsolete = ObsoleteFiles::new();
        let first = LiveFile::new(7, &obsolete);
        let second = Arc::clone(&first);
        drop(first);
        assert!(obsolete.is_empty() && obsolete.take().is_empty());
        drop(second);
        assert!(!obsolete.is_empty());
        assert_eq!(obsolete.take(), [7]);
        assert!(obsolete.is_empty());
        assert!(obsolete.take().is_empty());
    }

    #[test]
    fn nothing_is_handed_out_before_the_last_edit_is_confirmed() {
        let obsolete = ObsoleteFiles::new();
        obsolete.hold();
        drop(LiveFile::new(7, &obsolete));
        assert!(obsolete.take().is_empty());
        obsolete.release();
        assert_eq!(obsolete.take(), [7]);
    }

    #[test]
    fn obsolete_files_that_are_shut_are_never_handed_out_again() {
        let obsolete = ObsoleteFiles::new();
        drop(LiveFile::new(7, &obsolete));
        obsolete.shut();
        drop(LiveFile::new(8, &obsolete));
        obsolete.hold();
        obsolete.release();
        assert!(obsolete.take().is_empty());
    }

    #[cfg(debug_assertions)]
    #[test]
    #[should_panic(expected = "two had charge of file 7")]
    fn a_file_that_dies_twice_is_noticed() {
        let obsolete = ObsoleteFiles::new();
        drop(LiveFile::new(7, &obsolete));
        drop(LiveFile::new(7, &obsolete));
    }
}
