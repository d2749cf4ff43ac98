//! Which process this is.

use std::sync::atomic::{AtomicU32, Ordering};

/// The process that made this. A process that was forked from it has a copy, which knows. Only
/// tests change it, so it is nothing for model checkers.
#[derive(Debug)]
pub(crate) struct Process(AtomicU32);

impl Process {
    pub(crate) fn current() -> Process {
        Process(AtomicU32::new(std::process::id()))
    }

    /// True in the process that made it.
    pub(crate) fn is_this(&self) -> bool {
        self.0.load(Ordering::Relaxed) == std::process::id()
    }

    /// Takes it for made in another process, or no longer.
    #[cfg(test)]
    pub(crate) fn pretend(&self, is_other: bool) {
        self.0.store(if is_other { 0 } else { std::process::id() }, Ordering::Relaxed);
    }
}
