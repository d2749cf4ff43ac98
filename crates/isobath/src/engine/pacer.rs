//! How fast writers may go.
//!
//! Writers fill memory and level 0; flushes and compactions empty them. The pacer slows writers a
//! little, long before memory or level 0 is full, and more the fuller they are. So the rate of
//! writers settles at the rate of the background work, and writers hardly ever stop for lack of
//! memory.
//!
//! How far flushes or compactions are behind is a number, the *lag*. Writers are paced by the one
//! that costs them more. Up to a lag of 0 writers are not paced. From there on the cost of a byte,
//! in waiting time, grows with the square of the lag. Let `drain` be the smoothed rate at which the
//! background work empties what is full. At a lag of one half, the cost lets writers go exactly as
//! fast as `drain`. At a lag of 1, where it is full, the cost is four times as much.
//!
//! Compactions can be further behind than full. Beside programs of a higher priority they may get
//! no processor at all, while the pacer still uses the rate that was measured when they had one. So
//! from a lag of 2 on, which a long compaction does not reach, the cost grows again, by the same
//! law with the lag less 1. This additional cost makes a write wait for at most one second. That is
//! enough to stop small writes, and it ends soon after compactions continue.
//!
//! A large write claims its time piece by piece, each at the cost of that moment. So the wait ends
//! when the reason for it does, and small writes that come meanwhile are admitted between the
//! pieces. Only with `fail_fast` it is claimed at once, as such a write does not wait.

use crate::env::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::env::sync::{Mutex, Rank};
use crate::env::{Clock, Reach, Threads, reached};
use crate::error::{Error, Result, StallCause};
use std::sync::Arc;
use std::time::Duration;

/// How full the memory for writes may be before flushes pace writers.
const MEMORY_FREE: f64 = 0.5;
/// A writer sleeps once it owes this much time.
const DEBT_NS: u64 = 250_000;
/// A wait is cut into pieces of at most this length, so that the writer notices when the lag ends.
/// A claim has this length, too, so that others are admitted in between.
const NAP_NS: u64 = 5_000_000;
/// The longest that a write waits because compactions are further behind than full, while no other
/// writes.
const BEYOND_FULL_NS_MAX: u64 = 1_000_000_000;
/// The time that a write claims at once which has waited for so long, as long as compactions are
/// further behind than full.
const LATE_NS: u64 = 100_000_000;

/// The causes of waits that the pacer counts, in the order of its gauges.
pub(crate) const PACED: [StallCause; 3] =
    [StallCause::FlushBehind, StallCause::CompactionBehind, StallCause::MemoryFull];

/// The waits for one cause.
#[derive(Debug, Default)]
pub(crate) struct StallGauge {
    pub(crate) count: AtomicU64,
    pub(crate) total_ns: AtomicU64,
    pub(crate) max_ns: AtomicU64,
}

/// What each byte of a write costs, in picoseconds.
struct Price {
    ps: u64,
    /// The same if compactions were at most so far behind as full ...
    full_ps: u64,
    /// ... and whether they are further behind than that.
    is_beyond: bool,
    cause: StallCause,
}

impl Price {
    /// The bytes that a writer may claim at once who has waited for so long: those of a short nap.
    /// What compactions beyond full add is over after a second. Then they are more, because each
    /// claim queues behind those of all others, which pay that addition still.
    fn piece(&self, waited_ns: u64) -> u64 {
        let (ns, ps) = match self.is_beyond && waited_ns >= BEYOND_FULL_NS_MAX {
            true => (LATE_NS, self.full_ps),
            false => (NAP_NS, self.ps),
        };
        (ns * 1000).checked_div(ps).unwrap_or(u64::MAX).max(1)
    }

    /// When the next write may begin, if so many bytes are written at `start` or later. What
    /// compactions beyond full add ends within a second after the write began.
    fn due(&self, bytes: u64, start: u64, began: u64) -> u64 {
        let ns = |ps| bytes.saturating_mul(ps) / 1000;
        (start + ns(self.ps)).min(began + BEYOND_FULL_NS_MAX).max(start + ns(self.full_ps))
    }
}

