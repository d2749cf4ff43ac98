//! Time of back-to-back operations with one clock read each: the end of one is the start of the
//! next.

use std::time::Instant;

pub(crate) struct Stopwatch {
    last: Instant,
}

impl Stopwatch {
    pub(crate) fn start() -> Stopwatch {
        Stopwatch { last: Instant::now() }
    }

    /// Nanoseconds since the previous lap or start.
    #[inline]
    pub(crate) fn lap(&mut self) -> u64 {
        let now = Instant::now();
        let nanos = now.duration_since(self.last).as_nanos() as u64;
        self.last = now;
        nanos
    }

    pub(crate) fn last(&self) -> Instant {
        self.last
    }

    /// Leaves out what happened since the last lap.
    #[inline]
    pub(crate) fn skip(&mut self) {
        self.last = Instant::now();
    }
}
