//! What the tests of the log share: a log in a temporary directory, and faults on request.

use crate::env::Env;
use crate::env::sync::{Mutex, atomic::*};
use crate::error::{Error, Result};
use crate::format::Lsn;
use crate::vfs::*;
use crate::wal::*;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(super) const UUID: [u8; 16] = [9; 16];
pub(super) const SEGMENT_LEN: u64 = 4096;
pub(super) const START: Lsn = SEGMENT_LEN;
pub(super) const CEILING: Lsn = 1 << 40;

pub(super) struct Home {
    _dir: Option<tempfile::TempDir>,
    path: PathBuf,
    pub(super) env: Env,
    pub(super) faults: Arc<Faults>,
}

impl Home {
    pub(super) fn new() -> Home {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("wal");
        Home::with(Some(dir), path, Env::system())
    }

    pub(super) fn in_memory() -> Home {
        let fs: Arc<dyn FileSystem> = Arc::new(MemoryFs::new());
        Home::with(None, "/wal".into(), Env { fs, ..Env::system() })
    }

    fn with(dir: Option<tempfile::TempDir>, path: PathBuf, mut env: Env) -> Home {
        let faults = Arc::new(Faults { inner: Arc::clone(&env.fs), ..Faults::default() });
        env.fs = Arc::new(FaultyFs(Arc::clone(&faults)));
        Home { _dir: dir, path, env, faults }
    }

    pub(super) fn path(&self) -> PathBuf {
        self.path.clone()
    }

    pub(super) fn options(&self) -> LogOptions {
        LogOptions {
            dir: self.path(),
            uuid: UUID,
            segment_len: SEGMENT_LEN,
            first_segment_len: SEGMENT_LEN,
            mode: FileAccess::Mapped,
            spare_segments: 4,
            sync_interval: None,
            raise_ceiling: Box::new(|wanted| Ok(wanted + CEILING)),
            admit_segment: Box::new(|_| Ok(())),
        }
    }

    pub(super) fn start(&self) -> Log {
        self.start_with(self.options())
    }

    pub(super) fn start_with(&self, options: LogOptions) -> Log {
        Log::start(&self.env, options, START, CEILING, 1).unwrap()
    }

    pub(super) fn scan_from(&self, from: Lsn, durable: Lsn) -> Result<(Vec<Vec<u8>>, ScanEnd)> {
        let mut payloads = Vec::new();
        let mut done = 0;
        let end = scan(
            &*self.env.fs,
            &self.path(),
            UUID,
            from,
            durable,
            &mut |_, payload| {
                payloads.push(payload.to_vec());
                Ok(())
            },
            &mut |now, total| {
                assert!(done <= now && now <= total);
                done = now;
            },
        )?;
        assert_eq!(end.records, payloads.len() as u64);
        Ok((payloads, end))
    }

    pub(super) fn scan(&self) -> Result<(Vec<Vec<u8>>, ScanEnd)> {
        self.scan_from(START, 0)
    }

    /// The segment file that holds `lsn`, and the offset in it.
    pub(super) fn place(&self, lsn: Lsn) -> (PathBuf, usize) {
        let base = lsn / SEGMENT_LEN * SEGMENT_LEN;
        let path = self.path().join(format!("{base:016x}.wal"));
        (path, (HEADER_PAGE_LEN + lsn % SEGMENT_LEN) as usize)
    }

    /// Changes the byte at `lsn` on disk.
    pub(super) fn edit(&self, lsn: Lsn, change: impl Fn(u8) -> u8) {
        let (path, offset) = self.place(lsn);
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[offset] = change(bytes[offset]);
        std::fs::write(&path, bytes).unwrap();
    }

    /// Changes the bytes of an LSN range that lies in one segment.
    pub(super) fn fill(&self, from: Lsn, to: Lsn, byte: u8) {
        let (path, offset) = self.place(from);
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[offset..offset + (to - from) as usize].fill(byte);
        std::fs::write(&path, bytes).unwrap();
    }

    pub(super) fn names(&self, extension: &str) -> Vec<String> {
        let mut names: Vec<String> = std::fs::read_dir(self.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| name.ends_with(extension))
            .collect();
        names.sort();
        names
    }
}

/// A record to be sealed: room for the header, and the payload.
pub(super) fn record_of(payload: &[u8]) -> Vec<u8> {
    let mut record = vec![0; RECORD_HEADER_LEN];
    record.extend_from_slice(payload);
    record
}

