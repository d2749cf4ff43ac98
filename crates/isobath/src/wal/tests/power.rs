//! Power cuts and kills at any moment, on a device that loses any subset of what was not synced.
//!
//! [`Engine`] plays the engine: it keeps durably what a manifest would hold, and does in order what
//! the log asks of it. Terms differ in their segment lengths, so that a log begins short, finds
//! spares and leftovers of other lengths, and is recovered from segments of several lengths.

use super::support::{UUID, payload, record_of};
use crate::env::Env;
use crate::env::fixtures::Draw;
use crate::env::sync::Mutex;
use crate::error::Result;
use crate::format::{FILE_HEADER_LEN, FileHeader, FileKind, Lsn};
use crate::vfs::*;
use crate::wal::*;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const WAL: &str = "/db/wal";
/// The least length of a segment.
const SEGMENT_LEN: u64 = 4096;

/// The lengths of a term's segments: the regular length and the length of the first.
#[derive(Clone, Copy, Debug)]
struct Lens {
    regular: u64,
    first: u64,
}

impl Lens {
    const ALL_SHORT: Lens = Lens { regular: SEGMENT_LEN, first: SEGMENT_LEN };

    fn roll(dice: &mut Draw) -> Lens {
        let regular = SEGMENT_LEN << dice.below(4);
        Lens { regular, first: (regular >> dice.below(4)).max(SEGMENT_LEN) }
    }
}

/// What the manifest would hold, and the term's segment lengths.
#[derive(Clone, Debug)]
struct Manifest {
    lens: Lens,
    /// Where the term starts.
    term_start: Lsn,
    generation: u16,
    /// The log below this LSN is not needed.
    from: Lsn,
    ceiling: Lsn,
}

struct Engine {
    fs: MemoryFs,
    witness: Arc<Witness>,
    manifest: Manifest,
    /// Records of this term: LSN, end, and the number its payload is made of.
    history: Vec<(Lsn, Lsn, u64)>,
    next: u64,
}

fn options(lens: Lens) -> LogOptions {
    LogOptions {
        dir: WAL.into(),
        uuid: UUID,
        segment_len: lens.regular,
        first_segment_len: lens.first,
        mode: FileAccess::Mapped,
        spare_segments: 2,
        sync_interval: None,
        raise_ceiling: Box::new(|_| unreachable!("a life is short")),
        admit_segment: Box::new(|_| Ok(())),
    }
}

fn record_payload(n: u64) -> Vec<u8> {
    let len = match n % 11 {
        0 => 5000,
        1 => 9000,
        _ => 20 + n % 300,
    };
    let mut bytes = n.to_le_bytes().to_vec();
    bytes.extend(payload(n, len as usize));
    bytes
}

impl Engine {
    fn start_log(&self) -> Log {
        self.witness.told(self.manifest.from, self.manifest.from);
        let fs = WitnessFs(self.fs.clone(), Arc::clone(&self.witness));
        let env = Env { fs: Arc::new(fs), ..Env::system() };
        let Manifest { lens, term_start, generation, ceiling, .. } = self.manifest;
        Log::start(&env, options(lens), term_start, ceiling, generation).unwrap()
    }

    fn put(&mut self, log: &Log) -> Lsn {
        let n = self.next;
        self.next += 1;
        let mut record = record_of(&record_payload(n));
        let mut record = seal(&mut record);
        let mut reservation = log.reserve(record.len() as u64).unwrap();
        let (start, end) = (reservation.start(), reservation.end());
        self.history.push((start, end, n));
        reservation.write(&mut record);
        reservation.publish();
        log.wait_visible(end).unwrap();
        end
    }

    /// Recovers from `fs` and checks that the result is a prefix of the history from `from` on.
    fn recover_from(&self, fs: &MemoryFs, from: Lsn, durable: Lsn) -> Result<ScanEnd> {
        check_headers(fs, from);
        let mut expected = self.history.iter().filter(|record| record.0 >= from);
        let mut visit = |lsn, payload: &[u8]| {
            let (start, _, n) = *expected.next().expect("a record that was never written");
            assert_eq!(lsn, start);
            assert_eq!(payload, record_payload(n));
            Ok(())
        };
        let end = scan(fs, Path::new(WAL), UUID, from, durable, &mut visit, &mut |_, _| ())?;
        assert!(end.end >= durable, "what was synced is there");
        Ok(end)
    }

