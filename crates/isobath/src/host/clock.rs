//! Time.

use std::time::{Instant, UNIX_EPOCH};

/// A time that a program gives, for [`unix_ms_of`].
pub(crate) use std::time::SystemTime;

/// A source of time.
pub trait Clock: Send + Sync + 'static {
    /// Nanoseconds since some fixed moment of this process. Never goes back.
    fn now_ns(&self) -> u64;
    /// Milliseconds since 1970 by the wall clock. May jump.
    fn unix_ms(&self) -> u64;
}

/// Milliseconds from 1970 to `time`; 0 for earlier times.
pub(crate) fn unix_ms_of(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// The system's clocks.
#[derive(Debug)]
pub struct SystemClock {
    start: Instant,
}

impl SystemClock {
    /// A clock whose zero is now.
    pub fn new() -> Self {
        SystemClock { start: Instant::now() }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        SystemClock::new()
    }
}

impl Clock for SystemClock {
    fn now_ns(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    fn unix_ms(&self) -> u64 {
        unix_ms_of(SystemTime::now())
    }
}
