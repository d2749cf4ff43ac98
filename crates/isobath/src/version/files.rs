//! How long table files and blob files live.
//!
//! Slices of several families may share a file. A slice is shared by all versions of its tree, and
//! by all jobs and iterators that use it. All of them hold the one [`LiveFile`] of that file. When
//! the last holder drops it, the file is obsolete: its number goes to the [`ObsoleteFiles`], whose
//! owner removes the file. A job holds the `LiveFile` of an output from before it creates the file,
//! so an output that is never installed is removed in the same way. So do the writer of a stream
//! and then the epoch of its commit, until a slice names it.
//!
//! [`ObsoleteFiles`] hands out no number until the last edit is confirmed: until then the manifest
//! that the next open finds may name a file that memory no longer refers to. Then threads take the
//! files one by one, so that all who come remove some, and who waits for the others waits for one
//! removal of each. When the database closes, it forgets its numbers. Their files are then orphans,
//! which the next open removes.

use super::durable_names::{DurableNames, NamesAsked};
use super::names::NUMBER_END;
use crate::env::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::env::sync::{Condvar, Mutex, Rank};
use crate::env::{Plant, demand_normal_priority, planted};
use crate::error::Result;
use crate::table::BlockFile;
use crate::vfs::FileSystem;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

/// Gives out file numbers, each once. All jobs share it.
#[derive(Debug)]
pub(crate) struct FileNumbers {
    next: AtomicU64,
    obsolete: Arc<ObsoleteFiles>,
    names: DurableNames,
}

impl FileNumbers {
    pub(crate) fn new(next: u64, obsolete: Arc<ObsoleteFiles>) -> Arc<FileNumbers> {
        Arc::new(FileNumbers { next: AtomicU64::new(next), obsolete, names: DurableNames::new() })
    }

    /// Reserves the number of a new file, which the caller may now create.
    pub(crate) fn allocate(&self) -> Arc<LiveFile> {
        // The order with other memory accesses does not matter: the number only has to be unique.
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let number = if planted(Plant::FileNumberWraps) { number % 24 + 1 } else { number };
        debug_assert!(number > 0, "0 is the number of no file");
        debug_assert!(number < NUMBER_END, "no manifest can name file {number}");
        LiveFile::new(number, &self.obsolete)
    }

    /// Gives out no number up to this one from now on.
    pub(crate) fn pass(&self, number: u64) {
        debug_assert!(number < NUMBER_END, "no manifest can name file {number}");
        self.next.fetch_max(number + 1, Ordering::Relaxed);
    }

    /// The file with this number, if nothing had charge of it when the database was opened and
    /// nothing has since: a record of the log names it. It is not removed while the caller holds
    /// it.
    pub(crate) fn claim(&self, number: u64) -> Option<Arc<LiveFile>> {
        self.obsolete.claim(number).then(|| LiveFile::new(number, &self.obsolete))
    }

    /// Makes the names of the files in `dir` durable. A failure is final for the files of all jobs.
    pub(crate) fn sync_names(&self, fs: &dyn FileSystem, dir: &Path) -> Result<()> {
        self.sync_names_for(self.ask_names(), fs, dir)
    }

    /// Asks for the names of the files that exist by now to be made durable.
    pub(crate) fn ask_names(&self) -> NamesAsked {
        self.names.ask()
    }

    /// Makes the names of the files in `dir` durable that existed when it was asked.
    pub(crate) fn sync_names_for(
        &self,
        asked: NamesAsked,
        fs: &dyn FileSystem,
        dir: &Path,
    ) -> Result<()> {
        if planted(Plant::TableNameNotSynced) {
            return Ok(());
        }
        demand_normal_priority("syncs the names of tables");
        self.names.sync_for(asked, fs, &[dir])
    }

    /// A number above all that were given out so far.
    pub(crate) fn next(&self) -> u64 {
        self.next.load(Ordering::Relaxed)
    }

    pub(crate) fn obsolete(&self) -> &Arc<ObsoleteFiles> {
        &self.obsolete
    }
}