    fn recover(&self, fs: &MemoryFs, durable: Lsn) -> Result<ScanEnd> {
        self.recover_from(fs, self.manifest.from, durable)
    }

    /// Continues after a crash as an engine does: everything recovered is in tables, the manifest
    /// says so, and the next term starts above the ceiling.
    fn next_term(&mut self, fs: MemoryFs, lens: Lens) -> Log {
        self.fs = fs;
        self.witness = Arc::default();
        self.history.clear();
        let term_start = (self.manifest.ceiling + SEGMENT_LEN).next_multiple_of(lens.regular);
        self.manifest = Manifest {
            lens,
            term_start,
            generation: self.manifest.generation + 1,
            from: term_start,
            ceiling: term_start + (1 << 20),
        };
        self.start_log()
    }
}

fn engine(lens: Lens) -> Engine {
    let (term_start, ceiling) = (lens.regular, lens.regular + (1 << 20));
    let fs = MemoryFs::new();
    fs.create_dir_all(Path::new("/db")).unwrap();
    fs.sync_dir(Path::new("/")).unwrap();
    Engine {
        fs,
        witness: Arc::default(),
        manifest: Manifest { lens, term_start, generation: 1, from: term_start, ceiling },
        history: Vec::new(),
        next: 0,
    }
}

/// Checks that every segment that may be read has its header page, whatever was lost, and that no
/// file has two names, which would show as two equal headers.
fn check_headers(fs: &MemoryFs, from: Lsn) {
    let mut numbers = Vec::new();
    for info in inventory(fs, Path::new(WAL)).unwrap() {
        let mut bytes = [0; FILE_HEADER_LEN];
        fs.open_read(&info.path, FileAccess::Positional).unwrap().read_at(0, &mut bytes).unwrap();
        let header = FileHeader::decode(&bytes, FileKind::Log);
        if info.kind == SegmentKind::Log && info.base >= from {
            assert_eq!(header.as_ref().unwrap().number, info.base);
        }
        numbers.extend(header.map(|header| header.number));
    }
    let count = numbers.len();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), count, "two names of one file");
}

/// Keeps the state of the disk just before each sync, when most is unsynced, with what was promised
/// by then.
#[derive(Default)]
struct Witness {
    promised: Mutex<(Lsn, Lsn)>,
    states: Mutex<Vec<(MemoryFs, Lsn, Lsn)>>,
}

impl Witness {
    /// Records that the log is needed from `from` on, and durable below `durable`.
    fn told(&self, from: Lsn, durable: Lsn) {
        *self.promised.lock() = (from, durable);
    }

    fn look(&self, fs: &MemoryFs) {
        // Another thread may go on meanwhile. What was durable before the copy is in the copy; what
        // is not needed after it may be missing from it.
        let (_, durable) = *self.promised.lock();
        let state = fs.killed();
        let (from, _) = *self.promised.lock();
        self.states.lock().push((state, from, durable));
    }
}

#[derive(Clone)]
struct WitnessFs(MemoryFs, Arc<Witness>);

struct WitnessSegment(Arc<dyn SegmentFile>, WitnessFs);

