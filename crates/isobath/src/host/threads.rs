//! Background threads.

use std::cell::Cell;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// How important a background thread is, compared with the program's writers and readers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priority {
    /// Writers wait for this thread (maintenance of the log, flush).
    Normal,
    /// This thread may wait for all others (compaction).
    Low,
}

/// Starts threads, and lets threads sleep.
pub trait Threads: Send + Sync + 'static {
    /// Starts a thread.
    fn spawn(
        &self,
        name: String,
        priority: Priority,
        body: Box<dyn FnOnce() + Send>,
    ) -> io::Result<Box<dyn ThreadHandle>>;
    /// Blocks the calling thread.
    fn sleep(&self, duration: Duration);
    /// How many threads can run at the same time.
    fn parallelism(&self) -> usize;
}

/// A number of the calling thread, for the choice of a place that few threads share: 0, 1, 2, and
/// so on, in the order in which threads first ask. Under a simulator or a model checker it is 0, so
/// that a run repeats.
#[inline]
pub(crate) fn thread_number() -> usize {
    if cfg!(any(loom, shuttle, feature = "simulation")) {
        return 0;
    }
    match NUMBER.get() {
        NO_NUMBER => number_thread(),
        number => number,
    }
}

const NO_NUMBER: usize = usize::MAX;
static NEXT_NUMBER: AtomicUsize = AtomicUsize::new(0);
thread_local! {
    static NUMBER: Cell<usize> = const { Cell::new(NO_NUMBER) };
}

#[cold]
fn number_thread() -> usize {
    let number = NEXT_NUMBER.fetch_add(1, Ordering::Relaxed);
    NUMBER.set(number);
    number
}

/// True while the calling thread unwinds. A failed assertion in a `drop` would then end the
/// process.
pub(crate) fn is_unwinding() -> bool {
    std::thread::panicking()
}

/// A started thread.
pub trait ThreadHandle: Send + Sync {
    /// Waits until the thread has ended.
    fn join(self: Box<Self>);
}

/// The operating system's threads.
#[derive(Debug)]
pub struct SystemThreads;

struct SystemHandle(std::thread::JoinHandle<()>);

impl ThreadHandle for SystemHandle {
    fn join(self: Box<Self>) {
        // The thread has already printed the panic of its body; here it only matters that it has
        // ended.
        let _ = self.0.join();
    }
}

impl Threads for SystemThreads {
    fn spawn(
        &self,
        name: String,
        priority: Priority,
        body: Box<dyn FnOnce() + Send>,
    ) -> io::Result<Box<dyn ThreadHandle>> {
        let run = move || {
            if priority == Priority::Low {
                lower_own_priority();
            }
            body();
        };
        let handle = std::thread::Builder::new().name(name).spawn(run)?;
        Ok(Box::new(SystemHandle(handle)))
    }

    fn sleep(&self, duration: Duration) {
        std::thread::sleep(duration);
    }

    fn parallelism(&self) -> usize {
        std::thread::available_parallelism().map_or(2, |n| n.get())
    }
}

#[cfg(debug_assertions)]
thread_local! {
    static IS_LOW: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// Panics in a debug build if the calling thread was started with low priority. What it does would
/// block threads that writers wait for.
pub(crate) fn demand_normal_priority(doing: &str) {
    #[cfg(debug_assertions)]
    assert!(!IS_LOW.get(), "a thread of low priority {doing}");
    #[cfg(not(debug_assertions))]
    let _ = doing;
}

/// Panics in a debug build if the calling thread was started with low priority and holds a lock of
/// the engine: what it does may take long, and who wants the lock would wait for it.
#[track_caller]
pub(crate) fn demand_no_locks_at_low_priority(doing: &str) {
    #[cfg(all(debug_assertions, not(any(loom, shuttle))))]
    if IS_LOW.get()
        && let Some(held) = super::lock_order::any_held()
    {
        assert!(is_unwinding(), "a thread of low priority {doing} while it holds {held}");
    }
    #[cfg(not(all(debug_assertions, not(any(loom, shuttle)))))]
    let _ = doing;
}

/// On Linux each thread has its own nice value. On other systems this only marks the thread.
fn lower_own_priority() {
    #[cfg(debug_assertions)]
    IS_LOW.set(true);
    #[cfg(all(target_os = "linux", not(miri)))]
    // SAFETY: setpriority takes plain integers and touches no memory; 0 means the calling thread.
    unsafe {
        libc::setpriority(libc::PRIO_PROCESS, 0, 10);
    }
}
