//! The log while it is open: reserve, write, publish, sync.
//!
//! ```text
//! reserve(len) ── room ──► Reservation [start, end)          tail moves
//!   .write(record)  stamp, copy into the segments            copied moves
//!   (the caller applies the commit)
//!   .publish()                                               visible moves
//! wait_visible(end)                                          the commit may be acknowledged
//! sync_to(end)                                               durable moves
//! ```
//!
//! Between reserve and publish a writer waits only for its predecessors, so writers cannot
//! deadlock. A reservation that is dropped before it was written becomes a skip record. One that is
//! dropped after it was written poisons the log: recovery may find its record though its caller
//! gave up.
//!
//! Invariants: `durable <= copied <= tail`, `visible <= copied`. `durable` moves either to a value
//! that `copied` had before a sync began, or to a point below which the log is no longer needed. A
//! poisoned log neither syncs nor hands out LSNs again.
//!
//! Every reservation marks `copied` in the end: its record is in the segments, or the copy failed
//! and poisoned the log before the mark. So `copied` proves something only if the log is found
//! healthy *after* `copied` was read. Once `copied` has reached the tail of a shut log, poisoned or
//! not, no thread will write to it. [`Log::close`] waits for that: another process may use the
//! segments next, and a late copy must not overwrite what it wrote.

use super::frontier::Frontier;
use super::health::Health;
use super::preparer::{PreparerStats, Signal};
use super::record::{self, Sealed};
use super::recycler::Recycler;
use super::rest::Rest;
use super::room::{Patience, Room, RoomWaits, SLACK};
use super::segment::{SEGMENT_LEN_MAX, SEGMENT_LEN_MIN};
use super::segment_table::SegmentTable;
use super::syncer::{SyncCounts, Syncer};
use super::{RECORD_ALIGN, RECORD_HEADER_LEN};
use crate::background::Ticker;
use crate::env::sync::{Mutex, Rank, atomic::*};
use crate::env::{
    Clock, Env, Plant, Point, Priority, Reach, ThreadHandle, Threads, note_reserved, planted,
    reached, reached_if, yield_point,
};
use crate::error::{Error, PoisonCause, Result};
use crate::format::Lsn;
use crate::vfs::{FileAccess, FileSystem};
use crossbeam_utils::CachePadded;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Slots of a frontier's ring: records may finish up to 32 times as many bytes ahead of it.
const FRONTIER_SLOTS: usize = if cfg!(any(loom, shuttle)) { 64 } else { 1 << 14 };

/// A simulator picks rings so short that records wrap around them all the time.
fn frontier_slots() -> usize {
    #[cfg(feature = "simulation")]
    if let Some(slots) = crate::env::simulation::ring_slots_wanted() {
        return slots;
    }
    FRONTIER_SLOTS
}

/// The ceiling is raised when fewer bytes than this are left below it. Raising it may take seconds;
/// writers fill less than this meanwhile.
const CEILING_AHEAD: u64 = 1 << 31;

/// See [`LogOptions::admit_segment`].
pub(crate) type AdmitSegment = Box<dyn Fn(u64) -> Result<()> + Send + Sync>;

/// Called when the ceiling should be raised above the given LSN, never by a writer. It records
/// durably in the manifest that LSNs below a new ceiling may be in use, and returns the new
/// ceiling. If it fails in the preparer, the writers that wait for room get the error; the next
/// writer to find no room causes another attempt.
pub(crate) type RaiseCeiling = Box<dyn Fn(Lsn) -> Result<Lsn> + Send + Sync>;

/// How a log is opened.
pub(crate) struct LogOptions {
    pub(crate) dir: PathBuf,
    pub(crate) uuid: [u8; 16],
    /// Bytes of data in a segment: a power of two, 4096 at least.
    pub(crate) segment_len: u64,
    /// The length of the term's first segment; the next ones double. At most `segment_len`.
    pub(crate) first_segment_len: u64,
    pub(crate) mode: FileAccess,
    /// The most spare segments that are kept for reuse.
    pub(crate) spare_segments: usize,
    /// Syncs everything once in each interval, whether or not a commit asked for it.
    pub(crate) sync_interval: Option<Duration>,
    pub(crate) raise_ceiling: RaiseCeiling,
    /// Called before a segment is made, but for the first, with the room that it takes and the
    /// bytes that are in use then. Fails if the room is kept for others.
    pub(crate) admit_segment: AdmitSegment,
}