impl FileSystem for WitnessFs {
    fn create_dir_all(&self, path: &Path) -> Result<()> {
        self.0.create_dir_all(path)
    }
    fn list(&self, dir: &Path) -> Result<Vec<DirEntry>> {
        self.0.list(dir)
    }
    fn exists(&self, path: &Path) -> Result<bool> {
        self.0.exists(path)
    }
    fn open_read(&self, path: &Path, mode: FileAccess) -> Result<Arc<dyn ReadFile>> {
        self.0.open_read(path, mode)
    }
    fn create(&self, path: &Path) -> Result<Box<dyn WriteFile>> {
        self.0.create(path)
    }
    unsafe fn open_segment(
        &self,
        path: &Path,
        len: u64,
        mode: FileAccess,
    ) -> Result<Arc<dyn SegmentFile>> {
        // SAFETY: the caller's promise is passed on.
        let segment = unsafe { self.0.open_segment(path, len, mode) }?;
        Ok(Arc::new(WitnessSegment(segment, self.clone())))
    }
    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.0.rename(from, to)
    }
    fn replace(&self, from: &Path, to: &Path) -> Result<()> {
        self.0.replace(from, to)
    }
    fn link(&self, from: &Path, to: &Path) -> Result<()> {
        self.0.link(from, to)
    }
    fn remove(&self, path: &Path) -> Result<()> {
        self.0.remove(path)
    }
    fn remove_dir(&self, path: &Path) -> Result<()> {
        self.0.remove_dir(path)
    }
    fn open_dir(&self, dir: &Path) -> Result<Arc<dyn Directory>> {
        Ok(Arc::new(WitnessDir(self.0.open_dir(dir)?, self.clone())))
    }
    fn lock(&self, path: &Path) -> Result<Box<dyn FileLock>> {
        self.0.lock(path)
    }
    fn free_space(&self, dir: &Path) -> Result<u64> {
        self.0.free_space(dir)
    }
    fn kind(&self, dir: &Path) -> Result<FileSystemKind> {
        self.0.kind(dir)
    }
}

struct WitnessDir(Arc<dyn Directory>, WitnessFs);

impl Directory for WitnessDir {
    fn sync(&self) -> Result<()> {
        self.1.1.look(&self.1.0);
        self.0.sync()
    }
}

impl SegmentFile for WitnessSegment {
    unsafe fn copy_in(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        // SAFETY: the caller's promise is passed on.
        unsafe { self.0.copy_in(offset, bytes) }
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.0.read_at(offset, buf)
    }
    fn sync_range(&self, offset: u64, len: u64) -> Result<()> {
        self.1.1.look(&self.1.0);
        self.0.sync_range(offset, len)
    }
    fn write_back(&self, offset: u64, len: u64) {
        self.0.write_back(offset, len);
    }
    fn prefault(&self, offset: u64, len: u64) {
        self.0.prefault(offset, len);
    }
    fn len(&self) -> u64 {
        self.0.len()
    }
    fn path(&self) -> PathBuf {
        self.0.path()
    }
    fn renamed(&self, path: &Path) {
        self.0.renamed(path);
    }
}

/// A crash that keeps a random subset of what was not synced, in one of four ways.
fn cut(fs: &MemoryFs, dice: &mut Draw) -> MemoryFs {
    let temperament = dice.below(4);
    fs.crashed(|unsynced: &Unsynced<'_>| {
        let steps = unsynced.steps.len() as u64;
        (match temperament {
            0 => 0,
            1 => steps,
            2 => dice.below(steps + 1),
            _ if dice.below(8) == 0 => 0,
            _ => steps,
        }) as usize
    })
}

