//! What time the engine takes it to be, for values that end and for the history.
//!
//! What ends by a wrong time is gone for good. So a wall clock that *leaps*, by more than an hour
//! beyond the time that has passed since it was last believed, is not believed until it has stood
//! there for an hour. Until then the engine goes on from the time before the leap, by the clock
//! that never jumps: from what was handed out last, or from the last tick before the open if the
//! clock was behind that. Smaller steps are believed at once, and so is a clock that is set back:
//! the callers see to it that time does not go back.
//!
//! The wall clock is believed when a database is opened, because it may have been closed for years.
//! A machine that sleeps stops the clock that never jumps, so a sleep of more than an hour is a
//! leap, too: what has ended meanwhile is shown for an hour more. `docs/internals/expiry.md`
//! weighs it.

use super::Engine;
use crate::env::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::env::sync::{Mutex, Rank};
use crate::env::{Clock, Plant, Reach, planted, reached};
use crate::events::Event;
use std::sync::Arc;

/// A step ahead by more than this is a leap, which is believed once it has stood for as long.
const LEAP_MS: u64 = 3_600_000;

/// What is handed out may come to be ahead by so much more before it is noted. The readings jitter
/// by a little, and each note would cost threads that share them.
const NOTED_STEP_MS: u64 = 100;

/// This is added to how far the wall clock is ahead of the other one, which may be less than
/// nothing.
const LEVEL: u64 = 1 << 62;

/// A wall clock that is not believed at once if it leaps ahead.
pub(crate) struct TrustedClock {
    clock: Arc<dyn Clock>,
    /// How far the wall clock is believed to be ahead of the other one, and [`LEVEL`].
    ahead: AtomicU64,
    /// How far what was handed out last was ahead, within [`NOTED_STEP_MS`] above.
    noted: AtomicU64,
    /// A time that has come for all that is read.
    seen_ms: u64,
    /// The leap may be under way.
    is_leaping: AtomicBool,
    leap: Mutex<Option<Leap>>,
    /// By how much time has moved whenever a leap was believed in the end, together.
    moved_ms: AtomicU64,
    /// How far the last leap went that no event has told of; 0 for none.
    untold_ms: AtomicU64,
}

/// A leap that is not believed yet.
#[derive(Clone, Copy)]
struct Leap {
    /// When it was first seen, by the clock that never jumps.
    since_ms: u64,
    /// How far the wall clock was ahead since then at least.
    least: u64,
    /// How far what is handed out is ahead meanwhile.
    from: u64,
}

/// What time it is, and what [`TrustedClock::moved_ms`] was if a leap is doubted.
pub(super) type Judged = (u64, Option<u64>);

/// Both clocks at one moment.
#[derive(Clone, Copy)]
struct Reading {
    wall_ms: u64,
    steady_ms: u64,
}

impl Reading {
    /// If time passes in between, the wall clock seems to be less far ahead than it is.
    fn of(clock: &dyn Clock) -> Reading {
        let wall_ms = clock.unix_ms();
        Reading { wall_ms, steady_ms: clock.now_ns() / 1_000_000 }
    }

    fn ahead(self) -> u64 {
        self.wall_ms.min(LEVEL) + LEVEL - self.steady_ms
    }
}

impl TrustedClock {
    /// A clock that is believed now, and that time has come to `told_ms` already; for all that is
    /// read it has come to `seen_ms`.
    pub(crate) fn new(clock: Arc<dyn Clock>, seen_ms: u64, told_ms: u64) -> TrustedClock {
        let reading = Reading::of(&*clock);
        let told = Reading { wall_ms: reading.wall_ms.max(seen_ms).max(told_ms), ..reading };
        TrustedClock {
            clock,
            ahead: AtomicU64::new(told.ahead()),
            noted: AtomicU64::new(reading.ahead()),
            seen_ms,
            is_leaping: AtomicBool::new(false),
            leap: Mutex::new(Rank::Leap, None),
            moved_ms: AtomicU64::new(0),
            untold_ms: AtomicU64::new(0),
        }
    }

