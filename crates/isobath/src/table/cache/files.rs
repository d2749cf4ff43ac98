//! A bounded number of open files: tables and blob files. Opening checks the file's header, so a
//! file of another database, one damaged at its start, or one of a newer format is refused before
//! anything else is read from it.

use crate::env::sync::{Mutex, Rank};
use crate::env::{preempt, without_preemption};
use crate::error::{Error, Result};
use crate::format::{FILE_HEADER_LEN, FileHeader, FileKind, Salt};
use crate::table::BlockFile;
use crate::vfs::{FileAccess, FileSystem, ReadFile};
use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{OptionsBuilder, UnitWeighter};
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

/// What a reader beside a process that writes is told of a file that is gone.
const GONE: &str = "it is gone: if another process has removed it, catch up, and raise `max_open_files` \
                    to hold as many files open as there are";

const SHARD_COUNT: usize = 8;

/// The path of a table file.
pub(crate) fn table_path(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("{number:010}.tbl"))
}

/// `DefaultHasher::default` has fixed keys.
type FixedHasher = BuildHasherDefault<DefaultHasher>;

pub(crate) struct FileCache {
    fs: Arc<dyn FileSystem>,
    dir: PathBuf,
    mode: FileAccess,
    open: Cache<u64, OpenFile, UnitWeighter, FixedHasher>,
    /// The database to which the files belong, if it is known.
    uuid: Option<[u8; 16]>,
    /// Another process may remove files that are not held open here.
    is_beside: bool,
    /// A file that a tool has opened itself, whatever its name is.
    given: Option<(u64, BlockFile)>,
    /// Files that another owner holds open, so that they can be read after their names are removed.
    held: Mutex<BTreeMap<u64, HeldFile>>,
}

/// A file, and the kind that its header names: damage elsewhere may ask for it as another one.
type OpenFile = (FileKind, BlockFile);
type HeldFile = (FileKind, Salt, Weak<dyn ReadFile>);

impl FileCache {
    /// A cache of at most `capacity` open files of `dir`. Files in use stay open beyond this limit.
    pub(crate) fn new(
        fs: Arc<dyn FileSystem>,
        dir: PathBuf,
        mode: FileAccess,
        capacity: usize,
    ) -> FileCache {
        let shard_count = if capacity < 64 * SHARD_COUNT { 1 } else { SHARD_COUNT };
        let options = OptionsBuilder::new()
            .shards(shard_count)
            .weight_capacity((capacity / shard_count * shard_count) as u64)
            .estimated_items_capacity(capacity)
            .build()
            .expect("both capacities are given");
        let open = Cache::with_options(
            options,
            UnitWeighter,
            FixedHasher::default(),
            DefaultLifecycle::default(),
        );
        FileCache {
            fs,
            dir,
            mode,
            open,
            uuid: None,
            is_beside: false,
            given: None,
            held: Mutex::new(Rank::HeldTables, BTreeMap::new()),
        }
    }

    /// Refuses files of another database. A reader may outlive its database, and another one may
    /// take the directory.
    pub(crate) fn of_database(self, uuid: [u8; 16]) -> FileCache {
        FileCache { uuid: Some(uuid), ..self }
    }

    /// A cache of a reader beside a process that writes, if `is_beside`.
    pub(crate) fn beside(self, is_beside: bool) -> FileCache {
        FileCache { is_beside, ..self }
    }

    /// A cache of only this one file, which holds table `number`.
    pub(crate) fn of_one(fs: Arc<dyn FileSystem>, file: BlockFile, number: u64) -> FileCache {
        let cache = FileCache::new(fs, PathBuf::new(), FileAccess::Positional, 0);
        FileCache { given: Some((number, file)), ..cache }
    }

    /// The open file with this number.
    pub(crate) fn get(&self, number: u64) -> Result<BlockFile> {
        self.get_of(number, FileKind::Table)
    }

    /// The open blob file with this number.
    pub(crate) fn get_blob(&self, number: u64) -> Result<BlockFile> {
        self.get_of(number, FileKind::Blob)
    }

    #[inline(always)]
    fn get_of(&self, number: u64, kind: FileKind) -> Result<BlockFile> {
        preempt();
        match without_preemption(|| self.open.get(&number)) {
            Some((of, file)) if of == kind => Ok(file),
            _ => self.open(number, kind),
        }
    }

