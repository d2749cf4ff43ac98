//! The log's own thread. It prepares segments, faults their pages in ahead of the tail, and starts
//! write-back behind it, so that writers never make a system call.
//!
//! Writers wait for this thread when the log has no room, so it does no long-blocking work for
//! others. A separate thread syncs in the interval of the option. The engine's maintenance raises
//! the ceiling far ahead of the tail (which waits for the manifest) and removes the files of
//! segments that are no longer needed. The preparer raises the ceiling only when a writer already
//! waits for it.
//!
//! The preparer writes the log to the device early only while commits sync now and then. It then
//! starts write-back of what is copied, and syncs a whole segment before its first use, so that
//! those syncs are short. (It always syncs the term's first segment as a whole.) Without syncs
//! early write-back is waste: most segments are retired and reused before the system would write
//! them, and a page that was not written back takes its next record without a page fault.
//!
//! Writers wake this thread about once for each [`WAKE_STEP`] bytes of log. Once they rest, it
//! gives back what it has prepared (`rest.rs`).

use super::log::Inner;
use super::recycler::Spare;
use super::segment::{HEADER_PAGE_LEN, Segment, SegmentInfo, SegmentKind, file_name, header_page};
use super::segment_table::SegmentTable;
use crate::env::sync::{Condvar, Mutex, Rank, atomic::*};
use crate::env::{Plant, Reach, planted, reached};
use crate::error::Result;
use crate::format::Lsn;
use crate::vfs::SegmentFile;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes of log between two wake-ups by writers.
const WAKE_STEP: u64 = 1 << 20;
/// How far ahead of the tail pages are faulted in.
const PREFAULT_AHEAD: u64 = 8 << 20;
/// Pages are faulted in by pieces of this length, so that a writer close behind soon benefits.
const PREFAULT_PIECE: u64 = 256 << 10;
/// Write-back works in pieces of this length. A page that is written back too early costs a fault.
const WRITE_BACK_PIECE: u64 = 1 << 20;
/// A sync within this many bytes of log means that more syncs are expected.
const SYNC_MEMORY: u64 = 256 << 20;
/// The most segments that are prepared ahead of the tail, once as many were used without a rest.
const SEGMENTS_AHEAD: u64 = 2;

#[derive(Debug, Default)]
pub(super) struct PreparerStats {
    pub(super) created: AtomicU64,
    pub(super) recycled: AtomicU64,
}

/// A segment that is made and does not have its name yet.
pub(super) struct Made {
    segment: Segment,
    /// What its file is called so far.
    path: PathBuf,
    /// The spare that it was.
    spare: Option<Spare>,
}

/// What wakes the preparer.
#[derive(Debug)]
pub(super) struct Signal {
    state: Mutex<SignalState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct SignalState {
    is_set: bool,
    stopped: bool,
}

impl Signal {
    pub(super) fn new() -> Signal {
        Signal {
            state: Mutex::new(Rank::Preparer, SignalState::default()),
            changed: Condvar::new(),
        }
    }

    pub(super) fn notify(&self) {
        self.state.lock().is_set = true;
        self.changed.notify_one();
    }

    pub(super) fn stop(&self) {
        self.state.lock().stopped = true;
        self.changed.notify_one();
    }

    /// Sleeps until it is notified. False if the preparer must end.
    fn wait(&self) -> bool {
        let mut state = self.state.lock();
        if !state.is_set && !state.stopped {
            self.changed.wait(&mut state);
        }
        state.is_set = false;
        !state.stopped
    }
}

impl Inner {
    /// The preparer's main loop. A panic ends it and poisons the log.
    pub(super) fn work_ahead(&self) {
        self.guard("preparing the log", || self.keep());
    }

    fn keep(&self) {
        let mut written_back = self.start;
        loop {
            self.give_room_back();
            let tail = self.room.tail();
            self.prefault();
            self.make_room();
            let earlier = written_back;
            written_back = self.write_back(earlier);
            debug_assert!(earlier <= written_back, "the log would be written back twice");
            // A writer may move the tail past `wake_at` and still see the old value. Then the next
            // writer wakes the preparer.
            let wake_at = tail + self.wake_step(tail);
            self.wake_preparer_at.store(wake_at, Ordering::Relaxed);
            let behind = self.room.tail() >= wake_at;
            if behind {
                continue;
            }
            if !self.signal.wait() {
                return;
            }
        }
    }

    fn wake_step(&self, tail: Lsn) -> u64 {
        let used = self.written_since_rest(tail);
        WAKE_STEP.min(used.clamp(2 * self.least_ahead(), self.options.segment_len) / 4)
    }

