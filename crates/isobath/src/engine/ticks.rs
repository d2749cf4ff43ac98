//! What time it is at a point of the log, for values that end.
//!
//! A *tick* is a record of the log that tells the time. The time at a point is that of the last
//! tick below it, and 0 before the first one. So it depends on the point alone, never goes back as
//! points rise, and is the same for every reader at a point, here and in other processes.
//!
//! Ticks are made when someone asks: a read that meets a value whose end has come by the clock but
//! not at its point, a scan or a transaction that begins while values may end, and maintenance,
//! for readers in other processes. Each has a later time than the one before. So there is at most
//! one in a millisecond, and none while no value ends. `docs/internals/expiry.md` has the whole
//! argument.

use super::{Engine, Line};
use crate::env::sync::atomic::{AtomicU64, Ordering};
use crate::env::sync::{Mutex, Rank};
use crate::env::{Plant, planted};
use crate::error::Result;
use crate::format::{Lsn, OpKind, Payload, put_payload};
use crate::mvcc::{Expiring, ReaderPoints};
use crate::options::Expiry;
use crate::version::{Change, State, Tick};
use crate::wal::{self, RECORD_HEADER_LEN, Reservation};
use std::collections::{BTreeMap, VecDeque};

/// The length of a tick's record.
const TICK_LEN: u64 = RECORD_HEADER_LEN as u64 + 16;

/// How long a tick of maintenance may be late for a value whose end is not the next one known.
pub(super) const UNKNOWN_ENDS_MS: u64 = 60_000;

/// The ticks of an open database.
pub(crate) struct Ticks {
    /// The newest tick, for readers above it. Its LSN is `MAX` while both change.
    newest_lsn: AtomicU64,
    newest_ms: AtomicU64,
    known: Mutex<Known>,
    /// No value that is known of ends sooner than this after the last tick; `MAX` if none ends.
    next_end: AtomicU64,
    /// Every value ends at or before this; 0 if none ends.
    last_end: AtomicU64,
    /// The latest time that reads went by which write no tick.
    reached: AtomicU64,
    /// Bytes of the log that this process has filled with ticks.
    written_bytes: AtomicU64,
}