    #[cold]
    fn open(&self, number: u64, kind: FileKind) -> Result<BlockFile> {
        if let Some((_, file)) = self.given.as_ref().filter(|(given, _)| *given == number) {
            return Ok(file.clone());
        }
        if let Some((of, salt, file)) = self.held.lock().get(&number)
            && *of == kind
            && let Some(file) = file.upgrade()
        {
            return Ok(BlockFile::new(file, *salt));
        }
        let path = self.path(number);
        let opened = self.fs.open_read(&path, self.mode);
        let file = match opened {
            Err(error) if self.is_beside && error.io_kind() == Some(io::ErrorKind::NotFound) => {
                return Err(Error::io(
                    "open",
                    &path,
                    io::Error::new(io::ErrorKind::NotFound, GONE),
                ));
            }
            opened => opened?,
        };
        let header = read_header_of(&*file, kind)?;
        if header.number != number {
            let detail = format!("the file says it is number {}", header.number);
            return Err(Error::corruption(&path, 0, detail));
        }
        if self.uuid.is_some_and(|uuid| uuid != header.uuid) {
            return Err(Error::corruption(&path, 32, "the file belongs to another database"));
        }
        let file = BlockFile::new(file, header.salt);
        preempt();
        without_preemption(|| self.open.insert(number, (kind, file.clone())));
        Ok(file)
    }

    /// The open file with this number. Every reader of the file gets the same one for as long as
    /// the caller keeps it.
    pub(crate) fn hold(&self, number: u64, kind: FileKind) -> Result<BlockFile> {
        let file = self.get_of(number, kind)?;
        debug_assert_eq!(file.path(), self.path(number), "a file is cached under another's number");
        let mut held = self.held.lock();
        // A look at all of them, so not for each.
        if held.len().is_power_of_two() && !held.contains_key(&number) {
            held.retain(|_, (_, _, file)| file.strong_count() > 0);
        }
        let (open, salt) = file.parts();
        held.insert(number, (kind, salt, Arc::downgrade(open)));
        Ok(file)
    }

    /// Closes a file that is about to be removed, once no reader uses it.
    pub(crate) fn evict(&self, number: u64) {
        preempt();
        without_preemption(|| self.open.remove(&number));
    }

    /// Closes and removes a file that nothing needs any more. Returns its path if it is gone. One
    /// that cannot be removed now is an orphan, which the next open removes.
    pub(crate) fn remove(&self, number: u64) -> Option<PathBuf> {
        self.evict(number);
        let path = self.path(number);
        self.fs.remove(&path).is_ok().then_some(path)
    }

    /// Closes all files that are not `wanted`, once no reader uses them.
    pub(crate) fn keep_only(&self, wanted: &BTreeSet<u64>) {
        preempt();
        without_preemption(|| self.open.retain(|number, _| wanted.contains(number)));
    }

    pub(crate) fn path(&self, number: u64) -> PathBuf {
        if let Some((_, file)) = self.given.as_ref().filter(|(given, _)| *given == number) {
            return file.path().to_owned();
        }
        table_path(&self.dir, number)
    }

    /// The number of open files.
    #[cfg(test)]
    pub(crate) fn open_count(&self) -> usize {
        self.open.len()
    }
}

impl std::fmt::Debug for FileCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FileCache({} of {})", self.open.len(), self.dir.display())
    }
}

/// Reads and checks the header of a table file.
pub(crate) fn read_header(file: &dyn ReadFile) -> Result<FileHeader> {
    read_header_of(file, FileKind::Table)
}

/// Reads and checks the header of a file of this kind.
pub(crate) fn read_header_of(file: &dyn ReadFile, kind: FileKind) -> Result<FileHeader> {
    if file.len() < FILE_HEADER_LEN as u64 {
        return Err(Error::corruption(file.path(), 0, "the file is shorter than its header"));
    }
    let mut bytes = [0; FILE_HEADER_LEN];
    file.read_at(0, &mut bytes)?;
    FileHeader::decode(&bytes, kind).map_err(|error| error.in_file(file.path(), 0))
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::vfs::MemoryFs;

    #[test]
    fn files_that_nobody_holds_any_more_are_forgotten() {
        let (fs, dir) = (Arc::new(MemoryFs::new()), PathBuf::from("/table"));
        fs.create_dir_all(&dir).unwrap();
        let files = FileCache::new(fs.clone(), dir, FileAccess::Positional, 1);
        for number in 1..=20 {
            let header = FileHeader::new(FileKind::Table, [7; 16], number);
            let mut file = fs.create(&files.path(number)).unwrap();
            file.append(&header.encode()).unwrap();
            file.flush().unwrap();
            files.hold(number, FileKind::Table).unwrap();
        }
        assert!(files.held.lock().len() < 10);
    }
}