    /// Faults in the pages that writers will reach next.
    pub(super) fn prefault(&self) {
        let tail = self.room.tail();
        let mut from = self.prefaulted.load(Ordering::Relaxed).max(tail);
        let to = (tail + PREFAULT_AHEAD).min(self.room.prepared());
        while from < to {
            let piece_end = (from + PREFAULT_PIECE).min(to);
            for segment in self.table.overlapping(from, piece_end) {
                let start = from.max(segment.base);
                let end = piece_end.min(segment.end);
                segment.file.prefault(segment.offset(start), end - start);
            }
            from = piece_end;
            self.prefaulted.store(from, Ordering::Relaxed);
        }
    }

    /// Prepares segments until there are enough or one fails. Raises the ceiling if a writer waits
    /// for that.
    fn make_room(&self) {
        let asked = self.room.asked();
        if let Err(error) = self.raise_ceiling(0) {
            self.room.fail(asked, error);
        }
        // Prepare as much as was written, up to two segments: syncing one segment's names can take
        // a tenth of a second on a device that is busy with tables.
        let used = self.written_since_rest(self.room.tail());
        let ahead = used.clamp(self.least_ahead(), SEGMENTS_AHEAD * self.options.segment_len);
        let mut made = Vec::new();
        while self.room.wants_segments(ahead).is_some() {
            let asked = self.room.asked();
            if let Err(error) = self.prepare_next(&mut made, ahead) {
                self.give_back(std::mem::take(&mut made));
                self.room.fail(asked, error);
                break;
            }
            self.prefault();
        }
        self.give_back(made);
    }

    /// Makes the segment behind those in `made`, and installs what may be used. A long record needs
    /// many, and an installed segment stays: they wait in `made` until all of them are there. Small
    /// records go on meanwhile, in those that they need soon.
    pub(super) fn prepare_next(&self, made: &mut Vec<Made>, ahead: u64) -> Result<()> {
        let base = made.last().map_or_else(|| self.room.prepared(), |last| last.segment.end);
        // It takes room, and later what it holds does in a table.
        let len = self.table.len_at(base);
        (self.options.admit_segment)(self.table.bytes_below(base + len) + len)?;
        let next = self.make(base)?;
        let end = next.segment.end;
        made.push(next);
        let Some(wanted) = self.room.wants_segments(ahead) else { return Ok(()) };
        let usable = if end >= wanted.all { end } else { wanted.soon };
        let count = made.partition_point(|one| one.segment.base < usable);
        self.install(made.drain(..count).collect())
    }

    /// Raises the ceiling if less than `ahead` is left below it, or if a writer waits for it.
    pub(super) fn raise_ceiling(&self, ahead: u64) -> Result<()> {
        let Some(wanted) = self.room.wants_ceiling(ahead) else { return Ok(()) };
        let raised = (self.options.raise_ceiling)(wanted)?;
        debug_assert!(raised >= wanted, "the ceiling was raised to {raised:#x}, not {wanted:#x}");
        self.room.raise_ceiling(raised);
        Ok(())
    }

    /// Prepares the term's first segment. A term that would begin with a regular one, and
    /// finds no room for it, begins with a short one: so an open needs little room.
    pub(super) fn prepare_first(&mut self) -> Result<()> {
        let (regular, short) = (self.options.segment_len, self.options.first_segment_len);
        match self.prepare_segment() {
            Err(error) if error.is_out_of_space() && self.table.first_len() > short => {
                self.table = SegmentTable::new(self.start, short, regular);
                self.prepare_segment()
            }
            prepared => prepared,
        }
    }

    /// Prepares the next segment: first its header page is durable, then its name, and only then is
    /// its room handed out.
    pub(super) fn prepare_segment(&self) -> Result<()> {
        let made = self.make(self.room.prepared())?;
        self.install(vec![made])
    }

    /// Makes the segment at `base`, with a durable header page, under a name that is not its own.
    fn make(&self, base: Lsn) -> Result<Made> {
        let len = self.table.len_at(base);
        debug_assert!(base.is_multiple_of(len), "{base:#x} is no place for {len:#x} bytes");
        self.sync_removed()?;
        self.wait_copied(self.table.installable_from(base));
        let is_regular = len == self.options.segment_len;
        while let Some(spare) = is_regular.then(|| self.recycler.take()).flatten() {
            if let Some(made) = self.reuse(spare, base)? {
                return Ok(made);
            }
        }
        match self.create(base) {
            Err(error) if error.is_out_of_space() && self.recycler.discard(&*self.fs) > 0 => {
                self.create(base)
            }
            created => created,
        }
    }