/// Counters of a log since its start.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LogStats {
    pub(crate) mode: FileAccess,
    /// Bytes reserved.
    pub(crate) bytes: u64,
    pub(crate) sync: SyncCounts,
    pub(crate) segments_created: u64,
    pub(crate) segments_recycled: u64,
    pub(crate) room_waits: RoomWaits,
    /// Bytes of records that were copied before their pages were faulted in.
    pub(crate) bytes_not_prefaulted: u64,
}

/// The open log of one term.
pub(crate) struct Log {
    pub(super) inner: Arc<Inner>,
    pub(super) preparer: Mutex<Option<Box<dyn ThreadHandle>>>,
    /// Syncs once in each [`LogOptions::sync_interval`].
    pub(super) interval: Option<Ticker>,
}

pub(super) struct Inner {
    pub(super) room: Room,
    pub(super) copied: Frontier,
    pub(super) visible: Frontier,
    pub(super) syncer: Syncer,
    pub(super) table: SegmentTable,
    /// The LSN below which pages were faulted in ahead of use.
    pub(super) prefaulted: AtomicU64,
    /// A reservation that reaches this LSN wakes the preparer.
    pub(super) wake_preparer_at: CachePadded<AtomicU64>,
    pub(super) bytes_not_prefaulted: AtomicU64,
    pub(super) start: Lsn,
    pub(super) generation: u16,
    pub(super) health: Health,
    pub(super) signal: Signal,
    pub(super) recycler: Recycler,
    pub(super) rest: Rest,
    pub(super) preparer_stats: PreparerStats,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) threads: Arc<dyn Threads>,
    pub(super) fs: Arc<dyn FileSystem>,
    pub(super) options: LogOptions,
}

impl Log {
    /// Starts a term at `start`, a multiple of the segment length above every LSN that earlier
    /// terms may have handed out. No record at or above `start` can exist, so segment files there
    /// are reused. Files below stay untouched until [`Log::retire`]. LSNs from `ceiling` on are not
    /// handed out.
    pub(crate) fn start(
        env: &Env,
        options: LogOptions,
        start: Lsn,
        ceiling: Lsn,
        generation: u16,
    ) -> Result<Log> {
        let len = options.segment_len;
        let is_length =
            |len: u64| len.is_power_of_two() && (SEGMENT_LEN_MIN..=SEGMENT_LEN_MAX).contains(&len);
        if !is_length(len) || !is_length(options.first_segment_len) {
            return Err(Error::invalid_argument(format!(
                "the log's segment length {len} is not a power of two from {SEGMENT_LEN_MIN} to {SEGMENT_LEN_MAX}"
            )));
        }
        if start == 0 || !start.is_multiple_of(len) {
            return Err(Error::invalid_argument(format!(
                "a log of segments of {len} bytes cannot start at {start:#x}"
            )));
        }
        let spares = Recycler::open(&*env.fs, &options, start)?;
        let first_len = if spares.is_stocked() { len } else { options.first_segment_len.min(len) };
        let mut inner = Inner {
            room: Room::new(start, ceiling),
            copied: Frontier::new(start, frontier_slots()),
            visible: Frontier::new(start, frontier_slots()),
            syncer: Syncer::new(start),
            table: SegmentTable::new(start, first_len, len),
            prefaulted: AtomicU64::new(start),
            wake_preparer_at: CachePadded::new(AtomicU64::new(start)),
            bytes_not_prefaulted: AtomicU64::new(0),
            start,
            generation,
            health: Health::new(),
            signal: Signal::new(),
            recycler: spares,
            rest: Rest::new(start),
            preparer_stats: PreparerStats::default(),
            clock: Arc::clone(&env.clock),
            threads: Arc::clone(&env.threads),
            fs: Arc::clone(&env.fs),
            options,
        };
        inner.prepare_first()?;
        inner.prefault();
        let inner = Arc::new(inner);
        let body = Arc::clone(&inner);
        let preparer = env
            .threads
            .spawn("isobath-log".to_owned(), Priority::Normal, Box::new(move || body.work_ahead()))
            .map_err(|error| Error::io("start the preparer of", &inner.options.dir, error))?;
        let mut log =
            Log { inner, preparer: Mutex::new(Rank::PreparerEnd, Some(preparer)), interval: None };
        if let Some(interval) = log.inner.options.sync_interval {
            log.interval = Some(log.start_interval(env, interval)?);
        }
        Ok(log)
    }

