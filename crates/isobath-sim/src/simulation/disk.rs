//! The disk of a life, as the engine uses it. Each operation on files takes time, and the machine
//! may die at it. For the tasks it is a single step: the scheduler does not switch tasks within it.
//!
//! Two operations are not single steps. A copy into a segment may be done in two pieces, between
//! which other tasks run and the process may die. In a mapped segment the cut is at a multiple of
//! eight bytes, and either piece may come first; in one written by system calls it is at a page.
//! And a process that is killed in the middle of handing over what it appended leaves half of it.

use super::runtime;
use super::world::{Life, Moment};
use isobath::Result;
use isobath::env::reach::{Reach, reached};
use isobath::env::simulation::without_preemption;
use isobath::vfs::{
    DirEntry, Directory, Fault, FileAccess, FileLock, FileOp, FileSystem, FileSystemKind, MemoryFs,
    ReadFile, SegmentFile, WriteFile,
};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The files of a life.
pub(super) struct SimFs(Arc<Life>);

impl SimFs {
    pub(super) fn new(life: Arc<Life>) -> SimFs {
        SimFs(life)
    }

    /// An operation that changes the disk.
    fn change<T>(&self, moment: Moment, body: impl FnOnce(&MemoryFs) -> Result<T>) -> Result<T> {
        self.0.tick(moment);
        let outcome = self.0.disk_does(body);
        self.0.wait();
        outcome
    }

    /// An operation that looks at it.
    fn look<T>(&self, body: impl FnOnce(&MemoryFs) -> Result<T>) -> Result<T> {
        runtime::maybe_yield();
        self.0.wait();
        self.0.disk_does(body)
    }
}

impl FileSystem for SimFs {
    fn create_dir_all(&self, path: &Path) -> Result<()> {
        self.change(Moment::Any, |fs| fs.create_dir_all(path))
    }
    fn list(&self, dir: &Path) -> Result<Vec<DirEntry>> {
        let mut entries = self.look(|fs| fs.list(dir))?;
        for at in (1..entries.len()).rev() {
            let other = runtime::random(at as u64 + 1) as usize;
            if other != at {
                reached(Reach::ListShuffled);
                entries.swap(at, other);
            }
        }
        Ok(entries)
    }
    fn exists(&self, path: &Path) -> Result<bool> {
        self.look(|fs| fs.exists(path))
    }
    fn open_read(&self, path: &Path, mode: FileAccess) -> Result<Arc<dyn ReadFile>> {
        let file = self.look(|fs| fs.open_read(path, mode))?;
        Ok(Arc::new(SimReadFile { file, life: self.0.clone() }))
    }
    fn create(&self, path: &Path) -> Result<Box<dyn WriteFile>> {
        let file = self.change(Moment::Any, |fs| fs.create(path))?;
        Ok(Box::new(SimWriteFile { file: Some(file), life: self.0.clone() }))
    }
    unsafe fn open_segment(
        &self,
        path: &Path,
        len: u64,
        mode: FileAccess,
    ) -> Result<Arc<dyn SegmentFile>> {
        // SAFETY: the caller's promise is passed on as it is.
        let file = self.change(Moment::Any, |fs| unsafe { fs.open_segment(path, len, mode) })?;
        let lock = self.0.lock_above(path);
        Ok(Arc::new(SimSegment { file, mode, lock, life: self.0.clone() }))
    }
    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.change(Moment::Rename, |fs| {
            fs.rename(from, to)?;
            self.0.note_rename(from, to);
            Ok(())
        })
    }
    fn replace(&self, from: &Path, to: &Path) -> Result<()> {
        self.change(Moment::Rename, |fs| fs.replace(from, to))
    }
    fn link(&self, from: &Path, to: &Path) -> Result<()> {
        self.change(Moment::Any, |fs| fs.link(from, to))
    }
    fn remove(&self, path: &Path) -> Result<()> {
        self.change(Moment::Remove, |fs| {
            fs.remove(path)?;
            self.0.note_removal(path);
            Ok(())
        })
    }
    fn remove_dir(&self, path: &Path) -> Result<()> {
        self.change(Moment::Remove, |fs| fs.remove_dir(path))
    }
    fn open_dir(&self, dir: &Path) -> Result<Arc<dyn Directory>> {
        let path = dir.to_owned();
        let dir = self.look(|fs| fs.open_dir(dir))?;
        Ok(Arc::new(SimDir { dir, path, life: self.0.clone() }))
    }
    fn lock(&self, path: &Path) -> Result<Box<dyn FileLock>> {
        let lock = self.change(Moment::Any, |fs| fs.lock(path))?;
        let dir = path.parent().expect("a lock lies in a directory").to_owned();
        self.0.note_lock(&dir);
        Ok(Box::new(SimLock { lock: Some(lock), dir, life: self.0.clone() }))
    }
    fn free_space(&self, dir: &Path) -> Result<u64> {
        self.look(|fs| fs.free_space(dir))
    }
    fn kind(&self, dir: &Path) -> Result<FileSystemKind> {
        self.0.disk_does(|fs| fs.kind(dir))
    }
}