    /// Gives segments their names, in their order, makes the names durable, and only then hands out
    /// their room. If one gets no name, those before it lose theirs.
    fn install(&self, mut made: Vec<Made>) -> Result<()> {
        let mut failure = None;
        for (nth, one) in made.iter().enumerate() {
            let path = self.options.dir.join(file_name(one.segment.base, SegmentKind::Log));
            match self.fs.rename(&one.path, &path) {
                Ok(()) => one.segment.file.renamed(&path),
                Err(error) => {
                    failure = Some((nth, error));
                    break;
                }
            }
        }
        if let Some((nth, _)) = &failure {
            let unnamed = made.split_off(*nth);
            // No other file could get the name of one that stays, so that one is used.
            while made.pop_if(|one| self.takes_name(&one.segment.file.path())).is_some() {}
            self.give_back(unnamed);
        }
        if let Some(last) = made.last() {
            let end = last.segment.end;
            // A failed sync of the directory is final, like any failed sync: the name may be lost
            // though a later sync succeeds.
            if !planted(Plant::SegmentNameNotSynced) {
                self.recycler.sync_dir().inspect_err(|error| self.poison(error))?;
            }
            for Made { segment, spare, .. } in made {
                let stats = &self.preparer_stats;
                let count = if spare.is_some() { &stats.recycled } else { &stats.created };
                count.fetch_add(1, Ordering::Relaxed);
                self.table.install(segment);
            }
            self.room.extend(end);
        }
        failure.map_or(Ok(()), |(_, error)| Err(error))
    }

    /// Removes a file. False if it is still there: a removal that failed may have been carried out.
    fn takes_name(&self, path: &Path) -> bool {
        let gone = self.fs.remove(path).map(|()| true);
        let gone = gone.or_else(|_| self.fs.exists(path).map(|exists| !exists));
        // A file that may have no name must not take commits.
        gone.inspect_err(|error| self.poison(error)).unwrap_or(false)
    }

    /// Undoes the making of segments that have no name yet.
    fn give_back(&self, made: Vec<Made>) {
        let has_files = made.iter().any(|one| one.spare.is_none());
        for Made { segment, path, spare } in made {
            drop(segment);
            match spare {
                Some(spare) => self.recycler.put_back(spare),
                // If it cannot be removed now, the next start removes it.
                None => drop(self.fs.remove(&path)),
            }
        }
        if has_files {
            // A file system may keep the room of what was removed until then.
            let _ = self.recycler.sync_dir().inspect_err(|error| self.poison(error));
        }
    }

    /// Makes a segment of a spare. `None` if the spare is of no use, and gone.
    fn reuse(&self, spare: Spare, base: Lsn) -> Result<Option<Made>> {
        self.recycler.sync_names().inspect_err(|error| self.poison(error))?;
        let opened = match &spare.file {
            Some(file) => Ok(Arc::clone(file)),
            None => self.open(&spare.path, self.options.segment_len),
        };
        let file = match opened.and_then(|file| self.write_head(file, base)) {
            Ok(file) => file,
            Err(error) if error.is_retryable() => {
                self.recycler.put_back(spare);
                return Err(error);
            }
            // The device may have lost a sector of it. Another file is as good.
            Err(_) => {
                self.give_up(spare);
                return Ok(None);
            }
        };
        match self.sync_head(file, base) {
            Ok(segment) => {
                reached(Reach::SegmentRecycled);
                Ok(Some(Made { segment, path: spare.path.clone(), spare: Some(spare) }))
            }
            Err(error) => {
                self.give_up(spare);
                Err(error)
            }
        }
    }

    /// Removes a spare. If that fails it is in no list, so this process does not use it again.
    fn give_up(&self, Spare { path, file }: Spare) {
        debug_assert!(path.extension().is_some_and(|kind| kind == "spare"), "{path:?} is in use");
        drop(file);
        let _ = self.fs.remove(&path);
    }

    fn create(&self, base: Lsn) -> Result<Made> {
        let path = self.options.dir.join(file_name(base, SegmentKind::Unfinished));
        // An earlier attempt may have left it, after a sync that has lost some of it.
        if self.fs.exists(&path)? {
            self.fs.remove(&path)?;
        }
        let opened = self.open(&path, self.table.len_at(base));
        let written = opened.and_then(|file| self.write_head(file, base));
        match written.and_then(|file| self.sync_head(file, base)) {
            Ok(segment) => Ok(Made { segment, path, spare: None }),
            Err(error) => {
                // An unfinished segment takes scarce room. If it cannot be removed now, the next
                // attempt or the next start removes it.
                let _ = self.fs.remove(&path);
                Err(error)
            }
        }
    }