    fn start_interval(&self, env: &Env, interval: Duration) -> Result<Ticker> {
        let (log, broken) = (Arc::clone(&self.inner), Arc::clone(&self.inner));
        // A failure poisons the log, which wakes and fails every waiter.
        let sync = move || drop(log.sync_to(log.copied.at()));
        let report = move |_: &str, message: &str| {
            let cause = PoisonCause::panicked("in a sync of the log", message);
            broken.poison(&Error::poisoned(cause));
        };
        let (threads, priority) = (&*env.threads, Priority::Normal);
        let (sync, report) = (Box::new(sync), Arc::new(report));
        Ticker::new(threads, "isobath-sync", priority, interval, sync, report)
    }

    #[cfg(test)]
    pub(crate) fn reserve(&self, record_len: u64) -> Result<Reservation<'_>> {
        self.reserve_with(record_len, Patience::Waits)
    }

    /// Reserves room for a sealed record, and waits for it if `patience` allows. Fails with a
    /// retryable error if no room can be made, or because the log was poisoned or closed.
    #[inline]
    pub(crate) fn reserve_with(
        &self,
        record_len: u64,
        patience: Patience,
    ) -> Result<Reservation<'_>> {
        self.inner.reserve(record_len, SLACK, patience)
    }

    /// Like [`Log::reserve_with`], for a small record of the engine's own. It uses the room that
    /// other reservations leave free, and never waits: its caller holds locks that writers wait
    /// for. There is enough as long as an ordinary reservation comes between two internal ones.
    pub(crate) fn reserve_internal(&self, record_len: u64) -> Result<Reservation<'_>> {
        self.inner.reserve(record_len, 0, Patience::None)
    }

    /// The longest record this log takes.
    #[cfg(all(test, not(any(loom, shuttle))))]
    pub(crate) fn record_len_max(&self) -> u64 {
        self.inner.table.record_len_max()
    }

    /// Where the next record will go.
    #[inline]
    pub(crate) fn tail(&self) -> Lsn {
        self.inner.room.tail()
    }

    /// The bytes from the first segment that is kept up to the tail.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.inner.table.bytes_below(self.tail())
    }

    /// True if a segment for `lsn` is installed and its name survives power loss.
    pub(crate) fn has_room_at(&self, lsn: Lsn) -> bool {
        lsn < self.inner.room.prepared()
    }

    /// Every record below this LSN is in its segments.
    #[inline]
    #[cfg(all(test, not(any(loom, shuttle))))]
    pub(crate) fn copied(&self) -> Lsn {
        self.inner.copied.at()
    }

    /// True if a thread sleeps until a record is copied.
    #[cfg(all(test, not(any(loom, shuttle))))]
    pub(crate) fn has_sleepers_for_copies(&self) -> bool {
        self.inner.copied.has_sleepers()
    }

    /// Every record below this LSN is applied.
    #[inline]
    pub(crate) fn visible(&self) -> Lsn {
        self.inner.visible.at()
    }

    /// Everything below this LSN survives power loss. It may be ahead of `visible`: a durable read
    /// point is the lesser of both.
    #[inline]
    pub(crate) fn durable(&self) -> Lsn {
        self.inner.syncer.durable()
    }

    /// Returns once every record below `lsn` is published.
    #[inline]
    pub(crate) fn wait_visible(&self, lsn: Lsn) -> Result<()> {
        self.inner.visible.wait(lsn).map_err(|_| self.inner.health.outcome_unknown())
    }

    /// Returns once everything below `up_to`, the end of a reserved record, survives power loss.
    pub(crate) fn sync_to(&self, up_to: Lsn) -> Result<()> {
        self.inner.sync_to(up_to)
    }

    /// Refuses all further records and fails every waiter. The first cause stays.
    pub(crate) fn poison(&self, cause: &Error) {
        self.inner.poison(cause);
    }

    /// Fails if the log was poisoned or closed.
    pub(crate) fn check_healthy(&self) -> Result<()> {
        self.inner.health.check()
    }

    /// Retires the segments that lie wholly below `below`, of this term and of earlier ones. The
    /// manifest durably needs nothing below that LSN, so all of it counts as durable.
    pub(crate) fn retire(&self, below: Lsn) {
        self.inner.retire(below);
    }

    /// True if the ceiling should be raised now, long before the tail reaches it.
    pub(crate) fn wants_ceiling(&self) -> bool {
        self.inner.room.wants_ceiling(CEILING_AHEAD).is_some()
    }

    /// Raises the ceiling if it is time. If that fails, the writer that comes to the ceiling causes
    /// another attempt and gets its error. May block for long.
    pub(crate) fn raise_ceiling(&self) {
        let _ = self.inner.raise_ceiling(CEILING_AHEAD);
    }

    /// Refuses further records, waits until all reserved ones are written, syncs them and ends
    /// the preparer. The caller must not hold a reservation. After the call no thread writes to a
    /// segment, whatever it returns. A second call does nothing.
    pub(crate) fn close(&self) -> Result<()> {
        let inner = &self.inner;
        inner.health.close();
        inner.room.shut();
        let synced = inner.health.check_poison().and_then(|()| inner.sync_to(inner.room.tail()));
        inner.wait_copied(inner.room.tail());
        self.end_threads();
        if synced.is_ok() {
            inner.give_up_unused();
        }
        synced
    }

    fn end_threads(&self) {
        if let Some(interval) = &self.interval {
            interval.close();
        }
        self.inner.signal.stop();
        let preparer = self.preparer.lock().take();
        if let Some(preparer) = preparer {
            preparer.join();
        }
    }

    pub(crate) fn stats(&self) -> LogStats {
        let inner = &self.inner;
        LogStats {
            mode: inner.options.mode,
            bytes: inner.room.tail() - inner.start,
            sync: inner.syncer.counts(),
            segments_created: inner.preparer_stats.created.load(Ordering::Relaxed),
            segments_recycled: inner.preparer_stats.recycled.load(Ordering::Relaxed),
            room_waits: inner.room.waits(),
            bytes_not_prefaulted: inner.bytes_not_prefaulted.load(Ordering::Relaxed),
        }
    }
}