/// The lock of a database. Once its holder has released it, no file that the holder opened is
/// written any more.
struct SimLock {
    /// There until it is dropped.
    lock: Option<Box<dyn FileLock>>,
    dir: PathBuf,
    life: Arc<Life>,
}

impl FileLock for SimLock {}

impl Drop for SimLock {
    fn drop(&mut self) {
        self.life.note_unlock(&self.dir);
        without_preemption(|| drop(self.lock.take()));
    }
}

struct SimDir {
    dir: Arc<dyn Directory>,
    path: PathBuf,
    life: Arc<Life>,
}

impl Directory for SimDir {
    fn sync(&self) -> Result<()> {
        let moment =
            if self.path.ends_with("spill") { Moment::SpillNames } else { Moment::SyncDir };
        self.life.tick(moment);
        let outcome = without_preemption(|| self.dir.sync());
        if outcome.is_ok() {
            self.life.note_dir_sync(&self.path);
        }
        self.life.wait();
        outcome
    }
}

struct SimReadFile {
    file: Arc<dyn ReadFile>,
    life: Arc<Life>,
}

impl ReadFile for SimReadFile {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        runtime::maybe_yield();
        self.life.wait();
        without_preemption(|| self.file.read_at(offset, buf))
    }
    fn is_mapped(&self) -> bool {
        self.file.is_mapped()
    }
    fn len(&self) -> u64 {
        self.file.len()
    }
    fn read_ahead(&self, offset: u64, len: u64) {
        self.file.read_ahead(offset, len);
    }
    fn path(&self) -> &Path {
        self.file.path()
    }
}

struct SimWriteFile {
    /// There until it is dropped.
    file: Option<Box<dyn WriteFile>>,
    life: Arc<Life>,
}

impl SimWriteFile {
    fn file(&self) -> &dyn WriteFile {
        &**self.file.as_ref().expect("not dropped yet")
    }

    fn change(
        &mut self,
        moment: Moment,
        body: impl FnOnce(&mut dyn WriteFile) -> Result<()>,
    ) -> Result<()> {
        self.life.tick(moment);
        let file = self.file.as_mut().expect("not dropped yet");
        let outcome = without_preemption(|| body(&mut **file));
        self.life.wait();
        outcome
    }

    /// What hands bytes over to the kernel.
    fn hand_over(&mut self, body: impl FnOnce(&mut dyn WriteFile) -> Result<()>) -> Result<()> {
        let file = self.file.as_mut().expect("not dropped yet");
        self.life.tick_in(Moment::Any, |fs| {
            reached(Reach::AppendHalved);
            fs.inject(Fault::on(FileOp::Write).short());
            let _ = file.flush();
        });
        without_preemption(|| body(&mut **file))
    }
}

impl WriteFile for SimWriteFile {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.hand_over(|file| file.append(bytes))
    }
    fn flush(&mut self) -> Result<()> {
        self.hand_over(|file| file.flush())
    }
    fn sync(&mut self) -> Result<()> {
        let is_manifest = self.path().to_string_lossy().contains("MANIFEST");
        let moment = if is_manifest { Moment::Edit } else { Moment::TableSync };
        let life = self.life.clone();
        self.change(moment, |file| {
            if is_manifest {
                life.strike_edit();
            }
            file.sync()
        })
    }
    fn write_back(&mut self) {
        let file = self.file.as_mut().expect("not dropped yet");
        without_preemption(|| file.write_back());
    }
    fn len(&self) -> u64 {
        self.file().len()
    }
    fn path(&self) -> &Path {
        self.file().path()
    }
}

impl Drop for SimWriteFile {
    fn drop(&mut self) {
        without_preemption(|| drop(self.file.take()));
    }
}

struct SimSegment {
    file: Arc<dyn SegmentFile>,
    mode: FileAccess,
    /// The number of the locking of its database under which the file was opened, if there was one.
    lock: Option<u64>,
    life: Arc<Life>,
}

/// How often a copy is seen in pieces: once in so many times.
const TORN_ONCE_IN: u64 = 8;
/// An interrupted system call has written whole pages of this length.
const PAGE_LEN: usize = 4096;

impl SimSegment {
    /// Fails the run if another process may own the file already: a write would then destroy what
    /// that process wrote.
    fn demand_lock(&self) {
        let path = self.path();
        let is_held = self.lock.is_none() || self.lock == self.life.lock_above(&path);
        let is_well = is_held || self.life.is_over();
        assert!(is_well, "a copy into {} after its lock was given up", path.display());
    }