/// A table file or blob file that is in use.
pub(crate) struct LiveFile {
    number: u64,
    obsolete: Arc<ObsoleteFiles>,
    /// An open handle, for readers beside a writing process, which may remove the file's name at
    /// any time.
    open: OnceLock<BlockFile>,
    /// The length of the file, once that is known.
    len: OnceLock<u64>,
    /// True once a value in it could not be read.
    is_damaged: AtomicBool,
    /// True once an epoch has counted it among its streams.
    is_counted: AtomicBool,
}

impl LiveFile {
    /// The [`LiveFile`] of file `number`. There must be at most one for each number at any time.
    pub(crate) fn new(number: u64, obsolete: &Arc<ObsoleteFiles>) -> Arc<LiveFile> {
        let obsolete = Arc::clone(obsolete);
        let (open, len, no) = (OnceLock::new(), OnceLock::new(), || AtomicBool::new(false));
        Arc::new(LiveFile { number, obsolete, open, len, is_damaged: no(), is_counted: no() })
    }

    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// [`Plant::BlobOwnedTwice`]: another owner of the same file.
    pub(super) fn twin(&self) -> Arc<LiveFile> {
        LiveFile::new(self.number, &self.obsolete)
    }

    /// The length of the file, if it is known.
    pub(crate) fn len(&self) -> Option<u64> {
        self.len.get().copied()
    }

    /// The length of the file: the one that was told first.
    pub(crate) fn len_or(&self, len: impl FnOnce() -> Result<u64>) -> Result<u64> {
        match self.len.get() {
            Some(len) => Ok(*len),
            None => {
                let len = len()?;
                Ok(*self.len.get_or_init(|| len))
            }
        }
    }