    /// Opens or creates a file with `len` bytes of data.
    fn open(&self, path: &Path, len: u64) -> Result<Arc<dyn SegmentFile>> {
        // SAFETY: the database's lock keeps other engines out. This engine opens each file of the
        // log for writing only once: when it creates the file, or when it first takes a spare from
        // before this term. If naming the file fails, the only handle is dropped.
        unsafe { self.fs.open_segment(path, HEADER_PAGE_LEN + len, self.options.mode) }
    }

    /// Writes the header page of the segment at `base`.
    fn write_head(&self, file: Arc<dyn SegmentFile>, base: Lsn) -> Result<Arc<dyn SegmentFile>> {
        let page = header_page(self.options.uuid, base, self.generation);
        // SAFETY: the segment is not installed, so no other thread has it; and records never touch
        // this page.
        unsafe { file.copy_in(0, &page) }.map(|()| file)
    }

    /// Makes the header page of the segment at `base` durable. After an error the file must not be
    /// used: what the sync covered may be lost. Nothing else may be, as no LSN of the segment is
    /// handed out, so want of room is not final for the log. Any other error is: who has heard that
    /// a device cannot sync must not acknowledge what it is to keep.
    fn sync_head(&self, file: Arc<dyn SegmentFile>, base: Lsn) -> Result<Segment> {
        // Only the page must be durable. The bytes after it, zeros or old records, have no meaning.
        // But the first sync of bytes that were never on the device takes longer, so sync them here
        // in the term's first segment, and if syncs are expected.
        let first = base == self.start;
        let len = if first || self.expects_syncs() { file.len() } else { HEADER_PAGE_LEN };
        let synced = file.sync_range(0, len);
        if let Some(error) = synced.as_ref().err().filter(|error| !error.is_retryable()) {
            self.poison(error);
        }
        synced?;
        Ok(Segment { base, end: base + self.table.len_at(base), file })
    }

    /// True if a commit asked for a sync not long ago.
    fn expects_syncs(&self) -> bool {
        let asked = self.syncer.last_asked();
        asked != 0 && self.copied.at() < asked + SYNC_MEMORY
    }

    /// Starts write-back of the whole pieces that are copied. Returns the LSN reached.
    fn write_back(&self, mut from: Lsn) -> Lsn {
        let piece = WRITE_BACK_PIECE.min(self.options.segment_len);
        let copied = self.copied.at();
        if !self.expects_syncs() {
            return from;
        }
        let to = copied / piece * piece;
        from = from.max(self.syncer.durable() / piece * piece);
        if from >= to {
            return from;
        }
        for segment in self.table.overlapping(from, to) {
            let start = from.max(segment.base);
            let end = to.min(segment.end);
            segment.file.write_back(segment.offset(start), end - start);
        }
        to
    }

    pub(super) fn retire(&self, below: Lsn) {
        assert!(below <= self.room.tail(), "the log would be given up beyond its tail");
        // What is no longer read from the log need not be synced there: it survives in tables.
        let copied_below = below.min(self.copied.at());
        self.syncer.advance(copied_below);
        let mut retired: Vec<_> = self
            .table
            .remove_below(copied_below)
            .into_iter()
            .map(|segment| {
                let path = segment.file.path();
                let (kind, base) = (SegmentKind::Log, segment.base);
                let file_len = HEADER_PAGE_LEN + (segment.end - base);
                (SegmentInfo { path, kind, base, file_len }, Some(Arc::clone(&segment.file)))
            })
            .collect();
        retired.extend(self.recycler.leftovers_below(below).into_iter().map(|info| (info, None)));
        for (info, file) in retired {
            // A file that can be neither renamed nor removed stays until the next start.
            if let Ok(false) = self.recycler.recycle(&*self.fs, &info, file.clone()) {
                self.recycler.mark_obsolete(info.path, file);
            }
        }
        self.signal.notify();
    }

    /// Removes the files that only a log in use needs: spares, and segments above the tail.
    pub(super) fn give_up_unused(&self) {
        debug_assert_eq!(self.copied.at(), self.room.tail(), "a record is still being copied");
        for segment in self.table.remove_above(self.room.tail()) {
            self.recycler.mark_obsolete(segment.file.path(), Some(Arc::clone(&segment.file)));
        }
        self.recycler.mark_spares_obsolete(usize::MAX);
        self.recycler.discard(&*self.fs);
    }
}

/// For the tests of the log.
#[cfg(all(test, not(any(loom, shuttle))))]
impl Inner {
    pub(super) fn write_back_once(&self, from: Lsn) -> Lsn {
        self.write_back(from)
    }

    pub(super) fn has_syncs_to_expect(&self) -> bool {
        self.expects_syncs()
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn a_notice_ends_one_wait_only() {
        let signal = Signal::new();
        signal.notify();
        assert!(signal.wait());
        assert!(!signal.state.lock().is_set, "the next wait would not sleep");
    }
}