impl Drop for Log {
    /// Ends the preparer and syncs nothing: [`Log::close`] does that.
    fn drop(&mut self) {
        self.inner.health.close();
        self.inner.room.shut();
        self.end_threads();
    }
}

impl std::fmt::Debug for Log {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Log(tail {:#x}, durable {:#x})", self.tail(), self.durable())
    }
}

impl Inner {
    #[inline]
    fn reserve(&self, len: u64, slack: u64, patience: Patience) -> Result<Reservation<'_>> {
        if len > self.table.record_len_max() {
            return Err(Error::invalid_argument(format!(
                "a commit of {len} bytes is too long for the log; it takes {} at most",
                self.table.record_len_max()
            )));
        }
        assert!(len >= RECORD_HEADER_LEN as u64 && len.is_multiple_of(RECORD_ALIGN));
        let start = match self.room.try_take(len, slack) {
            Some(start) => start,
            None => {
                reached(Reach::RoomWaited);
                let refusal = || self.health.check().err().unwrap_or_else(Error::closed);
                let wake = || self.signal.notify();
                self.room.take(len, slack, patience, &*self.clock, &wake, &refusal)?
            }
        };
        let end = start + len;
        reached_if(Reach::RecordAcross, || {
            start / self.options.segment_len < (end - 1) / self.options.segment_len
        });
        if end >= self.wake_preparer_at.load(Ordering::Relaxed) {
            self.wake_preparer();
        }
        note_reserved(end, slack == 0);
        yield_point(Point::Reserved);
        Ok(Reservation { log: self, start, end, stage: Stage::Reserved })
    }

    #[cold]
    fn wake_preparer(&self) {
        if self.wake_preparer_at.swap(Lsn::MAX, Ordering::Relaxed) != Lsn::MAX {
            self.signal.notify();
        }
    }

    pub(super) fn sync_to(&self, up_to: Lsn) -> Result<()> {
        if self.syncer.durable() >= up_to {
            return Ok(());
        }
        if !planted(Plant::HoleAcknowledged) {
            self.wait_copied(up_to);
        }
        let round = |durable| self.sync_round(durable);
        let sync = || self.syncer.sync_to(up_to, &*self.clock, &round);
        self.guard("syncing the log", sync).map_err(|_| self.health.outcome_unknown())
    }

    /// Returns once no copy below `up_to` is under way. Poisoning or closing does not interrupt it.
    pub(super) fn wait_copied(&self, up_to: Lsn) {
        let waited = self.copied.wait(up_to);
        debug_assert_eq!(waited, Ok(()));
    }

    /// Syncs everything copied so far and returns up to where. `durable` is what was durable before
    /// the call: retiring advances it at most to the `copied` of that moment, and `copied` only
    /// grows, so `durable <= copied` holds. What is durable by now may lie beyond `copied`.
    fn sync_round(&self, durable: Lsn) -> Result<Lsn> {
        let copied = self.to_sync();
        assert!(durable <= copied && copied <= self.room.tail(), "frontiers out of order");
        // Check after reading `copied`: it also moves over records whose copy failed.
        self.health.check_poison()?;
        for segment in self.table.overlapping(durable, copied) {
            let synced = segment.sync_range_unless_planted(durable, copied);
            synced.inspect_err(|error| self.poison(error))?;
        }
        Ok(copied)
    }