/// Slows writers down.
pub(crate) struct Pacer {
    clock: Arc<dyn Clock>,
    threads: Arc<dyn Threads>,
    /// False while writers are not paced. A writer that is not paced reads only this word.
    is_active: AtomicBool,
    /// The cost of a byte in picoseconds, because compactions are behind.
    compaction_cost_ps: AtomicU64,
    /// The same cost if the lag of compactions were at most 1.
    full_cost_ps: AtomicU64,
    /// The smoothed rate of flushes, in bytes per second.
    flush_rate: AtomicU64,
    /// True while sealed epochs wait behind the one that is being flushed.
    is_flush_behind: AtomicBool,
    /// The time on the clock at which the next byte may be written.
    next_ns: AtomicU64,
    /// Held while the pace is set, so that the last caller's values stay.
    setting: Mutex<()>,
    stalls: [StallGauge; 3],
}

impl Pacer {
    pub(crate) fn new(clock: Arc<dyn Clock>, threads: Arc<dyn Threads>) -> Pacer {
        Pacer {
            clock,
            threads,
            is_active: AtomicBool::new(false),
            compaction_cost_ps: AtomicU64::new(0),
            full_cost_ps: AtomicU64::new(0),
            flush_rate: AtomicU64::new(0),
            is_flush_behind: AtomicBool::new(false),
            next_ns: AtomicU64::new(0),
            setting: Mutex::new(Rank::Pace, ()),
            stalls: Default::default(),
        }
    }

    /// Admits a write of `bytes`; it waits if writers are paced. `fullness` tells how full the
    /// memory for writes is, 0 to 1. If `check` fails meanwhile, the wait ends with that error.
    #[inline]
    pub(crate) fn admit_if(
        &self,
        check: impl Fn() -> Result<()>,
        bytes: u64,
        fail_fast: bool,
        fullness: impl Fn() -> f64,
    ) -> Result<()> {
        if !self.is_active.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.pace(&check, bytes, fail_fast, &fullness)
    }

    /// Admits a write whose wait nothing ends early.
    #[cfg(test)]
    pub(crate) fn admit(
        &self,
        bytes: u64,
        fail_fast: bool,
        fullness: impl Fn() -> f64,
    ) -> Result<()> {
        self.admit_if(|| Ok(()), bytes, fail_fast, fullness)
    }

    #[cold]
    fn pace(
        &self,
        check: &dyn Fn() -> Result<()>,
        bytes: u64,
        fail_fast: bool,
        fullness: &dyn Fn() -> f64,
    ) -> Result<()> {
        let began = self.clock.now_ns();
        let (mut here, mut left, mut checked) = (began, bytes, Ok(()));
        let cause = loop {
            let price = self.price(bytes, fullness);
            let piece = if fail_fast { left } else { left.min(price.piece(here - began)) };
            let due_after = |next: u64| price.due(piece, next.max(here), began);
            // With `fail_fast`, a writer that would have to wait for the debt of others is refused
            // and adds nothing to it.
            let claim =
                |next: u64| (!fail_fast || next < here + DEBT_NS).then_some(due_after(next));
            let claimed = self.next_ns.fetch_update(Ordering::Relaxed, Ordering::Relaxed, claim);
            let Ok(before) = claimed else { return Err(Error::would_stall(price.cause)) };
            let due = due_after(before);
            left -= piece;
            let is_first = here == began;
            if fail_fast || (is_first && left == 0 && due < here + DEBT_NS) {
                return Ok(());
            }
            let is_active = || self.is_active.load(Ordering::Relaxed);
            while checked.is_ok() && here + DEBT_NS / 4 < due && is_active() {
                self.threads.sleep(Duration::from_nanos((due - here).min(NAP_NS)));
                here = self.clock.now_ns();
                checked = check();
            }
            if left == 0 || checked.is_err() || !is_active() {
                break price.cause;
            }
        };
        reached(Reach::StallPaced);
        self.count(cause, here - began);
        checked
    }