/// One term after another on the same disk: write, sync, retire, lose power, recover, continue.
fn lives(seed: u64) -> Seen {
    let mut dice = Draw::new(seed);
    let mut seen = Seen::default();
    let mut engine = engine(Lens::roll(&mut dice));
    let mut log = engine.start_log();
    for _ in 0..if cfg!(miri) { 1 } else { 10 } {
        let mut durable = engine.manifest.from;
        for _ in 0..dice.below(60) {
            let end = engine.put(&log);
            if dice.below(5) == 0 {
                log.sync_to(end).unwrap();
                durable = end;
                engine.witness.told(engine.manifest.from, durable);
            }
            if dice.below(15) == 0 {
                // An epoch was flushed and its edit is durable: its tables replace this part of the
                // log.
                durable = end;
                engine.manifest.from = end;
                engine.witness.told(end, end);
                log.retire(end);
            }
            if dice.below(8) == 0 {
                log.thin_out_spares();
                log.discard_files();
            }
            if dice.below(8) == 0 {
                // Since the first call nothing is written.
                log.rest_if_idle();
                log.rest_if_idle();
            }
        }
        seen.recycled += log.stats().segments_recycled;
        seen.removed += engine.fs.tried(FileOp::Remove);
        seen.note_lens(&engine.fs);
        if dice.below(4) == 0 {
            log.close().unwrap();
            durable = log.tail();
            engine.witness.told(engine.manifest.from, durable);
        }
        let killed = engine.fs.killed();
        assert_eq!(engine.recover(&killed, durable).unwrap().end, log.tail());
        // Power cuts that do not end this term; after each the log must recover.
        for (state, from, durable) in std::mem::take(&mut *engine.witness.states.lock()) {
            let left = cut(&state, &mut dice);
            // At first the directory itself may not have been durable yet.
            if left.exists(Path::new(WAL)).unwrap() {
                engine.recover_from(&left, from, durable).unwrap();
            }
        }
        let left = cut(&killed, &mut dice);
        let scanned = engine.recover(&left, durable).unwrap();
        drop(log);
        // The power fails again while recovery reads.
        let again = cut(&left, &mut dice);
        assert_eq!(engine.recover(&again, durable).unwrap(), scanned);
        log = engine.next_term(left, Lens::roll(&mut dice));
        if dice.below(2) == 0 {
            log.retire(engine.manifest.from);
        }
    }
    seen
}

/// Counts of what the terms did, so that the test can check that each case occurred.
#[derive(Default)]
struct Seen {
    recycled: u64,
    /// How many files were removed: obsolete ones, and those that rests gave back.
    removed: u64,
    /// The most different segment lengths that a directory held at once.
    lens_max: usize,
}

impl Seen {
    fn note_lens(&mut self, fs: &MemoryFs) {
        let files = inventory(fs, Path::new(WAL)).unwrap();
        let in_use = files.iter().filter(|info| info.kind == SegmentKind::Log);
        let lens: std::collections::BTreeSet<_> = in_use.map(|info| info.file_len).collect();
        self.lens_max = self.lens_max.max(lens.len());
    }
}

#[test]
fn a_power_cut_at_any_moment_leaves_a_prefix_that_holds_what_was_synced() {
    let mut seen = Seen::default();
    for seed in 0..if cfg!(miri) { 1 } else { 10 } {
        let outcome = std::panic::catch_unwind(|| lives(seed));
        let Ok(more) = outcome else { panic!("seed {seed}") };
        seen.recycled += more.recycled;
        seen.removed += more.removed;
        seen.lens_max = seen.lens_max.max(more.lens_max);
    }
    assert!(cfg!(miri) || (seen.recycled > 0 && seen.removed > 0 && seen.lens_max > 2));
}

/// Power cuts at every step of a short term: everything up to the step is kept and nothing after
/// it.
#[test]
fn a_power_cut_after_each_step_leaves_a_prefix() {
    for lens in [Lens::ALL_SHORT, Lens { regular: 8 * SEGMENT_LEN, first: SEGMENT_LEN }] {
        cut_after_each_step(lens);
    }
}

fn cut_after_each_step(lens: Lens) {
    let mut engine = engine(lens);
    let log = engine.start_log();
    let mut durable = lens.regular;
    for n in 0..if cfg!(miri) { 3 } else { 60 } {
        let end = engine.put(&log);
        if n % 7 == 0 {
            log.sync_to(end).unwrap();
            durable = end;
        }
    }
    drop(log);
    let mut last_end = 0;
    for step in 0..=engine.fs.steps() {
        let left = engine.fs.crashed(|unsynced| unsynced.steps_until(step));
        if !left.exists(Path::new(WAL)).unwrap() {
            continue;
        }
        let scanned = engine.recover(&left, durable).unwrap();
        assert!(scanned.end >= last_end, "a later cut leaves no less");
        last_end = scanned.end;
    }
    assert_eq!(last_end, engine.history.last().unwrap().1);
}