    pub(super) fn poison(&self, cause: &Error) {
        self.health.poison(cause);
        self.room.shut();
        self.visible.interrupt();
        self.syncer.stop();
    }

    /// Copies `bytes` to `lsn`. A failure that cannot pass poisons the log.
    ///
    /// # Safety
    /// The caller owns a reserved record that covers the range and is not yet marked copied.
    #[inline]
    unsafe fn copy_in(&self, mut lsn: Lsn, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            // SAFETY: the caller's promise covers every LSN of the range.
            let segment = unsafe { self.table.find(lsn) };
            let room = segment.end - lsn;
            let len = usize::try_from(room).map_or(bytes.len(), |room| room.min(bytes.len()));
            let (piece, rest) = bytes.split_at(len);
            // SAFETY: each LSN is handed out once, so no other thread writes these bytes, and no
            // thread reads them through this segment.
            let copy = || unsafe { segment.file.copy_in(segment.offset(lsn), piece) };
            if let Err(error) = copy() {
                self.outlast(error, &copy)?;
            }
            lsn += len as u64;
            bytes = rest;
        }
        Ok(())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Reserved,
    /// Being copied. The stage stays so if the copy panics.
    Copying,
    Copied,
    /// Published, or the copy failed and poisoned the log.
    Done,
}

/// A reserved range `[start, end)` of the log, which its owner must fill.
#[must_use = "an unused reservation leaves a skip record in the log"]
pub(crate) struct Reservation<'log> {
    log: &'log Inner,
    start: Lsn,
    end: Lsn,
    stage: Stage,
}

impl Reservation<'_> {
    /// The record's LSN, the sequence of its first operation.
    #[inline]
    pub(crate) fn start(&self) -> Lsn {
        self.start
    }

    /// The LSN after the record: the read point that sees it.
    #[inline]
    pub(crate) fn end(&self) -> Lsn {
        self.end
    }

    /// Copies the record, which has the reserved length, into the log. A file error, possible only
    /// where segments are not mapped, poisons the log.
    #[inline]
    pub(crate) fn write(&mut self, record: &mut Sealed<'_>) {
        let record = record.bytes_mut();
        assert!(self.stage == Stage::Reserved, "a record is written once");
        assert!(record.len() as u64 == self.end - self.start, "a record is as long as its room");
        let log = self.log;
        let durable = log.syncer.durable();
        debug_assert!(durable <= self.start, "a record that is not copied counts as durable");
        record::stamp(record, self.start, log.generation, durable);
        if self.end > log.prefaulted.load(Ordering::Relaxed) {
            log.bytes_not_prefaulted.fetch_add(record.len() as u64, Ordering::Relaxed);
        }
        self.copy(record);
        yield_point(Point::Copied);
    }

    #[inline]
    fn copy(&mut self, bytes: &[u8]) {
        self.stage = Stage::Copying;
        // SAFETY: this reservation covers the range and is not marked copied: its stage was
        // `Reserved`.
        let copied = unsafe { self.log.copy_in(self.start, bytes) };
        // After an error the log is poisoned, so the mark says only that this copy is over.
        self.stage = if copied.is_ok() { Stage::Copied } else { Stage::Done };
        self.log.copied.mark(self.start, self.end);
    }

    /// Marks the commit as applied. Does not wait for its predecessors: see [`Log::wait_visible`].
    #[inline]
    pub(crate) fn publish(mut self) {
        assert!(self.stage != Stage::Reserved, "a record is written before it is published");
        if self.stage == Stage::Copied {
            self.stage = Stage::Done;
            self.log.visible.mark(self.start, self.end);
        }
        yield_point(Point::Published);
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        if self.stage == Stage::Reserved {
            let log = self.log;
            let durable = log.syncer.durable();
            let len = self.end - self.start;
            self.copy(&record::skip_header(len, self.start, log.generation, durable));
            if self.stage == Stage::Copied {
                self.stage = Stage::Done;
                log.visible.mark(self.start, self.end);
            }
        }
        if self.stage == Stage::Copying {
            let cause = PoisonCause::panicked("while it wrote to the log", "");
            self.log.poison(&Error::poisoned(cause));
            self.log.copied.mark(self.start, self.end);
        }
        if self.stage == Stage::Copied {
            let what = format!("the commit at {:#x}, whose record is written,", self.start);
            self.log.poison(&Error::poisoned(PoisonCause::given_up(what)));
        }
    }
}

mod before;
mod several;

pub(crate) use before::Before;

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
