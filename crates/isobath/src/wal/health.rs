//! Whether the log still takes records, and if not, why: it was closed, an operation failed, or a
//! thread panicked.

use super::log::{Inner, Log};
use crate::env::sync::{Mutex, Rank, atomic::*};
use crate::error::{Error, ErrorKind, PoisonCause, Result, StallCause};
use std::time::Duration;

/// The pause between two attempts to copy a record when the disk has no room for it.
const RETRY_PAUSE: Duration = Duration::from_millis(50);

/// Healthy until the first failure or the close; never healthy again after that.
#[derive(Debug)]
pub(crate) struct Health {
    ended: AtomicBool,
    /// True once a record for which the disk has no room is given up.
    is_hurried: AtomicBool,
    /// How many records wait until the disk has room for them.
    waiting: AtomicU64,
    end: Mutex<Option<End>>,
}

#[derive(Clone, Debug)]
enum End {
    Poisoned(PoisonCause),
    Closed,
    /// The log was opened for reading only.
    ReadOnly,
}

impl Health {
    pub(crate) fn new() -> Health {
        Health::with(None)
    }

    /// Records the failure. The first failure stays. It also replaces an earlier close: what the
    /// close still had to do was not done.
    pub(super) fn poison(&self, cause: &Error) {
        let mut end = self.end.lock();
        if !matches!(*end, Some(End::Poisoned(_))) {
            *end = Some(End::Poisoned(PoisonCause::of(cause)));
        }
        self.ended.store(true, Ordering::Release);
    }

    /// The health of a log that is only read.
    pub(super) fn read_only() -> Health {
        Health::with(Some(End::ReadOnly))
    }

    fn with(end: Option<End>) -> Health {
        let (ended, is_hurried) = (AtomicBool::new(end.is_some()), AtomicBool::new(false));
        let waiting = AtomicU64::new(0);
        Health { ended, is_hurried, waiting, end: Mutex::new(Rank::Health, end) }
    }

    pub(super) fn close(&self) {
        let mut end = self.end.lock();
        end.get_or_insert(End::Closed);
        self.ended.store(true, Ordering::Release);
    }

    /// Fails after a failure or the close.
    pub(super) fn check(&self) -> Result<()> {
        match self.ended.load(Ordering::Acquire) {
            true => Err(self.why()),
            false => Ok(()),
        }
    }

    /// Why the log has ended, for one who knows that it has.
    pub(super) fn why(&self) -> Error {
        let end = self.end.lock().clone();
        debug_assert!(end.is_some(), "the log goes on");
        match end {
            Some(End::Poisoned(cause)) => Error::poisoned(cause),
            Some(End::Closed) | None => Error::closed(),
            Some(End::ReadOnly) => Error::read_only(),
        }
    }

    /// True if a record for which the disk has no room may wait for some.
    pub(super) fn may_wait(&self) -> bool {
        !self.is_hurried.load(Ordering::Acquire) && self.check().is_ok()
    }

    /// Fails after a failure, but not after a mere close.
    pub(super) fn check_poison(&self) -> Result<()> {
        match self.check() {
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::Closed { .. } | ErrorKind::ReadOnly { .. }
                ) =>
            {
                Ok(())
            }
            other => other,
        }
    }

    /// The error for a commit that was waiting when the log ended.
    pub(super) fn outcome_unknown(&self) -> Error {
        let end = self.end.lock();
        debug_assert!(end.is_some(), "an outcome is unknown though the log goes on");
        match &*end {
            Some(End::Poisoned(cause)) => Error::outcome_unknown(cause.clone()),
            Some(End::Closed | End::ReadOnly) | None => Error::closed(),
        }
    }
}

impl Log {
    /// From now on a record for which the disk has no room poisons the log. Before, its writer
    /// waits for room, and so do all who wait for that writer.
    pub(crate) fn hurry(&self) {
        self.inner.health.is_hurried.store(true, Ordering::Release);
    }

    /// Refuses a commit that is not to wait while a record waits until the disk has room for it:
    /// what comes behind that record waits with it. For commits that have no LSN yet.
    #[cold]
    pub(crate) fn check_prompt(&self) -> Result<()> {
        match self.inner.health.waiting.load(Ordering::Acquire) {
            0 => Ok(()),
            _ => Err(Error::would_stall(StallCause::LogFull)),
        }
    }
}

/// A record that waits until the disk has room for it.
struct Waiting<'a>(&'a AtomicU64);

impl<'a> Waiting<'a> {
    fn begin(count: &'a AtomicU64) -> Waiting<'a> {
        count.fetch_add(1, Ordering::AcqRel);
        Waiting(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Inner {
    /// Tries a copy again that has failed, after pauses, as long as it may succeed. If it cannot,
    /// or the log has ended or is about to, poisons the log. The record's LSNs are handed out and
    /// cannot be taken back: if an unmapped segment (copy-on-write) finds no room for them, the
    /// commit waits until the disk has some, and commits that have later LSNs wait with it.
    #[cold]
    pub(super) fn outlast(&self, failed: Error, copy: &dyn Fn() -> Result<()>) -> Result<()> {
        let (mut error, _waiting) = (failed, Waiting::begin(&self.health.waiting));
        while error.is_retryable() && self.health.may_wait() {
            self.threads.sleep(RETRY_PAUSE);
            match copy() {
                Ok(()) => return Ok(()),
                Err(again) => error = again,
            }
        }
        self.poison(&error);
        Err(error)
    }

    /// Runs `body`, for which other threads wait. A panic in it poisons the log, so that their
    /// waits end.
    pub(super) fn guard<T>(&self, doing: &'static str, body: impl FnOnce() -> T) -> T {
        let alarm = Alarm { log: self, doing };
        let done = body();
        std::mem::forget(alarm);
        done
    }
}

/// Poisons the log when it is dropped. That happens only if the body of [`Inner::guard`] panics.
struct Alarm<'log> {
    log: &'log Inner,
    doing: &'static str,
}

impl Drop for Alarm<'_> {
    fn drop(&mut self) {
        let cause = PoisonCause::panicked(format!("while {}", self.doing), "");
        self.log.poison(&Error::poisoned(cause));
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn the_first_failure_stays_and_a_close_hides_none() {
        let health = Health::new();
        health.check().and(health.check_poison()).unwrap();
        for _ in 0..2 {
            health.close();
            assert_eq!(health.check().unwrap_err().name(), "CLOSED");
            assert!(health.outcome_unknown().is_closed());
            health.check_poison().unwrap();
        }
        for cause in ["first", "second"] {
            health.poison(&Error::poisoned(PoisonCause::given_up(cause)));
            health.close();
            for told in [health.check(), health.check_poison()] {
                let is_first = matches!(
                    told.as_ref().map_err(Error::kind),
                    Err(ErrorKind::Poisoned { cause: why, .. }) if why.to_string().contains("first")
                );
                assert!(is_first, "{told:?}");
            }
            let told = health.outcome_unknown();
            let is_first = matches!(
                told.kind(),
                ErrorKind::OutcomeUnknown { cause: why, .. } if why.to_string().contains("first")
            );
            assert!(is_first, "{told:?}");
        }
    }
}
