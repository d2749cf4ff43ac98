//! Whether the log still takes records, and if not, why: it was closed, an operation failed, or a
//! thread panicked.

use super::log::{Inner, Log};
use crate::env::sync::{Mutex, Rank, atomic::*};
use crate::error::{Error, ErrorKind, PoisonCause, Result};

/// Healthy until the first failure or the close; never healthy again after that.
#[derive(Debug)]
pub(super) struct Health {
    ended: AtomicBool,
    /// True once a record for which the disk has no room is given up.
    is_hurried: AtomicBool,
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
    pub(super) fn new() -> Health {
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
        Health { ended, is_hurried, end: Mutex::new(Rank::Health, end) }
    }

    pub(super) fn close(&self) {
        let mut end = self.end.lock();
        end.get_or_insert(End::Closed);
        self.ended.store(true, Ordering::Release);
    }

    /// Fails after a failure or the close.
    pub(super) fn check(&self) -> Result<()> {
        if !self.ended.load(Ordering::Acquire) {
            return Ok(());
        }
        match self.end.lock().clone() {
            Some(End::Poisoned(cause)) => Err(Error::poisoned(cause)),
            Some(End::Closed) => Err(Error::closed()),
            Some(End::ReadOnly) => Err(Error::read_only()),
            None => Ok(()),
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
}

impl Inner {
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