    /// A value in the blob file cannot be read: no compaction tries again to move it.
    pub(crate) fn note_damaged(&self) {
        self.is_damaged.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_damaged(&self) -> bool {
        self.is_damaged.load(Ordering::Relaxed)
    }

    /// Marks it as counted. True for one epoch, the first that asks.
    pub(crate) fn count_once(&self) -> bool {
        !self.is_counted.swap(true, Ordering::Relaxed)
    }

    pub(crate) fn is_kept_open(&self) -> bool {
        self.open.get().is_some()
    }

    /// Keeps the file open while anything refers to it.
    pub(crate) fn keep_open(&self, file: BlockFile) {
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

/// The numbers of files that nothing in memory refers to any more, and replaced manifests.
#[derive(Debug)]
pub(crate) struct ObsoleteFiles {
    inner: Mutex<Inner>,
    /// A removal has ended.
    removed: Condvar,
}

#[derive(Debug, Default)]
struct Inner {
    numbers: BTreeSet<u64>,
    /// Those that no manifest names for certain.
    doomed: BTreeSet<u64>,
    /// Those that threads are removing.
    removing: BTreeSet<u64>,
    /// Manifests that newer ones have replaced for certain.
    manifests: Vec<PathBuf>,
    access: Access,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Access {
    #[default]
    Open,
    Held,
    Shut,
}

/// A file that a thread removes, as long as this is held.
pub(crate) struct Removal<'a> {
    files: &'a ObsoleteFiles,
    pub(crate) number: u64,
}

impl Drop for Removal<'_> {
    fn drop(&mut self) {
        let is_there = self.files.inner.lock().removing.remove(&self.number);
        debug_assert!(is_there, "file {} is removed once", self.number);
        self.files.removed.notify_all();
    }
}

impl ObsoleteFiles {
    pub(crate) fn new() -> Arc<ObsoleteFiles> {
        let inner = Mutex::new(Rank::ObsoleteFiles, Inner::default());
        Arc::new(ObsoleteFiles { inner, removed: Condvar::new() })
    }

    pub(super) fn add(&self, number: u64) {
        let mut inner = self.inner.lock();
        if inner.access != Access::Shut && !planted(Plant::FilesLeaked) {
            debug_assert!(
                !inner.numbers.contains(&number)
                    || planted(Plant::FileNumberReused)
                    || planted(Plant::BlobOwnedTwice)
                    || planted(Plant::FileNumberWraps),
                "two had charge of file {number}"
            );
            inner.numbers.insert(number);
        }
    }

    pub(super) fn add_manifests(&self, replaced: Vec<PathBuf>) {
        let mut inner = self.inner.lock();
        if inner.access != Access::Shut {
            inner.manifests.extend(replaced);
        }
    }

    /// Removes the manifests that were replaced. One that cannot be removed stays until the next
    /// open, as those do that were replaced when the process died. May block for long.
    pub(crate) fn remove_manifests(&self, fs: &dyn FileSystem) {
        let replaced = std::mem::take(&mut self.inner.lock().manifests);
        for path in replaced {
            let _ = fs.remove(&path);
        }
    }

    /// Takes the number out, if it is there and was not handed out.
    fn claim(&self, number: u64) -> bool {
        self.inner.lock().numbers.remove(&number)
    }

    /// True if no file waits until an edit is confirmed.
    pub(crate) fn is_empty(&self) -> bool {
        self.inner.lock().numbers.is_empty()
    }

    /// Has all files removed from now on, unless they are held.
    pub(super) fn doom(&self) {
        let mut inner = self.inner.lock();
        if inner.access == Access::Open {
            let mut numbers = std::mem::take(&mut inner.numbers);
            inner.doomed.append(&mut numbers);
        }
    }

    /// The next file to remove. Each is handed out only once.
    pub(crate) fn next_removal(&self) -> Option<Removal<'_>> {
        let mut inner = self.inner.lock();
        let number = inner.doomed.pop_first()?;
        inner.removing.insert(number);
        Some(Removal { files: self, number })
    }

    /// Waits until the removals have ended that other threads have begun.
    pub(crate) fn wait_for_removals(&self) {
        let mut inner = self.inner.lock();
        let begun = inner.removing.clone();
        while !begun.is_disjoint(&inner.removing) {
            self.removed.wait(&mut inner);
        }
    }

    /// The files to remove now, for one who removes all of them. Each is handed out only once.
    pub(crate) fn take(&self) -> Vec<u64> {
        self.doom();
        std::mem::take(&mut self.inner.lock().doomed).into_iter().collect()
    }

    /// Keeps every file for now: the manifest that the next open finds may name files that memory
    /// no longer refers to.
    pub(crate) fn hold(&self) {
        let mut inner = self.inner.lock();
        if inner.access == Access::Open {
            inner.access = Access::Held;
        }
    }

    /// Ends [`ObsoleteFiles::hold`]: it is known again what the manifest names.
    pub(crate) fn release(&self) {
        let mut inner = self.inner.lock();
        if inner.access == Access::Held {
            inner.access = Access::Open;
        }
    }

    /// Hands out no number ever again: the database closes, or no longer knows what its manifest
    /// names.
    pub(crate) fn shut(&self) {
        let mut inner = self.inner.lock();
        inner.access = Access::Shut;
        inner.numbers.clear();
        inner.doomed.clear();
        inner.manifests.clear();
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
        // A flush has created its file. A compaction fails to sync all names. After that the
        // flush's own sync would succeed.
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
        drop(LiveFile::new(9, &obsolete));
        assert!(obsolete.take().is_empty());
    }

    #[test]
    fn files_are_taken_one_by_one_until_the_database_closes() {
        let obsolete = ObsoleteFiles::new();
        (7..10).for_each(|number| drop(LiveFile::new(number, &obsolete)));
        assert!(obsolete.next_removal().is_none());
        obsolete.doom();
        obsolete.hold();
        let [first, second] = [(); 2].map(|()| obsolete.next_removal().unwrap());
        assert_eq!((first.number, second.number), (7, 8));
        obsolete.shut();
        assert!(obsolete.next_removal().is_none());
    }

    #[test]
    fn a_file_that_is_claimed_is_removed_once_its_holder_drops_it() {
        let numbers = FileNumbers::new(9, ObsoleteFiles::new());
        [7, 8].into_iter().for_each(|number| numbers.obsolete().add(number));
        let held = numbers.claim(7).unwrap();
        assert!(held.number() == 7 && numbers.claim(7).is_none() && numbers.claim(6).is_none());
        assert_eq!(numbers.obsolete().take(), [8]);
        assert!(numbers.claim(8).is_none(), "it was handed out");
        drop(held);
        assert_eq!(numbers.obsolete().take(), [7]);
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
