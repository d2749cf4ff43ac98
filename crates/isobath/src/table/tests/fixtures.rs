//! Tables in a file system that keeps each file as plain bytes, so that tests can damage it.

pub(crate) use crate::cursor::fixtures::Version;
use crate::cursor::{Cursor, Entry};
use crate::error::{Error, Result};
use crate::format::{FamilyId, Mark, Salt};
use crate::table::cache::{BlockCache, FileCache, table_path};
use crate::table::{BlockFile, Finished, Table, TableContext, TableOptions, TableWriter};
use crate::vfs::*;
use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::env::sync::Mutex;

type Bytes = Arc<Mutex<Vec<u8>>>;

/// The reads in order: true for read-ahead only, offset, length.
type Trace = Arc<Mutex<Vec<(bool, u64, u64)>>>;

#[derive(Default)]
pub(crate) struct TestFs {
    files: Mutex<HashMap<PathBuf, Bytes>>,
    trace: Trace,
    /// Bytes that cannot be read.
    broken: Arc<Mutex<Range<u64>>>,
}

impl TestFs {
    /// The reads since the last call.
    pub(crate) fn take_trace(&self) -> Vec<(bool, u64, u64)> {
        std::mem::take(&mut *self.trace.lock())
    }

    /// From now on reads that touch these bytes fail.
    pub(crate) fn break_bytes(&self, bytes: Range<u64>) {
        *self.broken.lock() = bytes;
    }
}

struct Reader {
    bytes: Vec<u8>,
    mode: FileAccess,
    path: PathBuf,
    trace: Trace,
    broken: Arc<Mutex<Range<u64>>>,
}

struct Appender {
    bytes: Bytes,
    len: u64,
    path: PathBuf,
}

fn unsupported(path: &Path) -> Error {
    Error::io("use", path, io::ErrorKind::Unsupported.into())
}

impl ReadFile for Reader {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.trace.lock().push((false, offset, buf.len() as u64));
        let broken = self.broken.lock().clone();
        if broken.start < offset + buf.len() as u64 && offset < broken.end {
            return Err(Error::io("read", &self.path, io::ErrorKind::Other.into()));
        }
        let start = offset as usize;
        match self.bytes.get(start..start + buf.len()) {
            Some(bytes) => buf.copy_from_slice(bytes),
            None => {
                return Err(Error::io("read", &self.path, io::ErrorKind::UnexpectedEof.into()));
            }
        }
        Ok(())
    }

    fn is_mapped(&self) -> bool {
        self.mode == FileAccess::Mapped
    }

    fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn read_ahead(&self, offset: u64, len: u64) {
        assert!(offset + len <= self.len());
        self.trace.lock().push((true, offset, len));
    }

    fn path(&self) -> &Path {
        &self.path
    }
}

impl WriteFile for Appender {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.bytes.lock().extend_from_slice(bytes);
        self.len += bytes.len() as u64;
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }

    fn sync(&mut self) -> Result<()> {
        Ok(())
    }

    fn write_back(&mut self) {}

    fn len(&self) -> u64 {
        self.len
    }

    fn path(&self) -> &Path {
        &self.path
    }
}

impl FileSystem for TestFs {
    fn create_dir_all(&self, _path: &Path) -> Result<()> {
        Ok(())
    }

    fn list(&self, dir: &Path) -> Result<Vec<DirEntry>> {
        Err(unsupported(dir))
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        Ok(self.files.lock().contains_key(path))
    }

    fn open_read(&self, path: &Path, mode: FileAccess) -> Result<Arc<dyn ReadFile>> {
        let files = self.files.lock();
        let Some(bytes) = files.get(path) else {
            return Err(Error::io("open", path, io::ErrorKind::NotFound.into()));
        };
        let bytes = bytes.lock().clone();
        let (path, trace) = (path.to_owned(), self.trace.clone());
        let broken = self.broken.clone();
        Ok(Arc::new(Reader { bytes, mode, path, trace, broken }))
    }

    fn create(&self, path: &Path) -> Result<Box<dyn WriteFile>> {
        let bytes = Bytes::default();
        self.files.lock().insert(path.to_owned(), bytes.clone());
        Ok(Box::new(Appender { bytes, len: 0, path: path.to_owned() }))
    }

    unsafe fn open_segment(
        &self,
        path: &Path,
        _: u64,
        _: FileAccess,
    ) -> Result<Arc<dyn SegmentFile>> {
        Err(unsupported(path))
    }

