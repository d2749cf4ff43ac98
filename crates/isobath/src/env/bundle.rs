//! The outside world that a database is opened with.

use super::{Clock, Random, Threads};
#[cfg(any(unix, windows))]
use super::{SystemClock, SystemRandom, SystemThreads};
use crate::vfs::FileSystem;
#[cfg(any(unix, windows))]
use crate::vfs::SystemFs;
use std::sync::Arc;

/// Everything that a database takes from outside. `Env::system` is the real world; tests and the
/// simulator provide their own.
#[derive(Clone)]
pub struct Env {
    /// Files and directories.
    pub fs: Arc<dyn FileSystem>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Randomness, used only for identities (the database's UUID).
    pub random: Arc<dyn Random>,
    /// Background threads and sleeping.
    pub threads: Arc<dyn Threads>,
}

#[cfg(any(unix, windows))]
impl Env {
    /// The real world: the operating system's files, clocks, randomness and threads.
    pub fn system() -> Self {
        Env {
            fs: Arc::new(SystemFs::new()),
            clock: Arc::new(SystemClock::new()),
            random: Arc::new(SystemRandom),
            threads: Arc::new(SystemThreads),
        }
    }
}

#[cfg(any(unix, windows))]
impl Default for Env {
    fn default() -> Self {
        Env::system()
    }
}

impl std::fmt::Debug for Env {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Env")
    }
}
