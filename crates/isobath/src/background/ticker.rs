//! A thread that repeats one body.

use super::panics::{PanicReport, guard};
use crate::env::sync::{Condvar, Mutex, Rank};
use crate::env::{Priority, ThreadHandle, Threads};
use crate::error::{Error, Result};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Runs a body once per period, and soon after each [`Ticker::kick`]. Kicks that arrive while the
/// body runs cause one more run together. The period is the pause between two runs; a run may come
/// early.
pub(crate) struct Ticker {
    shared: Arc<Shared>,
    handle: Mutex<Option<Box<dyn ThreadHandle>>>,
}

struct Shared {
    signals: Mutex<Signals>,
    wake: Condvar,
}

#[derive(Default)]
struct Signals {
    is_kicked: bool,
    is_closed: bool,
}

impl Ticker {
    pub(crate) fn new(
        threads: &dyn Threads,
        name: &str,
        priority: Priority,
        period: Duration,
        mut body: Box<dyn FnMut() + Send>,
        report: PanicReport,
    ) -> Result<Ticker> {
        let shared = Arc::new(Shared {
            signals: Mutex::new(Rank::Ticker, Signals::default()),
            wake: Condvar::new(),
        });
        let run = {
            let (shared, name) = (Arc::clone(&shared), name.to_owned());
            move || {
                while shared.wait(period) {
                    guard(&name, &report, &mut body);
                }
            }
        };
        let handle = threads
            .spawn(name.to_owned(), priority, Box::new(run))
            .map_err(|error| Error::io("start thread", Path::new(name), error))?;
        Ok(Ticker { shared, handle: Mutex::new(Rank::TickerEnd, Some(handle)) })
    }

    /// A ticker without a thread, which never runs.
    pub(crate) fn none() -> Ticker {
        let signals = Mutex::new(Rank::Ticker, Signals::default());
        let shared = Arc::new(Shared { signals, wake: Condvar::new() });
        Ticker { shared, handle: Mutex::new(Rank::TickerEnd, None) }
    }

    /// Runs the body soon. Returns at once.
    #[cfg(test)]
    pub(crate) fn kick(&self) {
        self.shared.signals.lock().is_kicked = true;
        self.shared.wake.notify_one();
    }

    /// Waits for a run that has started; no other follows. May be called several times, from any
    /// thread but the ticker's own.
    pub(crate) fn close(&self) {
        self.shared.signals.lock().is_closed = true;
        self.shared.wake.notify_one();
        // The lock is held while joining, so that a second closer does not return before the first.
        let mut handle = self.handle.lock();
        if let Some(handle) = handle.take() {
            handle.join();
        }
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        self.close();
    }
}

impl Shared {
    /// Waits for the next run; false once closed.
    fn wait(&self, period: Duration) -> bool {
        let mut signals = self.signals.lock();
        if !signals.is_kicked && !signals.is_closed {
            self.wake.wait_for(&mut signals, period);
        }
        signals.is_kicked = false;
        !signals.is_closed
    }
}

impl std::fmt::Debug for Ticker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Ticker")
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::env::SystemThreads;
    use std::sync::mpsc;

    const NEVER: Duration = Duration::from_secs(3600);

    fn ticker(period: Duration, body: impl FnMut() + Send + 'static) -> Ticker {
        let report: PanicReport = Arc::new(|_, _| ());
        let threads = &SystemThreads;
        Ticker::new(threads, "tick", Priority::Low, period, Box::new(body), report).unwrap()
    }

    #[test]
    fn the_body_runs_again_and_again() {
        let (ran, runs) = mpsc::channel();
        let ticker = ticker(Duration::from_millis(1), move || {
            let _ = ran.send(());
        });
        for _ in 0..5 {
            runs.recv().unwrap();
        }
        ticker.close();
    }

    #[test]
    fn a_kick_does_not_wait_for_the_period() {
        let (ran, runs) = mpsc::channel();
        let ticker = ticker(NEVER, move || ran.send(()).unwrap());
        ticker.kick();
        runs.recv().unwrap();
        ticker.kick();
        runs.recv().unwrap();
        ticker.close();
        runs.try_iter().for_each(drop);
        ticker.kick();
        ticker.close();
        assert!(runs.recv().is_err(), "a closed ticker runs no more");
    }

    #[test]
    fn a_body_that_panics_runs_again() {
        let (ran, runs) = mpsc::channel();
        let ticker = ticker(NEVER, move || {
            ran.send(()).unwrap();
            panic!("each time");
        });
        for _ in 0..3 {
            ticker.kick();
            runs.recv().unwrap();
        }
    }
}