    /// What a write of so many bytes costs at present.
    fn price(&self, bytes: u64, fullness: &dyn Fn() -> f64) -> Price {
        let flush_ps = match self.is_flush_behind.load(Ordering::Relaxed) {
            true => {
                let lag = (fullness() - MEMORY_FREE) / (1.0 - MEMORY_FREE);
                cost(lag.min(1.0), self.flush_rate.load(Ordering::Relaxed) as f64)
            }
            false => 0,
        };
        let compaction_ps = self.compaction_cost_ps.load(Ordering::Relaxed);
        let full_ps = flush_ps.max(self.full_cost_ps.load(Ordering::Relaxed));
        let beyond_ps_max = BEYOND_FULL_NS_MAX * 1000 / bytes.max(1);
        let cause = match flush_ps > compaction_ps {
            true => StallCause::FlushBehind,
            false => StallCause::CompactionBehind,
        };
        let is_beyond = compaction_ps > full_ps;
        let ps = full_ps.max(compaction_ps.min(beyond_ps_max));
        Price { full_ps, is_beyond, ps, cause }
    }

    /// Counts a wait.
    pub(crate) fn count(&self, cause: StallCause, waited_ns: u64) {
        debug_assert_eq!(PACED[cause as usize], cause, "a gauge counts one cause");
        let gauge = &self.stalls[cause as usize];
        gauge.count.fetch_add(1, Ordering::Relaxed);
        gauge.total_ns.fetch_add(waited_ns, Ordering::Relaxed);
        gauge.max_ns.fetch_max(waited_ns, Ordering::Relaxed);
    }

    pub(crate) fn now_ns(&self) -> u64 {
        self.clock.now_ns()
    }

    /// Sets the pace by compactions: their lag, and the bytes per second that they can sustain.
    pub(crate) fn set_compactions(&self, lag: f64, drain: f64) {
        let _setting = self.setting.lock();
        let full = lag.min(1.0);
        self.compaction_cost_ps.store(cost(full.max(lag - 1.0), drain), Ordering::Relaxed);
        self.full_cost_ps.store(cost(full, drain), Ordering::Relaxed);
        self.refresh();
    }

    /// Sets the pace by flushes: whether sealed epochs wait, and the rate of the last flush.
    pub(crate) fn set_flush(&self, is_behind: impl FnOnce() -> bool, rate: Option<u64>) {
        let _setting = self.setting.lock();
        self.is_flush_behind.store(is_behind(), Ordering::Relaxed);
        if let Some(rate) = rate {
            let before = self.flush_rate.load(Ordering::Relaxed);
            let smoothed = if before == 0 { rate } else { before - before / 4 + rate / 4 };
            self.flush_rate.store(smoothed, Ordering::Relaxed);
        }
        self.refresh();
    }

    /// True once a rate of flushes was measured.
    pub(crate) fn knows_flushes(&self) -> bool {
        self.flush_rate.load(Ordering::Relaxed) > 0
    }

    /// Whether flushes are behind, and their smoothed rate.
    #[cfg(all(test, not(any(loom, shuttle))))]
    pub(crate) fn flush_pace(&self) -> (bool, u64) {
        (self.is_flush_behind.load(Ordering::Relaxed), self.flush_rate.load(Ordering::Relaxed))
    }

    /// Recomputes `is_active`. The caller holds `setting`.
    fn refresh(&self) {
        let is_active = self.compaction_cost_ps.load(Ordering::Relaxed) > 0
            || self.is_flush_behind.load(Ordering::Relaxed);
        if !is_active {
            // When the lag ends, the writers' debt is cancelled. Otherwise the next pause would
            // begin with the rest of this one.
            self.next_ns.store(0, Ordering::Relaxed);
        }
        self.is_active.store(is_active, Ordering::Relaxed);
    }

    pub(crate) fn stalls(&self) -> &[StallGauge; 3] {
        &self.stalls
    }
}

/// The cost of a byte in picoseconds, at a drain of `drain` bytes per second. No cost up to a lag
/// of 0; the drain rate itself at one half; a quarter of the drain rate at 1.
fn cost(lag: f64, drain: f64) -> u64 {
    if lag <= 0.0 {
        return 0;
    }
    let at_drain = 1e12 / drain.max(1e6);
    (at_drain * 4.0 * lag * lag).max(1.0) as u64
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
