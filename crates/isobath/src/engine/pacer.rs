//! How fast writers may go.
//!
//! Flush and merges drain what writers pile up. Long before memory or level 0 is full, writers are slowed a
//! little; the fuller, the more, so that their rate settles at what the background drains, and the hard stop
//! (no epoch to write into) is hardly ever met. There is no cliff to fall off.
//!
//! How far something is behind is a number from 0 to 1, the *excess*, and writers are paced by what asks for more.
//! Up to 0 they are free. From there on a byte costs more and more waiting: at one half as much as lets writers go
//! as fast as `drain`, the smoothed rate at which the background empties what is full; at 1 four times as much.

use crate::components::sync::Mutex;
use crate::components::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::components::{Clock, Reach, Threads, reached};
use crate::error::{Error, Result};
use std::sync::Arc;
use std::time::Duration;

/// How full write memory may be before writers are paced by flushes.
const MEMORY_FREE: f64 = 0.5;
/// A writer sleeps once it owes this much.
const DEBT_NS: u64 = 250_000;
/// A single wait is cut into pieces of at most this, so that relief is noticed.
const NAP_NS: u64 = 5_000_000;

/// Why writers wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum StallCause {
    /// Paced while flush falls behind.
    PacedByFlush = 0,
    /// Paced while level 0 or the levels below fall behind.
    PacedByMerge = 1,
    /// Stopped: every memory budget is full.
    Memory = 2,
}

impl StallCause {
    pub(crate) const ALL: [StallCause; 3] =
        [StallCause::PacedByFlush, StallCause::PacedByMerge, StallCause::Memory];

    pub(crate) fn name(self) -> &'static str {
        match self {
            StallCause::PacedByFlush => "flush falls behind",
            StallCause::PacedByMerge => "merges fall behind",
            StallCause::Memory => "write memory is full",
        }
    }
}

/// Waits of one cause.
#[derive(Debug, Default)]
pub(crate) struct StallGauge {
    pub(crate) count: AtomicU64,
    pub(crate) total_ns: AtomicU64,
    pub(crate) max_ns: AtomicU64,
}

/// The writers' brake.
pub(crate) struct Pacer {
    clock: Arc<dyn Clock>,
    threads: Arc<dyn Threads>,
    /// False while writers are free: the one word a free writer looks at.
    is_active: AtomicBool,
    /// Picoseconds a byte, since merges are behind.
    merge_cost_ps: AtomicU64,
    /// Bytes a second that flushes have been draining.
    flush_rate: AtomicU64,
    /// True while sealed epochs wait behind the one being flushed.
    is_flush_behind: AtomicBool,
    /// When the next byte may be written, on the clock.
    next_ns: AtomicU64,
    /// Held by whoever sets the pace, so that the last one has the last word.
    setting: Mutex<()>,
    stalls: [StallGauge; 3],
}

impl Pacer {
    pub(crate) fn new(clock: Arc<dyn Clock>, threads: Arc<dyn Threads>) -> Pacer {
        Pacer {
            clock,
            threads,
            is_active: AtomicBool::new(false),
            merge_cost_ps: AtomicU64::new(0),
            flush_rate: AtomicU64::new(0),
            is_flush_behind: AtomicBool::new(false),
            next_ns: AtomicU64::new(0),
            setting: Mutex::new(()),
            stalls: Default::default(),
        }
    }

    /// Admits `bytes`, waiting if writers are paced. `fullness` tells how full write memory is, 0 to 1.
    #[inline]
    pub(crate) fn admit(
        &self,
        bytes: u64,
        fail_fast: bool,
        fullness: impl Fn() -> f64,
    ) -> Result<()> {
        if !self.is_active.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.pace(bytes, fail_fast, &fullness)
    }

    #[cold]
    fn pace(&self, bytes: u64, fail_fast: bool, fullness: &dyn Fn() -> f64) -> Result<()> {
        let merge_cost = self.merge_cost_ps.load(Ordering::Relaxed);
        let flush_cost = match self.is_flush_behind.load(Ordering::Relaxed) {
            true => {
                let excess = (fullness() - MEMORY_FREE) / (1.0 - MEMORY_FREE);
                cost(excess, self.flush_rate.load(Ordering::Relaxed) as f64)
            }
            false => 0,
        };
        let cause = match flush_cost > merge_cost {
            true => StallCause::PacedByFlush,
            false => StallCause::PacedByMerge,
        };
        let now = self.clock.now_ns();
        let price = bytes.saturating_mul(flush_cost.max(merge_cost)) / 1000;
        // Whoever will not wait for what others owe is refused, and owes nothing for it.
        let claim =
            |next: u64| (!fail_fast || next < now + DEBT_NS).then_some(next.max(now) + price);
        let claimed = self.next_ns.fetch_update(Ordering::Relaxed, Ordering::Relaxed, claim);
        let Ok(before) = claimed else { return Err(Error::WouldStall(cause.name())) };
        let due = before.max(now) + price;
        if fail_fast || due < now + DEBT_NS {
            return Ok(());
        }
        reached(Reach::StallPaced);
        let mut here = now;
        while here + DEBT_NS / 4 < due && self.is_active.load(Ordering::Relaxed) {
            self.threads.sleep(Duration::from_nanos((due - here).min(NAP_NS)));
            here = self.clock.now_ns();
        }
        self.count(cause, here - now);
        Ok(())
    }

