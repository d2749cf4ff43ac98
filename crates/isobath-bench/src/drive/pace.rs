//! Open loop: operations are due at fixed times, and lateness counts as latency, so that a stall
//! isn't hidden by the operations that it kept from starting.

use nix::sys::prctl::set_timerslack;
use std::time::{Duration, Instant};

/// Below this the thread spins: a sleep would overshoot. Spinning takes a core from the engine's
/// own threads, so timers that are more exact than the kernel's usual 50 µs keep it short.
const SPIN: Duration = Duration::from_micros(30);
const TIMER_SLACK_NS: u64 = 1_000;

/// One thread's share of a target rate.
pub(crate) struct Pace {
    start: Instant,
    interval: Duration,
    offset: Duration,
    turn: u64,
}

impl Pace {
    /// For the calling thread. `rate` is in operations (keys of batches) a second over all
    /// `threads`, whose turns are spread evenly.
    pub(crate) fn new(rate: f64, thread: u64, threads: u64, start: Instant) -> Pace {
        // Where this fails, sleeps are as long as they usually are.
        let _ = set_timerslack(TIMER_SLACK_NS);
        let interval = Duration::from_secs_f64(threads as f64 / rate);
        Pace { start, interval, offset: Duration::from_secs_f64(thread as f64 / rate), turn: 0 }
    }

    /// Waits until the next call, of this many operations, is due. Returns the time at which it was
    /// due, which may have passed already.
    pub(crate) fn wait(&mut self, operations: u64) -> Instant {
        let since = self.offset.as_nanos() as u64 + self.interval.as_nanos() as u64 * self.turn;
        let due = self.start + Duration::from_nanos(since);
        self.turn += operations;
        loop {
            let left = due.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return due;
            }
            if left > SPIN {
                std::thread::sleep(left - SPIN);
            } else {
                std::hint::spin_loop();
            }
        }
    }
}

impl Pace {
    /// Delays every call that is not yet due by a time that the engine has not caused, such as the
    /// time to make keys.
    pub(crate) fn pause(&mut self, time: Duration) {
        self.start += time;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::thread_cpu;

    #[test]
    fn operations_start_at_the_rate_and_a_stall_makes_the_next_ones_late() {
        let start = Instant::now();
        let mut pace = Pace::new(1000.0, 0, 1, start);
        assert_eq!(pace.wait(1), start);
        assert_eq!(pace.wait(1), start + Duration::from_millis(1));
        std::thread::sleep(Duration::from_millis(20));
        let due = pace.wait(1);
        assert_eq!(due, start + Duration::from_millis(2));
        assert!(due.elapsed() >= Duration::from_millis(18), "lateness is seen by the caller");
    }

    #[test]
    fn a_batch_takes_the_time_of_its_keys_and_a_pause_moves_what_is_due() {
        let start = Instant::now();
        let mut pace = Pace::new(10_000.0, 0, 1, start);
        assert_eq!(pace.wait(50), start);
        assert_eq!(pace.wait(50), start + Duration::from_millis(5));
        pace.pause(Duration::from_millis(3));
        assert_eq!(pace.wait(50), start + Duration::from_millis(13));
    }

    #[test]
    fn waiting_leaves_the_core_to_others() {
        let (start, before) = (Instant::now(), thread_cpu());
        let mut pace = Pace::new(10_000.0, 0, 1, start);
        while start.elapsed() < Duration::from_millis(500) {
            pace.wait(1);
        }
        let used = (thread_cpu() - before).as_secs_f64() / start.elapsed().as_secs_f64();
        assert!(used < 0.75, "{used} of a core for nothing");
    }

    #[test]
    fn threads_take_turns() {
        let start = Instant::now();
        assert_eq!(Pace::new(100.0, 1, 2, start).wait(1), start + Duration::from_millis(10));
    }
}