    fn rename(&self, from: &Path, _to: &Path) -> Result<()> {
        Err(unsupported(from))
    }

    fn replace(&self, from: &Path, _to: &Path) -> Result<()> {
        Err(unsupported(from))
    }

    fn link(&self, from: &Path, _to: &Path) -> Result<()> {
        Err(unsupported(from))
    }

    fn remove(&self, path: &Path) -> Result<()> {
        self.files.lock().remove(path);
        Ok(())
    }

    fn remove_dir(&self, path: &Path) -> Result<()> {
        Err(unsupported(path))
    }

    fn open_dir(&self, dir: &Path) -> Result<Arc<dyn Directory>> {
        Err(unsupported(dir))
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn FileLock>> {
        Err(unsupported(path))
    }

    fn free_space(&self, dir: &Path) -> Result<u64> {
        Err(unsupported(dir))
    }

    fn kind(&self, dir: &Path) -> Result<FileSystemKind> {
        Err(unsupported(dir))
    }
}

pub(crate) const NUMBER: u64 = 42;
pub(crate) const UUID: [u8; 16] = [9; 16];
/// Of the file that a fixture writes.
pub(crate) const IDENTITY: (Option<[u8; 16]>, u64) = (Some(UUID), NUMBER);

/// The mark of a block of that file.
pub(crate) fn mark(offset: u64) -> Mark {
    Salt::of(UUID, NUMBER).mark(offset)
}

/// A file system, the directory of the tables, and the caches that readers share.
pub(crate) struct Fixture {
    pub(crate) fs: Arc<TestFs>,
    pub(crate) dir: PathBuf,
}

impl Fixture {
    pub(crate) fn new() -> Fixture {
        Fixture { fs: Arc::default(), dir: PathBuf::from("/tables") }
    }

    pub(crate) fn path(&self) -> PathBuf {
        table_path(&self.dir, NUMBER)
    }

    /// The file, read by position.
    pub(crate) fn file(&self) -> BlockFile {
        let file = self.fs.open_read(&self.path(), FileAccess::Positional).unwrap();
        BlockFile::new(file, Salt::of(UUID, NUMBER))
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.fs.files.lock()[&self.path()].lock().clone()
    }

    pub(crate) fn set_bytes(&self, bytes: Vec<u8>) {
        self.fs.files.lock().insert(self.path(), Arc::new(Mutex::unranked(bytes)));
    }

    pub(crate) fn writer(&self) -> TableWriter {
        let file = self.fs.create(&self.path()).unwrap();
        TableWriter::create(file, UUID, NUMBER).unwrap()
    }

    pub(crate) fn write(
        &self,
        options: &TableOptions,
        slices: &[(FamilyId, Vec<Version>)],
    ) -> Finished {
        let mut writer = self.writer();
        for (family, versions) in slices {
            writer.begin_slice(*family, options).unwrap();
            for version in versions {
                writer.add(version.as_entry()).unwrap();
            }
            writer.finish_slice().unwrap();
        }
        let finished = writer.finish().unwrap();
        assert_eq!(finished.file_len, self.bytes().len() as u64);
        finished
    }

    pub(crate) fn context(&self, mode: FileAccess, cache_bytes: u64) -> TableContext {
        let files = FileCache::new(self.fs.clone(), self.dir.clone(), mode, 10);
        TableContext::new(Arc::new(files), BlockCache::new(cache_bytes))
    }

    pub(crate) fn open(&self, finished: &Finished, slice: usize) -> Arc<Table> {
        let context = self.context(FileAccess::Mapped, 1 << 20);
        Table::open(context, &finished.slices[slice]).unwrap()
    }
}

/// All versions, forward.
pub(crate) fn forward(cursor: &mut dyn Cursor) -> Result<Vec<Version>> {
    let mut seen = Vec::new();
    cursor.seek_first()?;
    while let Some(Entry { key, seq, kind, value }) = cursor.entry() {
        seen.push(Version { key: key.to_vec(), seq, kind, value: value.to_vec() });
        cursor.next()?;
    }
    Ok(seen)
}

/// The newest version of every key, backward.
pub(crate) fn backward(cursor: &mut dyn Cursor) -> Result<Vec<Version>> {
    let mut seen = Vec::new();
    cursor.seek_last()?;
    while let Some(Entry { key, seq, kind, value }) = cursor.entry() {
        seen.push(Version { key: key.to_vec(), seq, kind, value: value.to_vec() });
        cursor.prev_key()?;
    }
    Ok(seen)
}
