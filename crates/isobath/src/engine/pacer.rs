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
/// A wait is cut into pieces of at most this length, so that the writer notices when the lag ends,
/// and others are admitted in between.
const NAP_NS: u64 = 5_000_000;
/// The longest that a write waits because compactions are further behind than full, while no other
/// writes.
const BEYOND_FULL_NS_MAX: u64 = 1_000_000_000;
/// The time that a write claims at once which has waited for so long.
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
    /// The same if compactions were at most so far behind as full.
    full_ps: u64,
    cause: StallCause,
}

impl Price {
    /// The bytes that a writer may claim at once who has waited for so long: those of a short nap.
    /// What compactions beyond full add is over after a second. Then they are more, because each
    /// claim queues behind those of all others.
    fn piece(&self, waited_ns: u64) -> u64 {
        let (ns, ps) = match waited_ns < BEYOND_FULL_NS_MAX {
            true => (NAP_NS, self.ps),
            false => (LATE_NS, self.full_ps),
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
        Price { full_ps, ps: full_ps.max(compaction_ps.min(beyond_ps_max)), cause }
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
mod tests {
    use super::*;
    use crate::env::fixtures::Stage;
    use crate::error::ErrorKind;

    fn pacer() -> (Pacer, Arc<Stage>) {
        let stage = Arc::new(Stage::default());
        (Pacer::new(stage.clone(), stage.clone()), stage)
    }

    #[test]
    fn a_paced_writer_waits_as_long_as_its_bytes_take_to_drain() {
        let (pacer, stage) = pacer();
        pacer.admit(1 << 20, false, || 1.0).unwrap();
        assert_eq!(stage.now_ns(), 0, "no job is behind");
        pacer.set_compactions(0.5, 1e8);
        for megabytes in 1..=3 {
            pacer.admit(1_000_000, false, || 0.0).unwrap();
            let due = megabytes * 10_000_000;
            assert!(stage.now_ns().abs_diff(due) <= DEBT_NS, "{} for {due}", stage.now_ns());
        }
        let stall = &pacer.stalls()[StallCause::CompactionBehind as usize];
        assert_eq!(stall.count.load(Ordering::Relaxed), 3);
        assert_eq!(stall.total_ns.load(Ordering::Relaxed), stage.now_ns());
    }

    #[test]
    fn a_free_writer_leaves_no_trace() {
        let (pacer, stage) = pacer();
        stage.sleep(Duration::from_secs(1));
        pacer.admit(1 << 20, false, || unreachable!("nothing is behind")).unwrap();
        assert_eq!(pacer.next_ns.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn relief_forgives_what_writers_owed() {
        let (pacer, stage) = pacer();
        pacer.set_compactions(1.0, 1e6);
        pacer.admit(100_000_000, true, || 0.0).unwrap();
        pacer.set_compactions(0.0, 1e6);
        pacer.set_compactions(1.0, 1e9);
        let before = stage.now_ns();
        pacer.admit(1000, false, || 0.0).unwrap();
        assert_eq!(stage.now_ns(), before, "the debts of the last pause");
    }

    #[test]
    fn a_refused_write_owes_nothing() {
        let (pacer, stage) = pacer();
        pacer.set_compactions(0.5, 1e8);
        pacer.admit(100_000, true, || 0.0).unwrap();
        for _ in 0..1000 {
            let refused = pacer.admit(100_000, true, || 0.0).unwrap_err();
            assert!(matches!(refused.kind(), ErrorKind::WouldStall { .. }));
        }
        stage.sleep(Duration::from_micros(1000));
        pacer.admit(100_000, true, || 0.0).unwrap();
    }

    #[test]
    fn the_cost_of_a_byte_grows_without_a_cliff() {
        let at = |lag| cost(lag, 1e8);
        assert_eq!(
            (at(-1.0), at(0.0), at(0.5), at(1.0), at(9.0)),
            (0, 0, 10_000, 40_000, 3_240_000)
        );
        for step in 0..100 {
            let (here, next) = (at(step as f64 / 100.0), at((step + 1) as f64 / 100.0));
            assert!(here < next && next - here <= 800, "{step}: {here} to {next}");
        }
    }

    fn waits(pacer: &Pacer, cause: StallCause) -> (u64, u64, u64) {
        let gauge = &pacer.stalls()[cause as usize];
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (read(&gauge.count), read(&gauge.total_ns), read(&gauge.max_ns))
    }

    /// A pacer at ten nanoseconds per byte.
    fn paced() -> (Pacer, Arc<Stage>) {
        let (pacer, stage) = pacer();
        pacer.set_compactions(0.5, 1e8);
        stage.sleep(Duration::from_secs(1));
        (pacer, stage)
    }

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn a_writer_sleeps_once_it_owes_enough_and_to_the_end_of_that_but_for_a_rest_too_short() {
        // The bytes of a write, and how long its writer sleeps.
        for (bytes, slept) in [
            (24_999, 0),
            (25_000, 250_000),
            (400_000, 4_000_000),
            (1_006_250, 10_000_000),
            (1_006_251, 10_062_510),
            (1_050_000, 10_500_000),
            (1_200_000, 12_000_000),
        ] {
            let (pacer, stage) = paced();
            pacer.admit(bytes, false, || 0.0).unwrap();
            assert_eq!(stage.now_ns() - SECOND, slept, "{bytes}");
            let expected = (u64::from(slept > 0), slept, slept);
            assert_eq!(waits(&pacer, StallCause::CompactionBehind), expected);
            assert_eq!(waits(&pacer, StallCause::FlushBehind), (0, 0, 0));
        }
    }

    #[test]
    fn compactions_behind_beyond_full_all_but_stop_small_writes_and_make_no_writer_wait_long() {
        const MS: u64 = 1_000_000;
        // Forty nanoseconds per byte at a lag of 1, a hundred times as much here.
        for (bytes, ms) in
            [(1000, 4), (10_000, 40), (250_000, 1000), (2_500_000, 1000), (50_000_000, 2000)]
        {
            let (pacer, stage) = pacer();
            pacer.set_compactions(11.0, 1e8);
            pacer.admit(bytes, false, || 0.0).unwrap();
            assert_eq!(stage.now_ns(), ms * MS, "{bytes}");
            assert_eq!(waits(&pacer, StallCause::CompactionBehind), (1, ms * MS, ms * MS));
        }
        let (pacer, stage) = pacer();
        pacer.set_compactions(11.0, 1e8);
        pacer.admit(1_000_000, true, || 0.0).unwrap();
        pacer.admit(10_000, false, || 0.0).unwrap();
        assert_eq!(stage.now_ns(), 1_000_400_000, "what others owe costs what it does at full");
        pacer.set_compactions(2.0, 1e8);
        pacer.admit(100_000, false, || 0.0).unwrap();
        assert_eq!(stage.now_ns(), 1_004_400_000, "it lasts no longer than they are so far behind");
    }

    /// Sixty-four others, each of which has claimed a nap and does so again once it is over.
    #[test]
    fn a_large_write_far_beyond_full_queues_behind_many_others_for_little_more_than_a_second() {
        let others = |pacer: &Pacer| {
            pacer.next_ns.fetch_max(pacer.now_ns() + 64 * NAP_NS, Ordering::Relaxed);
        };
        for bytes in [250_000, 2_500_000] {
            let (relief, pacer) = Relief::at(false, others);
            pacer.set_compactions(6.0, 1e8);
            others(&pacer);
            pacer.admit(bytes, false, || 0.0).unwrap();
            let took = relief.now_ns();
            let most = BEYOND_FULL_NS_MAX + 2 * (64 * NAP_NS + LATE_NS);
            assert!(took < most, "{bytes} took {took}");
        }
    }

    #[test]
    fn what_several_writers_owe_adds_up_and_is_worked_off_by_time() {
        let (pacer, stage) = paced();
        pacer.admit(20_000, false, || 0.0).unwrap();
        assert_eq!(stage.now_ns(), SECOND, "two hundred microseconds");
        pacer.admit(20_000, false, || 0.0).unwrap();
        assert_eq!(stage.now_ns(), SECOND + 400_000);
        stage.sleep(Duration::from_secs(1));
        pacer.admit(20_000, false, || 0.0).unwrap();
        assert_eq!(stage.now_ns(), 2 * SECOND + 400_000, "an idle time is no debt");
        pacer.admit(80_000, false, || 0.0).unwrap();
        assert_eq!(waits(&pacer, StallCause::CompactionBehind), (2, 1_400_000, 1_000_000));
        assert_eq!(pacer.now_ns(), stage.now_ns());
    }

    #[test]
    fn who_does_not_wait_is_refused_once_others_owe_enough() {
        for (owed, is_refused) in [(24_999, false), (25_000, true)] {
            let (pacer, stage) = paced();
            pacer.admit(owed, true, || 0.0).unwrap();
            assert_eq!(pacer.admit(1_000_000, true, || 0.0).is_err(), is_refused, "{owed}");
            assert_eq!(stage.now_ns(), SECOND);
            stage.sleep(Duration::from_nanos(10));
            assert_eq!(pacer.admit(1, true, || 0.0).is_err(), !is_refused, "it owes for both");
        }
        let (pacer, _) = paced();
        pacer.admit(1 << 63, true, || 0.0).unwrap();
        pacer.admit(1, true, || 0.0).unwrap_err();
    }

    #[test]
    fn flushes_pace_by_how_full_memory_is_while_they_are_behind() {
        for (fullness, ns_a_byte) in [(0.25, 0), (0.5, 0), (0.75, 10), (1.0, 40), (2.0, 40)] {
            let (pacer, stage) = pacer();
            pacer.set_flush(|| true, Some(100_000_000));
            pacer.admit(100_000, false, || fullness).unwrap();
            let slept = 100_000 * ns_a_byte;
            assert_eq!(stage.now_ns(), slept, "{fullness}");
            let expected = (u64::from(slept > 0), slept, slept);
            assert_eq!(waits(&pacer, StallCause::FlushBehind), expected);
            pacer.set_flush(|| false, None);
            pacer.admit(1 << 30, false, || fullness).unwrap();
            assert_eq!(stage.now_ns(), slept, "flushes have caught up");
        }
    }

    #[test]
    fn writers_are_paced_by_what_asks_for_more() {
        use StallCause::{CompactionBehind, FlushBehind};
        for (compactions, cause, ns_a_byte) in
            [(0.25, FlushBehind, 10), (0.5, CompactionBehind, 10), (1.0, CompactionBehind, 40)]
        {
            let (pacer, stage) = pacer();
            pacer.set_flush(|| true, Some(100_000_000));
            pacer.set_compactions(compactions, 1e8);
            pacer.admit(100_000, false, || 0.75).unwrap();
            assert_eq!(stage.now_ns(), 100_000 * ns_a_byte);
            assert_eq!(waits(&pacer, cause), (1, stage.now_ns(), stage.now_ns()));
            let refused = pacer.admit(1 << 30, true, || 0.75).and(pacer.admit(1, true, || 0.75));
            assert!(matches!(
                refused.as_ref().map_err(Error::kind),
                Err(ErrorKind::WouldStall { cause: why, .. }) if *why == cause
            ));
            // Compactions have caught up, flushes have not.
            pacer.set_compactions(0.0, 1e8);
            pacer.admit(1, true, || 0.75).unwrap_err();
            pacer.set_flush(|| false, None);
            pacer.admit(1, true, || 0.75).unwrap();
        }
    }

    #[test]
    fn the_rate_of_flushes_is_smoothed() {
        let (pacer, _) = pacer();
        let rate_after = |rate| {
            pacer.set_flush(|| false, rate);
            pacer.flush_rate.load(Ordering::Relaxed)
        };
        let rates = [Some(800), Some(400), None, Some(1100)].map(rate_after);
        assert_eq!(rates, [800, 700, 700, 800]);
    }

    #[test]
    fn a_pace_that_is_set_anew_forgives_nothing() {
        let (pacer, _) = paced();
        pacer.admit(1_000_000, true, || 0.0).unwrap();
        pacer.set_compactions(1.0, 1e8);
        pacer.set_flush(|| true, None);
        pacer.admit(1, true, || 0.0).unwrap_err();
    }

    #[test]
    fn a_rate_that_is_not_known_yet_is_taken_for_a_slow_one() {
        assert_eq!(
            (cost(0.5, 0.0), cost(0.5, 1e6), cost(0.5, 2e6)),
            (1_000_000, 1_000_000, 500_000)
        );
        assert_eq!(cost(1e-6, 1e9), 1, "behind is never free");
    }

    /// Threads on which something happens at the end of the second nap, once or at each one since.
    struct Relief {
        is_once: bool,
        stage: Stage,
        pacer: std::sync::OnceLock<std::sync::Weak<Pacer>>,
        has_come: std::sync::atomic::AtomicBool,
        comes: fn(&Pacer),
    }

    impl Relief {
        fn new(comes: fn(&Pacer)) -> (Arc<Relief>, Arc<Pacer>) {
            Relief::at(true, comes)
        }

        fn at(is_once: bool, comes: fn(&Pacer)) -> (Arc<Relief>, Arc<Pacer>) {
            let (stage, pacer) = (Stage::default(), std::sync::OnceLock::new());
            let relief =
                Arc::new(Relief { is_once, stage, pacer, has_come: Default::default(), comes });
            let pacer = Arc::new(Pacer::new(relief.clone(), relief.clone()));
            relief.pacer.set(Arc::downgrade(&pacer)).unwrap();
            (relief, pacer)
        }
    }

    impl Threads for Relief {
        fn spawn(
            &self,
            name: String,
            priority: crate::env::Priority,
            body: Box<dyn FnOnce() + Send>,
        ) -> std::io::Result<Box<dyn crate::env::ThreadHandle>> {
            self.stage.spawn(name, priority, body)
        }

        fn sleep(&self, duration: Duration) {
            self.stage.sleep(duration);
            let is_due = self.stage.now_ns() >= 2 * NAP_NS;
            if is_due && !(self.has_come.swap(true, Ordering::Relaxed) && self.is_once) {
                (self.comes)(&self.pacer.get().unwrap().upgrade().unwrap());
            }
        }

        fn parallelism(&self) -> usize {
            self.stage.parallelism()
        }
    }

    impl Clock for Relief {
        fn now_ns(&self) -> u64 {
            self.stage.now_ns()
        }

        fn unix_ms(&self) -> u64 {
            self.stage.unix_ms()
        }
    }

    #[test]
    fn a_writer_who_sleeps_notices_relief_after_a_nap() {
        let (relief, pacer) = Relief::new(|pacer| pacer.set_compactions(0.0, 1e8));
        pacer.set_compactions(0.5, 1e8);
        pacer.admit(100_000_000, false, || unreachable!("memory counts for flushes")).unwrap();
        assert_eq!(relief.now_ns(), 2 * NAP_NS);
        assert_eq!(waits(&pacer, StallCause::CompactionBehind), (1, 2 * NAP_NS, 2 * NAP_NS));
    }

    /// Compactions are hardly behind, so writers are paced still.
    #[test]
    fn what_flushes_cost_ends_when_they_have_caught_up_also_for_those_who_come_behind() {
        let (relief, pacer) = Relief::new(|pacer| pacer.set_flush(|| false, None));
        pacer.set_flush(|| true, Some(1_000_000));
        pacer.set_compactions(0.01, 1e9);
        for _ in 0..2 {
            pacer.admit(10_000_000, false, || 1.0).unwrap();
            let waited = relief.now_ns();
            assert!((2 * NAP_NS..3 * NAP_NS).contains(&waited), "{waited}");
        }
    }

    #[test]
    fn small_writes_do_not_wait_for_all_of_a_large_one_that_came_before() {
        let (relief, pacer) = Relief::new(|pacer| {
            let before = pacer.now_ns();
            pacer.admit(100_000, false, || 0.0).unwrap();
            let waited = pacer.now_ns() - before;
            assert!((NAP_NS / 5..2 * NAP_NS).contains(&waited), "{waited}");
        });
        pacer.set_compactions(0.5, 1e8);
        pacer.admit(100_000_000, false, || unreachable!("memory counts for flushes")).unwrap();
        assert_eq!(relief.now_ns(), SECOND + NAP_NS / 5, "each is charged for what it writes");
    }
}
