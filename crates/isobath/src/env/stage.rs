//! Time that passes only when somebody sleeps: for tests of what is slow, in no time. Its sleeper is the only thread.

use super::sync::atomic::{AtomicU64, Ordering};
use super::{Clock, Priority, ThreadHandle, Threads};
use std::time::Duration;

/// A clock, and threads that none can be started of.
#[derive(Default)]
pub(crate) struct Stage(AtomicU64);

impl Clock for Stage {
    fn now_ns(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn unix_ms(&self) -> u64 {
        0
    }
}

impl Threads for Stage {
    fn spawn(
        &self,
        _: String,
        _: Priority,
        _: Box<dyn FnOnce() + Send>,
    ) -> std::io::Result<Box<dyn ThreadHandle>> {
        Err(std::io::ErrorKind::Unsupported.into())
    }

    fn sleep(&self, duration: Duration) {
        self.0.fetch_add(duration.as_nanos() as u64, Ordering::Relaxed);
    }

    fn parallelism(&self) -> usize {
        1
    }
}
