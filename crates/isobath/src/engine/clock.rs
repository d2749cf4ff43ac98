//! What time the engine takes it to be, for values that end and for the history.
//!
//! What ends by a wrong time is gone for good. So a wall clock that *leaps*, by more than an hour
//! beyond the time that has passed since it was last believed, is not believed until it has stood
//! there for an hour. Until then the engine goes on from the furthest that the clock was believed
//! to be ahead, by the clock that never jumps. Smaller steps are believed at once,
//! and so is a clock that is set back: the
//! callers see to it that time does not go back.
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

/// This is added to how far the wall clock is ahead of the other one, which may be less than
/// nothing.
const LEVEL: u64 = 1 << 62;

/// A wall clock that is not believed at once if it leaps ahead.
pub(crate) struct TrustedClock {
    clock: Arc<dyn Clock>,
    /// How far the wall clock is believed to be ahead of the other one, and [`LEVEL`].
    ahead: AtomicU64,
    /// The leap may be under way.
    is_leaping: AtomicBool,
    leap: Mutex<Option<Leap>>,
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
}

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
    /// A clock that is believed now, and that time has come to `told_ms` already.
    pub(crate) fn new(clock: Arc<dyn Clock>, told_ms: u64) -> TrustedClock {
        let reading = Reading::of(&*clock);
        let reading = Reading { wall_ms: reading.wall_ms.max(told_ms), ..reading };
        TrustedClock {
            clock,
            ahead: AtomicU64::new(reading.ahead()),
            is_leaping: AtomicBool::new(false),
            leap: Mutex::new(Rank::Leap, None),
            untold_ms: AtomicU64::new(0),
        }
    }

    /// Milliseconds since 1970. It may go back.
    #[inline]
    pub(crate) fn unix_ms(&self) -> u64 {
        let reading = Reading::of(&*self.clock);
        let ahead = reading.ahead();
        if ahead > self.ahead.load(Ordering::Acquire) || self.is_leaping.load(Ordering::Acquire) {
            return self.judge(reading, ahead);
        }
        reading.wall_ms
    }

    #[cold]
    fn judge(&self, reading: Reading, ahead: u64) -> u64 {
        let Reading { wall_ms, steady_ms } = reading;
        let mut leap = self.leap.lock();
        let believed = self.ahead.load(Ordering::Acquire);
        let is_leap = |believed: u64| ahead > believed + LEAP_MS;
        if !is_leap(believed) || planted(Plant::LeapBelieved) {
            self.ahead.fetch_max(ahead, Ordering::AcqRel);
            // An earlier reading says nothing of what came later.
            if leap.is_none_or(|leap| leap.since_ms <= steady_ms) {
                *leap = None;
                self.is_leaping.store(false, Ordering::Release);
            }
            return wall_ms;
        }
        let least = leap.map_or(ahead, |leap| leap.least.min(ahead));
        let since_ms = leap.map_or(steady_ms, |leap| leap.since_ms);
        debug_assert!(believed < least && least <= ahead, "a leap goes ahead");
        if steady_ms.saturating_sub(since_ms) < LEAP_MS {
            if leap.is_none() {
                self.begin(ahead - believed);
            }
            *leap = Some(Leap { since_ms, least });
            let unix_ms = believed + steady_ms - LEVEL;
            debug_assert!(unix_ms < wall_ms, "the wall clock is ahead of what is believed");
            return unix_ms;
        }
        self.ahead.store(least, Ordering::Release);
        if is_leap(least) {
            // It has leapt once more meanwhile.
            self.begin(ahead - least);
            *leap = Some(Leap { since_ms: steady_ms, least: ahead });
            return least + steady_ms - LEVEL;
        }
        self.ahead.store(ahead, Ordering::Release);
        *leap = None;
        self.is_leaping.store(false, Ordering::Release);
        wall_ms
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

    const HOUR: u64 = LEAP_MS;
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
            Bench(hands.clone(), TrustedClock::new(hands, 0))
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
        let bench = Bench(hands.clone(), TrustedClock::new(hands, STARTED));
        assert_eq!(bench.1.unix_ms(), 5, "the wall clock is as it is");
        assert_eq!(bench.after(STARTED as i64 - 5, 7), 7);
        assert_eq!(bench.after(YEAR, 1), 8, "time passes from there");
    }

    #[test]
    fn no_clock_is_too_far_off() {
        let hands = Arc::new(Hands(AtomicU64::new(0), AtomicU64::new(u64::MAX / 1_000_000)));
        let clock = TrustedClock::new(hands.clone(), 0);
        assert_eq!(clock.unix_ms(), 0);
        hands.0.store(u64::MAX, Ordering::Relaxed);
        assert_eq!(clock.unix_ms(), 0);
        let clock = TrustedClock::new(hands, 0);
        assert_eq!(clock.unix_ms(), u64::MAX);
    }

    #[test]
    fn a_reading_from_before_a_leap_does_not_end_it() {
        let bench = Bench::new();
        let before = Reading::of(&*bench.0);
        assert_eq!(bench.after(YEAR, 10), 10);
        assert_eq!(bench.1.judge(before, before.ahead()), STARTED);
        assert_eq!(bench.after(0, HOUR), YEAR + H + 10, "it has stood since it was seen");
    }
}
