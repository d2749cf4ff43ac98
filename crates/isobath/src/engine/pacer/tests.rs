//! The pacer on a stage: virtual time, no threads.

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
    assert_eq!((at(-1.0), at(0.0), at(0.5), at(1.0), at(9.0)), (0, 0, 10_000, 40_000, 3_240_000));
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
    assert_eq!((cost(0.5, 0.0), cost(0.5, 1e6), cost(0.5, 2e6)), (1_000_000, 1_000_000, 500_000));
    assert_eq!(cost(1e-6, 1e9), 1, "behind is never free");
}

/// Threads on which something happens at the end of a nap, once or at each one since.
struct Relief {
    is_once: bool,
    after_ns: u64,
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
        Relief::after(2 * NAP_NS, is_once, comes)
    }

    fn after(after_ns: u64, is_once: bool, comes: fn(&Pacer)) -> (Arc<Relief>, Arc<Pacer>) {
        let (stage, pacer) = (Stage::default(), std::sync::OnceLock::new());
        let has_come = Default::default();
        let relief = Arc::new(Relief { is_once, after_ns, stage, pacer, has_come, comes });
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
        let is_due = self.stage.now_ns() >= self.after_ns;
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
    // Also once the large one waits for long, and not at the end of a tenth of a second.
    for after_ns in [2 * NAP_NS, SECOND + 106 * NAP_NS] {
        let (relief, pacer) = Relief::after(after_ns, true, |pacer| {
            let before = pacer.now_ns();
            pacer.admit(100_000, false, || 0.0).unwrap();
            let waited = pacer.now_ns() - before;
            assert!((NAP_NS / 5..2 * NAP_NS).contains(&waited), "{waited}");
        });
        pacer.set_compactions(0.5, 1e8);
        pacer.admit(200_000_000, false, || unreachable!("memory counts for flushes")).unwrap();
        assert_eq!(relief.now_ns(), 2 * SECOND + NAP_NS / 5, "each is charged for what it writes");
    }
}