    /// Where a copy of so many bytes to `offset` is cut, if it is.
    fn draw_cut(&self, offset: u64, len: usize) -> Option<usize> {
        let (unit, skew) = match self.mode {
            FileAccess::Mapped => (8, 0),
            FileAccess::Positional => (PAGE_LEN, offset as usize % PAGE_LEN),
        };
        if self.life.is_over() || runtime::random(TORN_ONCE_IN) > 0 {
            return None;
        }
        let cut = runtime::random((skew + len).div_ceil(unit) as u64) as usize * unit;
        cut.checked_sub(skew).filter(|cut| *cut > 0)
    }
}

impl SegmentFile for SimSegment {
    unsafe fn copy_in(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.life.tick(Moment::Any);
        // SAFETY: the caller's promise is passed on for each piece.
        let copy = |piece: std::ops::Range<usize>| unsafe {
            let at = offset + piece.start as u64;
            self.demand_lock();
            without_preemption(|| self.file.copy_in(at, &bytes[piece]))
        };
        let Some(cut) = self.draw_cut(offset, bytes.len()) else { return copy(0..bytes.len()) };
        let is_reversed = self.mode == FileAccess::Mapped && runtime::random(4) == 0;
        let (first, last) = (0..cut, cut..bytes.len());
        let (first, last) = if is_reversed { (last, first) } else { (first, last) };
        reached(if is_reversed { Reach::CopyTornBackward } else { Reach::CopyTorn });
        copy(first)?;
        let was_over = self.life.is_over();
        self.life.tick(Moment::Any);
        if self.life.is_over() && !was_over {
            reached(Reach::CopyTornAtDeath);
        }
        copy(last)
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        runtime::maybe_yield();
        without_preemption(|| self.file.read_at(offset, buf))
    }
    fn sync_range(&self, offset: u64, len: u64) -> Result<()> {
        self.life.tick(Moment::SegmentSync);
        let path = self.path();
        self.life.note_sync(&path);
        let outcome = without_preemption(|| self.file.sync_range(offset, len));
        if outcome.is_err() {
            self.life.note_failed_sync(&path);
        }
        self.life.wait();
        outcome
    }
    fn write_back(&self, offset: u64, len: u64) {
        without_preemption(|| self.file.write_back(offset, len));
    }
    fn prefault(&self, offset: u64, len: u64) {
        without_preemption(|| self.file.prefault(offset, len));
    }
    fn len(&self) -> u64 {
        self.file.len()
    }
    fn path(&self) -> PathBuf {
        without_preemption(|| self.file.path())
    }
    fn renamed(&self, path: &Path) {
        without_preemption(|| self.file.renamed(path));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_into_a_segment_fails_the_run_once_the_lock_it_was_opened_under_is_given_up() {
        for (unlocks, locks_again, fails) in
            [(false, false, false), (true, false, true), (true, true, true)]
        {
            let life = Life::quiet(MemoryFs::new());
            let body = move || {
                let fs = SimFs::new(life);
                fs.create_dir_all(Path::new("db/wal")).unwrap();
                let (lock, segment) = (Path::new("db/LOCK"), Path::new("db/wal/1.wal"));
                let held = fs.lock(lock).unwrap();
                // SAFETY: one task uses the segment.
                let file = unsafe { fs.open_segment(segment, 4096, FileAccess::Positional) };
                let held = (!unlocks).then_some(held);
                let _again = locks_again.then(|| fs.lock(lock).unwrap());
                // SAFETY: as above.
                unsafe { file.unwrap().copy_in(8, &[7; 16]) }.unwrap();
                drop(held);
            };
            assert_eq!(runtime::run(1, Box::new(body)).failure.is_some(), fails);
        }
    }

    #[test]
    fn a_file_of_the_log_that_is_renamed_twice_without_a_sync_in_between_fails_the_run() {
        let path = |name: &str| Path::new("db/wal").join(name);
        for (between, fails) in [("nothing", true), ("a sync", false), ("another file", false)] {
            let life = Life::quiet(MemoryFs::new());
            let body = move || {
                let fs = SimFs::new(life);
                fs.create_dir_all(Path::new("db/wal")).unwrap();
                drop(fs.create(&path("1.wal")).unwrap());
                fs.rename(&path("1.wal"), &path("0.spare")).unwrap();
                match between {
                    "a sync" => fs.sync_dir(Path::new("db/wal")).unwrap(),
                    "another file" => {
                        fs.remove(&path("0.spare")).unwrap();
                        drop(fs.create(&path("0.spare")).unwrap());
                    }
                    _ => {}
                }
                fs.rename(&path("0.spare"), &path("2.wal")).unwrap();
            };
            assert_eq!(runtime::run(1, Box::new(body)).failure.is_some(), fails, "{between}");
        }
    }
}