    /// Records a wait.
    pub(crate) fn count(&self, cause: StallCause, waited_ns: u64) {
        let gauge = &self.stalls[cause as usize];
        gauge.count.fetch_add(1, Ordering::Relaxed);
        gauge.total_ns.fetch_add(waited_ns, Ordering::Relaxed);
        gauge.max_ns.fetch_max(waited_ns, Ordering::Relaxed);
    }

    pub(crate) fn now_ns(&self) -> u64 {
        self.clock.now_ns()
    }

    /// Sets the pace from merges: how far they are behind, and how many bytes a second they can take in.
    pub(crate) fn set_merges(&self, excess: f64, drain: f64) {
        let _setting = self.setting.lock();
        self.merge_cost_ps.store(cost(excess, drain), Ordering::Relaxed);
        self.refresh();
    }

    /// Sets the pace from flushes: whether sealed epochs wait, and the rate at which they are being flushed.
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

    /// Whether flushes are behind, and the rate they are taken for.
    #[cfg(all(test, not(any(loom, shuttle))))]
    pub(crate) fn flush_pace(&self) -> (bool, u64) {
        (self.is_flush_behind.load(Ordering::Relaxed), self.flush_rate.load(Ordering::Relaxed))
    }

    /// Called with `setting` held.
    fn refresh(&self) {
        let is_active = self.merge_cost_ps.load(Ordering::Relaxed) > 0
            || self.is_flush_behind.load(Ordering::Relaxed);
        if !is_active {
            // Relief forgives what writers owed; or the next pause would begin with the rest of this one.
            self.next_ns.store(0, Ordering::Relaxed);
        }
        self.is_active.store(is_active, Ordering::Relaxed);
    }

    pub(crate) fn stalls(&self) -> &[StallGauge; 3] {
        &self.stalls
    }
}

/// Picoseconds a byte, when `drain` bytes a second leave: nothing up to an excess of 0, the drain rate itself at
/// one half, four times slower than the drain from 1 on.
fn cost(excess: f64, drain: f64) -> u64 {
    if excess <= 0.0 {
        return 0;
    }
    let excess = excess.min(1.0);
    let at_drain = 1e12 / drain.max(1e6);
    (at_drain * 4.0 * excess * excess).max(1.0) as u64
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::components::stage::Stage;

    fn pacer() -> (Pacer, Arc<Stage>) {
        let stage = Arc::new(Stage::default());
        (Pacer::new(stage.clone(), stage.clone()), stage)
    }

    #[test]
    fn a_paced_writer_waits_as_long_as_its_bytes_take_to_drain() {
        let (pacer, stage) = pacer();
        pacer.admit(1 << 20, false, || 1.0).unwrap();
        assert_eq!(stage.now_ns(), 0, "nobody is behind");
        pacer.set_merges(0.5, 1e8);
        for megabytes in 1..=3 {
            pacer.admit(1_000_000, false, || 0.0).unwrap();
            let due = megabytes * 10_000_000;
            assert!(stage.now_ns().abs_diff(due) <= DEBT_NS, "{} for {due}", stage.now_ns());
        }
        let stall = &pacer.stalls()[StallCause::PacedByMerge as usize];
        assert_eq!(stall.count.load(Ordering::Relaxed), 3);
        assert_eq!(stall.total_ns.load(Ordering::Relaxed), stage.now_ns());
    }

    #[test]
    fn relief_forgives_what_writers_owed() {
        let (pacer, stage) = pacer();
        pacer.set_merges(1.0, 1e6);
        pacer.admit(100_000_000, true, || 0.0).unwrap();
        pacer.set_merges(0.0, 1e6);
        pacer.set_merges(1.0, 1e9);
        let before = stage.now_ns();
        pacer.admit(1000, false, || 0.0).unwrap();
        assert_eq!(stage.now_ns(), before, "the debts of the last pause");
    }

    #[test]
    fn a_refused_write_owes_nothing() {
        let (pacer, stage) = pacer();
        pacer.set_merges(0.5, 1e8);
        pacer.admit(100_000, true, || 0.0).unwrap();
        for _ in 0..1000 {
            let refused = pacer.admit(100_000, true, || 0.0).unwrap_err();
            assert!(matches!(refused, Error::WouldStall(_)));
        }
        stage.sleep(Duration::from_micros(1000));
        pacer.admit(100_000, true, || 0.0).unwrap();
    }

    #[test]
    fn the_cost_of_a_byte_grows_without_a_cliff() {
        let at = |excess| cost(excess, 1e8);
        assert_eq!((at(-1.0), at(0.0), at(0.5), at(1.0), at(9.0)), (0, 0, 10_000, 40_000, 40_000));
        for step in 0..100 {
            let (here, next) = (at(step as f64 / 100.0), at((step + 1) as f64 / 100.0));
            assert!(here < next && next - here <= 800, "{step}: {here} to {next}");
        }
    }
}