#[cfg(test)]
thread_local! {
    /// How many ticks this thread has looked at.
    static LOOKS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// Counts ticks that are looked at, for tests.
#[inline(always)]
fn note_looks(_count: usize) {
    #[cfg(test)]
    LOOKS.set(LOOKS.get() + _count);
}

#[derive(Default)]
struct Known {
    /// Ascending. With a history they may be very many.
    ticks: VecDeque<Tick>,
    /// The manifest has the ticks below this LSN.
    filed: Lsn,
    /// Ticks that only points below this ask for are forgotten.
    forgotten: Lsn,
    /// The times at registered points below that, by the point.
    held: BTreeMap<Lsn, u64>,
}

impl Known {
    /// How many ticks lie below `lsn`.
    fn below(&self, lsn: Lsn) -> usize {
        self.ticks.partition_point(|tick| {
            note_looks(1);
            tick.lsn < lsn
        })
    }

    fn time_at(&self, point: Lsn) -> Option<u64> {
        if point < self.forgotten {
            return self.held.get(&point).copied();
        }
        Some(self.below(point).checked_sub(1).map_or(0, |last| self.ticks[last].unix_ms))
    }
}

impl Ticks {
    /// The ticks of a database whose manifest has these.
    pub(crate) fn new(state: &State) -> Ticks {
        let ticks = Ticks::of(state.ticks());
        let slices = state.families().flat_map(|(_, family)| family.tree.iter());
        for ends in slices.filter_map(|(_, slice)| slice.meta.ends) {
            ticks.note_end(ends.least);
            ticks.note_end(ends.greatest);
        }
        let mut known = ticks.known.lock();
        known.filed = known.ticks.back().map_or(0, |last| last.lsn + 1);
        drop(known);
        ticks
    }

    /// Some ticks.
    pub(crate) fn of(known: &[Tick]) -> Ticks {
        let ticks = Ticks {
            newest_lsn: AtomicU64::new(0),
            newest_ms: AtomicU64::new(0),
            known: Mutex::new(Rank::Ticks, Known::default()),
            next_end: AtomicU64::new(u64::MAX),
            last_end: AtomicU64::new(0),
            reached: AtomicU64::new(0),
            written_bytes: AtomicU64::new(0),
        };
        ticks.learn(known);
        ticks
    }

    /// Takes in ticks that come after those that are known, in order, and passes over others.
    pub(crate) fn learn(&self, ticks: &[Tick]) {
        let mut known = self.known.lock();
        let newest = known.ticks.back().map_or(0, |last| last.lsn);
        let from = ticks.partition_point(|tick| tick.lsn < newest);
        for tick in &ticks[from..] {
            let follows = |last: &Tick| last.lsn < tick.lsn && last.unix_ms < tick.unix_ms;
            if known.ticks.back().is_none_or(follows) {
                self.add(&mut known, *tick);
            }
        }
    }

    /// Takes in what a reader beside the writer has found. It writes no tick, so that of its newest
    /// point is its own: the time of the clock when it looked last. That tick is returned.
    #[must_use]
    pub(crate) fn follow(&self, line: &mut Line, unix_ms: u64) -> Tick {
        // A power cut may have taken a tick from the log that the manifest has. Its time has passed
        // for all that is left.
        let (there, lost) =
            line.ticks.split_at(line.ticks.partition_point(|tick| tick.lsn < line.next));
        self.learn(there);
        let unix_ms = lost.last().map_or(unix_ms, |tick| tick.unix_ms.max(unix_ms));
        let learned = line.ticks.len().saturating_sub(1);
        line.ticks.drain(..learned);
        // It has no manifest to tell.
        self.note_filed(Lsn::MAX);
        Tick { lsn: line.next.saturating_sub(1), unix_ms: self.reach(unix_ms) }
    }

    /// Gives a reader's newest point the time of this tick, if that is later than what it has. No
    /// one may be registered there.
    pub(crate) fn come_to(&self, tick: Tick) {
        let mut known = self.known.lock();
        let is_replaced = |last: &Tick| last.lsn == tick.lsn && last.unix_ms < tick.unix_ms;
        if known.ticks.back().is_some_and(is_replaced) {
            known.ticks.pop_back();
        }
        let follows = |last: &Tick| last.lsn < tick.lsn && last.unix_ms < tick.unix_ms;
        if known.ticks.back().is_none_or(follows) {
            self.add(&mut known, tick);
        }
    }

    fn add(&self, known: &mut Known, tick: Tick) {
        let is_later = |last: &Tick| last.lsn < tick.lsn && last.unix_ms < tick.unix_ms;
        debug_assert!(known.ticks.back().is_none_or(is_later), "time goes back");
        known.ticks.push_back(tick);
        self.newest_lsn.store(Lsn::MAX, Ordering::Release);
        self.newest_ms.store(tick.unix_ms, Ordering::Release);
        self.newest_lsn.store(tick.lsn, Ordering::Release);
    }

    /// The time at `point`; `None` if it is forgotten, as it may be for a point that is not
    /// registered.
    #[inline]
    pub(crate) fn time_at(&self, point: Lsn) -> Option<u64> {
        let lsn = self.newest_lsn.load(Ordering::Acquire);
        let unix_ms = self.newest_ms.load(Ordering::Acquire);
        // The time is that of this tick if the LSN has not changed before it was read.
        if lsn < point && self.newest_lsn.load(Ordering::Acquire) == lsn {
            return Some(unix_ms);
        }
        self.time_before(point)
    }

    /// The time at the LSN of a commit that is reserved. A tick below it is known here even if it
    /// is not written yet.
    pub(crate) fn time_of_commit(&self, lsn: Lsn) -> u64 {
        self.time_before(lsn).unwrap_or(u64::MAX)
    }

    #[cold]
    fn time_before(&self, point: Lsn) -> Option<u64> {
        self.known.lock().time_at(point)
    }

    /// The time of the last tick.
    pub(crate) fn newest(&self) -> u64 {
        self.newest_ms.load(Ordering::Acquire)
    }

    /// The time for a read that writes no tick: that of the clock, if that has not been set back.
    pub(crate) fn reach(&self, unix_ms: u64) -> u64 {
        self.reached.fetch_max(unix_ms, Ordering::AcqRel).max(unix_ms)
    }

    /// Forgets ticks that no reader asks for.
    pub(crate) fn forget(&self, readers: &ReaderPoints) {
        let mut known = self.known.lock();
        // What the manifest does not have may be asked for after a crash.
        let horizon = readers.horizon().min(known.filed);
        let below = known.below(horizon).saturating_sub(1);
        if below > 0 {
            let forgotten = known.forgotten.max(known.ticks[below].lsn + 1);
            let held = readers.registered().iter().filter(|point| **point < forgotten);
            let held = held.filter_map(|point| Some((*point, known.time_at(*point)?))).collect();
            (known.held, known.forgotten) = (held, forgotten);
            known.ticks.drain(..below);
        }
    }

    /// How many ticks are in memory.
    #[cfg(all(test, not(any(loom, shuttle))))]
    fn count(&self) -> usize {
        let known = self.known.lock();
        known.ticks.len() + known.held.len()
    }

    /// Bytes of the log that this process has filled with ticks.
    pub(crate) fn written_bytes(&self) -> u64 {
        self.written_bytes.load(Ordering::Acquire)
    }

    /// Bytes that ticks take in the log from `lsn` on, of which the manifest has none.
    pub(crate) fn logged_from(&self, lsn: Lsn) -> u64 {
        let known = self.known.lock();
        (known.ticks.len() - known.below(lsn)) as u64 * TICK_LEN
    }

    /// The change that tells the manifest of the ticks below `lsn` which readers from `horizon` on
    /// ask for.
    pub(crate) fn changes(&self, horizon: Lsn, lsn: Lsn) -> Option<Change> {
        self.changes_behind(None, horizon, lsn)
    }

    /// The same for a record of the manifest that has the ticks up to `last` already: those of the
    /// edits before in the same record are not noted yet.
    pub(crate) fn changes_behind(
        &self,
        last: Option<Tick>,
        horizon: Lsn,
        lsn: Lsn,
    ) -> Option<Change> {
        if planted(Plant::TicksForgotten) {
            return None;
        }
        let known = self.known.lock();
        let from = known.below(horizon).saturating_sub(1).max(known.below(known.filed));
        let from = from.max(last.map_or(0, |last| known.below(last.lsn + 1)));
        let range = from..known.below(lsn).max(from);
        note_looks(range.len());
        let ticks: Vec<_> = known.ticks.range(range).copied().collect();
        (!ticks.is_empty()).then_some(Change::Ticks { ticks })
    }

    /// Notes that the manifest has the ticks below `lsn`.
    pub(crate) fn note_filed(&self, lsn: Lsn) {
        let mut known = self.known.lock();
        known.filed = known.filed.max(lsn);
    }

    /// Notes that a value may end then. To be called before a reader can see it.
    #[inline]
    pub(crate) fn note_end(&self, ends_ms: u64) {
        self.last_end.fetch_max(ends_ms, Ordering::AcqRel);
        self.next_end.fetch_min(ends_ms, Ordering::AcqRel);
    }

    /// The same for an operation that may put such a value.
    pub(crate) fn note_op(&self, kind: OpKind, stored: &[u8]) {
        if kind.is_expiring()
            && let Some(ends) = Expiring::split(stored)
        {
            self.note_end(ends.expires_ms);
        }
    }

    /// The greatest end that a value may have; 0 if no value ends.
    #[inline]
    pub(crate) fn last_end(&self) -> u64 {
        self.last_end.load(Ordering::Acquire)
    }

    /// True if values may have ended since the last tick of maintenance.
    pub(crate) fn is_due(&self, now_ms: u64) -> bool {
        now_ms >= self.next_end.load(Ordering::Acquire)
    }

    /// Notes that all is told that has ended by now.
    pub(super) fn note_told(&self, now_ms: u64) {
        // An exchange: who notes an end now either comes later, or its end is seen below. Behind a
        // store the load could come first.
        self.next_end.swap(u64::MAX, Ordering::AcqRel);
        // What ends later, and was noted before, is not known one by one.
        if self.last_end() > now_ms {
            let later = now_ms.saturating_add(UNKNOWN_ENDS_MS);
            self.next_end.fetch_min(later, Ordering::AcqRel);
        }
    }
}

impl Engine {
    /// The time by which it is decided whether a relative end has come: it never goes back.
    pub(crate) fn now_ms(&self) -> u64 {
        self.ticks.newest().max(self.clock_ms())
    }

    /// What is stored as the end of a value that is put now: `None` without one, and 0 for one that
    /// has passed.
    pub(crate) fn note_expiry(&self, expiry: Expiry) -> Result<Option<u64>> {
        let expires_ms = expiry.stored(self.now_ms())?;
        // An end that has passed asks for no tick.
        if let Some(expires_ms) = expires_ms.filter(|expires_ms| *expires_ms > 0) {
            self.ticks.note_end(expires_ms);
        }
        Ok(expires_ms)
    }

    /// Lets points from now on have the time of the clock, if values may end. If the log takes no
    /// record now, the time stays as it is.
    #[inline]
    pub(crate) fn tick_if_values_end(&self) {
        let last_end = self.ticks.last_end();
        if last_end > self.ticks.newest() {
            self.tick(self.clock_ms());
        } else if last_end > 0 {
            self.await_tick();
        }
    }

    /// Lets points from now on have this time, unless they have a later one. If the log takes no
    /// record now, the time stays as it is.
    #[cold]
    #[inline(never)]
    pub(crate) fn tick(&self, unix_ms: u64) {
        if self.shown.is_some() || self.check_writable().is_err() {
            return;
        }
        // An error poisons the log if it is for good. Otherwise the next one ticks.
        if unix_ms <= self.ticks.newest() || !self.write_tick(unix_ms).unwrap_or(true) {
            self.await_tick();
        }
    }

    /// Waits for the newest tick, which another thread may be writing. Points have its time only
    /// once it is visible.
    #[inline]
    fn await_tick(&self) {
        if self.ticks.newest_lsn.load(Ordering::Acquire) >= self.log.visible() {
            let newest = self.ticks.known.lock().ticks.back().map_or(0, |last| last.lsn);
            // A broken log never shows it.
            let _ = self.log.wait_visible(newest + 1);
        }
    }

    /// False if a later one is known.
    fn write_tick(&self, unix_ms: u64) -> Result<bool> {
        let mut record = vec![0; RECORD_HEADER_LEN];
        put_payload(&mut record, &Payload::Tick { unix_ms });
        let mut record = wal::seal(&mut record);
        debug_assert_eq!(record.len() as u64, TICK_LEN);
        let Some(mut reservation) = self.reserve_tick(unix_ms)? else {
            return Ok(false);
        };
        let end = reservation.end();
        reservation.write(&mut record);
        reservation.publish();
        self.log.wait_visible(end).map(|()| true)
    }

    /// Reserves a place for a tick and makes it known; `None` if a later one is known. Who finds no
    /// tick below an LSN of its own under the lock of this knows that there is none.
    fn reserve_tick(&self, unix_ms: u64) -> Result<Option<Reservation<'_>>> {
        let mut known = self.ticks.known.lock();
        if known.ticks.back().is_some_and(|last| last.unix_ms >= unix_ms) {
            return Ok(None);
        }
        let reservation = self.log.reserve_with(TICK_LEN, wal::Patience::None)?;
        self.ticks.add(&mut known, Tick { lsn: reservation.start(), unix_ms });
        self.ticks.written_bytes.fetch_add(TICK_LEN, Ordering::AcqRel);
        Ok(Some(reservation))
    }

    /// Forgets ticks that no reader beside the writer asks for.
    pub(crate) fn forget_ticks(&self) {
        self.ticks.forget(&self.points.readers_from(self.points.horizon()));
    }

    /// Ticks for readers in other processes and for compactions, if values may have ended since.
    /// True if some may.
    pub(crate) fn tick_for_others(&self) -> bool {
        let now_ms = self.clock_ms();
        let is_due = self.ticks.is_due(now_ms);
        if is_due {
            self.tick(now_ms);
            self.ticks.note_told(now_ms);
            if self.ticks.newest() < now_ms {
                // The log took no record.
                self.ticks.next_end.fetch_min(now_ms, Ordering::AcqRel);
            }
        }
        is_due
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