    /// Milliseconds since 1970. It may go back.
    #[inline]
    pub(crate) fn unix_ms(&self) -> u64 {
        self.look().0
    }

    /// The same, and whether a leap is doubted.
    #[inline]
    pub(super) fn look(&self) -> Judged {
        let reading = Reading::of(&*self.clock);
        let ahead = reading.ahead();
        if ahead > self.ahead.load(Ordering::Acquire) || self.is_leaping.load(Ordering::Acquire) {
            return self.judge(reading, ahead);
        }
        let noted = self.noted.load(Ordering::Relaxed);
        if ahead < noted || ahead > noted + NOTED_STEP_MS {
            self.noted.store(ahead, Ordering::Relaxed);
        }
        (reading.wall_ms, None)
    }

    /// By how much time has moved whenever a leap was believed in the end, together.
    pub(super) fn moved_ms(&self) -> u64 {
        self.moved_ms.load(Ordering::Acquire)
    }

    /// From where time goes on while a leap is doubted.
    fn from(&self, steady_ms: u64) -> u64 {
        let seen = Reading { wall_ms: self.seen_ms, steady_ms };
        self.noted.load(Ordering::Relaxed).max(seen.ahead())
    }

    #[cold]
    fn judge(&self, reading: Reading, ahead: u64) -> Judged {
        let Reading { wall_ms, steady_ms } = reading;
        let mut leap = self.leap.lock();
        let believed = self.ahead.load(Ordering::Acquire);
        let is_leap = |believed: u64| ahead > believed + LEAP_MS;
        if !is_leap(believed) || planted(Plant::LeapBelieved) {
            self.ahead.fetch_max(ahead, Ordering::AcqRel);
            // An earlier reading says nothing of what came later.
            if leap.is_none_or(|leap| leap.since_ms <= steady_ms) {
                *leap = None;
                self.noted.store(ahead, Ordering::Relaxed);
                self.is_leaping.store(false, Ordering::Release);
            }
            return (wall_ms, None);
        }
        let begins = || Leap { since_ms: steady_ms, least: ahead, from: self.from(steady_ms) };
        let Leap { since_ms, least, from } = leap.unwrap_or_else(begins);
        let least = least.min(ahead);
        debug_assert!(from <= believed && believed < least, "a leap goes ahead");
        if steady_ms.saturating_sub(since_ms) < LEAP_MS {
            if leap.is_none() {
                self.begin(ahead - believed);
            }
            *leap = Some(Leap { since_ms, least, from });
            return self.doubt(reading, from);
        }
        self.ahead.store(least, Ordering::Release);
        let is_over = !is_leap(least);
        // All that the leap came to: then nothing noted meanwhile seems to be earlier than it was.
        let moved = if is_over { ahead } else { least };
        self.moved_ms.fetch_add(moved - from, Ordering::AcqRel);
        if !is_over {
            // It has leapt once more meanwhile.
            self.begin(ahead - least);
            *leap = Some(Leap { since_ms: steady_ms, least: ahead, from: least });
            return self.doubt(reading, least);
        }
        self.ahead.store(ahead, Ordering::Release);
        self.noted.store(ahead, Ordering::Relaxed);
        *leap = None;
        self.is_leaping.store(false, Ordering::Release);
        (wall_ms, None)
    }

    /// The time that is handed out though the wall clock is further ahead. The caller has locked
    /// the leap.
    fn doubt(&self, Reading { wall_ms, steady_ms }: Reading, from: u64) -> Judged {
        let unix_ms = (from + steady_ms).saturating_sub(LEVEL);
        debug_assert!(unix_ms < wall_ms, "the wall clock is ahead of what is handed out");
        (unix_ms, Some(self.moved_ms()))
    }