/// A whole commit; returns the record's range.
pub(super) fn put(log: &Log, payload: &[u8]) -> Result<(Lsn, Lsn)> {
    let mut record = record_of(payload);
    let mut record = seal(&mut record);
    let mut reservation = log.reserve(record.len() as u64)?;
    let range = (reservation.start(), reservation.end());
    reservation.write(&mut record);
    reservation.publish();
    log.wait_visible(range.1)?;
    Ok(range)
}

/// The payload of the `n`th test record: `len` bytes that depend on `n`.
pub(super) fn payload(n: u64, len: usize) -> Vec<u8> {
    (0..len).map(|at| (n as usize * 31 + at * 7 + 1) as u8).collect()
}

/// Which calls fail, and a record of some calls.
pub(super) struct Faults {
    inner: Arc<dyn FileSystem>,
    /// Segments cannot be created: the disk is full.
    pub(super) full: AtomicBool,
    /// Segments cannot be synced.
    pub(super) sync_fails: Arc<AtomicBool>,
    /// The extra time of each sync of a segment.
    pub(super) sync_is_held: Arc<AtomicBool>,
    /// Syncs since the delay was set.
    pub(super) syncs_begun: Arc<AtomicU64>,
    /// Offsets and lengths of the ranges that were synced.
    pub(super) synced: Arc<Mutex<Vec<(u64, u64)>>>,
    /// Offsets and lengths of the ranges whose write-back was started.
    pub(super) written_back: Arc<Mutex<Vec<(u64, u64)>>>,
    /// Nothing can be copied into a segment.
    pub(super) copy_fails: Arc<AtomicBool>,
    /// A sync of a segment, or a copy into one, panics.
    pub(super) sync_panics: Arc<AtomicBool>,
    pub(super) copy_panics: Arc<AtomicBool>,
    /// Copying into a segment finds no room on the disk.
    pub(super) copy_finds_no_room: Arc<AtomicBool>,
    /// Directories cannot be synced.
    pub(super) sync_dir_fails: AtomicBool,
    /// Syncs of directories that succeeded.
    pub(super) dirs_synced: AtomicU64,
    /// Runs just before each rename.
    pub(super) before_rename: Mutex<Option<Box<dyn Fn() + Send>>>,
}

impl Default for Faults {
    fn default() -> Self {
        Faults {
            inner: Env::system().fs,
            full: AtomicBool::new(false),
            sync_fails: Arc::default(),
            sync_is_held: Arc::default(),
            syncs_begun: Arc::default(),
            synced: Arc::default(),
            written_back: Arc::default(),
            copy_fails: Arc::default(),
            sync_panics: Arc::default(),
            copy_panics: Arc::default(),
            copy_finds_no_room: Arc::default(),
            sync_dir_fails: AtomicBool::new(false),
            dirs_synced: AtomicU64::new(0),
            before_rename: Mutex::default(),
        }
    }
}

struct FaultyFs(Arc<Faults>);

fn fault(action: &'static str, path: &Path, kind: io::ErrorKind) -> Error {
    Error::io(action, path, io::Error::new(kind, "planted"))
}