    /// A leap begins, which goes so far.
    fn begin(&self, by_ms: u64) {
        reached(Reach::LeapDoubted);
        self.is_leaping.store(true, Ordering::Release);
        self.untold_ms.store(by_ms, Ordering::Release);
    }

    /// How far the wall clock has leapt ahead, if no event has told of it.
    fn take_untold(&self) -> Option<u64> {
        Some(self.untold_ms.swap(0, Ordering::AcqRel)).filter(|by_ms| *by_ms > 0)
    }
}

impl Engine {
    /// What time it is, if the wall clock can be believed. It may go back.
    #[inline]
    pub(crate) fn clock_ms(&self) -> u64 {
        self.clock.unix_ms()
    }

    /// Tells of a leap of the wall clock, once.
    pub(crate) fn tell_leap(&self) {
        if let Some(by_ms) = self.clock.take_untold() {
            self.tell(Event::ClockLeapt { ahead_us: by_ms.saturating_mul(1000) });
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    const HOUR: u64 = 60 * 60 * 1000;
    const STARTED: u64 = 1_700_000_000_000;

    /// The wall clock, and the other one, in milliseconds.
    struct Hands(AtomicU64, AtomicU64);

    impl Clock for Hands {
        fn now_ns(&self) -> u64 {
            self.1.load(Ordering::Relaxed) * 1_000_000
        }

        fn unix_ms(&self) -> u64 {
            self.0.load(Ordering::Relaxed)
        }
    }

    struct Bench(Arc<Hands>, TrustedClock);

    impl Bench {
        fn new() -> Bench {
            let hands = Arc::new(Hands(AtomicU64::new(STARTED), AtomicU64::new(500)));
            Bench(hands.clone(), TrustedClock::new(hands, 0, 0))
        }

        /// The time since the start after the wall clock was set by so much, and time has passed.
        fn after(&self, set_ms: i64, passed_ms: u64) -> i64 {
            let hands = &*self.0;
            hands.0.store(hands.unix_ms().checked_add_signed(set_ms).unwrap(), Ordering::Relaxed);
            hands.0.fetch_add(passed_ms, Ordering::Relaxed);
            hands.1.fetch_add(passed_ms, Ordering::Relaxed);
            self.1.unix_ms() as i64 - STARTED as i64
        }

        fn told(&self) -> Option<u64> {
            self.1.take_untold()
        }
    }

    const H: i64 = HOUR as i64;
    const YEAR: i64 = 365 * 24 * H;

    #[test]
    fn steps_of_up_to_an_hour_are_believed_at_once() {
        let bench = Bench::new();
        assert_eq!(bench.after(0, 10), 10);
        assert_eq!(bench.after(H, 0), H + 10);
        assert_eq!(bench.after(0, HOUR), 2 * H + 10);
        assert_eq!(bench.after(H, 5), 3 * H + 15);
        assert_eq!(bench.after(-H, 5), 2 * H + 20, "it may be set back");
        assert_eq!(bench.after(2 * H, 0), 4 * H + 20, "and ahead again");
        assert_eq!(bench.told(), None);
    }

    #[test]
    fn a_leap_that_is_taken_back_is_never_believed() {
        let bench = Bench::new();
        assert_eq!(bench.after(H + 1, 0), 0);
        assert_eq!(bench.told(), Some(HOUR + 1));
        assert_eq!(bench.after(YEAR, HOUR - 1), H - 1);
        assert_eq!(bench.after(-YEAR - H - 1, 1), H);
        assert_eq!(bench.after(YEAR, 5), H + 5, "the next one begins anew");
        assert_eq!(bench.told(), Some(YEAR as u64));
        assert_eq!(bench.after(0, HOUR - 1), 2 * H + 4);
        assert_eq!(bench.told(), None, "it is told once");
    }

    #[test]
    fn a_leap_is_believed_once_it_has_stood_for_an_hour() {
        let bench = Bench::new();
        assert_eq!(bench.after(YEAR, 0), 0);
        assert_eq!(bench.after(0, HOUR - 1), H - 1);
        assert_eq!(bench.after(0, 1), YEAR + H);
        assert_eq!(bench.after(H, 0), YEAR + 2 * H, "steps count from there");
        assert_eq!(bench.after(H + 1, 0), YEAR + 2 * H);
        assert_eq!(bench.told(), Some(HOUR + 1));
    }

    #[test]
    fn of_a_leap_that_goes_on_only_the_least_is_believed() {
        let bench = Bench::new();
        assert_eq!(bench.after(2 * H, 0), 0);
        assert_eq!(bench.after(YEAR, HOUR - 1), H - 1);
        assert_eq!(bench.after(0, 1), 3 * H);
        assert_eq!(bench.told(), Some(YEAR as u64));
        assert_eq!(bench.after(0, HOUR), YEAR + 4 * H);
        let bench = Bench::new();
        assert_eq!(bench.after(YEAR, 0), 0);
        assert_eq!(bench.after(2 * H - YEAR, HOUR), 3 * H);
    }

    #[test]
    fn a_time_that_was_told_before_is_no_leap() {
        let hands = Arc::new(Hands(AtomicU64::new(5), AtomicU64::new(HOUR)));
        let bench = Bench(hands.clone(), TrustedClock::new(hands, STARTED, 0));
        assert_eq!(bench.1.unix_ms(), 5, "the wall clock is as it is");
        assert_eq!(bench.after(STARTED as i64 - 5, 7), 7);
        assert_eq!(bench.after(YEAR, 1), 8, "time passes from there");
    }

    #[test]
    fn no_clock_is_too_far_off() {
        let hands = Arc::new(Hands(AtomicU64::new(0), AtomicU64::new(u64::MAX / 1_000_000)));
        let clock = TrustedClock::new(hands.clone(), 0, 0);
        assert_eq!(clock.unix_ms(), 0);
        hands.0.store(u64::MAX, Ordering::Relaxed);
        assert_eq!(clock.unix_ms(), 0);
        let clock = TrustedClock::new(hands, 0, 0);
        assert_eq!(clock.unix_ms(), u64::MAX);
    }

    #[test]
    fn a_reading_from_before_a_leap_does_not_end_it() {
        let bench = Bench::new();
        let before = Reading::of(&*bench.0);
        assert_eq!(bench.after(YEAR, 10), 10);
        assert_eq!(bench.1.judge(before, before.ahead()), (STARTED, None));
        assert_eq!(bench.after(0, HOUR), YEAR + H + 10, "it has stood since it was seen");
    }

    #[test]
    fn while_a_leap_is_doubted_time_goes_on_from_what_was_handed_out_last() {
        let bench = Bench::new();
        assert_eq!(bench.after(H, 10), H + 10);
        assert_eq!(bench.after(-H, 10), 20, "it was set back");
        assert_eq!(bench.after(YEAR, 5), 25);
        assert_eq!(bench.after(0, HOUR - 1), H + 24);
        assert_eq!(bench.after(-YEAR, 1), H + 25);
        assert_eq!(bench.after(H / 2, 0), H + H / 2 + 25, "and ahead by less than before");
        assert_eq!(bench.after(YEAR, 5), H + H / 2 + 30);
        assert_eq!(bench.after(-YEAR, 0), H + H / 2 + 30);
        // Small steps below what the clock once was cost no note each.
        let shown = (1..=250).map(|_| bench.after(1, 0)).last().unwrap();
        let doubted = bench.after(YEAR, 0);
        assert!((shown - NOTED_STEP_MS as i64..=shown).contains(&doubted), "{doubted} {shown}");
    }

    #[test]
    fn a_leap_that_was_believed_has_moved_time_by_how_far_it_went() {
        let bench = Bench::new();
        let moved = |set_ms: i64, passed_ms: u64| {
            bench.after(set_ms, passed_ms);
            (bench.1.look().1, bench.1.moved_ms())
        };
        assert_eq!(moved(H, 10), (None, 0));
        assert_eq!(moved(-H, 10), (None, 0));
        assert_eq!(moved(YEAR, 0), (Some(0), 0));
        assert_eq!(moved(-YEAR, 1), (None, 0));
        let year = YEAR as u64;
        assert_eq!(moved(YEAR, 0), (Some(0), 0));
        assert_eq!(moved(2 * H, HOUR), (Some(year), year), "it has leapt on meanwhile");
        assert_eq!(moved(0, HOUR), (None, year + 2 * HOUR));
    }

    #[test]
    fn a_machine_that_starts_without_a_time_goes_on_from_what_was_seen() {
        let start = |seen_ms, noted_ms| {
            let hands = Arc::new(Hands(AtomicU64::new(5), AtomicU64::new(HOUR)));
            Bench(hands.clone(), TrustedClock::new(hands, seen_ms, noted_ms))
        };
        let bench = start(STARTED, 0);
        assert_eq!(bench.1.unix_ms(), 5);
        assert_eq!(bench.after(STARTED as i64 + 5 * H, 10), 0);
        assert_eq!(bench.after(0, 10), 10);
        assert_eq!(bench.after(0, HOUR), 6 * H + 25);
        let bench = start(0, STARTED);
        assert_eq!(bench.1.unix_ms(), 5);
        assert_eq!(bench.after(STARTED as i64 + 5 * H, 10), 15 - STARTED as i64);
        let bench = start(0, STARTED);
        assert_eq!(bench.after(STARTED as i64 + H - 15, 10), H, "what was noted is no leap");
    }

    #[test]
    fn threads_that_share_the_clock_see_no_leap_before_its_hour_and_all_of_it_after() {
        let bench = Bench::new();
        let is_over = AtomicBool::new(false);
        let far = STARTED + YEAR as u64;
        let looks: [AtomicU64; 4] = Default::default();
        let reads = |looks: &AtomicU64| {
            let mut has_seen_far = false;
            loop {
                let unix_ms = bench.1.unix_ms();
                let is_far = unix_ms >= far;
                assert!(is_far || (STARTED..=STARTED + 4 * HOUR).contains(&unix_ms), "{unix_ms}");
                assert!(is_far || !has_seen_far, "{unix_ms} once the leap is believed");
                has_seen_far |= is_far;
                looks.fetch_add(1, Ordering::Relaxed);
                // One that begins late has read once, too.
                if is_over.load(Ordering::Acquire) {
                    return;
                }
            }
        };
        std::thread::scope(|scope| {
            let reader = |looks| scope.spawn(move || reads(looks));
            let readers: Vec<_> = looks.iter().map(reader).collect();
            for round in 0..200 {
                bench.after(if round % 2 == 0 { YEAR } else { -YEAR }, 0);
                std::thread::yield_now();
            }
            bench.after(YEAR, 1);
            // A reading from before may have ended the doubt, which began anew then.
            let minutes = (1..4 * 60).find(|_| {
                // A reader that stood still for an hour between the clocks would see half a leap.
                let before = looks.each_ref().map(|looks| looks.load(Ordering::Relaxed));
                for ((reader, looks), before) in readers.iter().zip(&looks).zip(before) {
                    while looks.load(Ordering::Relaxed) == before && !reader.is_finished() {
                        std::thread::yield_now();
                    }
                }
                // No reading is further ahead than the leap if this clock goes first.
                bench.0.1.fetch_add(HOUR / 60, Ordering::Relaxed);
                bench.0.0.fetch_add(HOUR / 60, Ordering::Relaxed);
                std::thread::yield_now();
                bench.1.unix_ms() >= far
            });
            is_over.store(true, Ordering::Release);
            readers.into_iter().for_each(|reader| reader.join().unwrap());
            assert!(minutes.is_some_and(|minutes| minutes >= 60), "{minutes:?}");
        });
        assert!(bench.told().is_some());
    }
}