impl FileSystem for FaultyFs {
    fn create_dir_all(&self, path: &Path) -> Result<()> {
        self.0.inner.create_dir_all(path)
    }
    fn list(&self, dir: &Path) -> Result<Vec<DirEntry>> {
        self.0.inner.list(dir)
    }
    fn exists(&self, path: &Path) -> Result<bool> {
        self.0.inner.exists(path)
    }
    fn open_read(&self, path: &Path, mode: FileAccess) -> Result<Arc<dyn ReadFile>> {
        self.0.inner.open_read(path, mode)
    }
    fn create(&self, path: &Path) -> Result<Box<dyn WriteFile>> {
        self.0.inner.create(path)
    }
    unsafe fn open_segment(
        &self,
        path: &Path,
        len: u64,
        mode: FileAccess,
    ) -> Result<Arc<dyn SegmentFile>> {
        if self.0.full.load(Ordering::SeqCst) {
            return Err(fault("prepare", path, io::ErrorKind::StorageFull));
        }
        Ok(Arc::new(FaultySegment {
            // SAFETY: the caller's promise is passed on.
            inner: unsafe { self.0.inner.open_segment(path, len, mode) }?,
            sync_fails: Arc::clone(&self.0.sync_fails),
            sync_is_held: Arc::clone(&self.0.sync_is_held),
            syncs_begun: Arc::clone(&self.0.syncs_begun),
            synced: Arc::clone(&self.0.synced),
            written_back: Arc::clone(&self.0.written_back),
            copy_fails: Arc::clone(&self.0.copy_fails),
            sync_panics: Arc::clone(&self.0.sync_panics),
            copy_panics: Arc::clone(&self.0.copy_panics),
            copy_finds_no_room: Arc::clone(&self.0.copy_finds_no_room),
        }))
    }
    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        if let Some(meddle) = &*self.0.before_rename.lock() {
            meddle();
        }
        self.0.inner.rename(from, to)
    }
    fn replace(&self, from: &Path, to: &Path) -> Result<()> {
        self.0.inner.replace(from, to)
    }
    fn link(&self, from: &Path, to: &Path) -> Result<()> {
        self.0.inner.link(from, to)
    }
    fn remove(&self, path: &Path) -> Result<()> {
        self.0.inner.remove(path)
    }
    fn remove_dir(&self, path: &Path) -> Result<()> {
        self.0.inner.remove_dir(path)
    }
    fn open_dir(&self, dir: &Path) -> Result<Arc<dyn Directory>> {
        let inner = self.0.inner.open_dir(dir)?;
        Ok(Arc::new(FaultyDir { inner, path: dir.to_owned(), faults: Arc::clone(&self.0) }))
    }
    fn lock(&self, path: &Path) -> Result<Box<dyn FileLock>> {
        self.0.inner.lock(path)
    }
    fn free_space(&self, dir: &Path) -> Result<u64> {
        self.0.inner.free_space(dir)
    }
    fn kind(&self, dir: &Path) -> Result<FileSystemKind> {
        self.0.inner.kind(dir)
    }
}

struct FaultyDir {
    inner: Arc<dyn Directory>,
    path: PathBuf,
    faults: Arc<Faults>,
}

impl Directory for FaultyDir {
    fn sync(&self) -> Result<()> {
        if self.faults.sync_dir_fails.load(Ordering::SeqCst) {
            return Err(fault("sync", &self.path, io::ErrorKind::Other));
        }
        self.faults.dirs_synced.fetch_add(1, Ordering::SeqCst);
        self.inner.sync()
    }
}

struct FaultySegment {
    inner: Arc<dyn SegmentFile>,
    sync_fails: Arc<AtomicBool>,
    sync_is_held: Arc<AtomicBool>,
    syncs_begun: Arc<AtomicU64>,
    synced: Arc<Mutex<Vec<(u64, u64)>>>,
    written_back: Arc<Mutex<Vec<(u64, u64)>>>,
    copy_fails: Arc<AtomicBool>,
    sync_panics: Arc<AtomicBool>,
    copy_panics: Arc<AtomicBool>,
    copy_finds_no_room: Arc<AtomicBool>,
}

impl SegmentFile for FaultySegment {
    unsafe fn copy_in(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        if self.copy_fails.load(Ordering::SeqCst) {
            return Err(fault("write to", &self.inner.path(), io::ErrorKind::Other));
        }
        assert!(!self.copy_panics.load(Ordering::SeqCst), "planted");
        if self.copy_finds_no_room.load(Ordering::SeqCst) {
            return Err(fault("write to", &self.inner.path(), io::ErrorKind::StorageFull));
        }
        // SAFETY: the caller's promise is passed on.
        unsafe { self.inner.copy_in(offset, bytes) }
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.inner.read_at(offset, buf)
    }
    fn sync_range(&self, offset: u64, len: u64) -> Result<()> {
        if self.sync_fails.load(Ordering::SeqCst) {
            return Err(fault("sync", &self.inner.path(), io::ErrorKind::Other));
        }
        if self.sync_is_held.load(Ordering::SeqCst) {
            self.syncs_begun.fetch_add(1, Ordering::SeqCst);
            while self.sync_is_held.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
        }
        assert!(!self.sync_panics.load(Ordering::SeqCst), "planted");
        self.synced.lock().push((offset, len));
        self.inner.sync_range(offset, len)
    }
    fn write_back(&self, offset: u64, len: u64) {
        self.written_back.lock().push((offset, len));
        self.inner.write_back(offset, len);
    }
    fn prefault(&self, offset: u64, len: u64) {
        self.inner.prefault(offset, len);
    }
    fn len(&self) -> u64 {
        self.inner.len()
    }
    fn path(&self) -> PathBuf {
        self.inner.path()
    }
    fn renamed(&self, path: &Path) {
        self.inner.renamed(path);
    }
}
